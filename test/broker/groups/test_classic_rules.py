"""A classic group's time-outs, repeated requests and edges, as in ClassicGroup and GroupMetadataManager of 4.3.0."""

from __future__ import annotations

import pytest

from kafka.broker.groups.classic_group import (
    ClassicGroup,
    ClassicLimits,
    ClassicState,
    ClassicSyncRequest,
    JoinGroupResult,
    SyncGroupResult,
)
from kafka.broker.groups.timers import GroupTimeout
from kafka.errors import (
    BrokerResponseError,
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    NotCoordinatorError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from test.broker.groups.test_classic_group import RANGE, Hand, error_of

PREPARING, COMPLETING, STABLE = (
    ClassicState.PREPARING_REBALANCE, ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE,
)  # fmt: skip


def due(hand: Hand) -> dict[tuple[str, str], float]:
    """Kind and member -> when, of all that is set."""
    timers = hand.timers.of("g")
    members = ["", *hand.group.members, *hand.group.pending, *(f"{stem}{at}" for stem in "ci" for at in range(9))]
    found = {(kind.value, member): timers.when(kind, member) for kind in GroupTimeout for member in members}
    return {key: when for key, when in found.items() if when is not None}


def test_the_defaults_are_kafkas() -> None:
    """GroupCoordinatorConfig: group.max.size, group.initial.rebalance.delay.ms."""
    assert tuple(ClassicLimits()) == (2_147_483_647, 3000)
    group = Hand().group
    assert (group.generation, group.changed_at_ms, group.state) == (0, -1, ClassicState.EMPTY)


def test_an_id_that_was_given_out_has_a_session_until_it_is_used_or_left() -> None:
    hand = Hand()
    hand.join("a", known=True, session_ms=6000)
    assert due(hand) == {("session", "c1"): 106.0}
    hand.group.leave("c1", None)
    assert (due(hand), hand.group.pending) == ({}, set())


def test_the_time_outs_of_a_first_generation() -> None:
    hand = Hand(initial_delay_ms=3000)
    hand.join("a", rebalance_ms=5000)
    new_member = {("session", "c1"): 400.0}  # CLASSIC_GROUP_NEW_MEMBER_JOIN_TIMEOUT_MS: 5 minutes
    assert due(hand) == {("join", ""): 103.0, **new_member}
    assert hand.group.members["c1"].is_new
    hand.advance(3)
    assert hand.group.state is COMPLETING
    assert not hand.group.members["c1"].is_new
    assert due(hand) == {("sync", ""): 108.0, ("session", "c1"): 113.0}
    hand.advance(1)
    hand.sync("s", "c1", 1, c1=b"mine")
    assert due(hand) == {("session", "c1"): 114.0}
    hand.advance(1)
    hand.group.heartbeat("c1", None, 1, hand.now)
    assert due(hand) == {("session", "c1"): 115.0}
    hand.group.leave("c1", None)
    hand.group.members_left(hand.now)
    assert due(hand) == {}


def test_the_delay_of_a_first_rebalance_ends_with_the_longest_time_to_join() -> None:
    hand = Hand(initial_delay_ms=3000)
    hand.join("a", rebalance_ms=5000)
    hand.advance(2)
    hand.join("b", rebalance_ms=5000)
    hand.advance(1)
    assert due(hand)["join", ""] == 105.0
    hand.advance(1)
    hand.join("c", rebalance_ms=5000)
    hand.advance(1)
    assert (hand.group.state, hand.now) == (COMPLETING, 105.0)
    hand = Hand(initial_delay_ms=3000)
    hand.join("a", rebalance_ms=3000)
    hand.join("b", rebalance_ms=3000)
    hand.advance(3)
    assert hand.group.state is COMPLETING


def test_a_group_that_was_left_waits_once_for_those_who_come_next() -> None:
    hand = Hand(initial_delay_ms=3000)
    hand.join("a", rebalance_ms=5000)
    hand.advance(3)
    hand.group.leave("c1", None)
    hand.group.members_left(hand.now)
    assert hand.group.is_empty
    hand.join("b", rebalance_ms=5000)
    assert due(hand)["join", ""] == 106.0
    hand.advance(3)
    assert hand.group.state is COMPLETING


def test_only_a_first_rebalance_has_a_delay() -> None:
    hand = Hand(initial_delay_ms=3000)
    hand.join("a", rebalance_ms=5000, session_ms=100_000)
    hand.advance(3)
    hand.sync("s", "c1", 1, c1=b"")
    hand.join("b", rebalance_ms=5000)
    assert due(hand)["join", ""] == 108.0
    hand.advance(4.9)
    assert set(hand.group.members) == {"c1", "c2"}
    hand.advance(0.2)
    assert set(hand.group.members) == {"c2"}
    assert hand.group.state is COMPLETING


def test_the_time_to_sync_ends_with_the_last_one() -> None:
    hand = Hand()
    hand.stable("a", "b")
    assert ("sync", "") not in due(hand)
    leader = hand.group.leader or ""
    follower = next(one for one in hand.group.members if one != leader)
    hand.join("a", leader)
    hand.join("b", follower)
    hand.sync("s", leader, hand.group.generation)
    assert hand.group.state is STABLE
    assert due(hand)["sync", ""] == 120.0
    hand.sync("t", follower, hand.group.generation)
    assert ("sync", "") not in due(hand)
    generation = hand.group.generation
    hand.group.on_timeout(GroupTimeout.SYNC, "", hand.now)
    assert (hand.group.state, hand.group.generation) == (STABLE, generation)


def test_a_new_rebalance_ends_the_time_to_sync() -> None:
    hand = Hand()
    hand.stable("a", "b")
    leader = hand.group.leader or ""
    hand.join("a", leader)
    hand.join("b", next(one for one in hand.group.members if one != leader))
    assert ("sync", "") in due(hand)
    hand.join("c")
    assert hand.group.state is PREPARING
    assert ("sync", "") not in due(hand)


def test_a_member_that_joins_again_while_the_assignment_is_made_gets_the_same_response() -> None:
    hand = Hand()
    hand.stable("a", "b")
    leader = hand.group.leader or ""
    follower = next(one for one in hand.group.members if one != leader)
    hand.join("a", leader)
    hand.join("b", follower)
    assert hand.group.state is COMPLETING
    generation = hand.group.generation
    for member, members in ((leader, 2), (follower, 0)):
        again = hand.join("again", member)
        assert again is not None
        assert (again.generation, len(again.members), again.leader) == (generation, members, leader)
    hand.sync("s", follower, generation)
    hand.sync("t", leader, generation)
    again = hand.join("again", follower)
    assert again is not None
    assert (again.generation, again.members) == (generation, ())


def test_a_join_that_its_client_gave_up_is_answered_when_the_next_one_comes() -> None:
    hand = Hand()
    hand.stable("a")
    assert hand.join("b") is None
    assert hand.join("b", "c2") is None, "the same request is not answered by itself"
    assert hand.join("b2", "c2") is None
    assert hand.answers["b"] == JoinGroupResult(RebalanceInProgressError, "c2")


def test_a_new_member_that_waits_5_minutes_is_given_up() -> None:
    hand = Hand()
    hand.join("a", session_ms=1_000_000, rebalance_ms=1_000_000)
    hand.sync("s", "c1", 1, c1=b"")
    assert hand.join("b", rebalance_ms=1_000_000) is None
    hand.advance(299.9)
    assert set(hand.group.members) == {"c1", "c2"}
    hand.advance(0.2)
    assert set(hand.group.members) == {"c1"}
    assert hand.answers["b"] == JoinGroupResult(UnknownMemberIdError)


def test_a_member_that_waits_in_a_join_is_alive() -> None:
    hand = Hand()
    first, second = hand.stable("a", "b")
    assert hand.join("a", first) is None or hand.join("a", second) is None
    waiting = next(one.member_id for one in hand.group.members.values() if one.awaiting_join_callback is not None)
    other = second if waiting == first else first
    for _ in range(3):
        hand.advance(6)
        with pytest.raises(RebalanceInProgressError):
            hand.group.heartbeat(other, None, hand.group.generation, hand.now)
    assert set(hand.group.members) == {first, second}


def test_a_static_member_that_is_back_has_a_session_of_its_own() -> None:
    hand = Hand()
    hand.join("a", instance="i")
    hand.sync("s", "i1", 1, i1=b"mine")
    hand.now = 105.0
    hand.join("b", instance="i", session_ms=7000)
    assert due(hand) == {("session", "i2"): 115.0}
    hand.fails = True
    hand.now = 106.0
    assert error_of(hand.join("c", instance="i")) is NotCoordinatorError
    assert due(hand) == {("session", "i2"): 113.0}


def test_a_static_leader_that_is_back_sees_the_members_and_a_static_follower_does_not() -> None:
    hand = Hand()
    hand.join("a", instance="i")
    hand.sync("s", "i1", 1, i1=b"")
    hand.join("b", instance="j", protocols=RANGE)
    hand.join("a", "i1", "i")
    hand.sync("s", "j2", 2)
    hand.sync("t", "i1", 2)
    assert (hand.group.state, hand.group.leader) == (STABLE, "i1")
    follower, leader = hand.join("d", instance="j"), hand.join("e", instance="i")
    assert follower is not None
    assert leader is not None
    assert (follower.members, follower.skip_assignment) == ((), False)
    assert ({member for member, _, _ in leader.members}, leader.skip_assignment) == ({"i4", "j3"}, True)


def test_while_members_join_the_size_is_that_of_those_who_have() -> None:
    """ClassicGroup: numAwaitingJoinResponse is what counts in PREPARING_REBALANCE."""
    hand = Hand(max_size=2)
    hand.stable("a", "b")
    leader = hand.group.leader or ""
    other = next(one for one in hand.group.members if one != leader)
    assert hand.join("a", leader) is None
    assert hand.join("c") is None, "one of two has joined"
    assert error_of(hand.join("d")) is GroupMaxSizeReachedError
    assert hand.join("a", leader) is None
    assert error_of(hand.join("b", other)) is GroupMaxSizeReachedError
    assert other not in hand.group.members


def test_the_last_member_that_was_waited_for_leaves() -> None:
    hand = Hand()
    hand.stable("a", "b")
    leader = hand.group.leader or ""
    other = next(one for one in hand.group.members if one != leader)
    assert hand.join("a", leader) is None
    hand.group.leave(other, None)
    hand.group.members_left(hand.now)
    hand.take()
    assert error_of(hand.answers["a"]) is None
    assert list(hand.group.members) == [leader]


def test_static_members_that_do_not_join_are_waited_for_again() -> None:
    hand = Hand()
    hand.join("a", instance="i", session_ms=1_000_000)
    hand.sync("s", "i1", 1, i1=b"")
    hand.group.prepare_rebalance(hand.now)
    assert due(hand)["join", ""] == 120.0
    hand.advance(20)
    assert due(hand)["join", ""] == 140.0
    assert (hand.group.state, hand.group.generation) == (PREPARING, 1)


@pytest.mark.parametrize(("max_size", "state"), [(2, STABLE), (1, PREPARING)])
def test_a_group_read_back_that_is_too_large_rebalances(max_size: int, state: ClassicState) -> None:
    hand = Hand()
    hand.stable("a", "b")
    hand.limits = ClassicLimits(max_size, 0)
    hand.group.resume(hand.now)
    assert hand.group.state is state


@pytest.mark.parametrize(
    ("member", "instance", "generation", "kind", "protocol", "error"),
    [
        ("c1", None, 1, None, None, None),
        ("c1", None, 1, "consumer", "range", None),
        ("nobody", None, 1, None, None, UnknownMemberIdError),
        ("c1", "i", 1, None, None, UnknownMemberIdError),
        ("c1", None, 2, None, None, IllegalGenerationError),
        ("c1", None, 1, "other", "range", InconsistentGroupProtocolError),
        ("c1", None, 1, "consumer", "sticky", InconsistentGroupProtocolError),
    ],
)
def test_what_stands_against_a_sync(
    member: str,
    instance: str | None,
    generation: int,
    kind: str | None,
    protocol: str | None,
    error: type[BrokerResponseError] | None,
) -> None:
    hand = Hand()
    hand.stable("a")
    hand.group.sync(ClassicSyncRequest(member, instance, generation, kind, protocol, {}), "s", hand.now)
    ((_, answer),) = hand.group.take_completed_requests()
    assert error_of(answer) is error


def test_a_sync_with_an_empty_group_or_while_members_join_is_refused() -> None:
    hand = Hand()
    assert error_of(hand.sync("s", "c1", 0)) is UnknownMemberIdError
    hand.stable("a")
    hand.join("b")
    assert error_of(hand.sync("s", "c1", 1)) is RebalanceInProgressError


def test_commits_to_an_empty_group_need_no_member_and_no_generation() -> None:
    hand = Hand()
    hand.group.check_commit("anybody", None, -1, False, hand.now)
    with pytest.raises(UnknownMemberIdError):
        hand.group.check_commit("anybody", None, 0, False, hand.now)
    hand.stable("a")
    hand.group.check_commit("", None, -1, True, hand.now)
    with pytest.raises(UnknownMemberIdError):
        hand.group.check_commit("", None, 0, True, hand.now)


def test_offsets_of_an_empty_group_and_of_consumers_may_be_deleted() -> None:
    hand = Hand()
    hand.group.check_offset_delete()
    hand.stable("a")
    hand.group.check_offset_delete()


def test_a_group_that_ends_completes_waiting_requests_and_refuses_members() -> None:
    hand = Hand()
    (first,) = hand.stable("a")
    hand.join("b")
    hand.group.close()
    hand.take()
    assert hand.answers["b"] == JoinGroupResult(CoordinatorNotAvailableError, "c2")
    assert due(hand) == {}
    assert error_of(hand.join("c")) is CoordinatorNotAvailableError
    assert hand.sync("s", first, 1) == SyncGroupResult(CoordinatorNotAvailableError)
    with pytest.raises(CoordinatorNotAvailableError):
        hand.group.heartbeat(first, None, 1, hand.now)
    with pytest.raises(CoordinatorNotAvailableError):
        hand.group.check_commit(first, None, 1, False, hand.now)
    with pytest.raises(GroupIdNotFoundError):
        hand.group.check_offset_delete()
    assert isinstance(hand.group, ClassicGroup)
