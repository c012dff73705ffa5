"""Tests of ``kafka.tasks.options``."""

from __future__ import annotations

from typing import Any

import pytest

from kafka.errors import IllegalArgumentError
from kafka.tasks.options import LATER, call_options, task_options
from kafka.tasks.retry import Retry


@pytest.mark.parametrize("name", sorted(LATER))
def test_an_option_of_a_later_release_is_no_silence(name: str) -> None:
    for read in (task_options, call_options):
        with pytest.raises(IllegalArgumentError, match=f"'{name}'.*does not have yet"):
            read({name: 1})


def test_an_unknown_option_names_the_nearest_one() -> None:
    with pytest.raises(IllegalArgumentError, match="did you mean 'timeout'"):
        task_options({"time_out": 3})
    with pytest.raises(IllegalArgumentError, match="a call has no option 'retry'"):
        call_options({"retry": Retry()})


@pytest.mark.parametrize(
    "given",
    [
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": True},
        {"expires": "tomorrow"},
        {"soft_timeout": 5, "timeout": 5},
        {"queue": "no queue"},
        {"store_result": 0},
        {"serializer": "yaml"},
    ],
)
def test_an_option_that_makes_no_sense_is_refused_everywhere(given: dict[str, Any]) -> None:
    for read in (task_options, call_options):
        with pytest.raises(IllegalArgumentError):
            read(given)


@pytest.mark.parametrize("given", [{"name": ""}, {"name": "a\nb"}, {"bind": 1}, {"retry": 3}])
def test_a_declaration_that_makes_no_sense_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(IllegalArgumentError):
        task_options(given)


def test_none_is_as_good_as_nothing() -> None:
    assert task_options({"queue": None, "retry": None, "timeout": None}) == task_options({})
