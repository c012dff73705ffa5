"""Prepares the cluster before a queue is used: topics exist, share groups have their settings.

:class:`Administration` is the :class:`kafka.tasks.format.topics.TopicAdmin` of
:func:`kafka.tasks.format.topics.ensure_topics`, over whichever way its owner has of waiting for a dialogue: an app's
user thread waits for the I/O thread, a worker drives its own loop. :func:`prepare_groups` makes the settings of share
groups *and sees them*: the broker answers OK before the setting holds, and a group that is joined too early starts at
the end of its topic. It is seen on one broker, and another one may lead the partitions: :func:`begin_groups` makes the
beginning a fact instead of a setting.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from kafka import admin
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from kafka.client import ApiRanges, KafkaClient
from kafka.errors import (
    IncompatibleBrokerVersion,
    InvalidConfigurationError,
    KafkaError,
    LeaderNotAvailableError,
    NoError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.structs import TopicPartition
from kafka.tasks.backends.kafka.rights import needing
from kafka.tasks.errors import UnknownQueue, did_you_mean
from kafka.tasks.format.topics import (
    DEAD_SUFFIX,
    DEFAULT_REPLICATION,
    ExistingTopic,
    TopicPlan,
    TopicSize,
    ensure_topics,
    weak_topics,
)

log = logging.getLogger(__name__)

Wait = Callable[[Any], Any]
"""Runs a dialogue and returns its result, blocking."""

CREATE_TOPICS = 19
ENQUEUE_APIS = {CREATE_TOPICS: "CreateTopics", 32: "DescribeConfigs"}
"""From 0.11 on, which also began to keep headers of records: a job's name and id are there."""

DEFAULT_REPLICATION_SINCE: Final = 4
"""The version of CreateTopics from which on a broker takes its own defaults (KIP-464)."""

SHARE_APIS = {76: "ShareGroupHeartbeat", 78: "ShareFetch", 79: "ShareAcknowledge"}


MISSING_TOPIC: Final = frozenset({UnknownTopicOrPartitionError.errno, LeaderNotAvailableError.errno})
"""Error codes of a topic that does not exist, or that the asked broker does not know yet."""
DESCRIBE_ATTEMPTS: Final = 20
"""To read the settings of a topic that exists: some seconds, with what the client waits between two reads of metadata.
"""


def new_topic(plan: TopicPlan, default_replication: int = DEFAULT_REPLICATION) -> NewTopic:
    """A planned topic, to be created."""
    factor = default_replication if plan.replication_factor == DEFAULT_REPLICATION else plan.replication_factor
    return NewTopic(plan.name, plan.partitions, factor, topic_configs=dict(plan.configs))


def new_topics(client: KafkaClient, plans: Sequence[TopicPlan], **limits: Any) -> Any:
    """A dialogue: planned topics, to be created. Brokers before 2.4 do not take their own default number of replicas
    for one that is not said (KIP-464): it is asked for. ``limits``: of its requests."""
    default = DEFAULT_REPLICATION
    is_old = client.api_ranges().ranges[CREATE_TOPICS][1] < DEFAULT_REPLICATION_SINCE
    if is_old and any(plan.replication_factor == DEFAULT_REPLICATION for plan in plans):
        broker = str(next(iter(client.cluster.brokers())).nodeId)
        resource = ConfigResource(ConfigResourceType.BROKER, broker)
        described = yield from admin.dialogues.describe_configs([resource], config_filter="all", **limits)
        default = int(described["broker"][broker]["default.replication.factor"]["value"])
    return [new_topic(plan, default) for plan in plans]


def find_topics(names: Sequence[str], **limits: Any) -> Any:
    """A dialogue: those of ``names`` that exist, with their :class:`TopicSize`. ``limits``: of its requests. Raises the
    first error."""
    sizes: dict[str, TopicSize] = {}
    for topic in (yield from admin.dialogues.describe_topics(list(names), **limits)):
        if not topic["error_code"]:
            partitions = topic["partitions"]
            replicas = min((len(partition["replica_nodes"]) for partition in partitions), default=-1)
            sizes[topic["name"]] = TopicSize(len(partitions), replicas)
        elif topic["error_code"] not in MISSING_TOPIC:
            raise for_code(topic["error_code"])(f"topic {topic['name']}")
    return sizes


def describe_existing(resources: Sequence[ConfigResource], **limits: Any) -> Any:
    """A dialogue: all settings of what exists. ``limits``: of its requests. A broker that is asked may not know a topic
    yet that another worker has just created: it is asked again, each time after the metadata was read."""
    topics = [resource.name for resource in resources if resource.resource_type is ConfigResourceType.TOPIC]
    for attempt in range(DESCRIBE_ATTEMPTS):
        try:
            return (yield from admin.dialogues.describe_configs(resources, config_filter="all", **limits))
        except UnknownTopicOrPartitionError:
            if attempt == DESCRIBE_ATTEMPTS - 1:
                raise
        yield from admin.dialogues.wait_for_topics(topics, timeout_s=limits["timeout_s"])


class Administration:
    """Asks and changes topics and groups, blocking."""

    def __init__(self, client: KafkaClient, wait: Wait, timeout_s: float, app: str) -> None:
        """``app``: its name, for the rights that may be missing."""
        self._client = client
        self._app = app
        self._cluster = client.cluster
        self._backoff = client.retry_backoff
        self._wait = wait
        self._timeout_s = timeout_s

    def existing(self, names: Iterable[str]) -> Mapping[str, TopicSize]:
        """See :class:`kafka.tasks.format.topics.TopicAdmin`."""
        with needing(self._app, "topic", "Write"):
            found: dict[str, TopicSize] = self._wait(
                find_topics(list(names), backoff=self._backoff, timeout_s=self._timeout_s)
            )
        return found

    def check_rights(self, needed: Mapping[str, Iterable[str]]) -> None:
        """TopicAuthorizationFailedError unless these operations (READ, WRITE) are permitted on their topics, which
        exist. Brokers before 2.3 do not say."""
        topics = sorted(set().union(*needed.values()))
        described = self._wait(
            admin.dialogues.describe_topics(topics, backoff=self._backoff, timeout_s=self._timeout_s)
        )
        permitted = {topic["name"]: topic["authorized_operations"] for topic in described}
        for operation, names in needed.items():
            for topic in names:
                if permitted[topic] is not None and operation not in permitted[topic]:
                    with needing(self._app, "topic", operation.title()):
                        raise TopicAuthorizationFailedError(topic)

    def broker_count(self) -> int:
        """See :class:`kafka.tasks.format.topics.TopicAdmin`. Known from the first request on."""
        return len(self._cluster.brokers())

    def configs(self, names: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
        """See :class:`kafka.tasks.format.topics.TopicAdmin`."""
        with needing(self._app, "topic", "DescribeConfigs"):
            return self._describe(ConfigResourceType.TOPIC, list(names))

    def create(self, plans: Sequence[TopicPlan]) -> dict[str, TopicSize]:
        """See :class:`kafka.tasks.format.topics.TopicAdmin`. Comes back when every partition has a leader."""
        with needing(self._app, "topic", "Create"):
            created = self._create(plans)
        for name in created:
            log.info("created topic %s", name)
        # The broker that we ask may not know those of others yet.
        self._wait(admin.dialogues.wait_for_topics([plan.name for plan in plans], timeout_s=self._timeout_s))
        return created

    def default_replicas(self, plan: TopicPlan) -> int:
        """See :class:`kafka.tasks.format.topics.TopicAdmin`. -1 before 2.4, and without the right to describe configs.
        """
        return self._create([plan], validate_only=True).get(plan.name, TopicSize(plan.partitions)).replicas

    def _create(self, plans: Sequence[TopicPlan], validate_only: bool = False) -> dict[str, TopicSize]:
        topics = self._wait(new_topics(self._client, plans, backoff=self._backoff, timeout_s=self._timeout_s))
        answer = self._wait(
            admin.dialogues.create_topics(
                topics,
                backoff=self._backoff,
                timeout_s=self._timeout_s,
                validate_only=validate_only,
                raise_errors=False,
            )
        )
        partitions = {plan.name: plan.partitions for plan in plans}
        created: dict[str, TopicSize] = {}
        for topic in answer["topics"]:
            name, error = topic["name"], for_code(topic["error_code"])
            if error is NoError:
                created[name] = TopicSize(partitions[name], topic.get("replication_factor", -1))
            elif error is not TopicAlreadyExistsError:
                raise error(f"creating topic {name}: {topic.get('error_message') or error.__name__}")
        return created

    def group_configs(self, groups: Sequence[str]) -> dict[str, dict[str, str]]:
        """The effective settings of share groups."""
        with needing(self._app, "group", "AlterConfigs"):  # it contains DescribeConfigs, and is needed next
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
                with needing(self._app, "group", "AlterConfigs"):
                    raise error
        return refused

    def partitions_without_start(
        self, groups: Mapping[str, Sequence[TopicPartition]]
    ) -> Mapping[str, list[TopicPartition] | KafkaError]:
        """The partitions in which these share groups have no start offset yet, or a group's error."""
        results = self._wait(
            admin.dialogues.share_group_offsets(groups, backoff=self._backoff, timeout_s=self._timeout_s)
        )
        return {
            group: [place for place, at in offsets.items() if at.start_offset < 0]
            if isinstance(offsets, dict)
            else offsets
            for group, offsets in results.items()
        }

    def set_start_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set the start offsets of a share group without members, by one request; raises the first error."""
        answers = self._wait(
            admin.dialogues.alter_share_group_offsets(
                group, offsets, backoff=self._backoff, timeout_s=self._timeout_s, attempts=1
            )
        )
        for place, error in answers.items():
            if error is not NoError:
                raise error(f"group {group}, partition {place.topic}-{place.partition}")

    def run(self, dialogue: Callable[..., Any], *args: Any) -> Any:
        """The result of ``dialogue(*args)`` with the limits of its requests, which reads groups and topics."""
        with needing(self._app, "topic", "Write"), needing(self._app, "group", "Read"):
            return self._wait(dialogue(*args, backoff=self._backoff, timeout_s=self._timeout_s))

    def _describe(self, kind: ConfigResourceType, names: Sequence[str]) -> dict[str, dict[str, str]]:
        resources = [ConfigResource(kind, name) for name in names]
        described = self._wait(
            describe_existing(resources, backoff=self._backoff, timeout_s=self._timeout_s)
        )
        return {
            resource: {name: entry["value"] for name, entry in settings.items() if entry["value"] is not None}
            for resource, settings in described[kind.name.lower()].items()
        }


FEW: Final = 3
"""Topics that a warning names."""

_logged_warnings: Final[set[tuple[str, str]]] = set()
"""Apps and kinds of the warnings about replicas that this process has logged."""


def ensure_app_topics(
    administration: Administration, app: str, plans: Iterable[TopicPlan], create: bool
) -> dict[str, ExistingTopic]:
    """:func:`kafka.tasks.format.topics.ensure_topics` with its warnings in the log; those about replicas, which are
    the same for each queue and each connection, once for each app."""
    topics = ensure_topics(administration, plans, create=create, warn=log.warning)
    brokers = administration.broker_count()
    weak = weak_topics(topics.values(), brokers)
    if weak.with_one_replica and _is_first(app, "one replica"):
        log.warning(
            "app %s has topics with one replica on a cluster of %d brokers (%s): jobs and results are lost with the "
            "broker that has it; add replicas with kafka-reassign-partitions.sh, and for new topics set "
            "replication_factor in the app's settings, or default.replication.factor at the brokers",
            app,
            brokers,
            _some(weak.with_one_replica),
        )
    if weak.with_one_in_sync and _is_first(app, "one in sync"):
        log.warning(
            "app %s has topics with min.insync.replicas=1 (%s): acknowledged jobs are lost when the last replica in "
            "sync dies; set it to 2 with kafka-configs.sh, and for new topics min_insync_replicas=2 in the app's "
            "settings",
            app,
            _some(weak.with_one_in_sync),
        )
    return topics


def _is_first(app: str, warning: str) -> bool:
    is_first = (app, warning) not in _logged_warnings
    _logged_warnings.add((app, warning))
    return is_first


def _some(topics: Sequence[str]) -> str:
    rest = f" and {len(topics) - FEW} more" if len(topics) > FEW else ""
    return ", ".join(topics[:FEW]) + rest


def check_queue_topic(topic: str, existing: Collection[str]) -> None:
    """:class:`UnknownQueue` with the nearest queue when the topic of a queue is not among the existing ones."""
    if topic not in existing:
        raise unknown_queue(topic, existing)


def unknown_queue(topic: str, existing: Iterable[str]) -> UnknownQueue:
    """The error of a queue whose topic, of jobs or of dead ones, the broker does not have; names the nearest queue."""
    queues = [name.removesuffix(DEAD_SUFFIX) for name in existing if name.endswith(DEAD_SUFFIX)]
    hint = did_you_mean(topic.removesuffix(DEAD_SUFFIX), queues)
    return UnknownQueue(f"unknown queue: the broker has no topic {topic}{hint}")


def check_enqueueing(client: KafkaClient, creates_topics: bool) -> None:
    """:class:`IncompatibleBrokerVersion` with what to do, when the broker cannot keep jobs."""
    ranges = client.api_ranges()
    needed = {key: name for key, name in ENQUEUE_APIS.items() if creates_topics or key != CREATE_TOPICS}
    lacking = [name for key, name in needed.items() if key not in ranges]
    if lacking:
        raise IncompatibleBrokerVersion(
            f"cannot enqueue jobs: the broker{_looks_like(ranges)} does not support {', '.join(lacking)}; use Apache "
            "Kafka 0.11 or later, or the embedded broker"
        )


def why_no_share_groups(ranges: ApiRanges) -> str | None:
    """Why the cluster has no share groups, and since when there are some; None: it has."""
    lacking = [name for key, name in SHARE_APIS.items() if key not in ranges]
    release = _looks_like(ranges)
    if lacking:
        return f"the broker{release} does not support {', '.join(lacking)}, which Apache Kafka does from 4.2 on"
    if ranges.features.get("share.version", (0, 0))[1] < 1:
        return f"the cluster{release} has not enabled them (kafka-features.sh upgrade --feature share.version=1)"
    return None


def _looks_like(ranges: ApiRanges) -> str:
    return f" (probably release {ranges.release})" if ranges.release else ""
