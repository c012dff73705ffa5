"""Waiting for what another thread, process or broker does: one implementation, with one deadline.

The deadline lies below the 60 s after which pytest-timeout ends a test, so that a test says what it has waited for.
"""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")

WITHIN_S: Final = 45.0
PAUSE_S: Final = 0.005


def pause() -> None:
    """Leave the processor to others for a moment."""
    time.sleep(PAUSE_S)


class NotWithin(AssertionError):
    """What a test has waited for did not come."""

    def __init__(self, text: str, found: object) -> None:
        super().__init__(text)
        self.found: Any = found
        """What was seen last."""


def look_until(
    look: Callable[[], T],
    is_so: Callable[[T], object],
    what: str = "",
    *,
    within_s: float = WITHIN_S,
    meanwhile: Callable[[], object] = pause,
    shown: Callable[[], object] = lambda: "",
) -> T:
    """Call ``look`` until ``is_so`` holds for what it returns, and return that.

    After ``within_s`` seconds the test fails with ``what``, what was seen last, and what ``shown`` returns.
    ``meanwhile`` is called between two looks: something that drives a loop, or polls a consumer.
    """
    give_up_at = time.monotonic() + within_s
    while not is_so(found := look()):
        if time.monotonic() > give_up_at:
            text = f"not within {within_s:g} s: {what or 'the condition'}: {found!r} {shown()}"
            raise NotWithin(text.rstrip(), found)
        meanwhile()
    return found


def until(
    condition: Callable[[], T],
    what: str = "",
    *,
    within_s: float = WITHIN_S,
    meanwhile: Callable[[], object] = pause,
    shown: Callable[[], object] = lambda: "",
) -> T:
    """Call ``condition`` until it returns something true, and return that; else as :func:`look_until`."""
    return look_until(condition, bool, what, within_s=within_s, meanwhile=meanwhile, shown=shown)


def polled(consumer: Any, count: int, *, within_s: float = WITHIN_S) -> list[Any]:
    """At least ``count`` records, as a consumer's polls return them."""
    found: list[Any] = []

    def poll() -> None:
        found.extend(record for records in consumer.poll(500).values() for record in records)

    until(lambda: len(found) >= count, f"{count} records", within_s=within_s, meanwhile=poll, shown=lambda: found[-5:])
    return found


def eventually(look: Callable[[], T], expected: T, *, within_s: float = WITHIN_S) -> None:
    """Call ``look`` until it returns ``expected``; the test fails with the last value otherwise."""
    look_until(look, lambda found: found == expected, f"{expected!r} is expected", within_s=within_s)


def whole_lines(path: pathlib.Path) -> list[str]:
    """The lines that another process has written to the end. Of a write over the end of a page a reader may see half,
    and a killed writer may leave half."""
    return path.read_text().rpartition("\n")[0].splitlines()
