"""How the jobs of a queue are delivered, as the brokers know it: by what its groups have committed, and by which of
them has members. Dialogues, for those who wait for them and for those on a loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, Final

from kafka import admin
from kafka.client import KafkaClient
from kafka.errors import KafkaConfigurationError, KafkaError
from kafka.structs import TopicPartition
from kafka.tasks.backends.base import QueueDelivery
from kafka.tasks.backends.kafka.admin import find_topics, why_no_share_groups
from kafka.tasks.format.topics import TopicNames


class DeliveryKind(Enum):
    """How jobs are delivered."""

    SHARE = "share"
    GROUP = "group"


GROUPS: Final = {DeliveryKind.SHARE: "a share group", DeliveryKind.GROUP: "a consumer group"}
"""What delivers them."""


def find_in_use(
    client: KafkaClient, names: TopicNames, queues: Sequence[str], *, is_strict: bool = False, **limits: Any
) -> Any:
    """A dialogue: the :class:`DeliveryKind` of each queue that has been read, by what its groups have committed.

    ``is_strict``: raise the error of a share group, which else counts as one that has read nothing. ``limits``: of its
    requests."""
    groups = {names.group(queue): queue for queue in queues}
    committed = yield from admin.dialogues.list_group_offsets(dict.fromkeys(groups), **limits)
    in_use = {groups[group]: DeliveryKind.GROUP for group, offsets in committed.items() if offsets}
    topics = {names.queue(queue): queue for queue in queues if queue not in in_use}
    if not topics or why_no_share_groups(client.api_ranges()) is not None:
        return in_use
    sizes = yield from find_topics(list(topics), **limits)
    places = {
        topic: [TopicPartition(topic, number) for number in range(size.partitions)] for topic, size in sizes.items()
    }
    found = (yield from admin.dialogues.share_group_offsets(places, **limits)) if places else {}
    for topic, offsets in found.items():
        if isinstance(offsets, KafkaError):
            if is_strict:
                raise offsets
        elif any(at.start_offset >= 0 for at in offsets.values()):
            in_use[topics[topic]] = DeliveryKind.SHARE
    return in_use


def check_not_migrated(
    client: KafkaClient, names: TopicNames, queues: Sequence[str], kind: DeliveryKind, **limits: Any
) -> Any:
    """A dialogue: KafkaConfigurationError when one of these queues, which were to be read in this way, is read in the
    other one: it was migrated since. ``limits``: of its requests.

    Of share groups: what is set of them by now makes them new ones, which would read all of the topics. Of a consumer
    group: ``queue migrate`` makes the offsets of share groups before it deletes the group, which knew what has ended.
    """
    in_use = yield from find_in_use(client, names, queues, is_strict=kind is DeliveryKind.GROUP, **limits)
    for queue, other in in_use.items():
        if other is not kind:
            raise KafkaConfigurationError(
                f"the jobs of {names.queue(queue)} are delivered by {GROUPS[other]} by now: queue migrate has ended "
                "since this worker began to start; start it again"
            )


def describe_deliveries(client: KafkaClient, names: TopicNames, queues: Sequence[str], **limits: Any) -> Any:
    """A dialogue: a :class:`QueueDelivery` for each of ``queues``. ``limits``: of its requests. Raises the first
    error."""
    in_use = yield from find_in_use(client, names, queues, is_strict=True, **limits)
    group_of = {DeliveryKind.GROUP: names.group}
    if why_no_share_groups(client.api_ranges()) is None:
        group_of[DeliveryKind.SHARE] = names.queue
    groups = [name(queue) for queue in queues for name in group_of.values()]
    described = (yield from admin.dialogues.describe_groups(groups, **limits)) if groups else {}
    found: list[QueueDelivery] = []
    for queue in queues:
        by_kind = {kind: described[name(queue)] for kind, name in group_of.items()}
        joined = [kind for kind, group in by_kind.items() if group["members"]]  # which may have committed nothing yet
        kind = in_use.get(queue) or (joined[0] if joined else None)
        if kind is None:
            found.append(QueueDelivery(queue))
        else:
            protocol = by_kind[kind]["group_type"] if kind is DeliveryKind.GROUP else None
            found.append(QueueDelivery(queue, kind.value, protocol, by_kind[kind]["group_state"]))
    return found
