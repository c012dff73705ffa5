"""Tests of ``kafka.tasks.backends.kafka.backlogs``: what follows from what brokers say of topics and share groups. That
they say it is looked at in ``test/conformance/test_task_backlogs.py``."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from kafka import admin
from kafka.admin import OffsetSpec, SharePartitionOffset
from kafka.client import ApiRanges
from kafka.errors import GroupAuthorizationFailedError, KafkaError, TopicAuthorizationFailedError
from kafka.structs import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from kafka.tasks.backends.kafka import backlogs
from kafka.tasks.format.offset_metadata import PartitionMarks, encode
from kafka.tasks.format.topics import TopicNames

NO_ERROR, UNKNOWN_TOPIC, NOT_AUTHORIZED = 0, 3, 29

SHARE_APIS = {76: (1, 1), 78: (1, 2), 79: (1, 2)}

Offsets = dict[TopicPartition, SharePartitionOffset]


class Brokers:
    """What the dialogues come to. ``topics``: for each the log start and end of its partitions, or an error code;
    ``groups``: where each stands; ``committed``: what consumer groups have committed."""

    def __init__(self) -> None:
        self.topics: dict[str, list[tuple[int, int]] | int] = {}
        self.groups: dict[str, Offsets | KafkaError] = {}
        self.committed: dict[str, dict[TopicPartition, OffsetAndMetadata] | KafkaError] = {}
        self.asked_for_ends: set[TopicPartition] = set()
        self.asked_for_lags: set[str] = set()
        self.has_share_groups = True

    def describe_topics(self, names: list[str], **_: Any) -> Generator[None, None, list[dict[str, Any]]]:
        yield
        found = []
        for name in names:
            topic = self.topics.get(name, UNKNOWN_TOPIC)
            code, parts = (topic, []) if isinstance(topic, int) else (NO_ERROR, topic)
            partitions = [{"partition_index": number} for number in range(len(parts))]
            found.append({"name": name, "error_code": code, "partitions": partitions})
        return found

    def share_group_offsets(
        self, groups: Mapping[str, Iterable[TopicPartition]], **_: Any
    ) -> Generator[None, None, dict[str, Offsets | KafkaError]]:
        yield
        assert all(list(places) for places in groups.values())
        self.asked_for_lags.update(groups)
        return {group: self.groups.get(group, {}) for group in groups}

    def list_group_offsets(self, groups: Mapping[str, None], **_: Any) -> Generator[None, None, dict[str, Any]]:
        yield
        found = {group: self.committed.get(group, {}) for group in groups}
        for error in found.values():
            if isinstance(error, KafkaError):
                raise error
        return found

    def list_partition_offsets(
        self, specs: Mapping[TopicPartition, OffsetSpec], **_: Any
    ) -> Generator[None, None, dict[TopicPartition, OffsetAndTimestamp]]:
        yield
        found = {}
        for place, spec in specs.items():
            topic = self.topics[place.topic]
            assert not isinstance(topic, int)
            start, end = topic[place.partition]
            found[place] = OffsetAndTimestamp(start if spec is OffsetSpec.EARLIEST else end, -1, -1)
            self.asked_for_ends.add(place)
        return found

    def measure(self, *queues: str) -> list[tuple[str, int, int]]:
        ranges = ApiRanges(SHARE_APIS if self.has_share_groups else {}, {"share.version": (1, 1)}, "4.3")
        client: Any = SimpleNamespace(retry_backoff=None, api_ranges=lambda: ranges)
        dialogue = backlogs.measure_backlogs(client, TopicNames("shop"), queues, 30.0)
        while True:
            try:
                next(dialogue)
            except StopIteration as end:
                return [tuple(each) for each in end.value]


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    found = Brokers()
    for name in ("describe_topics", "share_group_offsets", "list_group_offsets", "list_partition_offsets"):
        monkeypatch.setattr(admin.dialogues, name, getattr(found, name))
    return found


def at(topic: str, *offsets: tuple[int, int]) -> Offsets:
    """Start offset and lag in each partition."""
    return {TopicPartition(topic, number): SharePartitionOffset(*each) for number, each in enumerate(offsets)}


def committed(topic: str, *offsets: tuple[int, str]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offset and metadata in each partition."""
    return {TopicPartition(topic, number): OffsetAndMetadata(*each, -1) for number, each in enumerate(offsets)}


def test_of_a_consumer_group_jobs_that_have_ended_behind_its_offset_do_not_count(brokers: Brokers) -> None:
    brokers.topics = {"shop.mail": [(0, 100), (0, 50), (7, 30)], "shop.mail.due": [(2, 6)], "shop.low": [(0, 3)]}
    marks = encode(90, PartitionMarks(((92, 93), (95, 97)), 99, writer="shop.worker.1"))
    brokers.committed = {"shop.mail.group": committed("shop.mail", (90, marks), (50, ""))}
    brokers.groups = {"shop.low": at("shop.low", (1, 2))}
    assert brokers.measure("mail", "low") == [("mail", (10 - 5) + 0 + 23 + 4, 0), ("low", 2, 0)]
    assert brokers.asked_for_lags == {"shop.low"}


def test_of_a_purged_partition_nothing_counts_that_is_before_its_start(brokers: Brokers) -> None:
    brokers.topics = {"shop.mail": [(96, 100), (60, 60)]}
    marks = encode(90, PartitionMarks(((92, 93), (95, 97))))
    others = encode(50, PartitionMarks(((52, 53),)))
    brokers.committed = {"shop.mail.group": committed("shop.mail", (90, marks), (50, others))}
    assert brokers.measure("mail") == [("mail", 2, 0)]


def test_metadata_that_is_not_understood_leaves_the_distance(brokers: Brokers) -> None:
    brokers.topics = {"shop.mail": [(0, 100)]}
    brokers.committed = {"shop.mail.group": committed("shop.mail", (90, "9:later"))}
    assert brokers.measure("mail") == [("mail", 10, 0)]


def test_brokers_without_share_groups_are_not_asked_about_them(brokers: Brokers) -> None:
    brokers.has_share_groups = False
    brokers.topics = {"shop.mail": [(0, 100)], "shop.low": [(2, 5)]}
    brokers.committed = {"shop.mail.group": committed("shop.mail", (90, ""))}
    assert brokers.measure("mail", "low") == [("mail", 10, 0), ("low", 3, 0)]
    assert not brokers.asked_for_lags


def test_the_lags_of_a_queue_and_of_its_suspects_are_summed_over_their_partitions(brokers: Brokers) -> None:
    brokers.topics = {"shop.mail": [(0, 100), (0, 50)], "shop.mail.suspect": [(0, 9)], "shop.mail.dead": [(2, 7)]}
    brokers.groups = {
        "shop.mail": at("shop.mail", (10, 20), (50, 0)), "shop.mail.suspect": at("shop.mail.suspect", (3, 2))
    }  # fmt: skip
    assert brokers.measure("mail") == [("mail", 22, 5)]
    assert brokers.asked_for_ends == {TopicPartition("shop.mail.dead", 0)}


def test_without_a_lag_the_distance_to_the_end_counts(brokers: Brokers) -> None:
    brokers.topics = {"shop.mail": [(40, 100), (0, 50), (7, 30), (0, 5)]}
    brokers.groups = {"shop.mail": at("shop.mail", (10, -1), (20, -1), (-1, -1))}  # and none of the last one
    assert brokers.measure("mail") == [("mail", (100 - 40) + (50 - 20) + (30 - 7) + 5, 0)]


def test_a_group_that_was_reset_beyond_the_end_has_nothing_to_do(brokers: Brokers) -> None:
    brokers.topics = {"shop.mail": [(0, 100)]}
    brokers.groups = {"shop.mail": at("shop.mail", (1000, -1))}
    assert brokers.measure("mail") == [("mail", 0, 0)]


def test_queues_that_have_no_topics_yet_are_empty(brokers: Brokers) -> None:
    brokers.topics = {"shop.mail": [(0, 3)]}
    assert brokers.measure("low", "mail") == [("low", 0, 0), ("mail", 3, 0)]
    assert brokers.measure("low") == [("low", 0, 0)]


def test_the_first_error_is_raised(brokers: Brokers) -> None:
    brokers.topics = {"shop.mail": [(0, 3)], "shop.mail.dead": NOT_AUTHORIZED}
    with pytest.raises(TopicAuthorizationFailedError, match="shop.mail.dead"):
        brokers.measure("mail")
    brokers.topics = {"shop.mail": [(0, 3)]}
    brokers.groups = {"shop.mail": GroupAuthorizationFailedError("shop.mail")}
    with pytest.raises(GroupAuthorizationFailedError):
        brokers.measure("mail")
    brokers.groups = {}
    brokers.committed = {"shop.mail.group": GroupAuthorizationFailedError("shop.mail.group")}
    with pytest.raises(GroupAuthorizationFailedError):
        brokers.measure("mail")
