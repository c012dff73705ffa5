"""Tests of ``kafka.tasks.waiting``: dialogues in threads and coroutines. How handles wait is in ``test_job.py``."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kafka.tasks.waiting import Blocking, Dialogue, run, run_async

RUNS = [pytest.param(run, id="thread"), pytest.param(lambda dialogue: asyncio.run(run_async(dialogue)), id="coroutine")]


@pytest.mark.parametrize("take", RUNS)
def test_a_dialogue_is_sent_what_its_steps_give_and_returns_its_answer(take: Callable[[Any], Any]) -> None:
    def dialogue() -> Dialogue[list[int]]:
        first = yield Blocking(lambda: 1)
        second = yield Blocking(lambda: first + 1)
        return [first, second]

    assert take(dialogue()) == [1, 2]


@pytest.mark.parametrize("take", RUNS)
def test_the_error_of_a_step_is_raised_where_the_dialogue_takes_it(take: Callable[[Any], Any]) -> None:
    def fail() -> None:
        raise OSError("down")

    def careful() -> Dialogue[str]:
        try:
            yield Blocking(fail)
        except OSError:
            again = yield Blocking(lambda: "well again")
        return str(again)

    def careless() -> Dialogue[None]:
        yield Blocking(fail)

    assert take(careful()) == "well again"
    with pytest.raises(OSError, match="down"):
        take(careless())


@pytest.mark.parametrize("take", RUNS)
def test_a_dialogue_without_steps_is_its_answer(take: Callable[[Any], Any]) -> None:
    def dialogue() -> Dialogue[int]:
        return 5
        yield Blocking(int)

    assert take(dialogue()) == 5


def test_a_call_that_blocks_does_so_in_another_thread_than_the_event_loop_s() -> None:
    def dialogue() -> Dialogue[int]:
        ident: int = yield Blocking(threading.get_ident)
        return ident

    assert run(dialogue()) == threading.get_ident()
    assert asyncio.run(run_async(dialogue())) != threading.get_ident()


def test_a_dialogue_whose_coroutine_is_cancelled_is_cleaned_up() -> None:
    asking, go_on = threading.Event(), threading.Event()
    ended: list[str] = []

    def dialogue() -> Dialogue[None]:
        try:
            yield Blocking(lambda: (asking.set(), go_on.wait(10)))
        finally:
            ended.append("dialogue")

    async def main() -> None:
        task = asyncio.ensure_future(run_async(dialogue()))
        await asyncio.to_thread(asking.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == ["dialogue"]
        go_on.set()

    asyncio.run(main())
