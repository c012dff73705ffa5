"""The settings of an app: each one once, with type, default, unit, check and a line of documentation.

Durations are seconds (a number or a ``timedelta``), sizes are bytes. Settings of the clients for credentials and TLS
(``security_protocol``, ``sasl_*``, ``ssl_*``), and ``client_rack``, which may differ for each process as they do, go
through to them unchanged and are not in the table. A new setting is one more row of ``SETTINGS``, one more key of
:class:`SettingKeywords`, which editors and type checkers know, and one more field of :class:`Settings`; there are to be
at most 40.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from kafka.errors import IllegalArgumentError, KafkaConfigurationError
from kafka.tasks.errors import did_you_mean
from kafka.tasks.format.serializers import SAFE, SERIALIZERS, check_serializer
from kafka.tasks.format.topics import check_queue
from kafka.tasks.retry import Retry

if TYPE_CHECKING:
    from ssl import SSLContext

Seconds: TypeAlias = "float | timedelta"

EMBEDDED = "embedded:"
"""In front of the directory of a broker of our own."""

DELIVERIES = ("auto", "share", "group")
"""Of the setting ``delivery``: by what the brokers offer, share groups, consumer groups."""

LONGEST_S = 100 * 365.25 * 86_400
"""A longer duration is a mistake, and more than timers and timestamps take."""


def seconds(name: str, value: Any) -> float:
    """``value`` as positive seconds; a number or a ``timedelta``."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= LONGEST_S:
        raise IllegalArgumentError(
            f"{name} must be a number of seconds above 0 (and below a century), or a timedelta, not {value!r}"
        )
    return float(value)


def optional_timeout(name: str, value: Any) -> float | None:
    """How long a caller waits: seconds from 0 on, a ``timedelta``, or None (as more than a century) for any time."""
    if value is None:
        return None
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise IllegalArgumentError(
            f"{name} must be a number of seconds, at least 0, a timedelta, or None for no timeout, not {value!r}"
        )
    return float(value) if value <= LONGEST_S else None


def _integer(least: int, most: int) -> Callable[[str, Any], int]:
    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise IllegalArgumentError(f"{name} must be an integer from {least} to {most}, not {value!r}")
        return value

    return check


def flag(name: str, value: Any) -> bool:
    """``value`` as True or False; nothing else is taken for one."""
    if not isinstance(value, bool):
        raise IllegalArgumentError(f"{name} must be True or False, not {value!r}")
    return value


def optional(check: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    """The same check, with None allowed."""
    return lambda name, value: None if value is None else check(name, value)


def retry_policy(name: str, value: Any) -> Retry:
    """``value`` when it is a :class:`Retry`."""
    if not isinstance(value, Retry):
        raise IllegalArgumentError(f"{name} must be a Retry(max_attempts=...), not {value!r}")
    return value


def _servers(name: str, value: Any) -> str:
    if isinstance(value, (list, tuple)) and value and all(isinstance(v, str) and v for v in value):
        return ",".join(value)
    if not isinstance(value, str) or not value:
        raise IllegalArgumentError(
            f"{name} must be 'host:port', several with commas, 'embedded:DIR' or 'memory://', not {value!r}"
        )
    return value


def _queues(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        raise IllegalArgumentError(f"{name} must be a list of queue names, such as [{value!r}], not {value!r}")
    if not isinstance(value, Iterable):
        raise IllegalArgumentError(f"{name} must be a list of queue names, not {value!r}")
    return tuple(check_queue(queue) for queue in value)


def _delivery(name: str, value: Any) -> str:
    if value not in DELIVERIES:
        raise IllegalArgumentError(f"{name} must be one of {', '.join(map(repr, DELIVERIES))}, not {value!r}")
    return str(value)


def _queue(name: str, value: Any) -> str:
    return check_queue(value)


def _accept_content(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise IllegalArgumentError(f"{name} must be a list of formats such as ['json', 'pickle'], not {value!r}")
    names = tuple(value)
    for each in names:
        if not isinstance(each, str) or each not in SERIALIZERS:
            raise IllegalArgumentError(f"{name} may have {', '.join(map(repr, SERIALIZERS))}, not {each!r}")
    return names


def _compression(name: str, value: Any) -> str | None:
    if value not in (None, "gzip"):
        raise IllegalArgumentError(f"{name} must be None or 'gzip' in this release, not {value!r}")
    return value  # type: ignore[no-any-return]


@dataclass(frozen=True)
class QueueSetting:
    """One row: the default, the check (name, value) -> value, the unit, and what it is for."""

    default: Any
    check: Callable[[str, Any], Any]
    unit: str
    doc: str


SETTINGS: dict[str, QueueSetting] = {
    "bootstrap_servers": QueueSetting(
        "embedded:.kafka", _servers, "", "host:port of brokers, embedded:DIR for our own, or memory://"
    ),
    "default_queue": QueueSetting("default", _queue, "", "the queue of tasks that name none"),
    "queues": QueueSetting((), _queues, "", "queues that no task of this app declares, but jobs are sent to"),
    "delivery": QueueSetting(
        "auto", _delivery, "", "how workers get jobs: share groups, consumer groups, or by what the brokers offer"
    ),
    "partitions": QueueSetting(8, _integer(1, 65_536), "", "partitions of topics that the app creates"),
    "replication_factor": QueueSetting(None, optional(_integer(1, 32_767)), "", "of these; None: the broker's default"),
    "min_insync_replicas": QueueSetting(
        None, optional(_integer(1, 32_767)), "", "of these, at most replication_factor; None: the broker's default"
    ),
    "create_topics": QueueSetting(True, flag, "", "create missing topics on first use; else they are checked"),
    "max_payload_bytes": QueueSetting(
        1_000_000, _integer(1024, 100_000_000), "bytes", "largest payload of a job or result"
    ),
    "result_ttl": QueueSetting(86_400.0, seconds, "s", "how long results are kept"),
    "dead_ttl": QueueSetting(2_592_000.0, seconds, "s", "how long dead jobs are kept"),
    "store_result": QueueSetting(True, flag, "", "write a record for a success, unless the task says otherwise"),
    "track_queued": QueueSetting(False, flag, "", "write a record of each enqueue: a bare id is known at once"),
    "track_started": QueueSetting(False, flag, "", "write a record when a job starts"),
    "retry": QueueSetting(None, optional(retry_policy), "", "the policy of tasks that have none of their own"),
    "timeout": QueueSetting(None, optional(seconds), "s", "hard limit of a job's run, unless the task says otherwise"),
    "soft_timeout": QueueSetting(
        None, optional(seconds), "s", "soft limit of a job's run, unless the task says otherwise"
    ),
    "crash_limit": QueueSetting(3, _integer(1, 100), "", "workers that a job may kill before it is dead"),
    "unknown_ttl": QueueSetting(
        86_400.0, seconds, "s", "how long jobs of a task that no worker declares wait for one that does"
    ),
    "stop_grace": QueueSetting(20.0, seconds, "s", "how long a stopping worker waits for running jobs"),
    "kill_grace": QueueSetting(5.0, seconds, "s", "how long it waits after it has asked them to end"),
    "linger": QueueSetting(0.001, seconds, "s", "how long the producer of jobs waits for more of them"),
    "batch_bytes": QueueSetting(
        16_384, _integer(1024, 1_000_000), "bytes", "of the batches of jobs; small ones share well"
    ),
    "serializer": QueueSetting("json", check_serializer, "", "of arguments and results: json, msgpack or pickle"),
    "accept_content": QueueSetting(
        tuple(sorted(SAFE)), _accept_content, "", "formats that are read; reading pickle may run any code"
    ),
    "compression": QueueSetting(None, _compression, "", "of jobs and results"),
    "connect_timeout": QueueSetting(5.0, seconds, "s", "how long each server may take to answer at all, at first"),
    "request_timeout": QueueSetting(40.0, seconds, "s", "how long a broker may take to answer"),
    "result_view": QueueSetting(100_000, _integer(100, 100_000_000), "jobs", "results that a client keeps in memory"),
}
"""Name -> row, in the order of the documentation."""

_CLIENT_PREFIXES = ("security_protocol", "sasl_", "ssl_", "client_rack")


class ClientKeywords(TypedDict, total=False):
    """The settings that go to the clients unchanged: see their reference."""

    security_protocol: str
    ssl_context: SSLContext | None
    ssl_check_hostname: bool
    ssl_cafile: str | None
    ssl_certfile: str | None
    ssl_keyfile: str | None
    ssl_password: str | Callable[[], str] | None
    ssl_crlfile: str | None
    ssl_ciphers: str | None
    sasl_mechanism: str | None
    sasl_plain_username: str | None
    sasl_plain_password: str | None
    sasl_oauth_token_provider: Any
    client_rack: str


class SettingKeywords(ClientKeywords, total=False):
    """What ``App(name, ...)`` takes, for editors and type checkers: the keys of :data:`SETTINGS`."""

    bootstrap_servers: str | Sequence[str]
    default_queue: str
    queues: Iterable[str]
    delivery: str
    partitions: int
    replication_factor: int | None
    min_insync_replicas: int | None
    create_topics: bool
    max_payload_bytes: int
    result_ttl: Seconds
    dead_ttl: Seconds
    unknown_ttl: Seconds
    store_result: bool
    serializer: str
    accept_content: Iterable[str]
    track_queued: bool
    track_started: bool
    retry: Retry | None
    timeout: Seconds | None
    soft_timeout: Seconds | None
    crash_limit: int
    stop_grace: Seconds
    kill_grace: Seconds
    linger: Seconds
    batch_bytes: int
    compression: str | None
    connect_timeout: Seconds
    request_timeout: Seconds
    result_view: int


class ClientSettings(dict[str, Any]):
    """Settings of the clients, passwords among them: it shows their names alone."""

    def __repr__(self) -> str:
        return f"<ClientSettings {', '.join(self)}>" if self else "<ClientSettings>"


@dataclass(frozen=True)
class Settings:
    """An app's settings, checked. ``client`` holds those that go to the clients unchanged."""

    bootstrap_servers: str
    default_queue: str
    queues: tuple[str, ...]
    delivery: str
    partitions: int
    replication_factor: int | None
    min_insync_replicas: int | None
    create_topics: bool
    max_payload_bytes: int
    result_ttl: float
    dead_ttl: float
    store_result: bool
    track_queued: bool
    track_started: bool
    retry: Retry | None
    timeout: float | None
    soft_timeout: float | None
    crash_limit: int
    unknown_ttl: float
    stop_grace: float
    kill_grace: float
    linger: float
    batch_bytes: int
    serializer: str
    accept_content: tuple[str, ...]
    compression: str | None
    connect_timeout: float
    request_timeout: float
    result_view: int
    client: ClientSettings


def read_settings(given: Mapping[str, Any]) -> Settings:
    """Settings with defaults filled in; :class:`KafkaConfigurationError` for an unknown or impossible one."""
    values: dict[str, Any] = {name: row.default for name, row in SETTINGS.items()}
    client = ClientSettings()
    try:
        for name, value in given.items():
            if name in SETTINGS:
                values[name] = SETTINGS[name].check(name, value)
            elif name.startswith(_CLIENT_PREFIXES):
                client[name] = value
            else:
                raise KafkaConfigurationError(f"an app has no setting {name!r}{did_you_mean(name, SETTINGS)}")
        check_limits(values["soft_timeout"], values["timeout"])
        check_replicas(values["replication_factor"], values["min_insync_replicas"])
    except IllegalArgumentError as error:
        raise KafkaConfigurationError(error.args[0]) from None
    if values["serializer"] not in values["accept_content"]:
        raise KafkaConfigurationError(
            f"serializer={values['serializer']!r} needs accept_content=[...] with {values['serializer']!r} in it, here "
            "and in the app that the workers load"
        )
    values["bootstrap_servers"] = _with_absolute_directory(values["bootstrap_servers"])
    return Settings(client=client, **values)


def check_limits(soft: float | None, hard: float | None) -> None:
    """A soft limit is below the hard one; :class:`IllegalArgumentError` else."""
    if soft is not None and hard is not None and soft >= hard:
        raise IllegalArgumentError(f"soft_timeout ({soft:g} s) must be below timeout ({hard:g} s)")


def check_replicas(replication_factor: int | None, min_insync_replicas: int | None) -> None:
    """No topic needs more replicas in sync than it has; :class:`IllegalArgumentError` else. Kafka takes it, and counts
    fewer replicas as enough."""
    if replication_factor is not None and min_insync_replicas is not None and min_insync_replicas > replication_factor:
        raise IllegalArgumentError(
            f"min_insync_replicas ({min_insync_replicas}) must be at most replication_factor ({replication_factor})"
        )


def _with_absolute_directory(servers: str) -> str:
    """``embedded:DIR`` with the directory as it is meant now. Who connects later may be elsewhere: a daemon, or a task
    that has changed its directory and would send its jobs to a broker of its own there."""
    directory = servers.removeprefix(EMBEDDED)
    return f"{EMBEDDED}{os.path.abspath(os.path.expanduser(directory))}" if directory not in (servers, "") else servers
