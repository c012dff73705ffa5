"""Each test can fail: it asserts something, and nothing around an assertion takes its error away."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
SWALLOWING: Final = frozenset({"AssertionError", "Exception", "BaseException"})
"""Exceptions that an ``AssertionError`` is one of."""
CHECKS: Final = frozenset({"raises", "warns", "fail"})
"""What pytest has beside the statement ``assert``."""
WAITS: Final = "support/waiting.py"
OTHER_WAITS: Final = {
    "benchmarks": "measurements",
    "peers/clients": "programs for other interpreters, without this package",
    "support/apache_kafka.py": "the start of a broker has a limit of its own and may be repeated within it",
    "tasks/pools/process_jobs.py": "jobs, in processes of their own",
}
"""Where a loop may have a deadline of its own, and why."""
PACKAGE: Final = HERE.parent / "kafka"
SHORT: Final = 60
"""A module of so many lines needs no test file."""
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def test_every_test_asserts_and_no_assertion_is_suppressed() -> None:
    assert len(trees()) > 400, "the tests were not found"
    checking = names_that_check(trees().values())
    faults: list[str] = []
    for path, tree in trees().items():
        for node in ast.walk(tree):
            for fault in faults_of(node, checking):
                faults.append(f"{path}:{getattr(node, 'lineno', 0)}: {fault}")
    assert faults == []


def test_waiting_has_one_implementation() -> None:
    faults = [
        f"{path}:{loop.lineno}: waits by itself; use test/{WAITS}"
        for path, tree in trees().items()
        if not path.startswith((WAITS, *OTHER_WAITS))
        for loop in waits_in(tree)
    ]
    assert faults == []


def test_waits_are_found() -> None:
    for source in (
        "while not found and time.monotonic() < give_up_at: poll()",
        "while not found:\n poll()\n assert time.monotonic() < give_up_at",
        "while True:\n if found or time.monotonic() > give_up_at:\n  break",
    ):
        assert len(list(waits_in(ast.parse(source)))) == 1
    for source in ("while time.monotonic() < end:\n poll()", "assert time.monotonic() < began + 2", "while x: poll()"):
        assert list(waits_in(ast.parse(source))) == []


def test_every_module_has_a_test_file() -> None:
    """At the mirrored path, or named in ``tested_by.txt``."""
    rows = [line.split() for line in (HERE / "tested_by.txt").read_text("utf-8").splitlines() if line[0] != "#"]
    assert [module for module, _ in rows] == sorted({module for module, _ in rows}), "one row each, in order"
    assert [path for _, path in rows if not (HERE / path).is_file()] == []
    modules = {str(path.relative_to(PACKAGE)): path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"}
    untested = {name for name in modules if not (HERE / name).with_name(f"test_{modules[name].name}").is_file()}
    long = {name for name in untested if len(modules[name].read_text("utf-8").splitlines()) > SHORT}
    named = {module for module, _ in rows}
    assert named - untested == set(), "modules that are gone, or have a file at the mirrored path"
    assert long - named == set(), "modules without a test file"


def waits_in(tree: ast.AST) -> Iterator[ast.While]:
    """Loops that end by something, or by a clock; one that only goes on for a time waits for nothing."""
    for loop in (node for node in ast.walk(tree) if isinstance(node, ast.While)):
        inside = (node for statement in loop.body for node in ast.walk(statement))
        tests = [node.test for node in inside if isinstance(node, ast.If | ast.Assert)]
        if isinstance(loop.test, ast.BoolOp):
            tests.append(loop.test)
        if any(looks_at_a_clock(test) for test in tests):
            yield loop


def looks_at_a_clock(test: ast.expr) -> bool:
    return any(
        isinstance(call, ast.Call) and ast.unparse(call.func) in ("time.monotonic", "monotonic", "time.time")
        for node in ast.walk(test)
        if isinstance(node, ast.Compare)
        for call in ast.walk(node)
    )


def test_faults_are_found() -> None:
    for source, fault in (
        ("def test_x():\n f()", "test_x asserts nothing"),
        ("with suppress(Exception):\n assert x", "suppresses the assertion in it"),
        ("with a, contextlib.suppress(OSError, AssertionError):\n assert x", "suppresses the assertion in it"),
        ("try:\n assert x\nexcept BaseException:\n pass", "suppresses the assertion in it"),
        ("try:\n assert x\nexcept:\n pass", "suppresses the assertion in it"),
        ("with pytest.raises(Exception):\n f()", "any error satisfies it"),
        ("assert x or True", "is true whatever happens"),
        ("assert (x, 'text')", "is true whatever happens"),
    ):
        assert [found for node in ast.walk(ast.parse(source)) for found in faults_of(node, set())] == [fault]
    for source in (
        "def test_x():\n f()\ndef f():\n assert x",
        "def test_x():\n with pytest.raises(KeyError):\n  f()",
        "with suppress(OSError):\n assert x",
        "try:\n assert x\nexcept Exception as error:\n faults.append(error)",
        "with pytest.raises(Exception, match='text'):\n f()",
        "assert x or y",
    ):
        tree = ast.parse(source)
        assert not [found for node in ast.walk(tree) for found in faults_of(node, names_that_check([tree]))]


@functools.cache
def trees() -> dict[str, ast.Module]:
    """Each file of the tests, by its path."""
    return {str(path.relative_to(HERE)): ast.parse(path.read_text("utf-8")) for path in sorted(HERE.rglob("*.py"))}


def names_that_check(trees: Iterable[ast.Module]) -> set[str]:
    """Names of functions and classes that assert, themselves or by what they call."""
    found: set[str] = set()
    used: list[tuple[str, set[str]]] = []
    for node in (node for tree in trees for node in outer_functions(tree.body)):
        names = set()
        for each in ast.walk(node):
            names.add(name_of(each))
            if is_check(each):
                found.add(node.name)
        used.append((node.name, names))
    while new := {name for name, names in used if name not in found and names & found}:
        found |= new
    return found


def outer_functions(body: list[ast.stmt]) -> Iterator[Function]:
    """Functions, classes and methods; what stands inside a function counts as a part of it."""
    for node in body:
        if isinstance(node, Function):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from outer_functions(node.body)


def faults_of(node: ast.AST, checking: set[str]) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
        if not any(is_check(each) or name_of(each) in checking for each in ast.walk(node)):
            yield f"{node.name} asserts nothing"
    elif isinstance(node, ast.With | ast.AsyncWith):
        calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
        caught = {name_of(each) for call in calls if name_of(call.func) == "suppress" for each in call.args}
        if caught & SWALLOWING and has_assert(node.body):
            yield "suppresses the assertion in it"
        for call in calls:
            if name_of(call.func) == "raises" and not call.keywords and name_of(call.args[0]) in SWALLOWING:
                yield "any error satisfies it"
    elif isinstance(node, ast.Try) and has_assert(node.body):
        for handler in node.handlers:
            caught = {name_of(each) for each in ast.walk(handler.type)} if handler.type else {"BaseException"}
            if caught & SWALLOWING and all(isinstance(each, ast.Pass | ast.Continue) for each in handler.body):
                yield "suppresses the assertion in it"
    elif isinstance(node, ast.Assert):
        parts = node.test.values if isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.Or) else []
        if any(isinstance(each, ast.Constant) and each.value for each in (node.test, *parts)) or (
            isinstance(node.test, ast.Tuple) and node.test.elts
        ):
            yield "is true whatever happens"


def is_check(node: ast.AST) -> bool:
    if isinstance(node, ast.Assert | ast.Raise):
        return True
    return isinstance(node, ast.Call) and (name_of(node.func) in CHECKS or name_of(node.func).startswith("assert_"))


def has_assert(body: list[ast.stmt]) -> bool:
    return any(isinstance(each, ast.Assert) for statement in body for each in ast.walk(statement))


def name_of(node: ast.AST) -> str:
    """Of a name or an attribute the last part; empty for all else."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
