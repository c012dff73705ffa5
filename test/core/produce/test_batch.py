"""A batch before it is sent, its queue, and what it keeps of its bytes."""

from __future__ import annotations

import random

import pytest

from kafka.core.produce.accumulator import BufferFull
from kafka.core.produce.batch import (
    MOVED,
    RATIO_SAFETY_FACTOR,
    UNKNOWN_OFFSET,
    CompressionRatioEstimator,
    PartitionQueue,
    PendingRecords,
    ProducerBatch,
    TopicQueues,
)
from kafka.records import GZIP, NONE, RecordBatchBuilder, iter_batches
from test.core.produce.support import Rig


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


# -- queues of topics and partitions -----------------------------------------------------------------------------------


def test_a_topic_and_its_partitions_begin_with_nothing() -> None:
    queue, topic = PartitionQueue("t", 3), TopicQueues("t")
    assert (queue.batches_count, queue.produced_bytes, queue.room_bytes, queue.was_filled) == (0, 0, 0, False)
    assert (queue.node, queue.leader_epoch) == (-1, -1), "none, as in the protocol"
    assert (topic.sticky_from_bytes, topic.turn) == (0, 0)
    assert not queue.has_unsent


@pytest.mark.parametrize("where", ["open", "closed", "retry"])
def test_what_is_not_in_flight_is_unsent(where: str) -> None:
    rig = Rig(idempotent=False)
    queue = rig.topic.queues[0]
    batch, _ = rig.put(b"x")
    if where != "open":
        rig.accumulator.close_open_batches()
    if where == "retry":
        rig.lose(rig.call())
    assert (queue.open is batch, batch in queue.closed, batch in queue.retry) == (
        where == "open", where == "closed", where == "retry",
    )  # fmt: skip
    assert queue.has_unsent
    rig.back_off()
    call = rig.call()
    assert not queue.has_unsent
    rig.answer(call)
    assert not queue.has_unsent


# -- the compression ratio ---------------------------------------------------------------------------------------------


def settled(found: float) -> CompressionRatioEstimator:
    ratio = CompressionRatioEstimator()
    for _ in range(100):
        ratio.observe(10_000, int(10_000 * found))
    return ratio


def test_the_first_batch_of_a_topic_holds_what_it_would_without_compression() -> None:
    assert CompressionRatioEstimator().room(16_384, 1_000_000) == 16_384


def test_a_topic_that_shrinks_to_a_fifth_gets_batches_five_times_as_large_less_the_margin() -> None:
    assert settled(0.2).room(16_384, 1_000_000) == pytest.approx(16_384 / (0.2 * RATIO_SAFETY_FACTOR), rel=0.01)


def test_no_estimate_makes_a_batch_larger_than_the_most_nor_smaller_than_asked_for() -> None:
    assert settled(0.0).room(16_384, 100_000) == 100_000
    assert settled(0.0).room(16_384, 1_000) == 16_384
    assert settled(3.0).room(16_384, 100_000) == 16_384
    assert settled(0.1).room(0, 100_000) == 0


def test_bad_news_counts_at_once_and_good_news_step_by_step() -> None:
    ratio = settled(0.2)
    ratio.observe(1000, 900)
    assert ratio.value == pytest.approx(0.9)
    ratio.observe(1000, 100)
    assert 0.7 < ratio.value < 0.9


def test_a_batch_that_was_too_large_for_its_broker_begins_the_estimate_anew() -> None:
    ratio = settled(0.2)
    ratio.reset()
    assert ratio.room(16_384, 1_000_000) == 16_384


def rig_with(compression: int = GZIP, partitions: int = 1, **options: int) -> Rig:
    return Rig(partitions, linger_s=1000.0, compression=compression, **options)


def test_batches_of_what_shrinks_grow_and_those_of_noise_do_not() -> None:
    rig = rig_with(batch_bytes=2_000)
    for _ in range(600):
        rig.put(b"the same again " * 50)
        for call in rig.calls():
            rig.answer(call)
    batch, _ = rig.put(b"the same again " * 50)
    assert batch.builder.limit_bytes > 10_000
    noise = random.Random(1)
    rig = rig_with(batch_bytes=2_000)
    for _ in range(60):
        rig.put(noise.randbytes(700))
        for call in rig.calls():
            rig.answer(call)
    batch, _ = rig.put(b"")
    assert batch.builder.limit_bytes == 2_000


def test_many_partitions_share_the_memory_whatever_the_estimate_says() -> None:
    rig = rig_with(partitions=100, batch_bytes=1_000, buffer_bytes=200_000)
    ratio = rig.topic.ratio
    assert ratio is not None
    ratio.value = 0.01
    for partition in range(100):
        rig.put(b"x", partition)  # none of them raises BufferFull
    ratio.value = 1.0
    with pytest.raises(BufferFull):
        for _ in range(200):
            rig.put(b"x" * 900, 0)


def test_a_batch_that_closes_early_gives_back_what_it_did_not_need() -> None:
    rig = rig_with(batch_bytes=1_000, buffer_bytes=100_000)
    ratio = rig.topic.ratio
    assert ratio is not None
    for _ in range(40):
        ratio.value = 0.01
        rig.put_alone(b"x")  # each was let 50,000 bytes


def test_only_a_topic_that_is_compressed_has_an_estimate_and_it_keeps_it() -> None:
    assert rig_with(compression=NONE).topic.ratio is None
    rig = rig_with()
    ratio = rig.topic.ratio
    rig.accumulator.set_partitions(rig.topic, 3, [0, 1, 2])
    assert rig.topic.ratio is ratio is not None
    assert {id(queue.ratio) for queue in rig.topic.queues} == {id(ratio)}


@pytest.mark.parametrize(("partitions", "most"), [(1, 50_000), (4, 12_500)])
def test_no_batch_grows_above_what_leaves_half_of_the_memory_free_when_every_partition_has_one(
    partitions: int, most: int
) -> None:
    rig = rig_with(partitions=partitions, batch_bytes=1_000, buffer_bytes=100_000)
    assert rig.topic.ratio is not None
    rig.topic.ratio.value = 0.01
    batch, _ = rig.put(b"x")
    assert batch.limit_bytes == most


def test_an_empty_batch_says_nothing_about_how_far_records_shrink() -> None:
    ratio = CompressionRatioEstimator()
    ratio.observe(0, 0)
    assert ratio.value == 1.0
    ratio.observe(1, 0)
    assert ratio.value < 1.0


def test_a_batch_that_shrank_as_far_as_was_expected_changes_nothing() -> None:
    """CompressionRatioEstimator.updateEstimation: only what is above or below."""
    ratio = CompressionRatioEstimator()
    ratio.observe(1000, 1000)
    assert ratio.value == 1.0
    ratio.observe(1000, 1001)
    assert ratio.value == 1.05
