"""The state of the schedule: records of the compacted topic ``APP.schedule``, written by a partition's owner alone.

Partitions are those of ``APP.commands``. The last record of a key holds. Of a job, the key is its id and the header
``schedule-place`` says where it is::

    schedule-place                               value
    WAITING due announced generation expires     payload; further headers: schedule-queue,
            since                                schedule-key, schedule-ordered, the job's own
    LEASED  the same                             the same: it runs, and is due when its lease ends
    ENDED   announced generation STATE           JSON, the value of its last state record
    SENT    announced at generation attempt      empty: it was written to its queue before it was announced for
    MOVED   at generation                        null: it was written to its queue

``due``, ``announced``, ``at``: ms since the epoch by the broker's clock; ``expires``: the same, or ``-``.
``announced`` is where readers look for the job's states (:mod:`kafka.tasks.results.lookup`): the time in its id, or the
one in its last state record. What happens to the job earlier is remembered as ENDED or SENT and written to the results
topics at that time. ``since``: of a job that was in its queue before that time, when it was written there first; 0: it
was not. ``announced`` of LEASED: 0 when readers know.

MOVED is a tombstone that says more than that the key is gone: as long as compaction has not removed it
(``delete.retention.ms``), a second PUT of the same generation is known to be one, and writes no second job.

Of a periodic entry, the key is ``entry:NAME`` and the value JSON; what the apps' code declares is one record with the
key ``declared``. See :mod:`kafka.tasks.schedule.entries`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kafka.tasks.errors import BadRecord
from kafka.tasks.format.commands import JOB_KEY, MOST_DIGITS, ORDERED, QUEUE, StoredJob
from kafka.tasks.format.envelope import Header, truncated_repr
from kafka.tasks.format.job_id import is_id
from kafka.tasks.states import READY

PLACE: Final = "schedule-place"

WAITING: Final = "WAITING"
LEASED: Final = "LEASED"
ENDED: Final = "ENDED"
SENT: Final = "SENT"
MOVED: Final = "MOVED"

ENTRY_PREFIX: Final = "entry:"
DECLARED_KEY: Final = "declared"

_WORDS: Final = {WAITING: 5, LEASED: 5, ENDED: 3, SENT: 4, MOVED: 2}
_STATES: Final = frozenset(state.name for state in READY)


class ScheduleRecord(NamedTuple):
    """Key, value and headers of a record."""

    key: bytes
    value: bytes | None
    headers: list[Header]


class JobPlace(NamedTuple):
    """Where a job is in the schedule, without its payload. ``at_ms``: due, or when it was moved. ``state``: of ENDED;
    ``attempt``: of SENT; ``since_ms``: of WAITING and LEASED.
    """

    kind: str
    id: str
    at_ms: int
    announced_ms: int
    generation: int = 0
    expires_ms: int | None = None
    state: str = ""
    attempt: int = 1
    since_ms: int = 0


def encode_waiting(place: JobPlace, job: StoredJob) -> ScheduleRecord:
    """The record of WAITING or LEASED."""
    expires = b"-" if place.expires_ms is None else b"%d" % place.expires_ms
    words = (place.kind.encode(), place.at_ms, place.announced_ms, place.generation, expires, place.since_ms)
    headers: list[Header] = [(PLACE, b"%b %d %d %d %b %d" % words)]
    headers.append((QUEUE, job.queue.encode()))
    if job.key is not None:
        headers.append((JOB_KEY, job.key))
    if job.is_ordered:
        headers.append((ORDERED, b"1"))
    headers.extend(job.headers)
    return ScheduleRecord(place.id.encode(), job.value, headers)


def encode_ended(place: JobPlace, value: bytes) -> ScheduleRecord:
    """The record of a job that has ended before the time that it was announced for."""
    text = f"{ENDED} {place.announced_ms} {place.generation} {place.state}"
    return ScheduleRecord(place.id.encode(), value, [(PLACE, text.encode())])


def encode_sent(place: JobPlace) -> ScheduleRecord:
    """The record of a job that was written to its queue before the time that it was announced for."""
    text = f"{SENT} {place.announced_ms} {place.at_ms} {place.generation} {place.attempt}"
    return ScheduleRecord(place.id.encode(), b"", [(PLACE, text.encode())])


def encode_moved(job_id: str, at_ms: int, generation: int) -> ScheduleRecord:
    """The record of a job that was written to its queue."""
    return ScheduleRecord(job_id.encode(), None, [(PLACE, b"%b %d %d" % (MOVED.encode(), at_ms, generation))])


def encode_gone(job_id: str) -> ScheduleRecord:
    """The record of a job that the schedule has nothing of any more."""
    return ScheduleRecord(job_id.encode(), None, [])


def decode_place(key: bytes | None, headers: Sequence[Header]) -> JobPlace | None:
    """Where a job is by its record; None when it is gone. :class:`BadRecord` for what is no record of a job."""
    job_id = str(key or b"", "ascii", "replace")
    if not is_id(job_id):
        raise BadRecord("bad-schedule", f"the key of a record of the schedule is not a job id: {truncated_repr(key)}")
    if not headers:
        return None
    name, raw = headers[0]
    kind, *words = (raw or b"").decode("ascii", "replace").split(" ")
    try:
        if name != PLACE or len(words) != _WORDS.get(kind):
            raise ValueError
        if kind in (WAITING, LEASED):
            expires_ms = None if words[3] == "-" else _number(words[3])
            since_ms = _number(words[4])
            at_ms, announced_ms, generation = map(_number, words[:3])
            return JobPlace(kind, job_id, at_ms, announced_ms, generation, expires_ms, since_ms=since_ms)
        if kind == MOVED:
            at_ms = _number(words[0])
            return JobPlace(kind, job_id, at_ms, at_ms, _number(words[1]))
        if kind == SENT:
            announced_ms, at_ms, generation, attempt = map(_number, words)
            return JobPlace(kind, job_id, at_ms, announced_ms, generation, attempt=attempt)
        at_ms, generation, state = _number(words[0]), _number(words[1]), words[2]
        if state not in _STATES:
            raise ValueError
        return JobPlace(kind, job_id, at_ms, at_ms, generation, state=state)
    except ValueError:
        shown = f"{truncated_repr(name)}, {truncated_repr(raw)}"
        raise BadRecord("bad-schedule", f"the first header of a record of the schedule is {shown}") from None


def decode_job(value: bytes | None, headers: Sequence[Header]) -> StoredJob:
    """The job in a record of WAITING or LEASED; :class:`BadRecord` when it has none."""
    queue: bytes | None = None
    key, own, is_ordered = None, [], False
    for header in headers[1:]:
        name, raw = header
        if name == QUEUE:
            queue = raw
        elif name == JOB_KEY:
            key = raw
        elif name == ORDERED:
            is_ordered = raw == b"1"
        else:
            own.append(header)
    try:
        if not queue or value is None:
            raise ValueError
        return StoredJob(queue.decode(), key, value, own, is_ordered)
    except ValueError:
        shown = f"the queue {truncated_repr(queue)} and the value {truncated_repr(value)}"
        raise BadRecord("bad-schedule", f"a record of the schedule has no job: {shown}") from None


def decode_detail(value: bytes | None) -> dict[str, Any]:
    """The value of a record of ENDED; :class:`BadRecord` when it is no JSON object."""
    try:
        detail = json.loads(value or b"{}")
        if not isinstance(detail, dict):
            raise ValueError
        return detail
    except (ValueError, RecursionError):
        raise BadRecord("bad-schedule", f"the value of a job's end is {truncated_repr(value)}") from None


def _number(word: str) -> int:
    if not (word.isascii() and word.isdigit()) or len(word) > MOST_DIGITS:
        raise ValueError(word)
    return int(word)
