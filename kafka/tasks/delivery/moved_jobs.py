"""Jobs that are written to the topics of their queue anew, when the queue changes from one way of delivery to the other
(``python -m kafka queue migrate``): what the way that is left knew of them beside their records goes into the records.

Pure. Jobs go to ``APP.QUEUE.due``, those whose worker may have died of them to ``APP.QUEUE.suspect``, with the crashes
counted so far. One that is to run later keeps that time in its header ``due``: the worker that gets it puts it into the
schedule.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from kafka.errors import CorruptRecordError
from kafka.tasks.errors import BadRecord
from kafka.tasks.format.envelope import Envelope, Header, decode
from kafka.tasks.format.offset_metadata import MarkedJob, PartitionMarks
from kafka.tasks.format.topics import TopicNames
from kafka.tasks.rules.admit import crashes_of


class QueueRecord(Protocol):
    """A record of a queue, as a consumer or a share consumer returns it."""

    @property
    def topic(self) -> str: ...

    @property
    def offset(self) -> int: ...

    @property
    def key(self) -> Any: ...

    @property
    def value(self) -> Any: ...

    @property
    def headers(self) -> Sequence[Header]: ...


class MovedRecord(NamedTuple):
    """A record to be written."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[Header]


def end_of_marks(offset: int, marks: PartitionMarks) -> int:
    """The offset behind all that is said beside the committed one: no worker has begun with what is there."""
    ended = marks.completed[-1][1] + 1 if marks.completed else 0
    return max(offset, ended, marks.started_below, marks.suspects_below, max(marks.jobs, default=-1) + 1)


def marks_behind(offset: int, marks: PartitionMarks) -> tuple[int, PartitionMarks]:
    """The offset to commit, and the marks beside it, when all below ``offset`` has ended, too."""
    runs = [(max(first, offset), last) for first, last in marks.completed if last >= offset]
    if runs and runs[0][0] == offset:
        offset = runs.pop(0)[1] + 1
    started = marks.started_below if marks.started_below > offset else 0
    suspects = marks.suspects_below if marks.suspects_below > offset else 0
    jobs = {at: job for at, job in marks.jobs.items() if at >= offset}
    return offset, PartitionMarks(tuple(runs), started, suspects, jobs, marks.writer if started else "")


def from_consumer_group(record: QueueRecord, marks: PartitionMarks, names: TopicNames, queue: str) -> MovedRecord:
    """A job that has not ended, as the last owner of its partition has left it. The next owner would take
    it for the same."""
    is_suspect = marks.is_suspect(record.offset)
    return _moved(record, marks.taken_over(record.offset), is_suspect, names, queue)


def from_share_group(record: QueueRecord, deliveries: int, names: TopicNames, queue: str) -> MovedRecord:
    """A job that a share group has handed out so often. Mirrors what a worker makes of its deliveries."""
    crashes = crashes_of(0, deliveries, record.topic == names.suspect(queue))
    return _moved(record, MarkedJob(losses=crashes) if crashes else None, deliveries > 1, names, queue)


def _moved(
    record: QueueRecord, job: MarkedJob | None, is_suspect: bool, names: TopicNames, queue: str
) -> MovedRecord:
    try:
        headers = list(record.headers)
    except CorruptRecordError:  # no job: the worker that gets it says so
        headers = []
    if job is not None and (job.attempt or job.losses):
        with contextlib.suppress(BadRecord):  # the worker that gets it moves it to the dead topic
            headers = _as_marked(decode(record.value, headers, record.key), job).headers()
    to_suspects = is_suspect or record.topic == names.suspect(queue)
    return MovedRecord(names.suspect(queue) if to_suspects else names.due(queue), record.key, record.value, headers)


def _as_marked(job: Envelope, marked: MarkedJob) -> Envelope:
    if not marked.attempt:
        crashes = job.crashes + marked.losses
        return job.moved(job.attempt, crashes, job.clean, job.unknown, job.unknown_since_ms, job.due_ms)
    return job.moved(
        marked.attempt,
        marked.crashes + marked.losses,
        job.clean,
        marked.unknown,
        marked.unknown_since_ms or None,
        marked.due_ms or None,
    )
