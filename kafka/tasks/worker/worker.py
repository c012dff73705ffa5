"""The worker: leases jobs, runs them in the pool, settles the leases by their outcomes, and renews them meanwhile.

One object on one loop in one thread; tasks run elsewhere (in the pool). It decides nothing about a job by itself
(:mod:`kafka.tasks.worker.admission`, by the tables of :mod:`kafka.tasks.rules.outcome`), makes no records
(:mod:`kafka.tasks.delivery.records`), sends none (:mod:`kafka.tasks.delivery.settlement`) and talks to no broker
(:mod:`kafka.tasks.delivery.base`). Its parts own what it decides by: :class:`Leases` the stage of each lease,
:class:`SourceBuffers` the buffers and how much to ask for, :class:`Suspects` who runs alone, :class:`WorkerShutdown`
how far the stop has come, :class:`LostJobHandlers` the handlers of killed jobs; :class:`Dispatcher` knows the way into
the pool,
:class:`JobCompletion` the way out. What is left here is a job's way through them::

    leased --+--> buffered ---> running ---> settling --> gone
             |       |  ^          |            ^
             |       |  suspects wait for a slot|
             |       +--- given back -----------+          (produce with the clean mark, then accept)
             +--> refused ----------------------+          (no job, expired, suspicious, too many crashes)
             +--> held for a while, then released          (a task that this worker does not know; a suspect is
                                                            written anew and accepted)

Running, settling and waiting leases are renewed every third of the lock. Buffered ones are not: they start within that
time or are given back. A lost lock sets ``ctx.cancelled``, and the outcome is dropped; so is that of a lock which has
run out by our own clock, since a process that stood still (SIGSTOP, a suspended machine) learns of it too late.

Nothing is leased while the pool has no child that is up, or its breaker is open; what it holds then is given back. A
pool that never had one ends the worker.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from kafka.errors import KafkaError
from kafka.tasks.backends.base import WorkerBackend
from kafka.tasks.delivery.base import JobLease, JobSource, OutgoingRecord
from kafka.tasks.delivery.records import StateRecords
from kafka.tasks.delivery.settlement import Settlement, Settler
from kafka.tasks.errors import PoolFailed
from kafka.tasks.format.topics import TopicNames
from kafka.tasks.hooks import ERROR_TASK
from kafka.tasks.options import WorkerOptions
from kafka.tasks.pools.base import Pool
from kafka.tasks.pools.runner import Job
from kafka.tasks.rules.decide import LeaseVerdict
from kafka.tasks.rules.outcome import AttemptFailed, ChildLost, JobSucceeded, LockLost, Outcome
from kafka.tasks.states import JobState
from kafka.tasks.task import Task
from kafka.tasks.worker.admission import AdmissionPolicy
from kafka.tasks.worker.completion import COUNTS, JobCompletion
from kafka.tasks.worker.dispatcher import Dispatcher
from kafka.tasks.worker.leases import FINISHED, HELD, NEW, RUNNING, SETTLING, Leases
from kafka.tasks.worker.lost_jobs import LostJobHandlers
from kafka.tasks.worker.shutdown import WorkerShutdown, WorkerStage
from kafka.tasks.worker.source_buffers import SourceBuffers
from kafka.tasks.worker.suspects import Suspects

__all__ = ["Worker", "WorkerOptions", "WorkerStage", "WorkerTimers"]

log = logging.getLogger(__name__)

TURN_LEASES: Final = 128
TURN_BYTES: Final = 1024 * 1024
"""Maximum number of leases that are admitted in one turn of the loop, and of their bytes, about. Renewals, results and
signals are handled between two turns; a record that is not a job costs a write and a line in the log.
"""

YIELD_S = 0.6
"""After releasing jobs of unknown tasks, a worker leases nothing from that topic for this long: longer than the long
poll of other workers, which a release does not complete. Otherwise it would get them back itself.
"""

SUSPECT_PAUSE_S: Final = 1.0
"""After giving back a suspect that waited for an empty pool, a worker leases no suspects of that queue for so long. One
that stops writes what could not be written again after so long."""


class WorkerTimers(Protocol):
    """The interface of the worker's loop."""

    def time(self) -> float:
        """Monotonic seconds."""

    def call_at(self, when: float, callback: Callable[..., Any]) -> Any:
        """Call back once at ``when``; the returned timer has ``cancel()``."""


class Worker:
    """Runs the jobs of some queues. Implements :class:`kafka.tasks.delivery.base.DeliveryEvents`.

    ``now_ms`` is the broker's time in ms. ``on_left`` is called once, when the worker has stopped for good. All methods
    are for the loop's thread; :meth:`finished` is what the pool's ``wake`` has to bring about there.
    """

    def __init__(
        self,
        tasks: Mapping[str, Task[..., Any]],
        names: TopicNames,
        queues: Sequence[str],
        timers: WorkerTimers,
        now_ms: Callable[[], int],
        host: str,
        options: WorkerOptions | None = None,
        on_left: Callable[[], None] = lambda: None,
    ) -> None:
        self.error: KafkaError | None = None
        self._counts = {"leased": 0, "locks_lost": 0, "dropped": 0, "unsettled": 0}
        self._tasks = tasks
        self._names = names
        self._queue_names = list(queues)
        self._timers = timers
        self._now_ms = now_ms
        self._options = options or WorkerOptions()
        self._on_left = on_left
        self._state_records = StateRecords(names, host)
        self._leases = Leases()
        self._arrived: deque[JobLease] = deque()  # leases that are not admitted yet
        self._suspects = Suspects()
        self._shutdown = WorkerShutdown(self._options.stop_grace_s, self._options.kill_grace_s)
        self._lost_jobs = LostJobHandlers(tasks.get(ERROR_TASK))
        self._is_started = False
        self._is_degraded = False
        self._is_drained = False
        self._clock_checked_at = 0.0
        self._renew_at = 0.0
        self._timer: Any = None
        self._timer_at = float("inf")

    def start(self, backend: WorkerBackend, pool: Pool) -> None:
        """Begin to lease."""
        self._delivery = backend.delivery
        self._publisher = backend.publisher
        self._pool = pool
        self._admission = AdmissionPolicy(
            self._tasks, self._state_records, backend.delivery, backend.results_partitions, self._options
        )
        self._settler = Settler(
            backend.delivery,
            backend.publisher,
            self._state_records,
            self._on_settled,
            self._on_result_too_large,
            self._on_records_refused,
        )
        self._completion = JobCompletion(self._admission, self._settler, self._leases, self._now_ms, self._hold_until)
        self._buffers = SourceBuffers(self._names, self._queue_names, backend.delivery, pool.concurrency)
        on_started = self._publish_started if self._options.track_started else None
        self._dispatcher = Dispatcher(pool, self._leases, self._buffers, self._suspects, self._lost_jobs, on_started)
        self._clock_checked_at = self._timers.time()
        self._renew_at = self._clock_checked_at + self._delivery.lock_s / 3
        self._is_started = True
        self.finished()  # the pool wakes once until it is asked, and may have done so while the worker connected

    @property
    def stage(self) -> WorkerStage:
        """The stage of its shutdown."""
        return self._shutdown.stage

    @property
    def pool(self) -> Pool | None:
        """Its pool; None before it has begun."""
        return self._pool if self._is_started else None

    # -- events of the delivery --------------------------------------------------------------------------------------

    def leased(self, leases: list[JobLease]) -> None:
        """See :class:`kafka.tasks.delivery.base.DeliveryEvents`."""
        now, lock_s = self._timers.time(), self._delivery.lock_s
        self._counts["leased"] += len(leases)
        self._renew_at = min(self._renew_at, now + lock_s / 3)  # the responses have the duration of locks
        for source in {lease.source for lease in leases}:
            self._buffers[source].requested = None
        for lease in leases:
            self._leases.add(lease, now, lock_s)
        is_first = not self._arrived
        self._arrived += leases
        if is_first:
            self._admit()

    def _admit(self) -> None:
        """Admit the next leases that have arrived, TURN_LEASES at most; the others in the turns that follow."""
        now, now_ms = self._timers.time(), self._now_ms()
        count, bytes_left = 0, TURN_BYTES
        while self._arrived and count < TURN_LEASES and bytes_left > 0:
            lease = self._arrived.popleft()
            count += 1
            if lease.stage != NEW:  # its lock was lost meanwhile
                continue
            bytes_left -= len(lease.value or b"")
            job = self._completion.admit(lease, now_ms)
            if job is not None:
                self._dispatcher.add(job, now)
            elif lease.stage != HELD:
                self._buffers[lease.source].refused_count += 1
        if self._arrived:
            self._timers.call_at(now, self._admit)
        for job in self._suspects.take_surplus():
            self._completion.give_back(job)
        if self._suspects.has_isolated:
            self._release_unknown_tasks(self._leases.take_held(only_suspects=True), is_due=False)
            self._yield_isolation(now)
        if self._shutdown.has_begun:
            self._return_unstarted()
        elif self._is_degraded:
            self._give_back_unstarted()
        self._completion.flush()
        self._dispatch_and_arm()

    def lost(self, leases: list[JobLease], reason: str) -> None:
        """See :class:`kafka.tasks.delivery.base.DeliveryEvents`."""
        self._check_clock(self._timers.time())
        self._on_locks_lost(leases, reason)
        self._dispatch_and_arm()

    def failed(self, error: KafkaError) -> None:
        """See :class:`kafka.tasks.delivery.base.DeliveryEvents`. The worker stops, and ``error`` says why."""
        log.error("stopping the worker after an error: %s", error)
        if self.error is None:
            self.error = error
        if self.stage is WorkerStage.WORKING:
            self.stop()

    def left(self) -> None:
        """See :class:`kafka.tasks.delivery.base.DeliveryEvents`."""
        if self.stage is not WorkerStage.LEFT:
            self._shutdown.enter(WorkerStage.LEFT, self._timers.time())
            if self._timer is not None:
                self._timer.cancel()
            self._publisher.close()
            if self._is_started:
                self._admission.log_suppressed_counts()
            counts = self.counts
            log.info("worker stopped: %d jobs done, %d returned to their queues", counts["done"], counts["given_back"])
            self._on_left()

    # -- events of the pool and the clock -----------------------------------------------------------------------------

    def finished(self) -> None:
        """Jobs of the pool have ended, or it can take jobs now and could not before."""
        if not self._is_started:  # children that come up while the worker still connects
            return
        self._check_clock(self._timers.time())
        now_ms = self._now_ms()
        ran: dict[JobSource, list[float]] = {}
        for job, outcome in self._pool.finished():
            if self._lost_jobs.finish(job, outcome):
                continue
            lease = job.lease
            self._suspects.on_job_ended(job)
            if lease.stage == RUNNING and job.ran_s > 0:
                ran.setdefault(lease.source, []).append(job.ran_s)
            is_lost = lease.lost or isinstance(outcome, LockLost)
            if is_lost or lease.stage != RUNNING:
                if is_lost:
                    self._leases.set_stage(lease, FINISHED)
                self._counts["dropped"] += 1
                continue
            if not isinstance(outcome, JobSucceeded):
                if self._was_ended_by_shutdown(job, outcome):
                    self._completion.give_back(job)
                    continue
                self._lost_jobs.add_if_lost(job, outcome)
            self._completion.end(job, outcome, now_ms)
        for source, times in ran.items():
            self._buffers[source].runtime.observe(sum(times), len(times))
        if ran:
            self._pool.depth = self._buffers.depth()
        self._completion.flush()
        self._dispatch_and_arm()

    def tick(self) -> None:
        """A deadline of the worker's has come."""
        now = self._timers.time()
        self._timer, self._timer_at = None, float("inf")
        self._check_clock(now)
        self._pool.tick(now)
        if now >= self._renew_at:
            self._renew_at = now + self._delivery.lock_s / 3
            self._renew(now)
            self._admission.log_suppressed_counts()
        self._release_unknown_tasks(self._leases.take_due(now), is_due=True)
        self._yield_isolation(now)
        if now >= self._shutdown.ends_at:
            self._next_stage()
        self._dispatch_and_arm()

    # -- commands ------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop; called again, go one stage further. Before :meth:`start`: start, and leave at once."""
        if not self._is_started:
            self._is_drained = True
            self._shutdown.enter(WorkerStage.DRAINING, self._timers.time())
            return
        self._next_stage()
        self._dispatch_and_arm()

    def stop_gracefully(self) -> None:
        """Stop, and leave it at that when called again."""
        if self.stage is WorkerStage.WORKING:
            self.stop()

    def resize(self, by: int) -> None:
        """Add or remove slots."""
        if self._is_started and not self._shutdown.has_begun:
            pool, before = self._pool, self._pool.concurrency
            if by > 0:
                pool.grow(by)
            else:
                pool.shrink(-by)
            if pool.concurrency == before:
                why = (
                    "the last slot cannot be removed"
                    if before == 1 and by < 0
                    else "this kind of pool has a fixed number of slots"
                )
                log.warning("pool size not changed (%d slots): %s", before, why)
            else:
                log.info("pool resized to %d slots", pool.concurrency)
            self._dispatch_and_arm()

    @property
    def counts(self) -> dict[str, int]:
        """What it has done since the start."""
        return {**self._counts, **(self._completion.counts if self._is_started else dict.fromkeys(COUNTS, 0))}

    def statistics(self) -> dict[str, int]:
        """Counts since the start, and what is held now."""
        if not self._is_started:
            return self.counts
        pool = {f"pool_{name}": count for name, count in self._pool.statistics().items()}
        return {**self.counts, "held": len(self._leases), **pool}

    def running(self) -> list[Job]:
        """The jobs that are with the pool."""
        return [lease.job for lease in self._leases.running()]

    # -- callbacks of its parts
    # ------------------------------------------------------------------------------------------------

    def _publish_started(self, jobs: list[Job]) -> None:
        state, now_ms = self._state_records.state, self._now_ms()
        records = [state(job.envelope, JobState.STARTED, job.lease.deliveries, b"", now_ms) for job in jobs]
        self._publisher.publish(records, lambda _: None)

    def _hold_until(self, hold_s: float) -> float:
        return self._timers.time() + min(hold_s, self._delivery.lock_s / 3)

    def _on_settled(self, leases: list[JobLease], well: bool) -> None:
        was_moving = self._leases.moving
        for lease in leases:
            self._leases.finish(lease, well)
        if not well:
            self._counts["unsettled"] += len(leases)
        if (
            (was_moving and not self._leases.moving)
            or self._suspects.have_priority
            or self._buffers.waits_for_settlements
        ):
            self._dispatch_and_arm()
        else:
            self._maybe_leave()

    def _on_records_refused(self, leases: list[JobLease]) -> None:
        """The records of these jobs could not be written. Others continue meanwhile, also in the slots of suspects."""
        for lease in leases:
            self._leases.set_stage(lease, SETTLING)
        if self._shutdown.has_begun:
            self._renew_at = min(self._renew_at, self._timers.time() + SUSPECT_PAUSE_S)
        self._dispatch_and_arm()

    def _on_result_too_large(self, settlement: Settlement, record: OutgoingRecord) -> Settlement:
        return self._completion.result_too_large(settlement, record)

    def _was_ended_by_shutdown(self, job: Job, outcome: Outcome) -> bool:
        """Whether it ended because this worker stops: it runs again elsewhere, and does not count as a failure."""
        if isinstance(outcome, ChildLost):
            return self.stage >= WorkerStage.ABANDONING
        if not isinstance(outcome, AttemptFailed) or not job.cancelled:
            return False
        return self._shutdown.is_interrupting and outcome.error_info.type.endswith("SoftTimeLimit")

    # -- once per turn of the loop
    # -----------------------------------------------------------------------------------------------

    def _dispatch_and_arm(self) -> None:
        """Start the jobs that can start, request as many as there is room for, and set the timer."""
        self._check_pool()
        if not self._shutdown.has_begun:
            self._dispatcher.fill(self._timers.time())
            self._buffers.request_jobs(self._pool, self._leases, self._suspects, self._timers.time())
        else:
            self._lost_jobs.start(self._pool.free_slots, self._pool.submit)
            self._maybe_leave()
        self._arm()

    def _check_pool(self) -> None:
        pool = self._pool
        self._buffers.set_concurrency(pool.concurrency)
        reason = pool.degraded
        if (reason is not None) == self._is_degraded:
            return
        self._is_degraded = reason is not None
        if reason is None:
            log.info("the pool can run jobs again; leasing jobs again")
        elif not pool.ever_ready:
            self.failed(PoolFailed(f"the pool has never been able to run jobs: {reason}"))
        else:
            log.error("the pool cannot run jobs, no jobs are leased until it can: %s", reason)
            self._give_back_unstarted()
            self._completion.flush()

    def _renew(self, now: float) -> None:
        """Renew what is under way; give back what waits in the buffer for longer than it should.

        What the pool has not started is taken back into the buffer first: a long job may have come in front of it.
        """
        self._dispatcher.take_back()
        leases = self._leases.take_renewable(now, self._delivery.lock_s)
        if leases:
            self._delivery.renew(leases)
        for job in self._buffers.take_older(now - self._delivery.lock_s / 3):
            self._completion.give_back(job)
        self._completion.flush()
        self._settler.retry_refused()  # the last: it may start jobs

    def _on_locks_lost(self, leases: Sequence[JobLease], reason: str, is_excused: bool = True) -> None:
        count = 0
        for lease in leases:
            is_running = lease.stage == RUNNING
            if self._leases.mark_lost(lease, is_excused):
                count += 1
                if is_running:
                    self._pool.cancel(lease.job)
        if count:
            self._counts["locks_lost"] += count
            log.warning("lost the acquisition locks of %d jobs (%s); other workers will run them", count, reason)

    def _check_clock(self, now: float) -> None:
        """Mark locks as lost that have timed out while this process did not run. A job may be the cause, so no suspect
        is excused.
        """
        stood_still_s, self._clock_checked_at = now - self._clock_checked_at, now
        if stood_still_s > self._delivery.lock_s * 2 / 3:
            self._on_locks_lost(
                self._leases.expired(now), f"this process did not run for {stood_still_s:.0f} s", is_excused=False
            )

    def _yield_isolation(self, now: float) -> None:
        """Give back a suspect that has waited long enough for an empty pool, while slots were idle."""
        job = self._suspects.take_due(self._pool, self._leases.suspects, now)
        if job is not None:
            self._buffers.pause(job.lease.source, now + SUSPECT_PAUSE_S)
            self._completion.give_back(job)
            self._completion.flush()

    def _release_unknown_tasks(self, leases: list[JobLease], is_due: bool) -> None:
        """Release leases of tasks that this worker does not declare, so that other workers get them."""
        if not leases:
            return
        for lease in leases:
            self._buffers.pause(lease.source, self._timers.time() + YIELD_S)
        released = [lease for lease in leases if not self._completion.end_hold(lease, is_due)]
        self._completion.flush()
        if released:
            self._delivery.settle(released, LeaseVerdict.RELEASE)
            self._on_settled(released, True)

    # -- stopping -----------------------------------------------------------------------------------------------------

    def _next_stage(self) -> None:
        stage = self._shutdown.advance(self._timers.time())
        if stage is None:
            return
        log.info("worker stage is now %s", stage.name)
        if stage is WorkerStage.DRAINING:
            self._buffers.stop_requesting()
            self._delivery.drain(self._on_drained)
            self._return_unstarted()
            self._settler.retry_refused()
        elif stage is WorkerStage.INTERRUPTING:
            self._pool.interrupt()
        elif stage is WorkerStage.ABANDONING:
            self._abandon()
        else:
            self._leave()

    def _on_drained(self) -> None:
        self._is_drained = True
        self._maybe_leave()

    def _give_back_unstarted(self) -> None:
        for job in self._dispatcher.take_unstarted():
            self._completion.give_back(job)

    def _return_unstarted(self) -> None:
        self._give_back_unstarted()
        self._completion.flush()
        self._release_unknown_tasks(self._leases.take_held(), is_due=False)

    def _abandon(self) -> None:
        """Kill child processes; their jobs are given back when they have ended. Jobs without a process are given back
        at once: this process ends, and its threads with it.
        """
        for job in self._pool.abandon():
            job.cancelled = True
            if job.lease.stage == RUNNING:
                log.warning("%s did not end in time; abandoned its run and returned the job to its queue", job)
                self._completion.give_back(job)
        self._lost_jobs.drop()
        self._completion.flush()

    def _maybe_leave(self) -> None:
        is_over = self._is_drained and not len(self._leases) and not len(self._lost_jobs)
        if self._shutdown.may_leave and is_over:
            self._leave()

    def _leave(self) -> None:
        self._lost_jobs.drop()
        self._shutdown.enter(WorkerStage.LEAVING, self._timers.time())
        self._renew_at = float("inf")
        self._delivery.close()

    # -- time ---------------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Set the loop's timer to the next deadline, when that is not the one it has."""
        if self.stage >= WorkerStage.LEAVING:
            return
        now = self._timers.time()
        self._pool.backlog = self._buffers.buffered_count
        limit_at = self._pool.tick(now)
        lines_at, suspects_at = self._buffers.resumes_at(now), self._suspects.due_at(self._pool, self._leases.suspects)
        when = min(self._renew_at, self._shutdown.ends_at, self._leases.due_at, lines_at, suspects_at)
        if limit_at is not None:
            when = min(when, limit_at)
        if when != self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = when
            self._timer = self._timers.call_at(when, self.tick)
