"""Follows results partitions on the I/O thread, and keeps in the view what this client enqueued or waits for.

Each tailed partition is read in both topics, ``results`` and ``results.late``. One's own partition is followed once it
has been started; another one while a job of it is waited for, and up to two minutes more.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from kafka.client import IoThread
from kafka.consumer import ConsumerRecord, KafkaConsumer
from kafka.errors import IllegalStateError
from kafka.log_limit import LimitedLog
from kafka.structs import TopicPartition
from kafka.tasks.backends.kafka.rights import named
from kafka.tasks.format.job_id import partition_of, time_of
from kafka.tasks.format.records import LATE_AFTER_MS, StateRecord
from kafka.tasks.format.topics import TopicNames
from kafka.tasks.results.log_reader import CONSUMER_CONFIGS, StateDecoder
from kafka.tasks.results.view import Certainty, KnownState, ResultView
from kafka.tasks.results.waiters import JobWaiters
from kafka.tasks.states import READY

log = logging.getLogger(__name__)

CATCH_UP_LOOK_S: Final = 0.01
IDLE_LOOK_S: Final = 60.0
LOG_S: Final = 60.0
"""One warning of each kind is logged in so long."""
"""How often the tails of other partitions are looked at: one that is not waited for twice in succession is stopped."""


class PartitionTail:
    """One results partition as it is tailed. ``is_current``: it has caught up with the end of the log as it was when
    the tail was started. ``is_idle``: no job of it was waited for at the last look. ``results_read_ms``: all records of
    ``results`` that were appended before have been read, as far as append times do not step back; ``results_end_ms``:
    it has been read up to the end offset that it had then (both in ms of the broker's time).
    """

    __slots__ = ("is_current", "is_idle", "results_end_ms", "results_read_ms")

    def __init__(self) -> None:
        self.is_current = False
        self.is_idle = False
        self.results_read_ms = 0
        self.results_end_ms = 0

    def can_answer(self, known: KnownState) -> bool:
        """Whether this is the job's terminal record in the log, as far as it has been written."""
        return known.is_settled(self.results_read_ms) or (
            known.certainty is Certainty.COMPLETE
            and known.record is not None
            and known.record.state in READY
            and self.results_end_ms > time_of(known.record.id) + LATE_AFTER_MS
        )


class Tails:
    """The tails of a client. Its methods are called on the I/O thread, except :meth:`get` and where they say so."""

    def __init__(self, io: IoThread, names: TopicNames, own: int, view: ResultView, waiters: JobWaiters) -> None:
        """In any other thread than the I/O thread."""
        self._io = io
        self._names = names
        self._limited_log = LimitedLog(log, most=1, every_s=LOG_S, clock=io.loop.time)
        self._own = own
        self._view = view
        self._waiters = waiters
        self._decoder = StateDecoder()
        self._by_partition: dict[int, PartitionTail] = {}
        self._catching_up: set[threading.Event] = set()
        self._is_closed = False
        make: Callable[..., KafkaConsumer] = KafkaConsumer
        self._consumer = io.call(
            lambda: make(client=io.client, on_records=self._on_records, on_error=self._on_error, **CONSUMER_CONFIGS)
        )

    def get(self, partition: int) -> PartitionTail | None:
        """The running tail of a partition."""
        return self._by_partition.get(partition)

    def start(self, partition: int, begin: dict[TopicPartition, int], end: dict[TopicPartition, int]) -> PartitionTail:
        """Read this partition, too, from the offsets ``begin`` on; it is current at ``end``."""
        tail = self._by_partition[partition] = PartitionTail()
        self._consumer.assign([*self._consumer.assignment(), *begin])
        for place, offset in begin.items():
            self._consumer.seek(place, offset)
        self.catch_up(partition, tail, end, 0)
        if partition != self._own:
            self._io.loop.call_later(IDLE_LOOK_S, self._stop_if_idle, partition)
        return tail

    def catch_up(
        self, partition: int, tail: PartitionTail, end: dict[TopicPartition, int], time_ms: int
    ) -> threading.Event:
        """Wait, without blocking, until a tail has read up to these end offsets, which were read after ``time_ms``; the
        event is set then, or when it is not tailed any more."""
        reached = threading.Event()
        self._catching_up.add(reached)

        def look() -> None:
            if not self._is_closed and self._by_partition.get(partition) is tail:
                if not all(self._has_read(place, offset) for place, offset in end.items()):
                    self._io.loop.call_later(CATCH_UP_LOOK_S, look)
                    return
                tail.is_current = True
                tail.results_read_ms = max(tail.results_read_ms, time_ms)
                tail.results_end_ms = max(tail.results_end_ms, time_ms)
            self._catching_up.discard(reached)
            reached.set()

        look()
        return reached

    def settle(self, record: StateRecord) -> None:
        """A look-up has found this terminal record, perhaps before the tail reads it."""
        self._view.settle(record)
        self._waiters.end([record.id], lambda _: record)

    def close(self) -> None:
        """In any other thread than the I/O thread: read nothing more."""
        self._is_closed = True
        self._consumer.close()
        for reached in list(self._catching_up):
            reached.set()

    def _has_read(self, place: TopicPartition, end: int) -> bool:
        try:
            return self._consumer.position(place) >= end
        except IllegalStateError:  # a position is being looked up
            return False

    def _stop_if_idle(self, partition: int) -> None:
        if self._is_closed:
            return
        tail = self._by_partition[partition]
        was_idle = tail.is_idle
        tail.is_idle = self._waiters.run_if_none(
            partition, lambda: self._by_partition.pop(partition) if was_idle else None
        )
        if was_idle and tail.is_idle:
            self._consumer.assign([place for place in self._consumer.assignment() if place.partition != partition])
            self._view.drop_partition(partition, tail.results_read_ms)
        else:
            self._io.loop.call_later(IDLE_LOOK_S, self._stop_if_idle, partition)

    def _on_records(self, records_by_partition: dict[TopicPartition, list[ConsumerRecord]]) -> None:
        ended: list[str] = []
        view, waiters, decode = self._view, self._waiters, self._decoder.decode
        for (topic, partition), records in records_by_partition.items():
            tail = self._by_partition.get(partition)
            if tail is None:
                continue
            in_late, named = topic == self._names.late, f"{partition:04x}"
            for record in records:
                job_id = str(record.key or b"", "ascii", "replace")
                if (view.wants(job_id) or job_id in waiters) and job_id[12:16] == named:
                    state = decode(record, in_late)
                    if state is not None and view.apply(state):
                        ended.append(job_id)
            if not in_late:
                tail.results_read_ms = max(tail.results_read_ms, records[-1].timestamp)
        if waiters and ended:
            waiters.end(ended, self._settled)

    def _settled(self, job_id: str) -> StateRecord | None:
        """The job's record, if it holds."""
        known = self._view.get(job_id)
        tail = self._by_partition[partition_of(job_id)]
        return known.record if tail.can_answer(known) else None

    def _on_error(self, error: Exception) -> None:
        text = named(error, self._names.app, "topic", "Read", ".results")
        self._limited_log.warning(type(error).__name__, "could not read the results topics: %s", text)
