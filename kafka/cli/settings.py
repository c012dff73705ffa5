"""``python -m kafka settings [SUBJECT]``: the settings of a subject with default, unit and meaning.

Everything comes from the tables that the code itself reads: of clients ``kafka/config.py``, of an app
``kafka/tasks/settings.py``, of the broker ``kafka/broker/config.py``, of a worker the options of its command. Another
subject is a function that yields rows and its line in :data:`SUBJECTS`.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from kafka.cli import client_settings
from kafka.cli.tables import aligned
from kafka.config import BY_NAME, settings_of


class Row(NamedTuple):
    """One setting; ``default`` is the value itself where it is not a text that only describes it."""

    setting: str
    default: Any
    unit: str
    meaning: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "subject", metavar="SUBJECT", nargs="?", choices=list(SUBJECTS), help=f"whose settings: {', '.join(SUBJECTS)}"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON list")


def run(args: argparse.Namespace) -> int:
    rows: list[Any]
    if args.subject is None:
        rows = [(name, text) for name, (_, text) in SUBJECTS.items()]
        head: tuple[str, ...] = ("subject", "its settings are for")
    else:
        rows = list(SUBJECTS[args.subject][0]())
        head = Row._fields
    if args.json:
        names = head if args.subject else ("subject", "meaning")
        print(json.dumps([dict(zip(names, map(_json_value, row), strict=True)) for row in rows], indent=2))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        print("\n".join(aligned([head, *(tuple(map(shown, row)) for row in rows)], width)))
    return 0


def shown(value: Any) -> str:
    """A value as one writes it, without quotes around texts."""
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def plain(doc: str) -> str:
    """A meaning without the marks of reStructuredText; a page is named by its file."""
    named = re.sub(r":doc:`([a-z-]+)`", r"docs/\1.rst", doc)
    return re.sub(r":[a-z]+:`~?([^`]+)`|`+([^`]+)`+", lambda match: match[1] or match[2], named)


def client_rows(client: str) -> Iterator[Row]:
    """Settings of one kind of client: those of its own first, then those that all clients have."""
    own = [setting for setting in settings_of(client) if setting.clients != _ALL_CLIENTS]
    common = [setting for setting in settings_of(client) if setting.clients == _ALL_CLIENTS]
    for setting in (*own, *common):
        yield Row(setting.name, setting.default_for(client), setting.unit, plain(setting.doc))


def app_rows() -> Iterator[Row]:
    """Settings of an ``App``, and those of security and the rack, which it hands to its clients."""
    from kafka.tasks import APP_SETTINGS

    for name, setting in APP_SETTINGS.items():
        yield Row(name, setting.default, setting.unit, plain(setting.doc))
    for handed_on in map(BY_NAME.__getitem__, client_settings.CONNECTION):
        yield Row(handed_on.name, handed_on.default, handed_on.unit, plain(handed_on.doc))


def worker_rows() -> Iterator[Row]:
    """Options of ``python -m kafka worker``."""
    from kafka.cli import worker

    parser = argparse.ArgumentParser(add_help=False)
    worker.add_arguments(parser)
    yield from option_rows(parser)


def option_rows(parser: argparse.ArgumentParser) -> Iterator[Row]:
    """The options of a command. A default that the parser does not know is the text of ``(default: ...)`` in its
    help."""
    for action in parser._actions:
        if not action.option_strings:
            continue
        text = (action.help or "") % {**vars(action), "prog": parser.prog}
        described = re.search(r" \(default: ([^()]+)\)", text)
        default = described[1] if described else action.default if action.default not in ([], None) else ""
        unit = "s" if action.metavar == "S" else ""
        meaning = text.replace(described[0], "") if described else text
        yield Row(_name(action), default, unit, meaning)


def _name(action: argparse.Action) -> str:
    """The option as it is listed: ``--log-jobs``, not its opposite."""
    return action.option_strings[0 if isinstance(action, argparse.BooleanOptionalAction) else -1]


def broker_rows(name: str) -> Iterator[Row]:
    """Settings of the embedded broker, by Kafka's names: the broker's own, or those of topics."""
    from kafka import broker

    table: Mapping[str, Any] = getattr(broker, name)
    for setting in sorted(table.values(), key=lambda each: str(each.name)):
        yield Row(setting.name, setting.default, setting.unit, setting.doc)


def _json_value(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, (str, int, float, list, tuple, type(None))) else str(value)


_ALL_CLIENTS: Final = BY_NAME["bootstrap_servers"].clients

SUBJECTS: Final[dict[str, tuple[Callable[[], Iterable[Row]], str]]] = {
    "app": (app_rows, "App(...) of kafka.tasks, by keyword"),
    "worker": (worker_rows, "python -m kafka worker, as options"),
    "producer": (lambda: client_rows("producer"), "KafkaProducer(...), by keyword"),
    "consumer": (lambda: client_rows("consumer"), "KafkaConsumer(...), by keyword"),
    "share": (lambda: client_rows("share"), "KafkaShareConsumer(...), by keyword"),
    "admin": (lambda: client_rows("admin"), "KafkaAdminClient(...), by keyword"),
    "client": (lambda: client_rows("client"), "KafkaClient(...), by keyword"),
    "broker": (lambda: broker_rows("BROKER_SETTINGS"), "python -m kafka broker --set NAME=VALUE"),
    "topic": (lambda: broker_rows("TOPIC_SETTINGS"), "topics of the embedded broker, on creation or by AlterConfigs"),
}
"""Name -> its rows, and how its settings are set."""
