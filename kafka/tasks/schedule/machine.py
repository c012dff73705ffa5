"""The state machine of one partition of the schedule: commands and the time in, records to be written out.

It is deterministic and does no I/O. Its owner (:mod:`kafka.tasks.backends.kafka.schedule_owner`) calls it so::

    restore(record) ...             the partition of APP.schedule from its beginning
    loop:
        to_read(commands, now)      offsets of stored records that the next step needs; each is given to load()
        apply(command, now) ...     the next commands, in order
        advance(now)                what is due
        take()                      a Round: all records of it are written in one transaction, with the offset of the
                                    last command
        committed(offsets)          where the records of its state are now

A job of the schedule is in one of these places (:mod:`kafka.tasks.format.schedule`)::

    PUT ----> WAITING --due--------------> MOVED      (written to APP.QUEUE.due, of an ordered queue to APP.QUEUE)
                |  |  '--due, announced--> SENT ------announced--> MOVED   (a state record says when it was written)
                |  '-- expired, cancelled: ENDED -----announced--> MOVED   (REVOKED is written, then and again)
                '----- the same, was announced for now or earlier: MOVED
    LEASE --> LEASED --due (its worker is lost)--> MOVED, or SENT
                '-- END ------------------> gone, or SENT

"announced" is a later time at which readers look for the job. A PUT or LEASE of its next generation keeps that time.

MOVED is forgotten after MOVED_KEPT_S. Few jobs are objects here: those that wait for no more than KEEP_MS, with their
payloads, as many as fit into MOST_KEPT_BYTES. All others are rows of a :class:`PendingTable`; a row whose time comes
near, or that a command is about, becomes an object, and its record is read again.

A round that cannot be committed leaves the machine ahead of the log: throw it away, and restore another one.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple

from kafka.tasks.delivery.base import OutgoingRecord, RecordKind
from kafka.tasks.format.cancelled import encode_cancelled
from kafka.tasks.format.commands import (
    CANCEL,
    END,
    LEASE,
    LOOK,
    MOST_DIGITS,
    OF_JOBS,
    PUT,
    RESCHEDULE,
    Command,
    StoredJob,
)
from kafka.tasks.format.envelope import Header
from kafka.tasks.format.job_id import partition_of
from kafka.tasks.format.records import (
    CANCELLED,
    StateRecord,
    error_value,
    is_late,
    reason_value,
    state_headers,
    with_due,
)
from kafka.tasks.format.schedule import (
    DECLARED_KEY,
    ENDED,
    ENTRY_PREFIX,
    LEASED,
    MOVED,
    SENT,
    WAITING,
    JobPlace,
    ScheduleRecord,
    decode_detail,
    decode_job,
    decode_place,
    encode_ended,
    encode_gone,
    encode_moved,
    encode_sent,
    encode_waiting,
)
from kafka.tasks.format.topics import MOVED_KEPT_S, TopicNames
from kafka.tasks.rules.outcome import ErrorInfo
from kafka.tasks.schedule.entries import PeriodicEntries
from kafka.tasks.schedule.pending import FIRST_KIND, NEVER_MS, PendingRow, PendingTable
from kafka.tasks.states import JobState

KEEP_MS: Final = 60_000
"""A job that waits for longer is a row without a payload."""
MOST_KEPT: Final = 20_000
MOST_KEPT_BYTES: Final = 8 * 1024 * 1024
"""Jobs that are objects, about, and their payloads. Half as many rows become objects at a time, once half of those are
left."""
URGENT_MS: Final = 2_000
"""The record of a job has been read so long before it is due."""
READ_AHEAD_MS: Final = 10_000
MOST_READ: Final = 2_000
"""When one is to be read, so are those of the jobs that are due within this time, so many at most: where jobs are due
in another order than they came, reading them means to go through the whole partition."""
MOST_MOVED: Final = 500
"""Jobs that one step moves."""
MEAN_SHARE: Final = 0.02
"""Of one payload in the mean of the last ones."""
MOST_ROUND_BYTES: Final = 4 * 1024 * 1024
"""A step moves no more jobs once their payloads are so large."""

_KINDS: Final = (*[""] * FIRST_KIND, WAITING, LEASED, ENDED, SENT, MOVED)
"""By their numbers in a :class:`PendingTable`."""
_KIND_NUMBERS: Final = {kind: number for number, kind in enumerate(_KINDS) if kind}

_MOVED_KEPT_MS: Final = int(MOVED_KEPT_S * 1000) + KEEP_MS
"""Rows are looked at up to KEEP_MS before their time."""


PLACES: Final[dict[str, tuple[str, ...]]] = {
    "PUT": (WAITING, ENDED, MOVED),
    "LEASE": (LEASED, MOVED),
    WAITING: (WAITING, LEASED, SENT, ENDED, MOVED),
    LEASED: (WAITING, LEASED, SENT, ENDED, MOVED, "gone"),
    SENT: (WAITING, LEASED, SENT, ENDED, MOVED),
    ENDED: (MOVED,),
    MOVED: (WAITING, LEASED, ENDED, MOVED),
}
"""The places of a job, and the next ones of each; a PUT or LEASE of its next generation begins anew from all but ENDED.
"""


class Round(NamedTuple):
    """What one transaction writes. ``stored``: of the records of APP.schedule, their positions in ``records`` and the
    ids of their jobs, as :meth:`ScheduleMachine.committed` expects their offsets."""

    records: list[OutgoingRecord]
    stored: list[tuple[int, str]]


class _NearJob:
    """A job to be looked at soon. ``place`` None: its record, at ``offset``, is to be read first. ``job``: of one that
    waits, with its payload."""

    __slots__ = ("generation", "job", "kind", "offset", "place", "turn", "wake_ms")

    def __init__(self, kind: str, generation: int, wake_ms: int, offset: int, turn: int) -> None:
        self.kind = kind
        self.generation = generation
        self.wake_ms = wake_ms
        self.offset = offset
        self.turn = turn
        self.place: JobPlace | None = None
        self.job: StoredJob | None = None


class ScheduleMachine:
    """See the module. ``partition``: of APP.commands and APP.schedule; ``results_partitions``: of APP.results, where
    there is no job whose id names another one. ``host``: the owner's, for state records. ``moved_count``: jobs written
    to their queues so far.
    """

    def __init__(self, names: TopicNames, partition: int, results_partitions: int, host: str) -> None:
        self.moved_count = 0
        self._names = names
        self._partition = partition
        self._results_partitions = results_partitions
        self._host = host
        self._table = PendingTable()
        self._near: dict[str, _NearJob] = {}
        self._heap: list[tuple[int, int, str]] = []
        self._turn = 0
        self._near_until_ms = 0  # rows before this time are objects
        self._kept_bytes = 0
        self._mean_bytes = MOST_KEPT_BYTES / MOST_MOVED  # of the payloads that were read lately
        self._unread: set[str] = set()  # objects whose records are to be read before they can be used
        self._unread_from_ms = NEVER_MS  # none of them is to be looked at before
        self._asked: set[str] = set()  # jobs that the next commands are about: objects, whenever they are due
        self._round_bytes = 0
        self._missing_topics: frozenset[str] = frozenset()
        self._records: list[OutgoingRecord] = []
        self._stored: dict[str, int] = {}
        self._taken: list[tuple[int, str]] = []
        self._now_ms = 0
        self._entries = PeriodicEntries(
            results_partitions,
            self._append_record,
            lambda command, body: self._answer(command, body, self._now_ms),
            self._send_periodic,
        )

    def __len__(self) -> int:
        """Jobs that it knows, those included that were written to their queues lately."""
        return len(self._table) + len(self._near)

    @property
    def waiting_count(self) -> int:
        """Jobs that wait, or run by a lease."""
        near = sum(each.kind in (WAITING, LEASED) for each in self._near.values())
        return near + sum(self._table.count(_KIND_NUMBERS[kind]) for kind in (WAITING, LEASED))

    @property
    def next_at_ms(self) -> int:
        """When :meth:`advance` has something to do; NEVER_MS when nothing waits."""
        next_ms = min(self.due_at_ms, self._entries.next_at_ms)
        promote_ms = self._near_until_ms - KEEP_MS // 2
        if next_ms <= promote_ms or self._has_enough:  # to look at all rows for the earliest would cost more
            return next_ms
        earliest_ms = self._table.earliest_ms
        return next_ms if earliest_ms == NEVER_MS else min(next_ms, max(earliest_ms - KEEP_MS, promote_ms))

    @property
    def due_at_ms(self) -> int:
        """The time of the first job that :meth:`advance` decides about, of those that are near; NEVER_MS without
        any. What remains in the past is late."""
        return self._heap[0][0] if self._heap else NEVER_MS

    def take_changes(self) -> list[str]:
        """What declarations have changed of the periodic entries, in words, since the last call."""
        return self._entries.take_changes()

    @property
    def entry_topics(self) -> set[str]:
        """Where the jobs of periodic entries are written to."""
        return {self._names.scheduled(*queue) for queue in self._entries.queues}

    @property
    def _has_enough(self) -> bool:
        """Whether no row is to become an object now: many are, and one of them comes before the rows."""
        return len(self._near) >= MOST_KEPT // 4 and self._heap[0][0] <= self._near_until_ms

    @property
    def has_round(self) -> bool:
        """Whether :meth:`take` has anything to be written."""
        return bool(self._records)

    def set_missing_topics(self, topics: Collection[str]) -> None:
        """These topics do not exist: jobs that are to be written there end as FAILURE when they are due."""
        self._missing_topics = frozenset(topics)

    # -- what is stored -----------------------------------------------------------------------------------------------

    def restore(self, key: bytes | None, value: bytes | None, headers: Sequence[Header], offset: int) -> None:
        """Take in the next record of the partition of APP.schedule; :class:`BadRecord` when it is damaged."""
        text = str(key or b"", "utf-8", "replace")
        if text.startswith(ENTRY_PREFIX) or text == DECLARED_KEY:
            self._entries.restore(text, value)
            return
        place = decode_place(key, headers)
        if place is None:
            self._table.remove(text)
        else:
            wake_ms = _wake_ms(place) + (_MOVED_KEPT_MS if place.kind == MOVED else 0)
            self._table.put(place.id, wake_ms, offset, _KIND_NUMBERS[place.kind], place.generation)

    def to_read(self, commands: Iterable[Command], now_ms: int) -> list[int]:
        """Offsets of the records that are to be given to :meth:`load` before these commands are applied, and before
        :meth:`advance`, in their order; those that are gone are to be named to :meth:`unreadable`."""
        offsets: set[int] = set()
        subjects = {command.subject for command in commands if command.kind in OF_JOBS}
        for job_id in self._asked - subjects:
            near = self._near.get(job_id)
            if near is not None and near.offset >= 0:
                self._make_room(job_id, near)
        self._asked = subjects
        for job_id in subjects:
            row = self._table.get(job_id)
            if row is not None and _KINDS[row.kind] != MOVED:
                self._to_near(job_id, row)
            if job_id in self._unread:
                offsets.add(self._near[job_id].offset)
        self._promote(now_ms)
        if self._unread_from_ms <= now_ms + URGENT_MS:
            offsets.update(self._urgent_reads(now_ms))
        return sorted(offsets)

    def _urgent_reads(self, now_ms: int) -> list[int]:
        """The records that are to be read of the jobs that are to be looked at soon; none while those that a step may
        move, and that are urgent, are all read."""
        heap = self._heap
        # There is to be room for all, or those that are not urgent fill it.
        most = min(MOST_READ, int((MOST_KEPT_BYTES - self._kept_bytes) / max(self._mean_bytes, 1.0)))
        most, until_ms = (most, now_ms + READ_AHEAD_MS) if most > MOST_MOVED else (MOST_MOVED, now_ms + URGENT_MS)
        soon: list[int] = []
        count = 0
        tops = [(heap[0], 0)] if heap else []  # of those parts of the heap that were not looked at
        while tops and tops[0][0][0] <= until_ms:
            entry, place = heapq.heappop(tops)
            if count == (most if soon else MOST_MOVED):
                until_ms = entry[0] - 1
                break
            count += 1
            if entry[2] in self._unread:
                if not soon and entry[0] > now_ms + URGENT_MS:
                    until_ms = entry[0] - 1
                    break
                soon.append(self._near[entry[2]].offset)
            for below in (2 * place + 1, 2 * place + 2):
                if below < len(heap):
                    heapq.heappush(tops, (heap[below], below))
        if not soon:
            self._unread_from_ms = until_ms + 1
        return soon

    def load(self, key: bytes | None, value: bytes | None, headers: Sequence[Header], offset: int) -> bool:
        """Take in a record; those that :meth:`to_read` has not named are ignored. Whether there is room for more.
        :class:`BadRecord` when it is damaged: name it to :meth:`unreadable`."""
        place = decode_place(key, headers)
        near = None if place is None else self._near.get(place.id)
        if place is not None and near is not None and near.offset == offset and place.id in self._unread:
            if place.kind == ENDED:
                decode_detail(value)
                near.job = StoredJob("", None, value or b"", [])
            elif place.kind != SENT:
                near.job = decode_job(value, headers)
            self._unread.discard(place.id)
            near.place = place
            size = 0 if near.job is None else len(near.job.value)
            self._kept_bytes += size
            self._mean_bytes += (size - self._mean_bytes) * MEAN_SHARE
        return self._kept_bytes < 2 * MOST_KEPT_BYTES

    def unreadable(self, offset: int, now_ms: int) -> str | None:
        """The record at this offset, which :meth:`to_read` has named, is gone or damaged: its job ends as FAILURE, if
        it is not in its queue. Returns the job's id."""
        for job_id in self._unread:
            near = self._near[job_id]
            if near.offset == offset:
                if near.kind == SENT:
                    self._remember(job_id, now_ms, near.generation)
                    return job_id
                error = ErrorInfo("ScheduleDamaged", f"the job's record in {self._names.schedule} cannot be read")
                place = JobPlace(WAITING, job_id, now_ms, near.wake_ms, near.generation)
                self._end(place, JobState.FAILURE, error_value(error, self._host, now_ms), now_ms)
                return job_id
        return None

    def can_apply(self, command: Command) -> bool:
        """Whether the record that this command looks at is loaded: of several that :meth:`to_read` was asked about,
        :meth:`load` may have had no room for all."""
        return command.subject not in self._unread

    def take(self) -> Round:
        """What has been decided since the last call."""
        stored = sorted((position, job_id) for job_id, position in self._stored.items())
        taken = Round(self._records, stored)
        self._records, self._stored, self._taken = [], {}, stored
        self._round_bytes = 0
        return taken

    def committed(self, offsets: Sequence[int]) -> None:
        """The last round is committed; ``offsets`` are those of its ``stored`` records."""
        for (_, job_id), offset in zip(self._taken, offsets, strict=True):
            near = self._near.get(job_id)
            if near is not None:  # else it is moved or gone, and never read again
                near.offset = offset
                self._make_room(job_id, near)
        self._taken = []

    # -- commands -----------------------------------------------------------------------------------------------------

    def apply(self, command: Command, now_ms: int) -> None:
        """Take in the next command; :class:`BadRecord` when it cannot be obeyed."""
        self._now_ms = now_ms
        if command.request is not None and partition_of(command.request) >= self._results_partitions:
            return
        if command.kind not in OF_JOBS:
            self._entries.apply(command, now_ms)
            return
        if partition_of(command.subject) >= self._results_partitions:
            if command.request is not None:
                self._answer(command, {"error": "unknown job"}, now_ms)
            return
        kind = command.kind
        if kind in (PUT, LEASE):
            self._put(command, now_ms)
        elif kind == CANCEL:
            self._cancel(command, now_ms)
        elif kind == RESCHEDULE:
            self._reschedule(command, now_ms)
        elif kind == LOOK:
            self._look(command, now_ms)
        else:
            self._change_lease(command, now_ms)

    def _put(self, command: Command, now_ms: int) -> None:
        job_id, generation, job = command.subject, command.generation, command.job
        assert job is not None
        known = self._known(job_id)
        if known is not None:
            kind, known_generation = known
            if kind == ENDED or known_generation >= generation:
                return
        near = self._near.get(job_id)
        before = None if near is None or near.place is None else self._announce_queued(near.place, near.job, now_ms)
        announced_ms = 0 if before is None or before.announced_ms <= now_ms else before.announced_ms
        since_ms = 0 if command.kind == PUT else min(command.time_ms, now_ms)
        if before is not None and announced_ms and (before.kind == SENT or before.since_ms):
            since_ms = before.at_ms if before.kind == SENT else before.since_ms
        kind = WAITING if command.kind == PUT else LEASED
        if kind == WAITING and not announced_ms:
            announced_ms = command.due_ms  # its id or its last state record says when it starts: readers look there
        place = JobPlace(
            kind, job_id, command.due_ms, announced_ms, generation, command.expires_ms, since_ms=since_ms
        )
        if _wake_ms(place) <= min(command.time_ms, now_ms):  # else commands that came meanwhile are heard first
            self._fire(place, job, now_ms)
        elif known is not None:
            self._store(place, job)
        else:
            self._write(job_id, encode_waiting(place, job))
            self._add_near(place, job)

    def _cancel(self, command: Command, now_ms: int) -> None:
        job_id = command.subject
        near = self._near.get(job_id)
        place = None if near is None else near.place
        if place is not None and place.kind == ENDED:
            assert near is not None and near.job is not None
            end = StateRecord(job_id, JobState[place.state], value=near.job.value)
            self._answer(command, {"waiting": end.is_cancelled}, now_ms)
            return
        value = reason_value(CANCELLED, self._host)
        if place is not None and place.kind == WAITING:
            self._end(place, JobState.REVOKED, value, now_ms)
            self._answer(command, {"waiting": True}, now_ms)
            return
        self._write_state(job_id, JobState.REVOKED, value, now_ms)
        key, headers = encode_cancelled(job_id, command.is_terminating)
        self._records.append(OutgoingRecord(RecordKind.STATE, self._names.cancelled, b"", key, headers, 0))
        if place is not None and place.kind == LEASED:
            assert near is not None
            self._move(self._announce_queued(place, near.job, now_ms), now_ms)
        self._answer(command, {"waiting": False}, now_ms)

    def _reschedule(self, command: Command, now_ms: int) -> None:
        near = self._near.get(command.subject)
        if near is None or near.kind != WAITING or near.place is None or near.job is None:
            self._answer(command, {"rescheduled": False}, now_ms)
            return
        job, place = near.job, near.place._replace(at_ms=command.due_ms)
        if place.announced_ms <= now_ms:
            place = self._announce(place, job, now_ms)
        if _wake_ms(place) <= now_ms:
            self._fire(place, job, now_ms)
        else:
            self._store(place, job)
        self._answer(command, {"rescheduled": True, "due": command.due_ms}, now_ms)

    def _look(self, command: Command, now_ms: int) -> None:
        near = self._near.get(command.subject)
        row = self._table.get(command.subject)
        body: dict[str, Any] = {"state": None, "due": None}
        if near is not None and near.place is not None:
            place = near.place
            if place.kind == ENDED:
                assert near.job is not None
                body = {"state": place.state, "due": None, "detail": json.loads(near.job.value or b"{}")}
            else:
                body = {"state": _SHOWN[place.kind], "due": place.since_ms if place.kind == LEASED else place.at_ms}
        elif row is not None and _KINDS[row.kind] == MOVED:
            body = {"state": _SHOWN[MOVED], "due": row.wake_ms - _MOVED_KEPT_MS}
        self._answer(command, body, now_ms)

    def _change_lease(self, command: Command, now_ms: int) -> None:
        near = self._near.get(command.subject)
        if near is None or near.kind != LEASED or near.place is None or near.generation != command.generation:
            return
        if command.kind == END:
            place = self._announce_queued(near.place, near.job, now_ms)
            if place.announced_ms > now_ms:
                self._move(place, now_ms)
            else:
                self._forget(place.id)
                self._write(place.id, encode_gone(place.id))
        elif near.job is not None:
            self._store(near.place._replace(at_ms=command.due_ms), near.job)

    # -- time ---------------------------------------------------------------------------------------------------------

    def advance(self, now_ms: int, most: int = MOST_MOVED) -> bool:
        """Decide what is due, ``most`` jobs at most; whether more is due. Jobs whose records were not loaded wait for
        the next step."""
        self._now_ms = now_ms
        self._entries.advance(now_ms)
        self._promote(now_ms)
        heap, unread = self._heap, []
        count = 0
        while heap and heap[0][0] <= now_ms and count < most and self._round_bytes < MOST_ROUND_BYTES:
            entry = heapq.heappop(heap)
            job_id = entry[2]
            near = self._near.get(job_id)
            if near is None or near.turn != entry[1]:
                continue
            count += 1
            if job_id in self._unread:
                unread.append(entry)
                continue
            assert near.place is not None
            self._wake(near.place, near.job, now_ms)
        for entry in unread:
            heapq.heappush(heap, entry)
        return self.next_at_ms <= now_ms

    def _wake(self, place: JobPlace, job: StoredJob | None, now_ms: int) -> None:
        """The time of a job's place has come."""
        job_id = place.id
        if place.kind == ENDED:
            assert job is not None
            self._write_state(job_id, JobState[place.state], job.value, now_ms)
            self._remember(job_id, now_ms, place.generation)
        elif place.kind == SENT:
            self._announce_queued(place, None, now_ms)
            self._remember(job_id, now_ms, place.generation)
        elif place.kind == LEASED:
            assert job is not None
            place = self._announce_queued(place, job, now_ms)
            if now_ms < place.at_ms:
                self._store(place, job)
            else:
                self._fire(place, job, now_ms)
        else:
            assert job is not None
            if now_ms < min(place.at_ms, NEVER_MS if place.expires_ms is None else place.expires_ms):
                self._store(self._announce(place, job, now_ms), job)
            else:
                self._fire(place, job, now_ms)

    def _fire(self, place: JobPlace, job: StoredJob, now_ms: int) -> None:
        """A job is due, or has expired."""
        if place.expires_ms is not None and now_ms >= place.expires_ms:
            self._end(place, JobState.REVOKED, reason_value("expired while it waited", self._host), now_ms)
            return
        if self._topic_of(job) in self._missing_topics:
            error = ErrorInfo("UnknownQueue", f"the queue {job.queue!r} of the job does not exist any more")
            self._end(place, JobState.FAILURE, error_value(error, self._host, now_ms), now_ms)
            return
        headers = _with_crash(job.headers) if place.kind == LEASED else job.headers
        self._write_job(job._replace(headers=headers))
        self._round_bytes += len(job.value)
        self._move(place._replace(attempt=_attempt(job.headers)), now_ms)

    # -- steps --------------------------------------------------------------------------------------------------------

    def _store(self, place: JobPlace, job: StoredJob) -> None:
        """The job waits, or runs, until its time."""
        self._forget(place.id)
        self._write(place.id, encode_waiting(place, job))
        self._add_near(place, job)

    def _move(self, place: JobPlace, now_ms: int) -> None:
        """The job was written to its queue, or has ended: it is remembered for a while."""
        if place.announced_ms <= now_ms:
            self._remember(place.id, now_ms, place.generation)
            return
        sent = place._replace(kind=SENT, at_ms=place.since_ms or now_ms)
        self._forget(place.id)
        self._write(place.id, encode_sent(sent))
        self._add_near(sent, None)

    def _remember(self, job_id: str, now_ms: int, generation: int) -> None:
        """The job is over here: a second PUT of this generation is known for a while."""
        self._forget(job_id)
        self._write(job_id, encode_moved(job_id, now_ms, generation))
        self._table.put(job_id, now_ms + _MOVED_KEPT_MS, 0, _KIND_NUMBERS[MOVED], generation)

    def _announce_queued(self, place: JobPlace, job: StoredJob | None, now_ms: int) -> JobPlace:
        """A job's place. When it was written to its queue before a time that it was announced for, and that time has
        come, a QUEUED record says to readers when it was."""
        if place.kind not in (SENT, LEASED) or not 0 < place.announced_ms <= now_ms:
            return place
        since_ms, attempt = place.at_ms, place.attempt
        if place.kind == LEASED:
            since_ms, attempt = place.since_ms, 1 if job is None else _attempt(job.headers)
        self._write_state(place.id, JobState.QUEUED, b"", now_ms, since_ms, attempt)
        return place._replace(announced_ms=0)

    def _end(self, place: JobPlace, state: JobState, value: bytes, now_ms: int) -> None:
        """A job that waits has ended. Readers who look for it later find it where it was announced."""
        job_id = place.id
        self._write_state(job_id, state, value, now_ms)
        if place.announced_ms <= now_ms:
            self._remember(job_id, now_ms, place.generation)
            return
        self._forget(job_id)
        ended = JobPlace(ENDED, job_id, place.announced_ms, place.announced_ms, place.generation, state=state.name)
        self._write(job_id, encode_ended(ended, value))
        self._add_near(ended, StoredJob("", None, value, []))

    def _announce(self, place: JobPlace, job: StoredJob, now_ms: int) -> JobPlace:
        """Say to readers that the job is to start at its present time."""
        self._write_state(place.id, JobState.SCHEDULED, b"", now_ms, place.at_ms, _attempt(job.headers))
        return place._replace(announced_ms=place.at_ms)

    def _known(self, job_id: str) -> tuple[str, int] | None:
        """Kind and generation of a job."""
        near = self._near.get(job_id)
        if near is not None:
            return near.kind, near.generation
        row = self._table.get(job_id)
        return None if row is None else (_KINDS[row.kind], row.generation)

    def _add_near(self, place: JobPlace, job: StoredJob | None) -> None:
        near = self._push(place.id, place.kind, place.generation, _wake_ms(place), -1)
        near.place, near.job = place, job
        if job is not None:
            self._kept_bytes += len(job.value)

    def _push(self, job_id: str, kind: str, generation: int, wake_ms: int, offset: int) -> _NearJob:
        self._turn += 1
        near = self._near[job_id] = _NearJob(kind, generation, wake_ms, offset, self._turn)
        heapq.heappush(self._heap, (wake_ms, self._turn, job_id))
        if len(self._heap) > 2 * len(self._near) + MOST_READ:
            self._heap = [(each.wake_ms, each.turn, job_id) for job_id, each in self._near.items()]
            heapq.heapify(self._heap)
        return near

    def _to_near(self, job_id: str, row: PendingRow) -> None:
        self._table.remove(job_id)
        self._push(job_id, _KINDS[row.kind], row.generation, row.wake_ms, row.offset)
        self._mark_unread(job_id, row.wake_ms)

    def _to_table(self, job_id: str, near: _NearJob) -> None:
        self._forget(job_id)
        self._table.put(job_id, near.wake_ms, near.offset, _KIND_NUMBERS[near.kind], near.generation)
        self._near_until_ms = min(self._near_until_ms, near.wake_ms)

    def _make_room(self, job_id: str, near: _NearJob) -> None:
        """Keep no more of a job than there is room for; its record is in the log."""
        if near.wake_ms >= self._near_until_ms or len(self._near) > MOST_KEPT:
            self._to_table(job_id, near)
        elif self._kept_bytes > MOST_KEPT_BYTES and near.job is not None:
            self._kept_bytes -= len(near.job.value)
            near.job = None
            self._mark_unread(job_id, near.wake_ms)

    def _mark_unread(self, job_id: str, wake_ms: int) -> None:
        self._unread.add(job_id)
        self._unread_from_ms = min(self._unread_from_ms, wake_ms)

    def _forget(self, job_id: str) -> None:
        near = self._near.pop(job_id, None)
        self._unread.discard(job_id)
        if near is None:
            self._table.remove(job_id)
            return
        if near.job is not None:
            self._kept_bytes -= len(near.job.value)
        if not self._near:
            self._heap.clear()

    def _promote(self, now_ms: int) -> None:
        """Make objects of the rows whose time is near, of the earliest if they are many."""
        until_ms = now_ms + KEEP_MS
        if self._near_until_ms > now_ms + KEEP_MS // 2:
            return
        if self._table.earliest_ms >= until_ms:
            self._near_until_ms = until_ms
            return
        if self._has_enough:
            return
        if len(self._near) >= MOST_KEPT // 4:  # all of them come after some of the rows
            for job_id, near in list(self._near.items()):
                if near.offset >= 0 and job_id not in self._asked:
                    self._to_table(job_id, near)
        most = MOST_KEPT // 2
        found = self._table.due(until_ms, most)
        for _, job_id in found:
            row = self._table.get(job_id)
            assert row is not None
            if _KINDS[row.kind] == MOVED:
                self._table.remove(job_id)
            else:
                self._to_near(job_id, row)
        self._near_until_ms = until_ms if len(found) < most else max(wake_ms for wake_ms, _ in found)

    # -- records ------------------------------------------------------------------------------------------------------

    def _write(self, job_id: str, record: ScheduleRecord) -> None:
        self._stored[job_id] = len(self._records)
        self._append_record(record)

    def _append_record(self, record: ScheduleRecord) -> None:
        key, value, headers = record
        topic, partition = self._names.schedule, self._partition
        self._records.append(OutgoingRecord(RecordKind.STATE, topic, value, key, headers, partition))

    def _write_job(self, job: StoredJob) -> None:
        """The producer chooses the partition: by the key, as that of the client does which enqueues a job."""
        self._records.append(OutgoingRecord(RecordKind.JOB, self._topic_of(job), job.value, job.key, job.headers))
        self.moved_count += 1

    def _topic_of(self, job: StoredJob) -> str:
        return self._names.scheduled(job.queue, job.is_ordered)

    def _send_periodic(self, job_id: str, job: StoredJob) -> None:
        if self._topic_of(job) in self._missing_topics:
            error = ErrorInfo("UnknownQueue", f"the queue {job.queue!r} of the periodic entry does not exist any more")
            value = error_value(error, self._host, self._now_ms)
            self._write_state(job_id, JobState.FAILURE, value, self._now_ms)
            return
        self._write_job(job)

    def _write_state(
        self, job_id: str, state: JobState, value: bytes, now_ms: int, due_ms: int | None = None, attempt: int = 1
    ) -> None:
        """A state record; with ``due_ms`` one that comes before all that a worker writes about that attempt."""
        headers = state_headers(state, 1, 1)
        if due_ms is not None:
            headers = with_due(state_headers(state, attempt, 0), due_ms)
        topic = self._names.late if is_late(job_id, now_ms) else self._names.results
        partition = partition_of(job_id)
        self._records.append(OutgoingRecord(RecordKind.STATE, topic, value, job_id.encode(), headers, partition))

    def _answer(self, command: Command, body: dict[str, Any], now_ms: int) -> None:
        assert command.request is not None
        value = json.dumps(body, separators=(",", ":")).encode()
        self._write_state(command.request, JobState.SUCCESS, value, now_ms)


_SHOWN: Final = {WAITING: "SCHEDULED", LEASED: "STARTED", SENT: "QUEUED", MOVED: "QUEUED"}


def _wake_ms(place: JobPlace) -> int:
    """When something is to be done about a job."""
    if place.kind == LEASED:  # it runs: it cannot expire
        return min(place.at_ms, place.announced_ms or NEVER_MS)
    if place.kind == WAITING:
        wake_ms = place.at_ms if place.expires_ms is None else min(place.at_ms, place.expires_ms)
        return min(wake_ms, place.announced_ms)
    return place.announced_ms


def _attempt(headers: Iterable[Header]) -> int:
    """The attempt that a job's headers say."""
    return _number(headers, "attempt", 1)


def _number(headers: Iterable[Header], wanted: str, otherwise: int) -> int:
    """A number in a job's headers; another value for one that is no number: the worker that gets the job refuses it."""
    raw = next((raw for name, raw in headers if name == wanted), None)
    return int(raw) if raw is not None and raw.isdigit() and len(raw) <= MOST_DIGITS else otherwise


def _with_crash(headers: Iterable[Header]) -> list[Header]:
    """A job's headers after one more crash."""
    own = list(headers)
    count = _number(own, "crashes", 0)
    return [*(header for header in own if header[0] != "crashes"), ("crashes", b"%d" % (count + 1))]
