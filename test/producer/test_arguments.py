"""What a producer refuses, and in which words: at the call, and nothing is sent. A new check is a row here."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kafka.errors import (
    IllegalArgumentError,
    IllegalTopicError,
    InvalidTopicError,
    KafkaConfigurationError,
    MessageSizeTooLargeError,
)
from kafka.producer import KafkaProducer
from kafka.producer.arguments import committed_offsets
from kafka.structs import TopicPartition
from test.producer.support import producer_in_memory

SETTINGS: list[tuple[dict[str, Any], str]] = [
    # -- unknown
    ({"bach_size": 1}, "bach_size: no such setting; did you mean batch_size?"),
    ({"something": 1}, "something: no such setting"),
    ({"group_id": "g"}, "group_id: a setting of consumer and share, not of producer"),
    ({"kafka_client": 5}, "kafka_client: this version does not have that setting yet"),
    # -- of the wrong kind, or out of range
    ({"batch_size": "16k"}, "batch_size='16k': expected a whole number of at least 0 (bytes)"),
    ({"batch_size": -1}, "batch_size=-1: expected a whole number of at least 0 (bytes)"),
    ({"linger_ms": True}, "linger_ms=True: expected a number of at least 0 (ms)"),
    ({"linger_ms": -0.5}, "linger_ms=-0.5: expected a number of at least 0 (ms)"),
    ({"retry_backoff_ms": float("inf")}, "retry_backoff_ms=inf: expected a number of at least 0 (ms)"),
    ({"metadata_max_age_ms": -1}, "metadata_max_age_ms=-1: expected a whole number of at least 0 (ms)"),
    ({"buffer_memory": 0}, "buffer_memory=0: expected a whole number of at least 1 (bytes)"),
    ({"max_block_ms": None}, "max_block_ms=None: expected a whole number of at least 0 (ms)"),
    ({"acks": 2}, "acks=2: expected 0, 1, -1 or 'all'"),
    ({"retries": -1}, "retries=-1: expected a number of at least 0, or float('inf')"),
    ({"enable_idempotence": 2}, "enable_idempotence=2: expected True or False"),
    ({"compression_type": "rar"}, "compression_type='rar': expected None or one of"),
    ({"value_serializer": "str"}, "value_serializer='str': expected a function of the value, or an object with"),
    ({"partitioner": "magic"}, "partitioner='magic': expected 'sticky', 'round_robin', a function (key, all"),
    ({"partitioner": 5}, "partitioner=5: expected 'sticky', 'round_robin', a function"),
    ({"interceptors": "abc"}, "interceptors='abc': expected a list of objects with on_send(record) or"),
    ({"interceptors": [5]}, "interceptors=[5]: expected a list of objects with on_send(record) or"),
    ({"metric_reporters": [5]}, "expected metrics reporters, which have some of configure, init"),
    ({"metric_reporters": 5}, "metric_reporters=5: expected a list of metrics reporters"),
    ({"metrics_num_samples": 0}, "metrics_num_samples=0: expected a whole number of at least 1"),
    # -- impossible together
    ({"enable_idempotence": True, "acks": 1}, "enable_idempotence=True excludes acks=1"),
    ({"enable_idempotence": True, "acks": 0}, "enable_idempotence=True excludes acks=0"),
    ({"enable_idempotence": True, "retries": 0}, "enable_idempotence=True excludes retries=0"),
    (
        {"enable_idempotence": True, "max_in_flight_requests_per_connection": 6},
        "enable_idempotence=True excludes max_in_flight_requests_per_connection=6",
    ),
    (
        {"delivery_timeout_ms": 1000},
        "delivery_timeout_ms=1000 leaves no time for linger_ms=0 and request_timeout_ms=30000: at least 30000 is",
    ),
    (
        {"delivery_timeout_ms": 5000, "request_timeout_ms": 4000, "linger_ms": 1001},
        "delivery_timeout_ms=5000 leaves no time for linger_ms=1001 and request_timeout_ms=4000: at least 5001 is",
    ),
    (
        {"delivery_timeout_ms": 4000, "request_timeout_ms": 4000, "linger_ms": 0.5},
        "delivery_timeout_ms=4000 leaves no time for linger_ms=0.5 and request_timeout_ms=4000: at least 4001 is",
    ),
    (
        {"partitioner": "sticky", "partitioner_ignore_keys": True},
        "partitioner_ignore_keys=True is for the partitioner that is built in, and partitioner='sticky' is another",
    ),
]

Arguments = dict[str, Any]
SENDS: list[tuple[Arguments, type[Exception], str]] = [
    ({"topic": "a b"}, IllegalTopicError, "'a b': a topic's name has 1 to 249 of the characters a-z A-Z 0-9 . _ -"),
    ({"topic": ""}, IllegalTopicError, "'': a topic's name has"),
    ({"topic": ".."}, IllegalTopicError, "'..': a topic's name has"),
    ({"topic": "x" * 250}, IllegalTopicError, "a topic's name has 1 to 249"),
    ({"topic": None}, TypeError, "topic: a text is needed, not NoneType"),
    ({"topic": 5}, TypeError, "topic: a text is needed, not int"),
    ({"topic": ["t"]}, TypeError, "topic: a text is needed, not list"),
    ({"topic": b"\xff"}, IllegalTopicError, "a topic's name has 1 to 249"),
    ({"value": "text"}, TypeError, "value: bytes are needed, not str; set value_serializer to send other types"),
    ({"value": {"a": 1}}, TypeError, "value: bytes are needed, not dict; set value_serializer to send other types"),
    ({"key": 7}, TypeError, "key: bytes are needed, not int; set key_serializer to send other types"),
    ({"headers": 5}, TypeError, "headers: a list of (text, bytes) is needed, not int"),
    ({"headers": ["ab"]}, IllegalArgumentError, "headers: 'ab' is not a pair of a name and a value"),
    ({"headers": [("a", "b", "c")]}, IllegalArgumentError, "headers: ('a', 'b', 'c') is not a pair"),
    ({"headers": [(1, b"b")]}, TypeError, "headers: the name 1 is not a text"),
    ({"headers": [("a", "b")]}, TypeError, "headers: the value of 'a' is str, and not bytes"),
    ({"headers": [("\ud800", b"b")]}, IllegalArgumentError, "headers: the name '\\ud800' is not UTF-8"),
    ({"headers": [(b"\xff", b"b")]}, IllegalArgumentError, "headers: the name b'\\xff' is not UTF-8"),
    ({"partition": True}, TypeError, "partition: a whole number is needed, not True"),
    ({"partition": 4}, IllegalArgumentError, "topic t has 4 partitions, there is no 4"),
    ({"partition": -1}, IllegalArgumentError, "topic t has 4 partitions, there is no -1"),
    ({"partition": "0"}, TypeError, "partition: a whole number is needed, not '0'"),
    ({"timestamp_ms": 1.5}, TypeError, "timestamp_ms: a whole number of milliseconds is needed, not 1.5"),
    ({"timestamp_ms": -1}, IllegalArgumentError, "timestamp_ms: -1 is not a time in milliseconds since the epoch"),
    ({"timestamp_ms": 2**63 - 1}, IllegalArgumentError, "timestamp_ms: 9223372036854775807 is not a time in millisec"),
    ({"value": b"x" * 2000}, MessageSizeTooLargeError, "bytes is larger than max_request_size=1000"),
    ({"headers": [("h", b"x" * 2000)]}, MessageSizeTooLargeError, "bytes is larger than max_request_size=1000"),
    ({"headers": [("\U0001f600" * 240, b"")]}, MessageSizeTooLargeError, "bytes is larger than max_request_size=1000"),
]


@pytest.mark.parametrize(("settings", "text"), SETTINGS, ids=[text[:50] for _, text in SETTINGS])
def test_a_wrong_setting_is_an_error_at_construction_that_says_what_would_be_right(
    settings: dict[str, Any], text: str
) -> None:
    with pytest.raises(KafkaConfigurationError, match=re.escape(text)):
        KafkaProducer(**settings)


def test_a_topic_that_cannot_be_is_the_brokers_error_and_a_value_error_too() -> None:
    assert issubclass(IllegalTopicError, InvalidTopicError) and issubclass(IllegalTopicError, ValueError)
    assert issubclass(IllegalTopicError, IllegalArgumentError) and IllegalTopicError.errno == InvalidTopicError.errno


@pytest.mark.parametrize(("arguments", "error", "text"), SENDS, ids=[text[:50] for *_, text in SENDS])
def test_a_wrong_argument_is_an_error_at_the_call_and_nothing_is_sent(
    arguments: Arguments, error: type[Exception], text: str
) -> None:
    with producer_in_memory(4, max_request_size=1000) as rig:
        rig.producer.send("t", b"x", partition=0)
        rig.flush()
        with pytest.raises(error, match=re.escape(text)):
            rig.producer.send(**{"topic": "t", "value": b"x", **arguments})
        rig.flush()
        assert [log for log in rig.cluster.logs.values() if log] == [[b"x"]], "nothing else was sent"
        assert rig.producer._accumulator.memory.used_bytes == 0


@pytest.mark.parametrize(
    ("serializer", "error", "text"),
    [
        (str, TypeError, "value_serializer returned str for int, and not bytes"),
        (lambda value: value.encode(), AttributeError, "'int' object has no attribute 'encode'"),
        (lambda value: 1 / 0, ZeroDivisionError, "division by zero"),
    ],
)
def test_a_value_that_cannot_be_serialised_is_the_serializers_error_at_the_call(
    serializer: Any, error: type[Exception], text: str
) -> None:
    with producer_in_memory(value_serializer=serializer) as rig:
        with pytest.raises(error, match=re.escape(text)):
            rig.producer.send("t", 5)
        rig.flush()
        assert rig.cluster.logs[0] == []


def test_a_record_that_buffer_memory_can_never_hold_is_refused_at_once() -> None:
    with producer_in_memory(buffer_memory=5000) as rig:
        with pytest.raises(MessageSizeTooLargeError, match="a record of 6... bytes is larger than buffer_memory=5000"):
            rig.producer.send("t", b"x" * 6000)
        rig.producer.send("t", b"x" * 3000)
        rig.flush()
        assert rig.cluster.logs[0] == [b"x" * 3000]


def test_a_buffer_smaller_than_a_batch_bounds_the_batch() -> None:
    with producer_in_memory(buffer_memory=8_000, batch_size=1_000_000, linger_ms=10) as rig:
        for _ in range(20):
            rig.producer.send("t", b"x" * 50)
            rig.producer.send("t", b"x" * 50)
            rig.flush()
        assert len(rig.cluster.logs[0]) == 40
        assert rig.producer._accumulator.topics["t"].queues[0].room_bytes <= 16_000


def test_what_excludes_idempotence_turns_it_off_where_nobody_asked_for_it() -> None:
    for settings in ({"acks": 1}, {"acks": 0}, {"retries": 0}, {"max_in_flight_requests_per_connection": 6}):
        with producer_in_memory(**settings) as rig:
            assert rig.producer.config["enable_idempotence"] is False
            rig.producer.send("t", b"x")
            rig.flush()
            assert rig.cluster.producers == 0


def test_the_default_of_delivery_timeout_ms_makes_room_for_lingering_and_a_request() -> None:
    with producer_in_memory(linger_ms=100_000, request_timeout_ms=50_000) as rig:
        assert rig.producer.config["delivery_timeout_ms"] == 150_000


@pytest.mark.parametrize("timeout", ["5", float("nan"), True, [1]])
def test_a_timeout_that_is_no_number_is_refused_before_anything_is_closed_or_lost(timeout: Any) -> None:
    with producer_in_memory() as rig:
        future = rig.producer.send("t", b"x")
        for call in (rig.producer.flush, rig.producer.close):
            with pytest.raises(TypeError, match="timeout: a number of seconds or None is needed, not"):
                call(timeout)
        rig.flush()
        assert future.succeeded()
        assert rig.cluster.logs[0] == [b"x"]


@pytest.mark.parametrize("add", ["add_callback", "add_errback", "add_both"])
def test_a_callback_that_is_no_function_is_refused_when_it_is_added(add: str) -> None:
    with producer_in_memory() as rig:
        future = rig.producer.send("t", b"x")
        with pytest.raises(TypeError, match="a callback is a function, and not None"):
            getattr(future, add)(None)
        rig.flush()
        assert future.succeeded()


@pytest.mark.parametrize(
    ("offsets", "error", "text"),
    [
        ({TopicPartition("a b", 0): 1}, IllegalTopicError, "'a b': a topic's name has"),
        ({TopicPartition("t", -4): 1}, IllegalArgumentError, "offsets: -4 is not a partition of t"),
        ({TopicPartition("t", 0): None}, IllegalArgumentError, "offsets: None of t-0 is not an offset"),
    ],
)
def test_offsets_that_no_broker_could_take_are_refused_at_the_call(
    offsets: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=re.escape(text)):
        committed_offsets(offsets)


@pytest.mark.parametrize(
    ("given", "text"),
    [({"loop": 5}, "loop: a kafka.net.loop.Loop is needed, not int"), ({"client": "x"}, "client: a kafka.client.")],
)
def test_a_loop_or_a_client_of_another_kind_is_refused_by_its_name(given: Any, text: str) -> None:
    with pytest.raises(TypeError, match=re.escape(text)):
        KafkaProducer(**given)
