"""A share partition: what of one topic partition is where in one share group (KIP-932, "Share partitions").

    log:      0 ........ 40 ............................ 90 ............ high watermark
                         start                           end
              done       in flight: acquired, available, not handed out yet
                         again, done out of order

Pure and deterministic: time arrives as ``now`` (monotonic s), records are never seen, only the borders of producers'
batches. Durable changes go to ``persist`` *before* they happen here; when that raises, nothing has changed. Locks live
only in memory, as in Kafka: after a restart, what was acquired is available, with the count that was last written.

The rules, numbers and quirks are those measured on Apache Kafka 4.3.0: the limit of records in flight is the *span*
from start to end, one producer's batch is always taken whole into it, redelivery near the limit of deliveries goes in
halves and the last one alone, and one bad offset fails all of a partition's acknowledgements (INVALID_RECORD_STATE).
Two things are better than there: neighbouring offsets come back as one range, and a failed list renews no lock either.

The window and its borders are ``window.py``'s, the choice of records and their locks ``acquire.py``'s; here are the
acknowledgements, the ends of locks and what is durable. The long-polling fetches, the sessions and the isolation level
are others' business (``sessions.py``, the handlers).
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final

from kafka.broker.share.acknowledgements import runs_of
from kafka.broker.share.acquire import Acquisition
from kafka.broker.share.inflight import NO_MEMBER, InFlightBatch, Run
from kafka.broker.share.states import (
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    OUTCOMES,
    RELEASE,
    RENEW,
    AckBatch,
    Acquired,
    AcquireMode,
    ShareEvent,
    ShareSettings,
    StateRange,
)
from kafka.broker.share.window import Window
from kafka.errors import InvalidRecordStateError, InvalidRequestError, KafkaError

log = logging.getLogger(__name__)

_NOTHING: Final[ShareEvent] = ShareEvent.NOTHING
_START_MOVED: Final[ShareEvent] = ShareEvent.START_MOVED
"""Members of an enum by short cut: looking one up, "or" and truth are dear, and every acknowledgement needs them."""

Persist = Callable[[int, Sequence[StateRange]], None]
"""Takes the start offset and what changes, and returns when that is durable; raises KafkaStorageError when it is
not.
"""


class SharePartition:
    """One share group's view of one topic partition. ``settings`` may be replaced at any time.

    ``on_deadline`` is called with ``next_deadline`` when that came nearer or is there for the first time.
    """

    def __init__(
        self,
        start_offset: int,
        settings: ShareSettings,
        persist: Persist,
        restored: Sequence[StateRange] = (),
        on_deadline: Callable[[float], object] = lambda when: None,
    ) -> None:
        self.settings = settings
        self._persist = persist
        self._on_deadline = on_deadline
        self._window = Window(start_offset, restored)
        self._next_deadline: float | None = None
        self._untold = ShareEvent.NOTHING

    # -- what is where -----------------------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        """The first offset that is not done (SPSO)."""
        return self._window.start

    @property
    def end_offset(self) -> int:
        """The offset after the last one ever handed out (and the first that never was)."""
        return self._window.end

    @property
    def next_deadline(self) -> float | None:
        """When to call :meth:`tick` at the latest; may be early, never late. ``None``: nothing is locked."""
        return self._next_deadline

    @property
    def delivery_complete_count(self) -> int:
        """How many offsets from start to end are done: the lag is what is left (KIP-1226)."""
        start = self._window.start
        return sum(
            run.last - max(run.first, start) + 1
            for run in self._window.runs()
            if run.is_terminal and run.last >= start
        )

    def next_fetch_offset(self) -> int:
        """Where to read the log for the next acquire: the first available offset, else the end."""
        return self._window.next_fetch_offset()

    def can_acquire(self) -> bool:
        """Whether an acquire can give anything: something is available again, or the window has room."""
        return self.next_fetch_offset() != self._window.end or self._window.span < self.settings.max_locks

    def state_ranges(self) -> list[StateRange]:
        """Everything in flight as it is durable: what is acquired is available, and this delivery is not yet
        counted.
        """
        return self._window.state_ranges()

    def held_by(self, member_id: str) -> list[tuple[int, int]]:
        """The ranges that a member holds, first and last inclusive."""
        return [(run.first, run.last) for run in self._window.held_by(member_id)]

    # -- acquire -----------------------------------------------------------------------------------------------------

    def acquire(
        self,
        member_id: str,
        fetched: Sequence[tuple[int, int]],
        *,
        fetch_offset: int,
        max_records: int,
        batch_size: int,
        mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
        now: float,
    ) -> list[Acquired]:
        """Lock records for a member and say which, ascending.

        ``fetched``: base and last offset of each producer's batch that was read from the log at ``fetch_offset``
        (:meth:`next_fetch_offset`). ``max_records`` is exact in record-limit mode; otherwise batches are taken whole,
        and split at their borders into ranges of about ``batch_size``.
        """
        if self._next_deadline is not None and now >= self._next_deadline:
            self._tell_later(self.tick(now), now)
        window = self._window
        if max_records <= 0 or not fetched:
            return []
        base = fetched[0][0]
        last = fetched[-1][1]
        limit = min(max_records, self.settings.max_locks - window.span)
        if limit <= 0:
            limit = min(max_records, window.end - fetch_offset)
            last = min(last, window.end - 1)
        if base > fetch_offset:
            window.archive_available(fetch_offset, base - 1)
            self._advance()
        base = max(base, window.start)
        if last < base:
            return []
        acquisition = Acquisition(
            window, self.settings, member_id, now + self.settings.lock_s, mode == AcquireMode.RECORD_LIMIT
        )
        overlapping = window.overlapping(base, last)
        if overlapping:
            limit -= acquisition.again(overlapping, base, last, limit)
        if limit > 0 and last >= window.end:
            acquisition.new(fetched, max(window.end, base), last, limit, max(1, batch_size))
        if acquisition.taken:
            self._locked_until(acquisition.deadline)
        return acquisition.taken

    # -- acknowledge, release, time ----------------------------------------------------------------------------------

    def acknowledge(self, member_id: str, batches: Sequence[AckBatch], now: float) -> ShareEvent:
        """Apply a member's acknowledgements: all, or none and an error.

        The batches have passed :func:`~kafka.broker.share.acknowledgements.check_ack_batches`. Offsets below the start
        are done already and are passed over. Errors: ``InvalidRecordStateError`` (121: not locked, another's lock,
        twice in one list, RENEW that the group does not allow), ``InvalidRequestError`` (42: offsets beyond what was
        acquired), and what ``persist`` raises.
        """
        event = self.tick(now)
        changes: list[StateRange] = []
        limit = self.settings.delivery_limit
        try:
            plan = self._plan(member_id, batches)
            for _, first, last, kind, count in plan:
                if kind != RENEW:
                    state = ARCHIVED if kind == RELEASE and count >= limit else OUTCOMES[kind]
                    changes.append(StateRange(first, last, state, count))
            if changes:
                self._persist(self._window.start, changes)
        except BaseException:
            self._tell_later(event, now)
            raise
        deadline = now + self.settings.lock_s
        at = 0
        for batch, first, last, kind, _ in plan:
            if kind == RENEW:
                for run in batch.cut(first, last):
                    run.deadline = deadline
                self._locked_until(deadline)
                continue
            state = changes[at].state
            at += 1
            for run in batch.cut(first, last):
                _unlock(run, state)
            if state == AVAILABLE:
                self._window.freed(first)
                event |= ShareEvent.RELEASED
        touched: InFlightBatch | None = None
        for row in plan:
            batch = row[0]
            if batch is not touched:
                batch.join()
                touched = batch
        if changes:
            moved = self._advance()
            return moved if event is _NOTHING else event if moved is _NOTHING else event | moved
        return event

    def _plan(
        self, member_id: str, batches: Sequence[AckBatch]
    ) -> list[tuple[InFlightBatch, int, int, int, int]]:
        """Each change as batch, first, last, type and delivery count; raises when one cannot be made."""
        plan: list[tuple[InFlightBatch, int, int, int, int]] = []
        done = -1
        for ack in batches:
            if ack.last < self._window.start:
                continue
            candidates = self._candidates(ack)
            for first, last, kind in runs_of(ack):
                if kind == RENEW and not self.settings.renew_enabled:
                    raise InvalidRecordStateError("the group does not allow RENEW (share.renew.acknowledge.enable)")
                first = max(first, self._window.start)
                for batch in candidates:
                    if batch.last < first:
                        continue
                    if batch.first > last:
                        break
                    for run in batch.overlapping(first, last):
                        begin = max(run.first, first)
                        end = min(run.last, last)
                        if run.state != ACQUIRED:
                            raise InvalidRecordStateError(f"offset {begin} is not acquired")
                        if run.member != member_id:
                            raise InvalidRecordStateError(f"offset {begin} is locked by another member")
                        if begin <= done:
                            raise InvalidRecordStateError(f"offset {begin} is acknowledged twice in one request")
                        done = end
                        plan.append((batch, begin, end, kind, run.count))
        return plan

    def _candidates(self, ack: AckBatch) -> list[InFlightBatch]:
        low = bisect_right(self._window.firsts, max(ack.first, self._window.start)) - 1
        if low < 0:
            raise InvalidRecordStateError(f"offsets {ack.first} to {ack.last} are not in flight")
        high = bisect_right(self._window.firsts, ack.last)
        if self._window.batches[high - 1].last < ack.last:
            raise InvalidRequestError(f"offsets {ack.first} to {ack.last} reach beyond what was acquired")
        return self._window.batches[low:high]

    def release(self, member_id: str, now: float) -> ShareEvent:
        """End all locks of a member (its session or its connection has closed). Delivery counts stay as they are."""
        event = self.tick(now)
        runs = self._window.held_by(member_id)
        return event | self._end_locks(runs, ShareEvent.RELEASED) if runs else event

    def tick(self, now: float) -> ShareEvent:
        """End the locks whose time is over. What happened, also what could not be told earlier."""
        if self._next_deadline is None or now < self._next_deadline:
            if self._untold is _NOTHING:
                return _NOTHING
            untold, self._untold = self._untold, _NOTHING
            return untold
        expired: list[Run] = []
        soonest: float | None = None
        for run in self._window.runs():
            if run.state == ACQUIRED:
                if run.deadline <= now:
                    expired.append(run)
                elif soonest is None or run.deadline < soonest:
                    soonest = run.deadline
        self._next_deadline = soonest
        untold, self._untold = self._untold, _NOTHING
        return untold | self._end_locks(expired, ShareEvent.LOCK_EXPIRED) if expired else untold

    def _tell_later(self, event: ShareEvent, now: float) -> None:
        """A call that gives no event has found that locks were over: others wait for that, so a tick has to follow."""
        if event is not _NOTHING:
            self._untold |= event
            self._on_deadline(now)

    def archive(self, member_id: str, first: int, last: int) -> ShareEvent:
        """Take back what was just acquired, for ever: records of aborted transactions, which read_committed hides."""
        changes: list[StateRange] = []
        runs: list[Run] = []
        for batch in self._window.overlapping(first, last):
            for run in batch.cut(first, last):
                if run.state == ACQUIRED and run.member == member_id:
                    runs.append(run)
                    changes.append(StateRange(run.first, run.last, ARCHIVED, run.count))
        if not changes:
            return ShareEvent.NOTHING
        self._persist(self._window.start, changes)
        for run in runs:
            _unlock(run, ARCHIVED)
        return self._advance()

    def log_start_moved(self, log_start_offset: int) -> ShareEvent:
        """The log has dropped what is below this offset (DeleteRecords, retention): so does the group."""
        if log_start_offset <= self._window.start:
            return ShareEvent.NOTHING
        self._window.start = log_start_offset
        self._window.end = max(self._window.end, log_start_offset)
        for batch in self._window.overlapping(0, log_start_offset - 1):
            for run in batch.cut(0, log_start_offset - 1):
                _unlock(run, ARCHIVED)
            batch.join()
        self._advance()
        return ShareEvent.START_MOVED

    def _end_locks(self, runs: Sequence[Run], event: ShareEvent) -> ShareEvent:
        limit = self.settings.delivery_limit
        changes = [
            StateRange(run.first, run.last, ARCHIVED if run.count >= limit else AVAILABLE, run.count) for run in runs
        ]
        try:
            self._persist(self._window.start, changes)
        except KafkaError as error:
            # The locks end all the same: nobody is there to be told, and what is lost are only delivery counts.
            log.error("the end of %d locks could not be written: %s", len(changes), error)
        for run, change in zip(runs, changes, strict=True):
            _unlock(run, change.state)
            if change.state == AVAILABLE:
                self._window.freed(run.first)
        for batch in self._window.batches:
            batch.join()
        return event | self._advance()

    # -- the window --------------------------------------------------------------------------------------------------

    def _locked_until(self, deadline: float) -> None:
        if self._next_deadline is None or deadline < self._next_deadline:
            self._next_deadline = deadline
            self._on_deadline(deadline)

    def _advance(self) -> ShareEvent:
        moved = self._window.advance()
        if not self._window.batches:
            self._next_deadline = None
        return _START_MOVED if moved else _NOTHING


def _unlock(run: Run, state: int) -> None:
    run.state = state
    run.member = NO_MEMBER
