"""What is asked of single records: that they can be read, at offsets one after another; keys where the topic is
compacted, timestamps within its limits.

All records of a batch are walked through, as Apache Kafka does, but nothing is made of them
(:mod:`kafka.records.validator`). What the topic does not take is listed record by record, as Produce answers it
(KIP-467), in Apache Kafka's words; after :data:`~kafka.records.validator.MAX_FAULTS` of them nothing more is read.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final

from kafka.broker.log import LogConfig
from kafka.broker.slices import read_batch
from kafka.errors import InvalidRecordError, InvalidTimestampError, MessageSizeTooLargeError, UnsupportedCodecError
from kafka.protocol.produce import ProduceResponse
from kafka.records import BatchHeader
from kafka.records.compression import InflationLimitError
from kafka.records.validator import BatchValidator, RecordFault
from kafka.wire.types import BytesLike

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


def check_records(
    name: str, config: LogConfig, batch: BytesLike, header: BatchHeader, now_ms: int
) -> Generator[bool, None, int]:
    """Raise for records that no consumer could read, and for those that the topic does not take; else return the
    greatest timestamp of them all, in ms. Yields as in ``slices.py``. ``name``: the partition's; ``header``: the
    batch's, which has been found valid.

    Errors: TimestampOutOfRangeError (32), RecordsWithoutKeyError (87), CorruptRecordError (2), and for what inflates
    above the bound MessageSizeTooLargeError (10), which makes Java's producer split the batch.
    """
    earliest, latest = LEAST_TIMESTAMP, UNLIMITED_MS
    if not config.log_append_time:
        if config.timestamp_before_ms != UNLIMITED_MS:
            earliest = now_ms - config.timestamp_before_ms
        if config.timestamp_after_ms != UNLIMITED_MS:
            latest = now_ms + config.timestamp_after_ms
    try:
        found = yield from read_batch(
            header,
            lambda most: BatchValidator(batch, header, most, needs_keys=config.compacts, times=(earliest, latest)),
        )
    except UnsupportedCodecError:  # its library is not installed here: the header has to do
        _check_header(header, earliest, latest)
        return header.max_timestamp
    except InflationLimitError as error:
        raise MessageSizeTooLargeError(f"{name}: {error.args[0]}; send smaller batches") from None
    if found.faults:
        limits = f"[{max(0, now_ms - config.timestamp_before_ms)}, {now_ms + config.timestamp_after_ms}]"
        raise _refusal(found.faults, name, limits)
    return found.max_timestamp


def _refusal(
    faults: Sequence[RecordFault], name: str, limits: str
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
