"""Dialogues about where partitions are: moves to other brokers (KIP-455), and elections of leaders (KIP-183, KIP-460).

All of them are the controller's. A move goes on behind its answer: ``list_partition_reassignments`` tells how far.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kafka.core.admin.answers import ANSWER_LOST, Entry, raise_first, raise_transient, since, time_left
from kafka.core.admin.given import mapping_of, numbers_of, partition_of
from kafka.core.admin.plain import to_dict
from kafka.core.admin.topics import Partitions, partitions_of
from kafka.core.admin.values import ElectionType, kind_of
from kafka.core.dialogue import Dialogue, now, send
from kafka.core.partitions import by_topic
from kafka.core.retry import Backoff, retrying
from kafka.core.routing import Controller
from kafka.errors import (
    BrokerResponseError,
    ElectionNotNeededError,
    IllegalArgumentError,
    NoReassignmentInProgressError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.protocol.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kafka.structs import TopicPartition


def alter_partition_reassignments(
    reassignments: Mapping[TopicPartition, Sequence[int] | None], *, backoff: Backoff, timeout_s: float = 30.0
) -> Dialogue[dict[TopicPartition, type[BrokerResponseError] | None]]:
    """Let partitions move to these brokers, the preferred leader first; None calls a move off. ``{partition: error
    class}``, None where the move has begun (InvalidReplicationAssignmentError, UnknownTopicOrPartitionError,
    NoReassignmentInProgressError; None, too, when an answer before was lost, which may have been that it was called
    off).

    Raises the error of the request (ClusterAuthorizationFailedError). Source: KIP-455; brokers since 2.4.
    """
    wanted = {}
    for key, given in mapping_of(reassignments, "reassignments", "{TopicPartition: [broker id]} is needed").items():
        partition = partition_of(key, "reassignments")
        wanted[partition] = _replicas(partition, given)
    if not wanted:
        return {}
    message = AlterPartitionReassignmentsRequest
    request = message(
        timeout_ms=int(timeout_s * 1000),
        topics=[
            message.ReassignableTopic(
                name=topic,
                partitions=[
                    message.ReassignablePartition(
                        partition_index=number, replicas=wanted[TopicPartition(topic, number)]
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(wanted).items()
        ],
    )

    was_lost = False

    def attempt() -> Dialogue[AlterPartitionReassignmentsResponse]:
        nonlocal was_lost
        try:
            answer = yield from send(Controller(), request, timeout_s=timeout_s + 5)
        except ANSWER_LOST:
            was_lost = True
            raise
        raise_transient(_whole(answer))
        return answer

    answer = yield from since("2.4", retrying(attempt, what="moving partitions", backoff=backoff, timeout_s=timeout_s))
    raise_first(_whole(answer))
    found: dict[TopicPartition, type[BrokerResponseError] | None] = {}
    for topic in answer.responses:
        for one in topic.partitions:
            partition, error = TopicPartition(topic.name, one.partition_index), for_code(one.error_code)
            is_over = was_lost and error is NoReassignmentInProgressError and wanted.get(partition) is None
            found[partition] = error if one.error_code and not is_over else None
    return found


def list_partition_reassignments(
    topic_partitions: Partitions | None = None, *, backoff: Backoff, timeout_s: float = 30.0
) -> Dialogue[dict[TopicPartition, dict[str, list[int]]]]:
    """The moves that are under way, among these partitions or (None) all: ``{partition: {"replicas",
    "adding_replicas", "removing_replicas"}}``, each a list of brokers' ids. ``replicas`` has those that come and go,
    too. A partition that is not there moves nowhere.

    Raises the error of the request. Source: KIP-455; brokers since 2.4.
    """
    give_up_at = (yield from now()) + timeout_s
    message = ListPartitionReassignmentsRequest
    topics = None
    if topic_partitions is not None:
        wanted = yield from partitions_of(topic_partitions, backoff=backoff, timeout_s=timeout_s)
        topics = [
            message.ListPartitionReassignmentsTopics(name=topic, partition_indexes=numbers)
            for topic, numbers in wanted.items()
        ]
    left_s = yield from time_left(give_up_at)
    request = message(timeout_ms=int(left_s * 1000), topics=topics)

    def attempt() -> Dialogue[ListPartitionReassignmentsResponse]:
        answer = yield from send(Controller(), request, timeout_s=left_s + 5)
        raise_transient(_whole(answer))
        return answer

    answer = yield from since(
        "2.4", retrying(attempt, what="listing moves of partitions", backoff=backoff, timeout_s=left_s)
    )
    raise_first(_whole(answer))
    return {
        TopicPartition(topic.name, one.partition_index): {
            "replicas": list(one.replicas),
            "adding_replicas": list(one.adding_replicas),
            "removing_replicas": list(one.removing_replicas),
        }
        for topic in answer.topics
        for one in topic.partitions
    }


def elect_leaders(
    election_type: ElectionType | int | str,
    topic_partitions: Partitions | None = None,
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
    raise_errors: bool = True,
) -> Dialogue[dict[str, Any]]:
    """Elect leaders of these partitions or (None) of all: ``{"error_code", "replica_election_results": [{"topic",
    "partition_result": [{"partition_id", "error_code", "error_message"}]}]}``.

    With ``raise_errors`` the first error is raised (PreferredLeaderNotAvailableError,
    EligibleLeadersNotAvailableError), but not ElectionNotNeededError: the leader was the right one. Source: KIP-183,
    brokers since 2.2; unclean elections KIP-460, since 2.4.
    """
    kind = kind_of(ElectionType, election_type, "election_type")
    give_up_at = (yield from now()) + timeout_s
    wanted = yield from partitions_of(topic_partitions, backoff=backoff, timeout_s=timeout_s)
    if not wanted:
        return {"error_code": 0, "replica_election_results": []}
    is_new = kind is not ElectionType.PREFERRED
    left_s = yield from time_left(give_up_at)
    request = ElectLeadersRequest(
        election_type=kind,
        topic_partitions=[
            ElectLeadersRequest.TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in wanted.items()
        ],
        timeout_ms=int(left_s * 1000),
    )

    def attempt() -> Dialogue[ElectLeadersResponse]:
        answer = yield from send(Controller(), request, timeout_s=left_s + 5, min_version=1 if is_new else None)
        raise_transient(_elected(answer))
        return answer

    answer = yield from since(
        "2.4, for unclean elections" if is_new else "2.2",
        retrying(attempt, what="electing leaders", backoff=backoff, timeout_s=left_s),
    )
    if raise_errors:
        passed_over: set[type[BrokerResponseError]] = {ElectionNotNeededError}
        if topic_partitions is None:
            passed_over.add(UnknownTopicOrPartitionError)  # deleted since all were listed
        raise_first(entry for entry in _elected(answer) if for_code(entry[0]) not in passed_over)
    found = to_dict(answer)
    return {name: found[name] for name in ("error_code", "replica_election_results")}


def _replicas(partition: TopicPartition, given: Sequence[int] | None) -> list[int] | None:
    if given is None:
        return None
    name = f"{partition.topic}-{partition.partition}: brokers"
    form = "a list of their ids, at least one; None calls a move off"
    replicas = numbers_of(given, name, form)
    if not replicas:
        raise IllegalArgumentError(f"{name}={given!r}: {form}")
    return replicas


def _whole(answer: AlterPartitionReassignmentsResponse | ListPartitionReassignmentsResponse) -> list[Entry]:
    return [(answer.error_code, answer.error_message, "moves of partitions")]


def _elected(answer: ElectLeadersResponse) -> Iterator[Entry]:
    for result in answer.replica_election_results:
        for one in result.partition_result:
            yield one.error_code, one.error_message, f"partition {result.topic}-{one.partition_id}"
    yield answer.error_code, None, "election of leaders"
