"""Dialogues about the directories in which brokers keep their logs (KIP-113). Each broker answers for its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafka.core.admin.answers import raise_first, since, time_left
from kafka.core.admin.cluster import ask_brokers, broker_ids_of_the_cluster
from kafka.core.admin.given import mapping_of, numbers_of
from kafka.core.admin.plain import to_dict
from kafka.core.admin.topics import Partitions, partitions_of
from kafka.core.dialogue import Dialogue, Send, now
from kafka.core.retry import Backoff, retrying
from kafka.errors import BrokerResponseError, ClusterAuthorizationFailedError, IllegalArgumentError, for_code
from kafka.protocol.log_dirs import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from kafka.structs import TopicPartitionReplica


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
        answers = yield from ask_brokers([Send(broker, request) for broker in asked])
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
        yield from since("1.0", retrying(attempt, what="describing directories", backoff=backoff, timeout_s=left_s))
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
        return (yield from ask_brokers(requests))

    answers = yield from since(
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
