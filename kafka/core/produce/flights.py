"""The requests that were sent and not answered: how many to each node, and whose batches' time is over (KIP-91)."""

from __future__ import annotations

from math import inf

from kafka.core.produce.batch import Batch
from kafka.core.produce.effects import SendBatches


class Flight:
    """One request. ``expires_at``: when the first of its batches has to be given up."""

    __slots__ = ("call", "expires_at")

    def __init__(self, call: SendBatches, expires_at: float) -> None:
        self.call = call
        self.expires_at = expires_at


class Flights:
    """All of them, in the order of sending. ``delivery_timeout_s`` counts from the making of a batch."""

    __slots__ = ("_counts", "_delivery_timeout_s", "_flights")

    def __init__(self, delivery_timeout_s: float) -> None:
        self._delivery_timeout_s = delivery_timeout_s
        self._flights: list[Flight] = []
        self._counts: dict[int, int] = {}

    def count(self, node: int) -> int:
        return self._counts.get(node, 0)

    def add(self, call: SendBatches) -> None:
        made_at = inf
        for batch in call.batches:
            if batch.created_at < made_at:
                made_at = batch.created_at
        self._flights.append(Flight(call, made_at + self._delivery_timeout_s))
        self._counts[call.node] = self.count(call.node) + 1

    def remove(self, call: SendBatches) -> None:
        for index, flight in enumerate(self._flights):
            if flight.call is call:
                del self._flights[index]
                self._counts[call.node] -= 1
                return

    @property
    def next_expiry(self) -> float:
        """When :meth:`expired` has something to say; infinite for never."""
        first = inf
        for flight in self._flights:  # plain comparisons: compiled, `min` costs more than all else here
            if flight.expires_at < first:
                first = flight.expires_at
        return first

    def expired(self, now: float) -> list[Batch]:
        """The batches whose time is over, each once. They are in flight still."""
        found: list[Batch] = []
        for flight in self._flights:
            if flight.expires_at > now:
                continue
            flight.expires_at = inf
            for batch in flight.call.batches:
                if batch.done.is_done:
                    continue
                expires_at = batch.created_at + self._delivery_timeout_s
                if expires_at <= now:
                    found.append(batch)
                else:
                    flight.expires_at = min(flight.expires_at, expires_at)
        return found
