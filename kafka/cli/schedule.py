"""``python -m kafka schedule ACTION MODULE:APP [NAME...]``: the periodic entries of an app.

    list       all entries, and when each runs next
    next       the next times of entries
    pause      make no jobs until they are resumed
    resume     make jobs again
    run-now    make one job now

An action is a function that returns the exit code, and its line in :data:`ACTIONS`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Final

from kafka.cli import EXIT_OK, CommandError, client_settings
from kafka.cli.tables import aligned
from kafka.tasks import App, PeriodicEntry

HEAD: Final = ("name", "next (UTC)", "in", "times", "missed", "task", "queue", "source")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=list(ACTIONS), help="what to do")
    parser.add_argument("app", metavar="MODULE:APP", help="the app whose entries are meant, such as shop.tasks:app")
    parser.add_argument("names", metavar="NAME", nargs="*", help="entries (list and next: default all)")
    parser.add_argument("--count", type=int, default=5, metavar="N", help="next: how many times (default: 5)")
    parser.add_argument("--json", action="store_true", help="list and next: print JSON")
    parser.add_argument(
        "--bootstrap-server", metavar="HOST:PORT", help="use these brokers instead of the app's bootstrap_servers"
    )
    client_settings.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    app = client_settings.load_app(args)
    if app.is_in_process:
        raise CommandError(
            f"the schedule of the app {app.name} is in the memory of the process that uses it "
            f"({app.settings.bootstrap_servers}): commands can neither list nor change its entries"
        )
    try:
        return ACTIONS[args.action](app, args)
    finally:
        app.close()


def _entries(app: App, names: Sequence[str]) -> list[PeriodicEntry]:
    entries = app.schedule.list()
    unknown = set(names) - {entry.name for entry in entries}
    if unknown:
        known = ", ".join(entry.name for entry in entries) or "none"
        raise CommandError(f"no periodic entry {sorted(unknown)[0]!r}; the app {app.name} has: {known}")
    return [entry for entry in entries if not names or entry.name in names]


def _list(app: App, args: argparse.Namespace) -> int:
    entries = _entries(app, args.names)
    if args.json:
        print(json.dumps([_row(entry) for entry in entries], indent=2))
        return EXIT_OK
    if not entries:
        print(f"the app {app.name} has no periodic entries")
        return EXIT_OK
    now = datetime.now(timezone.utc)
    rows = [
        (
            entry.name,
            "paused" if entry.is_paused else "never" if entry.next is None else f"{entry.next:%Y-%m-%d %H:%M:%S}",
            "" if entry.next is None else _distance((entry.next - now).total_seconds()),
            entry.times,
            entry.missed,
            entry.task,
            entry.queue,
            entry.source,
        )
        for entry in entries
    ]
    print("\n".join(aligned([HEAD, *rows])))
    return EXIT_OK


def _row(entry: PeriodicEntry) -> dict[str, object]:
    return {
        "name": entry.name,
        "next": None if entry.next is None else entry.next.isoformat(),
        "paused": entry.is_paused,
        "times": dict(entry.spec),
        "missed": entry.missed,
        "task": entry.task,
        "queue": entry.queue,
        "source": entry.source,
    }


def _distance(seconds: float) -> str:
    """How far away, in its largest two units."""
    left = max(0, round(seconds))
    for unit, size, smaller, part in (("d", 86_400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if left >= size:
            return f"{left // size} {unit} {left % size // part} {smaller}"
    return f"{left} s"


def _next(app: App, args: argparse.Namespace) -> int:
    if args.count < 1:
        raise CommandError(f"--count must be 1 or more, not {args.count}")
    entries = _entries(app, args.names)
    times = {entry.name: list(entry.upcoming(args.count)) for entry in entries}
    if args.json:
        print(json.dumps({name: [at.isoformat() for at in each] for name, each in times.items()}, indent=2))
        return EXIT_OK
    rows = [(name, f"{at:%Y-%m-%d %H:%M:%S}") for name, each in times.items() for at in each]
    rows.sort(key=lambda row: row[1])
    rows += [(entry.name, "paused" if entry.is_paused else "never again") for entry in entries if entry.next is None]
    if not rows:
        print(f"the app {app.name} has no periodic entries")
        return EXIT_OK
    print("\n".join(aligned([("name", "time (UTC)"), *rows])))
    return EXIT_OK


def _each(change: Callable[[App, str], str]) -> Callable[[App, argparse.Namespace], int]:
    def act(app: App, args: argparse.Namespace) -> int:
        if not args.names:
            raise CommandError(f"which entry? python -m kafka schedule {args.action} {args.app} NAME")
        _entries(app, args.names)  # a wrong name changes nothing
        for name in args.names:
            print(change(app, name))
        return EXIT_OK

    return act


def _pause(app: App, name: str) -> str:
    app.schedule.pause(name)
    return f"{name} is paused: it makes no jobs until it is resumed"


def _resume(app: App, name: str) -> str:
    at = app.schedule.resume(name)
    return f"{name} is resumed; it runs next at {at:%Y-%m-%d %H:%M:%S} UTC" if at else f"{name} is resumed"


def _run_now(app: App, name: str) -> str:
    return f"{name} runs now: job {app.schedule.run_now(name).id}"


ACTIONS: Final[dict[str, Callable[[App, argparse.Namespace], int]]] = {
    "list": _list,
    "next": _next,
    "pause": _each(_pause),
    "resume": _each(_resume),
    "run-now": _each(_run_now),
}
