"""Dialogues about where partitions are: moves to other brokers (KIP-455), and elections of leaders (KIP-183, KIP-460).

All of them are the controller's. A move goes on behind its answer: ``list_partition_reassignments`` tells how far.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kafka.core.admin.plain import Entry, raise_first, raise_transient, since, to_dict
from kafka.core.admin.topics import Partitions, partitions_of
from kafka.core.admin.values import ElectionType, kind_of
from kafka.core.dialogue import Dialogue, send
from kafka.core.partitions import by_topic
from kafka.core.retry import Backoff, retrying
from kafka.core.routing import Controller
from kafka.errors import (
    BrokerResponseError,
    ElectionNotNeededError,
    IllegalArgumentError,
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
    NoReassignmentInProgressError).

    Raises the error of the request (ClusterAuthorizationFailedError). Source: KIP-455; brokers since 2.4.
    """
    wanted = {TopicPartition(*partition): _replicas(partition, given) for partition, given in reassignments.items()}
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

    def attempt() -> Dialogue[AlterPartitionReassignmentsResponse]:
        answer = yield from send(Controller(), request, timeout_s=timeout_s + 5)
        raise_transient(_whole(answer))
        return answer

    answer = yield from since("2.4", retrying(attempt, what="moving partitions", backoff=backoff, timeout_s=timeout_s))
    raise_first(_whole(answer))
    return {
        TopicPartition(topic.name, one.partition_index): for_code(one.error_code) if one.error_code else None
        for topic in answer.responses
        for one in topic.partitions
    }


def list_partition_reassignments(
    topic_partitions: Partitions | None = None, *, backoff: Backoff, timeout_s: float = 30.0
) -> Dialogue[dict[TopicPartition, dict[str, list[int]]]]:
    """The moves that are under way, among these partitions or (None) all: ``{partition: {"replicas",
    "adding_replicas", "removing_replicas"}}``, each a list of brokers' ids. ``replicas`` has those that come and go,
    too. A partition that is not there moves nowhere.

    Raises the error of the request. Source: KIP-455; brokers since 2.4.
    """
    message = ListPartitionReassignmentsRequest
    topics = None
    if topic_partitions is not None:
        wanted = yield from partitions_of(topic_partitions, backoff=backoff, timeout_s=timeout_s)
        topics = [
            message.ListPartitionReassignmentsTopics(name=topic, partition_indexes=numbers)
            for topic, numbers in wanted.items()
        ]
    request = message(timeout_ms=int(timeout_s * 1000), topics=topics)

    def attempt() -> Dialogue[ListPartitionReassignmentsResponse]:
        answer = yield from send(Controller(), request, timeout_s=timeout_s + 5)
        raise_transient(_whole(answer))
        return answer

    answer = yield from since(
        "2.4", retrying(attempt, what="listing moves of partitions", backoff=backoff, timeout_s=timeout_s)
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
    wanted = yield from partitions_of(topic_partitions, backoff=backoff, timeout_s=timeout_s)
    if not wanted:
        return {"error_code": 0, "replica_election_results": []}
    is_new = kind is not ElectionType.PREFERRED
    request = ElectLeadersRequest(
        election_type=kind,
        topic_partitions=[
            ElectLeadersRequest.TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in wanted.items()
        ],
        timeout_ms=int(timeout_s * 1000),
    )

    def attempt() -> Dialogue[ElectLeadersResponse]:
        answer = yield from send(Controller(), request, timeout_s=timeout_s + 5, min_version=1 if is_new else None)
        raise_transient(_elected(answer))
        return answer

    answer = yield from since(
        "2.4, for unclean elections" if is_new else "2.2",
        retrying(attempt, what="electing leaders", backoff=backoff, timeout_s=timeout_s),
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
    replicas = [] if isinstance(given, (str, bytes)) else list(given)
    if not replicas or not all(isinstance(node_id, int) for node_id in replicas):
        raise IllegalArgumentError(
            f"{partition[0]}-{partition[1]}: {given!r}: a list of brokers' ids, at least one; None calls a move off"
        )
    return replicas


def _whole(answer: AlterPartitionReassignmentsResponse | ListPartitionReassignmentsResponse) -> list[Entry]:
    return [(answer.error_code, answer.error_message, "moves of partitions")]


def _elected(answer: ElectLeadersResponse) -> Iterator[Entry]:
    for result in answer.replica_election_results:
        for one in result.partition_result:
            yield one.error_code, one.error_message, f"partition {result.topic}-{one.partition_id}"
    yield answer.error_code, None, "election of leaders"
