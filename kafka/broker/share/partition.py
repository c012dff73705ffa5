"""A share partition: the delivery states of one topic partition's records in one share group (KIP-932).

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

:class:`InFlightWindow` has the records in flight, :class:`Acquisition` selects what a member acquires, and
:class:`SharePartition`, which is a window, applies acknowledgements, lock timeouts and durable changes. Waiting
fetches, sessions and the isolation level are not here (``handlers/share.py``, ``sessions.py``).
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from kafka.broker.share.states import (
    ACKNOWLEDGED,
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
    runs_of,
)
from kafka.errors import InvalidRecordStateError, InvalidRequestError, KafkaError

# -- records in flight -------------------------------------------------------------------------------------------------
#
#     InFlightBatch 100..199      what one acquire took, along the borders of producers' batches
#       DeliveryRun 100..149 ACKNOWLEDGED
#       DeliveryRun 150..150 ACQUIRED by "m1", delivery 2, until 12.5
#       DeliveryRun 151..199 AVAILABLE, delivery 1
#
# A batch that is handled as a whole has one run, so that its cost does not depend on how many records it has. The
# batch's own borders stay as they were acquired: Apache Kafka's throttled redelivery counts in parts of that size.


NO_MEMBER = ""


class DeliveryRun:
    """Neighbouring offsets in one state. ``deadline``: when the lock ends, in monotonic s; only while ACQUIRED."""

    __slots__ = ("count", "deadline", "first", "last", "member", "state")

    def __init__(
        self, first: int, last: int, state: int, count: int, member: str = NO_MEMBER, deadline: float = 0.0
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.count = count
        self.member = member
        self.deadline = deadline

    @property
    def is_terminal(self) -> bool:
        return self.state == ACKNOWLEDGED or self.state == ARCHIVED

    def __repr__(self) -> str:
        return f"Run({self.first}..{self.last} state={self.state} count={self.count} member={self.member!r})"


class InFlightBatch:
    """Offsets ``first`` to ``last``, covered by ``runs`` without holes, in order."""

    __slots__ = ("first", "last", "runs")

    def __init__(self, first: int, last: int, runs: list[DeliveryRun]) -> None:
        self.first = first
        self.last = last
        self.runs = runs

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    def overlapping(self, first: int, last: int) -> Iterator[DeliveryRun]:
        """The runs that have an offset in ``first`` to ``last``, uncut."""
        for run in self.runs:
            if run.last < first:
                continue
            if run.first > last:
                return
            yield run

    def split(self, first: int, last: int) -> list[DeliveryRun]:
        """Split the runs at the borders of ``first`` to ``last``, and return those inside."""
        runs = self.runs
        if len(runs) == 1 and runs[0].first >= first and runs[0].last <= last:
            return runs[:]
        inside: list[DeliveryRun] = []
        whole: list[DeliveryRun] = []
        for run in runs:
            if run.last < first or run.first > last:
                whole.append(run)
                continue
            if run.first < first:
                whole.append(_piece(run, run.first, first - 1))
            middle = _piece(run, max(run.first, first), min(run.last, last))
            whole.append(middle)
            inside.append(middle)
            if run.last > last:
                whole.append(_piece(run, last + 1, run.last))
        self.runs = whole
        return inside

    def merge_runs(self) -> None:
        """Merge adjacent runs in one state; terminal ones whatever their delivery counts were."""
        runs = self.runs
        if len(runs) < 2:
            return
        joined = [runs[0]]
        for run in runs[1:]:
            before = joined[-1]
            if before.state == run.state and (
                run.state in (ACKNOWLEDGED, ARCHIVED)
                or (
                    before.count == run.count
                    and (run.state == AVAILABLE or (before.member == run.member and before.deadline == run.deadline))
                )
            ):
                before.last = run.last
            else:
                joined.append(run)
        self.runs = joined

    @property
    def is_terminal(self) -> bool:
        return all(run.is_terminal for run in self.runs)


def _piece(run: DeliveryRun, first: int, last: int) -> DeliveryRun:
    return DeliveryRun(first, last, run.state, run.count, run.member, run.deadline)


_OPEN = (ACQUIRED, AVAILABLE)
"""States of records that are not done."""


class InFlightWindow:
    """The offsets from a share partition's start to its end, in batches, and what moves the start.

        start ........................................ end
        [InFlightBatch][InFlightBatch]...[InFlightBatch]     ascending; holes are offsets that the log never had

    ``start_offset``: the first offset that is not done (SPSO); ``end_offset``: the one after the last that was ever
    acquired. Batches that are done at the front leave the window; its span is what Kafka limits."""

    __slots__ = ("_available_from", "batches", "end_offset", "firsts", "start_offset")

    def __init__(self, start: int, restored: Sequence[StateRange] = ()) -> None:
        self.start_offset = start
        self.end_offset = start
        self.batches: list[InFlightBatch] = []
        self.firsts: list[int] = []
        """The first offset of each batch, for bisection."""
        self._available_from: int | None = None
        self._restore(restored)

    @property
    def span(self) -> int:
        """What counts against the limit of records in flight."""
        return self.end_offset - self.start_offset if self.batches else 0

    def overlapping(self, first: int, last: int) -> list[InFlightBatch]:
        """The batches that have an offset in ``first`` to ``last``."""
        low = bisect_right(self.firsts, first) - 1
        if low < 0 or self.batches[low].last < first:
            low += 1
        return self.batches[low : bisect_right(self.firsts, last)]

    def runs(self) -> Iterator[DeliveryRun]:
        """Every run, ascending."""
        for batch in self.batches:
            yield from batch.runs

    def acquired_by(self, member_id: str) -> list[DeliveryRun]:
        """The runs that a member has locked."""
        return [run for run in self.runs() if run.state == ACQUIRED and run.member == member_id]

    def next_fetch_offset(self) -> int:
        """Where to read the log for the next acquire: the first available offset, else the end."""
        if self._available_from is None:
            return self.end_offset
        index = max(0, bisect_right(self.firsts, self._available_from) - 1)
        for batch in self.batches[index:]:
            for run in batch.runs:
                if run.state == AVAILABLE and run.last >= self.start_offset:
                    self._available_from = max(run.first, self.start_offset)
                    return self._available_from
        self._available_from = None
        return self.end_offset

    def state_ranges(self) -> list[StateRange]:
        """Everything in flight as it is durable: what is acquired is available, and this delivery is not yet
        counted.
        """
        ranges: list[StateRange] = []
        for run in self.runs():
            state, count = (AVAILABLE, run.count - 1) if run.state == ACQUIRED else (run.state, run.count)
            if run.last >= self.start_offset and (state != AVAILABLE or count):
                ranges.append(StateRange(max(run.first, self.start_offset), run.last, state, count))
        return ranges

    # -- changes -----------------------------------------------------------------------------------------------------

    def append(self, batch: InFlightBatch) -> None:
        """Add a batch behind all others."""
        self.batches.append(batch)
        self.firsts.append(batch.first)
        self.end_offset = batch.last + 1

    def note_available(self, offset: int) -> None:
        """Something from ``offset`` on is available."""
        if self._available_from is None or offset < self._available_from:
            self._available_from = offset

    def archive_available(self, first: int, last: int) -> None:
        """Archive the available records of this range: the log no longer has them (compaction)."""
        for batch in self.overlapping(first, last):
            if any(run.state == AVAILABLE for run in batch.overlapping(first, last)):
                for run in batch.split(first, last):
                    if run.state == AVAILABLE:
                        run.state = ARCHIVED
                batch.merge_runs()

    def advance(self) -> bool:
        """Move the start past all that is done at the front, and forget the batches that end there; whether it moved.
        """
        before = self.start_offset
        done = 0
        for batch in self.batches:
            for run in batch.runs:
                if run.state in _OPEN:
                    break
            else:
                done += 1
                continue
            self.start_offset = max(self.start_offset, run.first)
            break
        else:
            self.start_offset = self.end_offset
            self._available_from = None
        if done:
            del self.batches[:done]
            del self.firsts[:done]
        return self.start_offset != before

    def _restore(self, ranges: Sequence[StateRange]) -> None:
        """Restore durable ranges; offsets between them, of which nothing was written, are available for the first
        time.
        """
        for found in sorted(ranges):
            if found.last < self.start_offset:
                continue
            first = max(found.first, self.start_offset)
            if first > self.end_offset:
                self._add(self.end_offset, first - 1, AVAILABLE, 0)
            self._add(first, found.last, found.state, found.delivery_count)
        self.advance()

    def _add(self, first: int, last: int, state: int, count: int) -> None:
        at = bisect_left(self.firsts, first)
        self.firsts.insert(at, first)
        self.batches.insert(at, InFlightBatch(first, last, [DeliveryRun(first, last, state, count)]))
        self.end_offset = max(self.end_offset, last + 1)
        if state == AVAILABLE:
            self.note_available(first)


# -- acquiring ---------------------------------------------------------------------------------------------------------


class Acquisition:
    """One acquire of one member: which records it gets, locked until ``deadline`` (monotonic s); ``taken`` lists them,
    ascending. ``exact``: no more than the limit, even if that splits a batch.

    First records that are available again, then new ones. The quirks are Apache Kafka 4.3.0's, measured: without an
    exact limit batches are taken whole; redelivery near the limit of deliveries goes in halves, the last one alone. It
    changes only the window; nothing of it is durable, as a lock ends with the broker."""

    __slots__ = ("_member_id", "_settings", "_window", "deadline", "exact", "taken")

    def __init__(
        self, window: InFlightWindow, settings: ShareSettings, member_id: str, deadline: float, exact: bool
    ) -> None:
        self._window = window
        self._settings = settings
        self._member_id = member_id
        self.deadline = deadline
        self.exact = exact
        self.taken: list[Acquired] = []

    def acquire_available(
        self,
        batches: Sequence[InFlightBatch],
        base: int,
        last: int,
        limit: int,
    ) -> int:
        """Lock the available records of batches in flight; returns how much of the limit that uses."""
        count = 0
        for batch in batches:
            if count >= limit:
                break
            throttled = self._is_throttled(batch, base, last)
            if throttled and count:
                return limit
            runs = batch.runs
            whole = len(runs) == 1 and batch.first >= base and batch.last <= last
            if whole and not throttled and not (self.exact and batch.size > limit - count):
                if runs[0].state == AVAILABLE:
                    self._lock(runs[0])
                    self.taken.append(Acquired(batch.first, batch.last, runs[0].count))
                    count += batch.size
                continue
            part = self._part(batch, base, last, limit - count if self.exact else None)
            count += part
            if throttled and part:
                return limit
        return count

    def _part(
        self,
        batch: InFlightBatch,
        base: int,
        last: int,
        at_most: int | None,
    ) -> int:
        """Lock a part of a batch: smaller the more often it was delivered, one record before the last delivery."""
        delivery_limit = self._settings.delivery_limit
        throttle_from = _throttle_from(delivery_limit)
        cap: int | None = None
        count = 0
        parts: list[tuple[int, int]] = []
        for run in batch.overlapping(base, last):
            if run.state != AVAILABLE:
                continue
            first = max(run.first, base)
            room = min(run.last, last) - first + 1
            is_last_delivery = delivery_limit > 2 and run.count == delivery_limit - 1
            if is_last_delivery and count:
                break
            if cap is None and run.count >= throttle_from:
                cap = max(1, batch.size >> (run.count - throttle_from + 1))
            if is_last_delivery:
                room = 1
            if at_most is not None:
                room = min(room, at_most - count)
            if cap is not None and count < cap:
                room = min(room, cap - count)
            parts.append((first, first + room - 1))
            count += room
            if is_last_delivery or count in (at_most, cap):
                break
        for first, end in parts:
            for run in batch.split(first, end):
                self._lock(run)
                taken = self.taken
                if taken and taken[-1].last + 1 == run.first and taken[-1].delivery_count == run.count:
                    taken[-1] = Acquired(taken[-1].first, run.last, run.count)
                else:
                    taken.append(Acquired(run.first, run.last, run.count))
        if parts:
            batch.merge_runs()
        return count

    def acquire_new(
        self,
        fetched: Sequence[tuple[int, int]],
        first: int,
        last: int,
        limit: int,
        batch_size: int,
    ) -> None:
        """Take records into the window that never were in it, up to the border of the batch in which the limit
        falls.
        """
        last = next((end for _, end in fetched if end >= first + limit - 1), last)
        if not self._window.batches:
            self._window.start_offset = first
        borders = [first]
        if not self.exact:
            for base, _ in fetched:
                if base > last:
                    break
                if base - borders[-1] >= batch_size:
                    borders.append(base)
        for at, begin in enumerate(borders):
            end = borders[at + 1] - 1 if at + 1 < len(borders) else last
            stop = min(end, begin + limit - 1) if self.exact else end
            runs = [DeliveryRun(begin, stop, ACQUIRED, 1, self._member_id, self.deadline)]
            if stop < end:
                runs.append(DeliveryRun(stop + 1, end, AVAILABLE, 0))
                self._window.note_available(stop + 1)
            self._window.append(InFlightBatch(begin, end, runs))
            self.taken.append(Acquired(begin, stop, 1))

    def _is_throttled(self, batch: InFlightBatch, base: int, last: int) -> bool:
        limit = _throttle_from(self._settings.delivery_limit)
        runs = batch.runs
        if len(runs) == 1:
            return runs[0].state == AVAILABLE and runs[0].count >= limit
        return any(run.state == AVAILABLE and run.count >= limit for run in batch.overlapping(base, last))

    def _lock(self, run: DeliveryRun) -> None:
        run.state = ACQUIRED
        run.count += 1
        run.member = self._member_id
        run.deadline = self.deadline


def _throttle_from(delivery_limit: int) -> int:
    """The delivery count from which redelivery goes in smaller parts: half of the limit, at least 2."""
    return max(2, (delivery_limit + 1) // 2)


log = logging.getLogger(__name__)

_NOTHING: Final[ShareEvent] = ShareEvent.NOTHING
_START_MOVED: Final[ShareEvent] = ShareEvent.START_MOVED
"""Members of an enum by short cut: looking one up, "or" and truth are dear, and every acknowledgement needs them."""

Persist = Callable[[int, Sequence[StateRange]], None]
"""Takes the start offset and what changes, and returns when that is durable; raises KafkaStorageError when it is
not.
"""


class SharePartition(InFlightWindow):
    """One share group's view of one topic partition: its window, and what members and time do to it.

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
        super().__init__(start_offset, restored)
        self.settings = settings
        self._persist = persist
        self._on_deadline = on_deadline
        self._next_deadline: float | None = None
        self._unreported = ShareEvent.NOTHING

    def configure(self, settings: ShareSettings) -> None:
        """Put other settings in force."""
        self.settings = settings

    # -- queries -----------------------------------------------------------------------------------------------

    @property
    def next_deadline(self) -> float | None:
        """When to call :meth:`tick` at the latest; may be early, never late. ``None``: nothing is locked."""
        return self._next_deadline

    @property
    def delivery_complete_count(self) -> int:
        """How many offsets from start to end are done: the lag is what is left (KIP-1226)."""
        start = self.start_offset
        return sum(
            run.last - max(run.first, start) + 1
            for run in self.runs()
            if run.is_terminal and run.last >= start
        )

    def can_acquire(self) -> bool:
        """Whether an acquire can give anything: something is available again, or the window has room."""
        return self.next_fetch_offset() != self.end_offset or self.span < self.settings.max_locks

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
        """Acquire records for a member; returns which, ascending.

        ``fetched``: base and last offset of each producer's batch that was read from the log at ``fetch_offset``
        (:meth:`next_fetch_offset`). ``max_records`` is exact in record-limit mode; otherwise batches are taken whole,
        and split at their borders into ranges of about ``batch_size``.
        """
        if self._next_deadline is not None and now >= self._next_deadline:
            self._report_at_next_tick(self.tick(now), now)
        if max_records <= 0 or not fetched:
            return []
        base = fetched[0][0]
        last = fetched[-1][1]
        limit = min(max_records, self.settings.max_locks - self.span)
        if limit <= 0:
            limit = min(max_records, self.end_offset - fetch_offset)
            last = min(last, self.end_offset - 1)
        if base > fetch_offset:
            self.archive_available(fetch_offset, base - 1)
            self._advance()
        base = max(base, self.start_offset)
        if last < base:
            return []
        acquisition = Acquisition(
            self, self.settings, member_id, now + self.settings.lock_s, mode == AcquireMode.RECORD_LIMIT
        )
        overlapping = self.overlapping(base, last)
        if overlapping:
            limit -= acquisition.acquire_available(overlapping, base, last, limit)
        if limit > 0 and last >= self.end_offset:
            acquisition.acquire_new(fetched, max(self.end_offset, base), last, limit, max(1, batch_size))
        if acquisition.taken:
            self._note_deadline(acquisition.deadline)
        return acquisition.taken

    # -- acknowledge, release, time ----------------------------------------------------------------------------------

    def acknowledge(self, member_id: str, batches: Sequence[AckBatch], now: float) -> ShareEvent:
        """Apply a member's acknowledgements: all, or none and an error.

        The batches have passed :func:`~kafka.broker.share.states.check_ack_batches`. Offsets below the start
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
                self._persist(self.start_offset, changes)
        except BaseException:
            self._report_at_next_tick(event, now)
            raise
        deadline = now + self.settings.lock_s
        at = 0
        for batch, first, last, kind, _ in plan:
            if kind == RENEW:
                for run in batch.split(first, last):
                    run.deadline = deadline
                self._note_deadline(deadline)
                continue
            state = changes[at].state
            at += 1
            for run in batch.split(first, last):
                _unlock(run, state)
            if state == AVAILABLE:
                self.note_available(first)
                event |= ShareEvent.RELEASED
        touched: InFlightBatch | None = None
        for row in plan:
            batch = row[0]
            if batch is not touched:
                batch.merge_runs()
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
            if ack.last < self.start_offset:
                continue
            candidates = self._candidates(ack)
            for first, last, kind in runs_of(ack):
                if kind == RENEW and not self.settings.renew_enabled:
                    raise InvalidRecordStateError("the group does not allow RENEW (share.renew.acknowledge.enable)")
                first = max(first, self.start_offset)
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
        low = bisect_right(self.firsts, max(ack.first, self.start_offset)) - 1
        if low < 0:
            raise InvalidRecordStateError(f"offsets {ack.first} to {ack.last} are not in flight")
        high = bisect_right(self.firsts, ack.last)
        if self.batches[high - 1].last < ack.last:
            raise InvalidRequestError(f"offsets {ack.first} to {ack.last} reach beyond what was acquired")
        return self.batches[low:high]

    def release(self, member_id: str, now: float) -> ShareEvent:
        """Release all records of a member (its session or its connection has closed). Delivery counts stay as they
        are."""
        event = self.tick(now)
        runs = self.acquired_by(member_id)
        return event | self._end_locks(runs, ShareEvent.RELEASED) if runs else event

    def tick(self, now: float) -> ShareEvent:
        """Release the records whose locks have timed out. Returns what happened, with what an earlier call could not
        return."""
        if self._next_deadline is None or now < self._next_deadline:
            if self._unreported is _NOTHING:
                return _NOTHING
            unreported, self._unreported = self._unreported, _NOTHING
            return unreported
        expired: list[DeliveryRun] = []
        soonest: float | None = None
        for run in self.runs():
            if run.state == ACQUIRED:
                if run.deadline <= now:
                    expired.append(run)
                elif soonest is None or run.deadline < soonest:
                    soonest = run.deadline
        self._next_deadline = soonest
        unreported, self._unreported = self._unreported, _NOTHING
        return unreported | self._end_locks(expired, ShareEvent.LOCK_EXPIRED) if expired else unreported

    def _report_at_next_tick(self, event: ShareEvent, now: float) -> None:
        """A call that returns no event has released timed-out locks: waiting fetches depend on it, so a tick has to
        follow."""
        if event is not _NOTHING:
            self._unreported |= event
            self._on_deadline(now)

    def archive(self, member_id: str, first: int, last: int) -> ShareEvent:
        """Archive what was just acquired: records of aborted transactions, which read_committed hides."""
        changes: list[StateRange] = []
        runs: list[DeliveryRun] = []
        for batch in self.overlapping(first, last):
            for run in batch.split(first, last):
                if run.state == ACQUIRED and run.member == member_id:
                    runs.append(run)
                    changes.append(StateRange(run.first, run.last, ARCHIVED, run.count))
        if not changes:
            return ShareEvent.NOTHING
        self._persist(self.start_offset, changes)
        for run in runs:
            _unlock(run, ARCHIVED)
        return self._advance()

    def log_start_moved(self, log_start_offset: int) -> ShareEvent:
        """The log has deleted what is below this offset (DeleteRecords, retention): advance the group's start."""
        if log_start_offset <= self.start_offset:
            return ShareEvent.NOTHING
        self.start_offset = log_start_offset
        self.end_offset = max(self.end_offset, log_start_offset)
        for batch in self.overlapping(0, log_start_offset - 1):
            for run in batch.split(0, log_start_offset - 1):
                _unlock(run, ARCHIVED)
            batch.merge_runs()
        self._advance()
        return ShareEvent.START_MOVED

    def _end_locks(self, runs: Sequence[DeliveryRun], event: ShareEvent) -> ShareEvent:
        limit = self.settings.delivery_limit
        changes = [
            StateRange(run.first, run.last, ARCHIVED if run.count >= limit else AVAILABLE, run.count) for run in runs
        ]
        try:
            self._persist(self.start_offset, changes)
        except KafkaError as error:
            # The locks end all the same: there is no request to fail, and only delivery counts are lost.
            log.error(
                "cannot write the release of %d timed-out ranges, releasing them in memory only: %s",
                len(changes),
                error,
            )
        for run, change in zip(runs, changes, strict=True):
            _unlock(run, change.state)
            if change.state == AVAILABLE:
                self.note_available(run.first)
        for batch in self.batches:
            batch.merge_runs()
        return event | self._advance()

    # -- the window --------------------------------------------------------------------------------------------------

    def _note_deadline(self, deadline: float) -> None:
        if self._next_deadline is None or deadline < self._next_deadline:
            self._next_deadline = deadline
            self._on_deadline(deadline)

    def _advance(self) -> ShareEvent:
        moved = self.advance()
        if not self.batches:
            self._next_deadline = None
        return _START_MOVED if moved else _NOTHING


def _unlock(run: DeliveryRun, state: int) -> None:
    run.state = state
    run.member = NO_MEMBER
