from __future__ import annotations

from math import inf
from typing import Any
from uuid import UUID

import pytest

from kafka.core.consume.fetcher import Fetcher, FindOffsets, RefreshMetadata, SendFetch
from kafka.core.consume.offsets import FoundOffset
from kafka.core.consume.positions import EARLIEST, LATEST
from kafka.errors import (
    IllegalStateError,
    KafkaConnectionError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
)
from kafka.protocol.fetch import FetchResponse
from kafka.structs import TopicPartition
from kafka.wire.types import ZERO_UUID
from test.core.consume.test_fetched import batch

TOPIC_ID = UUID(int=3)
A, B, C = (TopicPartition("t", number) for number in range(3))
OUT_OF_RANGE, NOT_LEADER, AUTHORIZATION = 1, 6, 29


class Rig:
    def __init__(self, *assigned: TopicPartition, topic_id: UUID = TOPIC_ID, **options: Any) -> None:
        self.leaders: dict[TopicPartition, int | None] = {A: 1, B: 1, C: 2}
        self.now = 0.0
        self.fetcher = Fetcher(leader_of=self.leaders.get, topic_id_of=lambda _: topic_id, **options)
        self.fetcher.assign(assigned)

    def poll(self) -> list[Any]:
        return list(self.fetcher.poll(self.now))

    def fetches(self) -> list[SendFetch]:
        return [effect for effect in self.poll() if isinstance(effect, SendFetch)]

    def fetch(self) -> SendFetch:
        (call,) = self.fetches()
        return call

    def answer(self, call: SendFetch, **by_partition: bytes | int) -> bool:
        """Records or an error code by partition ``p0``, ``p1``; nothing new for the others."""
        entries = []
        for partition in call.asked:
            given = by_partition.get(f"p{partition.partition}", b"")
            entries.append(
                FetchResponse.PartitionData(
                    partition_index=partition.partition,
                    error_code=given if isinstance(given, int) else 0,
                    high_watermark=100,
                    records=given if isinstance(given, bytes) else None,
                )
            )
        topic = FetchResponse.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=entries)
        return self.fetcher.fetched(call, FetchResponse(responses=[topic]), self.now)

    def read(self) -> list[bytes]:
        """Everything that is buffered, as the consumer reads it."""
        values = []
        while (position := self.fetcher.ready()) is not None:
            fetched = position.buffered[0]
            values += [record.value for record in fetched.read(1000, self.fetcher.options)]
            self.fetcher.after_read(position, fetched, position.generation)
        return values


def asked_offsets(call: SendFetch) -> dict[int, int]:
    return {p.partition: p.fetch_offset for topic in call.request.topics for p in topic.partitions}


def test_a_partition_without_a_position_is_looked_up_by_the_policy() -> None:
    for policy, timestamp in (("latest", LATEST), ("earliest", EARLIEST)):
        rig = Rig(A, reset_policy=policy)
        (effect,) = rig.poll()
        assert isinstance(effect, FindOffsets)
        assert effect.timestamps == {A: timestamp}
        assert rig.poll() == [], "it was asked already"
        rig.fetcher.offsets_found(effect, {A: FoundOffset(42, -1, -1)})
        assert asked_offsets(rig.fetch()) == {0: 42}


def test_without_a_policy_a_missing_position_is_an_error_for_the_reader() -> None:
    rig = Rig(A, reset_policy="none")
    assert rig.poll() == []
    position = rig.fetcher.ready()
    assert position is not None
    assert isinstance(position.error, NoOffsetForPartitionError)
    position.seek(5)
    assert asked_offsets(rig.fetch()) == {0: 5}


def seek_all(rig: Rig, offset: int = 0) -> None:
    for position in rig.fetcher.positions.values():
        position.seek(offset)


def test_one_fetch_goes_to_each_leader_with_all_its_partitions() -> None:
    rig = Rig(A, B, C)
    seek_all(rig)
    assert {call.node: sorted(asked_offsets(call)) for call in rig.fetches()} == {1: [0, 1], 2: [2]}
    assert rig.fetches() == [], "one in flight for each leader"


def test_the_next_fetch_goes_on_where_the_last_one_ended_before_anything_was_read() -> None:
    rig = Rig(A)
    seek_all(rig)
    assert rig.answer(rig.fetch(), p0=batch(0, b"a", b"b"))
    call = rig.fetch()
    assert asked_offsets(call) == {0: 2}
    rig.answer(call, p0=batch(2, b"c"))
    assert rig.read() == [b"a", b"b", b"c"]
    assert rig.fetcher.positions[A].position == 3


def test_reading_ahead_is_bounded_for_each_partition() -> None:
    rig = Rig(A, B, max_partition_bytes=100)
    seek_all(rig)
    rig.answer(rig.fetch(), p0=batch(0, b"x" * 100))
    call = rig.fetch()
    assert sorted(asked_offsets(call)) == [1], "partition 0 has enough"
    assert call.request.max_wait_ms == 50, "and may be wanted any moment"
    rig.read()
    rig.answer(call)
    assert sorted(asked_offsets(rig.fetch())) == [0, 1]


def test_reading_ahead_is_bounded_in_all() -> None:
    rig = Rig(A, C, max_bytes=150)
    seek_all(rig)
    calls = {call.node: call for call in rig.fetches()}
    rig.answer(calls[1], p0=batch(0, b"x" * 100))
    rig.answer(calls[2])
    assert rig.fetches() == []
    rig.read()
    assert len(rig.fetches()) == 2


def test_paused_partitions_are_not_asked_for_and_keep_what_they_have() -> None:
    rig = Rig(A)
    seek_all(rig)
    rig.answer(rig.fetch(), p0=batch(0, b"a"))
    rig.fetcher.positions[A].is_paused = True
    assert rig.fetches() == []
    assert rig.read() == []
    rig.fetcher.positions[A].is_paused = False
    assert rig.read() == [b"a"]


def test_an_answer_to_what_was_asked_before_a_seek_is_dropped() -> None:
    rig = Rig(A)
    seek_all(rig)
    call = rig.fetch()
    rig.fetcher.positions[A].seek(50)
    assert not rig.answer(call, p0=batch(0, b"a"))
    assert rig.read() == []
    assert asked_offsets(rig.fetch()) == {0: 50}


def test_an_offset_looked_up_before_a_seek_is_dropped() -> None:
    rig = Rig(A)
    (effect,) = rig.poll()
    rig.fetcher.positions[A].seek(7)
    rig.fetcher.offsets_found(effect, {A: FoundOffset(99, -1, -1)})
    assert rig.fetcher.positions[A].position == 7


def test_out_of_range_resets_by_the_policy() -> None:
    rig = Rig(A, reset_policy="earliest")
    seek_all(rig, 1000)
    rig.answer(rig.fetch(), p0=OUT_OF_RANGE)
    (effect,) = rig.poll()
    assert effect.timestamps == {A: EARLIEST}


def test_out_of_range_without_a_policy_is_an_error_that_names_partition_and_offset() -> None:
    rig = Rig(A, reset_policy="none")
    seek_all(rig, 1000)
    assert rig.answer(rig.fetch(), p0=OUT_OF_RANGE)
    error = rig.fetcher.positions[A].error
    assert isinstance(error, OffsetOutOfRangeError)
    assert "t-0 at offset 1000" in str(error)


def test_out_of_range_does_not_take_away_what_is_buffered() -> None:
    rig = Rig(A, reset_policy="earliest")
    seek_all(rig)
    rig.answer(rig.fetch(), p0=batch(0, b"a"))
    rig.answer(rig.fetch(), p0=OUT_OF_RANGE)
    assert rig.read() == [b"a"]


def test_a_moved_leader_is_looked_for_and_the_fetch_repeated_after_the_backoff() -> None:
    rig = Rig(A)
    seek_all(rig)
    rig.answer(rig.fetch(), p0=NOT_LEADER)
    assert rig.poll() == [RefreshMetadata(frozenset({"t"}))]
    assert rig.fetcher.next_deadline == pytest.approx(0.1)
    rig.leaders[A] = 2
    rig.now = 0.1
    assert rig.fetch().node == 2


def test_a_lost_connection_is_tried_again_after_the_backoff() -> None:
    rig = Rig(A)
    seek_all(rig)
    rig.fetcher.failed(rig.fetch(), KafkaConnectionError("gone"), 0.0)
    assert rig.fetches() == []
    rig.now = 0.2
    assert asked_offsets(rig.fetch()) == {0: 0}


def test_a_partition_without_a_leader_waits_for_metadata() -> None:
    rig = Rig(A)
    seek_all(rig)
    rig.leaders[A] = None
    assert rig.poll() == [RefreshMetadata(frozenset({"t"}))]
    assert rig.fetcher.next_deadline < inf


def test_an_error_that_will_not_go_away_is_the_readers() -> None:
    rig = Rig(A)
    seek_all(rig)
    assert rig.answer(rig.fetch(), p0=AUTHORIZATION)
    assert isinstance(rig.fetcher.positions[A].error, TopicAuthorizationFailedError)


def test_topics_without_an_id_are_asked_for_by_name() -> None:
    rig = Rig(A, topic_id=ZERO_UUID)
    seek_all(rig)
    assert rig.fetch().max_version == 12


def test_a_node_that_throttles_is_asked_when_it_is_free_again() -> None:
    rig = Rig(A, C, free_at=lambda node: 0.5 if node == 1 else 0.0)
    seek_all(rig)
    assert [call.node for call in rig.fetches()] == [2]
    assert rig.fetcher.next_deadline == 0.5
    rig.now = 0.5
    assert [call.node for call in rig.fetches()] == [1]


def test_an_old_broker_has_waited_before_it_answered_so_the_next_fetch_is_due_at_once() -> None:
    """Whether it has is the connection's to know: what it does not mute is free (KIP-219)."""
    rig = Rig(A)
    seek_all(rig)
    rig.fetcher.fetched(rig.fetch(), FetchResponse(responses=[], throttle_time_ms=500), 0.0)
    assert len(rig.fetches()) == 1


def test_a_partition_with_a_new_leader_is_fetched_there_at_once() -> None:
    rig = Rig(A)
    seek_all(rig)
    call = rig.fetch()
    rig.leaders[A] = 2  # the answer said so, too (KIP-951)
    rig.answer(call, p0=NOT_LEADER)
    assert rig.fetch().node == 2


def test_a_partition_whose_leader_is_not_known_anew_waits_for_the_back_off() -> None:
    rig = Rig(A)
    seek_all(rig)
    rig.answer(rig.fetch(), p0=NOT_LEADER)
    assert rig.fetches() == []
    rig.now = 0.1
    assert rig.fetch().node == 1


def test_partitions_that_stay_assigned_keep_their_positions() -> None:
    rig = Rig(A, B)
    seek_all(rig, 9)
    rig.fetcher.assign([B, C])
    assert rig.fetcher.positions[B].position == 9
    assert rig.fetcher.positions[C].position is None
    with pytest.raises(IllegalStateError, match="t-0 is not assigned"):
        rig.fetcher.position_of(A)


def test_partitions_with_records_take_turns() -> None:
    rig = Rig(A, B)
    seek_all(rig)
    rig.answer(rig.fetch(), p0=batch(0, b"a"), p1=batch(0, b"b"))
    first = rig.fetcher.ready()
    second = rig.fetcher.ready()
    assert first is not second


def test_a_partition_goes_on_as_soon_as_its_leader_is_known_and_not_after_a_back_off() -> None:
    rig = Rig(A)
    rig.fetcher.position_of(A).seek(0)
    rig.leaders[A] = None
    assert [type(effect) for effect in rig.poll()] == [RefreshMetadata]
    rig.leaders[A] = 1
    assert rig.fetch().node == 1
