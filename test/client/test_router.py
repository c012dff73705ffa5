"""Routes that have to be learnt: leaders, controllers, coordinators."""

from __future__ import annotations

import pytest

from kafka.core.routing import AnyNode, Controller, Coordinator, CoordinatorType, Leader
from kafka.errors import (
    GroupAuthorizationFailedError,
    InvalidTopicMetadataError,
    KafkaConnectionError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    StaleMetadata,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kafka.protocol.groups import ListGroupsRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.structs import TopicPartition
from test.client.support import NONE, World
from test.support.scripted import CLOSE, MODERN, SILENT, ScriptedBroker

JOBS = TopicPartition("jobs", 0)
TWO = {1: ("one", 1), 2: ("two", 2)}


@pytest.fixture
def one(world: World) -> ScriptedBroker:
    return ScriptedBroker(world.network, "one", 1, node_id=1, brokers=TWO)


@pytest.fixture
def two(world: World) -> ScriptedBroker:
    return ScriptedBroker(world.network, "two", 2, node_id=2, brokers=TWO)


def not_coordinator(request: object, version: int) -> FindCoordinatorResponse:
    coordinator = FindCoordinatorResponse.Coordinator
    return FindCoordinatorResponse(coordinators=[coordinator(key="g", error_code=15, error_message="being made")])


def test_a_request_goes_to_the_partitions_leader(world: World, one: ScriptedBroker, two: ScriptedBroker) -> None:
    one.topics = two.topics = {"jobs": {0: 2}}
    client = world.client("one:1", all_topics=False)
    world.wait(client.request(Leader(JOBS), ListGroupsRequest()))
    assert len(two.requests(ListGroupsRequest)) == 1 and not one.requests(ListGroupsRequest)
    assert client.cluster.wanted_topics == {"jobs"}


def test_a_leader_that_is_not_known_costs_one_refresh(world: World, one: ScriptedBroker) -> None:
    one.brokers = {1: ("one", 1)}
    client = world.settled(world.client("one:1", all_topics=False))
    one.topics = {"jobs": {0: 1}}
    before = len(one.requests(MetadataRequest))
    world.wait(client.request(Leader(JOBS), ListGroupsRequest()))
    world.wait(client.request(Leader(JOBS), ListGroupsRequest()))
    assert len(one.requests(MetadataRequest)) == before + 1


@pytest.mark.parametrize(
    ("topics", "error"),
    [
        ({}, UnknownTopicOrPartitionError),
        ({"jobs": {7: 1}}, InvalidTopicMetadataError),
        ({"jobs": {0: -1}}, LeaderNotAvailableError),
    ],
)
def test_a_leader_that_is_not_there_is_an_error_that_says_why(
    world: World, one: ScriptedBroker, topics: dict[str, dict[int, int]], error: type[Exception]
) -> None:
    one.brokers = {1: ("one", 1)}
    one.topics = topics
    client = world.client("one:1")
    found = world.failure(client.request(Leader(JOBS), ListGroupsRequest()))
    assert type(found) is error and "ListGroups to the leader of jobs-0" in str(found)


def test_the_leader_of_a_partition_that_the_topic_does_not_have_is_an_error(world: World, one: ScriptedBroker) -> None:
    one.brokers = {1: ("one", 1)}
    one.topics = {"jobs": {0: 1}}
    client = world.client("one:1")
    found = world.failure(client.request(Leader(TopicPartition("jobs", 7)), ListGroupsRequest()))
    assert type(found) is StaleMetadata and "no such partition" in str(found)


def test_a_request_goes_to_the_controller(world: World, one: ScriptedBroker, two: ScriptedBroker) -> None:
    one.controller_id = 2
    client = world.client("one:1")
    world.wait(client.request(Controller(), ListGroupsRequest()))
    assert len(two.requests(ListGroupsRequest)) == 1


def test_a_cluster_without_a_known_controller_is_an_error(world: World, one: ScriptedBroker) -> None:
    one.brokers = {1: ("one", 1)}
    one.controller_id = -1
    error = world.failure(world.client("one:1").request(Controller(), ListGroupsRequest()))
    assert isinstance(error, StaleMetadata) and "controller" in str(error)


@pytest.mark.parametrize("version", [0, 3, 6])
def test_a_coordinator_is_looked_up_in_each_versions_words(world: World, version: int) -> None:
    one = ScriptedBroker(world.network, "one", 1, ranges={**MODERN, 10: (0, version)})
    client = world.client("one:1")
    world.wait(client.request(Coordinator("g"), NONE))
    (request,) = one.requests(FindCoordinatorRequest)
    assert isinstance(request, FindCoordinatorRequest)
    assert (request.key or request.coordinator_keys[0]) == "g"


def test_a_coordinator_is_looked_up_once_for_all_who_wait_and_then_remembered(
    world: World, one: ScriptedBroker
) -> None:
    one.brokers = {1: ("one", 1)}
    client = world.client("one:1")
    group = Coordinator("g")
    futures = [client.request(group, NONE) for _ in range(3)]
    for future in futures:
        world.wait(future)
    world.wait(client.request(group, NONE))
    assert len(one.requests(FindCoordinatorRequest)) == 1
    client.coordinators.forget(group)
    world.wait(client.request(group, NONE))
    assert len(one.requests(FindCoordinatorRequest)) == 2


def test_a_coordinator_that_is_being_made_is_asked_for_again(world: World, one: ScriptedBroker) -> None:
    one.brokers = {1: ("one", 1)}
    one.answers[FindCoordinatorRequest] = [not_coordinator, not_coordinator, one.coordinator]
    client = world.client("one:1")
    world.wait(client.request(Coordinator("g"), NONE))


def test_a_final_error_of_the_look_up_is_the_requests_error(world: World, one: ScriptedBroker) -> None:
    def refused(request: object, version: int) -> FindCoordinatorResponse:
        coordinator = FindCoordinatorResponse.Coordinator
        return FindCoordinatorResponse(coordinators=[coordinator(key="g", error_code=30)])

    one.answers[FindCoordinatorRequest] = refused
    error = world.failure(world.client("one:1").request(Coordinator("g"), NONE))
    assert isinstance(error, GroupAuthorizationFailedError)


def test_a_lost_connection_makes_its_coordinators_unknown(world: World, one: ScriptedBroker) -> None:
    one.brokers = {1: ("one", 1)}
    client = world.client("one:1")
    group = Coordinator("g")
    world.wait(client.request(group, NONE))
    one.answers[ListGroupsRequest] = lambda request, version: CLOSE
    assert isinstance(world.failure(client.request(1, ListGroupsRequest())), KafkaConnectionError)
    assert client.coordinators.get(group) is None


def test_a_coordinator_outside_the_metadata_is_reached_where_the_answer_says(
    world: World, one: ScriptedBroker, two: ScriptedBroker
) -> None:
    one.brokers = {1: ("one", 1)}

    def on_two(request: object, version: int) -> FindCoordinatorResponse:
        coordinator = FindCoordinatorResponse.Coordinator
        return FindCoordinatorResponse(coordinators=[coordinator(key="t", node_id=2, host="two", port=2)])

    one.answers[FindCoordinatorRequest] = on_two
    client = world.client("one:1")
    world.wait(client.request(Coordinator("t", CoordinatorType.TRANSACTION), ListGroupsRequest()))
    assert len(two.requests(ListGroupsRequest)) == 1


def test_the_deadline_holds_while_the_route_is_learnt(world: World, one: ScriptedBroker) -> None:
    one.answers[FindCoordinatorRequest] = lambda request, version: SILENT
    client = world.settled(world.client("one:1"))
    began = world.now
    error = world.failure(client.request(Coordinator("g"), NONE, 2))
    assert isinstance(error, KafkaTimeoutError) and "the coordinator of group 'g'" in str(error)
    assert world.now - began == pytest.approx(2)


def test_any_node_is_the_one_with_least_to_do(world: World, one: ScriptedBroker, two: ScriptedBroker) -> None:
    client = world.settled(world.client("one:1"))
    one.answers[ListGroupsRequest] = two.answers[ListGroupsRequest] = lambda request, version: SILENT
    world.wait(client.request(1, NONE))
    world.wait(client.request(2, NONE))
    for _ in range(4):
        client.request(AnyNode(), ListGroupsRequest())
        world.run(0.01)
    assert len(one.requests(ListGroupsRequest)) == len(two.requests(ListGroupsRequest)) == 2
