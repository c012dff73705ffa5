"""The worker: leases jobs, runs them in the pool, finishes the leases by their outcomes, and renews them meanwhile.

One object on one loop in one thread; tasks run elsewhere (in the pool). It decides nothing about a job by itself
(:mod:`kafka.tasks.worker.admission`, by the tables of :mod:`kafka.tasks.rules`), makes no records
(:mod:`kafka.tasks.delivery.records`) and neither writes them nor talks to a broker (:mod:`kafka.tasks.delivery`). Its
parts own what it decides by: :class:`Leases` the stage of each lease, :class:`SourceBuffers` the buffers and how much
to ask for, :class:`WorkerShutdown` how far the stop has come, :class:`LostJobHandlers` the handlers of killed jobs;
:class:`Dispatcher` knows the way into the pool, :class:`JobCompletion` the way out. What is left here is a job's way
through them::

    leased --+--> buffered ---> running ---> finishing --> finished
             |       |                          ^
             |       +------- given back -------+      (produce with the clean mark, then accept)
             +--> refused ----------------------+      (no job, cancelled, expired, suspicious, not due, not to be
                                                        run here)

Running and finishing leases are renewed every third of the lock. Buffered ones are not: they start within that
time or are given back. A lost lock sets ``ctx.cancelled``, and the outcome is dropped; so is that of a share group's
lock which has run out by our own clock, since a process that stood still (SIGSTOP, a suspended machine) learns of it
too late.

A cancelled job is accepted without a record, whatever its stage: who cancelled it has written that it is REVOKED. If it
runs, ``ctx.cancelled`` is set, its process is ended if that was asked for, and its outcome is dropped.

Nothing is leased while the pool has no child that is up, or its breaker is open; what it holds then is given back. A
pool that never had one ends the worker.
"""

from __future__ import annotations

import logging
import random
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any, Final, Protocol

from kafka.errors import KafkaError
from kafka.log_limit import LimitedLog
from kafka.tasks.backends.base import WorkerBackend
from kafka.tasks.delivery.base import BrokerContact, ClaimKind, Ending, JobLease, JobSource, MetadataUse, OutgoingRecord
from kafka.tasks.delivery.records import StateRecords
from kafka.tasks.errors import PoolFailed, counted
from kafka.tasks.format.cancelled import CancelledJob
from kafka.tasks.format.topics import TopicNames
from kafka.tasks.hooks import ERROR_TASK
from kafka.tasks.options import WorkerOptions
from kafka.tasks.pools.base import Pool
from kafka.tasks.pools.runner import Job
from kafka.tasks.rules.outcome import AttemptFailed, ChildLost, JobSucceeded, LockLost, Outcome
from kafka.tasks.states import JobState
from kafka.tasks.task import Task
from kafka.tasks.worker.admission import AdmissionPolicy
from kafka.tasks.worker.cancelled_jobs import CancelledJobs
from kafka.tasks.worker.completion import JobCompletion
from kafka.tasks.worker.dispatcher import Dispatcher
from kafka.tasks.worker.leases import BUFFERED, FINISHED, NEW, RUNNING, Leases
from kafka.tasks.worker.long_jobs import BLOCKING_S, LongJobs
from kafka.tasks.worker.lost_jobs import LostJobHandlers
from kafka.tasks.worker.observer import JobObserver
from kafka.tasks.worker.shutdown import WorkerShutdown, WorkerStage
from kafka.tasks.worker.source_buffers import STUCK_GIVE_BACK_S, SourceBuffers

__all__ = ["Worker", "WorkerOptions", "WorkerStage", "WorkerTimers"]

log = logging.getLogger(__name__)

LOST_LOG_S: Final = 60.0
"""Between two lines about lost locks: each broker of a cluster may be restarted within a minute."""

_LOST_CLAIMS: Final = {
    ClaimKind.SHARE_LOCK: ("acquisition locks", "other workers"),
    ClaimKind.PARTITION: ("partitions", "their next owners"),
    ClaimKind.SCHEDULE: ("leases of the schedule", "other workers"),
}
"""What is lost, and who runs the jobs then."""

TURN_LEASES: Final = 128
TURN_BYTES: Final = 1024 * 1024
"""Maximum number of leases that are admitted in one turn of the loop, and of their bytes, about. Renewals, results and
signals are handled between two turns; a record that is not a job costs a write and a line in the log.
"""


class WorkerTimers(Protocol):
    """The interface of the worker's loop."""

    def time(self) -> float:
        """Monotonic seconds."""

    def call_at(self, when: float, callback: Callable[..., Any]) -> Any:
        """Call back once at ``when``; the returned timer has ``cancel()``."""


class Worker:
    """Runs the jobs of some queues. Implements :class:`kafka.tasks.delivery.base.DeliveryEvents`.

    ``now_ms`` is the broker's time in ms. ``on_left`` is called once, when the worker has stopped for good. All methods
    are for the loop's thread; :meth:`finished` is what the pool's ``wake`` has to bring about there. ``observers`` get
    what happens to jobs.
    """

    def __init__(
        self,
        tasks: Mapping[str, Task[..., Any]],
        names: TopicNames,
        timers: WorkerTimers,
        now_ms: Callable[[], int],
        host: str,
        backend: WorkerBackend,
        pool: Pool,
        options: WorkerOptions | None = None,
        on_left: Callable[[], None] = lambda: None,
        rng: random.Random | None = None,
        observers: Sequence[JobObserver] = (),
    ) -> None:
        """Opens its delivery, and asks for nothing before :meth:`start`."""
        options = options or WorkerOptions()
        self.error: KafkaError | None = None
        self.pool = pool
        self._counts = {"leased": 0, "locks_lost": 0, "dropped": 0, "unsettled": 0}
        self._timers = timers
        self._now_ms = now_ms
        self._is_start_tracked = options.track_started
        self._on_left = on_left
        self._observers = tuple(observers)
        self._lost_log = LimitedLog(log, most=1, every_s=LOST_LOG_S, clock=timers.time)
        self._arrived: deque[JobLease] = deque()  # leases that are not admitted yet
        self._is_degraded = False
        self._is_drained = False
        self._schedule = backend.schedule
        self._is_schedule_left = backend.schedule is None
        self._timer: Any = None
        self._timer_at = float("inf")
        self._state_records = StateRecords(names, host, backend.schedule_partitions)
        self._cancelled = CancelledJobs(now_ms)
        self._admission = AdmissionPolicy(
            tasks,
            self._state_records,
            backend.results_partitions,
            options,
            rng or random.Random(),
            self._observers,
            self._cancelled,
        )
        self._leases = Leases()
        self._shutdown = WorkerShutdown(options.stop_grace_s, options.kill_grace_s)
        self._lost_jobs = LostJobHandlers(tasks.get(ERROR_TASK))
        self._watch_pauses = backend.watch_pauses
        self._watch_cancelled = backend.watch_cancelled
        self._delivery = delivery = backend.open_delivery(self)
        self._completion = JobCompletion(self._admission, delivery, self._leases, now_ms, self._on_finished)
        self._buffers = SourceBuffers(delivery, pool.concurrency)
        self._dispatcher = Dispatcher(pool, self._leases, self._buffers, self._lost_jobs, now_ms)
        self._long_jobs = LongJobs(delivery, self._leases, self._state_records, now_ms, self._arm)
        self._look_for_long_at = 0.0
        self._clock_checked_at = timers.time()
        self._renew_at = self._clock_checked_at + delivery.lock_s / 3

    def start(self) -> None:
        """Begin to lease; after :meth:`stop`, leave without a lease."""
        self._watch_pauses(self.paused)
        if self._schedule is not None:
            self._schedule.start()
        self._watch_cancelled(self.cancelled)
        self.finished()  # the pool wakes once until it is asked, and may have done so while the worker connected

    @property
    def stage(self) -> WorkerStage:
        """The stage of its shutdown."""
        return self._shutdown.stage

    @property
    def stage_ends_at(self) -> float:
        """When the next stage of its shutdown begins by itself (monotonic s; infinity: it does not)."""
        return self._shutdown.ends_at

    def contacts(self) -> list[BrokerContact]:
        """See :meth:`kafka.tasks.delivery.base.JobDelivery.contacts`."""
        return self._delivery.contacts()

    def metadata_use(self) -> list[MetadataUse]:
        """See :meth:`kafka.tasks.delivery.base.JobDelivery.metadata_use`."""
        return self._delivery.metadata_use()

    # -- events of the delivery --------------------------------------------------------------------------------------

    def leased(self, leases: list[JobLease]) -> None:
        """See :class:`kafka.tasks.delivery.base.DeliveryEvents`."""
        now, lock_s = self._check_clock(), self._delivery.lock_s
        self._counts["leased"] += len(leases)
        self._renew_at = min(self._renew_at, now + lock_s / 3)  # the responses have the duration of locks
        for source in {lease.source for lease in leases}:
            self._buffers.on_leased(source)
        self._leases.add(leases, now, lock_s)
        self._long_jobs.on_leased(leases)
        if now >= self._look_for_long_at:
            self._look_for_long_at = now + BLOCKING_S
            self._long_jobs.look(now, self._dispatcher.submitted())
        is_first = not self._arrived
        self._arrived += leases
        if is_first:
            self._admit()

    def _admit(self) -> None:
        """Admit the next leases that have arrived, TURN_LEASES at most; the others in the turns that follow."""
        now, now_ms = self._check_clock(), self._now_ms()
        count, bytes_left = 0, TURN_BYTES
        admit, add = self._completion.admit, self._dispatcher.add
        received: list[Job] = []
        while self._arrived and count < TURN_LEASES and bytes_left > 0:
            lease = self._arrived.popleft()
            count += 1
            if lease.stage != NEW:  # it was lost or given back meanwhile
                continue
            bytes_left -= len(lease.value or b"")
            job = admit(lease, now_ms)
            if job is not None:
                received.append(job)
                add(job)
            else:
                self._buffers[lease.source].refuse()
        if received:
            for observer in self._observers:
                observer.on_received(received)
        if self._arrived:
            self._timers.call_at(now, self._admit)
        if self._shutdown.has_begun or self._is_degraded:
            self._give_back_unstarted()
        self._completion.flush()
        self._dispatch_and_arm()

    def lost(self, leases: list[JobLease], reason: str) -> None:
        """See :class:`kafka.tasks.delivery.base.DeliveryEvents`."""
        self._check_clock()
        self._on_locks_lost(leases, reason)
        self._long_jobs.end([lease.job for lease in leases if lease.is_handed_off and lease.job is not None])
        self._dispatch_and_arm()

    def returning(self, leases: list[JobLease]) -> None:
        """See :class:`kafka.tasks.delivery.base.DeliveryEvents`."""
        self._check_clock()
        self._dispatcher.take_back()  # what the pool has not begun does not start
        waiting: list[Job] = [lease.job for lease in leases if lease.stage == BUFFERED]
        self._buffers.drop(waiting)
        now_ms = self._now_ms()
        new = [self._completion.admit(lease, now_ms) for lease in leases if lease.stage == NEW]
        for job in (*waiting, *filter(None, new)):
            self._completion.give_back(job)
        self._completion.flush()
        self._dispatch_and_arm()

    def replace_result(self, ending: Ending, record: OutgoingRecord) -> Ending:
        """See :class:`kafka.tasks.delivery.base.DeliveryEvents`."""
        return self._completion.replace_result(ending, record)

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
            self._admission.log_suppressed_counts()
            counts = self.counts
            done, given_back = counted(counts["done"], "job"), counts["given_back"]
            log.info("worker stopped: %s done, %d returned to their queues", done, given_back)
            self._on_left()

    def paused(self, queues: frozenset[str]) -> None:
        """These of its queues are paused now. Jobs that were leased before run."""
        self._check_clock()
        if not self._shutdown.has_begun:
            self._buffers.set_paused(queues)
            self._dispatch_and_arm()

    def cancelled(self, jobs: Sequence[CancelledJob]) -> None:
        """These jobs were cancelled, of whatever queues: they do not start here, and the outcomes of those that run are
        dropped."""
        self._check_clock()
        self._cancelled.add(jobs)
        terminating: dict[str, bool] = {}
        for each in jobs:
            terminating[each.id] = each.is_terminating or terminating.get(each.id, False)
        if self.stage < WorkerStage.DRAINING:
            self._delivery.cancelled(terminating.keys())
        if self.stage >= WorkerStage.LEAVING or not self._leases.of_jobs(terminating):
            return
        self._dispatcher.take_back()  # what the pool has not begun does not start
        leases = self._leases.of_jobs(terminating)
        waiting: list[Job] = [lease.job for lease in leases if lease.stage == BUFFERED]
        running: list[Job] = [lease.job for lease in leases if lease.stage != BUFFERED]
        new = [job for job in running if not job.lease.is_cancelled]
        self._buffers.drop(waiting)
        for job in waiting:
            self._completion.cancel(job)
        for job in new:
            self._leases.mark_cancelled(job.lease)
            self.pool.cancel(job)
        for job in running:
            if terminating[job.envelope.id]:
                self.pool.terminate(job)
        for those, is_running in ((waiting, False), (new, True)):
            if those:
                for observer in self._observers:
                    observer.on_cancelled([(job.lease.source.queue, job.envelope) for job in those], is_running)
        self._completion.flush()
        self._dispatch_and_arm()

    # -- events of the pool and the clock -----------------------------------------------------------------------------

    def finished(self) -> None:
        """Jobs of the pool have ended, or begun, or it can take jobs now and could not before."""
        self._check_clock()
        now_ms = self._now_ms()
        ran: dict[JobSource, list[float]] = {}
        ended = self.pool.finished()
        self._dispatcher.on_ended(ended)
        if self._is_start_tracked:
            self._publish_started(self.pool.started(), now_ms)
        completed: list[tuple[Job, Outcome]] = []
        for each in ended:
            job, outcome = each
            if self._lost_jobs.finish(job, outcome):
                continue
            lease = job.lease
            if lease.is_cancelled and lease.stage == RUNNING and not lease.lost:
                self._completion.cancel(job)
                continue
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
            completed.append(each)
            self._completion.end(job, outcome, now_ms)
        if completed:
            for observer in self._observers:
                observer.on_ran(completed)
        for source, times in ran.items():
            self._buffers[source].runtime.observe(sum(times), len(times))
        if ran:
            self.pool.set_depth(self._buffers.depth())
        self._completion.flush()
        self._dispatch_and_arm()

    def tick(self) -> None:
        """A deadline of the worker's has come."""
        now = self._check_clock()
        self._timer, self._timer_at = None, float("inf")
        self.pool.tick(now)
        if now >= self._renew_at:
            self._renew_at = now + self._delivery.lock_s / 3
            self._renew(now)
            self._admission.log_suppressed_counts()
        if now >= self._long_jobs.renew_at:
            lost = self._long_jobs.renew(now)
            self._on_locks_lost(lost, "the schedule could not be asked to go on waiting for them")
        if now - self._buffers.all_stuck_since >= STUCK_GIVE_BACK_S:
            self._dispatcher.take_back()
            self._give_back_older(now)
        if now >= self._shutdown.ends_at:
            self._next_stage()
        self._dispatch_and_arm()

    # -- commands ------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop; called again, go one stage further."""
        self._check_clock()
        self._next_stage()
        self._dispatch_and_arm()

    def stop_gracefully(self) -> None:
        """Stop, and leave it at that when called again."""
        if self.stage is WorkerStage.WORKING:
            self.stop()

    def resize(self, by: int) -> None:
        """Add or remove slots."""
        self._check_clock()
        if not self._shutdown.has_begun:
            pool, before = self.pool, self.pool.concurrency
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
                log.warning("pool size not changed (%s): %s", counted(before, "slot"), why)
            else:
                log.info("pool resized to %s", counted(pool.concurrency, "slot"))
            self._dispatch_and_arm()

    @property
    def counts(self) -> dict[str, int]:
        """What it has done since the start."""
        return {**self._counts, **self._completion.counts}

    def statistics(self) -> dict[str, int]:
        """Counts since the start, and what is held now."""
        pool = {f"pool_{name}": count for name, count in self.pool.statistics().items()}
        return {**self.counts, "held": len(self._leases), **pool}

    def running(self) -> list[Job]:
        """The jobs that are with the pool."""
        return [lease.job for lease in self._leases.running()]

    def count_by_queue(self) -> dict[str, int]:
        """See :meth:`kafka.tasks.worker.leases.Leases.count_by_queue`."""
        return self._leases.count_by_queue()

    # -- callbacks of its parts
    # ------------------------------------------------------------------------------------------------

    def _publish_started(self, jobs: list[Job], now_ms: int) -> None:
        """Write the records of jobs that have begun, before those of their ends."""
        records = [
            self._state_records.state(job.envelope, JobState.STARTED, job.lease.deliveries, b"", now_ms)
            for job in jobs
            if job.lease.stage == RUNNING and not job.lease.lost and not job.lease.is_cancelled
        ]
        if records:
            self._delivery.publish(records, lambda _: None)

    def _on_finished(self, leases: list[JobLease]) -> None:
        self._counts["unsettled"] += sum(lease.lost for lease in leases)
        self._leases.finish(leases)
        self._check_clock()
        if self._buffers.waits_for_settlements:
            self._dispatch_and_arm()
        else:
            self._maybe_leave()

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
            expired = self._dispatcher.fill(self._timers.time())
            for job in expired:
                self._completion.expire(job)
            if expired:
                self._completion.flush()
            now = self._timers.time()
            self._buffers.request_jobs(self.pool, self._leases, self._dispatcher.oldest(), now)
        else:
            self._lost_jobs.start(self.pool.free_slots, self.pool.submit)
            self._maybe_leave()
        self._arm()

    def _check_pool(self) -> None:
        pool = self.pool
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
        self._give_back_older(now - self._delivery.lock_s / 3)  # first: what is finishing is renewed, too
        leases = self._leases.take_renewable(now, self._delivery.lock_s)
        if leases:
            self._delivery.renew(leases)
        self._long_jobs.look(now, self._dispatcher.submitted())

    def _give_back_older(self, leased_at: float) -> None:
        """Give back what has waited in the buffers since then or longer."""
        for job in self._buffers.take_older(leased_at):
            self._completion.give_back(job)
        self._completion.flush()

    def _on_locks_lost(self, leases: Sequence[JobLease], reason: str, is_excused: bool = True) -> None:
        counts: Counter[ClaimKind] = Counter()
        running: list[Job] = []
        has_buffered = False
        for lease in leases:
            is_running = lease.stage == RUNNING
            has_buffered = has_buffered or lease.stage == BUFFERED
            if self._leases.mark_lost(lease, is_excused):
                counts[ClaimKind.SHARE_LOCK if lease.claim is None else lease.claim.kind] += 1
                if is_running:
                    running.append(lease.job)
                    self.pool.cancel(lease.job)
        if has_buffered:
            self._buffers.drop_lost()
        if running:
            for observer in self._observers:
                observer.on_locks_lost(running, reason)
        for kind, count in counts.items():
            self._counts["locks_lost"] += count
            what, who = _LOST_CLAIMS[kind]
            jobs = counted(count, "job")
            self._lost_log.warning(kind, "lost the %s of %s (%s); %s will run them", what, jobs, reason, who)

    def _check_clock(self) -> float:
        """The time; first in each event. Marks locks as lost that have timed out while this process did not run. A job
        may be the cause, so no suspect is excused.
        """
        now = self._timers.time()
        stood_still_s, self._clock_checked_at = now - self._clock_checked_at, now
        if stood_still_s > self._delivery.lock_s / 3:  # what waits here may have a lock that is two thirds older
            self._on_locks_lost(
                self._leases.expired(now), f"this process did not run for {stood_still_s:.0f} s", is_excused=False
            )
        return now

    # -- stopping -----------------------------------------------------------------------------------------------------

    def _next_stage(self) -> None:
        stage = self._shutdown.advance(self._timers.time())
        if stage is None:
            return
        log.info("worker stage is now %s", stage.name)
        if stage is WorkerStage.DRAINING:
            self._buffers.stop_requesting()
            self._delivery.drain(self._on_drained)
            if self._schedule is not None:
                self._schedule.close().add_both(self._on_schedule_left)
            self._give_back_unstarted()
            self._completion.flush()
        elif stage is WorkerStage.INTERRUPTING:
            self.pool.interrupt()
        elif stage is WorkerStage.ABANDONING:
            self._abandon()
        else:
            self._leave()

    def _on_drained(self) -> None:
        self._is_drained = True
        self._maybe_leave()

    def _on_schedule_left(self, _: object) -> None:
        self._is_schedule_left = True
        self._maybe_leave()

    def _give_back_unstarted(self) -> None:
        """Give back what has not begun."""
        for job in self._dispatcher.take_unstarted():
            self._completion.give_back(job)

    def _abandon(self) -> None:
        """Kill child processes; their jobs are given back when they have ended. Jobs without a process are given back
        at once: this process ends, and its threads with it.
        """
        for job in self.pool.abandon():
            job.cancel()
            if job.lease.stage == RUNNING:
                log.warning("%s did not end in time; abandoned its run and returned the job to its queue", job)
                self._completion.give_back(job)
        self._lost_jobs.drop()
        self._completion.flush()

    def _maybe_leave(self) -> None:
        is_over = self._is_drained and self._is_schedule_left and not len(self._leases) and not len(self._lost_jobs)
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
        self.pool.set_backlog(self._buffers.buffered_count)
        limit_at = self.pool.tick(now)
        buffers, stuck_at = self._buffers, self._buffers.all_stuck_since + STUCK_GIVE_BACK_S
        if stuck_at <= now:
            stuck_at = inf
        when = min(
            self._renew_at, self._long_jobs.renew_at, self._shutdown.ends_at, buffers.next_look_at, stuck_at
        )
        if limit_at is not None:
            when = min(when, limit_at)
        if when != self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = when
            self._timer = self._timers.call_at(when, self.tick)
