"""Tests of ``kafka.tasks.states``."""

from __future__ import annotations

import pytest

from kafka.tasks.states import EXCEPTION, FULL_RUN, READY, UNREADY, JobState


@pytest.mark.parametrize("state", JobState)
def test_a_state_is_its_name_as_a_text_and_still_a_number(state: JobState) -> None:
    assert str(state) == f"{state}" == state.name
    assert f"{state:>9}" == state.name.rjust(9)
    assert int(state) == state.value
    assert JobState.SUCCESS < JobState.QUEUED


def test_states_and_their_sets_are_those_that_other_tools_know() -> None:
    # task-queue.md "Topics of an app": numbers and sets; SCHEDULED comes before QUEUED, and UNKNOWN and PENDING, which
    # are of handles alone, are behind all others
    expected = {
        "SUCCESS": 1, "FAILURE": 2, "REVOKED": 3, "RETRY": 4, "STARTED": 5, "QUEUED": 6, "SCHEDULED": 7,
        "UNKNOWN": 8, "PENDING": 9,
    }  # fmt: skip
    assert {name: int(state) for name, state in JobState.__members__.items()} == expected
    found = {name: {state.name for state in states} for name, states in (
        ("FULL_RUN", FULL_RUN), ("READY", READY), ("EXCEPTION", EXCEPTION), ("UNREADY", UNREADY),
        ("is_final", [state for state in JobState if state.is_final]),
    )}  # fmt: skip
    assert found == {
        "FULL_RUN": {"FAILURE", "SUCCESS"},
        "READY": {"REVOKED", "FAILURE", "SUCCESS"},
        "EXCEPTION": {"FAILURE", "REVOKED"},
        "UNREADY": {"PENDING", "SCHEDULED", "QUEUED", "STARTED", "RETRY"},
        "is_final": {"REVOKED", "FAILURE", "SUCCESS"},
    }
