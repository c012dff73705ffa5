"""Batches of one node, as the Produce request that carries them. (As what they go over the wire:
:class:`EncodedProduceRequest`.)"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from kafka.core.produce.batch import ProducerBatch
from kafka.errors import (
    CorruptRecordError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
    UnsupportedVersionError,
)
from kafka.protocol.produce import ProduceRequest, ProduceResponse
from kafka.records import ZSTD, decode_raw, encode_message_set, parse_header
from kafka.wire.types import ZERO_UUID

# What a Produce request carries in the version that its node speaks.
#
#     Produce v0, v1   message sets v0        brokers 0.8 and 0.9
#     Produce v2       message sets v1        brokers 0.10
#     Produce v3 on    batches v2             since 0.11; compressed with zstd since v7 (2.1)
#
# Batches are collected and kept as v2 whatever the broker is, since a partition's leader may be another broker, of
# another release, at the next attempt; so the format is chosen when the version is known, at the moment of sending
# (:meth:`EncodedProduceRequest.build`). For an old broker the batch is read and written anew, which costs as much
# again as making it did; other brokers cost nothing more.
#
# What an old format cannot hold is refused here, batch by batch, and the refusals are put into the answer as the broker
# would have put them (:meth:`EncodedProduceRequest.complete`): the others in the request have gone out, and the
# sender needs no second way to learn that a batch was refused. Timestamps are left out of v0 silently, as in
# Java.
#
# Source: KIP-32, KIP-82 (headers), KIP-98, KIP-110 (zstd); Java's ``ProduceRequest.validateRecords``.


MESSAGE_SETS: Final = {0: 0, 1: 0, 2: 1}
"""Version of Produce -> the magic of its message sets; later versions carry batches."""
FIRST_VERSION_OF_ZSTD: Final = 7
MAX_BATCH_BYTES: Final = 0x7FFFFFFF
"""Its own batches a producer need not fear."""

_Data = ProduceRequest.PartitionProduceData


class EncodedProduceRequest:
    """One request on its way. ``codec`` and ``level`` are those that its batches were made with."""

    __slots__ = ("_codec", "_level", "_refused", "_request")

    def __init__(self, request: ProduceRequest, codec: int, level: int | None = None) -> None:
        self._request = request
        self._codec = codec
        self._level = level
        self._refused: list[ProduceResponse.TopicProduceResponse] = []

    def build(self, version: int) -> ProduceRequest:
        """The request as ``version`` carries it, without the batches that it cannot.

        Raises when that leaves none: UnsupportedCompressionTypeError for zstd, UnsupportedForMessageFormatError for
        records with headers; UnsupportedVersionError for a transaction.
        """
        request = self._request
        if version >= FIRST_VERSION_OF_ZSTD or (version not in MESSAGE_SETS and self._codec != ZSTD):
            return request
        if self._codec == ZSTD:
            raise UnsupportedCompressionTypeError(
                f"the broker speaks Produce v{version}, and zstd needs v{FIRST_VERSION_OF_ZSTD}: Kafka 2.1 or later"
            )
        if request.transactional_id is not None:
            raise UnsupportedVersionError(f"the broker speaks Produce v{version}; transactions need Kafka 0.11")
        return self._as_message_sets(MESSAGE_SETS[version])

    def _as_message_sets(self, magic: int) -> ProduceRequest:
        """The request with its batches converted to message sets of ``magic`` 0 or 1, for brokers before 0.11. Batches
        that cannot be converted are left out, and their error is kept for :meth:`complete`; it is raised when no batch
        is left."""
        topics: list[ProduceRequest.TopicProduceData] = []
        refusal: UnsupportedForMessageFormatError | None = None
        for topic in self._request.topic_data:
            partitions: list[_Data] = []
            for data in topic.partition_data:
                try:
                    records = self._as_message_set(data, magic)
                except UnsupportedForMessageFormatError as error:
                    refusal = error
                    self._note(topic, data.index, error)
                else:
                    partitions.append(_Data(index=data.index, records=records))
            if partitions:
                topics.append(
                    ProduceRequest.TopicProduceData(
                        name=topic.name, topic_id=topic.topic_id, partition_data=partitions
                    )
                )
        if refusal is not None and not topics:
            raise refusal
        return ProduceRequest(acks=self._request.acks, timeout_ms=self._request.timeout_ms, topic_data=topics)

    def _as_message_set(self, data: _Data, magic: int) -> bytes:
        records_field = data.records
        batch = b"".join(records_field) if isinstance(records_field, list) else records_field
        assert isinstance(batch, (bytes, bytearray, memoryview))
        header = parse_header(batch)
        if header is None:
            raise CorruptRecordError("a batch of this producer's own is cut")
        records = decode_raw(batch, header, MAX_BATCH_BYTES)
        if any(record[4] for record in records):
            raise UnsupportedForMessageFormatError(
                f"records with headers, and the broker keeps message sets v{magic}: headers need Kafka 0.11 or later"
            )
        return encode_message_set(records, magic, header.codec, level=self._level)

    def _note(
        self, topic: ProduceRequest.TopicProduceData, index: int, error: UnsupportedForMessageFormatError
    ) -> None:
        assert error.errno is not None
        refused = ProduceResponse.PartitionProduceResponse(
            index=index, error_code=error.errno, base_offset=-1, error_message=str(error.args[0])
        )
        self._refused.append(
            ProduceResponse.TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=[refused]
            )
        )

    def complete(self, response: ProduceResponse | None) -> ProduceResponse | None:
        """The answer with what was refused here. None (acks=0, and the request has been written) becomes an answer when
        there is something to tell."""
        if not self._refused:
            return response
        if response is not None:
            return ProduceResponse(
                responses=[*response.responses, *self._refused], throttle_time_ms=response.throttle_time_ms
            )
        refused = {(topic.name, topic.partition_responses[0].index) for topic in self._refused}
        written = [
            ProduceResponse.TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    ProduceResponse.PartitionProduceResponse(index=data.index, error_code=0, base_offset=-1)
                    for data in topic.partition_data
                    if (topic.name, data.index) not in refused
                ],
            )
            for topic in self._request.topic_data
        ]
        return ProduceResponse(responses=[*written, *self._refused])


FIRST_VERSION_WITH_IDS: Final = 13


def produce_request(
    batches: Sequence[ProducerBatch], acks: int, timeout_ms: int, topic_id_of: Callable[[str], UUID]
) -> tuple[ProduceRequest, int | None]:
    """The request, and the last version that it may be sent in (None: any): topics without an id have to be named."""
    topics: dict[str, ProduceRequest.TopicProduceData] = {}
    max_version: int | None = None
    for batch in batches:
        data = topics.get(batch.topic)
        if data is None:
            topic_id = topic_id_of(batch.topic)
            if topic_id == ZERO_UUID:
                max_version = FIRST_VERSION_WITH_IDS - 1
            data = topics[batch.topic] = ProduceRequest.TopicProduceData(
                name=batch.topic, topic_id=topic_id, partition_data=[]
            )
        pieces = batch.pieces()
        data.partition_data.append(
            ProduceRequest.PartitionProduceData(
                index=batch.partition, records=pieces[0] if len(pieces) == 1 else pieces
            )
        )
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=list(topics.values())), max_version
