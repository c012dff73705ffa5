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
from kafka.broker.slices import read_at_once, read_in_turns
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


class RecordCheck:
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
            if config.timestamp_before_ms != UNLIMITED_MS:
                earliest = now_ms - config.timestamp_before_ms
            if config.timestamp_after_ms != UNLIMITED_MS:
                latest = now_ms + config.timestamp_after_ms
        self._times = (earliest, latest)

    def at_once(self) -> int | None:
        """None when the batch is not small: it is for :meth:`in_turns`."""
        try:
            found = read_at_once(self._header, self._open)
        except UnsupportedCodecError:
            return self._timestamp_of_header()
        return None if found is None else self._outcome(found)

    def in_turns(self) -> Generator[bool, None, int]:
        """For a batch of any size. Yields as in ``slices.py``."""
        try:
            found = yield from read_in_turns(self._header, self._open)
        except UnsupportedCodecError:
            return self._timestamp_of_header()
        except InflationLimitError as error:
            raise MessageSizeTooLargeError(f"{self._name}: {error.args[0]}; send smaller batches") from None
        return self._outcome(found)

    def _open(self, max_inflated_bytes: int) -> BatchValidator:
        needs_keys = self._config.compacts
        return BatchValidator(self._batch, self._header, max_inflated_bytes, needs_keys=needs_keys, times=self._times)

    def _outcome(self, found: BatchValidator) -> int:
        if found.faults:
            after_ms = self._now_ms + self._config.timestamp_after_ms
            limits = f"[{max(0, self._now_ms - self._config.timestamp_before_ms)}, {after_ms}]"
            raise _refusal(found.faults, self._name, limits)
        return found.max_timestamp

    def _timestamp_of_header(self) -> int:
        """The codec's library is not installed here: the header has to do."""
        earliest, latest = self._times
        greatest = self._header.max_timestamp
        if greatest > latest or NO_TIMESTAMP < greatest < earliest:
            raise TimestampOutOfRangeError([])
        return greatest


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


def _summary(errors: RecordErrors) -> str:
    shown = ", ".join(
        f"RecordError(batchIndex={error.batch_index}, message='{error.batch_index_error_message}')"
        for error in errors[:_SHOWN]
    )
    return (
        f"One or more records have been rejected due to {len(errors)} record errors in total, and only showing the "
        f"first three errors at most: [{shown}]"
    )
