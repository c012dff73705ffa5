"""One question for many partitions: each is asked for at its leader, and has an answer or an error of its own.

    partitions --Metadata--> leaders --a request each, or some, at once--> answers

What came to the wrong broker, or too early, is asked again; the partitions that were answered are not. No topic is
created by asking for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Any, Final, TypeVar

from kafka.core.admin.responses import TRANSIENT, request_brokers
from kafka.core.admin.topics import metadata_of
from kafka.core.connection import ByVersion
from kafka.core.dialogue import Dialogue, Send, send
from kafka.core.retry import Backoff, retrying
from kafka.core.routing import AnyNode, CoordinatorType
from kafka.errors import (
    BrokerResponseError,
    IllegalArgumentError,
    IncompatibleBrokerVersion,
    LeaderNotAvailableError,
    UnknownError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.protocol.coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kafka.structs import TopicPartition
from kafka.validation import partitions_of
from kafka.wire.message import Request

T = TypeVar("T")

MOST_PARTITIONS: Final = 700
"""Of one request. The embedded broker takes no DescribeProducers with more than 1,500 elements, and each partition may
come with a topic of its own."""

Build = Callable[[Sequence[TopicPartition]], "Request[Any] | ByVersion[Any]"]
"""The request for some partitions."""
Read = Callable[[Any], Mapping[TopicPartition, "T | BrokerResponseError"]]
"""The answer, or error, of each partition in a response."""


def request_leaders(
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
    wanted = list(dict.fromkeys(partitions_of(partitions, "partitions")))
    found: dict[TopicPartition, T | BrokerResponseError] = {}

    def attempt() -> Dialogue[None]:
        """Asks the leaders of all partitions that have no answer yet. A transient error of any partition is raised at
        the end, so that the next attempt is for what is left; all other errors are the answers of their partitions."""
        left = [partition for partition in wanted if partition not in found]
        again: BrokerResponseError | None = None
        by_node: dict[int, list[TopicPartition]] = {}
        if node_id is not None:
            by_node[node_id] = left
        else:
            for partition, leader in (yield from _find_leaders(left)).items():
                if isinstance(leader, int):
                    by_node.setdefault(leader, []).append(partition)
                elif type(leader) in TRANSIENT and waits_for_leaders:
                    again = leader
                else:
                    found[partition] = leader
        parts = [
            (node, asked[at : at + MOST_PARTITIONS])
            for node, asked in by_node.items()
            for at in range(0, len(asked), MOST_PARTITIONS)
        ]
        answers = yield from request_brokers([Send(node, build(asked)) for node, asked in parts])
        for (node, asked), response in zip(parts, answers, strict=True):
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


def results_or_raise(found: Mapping[TopicPartition, T | BrokerResponseError]) -> dict[TopicPartition, T]:
    """The answers; or the first error raised, with the partition's name."""
    answers: dict[TopicPartition, T] = {}
    for partition, each in found.items():
        if isinstance(each, BrokerResponseError):
            text = str(each.args[0]) if each.args else ""
            name = f"{partition.topic}-{partition.partition}"
            raise type(each)(text if name in text else f"{name}: {text}" if text else name)
        answers[partition] = each
    return answers


def _find_leaders(wanted: Sequence[TopicPartition]) -> Dialogue[dict[TopicPartition, int | BrokerResponseError]]:
    answer = yield from metadata_of(sorted({partition.topic for partition in wanted}))
    errors = {topic.name: topic.error_code for topic in answer.topics}
    leaders = {(topic.name, one.partition_index): one.leader_id for topic in answer.topics for one in topic.partitions}
    found: dict[TopicPartition, int | BrokerResponseError] = {}
    for partition in wanted:
        if errors.get(partition.topic):
            found[partition] = for_code(errors[partition.topic])(f"topic {partition.topic}")
        elif partition not in leaders:
            found[partition] = UnknownTopicOrPartitionError(f"there is no {partition.topic}-{partition.partition}")
        elif leaders[partition] < 0:
            found[partition] = LeaderNotAvailableError(f"{partition.topic}-{partition.partition} has no leader now")
        else:
            found[partition] = leaders[partition]
    return found


# One question for many groups: each is asked at its own coordinator, and has an answer or an error of its own.
#
#     groups --FindCoordinator, several keys since version 4 (KIP-699)--> coordinators --a question each--> answers
#
# What came to the wrong broker, or too early, is asked again; the groups that were answered are not. The same for
# transactional ids: what is called a group below is then one of these.


Ask = Callable[[int, Sequence[str]], Dialogue[Mapping[str, "T | BrokerResponseError"]]]
"""``ask(node, groups)``: the answer, or error, of each of the groups that this node coordinates."""

_SEVERAL_KEYS_SINCE = 4
_NOUNS: Final[Mapping[CoordinatorType, str]] = {
    CoordinatorType.GROUP: "group",
    CoordinatorType.TRANSACTION: "transactional id",
}
_ARGUMENTS: Final[Mapping[CoordinatorType, str]] = {
    CoordinatorType.GROUP: "group_ids",
    CoordinatorType.TRANSACTION: "transactional_ids",
}


def request_coordinators(
    group_ids: Iterable[str],
    ask: Ask[T],
    *,
    what: str,
    backoff: Backoff,
    timeout_s: float,
    node_id: int | None = None,
    kind: CoordinatorType = CoordinatorType.GROUP,
    attempts: float = inf,
) -> Dialogue[dict[str, T | BrokerResponseError]]:
    """The answer, or error, of each group. ``node_id``: ask this node and look for no coordinator. ``kind``: of what
    these are the names. ``attempts``: with 1 nothing is asked again, and the error is raised."""
    if isinstance(group_ids, (str, bytes)):
        raise IllegalArgumentError(f"{_ARGUMENTS[kind]}={group_ids!r}: a list of names, not one text")
    wanted = list(dict.fromkeys(group_ids))
    for group_id in wanted:
        if not isinstance(group_id, str):
            raise IllegalArgumentError(f"{group_id!r}: a {_NOUNS[kind]} is a text")
    found: dict[str, T | BrokerResponseError] = {}

    def attempt() -> Dialogue[None]:
        """Asks the coordinators of all groups that have no answer yet, one after another. A transient error of any
        group is raised at the end, so that the next attempt is for what is left; all other errors are the answers of
        their groups."""
        left = [group for group in wanted if group not in found]
        again: BrokerResponseError | None = None
        if node_id is not None:
            where: dict[str, int | BrokerResponseError] = dict.fromkeys(left, node_id)
        else:
            where = yield from find_coordinators(left, kind)
        by_node: dict[int, list[str]] = {}
        for group, node in where.items():
            if isinstance(node, int):
                by_node.setdefault(node, []).append(group)
            elif type(node) in TRANSIENT:
                again = node
            else:
                found[group] = node
        for node, groups in by_node.items():
            answers = yield from ask(node, groups)
            for group in groups:
                if group not in answers:
                    found[group] = UnknownError(f"node {node} left {_NOUNS[kind]} {group} out of its answer")
                    continue
                answer = answers[group]
                if isinstance(answer, BrokerResponseError) and type(answer) in TRANSIENT:
                    again = answer
                else:
                    found[group] = answer
        if again is not None:
            raise again

    yield from retrying(attempt, what=what, backoff=backoff, timeout_s=timeout_s, attempts=attempts)
    return {group: found[group] for group in wanted}


def request_coordinator(
    group_id: str,
    ask: Callable[[int], Dialogue[T]],
    *,
    what: str,
    backoff: Backoff,
    timeout_s: float,
    node_id: int | None = None,
    attempts: float = inf,
) -> Dialogue[T]:
    """The same for one group, whose error is raised."""

    def of_one(node: int, groups: Sequence[str]) -> Dialogue[Mapping[str, T | BrokerResponseError]]:
        return {group_id: (yield from ask(node))}

    found = yield from request_coordinators(
        [group_id], of_one, what=what, backoff=backoff, timeout_s=timeout_s, node_id=node_id, attempts=attempts
    )
    return result_or_raise(found[group_id], group_id)


def result_or_raise(found: T | BrokerResponseError, group_id: str, kind: CoordinatorType = CoordinatorType.GROUP) -> T:
    """The answer; or the error raised, with the group's name."""
    if isinstance(found, BrokerResponseError):
        text = str(found.args[0]) if found.args else ""
        raise type(found)(f"{_NOUNS[kind]} {group_id}" + (f": {text}" if text and group_id not in text else ""))
    return found


def find_coordinators(
    group_ids: Sequence[str], kind: CoordinatorType = CoordinatorType.GROUP
) -> Dialogue[dict[str, int | BrokerResponseError]]:
    """Each group's coordinator, or the error of its look-up; one request for all where brokers take several keys."""
    if not group_ids:
        return {}
    try:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=list(group_ids))
        several = yield from send(AnyNode(), request, min_version=_SEVERAL_KEYS_SINCE)
        return {entry.key: _node_or_error(entry) for entry in several.coordinators}
    except IncompatibleBrokerVersion:
        pass
    found: dict[str, int | BrokerResponseError] = {}
    for group_id in group_ids:

        def build(version: int, key: str = group_id) -> FindCoordinatorRequest:
            return FindCoordinatorRequest(key=key, key_type=kind) if version else FindCoordinatorRequest(key=key)

        of_one: FindCoordinatorResponse = yield from send(
            AnyNode(),
            ByVersion(FindCoordinatorRequest, build),
            min_version=0 if kind is CoordinatorType.GROUP else 1,  # version 0 knows groups only
            max_version=_SEVERAL_KEYS_SINCE - 1,
        )
        found[group_id] = _node_or_error(of_one)
    return found


def _node_or_error(
    entry: FindCoordinatorResponse | FindCoordinatorResponse.Coordinator,
) -> int | BrokerResponseError:
    if entry.error_code:
        return for_code(entry.error_code)(entry.error_message or "")
    return entry.node_id
