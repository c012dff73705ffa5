"""Ctrl-C in the midst of a poll or of iteration: what was not handed out does not count as read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

import kafka
from kafka.consumer import KafkaConsumer
from test.consumer.test_consumer import ALL, A, B, rig

OURS = (
    "consumer/consumer.py",
    "consumer/consumer.py",
    "consumer/driver.py",
    "iteration.py",
    "consume/partition.py",
)


@contextmanager
def interrupted(after: int) -> Iterator[list[int]]:
    """KeyboardInterrupt at the ``after``-th of the points where Python looks for signals: where a function of ours
    begins or goes on, and behind a call of a built-in one. Counts them."""
    points = [0]

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event not in ("call", "c_return") or not frame.f_code.co_filename.endswith(OURS):
            return
        points[0] += 1
        if points[0] == after:
            raise KeyboardInterrupt

    sys.setprofile(look)
    try:
        yield points
    finally:
        sys.setprofile(None)


def by_poll(consumer: KafkaConsumer, got: Callable[[Any], object]) -> None:
    for records in consumer.poll(0, max_records=3).values():
        for record in records:
            got(record)


def by_iteration(consumer: KafkaConsumer, got: Callable[[Any], object]) -> None:
    for record in consumer:
        got(record)


@pytest.mark.parametrize("read", [by_poll, by_iteration])
def test_no_record_is_lost_wherever_an_interrupt_comes(read: Callable[[KafkaConsumer, Any], None]) -> None:
    after, is_over = 0, False
    while not is_over:
        after += 1
        with rig() as it:
            consumer = KafkaConsumer(
                client=it.client, auto_offset_reset="earliest", consumer_timeout_ms=0, max_poll_records=4
            )
            consumer.assign([A, B])
            it.run(1)
            got: list[Any] = []
            with interrupted(after) as points:
                try:
                    read(consumer, got.append)
                except KeyboardInterrupt:
                    pass
                else:
                    is_over = points[0] < after
            for partition in (A, B):
                read_to = max([record.offset + 1 for record in got if record.partition == partition.partition] or [0])
                consumed = consumer._membership.consumed()[partition].offset
                assert consumed <= read_to, f"point {after} of {points}: {consumed} would be committed"
            for _ in range(12):
                it.run(1)
                read(consumer, got.append)
            for partition in (A, B):
                found = [(each.offset, each.value) for each in got if each.partition == partition.partition]
                assert found == ALL, f"point {after}"
            consumer.close()
    assert after > (5 if kafka.is_compiled() else 20), "compiled functions are no points"
