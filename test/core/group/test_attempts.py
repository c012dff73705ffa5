"""How long a member of a classic group waits between attempts to join."""

from __future__ import annotations

import pytest

from kafka.core.group.classic import ClassicErrorAction, JoinAttempts
from kafka.core.retry import Backoff


class NoChance:
    def random(self) -> float:
        return 0.5


ANSWERED = [0.0, 0.5, 1.0, 2.0, 4.0]
"""The group answered that it goes on without the member: the first attempt comes at once."""
FAILED = [0.5, 1.0, 2.0, 4.0, 4.0]
WAITS_S = {
    ClassicErrorAction.RETRY: FAILED,
    ClassicErrorAction.FIND_COORDINATOR: FAILED,
    ClassicErrorAction.REPORT: [1.0, 1.0, 2.0, 4.0, 4.0],  # the user was told: a second at least
    ClassicErrorAction.TAKE_ID: ANSWERED,
    ClassicErrorAction.REJOIN: ANSWERED,
    ClassicErrorAction.NEW_GENERATION: ANSWERED,
    ClassicErrorAction.NEW_MEMBER: ANSWERED,
    ClassicErrorAction.GIVE_UP: ANSWERED,
}


@pytest.mark.parametrize("reaction", ClassicErrorAction)
def test_failures_in_a_row_wait_ever_longer(reaction: ClassicErrorAction) -> None:
    attempts = JoinAttempts(Backoff(0.5, 4.0, NoChance()))
    for _ in range(2):
        waits = []
        for _ in range(5):
            attempts.failed(reaction, 100.0)
            waits.append(attempts.at - 100.0)
        assert waits == WAITS_S[reaction]
        attempts.succeeded()
