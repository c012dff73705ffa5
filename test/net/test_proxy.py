"""Connections through SOCKS5 and HTTP proxies."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.net.loop import Loop
from kafka.net.memory import FAMILY, MemoryNetwork
from kafka.net.proxy import (
    DEFAULT_PORTS,
    HANDSHAKES,
    NAMED,
    HttpConnectHandshake,
    ProxyError,
    ProxyNetwork,
    Socks5Handshake,
    parse_proxy,
)
from kafka.net.tls import CertificateWithKey, Pem, TlsNetwork, client_context, server_context
from kafka.net.transport import Address, ConnectFailed, ConnectionOptions, PeerClosed, Transport, TransportHandler
from test.net.recorder import Acceptor, Recorder

SOCKS = parse_proxy("socks5h://proxy")
SOCKS_SECRET = parse_proxy("socks5h://me:p%40ss@proxy:99")
HTTP = parse_proxy("http://me:secret@proxy:8080")

# -- what is said ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "kind"),
    [
        ("broker", b"\x03\x06broker"),
        ("10.0.0.1", b"\x01\x0a\x00\x00\x01"),
        ("::1", b"\x04" + b"\x00" * 15 + b"\x01"),
        ("bücher", b"\x03\x0dxn--bcher-kva"),
    ],
)
def test_socks5_asks_for_a_name_or_an_address(host: str, kind: bytes) -> None:
    machine = Socks5Handshake(SOCKS, host, 9092)
    assert machine.begin() == b"\x05\x01\x00"
    assert machine.receive(b"\x05\x00") == b"\x05\x01\x00" + kind + b"\x23\x84"
    assert machine.receive(b"\x05\x00\x00\x01" + b"\x00" * 6 + b"rest") == b""
    assert machine.is_done and machine.rest == b"rest"


def test_socks5_says_who_asks_when_the_proxy_wants_to_know() -> None:
    machine = Socks5Handshake(SOCKS_SECRET, "broker", 1)
    assert machine.begin() == b"\x05\x02\x00\x02"
    assert machine.receive(b"\x05\x02") == b"\x01\x02me\x04p@ss"
    assert machine.receive(b"\x01\x00").startswith(b"\x05\x01\x00\x03")
    assert not machine.is_done


@pytest.mark.parametrize("kind", [b"\x01" + b"\x00" * 4, b"\x04" + b"\x00" * 16, b"\x03\x04name"])
@pytest.mark.parametrize("step", [1, 3, 100])
def test_socks5_answers_may_come_in_pieces(kind: bytes, step: int) -> None:
    machine = Socks5Handshake(SOCKS, "broker", 1)
    data = b"\x05\x00" + b"\x05\x00\x00" + kind + b"\x12\x34" + b"more"
    rest = b""
    for at in range(0, len(data), step):
        piece = data[at : at + step]
        if machine.is_done:
            rest += piece
        else:
            machine.receive(piece)
    assert machine.is_done and machine.rest + rest == b"more"


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([b"HT"], "not a SOCKS5 proxy"),
        ([b"\x05\xff"], "a name and a password, which the URL does not have"),
        ([b"\x05\x02"], "method 2"),
        ([b"\x05\x00", b"\x05\x05\x00\x01" + b"\x00" * 6], "cannot connect to broker:1: connection refused"),
        ([b"\x05\x00", b"\x05\x63\x00\x01" + b"\x00" * 6], "code 99"),
        ([b"\x05\x00", b"\x05\x00\x00\x09" + b"\x00" * 6], "malformed SOCKS5 response"),
    ],
)
def test_socks5_refusals_have_the_proxys_reason(answers: list[bytes], words: str) -> None:
    machine = Socks5Handshake(SOCKS, "broker", 1)
    with pytest.raises(ProxyError, match="proxy socks5h://proxy:1080") as caught:
        for answer in answers:
            machine.receive(answer)
    assert words in str(caught.value)


def test_a_wrong_password_is_reported_without_it() -> None:
    machine = Socks5Handshake(SOCKS_SECRET, "broker", 1)
    machine.receive(b"\x05\x02")
    with pytest.raises(ProxyError, match="rejected the name and the password") as caught:
        machine.receive(b"\x01\x01")
    assert "p@ss" not in str(caught.value)


def test_http_connects() -> None:
    machine = HttpConnectHandshake(HTTP, "broker", 9092)
    secret = base64.b64encode(b"me:secret").decode()
    assert machine.begin() == (
        f"CONNECT broker:9092 HTTP/1.1\r\nHost: broker:9092\r\nProxy-Authorization: Basic {secret}\r\n\r\n".encode()
    )
    assert machine.receive(b"HTTP/1.1 200 Connection est") == b"" and not machine.is_done
    machine.receive(b"ablished\r\nVia: x\r\n\r\nrest")
    assert machine.is_done and machine.rest == b"rest"
    assert HttpConnectHandshake(HTTP, "::1", 1).begin().startswith(b"CONNECT [::1]:1 HTTP/1.1\r\n")


@pytest.mark.parametrize("kind", [Socks5Handshake, HttpConnectHandshake])
@pytest.mark.parametrize("host", ["", "a..b", "x" * 70, "x." * 140, "evil\r\nX-More: 1", "evil\r\n:", "a b", "a\0"])
def test_what_is_no_name_is_never_sent_to_a_proxy(kind: Any, host: str) -> None:
    """Brokers tell names in their metadata; one could have a line break, and a header behind that."""
    with pytest.raises(ProxyError, match="is not a host name"):
        kind(HTTP, host, 9092)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "another name and password"),
        (b"HTTP/1.1 403 Forbidden\r\nX: y\r\n\r\n", "cannot connect to broker:1: 403 Forbidden"),
        (b"\x05\x00\r\n\r\n", "not an HTTP proxy"),
        (b"x" * 70_000, "does not end"),
    ],
)
def test_http_refusals_have_the_proxys_reason(answer: bytes, words: str) -> None:
    with pytest.raises(ProxyError, match="proxy http://proxy:8080") as caught:
        HttpConnectHandshake(HTTP, "broker", 1).receive(answer)
    assert words in str(caught.value) and "secret" not in str(caught.value)


@given(st.sampled_from(sorted(HANDSHAKES)), st.lists(st.binary(max_size=30), max_size=8))
def test_whatever_a_proxy_says_is_an_answer_or_an_error_of_ours(scheme: str, pieces: list[bytes]) -> None:
    proxy = parse_proxy(f"{scheme}://me:secret@proxy")
    machine = HANDSHAKES[scheme](proxy, "broker", 1)
    machine.begin()
    try:
        for piece in pieces:
            if not machine.is_done:
                machine.receive(piece)
    except ProxyError as error:
        assert "secret" not in str(error)


# -- URLs --------------------------------------------------------------------------------------------------------------


def test_urls_have_a_port_of_their_scheme_and_hide_the_password() -> None:
    for scheme, port in DEFAULT_PORTS.items():
        assert parse_proxy(f"{scheme}://proxy").port == port
    assert (SOCKS_SECRET.username, SOCKS_SECRET.password, SOCKS_SECRET.port) == ("me", "p@ss", 99)
    assert "p@ss" not in f"{SOCKS_SECRET} {SOCKS_SECRET!r}"
    assert str(parse_proxy("http://me:secret@[::1]")) == "http://[::1]:80"


@pytest.mark.parametrize(
    "url", ["proxy:1080", "ftp://proxy", "socks5://", "socks5://p:x", "http://p/path", "http://[::", "http://me:1#2@p"]
)
def test_what_is_no_proxy_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ValueError, match="SCHEME://") as caught:
        parse_proxy(url)
    assert "proxy:1080" not in str(caught.value)


def test_a_name_or_password_too_long_for_socks_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 255 bytes"):
        parse_proxy(f"socks5://{'x' * 256}:y@proxy")


# -- connections -------------------------------------------------------------------------------------------------------


class Forwarder(TransportHandler):
    """A proxy's end of one connection: takes the handshake as told, then is joined with the target."""

    def __init__(self, proxy: TestProxy, transport: Transport) -> None:
        self.proxy = proxy
        self.transport = transport
        self.other: Transport | None = None
        self.data = b""

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.other.write(data)
            return
        self.data += data
        self.proxy.step(self)

    def closed(self, error: BaseException | None) -> None:
        if self.other is not None:
            self.other.close()


class Backward(TransportHandler):
    def __init__(self, forwarder: Forwarder) -> None:
        self.forwarder = forwarder

    def connected(self) -> None:
        self.forwarder.transport.write(self.forwarder.proxy.open_answer)

    def data_received(self, data: bytes) -> None:
        self.forwarder.transport.write(data)

    def closed(self, error: BaseException | None) -> None:
        if isinstance(error, ConnectFailed):
            self.forwarder.transport.write(self.forwarder.proxy.refusal)
        self.forwarder.transport.close()


class TestProxy:
    """An HTTP or SOCKS5 proxy at "proxy", as simple as can be, which looks names up itself."""

    __test__ = False

    def __init__(self, network: MemoryNetwork, scheme: str) -> None:
        self.network = network.host("proxy")
        self.is_http = scheme == "http"
        self.targets: list[tuple[str, int]] = []
        self.open_answer = b"HTTP/1.1 200 OK\r\n\r\n" if self.is_http else b"\x05\x00\x00\x01" + b"\x00" * 6
        self.refusal = b"HTTP/1.1 502 Bad Gateway\r\n\r\n" if self.is_http else b"\x05\x05\x00\x01" + b"\x00" * 6
        self.is_silent = False
        self.listener = self.network.listen("proxy", 1080, lambda transport: Forwarder(self, transport))

    def step(self, forwarder: Forwarder) -> None:
        if self.is_silent:
            return
        if self.is_http:
            if b"\r\n\r\n" in forwarder.data:
                host, _, port = forwarder.data.split(b" ")[1].decode().rpartition(":")
                self.join(forwarder, host, int(port))
        elif forwarder.data == b"\x05\x01\x00":
            forwarder.data = b""
            forwarder.transport.write(b"\x05\x00")
        elif len(forwarder.data) > 5:
            size = forwarder.data[4]
            host = forwarder.data[5 : 5 + size].decode()
            self.join(forwarder, host, int.from_bytes(forwarder.data[5 + size : 7 + size], "big"))

    def join(self, forwarder: Forwarder, host: str, port: int) -> None:
        self.targets.append((host, port))
        address = Address(FAMILY, (host, port))
        forwarder.other = self.network.connect([address], Backward(forwarder))


class World:
    def __init__(self, scheme: str) -> None:
        self.loop = Loop.simulated()
        self.memory = MemoryNetwork(self.loop, "me")
        self.proxy = TestProxy(self.memory, scheme)
        self.network = ProxyNetwork(self.memory, parse_proxy(f"{scheme}://proxy:1080"))
        self.acceptor = Acceptor(echo=True)
        self.memory.host("broker").listen("broker", 9092, self.acceptor)

    def connect(self, *hosts: str, timeout_s: float = 10.0) -> Recorder:
        recorder = Recorder()
        addresses = [Address(NAMED, (host, 9092)) for host in hosts]
        recorder.transport = self.network.connect(addresses, recorder, ConnectionOptions(connect_timeout_s=timeout_s))
        return recorder

    def until(self, is_so: Callable[[], bool], within_s: float = 60) -> None:
        assert self.loop.run_until(is_so, within_s)


@pytest.fixture(params=["http", "socks5h"])
def world(request: pytest.FixtureRequest) -> World:
    return World(request.param)


def test_bytes_pass_both_ways_and_early_ones_come_after_the_handshake(world: World) -> None:
    (address,) = world.network.resolve("broker", 9092).result()
    assert address == Address(NAMED, ("broker", 9092)), "the proxy looks names up"
    recorder = world.connect("broker")
    assert recorder.transport is not None
    recorder.transport.write([b"ear", b"ly"])
    assert recorder.transport.pending_bytes == 5 and recorder.log == []
    world.until(lambda: recorder.data == b"early")
    recorder.transport.write(b" and late")
    world.until(lambda: recorder.data == b"early and late")
    assert recorder.log == ["connected"] and world.proxy.targets == [("broker", 9092)]
    assert str(recorder.transport.peer) == "proxy:1080"
    recorder.transport.close()
    world.until(lambda: recorder.is_closed)
    assert recorder.error is None
    world.until(lambda: world.acceptor.recorders[0].is_closed)


def test_the_next_address_is_tried_when_the_proxy_cannot_reach_one(world: World) -> None:
    recorder = world.connect("nobody", "broker")
    world.until(lambda: recorder.is_connected)
    assert world.proxy.targets == [("nobody", 9092), ("broker", 9092)]


def test_when_none_can_be_reached_the_error_has_the_proxys_reason_for_each(world: World) -> None:
    recorder = world.connect("nobody", "nobody2")
    world.until(lambda: recorder.is_closed)
    assert recorder.log == ["closed"] and isinstance(recorder.error, ConnectFailed)
    assert "nobody:9092: proxy" in str(recorder.error) and "nobody2:9092: proxy" in str(recorder.error)


def test_a_proxy_that_is_not_there_is_reported(world: World) -> None:
    world.proxy.listener.close()
    recorder = world.connect("broker")
    world.until(lambda: recorder.is_closed)
    assert isinstance(recorder.error, ConnectFailed) and "proxy:1080: Connection refused" in str(recorder.error)


def test_a_target_that_has_no_name_ends_the_attempt(world: World) -> None:
    recorder = world.connect("a..b")
    world.until(lambda: recorder.is_closed)
    assert "'a..b' is not a host name" in str(recorder.error)
    assert world.proxy.targets == []


def test_a_proxy_that_says_nothing_is_given_up_in_time(world: World) -> None:
    world.proxy.is_silent = True
    recorder = world.connect("broker", timeout_s=3)
    world.until(lambda: recorder.is_closed)
    assert world.loop.time() == pytest.approx(3, abs=0.1)
    assert "has not connected within 3 s" in str(recorder.error)


def test_a_proxy_whose_name_is_unknown_is_reported(world: World) -> None:
    world.memory.names["proxy"] = []
    recorder = world.connect("broker")
    world.until(lambda: recorder.is_closed)
    assert "proxy: Name or service not known" in str(recorder.error)


@pytest.mark.parametrize("end", ["close", "abort"])
def test_who_closes_before_the_way_is_open_hears_of_it_once(world: World, end: str) -> None:
    world.proxy.is_silent = True
    recorder = world.connect("broker")
    world.loop.run_until(lambda: False, 1)
    getattr(recorder.transport, end)()
    assert recorder.log == [], "not inside of the call"
    world.loop.run_until(lambda: False, 30)
    assert recorder.log == ["closed"] and recorder.error is None


def test_the_end_of_the_target_is_the_end_of_the_connection(world: World) -> None:
    recorder = world.connect("broker")
    world.until(lambda: recorder.is_connected)
    world.acceptor.recorders[0].transport.close()  # type: ignore[union-attr]
    world.until(lambda: recorder.is_closed)
    assert recorder.log == ["connected", "closed"] and isinstance(recorder.error, PeerClosed)


def test_an_error_of_the_handler_ends_the_connection(world: World) -> None:
    fault = ValueError("mine")

    class Faulty(Recorder):
        def connected(self) -> None:
            raise fault

    recorder = Faulty()
    world.network.connect([Address(NAMED, ("broker", 9092))], recorder)
    world.until(lambda: recorder.is_closed)
    assert recorder.error is fault


def test_reading_may_be_paused_before_the_way_is_open(world: World) -> None:
    recorder = world.connect("broker")
    assert recorder.transport is not None
    recorder.transport.write(b"x")
    recorder.transport.pause_reading()
    world.loop.run_until(lambda: False, 5)
    assert recorder.is_connected and recorder.data == b""
    recorder.transport.resume_reading()
    world.until(lambda: recorder.data == b"x")


def test_socks5_without_h_looks_names_up_here() -> None:
    world = World("socks5h")
    world.memory.names["alias"] = ["broker"]
    local = ProxyNetwork(world.memory, parse_proxy("socks5://proxy:1080"))
    (address,) = local.resolve("alias", 9092).result()
    assert address == Address(FAMILY, ("broker", 9092))
    recorder = Recorder()
    local.connect([address], recorder)
    world.until(lambda: recorder.is_connected)
    assert world.proxy.targets == [("broker", 9092)]


def test_tls_goes_through_the_proxy_unseen(certificates: Any) -> None:
    world = World("http")
    acceptor = Acceptor(echo=True)
    server = TlsNetwork(
        world.memory.host("secure"), server_context(CertificateWithKey(Pem("server", certificates.server_both)), None)
    )
    server.listen("secure", 9092, acceptor)
    client = TlsNetwork(world.network, client_context(Pem("ca", certificates.ca), None), server_hostname="broker")
    recorder = Recorder()
    recorder.transport = client.connect([Address(NAMED, ("secure", 9092))], recorder)
    world.until(lambda: recorder.is_connected or recorder.is_closed)
    assert recorder.log == ["connected"], recorder.error
    recorder.transport.write(b"secret")
    world.until(lambda: recorder.data == b"secret")
    recorder.transport.close()
    world.until(lambda: recorder.is_closed)
    assert recorder.error is None
