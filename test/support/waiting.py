"""Waiting for what another thread, process or broker does: one implementation, with one deadline.

The deadline lies below the 60 s after which pytest-timeout ends a test, so that a test says what it has waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

WITHIN_S: Final = 45.0
PAUSE_S: Final = 0.005


def pause() -> None:
    """Leave the processor to others for a moment."""
    time.sleep(PAUSE_S)


def until(
    condition: Callable[[], T],
    what: str = "",
    *,
    within_s: float = WITHIN_S,
    meanwhile: Callable[[], object] = pause,
    shown: Callable[[], object] = lambda: "",
) -> T:
    """Call ``condition`` until it returns something true, and return that.

    After ``within_s`` seconds the test fails with ``what`` and with what ``shown`` returns. ``meanwhile`` is called
    between two looks: something that drives a loop, or polls a consumer.
    """
    give_up_at = time.monotonic() + within_s
    while not (found := condition()):
        if time.monotonic() > give_up_at:
            raise AssertionError(f"not within {within_s:g} s: {what or 'the condition'}: {found!r} {shown()}".rstrip())
        meanwhile()
    return found


def eventually(look: Callable[[], T], expected: T, *, within_s: float = WITHIN_S) -> None:
    """Call ``look`` until it returns ``expected``; the test fails with the last value otherwise."""
    give_up_at = time.monotonic() + within_s
    while (found := look()) != expected:
        assert time.monotonic() < give_up_at, f"not within {within_s:g} s: {found!r}, expected {expected!r}"
        pause()
