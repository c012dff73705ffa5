"""Tests of ``kafka.tasks.pools.task_forks``: a process that a task forks in the worker's own never becomes a second
worker."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka.tasks.pools import task_forks
from kafka.tasks.rules.outcome import JobSucceeded
from test.support.waiting import until
from test.tasks.pools.test_pools import DEADLINE_S, Bench

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),  # that is what the tests are about
]

IN_PROCESS = ["inline", "threads", "asyncio"]


@pytest.fixture(params=IN_PROCESS)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    bench = Bench(request.param, 1)
    yield bench
    bench.stop(0)


@pytest.fixture
def ended(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], int]]:
    """How a copy has ended: the call with its process id. Whatever it does with the pool is a line on a socket."""
    ours, theirs = socket.socketpair()
    me = os.getpid()

    def send_from_fork(word: bytes) -> None:
        if os.getpid() != me:
            theirs.send(word)

    bench.app.success_handler(lambda job: send_from_fork(b"success"))
    bench.app.error_handler(lambda job, kill_signal, exc_info: send_from_fork(b"error"))
    monkeypatch.setattr(bench, "_wake", lambda: send_from_fork(b"wake"))

    def wait(pid: int) -> int:
        code = end_of(pid)
        ours.setblocking(False)
        with pytest.raises(BlockingIOError):
            ours.recv(100)
        return code

    yield wait
    ours.close()
    theirs.close()


def end_of(pid: int) -> int:
    statuses: list[int] = []

    def has_ended() -> bool:
        ended, status = os.waitpid(pid, os.WNOHANG)
        statuses.extend([status] if ended else [])
        return bool(ended)

    try:
        until(has_ended, "the copy ends", within_s=DEADLINE_S)
    finally:
        if not statuses:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(statuses[0])


def run(bench: Bench, function: Callable[..., Any]) -> int:
    """What the original's run of it returns."""
    job = bench.job(function)
    bench.submit(job)
    outcome = bench.outcomes(1)[job]
    assert isinstance(outcome, JobSucceeded)
    return int(outcome.value)


def test_a_copy_that_comes_back_from_its_task_ends_and_the_original_goes_on(
    bench: Bench, ended: Callable[[int], int]
) -> None:
    assert ended(run(bench, os.fork)) == 0
    assert run(bench, lambda: 7) == 7


@pytest.mark.parametrize(("error", "code"), [(SystemExit(5), 5), (ValueError("in the copy"), 1)])
def test_a_copy_ends_with_the_exit_code_of_a_process_of_its_own(
    bench: Bench, ended: Callable[[int], int], error: BaseException, code: int
) -> None:
    def forks() -> int:
        forked = os.fork()
        if forked == 0:
            raise error
        return forked

    assert ended(run(bench, forks)) == code


@pytest.mark.parametrize("bench", ["asyncio"], indirect=True)
@pytest.mark.parametrize("waits", [False, True])
def test_a_copy_of_a_coroutine_ends_as_it_returns_and_where_it_would_wait(
    bench: Bench, ended: Callable[[int], int], waits: bool, tmp_path: Path
) -> None:
    async def forks() -> int:
        forked = os.fork()
        if forked == 0 and waits:
            await asyncio.sleep(0)
            (tmp_path / "went_on").touch()
        return forked

    assert ended(run(bench, forks)) == int(waits)
    assert not (tmp_path / "went_on").exists()


def test_coroutines_wait_catch_and_clean_up_as_ever() -> None:
    bench = Bench("asyncio", 1)
    seen: list[str] = []

    async def inner() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            seen.append("cleaned up")

    async def outer() -> int:
        await asyncio.sleep(0)
        try:
            await asyncio.wait_for(inner(), 0.001)
        except asyncio.TimeoutError:
            seen.append("caught")
        return 3

    assert run(bench, outer) == 3
    assert seen == ["cleaned up", "caught"]
    bench.stop(0)


def test_a_run_that_begins_in_a_forked_process_is_no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_forks, "fork_count", task_forks.fork_count + 1)
    bench = Bench("inline", 1)
    assert run(bench, lambda: 2) == 2
