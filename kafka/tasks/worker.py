"""The worker: leases in, jobs to the pool, outcomes to verdicts, and everything kept alive meanwhile.

One object on one loop in one thread; tasks run elsewhere (in the pool). It decides nothing about a job by itself
(:mod:`kafka.tasks.admission`, by the tables of :mod:`kafka.tasks.outcome`), makes no records
(:mod:`kafka.tasks.consequences`), sends none (:mod:`kafka.tasks.settling`) and talks to no broker
(:mod:`kafka.tasks.delivery`); :class:`kafka.tasks.pace.Pace` says how many jobs to hold. What it owns is which job is
where::

    leased --+--> buffered ---> running ---> settling --> gone
             |       |  ^          |            ^
             |       |  suspects wait for a slot|
             |       +--- given back -----------+          (produce with the clean mark, then accept)
             +--> refused ----------------------+          (no job, expired, suspicious, too many crashes)
             +--> held for a while, then released          (a task that this worker does not know)

Running, settling and waiting leases are renewed every third of the lock. Buffered ones are not: they start within that
time or are given back. A lost lock sets ``ctx.cancelled``, and the outcome is dropped.

Suspects (jobs leased from ``APP.QUEUE.suspect``) are fetched by record limit, as many as start at once, and before
other jobs: as long as they come, nothing waits in the pool, so that the next free slot is theirs. (With the pool filled
ahead they waited until the queue itself was empty: measured, the last of a killed worker's 250 jobs came up after 2.4 s
behind 1,500 others, and would have come after an hour behind an hour's backlog.) One that has a crash behind it
runs *alone*: nothing else starts until it has ended, so the next crash is surely its own. One that has none
shares the pool: it is there because its worker died, usually with hundreds of innocent ones in its buffer, and running
them strictly one by one would make the last wait for all the others (the promise is two seconds). A false crash can
happen to it once, below the limit of three; after that it is alone. No suspect starts while the worker moves jobs to
the suspects and the broker has not answered that they are settled: what dies of it then would be there twice.

Stages of a stop, each entered by a signal or when the time of the one before is over: DRAINING (lease nothing, give
back what has not started, let running jobs end), INTERRUPTING (ask running jobs to end), ABANDONING (give back even
those), LEAVING (close sessions, leave groups), LEFT.
"""

from __future__ import annotations

import heapq
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

from kafka.errors import KafkaError
from kafka.tasks.admission import Clerk, Hold
from kafka.tasks.backend import WorkerSide
from kafka.tasks.consequences import Consequences
from kafka.tasks.delivery import Lease, Outgoing, Source
from kafka.tasks.outcome import Failed, NotStarted, Outcome, Verdict
from kafka.tasks.pace import BATCH, MOST, Pace
from kafka.tasks.pools.base import Pool
from kafka.tasks.runner import Job, fault_of
from kafka.tasks.settling import Ending, Settler
from kafka.tasks.states import JobState
from kafka.tasks.task import Task
from kafka.tasks.topics import Names

log = logging.getLogger(__name__)

LEAVE_S = 5.0
"""After ABANDONING began, this long for the last records before the worker leaves without them."""

YIELD_S = 0.6
"""After releasing jobs that it does not know, a worker leases nothing from that topic for this long: longer than a
long poll of others, which a release does not wake. It would get its own releases back at once else.
"""

SUSPECTING_S = 0.25
"""After a suspect was leased the pool is not filled ahead for this long: more of them are to be expected."""

SHORT_S = 0.01
"""Of jobs that take less on average, suspects are leased while all slots are taken, and twice as many as there are
slots: they start at once all the same, and each costs a part of a fetch instead of a whole one.
"""

BUFFERED, WAITING, RUNNING, SETTLING, MOVING, HELD, GONE = range(7)
"""Stages of a lease. WAITING: a suspect that has no slot yet. MOVING: settling, on its way to the suspects. HELD: kept
for a while before it is released.
"""


class Stage(IntEnum):
    """How far the worker's stop has come."""

    WORKING = 0
    DRAINING = 1
    INTERRUPTING = 2
    ABANDONING = 3
    LEAVING = 4
    LEFT = 5


class Timers(Protocol):
    """What the worker needs of its loop."""

    def time(self) -> float:
        """Monotonic seconds."""

    def call_at(self, when: float, callback: Callable[..., Any]) -> Any:
        """Call back once at ``when``; the returned timer has ``cancel()``."""


@dataclass(frozen=True)
class WorkerOptions:
    """Numbers of a worker; seconds."""

    crash_limit: int = 3
    stop_grace_s: float = 25.0
    kill_grace_s: float = 5.0
    track_started: bool = False


class _Queue:
    """A topic as this worker sees it.

    ``unfinished`` counts its leases that are buffered, waiting or running; nothing is leased before ``paused_until``.
    """

    __slots__ = ("asked", "buffer", "pace", "paused_until", "source", "unfinished")

    def __init__(self, source: Source, pace: Pace) -> None:
        self.source = source
        self.pace = pace
        self.buffer: deque[Job] = deque()
        self.unfinished = 0
        self.paused_until = 0.0
        self.asked: tuple[int, bool] | None = None


class Worker:
    """Runs the jobs of some queues. Implements :class:`kafka.tasks.delivery.DeliveryEvents`.

    ``now_ms`` is the broker's time in ms. ``on_left`` is called once, when the worker has stopped for good. All methods
    are for the loop's thread; :meth:`finished` is what the pool's ``wake`` has to bring about there.
    """

    def __init__(
        self,
        tasks: Mapping[str, Task[..., Any]],
        names: Names,
        queues: Sequence[str],
        timers: Timers,
        now_ms: Callable[[], int],
        host: str,
        options: WorkerOptions | None = None,
        on_left: Callable[[], None] = lambda: None,
    ) -> None:
        self.stage = Stage.WORKING
        self.error: KafkaError | None = None
        self.counts = {"leased": 0, "done": 0, "refused": 0, "given_back": 0, "lost": 0, "dropped": 0, "unsettled": 0}
        self._tasks = tasks
        self._names = names
        self._queue_names = list(queues)
        self._timers = timers
        self._now_ms = now_ms
        self._options = options or WorkerOptions()
        self._on_left = on_left
        self._consequences = Consequences(names, host)
        self._leases: dict[Lease, None] = {}
        self._suspects: deque[Job] = deque()
        self._alone: Job | None = None
        self._suspecting_until = 0.0
        self._moving = 0
        self._is_started = False
        self._holding: list[tuple[float, int, Lease]] = []
        self._holds = 0
        self._renew_at = 0.0
        self._stage_ends_at = float("inf")
        self._timer: Any = None
        self._timer_at = float("inf")

    def start(self, side: WorkerSide, pool: Pool) -> None:
        """Begin to lease."""
        self._delivery = side.delivery
        self._publisher = side.publisher
        self._pool = pool
        self._clerk = Clerk(
            self._tasks, self._consequences, side.delivery, side.results_partitions, self._options.crash_limit
        )
        self._settler = Settler(side.delivery, side.publisher, self._consequences, self._now_ms, self._settled)
        self._queues: dict[Source, _Queue] = {}
        for name in self._queue_names:
            pace = Pace(pool.concurrency)
            for source in (
                Source(name, self._names.queue(name)),
                Source(name, self._names.suspect(name), suspect=True),
            ):
                self._queues[source] = _Queue(source, pace)
        self._main = [queue for queue in self._queues.values() if not queue.source.suspect]
        self._renew_at = self._timers.time() + self._delivery.lock_s / 3
        self._is_started = True
        self._go()

    # -- what the delivery tells --------------------------------------------------------------------------------------

    def leased(self, leases: list[Lease]) -> None:
        """See :class:`kafka.tasks.delivery.DeliveryEvents`."""
        now, now_ms = self._timers.time(), self._now_ms()
        endings: list[Ending] = []
        self.counts["leased"] += len(leases)
        self._renew_at = min(self._renew_at, now + self._delivery.lock_s / 3)  # the answers tell how long locks are
        for lease in leases:
            queue = self._queues[lease.source]
            queue.asked = None
            lease.leased_at = now
            self._leases[lease] = None
            self._admit(lease, queue, now_ms, endings)
            if lease.stage == WAITING:
                self._suspect_came(now)
        if self.stage >= Stage.DRAINING:
            self._give_back_unstarted(endings)
        self._settler.end(endings)
        self._go()

    def lost(self, leases: list[Lease], reason: str) -> None:
        """See :class:`kafka.tasks.delivery.DeliveryEvents`."""
        count = 0
        for lease in leases:
            if lease.stage == GONE or lease.lost:
                continue
            lease.lost = True
            count += 1
            self._leases.pop(lease, None)
            if lease.stage == RUNNING:
                lease.job.cancelled = True
            elif lease.stage in (BUFFERED, WAITING):
                self._queues[lease.source].unfinished -= 1
        if count:
            self.counts["lost"] += count
            log.warning("the locks of %d jobs are lost (%s): they run elsewhere", count, reason)
        self._go()

    def failed(self, error: KafkaError) -> None:
        """See :class:`kafka.tasks.delivery.DeliveryEvents`. The worker stops, and ``error`` says why."""
        log.error("the worker stops: %s", error)
        if self.error is None:
            self.error = error
        if self.stage is Stage.WORKING:
            self.stop()

    def left(self) -> None:
        """See :class:`kafka.tasks.delivery.DeliveryEvents`."""
        if self.stage is not Stage.LEFT:
            self.stage = Stage.LEFT
            if self._timer is not None:
                self._timer.cancel()
            self._publisher.close()
            self._on_left()

    # -- what the pool and the clock tell -----------------------------------------------------------------------------

    def finished(self) -> None:
        """Jobs of the pool have ended."""
        now_ms = self._now_ms()
        endings: list[Ending] = []
        ran: dict[_Queue, list[float]] = {}
        for job, outcome in self._pool.finished():
            lease = job.lease
            if job is self._alone:
                self._alone = None
            queue = self._queues[lease.source]
            if lease.stage == RUNNING:
                queue.unfinished -= 1
                ran.setdefault(queue, []).append(job.ran_s)
            if lease.lost or lease.stage != RUNNING:
                lease.stage = GONE if lease.lost else lease.stage
                self.counts["dropped"] += 1
                continue
            self.counts["done"] += 1
            if self._was_interrupted(job, outcome):
                outcome = NotStarted()
            try:
                self._end(job, outcome, now_ms, endings)
            except Exception as error:  # what one job left behind must not take the others of this turn with it
                log.exception("%r: its outcome cannot be written", job)
                self._end(job, Failed(fault_of(error), listed=False), now_ms, endings)
        for queue, times in ran.items():
            queue.pace.ran(sum(times), len(times))
        if ran:
            self._pool.depth = max(queue.pace.depth() for queue in self._main)
        self._settler.end(endings)
        self._go()

    def tick(self) -> None:
        """A deadline of the worker's has come."""
        now = self._timers.time()
        self._timer, self._timer_at = None, float("inf")
        self._pool.tick(now)
        if now >= self._renew_at:
            self._renew_at = now + self._delivery.lock_s / 3
            self._renew(now)
        released: list[Lease] = []
        while self._holding and self._holding[0][0] <= now:
            released.append(heapq.heappop(self._holding)[2])
        self._release(released)
        if now >= self._stage_ends_at:
            self._next_stage()
        self._go()

    def stop(self) -> None:
        """Stop; called again, go one stage further. Before :meth:`start`: start, and leave at once."""
        if not self._is_started:
            self.stage = Stage.DRAINING
            return
        self._next_stage()
        self._go()

    def statistics(self) -> dict[str, int]:
        """Counts since the start, and what is held now."""
        pool = {f"pool_{name}": count for name, count in self._pool.statistics().items()}
        return {**self.counts, "held": len(self._leases), **pool}

    # -- one job's way ------------------------------------------------------------------------------------------------

    def _admit(self, lease: Lease, queue: _Queue, now_ms: int, endings: list[Ending]) -> None:
        found = self._clerk.admit(lease, now_ms)
        if not isinstance(found, Job):
            self.counts["refused"] += 1
            self._conclude(lease, found, endings)
            return
        lease.job = found
        queue.unfinished += 1
        suspect = lease.source.suspect
        lease.stage = WAITING if suspect else BUFFERED
        (self._suspects if suspect else queue.buffer).append(found)

    def _end(self, job: Job, outcome: Outcome, now_ms: int, endings: list[Ending]) -> None:
        self._conclude(job.lease, self._clerk.end(job.lease, job.envelope, outcome, job.crashes, now_ms), endings)

    def _conclude(self, lease: Lease, found: Ending | Hold, endings: list[Ending]) -> None:
        if isinstance(found, Hold):
            self._hold(lease, found.seconds)
        else:
            lease.stage = MOVING if found.is_move else SETTLING
            self._moving += found.is_move
            endings.append(found)

    def _submit(self, job: Job, started: list[Outgoing]) -> None:
        job.lease.stage = RUNNING
        if self._options.track_started:
            state = self._consequences.state
            started.append(state(job.envelope, JobState.STARTED, job.lease.deliveries, b"", self._now_ms()))
        self._pool.submit(job)

    def _settled(self, leases: list[Lease], well: bool) -> None:
        moved = False
        for lease in leases:
            if lease.stage == MOVING:
                self._moving -= 1
                moved = True
            lease.stage = GONE
            self._leases.pop(lease, None)
        if not well:
            self.counts["unsettled"] += len(leases)
        if moved and not self._moving:
            self._go()
        else:
            self._maybe_leave()

    def _was_interrupted(self, job: Job, outcome: Outcome) -> bool:
        """It ended because this worker stops: it runs again elsewhere, and that is no failure of its own."""
        return (
            self.stage >= Stage.INTERRUPTING
            and job.cancelled
            and isinstance(outcome, Failed)
            and outcome.fault.type.endswith("SoftTimeLimit")
        )

    # -- all jobs' ways -----------------------------------------------------------------------------------------------

    def _go(self) -> None:
        """Start what can start, ask for what there is room for, set the timer."""
        if self.stage < Stage.DRAINING:
            self._fill()
            self._ask()
        else:
            self._maybe_leave()
        self._arm()

    def _fill(self) -> None:
        started: list[Outgoing] = []
        if self._start_suspects(started):
            pool = self._pool
            waiting = [queue for queue in self._main if queue.buffer]
            ahead = self._timers.time() >= self._suspecting_until
            free = pool.free_slots if ahead else pool.concurrency - pool.busy
            while free > 0 and waiting:
                share = max(1, free // len(waiting))
                for queue in waiting:
                    free -= self._start_from(queue.buffer, min(share, free), started)
                waiting = [queue for queue in waiting if queue.buffer]
        if started:
            self._publisher.publish(started, lambda _: None)

    def _start_suspects(self, started: list[Outgoing]) -> bool:
        """Start suspects that may start; whether other jobs may start too."""
        pool = self._pool
        while self._suspects and self._alone is None and not self._moving:
            job = self._suspects[0]
            if job.lease.lost:
                self._suspects.popleft()
                continue
            if pool.busy >= (1 if job.crashes else pool.concurrency):
                return False
            self._suspects.popleft()
            if job.crashes:
                self._alone = job
            self._submit(job, started)
        return self._alone is None

    def _start_from(self, buffer: deque[Job], most: int, started: list[Outgoing]) -> int:
        count = 0
        while buffer and count < most:
            job = buffer.popleft()
            if not job.lease.lost:
                self._submit(job, started)
                count += 1
        return count

    def _ask(self) -> None:
        lock_s, now = self._delivery.lock_s, self._timers.time()
        unfinished = sum(queue.unfinished for queue in self._queues.values())
        settling = len(self._leases) - unfinished
        # While jobs move no fetch may be out that their settling would have to wait for.
        paused = bool(self._alone is not None or self._suspects or self._moving or settling > 2 * MOST)
        for queue in self._queues.values():
            if now < queue.paused_until:
                room, whole = 0, False
            elif queue.source.suspect:
                room, whole = self._room_for_suspects(queue), False
            else:
                room = 0 if paused else queue.pace.most_held(lock_s) - unfinished
                whole = queue.pace.whole_batches(lock_s)
                if len(self._main) > 1 and room > 0:
                    room = -(-room // len(self._main))
                elif whole and room < BATCH:
                    room = 0
            self._want(queue, max(0, room), whole)

    def _room_for_suspects(self, queue: _Queue) -> int:
        """As many as start at once; of short ones the next ones, too: a fetch takes longer than they run."""
        if self._alone is not None or any(job.crashes for job in self._suspects):
            return 0
        concurrency, mean_s = self._pool.concurrency, queue.pace.mean_s
        if mean_s is not None and mean_s <= SHORT_S:
            return 2 * concurrency - sum(each.unfinished for each in self._queues.values() if each.source.suspect)
        return 0 if self._suspects else concurrency - self._pool.busy

    def _suspect_came(self, now: float) -> None:
        """Let the pool's next free slot be for suspects."""
        if now >= self._suspecting_until:
            self._take_back_from_pool()
        self._suspecting_until = now + SUSPECTING_S

    def _take_back_from_pool(self) -> None:
        """What the pool has not started goes back to where it was, in order."""
        for job in reversed(self._pool.recall()):
            suspect = job.lease.source.suspect
            self._alone = None if job is self._alone else self._alone
            job.lease.stage = WAITING if suspect else BUFFERED
            (self._suspects if suspect else self._queues[job.lease.source].buffer).appendleft(job)

    def _want(self, queue: _Queue, count: int, whole: bool) -> None:
        if queue.asked != (count, whole):
            queue.asked = (count, whole)
            self._delivery.want(queue.source, count, whole)

    def _renew(self, now: float) -> None:
        """Renew what is under way; give back what waits in the buffer for longer than it should.

        What the pool has not started is taken back into the buffer first: a long job may have come in front of it.
        """
        self._take_back_from_pool()
        leases = [lease for lease in self._leases if lease.stage != BUFFERED]
        if leases:
            self._delivery.renew(leases)
        endings: list[Ending] = []
        now_ms, oldest = self._now_ms(), now - self._delivery.lock_s / 3
        for queue in self._main:
            while queue.buffer and queue.buffer[0].lease.leased_at <= oldest:
                self._give_back(queue.buffer.popleft(), now_ms, endings)
        self._settler.end(endings)

    def _hold(self, lease: Lease, hold_s: float) -> None:
        lease.stage = HELD
        self._holds += 1
        until = self._timers.time() + min(hold_s, self._delivery.lock_s / 3)
        heapq.heappush(self._holding, (until, self._holds, lease))

    def _release(self, leases: list[Lease]) -> None:
        ours = [lease for lease in leases if not lease.lost]
        if ours:
            for lease in ours:
                self._queues[lease.source].paused_until = self._timers.time() + YIELD_S
                self._want(self._queues[lease.source], 0, False)
            self._delivery.settle(ours, Verdict.RELEASE)
            self._settled(ours, True)

    def _give_back(self, job: Job, now_ms: int, endings: list[Ending]) -> None:
        """A job that has not started goes back to its topic, with the mark of a clean return."""
        lease = job.lease
        if lease.lost:
            return
        self._queues[lease.source].unfinished -= 1
        self.counts["given_back"] += 1
        self._end(job, NotStarted(), now_ms, endings)

    # -- stopping -----------------------------------------------------------------------------------------------------

    def _next_stage(self) -> None:
        now, options = self._timers.time(), self._options
        if self.stage >= Stage.LEAVING:
            return
        self.stage = Stage(self.stage + 1)
        log.info("the worker is %s", self.stage.name)
        if self.stage is Stage.DRAINING:
            self._stage_ends_at = now + options.stop_grace_s
            for queue in self._queues.values():
                self._want(queue, 0, False)
            endings: list[Ending] = []
            self._give_back_unstarted(endings)
            self._settler.end(endings)
            held, self._holding = [entry[2] for entry in self._holding], []
            self._release(held)
        elif self.stage is Stage.INTERRUPTING:
            self._stage_ends_at = now + options.kill_grace_s
            self._pool.interrupt()
        elif self.stage is Stage.ABANDONING:
            self._stage_ends_at = now + LEAVE_S
            self._abandon()
        else:
            self._leave()

    def _give_back_unstarted(self, endings: list[Ending]) -> None:
        now_ms = self._now_ms()
        unstarted = [*self._suspects, *self._pool.recall()]
        self._suspects.clear()
        for queue in self._main:
            unstarted.extend(queue.buffer)
            queue.buffer.clear()
        for job in unstarted:
            self._give_back(job, now_ms, endings)

    def _abandon(self) -> None:
        """Jobs that did not end when asked go back too: this process ends, and with it their threads."""
        endings: list[Ending] = []
        now_ms = self._now_ms()
        for lease in [lease for lease in self._leases if lease.stage == RUNNING]:
            lease.job.cancelled = True
            log.warning("%r is abandoned and given back", lease.job)
            self._give_back(lease.job, now_ms, endings)
        self._settler.end(endings)

    def _maybe_leave(self) -> None:
        if Stage.DRAINING <= self.stage < Stage.LEAVING and not self._leases:
            self._leave()

    def _leave(self) -> None:
        self.stage = Stage.LEAVING
        self._stage_ends_at = float("inf")
        self._delivery.close()

    # -- time ---------------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Set the loop's timer to the next deadline, when that is not the one it has."""
        if self.stage >= Stage.LEAVING:
            return
        when = min(self._renew_at, self._stage_ends_at)
        if self._holding:
            when = min(when, self._holding[0][0])
        now = self._timers.time()
        limit_at = self._pool.tick(now)
        if limit_at is not None:
            when = min(when, limit_at)
        for queue in self._queues.values():
            if queue.paused_until > now:
                when = min(when, queue.paused_until)
        if when != self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = when
            self._timer = self._timers.call_at(when, self.tick)
