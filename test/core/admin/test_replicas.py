"""Dialogues about moves and elections: who is asked, what is asked again, and what becomes of errors."""

from __future__ import annotations

from typing import Any

import pytest

from kafka.core.admin.topics import alter_partition_reassignments, elect_leaders, list_partition_reassignments
from kafka.core.admin.values import ElectionType
from kafka.core.dialogue import RefreshMetadata
from kafka.core.routing import Controller
from kafka.errors import (
    ClusterAuthorizationFailedError,
    IllegalArgumentError,
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    NoReassignmentInProgressError,
    PreferredLeaderNotAvailableError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.metadata import MetadataResponse
from kafka.protocol.reassignments import (
    AlterPartitionReassignmentsResponse,
    ElectLeadersResponse,
    ListPartitionReassignmentsResponse,
)
from kafka.structs import TopicPartition
from test.core.admin.driving import BACKOFF, run, sends

UNKNOWN_TOPIC, NOT_CONTROLLER, NOT_ALLOWED, NO_PREFERRED, NOT_NEEDED, NO_MOVE = 3, 41, 31, 80, 84, 85
HERE, THERE = TopicPartition("t", 0), TopicPartition("t", 1)




def altered(code: int = 0, **codes: int) -> AlterPartitionReassignmentsResponse:
    message = AlterPartitionReassignmentsResponse
    parts = [
        message.ReassignablePartitionResponse(partition_index=int(name[1:]), error_code=each, error_message=None)
        for name, each in codes.items()
    ]
    topic = message.ReassignableTopicResponse(name="t", partitions=parts)
    return message(throttle_time_ms=0, error_code=code, error_message=None, responses=[topic])


def test_a_move_is_the_controllers_who_is_looked_for_when_it_has_changed() -> None:
    moves = {HERE: (2, 1), THERE: None}
    found, steps = run(
        alter_partition_reassignments(moves, backoff=BACKOFF), altered(NOT_CONTROLLER), altered(p0=0, p1=NO_MOVE)
    )
    assert found == {HERE: None, THERE: NoReassignmentInProgressError}
    assert [send.target for send in sends(steps)] == [Controller()] * 2
    assert any(isinstance(step, RefreshMetadata) for step in steps)
    first: Any = sends(steps)[0]
    (topic,) = first.request.topics
    assert [(one.partition_index, one.replicas) for one in topic.partitions] == [(0, [2, 1]), (1, None)]
    assert (first.request.timeout_ms, first.timeout_s) == (30_000, 35.0)


def test_the_error_of_the_whole_request_is_raised() -> None:
    with pytest.raises(ClusterAuthorizationFailedError, match="moves of partitions"):
        run(alter_partition_reassignments({HERE: [1]}, backoff=BACKOFF), altered(NOT_ALLOWED))


@pytest.mark.parametrize("replicas", [[], "12", ["1"]])
def test_no_brokers_at_all_are_refused_before_anything_is_sent(replicas: Any) -> None:
    with pytest.raises(IllegalArgumentError, match="t-0: "):
        run(alter_partition_reassignments({HERE: replicas}, backoff=BACKOFF))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([HERE], r"reassignments=.*: \{TopicPartition: \[broker id\]\} is needed"),
        ({"ab": [1]}, "reassignments: 'ab': a TopicPartition is needed"),
        ({HERE: 2}, "t-0: brokers=2: a list of their ids"),
        ({HERE: [True]}, r"t-0: brokers=\[True\]: a list of their ids"),
    ],
)
def test_what_is_no_move_is_an_error_in_one_line(given: Any, text: str) -> None:
    with pytest.raises(IllegalArgumentError, match=text) as caught:
        run(alter_partition_reassignments(given, backoff=BACKOFF))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("lost", [KafkaConnectionError("gone"), RequestTimedOutError("late")])
def test_a_move_that_a_lost_answer_called_off_is_called_off(lost: Exception) -> None:
    moves = {HERE: [1], THERE: None}
    found, _ = run(
        alter_partition_reassignments(moves, backoff=BACKOFF), lost, altered(NOT_CONTROLLER), altered(p0=0, p1=NO_MOVE)
    )
    assert found == {HERE: None, THERE: None}
    found, _ = run(alter_partition_reassignments(moves, backoff=BACKOFF), lost, altered(p0=NO_MOVE, p1=UNKNOWN_TOPIC))
    assert found == {HERE: NoReassignmentInProgressError, THERE: UnknownTopicOrPartitionError}


def test_no_moves_are_nothing_to_ask() -> None:
    assert run(alter_partition_reassignments({}, backoff=BACKOFF)) == ({}, [])


def under_way() -> ListPartitionReassignmentsResponse:
    message = ListPartitionReassignmentsResponse
    part = message.OngoingPartitionReassignment(
        partition_index=0, replicas=[2, 1], adding_replicas=[2], removing_replicas=[1]
    )
    topic = message.OngoingTopicReassignment(name="t", partitions=[part])
    return message(throttle_time_ms=0, error_code=0, error_message=None, topics=[topic])


@pytest.mark.parametrize(
    ("given", "asked"), [(None, None), ({"t": range(2)}, [("t", [0, 1])]), ([THERE, HERE], [("t", [1, 0])]), ([], [])]
)
def test_moves_are_listed_of_all_or_some_partitions(given: Any, asked: Any) -> None:
    found, (send,) = run(list_partition_reassignments(given, backoff=BACKOFF), under_way())
    assert found == {HERE: {"replicas": [2, 1], "adding_replicas": [2], "removing_replicas": [1]}}
    topics = send.request.topics
    assert (None if topics is None else [(topic.name, topic.partition_indexes) for topic in topics]) == asked


def elected(*codes: int, whole: int = 0) -> ElectLeadersResponse:
    message = ElectLeadersResponse
    parts = [
        message.PartitionResult(partition_id=number, error_code=code, error_message=None)
        for number, code in enumerate(codes)
    ]
    result = message.ReplicaElectionResult(topic="t", partition_result=parts)
    return message(throttle_time_ms=0, error_code=whole, replica_election_results=[result])


def described(partitions: int, code: int = 0) -> MetadataResponse:
    parts = [
        MetadataResponse.MetadataResponsePartition(
            error_code=0, partition_index=number, leader_id=1, replica_nodes=[1], isr_nodes=[1]
        )
        for number in reversed(range(partitions))
    ]
    topic = MetadataResponse.MetadataResponseTopic(error_code=code, name="t", partitions=parts)
    return MetadataResponse(brokers=[], topics=[topic])


@pytest.mark.parametrize("kind", [ElectionType.PREFERRED, 0, "preferred", "Preferred"])
def test_that_no_election_was_needed_is_no_error(kind: Any) -> None:
    found, (send,) = run(elect_leaders(kind, [HERE, THERE], backoff=BACKOFF), elected(0, NOT_NEEDED))
    assert found == {
        "error_code": 0,
        "replica_election_results": [
            {
                "topic": "t",
                "partition_result": [
                    {"partition_id": 0, "error_code": 0, "error_message": None},
                    {"partition_id": 1, "error_code": NOT_NEEDED, "error_message": None},
                ],
            }
        ],
    }
    assert (send.target, send.request.election_type, send.min_version) == (Controller(), 0, None)


def test_the_first_error_of_an_election_is_raised_or_all_are_returned() -> None:
    with pytest.raises(PreferredLeaderNotAvailableError, match="partition t-1"):
        run(elect_leaders(0, [HERE, THERE], backoff=BACKOFF), elected(0, NO_PREFERRED))
    with pytest.raises(ClusterAuthorizationFailedError, match="election of leaders"):
        run(elect_leaders(0, [HERE], backoff=BACKOFF), elected(whole=NOT_ALLOWED))
    found, _ = run(elect_leaders(0, [HERE], backoff=BACKOFF, raise_errors=False), elected(0, NO_PREFERRED))
    assert [one["error_code"] for one in found["replica_election_results"][0]["partition_result"]] == [0, NO_PREFERRED]


def test_an_election_that_was_no_longer_the_controllers_is_asked_for_again() -> None:
    _, steps = run(elect_leaders(0, [HERE], backoff=BACKOFF), elected(NOT_CONTROLLER), elected(0))
    assert len(sends(steps)) == 2


def test_topics_by_their_names_are_all_their_partitions() -> None:
    _, steps = run(elect_leaders(0, ["t"], backoff=BACKOFF), described(2), elected(0, 0))
    (topic,) = sends(steps)[1].request.topic_partitions  # type: ignore[union-attr]
    assert (topic.topic, topic.partitions) == ("t", [0, 1])
    with pytest.raises(UnknownTopicOrPartitionError, match="topic t"):
        run(elect_leaders(0, ["t"], backoff=BACKOFF), described(0, UNKNOWN_TOPIC))


def test_of_all_topics_those_that_were_deleted_meanwhile_do_not_matter() -> None:
    found, _ = run(elect_leaders(0, backoff=BACKOFF), described(2), elected(0, UNKNOWN_TOPIC))
    assert len(found["replica_election_results"][0]["partition_result"]) == 2


def test_an_unclean_election_is_not_asked_of_brokers_that_know_no_kinds() -> None:
    with pytest.raises(IncompatibleBrokerVersion, match=r"brokers have it since release 2\.4") as caught:
        run(elect_leaders(ElectionType.UNCLEAN, [HERE], backoff=BACKOFF), IncompatibleBrokerVersion("too old"))
    assert str(caught.value).count("\n") == 0
    _, (send,) = run(elect_leaders(1, [HERE], backoff=BACKOFF), elected(0))
    assert (send.min_version, send.request.election_type) == (1, 1)


@pytest.mark.parametrize("kind", [2, "any", None, True, False])
def test_an_unknown_kind_of_election_is_refused_with_those_that_there_are(kind: Any) -> None:
    with pytest.raises(IllegalArgumentError, match="one of preferred, unclean"):
        run(elect_leaders(kind, [HERE], backoff=BACKOFF))


def test_one_text_is_no_list_of_topics() -> None:
    with pytest.raises(IllegalArgumentError, match="not one text"):
        run(elect_leaders(0, "topic", backoff=BACKOFF))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (HERE, "topic_partitions=TopicPartition.*: a list of partitions, not one"),
        ({"t": 0}, "topic_partitions: t=0: a list of partitions' numbers"),
        ({"t": None}, "topic_partitions: t=None: a list of partitions' numbers"),
        ({"t": "01"}, "topic_partitions: t='01': a list of partitions' numbers"),
        (5, "topic_partitions=5: a list of topics"),
        ([5], "topic_partitions: 5: a TopicPartition is needed"),
    ],
)
def test_what_is_no_list_of_partitions_is_an_error_in_one_line(given: Any, text: str) -> None:
    for call in (elect_leaders(0, given, backoff=BACKOFF), list_partition_reassignments(given, backoff=BACKOFF)):
        with pytest.raises(IllegalArgumentError, match=text):
            run(call)


def test_looking_topics_up_is_part_of_the_time() -> None:
    late = KafkaConnectionError("gone")
    limits: Any = {"backoff": BACKOFF, "timeout_s": 5.0}
    for call, answer in (
        (elect_leaders(0, ["t"], **limits), elected(0)),
        (list_partition_reassignments(["t"], **limits), under_way()),
    ):
        _, steps = run(call, late, described(1), answer)
        *_, last = sends(steps)
        assert (last.give_up_at, last.request.timeout_ms, last.timeout_s) == (5.0, 4900, 9.9)


def test_an_election_among_no_partitions_is_nothing_to_ask() -> None:
    nothing = {"error_code": 0, "replica_election_results": []}
    assert run(elect_leaders(0, [], backoff=BACKOFF)) == (nothing, [])
