"""One question for many partitions: who is asked, and what is asked again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kafka.core.admin.routing import request_leaders, results_or_raise
from kafka.errors import (
    BrokerResponseError,
    IllegalArgumentError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    NotLeaderForPartitionError,
    TopicAuthorizationFailedError,
    UnknownBrokerIdError,
    UnknownError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.transactions import DescribeProducersRequest as Question
from kafka.structs import TopicPartition
from test.core.admin.driving import BACKOFF
from test.core.admin.many_brokers import Brokers

A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
NOT_LEADER, DENIED = 6, 29


class Told:
    """Answers by hand: for each partition what comes, one after the other; a number above 0 is an error's code."""

    def __init__(self, brokers: Brokers, **codes: list[int]) -> None:
        self.brokers = brokers
        self.codes = {TopicPartition(name[0], int(name[1:])): list(given) for name, given in codes.items()}
        self.asked: list[tuple[Any, list[TopicPartition]]] = []
        brokers.handlers[Question] = self.answer

    def answer(self, node: Any, request: Question) -> Any:
        partitions = [TopicPartition(t.name, number) for t in request.topics for number in t.partition_indexes]
        self.asked.append((node, partitions))
        found: dict[TopicPartition, Any] = {}
        for partition in partitions:
            if partition in self.codes:
                left = self.codes[partition]
                code = left.pop(0) if len(left) > 1 else left[0]
                found[partition] = for_code(code)("") if code else node
        return found

    def run(self, *partitions: TopicPartition, **options: Any) -> Mapping[TopicPartition, Any]:
        def build(asked: Any) -> Question:
            topics = [Question.TopicRequest(name=topic, partition_indexes=[number]) for topic, number in asked]
            return Question(topics=topics)

        dialogue = request_leaders(
            partitions, build, lambda found: found, what="asking", backoff=BACKOFF, timeout_s=2.0, **options
        )
        found: Mapping[TopicPartition, Any] = self.brokers.run(dialogue)
        return found


def test_each_leader_is_asked_once_for_all_of_its_partitions() -> None:
    told = Told(Brokers({A: 1, B: 2, C: 1}), t0=[0], t1=[0], u0=[0])
    assert told.run(A, B, C, A) == {A: 1, B: 2, C: 1}
    assert told.asked == [(1, [A, C]), (2, [B])]
    assert told.run() == {}


def test_many_partitions_of_a_leader_are_asked_for_in_several_requests_side_by_side() -> None:
    """The embedded broker ends the connection of a request for more."""
    partitions = [TopicPartition("t", number) for number in range(1500)]
    told = Told(Brokers(dict.fromkeys(partitions, 1)), **{f"t{number}": [0] for number in range(1500)})
    assert told.run(*partitions) == dict.fromkeys(partitions, 1)
    assert [len(asked) for _, asked in told.asked] == [700, 700, 100]
    assert [each for _, asked in told.asked for each in asked] == partitions


def test_only_what_came_to_the_wrong_broker_is_asked_again() -> None:
    told = Told(Brokers({A: 1, B: 2}), t0=[0], t1=[NOT_LEADER, 0])
    assert told.run(A, B) == {A: 1, B: 2}
    assert told.asked == [(1, [A]), (2, [B]), (2, [B])]


def test_a_partition_that_is_not_there_has_its_error_at_once_and_the_others_an_answer() -> None:
    told = Told(Brokers({A: 1}), t0=[0])
    found = told.run(A, B, C)
    assert found[A] == 1
    assert isinstance(found[B], UnknownTopicOrPartitionError) and isinstance(found[C], UnknownTopicOrPartitionError)
    with pytest.raises(UnknownTopicOrPartitionError, match="there is no t-1"):
        results_or_raise(found)


def test_the_error_of_a_topic_is_that_of_its_partitions() -> None:
    brokers = Brokers({A: 1})
    topic = MetadataResponse.MetadataResponseTopic
    denied = MetadataResponse(brokers=[], topics=[topic(error_code=DENIED, name="t", partitions=[])])
    brokers.handlers[MetadataRequest] = lambda node, request: denied
    found = Told(brokers).run(A, C)
    assert isinstance(found[A], TopicAuthorizationFailedError) and found[A].args == ("topic t",)
    assert isinstance(found[C], UnknownTopicOrPartitionError), "which is not in the answer at all"
    assert brokers.asked(Question) == []


def test_a_final_error_is_the_answer() -> None:
    found = Told(Brokers({A: 1, B: 1}), t0=[DENIED], t1=[0]).run(A, B)
    assert isinstance(found[A], TopicAuthorizationFailedError) and found[B] == 1
    with pytest.raises(TopicAuthorizationFailedError, match="t-0"):
        results_or_raise(found)


def test_errors_name_the_partition_once_and_have_the_brokers_text() -> None:
    for error, text in (
        (TopicAuthorizationFailedError("no"), "t-0: no"),
        (TopicAuthorizationFailedError("not t-0"), "not t-0"),
        (TopicAuthorizationFailedError(""), "t-0"),
        (TopicAuthorizationFailedError(), "t-0"),
    ):
        with pytest.raises(TopicAuthorizationFailedError) as caught:
            results_or_raise({B: 1, A: error})
        assert caught.value.args == (text,)
    assert results_or_raise({A: 0, B: None}) == {A: 0, B: None}


def test_broker_0_leads_as_any_other() -> None:
    told = Told(Brokers({A: 0}), t0=[0])
    assert told.run(A) == {A: 0}
    assert told.asked == [(0, [A])]


def test_a_partition_without_a_leader_is_waited_for_as_long_as_there_is_time() -> None:
    brokers = Brokers({A: -1})
    with pytest.raises(KafkaTimeoutError, match="t-0 has no leader now"):
        Told(brokers, t0=[0]).run(A)
    assert brokers.refreshes > 1


def test_a_partition_without_a_leader_has_its_error_at_once_where_nobody_waits() -> None:
    brokers = Brokers({A: 1, B: -1})
    found = Told(brokers, t0=[0]).run(A, B, waits_for_leaders=False)
    assert found[A] == 1 and isinstance(found[B], LeaderNotAvailableError)
    assert brokers.refreshes == 0


def test_the_last_attempts_error_is_raised() -> None:
    told = Told(Brokers({A: 1}), t0=[NOT_LEADER])
    with pytest.raises(NotLeaderForPartitionError):
        told.run(A, attempts=1)
    assert told.asked == [(1, [A])]


@pytest.mark.parametrize("partitions", ["events", A, 7, None, ["ab"], [("t", "0")], [("t", 0, 1)], [7]])
def test_what_are_no_partitions_is_refused_before_anything_is_asked(partitions: Any) -> None:
    brokers = Brokers()
    asking = request_leaders(partitions, Question, lambda found: found, what="asking", backoff=BACKOFF, timeout_s=2.0)
    with pytest.raises(IllegalArgumentError, match="TopicPartition"):
        brokers.run(asking)
    assert brokers.sent == []


def test_a_node_that_is_given_is_asked_alone_and_taken_at_its_word() -> None:
    told = Told(Brokers(), t0=[0], t1=[NOT_LEADER])
    found = told.run(A, B, node_id=7)
    assert found[A] == 7 and isinstance(found[B], NotLeaderForPartitionError)
    assert told.asked == [(7, [A, B])]


def test_what_a_broker_leaves_out_is_an_error_of_its_own() -> None:
    found = Told(Brokers({A: 1})).run(A)
    assert isinstance(found[A], UnknownError) and isinstance(found[A], BrokerResponseError)


def test_a_broker_that_has_just_joined_is_looked_for_twice() -> None:
    brokers = Brokers({A: 3})
    told = Told(brokers, t0=[0])
    errors = [UnknownBrokerIdError("node 3")]
    brokers.handlers[Question] = lambda node, request: errors.pop() if errors else told.answer(node, request)
    assert told.run(A) == {A: 3}
    assert brokers.refreshes == 1
    errors += [UnknownBrokerIdError("node 3")] * 3
    with pytest.raises(UnknownBrokerIdError):
        told.run(A)
