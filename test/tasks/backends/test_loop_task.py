"""Coroutines on a loop: they end by themselves, by an error, or where they wait when they are cancelled."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from kafka.future import Future
from kafka.net.loop import Loop
from kafka.tasks.backends.kafka.loop_task import LoopTask, next_turn, within


class Task:
    """A coroutine under way; ``ends``: what it ended with."""

    def __init__(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.ends: list[BaseException | None] = []
        self.task = LoopTask(coroutine, self.ends.append)


def test_it_goes_on_when_what_it_waits_for_is_done_and_raises_its_error() -> None:
    first, second, seen = Future[int](), Future[int](), list[object]()

    async def run() -> None:
        seen.append(await first)
        try:
            await second
        except OSError as error:
            seen.append(error)
        raise ValueError("the end")

    task = Task(run())
    assert seen == []
    first.success(1)
    assert seen == [1]
    error = OSError()
    second.failure(error)
    assert seen == [1, error]
    assert [str(end) for end in task.ends] == ["the end"]


def test_one_that_is_cancelled_cleans_up_and_hears_no_more() -> None:
    waits_for, seen = Future[int](), list[str]()

    async def run() -> None:
        try:
            await waits_for
            seen.append("went on")
        finally:
            seen.append("cleaned up")

    task = Task(run())
    task.task.cancel()
    task.task.cancel()
    assert (seen, task.ends) == (["cleaned up"], [None])
    waits_for.success(1)
    assert (seen, task.ends) == (["cleaned up"], [None])


def test_one_that_is_cancelled_by_what_it_calls_ends_where_it_waits_next() -> None:
    first, second, seen = Future[int](), Future[int](), list[str]()
    cancel: list[Callable[[], None]] = []

    async def run() -> None:
        await first
        cancel[0]()
        seen.append("goes on to its next wait")
        await second
        seen.append("went on")

    task = Task(run())
    cancel.append(task.task.cancel)
    first.success(1)
    assert (seen, task.ends) == (["goes on to its next wait"], [None])


def test_the_wait_for_another_ends_with_it_or_with_its_time() -> None:
    loop = Loop.simulated()
    done, failed, silent = Future[int](), Future[int](), Future[int]()
    results = [within(loop, each, 5.0) for each in (done, failed, silent)]
    done.success(1)
    failed.failure(OSError())
    assert [result.is_done for result in results] == [True, True, False]
    loop.run_until(results[2])
    assert [result.result() for result in results] == [True, True, False]
    silent.success(1)
    turn = next_turn(loop)
    assert not turn.is_done
    loop.run_until(turn)
    loop.close()
