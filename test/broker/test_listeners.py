"""Listeners with TLS and passwords: what lets whom in, what is told to whom, and what nobody is ever shown."""

from __future__ import annotations

import contextlib
import logging
import os
import pathlib
import socket
import ssl
import stat
import subprocess
import sys

import pytest

from kafka.broker.broker import Broker
from kafka.broker.config import BrokerConfig
from kafka.broker.listener_security import JaasError, parse_jaas
from kafka.broker.listeners import BrokerSecurity, read_listeners, read_properties, read_users, write_properties
from kafka.broker.server import BrokerServer
from kafka.broker.state_file import read_state
from kafka.core.connection import ClientConnection
from kafka.core.sasl.mechanism import PlainClient
from kafka.core.sasl.scram import SCRAM_SHA_256, SCRAM_SHA_512, ScramClient
from kafka.errors import KafkaConfigurationError
from kafka.net.loop import Loop
from kafka.net.memory import MemoryNetwork
from kafka.net.tls import CertificateWithKey, Pem, TlsNetwork, client_context
from kafka.net.transport import TlsCertificateError, TlsError
from kafka.protocol.api_versions import ApiVersionsRequest
from kafka.protocol.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from kafka.protocol.coordinator import FindCoordinatorRequest
from kafka.protocol.metadata import DescribeClusterRequest, MetadataRequest
from kafka.protocol.sasl import DescribeUserScramCredentialsRequest, SaslAuthenticateRequest, SaslHandshakeRequest
from kafka.protocol.topics import CreateTopicsRequest
from kafka.testing import EmbeddedBroker
from test.broker.driver import HandBroker, fetch_request, newest
from test.broker.groups.requests import join, sync
from test.broker.raw_client import RawClient
from test.net.recorder import Recorder
from test.support import seeds
from test.support.certificates import PASSWORD

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = f'{MODULE} required user_alice="alice-secret" user_bob="bob-secret";'
LISTENERS = {
    "listeners": "PLAINTEXT://broker:1,SSL://broker:2,MUTUAL://broker:3,SASL://broker:4,BOTH://broker:5,"
    "SHORT://broker:6",
    "advertised.listeners": "SASL://outside.example:9094",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,MUTUAL:SSL,SASL:SASL_PLAINTEXT,BOTH:SASL_SSL,"
    "SHORT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl.plain.sasl.jaas.config": JAAS,
    "listener.name.mutual.ssl.client.auth": "required",
    "listener.name.short.connections.max.reauth.ms": "3000",
    "group.initial.rebalance.delay.ms": "4000",
}
METADATA = MetadataRequest(topics=[])
VERSIONS = ApiVersionsRequest(client_software_name="x", client_software_version="1")


class Client:
    """A connection by hand: requests out, answers in, on the simulated loop."""

    def __init__(self, world: World, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.world = world
        self.recorder = Recorder(on_data=self._received)
        self.machine = ClientConnection("by-hand")
        self.answers = []
        self.raw = bytearray()
        self.takes_raw = False
        network = world.network.host("client")
        under = TlsNetwork(network, tls, server_hostname="broker") if tls is not None else network
        addresses = [world.server.addresses[name] for name in world.server.addresses]
        self.transport = under.connect([next(a for a in addresses if a.port == port)], self.recorder)

    def _received(self, data: bytes) -> None:
        if self.takes_raw:
            self.raw += data
        else:
            self.answers += [answer for _, answer in self.machine.receive(data)]

    def ask(self, request, version=None):
        """The answer, or None when the connection ended without one."""
        self.transport.write(self.machine.send(request, newest(request) if version is None else version))
        before = len(self.answers)
        self.world.run(lambda: len(self.answers) > before or self.recorder.is_closed)
        return self.answers[before] if len(self.answers) > before else None

    def token(self, data: bytes) -> bytes | None:
        """A SASL token without a header, and the one that answers it."""
        self.takes_raw, self.raw = True, bytearray()
        self.transport.write(len(data).to_bytes(4, "big") + data)
        self.world.run(lambda: len(self.raw) >= 4 or self.recorder.is_closed)
        self.takes_raw = False
        return bytes(self.raw[4:]) if self.raw else None

    def log_in(self, mechanism, version=1):
        """The whole dialogue; the last answer."""
        answer = self.ask(SaslHandshakeRequest(mechanism=mechanism.name), 1)
        token = mechanism.first()
        while token is not None and answer is not None and answer.error_code == 0:
            answer = self.ask(SaslAuthenticateRequest(auth_bytes=token), version)
            if answer is None or answer.error_code:
                break
            token = mechanism.step(bytes(answer.auth_bytes))
        return answer

    @property
    def is_ended(self) -> bool:
        self.world.run(lambda: self.recorder.is_closed, 0.5)
        return self.recorder.is_closed


class World:
    """A broker with six listeners on a network in memory."""

    def __init__(self, data_dir: pathlib.Path, settings: dict[str, str], users: dict[str, str]) -> None:
        self.loop = Loop.simulated()
        self.network = MemoryNetwork(self.loop)
        self.broker = Broker(str(data_dir), settings, fsync="never", users=users)
        specs = read_listeners(self.broker.config, "broker", 0, has_users=bool(users))
        self.server = BrokerServer(self.broker, self.network.host("broker"), listeners=specs)

    def run(self, done, timeout_s: float = 20.0) -> None:
        self.loop.run_until(done, timeout_s)

    def connect(self, port: int, tls: ssl.SSLContext | None = None) -> Client:
        return Client(self, port, tls)

    def close(self) -> None:
        self.server.close()
        self.broker.close()


PLAIN_PORT, SSL_PORT, MUTUAL_PORT, SASL_PORT, BOTH_PORT, SHORT_PORT = 1, 2, 3, 4, 5, 6


@pytest.fixture
def settings(certificates):
    return {
        **LISTENERS,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": certificates.server_locked,
        "ssl.key.password": PASSWORD,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": certificates.ca,
    }


@pytest.fixture
def world(tmp_path, settings):
    world = World(tmp_path / "data", settings, {"carol": "carol-secret", "a,b=c": "comma-secret"})
    yield world
    world.close()


@pytest.fixture
def trusting(certificates):
    return client_context(Pem("ca", certificates.ca))


# -- who is let in ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mechanism",
    [
        lambda: PlainClient("alice", "alice-secret"),
        lambda: PlainClient("carol", "carol-secret"),
        lambda: ScramClient(SCRAM_SHA_256, "carol", "carol-secret", "nonce"),
        lambda: ScramClient(SCRAM_SHA_512, "carol", "carol-secret", "nonce"),
        lambda: ScramClient(SCRAM_SHA_512, "a,b=c", "comma-secret", "nonce"),
    ],
)
def test_who_knows_the_password_is_served(world, mechanism):
    client, machine = world.connect(SASL_PORT), mechanism()
    assert client.log_in(machine).error_code == 0
    assert machine.is_complete
    assert client.ask(METADATA).brokers[0].port == 9094


def test_users_of_a_jaas_text_are_those_of_one_listener(world, trusting):
    client = world.connect(BOTH_PORT, trusting)
    assert client.log_in(PlainClient("alice", "alice-secret")).error_code == 58
    again = world.connect(BOTH_PORT, trusting)
    assert again.log_in(PlainClient("carol", "carol-secret")).error_code == 0


@pytest.mark.parametrize(
    ("mechanism", "text"),
    [
        (lambda: PlainClient("alice", "wrong"), "Authentication failed: Invalid username or password"),
        (
            lambda: ScramClient(SCRAM_SHA_512, "carol", "wrong", "nonce"),
            "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512",
        ),
    ],
)
def test_a_wrong_password_is_refused_late_and_ends_the_connection(world, mechanism, text, caplog):
    client = world.connect(SASL_PORT)
    client.ask(VERSIONS)
    started = world.loop.time()
    answer = client.log_in(mechanism())
    assert (answer.error_code, answer.error_message) == (58, text)
    assert world.loop.time() - started == pytest.approx(0.1, abs=0.001)
    assert client.is_ended
    assert [record.levelname for record in caplog.records if "authentication failed" in record.message] == ["WARNING"]
    assert "wrong" not in caplog.text.replace("wrong password", "")


def test_a_mechanism_that_is_not_enabled_is_refused_with_the_list_of_those_that_are(world):
    client = world.connect(SASL_PORT)
    answer = client.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
    assert (answer.error_code, answer.mechanisms) == (33, ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
    assert client.is_ended


@pytest.mark.parametrize("request_of", [lambda: METADATA, lambda: SaslAuthenticateRequest(auth_bytes=b"\0alice\0x")])
def test_strangers_get_no_answer_to_anything_else(world, request_of):
    for first in ([], [VERSIONS]):
        client = world.connect(SASL_PORT)
        for request in first:
            assert client.ask(request).error_code == 0
        assert client.ask(request_of()) is None
        assert client.is_ended


def test_versions_are_sent_once_to_an_unauthenticated_client(world):
    client = world.connect(SASL_PORT)
    assert client.ask(VERSIONS).error_code == 0
    assert client.ask(VERSIONS) is None


def test_requests_in_the_midst_of_authentication_are_illegal(world):
    for request in (VERSIONS, SaslHandshakeRequest(mechanism="PLAIN")):
        client = world.connect(SASL_PORT)
        client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert client.ask(request).error_code == 34
        assert client.is_ended


def test_tokens_without_headers_follow_an_old_handshake(world):
    client = world.connect(SASL_PORT)
    assert client.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 0).error_code == 0
    scram = ScramClient(SCRAM_SHA_256, "carol", "carol-secret", "nonce")
    assert scram.step(client.token(scram.step(client.token(scram.first())))) is None
    assert scram.is_complete
    assert client.ask(METADATA).brokers
    bad = world.connect(SASL_PORT)
    bad.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
    assert bad.token(b"\0alice\0wrong") is None
    assert bad.is_ended


def test_no_request_is_read_while_a_refusal_waits_for_its_time(world):
    client = world.connect(SASL_PORT)
    client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
    good = b"\0alice\0alice-secret"
    for token in (b"\0alice\0wrong", good):
        client.transport.write(len(token).to_bytes(4, "big") + token)
    client.takes_raw = True
    world.run(lambda: client.recorder.is_closed)
    assert not client.raw


@pytest.mark.parametrize("size", [524_289, 100_000_000])
def test_frames_of_strangers_are_limited(world, size, caplog):
    client = world.connect(SASL_PORT)
    client.transport.write(size.to_bytes(4, "big"))
    assert client.is_ended
    assert "above the limit of 524288" in caplog.text
    friend = world.connect(SASL_PORT)
    friend.log_in(PlainClient("alice", "alice-secret"))
    friend.transport.write((1_000_000).to_bytes(4, "big"))
    assert not friend.is_ended


def trickle(world, client, data: bytes, seconds: float) -> None:
    """Send bytes one by one, four in a second."""
    for at in range(int(seconds * 4)):
        if client.recorder.is_closed:
            break
        client.transport.write(data[at : at + 1])
        world.run(lambda: False, 0.25)


@pytest.mark.parametrize("way", ["nothing", "no TLS", "bytes of a request", "a handshake", "requests again and again"])
def test_a_stranger_has_ten_seconds_to_say_who_it_is_whatever_it_sends(world, trusting, caplog, way):
    started = world.loop.time()
    client = world.connect(BOTH_PORT if way == "no TLS" else SASL_PORT)
    friend = world.connect(SASL_PORT)
    assert friend.log_in(PlainClient("alice", "alice-secret")).error_code == 0
    if way == "no TLS":
        trickle(world, client, b"\x16\x03\x01\x40\x00" + b"\x01" * 100, 9.5)
    elif way == "bytes of a request":
        trickle(world, client, (500_000).to_bytes(4, "big") + b"\0" * 100, 9.5)
    elif way == "a handshake":
        client.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
    elif way == "requests again and again":
        client.ask(VERSIONS)
        world.run(lambda: False, 9.0)
        client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    world.run(lambda: client.recorder.is_closed)
    assert client.recorder.is_closed
    assert world.loop.time() - started == pytest.approx(10.0, abs=0.1)
    assert not friend.recorder.is_closed
    world.run(lambda: False, 20.0)
    assert friend.ask(METADATA).brokers
    assert (
        caplog.text.count("not authenticated within 10 s")
        + caplog.text.count("no end of the TLS handshake within 10 s")
        == 1
    )
    assert world.server.connection_count == 1


def test_the_time_for_tls_counts_among_a_strangers_ten_seconds(world, trusting):
    client = world.connect(BOTH_PORT, trusting)
    started = world.loop.time()
    client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    friend = world.connect(BOTH_PORT, trusting)
    assert friend.log_in(PlainClient("carol", "carol-secret")).error_code == 0
    world.run(lambda: client.recorder.is_closed)
    assert client.recorder.is_closed
    assert world.loop.time() - started == pytest.approx(10.0, abs=0.1)
    assert friend.ask(METADATA).brokers


def test_nobody_keeps_a_connection_without_using_it(world, trusting):
    strangers = [world.connect(SASL_PORT), world.connect(PLAIN_PORT), world.connect(BOTH_PORT, trusting)]
    strangers[0].ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    friend = world.connect(PLAIN_PORT)
    waiting = world.connect(PLAIN_PORT)
    topic = CreateTopicsRequest.CreatableTopic(
        name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    assert waiting.ask(CreateTopicsRequest(topics=[topic])).topics[0].error_code == 0
    waiting.transport.write(waiting.machine.send(fetch_request("t", max_wait_ms=2_000_000), 12))
    for seconds in (300, 295):
        world.run(lambda: False, seconds)
        assert friend.ask(METADATA).brokers
    world.run(lambda: False, 10)
    assert [one.recorder.is_closed for one in (*strangers, friend, waiting)] == [True, True, True, False, False]
    world.run(lambda: False, 595)
    assert [one.recorder.is_closed for one in (friend, waiting)] == [True, False], "it waits for its answer"
    assert world.server.connection_count == 1


def test_what_a_stranger_has_sent_is_not_in_the_log(world, caplog):
    caplog.set_level(logging.INFO)
    secret = IncrementalAlterConfigsRequest.AlterableConfig(name="x", config_operation=0, value="hidden-value" * 1000)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=4, resource_name="1", configs=[secret]
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    assert world.connect(SASL_PORT).ask(request) is None
    assert "IncrementalAlterConfigsRequest" in caplog.text
    assert "hidden-value" not in caplog.text


def test_sasl_requests_are_out_of_place_where_nobody_asks_for_a_password(world):
    client = world.connect(PLAIN_PORT)
    assert client.ask(SaslHandshakeRequest(mechanism="PLAIN")).error_code == 34
    answer = client.ask(SaslAuthenticateRequest(auth_bytes=b""))
    assert (answer.error_code, answer.error_message) == (
        34, "SaslAuthenticate request received after successful authentication",
    )  # fmt: skip
    assert client.ask(METADATA).brokers


# -- sessions that end -----------------------------------------------------------------------------------------------


def test_a_session_has_to_be_renewed_before_its_end(world):
    client = world.connect(SHORT_PORT)
    assert client.log_in(PlainClient("carol", "carol-secret")).session_lifetime_ms == 3000
    for _ in range(3):
        world.run(lambda: False, 2.0)
        assert client.ask(METADATA).brokers
        assert client.log_in(PlainClient("carol", "carol-secret")).session_lifetime_ms == 3000
    world.run(lambda: False, 3.1)
    assert client.ask(METADATA) is None
    assert client.is_ended


def test_a_session_may_be_renewed_even_after_its_end(world):
    client = world.connect(SHORT_PORT)
    client.log_in(PlainClient("carol", "carol-secret"))
    world.run(lambda: False, 10)
    assert client.log_in(PlainClient("carol", "carol-secret")).error_code == 0
    assert client.ask(METADATA).brokers


def test_old_clients_do_not_get_the_end_and_meet_it(world):
    client = world.connect(SHORT_PORT)
    assert client.log_in(PlainClient("carol", "carol-secret"), version=0).session_lifetime_ms == 0
    world.run(lambda: False, 3.1)
    assert client.ask(METADATA) is None


def test_a_join_that_waits_is_answered_after_the_end_of_its_session_and_nothing_more(world):
    """What was let in is answered; the end of a session is met by the next request (KIP-368)."""
    client = world.connect(SHORT_PORT)
    client.log_in(PlainClient("carol", "carol-secret"))
    started = world.loop.time()
    joined = client.ask(join("g", session_ms=30_000, rebalance_ms=30_000), 3)
    assert world.loop.time() - started > 3.0
    assert (joined.error_code, joined.generation_id) == (0, 1)
    assert client.ask(sync("g", 1, joined.member_id, {joined.member_id: b"mine"}), 3) is None
    assert client.is_ended
    again = world.connect(SHORT_PORT)
    again.log_in(PlainClient("carol", "carol-secret"))
    assert again.ask(sync("g", 1, joined.member_id, {joined.member_id: b"mine"}), 3).assignment == b"mine"


def test_a_session_stays_that_of_its_user(world):
    client = world.connect(SHORT_PORT)
    client.log_in(PlainClient("carol", "carol-secret"))
    answer = client.log_in(PlainClient("a,b=c", "comma-secret"))
    assert answer.error_code == 58
    assert answer.error_message == "Cannot change principals during re-authentication from User.carol: User.a,b=c"
    assert client.is_ended


def test_sessions_are_not_renewed_twice_within_a_second(world):
    client = world.connect(SHORT_PORT)
    for expected in (0, 0):
        assert client.log_in(PlainClient("carol", "carol-secret")).error_code == expected
    assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 34
    assert client.ask(METADATA).brokers


def test_a_session_keeps_its_mechanism(world):
    client = world.connect(SHORT_PORT)
    client.log_in(PlainClient("carol", "carol-secret"))
    assert client.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1).error_code == 0
    assert client.ask(SaslAuthenticateRequest(auth_bytes=b"n,,n=carol,r=x")) is None
    assert client.is_ended


# -- TLS -------------------------------------------------------------------------------------------------------------


def test_a_listener_with_tls_serves_who_trusts_it(world, trusting):
    client = world.connect(SSL_PORT, trusting)
    assert client.ask(METADATA).brokers[0].port == SSL_PORT
    stranger = world.connect(SSL_PORT, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    assert stranger.ask(METADATA) is None
    assert isinstance(stranger.recorder.error, TlsCertificateError)


def test_a_listener_may_ask_for_certificates_of_its_own(world, certificates, trusting):
    identity = CertificateWithKey(
        Pem("client", certificates.client), Pem("key", certificates.client_locked_key), PASSWORD
    )
    client = world.connect(MUTUAL_PORT, client_context(Pem("ca", certificates.ca), identity))
    assert client.ask(METADATA).brokers
    without = world.connect(MUTUAL_PORT, trusting)
    assert without.ask(METADATA) is None
    assert isinstance(without.recorder.error, TlsError)


def test_plaintext_to_a_port_with_tls_is_one_line_in_the_log(world, caplog):
    client = world.connect(SSL_PORT)
    assert client.ask(METADATA) is None
    assert "is not TLS; does it speak plaintext?" in caplog.text
    assert len(caplog.records) == 1


def test_tls_to_a_port_without_is_one_line_in_the_log(world, trusting, caplog):
    for port in (PLAIN_PORT, SASL_PORT):
        caplog.clear()
        client = world.connect(port, trusting)
        assert client.ask(METADATA) is None
        assert "does the peer speak TLS?" in caplog.text
        assert len(caplog.records) == 1
        assert "does it speak TLS there?" in str(client.recorder.error)


# -- what clients are told -------------------------------------------------------------------------------------------


def test_each_listener_returns_its_own_address(world, trusting):
    for port, told in ((PLAIN_PORT, ("broker", 1)), (SSL_PORT, ("broker", 2)), (SASL_PORT, ("outside.example", 9094))):
        client = world.connect(port, trusting if port == SSL_PORT else None)
        if port == SASL_PORT:
            client.log_in(PlainClient("alice", "alice-secret"))
        brokers = client.ask(METADATA).brokers
        assert [(one.host, one.port) for one in brokers] == [told]
        brokers = client.ask(DescribeClusterRequest(include_cluster_authorized_operations=False)).brokers
        assert [(one.host, one.port) for one in brokers] == [told]
        found = client.ask(FindCoordinatorRequest(coordinator_keys=["g"])).coordinators[0]
        assert found.error_code in (0, 15)
        assert (found.host, found.port) in (told, ("", -1))


def test_nothing_secret_is_ever_shown(world, caplog, settings):
    caplog.set_level(logging.DEBUG)
    client = world.connect(SASL_PORT)
    client.log_in(PlainClient("alice", "alice-secret"))
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=4, resource_name="1", configuration_keys=None
            )
        ],
        include_synonyms=True,
        include_documentation=False,
    )
    rows = {row.name: row for row in client.ask(request).results[0].configs}
    for name in ("listener.name.sasl.plain.sasl.jaas.config", "ssl.key.password"):
        row = rows[name]
        assert (row.value, row.is_sensitive, row.config_type) == (None, True, 9)
        assert all(synonym.value is None for synonym in row.synonyms)
    assert rows["listener.name.mutual.ssl.client.auth"].value == "required"
    world.connect(SASL_PORT).log_in(PlainClient("alice", "wrong-secret"))
    late = world.connect(SASL_PORT)
    late.ask(VERSIONS)
    late.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0other-secret"))
    shown = f"{rows} {world.server.listeners} {world.broker.credentials} {BrokerSecurity(users={'u': 'that-secret'})}"
    for text in (shown, caplog.text):
        assert "secret" not in text
        assert PASSWORD not in text


def test_passwords_are_nowhere_on_the_disk(world, tmp_path):
    for path in (tmp_path / "data").rglob("*"):
        if path.is_file():
            assert b"carol-secret" not in path.read_bytes(), path
    users = world.connect(PLAIN_PORT).ask(DescribeUserScramCredentialsRequest(users=None)).results
    assert [(one.user, len(one.credential_infos)) for one in users] == [("carol", 2), ("a,b=c", 2)]


def test_users_stay_over_a_restart_and_a_start_without_news_writes_nothing(tmp_path):
    users = {"carol": "carol-secret"}
    for expected in (True, False):
        broker = Broker(str(tmp_path), fsync="never", users=users)
        kept = broker.credentials.scram("carol")
        broker.close()
        if expected:
            before = kept
        assert kept == before
    changed = Broker(str(tmp_path), fsync="never", users={"carol": "another"})
    assert changed.credentials.scram("carol") != before
    changed.close()
    without = HandBroker(tmp_path)
    assert without.broker.credentials.scram_users() == ["carol"]
    without.broker.close()


# -- settings that cannot be -----------------------------------------------------------------------------------------

SASL = {"listeners": "SASL_PLAINTEXT://:0"}
SSL = {"listeners": "SSL://:0"}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"listeners": ""}, "at least one is needed"),
        ({"listeners": "nonsense"}, "nonsense is not of the form NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://h:99999"}, "is not of the form NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2"}, "two listeners PLAINTEXT"),
        ({"listeners": "PLAINTEXT://h:1,SSL://h:1"}, "cannot both have h:1"),
        ({"listeners": "MINE://h:1"}, "has no protocol for the listener MINE"),
        ({"listener.security.protocol.map": "A:B"}, "A:B is not of the form NAME:PROTOCOL"),
        ({"advertised.listeners": "SSL://h:1"}, "there is no listener SSL in listeners"),
        ({"advertised.listeners": "PLAINTEXT://:1"}, "PLAINTEXT needs a host that clients can connect to"),
        ({"listener.name.ssl.ssl.client.auth": "none"}, "there is no listener ssl"),
        ({"listener.name.plaintext.num.partitions": "1"}, "unknown broker setting listener.name.plaintext.num.part"),
        (SSL, "SSL needs a certificate: set ssl.keystore.location to a PEM file"),
        ({**SSL, "ssl.keystore.type": "JKS", "ssl.keystore.location": "x"}, "ssl.keystore.type=JKS is not read here"),
        ({**SSL, "ssl.keystore.location": "/nowhere/x.pem"}, "ssl.keystore.location cannot be read: No such file"),
        ({**SSL, "ssl.keystore.key": "x"}, "belong together"),
        ({**SSL, "ssl.keystore.key": "hush", "ssl.keystore.certificate.chain": "hush"}, "contains no certificate"),
        ({**SSL, "ssl.enabled.protocols": "SSLv3"}, "String must be one of: TLSv1.2, TLSv1.3"),
        ({**SSL, "ssl.client.auth": "maybe"}, "String must be one of"),
        (SASL, "GSSAPI is not to be had here; set it to some of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ({**SASL, "sasl.enabled.mechanisms": "PLAIN,MD5"}, "MD5 is not to be had here"),
        ({**SASL, "sasl.enabled.mechanisms": "PLAIN"}, "PLAIN has no users; set listener.name.sasl_plaintext.plain."),
    ],
)
def test_a_setting_that_cannot_be_is_one_line_at_the_start(given, text):
    with pytest.raises(KafkaConfigurationError) as caught:
        read_listeners(BrokerConfig(given), "127.0.0.1", 0)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("jaas", "text"),
    [
        ("", "it is empty"),
        ("hush", "it begins with the class of a login module"),
        (JAAS[:-1], "there is no semicolon at its end"),
        (JAAS + JAAS, "there is more than one login module"),
        ('x required user_a="hush', "a quote that is not closed at character"),
        ("x required user_a hush;", "option 1 is not of the form"),
        ("org.example.Other required;", f"is for the login module {MODULE}"),
    ],
)
def test_a_jaas_text_that_cannot_be_is_reported_without_its_secrets(jaas, text):
    config = BrokerConfig(
        {
            **SASL,
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
        }
    )
    with pytest.raises(KafkaConfigurationError, match=text) as caught:
        read_listeners(config, "", 0)
    assert "hush" not in str(caught.value)


def test_jaas_texts_are_read_as_java_reads_them():
    text = "a.B  required\n  user_x = \"with \\\"quotes\\\", ; and =\"\tuser_y='it is \"him\"' plain=word\n;\n"
    module = parse_jaas(text)
    assert module.name == "a.B"
    assert module.options == {"user_x": 'with "quotes", ; and =', "user_y": 'it is "him"', "plain": "word"}
    assert "quotes" not in repr(module)
    with pytest.raises(JaasError):
        parse_jaas("a.B required =;")


@pytest.mark.parametrize(
    ("file", "password", "text"),
    [
        ("server_locked", None, "is encrypted, and no password is given"),
        ("server_locked", "hush", "is encrypted, and the password for it is wrong"),
        ("server", None, "ssl.keystore.location contains no private key"),
        ("server_key", None, "ssl.keystore.location contains no certificate"),
    ],
)
def test_an_unusable_key_is_an_error_that_says_why(certificates, file, password, text):
    given = {**SSL, "ssl.keystore.type": "PEM", "ssl.keystore.location": getattr(certificates, file)}
    if password is not None:
        given["ssl.key.password"] = password
    with pytest.raises(KafkaConfigurationError, match=text) as caught:
        read_listeners(BrokerConfig(given), "", 0)
    assert "hush" not in str(caught.value)


def test_keys_may_be_given_as_text(certificates):
    chain, key = (pathlib.Path(path).read_text() for path in (certificates.server, certificates.server_key))
    config = BrokerConfig({**SSL, "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key})
    [spec] = read_listeners(config, "", 0)
    assert spec.tls is not None


# -- files of the command line ---------------------------------------------------------------------------------------


def test_settings_come_back_from_their_file(tmp_path):
    path = tmp_path / "broker.properties"
    wanted = {"a.b": "c = d: e", "pem": "line 1\nline 2\n", "back": "a\\b", "empty": ""}
    path.write_text("# a comment\n\n" + write_properties(wanted) + "long = one,\\\n    two\n! another\n")
    assert read_properties(str(path)) == {**wanted, "long": "one,two"}


def test_users_come_from_their_file(tmp_path):
    path = tmp_path / "users"
    path.write_text("# who\nalice:with:colons\n\nbob:b\n")
    assert read_users(str(path)) == {"alice": "with:colons", "bob": "b"}
    path.write_text("alice:ok\nhush\n")
    with pytest.raises(KafkaConfigurationError, match="line 2 is not NAME:PASSWORD") as caught:
        read_users(str(path))
    assert "hush" not in str(caught.value)
    with pytest.raises(KafkaConfigurationError, match="cannot be read: No such file"):
        read_users(str(tmp_path / "none"))


# -- a broker in a process -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_process", [False, True])
def test_an_embedded_broker_has_a_listener_with_security_that_outlives_a_restart(certificates, in_process):
    security = BrokerSecurity(
        "SASL_SSL", users={"alice": "a secret, with \\ and ="}, certificate=certificates.server,
        key=certificates.server_locked, key_password=PASSWORD,
    )  # fmt: skip
    context = client_context(Pem("ca", certificates.ca))
    with EmbeddedBroker(security=security, in_process=in_process, settings={"num.partitions": "3"}) as broker:
        places = broker.bootstrap, broker.secure_bootstrap
        for _ in range(2):
            with RawClient(int(broker.secure_bootstrap.rpartition(":")[2])) as client:
                client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
                assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
                token = PlainClient("alice", "a secret, with \\ and =").first()
                assert client.ask(SaslAuthenticateRequest(auth_bytes=token)).error_code == 0
                assert client.ask(METADATA).brokers[0].port == int(places[1].rpartition(":")[2])
            broker.restart()
            assert (broker.bootstrap, broker.secure_bootstrap) == places


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="command lines of processes are read from /proc")
def test_nothing_secret_is_in_the_command_line_of_an_embedded_broker():
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": JAAS,
    }
    with EmbeddedBroker(settings=settings) as broker:
        shown = pathlib.Path(f"/proc/{broker.pid}/cmdline").read_bytes()
        assert b"--settings" in shown
        assert b"secret" not in shown
        for path in pathlib.Path(broker.data_dir).iterdir():
            if path.is_file() and b"alice-secret" in path.read_bytes():
                assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_security_that_does_not_fit_together_is_reported():
    for security, text in (
        (BrokerSecurity("SASL_PLAINTEXT"), "needs users"),
        (BrokerSecurity("SSL"), "needs a certificate"),
        (BrokerSecurity("TLS"), "TLS is none of SSL, SASL_PLAINTEXT, SASL_SSL"),
    ):
        with pytest.raises(KafkaConfigurationError, match=text):
            security.settings()


def test_the_command_line_has_short_ways(tmp_path, certificates):
    users = tmp_path / "users"
    users.write_text("alice:alice-secret\n")
    command = [
        sys.executable, "-m", "kafka", "broker", "--data-dir", str(tmp_path / "data"), "--exit-with-stdin",
        "--listener", "SASL_SSL://127.0.0.1:0", "--listener", "SSL://127.0.0.1:0", "--users", str(users),
        "--certificate", certificates.server, "--key", certificates.server_key,
    ]  # fmt: skip
    context = client_context(Pem("ca", certificates.ca))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        first, second = process.stdout.readline(), process.stdout.readline()
        assert first.startswith("listening on 127.0.0.1:")
        assert second.startswith("listening on SSL://127.0.0.1:")
        state = read_state(str(tmp_path / "data"))
        assert set(state.listeners) == {"SASL_SSL", "SSL"}
        assert first.strip().endswith(state.listeners["SASL_SSL"])
        for line in (first, second):
            with RawClient(int(line.rpartition(":")[2])) as client:
                client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
                if line is first:
                    assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
                    token = PlainClient("alice", "alice-secret").first()
                    assert client.ask(SaslAuthenticateRequest(auth_bytes=token)).error_code == 0
                assert client.ask(METADATA).brokers
        process.stdin.close()
        assert process.wait(30) == 0


def test_hostile_strangers_leave_the_broker_well(tmp_path, certificates):
    """Garbage, half handshakes and giant lengths on every port, by hundreds; then a good client is served."""
    chance = seeds.rng("hostile strangers")
    security = BrokerSecurity("SASL_SSL", users={"alice": "x"}, certificate=certificates.server_both)
    listeners = "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0"
    with EmbeddedBroker(tmp_path, in_process=True, security=security, settings={"listeners": listeners}) as broker:
        places = read_state(str(tmp_path)).listeners
        hello = bytearray()
        out = ssl.MemoryBIO()
        half = client_context(Pem("ca", certificates.ca)).wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost")
        with contextlib.suppress(ssl.SSLWantReadError):
            half.do_handshake()
        hello += out.read()
        for round_number in range(100):
            for place in places.values():
                with socket.create_connection(("127.0.0.1", int(place.rpartition(":")[2])), 20) as stranger:
                    data = [
                        chance.randbytes(chance.randrange(1, 3000)),
                        bytes(hello[: chance.randrange(1, len(hello))]),
                        bytes(hello) + chance.randbytes(200),
                        b"\x7f\xff\xff\xff" + chance.randbytes(50),
                    ][round_number % 4]
                    with contextlib.suppress(ConnectionError):
                        stranger.sendall(data)
        with RawClient(int(broker.secure_bootstrap.rpartition(":")[2])) as client:
            context = client_context(Pem("ca", certificates.ca))
            client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
            assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
            assert client.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0x")).error_code == 0
            assert client.ask(METADATA).brokers
