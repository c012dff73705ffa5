"""Members of the classic protocol in a group of the consumer protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

Expected is what GroupMetadataManager does (classicGroupJoinToConsumerGroup and its neighbours).
"""

from __future__ import annotations

from typing import Any

import pytest

from kafka.broker.groups import migration
from kafka.broker.groups.classic_group import (
    ClassicJoinRequest,
    ClassicSyncRequest,
    JoinGroupResult,
    Protocols,
    SyncGroupResult,
)
from kafka.broker.groups.consumer_group import ConsumerMemberState
from kafka.broker.groups.timers import GroupTimeout
from kafka.errors import (
    BrokerResponseError,
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownError,
    UnknownMemberIdError,
)
from test.broker.groups.hand import HandGroup
from test.broker.groups.requests import write_assignment, write_subscription

RANGE: Protocols = (("range", write_subscription(["t"])),)
WITH_RACK: Protocols = (("range", b"\x00\x03" + RANGE[0][1][2:] + bytes.fromhex("00000007 0001 72")),)


def join(
    hand: HandGroup, member: str = "", instance: str | None = None, protocols: Protocols = RANGE, **more: Any
) -> JoinGroupResult:
    join = ClassicJoinRequest(member, instance, "c", "/h", "consumer", protocols, 10_000, 20_000, False)._replace(
        **more
    )
    return migration.classic_join(hand.group, join, "new", hand.now)


def sync(
    hand: HandGroup,
    member: str,
    generation: int,
    kind: str | None = None,
    protocol: str | None = None,
    instance: str | None = None,
) -> SyncGroupResult:
    return migration.classic_sync(
        hand.group, ClassicSyncRequest(member, instance, generation, kind, protocol, {}), hand.now
    )


def beat(hand: HandGroup, member: str, generation: int) -> None:
    migration.classic_heartbeat(hand.group, member, None, generation, hand.now)


def due(hand: HandGroup, member: str) -> dict[GroupTimeout, float]:
    found = {kind: hand.timers.of("g").when(kind, member) for kind in GroupTimeout}
    return {kind: when for kind, when in found.items() if when is not None}


def put(hand: HandGroup, member: str, **fields: Any) -> None:
    """Have a member be as a test wants it."""
    changed = hand.group.members[member]._replace(**fields)
    hand.group.durable = hand.group.durable._replace(members={**hand.group.members, member: changed})


def test_a_join_is_answered_with_the_members_epoch_and_no_leader() -> None:
    hand = HandGroup()
    timers = hand.timers.of("g")
    timers.set(GroupTimeout.MEMBER_JOIN, "new", 105.0)
    timers.set(GroupTimeout.REVOKE, "new", 106.0)
    assert join(hand) == JoinGroupResult(None, "new", 2, "consumer", "range", "", False, ())
    assert due(hand, "new") == {GroupTimeout.SESSION: 110.0, GroupTimeout.MEMBER_SYNC: 120.0}
    member = hand.group.members["new"]
    assert (member.client_id, member.client_host, member.topics, member.rebalance_timeout_ms) == (
        "c", "/h", frozenset({"t"}), 20_000,
    )  # fmt: skip
    assert member.classic == (10_000, RANGE)


def test_only_a_dynamic_member_of_a_later_version_needs_an_id_first() -> None:
    hand = HandGroup()
    assert join(hand, needs_known_id=True) == JoinGroupResult(MemberIdRequiredError, "new")
    assert hand.group.is_empty
    assert join(hand, "m", needs_known_id=True).member_id == "m"
    assert join(hand, instance="i", needs_known_id=True).member_id == "new"
    assert set(hand.group.members) == {"m", "new"}


@pytest.mark.parametrize(
    ("member", "instance", "kind", "protocols", "error"),
    [
        ("", None, "connect", RANGE, InconsistentGroupProtocolError),
        ("", None, "consumer", (("other", RANGE[0][1]),), InconsistentGroupProtocolError),
        ("", None, "consumer", (), InconsistentGroupProtocolError),
        ("", None, "consumer", (("range", b"x"),), UnknownError),
        ("x", "i", "consumer", RANGE, UnknownMemberIdError),
        ("x", "j", "consumer", RANGE, FencedInstanceIdError),
    ],
)
def test_what_stands_against_a_join(
    member: str, instance: str | None, kind: str, protocols: Protocols, error: type[BrokerResponseError]
) -> None:
    hand = HandGroup()
    join(hand, "m", None, (("sticky", RANGE[0][1]), *RANGE))
    hand.join("s", instance_id="j")
    with pytest.raises(error):
        join(hand, member, instance, protocols, protocol_type=kind)


def test_a_full_group_takes_its_own_only() -> None:
    hand = HandGroup(max_size=1)
    join(hand, "m")
    join(hand, "m")
    with pytest.raises(GroupMaxSizeReachedError):
        join(hand, "n")


def test_a_protocol_has_to_be_one_of_all_classic_members() -> None:
    hand = HandGroup()
    hand.join("new protocol")
    join(hand, "m", None, (("sticky", b"\x00\x01\x00\x00\x00\x00\xff\xff\xff\xff\x00\x00\x00\x00"), *RANGE))
    join(hand, "n")
    supports = migration.supports
    assert supports(hand.group, "consumer", (("x", b""), ("range", b"")))
    assert not supports(hand.group, "consumer", (("sticky", b""),))
    assert not supports(hand.group, "connect", (("range", b""),))


def test_what_a_join_does_not_say_stays() -> None:
    hand = HandGroup()
    join(hand, "", "i", WITH_RACK)
    for _ in range(2):
        assert (hand.group.members["new"].rack_id, hand.group.members["new"].instance_id) == ("r", "i")
        join(hand, "new")


def test_a_static_member_takes_its_place_over_under_a_new_id() -> None:
    hand = HandGroup()
    join(hand, instance="i")
    assert set(hand.group.members) == {"new"}
    again = migration.classic_join(
        hand.group, ClassicJoinRequest("", "i", "c", "/h", "consumer", RANGE, 10_000, 20_000), "newer", hand.now
    )
    assert (again.member_id, set(hand.group.members)) == ("newer", {"newer"})
    assert len(hand.group.members["newer"].assigned) == 4
    join(hand, "newer", "i")
    assert set(hand.group.members) == {"newer"}


def test_what_a_member_says_that_it_owns_is_let_go_first() -> None:
    hand = HandGroup()
    join(hand, "m")
    hand.advance(1.1)
    join(hand, "n")
    owned = {"t": [0, 1, 2, 3], "gone": [0]}
    join(hand, "m", None, (("range", write_subscription(["t"], owned)),))
    assert hand.group.members["m"].state is ConsumerMemberState.UNREVOKED_PARTITIONS
    join(hand, "m", None, (("range", write_subscription(["t"], {"t": [0, 1]})),))
    assert (hand.group.members["m"].state, hand.group.members["m"].epoch) == (ConsumerMemberState.STABLE, 3)


def test_a_sync_is_answered_with_the_members_partitions() -> None:
    hand = HandGroup()
    join(hand, "m")
    hand.now = 103.0
    data = write_assignment({"t": [0, 1, 2, 3]}, 1)
    assert sync(hand, "m", 2) == SyncGroupResult(None, None, None, data)
    assert due(hand, "m") == {GroupTimeout.SESSION: 113.0}
    assert sync(hand, "m", 2, "consumer", "range") == SyncGroupResult(None, "consumer", "range", data)
    del hand.topics.all["t"]
    assert sync(hand, "m", 2).assignment == write_assignment({}, 1)


@pytest.mark.parametrize(
    ("member", "generation", "kind", "protocol", "instance", "error"),
    [
        ("m", 1, None, None, None, IllegalGenerationError),
        ("m", 3, None, None, None, IllegalGenerationError),
        ("m", 2, "connect", "range", None, InconsistentGroupProtocolError),
        ("m", 2, "consumer", "sticky", None, InconsistentGroupProtocolError),
        ("x", 2, None, None, None, UnknownMemberIdError),
        ("new protocol", 2, None, None, None, UnknownMemberIdError),
        ("m", 2, None, None, "i", UnknownMemberIdError),
    ],
)
def test_what_stands_against_a_sync(
    member: str,
    generation: int,
    kind: str | None,
    protocol: str | None,
    instance: str | None,
    error: type[BrokerResponseError],
) -> None:
    hand = HandGroup()
    join(hand, "m")
    hand.join("new protocol")
    with pytest.raises(error):
        sync(hand, member, generation, kind, protocol, instance)


def test_a_member_behind_its_group_joins_again_unless_it_has_to_let_go() -> None:
    hand = HandGroup()
    join(hand, "m")
    hand.group.durable = hand.group.durable._replace(epoch=3)
    with pytest.raises(RebalanceInProgressError):
        sync(hand, "m", 2)
    assert due(hand, "m") == {
        GroupTimeout.SESSION: 110.0,
        GroupTimeout.MEMBER_SYNC: 120.0,
        GroupTimeout.MEMBER_JOIN: 120.0,
    }
    put(hand, "m", state=ConsumerMemberState.UNREVOKED_PARTITIONS)
    assert sync(hand, "m", 2).error is None


def test_a_heartbeat_reports_a_rebalance_to_join() -> None:
    hand = HandGroup()
    join(hand, "m")
    sync(hand, "m", 2)
    hand.now = 104.0
    beat(hand, "m", 2)
    assert due(hand, "m") == {GroupTimeout.SESSION: 114.0}
    with pytest.raises(IllegalGenerationError):
        beat(hand, "m", 1)
    put(hand, "m", state=ConsumerMemberState.UNREVOKED_PARTITIONS)
    with pytest.raises(RebalanceInProgressError):
        beat(hand, "m", 2)
    assert due(hand, "m") == {GroupTimeout.SESSION: 114.0, GroupTimeout.MEMBER_JOIN: 124.0}
    hand.now = 105.0
    put(hand, "m", state=ConsumerMemberState.STABLE)
    hand.group.durable = hand.group.durable._replace(epoch=3)
    with pytest.raises(RebalanceInProgressError):
        beat(hand, "m", 2)
    assert due(hand, "m") == {GroupTimeout.SESSION: 115.0, GroupTimeout.MEMBER_JOIN: 124.0}, "the time runs on"


def test_a_waiting_member_is_notified_when_others_have_revoked() -> None:
    hand = HandGroup()
    join(hand, "m")
    partitions = sorted(hand.group.members["m"].assigned)
    put(hand, "m", state=ConsumerMemberState.UNRELEASED_PARTITIONS, assigned=dict.fromkeys(partitions[:3], 2))
    hand.join("other", topics=frozenset())
    epoch = hand.group.epoch
    hand.group.durable = hand.group.durable._replace(assignment_epoch=epoch)
    put(hand, "m", epoch=epoch)
    put(hand, "other", revoking={partitions[3]: 2})
    beat(hand, "m", epoch)
    put(hand, "other", revoking={})
    with pytest.raises(RebalanceInProgressError):
        beat(hand, "m", epoch)


def test_who_is_meant_by_a_leave() -> None:
    hand = HandGroup()
    join(hand, "m")
    hand.join("s", instance_id="i")
    find_leaving_member = migration.find_leaving_member
    assert [find_leaving_member(hand.group, *who) for who in (("m", None), ("", "i"), ("s", "i"))] == ["m", "s", "s"]
    for who, error in (
        (("x", None), UnknownMemberIdError),
        (("", "j"), UnknownMemberIdError),
        (("m", "i"), FencedInstanceIdError),
    ):
        with pytest.raises(error):
            find_leaving_member(hand.group, *who)
