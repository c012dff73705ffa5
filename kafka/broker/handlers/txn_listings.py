"""DescribeTransactions, ListTransactions (KIP-664, KIP-994, KIP-1152), DescribeProducers (KIP-664): what there is to
see of transactions, at their coordinator and in the partitions.

The duration filter counts from a transaction's start to now, also for one that is over; an id that never had a
transaction counts as one that has lasted for ever.

Different from Apache Kafka 4.3.0: a pattern of transactional ids may be refused as too large or too dear
(``regex.py`` in ``kafka/broker/groups`` tells the limits); a text says more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka.broker.codes import error_code, error_text
from kafka.broker.groups.regex import check_regex, resolve
from kafka.broker.registry import Call, handles
from kafka.broker.topics import check_topic_name
from kafka.broker.transactions.states import BY_TITLE
from kafka.errors import (
    BrokerResponseError,
    InvalidRegularExpressionError,
    InvalidRequestError,
    TransactionalIdNotFoundError,
)
from kafka.protocol.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

_NONE: Final = -1

_State = DescribeTransactionsResponse.TransactionState
_Partition = DescribeProducersResponse.PartitionResponse


@handles(DescribeTransactionsRequest, versions=(0, 0))
def describe_transactions(
    broker: Broker, call: Call[DescribeTransactionsRequest]
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        throttle_time_ms=0, transaction_states=[_describe(broker, name) for name in call.request.transactional_ids]
    )


def _describe(broker: Broker, transactional_id: str) -> _State:
    found = broker.transactions.get(transactional_id)
    if found is None:
        error = TransactionalIdNotFoundError if transactional_id else InvalidRequestError
        return _State(
            error_code=error_code(error()),
            transactional_id=transactional_id,
            transaction_state="",
            transaction_timeout_ms=0,
            transaction_start_time_ms=0,
            producer_id=0,
            producer_epoch=0,
            topics=[],
        )
    topics: dict[str, list[int]] = {}
    for partition in sorted(found.partitions):
        topics.setdefault(partition.topic, []).append(partition.partition)
    return _State(
        error_code=0,
        transactional_id=transactional_id,
        transaction_state=found.state.title,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.epoch,
        topics=[
            DescribeTransactionsResponse.TopicData(topic=topic, partitions=numbers)
            for topic, numbers in topics.items()
        ],
    )


@handles(ListTransactionsRequest, versions=(0, 2))
def list_transactions(broker: Broker, call: Call[ListTransactionsRequest]) -> ListTransactionsResponse:
    request = call.request
    unknown = list(dict.fromkeys(name for name in request.state_filters if name not in BY_TITLE))
    states = {BY_TITLE[name] for name in request.state_filters if name in BY_TITLE}
    producers = frozenset(request.producer_id_filters)
    try:
        named = _named(broker, request.transactional_id_pattern)
    except InvalidRegularExpressionError as error:
        return ListTransactionsResponse(
            throttle_time_ms=0, error_code=error_code(error), unknown_state_filters=[], transaction_states=[]
        )
    now_ms = broker.epoch_ms()
    found = [
        ListTransactionsResponse.TransactionState(
            transactional_id=name, producer_id=one.producer_id, transaction_state=one.state.title
        )
        for name, one in broker.transactions.all.items()
        if (not request.state_filters or one.state in states)
        and (not producers or one.producer_id in producers)
        and (request.duration_filter < 0 or now_ms - one.start_ms > request.duration_filter)
        and (named is None or name in named)
    ]
    return ListTransactionsResponse(
        throttle_time_ms=0, error_code=0, unknown_state_filters=unknown, transaction_states=found
    )


def _named(broker: Broker, pattern: str | None) -> frozenset[str] | None:
    """The transactional ids that match as a whole; None: all. InvalidRegularExpressionError (128), also for a pattern
    that takes too long."""
    if not pattern:
        return None
    check_regex(pattern)
    found = resolve([pattern], broker.transactions.all)[pattern]
    if found is None:
        raise InvalidRegularExpressionError(f"the pattern takes too long on {len(broker.transactions.all)} ids")
    return found


@handles(DescribeProducersRequest, versions=(0, 0))
def describe_producers(broker: Broker, call: Call[DescribeProducersRequest]) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        throttle_time_ms=0,
        topics=[
            DescribeProducersResponse.TopicResponse(
                name=topic.name,
                partitions=[_producers(broker, topic.name, number) for number in topic.partition_indexes],
            )
            for topic in call.request.topics
        ],
    )


def _producers(broker: Broker, topic: str, number: int) -> _Partition:
    try:
        check_topic_name(topic)
        entries = broker.logs.log(broker.topic(topic), number).producers.entries
    except BrokerResponseError as error:
        return _Partition(
            partition_index=number,
            error_code=error_code(error),
            error_message=error_text(error),
            active_producers=[],
        )
    return _Partition(
        partition_index=number,
        error_code=0,
        active_producers=[
            DescribeProducersResponse.ProducerState(
                producer_id=producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.updated_ms,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=_NONE if entry.txn_start_offset is None else entry.txn_start_offset,
            )
            for producer_id, entry in entries.items()
        ],
    )
