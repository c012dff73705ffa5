"""InitProducerId (KIP-98, KIP-360): a new id with epoch 0 for an idempotent producer, each time; for a transactional id
its own, with a new epoch that fences whoever had it before.

Before version 4 a fenced producer is told INVALID_PRODUCER_EPOCH (47) for PRODUCER_FENCED (90). Version 6 (two-phase
commit, KIP-939) is not served: Apache Kafka 4.3.0 neither tells of it nor answers it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka.broker.codes import error_code
from kafka.broker.registry import Call, handles
from kafka.errors import BrokerResponseError, InvalidProducerEpochError, InvalidRequestError, ProducerFencedError
from kafka.protocol.transactions import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

FENCED_SINCE: Final = 4


@handles(InitProducerIdRequest, versions=(0, 5))
def init_producer_id(broker: Broker, call: Call[InitProducerIdRequest]) -> InitProducerIdResponse:
    request = call.request
    try:
        if (request.producer_id < 0) != (request.producer_epoch < 0):
            raise InvalidRequestError("a producer id without an epoch, or an epoch without an id")
        expected = None if request.producer_id < 0 else (request.producer_id, request.producer_epoch)
        producer_id, epoch = broker.transactions.init_producer_id(
            request.transactional_id, request.transaction_timeout_ms, expected
        )
    except BrokerResponseError as error:
        code = error_code(error)
        if isinstance(error, ProducerFencedError) and call.version < FENCED_SINCE:
            code = error_code(InvalidProducerEpochError)
        return InitProducerIdResponse(throttle_time_ms=0, error_code=code, producer_epoch=-1)
    return InitProducerIdResponse(throttle_time_ms=0, error_code=0, producer_id=producer_id, producer_epoch=epoch)
