"""ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments: every partition is led here, and stays.

What is asked for is checked as by Apache Kafka 4.3.0; nothing is ever under way.

Different from Apache Kafka 4.3.0: nothing that is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka.broker.codes import error_code, error_text
from kafka.broker.registry import Call, handles
from kafka.broker.topics import check_replicas
from kafka.errors import (
    BrokerResponseError,
    ElectionNotNeededError,
    InvalidRequestError,
    NoReassignmentInProgressError,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

PREFERRED, UNCLEAN = 0, 1
_ELECTION_TYPES: Final = (PREFERRED, UNCLEAN)

_Result = ElectLeadersResponse.ReplicaElectionResult


@handles(ElectLeadersRequest, versions=(0, 2))
def elect_leaders(broker: Broker, call: Call[ElectLeadersRequest]) -> ElectLeadersResponse:
    request = call.request
    is_unknown = request.election_type not in _ELECTION_TYPES
    if request.topic_partitions is None:
        results = [] if is_unknown else [_Result(topic=topic.name, partition_result=[]) for topic in broker.metadata]
    else:
        results = [
            _Result(
                topic=asked.topic,
                partition_result=[_elect(broker, asked.topic, one, request.election_type) for one in asked.partitions],
            )
            for asked in request.topic_partitions
        ]
    asks_for_some = request.topic_partitions is None or bool(results)
    code = error_code(InvalidRequestError) if is_unknown and call.version >= 1 and asks_for_some else 0
    return ElectLeadersResponse(throttle_time_ms=0, error_code=code, replica_election_results=results)


def _elect(broker: Broker, name: str, number: int, kind: int) -> ElectLeadersResponse.PartitionResult:
    topic = broker.metadata.topic(name)
    error: type[BrokerResponseError]
    if kind not in _ELECTION_TYPES:
        error, text = InvalidRequestError, f"Unknown election type {kind}"
    elif topic is None:
        error, text = UnknownTopicOrPartitionError, f"No such topic as {name}"
    elif not 0 <= number < topic.partitions:
        error, text = UnknownTopicOrPartitionError, f"No such partition as {name}-{number}"
    else:
        error, text = ElectionNotNeededError, "Leader election not needed for topic partition."
    return ElectLeadersResponse.PartitionResult(
        partition_id=number, error_code=error_code(error), error_message=text
    )


@handles(AlterPartitionReassignmentsRequest, versions=(0, 1))
def alter_partition_reassignments(
    broker: Broker, call: Call[AlterPartitionReassignmentsRequest]
) -> AlterPartitionReassignmentsResponse:
    request = call.request
    return AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        allow_replication_factor_change=request.allow_replication_factor_change or not request.topics,
        error_code=0,
        error_message=None if request.topics else "",
        responses=[
            AlterPartitionReassignmentsResponse.ReassignableTopicResponse(
                name=topic.name, partitions=[_reassign(broker, topic.name, one) for one in topic.partitions]
            )
            for topic in request.topics
        ],
    )


def _reassign(
    broker: Broker, name: str, wanted: AlterPartitionReassignmentsRequest.ReassignablePartition
) -> AlterPartitionReassignmentsResponse.ReassignablePartitionResponse:
    number = wanted.partition_index
    code, text = 0, None
    try:
        topic = broker.metadata.topic(name)
        if topic is None:
            raise UnknownTopicOrPartitionError(f"Unable to find a topic named {name}.")
        if not 0 <= number < topic.partitions:
            raise UnknownTopicOrPartitionError(f"Unable to find partition {name}:{number}.")
        if wanted.replicas is None:
            code = error_code(NoReassignmentInProgressError)
        else:
            check_replicas(broker, wanted.replicas)
    except BrokerResponseError as error:
        code, text = error_code(error), error_text(error)
    return AlterPartitionReassignmentsResponse.ReassignablePartitionResponse(
        partition_index=number, error_code=code, error_message=text
    )


@handles(ListPartitionReassignmentsRequest, versions=(0, 0))
def list_partition_reassignments(
    broker: Broker, call: Call[ListPartitionReassignmentsRequest]
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(throttle_time_ms=0, error_code=0, error_message=None, topics=[])
