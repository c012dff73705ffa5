"""Message sets at the broker's edge: logs hold batches v2 and nothing else, whatever old clients speak.

    Produce v0 to v2    a message set v0 or v1  -> one batch
    Fetch v0, v1        batches -> a message set v0
    Fetch v2, v3        batches -> a message set v1, which has timestamps
    ListOffsets v0      where segments begin

What is compressed stays so, with the same codec; lz4 in v0 with the header that old clients expect. Headers of records
get lost on the way down, as in Apache Kafka, and control batches are left out. Only the ``--emulate`` of a release that
had these versions leads here, so speed is not looked for.

Different from Apache Kafka 2.8.2: several wrappers, or wrappers among plain messages, in one set are taken, as Kafka
before 0.11 did, and made into one batch (there: 87); what is wrong inside a wrapper is CORRUPT_MESSAGE (2) throughout
(there 87 or -1).

Source: KIP-31, KIP-32; what brokers of 0.8.2.2, 0.10.2.2 and 2.8.2 did with three dozen sets, good and bad.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka.errors import InvalidTimestampError, UnsupportedCodecError, UnsupportedCompressionTypeError
from kafka.records import (
    ZSTD,
    RecordBatchBuilder,
    decode_raw,
    encode_message_set,
    iter_batches,
)
from kafka.records.compression import inflation_bound
from kafka.records.header import Buffer
from kafka.records.message_set import decode_produced

if TYPE_CHECKING:
    from kafka.broker.log import PartitionLog

BATCHES_IN_PRODUCE_SINCE: Final = 3
MAGIC_OF_FETCH: Final = {0: 0, 1: 0, 2: 1, 3: 1}
"""Version of Fetch -> the message sets that it gives; later versions give batches."""
WHOLE_FIRST_SINCE: Final = 3
"""From this version of Fetch on a first message that is too large comes whole (KIP-74); before, it is cut."""

MAX_INFLATED_BYTES: Final = 512 << 10
"""What a message set, or a batch that is made into one, may inflate to, and 14 times its own size besides: all of its
records are held as objects, in one turn of the loop."""

_LATEST: Final = -1
_EARLIEST: Final = -2


def batch_of(message_set: Buffer) -> bytes | None:
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
        found, next_offset = message_set_of(data, MAGIC_OF_FETCH[version], offset)
        if found:
            return _cut(found, max_bytes, min_one and version >= WHOLE_FIRST_SINCE)
        if next_offset <= offset:
            break
        offset = next_offset  # nothing but markers of transactions: an old client would ask for them for ever
    return b""


def message_set_of(batches: Buffer, magic: int, offset: int) -> tuple[bytes, int]:
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
