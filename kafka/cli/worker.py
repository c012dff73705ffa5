"""``python -m kafka worker MODULE:APP``: run the jobs of an app's queues until stopped.

Exit codes: 0 after a stop by signal; 1 when no broker can be reached, or the port of ``--health-port`` cannot be had; 2
for a wrong use (no such module, no App, an unknown queue or pool, a limit that makes no sense); 3 when no child process
has ever come up. What a worker is: :mod:`kafka.tasks.worker.driver`; what pools are: :mod:`kafka.tasks.pools`; what
signals do before it is there: :mod:`kafka.cli.startup`.

An option of pools is one more row of :data:`POOL_OPTIONS`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kafka.cli import CommandError, client_settings, logs
from kafka.cli.startup import startup_signals
from kafka.errors import IllegalArgumentError
from kafka.tasks import (
    MOST_CONCURRENCY,
    POOLS,
    App,
    PoolFailed,
    PoolSettings,
    check_pool,
    check_queues,
    default_pool,
    parse_autoscale,
    parse_count,
    parse_health_port,
    parse_memory,
    parse_seconds,
    run_worker,
    start_methods,
)

EXIT_POOL_FAILED: Final = 3

ASYNCIO_CONCURRENCY: Final = 100
"""The default of ``--concurrency`` for coroutines, which mostly wait; for all others it is the number of processors."""


class _Option(NamedTuple):
    """One flag: what its text becomes, the pools that it is for (None: all), and its line of help."""

    metavar: str
    read: Callable[[str, str], dict[str, Any]]
    pools: tuple[str, ...] | None
    help: str


def _count(field: str) -> Callable[[str, str], dict[str, Any]]:
    return lambda flag, text: {field: parse_count(flag, field, text)}


def _seconds(field: str) -> Callable[[str, str], dict[str, Any]]:
    return lambda flag, text: {field: parse_seconds(flag, text)}


def _memory(flag: str, text: str) -> dict[str, Any]:
    soft, hard = parse_memory(flag, text)
    return {"max_memory_soft": soft, "max_memory_hard": hard}


def _autoscale(flag: str, text: str) -> dict[str, Any]:
    return {"autoscale": parse_autoscale(flag, text)}


def _start_method(flag: str, text: str) -> dict[str, Any]:
    return {"start_method": text}


_LIMITED = ("asyncio", "fork", "prefork", "threads")

POOL_OPTIONS: Final[dict[str, _Option]] = {
    "--timeout": _Option("S", _seconds("timeout"), _LIMITED, "hard time limit of jobs whose call and task have none"),
    "--soft-timeout": _Option(
        "S", _seconds("soft_timeout"), _LIMITED, "soft time limit of jobs whose call and task have none"
    ),
    "--kill-grace": _Option(
        "S",
        _seconds("kill_grace"),
        None,
        "seconds between SIGTERM and SIGKILL, and between the last stages of a stop (default: the app's)",
    ),
    "--max-jobs-per-child": _Option(
        "N",
        _count("max_jobs_per_child"),
        ("prefork",),
        "replace a child process after so many jobs, 10 %% more or less",
    ),
    "--max-memory-per-child": _Option(
        "SOFT[,HARD]",
        _memory,
        ("fork", "prefork"),
        "resident memory above which a child is replaced after its job, and above which it is killed, such as 512M,1G",
    ),
    "--autoscale": _Option(
        "MIN,MAX", _autoscale, ("prefork",), "keep MIN to MAX child processes, depending on the load"
    ),
    "--prefetch": _Option(
        "N", _count("prefetch"), ("prefork",), "jobs that one child holds at once; 1: only idle children get a job"
    ),
    "--start-method": _Option(
        "NAME", _start_method, ("fork", "prefork"), f"how children start: {', '.join(start_methods()) or 'not here'}"
    ),
    "--start-limit": _Option(
        "S",
        _seconds("start_limit"),
        ("fork", "prefork"),
        "kill a child that has not loaded the app after so many seconds (default: 60)",
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Those of ``python -m kafka worker``; options of pools come from :data:`POOL_OPTIONS`."""
    parser.add_argument("app", metavar="MODULE:APP", help="the app whose jobs to run, such as shop.tasks:app")
    parser.add_argument("--queues", metavar="A,B", help="queues to take jobs from (default: all of the app)")
    parser.add_argument("--pool", metavar="NAME", help=f"how jobs run: {', '.join(POOLS)} (default: {default_pool()})")
    parser.add_argument(
        "--concurrency",
        type=int,
        metavar="N",
        help=f"how many jobs run at once (default: the number of processors; asyncio: {ASYNCIO_CONCURRENCY})",
    )
    for flag, option in POOL_OPTIONS.items():
        parser.add_argument(flag, metavar=option.metavar, help=option.help + _only(option))
    parser.add_argument(
        "--schedule",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="own partitions of the schedule: jobs with a delay, retries, periodic jobs (default: with pools of"
        " processes)",
    )
    parser.add_argument(
        "--health-port", metavar="[HOST:]PORT", help="serve /healthz, /readyz and /metrics there (default: no port)"
    )
    parser.add_argument(
        "--bootstrap-server", metavar="HOST:PORT", help="use these brokers instead of the app's bootstrap_servers"
    )
    client_settings.add_arguments(parser)
    parser.add_argument(
        "--reload", action="store_true", help="restart the worker when a .py file changes (for development)"
    )
    parser.add_argument(
        "--log-jobs",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="log at INFO when a job is received and how it ends, above 100 lines a second as counts;"
        " --no-log-jobs turns it off",
    )
    logs.add_argument(parser)


def fill_standard_descriptors() -> None:
    """Open /dev/null for standard input, output and errors where they are closed: otherwise a socket to a broker would
    get their number, and programs that tasks start would write their output to it."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number, which is this one


def run(args: argparse.Namespace) -> int:
    fill_standard_descriptors()
    logs.configure(args.log_level)
    if args.reload:
        from kafka.cli import reload

        return reload.run(args.app)
    app = client_settings.load_app(args)
    pool = check_pool(default_pool() if args.pool is None else args.pool)
    settings = pool_settings(args, pool, app)
    if args.health_port is not None:
        parse_health_port(args.health_port)
    names = [] if args.queues is None else [name.strip() for name in args.queues.split(",")]
    if not all(names):
        raise IllegalArgumentError(
            f"--queues is a list of names with commas between them, not {args.queues!r}; leave it out for all queues"
        )
    queues = check_queues(app, names)
    try:
        run_worker(
            app,
            queues,
            pool,
            on_start=lambda _: startup_signals.finish(),
            settings=settings,
            health=args.health_port,
            is_alone=True,
            log_jobs=args.log_jobs,
            schedule=args.schedule,
        )
    except PoolFailed as error:
        raise CommandError(str(error.args[0]), EXIT_POOL_FAILED) from error
    return 0


def pool_settings(args: argparse.Namespace, pool: str, app: App) -> PoolSettings:
    """The pool's settings from the flags. IllegalArgumentError for invalid values, and flags of other pools."""
    settings: dict[str, Any] = {"app_path": args.app, "kill_grace": app.settings.kill_grace}
    for flag, option in POOL_OPTIONS.items():
        text = getattr(args, flag[2:].replace("-", "_"))
        if text is None:
            continue
        if option.pools is not None and pool not in option.pools:
            raise IllegalArgumentError(f"{flag} is for the pool {' or '.join(option.pools)}, not for {pool}")
        settings.update(option.read(flag, text))
    concurrency = args.concurrency
    if pool == "inline":
        if concurrency not in (None, 1):
            raise IllegalArgumentError(
                f"the pool inline runs one job at a time, on the worker's own thread, not {concurrency}: leave"
                " --concurrency out, or choose --pool threads"
            )
        concurrency = 1
    if concurrency is None:
        most = ASYNCIO_CONCURRENCY if pool == "asyncio" else os.cpu_count() or 1
        concurrency = settings["autoscale"][0] if "autoscale" in settings else most
    if not 1 <= concurrency <= MOST_CONCURRENCY:
        raise IllegalArgumentError(f"--concurrency must be an integer from 1 to {MOST_CONCURRENCY}, not {concurrency}")
    return PoolSettings(**{**settings, "concurrency": concurrency})


def _only(option: _Option) -> str:
    return "" if option.pools is None else f" (pools: {', '.join(option.pools)})"
