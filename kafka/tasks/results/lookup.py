"""The dialogue that finds one job's state from its bare id: it yields what it wants to read."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, TypeAlias

from kafka.tasks.format.job_id import partition_of, time_of
from kafka.tasks.format.records import CLOSED_AFTER_MS, StateRecord, supersedes
from kafka.tasks.states import READY

SKEW_MS = 60_000
"""How far before the id's time a look-up starts: what is left of clock differences."""


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
    record of this job was read that counts.
    """

    late: bool
    partition: int
    job_id: str
    offset: int
    until: int
    until_ms: int | None


LookUpRequest: TypeAlias = "FetchEndOffset | FetchOffsetAt | ReadStates"


def look_up(job_id: str) -> Generator[LookUpRequest, Any, StateRecord | None]:
    """The dialogue that finds a job's state from its id alone; returns the record that holds, or None when there is
    none.

    End offsets are taken *before* the look-up by time: when that answers -1 (no record so late, yet), reading goes on
    from there and nothing written meanwhile is missed. Wants are answered with an offset (:class:`FetchEndOffset`,
    :class:`FetchOffsetAt`) or a :class:`StateRecord` or None (:class:`ReadStates`).
    """
    partition, enqueued = partition_of(job_id), time_of(job_id)
    best: StateRecord | None = None
    for late, until_ms in ((False, enqueued + CLOSED_AFTER_MS), (True, None)):
        end: int = yield FetchEndOffset(late, partition)
        start: int = yield FetchOffsetAt(late, partition, max(0, enqueued - SKEW_MS))
        if 0 <= start < end:
            found: StateRecord | None = yield ReadStates(late, partition, job_id, start, end, until_ms)
            if found is not None and supersedes(best, found):
                best = found
        if best is not None and best.state in READY:
            break
    return best
