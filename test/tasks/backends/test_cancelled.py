"""Cancelled jobs on a broker: what the schedule's owner writes in its transactions, and what workers make of it. A
transactional producer of the test's own stands for the owner."""

from __future__ import annotations

import itertools
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka import KafkaAdminClient, KafkaProducer
from kafka.tasks import App, Context, JobHandle, JobState
from kafka.tasks.backends.kafka.admin import new_topic
from kafka.tasks.format.cancelled import encode_cancelled
from kafka.tasks.format.records import StateRecord, encode
from kafka.tasks.format.topics import TopicDefaults, cancelled_plan
from kafka.testing import EmbeddedBroker, running_worker
from test.support.commands import started_command
from test.support.waiting import until

SOON_S = 30.0
numbers = itertools.count()

WORKER_MODULE = '''
import os, time
from pathlib import Path
from kafka.tasks import App

app = App("{name}", bootstrap_servers="{bootstrap}", partitions=1)
folder = Path(__file__).parent


@app.task(name="hold")
def hold(number):
    with open(folder / f"run-{{number}}", "a") as file:
        file.write(f"{{os.getpid()}} ")
    while not (folder / "go").exists():
        time.sleep(0.01)
    return number


@app.task(name="note")
def note(number):
    return number
'''


class Shop:
    """An app whose jobs run until they are let go or cancelled, and the schedule's owner."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.name = f"shop{next(numbers)}"
        self.app = App(self.name, bootstrap_servers=broker.bootstrap, partitions=1)
        self.runs: list[int] = []
        self.gate = threading.Event()
        self.saw_cancelled = threading.Event()

        @self.app.task(name="hold", bind=True)
        def hold(ctx: Context, number: int) -> int:
            self.runs.append(number)
            while not self.gate.wait(0.005):
                if ctx.cancelled:
                    self.saw_cancelled.set()
                    break
            return number

        @self.app.task(name="note")
        def note(number: int) -> int:
            self.runs.append(number)
            return number

        self.hold, self.note = hold, note
        self.app.backend().route("default", True)
        self.owner = KafkaProducer(
            bootstrap_servers=broker.bootstrap, transactional_id=f"{self.name}.owner-of-the-test", acks="all"
        )
        self.owner.init_transactions()
        self.bootstrap = broker.bootstrap

    def create_topic(self) -> None:
        """As an owner or a worker does when it starts."""
        with KafkaAdminClient(bootstrap_servers=self.bootstrap) as admin:
            admin.create_topics([new_topic(cancelled_plan(self.app.names, TopicDefaults()))], wait_for_metadata=True)

    def cancel(self, *jobs: JobHandle[int], terminate: bool = False, commit: bool = True) -> None:
        """What an owner writes for jobs that have left the schedule."""
        names, owner = self.app.names, self.owner
        owner.begin_transaction()
        for job in jobs:
            record = StateRecord(job.id, JobState.REVOKED, value=b'{"reason":"cancelled"}')
            key, value, headers = encode(record)
            partition = int(job.id[12:16], 16)
            owner.send(names.results, value, key, headers, partition)
            key, headers = encode_cancelled(job.id, terminate)
            owner.send(names.cancelled, b"", key, headers, 0)
        owner.commit_transaction() if commit else owner.abort_transaction()

    def close(self) -> None:
        self.gate.set()
        self.owner.close()
        self.app.close()


@pytest.fixture
def shop(broker: EmbeddedBroker) -> Iterator[Shop]:
    made = Shop(broker)
    yield made
    made.close()


def test_a_job_in_its_queue_that_was_cancelled_before_the_worker_started_does_not_run(shop: Shop) -> None:
    shop.create_topic()
    first, second = shop.note.delay(1), shop.note.delay(2)
    shop.app.flush(SOON_S)
    shop.cancel(first)
    with running_worker(shop.app) as worker:
        assert second.result(SOON_S) == 2
        until(lambda: worker.counts["cancelled"] == 1, "the cancelled job is accepted")
    assert shop.runs == [2]
    assert first.status() is JobState.REVOKED


def test_jobs_that_wait_in_the_worker_and_in_the_queue_do_not_start(shop: Shop) -> None:
    with running_worker(shop.app) as worker:
        running = shop.hold.delay(0)
        until(lambda: shop.runs == [0], "the first job runs")
        jobs = [shop.note.delay(number) for number in (1, 2, 3)]
        shop.app.flush(SOON_S)
        shop.cancel(jobs[0], jobs[2])
        until(lambda: len(worker._worker._cancelled) == 2, "the worker knows of the cancellation")
        shop.gate.set()
        assert (running.result(SOON_S), jobs[1].result(SOON_S)) == (0, 2)
        until(lambda: worker.counts["cancelled"] == 2, "both are accepted")
    assert shop.runs == [0, 2]


def test_a_running_job_in_a_thread_sees_that_it_is_cancelled_and_its_outcome_is_dropped(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kafka.tasks.worker.job_log")
    with running_worker(shop.app) as worker:
        job = shop.hold.delay(1)
        until(lambda: shop.runs == [1], "the job runs")
        shop.cancel(job)
        assert shop.saw_cancelled.wait(2.0), "ctx.cancelled is set within two seconds"
        until(lambda: worker.counts["cancelled"] == 1, "its outcome is dropped")
        assert (worker.counts["done"], worker.counts["failed"]) == (0, 0)
        assert shop.note.delay(2).result(SOON_S) == 2
    assert job.status() is JobState.REVOKED
    assert f"hold {job.id} was cancelled while it runs; its outcome is dropped" in caplog.text


def test_a_transaction_that_is_aborted_cancels_nothing(shop: Shop) -> None:
    with running_worker(shop.app) as worker:
        job = shop.hold.delay(1)
        until(lambda: shop.runs == [1], "the job runs")
        shop.cancel(job, commit=False)
        other = shop.hold.delay(2)
        shop.app.flush(SOON_S)
        shop.cancel(other)
        until(lambda: len(worker._worker._cancelled) == 1, "the worker knows of the later cancellation")
        shop.gate.set()
        assert job.result(SOON_S) == 1
        until(lambda: worker.counts["cancelled"] == 1, "the other one is accepted")
    assert shop.runs == [1]


def test_a_worker_starts_while_a_transaction_of_an_owner_is_open(shop: Shop) -> None:
    shop.create_topic()
    job = shop.note.delay(1)
    shop.app.flush(SOON_S)
    shop.owner.begin_transaction()
    key, headers = encode_cancelled(job.id, False)
    shop.owner.send(shop.app.names.cancelled, b"", key, headers, 0).get(SOON_S)
    with running_worker(shop.app):
        assert job.result(SOON_S) == 1
        shop.owner.abort_transaction()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.parametrize("pool", ["prefork", "fork"])
def test_a_running_job_is_ended_with_its_process_when_that_is_asked_for(
    shop: Shop, tmp_path: Path, pool: str
) -> None:
    module = tmp_path / "held_tasks.py"
    module.write_text(WORKER_MODULE.format(name=shop.name, bootstrap=shop.bootstrap))
    command = ("worker", "held_tasks:app", "--pool", pool, "--concurrency", "1")
    with started_command(tmp_path, *command) as (_, log):
        threading.Thread(target=log.read, daemon=True).start()
        job = shop.hold.delay(1)
        file = tmp_path / "run-1"
        until(lambda: file.exists() and file.read_text(), "the job runs")
        pid = int(file.read_text())
        shop.cancel(job, terminate=True)
        until(lambda: not _is_alive(pid), "its process has ended")
        assert shop.note.delay(2).result(SOON_S) == 2
    assert len(file.read_text().split()) == 1
    assert job.status() is JobState.REVOKED


def test_a_cancelled_job_does_not_run_again_when_the_worker_that_runs_it_is_killed(
    shop: Shop, tmp_path: Path
) -> None:
    module = tmp_path / "held_tasks.py"
    module.write_text(WORKER_MODULE.format(name=shop.name, bootstrap=shop.bootstrap))
    job = shop.hold.delay(1)
    with started_command(tmp_path, "worker", "held_tasks:app", "--pool", "threads") as (process, log):
        threading.Thread(target=log.read, daemon=True).start()
        until(lambda: (tmp_path / "run-1").exists(), "the job runs")
        shop.cancel(job)
        process.send_signal(signal.SIGKILL)
        process.wait(SOON_S)
    with running_worker(shop.app) as worker:
        until(lambda: worker.counts["cancelled"] == 1, "the job is delivered again and accepted")
        assert shop.note.delay(2).result(SOON_S) == 2
    assert shop.runs == [2]
    assert job.status() is JobState.REVOKED


def test_a_worker_that_may_not_read_which_jobs_are_cancelled_runs_them_and_says_so(
    shop: Shop, broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    shop.create_topic()
    job = shop.note.delay(1)
    shop.app.flush(SOON_S)
    refused = broker.faults.answer("Fetch", "TOPIC_AUTHORIZATION_FAILED", topic=shop.app.names.cancelled)
    with refused, running_worker(shop.app):
        assert job.result(SOON_S) == 1
    assert "cannot read which jobs are cancelled; running also those that are" in caplog.text


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
