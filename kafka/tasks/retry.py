"""The retry policy of a task: how many attempts, for which errors, how far apart.

``max_attempts`` counts *all* attempts, the first included. The policy decides nothing by itself:
:func:`kafka.tasks.rules.decide.decide` does, from the numbers. The next attempt goes to the schedule, with the time at
which it is due; without a back-off it goes to its queue at once.
"""

from __future__ import annotations

import functools
import inspect
import random
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import ParamSpec, TypeAlias, TypeVar

from kafka.errors import IllegalArgumentError
from kafka.tasks.errors import LONGEST_DELAY_S, check_delay, did_you_mean

_TRIED = 20
"""Attempts whose delay is tried when the policy is declared."""

Backoff: TypeAlias = Callable[[int], float]
"""Seconds to wait after attempt ``n`` (1, 2, ...) has failed."""


P = ParamSpec("P")
R = TypeVar("R")


def _with_known_names(function: Callable[P, R]) -> Callable[P, R]:
    """``function``, which names the nearest argument when it is given an unknown one."""
    known = tuple(inspect.signature(function).parameters)

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        _check_names(function.__name__, kwargs, known)
        return function(*args, **kwargs)

    return checked


def _check_names(what: str, given: Iterable[str], known: Collection[str]) -> None:
    for name in given:
        if name not in known:
            raise IllegalArgumentError(f"{what} has no argument {name!r}{did_you_mean(name, known)}")


@_with_known_names
def expo(first: float = 4, factor: float = 2, cap: float = 900) -> Backoff:
    """Exponential back-off: ``first`` seconds after the first failure, then ``factor`` times more, ``cap`` at most."""
    if not (first > 0 and factor >= 1 and first <= cap <= LONGEST_DELAY_S):
        raise IllegalArgumentError(
            f"expo(first={first}, factor={factor}, cap={cap}): first must be above 0, factor at least 1, "
            "cap from first to a century"
        )

    def wait(attempt: int) -> float:
        try:
            return min(first * factor ** (attempt - 1), cap)
        except OverflowError:
            return cap

    return wait


@dataclass(frozen=True)
class Retry:
    """Run a failed job again.

    ``max_attempts``: all attempts, at least 1. ``on``: exception classes that are worth another attempt; any other
    sends the job to the dead topic at once; empty means every error. ``backoff``: seconds by attempt, for example
    :func:`expo`, without it the next attempt follows at once. ``jitter``: shorten each wait by a random
    part of up to a half, so that many failures at once do not come back at once.
    """

    max_attempts: int = 5
    on: tuple[type[BaseException], ...] = ()
    backoff: Backoff | None = None
    jitter: bool = True

    def __new__(cls, *args: object, **given: object) -> Retry:
        _check_names("Retry", given, cls.__dataclass_fields__)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        if isinstance(self.max_attempts, bool) or not isinstance(self.max_attempts, int) or self.max_attempts < 1:
            raise IllegalArgumentError(f"Retry(max_attempts=) must be an integer above 0, not {self.max_attempts!r}")
        classes = self.on if isinstance(self.on, tuple) else (self.on,)
        for each in classes:
            if not (isinstance(each, type) and issubclass(each, BaseException)):
                raise IllegalArgumentError(f"Retry(on=) takes a tuple of exception classes, not {each!r}")
        object.__setattr__(self, "on", classes)
        if self.backoff is not None and not callable(self.backoff):
            raise IllegalArgumentError(f"Retry(backoff=) takes a function, such as expo(), not {self.backoff!r}")
        if self.backoff is not None:
            for attempt in range(1, min(self.max_attempts, _TRIED)):
                check_delay(f"Retry(backoff=): the delay after attempt {attempt}", self.backoff(attempt))

    def lists(self, error: BaseException) -> bool:
        """Whether ``error`` is worth another attempt."""
        return not self.on or isinstance(error, self.on)

    def wait_s(self, attempt: int, rng: random.Random) -> float:
        """Seconds between the failure of ``attempt`` and the next one."""
        if self.backoff is None:
            return 0.0
        wait = min(max(0.0, self.backoff(attempt)), LONGEST_DELAY_S)
        return wait * (1 - rng.random() / 2) if self.jitter else wait
