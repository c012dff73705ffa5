"""Tests of ``kafka.tasks.states``."""

from __future__ import annotations

import pytest

from kafka.tasks.states import JobState


@pytest.mark.parametrize("state", JobState)
def test_a_state_is_its_name_as_a_text_and_still_a_number(state: JobState) -> None:
    assert str(state) == f"{state}" == state.name
    assert f"{state:>9}" == state.name.rjust(9)
    assert int(state) == state.value
    assert JobState.SUCCESS < JobState.QUEUED
