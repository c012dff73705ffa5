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

The long-polling fetches, the sessions and the isolation level are others' business (``sessions.py``, the handlers).
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

from kafka.broker.share.acknowledgements import runs_of
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
from kafka.errors import InvalidRecordStateError, InvalidRequestError, KafkaError

log = logging.getLogger(__name__)

Persist = Callable[[int, Sequence[StateRange]], None]
"""Takes the start offset and what changes, and returns when that is durable; raises KafkaStorageError when it is
not.
"""


class SharePartition:
    """One share group's view of one topic partition. ``settings`` may be replaced at any time."""

    def __init__(
        self, start_offset: int, settings: ShareSettings, persist: Persist, restored: Sequence[StateRange] = ()
    ) -> None:
        self.settings = settings
        self._persist = persist
        self._start = start_offset
        self._end = start_offset
        self._batches: list[InFlightBatch] = []
        self._firsts: list[int] = []
        self._available_from: int | None = None
        self._next_deadline: float | None = None
        self._restore(restored)

    # -- what is where -----------------------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        """The first offset that is not done (SPSO)."""
        return self._start

    @property
    def end_offset(self) -> int:
        """The offset after the last one ever handed out (and the first that never was)."""
        return self._end

    @property
    def next_deadline(self) -> float | None:
        """When to call :meth:`tick` at the latest; may be early, never late. ``None``: nothing is locked."""
        return self._next_deadline

    @property
    def delivery_complete_count(self) -> int:
        """How many offsets from start to end are done: the lag is what is left (KIP-1226)."""
        return sum(
            run.last - max(run.first, self._start) + 1
            for batch in self._batches
            for run in batch.runs
            if run.is_terminal and run.last >= self._start
        )

    def next_fetch_offset(self) -> int:
        """Where to read the log for the next acquire: the first available offset, else the end."""
        if self._available_from is None:
            return self._end
        index = max(0, bisect_right(self._firsts, self._available_from) - 1)
        for batch in self._batches[index:]:
            for run in batch.runs:
                if run.state == AVAILABLE and run.last >= self._start:
                    self._available_from = max(run.first, self._start)
                    return self._available_from
        self._available_from = None
        return self._end

    def can_acquire(self) -> bool:
        """Whether an acquire can give anything: something is available again, or the window has room."""
        return self.next_fetch_offset() != self._end or self._span() < self.settings.max_locks

    def state_ranges(self) -> list[StateRange]:
        """Everything in flight as it is durable: what is acquired is available, and this delivery is not yet
        counted.
        """
        ranges: list[StateRange] = []
        for batch in self._batches:
            for run in batch.runs:
                state, count = (AVAILABLE, run.count - 1) if run.state == ACQUIRED else (run.state, run.count)
                if run.last >= self._start and (state != AVAILABLE or count):
                    ranges.append(StateRange(max(run.first, self._start), run.last, state, count))
        return ranges

    def held_by(self, member_id: str) -> list[tuple[int, int]]:
        """The ranges that a member holds, first and last inclusive."""
        return [
            (run.first, run.last)
            for batch in self._batches
            for run in batch.runs
            if run.state == ACQUIRED and run.member == member_id
        ]

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
        self.tick(now)
        if max_records <= 0 or not fetched:
            return []
        base = fetched[0][0]
        last = fetched[-1][1]
        limit = min(max_records, self.settings.max_locks - self._span())
        if limit <= 0:
            if fetch_offset >= self._end:
                return []
            limit = min(max_records, self._end - fetch_offset)
            last = min(last, self._end - 1)
        if base > fetch_offset:
            self._archive_vanished(fetch_offset, base - 1)
        base = max(base, self._start)
        if last < base:
            return []
        exact = mode == AcquireMode.RECORD_LIMIT
        taken: list[Acquired] = []
        deadline = now + self.settings.lock_s
        overlapping = self._overlapping(base, last)
        limit -= self._acquire_again(overlapping, member_id, base, last, limit, exact, deadline, taken)
        if limit > 0 and last >= self._end:
            first = self._end if overlapping else max(self._end, base)
            self._acquire_new(fetched, member_id, first, last, limit, max(1, batch_size), exact, deadline, taken)
        if taken:
            self._locked_until(deadline)
        return taken

    def _acquire_again(
        self,
        batches: Sequence[InFlightBatch],
        member_id: str,
        base: int,
        last: int,
        limit: int,
        exact: bool,
        deadline: float,
        taken: list[Acquired],
    ) -> int:
        """Lock what is available among batches in flight; returns by how much that uses up the limit."""
        count = 0
        for batch in batches:
            if count >= limit:
                break
            throttled = self._is_throttled(batch, base, last)
            if throttled and count:
                return limit
            runs = batch.runs
            whole = len(runs) == 1 and batch.first >= base and batch.last <= last
            if whole and not throttled and not (exact and batch.size > limit - count):
                if runs[0].state == AVAILABLE:
                    _lock(runs[0], member_id, deadline)
                    taken.append(Acquired(batch.first, batch.last, runs[0].count))
                    count += batch.size
                continue
            part = self._acquire_part(batch, member_id, base, last, limit - count if exact else None, deadline, taken)
            count += part
            if throttled and part:
                return limit
        return count

    def _acquire_part(
        self,
        batch: InFlightBatch,
        member_id: str,
        base: int,
        last: int,
        at_most: int | None,
        deadline: float,
        taken: list[Acquired],
    ) -> int:
        """Lock some of a batch, smaller parts the more often they were delivered, the last delivery alone."""
        delivery_limit = self.settings.delivery_limit
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
            for run in batch.cut(first, end):
                _lock(run, member_id, deadline)
                if taken and taken[-1].last + 1 == run.first and taken[-1].delivery_count == run.count:
                    taken[-1] = Acquired(taken[-1].first, run.last, run.count)
                else:
                    taken.append(Acquired(run.first, run.last, run.count))
        if parts:
            batch.join()
        return count

    def _acquire_new(
        self,
        fetched: Sequence[tuple[int, int]],
        member_id: str,
        first: int,
        last: int,
        limit: int,
        batch_size: int,
        exact: bool,
        deadline: float,
        taken: list[Acquired],
    ) -> None:
        """Take records into the window that never were in it, up to the border of the batch in which the limit
        falls.
        """
        if limit < last - first + 1:
            last = next(end for _, end in fetched if end >= first + limit - 1)
        if not self._batches:
            self._start = first
        borders = [first]
        if not exact and last - first + 1 > batch_size:
            for base, _ in fetched:
                if base > last:
                    break
                if base - borders[-1] >= batch_size:
                    borders.append(base)
        for at, begin in enumerate(borders):
            end = borders[at + 1] - 1 if at + 1 < len(borders) else last
            stop = min(end, begin + limit - 1) if exact else end
            runs = [Run(begin, stop, ACQUIRED, 1, member_id, deadline)]
            if stop < end:
                runs.append(Run(stop + 1, end, AVAILABLE, 0))
                self._available(stop + 1)
            self._batches.append(InFlightBatch(begin, end, runs))
            self._firsts.append(begin)
            taken.append(Acquired(begin, stop, 1))
        self._end = last + 1

    def _is_throttled(self, batch: InFlightBatch, base: int, last: int) -> bool:
        limit = _throttle_from(self.settings.delivery_limit)
        runs = batch.runs
        if len(runs) == 1:
            return runs[0].state == AVAILABLE and runs[0].count >= limit
        return any(run.state == AVAILABLE and run.count >= limit for run in batch.overlapping(base, last))

    def _archive_vanished(self, first: int, last: int) -> None:
        """Offsets that were available and that the log does not have any more (compaction) will never come."""
        for batch in self._overlapping(first, last):
            if any(run.state == AVAILABLE for run in batch.overlapping(first, last)):
                for run in batch.cut(first, last):
                    if run.state == AVAILABLE:
                        run.state = ARCHIVED
                batch.join()
        self._advance()

    # -- acknowledge, release, time ----------------------------------------------------------------------------------

    def acknowledge(self, member_id: str, batches: Sequence[AckBatch], now: float) -> ShareEvent:
        """Apply a member's acknowledgements: all, or none and an error.

        The batches have passed :func:`~kafka.broker.share.acknowledgements.check_ack_batches`. Offsets below the start
        are done already and are passed over. Errors: ``InvalidRecordStateError`` (121: not locked, another's lock,
        twice in one list, RENEW that the group does not allow), ``InvalidRequestError`` (42: offsets beyond what was
        acquired), and what ``persist`` raises.
        """
        event = self.tick(now)
        plan = self._plan(member_id, batches)
        changes: list[StateRange] = []
        limit = self.settings.delivery_limit
        for _, first, last, kind, count in plan:
            if kind != RENEW:
                state = ARCHIVED if kind == RELEASE and count >= limit else OUTCOMES[kind]
                changes.append(StateRange(first, last, state, count))
        if changes:
            self._persist(self._start, changes)
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
                self._available(first)
                event |= ShareEvent.RELEASED
        touched: InFlightBatch | None = None
        for batch, *_ in plan:
            if batch is not touched:
                batch.join()
                touched = batch
        return event | self._advance() if changes else event

    def _plan(
        self, member_id: str, batches: Sequence[AckBatch]
    ) -> list[tuple[InFlightBatch, int, int, int, int]]:
        """Each change as batch, first, last, type and delivery count; raises when one cannot be made."""
        plan: list[tuple[InFlightBatch, int, int, int, int]] = []
        done = -1
        for ack in batches:
            if ack.last < self._start:
                continue
            candidates = self._candidates(ack)
            for first, last, kind in runs_of(ack):
                if kind == RENEW and not self.settings.renew_enabled:
                    raise InvalidRecordStateError("the group does not allow RENEW (share.renew.acknowledge.enable)")
                first = max(first, self._start)
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
        low = bisect_right(self._firsts, ack.first) - 1
        if low < 0 and ack.first < self._start <= ack.last:
            low = bisect_right(self._firsts, self._start) - 1
        if low < 0:
            raise InvalidRecordStateError(f"offsets {ack.first} to {ack.last} are not in flight")
        high = bisect_right(self._firsts, ack.last)
        if self._batches[high - 1].last < ack.last:
            raise InvalidRequestError(f"offsets {ack.first} to {ack.last} reach beyond what was acquired")
        return self._batches[low:high]

    def release(self, member_id: str, now: float) -> ShareEvent:
        """End all locks of a member (its session or its connection has closed). Delivery counts stay as they are."""
        event = self.tick(now)
        runs = [
            run
            for batch in self._batches
            for run in batch.runs
            if run.state == ACQUIRED and run.member == member_id
        ]
        return event | self._end_locks(runs, ShareEvent.RELEASED) if runs else event

    def tick(self, now: float) -> ShareEvent:
        """End the locks whose time is over."""
        if self._next_deadline is None or now < self._next_deadline:
            return ShareEvent.NOTHING
        expired: list[Run] = []
        soonest: float | None = None
        for batch in self._batches:
            for run in batch.runs:
                if run.state == ACQUIRED:
                    if run.deadline <= now:
                        expired.append(run)
                    elif soonest is None or run.deadline < soonest:
                        soonest = run.deadline
        self._next_deadline = soonest
        return self._end_locks(expired, ShareEvent.LOCK_EXPIRED) if expired else ShareEvent.NOTHING

    def archive(self, member_id: str, first: int, last: int) -> ShareEvent:
        """Take back what was just acquired, for ever: records of aborted transactions, which read_committed hides."""
        changes: list[StateRange] = []
        runs: list[Run] = []
        for batch in self._overlapping(first, last):
            for run in batch.cut(first, last):
                if run.state == ACQUIRED and run.member == member_id:
                    runs.append(run)
                    changes.append(StateRange(run.first, run.last, ARCHIVED, run.count))
        if not changes:
            return ShareEvent.NOTHING
        self._persist(self._start, changes)
        for run in runs:
            _unlock(run, ARCHIVED)
        return self._advance()

    def log_start_moved(self, log_start_offset: int) -> ShareEvent:
        """The log has dropped what is below this offset (DeleteRecords, retention): so does the group."""
        if log_start_offset <= self._start:
            return ShareEvent.NOTHING
        self._start = log_start_offset
        self._end = max(self._end, log_start_offset)
        for batch in self._overlapping(0, log_start_offset - 1):
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
            self._persist(self._start, changes)
        except KafkaError as error:
            # The locks end all the same: nobody is there to be told, and what is lost are only delivery counts.
            log.error("the end of %d locks could not be written: %s", len(changes), error)
        for run, change in zip(runs, changes, strict=True):
            _unlock(run, change.state)
            if change.state == AVAILABLE:
                self._available(run.first)
        for batch in self._batches:
            batch.join()
        return event | self._advance()

    # -- the window --------------------------------------------------------------------------------------------------

    def _span(self) -> int:
        return self._end - self._start if self._batches else 0

    def _overlapping(self, first: int, last: int) -> list[InFlightBatch]:
        low = bisect_right(self._firsts, first) - 1
        if low < 0 or self._batches[low].last < first:
            low += 1
        return self._batches[low : bisect_right(self._firsts, last)]

    def _available(self, offset: int) -> None:
        if self._available_from is None or offset < self._available_from:
            self._available_from = offset

    def _locked_until(self, deadline: float) -> None:
        if self._next_deadline is None or deadline < self._next_deadline:
            self._next_deadline = deadline

    def _advance(self) -> ShareEvent:
        """Move the start past all that is done at the front, and forget the batches that end there."""
        before = self._start
        done = 0
        for batch in self._batches:
            open_run = next((run for run in batch.runs if not run.is_terminal), None)
            if open_run is not None:
                self._start = max(self._start, open_run.first)
                break
            done += 1
        else:
            self._start = self._end
            self._available_from = self._next_deadline = None
        if done:
            del self._batches[:done]
            del self._firsts[:done]
        return ShareEvent.START_MOVED if self._start != before else ShareEvent.NOTHING

    def _restore(self, ranges: Sequence[StateRange]) -> None:
        """Take up what was durable; offsets in between, of which nothing was written, are available for the first
        time.
        """
        for found in sorted(ranges):
            if found.last < self._start:
                continue
            first = max(found.first, self._start)
            if first > self._end:
                self._add(self._end, first - 1, AVAILABLE, 0)
            self._add(first, found.last, found.state, found.delivery_count)
        self._advance()

    def _add(self, first: int, last: int, state: int, count: int) -> None:
        at = bisect_left(self._firsts, first)
        self._firsts.insert(at, first)
        self._batches.insert(at, InFlightBatch(first, last, [Run(first, last, state, count)]))
        self._end = max(self._end, last + 1)
        if state == AVAILABLE:
            self._available(first)


def _throttle_from(delivery_limit: int) -> int:
    """The delivery count from which redelivery goes in smaller parts: half of the limit, at least 2."""
    return max(2, (delivery_limit + 1) // 2)


def _lock(run: Run, member_id: str, deadline: float) -> None:
    run.state = ACQUIRED
    run.count += 1
    run.member = member_id
    run.deadline = deadline


def _unlock(run: Run, state: int) -> None:
    run.state = state
    run.member = NO_MEMBER
