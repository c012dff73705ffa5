"""The dialogue about the controllers' quorum."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from kafka.core.admin.cluster import describe_metadata_quorum
from kafka.core.dialogue import Send
from kafka.errors import ClusterAuthorizationFailedError, IncompatibleBrokerVersion
from kafka.protocol.quorum import DescribeQuorumResponse
from test.core.admin.driving import BACKOFF, run

UNKNOWN_TOPIC, NOT_LEADER, NOT_ALLOWED = 3, 6, 31
DIRECTORY = UUID(int=5)



def described(*answers: Any) -> tuple[Any, list[Any]]:
    return run(describe_metadata_quorum(backoff=BACKOFF), *answers)


def quorum(code: int = 0, *, whole: int = 0, text: str | None = "") -> DescribeQuorumResponse:
    message = DescribeQuorumResponse
    voter = message.ReplicaState(replica_id=1, replica_directory_id=DIRECTORY, log_end_offset=9)
    part = message.PartitionData(
        partition_index=0,
        error_code=code,
        error_message=text,
        leader_id=1,
        leader_epoch=4,
        high_watermark=9,
        current_voters=[voter],
        observers=[],
    )
    node = message.Node(node_id=1, listeners=[message.Listener(name="CONTROLLER", host="h", port=1)])
    topic = message.TopicData(topic_name="__cluster_metadata", partitions=[part])
    return message(error_code=whole, topics=[topic], nodes=[node])


def test_the_quorum_is_a_dictionary_with_texts_for_errors() -> None:
    found, (send,) = described(quorum())
    assert found == {
        "topics": [
            {
                "topic_name": "__cluster_metadata",
                "partitions": [
                    {
                        "partition_index": 0,
                        "error": None,
                        "leader_id": 1,
                        "leader_epoch": 4,
                        "high_watermark": 9,
                        "current_voters": [
                            {
                                "replica_id": 1,
                                "replica_directory_id": str(DIRECTORY),
                                "log_end_offset": 9,
                                "last_fetch_timestamp": -1,
                                "last_caught_up_timestamp": -1,
                            }
                        ],
                        "observers": [],
                    }
                ],
            }
        ],
        "nodes": [{"node_id": 1, "listeners": [{"name": "CONTROLLER", "host": "h", "port": 1}]}],
    }
    assert json.dumps(found)
    (topic,) = send.request.topics
    assert (topic.topic_name, [one.partition_index for one in topic.partitions]) == ("__cluster_metadata", [0])


@pytest.mark.parametrize("text", ["not here", None])
def test_the_error_of_the_partition_is_reported(text: str | None) -> None:
    found, _ = described(quorum(UNKNOWN_TOPIC, text=text))
    error = found["topics"][0]["partitions"][0]["error"]
    assert error == "[Error 3] UnknownTopicOrPartitionError" + (f": {text}" if text else "")


def test_controllers_that_elect_their_leader_are_asked_again() -> None:
    found, steps = described(quorum(NOT_LEADER), quorum(whole=NOT_LEADER), quorum())
    assert found["topics"][0]["partitions"][0]["error"] is None
    assert sum(isinstance(step, Send) for step in steps) == 3


def test_the_error_of_the_request_is_raised() -> None:
    with pytest.raises(ClusterAuthorizationFailedError, match="quorum"):
        described(quorum(whole=NOT_ALLOWED))


def test_brokers_without_a_quorum_are_distinguished_from_those_with_one() -> None:
    with pytest.raises(IncompatibleBrokerVersion, match=r"does not have it; brokers have it since release 3\.3, with"):
        described(IncompatibleBrokerVersion("node 1 does not have it"))
