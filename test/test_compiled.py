"""Which kind of installation is tested here: the environment ``compiled`` must not test plain Python unnoticed."""

from __future__ import annotations

import ast
import importlib
import os
import pathlib
import re
import subprocess
import sys
import sysconfig

import pytest

import kafka

WANTED = {"0": True, "1": False}.get(os.environ.get("KAFKA_PURE", ""))
ROOT = pathlib.Path(__file__).resolve().parent.parent


@pytest.mark.skipif(WANTED is None, reason="KAFKA_PURE does not say which kind is wanted")
def test_the_kind_that_was_asked_for_is_the_one_that_is_tested() -> None:
    assert kafka.is_compiled() is WANTED


@pytest.mark.skipif(not kafka.is_compiled(), reason="this installation is plain Python")
@pytest.mark.parametrize(
    "name",
    ["core.consume.partition", "core.produce.accumulator", "producer.sending", "records.builder", "records.reader"],
)
def test_what_runs_for_every_record_is_machine_code(name: str) -> None:
    assert not str(importlib.import_module(f"kafka.{name}").__file__).endswith(".py")


@pytest.mark.skipif(not kafka.is_compiled(), reason="this installation is plain Python")
def test_the_sources_of_what_is_compiled_are_installed_too() -> None:
    """For tracebacks and for people who read; and for this environment, what was compiled is what was listed."""
    folder = pathlib.Path(str(kafka.__file__)).parent
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    compiled = {path for path in folder.rglob(f"*{suffix}") if "__mypyc" not in path.name}
    assert len(compiled) >= 10
    assert [path for path in compiled if not path.with_name(path.name.removesuffix(suffix) + ".py").exists()] == []


def test_the_version_says_which_kind_it_is() -> None:
    done = subprocess.run([sys.executable, "-m", "kafka", "--version"], capture_output=True, text=True, check=True)
    kind = "compiled" if kafka.is_compiled() else "plain Python"
    assert re.fullmatch(rf"kafka-taskloop {re.escape(kafka.__version__)} \({kind}\)\n", done.stdout)


def modules_to_be_compiled() -> list[str]:
    text = (ROOT / "build_kafka.py").read_text(encoding="utf-8")
    return re.findall(r'^    "(kafka/[\w/]+\.py)",$', text, re.MULTILINE)


@pytest.mark.skipif(not (ROOT / "build_kafka.py").exists(), reason="the sources are not here")
def test_every_module_to_be_compiled_is_there() -> None:
    names = modules_to_be_compiled()
    assert len(names) == len(set(names)) >= 10 and names == sorted(names)
    assert [name for name in names if not (ROOT / name).exists()] == []


SUSPENSIONS = (ast.Await, ast.Yield, ast.YieldFrom, ast.AsyncFor, ast.AsyncWith)


def suspensions_beside_an_exception(source: str) -> list[int]:
    """The lines that await or yield in an ``except``, ``finally`` or ``with`` block."""
    blocks: list[ast.stmt] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.ExceptHandler, ast.With)):
            blocks += node.body
        elif isinstance(node, ast.Try):
            blocks += node.finalbody
    return sorted({node.lineno for block in blocks for node in ast.walk(block) if isinstance(node, SUSPENSIONS)})


def test_an_await_beside_an_exception_is_found() -> None:
    code = "async def f():\n try:\n  {}\n except E as error:\n  {}\n finally:\n  {}\n with a:\n  {}"
    call = "await g()"
    assert suspensions_beside_an_exception(code.format(call, "g()", "g()", "g()")) == []
    assert suspensions_beside_an_exception(code.format("g()", call, call, call)) == [5, 7, 9]


@pytest.mark.skipif(not (ROOT / "build_kafka.py").exists(), reason="the sources are not here")
def test_nothing_compiled_awaits_beside_an_exception() -> None:
    """Generators of mypyc do not keep the handled exception while they are suspended: ``raise`` alone raises what the
    await has left behind, StopIteration, and whoever runs the coroutine takes that for its end. One that is closed
    while it waits in a handler leaves a broken exception to its caller."""
    found = {name: suspensions_beside_an_exception((ROOT / name).read_text()) for name in modules_to_be_compiled()}
    assert {name: lines for name, lines in found.items() if lines} == {}
