"""Validation of produced records, and the conversion of old message sets, as Apache Kafka's LogValidator.

Records have to be readable, at consecutive offsets; with keys where the topic is compacted, with timestamps within its
limits. All records of a batch are checked, without making objects of them (:mod:`kafka.records.validator`). Rejected
records are listed in the Produce response (KIP-467), in Apache Kafka's words; after
:data:`~kafka.records.validator.MAX_RECORD_ERRORS` of them nothing more is read.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Final

from kafka.broker.log import LogConfig
from kafka.broker.time_slices import read_at_once, read_in_slices
from kafka.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    MessageSizeTooLargeError,
    UnsupportedCodecError,
    UnsupportedCompressionTypeError,
)
from kafka.protocol.produce import ProduceResponse
from kafka.records import ZSTD, BatchHeader, RecordBatchBuilder, decode_raw, encode_message_set, iter_batches
from kafka.records.compression import InflationLimitError, inflation_bound
from kafka.records.header import Buffer
from kafka.records.message_set import decode_produced
from kafka.records.validator import BatchValidator, RecordError
from kafka.wire.types import BytesLike

if TYPE_CHECKING:
    from kafka.broker.log import PartitionLog

RecordErrors = list[ProduceResponse.BatchIndexAndErrorMessage]

NO_TIMESTAMP: Final = -1
LEAST_TIMESTAMP: Final = -(2**63)
UNLIMITED_MS: Final = 2**63 - 1
_SHOWN: Final = 3


class RecordsWithoutKeyError(InvalidRecordError):
    """Records of the batch have no key, and their topic is compacted (87)."""

    def __init__(self, message: str, record_errors: RecordErrors) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class TimestampOutOfRangeError(InvalidTimestampError):
    """Records of the batch are too old or too far ahead (32)."""

    def __init__(self, record_errors: RecordErrors) -> None:
        super().__init__("One or more records have been rejected due to invalid timestamp")
        self.record_errors = record_errors


class RecordValidation:
    """Looks at the records of one batch: for records that no consumer could read, and for those that the topic does not
    take. ``name``: the partition's; ``header``: the batch's, which has been found valid.

    Both methods give the greatest timestamp of all records, in ms. Errors: TimestampOutOfRangeError (32),
    RecordsWithoutKeyError (87), CorruptRecordError (2), and for what inflates above the bound MessageSizeTooLargeError
    (10), which makes Java's producer split the batch.
    """

    def __init__(self, name: str, config: LogConfig, batch: BytesLike, header: BatchHeader, now_ms: int) -> None:
        self._name = name
        self._config = config
        self._batch = batch
        self._header = header
        self._now_ms = now_ms
        earliest, latest = LEAST_TIMESTAMP, UNLIMITED_MS
        if not config.log_append_time:
            if config.message_timestamp_before_max_ms != UNLIMITED_MS:
                earliest = now_ms - config.message_timestamp_before_max_ms
            if config.message_timestamp_after_max_ms != UNLIMITED_MS:
                latest = now_ms + config.message_timestamp_after_max_ms
        self._times = (earliest, latest)

    def at_once(self) -> int | None:
        """None when the batch is not small: it is for :meth:`in_turns`."""
        try:
            found = read_at_once(self._header, self._open)
        except UnsupportedCodecError:
            return self._timestamp_of_header()
        return None if found is None else self._outcome(found)

    def in_turns(self) -> Generator[bool, None, int]:
        """For a batch of any size. Yields as in ``time_slices.py``."""
        try:
            found = yield from read_in_slices(self._header, self._open)
        except UnsupportedCodecError:
            return self._timestamp_of_header()
        except InflationLimitError as error:
            raise MessageSizeTooLargeError(f"{self._name}: {error.args[0]}; send smaller batches") from None
        return self._outcome(found)

    def _open(self, max_inflated_bytes: int) -> BatchValidator:
        needs_keys = self._config.compacts
        return BatchValidator(self._batch, self._header, max_inflated_bytes, needs_keys=needs_keys, times=self._times)

    def _outcome(self, found: BatchValidator) -> int:
        if found.errors:
            after_ms = self._now_ms + self._config.message_timestamp_after_max_ms
            limits = f"[{max(0, self._now_ms - self._config.message_timestamp_before_max_ms)}, {after_ms}]"
            raise _validation_error(found.errors, self._name, limits)
        return found.max_timestamp

    def _timestamp_of_header(self) -> int:
        """The codec's library is not installed here: the header has to do."""
        earliest, latest = self._times
        greatest = self._header.max_timestamp
        if greatest > latest or NO_TIMESTAMP < greatest < earliest:
            raise TimestampOutOfRangeError([])
        return greatest


def _validation_error(
    faults: Sequence[RecordError], name: str, limits: str
) -> RecordsWithoutKeyError | TimestampOutOfRangeError:
    errors = [
        ProduceResponse.BatchIndexAndErrorMessage(
            batch_index=fault.index,
            batch_index_error_message=f"Compacted topic cannot accept message without key in topic partition {name}"
            if fault.is_without_key
            else f"Timestamp {fault.timestamp} of message with offset {fault.index} is out of range. The timestamp "
            f"should be within {limits}",
        )
        for fault in faults
    ]
    if all(fault.is_without_key for fault in faults):
        return RecordsWithoutKeyError(_summary(errors), errors)
    return TimestampOutOfRangeError(errors)


def _summary(errors: RecordErrors) -> str:
    shown = ", ".join(
        f"RecordError(batchIndex={error.batch_index}, message='{error.batch_index_error_message}')"
        for error in errors[:_SHOWN]
    )
    return (
        f"One or more records have been rejected due to {len(errors)} record errors in total, and only showing the "
        f"first three errors at most: [{shown}]"
    )


# Message sets of old clients; logs hold batches v2 only.
#
#     Produce v0 to v2    a message set v0 or v1  -> one batch
#     Fetch v0, v1        batches -> a message set v0
#     Fetch v2, v3        batches -> a message set v1, which has timestamps
#     ListOffsets v0      where segments begin
#
# Compression is kept, with the same codec; lz4 in v0 with the header that old clients expect. Record headers are
# dropped by the down-conversion, as in Apache Kafka, and control batches are left out. Only ``--emulate`` with a
# release that had these versions leads here, so this code is not optimised.
#
# Different from Apache Kafka 2.8.2: several wrappers, or wrappers among plain messages, in one set are taken, as Kafka
# before 0.11 did, and made into one batch (there: 87); what is wrong inside a wrapper is CORRUPT_MESSAGE (2) throughout
# (there 87 or -1).
#
# Source: KIP-31, KIP-32; what brokers of 0.8.2.2, 0.10.2.2 and 2.8.2 did with three dozen sets, good and bad.


BATCHES_IN_PRODUCE_SINCE: Final = 3
MAGIC_OF_FETCH: Final = {0: 0, 1: 0, 2: 1, 3: 1}
"""Version of Fetch -> the message sets that it gives; later versions give batches."""
WHOLE_FIRST_SINCE: Final = 3
"""From this version of Fetch on a first message that is too large comes whole (KIP-74); before, it is cut."""

MAX_INFLATED_BYTES: Final = 512 << 10
"""The decompressed size that a message set, or a batch to be down-converted, may have; also 14 times its own size.
All of its records are held as objects, in one turn of the loop."""

_LATEST: Final = -1
_EARLIEST: Final = -2


def convert_message_set(message_set: Buffer) -> bytes | None:
    """A produced message set as one batch, with offsets from 0; None when no whole message is in it.

    A part of a message at the end is passed over. Timestamps are those of the messages, -1 for v0. Errors:
    CorruptRecordError (2), InvalidTimestampError (32) for a producer that claims to be a broker's clock,
    UnsupportedCompressionTypeError (76) for a codec that is not installed.
    """
    try:
        most = inflation_bound(len(message_set), MAX_INFLATED_BYTES)
        records, codec, has_append_time = decode_produced(message_set, most)
        if has_append_time:
            raise InvalidTimestampError("a producer may not set the time of the append")
        if not records:
            return None
        builder = RecordBatchBuilder(1 << 31, codec)
        for _, timestamp, key, value, _ in records:
            builder.append(timestamp, key, value)
        return builder.build()
    except UnsupportedCodecError as error:
        raise UnsupportedCompressionTypeError(str(error)) from None


def read_message_set(
    log: PartitionLog, offset: int, max_bytes: int, *, version: int, below: int, min_one: bool
) -> bytes:
    """The log's records from ``offset`` on as an answer to this version of Fetch: at most ``max_bytes``, and so cut
    within a message perhaps; with ``min_one``, from version 3 on, the first message whole.

    Errors: those of :meth:`PartitionLog.read`, and UnsupportedCompressionTypeError (76) for zstd.
    """
    if max_bytes <= 0 and version < WHOLE_FIRST_SINCE:
        return b""
    while offset < below:
        data = log.read(offset, max(1, max_bytes), below=below, min_one=True)
        if not len(data):
            break
        found, next_offset = down_convert(data, MAGIC_OF_FETCH[version], offset)
        if found:
            return _cut(found, max_bytes, min_one and version >= WHOLE_FIRST_SINCE)
        if next_offset <= offset:
            break
        offset = next_offset  # nothing but markers of transactions: an old client would ask for them for ever
    return b""


def down_convert(batches: Buffer, magic: int, offset: int) -> tuple[bytes, int]:
    """Batches as a message set v0 or v1, without what lies before ``offset`` in batches that are not compressed; and
    the offset after the last batch."""
    parts: list[bytes] = []
    next_offset = offset
    try:
        for header in iter_batches(batches, check_crcs=False):
            next_offset = header.next_offset
            if header.is_control:
                continue
            if header.codec == ZSTD:
                raise UnsupportedCompressionTypeError("zstd came with Fetch v10")
            records = decode_raw(batches, header, inflation_bound(header.length, MAX_INFLATED_BYTES))
            if not header.codec:
                records = [record for record in records if record[0] >= offset]
            parts.append(encode_message_set(records, magic, header.codec, timestamp_type=header.timestamp_type))
    except UnsupportedCodecError as error:
        raise UnsupportedCompressionTypeError(str(error)) from None
    return b"".join(parts), next_offset


def segment_offsets(log: PartitionLog, timestamp: int, count: int, now_ms: int) -> list[int]:
    """The answer of ListOffsets v0: at most ``count`` offsets, the latest first, at which segments begin that were
    written last at ``timestamp`` (ms) or before; the end of the log counts as one that is written now. -1: all; -2: the
    start alone."""
    if timestamp == _EARLIEST:
        return [log.start_offset][:count]
    starts = [(max(segment.base_offset, log.start_offset), segment.modified_ms) for segment in log.segments]
    if log.segments[-1].size:
        starts.append((log.end_offset, now_ms))
    found = {offset for offset, at in starts if timestamp == _LATEST or at <= timestamp}
    return sorted(found, reverse=True)[: max(0, count)]


def _cut(data: bytes, max_bytes: int, whole_first: bool) -> bytes:
    if len(data) <= max_bytes:
        return data
    if whole_first:
        first = next(iter_batches(data))
        max_bytes = max(max_bytes, first.end)
    return data[:max_bytes]
