"""OffsetCommit, OffsetFetch, OffsetDelete: committed offsets of groups of both kinds (KIP-211, 447, 496, 848, 1251).

A commit is one append, so all its partitions or none; it is durable when the answer goes out. Members commit under
their generation or epoch; without one, anybody may commit to a group that has no members, also to the one without a
name. Offsets of a deleted topic go with it; others expire after ``offsets.retention.minutes`` without members.

Different from Apache Kafka 4.3.0: offsets of topics that are gone are not listed when all are asked for; OffsetCommit
0 and OffsetFetch 0, which only ``--emulate`` shows, keep and read offsets where all others do, and not in ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar
from uuid import UUID

from kafka.broker.broker import NO_LIMIT
from kafka.broker.error_responses import answer_each, coordinator_error, error_code, failed
from kafka.broker.log import Topic
from kafka.broker.offset_store import CommittedOffset
from kafka.broker.registry import RequestContext, handles
from kafka.broker.topics import values_by_key
from kafka.errors import (
    BrokerResponseError,
    GroupSubscribedToTopicError,
    InvalidGroupIdError,
    KafkaStorageError,
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

_UNKNOWN: Final = error_code(UnknownTopicOrPartitionError)
TOO_LARGE: Final = error_code(OffsetMetadataTooLargeError)

# -- commit ----------------------------------------------------------------------------------------------------------


@handles(OffsetCommitRequest)
def offset_commit(broker: Broker, call: RequestContext[OffsetCommitRequest]) -> OffsetCommitResponse:
    """Partitions that do not exist are refused one by one; the others are committed together, and share the error of
    the group or of the log."""
    request = call.request
    by_id = call.version >= FIRST_WITH_TOPIC_IDS
    longest = broker.config.number("offset.metadata.max.bytes")
    named: NamedPartitions[tuple[str, UUID], _WantedPartition] = NamedPartitions()
    for wanted in request.topics:
        topic = broker.metadata.topic_by_id(wanted.topic_id) if by_id else broker.metadata.topic(wanted.name)
        missing = error_code(UnknownTopicIdError) if by_id else _UNKNOWN
        named.add((wanted.name, wanted.topic_id), topic, wanted.partitions, missing)
    code_of_all = _commit(broker, call, named.known, longest) if named.known else 0
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponse.OffsetCommitResponseTopic(
                name=name,
                topic_id=topic_id,
                partitions=[_CommitPartition(partition_index=number, error_code=code) for number, code in results],
            )
            for (name, topic_id), results in named.results(
                lambda _, one: code_of_all or (TOO_LARGE if len(one.committed_metadata or "") > longest else 0)
            )
        ]
    )


def _commit(
    broker: Broker,
    call: RequestContext[OffsetCommitRequest],
    known: Sequence[tuple[object, Topic, Sequence[_WantedPartition]]],
    longest: int,
) -> int:
    """Store the offsets, except those whose metadata is longer than ``longest``; the error code of all, or 0."""
    request = call.request
    now_ms = broker.epoch_ms()
    expires_ms = -1 if request.retention_time_ms < 0 else min(now_ms + request.retention_time_ms, NO_LIMIT)
    wanted = [(topic, partition) for _, topic, partitions in known for partition in partitions]
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
    except BrokerResponseError as error:
        return error_code(coordinator_error(error))
    return 0


# -- fetch -----------------------------------------------------------------------------------------------------------


_FetchedGroup = OffsetFetchResponse.OffsetFetchResponseGroup


@handles(OffsetFetchRequest)
def offset_fetch(broker: Broker, call: RequestContext[OffsetFetchRequest]) -> OffsetFetchResponse:
    """Versions before 8 are for one group, and null topics mean all; version 8 on for several (KIP-709). An unknown
    group has no offsets, and no error."""
    request = call.request
    if call.version >= FIRST_FETCH_OF_GROUPS:
        return OffsetFetchResponse(
            groups=answer_each(
                request.groups,
                lambda group: _fetch_group(broker, call.version, group, request.require_stable),
                lambda group, error: failed(_FetchedGroup, error, group_id=group.group_id),
            )
        )
    group_id = request.group_id
    try:
        has_any = broker.groups.check_fetch(group_id, None, -1)
    except BrokerResponseError as error:
        return OffsetFetchResponse(topics=[], error_code=error_code(error))
    if request.topics is None:
        named = list(values_by_key(broker.offsets.of_group(group_id)).items()) if has_any else []
    else:
        named = [(topic.name, topic.partition_indexes) for topic in request.topics]
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponse.OffsetFetchResponseTopic(
                name=name,
                partitions=_offsets(
                    broker,
                    OffsetFetchResponse.OffsetFetchResponsePartition,
                    group_id,
                    name,
                    numbers,
                    request.require_stable,
                ),
            )
            for name, numbers in named
        ]
    )


def _fetch_group(
    broker: Broker, version: int, group: OffsetFetchRequest.OffsetFetchRequestGroup, stable: bool
) -> _FetchedGroup:
    """One group of version 8 on; version 9 checks the member's id and epoch (KIP-848), version 10 has ids for the
    topics' names. An error of the group has no topics with it."""
    has_any = broker.groups.check_fetch(group.group_id, group.member_id, group.member_epoch)
    wanted: list[tuple[str, UUID, list[int], int]] = []
    if group.topics is None:
        for name, numbers in values_by_key(broker.offsets.of_group(group.group_id)).items() if has_any else ():
            known = broker.metadata.topic(name)
            if known is not None:
                wanted.append((name, known.topic_id, numbers, 0))
    elif version < FIRST_WITH_TOPIC_IDS:
        wanted = [(asked.name, asked.topic_id, asked.partition_indexes, 0) for asked in group.topics]
    else:
        for asked in group.topics:
            topic = broker.metadata.topic_by_id(asked.topic_id)
            name, missing = (asked.name, error_code(UnknownTopicIdError)) if topic is None else (topic.name, 0)
            wanted.append((name, asked.topic_id, asked.partition_indexes, missing))
    row = OffsetFetchResponse.OffsetFetchResponsePartitions
    return _FetchedGroup(
        group_id=group.group_id,
        topics=[
            OffsetFetchResponse.OffsetFetchResponseTopics(
                name=name,
                topic_id=topic_id,
                partitions=_offsets(broker, row, group.group_id, name, numbers, stable, missing),
            )
            for name, topic_id, numbers, missing in wanted
        ],
    )


F = TypeVar("F", OffsetFetchResponse.OffsetFetchResponsePartition, OffsetFetchResponse.OffsetFetchResponsePartitions)


def _offsets(
    broker: Broker, kind: type[F], group_id: str, topic: str, numbers: Sequence[int], stable: bool, missing: int = 0
) -> list[F]:
    """The offset of each partition. ``stable``: not while a transaction is about to change it. ``missing``: the code of
    an unknown topic."""
    rows = []
    for number in numbers:
        where = TopicPartition(topic, number)
        is_unstable = stable and broker.offsets.has_pending(group_id, where)
        found = None if is_unstable else broker.offsets.get(group_id, where)
        found = found or NO_OFFSET
        rows.append(
            kind(
                partition_index=number,
                committed_offset=found.offset,
                committed_leader_epoch=found.leader_epoch,
                metadata=found.metadata,
                error_code=missing or (error_code(UnstableOffsetCommitError) if is_unstable else 0),
            )
        )
    return rows


# -- delete ----------------------------------------------------------------------------------------------------------


@handles(OffsetDeleteRequest)
def offset_delete(broker: Broker, call: RequestContext[OffsetDeleteRequest]) -> OffsetDeleteResponse:
    """KIP-496. Partitions that do not exist are refused one by one, those of a topic that the group subscribes to with
    GROUP_SUBSCRIBED_TO_TOPIC (86); the group's errors fail the whole request."""
    request = call.request
    named: NamedPartitions[str, OffsetDeleteRequest.OffsetDeleteRequestPartition] = NamedPartitions()
    for wanted in request.topics:
        named.add(wanted.name, broker.metadata.topic(wanted.name), wanted.partitions)
    wanted_numbers = [(name, [one.partition_index for one in partitions]) for name, _, partitions in named.known]
    try:
        subscribed = _delete(broker, request.group_id, wanted_numbers)
    except KafkaStorageError as error:
        raise coordinator_error(error) from None
    subscribed_code = error_code(GroupSubscribedToTopicError)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponse.OffsetDeleteResponseTopic(
                name=name,
                partitions=[_DeletedPartition(partition_index=number, error_code=code) for number, code in results],
            )
            for name, results in named.results(lambda topic, _: subscribed_code if topic.name in subscribed else 0)
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


class _Partition(Protocol):
    partition_index: int


K = TypeVar("K", bound=Hashable)
R = TypeVar("R")
P = TypeVar("P", bound=_Partition)


class NamedPartitions(Generic[K, P]):
    """The partitions of a request that names offsets of many: ``known`` has those that exist, by topic. The others have
    their error already."""

    def __init__(self) -> None:
        self.known: list[tuple[K, Topic, list[P]]] = []
        self._refused: dict[K, list[tuple[int, int]]] = {}

    def add(self, key: K, topic: Topic | None, partitions: Iterable[P], missing: int = _UNKNOWN) -> None:
        """A topic of the request; ``missing``: the error code where it does not exist."""
        there = []
        for one in partitions:
            if topic is not None and 0 <= one.partition_index < topic.partitions:
                there.append(one)
            else:
                code = missing if topic is None else _UNKNOWN
                self._refused.setdefault(key, []).append((one.partition_index, code))
        if topic is None:
            self._refused.setdefault(key, [])
        elif there:
            self.known.append((key, topic, there))

    def results(self, code_of: Callable[[Topic, P], int]) -> list[tuple[K, list[tuple[int, int]]]]:
        """Number and error code of each partition, by topic; ``code_of``: of one that exists."""
        answered = [
            (key, [(one.partition_index, code_of(topic, one)) for one in partitions])
            for key, topic, partitions in self.known
        ]
        return errors_first(self._refused, answered)


def errors_first(refused: Mapping[K, list[R]], answered: Iterable[tuple[K, list[R]]]) -> list[tuple[K, list[R]]]:
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
