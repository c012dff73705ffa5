from __future__ import annotations

import pytest

from kafka.broker.transactions.transaction_metadata import (
    AT_REST,
    BY_TITLE,
    COMPLETED,
    DEAD,
    EMPTY,
    STEPS,
    CoordinatorTransactionState,
    TransactionMetadata,
)


def test_numbers_and_names_are_kafkas() -> None:
    assert [state.title for state in CoordinatorTransactionState] == [
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
        "PrepareEpochFence",
    ]  # fmt: skip
    assert BY_TITLE["CompleteAbort"] is CoordinatorTransactionState.COMPLETE_ABORT


def test_every_state_is_reached_and_only_the_dead_stay() -> None:
    assert set(STEPS) == set(CoordinatorTransactionState)
    reached = {EMPTY}
    for _ in CoordinatorTransactionState:
        reached |= {after for state in reached for after in STEPS[state]}
    assert reached == set(CoordinatorTransactionState)
    assert [state for state in STEPS if not STEPS[state]] == [DEAD]


def test_what_is_decided_can_only_be_completed() -> None:
    for decided, end in COMPLETED.items():
        assert STEPS[decided] == {end}
        assert end in AT_REST


def test_a_step_that_the_table_lacks_is_a_fault_of_ours() -> None:
    with pytest.raises(RuntimeError, match="no transition from Empty to CompleteCommit"):
        TransactionMetadata(1, 1000, 0).step(CoordinatorTransactionState.COMPLETE_COMMIT, 1)
