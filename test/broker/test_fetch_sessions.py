"""Fetch sessions: what is told again and what is not, whose turn it is, and who has to go when they are too many."""

from __future__ import annotations

import random
from pathlib import Path
from uuid import UUID

import pytest

from kafka.broker import fetch_sessions
from kafka.broker.fetch_sessions import SHARDS, FetchSessions
from kafka.errors import FetchSessionIdNotFoundError
from kafka.protocol.fetch import FetchRequest, FetchResponse
from kafka.protocol.topics import CreateTopicsRequest, DeleteRecordsRequest, DeleteTopicsRequest
from kafka.wire.types import ZERO_UUID
from test.broker.driver import HandBroker, batch, plain, values

Partition = tuple[str, int]
BATCH = batch(b"x" * 100)
VERSIONS = (12, 18)


class SessionClient:
    """A client with one session, which counts its epochs; partitions by topic name, whatever the version."""

    def __init__(self, hand: HandBroker, version: int = 18) -> None:
        self.hand = hand
        self.version = version
        self.ids: dict[str, UUID] = {}
        self.session_id = 0
        self.epoch = 0

    def request(
        self,
        offsets: dict[Partition, int],
        *,
        forget: tuple[Partition, ...] = (),
        max_bytes: int = 1 << 20,
        max_wait_ms: int = 0,
        session: tuple[int, int] | None = None,
        isolation_level: int = 0,
        last_fetched_epoch: int = -1,
    ) -> FetchRequest:
        session_id, epoch = session if session is not None else (self.session_id, self.epoch)
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=isolation_level,
            session_id=session_id,
            session_epoch=epoch,
            topics=[
                FetchRequest.FetchTopic(
                    topic=name,
                    topic_id=self._id(name),
                    partitions=[
                        FetchRequest.FetchPartition(
                            partition=number,
                            fetch_offset=offset,
                            last_fetched_epoch=last_fetched_epoch,
                            partition_max_bytes=1 << 20,
                        )
                    ],
                )
                for (name, number), offset in offsets.items()
            ],
            forgotten_topics_data=[
                FetchRequest.ForgottenTopic(topic=name, topic_id=self._id(name), partitions=[number])
                for name, number in forget
            ],
        )

    def fetch(self, offsets: dict[Partition, int], **options: object) -> FetchResponse:
        """Ask, and go on in the session."""
        answer = self.hand.ask(self.request(offsets, **options), self.version)  # type: ignore[arg-type]
        self.take(answer)
        return answer

    def take(self, answer: FetchResponse) -> None:
        if answer.error_code == 0:
            self.session_id = answer.session_id
            self.epoch += 1

    def data_of(self, answer: FetchResponse) -> dict[Partition, FetchResponse.PartitionData]:
        """The answer's partitions, in its order."""
        names = {found: name for name, found in self.ids.items()}
        return {
            (topic.topic or names.get(topic.topic_id, "?"), data.partition_index): data
            for topic in answer.responses
            for data in topic.partitions
        }

    def _id(self, name: str) -> UUID:
        if name not in self.ids:
            topic = self.hand.broker.metadata.topic(name)
            self.ids[name] = topic.topic_id if topic is not None else UUID(int=len(self.ids) + 1)
        return self.ids[name] if self.version >= 13 else ZERO_UUID


@pytest.fixture(params=VERSIONS)
def client(request: pytest.FixtureRequest, hand: HandBroker) -> SessionClient:
    hand.create_topic("a", 3)
    hand.create_topic("b")
    return SessionClient(hand, request.param)


def test_only_what_is_new_is_reported_again(hand: HandBroker, client: SessionClient) -> None:
    hand.produce("a", BATCH, 1)
    first = client.fetch({("a", 0): 0, ("a", 1): 0, ("b", 0): 0})
    assert first.session_id > 0
    assert list(client.data_of(first)) == [("a", 0), ("a", 1), ("b", 0)]
    assert client.data_of(client.fetch({("a", 1): 1})) == {}
    hand.produce("b", BATCH)
    second = client.data_of(client.fetch({}))
    assert [(name, values(data.records)) for name, data in second.items()] == [(("b", 0), [b"x" * 100])]
    assert list(client.data_of(client.fetch({}))) == [("b", 0)], "its records are told until they are asked for no more"
    assert client.data_of(client.fetch({("b", 0): 1})) == {}


def test_a_partition_that_is_added_is_reported_once_and_a_forgotten_one_no_more(
    hand: HandBroker, client: SessionClient
) -> None:
    client.fetch({("a", 0): 0})
    assert list(client.data_of(client.fetch({("a", 1): 0}))) == [("a", 1)]
    assert client.data_of(client.fetch({}, forget=(("a", 0), ("a", 77), ("nope", 0)))) == {}
    hand.produce("a", BATCH, 0)
    assert client.data_of(client.fetch({})) == {}


def test_a_log_start_that_moves_is_reported(hand: HandBroker, client: SessionClient) -> None:
    hand.produce("a", BATCH)
    hand.produce("a", BATCH)
    client.fetch({("a", 0): 2})
    partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=1)
    topic = DeleteRecordsRequest.DeleteRecordsTopic(name="a", partitions=[partition])
    hand.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=0))
    assert [data.log_start_offset for data in client.data_of(client.fetch({})).values()] == [1]
    assert client.data_of(client.fetch({})) == {}


def test_an_error_is_reported_every_time_and_its_end_once(client: SessionClient) -> None:
    client.fetch({("a", 0): 0})
    for offsets in ({("a", 0): 9}, {}):
        assert [data.error_code for data in client.data_of(client.fetch(offsets)).values()] == [1]
    assert [data.error_code for data in client.data_of(client.fetch({("a", 0): 0})).values()] == [0]
    assert client.data_of(client.fetch({})) == {}


def test_a_topic_that_is_created_later_is_reported(hand: HandBroker) -> None:
    hand.create_topic("a")
    client = SessionClient(hand, 12)
    assert [data.error_code for data in client.data_of(client.fetch({("a", 0): 0, ("c", 0): 0})).values()] == [0, 3]
    hand.create_topic("c")
    assert [(name, data.error_code) for name, data in client.data_of(client.fetch({})).items()] == [(("c", 0), 0)]


@pytest.mark.parametrize(("version", "again"), [(12, 1), (18, 103)])
def test_a_topic_that_is_deleted_is_3_and_made_anew_another_one(hand: HandBroker, version: int, again: int) -> None:
    hand.create_topic("a")
    hand.produce("a", BATCH)
    client = SessionClient(hand, version)
    client.fetch({("a", 0): 1})
    gone = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="a")], timeout_ms=0)
    hand.ask(gone)
    assert [data.error_code for data in client.data_of(client.fetch({})).values()] == [3]
    hand.create_topic("a")
    assert [data.error_code for data in client.data_of(client.fetch({})).values()] == [again]


def test_each_partition_has_its_turn_when_bytes_are_short(hand: HandBroker, client: SessionClient) -> None:
    for number in range(3):
        for _ in range(3):
            hand.produce("a", BATCH, number)
    offsets = {("a", number): 0 for number in range(3)}
    got = [name for name, data in client.data_of(client.fetch(offsets, max_bytes=1)).items() if plain(data.records)]
    for _ in range(5):
        got += client.data_of(client.fetch({}, max_bytes=1))
    assert got == [("a", 0), ("a", 0), ("a", 1), ("a", 2), ("a", 0), ("a", 1)]


def test_a_session_is_its_ids_and_not_its_connections(hand: HandBroker, client: SessionClient) -> None:
    client.fetch({("a", 0): 0})
    hand.broker.disconnected(hand.connection, hand.now)
    assert client.fetch({}).error_code == 0


@pytest.mark.parametrize(
    ("session", "code"),
    [((0, 5), 70), ((0, -2), 70), ((55, 3), 70), ((-5, 7), 70), ((None, 1), 0), ((None, 2), 71), ((None, 0), 0)],
)
def test_epochs_are_counted(client: SessionClient, session: tuple[int | None, int], code: int) -> None:
    client.fetch({("a", 0): 0})
    asked = (client.session_id if session[0] is None else session[0], session[1])
    answer = client.hand.ask(client.request({("a", 0): 0}, session=asked), client.version)
    assert answer.error_code == code
    if code:
        assert (answer.session_id, answer.responses) == (0, [])


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_fetch_ends_the_session_that_it_names(client: SessionClient, epoch: int) -> None:
    client.fetch({("a", 0): 0})
    old = client.session_id
    answer = client.hand.ask(client.request({("a", 0): 0}, session=(old, epoch)), client.version)
    assert answer.error_code == 0
    assert answer.session_id != old
    assert (answer.session_id > 0) is (epoch == 0)
    assert client.hand.ask(client.request({}, session=(old, 1)), client.version).error_code == 70


def test_a_session_that_is_left_without_partitions_ends(client: SessionClient) -> None:
    client.fetch({("a", 0): 0})
    assert client.fetch({}, forget=(("a", 0),)).session_id == 0
    assert len(client.hand.broker.fetch_sessions) == 0


@pytest.mark.parametrize(("first", "second"), [(12, 13), (13, 12)])
def test_names_and_ids_do_not_mix_in_a_session(hand: HandBroker, first: int, second: int) -> None:
    hand.create_topic("a")
    client = SessionClient(hand, first)
    client.fetch({("a", 0): 0})
    client.version = second
    assert client.fetch({}).error_code == 106
    client.version = first
    assert client.fetch({}).error_code == 0, "that fetch has not counted"


def test_a_fetch_that_another_one_overtakes_is_an_error(hand: HandBroker, client: SessionClient) -> None:
    client.fetch({("a", 0): 0})
    request = client.request({}, max_wait_ms=500)
    waiting = hand.send(request, client.version)
    client.epoch += 1
    client.fetch({})
    hand.advance(0.5)
    answer = hand.answer(request, waiting, client.version)
    assert (answer.error_code, answer.session_id, answer.responses) == (71, client.session_id, [])


def test_a_waiting_fetch_of_a_session_is_woken_by_any_of_its_partitions(
    hand: HandBroker, client: SessionClient
) -> None:
    client.fetch({("a", 0): 0, ("a", 1): 0})
    request = client.request({("b", 0): 0}, max_wait_ms=500)
    waiting = hand.send(request, client.version)
    hand.tick()
    assert not waiting.done
    hand.produce("a", BATCH, 1)
    assert waiting.done
    woken = client.data_of(hand.answer(request, waiting, client.version))
    assert [(name, len(values(data.records))) for name, data in woken.items()] == [(("a", 1), 1), (("b", 0), 0)]


def test_of_a_partition_that_is_named_twice_the_last_word_counts(hand: HandBroker, client: SessionClient) -> None:
    hand.produce("a", BATCH)
    request = client.request({("a", 0): 0})
    twice = FetchRequest.FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=99)
    request.topics[0].partitions.append(twice)
    (data,) = client.data_of(hand.ask(request, client.version)).values()
    assert (data.error_code, plain(data.records)) == (0, b"")


# -- how many there may be -------------------------------------------------------------------------------------------


class Cache:
    """Sessions of a cache with ``slots`` for each shard, by the number of their partitions."""

    def __init__(self, slots: int = 1, max_partitions: int = 1000) -> None:
        self.sessions = FetchSessions(slots * SHARDS, random.Random(3), max_partitions)

    def full(self, size: int, now: float) -> int:
        """A full fetch; its session's id."""
        context = self.sessions.begin(request_of(size, 0, 0), 12, now)
        rows = [(wanted, partition_response(wanted.number)) for wanted in context.wanted]
        return context.finish(rows, now)[0]

    def each_shard(self, size: int, now: float) -> list[int]:
        return [self.full(size, now) for _ in range(SHARDS)]

    def use(self, session_id: int, epoch: int, now: float, size: int = 0) -> None:
        self.sessions.begin(request_of(size, session_id, epoch), 12, now)


def request_of(size: int, session_id: int, epoch: int) -> FetchRequest:
    partitions = [
        FetchRequest.FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1) for number in range(size)
    ]
    topic = FetchRequest.FetchTopic(topic="t", partitions=partitions)
    return FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic], session_id=session_id, session_epoch=epoch)


def partition_response(number: int) -> FetchResponse.PartitionData:
    return FetchResponse.PartitionData(partition_index=number, error_code=0, high_watermark=0, records=b"")


def test_a_full_cache_gives_no_sessions_and_what_is_closed_makes_room_in_its_shard() -> None:
    cache = Cache()
    ids = cache.each_shard(1, 0.0)
    assert 0 not in ids
    assert cache.each_shard(9, 0.0) == [0] * SHARDS
    cache.use(ids[3], -1, 0.0)
    again = cache.each_shard(1, 0.0)
    assert [session_id > 0 for session_id in again] == [number == 3 for number in range(SHARDS)]
    assert again[3] != ids[3]


def test_a_session_that_nobody_used_for_two_minutes_gives_way() -> None:
    cache = Cache()
    ids = cache.each_shard(5, 0.0)
    cache.use(ids[1], 1, 100.0)
    assert cache.each_shard(1, 120.0) == [0] * SHARDS
    assert [found > 0 for found in cache.each_shard(1, 120.1)] == [number != 1 for number in range(SHARDS)]


def test_an_old_session_gives_way_to_a_larger_one_and_a_young_one_does_not() -> None:
    cache = Cache()
    ids = cache.each_shard(5, 0.0)
    for session_id in ids:
        cache.use(session_id, 1, 100.0)
    assert cache.each_shard(9, 120.2) == [0] * SHARDS, "they were young when they were used last"
    for session_id in ids:
        cache.use(session_id, 2, 121.0)
    assert cache.each_shard(5, 121.0) == [0] * SHARDS, "no larger than they"
    assert 0 not in cache.each_shard(6, 121.0)


def test_fewer_slots_than_shards_are_none() -> None:
    assert FetchSessions(7, random.Random(1)).create({}, False, 0.0) == 0


def test_all_sessions_together_hold_a_bounded_number_of_partitions() -> None:
    cache = Cache(slots=10, max_partitions=100)
    first = cache.full(60, 0.0)
    assert first > 0
    assert cache.full(41, 0.0) == 0
    second = cache.full(40, 0.0)
    assert cache.sessions.partition_count == 100
    with pytest.raises(FetchSessionIdNotFoundError):
        cache.use(second, 1, 0.0, size=41)
    assert cache.sessions.partition_count == 60


def test_no_session_remembers_a_name_that_no_topic_can_have(hand: HandBroker) -> None:
    hand.create_topic("a")
    client = SessionClient(hand, 12)
    assert client.fetch({("a", 0): 0, ("x" * 250, 0): 0}).session_id == 0
    client.epoch = 0
    client.fetch({("a", 0): 0})
    assert client.fetch({("x" * 250, 0): 0}).error_code == 70
    assert len(hand.broker.fetch_sessions) == 0


def test_epochs_begin_again_behind_the_greatest_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MAX_EPOCH", 2)
    cache = Cache()
    session_id = cache.full(1, 0.0)
    for epoch in (1, 2, 1, 2):
        cache.use(session_id, epoch, 0.0)


def test_a_restarted_broker_knows_no_sessions(tmp_path: Path) -> None:
    hand = HandBroker(tmp_path)
    topic = CreateTopicsRequest.CreatableTopic(
        name="a", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    hand.ask(CreateTopicsRequest(topics=[topic]))
    client = SessionClient(hand)
    client.fetch({("a", 0): 0})
    hand.restart()
    assert client.fetch({}).error_code == 70
    hand.broker.close()
