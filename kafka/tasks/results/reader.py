"""States of jobs, from any thread: what the tails of results partitions have read, and look-ups by bare id.

A client tails its own results partition (the one that its ids name) from the end as it was before its first job; it
begins with the first question. One's own jobs are answered from memory. Other jobs, and what has been pushed out of
memory, are looked up in the log; the partition of a job that is *waited* for is tailed, too, from an end taken before
the look-up, so that nothing falls between.

::

    find, wait, add_waiter ──┬─ ResultView     what was read; filled by ─┬─ Tails      (I/O thread)
        (users' threads)     └─ LogReader      look-ups ─────────────────┘
    JobWaiters: what Tails calls when a job ends
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Final

from kafka.client import IoThread
from kafka.errors import IllegalStateError, KafkaTimeoutError
from kafka.tasks.format.job_id import BrokerTimeEstimate, IdMaker, partition_of
from kafka.tasks.format.records import StateRecord
from kafka.tasks.format.topics import TopicNames
from kafka.tasks.results.log_reader import LogReader, left_ms
from kafka.tasks.results.tails import PartitionTail, Tails
from kafka.tasks.results.view import Certainty, KnownState, ResultView
from kafka.tasks.results.waiters import EndCallback, JobWaiters
from kafka.tasks.states import READY

MARGIN_MS = 10
"""Clocks of clients agree with the broker's about so well: one's own ids begin so long after the tail's start."""

LEAST_S: Final = 1.0
"""What a call may take that has to ask the broker, however short its timeout is."""


class ResultReader:
    """See the module. ``partitions``: of the results topics; ``own``: the one that this client's ids name.
    ``timeout_s``: what one question may take that has no timeout of its own."""

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
        """Looks where this client's own tail begins, before its first id is made."""
        self._io = io
        self._partitions = partitions
        self._own = own
        self._clock = clock
        self._timeout_s = timeout_s
        self._starting = threading.Lock()
        self._is_closed = False
        self._log = LogReader(io, names, timeout_s)
        self._waiters = JobWaiters()
        self._own_begin = self._log.end_offsets(own, self._until(None))
        self.new_id = IdMaker(own, clock, clock.now_ms() + MARGIN_MS)
        """Makes this client's ids; they are later than the begin of its tail, which has all records of their jobs."""
        self._view = ResultView(self.new_id.has_made, capacity)
        self._tails = Tails(io, names, own, self._view, self._waiters)

    def known(self, job_id: str) -> StateRecord | None:
        """See :meth:`kafka.tasks.backends.base.Backend.known`."""
        known = self._view.get(job_id)
        return None if known.certainty is Certainty.PARTIAL else known.record

    def is_at_hand(self, job_id: str) -> bool:
        """See :meth:`kafka.tasks.backends.base.Backend.is_at_hand`."""
        tail, known = self._tails.get(partition_of(job_id)), self._view.get(job_id)
        if tail is None or known.certainty is Certainty.PARTIAL:
            return False
        return known.certainty is Certainty.SETTLED or not known.is_final or tail.can_answer(known)

    def find(self, job_id: str, timeout: float | None = None, since_ms: int | None = None) -> StateRecord | None:
        """See :meth:`kafka.tasks.backends.base.Backend.find`."""
        until = self._until(timeout)
        if since_ms is None:
            return self._find(job_id, until, is_waiting=False)
        if partition_of(job_id) >= self._partitions:
            return None
        is_tailed = self._tails.get(partition_of(job_id)) is not None
        return self._look_up(job_id, until, is_tailed and self._is_own(job_id), since_ms)

    def settle(self, record: StateRecord) -> None:
        """See :meth:`kafka.tasks.backends.base.Backend.settle`."""
        self._io.call(self._tails.settle, record)

    def wait(self, job_id: str, timeout: float | None) -> StateRecord | None:
        """See :meth:`kafka.tasks.backends.base.Backend.wait`."""
        give_up_at = None if timeout is None else time.monotonic() + timeout
        ended = threading.Event()
        answers: list[StateRecord | None] = []

        def on_end(record: StateRecord | None) -> None:
            answers.append(record)
            ended.set()

        while True:
            left_s = None if give_up_at is None else max(0.0, give_up_at - time.monotonic())
            best = self.add_waiter(job_id, on_end, left_s)
            if (best is not None and best.state in READY) or partition_of(job_id) >= self._partitions:
                return best
            try:
                ended.wait(None if give_up_at is None else max(0.0, give_up_at - time.monotonic()))
            finally:
                self.remove_waiter(job_id, on_end)
            if not answers or self._is_closed:
                known = self._view.get(job_id)
                return best if known.certainty is Certainty.PARTIAL else known.record or best
            answer = answers.pop()
            if answer is not None:
                return answer
            ended.clear()

    def add_waiter(self, job_id: str, on_end: EndCallback, timeout: float | None = None) -> StateRecord | None:
        """Have ``on_end(record)`` called when the job ends, once at most; returns the job's best record so far, or None
        when there is none.

        ``on_end`` is called on the I/O thread, so it must not block, and perhaps before this returns. Called with None,
        it says that the job has ended and that its record is to be asked for (:meth:`find`), or that the reader was
        closed. When this returns a terminal record, ``on_end`` is not called any more.

        A job of another client, and the first job of a process, take requests to the broker: then this blocks, for
        ``timeout`` seconds at most (but at least one; None: the request timeout), and raises ``KafkaTimeoutError``.
        After that, this client's own jobs that are still in memory are answered without. Nothing is added for an id
        whose results partition does not exist.
        """
        if partition_of(job_id) >= self._partitions:
            return None
        self._waiters.add(job_id, on_end)  # first: the tail is not stopped from here on
        best: StateRecord | None = None
        is_added = False
        try:
            best = self._find(job_id, self._until(timeout), is_waiting=True)
            is_added = best is None or best.state not in READY
        finally:
            if not is_added:
                self._waiters.remove(job_id, on_end)
        return best

    def remove_waiter(self, job_id: str, on_end: EndCallback) -> None:
        """Do not call ``on_end`` any more; nothing when it is not added, or was called."""
        self._waiters.remove(job_id, on_end)

    def close(self) -> None:
        """Close the consumers; all waiters are called with None."""
        self._is_closed = True
        self._tails.close()
        self._log.close()
        self._waiters.end_all()

    # -- steps --------------------------------------------------------------------------------------------------------

    def _find(self, job_id: str, until: float, is_waiting: bool) -> StateRecord | None:
        partition = partition_of(job_id)
        if partition >= self._partitions:
            return None
        tail = self._tail(partition, until, start=is_waiting)
        known = self._view.get(job_id)
        if known.certainty is Certainty.SETTLED:
            return known.record
        if known.certainty is Certainty.COMPLETE and tail is not None and (is_waiting or tail.is_current):
            if known.is_final and not tail.can_answer(known):
                self._read_to_end(partition, tail, until)
                known = self._view.get(job_id)
            if known.certainty is not Certainty.PARTIAL:
                return known.record
        return self._look_up(job_id, until, is_followed=tail is not None and (is_waiting or self._is_own(job_id)))

    def _look_up(
        self, job_id: str, until: float, is_followed: bool, since_ms: int | None = None
    ) -> StateRecord | None:
        """The record that holds in the log; the view keeps it. ``is_followed``: later ones come to the view."""
        now_ms, evicted = self._clock.now_ms() - MARGIN_MS, self._view.evicted
        record = self._log.look_up(job_id, until, since_ms)
        with contextlib.suppress(IllegalStateError):  # closed meanwhile
            if record is not None and KnownState(record, Certainty.COMPLETE).is_settled(now_ms):
                self._io.submit(self._tails.settle, record)
            elif is_followed and (record is None or record.state not in READY):
                self._io.submit(self._view.complete, job_id, record, evicted)
        return record

    def _tail(self, partition: int, until: float, start: bool) -> PartitionTail | None:
        """The running tail of a partition; starts it when it is one's own, or when ``start`` says so."""
        tail = self._tails.get(partition)
        is_own = partition == self._own
        if tail is not None or not (start or is_own):
            return tail
        if not self._starting.acquire(timeout=left_ms(until) / 1000):
            raise KafkaTimeoutError("could not read the results topics in time")
        try:
            tail = self._tails.get(partition)
            if tail is None:
                end = self._log.end_offsets(partition, until)
                begin = self._own_begin if is_own else end
                tail = self._io.call(self._tails.start, partition, begin, end)
            return tail
        finally:
            self._starting.release()

    def _read_to_end(self, partition: int, tail: PartitionTail, until: float) -> None:
        """Wait until the tail has read what is in the log now."""
        now_ms = self._clock.now_ms() - MARGIN_MS
        end = self._log.end_offsets(partition, until)
        reached = self._io.call(self._tails.catch_up, partition, tail, end, now_ms)
        if not reached.wait(left_ms(until) / 1000):
            raise KafkaTimeoutError(f"could not read partition {partition} of the results topics to its end in time")

    def _is_own(self, job_id: str) -> bool:
        return self.new_id.has_made(job_id)

    def _until(self, timeout: float | None) -> float:
        return time.monotonic() + (self._timeout_s if timeout is None else min(self._timeout_s, max(timeout, LEAST_S)))
