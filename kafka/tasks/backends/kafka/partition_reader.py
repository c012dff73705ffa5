"""Consumers that read a partition without a group: how they are configured, where they stand, and a loop that reads to
an end offset that is known, with a time limit."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

from kafka.consumer import ConsumerRecord, KafkaConsumer
from kafka.errors import IllegalStateError, KafkaTimeoutError
from kafka.structs import TopicPartition

READ_CONFIGS: Final[dict[str, Any]] = {
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    "metrics_enabled": False,
}

POLL_MS: Final = 100
"""Most that one poll waits."""


def read_to(
    consumer: KafkaConsumer, place: TopicPartition, end: int, timeout_s: float
) -> Iterator[ConsumerRecord]:
    """The records of ``place`` from the consumer's position on, until that is ``end`` or more; blocks.
    KafkaTimeoutError after ``timeout_s``."""
    for polled in poll_to(consumer, place, end, timeout_s):
        yield from polled.get(place, ())


def poll_to(
    consumer: KafkaConsumer, place: TopicPartition, end: int, timeout_s: float
) -> Iterator[dict[TopicPartition, list[ConsumerRecord]]]:
    """As :func:`read_to`, with the records of all of the consumer's partitions, poll by poll."""
    give_up_at = time.monotonic() + timeout_s
    while consumer.position(place) < end:
        if time.monotonic() > give_up_at:
            raise read_timeout(place.topic, timeout_s)
        yield consumer.poll(POLL_MS)


def position_of(consumer: KafkaConsumer, place: TopicPartition, otherwise: int = -1) -> int:
    """Where the consumer stands; ``otherwise`` while that is looked up: on the loop it cannot be waited for."""
    try:
        return consumer.position(place)
    except IllegalStateError:
        return otherwise


def read_timeout(topic: str, timeout_s: float) -> KafkaTimeoutError:
    """The error of a topic that could not be read to its end in time."""
    return KafkaTimeoutError(f"could not read topic {topic} within {timeout_s:g} s")
