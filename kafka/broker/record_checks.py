"""What a topic's configuration says about single records: keys where it is compacted, timestamps within limits.

Batches go to the logs unread, so this looks at records only where the batch's header cannot tell: in compacted topics,
and when its greatest time is too late or its first one is too early. What is wrong is listed record by record, as
Produce answers it (KIP-467), in Apache Kafka's words.
"""

from __future__ import annotations

from typing import Final

from kafka.broker.log import LogConfig
from kafka.errors import InvalidRecordError, InvalidTimestampError, UnsupportedCodecError
from kafka.protocol.produce import ProduceResponse
from kafka.records import BatchHeader, decode_raw, validate_batch
from kafka.wire.types import BytesLike

RecordErrors = list[ProduceResponse.BatchIndexAndErrorMessage]

NO_TIMESTAMP: Final = -1
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


def check_records(name: str, config: LogConfig, batch: BytesLike, max_timestamp: int, now_ms: int) -> None:
    """Raise for records that the topic does not take. ``name``: the partition's; ``max_timestamp``: what the batch's
    header says.

    Errors: TimestampOutOfRangeError (32), RecordsWithoutKeyError (87), CorruptRecordError (2).
    """
    earliest, latest = NO_TIMESTAMP, UNLIMITED_MS
    if not config.log_append_time:
        if config.timestamp_before_ms != UNLIMITED_MS:
            earliest = now_ms - config.timestamp_before_ms
        if config.timestamp_after_ms != UNLIMITED_MS:
            latest = now_ms + config.timestamp_after_ms
    if not config.compacts and earliest == NO_TIMESTAMP and max_timestamp <= latest:
        return
    header = validate_batch(batch)
    try:
        records = decode_raw(batch, header)
    except UnsupportedCodecError:  # its library is not installed here: the header has to do
        _check_header(header, earliest, latest)
        return
    late, unkeyed = [], []
    limits = f"[{max(0, now_ms - config.timestamp_before_ms)}, {now_ms + config.timestamp_after_ms}]"
    for at, record in enumerate(records):
        if config.compacts and record[2] is None:
            unkeyed.append(
                ProduceResponse.BatchIndexAndErrorMessage(
                    batch_index=at,
                    batch_index_error_message="Compacted topic cannot accept message without key in topic partition "
                    f"{name}",
                )
            )
        elif record[1] != NO_TIMESTAMP and not earliest <= record[1] <= latest:
            late.append(
                ProduceResponse.BatchIndexAndErrorMessage(
                    batch_index=at,
                    batch_index_error_message=f"Timestamp {record[1]} of message with offset {at} is out of range. "
                    f"The timestamp should be within {limits}",
                )
            )
    if late:
        raise TimestampOutOfRangeError(sorted(late + unkeyed, key=lambda error: error.batch_index))
    if unkeyed:
        raise RecordsWithoutKeyError(_summary(unkeyed), unkeyed)


def _check_header(header: BatchHeader, earliest: int, latest: int) -> None:
    if header.max_timestamp > latest or NO_TIMESTAMP < header.max_timestamp < earliest:
        raise TimestampOutOfRangeError([])


def _summary(errors: RecordErrors) -> str:
    shown = ", ".join(
        f"RecordError(batchIndex={error.batch_index}, message='{error.batch_index_error_message}')"
        for error in errors[:_SHOWN]
    )
    return (
        f"One or more records have been rejected due to {len(errors)} record errors in total, and only showing the "
        f"first three errors at most: [{shown}]"
    )
