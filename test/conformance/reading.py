"""What tests look at: ends of futures, what a consumer gets, and what is in a partition, as records and as batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kafka.consumer import ConsumerRecord, KafkaConsumer
from kafka.producer.sending import FutureRecordMetadata
from kafka.protocol.fetch import FetchRequest
from kafka.records import iter_batches
from kafka.records.header import BatchHeader
from kafka.share import KafkaShareConsumer
from kafka.structs import TopicPartition
from test.broker.raw_client import RawClient
from test.support.waiting import until

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


def poll_until(
    condition: Callable[[], object],
    *consumers: KafkaConsumer | KafkaShareConsumer,
    into: list[Any] | None = None,
    step_ms: float = 100,
    **options: Any,
) -> list[Any]:
    """Poll these in turn until the condition holds; the records that have come, which ``into`` has meanwhile."""
    found = [] if into is None else into

    def poll() -> None:
        for consumer in consumers:
            for records in consumer.poll(step_ms, **options).values():
                found.extend(records)

    def shown() -> str:
        assigned = [consumer.assignment() for consumer in consumers if isinstance(consumer, KafkaConsumer)]
        return f"after {len(found)} records, of which the last {found[-1:]}; assigned: {assigned}"

    until(condition, meanwhile=poll, shown=shown)
    return found


def take(consumer: KafkaConsumer | KafkaShareConsumer, count: int, **options: Any) -> list[Any]:
    """The next ``count`` records, or a few more: what comes with the last one."""
    found: list[Any] = []
    return poll_until(lambda: len(found) >= count, consumer, into=found, **options)


def records_of_all(bootstrap: str, topic: str, partitions: int, **settings: Any) -> list[list[ConsumerRecord]]:
    """All that are there now, by partition. ``settings``: the consumer's; one of committed records waits until those
    transactions have ended that are open now."""
    places = [TopicPartition(topic, number) for number in range(partitions)]
    with KafkaConsumer(bootstrap_servers=bootstrap) as plain:
        ends = plain.end_offsets(places)
    with KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", **settings) as consumer:
        consumer.assign(places)
        found = poll_until(lambda: all(consumer.position(place) >= end for place, end in ends.items()), consumer)
    return [[record for record in found if record.partition == place.partition] for place in places]


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
