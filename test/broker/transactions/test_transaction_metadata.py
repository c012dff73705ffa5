"""One transactional id, step by step. The codes and their order were measured on Apache Kafka 4.3.0."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from kafka.broker.transactions.transaction_metadata import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    LAST_GIVEN_EPOCH,
    MAX_EPOCH,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionMetadata,
    after_add_partitions,
    after_end,
    after_fence,
    after_init,
    after_markers,
    check_member,
    must_abort_first,
)
from kafka.errors import (
    BrokerResponseError,
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    ProducerFencedError,
    TransactionAbortableError,
)
from kafka.structs import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
NEXT_ID = 900
OLD, NEW = 0, 2


def new_id() -> int:
    return NEXT_ID


def given(epoch: int = 0, **fields: object) -> TransactionMetadata:
    """Producer 7 with an id; ``last_epoch`` as after an InitProducerId of its own."""
    found = TransactionMetadata(7, 60_000, 1, epoch=epoch)
    return found._replace(**fields)  # type: ignore[arg-type]


def ongoing(epoch: int = 0) -> TransactionMetadata:
    return after_add_partitions(given(epoch), (7, epoch), [A], NEW, 5)


# -- InitProducerId ---------------------------------------------------------------------------------------------------


def test_the_first_epoch_is_0_and_each_new_owner_gets_the_next() -> None:
    first = after_init(TransactionMetadata(7, 1, 1), 500, None, new_id, 2)
    assert (first.producer, first.timeout_ms, first.updated_ms) == ((7, 0), 500, 2)
    second = after_init(first, 600, None, new_id, 3)
    assert (second.producer, second.last_epoch, second.timeout_ms) == ((7, 1), -1, 600)


def test_a_living_producer_raises_its_epoch_and_may_ask_twice() -> None:
    bumped = after_init(given(3), 1, (7, 3), new_id, 2)
    assert bumped.producer == (7, 4)
    assert after_init(bumped, 1, (7, 3), new_id, 3).producer == (7, 4)
    assert after_init(bumped, 1, (7, 4), new_id, 3).producer == (7, 5)


@pytest.mark.parametrize("expected", [(7, 2), (7, 20), (8, 3), (8, LAST_GIVEN_EPOCH)])
def test_a_producer_that_was_replaced_is_fenced(expected: tuple[int, int]) -> None:
    with pytest.raises(ProducerFencedError):
        after_init(given(3), 1, expected, new_id, 2)


def test_a_producer_that_nobody_remembers_is_welcome_with_whatever_it_brings() -> None:
    assert after_init(TransactionMetadata(7, 1, 1), 1, (5, 2), new_id, 2).producer == (7, 0)


def test_exhausted_epochs_give_a_new_producer_id_that_the_old_one_may_ask_for_again() -> None:
    rotated = after_init(given(LAST_GIVEN_EPOCH), 1, (7, LAST_GIVEN_EPOCH), new_id, 2)
    assert (rotated.producer, rotated.previous_producer_id) == ((NEXT_ID, 0), 7)
    assert after_init(rotated, 1, (7, LAST_GIVEN_EPOCH), new_id, 3).producer == (NEXT_ID, 0)
    assert after_init(given(LAST_GIVEN_EPOCH), 1, None, new_id, 2).producer == (NEXT_ID, 0)
    with pytest.raises(ProducerFencedError):
        after_init(rotated, 1, (7, 5), new_id, 3)


def test_an_ongoing_transaction_is_aborted_first_and_a_decided_one_waited_for() -> None:
    assert must_abort_first(ongoing(), None)
    assert not must_abort_first(given(), None)
    assert must_abort_first(ongoing(3), (7, 1)), "as in Kafka: the epoch is looked at only when nothing is ongoing"
    with pytest.raises(ProducerFencedError):
        must_abort_first(ongoing(3), (8, 3))
    with pytest.raises(ConcurrentTransactionsError):
        must_abort_first(given(state=PREPARE_COMMIT), None)


# -- fences -----------------------------------------------------------------------------------------------------------


def test_a_fence_leaves_an_epoch_that_only_its_producer_may_learn() -> None:
    done = after_markers(after_fence(ongoing(4), NEW, new_id, 6), 7)
    assert (done.state, done.producer, done.last_epoch) == (COMPLETE_ABORT, (7, 5), 4)
    assert after_init(done, 1, (7, 4), new_id, 8).producer == (7, 5)
    assert after_init(done, 1, None, new_id, 8).producer == (7, 6)


def test_a_fence_by_a_broker_before_kip_890_is_not_reported() -> None:
    done = after_markers(after_fence(ongoing(4), 1, new_id, 6), 7)
    assert done.producer == (7, 5)
    with pytest.raises(ProducerFencedError):
        after_init(done, 1, (7, 4), new_id, 8)


def test_the_last_epoch_is_kept_for_the_fence() -> None:
    decided = after_fence(ongoing(LAST_GIVEN_EPOCH), NEW, new_id, 6)
    assert decided.epoch == MAX_EPOCH
    assert after_markers(decided, 7).producer == (NEXT_ID, 0)


# -- partitions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_the_first_partition_begins_the_transaction(state: object) -> None:
    begun = after_add_partitions(given(state=state), (7, 0), [A], NEW, 50)
    assert (begun.state, begun.start_ms, begun.partitions) == (ONGOING, 50, frozenset({A}))
    more = after_add_partitions(begun, (7, 0), [A, B], NEW, 60)
    assert (more.start_ms, more.updated_ms, more.partitions) == (50, 60, frozenset({A, B}))
    assert after_add_partitions(more, (7, 0), [B], NEW, 70) is more


@pytest.mark.parametrize(
    ("found", "producer", "error"),
    [
        (given(), (8, 0), InvalidProducerIdMappingError),
        (given(), (7, 1), ProducerFencedError),
        (given(3), (7, 2), ProducerFencedError),
        (given(state=PREPARE_COMMIT), (7, 0), ConcurrentTransactionsError),
        (given(state=PREPARE_ABORT), (8, 9), ConcurrentTransactionsError),
    ],
)
def test_who_may_not_add_partitions(found: TransactionMetadata, producer: tuple[int, int], error: type) -> None:
    with pytest.raises(error):
        after_add_partitions(found, producer, [A], NEW, 5)


@pytest.mark.parametrize(
    ("found", "producer", "error"),
    [
        (ongoing(), (7, 0), None),
        (given(), (7, 0), TransactionAbortableError),
        (given(), (8, 0), InvalidProducerIdMappingError),
        (given(), (7, 1), ProducerFencedError),
        (given(state=PREPARE_ABORT), (7, 0), ConcurrentTransactionsError),
        (given(state=PREPARE_ABORT), (7, 1), ProducerFencedError),
    ],
)
def test_what_verification_says(found: TransactionMetadata, producer: tuple[int, int], error: type | None) -> None:
    if error is None:
        check_member(found, producer, A)
    else:
        with pytest.raises(error):
            check_member(found, producer, A)


# -- ends -------------------------------------------------------------------------------------------------------------


def finish(found: TransactionMetadata, producer: tuple[int, int], committed: bool, version: int) -> TransactionMetadata:
    """As the coordinator does: decided, then completed."""
    following = after_end(found, producer, committed, version, new_id, 10)
    return following if following is found else after_markers(following, 11)


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize(("version", "epoch"), [(OLD, 4), (NEW, 5)])
def test_the_new_protocol_raises_the_epoch_at_each_end(committed: bool, version: int, epoch: int) -> None:
    done = finish(ongoing(4), (7, 4), committed, version)
    assert done.state is (COMPLETE_COMMIT if committed else COMPLETE_ABORT)
    assert (done.producer, done.partitions) == ((7, epoch), frozenset())
    assert finish(done, (7, 4), committed, version) is done, "a retry is answered as the first one"
    with pytest.raises(InvalidTxnStateError):
        finish(done, (7, 4), not committed, version)


def test_an_abort_of_nothing_raises_the_epoch_in_the_new_protocol_and_is_refused_in_the_old() -> None:
    assert finish(given(2), (7, 2), False, NEW).producer == (7, 3)
    with pytest.raises(InvalidTxnStateError):
        finish(given(2), (7, 2), False, OLD)
    for version in (OLD, NEW):
        with pytest.raises(InvalidTxnStateError):
            finish(given(2), (7, 2), True, version)


def test_an_abort_of_nothing_after_a_commit_is_not_taken_for_a_retry() -> None:
    done = finish(ongoing(4), (7, 4), True, NEW)
    assert finish(done, (7, 5), False, NEW).producer == (7, 6)
    with pytest.raises(InvalidTxnStateError):
        finish(done, (7, 5), True, NEW)


def test_the_end_that_uses_up_the_epochs_gives_a_new_producer_id() -> None:
    decided = after_end(ongoing(LAST_GIVEN_EPOCH), (7, LAST_GIVEN_EPOCH), True, NEW, new_id, 10)
    assert (decided.producer_id, decided.epoch, decided.producer) == (7, MAX_EPOCH, (NEXT_ID, 0))
    done = after_markers(decided, 11)
    assert done.producer == (NEXT_ID, 0)
    assert finish(done, (7, LAST_GIVEN_EPOCH), True, NEW) is done
    with pytest.raises(InvalidTxnStateError):
        finish(done, (7, LAST_GIVEN_EPOCH), False, NEW)


@pytest.mark.parametrize(
    ("found", "producer", "version", "error"),
    [
        (ongoing(), (8, 0), OLD, InvalidProducerIdMappingError),
        (ongoing(), (8, 0), NEW, InvalidProducerIdMappingError),
        (ongoing(4), (7, 3), OLD, ProducerFencedError),
        (ongoing(4), (7, 3), NEW, ProducerFencedError),
        (ongoing(4), (7, 5), NEW, ProducerFencedError),
        (given(state=PREPARE_COMMIT), (7, 0), OLD, ConcurrentTransactionsError),
        (given(state=PREPARE_ABORT), (7, 0), OLD, InvalidTxnStateError),
        (given(4, state=PREPARE_COMMIT), (7, 3), NEW, ConcurrentTransactionsError),
        (given(4, state=PREPARE_ABORT), (7, 1), NEW, ConcurrentTransactionsError),
    ],
)
def test_who_may_not_end(found: TransactionMetadata, producer: tuple[int, int], version: int, error: type) -> None:
    with pytest.raises(error):
        after_end(found, producer, True, version, new_id, 5)


def test_no_order_of_calls_leaves_the_table_or_lets_an_epoch_go_back() -> None:
    """Every sequence of four calls, with the present producer and with one that is late."""
    calls: dict[str, Callable[[TransactionMetadata, tuple[int, int]], TransactionMetadata]] = {
        "init": lambda found, who: after_init(found, 1, None, new_id, 9),
        "bump": lambda found, who: after_init(found, 1, who, new_id, 9),
        "add": lambda found, who: after_add_partitions(found, who, [A], NEW, 9),
        "commit": lambda found, who: finish(found, who, True, NEW),
        "abort": lambda found, who: finish(found, who, False, NEW),
        "old commit": lambda found, who: finish(found, who, True, OLD),
        "old abort": lambda found, who: finish(found, who, False, OLD),
        "fence": lambda found, who: (
            after_markers(after_fence(found, NEW, new_id, 9), 9) if found.state is ONGOING else found
        ),
    }
    for names in itertools.product(calls, repeat=4):
        found = given(1)
        for name in names:
            if name in ("init", "bump") and found.state is ONGOING:
                continue
            for late in (1, 0):
                before = found
                try:
                    found = calls[name](found, (found.producer_id, max(0, found.epoch - late)))
                except BrokerResponseError:
                    continue
                assert found.epoch >= before.epoch, names
                assert found.state is ONGOING or not found.partitions
