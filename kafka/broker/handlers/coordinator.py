"""FindCoordinator: this broker coordinates everything.

The internal topic that holds a coordinator's state is made when somebody first asks for one.

Different from Apache Kafka 4.3.0: it is there at once, so the first answer is never 15 (COORDINATOR_NOT_AVAILABLE).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kafka.broker.codes import error_code
from kafka.broker.registry import Call, handles
from kafka.broker.state.state_topic import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from kafka.errors import InvalidRequestError, KafkaStorageError
from kafka.protocol.coordinator import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

log = logging.getLogger(__name__)

GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2

STATE_TOPICS: Final = {GROUP: CONSUMER_OFFSETS, TRANSACTION: TRANSACTION_STATE, SHARE: SHARE_GROUP_STATE}
"""Key type -> the topic of the coordinator's state."""

NO_SUCH_KIND: Final = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an "
    "incompatible broker. See the broker logs for more details."
)


@handles(FindCoordinatorRequest, versions=(0, 6))
def find_coordinator(broker: Broker, call: Call[FindCoordinatorRequest]) -> FindCoordinatorResponse:
    request = call.request
    host, port = broker.endpoint(call.connection)
    node_id = broker.config.node_id
    if call.version < 4:
        why = _refusal(request.key, request.key_type, call.version)
        if why is not None:
            return FindCoordinatorResponse(
                error_code=error_code(InvalidRequestError), error_message=why, node_id=-1, host="", port=-1
            )
        _ensure(broker, request.key_type)
        return FindCoordinatorResponse(error_code=0, error_message="NONE", node_id=node_id, host=host, port=port)
    coordinators = []
    for key in request.coordinator_keys:
        why = _refusal(key, request.key_type, call.version)
        if why is not None:
            coordinators.append(
                FindCoordinatorResponse.Coordinator(
                    key=key, node_id=-1, host="", port=-1,
                    error_code=error_code(InvalidRequestError), error_message=why,
                )
            )  # fmt: skip
        else:
            _ensure(broker, request.key_type)
            coordinators.append(
                FindCoordinatorResponse.Coordinator(key=key, node_id=node_id, host=host, port=port, error_message="")
            )
    return FindCoordinatorResponse(coordinators=coordinators)


def _ensure(broker: Broker, key_type: int) -> None:
    try:
        broker.state.topic(STATE_TOPICS[key_type]).ensure()
    except KafkaStorageError as error:
        log.error("the coordinator has nowhere to write: %s", error)  # whoever writes is told


def _refusal(key: str, key_type: int, version: int) -> str | None:
    """Kafka's text about a key that has no coordinator, or None."""
    if key_type not in STATE_TOPICS or (key_type == SHARE and version < 6):
        return NO_SUCH_KIND
    if key_type == SHARE:
        parts = key.rsplit(":", 2)
        if len(parts) != 3 or not parts[0] or not parts[2].isdigit() or not _is_topic_id(parts[1]):
            return ""
    return None


def _is_topic_id(text: str) -> bool:
    """Kafka writes ids as 22 characters of base64url."""
    if len(text) == 22:
        return True
    try:
        UUID(text)
    except ValueError:
        return False
    return True
