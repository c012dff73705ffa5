"""Tests of ``kafka.tasks.format.topics``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import pytest

from kafka.errors import IllegalArgumentError, InvalidReplicationFactorError, KafkaConfigurationError
from kafka.tasks.format.topics import (
    ExistingTopic,
    TopicDefaults,
    TopicNames,
    TopicPlan,
    TopicSize,
    check_name,
    check_queue,
    ensure_topics,
    group_configs,
    payload_limit,
    queue_plans,
    results_plans,
    schedule_partitions,
    schedule_plans,
    weak_topics,
)

NAMES = TopicNames("shop")


class Admin:
    """A cluster of topics in a dictionary; ``racing``: names that somebody else creates first."""

    def __init__(self, brokers: int = 1, default_replication: int = 1, **topics: TopicPlan) -> None:
        self.topics: dict[str, TopicPlan] = {plan.name: plan for plan in topics.values()}
        self.racing: set[str] = set()
        self.created: list[str] = []
        self.asked = 0
        self._brokers = brokers
        self._default_replication = default_replication

    def _size(self, plan: TopicPlan) -> TopicSize:
        return TopicSize(plan.partitions, self._replicas(plan))

    def _replicas(self, plan: TopicPlan) -> int:
        replicas = plan.replication_factor if plan.replication_factor > 0 else self._default_replication
        if replicas > self._brokers:
            raise InvalidReplicationFactorError(f"creating topic {plan.name}: only {self._brokers} are registered")
        return replicas

    def default_replicas(self, plan: TopicPlan) -> int:
        self.asked += 1
        return self._replicas(plan)

    def broker_count(self) -> int:
        return self._brokers

    def existing(self, names: Iterable[str]) -> Mapping[str, TopicSize]:
        return {name: self._size(self.topics[name]) for name in names if name in self.topics}

    def configs(self, names: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
        self.asked += 1
        return {name: self.topics[name].configs for name in names}

    def create(self, plans: Sequence[TopicPlan]) -> Mapping[str, TopicSize]:
        self.asked += 1
        sizes = {plan.name: self._size(plan) for plan in plans}
        for plan in plans:
            if plan.name not in self.racing:
                self.topics[plan.name] = plan
                self.created.append(plan.name)
            else:
                self.topics[plan.name] = dataclasses.replace(plan, partitions=5)
        return {name: size for name, size in sizes.items() if name not in self.racing}


def test_a_queue_has_four_topics_and_the_results_two() -> None:
    assert [p.name for p in queue_plans(NAMES, "mail", TopicDefaults())] == [
        "shop.mail",
        "shop.mail.due",
        "shop.mail.suspect",
        "shop.mail.dead",
    ]
    assert [NAMES.queue("mail"), NAMES.due("mail"), NAMES.suspect("mail"), NAMES.dead("mail")] == [
        "shop.mail", "shop.mail.due", "shop.mail.suspect", "shop.mail.dead",
    ]  # fmt: skip
    assert [p.name for p in results_plans(NAMES, TopicDefaults())] == ["shop.results", "shop.results.late"]


def test_nothing_that_waits_expires_and_all_times_are_the_brokers() -> None:
    plans = queue_plans(NAMES, "mail", TopicDefaults()) + results_plans(NAMES, TopicDefaults())
    assert {p.configs["message.timestamp.type"] for p in plans} == {"LogAppendTime"}
    assert {p.configs["cleanup.policy"] for p in plans} == {"delete"}
    kept = {p.name: p.configs["retention.ms"] for p in plans}
    assert kept == {
        "shop.mail": "-1",
        "shop.mail.due": "-1",
        "shop.mail.suspect": "-1",
        "shop.mail.dead": "2592000000",
        "shop.results": "86400000",
        "shop.results.late": "86400000",
    }


def test_settings_reach_the_topics() -> None:
    shape = TopicDefaults(3, 2, 1, result_ttl_s=3600, max_payload_bytes=2_000_000)
    for plan in queue_plans(NAMES, "mail", shape) + results_plans(NAMES, shape):
        assert (plan.partitions, plan.replication_factor, plan.configs["min.insync.replicas"]) == (3, 2, "1")
        assert int(plan.configs["max.message.bytes"]) > 2_000_000
    assert results_plans(NAMES, shape)[0].configs["segment.ms"] == "150000"


def test_a_group_starts_at_the_earliest_record() -> None:
    configs = dict(group_configs())
    assert configs["share.auto.offset.reset"] == "earliest"
    assert configs["share.isolation.level"] == "read_uncommitted"


def test_only_the_group_of_due_jobs_sees_no_records_of_open_and_aborted_transactions() -> None:
    plain, due = dict(group_configs()), dict(group_configs(is_committed=True))
    assert {name for name in plain if plain[name] != due[name]} == {"share.isolation.level"}
    assert due["share.isolation.level"] == "read_committed"


def test_the_topics_of_the_schedule_need_the_same_number_of_partitions() -> None:
    topics = {name: ExistingTopic(name, 8, 1_000_000) for name in (NAMES.commands, NAMES.schedule)}
    assert schedule_partitions(NAMES, topics) == 8
    topics[NAMES.schedule] = ExistingTopic(NAMES.schedule, 4, 1_000_000)
    with pytest.raises(KafkaConfigurationError, match=r"--alter --topic shop.schedule --partitions 8"):
        schedule_partitions(NAMES, topics)


@pytest.mark.parametrize("name", ["", "a b", "a/b", ".a", "a.", "a..b", "ä", "x" * 101, "a\n"])
def test_a_name_that_no_topic_can_have_is_refused(name: str) -> None:
    with pytest.raises(IllegalArgumentError):
        check_name("a queue", name)


@pytest.mark.parametrize(
    "queue",
    ["results", "commands", "schedule", "workers", "results.late", "m.dead", "m.suspect", "m.due", "m.group"],
)
def test_a_queue_cannot_have_the_name_of_an_apps_own_topic(queue: str) -> None:
    with pytest.raises(IllegalArgumentError, match="uses a topic or group of that name"):
        check_queue(queue)


@pytest.mark.parametrize("queue", ["mail", "eu.mail", "dead", "due", "A-b_9"])
def test_other_names_are_queues(queue: str) -> None:
    assert check_queue(queue) == queue


def test_missing_topics_are_created() -> None:
    admin = Admin()
    found = ensure_topics(admin, queue_plans(NAMES, "mail", TopicDefaults()), create=True)
    assert admin.created == ["shop.mail", "shop.mail.due", "shop.mail.suspect", "shop.mail.dead"]
    assert admin.asked == 2, "all at once"
    ensure_topics(admin, queue_plans(NAMES, "mail", TopicDefaults()), create=True)
    assert admin.asked == 3
    assert found["shop.mail"].partitions == 8
    assert found["shop.mail"].max_message_bytes == 1_000_000 + 64 * 1024


def test_a_topic_that_somebody_else_creates_meanwhile_is_taken_as_it_is() -> None:
    admin = Admin()
    admin.racing = {"shop.mail"}
    found = ensure_topics(admin, queue_plans(NAMES, "mail", TopicDefaults()), create=True)
    assert {name for name, topic in found.items() if topic.partitions == 5} == {"shop.mail"}
    assert len(found) > 2


def test_a_missing_topic_is_an_error_when_creation_is_forbidden() -> None:
    with pytest.raises(KafkaConfigurationError, match=r"--topic shop\.mail --partitions 8 .*retention\.ms=-1"):
        ensure_topics(Admin(), queue_plans(NAMES, "mail", TopicDefaults()), create=False)


def test_a_topic_that_is_there_keeps_its_partitions_and_its_limit() -> None:
    there = TopicPlan("shop.mail", 2, 1, {"max.message.bytes": "5000"})
    found = ensure_topics(Admin(mail=there), queue_plans(NAMES, "mail", TopicDefaults())[:1], create=False)
    assert (found["shop.mail"].partitions, found["shop.mail"].max_message_bytes) == (2, 5000)


@pytest.mark.parametrize(
    ("key", "value"), [("cleanup.policy", "compact"), ("message.timestamp.type", "CreateTime")]
)
def test_a_topic_that_would_lose_jobs_is_an_error(key: str, value: str) -> None:
    there = TopicPlan("shop.mail", 2, 1, {key: value})
    with pytest.raises(KafkaConfigurationError, match=f"{key}={value}"):
        ensure_topics(Admin(mail=there), queue_plans(NAMES, "mail", TopicDefaults())[:1], create=True)


def test_a_queue_that_expires_is_a_warning() -> None:
    warnings: list[str] = []
    there = TopicPlan("shop.mail", 2, 1, {"retention.ms": "604800000"})
    ensure_topics(Admin(mail=there), queue_plans(NAMES, "mail", TopicDefaults())[:1], create=True, warn=warnings.append)
    assert warnings == ["topic shop.mail has retention.ms=604800000: jobs that wait longer are deleted; set it to -1"]


@pytest.mark.parametrize(("segment_bytes", "is_too_large"), [("67108864", False), ("1073741824", True)])
def test_a_queue_with_large_segments_keeps_settled_jobs_which_is_a_warning(
    segment_bytes: str, is_too_large: bool
) -> None:
    warnings: list[str] = []
    mail, _, dead = (
        TopicPlan(name, 2, 1, {"segment.bytes": segment_bytes}) for name in ("shop.mail", "other", "shop.mail.dead")
    )
    plans = queue_plans(NAMES, "mail", TopicDefaults())
    ensure_topics(Admin(mail=mail, dead=dead), plans, create=True, warn=warnings.append)
    assert warnings == is_too_large * [
        "topic shop.mail has segment.bytes=1073741824: settled jobs take up to twice that in each partition; set it to "
        "8388608"
    ]


def test_a_topic_that_somebody_else_just_made_and_our_broker_does_not_know_yet_is_taken_as_planned() -> None:
    class Lagging(Admin):
        def existing(self, names: Iterable[str]) -> Mapping[str, TopicSize]:
            return {}

    admin = Lagging()
    plans = queue_plans(NAMES, "mail", TopicDefaults())
    admin.racing = {plan.name for plan in plans}
    assert ensure_topics(admin, plans, create=True)["shop.mail"].partitions == 8


def of_queue(**limits: int) -> list[ExistingTopic]:
    return [ExistingTopic(f"shop.{name}", 8, limit) for name, limit in limits.items()]


def test_a_payload_is_limited_by_the_setting_and_by_what_every_topic_of_the_queue_takes() -> None:
    warnings: list[str] = []
    assert payload_limit(of_queue(mail=5_065_536, suspect=1_065_536), 1_000_000, warnings.append) == 1_000_000
    assert payload_limit(of_queue(mail=265_536, suspect=265_536), 1_000_000, warnings.append) == 200_000
    assert warnings == []


def test_a_topic_that_takes_less_than_the_others_of_its_queue_is_a_warning_that_names_it() -> None:
    warnings: list[str] = []
    topics = of_queue(mail=5_065_536, suspect=1_065_536, dead=165_536)
    assert payload_limit(topics, 1_000_000, warnings.append) == 100_000
    assert warnings == [
        "topic shop.dead has max.message.bytes=165536, less than other topics of its queue: payloads of this queue are "
        "limited to 100000 bytes; set it to 1065536"
    ]


def test_a_topic_that_takes_no_payload_at_all_is_an_error_that_says_what_to_set() -> None:
    with pytest.raises(KafkaConfigurationError, match=r"shop\.dead has max\.message\.bytes=65536, .*set it to 1065536"):
        payload_limit(of_queue(mail=1_065_536, dead=65_536), 1_000_000)


def test_a_segment_of_jobs_is_small_and_takes_the_largest_batch() -> None:
    for max_payload_bytes, segment_bytes in ((1_000_000, 8_388_608), (20_000_000, 20_065_536)):
        jobs, due, suspect, dead = queue_plans(NAMES, "mail", TopicDefaults(max_payload_bytes=max_payload_bytes))
        assert {plan.configs["segment.bytes"] for plan in (jobs, due, suspect)} == {str(segment_bytes)}
        assert int(jobs.configs["max.message.bytes"]) <= segment_bytes
        assert "segment.bytes" not in dead.configs


def test_the_topics_of_the_schedule_have_the_same_number_of_partitions() -> None:
    """A command and the state that it changes are in partitions of the same number."""
    commands, state = ExistingTopic("shop.commands", 8, 10**6), ExistingTopic("shop.schedule", 8, 10**6)
    assert schedule_partitions(NAMES, {each.name: each for each in (commands, state)}) == 8
    fewer = ExistingTopic("shop.schedule", 4, 10**6)
    with pytest.raises(KafkaConfigurationError, match="shop.schedule has 4 partitions and topic shop.commands has 8"):
        schedule_partitions(NAMES, {each.name: each for each in (commands, fewer)})


def test_the_topics_of_the_schedule_are_created_with_the_same_number_of_partitions() -> None:
    admin = Admin()
    topics = ensure_topics(admin, schedule_plans(NAMES, TopicDefaults(partitions=3)), create=True)
    assert sorted(admin.created) == ["shop.commands", "shop.schedule"]
    assert schedule_partitions(NAMES, topics) == 3
    there = ensure_topics(admin, schedule_plans(NAMES, TopicDefaults(partitions=9)), create=False)
    assert schedule_partitions(NAMES, there) == 3


def test_topics_of_the_schedule_with_different_numbers_of_partitions_are_refused() -> None:
    admin = Admin()
    plans = schedule_plans(NAMES, TopicDefaults(partitions=3))
    ensure_topics(admin, plans, create=True)
    admin.topics["shop.schedule"] = dataclasses.replace(admin.topics["shop.schedule"], partitions=4)
    with pytest.raises(KafkaConfigurationError, match="commands has 3 .* shop.schedule has 4:") as caught:
        schedule_partitions(NAMES, ensure_topics(admin, plans, create=True))
    assert "kafka-topics.sh --alter --topic shop.commands --partitions 4" in str(caught.value)


# -- several brokers ---------------------------------------------------------------------------------------------------


def replicated(brokers: int, default: int = 1, factor: int = -1, least: int | None = None) -> dict[str, ExistingTopic]:
    admin = Admin(brokers, default)
    plans = queue_plans(NAMES, "mail", TopicDefaults(replication_factor=factor, min_insync_replicas=least))
    try:
        return ensure_topics(admin, plans, create=True)
    except KafkaConfigurationError:
        assert admin.created == []
        raise


def test_a_topic_is_known_with_its_replicas_also_when_it_was_there() -> None:
    admin = Admin(brokers=3, default_replication=2)
    plans = queue_plans(NAMES, "mail", TopicDefaults())
    made = ensure_topics(admin, plans, create=True)
    assert {topic.replicas for topic in made.values()} == {2}
    admin.asked = 0
    assert ensure_topics(admin, plans, create=True) == made
    assert admin.asked == 1, "the configs, and no more"


@pytest.mark.parametrize(
    ("factor", "said"), [(3, "with 3 replicas"), (-1, "with default.replication.factor of the brokers")]
)
def test_more_replicas_than_brokers_are_an_error_that_says_how_many_brokers_there_are(factor: int, said: str) -> None:
    with pytest.raises(KafkaConfigurationError) as caught:
        replicated(brokers=2, default=3, factor=factor)
    assert caught.value.args == (
        f"cannot create topics {said}: the cluster has 2 brokers; set replication_factor in the app's settings to at "
        "most 2 (creating topic shop.mail: only 2 are registered)",
    )


def test_a_default_replication_below_min_insync_replicas_is_refused_before_a_topic_is_created() -> None:
    with pytest.raises(KafkaConfigurationError, match=r"min_insync_replicas=2 .* get 1 by default.replication"):
        replicated(brokers=3, default=1, least=2)
    with pytest.raises(KafkaConfigurationError, match="the cluster has 2 brokers"):
        replicated(brokers=2, default=3, least=2)
    for topics in (replicated(3, default=3, least=2), replicated(3, factor=2, least=2), replicated(1, least=1)):
        assert len(topics) == 4


@pytest.mark.parametrize(
    ("brokers", "replicas", "least", "kind"),
    [
        (1, 1, 1, None),
        (0, 1, 1, None),
        (2, -1, 1, None),
        (2, 1, 1, "with_one_replica"),
        (3, 1, 2, "with_one_replica"),
        (2, 2, 1, None),
        (3, 3, 1, "with_one_in_sync"),
        (3, 3, 2, None),
    ],
)
def test_topics_are_weak_where_their_cluster_could_keep_them_better(
    brokers: int, replicas: int, least: int, kind: str | None
) -> None:
    weak = weak_topics([ExistingTopic("shop.mail", 8, 10**6, replicas, least)], brokers)._asdict()
    assert {name: topics for name, topics in weak.items() if topics} == ({kind: ["shop.mail"]} if kind else {})


def test_a_topic_has_the_min_insync_replicas_of_its_configs() -> None:
    assert {topic.min_insync_replicas for topic in replicated(brokers=3, factor=3, least=2).values()} == {2}
    assert {topic.min_insync_replicas for topic in replicated(brokers=3, factor=3).values()} == {1}
