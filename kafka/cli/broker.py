"""``python -m kafka broker``: an embedded broker on a data directory.

The first line on stdout is ``listening on HOST:PORT``; each further listener has a line ``listening on
NAME://HOST:PORT``. Everything else goes to stderr. The exit code is 0 after SIGTERM, SIGINT and SIGHUP; 1 when the
broker cannot start (address in use, directory locked or not writable, too few open files); 2 for wrong use.
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
from kafka.cli import EXIT_OK, LOG_FORMAT, CommandError

HOST = "127.0.0.1"
PORT = 9092
LEVELS = ("debug", "info", "warning", "error")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "--data-dir",
        type=_directory,
        required=True,
        metavar="DIR",
        help="where to store everything; created when missing",
    )
    parser.add_argument("--host", help=f"the address to listen on (default: {HOST})")
    parser.add_argument("--port", type=_port, help=f"the port to listen on; 0: any free port (default: {PORT})")
    parser.add_argument(
        "--fsync",
        choices=("always", "interval", "never"),
        default="interval",
        help="when to sync written records to disk: before each response, every second, or never (the operating system "
        "decides). Matters when the machine loses power, not when the broker is killed (default: %(default)s)",
    )
    parser.add_argument(
        "--set",
        dest="settings",
        type=_setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="set a broker setting by its Kafka name, such as num.partitions=8; may be repeated",
    )
    parser.add_argument(
        "--settings",
        dest="settings_file",
        metavar="FILE",
        help="read settings from a file like Kafka's server.properties; --set overrides it",
    )
    parser.add_argument(
        "--listener",
        dest="listeners",
        action="append",
        default=[],
        metavar="PROTOCOL://HOST:PORT",
        help="listen here instead of on --host and --port; PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL; may be repeated",
    )
    parser.add_argument("--users", metavar="FILE", help="for SASL: the users, as lines of NAME:PASSWORD")
    parser.add_argument(
        "--certificate",
        metavar="FILE",
        help="for SSL: PEM file with the certificate chain, and the private key unless --key is given",
    )
    parser.add_argument("--key", metavar="FILE", help="for SSL: PEM file with the private key")
    parser.add_argument("--ca", metavar="FILE", help="for SSL: PEM file with the authorities of client certificates")
    parser.add_argument(
        "--client-auth",
        choices=("none", "requested", "required"),
        default="none",
        help="for SSL: whether clients must present a certificate (default: %(default)s)",
    )
    parser.add_argument(
        "--emulate",
        type=_release,
        default=LATEST,
        metavar="RELEASE",
        help=f"behave as this release of Apache Kafka: {', '.join(RELEASES)} (default: %(default)s)",
    )
    parser.add_argument(
        "--telemetry",
        action="store_true",
        help="collect metrics from clients, as Apache Kafka with a telemetry plug-in does (KIP-714)",
    )
    parser.add_argument(
        "--exit-when-idle",
        type=_seconds,
        metavar="SECONDS",
        help="exit after so many seconds without a connected client",
    )
    parser.add_argument(
        "--exit-with-stdin",
        action="store_true",
        help="exit when standard input closes: a pipe from a test that may be killed",
    )
    parser.add_argument(
        "--control-fd",
        type=int,
        metavar="N",
        help="an inherited socket over which kafka.testing injects faults; for kafka.testing only",
    )
    parser.add_argument(
        "--log-level",
        default="warning",
        type=str.lower,
        choices=LEVELS,
        help="what to log on stderr (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Serve until a signal."""
    logging.basicConfig(level=args.log_level.upper(), format=LOG_FORMAT)
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
    """All settings: the options for listeners, overridden by the file, overridden by ``--set``."""
    settings = tls_settings(args.certificate, args.key, None, args.ca, args.client_auth)
    if args.listeners:
        settings["listeners"] = ",".join(args.listeners)
    if args.users:
        settings["sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
    settings |= {**(read_properties(args.settings_file) if args.settings_file else {}), **dict(args.settings)}
    _check_effect(args, settings)
    return settings


def _check_effect(args: argparse.Namespace, settings: Mapping[str, str]) -> None:
    """Refuse options that have no effect, and name missing options by the option, not by the broker's setting."""
    if args.listeners and (args.host is not None or args.port is not None):
        raise CommandError("--host and --port cannot be combined with --listener")
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
    """The protocols of the listeners whose names can be read; the broker itself reports malformed ones."""
    places = settings.get("listeners", "PLAINTEXT://").split(",")
    pairs = settings.get("listener.security.protocol.map", "").upper().split(",")
    by_name = dict(pair.strip().split(":", 1) for pair in pairs if ":" in pair)
    names = [place.strip().partition("://")[0].upper() for place in places]
    return [by_name.get(name, name).strip() for name in names]


def _port(text: str) -> int:
    port = int(text) if text.isascii() and text.isdigit() else -1
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"a port must be a number from 0 to 65535, not {text}")
    return port


def _directory(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("a directory name is required (. is the current directory)")
    return text


def _lifeline() -> int:
    """The descriptor of standard input. CommandError when it is closed, or a file, whose end cannot be waited for."""
    try:
        if sys.stdin is not None and not stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode):
            with selectors.DefaultSelector() as selector:
                selector.register(sys.stdin, selectors.EVENT_READ)
            return sys.stdin.fileno()
    except OSError:  # /dev/null
        pass
    raise CommandError("--exit-with-stdin needs a pipe, a socket or a terminal as standard input")


def _control(fd: int | None) -> int | None:
    """``fd``, or CommandError unless it is an open socket."""
    if fd is not None:
        try:
            is_socket = stat.S_ISSOCK(os.fstat(fd).st_mode)
        except OSError:
            is_socket = False
        if not is_socket:
            raise CommandError(f"--control-fd: descriptor {fd} is not an inherited socket")
    return fd


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 10**9:
        raise argparse.ArgumentTypeError(f"the time must be a number of seconds above 0, not {text}")
    return seconds


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, not {text!r}")
    return name, value
