"""How many jobs of a queue have not ended, as the brokers know it: by the lag of the share groups that read its topics,
or by what its consumer group has committed.

A share group settles records in any order, so the distance from its start offset to the end of a partition counts jobs
that have ended behind a running one. The lag of DescribeShareGroupOffsets leaves these out (KIP-1226). Where a broker
does not report it, the distance is what there is, which is the whole partition for a group that has not begun.

A consumer group says beside its committed offsets which jobs behind them have ended. The markers of transactions have
offsets, too, and count until the owner of the partition has read on over them, which takes it some seconds.

A queue is read by its consumer group if that has committed anything
(:func:`kafka.tasks.backends.kafka.in_use.find_in_use`). This is asked every few seconds: all consumer groups
are one request to their coordinator, and share groups are asked about the other queues only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka import admin
from kafka.admin import OffsetSpec
from kafka.client import KafkaClient
from kafka.errors import BrokerResponseError, NoError, UnknownTopicOrPartitionError, for_code
from kafka.structs import TopicPartition
from kafka.tasks.backends.base import QueueBacklog
from kafka.tasks.backends.kafka.admin import why_no_share_groups
from kafka.tasks.format.offset_metadata import decode
from kafka.tasks.format.topics import TopicNames


def measure_backlogs(client: KafkaClient, names: TopicNames, queues: Sequence[str], timeout_s: float) -> Any:
    """A dialogue with the brokers whose result is a :class:`QueueBacklog` for each of ``queues``; topics that do not
    exist are empty. Raises the first error: the caller may lack the right to describe a group or a topic."""
    limits: dict[str, Any] = {"backoff": client.retry_backoff, "timeout_s": timeout_s}
    topics = {topic: queue for queue in queues for topic in names.job_topics(queue)}
    dead_topics = {names.dead(queue): queue for queue in queues}
    described = yield from admin.dialogues.describe_topics([*topics, *dead_topics], **limits)
    partitions: dict[str, list[TopicPartition]] = {}
    for one in described:
        name, error = one["name"], for_code(one["error_code"])
        if error is NoError:
            partitions[name] = [TopicPartition(name, each["partition_index"]) for each in one["partitions"]]
        elif error is not UnknownTopicOrPartitionError:
            raise error(f"topic {name}")
    by_group = {names.group(queue): queue for queue in queues if names.queue(queue) in partitions}
    committed: Mapping[str, Any] = {}
    if by_group:
        committed = yield from admin.dialogues.list_group_offsets(dict.fromkeys(by_group), **limits)
    unfinished, dead = dict.fromkeys(queues, 0), dict.fromkeys(queues, 0)
    starts: dict[TopicPartition, int] = {}  # of what has no lag: where its group stands, -1: it has not begun
    ended: dict[TopicPartition, tuple[tuple[int, int], ...]] = {}  # runs of offsets behind that
    read_by_groups = {queue for group, queue in by_group.items() if committed[group]}
    has_share_groups = why_no_share_groups(client.api_ranges()) is None
    shared = {
        topic: partitions[topic]
        for topic, queue in topics.items()
        if topic in partitions and has_share_groups and queue not in read_by_groups
    }
    for topic, queue in topics.items():
        if topic not in shared:
            for place in partitions.get(topic, ()):
                at = committed[names.group(queue)].get(place)
                starts[place] = -1 if at is None else at.offset
                marks = None if at is None else decode(at.offset, at.metadata)
                ended[place] = () if marks is None else marks.completed
    found: Mapping[str, Any] = (yield from admin.dialogues.share_group_offsets(shared, **limits)) if shared else {}
    for topic, offsets in found.items():
        if isinstance(offsets, BrokerResponseError):
            raise offsets
        for place in shared[topic]:
            at = offsets.get(place)
            if at is not None and at.lag >= 0:
                unfinished[topics[topic]] += at.lag
            else:
                starts[place] = -1 if at is None else at.start_offset
    dead_places = [place for topic in dead_topics for place in partitions.get(topic, ())]
    lengths = yield from _lengths([*starts, *dead_places], starts, ended, limits)
    for place in starts:
        unfinished[topics[place.topic]] += lengths[place]
    for place in dead_places:
        dead[dead_topics[place.topic]] += lengths[place]
    return [QueueBacklog(queue, unfinished[queue], dead[queue]) for queue in queues]


def _lengths(
    places: Iterable[TopicPartition],
    starts: Mapping[TopicPartition, int],
    ended: Mapping[TopicPartition, Iterable[tuple[int, int]]],
    limits: Mapping[str, Any],
) -> Any:
    """A dialogue: how many offsets each partition has from its log start offset, or from a later one of ``starts``,
    without the runs (first, last) of ``ended``."""
    asked = list(places)
    if not asked:
        return {}
    first = yield from admin.dialogues.list_partition_offsets(dict.fromkeys(asked, OffsetSpec.EARLIEST), **limits)
    end = yield from admin.dialogues.list_partition_offsets(dict.fromkeys(asked, OffsetSpec.LATEST), **limits)
    lengths: dict[TopicPartition, int] = {}
    for place in asked:
        begin = max(first[place].offset, starts.get(place, 0))
        done = sum(max(0, run_last - max(run_first, begin) + 1) for run_first, run_last in ended.get(place, ()))
        lengths[place] = max(0, end[place].offset - begin - done)
    return lengths
