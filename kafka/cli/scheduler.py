"""``python -m kafka scheduler MODULE:APP``: own the schedule of an app until stopped, and run no jobs.

Workers with a pool of threads, asyncio or inline own none of it without ``--schedule``: an app that has no others needs
this command. Any number may run: they share the schedule's partitions.

Exit codes: 0 after a stop by signal (SIGTERM, SIGINT, SIGHUP); 1 when no broker can be reached, or it does not permit
what an owner needs; 2 for a wrong use.
"""

from __future__ import annotations

import argparse

from kafka.cli import client_settings, logs
from kafka.cli.startup import startup_signals
from kafka.tasks import run_scheduler


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Those of ``python -m kafka scheduler``."""
    parser.add_argument("app", metavar="MODULE:APP", help="the app whose schedule to own, such as shop.tasks:app")
    parser.add_argument(
        "--bootstrap-server", metavar="HOST:PORT", help="use these brokers instead of the app's bootstrap_servers"
    )
    client_settings.add_arguments(parser)
    logs.add_argument(parser)


def run(args: argparse.Namespace) -> int:
    logs.configure(args.log_level)
    run_scheduler(client_settings.load_app(args), on_start=lambda _: startup_signals.finish())
    return 0
