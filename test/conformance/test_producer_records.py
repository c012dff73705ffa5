"""``KafkaProducer`` on every release: what a record has, and where it goes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from kafka.core.produce.accumulator import murmur2
from kafka.producer import KafkaProducer
from test.conformance.reading import DEADLINE_S, batches_of, records_of, records_of_all
from test.support.either_broker import every_release

pytestmark = every_release

NewTopicFixture = Callable[..., str]
Sample = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]

CODECS = (None, "gzip", "snappy", "lz4", "zstd")
T0 = 1_700_000_000_000
CLOCK_SLACK_MS = 2000
"""The broker is on this machine; clocks may be set meanwhile."""


def samples() -> list[Sample]:
    """Key, value, headers and timestamp."""
    noise = random.Random(5)
    found: list[Sample] = [
        (b"key", b"value", [("h", b"1")], T0),
        (None, None, [], T0 + 5),
        (b"", b"", [("", b"")], T0 - 7),
        (b"k", None, [("twice", b"1"), ("other", None), ("twice", b"2")], T0),
        ("ключ".encode(), b"Wert", [("заголовок", "ä".encode())], 0),
        (b"k" * 300, noise.randbytes(40_000), [("long", b"h" * 20_000)], T0 + 86_400_000),
    ]
    for n in range(400):
        found.append((b"%d" % (n % 9), b"value-%d" % n * (n % 50), [("n", b"%d" % n)], T0 + n))
    return found


def send(producer: KafkaProducer, topic: str, records: list[Sample]) -> None:
    futures = [
        producer.send(topic, value, key=key, headers=headers, partition=0, timestamp_ms=timestamp)
        for key, value, headers, timestamp in records
    ]
    producer.flush(DEADLINE_S)
    assert [future.get(0).offset for future in futures] == list(range(len(records)))
    assert [future.get(0).timestamp for future in futures] == [record[3] for record in records]


def received(bootstrap: str, topic: str) -> list[Sample]:
    records = records_of(bootstrap, topic)
    assert {record.timestamp_type for record in records} == {0}
    return [(record.key, record.value, record.headers, record.timestamp) for record in records]


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_every_part_of_a_record_arrives_as_it_was_with_each_codec(
    bootstrap: str, new_topic: NewTopicFixture, codec: str | None
) -> None:
    topic, records = new_topic(), samples()
    with KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec) as producer:
        send(producer, topic, records)
    assert received(bootstrap, topic) == records
    assert {batch.compression for batch in batches_of(bootstrap, topic)} == {codec or "none"}


@pytest.mark.parametrize(
    ("codec", "level"), [("gzip", 1), ("gzip", 9), ("lz4", 1), ("lz4", 9), ("zstd", -5), ("zstd", 19)]
)
def test_what_is_compressed_at_another_level_is_read_all_the_same(
    bootstrap: str, new_topic: NewTopicFixture, codec: str, level: int
) -> None:
    topic, records = new_topic(), samples()
    with KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec, compression_level=level) as producer:
        send(producer, topic, records)
    assert received(bootstrap, topic) == records


@pytest.mark.parametrize("kept", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_that_wants_another_codec_has_the_same_records(
    bootstrap: str, new_topic: NewTopicFixture, kept: str
) -> None:
    """Apache Kafka compresses them anew; the embedded broker keeps batches as they came."""
    topic, records = new_topic(compression_type=kept), samples()
    with KafkaProducer(bootstrap_servers=bootstrap, compression_type="gzip" if kept != "gzip" else "lz4") as producer:
        send(producer, topic, records)
    assert received(bootstrap, topic) == records


def test_a_record_without_a_time_has_that_of_the_call(bootstrap: str, new_topic: NewTopicFixture) -> None:
    topic = new_topic()
    began = int(time.time() * 1000)
    with KafkaProducer(bootstrap_servers=bootstrap, linger_ms=50) as producer:
        futures = [producer.send(topic, b"x", partition=0) for _ in range(10)]
        timestamps = [future.get(DEADLINE_S).timestamp for future in futures]
    assert [(record.timestamp, record.timestamp_type) for record in records_of(bootstrap, topic)] == [
        (timestamp, 0) for timestamp in timestamps
    ]
    assert began - 1 <= min(timestamps) and max(timestamps) <= time.time() * 1000 + 1


@pytest.mark.parametrize("codec", [None, "gzip", "zstd"], ids=str)
def test_a_topic_with_the_brokers_time_returns_it_to_the_producer_too(
    bootstrap: str, new_topic: NewTopicFixture, codec: str | None
) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    began = int(time.time() * 1000)
    with KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec, linger_ms=60_000) as producer:
        told = []
        for _ in range(3):
            futures = [producer.send(topic, b"x", partition=0, timestamp_ms=T0 + number) for number in range(5)]
            producer.flush(DEADLINE_S)
            told += [future.get(0).timestamp for future in futures]
    found = records_of(bootstrap, topic)
    assert [(record.timestamp, record.timestamp_type) for record in found] == [(timestamp, 1) for timestamp in told]
    assert [len(set(told[start : start + 5])) for start in (0, 5, 10)] == [1, 1, 1], "one time for a batch"
    assert told == sorted(told)
    assert began - CLOCK_SLACK_MS <= told[0] and told[-1] <= time.time() * 1000 + CLOCK_SLACK_MS


# -- where it goes -----------------------------------------------------------------------------------------------------

KEYS = [b"%d" % number for number in range(60)]


def of_keys(places: list[int]) -> bool:
    return places == [(murmur2(key) & 0x7FFFFFFF) % 5 for key in KEYS]


def in_turn(places: list[int]) -> bool:
    return all((second - first) % 5 == 1 for first, second in zip(places, places[1:], strict=False))


def several(places: list[int]) -> bool:
    return len(set(places)) > 1


@pytest.mark.parametrize(
    ("settings", "has_keys", "holds"),
    [
        ({}, True, of_keys),
        ({"partitioner": "sticky"}, True, of_keys),
        ({"partitioner": "round_robin"}, True, of_keys),
        ({"partitioner": "round_robin"}, False, in_turn),
        ({"partitioner": "sticky", "batch_max_records": 1}, False, several),
        ({"batch_size": 200}, False, several),
        ({"partitioner_ignore_keys": True, "linger_ms": 60_000}, True, lambda places: len(set(places)) == 1),
        ({"partitioner": lambda key, every, available: every[-1]}, True, lambda places: set(places) == {4}),
    ],
    ids=["keys", "sticky-keys", "round-robin-keys", "round-robin", "sticky", "built-in", "keys-ignored", "own"],
)
def test_records_are_in_the_partition_that_the_partitioner_chose(
    bootstrap: str,
    new_topic: NewTopicFixture,
    settings: dict[str, Any],
    has_keys: bool,
    holds: Callable[[list[int]], bool],
) -> None:
    topic = new_topic(5)
    with KafkaProducer(bootstrap_servers=bootstrap, **settings) as producer:
        assert producer.partitions_for(topic) == set(range(5))
        futures = [producer.send(topic, b"%d" % n, key=key if has_keys else None) for n, key in enumerate(KEYS)]
        producer.flush(DEADLINE_S)
    places = [future.get(0).partition for future in futures]
    assert holds(places), places
    for partition, records in enumerate(records_of_all(bootstrap, topic, 5)):
        assert [int(record.value) for record in records] == [n for n, place in enumerate(places) if place == partition]
