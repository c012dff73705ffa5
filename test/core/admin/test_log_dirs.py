"""Dialogues about directories: each broker is asked about its own."""

from __future__ import annotations

from typing import Any

import pytest

from kafka.core.admin.cluster import alter_replica_log_dirs, describe_log_dirs
from kafka.errors import (
    ClusterAuthorizationFailedError,
    IllegalArgumentError,
    KafkaConnectionError,
    LogDirNotFoundError,
    NoError,
    UnknownBrokerIdError,
    UnknownError,
)
from kafka.protocol.log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from kafka.protocol.metadata import DescribeClusterResponse, MetadataResponse
from kafka.structs import TopicPartition, TopicPartitionReplica
from test.core.admin.driving import BACKOFF, asked

NOT_ALLOWED, NOT_FOUND = 31, 57



def cluster(*brokers: int) -> DescribeClusterResponse:
    broker = DescribeClusterResponse.DescribeClusterBroker
    found = [broker(broker_id=number, host="h", port=1) for number in brokers]
    return DescribeClusterResponse(throttle_time_ms=0, error_code=0, cluster_id="c", brokers=found)


def directories(*paths: str, code: int = 0) -> DescribeLogDirsResponse:
    message = DescribeLogDirsResponse
    part = message.DescribeLogDirsPartition(partition_index=0, partition_size=70, offset_lag=0, is_future_key=False)
    topic = message.DescribeLogDirsTopic(name="t", partitions=[part])
    results = [message.DescribeLogDirsResult(error_code=0, log_dir=path, topics=[topic]) for path in paths]
    return message(throttle_time_ms=0, error_code=code, results=results)


def test_topics_without_partitions_in_a_directory_are_not_reported() -> None:
    """As release 2.8 answers, which names every topic that it has."""
    answer = directories("/a")
    answer.results[0].topics.append(DescribeLogDirsResponse.DescribeLogDirsTopic(name="other", partitions=[]))
    found, _ = asked(describe_log_dirs({"t": [0]}, [1], backoff=BACKOFF), answer)
    assert [topic["name"] for topic in found[0]["log_dirs"][0]["topics"]] == ["t"]


def test_all_brokers_return_their_directories() -> None:
    found, sent = asked(describe_log_dirs(backoff=BACKOFF), cluster(1, 2), directories("/a", "/b"), directories("/c"))
    assert [step.target for step in sent[1:]] == [1, 2]
    assert all(step.request.topics is None for step in sent[1:])  # type: ignore[union-attr]
    assert [(one["broker"], [each["log_dir"] for each in one["log_dirs"]]) for one in found] == [
        (1, ["/a", "/b"]),
        (2, ["/c"]),
    ]
    assert found[1]["log_dirs"][0] == {
        "error_code": 0,
        "log_dir": "/c",
        "topics": [
            {
                "name": "t",
                "partitions": [{"partition_index": 0, "partition_size": 70, "offset_lag": 0, "is_future_key": False}],
            }
        ],
        "total_bytes": -1,
        "usable_bytes": -1,
        "is_cordoned": False,
    }


@pytest.mark.parametrize(
    ("given", "expected"), [({"t": [0, 3]}, [("t", [0, 3])]), ([TopicPartition("t", 1)], [("t", [1])]), ([], [])]
)
def test_some_brokers_are_asked_about_some_partitions(given: Any, expected: Any) -> None:
    _, (send,) = asked(describe_log_dirs(given, [7], backoff=BACKOFF), directories("/a"))
    assert send.target == 7
    assert isinstance(send.request, DescribeLogDirsRequest) and send.request.topics is not None
    assert [(topic.topic, topic.partitions) for topic in send.request.topics] == expected


def test_a_broker_that_was_not_reached_is_asked_again() -> None:
    found, sent = asked(describe_log_dirs(None, [7], backoff=BACKOFF), KafkaConnectionError("gone"), directories("/a"))
    assert (len(found), len(sent)) == (1, 2)


def test_a_broker_that_the_client_does_not_know_yet_is_looked_for() -> None:
    unknown = UnknownBrokerIdError("node 7")
    _, sent = asked(describe_log_dirs(None, [7], backoff=BACKOFF), unknown, directories("/a"))
    assert [send.target for send in sent] == [7, 7]
    _, sent = asked(alter_replica_log_dirs({("t", 0, 7): "/a"}, backoff=BACKOFF), unknown, moved(0))
    assert [send.target for send in sent] == [7, 7]


def test_another_error_of_the_whole_is_raised_as_it_is() -> None:
    with pytest.raises(UnknownError, match="directories of broker 7"):
        asked(describe_log_dirs(None, [7], backoff=BACKOFF), directories(code=-1))


@pytest.mark.parametrize("answer", [directories(), directories(code=NOT_ALLOWED)])
def test_missing_rights_to_see_directories_are_an_error_of_old_brokers_too(answer: DescribeLogDirsResponse) -> None:
    with pytest.raises(ClusterAuthorizationFailedError, match="directories of broker 7"):
        asked(describe_log_dirs(None, [7], backoff=BACKOFF), answer)


def moved(*codes: int) -> AlterReplicaLogDirsResponse:
    message = AlterReplicaLogDirsResponse
    parts = [
        message.AlterReplicaLogDirPartitionResult(partition_index=number, error_code=code)
        for number, code in enumerate(codes)
    ]
    result = message.AlterReplicaLogDirTopicResult(topic_name="t", partitions=parts)
    return message(throttle_time_ms=0, results=[result])


def test_each_broker_moves_its_own_replicas() -> None:
    moves = {
        TopicPartitionReplica("t", 0, 1): "/a",
        TopicPartitionReplica("t", 1, 1): "/b",
        ("t", 0, 2): "/c",
        ("u", 5, 1): "/a",
    }
    found, (first, second) = asked(alter_replica_log_dirs(moves, backoff=BACKOFF), moved(0, NOT_FOUND), moved(0))
    assert found == {
        TopicPartitionReplica("t", 0, 1): NoError,
        TopicPartitionReplica("t", 1, 1): LogDirNotFoundError,
        TopicPartitionReplica("t", 0, 2): NoError,
    }
    assert (first.target, second.target) == (1, 2)
    assert isinstance(first.request, AlterReplicaLogDirsRequest)
    assert [(one.path, [(t.name, t.partitions) for t in one.topics]) for one in first.request.dirs] == [
        ("/a", [("t", [0]), ("u", [5])]),
        ("/b", [("t", [1])]),
    ]


def test_a_path_is_a_text_and_no_moves_are_nothing_to_ask() -> None:
    assert asked(alter_replica_log_dirs({}, backoff=BACKOFF)) == ({}, [])
    wrong: Any = {("t", 0, 1): 5}
    with pytest.raises(IllegalArgumentError, match="absolute path"):
        asked(alter_replica_log_dirs(wrong, backoff=BACKOFF))


@pytest.mark.parametrize("wrong", [1, "1", ["1"], [True]])
def test_brokers_are_a_list_of_ids(wrong: Any) -> None:
    with pytest.raises(IllegalArgumentError, match="brokers=.*: a list of brokers' ids"):
        asked(describe_log_dirs(None, wrong, backoff=BACKOFF))


@pytest.mark.parametrize(
    "wrong",
    [
        [("t", 0, 1)],
        {("t", 0): "/a"},
        {("t", 0, 1, 2): "/a"},
        {"abc": "/a"},
        {5: "/a"},
        {(5, 0, 1): "/a"},
        {("t", "0", 1): "/a"},
        {("t", 0, "1"): "/a"},
    ],
)
def test_what_is_no_replica_is_an_error_in_one_line(wrong: Any) -> None:
    with pytest.raises(IllegalArgumentError, match=r"replica_assignments.* is needed"):
        asked(alter_replica_log_dirs(wrong, backoff=BACKOFF))


def test_looking_topics_up_is_part_of_the_time() -> None:
    part = MetadataResponse.MetadataResponsePartition(
        error_code=0, partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1]
    )
    topic = MetadataResponse.MetadataResponseTopic(error_code=0, name="t", partitions=[part])
    there = MetadataResponse(brokers=[], topics=[topic])
    call = describe_log_dirs(["t"], [7], backoff=BACKOFF, timeout_s=5.0)
    _, sent = asked(call, KafkaConnectionError("gone"), there, directories("/a"))
    assert [send.give_up_at for send in sent] == [5.0, 5.0, 5.0]
