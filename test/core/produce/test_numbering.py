from __future__ import annotations

import pytest

from kafka.core.produce.producer_id import ProducerIdAndEpoch, SequenceNumbers


def test_a_partition_that_was_never_written_to_counts_from_0_and_has_no_producer() -> None:
    numbers = SequenceNumbers()
    assert (numbers.identity, numbers.next_sequence, numbers.used_at) == ((-1, -1), 0, 0.0)
    assert not numbers.has_gap and not numbers.is_known


@pytest.mark.parametrize(
    ("identity", "is_known"),
    [((9, 1), True), ((10, 0), False)],  # KIP-360: the leader knows the id when its epoch is raised, and not another
)
def test_another_epoch_counts_from_0_and_another_id_is_new_to_the_leader(
    identity: tuple[int, int], is_known: bool
) -> None:
    numbers = SequenceNumbers()
    numbers.begin(ProducerIdAndEpoch(9, 0))
    numbers.take(5)
    numbers.has_gap = numbers.is_known = True
    numbers.begin(ProducerIdAndEpoch(*identity))
    assert (numbers.identity, numbers.next_sequence, numbers.has_gap) == (identity, 0, False)
    assert numbers.is_known is is_known


def test_numbers_count_records_go_from_the_largest_int32_to_0_and_can_be_taken_back() -> None:
    """DefaultRecordBatch.incrementSequence."""
    numbers = SequenceNumbers()
    assert [numbers.take(3), numbers.take(1), numbers.take(1)] == [0, 3, 4]
    numbers.has_gap = True
    numbers.rewind(2**31 - 2)
    assert not numbers.has_gap
    assert [numbers.take(1), numbers.take(3), numbers.take(1)] == [2**31 - 2, 2**31 - 1, 2]
