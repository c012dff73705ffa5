"""TLS under a client: slow, cut off, not TLS at all. Through KafkaClient, on a simulated loop."""

from __future__ import annotations

from typing import Any

import pytest

from kafka.client.kafka_client import KafkaClient
from kafka.core.routing import AnyNode
from kafka.errors import KafkaConnectionError, KafkaTimeoutError, SslAuthenticationError
from kafka.net.tls import CertificateWithKey, Pem, TlsNetwork, server_context
from kafka.net.transport import Transport, TransportHandler
from kafka.protocol.groups import ListGroupsRequest
from kafka.protocol.sasl import SaslHandshakeRequest, SaslHandshakeResponse
from test.client.support import World
from test.support.certificates import Certificates
from test.support.scripted import SILENT, ScriptedBroker
from test.support.secured import SASL_RANGES

LIST = ListGroupsRequest()
ANY = AnyNode()


class Dull(TransportHandler):
    """A server that is not Kafka: it says ``answer`` to whatever comes first, and perhaps hangs up."""

    def __init__(self, transport: Transport, answer: bytes, hangs_up: bool) -> None:
        self._transport = transport
        self._answer = answer
        self._hangs_up = hangs_up

    def connected(self) -> None:
        return

    def data_received(self, data: bytes) -> None:
        if self._answer:
            self._transport.write(self._answer)
        if self._hangs_up:
            self._transport.close()

    def writable(self) -> None:
        return

    def closed(self, error: BaseException | None) -> None:
        return


class DullServer:
    def __init__(self, world: World, answer: bytes = b"", hangs_up: bool = False) -> None:
        self.accepted = 0
        self._answer = answer
        self._hangs_up = hangs_up
        self.listener = world.network.listen("kafka", 9092, self._accept)

    def _accept(self, transport: Transport) -> TransportHandler:
        self.accepted += 1
        return Dull(transport, self._answer, self._hangs_up)


@pytest.fixture
def server_side(world: World, certificates: Certificates) -> TlsNetwork:
    """The network as a server with TLS has it; its certificate is for "broker", among others."""
    return TlsNetwork(world.network, server_context(CertificateWithKey(Pem("own", certificates.server_both))))


def client_of(world: World, certificates: Certificates, **configs: Any) -> KafkaClient:
    settings = {"security_protocol": "SSL", "ssl_cafile": certificates.ca, "ssl_check_hostname": False, **configs}
    return world.client(**settings)


def test_requests_go_through_tls(world: World, server_side: TlsNetwork, certificates: Certificates) -> None:
    broker = ScriptedBroker(server_side)
    client = world.settled(client_of(world, certificates))
    assert world.wait(client.request(1, LIST)).error_code == 0
    assert broker.accepted == 2


def test_the_name_that_is_asked_for_is_the_nodes_own(
    world: World, server_side: TlsNetwork, certificates: Certificates
) -> None:
    """The certificate is for the host name of the bootstrap server, and not for the one that the metadata tells."""
    world.network.host("broker")
    ScriptedBroker(server_side, "broker", brokers={1: ("kafka", 9092)})
    ScriptedBroker(server_side, "kafka")
    client = client_of(world, certificates, ssl_check_hostname=True, servers="broker:9092")
    error = world.failure(client.request(ANY, LIST))  # the bootstrap connection was well, or it would say so
    assert isinstance(error, SslAuthenticationError)
    assert "node 1 (kafka:9092)" in str(error) and "Hostname mismatch" in str(error)


@pytest.mark.parametrize("host", ["broker.", "127.0.0.1"])
def test_a_dot_behind_the_name_is_not_looked_for_in_the_certificate(
    world: World, server_side: TlsNetwork, certificates: Certificates, host: str
) -> None:
    ScriptedBroker(server_side, host)
    client = client_of(world, certificates, ssl_check_hostname=True, servers=host)
    assert world.wait(client.request(ANY, LIST)).error_code == 0


def test_an_address_with_a_zone_is_an_address_to_the_certificate(
    world: World, server_side: TlsNetwork, certificates: Certificates
) -> None:
    ScriptedBroker(server_side, "::1%eth0")
    client = client_of(world, certificates, ssl_check_hostname=True, servers="[::1%eth0]:9092")
    assert "IP address mismatch, certificate is not valid for '::1'" in str(world.failure(client.request(ANY, LIST)))


def test_a_handshake_without_an_end_is_left_and_tried_again(world: World, certificates: Certificates) -> None:
    server = DullServer(world)
    client = client_of(world, certificates, socket_connection_setup_timeout_ms=500, request_timeout_ms=5000)
    error = world.failure(client.request(ANY, LIST))
    assert isinstance(error, KafkaTimeoutError) and "no end of the TLS handshake within 0.5 s" in str(error)
    assert server.accepted > 3


def test_a_handshake_that_is_cut_off_is_tried_again(
    world: World, server_side: TlsNetwork, certificates: Certificates
) -> None:
    """By a server that answers nothing in the clear either: it may be starting."""
    server = DullServer(world, hangs_up=True)
    client = client_of(world, certificates, reconnect_backoff_max_ms=1000)
    future = client.request(ANY, LIST)
    world.run(5)
    assert server.accepted > 3 and not future.is_done
    server.listener.close()
    ScriptedBroker(server_side)
    assert world.wait(future).error_code == 0


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\4abcd", b"\xff" * 100])
def test_bytes_that_are_not_tls_are_final(world: World, certificates: Certificates, answer: bytes) -> None:
    DullServer(world, answer)
    began = world.now
    error = world.failure(client_of(world, certificates).request(ANY, LIST))
    assert isinstance(error, SslAuthenticationError) and not error.retriable
    assert world.now - began < 1


def test_a_broker_without_tls_is_found_out_in_the_clear(world: World, certificates: Certificates) -> None:
    class Plain(ScriptedBroker):
        """Hangs up on what is no frame, as brokers do."""

    broker = Plain(world.network, ranges=SASL_RANGES)
    broker.answers[SaslHandshakeRequest] = lambda request, version: SaslHandshakeResponse(error_code=34, mechanisms=[])
    error = world.failure(client_of(world, certificates).request(ANY, LIST))
    assert isinstance(error, SslAuthenticationError)
    assert "the listener is one of PLAINTEXT" in str(error)


def test_a_client_that_was_let_in_before_takes_a_cut_for_trouble(
    world: World, server_side: TlsNetwork, certificates: Certificates
) -> None:
    """What it is set to has worked: then the server is in trouble, and nothing is asked in the clear."""
    broker = ScriptedBroker(server_side)
    client = world.settled(client_of(world, certificates, reconnect_backoff_max_ms=500))
    world.wait(client.request(1, LIST))
    broker.stop()
    world.run(0.01)
    plain = ScriptedBroker(world.network, ranges=SASL_RANGES)
    plain.answers[SaslHandshakeRequest] = lambda request, version: SILENT
    for _ in range(5):
        error = world.failure(client.request(1, LIST, 30))
        assert isinstance(error, KafkaConnectionError) and error.retriable
    assert not plain.received
    plain.stop()
    world.run(0.01)
    broker.restart()
    assert world.wait(client.request(1, LIST, 30)).error_code == 0
