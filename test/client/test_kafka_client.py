"""The client by hand: ready, send, poll, delays, topics, scheduled tasks, check_version."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import kafka
from kafka.client.kafka_client import KafkaClient
from kafka.errors import (
    Cancelled,
    IllegalStateError,
    KafkaConfigurationError,
    KafkaConnectionError,
    NodeNotReadyError,
    UnknownBrokerIdError,
    UnrecognizedBrokerVersion,
)
from kafka.future import Future
from kafka.net.clock import ManualClock
from kafka.protocol.api_versions import ApiVersionsRequest
from kafka.protocol.groups import ListGroupsRequest, ListGroupsResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from test.client.support import NONE, World
from test.support.scripted import CLOSE, SILENT, ScriptedBroker

LIST = ListGroupsRequest()


@pytest.fixture
def client(world: World, broker: ScriptedBroker) -> KafkaClient:
    return world.settled(world.client())


def test_it_is_a_public_name() -> None:
    assert kafka.KafkaClient is KafkaClient


def test_an_unknown_setting_is_an_error_that_names_the_nearest(world: World) -> None:
    with pytest.raises(KafkaConfigurationError, match="request_timeout_ms"):
        world.client(request_timeout=5)


@pytest.mark.parametrize("servers", ["host:port", "host:0", "a b", "[::1:9092"])
def test_a_server_that_is_none_is_a_configuration_error(world: World, servers: str) -> None:
    with pytest.raises(KafkaConfigurationError, match="bootstrap_servers"):
        world.client(servers)


def test_the_client_id_says_name_and_version(world: World) -> None:
    assert world.client().config["client_id"] == f"kafka-taskloop-{kafka.__version__}"


# -- ready and send ---------------------------------------------------------------------------------------------------


def test_by_hand_a_client_gets_ready_sends_and_polls(world: World, broker: ScriptedBroker) -> None:
    client = world.client()
    assert not client.ready(1) and not client.is_ready(1)
    for _ in range(100):
        if client.ready(1):
            break
        client.poll(100)
    future = client.send(1, LIST)
    responses = client.poll(future=future)
    assert isinstance(future.value, ListGroupsResponse)
    assert [type(response) for response in responses] == [ListGroupsResponse]


def test_is_ready_changes_nothing(world: World, client: KafkaClient, broker: ScriptedBroker) -> None:
    client.close(1)
    before = broker.accepted
    assert not client.is_ready(1)
    world.run(1)
    assert broker.accepted == before
    client.ready(1)
    world.run(0.1)
    assert client.is_ready(1)


def test_nothing_is_ready_while_a_metadata_refresh_is_due_or_under_way(
    world: World, client: KafkaClient, broker: ScriptedBroker
) -> None:
    world.run(0.2)
    assert client.is_ready(1)
    broker.answers[MetadataRequest] = lambda request, version: SILENT
    client.cluster.request_update()
    assert not client.is_ready(1) and not client.ready(1)  # due
    world.run(0.1)
    assert client.cluster.metadata_refresh_in_progress and not client.ready(1)
    assert client.connected(1)


def test_send_to_a_node_that_is_not_ready_raises(world: World, broker: ScriptedBroker) -> None:
    client = world.client()
    with pytest.raises(NodeNotReadyError, match="node 1 takes no request now: not connected"):
        client.send(1, LIST)


def test_send_refuses_more_than_may_be_in_flight(client: KafkaClient, broker: ScriptedBroker) -> None:
    broker.answers[ListGroupsRequest] = lambda request, version: SILENT
    for _ in range(5):
        client.send(1, LIST)
    with pytest.raises(NodeNotReadyError):
        client.send(1, LIST)
    assert client.in_flight_request_count() == client.in_flight_request_count(1) == 5
    assert client.in_flight_request_count(2) == 0


# -- poll -------------------------------------------------------------------------------------------------------------


def test_poll_returns_the_responses_that_came(world: World, client: KafkaClient) -> None:
    futures: list[Future[Any]] = [client.send(1, LIST), client.request(1, NONE)]
    seen: list[Any] = []
    while not all(future.is_done for future in futures):
        seen += client.poll(1000)
    assert [type(response) for response in seen] == [ListGroupsResponse, MetadataResponse]


def test_poll_with_nothing_to_do_waits_the_retry_back_off_and_no_longer(world: World, client: KafkaClient) -> None:
    began = world.now
    assert client.poll(5_000) == []
    assert world.now - began == pytest.approx(0.1)


def test_poll_with_sleep_waits_the_time_out(world: World, client: KafkaClient) -> None:
    began = world.now
    assert client.poll(5_000, sleep=True) == []
    assert world.now - began == pytest.approx(5)


def test_poll_waits_for_what_is_in_flight(world: World, client: KafkaClient, broker: ScriptedBroker) -> None:
    world.network.link("kafka", "me").delay_s = 1.5
    client.send(1, LIST)
    began = world.now
    (response,) = client.poll(5_000)
    assert isinstance(response, ListGroupsResponse)
    assert world.now - began == pytest.approx(1.5)


def test_poll_with_a_future_goes_on_until_it_is_done(world: World, client: KafkaClient) -> None:
    future: Future[None] = Future()
    world.loop.call_later(100, future.success, None)
    began = world.now
    client.poll(10, future=future)
    assert world.now - began == pytest.approx(100)


def test_wakeup_ends_a_poll_from_another_thread(broker: ScriptedBroker) -> None:
    client = KafkaClient(bootstrap_servers="127.0.0.1:1")
    try:
        client.poll(0)
        while client.router.bootstrap.is_under_way or client.router.bootstrap.failures < 1:
            client.poll(100)  # nobody is there: from now on only back-offs end by themselves
        client.router.bootstrap.next_at = client.loop.time() + 3600
        client._refresher.close()
        client.loop.run_once(0)
        timer = threading.Timer(0.05, client.wakeup)
        timer.start()
        began = time.monotonic()
        assert client.poll(300_000, sleep=True) == []
        assert time.monotonic() - began < 45
        timer.join()
    finally:
        client.close()


# -- nodes ------------------------------------------------------------------------------------------------------------


def test_delays_are_in_milliseconds(world: World, client: KafkaClient, broker: ScriptedBroker) -> None:
    assert client.connection_delay(99) == 0
    assert client.connection_delay(1) == 999999999
    broker.stop()
    world.run(0.01)
    assert client.connection_delay(1) == pytest.approx(40 - 10, abs=10)
    assert client.is_disconnected(1) and not client.is_disconnected(99)
    broker.restart()
    world.run(0.04)
    client.ready(1)
    assert client.connection_delay(1) == 0  # connecting
    world.run(0.01)
    assert client.connection_delay(1) == 999999999


def test_a_connected_node_without_work_is_least_loaded(world: World) -> None:
    brokers = {1: ("one", 1), 2: ("two", 2), 3: ("three", 3)}
    made = [
        ScriptedBroker(world.network, host, port, node_id=node, brokers=brokers)
        for node, (host, port) in brokers.items()
    ]
    client = world.settled(world.client("one:1"))
    first = client.least_loaded_node()
    assert first in brokers
    for broker in made:
        broker.answers[ListGroupsRequest] = lambda request, version: SILENT
    assert first is not None
    client.request(first, LIST)
    world.run(0.01)
    second = client.least_loaded_node()
    # One request is in flight on the only connection, and it is still the connected one with least to do.
    assert second == first
    made[list(brokers).index(int(first))].stop()
    world.run(0.001)
    third = client.least_loaded_node()
    assert third in brokers and third != first


def test_without_any_broker_the_answer_is_none_and_the_servers_are_tried(world: World) -> None:
    client = world.client("nowhere:1")
    assert client.least_loaded_node() is None
    assert client.router.bootstrap.is_under_way


def test_closing_a_node_leaves_the_others_and_the_client(world: World, client: KafkaClient) -> None:
    client.close(1)
    client.close(99)
    assert not client.connected(1)
    assert world.wait(client.request(1, NONE)).brokers


# -- topics -----------------------------------------------------------------------------------------------------------


def test_all_topics_are_requested_by_default(world: World, client: KafkaClient, broker: ScriptedBroker) -> None:
    broker.topics = {"a": {0: 1}, "b": {0: 1}}
    world.wait(client.set_topics(["a"]))
    assert client.cluster.topics() == {"a"}
    world.wait(client.add_topic("b"))
    assert client.cluster.topics() == {"a", "b"}
    assert client.add_topic("b").is_done
    broker.topics["c"] = {0: 1}
    world.wait(client.set_topics([]))
    assert client.cluster.topics() == {"a", "b", "c"}


def test_metadata_is_read_again_after_its_age(world: World, client: KafkaClient, broker: ScriptedBroker) -> None:
    before = len(broker.requests(MetadataRequest))
    world.run(299)
    assert len(broker.requests(MetadataRequest)) == before
    world.run(2)
    assert len(broker.requests(MetadataRequest)) == before + 1


def test_a_failed_refresh_is_tried_again_after_the_back_off(
    world: World, client: KafkaClient, broker: ScriptedBroker
) -> None:
    broker.answers[MetadataRequest] = [lambda request, version: CLOSE, broker.metadata]
    future = client.refresh_metadata()
    assert isinstance(world.failure(future), KafkaConnectionError)
    world.settled(client)


# -- scheduled tasks --------------------------------------------------------------------------------------------------


def test_a_scheduled_task_runs_at_its_time_of_the_wall_clock(world: World, client: KafkaClient) -> None:
    clock = world.loop.clock
    assert isinstance(clock, ManualClock)
    ran: list[float] = []

    def task() -> str:
        ran.append(world.now)
        return "done"

    began = world.now
    future = client.schedule(task, clock.time() + 5)
    clock.step(1000)  # an administrator sets the clock: the deadline stays
    assert world.wait(future) == "done"
    assert ran == [pytest.approx(began + 5)]


def test_the_exception_of_a_task_is_its_futures(world: World, client: KafkaClient) -> None:
    def task() -> None:
        raise ValueError("mine")

    assert isinstance(world.failure(client.schedule(task, 0)), ValueError)


def test_scheduling_again_and_unscheduling_cancel(world: World, client: KafkaClient) -> None:
    ran: list[int] = []

    def task() -> None:
        ran.append(1)

    later = world.loop.clock.time() + 5
    first = client.schedule(task, later)
    second = client.schedule(task, later + 1)
    assert isinstance(first.exception, Cancelled)
    client.unschedule(task)
    assert isinstance(second.exception, Cancelled)
    client.unschedule(task)
    world.run(10)
    assert ran == []


# -- check_version ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", ["0.8.0", "0.8.1", "0.8.2", "0.9"])
@pytest.mark.parametrize("strict", [False, True])
def test_check_version_distinguishes_old_brokers(world: World, release: str, strict: bool) -> None:
    broker = ScriptedBroker.of_release(world.network, release)
    client = world.client()
    began = world.now
    assert client.check_version(strict=strict) == release
    assert world.now - began < 2  # no step ran into its time limit
    accepted = broker.accepted
    assert client.check_version() == release
    assert broker.accepted == accepted  # cached


def test_check_version_leaves_the_nodes_connection_as_it_is(
    world: World, client: KafkaClient, broker: ScriptedBroker
) -> None:
    assert client.check_version(1) == "4.3"
    world.run(0.1)
    assert client.connected(1) and len(broker.open) == 1
    client.close(1)
    assert client.check_version(1) == "4.3"
    assert not client.connected(1)


def test_check_version_of_an_unknown_node_says_so(client: KafkaClient) -> None:
    with pytest.raises(UnknownBrokerIdError, match="node 99"):
        client.check_version(99)


def test_a_silent_peer_costs_one_step(world: World, broker: ScriptedBroker) -> None:
    broker.answers[ApiVersionsRequest] = broker.answers[MetadataRequest] = lambda request, version: SILENT
    client = world.client()
    began = world.now
    with pytest.raises(kafka.errors.NoBrokersAvailable, match="answers nothing"):
        client.check_version(timeout=3)
    assert world.now - began == pytest.approx(3)


def test_a_peer_that_speaks_something_else_is_no_broker(world: World, broker: ScriptedBroker) -> None:
    def garbage(request: object, version: int) -> bytes:
        return b"HTTP/1.1 400 Bad Request\r\n\r\n"

    broker.ranges = {0: (0, 0), 3: (0, 0), 16: (0, 0), 10: (0, 0), 9: (0, 0), 18: (0, 4)}
    for request in list(broker.answers):
        broker.answers[request] = garbage
    with pytest.raises(UnrecognizedBrokerVersion):
        world.client().check_version()
    with pytest.raises(kafka.errors.KafkaProtocolError, match="no Kafka message"):
        world.client().check_version(strict=True)


# -- the end ----------------------------------------------------------------------------------------------------------


def test_a_closed_client_says_so(client: KafkaClient) -> None:
    with client:
        pass
    client.close()
    for use in (lambda: client.request(1, NONE), client.poll, lambda: client.ready(1), client.check_version):
        with pytest.raises(IllegalStateError, match="closed"):
            use()
