"""AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, TxnOffsetCommit: what producers ask of a coordinator (KIP-98, KIP-890).

Which protocol a producer speaks is told by the version of EndTxn: 5 raises the epoch with each end. Older versions of
requests know fewer errors::

    PRODUCER_FENCED (90)           from AddPartitionsToTxn 2, AddOffsetsToTxn 2, EndTxn 2; before, and in
                                   TxnOffsetCommit, INVALID_PRODUCER_EPOCH (47)
    TRANSACTION_ABORTABLE (120)    from TxnOffsetCommit 4; before, INVALID_TXN_STATE (48)

Different from Apache Kafka 4.3.0: EndTxn is answered when the markers are written, not before, so that no client sees a
Prepare state; a transaction that takes too long is aborted on the dot, not at the next look of every 10 s;
AddPartitionsToTxn without any transaction is answered, not left waiting for ever; a transaction in a log that no
coordinator knows is ended after ``transaction.max.timeout.ms``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka.broker.codes import error_code
from kafka.broker.handlers.refused_first import refused_first
from kafka.broker.offset_store import CommittedOffset
from kafka.broker.registry import Call, handles
from kafka.broker.reply import Reply
from kafka.broker.topics import INTERNAL_TOPICS
from kafka.broker.transactions.admission import admit_offsets
from kafka.broker.transactions.transaction import Producer
from kafka.errors import (
    BrokerResponseError,
    InvalidGroupIdError,
    InvalidProducerEpochError,
    KafkaStorageError,
    NotCoordinatorError,
    OffsetMetadataTooLargeError,
    OperationNotAttemptedError,
    ProducerFencedError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from kafka.structs import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafka.broker.broker import Broker

FENCED_SINCE: Final = 2
EPOCH_BUMP_SINCE_END: Final = 5
_OLD_PROTOCOL: Final = 0
_NEW_PROTOCOL: Final = 2
_BATCHED_SINCE: Final = 4

_Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
_TopicResult = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
_PartitionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
_OffsetResult = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition


def _code(error: BrokerResponseError, version: int) -> int:
    """The error's code, in the words of the version."""
    if isinstance(error, ProducerFencedError) and version < FENCED_SINCE:
        return error_code(InvalidProducerEpochError)
    return error_code(error)


# -- partitions and groups --------------------------------------------------------------------------------------------


@handles(AddPartitionsToTxnRequest, versions=(0, 5))
def add_partitions(broker: Broker, call: Call[AddPartitionsToTxnRequest]) -> AddPartitionsToTxnResponse:
    request = call.request
    if call.version < _BATCHED_SINCE:
        producer = (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        name, topics = request.v3_and_below_transactional_id, request.v3_and_below_topics
        return AddPartitionsToTxnResponse(
            throttle_time_ms=0, results_by_topic_v3_and_below=_add(broker, call.version, name, producer, topics)
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
    return AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_transaction=results)


def _add(
    broker: Broker, version: int, transactional_id: str, producer: Producer, topics: Sequence[_Topic]
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
        return _as_asked(topics, _code(error, version))
    return _as_asked(topics, 0)


def _as_asked(topics: Sequence[_Topic], code: int) -> list[_TopicResult]:
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
    broker: Broker, version: int, transactional_id: str, producer: Producer, topics: Sequence[_Topic]
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
                codes[where] = _code(error, version)
    return _results(topics, codes, 0)


def _unfit(broker: Broker, version: int, topics: Sequence[_Topic]) -> dict[TopicPartition, int]:
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


def _results(topics: Sequence[_Topic], codes: Mapping[TopicPartition, int], other: int) -> list[_TopicResult]:
    """Each partition once, each topic once."""
    named: dict[str, dict[int, None]] = {}
    for topic in topics:
        if topic.partitions:
            named.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions))
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


@handles(AddOffsetsToTxnRequest, versions=(0, 4))
def add_offsets(broker: Broker, call: Call[AddOffsetsToTxnRequest]) -> AddOffsetsToTxnResponse:
    request = call.request
    code = 0
    try:
        broker.transactions.add_group(
            request.transactional_id, (request.producer_id, request.producer_epoch), request.group_id, _OLD_PROTOCOL
        )
    except BrokerResponseError as error:
        code = _code(error, call.version)
    return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=code)


# -- ends -------------------------------------------------------------------------------------------------------------


@handles(EndTxnRequest, versions=(0, 5))
def end_transaction(broker: Broker, call: Call[EndTxnRequest]) -> EndTxnResponse | Reply:
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
        return EndTxnResponse(throttle_time_ms=0, error_code=_code(error, call.version))
    response = EndTxnResponse(throttle_time_ms=0, error_code=0, producer_id=producer_id, producer_epoch=epoch)
    reply = Reply()

    def ended(holds: bool) -> None:
        reply.hang_up = not holds
        reply.complete(response)

    return reply if broker.transactions.when_ended(request.transactional_id, ended) else response


# -- offsets ----------------------------------------------------------------------------------------------------------


@handles(TxnOffsetCommitRequest, versions=(0, 5))
def commit_offsets(broker: Broker, call: Call[TxnOffsetCommitRequest]) -> TxnOffsetCommitResponse:
    """Offsets that hold when the transaction is committed, and are nobody's until then."""
    request = call.request
    refused: dict[str, list[_OffsetResult]] = {}
    answered: list[tuple[str, list[_OffsetResult]]] = []
    offsets: dict[TopicPartition, CommittedOffset] = {}
    longest = broker.config.number("offset.metadata.max.bytes")
    for topic in request.topics:
        found = broker.metadata.topic(topic.name)
        accepted = []
        for one in topic.partitions:
            where = TopicPartition(topic.name, one.partition_index)
            metadata = one.committed_metadata or ""
            answer = _OffsetResult(partition_index=one.partition_index, error_code=0)
            if found is None or not 0 <= one.partition_index < found.partitions:
                answer.error_code = error_code(UnknownTopicOrPartitionError)
                refused.setdefault(topic.name, []).append(answer)
                continue
            accepted.append(answer)
            if len(metadata) > longest:
                answer.error_code = error_code(OffsetMetadataTooLargeError)
            else:
                offsets[where] = CommittedOffset(
                    one.committed_offset, one.committed_leader_epoch, metadata, broker.epoch_ms()
                )
        if accepted:
            answered.append((topic.name, accepted))
        elif found is None:
            refused.setdefault(topic.name, [])
    if answered:
        try:
            _commit(broker, call, offsets)
        except BrokerResponseError as error:
            is_disk = isinstance(error, KafkaStorageError)
            code = error_code(NotCoordinatorError() if is_disk else error)
            for _, results in answered:
                for answer in results:
                    answer.error_code = code
    return TxnOffsetCommitResponse(
        throttle_time_ms=0,
        topics=[
            TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(name=name, partitions=partitions)
            for name, partitions in refused_first(refused, answered)
        ],
    )


def _commit(
    broker: Broker, call: Call[TxnOffsetCommitRequest], offsets: Mapping[TopicPartition, CommittedOffset]
) -> None:
    """Check who commits, and keep the offsets as pending ones."""
    request = call.request
    if not request.group_id:
        raise InvalidGroupIdError("an empty group id")
    producer = (request.producer_id, request.producer_epoch)
    home = broker.transactions.offsets_partition(request.group_id)
    log = broker.state.topic(home.topic).log(home.partition)
    admit_offsets(broker, home, log, request.transactional_id, producer, call.version)
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
