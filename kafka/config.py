"""Every setting of every client, once: name, check, default, unit, clients, documentation.

:func:`resolve` turns the user's values into the full settings of one client. An unknown name is an error that suggests
the nearest known one; a setting of kafka-python that this version does not honour yet is an error that says so, because
a setting that is accepted and ignored is worse than none.

To add a setting: a row in :data:`SETTINGS` (and, when it was there, one less in :data:`NOT_YET`). The reference page of
the documentation is drawn from both tables. Values are checked by the functions of ``validation.py``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

from kafka.errors import KafkaConfigurationError
from kafka.validation import (
    SECURITY_PROTOCOLS,
    Check,
    acks,
    assignors,
    boolean,
    compression_type,
    deserializer,
    function,
    instance_id,
    integer,
    integer_or_inf,
    interceptors,
    isolation_level,
    iteration_limit,
    mechanism,
    name_text,
    number,
    number_or_inf,
    offset_reset,
    one_of,
    optional,
    partitioner,
    path,
    rack,
    release,
    reporters,
    secret,
    secret_or_function,
    serializer,
    servers,
    socket_options,
    software_text,
    ssl_context,
    text,
    token_provider,
    topics,
    word_of,
)
from kafka.validation import Secret as Secret

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
    is_secret: bool = False
    """Errors do not show the value."""

    def default_for(self, client: str) -> Any:
        return self.defaults.get(client, self.default)


# -- the table --------------------------------------------------------------------------------------------------------

_PRODUCER: Final = frozenset({"producer"})
_CONSUMER: Final = frozenset({"consumer"})
_SHARE: Final = frozenset({"share"})
_READERS: Final = frozenset({"consumer", "share"})
_MEASURED: Final = frozenset({"producer", "consumer", "share", "admin"})

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
    Setting("reconnect_backoff_ms", number(), 50,
            "Wait before connecting again to a node after a failure; doubled by each further one, +-20 %.", "ms"),
    Setting("reconnect_backoff_max_ms", number(), 30_000, "The most that this wait grows to.", "ms"),
    Setting("socket_connection_setup_timeout_ms", integer(1), 10_000,
            "Most time for connecting to one address of a node; doubled by each failure in a row, +-20 % (KIP-601).",
            "ms"),
    Setting("socket_connection_setup_timeout_max_ms", integer(1), 30_000, "The most that this time grows to.", "ms"),
    Setting("socket_options", optional(socket_options), None,
            "More options for each socket, as (level, name, value) for setsockopt(), after those that this client sets "
            "(no delay, keep-alive)."),
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
            "Longest answer that is taken; a longer one ends the connection. Consumers inflate no batch beyond it.",
            "bytes"),
    Setting("retry_backoff_ms", number(), 100, "Wait before a failed request is tried again.", "ms"),
    Setting("retry_backoff_max_ms", number(), 1_000, "The most that this wait grows to (KIP-580).", "ms"),
    Setting("metadata_max_age_ms", integer(0), 300_000, "Read the cluster's metadata again after so long.", "ms"),
    Setting("allow_auto_create_topics", boolean, True,
            "Whether asking for the metadata of a missing topic may create it (the broker decides too)."),
    Setting("api_version", release, None,
            "The cluster's release, instead of finding it out on the first connection, which is None or 'auto'."),
    Setting("api_version_auto_timeout_ms", integer(1), 2_000,
            "Most time for each step of finding out the cluster's release.", "ms"),
    Setting("security_protocol", word_of(*SECURITY_PROTOCOLS), "PLAINTEXT",
            "What the servers' listeners want: PLAINTEXT; SSL (TLS); SASL_PLAINTEXT (a password or token, in the clear "
            "for PLAIN and OAUTHBEARER); SASL_SSL (both). See :doc:`security`."),
    Setting("ssl_context", optional(ssl_context), None,
            "An ssl.SSLContext, instead of all ssl_ settings but ssl_check_hostname, which it has of its own."),
    Setting("ssl_check_hostname", boolean, True, "Whether the server's certificate has to be for the name asked for."),
    Setting("ssl_cafile", optional(path), None,
            "PEM file with the certificates that are trusted; None trusts those that the system does."),
    Setting("ssl_certfile", optional(path), None,
            "PEM file with the client's certificate chain, and its key unless ssl_keyfile has it."),
    Setting("ssl_keyfile", optional(path), None, "PEM file with the key of the client's certificate."),
    Setting("ssl_password", optional(secret_or_function), None,
            "Password of that key, or a function that gives it.", is_secret=True),
    Setting("ssl_crlfile", optional(path), None,
            "PEM file with revocation lists; the server's certificate is refused if it is in them, and if the list of "
            "its issuer is not there."),
    Setting("ssl_ciphers", optional(name_text), None, "OpenSSL's list of the ciphers to use, for TLS 1.2."),
    Setting("sasl_mechanism", optional(mechanism), None,
            "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER, for the protocols with SASL."),
    Setting("sasl_plain_username", optional(name_text), None, "User name, for PLAIN and SCRAM."),
    Setting("sasl_plain_password", optional(secret), None, "Password, for PLAIN and SCRAM.", is_secret=True),
    Setting("sasl_oauth_token_provider", optional(token_provider), None,
            "For OAUTHBEARER: an object with token(), and perhaps extensions() (KIP-342), or a function that gives a "
            "token. It is called in a thread of its own, for each authentication."),
    Setting("client_dns_lookup", one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
            "use_all_dns_ips",
            "All addresses of a name are tried, in the order that the system gives, and after each failure another one "
            "first (KIP-602). "
            "resolve_canonical_bootstrap_servers_only: each bootstrap server's name first becomes the canonical names "
            "of its addresses, for one alias of a cluster whose servers have certificates of their own (KIP-235)."),
    Setting("client_software_name", optional(software_text), None,
            "The name of this software that brokers count in their metrics (KIP-511); None is this package's."),
    Setting("client_software_version", optional(software_text), None, "The same, its version; None is this package's."),
    Setting("bootstrap_timeout_ms", optional(integer(1)), None,
            "Making the client waits until the cluster's metadata has been read, at most so long: KafkaTimeoutError "
            "then. None waits for nothing: the first calls do.", "ms"),
    Setting("proxy_url", optional(secret), None,
            "Connect through this proxy: socks5://, socks5h:// (the proxy looks names up) or http:// (CONNECT), then "
            "[NAME:PASSWORD@]HOST[:PORT].", is_secret=True),
    Setting("socks5_proxy", optional(secret), None, "The former name of proxy_url.", is_secret=True),
    Setting("bootstrap_topics_filter", topics, (),
            "Topics whose metadata is read from the start."),
    Setting("metadata_recovery_strategy", one_of("rebootstrap", "none"), "rebootstrap",
            "What to do when no known broker can be reached: ask the bootstrap servers again, their names looked up "
            "anew (KIP-899), or go on with the brokers that are known."),
    Setting("metadata_recovery_rebootstrap_trigger_ms", integer(0), 300_000,
            "Ask the bootstrap servers again, too, when the metadata could not be read for so long (KIP-1102).", "ms"),
    # -- producer --
    Setting("key_serializer", optional(serializer), None, "Turns keys into bytes.", clients=_PRODUCER),
    Setting("value_serializer", optional(serializer), None, "Turns values into bytes.", clients=_PRODUCER),
    Setting("acks", acks, -1, "Replicas that have a record before it counts as sent: 0, 1, or -1 for all in sync.",
            clients=_PRODUCER),
    Setting("compression_type", compression_type, None,
            "None (or 'none'), 'gzip', 'snappy', 'lz4' or 'zstd'. All but gzip need the extra `compression`; zstd also "
            "needs brokers since 2.1.", clients=_PRODUCER),
    Setting("compression_level", optional(integer(-_INT32)), None,
            "Level of the codec in use (KIP-390): gzip 1 to 9, lz4 1 to 17, zstd -131072 to 22; None is the codec's "
            "own, which is -1 for gzip, 9 for lz4 (its fast mode, as in Java) and 3 for zstd.", clients=_PRODUCER),
    Setting("compression_gzip_level", optional(one_of(-1, *range(1, 10))), None,
            "The same for gzip alone, as Java's compression.gzip.level.", clients=_PRODUCER),
    Setting("compression_lz4_level", optional(integer(1, 17)), None,
            "The same for lz4 alone, as Java's compression.lz4.level.", clients=_PRODUCER),
    Setting("compression_zstd_level", optional(integer(-131_072, 22)), None,
            "The same for zstd alone, as Java's compression.zstd.level.", clients=_PRODUCER),
    Setting("enable_idempotence", boolean, True, "No duplicates and no reordering by retries (KIP-98).",
            clients=_PRODUCER),
    Setting("retries", number_or_inf(), inf, "Attempts after the first, within delivery_timeout_ms.",
            clients=_PRODUCER),
    Setting("batch_size", integer(0), 16_384, "Records of one partition go out together up to so many bytes.", "bytes",
            clients=_PRODUCER),
    Setting("batch_max_records", integer(0), 0, "The same, up to so many records; 0: as many as fit.",
            clients=_PRODUCER),
    Setting("linger_ms", number(), 0, "Wait for more records before a batch goes out.", "ms", clients=_PRODUCER),
    Setting("partitioner", optional(partitioner), None,
            "Chooses the partition. None: murmur2 of the key as in Java, and without one a partition for each "
            "batch_size of bytes, rather one with few batches waiting (KIP-794); 'sticky': another for each batch "
            "(KIP-480); 'round_robin': one after the other (KIP-369); or a function (key, all partitions, available "
            "partitions), or an object with partition(topic, key, serialized_key, value, serialized_value, cluster).",
            clients=_PRODUCER),
    Setting("partitioner_adaptive_partitioning_enable", boolean, True,
            "Without partitioner: prefer partitions with few batches waiting (KIP-794).", clients=_PRODUCER),
    Setting("partitioner_availability_timeout_ms", integer(0), 0,
            "Without partitioner: avoid the partitions of a node that has taken nothing for so long; 0: do not look.",
            "ms", clients=_PRODUCER),
    Setting("partitioner_ignore_keys", boolean, False,
            "Without partitioner: keys do not decide the partition.", clients=_PRODUCER),
    Setting("interceptors", interceptors, (),
            "Objects, or classes of them, that see each record before it is sent and its end, or what a consumer hands "
            "out and has committed (KIP-42).", clients=_PRODUCER | _CONSUMER),
    Setting("buffer_memory", integer(1), 33_554_432,
            "Memory for records that were not answered, as Python holds them; send() waits above it.", "bytes",
            clients=_PRODUCER),
    Setting("max_block_ms", integer_or_inf(), 60_000,
            "Most time that send() waits for memory or metadata; float('inf'): as long as it takes.", "ms",
            clients=_PRODUCER),
    Setting("max_request_size", integer(1), 1_048_576, "Largest request, and so the largest record.", "bytes",
            clients=_PRODUCER),
    Setting("delivery_timeout_ms", integer(1), 120_000, "From send() to success or failure (KIP-91).", "ms",
            clients=_PRODUCER),
    Setting("transactional_id", optional(name_text), None,
            "Makes the producer a transactional one (KIP-98): the name under which its transactions go on when another "
            "producer takes them over. Excludes acks other than all, enable_idempotence=False and retries=0.",
            clients=_PRODUCER),
    Setting("transaction_timeout_ms", integer(1, _INT32), 60_000,
            "The broker aborts a transaction that takes longer. Most is its transaction.max.timeout.ms.", "ms",
            clients=_PRODUCER),
    # -- metrics --
    Setting("metrics_enabled", boolean, True, "Whether metrics are kept: per batch and request, never per record.",
            clients=_MEASURED),
    Setting("metrics_num_samples", integer(1), 2, "Windows of time that rates, averages and maxima are taken over.",
            clients=_MEASURED),
    Setting("metrics_sample_window_ms", integer(1), 30_000, "Length of one of them.", "ms", clients=_MEASURED),
    Setting("metric_reporters", reporters, (),
            "Objects, or classes of them, that receive the metrics (kafka.metrics.AbstractMetricsReporter).",
            clients=_MEASURED),
    Setting("enable_metrics_push", boolean, True,
            "Push metrics to brokers that ask for them (KIP-714). Needs the extra `telemetry`; without it, none are.",
            clients=_MEASURED),
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
    Setting("client_rack", rack, "",
            "This client's rack (KIP-392, KIP-881); of a KafkaClient that consumers share: theirs.",
            clients=_READERS | {"client"}),
    Setting("fetch_buffer_bytes", integer(1), 104_857_600,
            "Most that is held in memory: what is fetched and not yet handed out, and what the fetches under way may "
            "bring. A batch that is larger than what is left comes whole: up to two for each broker may be on top.",
            "bytes", clients=_CONSUMER),
    Setting("enable_incremental_fetch_sessions", boolean, True,
            "Tell each broker only what has changed of what is fetched (KIP-227).", clients=_CONSUMER),
    Setting("auto_offset_reset", offset_reset, "latest",
            "Where to read when no position is known or it is out of range: 'latest', 'earliest', the first record "
            "that is not older than a duration ('by_duration:PT1H', KIP-1106), or 'none': NoOffsetForPartitionError "
            "and OffsetOutOfRangeError tell. See :doc:`fetching`.", clients=_CONSUMER),
    Setting("isolation_level", isolation_level, "read_uncommitted",
            "Whether records of open and aborted transactions are seen: 'read_uncommitted' or 'read_committed', or a "
            "member of :class:`kafka.IsolationLevel`.", clients=_CONSUMER),
    Setting("consumer_timeout_ms", iteration_limit, inf,
            "Iteration ends when nothing came for so long; float('inf') or -1: never.", "ms", clients=_CONSUMER),
    Setting("default_api_timeout_ms", integer(1), 60_000,
            "Most time that calls wait which were given no timeout_ms: commit(), committed(), position(), look-ups of "
            "offsets.", "ms", clients=_CONSUMER),
    # -- groups --
    Setting("group_id", optional(name_text), None, "The group's name.", clients=_READERS),
    Setting("group_instance_id", optional(instance_id), None,
            "Makes a static member of this name (KIP-345): one that comes back within session_timeout_ms gets its "
            "partitions again without a rebalance. No two at a time.", clients=_CONSUMER),
    Setting("group_protocol", one_of("classic", "consumer"), "classic",
            "How the group is run: 'classic', with assignors in the clients; 'consumer' (KIP-848), with assignors in "
            "the broker, which takes Apache Kafka 4.0.", clients=_CONSUMER),
    Setting("group_remote_assignor", optional(name_text), None,
            "With group_protocol='consumer': the broker's assignor, 'uniform' or 'range'; None leaves it to the "
            "broker.", clients=_CONSUMER),
    Setting("partition_assignment_strategy", assignors, ("range", "roundrobin"),
            "With group_protocol='classic': the assignors that this member offers, the most wanted first: 'range', "
            "'roundrobin', 'sticky', 'cooperative-sticky', classes of kafka.coordinator.assignors, or of your own. All "
            "members need one in common.", clients=_CONSUMER),
    Setting("session_timeout_ms", integer(1, _INT32), 45_000,
            "With group_protocol='classic': a member whose heartbeats do not come for so long is out of the group.",
            "ms", clients=_CONSUMER),
    Setting("heartbeat_interval_ms", integer(1, _INT32), 3_000,
            "With group_protocol='classic': the time between heartbeats.", "ms", clients=_CONSUMER),
    Setting("max_poll_interval_ms", integer(1, _INT32), 300_000,
            "A member that does not call poll() for so long leaves the group until it does. As long may a rebalance "
            "take.", "ms", clients=_CONSUMER),
    Setting("enable_auto_commit", boolean, True,
            "With a group_id: what poll() has returned is committed by later polls, before partitions are given up, "
            "and by close().", clients=_CONSUMER),
    Setting("auto_commit_interval_ms", integer(0), 5_000, "The time between such commits.", "ms", clients=_CONSUMER),
    Setting("default_offset_commit_callback", optional(function), None,
            "Called as callback(offsets, response) for commits by themselves, and for commit_async() without a "
            "callback. The response is an exception or an OffsetCommitResponse.", clients=_CONSUMER),
    Setting("exclude_internal_topics", boolean, True,
            "Whether a pattern leaves out topics such as __consumer_offsets.", clients=_CONSUMER),
    # -- share groups --
    Setting("share_acknowledgement_mode", one_of("implicit", "explicit"), "implicit",
            "implicit: the next poll() accepts what the last one returned; explicit: acknowledge() each record.",
            clients=_SHARE),
    Setting("share_acquire_mode", one_of("batch_optimized", "record_limit"), "batch_optimized",
            "record_limit: never more than max_poll_records are acquired (KIP-1206).", clients=_SHARE),
)  # fmt: skip
"""All settings that this version honours."""

NOT_YET: Final = frozenset(
    [
        "sasl_kerberos_name", "sasl_kerberos_service_name", "sasl_kerberos_domain_name",
        "metrics", "metric_group_prefix", "selector", "kafka_client",
    ]
)  # fmt: skip
"""Settings of kafka-python that this version does not honour. Asking for one is an error that says so."""

BY_NAME: Final[dict[str, Setting]] = {setting.name: setting for setting in SETTINGS}


def settings_of(client: str) -> list[Setting]:
    """The settings of ``client`` (one of :data:`CLIENTS`), in the table's order."""
    if client not in ALL:
        raise ValueError(f"no such client: {client!r}")
    return [setting for setting in SETTINGS if client in setting.clients]


def defaults(client: str) -> dict[str, Any]:
    """All settings of ``client`` with their defaults: a new dict."""
    return {setting.name: setting.default_for(client) for setting in settings_of(client)}


def resolve(client: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of ``client``: the ``given`` values, checked, over the defaults.

    KafkaConfigurationError for an unknown name (with the nearest known one), for one that this client does not have,
    and for an invalid value. None for a setting that this version does not have is ignored.
    """
    settings = defaults(client)
    for name, value in given.items():
        if value is None and name in NOT_YET:
            continue
        if name not in settings:
            raise KafkaConfigurationError(_unknown(client, name, settings))
        settings[name] = check(name, value)
    return settings


def as_given(settings: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """A client's resolved settings for display: ``bootstrap_servers`` as the user passed them."""
    return {**settings, "bootstrap_servers": given.get("bootstrap_servers", settings["bootstrap_servers"])}


def narrow(client: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Of another client's resolved settings, those that ``client`` has, too: a producer passes these to its
    KafkaClient."""
    return {setting.name: settings[setting.name] for setting in settings_of(client) if setting.name in settings}


def check(name: str, value: Any) -> Any:
    """``value`` converted and checked for the setting ``name``; KafkaConfigurationError when it is invalid."""
    setting = BY_NAME[name]
    try:
        return setting.check(value)
    except (TypeError, ValueError) as error:
        unit = f" ({setting.unit})" if setting.unit else ""
        shown = "<secret>" if setting.is_secret or _may_be_secret(name, value) else repr(value)
        raise KafkaConfigurationError(f"{name}={shown}: expected {error}{unit}") from None


def _may_be_secret(name: str, value: Any) -> bool:
    """A PEM text instead of the path of its file, or a token instead of its provider."""
    if name == "sasl_oauth_token_provider":
        return isinstance(value, (str, bytes))
    return b"-----BEGIN" in value if isinstance(value, bytes) else isinstance(value, str) and "-----BEGIN" in value


def _unknown(client: str, name: str, known: Iterable[str]) -> str:
    if name in NOT_YET:
        return f"{name}: this version does not have that setting yet"
    setting = BY_NAME.get(name)
    if setting is not None:
        return f"{name}: a setting of {' and '.join(sorted(setting.clients))}, not of {client}"
    nearest = difflib.get_close_matches(name, list(known), 1, 0.5)
    return f"{name}: no such setting" + (f"; did you mean {nearest[0]}?" if nearest else "")
