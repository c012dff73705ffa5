"""``python -m kafka broker``: an embedded broker on a data directory.

The first line on stdout is ``listening on HOST:PORT``; everything else goes to stderr. Ends with exit code 0 on
SIGTERM and SIGINT; 1 when it cannot start (address in use, directory locked or not writable), 2 for wrong use.
"""

from __future__ import annotations

import argparse
import logging
import sys

from kafka.broker import BrokerOptions, RunningBroker, raise_descriptor_limit
from kafka.cli import EXIT_OK

LEVELS = ("debug", "info", "warning", "error")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("--data-dir", required=True, metavar="DIR", help="where it keeps everything; made when missing")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=_port, default=9092, help="0: a free one (default: %(default)s)")
    parser.add_argument(
        "--fsync",
        choices=("always", "interval", "never"),
        default="interval",
        help="when records go to the disk: before each answer, within a second, or when the system likes. A killed "
        "broker loses nothing that was acknowledged, with any of them; a machine that loses power may "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--set",
        dest="settings",
        type=_setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a broker setting by Kafka's name, such as num.partitions=8; any number of times",
    )
    parser.add_argument(
        "--exit-when-idle",
        type=_seconds,
        metavar="SECONDS",
        help="end when no client has been connected for so long",
    )
    parser.add_argument(
        "--exit-with-stdin",
        action="store_true",
        help="end when standard input does: a pipe from a test that may be killed",
    )
    parser.add_argument("--log-level", choices=LEVELS, default="warning", help="(default: %(default)s)")


def run(args: argparse.Namespace) -> int:
    """Serve until a signal."""
    logging.basicConfig(level=args.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    options = BrokerOptions(
        data_dir=args.data_dir,
        host=args.host,
        port=args.port,
        fsync=args.fsync,
        settings=dict(args.settings),
        exit_when_idle_s=args.exit_when_idle,
        lifeline_fd=sys.stdin.fileno() if args.exit_with_stdin else None,
    )
    raise_descriptor_limit()
    running = RunningBroker(options)
    print(f"listening on {running.address}", flush=True)
    running.run()
    return EXIT_OK


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"a port is a number from 0 to 65535, not {text}")
    return port


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < 10**9:
        raise argparse.ArgumentTypeError(f"a time above 0 s is needed, not {text}")
    return seconds


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"NAME=VALUE is needed, not {text!r}")
    return name, value
