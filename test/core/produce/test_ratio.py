"""How much a batch may hold before it is compressed, and what that does to memory."""

from __future__ import annotations

import random

import pytest

from kafka.core.produce.accumulator import BufferFull
from kafka.core.produce.batch import RATIO_SAFETY_FACTOR, CompressionRatioEstimator
from kafka.records import GZIP, NONE
from test.core.produce.support import Rig


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
