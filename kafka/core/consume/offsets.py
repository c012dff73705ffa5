"""Offsets by time: the start, the end, the first at or after a timestamp. A dialogue over all leaders at once.

Source: the protocol guide's ListOffsets; KIP-79 (by timestamp), KIP-207 (an offset that is not there yet).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kafka.core.dialogue import All, Dialogue, RefreshMetadata, Send, Sleep, now
from kafka.core.retry import Backoff
from kafka.errors import Cancelled, KafkaError, KafkaTimeoutError, LeaderNotAvailableError, for_code
from kafka.protocol.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafka.structs import TopicPartition

LeaderOf = Callable[[TopicPartition], "int | None"]


class FoundOffset(NamedTuple):
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
) -> Dialogue[dict[TopicPartition, FoundOffset]]:
    """The offset for each partition's timestamp (-1 the end, -2 the start, else ms since the epoch).

    Tries again what is retriable, after a look at the metadata, until ``timeout_s`` has passed: KafkaTimeoutError then,
    with the last error in its text. Other errors are raised as they are.
    """
    began = yield from now()
    found: dict[TopicPartition, FoundOffset] = {}
    left = dict(wanted)
    failures = 0
    while True:
        error = yield from _ask_leaders(left, leader_of, read_committed, lane, found)
        for partition in found:
            left.pop(partition, None)
        if not left:
            return found
        if not getattr(error, "retriable", False) or isinstance(error, Cancelled):
            raise error if error is not None else KafkaError("a broker left out a partition in its ListOffsets answer")
        failures += 1
        wait_s = backoff.delay_s(failures)
        passed_s = (yield from now()) - began
        if passed_s + wait_s > timeout_s:
            names = ", ".join(f"{topic}-{number}" for topic, number in sorted(left)[:5])
            raise KafkaTimeoutError(f"no offsets for {names} within {timeout_s:g} s; last: {error}")
        yield Sleep(wait_s)
        try:
            yield RefreshMetadata(sorted({partition.topic for partition in left}))
        except KafkaError as fault:
            if not fault.retriable or isinstance(fault, Cancelled):
                raise


def _ask_leaders(
    wanted: Mapping[TopicPartition, int],
    leader_of: LeaderOf,
    read_committed: bool,
    lane: str | None,
    found: dict[TopicPartition, FoundOffset],
) -> Dialogue[BaseException | None]:
    """One round over all leaders: puts what they told into ``found``, returns the worst error met."""
    by_leader: dict[int, dict[str, list[ListOffsetsRequest.ListOffsetsPartition]]] = {}
    errors: list[BaseException] = []
    for partition, timestamp in wanted.items():
        leader = leader_of(partition)
        if leader is None or leader < 0:
            errors.append(LeaderNotAvailableError(f"{partition.topic}-{partition.partition} has no known leader"))
            continue
        by_leader.setdefault(leader, {}).setdefault(partition.topic, []).append(
            ListOffsetsRequest.ListOffsetsPartition(partition_index=partition.partition, timestamp=timestamp)
        )
    sends = [
        Send(
            leader,
            ListOffsetsRequest(
                replica_id=-1,
                isolation_level=1 if read_committed else 0,
                topics=[
                    ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=partitions)
                    for name, partitions in topics.items()
                ],
            ),
            lane,
            # Version 0 answers another question.
            min_version=1,
        )
        for leader, topics in by_leader.items()
    ]
    if sends:
        answers: list[Any] = yield All(sends, return_errors=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                errors.append(answer)
            else:
                errors += _read(answer, found)
    errors.sort(key=lambda error: bool(getattr(error, "retriable", False)))
    return errors[0] if errors else None


def _read(answer: ListOffsetsResponse, found: dict[TopicPartition, FoundOffset]) -> list[BaseException]:
    errors: list[BaseException] = []
    for topic in answer.topics:
        for entry in topic.partitions:
            if entry.error_code:
                errors.append(for_code(entry.error_code)(f"{topic.name}-{entry.partition_index}"))
            else:
                partition = TopicPartition(topic.name, entry.partition_index)
                found[partition] = FoundOffset(entry.offset, entry.timestamp, entry.leader_epoch)
    return errors
