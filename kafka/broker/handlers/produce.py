"""Produce: batches go to the logs as they are, but for their offsets (and times, where the topic says LogAppendTime).
Message sets of versions 0 to 2 are made into batches first (``log_validator.py``).

Idempotent producers are checked by the log (``log/producer_state.py``). ``acks`` 1 and -1 are the same on one broker;
with ``acks`` 0 a fault can only be shown by hanging up, as Apache Kafka does. What is asked of single records is in
``log_validator.py``; a request whose batches hold many is done in slices (``time_slices.py``). Topics are never made
here: only Metadata does that.

A transactional batch is let in by ``transactions/verification.py``: from version 12 on it makes its partition part of
the transaction.

Different from Apache Kafka 4.3.0: ``compression.type`` other than ``producer`` does not recompress; keys and times of
records whose compression this installation cannot read are not looked at; ``error_message`` says more.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kafka.broker.error_responses import error_code, error_text, without_frames
from kafka.broker.log import PartitionLog, Topic
from kafka.broker.log_validator import (
    BATCHES_IN_PRODUCE_SINCE,
    RecordsWithoutKeyError,
    RecordValidation,
    TimestampOutOfRangeError,
    convert_message_set,
)
from kafka.broker.registry import RequestContext, handles, reject_too_many_elements
from kafka.broker.responses import PendingResponse, SlicedHandler
from kafka.broker.time_slices import PARTITION_COST_BYTES, SLICE_RECORDS, TimeSliceBudget
from kafka.broker.topics import INTERNAL_TOPICS
from kafka.broker.transactions.verification import ADDS_SINCE_PRODUCE, VerificationFailedError, verify_batch
from kafka.errors import (
    BrokerResponseError,
    CorruptRecordError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidRequiredAcksError,
    InvalidTimestampError,
    InvalidTopicError,
    InvalidTxnStateError,
    OutOfOrderSequenceNumberError,
    TransactionalIdAuthorizationFailedError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedCompressionTypeError,
)
from kafka.protocol.produce import ProduceRequest, ProduceResponse
from kafka.records import HEADER_BYTES, ZSTD
from kafka.records.header import ATTRIBUTES_AT, CODEC_MASK, FRAME_BYTES, MAGIC_AT, TRANSACTIONAL_BIT
from kafka.structs import TopicPartition
from kafka.wire.message import Response
from kafka.wire.types import BytesLike

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

MOST_ELEMENTS: Final = 16_000
"""Topics and partitions of one request together. As ``registry.MOST_ELEMENTS``, but counted in less time."""

_PEEK: Final = struct.Struct(">8xi4xb4xh")
"""size, magic, attributes"""
_PRODUCER: Final = struct.Struct(">qhi")
"""id, epoch, base sequence"""
_SIZE: Final = struct.Struct(">i")
_LEAST_SIZE: Final = 14
"""Of what follows the frame, in any format."""
_LOW_ATTRIBUTES_AT: Final = ATTRIBUTES_AT + 1
_PRODUCER_AT: Final = 43
_COUNT_AT: Final = 57
_NONE: Final = -1
_BY_THE_LOG: Final = (
    RecordsWithoutKeyError, InvalidTimestampError, OutOfOrderSequenceNumberError, InvalidProducerEpochError,
    InvalidTxnStateError,
)  # fmt: skip
"""Errors that Apache Kafka answers with the log's start offset."""

_PartitionResponse = ProduceResponse.PartitionProduceResponse


@handles(ProduceRequest)
def produce(broker: Broker, call: RequestContext[ProduceRequest]) -> Response | PendingResponse:
    if sum([1 + len(topic.partition_data) for topic in call.request.topic_data]) > MOST_ELEMENTS:
        return reject_too_many_elements(call, MOST_ELEMENTS)
    return broker.in_slices(call, _produce(broker, call))


def _produce(broker: Broker, call: RequestContext[ProduceRequest]) -> SlicedHandler:
    request = call.request
    failed = False
    responses = []
    budget = TimeSliceBudget()
    fault = _fault(request)
    for (name, topic_id), wanted in _by_partition(request).items():
        partitions = []
        for index, given in wanted.items():
            topic = _topic(broker, call, name, topic_id)  # anew: others may have had their turns, and deleted it
            taken = fault or (yield from _take(broker, call, topic, given))
            if isinstance(taken, BrokerResponseError):
                failed = True
                taken = _refused(broker, topic, index, taken)
            partitions.append(taken)
            slices_ended = [budget.spend(_size_of(data), _records_of(data)) for data in given]
            if any(slices_ended):
                yield False
        responses.append(
            ProduceResponse.TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=partitions)
        )
    if request.acks == 0:
        return PendingResponse.hanging_up() if failed else PendingResponse.of(None)
    return ProduceResponse(responses=responses)


_Given = list[ProduceRequest.PartitionProduceData]


def _by_partition(request: ProduceRequest) -> dict[tuple[str, UUID], dict[int, _Given]]:
    found: dict[tuple[str, UUID], dict[int, _Given]] = {}
    for topic_data in request.topic_data:
        for data in topic_data.partition_data:
            found.setdefault((topic_data.name, topic_data.topic_id), {}).setdefault(data.index, []).append(data)
    return found


def _topic(
    broker: Broker, call: RequestContext[ProduceRequest], name: str, topic_id: UUID
) -> Topic | BrokerResponseError:
    try:
        return broker.topic(name) if call.version < 13 else broker.topic_by_id(topic_id)
    except BrokerResponseError as error:
        return without_frames(error)


def _size_of(data: ProduceRequest.PartitionProduceData) -> int:
    """In bytes; with what each partition costs."""
    return PARTITION_COST_BYTES + len(data.records or b"")


def _records_of(data: ProduceRequest.PartitionProduceData) -> int:
    """How many its header claims, of those that may have been read in this turn."""
    records = data.records
    if not isinstance(records, (bytes, bytearray, memoryview)) or len(records) < HEADER_BYTES:
        return 0
    (count,) = _SIZE.unpack_from(records, _COUNT_AT)
    return max(0, min(int(count), SLICE_RECORDS))


def _take(
    broker: Broker, call: RequestContext[ProduceRequest], topic: Topic | BrokerResponseError, given: _Given
) -> Generator[bool, None, _PartitionResponse | BrokerResponseError]:
    """Of a partition that is named more than once, the last batch that is one is taken, as by Kafka; what was none is
    told nevertheless.

    An error is returned without its frames, of which this one holds it.
    """
    if isinstance(topic, BrokerResponseError):
        return topic
    good = None
    fault: BrokerResponseError | None = None
    response = None
    try:
        partition = broker.logs.log(topic, given[0].index)
        for data in given:
            try:
                good = (data.index, _batch_in(call, data))
            except BrokerResponseError as error:
                fault = without_frames(error)
        if good is not None:
            response = yield from _append(broker, call, topic, partition, *good)
    except BrokerResponseError as error:
        fault = fault or without_frames(error)
    return fault or response or InvalidRecordError("no records")


def _batch_in(call: RequestContext[ProduceRequest], data: ProduceRequest.PartitionProduceData) -> BytesLike | None:
    """What looks like one batch; None: an old message set without messages. Errors: CorruptRecordError (2),
    InvalidRecordError (87), UnsupportedCompressionTypeError (76)."""
    batch = data.records
    if call.version < BATCHES_IN_PRODUCE_SINCE and isinstance(batch, (bytes, bytearray, memoryview)):
        batch = convert_message_set(batch)
        if batch is None:
            return None
    if batch is None or isinstance(batch, (list, tuple)) or not len(batch):
        raise InvalidRecordError("a produce request has exactly one record batch for each partition")
    assert isinstance(batch, (bytes, bytearray, memoryview))
    if len(batch) < HEADER_BYTES:
        raise InvalidRecordError(f"{len(batch)} bytes are no record batch")
    size, magic, attributes = _PEEK.unpack_from(batch)
    if size < _LEAST_SIZE:
        raise CorruptRecordError(f"a record batch of {size} bytes")
    if not 0 <= magic <= 2:
        raise CorruptRecordError(f"there is no record format {magic}")
    if size + FRAME_BYTES > len(batch):
        raise InvalidRecordError(f"the record batch claims {size + FRAME_BYTES} bytes, of which {len(batch)} came")
    rest = len(batch) - size - FRAME_BYTES
    if rest >= HEADER_BYTES and _SIZE.unpack_from(batch, size + FRAME_BYTES + 8)[0] + FRAME_BYTES <= rest:
        raise InvalidRecordError("a produce request has exactly one record batch for each partition")
    if magic in (0, 1):
        raise InvalidRecordError(f"the record format {magic} is too old for version {call.version}")
    if magic == 2 and attributes & CODEC_MASK == ZSTD and call.version < 7:
        raise UnsupportedCompressionTypeError("zstd needs version 7 of Produce")
    return batch


def _fault(request: ProduceRequest) -> BrokerResponseError | None:
    """Why nothing of the request is taken: before all else Kafka looks for a transactional batch, and on its way it may
    meet one that is broken (2)."""
    try:
        for topic_data in request.topic_data:
            for data in topic_data.partition_data:
                records = data.records
                if isinstance(records, (bytes, bytearray, memoryview)) and _has_transactional(records):
                    if request.transactional_id is None:
                        return TransactionalIdAuthorizationFailedError("a transactional batch, no transactional id")
                    return None
    except CorruptRecordError as error:
        return without_frames(error)
    return None


def _has_transactional(records: bytes | bytearray | memoryview) -> bool:
    at = 0
    while len(records) - at >= FRAME_BYTES:
        (size,) = _SIZE.unpack_from(records, at + 8)
        if size < _LEAST_SIZE:
            raise CorruptRecordError(f"a record batch of {size} bytes")
        if len(records) - at <= MAGIC_AT:
            return False
        magic = records[at + MAGIC_AT]
        if magic > 2:
            raise CorruptRecordError(f"there is no record format {magic}")
        if len(records) - at < size + FRAME_BYTES:
            return False
        if size + FRAME_BYTES > _LOW_ATTRIBUTES_AT and _is_marked(records, at):
            return True
        at += size + FRAME_BYTES
    return False


def _append(
    broker: Broker,
    call: RequestContext[ProduceRequest],
    topic: Topic,
    partition: PartitionLog,
    index: int,
    batch: BytesLike | None,
) -> Generator[bool, None, _PartitionResponse]:
    if call.request.acks not in (-1, 0, 1):
        raise InvalidRequiredAcksError(f"acks={call.request.acks}")
    if topic.name in INTERNAL_TOPICS:
        raise InvalidTopicError(f"{topic.name} is the broker's own")
    if batch is None:
        return _PartitionResponse(index=index, base_offset=_NONE)
    is_transactional = _is_transactional(batch)
    if is_transactional:  # before the batch is looked at, as Apache Kafka does
        _admit(broker, call, topic, partition, index, batch)
    header = partition.check(batch)
    max_timestamp = header.max_timestamp
    now_ms = broker.epoch_ms()
    if call.version >= BATCHES_IN_PRODUCE_SINCE:
        check = RecordValidation(partition.name, partition.config, batch, header, now_ms)
        found = check.at_once()
        if found is None:
            found = yield from check.in_turns()
            # Others have had their turns: the topic may be gone, and the transaction over.
            now_ms = broker.epoch_ms()
            if broker.metadata.topic_by_id(topic.topic_id) is None:
                error_class = UnknownTopicOrPartitionError if call.version < 13 else UnknownTopicIdError
                raise error_class(f"no topic {topic.name}")
            if is_transactional:
                _admit(broker, call, topic, partition, index, batch)
        max_timestamp = found
    appended = partition.append(
        batch,
        now_ms=now_ms,
        header=header,
        max_timestamp=max_timestamp,
        must_begin_at_zero=is_transactional and call.version >= ADDS_SINCE_PRODUCE,
    )
    if not appended.is_duplicate:
        broker.appended(partition)
    return _PartitionResponse(
        index=index,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.append_time_ms,
        log_start_offset=partition.start_offset,
    )


def _is_marked(records: BytesLike, at: int) -> bool:
    """Whether the batch at this position says that it is transactional."""
    return records[at + MAGIC_AT] == 2 and records[at + _LOW_ATTRIBUTES_AT] & TRANSACTIONAL_BIT != 0


def _is_transactional(batch: BytesLike) -> bool:
    """Whether a batch is part of a producer's transaction; one without a producer id is only marked so."""
    return _is_marked(batch, 0) and _PRODUCER.unpack_from(batch, _PRODUCER_AT)[0] >= 0


def _admit(
    broker: Broker,
    call: RequestContext[ProduceRequest],
    topic: Topic,
    partition: PartitionLog,
    index: int,
    batch: BytesLike,
) -> None:
    """Ask whether a transactional batch may be part of the transaction. Errors: those of ``verify_batch``."""
    producer_id, epoch, sequence = _PRODUCER.unpack_from(batch, _PRODUCER_AT)
    where, transactional_id = TopicPartition(topic.name, index), call.request.transactional_id
    verify_batch(broker.transactions, where, partition, transactional_id, (producer_id, epoch), sequence, call.version)


def _refused(
    broker: Broker, topic: Topic | BrokerResponseError, index: int, error: BrokerResponseError
) -> _PartitionResponse:
    start = _NONE
    if isinstance(topic, Topic) and isinstance(error, _BY_THE_LOG):
        opened = broker.logs.log_if_open(topic.topic_id, index)  # None: the topic was deleted meanwhile
        start = _NONE if opened is None else opened.start_offset
    errors = error.record_errors if isinstance(error, (RecordsWithoutKeyError, TimestampOutOfRangeError)) else []
    return _PartitionResponse(
        index=index,
        error_code=error_code(error),
        base_offset=_NONE,
        log_start_offset=start,
        record_errors=errors,
        error_message=(error.text or None) if isinstance(error, VerificationFailedError) else error_text(error),
    )
