"""Settings of topics and of the broker: name, type, default, range, and which broker setting a topic's falls back to.

The tables are Apache Kafka 4.3.0's for topics, and of its broker settings those that mean something here. To add one,
add a row; the answers of DescribeConfigs, CreateTopics and IncrementalAlterConfigs and the checks follow. Settings of
groups are in ``share/group_configs.py``. What is in force for whom is ``config.py``'s and ``topics.py``'s business.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kafka.broker.share.group_configs import BROKER_RANGES, BrokerLimits
from kafka.errors import InvalidConfigurationError, KafkaConfigurationError

BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, PASSWORD = 1, 2, 3, 4, 5, 6, 7, 9
"""Types as DescribeConfigs numbers them."""

_TYPE_NAMES: Final = {INT: "INT", SHORT: "SHORT", LONG: "LONG"}
_BITS: Final = {SHORT: 15, INT: 31, LONG: 63}
_MAX_LONG: Final = 2**63 - 1
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,40}")
_COMPACTION_LAGS: Final = ("min.compaction.lag.ms", "max.compaction.lag.ms")


class Setting(NamedTuple):
    """One setting. ``broker_name``: of a topic's setting, the broker's that gives its default; ``dynamic``: of a
    broker's setting, whether IncrementalAlterConfigs may change it; ``also``: one more number beside the range;
    ``is_null``: a broker's setting that Kafka shows as null until it is set, though a topic's default follows from
    it."""

    name: str
    type: int
    default: str
    low: float | None = None
    high: float | None = None
    words: tuple[str, ...] = ()
    broker_name: str | None = None
    dynamic: bool = False
    also: int | None = None
    is_null: bool = False

    def check(self, value: str) -> None:
        """Raise InvalidConfigurationError (40) with Kafka's text for a value that is malformed or out of range."""
        if self.type == BOOLEAN:
            if value.lower() not in ("true", "false"):
                raise self._wrong(value, "Expected value to be either true or false")
        elif self.type in _TYPE_NAMES:
            if not _INTEGER.fullmatch(value.strip()):  # int() would take 1_000, too
                raise self._wrong(value, f"Not a number of type {_TYPE_NAMES[self.type]}")
            number = int(value)
            if not -(2 ** _BITS[self.type]) <= number < 2 ** _BITS[self.type]:
                raise self._wrong(value, f"Not a number of type {_TYPE_NAMES[self.type]}")
            self._check_range(value, number)
        elif self.type == DOUBLE:
            try:
                ratio = float(value)
            except ValueError:
                ratio = math.nan
            if not math.isfinite(ratio) or "_" in value:
                raise self._wrong(value, "Not a number of type DOUBLE")
            self._check_range(str(ratio), ratio)
        elif self.words:
            given = list_of(value) if self.type == LIST else [value]
            if any(word not in self.words for word in given):
                odd = next(word for word in given if word not in self.words)
                raise self._wrong(odd, f"String must be one of: {', '.join(self.words)}")

    def _check_range(self, value: str, number: float) -> None:
        if self.also is not None:
            if number != self.also and not (self.low or 0) <= number <= (self.high or 0):
                raise self._wrong(
                    value, f"Value must be between {self.low:.0f} and {self.high:.0f} or equal to {self.also}"
                )
            return
        if self.low is not None and number < self.low:
            raise self._wrong(value, f"Value must be at least {self.low:.0f}")
        if self.high is not None and number > self.high:
            raise self._wrong(value, f"Value must be no more than {self.high:.0f}")

    def _wrong(self, value: str, why: str) -> InvalidConfigurationError:
        return InvalidConfigurationError(f"Invalid value {value} for configuration {self.name}: {why}")


def list_of(value: str) -> list[str]:
    """The parts of a LIST setting."""
    return [part.strip() for part in value.split(",") if part.strip()]


PROTOCOL_MAP: Final = "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
_OF_LISTENER: Final = re.compile(r"listener\.name\.[^.]+\.(?P<name>.+)")
_OF_MECHANISM: Final = re.compile(r"(?:plain|scram-sha-256|scram-sha-512)\.(?P<name>sasl\.jaas\.config)")

_CODECS: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")

_TOPIC_ROWS: Final = (
    Setting("cleanup.policy", LIST, "delete", words=("compact", "delete"), broker_name="log.cleanup.policy"),
    Setting("compression.gzip.level", INT, "-1", 1, 9, broker_name="compression.gzip.level", also=-1),
    Setting("compression.lz4.level", INT, "9", 1, 17, broker_name="compression.lz4.level"),
    Setting("compression.type", STRING, "producer", words=_CODECS, broker_name="compression.type"),
    Setting("compression.zstd.level", INT, "3", -131072, 22, broker_name="compression.zstd.level"),
    Setting("delete.retention.ms", LONG, "86400000", 0, broker_name="log.cleaner.delete.retention.ms"),
    Setting("file.delete.delay.ms", LONG, "60000", 0, broker_name="log.segment.delete.delay.ms"),
    Setting("flush.messages", LONG, str(_MAX_LONG), 1, broker_name="log.flush.interval.messages"),
    Setting("flush.ms", LONG, str(_MAX_LONG), 0),
    Setting("follower.replication.throttled.replicas", LIST, ""),
    Setting("index.interval.bytes", INT, "4096", 0, broker_name="log.index.interval.bytes"),
    Setting("leader.replication.throttled.replicas", LIST, ""),
    Setting("local.retention.bytes", LONG, "-2", -2, broker_name="log.local.retention.bytes"),
    Setting("local.retention.ms", LONG, "-2", -2, broker_name="log.local.retention.ms"),
    Setting("max.compaction.lag.ms", LONG, str(_MAX_LONG), 1, broker_name="log.cleaner.max.compaction.lag.ms"),
    Setting("max.message.bytes", INT, "1048588", 0, broker_name="message.max.bytes"),
    Setting("message.timestamp.after.max.ms", LONG, "3600000", 0, broker_name="log.message.timestamp.after.max.ms"),
    Setting(
        "message.timestamp.before.max.ms", LONG, str(_MAX_LONG), 0, broker_name="log.message.timestamp.before.max.ms"
    ),
    Setting(
        "message.timestamp.type", STRING, "CreateTime", words=("CreateTime", "LogAppendTime"),
        broker_name="log.message.timestamp.type",
    ),
    Setting("min.cleanable.dirty.ratio", DOUBLE, "0.5", 0, 1, broker_name="log.cleaner.min.cleanable.ratio"),
    Setting("min.compaction.lag.ms", LONG, "0", 0, broker_name="log.cleaner.min.compaction.lag.ms"),
    Setting("min.insync.replicas", INT, "1", 1, broker_name="min.insync.replicas"),
    Setting("preallocate", BOOLEAN, "false", broker_name="log.preallocate"),
    Setting("remote.log.copy.disable", BOOLEAN, "false"),
    Setting("remote.log.delete.on.disable", BOOLEAN, "false"),
    Setting("remote.storage.enable", BOOLEAN, "false"),
    Setting("retention.bytes", LONG, "-1", broker_name="log.retention.bytes"),
    Setting("retention.ms", LONG, "604800000", -1, broker_name="log.retention.ms"),
    Setting("segment.bytes", INT, "1073741824", 1048576, broker_name="log.segment.bytes"),
    Setting("segment.index.bytes", INT, "10485760", 4, broker_name="log.index.size.max.bytes"),
    Setting("segment.jitter.ms", LONG, "0", 0),
    Setting("segment.ms", LONG, "604800000", 1, broker_name="log.roll.ms"),
    Setting("unclean.leader.election.enable", BOOLEAN, "false", broker_name="unclean.leader.election.enable"),
)  # fmt: skip

TOPIC_SETTINGS: Final[Mapping[str, Setting]] = {row.name: row for row in _TOPIC_ROWS}

_LISTENER_ROWS: Final = (
    Setting("advertised.listeners", LIST, "", is_null=True),
    Setting("connection.failed.authentication.delay.ms", INT, "100", 0),
    Setting("connections.max.idle.ms", LONG, "600000"),
    Setting("connections.max.reauth.ms", LONG, "0"),
    Setting("listener.security.protocol.map", STRING, PROTOCOL_MAP),
    Setting("listeners", LIST, "PLAINTEXT://:9092"),
    Setting("sasl.enabled.mechanisms", LIST, "GSSAPI"),
    Setting("sasl.jaas.config", PASSWORD, "", is_null=True),
    Setting("sasl.server.max.receive.size", INT, "524288"),
    Setting("ssl.client.auth", STRING, "none", words=("required", "requested", "none")),
    Setting("ssl.enabled.protocols", LIST, "TLSv1.2,TLSv1.3", words=("TLSv1.2", "TLSv1.3")),
    Setting("ssl.key.password", PASSWORD, "", is_null=True),
    Setting("ssl.keystore.certificate.chain", PASSWORD, "", is_null=True),
    Setting("ssl.keystore.key", PASSWORD, "", is_null=True),
    Setting("ssl.keystore.location", STRING, "", is_null=True),
    Setting("ssl.keystore.password", PASSWORD, "", is_null=True),
    Setting("ssl.keystore.type", STRING, "JKS"),
    Setting("ssl.truststore.certificates", PASSWORD, "", is_null=True),
    Setting("ssl.truststore.location", STRING, "", is_null=True),
    Setting("ssl.truststore.password", PASSWORD, "", is_null=True),
    Setting("ssl.truststore.type", STRING, "JKS"),
)
"""What listeners are set to; one of them alone by ``listener.name.NAME.`` in front."""

_BROKER_ROWS: Final = (
    *_LISTENER_ROWS,
    Setting("auto.create.topics.enable", BOOLEAN, "true"),
    Setting("default.replication.factor", INT, "1", 1),
    Setting("fetch.max.bytes", INT, "57671680", 1024),
    Setting("group.consumer.assignment.interval.ms", INT, "1000", 0, dynamic=True),
    Setting("group.consumer.assignors", LIST, "uniform,range", words=("uniform", "range")),
    Setting("group.consumer.heartbeat.interval.ms", INT, "5000", 1),
    Setting("group.consumer.max.assignment.interval.ms", INT, "15000", 0),
    Setting("group.consumer.max.heartbeat.interval.ms", INT, "15000", 1),
    Setting("group.consumer.max.session.timeout.ms", INT, "60000", 1),
    Setting("group.consumer.max.size", INT, "2147483647", 1),
    Setting(
        "group.consumer.migration.policy", STRING, "bidirectional",
        words=("disabled", "downgrade", "upgrade", "bidirectional"),
    ),
    Setting("group.consumer.min.assignment.interval.ms", INT, "0", 0),
    Setting("group.consumer.min.heartbeat.interval.ms", INT, "5000", 1),
    Setting("group.consumer.min.session.timeout.ms", INT, "45000", 1),
    Setting("group.consumer.session.timeout.ms", INT, "45000", 1),
    Setting("group.initial.rebalance.delay.ms", INT, "3000"),
    Setting("group.max.session.timeout.ms", INT, "1800000"),
    Setting("group.max.size", INT, "2147483647", 1),
    Setting("group.min.session.timeout.ms", INT, "6000"),
    Setting("log.cleaner.backoff.ms", LONG, "15000", 0, dynamic=True),
    Setting("log.cleaner.dedupe.buffer.size", LONG, "134217728", dynamic=True),
    Setting("log.cleaner.enable", BOOLEAN, "true"),
    Setting("log.initial.task.delay.ms", LONG, "30000", 0),
    Setting("log.retention.check.interval.ms", LONG, "300000", 1),
    Setting("log.retention.hours", INT, "168"),
    Setting("log.retention.minutes", INT, "-1", is_null=True),
    Setting("log.roll.hours", INT, "168", 1),
    Setting("max.connections", INT, "2147483647", 0, dynamic=True),
    Setting("max.connections.per.ip", INT, "2147483647", 0, dynamic=True),
    Setting("max.incremental.fetch.session.cache.slots", INT, "1000", 0),
    Setting("max.request.partition.size.limit", INT, "2000", 1),
    Setting("node.id", INT, "1", 0),
    Setting("num.partitions", INT, "1", 1),
    Setting("offset.metadata.max.bytes", INT, "4096", 0),
    Setting("offsets.retention.check.interval.ms", LONG, "600000", 1),
    Setting("offsets.retention.minutes", INT, "10080", 1),
    Setting("offsets.topic.num.partitions", INT, "50", 1),
    Setting("offsets.topic.segment.bytes", INT, "104857600", 1),
    Setting("producer.id.expiration.ms", INT, "86400000", 1, dynamic=True),
    Setting("share.coordinator.snapshot.update.records.per.snapshot", INT, "500", 0, 500),
    Setting("share.coordinator.state.topic.num.partitions", INT, "50", 1),
    Setting("share.coordinator.state.topic.segment.bytes", INT, "104857600", 1),
    Setting("socket.request.max.bytes", INT, "104857600", 1),
    Setting("telemetry.max.bytes", INT, "1048576", 1),
    Setting("transaction.max.timeout.ms", INT, "900000", 1),
    Setting("transaction.partition.verification.enable", BOOLEAN, "true", dynamic=True),
    Setting("transaction.remove.expired.transaction.cleanup.interval.ms", INT, "3600000", 1),
    Setting("transaction.state.log.num.partitions", INT, "50", 1),
    Setting("transaction.state.log.segment.bytes", INT, "104857600", 1),
    Setting("transactional.id.expiration.ms", INT, "604800000", 1),
    *(
        row._replace(
            name=row.broker_name,
            broker_name=None,
            dynamic=True,
            is_null=row.broker_name in ("log.retention.ms", "log.roll.ms"),
        )
        for row in _TOPIC_ROWS
        if row.broker_name
    ),
)


def share_setting_name(field: str) -> str:
    """Kafka's name of a field of BrokerLimits."""
    return "group.share." + field.replace("_", ".")


BROKER_SETTINGS: Final[Mapping[str, Setting]] = {
    **{row.name: row for row in _BROKER_ROWS},
    **{
        share_setting_name(field): Setting(
            share_setting_name(field), INT, str(default), *BROKER_RANGES.get(field, (0, None))
        )
        for field, default in BrokerLimits._field_defaults.items()
    },
}


COARSER_SETTINGS: Final[Mapping[str, Mapping[str, int]]] = {
    "log.retention.ms": {"log.retention.minutes": 60_000, "log.retention.hours": 3_600_000},
    "log.roll.ms": {"log.roll.hours": 3_600_000},
}
"""A broker's setting in ms -> those in larger units that hold when it is not set, and their unit in ms."""


def broker_setting(name: str) -> Setting | None:
    """The row of a broker's setting, also of one that a single listener has for itself."""
    found = BROKER_SETTINGS.get(name)
    if found is not None:
        return found
    own = _OF_LISTENER.fullmatch(name)
    if own is not None and _OF_MECHANISM.fullmatch(own["name"]):
        return Setting(name, PASSWORD, "", is_null=True)
    shared = shared_name(name)
    return BROKER_SETTINGS[shared]._replace(name=name) if shared is not None else None


def shared_name(name: str) -> str | None:
    """Of a setting that one listener has for itself, the name under which all listeners share it."""
    own = _OF_LISTENER.fullmatch(name)
    return own["name"] if own is not None and any(row.name == own["name"] for row in _LISTENER_ROWS) else None


def check_topic_settings(values: Mapping[str, str]) -> None:
    """Raise InvalidConfigurationError (40) for a name that topics do not have or a value that it cannot have."""
    for name, value in values.items():
        setting = TOPIC_SETTINGS.get(name)
        if setting is None:
            raise InvalidConfigurationError(f"Unknown topic config name: {name}")
        setting.check(value)
    check_topic_combination(values)


def check_topic_combination(values: Mapping[str, str]) -> None:
    """Raise InvalidConfigurationError (40) for values, each possible, that do not go together, or not with us."""
    low, high = (int(values.get(name, TOPIC_SETTINGS[name].default)) for name in _COMPACTION_LAGS)
    if low > high:
        raise InvalidConfigurationError(
            f"conflict topic config setting {_COMPACTION_LAGS[0]} ({low}) > {_COMPACTION_LAGS[1]} ({high})"
        )
    if values.get("remote.storage.enable", "").lower() == "true":
        raise InvalidConfigurationError(
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log "
            "storage."
        )


def nearest(name: str, known: Iterable[str]) -> str:
    """A half-sentence that names what may have been meant, or nothing."""
    found = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {found[0]}?" if found else ""


def check_broker_settings(values: Mapping[str, str]) -> None:
    """Raise KafkaConfigurationError for what the broker is started with: unknown names, impossible values."""
    for name, value in values.items():
        setting = broker_setting(name)
        if setting is None:
            raise KafkaConfigurationError(f"unknown broker setting {name}{nearest(name, BROKER_SETTINGS)}")
        try:
            setting.check(value)
        except InvalidConfigurationError as error:
            raise KafkaConfigurationError(str(error.args[0])) from None
