"""A partition of a queue that this worker owns: its records as leases, and which of them it holds.

The partition is *loading* until it is known where its jobs begin (:meth:`OwnedPartition.begin`), and *returning* from
when it is to go to another worker: nothing more is handed out then, and what is held ends or is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from kafka.consumer import ConsumerRecord
from kafka.structs import TopicPartition
from kafka.tasks.delivery.base import Claim, ClaimKind, Ending, JobLease, JobSource
from kafka.tasks.delivery.consumer_group.progress import HandedOut, PartitionProgress, Settlement
from kafka.tasks.errors import BadRecord
from kafka.tasks.format.envelope import Envelope, Header, decode, job_headers, readable_id
from kafka.tasks.format.offset_metadata import MarkedJob, PartitionMarks

log = logging.getLogger(__name__)

MOST_READY: Final = 1_000
"""Records that are fetched and can be handed out: above that the partition is not read on, until half of them are."""
MOST_WAITING: Final = 10_000
"""The same of all that wait, those for the ends of others of their key included."""
MOST_BYTES: Final = 4 * 1024 * 1024
"""The same of their values."""


class OwnedPartition:
    """See the module. ``source``: what its jobs are leased from; ``suspects``: what those are leased from whose worker
    may have died of them and that stay where they are, None: there are no such. ``set_paused`` stops its fetches, or
    lets them go on."""

    def __init__(
        self,
        place: TopicPartition,
        source: JobSource | None,
        suspects: JobSource | None,
        set_paused: Callable[[TopicPartition, bool], object],
    ) -> None:
        """Its consumer is paused there."""
        self.place = place
        self.source = source
        self.suspects = suspects
        self.leases: dict[int, JobLease] = {}
        self._ending: set[int] = set()
        self.is_returning = False
        self.is_lost = False
        self.progress: PartitionProgress | None = None
        self.committed = -1
        self._log_start = -1
        self._set_paused = set_paused
        self._is_paused = True
        self._waiting_bytes = 0
        self._on_idle: Callable[[], object] | None = None

    def __str__(self) -> str:
        return f"{self.place.topic}-{self.place.partition}"

    # -- its stages ---------------------------------------------------------------------------------------------------

    def begin(self, offset: int, marks: PartitionMarks) -> None:
        """Its jobs begin at this offset. Its consumer is there, and goes on."""
        suspects = self.suspects
        self.progress = PartitionProgress(
            offset,
            marks,
            is_ordered=suspects is not None and suspects.is_ordered,
            is_suspects=self.source is None,
        )
        self.committed = offset
        self._waiting_bytes = 0
        self._pause_or_resume()

    def begin_returning(self) -> list[JobLease]:
        """It is to go to another worker: hand out nothing more. What is held."""
        self.is_returning = True
        self._pause_or_resume()
        return list(self.leases.values())

    def begin_ending(self, lease: JobLease) -> None:
        """The job has run; how is to be settled."""
        self._ending.add(lease.offset)
        self._look_if_idle()

    def running(self) -> list[JobLease]:
        """What is held and has not run to its end."""
        return [lease for offset, lease in self.leases.items() if offset not in self._ending]

    def lose(self) -> list[JobLease]:
        """It is another worker's. What was held."""
        self.is_lost = True
        leases = list(self.leases.values())
        self.leases.clear()
        self._ending.clear()
        return leases

    def call_when_idle(self, action: Callable[[], object]) -> None:
        """``action`` is called once when nothing is running; at once if that is so now."""
        self._on_idle = action
        self._look_if_idle()

    # -- records and leases -------------------------------------------------------------------------------------------

    def add(self, records: Sequence[ConsumerRecord], now_ms: int) -> bool:
        """Records have been fetched; False when they are older than what is done: the log was cut off behind it."""
        progress = self.progress
        if progress is None or self.is_returning or self.is_lost:
            return True
        if progress.has_truncated(records[0]):
            return False
        progress.add(records, now_ms)
        for record in records:
            self._waiting_bytes += len(record.value or b"")
        self._drop_deleted(now_ms)
        self._pause_or_resume()
        return True

    def cut(self, log_start: int, now_ms: int) -> int:
        """The log begins at this offset: how many jobs below it had not started, and never do. What has been fetched
        and comes later is left out as well."""
        if self.is_returning or self.is_lost:
            return 0
        self._log_start = log_start
        count = self._drop_deleted(now_ms)
        self._pause_or_resume()
        return count

    def _drop_deleted(self, now_ms: int) -> int:
        assert self.progress is not None
        dropped = self.progress.drop_before(self._log_start, now_ms) if self.progress.position < self._log_start else ()
        self._waiting_bytes -= sum(len(record.value or b"") for record in dropped)
        return len(dropped)

    def take(self, source: JobSource, count: int, now_ms: int) -> list[JobLease]:
        """Up to ``count`` leases of that source."""
        progress = self.progress
        if progress is None or self.is_returning or self.is_lost:
            return []
        progress.tick(now_ms)
        leases = [self._lease(source, each) for each in progress.take(count, suspects=source.is_suspect)]
        if leases:
            self._pause_or_resume()
        return leases

    def mark_started(self, source: JobSource, count: int) -> bool:
        """Mark up to ``count`` more jobs; whether that is to be committed."""
        if self.progress is None or self.is_returning or self.is_lost:
            return False
        return self.progress.mark_started(count, suspects=source.is_suspect)

    def end_waits(self, ids: Collection[str], now_ms: int) -> None:
        """Hand these jobs out now, if they wait for another attempt."""
        progress = self.progress
        if progress is not None and not self.is_returning and not self.is_lost:
            offsets = {record.offset for record in progress.held() if readable_id(job_headers(record)[0]) in ids}
            if offsets:
                progress.end_waits(offsets, now_ms)

    def release(self, lease: JobLease, now_ms: int) -> None:
        """The job has not started, or is to run again: it is handed out again."""
        assert self.progress is not None
        self._forget(lease)
        self.progress.release(lease.offset, now_ms)
        self._waiting_bytes += len(lease.value or b"")

    def settled(self, settlement: Settlement, endings: Iterable[Ending], now_ms: int) -> None:
        """This is committed."""
        if self.is_lost:
            return
        assert self.progress is not None
        self.progress.settled(settlement, now_ms)
        self.committed = settlement.offset
        for ending in endings:
            if ending.stays is None:
                self._forget(ending.lease)
            else:
                self.release(ending.lease, now_ms)
        self._pause_or_resume()

    def _forget(self, lease: JobLease) -> None:
        self.leases.pop(lease.offset, None)
        self._ending.discard(lease.offset)
        self._look_if_idle()

    def _look_if_idle(self) -> None:
        if len(self.leases) == len(self._ending) and self._on_idle is not None:
            action, self._on_idle = self._on_idle, None
            action()

    def _lease(self, source: JobSource, handed: HandedOut) -> JobLease:
        record: ConsumerRecord = handed.record
        headers, left_out = job_headers(record)
        marked = handed.marked
        if marked is not None and marked.attempt:
            headers = _marked_headers(record, headers, marked)
        self._waiting_bytes -= len(record.value or b"")
        lease = self.leases[record.offset] = JobLease(
            source,
            record.value,
            headers,
            handed.deliveries,
            record.partition,
            record.offset,
            Claim(ClaimKind.PARTITION, self),
            left_out,
            record.key,
        )
        return lease

    def _pause_or_resume(self) -> None:
        progress = self.progress
        if progress is None:
            return
        ready, waiting, size = progress.ready_count, progress.waiting_count, self._waiting_bytes
        if self.is_returning or ready > MOST_READY or waiting > MOST_WAITING or size > MOST_BYTES:
            is_paused = True
        elif ready <= MOST_READY // 2 and waiting <= MOST_WAITING // 2 and size <= MOST_BYTES // 2:
            is_paused = False
        else:
            return
        if is_paused is not self._is_paused:
            self._is_paused = is_paused
            self._set_paused(self.place, is_paused)


def marked_job(envelope: Envelope) -> MarkedJob:
    """What is committed of a job that stays and is to run as this one."""
    return MarkedJob(
        envelope.attempt,
        envelope.crashes,
        due_ms=envelope.due_ms or 0,
        unknown=envelope.unknown,
        unknown_since_ms=envelope.unknown_since_ms or 0,
    )


def _marked_headers(record: ConsumerRecord, headers: Sequence[Header], marked: MarkedJob) -> Sequence[Header]:
    """The headers of a job that has gone on from where its record says; as they are when it is no job."""
    try:
        envelope = decode(record.value, headers, record.key)
    except BadRecord:
        return headers
    return envelope.moved(
        marked.attempt, marked.crashes, envelope.clean, marked.unknown, marked.unknown_since_ms or None
    ).headers()
