"""Makes the records that a consumer hands out, one by one as ``records/reader.py`` finds them in a batch.

Two kinds, since looking for deserialisers at each record would cost those who have none: :class:`Records` for bytes as
they are, :class:`Deserialized` for the others. What a user's deserialiser raises is no fault of the batch: it is kept
in ``fault``, and the records before it are good.
"""

from __future__ import annotations

from kafka._native import i64
from kafka.core.consume.faults import locate
from kafka.core.consume.record import ConsumerRecord
from kafka.core.deserialize import Deserialize
from kafka.records.reader import RecordSink, headers_of
from kafka.structs import TopicPartition


class Records(RecordSink):
    """``found``: the records of one batch, in their order. ``fault``: what stopped them, or None."""

    def __init__(self, topic: str, partition: int, leader_epoch: int, timestamp_type: int) -> None:
        self.found: list[ConsumerRecord] = []
        self.fault: Exception | None = None
        self.topic = topic
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.timestamp_type = timestamp_type

    def add(self, offset: i64, timestamp: i64, key: bytes | None, value: bytes | None, headers: bytes | None) -> None:
        self.found.append(
            ConsumerRecord(
                self.topic, self.partition, self.leader_epoch, offset, timestamp, self.timestamp_type, key, value,
                headers,
            )
        )  # fmt: skip


class Deserialized(Records):
    """With what users' functions make of keys and values; None leaves bytes alone."""

    def __init__(
        self,
        topic: str,
        partition: int,
        leader_epoch: int,
        timestamp_type: int,
        key: Deserialize | None,
        value: Deserialize | None,
    ) -> None:
        super().__init__(topic, partition, leader_epoch, timestamp_type)
        self.key = key
        self.value = value

    def add(self, offset: i64, timestamp: i64, key: bytes | None, value: bytes | None, headers: bytes | None) -> None:
        if self.fault is not None:
            return
        topic = self.topic
        parsed = headers_of(headers)
        try:
            made_key = key if self.key is None else self.key(topic, parsed, key)
            made_value = value if self.value is None else self.value(topic, parsed, value)
        except Exception as error:
            self.fault = error
            locate(error, TopicPartition(topic, self.partition), offset)
            note = getattr(error, "add_note", None)  # since Python 3.11
            if note is not None:
                note(f"in a deserialiser, for {topic}-{self.partition} at offset {offset}; seek() leads past it")
            return
        self.found.append(
            ConsumerRecord(
                topic, self.partition, self.leader_epoch, offset, timestamp, self.timestamp_type, made_key, made_value,
                parsed, None, -1 if key is None else len(key), -1 if value is None else len(value),
            )
        )  # fmt: skip
