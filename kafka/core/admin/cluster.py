"""Dialogues about the cluster and its brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from kafka.core.admin.responses import (
    AdminApi,
    each_partition,
    operations_of,
    raise_first,
    request_api,
    request_brokers,
    requiring_release,
    time_left,
    to_dict,
    topics_as,
)
from kafka.core.admin.topics import Partitions, partitions_of
from kafka.core.connection import ByVersion
from kafka.core.dialogue import Dialogue, Send, now, send
from kafka.core.retry import Backoff, retrying
from kafka.core.routing import AnyNode
from kafka.errors import (
    BrokerResponseError,
    ClusterAuthorizationFailedError,
    IllegalArgumentError,
    IncompatibleBrokerVersion,
    for_code,
)
from kafka.protocol.log_dirs import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from kafka.protocol.metadata import DescribeClusterRequest, MetadataRequest
from kafka.protocol.quorum import DescribeQuorumRequest
from kafka.structs import TopicPartitionReplica
from kafka.validation import mapping_of, numbers_of
from kafka.wire.message import Request, Response

R = TypeVar("R", bound=Response)

_FENCED_SINCE: Final = 2
_OPERATIONS: Final = "cluster_authorized_operations"


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


def request_each_broker(
    broker_ids: Sequence[int] | None, request: Request[R], min_version: int | None = None
) -> Dialogue[list[tuple[int, R]]]:
    """The answer of each of these brokers, or (None) of all in the cluster, without trying again."""
    asked = (yield from broker_ids_of_the_cluster()) if broker_ids is None else broker_ids
    answers = yield from request_brokers([Send(broker, request, min_version=min_version) for broker in asked])
    return list(zip(asked, answers, strict=True))


# Dialogues about the controllers' quorum (KIP-595).


METADATA_TOPIC: Final = "__cluster_metadata"
_DESCRIBE_QUORUM: Final = AdminApi(
    "describing the quorum",
    lambda answer: [
        (each.error_code, each.error_message, "the controllers' quorum")
        for each in (answer, *(one for topic in answer.topics for one in topic.partitions))
    ],
    AnyNode(),
    "3.3, with KRaft",
)


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
    answer = yield from request_api(_DESCRIBE_QUORUM, request, backoff, timeout_s, raise_errors=False)
    raise_first([(answer.error_code, answer.error_message, "the controllers' quorum")])
    found = to_dict(answer)
    for topics in found["topics"]:
        for one in topics["partitions"]:
            code, text = one.pop("error_code"), one.pop("error_message")
            one["error"] = str(for_code(code)(text or "")) if code else None
    return {name: found[name] for name in ("topics", "nodes")}


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
        topics = topics_as(message.DescribableLogDirTopic, wanted)
    request = message(topics=topics)
    left_s = yield from time_left(give_up_at)

    def attempt() -> Dialogue[list[dict[str, Any]]]:
        found = []
        for broker, answer in (yield from request_each_broker(named, request)):
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
    requests = []
    for broker, by_path in wanted.items():
        dirs = [
            message.AlterReplicaLogDir(path=path, topics=topics_as(message.AlterReplicaLogDirTopic, topics))
            for path, topics in by_path.items()
        ]
        requests.append(Send(broker, message(dirs=dirs)))
    answers = yield from requiring_release(
        "1.0",
        retrying(
            lambda: request_brokers(requests),
            what="moving replicas to other directories",
            backoff=backoff,
            timeout_s=timeout_s,
        ),
    )
    return {
        TopicPartitionReplica(*partition, broker): for_code(each.error_code)
        for broker, answer in zip(wanted, answers, strict=True)
        for partition, each in each_partition(answer.results)
    }


def _replica(given: TopicPartitionReplica | tuple[str, int, int]) -> TopicPartitionReplica:
    if isinstance(given, tuple) and len(given) == 3:
        topic, number, broker = given
        if isinstance(topic, str) and isinstance(number, int) and isinstance(broker, int):
            return TopicPartitionReplica(topic, number, broker)
    raise IllegalArgumentError(
        f"replica_assignments: {given!r}: a TopicPartitionReplica or (topic, partition, broker id) is needed"
    )
