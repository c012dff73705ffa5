"""OffsetCommit, OffsetFetch, OffsetDelete: committed offsets of groups of both kinds (KIP-211, 447, 496, 848, 1251).

A commit is one append, so all its partitions or none; it is durable when the answer goes out. Members commit under
their generation or epoch; without one, anybody may commit to a group that has no members, also to the one without a
name. Offsets of a deleted topic go with it; others expire after ``offsets.retention.minutes`` without members.

Different from Apache Kafka 4.3.0: offsets of topics that are gone are not listed when all are asked for; OffsetCommit
0 and OffsetFetch 0, which only ``--emulate`` shows, keep and read offsets where all others do, and not in ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import UUID

from kafka.broker.broker import NO_LIMIT
from kafka.broker.log import Topic
from kafka.broker.offset_store import CommittedOffset
from kafka.broker.registry import RequestContext, handles
from kafka.broker.responses import error_code
from kafka.errors import (
    BrokerResponseError,
    GroupSubscribedToTopicError,
    InvalidGroupIdError,
    KafkaStorageError,
    NotCoordinatorError,
    OffsetMetadataTooLargeError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
)
from kafka.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kafka.structs import TopicPartition

if TYPE_CHECKING:
    from kafka.broker.broker import Broker


FIRST_WITH_TOPIC_IDS: Final = 10
FIRST_FETCH_OF_GROUPS: Final = 8

NO_OFFSET: Final = CommittedOffset(-1, -1, "", -1)

_CommitPartition = OffsetCommitResponse.OffsetCommitResponsePartition
_WantedPartition = OffsetCommitRequest.OffsetCommitRequestPartition
_DeletedPartition = OffsetDeleteResponse.OffsetDeleteResponsePartition
_NumberAndCode = tuple[int, int]
"""A partition's number and its error code."""


def _find(broker: Broker, name: str, topic_id: UUID | None) -> tuple[Topic | None, int]:
    """The topic, or the error that says that it is not there. ``topic_id``: where topics are known by that."""
    topic = broker.metadata.topic(name) if topic_id is None else broker.metadata.topic_by_id(topic_id)
    missing = UnknownTopicOrPartitionError if topic_id is None else UnknownTopicIdError
    return topic, 0 if topic is not None else error_code(missing)


# -- commit ----------------------------------------------------------------------------------------------------------


@handles(OffsetCommitRequest)
def offset_commit(broker: Broker, call: RequestContext[OffsetCommitRequest]) -> OffsetCommitResponse:
    """Partitions that do not exist are refused one by one; the others are committed together, and share the error of
    the group or of the log."""
    request = call.request
    has_ids = call.version >= FIRST_WITH_TOPIC_IDS
    longest = broker.config.number("offset.metadata.max.bytes")
    refused: dict[tuple[str, UUID], list[_NumberAndCode]] = {}
    answered: list[tuple[tuple[str, UUID], list[_NumberAndCode]]] = []
    there: list[tuple[Topic, _WantedPartition]] = []
    for wanted in request.topics:
        topic, missing = _find(broker, wanted.name, wanted.topic_id if has_ids else None)
        key = (wanted.name, wanted.topic_id)
        accepted = []
        for partition in wanted.partitions:
            code = missing
            if topic is not None and not 0 <= partition.partition_index < topic.partitions:
                code = error_code(UnknownTopicOrPartitionError)
            if topic is not None and not code:
                is_too_large = len(partition.committed_metadata or "") > longest
                code = error_code(OffsetMetadataTooLargeError) if is_too_large else 0
                accepted.append((partition.partition_index, code))
                there.append((topic, partition))
            else:
                refused.setdefault(key, []).append((partition.partition_index, code))
        if accepted:
            answered.append((key, accepted))
        elif topic is None:
            refused.setdefault(key, [])
    code_of_all = _commit(broker, call, there, longest) if there else 0
    if code_of_all:
        answered = [(key, [(number, code_of_all) for number, _ in results]) for key, results in answered]
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponse.OffsetCommitResponseTopic(
                name=name,
                topic_id=topic_id,
                partitions=[_CommitPartition(partition_index=number, error_code=code) for number, code in results],
            )
            for (name, topic_id), results in errors_first(refused, answered)
        ]
    )


def _commit(
    broker: Broker,
    call: RequestContext[OffsetCommitRequest],
    wanted: Sequence[tuple[Topic, _WantedPartition]],
    longest: int,
) -> int:
    """Store the offsets, except those whose metadata is longer than ``longest``; the error code of all, or 0."""
    request = call.request
    now_ms = broker.epoch_ms()
    expires_ms = -1 if request.retention_time_ms < 0 else min(now_ms + request.retention_time_ms, NO_LIMIT)
    accepted: dict[TopicPartition, CommittedOffset] = {}
    for topic, partition in wanted:
        metadata = partition.committed_metadata or ""
        if len(metadata) > longest:
            continue
        committed_ms = now_ms if partition.commit_timestamp < 0 else partition.commit_timestamp
        accepted[TopicPartition(topic.name, partition.partition_index)] = CommittedOffset(
            partition.committed_offset, partition.committed_leader_epoch, metadata, committed_ms, expires_ms
        )
    try:
        broker.groups.check_commit(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            call.now,
            version=call.version,
            partitions=[(topic.topic_id, partition.partition_index) for topic, partition in wanted],
        )
        broker.offsets.commit(request.group_id, accepted)
    except KafkaStorageError:
        return error_code(NotCoordinatorError)
    except BrokerResponseError as error:
        return error_code(error)
    return 0


# -- fetch -----------------------------------------------------------------------------------------------------------


@handles(OffsetFetchRequest)
def offset_fetch(broker: Broker, call: RequestContext[OffsetFetchRequest]) -> OffsetFetchResponse:
    """Versions before 8 are for one group, and null topics mean all; version 8 on for several (KIP-709). An unknown
    group has no offsets, and no error."""
    request = call.request
    if call.version >= FIRST_FETCH_OF_GROUPS:
        return OffsetFetchResponse(
            groups=[_fetch_group(broker, call.version, group, request.require_stable) for group in request.groups]
        )
    group_id = request.group_id
    try:
        has_any = broker.groups.check_fetch(group_id, None, -1)
    except BrokerResponseError as error:
        return OffsetFetchResponse(topics=[], error_code=error_code(error))
    if request.topics is None:
        named = list(_all_of(broker, group_id).items()) if has_any else []
    else:
        named = [(topic.name, list(topic.partition_indexes)) for topic in request.topics]
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
                        error_code=code,
                    )
                    for number, found, code in _offsets(broker, group_id, name, numbers, request.require_stable)
                ],
            )
            for name, numbers in named
        ]
    )


def _fetch_group(
    broker: Broker, version: int, group: OffsetFetchRequest.OffsetFetchRequestGroup, stable: bool
) -> OffsetFetchResponse.OffsetFetchResponseGroup:
    """One group of version 8 on; version 9 checks the member's id and epoch (KIP-848), version 10 has ids for the
    topics' names. An error of the group has no topics with it."""
    try:
        has_any = broker.groups.check_fetch(group.group_id, group.member_id, group.member_epoch)
    except BrokerResponseError as error:
        return OffsetFetchResponse.OffsetFetchResponseGroup(
            group_id=group.group_id, topics=[], error_code=error_code(error)
        )
    wanted: list[tuple[str, UUID, list[int], int]] = []
    if group.topics is None:
        for name, numbers in _all_of(broker, group.group_id).items() if has_any else ():
            known = broker.metadata.topic(name)
            if known is not None:
                wanted.append((name, known.topic_id, numbers, 0))
    else:
        for asked in group.topics:
            topic, missing = _find(broker, "", asked.topic_id) if version >= FIRST_WITH_TOPIC_IDS else (None, 0)
            name = topic.name if topic is not None else asked.name
            wanted.append((name, asked.topic_id, list(asked.partition_indexes), missing))
    return OffsetFetchResponse.OffsetFetchResponseGroup(
        group_id=group.group_id,
        topics=[
            OffsetFetchResponse.OffsetFetchResponseTopics(
                name=name,
                topic_id=topic_id,
                partitions=[
                    OffsetFetchResponse.OffsetFetchResponsePartitions(
                        partition_index=number,
                        committed_offset=found.offset,
                        committed_leader_epoch=found.leader_epoch,
                        metadata=found.metadata,
                        error_code=missing or code,
                    )
                    for number, found, code in _offsets(broker, group.group_id, name, numbers, stable)
                ],
            )
            for name, topic_id, numbers, missing in wanted
        ],
    )


def _offsets(
    broker: Broker, group_id: str, topic: str, partitions: list[int], stable: bool
) -> list[tuple[int, CommittedOffset, int]]:
    """Number, offset and error of each. ``stable``: not while a transaction is about to change it."""
    found = []
    for number in partitions:
        where = TopicPartition(topic, number)
        if stable and broker.offsets.has_pending(group_id, where):
            found.append((number, NO_OFFSET, error_code(UnstableOffsetCommitError)))
        else:
            found.append((number, broker.offsets.get(group_id, where) or NO_OFFSET, 0))
    return found


def _all_of(broker: Broker, group_id: str) -> dict[str, list[int]]:
    named: dict[str, list[int]] = {}
    for topic, number in broker.offsets.of_group(group_id):
        named.setdefault(topic, []).append(number)
    return named


# -- delete ----------------------------------------------------------------------------------------------------------


@handles(OffsetDeleteRequest)
def offset_delete(broker: Broker, call: RequestContext[OffsetDeleteRequest]) -> OffsetDeleteResponse:
    """KIP-496. Partitions that do not exist are refused one by one, those of a topic that the group subscribes to with
    GROUP_SUBSCRIBED_TO_TOPIC (86); the group's errors fail the whole request."""
    request = call.request
    unknown = error_code(UnknownTopicOrPartitionError)
    refused: dict[str, list[_NumberAndCode]] = {}
    there: list[tuple[str, list[int]]] = []
    for wanted in request.topics:
        topic = broker.metadata.topic(wanted.name)
        accepted = []
        for number in (partition.partition_index for partition in wanted.partitions):
            if topic is not None and 0 <= number < topic.partitions:
                accepted.append(number)
            else:
                refused.setdefault(wanted.name, []).append((number, unknown))
        if accepted:
            there.append((wanted.name, accepted))
        elif topic is None:
            refused.setdefault(wanted.name, [])
    try:
        subscribed = _delete(broker, request.group_id, there)
    except KafkaStorageError:
        return OffsetDeleteResponse(error_code=error_code(NotCoordinatorError), throttle_time_ms=0, topics=[])
    except BrokerResponseError as error:
        return OffsetDeleteResponse(error_code=error_code(error), throttle_time_ms=0, topics=[])
    code_of_subscribed = error_code(GroupSubscribedToTopicError)
    answered = [
        (name, [(number, code_of_subscribed if name in subscribed else 0) for number in numbers])
        for name, numbers in there
    ]
    return OffsetDeleteResponse(
        error_code=0,
        throttle_time_ms=0,
        topics=[
            OffsetDeleteResponse.OffsetDeleteResponseTopic(
                name=name,
                partitions=[_DeletedPartition(partition_index=number, error_code=code) for number, code in results],
            )
            for name, results in errors_first(refused, answered)
        ],
    )


def _delete(broker: Broker, group_id: str, wanted: Sequence[tuple[str, Sequence[int]]]) -> set[str]:
    """Delete a group's offsets, except those of topics that it is subscribed to, which are returned."""
    if not group_id:
        raise InvalidGroupIdError("")
    group = broker.groups.check_offset_delete(group_id)
    subscribed = {name for name, _ in wanted if group.is_subscribed_to(name)}
    broker.offsets.delete(
        group_id,
        [TopicPartition(name, number) for name, numbers in wanted if name not in subscribed for number in numbers],
    )
    return subscribed


# -- the order of the response ---------------------------------------------------------------------------------------

K = TypeVar("K", bound=Hashable)
P = TypeVar("P")


def errors_first(refused: Mapping[K, list[P]], answered: Iterable[tuple[K, list[P]]]) -> list[tuple[K, list[P]]]:
    """Topics and results of their partitions, in Kafka's order, for requests that name offsets of many partitions.

    Apache Kafka checks topics and partitions first, and passes those that exist to the coordinator. Its response has
    what was refused by then, and behind it the coordinator's results: under the same topic if that is there already.

        asked       a: 0 1 9      b: 0      (a has two partitions)
        answered    a: 9 0 1      b: 0

    A known topic without partitions is left out, an unknown one without partitions is not.
    """
    if not refused:
        return list(answered)
    found = {key: list(partitions) for key, partitions in refused.items()}
    for key, partitions in answered:
        found.setdefault(key, []).extend(partitions)
    return list(found.items())
