"""Finding the coordinator of a group or a transactional id: a dialogue."""

from __future__ import annotations

from typing import NamedTuple

from kafka.core.connection import ByVersion
from kafka.core.dialogue import Dialogue, send
from kafka.core.retry import Backoff, retrying
from kafka.core.routing import AnyNode, Coordinator, CoordinatorType
from kafka.errors import for_code
from kafka.protocol.coordinator import FindCoordinatorRequest, FindCoordinatorResponse

_SEVERAL_KEYS_SINCE = 4


class FoundCoordinator(NamedTuple):
    """A coordinating broker, and where it is."""

    node_id: int
    host: str
    port: int


def find_coordinator(coordinator: Coordinator, backoff: Backoff, timeout_s: float) -> Dialogue[FoundCoordinator]:
    """Ask any broker, and again while the coordinator is being chosen (the first time its topic is made).

    Errors: KafkaTimeoutError, GroupAuthorizationFailedError and its like. Source: KIP-699 for several keys.
    """

    def attempt() -> Dialogue[FoundCoordinator]:
        response = yield from send(
            AnyNode(),
            ByVersion(FindCoordinatorRequest, lambda version: _request(coordinator, version)),
            # Version 0 knows groups only.
            min_version=0 if coordinator.type is CoordinatorType.GROUP else 1,
        )
        return _read(response, coordinator)

    what = f"finding the coordinator of {coordinator.type.name.lower()} {coordinator.key!r}"
    return (yield from retrying(attempt, what=what, backoff=backoff, timeout_s=timeout_s))


def _request(coordinator: Coordinator, version: int) -> FindCoordinatorRequest:
    if version >= _SEVERAL_KEYS_SINCE:
        return FindCoordinatorRequest(key_type=coordinator.type, coordinator_keys=[coordinator.key])
    if version == 0:
        return FindCoordinatorRequest(key=coordinator.key)
    return FindCoordinatorRequest(key=coordinator.key, key_type=coordinator.type)


def _read(response: FindCoordinatorResponse, coordinator: Coordinator) -> FoundCoordinator:
    for entry in response.coordinators:
        if entry.key == coordinator.key:
            if entry.error_code:
                raise for_code(entry.error_code)(entry.error_message or "")
            return FoundCoordinator(entry.node_id, entry.host, entry.port)
    if response.error_code:
        raise for_code(response.error_code)(response.error_message or "")
    return FoundCoordinator(response.node_id, response.host, response.port)
