"""The topics that a worker leases from: their buffers, how many more jobs to ask each for, and who starts next.

:class:`RuntimeEstimate` says how many jobs a queue may hold; this shares them out between the queues and notifies the
delivery, once for each change. Suspects start first, then due jobs, then what was enqueued.

Each delivery of a suspect counts as a crash if its worker dies, so no more are leased than start at once, and one that
waits for long is given back. A pool of processes runs them like other jobs: the death of a child is attributed to the
job that it ran. In a pool inside the worker's process a crash ends them all, so there is one suspect at a time of each
queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Final

from kafka.tasks.delivery.base import JobDelivery, JobSource, SourceKind
from kafka.tasks.pools.base import Pool
from kafka.tasks.pools.runner import Job
from kafka.tasks.worker.leases import Leases
from kafka.tasks.worker.runtime_estimate import MAX_HELD_JOBS, PRODUCER_BATCH_RECORDS, RuntimeEstimate

MAX_HELD_BYTES: Final = 64 * 1024 * 1024
"""Of the payloads of all leases: above it nothing more is asked for. One answer's bytes may come on top of that."""

SHORT_JOB_S: Final = 0.01
"""Of jobs that take less on average, suspects are leased while all slots are taken, and twice as many as there are
slots: they start at once all the same, and each costs a part of a fetch instead of a whole one.
"""

BRIEF_JOB_S: Final = 1.0
"""Of jobs that take less on average one suspect is leased though all slots are taken, and waits for the next that is
free: behind a backlog there is no other moment, for what is here already takes each slot at once.
"""

STUCK_GIVE_BACK_S: Final = 0.5
"""With all slots taken by long jobs, what has waited here for so long is given back."""

DUE_FIRST_S: Final = 0.25
"""When a due job was given back, as no slot was free for it, a slot is kept free for so long when there is one: asked
for at the same time, a job that waits for no time would come first as often as not, and a long one keeps the slot."""

_ORDER: tuple[SourceKind, ...] = (SourceKind.SUSPECT, SourceKind.DUE, SourceKind.MAIN)
"""In which order the sources of all queues start their jobs."""


class SourceBuffer:
    """A topic as this worker sees it. ``refused_count``: leases that came since the last job that may run, and were
    refused.
    """

    __slots__ = ("jobs", "refused_count", "requested", "runtime", "source")

    def __init__(self, source: JobSource, runtime: RuntimeEstimate) -> None:
        self.source = source
        self.runtime = runtime
        self.jobs: deque[Job] = deque()
        self.requested: int | None = None
        self.refused_count = 0

    def add(self, job: Job) -> None:
        """A leased job that may run waits here."""
        self.jobs.append(job)
        self.refused_count = 0

    def refuse(self) -> None:
        """A lease came and did not become a job that may run."""
        self.refused_count += 1

    def most_held(self, lock_s: float, stuck: int) -> int:
        """Jobs, buffered and running, that may be held at once.

        What is refused takes no slot, and says nothing about how long jobs take: each answer that brings nothing else
        doubles what the next one may bring, up to :data:`~kafka.tasks.worker.runtime_estimate.MAX_HELD_JOBS`.
        """
        most = self.runtime.most_held(lock_s, stuck)
        return max(most, min(MAX_HELD_JOBS, self.runtime.slots + self.refused_count)) if self.refused_count else most


class SourceBuffers:
    """All of them. The sources of a queue have one runtime estimate: they are the same jobs."""

    def __init__(self, delivery: JobDelivery, concurrency: int) -> None:
        self.waits_for_settlements = False
        """More would be asked for if more of what has ended were settled."""
        self.all_stuck_since = inf
        """Since when all slots are taken by long jobs (monotonic seconds)."""
        self.next_look_at = inf
        """When a job that runs now will be a long one."""
        self._turn = 0
        self._due_first_until: float | None = None
        """Until when a slot is kept for a due job; infinity: since one was given back none has been free."""
        self._delivery = delivery
        self._paused_queues: frozenset[str] = frozenset()
        runtimes = {source.queue: RuntimeEstimate(concurrency) for source in delivery.sources}
        self._runtimes = list(runtimes.values())
        self._buffers = {source: SourceBuffer(source, runtimes[source.queue]) for source in delivery.sources}
        self._in_order = [
            [buffer for buffer in self._buffers.values() if buffer.source.kind is kind] for kind in _ORDER
        ]

    def __getitem__(self, source: JobSource) -> SourceBuffer:
        return self._buffers[source]

    @property
    def buffered_count(self) -> int:
        """Jobs that wait for the pool."""
        return sum(len(buffer.jobs) for buffer in self._buffers.values())

    # -- what is measured ---------------------------------------------------------------------------------------------

    def set_concurrency(self, count: int) -> None:
        """So many jobs run at once now."""
        for runtime in self._runtimes:
            runtime.set_slots(count)

    def depth(self) -> int:
        """Jobs to have with the pool at once."""
        return max(runtime.depth() for runtime in self._runtimes)

    # -- what starts --------------------------------------------------------------------------------------------------

    def start(self, most: int, submit: Callable[[Job], bool]) -> None:
        """Start up to ``most`` jobs, of each kind of source the same number from each queue that has some. Another
        queue is the first each time: there may be one slot at a time. ``submit`` says whether it has started the
        job."""
        for buffers in self._in_order:
            waiting = [buffer for buffer in buffers if buffer.jobs]
            if len(waiting) > 1:
                self._turn += 1
                first = self._turn % len(waiting)
                waiting = waiting[first:] + waiting[:first]
            while most > 0 and waiting:
                share = max(1, most // len(waiting))
                for buffer in waiting:
                    count = _start_from(buffer.jobs, min(share, most), submit)
                    most -= count
                    if count and buffer.source.kind is SourceKind.DUE:
                        self._due_first_until = None
                waiting = [buffer for buffer in waiting if buffer.jobs]

    @property
    def has_waiting_suspects(self) -> bool:
        """Whether suspects wait for a slot."""
        return any(buffer.jobs for buffer in self._in_order[0])

    def take_older(self, leased_at: float) -> Iterator[Job]:
        """Jobs that have waited since then or longer."""
        for buffer in self._buffers.values():
            while buffer.jobs and buffer.jobs[0].lease.leased_at <= leased_at:
                self.on_given_back(buffer.source)
                yield buffer.jobs.popleft()

    def drop(self, jobs: Sequence[Job]) -> None:
        """Drop these jobs."""
        for source in {job.lease.source for job in jobs}:
            buffer = self._buffers[source]
            buffer.jobs = deque(job for job in buffer.jobs if job not in jobs)

    def drop_lost(self) -> None:
        """Drop the jobs whose locks are lost."""
        for buffer in self._buffers.values():
            buffer.jobs = deque(job for job in buffer.jobs if not job.lease.lost)

    def take_all(self) -> list[Job]:
        """All that wait."""
        jobs = [job for buffer in self._buffers.values() for job in buffer.jobs]
        for buffer in self._buffers.values():
            buffer.jobs.clear()
        return jobs

    # -- what is asked for --------------------------------------------------------------------------------------------

    def request_jobs(self, pool: Pool, leases: Leases, submitted_at: Sequence[float], now: float) -> None:
        """Ask each topic for what there is room for. ``submitted_at``: since when the oldest jobs in the pool are
        there, one for each slot at most.

        What ends costs memory and writes until it is settled, whether it ran or was refused: all together are as many
        as may be held (:data:`~kafka.tasks.worker.runtime_estimate.MAX_HELD_JOBS`), and of large ones so many bytes.
        Short jobs are asked for by whole batches (:data:`~kafka.tasks.worker.runtime_estimate.PRODUCER_BATCH_RECORDS`),
        the last of which may go above all that.
        """
        lock_s, unfinished = self._delivery.lock_s, leases.unfinished_count
        is_able = pool.ready and pool.degraded is None
        here = leases.unsettled_count + unfinished
        most = MAX_HELD_JOBS - here if leases.held_bytes < MAX_HELD_BYTES else 0
        main_count = len(self._in_order[-1])
        self.waits_for_settlements = False
        self._find_stuck(pool.concurrency, submitted_at, now)
        is_due_first = is_able and self._is_due_first(pool.concurrency - unfinished, now)
        for buffer in self._buffers.values():
            kind, room, least, by_batches = buffer.source.kind, 0, 1, False
            if not is_able or buffer.source.queue in self._paused_queues:
                pass
            elif kind is SourceKind.SUSPECT:
                room = self._suspects_room(buffer, pool, leases)
            else:
                stuck = _stuck(buffer.runtime, submitted_at, now)
                most_held = buffer.most_held(lock_s, stuck)
                room = most_held + pool.may_grow - unfinished
                if is_due_first and kind is SourceKind.MAIN:
                    room -= 1
                by_batches = most_held >= buffer.runtime.slots + PRODUCER_BATCH_RECORDS
                if main_count == 1 and by_batches:
                    least = PRODUCER_BATCH_RECORDS
                # What is refused may be one large batch, which comes again with each part of it that is asked for.
                least = max(least, min(buffer.refused_count, MAX_HELD_JOBS) // 2 // main_count)
                if kind is SourceKind.DUE:
                    room, least, by_batches = min(room, PRODUCER_BATCH_RECORDS), 1, False
                elif (
                    room < least
                    and stuck < pool.concurrency
                    and not is_due_first
                    and self._has_nothing(buffer.source.queue, leases)
                ):
                    room = least = 1  # beside a queue that has all the room: its job takes the next free slot
            if room > most:
                room = most
                self.waits_for_settlements = True
            if kind is not SourceKind.SUSPECT:
                room = -(-room // main_count)
            if by_batches and room >= PRODUCER_BATCH_RECORDS:
                room = -(-room // PRODUCER_BATCH_RECORDS) * PRODUCER_BATCH_RECORDS
            self._request(buffer, room if room >= least else 0)

    def on_given_back(self, source: JobSource) -> None:
        """A job of this source has got no slot in time."""
        if source.kind is SourceKind.DUE:
            self._due_first_until = inf

    def _is_due_first(self, free: int, now: float) -> bool:
        """Whether a slot is kept for a due job; ``free``: slots that have no job."""
        until = self._due_first_until
        if until == inf and free > 0:
            until = self._due_first_until = now + DUE_FIRST_S
        if until is None or now >= until:
            self._due_first_until = None
            return False
        self.next_look_at = min(self.next_look_at, until)
        return True

    def set_paused(self, queues: frozenset[str]) -> None:
        """Request nothing of these queues until they are left out here, and of all others as before."""
        self._paused_queues = queues

    def _has_nothing(self, queue: str, leases: Leases) -> bool:
        """Whether no job of a queue is here, while there are other queues."""
        return len(self._in_order[-1]) > 1 and not any(
            leases.unfinished_of[source] for source in self._buffers if source.queue == queue
        )

    def stop_requesting(self) -> None:
        """Lease nothing more."""
        self.next_look_at = self.all_stuck_since = inf
        for buffer in self._buffers.values():
            self._request(buffer, 0)

    def on_leased(self, source: JobSource) -> None:
        """What was asked for has come, some of it at least: the next request is a new one."""
        self._buffers[source].requested = None

    def _suspects_room(self, buffer: SourceBuffer, pool: Pool, leases: Leases) -> int:
        """How many to lease: as many as start at once; of short ones the next ones, too, since a fetch takes longer
        than they run."""
        here = leases.unfinished_of[buffer.source]
        if not pool.attributes_crashes:
            return 1 - here
        mean_s, free = buffer.runtime.mean_s, pool.concurrency - pool.busy
        if mean_s is not None and mean_s <= SHORT_JOB_S:
            return 2 * pool.concurrency - here
        least = 1 if mean_s is not None and mean_s <= BRIEF_JOB_S else 0
        return max(least, free) - len(buffer.jobs)

    def _find_stuck(self, slots: int, submitted_at: Sequence[float], now: float) -> None:
        """Look whether all slots are taken by jobs that are long beside those of every queue."""
        stuck_after_s = min(runtime.stuck_after_s for runtime in self._runtimes)
        if len(submitted_at) >= slots and submitted_at[slots - 1] + stuck_after_s <= now:
            self.all_stuck_since = min(self.all_stuck_since, now)
        else:
            self.all_stuck_since = inf
        later = [at + stuck_after_s for at in submitted_at if at + stuck_after_s > now]
        self.next_look_at = min(later) if later and len(submitted_at) >= slots else inf

    def _request(self, buffer: SourceBuffer, count: int) -> None:
        if buffer.requested != count:
            buffer.requested = count
            self._delivery.request(buffer.source, count)


def _stuck(runtime: RuntimeEstimate, submitted_at: Sequence[float], now: float) -> int:
    """Slots that are taken by jobs that are long beside those of a queue."""
    since = now - runtime.stuck_after_s
    return sum(at <= since for at in submitted_at)


def _start_from(jobs: deque[Job], most: int, submit: Callable[[Job], bool]) -> int:
    count = 0
    while jobs and count < most:
        job = jobs.popleft()
        if not job.lease.lost and submit(job):
            count += 1
    return count
