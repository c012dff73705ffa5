"""Tests of ``kafka.tasks.backends.kafka.partition_reader``."""

from __future__ import annotations

from typing import Any

import pytest

from kafka.consumer import ConsumerRecord
from kafka.errors import KafkaTimeoutError
from kafka.structs import TopicPartition
from kafka.tasks.backends.kafka.partition_reader import read_to

PLACE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


class FakeConsumer:
    """Returns what each poll is to return, and then nothing."""

    def __init__(self, *polls: dict[TopicPartition, list[int]]) -> None:
        self._polls = list(polls)
        self._position = 0

    def position(self, place: TopicPartition) -> int:
        return self._position

    def poll(self, timeout_ms: float) -> dict[TopicPartition, list[ConsumerRecord]]:
        polled = self._polls.pop(0) if self._polls else {}
        for offset in polled.get(PLACE, ()):
            self._position = offset + 1
        return {
            place: [ConsumerRecord("t", place.partition, 0, offset, 0, 0, None, b"", None) for offset in offsets]
            for place, offsets in polled.items()
        }


def read(consumer: Any, end: int, timeout_s: float = 60.0) -> list[int]:
    return [record.offset for record in read_to(consumer, PLACE, end, timeout_s)]


def test_a_partition_is_read_to_its_end_and_no_poll_further() -> None:
    assert read(FakeConsumer({PLACE: [0, 1]}, {OTHER: [7]}, {PLACE: [2]}, {PLACE: [3]}), 3) == [0, 1, 2]


def test_nothing_is_polled_at_the_end() -> None:
    assert read(FakeConsumer({PLACE: [0]}), 0) == []


def test_an_end_that_does_not_come_is_an_error_with_topic_and_time() -> None:
    with pytest.raises(KafkaTimeoutError, match=r"could not read topic t within 0\.01 s"):
        read(FakeConsumer({PLACE: [0]}), 2, 0.01)
