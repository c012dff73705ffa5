"""The dead jobs of a queue: list, replay and drop them. ``python -m kafka dead`` is a thin command over this module.

::

    with DeadJobs(app, "mail") as dead:
        for job in dead.select(DeadSelection(error="OSError", since_ms=...)):
            print(job.id, job.letter.text)
        dead.replay(DeadSelection(task="mail.send"), rate=50)

A dead topic is a log that its retention trims, so what became of a dead job is written behind it as a mark
(:mod:`kafka.tasks.format.dead_mark`): a replayed or dropped job is not selected again. A selection reads the topic
twice, first the marks, then the jobs; a mark is behind its job, so both begin at the same place. In memory are one bit
for each record of that part, and the records under way.

A replay is a new job: an id of its own, its first attempt, no ``expires``, and the header ``origin`` with the dead
job's id; task, payload, key, limits and the caller's own headers stay. It writes some hundred jobs, waits until they
are durable, and then marks their dead jobs: a replay that is killed in between may replay these once more, and none is
lost. Two replays at once may do the same, for there is no lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from kafka.errors import IllegalArgumentError
from kafka.tasks.app import App
from kafka.tasks.backends.base import DeadLog, DeadRecord, RecordFuture
from kafka.tasks.errors import BadRecord
from kafka.tasks.format.dead_mark import MOST_MARKED, DeadMark, MarkKind, decode_mark, encode_mark
from kafka.tasks.format.envelope import DeadLetter, Envelope, Header, dead_letter_of, decode
from kafka.tasks.format.job_id import is_id

PACE_S: Final = 0.1
"""With a rate, so much of it is written at once."""


@dataclass(frozen=True)
class DeadJob:
    """One dead job. ``id`` and ``task`` are None in a record that is no job (cause ``no-job`` and others); ``position``
    names that, too. ``time_ms``: when it was written, ms since the epoch on the broker's clock. ``mark``: what became
    of it, if anything."""

    partition: int
    offset: int
    time_ms: int
    id: str | None
    task: str | None
    letter: DeadLetter
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    mark: MarkKind | None = None

    @property
    def position(self) -> str:
        """PARTITION:OFFSET in the dead topic."""
        return f"{self.partition}:{self.offset}"

    def envelope(self) -> Envelope:
        """The job as it was; :class:`kafka.tasks.errors.BadRecord` when it is none."""
        return decode(self.value, self.headers, self.key)


@dataclass(frozen=True)
class DeadSelection:
    """Which dead jobs: all conditions hold. ``error``: the error's type or the cause of death; ``task``: the task's
    name; both may have the wildcards ``*``, ``?`` and ``[...]``. ``since_ms``, ``until_ms``: written at that time or
    later, and before that one, in ms since the epoch on the broker's clock. ``ids``: job ids, or positions
    (PARTITION:OFFSET). ``limit``: at most so many, the oldest."""

    error: str | None = None
    task: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    ids: Collection[str] = frozenset()
    limit: int | None = None

    def __post_init__(self) -> None:
        """:class:`kafka.errors.IllegalArgumentError` for what selects nothing by mistake."""
        if isinstance(self.ids, str):
            raise IllegalArgumentError(f"ids must be a collection of job ids, not the str {self.ids!r}")
        if self.limit is not None and self.limit < 1:
            raise IllegalArgumentError(f"limit must be a number of jobs above 0, or None, not {self.limit!r}")

    def has(self, job: DeadJob) -> bool:
        """Whether the job is one of these; the limit is not looked at."""
        if self.ids and job.id not in self.ids and job.position not in self.ids:
            return False
        if self.task is not None and not fnmatchcase(job.task or "", self.task):
            return False
        if self.error is not None and not any(
            fnmatchcase(name, self.error) for name in (job.letter.type, job.letter.cause)
        ):
            return False
        if self.since_ms is not None and job.time_ms < self.since_ms:
            return False
        return self.until_ms is None or job.time_ms < self.until_ms


@dataclass
class DeadCounts:
    """What a call has done: ``done`` jobs were replayed or dropped (or would be); of those that the selection has,
    ``marked`` were replayed or dropped before, and ``no_job`` cannot be replayed, because they are no jobs."""

    done: int = 0
    marked: int = 0
    no_job: int = 0


OnReplayed = Callable[[DeadJob, "str | None"], Any]
"""Is called with a dead job and the id of the new job; None in a dry run."""


class OffsetSet:
    """Offsets of one partition from ``begin`` to before ``end``, a bit each."""

    __slots__ = ("_begin", "_bits", "_end")

    def __init__(self, begin: int, end: int) -> None:
        self._begin, self._end = begin, end
        self._bits = bytearray((max(end - begin, 0) + 7) // 8)

    def add(self, offset: int) -> None:
        """Add an offset; one outside is ignored."""
        if self._begin <= offset < self._end:
            at = offset - self._begin
            self._bits[at >> 3] |= 1 << (at & 7)

    def __contains__(self, offset: int) -> bool:
        at = offset - self._begin
        return self._begin <= offset < self._end and bool(self._bits[at >> 3] >> (at & 7) & 1)


class Pacer:
    """Spreads a number of jobs over time: ``rate`` a second, and no burst after a pause."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._due_at = 0.0

    def wait_s(self, now: float, count: int) -> float:
        """Seconds until ``count`` more may go; ``now`` is monotonic."""
        begin = max(self._due_at, now)
        self._due_at = begin + count / self._rate
        return begin - now


@dataclass
class _Part:
    """The part of a dead topic that a selection reads: where the topic starts, spans of offsets, and their marks."""

    starts: Mapping[int, int]
    spans: Mapping[int, tuple[int, int]]
    marks: Mapping[MarkKind, Mapping[int, OffsetSet]]

    def mark_of(self, record: DeadRecord) -> MarkKind | None:
        return next((kind for kind, sets in self.marks.items() if record.offset in sets[record.partition]), None)


class DeadJobs:
    """The dead jobs of one queue of an app, for one thread; use it as a context manager. Nothing of the app's tasks
    needs to be imported: ``App(name, bootstrap_servers=...)`` will do. :class:`kafka.tasks.errors.UnknownQueue` when
    the broker has no dead topic of the queue; other errors are the clients' own."""

    def __init__(self, app: App, queue: str) -> None:
        self._app = app
        self._queue = queue
        self._log: DeadLog = app.backend().dead_log(queue)
        self._queue_topic: str | None = None

    def __enter__(self) -> DeadJobs:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect. The app is left as it is."""
        self._log.close()

    # -- reading ------------------------------------------------------------------------------------------------------

    def select(self, selection: DeadSelection, include_marked: bool = False) -> Iterator[DeadJob]:
        """The dead jobs of a selection, the oldest first; with ``include_marked`` also those that were replayed or
        dropped. Call nothing else of this object until the iterator is at its end, or left."""
        return self._selected(self._part(selection), selection, DeadCounts(), include_marked)

    def replayed_as(self, job: DeadJob) -> str | None:
        """The id of the job that replays a dead job, or None when there is none (or its mark does not say it)."""
        _, end = self._log.bounds()[job.partition]
        for record in self._log.read({job.partition: (job.offset + 1, end)}):
            mark = decode_mark(record.value, record.headers)
            if mark is not None and mark.ids and job.offset in mark.offsets:
                return mark.ids[mark.offsets.index(job.offset)]
        return None

    def _part(self, selection: DeadSelection) -> _Part:
        bounds = self._log.bounds()
        begins = {} if selection.since_ms is None else self._log.offsets_at(selection.since_ms)
        spans = {number: (max(begins.get(number, 0), start), end) for number, (start, end) in bounds.items()}
        starts = {number: start for number, (start, _) in bounds.items()}
        marks = {kind: {number: OffsetSet(*span) for number, span in spans.items()} for kind in MarkKind}
        for record in self._log.read(spans):
            mark = decode_mark(record.value, record.headers)
            if mark is not None:
                marked = marks[mark.kind][record.partition]
                for offset in mark.offsets:
                    marked.add(offset)
        if selection.until_ms is not None:  # marks may be later than the jobs, so only now
            ends = self._log.offsets_at(selection.until_ms)
            spans = {number: (begin, min(end, ends[number])) for number, (begin, end) in spans.items()}
        return _Part(starts, spans, marks)

    def _selected(
        self, part: _Part, selection: DeadSelection, counts: DeadCounts, include_marked: bool = False
    ) -> Iterator[DeadJob]:
        left = selection.limit
        for job in self._all(part):
            if left == 0:
                return
            if not selection.has(job):
                continue
            if job.mark is not None and not include_marked:
                counts.marked += 1
                continue
            yield job
            left = None if left is None else left - 1

    def _all(self, part: _Part) -> Iterator[DeadJob]:
        for record in self._log.read(part.spans):
            letter = dead_letter_of(record.headers)
            if letter is None:
                continue
            texts = {name: raw.decode("utf-8", "replace") for name, raw in record.headers if raw and name in _NAMES}
            job_id = texts.get("id")
            yield DeadJob(
                record.partition,
                record.offset,
                record.time_ms,
                job_id if job_id is not None and is_id(job_id) else None,
                texts.get("name"),
                letter,
                record.key,
                record.value,
                tuple(record.headers),
                part.mark_of(record),
            )

    # -- changing -----------------------------------------------------------------------------------------------------

    def replay(
        self,
        selection: DeadSelection,
        rate: float | None = None,
        dry_run: bool = False,
        on_replayed: OnReplayed = lambda job, new_id: None,
    ) -> DeadCounts:
        """Send each selected job to its queue as a new job, the oldest first, at most ``rate`` a second.

        ``on_replayed`` is called for each one that is durable and marked; with ``dry_run`` nothing is written. An error
        ends it: what was written until then is marked.
        """
        if rate is not None and not rate > 0:
            raise IllegalArgumentError(f"rate must be a number of jobs a second above 0, or None, not {rate!r}")
        counts = DeadCounts()
        part = self._part(selection)
        size = MOST_MARKED if rate is None else min(max(1, int(rate * PACE_S)), MOST_MARKED)
        pacer = None if rate is None else Pacer(rate)
        batch: list[tuple[DeadJob, Envelope]] = []

        def write() -> None:
            if batch and pacer is not None:
                time.sleep(pacer.wait_s(time.monotonic(), len(batch)))
            for job, new_id in self._replay(batch):
                counts.done += 1
                on_replayed(job, new_id)
            batch.clear()

        for job in self._selected(part, selection, counts):
            try:
                envelope = job.envelope()
            except BadRecord:
                counts.no_job += 1
                continue
            if dry_run:
                counts.done += 1
                on_replayed(job, None)
                continue
            batch.append((job, envelope))
            if len(batch) == size:
                write()
        write()
        return counts

    def _replay(self, batch: list[tuple[DeadJob, Envelope]]) -> list[tuple[DeadJob, str]]:
        """Write these as new jobs, and mark those that are durable, also when an error is raised."""
        if not batch:
            return []
        backend = self._app.backend()
        if self._queue_topic is None:
            self._queue_topic = backend.route(self._queue, declared=False).topic
        sent: list[tuple[DeadJob, str, RecordFuture]] = []
        try:
            for job, envelope in batch:
                new = replayed(envelope, backend.new_id())
                sent.append((job, new.id, backend.send(self._queue_topic, new.value, new.headers(), new.key)))
            backend.flush(None)
        finally:
            durable = [(job, new_id) for job, new_id, future in sent if future.is_done and future.exception is None]
            self._mark(MarkKind.REPLAYED, [job for job, _ in durable], [new_id for _, new_id in durable])
        for _, _, future in sent:
            if future.exception is not None:
                raise future.exception
        return durable

    def drop(
        self, selection: DeadSelection, dry_run: bool = False, on_dropped: Callable[[DeadJob], Any] = lambda job: None
    ) -> DeadCounts:
        """Drop the selected jobs: they are not selected any more.

        The beginning of a partition, up to the first dead job that is not dropped, is deleted (DeleteRecords); behind
        it dropped jobs are marked, and retention deletes them with their segment.
        """
        counts = DeadCounts()
        part = self._part(selection)
        deleted = {number: begin for number, (begin, _) in part.spans.items() if begin == part.starts[number]}
        intact = set(deleted)
        marked: list[DeadJob] = []
        left = selection.limit
        for job in self._all(part):
            if left == 0:
                break
            is_selected = selection.has(job) and job.mark is None
            if selection.has(job) and job.mark is not None:
                counts.marked += 1
            if is_selected:
                counts.done += 1
                left = None if left is None else left - 1
                on_dropped(job)
            if job.partition in intact and (is_selected or job.mark is MarkKind.DROPPED):
                deleted[job.partition] = job.offset + 1
                continue
            intact.discard(job.partition)
            if is_selected and not dry_run:
                marked.append(job)
                if len(marked) == MOST_MARKED:
                    self._mark(MarkKind.DROPPED, marked)
                    marked = []
        if not dry_run:
            self._mark(MarkKind.DROPPED, marked)
            beginnings = {number: offset for number, offset in deleted.items() if offset > part.starts[number]}
            if beginnings and counts.done:
                self._log.delete_before(beginnings)
        return counts

    def _mark(self, kind: MarkKind, jobs: list[DeadJob], ids: list[str] | None = None) -> None:
        """Write the marks of at most :data:`MOST_MARKED` jobs; ``ids`` are those of the new jobs, in the same order."""
        by_partition: dict[int, list[int]] = {}
        for at, job in enumerate(jobs):
            by_partition.setdefault(job.partition, []).append(at)
        for number, places in by_partition.items():
            offsets = tuple(jobs[at].offset for at in places)
            value, headers = encode_mark(DeadMark(kind, offsets, tuple(ids[at] for at in places) if ids else ()))
            self._log.append(number, value, headers)


def replayed(dead: Envelope, new_id: str) -> Envelope:
    """The new job that replays a dead one."""
    return Envelope(
        new_id,
        dead.name,
        dead.value,
        timeout=dead.timeout,
        soft_timeout=dead.soft_timeout,
        store_result=dead.store_result,
        extra=dead.extra,
        key=dead.key,
        content_type=dead.content_type,
        needs=dead.needs,
        origin=dead.id,
        parent=dead.parent,
        root=dead.root,
    )


_NAMES = frozenset({"id", "name"})
