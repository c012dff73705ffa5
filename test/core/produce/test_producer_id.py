"""When an idempotent producer asks for an id, and when it raises its epoch by itself."""

from __future__ import annotations

import pytest

from kafka.core.produce.batch import ProducerIdAndEpoch, SequenceNumbers
from kafka.core.produce.sender import ProducerIdPhase, ProducerIdState
from kafka.errors import KafkaTimeoutError


def test_an_id_is_asked_for_once_and_after_an_error_not_before_its_time() -> None:
    identity = ProducerIdState(True)
    assert (identity.state, identity.value, identity.failures) == (ProducerIdPhase.NEEDED, (-1, -1), 0)
    assert identity.is_on and not identity.is_ready
    assert identity.should_ask(0.0)
    assert identity.state is ProducerIdPhase.ASKED
    assert not identity.should_ask(0.0)
    error = KafkaTimeoutError("no answer")
    identity.failed(error, 2.0)
    assert identity.last_error is error
    assert identity.state is ProducerIdPhase.NEEDED
    assert not identity.should_ask(1.9)
    assert identity.should_ask(2.0)
    identity.failures = 3
    identity.received(ProducerIdAndEpoch(9, 0))
    assert identity.is_ready and identity.failures == 0
    assert identity.last_error is None
    assert not identity.should_ask(3.0)


@pytest.mark.parametrize(
    ("epoch", "after", "state"),
    [
        (0, (9, 1), ProducerIdPhase.READY),
        (32766, (9, 32767), ProducerIdPhase.READY),
        (32767, (-1, -1), ProducerIdPhase.NEEDED),
    ],
)
def test_the_epoch_is_raised_up_to_the_largest_int16_and_then_another_id_is_needed(
    epoch: int, after: tuple[int, int], state: ProducerIdPhase
) -> None:
    """TransactionManager.bumpIdempotentProducerEpoch: at Short.MAX_VALUE the id is reset."""
    identity = ProducerIdState(True)
    identity.received(ProducerIdAndEpoch(9, epoch))
    identity.raise_epoch()
    assert (identity.value, identity.state) == (after, state)


def test_the_id_of_a_transaction_is_its_coordinators_to_give() -> None:
    identity = ProducerIdState(True, is_given=True)
    assert not identity.should_ask(0.0)
    identity.raise_epoch()
    assert identity.state is ProducerIdPhase.NEEDED
    identity.received(ProducerIdAndEpoch(9, 4))
    identity.raise_epoch()
    assert (identity.value, identity.state) == ((9, 4), ProducerIdPhase.READY)


def test_an_epoch_that_is_not_there_is_not_raised() -> None:
    identity = ProducerIdState(True)
    identity.raise_epoch()
    assert (identity.value, identity.state) == ((-1, -1), ProducerIdPhase.NEEDED)


def test_a_producer_that_is_not_idempotent_asks_for_nothing() -> None:
    off = ProducerIdState(False)
    turned_off = ProducerIdState(True)
    turned_off.received(ProducerIdAndEpoch(9, 4))
    turned_off.turn_off()
    for identity in (off, turned_off):
        assert identity.state is ProducerIdPhase.OFF
        assert not identity.is_on and not identity.is_ready and not identity.should_ask(0.0)
        assert identity.value == (-1, -1)


# -- sequence numbers --------------------------------------------------------------------------------------------------


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
