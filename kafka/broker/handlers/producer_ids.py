"""InitProducerId for idempotent producers (KIP-98): a new id with epoch 0, each time.

Missing beside Apache Kafka 4.3.0: transactional ids, which get UNSUPPORTED_VERSION (35), as they come with
transactions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka.broker.broker import error_code
from kafka.broker.registry import Call, handles
from kafka.errors import BrokerResponseError, InvalidRequestError, UnsupportedVersionError
from kafka.protocol.transactions import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from kafka.broker.broker import Broker


@handles(InitProducerIdRequest, versions=(0, 5))
def init_producer_id(broker: Broker, call: Call[InitProducerIdRequest]) -> InitProducerIdResponse:
    request = call.request
    try:
        if request.transactional_id == "":
            raise InvalidRequestError("an empty transactional id")
        if request.transactional_id is not None:
            raise UnsupportedVersionError("this broker has no transactions yet")
        producer_id = broker.new_producer_id()
    except BrokerResponseError as error:
        return InitProducerIdResponse(throttle_time_ms=0, error_code=error_code(error), producer_epoch=-1)
    return InitProducerIdResponse(throttle_time_ms=0, error_code=0, producer_id=producer_id, producer_epoch=0)
