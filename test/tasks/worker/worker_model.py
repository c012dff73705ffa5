"""A plain model of a worker, and a delivery and a pool that tell it what the worker does.

The model is a dictionary of leases and where each is. It is written from what the module docstrings of
``kafka/tasks/worker`` and ``kafka/tasks/rules`` promise: it sees what goes into a worker (leases, lost locks, outcomes,
commands, time) and what comes out of it (what it submits, takes back, renews, finishes and asks for), and reads nothing
of the worker's own.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kafka.errors import KafkaError
from kafka.tasks.delivery.base import (
    Ending,
    FinishCallback,
    JobLease,
    JobSource,
    OutgoingRecord,
    PublishCallback,
    RecordKind,
    SourceKind,
)
from kafka.tasks.format.commands import PUT, decode_command
from kafka.tasks.format.envelope import Envelope, dead_letter_of, decode
from kafka.tasks.pools.runner import Job
from kafka.tasks.rules.outcome import (
    AttemptFailed,
    ChildLost,
    JobCancelled,
    JobRetried,
    JobSnoozed,
    JobSucceeded,
    LockLost,
    Outcome,
)
from kafka.tasks.worker.runtime_estimate import STUCK_S
from kafka.tasks.worker.shutdown import LEAVE_S
from kafka.tasks.worker.source_buffers import DUE_FIRST_S
from kafka.tasks.worker.worker import Worker, WorkerOptions, WorkerStage
from test.tasks.fakes import FakeDelivery, ManualPool
from test.tasks.worker.test_worker import Bench

LOCK_S: Final = 6.0
THIRD_S: Final = LOCK_S / 3
MOST: Final = 16
"""MAX_HELD_JOBS here: few enough to be reached."""
BATCH: Final = 4
"""PRODUCER_BATCH_RECORDS here."""
OPTIONS: Final = WorkerOptions(crash_limit=3, stop_grace_s=4.0, kill_grace_s=2.0, unknown_ttl_s=60.0)
LASTS: Final = {WorkerStage.DRAINING: 4.0, WorkerStage.INTERRUPTING: 2.0, WorkerStage.ABANDONING: LEAVE_S}

ARRIVED, WAITING, POOL, ENDED, FINISHING, OVER = range(6)
"""Where a lease is. ARRIVED: not looked at, as far as the model can tell. ENDED: the worker has its outcome."""


class End(NamedTuple):
    """How a lease ends: where the job goes ("" when nowhere), its state record, and how far it has come."""

    where: str = ""
    state: str | None = None
    cause: str = ""
    attempt: int = 0
    crashes: int = 0
    clean: int = 0
    unknown: int = 0


def end_of(ending: Ending) -> End:
    """What the records of an ending say."""
    end = End()
    for record in ending.records:
        headers = record.headers or []
        if record.kind is RecordKind.STATE:
            end = end._replace(state=(dict(headers)["state"] or b"").decode())
            continue
        death = dead_letter_of(headers)
        end = end._replace(where=record.topic.rpartition(".")[2], cause="" if death is None else death.cause)
        if ending.envelope is not None:
            job = job_of(record, ending.envelope)
            end = end._replace(attempt=job.attempt, crashes=job.crashes, clean=job.clean, unknown=job.unknown)
    assert ending.is_dead is (end.where == "dead")
    return end


def job_of(record: OutgoingRecord, leased: Envelope) -> Envelope:
    """The job in a record: a command's is the next of its generation."""
    if record.kind is not RecordKind.COMMAND:
        return decode(record.value, record.headers or [], record.key)
    command = decode_command(record.key, record.value, record.headers or [])
    assert command is not None
    assert command.job is not None
    job = decode(command.job.value, command.job.headers, command.job.key)
    assert (command.kind, command.subject, job.generation) == (PUT, leased.id, leased.generation + 1)
    return job


@dataclass(eq=False)
class Lease:
    """What the model knows of a lease. ``job``: None for a record that is no job; ``ends``: how its outcome ends it,
    and what that is counted as; ``excused``: earlier deliveries of a suspect whose locks its worker has lost;
    ``is_cancelled``: its job was cancelled while it ran; ``renewed_at``: when its lock was renewed, or it came to where
    locks are renewed."""

    lease: JobLease
    job: Envelope | None
    leased_at: float
    locked_until: float
    crashes: int = 0
    excused: int = 0
    place: int = ARRIVED
    is_lost: bool = False
    is_cancelled: bool = False
    submitted_at: float = 0.0
    recalled_at: float | None = None
    renewed_at: float = 0.0
    ends: tuple[End, str] = (End(), "")

    def __repr__(self) -> str:
        name = None if self.job is None else self.job.name
        lease = self.lease
        return (
            f"<{name} {lease.origin} delivery {lease.deliveries} place {self.place} lost {self.is_lost} leased"
            f" {self.leased_at} locked until {self.locked_until} submitted {self.submitted_at}>"
        )

    @property
    def is_suspect(self) -> bool:
        return self.lease.source.kind is SourceKind.SUSPECT

    def moved(self, where: str, state: str | None = None, **more: Any) -> End:
        """The job's next record: as it was leased, but for ``more``."""
        assert self.job is not None
        known = {"attempt": self.job.attempt, "crashes": self.crashes, "clean": self.job.clean}
        return End(where, state, **{**known, "unknown": self.job.unknown, **more})

    def back(self) -> End:
        """Given back, with the mark of a clean return."""
        assert self.job is not None
        return self.moved("suspect" if self.is_suspect else "due", clean=self.job.clean + 1)

    def dead(self, cause: str, crashes: int | None = None) -> End:
        return self.moved("dead", "FAILURE", cause=cause, unknown=self.unknown_here, crashes=crashes or self.crashes)

    @property
    def unknown_here(self) -> int:
        return 0 if self.job is None else self.job.unknown

    def admission(self, now_ms: int) -> End | str:
        """The table of ``rules/admit.py``: how it ends without a run, else "run"."""
        job, deliveries = self.job, self.lease.deliveries
        if job is None:
            has_id = any(name == "id" for name, _ in self.lease.headers)
            return End("dead", "FAILURE" if has_id else None, "no-job")
        if job.expires_ms is not None and now_ms >= job.expires_ms:
            return End("", "REVOKED")
        is_known = job.name in ("note", "fail")
        waits = job.due_ms is not None and now_ms < job.due_ms
        if waits and not (is_known and job.unknown_since_ms is not None):
            return self.moved("commands")
        is_suspected = deliveries > 1 and not self.is_suspect
        if not is_known and not is_suspected:
            since_ms = now_ms if job.unknown_since_ms is None else job.unknown_since_ms
            if now_ms - since_ms >= OPTIONS.unknown_ttl_s * 1000:
                return self.dead("unknown-task")
            return self.moved("commands", unknown=job.unknown + 1)
        if is_known and self.crashes >= OPTIONS.crash_limit:
            return self.dead("crashes")
        if is_suspected:
            return self.moved("suspect")
        return self.back() if self.excused else "run"

    def outcome(self, outcome: Outcome, now_ms: int) -> End:
        """The table of ``rules/decide.py``, for jobs that have run."""
        job = self.job
        assert job is not None
        most = 3 if job.name == "fail" else None
        if isinstance(outcome, JobSucceeded):
            return End("", "SUCCESS")
        if isinstance(outcome, JobCancelled):
            return End("", "REVOKED")
        if isinstance(outcome, JobSnoozed):
            return self.moved("commands", "SCHEDULED", unknown=0)
        if isinstance(outcome, ChildLost):
            if not outcome.counts:
                return self.back()
            if self.crashes + 1 >= OPTIONS.crash_limit:
                return self.dead(f"lost-{outcome.cause}", self.crashes + 1)
            return self.moved("due", "RETRY", crashes=self.crashes + 1, unknown=0)
        due_ms = now_ms
        if isinstance(outcome, AttemptFailed):
            if most is None:
                return self.dead("error")
            if not outcome.listed:
                return self.dead("error-not-listed")
        else:
            assert isinstance(outcome, JobRetried)
            due_ms = max(outcome.due_ms, now_ms if most is not None else now_ms + 1000)
        if most is not None and job.attempt >= most:
            return self.dead("attempts")
        if job.expires_ms is not None and due_ms >= job.expires_ms:
            return self.dead("expired")
        where = "commands" if due_ms > now_ms else "due"
        return self.moved(where, "RETRY", attempt=job.attempt + 1, unknown=0)


class Model:
    """All leases that a worker was given, and what it asks for. :meth:`check` collects: what a callback of the loop
    raises would be logged only."""

    def __init__(self, bench: Bench, sources: Sequence[JobSource], attributes_crashes: bool) -> None:
        self.bench = bench
        self.attributes_crashes = attributes_crashes
        self.leases: dict[JobLease, Lease] = {}
        self.asked = dict.fromkeys(sources, 0)
        self.counts: Counter[str] = Counter()
        self.excused: dict[tuple[str, int], set[int]] = {}
        self.refused_last = dict.fromkeys(sources, False)
        self.due_first_until = float("-inf")
        self.paused: frozenset[str] = frozenset()
        self.cancelled: set[str] = set()
        self.longest_s = 0.0
        self.stage = WorkerStage.WORKING
        self.ends_at = float("inf")
        self.is_degraded = self.is_drained = False
        self.faults: list[str] = []

    def check(self, holds: object, promise: str, *about: object) -> None:
        if not holds:
            self.faults.append(f"{promise}: {about}" if about else promise)

    @property
    def now(self) -> float:
        return self.bench.clock.monotonic()

    def at(self, *places: int) -> list[Lease]:
        return [each for each in self.leases.values() if each.place in places]

    def is_told_of(self, known: Lease) -> bool:
        """Whether the worker knows that this job is cancelled."""
        return known.job is not None and known.job.id in self.cancelled

    def is_stuck(self, slots: int, for_s: float, until_s: float = -1.0) -> bool:
        """Whether every slot has a job that was given to the pool so long ago; ``until_s``: or that was there then."""
        there = [each for each in self.leases.values() if each.place == POOL or each.recalled_at == until_s]
        return sum(each.submitted_at + for_s <= self.now for each in there) >= slots

    # -- what goes in ------------------------------------------------------------------------------------------------

    def on_leased(self, leases: list[JobLease], lock_s: float) -> None:
        for lease in leases:
            source = lease.source
            self.asked[source] = max(0, self.asked[source] - 1)
            ids = [name for name, _ in lease.headers if name in ("id", "name")]
            job = decode(lease.value, lease.headers, lease.key) if len(ids) == 2 else None
            known = self.leases[lease] = Lease(lease, job, self.now, self.now + lock_s)
            if job is not None:
                known.crashes = job.crashes
                if known.is_suspect:
                    earlier = self.excused.get((source.topic, lease.offset), set())
                    known.excused = sum(count < lease.deliveries for count in earlier)
                    known.crashes += lease.deliveries - 1 - known.excused
            self.refused_last[source] = known.admission(self.bench.now_ms()) != "run" or self.is_told_of(known)
        self.counts["leased"] += len(leases)

    def is_due_first(self, free_slots: int) -> bool:
        """Whether a slot is kept for a due job: one was given back that had got none, and since one is free, for a
        moment no others are asked for (``DUE_FIRST_S``)."""
        if self.due_first_until == float("inf") and free_slots > 0:
            self.due_first_until = self.now + DUE_FIRST_S
        return self.now < self.due_first_until

    def on_lost(self, leases: Sequence[JobLease], is_excused: bool = True) -> None:
        for known in (self.leases[lease] for lease in leases):
            if known.is_lost:
                continue
            if known.is_suspect and is_excused:
                self.excused.setdefault((known.lease.source.topic, known.lease.offset), set()).add(
                    known.lease.deliveries
                )
            known.is_lost = True
            if known.place != OVER:
                self.counts["locks_lost"] += 1
                self.counts["lost without an ending"] += known.place != FINISHING
            if known.place in (ARRIVED, WAITING):
                known.place = OVER

    def on_cancelled(self, ids: set[str]) -> None:
        self.cancelled |= ids

    def on_cancelled_in_pool(self, job: Job) -> None:
        self.leases[job.lease].is_cancelled = True

    def on_time(self) -> None:
        """Time has passed: the locks that have ended by the worker's own clock are lost, and the stop goes on."""
        if self.stage < WorkerStage.LEAVING:
            here = self.at(ARRIVED, WAITING, POOL, FINISHING)
            self.on_lost([each.lease for each in here if each.locked_until <= self.now], is_excused=False)
        if self.now >= self.ends_at:
            self.next_stage()

    def next_stage(self) -> None:
        if self.stage < WorkerStage.LEAVING:
            self.stage = WorkerStage(self.stage + 1)
            self.ends_at = self.now + LASTS.get(self.stage, float("inf"))

    def on_outcomes(self, ended: Sequence[tuple[Job, Outcome]]) -> None:
        for job, outcome in ended:
            known = self.leases[job.lease]
            self.longest_s = max(self.longest_s, job.ran_s)
            if known.place != POOL:  # its run was abandoned
                self.counts["dropped"] += 1
            elif known.is_lost:
                known.place = OVER
                self.counts["dropped"] += 1
            else:
                known.place, known.ends = ENDED, self.ends(known, job, outcome)

    def ends(self, known: Lease, job: Job, outcome: Outcome) -> tuple[End, str]:
        if known.is_cancelled:
            return End(), "cancelled"
        is_stopped = self.stage >= WorkerStage.ABANDONING and isinstance(outcome, ChildLost)
        if self.stage >= WorkerStage.INTERRUPTING and job.cancelled and isinstance(outcome, AttemptFailed):
            is_stopped = outcome.error_info.type == "SoftTimeLimit"
        if is_stopped:
            return known.back(), "given_back"
        self.counts["failed"] += isinstance(outcome, AttemptFailed) or getattr(outcome, "counts", False)
        end = known.outcome(outcome, self.bench.now_ms())
        return end, "done" if end.where in ("", "dead") else "runs again"

    # -- what comes out ----------------------------------------------------------------------------------------------

    def on_request(self, source: JobSource, count: int) -> None:
        self.check(count >= 0, "less than nothing is asked for")
        self.asked[source] = count

    def on_submit(self, job: Job, free_slots: int) -> None:
        known = self.leases[job.lease]
        self.check(known.place in (ARRIVED, WAITING), "a job is with the pool once", known)
        self.check(not known.is_lost and known.locked_until > self.now, "a job starts with a lock", known, self.now)
        self.check(known.admission(self.bench.now_ms()) == "run", "a job starts when it may", known)
        self.check(free_slots > 0, "a job is submitted to a free slot")
        self.check(not self.is_told_of(known), "a cancelled job does not start", known)
        self.check(self.stage is WorkerStage.WORKING, "a job starts while its worker works")
        if known.is_suspect and not self.attributes_crashes:
            others = [each for each in self.at(POOL) if each.lease.source == known.lease.source]
            self.check(not others, "in a pool inside the process a suspect is alone of its queue", known, others)
        known.place, known.submitted_at, known.renewed_at = POOL, self.now, self.now
        if known.lease.source.kind is SourceKind.DUE:
            self.due_first_until = float("-inf")

    def on_recall(self, jobs: Sequence[Job]) -> None:
        for known in (self.leases[job.lease] for job in jobs):
            known.place, known.recalled_at = OVER if known.is_lost else WAITING, self.now

    def on_renew(self, leases: Sequence[JobLease]) -> None:
        known = {self.leases[lease] for lease in leases}
        here = {each for each in self.at(POOL, FINISHING) if not each.is_lost}
        self.check(len(known) == len(leases), "each lease is renewed once")
        self.check(here <= known, "what runs or finishes is renewed", here - known)
        more = {each for each in known - here if each.place != ARRIVED}
        self.check(not more, "nothing else is renewed, above all no buffered job", more)
        for each in known:
            each.locked_until, each.renewed_at = self.now + LOCK_S, self.now

    def on_finish(self, endings: Sequence[Ending], slots: int) -> None:
        for ending in endings:
            known, end = self.leases[ending.lease], end_of(ending)
            self.check(known.place not in (FINISHING, OVER), "a lease ends once", known, end)
            is_live = not known.is_lost and known.locked_until > self.now
            self.check(is_live, "nothing is published of a job whose lock is lost", known, end)
            allowed = self.allowed(known, slots)
            self.check(end in allowed, "a lease ends as its outcome says", known, end, allowed)
            self.counts[allowed.get(end, "unexpected")] += 1
            if known.place == WAITING and known.lease.source.kind is SourceKind.DUE and end == known.back():
                self.due_first_until = float("inf")
            self.counts["dead"] += end.where == "dead"
            if known.place in (ARRIVED, WAITING):
                known.renewed_at = self.now
            known.place = FINISHING

    def allowed(self, known: Lease, slots: int) -> dict[End, str]:
        """How a lease may end now, and what that is counted as."""
        if known.place == ENDED:
            return dict([known.ends])
        if known.place == POOL:  # threads cannot be killed: their jobs are given back while they run
            is_abandoned = self.stage >= WorkerStage.ABANDONING and not self.attributes_crashes
            end = (End(), "cancelled") if known.is_cancelled else (known.back(), "given_back")
            return dict([end]) if is_abandoned else {}
        if self.is_told_of(known):
            return {End(): "cancelled"}
        admission = known.admission(self.bench.now_ms())
        if isinstance(admission, End) and known.place == ARRIVED:
            return {admission: "refused"}
        ends = {} if isinstance(admission, str) else {admission: "refused"}
        waited_s = self.now - known.leased_at
        may_go_back = self.stage >= WorkerStage.DRAINING or self.is_degraded
        may_go_back = may_go_back or waited_s >= THIRD_S or self.is_stuck(slots, STUCK_S, self.now)
        return {**ends, known.back(): "given_back"} if may_go_back else ends

    def on_replaced(self, ending: Ending, other: Ending) -> None:
        known = self.leases[ending.lease]
        assert known.job is not None
        self.check(known.place == FINISHING and not known.is_lost, "a result is replaced before its lease ends", known)
        cause = "error" if known.job.name == "note" else "error-not-listed"
        self.check(end_of(other) == known.dead(cause), "a job whose result is too large is dead", end_of(other))
        self.counts.update(("failed", "dead"))

    def on_started_records(self, records: Sequence[OutgoingRecord]) -> None:
        live = {each.job.id.encode() for each in self.at(POOL, ENDED) if each.job is not None and not each.is_lost}
        self.check({record.key for record in records} <= live, "only a job with a lock is recorded as started")

    def on_over(self, leases: Sequence[JobLease]) -> None:
        for known in (self.leases[lease] for lease in leases):
            self.check(known.place == FINISHING, "what is over was finishing", known)
            known.place = OVER
            self.counts["unsettled"] += known.is_lost

    def on_drained(self) -> None:
        self.is_drained = True

    def on_close(self) -> None:
        """The worker leaves: with nothing, or because its time is over."""
        here = [each for each in self.leases.values() if each.place != OVER and not each.is_lost]
        may_leave = self.stage >= WorkerStage.DRAINING and self.is_drained and not here
        self.check(may_leave or self.stage >= WorkerStage.LEAVING, "a worker leaves when nothing is left", here)
        self.stage, self.ends_at = WorkerStage.LEFT, float("inf")


class WatchedEvents:
    """Tells the model what a delivery tells its worker."""

    worker: Worker

    def __init__(self, model: Model) -> None:
        self.model = model

    def leased(self, leases: list[JobLease]) -> None:
        self.model.on_leased(leases, LOCK_S)
        self.worker.leased(leases)

    def lost(self, leases: list[JobLease], reason: str) -> None:
        self.model.on_lost(leases)
        self.worker.lost(leases, reason)

    def replace_result(self, ending: Ending, record: OutgoingRecord) -> Ending:
        other = self.worker.replace_result(ending, record)
        self.model.on_replaced(ending, other)
        return other

    def failed(self, error: KafkaError) -> None:
        if self.model.stage is WorkerStage.WORKING:
            self.model.next_stage()
        self.worker.failed(error)

    def left(self) -> None:
        self.worker.left()


class WatchedDelivery(FakeDelivery):
    """Tells the model what a worker asks of its delivery."""

    model: Model
    pool: WatchedPool

    def request(self, source: JobSource, count: int) -> None:
        self.model.on_request(source, count)
        super().request(source, count)

    def renew(self, leases: Sequence[JobLease]) -> None:
        self.model.on_renew(leases)
        super().renew(leases)

    def publish(self, records: Sequence[OutgoingRecord], done: PublishCallback) -> None:
        self.model.on_started_records(records)
        super().publish(records, done)

    def finish(self, endings: Sequence[Ending], done: FinishCallback) -> None:
        def over(leases: list[JobLease]) -> None:
            self.model.on_over(leases)
            done(leases)

        self.model.on_finish(endings, self.pool.concurrency)
        super().finish(endings, over)

    def drain(self, drained: Callable[[], object]) -> None:
        def on_drained() -> None:
            self.model.on_drained()
            drained()

        super().drain(on_drained)

    def close(self) -> None:
        self.model.on_close()
        super().close()


class WatchedPool(ManualPool):
    """A pool whose jobs also begin when the test says so, if it ``is_slow``: only what has begun cannot be recalled."""

    model: Model
    is_slow = False

    def __init__(self, concurrency: int, wake: Callable[[], None]) -> None:
        super().__init__(concurrency, wake)
        self.begun: list[Job] = []

    def begin_some(self) -> None:
        for job in self.jobs:
            if job not in self.begun and len(self.begun) < self.concurrency:
                self.begun.append(job)
                self.begin(job)

    def submit(self, job: Job) -> None:
        self.model.on_submit(job, self.free_slots)
        super().submit(job)
        if not self.is_slow:
            self.begin_some()

    def end(self, job: Job, outcome: Outcome, ran_s: float = 0.001) -> None:
        self.begun.remove(job)
        super().end(job, outcome, ran_s)
        if not self.is_slow:
            self.begin_some()

    def finished(self, timeout: float = 0.0) -> list[tuple[Job, Outcome]]:
        ended = super().finished(timeout)
        self.model.on_outcomes(ended)
        return ended

    def recall(self) -> list[Job]:
        back = [job for job in self.jobs if job not in self.begun]
        self.jobs = [job for job in self.jobs if job in self.begun]
        self.model.on_recall(back)
        return back

    def cancel(self, job: Job) -> None:
        """A pool of processes returns at once what no child has."""
        super().cancel(job)
        if self.model.is_told_of(self.model.leases[job.lease]):
            self.model.on_cancelled_in_pool(job)
        if self.has_processes and job in self.jobs and job not in self.begun:
            self.jobs.remove(job)
            self._ended.append((job, LockLost()))
            self._wake()


class LoopErrors(logging.Handler):
    """Notes the exceptions of callbacks, which the loop logs."""

    def __init__(self, model: Model) -> None:
        super().__init__(logging.ERROR)
        self.model = model

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.model.check(False, f"{record.getMessage()}: {record.exc_info[1]!r}")
