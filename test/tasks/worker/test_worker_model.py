"""A worker with all its real parts, step by step, against a plain model (``worker_model.py``).

Between the events the loop runs until it is idle, or for some turns only, so that the next event comes in between.
``KAFKA_TEST_ROUNDS`` multiplies the examples.
"""

from __future__ import annotations

import dataclasses
import logging
import random
from math import inf
from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from kafka.errors import KafkaError, KafkaTimeoutError, MessageSizeTooLargeError
from kafka.tasks.backends.base import WorkerBackend
from kafka.tasks.delivery.base import (
    Claim,
    ClaimKind,
    JobLease,
    JobSource,
    OutgoingRecord,
    RecordKind,
    SourceKind,
    sources_of,
)
from kafka.tasks.format.cancelled import CancelledJob
from kafka.tasks.rules.outcome import (
    AttemptFailed,
    ChildLost,
    ErrorInfo,
    JobCancelled,
    JobRetried,
    JobSnoozed,
    JobSucceeded,
    Outcome,
)
from kafka.tasks.worker import long_jobs, runtime_estimate, source_buffers, worker
from kafka.tasks.worker.worker import Worker, WorkerStage
from test.support.rounds import ROUNDS
from test.tasks.fakes import FakePublisher, a_job, settle
from test.tasks.worker.test_worker import Bench
from test.tasks.worker.worker_model import (
    ARRIVED,
    BATCH,
    ENDED,
    FINISHING,
    LOCK_S,
    MOST,
    OPTIONS,
    OVER,
    POOL,
    THIRD_S,
    WAITING,
    LoopErrors,
    Model,
    WatchedDelivery,
    WatchedEvents,
    WatchedPool,
)

STEP_S: Final = 0.25

STANDSTILLS: Final = (1.0, 2.0, 2.5, 3.0, 3.75, 4.25, 7.0, 40.0)
"""Seconds."""
FIRST: Final = ("tick", "pause", "resize", "stop")
"""What comes after a standstill before all else."""

LAST_OUTCOMES: Final = {
    WorkerStage.DRAINING: "ok",
    WorkerStage.INTERRUPTING: "soft",
    WorkerStage.ABANDONING: "stopped",
}
"""How jobs end that still run at the end of an example, by how far the stop goes then."""

turns = st.sampled_from([None, None, None, 0, 1, 2])
"""Of the loop, before the next event; None: until it is idle."""
stops = st.sampled_from(["not"] * 8 + ["signal", "two signals", "two signals", "error"])
disturbances = st.sampled_from(["stuck", "mute", "refused", "refused", "too large"] + ["mended"] * 3)
mostly = st.sampled_from([True, True, True, False])
some = st.lists(st.integers(0, 7), min_size=1, max_size=4)
source_numbers = st.integers(0, 5)
kinds = st.sampled_from(
    ["note"] * 8 + ["fail"] * 4 + ["later", "soon", "expiring", "expired", "new.task", "waited", "nothing", "id"]
)
outcomes = st.sampled_from(["ok"] * 4 + ["fail", "unlisted", "retry", "snooze", "cancel", "soft", "lost", "stopped"])
running_times = st.sampled_from([0.02, 0.02, 0.0001, 0.5, 3.0])


class WorkerAgainstModel(RuleBasedStateMachine):
    """Whatever comes, is lost, ends, stands still and stops: each lease is in one place and ends once, as it should."""

    @initialize(
        queues=st.sampled_from([("default",), ("default", "mail")]),
        slots=st.integers(1, 3),
        has_processes=st.booleans(),
        is_slow=st.booleans(),
        is_silent=st.sampled_from([False, False, True]),
        track_started=st.booleans(),
        first_ran_s=st.sampled_from([None, 0.02]),
        last_stage=st.sampled_from(list(LAST_OUTCOMES)),
    )
    def begin(
        self,
        queues: tuple[str, ...],
        slots: int,
        has_processes: bool,
        is_slow: bool,
        is_silent: bool,
        track_started: bool,
        first_ran_s: float | None,
        last_stage: WorkerStage,
    ) -> None:
        self.patch = pytest.MonkeyPatch()
        for module in (runtime_estimate, source_buffers):
            self.patch.setattr(module, "MAX_HELD_JOBS", MOST)
            self.patch.setattr(module, "PRODUCER_BATCH_RECORDS", BATCH)
        self.patch.setattr(worker, "TURN_LEASES", 2)
        self.patch.setattr(long_jobs, "LONG_S", inf)  # a lease of the schedule has tests of its own: test_long_jobs
        self.bench = bench = Bench()
        self.last_stage = last_stage
        self.left = 0
        self.number = 0
        self.queues = queues
        self.sources = sources_of(bench.app.names, queues)
        self.model = model = Model(bench, self.sources, has_processes)
        self.loop_errors = LoopErrors(model)
        logging.getLogger("kafka").addHandler(self.loop_errors)
        self.patch.setattr(logging.getLogger("kafka"), "propagate", False)
        self.publisher = FakePublisher(bench.queues, bench.loop)
        self.pool = WatchedPool(slots, lambda: bench.loop.call_soon_threadsafe(self.worker.finished))
        self.pool.model = model
        self.pool.is_slow = is_slow
        self.pool.has_processes = self.pool.attributes_crashes = has_processes
        self.events = WatchedEvents(model)
        self.delivery = WatchedDelivery(
            bench.queues, bench.loop, self.events, self.publisher, bench.app.names, LOCK_S, queues
        )
        self.delivery.model = model
        self.delivery.pool = self.pool
        self.delivery.is_silent = is_silent
        self.worker = self.events.worker = Worker(
            bench.app.tasks,
            bench.app.names,
            bench.loop,
            bench.now_ms,
            "host1",
            WorkerBackend(lambda _: self.delivery, 8, 4),
            self.pool,
            dataclasses.replace(OPTIONS, track_started=track_started),
            self.on_left,
            random.Random(0),
        )
        self.worker.start()
        self.run(None)
        if first_ran_s is not None:  # of jobs that are known to be short more are leased than start
            self.enqueue(0, "note", 1, 1, None)
            self.begin_jobs(None)
            self.end_all_jobs(first_ran_s)

    def on_left(self) -> None:
        self.left += 1

    def run(self, turns: int | None) -> None:
        if turns is None:
            settle(self.bench.loop)
            self.check_at_rest()
        else:
            for _ in range(turns):
                self.bench.loop.run_once(0, advance=False)
        assert not self.model.faults, "\n".join(self.model.faults)

    def append(self, source: JobSource, kind: str, deliveries: int) -> None:
        """Add a record that was delivered so often already, but for once."""
        self.number += 1
        now_ms = self.bench.now_ms()
        fields = {
            "later": {"due_ms": now_ms + 45_000},
            "soon": {"due_ms": now_ms + 1_500},
            "expiring": {"expires_ms": now_ms + 3_000},
            "expired": {"expires_ms": now_ms},
            "waited": {"due_ms": now_ms + 5_000, "unknown": 1, "unknown_since_ms": now_ms - 1_000},
        }.get(kind, {})
        name = kind if kind in ("fail", "new.task") else "note"
        job = a_job(name, self.number, clock=self.bench.clock, **fields)
        headers = {"nothing": [], "id": job.headers()[:1]}.get(kind, job.headers())
        self.bench.queues.append(OutgoingRecord(RecordKind.JOB, source.topic, job.value, None, headers))
        self.bench.queues.topics[source.topic][-1].deliveries = deliveries - 1

    # -- the delivery ------------------------------------------------------------------------------------------------

    @rule(
        number=source_numbers,
        kind=kinds,
        count=st.sampled_from([1, 1, 2, 5, 20]),
        deliveries=st.sampled_from([1, 1, 1, 2, 3, 4]),
        turns=turns,
    )
    def enqueue(self, number: int, kind: str, count: int, deliveries: int, turns: int | None) -> None:
        for _ in range(count):
            self.append(self.sources[number % len(self.sources)], kind, deliveries)
        self.run(turns)

    @rule(number=source_numbers, kind=kinds, turns=turns)
    def lease_what_was_asked_for_before(self, number: int, kind: str, turns: int | None) -> None:
        """An answer was under way when the worker asked for less, paused or stopped."""
        source = self.sources[number % len(self.sources)]
        if not source.is_suspect and not self.delivery.is_closed:
            self.append(source, kind, 1)
            now = self.bench.loop.time()
            records = self.bench.queues.acquire(source.topic, self.delivery, 3, now, LOCK_S)
            self.events.leased(
                [
                    JobLease(
                        source, each.value, each.headers, each.deliveries, 0, each.offset,
                        Claim(ClaimKind.SHARE_LOCK, each), key=each.key,
                    )
                    for each in records
                ]
            )  # fmt: skip
        self.run(turns)

    @rule(which=some, is_told=st.sampled_from([True, True, False]), turns=turns)
    def lose_locks(self, which: list[int], is_told: bool, turns: int | None) -> None:
        here = [each.lease for each in self.model.at(ARRIVED, WAITING, POOL, FINISHING) if not each.is_lost]
        leases = list(dict.fromkeys(here[number % len(here)] for number in which)) if here else []
        for lease in leases:
            assert lease.claim is not None
            if lease.claim.token.deliveries == lease.deliveries:
                lease.claim.token.holder = None
        if leases and is_told and not self.delivery.is_closed:
            self.events.lost(leases, "the broker went away")
        self.bench.queues.notify()
        self.run(turns)

    @precondition(lambda self: self.model.stage < WorkerStage.LEAVING)
    @rule(which=some, terminate=st.booleans(), turns=turns)
    def cancel_jobs(self, which: list[int], terminate: bool, turns: int | None) -> None:
        """Of those that are leased, and of those that may be later."""
        waiting = [each for source in self.sources for each in self.bench.queues.waiting(source.topic)]
        ids = [job_id for each in waiting if (job_id := each.header("id")) is not None]
        if ids:
            cancelled = dict.fromkeys(ids[number % len(ids)] for number in which)
            self.model.on_cancelled(set(cancelled))
            self.worker.cancelled([CancelledJob(each, terminate) for each in cancelled])
        self.run(turns)

    @rule(what=disturbances, number=source_numbers)
    def disturb_the_broker(self, what: str, number: int) -> None:
        names = self.bench.app.names
        if what == "stuck":
            self.publisher.is_stuck = True
        elif what == "mute":
            self.delivery.is_mute = True
        elif what == "mended":
            self.mend()
        elif what == "too large":
            self.publisher.errors[names.results] = [MessageSizeTooLargeError("too large")]
        else:
            topics = [
                names.due("default"), names.suspect("default"), names.dead("default"), names.results, names.commands
            ]  # fmt: skip
            self.publisher.errors[topics[number % 5]] = [KafkaTimeoutError("120 s"), KafkaTimeoutError("120 s")]
        self.run(None)

    def mend(self) -> None:
        self.publisher.errors.clear()
        self.publisher.advance()
        self.delivery.answer()

    # -- the pool ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.pool.begun)
    @rule(kinds=st.lists(outcomes, min_size=1, max_size=5), which=some, ran_s=running_times, turns=turns)
    def end_jobs(self, kinds: list[str], which: list[int], ran_s: float, turns: int | None) -> None:
        """Some of what runs ends; what has come behind it begins, and may end, too."""
        for number, kind in enumerate(kinds):
            begun = self.pool.begun
            if begun:
                self.pool.end(begun[which[number % len(which)] % len(begun)], self.outcome(kind), ran_s)
        self.run(turns)

    @precondition(lambda self: self.pool.begun)
    @rule(kind=outcomes, turns=turns)
    def end_the_oldest_job(self, kind: str, turns: int | None) -> None:
        self.end_jobs([kind], [0], 0.02, turns)

    def outcome(self, kind: str) -> Outcome:
        has_processes = self.pool.has_processes
        made: dict[str, Outcome] = {
            "fail": AttemptFailed(ErrorInfo("OSError")),
            "unlisted": AttemptFailed(ErrorInfo("ValueError"), listed=False),
            "retry": JobRetried(self.bench.now_ms() + 2_000),
            "snooze": JobSnoozed(500),
            "cancel": JobCancelled("enough"),
            "soft": AttemptFailed(ErrorInfo("SoftTimeLimit")),
            "lost": ChildLost("signal", 9) if has_processes else JobSucceeded(b"1"),
            "stopped": ChildLost("stopped", counts=False) if has_processes else JobSucceeded(b"1"),
        }
        return made.get(kind, JobSucceeded(b"1"))

    @precondition(lambda self: self.pool.begun)
    @rule(ran_s=running_times)
    def end_all_jobs(self, ran_s: float) -> None:
        for job in list(self.pool.begun):
            self.pool.end(job, JobSucceeded(b"1"), ran_s)
        self.run(None)

    @precondition(lambda self: self.pool.is_slow and len(self.pool.begun) < len(self.pool.jobs))
    @rule(turns=turns)
    def begin_jobs(self, turns: int | None) -> None:
        self.pool.begin_some()
        self.run(turns)

    @rule(is_able=mostly, why=st.sampled_from([None, "no child stays up"]), turns=turns)
    def change_the_pool(self, is_able: bool, why: str | None, turns: int | None) -> None:
        self.pool.become(is_able, None if is_able else why)
        self.model.is_degraded = self.model.is_degraded or self.pool.degraded is not None
        self.run(turns)

    @rule(by=st.sampled_from([1, -1]), by_itself=st.booleans(), turns=turns)
    def resize(self, by: int, by_itself: bool, turns: int | None) -> None:
        if by > 0 and self.pool.concurrency == 4:
            return
        if not by_itself:
            self.worker.resize(by)
        else:
            (self.pool.grow if by > 0 else self.pool.shrink)(1)
            self.pool.become(self.pool.ready, self.pool.degraded)
        self.run(None if by_itself else turns)

    # -- commands and time -------------------------------------------------------------------------------------------

    @rule(default=mostly, mail=mostly, turns=turns)
    def pause(self, default: bool, mail: bool, turns: int | None) -> None:
        is_open = {"default": default, "mail": mail}
        self.model.paused = frozenset(queue for queue in is_open if not is_open[queue])
        self.worker.paused(self.model.paused)
        self.run(turns)

    @rule(how=stops, turns=turns)
    def stop(self, how: str, turns: int | None) -> None:
        if how == "error":
            self.events.failed(KafkaError("the group is gone"))
        for _ in range({"signal": 1, "two signals": 2}.get(how, 0)):
            self.model.next_stage()
            self.worker.stop()
        self.run(turns)

    @precondition(lambda self: self.delivery.is_silent and self.delivery.drained is not None)
    @rule()
    def drain(self) -> None:
        drained, self.delivery.drained = self.delivery.drained, None
        if drained is not None:
            drained()
        self.run(None)

    @rule(seconds=st.sampled_from([0.25, 0.5, 1.75, 4.0, 12.0, 31.0]))
    def pass_time(self, seconds: float) -> None:
        for _ in range(int(seconds / STEP_S)):
            self.bench.clock.advance(STEP_S)
            self.model.on_time()
            self.run(None)

    @rule(seconds=st.sampled_from(STANDSTILLS), first=st.sampled_from(FIRST))
    def stand_still(self, seconds: float, first: str) -> None:
        """The process does not run for a while. What comes first afterwards may be older than its timers."""
        self.run(None)
        self.bench.clock.advance(seconds)
        self.model.on_time()
        if first == "pause":
            self.worker.paused(self.model.paused)
        elif first == "resize" and self.pool.concurrency < 4:
            self.worker.resize(1)
        elif first == "stop" and self.model.stage is WorkerStage.WORKING:
            self.model.next_stage()
            self.worker.stop()
        self.run(None)

    # -- what holds --------------------------------------------------------------------------------------------------

    def check_at_rest(self) -> None:
        model, now_ms = self.model, self.bench.now_ms()
        check = model.check
        check(self.worker.stage is model.stage, "the stages follow each other", self.worker.stage, model.stage)
        check(self.left == (model.stage is WorkerStage.LEFT), "a worker says once that it has left")
        if model.stage is WorkerStage.LEFT:
            return
        check(not model.at(ENDED), "what has ended is finished in the same turn", model.at(ENDED))
        for known in model.at(ARRIVED):
            check(known.admission(now_ms) == "run", "what may not run is refused at once", known)
            known.renewed_at, known.place = model.now, WAITING
        model.is_degraded = self.pool.degraded is not None
        self.check_places()
        self.check_requests()
        self.check_counts()

    def check_places(self) -> None:
        model, check, pool = self.model, self.model.check, self.pool
        waiting, running = model.at(WAITING), model.at(POOL)
        if pool.has_processes or model.stage < WorkerStage.ABANDONING:  # threads go on with what is given back
            given = {each.lease for each in running}
            check(given >= {job.lease for job in pool.jobs}, "the pool has what it was given")
        live = {each.lease for each in running if not each.is_lost}
        check({job.lease for job in self.worker.running()} == live, "what runs is with the pool")
        here = [each for each in [*waiting, *running, *model.at(FINISHING)] if not each.is_lost]
        check(self.worker.statistics()["held"] == len(here), "the worker holds what is not over", here)
        check(pool.backlog == len(waiting), "what waits is the backlog", pool.backlog, waiting)
        for queue, busy in self.worker.count_by_queue().items():
            of_it = [each.place for each in here if each.lease.source.queue == queue]
            check(busy == of_it.count(POOL) + of_it.count(FINISHING), "counts by queue: busy", queue, busy)
        if model.stage >= WorkerStage.DRAINING or model.is_degraded:
            check(not waiting, "what has not begun is given back", waiting)
            is_over = model.stage >= WorkerStage.DRAINING and model.is_drained and not here
            check(not is_over, "a worker with nothing left leaves")
        elif pool.ready:
            check(not waiting or pool.busy >= pool.concurrency, "no job waits beside an idle slot", waiting)
        for known in here:
            left_s = known.locked_until - model.now
            check(left_s >= THIRD_S, "locks are renewed in time, or what waits is given back", known, model.now)
            is_renewed = known.place == WAITING or model.now - known.renewed_at <= THIRD_S
            check(is_renewed, "locks are renewed every third of their length", known, model.now)
        for job in pool.begun:
            if model.leases[job.lease].is_lost:
                check(job in pool.cancelled and job.cancelled, "a job whose lock is lost is cancelled", job)

    def check_requests(self) -> None:
        """How much more is asked for. A suspect of a queue that runs inside the process is alone, so it is asked for
        though all slots are taken."""
        model, check, pool = self.model, self.model.check, self.pool
        is_able = pool.ready and pool.degraded is None and model.stage is WorkerStage.WORKING
        here = len(model.at(WAITING, POOL, FINISHING))
        is_due_first = model.is_due_first(pool.concurrency - len(model.at(POOL)))
        long_s = max(runtime_estimate.STUCK_S, runtime_estimate.STUCK_FACTOR * model.longest_s) + THIRD_S
        for source, count in model.asked.items():
            if not is_able or source.queue in self.model.paused or here >= MOST:
                check(count == 0, "nothing is asked for in vain", source, count, here)
            elif source.is_suspect and not model.attributes_crashes:
                mine = [each for each in model.at(WAITING, POOL) if each.lease.source == source]
                check(count + len(mine) <= 1, "suspects come one by one", count, mine)
            elif source.is_suspect:
                check(count <= 2 * pool.concurrency, "no more suspects come than start", count)
            elif model.is_stuck(pool.concurrency, long_s) and not model.refused_last[source]:
                check(count == 0, "nothing is asked for behind long jobs in all slots", source, count)
            if source.kind is SourceKind.DUE:
                check(count <= BATCH, "due jobs are asked for by the batch", count)
            is_idle = is_able and not here and source.queue not in self.model.paused
            if is_idle and source.kind is SourceKind.MAIN and not is_due_first:
                check(count > 0, "an idle worker asks for jobs", source)
        main = [count for source, count in model.asked.items() if source.kind is SourceKind.MAIN]
        most = max(0, MOST - here) + BATCH * len(main)
        check(sum(main) <= most, "no more is asked for than may be held", main, here)

    def check_counts(self) -> None:
        """Each lease that came has had one end, or is here::

            leased = refused + given_back + cancelled + done + (runs again) + (lost without an ending) + (here)

        *Runs again* are runs that another follows (retried, snoozed, moved), which the worker counts as failed if at
        all. ``locks_lost`` is larger than what was lost without an ending by those that were lost while their records
        were written; these are ``unsettled`` later.
        """
        counts, found = self.model.counts, self.worker.counts
        self.model.check(found == {name: counts[name] for name in found}, "the counts add up", found, dict(counts))
        here = [each for each in self.model.at(ARRIVED, WAITING, POOL) if not each.is_lost]
        ended = ("refused", "given_back", "cancelled", "done", "runs again", "lost without an ending")
        total = sum(counts[name] for name in ended) + len(here)
        self.model.check(found["leased"] == total, "each lease has one end", dict(counts), here)

    def teardown(self) -> None:
        """Let everything end: nothing is left, unless the worker has left before."""
        try:
            if hasattr(self, "model") and not self.model.faults:
                self.let_everything_end()
        finally:
            logging.getLogger("kafka").removeHandler(self.loop_errors)
            self.patch.undo()

    def let_everything_end(self) -> None:
        model = self.model
        self.mend()
        self.pool.become(True)
        self.run(None)
        was_over = model.stage >= WorkerStage.LEAVING
        self.delivery.finishing.retry()
        while model.stage < self.last_stage:
            self.stop("signal", None)
        self.pool.is_slow = False
        self.pool.begin_some()
        for job in list(self.pool.begun):
            self.pool.end(job, self.outcome(LAST_OUTCOMES.get(model.stage, "ok")), 3.0)
        self.run(None)
        if self.delivery.is_silent:
            self.drain()
        self.run(None)
        if not was_over:
            left = [each for each in model.leases.values() if each.place != OVER]
            model.check(not left, "each lease has ended", left)
        model.check(self.worker.stage is WorkerStage.LEFT, "the worker has left", self.worker.stage)
        model.check(self.left == 1, "the worker says so once")
        assert not model.faults, "\n".join(model.faults)


TestWorkerAgainstModel = WorkerAgainstModel.TestCase
TestWorkerAgainstModel.settings = settings(max_examples=120 * ROUNDS, stateful_step_count=40, deadline=None)
