"""What a broker takes a moment to have: coordinators, leaders of new partitions. ``broker``: a connection, or a side of
pair."""

from __future__ import annotations

from typing import Any, Protocol

from kafka.protocol.coordinator import FindCoordinatorRequest
from kafka.protocol.produce import ProduceRequest
from test.support.waiting import eventually

GROUP, TRANSACTION, SHARE = 0, 1, 2
"""Types of keys that have a coordinator."""


class Asks(Protocol):
    def ask(self, request: Any, version: int) -> Any: ...


def wait_for_coordinator(broker: Asks, key: str, key_type: int = GROUP) -> None:
    """Ask for a coordinator until it is there: the first one makes the internal topic."""
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    eventually(lambda: broker.ask(request, 6).coordinators[0].error_code, 0)


def produce_to_leader(broker: Asks, request: ProduceRequest) -> None:
    """Produce to one partition as soon as it has a leader."""
    eventually(lambda: broker.ask(request, 9).responses[0].partition_responses[0].error_code, 0)
