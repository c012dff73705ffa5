"""``python -m kafka dead ACTION APP.QUEUE [ID...]``: the dead jobs of a queue. What they are, and what a replay is:
:mod:`kafka.tasks.dead`.

    list       one line for each, the oldest first
    show       everything of these, with arguments and traceback
    replay     send them to their queue as new jobs
    drop       list, show and replay them no more

An action is a function that returns the exit code, and its line in :data:`ACTIONS`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any, Final

from kafka.cli import EXIT_FAILED, EXIT_OK, CommandError, client_settings, program_name
from kafka.cli.confirmation import confirm
from kafka.tasks import DeadCounts, DeadJob, DeadJobs, DeadSelection

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_RATE: Final = re.compile(r"(\d+(?:\.\d+)?)(?:/([smh]))?")
_PER_S: Final = {None: 1, "s": 1, "m": 60, "h": 3600}

WIDTHS: Final = {"time": 19, "id": 32, "task": 24, "cause": 16, "error": 16}
"""Columns of the list before the text; rows are printed as they are read, so a longer cell moves the rest of its row.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=list(ACTIONS), help="what to do")
    client_settings.add_queue_arguments(parser)
    parser.add_argument("ids", metavar="ID", nargs="*", help="only these: job ids, or PARTITION:OFFSET")
    parser.add_argument("--error", metavar="NAME", help="only with this type of error or cause; may have * and ?")
    parser.add_argument("--task", metavar="NAME", help="only of this task; may have * and ?")
    parser.add_argument(
        "--since", type=_time, metavar="WHEN", help="only those that died since then: 30s, 5m, 2h, 7d, or an ISO time"
    )
    parser.add_argument("--until", type=_time, metavar="WHEN", help="only those that died before then")
    parser.add_argument("--limit", type=_count, metavar="N", help="at most so many, the oldest")
    parser.add_argument("--all", action="store_true", help="list: also those that were replayed or dropped")
    parser.add_argument("--dry-run", action="store_true", help="replay, drop: only show which it would be")
    parser.add_argument("--rate", type=_rate, metavar="N/s", help="replay: at most so many a second (or N/m, N/h)")
    parser.add_argument("--yes", action="store_true", help="drop: do not ask")
    parser.add_argument("--json", action="store_true", help="print one JSON list")


def run(args: argparse.Namespace) -> int:
    if args.action == "show" and not args.ids:
        raise CommandError(f"show needs the id of a dead job: {program_name()} dead show {args.queue} ID")
    if args.since is not None and args.until is not None and args.since >= args.until:
        raise CommandError("--since must be before --until")
    for name, actions in (("all", "list"), ("dry_run", "replay, drop"), ("rate", "replay"), ("yes", "drop")):
        if getattr(args, name) and args.action not in actions.split(", "):
            raise CommandError(f"--{name.replace('_', '-')} is for {actions.replace(', ', ' and ')}, not {args.action}")
    app, queue = client_settings.queue_of(args)
    selection = DeadSelection(args.error, args.task, args.since, args.until, frozenset(args.ids), args.limit)
    try:
        with DeadJobs(app, queue) as dead:
            return ACTIONS[args.action](dead, selection, args)
    finally:
        app.close()


def _list(dead: DeadJobs, selection: DeadSelection, args: argparse.Namespace) -> int:
    printer = Printer(args.json, head=line({name: name for name in (*WIDTHS, "text")}))
    for job in dead.select(selection, args.all):
        printer.print(as_object(job), lambda row: line(row))
    printer.close()
    if not printer.count and not args.json:
        marked = 0 if args.all else sum(1 for _ in dead.select(selection, include_marked=True))
        matches = "" if selection == DeadSelection() else " match"
        before = f"; {marked} replayed or dropped before (--all lists these)" if marked else ""
        print(f"no dead jobs of {args.queue}{matches}{before}")
    return EXIT_OK


def _show(dead: DeadJobs, selection: DeadSelection, args: argparse.Namespace) -> int:
    jobs = list(dead.select(selection, include_marked=True))
    if not jobs:
        raise CommandError(_no_match(args, DeadCounts()), EXIT_FAILED)
    printer = Printer(args.json)
    for job in jobs:
        details = {**as_object(job), **details_of(job)}
        if job.mark is not None:
            details["replayed_as"] = dead.replayed_as(job)
        printer.print(details, lambda row: "\n".join(paragraphs(row)) + "\n")
    printer.close()
    return EXIT_OK


def _replay(dead: DeadJobs, selection: DeadSelection, args: argparse.Namespace) -> int:
    printer = Printer(args.json)

    def on_replayed(job: DeadJob, new_id: str | None) -> None:
        row = {"id": job.id, "task": job.task, "replayed_as": new_id}
        printer.print(row, lambda row: f"{row['id']} -> {row['replayed_as'] or '(dry run)'}  {printable(row['task'])}")

    counts = dead.replay(selection, args.rate, args.dry_run, on_replayed)
    printer.close()
    if not counts.done:
        raise CommandError(_no_match(args, counts), EXIT_FAILED)
    _print_summary(args, "replayed", counts)
    return EXIT_OK


def _drop(dead: DeadJobs, selection: DeadSelection, args: argparse.Namespace) -> int:
    if not args.yes and not args.dry_run:
        found = dead.drop(selection, dry_run=True)
        if not found.done:
            raise CommandError(_no_match(args, found), EXIT_FAILED)
        confirm(f"drop {found.done} dead {_jobs(found.done)} of {args.queue}?")
    printer = Printer(args.json)

    def on_dropped(job: DeadJob) -> None:
        printer.print(as_object(job), lambda row: line(row))

    counts = dead.drop(selection, args.dry_run, on_dropped)
    printer.close()
    if not counts.done:
        raise CommandError(_no_match(args, counts), EXIT_FAILED)
    _print_summary(args, "dropped", counts)
    return EXIT_OK


ACTIONS: Final[dict[str, Callable[[DeadJobs, DeadSelection, argparse.Namespace], int]]] = {
    "list": _list,
    "show": _show,
    "replay": _replay,
    "drop": _drop,
}


# -- output ------------------------------------------------------------------------------------------------------------


class Printer:
    """Prints rows as they come: texts, below ``head`` if there is one, or the elements of one JSON list."""

    def __init__(self, is_json: bool, head: str = "") -> None:
        self._is_json = is_json
        self._head = head
        self.count = 0

    def print(self, row: dict[str, Any], as_text: Callable[[dict[str, Any]], str]) -> None:
        """Print one row."""
        self.count += 1
        if self._is_json:
            print("[\n" if self.count == 1 else ",\n", json.dumps(row), sep="", end="")
            return
        if self._head and self.count == 1:
            print(self._head)
        print(as_text(row))

    def close(self) -> None:
        """Print the end of the list."""
        if self._is_json:
            print("\n]" if self.count else "[]")


def as_object(job: DeadJob) -> dict[str, Any]:
    """What the list has of a dead job; ``id`` is its position when it has no valid one."""
    return {
        "id": job.id or job.position,
        "position": job.position,
        "time": _iso(job.time_ms),
        "task": job.task,
        "cause": job.letter.cause,
        "error": job.letter.type,
        "text": job.letter.text,
        "mark": None if job.mark is None else job.mark.value,
    }


def details_of(job: DeadJob) -> dict[str, Any]:
    """What ``show`` has besides. ``arguments`` is the payload itself where it is JSON text, else its size."""
    arguments: Any
    try:
        arguments = json.loads(job.value or b"")
    except (ValueError, RecursionError):
        arguments = f"{len(job.value or b'')} bytes that are not JSON"
    return {
        "host": job.letter.host,
        "from": job.letter.origin,
        "key": None if job.key is None else job.key.decode("utf-8", "backslashreplace"),
        "arguments": arguments,
        "headers": {
            name: None if raw is None else raw.decode("utf-8", "backslashreplace")
            for name, raw in job.headers
            if not name.startswith("dead-")
        },
        "traceback": job.letter.traceback,
    }


def line(row: dict[str, Any]) -> str:
    """One line of the list; of the text its first line, and what became of the job in front of it."""
    cells = [printable(row[name] or "-")[: 200].ljust(width) for name, width in WIDTHS.items()]
    cells[0] = str(row["time"])[:19].replace("T", " ").ljust(WIDTHS["time"])
    mark = f"[{row['mark']}] " if row.get("mark") else ""
    text = next(iter(str(row["text"]).splitlines()), "")
    return "  ".join([*cells, mark + printable(text)]).rstrip()


def paragraphs(row: dict[str, Any]) -> Iterator[str]:
    """A dead job for people: a line for each field, its traceback at the end."""
    for name, value in row.items():
        if name == "traceback" or value in (None, "", {}):
            continue
        if name == "headers":
            value = ", ".join(f"{key}={text}" for key, text in value.items())
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield f"{name.replace('_', ' '):<12} {printable(shown)}"
    for text in str(row["traceback"]).splitlines():
        yield f"    {printable(text)}"


def printable(text: object) -> str:
    """A text of others without what would control the terminal."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in str(text))


def _print_summary(args: argparse.Namespace, verb: str, counts: DeadCounts) -> None:
    would = "would have " if args.dry_run else ""
    skipped = f"; {counts.no_job} left out that are no jobs" if counts.no_job else ""
    print(f"{would}{verb} {counts.done} dead {_jobs(counts.done)} of {args.queue}{skipped}", file=sys.stderr)


def _no_match(args: argparse.Namespace, counts: DeadCounts) -> str:
    reasons = [f"{counts.marked} replayed or dropped before"] if counts.marked else []
    reasons += [f"{counts.no_job} that cannot be replayed, since the record is no job"] if counts.no_job else []
    return f"no dead job of {args.queue} matches" + (f" but {' and '.join(reasons)}" if reasons else "")


def _jobs(count: int) -> str:
    return "job" if count == 1 else "jobs"


def _iso(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000).astimezone().isoformat(timespec="milliseconds")


# -- arguments ---------------------------------------------------------------------------------------------------------


def _time(text: str) -> int:
    """``2h`` ago, or an ISO time (local unless it has an offset), as ms since the epoch."""
    number, unit = text[:-1], text[-1:]
    try:
        if unit in _UNITS and number.isdecimal():
            when = datetime.now().astimezone() - timedelta(**{_UNITS[unit]: int(number)})
        else:
            when = datetime.fromisoformat(re.sub("[zZ]$", "+00:00", text))
        return max(0, int(when.timestamp() * 1000))
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time; give 30s, 5m, 2h or 7d (ago), or 2026-03-01T12:00"
        ) from None


def _rate(text: str) -> float:
    match = _RATE.fullmatch(text)
    rate = float(match[1]) / _PER_S[match[2]] if match else 0.0
    if rate <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate such as 50/s, 10/m or 5/h")
    return rate


def _count(text: str) -> int:
    if not text.isdecimal() or not text.isascii() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of jobs above 0")
    return int(text)
