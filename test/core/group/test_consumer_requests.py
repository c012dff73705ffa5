"""What the heartbeats of a member of a consumer group say (KIP-848): all at first, then what has changed."""

from __future__ import annotations

from typing import Any

import pytest

from kafka.core.group.consumer import ConsumerHeartbeats, IdPartition
from kafka.core.group.machine import GroupSubscription
from kafka.protocol.groups import ConsumerGroupHeartbeatRequest
from kafka.structs import TopicPartition
from test.core.group.consumer_bench import JOBS, LOGS

Request = ConsumerGroupHeartbeatRequest
TOPICS = GroupSubscription(frozenset({"logs", "jobs"}))
HELD: dict[IdPartition, TopicPartition] = {
    (topic_id, number): TopicPartition(name, number)
    for topic_id, name, number in [(LOGS, "logs", 2), (JOBS, "jobs", 1), (JOBS, "jobs", 0)]
}
OWNED = [
    Request.TopicPartitions(topic_id=JOBS, partitions=[0, 1]),
    Request.TopicPartitions(topic_id=LOGS, partitions=[2]),
]
ALL: dict[str, Any] = {
    "rack_id": "r",
    "rebalance_timeout_ms": 300_000,
    "subscribed_topic_names": ["jobs", "logs"],
    "server_assignor": "range",
    "topic_partitions": OWNED,
}


def request(epoch: int = 3, instance_id: str | None = "i", **said: Any) -> Request:
    """A heartbeat that says this, and nothing else: KIP-848 has null, and -1 for the time-out, where nothing has
    changed since the last one."""
    nothing: dict[str, Any] = {
        "rack_id": None,
        "rebalance_timeout_ms": -1,
        "subscribed_topic_names": None,
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": None,
    }
    return Request(group_id="g", member_id="m", member_epoch=epoch, instance_id=instance_id, **{**nothing, **said})


def heartbeats(instance_id: str | None = "i", rack: str = "r") -> ConsumerHeartbeats:
    return ConsumerHeartbeats("g", instance_id, rack, "range", 300_000)


def joined() -> ConsumerHeartbeats:
    """Of a member whose join went out."""
    found = heartbeats()
    found.heartbeat("m", 0, TOPICS, {})
    return found


def test_a_join_says_all_and_the_next_heartbeat_nothing() -> None:
    first = heartbeats()
    assert first.heartbeat("m", 0, TOPICS, HELD) == request(0, **ALL)
    assert not first.has_news
    assert first.heartbeat("m", 3, TOPICS, HELD) == request()


@pytest.mark.parametrize(
    ("say", "changed"),
    [
        ("resend_all", ALL),
        ("resend_topics", {"subscribed_topic_names": ["jobs", "logs"]}),
        ("resend_owned", {"topic_partitions": OWNED}),
    ],
)
def test_what_has_changed_is_sent_once(say: str, changed: dict[str, Any]) -> None:
    found = joined()
    getattr(found, say)()
    assert found.has_news
    assert found.heartbeat("m", 3, TOPICS, HELD) == request(**changed)
    assert not found.has_news
    assert found.heartbeat("m", 3, TOPICS, HELD) == request()


def test_a_pattern_that_was_sent_is_removed_with_an_empty_one() -> None:
    """SubscribedTopicRegex: null when it has not changed; version 0 lacks it."""
    found = joined()
    requests = []
    for pattern in (None, "jo.*", None, "lo.*"):
        found.resend_topics()
        requests.append(found.heartbeat("m", 3, GroupSubscription(frozenset(), pattern), {}).subscribed_topic_regex)
        assert found.heartbeat("m", 3, GroupSubscription(frozenset(), pattern), {}).subscribed_topic_regex is None
    assert requests == [None, "jo.*", "", "lo.*"]


def test_no_rack_is_null() -> None:
    """GroupMetadataManager.throwIfConsumerGroupHeartbeatRequestIsInvalid: RackId can't be empty."""
    assert heartbeats(rack="").heartbeat("m", 0, TOPICS, {}).rack_id is None


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
def test_who_leaves_has_the_epoch_of_its_kind(instance_id: str | None, epoch: int) -> None:
    """KIP-848: -1 leaves; -2 is a static member's that may come back."""
    assert heartbeats(instance_id).leave("m") == request(epoch, instance_id)
