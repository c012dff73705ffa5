"""From one partition's part of a Fetch answer to records, as many at a time as the caller of ``poll`` wants.

    records of the answer:  | batch | batch | ... | cut batch |       the cut one is fetched again
    offset asked for:            ^ within a batch: what lies before it is left out

Control batches are never handed out. With ``read_committed``, neither are the records of aborted transactions: the
answer lists (producer, first offset); from there on the producer's transactional batches are left out until its abort
marker has been passed (KIP-98).

Who fetches checks the headers only (:func:`scan_batches`); decoding, CRC and deserialisers are the reader's, in its
thread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from operator import attrgetter
from typing import Final

from kafka._native import i64
from kafka.core.consume.record import ConsumerRecord
from kafka.errors import CorruptRecordError, KafkaError, MessageSizeTooLargeError
from kafka.protocol.fetch import FetchResponse
from kafka.records import (
    ABORT,
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    BatchHeader,
    check_crc,
    decode_control,
    decode_raw,
    parse_header,
)
from kafka.records.compression import inflation_bound
from kafka.records.header import Buffer
from kafka.records.reader import RecordReader, RecordSink, headers_of
from kafka.structs import TopicPartition
from kafka.validation import Deserialize

# Where a partition's error was: said on the error itself, for programs that go on from there.
#
#     error.topic_partition   the TopicPartition
#     error.offset            what could not be read; None when the partition has no position
#
# Here and not in ``errors.py``, since what a user's deserialiser raises may be anything.


def set_error_location(error: BaseException, partition: TopicPartition, offset: int | None) -> None:
    """Say so. An error that takes no attributes (a user's, with slots) stays as it is."""
    with contextlib.suppress(AttributeError, TypeError):
        for name, value in (("topic_partition", partition), ("offset", offset)):
            setattr(error, name, value)


def has_error_location(error: BaseException) -> bool:
    """Whether the error names its partition already."""
    return getattr(error, "topic_partition", None) is not None


# Makes the records that a consumer hands out, one by one as ``records/reader.py`` finds them in a batch.
#
# Two kinds, since looking for deserialisers at each record would cost those who have none: :class:`ConsumerRecordSink`
# for bytes as they are, :class:`DeserializingRecordSink` for the others. What a user's deserialiser raises is no fault
# of the batch: it is kept in ``fault``, and the records before it are good.


class ConsumerRecordSink(RecordSink):
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


class DeserializingRecordSink(ConsumerRecordSink):
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
            set_error_location(error, TopicPartition(topic, self.partition), offset)
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


MAX_HEADER_BYTES: Final = 256 << 10
"""After so many bytes of headers ``poll`` gives what it has: they take some 80 ms to be looked through in plain Python,
and 500 records may have eight million headers."""

NO_TIMESTAMP_TYPE: Final = -1
"""Of records that had no timestamp yet: message sets v0."""

_first_offset: Final = attrgetter("first_offset")


class ReaderOptions:
    """How a consumer reads. Deserialisers None: bytes as they are. ``max_batch_bytes``: what a batch may inflate to."""

    __slots__ = ("check_crcs", "key", "max_batch_bytes", "read_committed", "value")

    def __init__(
        self,
        check_crcs: bool = True,
        read_committed: bool = False,
        key: Deserialize | None = None,
        value: Deserialize | None = None,
        max_batch_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    ) -> None:
        self.check_crcs = check_crcs
        self.max_batch_bytes = max_batch_bytes
        self.read_committed = read_committed
        self.key = key
        self.value = value


class CompletedFetch:
    """What was fetched of one partition, from ``fetch_offset`` on. ``next_offset`` is where the next fetch begins."""

    __slots__ = ("_aborted", "_aborting", "_batch_at", "_reader", "data", "error", "header_bytes", "headers",
                 "next_offset", "partition", "position", "size_bytes")  # fmt: skip

    def __init__(
        self,
        partition: TopicPartition,
        fetch_offset: int,
        data: Buffer,
        aborted: Iterable[FetchResponse.AbortedTransaction] = (),
    ) -> None:
        self.partition = partition
        self.data = data
        self.size_bytes = len(data)
        self.position = fetch_offset
        """The next offset to hand out."""
        self.headers, self.error = scan_batches(data, fetch_offset, partition)
        """The whole batches; and the fault that ended them, met when all of them have been read."""
        self.next_offset = max(self.headers[-1].next_offset, fetch_offset) if self.headers else fetch_offset
        # Descending, so that the next one is taken off the end.
        self._aborted = sorted(aborted, key=_first_offset, reverse=True)
        self._aborting: set[int] = set()
        self._batch_at = 0
        self.header_bytes = 0
        """Of the records that the last :meth:`read` gave."""
        self._reader: RecordReader | None = None
        """Of the batch at ``_batch_at``, of which the records before ``position`` have been read."""

    @property
    def leader_epoch(self) -> int:
        """Of the batch that was read from last; -1 before that, and of message sets, which have none."""
        at = self._batch_at if self._reader is not None else self._batch_at - 1
        return self.headers[at].leader_epoch if at >= 0 else -1

    @property
    def is_exhausted(self) -> bool:
        """Everything has been read, and no fault is left to be met."""
        return self._batch_at >= len(self.headers) and self.error is None

    def read(
        self, limit: int, options: ReaderOptions, max_header_bytes: int = MAX_HEADER_BYTES
    ) -> list[ConsumerRecord]:
        """The next records, at most ``limit``; fewer, or none, at the end, and none after that with which there were
        ``max_header_bytes``. Moves ``position``.

        Raises the fault of a batch (CorruptRecordError and the like, or what a deserialiser raised) when it is the
        first thing to be read; ``position`` then stands before it.
        """
        found: list[ConsumerRecord] = []
        self.header_bytes = 0
        while len(found) < limit and self.header_bytes < max_header_bytes:
            if self._batch_at >= len(self.headers):
                if self.error is not None and not found:
                    raise self.error
                break
            try:
                most = max_header_bytes - self.header_bytes
                records = self._read_batch(self.headers[self._batch_at], limit - len(found), options, most)
            except Exception:
                if found:
                    break  # what is good comes first
                raise
            if not found:
                found = records
            elif records:
                found += records
        return found

    @property
    def inflated_bytes(self) -> int:
        """What the batch that is being read takes besides ``data``."""
        return 0 if self._reader is None else self._reader.decompressed_bytes

    def close(self) -> None:
        """Let go of the batch that is being read; :meth:`read` opens it again."""
        self._reader = None

    def _read_batch(
        self, header: BatchHeader, limit: int, options: ReaderOptions, max_header_bytes: int
    ) -> list[ConsumerRecord]:
        """The next records of the batch, at most ``limit``; it is left when they are its last."""
        try:
            reader = self._reader or self._open_batch(header, options)
        except CorruptRecordError as error:
            raise self._located(error) from None
        if reader is None:
            self._leave_batch(header)
            return []
        self._reader = None  # unless all goes well
        records = self._sink(header, options)
        is_more = False
        fault: Exception | None = None
        try:
            is_more = reader.read(records, limit, max_header_bytes)
            self.header_bytes += reader.header_bytes
        except CorruptRecordError as error:
            fault = self._located(error)
        fault = records.fault or fault
        found = records.found
        if fault is not None and not found:
            raise fault
        if found:
            self.position = found[-1].offset + 1
        if is_more and fault is None:
            self._reader = reader
        elif fault is None:
            self._leave_batch(header)
        return found  # what is good comes first; then the rest of the batch is opened again

    def _leave_batch(self, header: BatchHeader) -> None:
        """The batch was read to its end: compaction may have removed its last records, and those offsets count."""
        self.position = max(self.position, header.next_offset)
        self._batch_at += 1

    def _open_batch(self, header: BatchHeader, options: ReaderOptions) -> RecordReader | None:
        """None: none of its records is for the reader."""
        if options.check_crcs and header.magic == 2:
            check_crc(self.data, header)
        if options.read_committed and self._is_aborted(header):
            return None
        if header.is_control:
            return None
        most = min(options.max_batch_bytes, inflation_bound(header.length, options.max_batch_bytes * 3 // 10))
        return RecordReader(self.data, header, most, self.position)

    def _located(self, error: CorruptRecordError) -> CorruptRecordError:
        return CorruptRecordError(f"{_partition_text(self.partition)}: {error.args[0]}")

    def _sink(self, header: BatchHeader, options: ReaderOptions) -> ConsumerRecordSink:
        topic, partition = self.partition
        kind = header.timestamp_type if header.magic else NO_TIMESTAMP_TYPE
        if options.key is None and options.value is None:
            return ConsumerRecordSink(topic, partition, header.leader_epoch, kind)
        return DeserializingRecordSink(topic, partition, header.leader_epoch, kind, options.key, options.value)

    def _is_aborted(self, header: BatchHeader) -> bool:
        aborted = self._aborted
        while aborted and aborted[-1].first_offset <= header.last_offset:
            self._aborting.add(aborted.pop().producer_id)
        if not header.is_transactional or header.producer_id not in self._aborting:
            return False
        if header.is_control:
            for _, _, key, value, _ in decode_raw(self.data, header):
                if decode_control(key, value).kind == ABORT:
                    self._aborting.discard(header.producer_id)
        return True


def scan_batches(
    data: Buffer, fetch_offset: int, partition: TopicPartition
) -> tuple[list[BatchHeader], KafkaError | None]:
    """The headers of the whole batches in ``data``, and the fault at which they end, if it is not a cut.

    A first batch that is cut was larger than the fetch: brokers since 0.10.1 send it whole, so this is
    MessageSizeTooLargeError with the setting to raise.
    """
    headers: list[BatchHeader] = []
    pos = 0
    try:
        while (header := parse_header(data, pos)) is not None:
            headers.append(header)
            pos = header.end
    except KafkaError as error:
        return headers, CorruptRecordError(f"{_partition_text(partition)} at offset {fetch_offset}: {error.args[0]}")
    if not headers and len(data):
        return headers, MessageSizeTooLargeError(
            f"{_partition_text(partition)}: the batch at offset {fetch_offset} is larger than "
            "max_partition_fetch_bytes, and the broker (before 0.10.1) cuts it: raise that, or seek() past it"
        )
    return headers, None


def _partition_text(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"
