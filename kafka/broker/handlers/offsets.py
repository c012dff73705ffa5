"""OffsetCommit (from version 2) and OffsetFetch (from version 1) for clients that are no members of their group.

Offsets are durable when the answer goes out, and live until their group or topic is deleted.

Different from Apache Kafka 4.3.0: there are no members yet, so every commit with a generation is refused, with the
errors that a stranger gets there; offsets never expire (``offsets.retention.minutes``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka.broker.broker import error_code
from kafka.broker.log import Topic
from kafka.broker.offset_store import CommittedOffset
from kafka.broker.registry import Call, handles
from kafka.errors import (
    BrokerResponseError,
    GroupIdNotFoundError,
    IllegalGenerationError,
    OffsetMetadataTooLargeError,
    UnknownMemberIdError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.offsets import OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse
from kafka.structs import TopicPartition

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

NO_OFFSET: Final = CommittedOffset(-1, -1, "", -1)

_CommitPartition = OffsetCommitResponse.OffsetCommitResponsePartition


@handles(OffsetCommitRequest, versions=(2, 10))
def offset_commit(broker: Broker, call: Call[OffsetCommitRequest]) -> OffsetCommitResponse:
    request = call.request
    refused = _refusal(broker, call)
    accepted: dict[TopicPartition, CommittedOffset] = {}
    topics = []
    for wanted in request.topics:
        topic, missing = _find(broker, wanted.name, wanted.topic_id if call.version >= 10 else None)
        partitions = []
        for partition in wanted.partitions:
            code = refused or missing or _check(broker, topic, partition)
            if not code and topic is not None:
                accepted[TopicPartition(topic.name, partition.partition_index)] = CommittedOffset(
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata or "",
                    broker.epoch_ms(),
                )
            partitions.append(_CommitPartition(partition_index=partition.partition_index, error_code=code))
        topics.append(
            OffsetCommitResponse.OffsetCommitResponseTopic(
                name=wanted.name, topic_id=wanted.topic_id, partitions=partitions
            )
        )
    if accepted:
        try:
            broker.offsets.commit(request.group_id, accepted)
        except BrokerResponseError as error:
            for answer in topics:
                for one in answer.partitions:
                    one.error_code = one.error_code or error_code(error)
    return OffsetCommitResponse(topics=topics)


def _refusal(broker: Broker, call: Call[OffsetCommitRequest]) -> int:
    """The error of a whole commit, or 0. Without a generation anybody may commit, under any member id, and even to the
    group without a name (measured)."""
    request = call.request
    error: type[BrokerResponseError] | None = None
    if request.group_id in broker.share.groups:
        error = GroupIdNotFoundError
    elif request.generation_id_or_member_epoch >= 0:
        if broker.offsets.has_group(request.group_id):
            error = UnknownMemberIdError
        else:
            error = GroupIdNotFoundError if call.version >= 9 else IllegalGenerationError
    return int(error.errno or 0) if error else 0


def _check(broker: Broker, topic: Topic | None, wanted: OffsetCommitRequest.OffsetCommitRequestPartition) -> int:
    error: type[BrokerResponseError] | None = None
    if topic is None or not 0 <= wanted.partition_index < topic.partitions:
        error = UnknownTopicOrPartitionError
    elif len(wanted.committed_metadata or "") > broker.config.number("offset.metadata.max.bytes"):
        error = OffsetMetadataTooLargeError
    return int(error.errno or 0) if error else 0


def _find(broker: Broker, name: str, topic_id: object | None) -> tuple[Topic | None, int]:
    """The topic, or the error that says that it is not there."""
    if topic_id is None:
        topic = broker.metadata.topic(name)
        return topic, 0 if topic is not None else int(UnknownTopicOrPartitionError.errno or 0)
    topic = broker.metadata.topic_by_id(topic_id)  # type: ignore[arg-type]
    return topic, 0 if topic is not None else int(UnknownTopicIdError.errno or 0)


@handles(OffsetFetchRequest, versions=(1, 10))
def offset_fetch(broker: Broker, call: Call[OffsetFetchRequest]) -> OffsetFetchResponse:
    request = call.request
    if call.version >= 8:
        return OffsetFetchResponse(groups=[_fetch_group(broker, call.version, group) for group in request.groups])
    if request.topics is None:
        named = _all_of(broker, request.group_id)
    else:
        named = {topic.name: list(topic.partition_indexes) for topic in request.topics}
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponse.OffsetFetchResponseTopic(
                name=name,
                partitions=[
                    OffsetFetchResponse.OffsetFetchResponsePartition(
                        partition_index=number,
                        committed_offset=found.offset,
                        committed_leader_epoch=found.leader_epoch,
                        metadata=found.metadata,
                    )
                    for number, found in _offsets(broker, request.group_id, name, partitions)
                ],
            )
            for name, partitions in named.items()
        ]
    )


def _fetch_group(
    broker: Broker, version: int, group: OffsetFetchRequest.OffsetFetchRequestGroup
) -> OffsetFetchResponse.OffsetFetchResponseGroup:
    wanted: list[tuple[str, object, list[int], int]] = []
    if group.topics is None:
        for name, numbers in _all_of(broker, group.group_id).items():
            known = broker.metadata.topic(name)
            if known is not None:
                wanted.append((name, known.topic_id, numbers, 0))
    else:
        for asked in group.topics:
            topic, missing = _find(broker, asked.name, asked.topic_id) if version >= 10 else (None, 0)
            name = topic.name if topic is not None else asked.name
            wanted.append((name, asked.topic_id, list(asked.partition_indexes), missing))
    return OffsetFetchResponse.OffsetFetchResponseGroup(
        group_id=group.group_id,
        topics=[
            OffsetFetchResponse.OffsetFetchResponseTopics(
                name=name,
                topic_id=topic_id,  # type: ignore[arg-type]
                partitions=[
                    OffsetFetchResponse.OffsetFetchResponsePartitions(
                        partition_index=number,
                        committed_offset=found.offset,
                        committed_leader_epoch=found.leader_epoch,
                        metadata=found.metadata,
                        error_code=missing,
                    )
                    for number, found in _offsets(broker, group.group_id, name, numbers)
                ],
            )
            for name, topic_id, numbers, missing in wanted
        ],
    )


def _offsets(
    broker: Broker, group_id: str, topic: str, partitions: list[int]
) -> list[tuple[int, CommittedOffset]]:
    return [
        (number, broker.offsets.get(group_id, TopicPartition(topic, number)) or NO_OFFSET) for number in partitions
    ]


def _all_of(broker: Broker, group_id: str) -> dict[str, list[int]]:
    named: dict[str, list[int]] = {}
    for topic, number in broker.offsets.of_group(group_id):
        named.setdefault(topic, []).append(number)
    return named
