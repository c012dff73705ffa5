"""What slow and many peers can make the server hold: bounded bytes, bounded connections."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka.broker import server as server_module
from kafka.broker.server import MAX_PENDING_BYTES
from kafka.protocol.configs import IncrementalAlterConfigsRequest
from kafka.protocol.fetch import FetchResponse
from kafka.protocol.framing import decode_response, encode_request
from test.broker.driver import batch, fetch_request, fetched, values
from test.broker.test_server import NOTHING, InMemory, MemoryClient

SIZE = 500_000
COUNT = 40
ASKED = fetch_request("t", max_bytes=1 << 30, partition_max_bytes=1 << 30)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[InMemory]:
    """A topic with 20 MB of records."""
    found = InMemory(tmp_path / "data", {"max.connections.per.ip": "6"})
    found.broker.metadata.create_topic("t", found.broker.ids.new_topic_id(), 1)
    log = found.broker.logs.log(found.broker.topic("t"), 0)
    for _ in range(COUNT):
        log.append(batch(b"x" * SIZE), now_ms=0)
    yield found
    found.server.close()
    found.broker.close()


def slow(memory: InMemory, fetches: int) -> MemoryClient:
    """A client that asks for all records again and again and takes nothing."""
    client = memory.client()
    memory.settle()
    client.transport.pause_reading()
    for number in range(fetches):
        client.transport.write(encode_request(ASKED, 12, number, None))
    memory.settle()
    return client


def pending(memory: InMemory) -> int:
    return sum(session.transport.pending_bytes for session in memory.server._sessions)


def counts(client: MemoryClient) -> list[int]:
    """How many records each answer has."""
    answers = [decode_response(FetchResponse, 12, frame) for frame in client.frames]
    return [len(values(fetched(answer)[0].records)) for answer in answers]


def test_a_slow_reader_holds_one_answer_above_the_limit_and_gets_all_in_the_end(memory: InMemory) -> None:
    client = slow(memory, 10)
    assert pending(memory) < MAX_PENDING_BYTES + COUNT * (SIZE + 1000)
    client.transport.resume_reading()
    memory.settle()
    assert counts(client) == [COUNT] * 10
    assert pending(memory) == 0


def test_slow_readers_together_get_one_batch_at_a_time_when_much_is_pending(
    memory: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "MAX_ALL_PENDING_BYTES", 30_000_000)
    clients = [slow(memory, 1) for _ in range(5)]
    assert 30_000_000 - 2 * SIZE < pending(memory) < 30_000_000 + len(clients) * 2 * SIZE
    for client in clients:
        client.transport.resume_reading()
    memory.settle()
    whole, part, *rest = (counts(client)[0] for client in clients)
    assert (whole, 10 < part < COUNT, rest) == (COUNT, True, [1, 1, 1])
    assert pending(memory) == 0
    last = slow(memory, 1)
    last.transport.resume_reading()
    memory.settle()
    assert counts(last) == [COUNT], "those who left their answers do not count any more"


def test_a_slow_reader_that_leaves_takes_its_bytes_along(memory: InMemory) -> None:
    client = slow(memory, 1)
    assert memory.server.response_room() < server_module.MAX_ALL_PENDING_BYTES
    client.transport.abort()
    memory.settle()
    assert memory.server.response_room() == server_module.MAX_ALL_PENDING_BYTES


def test_connections_above_the_limit_of_an_address_are_ended(memory: InMemory) -> None:
    clients = [memory.client() for _ in range(7)]
    memory.settle()
    assert [client.is_closed for client in clients] == [False] * 6 + [True]
    clients[0].transport.close()
    memory.settle()
    again = memory.client()
    memory.settle()
    again.send(NOTHING)
    memory.settle()
    assert (again.is_closed, len(again.frames)) == (False, 1)


def limit_connections(memory: InMemory, client: MemoryClient, count: int) -> None:
    setting = IncrementalAlterConfigsRequest.AlterableConfig(
        name="max.connections", config_operation=0, value=str(count)
    )
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=4, resource_name="1", configs=[setting]
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    client.transport.write(encode_request(request, 1, 1, None))
    memory.settle()


def test_connections_above_the_limit_of_all_wait_for_a_place(memory: InMemory) -> None:
    clients = [memory.client() for _ in range(3)]
    memory.settle()
    limit_connections(memory, clients[0], 3)
    waiting = [memory.client() for _ in range(3)]
    for client in waiting:
        client.send(NOTHING)
    memory.settle()
    assert [(client.is_closed, len(client.frames)) for client in waiting] == [(False, 0)] * 3
    assert memory.server.connection_count == 3
    waiting[0].transport.close()
    clients[1].transport.close()
    memory.settle()
    assert [len(client.frames) for client in waiting] == [0, 1, 0], "the first one had gone"
    limit_connections(memory, clients[0], 4)
    assert len(waiting[2].frames) == 1


def test_more_connections_than_the_limit_of_open_files_allows_wait_whatever_the_settings_say(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    memory = InMemory(tmp_path / "few", {"max.connections": "1000"}, max_connections=2)
    clients = [memory.client() for _ in range(5)]
    for client in clients:
        client.send(NOTHING)
    memory.settle()
    assert [len(client.frames) for client in clients] == [1, 1, 0, 0, 0]
    clients[0].transport.close()
    memory.settle()
    assert [len(client.frames) for client in clients] == [1, 1, 1, 0, 0], "in the order in which they came"
    limit_connections(memory, clients[1], 1)
    clients[1].transport.close()
    memory.settle()
    assert (memory.server.connection_count, len(clients[3].frames)) == (1, 0), "a lower setting holds"
    assert caplog.text.count("new connections wait until others close") == 1
    assert "the limit of open files leaves for them (2) reached" in caplog.text
    memory.server.close()
    memory.broker.close()


def test_who_waits_is_ended_with_the_server(memory: InMemory) -> None:
    (client,) = [memory.client()]
    memory.settle()
    limit_connections(memory, client, 1)
    waiting = memory.client()
    memory.settle()
    memory.server.close()
    memory.settle()
    assert waiting.is_closed
