"""What a parcel is before it is sent, and what it keeps of its bytes."""

from __future__ import annotations

from kafka.core.produce.batch import (
    MOVED,
    UNKNOWN_OFFSET,
    CompressionRatioEstimator,
    PartitionQueue,
    PendingRecords,
    ProducerBatch,
)
from kafka.records import GZIP, NONE, RecordBatchBuilder, iter_batches


def batch(compression: int = NONE, ratio: CompressionRatioEstimator | None = None) -> ProducerBatch:
    return ProducerBatch(PartitionQueue("t", 3, ratio), 7, RecordBatchBuilder(1000, compression), 5.0, lambda: None)


def test_results_without_an_offset_are_no_offsets_and_differ() -> None:
    assert UNKNOWN_OFFSET == (-1, -1)  # as the broker answers where it does not tell
    assert MOVED == (-2, -1)


def test_records_without_a_partition_are_in_partition_minus_one_and_count_nothing() -> None:
    pending_records = PendingRecords("t", 5.0, lambda: None)
    assert (pending_records.partition, pending_records.records_count, pending_records.reserved_bytes) == (-1, 0, 0)


def test_a_batch_that_was_not_sent_has_no_producer_and_no_sequence() -> None:
    """KIP-98: -1 for the id, the epoch and the sequence of a producer that is not idempotent."""
    made = batch()
    made.append(1000, None, b"x")
    assert (made.producer_id, made.epoch, made.sequence) == (-1, -1, -1)
    assert (made.serial, made.skipped, made.attempts, made.partition, made.records_count) == (7, 0, 0, 3, 1)
    assert not made.is_transactional and not made.in_doubt
    (header,) = iter_batches(made.encoded())
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert not header.is_transactional


def test_a_new_number_changes_the_bytes_and_ends_the_doubt() -> None:
    made = batch()
    made.append(1000, None, b"x")
    before = made.encoded()
    assert made.encoded_bytes == len(before)
    made.in_doubt = True
    made.number(9, 2, 40)
    assert not made.in_doubt
    (header,) = iter_batches(made.encoded())
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 40)
    assert made.encoded_bytes == len(before)
    assert made.pieces() is made.pieces(), "the same for every attempt"


def test_how_many_bytes_go_out_is_known_without_asking_for_the_bytes_first() -> None:
    made = batch()
    assert made.data_bytes == 0
    made.append(1000, None, b"x")
    assert made.encoded_bytes == 61 + 8  # the header, and a record of one byte


def test_how_far_a_batch_shrank_is_observed_once_however_often_it_is_made() -> None:
    ratio = CompressionRatioEstimator()
    made = batch(GZIP, ratio)
    made.append(1000, None, b"x" * 800)
    made.pieces()
    observed = ratio.value
    assert observed < 1.0
    made.number(9, 0, 0)
    made.pieces()
    assert ratio.value == observed
