"""The settings of topics and of the broker (tables), and the broker's current configuration.

A value comes from the first of: this broker's dynamic setting, the cluster-wide dynamic one, the static one, Kafka's
default. Topics have their own on top. Everything is text, as in the protocol.

The tables are Apache Kafka 4.3.0's for topics, and of its broker settings those that have an effect here. To add one,
add a row; the responses of DescribeConfigs, CreateTopics and IncrementalAlterConfigs and the checks follow. Settings of
groups are in ``group_settings.py``.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kafka.broker.group_settings import check_share_defaults
from kafka.errors import InvalidConfigurationError, KafkaConfigurationError

BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, PASSWORD = 1, 2, 3, 4, 5, 6, 7, 9
"""Types as DescribeConfigs numbers them."""

_TYPE_NAMES: Final = {INT: "INT", SHORT: "SHORT", LONG: "LONG"}
_BITS: Final = {SHORT: 15, INT: 31, LONG: 63}
_MAX_LONG: Final = 2**63 - 1
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,40}")
_COMPACTION_LAGS: Final = ("min.compaction.lag.ms", "max.compaction.lag.ms")
_UNITS: Final = frozenset({"ms", "bytes", "minutes", "hours"})
_SIZES_IN_BYTES: Final = frozenset({"log.cleaner.dedupe.buffer.size", "sasl.server.max.receive.size"})


class BrokerSetting(NamedTuple):
    """One setting. ``broker_name``: of a topic's setting, the broker's that gives its default; ``dynamic``: of a
    broker's setting, whether IncrementalAlterConfigs may change it; ``also``: one more number beside the range;
    ``is_null``: a broker's setting that Kafka shows as null until it is set, though a topic's default follows from
    it; ``doc``: what it means here, a sentence."""

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
    doc: str = ""

    @property
    def unit(self) -> str:
        """``ms``, ``bytes``, ``minutes`` or ``hours``, which the name ends with in most cases; empty for other values.
        """
        last = self.name.rpartition(".")[2]
        return "bytes" if self.name in _SIZES_IN_BYTES else last if last in _UNITS else ""

    def check(self, value: str) -> None:
        """Raise InvalidConfigurationError (40) with Kafka's text for a value that is malformed or out of range."""
        if self.type == BOOLEAN:
            if value.lower() not in ("true", "false"):
                raise self._wrong(value, "Expected value to be either true or false")
        elif self.type in _TYPE_NAMES:
            most = 2 ** _BITS[self.type]
            if not _INTEGER.fullmatch(value.strip()) or not -most <= int(value) < most:  # int() would take 1_000, too
                raise self._wrong(value, f"Not a number of type {_TYPE_NAMES[self.type]}")
            self._check_range(value, int(value))
        elif self.type == DOUBLE:
            try:
                ratio = float(value)
            except ValueError:
                ratio = math.nan
            if not math.isfinite(ratio) or "_" in value:
                raise self._wrong(value, "Not a number of type DOUBLE")
            self._check_range(str(ratio), ratio)
        elif self.words:
            for word in list_of(value) if self.type == LIST else [value]:
                if word not in self.words:
                    raise self._wrong(word, f"String must be one of: {', '.join(self.words)}")

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
    BrokerSetting("cleanup.policy", LIST, "delete", words=("compact", "delete"), broker_name="log.cleanup.policy",
                  doc="delete: old records end with their segments; compact: the last record of each key stays; or "
                      "both."),
    BrokerSetting("compression.gzip.level", INT, "-1", 1, 9, broker_name="compression.gzip.level", also=-1,
                  doc="Level of gzip where the broker compresses. Stored and shown; it has no effect here."),
    BrokerSetting("compression.lz4.level", INT, "9", 1, 17, broker_name="compression.lz4.level",
                  doc="Level of lz4 where the broker compresses. Stored and shown; it has no effect here."),
    BrokerSetting("compression.type", STRING, "producer", words=_CODECS, broker_name="compression.type",
                  doc="How batches are stored. Shown only: batches stay here as they were sent."),
    BrokerSetting("compression.zstd.level", INT, "3", -131072, 22, broker_name="compression.zstd.level",
                  doc="Level of zstd where the broker compresses. Stored and shown; it has no effect here."),
    BrokerSetting("delete.retention.ms", LONG, "86400000", 0, broker_name="log.cleaner.delete.retention.ms",
                  doc="How long a compacted log keeps records without a value (tombstones)."),
    BrokerSetting("file.delete.delay.ms", LONG, "60000", 0, broker_name="log.segment.delete.delay.ms",
                  doc="Time from the end of a segment to the deletion of its files. Stored and shown; it has no "
                      "effect here."),
    BrokerSetting("flush.messages", LONG, str(_MAX_LONG), 1, broker_name="log.flush.interval.messages",
                  doc="Records between two flushes to disk. Stored and shown; it has no effect here. See --fsync."),
    BrokerSetting("flush.ms", LONG, str(_MAX_LONG), 0,
                  doc="Time between two flushes to disk. Stored and shown; it has no effect here. See --fsync."),
    BrokerSetting("follower.replication.throttled.replicas", LIST, "",
                  doc="Replicas whose replication is slowed down. Stored and shown; it has no effect here."),
    BrokerSetting("index.interval.bytes", INT, "4096", 0, broker_name="log.index.interval.bytes",
                  doc="Bytes of records between two entries of an index. Stored and shown; it has no effect here."),
    BrokerSetting("leader.replication.throttled.replicas", LIST, "",
                  doc="Replicas whose replication is slowed down. Stored and shown; it has no effect here."),
    BrokerSetting("local.retention.bytes", LONG, "-2", -2, broker_name="log.local.retention.bytes",
                  doc="Of topics with remote storage: the size kept locally. Stored and shown; it has no effect here."),
    BrokerSetting("local.retention.ms", LONG, "-2", -2, broker_name="log.local.retention.ms",
                  doc="Of topics with remote storage: the time kept locally. Stored and shown; it has no effect here."),
    BrokerSetting("max.compaction.lag.ms", LONG, str(_MAX_LONG), 1, broker_name="log.cleaner.max.compaction.lag.ms",
                  doc="A compacted log is compacted at the latest when a record has waited for so long."),
    BrokerSetting("max.message.bytes", INT, "1048588", 0, broker_name="message.max.bytes",
                  doc="Largest batch that is accepted, compressed as it was sent."),
    BrokerSetting("message.timestamp.after.max.ms", LONG, "3600000", 0,
                  broker_name="log.message.timestamp.after.max.ms",
                  doc="How far ahead of the broker's clock a record's time may be."),
    BrokerSetting("message.timestamp.before.max.ms", LONG, str(_MAX_LONG), 0,
                  broker_name="log.message.timestamp.before.max.ms",
                  doc="How far behind the broker's clock a record's time may be."),
    BrokerSetting("message.timestamp.type", STRING, "CreateTime", words=("CreateTime", "LogAppendTime"),
                  broker_name="log.message.timestamp.type",
                  doc="Whose time a record has: the producer's (CreateTime) or the broker's (LogAppendTime)."),
    BrokerSetting("min.cleanable.dirty.ratio", DOUBLE, "0.5", 0, 1, broker_name="log.cleaner.min.cleanable.ratio",
                  doc="Part of a compacted log that must be new before it is compacted again."),
    BrokerSetting("min.compaction.lag.ms", LONG, "0", 0, broker_name="log.cleaner.min.compaction.lag.ms",
                  doc="How long a record stays in a compacted log although a newer one has its key."),
    BrokerSetting("min.insync.replicas", INT, "1", 1, broker_name="min.insync.replicas",
                  doc="Replicas that must have a record for acks=all; there is only one replica here."),
    BrokerSetting("preallocate", BOOLEAN, "false", broker_name="log.preallocate",
                  doc="Whether files get their full size at once. Stored and shown; it has no effect here."),
    BrokerSetting("remote.log.copy.disable", BOOLEAN, "false",
                  doc="Of topics with remote storage. Stored and shown; it has no effect here."),
    BrokerSetting("remote.log.delete.on.disable", BOOLEAN, "false",
                  doc="Of topics with remote storage. Stored and shown; it has no effect here."),
    BrokerSetting("remote.storage.enable", BOOLEAN, "false",
                  doc="Whether segments go to remote storage. Stored and shown; it has no effect here."),
    BrokerSetting("retention.bytes", LONG, "-1", broker_name="log.retention.bytes",
                  doc="Size of a partition above which its oldest segments are deleted; -1: any size."),
    BrokerSetting("retention.ms", LONG, "604800000", -1, broker_name="log.retention.ms",
                  doc="Age above which segments are deleted; -1: any age."),
    BrokerSetting("segment.bytes", INT, "1073741824", 1048576, broker_name="log.segment.bytes",
                  doc="Size at which a new segment begins."),
    BrokerSetting("segment.index.bytes", INT, "10485760", 4, broker_name="log.index.size.max.bytes",
                  doc="Largest size of an index. Stored and shown; it has no effect here."),
    BrokerSetting("segment.jitter.ms", LONG, "0", 0,
                  doc="Most that is subtracted from segment.ms at random. Stored and shown; it has no effect here."),
    BrokerSetting("segment.ms", LONG, "604800000", 1, broker_name="log.roll.ms",
                  doc="Age at which a new segment begins."),
    BrokerSetting("unclean.leader.election.enable", BOOLEAN, "false", broker_name="unclean.leader.election.enable",
                  doc="Whether a replica that is behind may lead. Stored and shown; it has no effect here."),
)  # fmt: skip

TOPIC_SETTINGS: Final[Mapping[str, BrokerSetting]] = {row.name: row for row in _TOPIC_ROWS}

_LISTENER_ROWS: Final = (
    BrokerSetting("advertised.listeners", LIST, "", is_null=True,
                  doc="Addresses that clients are given, as NAME://HOST:PORT; without it, those of listeners."),
    BrokerSetting("connection.failed.authentication.delay.ms", INT, "100", 0,
                  doc="Wait before a connection is closed whose authentication failed."),
    BrokerSetting("connections.max.idle.ms", LONG, "600000",
                  doc="A connection without requests is closed after so long."),
    BrokerSetting("connections.max.reauth.ms", LONG, "0",
                  doc="A SASL session ends after so long unless the client authenticates again; 0: never."),
    BrokerSetting("listener.security.protocol.map", STRING, PROTOCOL_MAP,
                  doc="Name of a listener -> its protocol, as NAME:PROTOCOL with commas."),
    BrokerSetting("listeners", LIST, "PLAINTEXT://:9092", doc="Where to listen, as NAME://HOST:PORT with commas."),
    BrokerSetting("sasl.enabled.mechanisms", LIST, "GSSAPI",
                  doc="Mechanisms of SASL that clients may choose: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512."),
    BrokerSetting("sasl.jaas.config", PASSWORD, "", is_null=True,
                  doc="The users, as user_NAME=\"PASSWORD\" after a login module; it belongs to a listener and a "
                      "mechanism."),
    BrokerSetting("sasl.server.max.receive.size", INT, "524288",
                  doc="Largest request of a connection that has not authenticated."),
    BrokerSetting("ssl.client.auth", STRING, "none", words=("required", "requested", "none"),
                  doc="Whether clients need a certificate."),
    BrokerSetting("ssl.enabled.protocols", LIST, "TLSv1.2,TLSv1.3", words=("TLSv1.2", "TLSv1.3"),
                  doc="Versions of TLS that clients may choose."),
    BrokerSetting("ssl.key.password", PASSWORD, "", is_null=True, doc="Password of the private key."),
    BrokerSetting("ssl.keystore.certificate.chain", PASSWORD, "", is_null=True,
                  doc="The certificate chain itself, as PEM text."),
    BrokerSetting("ssl.keystore.key", PASSWORD, "", is_null=True, doc="The private key itself, as PEM text."),
    BrokerSetting("ssl.keystore.location", STRING, "", is_null=True,
                  doc="PEM file with the certificate chain and the private key."),
    BrokerSetting("ssl.keystore.password", PASSWORD, "", is_null=True, doc="Not for PEM files: ssl.key.password is."),
    BrokerSetting("ssl.keystore.type", STRING, "JKS", doc="Form of the key store; only PEM is read here."),
    BrokerSetting("ssl.truststore.certificates", PASSWORD, "", is_null=True,
                  doc="Certificates of the authorities of clients, as PEM text."),
    BrokerSetting("ssl.truststore.location", STRING, "", is_null=True,
                  doc="PEM file with the certificates of the authorities of clients."),
    BrokerSetting("ssl.truststore.password", PASSWORD, "", is_null=True, doc="Not for PEM files, which have none."),
    BrokerSetting("ssl.truststore.type", STRING, "JKS", doc="Form of the trust store; only PEM is read here."),
)
"""What listeners are set to; one of them alone by ``listener.name.NAME.`` in front."""

_BROKER_ROWS: Final = (
    *_LISTENER_ROWS,
    BrokerSetting("auto.create.topics.enable", BOOLEAN, "true",
                  doc="Whether a request for the metadata of a missing topic may create it."),
    BrokerSetting("default.replication.factor", INT, "1", 1,
                  doc="Replicas of topics that name no number; there is one broker here."),
    BrokerSetting("fetch.max.bytes", INT, "57671680", 1024,
                  doc="Most bytes of a Fetch response, whatever the client asks for."),
    BrokerSetting("group.consumer.assignment.interval.ms", INT, "1000", 0, dynamic=True,
                  doc="Least time between two assignments of a consumer group (KIP-848)."),
    BrokerSetting("group.consumer.assignors", LIST, "uniform,range", words=("uniform", "range"),
                  doc="Assignors of consumer groups (KIP-848), the default first."),
    BrokerSetting("group.consumer.heartbeat.interval.ms", INT, "5000", 1,
                  doc="Time between the heartbeats of a member of a consumer group (KIP-848)."),
    BrokerSetting("group.consumer.max.assignment.interval.ms", INT, "15000", 0,
                  doc="Highest assignment interval that a consumer group may set."),
    BrokerSetting("group.consumer.max.heartbeat.interval.ms", INT, "15000", 1,
                  doc="Highest heartbeat interval that a consumer group may set."),
    BrokerSetting("group.consumer.max.session.timeout.ms", INT, "60000", 1,
                  doc="Highest session timeout that a consumer group may set."),
    BrokerSetting("group.consumer.max.size", INT, "2147483647", 1, doc="Most members of a consumer group (KIP-848)."),
    BrokerSetting("group.consumer.migration.policy", STRING, "bidirectional",
                  words=("disabled", "downgrade", "upgrade", "bidirectional"),
                  doc="Which changes between classic and consumer group protocol a running group may make."),
    BrokerSetting("group.consumer.min.assignment.interval.ms", INT, "0", 0,
                  doc="Lowest assignment interval that a consumer group may set."),
    BrokerSetting("group.consumer.min.heartbeat.interval.ms", INT, "5000", 1,
                  doc="Lowest heartbeat interval that a consumer group may set."),
    BrokerSetting("group.consumer.min.session.timeout.ms", INT, "45000", 1,
                  doc="Lowest session timeout that a consumer group may set."),
    BrokerSetting("group.consumer.session.timeout.ms", INT, "45000", 1,
                  doc="A member of a consumer group without a heartbeat for so long is removed."),
    BrokerSetting("group.initial.rebalance.delay.ms", INT, "3000",
                  doc="How long the first rebalance of an empty classic group waits for more members."),
    BrokerSetting("group.max.session.timeout.ms", INT, "1800000",
                  doc="Highest session timeout of members of classic groups."),
    BrokerSetting("group.max.size", INT, "2147483647", 1, doc="Most members of a classic group."),
    BrokerSetting("group.min.session.timeout.ms", INT, "6000",
                  doc="Lowest session timeout of members of classic groups."),
    BrokerSetting("group.share.assignment.interval.ms", INT, "1000", 0,
                  doc="Least time between two assignments of a share group."),
    BrokerSetting("group.share.delivery.count.limit", INT, "5", 2, 10,
                  doc="How often a record of a share group is delivered before it is archived."),
    BrokerSetting("group.share.heartbeat.interval.ms", INT, "5000", 0,
                  doc="Time between the heartbeats of a member of a share group."),
    BrokerSetting("group.share.max.assignment.interval.ms", INT, "15000", 0,
                  doc="Highest assignment interval that a share group may set."),
    BrokerSetting("group.share.max.delivery.count.limit", INT, "10", 5, 25,
                  doc="Highest delivery count limit that a share group may set."),
    BrokerSetting("group.share.max.heartbeat.interval.ms", INT, "15000", 0,
                  doc="Highest heartbeat interval that a share group may set."),
    BrokerSetting("group.share.max.partition.max.record.locks", INT, "4000", 2000, 10_000,
                  doc="Highest number of record locks that a share group may set."),
    BrokerSetting("group.share.max.record.lock.duration.ms", INT, "60000", 30_000, 3_600_000,
                  doc="Longest lock that a share group may set."),
    BrokerSetting("group.share.max.session.timeout.ms", INT, "60000", 0,
                  doc="Highest session timeout that a share group may set."),
    BrokerSetting("group.share.max.share.sessions", INT, "2000", 1, 2**31 - 1, doc="Most share sessions at once."),
    BrokerSetting("group.share.max.size", INT, "200", 1, 1000, doc="Most members of a share group."),
    BrokerSetting("group.share.min.assignment.interval.ms", INT, "0", 0,
                  doc="Lowest assignment interval that a share group may set."),
    BrokerSetting("group.share.min.delivery.count.limit", INT, "2", 2, 5,
                  doc="Lowest delivery count limit that a share group may set."),
    BrokerSetting("group.share.min.heartbeat.interval.ms", INT, "5000", 0,
                  doc="Lowest heartbeat interval that a share group may set."),
    BrokerSetting("group.share.min.partition.max.record.locks", INT, "100", 100, 2000,
                  doc="Lowest number of record locks that a share group may set."),
    BrokerSetting("group.share.min.record.lock.duration.ms", INT, "15000", 1000, 30_000,
                  doc="Shortest lock that a share group may set."),
    BrokerSetting("group.share.min.session.timeout.ms", INT, "45000", 0,
                  doc="Lowest session timeout that a share group may set."),
    BrokerSetting("group.share.partition.max.record.locks", INT, "2000", 100, 10_000,
                  doc="Most records of a partition that a share group holds at once."),
    BrokerSetting("group.share.record.lock.duration.ms", INT, "30000", 1000, 3_600_000,
                  doc="How long a record is locked for the member of a share group that acquired it."),
    BrokerSetting("group.share.session.timeout.ms", INT, "45000", 0,
                  doc="A member of a share group without a heartbeat for so long is removed."),
    BrokerSetting("log.cleaner.backoff.ms", LONG, "15000", 0, dynamic=True,
                  doc="Wait of the cleaner when no log is to be compacted."),
    BrokerSetting("log.cleaner.dedupe.buffer.size", LONG, "134217728", dynamic=True,
                  doc="Memory for the keys of one round of compaction."),
    BrokerSetting("log.cleaner.enable", BOOLEAN, "true", doc="Whether logs are compacted at all."),
    BrokerSetting("log.initial.task.delay.ms", LONG, "30000", 0,
                  doc="Time from the start of the broker to the first check of retention."),
    BrokerSetting("log.retention.check.interval.ms", LONG, "300000", 1, doc="Time between two checks of retention."),
    BrokerSetting("log.retention.hours", INT, "168",
                  doc="The same as log.retention.ms in hours, where neither that nor log.retention.minutes is set."),
    BrokerSetting("log.retention.minutes", INT, "-1", is_null=True,
                  doc="The same as log.retention.ms in minutes, where that is not set."),
    BrokerSetting("log.roll.hours", INT, "168", 1, doc="The same as log.roll.ms in hours, where that is not set."),
    BrokerSetting("max.connections", INT, "2147483647", 0, dynamic=True,
                  doc="Most connections at once; further ones wait."),
    BrokerSetting("max.connections.per.ip", INT, "2147483647", 0, dynamic=True,
                  doc="Most connections at once from one address; further ones are closed."),
    BrokerSetting("max.incremental.fetch.session.cache.slots", INT, "1000", 0,
                  doc="Most fetch sessions at once (KIP-227)."),
    BrokerSetting("max.request.partition.size.limit", INT, "2000", 1,
                  doc="Most partitions in a response of DescribeTopicPartitions."),
    BrokerSetting("node.id", INT, "1", 0, doc="The broker's number."),
    BrokerSetting("num.partitions", INT, "1", 1, doc="Partitions of topics that name no number."),
    BrokerSetting("offset.metadata.max.bytes", INT, "4096", 0,
                  doc="Longest text that may be committed with an offset."),
    BrokerSetting("offsets.retention.check.interval.ms", LONG, "600000", 1,
                  doc="Time between two checks for committed offsets to delete."),
    BrokerSetting("offsets.retention.minutes", INT, "10080", 1,
                  doc="Committed offsets of a group without members are deleted after so long."),
    BrokerSetting("offsets.topic.num.partitions", INT, "50", 1, doc="Partitions of __consumer_offsets."),
    BrokerSetting("offsets.topic.segment.bytes", INT, "104857600", 1, doc="Size of a segment of __consumer_offsets."),
    BrokerSetting("producer.id.expiration.ms", INT, "86400000", 1, dynamic=True,
                  doc="The state of an idempotent producer that writes nothing is dropped after so long."),
    BrokerSetting("share.coordinator.snapshot.update.records.per.snapshot", INT, "500", 0, 500,
                  doc="Updates of a share partition's state between two snapshots."),
    BrokerSetting("share.coordinator.state.topic.num.partitions", INT, "50", 1,
                  doc="Partitions of __share_group_state."),
    BrokerSetting("share.coordinator.state.topic.segment.bytes", INT, "104857600", 1,
                  doc="Size of a segment of __share_group_state."),
    BrokerSetting("socket.request.max.bytes", INT, "104857600", 1, doc="Largest request that is read."),
    BrokerSetting("telemetry.max.bytes", INT, "1048576", 1, doc="Largest push of a client's metrics (KIP-714)."),
    BrokerSetting("transaction.max.timeout.ms", INT, "900000", 1,
                  doc="Highest transaction timeout that a producer may ask for."),
    BrokerSetting("transaction.partition.verification.enable", BOOLEAN, "true", dynamic=True,
                  doc="Whether a partition must be in the transaction that writes to it (KIP-890)."),
    BrokerSetting("transaction.remove.expired.transaction.cleanup.interval.ms", INT, "3600000", 1,
                  doc="Time between two checks for transactional ids to forget."),
    BrokerSetting("transaction.state.log.num.partitions", INT, "50", 1, doc="Partitions of __transaction_state."),
    BrokerSetting("transaction.state.log.segment.bytes", INT, "104857600", 1,
                  doc="Size of a segment of __transaction_state."),
    BrokerSetting("transactional.id.expiration.ms", INT, "604800000", 1,
                  doc="A transactional id that is not used for so long is forgotten."),
    *(
        row._replace(
            name=row.broker_name,
            broker_name=None,
            dynamic=True,
            is_null=row.broker_name in ("log.retention.ms", "log.roll.ms"),
            doc=f"The {row.name} of topics without one of their own. {row.doc}",
        )
        for row in _TOPIC_ROWS
        if row.broker_name
    ),
)


BROKER_SETTINGS: Final[Mapping[str, BrokerSetting]] = {row.name: row for row in _BROKER_ROWS}

COARSER_SETTINGS: Final[Mapping[str, Mapping[str, int]]] = {
    "log.retention.ms": {"log.retention.minutes": 60_000, "log.retention.hours": 3_600_000},
    "log.roll.ms": {"log.roll.hours": 3_600_000},
}
"""A broker's setting in ms -> those in larger units that hold when it is not set, and their unit in ms."""


def broker_setting(name: str) -> BrokerSetting | None:
    """The row of a broker's setting, also of one that a single listener has for itself."""
    found = BROKER_SETTINGS.get(name)
    if found is not None:
        return found
    own = _OF_LISTENER.fullmatch(name)
    if own is not None and _OF_MECHANISM.fullmatch(own["name"]):
        return BrokerSetting(name, PASSWORD, "", is_null=True)
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


def closest_name(name: str, known: Iterable[str]) -> str:
    """A half-sentence that names what may have been meant, or nothing."""
    found = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {found[0]}?" if found else ""


def check_broker_settings(values: Mapping[str, str]) -> None:
    """Raise KafkaConfigurationError for what the broker is started with: unknown names, impossible values."""
    for name, value in values.items():
        setting = broker_setting(name)
        if setting is None:
            raise KafkaConfigurationError(f"unknown broker setting {name}{closest_name(name, BROKER_SETTINGS)}")
        try:
            setting.check(value)
        except InvalidConfigurationError as error:
            raise KafkaConfigurationError(str(error.args[0])) from None


# Where a value comes from, as DescribeConfigs numbers it.
FROM_TOPIC, FROM_THIS_BROKER, FROM_ALL_BROKERS, FROM_STATIC, FROM_DEFAULT = 1, 2, 3, 4, 5
FROM_CLIENT_METRICS, FROM_GROUP = 7, 8


class SourcedValue(NamedTuple):
    """A value of the setting ``name``, and where it comes from."""

    name: str
    value: str
    source: int


class BrokerConfig:
    """``static``: name -> value, as given at the start. KafkaConfigurationError for what cannot be.

    ``dynamic``: resource name (the node id as text, or "" for all brokers) -> name -> value; unknown names are kept, as
    in Kafka.
    """

    def __init__(self, static: Mapping[str, str] | None = None) -> None:
        self.static = dict(static or {})
        check_broker_settings(self.static)
        self.dynamic: dict[str, dict[str, str]] = {}
        self.node_id = int(self.static.get("node.id", BROKER_SETTINGS["node.id"].default))
        self._resources = (str(self.node_id), "")
        try:
            check_share_defaults(self.value)
        except InvalidConfigurationError as error:
            raise KafkaConfigurationError(str(error.args[0])) from None

    def load_dynamic(self, dynamic: dict[str, dict[str, str]]) -> None:
        """Replace all dynamic settings."""
        self.dynamic = dynamic

    def set_dynamic(self, resource: str, values: dict[str, str]) -> None:
        """Replace the dynamic settings of a resource."""
        self.dynamic[resource] = values

    def sources(self, name: str) -> list[SourcedValue]:
        """Every value that the setting has, the one in force first."""
        found = []
        for resource, source in zip(self._resources, (FROM_THIS_BROKER, FROM_ALL_BROKERS), strict=True):
            value = self.dynamic.get(resource, {}).get(name)
            if value is not None:
                found.append(SourcedValue(name, value, source))
        if name in self.static:
            found.append(SourcedValue(name, self.static[name], FROM_STATIC))
        setting = BROKER_SETTINGS.get(name)
        if setting is not None:
            found.append(SourcedValue(name, setting.default, FROM_DEFAULT))
        elif (shared := shared_name(name)) is not None:  # one listener's own: what holds for all comes behind it
            found += [one for one in self.sources(shared) if not BROKER_SETTINGS[shared].is_null]
        return found

    def value(self, name: str) -> str:
        """The value in force of a known setting."""
        for resource in self._resources:
            given = self.dynamic.get(resource, {}).get(name)
            if given is not None:
                return given
        given = self.static.get(name)
        return BROKER_SETTINGS[name].default if given is None else given

    def topic_default(self, setting: BrokerSetting) -> str:
        """What the broker's settings make a topic's be, where the topic has none of its own."""
        if setting.broker_name is None:
            return setting.default
        if self.is_set(setting.broker_name):
            return self.value(setting.broker_name)
        for name, unit_ms in COARSER_SETTINGS.get(setting.broker_name, {}).items():
            if self.is_set(name):
                return str(self.number(name) * unit_ms if self.number(name) >= 0 else -1)
        return self.value(setting.broker_name)

    def is_set(self, name: str) -> bool:
        """Whether the setting was given a value."""
        return name in self.static or any(name in values for values in self.dynamic.values())

    def number(self, name: str) -> int:
        return int(self.value(name))

    def flag(self, name: str) -> bool:
        return self.value(name).lower() == "true"
