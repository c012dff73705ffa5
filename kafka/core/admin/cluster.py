"""Dialogues about the cluster and its brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kafka.core.admin.responses import (
    ResponseEntry,
    operations_of,
    raise_first,
    raise_transient,
    requiring_release,
    time_left,
    to_dict,
)
from kafka.core.admin.topics import Partitions, partitions_of
from kafka.core.dialogue import All, ByVersion, Dialogue, Send, now, refresh_metadata, send
from kafka.core.retry import Backoff, retrying
from kafka.core.routing import AnyNode
from kafka.errors import (
    BrokerResponseError,
    ClusterAuthorizationFailedError,
    IllegalArgumentError,
    IncompatibleBrokerVersion,
    UnknownBrokerIdError,
    for_code,
)
from kafka.protocol.log_dirs import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from kafka.protocol.metadata import DescribeClusterRequest, MetadataRequest
from kafka.protocol.quorum import DescribeQuorumRequest, DescribeQuorumResponse
from kafka.structs import TopicPartitionReplica
from kafka.validation import mapping_of, numbers_of

_FENCED_SINCE: Final = 2
_OPERATIONS: Final = "cluster_authorized_operations"
_ATTEMPTS: Final = 2


def describe_cluster(*, backoff: Backoff, timeout_s: float = 30.0) -> Dialogue[dict[str, Any]]:
    """``{"cluster_id", "controller_id", "brokers": [{"broker_id", "host", "port", "rack", "is_fenced"}],
    "authorized_operations"}``, fenced brokers with the others (4.0). Brokers before 2.8 are asked for metadata instead,
    which has no fenced brokers, and asked for no operations (None)."""
    return (
        yield from retrying(
            lambda: _describe(is_whole=True), what="describing the cluster", backoff=backoff, timeout_s=timeout_s
        )
    )


def _describe(*, is_whole: bool) -> Dialogue[dict[str, Any]]:
    """``is_whole`` False: the brokers that can be asked, and no operations."""

    def build(version: int) -> DescribeClusterRequest:
        request = DescribeClusterRequest(include_cluster_authorized_operations=is_whole)
        if version >= _FENCED_SINCE:
            request.include_fenced_brokers = is_whole
        return request

    try:
        answer = yield from send(AnyNode(), ByVersion(DescribeClusterRequest, build))
    except IncompatibleBrokerVersion:
        metadata = yield from send(AnyNode(), MetadataRequest(topics=[]), min_version=1)
        found = to_dict(metadata)
        found["brokers"] = [{"broker_id": broker.pop("node_id"), **broker} for broker in found["brokers"]]
    else:
        raise_first([(answer.error_code, answer.error_message, "describe_cluster")])
        found = to_dict(answer)
    told = {name: found[name] for name in ("cluster_id", "controller_id", "brokers")}
    return {**told, "authorized_operations": operations_of(found[_OPERATIONS])}


def broker_ids_of_the_cluster() -> Dialogue[list[int]]:
    """The node ids of all brokers, without trying again."""
    cluster = yield from _describe(is_whole=False)
    return [broker["broker_id"] for broker in cluster["brokers"]]


def request_brokers(sends: Sequence[Send]) -> Dialogue[list[Any]]:
    """All answers, in order, or the first error. A broker that the client does not know may have joined since it last
    looked: it looks again, twice. UnknownBrokerIdError: there is none of that id."""
    answers: list[Any]
    for _ in range(_ATTEMPTS):
        try:
            answers = yield All(sends)
            return answers
        except UnknownBrokerIdError:
            yield from refresh_metadata()
    answers = yield All(sends)
    return answers


# Dialogues about the controllers' quorum (KIP-595).


METADATA_TOPIC: Final = "__cluster_metadata"


def describe_metadata_quorum(*, backoff: Backoff, timeout_s: float = 30.0) -> Dialogue[dict[str, Any]]:
    """The controllers, and how far each of them and of the brokers has come in the log of the cluster's metadata::

        {"topics": [{"topic_name", "partitions": [{"partition_index", "error", "leader_id", "leader_epoch",
          "high_watermark", "current_voters": [replica], "observers": [replica]}]}],
         "nodes": [{"node_id", "listeners": [{"name", "host", "port"}]}]}

    A replica is ``{"replica_id", "replica_directory_id", "log_end_offset", "last_fetch_timestamp",
    "last_caught_up_timestamp"}``, times in ms since 1970, -1 where unknown; ``error`` None or a text. ``nodes`` and
    directories' ids with KIP-853. Raises the error of the request. Brokers with KRaft since 3.3 (KIP-836).
    """
    topic = DescribeQuorumRequest.TopicData(
        topic_name=METADATA_TOPIC, partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)]
    )
    request = DescribeQuorumRequest(topics=[topic])

    def attempt() -> Dialogue[DescribeQuorumResponse]:
        answer = yield from send(AnyNode(), request)
        raise_transient(_quorum_entries(answer))
        return answer

    answer = yield from requiring_release(
        "3.3, with KRaft", retrying(attempt, what="describing the quorum", backoff=backoff, timeout_s=timeout_s)
    )
    raise_first([_quorum_entry(answer)])
    found = to_dict(answer)
    for topics in found["topics"]:
        for one in topics["partitions"]:
            code, text = one.pop("error_code"), one.pop("error_message")
            one["error"] = str(for_code(code)(text or "")) if code else None
    return {name: found[name] for name in ("topics", "nodes")}


def _quorum_entry(answer: DescribeQuorumResponse) -> ResponseEntry:
    return answer.error_code, answer.error_message, "the controllers' quorum"


def _quorum_entries(answer: DescribeQuorumResponse) -> list[ResponseEntry]:
    parts = [one for topic in answer.topics for one in topic.partitions]
    return [_quorum_entry(answer), *((one.error_code, one.error_message, "the controllers' quorum") for one in parts)]


# Dialogues about the directories in which brokers keep their logs (KIP-113). Each broker answers for its own.


def describe_log_dirs(
    topic_partitions: Partitions | None = None,
    brokers: Iterable[int] | None = None,
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
) -> Dialogue[list[dict[str, Any]]]:
    """The directories of these brokers (None: of all), with what these partitions (None: all) take there::

        [{"broker": id, "log_dirs": [{"error_code", "log_dir", "topics": [{"name", "partitions": [{"partition_index",
          "partition_size", "offset_lag", "is_future_key"}]}], "total_bytes", "usable_bytes", "is_cordoned"}]}]

    Sizes in bytes; of the volume since 3.3 (KIP-827), -1 before. ``is_future_key``: the replica is on its way into this
    directory. A directory that has failed has its ``error_code``. Raises ClusterAuthorizationFailedError;
    UnknownTopicOrPartitionError for a topic's name alone that is not there. Source: KIP-113; brokers since 1.0.
    """
    named = None if brokers is None else numbers_of(brokers, "brokers", "a list of brokers' ids")
    give_up_at = (yield from now()) + timeout_s
    message = DescribeLogDirsRequest
    topics = None
    if topic_partitions is not None:
        wanted = yield from partitions_of(topic_partitions, backoff=backoff, timeout_s=timeout_s)
        topics = [message.DescribableLogDirTopic(topic=topic, partitions=numbers) for topic, numbers in wanted.items()]
    request = message(topics=topics)
    left_s = yield from time_left(give_up_at)

    def attempt() -> Dialogue[list[dict[str, Any]]]:
        asked = named
        if asked is None:
            asked = yield from broker_ids_of_the_cluster()
        answers = yield from request_brokers([Send(broker, request) for broker in asked])
        found = []
        for broker, answer in zip(asked, answers, strict=True):
            code = answer.error_code
            if not answer.results and not code:  # how version 2 and earlier say it
                code = ClusterAuthorizationFailedError.errno
            raise_first([(code, None, f"directories of broker {broker}")])
            directories = [to_dict(result) for result in answer.results]
            for directory in directories:  # 2.8 also names the topics that it was not asked about, bare
                directory["topics"] = [topic for topic in directory["topics"] if topic["partitions"]]
            found.append({"broker": broker, "log_dirs": directories})
        return found

    return (
        yield from requiring_release(
            "1.0", retrying(attempt, what="describing directories", backoff=backoff, timeout_s=left_s)
        )
    )


def alter_replica_log_dirs(
    replica_assignments: Mapping[TopicPartitionReplica | tuple[str, int, int], str],
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
) -> Dialogue[dict[TopicPartitionReplica, type[BrokerResponseError]]]:
    """Let replicas move to another directory of their broker, by its absolute path: ``{replica: error class}``, NoError
    where the move has begun (LogDirNotFoundError, KafkaStorageError, UnknownTopicOrPartitionError;
    ReplicaNotAvailableError: not there yet, and it will come into that directory).

    Takes TopicPartitionReplica or ``(topic, partition, broker id)``. Source: KIP-113; brokers since 1.0.
    """
    message = AlterReplicaLogDirsRequest
    wanted: dict[int, dict[str, dict[str, list[int]]]] = {}
    form = "{TopicPartitionReplica: path} is needed"
    for given, path in mapping_of(replica_assignments, "replica_assignments", form).items():
        if not isinstance(path, str):
            raise IllegalArgumentError(f"{given}: {path!r}: the absolute path of a directory")
        topic, number, broker = _replica(given)
        wanted.setdefault(broker, {}).setdefault(path, {}).setdefault(topic, []).append(number)
    if not wanted:
        return {}
    requests = [
        Send(
            broker,
            message(
                dirs=[
                    message.AlterReplicaLogDir(
                        path=path,
                        topics=[
                            message.AlterReplicaLogDirTopic(name=topic, partitions=numbers)
                            for topic, numbers in topics.items()
                        ],
                    )
                    for path, topics in directories.items()
                ]
            ),
        )
        for broker, directories in wanted.items()
    ]

    def attempt() -> Dialogue[list[Any]]:
        return (yield from request_brokers(requests))

    answers = yield from requiring_release(
        "1.0", retrying(attempt, what="moving replicas to other directories", backoff=backoff, timeout_s=timeout_s)
    )
    return {
        TopicPartitionReplica(topic.topic_name, one.partition_index, broker): for_code(one.error_code)
        for broker, answer in zip(wanted, answers, strict=True)
        for topic in answer.results
        for one in topic.partitions
    }


def _replica(given: TopicPartitionReplica | tuple[str, int, int]) -> TopicPartitionReplica:
    if isinstance(given, tuple) and len(given) == 3:
        topic, number, broker = given
        if isinstance(topic, str) and isinstance(number, int) and isinstance(broker, int):
            return TopicPartitionReplica(topic, number, broker)
    raise IllegalArgumentError(
        f"replica_assignments: {given!r}: a TopicPartitionReplica or (topic, partition, broker id) is needed"
    )
