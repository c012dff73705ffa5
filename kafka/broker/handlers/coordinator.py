"""FindCoordinator: this broker coordinates everything.

Different from Apache Kafka 4.3.0: no internal topic has to be made first, so the first answer is never 15
(COORDINATOR_NOT_AVAILABLE).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID

from kafka.broker.registry import Call, handles
from kafka.errors import InvalidRequestError
from kafka.protocol.coordinator import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2


@handles(FindCoordinatorRequest, versions=(0, 6))
def find_coordinator(broker: Broker, call: Call[FindCoordinatorRequest]) -> FindCoordinatorResponse:
    request = call.request
    host, port = broker.endpoint(call.connection)
    node_id = broker.config.node_id
    if call.version < 4:
        why = _refusal(request.key, request.key_type, call.version)
        if why:
            return FindCoordinatorResponse(
                error_code=int(InvalidRequestError.errno or 0), error_message=why, node_id=-1, host="", port=-1
            )
        return FindCoordinatorResponse(error_code=0, error_message="NONE", node_id=node_id, host=host, port=port)
    coordinators = []
    for key in request.coordinator_keys:
        why = _refusal(key, request.key_type, call.version)
        if why:
            coordinators.append(
                FindCoordinatorResponse.Coordinator(
                    key=key, node_id=-1, host="", port=-1,
                    error_code=int(InvalidRequestError.errno or 0), error_message=why,
                )
            )  # fmt: skip
        else:
            coordinators.append(
                FindCoordinatorResponse.Coordinator(key=key, node_id=node_id, host=host, port=port, error_message="")
            )
    return FindCoordinatorResponse(coordinators=coordinators)


def _refusal(key: str, key_type: int, version: int) -> str:
    """Why this key has no coordinator, or nothing."""
    if key_type not in (GROUP, TRANSACTION, SHARE) or (key_type == SHARE and version < 6):
        return f"unknown coordinator type {key_type}"
    if key_type == SHARE:
        parts = key.rsplit(":", 2)
        if len(parts) != 3 or not parts[0] or not parts[2].isdigit() or not _is_topic_id(parts[1]):
            return "a share coordinator's key is GROUP:TOPIC_ID:PARTITION"
    return ""


def _is_topic_id(text: str) -> bool:
    """Kafka writes ids as 22 characters of base64url."""
    if len(text) == 22:
        return True
    try:
        UUID(text)
    except ValueError:
        return False
    return True
