"""Who may import whom, and the rules that hold for every module: read from the syntax trees, so unused code counts too.

``MAY_IMPORT`` is the one place of the table; ``docs/architecture.rst`` shows it from here. A new package is a row, and
without one its first module fails.
"""

from __future__ import annotations

import ast
import functools
import pathlib
import re
import sys
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from test import structure

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "kafka"

# Each row may import the standard library, itself and what it lists. "core" means that package and all below it,
# "core.states" that module, "public share" the names of the package itself and no module inside it, "public" the names
# that `kafka` itself offers. A module is held to the longest row that its name begins with.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "_version": (),
    "_compiled": (),
    "_native": (),
    "_name_clash": (),
    "_older_paths": (),  # names everybody's modules, too, and imports them when asked for
    "codec": ("records",),
    "errors": (),
    "structs": (),
    "future": ("errors",),
    "log_limit": (),
    "validation": ("errors", "structs"),
    "config": ("validation", "errors", "structs", "future"),
    "net": ("_native", "errors", "future"),
    "sasl": (),
    "wire": ("errors",),
    "protocol": ("wire", "errors"),
    "records": ("_compiled", "_native", "wire", "errors"),
    "core": (
        "_compiled", "_native", "protocol", "records", "wire", "errors", "structs", "future", "config", "validation",
    ),
    "client": (
        "bootstrap", "_native", "_version", "core", "metrics", "net", "protocol", "records", "wire", "errors",
        "structs", "future", "config", "validation",
    ),
    "metrics": (),
    "partitioner": ("core",),
    "coordinator": ("core", "structs", "errors"),
    "serializer": (),
    "producer": (
        "client", "metrics", "partitioner", "_compiled", "_native", "_version", "core", "net", "protocol", "records",
        "wire", "errors", "structs", "future", "log_limit", "config", "validation",
    ),
    "consumer": (
        "client", "metrics", "_native", "_version", "core", "net", "protocol", "records", "wire", "errors", "structs",
        "future", "config", "validation",
    ),
    "share": (
        "client", "metrics", "_version", "core", "net", "protocol", "records", "wire", "errors", "structs", "future",
        "log_limit", "config", "validation",
    ),
    "admin": (
        "client", "metrics", "_version", "core", "net", "protocol", "records", "wire", "errors", "structs", "future",
        "config", "validation",
    ),
    "broker": (
        "core.connection", "core.sasl", "core.serving", "core.states",
        "protocol", "records", "wire", "net", "errors", "structs", "future",
    ),
    "bootstrap": ("broker.embedded", "errors"),
    "tasks": (
        "public", "public client", "public producer", "public consumer", "public share", "public admin",
        "broker.embedded", "_name_clash", "errors", "structs", "future", "log_limit",
    ),
    # Besides what the row above has, "net": it answers probes over the worker's own loop.
    "tasks.health": (
        "public", "public client", "public producer", "public consumer", "public share", "public admin",
        "broker.embedded", "errors", "structs", "future", "log_limit", "tasks", "net",
    ),
    "tasks.pools": (
        "public", "public client", "public producer", "public consumer", "public share", "public admin",
        "broker.embedded", "errors", "structs", "future", "log_limit", "tasks", "net",
    ),
    # Besides what "tasks" has, "net": it drives a worker's loop by hand.
    "tasks.testing": ("errors", "tasks", "net"),
    # A child knows nothing of its parent's side; both know what lies between them.
    "tasks.pools.child": (
        "tasks.app", "tasks.delivery.base", "tasks.errors", "tasks.format", "tasks.pools.gc_tuning", "tasks.pools.ipc",
        "tasks.pools.job_logging", "tasks.pools.kernel", "tasks.pools.registry", "tasks.pools.runner",
        "tasks.pools.task_forks", "tasks.rules", "tasks.task", "tasks.worker.loader",
    ),
    "tasks.pools.ipc": ("tasks.format", "tasks.pools.runner", "tasks.rules"),
    # Both are pure: worked out without the rest of the task queue.
    "tasks.schedule.cron": ("errors",),
    "tasks.schedule.times": ("errors", "tasks.schedule.cron"),
    "testing": (
        "public", "public client", "public producer", "public consumer", "public share", "public admin",
        "public broker", "broker.embedded", "public tasks", "public tasks.testing", "public net", "net.loop", "errors",
        "structs", "future",
    ),
    "cli": (
        "public", "public client", "public producer", "public consumer", "public share", "public admin",
        "public broker", "broker.embedded", "public tasks", "public net", "public protocol", "protocol.registry",
        "testing", "_compiled", "_name_clash", "_version", "errors", "structs", "future", "config",
    ),
    "__main__": ("public cli",),
}  # fmt: skip

# `kafka/__init__.py` names everybody's classes, lazily; by its own statements it may load these only; the second
# when a module is looked for that is not there.
ROOT_LOADS = ("kafka._version", "kafka._older_paths", "kafka._name_clash")

PURE = ("core", "wire", "protocol", "records", "tasks.schedule.cron", "tasks.schedule.times")
IMPURE_MODULES = frozenset(
    {"socket", "select", "selectors", "ssl", "threading", "asyncio", "time", "random", "os", "subprocess"}
)

# What is not of the standard library -> the packages and modules that may import it.
THIRD_PARTY: dict[str, tuple[str, ...]] = {
    "six": ("validation", "core", "client", "producer", "consumer", "share", "admin", "tasks", "cli"),
    "crcmod": ("wire.crc32c",),
    "crc32c": ("wire.crc32c",),
    "google_crc32c": ("wire.crc32c",),
    "cramjam": ("records.compression",),
    "re2": ("broker.groups.regex",),
    "opentelemetry": ("client.telemetry",),
    "rich": ("cli",),
    "shtab": ("cli.completion",),
    "msgpack": ("tasks.format.serializers",),
    "prometheus_client": ("tasks.health.metrics",),
    "pytest": ("testing",),
    "typing_extensions": ("wire.message", "tasks.app", "tasks.task"),  # for type checkers only: it is no dependency
    "mypy_extensions": ("_native",),  # the same
}

CODE_FROM_TEXT = frozenset({"exec", "eval", "compile"})
CODE_FROM_TEXT_ALLOWED_IN = "wire.codec"


class Import(NamedTuple):
    """One import: where it stands, and the module that it loads (``"kafka.wire.codec"``)."""

    line: int
    target: str


class Module(NamedTuple):
    """One file of the package; ``name`` without the ``kafka.`` in front, and empty for the package itself."""

    name: str
    path: pathlib.Path
    tree: ast.Module
    imports: tuple[Import, ...]

    @property
    def import_name(self) -> str:
        return f"kafka.{self.name}" if self.name else "kafka"


@functools.cache
def modules() -> tuple[Module, ...]:
    """Every module of the package, read once, when the first test asks."""
    paths = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    names = frozenset(f"kafka.{name}" if name else "kafka" for name in paths)
    found = []
    for name, path in paths.items():
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        found.append(Module(name, path, tree, tuple(imports_of(tree, names))))
    return tuple(found)


def imports_of(tree: ast.Module, names: frozenset[str]) -> Iterator[Import]:
    """Every import of a module, also those inside functions, for type checkers, and by ``import_module("literal")``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (Import(node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield Import(node.lineno, inner if inner in names else base)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__"):
                yield Import(node.lineno, str(node.args[0].value))


def row_of(name: str) -> str | None:
    """The row of the table that a module is held to."""
    rows = [row for row in MAY_IMPORT if name == row or name.startswith(row + ".")]
    return max(rows, key=len, default=None)


def allowed(name: str, target: str) -> bool:
    """Whether module ``name`` (without ``kafka.``) may import ``target``, by the table."""
    row = row_of(name)
    if row is None or target.startswith("."):  # relative imports hide where they go
        return False
    if target.partition(".")[0] != "kafka":
        return True
    inner = target.removeprefix("kafka").removeprefix(".")
    other = row_of(inner) or ""
    if other == row or other.startswith(row + "."):  # itself, and the parts of it that have rows of their own
        return True
    return any(_covers(entry, inner) for entry in MAY_IMPORT[row])


def _covers(entry: str, inner: str) -> bool:
    """Whether an entry of a row stands for the module ``inner`` (without ``kafka.``; empty for ``kafka`` itself)."""
    if entry.partition(" ")[0] == "public":
        return inner == entry.removeprefix("public").strip()
    return inner == entry or inner.startswith(entry + ".")


def wrong_imports(module: Module) -> list[str]:
    """The imports of a module that the table does not allow."""
    found = module.imports
    if not module.name:
        block = {
            inner.lineno
            for node in module.tree.body
            if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
            for inner in node.body
        }
        ours = [one for one in found if one.target.startswith("kafka") and one.line not in block]
        return [f"{module.path}:{one.line}: {one.target}" for one in ours if one.target not in ROOT_LOADS]
    if row_of(module.name) is None:
        return [f"{module.import_name} has no row in MAY_IMPORT"]
    return [f"{module.path}:{one.line}: {one.target}" for one in found if not allowed(module.name, one.target)]


def test_imports_go_downwards() -> None:
    assert [wrong for module in modules() for wrong in wrong_imports(module)] == []


def test_pure_packages_touch_no_clock_socket_thread_or_chance() -> None:
    pure = [module for module in modules() if any(_covers(entry, module.name) for entry in PURE)]
    assert len(pure) > 80
    touched = [
        f"{module.path}:{one.line}: {one.target}"
        for module in pure
        for one in module.imports
        if one.target.partition(".")[0] in IMPURE_MODULES
    ]
    assert touched == []


def test_other_peoples_packages_are_imported_where_they_belong() -> None:
    misplaced = []
    for module in modules():
        for one in module.imports:
            top = one.target.partition(".")[0]
            if top == "kafka" or top in sys.stdlib_module_names:
                continue
            homes = THIRD_PARTY.get(top, ())
            if not any(module.name == home or module.name.startswith(home + ".") for home in homes):
                misplaced.append(f"{module.path}:{one.line}: {top} belongs into {homes or 'THIRD_PARTY first'}")
    assert misplaced == []


def test_code_is_made_from_text_in_one_place() -> None:
    calls = {
        module.name
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CODE_FROM_TEXT
    }
    assert calls == {CODE_FROM_TEXT_ALLOWED_IN}


def test_a_module_says_what_it_is_and_postpones_annotations() -> None:
    lacking = []
    for module in modules():
        if not ast.get_docstring(module.tree):
            lacking.append(f"{module.path} begins with no docstring")
        if not any(
            isinstance(node, ast.ImportFrom) and node.module == "__future__" and node.names[0].name == "annotations"
            for node in module.tree.body
        ):
            lacking.append(f"{module.path} does not postpone annotations")
    assert lacking == []


# -- names -----------------------------------------------------------------------------------------------------------

PAIRS = {
    "ClassicMember", "ConsumerMember", "CooperativeStickyAssignor", "FetchSession", "ShareSession", "TransactionState",
}  # fmt: skip
"""Public classes of which client and broker, or we and kafka-python's names, each have one."""

NOT_OURS = {"test/benchmarks/drain.py:bench_jobs.py", "docs/quickstart.rst:shop.py", "docs/quickstart.rst:buy.py"}
"""Files that a text names and that its reader makes, or that are written when it runs."""

LARGEST_RING = 4
FOREIGN_WRITES = 16
"""Of an attribute of an object of another module; four of them where Ctrl-C may come with a call."""

GUIDE = ROOT / "docs" / "architecture.rst"


@functools.cache
def parsed() -> Mapping[str, structure.Module]:
    """The package as ``test.structure`` measures it, read once."""
    return structure.read_modules()


def test_a_public_class_has_a_name_of_its_own() -> None:
    names = structure.duplicate_names(parsed())
    assert {name: homes for name, homes in names.items() if name not in PAIRS} == {}


def test_few_modules_import_one_another_in_a_circle() -> None:
    """With imports for type checkers and inside functions: what a reader has to take in at once."""
    rings = structure.rings(parsed())
    assert [ring for ring in rings if len(ring) > LARGEST_RING] == []


def test_an_object_is_changed_by_its_own_module() -> None:
    """The last ones are errors that learn where they happened, and messages that are not fields of ``protocol``. In the
    task queue the leases of a worker have one owner, ``Leases``."""
    writes = structure.foreign_writes(parsed())
    of_leases = [write for write in writes if write.startswith("kafka/tasks/worker/leases.py:")]
    assert len(writes) - len(of_leases) <= FOREIGN_WRITES, writes
    assert all(write.split(" ")[-1].startswith("lease.") for write in of_leases)


def test_a_file_that_a_text_names_is_there() -> None:
    sources = [
        *PACKAGE.rglob("*.py"),
        *(ROOT / "test").rglob("*.py"),
        *(ROOT / "docs").rglob("*.py"),
        *ROOT.glob("*.py"),
    ]
    files = [f"/{path.relative_to(ROOT).as_posix()}" for path in sources]
    texts = [*sources, *(ROOT / "docs").rglob("*.rst")]
    missing = []
    for text in texts:
        for name in re.findall(r"``([\w/.-]*\w\.py)``", text.read_text("utf-8")):
            where = f"{text.relative_to(ROOT).as_posix()}:{name}"
            if where not in NOT_OURS and not any(file.endswith(f"/{name}") for file in files):
                missing.append(where)
    assert missing == []


def test_what_the_guide_names_is_there() -> None:
    """Classes, their methods, constants and folders, in the part of the architecture page that is a guide."""
    known: set[str] = set()
    for module in modules():
        for node in module.tree.body:
            known.update(_names_of(node))
            if isinstance(node, ast.ClassDef):
                known.update(f"{node.name}.{name}" for inner in ast.walk(node) for name in _names_of(inner))
    guide = GUIDE.read_text("utf-8").partition("\nNon-obvious\n")[0]
    names = set(re.findall(r"``([A-Z]\w*(?:\.\w+)*)``", guide))
    assert names - known == set()
    folders = set(re.findall(r"``([a-z_/]+/)``", guide))
    assert {
        name for name in folders if not any((base / name).is_dir() for base in (ROOT, PACKAGE, PACKAGE / "broker"))
    } == set()


def _names_of(node: ast.AST) -> set[str]:
    if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    return names | {target.attr for target in targets if isinstance(target, ast.Attribute)}


# -- the rules themselves --------------------------------------------------------------------------------------------


VERDICTS = [
    ("wire.codec", "kafka.wire.types", True),
    ("wire.codec", "kafka.protocol.fetch", False),
    ("wire.codec", ".types", False),
    ("net.loop", "kafka.future", True),
    ("net.loop", "kafka.wire.frame", False),
    ("client.kafka_client", "kafka.core.routing", True),
    ("client.kafka_client", "kafka.broker.server", False),
    ("broker.server", "kafka.core.connection", True),
    ("broker.server", "kafka.core.routing", False),
    ("broker.server", "kafka.client", False),
    ("core.share.session", "kafka", False),
    ("tasks.app", "kafka", True),
    ("tasks.app", "kafka.producer", True),
    ("tasks.app", "kafka.producer.sender", False),
    ("tasks.app", "kafka.net.loop", False),
    ("tasks.app", "kafka.broker.embedded", True),
    ("tasks.app", "kafka.broker.server", False),
    ("tasks.worker", "kafka.tasks.pools.prefork", True),
    ("tasks.pools.prefork", "kafka.net.loop", True),
    ("tasks.pools.parent.launch", "kafka.tasks.pools.child.main", True),
    ("tasks.pools.child.main", "kafka.tasks.pools.parent.stacks", False),
    ("tasks.pools.ipc.channel", "kafka.tasks.pools.parent.stacks", False),
    ("tasks.health.server", "kafka.net.loop", True),
    ("tasks.pools.prefork", "kafka.tasks.job", True),
    ("tasks.app", "kafka.tasks.schedule.times", True),
    ("tasks.schedule.times", "kafka.tasks.schedule.cron", True),
    ("tasks.schedule.times", "kafka.tasks.app", False),
    ("share.session", "kafka.consumer", False),
    ("unheard_of", "kafka.errors", False),
]


def test_the_table_means_what_it_says() -> None:
    assert [row for row in VERDICTS if allowed(row[0], row[1]) is not row[2]] == []


def test_imports_are_found_wherever_they_stand() -> None:
    tree = ast.parse(
        "import a.b\n"
        "if x:\n    from kafka.wire import codec, Struct\n"
        "def f():\n    import c\n    import_module('d.e')\n"
    )
    names = frozenset({"kafka.wire.codec"})
    targets = sorted(one.target for one in imports_of(tree, names))
    assert targets == ["a.b", "c", "d.e", "kafka.wire", "kafka.wire.codec"]


def test_the_table_has_no_circles() -> None:
    """What a row imports never imports the row, except a package and the rows of its own parts."""

    def below(row: str, seen: frozenset[str]) -> None:
        assert row not in seen, f"{row} imports itself through {sorted(seen)}"
        for entry in MAY_IMPORT.get(row, ()):
            other = row_of(entry.removeprefix("public").strip())
            if other is not None and other.partition(".")[0] != row.partition(".")[0]:
                below(other, seen | {row})

    for row in MAY_IMPORT:
        below(row, frozenset())
