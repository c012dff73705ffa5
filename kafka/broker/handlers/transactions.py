"""Transactions (KIP-98, 360, 664, 890, 994, 1152): InitProducerId, the requests of a transactional producer,
WriteTxnMarkers, and the descriptions of transactions and producers.

InitProducerId gives an idempotent producer a new id with epoch 0 each time, and a transactional id its own producer id
with a new epoch, which fences the previous producer. The version of EndTxn says which protocol a producer speaks: 5
raises the epoch with each end. Older versions of requests know fewer errors::

    PRODUCER_FENCED (90)           from InitProducerId 4, AddPartitionsToTxn 2, AddOffsetsToTxn 2, EndTxn 2; before,
                                   and in TxnOffsetCommit, INVALID_PRODUCER_EPOCH (47)
    TRANSACTION_ABORTABLE (120)    from TxnOffsetCommit 4; before, INVALID_TXN_STATE (48)

InitProducerId 6 (two-phase commit, KIP-939) is not served: Apache Kafka 4.3.0 neither lists nor answers it. The
duration filter of ListTransactions counts from a transaction's start to now, also for one that has ended; an id that
never had a transaction counts as one of infinite duration. WriteTxnMarkers comes from another coordinator or from an
operator who aborts a hanging transaction; this broker's coordinator writes its own markers without a request. A marker
with a producer id or epoch below 0, for a partition that exists, fails the whole request; one with an unknown
transaction version (-1) is not written.

Different from Apache Kafka 4.3.0: EndTxn is answered when the markers are written, not before, so that no client sees a
Prepare state; a transaction that times out is aborted at once, not at the next check of every 10 s; AddPartitionsToTxn
without any transaction is answered, not left waiting for ever; a transaction in a log that no coordinator knows is
ended after ``transaction.max.timeout.ms``; a pattern of transactional ids needs the extra ``re2``, and may be refused
as too large (``regex.py`` in ``kafka/broker/groups`` has the limits); an error message says more; WriteTxnMarkers is
answered also with a partition twice in one marker (it is written once) and with a marker that has something to write
before one that has not; when a marker of a higher coordinator epoch was written this way, Kafka's own coordinator
waits for ever in a Prepare state, where here the transaction is completed, with a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from kafka.broker.error_responses import answer_each, coordinator_error, error_code, failed
from kafka.broker.groups.regex import check_regex, resolve
from kafka.broker.handlers.offsets import TOO_LARGE, NamedPartitions
from kafka.broker.log import TransactionMarker
from kafka.broker.offset_store import CommittedOffset
from kafka.broker.registry import RequestContext, handles
from kafka.broker.responses import PendingResponse
from kafka.broker.state.records import Producer
from kafka.broker.state.state_topic import CONSUMER_OFFSETS
from kafka.broker.topics import INTERNAL_TOPICS, check_topic_name, distinct_partitions, values_by_key
from kafka.broker.transactions.transaction_metadata import BY_TITLE
from kafka.broker.transactions.verification import verify_offsets
from kafka.errors import (
    BrokerResponseError,
    InvalidGroupIdError,
    InvalidProducerEpochError,
    InvalidRegularExpressionError,
    InvalidRequestError,
    OperationNotAttemptedError,
    ProducerFencedError,
    TopicAuthorizationFailedError,
    TransactionalIdNotFoundError,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kafka.structs import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafka.broker.broker import Broker

FENCED_SINCE: Final = 2
EPOCH_BUMP_SINCE_END: Final = 5
_OLD_PROTOCOL: Final = 0
_NEW_PROTOCOL: Final = 2
_BATCHED_SINCE: Final = 4

_AddedTopic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
_TopicResult = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
_PartitionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
_OffsetResult = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition


def _known(error: BrokerResponseError, version: int, fenced_since: int = FENCED_SINCE) -> BrokerResponseError:
    """The error as this version of the request knows it."""
    is_fenced = isinstance(error, ProducerFencedError) and version < fenced_since
    return InvalidProducerEpochError("") if is_fenced else error


# -- partitions and groups --------------------------------------------------------------------------------------------


@handles(AddPartitionsToTxnRequest)
def add_partitions(broker: Broker, call: RequestContext[AddPartitionsToTxnRequest]) -> AddPartitionsToTxnResponse:
    request = call.request
    if call.version < _BATCHED_SINCE:
        producer = (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        name, topics = request.v3_and_below_transactional_id, request.v3_and_below_topics
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=_add(broker, call.version, name, producer, topics)
        )
    results = []
    for one in request.transactions:
        answer = _verify if one.verify_only else _add
        producer = (one.producer_id, one.producer_epoch)
        results.append(
            AddPartitionsToTxnResponse.AddPartitionsToTxnResult(
                transactional_id=one.transactional_id,
                topic_results=answer(broker, call.version, one.transactional_id, producer, one.topics),
            )
        )
    return AddPartitionsToTxnResponse(results_by_transaction=results)


def _add(
    broker: Broker, version: int, transactional_id: str, producer: Producer, topics: Sequence[_AddedTopic]
) -> list[_TopicResult]:
    """All partitions, or none when one of them is not there: the others then are OPERATION_NOT_ATTEMPTED (55)."""
    codes = _unfit(broker, version, topics)
    if codes:
        return _results(topics, codes, error_code(OperationNotAttemptedError))
    wanted = [TopicPartition(topic.name, number) for topic in topics for number in topic.partitions]
    try:
        client_version = _NEW_PROTOCOL if version >= _BATCHED_SINCE else _OLD_PROTOCOL
        broker.transactions.add_partitions(transactional_id, producer, wanted, client_version)
    except BrokerResponseError as error:
        return _as_asked(topics, error_code(_known(error, version)))
    return _as_asked(topics, 0)


def _as_asked(topics: Sequence[_AddedTopic], code: int) -> list[_TopicResult]:
    return [
        _TopicResult(
            name=topic.name,
            results_by_partition=[
                _PartitionResult(partition_index=number, partition_error_code=code) for number in topic.partitions
            ],
        )
        for topic in topics
    ]


def _verify(
    broker: Broker, version: int, transactional_id: str, producer: Producer, topics: Sequence[_AddedTopic]
) -> list[_TopicResult]:
    codes = _unfit(broker, version, topics)
    if codes:
        return _results(topics, codes, error_code(OperationNotAttemptedError))
    for topic in topics:
        for number in topic.partitions:
            where = TopicPartition(topic.name, number)
            try:
                broker.transactions.verify(transactional_id, producer, where)
            except BrokerResponseError as error:
                codes[where] = error_code(_known(error, version))
    return _results(topics, codes, 0)


def _unfit(broker: Broker, version: int, topics: Sequence[_AddedTopic]) -> dict[TopicPartition, int]:
    """UNKNOWN_TOPIC_OR_PARTITION (3) for each partition that is not there; to clients (before version 4) also
    TOPIC_AUTHORIZATION_FAILED (29) for those of internal topics."""
    codes = {}
    for topic in topics:
        found = broker.metadata.topic(topic.name)
        for number in topic.partitions:
            if version < _BATCHED_SINCE and topic.name in INTERNAL_TOPICS:
                codes[TopicPartition(topic.name, number)] = error_code(TopicAuthorizationFailedError)
            elif found is None or not 0 <= number < found.partitions:
                codes[TopicPartition(topic.name, number)] = error_code(UnknownTopicOrPartitionError)
    return codes


def _results(topics: Sequence[_AddedTopic], codes: Mapping[TopicPartition, int], other: int) -> list[_TopicResult]:
    """Each partition once, each topic once."""
    named = distinct_partitions((topic.name, topic.partitions) for topic in topics if topic.partitions)
    return [
        _TopicResult(
            name=name,
            results_by_partition=[
                _PartitionResult(
                    partition_index=number, partition_error_code=codes.get(TopicPartition(name, number), other)
                )
                for number in numbers
            ],
        )
        for name, numbers in named.items()
    ]


@handles(AddOffsetsToTxnRequest)
def add_offsets(broker: Broker, call: RequestContext[AddOffsetsToTxnRequest]) -> AddOffsetsToTxnResponse:
    request = call.request
    try:
        broker.transactions.add_group(
            request.transactional_id, (request.producer_id, request.producer_epoch), request.group_id, _OLD_PROTOCOL
        )
    except BrokerResponseError as error:
        raise _known(error, call.version) from None
    return AddOffsetsToTxnResponse()


# -- ends -------------------------------------------------------------------------------------------------------------


@handles(EndTxnRequest)
def end_transaction(broker: Broker, call: RequestContext[EndTxnRequest]) -> EndTxnResponse | PendingResponse:
    request = call.request
    is_new = call.version >= EPOCH_BUMP_SINCE_END
    try:
        producer_id, epoch = broker.transactions.end(
            request.transactional_id,
            (request.producer_id, request.producer_epoch),
            request.committed,
            _NEW_PROTOCOL if is_new else _OLD_PROTOCOL,
        )
    except BrokerResponseError as error:
        raise _known(error, call.version) from None
    response = EndTxnResponse(producer_id=producer_id, producer_epoch=epoch)
    reply = PendingResponse()

    def ended(is_durable: bool) -> None:
        reply.complete(response, hang_up=not is_durable)

    return reply if broker.transactions.call_when_ended(request.transactional_id, ended) else response


# -- offsets ----------------------------------------------------------------------------------------------------------


@handles(TxnOffsetCommitRequest)
def commit_offsets(broker: Broker, call: RequestContext[TxnOffsetCommitRequest]) -> TxnOffsetCommitResponse:
    """Store offsets as pending; they are committed with the transaction."""
    request = call.request
    named: NamedPartitions[str, TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition] = NamedPartitions()
    for wanted in request.topics:
        named.add(wanted.name, broker.metadata.topic(wanted.name), wanted.partitions)
    longest = broker.config.number("offset.metadata.max.bytes")
    offsets = {
        TopicPartition(name, one.partition_index): CommittedOffset(
            one.committed_offset, one.committed_leader_epoch, one.committed_metadata or "", broker.epoch_ms()
        )
        for name, _, partitions in named.known
        for one in partitions
        if len(one.committed_metadata or "") <= longest
    }
    code_of_all = 0
    if named.known:
        try:
            _commit_pending(broker, call, offsets)
        except BrokerResponseError as error:
            code_of_all = error_code(coordinator_error(error))
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(
                name=name,
                partitions=[_OffsetResult(partition_index=number, error_code=code) for number, code in results],
            )
            for name, results in named.results(
                lambda _, one: code_of_all or (TOO_LARGE if len(one.committed_metadata or "") > longest else 0)
            )
        ],
    )


def _commit_pending(
    broker: Broker, call: RequestContext[TxnOffsetCommitRequest], offsets: Mapping[TopicPartition, CommittedOffset]
) -> None:
    """Check who commits, and keep the offsets as pending ones."""
    request = call.request
    if not request.group_id:
        raise InvalidGroupIdError("an empty group id")
    producer = (request.producer_id, request.producer_epoch)
    home = broker.transactions.offsets_partition(request.group_id)
    log = broker.state.topic(home.topic).log(home.partition)
    verify_offsets(broker.transactions, home, log, request.transactional_id, producer, call.version)
    broker.groups.check_commit(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        call.now,
        transactional=True,
        partitions=[(broker.topic(where.topic).topic_id, where.partition) for where in offsets],
    )
    broker.offsets.commit_pending(request.group_id, *producer, offsets)


# -- producer ids -----------------------------------------------------------------------------------------------------


FENCED_SINCE_INIT: Final = 4


@handles(InitProducerIdRequest)
def init_producer_id(broker: Broker, call: RequestContext[InitProducerIdRequest]) -> InitProducerIdResponse:
    request = call.request
    try:
        if (request.producer_id < 0) != (request.producer_epoch < 0):
            raise InvalidRequestError("a producer id without an epoch, or an epoch without an id")
        expected = None if request.producer_id < 0 else (request.producer_id, request.producer_epoch)
        producer_id, epoch = broker.transactions.init_producer_id(
            request.transactional_id, request.transaction_timeout_ms, expected
        )
    except BrokerResponseError as error:
        # Without a name of its own: a local that holds an error is a cycle through the error's traceback.
        return failed(InitProducerIdResponse, _known(error, call.version, FENCED_SINCE_INIT), producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)


# -- descriptions -----------------------------------------------------------------------------------------------------


_NO_OFFSET: Final = -1

_DescribedTransaction = DescribeTransactionsResponse.TransactionState
_DescribedPartition = DescribeProducersResponse.PartitionResponse


@handles(DescribeTransactionsRequest)
def describe_transactions(
    broker: Broker, call: RequestContext[DescribeTransactionsRequest]
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[_described_transaction(broker, name) for name in call.request.transactional_ids]
    )


def _described_transaction(broker: Broker, transactional_id: str) -> _DescribedTransaction:
    """TRANSACTIONAL_ID_NOT_FOUND (105) for an unknown id, INVALID_REQUEST for an empty one (KIP-664)."""
    found = broker.transactions.all.get(transactional_id)
    if found is None:
        error = TransactionalIdNotFoundError if transactional_id else InvalidRequestError
        return failed(_DescribedTransaction, error_code(error), transactional_id=transactional_id)
    return _DescribedTransaction(
        transactional_id=transactional_id,
        transaction_state=found.state.title,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.epoch,
        topics=[
            DescribeTransactionsResponse.TopicData(topic=topic, partitions=[one.partition for one in partitions])
            for topic, partitions in groupby(sorted(found.partitions), attrgetter("topic"))
        ],
    )


@handles(ListTransactionsRequest)
def list_transactions(broker: Broker, call: RequestContext[ListTransactionsRequest]) -> ListTransactionsResponse:
    request = call.request
    unknown = list(dict.fromkeys(name for name in request.state_filters if name not in BY_TITLE))
    states = {BY_TITLE[name] for name in request.state_filters if name in BY_TITLE}
    producers = frozenset(request.producer_id_filters)
    named = _matching_ids(broker, request.transactional_id_pattern)
    now_ms = broker.epoch_ms()
    found = [
        ListTransactionsResponse.TransactionState(
            transactional_id=name, producer_id=one.producer_id, transaction_state=one.state.title
        )
        for name, one in broker.transactions.all.items()
        if (not request.state_filters or one.state in states)
        and (not producers or one.producer_id in producers)
        # From the start to now, also of what has ended; an id without a transaction (start -1) passes any filter.
        and (request.duration_filter < 0 or now_ms - one.start_ms > request.duration_filter)
        and (named is None or name in named)
    ]
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=found)


def _matching_ids(broker: Broker, pattern: str | None) -> frozenset[str] | None:
    """The transactional ids that match as a whole; None: all. InvalidRegularExpressionError (128), also for a pattern
    that takes too long."""
    if not pattern:
        return None
    check_regex(pattern)
    found = resolve([pattern], broker.transactions.all)[pattern]
    if found is None:
        raise InvalidRegularExpressionError(f"the pattern takes too long on {len(broker.transactions.all)} ids")
    return found


@handles(DescribeProducersRequest)
def describe_producers(broker: Broker, call: RequestContext[DescribeProducersRequest]) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponse.TopicResponse(
                name=topic.name,
                partitions=answer_each(
                    topic.partition_indexes,
                    partial(_producers, broker, topic.name),
                    lambda number, error: failed(_DescribedPartition, error, partition_index=number),
                ),
            )
            for topic in call.request.topics
        ],
    )


def _producers(broker: Broker, topic: str, number: int) -> _DescribedPartition:
    """The producers that the partition's log remembers, with the start of an open transaction, if there is one
    (KIP-664)."""
    check_topic_name(topic)
    entries = broker.logs.log(broker.topic(topic), number).producers.entries
    return _DescribedPartition(
        partition_index=number,
        active_producers=[
            DescribeProducersResponse.ProducerState(
                producer_id=producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.updated_ms,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=_NO_OFFSET if entry.txn_start_offset is None else entry.txn_start_offset,
            )
            for producer_id, entry in entries.items()
        ],
    )


# -- markers ----------------------------------------------------------------------------------------------------------


_UNKNOWN_SERVER_ERROR: Final = -1
_UNKNOWN_VERSION: Final = -1

_Marker = WriteTxnMarkersRequest.WritableTxnMarker
_Codes = dict[int, dict[TopicPartition, int]]
"""Producer id -> partition -> error code."""


@handles(WriteTxnMarkersRequest)
def write_markers(broker: Broker, call: RequestContext[WriteTxnMarkersRequest]) -> WriteTxnMarkersResponse:
    codes: _Codes = {}
    for one in call.request.markers:
        there = []
        for partition in dict.fromkeys(_partitions(one)):
            if _is_there(broker, partition):
                there.append(partition)
            else:
                codes.setdefault(one.producer_id, {})[partition] = error_code(UnknownTopicOrPartitionError)
        has_no_producer = one.producer_id < 0 or one.producer_epoch < 0
        if has_no_producer and any(partition.topic != CONSUMER_OFFSETS for partition in there):
            return _response(_all_failed(call.request.markers))  # as in Kafka, with those before it written
        marker = TransactionMarker(
            one.producer_id, one.producer_epoch, one.transaction_result, one.coordinator_epoch, one.transaction_version
        )
        for partition in there:
            is_refused = has_no_producer or one.transaction_version == _UNKNOWN_VERSION
            code = _UNKNOWN_SERVER_ERROR if is_refused else _write(broker, partition, marker)
            codes.setdefault(one.producer_id, {})[partition] = code
    return _response(codes)


def _partitions(marker: _Marker) -> Iterator[TopicPartition]:
    return (TopicPartition(topic.name, number) for topic in marker.topics for number in topic.partition_indexes)


def _is_there(broker: Broker, partition: TopicPartition) -> bool:
    topic = broker.metadata.topic(partition.topic)
    return topic is not None and 0 <= partition.partition < topic.partitions


def _all_failed(markers: Sequence[_Marker]) -> _Codes:
    return {one.producer_id: dict.fromkeys(_partitions(one), _UNKNOWN_SERVER_ERROR) for one in markers}


def _response(codes: _Codes) -> WriteTxnMarkersResponse:
    """A row for each producer, however many markers of it there were."""
    row = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult
    return WriteTxnMarkersResponse(
        markers=[
            WriteTxnMarkersResponse.WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(name=name, partitions=partitions)
                    for name, partitions in values_by_key(
                        (topic, row(partition_index=number, error_code=code))
                        for (topic, number), code in by_partition.items()
                    ).items()
                ],
            )
            for producer_id, by_partition in codes.items()
        ]
    )


def _write(broker: Broker, partition: TopicPartition, marker: TransactionMarker) -> int:
    try:
        broker.markers.write(partition, marker)
    except BrokerResponseError as error:
        return error_code(error)
    return 0
