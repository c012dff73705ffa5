"""How long a member of a classic group waits between attempts to join."""

from __future__ import annotations

import pytest

from kafka.core.group.attempts import Attempts
from kafka.core.group.classic_reactions import Reaction
from kafka.core.retry import Backoff


class NoChance:
    def random(self) -> float:
        return 0.5


ANSWERED = [0.0, 0.5, 1.0, 2.0, 4.0]
"""The group answered that it goes on without the member: the first attempt comes at once."""
FAILED = [0.5, 1.0, 2.0, 4.0, 4.0]
WAITS_S = {
    Reaction.RETRY: FAILED,
    Reaction.FIND_COORDINATOR: FAILED,
    Reaction.REPORT: [1.0, 1.0, 2.0, 4.0, 4.0],  # the user was told: a second at least
    Reaction.TAKE_ID: ANSWERED,
    Reaction.REJOIN: ANSWERED,
    Reaction.NEW_GENERATION: ANSWERED,
    Reaction.NEW_MEMBER: ANSWERED,
    Reaction.GIVE_UP: ANSWERED,
}


@pytest.mark.parametrize("reaction", Reaction)
def test_failures_in_a_row_wait_ever_longer(reaction: Reaction) -> None:
    attempts = Attempts(Backoff(0.5, 4.0, NoChance()))
    for _ in range(2):
        waits = []
        for _ in range(5):
            attempts.failed(reaction, 100.0)
            waits.append(attempts.at - 100.0)
        assert waits == WAITS_S[reaction]
        attempts.succeeded()
