"""WriteTxnMarkers: markers from a coordinator elsewhere, or from an operator who aborts a transaction that hangs
(KIP-664). The coordinator of this broker needs no request for its own.

Answers are told by producer. A marker with a producer or epoch below 0, for a partition that is there, fails them all;
one with an unknown transaction version (-1) is not written.

Different from Apache Kafka 4.3.0: every request is answered; there none is with a partition twice in one marker (it is
written once here), or with a marker that has something to write before one that has not. When a marker of higher
coordinator epoch has come this way, Kafka's own coordinator waits for ever in a Prepare state; here the transaction is
completed, with a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kafka.broker.codes import error_code
from kafka.broker.registry import Call, handles
from kafka.broker.state.state_topic import CONSUMER_OFFSETS
from kafka.broker.transactions.markers import Marker, write_marker
from kafka.errors import BrokerResponseError, UnknownTopicOrPartitionError
from kafka.protocol.transactions import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from kafka.structs import TopicPartition

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

_UNKNOWN_SERVER_ERROR: Final = -1
_UNKNOWN_VERSION: Final = -1

_Marker = WriteTxnMarkersRequest.WritableTxnMarker
_Codes = dict[int, dict[TopicPartition, int]]
"""Producer id -> partition -> error code."""


@handles(WriteTxnMarkersRequest, versions=(0, 2))
def write_markers(broker: Broker, call: Call[WriteTxnMarkersRequest]) -> WriteTxnMarkersResponse:
    codes: _Codes = {}
    for one in call.request.markers:
        there = []
        for partition in dict.fromkeys(_partitions(one)):
            if _is_there(broker, partition):
                there.append(partition)
            else:
                codes.setdefault(one.producer_id, {})[partition] = error_code(UnknownTopicOrPartitionError)
        is_nobodys = one.producer_id < 0 or one.producer_epoch < 0
        if is_nobodys and any(partition.topic != CONSUMER_OFFSETS for partition in there):
            return _response(_all_failed(call.request.markers))  # as in Kafka, with those before it written
        marker = Marker(
            one.producer_id, one.producer_epoch, one.transaction_result, one.coordinator_epoch, one.transaction_version
        )
        for partition in there:
            is_refused = is_nobodys or one.transaction_version == _UNKNOWN_VERSION
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
    results = []
    for producer_id, by_partition in codes.items():
        topics: dict[str, list[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult]] = {}
        for partition, code in by_partition.items():
            topics.setdefault(partition.topic, []).append(
                WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult(
                    partition_index=partition.partition, error_code=code
                )
            )
        results.append(
            WriteTxnMarkersResponse.WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(name=name, partitions=partitions)
                    for name, partitions in topics.items()
                ],
            )
        )
    return WriteTxnMarkersResponse(markers=results)


def _write(broker: Broker, partition: TopicPartition, marker: Marker) -> int:
    try:
        write_marker(broker, partition, marker)
    except BrokerResponseError as error:
        return error_code(error)
    return 0
