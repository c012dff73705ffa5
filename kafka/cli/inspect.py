"""``python -m kafka inspect MODULE:APP``: the workers of an app on all machines, their children and running jobs.

On a terminal a table that refreshes until Ctrl-C (rich, extra ``cli``); elsewhere, or with ``--once``, plain text once;
with ``--json`` a list of objects. ``--interval`` refreshes everywhere: plain tables one below the other, or one line of
JSON each time. What is shown is in ``inspect_view.py``; how workers are found, in :mod:`kafka.tasks.health`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from kafka.cli import CommandError, client_settings
from kafka.cli.inspect_view import as_objects, plain, rich_view
from kafka.tasks import App, Directory, Seen

REFRESH_S: Final = 2.0
LEAST_S: Final = 0.2
MOST_S: Final = 3600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("app", metavar="MODULE:APP", help="the app whose workers are meant, such as shop.tasks:app")
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT", help="instead of the app's bootstrap_servers")
    client_settings.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="show it once, also on a terminal")
    how.add_argument("--interval", type=float, metavar="S", help=f"refresh every S seconds (a terminal: {REFRESH_S:g})")


def run(args: argparse.Namespace) -> int:
    if args.interval is not None and not LEAST_S <= args.interval <= MOST_S:
        raise CommandError(f"--interval is {LEAST_S:g} to {MOST_S:g} seconds, not {args.interval:g}")
    app = client_settings.load_app(args)
    try:
        with Directory(app) as directory:
            _show(app, directory, args)
    finally:
        app.close()
    return 0


def _show(app: App, directory: Directory, args: argparse.Namespace) -> None:
    seen = directory.workers()
    if args.json:
        _repeat(directory, seen, args.interval, lambda found: _print_json(found, args.interval is None))
        return
    where = partial(_where, app, directory)
    live = None if args.once or not sys.stdout.isatty() else rich_view(app.name, where)
    if live is None:
        _repeat(
            directory, seen, args.interval, lambda found: print("\n".join(plain(app.name, found, where())), flush=True)
        )
        return
    with live:
        _repeat(directory, seen, args.interval or REFRESH_S, live.show)


def _where(app: App, directory: Directory) -> str:
    """The brokers that are asked: ``embedded:DIR`` with another directory is another broker."""
    servers = app.settings.bootstrap_servers
    return servers if directory.has_broker else f"{servers} (no broker runs there)"


def _repeat(
    directory: Directory, seen: Sequence[Seen], interval_s: float | None, show: Callable[[Sequence[Seen]], object]
) -> None:
    """Show it once, or until Ctrl-C, which is how one leaves that."""
    show(seen)
    if interval_s is None:
        return
    try:
        while True:
            began_at = time.monotonic()
            found = directory.workers(interval_s)
            time.sleep(max(0.0, interval_s - (time.monotonic() - began_at)))
            show(found)
    except KeyboardInterrupt:
        return


def _print_json(found: Sequence[Seen], is_indented: bool) -> None:
    objects: list[dict[str, Any]] = as_objects(found)
    print(json.dumps(objects, indent=2 if is_indented else None), flush=True)
