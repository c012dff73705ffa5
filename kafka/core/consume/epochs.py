"""Where leader epochs ended: how a consumer learns that a log was truncated below what it has read (KIP-320).

A leader that is elected although it lacks records takes the log back to what it has. Whoever read further asks it, with
the epoch of the last record read, where that epoch ended: before the position means that what was read is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kafka.core.dialogue import All, Dialogue, Send
from kafka.errors import KafkaError, for_code
from kafka.protocol.offsets import OffsetForLeaderEpochRequest as EpochRequest
from kafka.protocol.offsets import OffsetForLeaderEpochResponse
from kafka.structs import TopicPartition

FIRST_VERSION: Final = 3
"""Before it, consumers were not allowed to ask: it needed the rights of a broker."""


class EpochQuestion(NamedTuple):
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
    questions: Mapping[TopicPartition, EpochQuestion], *, timeout_s: float
) -> Dialogue[dict[TopicPartition, EpochEnd | BaseException]]:
    """Ask each leader once. An answer, or the reason why there is none, for each partition: nothing is raised, and
    nothing tried again. IncompatibleBrokerVersion: the broker does not tell consumers."""
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
            min_version=FIRST_VERSION,
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
            _read(answer, found)
    for partition, question in questions.items():
        if partition not in found:
            left_out = KafkaError("the broker left out a partition in its OffsetForLeaderEpoch answer")
            found[partition] = failures.get(question.node, left_out)
    return found


def _read(answer: OffsetForLeaderEpochResponse, found: dict[TopicPartition, EpochEnd | BaseException]) -> None:
    for topic in answer.topics:
        for entry in topic.partitions:
            partition = TopicPartition(topic.topic, entry.partition)
            if entry.error_code:
                found[partition] = for_code(entry.error_code)(f"{topic.topic}-{entry.partition}")
            else:
                found[partition] = EpochEnd(entry.leader_epoch, entry.end_offset)
