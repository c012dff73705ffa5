"""Writes what the pages of the documentation have from the code, tables and docstrings, so that they are readable
without a build.

    python docs/tables.py            rewrite these parts of docs/*.rst, and name the changed files
    python docs/tables.py --check    only name the files that are out of date; exit code 1 if there are any

``test/test_docs_tables.py`` checks the same. A part stands between two comments; the first has its name in
:data:`PARTS` and perhaps an argument::

    .. From docs/tables.py: settings producer

    .. End.

A new part is one more function and its line in :data:`PARTS`. It returns text, or the rows of a table, the first of
which is the head; a single cell becomes a paragraph.
"""

from __future__ import annotations

import ast
import inspect
import pathlib
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any

DOCS = pathlib.Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT))

ARCHITECTURE = ROOT / "test" / "test_architecture.py"

Rows = Iterable[tuple[str, ...]]


def protocol_rows() -> Rows:
    """Key, name, oldest and newest version, first flexible version, of every API in the registry."""
    from kafka.protocol.registry import REGISTRY

    yield ("key", "name", "versions", "flexible from", "module")
    for key in sorted(REGISTRY):
        api = REGISTRY[key]
        flexible = api.request.flexible_since
        yield (
            str(key),
            api.name,
            f"{api.min_version} to {api.max_version}",
            str(flexible) if flexible <= api.max_version else "",
            f"``{api.request.__module__}``",
        )


def import_rows() -> Rows:
    """The rows of ``MAY_IMPORT``; rows that may import the same are one."""
    table: dict[str, tuple[str, ...]] = {}
    for node in ast.parse(ARCHITECTURE.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "MAY_IMPORT":
            assert node.value is not None
            table = ast.literal_eval(node.value)
    same: dict[tuple[str, ...], list[str]] = {}
    for row, entries in table.items():
        same.setdefault(entries, []).append(row)
    yield ("package", "may import")
    for entries, packages in same.items():
        yield ", ".join(f"``{name}``" for name in packages), _entries(entries) or "nothing of this package"


def _entries(entries: tuple[str, ...]) -> str:
    """A row's entries as text: first whole packages and modules, then those of which only the public names."""
    whole = ", ".join(f"``{entry}``" for entry in entries if not entry.startswith("public"))
    names = [entry.removeprefix("public").strip() or "kafka" for entry in entries if entry.startswith("public")]
    public = f"the public names of {', '.join(f'``{name}``' for name in names)}" if names else ""
    return "; ".join(part for part in (whole, public) if part)


# -- settings --------------------------------------------------------------------------------------------------------


def settings_rows(client: str) -> Rows:
    """Settings of one kind of client that not every client has, or, for ``all``, those that every client has."""
    from kafka.config import ALL, SETTINGS, settings_of

    yield ("setting", "default", "unit", "meaning")
    for setting in SETTINGS if client == "all" else settings_of(client):
        if (setting.clients == ALL) != (client == "all"):
            continue
        default = _value(setting.default if client == "all" else setting.default_for(client))
        for other, value in setting.defaults.items() if client == "all" else ():
            default += f"; {other}: {_value(value)}"
        yield f"``{setting.name}``", default, setting.unit, _escaped(setting.doc)


def codecs_rows() -> Rows:
    """The codecs of batches, with what each takes as a level."""
    from kafka.records import CODECS

    yield ("``compression_type``", "levels", "default", "library", "since", "in message sets")
    for codec in CODECS.values():
        levels, default = "none", ""
        if codec.levels is not None:
            levels, default = f"{codec.levels[0]} to {codec.levels[1]}", str(codec.default_level)
        newest = codec.name == "zstd"
        since = {"lz4": "0.8.2", "zstd": "2.1"}.get(codec.name, "")
        yield f"``{codec.name}``", levels, default, codec.library or "of Python", since, "no" if newest else "yes"


def settings_later() -> Rows:
    """Settings that kafka-python has and that are refused so far."""
    from kafka.config import NOT_YET

    yield ", ".join(f"``{name}``" for name in sorted(NOT_YET)),


def produce_errors_rows() -> Rows:
    """What an error of a batch leads to."""
    from kafka.core.produce.errors import PRODUCE_ERROR_HANDLING

    yield ("error", "code", "action")
    for error, found in PRODUCE_ERROR_HANDLING.rows.items():
        note = f". {found.note[:1].upper()}{found.note[1:]}" if found.note else ""
        yield f"``{error.__name__}``", str(error.errno), _escaped(found.action.value + note)  # type: ignore[attr-defined]


def producer_id_errors_rows() -> Rows:
    """What an error of the request for a producer id leads to."""
    from kafka.core.produce.errors import PRODUCER_ID_ERROR_ACTIONS

    yield ("error", "code", "action")
    for error, action in PRODUCER_ID_ERROR_ACTIONS.rows.items():
        yield f"``{error.__name__}``", str(error.errno), _escaped(action.value)  # type: ignore[attr-defined]


def transaction_errors_rows() -> Rows:
    """What an error of a transaction's request leads to."""
    from kafka.core.produce.errors import (
        TRANSACTION_ERROR_ACTIONS,
        ProduceErrorAction,
        TransactionErrorAction,
        TransactionRequestKind,
        produce_error_action,
        )

    shown = {
        TransactionErrorAction.RETRY: "again", TransactionErrorAction.QUICKLY: "again, soon",
        TransactionErrorAction.FIND: "again, elsewhere",
        TransactionErrorAction.AGAIN: "call again", TransactionErrorAction.ABORT: "**abort**",
        TransactionErrorAction.BUMP: "**abort**, new epoch",
        TransactionErrorAction.FENCED: "**fenced**", TransactionErrorAction.FATAL: "**fatal**",
    }  # fmt: skip

    def cell(api: TransactionRequestKind, error: type[Any]) -> str:
        if api is TransactionRequestKind.PRODUCE:
            action = produce_error_action(error("x"), is_first=True, is_numbered=True)
            if action in (ProduceErrorAction.RETRY, ProduceErrorAction.SUCCEEDED):
                return "again" if action is ProduceErrorAction.RETRY else "it is there"
        return shown[TRANSACTION_ERROR_ACTIONS[api].action_for(error("x"))]

    asked = [api for api in TransactionRequestKind if api is not TransactionRequestKind.FIND]
    yield ("error", "code", *(api.value for api in asked))
    for error in _broker_errors(TRANSACTION_ERROR_ACTIONS.values()):
        yield f"``{error.__name__}``", str(error.errno), *(cell(api, error) for api in asked)


def group_errors_rows() -> Rows:
    """What a member of a classic group does about an error of the coordinator."""
    from kafka.core.group.classic import HEARTBEAT_ERRORS, JOIN_ERRORS, SYNC_ERRORS

    tables = {"JoinGroup": JOIN_ERRORS, "SyncGroup": SYNC_ERRORS, "Heartbeat": HEARTBEAT_ERRORS}
    yield ("error", "code", *tables)
    for error in _broker_errors(tables.values()):
        reactions = (table.action_for(error("x")) for table in tables.values())
        yield f"``{error.__name__}``", str(error.errno), *(_escaped(one.value) for one in reactions)


def offset_errors_rows() -> Rows:
    """What an error in OffsetCommit and OffsetFetch leads to."""
    from kafka.core.group.offsets import (
        COMMIT_ERROR_ACTIONS,
        OFFSET_FETCH_ERROR_ACTIONS,
        REPLACED_ERRORS,
    )

    tables = {"OffsetCommit": COMMIT_ERROR_ACTIONS, "OffsetFetch": OFFSET_FETCH_ERROR_ACTIONS}
    yield ("error", "code", *tables, "raised as")
    for error in _broker_errors(tables.values()):
        actions = (table.action_for(error("x")) for table in tables.values())
        raised = REPLACED_ERRORS.get(error, error)
        yield (
            f"``{error.__name__}``", str(error.errno),
            *(_escaped(one.value) for one in actions), f"``{raised.__name__}``",
        )  # fmt: skip


def share_errors_rows() -> Rows:
    """What a share consumer does about an error, by the part of the response that has it."""
    from kafka.core.group.heartbeat import SHARE_HEARTBEAT_ERRORS, HeartbeatErrorAction
    from kafka.core.share.session import ACKNOWLEDGE_ERRORS, SHARE_FETCH_ERRORS, SHARE_PARTITION_ERRORS

    tables: dict[str, Any] = {
        "whole response": SHARE_FETCH_ERRORS, "partition": SHARE_PARTITION_ERRORS,
        "acknowledgements": ACKNOWLEDGE_ERRORS, "heartbeat": SHARE_HEARTBEAT_ERRORS,
    }  # fmt: skip
    words = {
        "locks_gone": "locks are lost", "again": "sent again", "one_by_one": "sent one by one", "is_reported": "raised",
        "final": "final", "coordinator": "finds the coordinator again",
    }  # fmt: skip
    actions = {HeartbeatErrorAction.REJOIN: "joins again", HeartbeatErrorAction.GIVE_UP: "final"}
    yield ("error", "code", *tables)
    for error in _broker_errors(tables.values()):
        cells = []
        for table in tables.values():
            row = table.rows.get(error)
            found = [word for name, word in words.items() if getattr(row, name, False)]
            found += [actions[row.action]] if getattr(row, "action", None) in actions else []
            nothing = "" if row is None else "refused" if table is ACKNOWLEDGE_ERRORS else "retried"
            cells.append(", ".join(found) or nothing)
        yield f"``{error.__name__}``", str(error.errno), *cells


def _broker_errors(tables: Iterable[Any]) -> list[Any]:
    """The error classes with a row in one of the tables that stand for a code, in the order of the codes."""
    named: set[Any] = {error for table in tables for error in table.rows if getattr(error, "errno", None)}
    return sorted(named, key=lambda error: (error.errno, error.__name__))


def states_rows(name: str) -> Rows:
    """The states of a machine, and the next states of each."""
    from kafka.core.states import TABLES
    from kafka.tasks.backends.kafka.schedule_owner import OWNER_STAGES

    tables: dict[str, Any] = {**TABLES, "owner": OWNER_STAGES}
    yield ("state", "next states")
    for state, following in tables[name].items():
        order = [each for each in tables[name] if each in following]
        yield f"``{state.name}``", ", ".join(f"``{each.name}``" for each in order) or "nothing"


def schedule_rows() -> Rows:
    """The places of a job in the schedule, and the next ones of each."""
    from kafka.tasks.schedule.machine import PLACES

    yield ("place", "next places")
    for place, following in PLACES.items():
        yield f"``{place}``", ", ".join(f"``{each}``" if each in PLACES else each for each in following)


def app_settings_rows() -> Rows:
    """Settings of an app."""
    from kafka.tasks.settings import SETTINGS

    yield ("setting", "default", "unit", "meaning")
    for name, setting in SETTINGS.items():
        yield f"``{name}``", _value(setting.default), setting.unit, _escaped(setting.doc)


def commands_rows() -> Rows:
    """What ``python -m kafka`` can do."""
    from kafka.cli import COMMANDS

    yield ("command", "what it does")
    for name, (_, text) in COMMANDS.items():
        yield f"``{name}``", _escaped(text)


def pool_options_rows() -> Rows:
    """Flags of a worker that are about its pool."""
    from kafka.cli.worker import POOL_OPTIONS

    yield ("option", "pools", "meaning")
    for flag, option in POOL_OPTIONS.items():
        pools = "all" if option.pools is None else ", ".join(f"``{name}``" for name in option.pools)
        yield f"``{flag} {option.metavar}``", pools, _escaped(option.help % ())


def lost_causes_rows() -> Rows:
    """Why a child died with its job."""
    from kafka.tasks.rules.outcome import LOST_CAUSES

    yield ("cause", "meaning")
    for cause, text in LOST_CAUSES.items():
        yield f"``{cause}``", _escaped(text)


def options_later() -> Rows:
    """Options of tasks and calls that are refused so far."""
    from kafka.tasks.options import LATER

    yield ", ".join(f"``{name}``" for name in sorted(LATER)),


def worker_metrics_rows() -> Rows:
    """Name, kind, labels and meaning of each number of a worker."""
    from kafka.tasks.health.metrics import FAMILIES

    return _metrics_rows(FAMILIES)


def app_metrics_rows() -> Rows:
    """The same of what ``inspect --health-port`` serves."""
    from kafka.tasks.health.metrics import APP_FAMILIES

    return _metrics_rows(APP_FAMILIES)


def _metrics_rows(families: Iterable[Any]) -> Rows:
    from kafka.tasks.health.metrics import PREFIX

    suffixes = {"counter": "_total", "info": "_info"}
    yield ("name", "kind", "labels", "meaning")
    for family in families:
        name = f"``{PREFIX}{family.name}{suffixes.get(family.kind, '')}``"
        yield name, family.kind, ", ".join(f"``{label}``" for label in family.labels), family.text


def broker_settings_rows() -> Rows:
    """Settings of the embedded broker, by Kafka's names."""
    from kafka.broker.config import BROKER_SETTINGS

    yield ("setting", "default", "unit", "dynamic", "meaning")
    for setting in sorted(BROKER_SETTINGS.values(), key=lambda setting: setting.name):
        dynamic = "yes" if setting.dynamic else ""
        yield f"``{setting.name}``", _value(setting.default), setting.unit, dynamic, _escaped(setting.doc)


def _value(value: Any) -> str:
    """A default as one writes it, without quotes around texts."""
    shown = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return f"``{shown}``" if shown else ""


# -- classes ---------------------------------------------------------------------------------------------------------


def methods_rows(name: str) -> Rows:
    """Public methods of ``kafka.NAME`` (or ``kafka.tasks.NAME``) with the names of their arguments."""
    import kafka
    import kafka.tasks
    import kafka.testing

    found = getattr(next(home for home in (kafka.tasks, kafka.testing, kafka) if name in home.__all__), name)
    yield ("method", "what it does")
    seen: list[Any] = []  # a second name of a method is not shown
    members: dict[str, Any] = {}
    for cls in found.__mro__:
        if cls.__module__.startswith("kafka."):
            members = {**members, **{name: value for name, value in vars(cls).items() if name not in members}}
    for method, value in members.items():
        doc = inspect.getdoc(value)
        if method.startswith("_") or not doc or not (callable(value) or isinstance(value, property)) or value in seen:
            continue
        seen.append(value)
        arguments = "" if isinstance(value, property) else f"({', '.join(_arguments(value))})"
        yield f"``{method}{arguments}``", first_sentence(doc)


def faults_rows() -> Rows:
    """Actions of faults, with their arguments and moments."""
    from kafka.broker.faults import ACTIONS, FaultRuleBuilder

    yield ("call", "moments (the first by default)", "what happens")
    for name, whens in ACTIONS.items():
        method = getattr(FaultRuleBuilder, name)
        own = [each for each in _arguments(method) if each not in ("when", "**match")]
        has_choice = "when" in inspect.signature(method).parameters
        moments = ", ".join(f"``{when}``" for when in whens) if has_choice else ""
        yield f"``{name}({', '.join(own)}, ...)``", moments, first_sentence(inspect.getdoc(method) or "")


# -- docstrings ------------------------------------------------------------------------------------------------------


def docstring(module: str) -> str:
    """What a module says of itself to users: its docstring without the first paragraph, and up to the paragraph that
    begins with "Inside:"."""
    path = ROOT.joinpath(*module.split("."))
    _, _, rest = _docstring(path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).partition("\n\n")
    return plain(rest.partition("\n\nInside:")[0])


def broker_handlers() -> str:
    """What the embedded broker answers: for each module of handlers its APIs with the versions that are served, then
    its docstring, whose last paragraph says what differs from Apache Kafka."""
    from kafka.broker.registry import MODULES, load
    from kafka.protocol.registry import NAMES

    served: dict[str, list[str]] = {name: [] for name in MODULES}
    for key, handler in sorted(load().items()):
        module = handler.function.__module__.rpartition(".")[2]
        low, high = handler.min_version, handler.max_version
        served[module].append(f"{NAMES[key]} {low} to {high}" if low != high else f"{NAMES[key]} {low}")
    home = ROOT / "kafka" / "broker" / "handlers"
    parts = []
    for module, apis in served.items():
        heading = textwrap.fill(", ".join(apis), WIDTH, initial_indent=".. rubric:: ", subsequent_indent="   ")
        parts += [heading, plain(_docstring(home / f"{module}.py"))]
    return "\n\n".join(parts)


def _docstring(path: pathlib.Path) -> str:
    """A module's docstring. It is not imported: what pytest needs is shown without pytest."""
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def _arguments(function: Callable[..., Any]) -> Iterable[str]:
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        yield f"{stars}{parameter.name}"


def first_sentence(doc: str) -> str:
    """The first sentence of a docstring, as text that needs no other page."""
    text = " ".join(plain(doc).split("\n\n")[0].split())
    return re.split(r"(?<=[a-z0-9)`}\]])\. (?=[A-Z`])", text)[0].rstrip(".") + "."


def plain(doc: str) -> str:
    """A docstring with its cross-references as literals: those lead to modules, which have no pages."""
    return re.sub(r":[a-z]+:`~?([^`]+)`", r"``\1``", doc)


def _escaped(text: str) -> str:
    """Names with underscores at their end, stars and bars, as they are. What is a literal already stays one."""
    parts = plain(text).split("``")
    return "``".join(part if at % 2 else re.sub(r"([*|\\]|_(?!\w))", r"\\\1", part) for at, part in enumerate(parts))


def releases_rows() -> Rows:
    """Releases of ``--emulate``: where the facts are from, what happens to unknown requests, and what the release tells
    clients and is not served."""
    from kafka.broker.emulation import BETWEEN_BROKERS, RELEASES, EmulatedRelease
    from kafka.broker.registry import load
    from kafka.protocol.registry import NAMES

    yield ("release", "recorded from", "unknown requests", "not here")
    handlers = load()
    for release in RELEASES.values():
        told = {row.key: row for row in EmulatedRelease(release, handlers).apis()}
        lacking = []
        for key, (least, most) in sorted(release.apis.items()):
            row = told.get(key)
            if row is None and key not in BETWEEN_BROKERS:
                lacking.append(NAMES[key])
            elif row is not None and (row.least, row.most) != (least, most):
                lacking.append(f"{NAMES[key]} {least} to {most} but for {row.least} to {row.most}")
        yield (
            f"``{release.name}``",
            release.recorded,
            "connection ends" if release.closes_on_unknown else "silence; the connection goes on",
            ", ".join(lacking) or "nothing",
        )


LOG_LEVELS = {"warning": "WARNING", "error": "ERROR", "exception": "ERROR, with a traceback"}


def logs_rows(packages: str) -> Rows:
    """Messages of the loggers of these packages (their names parted by commas), in the order of the loggers."""
    yield ("logger", "level", "message")
    for package in packages.split(","):
        home = ROOT / "kafka" / package
        for path in sorted(home.rglob("*.py")) if home.is_dir() else [home.with_suffix(".py")]:
            logger = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                text = _logged(node)
                if text:
                    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
                    yield (f"``{logger}``", LOG_LEVELS[node.func.attr], f"``{text}``")


def _logged(node: ast.AST) -> str:
    """The format of a call such as ``log.warning("...", ...)``, or of a ``LimitedLog``'s, which has the kind of line
    before it; empty for any other node."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
        return ""
    owner = node.func.value
    is_logger = isinstance(owner, ast.Name) and owner.id in ("log", "logger")
    is_limited = isinstance(owner, ast.Attribute) and owner.attr.endswith("_log")
    text = node.args[min(int(is_limited), len(node.args) - 1)]
    if not (is_logger or is_limited) or node.func.attr not in LOG_LEVELS or not isinstance(text, ast.Constant):
        return ""
    return "" if text.value.strip() == "%s" else str(text.value)


# -- as text ---------------------------------------------------------------------------------------------------------

WIDTH = 120
WIDEST = 160
"""Of a table whose words do not fit into the width; a wider one becomes a list."""
WIDEST_FIRST = 64
"""A table whose first column is wider becomes a list: lines of that column cannot be wrapped."""

PARTS: dict[str, Callable[..., Rows | str]] = {
    "app metrics": app_metrics_rows,
    "app settings": app_settings_rows,
    "broker handlers": broker_handlers,
    "broker releases": releases_rows,
    "broker settings": broker_settings_rows,
    "codecs": codecs_rows,
    "commands": commands_rows,
    "docstring": docstring,
    "faults": faults_rows,
    "group errors": group_errors_rows,
    "imports": import_rows,
    "logs": logs_rows,
    "lost causes": lost_causes_rows,
    "methods": methods_rows,
    "offset errors": offset_errors_rows,
    "options later": options_later,
    "pool options": pool_options_rows,
    "produce errors": produce_errors_rows,
    "producer id errors": producer_id_errors_rows,
    "protocol": protocol_rows,
    "settings": settings_rows,
    "settings later": settings_later,
    "share errors": share_errors_rows,
    "states": states_rows,
    "schedule places": schedule_rows,
    "transaction errors": transaction_errors_rows,
    "worker metrics": worker_metrics_rows,
}
"""Name -> function. A word behind the name in a page is the function's argument."""

_MARKED = re.compile(r"^(\.\. From docs/tables\.py: ([^\n]+)\n\n)(?:.*?\n)??(\.\. End\.\n)", re.MULTILINE | re.DOTALL)


def rewritten(page: str) -> str:
    """The text of a page with its parts as they are now."""
    return _MARKED.sub(lambda match: f"{match[1]}{part_of(match[2])}\n\n{match[3]}", page)


def part_of(marked: str) -> str:
    """A part by what its first comment says: its name, and perhaps an argument."""
    name, _, argument = (marked, "", "") if marked in PARTS else marked.rpartition(" ")
    content = PARTS[name](argument) if argument else PARTS[name]()
    return content if isinstance(content, str) else formatted(list(content))


def formatted(rows: Sequence[tuple[str, ...]]) -> str:
    """Rows as a simple table of reStructuredText, or as a list where that would be too wide."""
    cells = [[" ".join(cell.split()) for cell in row] for row in rows]
    if len(cells) == 1 and len(cells[0]) == 1:
        return "\n".join(textwrap.wrap(cells[0][0], WIDTH, break_on_hyphens=False))
    widths = _widths(cells)
    if widths is None:
        lines = [".. list-table::", "   :header-rows: 1", ""]
        for row in cells:
            for number, cell in enumerate(row):
                start = f"   {'*' if number == 0 else ' '} - "
                wrapped = textwrap.wrap(cell, WIDTH - 7, break_long_words=False, break_on_hyphens=False) or [""]
                lines += [f"{start if at == 0 else ' ' * 7}{part}".rstrip() for at, part in enumerate(wrapped)]
        return "\n".join(lines)
    rule = "  ".join("=" * width for width in widths)
    lines = [rule, *_lines(cells[0], widths), rule]
    for row in cells[1:]:
        lines += _lines(row, widths)
    return "\n".join([*lines, rule])


def _widths(cells: Sequence[Sequence[str]]) -> list[int] | None:
    """The columns' widths: as wide as their texts, and where that is too much, the widest columns less. None: too wide
    even so."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    least = [max(len(word) for cell in column for word in ("", *cell.split())) for column in zip(*cells, strict=True)]
    least[0] = widths[0]
    if widths[0] > WIDEST_FIRST or sum(least) + 2 * (len(least) - 1) > WIDEST:
        return None
    while widths != least and sum(widths) + 2 * (len(widths) - 1) > WIDTH:
        widest = max((each for each in range(len(widths)) if widths[each] > least[each]), key=widths.__getitem__)
        widths[widest] -= 1
    return widths


def _lines(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    wrapped = [
        textwrap.wrap(cell, width, break_long_words=False, break_on_hyphens=False) if width else []
        for cell, width in zip(row, widths, strict=True)
    ]
    lines = []
    for at in range(max(1, *map(len, wrapped))):
        parts = (cell[at] if at < len(cell) else "" for cell in wrapped)
        lines.append("  ".join(part.ljust(width) for part, width in zip(parts, widths, strict=True)).rstrip())
    return lines


def main(arguments: Sequence[str]) -> int:
    """Rewrite the pages, or with ``--check`` compare them; the exit code."""
    outdated = []
    for path in sorted(DOCS.glob("*.rst")):
        page = path.read_text(encoding="utf-8")
        if rewritten(page) != page:
            outdated.append(path)
            if "--check" not in arguments:
                path.write_text(rewritten(page), encoding="utf-8")
    for path in outdated:
        print(path.relative_to(ROOT))
    return 1 if outdated and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
