"""Prepares the cluster before a queue is used: topics exist, share groups have their settings.

:class:`Administration` is the :class:`kafka.tasks.topics.TopicAdmin` of :func:`kafka.tasks.topics.ensure_topics`, over
whichever way its owner has of waiting for a dialogue: an app's user thread waits for the I/O thread, a worker drives
its own loop. :func:`prepare_groups` makes the settings of share groups *and sees them*: the broker answers OK before
the setting holds, and a group that is joined too early starts at the end of its topic. It is seen on one broker, and
another one may lead the partitions: :func:`begin_groups` makes the beginning a fact instead of a setting.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kafka import admin
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from kafka.client import ApiRanges, KafkaClient
from kafka.errors import (
    BrokerResponseError,
    IncompatibleBrokerVersion,
    InvalidConfigurationError,
    KafkaConfigurationError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NoError,
    NonEmptyGroupError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.structs import TopicPartition
from kafka.tasks.topics import TopicPlan

log = logging.getLogger(__name__)

Wait = Callable[[Any], Any]
"""Runs a dialogue and returns its result, blocking."""

SEEN_TIMEOUT_S = 15.0
SEEN_AGAIN_S = 0.02
DEFAULT_DELIVERY_LIMIT = 5
"""``share.delivery.count.limit`` of a broker that does not report it (4.2)."""

CREATE_TOPICS = 19
ENQUEUE_APIS = {CREATE_TOPICS: "CreateTopics", 32: "DescribeConfigs"}
"""From 0.11 on, which also began to keep headers of records: a job's name and id are there."""

_FAILURES = (BrokerResponseError, KafkaConnectionError, KafkaTimeoutError)
"""Of requests that a worker can do without."""

SHARE_APIS = {76: "ShareGroupHeartbeat", 78: "ShareFetch", 79: "ShareAcknowledge"}


class Administration:
    """Asks and changes topics and groups, blocking."""

    def __init__(self, client: KafkaClient, wait: Wait, timeout_s: float) -> None:
        self._backoff = client.retry_backoff
        self._wait = wait
        self._timeout_s = timeout_s

    def existing(self, names: Iterable[str]) -> Mapping[str, int]:
        """See :class:`kafka.tasks.topics.TopicAdmin`."""
        partition_counts = {}
        requested = admin.dialogues.describe_topics(list(names), backoff=self._backoff, timeout_s=self._timeout_s)
        for topic in self._wait(requested):
            error = for_code(topic["error_code"])
            if error is NoError:
                partition_counts[topic["name"]] = len(topic["partitions"])
            elif error.__name__ not in ("UnknownTopicOrPartitionError", "LeaderNotAvailableError"):
                raise error(f"topic {topic['name']}")
        return partition_counts

    def configs(self, name: str) -> Mapping[str, str]:
        """See :class:`kafka.tasks.topics.TopicAdmin`."""
        return self._describe(ConfigResourceType.TOPIC, [name])[name]

    def create(self, plan: TopicPlan) -> None:
        """See :class:`kafka.tasks.topics.TopicAdmin`. Comes back when every partition has a leader."""
        topic = NewTopic(
            plan.name, plan.partitions, plan.replication_factor, topic_configs=dict(plan.configs)
        )
        usable = admin.dialogues.wait_for_topics([plan.name], timeout_s=self._timeout_s)
        try:
            self._wait(admin.dialogues.create_topics([topic], backoff=self._backoff, timeout_s=self._timeout_s))
        # another client has just created it: the broker that we ask may not know it yet
        except TopicAlreadyExistsError:
            self._wait(usable)
            raise
        log.info("created topic %s with %d partitions", plan.name, plan.partitions)
        self._wait(usable)

    def group_configs(self, groups: Sequence[str]) -> dict[str, dict[str, str]]:
        """The effective settings of share groups."""
        return self._describe(ConfigResourceType.GROUP, groups)

    def alter_group_config(self, groups: Sequence[str], name: str, value: str) -> list[str]:
        """Set one setting of these groups; those that were refused (the broker lacks it, or caps it lower)."""
        resources = [ConfigResource(ConfigResourceType.GROUP, group, {name: value}) for group in groups]
        altered = self._wait(
            admin.dialogues.alter_configs(
                resources, backoff=self._backoff, timeout_s=self._timeout_s, raise_errors=False
            )
        )
        refused = []
        for group, error in altered["group"].items():
            if isinstance(error, InvalidConfigurationError):
                log.debug("broker rejected %s=%s for group %s: %s", name, value, group, error)
                refused.append(group)
            elif not isinstance(error, NoError):
                raise error
        return refused

    def not_begun(
        self, groups: Mapping[str, Sequence[TopicPartition]]
    ) -> Mapping[str, list[TopicPartition] | KafkaError]:
        """The partitions in which these share groups have no place yet, or a group's error."""
        results = self._wait(
            admin.dialogues.share_group_offsets(groups, backoff=self._backoff, timeout_s=self._timeout_s)
        )
        return {
            group: [place for place, at in offsets.items() if at.start_offset < 0]
            if isinstance(offsets, dict)
            else offsets
            for group, offsets in results.items()
        }

    def begin_group(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Give a share group without members its place in partitions, by one request; raises the first error."""
        answers = self._wait(
            admin.dialogues.alter_share_group_offsets(
                group, offsets, backoff=self._backoff, timeout_s=self._timeout_s, attempts=1
            )
        )
        for place, error in answers.items():
            if error is not NoError:
                raise error(f"group {group}, partition {place.topic}-{place.partition}")

    def _describe(self, kind: ConfigResourceType, names: Sequence[str]) -> dict[str, dict[str, str]]:
        resources = [ConfigResource(kind, name) for name in names]
        described = self._wait(
            admin.dialogues.describe_configs(
                resources, backoff=self._backoff, timeout_s=self._timeout_s, config_filter="all"
            )
        )
        return {
            resource: {name: entry["value"] for name, entry in settings.items() if entry["value"] is not None}
            for resource, settings in described[kind.name.lower()].items()
        }


def check_share_groups(client: KafkaClient) -> None:
    """:class:`IncompatibleBrokerVersion` with what to do, when the cluster has no share groups."""
    why = _why_no_share_groups(client.api_ranges())
    if why is not None:
        raise IncompatibleBrokerVersion(f"a worker needs share groups, but {why}")


def check_enqueueing(client: KafkaClient, creates_topics: bool) -> None:
    """:class:`IncompatibleBrokerVersion` with what to do, when the broker cannot keep jobs. A warning in the log when
    it can, and has no share groups, which workers need."""
    ranges = client.api_ranges()
    needed = {key: name for key, name in ENQUEUE_APIS.items() if creates_topics or key != CREATE_TOPICS}
    lacking = [name for key, name in needed.items() if key not in ranges]
    if lacking:
        raise IncompatibleBrokerVersion(
            f"cannot enqueue jobs: the broker{_looks_like(ranges)} does not support {', '.join(lacking)}; use Apache "
            "Kafka 4.2 or later, or the embedded broker"
        )
    why = _why_no_share_groups(ranges)
    if why is not None:
        log.warning("workers need share groups to run the enqueued jobs, but %s", why)


def _why_no_share_groups(ranges: ApiRanges) -> str | None:
    lacking = [name for key, name in SHARE_APIS.items() if key not in ranges]
    release = _looks_like(ranges)
    if lacking:
        return (
            f"the broker{release} does not support {', '.join(lacking)}; use Apache Kafka 4.2 or later, or the "
            "embedded broker (workers on consumer groups follow in a later release)"
        )
    if ranges.features.get("share.version", (0, 0))[1] < 1:
        return (
            f"the cluster{release} has not enabled them; run kafka-features.sh upgrade "
            "--feature share.version=1"
        )
    return None


def _looks_like(ranges: ApiRanges) -> str:
    return f" (probably release {ranges.release})" if ranges.release else ""


def prepare_groups(
    administration: Administration,
    groups: Sequence[str],
    settings: Sequence[tuple[str, str]],
    pause: Callable[[float], object],
    timeout_s: float = SEEN_TIMEOUT_S,
) -> int:
    """Make the settings of share groups and wait until they are seen; the least delivery limit among the groups.

    ``wanted`` as :func:`kafka.tasks.topics.group_configs` has it: the first one must hold, of the others the broker may
    refuse some. ``pause`` lets seconds pass.
    """
    configs = administration.group_configs(groups)
    expected: dict[str, dict[str, str]] = {group: {} for group in groups}
    for name, value in settings:
        missing = [group for group in groups if configs[group].get(name) != value]
        refused = administration.alter_group_config(missing, name, value) if missing else []
        if refused and (name, value) == settings[0]:
            raise KafkaConfigurationError(
                f"broker rejected {name}={value} for group {refused[0]}: jobs that wait already would be skipped"
            )
        for group in missing:
            if group not in refused:
                expected[group][name] = value
    left_s = timeout_s
    while any(configs[group].get(name) != value for group in groups for name, value in expected[group].items()):
        if left_s <= 0:
            names = ", ".join(groups)
            raise KafkaTimeoutError(f"the settings of groups {names} did not take effect within {timeout_s:g} s")
        pause(SEEN_AGAIN_S)
        left_s -= SEEN_AGAIN_S
        configs = administration.group_configs(groups)
    limits = [configs[group].get("share.delivery.count.limit", DEFAULT_DELIVERY_LIMIT) for group in groups]
    return min(map(int, limits))


def begin_groups(
    administration: Administration,
    groups: Mapping[str, Sequence[TopicPartition]],
    pause: Callable[[float], object],
    now: Callable[[], float],
    timeout_s: float = SEEN_TIMEOUT_S,
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
        errors = _begin(administration, left)
        is_over = now() >= give_up_at
        left = {group: left[group] for group, error in errors.items() if _may_pass(error) and not is_over}
        for group in errors.keys() - left.keys():
            log.warning(
                "could not set the start offsets of group %s, it starts where share.auto.offset.reset says: %s",
                group,
                errors[group],
            )
        if left:
            pause(SEEN_AGAIN_S)


def _begin(administration: Administration, groups: Mapping[str, Sequence[TopicPartition]]) -> dict[str, KafkaError]:
    """Begin those that have not; the errors of those where that failed."""
    errors: dict[str, KafkaError] = {}
    for group, missing in _not_begun(administration, groups).items():
        if isinstance(missing, KafkaError):
            errors[group] = missing
        elif missing:
            try:
                administration.begin_group(group, dict.fromkeys(missing, 0))
            except NonEmptyGroupError:
                log.debug("group %s already has members; leaving its start offsets alone", group)
            except _FAILURES as error:
                errors[group] = error
    return errors


def _not_begun(
    administration: Administration, groups: Mapping[str, Sequence[TopicPartition]]
) -> Mapping[str, list[TopicPartition] | KafkaError]:
    """Of all at once, or else one by one: a coordinator that does not answer is no matter of the others' groups."""
    try:
        return administration.not_begun(groups)
    except _FAILURES as error:
        if len(groups) == 1:
            return dict.fromkeys(groups, error)
    results: dict[str, list[TopicPartition] | KafkaError] = {}
    for group, places in groups.items():
        results.update(_not_begun(administration, {group: places}))
    return results


def _may_pass(error: KafkaError) -> bool:
    if isinstance(error, KafkaTimeoutError):  # it was tried for long
        return False
    return error.retriable or isinstance(error, UnknownTopicOrPartitionError)
