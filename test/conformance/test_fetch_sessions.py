"""Fetch over a bare socket: sessions, epochs, limits, waiting, errors; answers as measured on Apache Kafka 4.3.0."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID

import pytest

from kafka.protocol.fetch import FetchRequest, FetchResponse
from kafka.protocol.list_offsets import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.offsets import OffsetForLeaderEpochRequest
from kafka.protocol.topics import CreateTopicsRequest, DeleteRecordsRequest, DeleteTopicsRequest
from kafka.wire.types import ZERO_UUID
from test.broker.driver import batch, plain, produce_request
from test.broker.raw_client import RawClient
from test.conformance.readiness import produce_to_leader
from test.support.waiting import eventually, look_until

NewTopicFixture = Callable[..., str]
UNKNOWN = "no-such-topic"
UNKNOWN_ID = UUID(int=77)
WAIT_S = 0.3
LONG_WAIT_S = 30.0
"""So long a fetch may be held that is to be answered at once: however slow the machine is, it shows."""
VERSIONS = (12, 17)

Asked = tuple[str, int, int]
"""Topic, partition, offset."""


class Reader:
    """Fetches over one connection; topics by name, with ids from Metadata."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.client = RawClient(port)
        self.ids: dict[str, UUID] = {UNKNOWN: UNKNOWN_ID}
        self.version = 17

    def learn(self, name: str) -> None:
        """Ask for a topic until it is there."""
        topic_request = MetadataRequest.MetadataRequestTopic(name=name)
        request = MetadataRequest(topics=[topic_request], allow_auto_topic_creation=False)
        topic = look_until(
            lambda: self.client.ask(request).topics[0],
            lambda found: found.error_code == 0 and all(one.leader_id >= 0 for one in found.partitions),
        )
        self.ids[name] = topic.topic_id

    def produce(self, name: str, partition: int = 0, size: int = 1) -> None:
        data = batch(b"x" * size, timestamp=int(time.time() * 1000))
        produce_to_leader(self.client, produce_request(name, data, partition))

    def fetch(
        self,
        asked: Sequence[Asked] = (),
        session: tuple[int, int] = (0, -1),
        *,
        forget: Sequence[tuple[str, int]] = (),
        waits: bool | None = None,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        partition_max_bytes: int = 1 << 20,
        isolation_level: int = 0,
        leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
    ) -> FetchResponse:
        """``waits``: whether the broker is to hold the fetch for as long as it may, or to answer it at once. None: it
        may not hold it."""
        wait_s = 0.0 if waits is None else WAIT_S if waits else LONG_WAIT_S
        request = FetchRequest(
            max_wait_ms=int(wait_s * 1000),
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation_level,
            session_id=session[0],
            session_epoch=session[1],
            topics=[
                FetchRequest.FetchTopic(
                    topic=name,
                    topic_id=self.ids[name],
                    partitions=[
                        FetchRequest.FetchPartition(
                            partition=number,
                            current_leader_epoch=leader_epoch,
                            fetch_offset=offset,
                            last_fetched_epoch=last_fetched_epoch,
                            partition_max_bytes=partition_max_bytes,
                        )
                    ],
                )
                for name, number, offset in asked
            ],
            forgotten_topics_data=[
                FetchRequest.ForgottenTopic(topic=name, topic_id=self.ids[name], partitions=[number])
                for name, number in forget
            ],
        )
        began = time.monotonic()
        answer = self.client.ask(request, self.version)
        if waits is not None:
            assert (time.monotonic() - began >= wait_s) is waits
        return answer


def error_codes(answer: FetchResponse) -> list[tuple[int, int]]:
    """Partition and error code, in the answer's order."""
    return [(data.partition_index, data.error_code) for topic in answer.responses for data in topic.partitions]


def with_records(answer: FetchResponse) -> list[int]:
    """Partitions that gave records."""
    return [data.partition_index for topic in answer.responses for data in topic.partitions if plain(data.records)]


@pytest.fixture(params=VERSIONS)
def reader(request: pytest.FixtureRequest, bootstrap: str) -> Iterator[Reader]:
    found = Reader(int(bootstrap.rpartition(":")[2]))
    found.version = request.param
    yield found
    found.client.close()


@pytest.fixture
def topic(reader: Reader, new_topic: NewTopicFixture) -> str:
    """A topic of three partitions, with a record in each."""
    name = new_topic(3)
    reader.learn(name)
    for number in range(3):
        reader.produce(name, number)
    return name


def test_a_session_returns_what_is_new(reader: Reader, topic: str) -> None:
    full = reader.fetch([(topic, number, 0) for number in range(3)], (0, 0))
    session = full.session_id
    assert (full.error_code, session > 0, error_codes(full)) == (0, True, [(0, 0), (1, 0), (2, 0)])
    assert error_codes(reader.fetch([], (session, 1))) == [(0, 0), (1, 0), (2, 0)], "there are records at its offsets"
    silent = reader.fetch([(topic, number, 1) for number in range(3)], (session, 2), waits=True)
    assert (silent.session_id, error_codes(silent)) == (session, [])
    reader.produce(topic, 1)
    assert error_codes(reader.fetch([], (session, 3), waits=False)) == [(1, 0)]
    assert error_codes(reader.fetch([(topic, 1, 2)], (session, 4), forget=[(topic, 0)])) == []
    reader.produce(topic, 0)
    assert error_codes(reader.fetch([], (session, 5))) == []
    assert error_codes(reader.fetch([(topic, 0, 2)], (session, 6))) == [(0, 0)], "it is new again"


@pytest.mark.parametrize("epoch", [0, 2, 99])
def test_a_wrong_epoch_counts_for_nothing(reader: Reader, topic: str, epoch: int) -> None:
    session = reader.fetch([(topic, 0, 1)], (0, 0)).session_id
    assert reader.fetch([], (session, 1)).error_code == 0
    if epoch:
        wrong = reader.fetch([], (session, epoch if epoch != 2 else 1))
        assert (wrong.error_code, wrong.session_id, wrong.responses) == (71, 0, [])
        assert reader.fetch([], (session, 2)).error_code == 0
    else:
        again = reader.fetch([(topic, 0, 1)], (session, 0))
        assert (again.error_code, again.session_id not in (0, session)) == (0, True)
        assert reader.fetch([], (session, 2)).error_code == 70


@pytest.mark.parametrize("session", [(0, 5), (0, -2), (-5, 7), (12345, 1)])
def test_a_session_that_is_not_there(reader: Reader, topic: str, session: tuple[int, int]) -> None:
    answer = reader.fetch([(topic, 0, 0)], session)
    assert (answer.error_code, answer.session_id, answer.responses) == (70, 0, [])


def test_the_last_epoch_ends_a_session_and_gives_none(reader: Reader, topic: str) -> None:
    session = reader.fetch([(topic, 0, 1)], (0, 0)).session_id
    last = reader.fetch([(topic, 0, 0)], (session, -1))
    assert (last.error_code, last.session_id, with_records(last)) == (0, 0, [0])
    assert reader.fetch([], (session, 1)).error_code == 70


def test_a_session_ends_with_its_last_partition(reader: Reader, topic: str) -> None:
    session = reader.fetch([(topic, 0, 1)], (0, 0)).session_id
    assert reader.fetch([], (session, 1), forget=[(topic, 0)]).session_id == 0
    assert reader.fetch([], (session, 2)).error_code == 70
    empty = reader.fetch([], (0, 0), waits=False)
    assert (empty.error_code, empty.session_id > 0) == (0, True)


def test_names_and_ids_do_not_mix(reader: Reader, topic: str) -> None:
    session = reader.fetch([(topic, 0, 1)], (0, 0)).session_id
    own = reader.version
    reader.version = sum(VERSIONS) - own
    assert reader.fetch([], (session, 1)).error_code == 106
    reader.version = own
    assert reader.fetch([], (session, 1)).error_code == 0


def test_a_session_goes_on_over_another_connection(reader: Reader, topic: str) -> None:
    session = reader.fetch([(topic, 0, 1)], (0, 0)).session_id
    reader.client.close()
    reader.client = RawClient(reader.port)
    assert reader.fetch([], (session, 1)).error_code == 0


def test_errors_are_reported_every_time_and_their_end_once(reader: Reader, topic: str) -> None:
    session = reader.fetch([(topic, 0, 1)], (0, 0)).session_id
    assert error_codes(reader.fetch([(topic, 0, 99)], (session, 1), waits=False)) == [(0, 1)]
    assert error_codes(reader.fetch([], (session, 2), waits=False)) == [(0, 1)]
    assert error_codes(reader.fetch([(topic, 0, 1)], (session, 3))) == [(0, 0)]
    assert error_codes(reader.fetch([], (session, 4))) == []
    unknown = 3 if reader.version < 13 else 100
    held_for_the_other = reader.fetch([(UNKNOWN, 5, 0)], (session, 5), waits=True)
    assert error_codes(held_for_the_other) == [(5, unknown)]
    assert error_codes(reader.fetch([], (session, 6))) == [(5, unknown)]


def test_partitions_take_turns(reader: Reader, topic: str) -> None:
    for number in range(3):
        for _ in range(3):
            reader.produce(topic, number, size=300)
    full = reader.fetch([(topic, number, 1) for number in range(3)], (0, 0), max_bytes=1)
    got = with_records(full)
    for epoch in range(1, 6):
        got += with_records(reader.fetch([], (full.session_id, epoch), max_bytes=1))
    assert got == [0, 0, 1, 2, 0, 1]


def test_a_log_start_that_moves_is_reported(reader: Reader, topic: str) -> None:
    session = reader.fetch([(topic, 0, 1)], (0, 0)).session_id
    partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=1)
    topic_request = DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[partition])
    deleted = reader.client.ask(DeleteRecordsRequest(topics=[topic_request], timeout_ms=10_000)).topics[0].partitions[0]
    assert (deleted.error_code, deleted.low_watermark) == (0, 1)
    (found,) = reader.fetch([], (session, 1)).responses[0].partitions
    assert (found.log_start_offset, found.high_watermark) == (1, 1)


def test_a_topic_that_is_made_anew(reader: Reader, new_topic: NewTopicFixture) -> None:
    name = new_topic(1)
    reader.learn(name)
    reader.produce(name)
    session = reader.fetch([(name, 0, 1)], (0, 0)).session_id
    state = DeleteTopicsRequest.DeleteTopicState(name=name)
    assert reader.client.ask(DeleteTopicsRequest(topics=[state], timeout_ms=10_000)).responses[0].error_code == 0
    epochs = itertools.count(1)
    eventually(lambda: error_codes(reader.fetch([], (session, next(epochs)))), [(0, 3)])  # after a moment
    made = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    assert reader.client.ask(CreateTopicsRequest(topics=[made], timeout_ms=10_000)).topics[0].error_code == 0
    reader.learn(name)
    code = 1 if reader.version < 13 else 103
    eventually(lambda: error_codes(reader.fetch([], (session, next(epochs)))), [(0, code)])


# -- without a session -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "size", "code", "waits"),
    [
        ({}, 69, 0, False),
        ({"max_bytes": 0}, 69, 0, False),
        ({"max_bytes": -1}, 0, -1, False),
        ({"partition_max_bytes": 0}, 69, 0, False),
        ({"partition_max_bytes": -1}, 0, -1, False),
        ({"min_bytes": 1000}, 69, 0, True),
        ({"min_bytes": 1000, "max_bytes": 20}, 69, 0, False),
        ({"leader_epoch": 0}, 69, 0, False),
        ({"leader_epoch": 5}, 0, 75, False),
        ({"leader_epoch": -5}, 69, 0, False),
        ({"last_fetched_epoch": 0}, 69, 0, False),
        ({"last_fetched_epoch": 5}, 0, 1, False),
        ({"isolation_level": 1}, 69, 0, False),
    ],
    ids=str,
)
def test_limits_and_epochs(
    reader: Reader, topic: str, options: dict[str, int], size: int, code: int, waits: bool
) -> None:
    more: Any = options
    (found,) = reader.fetch([(topic, 0, 0)], waits=waits, **more).responses[0].partitions
    assert (found.error_code, len(plain(found.records))) == (code, size)
    assert found.aborted_transactions == ([] if options.get("isolation_level") else None)


@pytest.mark.parametrize(("min_bytes", "waits"), [(1, True), (0, False), (-3, False)])
def test_at_the_end(reader: Reader, topic: str, min_bytes: int, waits: bool) -> None:
    assert with_records(reader.fetch([(topic, 0, 1)], waits=waits, min_bytes=min_bytes)) == []


@pytest.mark.parametrize("level", [2, -1])
def test_an_isolation_level_that_is_not_there(reader: Reader, topic: str, level: int) -> None:
    answer = reader.fetch([(topic, 0, 0)], isolation_level=level)
    assert (answer.error_code, error_codes(answer)) == (-1, [(0, -1)] if reader.version < 13 else [])


def test_what_is_unknown_waits_for_what_is_known_and_comes_last(reader: Reader, topic: str) -> None:
    unknown = 3 if reader.version < 13 else 100
    answer = reader.fetch([(UNKNOWN, 9, 0), (topic, 77, 0), (topic, 0, 1)], waits=True)
    assert error_codes(answer) == [(0, 0), (9, unknown), (77, 3)]
    assert error_codes(reader.fetch([(UNKNOWN, 9, 0)], waits=False)) == [(9, unknown)]
    out_of_range_at_once = reader.fetch([(topic, 0, 1), (topic, 1, 99)], waits=False)
    assert error_codes(out_of_range_at_once) == [(0, 0), (1, 1)]


# -- offsets ---------------------------------------------------------------------------------------------------------


def listed(
    reader: Reader, name: str, timestamp: int, version: int, *, isolation_level: int = 0, leader_epoch: int = -1
) -> tuple[int, int, int]:
    """Error code, offset, leader epoch."""
    partition_request = ListOffsetsRequest.ListOffsetsPartition(
        partition_index=0, timestamp=timestamp, current_leader_epoch=leader_epoch
    )
    topics = [ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=[partition_request])]
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics, timeout_ms=1000)
    found = reader.client.ask(request, version).topics[0].partitions[0]
    return found.error_code, found.offset, found.leader_epoch


@pytest.mark.parametrize(
    ("timestamp", "since", "offset"), [(-1, 1, 1), (-2, 1, 0), (-3, 7, 0), (-4, 8, 0), (-5, 9, -1), (-6, 11, -1)]
)
def test_special_times(reader: Reader, topic: str, timestamp: int, since: int, offset: int) -> None:
    for version in range(1, 12):
        epoch = 0 if version >= 4 and offset >= 0 else -1
        expected = (0, offset, epoch) if version >= since else (35, -1, -1)
        assert listed(reader, topic, timestamp, version) == expected


@pytest.mark.parametrize(
    ("name", "timestamp", "level", "epoch", "code"),
    [
        (None, -7, 0, -1, 35),
        (UNKNOWN, -7, 0, -1, 35),
        (UNKNOWN, -1, 0, -1, 3),
        (None, -1, 0, 9, 75),
        (None, -1, 0, -5, 74),
        (None, -1, 2, -1, -1),
        (None, -1, 1, -1, 0),
    ],
)
def test_offset_requests_that_are_errors(
    reader: Reader, topic: str, name: str | None, timestamp: int, level: int, epoch: int, code: int
) -> None:
    assert listed(reader, name or topic, timestamp, 11, isolation_level=level, leader_epoch=epoch)[0] == code


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize(
    ("name", "epoch", "current", "answer"),
    [
        (None, 0, -1, (0, 0, 1)),
        (None, 0, 0, (0, 0, 1)),
        (None, 1, -1, (0, -1, -1)),
        (None, -1, -1, (0, -1, -1)),
        (None, 0, 9, (75, -1, -1)),
        (None, 0, -5, (74, -1, -1)),
        (UNKNOWN, 0, -1, (3, -1, -1)),
    ],
)
def test_where_a_leader_epoch_ended(
    reader: Reader, topic: str, version: int, name: str | None, epoch: int, current: int, answer: tuple[int, int, int]
) -> None:
    E = OffsetForLeaderEpochRequest
    partition_request = E.OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
    request = E(topics=[E.OffsetForLeaderTopic(topic=name or topic, partitions=[partition_request])])
    found = reader.client.ask(request, version).topics[0].partitions[0]
    assert (found.error_code, found.leader_epoch, found.end_offset) == answer


# -- metadata --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "top", "code"), [(10, 0, 42), (12, 0, -1), (13, -1, -1)])
def test_a_topic_without_name_and_id(reader: Reader, version: int, top: int, code: int) -> None:
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=None, topic_id=ZERO_UUID)])
    answer = reader.client.ask(request, version)
    assert (answer.error_code, [found.error_code for found in answer.topics]) == (top, [code])
