"""ListOffsets, from version 1 on: the start (-2, -4), the end (-1), the greatest timestamp (-3), or the first offset
at or after a time.

Different from Apache Kafka 4.3.0: no tiers, so -4 is the start and -5 and -6 find nothing. No transactions yet:
``isolation_level`` changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka.broker.broker import error_code
from kafka.broker.log import FoundOffset, PartitionLog
from kafka.broker.registry import Call, handles
from kafka.errors import (
    BrokerResponseError,
    InvalidRequestError,
    UnknownLeaderEpochError,
    UnsupportedVersionError,
)
from kafka.protocol.list_offsets import ListOffsetsRequest, ListOffsetsResponse

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING: Final = -6

SINCE: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING: 11}
"""Special time -> the first version that may ask for it."""

_Answer = ListOffsetsResponse.ListOffsetsPartitionResponse


@handles(ListOffsetsRequest, versions=(1, 11))
def list_offsets(broker: Broker, call: Call[ListOffsetsRequest]) -> ListOffsetsResponse:
    seen: set[tuple[str, int]] = set()
    twice: set[tuple[str, int]] = set()
    for topic in call.request.topics:
        for wanted in topic.partitions:
            name = (topic.name, wanted.partition_index)
            (twice if name in seen else seen).add(name)
    topics = []
    for topic in call.request.topics:
        partitions = []
        for wanted in {one.partition_index: one for one in topic.partitions}.values():
            try:
                if (topic.name, wanted.partition_index) in twice:
                    raise InvalidRequestError("a partition is asked for twice")
                partitions.append(_find(broker, call.version, topic.name, wanted))
            except BrokerResponseError as error:
                partitions.append(_Answer(partition_index=wanted.partition_index, error_code=error_code(error)))
        topics.append(ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return ListOffsetsResponse(topics=topics)


def _find(broker: Broker, version: int, name: str, wanted: ListOffsetsRequest.ListOffsetsPartition) -> _Answer:
    log = broker.logs.log(broker.topic(name), wanted.partition_index)
    if wanted.current_leader_epoch > 0:
        raise UnknownLeaderEpochError(f"{log.name} is at leader epoch 0, not {wanted.current_leader_epoch}")
    if wanted.timestamp < EARLIEST_PENDING or version < SINCE.get(wanted.timestamp, 0):
        raise UnsupportedVersionError(f"time {wanted.timestamp} in version {version}")
    found = _at(log, wanted.timestamp)
    if found is None:
        return _Answer(partition_index=wanted.partition_index, error_code=0)
    return _Answer(
        partition_index=wanted.partition_index,
        error_code=0,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch if version >= 4 else -1,
    )


def _at(log: PartitionLog, timestamp: int) -> FoundOffset | None:
    if timestamp == LATEST:
        return FoundOffset(log.end_offset, -1, 0)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return FoundOffset(log.start_offset, -1, 0)
    if timestamp == MAX_TIMESTAMP:
        return log.offset_of_max_timestamp()
    if timestamp < 0:
        return None
    return log.offset_for_timestamp(timestamp)
