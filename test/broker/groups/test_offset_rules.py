"""Who may commit, read and delete offsets, and since when they are unused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka.broker.groups.classic_group import ClassicGroup, ClassicState
from kafka.broker.groups.coordinator import FIRST_COMMIT_WITH_GROUP_ERRORS
from kafka.broker.offset_store import CommittedOffset
from kafka.broker.share.coordinator import ShareHeartbeat
from kafka.broker.topics import TopicInfo
from kafka.errors import (
    GroupIdNotFoundError,
    IllegalGenerationError,
    NonEmptyGroupError,
    StaleMemberEpochError,
    UnknownMemberIdError,
)
from test.broker.driver import HandBroker
from test.broker.groups.requests import codes, commit, consumer, join
from test.broker.groups.test_coordinator import stable

SETTINGS = {"group.initial.rebalance.delay.ms": "0"}


@pytest.fixture
def hand(tmp_path: Path) -> Iterator[HandBroker]:
    broker = HandBroker(tmp_path, SETTINGS)
    yield broker
    broker.broker.close()


def share_group(hand: HandBroker, name: str) -> None:
    topics: dict[str, TopicInfo] = {}
    hand.broker.share.heartbeat(name, ShareHeartbeat("m", 0, ["t"]), topics, hand.now)


def test_a_generation_of_a_group_that_is_not_there_is_wrong_in_the_words_of_the_version(hand: HandBroker) -> None:
    """OffsetMetadataManager.validateOffsetCommit: GROUP_ID_NOT_FOUND from OffsetCommit 9 on."""
    assert FIRST_COMMIT_WITH_GROUP_ERRORS == 9
    check = hand.broker.groups.check_commit
    for epoch in (0, 1):
        with pytest.raises(GroupIdNotFoundError):
            check("g", "m", None, epoch, 0.0)
        with pytest.raises(GroupIdNotFoundError):
            check("g", "m", None, epoch, 0.0, version=9)
        with pytest.raises(IllegalGenerationError):
            check("g", "m", None, epoch, 0.0, version=8)
        with pytest.raises(IllegalGenerationError):
            check("g", "m", None, epoch, 0.0, transactional=True)
    assert hand.broker.groups.group_type("g") is None
    check("g", "m", None, -1, 0.0)
    assert hand.broker.groups.group_type("g") == "classic"


def test_a_share_group_has_no_offsets_of_this_kind(hand: HandBroker) -> None:
    share_group(hand, "s")
    groups = hand.broker.groups
    assert groups.group_type("s") == "share"
    with pytest.raises(GroupIdNotFoundError, match="share group"):
        groups.check_commit("s", "", None, -1, 0.0)
    with pytest.raises(GroupIdNotFoundError, match="share group"):
        groups.check_offset_delete("s")
    assert groups.check_fetch("s", None, -1) is False


def test_reading_needs_a_group_and_in_one_of_consumers_the_epoch(hand: HandBroker) -> None:
    hand.create_topic("t", 1)
    hand.ask(consumer("n", "a", 0, ["t"]))
    stable(hand, "g")
    groups = hand.broker.groups
    assert [groups.check_fetch(name, None, -1) for name in ("g", "n", "unknown")] == [True, True, False]
    assert groups.check_fetch("n", "a", 2)
    assert groups.check_fetch("g", "anybody", 7), "a classic group does not ask"
    with pytest.raises(StaleMemberEpochError):
        groups.check_fetch("n", "a", 1)
    with pytest.raises(UnknownMemberIdError):
        groups.check_fetch("n", "b", 2)


def test_deleting_asks_a_classic_group_of_other_members_than_consumers(hand: HandBroker) -> None:
    hand.create_topic("t", 1)
    hand.ask(consumer("n", "a", 0, ["t"]))
    stable(hand, "g")
    groups = hand.broker.groups
    for name in ("g", "n"):
        assert groups.check_offset_delete(name) is groups.groups[name]
    member = hand.ask(join("c", protocol_type="connect"), 9).member_id
    hand.ask(join("c", member, protocol_type="connect"), 9)
    with pytest.raises(NonEmptyGroupError):
        groups.check_offset_delete("c")
    with pytest.raises(GroupIdNotFoundError, match="not found"):
        groups.check_offset_delete("unknown")


def test_since_when_an_offset_is_unused(hand: HandBroker) -> None:
    """OffsetExpirationConditionImpl, ClassicGroup.offsetExpirationCondition: the commit, the last state, or never."""
    hand.create_topic("t", 1)
    offset = CommittedOffset(1, -1, "", 5)
    assert hand.broker.groups.groups == {}, "the groups are made when first asked for, and set the rule then"
    since = hand.broker.offsets.expires_from
    assert since("unknown", "t", offset) == 5
    hand.ask(consumer("n", "a", 0, ["t"]))
    assert [since("n", topic, offset) for topic in ("t", "u")] == [None, 5]
    assert codes(hand.ask(commit("simple", "t", {0: 1}), 9)) == [0]
    assert since("simple", "t", offset) == 5
    stable(hand, "g")
    group = hand.broker.groups.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert [since("g", topic, offset) for topic in ("t", "u")] == [None, 5]
    group.subscribed = None
    assert [since("g", topic, offset) for topic in ("t", "u")] == [None, None]
    group.subscribed = frozenset({"t"})
    group.protocol_type = "connect"
    assert [since("g", topic, offset) for topic in ("t", "u")] == [None, None]
    group.protocol_type = "consumer"
    group.prepare_rebalance(hand.now)
    assert group.state is ClassicState.PREPARING_REBALANCE
    assert [since("g", topic, offset) for topic in ("t", "u")] == [None, None]
    for member in list(group.members):
        group.leave(member, None)
    group.members_left(hand.now)
    assert group.is_empty
    for changed_at_ms, expected in ((-1, 5), (0, 0), (1, 1), (9, 9)):
        group.changed_at_ms = changed_at_ms
        assert since("g", "t", offset) == expected


def test_only_an_empty_group_without_a_transaction_goes_with_its_last_offset(hand: HandBroker) -> None:
    hand.create_topic("t", 1)
    stable(hand, "g")
    for name in ("pending", "unused"):
        assert codes(hand.ask(commit(name, "t", {0: 1}), 9)) == [0]
    where, found = next(iter(hand.broker.offsets.of_group("pending").items()))
    hand.broker.offsets.commit_pending("pending", 1000, 0, {where: found})
    for name in ("g", "pending", "unused", "unknown"):
        hand.broker.offsets.on_emptied(name)
    assert set(hand.broker.groups.groups) == {"g", "pending"}
