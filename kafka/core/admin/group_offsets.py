"""Dialogues about the offsets that groups have committed: read, set, moved to a place, forgotten.

Share groups keep theirs in another way (``share_groups.py``). Names of topics are spoken, never ids, so that a topic
that is gone can still be named: OffsetFetch and OffsetCommit up to version 9.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kafka.core.admin.answers import raise_first, raise_transient
from kafka.core.admin.coordinators import at_coordinator, at_coordinators, or_raise
from kafka.core.admin.group_values import OffsetSpec, OffsetTimestamp
from kafka.core.admin.topics import check_partitions
from kafka.core.consume.offsets import LeaderOf, list_offsets
from kafka.core.dialogue import Dialogue, RefreshMetadata, send
from kafka.core.partitions import by_topic
from kafka.core.retry import Backoff
from kafka.errors import (
    BrokerResponseError,
    IllegalArgumentError,
    IncompatibleBrokerVersion,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.protocol.offsets import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kafka.structs import OffsetAndMetadata, TopicPartition

Offsets = dict[TopicPartition, OffsetAndMetadata]
Errors = dict[TopicPartition, type[BrokerResponseError]]
"""NoError where it went well."""

_MAX_VERSION: Final = 9
"""Later ones name topics by their ids."""
_SEVERAL_GROUPS_SINCE: Final = 8
_ALL_SINCE: Final = 2


def list_group_offsets(
    group_specs: Mapping[str, Iterable[TopicPartition] | None],
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
    node_id: int | None = None,
) -> Dialogue[dict[str, Offsets]]:
    """Committed offsets: ``{group: {partition: OffsetAndMetadata}}``; all of a group for None, else of the partitions
    (offset -1: none committed). One request for each coordinator since 3.0 (KIP-709). Raises the first error."""
    wanted = {group: None if parts is None else list(parts) for group, parts in group_specs.items()}

    def ask(node: int, groups: Sequence[str]) -> Dialogue[Mapping[str, Offsets | BrokerResponseError]]:
        try:
            request = OffsetFetchRequest(groups=[_fetched_group(group, wanted[group]) for group in groups])
            answer = yield from send(node, request, min_version=_SEVERAL_GROUPS_SINCE, max_version=_MAX_VERSION)
            return {each.group_id: _offsets(each) for each in answer.groups}
        except IncompatibleBrokerVersion:
            pass
        found: dict[str, Offsets | BrokerResponseError] = {}
        for group in groups:
            parts = wanted[group]
            of_one: OffsetFetchResponse = yield from send(
                node,
                OffsetFetchRequest(group_id=group, topics=None if parts is None else _topics(parts)),
                min_version=1 if parts is not None else _ALL_SINCE,
                max_version=_SEVERAL_GROUPS_SINCE - 1,
            )
            found[group] = _offsets(of_one)
        return found

    answers = yield from at_coordinators(
        wanted, ask, what="listing offsets of groups", backoff=backoff, timeout_s=timeout_s, node_id=node_id
    )
    return {group: or_raise(answer, group) for group, answer in answers.items()}


def alter_group_offsets(
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
    node_id: int | None = None,
) -> Dialogue[Errors]:
    """Commit offsets for a group without members: ``{partition: error class}`` (UnknownMemberIdError: it has some)."""
    if not offsets:
        return {}
    request = OffsetCommitRequest(
        group_id=group_id,
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    _committed(number, offsets[TopicPartition(topic, number)]) for number in numbers
                ],
            )
            for topic, numbers in by_topic(offsets).items()
        ],
    )

    def ask(node: int) -> Dialogue[Errors]:
        answer = yield from send(node, request, max_version=_MAX_VERSION)
        entries = [(topic.name, each) for topic in answer.topics for each in topic.partitions]
        raise_transient((each.error_code, None, f"group {group_id}") for _, each in entries)
        return {TopicPartition(name, each.partition_index): for_code(each.error_code) for name, each in entries}

    what = f"altering offsets of group {group_id}"
    return (yield from at_coordinator(group_id, ask, what=what, backoff=backoff, timeout_s=timeout_s, node_id=node_id))


def reset_group_offsets(
    group_id: str,
    offset_specs: Mapping[TopicPartition, OffsetSpec | OffsetTimestamp | int],
    leader_of: LeaderOf,
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
    node_id: int | None = None,
) -> Dialogue[dict[TopicPartition, dict[str, Any]]]:
    """Commit the offsets that are meant, for a group without members: ``{partition: {"error": class, "offset"}}``.

    An OffsetSpec or OffsetTimestamp is looked up; a plain number is an offset. Each is brought into the partition's
    range: what is before the start becomes the start, what is behind the end, or not there, the end. The text that was
    committed before stays.
    """
    specs = dict(offset_specs)
    if not specs:
        return {}
    for partition, spec in specs.items():
        if not isinstance(spec, int) or isinstance(spec, bool):
            raise IllegalArgumentError(f"{partition}: {spec!r}: an OffsetSpec, an OffsetTimestamp or an offset")
    yield from check_partitions(specs, backoff=backoff, timeout_s=timeout_s)
    yield RefreshMetadata(sorted({partition.topic for partition in specs}))
    for partition in specs:
        if leader_of(partition) is None:
            raise UnknownTopicOrPartitionError(f"{partition.topic}-{partition.partition}")
    before = yield from list_group_offsets(
        {group_id: list(specs)}, backoff=backoff, timeout_s=timeout_s, node_id=node_id
    )
    looked_up = {
        partition: int(spec) for partition, spec in specs.items() if isinstance(spec, (OffsetSpec, OffsetTimestamp))
    }
    starts = yield from list_offsets(
        dict.fromkeys(specs, int(OffsetSpec.EARLIEST)), leader_of, timeout_s=timeout_s, backoff=backoff
    )
    ends = yield from list_offsets(
        dict.fromkeys(specs, int(OffsetSpec.LATEST)), leader_of, timeout_s=timeout_s, backoff=backoff
    )
    meant = yield from list_offsets(looked_up, leader_of, timeout_s=timeout_s, backoff=backoff)
    reset: Offsets = {}
    for partition, spec in specs.items():
        offset = meant[partition].offset if partition in meant else int(spec)
        start, end = starts[partition].offset, ends[partition].offset
        text = before[group_id][partition].metadata if partition in before[group_id] else ""
        reset[partition] = OffsetAndMetadata(end if not 0 <= offset <= end else max(offset, start), text, -1)
    errors = yield from alter_group_offsets(
        group_id, reset, backoff=backoff, timeout_s=timeout_s, node_id=node_id
    )
    return {partition: {"error": error, "offset": reset[partition].offset} for partition, error in errors.items()}


def delete_group_offsets(
    group_id: str,
    partitions: Iterable[TopicPartition],
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
    node_id: int | None = None,
) -> Dialogue[Errors]:
    """Forget committed offsets (KIP-496, 2.4): ``{partition: error class}`` (GroupSubscribedToTopicError: a member
    reads the topic). Raises the group's error (GroupIdNotFoundError, NonEmptyGroupError)."""
    wanted = list(partitions)
    if not wanted:
        return {}
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequest.OffsetDeleteRequestTopic(
                name=topic,
                partitions=[
                    OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=number) for number in numbers
                ],
            )
            for topic, numbers in by_topic(wanted).items()
        ],
    )

    def ask(node: int) -> Dialogue[Errors]:
        answer = yield from send(node, request)
        raise_first([(answer.error_code, None, f"group {group_id}")])
        return {
            TopicPartition(topic.name, each.partition_index): for_code(each.error_code)
            for topic in answer.topics
            for each in topic.partitions
        }

    what = f"deleting offsets of group {group_id}"
    return (yield from at_coordinator(group_id, ask, what=what, backoff=backoff, timeout_s=timeout_s, node_id=node_id))


def _fetched_group(
    group_id: str, partitions: Sequence[TopicPartition] | None
) -> OffsetFetchRequest.OffsetFetchRequestGroup:
    topics = None
    if partitions is not None:
        topics = [
            OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, partition_indexes=numbers)
            for topic, numbers in by_topic(partitions).items()
        ]
    return OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group_id, topics=topics)


def _topics(partitions: Sequence[TopicPartition]) -> list[OffsetFetchRequest.OffsetFetchRequestTopic]:
    return [
        OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=numbers)
        for topic, numbers in by_topic(partitions).items()
    ]


def _offsets(
    answer: OffsetFetchResponse | OffsetFetchResponse.OffsetFetchResponseGroup,
) -> Offsets | BrokerResponseError:
    if answer.error_code:
        return for_code(answer.error_code)("")
    found: Offsets = {}
    for topic in answer.topics:
        for each in topic.partitions:
            if each.error_code:
                return for_code(each.error_code)(f"{topic.name}-{each.partition_index}")
            found[TopicPartition(topic.name, each.partition_index)] = OffsetAndMetadata(
                each.committed_offset, each.metadata or "", each.committed_leader_epoch
            )
    return found


def _committed(number: int, offset: OffsetAndMetadata) -> OffsetCommitRequest.OffsetCommitRequestPartition:
    if offset.offset < 0:
        raise IllegalArgumentError(f"{offset}: an offset is at least 0; to forget one, delete_group_offsets()")
    return OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=number,
        committed_offset=offset.offset,
        committed_leader_epoch=-1 if offset.leader_epoch is None else offset.leader_epoch,
        committed_metadata=offset.metadata,
    )
