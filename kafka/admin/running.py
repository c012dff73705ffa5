"""What all calls of the admin client stand on: a host, time limits, and dialogues that are run and waited for."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from kafka.client import Host
from kafka.core.dialogue import Dialogue
from kafka.core.retry import Backoff
from kafka.errors import IllegalArgumentError
from kafka.future import Future

T = TypeVar("T")

MOST_MS: Final = 2**31 - 1
"""What a request can say."""


def limit_s(timeout_ms: float | None, default_s: float) -> float:
    """``timeout_ms`` in seconds: a number, MOST_MS at most; the default for None and, as in kafka-python, for 0.
    IllegalArgumentError."""
    if timeout_ms is None:
        return default_s
    is_number = isinstance(timeout_ms, (int, float)) and not isinstance(timeout_ms, bool)
    if not is_number or not timeout_ms >= 0:
        raise IllegalArgumentError(f"timeout_ms={timeout_ms!r}: a number of milliseconds, 0 or more")
    return min(timeout_ms, MOST_MS) / 1000 or default_s


class Running:
    """``_host`` carries the client, ``_timeout_s`` is the time that a call has."""

    _host: Host
    _timeout_s: float

    def run(self, dialogue: Dialogue[T]) -> Future[T]:
        """Run a dialogue (``kafka.admin.dialogues``) and return its future. From any thread."""
        run: Any = self._host.client.run
        future: Future[T] = self._host.submit(run, dialogue)
        return future

    @property
    def retry_backoff(self) -> Backoff:
        """What dialogues take as ``backoff``: the waits between attempts, from ``retry_backoff_ms`` on."""
        return self._host.client.retry_backoff

    @property
    def _limits(self) -> dict[str, Any]:
        """What every dialogue takes."""
        return {"backoff": self.retry_backoff, "timeout_s": self._timeout_s}

    def _limits_within(self, timeout_ms: float | None) -> dict[str, Any]:
        """The same for a call that was given a time of its own; None or 0: as any other."""
        return {**self._limits, "timeout_s": limit_s(timeout_ms, self._timeout_s)}

    def _run(self, dialogue: Dialogue[T]) -> T:
        run: Any = self._host.client.run
        value: T = self._host.call(run, dialogue)
        return value
