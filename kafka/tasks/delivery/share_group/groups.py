"""Prepares share groups before their first member joins: settings made and seen, start offsets written.

:func:`prepare_groups` makes the settings of share groups *and sees them*: the broker answers OK before the setting
holds, and a group that is joined too early starts at the end of its topic. It is seen on one broker, and another one
may lead the partitions: :func:`begin_groups` makes the beginning a fact instead of a setting.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafka.errors import (
    BrokerResponseError,
    KafkaConfigurationError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NonEmptyGroupError,
    UnknownTopicOrPartitionError,
)
from kafka.structs import TopicPartition
from kafka.tasks.backends.kafka.admin import Administration
from kafka.tasks.format.topics import READ_COMMITTED

log = logging.getLogger(__name__)

TIMEOUT_S = 15.0
POLL_S = 0.02

NEEDED = {
    ("share.auto.offset.reset", "earliest"): "jobs that wait already would be skipped",
    ("share.isolation.level", READ_COMMITTED): "jobs of transactions that were aborted would run",
}
"""Settings that groups cannot do without, and why."""

_FAILURES = (BrokerResponseError, KafkaConnectionError, KafkaTimeoutError)
"""Of requests that a worker can do without."""


def prepare_groups(
    administration: Administration,
    groups: Sequence[str],
    settings: Callable[[str], Sequence[tuple[str, str]]],
    pause: Callable[[float], object],
    timeout_s: float = TIMEOUT_S,
) -> None:
    """Make the settings of share groups and wait until they are seen.

    ``settings`` of each group, as :func:`kafka.tasks.format.topics.group_configs` has them: those of :data:`NEEDED`
    must hold, of the others the broker may refuse some. ``pause`` lets seconds pass.
    """
    configs = administration.group_configs(groups)
    expected: dict[str, dict[str, str]] = {group: {} for group in groups}
    by_setting: dict[tuple[str, str], list[str]] = {}
    for group in groups:
        for setting in settings(group):
            by_setting.setdefault(setting, []).append(group)
    for (name, value), of_groups in by_setting.items():
        missing = [group for group in of_groups if configs[group].get(name) != value]
        refused = administration.alter_group_config(missing, name, value) if missing else []
        if refused and (name, value) in NEEDED:
            why = NEEDED[name, value]
            raise KafkaConfigurationError(f"broker rejected {name}={value} for group {refused[0]}: {why}")
        for group in missing:
            if group not in refused:
                expected[group][name] = value
    left_s = timeout_s
    while any(configs[group].get(name) != value for group in groups for name, value in expected[group].items()):
        if left_s <= 0:
            names = ", ".join(groups)
            raise KafkaTimeoutError(f"the settings of groups {names} did not take effect within {timeout_s:g} s")
        pause(POLL_S)
        left_s -= POLL_S
        configs = administration.group_configs(groups)


def begin_groups(
    administration: Administration,
    groups: Mapping[str, Sequence[TopicPartition]],
    pause: Callable[[float], object],
    now: Callable[[], float],
    timeout_s: float = TIMEOUT_S,
) -> None:
    """Let share groups that have no place in these partitions begin at their first records, before any member joins.

    What a group has by its setting, the *leader* of a partition has to know when the first member fetches there: one
    that does not know it yet begins at the end, and the jobs that wait are never seen. A place that is written down
    holds on every broker. Where a group has members, one of them has done this before it joined. A topic that was just
    made may be unknown to the coordinator for a while, or the group's state on its way to another broker; an error that
    stays leaves it to the setting, with a warning. ``now``: the seconds of what ``pause`` lets pass.

    Members may have come and gone since a request whose answer was lost: so that is not repeated before the group has
    been looked at again, or what they have done would be done once more.
    """
    give_up_at = now() + timeout_s
    left = dict(groups)
    while left:
        errors = _set_start_offsets(administration, left)
        is_over = now() >= give_up_at
        left = {group: left[group] for group, error in errors.items() if _is_transient(error) and not is_over}
        for group in errors.keys() - left.keys():
            log.warning(
                "could not set the start offsets of group %s, it starts where share.auto.offset.reset says: %s",
                group,
                errors[group],
            )
        if left:
            pause(POLL_S)


def with_records(offsets: Mapping[str, Mapping[TopicPartition, Any] | KafkaError]) -> set[str]:
    """Of the answer about some share groups, those whose topics have records that are not done, or may have."""
    return {
        group
        for group, partitions in offsets.items()
        if not isinstance(partitions, KafkaError) and any(each.lag != 0 for each in partitions.values())
    }


def _set_start_offsets(
    administration: Administration, groups: Mapping[str, Sequence[TopicPartition]]
) -> dict[str, KafkaError]:
    """Set those that are missing; the errors of the groups where that failed."""
    errors: dict[str, KafkaError] = {}
    for group, missing in _partitions_without_start(administration, groups).items():
        if isinstance(missing, KafkaError):
            errors[group] = missing
        elif missing:
            try:
                administration.set_start_offsets(group, dict.fromkeys(missing, 0))
            except NonEmptyGroupError:
                log.debug("group %s already has members; leaving its start offsets alone", group)
            except _FAILURES as error:
                errors[group] = error
    return errors


def _partitions_without_start(
    administration: Administration, groups: Mapping[str, Sequence[TopicPartition]]
) -> Mapping[str, list[TopicPartition] | KafkaError]:
    """Of all at once, or else one by one: a coordinator that does not answer is no matter of the others' groups."""
    try:
        return administration.partitions_without_start(groups)
    except _FAILURES as error:
        if len(groups) == 1:
            return dict.fromkeys(groups, error)
    results: dict[str, list[TopicPartition] | KafkaError] = {}
    for group, places in groups.items():
        results.update(_partitions_without_start(administration, {group: places}))
    return results


def _is_transient(error: KafkaError) -> bool:
    if isinstance(error, KafkaTimeoutError):  # it was tried for long
        return False
    return error.retriable or isinstance(error, UnknownTopicOrPartitionError)
