"""Tests of ``kafka.tasks.retry``."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import random
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest

from kafka.errors import IllegalArgumentError
from kafka.tasks import RetryAt, Snooze
from kafka.tasks.errors import wall_clock
from kafka.tasks.retry import Retry, expo


def test_expo_doubles_up_to_its_cap() -> None:
    wait = expo(first=4, factor=2, cap=900)
    assert [wait(n) for n in (1, 2, 3, 8, 9, 10_000)] == [4, 8, 16, 512, 900, 900]


def test_without_backoff_a_retry_follows_at_once() -> None:
    assert Retry().wait_s(7, random.Random(1)) == 0


def test_jitter_takes_away_half_at_most() -> None:
    waits = [Retry(backoff=expo(first=8)).wait_s(1, random.Random(seed)) for seed in range(200)]
    assert 4 <= min(waits) < 4.5
    assert 7.5 < max(waits) <= 8
    assert Retry(backoff=expo(first=8), jitter=False).wait_s(1, random.Random(1)) == 8


def test_a_policy_lists_its_errors_and_their_subclasses() -> None:
    policy = Retry(on=(OSError,))
    assert policy.lists(FileNotFoundError())
    assert not policy.lists(ValueError())
    assert Retry().lists(ValueError())


def test_one_class_needs_no_tuple() -> None:
    on: Any = OSError
    assert Retry(on=on).on == (OSError,)


@pytest.mark.parametrize(
    "arguments",
    [{"max_attempts": 0}, {"max_attempts": True}, {"max_attempts": 2.0}, {"on": ("OSError",)}, {"backoff": 4}],
)
def test_a_policy_that_makes_no_sense_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(IllegalArgumentError):
        Retry(**arguments)


@pytest.mark.parametrize(
    ("make", "arguments", "text"),
    [
        (Retry, {"max_atempts": 3}, "Retry has no argument 'max_atempts'; did you mean 'max_attempts'?"),
        (expo, {"frist": 1}, "expo has no argument 'frist'; did you mean 'first'?"),
        (expo, {"x": 1}, "expo has no argument 'x'; known are cap, factor, first"),
    ],
)
def test_an_unknown_argument_names_the_nearest_one(
    make: Callable[..., object], arguments: dict[str, Any], text: str
) -> None:
    with pytest.raises(IllegalArgumentError) as caught:
        make(**arguments)
    assert str(caught.value).endswith(text)


def test_a_policy_can_be_copied_and_pickled() -> None:
    policy = Retry(3, on=(OSError,))
    assert pickle.loads(pickle.dumps(policy)) == copy.copy(policy) == policy
    assert dataclasses.replace(policy, jitter=False) == Retry(3, (OSError,), None, False)


@pytest.mark.parametrize("arguments", [{"first": 0}, {"factor": 0.5}, {"first": 10, "cap": 5}])
def test_a_backoff_that_makes_no_sense_is_refused(arguments: dict[str, float]) -> None:
    with pytest.raises(IllegalArgumentError):
        expo(**arguments)


@pytest.mark.parametrize("when", [-1e18, -0.001, 0])
def test_a_time_before_1970_is_the_present_of_a_clock_of_then(when: float) -> None:
    """The record of the next attempt has it as a natural number."""
    token = wall_clock.set(lambda: 0.0)
    try:
        assert RetryAt(when).due_ms == 0
    finally:
        wall_clock.reset(token)


@pytest.mark.parametrize(
    ("when", "delay"),
    [(5, "5"), (0, "1"), (-1e18, "1"), (3600.5, "3600.5"), (datetime(1999, 12, 31, tzinfo=timezone.utc), "86400")],
)
def test_a_delay_in_the_place_of_a_time_is_refused(when: float | datetime, delay: str) -> None:
    with pytest.raises(IllegalArgumentError) as caught:
        RetryAt(when)
    assert str(caught.value).removeprefix("IllegalArgumentError: ") == (
        f"RetryAt({when!r}): that is a time (seconds since 1970) and not a delay; use Snooze({delay}), or "
        f"RetryAt(datetime.now(timezone.utc) + timedelta(seconds={delay}))"
    )
    assert RetryAt(time.time() - 3600).due_ms > 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: Snooze(-1),
        lambda: Snooze(3.2e9),
        lambda: Snooze(float("nan")),
        lambda: Snooze(True),
        lambda: RetryAt(float("inf")),
        lambda: RetryAt(time.time() + 3.2e9),
        lambda: RetryAt(datetime(2026, 1, 1)),
        lambda: expo(cap=float("inf")),
        lambda: Retry(backoff=lambda attempt: float("inf")),
        lambda: Retry(backoff=lambda attempt: -1.0),
        lambda: Retry(backoff=lambda attempt: 100.0**attempt, max_attempts=8),
    ],
)
def test_a_delay_that_has_no_end_or_makes_no_sense_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(IllegalArgumentError) as caught:
        make()
    assert "\n" not in str(caught.value)
