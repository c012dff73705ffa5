"""Offsets by time: the start, the end, the first at or after a timestamp.

    list_offsets   all or an error: a dialogue over all leaders at once, which tries again
    offsets_at     an answer or an error for each partition: one leader, asked once

    offsets_request, read_offsets   what both are made of

Source: the protocol guide's ListOffsets; KIP-79 (by timestamp), KIP-207 (an offset that is not there yet).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from typing import Any, Final, NamedTuple

from kafka.core.connection import ByVersion
from kafka.core.dialogue import All, Dialogue, RefreshMetadata, Send, Sleep, now
from kafka.core.retry import Backoff
from kafka.errors import (
    BrokerResponseError,
    Cancelled,
    KafkaError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    UnsupportedVersionError,
    for_code,
)
from kafka.protocol.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.offsets import OffsetForLeaderEpochRequest as EpochRequest
from kafka.protocol.offsets import OffsetForLeaderEpochResponse
from kafka.structs import TopicPartition

LIST_OFFSETS_WITH_ISOLATION: Final = 2
"""Brokers that speak less have no transactions, so all that they have is committed."""

END_OFFSET_TIMESTAMP: Final = -1

_SPECIAL_SINCE: Final[Mapping[int, tuple[int, str]]] = {
    -3: (7, "the offset of the greatest timestamp needs brokers since 3.0 (KIP-734)"),
    -4: (8, "the first local offset needs brokers that know of tiers (KIP-405)"),
    -5: (9, "the last tiered offset needs brokers since 3.9 (KIP-1005)"),
}
"""Special timestamp -> the first version that knows it, and what to say of an older one, which would take it for a
time."""

_LEFT_OUT: Final = "a broker left out a partition in its ListOffsets answer"

LeaderOf = Callable[[TopicPartition], "int | None"]


class ResolvedOffset(NamedTuple):
    """``offset`` and ``timestamp`` (ms) are -1 when no record is that late; ``leader_epoch`` -1 when not told."""

    offset: int
    timestamp: int
    leader_epoch: int


def list_offsets(
    wanted: Mapping[TopicPartition, int],
    leader_of: LeaderOf,
    *,
    timeout_s: float,
    backoff: Backoff,
    read_committed: bool = False,
    lane: str | None = None,
) -> Dialogue[dict[TopicPartition, ResolvedOffset]]:
    """The offset for each partition's timestamp (-1 the end, -2 the start, else ms since the epoch).

    Tries again what is retriable, after a look at the metadata, until ``timeout_s`` has passed: KafkaTimeoutError then,
    with the last error in its text. Other errors are raised as they are.
    """
    began = yield from now()
    found: dict[TopicPartition, ResolvedOffset] = {}
    left = dict(wanted)
    failures = 0
    error: BaseException | None = None
    while True:
        fault = yield from _request_from_leaders(left, leader_of, read_committed, lane, found, began + timeout_s)
        if error is None or not isinstance(fault, KafkaTimeoutError):  # it would hide the reason
            error = fault
        for partition in found:
            left.pop(partition, None)
        if not left:
            return found
        if not getattr(error, "retriable", False) or isinstance(error, Cancelled):
            raise error if error is not None else KafkaError(_LEFT_OUT)
        failures += 1
        wait_s = backoff.delay_s(failures)
        passed_s = (yield from now()) - began
        if passed_s + wait_s > timeout_s:
            names = ", ".join(f"{topic}-{number}" for topic, number in sorted(left)[:5])
            raise KafkaTimeoutError(f"no offsets for {names} within {timeout_s:g} s; last: {error}")
        yield Sleep(wait_s)
        try:
            yield RefreshMetadata(sorted({partition.topic for partition in left}), began + timeout_s)
        except KafkaError as refusal:
            if not refusal.retriable or isinstance(refusal, Cancelled):
                raise


def offsets_at(
    leader: int,
    wanted: Mapping[TopicPartition, int],
    *,
    timeout_s: float,
    read_committed: bool = False,
    lane: str | None = None,
) -> Dialogue[dict[TopicPartition, ResolvedOffset | BaseException]]:
    """The offset for each partition's timestamp by its leader, or the reason why there is none: nothing is
    raised, and nothing tried again. The end of a partition that has no record so late: what comes after is not left
    out.

    Each of up to three looks has ``timeout_s``.
    """

    def look(
        timestamps: Mapping[TopicPartition, int],
    ) -> Dialogue[dict[TopicPartition, ResolvedOffset | BaseException]]:
        send = _send_list_offsets(leader, timestamps, read_committed, lane, timeout_s=timeout_s)
        (answer,) = yield All([send], return_errors=True)
        if isinstance(answer, BaseException):
            return dict.fromkeys(timestamps, answer)
        told = read_offsets(answer)
        return {partition: told.get(partition) or KafkaError(_LEFT_OUT) for partition in timestamps}

    told = yield from look(wanted)
    # Java 4.3.0 with ``by_duration`` leaves such a partition without a position and asks again every 30 s with a later
    # time, so it skips what was written meanwhile. Here the position is the end, looked up after the time was.
    late = {partition: wanted[partition] for partition, each in told.items() if _is_late(each)}
    if late:
        told.update((yield from look(dict.fromkeys(late, END_OFFSET_TIMESTAMP))))
        # What came between the first look and the second is behind neither of them.
        again = yield from look(late)
        told.update({partition: each for partition, each in again.items() if not _is_late(each)})
    return told


def _is_late(told: ResolvedOffset | BaseException) -> bool:
    return isinstance(told, ResolvedOffset) and told.offset < 0


def _request_from_leaders(
    wanted: Mapping[TopicPartition, int],
    leader_of: LeaderOf,
    read_committed: bool,
    lane: str | None,
    found: dict[TopicPartition, ResolvedOffset],
    give_up_at: float,
) -> Dialogue[BaseException | None]:
    """One round over all leaders: puts their answers into ``found``, returns the worst error met."""
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    errors: list[BaseException] = []
    for partition, timestamp in wanted.items():
        leader = leader_of(partition)
        if leader is None or leader < 0:
            errors.append(LeaderNotAvailableError(f"{partition.topic}-{partition.partition} has no known leader"))
            continue
        by_leader.setdefault(leader, {})[partition] = timestamp
    sends = [
        _send_list_offsets(leader, timestamps, read_committed, lane, give_up_at=give_up_at)
        for leader, timestamps in by_leader.items()
    ]
    if sends:
        answers: list[Any] = yield All(sends, return_errors=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                errors.append(answer)
                continue
            for partition, told in read_offsets(answer).items():
                if isinstance(told, ResolvedOffset):
                    found[partition] = told
                else:
                    errors.append(told)
    errors.sort(key=lambda error: bool(getattr(error, "retriable", False)))
    return errors[0] if errors else None


def _send_list_offsets(
    leader: int,
    timestamps: Mapping[TopicPartition, int],
    read_committed: bool,
    lane: str | None,
    *,
    timeout_s: float | None = None,
    give_up_at: float = inf,
) -> Send:
    return Send(leader, offsets_request(timestamps, read_committed), lane, timeout_s, give_up_at=give_up_at)


def offsets_request(
    timestamps: Mapping[TopicPartition, int], read_committed: bool = False
) -> ByVersion[ListOffsetsResponse]:
    """What to ask a leader of these. UnsupportedVersionError when it is built for a version that cannot say it."""
    topics: dict[str, list[ListOffsetsRequest.ListOffsetsPartition]] = {}
    for (topic, number), timestamp in timestamps.items():
        topics.setdefault(topic, []).append(
            ListOffsetsRequest.ListOffsetsPartition(partition_index=number, timestamp=timestamp)
        )
    return ByVersion(ListOffsetsRequest, partial(_list_offsets_request, topics, read_committed))


def _list_offsets_request(
    topics: Mapping[str, list[ListOffsetsRequest.ListOffsetsPartition]], read_committed: bool, version: int
) -> ListOffsetsRequest:
    """Version 0, of brokers before 0.10.1, knows where partitions begin and end, and of times only those of whole
    segments: that is another question, and its answer would be taken for a record's offset."""
    wanted = {entry.timestamp for partitions in topics.values() for entry in partitions}
    if version == 0 and any(timestamp >= 0 for timestamp in wanted):
        raise UnsupportedVersionError("offsets by timestamp need brokers since 0.10.1 (KIP-79)")
    for timestamp in wanted & _SPECIAL_SINCE.keys():
        least, text = _SPECIAL_SINCE[timestamp]
        if version < least:
            raise UnsupportedVersionError(text)
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=1 if read_committed and version >= LIST_OFFSETS_WITH_ISOLATION else 0,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()
        ],
    )


def read_offsets(answer: ListOffsetsResponse) -> dict[TopicPartition, ResolvedOffset | BrokerResponseError]:
    """What it says of each partition."""
    told: dict[TopicPartition, ResolvedOffset | BrokerResponseError] = {}
    for topic in answer.topics:
        for entry in topic.partitions:
            partition = TopicPartition(topic.name, entry.partition_index)
            if entry.error_code:
                told[partition] = for_code(entry.error_code)(f"{topic.name}-{entry.partition_index}")
            else:
                offset = entry.old_style_offsets[0] if entry.old_style_offsets else entry.offset
                told[partition] = ResolvedOffset(offset, entry.timestamp, entry.leader_epoch)
    return told


# Where leader epochs ended: how a consumer learns that a log was truncated below what it has read (KIP-320).
#
# A leader that is elected although it lacks records takes the log back to what it has. A consumer that read further
# asks it, with the epoch of the last record read, where that epoch ended: before the position means that what was read
# is gone.


EPOCH_ENDS_FIRST_VERSION: Final = 3
"""Before it, consumers were not allowed to ask: it needed the rights of a broker."""


class EpochQuery(NamedTuple):
    """Ask ``node``, the leader since ``current_epoch``, where ``epoch`` ended."""

    node: int
    current_epoch: int
    epoch: int


class EpochEnd(NamedTuple):
    """The latest epoch up to the one asked for that the leader has, and the offset behind its last record; -1, -1 when
    it knows of none."""

    leader_epoch: int
    end_offset: int


def epoch_ends(
    questions: Mapping[TopicPartition, EpochQuery], *, timeout_s: float
) -> Dialogue[dict[TopicPartition, EpochEnd | BaseException]]:
    """Ask each leader once. An answer, or the reason why there is none, for each partition: nothing is raised, and
    nothing tried again. IncompatibleBrokerVersion: the broker does not answer consumers."""
    by_node: dict[int, dict[str, list[EpochRequest.OffsetForLeaderPartition]]] = {}
    for partition, question in questions.items():
        by_node.setdefault(question.node, {}).setdefault(partition.topic, []).append(
            EpochRequest.OffsetForLeaderPartition(
                partition=partition.partition,
                current_leader_epoch=question.current_epoch,
                leader_epoch=question.epoch,
            )
        )
    sends = [
        Send(
            node,
            EpochRequest(
                replica_id=-1,
                topics=[
                    EpochRequest.OffsetForLeaderTopic(topic=name, partitions=asked) for name, asked in each.items()
                ],
            ),
            timeout_s=timeout_s,
            min_version=EPOCH_ENDS_FIRST_VERSION,
        )
        for node, each in by_node.items()
    ]
    answers: list[Any] = yield All(sends, return_errors=True)
    found: dict[TopicPartition, EpochEnd | BaseException] = {}
    failures: dict[int, BaseException] = {}
    for node, answer in zip(by_node, answers, strict=True):
        if isinstance(answer, BaseException):
            failures[node] = answer
        else:
            _read_epoch_ends(answer, found)
    for partition, question in questions.items():
        if partition not in found:
            left_out = KafkaError("the broker left out a partition in its OffsetForLeaderEpoch answer")
            found[partition] = failures.get(question.node, left_out)
    return found


def _read_epoch_ends(
    answer: OffsetForLeaderEpochResponse, found: dict[TopicPartition, EpochEnd | BaseException]
) -> None:
    for topic in answer.topics:
        for entry in topic.partitions:
            partition = TopicPartition(topic.topic, entry.partition)
            if entry.error_code:
                found[partition] = for_code(entry.error_code)(f"{topic.topic}-{entry.partition}")
            else:
                found[partition] = EpochEnd(entry.leader_epoch, entry.end_offset)
