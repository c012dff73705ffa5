from __future__ import annotations

import random
from typing import Any

import pytest

from kafka.core.consume.offsets import FoundOffset, list_offsets, offsets_at
from kafka.core.dialogue import All, ByVersion, RefreshMetadata, Send, Sleep
from kafka.core.retry import Backoff
from kafka.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NotLeaderForPartitionError,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
)
from kafka.protocol.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafka.structs import TopicPartition
from test.core.test_retry import drive

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
BACKOFF = Backoff(0.1, 0.1, random.Random(0), jitter=0)


def request_of(send: Send, version: int = 7) -> ListOffsetsRequest:
    assert isinstance(send.request, ByVersion)
    built = send.request.build(version)
    assert isinstance(built, ListOffsetsRequest)
    return built


def answer(send: Send, errors: dict[int, int]) -> ListOffsetsResponse:
    """Offset 10 + the partition's number, or its error."""
    (topic,) = request_of(send).topics
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsResponse.ListOffsetsPartitionResponse(
                        partition_index=entry.partition_index,
                        error_code=errors.get(entry.partition_index, 0),
                        offset=10 + entry.partition_index,
                    )
                    for entry in topic.partitions
                ],
            )
        ]
    )


def ask(leaders: dict[TopicPartition, int | None], rounds: list[Any], timeout_s: float = 5.0) -> tuple[Any, list[Any]]:
    """Each round: errors by partition, or one error for all sends."""
    left = list(rounds)

    def act(step: Any) -> Any:
        if isinstance(step, All):
            given = left.pop(0) if left else {}
            return [given if isinstance(given, Exception) else answer(send, given) for send in step.steps]
        return None

    return drive(list_offsets({A: -1, B: -2}, leaders.get, timeout_s=timeout_s, backoff=BACKOFF), act)


def test_each_leader_is_asked_once_for_all_its_partitions() -> None:
    found, steps = ask({A: 1, B: 1}, [{}])
    assert found == {A: FoundOffset(10, -1, -1), B: FoundOffset(11, -1, -1)}
    (step,) = steps
    (send,) = step.steps
    assert send.target == 1
    assert [(p.partition_index, p.timestamp) for p in request_of(send).topics[0].partitions] == [(0, -1), (1, -2)]
    found, steps = ask({A: 1, B: 2}, [{}])
    assert [send.target for send in steps[0].steps] == [1, 2]


def test_what_failed_for_a_moment_is_asked_again_alone_after_a_look_at_the_metadata() -> None:
    found, steps = ask({A: 1, B: 2}, [{1: 6}])
    assert set(found) == {A, B}
    assert [type(step) for step in steps] == [All, Sleep, RefreshMetadata, All]
    assert [send.target for send in steps[3].steps] == [2]


def test_a_lost_connection_is_tried_again() -> None:
    found, _ = ask({A: 1, B: 1}, [KafkaConnectionError("gone")])
    assert set(found) == {A, B}


def test_a_final_error_is_raised_at_once() -> None:
    with pytest.raises(TopicAuthorizationFailedError, match="t-0"):
        ask({A: 1, B: 2}, [{0: 29, 1: 6}])


def test_partitions_without_a_leader_run_into_the_time_limit_which_names_them() -> None:
    with pytest.raises(KafkaTimeoutError, match=r"no offsets for t-1 within 5 s; last: .*t-1 has no known leader"):
        ask({A: 1, B: None}, [])


def sent_in(version: int, wanted: dict[TopicPartition, int], read_committed: bool = False) -> ListOffsetsRequest:
    dialogue = list_offsets(wanted, lambda _: 1, timeout_s=5.0, backoff=BACKOFF, read_committed=read_committed)
    next(dialogue)
    step = dialogue.send(0.0)  # the instant that it began by asking for
    assert isinstance(step, All)
    (send,) = step.steps
    assert isinstance(send, Send)
    return request_of(send, version)


def test_the_oldest_version_is_asked_for_starts_and_ends_and_never_for_times() -> None:
    assert sent_in(0, {A: -1, B: -2}).topics[0].partitions[1].timestamp == -2
    with pytest.raises(UnsupportedVersionError, match=r"0\.10\.1"):
        sent_in(0, {A: 1000})
    assert sent_in(1, {A: 1000}).topics[0].partitions[0].timestamp == 1000


def test_a_broker_without_transactions_is_not_asked_for_committed_records() -> None:
    assert [sent_in(version, {A: -1}, read_committed=True).isolation_level for version in (0, 1, 2, 7)] == [0, 0, 1, 1]


def test_the_answer_of_the_oldest_version_is_a_list_of_which_the_first_counts() -> None:
    def act(step: Any) -> Any:
        if not isinstance(step, All):
            return None
        found = ListOffsetsResponse.ListOffsetsPartitionResponse(
            partition_index=0, error_code=0, old_style_offsets=[40]
        )
        return [
            ListOffsetsResponse(topics=[ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=[found])])
        ]

    found, _ = drive(list_offsets({A: -1}, lambda _: 1, timeout_s=5.0, backoff=BACKOFF), act)
    assert found == {A: FoundOffset(40, -1, -1)}


@pytest.mark.parametrize(("again", "expected"), [(-1, 50), (49, 49)])
def test_a_time_that_no_record_has_yet_is_the_end_or_what_came_meanwhile(again: int, expected: int) -> None:
    """The end is looked up after the time was: a record between the two looks must not be left out."""
    looks = [{A: 7, B: -1}, {B: 50}, {B: again}]
    asked: list[dict[int, int]] = []

    def act(step: Any) -> Any:
        if not isinstance(step, All):
            return None
        (send,) = step.steps
        found = looks.pop(0)
        asked.append({p.partition_index: p.timestamp for p in request_of(send).topics[0].partitions})
        parts = [
            ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=p.partition, error_code=0, offset=offset)
            for p, offset in found.items()
        ]
        return [ListOffsetsResponse(topics=[ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=parts)])]

    found, _ = drive(offsets_at(1, {A: 1000, B: 1000}, timeout_s=5.0), act)
    assert {partition.partition: each.offset for partition, each in found.items()} == {0: 7, 1: expected}
    assert asked == [{0: 1000, 1: 1000}, {1: -1}, {1: 1000}]


def test_one_leader_is_asked_once_and_each_partition_has_an_answer_or_a_reason() -> None:
    found, steps = drive(offsets_at(1, {A: -1, B: -2}, timeout_s=5.0), lambda step: [answer(step.steps[0], {1: 6})])
    assert found[A] == FoundOffset(10, -1, -1)
    assert isinstance(found[B], NotLeaderForPartitionError) and "t-1" in str(found[B])
    (step,) = steps
    (send,) = step.steps
    assert (send.target, send.timeout_s) == (1, 5.0)


def test_a_leader_that_does_not_answer_is_the_reason_for_each_of_its_partitions() -> None:
    lost = KafkaConnectionError("gone")
    found, _ = drive(offsets_at(1, {A: -1, B: -2}, timeout_s=5.0), lambda _: [lost])
    assert found == {A: lost, B: lost}


def test_a_partition_that_the_leader_leaves_out_has_a_reason_too() -> None:
    found, _ = drive(offsets_at(1, {A: -1}, timeout_s=5.0), lambda _: [ListOffsetsResponse(topics=[])])
    assert isinstance(found[A], KafkaError) and not found[A].retriable


def test_an_end_that_could_not_be_had_is_a_reason_and_no_offset() -> None:
    """The time was looked up and no record is that late: without the end there is no position."""
    looks: list[Any] = [-1, KafkaConnectionError("gone"), -1]

    def act(_: Any) -> Any:
        found = looks.pop(0)
        if isinstance(found, Exception):
            return [found]
        part = ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=0, error_code=0, offset=found)
        return [ListOffsetsResponse(topics=[ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=[part])])]

    found, _ = drive(offsets_at(1, {A: 1000}, timeout_s=5.0), act)
    assert isinstance(found[A], KafkaConnectionError)
