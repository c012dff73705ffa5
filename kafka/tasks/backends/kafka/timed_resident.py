"""The base of what acts on a client's loop from time to time, until it or the client is closed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka.client import KafkaClient
from kafka.future import Future


class TimedResident:
    """See ``LoopResident``: the client closes it. At most one call is scheduled."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        self._loop: Any = client.loop
        self._timer: Any = None
        self._is_closed = False

    def finish(self) -> Future[None]:
        """See ``LoopResident``: nothing under way is worth waiting for."""
        return Future[None]().success(None)

    def close(self) -> None:
        """Act no more."""
        self._is_closed = True
        self._client.remove_resident(self)
        if self._timer is not None:
            self._timer.cancel()

    def _call_later(self, delay_s: float, action: Callable[[], object]) -> None:
        """Call it after the delay, unless this is closed."""
        if not self._is_closed:
            self._timer = self._loop.call_later(delay_s, action)
