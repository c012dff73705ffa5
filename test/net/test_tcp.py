"""TCP connections on the loop."""

from __future__ import annotations

import errno
import logging
import os
import socket
import struct

import pytest

from kafka.net.loop import Loop
from kafka.net.resolve import literal_address
from kafka.net.tcp import HAS_LOW_WATER, LOW_WATER_BYTES, MAX_CHUNKS, READ_BYTES, TcpNetwork
from kafka.net.transport import Address, ConnectFailed, ConnectionOptions, PeerClosed
from kafka.wire.frame import LargeFrameReader, ReceiveBuffers, frame
from test.net.recorder import Acceptor, Recorder, Roomy

LARGE = 1024 * 1024
DEADLINE_S = 60


@pytest.fixture
def network():
    loop = Loop()
    network = TcpNetwork(loop)
    yield network
    network.close()
    loop.run_once(0)
    loop.close()


def _connected(network, acceptor=None, options=None):
    """A connection: (listener, client's recorder, server's recorder), both with their transport."""
    acceptor = acceptor or Acceptor()
    listener = network.listen("127.0.0.1", 0, acceptor)
    client = Recorder()
    client.transport = network.connect([listener.address], client, options or ConnectionOptions())
    assert network.loop.run_until(lambda: client.is_connected and acceptor.recorders, 10)
    return listener, client, acceptor.recorders[-1]


@pytest.fixture
def raw(network):
    """A connection whose far end is a plain socket: (recorder, socket)."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = Recorder()
        client.transport = network.connect([literal_address(*server.getsockname())], client)
        far, _ = server.accept()
        assert network.loop.run_until(lambda: client.is_connected, 10)
        with far:
            yield client, far


def _is_reset(sock: socket.socket) -> bool:
    """Whether the kernel has seen the peer's reset: the connection has no far end any more."""
    try:
        sock.getpeername()
    except OSError:
        return True
    return False


def test_bytes_go_both_ways_and_addresses_are_known(network):
    listener, client, server = _connected(network, Acceptor(echo=True))
    client.transport.write(b"hello")
    client.transport.write([b" ", bytearray(b"wor"), memoryview(b"ld")])
    assert network.loop.run_until(lambda: client.data == b"hello world", 10)
    assert client.transport.peer == server.transport.local == listener.address
    assert client.transport.local == server.transport.peer
    assert listener.address.port > 0


def test_bytes_are_put_where_the_handler_has_room_and_are_handed_over_where_it_has_none(network):
    acceptor = Acceptor()
    listener = network.listen("127.0.0.1", 0, acceptor)
    client = Roomy(70_000)
    client.transport = network.connect([listener.address], client)
    assert network.loop.run_until(lambda: client.is_connected and acceptor.recorders, 30)
    data = bytes(range(256)) * 4096
    acceptor.recorders[0].transport.write(data)
    assert network.loop.run_until(lambda: len(client.data) == len(data), 30)
    assert client.data == data
    assert "data_received" in client.log
    assert max(client.counts) <= 70_000
    acceptor.recorders[0].transport.close()
    assert network.loop.run_until(lambda: client.is_closed, 30)


def test_what_is_written_before_the_connection_stands_goes_out_after_it(network):
    acceptor = Acceptor()
    listener = network.listen("127.0.0.1", 0, acceptor)
    client = Recorder()
    transport = network.connect([listener.address], client)
    transport.write(b"early ")
    transport.write([b"and ", b"in order"])
    assert transport.pending_bytes == 18
    assert network.loop.run_until(lambda: [server.data for server in acceptor.recorders] == [b"early and in order"], 10)
    assert transport.pending_bytes == 0
    assert client.log == ["connected", "writable"]


def test_close_ends_both_sides_once_and_says_who_did(network):
    _, client, server = _connected(network)
    client.transport.close()
    client.transport.close()
    client.transport.abort()
    assert network.loop.run_until(lambda: client.is_closed and server.is_closed, 10)
    client.transport.write(b"too late")
    network.loop.run_once(0)
    assert client.log == server.log == ["connected", "closed"]
    assert client.error is None
    assert isinstance(server.error, PeerClosed)


def test_huge_write_reaches_a_slow_reader_whole_and_writable_is_called_afterwards(network):
    _, client, server = _connected(network, options=ConnectionOptions(send_buffer_bytes=131072))
    server.transport.pause_reading()
    payload = os.urandom(4096) * 2048
    client.transport.write([payload[:100], memoryview(payload)[100:-1], payload[-1:]])
    while network.loop.run_once(0):
        pass
    assert client.transport.pending_bytes > 0
    assert "writable" not in client.log
    server.transport.resume_reading()
    assert network.loop.run_until(lambda: len(server.data) == len(payload), 20)
    assert server.data == payload
    assert max(map(len, server.pieces)) <= READ_BYTES
    assert network.loop.run_until(lambda: "writable" in client.log, 10)
    assert client.transport.pending_bytes == 0
    assert client.log == ["connected", "writable"]
    client.transport.write(b"!")
    assert network.loop.run_until(lambda: server.data == payload + b"!", 10)


def test_more_chunks_than_one_system_call_takes_arrive_in_order(network):
    _, client, server = _connected(network)
    chunks = [b"%d," % number for number in range(MAX_CHUNKS * 3 + 7)]
    client.transport.write(chunks)
    client.transport.write([b"", b"end"])
    client.transport.write([])
    client.transport.write(b"")
    expected = b"".join(chunks) + b"end"
    assert network.loop.run_until(lambda: len(server.data) == len(expected), 10)
    assert server.data == expected
    assert client.transport.pending_bytes == 0


def test_close_sends_what_is_pending_first(network):
    _, client, server = _connected(network, options=ConnectionOptions(send_buffer_bytes=131072))
    payload = bytes(8_000_000)
    client.transport.write(payload)
    assert client.transport.pending_bytes > 0
    client.transport.close()
    assert network.loop.run_until(lambda: server.is_closed, 20)
    assert len(server.data) == len(payload)
    assert client.log == ["connected", "closed"]
    assert client.error is None


def test_abort_drops_what_is_pending_and_resets_the_peer(network):
    _, client, server = _connected(network, options=ConnectionOptions(send_buffer_bytes=131072))
    client.transport.write(bytes(8_000_000))
    cause = ValueError("enough")
    client.transport.abort(cause)
    assert client.transport.pending_bytes == 0
    assert client.log == ["connected"]
    assert network.loop.run_until(lambda: client.is_closed and server.is_closed, 10)
    assert client.error is cause
    assert isinstance(server.error, ConnectionResetError)


def test_reset_by_the_peer_closes_with_the_error(network, raw):
    client, far = raw
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    far.close()
    assert network.loop.run_until(lambda: client.is_closed, 10)
    assert isinstance(client.error, ConnectionResetError)
    assert client.log == ["connected", "closed"]


def test_half_closed_connection_ends_after_its_last_bytes(network, raw):
    client, far = raw
    far.sendall(b"last words")
    far.shutdown(socket.SHUT_WR)
    assert network.loop.run_until(lambda: client.is_closed, 10)
    assert client.data == b"last words"
    assert isinstance(client.error, PeerClosed)


def test_write_to_a_gone_peer_ends_the_connection_but_first_delivers_the_peers_bytes(network, raw):
    client, far = raw
    client.transport.pause_reading()
    far.sendall(b"you are not welcome")
    far.close()
    client.transport.write(b"the far end answers this with a reset")
    assert network.loop.run_until(lambda: _is_reset(client.transport._sock), 10)
    client.transport.write(b"and so this fails")
    client.transport.write(b"as does this")
    assert client.log == ["connected"]
    client.transport.resume_reading()
    assert network.loop.run_until(lambda: client.is_closed, 10)
    assert client.data == b"you are not welcome"
    assert isinstance(client.error, ConnectionError)
    assert client.log == ["connected", "closed"]


def test_paused_transport_delivers_nothing_until_resumed(network, raw):
    client, far = raw
    client.transport.pause_reading()
    far.sendall(b"later")
    assert network.loop.run_once(0) == 0
    client.transport.resume_reading()
    assert network.loop.run_until(lambda: client.data == b"later", 10)


def test_busy_connection_leaves_the_others_their_turn(network):
    acceptor = Acceptor()
    listener, _busy, busy_server = _connected(network, acceptor)
    quiet = Recorder()
    quiet.transport = network.connect([listener.address], quiet)
    assert network.loop.run_until(lambda: len(acceptor.recorders) == 2 and quiet.is_connected, 10)
    quiet_server = acceptor.recorders[1]
    busy_server.on_data = lambda data: _busy.transport.write(data)
    _busy.transport.write(b"x" * READ_BYTES)
    quiet.transport.write(b"me too")
    assert network.loop.run_until(lambda: quiet_server.data, 10)
    assert network.loop.run_until(lambda: len(busy_server.pieces) > 5, 10)


@pytest.mark.parametrize("method", ["connected", "data_received", "writable"])
def test_error_in_the_handler_ends_its_connection_with_that_error(network, method, caplog):
    class Failing(Recorder):
        pass

    cause = ValueError("bad bytes")

    def fail(*args):
        raise cause

    client = Failing()
    setattr(client, method, fail)
    listener = network.listen("127.0.0.1", 0, Acceptor(echo=True))
    transport = network.connect([listener.address], client)
    transport.write(b"x")
    with caplog.at_level(logging.ERROR):
        assert network.loop.run_until(lambda: client.is_closed, 10)
    assert client.error is cause
    assert "after an error in its handler" in caplog.text


def test_refusal_by_accept_ends_that_connection_and_the_listener_goes_on(network, caplog):
    def refuse(transport):
        raise PermissionError("not you")

    listener = network.listen("127.0.0.1", 0, refuse)
    for _ in range(2):
        client = Recorder()
        network.connect([listener.address], client)
        with caplog.at_level(logging.ERROR):
            assert network.loop.run_until(lambda client=client: client.is_closed, 10)
    assert caplog.text.count("PermissionError: not you") == 2
    assert not network._transports


def test_connection_closed_inside_accept_gets_closed(network):
    handlers: list[Recorder] = []

    def accept(transport):
        transport.close()
        handlers.append(Recorder(transport))
        return handlers[-1]

    listener = network.listen("127.0.0.1", 0, accept)
    client = Recorder()
    network.connect([listener.address], client)
    assert network.loop.run_until(lambda: client.is_closed and handlers and handlers[0].is_closed, 10)
    assert handlers[0].log == ["closed"]


def test_port_in_use_is_an_os_error_and_a_closed_listeners_port_is_free_at_once(network):
    listener, client, server = _connected(network)
    with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{listener.address.port}: ") as caught:
        network.listen("127.0.0.1", listener.address.port, Acceptor())
    assert caught.value.errno == errno.EADDRINUSE
    listener.close()
    listener.close()
    client.transport.write(b"still here")
    assert network.loop.run_until(lambda: server.data == b"still here", 10)
    server.transport.close()
    assert network.loop.run_until(lambda: client.is_closed, 10)
    network.listen("127.0.0.1", listener.address.port, Acceptor())


@pytest.mark.parametrize("port", [-1, 65536, 70000])
def test_a_port_that_is_none_is_refused(network, port):
    """getaddrinfo() would take its lower 16 bits, and another port would be listened on."""
    with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}: a port must be a number from 0 to 65535"):
        network.listen("127.0.0.1", port, Acceptor())


def test_who_comes_while_a_listener_pauses_waits_without_a_descriptor_of_ours(network):
    acceptor = Acceptor()
    listener = network.listen("127.0.0.1", 0, acceptor)
    listener.pause()
    clients = [Recorder() for _ in range(3)]
    for client in clients:
        client.transport = network.connect([listener.address], client)
    assert network.loop.run_until(lambda: all(client.is_connected for client in clients), 10)
    assert network.loop.run_once(0) == 0, "the loop has nothing to do"
    assert acceptor.recorders == []
    listener.resume()
    assert network.loop.run_until(lambda: len(acceptor.recorders) == 3, 10)


def test_a_listener_that_is_paused_while_it_accepts_takes_no_more(network):
    acceptor = Acceptor()

    def accept(transport):
        listener.pause()
        return acceptor(transport)

    listener = network.listen("127.0.0.1", 0, accept)
    clients = [Recorder() for _ in range(3)]
    listener.pause()
    for client in clients:
        client.transport = network.connect([listener.address], client)
    assert network.loop.run_until(lambda: all(client.is_connected for client in clients), 10)
    listener.resume()
    assert network.loop.run_until(lambda: acceptor.recorders, 10)
    network.loop.run_once(0)
    assert len(acceptor.recorders) == 1


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EPERM])
def test_listener_that_cannot_accept_pauses_instead_of_spinning_and_says_so_once(network, caplog, monkeypatch, code):
    acceptor = Acceptor()
    listener = network.listen("127.0.0.1", 0, acceptor)

    class Exhausted:
        def __init__(self, sock):
            self.sock = sock
            self.failed = 0

        def accept(self):
            if self.failed == 3:
                return self.sock.accept()
            self.failed += 1
            raise OSError(code, os.strerror(code))

        def fileno(self):
            return self.sock.fileno()

        def close(self):
            self.sock.close()

    monkeypatch.setattr("kafka.net.tcp._ACCEPT_PAUSE_S", 0.01)
    listener._sock = Exhausted(listener._sock)
    client = Recorder()
    network.connect([listener.address], client)
    with caplog.at_level(logging.ERROR):
        assert network.loop.run_until(lambda: acceptor.recorders, 10)
    assert caplog.text.count(os.strerror(code)) == 1
    assert "Traceback" not in caplog.text


def test_descriptors_are_not_inherited_and_have_their_options(network):
    options = ConnectionOptions(receive_buffer_bytes=32768, send_buffer_bytes=131072)
    listener, client, server = _connected(network, options=options)
    for sock in (listener._sock, client.transport._sock, server.transport._sock):
        assert not sock.get_inheritable()
        assert not sock.getblocking()
    sock = client.transport._sock
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) >= 32768
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) >= 131072


def test_closing_the_network_ends_everything(network):
    listener, client, server = _connected(network)
    network.close()
    network.loop.run_once(0)
    assert client.is_closed
    assert server.is_closed
    assert listener._sock.fileno() == -1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_cannot_write_and_its_close_leaves_the_parents_connection_alone(network):
    _, client, server = _connected(network)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            client.transport.write(b"from the child")
        except RuntimeError:
            code = 0
        client.transport.abort()
        network.close()
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    client.transport.write(b"from the parent")
    assert network.loop.run_until(lambda: server.data, 10)
    assert server.data == b"from the parent"
    assert not client.is_closed


class Framed(Recorder):
    """Takes large frames in place and says what is missing of them. ``pieces`` are the frames, ``counts`` what came at
    a time in place."""

    def __init__(self) -> None:
        super().__init__()
        self.reader = LargeFrameReader(ReceiveBuffers())
        self.counts: list[int] = []

    def get_buffer(self) -> memoryview | None:
        return self.reader.get_buffer()

    def buffer_updated(self, count: int) -> None:
        self.counts.append(count)
        self.pieces += map(bytes, self.reader.buffer_updated(count))

    def missing_bytes(self) -> int:
        return self.reader.missing_bytes()

    def data_received(self, data: bytes) -> None:
        self.pieces += map(bytes, self.reader.feed(data))


@pytest.fixture
def framed(network, request):
    """A connection to a plain socket that does not block: (recorder, socket). With options as the parameter."""
    options = ConnectionOptions(**getattr(request, "param", {}))
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = Framed()
        client.transport = network.connect([literal_address(*server.getsockname())], client, options)
        far, _ = server.accept()
        with far:
            assert network.loop.run_until(lambda: client.is_connected, DEADLINE_S)
            far.setblocking(False)
            yield client, far


def _trickle(network, far, data, piece_bytes=16 * 1024):
    """Send ``data`` in small pieces, with a turn of the loop behind each."""
    view = memoryview(data)
    while view:
        try:
            view = view[far.send(view[:piece_bytes]) :]
        except BlockingIOError:
            network.loop.run_once(0.01)
        network.loop.run_once(0)


def _begin_large(network, client, far):
    """The first half of a large frame, of which the client has seen so much that it waits for the rest."""
    whole = frame(b"a" * LARGE)
    _trickle(network, far, whole[: LARGE // 2])
    assert network.loop.run_until(lambda: client.counts, DEADLINE_S)
    if HAS_LOW_WATER:
        assert _low_water(client) >= LOW_WATER_BYTES
    return whole[LARGE // 2 :]


def _low_water(client):
    return client.transport._sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)


@pytest.mark.skipif(not HAS_LOW_WATER, reason="sockets here cannot wait for many bytes")
def test_a_large_frame_wakes_the_loop_a_few_times_and_not_for_each_of_its_pieces(network, framed):
    client, far = framed
    whole = frame(b"a" * LARGE)
    _trickle(network, far, whole)
    assert network.loop.run_until(lambda: client.pieces == [whole[4:]], DEADLINE_S)
    assert len(client.counts) <= 16  # of 64 pieces; the system says earlier when its window is full
    assert _low_water(client) == 1


def test_small_frames_behind_a_large_one_come_at_once(network, framed):
    client, far = framed
    for number in range(3):
        client.pieces.clear()
        whole = frame(bytes([number]) * LARGE)
        _trickle(network, far, whole)
        for size in (1, 10, 1000):
            small = frame(b"s" * size)
            far.send(small[:3])
            network.loop.run_once(0)
            far.send(small[3:])
            assert network.loop.run_until(lambda wanted=small[4:]: client.pieces[-1:] == [wanted], DEADLINE_S)
        assert [len(each) for each in client.pieces] == [LARGE, 1, 10, 1000]


@pytest.mark.parametrize("framed", [{"receive_buffer_bytes": 64 * 1024}, {}], indirect=True, ids=["small", "own"])
def test_a_frame_larger_than_the_receive_buffer_comes_whole(network, framed):
    client, far = framed
    data = os.urandom(4096) * 8192
    far.setblocking(False)
    _trickle(network, far, frame(data), 1 << 20)
    assert network.loop.run_until(lambda: client.pieces == [data], DEADLINE_S)


def test_the_peers_end_in_the_middle_of_a_large_frame_is_noticed_at_once(network, framed):
    client, far = framed
    _begin_large(network, client, far)
    far.close()
    assert network.loop.run_until(lambda: client.is_closed, DEADLINE_S)
    assert isinstance(client.error, PeerClosed)
    assert client.pieces == []


def test_the_peers_reset_in_the_middle_of_a_large_frame_is_noticed_at_once(network, framed):
    client, far = framed
    _begin_large(network, client, far)
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    far.close()
    assert network.loop.run_until(lambda: client.is_closed, DEADLINE_S)
    assert isinstance(client.error, ConnectionResetError)


def test_closing_in_the_middle_of_a_large_frame_ends_it(network, framed):
    client, far = framed
    _begin_large(network, client, far)
    client.transport.close()
    assert network.loop.run_until(lambda: client.is_closed, DEADLINE_S)
    assert client.error is None
    assert client.pieces == []


def test_a_pause_in_the_middle_of_a_large_frame_loses_nothing(network, framed):
    client, far = framed
    rest = _begin_large(network, client, far)
    client.transport.pause_reading()
    far.send(rest[:1000])
    network.loop.run_once(0)
    client.transport.resume_reading()
    _trickle(network, far, rest[1000:])
    assert network.loop.run_until(lambda: client.pieces == [b"a" * LARGE], DEADLINE_S)


def test_a_system_that_refuses_the_low_water_mark_reads_piece_by_piece(network, framed, monkeypatch):
    client, far = framed
    monkeypatch.setattr("kafka.net.tcp.HAS_LOW_WATER", False)
    _trickle(network, far, frame(b"a" * LARGE))
    assert network.loop.run_until(lambda: client.pieces == [b"a" * LARGE], DEADLINE_S)
    assert _low_water(client) == 1


# -- connecting to a server over several addresses ---------------------------------------------------------------------


@pytest.fixture
def refusing():
    """An address that is bound and does not listen: every attempt is refused, and nobody else can take it."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield Address(socket.AF_INET, sock.getsockname())


@pytest.fixture
def silent():
    """An address whose queue of connections is full, so that an attempt gets no answer."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(0)
        address = sock.getsockname()
        fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(address)
            fillers.append(filler)
        yield Address(socket.AF_INET, address)
        for filler in fillers:
            filler.close()


def test_refused_address_falls_to_the_next(network, refusing):
    acceptor = Acceptor()
    listener = network.listen("127.0.0.1", 0, acceptor)
    handler = Recorder()
    transport = network.connect([refusing, listener.address], handler)
    assert network.loop.run_until(lambda: handler.is_connected and acceptor.recorders, 10)
    assert transport.peer == listener.address


def test_silent_address_falls_to_the_next_after_its_time(network, silent):
    listener = network.listen("127.0.0.1", 0, Acceptor())
    handler = Recorder()
    options = ConnectionOptions(connect_timeout_s=0.01)
    transport = network.connect([silent, listener.address], handler, options)
    assert network.loop.run_until(lambda: handler.is_connected, 10)
    assert transport.peer == listener.address


def test_no_address_left_closes_with_every_cause(network, refusing, silent):
    handler = Recorder()
    network.connect([refusing, silent], handler, ConnectionOptions(connect_timeout_s=0.01))
    assert handler.log == []
    assert network.loop.run_until(lambda: handler.is_closed, 10)
    assert handler.log == ["closed"]
    assert isinstance(handler.error, ConnectFailed)
    assert [type(error) for _, error in handler.error.errors] == [ConnectionRefusedError, TimeoutError]


def test_no_address_at_all_is_a_failed_connect(network):
    handler = Recorder()
    network.connect([], handler)
    assert network.loop.run_until(lambda: handler.is_closed, 10)
    assert isinstance(handler.error, ConnectFailed)


def test_address_that_fails_at_once_is_reported_later_nevertheless(network):
    handler = Recorder()
    network.connect([Address(socket.AF_INET6, ("ff02::1", 1, 0, 0)), Address(socket.AF_INET, ("x" * 70, 1))], handler)
    assert handler.log == []
    assert network.loop.run_until(lambda: handler.is_closed, 10)
    assert isinstance(handler.error, ConnectFailed)


def test_abort_while_connecting_closes_once_and_leaves_nothing_behind(network, silent):
    handler = Recorder()
    error = RuntimeError("changed our mind")
    transport = network.connect([silent, silent], handler)
    transport.abort(error)
    transport.close()
    network.loop.run_once(0)
    assert handler.log == ["closed"]
    assert handler.error is error
    assert not network._transports


def test_connection_to_oneself_counts_as_refused(network):
    """Connecting from a port to the same port succeeds in TCP: the kernel may choose it when nobody listens there."""
    from kafka.net import tcp

    handler = Recorder()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    configure = tcp.configure

    def bind_there(sock, options):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", port))
        configure(sock, options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tcp, "configure", bind_there)
        network.connect([literal_address("127.0.0.1", port)], handler)
    assert network.loop.run_until(lambda: handler.is_closed, 10)
    assert "connected to itself" in str(handler.error)
