"""``python -m kafka inspect MODULE:APP``: the workers of an app on all machines, its queues, children and running jobs.

On a terminal a table that refreshes until Ctrl-C (rich, extra ``cli``); elsewhere, or with ``--once``, plain text once;
with ``--json`` an object. ``--interval`` refreshes everywhere: plain tables one below the other, or one line of
JSON each time. With ``--health-port`` nothing is shown: the lengths of the queues are served to Prometheus until a
stop signal, with exit code 0.
:mod:`kafka.tasks.health` says how workers are found.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from types import FrameType, TracebackType
from typing import Any, Final, NamedTuple

from kafka.cli import CommandError, client_settings, logs
from kafka.cli.tables import aligned
from kafka.errors import KafkaError
from kafka.tasks import (
    App,
    Directory,
    QueueDelivery,
    QueueExporter,
    QueueLength,
    Seen,
    WorkerSnapshot,
    parse_health_port,
)

log = logging.getLogger(__name__)

# What ``inspect`` shows: rows first, then as plain text, as rich's tables, or as objects for JSON.
#
# Four tables: workers, queues, children, running jobs; another column is another head and another cell in its function.


class Inspected(NamedTuple):
    """What there is at one time. ``queues`` None: ``error`` says why their lengths are not known; ``deliveries``: how
    their jobs are delivered."""

    workers: Sequence[Seen]
    queues: Sequence[QueueLength] | None = ()
    error: str = ""
    deliveries: Sequence[QueueDelivery] = ()


class Table(NamedTuple):
    """A table: its title, its heads, and its cells as texts."""

    title: str
    heads: tuple[str, ...]
    rows: list[tuple[str, ...]]


def tables(app: str, inspected: Inspected, where: str) -> list[Table]:
    """The tables to show; those without rows are left out, except the first. ``where``: the brokers that were asked."""
    seen_workers = inspected.workers
    count = len(seen_workers)
    title = f"{count} worker{'' if count == 1 else 's'} of {app}"
    if not count:
        title = f"no workers of {app} found at {where}"
    workers = Table(title, _WORKERS, [_worker(seen) for seen in seen_workers])
    queues = Table("queues", _QUEUES, [_queue(*each) for each in _queues(inspected)])
    children = Table("children", _CHILDREN, [row for seen in seen_workers for row in _children(seen.worker)])
    running = Table("running jobs", _RUNNING, [row for seen in seen_workers for row in _running(seen.worker)])
    return [workers, *(table for table in (queues, children, running) if table.rows)]


def _queues(inspected: Inspected) -> list[tuple[QueueLength, QueueDelivery]]:
    found = {each.queue: each for each in inspected.deliveries}
    return [(each, found.get(each.queue) or QueueDelivery(each.queue)) for each in inspected.queues or ()]


def _queue(length: QueueLength, delivery: QueueDelivery) -> tuple[str, ...]:
    *counts, paused = length
    _, kind, protocol, state = delivery
    way = f"{kind} ({protocol})" if protocol else kind
    return (*map(str, counts), "-" if paused is None else "yes" if paused else "no", way or "-", state or "-")


def notes(inspected: Inspected) -> list[str]:
    """One line for each problem, and for each worker with more rows than are shown."""
    lines = [] if inspected.queues is not None else [f"the lengths of the queues are not known: {inspected.error}"]
    for worker, age_s in inspected.workers:
        name = _name(worker)
        lines += [f"{name}: {reason}" for reason in worker.reasons]
        if worker.left_out:
            lines.append(f"{name}: {worker.left_out} more children and jobs are not shown")
        for each in worker.queue_jobs:
            if each.full_partitions:
                count = f"{each.full_partitions} partition{'s take' if each.full_partitions > 1 else ' takes'}"
                lines.append(
                    f"{name}: queue {each.queue}: {count} no more jobs until long ones end "
                    f"({each.metadata_characters} characters of offset metadata are used)"
                )
        if Seen(worker, age_s).is_silent:
            lines.append(f"{name}: silent for {duration(age_s)}: killed, stopped, or cut off from the brokers")
    return lines


_WORKERS: Final = ("worker", "state", "queues", "pool", "busy", "held", "done", "lost", "up", "rss", "brokers")
_QUEUES: Final = (*QueueLength._fields, "delivery", "group")
_CHILDREN: Final = ("worker", "child", "gen", "state", "jobs", "rss", "active")
_RUNNING: Final = ("worker", "child", "job", "task", "age", "rss")


def _worker(seen: Seen) -> tuple[str, ...]:
    worker = seen.worker
    lost = ", ".join(f"{cause} {count}" for cause, count in sorted(worker.lost.items()) if count)
    return (
        _name(worker),
        _state(seen),
        ",".join(worker.queues),
        worker.pool,
        f"{worker.busy}/{worker.concurrency}",
        str(worker.held),
        str(worker.counts.get("done", 0)),
        lost or "0",
        duration(worker.uptime_s),
        size(worker.rss_bytes),
        "-" if worker.contact_age_s is None else duration(worker.contact_age_s),
    )


def _state(seen: Seen) -> str:
    worker = seen.worker
    if seen.is_silent:
        return "silent"
    if worker.stage == "WORKING":
        return "ready" if worker.is_ready else "not ready"
    return worker.stage.lower() or "-"


def _children(worker: WorkerSnapshot) -> Iterator[tuple[str, ...]]:
    for child in worker.children:
        yield (
            _name(worker),
            str(child.pid),
            str(child.generation),
            child.state,
            str(child.jobs),
            size(child.rss_bytes),
            duration(child.last_activity_s),
        )


def _running(worker: WorkerSnapshot) -> Iterator[tuple[str, ...]]:
    for job in worker.running:
        pid = "-" if job.pid is None else str(job.pid)
        yield _name(worker), pid, job.id, job.name, duration(job.age_s), size(job.rss_bytes)


def _name(worker: WorkerSnapshot) -> str:
    return f"{worker.host}:{worker.pid}"


_SPANS: Final = ((3600, 60, "m", 1, "s"), (86_400, 3600, "h", 60, "m"))
"""Below so many seconds: the seconds of the one unit and its letter, the seconds of the other and its letter."""


def duration(seconds: float) -> str:
    """``0.4s``, ``12s``, ``3m05s``, ``2h04m``, ``5d03h``."""
    if seconds < 10:
        return f"{max(0.0, seconds):.1f}s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    for below, one, high, part, low in _SPANS:
        if whole < below:
            return f"{whole // one}{high}{whole % one // part:02d}{low}"
    return f"{whole // 86_400}d{whole % 86_400 // 3600:02d}h"


def size(count: int | None) -> str:
    """Bytes as ``31M``; "-" when they are not known."""
    if count is None:
        return "-"
    value = float(count)
    for unit in ("B", "K", "M"):
        if value < 1024:
            return f"{value:.0f}{unit}"
        value /= 1024
    return f"{value:.1f}G"


# -- the three ways to show it -----------------------------------------------------------------------------------------


def plain(app: str, inspected: Inspected, where: str) -> Iterator[str]:
    """Lines of text."""
    for table in tables(app, inspected, where):
        yield table.title
        if table.rows:
            yield from (f"  {line}" for line in aligned((table.heads, *table.rows)))
        yield ""
    yield from notes(inspected)


def as_object(inspected: Inspected) -> dict[str, Any]:
    """For JSON. A worker: the snapshot's fields, how old it is, and what follows from it. A queue: its length, and how
    its jobs are delivered; null when the lengths are not known."""
    workers = [
        {
            **asdict(seen.worker),
            "ready": seen.worker.is_ready and not seen.is_silent,
            "age_s": seen.age_s,
            "silent": seen.is_silent,
        }
        for seen in inspected.workers
    ]
    queues = None if inspected.queues is None else [
        length._asdict() | delivery._asdict() for length, delivery in _queues(inspected)
    ]
    return {"workers": workers, "queues": queues}


class RichView:
    """Tables that are drawn over one another on a terminal."""

    def __init__(self, app: str, where: Callable[[], str]) -> None:
        from rich.box import SIMPLE_HEAD
        from rich.console import Group
        from rich.live import Live
        from rich.table import Table as RichTable
        from rich.text import Text

        self._app = app
        self._where = where
        self._box = SIMPLE_HEAD
        self._group: Callable[..., Any] = Group
        self._table: Callable[..., Any] = RichTable
        self._text: Callable[..., Any] = Text  # never a text with markup: names are others'
        self._live = Live(auto_refresh=False, screen=False)

    def show(self, inspected: Inspected) -> None:
        """Replace the screen's content."""
        text = self._text
        drawn: list[Any] = []
        for table in tables(self._app, inspected, self._where()):
            shown = self._table(*table.heads, title=text(table.title), title_justify="left", box=self._box)
            for row in table.rows:
                shown.add_row(*map(text, row))
            drawn.append(shown if table.rows else text(table.title))
        drawn[1:1] = [text(note) for note in notes(inspected)]  # a terminal that is too low shows the upper lines
        self._live.update(self._group(*drawn), refresh=True)

    def __enter__(self) -> RichView:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.stop()


def rich_view(app: str, where: Callable[[], str]) -> RichView | None:
    """The view of rich, or None where that is not installed."""
    try:
        return RichView(app, where)
    except ImportError:
        return None


REFRESH_S: Final = 2.0
SERVE_REFRESH_S: Final = 5.0
LEAST_S: Final = 0.2
MOST_S: Final = 3600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("app", metavar="MODULE:APP", help="the app whose workers to show, such as shop.tasks:app")
    parser.add_argument(
        "--bootstrap-server", metavar="HOST:PORT", help="use these brokers instead of the app's bootstrap_servers"
    )
    client_settings.add_arguments(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--json", action="store_true", help="print one JSON object")
    what.add_argument(
        "--health-port",
        metavar="[HOST:]PORT",
        help="show nothing; serve /healthz, and the lengths of the queues at /metrics there, until stopped",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="show the tables once, also on a terminal")
    how.add_argument("--interval", type=float, metavar="S", help=f"refresh every S seconds (terminal: {REFRESH_S:g})")


def run(args: argparse.Namespace) -> int:
    if args.interval is not None and not LEAST_S <= args.interval <= MOST_S:
        raise CommandError(f"--interval must be {LEAST_S:g} to {MOST_S:g} seconds, not {args.interval:g}")
    if args.health_port is not None:
        parse_health_port(args.health_port)
        if args.once:
            raise CommandError("--health-port serves until it is stopped, and --once is for tables: choose one of them")
        logs.configure("INFO")
        with _interrupted_by_stop_signals(), contextlib.suppress(KeyboardInterrupt):
            _run(args)
    else:
        _run(args)
    return 0


def _run(args: argparse.Namespace) -> None:
    app = client_settings.load_app(args)
    try:
        with Directory(app) as directory:
            if args.health_port is not None:
                _serve(directory, args.health_port, args.interval or SERVE_REFRESH_S)
            else:
                _show(app, directory, args)
    finally:
        app.close()


@contextlib.contextmanager
def _interrupted_by_stop_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP are a KeyboardInterrupt, as Ctrl-C is; what follows on the first does nothing more. In the
    main thread only, and not for signals that are ignored (``nohup``)."""
    former: dict[int, Any] = {}

    def interrupt(signum: int, _: FrameType | None) -> None:
        for each in former:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    try:
        if threading.current_thread() is threading.main_thread():
            for name in ("SIGTERM", "SIGHUP"):
                number = getattr(signal, name, None)
                if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                    former[number] = signal.getsignal(number)
                    signal.signal(number, interrupt)
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _serve(directory: Directory, place: str, interval_s: float) -> None:
    """Serve what there is to Prometheus until Ctrl-C or SIGTERM; while the brokers do not answer, that."""
    with contextlib.closing(QueueExporter(place)) as exporter:
        log.info("serving the lengths of queues at http://%s/metrics", exporter.address)
        wait_s = 0.0
        try:
            while True:
                try:
                    seen_workers = directory.workers(wait_s)
                    exporter.update(directory.queue_lengths(seen_workers), seen_workers)
                except KafkaError as error:
                    exporter.fail(str(error))
                    log.warning("could not read the lengths of the queues: %s", error)
                    time.sleep(wait_s)
                wait_s = interval_s
        except KeyboardInterrupt:
            return


def _show(app: App, directory: Directory, args: argparse.Namespace) -> None:
    first = _inspect(directory)
    if args.json:
        _repeat(directory, first, args.interval, lambda inspected: _print_json(inspected, args.interval is None))
        return
    where = partial(_where, app, directory)
    live = None if args.once or not sys.stdout.isatty() else rich_view(app.name, where)
    if live is None:
        _repeat(
            directory,
            first,
            args.interval,
            lambda inspected: print("\n".join(plain(app.name, inspected, where())), flush=True),
        )
        return
    with live:
        _repeat(directory, first, args.interval or REFRESH_S, live.show)


def _inspect(directory: Directory, wait_s: float = 0.0) -> Inspected:
    """Read new snapshots for so many seconds, then ask for the queues. A user may see workers and lack the right to
    describe the queues' groups."""
    seen_workers = directory.workers(wait_s)
    try:
        return Inspected(seen_workers, directory.queue_lengths(seen_workers), deliveries=directory.deliveries())
    except KafkaError as error:
        return Inspected(seen_workers, None, str(error))


def _where(app: App, directory: Directory) -> str:
    """The brokers that are asked: ``embedded:DIR`` with another directory is another broker."""
    servers = app.settings.bootstrap_servers
    return servers if directory.has_broker else f"{servers} (no broker runs there)"


def _repeat(
    directory: Directory, first: Inspected, interval_s: float | None, show: Callable[[Inspected], object]
) -> None:
    """Show the tables once, or again and again until Ctrl-C."""
    show(first)
    if interval_s is None:
        return
    try:
        while True:
            began_at = time.monotonic()
            inspected = _inspect(directory, interval_s)
            time.sleep(max(0.0, interval_s - (time.monotonic() - began_at)))
            show(inspected)
    except KeyboardInterrupt:
        return


def _print_json(inspected: Inspected, is_indented: bool) -> None:
    print(json.dumps(as_object(inspected), indent=2 if is_indented else None), flush=True)
