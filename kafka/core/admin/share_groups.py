"""Dialogues about where share groups stand: the first offset of each partition that is not done (KIP-932, KIP-1226).

Describing and deleting a share group is as for others (``groups.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

from kafka.core.admin.answers import error_of, raise_first
from kafka.core.admin.coordinators import at_coordinator, at_coordinators, or_raise
from kafka.core.dialogue import Dialogue, send
from kafka.core.partitions import by_topic
from kafka.core.retry import Backoff
from kafka.errors import BrokerResponseError, IllegalArgumentError, for_code
from kafka.protocol.share import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
)
from kafka.structs import TopicPartition


class SharePartitionOffset(NamedTuple):
    """Where a share group stands in a partition. ``start_offset``: the first record that is not done, -1 when the group
    has not begun; ``lag``: how many records are not done, -1 when the broker does not tell (before 4.2)."""

    start_offset: int
    lag: int = -1
    leader_epoch: int = -1


ShareOffsets = dict[TopicPartition, SharePartitionOffset]
Errors = dict[TopicPartition, type[BrokerResponseError]]


def list_share_group_offsets(
    group_specs: Mapping[str, Iterable[TopicPartition] | None],
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
    node_id: int | None = None,
) -> Dialogue[dict[str, ShareOffsets]]:
    """``{group: {partition: SharePartitionOffset}}``; of all partitions for None. Raises the first error."""
    answers = yield from share_group_offsets(group_specs, backoff=backoff, timeout_s=timeout_s, node_id=node_id)
    return {group: or_raise(answer, group) for group, answer in answers.items()}


def share_group_offsets(
    group_specs: Mapping[str, Iterable[TopicPartition] | None],
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
    node_id: int | None = None,
) -> Dialogue[dict[str, ShareOffsets | BrokerResponseError]]:
    """As :func:`list_share_group_offsets`, each group's error in the place of its offsets."""
    wanted = {group: None if parts is None else list(parts) for group, parts in group_specs.items()}

    def ask(node: int, groups: Sequence[str]) -> Dialogue[Mapping[str, ShareOffsets | BrokerResponseError]]:
        answer = yield from send(
            node, DescribeShareGroupOffsetsRequest(groups=[_described(group, wanted[group]) for group in groups])
        )
        found: dict[str, ShareOffsets | BrokerResponseError] = {}
        for group in answer.groups:
            if group.error_code:
                found[group.group_id] = error_of(group.error_code, group.error_message)
                continue
            parts = [(topic.topic_name, part) for topic in group.topics for part in topic.partitions]
            try:
                raise_first(
                    (part.error_code, part.error_message, f"{name}-{part.partition_index}") for name, part in parts
                )
            except BrokerResponseError as error:
                found[group.group_id] = error
                continue
            found[group.group_id] = {
                TopicPartition(name, part.partition_index): SharePartitionOffset(
                    part.start_offset, part.lag, part.leader_epoch
                )
                for name, part in parts
            }
        return found

    return (
        yield from at_coordinators(
            wanted, ask, what="listing offsets of share groups", backoff=backoff, timeout_s=timeout_s, node_id=node_id
        )
    )


def alter_share_group_offsets(
    group_id: str,
    offsets: Mapping[TopicPartition, int],
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
    node_id: int | None = None,
    attempts: float = inf,
) -> Dialogue[Errors]:
    """Let an empty share group begin at other offsets: ``{partition: error class}`` (NoError: done).

    Raises the group's error (NonEmptyGroupError, GroupIdNotFoundError). ``attempts``: 1 for who must not undo what
    members have done since an answer was lost; whatever keeps the one request from its answer is raised then.
    """
    if not offsets:
        return {}
    for partition, offset in offsets.items():
        if not isinstance(offset, int) or offset < 0:
            raise IllegalArgumentError(f"{partition}: {offset!r}: an offset is a number, at least 0")
    request = AlterShareGroupOffsetsRequest(
        group_id=group_id,
        topics=[
            AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic(
                topic_name=topic,
                partitions=[
                    AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition(
                        partition_index=number, start_offset=offsets[TopicPartition(topic, number)]
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(offsets).items()
        ],
    )

    def ask(node: int) -> Dialogue[Errors]:
        answer = yield from send(node, request)
        raise_first([(answer.error_code, answer.error_message, f"group {group_id}")])
        return {
            TopicPartition(topic.topic_name, part.partition_index): for_code(part.error_code)
            for topic in answer.responses
            for part in topic.partitions
        }

    what = f"altering offsets of share group {group_id}"
    return (
        yield from at_coordinator(
            group_id, ask, what=what, backoff=backoff, timeout_s=timeout_s, node_id=node_id, attempts=attempts
        )
    )


def delete_share_group_offsets(
    group_id: str, topics: Iterable[str], *, backoff: Backoff, timeout_s: float = 30.0, node_id: int | None = None
) -> Dialogue[dict[str, type[BrokerResponseError]]]:
    """Let an empty share group forget topics: ``{topic: error class}``. Raises the group's error."""
    wanted = list(topics)
    if isinstance(topics, str) or not all(isinstance(topic, str) for topic in wanted):
        raise IllegalArgumentError(f"topics={topics!r}: a list of names; share groups forget whole topics")
    if not wanted:
        return {}
    request = DeleteShareGroupOffsetsRequest(
        group_id=group_id,
        topics=[
            DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in wanted
        ],
    )

    def ask(node: int) -> Dialogue[dict[str, type[BrokerResponseError]]]:
        answer = yield from send(node, request)
        raise_first([(answer.error_code, answer.error_message, f"group {group_id}")])
        return {topic.topic_name: for_code(topic.error_code) for topic in answer.responses}

    what = f"deleting offsets of share group {group_id}"
    return (yield from at_coordinator(group_id, ask, what=what, backoff=backoff, timeout_s=timeout_s, node_id=node_id))


def _described(
    group_id: str, partitions: Sequence[TopicPartition] | None
) -> DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup:
    topics = None
    if partitions is not None:
        topics = [
            DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=numbers)
            for topic, numbers in by_topic(partitions).items()
        ]
    return DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=topics)
