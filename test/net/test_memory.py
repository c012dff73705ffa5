"""The network in memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.net.loop import Loop
from kafka.net.memory import WINDOW_BYTES, LinkConditions, MemoryNetwork, Pipe
from kafka.net.transport import Address, ConnectFailed, ConnectionOptions, PeerClosed
from test.net.recorder import Acceptor, Recorder


class World:
    """A client's and a broker's view of one network."""

    def __init__(self, loop: Loop | None = None) -> None:
        self.loop = loop or Loop.simulated()
        self.network = MemoryNetwork(self.loop)
        self.client_host = self.network.host("client")
        self.broker_host = self.network.host("broker")
        self.acceptor = Acceptor()
        self.listener = self.broker_host.listen("broker", 9092, self.acceptor)

    def connect(self, *addresses: Address, timeout_s: float = 10.0) -> Recorder:
        client = Recorder()
        options = ConnectionOptions(connect_timeout_s=timeout_s)
        client.transport = self.client_host.connect(addresses or [self.listener.address], client, options)
        return client

    def settle(self) -> None:
        """Run everything that can happen."""
        self.loop.run_until(lambda: False)

    def pair(self) -> tuple[Recorder, Recorder]:
        client = self.connect()
        self.settle()
        return client, self.acceptor.recorders[-1]


@pytest.fixture
def world():
    return World()


def test_bytes_go_both_ways_and_no_handler_is_called_inside_a_call(world):
    client = world.connect()
    client.transport.write(b"early ")
    assert (client.log, world.acceptor.recorders) == ([], [])
    world.settle()
    server = world.acceptor.recorders[0]
    client.transport.write([b"and ", memoryview(b"late")])
    assert server.data == b"early "
    world.settle()
    assert server.data == b"early and late"
    server.transport.write(b"answer")
    world.settle()
    assert client.data == b"answer"
    assert client.log == server.log == ["connected"]
    assert client.transport.peer == server.transport.local == Address(0, ("broker", 9092))
    assert client.transport.local == server.transport.peer


def test_names_are_their_own_addresses(world):
    assert world.client_host.resolve("broker", 9092).value == [Address(0, ("broker", 9092))]


def test_refused_address_falls_to_the_next_and_none_left_says_why(world):
    nobody = Address(0, ("nobody", 1))
    client = world.connect(nobody, world.listener.address)
    lost = world.connect(nobody)
    world.settle()
    assert client.is_connected
    assert isinstance(lost.error, ConnectFailed)
    assert "nobody:1: Connection refused" in str(lost.error)


def test_port_zero_is_a_free_port_and_one_in_use_is_refused(world):
    first = world.network.listen("", 0, Acceptor())
    second = world.network.listen("", 0, Acceptor())
    assert first.address != second.address
    with pytest.raises(OSError, match="in use"):
        world.broker_host.listen("broker", 9092, Acceptor())
    world.listener.close()
    world.broker_host.listen("broker", 9092, Acceptor())


def test_delay_holds_connection_and_bytes_for_their_time(world):
    world.network.link("client", "broker").delay_s = 0.3
    world.network.link("broker", "client").delay_s = 0.2
    client = world.connect()
    assert world.loop.run_until(lambda: client.is_connected)
    assert world.loop.time() == pytest.approx(0.5)
    client.transport.write(b"x")
    server = world.acceptor.recorders[0]
    assert world.loop.run_until(lambda: server.data)
    assert world.loop.time() == pytest.approx(0.8)


def test_shorter_delay_never_overtakes(world):
    delays = iter([0.0, 0.5, 0.1])
    client, server = world.pair()
    world.network.link("client", "broker").delay_s = lambda count: next(delays)
    for data in (b"a", b"b", b"c"):
        client.transport.write(data)
    world.settle()
    assert server.data == b"abc"


@given(
    writes=st.lists(st.binary(max_size=20), max_size=20),
    chunk_bytes=st.integers(1, 7),
    delays=st.lists(st.floats(0, 2), min_size=1, max_size=5),
)
def test_any_cutting_and_any_delay_keep_the_stream_whole_and_in_order(writes, chunk_bytes, delays):
    world = World()
    client, server = world.pair()
    link = world.network.link("client", "broker")
    link.chunk_bytes = chunk_bytes
    link.delay_s = lambda count: delays[count % len(delays)]
    for data in writes:
        client.transport.write(data)
        world.loop.run_once(0.5)
    client.transport.close()
    world.settle()
    assert server.data == b"".join(writes)
    assert all(0 < len(piece) <= chunk_bytes for piece in server.pieces)
    assert server.log == ["connected", "closed"]


def test_bytes_can_arrive_one_by_one_or_all_that_is_due_in_one_piece(world):
    client, server = world.pair()
    for data in (b"ab", b"cd"):
        client.transport.write(data)
    world.settle()
    assert server.pieces == [b"abcd"]
    world.network.link("client", "broker").chunk_bytes = 1
    client.transport.write(b"ef")
    world.settle()
    assert server.pieces == [b"abcd", b"e", b"f"]


def test_handler_that_pauses_between_two_pieces_gets_the_rest_when_it_resumes(world):
    client, server = world.pair()
    world.network.link("client", "broker").chunk_bytes = 2
    server.on_data = lambda data: server.transport.pause_reading()
    client.transport.write(b"abcdef")
    client.transport.close()
    world.settle()
    assert server.pieces == [b"ab"]
    server.transport.resume_reading()
    world.settle()
    assert server.pieces == [b"ab", b"cd"]
    server.on_data = None
    server.transport.resume_reading()
    world.settle()
    assert server.data == b"abcdef"
    assert isinstance(server.error, PeerClosed)


def test_close_delivers_what_is_under_way_and_abort_loses_it(world):
    world.network.link("client", "broker").delay_s = 1.0
    for method, data, error in (("close", b"bye", PeerClosed), ("abort", b"", ConnectionResetError)):
        client, server = world.pair()
        client.transport.write(b"bye")
        getattr(client.transport, method)()
        client.transport.write(b"too late")
        world.settle()
        assert client.error is None
        assert server.data == data
        assert isinstance(server.error, error)
        assert client.log.count("closed") == server.log.count("closed") == 1


def test_cut_resets_both_ends_of_the_connections_between_two_hosts_only(world):
    client, server = world.pair()
    other = Recorder()
    other.transport = world.network.host("other").connect([world.listener.address], other)
    world.settle()
    client.transport.write(b"lost")
    assert world.network.cut("client", "broker") == 1
    world.settle()
    assert isinstance(client.error, ConnectionResetError)
    assert isinstance(server.error, ConnectionResetError)
    assert server.data == b""
    assert not other.is_closed


def test_partition_holds_bytes_until_it_heals(world):
    client, server = world.pair()
    world.network.partition("client", "broker")
    client.transport.write(b"held")
    server.transport.write(b"held too")
    world.settle()
    assert (client.data, server.data) == (b"", b"")
    assert not client.is_closed
    world.network.heal("broker", "client")
    world.settle()
    assert (client.data, server.data) == (b"held too", b"held")


def test_connecting_into_a_partition_takes_its_time_limit(world):
    world.network.partition("client", "broker")
    client = world.connect(timeout_s=7.0)
    world.settle()
    assert world.loop.time() == 7.0
    assert isinstance(client.error, ConnectFailed)
    assert isinstance(client.error.errors[0][1], TimeoutError)


def test_lossy_link_swallows_bytes_and_the_end(world):
    client, server = world.pair()
    world.network.link("client", "broker").is_lossy = True
    client.transport.write(b"gone")
    client.transport.close()
    world.settle()
    assert server.log == ["connected"]
    assert server.data == b""


def test_peer_that_does_not_read_lets_pending_bytes_grow_and_writable_is_called_at_the_end(world):
    client, server = world.pair()
    server.transport.pause_reading()
    client.transport.write(bytes(WINDOW_BYTES))
    assert client.transport.pending_bytes == 0
    client.transport.write(bytes(1000))
    world.settle()
    assert client.transport.pending_bytes == 1000
    assert "writable" not in client.log
    server.transport.resume_reading()
    world.settle()
    assert len(server.data) == WINDOW_BYTES + 1000
    assert client.transport.pending_bytes == 0
    assert client.log == ["connected", "writable"]


def test_error_in_the_handler_ends_its_connection_with_that_error(world):
    client, server = world.pair()
    cause = ValueError("bad bytes")

    def fail(data):
        raise cause

    server.on_data = fail
    client.transport.write(b"x")
    world.settle()
    assert server.error is cause
    assert isinstance(client.error, ConnectionResetError)


def test_refusal_by_accept_and_close_inside_accept_reach_the_client(world):
    def refuse(transport):
        raise PermissionError("not you")

    handlers: list[Recorder] = []

    def accept_and_close(transport):
        transport.close()
        handlers.append(Recorder(transport))
        return handlers[-1]

    refused = world.connect(world.broker_host.listen("broker", 1, refuse).address)
    closed = world.connect(world.broker_host.listen("broker", 2, accept_and_close).address)
    world.settle()
    assert isinstance(refused.error, ConnectFailed)
    assert isinstance(closed.error, PeerClosed)
    assert handlers[0].log == ["closed"]


def test_who_comes_while_a_listener_pauses_is_connected_and_served_later(world):
    world.listener.pause()
    first, second, gone = world.connect(), world.connect(), world.connect()
    first.transport.write(b"first")
    world.settle()
    gone.transport.close()
    assert first.is_connected
    assert world.acceptor.recorders == []
    world.listener.resume()
    world.settle()
    assert [recorder.data for recorder in world.acceptor.recorders] == [b"first", b"", b""]
    assert [recorder.is_closed for recorder in world.acceptor.recorders] == [False, False, True]
    world.listener.pause()
    waiting = world.connect()
    world.settle()
    world.listener.close()
    world.settle()
    assert isinstance(waiting.error, ConnectionResetError)
    assert not second.is_closed


def test_server_that_speaks_first_is_heard_after_connected(world):
    class Greeter(Recorder):
        def connected(self):
            super().connected()
            self.transport.write(b"welcome")

    greeting: list[str] = []

    class Listening(Recorder):
        def connected(self):
            greeting.append("connected")
            self.transport.write(b" second")

        def data_received(self, data):
            greeting.append(data.decode())

    handlers: list[Greeter] = []

    def accept(transport):
        handlers.append(Greeter(transport))
        return handlers[-1]

    world.network.link("broker", "client").delay_s = lambda count: 0.0 if count else 1.0
    client = Listening()
    address = world.broker_host.listen("broker", 5, accept).address
    client.transport = world.client_host.connect([address], client)
    client.transport.write(b"first")
    world.settle()
    assert greeting == ["connected", "welcome"]
    assert handlers[0].data == b"first second"


def test_closing_a_view_ends_what_was_made_through_it(world):
    client, server = world.pair()
    world.broker_host.close()
    world.settle()
    assert server.error is None
    assert server.is_closed
    assert isinstance(client.error, ConnectionResetError)
    assert not world.network._fabric.listeners
    assert not world.network._fabric.transports


def test_same_run_gives_the_same_events():
    def run() -> list[object]:
        world = World()
        world.network.link("client", "broker").delay_s = lambda count: (count * 37 % 11) / 10
        clients = [world.connect() for _ in range(5)]
        for number, client in enumerate(clients):
            client.transport.write(b"x" * (number + 1))
        world.settle()
        return [(server.data, server.log, world.loop.time()) for server in world.acceptor.recorders]

    assert run() == run()


def test_works_on_a_loop_with_real_descriptors_and_time_as_well():
    loop = Loop()
    world = World(loop)
    client = world.connect()
    client.transport.write(b"ping")
    assert loop.run_until(lambda: world.acceptor.recorders and world.acceptor.recorders[0].data == b"ping", 10)
    loop.close()


# -- one direction of a connection -------------------------------------------------------------------------------------


class End:
    """Where the pipe leads: takes what comes while it ``wants``."""

    def __init__(self) -> None:
        self.wants = True
        self.seen: list[object] = []
        self.pending: list[int] = []

    def may_receive(self) -> bool:
        return self.wants

    def call_handler(self, method: str, *args: bytes) -> None:
        self.seen.extend(args)

    def set_writers_pending(self, count: int) -> None:
        self.pending.append(count)

    def end(self, error: BaseException | None) -> None:
        self.seen.append(error)


@pytest.fixture
def pipe():
    return Pipe(Loop.simulated(), End())


def test_delay_is_a_number_or_a_function_of_the_size():
    assert LinkConditions(delay_s=0.5).delay_of(100) == 0.5
    assert LinkConditions(delay_s=lambda count: count / 10).delay_of(5) == 0.5


def test_end_comes_after_the_bytes_whatever_the_delays(pipe):
    pipe.link = LinkConditions(delay_s=lambda count: 1.0 if count else 0.0)
    error = ConnectionResetError()
    pipe.send(b"last")
    pipe.end(error)
    pipe._loop.run_until(lambda: False)
    assert pipe._target.seen == [b"last", error]


def test_nothing_arrives_after_it_was_shut(pipe):
    pipe.send(b"under way")
    pipe.shut()
    pipe.send(b"late")
    pipe.end(ConnectionResetError())
    pipe._loop.run_until(lambda: False)
    assert pipe._target.seen == []


def test_writer_is_notified_of_what_exceeds_the_window(pipe):
    pipe.send(bytes(WINDOW_BYTES))
    pipe.send(bytes(5))
    pipe._loop.run_until(lambda: False)
    assert pipe._target.pending == [0, 5, 0]


def test_bytes_wait_for_a_target_that_wants_them(pipe):
    pipe._target.wants = False
    pipe.send(b"patience")
    pipe._loop.run_until(lambda: False)
    assert pipe._target.seen == []
    pipe._target.wants = True
    pipe.arm()
    pipe._loop.run_until(lambda: False)
    assert pipe._target.seen == [b"patience"]
