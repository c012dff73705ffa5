"""``python -m kafka scheduler MODULE:APP``: own the schedule of an app until stopped, and run no jobs.

It is for apps whose workers have pools inside their processes, which do not own it unless they are told to
(``worker --schedule``). Any number may run: they share the schedule's partitions.

Exit codes: 0 after a stop by signal (SIGTERM, SIGINT, SIGHUP); 1 when no broker can be reached, or it does not permit
what an owner needs; 2 for a wrong use.
"""

from __future__ import annotations

import argparse
import logging

from kafka.cli import LOG_FORMAT, client_settings
from kafka.cli.worker import LEVELS
from kafka.tasks import run_scheduler


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Those of ``python -m kafka scheduler``."""
    parser.add_argument("app", metavar="MODULE:APP", help="the app whose schedule to own, such as shop.tasks:app")
    parser.add_argument(
        "--bootstrap-server", metavar="HOST:PORT", help="use these brokers instead of the app's bootstrap_servers"
    )
    client_settings.add_arguments(parser)
    parser.add_argument(
        "--log-level",
        default="INFO",
        type=str.upper,
        choices=LEVELS,
        help="what to log on stderr (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    logging.basicConfig(level=args.log_level, format=LOG_FORMAT)
    if args.log_level == "INFO":  # each attempt to connect is a line there; the outcome is logged here
        logging.getLogger("kafka.client").setLevel(logging.WARNING)
    run_scheduler(client_settings.load_app(args))
    return 0
