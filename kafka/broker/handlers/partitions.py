"""CreatePartitions (KIP-195) and DeleteRecords (KIP-107).

Both are done when they are answered, whatever the timeout. DeleteRecords moves the start of the log for everybody,
share groups included, and gives back the segments below it.

Different from Apache Kafka 4.3.0: nothing that is known.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kafka.broker.codes import error_code, error_text
from kafka.broker.registry import Call, Named, handles
from kafka.broker.settings import list_of
from kafka.broker.topics import INTERNAL_TOPICS, MAX_PARTITIONS_PER_REQUEST, check_replicas
from kafka.errors import (
    BrokerResponseError,
    InvalidPartitionsError,
    InvalidReplicationAssignmentError,
    InvalidRequestError,
    InvalidTopicError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    UnknownError,
)
from kafka.protocol.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
)

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

TO_THE_END = -1


@handles(CreatePartitionsRequest, versions=(0, 3))
def create_partitions(broker: Broker, call: Call[CreatePartitionsRequest]) -> CreatePartitionsResponse:
    request = call.request
    count_of = Counter(wanted.name for wanted in request.topics)
    more = 0
    results = []
    grown = []
    for wanted in {one.name: one for one in request.topics}.values():  # one answer for each name
        code, text = 0, None
        try:
            if count_of[wanted.name] > 1:
                raise InvalidRequestError("Duplicate topic name.")
            more += _check_growth(broker, wanted)
            if more > MAX_PARTITIONS_PER_REQUEST:
                raise UnknownError("more partitions than one request can make")  # -1: Kafka's answer
            if not request.validate_only:
                broker.metadata.grow_topic(wanted.name, wanted.count)
                grown.append(wanted.name)
        except BrokerResponseError as error:
            code, text = error_code(error), error_text(error) or None
        results.append(
            CreatePartitionsResponse.CreatePartitionsTopicResult(
                name=wanted.name, error_code=code, error_message=text
            )
        )
    if grown:
        broker.topics_changed(grown)
    return CreatePartitionsResponse(throttle_time_ms=0, results=results)


def _check_growth(broker: Broker, wanted: CreatePartitionsRequest.CreatePartitionsTopic) -> int:
    """How many partitions are to be added."""
    topic = broker.topic(wanted.name)
    if wanted.count == topic.partitions:
        raise InvalidPartitionsError(f"Topic already has {topic.partitions} partition(s).")
    if wanted.count < topic.partitions:
        raise InvalidPartitionsError(
            f"The topic {wanted.name} currently has {topic.partitions} partition(s); {wanted.count} would not be an "
            "increase."
        )
    more = wanted.count - topic.partitions
    if wanted.assignments is not None:
        if len(wanted.assignments) != more:
            raise InvalidReplicationAssignmentError(
                f"Attempted to add {more} additional partition(s), but only {len(wanted.assignments)} assignment(s) "
                "were specified."
            )
        for assignment in wanted.assignments:
            check_replicas(broker, assignment.broker_ids)
    return more


def _named(request: DeleteRecordsRequest) -> list[Named]:
    return [(topic.name, one.partition_index) for topic in request.topics for one in topic.partitions]


@handles(DeleteRecordsRequest, versions=(0, 2), opens=_named)
def delete_records(broker: Broker, call: Call[DeleteRecordsRequest]) -> DeleteRecordsResponse:
    wanted: dict[str, dict[int, int]] = {}  # of a partition that is named twice the last counts
    for topic in call.request.topics:
        for one in topic.partitions:
            wanted.setdefault(topic.name, {})[one.partition_index] = one.offset
    return DeleteRecordsResponse(
        throttle_time_ms=0,
        topics=[
            DeleteRecordsResponse.DeleteRecordsTopicResult(
                name=name,
                partitions=[_delete(broker, name, number, offset) for number, offset in offsets.items()],
            )
            for name, offsets in wanted.items()
        ],
    )


def _delete(
    broker: Broker, name: str, number: int, offset: int
) -> DeleteRecordsResponse.DeleteRecordsPartitionResult:
    code, start = 0, -1
    try:
        topic = broker.topic(name)
        log = broker.logs.log(topic, number)
        if name in INTERNAL_TOPICS:
            raise InvalidTopicError(f"{name} is the broker's own")
        policy = list_of(broker.topic_setting(topic, "cleanup.policy"))
        if "compact" in policy and "delete" not in policy:
            raise PolicyViolationError(f"{name} is compacted, so its records cannot be deleted")
        if offset == TO_THE_END:
            offset = log.end_offset
        if offset < 0:
            raise OffsetOutOfRangeError(f"{log.name} has no offset {offset}")
        start = log.delete_before(offset)
        broker.log_start_moved(topic, number, start)
    except BrokerResponseError as error:
        code = error_code(error)
    return DeleteRecordsResponse.DeleteRecordsPartitionResult(
        partition_index=number, low_watermark=start, error_code=code
    )
