"""``python -m kafka worker MODULE:APP``: run the jobs of an app's queues until stopped.

Exit code 0 after a stop by signal; wrong uses (no such module, no App, an unknown queue or pool) and a broker that
cannot be reached are told as every command tells them. What a worker is: :mod:`kafka.tasks.serve`.
"""

from __future__ import annotations

import argparse
import logging
import os

from kafka.cli import client_settings
from kafka.errors import IllegalArgumentError
from kafka.tasks import MOST_CONCURRENCY, check_pool, check_queues, load, run_worker

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("app", metavar="MODULE:APP", help="the app to work for, such as shop.tasks:app")
    parser.add_argument("--queues", metavar="A,B", help="queues to work on (default: all of the app's)")
    parser.add_argument("--pool", default="threads", metavar="NAME", help="how jobs run: threads (default) or inline")
    parser.add_argument("--concurrency", type=int, default=os.cpu_count() or 1, metavar="N", help="jobs at once")
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT", help="instead of the app's bootstrap_servers")
    client_settings.add_arguments(parser)
    parser.add_argument("--log-level", default="INFO", type=str.upper, choices=LEVELS, help="default INFO, on stderr")


def run(args: argparse.Namespace) -> int:
    logging.basicConfig(level=args.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if args.log_level == "INFO":  # each attempt to connect is a line there; what comes of it is told here
        logging.getLogger("kafka.client").setLevel(logging.WARNING)
    app = load(args.app)
    security = client_settings.read(args, client_settings.SECURITY)
    if args.bootstrap_server is not None or security:
        app.connect_to(args.bootstrap_server, **security)
    check_pool(args.pool)
    if not 1 <= args.concurrency <= MOST_CONCURRENCY:
        raise IllegalArgumentError(
            f"--concurrency is at least 1 and at most {MOST_CONCURRENCY}, not {args.concurrency}"
        )
    names = [] if args.queues is None else [name.strip() for name in args.queues.split(",")]
    if not all(names):
        raise IllegalArgumentError(
            f"--queues is a list of names with commas between them, not {args.queues!r}; leave it out for all queues"
        )
    queues = check_queues(app, names)
    run_worker(app, queues, args.pool, args.concurrency)
    return 0
