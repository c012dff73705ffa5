"""What the network and the brokers do to a producer, and what its records suffer from it: nothing."""

from __future__ import annotations

import random

import pytest

from kafka.core.produce.batch import TopicQueues
from kafka.errors import KafkaTimeoutError, MessageSizeTooLargeError, TopicAuthorizationFailedError
from kafka.producer import FutureRecordMetadata, has_room, watch_batches
from kafka.protocol.produce import ProduceRequest
from test.producer.support import (
    Cluster,
    Fault,
    Rig,
    close_unread,
    half_answer,
    lose_answer,
    move_leader,
    producer_in_memory,
    refuse,
    stay_silent,
)
from test.support.scripted import CLOSE, Answer, ScriptedBroker
from test.support.seeds import each_seed

NOT_LEADER = 6
REQUEST_TIMED_OUT = 7
TOO_LARGE = 10
TOPIC_AUTHORIZATION_FAILED = 29
OUT_OF_ORDER = 45
UNKNOWN_PRODUCER = 59

FAULTS: dict[str, Fault] = {
    "the connection closes before the request is read": close_unread,
    "the answer is lost": lose_answer,
    "the request times out": stay_silent,
    "the answer is cut": half_answer,
    "the leader has moved": move_leader,
    "the broker is no leader for a moment": refuse(NOT_LEADER),
    "the replicas time out": refuse(REQUEST_TIMED_OUT),
}


def send_all(rig: Rig, count: int) -> list[FutureRecordMetadata]:
    """``count`` records, each in a request of its own as far as the producer lets them."""
    futures = []
    for number in range(count):
        futures.append(rig.producer.send("t", b"%d" % number, partition=0))
        if number % 3 == 2:
            rig.loop.run_once(0)
    return futures


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_records_arrive_once_and_in_order_whatever_happens(fault: Fault) -> None:
    with producer_in_memory(batch_max_records=1) as rig:
        rig.cluster.faults = [fault]
        futures = send_all(rig, 20)
        rig.flush()
        assert not rig.cluster.faults, "they were all met"
        assert rig.cluster.logs[0] == [b"%d" % number for number in range(20)]
        assert all(future.succeeded() for future in futures)


def test_records_outlive_a_leader_that_left_the_cluster_before_another_was_elected() -> None:
    with producer_in_memory(batch_max_records=1) as rig:

        def leave(cluster: Cluster, broker: ScriptedBroker, request: ProduceRequest) -> Answer:
            for node in cluster.brokers.values():
                node.brokers.pop(1, None)  # it is still named as the leader
            return CLOSE

        def elect() -> None:
            rig.cluster.faults = []
            rig.cluster.lead(2)

        rig.cluster.faults = [leave] * 1000
        rig.loop.call_later(3.0, elect)
        futures = send_all(rig, 20)
        rig.flush()
        assert rig.cluster.logs[0] == [b"%d" % number for number in range(20)]
        assert all(future.succeeded() for future in futures)
        assert rig.loop.time() >= 3.0


@each_seed(25)
def test_records_arrive_once_and_in_order_through_any_sequence_of_faults(seed: int) -> None:
    rng = random.Random(seed)
    with producer_in_memory(batch_max_records=rng.choice((1, 2, 5))) as rig:
        rig.cluster.faults = [rng.choice(list(FAULTS.values())) for _ in range(rng.randrange(2, 12))]
        futures = send_all(rig, 40)
        rig.flush()
        assert not rig.cluster.faults, "they were all met"
        assert rig.cluster.logs[0] == [b"%d" % number for number in range(40)]
        assert all(future.succeeded() for future in futures)


def test_a_repetition_after_a_lost_answer_is_a_duplicate_and_succeeds_without_an_offset() -> None:
    with producer_in_memory() as rig:
        rig.cluster.faults = [lose_answer]
        future = rig.producer.send("t", b"x")
        rig.flush()
        assert rig.cluster.duplicates == 1
        assert future.value is not None
        assert future.value.offset == -1
        assert rig.cluster.logs[0] == [b"x"]


def test_a_lost_producer_state_starts_a_new_epoch_and_goes_on() -> None:
    with producer_in_memory(batch_max_records=1) as rig:
        send_all(rig, 3)
        rig.flush()
        rig.cluster.next_sequences.clear()
        rig.cluster.faults = [refuse(UNKNOWN_PRODUCER)]
        send_all(rig, 3)
        rig.flush()
        assert len(rig.cluster.logs[0]) == 6
        assert {epoch for _, _, epoch in rig.cluster.next_sequences} == {1}


def test_a_batch_that_is_refused_for_good_fails_alone() -> None:
    with producer_in_memory(batch_max_records=1) as rig:
        rig.cluster.faults = [refuse(TOO_LARGE)]
        futures = send_all(rig, 5)
        rig.flush()
        assert isinstance(futures[0].exception, MessageSizeTooLargeError)
        assert rig.cluster.logs[0] == [b"1", b"2", b"3", b"4"]


def test_without_idempotence_and_one_request_in_flight_order_is_kept() -> None:
    with producer_in_memory(
        batch_max_records=1, enable_idempotence=False, max_in_flight_requests_per_connection=1
    ) as rig:
        rig.cluster.faults = [refuse(NOT_LEADER), close_unread, refuse(NOT_LEADER)]
        send_all(rig, 10)
        rig.flush()
        assert rig.cluster.logs[0] == [b"%d" % number for number in range(10)]


def test_records_for_a_cluster_that_is_gone_fail_with_the_delivery_timeout() -> None:
    with producer_in_memory(delivery_timeout_ms=20_000, request_timeout_ms=5_000) as rig:
        rig.producer.send("t", b"first")
        rig.flush()
        for broker in rig.cluster.brokers.values():
            broker.stop()
        future = rig.producer.send("t", b"x")
        began = rig.loop.time()
        rig.flush()
        assert isinstance(future.exception, KafkaTimeoutError)
        assert "delivery_timeout_ms=20000" in str(future.exception)
        assert rig.loop.time() - began <= 30


def test_a_broker_that_comes_back_gets_what_waited() -> None:
    with producer_in_memory() as rig:
        rig.producer.send("t", b"first")
        rig.flush()
        for broker in rig.cluster.brokers.values():
            broker.stop()
        future = rig.producer.send("t", b"x")
        rig.loop.run_until(lambda: False, 5)
        assert not future.is_done
        for broker in rig.cluster.brokers.values():
            broker.restart()
        rig.flush()
        assert future.succeeded()
        assert rig.cluster.logs[0] == [b"first", b"x"]


def test_a_topic_that_never_comes_fails_its_records_after_max_block_ms() -> None:
    with producer_in_memory(max_block_ms=3000) as rig:
        future = rig.producer.send("missing", b"x")
        rig.flush()
        assert isinstance(future.exception, KafkaTimeoutError)
        assert "max_block_ms=3000" in str(future.exception)


def test_a_watcher_of_batches_is_called_once_for_each_record_with_its_end() -> None:
    """Also of records that were split from their batch, or that waited for their topic's metadata."""
    heard: list[tuple[str, int, BaseException | None]] = []
    with producer_in_memory() as rig:
        watch_batches(rig.producer, lambda *batch: heard.append(batch))
        rig.cluster.faults = [refuse(TOO_LARGE)]
        for number in range(10):  # they wait for the metadata, and are then split
            rig.producer.send("t", b"%d" % number, partition=0)
        rig.flush()
        assert [(topic, error) for topic, _, error in heard] == [("t", None)] * 2
        assert sum(count for _, count, _ in heard) == 10
        assert len(rig.cluster.logs[0]) == 10
        heard.clear()
        rig.cluster.faults = [refuse(TOPIC_AUTHORIZATION_FAILED)]
        for number in range(3):
            rig.producer.send("t", b"%d" % number, partition=0)
        rig.flush()
        ((topic, count, error),) = heard
        assert (topic, count) == ("t", 3)
        assert isinstance(error, TopicAuthorizationFailedError)
        heard.clear()
        rig.cluster.faults = [stay_silent]
        assert has_room(rig.producer)
        rig.producer.send("t", b"x")
        rig.producer.close(0)
        assert [(count, error is not None) for _, count, error in heard] == [(1, True)]


def test_a_producer_has_room_while_half_of_its_memory_is_free() -> None:
    with producer_in_memory(buffer_memory=200_000) as rig:
        assert has_room(rig.producer)
        rig.cluster.faults = [stay_silent] * 9
        for _ in range(3):
            rig.producer.send("t", b"x" * 50_000, partition=0)
        assert not has_room(rig.producer)
        rig.producer.close(0)
        assert has_room(rig.producer)


def test_a_topic_that_the_client_knows_is_not_asked_for_again() -> None:
    """The second look at the metadata would wait for the back-off of the first, 0.1 s."""
    with producer_in_memory() as rig:
        assert rig.loop.run_until(rig.client.refresh_metadata(["t"]), 300)
        assert rig.loop.run_until(rig.client.refresh_metadata(["t"]), 300)
        began_at = rig.loop.time()
        learnt = rig.producer._driver.learn(rig.producer._accumulator.topics.setdefault("t", TopicQueues("t")))
        assert rig.loop.run_until(learnt, 300), "what the first send of a thread waits for"
        assert rig.loop.time() == began_at
