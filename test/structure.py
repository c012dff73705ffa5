"""What it costs to read the package: one table of figures, from the syntax trees and from three routes that are run.

    python -m test.structure             every figure
    python -m test.structure --static    without the routes, which need a broker
    python -m test.structure -v          with the names behind each figure

``docs/architecture.rst`` quotes what it prints. ``test_architecture.py`` holds what must not grow again.

* *single importer*: modules that exactly one other module imports; packages' ``__init__`` count on neither side.
* *foreign writes*: assignments to an attribute of an object whose class is declared in another module. The classes that
  declare an attribute are found by its name, so one that is declared in the module itself, or that is given to an
  object made in the same function, is not counted. Nor are fields of messages: these are values that belong to whoever
  fills them in.
* *duplicate names*: public classes, declared at the top of two modules or more under one name.
* *ring*: modules that import one another in a circle, with imports for type checkers only and inside functions.
* *routes*: files of the package in which a function runs between two points, once connections stand and codecs are
  compiled. What only describes data (``protocol``, ``wire``, ``errors``, ``structs``) is not counted.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = ROOT / "kafka"
DATA: Final = ("kafka/protocol/", "kafka/wire/", "kafka/errors.py", "kafka/structs.py", "kafka/__init__.py")
"""What a reader of a route need not open: it declares data, or turns it into bytes."""


class Module(NamedTuple):
    """One file: its dotted name, its path from the root, its tree and its number of lines."""

    name: str
    path: str
    tree: ast.Module
    lines: int

    @property
    def is_package(self) -> bool:
        return self.path.endswith("__init__.py")

    @property
    def in_tasks(self) -> bool:
        return self.path.startswith("kafka/tasks/")


def read_modules() -> dict[str, Module]:
    """Every module of the package by its dotted name."""
    modules = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text("utf-8")
        modules[name] = Module(name, str(path.relative_to(ROOT)), ast.parse(text), len(text.splitlines()))
    return modules


def imports_between(modules: Mapping[str, Module]) -> dict[str, set[str]]:
    """Module -> the modules of the package that it imports, for whatever purpose and wherever the import stands."""
    found: dict[str, set[str]] = {}
    for module in modules.values():
        targets: set[str] = set()
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Import):
                targets.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                inner = [f"{node.module}.{alias.name}" for alias in node.names]
                targets.update(name if name in modules else node.module for name in inner)
            elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if called == "import_module":
                    targets.add(str(node.args[0].value))
        found[module.name] = {name for name in targets if name in modules and name != module.name}
    return found


def single_importer_modules(modules: Mapping[str, Module]) -> list[str]:
    """Modules with exactly one importer."""
    importers: dict[str, set[str]] = defaultdict(set)
    for name, targets in imports_between(modules).items():
        if not modules[name].is_package:
            for target in targets:
                importers[target].add(name)
    return sorted(name for name, by in importers.items() if len(by) == 1 and not modules[name].is_package)


def rings(modules: Mapping[str, Module]) -> list[list[str]]:
    """Groups of modules that reach one another by imports (strongly connected), the largest first."""
    edges = imports_between(modules)
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in sorted(edges[name]):
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            at = stack.index(name)
            groups.append(sorted(stack[at:]))
            del stack[at:]

    sys.setrecursionlimit(max(sys.getrecursionlimit(), 5000))
    for name in modules:
        if name not in index:
            visit(name)
    return sorted((group for group in groups if len(group) > 1), key=len, reverse=True)


def duplicate_names(modules: Mapping[str, Module]) -> dict[str, list[str]]:
    """Public class name -> the modules that declare a class of that name, where these are several."""
    homes: dict[str, list[str]] = defaultdict(list)
    for module in modules.values():
        for name in dict.fromkeys(n.name for n in module.tree.body if isinstance(n, ast.ClassDef)):
            if not name.startswith("_"):
                homes[name].append(module.name)
    return {name: found for name, found in sorted(homes.items()) if len(found) > 1}


# -- who writes whose attributes -------------------------------------------------------------------------------------


def foreign_writes(modules: Mapping[str, Module]) -> list[str]:
    """``path:line: target`` of each assignment to an attribute of an object of another module."""
    declared = {name: set(_declared(module.tree)) for name, module in modules.items()}
    everywhere = set().union(*(names for name, names in declared.items() if not modules[name].path.startswith(DATA)))
    found = []
    for name, module in modules.items():
        for function in _functions(module.tree):
            made = _made_here(function)
            for target in _written(function):
                base = target.value
                if isinstance(base, ast.Name) and base.id in {"self", "cls", *made}:
                    continue
                if target.attr in everywhere and target.attr not in declared[name]:
                    found.append(f"{module.path}:{target.lineno}: {ast.unparse(target)}")
    return found


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions inside it."""
    todo = list(ast.iter_child_nodes(function))
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            todo.extend(ast.iter_child_nodes(node))


def _written(function: ast.AST) -> Iterator[ast.Attribute]:
    for node in _own_nodes(function):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node


def _declared(tree: ast.AST) -> Iterator[str]:
    """Names of attributes that the classes of a module declare: by annotation, in slots, or by writing them on self."""
    for cls in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        for node in cls.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                yield node.target.id
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name) and target.id == "__slots__":
                        yield from (c.value for c in ast.walk(node.value) if isinstance(c, ast.Constant))
                    elif isinstance(target, ast.Name):
                        yield target.id
        for node in ast.walk(cls):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value):
                yield node.attr


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _made_here(function: ast.AST) -> set[str]:
    """Local names that are given a new object: ``x = Thing(...)``, ``x = module.Thing(...)``, ``cls.__new__(cls)``."""
    made = set()
    for node in _own_nodes(function):
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call):
            called = node.value.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name[:1].isupper() or name in ("__new__", "cls", "replace", "copy"):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                made.update(target.id for target in targets if isinstance(target, ast.Name))
    return made


# -- functions without a word ----------------------------------------------------------------------------------------


def silent_functions(modules: Mapping[str, Module]) -> tuple[list[str], int]:
    """Functions of 20 lines or more without docstring or comment, and how many functions are so long."""
    silent, long = [], 0
    for module in modules.values():
        lines = (ROOT / module.path).read_text("utf-8").splitlines()
        for function in _functions(module.tree):
            end = function.end_lineno or function.lineno
            if end - function.lineno + 1 < 20:
                continue
            long += 1
            commented = any("# " in line for line in lines[function.lineno - 1 : end])
            if not ast.get_docstring(function) and not commented:
                silent.append(f"{module.path}:{function.lineno}: {function.name}")
    return silent, long


# -- routes ----------------------------------------------------------------------------------------------------------


class Trace:
    """The files of the package in which functions begin while it is on: thread's name -> files."""

    def __init__(self) -> None:
        self.files: dict[str, set[str]] = defaultdict(set)
        self.on = False

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        if self.on and event == "call":
            path = frame.f_code.co_filename
            if path.startswith(str(PACKAGE)):
                self.files[threading.current_thread().name].add(os.path.relpath(path, ROOT))

    def route(self, thread: str = "") -> list[str]:
        """The files of the threads whose names begin with ``thread``."""
        files = set().union(*(found for name, found in self.files.items() if name.startswith(thread)))
        return sorted(path for path in files if not path.startswith(DATA))


@contextlib.contextmanager
def tracing() -> Iterator[Trace]:
    """A trace of this thread and of those that begin inside the block. It is switched on by its ``on``."""
    trace = Trace()
    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        yield trace
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def measure_routes() -> dict[str, list[str]]:
    """The three routes that the docs follow: name -> files."""
    from kafka.testing import EmbeddedBroker

    with EmbeddedBroker(topics=["t"]) as broker:
        routes = {
            "send() to the socket": send_route(broker.bootstrap),
            "poll to records": poll_route(broker.bootstrap),
        }
    return {**routes, "share fetch in the broker": share_fetch_route()}


def send_route(bootstrap: str) -> list[str]:
    """From ``send()`` until the request has been written: what happens to the answer is not of it."""
    from kafka import KafkaProducer

    with tracing() as trace, contextlib.closing(KafkaProducer(bootstrap_servers=bootstrap, acks=0)) as producer:
        for _ in range(3):
            producer.send("t", b"warm").get(10)
        trace.on = True
        producer.send("t", b"value").get(10)
        trace.on = False
    return trace.route()


def poll_route(bootstrap: str) -> list[str]:
    """From ``poll()`` with nothing buffered to the records that it returns."""
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    with contextlib.closing(KafkaProducer(bootstrap_servers=bootstrap)) as producer, tracing() as trace:
        consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        consumer.assign([TopicPartition("t", 0)])
        for last in (False, True):
            producer.send("t", b"value").get(10)
            trace.on = last
            while not consumer.poll(1000):
                pass
        trace.on = False
        consumer.close()
    return trace.route()


def share_fetch_route() -> list[str]:
    """What the broker does for a ShareFetch that finds records, from its bytes to those of the answer."""
    from kafka import KafkaProducer, KafkaShareConsumer
    from kafka.testing import EmbeddedBroker

    with tracing() as trace, EmbeddedBroker(in_process=True, topics=["t"]) as broker:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
        consumer = KafkaShareConsumer("t", bootstrap_servers=broker.bootstrap, group_id="g")
        while not consumer.poll(100):  # a new group reads what comes after it
            producer.send("t", b"value").get(10)
        for _ in range(3000):  # more than it takes at once
            future = producer.send("t", b"value")
        future.get(10)
        taken = 0
        while taken < 2500:
            trace.on = taken > 500
            taken += sum(map(len, consumer.poll(1000).values()))
        trace.on = False
        consumer.close()
        producer.close()
    return trace.route("embedded")


# -- what is printed -------------------------------------------------------------------------------------------------


def figures(modules: Mapping[str, Module]) -> Iterator[tuple[str, str, Iterable[str]]]:
    """Rows of the table: what, how much, and the names behind it."""

    def split(names: Iterable[str]) -> str:
        """``outside tasks / in tasks`` of modules or of ``path:line``."""
        inside = [one for one in names if one.startswith(("kafka.tasks", "kafka/tasks"))]
        return f"{len(list(names)) - len(inside)} / {len(inside)}"

    def size(inside: bool) -> tuple[int, int]:
        of = [module for module in modules.values() if module.in_tasks is inside]
        return len(of), sum(module.lines for module in of)

    (outer, outer_lines), (inner, inner_lines) = size(False), size(True)
    yield "modules (outside tasks / in tasks)", f"{outer} / {inner}", ()
    yield "lines", f"{outer_lines:,} / {inner_lines:,}", ()
    singles = single_importer_modules(modules)
    yield "single-importer modules", split(singles), singles
    writes = foreign_writes(modules)
    yield "foreign writes", split(writes), writes
    duplicates = duplicate_names(modules)
    yield "duplicate names", str(len(duplicates)), (f"{name}: {', '.join(at)}" for name, at in duplicates.items())
    largest = next(iter(rings(modules)), [])
    yield "largest ring", str(len(largest)), largest
    silent, long = silent_functions(modules)
    yield "functions of 20 lines without a word", f"{len(silent)} of {long}", silent


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m test.structure", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--static", action="store_true", help="without the routes, which need a broker")
    parser.add_argument("-v", "--verbose", action="store_true", help="with the names behind each figure")
    parser.add_argument("--only", default="", help="only figures whose name has this in it")
    options = parser.parse_args(arguments)
    rows = list(figures(read_modules()))
    if not options.static:
        rows += [(f"files: {name}", str(len(found)), found) for name, found in measure_routes().items()]
    for name, value, behind in rows:
        if options.only not in name:
            continue
        print(f"{name:<44}{value}")
        if options.verbose:
            for one in behind:
                print(f"    {one}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
