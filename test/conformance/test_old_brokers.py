"""Producer and consumer with brokers before 0.11, which keep message sets: Apache Kafka's own, and the embedded broker
as one of them. No test may look at which of the two it has.

    0.8.2   Produce v0, Fetch v0, ListOffsets v0, Metadata v0; sets v0
    0.9     Produce v1, Fetch v1; sets v0
    0.10    Produce v2, Fetch v3, ListOffsets v1; sets v1
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.core.consume.partition import ConsumerRecord
from kafka.errors import (
    RecordTooLargeError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
    UnsupportedVersionError,
)
from kafka.testing import EmbeddedBroker
from test.conformance.reading import take
from test.support.apache_kafka import LONG_RETENTION, ApacheKafka, require_apache_kafka

pytestmark = pytest.mark.timeout(120)

SETTINGS = {"num.partitions": "2", **LONG_RETENTION}
DEADLINE_S = 30.0
T0 = 1_700_000_000_000
CODECS = [None, "gzip", "snappy", "lz4"]


class OldBroker(NamedTuple):
    """A broker, what its sets are, and the release that a user would give as ``api_version``."""

    bootstrap: str
    magic: int
    api_version: tuple[int, ...]
    cuts_first: bool
    """A first message above the limit is cut (before KIP-74)."""


RELEASES: dict[str, tuple[str, int, tuple[int, ...], bool]] = {
    "0.8.2": ("0.8.2.2", 0, (0, 8, 2), True),
    "0.9": ("0.9.0.1", 0, (0, 9), True),
    "0.10": ("0.10.2.2", 1, (0, 10, 2), False),
}


@pytest.fixture(
    scope="module", params=[(kind, name) for name in RELEASES for kind in ("embedded", "apache")], ids="-".join
)
def old(request: pytest.FixtureRequest) -> Iterator[OldBroker]:
    kind, name = request.param
    version, *facts = RELEASES[name]
    if kind == "embedded":
        with EmbeddedBroker(emulate=name, settings=SETTINGS) as embedded:
            yield OldBroker(embedded.bootstrap, *facts)
    else:
        require_apache_kafka(version)
        with ApacheKafka(version, SETTINGS) as apache:
            yield OldBroker(apache.bootstrap, *facts)


@pytest.fixture
def topic(old: OldBroker) -> str:
    return f"topic-{uuid.uuid4().hex[:8]}"


Records = list[tuple[bytes | None, bytes | None, int]]


def samples(count: int = 300) -> Records:
    """Key, value and timestamp."""
    found: Records = [(b"k", None, T0), (None, b"value only", T0 + 1), (b"", b"", T0 - 5), (b"k", b"x" * 3000, T0 + 7)]
    found += [(b"%d" % (n % 9), b"value-%d" % n, T0 + n) for n in range(count)]
    return found[:count]


def produce(old: OldBroker, topic: str, records: Records, **settings: Any) -> list[int]:
    """The offsets that they got in partition 0."""
    with KafkaProducer(bootstrap_servers=old.bootstrap, linger_ms=20, **settings) as producer:
        return send(producer, topic, records)


def send(producer: KafkaProducer, topic: str, records: Records) -> list[int]:
    futures = [producer.send(topic, value, key=key, partition=0, timestamp_ms=at) for key, value, at in records]
    producer.flush(DEADLINE_S)
    return [future.get(DEADLINE_S).offset for future in futures]


def consume(
    old: OldBroker, topic: str, count: int, *, offset: int | None = None, **settings: Any
) -> list[ConsumerRecord]:
    """The next ``count`` records of partition 0, from ``offset`` or the start on."""
    partition = TopicPartition(topic, 0)
    with KafkaConsumer(
        bootstrap_servers=old.bootstrap, auto_offset_reset="earliest", **settings
    ) as consumer:
        consumer.assign([partition])
        if offset is not None:
            consumer.seek(partition, offset)
        return take(consumer, count)


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_what_is_written_is_read_with_what_the_format_keeps(old: OldBroker, topic: str, codec: str | None) -> None:
    records = samples()
    assert produce(old, topic, records, compression_type=codec) == list(range(len(records)))
    found = consume(old, topic, len(records))
    assert [(record.offset, record.key, record.value) for record in found] == [
        (offset, key, value) for offset, (key, value, _) in enumerate(records)
    ]
    times = [(at, 0) for _, _, at in records] if old.magic else [(-1, -1)] * len(records)
    assert [(record.timestamp, record.timestamp_type) for record in found] == times
    assert {tuple(record.headers) for record in found} == {()}


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_reading_may_begin_within_a_wrapper(old: OldBroker, topic: str, codec: str | None) -> None:
    records = samples(50)
    produce(old, topic, records, compression_type=codec)
    found = consume(old, topic, 13, offset=37)
    assert [(record.offset, record.value) for record in found] == [(at, records[at][1]) for at in range(37, 50)]


@pytest.mark.parametrize("codec", ["gzip", "lz4"])
def test_sets_of_several_batches_and_requests_stay_in_order(old: OldBroker, topic: str, codec: str) -> None:
    records: Records = [(None, b"%d " % n * 40, T0 + n) for n in range(3000)]
    produce(old, topic, records, compression_type=codec, batch_size=4000)
    found = consume(old, topic, len(records), max_partition_fetch_bytes=30_000)
    assert [record.value for record in found] == [value for _, value, _ in records]
    assert [record.offset for record in found] == list(range(3000))


def test_a_message_that_is_cut_at_the_end_of_an_answer_is_fetched_again(old: OldBroker, topic: str) -> None:
    records: Records = [(None, b"%d " % n * 50, T0) for n in range(200)]
    produce(old, topic, records)
    found = consume(old, topic, len(records), max_partition_fetch_bytes=777)
    assert [record.value for record in found] == [value for _, value, _ in records]


def test_a_message_above_max_partition_fetch_bytes_comes_whole_or_is_an_error_that_names_the_setting(
    old: OldBroker, topic: str
) -> None:
    produce(old, topic, [(None, b"x" * 5000, T0), (None, b"next", T0)])
    if old.cuts_first:
        with pytest.raises(RecordTooLargeError, match="max_partition_fetch_bytes"):
            consume(old, topic, 1, max_partition_fetch_bytes=1000)
        assert consume(old, topic, 1, offset=1, max_partition_fetch_bytes=1000)[0].value == b"next"
    else:
        assert len(consume(old, topic, 2, max_partition_fetch_bytes=1000)) == 2
    assert len(consume(old, topic, 2)) == 2


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_kind_of_acknowledgement_works(old: OldBroker, topic: str, acks: int | str) -> None:
    produce(old, topic, samples(1), acks="all")  # makes the topic: with acks=0 nobody tells that it is not there yet
    # Open until all is read: 0.9 drops what it has not begun with when a connection ends, and acks=0 hears of nothing.
    with KafkaProducer(bootstrap_servers=old.bootstrap, linger_ms=20, acks=acks) as producer:
        offsets = send(producer, topic, samples(20))
        assert offsets == ([-1] * 20 if acks == 0 else list(range(1, 21)))
        assert len(consume(old, topic, 21)) == 21


@pytest.mark.parametrize("codec", [None, "lz4"], ids=str)
def test_a_release_that_the_user_gives_is_spoken_without_asking(
    old: OldBroker, topic: str, codec: str | None
) -> None:
    records = samples(20)
    produce(old, topic, records, compression_type=codec, api_version=old.api_version)
    found = consume(old, topic, 20, api_version=old.api_version)
    assert [record.value for record in found] == [value for _, value, _ in records]


def test_starts_and_ends_are_found_and_times_only_where_sets_have_them(old: OldBroker, topic: str) -> None:
    produce(old, topic, [(None, b"v", T0 + n) for n in range(10)])
    partition = TopicPartition(topic, 0)
    with KafkaConsumer(bootstrap_servers=old.bootstrap, isolation_level="read_committed") as consumer:
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: 10}
        if old.magic:
            at = consumer.offsets_for_times({partition: T0 + 4})[partition]
            assert at is not None and (at.offset, at.timestamp) == (4, T0 + 4)
        else:
            with pytest.raises(UnsupportedVersionError, match=r"0\.10\.1"):
                consumer.offsets_for_times({partition: T0 + 4})


def test_a_consumer_that_starts_at_the_end_gets_what_comes_then(old: OldBroker, topic: str) -> None:
    produce(old, topic, samples(5))
    partition = TopicPartition(topic, 0)
    with KafkaConsumer(bootstrap_servers=old.bootstrap) as consumer:
        consumer.assign([partition])
        assert consumer.position(partition) == 5
        produce(old, topic, [(None, b"new", T0)])
        assert [(record.offset, record.value) for record in take(consumer, 1)] == [(5, b"new")]


def test_records_with_headers_fail_and_their_neighbours_do_not(old: OldBroker, topic: str) -> None:
    produce(old, topic, samples(1))
    with KafkaProducer(bootstrap_servers=old.bootstrap, linger_ms=100) as producer:
        with_headers = producer.send(topic, b"one", headers=[("h", b"1")], partition=0)
        plain = producer.send(topic, b"two", partition=1)
        with pytest.raises(UnsupportedForMessageFormatError, match=rf"headers.*message sets v{old.magic}"):
            with_headers.get(DEADLINE_S)
        assert plain.get(DEADLINE_S).partition == 1


def test_zstd_fails_and_says_what_it_needs(old: OldBroker, topic: str) -> None:
    with (
        KafkaProducer(bootstrap_servers=old.bootstrap, compression_type="zstd") as producer,
        pytest.raises(UnsupportedCompressionTypeError, match=r"Kafka 2\.1"),
    ):
        producer.send(topic, b"one").get(DEADLINE_S)


def test_idempotence_by_default_is_done_without_and_asked_for_is_an_error(old: OldBroker, topic: str) -> None:
    assert produce(old, topic, samples(3)) == [0, 1, 2]
    with (
        KafkaProducer(bootstrap_servers=old.bootstrap, enable_idempotence=True) as producer,
        pytest.raises(UnsupportedVersionError, match=r"enable_idempotence=True needs Kafka 0\.11"),
    ):
        producer.send(topic, b"one").get(DEADLINE_S)


def test_times_of_the_broker_are_those_of_all_records_and_are_marked(
    old: OldBroker, topic: str, make_topic: Callable[..., None]
) -> None:
    if not old.magic:
        pytest.skip("message sets v0 have no times")
    make_topic(topic, {"message.timestamp.type": "LogAppendTime"})
    records = samples(10)
    produce(old, topic, records, compression_type="gzip")
    produce(old, topic, records)
    found = consume(old, topic, 20)
    assert [record.offset for record in found] == list(range(20))
    assert {record.timestamp_type for record in found} == {1}
    assert all(record.timestamp > T0 + 1_000_000 for record in found)
    assert len({record.timestamp for record in found[:10]}) == 1


@pytest.fixture
def make_topic(old: OldBroker) -> Callable[..., None]:
    def make(name: str, configs: dict[str, str]) -> None:
        with KafkaAdminClient(bootstrap_servers=old.bootstrap) as admin:
            admin.create_topics([NewTopic(name, 1, 1, topic_configs=configs)], wait_for_metadata=True)

    return make
