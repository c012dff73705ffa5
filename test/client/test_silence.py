"""Nodes that have stopped, or were cut off without a word: connections stay open, and nothing comes."""

from __future__ import annotations

import pytest

from kafka.client import KafkaClient
from kafka.client.connection import MOST_HELD_S, SILENCE_S
from kafka.core.connection import ByVersion
from kafka.core.coordinator import FoundCoordinator
from kafka.core.routing import Coordinator, CoordinatorType
from kafka.errors import KafkaConnectionError, UnknownBrokerIdError
from kafka.future import Future
from kafka.protocol.fetch import FetchRequest
from kafka.protocol.groups import JoinGroupRequest, ListGroupsRequest, ListGroupsResponse
from kafka.protocol.metadata import MetadataRequest
from test.client.support import NONE, World
from test.support.scripted import MODERN, SILENT, ScriptedBroker, Signal

LIST = ListGroupsRequest()
FETCH_KEY = 1
WITH_FETCH = {**MODERN, FETCH_KEY: (4, 12)}
TWO = {1: ("one", 1), 2: ("two", 2)}


@pytest.fixture
def one(world: World) -> ScriptedBroker:
    return ScriptedBroker(world.network, "one", 1, node_id=1, brokers=TWO, ranges=WITH_FETCH)


@pytest.fixture
def two(world: World) -> ScriptedBroker:
    return ScriptedBroker(world.network, "two", 2, node_id=2, brokers=TWO, ranges=WITH_FETCH)


@pytest.fixture
def client(world: World, one: ScriptedBroker, two: ScriptedBroker) -> KafkaClient:
    """Connected to both."""
    client = world.settled(world.client("one:1"))
    for node in (1, 2):
        world.wait(client.request(node, NONE))
    return client


def answers_nothing(request: object, version: int) -> Signal:
    return SILENT


def note_looks(client: KafkaClient, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The instants at which it reads metadata because a node is silent, from now on."""
    looks: list[float] = []
    look = client.router._refresh_elsewhere

    def note(metadata_s: float) -> None:
        looks.append(client.loop.time())
        look(metadata_s)

    monkeypatch.setattr(client.router, "_refresh_elsewhere", note)
    return looks


def freeze(world: World, host: str) -> None:
    """As with SIGSTOP: what is sent to it waits, and it sends nothing."""
    world.network.partition("me", host)


def test_requests_to_a_silent_node_fail_when_the_cluster_does_not_have_it_any_more(
    world: World, client: KafkaClient, one: ScriptedBroker
) -> None:
    freeze(world, "two")
    began = world.now
    asked = [client.request(2, LIST) for _ in range(3)]
    world.run(1)
    one.brokers = {1: ("one", 1)}  # its session is over
    for request in asked:
        error = world.failure(request)
        assert isinstance(error, KafkaConnectionError) and error.retriable
        assert "node 2 (two:2): silent for 2.0 s, and not in the cluster's metadata any more" in str(error)
    assert world.now - began == pytest.approx(SILENCE_S, abs=0.2), "and not after request_timeout_ms"
    assert client.cluster.broker_metadata(2) is None


def test_a_node_that_cannot_be_reached_is_looked_for_between_attempts(
    world: World, one: ScriptedBroker, two: ScriptedBroker
) -> None:
    """It has been killed, say. The cluster gives it up long before the next attempt to connect."""
    waits_ms = {"reconnect_backoff_ms": 8_000, "reconnect_backoff_max_ms": 8_000, "retry_backoff_max_ms": 400}
    client = world.settled(world.client("one:1", **waits_ms))
    world.wait(client.request(2, NONE))
    two.stop()
    world.run(0.1)
    asked = client.request(2, LIST)
    world.run(3)
    assert not asked.is_done, "the cluster still has it"
    one.brokers = {1: ("one", 1)}
    began = world.now
    assert isinstance(world.failure(asked), UnknownBrokerIdError)
    assert world.now - began < 0.5
    before = len(one.requests(MetadataRequest))
    world.run(10)
    assert len(one.requests(MetadataRequest)) <= before + 1, "nothing waits for it any more"


def test_a_node_that_leaves_the_metadata_later_is_looked_for_until_then(
    world: World, client: KafkaClient, one: ScriptedBroker
) -> None:
    freeze(world, "two")
    began = world.now
    asked = client.request(2, LIST)
    world.run(9)
    assert not asked.is_done, "the cluster still has it"
    one.brokers = {1: ("one", 1)}
    assert isinstance(world.failure(asked), KafkaConnectionError)
    assert world.now - began <= 9 + SILENCE_S + 0.5


def test_a_silent_node_that_the_cluster_has_is_waited_for(
    world: World, client: KafkaClient, one: ScriptedBroker, two: ScriptedBroker
) -> None:
    before = len(one.requests(MetadataRequest))
    freeze(world, "two")
    asked = client.request(2, LIST)
    world.run(20)
    assert len(one.requests(MetadataRequest)) - before == pytest.approx(20 / SILENCE_S, abs=1), "a look each 2 s"
    accepted = two.accepted
    world.network.heal("me", "two")
    world.wait(asked)
    assert two.accepted == accepted, "on the same connection"


def test_metadata_that_a_silent_node_was_asked_for_is_asked_of_another(
    world: World, client: KafkaClient, one: ScriptedBroker, two: ScriptedBroker
) -> None:
    before = len(two.requests(MetadataRequest))
    freeze(world, "one")
    client.cluster.request_update()
    world.run(0.2)
    if len(two.requests(MetadataRequest)) > before:  # by chance: what goes next goes to the other
        client.cluster.request_update()
    refreshed = client.refresh_metadata()
    began = world.now
    world.wait(refreshed)
    assert world.now - began <= SILENCE_S + 1.2
    assert len(two.requests(MetadataRequest)) > before


def test_a_silent_node_is_the_last_that_is_chosen(world: World, client: KafkaClient, two: ScriptedBroker) -> None:
    freeze(world, "one")
    client.request(1, LIST)
    world.run(SILENCE_S)
    two.answers[ListGroupsRequest] = answers_nothing
    for _ in range(3):
        client.request(2, LIST)
    assert client.in_flight_request_count(1) < client.in_flight_request_count(2) and client.least_loaded_node() == 2


def test_a_request_that_lets_the_broker_wait_is_no_reason_to_look_before(
    world: World, client: KafkaClient, one: ScriptedBroker, two: ScriptedBroker
) -> None:
    two.answers[FetchRequest] = answers_nothing
    before = len(one.requests(MetadataRequest)) + len(two.requests(MetadataRequest))
    client.request(2, FetchRequest(max_wait_ms=10_000, min_bytes=1, topics=[]))
    world.run(9.9)
    assert len(one.requests(MetadataRequest)) + len(two.requests(MetadataRequest)) == before
    world.run(3)
    assert len(one.requests(MetadataRequest)) == before - len(two.requests(MetadataRequest)) + 1


def test_without_another_node_there_is_nobody_to_ask(world: World) -> None:
    alone = ScriptedBroker(world.network)
    client = world.settled(world.client())
    before = len(alone.requests(MetadataRequest))
    alone.answers[ListGroupsRequest] = answers_nothing
    client.request(1, LIST)
    world.run(20)
    assert len(alone.requests(MetadataRequest)) == before


def test_a_node_that_takes_connections_and_does_not_greet_is_given_up_too(
    world: World, one: ScriptedBroker, two: ScriptedBroker
) -> None:
    client = world.settled(world.client("one:1"))
    freeze(world, "two")
    asked = client.request(2, LIST)
    world.run(1)
    one.brokers = {1: ("one", 1)}
    began = world.now
    assert isinstance(world.failure(asked), KafkaConnectionError)
    assert world.now - began <= SILENCE_S


def test_what_a_living_node_waits_for_from_a_lost_coordinator_is_asked_again(
    world: World, client: KafkaClient, one: ScriptedBroker, two: ScriptedBroker
) -> None:
    """The leader verifies a transaction with its coordinator (KIP-890) and holds the connection meanwhile."""
    transaction = Coordinator("a transaction", CoordinatorType.TRANSACTION)
    client.coordinators.put(transaction, 2)
    one.answers[ListGroupsRequest] = answers_nothing
    dependent = client.request(1, ByVersion(ListGroupsRequest, lambda version: LIST, transaction))
    other = client.request(1, LIST, lane="another")
    world.run(SILENCE_S + 1)
    assert not dependent.is_done, "its coordinator is there"
    one.brokers = two.brokers = {1: ("one", 1)}
    world.wait(client.refresh_metadata())
    error = world.failure(dependent)
    assert isinstance(error, KafkaConnectionError) and "its ListGroups depends on node 2" in str(error)
    assert client.coordinators.get(transaction) is None and not other.is_done


@pytest.mark.parametrize("late_s", [1.9, 2.1, 5.0])
def test_metadata_that_takes_long_is_no_reason_to_read_it_again_and_again(
    world: World, client: KafkaClient, one: ScriptedBroker, two: ScriptedBroker, late_s: float
) -> None:
    for host in ("one", "two"):
        world.network.link(host, "me").delay_s = late_s
    before = len(one.requests(MetadataRequest)) + len(two.requests(MetadataRequest))
    client.cluster.request_update()
    world.run(250)
    assert len(one.requests(MetadataRequest)) + len(two.requests(MetadataRequest)) - before <= 4


def test_callbacks_of_requests_to_a_lost_node_may_close_its_other_connections(
    world: World, client: KafkaClient, one: ScriptedBroker
) -> None:
    for lane in ("x", "y"):
        world.wait(client.request(2, NONE, lane=lane))
    freeze(world, "two")
    lost = [client.request(2, LIST, lane=lane) for lane in ("x", "y")]
    lost[0].add_both(lambda outcome: client.close_lane("y"))
    one.brokers = {1: ("one", 1)}
    world.run(SILENCE_S + 1)
    assert all(request.is_done for request in lost) and not client.cluster.need_update


def test_the_time_in_which_a_broker_throttles_is_no_silence(
    world: World, client: KafkaClient, one: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = note_looks(client, monkeypatch)
    answers = [ListGroupsResponse(error_code=0, groups=[], throttle_time_ms=ms) for ms in (10_000, 0)]
    one.answers[ListGroupsRequest] = lambda request, version: answers.pop(0)
    world.network.link("one", "me").delay_s = 0.05
    for _ in range(2):
        world.wait(client.request(1, LIST))
    assert looks == []


def test_the_time_in_which_a_request_waits_for_its_route_is_no_silence(
    world: World, client: KafkaClient, one: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = note_looks(client, monkeypatch)
    group, transaction = Coordinator("g"), Coordinator("t", CoordinatorType.TRANSACTION)
    client.coordinators.put(transaction, 2)
    found: Future[FoundCoordinator] = Future()
    monkeypatch.setattr(client.router, "_look_up", lambda coordinator: found)
    asked = client.request(group, ByVersion(ListGroupsRequest, lambda version: LIST, transaction))
    world.run(SILENCE_S + 1)
    client.coordinators.put(transaction, 1)  # it has moved meanwhile
    world.network.link("one", "me").delay_s = 0.01
    found.success(FoundCoordinator(1, "one", 1))
    world.wait(asked)
    assert looks == []


def test_a_coordinator_that_holds_a_join_is_given_up_long_before_the_rebalance_must_end(
    world: World, client: KafkaClient, one: ScriptedBroker, two: ScriptedBroker
) -> None:
    two.ranges[JoinGroupRequest.api_key] = (0, 9)
    fresh = world.settled(world.client("one:1"))
    world.wait(fresh.request(2, NONE))
    freeze(world, "two")
    began = world.now
    join = JoinGroupRequest(
        group_id="g", session_timeout_ms=45_000, rebalance_timeout_ms=300_000, member_id="", protocol_type="consumer",
        protocols=[],
    )  # fmt: skip
    asked = fresh.request(2, join, 305)
    one.brokers = {1: ("one", 1)}
    assert isinstance(world.failure(asked), KafkaConnectionError)
    assert MOST_HELD_S <= world.now - began <= MOST_HELD_S + SILENCE_S + 1
