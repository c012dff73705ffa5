"""ShareAcknowledge (KIP-932, KIP-1222): what became of the records that a member holds.

Also what ShareFetch needs for the acknowledgements that it carries. All of one partition's are applied or none of them;
they are durable when the answer goes out. A RENEW starts the lock anew.

Different from Apache Kafka 4.3.0: offsets from below the start on, while nothing is in flight, are INVALID_RECORD_STATE
(121) for their partition; there the whole request, with all its partitions, fails with -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from kafka.broker.codes import error_code, error_text
from kafka.broker.registry import Call, handles
from kafka.broker.share.acknowledgements import check_ack_batches
from kafka.broker.share.sessions import FINAL_EPOCH
from kafka.broker.share.state_store import ShareKey
from kafka.broker.share.states import AckBatch
from kafka.errors import BrokerResponseError, UnknownTopicOrPartitionError
from kafka.protocol.share import ShareAcknowledgeRequest, ShareAcknowledgeResponse

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

Name = tuple[UUID, int]
"""A topic's id and a partition's number."""


class Fault(NamedTuple):
    """The error of one partition."""

    code: int
    text: str | None


FINE: Final = Fault(0, None)


@handles(ShareAcknowledgeRequest, versions=(1, 2))
def share_acknowledge(broker: Broker, call: Call[ShareAcknowledgeRequest]) -> ShareAcknowledgeResponse:
    request = call.request
    group_id, member_id = request.group_id or "", request.member_id or ""
    try:
        broker.sessions.acknowledge(request.group_id, member_id, request.share_session_epoch)
    except BrokerResponseError as error:
        return ShareAcknowledgeResponse(
            throttle_time_ms=0,
            error_code=error_code(error),
            error_message=error_text(error),
            responses=[],
            node_endpoints=[],
        )
    faults = acknowledge(broker, group_id, member_id, ack_batches(request.topics), request.is_renew_ack, call.now)
    if request.share_session_epoch == FINAL_EPOCH:
        close_session(broker, group_id, member_id, call.now)
    topics: dict[UUID, list[ShareAcknowledgeResponse.PartitionData]] = {}
    for (topic_id, number), fault in faults.items():
        topics.setdefault(topic_id, []).append(
            ShareAcknowledgeResponse.PartitionData(
                partition_index=number,
                error_code=fault.code,
                error_message=fault.text,
                current_leader=ShareAcknowledgeResponse.LeaderIdAndEpoch(leader_id=0, leader_epoch=0),
            )
        )
    return ShareAcknowledgeResponse(
        throttle_time_ms=0,
        error_code=0,
        acquisition_lock_timeout_ms=broker.share.config(group_id).number("share.record.lock.duration.ms"),
        responses=[
            ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in topics.items()
        ],
        node_endpoints=[],
    )


def ack_batches(topics: Sequence[Any]) -> dict[Name, list[AckBatch]]:
    """What is acknowledged, by partition; partitions without acknowledgements are left out."""
    return {
        (topic.topic_id, one.partition_index): [
            AckBatch(batch.first_offset, batch.last_offset, tuple(batch.acknowledge_types))
            for batch in one.acknowledgement_batches
        ]
        for topic in topics
        for one in topic.partitions
        if one.acknowledgement_batches
    }


def acknowledge(
    broker: Broker, group_id: str, member_id: str, acks: dict[Name, list[AckBatch]], is_renew: bool, now: float
) -> dict[Name, Fault]:
    """Apply the acknowledgements of each partition: all or none of them."""
    faults: dict[Name, Fault] = {}
    for name, batches in acks.items():
        fault = FINE
        try:
            check_ack_batches(batches, is_renew_ack=is_renew)
            broker.topic_by_id(name[0])
            key = ShareKey(group_id, *name)
            partition = broker.share.loaded(*key)
            if partition is None:
                raise UnknownTopicOrPartitionError("the group has not fetched from this partition")
            event = partition.acknowledge(member_id, batches, now)
            if event:
                broker.share_events({key: event})
        except BrokerResponseError as error:
            fault = Fault(error_code(error), error_text(error))
        faults[name] = fault
    return faults


def close_session(broker: Broker, group_id: str, member_id: str, now: float) -> None:
    session = broker.sessions.close(group_id, member_id)
    broker.share_events(broker.share.release(group_id, member_id, session.partitions, now))
