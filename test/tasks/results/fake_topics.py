"""A results topic and its late topic in memory, with the consumers that read them and the thread that they live in.

Everything runs in the test's thread: :class:`FakeIo` calls at once, and the tail's consumer hands out records when the
test says so (:meth:`Topics.deliver`), as many of whichever topic.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest

from kafka.consumer import ConsumerRecord
from kafka.errors import IllegalStateError, KafkaTimeoutError
from kafka.net.clock import ManualClock
from kafka.net.loop import Loop
from kafka.structs import TopicPartition
from kafka.tasks.format.job_id import BrokerTimeEstimate, partition_of
from kafka.tasks.format.records import StateRecord, encode
from kafka.tasks.format.topics import TopicNames
from kafka.tasks.results import log_reader, tails
from kafka.tasks.results.reader import ResultReader
from kafka.tasks.states import JobState

NAMES = TopicNames("shop")
PARTITIONS = 3
OWN = 1


class At(NamedTuple):
    """What a consumer's ``offsets_for_times`` gives."""

    offset: int


class FakeConsumer:
    """As much of a consumer as is used here. ``on_records`` None: one that is polled."""

    def __init__(self, topics: Topics, configs: dict[str, Any]) -> None:
        self.topics = topics
        self.on_records: Callable[[dict[TopicPartition, list[ConsumerRecord]]], None] | None = configs.get("on_records")
        self.positions: dict[TopicPartition, int] = {}
        self.is_closed = False

    def assign(self, places: Iterable[TopicPartition]) -> None:
        self.positions = {place: self.positions.get(place, 0) for place in places}

    def assignment(self) -> set[TopicPartition]:
        return set(self.positions)

    def seek(self, place: TopicPartition, offset: int) -> None:
        self.positions[place] = offset

    def position(self, place: TopicPartition, timeout_ms: float | None = None) -> int:
        return self.positions[place]

    def end_offsets(self, places: list[TopicPartition], timeout_ms: float | None = None) -> dict[TopicPartition, int]:
        self.topics.answer(timeout_ms)
        return {place: len(self.topics.logs[place]) for place in places}

    def offsets_for_times(
        self, times: dict[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, At | None]:
        self.topics.answer(timeout_ms)
        found: dict[TopicPartition, At | None] = {}
        for place, time_ms in times.items():
            offsets = [record.offset for record in self.topics.logs[place] if record.timestamp >= time_ms]
            found[place] = At(offsets[0]) if offsets else None
        return found

    def poll(self, timeout_ms: float) -> dict[TopicPartition, list[ConsumerRecord]]:
        (place,) = self.positions
        return {place: self.take(place, 2)}

    def take(self, place: TopicPartition, count: int) -> list[ConsumerRecord]:
        begin = self.positions[place]
        records = self.topics.logs[place][begin : begin + count]
        self.positions[place] += len(records)
        self.topics.read_count += len(records)
        return records

    def close(self) -> None:
        self.is_closed = True


class FakeIo:
    """The I/O thread: calls are made at once. Who gets an event waits until the tail has read on."""

    def __init__(self, topics: Topics) -> None:
        self.client = None
        self.loop = topics.loop
        self._topics = topics

    def call(self, fn: Callable[..., Any], *args: Any) -> Any:
        result = fn(*args)
        if isinstance(result, threading.Event) and not self._topics.is_stuck:
            self._topics.deliver_all()
        return result

    def submit(self, fn: Callable[..., Any], *args: Any) -> None:
        if self._topics.is_io_closed:
            raise IllegalStateError("the thread is closed")
        fn(*args)


class Topics:
    """``is_silent``: the broker answers no request. ``is_stuck``: the tail does not read on by itself. ``read_count``:
    records that the consumers have read.
    ``asked_ms``: the timeout of the last request.
    """

    def __init__(self, capacity: int = 100, timeout_s: float = 5.0) -> None:
        self.clock = ManualClock()
        self.loop = Loop.simulated(self.clock)
        self.logs: dict[TopicPartition, list[ConsumerRecord]] = defaultdict(list)
        self.consumers: list[FakeConsumer] = []
        self.is_silent = self.is_stuck = self.is_io_closed = False
        self.requests = 0
        self.read_count = 0
        self.asked_ms: float | None = None
        io: Any = FakeIo(self)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tails, "KafkaConsumer", self._consumer)
            patch.setattr(log_reader, "KafkaConsumer", self._consumer)
            estimate = BrokerTimeEstimate(self.clock.time)
            self.reader = ResultReader(io, NAMES, PARTITIONS, OWN, estimate, capacity, timeout_s)
        self.pass_time(0.02)

    def _consumer(self, client: None, **configs: Any) -> FakeConsumer:
        self.consumers.append(FakeConsumer(self, configs))
        return self.consumers[-1]

    @property
    def tail(self) -> FakeConsumer:
        """The consumer of the tails."""
        return next(each for each in self.consumers if each.on_records is not None)

    def now_ms(self) -> int:
        return round(self.clock.time() * 1000)

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        while self.loop.run_once(0, advance=False):
            pass

    def answer(self, timeout_ms: float | None) -> None:
        """One request to the broker."""
        self.requests += 1
        self.asked_ms = timeout_ms
        if self.is_silent:
            raise KafkaTimeoutError("no answer")

    def append(
        self,
        job_id: str,
        state: JobState,
        value: bytes = b"",
        *,
        attempt: int = 1,
        delivery: int = 1,
        late: bool = False,
        age_ms: int = 0,
        partition: int | None = None,
        due_ms: int | None = None,
    ) -> StateRecord:
        """Write a state record now, or so many ms ago; returns it as a reader gets it."""
        place = TopicPartition(
            NAMES.late if late else NAMES.results, partition_of(job_id) if partition is None else partition
        )
        log = self.logs[place]
        time_ms = self.now_ms() - age_ms
        record = StateRecord(job_id, state, attempt, delivery, value, time_ms, late, len(log), None, due_ms)
        key, body, headers = encode(record)
        log.append(ConsumerRecord(*place, 0, record.offset, record.time_ms, 1, key, body, headers))
        return record

    def deliver(self, place: TopicPartition, count: int) -> None:
        """Let the tail read so many records of one partition of a topic, if it reads it at all."""
        tail = self.tail
        records = tail.take(place, count) if place in tail.positions else []
        if records:
            assert tail.on_records is not None
            tail.on_records({place: records})

    def deliver_all(self) -> None:
        """Let the tail read all that there is."""
        for place in sorted(self.tail.positions):
            self.deliver(place, 1_000_000)
        self.pass_time(tails.CATCH_UP_LOOK_S)
