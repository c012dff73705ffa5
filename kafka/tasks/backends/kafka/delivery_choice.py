"""Which way the jobs of a queue are delivered: by share groups where the brokers have them, else by consumer groups.

What is in use stays in use: the two ways keep apart from each other how far a queue has come, so that a queue which
changed by itself would repeat jobs that have ended. ``python -m kafka queue migrate`` changes it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Final

from kafka.client import KafkaClient
from kafka.errors import (
    GroupAuthorizationFailedError,
    IncompatibleBrokerVersion,
    KafkaConfigurationError,
)
from kafka.tasks.backends.kafka.admin import Administration, why_no_share_groups
from kafka.tasks.backends.kafka.in_use import GROUPS, DeliveryKind, find_in_use
from kafka.tasks.delivery.consumer_group.delivery import GROUP_SETTINGS
from kafka.tasks.format.topics import TopicNames

log = logging.getLogger(__name__)

GROUP_APIS: Final = {11: "JoinGroup", 22: "InitProducerId", 28: "TxnOffsetCommit"}
"""From 0.11 on."""
TXN_OFFSET_COMMIT: Final = 28
CONSUMER_GROUP_HEARTBEAT: Final = 68
GENERATION_SINCE: Final = 3
"""The version of TxnOffsetCommit from which on a commit says of which generation it is (KIP-447)."""


def choose_deliveries(
    client: KafkaClient,
    administration: Administration,
    names: TopicNames,
    setting: str,
    queues: Sequence[str],
    ordered: Collection[str],
) -> dict[str, DeliveryKind]:
    """The way of each queue, which is logged. Blocks.

    ``setting``: the app's setting ``delivery``. :class:`IncompatibleBrokerVersion` when the brokers have neither, or
    not what is asked for; :class:`KafkaConfigurationError` when a queue is in use in another way.
    """
    ranges = client.api_ranges()
    lacking = [name for key, name in GROUP_APIS.items() if key not in ranges]
    if lacking:
        raise IncompatibleBrokerVersion(
            f"a worker needs Kafka 0.11 or later: the broker does not support {', '.join(lacking)}"
        )
    why_not = why_no_share_groups(ranges)
    in_use = {} if why_not is not None else administration.run(find_in_use, client, names, queues)
    chosen: dict[str, DeliveryKind] = {}
    for queue in queues:
        kind, why = choose(names.queue(queue), setting, queue in ordered, why_not, in_use.get(queue))
        log.info("queue %s: jobs are delivered by %s (%s)", queue, GROUPS[kind], why)
        chosen[queue] = kind
    return chosen


def choose(
    topic: str, setting: str, is_ordered: bool, why_not_share: str | None, in_use: DeliveryKind | None
) -> tuple[DeliveryKind, str]:
    """The way of the queue whose jobs are in ``topic``, and why. ``why_not_share``: why there are no share groups,
    None: there are; ``in_use``: how the queue has been read, as far as that is known. Errors as of
    :func:`choose_deliveries`."""
    share, group = DeliveryKind.SHARE, DeliveryKind.GROUP
    if setting == share.value and is_ordered:
        raise KafkaConfigurationError(
            f"the queue of {topic} is ordered, which needs consumer groups: remove delivery='share', or ordered=True"
        )
    if setting == share.value and why_not_share is not None:
        raise IncompatibleBrokerVersion(
            f"delivery='share' needs share groups, but {why_not_share}; remove it, or use such a cluster"
        )
    if is_ordered:
        kind, why = group, "it is ordered"
    elif setting != "auto":
        kind, why = DeliveryKind(setting), f"delivery={setting!r}"
    elif why_not_share is not None:
        kind, why = group, why_not_share
    elif in_use is group:
        kind, why = group, f"it is in use so; python -m kafka queue migrate {topic} --to share changes that"
    else:
        kind, why = share, "the brokers have share groups"
    if in_use is not None and in_use is not kind:
        raise KafkaConfigurationError(
            f"the jobs of {topic} were read by {GROUPS[in_use]}, and are to be read by {GROUPS[kind]} ({why}): stop "
            f"the queue's workers and run python -m kafka queue migrate {topic} --to {kind.value}"
        )
    return kind, why


def fences_by_generation(client: KafkaClient) -> bool:
    """Whether the brokers refuse what a former member of a group commits in a transaction: from 2.5 on."""
    return client.api_ranges().ranges[TXN_OFFSET_COMMIT][1] >= GENERATION_SINCE


def choose_protocol(client: KafkaClient, administration: Administration, groups: Sequence[str]) -> str:
    """The protocol of these consumer groups: "consumer" (KIP-848) where the brokers have it and let a member that is
    gone be noticed as soon as in the other, else "classic", also without the right to say so. Blocks. Writes those
    settings of the groups that differ.

    Kafka's own least session timeout in the newer one is 45 s (``group.consumer.min.session.timeout.ms``), and for so
    long no other worker would get the partitions of a killed one.
    """
    ranges = client.api_ranges()
    if CONSUMER_GROUP_HEARTBEAT not in ranges or ranges.features.get("group.version", (0, 0))[1] < 1:
        return "classic"
    try:
        configs = administration.group_configs(groups)
        for name, value in GROUP_SETTINGS:
            others = [group for group in groups if configs[group].get(name) != value]
            if others and administration.alter_group_config(others, name, value):
                return "classic"
    except GroupAuthorizationFailedError as error:
        log.info("members of groups use the classic protocol: %s", error.args[0])
        return "classic"
    return "consumer"
