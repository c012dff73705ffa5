"""Throttling (KIP-219): a broker that answers with a throttle time takes nothing for so long, and nobody suffers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from kafka import KafkaConsumer, KafkaProducer
from kafka.client import KafkaClient
from kafka.client.router import Throttled, ThrottleTimes
from kafka.core.routing import AnyNode
from kafka.protocol.groups import ListGroupsRequest, ListGroupsResponse
from kafka.protocol.produce import ProduceRequest, ProduceResponse
from kafka.testing import EmbeddedBroker
from test.client.support import NONE, World
from test.producer.support import RANGES, Rig, producer_in_memory
from test.support.scripted import SILENT, ScriptedBroker
from test.support.waiting import until

LIST = ListGroupsRequest()


def throttling(ms: int) -> Any:
    return lambda request, version: ListGroupsResponse(error_code=0, groups=[], throttle_time_ms=ms)


@pytest.fixture
def client(world: World, broker: ScriptedBroker) -> KafkaClient:
    return world.settled(world.client())


def test_how_long_it_lasts_can_be_asked_for(world: World, broker: ScriptedBroker, client: KafkaClient) -> None:
    broker.answers[ListGroupsRequest] = throttling(2000)
    assert client.throttle_delay(1) == client.throttled_until(1) == 0
    world.wait(client.request(1, LIST))
    assert client.throttle_delay(1) == pytest.approx(2000)
    assert client.throttled_until(1) == pytest.approx(world.now + 2)
    assert client.throttle_delay(1, "a lane of its own") == 0, "another connection is another channel of the broker"
    world.run(2.01)
    assert client.throttle_delay(1) == client.throttled_until(1) == 0
    assert client.throttle_delay(99) == 0


def test_throttle_times_are_counted_by_api(world: World, broker: ScriptedBroker, client: KafkaClient) -> None:
    broker.answers[ListGroupsRequest] = [throttling(2000), throttling(0), throttling(500)]
    for _ in range(3):
        world.wait(client.request(1, LIST, 30))
    assert client.throttle.of("ListGroups") == Throttled(2, 2500, 2000)
    assert client.throttle.of("Metadata") == Throttled(0, 0, 0)
    assert set(client.throttle.by_api) == {"ListGroups"}


def test_counting_keeps_sum_and_maximum() -> None:
    times = ThrottleTimes()
    for ms in (5, 9, 2):
        times.note("Fetch", ms)
    assert times.of("Fetch") == Throttled(3, 16, 9)


def test_what_is_in_flight_goes_on(world: World, broker: ScriptedBroker, client: KafkaClient) -> None:
    world.network.link("kafka", "me").delay_s = 0.1
    broker.answers[ListGroupsRequest] = [throttling(5000), throttling(0)]
    first, second = client.request(1, LIST), client.request(1, LIST)
    world.wait(first)
    began = world.now
    world.wait(second)
    assert world.now - began < 1
    assert client.throttle_delay(1) > 4000, "an answer without a throttle time does not shorten it"


def test_a_connection_that_is_retired_while_it_is_throttled_begins_anew(
    world: World, broker: ScriptedBroker
) -> None:
    client = world.settled(world.client(connections_max_idle_ms=20_000))
    broker.answers[ListGroupsRequest] = [throttling(60_000), throttling(0)]
    world.wait(client.request(1, LIST))
    world.run(21)
    assert not client.connected(1) and client.throttle_delay(1) == 0
    began = world.now
    world.wait(client.request(1, LIST))
    assert world.now - began < 1


def test_another_node_is_asked_instead_when_any_will_do(world: World) -> None:
    where = {1: ("one", 1), 2: ("two", 1)}
    brokers = {
        node: ScriptedBroker(world.network, host, port, node_id=node, brokers=where)
        for node, (host, port) in where.items()
    }
    client = world.settled(world.client("one:1"))
    world.wait(client.request(1, NONE))
    brokers[1].answers[ListGroupsRequest] = throttling(5000)
    world.wait(client.request(1, LIST))
    count = len(brokers[1].received)
    began = world.now
    world.wait(client.request(AnyNode(), NONE))
    assert world.now - began < 1 and len(brokers[1].received) == count and brokers[2].received


# -- the producer ------------------------------------------------------------------------------------------------------


@pytest.fixture
def rig() -> Iterator[Rig]:
    with producer_in_memory(delivery_timeout_ms=600_000) as made:
        yield made


def throttle_produce(rig: Rig, *times_ms: int) -> list[float]:
    """Each Produce is answered with the next of the throttle times, then with none; the instants of the requests."""
    left = list(times_ms)
    instants: list[float] = []
    broker = rig.cluster.brokers[1]
    script: Any = broker.answers[ProduceRequest]

    def produce(request: Any, version: int) -> Any:
        instants.append(rig.loop.time())
        answer = script(request, version)
        if isinstance(answer, ProduceResponse):
            answer.throttle_time_ms = left.pop(0) if left else 0
        return answer

    broker.answers[ProduceRequest] = produce
    return instants


def test_a_producer_waits_out_a_throttle_time_longer_than_a_request_may_last(rig: Rig) -> None:
    """A quota may well ask for a minute; ``request_timeout_ms`` is 5 s here."""
    instants = throttle_produce(rig, 60_000)
    rig.producer.send("t", b"0", partition=0)
    rig.flush()
    began = rig.loop.time()
    later = [rig.producer.send("t", b"%d" % number, partition=0) for number in range(1, 20)]
    accepted = rig.cluster.brokers[1].accepted
    rig.flush()
    assert all(future.succeeded() for future in later)
    assert rig.loop.time() - began == pytest.approx(60, abs=0.1)
    assert rig.cluster.brokers[1].accepted == accepted, "the connection stays"
    assert len(instants) == 2, "what came meanwhile went out together"
    assert rig.producer._sender.counts.retries == 0
    assert rig.cluster.logs[0] == [b"%d" % number for number in range(20)]
    assert rig.client.throttle.of("Produce") == Throttled(1, 60_000, 60_000)


def test_a_broker_before_kip_219_has_waited_already_and_is_not_waited_for_again(rig: Rig) -> None:
    for broker in rig.cluster.brokers.values():
        broker.ranges = {**RANGES, 0: (3, 5), 18: (0, 1)}
    throttle_produce(rig, 60_000)
    for number in range(2):
        rig.producer.send("t", b"%d" % number, partition=0)
        rig.flush()
    assert rig.loop.time() < 10


def test_a_partition_whose_leader_moves_away_does_not_wait_for_the_node_that_throttles(rig: Rig) -> None:
    throttle_produce(rig, 60_000)
    rig.producer.send("t", b"0", partition=0)
    rig.flush()
    rig.cluster.lead(2)
    rig.client.cluster.request_update()
    rig.loop.run_until(lambda: rig.client.cluster.partitions_for_broker(2) != set(), 70)
    future = rig.producer.send("t", b"1", partition=0)
    rig.flush()
    assert future.succeeded() and rig.cluster.brokers[2].requests(ProduceRequest)


def test_what_is_in_flight_gets_the_throttle_time_added_to_its_own(world: World, broker: ScriptedBroker) -> None:
    """The broker does not read on until then: to give up earlier would be to send it all again, and again too early."""
    client = world.settled(world.client(request_timeout_ms=3000))
    silent = [throttling(60_000), lambda request, version: SILENT]
    broker.answers[ListGroupsRequest] = silent
    world.network.link("kafka", "me").delay_s = 0.1
    first, second = client.request(1, LIST), client.request(1, LIST)
    world.wait(first)
    assert "no response within 3 s" in str(world.failure(second))
    assert world.now == pytest.approx(63, abs=1), "a broker that stays silent is given up then"


def test_an_embedded_broker_that_throttles_is_obeyed_by_producer_and_consumer() -> None:
    with EmbeddedBroker(in_process=True, topics=["t"]) as broker:
        for api in ("Produce", "Fetch"):
            broker.faults.throttle(api, seconds=0.5, topic="t", first=2)
        with (
            KafkaProducer(bootstrap_servers=broker.bootstrap, client_id="mine") as producer,
            KafkaConsumer("t", bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer,
        ):
            began = time.monotonic()
            for number in range(3):
                producer.send("t", b"%d" % number).get(30)
            assert time.monotonic() - began >= 1.0
            assert producer._host.client.throttle.of("Produce") == Throttled(2, 1000, 500)
            asked = [request.connection for request in broker.requests.find("Produce", client_id="mine")]
            assert len(asked) == 3 and len(set(asked)) == 1, "nothing twice, and all on one connection"
            assert [next(consumer).value for _ in range(3)] == [b"0", b"1", b"2"]
            throttle = consumer._host.client.throttle
            until(lambda: throttle.of("Fetch").answers >= 2, meanwhile=lambda: consumer.poll(50))
            assert throttle.of("Fetch").answers == 2, "of these the first may have brought all three records"
