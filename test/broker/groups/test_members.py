"""What members of both kinds are before anything has happened to them, and what one asks of them."""

from __future__ import annotations

from uuid import UUID

import pytest

from kafka.broker.groups.classic_group import ClassicJoinRequest, ClassicMember, ClassicRoster, JoinGroupResult
from kafka.broker.groups.consumer_group import ConsumerMember, ConsumerMemberState
from kafka.errors import FencedInstanceIdError, MemberIdRequiredError, UnknownMemberIdError
from test.broker.groups.requests import write_subscription

TOPIC = UUID(int=1)


def test_a_new_member_is_stable_with_nothing_at_epoch_0() -> None:
    """ConsumerGroupMember.Builder: epoch 0, STABLE, rebalanceTimeoutMs -1."""
    member = ConsumerMember("m")
    assert (member.epoch, member.previous_epoch, member.state) == (0, 0, ConsumerMemberState.STABLE)
    assert (member.rebalance_timeout_ms, member.assigned, member.revoking) == (-1, {}, {})


def test_a_member_is_at_a_target_when_it_has_all_of_it() -> None:
    member = ConsumerMember("m", epoch=3)
    assert (member.is_at(3), member.is_at(4)) == (True, False)
    assert not member._replace(state=ConsumerMemberState.UNRELEASED_PARTITIONS).is_at(3)
    assert member._replace(epoch=-2).is_static_left
    assert not member._replace(epoch=-1).is_static_left
    assert member._replace(assigned={(TOPIC, 0): 1}, revoking={(TOPIC, 1): 1}).holds() == {(TOPIC, 0), (TOPIC, 1)}
    assert (member.at_epoch(5).epoch, member.at_epoch(5).previous_epoch) == (5, 3)


def test_a_join_asks_for_what_the_newest_version_has() -> None:
    """JoinGroup 4 (KIP-394) and 9 (KIP-814); a refused one has generation -1."""
    join = ClassicJoinRequest("", None, "c", "/h", "consumer", (("range", b""),), 10_000, 20_000)
    assert (join.needs_known_id, join.may_skip_assignment) == (True, True)
    refused = JoinGroupResult(MemberIdRequiredError, "m")
    assert (refused.generation, refused.leader, refused.skip_assignment, refused.members) == (-1, "", False, ())


def member(
    member_id: str,
    *,
    instance: str | None = None,
    protocols: str = "ab",
    rebalance_ms: int = 20_000,
    kind: str = "consumer",
) -> ClassicMember:
    listed = tuple((name, name.encode()) for name in protocols)
    return ClassicMember(member_id, instance, "c", "/h", kind, listed, 10_000, rebalance_ms, b"mine")


def test_a_member_waits_with_a_request_unless_it_is_new() -> None:
    one = member("m")
    assert not one.is_new
    assert not one.has_waiting_request
    one.awaiting_join_callback = "j"
    assert one.has_waiting_request
    one.awaiting_join_callback, one.awaiting_sync_callback = None, "s"
    assert one.has_waiting_request
    one.is_new = True
    assert not one.has_waiting_request


def test_a_successor_has_all_but_the_id() -> None:
    one, two = member("m", instance="i"), member("m", instance="i").with_id("n")
    assert two.member_id == "n"
    for name in ("instance_id", "protocols", "session_timeout_ms", "rebalance_timeout_ms", "assignment"):
        assert getattr(one, name) == getattr(two, name)


def roster_of(*members: ClassicMember) -> ClassicRoster:
    roster = ClassicRoster()
    for one in members:
        roster.add_member(one)
    return roster


def test_a_rebalance_takes_as_long_as_the_slowest_member_may() -> None:
    assert ClassicRoster().rebalance_timeout_s == 0.0
    assert roster_of(member("a", rebalance_ms=3000), member("b", rebalance_ms=5000)).rebalance_timeout_s == 5.0


def test_the_first_member_leads_and_decides_on_the_type() -> None:
    roster = roster_of(member("a"), member("b", kind="other"))
    assert (roster.leader, roster.protocol_type) == ("a", "consumer")
    assert roster.remove_member("b").member_id == "b"
    assert roster.leader == "a"
    roster.add_member(member("b"))
    roster.remove_member("a")
    assert roster.leader == "b"
    roster.remove_member("b")
    assert roster.leader is None


def test_a_static_member_is_known_by_its_instance_until_it_is_gone() -> None:
    roster = roster_of(member("a", instance="i"), member("b"))
    assert roster.static == {"i": "a"}
    assert roster.member("a", "i").member_id == "a"
    assert roster.member("b", None).member_id == "b"
    with pytest.raises(FencedInstanceIdError):
        roster.member("b", "i")
    for member_id, instance_id in (("a", "j"), ("c", None)):
        with pytest.raises(UnknownMemberIdError):
            roster.member(member_id, instance_id)
    roster.remove_member("b")
    assert roster.static == {"i": "a"}
    roster.remove_member("a")
    assert roster.static == {}


def test_the_protocol_of_most_votes_is_one_that_all_have() -> None:
    roster = roster_of(member("a", protocols="cab"), member("b", protocols="ba"), member("c", protocols="ba"))
    assert roster.vote() == "b"
    assert roster.shares_protocol("consumer", (("x", b""), ("a", b"")))
    assert not roster.shares_protocol("consumer", (("c", b""),))
    assert not roster.shares_protocol("other", (("a", b""),))


@pytest.mark.parametrize(
    ("kind", "data", "topics", "subscribed"),
    [
        ("consumer", write_subscription(["t"]), frozenset({"t"}), (True, False)),
        ("consumer", b"x", None, (True, True)),
        ("other", write_subscription(["t"]), None, (False, False)),
    ],
)
def test_what_cannot_be_read_may_be_any_topic_of_consumers(
    kind: str, data: bytes, topics: frozenset[str] | None, subscribed: tuple[bool, bool]
) -> None:
    roster = roster_of(ClassicMember("a", None, "c", "/h", kind, (("range", data),), 10_000, 10_000))
    roster.select_protocol()
    assert (roster.protocol_name, roster.subscribed) == ("range", topics)
    assert (roster.is_subscribed_to("t"), roster.is_subscribed_to("u")) == subscribed
    assert roster.members_for_leader() == (("a", None, data),)
