from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pytest

from kafka.errors import (
    Cancelled,
    IllegalArgumentError,
    IllegalStateError,
    InvalidTopicError,
    KafkaConfigurationError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
)
from kafka.producer import KafkaProducer
from kafka.protocol.produce import ProduceRequest
from kafka.structs import TopicPartition
from test.producer.support import producer_in_memory, stay_silent


def test_a_record_ends_in_the_log_and_its_future_says_where() -> None:
    with producer_in_memory() as rig:
        futures = [rig.producer.send("t", b"v%d" % n, key=b"key", timestamp_ms=77) for n in range(3)]
        assert not futures[0].is_done
        rig.flush()
        value = futures[2].value
        assert value is not None
        assert (value.topic, value.partition, value.offset, value.timestamp) == ("t", 0, 2, 77)
        assert value.topic_partition == TopicPartition("t", 0)
        assert (value.serialized_key_size, value.serialized_value_size, value.serialized_header_size) == (3, 2, -1)
        assert futures[2].get(0) == value
        assert futures[2].succeeded()
        assert not futures[2].failed()


def test_callbacks_get_the_metadata_or_the_error_also_for_records_that_waited_for_metadata() -> None:
    with producer_in_memory() as rig:
        seen: list[Any] = []
        good = rig.producer.send("t", b"x").add_callback(seen.append).add_errback(seen.append)
        bad = rig.producer.send("t", b"x", partition=9)
        bad.add_errback(lambda word, error: seen.append((word, error)), "no")
        rig.flush()
        assert seen == [("no", bad.exception), good.value] or seen == [good.value, ("no", bad.exception)]
        assert isinstance(bad.exception, IllegalArgumentError)
        late: list[Any] = []
        good.add_both(late.append)
        assert late == [good.value]


def test_a_partition_above_the_topics_count_is_an_error_that_names_the_topic_and_costs_no_memory() -> None:
    """2147483647 of these queues would be a terabyte."""
    with producer_in_memory(max_block_ms=3_000) as rig:
        for broker in rig.cluster.brokers.values():
            broker.topics = {"t": {0: 1}, "bad": {2**31 - 1: 1}}
        bad, good = rig.producer.send("bad", b"x"), rig.producer.send("t", b"x")
        started_at = rig.loop.time()
        assert rig.loop.run_until(lambda: bad.is_done, 60) and rig.loop.time() - started_at < 4
        assert isinstance(bad.exception, KafkaTimeoutError)
        assert "among them partition 2147483647" in str(bad.exception) and "topic bad" in str(bad.exception)
        rig.flush()
        assert good.succeeded()
        topics = rig.producer._accumulator.topics
        assert len(topics["bad"].queues) == 0 and len(topics["t"].queues) == 1


def test_a_topic_that_had_partitions_keeps_them_while_an_answer_has_ones_that_cannot_be() -> None:
    with producer_in_memory() as rig:
        assert rig.producer.send("t", b"1", partition=0) and rig.flush() is None
        for broker in rig.cluster.brokers.values():
            broker.topics = {"t": {0: 1, 2**31 - 1: 1}}
        refreshed = rig.client.cluster.request_update()
        assert rig.loop.run_until(refreshed, 60)
        late = rig.producer.send("t", b"2", partition=0)
        rig.loop.call_later(5, rig.cluster.lead, 1)
        rig.flush()
        assert late.succeeded() and rig.cluster.logs[0] == [b"1", b"2"]


def test_batches_hold_at_most_batch_max_records() -> None:
    with producer_in_memory(batch_max_records=64) as rig:
        for _ in range(200):
            rig.producer.send("t", b"x")
        rig.flush()
        assert rig.producer.metrics()["producer-metrics"]["batch-total"] == 4
        assert len(rig.cluster.logs[0]) == 200


def test_waiting_on_the_loops_own_thread_is_refused_and_not_a_hang() -> None:
    with producer_in_memory() as rig:
        future = rig.producer.send("t", b"x")
        for call in (future.get, rig.producer.flush, rig.producer.close, lambda: rig.producer.partitions_for("u")):
            with pytest.raises(IllegalStateError, match="own thread"):
                call()
        rig.flush()
        assert rig.producer.partitions_for("t") == {0}


def test_close_async_delivers_what_is_there_and_takes_no_more() -> None:
    with producer_in_memory(linger_ms=60_000) as rig:
        future = rig.producer.send("t", b"x")
        done = rig.producer.close_async()
        with pytest.raises(IllegalStateError, match="closed"):
            rig.producer.send("t", b"y")
        with pytest.raises(IllegalStateError, match="closed"):
            rig.producer.flush_async()  # the record is on its way
        assert rig.loop.run_until(done, 60)
        assert future.succeeded()
        assert rig.cluster.logs[0] == [b"x"]
        assert rig.producer.flush_async().succeeded()


def test_close_at_once_fails_what_is_left() -> None:
    with producer_in_memory() as rig:
        rig.cluster.faults = [stay_silent]
        future = rig.producer.send("t", b"x")
        rig.loop.run_until(lambda: not rig.cluster.faults, 10)
        rig.producer.close(timeout=0)
        assert isinstance(future.exception, Cancelled)


def test_without_acknowledgement_records_succeed_when_they_are_written() -> None:
    with producer_in_memory(acks=0) as rig:
        future = rig.producer.send("t", b"x")
        rig.flush()
        assert future.value is not None
        assert future.value.offset == -1
        assert rig.loop.run_until(lambda: rig.cluster.logs[0] == [b"x"], 10)


def test_a_full_memory_is_an_error_on_a_loop_and_says_who_holds_it() -> None:
    with producer_in_memory(batch_size=1000, buffer_memory=4500) as rig:
        rig.producer.send("t", b"x")
        rig.flush()
        for _ in range(2):
            rig.producer.send("t", b"x" * 900)
        with pytest.raises(KafkaTimeoutError) as error:
            rig.producer.send("t", b"x" * 900)
        assert str(error.value) == (
            "KafkaTimeoutError: no memory for a record of topic t: it needs 2199 bytes, and 3988 of buffer_memory=4500 "
            "are in use by t-0 (3988 bytes in 2 batches, none in flight, the oldest for 0.0 s)"
        )
        rig.flush()
        rig.producer.send("t", b"x" * 900)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"value": "text"}, TypeError, "value_serializer"),
        ({"value": b"", "key": 7}, TypeError, "key_serializer"),
        ({"value": b"", "headers": [("a", "b")]}, TypeError, "the value of 'a' is str"),
        ({"value": b"", "headers": [(1, b"b")]}, TypeError, "the name 1"),
        ({"value": b"", "headers": ["ab"]}, IllegalArgumentError, "pair"),
        ({"value": b"", "headers": 5}, TypeError, "headers"),
        ({"value": b"", "topic": "a b"}, InvalidTopicError, "a b"),
        ({"value": b"", "topic": ""}, InvalidTopicError, "characters"),
        ({"value": b"", "topic": 5}, TypeError, "topic: a text"),
        ({"value": b"", "partition": 5}, IllegalArgumentError, "1 partitions"),
        ({"value": b"x" * 2000}, MessageSizeTooLargeError, "max_request_size=1000"),
        ({"value": b"x", "headers": [("h", b"x" * 2000)]}, MessageSizeTooLargeError, "max_request_size=1000"),
    ],
)
def test_a_wrong_argument_is_a_clear_error_at_the_call(
    arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with producer_in_memory(max_request_size=1000) as rig:
        rig.producer.send("t", b"x")
        rig.flush()
        with pytest.raises(error, match=text):
            rig.producer.send(**{"topic": "t", **arguments})
        rig.flush()
        assert rig.cluster.logs[0] == [b"x"], "nothing was sent"


@pytest.mark.parametrize(
    ("configs", "text"),
    [
        ({"bach_size": 1}, "batch_size"),
        ({"acks": 2}, "acks"),
        ({"enable_idempotence": True, "acks": 1}, "excludes acks=1"),
        ({"enable_idempotence": True, "retries": 0}, "excludes retries=0"),
        ({"enable_idempotence": True, "max_in_flight_requests_per_connection": 6}, "excludes max_in_flight"),
        ({"partitioner": "magic"}, "round_robin"),
    ],
)
def test_a_wrong_setting_is_refused_at_construction(configs: dict[str, Any], text: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=text):
        KafkaProducer(**configs)


def test_acks_one_alone_turns_idempotence_off() -> None:
    with producer_in_memory(acks=1) as rig:
        rig.producer.send("t", b"x")
        rig.flush()
        assert rig.cluster.producers == 0


def test_serializers_of_each_generation_are_taken() -> None:
    class Two:
        def serialize(self, topic: str, data: Any) -> bytes:
            return f"{topic}:{data}".encode()

    class Three:
        def serialize(self, topic: str, headers: Any, data: Any) -> bytes:
            return f"{topic}/{data}".encode()

    for given, expected in ((Two(), b"t:5"), (Three(), b"t/5"), (lambda data: b"%d" % data, b"5")):
        with producer_in_memory(value_serializer=given) as rig:
            rig.producer.send("t", 5)
            rig.flush()
            assert rig.cluster.logs[0] == [expected]


def test_a_serializers_error_reaches_the_caller() -> None:
    def fails(data: Any) -> bytes:
        raise ValueError("cannot")

    with producer_in_memory(value_serializer=fails) as rig, pytest.raises(ValueError, match="cannot"):
        rig.producer.send("t", 5)
    with producer_in_memory(value_serializer=str) as rig, pytest.raises(TypeError, match="returned str for int"):
        rig.producer.send("t", 5)


def test_keys_go_where_java_sends_them() -> None:
    with producer_in_memory(10) as rig:
        future = rig.producer.send("t", b"x", key=b"foobar")
        rig.flush()
        assert future.value is not None
        assert future.value.partition == (-790332482 & 0x7FFFFFFF) % 10


def test_a_users_partitioner_chooses() -> None:
    def last(key: bytes | None, every: Sequence[int], available: Sequence[int]) -> int:
        return every[-1]

    with producer_in_memory(4, partitioner=last) as rig:
        future = rig.producer.send("t", b"x")
        rig.flush()
        assert future.value is not None
        assert future.value.partition == 3


def test_partitions_of_a_leader_travel_together() -> None:
    with producer_in_memory(4, linger_ms=5) as rig:
        for partition in range(4):
            rig.producer.send("t", b"x", partition=partition)
        rig.flush()
        requests = [r for broker in rig.cluster.brokers.values() for r in broker.requests(ProduceRequest)]
        assert len(requests) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_producer_is_refused_in_a_forked_child() -> None:
    with producer_in_memory() as rig:
        rig.producer.send("t", b"x")
        rig.flush()
        child = os.fork()
        if child == 0:
            try:
                rig.producer.send("t", b"y")
            except IllegalStateError as error:
                os._exit(0 if "after a fork" in str(error) else 2)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"timestamp_ms": 1.5}, TypeError),
        ({"timestamp_ms": "5"}, TypeError),
        ({"timestamp_ms": True}, TypeError),
        ({"timestamp_ms": -1}, IllegalArgumentError),
        ({"timestamp_ms": 2**63}, IllegalArgumentError),
        ({"partition": "0"}, TypeError),
    ],
)
def test_a_wrong_argument_is_refused_at_the_call_and_harms_no_other_record(
    wrong: dict[str, Any], error: type[Exception]
) -> None:
    with producer_in_memory() as rig:
        first = rig.producer.send("t", b"first")
        rig.flush()
        with pytest.raises(error, match=next(iter(wrong))):
            rig.producer.send("t", b"wrong", **wrong)
        second = rig.producer.send("t", b"second")
        rig.flush()
        assert first.succeeded() and second.succeeded()
        assert rig.cluster.logs[0] == [b"first", b"second"]


def test_a_client_that_is_closed_fails_the_records_of_its_producers() -> None:
    with producer_in_memory() as rig:
        rig.cluster.faults = [stay_silent]
        future = rig.producer.send("t", b"x")
        rig.loop.run_until(lambda: not rig.cluster.faults, 10)
        rig.client.close()
        assert isinstance(future.exception, Cancelled)
