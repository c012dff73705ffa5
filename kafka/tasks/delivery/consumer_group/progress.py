"""How far the jobs of one partition have come, for the worker that owns it: a machine without a broker or a clock.

::

                      .-------------------- released, or its time has come -------------------.
                      v                                                                        |
    fetched --> waiting for its key --> ready --> marked as started --> handed out --> ended --+--> completed
                                                                                       (held: it is to run again)

*Keys*: of the jobs of one key only the first is ever ready; the next one follows when that has ended, in an ordered
queue when that is committed: an owner that was fenced starts no more jobs of the key, and a job runs again before the
next one has begun. Jobs without a key do not wait for each other.

*Marks*: before a job is handed out it must be committed that it may have been started
(:class:`~kafka.tasks.format.offset_metadata.PartitionMarks`), or the next owner could not know what this worker died
of. Marks are made ahead (:meth:`PartitionProgress.mark_started`), share a commit with jobs that have ended, and cover
what is handed out next. What an owner that is gone had marked, and what has not ended, are *suspects*: their worker may
have died of them. They are handed out apart, each with a mark of its own, which counts how often such a run was not
seen to end.

*Settling*: :meth:`PartitionProgress.settle` says what would be committed when certain jobs have ended,
:meth:`PartitionProgress.settled` that it is. Nothing changes in between: a transaction may be aborted, and another one
made of other jobs.

*Room*: the metadata of a commit is short. Jobs behind one that runs for long may end in any order, and room is kept for
the worst of them before a job is marked (:data:`~kafka.tasks.format.offset_metadata.MOST_CHARACTERS`). When what is
committed takes three quarters of that, no more are marked until it is shorter, but for those the owner before had kept
room for: else nothing might ever end.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

from kafka.tasks.format.offset_metadata import MOST_CHARACTERS, MarkedJob, PartitionMarks, encode

FULL_CHARACTERS: Final = MOST_CHARACTERS * 3 // 4
"""Of metadata, as last committed: from there on no more jobs are marked as started."""
OTHER_CHARACTERS: Final = 200
"""Of what is in the metadata besides: numbers, and the writer's name."""
RUN_CHARACTERS: Final = 6
"""What a job that has not ended and the run behind it of those that have take at most: there is such a job before each
run, and the numbers are of one byte and of three (2,097,151 offsets)."""
JOB_CHARACTERS: Final = 32
"""What the mark of one job takes at most: 24 bytes, with attempts, crashes, and losses up to 16,383."""
BITMAP_OFFSETS: Final = (FULL_CHARACTERS - OTHER_CHARACTERS) * 6
"""A bitmap of so many offsets fits in any case."""


class JobRecord(Protocol):
    """A fetched record, as far as it is looked at here."""

    @property
    def offset(self) -> int: ...

    @property
    def key(self) -> Any: ...


class HandedOut(NamedTuple):
    """A job to be handed out: its record, how often this delivery was begun (1: for the first time), and what is known
    of it beyond the record."""

    record: Any
    deliveries: int
    marked: MarkedJob | None


class Settlement(NamedTuple):
    """What is to be committed: the offset, the text beside it, and what it stands for."""

    offset: int
    metadata: str
    completed: Sequence[int]
    held: Mapping[int, MarkedJob]
    started_below: int
    started: frozenset[int]
    is_last: bool
    """The partition is given up with it."""


class CompletedOffsets:
    """Which offsets are done: all below ``position``, and runs behind it. ``position`` itself is not."""

    __slots__ = ("_first_of", "_last_of", "position")

    def __init__(self, position: int, runs: Iterable[tuple[int, int]] = ()) -> None:
        self.position = position
        self._last_of: dict[int, int] = {}  # first offset of a run -> its last one
        self._first_of: dict[int, int] = {}  # and the reverse
        for first, last in runs:
            self.add(first, last)

    def copy(self) -> CompletedOffsets:
        """The same, to be changed apart."""
        other = CompletedOffsets(self.position)
        other._last_of = dict(self._last_of)
        other._first_of = dict(self._first_of)
        return other

    def add(self, first: int, last: int) -> None:
        """These offsets are done, none of which was."""
        first = max(first, self.position)
        if first > last:
            return
        before = self._first_of.pop(first - 1, None)
        if before is not None:
            del self._last_of[before]
            first = before
        behind = self._last_of.pop(last + 1, None)
        if behind is not None:
            del self._first_of[behind]
            last = behind
        if first <= self.position:
            self.position = last + 1
        else:
            self._last_of[first] = last
            self._first_of[last] = first

    def runs(self) -> tuple[tuple[int, int], ...]:
        """(first, last) of what is done behind the position, ascending."""
        return tuple(sorted(self._last_of.items()))


class PartitionProgress:
    """See the module. ``marks`` are those that were committed beside ``offset``, by whichever owner was before;
    ``size`` is the length of the metadata of the last commit. With ``is_ordered`` suspects are handed out in their
    place, by ``take(..., suspects=True)``; else ``take`` gives them with two deliveries, for their worker to move them.
    With ``is_suspects`` all jobs of the partition are suspects."""

    def __init__(
        self,
        offset: int,
        marks: PartitionMarks = PartitionMarks(),  # noqa: B008
        *,
        is_ordered: bool = False,
        is_suspects: bool = False,
    ) -> None:
        self._has_own_marks = is_ordered or is_suspects
        self._is_ordered = is_ordered
        self._is_suspects = is_suspects
        self._completed = CompletedOffsets(offset, marks.completed)
        self._ended_before = deque(marks.completed)  # what of it the fetched records have not come to
        self._next = offset
        self._records: dict[int, Any] = {}
        self._keys: dict[bytes, deque[int] | None] = {}  # keys of jobs that have not ended -> those that wait for them
        self._waiting: set[int] = set()  # those of all keys
        self._ready: deque[int] = deque()  # ascending
        self._returned: list[int] = []  # a heap, like all lists here: what is ready again
        self._suspects: list[int] = []
        self._later: list[tuple[int, int]] = []  # time in ms, offset
        self._out: set[int] = set()
        lost = marks.lost_below
        self._suspects_below = self._started_below = max(marks.suspects_below, lost)
        # A job below that is no suspect was held by an owner that gave the partition up: nothing marks it any more.
        self._covered_below = lost if self._has_own_marks else self._suspects_below
        self._started: set[int] = set()  # suspects that are marked, or to be
        self._covered: set[int] = set()  # those of them whose mark is committed
        self._jobs = {at: job for at in marks.jobs if (job := marks.taken_over(at)) is not None}
        spoken_of = (*(last for _, last in marks.completed[-1:]), *marks.jobs)
        self._room_below = max(self._started_below, max(spoken_of, default=-1) + 1)  # for what may come of jobs below
        self._room_kept = 0  # so many characters are kept
        self._without_room: deque[int] = deque()  # jobs that are here and not below, ascending
        self.size = len(encode(offset, marks))

    # -- what comes ---------------------------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """The offset of the first job that has not ended."""
        return self._completed.position

    @property
    def next_offset(self) -> int:
        """The offset of the next record to fetch."""
        return self._next

    @property
    def waiting_count(self) -> int:
        """Records that are here and not handed out."""
        return len(self._records) - len(self._out)

    @property
    def ready_count(self) -> int:
        """Of those, the ones that wait for no other job and no time."""
        return len(self._ready) + len(self._returned) + len(self._suspects)

    def has_truncated(self, record: JobRecord) -> bool:
        """Whether this record is at an offset that was read and done: the log has lost what was there, and begins anew.
        What the owner before had done may be read when the position is behind it."""
        return record.offset < min(self._completed.position, self._next)

    def add(self, records: Iterable[JobRecord], now_ms: int) -> None:
        """Records have been fetched, in order. What lies between two (markers of transactions, what was deleted) is
        done."""
        for record in records:
            offset = record.offset
            if offset < self._next:
                continue  # fetched again
            if offset > self._next:
                self._complete_gap(self._next, offset)
            self._next = offset + 1
            if self._has_ended_before(offset):
                continue
            self._records[offset] = record
            if offset >= self._room_below:
                self._without_room.append(offset)
            key = record.key
            if key is not None:
                if key in self._keys:
                    waiting = self._keys[key]
                    if waiting is None:
                        self._keys[key] = deque((offset,))
                    else:
                        waiting.append(offset)
                    self._waiting.add(offset)
                else:
                    self._keys[key] = None
            if offset < self._room_below:
                self._room_kept += self._room_of(offset)
            if offset not in self._waiting:
                self._make_ready(offset, now_ms)

    def skip_to(self, offset: int) -> bool:
        """There is no record before this offset that has not come. Whether the position has moved."""
        position = self._completed.position
        if offset > self._next:
            self._complete_gap(self._next, offset)
            self._next = offset
        return self._completed.position > position

    def drop_before(self, offset: int, now_ms: int) -> list[Any]:
        """The log begins at this offset: what is here below it and is not handed out never runs, and is done. Those
        records."""
        gone = {at for at in self._records if at < offset and at not in self._out}
        if not gone:
            return []
        self._room_kept -= sum(self._room_of(at) for at in gone if at < self._room_below)
        for those in (self._ready, self._without_room):
            left = [at for at in those if at not in gone]
            those.clear()
            those.extend(left)
        for heap in (self._returned, self._suspects):
            heap[:] = sorted(at for at in heap if at not in gone)
        self._later = sorted(each for each in self._later if each[1] not in gone)
        self._started -= gone
        self._covered -= gone
        records = [self._records.pop(at) for at in sorted(gone)]
        for key in {record.key for record in records} - {None}:
            waiting = self._keys[key]
            if waiting:
                self._keys[key] = deque(at for at in waiting if at not in gone)
        for record in records:
            self._completed.add(record.offset, record.offset)
            self._jobs.pop(record.offset, None)
            if record.offset in self._waiting:
                self._waiting.discard(record.offset)
            else:
                self._free_key(record.key, now_ms)
        return records

    def _has_ended_before(self, offset: int) -> bool:
        runs = self._ended_before
        while runs and runs[0][1] < offset:
            runs.popleft()
        return bool(runs) and runs[0][0] <= offset

    def _complete_gap(self, first: int, end: int) -> None:
        for run_first, run_last in self._ended_before:  # some of it may have been said to be done
            if run_first >= end:
                break
            self._completed.add(first, run_first - 1)
            first = max(first, run_last + 1)
        self._completed.add(first, end - 1)

    def _make_ready(self, offset: int, now_ms: int) -> None:
        job = self._jobs.get(offset)
        if job is not None and job.due_ms > now_ms:
            heapq.heappush(self._later, (job.due_ms, offset))
        elif self._has_own_marks and self._is_suspect(offset, job):
            heapq.heappush(self._suspects, offset)
        elif not self._ready or offset > self._ready[-1]:
            self._ready.append(offset)
        else:
            heapq.heappush(self._returned, offset)

    def _is_suspect(self, offset: int, job: MarkedJob | None) -> bool:
        if self._is_suspects:
            return True
        return offset < self._suspects_below if job is None else job.is_suspect

    def tick(self, now_ms: int) -> None:
        """Time has passed."""
        while self._later and self._later[0][0] <= now_ms:
            self._make_ready(heapq.heappop(self._later)[1], now_ms)

    def held(self) -> list[Any]:
        """The records of the jobs that wait for their time."""
        return [self._records[at] for _, at in self._later]

    def end_waits(self, offsets: Set[int], now_ms: int) -> None:
        """The time of these held jobs has come."""
        self._later = sorted(each for each in self._later if each[1] not in offsets)
        for at in sorted(offsets):
            self._jobs[at] = self._jobs[at]._replace(due_ms=0)
            self._make_ready(at, now_ms)

    @property
    def next_due_ms(self) -> int | None:
        """When the next held job is due."""
        return self._later[0][0] if self._later else None

    # -- what is handed out -------------------------------------------------------------------------------------------

    def mark_started(self, count: int, suspects: bool = False) -> bool:
        """Mark the next ``count`` jobs that are ready as started, as far as there is room. Whether :meth:`take` would
        give more if what :meth:`settle` says were committed."""
        count = max(0, count)
        if suspects:
            first = heapq.nsmallest(count, self._suspects)
            self._keep_room(first)
            self._started = (self._started & self._out) | {each for each in first if each < self._room_below}
            self._covered &= self._started
            return self._started > self._covered
        first = sorted([*heapq.nsmallest(count, self._returned), *islice(self._ready, count)])[:count]
        self._keep_room(first)
        if first:
            self._started_below = max(self._started_below, min(first[-1] + 1, self._room_below))
        return any(self._covered_below <= each < self._started_below for each in first)

    def _keep_room(self, ready: Sequence[int]) -> None:
        """Keep room for what may come of all jobs up to the last of these, or as far as there is any."""
        others = self._without_room
        while ready and others and others[0] <= ready[-1] and self._has_room(others[0]):
            self._room_kept += self._room_of(others[0])
            self._room_below = others.popleft() + 1

    def _has_room(self, offset: int) -> bool:
        if self.size >= FULL_CHARACTERS:
            return False
        if not self._has_own_marks and offset < self._completed.position + BITMAP_OFFSETS:
            return True
        return self._room_kept + self._room_of(offset) <= MOST_CHARACTERS - OTHER_CHARACTERS

    def _room_of(self, offset: int) -> int:
        """A job that waits for its key has no mark of its own yet."""
        has_mark = self._has_own_marks and offset not in self._waiting
        return RUN_CHARACTERS + JOB_CHARACTERS * has_mark

    @property
    def is_full(self) -> bool:
        """Whether no job is ready but those that cannot be marked: others must end first."""
        first = min([*islice(self._ready, 1), *self._returned[:1], *self._suspects[:1]], default=-1)
        return first >= self._room_below and not self._has_room(self._without_room[0])

    def take(self, count: int, suspects: bool = False) -> list[HandedOut]:
        """Up to ``count`` jobs whose mark is committed, the first ones first."""
        taken: list[HandedOut] = []
        if suspects:
            kept: list[int] = []
            while self._suspects and len(taken) < count:
                offset = heapq.heappop(self._suspects)
                if offset in self._covered:
                    taken.append(self._hand_out(offset))
                else:
                    kept.append(offset)
            for offset in kept:
                heapq.heappush(self._suspects, offset)
            return taken
        ready, returned, below = self._ready, self._returned, self._covered_below
        while len(taken) < count:
            if returned and (not ready or returned[0] < ready[0]):
                if returned[0] >= below:
                    break
                offset = heapq.heappop(returned)
            elif ready and ready[0] < below:
                offset = ready.popleft()
            else:
                break
            taken.append(self._hand_out(offset))
        return taken

    def _hand_out(self, offset: int) -> HandedOut:
        self._out.add(offset)
        job = self._jobs.get(offset)
        if self._has_own_marks:
            deliveries = 1 + (job.losses if job is not None else 0)
        else:
            deliveries = 2 if offset < self._suspects_below else 1
        return HandedOut(self._records[offset], deliveries, job)

    # -- what has ended -----------------------------------------------------------------------------------------------

    def end(self, offset: int, now_ms: int) -> None:
        """The job has ended for good, or goes on elsewhere; it is done when that is settled. The next one of its key is
        ready, but in an ordered queue."""
        if not self._is_ordered:
            self._free_key(self._records[offset].key, now_ms)

    def _free_key(self, key: bytes | None, now_ms: int) -> None:
        if key is not None:
            waiting = self._keys[key]
            if waiting:
                offset = waiting.popleft()
                self._waiting.discard(offset)
                if self._has_own_marks and offset < self._room_below:
                    self._room_kept += JOB_CHARACTERS
                self._make_ready(offset, now_ms)
            else:
                del self._keys[key]

    def release(self, offset: int, now_ms: int) -> None:
        """The job was not started, or is to run again as it was settled: it is handed out again."""
        self._out.discard(offset)
        self._started.discard(offset)
        self._covered.discard(offset)
        self._make_ready(offset, now_ms)

    def settle(self, completed: Sequence[int] = (), held: Mapping[int, MarkedJob] = {}, writer: str = "") -> Settlement:  # noqa: B006
        """What is to be committed when these jobs have ended and others are held. ``writer`` "": the partition is given
        up, and no job of it is running."""
        after = self._completed.copy()
        for offset in completed:
            after.add(offset, offset)
        done = frozenset(completed)
        started = frozenset(self._started - done - held.keys()) if writer else frozenset()
        jobs = {at: job for at, job in {**self._jobs, **held}.items() if at not in done and at >= after.position}
        for offset in started:
            jobs[offset] = jobs.get(offset, MarkedJob(is_suspect=True))._replace(is_started=True)
        started_below = self._started_below if writer else 0
        # Gaps between records that are not marked are left out: there may be many of them.
        runs = tuple(
            (first, min(last, self._room_below - 1)) for first, last in after.runs() if first < self._room_below
        )
        marks = PartitionMarks(runs, started_below, self._suspects_below, jobs, writer)
        metadata = encode(after.position, marks)
        return Settlement(after.position, metadata, completed, held, started_below, started, not writer)

    def settled(self, settlement: Settlement, now_ms: int) -> None:
        """It is committed. Held jobs wait for :meth:`release`."""
        for offset in settlement.completed:
            self._completed.add(offset, offset)
            self._room_kept -= self._room_of(offset)
            record = self._records.pop(offset)
            if self._is_ordered:
                self._free_key(record.key, now_ms)
            self._out.discard(offset)
            self._started.discard(offset)
            self._jobs.pop(offset, None)
        for offset, job in settlement.held.items():
            self._jobs[offset] = job
            self._started.discard(offset)
        self._covered_below = max(self._covered_below, settlement.started_below)
        self._covered = self._started & settlement.started
        self.size = len(settlement.metadata)
