"""Tests of ``kafka.tasks.worker.dump``: what SIGUSR1 writes. The signal itself: ``test_driver.py``."""

from __future__ import annotations

import pytest

from kafka.tasks import App
from kafka.tasks.delivery.base import JobLease, JobSource
from kafka.tasks.pools import make_pool
from kafka.tasks.pools.base import ChildSnapshot, Pool
from kafka.tasks.pools.runner import Job
from kafka.tasks.pools.settings import PoolSettings
from kafka.tasks.worker.dump import dump
from kafka.tasks.worker.shutdown import WorkerStage
from test.tasks.fakes import a_job


class Dumping:
    """A worker with two jobs, of which a child has begun the first."""

    stage = WorkerStage.WORKING

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        task = App("shop").task(name="work")(lambda: None)
        self.jobs = []
        for envelope in (a_job("work"), a_job("work")):
            self.jobs.append(Job(JobLease(JobSource("q", "shop.q"), envelope.value, [], 1), envelope, task))
        self.pool: Pool = make_pool("inline", PoolSettings(), lambda: None)
        begun = ChildSnapshot(812, 3, "busy", self.jobs[0].envelope.id, "work", 4.0, 44 << 20, 7)
        monkeypatch.setattr(self.pool, "children", lambda: [begun])

    def statistics(self) -> dict[str, int]:
        return {"done": 7}

    def running(self) -> list[Job]:
        return self.jobs


def test_a_job_that_a_child_runs_is_reported_once_with_its_age(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Dumping(monkeypatch)
    first, second = (job.envelope.id for job in worker.jobs)
    dump(worker, 10.0)
    assert caplog.text.count(first) == 1
    assert f"child 812 (generation 3): busy, 7 jobs ended, 44 MiB, runs work {first} for 4.0 s" in caplog.text
    assert f"<Job work {second} attempt 1>: not started" in caplog.text
