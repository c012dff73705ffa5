"""Runs tests with a mutant in the place of a module: in a fork of a process that has loaded everything else.

The parent imports pytest, hypothesis and every module of ours that the tests need and that does not import the changed
one. Each child installs the mutant, imports the rest, runs pytest until the first failure, and ends with its exit code.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import os
import pathlib
import select
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any, Final

import pytest

from test.mutation.mutants import Mutant

ROOT: Final = pathlib.Path(__file__).resolve().parent.parent.parent
SLOWER: Final = 8.0
"""A mutant that takes so many times longer than the unchanged module is one that does not end."""

Groups = Sequence[Sequence[str]]
"""Test files, in the groups that run one after the other until one fails: most mutants end with the first."""

OPTIONS: Final = (
    "-x", "-q", "--no-header", "--tb=no", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:faulthandler",
    "--tier=short", "--hypothesis-profile=mutation", "-W", "ignore", "--timeout=60",
)  # fmt: skip


def module_of(path: str) -> str:
    """``kafka/core/share/acknowledgements.py`` -> ``kafka.core.share.acknowledgements``."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def path_of(module: str) -> pathlib.Path | None:
    """The file of a module of ours."""
    base = ROOT.joinpath(*module.split("."))
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.exists()), None)


def imports_of(path: pathlib.Path) -> set[str]:
    """The modules of ours that a file imports anywhere, and the packages that this loads."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            parts = name.split(".")
            found.update(".".join(parts[:count]) for count in range(1, len(parts) + 1))
    return {name for name in found if name.startswith("kafka") and path_of(name) is not None}


def modules_without(changed: str, tests: Sequence[str]) -> list[str]:
    """The modules of ours that the tests load and that do not, directly or not, import ``changed``."""
    graph: dict[str, set[str]] = {}
    waiting = {name for test in tests for name in imports_of(ROOT / test)}
    while waiting:
        name = waiting.pop()
        path = path_of(name)
        if name not in graph and path is not None:
            graph[name] = imports_of(path) | ({name.rpartition(".")[0]} if "." in name else set())
            waiting |= graph[name] - graph.keys()
    tainted = {changed}
    while True:
        more = {name for name, needed in graph.items() if needed & tainted} - tainted
        if not more:
            return sorted(graph.keys() - tainted)
        tainted |= more


def preload(modules: Sequence[str]) -> None:
    """Import what no mutant changes, set hypothesis up for many short runs, and let it read the imported modules."""
    import hypothesis
    import hypothesis.stateful  # noqa: F401

    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile(
        "mutation", max_examples=30, derandomize=True, database=None, deadline=None, phases=phases
    )
    with tempfile.TemporaryDirectory() as empty, contextlib.redirect_stdout(io.StringIO()):
        pytest.main(["-p", "no:cacheprovider", "--rootdir", empty, empty])
    for name in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)

    @hypothesis.settings(max_examples=1, database=None)
    @hypothesis.given(hypothesis.strategies.integers())
    def look_for_constants(number: int) -> None:
        pass

    look_for_constants()


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a mutant in the place of its module."""

    source = ""

    def get_code(self, fullname: str) -> Any:
        return compile(self.source, self.path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module, for the mutant's loader."""

    def __init__(self, mutant: Mutant) -> None:
        self._loader = _Loader(module_of(mutant.path), str(ROOT / mutant.path))
        self._loader.source = mutant.source

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self._loader.name:
            return None
        return importlib.util.spec_from_file_location(name, self._loader.path, loader=self._loader)


class Child:
    """One run of the tests over one mutant."""

    def __init__(self, mutant: Mutant, tests: Groups, limit_s: float) -> None:
        self.mutant = mutant
        self.began_at = time.monotonic()
        self._deadline = self.began_at + limit_s
        self._pid = os.fork()
        if self._pid == 0:
            _be_the_child(mutant, tests)

    def ended(self) -> int | None:
        """The exit code; -1 for one that was killed because it took too long, None while it runs."""
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid:
            _end_group(self._pid)
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() < self._deadline:
            return None
        _end_group(self._pid)
        os.waitpid(self._pid, 0)
        return -1


def _be_the_child(mutant: Mutant, tests: Groups) -> None:
    try:
        os.setpgid(0, 0)
        null = os.open(os.environ.get("KAFKA_MUTATION_OUTPUT", os.devnull), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(null, 1)
        os.dup2(null, 2)
        sys.meta_path.insert(0, _Finder(mutant))
        os._exit(next((code for group in tests if (code := int(pytest.main([*OPTIONS, *group])))), 0))
    except BaseException:
        os._exit(1)


def _end_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def wait_for_one(children: list[Child]) -> tuple[Child, int]:
    """The first child that ends, and its exit code; it is taken out of the list."""
    while True:
        for child in children:
            code = child.ended()
            if code is not None:
                children.remove(child)
                return child, code
        select.select([], [], [], 0.005)


def seconds_unchanged(mutant: Mutant, tests: Groups) -> float:
    """How long the tests take with the module as it is; they have to pass."""
    child, code = wait_for_one([Child(mutant, tests, 600.0)])
    if code != 0:
        raise SystemExit(f"the tests of {mutant.path} fail without any change (exit code {code}): {tests}")
    return time.monotonic() - child.began_at
