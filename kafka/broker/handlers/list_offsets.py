"""ListOffsets: the start (-2, -4), the end (-1), the greatest timestamp (-3), or the first offset at or after a time.
In version 0, where segments begin (``log_validator.py``). And OffsetForLeaderEpoch: where an epoch ended.

Where a batch with many records has to be read for it, that is done in slices (``time_slices.py``).

For consumers (replica -1) that read committed records, everything ends at the last stable offset. There are no tiers,
so -4 is the start, -5 and -6 find nothing, and no answer waits, whatever the timeout.

Different from Apache Kafka 4.3.0: nothing that is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Final

from kafka.broker.error_responses import answer_each, error_code, failed
from kafka.broker.handlers.fetch import READ_COMMITTED, READ_UNCOMMITTED, check_leader_epoch
from kafka.broker.log import PartitionLog
from kafka.broker.log.segment import TimestampOffset
from kafka.broker.log_validator import segment_offsets
from kafka.broker.registry import PartitionRef, RequestContext, handles
from kafka.broker.responses import PendingResponse, SlicedHandler
from kafka.broker.time_slices import PARTITION_COST_BYTES, TimeSliceBudget
from kafka.errors import BrokerResponseError, InvalidRequestError, UnknownError, UnsupportedVersionError
from kafka.protocol.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.offsets import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from kafka.wire.message import Response

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING: Final = -6
CONSUMER: Final = -1
"""``replica_id`` of one that isolation levels are for."""

SINCE: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING: 11}
"""Special time -> the first version that may ask for it."""

_Answer = ListOffsetsResponse.ListOffsetsPartitionResponse


@handles(ListOffsetsRequest)
def list_offsets(broker: Broker, call: RequestContext[ListOffsetsRequest]) -> Response | PendingResponse:
    return broker.in_slices(call, _list_offsets(broker, call))


def _list_offsets(broker: Broker, call: RequestContext[ListOffsetsRequest]) -> SlicedHandler:
    """Each partition by itself; one that the request names twice gets INVALID_REQUEST (42). Yields False after each
    slice of work, so that a request for many partitions does not hold up the loop."""
    if call.request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return _of_no_isolation_level(call.request)
    budget = TimeSliceBudget()
    topics = call.request.topics
    count_of = Counter((topic.name, one.partition_index) for topic in topics for one in topic.partitions)
    found: dict[str, dict[int, _Answer]] = {}
    for topic in topics:
        for wanted in topic.partitions:
            try:
                if count_of[topic.name, wanted.partition_index] > 1:
                    raise InvalidRequestError("a partition is asked for twice")
                answer = yield from _find(broker, call, topic.name, wanted)
            except BrokerResponseError as error:
                answer = _Answer(partition_index=wanted.partition_index, error_code=error_code(error))
            if budget.spend(PARTITION_COST_BYTES):
                yield False
            found.setdefault(topic.name, {})[wanted.partition_index] = answer
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.ListOffsetsTopicResponse(name=name, partitions=list(partitions.values()))
            for name, partitions in found.items()
        ]
    )


def _of_no_isolation_level(request: ListOffsetsRequest) -> ListOffsetsResponse:
    """UNKNOWN_SERVER_ERROR (-1) to each partition is Kafka's answer."""
    code = error_code(UnknownError)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[_Answer(partition_index=one.partition_index, error_code=code) for one in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _find(
    broker: Broker, call: RequestContext[ListOffsetsRequest], name: str, wanted: ListOffsetsRequest.ListOffsetsPartition
) -> Generator[bool, None, _Answer]:
    """One partition's offset. Errors: an unknown partition, a wrong leader epoch (KIP-320), UnsupportedVersionError
    for a special time that this version does not have. Read committed is for consumers only: a replica sees the log's
    end."""
    isolation = call.request.isolation_level
    if call.version == 0:
        log = broker.logs.log(broker.topic(name), wanted.partition_index)
        starts = segment_offsets(log, wanted.timestamp, wanted.max_num_offsets, broker.epoch_ms())
        return _Answer(partition_index=wanted.partition_index, old_style_offsets=starts)
    if wanted.timestamp < EARLIEST_PENDING or call.version < SINCE.get(wanted.timestamp, 0):
        raise UnsupportedVersionError(f"time {wanted.timestamp} in version {call.version}")
    log = broker.logs.log(broker.topic(name), wanted.partition_index)
    check_leader_epoch(log, wanted.current_leader_epoch)
    is_committed = isolation == READ_COMMITTED and call.request.replica_id == CONSUMER
    found = yield from _at(log, wanted.timestamp, log.last_stable_offset if is_committed else log.end_offset)
    if found is None:
        return _Answer(partition_index=wanted.partition_index)
    return _Answer(
        partition_index=wanted.partition_index,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch if call.version >= 4 else -1,
    )


def _at(log: PartitionLog, timestamp: int, end: int) -> Generator[bool, None, TimestampOffset | None]:
    """``end``: the reader sees what is before it."""
    if timestamp == LATEST:
        return TimestampOffset(end, -1, log.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return TimestampOffset(
            log.start_offset, -1, log.epochs.entries[0][0] if log.epochs.entries else log.leader_epoch
        )
    if timestamp < 0 and timestamp != MAX_TIMESTAMP:
        return None
    is_newest = timestamp == MAX_TIMESTAMP
    found = yield from log.search_max_timestamp() if is_newest else log.search_timestamp(timestamp)
    return found if found is not None and found.offset < end else None


# -- leader epochs ---------------------------------------------------------------------------------------------------

_EpochEnd = OffsetForLeaderEpochResponse.EpochEndOffset


def _named(request: OffsetForLeaderEpochRequest) -> list[PartitionRef]:
    return [(topic.topic, one.partition) for topic in request.topics for one in topic.partitions]


@handles(OffsetForLeaderEpochRequest, opens=_named)
def offset_for_leader_epoch(
    broker: Broker, call: RequestContext[OffsetForLeaderEpochRequest]
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=answer_each(
                    topic.partitions,
                    partial(_epoch_end, broker, topic.topic),
                    lambda one, error: failed(_EpochEnd, error, partition=one.partition),
                ),
            )
            for topic in call.request.topics
        ]
    )


def _epoch_end(broker: Broker, name: str, wanted: OffsetForLeaderEpochRequest.OffsetForLeaderPartition) -> _EpochEnd:
    log = broker.logs.log(broker.topic(name), wanted.partition)
    check_leader_epoch(log, wanted.current_leader_epoch)
    epoch, end_offset = log.end_offset_for_epoch(wanted.leader_epoch)
    return _EpochEnd(partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset)
