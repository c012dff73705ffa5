"""States of jobs, from any thread: the tail of results partitions, and look-ups by bare id.

A client tails its own results partition (the one that its ids name) from the end as it was before its first job; it
begins with the first question. Tailed jobs are answered from memory. Whatever may have begun earlier (a bare id from
elsewhere), or has been pushed out of memory, is looked up in the log; who *waits* for such a job has its partition
tailed, too, from an end taken before the look-up, so that nothing falls between.

The tail runs on the I/O thread (:meth:`ResultReader._on_records`); users' threads wait for events of their own, one for
each job, so a thousand waiting threads are not woken by every record. Look-ups share one consumer, one at a time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from kafka.client import IoThread
from kafka.consumer import ConsumerRecord, KafkaConsumer
from kafka.errors import IllegalStateError, KafkaTimeoutError
from kafka.log_limit import LimitedLog
from kafka.structs import TopicPartition
from kafka.tasks.errors import BadRecord
from kafka.tasks.format.job_id import BrokerTimeEstimate, partition_of, time_of
from kafka.tasks.format.records import MOST_HEADERS, StateRecord, decode
from kafka.tasks.format.topics import TopicNames
from kafka.tasks.results.lookup import FetchEndOffset, FetchOffsetAt, LookUpRequest, look_up
from kafka.tasks.results.view import ResultView, supersedes
from kafka.tasks.states import READY

log = logging.getLogger(__name__)

MARGIN_MS = 10
"""Clocks of clients agree with the broker's about so well; jobs of so much after a tail's start are looked up, too.
(Others' jobs: one's own ids begin after that, so that their tail answers, and no broker that is gone is waited for.)"""
CATCH_UP_LOOK_S = 0.01
READ_WAIT_MS = 5
"""Look-ups read what is there; a fetch that waits for more would only hold up the next one."""

_CONSUMER = {"isolation_level": "read_committed", "auto_offset_reset": "earliest", "max_poll_records": 2000}


class _PartitionTail:
    """One results partition as it is tailed: both topics, from ``begin`` on.

    Jobs with an id later than ``covers_ms`` have all their records in it. ``is_current``: it has caught up once, with
    ``end``, which is where the log ended when the tail was started.
    """

    __slots__ = ("begin", "covers_ms", "end", "is_current", "view")

    def __init__(self, begin: dict[TopicPartition, int], covers_ms: int, capacity: int) -> None:
        self.begin = self.end = begin
        self.covers_ms = covers_ms
        self.is_current = False
        self.view = ResultView(capacity)

    def covers(self, job_id: str) -> bool:
        return time_of(job_id) > self.covers_ms


class ResultReader:
    """See the module. ``partitions``: of the results topics; ``own``: the one that this client's ids name."""

    def __init__(
        self,
        io: IoThread,
        names: TopicNames,
        partitions: int,
        own: int,
        clock: BrokerTimeEstimate,
        capacity: int,
        timeout_s: float,
    ) -> None:
        self._limited_log = LimitedLog(log)
        self._io = io
        self._names = names
        self._partitions = partitions
        self._clock = clock
        self._capacity = capacity
        self._timeout_s = timeout_s
        self._lock = threading.Lock()  # who starts tails
        self._reading = threading.Lock()  # who uses the reader
        self._tails: dict[int, _PartitionTail] = {}
        self._waiting: dict[str, list[threading.Event]] = {}
        self._waiting_lock = threading.Lock()
        make: Callable[..., KafkaConsumer] = KafkaConsumer
        self._tailing = io.call(
            lambda: make(client=io.client, on_records=self._on_records, on_error=self._on_error, **_CONSUMER)
        )
        patience_ms = int(timeout_s * 1000)
        self._reader = io.call(
            lambda: make(
                client=io.client, fetch_max_wait_ms=READ_WAIT_MS, request_timeout_ms=patience_ms, **_CONSUMER
            )
        )
        self._own = own
        self._is_closed = False
        self._own_tail = self._new_tail(own)
        self.covers_ms = self._own_tail.covers_ms
        """One's own ids are later than that, and so all their records are in one's own tail."""

    # -- questions ----------------------------------------------------------------------------------------------------

    def find(self, job_id: str) -> StateRecord | None:
        """See :meth:`kafka.tasks.backends.base.Backend.find`."""
        tail = self._tail_of(job_id, start=False)
        if tail is not None:
            record = tail.view.get(job_id)
            if tail.covers(job_id) and tail.is_current and (record is not None or not tail.view.evicted):
                return record
        return self._look_up(job_id)

    def wait(self, job_id: str, timeout: float | None) -> StateRecord | None:
        """See :meth:`kafka.tasks.backends.base.Backend.wait`."""
        until = None if timeout is None else time.monotonic() + timeout
        tail = self._tail_of(job_id, start=True)
        if tail is None:
            return None
        known = tail.view.get(job_id)
        if known is not None and known.state in READY and tail.covers(job_id):
            return known
        event = threading.Event()
        with self._waiting_lock:
            self._waiting.setdefault(job_id, []).append(event)
        try:
            best = tail.view.get(job_id)
            if not tail.covers(job_id) or (best is None and tail.view.evicted):
                looked_up = self._look_up(job_id)
                if looked_up is not None and looked_up.state in READY:
                    return looked_up
                best = tail.view.get(job_id)
                if best is None or (looked_up is not None and not supersedes(looked_up, best)):
                    best = looked_up
            if best is None or best.state not in READY:
                event.wait(None if until is None else max(0.0, until - time.monotonic()))
                best = tail.view.get(job_id) or best
            return best
        finally:
            self._stop_waiting(job_id, event)

    def close(self) -> None:
        """Close the consumers and wake all waiting threads."""
        self._is_closed = True
        self._tailing.close()
        self._reader.close()
        with self._waiting_lock:
            events = [event for waiting in self._waiting.values() for event in waiting]
        for event in events:
            event.set()

    def _stop_waiting(self, job_id: str, event: threading.Event) -> None:
        with self._waiting_lock:
            waiting = self._waiting.get(job_id)
            if waiting is not None:
                waiting.remove(event)
                if not waiting:
                    del self._waiting[job_id]

    # -- tails --------------------------------------------------------------------------------------------------------

    def _tail_of(self, job_id: str, start: bool) -> _PartitionTail | None:
        """The running tail of a job's partition; starts it when it is one's own, or when ``start`` says so."""
        partition = partition_of(job_id)
        tail = self._tails.get(partition)
        if tail is not None or partition >= self._partitions or not (start or partition == self._own):
            return tail
        with self._lock:
            tail = self._tails.get(partition)
            if tail is None:
                if partition == self._own:
                    tail = self._own_tail  # which began long ago, perhaps
                    tail.end = self._reader.end_offsets(list(tail.begin))
                else:
                    tail = self._new_tail(partition)
                self._io.call(self._start, partition, tail)
        return tail

    def _new_tail(self, partition: int) -> _PartitionTail:
        begin = self._reader.end_offsets(
            [TopicPartition(self._names.results, partition), TopicPartition(self._names.late, partition)]
        )
        return _PartitionTail(begin, self._clock.now_ms() + MARGIN_MS, self._capacity)

    def _start(self, partition: int, tail: _PartitionTail) -> None:
        """On the loop: read this partition, too."""
        self._tails[partition] = tail
        self._tailing.assign([*self._tailing.assignment(), *tail.begin])
        for each, offset in tail.begin.items():
            self._tailing.seek(each, offset)
        self._catch_up(tail)

    def _catch_up(self, tail: _PartitionTail) -> None:
        """On the loop: note when the tail has read what was there when it started."""
        if self._is_closed:
            return
        try:
            tail.is_current = all(self._tailing.position(each) >= end for each, end in tail.end.items())
        except IllegalStateError:  # a position is being looked up
            tail.is_current = False
        if not tail.is_current:
            self._io.loop.call_later(CATCH_UP_LOOK_S, self._catch_up, tail)

    def _on_records(self, records_by_partition: dict[TopicPartition, list[ConsumerRecord]]) -> None:
        final: list[str] = []
        for (topic, partition), records in records_by_partition.items():
            tail = self._tails.get(partition)
            if tail is None:
                continue
            late = topic == self._names.late
            apply = tail.view.apply
            for record in records:
                state = self._state(record)
                if state is not None and apply(state, late):
                    final.append(state.id)
        if self._waiting and final:
            with self._waiting_lock:
                events = [event for job_id in final for event in self._waiting.get(job_id, ())]
            for event in events:
                event.set()

    def _state(self, record: ConsumerRecord) -> StateRecord | None:
        try:
            if record.headers_count > MOST_HEADERS:
                most = f"a state record has at most {MOST_HEADERS}"
                raise BadRecord("bad-state", f"a record with {record.headers_count} headers; {most}")
            return decode(record.key, record.value, record.headers, record.timestamp)
        except BadRecord as error:
            where = record.topic, record.partition, record.offset
            self._limited_log.warning(record.topic, "ignoring record %s:%d:%d: %s", *where, error.text)
            return None

    @staticmethod
    def _on_error(error: Exception) -> None:
        log.warning("could not read the results topics: %s", error)

    # -- look-ups -----------------------------------------------------------------------------------------------------

    def _look_up(self, job_id: str) -> StateRecord | None:
        """The job's best record in the log."""
        if partition_of(job_id) >= self._partitions:
            return None
        with self._reading:
            dialogue = look_up(job_id)
            try:
                want = next(dialogue)
                while True:
                    want = dialogue.send(self._answer(want))
            except StopIteration as end:
                record: StateRecord | None = end.value
                return record

    def _answer(self, want: LookUpRequest) -> Any:
        place = TopicPartition(self._names.late if want.late else self._names.results, want.partition)
        if isinstance(want, FetchEndOffset):
            return self._reader.end_offsets([place])[place]
        if isinstance(want, FetchOffsetAt):
            at = self._reader.offsets_for_times({place: want.time_ms})[place]
            return -1 if at is None else at.offset
        assert want.until is not None
        return self._read(place, want.job_id, want.offset, want.until, want.until_ms)

    def _read(
        self, place: TopicPartition, job_id: str, offset: int, until: int, until_ms: int | None
    ) -> Sequence[StateRecord]:
        """The best of the job's records, or none: there may be any number of others."""
        reader = self._reader
        best: StateRecord | None = None
        reader.assign([place])
        reader.seek(place, offset)
        give_up_at = time.monotonic() + self._timeout_s
        try:
            while reader.position(place) < until:
                if time.monotonic() > give_up_at:
                    raise KafkaTimeoutError(f"could not read the state of job {job_id} within {self._timeout_s:g} s")
                for record in reader.poll(100).get(place, ()):
                    if record.offset >= until or (until_ms is not None and record.timestamp > until_ms):
                        return _one(best)
                    state = self._state(record) if record.key == job_id.encode() else None
                    if state is not None and supersedes(best, state):
                        best = state
                        if state.state in READY:
                            return _one(best)
            return _one(best)
        finally:
            reader.assign([])


def _one(record: StateRecord | None) -> list[StateRecord]:
    return [] if record is None else [record]
