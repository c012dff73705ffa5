"""How many jobs of a queue have not ended, as the brokers know it: the lag of the share groups that read its topics.

A share group settles records in any order, so the distance from its start offset to the end of a partition counts jobs
that have ended behind a running one. The lag of DescribeShareGroupOffsets leaves these out (KIP-1226). Where a broker
does not report it, the distance is what there is, which is the whole partition for a group that has not begun.
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
from kafka.tasks.format.topics import TopicNames


def measure_backlogs(client: KafkaClient, names: TopicNames, queues: Sequence[str], timeout_s: float) -> Any:
    """A dialogue with the brokers whose result is a :class:`QueueBacklog` for each of ``queues``; topics that do not
    exist are empty. Raises the first error: the caller may lack the right to describe a group or a topic."""
    limits: dict[str, Any] = {"backoff": client.retry_backoff, "timeout_s": timeout_s}
    groups = {topic: queue for queue in queues for topic in names.job_topics(queue)}
    dead_topics = {names.dead(queue): queue for queue in queues}
    described = yield from admin.dialogues.describe_topics([*groups, *dead_topics], **limits)
    partitions: dict[str, list[TopicPartition]] = {}
    for one in described:
        name, error = one["name"], for_code(one["error_code"])
        if error is NoError:
            partitions[name] = [TopicPartition(name, each["partition_index"]) for each in one["partitions"]]
        elif error is not UnknownTopicOrPartitionError:
            raise error(f"topic {name}")
    read = {topic: partitions[topic] for topic in groups if topic in partitions}
    found: Mapping[str, Any] = (yield from admin.dialogues.share_group_offsets(read, **limits)) if read else {}
    unfinished, dead = dict.fromkeys(queues, 0), dict.fromkeys(queues, 0)
    without_lag: dict[TopicPartition, int] = {}  # and where the group stands
    for topic, offsets in found.items():
        if isinstance(offsets, BrokerResponseError):
            raise offsets
        for place in read[topic]:
            at = offsets.get(place)
            if at is not None and at.lag >= 0:
                unfinished[groups[topic]] += at.lag
            else:
                without_lag[place] = -1 if at is None else at.start_offset
    dead_places = [place for topic in dead_topics for place in partitions.get(topic, ())]
    lengths = yield from _lengths([*without_lag, *dead_places], without_lag, limits)
    for place in without_lag:
        unfinished[groups[place.topic]] += lengths[place]
    for place in dead_places:
        dead[dead_topics[place.topic]] += lengths[place]
    return [QueueBacklog(queue, unfinished[queue], dead[queue]) for queue in queues]


def _lengths(places: Iterable[TopicPartition], starts: Mapping[TopicPartition, int], limits: Mapping[str, Any]) -> Any:
    """A dialogue: how many offsets each partition has from its log start offset, or from a later one of ``starts``."""
    asked = list(places)
    if not asked:
        return {}
    first = yield from admin.dialogues.list_partition_offsets(dict.fromkeys(asked, OffsetSpec.EARLIEST), **limits)
    end = yield from admin.dialogues.list_partition_offsets(dict.fromkeys(asked, OffsetSpec.LATEST), **limits)
    return {place: max(0, end[place].offset - max(first[place].offset, starts.get(place, 0))) for place in asked}
