"""Tests of ``kafka.tasks.health.job_metrics``: what is counted of jobs, and what a scrape gets of it."""

from __future__ import annotations

import pytest

from kafka.tasks import App
from kafka.tasks.delivery.base import JobLease, JobSource
from kafka.tasks.format.envelope import Envelope
from kafka.tasks.format.job_id import make_id
from kafka.tasks.health.job_metrics import JobMetrics, TaskMetrics
from kafka.tasks.health.metrics import FAMILIES, MetricsText, WorkerScrape
from kafka.tasks.health.snapshot import WorkerSnapshot
from kafka.tasks.pools.runner import Job
from kafka.tasks.rules.decide import JobHistory, JobPolicy, decide
from kafka.tasks.rules.outcome import (
    AttemptFailed,
    ChildLost,
    ErrorInfo,
    JobCancelled,
    JobExpired,
    JobSnoozed,
    JobSucceeded,
    NotStarted,
    Outcome,
)

NOW_MS = 1_700_000_000_000
OK = JobSucceeded(b"")
ERROR = AttemptFailed(ErrorInfo("OSError", "disk"))
APP = App("shop", bootstrap_servers="fake://")


@APP.task(name="task")
def task() -> None: ...


class Bench:
    """Metrics whose time stands still."""

    def __init__(self) -> None:
        self.metrics = JobMetrics(lambda: NOW_MS)

    def job(
        self, name: str = "mail.send", ran_s: float = 0.0, queue: str = "mail", age_s: float = 0.0, attempt: int = 1
    ) -> Job:
        job_id = make_id(NOW_MS - round(age_s * 1000), 0, b"\1" * 8)
        job = Job(JobLease(JobSource(queue, f"shop.{queue}"), b"", [], 1), Envelope(job_id, name, b"", attempt), task)
        job.ran_s = ran_s
        return job

    def decide(self, outcome: Outcome, name: str = "mail.send", attempt: int = 1) -> None:
        policy, envelope = JobPolicy(max_attempts=2), self.job(name, attempt=attempt).envelope
        decision = decide(outcome, JobHistory(attempt=attempt), policy, NOW_MS)
        self.metrics.on_decided("mail", envelope, outcome, decision, policy, NOW_MS)

    def only(self) -> TaskMetrics:
        (found,) = self.metrics
        return found


def test_each_way_to_end_is_counted_once() -> None:
    bench = Bench()
    bench.metrics.on_ran([(bench.job(), OK), (bench.job(), OK), (bench.job(), ERROR)])
    bench.decide(ERROR, attempt=2)
    for outcome in (ERROR, JobSnoozed(1000), JobCancelled("no"), JobExpired(), ChildLost("oom")):
        bench.decide(outcome)
    bench.decide(NotStarted())
    bench.metrics.on_locks_lost([bench.job()], "disconnected")
    assert bench.only().endings == {
        "succeeded": 2, "retried": 1, "snoozed": 1, "failed": 1, "revoked": 1, "expired": 1, "lost": 2
    }  # fmt: skip


def test_waits_and_runs_are_in_the_bucket_whose_bound_they_reach() -> None:
    bench = Bench()
    ages_and_runs = [(0.002, 0.001), (0.2, 0.1), (30.0, 20.0), (90_000.0, 8000.0)]
    bench.metrics.on_ran([(bench.job(age_s=age_s, ran_s=ran_s), OK) for age_s, ran_s in ages_and_runs])
    run, wait = bench.only().run, bench.only().wait
    #                  1ms  5  10  50  .1 .5  1  5 10 60 5m 30m 2h more
    assert run.counts == [1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 1]
    assert wait.counts == [1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 1]
    assert run.total_s == pytest.approx(8020.101)
    assert wait.total_s == pytest.approx(0.001 + 0.1 + 10.0 + 82_000.0)


def test_failed_runs_take_time_and_further_attempts_do_not_wait() -> None:
    bench = Bench()
    bench.metrics.on_ran([(bench.job(age_s=5.0, ran_s=1.0), ERROR), (bench.job(age_s=9.0, ran_s=1.0, attempt=2), OK)])
    assert (sum(bench.only().run.counts), bench.only().run.total_s) == (2, 2.0)
    assert (sum(bench.only().wait.counts), bench.only().wait.total_s) == (1, 4.0)


def test_a_run_that_has_not_begun_took_no_time_and_a_clock_that_is_behind_no_negative_one() -> None:
    bench = Bench()
    bench.metrics.on_ran([(bench.job(age_s=5.0, ran_s=0.0), ChildLost("signal"))])
    assert (sum(bench.only().run.counts), sum(bench.only().wait.counts)) == (0, 0)
    bench.metrics.on_ran([(bench.job(age_s=-5.0, ran_s=1.0), OK)])
    assert (sum(bench.only().wait.counts), bench.only().wait.total_s) == (1, 0.0)


def test_tasks_and_queues_are_told_apart_within_one_turn() -> None:
    bench = Bench()
    jobs = [
        bench.job("a", 1.0, age_s=3.0), bench.job("b", 2.0, age_s=3.0), bench.job("a", 4.0, "low", age_s=6.0),
        bench.job("a", 8.0, age_s=9.0),
    ]  # fmt: skip
    bench.metrics.on_ran([(job, OK) for job in jobs])
    found = {(each.queue, each.task): (each.run.total_s, each.wait.total_s) for each in bench.metrics}
    assert found == {("mail", "a"): (9.0, 3.0), ("mail", "b"): (2.0, 1.0), ("low", "a"): (4.0, 2.0)}


def test_names_from_records_cannot_make_any_number_of_series() -> None:
    bench = Bench()
    for number in range(300):
        bench.decide(JobExpired(), f"task{number}")
    series = list(bench.metrics)
    assert len(series) == 101
    assert (series[-1].task, series[-1].endings["expired"]) == ("other", 200)
    bench.metrics.on_ran([(bench.job("task0"), OK)])
    assert (series[0].task, series[0].endings["succeeded"]) == ("task0", 1)


def test_prometheus_gets_counters_and_cumulative_histograms() -> None:
    parser = pytest.importorskip("prometheus_client.parser", reason="needs the extra metrics")
    bench = Bench()
    bench.metrics.on_ran([(bench.job(age_s=2.5, ran_s=0.5), OK), (bench.job(age_s=2.0, ran_s=0.003), OK)])
    bench.decide(ERROR)
    scrape = WorkerScrape(WorkerSnapshot("web:1"), list(bench.metrics))
    _, text = MetricsText(FAMILIES, lambda: scrape).text("")
    families = {each.name: each for each in parser.text_string_to_metric_families(text.decode())}
    counted = families["kafka_tasks_job_outcomes"].samples
    assert {each.name for each in counted} == {"kafka_tasks_job_outcomes_total"}
    assert {(each.labels["queue"], each.labels["task"]) for each in counted} == {("mail", "mail.send")}
    outcomes = {each.labels["outcome"]: each.value for each in counted}
    assert (outcomes["succeeded"], outcomes["retried"], outcomes["failed"]) == (2, 1, 0)
    for name, bounds in (("run", {"0.001": 0, "0.005": 1, "0.1": 1, "0.5": 2, "+Inf": 2}), ("wait", {"1.0": 0})):
        family = families[f"kafka_tasks_job_{name}_seconds"]
        assert family.type == "histogram"
        by_bound = {each.labels["le"]: each.value for each in family.samples if each.name.endswith("_bucket")}
        assert {bound: by_bound[bound] for bound in bounds} == bounds
        assert {(each.labels["queue"], each.labels["task"]) for each in family.samples} == {("mail", "mail.send")}
        (total,) = [each.value for each in family.samples if each.name.endswith("_sum")]
        assert total == pytest.approx({"run": 0.503, "wait": 3.997}[name])
        assert [each.value for each in family.samples if each.name.endswith("_count")] == [2]
