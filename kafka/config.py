"""Every setting of every client, once: name, check, default, unit, who has it, what it does.

:func:`resolve` turns what a user gave into the full settings of one client. A name that nobody knows is an error that
says the nearest known one; a name that kafka-python has and this version does not honour yet is an error that says so,
because a setting that is taken and ignored is worse than none.

To add a setting: a row in :data:`SETTINGS` (and, when it stood there, one less in :data:`NOT_YET`). The reference page
of the documentation is drawn from both tables.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

import six

from kafka.errors import KafkaConfigurationError

Check = Callable[[Any], Any]
"""Takes what the user gave, returns the value to use; ValueError or TypeError with what would be right."""

CLIENTS: Final = ("client", "producer", "consumer", "share", "admin")
ALL: Final = frozenset(CLIENTS)


@dataclass(frozen=True)
class Setting:
    """One row. ``defaults`` has the clients whose default differs from ``default``."""

    name: str
    check: Check
    default: Any
    doc: str
    unit: str = ""
    clients: frozenset[str] = ALL
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def default_for(self, client: str) -> Any:
        return self.defaults.get(client, self.default)


# -- checks -----------------------------------------------------------------------------------------------------------


def integer(least: int = 0, most: float = inf) -> Check:
    """A whole number from ``least`` to ``most``; a float without a fraction counts, a bool does not."""
    wanted = f"a whole number of at least {least}" + ("" if most == inf else f" and at most {most:g}")

    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value // 1:
            raise ValueError(wanted)
        if not least <= value <= most:
            raise ValueError(wanted)
        return int(value)

    return check


def number_or_inf(least: float = 0) -> Check:
    """A number of at least ``least``; ``float("inf")`` means without limit."""

    def check(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= least:
            raise ValueError(f"a number of at least {least:g}, or float('inf')")
        return value

    return check


def boolean(value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise ValueError("True or False")
    return value


def text(value: Any) -> str:
    """A text; bytes are taken as UTF-8."""
    if not isinstance(value, (six.text_type, six.binary_type)):
        raise ValueError("a text")
    return six.ensure_text(value)


def name_text(value: Any) -> str:
    """A text with something in it."""
    found = text(value)
    if not found:
        raise ValueError("a text that is not empty")
    return found


def servers(value: Any) -> tuple[str, ...]:
    """One text of servers separated by commas, or an iterable of such texts."""
    wanted = "HOST[:PORT], several in a list or separated by commas"
    if isinstance(value, (six.text_type, six.binary_type)):
        value = [value]
    try:
        parts = [part.strip() for entry in value for part in text(entry).split(",")]
    except TypeError:
        raise ValueError(wanted) from None
    if not any(parts):
        raise ValueError(wanted)
    return tuple(part for part in parts if part)


def one_of(*allowed: Any) -> Check:
    """One of a few values."""

    def check(value: Any) -> Any:
        if value not in allowed or isinstance(value, bool) != any(a is value for a in allowed if isinstance(a, bool)):
            raise ValueError("one of " + ", ".join(repr(a) for a in allowed))
        return value

    return check


def optional(check: Check) -> Check:
    """None, or what ``check`` takes."""
    return lambda value: None if value is None else check(value)


def function(value: Any) -> Any:
    """Something to call."""
    if not callable(value):
        raise ValueError("something to call")
    return value


def serializer(value: Any) -> Any:
    """A function of the value, or an object with ``serialize(topic, headers, data)``."""
    if not (callable(value) or callable(getattr(value, "serialize", None))):
        raise ValueError("a function of the value, or an object with serialize(topic, headers, data)")
    return value


def deserializer(value: Any) -> Any:
    """A function of the bytes, or an object with ``deserialize(topic, headers, data)``."""
    if not (callable(value) or callable(getattr(value, "deserialize", None))):
        raise ValueError("a function of the bytes, or an object with deserialize(topic, headers, data)")
    return value


def partitioner(value: Any) -> Any:
    """``"sticky"``, ``"round_robin"``, or a function ``(key, all_partitions, available_partitions)``."""
    if not (callable(value) or value in ("sticky", "round_robin")):
        raise ValueError("'sticky', 'round_robin' or a function (key, all partitions, available partitions)")
    return value


def acks(value: Any) -> int:
    """0, 1, -1 or "all"."""
    if value == "all":
        return -1
    if isinstance(value, bool) or value not in (0, 1, -1):
        raise ValueError("0, 1, -1 or 'all'")
    return int(value)


def release(value: Any) -> tuple[int, ...]:
    """A broker's release as "0.10.2" or (0, 10, 2)."""
    wanted = "a release such as '0.10.2' or (0, 10, 2)"
    parts = value.split(".") if isinstance(value, str) else value
    try:
        found = tuple(int(part) for part in parts)
    except (TypeError, ValueError):
        raise ValueError(wanted) from None
    if not 2 <= len(found) <= 4 or found < (0, 8):
        raise ValueError(wanted)
    return found


# -- the table --------------------------------------------------------------------------------------------------------

_ONLY_CLIENT: Final = frozenset({"client"})
_PRODUCER: Final = frozenset({"producer"})
_CONSUMER: Final = frozenset({"consumer"})
_SHARE: Final = frozenset({"share"})
_READERS: Final = frozenset({"consumer", "share"})

_INT32: Final = 2**31 - 1

SETTINGS: Final[tuple[Setting, ...]] = (
    # -- every client --
    Setting("bootstrap_servers", servers, ("localhost",),
            "Servers to learn the cluster from: host[:port], a list, or separated by commas; port 9092 when not said."),
    Setting("client_id", optional(text), None,
            "Name of this client in the broker's logs, metrics and quotas; None gives kafka-taskloop-VERSION."),
    Setting("request_timeout_ms", integer(1), 30_000,
            "From handing a request over to its answer. When it passes, the connection is closed.", "ms",
            defaults={"client": 40_000}),
    Setting("reconnect_backoff_ms", integer(0), 50,
            "Wait before connecting again to a node after a failure; doubled by each further one, +-20 %.", "ms"),
    Setting("reconnect_backoff_max_ms", integer(0), 30_000, "The most that this wait grows to.", "ms"),
    Setting("socket_connection_setup_timeout_ms", integer(1), 10_000,
            "Most time for connecting to one address (KIP-601).", "ms"),
    Setting("connections_max_idle_ms", integer(1), 540_000, "Close a connection that was not used for so long.", "ms"),
    Setting("max_in_flight_requests_per_connection", integer(1), 5,
            "Requests that are sent on one connection before the answer to the first of them."),
    Setting("receive_buffer_bytes", optional(integer(1)), None,
            "The socket's receive buffer (SO_RCVBUF); None leaves the system's own.", "bytes",
            defaults={"client": 32_768}),
    Setting("send_buffer_bytes", optional(integer(1)), None,
            "The socket's send buffer (SO_SNDBUF); None leaves the system's own.", "bytes",
            defaults={"client": 131_072}),
    Setting("receive_message_max_bytes", integer(1, _INT32), 100_000_000,
            "Longest answer that is taken; a longer one ends the connection.", "bytes"),
    Setting("retry_backoff_ms", integer(0), 100, "Wait before a failed request is tried again.", "ms"),
    Setting("retry_backoff_max_ms", integer(0), 1_000, "The most that this wait grows to (KIP-580).", "ms"),
    Setting("metadata_max_age_ms", integer(0), 300_000, "Read the cluster's metadata again after so long.", "ms"),
    Setting("allow_auto_create_topics", boolean, True,
            "Whether asking for the metadata of a missing topic may create it (the broker decides too)."),
    Setting("api_version", optional(release), None,
            "The cluster's release, instead of finding it out on the first connection."),
    Setting("api_version_auto_timeout_ms", integer(1), 2_000,
            "Most time for each step of finding out the cluster's release.", "ms"),
    Setting("security_protocol", one_of("PLAINTEXT"), "PLAINTEXT", "PLAINTEXT; the others follow."),
    Setting("client_dns_lookup", one_of("use_all_dns_ips"), "use_all_dns_ips",
            "All addresses of a name are tried, in the order that the system gives (KIP-602)."),
    # -- producer --
    Setting("key_serializer", optional(serializer), None, "Turns keys into bytes.", clients=_PRODUCER),
    Setting("value_serializer", optional(serializer), None, "Turns values into bytes.", clients=_PRODUCER),
    Setting("acks", acks, -1, "Replicas that have a record before it counts as sent: 0, 1, or -1 for all in sync.",
            clients=_PRODUCER),
    Setting("compression_type", optional(one_of("gzip")), None, "None or 'gzip'; the others follow.",
            clients=_PRODUCER),
    Setting("enable_idempotence", boolean, True, "No duplicates and no reordering by retries (KIP-98).",
            clients=_PRODUCER),
    Setting("retries", number_or_inf(), inf, "Attempts after the first, within delivery_timeout_ms.",
            clients=_PRODUCER),
    Setting("batch_size", integer(0), 16_384, "Records of one partition go out together up to so many bytes.", "bytes",
            clients=_PRODUCER),
    Setting("batch_max_records", integer(0), 0, "The same, up to so many records; 0: as many as fit.",
            clients=_PRODUCER),
    Setting("linger_ms", integer(0), 0, "Wait for more records before a batch goes out.", "ms", clients=_PRODUCER),
    Setting("partitioner", optional(partitioner), None,
            "Chooses the partition. None: murmur2 of the key as in Java, sticky without one (KIP-480); 'round_robin': "
            "one after the other without a key; or a function (key, all partitions, available partitions).",
            clients=_PRODUCER),
    Setting("buffer_memory", integer(1), 33_554_432, "Bytes of records that wait; send() blocks above it.", "bytes",
            clients=_PRODUCER),
    Setting("max_block_ms", integer(0), 60_000, "Most time that send() waits for memory or metadata.", "ms",
            clients=_PRODUCER),
    Setting("max_request_size", integer(1), 1_048_576, "Largest request, and so the largest record.", "bytes",
            clients=_PRODUCER),
    Setting("delivery_timeout_ms", integer(1), 120_000, "From send() to success or failure (KIP-91).", "ms",
            clients=_PRODUCER),
    # -- readers --
    Setting("key_deserializer", optional(deserializer), None, "Turns the bytes of keys into values.",
            clients=_READERS),
    Setting("value_deserializer", optional(deserializer), None, "Turns the bytes of values into values.",
            clients=_READERS),
    Setting("fetch_max_wait_ms", integer(0), 500, "How long the broker may wait for fetch_min_bytes.", "ms",
            clients=_READERS),
    Setting("fetch_min_bytes", integer(0), 1, "The broker answers when it has so much.", "bytes", clients=_READERS),
    Setting("fetch_max_bytes", integer(1), 52_428_800, "Most that one answer brings.", "bytes", clients=_READERS),
    Setting("max_partition_fetch_bytes", integer(1), 1_048_576, "Most that one answer brings of a partition.", "bytes",
            clients=_CONSUMER),
    Setting("check_crcs", boolean, True, "Check each batch's CRC.", clients=_READERS),
    Setting("max_poll_records", integer(1), 500, "Most records that one poll() returns.", clients=_READERS),
    Setting("client_rack", text, "", "This client's rack (KIP-392, KIP-881).", clients=_READERS),
    Setting("auto_offset_reset", one_of("latest", "earliest", "none"), "latest",
            "Where to read when no position is known or it is out of range.", clients=_CONSUMER),
    Setting("isolation_level", one_of("read_uncommitted", "read_committed"), "read_uncommitted",
            "Whether records of open and aborted transactions are seen.", clients=_CONSUMER),
    Setting("consumer_timeout_ms", number_or_inf(), inf, "Iteration ends when nothing came for so long.", "ms",
            clients=_CONSUMER),
    # -- share groups --
    Setting("group_id", optional(name_text), None, "The group's name.", clients=_READERS),
    Setting("share_acknowledgement_mode", one_of("implicit", "explicit"), "implicit",
            "implicit: the next poll() accepts what the last one returned; explicit: acknowledge() each record.",
            clients=_SHARE),
    Setting("share_acquire_mode", one_of("batch_optimized", "record_limit"), "batch_optimized",
            "record_limit: never more than max_poll_records are acquired (KIP-1206).", clients=_SHARE),
)  # fmt: skip
"""All settings that this version honours."""

NOT_YET: Final = frozenset(
    [
        "ssl_context", "ssl_check_hostname", "ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password", "ssl_crlfile",
        "ssl_ciphers", "sasl_mechanism", "sasl_plain_username", "sasl_plain_password", "sasl_kerberos_name",
        "sasl_kerberos_service_name", "sasl_kerberos_domain_name", "sasl_oauth_token_provider", "proxy_url",
        "socks5_proxy", "metrics", "metric_reporters", "metrics_enabled", "metrics_num_samples",
        "metrics_sample_window_ms", "metric_group_prefix", "selector", "kafka_client", "socket_options",
        "client_software_name", "client_software_version", "bootstrap_timeout_ms", "bootstrap_topics_filter",
        "socket_connection_setup_timeout_max_ms", "transactional_id", "transaction_timeout_ms",
        "group_instance_id", "enable_auto_commit", "auto_commit_interval_ms", "default_offset_commit_callback",
        "partition_assignment_strategy", "max_poll_interval_ms", "session_timeout_ms", "heartbeat_interval_ms",
        "enable_incremental_fetch_sessions", "exclude_internal_topics",
    ]
)  # fmt: skip
"""Settings of kafka-python that this version does not honour. Asking for one is an error that says so."""

BY_NAME: Final[dict[str, Setting]] = {setting.name: setting for setting in SETTINGS}


def settings_of(client: str) -> list[Setting]:
    """The rows that ``client`` (one of :data:`CLIENTS`) has, in the table's order."""
    if client not in ALL:
        raise ValueError(f"no such client: {client!r}")
    return [setting for setting in SETTINGS if client in setting.clients]


def resolve(client: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of ``client``: what was given, checked, over the defaults.

    KafkaConfigurationError for an unknown name (with the nearest known one), for one that this client does not have,
    and for a value that cannot be.
    """
    rows = settings_of(client)
    found = {setting.name: setting.default_for(client) for setting in rows}
    for name, value in given.items():
        if name not in found:
            raise KafkaConfigurationError(_unknown(client, name, found))
        found[name] = check(name, value)
    return found


def narrow(client: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Of another client's resolved settings, those that ``client`` has, too: what a producer hands its KafkaClient."""
    return {setting.name: settings[setting.name] for setting in settings_of(client) if setting.name in settings}


def check(name: str, value: Any) -> Any:
    """``value`` as the setting ``name`` wants it; KafkaConfigurationError when it cannot be."""
    setting = BY_NAME[name]
    try:
        return setting.check(value)
    except (TypeError, ValueError) as error:
        unit = f" ({setting.unit})" if setting.unit else ""
        raise KafkaConfigurationError(f"{name}={value!r}: expected {error}{unit}") from None


def _unknown(client: str, name: str, known: Iterable[str]) -> str:
    if name in NOT_YET:
        return f"{name}: this version does not have that setting yet"
    setting = BY_NAME.get(name)
    if setting is not None:
        return f"{name}: a setting of {' and '.join(sorted(setting.clients))}, not of {client}"
    near = difflib.get_close_matches(name, list(known), 1, 0.5)
    return f"{name}: no such setting" + (f"; did you mean {near[0]}?" if near else "")
