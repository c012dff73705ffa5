"""Internal topics as keyed state: appended to as things change, read once, from the oldest record on, at the start.

    topic.append(partition, [(key, value), ...])      one batch, one write(): all of it or nothing
    topic.replay(on_record, on_marker)                everything there is, partition by partition

The topics are ordinary ones in the data directory, with the names, configurations and numbers of partitions that
Apache Kafka 4.3.0 gives them (measured). One is made when something is first appended to it, or when a client first
asks for its coordinator; of its partitions only those are ever opened that have records. To add one: a row in
``STATE_TOPICS``, its records beside this module.

A key's last record holds, and a value of None is the key's end; but for ``__share_group_state`` (``cleanup.policy`` is
``delete`` there), what came before may be gone after a compaction. What a transactional batch says holds from its
commit marker on.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kafka.broker.log import PartitionLog, Topic
from kafka.broker.state.replay import StateEvent, read_events
from kafka.broker.state.single_record import single_record_batch
from kafka.errors import KafkaStorageError
from kafka.records import RecordBatchBuilder

if TYPE_CHECKING:
    from uuid import UUID

    from kafka.broker.broker import Broker

log = logging.getLogger(__name__)

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"

Entry = tuple[bytes, bytes | None]
"""A record's key and value; None: a tombstone."""

Producer = tuple[int, int]
"""Producer id and epoch of a transaction that the record belongs to."""

OnRecord = Callable[[int, bytes, "bytes | None", "Producer | None"], None]
"""``(partition, key, value, producer)``."""

OnMarker = Callable[[int, int, int, bool], None]
"""``(partition, producer id, producer epoch, committed)``."""

_UNBOUNDED: Final = 2**31 - 1

ROLL_BYTES: Final = 1 << 20
"""A compacted topic's segment is closed at this size, whatever ``segment.bytes`` says: only closed ones are compacted,
and a start reads what is there."""

ANEW_BYTES: Final = 1 << 20
"""Below this size nothing is begun anew."""


class StateTopicRow(NamedTuple):
    """An internal topic: its configuration, and the broker's settings that say more."""

    name: str
    partitions: str
    segment_bytes: str
    config: Mapping[str, str]

    @property
    def is_compacted(self) -> bool:
        return self.config["cleanup.policy"] == "compact"


STATE_TOPICS: Final[Mapping[str, StateTopicRow]] = {
    row.name: row
    for row in (
        StateTopicRow(
            CONSUMER_OFFSETS,
            "offsets.topic.num.partitions",
            "offsets.topic.segment.bytes",
            {"compression.type": "producer", "cleanup.policy": "compact"},
        ),
        StateTopicRow(
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
        StateTopicRow(
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
    """The broker's internal topics, by name."""

    def __init__(self, broker: Broker) -> None:
        self._topics = {name: StateTopic(broker, row) for name, row in STATE_TOPICS.items()}

    def topic(self, name: str) -> StateTopic:
        """One of ``STATE_TOPICS``; the topic itself is made when it is first appended to."""
        return self._topics[name]

    def loaded(self) -> None:
        """The start is over: what was read for it is let go."""
        for topic in self._topics.values():
            topic.loaded()

    def deleted(self, name: str) -> None:
        """A client has deleted a topic; what an internal one held is forgotten by those who keep it."""
        found = self._topics.get(name)
        if found is not None:
            found.deleted()


class StateTopic:
    """One internal topic."""

    def __init__(self, broker: Broker, row: StateTopicRow) -> None:
        self.name = row.name
        self._broker = broker
        self._row = row
        self._topic: Topic | None = None
        self._homes: dict[int, _Home] = {}
        self._when_deleted: list[Callable[[], None]] = []
        self._events: dict[int, list[StateEvent]] | None = None

    @property
    def partitions(self) -> int:
        """How many there are, or will be when the topic is made."""
        topic = self._find()
        return topic.partitions if topic is not None else self._broker.config.number(self._row.partitions)

    def partition_of(self, key: str) -> int:
        """The partition of a key: a group, a transactional id, or ``GROUP:TOPIC_ID:PARTITION``."""
        return partition_of(key, self.partitions)

    def ensure(self) -> bool:
        """Make the topic where it is missing; whether that was so. KafkaStorageError (56)."""
        if self._find() is not None:
            return False
        broker, row = self._broker, self._row
        config = {**row.config, "segment.bytes": broker.config.value(row.segment_bytes)}
        self._topic = broker.metadata.create_topic(
            self.name, broker.ids.new_topic_id(), broker.config.number(row.partitions), config
        )
        broker.sync_metadata()
        return True

    def append(self, partition: int, records: Sequence[Entry], *, producer: Producer | None = None) -> None:
        """Append the records as one batch, durable as any append when this returns; KafkaStorageError (56) when none
        of them was. ``producer``: they belong to its transaction.

        The batch is never cut into several, however large it is: it would not be all or nothing then.
        """
        if not records:
            return
        broker = self._broker
        self._events = None  # what is replayed after this has this, too
        home = self._homes.get(partition)
        if home is None or home.log.is_closed:
            home = self._home(partition)
        now_ms = broker.epoch_ms()
        if producer is None and len(records) == 1:
            data = single_record_batch(now_ms, *records[0])
        else:
            builder = RecordBatchBuilder(_UNBOUNDED)
            for key, value in records:
                builder.append(now_ms, key, value)
            producer_id, epoch = producer if producer is not None else (-1, -1)
            data = bytearray(builder.build(producer_id, epoch, transactional=producer is not None))
        if home.grown_bytes >= ROLL_BYTES and self._row.is_compacted:
            home.log.roll(now_ms)
            home.grown_bytes = 0
        found = home.log
        if producer is None:
            found.append_from_broker(data, len(records) - 1, now_ms)
        else:
            found.append(data, now_ms=now_ms, trusted=True)
        home.grown_bytes += len(data)
        broker.appended(found)

    def should_begin_anew(self, partition: int) -> bool:
        """Whether what was appended is several times of what was worth keeping when this was last done."""
        home = self._homes.get(partition)
        return home is not None and home.grown_bytes > home.limit_bytes

    def begin_anew(self, partition: int, holding: Sequence[Entry]) -> None:
        """Write down all that holds in a partition, and delete what came before: for a topic that nobody compacts.

        What was appended is durable already, so a failure is no error of anybody's request: the log grows on.
        """
        home = self._home(partition)
        home.grown_bytes = 0
        now_ms = self._broker.epoch_ms()
        try:
            home.log.roll(now_ms)
            first = home.log.end_offset
            self.append(partition, holding)
            home.limit_bytes = max(ANEW_BYTES, 4 * home.grown_bytes)
            if self._broker.logs.flush_policy.name != "never":
                home.log.flush()  # or a lost machine could have neither
            home.log.delete_before(first)
        except KafkaStorageError as error:
            log.warning("%s grows on, as it could not be begun anew: %s", home.log.name, error)

    def log(self, partition: int) -> PartitionLog:
        """The partition's log; the topic is made where it is missing. KafkaStorageError (56)."""
        return self._home(partition).log

    def _home(self, partition: int) -> _Home:
        topic = self._find()
        if topic is None:
            self.ensure()
            topic = self._topic
            assert topic is not None
        found = self._homes.get(partition)
        if found is None or found.log.is_closed:
            found = self._homes[partition] = _Home(self._broker.logs.log(topic, partition))
        return found

    def when_deleted(self, callback: Callable[[], None]) -> None:
        """Call this when the topic was deleted."""
        self._when_deleted.append(callback)

    def deleted(self) -> None:
        """The topic was deleted."""
        self._events = None
        for callback in self._when_deleted:
            callback()

    def replay(self, on_record: OnRecord, on_marker: OnMarker) -> None:
        """Tell what all partitions hold, each in its order (``replay.py``). KafkaStorageError for what cannot be read.

        The files are read once for all who call this in the course of a start.
        """
        if self._events is None:
            self._events = self._read()
        for partition, events in self._events.items():
            for event in events:
                if event.key is not None:
                    on_record(partition, event.key, event.value, event.producer)
                elif event.producer is not None:
                    on_marker(partition, *event.producer, event.is_committed)

    def loaded(self) -> None:
        """The start is over: nobody replays any more."""
        self._events = None

    def _read(self) -> dict[int, list[StateEvent]]:
        topic = self._find()
        found: dict[int, list[StateEvent]] = {}
        for partition in self._broker.logs.partitions_with_files(topic) if topic is not None else ():
            home = self._home(partition)
            home.grown_bytes = home.log.size_bytes
            found[partition] = read_events(home.log, is_compacted=self._row.is_compacted)
        return found

    def _find(self) -> Topic | None:
        """The topic, if there is one: a client may have deleted it, and then it is made anew."""
        topic = self._broker.metadata.topic(self.name)
        if topic is not self._topic:
            if self._topic is not None and (topic is None or topic.topic_id != self._topic.topic_id):
                self._homes.clear()
            self._topic = topic
        return topic


class _Home:
    """A partition with records: its log, how much it has grown since it was last begun anew or rolled, and when that
    is worth doing."""

    __slots__ = ("grown_bytes", "limit_bytes", "log")

    def __init__(self, found: PartitionLog) -> None:
        self.log = found
        self.grown_bytes = 0
        self.limit_bytes = ANEW_BYTES


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
