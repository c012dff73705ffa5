"""Getting back to the cluster when the brokers that are known are not there any more (KIP-899, KIP-1102)."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kafka.client.connection import BOOTSTRAP
from kafka.core.routing import AnyNode, Coordinator
from kafka.errors import KafkaConnectionError, KafkaTimeoutError
from kafka.protocol.groups import ListGroupsRequest
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.structs import TopicPartition
from test.client.support import NONE, Fixed, World
from test.support.scripted import CLOSE, SILENT, ScriptedBroker

REBOOTSTRAP_REQUIRED = 129


def moved_cluster(world: World) -> tuple[ScriptedBroker, Any]:
    """A client of a broker at a:1 behind the name "service"; then that broker ends, and the name leads to b."""
    world.network.names["service"] = ["a"]
    first = ScriptedBroker(world.network, "a", 1, node_id=1)
    first.brokers = {1: ("a", 1)}
    return first, world.network.names


def arrives(world: World, client: Any, *nodes: int) -> None:
    """Run until the client knows these brokers and no others."""
    assert world.loop.run_until(lambda: {broker.nodeId for broker in client.cluster.brokers()} == set(nodes), 60)
    world.run(0.01)


def test_the_servers_names_are_looked_up_anew_when_no_known_broker_can_be_reached(world: World) -> None:
    first, names = moved_cluster(world)
    client = world.settled(world.client("service:1"))
    first.stop()
    world.run(0.01)
    names["service"] = ["b"]
    second = ScriptedBroker(world.network, "b", 1, node_id=7)
    arrives(world, client, 7)
    assert client.least_loaded_node() == 7 and second.accepted
    assert not client.connected(BOOTSTRAP)
    assert world.wait(client.request(AnyNode(), NONE, 30)).brokers[0].node_id == 7


def test_a_name_that_is_unknown_for_a_while_is_looked_up_again(world: World) -> None:
    first, names = moved_cluster(world)
    client = world.settled(world.client("service:1"))
    first.stop()
    world.run(0.01)
    names["service"] = []
    world.run(10)
    assert "service: Name or service not known" in client.router.bootstrap.why()
    names["service"] = ["b"]
    ScriptedBroker(world.network, "b", 1, node_id=7)
    arrives(world, client, 7)


def test_with_the_strategy_none_only_brokers_that_are_known_are_tried(world: World) -> None:
    first, names = moved_cluster(world)
    client = world.settled(world.client("service:1", metadata_recovery_strategy="none"))
    first.stop()
    world.run(0.01)
    names["service"] = ["b"]
    second = ScriptedBroker(world.network, "b", 1, node_id=7)
    world.run(100)
    assert not second.accepted and client.cluster.is_failing
    first.restart()
    assert world.loop.run_until(lambda: not client.cluster.is_failing, 60)
    assert world.wait(client.request(AnyNode(), NONE, 60)).brokers[0].node_id == 1


def test_with_the_strategy_none_the_first_brokers_are_still_found_through_the_servers(world: World) -> None:
    client = world.client("service:1", metadata_recovery_strategy="none")
    future = client.request(AnyNode(), NONE, 30)
    world.run(3)
    ScriptedBroker(world.network, "service", 1)
    assert world.wait(future).brokers


def test_brokers_that_accept_connections_and_return_no_metadata_are_given_up_after_the_trigger(world: World) -> None:
    """Addresses that are somebody else's by now: there is always one that can be reached, so only time tells
    (KIP-1102)."""
    first, names = moved_cluster(world)
    other = ScriptedBroker(world.network, "a2", 1, node_id=2)
    first.brokers = {1: ("a", 1), 2: ("a2", 1)}
    client = world.settled(
        world.client("service:1", metadata_recovery_rebootstrap_trigger_ms=60_000, request_timeout_ms=20_000)
    )
    names["service"] = ["b"]
    second = ScriptedBroker(world.network, "b", 1, node_id=7)
    first.answers[MetadataRequest] = other.answers[MetadataRequest] = lambda request, version: SILENT
    client.cluster.request_update()
    began = world.now
    assert world.loop.run_until(lambda: second.accepted > 0, 200)
    assert world.now - began == pytest.approx(60, abs=1)
    world.settled(client)
    assert {broker.nodeId for broker in client.cluster.brokers()} == {7}
    assert not first.open and not other.open, "the old connections are closed"


def test_the_trigger_counts_from_the_first_attempt_after_the_last_success(world: World, broker: ScriptedBroker) -> None:
    client = world.settled(world.client(metadata_recovery_rebootstrap_trigger_ms=10_000, metadata_max_age_ms=1_000))
    anew: list[str] = []
    client._refresher._rebootstrap = anew.append
    world.run(60)
    assert not anew, "each success begins it anew"
    answer: Any = broker.answers[MetadataRequest]
    broker.answers[MetadataRequest] = lambda request, version: CLOSE
    world.run(6)
    broker.answers[MetadataRequest] = answer
    world.run(20)
    broker.answers[MetadataRequest] = lambda request, version: CLOSE
    world.run(6)
    assert not anew
    world.run(10)
    assert len(anew) == 1 and "10 s" in anew[0]


def test_a_broker_that_asks_for_it_is_obeyed_at_once(world: World) -> None:
    first, names = moved_cluster(world)
    first.topics = {"t": {0: 1}}
    client = world.settled(world.client("service:1"))
    names["service"] = ["b"]
    second = ScriptedBroker(world.network, "b", 1, node_id=7)
    second.topics = {"t": {0: 7}}
    first.answers[MetadataRequest] = lambda request, version: MetadataResponse(
        brokers=[], topics=[], error_code=REBOOTSTRAP_REQUIRED
    )
    first.answers[ListGroupsRequest] = lambda request, version: SILENT
    held = client.request(1, ListGroupsRequest(), 30, lane="other")
    world.run(0.01)
    client.cluster.request_update()
    began = world.now
    error = world.failure(held)
    assert isinstance(error, KafkaConnectionError) and error.retriable and "bootstrap servers" in str(error)
    world.settled(client)
    assert world.now - began < 1
    assert not first.open and {broker.nodeId for broker in client.cluster.brokers()} == {7}
    assert client.cluster.leader_for_partition(TopicPartition("t", 0)) == 7


def test_with_the_strategy_none_a_broker_that_asks_for_it_is_asked_again_later(world: World) -> None:
    broker = ScriptedBroker(world.network)
    client = world.settled(world.client(metadata_recovery_strategy="none"))
    answer: Any = broker.answers[MetadataRequest]
    refusal = MetadataResponse(brokers=[], topics=[], error_code=REBOOTSTRAP_REQUIRED)
    left = [refusal, refusal]
    broker.answers[MetadataRequest] = lambda request, version: left.pop() if left else answer(request, version)
    client.cluster.request_update()
    assert world.loop.run_until(lambda: not left and not client.cluster.is_failing, 10)
    assert not left and broker.open and client.cluster.brokers()


def test_while_the_servers_are_asked_partitions_are_known_and_nobody_leads_them(world: World) -> None:
    """So a producer goes on taking records, and sends none to a broker that is not believed."""
    first, names = moved_cluster(world)
    first.topics = {"t": {0: 1, 1: 1}}
    client = world.settled(world.client("service:1"))
    names["service"] = []
    client.router.rebootstrap("a test says so")
    assert client.cluster.brokers() == set()
    assert client.cluster.partitions_for_topic("t") == {0, 1}
    assert client.cluster.available_partitions_for_topic("t") == set()
    assert client.coordinators.get(Coordinator("g")) is None


def test_a_cluster_with_another_id_is_noted(world: World, caplog: pytest.LogCaptureFixture) -> None:
    first, names = moved_cluster(world)

    def with_cluster_id(broker: ScriptedBroker, cluster_id: str) -> Any:
        def script(request: Any, version: int) -> Any:
            answer = broker.metadata(request, version)
            assert isinstance(answer, MetadataResponse)
            answer.cluster_id = cluster_id if version >= 2 else None
            return answer

        return script

    first.answers[MetadataRequest] = with_cluster_id(first, "one")
    client = world.settled(world.client("service:1"))
    client.cluster.request_update()
    world.run(1)
    assert client.cluster.cluster_id == "one" and client.cluster.former_cluster_id is None
    first.stop()
    world.run(0.01)
    names["service"] = ["b"]
    second = ScriptedBroker(world.network, "b", 1, node_id=1)
    second.brokers = {1: ("b", 1)}
    second.answers[MetadataRequest] = with_cluster_id(second, "two")
    with caplog.at_level(logging.WARNING):
        assert world.loop.run_until(lambda: client.cluster.cluster_id == "two", 30)
    assert client.cluster.cluster_id == "two" and client.cluster.former_cluster_id == "one"
    assert "cluster id changed from one to two" in caplog.text


def test_a_node_that_moved_is_tried_at_its_new_address_without_the_back_off_of_the_old_one(world: World) -> None:
    other = ScriptedBroker(world.network, "other", 1, node_id=2)
    other.brokers = {1: ("old", 1), 2: ("other", 1)}
    client = world.settled(
        world.client(
            "other:1",
            rng=Fixed(0.5),
            reconnect_backoff_ms=20_000,
            reconnect_backoff_max_ms=20_000,
            metadata_max_age_ms=500,
        )
    )
    assert isinstance(world.failure(client.request(1, NONE, 2)), (KafkaConnectionError, KafkaTimeoutError))
    ScriptedBroker(world.network, "new", 1, node_id=1)
    other.brokers = {1: ("new", 1), 2: ("other", 1)}
    assert client.connection_delay(1) > 15_000
    began = world.now
    assert world.wait(client.request(1, NONE, 15)).brokers
    assert world.now - began < 2


def test_after_the_servers_led_back_the_count_of_failed_rounds_begins_anew(world: World) -> None:
    first, names = moved_cluster(world)
    client = world.settled(world.client("service:1"))
    first.stop()
    world.run(0.01)
    world.run(40)
    assert client.router.bootstrap.failures > 3
    client.router.rebootstrap("a test says so")
    assert client.router.bootstrap.failures <= 1
