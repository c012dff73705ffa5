"""What a client keeps of the state records that it has read: the best record of each job that it enqueued or asked for.

:class:`ResultView` is fed with records by the tails and by look-ups, and reads no Kafka itself. It says with each
record how far it can be relied on (:class:`Certainty`): an evicted job's later record looks like a first one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from kafka.tasks.format.job_id import partition_of, time_of
from kafka.tasks.format.records import CLOSED_AFTER_MS, StateRecord, supersedes
from kafka.tasks.results.evicted import BITMAP_BYTES, EvictedIds
from kafka.tasks.states import READY

MOST_VIEW_BYTES = 64 * 1024 * 1024
"""Of a :class:`ResultView` for :data:`DEFAULT_JOBS` or fewer: its jobs, however few they are, and its memory of the
evicted ones. :func:`most_view_bytes` for more."""
DEFAULT_JOBS = 100_000

ENTRY_BYTES = 478
"""What a job takes beside its value, at most: id, record, numbers, and places in tables that have just grown (measured
with CPython 3.11)."""


def most_view_bytes(capacity: int) -> int:
    """What a view may take: an app that asks for more jobs gets what their entries take beside 64 MiB."""
    return MOST_VIEW_BYTES + ENTRY_BYTES * max(0, capacity - DEFAULT_JOBS)


class Certainty(IntEnum):
    """How far a :class:`KnownState` can be relied on. SETTLED: no later record changes it. COMPLETE: it is the best of
    the job's records, as far as the job's partition is tailed. PARTIAL: there may be earlier records in the log.
    """

    PARTIAL = 0
    COMPLETE = 1
    SETTLED = 2


class KnownState(NamedTuple):
    """What is known of a job: its best record (None: none was found) and how certain that is."""

    record: StateRecord | None
    certainty: Certainty

    @property
    def is_final(self) -> bool:
        """Whether its record is a terminal one."""
        return self.record is not None and self.record.state in READY

    def is_settled(self, results_read_ms: int) -> bool:
        """Whether no later record changes it, when the results topic has been read up to this append time.

        A terminal record of the late topic gives way to one of the results topic, which is read independently: until
        that has been read as far as it counts for the job, one may come.
        """
        record = self.record
        if self.certainty is not Certainty.COMPLETE or record is None or record.state not in READY:
            return self.certainty is Certainty.SETTLED
        return not record.in_late or results_read_ms > time_of(record.id) + CLOSED_AFTER_MS


_NOTHING = KnownState(None, Certainty.COMPLETE)
_UNKNOWN = KnownState(None, Certainty.PARTIAL)


class ResultView:
    """The states of the latest ``capacity`` jobs, but of no more than fit into ``most_bytes`` (None:
    :func:`most_view_bytes`, the memory of the evicted ones included).

    ``is_own`` says of an id whether all records of its job are applied here; of other jobs those are kept that are
    applied. One thread owns it, others may call :meth:`get` and :meth:`wants`. ``evicted`` counts jobs that were pushed
    out, ``ignored`` terminal records that came second.
    """

    __slots__ = ("_byte_count", "_capacity", "_evicted_ids", "_is_own", "_known", "_most_bytes", "evicted", "ignored")

    def __init__(
        self, is_own: Callable[[str], bool], capacity: int = DEFAULT_JOBS, most_bytes: int | None = None
    ) -> None:
        self._is_own = is_own
        self._capacity = capacity
        self._most_bytes = most_view_bytes(capacity) - BITMAP_BYTES if most_bytes is None else most_bytes
        self._byte_count = 0
        self._known: OrderedDict[str, KnownState] = OrderedDict()
        self._evicted_ids = EvictedIds()
        self.evicted = 0
        self.ignored = 0

    def __len__(self) -> int:
        """The number of jobs."""
        return len(self._known)

    @property
    def byte_count(self) -> int:
        """What it takes of memory."""
        return self._byte_count + self._evicted_ids.byte_count

    def wants(self, job_id: str) -> bool:
        """Whether the records of this job are to be applied: it is one's own, or is known already."""
        return job_id in self._known or self._is_own(job_id)

    def get(self, job_id: str) -> KnownState:
        """What is known of a job."""
        return self._known.get(job_id) or self._absent(job_id)

    def _absent(self, job_id: str) -> KnownState:
        return _NOTHING if self._is_own(job_id) and job_id not in self._evicted_ids else _UNKNOWN

    def apply(self, record: StateRecord) -> bool:
        """Take in a record that was read from a partition's log; True when it made its job final, or final in another
        way."""
        known = self._known.get(record.id)
        old, certainty = known or self._absent(record.id)
        is_final = record.state in READY
        if not supersedes(old, record):
            self.ignored += is_final and old is not None and old.state in READY
            return False
        self.ignored += old is not None and old.state in READY
        self._put(record.id, known, KnownState(record, certainty))
        return is_final

    def settle(self, record: StateRecord) -> None:
        """Take in a terminal record that a look-up has found: the whole log was read for it.

        It pushes out no other job: of more jobs than fit, asked for in turn, each would be looked up.
        """
        old, new = self._known.get(record.id), KnownState(record, Certainty.SETTLED)
        if old is not None or (len(self._known) < self._capacity and self._byte_count + _size(new) <= self._most_bytes):
            self._put(record.id, old, new)

    def complete(self, job_id: str, found: StateRecord | None, evicted: int) -> None:
        """Take in what a look-up has found, a record that is not terminal or none, while all new records of the job
        were applied. ``evicted`` as it was before the look-up: those records may be gone, too.
        """
        if evicted != self.evicted:
            return
        known = self._known.get(job_id)
        record = None if known is None else known.record
        if record is None or (found is not None and supersedes(record, found)):
            record = found
        self._put(job_id, known, KnownState(record, Certainty.COMPLETE))

    def drop_partition(self, partition: int, results_read_ms: int) -> None:
        """Drop the jobs of a partition that is not tailed any more, except those that are settled."""
        unsettled = [
            job_id
            for job_id, known in self._known.items()
            if partition_of(job_id) == partition and not known.is_settled(results_read_ms)
        ]
        for job_id in unsettled:
            self._byte_count -= _size(self._known.pop(job_id))

    def _put(self, job_id: str, old: KnownState | None, new: KnownState) -> None:
        self._known[job_id] = new
        self._byte_count += _size(new) - (0 if old is None else _size(old))
        if self._byte_count > self._most_bytes or len(self._known) > self._capacity:
            self._evict()

    def _evict(self) -> None:
        """Push out the oldest jobs until the others fit; the latest one stays."""
        while len(self._known) > self._capacity or (self._byte_count > self._most_bytes and len(self._known) > 1):
            job_id, known = next(iter(self._known.items()))
            if self._is_own(job_id):
                self._evicted_ids.add(job_id)  # first: another thread may ask meanwhile
            del self._known[job_id]
            self._byte_count -= _size(known)
            self.evicted += 1


def _size(known: KnownState) -> int:
    return ENTRY_BYTES + (0 if known.record is None else len(known.record.value))
