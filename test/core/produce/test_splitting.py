"""Where a batch is cut in two."""

from __future__ import annotations

import pytest

from kafka.core.produce.accumulator import split_batch
from kafka.core.produce.batch import BatchResult
from kafka.records import GZIP
from test.core.produce.support import Rig


@pytest.mark.parametrize(
    ("sizes", "first"),
    [
        ([10, 10], 1),
        ([10, 10, 10, 10], 2),
        ([10, 10, 10], 2),  # the first part goes on until it has half of the bytes
        ([50, 10, 10, 10], 1),
        ([20, 10, 11], 2),
        ([1, 1, 1, 500], 3),  # the second one has a record in any case
        ([1, 1, 500, 1], 3),
        ([0, 0], 1),
    ],
)
def test_a_batch_is_cut_where_the_first_part_has_half_of_its_bytes(sizes: list[int], first: int) -> None:
    rig = Rig()
    futures = [rig.future(b"x" * size) for size in sizes]
    (batch,) = rig.call().batches
    held = rig.accumulator.memory.used_bytes
    parts = split_batch(batch, rig.accumulator)
    assert [part.records_count for part in parts] == [first, len(sizes) - first]
    assert [len(value) for part in parts for value in rig.values(part)] == sizes
    assert [(part.serial, part.skipped, part.sequence) for part in parts] == [(1, 0, 0), (1, first, first)]
    assert [(part.producer_id, part.epoch) for part in parts] == [(9, 0)] * 2
    assert [part.created_at for part in parts] == [batch.created_at] * 2
    assert not any(future.is_done for future in futures)
    assert list(rig.accumulator.incomplete) == parts
    assert [part.reserved_bytes for part in parts] == [held - held // 2, held // 2]
    assert rig.accumulator.memory.used_bytes == held
    assert batch.reserved_bytes == 0
    parts[0].done.success(BatchResult(5, -1))
    assert [future.succeeded() for future in futures] == [place < first for place in range(len(sizes))]


def test_a_part_that_is_cut_again_keeps_its_place_among_the_others() -> None:
    rig = Rig(idempotent=False)
    for _ in range(8):
        rig.put(b"x" * 10)
    (batch,) = rig.call().batches
    left, right = split_batch(batch, rig.accumulator)
    assert [part.skipped for whole in (left, right) for part in split_batch(whole, rig.accumulator)] == [0, 2, 4, 6]
    assert {part.sequence for part in (left, right)} == {-1}


def test_a_topic_whose_batch_was_too_large_is_not_expected_to_shrink_any_more() -> None:
    """RecordAccumulator.splitAndReenqueue: CompressionRatioEstimator.resetEstimation."""
    rig = Rig(compression=GZIP, idempotent=False)
    ratio = rig.topic.ratio
    assert ratio is not None
    for _ in range(2):
        rig.put(b"x" * 500)
    (batch,) = rig.call().batches
    assert ratio.value < 1.0
    split_batch(batch, rig.accumulator)
    assert ratio.value == 1.0
