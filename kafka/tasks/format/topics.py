"""The topics of an app as data: names, partitions, configs; and how they come to be.

===================  =======================================  =========================================================
topic                policy                                   holds
===================  =======================================  =========================================================
``APP.QUEUE``        delete, never by time                    job records
``APP.QUEUE.due``    the same                                 jobs given back, and jobs of the schedule that are due
``APP.QUEUE.suspect`` the same                                jobs whose worker perhaps died while it held them
``APP.QUEUE.dead``   delete, ``dead_ttl``                     jobs that failed for good, with their cause
``APP.results``      delete, ``result_ttl``                   state records
``APP.results.late`` the same                                 state records of jobs that end late
``APP.workers``      delete, ten minutes, one partition       what workers say of themselves every few seconds
``APP.control``      compact, one partition                   which queues are paused; made when the first one is
``APP.cancelled``    delete, a week or ``result_ttl``         jobs that were cancelled when they were in their queues
``APP.commands``     delete, never by time                    what the schedule is asked for; owners delete what is done
``APP.schedule``     compact                                  the state of the schedule
===================  =======================================  =========================================================

All have LogAppendTime: a job's id carries the broker's time, which clients learn from their produce answers, and a
reader of results looks up by it. A new topic of an app is one more function here and one more line in
:class:`TopicNames`; queue names that would collide with an app's own topics are refused by :func:`check_queue`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol

from kafka.errors import IllegalArgumentError, InvalidReplicationFactorError, KafkaConfigurationError
from kafka.tasks.errors import counted

_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_OWN = frozenset({"cancelled", "results", "commands", "control", "schedule", "workers"})
DEAD_SUFFIX = ".dead"
"""Of the topic of a queue's dead jobs."""

_SUFFIXES = frozenset({"due", "suspect", "dead", "late", "group"})

DEFAULT_REPLICATION: Final = -1
"""As a replication factor: the broker's ``default.replication.factor``."""


def check_name(kind: str, name: str) -> str:
    """``name`` if it can be part of a topic's name, else an error that says why."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > 100:
        raise IllegalArgumentError(
            f"the name of {kind} must be letters, digits, '_', '-' and single dots between them (at most 100), "
            f"not {name!r}"
        )
    return name


def check_queue(queue: str) -> str:
    """``queue`` if it is a valid queue name; names of an app's own topics are not."""
    check_name("a queue", queue)
    first, last = queue.split(".", 1)[0], queue.rsplit(".", 1)[-1]
    if first in _OWN or ("." in queue and last in _SUFFIXES):
        raise IllegalArgumentError(f"invalid queue name {queue!r}: the app uses a topic or group of that name itself")
    return queue


@lru_cache(maxsize=1024)
def is_queue(queue: str) -> bool:
    """Whether :func:`check_queue` takes this name."""
    try:
        check_queue(queue)
    except IllegalArgumentError:
        return False
    return True


class TopicNames:
    """The topic names of one app."""

    __slots__ = ("app", "cancelled", "commands", "control", "late", "results", "schedule", "workers")

    def __init__(self, app: str) -> None:
        self.app = check_name("an app", app)
        self.results = f"{app}.results"
        self.late = f"{app}.results.late"
        self.workers = f"{app}.workers"
        self.control = f"{app}.control"
        self.cancelled = f"{app}.cancelled"
        self.commands = f"{app}.commands"
        """Also the name of the consumer group of the schedule's owners."""
        self.schedule = f"{app}.schedule"

    def queue(self, queue: str) -> str:
        """The topic of a queue's jobs; also the name of the share group that reads it."""
        return f"{self.app}.{queue}"

    def group(self, queue: str) -> str:
        """The consumer group of a queue's workers, where they are in one."""
        return f"{self.app}.{queue}.group"

    def due(self, queue: str) -> str:
        """The topic of the queue's jobs that were under way before; also the name of the share group that reads it."""
        return f"{self.app}.{queue}.due"

    def scheduled(self, queue: str, is_ordered: bool) -> str:
        """The topic that the schedule writes the queue's jobs to. An ordered queue has one log: that of all its jobs.
        """
        return self.queue(queue) if is_ordered else self.due(queue)

    def suspect(self, queue: str) -> str:
        """The topic of the queue's suspects; also the name of the share group that reads it."""
        return f"{self.app}.{queue}.suspect"

    def job_topics(self, queue: str) -> tuple[str, ...]:
        """The topics of a queue's jobs that have not ended; a share group of the same name reads each."""
        return self.queue(queue), self.due(queue), self.suspect(queue)

    def dead(self, queue: str) -> str:
        """The topic of the queue's dead jobs."""
        return f"{self.app}.{queue}{DEAD_SUFFIX}"


@dataclass(frozen=True)
class TopicPlan:
    """A planned topic."""

    name: str
    partitions: int
    replication_factor: int = DEFAULT_REPLICATION
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TopicDefaults:
    """An app's settings for its topics; times in seconds, sizes in bytes."""

    partitions: int = 8
    replication_factor: int = DEFAULT_REPLICATION
    min_insync_replicas: int | None = None
    result_ttl_s: float = 86_400.0
    dead_ttl_s: float = 2_592_000.0
    max_payload_bytes: int = 1_000_000


HEADROOM_BYTES = 64 * 1024
"""What a record batch may need beside one payload: headers, a dead record's traceback, the batch's own header."""

SEGMENT_BYTES = 8 * 1024 * 1024
"""A segment of jobs, or one batch if that may be larger. Settled jobs are deleted by whole segments, never the active
one: a partition keeps up to two segments of them. With Kafka's default of 1 GiB nothing would be deleted for long; with
1 MiB, Kafka's least, a backlog of 100 GB would be 100,000 segments, and Kafka maps two files of each into memory (Linux
permits 65,530 mappings)."""


def queue_plans(names: TopicNames, queue: str, shape: TopicDefaults) -> list[TopicPlan]:
    """The topics of one queue."""
    segment_bytes = max(SEGMENT_BYTES, shape.max_payload_bytes + HEADROOM_BYTES)
    kept = _configs(shape, {"retention.ms": "-1", "retention.bytes": "-1", "segment.bytes": str(segment_bytes)})
    dead = _configs(shape, {"retention.ms": _ms(shape.dead_ttl_s), "retention.bytes": "-1"})
    return [
        TopicPlan(names.queue(queue), shape.partitions, shape.replication_factor, kept),
        TopicPlan(names.due(queue), shape.partitions, shape.replication_factor, kept),
        TopicPlan(names.suspect(queue), shape.partitions, shape.replication_factor, kept),
        TopicPlan(names.dead(queue), shape.partitions, shape.replication_factor, dead),
    ]


def results_plans(names: TopicNames, shape: TopicDefaults) -> list[TopicPlan]:
    """The topics of the app's results. Deletion is by whole segments: one is a 24th of a result's life."""
    segment = str(max(60_000, int(shape.result_ttl_s * 1000 / 24)))
    life = {"retention.ms": _ms(shape.result_ttl_s), "retention.bytes": "-1", "segment.ms": segment}
    configs = _configs(shape, life)
    return [
        TopicPlan(name, shape.partitions, shape.replication_factor, configs) for name in (names.results, names.late)
    ]


WORKERS_KEPT_S = 600.0
"""How long the snapshots of workers are kept at least: readers look at the last minute."""


def workers_plan(names: TopicNames, shape: TopicDefaults) -> TopicPlan:
    """The topic of the workers' snapshots.

    Not compacted: a compacted topic is read from its beginning, and a broker leaves its newest segment as it is. This
    one is read from a time on, so that a reader takes in a minute whatever there is. One partition: one order, one
    clock.
    """
    kept = _ms(WORKERS_KEPT_S)
    configs = _configs(shape, {"retention.ms": kept, "retention.bytes": "-1", "segment.ms": kept})
    return TopicPlan(names.workers, 1, shape.replication_factor, configs)


def control_plan(names: TopicNames, shape: TopicDefaults) -> TopicPlan:
    """The topic of what operators say of queues. Compacted: the last word on each queue stays for ever."""
    return TopicPlan(names.control, 1, shape.replication_factor, _configs(shape, {"cleanup.policy": "compact"}))


MOVED_KEPT_S = 600.0
"""How long the schedule remembers a job that it has written to its queue: a worker that asks for another attempt and
dies before its lease is accepted asks for the same one again, through the worker that gets the job next."""


CANCELLED_KEPT_S = 604_800.0
"""How long workers remember a cancelled job at least: it may be in its queue so long."""


def cancelled_kept_s(shape: TopicDefaults) -> float:
    """How long a job stays cancelled."""
    return max(CANCELLED_KEPT_S, shape.result_ttl_s)


def cancelled_plan(names: TopicNames, shape: TopicDefaults) -> TopicPlan:
    """The topic of cancelled jobs. One partition, which each worker reads whole."""
    kept = _ms(cancelled_kept_s(shape))
    configs = _configs(shape, {"retention.ms": kept, "retention.bytes": "-1"})
    return TopicPlan(names.cancelled, 1, shape.replication_factor, configs)


def schedule_plans(names: TopicNames, shape: TopicDefaults) -> list[TopicPlan]:
    """The topics of the schedule, with the same number of partitions. Their records hold whole jobs."""
    segment_bytes = max(SEGMENT_BYTES, shape.max_payload_bytes + HEADROOM_BYTES)
    kept = {"retention.ms": "-1", "retention.bytes": "-1", "segment.bytes": str(segment_bytes)}
    compacted = {
        "cleanup.policy": "compact",
        "delete.retention.ms": _ms(MOVED_KEPT_S),
        "segment.bytes": str(segment_bytes),
    }
    return [
        TopicPlan(names.commands, shape.partitions, shape.replication_factor, _configs(shape, kept)),
        TopicPlan(names.schedule, shape.partitions, shape.replication_factor, _configs(shape, compacted)),
    ]


READ_COMMITTED = "read_committed"


def group_configs(is_committed: bool = False) -> tuple[tuple[str, str], ...]:
    """The settings of a queue's share group, to be made and *seen* before its first heartbeat, most important first.
    ``is_committed``: of the topic of due jobs, which the schedule's owners write in transactions; plain jobs are never
    to be hidden behind an open one.

    Without ``earliest`` the jobs that were enqueued before the first worker vanish. A broker that lacks a name (4.2 the
    last three) answers INVALID_CONFIG for it: leave that one out. The delivery limit is the largest that a broker
    allows. The interval is how long a worker that joins waits for its partitions (a second otherwise), and its tenth of
    a second still lets the coordinator plan once for many that join together.
    """
    return (
        ("share.auto.offset.reset", "earliest"),
        ("share.isolation.level", READ_COMMITTED if is_committed else "read_uncommitted"),
        ("share.partition.max.record.locks", "4000"),
        ("share.delivery.count.limit", "10"),
        ("share.assignment.interval.ms", "100"),
    )


def _configs(shape: TopicDefaults, own: Mapping[str, str]) -> dict[str, str]:
    configs = {
        "cleanup.policy": "delete",
        "message.timestamp.type": "LogAppendTime",
        "max.message.bytes": str(shape.max_payload_bytes + HEADROOM_BYTES),
        **own,
    }
    if shape.min_insync_replicas is not None:
        configs["min.insync.replicas"] = str(shape.min_insync_replicas)
    return configs


def _ms(seconds: float) -> str:
    return "-1" if seconds == float("inf") else str(int(seconds * 1000))


# -- how they come to be -----------------------------------------------------------------------------------------------


class TopicSize(NamedTuple):
    """``replicas``: of each partition, of the one with the fewest if they differ; -1: not known."""

    partitions: int
    replicas: int = -1


class TopicAdmin(Protocol):
    """The interface of the administration client."""

    def existing(self, names: Iterable[str]) -> Mapping[str, TopicSize]:
        """Of ``names``, those that exist."""

    def configs(self, names: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
        """The effective configs of topics, by name."""

    def create(self, plans: Sequence[TopicPlan]) -> Mapping[str, TopicSize]:
        """Create topics; returns those that this call has created. Another client has created the others just before.
        All are usable then. Raises the first error, :class:`InvalidReplicationFactorError` among them."""

    def default_replicas(self, plan: TopicPlan) -> int:
        """The replicas that the brokers would give each partition of this topic, which does not exist and leaves that
        to them; -1: not known. Raises as :meth:`create` does."""

    def broker_count(self) -> int:
        """The brokers of the cluster; 0: not known."""


@dataclass(frozen=True)
class ExistingTopic:
    """Properties of an existing topic. ``replicas``: as of :class:`TopicSize`."""

    name: str
    partitions: int
    max_message_bytes: int
    replicas: int = -1
    min_insync_replicas: int = 1


def ensure_topics(
    admin: TopicAdmin, plans: Iterable[TopicPlan], *, create: bool, warn: Callable[[str], Any] = lambda _: None
) -> dict[str, ExistingTopic]:
    """Create missing topics; returns the properties of all by name.

    ``create=False``: a missing one is a :class:`KafkaConfigurationError` that tells how to make it. A topic that exists
    and differs in what the queue relies on is an error when jobs or results could be lost by it, and a warning else.
    """
    by_name = {plan.name: plan for plan in plans}
    existing = dict(admin.existing(by_name))
    missing = [plan for name, plan in by_name.items() if name not in existing]
    if missing and not create:
        raise missing_topic_error(missing[0])
    if missing:
        created = _create(admin, missing)
        existing.update({plan.name: created.get(plan.name, TopicSize(plan.partitions)) for plan in missing})
        if len(created) < len(missing):
            existing.update(admin.existing([plan.name for plan in missing if plan.name not in created]))
    configs = admin.configs(existing)
    return {name: _check(by_name[name], size, configs[name], warn) for name, size in existing.items()}


def _create(admin: TopicAdmin, plans: Sequence[TopicPlan]) -> Mapping[str, TopicSize]:
    """Create topics. A replication factor that the cluster does not have, or one below the app's min_insync_replicas
    (an app's plans have the same), is a :class:`KafkaConfigurationError`, and no topic is created."""
    factor, least = plans[0].replication_factor, int(plans[0].configs.get("min.insync.replicas", 1))
    try:
        if factor == DEFAULT_REPLICATION and least > 1:
            # Kafka takes such a topic, and counts the replicas that there are as enough.
            replicas = admin.default_replicas(plans[0])
            if 0 < replicas < least:
                raise KafkaConfigurationError(
                    f"min_insync_replicas={least} needs at least as many replicas, and topics get {replicas} by "
                    "default.replication.factor of the brokers; set replication_factor in the app's settings"
                )
        return admin.create(plans)
    except InvalidReplicationFactorError as error:
        count = admin.broker_count()
        wanted = "default.replication.factor of the brokers" if factor == DEFAULT_REPLICATION else f"{factor} replicas"
        raise KafkaConfigurationError(
            f"cannot create topics with {wanted}: the cluster has {counted(count, 'broker')}; set replication_factor "
            f"in the app's settings to at most {count} ({error.args[0] if error.args else error})"
        ) from error


class WeakTopics(NamedTuple):
    """Names of topics that could be safer on their cluster: those with one replica, and those that acknowledge a job
    which one of several replicas has."""

    with_one_replica: list[str]
    with_one_in_sync: list[str]


def weak_topics(topics: Iterable[ExistingTopic], broker_count: int) -> WeakTopics:
    """Nothing is said of ``min.insync.replicas`` of topics with two replicas: 2 would stop all jobs with either
    broker."""
    found = WeakTopics([], [])
    for topic in topics if broker_count > 1 else ():
        if topic.replicas == 1:
            found.with_one_replica.append(topic.name)
        elif topic.replicas > 2 and topic.min_insync_replicas == 1:
            found.with_one_in_sync.append(topic.name)
    return found


def schedule_partitions(names: TopicNames, topics: Mapping[str, ExistingTopic]) -> int:
    """The number of partitions of the schedule; KafkaConfigurationError when its two topics differ in it."""
    commands, schedule = topics[names.commands].partitions, topics[names.schedule].partitions
    if commands != schedule:
        few, most = sorted([(commands, names.commands), (schedule, names.schedule)])
        raise KafkaConfigurationError(
            f"topic {few[1]} has {few[0]} partitions and topic {most[1]} has {most[0]}: both need the same number, "
            f"since partitions of the same number belong together; add some with kafka-topics.sh --alter "
            f"--topic {few[1]} --partitions {most[0]}"
        )
    return commands


def missing_topic_error(plan: TopicPlan) -> KafkaConfigurationError:
    """The error of a topic that does not exist and may not be created: it says how to create it."""
    configs = " ".join(f"--config {name}={value}" for name, value in sorted(plan.configs.items()))
    return KafkaConfigurationError(
        f"topic {plan.name} does not exist and create_topics is False; create it with "
        f"--topic {plan.name} --partitions {plan.partitions} {configs}"
    )


def _check(plan: TopicPlan, size: TopicSize, configs: Mapping[str, str], warn: Callable[[str], Any]) -> ExistingTopic:
    """What a topic is like. :class:`KafkaConfigurationError` where jobs or results could be lost by a config, a warning
    where it costs something."""

    def differs(key: str) -> bool:
        return key in configs and configs[key] != plan.configs[key]

    if plan.configs.get("cleanup.policy") == "delete" and "compact" in configs.get("cleanup.policy", ""):
        raise KafkaConfigurationError(
            f"topic {plan.name} has cleanup.policy={configs['cleanup.policy']}: compaction would remove jobs; "
            "set it to delete"
        )
    if plan.configs.get("cleanup.policy") == "compact" and configs.get("cleanup.policy", "compact") != "compact":
        raise KafkaConfigurationError(
            f"topic {plan.name} has cleanup.policy={configs['cleanup.policy']}: what waits for long would be deleted; "
            "set it to compact"
        )
    if differs("message.timestamp.type"):
        raise KafkaConfigurationError(
            f"topic {plan.name} has message.timestamp.type={configs['message.timestamp.type']}: with clocks that "
            "differ, results would not be found; set it to LogAppendTime"
        )
    for key in ("retention.ms", "retention.bytes"):
        if key in plan.configs and plan.configs[key] == "-1" and differs(key):
            warn(f"topic {plan.name} has {key}={configs[key]}: jobs that wait longer are deleted; set it to -1")
    segment_bytes = int(configs.get("segment.bytes", 0))
    if segment_bytes > 8 * int(plan.configs.get("segment.bytes", segment_bytes)):
        warn(
            f"topic {plan.name} has segment.bytes={segment_bytes}: settled jobs take up to twice that in each "
            f"partition; set it to {plan.configs['segment.bytes']}"
        )
    limit = configs.get("max.message.bytes", plan.configs["max.message.bytes"])
    least = int(configs.get("min.insync.replicas", 1))
    return ExistingTopic(plan.name, size.partitions, int(limit), size.replicas, least)


def payload_limit(
    topics: Iterable[ExistingTopic], max_payload_bytes: int, warn: Callable[[str], Any] = lambda _: None
) -> int:
    """The largest payload, in bytes, that every topic of a queue takes, and ``max_payload_bytes`` at most.

    A job may have to move to any of them: one that fits its queue's topic alone could be neither a suspect nor dead.
    A topic that takes less than the others is a warning, and one that takes no payload at all an error.
    """
    limits = {topic.name: min(max_payload_bytes, topic.max_message_bytes - HEADROOM_BYTES) for topic in topics}
    least, most = min(limits.values()), max(limits.values())
    for name, limit in limits.items():
        if limit <= 0:
            raise KafkaConfigurationError(
                f"topic {name} has max.message.bytes={limit + HEADROOM_BYTES}, and a job may need {HEADROOM_BYTES} "
                f"bytes beside its payload; set it to {max_payload_bytes + HEADROOM_BYTES}"
            )
        if limit < most:
            warn(
                f"topic {name} has max.message.bytes={limit + HEADROOM_BYTES}, less than other topics of its queue: "
                f"payloads of this queue are limited to {least} bytes; set it to {most + HEADROOM_BYTES}"
            )
    return least
