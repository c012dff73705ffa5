"""Requests handed to a connection: :class:`PendingRequest`, the queues of those not in flight, and who counts them.

What is in flight belongs to the machine of ``core/connection.py``.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from kafka.core.dialogue import ByVersion
from kafka.errors import KafkaConnectionError, KafkaError
from kafka.future import Future
from kafka.protocol.registry import NAMES
from kafka.wire.message import Request, Response

if TYPE_CHECKING:
    from kafka.client.connection import BrokerConnection

class PendingRequest:
    """One request of a caller, and the future of its response."""

    __slots__ = ("deadline", "future", "is_internal", "max_version", "min_version", "request", "sent_at", "timeout_s")

    def __init__(
        self,
        request: Request[Any] | ByVersion[Any],
        deadline: float,
        timeout_s: float,
        min_version: int | None = None,
        max_version: int | None = None,
        is_internal: bool = False,
    ) -> None:
        self.request = request
        self.future: Future[Any] = Future()
        self.deadline = deadline
        self.timeout_s = timeout_s
        self.min_version = min_version
        self.max_version = max_version
        self.is_internal = is_internal
        self.sent_at = 0.0
        """The monotonic instant at which it was sent; 0 unless a :class:`TrafficCounters` sets it."""

    def mark_sent(self, now: float) -> None:
        self.sent_at = now

    def extend_deadline(self, seconds: float) -> None:
        self.deadline += seconds

    @property
    def api(self) -> str:
        """The API's name, for logs and errors."""
        request = self.request
        key = request.request_type.api_key if isinstance(request, ByVersion) else request.api_key
        return NAMES.get(key, str(key))


class TrafficCounters(Protocol):
    """Counts requests for metrics (``metrics.py``, ``producer/metrics.py``). Called for each request: keep it cheap."""

    def sent(self, connection: BrokerConnection, pending: PendingRequest, size_bytes: int) -> None:
        """It is handed to the transport; an implementation that measures latencies calls ``pending.mark_sent``."""
        ...

    def answered(self, connection: BrokerConnection, pending: PendingRequest, response: Response) -> None:
        """Its response has come; the future is completed afterwards."""
        ...


def fail_all(requests: list[PendingRequest], error: BaseException) -> None:
    """Fail the requests that are not done yet."""
    for pending in requests:
        if not pending.future.is_done:
            pending.future.failure(error if isinstance(error, KafkaError) else KafkaConnectionError(str(error)))


class WriteQueue:
    """The requests of one connection that are not in flight.

    ``waiting``: to be sent, in order. ``unwritten``: acks=0, written and not yet taken by the operating system.
    """

    __slots__ = ("unwritten", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[PendingRequest] = deque()
        self.unwritten: list[PendingRequest] = []

    def next_deadline(self) -> float:
        """The earliest of all; infinity when empty."""
        if not self.waiting and not self.unwritten:
            return inf
        return min(pending.deadline for pending in (*self.waiting, *self.unwritten))

    def overdue_unwritten(self, now: float) -> list[PendingRequest]:
        """Those that should have been written by now; they stay in the queue."""
        return [pending for pending in self.unwritten if pending.deadline <= now]

    def extend_deadlines(self, seconds: float) -> None:
        """Give the unwritten requests so much more time, and not the waiting ones."""
        for pending in self.unwritten:
            pending.extend_deadline(seconds)

    def take_overdue_waiting(self, now: float) -> list[PendingRequest]:
        """Remove and return those that should have been sent by now."""
        overdue = [pending for pending in self.waiting if pending.deadline <= now]
        if overdue:
            left = [pending for pending in self.waiting if pending.deadline > now]
            self.waiting.clear()  # the same deque: BrokerConnection._send_waiting holds it
            self.waiting.extend(left)
        return overdue

    def take_unwritten(self) -> list[PendingRequest]:
        """Remove and return the unwritten ones."""
        taken, self.unwritten = self.unwritten, []
        return taken

    def take_all(self) -> list[PendingRequest]:
        """Remove and return all, the oldest first."""
        taken = [*self.take_unwritten(), *self.waiting]
        self.waiting.clear()
        return taken
