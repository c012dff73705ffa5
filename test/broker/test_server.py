"""The server over networks: in memory with a manual clock for what depends on order and time, and over real sockets."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka.broker import BrokerOptions, RunningBroker, process
from kafka.broker.broker import Broker
from kafka.broker.process import ListenError
from kafka.broker.responses import ConnectionContext, PendingResponse
from kafka.broker.server import EXPENSIVE_S, MAX_PENDING_BYTES, BrokerServer
from kafka.core.serving import ServerConnection
from kafka.errors import KafkaConfigurationError, KafkaStorageError
from kafka.net.clock import ManualClock
from kafka.net.loop import Loop
from kafka.net.memory import MemoryNetwork
from kafka.net.transport import Address, TransportHandler
from kafka.protocol.api_versions import ApiVersionsRequest
from kafka.protocol.framing import decode_response, encode_request, read_correlation_id
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.topics import CreateTopicsRequest
from kafka.wire.frame import FrameReader
from kafka.wire.message import Response
from kafka.wire.types import BytesLike
from test.broker.driver import batch, fetch_request, fetched, produce_request, values
from test.broker.log.test_log_directory import full_disk
from test.broker.raw_client import RawClient

NOTHING = MetadataRequest(topics=[])


class MemoryClient(TransportHandler):
    """The other end of a connection in memory: whole frames, in order."""

    def __init__(self, network: MemoryNetwork, address: Address) -> None:
        self.frames: list[bytes] = []
        self.is_closed = False
        self._reader = FrameReader()
        self.transport = network.connect([address], self)

    def connected(self) -> None:
        return

    def writable(self) -> None:
        return

    def data_received(self, data: bytes) -> None:
        self.frames += self._reader.feed(data)

    def closed(self, error: BaseException | None) -> None:
        self.is_closed = True

    def send(self, request: MetadataRequest, version: int = 12, correlation_id: int = 1) -> None:
        self.transport.write(encode_request(request, version, correlation_id, "memory"))


def failing_answer(of: ServerConnection) -> Callable[..., list[BytesLike]]:
    whole = ServerConnection.answer

    def answer(self: ServerConnection, response: Response | None, version: int | None = None) -> list[BytesLike]:
        if self is of:
            raise ValueError("a number above the field's range")
        return whole(self, response, version)

    return answer


class InMemory:
    """A broker, its server and a simulated loop."""

    def __init__(
        self, data_dir: Path, settings: dict[str, str] | None = None, max_connections: int | None = None
    ) -> None:
        self.loop = Loop.simulated()
        self.network = MemoryNetwork(self.loop)
        self.broker = Broker(str(data_dir), settings, fsync="never", rng=random.Random(1))
        self.idle: list[float | None] = []
        self.server = BrokerServer(
            self.broker, self.network, "localhost", 9092, on_idle=self.idle.append, max_connections=max_connections
        )

    def client(self) -> MemoryClient:
        return MemoryClient(self.network, self.server.address)

    def settle(self) -> None:
        """Let everything happen that needs no time."""
        while self.loop.run_once(0):
            pass


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[InMemory]:
    made = InMemory(tmp_path / "data")
    yield made
    made.server.close()
    made.broker.close()


def test_answers_come_in_the_order_of_the_requests_however_many_are_sent_ahead(memory: InMemory) -> None:
    client = memory.client()
    for number in range(50):
        client.send(NOTHING, correlation_id=number)
    memory.settle()
    assert [read_correlation_id(frame) for frame in client.frames] == list(range(50))


def test_a_request_behind_a_waiting_one_waits_too(memory: InMemory) -> None:
    memory.broker.metadata.create_topic("t", memory.broker.ids.new_topic_id(), 1)
    client = memory.client()
    client.transport.write(encode_request(fetch_request("t", max_wait_ms=500), 12, 1, None))
    client.send(NOTHING, correlation_id=2)
    memory.settle()
    assert client.frames == []
    memory.loop.run_until(lambda: len(client.frames) == 2, 1.0)
    assert [read_correlation_id(frame) for frame in client.frames] == [1, 2]
    assert memory.loop.time() == pytest.approx(0.5)


def test_nobody_waits_for_more_than_one_slow_request_however_many_send_them(
    memory: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five connections send ahead what takes 50 ms each; another asks for what takes no time, again and again."""
    handle = memory.broker.handle
    slow = [memory.client() for _ in range(5)]
    honest = memory.client()
    for client in (*slow, honest):
        client.send(NOTHING)
    memory.settle()
    handled: list[int] = []

    def handled_slowly(connection: ConnectionContext, received: Any, now: float) -> PendingResponse:
        handled.append(received.correlation_id)
        if received.correlation_id < 100:
            clock.advance(EXPENSIVE_S * 2.5)
        return handle(connection, received, now)

    clock = memory.loop.clock
    assert isinstance(clock, ManualClock)
    monkeypatch.setattr(memory.broker, "handle", handled_slowly)
    for number, client in enumerate(slow):
        for _ in range(8):
            client.send(NOTHING, correlation_id=number)
    while len(handled) < 5:  # each is found to be slow
        memory.loop.run_once(0)
    asked = 0
    while sum(number < 100 for number in handled) < 40:
        if len(honest.frames) == 1 + asked:
            asked += 1
            honest.send(NOTHING, correlation_id=100 + asked)
        memory.loop.run_once(0)
    memory.settle()
    runs = "".join("s" if number < 100 else "h" for number in handled[5:]).split("h")
    assert max(map(len, runs)) <= 3
    assert asked > 10
    assert [len(client.frames) for client in slow] == [9] * 5


def test_one_large_request_is_handled_in_a_turn_for_all_clients(
    memory: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those of connections that have sent nothing before."""
    handle = memory.broker.handle
    turns: list[int] = []
    turn = 0

    def noted(connection: ConnectionContext, received: Any, now: float) -> PendingResponse:
        turns.append(turn)
        return handle(connection, received, now)

    monkeypatch.setattr(memory.broker, "handle", noted)
    names = [MetadataRequest.MetadataRequestTopic(name=f"{number:0>200}") for number in range(500)]
    large = MetadataRequest(topics=names, allow_auto_topic_creation=False)
    clients = [memory.client() for _ in range(4)]
    for client in clients:
        client.send(large)
    while memory.loop.run_once(0):
        turn += 1
    assert len(turns) == len(set(turns)) == 4
    assert [len(client.frames) for client in clients] == [1] * 4


def test_two_connections_do_not_wait_for_each_other(memory: InMemory) -> None:
    memory.broker.metadata.create_topic("t", memory.broker.ids.new_topic_id(), 1)
    waiting, other = memory.client(), memory.client()
    waiting.transport.write(encode_request(fetch_request("t", max_wait_ms=500), 12, 1, None))
    other.send(NOTHING)
    memory.settle()
    assert (len(waiting.frames), len(other.frames)) == (0, 1)
    other.transport.write(encode_request(produce_request("t", batch(b"a")), 9, 2, None))
    memory.settle()
    assert (len(waiting.frames), len(other.frames)) == (1, 2)
    assert memory.loop.time() == 0.0


@pytest.mark.parametrize(
    "junk", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x00\x00\x00\x02\x00\x03", b"GET / HTTP/1.1\r\n"]
)
def test_bytes_that_are_no_requests_end_the_connection_and_nothing_else(memory: InMemory, junk: bytes) -> None:
    bad, good = memory.client(), memory.client()
    bad.send(NOTHING, correlation_id=7)
    bad.transport.write(junk)
    memory.settle()
    assert [read_correlation_id(frame) for frame in bad.frames] == [7], "what came before is answered"
    assert bad.is_closed
    good.send(NOTHING)
    memory.settle()
    assert len(good.frames) == 1


def test_a_request_above_the_limit_ends_the_connection(tmp_path: Path) -> None:
    memory = InMemory(tmp_path / "data", {"socket.request.max.bytes": "100"})
    client = memory.client()
    client.transport.write((101).to_bytes(4, "big"))
    memory.settle()
    assert client.is_closed
    memory.server.close()
    memory.broker.close()


def test_a_lost_connection_is_reported_to_the_broker_at_once(memory: InMemory) -> None:
    memory.broker.metadata.create_topic("t", memory.broker.ids.new_topic_id(), 1)
    client = memory.client()
    client.transport.write(encode_request(fetch_request("t", max_wait_ms=60_000), 12, 1, None))
    memory.settle()
    assert len(memory.broker.purgatory) == 1
    client.transport.abort()
    memory.settle()
    assert len(memory.broker.purgatory) == 0
    assert memory.loop.time() == 0.0


def test_a_peer_that_takes_no_answers_is_not_served_any_further(memory: InMemory) -> None:
    for number in range(2000):
        memory.broker.metadata.create_topic("x" * 200 + str(number), memory.broker.ids.new_topic_id(), 1)
    client = memory.client()
    memory.settle()
    client.transport.pause_reading()
    for number in range(60):
        client.send(MetadataRequest(topics=None), correlation_id=number)
    memory.settle()
    (session,) = memory.server._sessions
    assert MAX_PENDING_BYTES <= session.transport.pending_bytes < MAX_PENDING_BYTES + (2 << 20)
    client.transport.resume_reading()
    memory.settle()
    assert [read_correlation_id(frame) for frame in client.frames] == list(range(60))


def test_the_server_knows_when_it_is_idle(memory: InMemory) -> None:
    first, second = memory.client(), memory.client()
    memory.settle()
    memory.loop.run_once(3.0)
    first.transport.close()
    memory.settle()
    assert memory.idle == [None]
    memory.loop.run_once(3.0)
    second.transport.close()
    memory.settle()
    assert memory.idle == [None, pytest.approx(6.0)]


def test_closing_the_server_ends_its_connections(memory: InMemory) -> None:
    client = memory.client()
    client.send(NOTHING)
    memory.settle()
    memory.server.close()
    memory.settle()
    assert client.is_closed
    assert decode_response(MetadataResponse, 12, client.frames[0]).controller_id == 1


# -- over sockets ----------------------------------------------------------------------------------------------------


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningBroker]:
    broker = RunningBroker(BrokerOptions(str(tmp_path / "data"), fsync="never"))
    thread = threading.Thread(target=broker.run)
    thread.start()
    yield broker
    broker.stop()
    thread.join(30)


def make_topic(client: RawClient, name: str) -> None:
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    assert client.ask(CreateTopicsRequest(topics=[topic])).topics[0].error_code == 0


def test_records_go_in_and_come_out_over_sockets(running: RunningBroker) -> None:
    with RawClient(running.state.port) as client:
        broker = client.ask(NOTHING).brokers[0]
        assert (broker.host, broker.port) == ("127.0.0.1", running.state.port)
        make_topic(client, "t")
        for _ in range(3):
            client.send(produce_request("t", batch(b"x" * 100_000)), 9)
        for _ in range(3):
            assert client.receive(produce_request("t", b""), 9).responses[0].partition_responses[0].error_code == 0
        answer = client.ask(fetch_request("t", partition_max_bytes=1 << 20), 12)
        assert [len(value or b"") for value in values(fetched(answer)[0].records)] == [100_000] * 3


def test_a_waiting_fetch_is_woken_over_sockets(running: RunningBroker) -> None:
    with RawClient(running.state.port) as reader, RawClient(running.state.port) as writer:
        make_topic(writer, "t")
        request = fetch_request("t", max_wait_ms=19_000)
        reader.send(request, 12)
        writer.ask(produce_request("t", batch(b"a")), 9)
        assert values(fetched(reader.receive(request, 12))[0].records) == [b"a"]


def test_an_unknown_version_hangs_up_and_an_api_versions_gets_its_answer(running: RunningBroker) -> None:
    with RawClient(running.state.port) as client:
        header = b"\x00\x12\x00\x63\x00\x00\x00\x07\xff\xff"
        client.socket.sendall(len(header).to_bytes(4, "big") + header)
        assert client.receive(ApiVersionsRequest(), 4).error_code == 35
        client.send(fetch_request("t"), 3)
        with pytest.raises(EOFError):
            client.receive(fetch_request("t"), 3)


def test_a_port_in_use_is_an_error_of_the_start_and_leaves_the_directory_free(
    running: RunningBroker, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    with pytest.raises(ListenError, match="in use"):
        RunningBroker(BrokerOptions(str(other), port=running.state.port))
    Broker(str(other)).close()


@pytest.mark.parametrize("port", [-1, 65536, 70000])
def test_a_port_that_is_none_is_an_error_of_the_start(tmp_path: Path, port: int) -> None:
    """The system's own functions take the lower 16 bits of it."""
    with pytest.raises(KafkaConfigurationError, match=f"from 0 to 65535, not {port}"):
        RunningBroker(BrokerOptions(str(tmp_path / "data"), port=port))
    Broker(str(tmp_path / "data")).close()


def test_an_idle_broker_for_whose_lock_no_descriptor_is_left_ends_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory is there all the same, and whoever asks for the broker meanwhile gets it."""
    lock = process.starter_lock
    codes = [errno.EMFILE, errno.ENFILE]

    def scarce(data_dir: str, timeout_s: float) -> contextlib.AbstractContextManager[bool]:
        if codes:
            raise OSError(codes[0], os.strerror(codes.pop(0)))
        return lock(data_dir, timeout_s)

    monkeypatch.setattr(process, "starter_lock", scarce)
    RunningBroker(BrokerOptions(str(tmp_path / "data"), exit_when_idle_s=0.01)).run()
    assert codes == []


def test_handlers_that_could_not_be_imported_are_imported_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = RunningBroker(BrokerOptions(str(tmp_path / "data")))
    rounds: list[int] = []

    def modules() -> Iterator[str]:
        rounds.append(0)
        if len(rounds) == 1:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        yield "metadata"
        broker.stop()

    monkeypatch.setattr(process, "_LOAD_AFTER_S", 0.0)
    monkeypatch.setattr(process.registry, "load_by_module", modules)
    broker.run()
    assert len(rounds) == 2


def test_a_thousand_connections_are_served(running: RunningBroker) -> None:
    clients = []
    try:
        for _ in range(1000):
            client = socket.create_connection(("127.0.0.1", running.state.port))
            client.sendall(b"".join(encode_request(NOTHING, 12, 1, None)))
            clients.append(client)
        assert all(client.recv(4) for client in clients)
    finally:
        for client in clients:
            client.close()


def test_a_start_that_cannot_write_its_address_names_the_file_and_leaves_the_directory_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker for those who look there is of no use without; any other one goes on (``test_state_file.py``)."""
    with monkeypatch.context() as patch:
        patch.setattr(process, "write_state", full_disk)
        with pytest.raises(KafkaStorageError, match="broker.json: No space left"):
            RunningBroker(BrokerOptions(str(tmp_path / "data"), exit_when_idle_s=10.0))
    Broker(str(tmp_path / "data")).close()


def test_a_peer_that_sends_thousands_ahead_does_not_keep_the_others_waiting(memory: InMemory) -> None:
    greedy, other = memory.client(), memory.client()
    memory.settle()
    for number in range(3000):
        greedy.send(NOTHING, correlation_id=number)
    other.send(NOTHING)
    while not other.frames:
        assert memory.loop.run_once(0)
    assert len(greedy.frames) < 1000
    memory.settle()
    assert [read_correlation_id(frame) for frame in greedy.frames] == list(range(3000))


def test_an_answer_that_cannot_be_put_into_bytes_ends_its_connection_alone(
    memory: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.broker.metadata.create_topic("t", memory.broker.ids.new_topic_id(), 1)
    waiting, other = memory.client(), memory.client()
    waiting.transport.write(encode_request(fetch_request("t", max_wait_ms=500), 12, 1, None))
    memory.settle()
    other.transport.write(encode_request(fetch_request("t", max_wait_ms=500), 12, 1, None))
    memory.settle()
    first = min(memory.server._sessions, key=lambda session: session.connection.number)
    monkeypatch.setattr(first._machine.__class__, "answer", failing_answer(first._machine))
    memory.loop.run_until(lambda: bool(other.frames), 2.0)
    assert waiting.is_closed
    assert not other.is_closed
