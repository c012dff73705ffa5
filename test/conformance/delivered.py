"""What the tests of producers look at: the ends of futures, and what is in a partition, as records and as batches."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from kafka.consumer import ConsumerRecord, KafkaConsumer
from kafka.producer.future import FutureRecordMetadata
from kafka.protocol.fetch import FetchRequest
from kafka.records import iter_batches
from kafka.records.header import BatchHeader
from kafka.structs import TopicPartition
from test.broker.raw_client import RawClient

DEADLINE_S = 30
FETCH_VERSION = 12
"""The newest that Apache Kafka 2.8 has, and that names topics."""


def outcomes(futures: Iterable[FutureRecordMetadata]) -> list[type[BaseException] | None]:
    """The kind of each record's error, None where it was delivered."""
    found: list[type[BaseException] | None] = []
    for future in futures:
        try:
            future.get(DEADLINE_S)
        except Exception as error:
            found.append(type(error))
        else:
            found.append(None)
    return found


def records_of_all(bootstrap: str, topic: str, partitions: int) -> list[list[ConsumerRecord]]:
    """All that are there now, by partition."""
    places = [TopicPartition(topic, number) for number in range(partitions)]
    found: list[list[ConsumerRecord]] = [[] for _ in places]
    with KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        give_up_at = time.monotonic() + DEADLINE_S
        while any(consumer.position(place) < end for place, end in ends.items()):
            assert time.monotonic() < give_up_at
            for place, records in consumer.poll(1000).items():
                found[place.partition] += records
    return found


def records_of(bootstrap: str, topic: str) -> list[ConsumerRecord]:
    """All that are in partition 0 now."""
    return records_of_all(bootstrap, topic, 1)[0]


def values_of(bootstrap: str, topic: str) -> list[bytes | None]:
    return [record.value for record in records_of(bootstrap, topic)]


def batches_of(bootstrap: str, topic: str) -> list[BatchHeader]:
    """The headers of the batches of partition 0, as the broker keeps them (those of the first mebibyte)."""
    entry = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=100, min_bytes=1, topics=[FetchRequest.FetchTopic(topic=topic, partitions=[entry])]
    )
    with RawClient(int(bootstrap.rpartition(":")[2])) as raw:
        (answer,) = raw.ask(request, FETCH_VERSION).responses
    data: Any = answer.partitions[0].records
    return list(iter_batches(bytes(data or b"")))
