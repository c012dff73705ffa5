"""Tests of ``kafka.tasks.worker.driver``: a whole worker on a real loop, over a queue in memory."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kafka.errors import IllegalArgumentError
from kafka.net.loop import Loop
from kafka.tasks import App, Context, FinishedJob, JobsNotSent, JobState, PoolSettings, UnknownQueue
from kafka.tasks.worker.driver import check_queues, filled, run_worker
from kafka.tasks.worker.signals import SIGNALS
from kafka.tasks.worker.worker import Worker, WorkerStage
from test.tasks.fakes import FakeBackend

DEADLINE_S = 30.0


@pytest.mark.parametrize("pool", ["asyncio", "inline", "threads"])
def test_a_worker_runs_jobs_until_it_is_stopped(app: App, backend: FakeBackend, pool: str) -> None:
    done: list[int] = []
    enough = threading.Event()

    @app.task
    def note(n: int) -> int:
        done.append(n)
        if len(done) == 100:
            enough.set()
        return n

    jobs = [note.delay(n) for n in range(100)]
    loop = Loop()

    def look() -> None:
        if enough.is_set():
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            loop.call_later(0.005, look)

    backend.queues.clock = loop.clock  # type: ignore[assignment]
    loop.call_later(0.0, look)
    worker = run_worker(app, [], pool, 2, loop)
    loop.close()
    assert sorted(done) == list(range(100))
    assert worker.counts["done"] == 100
    assert sum(job.wait(0) for job in jobs) == 100
    assert backend.is_closed


@pytest.mark.parametrize("is_on", [True, False])
def test_jobs_are_logged_unless_that_is_turned_off(
    app: App, backend: FakeBackend, caplog: pytest.LogCaptureFixture, is_on: bool
) -> None:
    caplog.set_level(logging.INFO, "kafka.tasks")
    loop, workers = Loop(), []

    @app.task(name="last")
    def last() -> None:
        loop.call_soon_threadsafe(lambda: workers[0].stop())

    job = last.delay()
    run_worker(app, [], "threads", 1, loop, workers.append, log_jobs=is_on)
    loop.close()
    lines = [record.message.rpartition(" in ")[0] or record.message for record in caplog.records]
    assert [line for line in lines if job.id in line] == (
        [f"last {job.id} received", f"last {job.id} succeeded"] if is_on else []
    )


def test_a_worker_ends_well_though_a_task_could_not_enqueue_a_job(app: App, backend: FakeBackend) -> None:
    backend.not_sent = JobsNotSent(1, 1, OSError("gone"), "shop.mail")
    loop = Loop()
    worker = run_worker(app, [], "threads", 1, loop, lambda worker: worker.stop())
    loop.close()
    assert worker.error is None
    assert backend.is_closed


def test_a_worker_runs_jobs_under_former_names_with_their_headers(app: App, backend: FakeBackend) -> None:
    seen: list[dict[str, bytes]] = []
    loop = Loop()

    @app.task(name="note", aliases=["shop.note"], bind=True)
    def note(ctx: Context) -> None:
        seen.append(ctx.headers)

    jobs = [app.send(name, headers={"from": name}) for name in ("note", "shop.note")]
    backend.queues.clock = loop.clock  # type: ignore[assignment]

    def look(worker: Worker) -> None:
        if worker.counts["done"] == 2:
            worker.stop()
        else:
            loop.call_later(0.002, look, worker)

    run_worker(app, [], "threads", 1, loop, look)
    loop.close()
    assert sorted(headers["from"] for headers in seen) == [b"note", b"shop.note"]
    assert [job.status() for job in jobs] == [JobState.SUCCESS] * 2


class Signalled:
    """A worker in the main thread with a job that runs until :attr:`gate` opens. ``next`` is done by the loop once the
    condition before it holds.
    """

    def __init__(self, app: App, backend: FakeBackend, pool: str = "threads") -> None:
        self.gate = threading.Event()
        self.started = threading.Event()
        self.loop = Loop()
        self.worker: Worker | None = None
        backend.queues.clock = self.loop.clock  # type: ignore[assignment]
        self._app, self._pool = app, pool

        @app.task
        def wait() -> bool:
            self.started.set()
            return self.gate.wait(DEADLINE_S)

        wait.delay()

    def run(self, *steps: tuple[Callable[[], object], Callable[[], object]]) -> Worker:
        left = list(steps)
        give_up_at = self.loop.time() + DEADLINE_S

        def look() -> None:
            assert self.worker is not None
            if left and left[0][0]():
                left.pop(0)[1]()
            if self.loop.time() > give_up_at:
                self.gate.set()
                self.loop.stop()
            elif left:
                self.loop.call_later(0.002, look)

        def note(worker: Worker) -> None:
            self.worker = worker

        self.loop.call_later(0.0, look)
        worker = run_worker(self._app, [], self._pool, 1, self.loop, note)
        self.loop.close()
        assert left == []
        return worker

    def stage(self) -> WorkerStage:
        assert self.worker is not None
        return self.worker.stage

    def slots(self) -> int:
        assert self.worker is not None
        return self.worker.statistics()["pool_concurrency"]


def send(signum: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), signum)


def test_sighup_is_a_stop_that_waits_and_sigterm_goes_further(app: App, backend: FakeBackend) -> None:
    run = Signalled(app, backend)
    seen: list[WorkerStage] = []

    def again() -> None:
        seen.append(run.stage())
        os.kill(os.getpid(), signal.SIGHUP)
        run.loop.call_later(0.05, lambda: seen.append(run.stage()))
        run.loop.call_later(0.06, lambda: os.kill(os.getpid(), signal.SIGTERM))

    worker = run.run(
        (run.started.is_set, send(signal.SIGHUP)),
        (lambda: run.stage() is WorkerStage.DRAINING, again),
        (lambda: run.stage() is WorkerStage.INTERRUPTING, run.gate.set),
    )
    assert seen == [WorkerStage.DRAINING] * 2
    assert worker.stage is WorkerStage.LEFT


def test_a_signal_that_a_wrapper_sends_twice_stops_the_worker_in_peace(
    app: App, backend: FakeBackend, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kafka.tasks")
    run = Signalled(app, backend)
    worker = run.run(
        (run.started.is_set, send(signal.SIGTERM)),
        (lambda: run.stage() is WorkerStage.DRAINING, send(signal.SIGTERM)),
        (lambda: "ignored a second SIGTERM" in caplog.text, run.gate.set),
    )
    assert "INTERRUPTING" not in caplog.text
    assert worker.counts["done"] == 1


@pytest.mark.parametrize("pool", ["asyncio", "threads"])
def test_the_error_handler_of_a_thread_that_is_stuck_is_called_once_at_its_hard_limit(
    app: App, backend: FakeBackend, pool: str
) -> None:
    gate = threading.Event()
    threads: list[threading.Thread] = []
    calls: list[tuple[str, object, int | None, str, str]] = []

    @app.error_handler
    def note(job: FinishedJob, kill_signal: int | None, exc_info: Any) -> None:
        calls.append((job.id, job.args, kill_signal, exc_info[0].__name__, str(exc_info[1])))

    @app.task(timeout=0.5)
    def stuck(number: int) -> None:
        threads.append(threading.current_thread())
        gate.wait(DEADLINE_S)

    run = Signalled(app, backend, pool)
    run.gate.set()
    job = stuck.delay(7)
    run.run(
        (lambda: calls, gate.set),
        (lambda: not threads[0].is_alive(), send(signal.SIGTERM)),
    )
    assert calls == [(job.id, [7], None, "TimeLimit", "it ran for longer than its timeout of 0.5 s")]


def test_sigttin_and_sigttou_change_the_number_of_slots(app: App, backend: FakeBackend) -> None:
    run = Signalled(app, backend, "asyncio")
    run.run(
        (run.started.is_set, send(signal.SIGTTIN)),
        (lambda: run.slots() == 2, send(signal.SIGTTOU)),
        (lambda: run.slots() == 1, send(signal.SIGTERM)),
        (lambda: run.stage() is WorkerStage.DRAINING, run.gate.set),
    )


def test_sigusr1_writes_state_jobs_and_stacks_to_the_log(
    app: App, backend: FakeBackend, caplog: pytest.LogCaptureFixture
) -> None:
    run = Signalled(app, backend)
    run.run(
        (run.started.is_set, send(signal.SIGUSR1)),
        (lambda: "state of this worker" in caplog.text, send(signal.SIGTERM)),
        (lambda: run.stage() is WorkerStage.DRAINING, run.gate.set),
    )
    assert "state of this worker: WORKING; leased 1" in caplog.text
    assert "wait" in caplog.text
    assert "attempt 1>: for " in caplog.text
    assert "thread kafka-task:" in caplog.text
    assert "self.gate.wait(DEADLINE_S)" in caplog.text


def test_each_signal_of_the_table_is_put_back_when_the_worker_has_left(app: App, backend: FakeBackend) -> None:
    before = {name: signal.getsignal(getattr(signal, name)) for name in SIGNALS}
    run = Signalled(app, backend)
    run.gate.set()
    run.run((run.started.is_set, send(signal.SIGTERM)))
    assert {name: signal.getsignal(getattr(signal, name)) for name in SIGNALS} == before


def test_a_workers_limit_that_makes_no_sense_beside_a_tasks_is_refused(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    app.task(name="careful", soft_timeout=30)(lambda: None)
    with pytest.raises(IllegalArgumentError, match="soft_timeout of careful \\(30 s\\) must be below"):
        filled(PoolSettings(timeout=20), app)
    app.task(name="quick", timeout=5)(lambda: None)
    assert filled(PoolSettings(soft_timeout=10), app).app is app
    assert "for task quick: its timeout" in caplog.text


def test_queues_are_those_of_the_app_when_none_is_named(app: App) -> None:
    @app.task(queue="mail")
    def f() -> None: ...

    assert check_queues(app, []) == ["default", "mail"]
    assert check_queues(app, ["mail", "mail"]) == ["mail"]
    with pytest.raises(UnknownQueue, match="did you mean 'mail'"):
        check_queues(app, ["mial"])
    with pytest.raises(IllegalArgumentError, match=r"a list of queue names, such as \['mail'\], not 'mail'"):
        check_queues(app, "mail")


def test_an_unknown_queue_stops_before_anything_is_connected() -> None:
    with pytest.raises(UnknownQueue):
        run_worker(App("shop", bootstrap_servers="nowhere:1"), ["mial"])
