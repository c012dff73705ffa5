"""Listeners with TLS and passwords: the same answers, refusals and ends from the embedded broker as from Apache Kafka.

These tests have brokers of their own, with the same settings, started once for the module.
"""

from __future__ import annotations

import hashlib
import ssl
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kafka.core.sasl.mechanism import PlainClient
from kafka.core.sasl.scram import HASHES, ScramClient
from kafka.net.tls import CertificateWithKey, Pem, client_context
from kafka.protocol.api_versions import ApiVersionsRequest
from kafka.protocol.configs import DescribeConfigsRequest
from kafka.protocol.metadata import DescribeClusterRequest, MetadataRequest
from kafka.protocol.sasl import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from test.broker.raw_client import RawClient
from test.support.certificates import Certificates
from test.support.secure_listeners import Places, secure_broker
from test.support.waiting import look_until

pytestmark = pytest.mark.timeout(120)

METADATA = MetadataRequest(topics=[])
VERSIONS = ApiVersionsRequest(client_software_name="x", client_software_version="1")
Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion


@pytest.fixture(scope="module", params=["embedded", "apache"])
def places(request: pytest.FixtureRequest, certificates: Certificates) -> Iterator[Places]:
    with secure_broker(request.param, certificates) as found:
        yield found


def log_in(client: RawClient, mechanism: Any, version: int = 2) -> Any:
    """The whole dialogue, and the last answer."""
    answer: Any = client.ask(SaslHandshakeRequest(mechanism=mechanism.name), 1)
    token = mechanism.first()
    while token is not None and answer.error_code == 0:
        answer = client.ask(SaslAuthenticateRequest(auth_bytes=token), version)
        if answer.error_code == 0:
            token = mechanism.step(bytes(answer.auth_bytes))
    return answer


def is_hung_up(client: RawClient, *request: Any) -> bool:
    """Whether the connection ends, and without an answer to ``request`` if there is one."""
    try:
        if request:
            client.ask(*request)
            return False
        return client.socket.recv(1) == b""
    except (EOFError, ConnectionError):
        return True


@pytest.fixture
def user(places: Places) -> str:
    """A user of both SCRAM mechanisms, with the password ``scram-secret``."""
    for number, mechanism in enumerate(HASHES, 1):
        assert alter(places, upsertions=[upsertion("sam", number, mechanism)]) == {"sam": (0, None)}
    return "sam"


def upsertion(
    name: str, number: int = 1, mechanism: str = "SCRAM-SHA-256", iterations: int = 4096, **values: Any
) -> Any:
    salt = b"a salt of the test's"
    salted = hashlib.pbkdf2_hmac(HASHES[mechanism], b"scram-secret", salt, iterations) if iterations > 0 else b"x"
    return Upsertion(
        **{
            "name": name, "mechanism": number, "iterations": iterations, "salt": salt, "salted_password": salted,
            **values,
        }
    )  # fmt: skip


def alter(places: Places, deletions: Any = (), upsertions: Any = ()) -> dict[str, tuple[int, str | None]]:
    request = AlterUserScramCredentialsRequest(deletions=list(deletions), upsertions=list(upsertions))
    with places.connect("PLAINTEXT") as client:
        answer = client.ask(request, 0)
    return {row.user: (row.error_code, row.error_message) for row in answer.results}


# -- passwords -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("listener", ["SASL", "BOTH"])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_plain_lets_in_who_knows_the_password(places, listener, version):
    with places.connect(listener) as client:
        answer = log_in(client, PlainClient("alice", "alice-secret"), version)
        assert (answer.error_code, answer.error_message, bytes(answer.auth_bytes)) == (0, "", b"")
        brokers = client.ask(METADATA, 1).brokers
        assert [(one.host, one.port) for one in brokers] == [("localhost", places.ports[listener])]


@pytest.mark.parametrize("listener", ["SASL", "BOTH"])
@pytest.mark.parametrize("mechanism", HASHES)
def test_scram_lets_in_who_knows_the_password_and_proves_itself(places, user, listener, mechanism):
    with places.connect(listener) as client:
        scram = ScramClient(mechanism, user, "scram-secret", "nonce-of-the-test")
        assert log_in(client, scram).error_code == 0
        assert scram.is_complete
        assert client.ask(METADATA, 1).brokers


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0alice-secret", "Authentication failed: Invalid username or password"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0\0alice-secret", "Authentication failed: username not specified"),
        (
            b"bob\0alice\0alice-secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        (b"garbage", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"a\0b\0c\0d", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0alice\0" + b"x" * 300_000, "Authentication failed: Invalid username or password"),
    ],
)
def test_plain_refuses_in_the_same_words_late_and_ends_the_connection(places, token, text):
    with places.connect("SASL") as client:
        client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        started = time.monotonic()
        answer = client.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
        assert time.monotonic() - started >= 0.095
        assert (answer.error_code, answer.error_message, answer.session_lifetime_ms) == (58, text, 0)
        assert is_hung_up(client)


@pytest.mark.parametrize(
    "first",
    [
        b"", b"garbage", b"n,,n=sam", b"y,,n=sam,r=abc", b"p=tls-unique,,n=sam,r=abc", b"n,,n=nobody,r=abc",
        b"n,,n=SAM,r=abc", b"n,,n=s=2Xam,r=abc", b"n,,n=,r=abc", b"n,,n=sam,r=abc,tokenauth=true",
        "n,,n=bj\u00f8rn,r=abc".encode(),
    ],
)  # fmt: skip
def test_scram_refuses_first_messages_in_the_same_words(places, user, first):
    with places.connect("SASL") as client:
        client.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
        answer = client.ask(SaslAuthenticateRequest(auth_bytes=first), 2)
        assert answer.error_code == 58
        assert answer.error_message == (
            "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
        )
        assert is_hung_up(client)


def test_scram_refuses_a_wrong_password_at_the_last_message(places, user):
    with places.connect("SASL") as client:
        answer = log_in(client, ScramClient("SCRAM-SHA-512", user, "guess", "nonce"))
        assert answer.error_code == 58
        assert answer.error_message.endswith("invalid credentials with SASL mechanism SCRAM-SHA-512")
        assert is_hung_up(client)


@pytest.mark.parametrize("first", [b"n,,m=x,n=sam,r=abc", b"n,,n=sam,r=abc,x=1", b"n,a=sam,n=sam,r=abc"])
def test_scram_lets_extensions_pass(places, user, first):
    with places.connect("SASL") as client:
        client.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
        answer = client.ask(SaslAuthenticateRequest(auth_bytes=first), 2)
        assert answer.error_code == 0
        assert bytes(answer.auth_bytes).startswith(b"r=abc")
        assert bytes(answer.auth_bytes).endswith(b",i=4096")


def test_a_mechanism_that_is_not_enabled_is_refused_with_the_list(places):
    for version in (0, 1):
        with places.connect("SASL") as client:
            answer = client.ask(SaslHandshakeRequest(mechanism="GSSAPI"), version)
            assert (answer.error_code, sorted(answer.mechanisms)) == (33, ["PLAIN", *HASHES])
            assert is_hung_up(client)


# -- the order of things ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_and_version", [(METADATA, 1), (METADATA, 12), (SaslAuthenticateRequest(auth_bytes=b""), 1)]
)
def test_strangers_are_hung_up_on(places, request_and_version):
    for ahead in ([], [VERSIONS]):
        with places.connect("SASL") as client:
            for request in ahead:
                assert client.ask(request, 3).error_code == 0
            assert is_hung_up(client, *request_and_version)


def test_versions_are_sent_before_the_handshake_and_once(places):
    with places.connect("SASL") as client:
        keys = {row.api_key for row in client.ask(VERSIONS, 3).api_keys}
        assert {17, 36, 50, 51} <= keys
        assert is_hung_up(client, VERSIONS, 3)
    with places.connect("SASL") as client:
        client.ask(VERSIONS, 3)
        assert log_in(client, PlainClient("alice", "alice-secret")).error_code == 0
        assert client.ask(VERSIONS, 3).error_code == 0


def test_a_bad_software_name_does_not_end_the_dialogue(places):
    with places.connect("SASL") as client:
        odd = ApiVersionsRequest(client_software_name="x y", client_software_version="1")
        assert client.ask(odd, 3).error_code == 42
        assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0


@pytest.mark.parametrize("request_and_version", [(VERSIONS, 3), (SaslHandshakeRequest(mechanism="PLAIN"), 1)])
def test_requests_in_the_midst_of_authentication_are_illegal(places, request_and_version):
    with places.connect("SASL") as client:
        client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert client.ask(*request_and_version).error_code == 34
        assert is_hung_up(client)


def test_tokens_without_headers_follow_an_old_handshake(places, user):
    def token(client: RawClient, data: bytes) -> bytes:
        client.socket.sendall(len(data).to_bytes(4, "big") + data)
        return client._exactly(int.from_bytes(client._exactly(4), "big"))

    with places.connect("SASL") as client:
        assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0).error_code == 0
        assert token(client, b"\0alice\0alice-secret") == b""
        assert client.ask(METADATA, 1).brokers
    with places.connect("SASL") as client:
        client.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 0)
        scram = ScramClient("SCRAM-SHA-512", user, "scram-secret", "nonce")
        scram.step(token(client, scram.step(token(client, scram.first()))))
        assert scram.is_complete
    with places.connect("SASL") as client:
        client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
        with pytest.raises((EOFError, ConnectionError)):
            token(client, b"\0alice\0wrong")


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\xa5", (600_000).to_bytes(4, "big"), b"\0\0\0\4\x60\1\2\3",
        b"\0\0\0\x0a\3\xe7\0\0\0\0\0\5\xff\xff",
    ],
)  # fmt: skip
def test_garbage_ends_the_connection(places, data):
    with places.connect("SASL") as client:
        client.socket.sendall(data)
        assert is_hung_up(client)


def test_who_is_in_has_no_more_to_authenticate(places):
    for listener in ("PLAINTEXT", "SASL"):
        with places.connect(listener) as client:
            if listener == "SASL":
                log_in(client, PlainClient("alice", "alice-secret"))
            answer = client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            assert (answer.error_code, answer.mechanisms) == (34, [])
            refused = client.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice-secret"), 2)
            assert refused.error_code == 34
            assert refused.error_message == "SaslAuthenticate request received after successful authentication"
            assert client.ask(METADATA, 1).brokers


# -- sessions that end -----------------------------------------------------------------------------------------------


def test_a_session_is_renewed_by_the_same_dialogue(places):
    def code_of_another_one_within_a_second():
        with places.connect("SHORT") as client:
            for _ in range(2):
                began = time.monotonic()
                assert log_in(client, PlainClient("alice", "alice-secret"), 1).session_lifetime_ms == 2500
                assert client.ask(METADATA, 1).brokers
            code = client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code
            return code if time.monotonic() - began < 1 else None  # there is nothing to be refused any more

    assert look_until(code_of_another_one_within_a_second, lambda code: code is not None) == 34


@pytest.mark.parametrize("version", [0, 1])
def test_a_session_that_was_not_renewed_ends_with_the_next_request(places, version):
    with places.connect("SHORT") as client:
        answer = log_in(client, PlainClient("alice", "alice-secret"), version)
        assert answer.session_lifetime_ms == (2500 if version else 0)
        expect_silence(client, 2.6)
        assert is_hung_up(client, METADATA, 1)


def expect_silence(client: RawClient, seconds: float) -> None:
    """For so long the broker neither sends anything nor ends the connection."""
    client.socket.settimeout(seconds)
    with pytest.raises(TimeoutError):
        client.socket.recv(1)
    client.socket.settimeout(20)


def test_a_session_cannot_change_hands(places):
    with places.connect("SHORT") as client:
        log_in(client, PlainClient("alice", "alice-secret"))
        answer = log_in(client, PlainClient("admin", "admin-secret"))
        assert answer.error_code == 58
        assert answer.error_message == "Cannot change principals during re-authentication from User.alice: User.admin"
        assert is_hung_up(client)


# -- TLS -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_of_tls_are_spoken_and_the_listener_returns_its_own_address(places, version):
    with RawClient(places.ports["SSL"]) as client:
        context = client_context(Pem("ca", places.certificates.ca))
        context.minimum_version = context.maximum_version = version
        client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
        advertised = [("localhost", places.ports["SSL"])]
        assert [(one.host, one.port) for one in client.ask(METADATA, 1).brokers] == advertised
        brokers = client.ask(DescribeClusterRequest(include_cluster_authorized_operations=False), 0).brokers
        assert [(one.host, one.port) for one in brokers] == advertised


def test_a_certificate_is_asked_for_where_the_setting_says(places):
    made = places.certificates
    for name, is_let_in in (("client", True), ("stranger", False), (None, False)):
        identity = None
        if name is not None:
            identity = CertificateWithKey(Pem(name, getattr(made, name)), Pem(name, getattr(made, f"{name}_key")))
        try:
            with places.connect("MUTUAL", identity) as client:
                assert bool(client.ask(METADATA, 1).brokers) is is_let_in
        except (ssl.SSLError, ConnectionError):
            assert not is_let_in


def test_plaintext_to_a_port_with_tls_is_hung_up_on(places):
    with RawClient(places.ports["SSL"]) as client:
        assert is_hung_up(client, METADATA, 1)


def test_tls_to_a_port_without_is_hung_up_on(places):
    for listener in ("PLAINTEXT", "SASL"):
        with RawClient(places.ports[listener]) as client, pytest.raises((ssl.SSLError, ConnectionError)):
            client_context(Pem("ca", places.certificates.ca)).wrap_socket(client.socket, server_hostname="localhost")


# -- users of SCRAM --------------------------------------------------------------------------------------------------


TWICE = (92, "A user credential cannot be altered twice in the same request")
MISSING = (91, "Attempt to delete a user credential that does not exist")


@pytest.mark.parametrize(
    ("deletions", "upsertions", "outcome"),
    [
        ([], [upsertion("one"), upsertion("two")], {"one": (0, None), "two": (0, None)}),
        ([], [upsertion("one"), upsertion("one", 2, "SCRAM-SHA-512")], {"one": TWICE}),
        ([], [upsertion("one", iterations=4095)], {"one": (93, "Too few iterations")}),
        ([], [upsertion("one", iterations=-1)], {"one": (93, "Too few iterations")}),
        ([], [upsertion("one", iterations=16385)], {"one": (93, "Too many iterations")}),
        ([], [upsertion("one", iterations=16384)], {"one": (0, None)}),
        ([], [upsertion("one", iterations=1), upsertion("one")], {"one": (93, "Too few iterations")}),
        ([], [upsertion("one"), upsertion("one", iterations=1)], {"one": TWICE}),
        ([], [upsertion("one", 0)], {"one": (33, "Unknown SCRAM mechanism")}),
        ([], [upsertion("one", 3)], {"one": (33, "Unknown SCRAM mechanism")}),
        ([], [upsertion("")], {"": (93, "Username must not be empty")}),
        ([], [upsertion("one", salted_password=b"")], {"one": (-1, None)}),
        ([], [upsertion("one", salt=b"")], {"one": (0, None)}),
        ([Deletion(name="none", mechanism=1)], [], {"none": MISSING}),
        ([Deletion(name="none", mechanism=-1)], [], {"none": (33, "Unknown SCRAM mechanism")}),
        ([Deletion(name="none", mechanism=1)], [upsertion("none")], {"none": MISSING}),
        ([Deletion(name="sam", mechanism=1), Deletion(name="sam", mechanism=2)], [], {"sam": TWICE}),
        ([Deletion(name="sam", mechanism=1)], [upsertion("sam")], {"sam": TWICE}),
        ([Deletion(name="sam", mechanism=1)], [], {"sam": (0, None)}),
        ([], [], {}),
    ],
)
def test_users_are_altered_with_the_same_codes_and_words(places, user, deletions, upsertions, outcome):
    assert alter(places, deletions, upsertions) == outcome


def test_users_are_described_without_their_secrets(places, user):
    def describe(*names: str) -> Any:
        users = [DescribeUserScramCredentialsRequest.UserName(name=name) for name in names]
        with places.connect("PLAINTEXT") as client:
            answer = client.ask(DescribeUserScramCredentialsRequest(users=users or None), 0)
        assert (answer.error_code, answer.error_message) == (0, "")
        return {
            row.user: (
                row.error_code,
                row.error_message,
                sorted((info.mechanism, info.iterations) for info in row.credential_infos),
            )
            for row in answer.results
        }

    assert describe(user) == {user: (0, "", [(1, 4096), (2, 4096)])}
    assert describe()[user] == (0, "", [(1, 4096), (2, 4096)])
    missing = "Attempt to describe a user credential that does not exist: none"
    assert describe("none", user) == {"none": (91, missing, []), user: (0, "", [(1, 4096), (2, 4096)])}
    twice = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
    assert describe(user, user) == {user: (92, twice, [])}


def test_a_user_that_was_removed_is_let_in_no_more(places, user):
    alter(places, [Deletion(name=user, mechanism=1)])
    with places.connect("SASL") as client:
        assert log_in(client, ScramClient("SCRAM-SHA-256", user, "scram-secret", "nonce")).error_code == 58


def test_a_changed_password_counts_from_the_next_connection(places, user):
    salted = hashlib.pbkdf2_hmac("sha256", b"changed", b"another salt", 5000)
    alter(places, [], [upsertion(user, salt=b"another salt", salted_password=salted, iterations=5000)])
    for password, code in (("scram-secret", 58), ("changed", 0)):
        with places.connect("SASL") as client:
            assert log_in(client, ScramClient("SCRAM-SHA-256", user, password, "nonce")).error_code == code


# -- settings --------------------------------------------------------------------------------------------------------


def test_settings_of_listeners_are_shown_and_their_secrets_are_not(places):
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=4, resource_name="1", configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=False)
    with places.connect("PLAINTEXT") as client:
        rows = {row.name: row for row in client.ask(request, 4).results[0].configs}

    def shown(name: str) -> Any:
        row = rows[name]
        return row.value, row.config_source, row.is_sensitive, row.config_type

    assert shown("listener.name.sasl.plain.sasl.jaas.config") == (None, 4, True, 9)
    assert [one.value for one in rows["listener.name.sasl.plain.sasl.jaas.config"].synonyms] == [None]
    assert shown("listener.name.mutual.ssl.client.auth") == ("required", 4, False, 2)
    synonyms = rows["listener.name.mutual.ssl.client.auth"].synonyms
    assert [(one.name, one.value, one.source) for one in synonyms] == [
        ("listener.name.mutual.ssl.client.auth", "required", 4),
        ("ssl.client.auth", "none", 5),
    ]
    assert shown("ssl.key.password") == (None, 5, True, 9)
    assert shown("ssl.keystore.key") == (None, 5, True, 9)
    assert shown("ssl.keystore.type") == ("PEM", 4, False, 2)
    assert shown("sasl.server.max.receive.size") == ("524288", 5, False, 3)
    assert shown("connections.max.reauth.ms") == ("0", 5, False, 5)
    assert shown("connection.failed.authentication.delay.ms") == ("100", 5, False, 3)
    assert shown("sasl.enabled.mechanisms") == ("PLAIN,SCRAM-SHA-256,SCRAM-SHA-512", 4, False, 7)
    assert shown("ssl.enabled.protocols") == ("TLSv1.2,TLSv1.3", 5, False, 7)
    assert shown("listener.security.protocol.map")[1:] == (4, False, 2)
    assert shown("advertised.listeners")[1:] == (4, False, 7)
