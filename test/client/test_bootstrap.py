"""Reaching the first broker: rounds over all servers, back-off, the node named bootstrap."""

from __future__ import annotations

from typing import Any

import pytest

from kafka.client.connection import BOOTSTRAP
from kafka.core.routing import AnyNode
from kafka.errors import KafkaTimeoutError, NoBrokersAvailable
from kafka.future import Future
from kafka.protocol.api_versions import ApiVersionsRequest
from kafka.protocol.groups import ListGroupsRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.wire.message import Request
from test.client.support import NONE, Fixed, World
from test.support.scripted import CLOSE, SILENT, ScriptedBroker


def test_the_servers_are_tried_in_turn_until_one_answers(world: World) -> None:
    broker = ScriptedBroker(world.network, "third", 9)
    client = world.client("first:7,second:8,third:9")
    assert world.wait(client.request(AnyNode(), NONE)).brokers
    assert broker.accepted == 2  # the bootstrap connection, and that of node 1
    assert client.least_loaded_node() == 1


def test_rounds_back_off_and_double(world: World) -> None:
    client = world.client("nowhere:1", rng=Fixed(0.5))
    bootstrap = client.router.bootstrap
    begun: list[float] = []
    start = bootstrap._try_next

    def counted() -> None:
        begun.append(world.now)
        start()

    bootstrap._try_next = counted  # type: ignore[method-assign]
    assert isinstance(world.failure(client.request(AnyNode(), NONE, 4)), KafkaTimeoutError)
    waits = [later - earlier for earlier, later in zip(begun, begun[1:], strict=False)]
    assert waits == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.6])


def test_without_an_error_the_log_says_once_each_time_that_no_broker_is_reachable(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    quiet, client = world.client("nowhere:1"), world.client("nowhere:1")
    client.log_when_unreachable()
    waits = [each.request(AnyNode(), NONE, 100) for each in (quiet, client)]
    world.run(20)
    (told,) = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    assert "no bootstrap server can be reached" in told and "nowhere:1" in told
    broker = ScriptedBroker(world.network, "nowhere", 1)
    for wait in waits:
        world.wait(wait)
    assert broker.accepted and len([record for record in caplog.records if record.levelname == "WARNING"]) == 1


def test_without_a_back_off_a_server_that_comes_is_found_and_the_loop_has_rest(world: World) -> None:
    client = world.client(reconnect_backoff_ms=0, reconnect_backoff_max_ms=0)
    answer = client.request(AnyNode(), NONE, 100)
    world.run(1)
    assert 50 <= client.router.bootstrap.failures <= 101
    ScriptedBroker(world.network)
    assert world.wait(answer, 1).brokers


def test_an_address_that_takes_connections_and_serves_none_is_not_the_only_one_tried(world: World) -> None:
    world.mine.names["kafka"] = ["dead", "alive"]
    dead = ScriptedBroker(world.network, "dead", 9092)
    dead.answers = {ApiVersionsRequest: lambda request, version: CLOSE}
    ScriptedBroker(world.network, "alive", 9092)
    client = world.client()
    found = world.wait(client.request(AnyNode(), NONE, 10)).brokers
    assert [broker.host for broker in found] == ["alive"]
    assert dead.accepted > 0


def test_the_wait_between_rounds_has_an_end(world: World) -> None:
    client = world.client("nowhere:1", rng=Fixed(0.5))
    client.router.bootstrap.failures = 40
    world.run(0.01)
    assert client.router.bootstrap.next_at - world.now == pytest.approx(30, abs=0.1)  # reconnect_backoff_max_ms


def test_the_wait_between_rounds_differs_from_client_to_client(world: World) -> None:
    """By 20 % either way: not all clients of a broker that comes back are there in the same instant (KIP-580)."""
    waits = []
    for chance in (0.0, 1.0):
        client = world.client("nowhere:1", rng=Fixed(chance))
        client.router.bootstrap.failures = 40
        world.run(0.01)
        waits.append(client.router.bootstrap.next_at - world.now)
    assert waits == pytest.approx([24, 36], abs=0.1)


def test_servers_that_move_are_found_anew_for_each_round_but_the_first(world: World) -> None:
    client = world.client("first:1", rng=Fixed(0.5))
    found: list[list[tuple[str, int]] | OSError] = [OSError("cannot be started"), [("second", 2)]]
    asked: list[float] = []

    def find_servers() -> Future[Any]:
        asked.append(world.now)
        future: Future[Any] = Future()
        outcome = found.pop(0)
        complete = future.failure if isinstance(outcome, OSError) else future.success
        world.loop.call_later(0.2, complete, outcome)
        return future

    client.router.bootstrap._find_servers = find_servers
    ScriptedBroker(world.network, "second", 2)
    future = client.request(AnyNode(), NONE, 30)
    world.run(0.3)
    assert "cannot be started" in client.router.bootstrap.why()
    assert world.wait(future).brokers
    assert asked == pytest.approx([0.05, 0.35], abs=0.01)


def test_a_request_that_finds_no_broker_says_what_happened_at_each_server(world: World) -> None:
    client = world.client("one:1,two:2")
    error = world.failure(client.request(AnyNode(), NONE, 3))
    assert isinstance(error, KafkaTimeoutError)
    for part in ("Metadata to any node: not sent within 3 s", "bootstrap server (one:1)", "two:2: Connection refused"):
        assert part in str(error)


def test_a_broker_that_comes_later_is_found(world: World) -> None:
    client = world.client()
    future = client.request(AnyNode(), NONE, 30)
    world.run(1)
    ScriptedBroker(world.network)
    assert world.wait(future).brokers


def test_the_bootstrap_connection_ends_when_brokers_are_known(world: World, broker: ScriptedBroker) -> None:
    client = world.settled(world.client())
    assert client.router.nodes.find(BOOTSTRAP) is None
    assert len(broker.open) == 1 and client.connected(1)


def test_a_broker_that_knows_of_none_is_kept_as_the_node_bootstrap(world: World) -> None:
    broker = ScriptedBroker.of_release(world.network, "0.8.2", brokers={})
    client = world.client()
    world.run(1)
    assert client.connected(BOOTSTRAP) and client.least_loaded_node() == BOOTSTRAP
    assert world.wait(client.request(AnyNode(), NONE)).brokers == []
    broker.brokers = {1: ("kafka", 9092)}  # a topic was made
    world.settled(client)
    assert client.least_loaded_node() == 1
    assert not client.connected(BOOTSTRAP)


def test_when_every_known_broker_is_gone_the_servers_are_asked_again(world: World) -> None:
    first = ScriptedBroker(world.network, "first", 1, node_id=1)
    client = world.settled(world.client("first:1,second:2"))
    first.stop()
    world.run(0.01)
    ScriptedBroker(world.network, "second", 2, node_id=2)
    assert world.loop.run_until(lambda: {broker.nodeId for broker in client.cluster.brokers()} == {2}, 30)
    assert client.least_loaded_node() == 2
    assert world.wait(client.request(AnyNode(), NONE, 30)).brokers


def test_brokers_that_are_gone_are_not_tried_for_ever_instead_of_the_servers(world: World) -> None:
    """Their back-off is shorter than that of the metadata here, so one of them may always be tried when it is due."""
    first = ScriptedBroker(world.network, "first", 1, node_id=1)
    first.brokers = {1: ("gone", 1)}
    ScriptedBroker(world.network, "gone", 1, node_id=1).brokers = {1: ("gone", 1)}
    client = world.settled(world.client("first:1", reconnect_backoff_ms=20, reconnect_backoff_max_ms=40))
    assert client.connected(1)
    world.network.cut("me", "gone")
    world.network._fabric.listeners.pop(("gone", 1))
    first.brokers = {2: ("first", 1)}
    assert world.loop.run_until(lambda: {broker.nodeId for broker in client.cluster.brokers()} == {2}, 10)


def test_a_request_under_way_on_the_bootstrap_connection_keeps_it(world: World) -> None:
    broker = ScriptedBroker.of_release(world.network, "0.9", brokers={})
    client = world.client()
    world.run(1)
    broker.answers[ListGroupsRequest] = lambda request, version: SILENT
    broker.brokers = {1: ("kafka", 9092)}
    world.network.link("kafka", "me").delay_s = 0.2
    assert world.loop.run_until(lambda: client.cluster.metadata_refresh_in_progress, 10)
    future = client.request(BOOTSTRAP, ListGroupsRequest(), 3)
    world.run(2)
    assert client.connected(BOOTSTRAP) and client.cluster.brokers() and not future.is_done


def test_check_version_says_at_once_that_nobody_is_there(world: World) -> None:
    client = world.client("one:1,two:2")
    with pytest.raises(NoBrokersAvailable, match=r"one:1.*Connection refused.*two:2.*Connection refused"):
        client.check_version()


@pytest.mark.parametrize("lost", [ApiVersionsRequest, MetadataRequest])
@pytest.mark.parametrize("count", [1, 3])
def test_check_version_goes_on_after_lost_connections(
    world: World, broker: ScriptedBroker, lost: type[Request[Any]], count: int
) -> None:
    answer: Any = broker.answers[lost]
    left = [CLOSE] * count
    broker.answers[lost] = lambda request, version: left.pop() if left else answer(request, version)
    assert world.client().check_version(timeout=5) == "4.3"
    assert not left


def test_check_version_of_a_server_that_loses_every_connection_ends(world: World, broker: ScriptedBroker) -> None:
    broker.answers[MetadataRequest] = lambda request, version: CLOSE
    with pytest.raises(NoBrokersAvailable, match="closed the connection during ApiVersions"):
        world.client().check_version(timeout=5)
    assert 3 < world.now < 6
