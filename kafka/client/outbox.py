"""Requests that a connection was handed and that are not in flight: those that wait, and those on their way out.

The one owner of both queues. What is in flight belongs to the machine of ``core/connection.py``.
"""

from __future__ import annotations

from collections import deque
from math import inf

from kafka.client.link import Exchange


class Outbox:
    """``waiting``: to be sent, in order. ``unwritten``: acks=0, written and not yet taken by the operating system."""

    __slots__ = ("unwritten", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Exchange] = deque()
        self.unwritten: list[Exchange] = []

    def next_deadline(self) -> float:
        """The earliest of all; infinity when empty."""
        if not self.waiting and not self.unwritten:
            return inf
        return min(exchange.deadline for exchange in (*self.waiting, *self.unwritten))

    def overdue_unwritten(self, now: float) -> list[Exchange]:
        """Those that should have gone out by now; they stay."""
        return [exchange for exchange in self.unwritten if exchange.deadline <= now]

    def put_off_deadlines(self, seconds: float) -> None:
        """What is on its way out has so much more time; what waits has not."""
        for exchange in self.unwritten:
            exchange.deadline += seconds

    def take_overdue_waiting(self, now: float) -> list[Exchange]:
        """Those that should have been sent by now; they are the caller's."""
        overdue = [exchange for exchange in self.waiting if exchange.deadline <= now]
        if overdue:
            left = [exchange for exchange in self.waiting if exchange.deadline > now]
            self.waiting.clear()  # the same deque: whoever sends from it holds it
            self.waiting.extend(left)
        return overdue

    def take_unwritten(self) -> list[Exchange]:
        """All that were on their way out."""
        taken, self.unwritten = self.unwritten, []
        return taken

    def take_all(self) -> list[Exchange]:
        """Everything, the older first."""
        taken = [*self.take_unwritten(), *self.waiting]
        self.waiting.clear()
        return taken
