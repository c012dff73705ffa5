"""OffsetCommit and OffsetFetch as bytes want them: by topic, in the fields of each version, by ids or by names.

Versions 8 and later of OffsetFetch ask for several groups; 10 of both name topics by their ids, which takes that all
are known. What the answers' errors mean is in ``offsets.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final
from uuid import UUID

from kafka.core.partitions import by_topic
from kafka.errors import CoordinatorNotAvailableError, KafkaError, for_code
from kafka.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from kafka.wire.types import ZERO_UUID

FIRST_VERSION_WITH_IDS: Final = 10
FIRST_VERSION_WITH_GROUPS: Final = 8
FIRST_VERSION_WITH_STABLE: Final = 7
FIRST_VERSION_WITH_INSTANCE: Final = 7

TopicIdOf = Callable[[str], "UUID | None"]
Errors = dict[TopicPartition, KafkaError]


def ids_of(partitions: Iterable[TopicPartition], topic_id_of: TopicIdOf) -> dict[str, UUID]:
    """The ids of the topics, zero where unknown."""
    return {topic: topic_id_of(topic) or ZERO_UUID for topic in sorted({each.topic for each in partitions})}


def most_version(ids: Mapping[str, UUID]) -> int | None:
    """The highest version that may be spoken: topics go by ids only when all are known."""
    return FIRST_VERSION_WITH_IDS - 1 if ZERO_UUID in ids.values() else None


def commit_request(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    speaker: ConsumerGroupMetadata,
    ids: Mapping[str, UUID],
    version: int,
) -> OffsetCommitRequest:
    """What to commit, in ``version``."""
    return OffsetCommitRequest(
        group_id=speaker.group_id or "",
        generation_id_or_member_epoch=speaker.generation_id,
        member_id=speaker.member_id,
        group_instance_id=speaker.group_instance_id if version >= FIRST_VERSION_WITH_INSTANCE else None,
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name=topic,
                topic_id=ids[topic],
                partitions=[
                    OffsetCommitRequest.OffsetCommitRequestPartition(
                        partition_index=number,
                        committed_offset=offsets[TopicPartition(topic, number)].offset,
                        committed_leader_epoch=offsets[TopicPartition(topic, number)].leader_epoch,
                        committed_metadata=offsets[TopicPartition(topic, number)].metadata,
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(offsets).items()
        ],
    )


def commit_errors(answer: OffsetCommitResponse, left: Iterable[TopicPartition], ids: Mapping[str, UUID]) -> Errors:
    """The error of each partition that has one, or that the answer leaves out."""
    names = {topic_id: name for name, topic_id in ids.items()}
    errors: Errors = {}
    heard: set[TopicPartition] = set()
    for topic in answer.topics:
        for entry in topic.partitions:
            where = TopicPartition(topic.name or names.get(topic.topic_id, ""), entry.partition_index)
            heard.add(where)
            if entry.error_code:
                errors[where] = for_code(entry.error_code)(f"commit of {where.topic}-{where.partition}")
    return _of_each(left, errors, heard)


def fetch_request(
    partitions: Iterable[TopicPartition],
    speaker: ConsumerGroupMetadata,
    as_member: bool,
    ids: Mapping[str, UUID],
    version: int,
) -> OffsetFetchRequest:
    """What to look up, in ``version``."""
    is_stable = version >= FIRST_VERSION_WITH_STABLE
    numbers = by_topic(partitions)
    if version < FIRST_VERSION_WITH_GROUPS:
        return OffsetFetchRequest(
            group_id=speaker.group_id or "",
            topics=[
                OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=found)
                for topic, found in numbers.items()
            ],
            require_stable=is_stable,
        )
    group = OffsetFetchRequest.OffsetFetchRequestGroup(
        group_id=speaker.group_id or "",
        member_id=speaker.member_id if as_member else None,
        member_epoch=speaker.generation_id if as_member else -1,
        topics=[
            OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, topic_id=ids[topic], partition_indexes=found)
            for topic, found in numbers.items()
        ],
    )
    return OffsetFetchRequest(groups=[group], require_stable=is_stable)


def read_offsets(
    answer: OffsetFetchResponse,
    left: Iterable[TopicPartition],
    ids: Mapping[str, UUID],
    found: dict[TopicPartition, OffsetAndMetadata],
) -> Errors:
    """Puts what was committed into ``found``; the error of each partition that has one, or that the answer leaves out:
    of that nobody knows whether it has an offset."""
    names = {topic_id: name for name, topic_id in ids.items()}
    group = answer.groups[0] if answer.groups else None
    code = answer.error_code if group is None else group.error_code
    if code:
        return dict.fromkeys(left, for_code(code)("fetch of a group's offsets"))
    errors: Errors = {}
    heard: set[TopicPartition] = set()
    for topic in answer.topics if group is None else group.topics:
        name = topic.name
        if group is not None and not name:
            name = names.get(topic.topic_id, "")  # type: ignore[union-attr]
        for entry in topic.partitions:
            where = TopicPartition(name, entry.partition_index)
            heard.add(where)
            if entry.error_code:
                errors[where] = for_code(entry.error_code)(f"committed offset of {name}-{entry.partition_index}")
            elif entry.committed_offset >= 0:
                found[where] = OffsetAndMetadata(
                    entry.committed_offset, entry.metadata or "", entry.committed_leader_epoch
                )
    return _of_each(left, errors, heard)


def _of_each(left: Iterable[TopicPartition], errors: Errors, heard: set[TopicPartition]) -> Errors:
    return {
        each: errors.get(each) or CoordinatorNotAvailableError("the answer leaves the partition out")
        for each in left
        if each in errors or each not in heard
    }
