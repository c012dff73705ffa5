"""The dialogue that finds one job's state from its bare id: it yields what it wants to read."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, TypeAlias

from kafka.tasks.format.job_id import partition_of, time_of
from kafka.tasks.format.records import CLOSED_AFTER_MS, StateRecord, supersedes
from kafka.tasks.states import READY

SKEW_MS = 60_000
"""How far before the id's time a look-up starts: what is left of clock differences."""

FAR_MS = 10_000
"""A record that is announced for so much later is looked for by its time, instead of reading on."""

POINTER_MARGIN_MS = 5_000
"""How far before that time the reading goes on: append times step back when a partition's leader changes."""


class FetchEndOffset(NamedTuple):
    """Wanted: the end offset (read_committed) of a partition."""

    late: bool
    partition: int


class FetchOffsetAt(NamedTuple):
    """Wanted: the first offset whose record was appended at ``time_ms`` or later, or -1 (ListOffsets by time)."""

    late: bool
    partition: int
    time_ms: int


class ReadStates(NamedTuple):
    """Wanted: the state record of ``job_id`` that holds among those from ``offset`` on, or None.

    Stop at offset ``until`` (not read), at a record appended after ``until_ms`` (None: no bound), or once a terminal
    record of this job was read that counts. ``to_pointer``: stop also at a record of this job that :func:`is_pointer`,
    which is the answer then.
    """

    late: bool
    partition: int
    job_id: str
    offset: int
    until: int
    until_ms: int | None
    to_pointer: bool = False


LookUpRequest: TypeAlias = "FetchEndOffset | FetchOffsetAt | ReadStates"


def is_pointer(record: StateRecord) -> bool:
    """Whether what follows on this record is far from it in the log."""
    return record.due_ms is not None and abs(record.due_ms - record.time_ms) > FAR_MS


def look_up(job_id: str, since_ms: int | None = None) -> Generator[LookUpRequest, Any, StateRecord | None]:
    """The dialogue that finds a job's state from its id alone; returns the record that holds, or None when there is
    none. ``since_ms``: when its records begin, if that is not at the time of its id.

    End offsets are taken *before* the look-up by time: when that answers -1 (no record so late, yet), reading goes on
    from there and nothing written meanwhile is missed. Wants are answered with an offset (:class:`FetchEndOffset`,
    :class:`FetchOffsetAt`) or a :class:`StateRecord` or None (:class:`ReadStates`).

    A job that waits in between has its records at several times. Each that is the last one for a while says when the
    next one comes (``due``), or, when the job was sent to its queue earlier than announced, when that was. So the
    reading leaps from one to the next::

        results       id's time - 60 s ... + 65 s           read to the end, since a zombie may have written there, too
        results.late  id's time - 60 s ...
                      due - 5 s ...                         of the last record so far; and so on
        both          due - 5 s ...                         when that is before the time of the id
    """
    partition, first_ms = partition_of(job_id), max(0, time_of(job_id) - SKEW_MS)
    begin_ms = first_ms if since_ms is None else max(0, since_ms - POINTER_MARGIN_MS)
    has_leapt = since_ms is not None
    followed: set[int] = set()
    best: StateRecord | None = None
    while True:
        pointer: StateRecord | None = None
        for late in (False, True):
            if not late and has_leapt and begin_ms >= first_ms:
                continue  # read already, as far as it counts
            at_ms, until_ms = max(begin_ms, first_ms) if late else begin_ms, time_of(job_id) + CLOSED_AFTER_MS
            end: int = yield FetchEndOffset(late, partition)
            start: int = yield FetchOffsetAt(late, partition, at_ms)
            while pointer is None and 0 <= start < end:
                to_pointer = late or has_leapt
                want = ReadStates(late, partition, job_id, start, end, None if late else until_ms, to_pointer)
                found: StateRecord | None = yield want
                if found is None:
                    break
                if supersedes(best, found):
                    best = found
                if best is not None and best.state in READY:
                    return best
                if is_pointer(found) and found.due_ms not in followed:
                    pointer = found
                elif not (to_pointer and is_pointer(found)):
                    break  # it was read to the end
                start = found.offset + 1
            if pointer is not None:
                break
        if pointer is None or pointer.due_ms is None:
            return best
        followed.add(pointer.due_ms)
        begin_ms, has_leapt = max(0, pointer.due_ms - POINTER_MARGIN_MS), True
