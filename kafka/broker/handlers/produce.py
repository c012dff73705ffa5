"""Produce, from version 3 on: batches go to the logs as they are, but for their offsets (and times, where the topic
says LogAppendTime).

Idempotent producers are checked by the log (``log/producer_state.py``). ``acks`` 1 and -1 are the same on one broker;
with ``acks`` 0 a fault can only be shown by hanging up, as Apache Kafka does. Records ahead of the broker's clock by
more than ``message.timestamp.after.max.ms`` are refused (32).

Different from Apache Kafka 4.3.0: no transactions yet (a transactional batch gets INVALID_TXN_STATE, 48);
``compression.type`` other than ``producer`` does not recompress; records inside a batch are not looked at (no
INVALID_RECORD for a null key in a compacted topic, no ``record_errors``).
"""

from __future__ import annotations

import contextlib
import struct
from typing import TYPE_CHECKING, Final

from kafka.broker.broker import error_code, error_text
from kafka.broker.log import Topic
from kafka.broker.registry import Call, handles
from kafka.broker.reply import Reply
from kafka.errors import (
    BrokerResponseError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidRequiredAcksError,
    InvalidTimestampError,
    InvalidTxnStateError,
    KafkaError,
    OutOfOrderSequenceNumberError,
    UnsupportedCompressionTypeError,
)
from kafka.protocol.produce import ProduceRequest, ProduceResponse
from kafka.records import HEADER_BYTES, ZSTD, decode_raw, parse_header
from kafka.wire.types import BytesLike

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

_PEEK: Final = struct.Struct(">8xi4xb4xh4xqq")
"""size, magic, attributes, base timestamp, max timestamp"""
FRAME_BYTES: Final = 12
_CODEC_MASK: Final = 0x07
_TRANSACTIONAL: Final = 0x10
_NONE: Final = -1
_BY_THE_LOG: Final = (InvalidTimestampError, OutOfOrderSequenceNumberError, InvalidProducerEpochError)
"""Errors that Apache Kafka answers with the log's start offset."""

_PartitionResponse = ProduceResponse.PartitionProduceResponse


@handles(ProduceRequest, versions=(3, 13), listed_from=0)
def produce(broker: Broker, call: Call[ProduceRequest]) -> ProduceResponse | Reply:
    request = call.request
    failed = False
    responses = []
    for topic_data in request.topic_data:
        topic: Topic | BrokerResponseError
        try:
            topic = broker.topic(topic_data.name) if call.version < 13 else broker.topic_by_id(topic_data.topic_id)
        except BrokerResponseError as error:
            topic = error
        partitions = []
        for partition_data in topic_data.partition_data:
            try:
                partitions.append(_append(broker, call, topic, partition_data))
            except BrokerResponseError as error:
                failed = True
                partitions.append(_refused(broker, topic, partition_data.index, error))
        responses.append(
            ProduceResponse.TopicProduceResponse(
                name=topic_data.name, topic_id=topic_data.topic_id, partition_responses=partitions
            )
        )
    if request.acks == 0:
        return Reply.hanging_up() if failed else Reply.of(None)
    return ProduceResponse(responses=responses)


def _append(
    broker: Broker,
    call: Call[ProduceRequest],
    topic: Topic | BrokerResponseError,
    data: ProduceRequest.PartitionProduceData,
) -> _PartitionResponse:
    if call.request.acks not in (-1, 0, 1):
        raise InvalidRequiredAcksError(f"acks={call.request.acks}")
    if isinstance(topic, BrokerResponseError):
        raise topic
    partition = broker.logs.log(topic, data.index)
    batch = data.records
    if batch is None or isinstance(batch, (list, tuple)) or not len(batch):
        raise InvalidRecordError("a produce request has exactly one record batch for each partition")
    assert isinstance(batch, (bytes, bytearray, memoryview))
    now_ms = broker.epoch_ms()
    if len(batch) < HEADER_BYTES:
        raise InvalidRecordError(f"{len(batch)} bytes are no record batch")
    size, magic, attributes, _, max_timestamp = _PEEK.unpack_from(batch)
    if size + FRAME_BYTES > len(batch):
        raise InvalidRecordError(f"the record batch claims {size + FRAME_BYTES} bytes, of which {len(batch)} came")
    if magic == 2:
        if attributes & _TRANSACTIONAL:
            raise InvalidTxnStateError("this broker has no transactions yet")
        if attributes & _CODEC_MASK == ZSTD and call.version < 7:
            raise UnsupportedCompressionTypeError("zstd needs version 7 of Produce")
        if max_timestamp > now_ms and not partition.config.log_append_time:
            ahead = int(broker.topic_setting(topic, "message.timestamp.after.max.ms"))
            if max_timestamp - now_ms > ahead:
                raise _AheadOfTime(batch, now_ms + ahead)
    appended = partition.append(batch, now_ms=now_ms)
    if not appended.is_duplicate:
        broker.appended(partition)
    return _PartitionResponse(
        index=data.index,
        error_code=0,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.append_time_ms,
        log_start_offset=partition.start_offset,
    )


class _AheadOfTime(InvalidTimestampError):
    """Records of the batch have timestamps above ``limit_ms``."""

    def __init__(self, batch: BytesLike, limit_ms: int) -> None:
        super().__init__("One or more records have been rejected due to invalid timestamp")
        self.batch = batch
        self.limit_ms = limit_ms

    def record_errors(self) -> list[ProduceResponse.BatchIndexAndErrorMessage]:
        """Which records, and what is wrong with each."""
        found = []
        header = parse_header(self.batch)
        for at, record in enumerate(decode_raw(self.batch, header) if header is not None else ()):
            if record[1] > self.limit_ms:
                found.append(
                    ProduceResponse.BatchIndexAndErrorMessage(
                        batch_index=at,
                        batch_index_error_message=f"Timestamp {record[1]} of message with offset {at} is out of range. "
                        f"The timestamp should be at most {self.limit_ms}",
                    )
                )
        return found


def _refused(
    broker: Broker, topic: Topic | BrokerResponseError, index: int, error: BrokerResponseError
) -> _PartitionResponse:
    start = _NONE
    if isinstance(topic, Topic) and isinstance(error, _BY_THE_LOG):
        start = broker.logs.log(topic, index).start_offset
    errors: list[ProduceResponse.BatchIndexAndErrorMessage] = []
    if isinstance(error, _AheadOfTime):
        with contextlib.suppress(KafkaError):
            errors = error.record_errors()
    return _PartitionResponse(
        index=index,
        error_code=error_code(error),
        base_offset=_NONE,
        log_start_offset=start,
        record_errors=errors,
        error_message=error_text(error),
    )
