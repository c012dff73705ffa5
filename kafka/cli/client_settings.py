"""``--config FILE``: the settings with which a command connects, so that passwords stay out of the command line.

::

    # NAME=VALUE lines as in Kafka's own client files; names are those of the clients' settings, with _ or .
    security_protocol=SASL_SSL
    ssl.cafile=/etc/kafka/ca.pem
    sasl.mechanism=SCRAM-SHA-512
    sasl_plain_username=alice
    sasl_plain_password=...

Without the option, the file that the environment's ``KAFKA_CLIENT_CONFIG`` names, if it names one. ``-X NAME=VALUE``
gives one setting more; every user who can list the machine's processes sees it, so secrets are refused there.
"""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

from kafka.broker import has_data, read_properties
from kafka.broker.embedded import is_running
from kafka.cli import EXIT_FAILED, CommandError
from kafka.config import BY_NAME, check, settings_of
from kafka.errors import IllegalArgumentError, KafkaConfigurationError

if TYPE_CHECKING:
    from kafka.client import ApiRanges
    from kafka.tasks import App

VARIABLE: Final = "KAFKA_CLIENT_CONFIG"

CHECK_S: Final = 10.0
"""Time limit of the first request, for the broker's API versions."""

CONNECTION: Final = tuple(
    setting.name
    for setting in settings_of("client")
    if setting.name.startswith(("security_protocol", "ssl_", "sasl_", "client_rack"))
)
"""The settings of security and the rack, for commands that take all other settings from an app."""

ALL: Final = tuple(setting.name for setting in settings_of("client") if setting.name != "bootstrap_servers")

_WORDS: Final[dict[str, Any]] = {"true": True, "false": False, "none": None}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument(
        "--config", metavar="FILE", help=f"file of client settings, NAME=VALUE lines (default: the file in ${VARIABLE})"
    )
    parser.add_argument(
        "-X",
        dest="settings",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="one more client setting; not for secrets",
    )


def read(args: argparse.Namespace, known: Collection[str] = ALL) -> dict[str, Any]:
    """The settings of the file and the options, checked. KafkaConfigurationError, which shows no secret."""
    path = args.config or os.environ.get(VARIABLE)
    texts = dict(read_properties(path)) if path else {}
    for entry in args.settings:
        name, equals, value = entry.partition("=")
        if not equals:
            raise KafkaConfigurationError(f"-X {name}: expected NAME=VALUE")
        name = _name(name)
        if name in BY_NAME and BY_NAME[name].is_secret:
            raise KafkaConfigurationError(f"-X {name}: other users could read it in the process list; use --config")
        texts[name] = value
    settings: dict[str, Any] = {}
    for name, value in texts.items():
        name = _name(name)
        if name not in known:
            reason = "is not a client setting" if name not in BY_NAME else "cannot be set for this command"
            raise KafkaConfigurationError(f"{name} {reason}")
        settings[name] = _value(name, value)
    return settings


def check_broker(address: str, settings: dict[str, Any]) -> ApiRanges:
    """The API versions of the broker at ``address``. KafkaError at once when no broker answers there: other requests
    would retry until their time-outs."""
    from kafka import KafkaClient

    with KafkaClient(bootstrap_servers=address, **settings) as client:
        return client.api_ranges(timeout=CHECK_S)


def load_app(args: argparse.Namespace) -> App:
    """The app ``args.app``, with ``--bootstrap-server`` and the settings of :data:`CONNECTION` that are given."""
    from kafka.tasks import load  # 130 ms, which the commands without an app need not wait for

    app = load(args.app)
    settings = read(args, CONNECTION)
    if args.bootstrap_server is not None or settings:
        app.connect_to(args.bootstrap_server, **settings)
    return app


EMBEDDED: Final = ".kafka"
"""The directory of the broker that an app has unless it says otherwise."""


def add_queue_arguments(parser: argparse.ArgumentParser) -> None:
    """``APP.QUEUE`` and how to reach its brokers, for commands that need nothing of the app's module."""
    parser.add_argument("queue", metavar="APP.QUEUE", help="the queue, such as shop.mail")
    parser.add_argument("--app", metavar="NAME", help="the app's name, if it has dots (default: up to the first dot)")
    parser.add_argument(
        "--bootstrap-server", metavar="HOST:PORT", help=f"the brokers (default: the broker embedded in ./{EMBEDDED})"
    )
    add_arguments(parser)


def queue_of(args: argparse.Namespace) -> tuple[App, str]:
    """The app that has the queue ``args.queue``, which declares no tasks and creates no topics, and the queue's name in
    it. CommandError for a malformed name, and without brokers.

    The broker of ``embedded:DIR`` is started where it has data: it ends when it is idle, and jobs are still there. An
    empty or missing directory has no queue, so none is made."""
    from kafka.tasks import App

    name = args.queue.partition(".")[0] if args.app is None else args.app
    queue = args.queue.removeprefix(f"{name}.")
    if not name or queue in ("", args.queue):
        expected = "APP.QUEUE, such as shop.mail" if args.app is None else f"{args.app}.QUEUE"
        raise CommandError(f"expected {expected}, not {args.queue!r}")
    servers = args.bootstrap_server
    if servers is None:
        servers = f"embedded:{EMBEDDED}"
        if not os.path.isdir(EMBEDDED):
            raise CommandError(f"--bootstrap-server HOST:PORT is needed: there is no embedded broker in ./{EMBEDDED}")
    app = App(name, bootstrap_servers=servers, create_topics=False, **read(args, CONNECTION))
    scheme, _, directory = app.settings.bootstrap_servers.partition(":")
    if scheme == "embedded" and directory and not (is_running(directory) or has_data(directory)):
        raise CommandError(f"no embedded broker runs in {directory}", EXIT_FAILED)
    try:
        app.queue(queue)
    except IllegalArgumentError as error:
        raise CommandError(str(error)) from error
    return app, queue


def _name(text: str) -> str:
    return text.strip().replace(".", "_")


def _value(name: str, text: str) -> Any:
    """The text as a value of the setting: a text that it takes, a number, True, False, None or an imported object."""
    if name == "sasl_oauth_token_provider":
        return check(name, _imported(name, text))
    if BY_NAME[name].is_secret:
        return check(name, text)
    if text.lower() in _WORDS:
        return check(name, _WORDS[text.lower()])
    try:
        return check(name, text)
    except KafkaConfigurationError:
        for kind in (int, float):
            try:
                number = kind(text)
            except ValueError:
                continue
            return check(name, number)
        raise


def _imported(name: str, text: str) -> Any:
    """``MODULE:NAME``: a function, an object, or a class that is made without arguments."""
    module, colon, attribute = text.partition(":")
    if not (module and colon and attribute):
        raise KafkaConfigurationError(f"{name}: expected MODULE:NAME of the token provider")  # it may be a token
    try:
        provider = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, TypeError, ValueError) as error:  # the last two: "." in front, "..x"
        raise KafkaConfigurationError(f"{name}={text}: {error}") from None
    return provider() if isinstance(provider, type) else provider
