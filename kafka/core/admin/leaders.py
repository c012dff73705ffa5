"""One question for many partitions: each is asked for at its leader, and has an answer or an error of its own.

    partitions --Metadata--> leaders --a request each, at once--> answers

What came to the wrong broker, or too early, is asked again; the partitions that were answered are not. No topic is
created by asking for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Any, TypeVar

from kafka.core.admin.answers import TRANSIENT
from kafka.core.admin.cluster import ask_brokers
from kafka.core.admin.given import list_of, partition_of
from kafka.core.admin.topics import metadata_of
from kafka.core.dialogue import ByVersion, Dialogue, Send
from kafka.core.retry import Backoff, retrying
from kafka.errors import (
    BrokerResponseError,
    LeaderNotAvailableError,
    UnknownError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.protocol.metadata import MetadataResponse
from kafka.structs import TopicPartition
from kafka.wire.message import Request

T = TypeVar("T")

Build = Callable[[Sequence[TopicPartition]], "Request[Any] | ByVersion[Any]"]
"""The request for some partitions."""
Read = Callable[[Any], Mapping[TopicPartition, "T | BrokerResponseError"]]
"""The answer, or error, of each partition in a response."""


def at_leaders(
    partitions: Iterable[TopicPartition],
    build: Build,
    read: Read[T],
    *,
    what: str,
    backoff: Backoff,
    timeout_s: float,
    node_id: int | None = None,
    attempts: float = inf,
    waits_for_leaders: bool = True,
) -> Dialogue[dict[TopicPartition, T | BrokerResponseError]]:
    """The answer, or error, of each partition: UnknownTopicOrPartitionError for one that is not there. ``node_id``: ask
    this node, whether it leads them or not, and take what it says. ``attempts``: the error of the last one is raised.
    ``waits_for_leaders`` False: where there is none now, that is the partition's error."""
    given = list_of(partitions, "partitions", "a list of TopicPartition is needed")
    wanted = list(dict.fromkeys(partition_of(partition, "partitions") for partition in given))
    found: dict[TopicPartition, T | BrokerResponseError] = {}

    def attempt() -> Dialogue[None]:
        left = [partition for partition in wanted if partition not in found]
        again: BrokerResponseError | None = None
        by_node: dict[int, list[TopicPartition]] = {}
        if node_id is not None:
            by_node[node_id] = left
        else:
            answer = yield from metadata_of(sorted({partition.topic for partition in left}))
            for partition, leader in _leaders(answer, left).items():
                if isinstance(leader, int):
                    by_node.setdefault(leader, []).append(partition)
                elif type(leader) in TRANSIENT and waits_for_leaders:
                    again = leader
                else:
                    found[partition] = leader
        answers = yield from ask_brokers([Send(node, build(asked)) for node, asked in by_node.items()])
        for (node, asked), response in zip(by_node.items(), answers, strict=True):
            told = read(response)
            for partition in asked:
                each = told.get(partition)
                if each is None:
                    found[partition] = UnknownError(f"node {node} left it out of its answer")
                elif isinstance(each, BrokerResponseError) and each.retriable and node_id is None:
                    again = each
                else:
                    found[partition] = each
        if again is not None:
            raise again

    if wanted:
        yield from retrying(attempt, what=what, backoff=backoff, timeout_s=timeout_s, attempts=attempts)
    return {partition: found[partition] for partition in wanted}


def all_or_raise(found: Mapping[TopicPartition, T | BrokerResponseError]) -> dict[TopicPartition, T]:
    """The answers; or the first error raised, with the partition's name."""
    answers: dict[TopicPartition, T] = {}
    for partition, each in found.items():
        if isinstance(each, BrokerResponseError):
            text = str(each.args[0]) if each.args else ""
            name = f"{partition.topic}-{partition.partition}"
            raise type(each)(text if name in text else f"{name}: {text}" if text else name)
        answers[partition] = each
    return answers


def _leaders(
    answer: MetadataResponse, wanted: Iterable[TopicPartition]
) -> dict[TopicPartition, int | BrokerResponseError]:
    topics = {topic.name: topic for topic in answer.topics}
    found: dict[TopicPartition, int | BrokerResponseError] = {}
    for partition in wanted:
        topic = topics.get(partition.topic)
        if topic is not None and topic.error_code:
            found[partition] = for_code(topic.error_code)(f"topic {partition.topic}")
            continue
        entries = [] if topic is None else topic.partitions
        leader = next((each.leader_id for each in entries if each.partition_index == partition.partition), None)
        if leader is None:
            found[partition] = UnknownTopicOrPartitionError(f"there is no {partition.topic}-{partition.partition}")
        elif leader < 0:
            found[partition] = LeaderNotAvailableError(f"{partition.topic}-{partition.partition} has no leader now")
        else:
            found[partition] = leader
    return found
