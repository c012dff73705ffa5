from __future__ import annotations

import random
from typing import Any

import pytest

from kafka.core.connection import ByVersion
from kafka.core.consume.offsets import ResolvedOffset, list_offsets, offsets_at, offsets_request
from kafka.core.dialogue import All, RefreshMetadata, Send, Sleep
from kafka.core.retry import Backoff
from kafka.errors import (
    Cancelled,
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
    assert found == {A: ResolvedOffset(10, -1, -1), B: ResolvedOffset(11, -1, -1)}
    (step,) = steps
    (send,) = step.steps
    assert send.target == 1
    assert step.return_errors, "one that does not answer holds up no other"
    request = request_of(send)
    assert [(p.partition_index, p.timestamp) for p in request.topics[0].partitions] == [(0, -1), (1, -2)]
    assert (request.replica_id, request.isolation_level) == (-1, 0), "a consumer's, of all records"
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
    for time_ms in (0, 1000):
        with pytest.raises(UnsupportedVersionError, match=r"0\.10\.1"):
            sent_in(0, {A: time_ms})
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
    assert found == {A: ResolvedOffset(40, -1, -1)}


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
    assert found[A] == ResolvedOffset(10, -1, -1)
    assert isinstance(found[B], NotLeaderForPartitionError) and "t-1" in str(found[B])
    (step,) = steps
    (send,) = step.steps
    assert (send.target, send.timeout_s, step.return_errors) == (1, 5.0, True)
    assert request_of(send).isolation_level == offsets_request({A: -1}).build(7).isolation_level == 0


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


@pytest.mark.parametrize(
    ("timestamp", "version", "reason"), [(-3, 7, "KIP-734"), (-4, 8, "KIP-405"), (-5, 9, "KIP-1005")]
)
def test_what_an_older_broker_would_take_for_a_time_is_not_asked_of_it(
    timestamp: int, version: int, reason: str
) -> None:
    """ListOffsetsRequest.json: version 7 knows the greatest timestamp, 8 the first local offset, 9 the last tiered."""
    with pytest.raises(UnsupportedVersionError, match=reason):
        sent_in(version - 1, {A: timestamp})
    assert sent_in(version, {A: timestamp}).topics[0].partitions[0].timestamp == timestamp


def test_the_node_0_leads_and_the_node_minus_1_does_not() -> None:
    with pytest.raises(KafkaTimeoutError, match=r"no offsets for t-1 within .*t-1 has no known leader"):
        ask({A: 0, B: -1}, [{0: 0}])
    assert [send.target for send in ask({A: 0, B: 0}, [{}])[1][0].steps] == [0]


def test_waits_grow_until_the_time_is_over_which_they_may_fill() -> None:
    def waits(timeout_s: float) -> list[float]:
        growing = Backoff(1.0, 10.0, random.Random(0), jitter=0)
        outcomes: list[Any] = [{0: 6}, {0: 6}, {0: 6}]

        def act(step: Any) -> Any:
            if isinstance(step, All):
                return [answer(send, outcomes.pop(0) if outcomes else {}) for send in step.steps]
            return None

        found, steps = drive(list_offsets({A: -1}, lambda _: 1, timeout_s=timeout_s, backoff=growing), act)
        assert set(found) == {A}
        return [step.seconds for step in steps if isinstance(step, Sleep)]

    assert waits(7.0) == [1.0, 2.0, 4.0]
    with pytest.raises(KafkaTimeoutError):
        waits(6.9)


def test_an_error_for_want_of_time_names_five_partitions() -> None:
    wanted = {TopicPartition("t", number): -1 for number in range(6)}
    with pytest.raises(KafkaTimeoutError, match="no offsets for t-0, t-1, t-2, t-3, t-4 within"):
        drive(list_offsets(wanted, lambda _: None, timeout_s=0.05, backoff=BACKOFF), lambda _: None)


@pytest.mark.parametrize(
    ("rounds", "last"),
    [
        ([{0: 6, 1: 6}, KafkaTimeoutError("not sent"), KafkaTimeoutError("not sent")], "NotLeaderForPartitionError"),
        ([{0: 6, 1: 6}, KafkaConnectionError("gone"), KafkaConnectionError("gone")], "gone"),
        ([KafkaTimeoutError("not sent")] * 3, "not sent"),
    ],
)
def test_the_last_error_is_reported_but_for_one_that_says_no_more_than_that_time_is_over(
    rounds: list[Any], last: str
) -> None:
    with pytest.raises(KafkaTimeoutError, match=f"last: .*{last}"):
        ask({A: 1, B: 1}, rounds, timeout_s=0.25)


def test_a_partition_that_a_leader_leaves_out_is_an_error_at_once() -> None:
    with pytest.raises(KafkaError, match="left out a partition"):
        drive(
            list_offsets({A: -1}, lambda _: 1, timeout_s=5.0, backoff=BACKOFF),
            lambda step: [ListOffsetsResponse(topics=[])] if isinstance(step, All) else None,
        )


def test_an_error_that_is_not_kafkas_is_final_and_goes_before_those_that_pass() -> None:
    def act(step: Any) -> Any:
        return [answer(step.steps[0], {0: 6}), ValueError("a fault of ours")]

    with pytest.raises(ValueError, match="a fault of ours"):
        drive(list_offsets({A: -1, B: -1}, {A: 1, B: 2}.get, timeout_s=5.0, backoff=BACKOFF), act)


@pytest.mark.parametrize(
    ("refusal", "is_final"),
    [(KafkaConnectionError("gone"), False), (Cancelled("closed"), True), (TopicAuthorizationFailedError("t"), True)],
)
def test_a_look_at_the_metadata_that_fails_is_no_reason_to_stop_unless_it_is_final(
    refusal: KafkaError, is_final: bool
) -> None:
    rounds: list[dict[int, int]] = [{0: 6}, {}]

    def act(step: Any) -> Any:
        if isinstance(step, RefreshMetadata):
            raise refusal
        return [answer(step.steps[0], rounds.pop(0))] if isinstance(step, All) else None

    dialogue = list_offsets({A: -1}, lambda _: 1, timeout_s=5.0, backoff=BACKOFF)
    if is_final:
        with pytest.raises(type(refusal)):
            drive(dialogue, act)
    else:
        assert set(drive(dialogue, act)[0]) == {A}


def test_the_offset_0_of_a_time_is_an_offset() -> None:
    looks = []

    def act(step: Any) -> Any:
        looks.append(step)
        part = ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=0, error_code=0, offset=0)
        return [ListOffsetsResponse(topics=[ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=[part])])]

    found, _ = drive(offsets_at(1, {A: 1000}, timeout_s=5.0), act)
    assert (found[A].offset, len(looks)) == (0, 1)
