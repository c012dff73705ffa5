"""Tests of ``kafka.tasks.serve``: a whole worker on a real loop, over a queue in memory."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from kafka.net.loop import Loop
from kafka.tasks import App, UnknownQueue
from kafka.tasks.serve import check_queues, run_worker
from test.tasks.fakes import FakeBackend


@pytest.mark.parametrize("pool", ["inline", "threads"])
def test_a_worker_runs_jobs_until_it_is_told_to_stop(app: App, backend: FakeBackend, pool: str) -> None:
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


def test_queues_are_those_of_the_app_when_none_is_named(app: App) -> None:
    @app.task(queue="mail")
    def f() -> None: ...

    assert check_queues(app, []) == ["default", "mail"]
    assert check_queues(app, ["mail", "mail"]) == ["mail"]
    with pytest.raises(UnknownQueue, match="did you mean 'mail'"):
        check_queues(app, ["mial"])


def test_an_unknown_queue_stops_before_anything_is_connected() -> None:
    with pytest.raises(UnknownQueue):
        run_worker(App("shop", bootstrap_servers="nowhere:1"), ["mial"])
