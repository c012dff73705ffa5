"""``python -m kafka broker``: an embedded broker on a data directory.

The first line on stdout is ``listening on HOST:PORT``, with one more ``listening on NAME://HOST:PORT`` for each further
listener; everything else goes to stderr. Ends with exit code 0 on
SIGTERM, SIGINT and SIGHUP; 1 when it cannot start (address in use, directory locked or not writable, too few open files
allowed), 2 for wrong use.
"""

from __future__ import annotations

import argparse
import logging
import os
import selectors
import stat
import sys
from collections.abc import Mapping

from kafka.broker import (
    LATEST,
    RELEASES,
    BrokerOptions,
    RunningBroker,
    find_release,
    raise_descriptor_limit,
    read_properties,
    read_users,
    tls_settings,
)
from kafka.cli import EXIT_OK, CommandError

HOST = "127.0.0.1"
PORT = 9092
LEVELS = ("debug", "info", "warning", "error")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "--data-dir", type=_directory, required=True, metavar="DIR", help="where it keeps everything; made when missing"
    )
    parser.add_argument("--host", help=f"the address to listen on (default: {HOST})")
    parser.add_argument("--port", type=_port, help=f"0: a free one (default: {PORT})")
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
        "--settings",
        dest="settings_file",
        metavar="FILE",
        help="settings from a file like Kafka's server.properties; --set goes before it",
    )
    parser.add_argument(
        "--listener",
        dest="listeners",
        action="append",
        default=[],
        metavar="PROTOCOL://HOST:PORT",
        help="listen here instead of at --host and --port; PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL; any number of "
        "times",
    )
    parser.add_argument(
        "--users", metavar="FILE", help="who may come in where SASL is asked for: lines of NAME:PASSWORD"
    )
    parser.add_argument(
        "--certificate",
        metavar="FILE",
        help="for SSL: PEM with the certificate chain, and with the key unless --key is given",
    )
    parser.add_argument("--key", metavar="FILE", help="for SSL: PEM with the private key")
    parser.add_argument("--ca", metavar="FILE", help="for SSL: PEM with the authorities whose clients are trusted")
    parser.add_argument(
        "--client-auth",
        choices=("none", "requested", "required"),
        default="none",
        help="for SSL: whether clients have to show certificates (default: %(default)s)",
    )
    parser.add_argument(
        "--emulate",
        type=_release,
        default=LATEST,
        metavar="RELEASE",
        help=f"be like this release of Apache Kafka, old or new: {', '.join(RELEASES)} (default: %(default)s)",
    )
    parser.add_argument(
        "--telemetry",
        action="store_true",
        help="ask clients for metrics, as an Apache Kafka with a plug-in does (KIP-714); which, say the settings of "
        "client metrics",
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
    parser.add_argument(
        "--control-fd",
        type=int,
        metavar="N",
        help="an inherited socket over which kafka.testing injects faults; it is for kafka.testing alone",
    )
    parser.add_argument("--log-level", choices=LEVELS, default="warning", help="(default: %(default)s)")


def run(args: argparse.Namespace) -> int:
    """Serve until a signal."""
    logging.basicConfig(level=args.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    options = BrokerOptions(
        data_dir=args.data_dir,
        host=HOST if args.host is None else args.host,
        port=PORT if args.port is None else args.port,
        fsync=args.fsync,
        settings=_settings(args),
        users=read_users(args.users) if args.users else {},
        emulate=args.emulate,
        telemetry=args.telemetry,
        exit_when_idle_s=args.exit_when_idle,
        lifeline_fd=_lifeline() if args.exit_with_stdin else None,
        control_fd=_control(args.control_fd),
    )
    raise_descriptor_limit()
    running = RunningBroker(options, ends_on_signals=True)
    print(f"listening on {running.address}", flush=True)
    for name, address in running.state.listeners.items():
        if address != running.address:
            print(f"listening on {name}://{address}", flush=True)
    running.run()
    return EXIT_OK


def _release(text: str) -> str:
    try:
        return find_release(text).name
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _settings(args: argparse.Namespace) -> dict[str, str]:
    """All settings: those of the options for listeners, over them the file, over it ``--set``."""
    settings = tls_settings(args.certificate, args.key, None, args.ca, args.client_auth)
    if args.listeners:
        settings["listeners"] = ",".join(args.listeners)
    if args.users:
        settings["sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
    settings |= {**(read_properties(args.settings_file) if args.settings_file else {}), **dict(args.settings)}
    _check_effect(args, settings)
    return settings


def _check_effect(args: argparse.Namespace, settings: Mapping[str, str]) -> None:
    """An option without effect is a slip, and one that is missing is better called by its own name than by that of the
    setting that it stands for."""
    if args.listeners and (args.host is not None or args.port is not None):
        raise CommandError("--host and --port are for one plain listener: leave them out beside --listener")
    protocols = _protocols(settings)
    has_tls = any("SSL" in each for each in protocols)
    has_sasl = any("SASL" in each for each in protocols)
    tls = ("certificate", "key", "ca", "client_auth")
    options = [f"--{name.replace('_', '-')}" for name in tls if getattr(args, name) not in (None, "none")]
    if options and not has_tls:
        raise CommandError(f"{options[0]} has no effect without TLS: add --listener SSL://HOST:PORT, or SASL_SSL")
    if args.users and not has_sasl:
        raise CommandError("--users has no effect without SASL: add --listener SASL_SSL://HOST:PORT, or SASL_PLAINTEXT")
    if has_tls and not any("ssl.keystore." in name for name in settings):
        raise CommandError("a listener with TLS needs --certificate FILE, and --key FILE unless the key is in it")
    if has_sasl and not any(name.endswith("sasl.enabled.mechanisms") for name in settings):
        raise CommandError("a listener with SASL needs --users FILE, with lines of NAME:PASSWORD")


def _protocols(settings: Mapping[str, str]) -> list[str]:
    """Those of the listeners, as far as their names can be read; the broker itself reports their errors."""
    places = settings.get("listeners", "PLAINTEXT://").split(",")
    pairs = settings.get("listener.security.protocol.map", "").upper().split(",")
    by_name = dict(pair.strip().split(":", 1) for pair in pairs if ":" in pair)
    names = [place.strip().partition("://")[0].upper() for place in places]
    return [by_name.get(name, name).strip() for name in names]


def _port(text: str) -> int:
    port = int(text) if text.isascii() and text.isdigit() else -1
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"a port is a number from 0 to 65535, not {text}")
    return port


def _directory(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("the name of a directory is needed; . is the working directory")
    return text


def _lifeline() -> int:
    """Standard input, if its end can be waited for: a file's cannot, and there may be none at all."""
    try:
        if sys.stdin is not None and not stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode):
            with selectors.DefaultSelector() as selector:
                selector.register(sys.stdin, selectors.EVENT_READ)
            return sys.stdin.fileno()
    except OSError:  # /dev/null
        pass
    raise CommandError("--exit-with-stdin: standard input is no pipe, socket or terminal whose end could be seen")


def _control(fd: int | None) -> int | None:
    """The descriptor, if it is a socket that is open."""
    if fd is not None:
        try:
            is_socket = stat.S_ISSOCK(os.fstat(fd).st_mode)
        except OSError:
            is_socket = False
        if not is_socket:
            raise CommandError(f"--control-fd: descriptor {fd} is no inherited socket")
    return fd


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 10**9:
        raise argparse.ArgumentTypeError(f"a time above 0 s is needed, not {text}")
    return seconds


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"NAME=VALUE is needed, not {text!r}")
    return name, value
