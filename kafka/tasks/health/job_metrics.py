"""Counts of a worker's jobs by queue, task and ending, and histograms of how long they waited and ran.

A :class:`kafka.tasks.worker.observer.JobObserver` that only adds to numbers; :mod:`kafka.tasks.health.metrics` reads
them when a scrape comes. A worker has one only while it serves metrics. Queues and tasks with series of their own are
bounded (:data:`kafka.tasks.worker.observer.MOST_TASKS`), the others share the task ``other``: a label's value is a time
series of its own, and a producer can put any name into a record.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from kafka.tasks.format.envelope import Envelope
from kafka.tasks.format.job_id import time_of
from kafka.tasks.pools.runner import Job
from kafka.tasks.rules.decide import JobDecision, JobPolicy
from kafka.tasks.rules.outcome import JobSucceeded, Outcome
from kafka.tasks.worker.observer import ENDINGS, LOST, MOST_TASKS, OTHER_TASKS, REVOKED, SUCCEEDED, ending_of

BUCKETS_S: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 1800.0, 7200.0)
"""Upper bounds of the histograms' buckets, in seconds; one more is without a bound."""


class Histogram:
    """Durations in seconds. ``counts``: of each bucket alone, ``total_s``: all together."""

    __slots__ = ("counts", "total_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.total_s = 0.0


class TaskMetrics:
    """Those of one task in one queue. ``endings`` by :data:`kafka.tasks.worker.observer.ENDINGS`; ``wait``: from the
    enqueue to the first start, ``run``: of each run that ended here."""

    __slots__ = ("endings", "queue", "run", "task", "wait")

    def __init__(self, queue: str, task: str) -> None:
        self.queue = queue
        self.task = task
        self.endings = dict.fromkeys(ENDINGS, 0)
        self.wait = Histogram()
        self.run = Histogram()


class JobMetrics:
    """All of a worker's. ``now_ms``: the broker's time, which ids carry."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._tasks: dict[str, dict[str, TaskMetrics]] = {}  # by queue, then by task
        self._count = 0

    def __iter__(self) -> Iterator[TaskMetrics]:
        for tasks in self._tasks.values():
            yield from tasks.values()

    def on_received(self, jobs: Sequence[Job]) -> None:
        """See :class:`kafka.tasks.worker.observer.JobObserver`."""

    def on_ran(self, ended: Sequence[tuple[Job, Outcome]]) -> None:
        """See :class:`kafka.tasks.worker.observer.JobObserver`. A job waits once: other attempts wait for what their
        policy says. All jobs of a turn are taken to have ended now.

        Jobs of one turn are mostly of one task, and of one millisecond where they are many: what is the same as for the
        job before is not looked up again."""
        now_ms = self._now_ms()
        queue = task = ""
        time_prefix = "none"
        age_s = 0.0
        for job, outcome in ended:
            envelope, ran_s = job.envelope, job.ran_s
            source = job.lease.source
            if envelope.name != task or source.queue != queue:
                task, queue = envelope.name, source.queue
                metrics = self._metrics_of(queue, task)
                endings, run, wait = metrics.endings, metrics.run, metrics.wait
            if type(outcome) is JobSucceeded:
                endings[SUCCEEDED] += 1
            if ran_s > 0:  # else it had not begun
                run.counts[bisect_left(BUCKETS_S, ran_s)] += 1
                run.total_s += ran_s
                if envelope.attempt == 1:
                    if not envelope.id.startswith(time_prefix):
                        time_prefix = envelope.id[:12]  # the digits of the time
                        age_s = (now_ms - time_of(envelope.id)) / 1000
                    waited_s = max(0.0, age_s - ran_s)
                    wait.counts[bisect_left(BUCKETS_S, waited_s)] += 1
                    wait.total_s += waited_s

    def on_decided(
        self,
        queue: str,
        envelope: Envelope,
        outcome: Outcome,
        decision: JobDecision,
        policy: JobPolicy,
        now_ms: int,
    ) -> None:
        """See :class:`kafka.tasks.worker.observer.JobObserver`."""
        ending = ending_of(outcome, decision)
        if ending is not None:
            self._metrics_of(queue, envelope.name).endings[ending] += 1

    def on_cancelled(self, jobs: Sequence[tuple[str, Envelope]], is_running: bool) -> None:
        """See :class:`kafka.tasks.worker.observer.JobObserver`."""
        for queue, envelope in jobs:
            self._metrics_of(queue, envelope.name).endings[REVOKED] += 1

    def on_locks_lost(self, jobs: Sequence[Job], reason: str) -> None:
        """See :class:`kafka.tasks.worker.observer.JobObserver`."""
        for job in jobs:
            self._metrics_of(job.lease.source.queue, job.envelope.name).endings[LOST] += 1

    def _metrics_of(self, queue: str, task: str) -> TaskMetrics:
        tasks = self._tasks.get(queue)
        if tasks is None:
            tasks = self._tasks[queue] = {}
        found = tasks.get(task)
        if found is None:
            if self._count >= MOST_TASKS:
                task = OTHER_TASKS
            found = tasks.get(task)
            if found is None:
                found = tasks[task] = TaskMetrics(queue, task)
                self._count += 1
        return found
