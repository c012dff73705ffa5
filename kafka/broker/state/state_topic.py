"""The broker's internal topics as keyed state: appended to with each change, read once, at the start.

    topic.append(partition, [(key, value), ...])      one batch, one write(): all of it or nothing
    read_records(topic.replay(), {key class: reader}) all records, partition by partition, the oldest first

The topics are ordinary ones in the data directory, with the names, configurations and numbers of partitions that
Apache Kafka 4.3.0 gives them (measured). One is created when something is first appended to it, or when a client first
looks for its coordinator; only partitions with records are ever opened. To add one: a row in ``STATE_TOPICS``, its
records in ``records.py``.

A key's last record is valid, and a value of None deletes the key; except in ``__share_group_state`` (``cleanup.policy``
is ``delete`` there), earlier records may be compacted away. A transactional batch takes effect at its commit marker.
"""

from __future__ import annotations

import base64
import logging
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kafka.broker.log import LogDirectory, PartitionLog, Topic
from kafka.broker.state.records import Producer, RecordEntry, StateEvent
from kafka.errors import CorruptRecordError, KafkaStorageError
from kafka.records import COMMIT, BatchHeader, RecordBatchBuilder, decode_control, decode_raw, iter_batches
from kafka.records.header import FRAME_BYTES, TABLE_SIZE, ZIGZAG, encode_varint
from kafka.records.reader import RawRecord
from kafka.wire.crc32c import crc32c

if TYPE_CHECKING:
    from uuid import UUID

    from kafka.broker.config import BrokerConfig

log = logging.getLogger(__name__)

_READ_BYTES: Final = 1 << 20


def read_events(found: PartitionLog, *, is_compacted: bool) -> list[StateEvent]:
    """All records and markers of a log, in order. KafkaStorageError when they cannot be read.

    Of a compacted topic only the last non-transactional record of each key is returned, in the place of that record, as
    after a full compaction: several readers cost one pass over the file, and memory holds only valid records.
    Transactional records are all returned, as their outcome comes later.
    """
    if not is_compacted:
        return [_event(header, record) for header, record in _records(found)]
    latest: dict[bytes | int | None, tuple[BatchHeader, RawRecord]] = {}
    for pair in _records(found):
        header, record = pair
        if header.is_transactional:  # also a marker
            latest[record[0]] = pair
        else:
            latest.pop(record[2], None)  # move it to the end
            latest[record[2]] = pair
    return [_event(header, record) for header, record in latest.values()]


def _event(header: BatchHeader, record: RawRecord) -> StateEvent:
    producer = (header.producer_id, header.producer_epoch) if header.is_transactional else None
    if header.is_control:
        is_committed = decode_control(record[2], record[3]).kind == COMMIT
        return StateEvent(None, None, (header.producer_id, header.producer_epoch), is_committed)
    return StateEvent(record[2], record[3], producer)


def _records(found: PartitionLog) -> Iterator[tuple[BatchHeader, RawRecord]]:
    """All records and markers of a log with a key, in order. KafkaStorageError for corrupt bytes."""
    offset = found.start_offset
    while offset < found.end_offset:
        try:
            data = bytes(found.read(offset, _READ_BYTES))
            if not data:
                return
            for header in iter_batches(data):
                for record in decode_raw(data, header):
                    if record[0] < offset:
                        continue
                    if record[2] is None:
                        log.warning("%s: ignoring the record at offset %d, which has no key", found.name, record[0])
                    else:
                        yield header, record
                offset = header.next_offset
        except CorruptRecordError as error:
            raise KafkaStorageError(
                f"{found.name} cannot be read from offset {offset} on: {error.args[0]}; restore a copy of "
                f"{found.directory}, or delete it, which loses its state"
            ) from error


_FRAME: Final = struct.Struct(">qiibI")
"""Base offset, size, leader epoch, magic, CRC of all that follows."""

_ONE_RECORD: Final = b"\0\0\0\0\0\0"
"""Attributes, last offset delta."""

_TIMES: Final = struct.Struct(">qq")
"""Base and max timestamp."""

_NO_PRODUCER: Final = struct.pack(">qhii", -1, -1, -1, 1)
"""Producer id, epoch and sequence, count of records."""

_BASE_SIZE: Final = _FRAME.size - FRAME_BYTES

_RECORD_HEAD: Final = b"\0\0\0"
"""Attributes, timestamp delta, offset delta."""


def single_record_batch(now_ms: int, key: bytes, value: bytes | None) -> bytearray:
    """A batch of one uncompressed record; ``value`` None is a tombstone. Most state changes are one such batch.

    The layout is that of ``kafka.records`` (``builder.py`` draws it), with which a test compares this. It is here for
    the acknowledgements of share groups: 1.1 us, where a builder takes 3.1.
    """
    size = len(key)
    key_size = ZIGZAG[size] if size < TABLE_SIZE else encode_varint(size)
    size += 4 + len(key_size)
    if value is None:
        value_size, value = b"\1", b""
    else:
        length = len(value)
        value_size = ZIGZAG[length] if length < TABLE_SIZE else encode_varint(length)
        size += length
    size += len(value_size)
    record_size = ZIGZAG[size] if size < TABLE_SIZE else encode_varint(size)
    rest = b"".join(
        (
            _ONE_RECORD, _TIMES.pack(now_ms, now_ms), _NO_PRODUCER,
            record_size, _RECORD_HEAD, key_size, key, value_size, value, b"\0",
        )
    )  # fmt: skip
    batch = bytearray(_FRAME.pack(0, _BASE_SIZE + len(rest), -1, 2, crc32c(rest)))
    batch += rest
    return batch


CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"

_UNBOUNDED: Final = 2**31 - 1

ROLL_BYTES: Final = 1 << 20
"""A compacted topic's segment is rolled at this size, whatever ``segment.bytes`` says: only rolled ones are compacted,
and a start reads all that is left."""

MIN_REWRITE_BYTES: Final = 1 << 20
"""A partition that has grown less than this is not rewritten."""


class StateTopicSpec(NamedTuple):
    """An internal topic: its configuration, and the names of the broker's settings for the rest."""

    name: str
    partitions: str
    segment_bytes: str
    config: Mapping[str, str]


STATE_TOPICS: Final[Mapping[str, StateTopicSpec]] = {
    row.name: row
    for row in (
        StateTopicSpec(
            CONSUMER_OFFSETS,
            "offsets.topic.num.partitions",
            "offsets.topic.segment.bytes",
            {"compression.type": "producer", "cleanup.policy": "compact"},
        ),
        StateTopicSpec(
            TRANSACTION_STATE,
            "transaction.state.log.num.partitions",
            "transaction.state.log.segment.bytes",
            {
                "compression.type": "uncompressed",
                "min.insync.replicas": "1",
                "cleanup.policy": "compact",
                "unclean.leader.election.enable": "false",
            },
        ),
        StateTopicSpec(
            SHARE_GROUP_STATE,
            "share.coordinator.state.topic.num.partitions",
            "share.coordinator.state.topic.segment.bytes",
            {
                "compression.type": "producer",
                "min.insync.replicas": "1",
                "cleanup.policy": "delete",
                "retention.ms": "-1",
            },
        ),
    )
}


class StateTopics:
    """The broker's internal topics, by name. ``epoch_ms`` returns the time of day; ``on_append`` is called with each
    log that was appended to; ``flush_metadata`` after a topic was created."""

    def __init__(
        self,
        logs: LogDirectory,
        config: BrokerConfig,
        *,
        new_topic_id: Callable[[], UUID],
        flush_metadata: Callable[[], None],
        epoch_ms: Callable[[], int],
        on_append: Callable[[PartitionLog], None],
    ) -> None:
        self.logs = logs
        self.config = config
        self.epoch_ms = epoch_ms
        self.on_append = on_append
        self._new_topic_id = new_topic_id
        self._flush_metadata = flush_metadata
        # The objects exist from here on; each topic is created by its first use.
        self._topics = {name: StateTopic(spec, self) for name, spec in STATE_TOPICS.items()}

    def create(self, spec: StateTopicSpec) -> Topic:
        """Create the topic in the metadata. KafkaStorageError (56)."""
        partitions = self.config.number(spec.partitions)
        settings = {**spec.config, "segment.bytes": self.config.value(spec.segment_bytes)}
        topic = self.logs.metadata.create_topic(spec.name, self._new_topic_id(), partitions, settings)
        self._flush_metadata()
        return topic

    def topic(self, name: str) -> StateTopic:
        """One of ``STATE_TOPICS``; the topic itself is created when it is first appended to."""
        return self._topics[name]

    def end_loading(self) -> None:
        """The start is over: drop the records that were read for it."""
        for topic in self._topics.values():
            topic.end_loading()

    def on_topic_deleted(self, name: str) -> None:
        """A client has deleted a topic: if it is an internal one, its owners forget its state."""
        found = self._topics.get(name)
        if found is not None:
            found.on_deleted()


class StateTopic:
    """One internal topic; :class:`StateTopics` makes them."""

    def __init__(self, spec: StateTopicSpec, topics: StateTopics) -> None:
        self.name = spec.name
        self._spec = spec
        self._is_compacted = spec.config["cleanup.policy"] == "compact"
        self._topics = topics
        self._topic: Topic | None = None
        self._open_partitions: dict[int, _OpenPartition] = {}
        self._deletion_listeners: list[Callable[[], None]] = []
        # All partitions' records, read by the first replay of a start for the others; None: to be read.
        self._events: dict[int, list[StateEvent]] | None = None

    @property
    def partitions(self) -> int:
        """The number of partitions, also before the topic is created."""
        topic = self._find()
        return topic.partitions if topic is not None else self._topics.config.number(self._spec.partitions)

    def partition_of(self, key: str) -> int:
        """The partition of a key: a group, a transactional id, or ``GROUP:TOPIC_ID:PARTITION``."""
        return partition_of(key, self.partitions)

    def ensure(self) -> bool:
        """Create the topic if it is missing, and return whether it was. KafkaStorageError (56)."""
        if self._find() is not None:
            return False
        self._topic = self._topics.create(self._spec)
        return True

    def append(self, partition: int, records: Sequence[RecordEntry], *, producer: Producer | None = None) -> None:
        """Append the records as one batch, as durable as any append when this returns; after KafkaStorageError (56)
        none of them was appended. ``producer``: they belong to its transaction.

        The batch is never split, however large it is: it would not be atomic then.
        """
        if not records:
            return
        self._events = None  # a later replay has to read these records too
        found = self._open_partitions.get(partition)
        if found is None or found.log.is_closed:
            found = self._open(partition)
        now_ms = self._topics.epoch_ms()
        if producer is None and len(records) == 1:
            data = single_record_batch(now_ms, *records[0])
        else:
            builder = RecordBatchBuilder(_UNBOUNDED)
            for key, value in records:
                builder.append(now_ms, key, value)
            producer_id, epoch = producer if producer is not None else (-1, -1)
            data = bytearray(builder.build(producer_id, epoch, transactional=producer is not None))
        if found.grown_bytes >= ROLL_BYTES and self._is_compacted:
            found.log.roll(now_ms)
            found.grown_bytes = 0
        if producer is None:
            found.log.append_from_broker(data, len(records) - 1, now_ms)
        else:
            found.log.append(data, now_ms=now_ms, trusted=True)
        found.grown_bytes += len(data)
        self._topics.on_append(found.log)

    def should_rewrite(self, partition: int) -> bool:
        """Whether the appended bytes are several times the valid ones of the last :meth:`rewrite`."""
        found = self._open_partitions.get(partition)
        return found is not None and found.grown_bytes > found.limit_bytes

    def rewrite(self, partition: int, valid: Sequence[RecordEntry]) -> None:
        """Append all valid entries of a partition again and delete the records before: for a topic that is not
        compacted.

        All entries are durable already, so a failure is logged and no error of the request: the log keeps growing.
        """
        found = self._open(partition)
        found.grown_bytes = 0
        now_ms = self._topics.epoch_ms()
        try:
            found.log.roll(now_ms)
            first = found.log.end_offset
            self.append(partition, valid)
            found.limit_bytes = max(MIN_REWRITE_BYTES, 4 * found.grown_bytes)
            if self._topics.logs.flush_policy.name != "never":
                found.log.flush()  # a crash of the machine could lose both otherwise
            found.log.delete_before(first)
        except KafkaStorageError as error:
            log.warning("cannot rewrite %s, it keeps growing: %s", found.log.name, error)

    def log(self, partition: int) -> PartitionLog:
        """The partition's log; the topic is created if it is missing. KafkaStorageError (56)."""
        return self._open(partition).log

    def _open(self, partition: int) -> _OpenPartition:
        topic = self._find()
        if topic is None:
            topic = self._topic = self._topics.create(self._spec)
        found = self._open_partitions.get(partition)
        if found is None or found.log.is_closed:
            found = self._open_partitions[partition] = _OpenPartition(self._topics.logs.log(topic, partition))
        return found

    def add_deletion_listener(self, callback: Callable[[], None]) -> None:
        """Call this when the topic was deleted."""
        self._deletion_listeners.append(callback)

    def on_deleted(self) -> None:
        """The topic was deleted."""
        self._events = None
        for callback in self._deletion_listeners:
            callback()

    def replay(self) -> Iterator[tuple[int, StateEvent]]:
        """All records and markers with their partitions, partition by partition, in order. KafkaStorageError when they
        cannot be read. The files are read once for all callers of a start."""
        if self._events is None:
            self._events = self._read()
        for partition, events in self._events.items():
            for event in events:
                yield partition, event

    def end_loading(self) -> None:
        """The start is over: :meth:`replay` will not be called again."""
        self._events = None

    def _read(self) -> dict[int, list[StateEvent]]:
        topic = self._find()
        found: dict[int, list[StateEvent]] = {}
        for partition in self._topics.logs.partitions_with_files(topic) if topic is not None else ():
            opened = self._open(partition)
            opened.grown_bytes = opened.log.size_bytes
            found[partition] = read_events(opened.log, is_compacted=self._is_compacted)
        return found

    def _find(self) -> Topic | None:
        """The topic, if it exists: a client may have deleted it, and then it is created again."""
        topic = self._topics.logs.metadata.topic(self.name)
        if topic is not self._topic:
            if self._topic is not None and (topic is None or topic.topic_id != self._topic.topic_id):
                self._open_partitions.clear()
            self._topic = topic
        return topic


class _OpenPartition:
    """A partition's log, its growth since the last rewrite or roll, and the growth at which to rewrite it."""

    __slots__ = ("grown_bytes", "limit_bytes", "log")

    def __init__(self, found: PartitionLog) -> None:
        self.log = found
        self.grown_bytes = 0
        self.limit_bytes = MIN_REWRITE_BYTES


def partition_of(key: str, partitions: int) -> int:
    """Kafka's choice: the absolute value of Java's hash of the text, modulo the number of partitions."""
    value = java_hash(key)
    return 0 if value == -(2**31) else abs(value) % partitions


def java_hash(text: str) -> int:
    """``String.hashCode()``: over UTF-16 units, in 32 bits with a sign."""
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(data), 2):
        value = (31 * value + (data[at] << 8 | data[at + 1])) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


def kafka_uuid(value: UUID) -> str:
    """An id as Kafka writes it in text."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()
