"""The states of a transactional id, with Kafka's numbers and names, and the steps between them.

                 ┌────────────────────────── InitProducerId ──────────────────────────┐
                 v                                                                    │
              Empty ──add──> Ongoing ──commit──> PrepareCommit ──markers──> CompleteCommit
                 │            ^   │                                                │  │
                 │            │   └───abort───> PrepareAbort ────markers──> CompleteAbort
                 │            └───────────────────────────────────────add─────────────┘
                 └──abort (v5) ──────> PrepareAbort

A fence (InitProducerId or a timeout while a transaction is ongoing) is an abort with a new epoch; Apache Kafka has
PrepareEpochFence for the moment between, and Dead for an id that is on its way out: neither is ever stored, nor seen
here between two requests. To add a state: its member, its row, and what ``transaction.py`` does in it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class TransactionState(enum.IntEnum):
    """As ``TransactionLogValue.transaction_status`` has them; :attr:`title` is what DescribeTransactions says."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        return self.name.title().replace("_", "")


EMPTY: Final = TransactionState.EMPTY
ONGOING: Final = TransactionState.ONGOING
PREPARE_COMMIT: Final = TransactionState.PREPARE_COMMIT
PREPARE_ABORT: Final = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT: Final = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT: Final = TransactionState.COMPLETE_ABORT
DEAD: Final = TransactionState.DEAD
PREPARE_EPOCH_FENCE: Final = TransactionState.PREPARE_EPOCH_FENCE

STEPS: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    EMPTY: frozenset({EMPTY, ONGOING, PREPARE_ABORT, DEAD}),
    ONGOING: frozenset({ONGOING, PREPARE_COMMIT, PREPARE_ABORT, PREPARE_EPOCH_FENCE}),
    PREPARE_EPOCH_FENCE: frozenset({PREPARE_ABORT}),
    PREPARE_COMMIT: frozenset({COMPLETE_COMMIT}),
    PREPARE_ABORT: frozenset({COMPLETE_ABORT}),
    COMPLETE_COMMIT: frozenset({EMPTY, ONGOING, PREPARE_ABORT, DEAD}),
    COMPLETE_ABORT: frozenset({EMPTY, ONGOING, PREPARE_ABORT, DEAD}),
    DEAD: frozenset(),
}
"""State -> the states that may follow."""

COMPLETED: Final[Mapping[TransactionState, TransactionState]] = {
    PREPARE_COMMIT: COMPLETE_COMMIT,
    PREPARE_ABORT: COMPLETE_ABORT,
}
"""What a decided transaction becomes when its markers are written."""

AT_REST: Final = frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT})
"""Nothing is under way: the id may be given anew, begin a transaction, or expire."""

BY_TITLE: Final[Mapping[str, TransactionState]] = {state.title: state for state in TransactionState}
