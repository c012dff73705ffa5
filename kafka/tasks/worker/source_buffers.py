"""The topics that a worker leases from: their buffers, how many more jobs to ask each for, and who starts next.

:class:`RuntimeEstimate` says how many jobs a queue may hold, :class:`Suspects` how many of those; this shares them out
between the queues and notifies the delivery, once for each change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Final

from kafka.tasks.delivery.base import JobDelivery, JobSource
from kafka.tasks.format.topics import TopicNames
from kafka.tasks.pools.base import Pool
from kafka.tasks.pools.runner import Job
from kafka.tasks.worker.leases import Leases
from kafka.tasks.worker.runtime_estimate import MAX_HELD_JOBS, PRODUCER_BATCH_RECORDS, RuntimeEstimate
from kafka.tasks.worker.suspects import Suspects

MOVING_S: Final = 5.0
"""So long jobs that move to the suspects are waited for: moves take milliseconds, unless a broker does not answer, and
a producer tries for two minutes."""

MAX_HELD_BYTES: Final = 64 * 1024 * 1024
"""Of the payloads of all leases: above it nothing more is asked for. One answer's bytes may come on top of that."""


class SourceBuffer:
    """A topic as this worker sees it. Nothing is leased from it before ``paused_until``. ``refused_count``: leases that
    came and were refused since the last job that may run.
    """

    __slots__ = ("requested", "jobs", "runtime", "paused_until", "refused_count", "source")

    def __init__(self, source: JobSource, runtime: RuntimeEstimate) -> None:
        self.source = source
        self.runtime = runtime
        self.jobs: deque[Job] = deque()
        self.paused_until = 0.0
        self.requested: int | None = None
        self.refused_count = 0

    def most_held(self, lock_s: float) -> int:
        """Jobs, buffered and running, that may be held at once.

        What is refused takes no slot, and says nothing about how long jobs take: each answer that brings nothing else
        doubles what the next one may bring, up to :data:`~kafka.tasks.worker.runtime_estimate.MAX_HELD_JOBS`.
        """
        most = self.runtime.most_held(lock_s)
        return max(most, min(MAX_HELD_JOBS, self.runtime.slots + self.refused_count)) if self.refused_count else most


class SourceBuffers:
    """All of them. A queue and its suspects have one pace: they are the same jobs."""

    def __init__(self, names: TopicNames, queues: Sequence[str], delivery: JobDelivery, concurrency: int) -> None:
        self.waits_for_settlements = False
        """More would be asked for if more of what has ended were settled."""
        self._delivery = delivery
        self._buffers: dict[JobSource, SourceBuffer] = {}
        for name in queues:
            runtime = RuntimeEstimate(concurrency)
            for source in (JobSource(name, names.queue(name)), JobSource(name, names.suspect(name), suspect=True)):
                self._buffers[source] = SourceBuffer(source, runtime)
        self._paused_until = 0.0
        self._moving_until = inf
        self._main = [buffer for buffer in self._buffers.values() if not buffer.source.suspect]

    def __getitem__(self, source: JobSource) -> SourceBuffer:
        return self._buffers[source]

    @property
    def buffered_count(self) -> int:
        """Jobs that wait for the pool."""
        return sum(len(buffer.jobs) for buffer in self._main)

    # -- what is measured ---------------------------------------------------------------------------------------------

    def set_concurrency(self, count: int) -> None:
        """So many jobs run at once now."""
        for buffer in self._main:
            buffer.runtime.slots = count

    def depth(self) -> int:
        """Jobs to have with the pool at once."""
        return max(buffer.runtime.depth() for buffer in self._main)

    # -- what starts --------------------------------------------------------------------------------------------------

    def start(self, most: int, submit: Callable[[Job], None]) -> None:
        """Start up to ``most`` jobs, the same number from each queue that has some."""
        waiting = [buffer for buffer in self._main if buffer.jobs]
        while most > 0 and waiting:
            share = max(1, most // len(waiting))
            for buffer in waiting:
                most -= _start_from(buffer.jobs, min(share, most), submit)
            waiting = [buffer for buffer in waiting if buffer.jobs]

    def take_older(self, leased_at: float) -> Iterator[Job]:
        """Jobs that have waited since then or longer."""
        for buffer in self._main:
            while buffer.jobs and buffer.jobs[0].lease.leased_at <= leased_at:
                yield buffer.jobs.popleft()

    def take_all(self) -> list[Job]:
        """All that wait."""
        jobs = [job for buffer in self._main for job in buffer.jobs]
        for buffer in self._main:
            buffer.jobs.clear()
        return jobs

    # -- what is asked for --------------------------------------------------------------------------------------------

    def request_jobs(self, pool: Pool, leases: Leases, suspects: Suspects, now: float) -> None:
        """Ask each topic for what there is room for.

        What ends costs memory and writes until it is settled, whether it ran or was refused: as many may be on their
        way out at once as may be held (:data:`~kafka.tasks.worker.runtime_estimate.MAX_HELD_JOBS`), and of large ones
        so many bytes. Short jobs are asked for by whole batches
        (:data:`~kafka.tasks.worker.runtime_estimate.PRODUCER_BATCH_RECORDS`), the last of which may go above all that.
        """
        lock_s, unfinished, here = self._delivery.lock_s, leases.unfinished_count, leases.unfinished_suspects
        # While jobs move no fetch may be out that their settling would have to wait for.
        paused = (
            suspects.have_priority or self.waits_for_moves(leases, now) or leases.settling_count > 2 * MAX_HELD_JOBS
        )
        is_able = pool.ready and pool.degraded is None
        most = MAX_HELD_JOBS - leases.unsettled_count if leases.held_bytes < MAX_HELD_BYTES else 0
        self.waits_for_settlements = False
        for buffer in self._buffers.values():
            room, least, by_batches = 0, 1, False
            if not is_able or now < buffer.paused_until:
                pass
            elif buffer.source.suspect:
                room = suspects.room(pool, buffer.runtime.mean_s, here)
            elif not paused:
                most_held = buffer.most_held(lock_s)
                room = most_held + pool.may_grow - unfinished
                by_batches = most_held >= buffer.runtime.slots + PRODUCER_BATCH_RECORDS
                if len(self._main) == 1 and by_batches:
                    least = PRODUCER_BATCH_RECORDS
                # What is refused may be one large batch, which comes again with each part of it that is asked for.
                least = max(least, min(buffer.refused_count, MAX_HELD_JOBS) // 2 // len(self._main))
            if room > most:
                room = most
                self.waits_for_settlements = True
            if not buffer.source.suspect:
                room = -(-room // len(self._main))
            if by_batches and room >= PRODUCER_BATCH_RECORDS:
                room = -(-room // PRODUCER_BATCH_RECORDS) * PRODUCER_BATCH_RECORDS
            self._request(buffer, room if room >= least else 0)

    def stop_requesting(self) -> None:
        """Lease nothing more."""
        for buffer in self._buffers.values():
            self._request(buffer, 0)

    def pause(self, source: JobSource, until: float) -> None:
        """Lease nothing from there before that time."""
        buffer = self._buffers[source]
        buffer.paused_until = until
        self._paused_until = max(until, self._paused_until)
        self._request(buffer, 0)

    def waits_for_moves(self, leases: Leases, now: float) -> bool:
        """Jobs move to the suspects, and have not done so for so long that waiting would stop everything."""
        if not leases.moving:
            self._moving_until = inf
        elif self._moving_until == inf:
            self._moving_until = now + MOVING_S
        return leases.moving > 0 and now < self._moving_until

    def resumes_at(self, now: float) -> float:
        """When the next pause ends, or the wait for moves."""
        moving_until = self._moving_until if now < self._moving_until else inf
        if now >= self._paused_until:
            return moving_until
        pauses = [buffer.paused_until for buffer in self._buffers.values()]
        return min([moving_until, *(until for until in pauses if until > now)])

    def _request(self, buffer: SourceBuffer, count: int) -> None:
        if buffer.requested != count:
            buffer.requested = count
            self._delivery.request(buffer.source, count)


def _start_from(jobs: deque[Job], most: int, submit: Callable[[Job], None]) -> int:
    count = 0
    while jobs and count < most:
        job = jobs.popleft()
        if not job.lease.lost:
            submit(job)
            count += 1
    return count
