"""Tests of ``kafka.tasks.functions``: tasks of whatever can be called, and what they are called."""

from __future__ import annotations

import asyncio
import functools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka.errors import IllegalArgumentError
from kafka.tasks import App, Context, JobState
from kafka.tasks.functions import FunctionName, is_coroutine_function, refusal_of_main
from test.tasks.fakes import FakeBackend
from test.tasks.worker.test_worker import Bench, Process

HERE = __name__


def add(first: int, second: int, *, third: int = 0) -> int:
    return first + second + third


async def add_slowly(first: int, second: int) -> int:
    return first + second


class Adder:
    """Adds."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.name = self.queue = "not the task's"

    def __call__(self, second: int) -> int:
        return self.first + second

    def method(self, second: int) -> int:
        return self.first + second


class SlowAdder:
    async def __call__(self, second: int) -> int:
        return second


def make() -> Callable[[], int]:
    def inner() -> int:
        return 1

    return inner


@pytest.mark.parametrize(
    ("function", "name", "is_own", "importable"),
    [
        (add, "add", True, "add"),
        (Adder(1).method, "Adder.method", True, "Adder"),
        (Adder, "Adder", True, "Adder"),
        (Adder(1), "Adder", False, "Adder"),
        (functools.partial(add, 1), "add", False, "add"),
        (functools.partial(functools.partial(add, 1), 2), "add", False, "add"),
        (make(), "make.<locals>.inner", True, None),
        (lambda: None, "<lambda>", False, None),
    ],
)
def test_each_callable_has_the_name_of_what_an_import_finds(
    function: Callable[..., Any], name: str, is_own: bool, importable: str | None
) -> None:
    assert FunctionName.of(function) == (HERE, name, is_own)
    assert FunctionName.of(function).importable == importable


def test_a_builtin_method_is_of_the_module_builtins() -> None:
    assert str(FunctionName.of("".join)) == "builtins.str.join"


def test_what_gives_a_coroutine_is_known_through_partials_and_objects() -> None:
    for slow in (add_slowly, functools.partial(add_slowly, 1), SlowAdder(), functools.partial(SlowAdder(), 1)):
        assert is_coroutine_function(slow)
    for quick in (add, functools.partial(add, 1), Adder(1), SlowAdder, len):
        assert not is_coroutine_function(quick)


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (functools.partial(add, 1), "a functools.partial"),
        (Adder(1), "an object of the class Adder"),
        (lambda second: 1 + second, "a lambda"),
    ],
)
def test_what_has_no_name_of_its_own_becomes_a_task_with_one(
    app: App, backend: FakeBackend, function: Callable[[int], int], kind: str
) -> None:
    with pytest.raises(IllegalArgumentError, match=rf'{kind} has no name for its task: app.task.name="MODULE.NAME".'):
        app.task(function)
    task = app.task(name="shop.add-one")(function)
    assert (task.name, task.queue) == ("shop.add-one", "default")
    assert task(2) == 3
    task.delay(2)
    (record,) = backend.queues.topics["shop.default"]
    assert json.loads(record.value or b"")["args"] == [2]
    with pytest.raises(TypeError, match="second"):
        task.delay()
    with pytest.raises(TypeError, match="too many"):
        task.delay(1, 2)


def test_a_partial_keeps_its_arguments_and_takes_the_others(app: App, backend: FakeBackend) -> None:
    task: Any = app.task(name="keywords")(functools.partial(add, 1, third=5))
    assert task(2) == 8
    task.delay(2, third=6)
    with pytest.raises(TypeError, match=r"^add\(\): "):
        task.delay(2, fourth=6)


def test_the_context_comes_behind_the_arguments_of_a_partial(app: App) -> None:
    def report(first: int, context: Context, second: int) -> tuple[int, str, int]:
        return first, context.task_name, second

    task: Any = app.task(name="report", bind=True)(functools.partial(report, 1))
    assert task(2) == (1, "report", 2)


def test_a_worker_runs_a_partial_and_an_object() -> None:
    bench = Bench()
    bench.app.task(name="partial")(functools.partial(bench.runs.append))
    bench.app.task(name="object")(Adder(1))
    jobs = [bench.put("partial", 7), bench.put("object", 2)]
    Process(bench, inline=True)
    bench.settle()
    assert bench.runs == [7]
    assert [bench.final(job.id) for job in jobs] == [JobState.SUCCESS] * 2


def test_an_object_with_a_coroutine_is_a_coroutine_task(app: App) -> None:
    task: Any = app.task(name="slow")(SlowAdder())
    assert task.is_coroutine
    assert asyncio.run(task(3)) == 3


def test_what_does_not_say_its_arguments_is_refused_with_a_way_out(app: App) -> None:
    with pytest.raises(IllegalArgumentError, match=r"max does not say which arguments it takes \(.*\): call it in a"):
        app.task(max)


def test_attributes_of_a_function_are_its_tasks_unless_the_task_has_its_own(app: App) -> None:
    def marked() -> None: ...

    marked.owner = "shop"  # type: ignore[attr-defined]
    marked.queue = "other"  # type: ignore[attr-defined]
    task: Any = app.task(marked)
    assert (task.owner, task.queue) == ("shop", "default")


SCRIPT = """
import functools
from kafka.tasks import App, TaskInMain
app = App("shop", bootstrap_servers="nowhere:1")

def make():
    @app.task
    def inner(): ...
    return inner

class Mail:
    @staticmethod
    def send(): ...

for task in make(), app.task(Mail.send), app.task(name="l")(functools.partial(lambda: 1)):
    try:
        task.delay()
    except TaskInMain as error:
        print(error)
"""


def test_the_import_in_a_hint_is_one_that_works(tmp_path: Path) -> None:
    script = tmp_path / "jobs.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=True)
    nested, method, anonymous = done.stdout.splitlines()
    no_import = "declare it with `def` at the top level of a file, and enqueue it from another one"
    assert nested.endswith(no_import) and "make.<locals>.inner" in nested
    assert method.endswith("with `from jobs import Mail`")
    assert anonymous.endswith(no_import)


def test_a_function_of_a_console_is_written_to_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    main: Any = type(sys)("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    for main.__file__ in (None, "<stdin>"):
        assert (refusal_of_main(FunctionName("__main__", "f", True)) or "").endswith("and use `from jobs import f`")
    assert refusal_of_main(FunctionName("shop", "f", True)) is None
