from __future__ import annotations

import pytest

from kafka.broker.transactions.states import AT_REST, BY_TITLE, COMPLETED, DEAD, EMPTY, STEPS, TransactionState
from kafka.broker.transactions.transaction import Transaction


def test_numbers_and_names_are_kafkas() -> None:
    assert [state.title for state in TransactionState] == [
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
        "PrepareEpochFence",
    ]  # fmt: skip
    assert BY_TITLE["CompleteAbort"] is TransactionState.COMPLETE_ABORT


def test_every_state_is_reached_and_only_the_dead_stay() -> None:
    assert set(STEPS) == set(TransactionState)
    reached = {EMPTY}
    for _ in TransactionState:
        reached |= {after for state in reached for after in STEPS[state]}
    assert reached == set(TransactionState)
    assert [state for state in STEPS if not STEPS[state]] == [DEAD]


def test_what_is_decided_can_only_be_completed() -> None:
    for decided, end in COMPLETED.items():
        assert STEPS[decided] == {end}
        assert end in AT_REST


def test_a_step_that_the_table_lacks_is_a_fault_of_ours() -> None:
    with pytest.raises(RuntimeError, match="no step from Empty to CompleteCommit"):
        Transaction(1, 1000, 0).step(TransactionState.COMPLETE_COMMIT, 1)
