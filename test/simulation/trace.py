"""What happened, as lines for people; and what the package logs, as a part of it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from test.simulation.world import World


def shown(event: tuple[Any, ...]) -> str:
    """An event as a line."""
    return f"{event[0]:10.4f}  " + " ".join(each if isinstance(each, str) else repr(each) for each in event[1:])


class LogCapture(logging.Handler):
    """What the package says at WARNING and above becomes part of the trace; errors are violations."""

    def __init__(self, world: World, allowed: tuple[str, ...] = ()) -> None:
        super().__init__(logging.WARNING)
        self._world = world
        self._allowed = allowed

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += f": {record.exc_info[1]!r}"
        self._world.note("log", record.levelname, record.name, text)
        if record.levelno >= logging.ERROR and not any(each in text for each in self._allowed):
            self._world.violations.append(f"logged by {record.name}: {text}")
