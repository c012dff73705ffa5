"""What all calls of the admin client stand on: a host, time limits, and dialogues that are run and waited for."""

from __future__ import annotations

from typing import Any, TypeVar

from kafka.client import Host
from kafka.core.dialogue import Dialogue
from kafka.future import Future

T = TypeVar("T")


class Running:
    """``_host`` carries the client, ``_timeout_s`` is the time that a call has."""

    _host: Host
    _timeout_s: float

    def run(self, dialogue: Dialogue[T]) -> Future[T]:
        """On the loop: run a dialogue and return its future."""
        return self._host.client.run(dialogue)

    @property
    def _limits(self) -> dict[str, Any]:
        """What every dialogue takes."""
        return {"backoff": self._host.client.retry_backoff, "timeout_s": self._timeout_s}

    def _limits_within(self, timeout_ms: float | None) -> dict[str, Any]:
        """The same for a call that was given a time of its own; None: as any other."""
        return self._limits if timeout_ms is None else {**self._limits, "timeout_s": timeout_ms / 1000}

    def _run(self, dialogue: Dialogue[T]) -> T:
        run: Any = self._host.client.run
        value: T = self._host.call(run, dialogue)
        return value
