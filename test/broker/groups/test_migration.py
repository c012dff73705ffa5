"""A classic group becomes one of the consumer protocol, and back (KIP-848, ConsumerGroupMigrationPolicy)."""

from __future__ import annotations

from uuid import UUID

import pytest

from kafka.broker.groups.classic_group import ClassicGroup, ClassicState, Protocols
from kafka.broker.groups.consumer_group import ClassicMemberMetadata, ConsumerMember, DurableGroupState, metadata_hash
from kafka.broker.groups.migration import can_downgrade, check_upgrade, downgrade, upgraded
from kafka.errors import GroupIdNotFoundError
from kafka.protocol.consumer_protocol import deserialize_version
from test.broker.groups.hand import HandGroup, HandTopics
from test.broker.groups.requests import write_assignment, write_subscription
from test.broker.groups.test_classic_group import Hand

POLICIES = {
    "upgrade": (True, False),
    "downgrade": (False, True),
    "disabled": (False, False),
    "BIDIRECTIONAL": (True, True),
}
ONE: Protocols = (("range", write_subscription(["t"])),)


@pytest.mark.parametrize(("policy", "may"), [(policy, may) for policy, (may, _) in POLICIES.items()])
def test_the_policy_says_whether_a_classic_group_may_change(policy: str, may: bool) -> None:
    hand = Hand()
    hand.stable("a", "b")
    if may:
        check_upgrade(hand.group, policy, 2)
        with pytest.raises(GroupIdNotFoundError, match="exceeds the consumer group maximum size"):
            check_upgrade(hand.group, policy, 1)
    else:
        with pytest.raises(GroupIdNotFoundError, match="online upgrade is disabled"):
            check_upgrade(hand.group, policy, 2)


def test_a_group_of_others_than_consumers_does_not_change() -> None:
    hand = Hand()
    hand.join("a", kind="connect")
    with pytest.raises(GroupIdNotFoundError, match="does not use the consumer embedded protocol"):
        check_upgrade(hand.group, "upgrade", 9)


def test_an_upgraded_group_has_its_generation_as_epoch_and_what_its_members_had() -> None:
    topics = HandTopics()
    topic_id = topics.make("t", 3)
    hand = Hand()
    protocols: Protocols = (("sticky", write_subscription(["u"])), ("range", write_subscription(["t"])))
    hand.join("a", protocols=(("range", write_subscription(["t"])),))
    hand.join("b", instance="i", protocols=protocols, session_ms=7000, rebalance_ms=8000)
    hand.join("a", "c1", protocols=(("range", write_subscription(["t"])),))
    assert hand.group.protocol_name == "range"
    hand.sync("s", "i2", 2)
    hand.sync("t", "c1", 2, c1=b"", i2=write_assignment({"t": [0, 2], "gone": [1]}, 1))
    assert hand.group.state is ClassicState.STABLE
    has = {(topic_id, 0): 2, (topic_id, 2): 2}
    found = upgraded(hand.group, topics)
    assert found.members["i2"] == ConsumerMember(
        "i2",
        "i",
        None,
        "c",
        "/h",
        frozenset({"t"}),
        "",
        None,
        8000,
        ClassicMemberMetadata(7000, protocols),
        2,
        2,
        assigned=has,
    )
    assert found.members["c1"].assigned == {}
    target = {"c1": frozenset[tuple[UUID, int]](), "i2": frozenset(has)}
    assert found == DurableGroupState(2, metadata_hash(topics.infos(["t"])), 2, 0, found.members, target)


def test_a_member_that_never_had_a_generation_is_known_by_its_first_protocol() -> None:
    hand = Hand(initial_delay_ms=3000)
    hand.join("a", protocols=(("range", write_subscription(["t"])), ("sticky", write_subscription(["u"]))))
    assert hand.group.protocol_name is None
    assert upgraded(hand.group, HandTopics()).members["c1"].topics == {"t"}
    hand = Hand()
    hand.join("a", protocols=(("range", b"x"),))
    with pytest.raises(GroupIdNotFoundError, match="malformed"):
        upgraded(hand.group, HandTopics())


def group_of(*, classic: str = "", other: str = "") -> HandGroup:
    hand = HandGroup()
    members = {
        name: ConsumerMember(name, classic=ClassicMemberMetadata(6000, ONE), rebalance_timeout_ms=7000)
        for name in classic
    }
    members.update({name: ConsumerMember(name) for name in other})
    hand.group.durable = DurableGroupState(5, members=members)
    return hand


@pytest.mark.parametrize(
    ("classic", "other", "leaving", "replaced", "max_size", "may"),
    [
        ("ab", "c", "c", False, 2, True),
        ("ab", "c", "c", False, 1, False),
        ("ab", "c", "", False, 9, False),
        ("ab", "", "", False, 9, False),
        ("ab", "cd", "c", False, 9, False),
        ("ab", "c", "a", False, 9, False),
        ("ab", "", "a", False, 9, True),
        ("", "c", "c", False, 9, False),
        ("", "c", "c", True, 1, True),
        ("a", "c", "c", True, 2, True),
        ("a", "c", "c", True, 1, False),
    ],
)
def test_when_the_rest_of_a_group_is_classic(
    classic: str, other: str, leaving: str, replaced: bool, max_size: int, may: bool
) -> None:
    group = group_of(classic=classic, other=other).group
    for policy, (_, allowed) in POLICIES.items():
        assert can_downgrade(group, leaving, policy, max_size, replaced=replaced) is (may and allowed)
    if not replaced:
        assert can_downgrade(group, leaving, "downgrade", max_size) is may


def test_a_downgraded_group_has_its_epoch_as_generation_and_its_target_as_assignments() -> None:
    hand = group_of(classic="abx", other="c")
    gone = hand.topics.make("gone")
    target = {"a": frozenset({(hand.topic_id, 1), (hand.topic_id, 0), (gone, 0)}), "c": frozenset({(hand.topic_id, 2)})}
    del hand.topics.all["gone"]
    hand.group.durable = hand.group.durable._replace(target=target)
    into = Hand().group
    classic = downgrade(hand.group, ["x"], lambda: into)
    assert classic is into
    assert (classic.generation, classic.protocol_type, classic.protocol_name) == (5, "consumer", "range")
    assert {name: one.assignment for name, one in classic.members.items()} == {
        "a": write_assignment({"t": [0, 1]}, 1), "b": write_assignment({}, 1),
    }  # fmt: skip
    one = classic.members["a"]
    assert (one.session_timeout_ms, one.rebalance_timeout_ms, one.protocols) == (6000, 7000, ONE)


def test_who_says_nothing_readable_is_assigned_in_version_0() -> None:
    hand = group_of(classic="a")
    broken = hand.group.members["a"]._replace(classic=ClassicMemberMetadata(6000, (("range", b""),)))
    hand.group.durable = hand.group.durable._replace(members={"a": broken})
    group: ClassicGroup = downgrade(hand.group, [], lambda: Hand().group)
    assert deserialize_version(group.members["a"].assignment) == 0
