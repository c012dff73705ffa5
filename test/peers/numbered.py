"""Numbered records, written and read by this package's clients: the half of a crossing test that is always the same."""

from __future__ import annotations

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from test.support.waiting import polled

T0 = 1_700_000_000_000
DEADLINE_S = 30.0


def write(bootstrap: str, topic: str, codec: str, count: int) -> None:
    """``count`` records to partition 0, with a millisecond between one and the next."""
    with KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec, linger_ms=50) as producer:
        futures = [
            producer.send(topic, b"value-%d" % n, key=b"key-%d" % n, partition=0, timestamp_ms=T0 + n)
            for n in range(count)
        ]
        producer.flush(DEADLINE_S)
        assert [future.get(1).offset for future in futures] == list(range(count))


def read(bootstrap: str, topic: str, count: int) -> list[tuple[int, int, str, str]]:
    """Offset, time, key, value of the first ``count`` records of partition 0."""
    with KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        found = polled(consumer, count, within_s=DEADLINE_S)
    return [(record.offset, record.timestamp, record.key.decode(), record.value.decode()) for record in found]
