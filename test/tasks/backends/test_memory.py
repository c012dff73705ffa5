"""Tests of ``kafka.tasks.backends.memory``, and of back ends that other packages bring."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from importlib import metadata
from typing import Any

import pytest

from kafka.errors import IllegalArgumentError, IllegalStateError, KafkaConfigurationError
from kafka.tasks import App, JobFailed, JobState, Retry, UnknownQueue, run_worker
from kafka.tasks.backends.base import BACKENDS, Backend, open_backend
from kafka.tasks.backends.memory import MemoryBackend, open_memory
from kafka.tasks.settings import read_settings
from kafka.testing import running_worker

WAIT_S = 20.0


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    """Topics of the test's own."""
    return f"memory://{request.node.name}"


def test_a_worker_in_a_thread_runs_jobs_and_handles_find_their_results(url: str) -> None:
    app = App("shop", bootstrap_servers=url)
    runs: list[int] = []

    @app.task(retry=Retry(max_attempts=2, on=(OSError,)))
    def double(number: int) -> int:
        runs.append(number)
        if runs.count(number) == 1 and number == 3:
            raise OSError("once")
        return 2 * number

    @app.task
    def divide(number: int) -> float:
        return 1 / number

    early = double.delay(1)
    with running_worker(app, concurrency=2):
        jobs = [double.delay(number) for number in range(2, 20)]
        failing = divide.delay(0)
        assert [job.result(WAIT_S) for job in (early, *jobs)] == [2 * number for number in range(1, 20)]
        with pytest.raises(JobFailed, match="division by zero"):
            failing.result(WAIT_S)
        assert app.job(jobs[0].id).result(WAIT_S) == 4
    assert runs.count(3) == 2
    assert jobs[1].status() is JobState.SUCCESS


def test_jobs_outlive_the_connection_of_an_app(url: str) -> None:
    app = App("shop", bootstrap_servers=url)

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    job = add.delay(1, 2)
    app.close()
    with running_worker(app):
        assert job.result(WAIT_S) == 3
    app.flush()


def test_another_url_has_other_topics(url: str) -> None:
    one, other = (App("shop", bootstrap_servers=each).backend() for each in (url, f"{url}2"))
    assert isinstance(one, MemoryBackend) and isinstance(other, MemoryBackend)
    assert one.topics is not other.topics
    assert open_memory("shop", read_settings({"bootstrap_servers": url})).topics is one.topics


def test_waiting_ends_when_its_time_is_up(url: str) -> None:
    app = App("shop", bootstrap_servers=url)

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    assert not add.delay(1, 2).wait(0)


def test_a_queue_that_is_not_declared_must_have_got_something(url: str) -> None:
    app = App("shop", bootstrap_servers=url)
    with pytest.raises(UnknownQueue, match="unknown queue 'mail': nothing has been sent to it at memory://"):
        app.send("send", queue="mail")
    other = App("shop", bootstrap_servers=url, queues=["mail"])
    other.send("send", queue="mail")
    assert len(app.send("send", queue="mail").id) == 32


def test_a_pool_of_processes_is_refused(url: str) -> None:
    app = App("shop", bootstrap_servers=url)
    with pytest.raises(IllegalArgumentError, match="the pool 'prefork' has processes of its own: use 'threads'"):
        run_worker(app, pool="prefork")


def test_a_forked_child_is_refused_where_it_enqueues(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = App("shop", bootstrap_servers=url)

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    add.delay(1, 2)
    app.close()
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    with pytest.raises(IllegalStateError, match="this is its child"):
        add.delay(1, 2)
    with pytest.raises(IllegalStateError, match="this is its child"):
        app.backend()


@pytest.mark.parametrize(
    "look",
    [
        lambda backend: backend.snapshot_reader(),
        lambda backend: backend.dead_log("mail"),
        lambda backend: backend.purge("mail"),
        lambda backend: backend.set_paused("mail", True),
    ],
)
def test_commands_cannot_look_into_the_memory_of_another_process(look: Callable[[Backend], object], url: str) -> None:
    with pytest.raises(KafkaConfigurationError, match="of the app 'shop' are in the memory of one process"):
        look(App("shop", bootstrap_servers=url).backend())


def test_a_waiting_thread_gets_the_result_of_another(url: str) -> None:
    app = App("shop", bootstrap_servers=url)

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    job = add.delay(1, 2)
    results: list[int] = []
    waiting = threading.Thread(target=lambda: results.append(job.result(WAIT_S)))
    waiting.start()
    with running_worker(app, pool="inline"):
        waiting.join(WAIT_S)
    assert results == [3]


# -- back ends of other packages -------------------------------------------------------------------------------------


class Entries:
    """The entry points of installed packages: name -> value."""

    def __init__(self, **values: str) -> None:
        self._values = values

    def __call__(self, *, group: str, name: str) -> list[metadata.EntryPoint]:
        assert group == "kafka.tasks.backends"
        return [metadata.EntryPoint(name, value, group) for each, value in self._values.items() if each == name]


def test_a_back_end_of_another_package_is_found_by_its_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "entry_points", Entries(redis="kafka.tasks.backends.memory:open_memory"))
    backend = open_backend("shop", read_settings({"bootstrap_servers": "redis://elsewhere"}))
    assert isinstance(backend, MemoryBackend)
    assert backend.address == "redis://elsewhere"


@pytest.mark.parametrize(
    ("value", "why"), [("no.such.module:f", "No module named 'no'"), ("kafka.errors:nothing", "no attribute 'nothing'")]
)
def test_one_that_cannot_be_loaded_says_so(value: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "entry_points", Entries(redis=value))
    with pytest.raises(KafkaConfigurationError, match=f"could not load the back end '{value}' .*{why}"):
        open_backend("shop", read_settings({"bootstrap_servers": "redis://elsewhere"}))


@pytest.mark.parametrize("scheme", sorted(BACKENDS))
def test_a_built_in_back_end_asks_for_no_entry_point(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> list[metadata.EntryPoint]:
        raise AssertionError("asked for entry points")

    monkeypatch.setattr(metadata, "entry_points", refuse)
    backend = open_backend("shop", read_settings({"bootstrap_servers": f"{scheme}://nowhere:1"}))
    assert backend.address == f"{scheme}://nowhere:1"
