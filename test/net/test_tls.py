"""TLS over any transport: in memory with a simulated loop, and over TCP against plain sockets of the ``ssl`` module."""

from __future__ import annotations

import logging
import os
import socket
import ssl
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka.net.loop import Loop
from kafka.net.memory import MemoryNetwork
from kafka.net.resolve import literal_address
from kafka.net.tcp import TcpNetwork
from kafka.net.tls import READ_BYTES, CertificateWithKey, Pem, TlsNetwork, TlsTransport, client_context, server_context
from kafka.net.transport import PeerClosed, TlsCertificateError, TlsError
from test.net.recorder import Acceptor, Recorder, Roomy

DEADLINE_S = 30


def server_tls(certificates, **options):
    return server_context(
        CertificateWithKey(Pem("server", certificates.server_both)), Pem("ca", certificates.ca), **options
    )


def client_tls(certificates, identity=None, ca=None, **options):
    return client_context(Pem("ca", ca or certificates.ca), identity, **options)


def identity_of(certificates, name):
    return CertificateWithKey(
        Pem(name, str(certificates.directory / f"{name}.pem")), Pem(name, str(certificates.directory / f"{name}.key"))
    )


class World:
    """A client and a server with TLS on one network in memory."""

    def __init__(self, server: ssl.SSLContext, client: ssl.SSLContext, hostname: str = "broker", **options) -> None:
        self.loop = Loop.simulated()
        self.network = MemoryNetwork(self.loop)
        self.plain_client = self.network.host("client")
        self.plain_server = self.network.host("broker")
        self.server = TlsNetwork(self.plain_server, server, **options)
        self.client = TlsNetwork(self.plain_client, client, server_hostname=hostname, **options)
        self.acceptor = Acceptor()
        self.listener = self.server.listen("broker", 9092, self.acceptor)

    def connect(self, network=None) -> Recorder:
        client = Recorder()
        client.transport = (network or self.client).connect([self.listener.address], client)
        return client

    def settle(self) -> None:
        self.loop.run_until(lambda: False)

    def pair(self) -> tuple[Recorder, Recorder]:
        client = self.connect()
        self.settle()
        return client, self.acceptor.recorders[-1]


@pytest.fixture(scope="module")
def contexts(certificates):
    return server_tls(certificates), client_tls(certificates)


@pytest.fixture
def world(contexts):
    return World(*contexts)


# -- what goes through -----------------------------------------------------------------------------------------------


def test_both_ends_hear_connected_once_and_then_bytes_in_order(world):
    client, server = world.pair()
    assert client.log == server.log == ["connected"]
    assert client.transport.version == "TLSv1.3"
    client.transport.write(b"question")
    server.transport.write([b"an", b"swer"])
    world.settle()
    assert (server.data, client.data) == (b"question", b"answer")
    assert client.transport.peer == server.transport.local
    assert "TlsTransport client" in repr(client.transport)


def test_what_is_written_before_the_handshake_goes_out_after_it(world):
    client = world.connect()
    client.transport.write(b"early ")
    client.transport.write([b"bird", b"s"])
    assert client.transport.pending_bytes == 11
    world.settle()
    assert world.acceptor.recorders[-1].data == b"early birds"
    assert client.transport.pending_bytes == 0
    assert client.log == ["connected", "writable"]


def test_large_writes_arrive_whole_in_few_pieces(world):
    client, server = world.pair()
    data = os.urandom(3_000_000)
    client.transport.write([data[:5], data[5:10], data[10:2_000_000], data[2_000_000:]])
    world.settle()
    assert server.data == data
    assert len(server.pieces) <= 60
    assert max(map(len, server.pieces)) <= READ_BYTES


def test_bytes_are_put_where_the_handler_has_room(world):
    client = Roomy(50_000)
    client.transport = world.client.connect([world.listener.address], client)
    world.settle()
    data = os.urandom(1_000_000)
    world.acceptor.recorders[-1].transport.write(data)
    world.settle()
    assert client.data == data
    assert "data_received" in client.log
    assert max(client.counts) == 50_000


def test_the_transport_below_never_gets_the_bytes_that_the_handler_is_missing(world):
    class Missing(Roomy):
        def missing_bytes(self):
            raise AssertionError("bytes below are encrypted: their number says nothing")

    client = Missing(50_000)
    client.transport = world.client.connect([world.listener.address], client)
    world.settle()
    data = os.urandom(200_000)
    world.acceptor.recorders[-1].transport.write(data)
    world.settle()
    assert client.data == data
    assert client.transport.missing_bytes() == 0  # it is the handler of the one below


def test_a_byte_at_a_time_changes_nothing(contexts):
    world = World(*contexts)
    world.network.link("client", "broker").piece_bytes = 1
    world.network.link("broker", "client").piece_bytes = 1
    client, server = world.pair()
    client.transport.write(b"slow but whole" * 10)
    server.transport.write(b"so is this")
    world.settle()
    assert server.data == b"slow but whole" * 10
    assert client.data == b"so is this"


class Under:
    """A transport that keeps what was written."""

    peer = local = None
    pending_bytes = 0

    def __init__(self):
        self.written, self.closed = bytearray(), False

    def write(self, data):
        self.written += data

    def close(self):
        self.closed = True

    def abort(self, error=None):
        self.closed = True

    def pause_reading(self):
        pass

    resume_reading = pause_reading


def joined(network, is_server, recorder):
    """A transport by hand, over an :class:`Under`."""
    tls = TlsTransport(network, recorder, is_server=is_server)
    recorder.transport, under = tls, Under()
    tls.attach(under)
    tls.connected()
    return tls, under


def take(under):
    data, under.written = bytes(under.written), bytearray()
    return data


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(cuts=st.lists(st.integers(1, 700), min_size=1, max_size=40), payload=st.binary(min_size=1, max_size=40_000))
def test_records_may_be_split_anywhere(world, cuts, payload):
    client, server = Recorder(), Recorder()
    sides = [joined(world.client, False, client), joined(world.server, True, server)]
    turn = 0

    def exchange():
        nonlocal turn
        while any(under.written for _, under in sides):
            for (_, source), (target, _) in (sides, sides[::-1]):
                data = take(source)
                while data:
                    size = cuts[turn % len(cuts)]
                    turn += 1
                    target.data_received(data[:size])
                    data = data[size:]

    exchange()
    client.transport.write(payload)
    server.transport.write([payload[:10], payload[10:]])
    exchange()
    assert client.data == server.data == payload


def test_tls_12_works_as_well(certificates):
    world = World(server_tls(certificates), client_tls(certificates, versions=("TLSv1.2",)))
    client, server = world.pair()
    client.transport.write(b"old")
    world.settle()
    assert client.transport.version == "TLSv1.2"
    assert server.data == b"old"


def test_the_server_gets_the_name_that_the_client_expects(certificates, contexts):
    names = []
    context = server_tls(certificates)
    context.sni_callback = lambda _, name, __: names.append(name)
    World(context, contexts[1], hostname="localhost").pair()
    assert names == ["localhost"]


def test_a_context_is_asked_for_with_each_connection(contexts):
    made = []

    def fresh():
        made.append(1)
        return contexts[1]

    world = World(contexts[0], fresh)
    world.pair()
    world.pair()
    assert len(made) == 2


# -- ends ------------------------------------------------------------------------------------------------------------


def test_a_close_is_announced_and_sends_what_was_written(world):
    client, server = world.pair()
    client.transport.write(b"last words")
    client.transport.close()
    client.transport.write(b"too late")
    world.settle()
    assert server.data == b"last words"
    assert client.error is None
    assert isinstance(server.error, PeerClosed)
    assert client.log[-1] == server.log[-1] == "closed"
    assert client.log.count("closed") == 1


def test_an_abort_is_a_reset_at_the_other_end(world):
    client, server = world.pair()
    client.transport.abort(ValueError("why"))
    world.settle()
    assert str(client.error) == "why"
    assert isinstance(server.error, ConnectionResetError)


def test_a_peer_that_goes_without_close_notify_ends_as_any_other(world):
    client, server = world.pair()
    client.transport.write(b"all of it")
    world.settle()
    client.transport._under.close()
    world.settle()
    assert server.data == b"all of it"
    assert isinstance(server.error, PeerClosed)


def test_an_error_of_the_handler_ends_the_connection_with_it(world, caplog):
    client, server = world.pair()

    def fail(_):
        raise RuntimeError("bug")

    server.on_data = fail
    client.transport.write(b"x")
    world.settle()
    assert str(server.error) == "bug"
    assert isinstance(client.error, ConnectionError)


def test_a_handshake_that_never_ends_is_ended(world, caplog):
    silent = Recorder()
    silent.transport = world.plain_client.connect([world.listener.address], silent)
    with caplog.at_level(logging.WARNING, "kafka.net.tls"):
        world.settle()
    server = world.acceptor.recorders[-1]
    assert "no end of the TLS handshake within 10 s" in str(server.error)
    assert not server.is_connected
    assert silent.is_closed
    assert world.loop.time() == 10.0
    assert len(caplog.records) == 1


# -- whoever is wrong ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data", [b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x00\xff\xff", b"GET / HTTP/1.1\r\n\r\n", b"\x80" * 64]
)
def test_bytes_that_are_not_tls_end_the_connection_with_one_line(world, caplog, data):
    plain = Recorder()
    plain.transport = world.plain_client.connect([world.listener.address], plain)
    with caplog.at_level(logging.WARNING, "kafka.net.tls"):
        plain.transport.write(data)
        world.settle()
    server = world.acceptor.recorders[-1]
    assert isinstance(server.error, TlsError)
    assert server.log == ["closed"]
    assert plain.is_closed
    assert len(caplog.records) == 1
    assert "TLS" in caplog.text


def test_a_plaintext_server_is_named_as_such_to_a_tls_client(world):
    acceptor = Acceptor()
    listener = world.plain_server.listen("broker", 9999, acceptor)
    client = Recorder()
    world.client.connect([listener.address], client)
    world.loop.run_until(lambda: acceptor.recorders and acceptor.recorders[-1].data)
    acceptor.recorders[-1].transport.close()
    world.settle()
    assert "during the TLS handshake; does it speak TLS there?" in str(client.error)
    answering = Recorder()
    world.client.connect([listener.address], answering)
    world.loop.run_until(lambda: len(acceptor.recorders) == 2 and acceptor.recorders[-1].data)
    acceptor.recorders[-1].transport.write(b"\x00\x00\x00\x10not a record")
    world.settle()
    assert "is not TLS; does it speak plaintext?" in str(answering.error)


def test_a_corrupted_record_ends_the_connection_and_gives_nothing(world):
    client, server = world.pair()
    client.transport._under.write(b"\x17\x03\x03\x00\x20" + b"\x55" * 32)
    world.settle()
    assert server.data == b""
    assert isinstance(server.error, TlsError)
    assert isinstance(client.error, ConnectionError)


def test_a_record_longer_than_tls_allows_is_refused_before_it_is_there(world):
    client, server = world.pair()
    client.transport._under.write(b"\x17\x03\x03\xff\xff")
    world.settle()
    assert isinstance(server.error, TlsError)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(data=st.binary(min_size=1, max_size=400), as_handshake=st.booleans())
def test_garbage_gives_our_error_and_nothing_else(world, data, as_handshake):
    recorder = Recorder()
    tls, under = joined(world.server, True, recorder)
    tls.data_received(b"\x16\x03\x01" + len(data).to_bytes(2, "big") + data if as_handshake else data)
    tls.closed(PeerClosed("gone"))
    assert recorder.log == ["closed"]
    assert isinstance(recorder.error, (TlsError, PeerClosed))


def test_a_server_does_not_renegotiate(certificates):
    context = server_tls(certificates)
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


# -- certificates ----------------------------------------------------------------------------------------------------


def test_a_client_refuses_a_server_that_nobody_it_trusts_has_signed(certificates, contexts, caplog):
    world = World(contexts[0], client_tls(certificates, ca=certificates.stranger_ca))
    client, server = world.pair()
    assert isinstance(client.error, TlsCertificateError)
    assert "unable to get local issuer certificate" in str(client.error)
    assert isinstance(server.error, TlsCertificateError)
    assert "unknown ca" in str(server.error)
    assert len([record for record in caplog.records if record.name == "kafka.net.tls"]) == 1


def test_a_client_refuses_a_server_of_another_name(contexts):
    client, _ = World(*contexts, hostname="elsewhere").pair()
    assert isinstance(client.error, TlsCertificateError)
    assert "Hostname mismatch" in str(client.error)


def test_a_name_that_need_not_fit_is_not_checked(certificates, contexts):
    client, _ = World(contexts[0], client_tls(certificates, check_hostname=False), hostname="elsewhere").pair()
    assert client.is_connected


@pytest.mark.parametrize(
    ("client_auth", "shown", "is_let_in"),
    [
        ("required", "client", True),
        ("required", "stranger", False),
        ("required", None, False),
        ("requested", "client", True),
        ("requested", None, True),
        ("requested", "stranger", False),
        ("none", "stranger", True),
    ],
)
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_client_certificates_are_asked_for_as_the_setting_says(certificates, client_auth, shown, is_let_in, version):
    identity = identity_of(certificates, shown) if shown else None
    context = client_tls(certificates, identity, versions=(version,))
    world = World(server_tls(certificates, client_auth=client_auth), context)
    client, server = world.pair()
    client.transport.write(b"let me in")
    world.settle()
    assert (server.data == b"let me in") is is_let_in
    if is_let_in:
        certificate = server.transport.peer_certificate()
        assert (certificate is not None) is (client_auth != "none" and shown is not None)
    else:
        assert isinstance(server.error, TlsCertificateError)
        assert isinstance(client.error, TlsError)  # TLS 1.2 says no more than "handshake failure"


# -- backpressure ----------------------------------------------------------------------------------------------------


def test_a_handler_that_pauses_gets_nothing_until_it_resumes(world):
    client, server = world.pair()
    server.transport.pause_reading()
    client.transport.write(b"x" * 1_000_000)
    world.settle()
    assert server.data == b""
    assert client.transport.pending_bytes > 0
    server.transport.resume_reading()
    world.settle()
    assert len(server.data) == 1_000_000
    assert client.transport.pending_bytes == 0
    assert client.log == ["connected", "writable"]


def test_a_pause_in_the_midst_of_what_was_decrypted_holds_the_rest(world):
    recorder = Recorder()
    client = Recorder()
    near, near_under = joined(world.client, False, client)
    far, far_under = joined(world.server, True, recorder)
    while near_under.written or far_under.written:
        far.data_received(take(near_under)) if near_under.written else None
        near.data_received(take(far_under)) if far_under.written else None
    near.write(b"y" * (2 * READ_BYTES))
    recorder.on_data = lambda _: far.pause_reading()
    far.data_received(take(near_under))
    assert 0 < len(recorder.data) <= READ_BYTES
    recorder.on_data = None
    far.resume_reading()
    world.settle()
    assert recorder.data == b"y" * (2 * READ_BYTES)


def test_a_pause_before_the_handshake_does_not_stop_it(world):
    client = world.connect()
    client.transport.pause_reading()
    world.settle()
    assert client.is_connected
    world.acceptor.recorders[-1].transport.write(b"later")
    world.settle()
    assert client.data == b""
    client.transport.resume_reading()
    world.settle()
    assert client.data == b"later"


# -- over sockets ----------------------------------------------------------------------------------------------------


@pytest.fixture
def tcp():
    loop = Loop()
    network = TcpNetwork(loop)
    yield network
    network.close()
    loop.run_once(0)
    loop.close()


def in_a_thread(loop, function):
    """Run a blocking peer beside the loop; what it returned or raised is in the list."""
    outcome = []

    def run():
        try:
            outcome.append(function())
        except Exception as error:
            outcome.append(error)
        loop.wakeup()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return outcome


def test_a_blocking_client_talks_to_a_listener_and_says_goodbye(tcp, certificates, contexts):
    acceptor = Acceptor(echo=True)
    listener = TlsNetwork(tcp, contexts[0]).listen("127.0.0.1", 0, acceptor)
    data = os.urandom(700_000)

    def peer():
        plain = socket.create_connection(("127.0.0.1", listener.address.port), DEADLINE_S)
        with contexts[1].wrap_socket(plain, server_hostname="localhost") as wrapped:
            writer = in_a_thread(tcp.loop, lambda: wrapped.sendall(data))
            back = b""
            while len(back) < len(data):
                back += wrapped.recv(100_000)
            wrapped.unwrap().close()  # waits for our close_notify
            assert writer == [None]
            return back

    outcome = in_a_thread(tcp.loop, peer)
    assert tcp.loop.run_until(lambda: outcome and acceptor.recorders[-1].is_closed, DEADLINE_S)
    assert outcome == [data]
    assert isinstance(acceptor.recorders[-1].error, PeerClosed)


def test_a_client_talks_to_a_blocking_server(tcp, certificates, contexts):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def peer():
            plain, _ = server.accept()
            with contexts[0].wrap_socket(plain, server_side=True) as wrapped:
                wrapped.sendall(wrapped.recv(100).upper())
                return wrapped.recv(100)

        outcome = in_a_thread(tcp.loop, peer)
        client = Recorder()
        network = TlsNetwork(tcp, contexts[1]).for_host("localhost")
        client.transport = network.connect([literal_address(*server.getsockname())], client)
        client.transport.write(b"loud")
        assert tcp.loop.run_until(lambda: client.data == b"LOUD", DEADLINE_S)
        client.transport.close()
        assert tcp.loop.run_until(lambda: outcome and client.is_closed, DEADLINE_S)
        assert outcome == [b""]


def test_a_peer_that_stops_reading_does_not_hold_a_failed_connection(tcp, contexts):
    acceptor = Acceptor()
    listener = TlsNetwork(tcp, contexts[0]).listen("127.0.0.1", 0, acceptor)

    def peer():
        plain = socket.create_connection(("127.0.0.1", listener.address.port), DEADLINE_S)
        return contexts[1].wrap_socket(plain, server_hostname="localhost")

    outcome = in_a_thread(tcp.loop, peer)
    assert tcp.loop.run_until(lambda: outcome and any(one.is_connected for one in acceptor.recorders), DEADLINE_S)
    server = acceptor.recorders[-1]
    while not server.transport.pending_bytes:
        server.transport.write(b"z" * 1_000_000)
    with socket.socket(fileno=outcome[0].detach()) as plain:
        plain.sendall(b"\x17\x03\x03\x00\x20" + b"\x55" * 32)
        assert tcp.loop.run_until(lambda: server.is_closed, DEADLINE_S)
    assert isinstance(server.error, TlsError)
