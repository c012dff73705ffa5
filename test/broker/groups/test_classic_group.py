from __future__ import annotations

from collections.abc import Mapping

import pytest

from kafka.broker.groups.classic_group import (
    ClassicGroup,
    ClassicJoinRequest,
    ClassicLimits,
    ClassicState,
    ClassicSyncRequest,
    JoinGroupResult,
    SyncGroupResult,
)
from kafka.broker.groups.timers import GroupTimers
from kafka.errors import (
    BrokerResponseError,
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    KafkaStorageError,
    MemberIdRequiredError,
    NonEmptyGroupError,
    NotCoordinatorError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from test.broker.groups.requests import write_subscription

RANGE = (("range", write_subscription(["t"])),)


class Hand:
    """A group, a clock, and what it has said: callbacks are names."""

    def __init__(self, **limits: int) -> None:
        self.now = 100.0
        self.timers = GroupTimers()
        self.stored: list[dict[str, bytes]] = []
        self.fails = False
        self.count = 0
        self.answers: dict[str, JoinGroupResult | SyncGroupResult] = {}
        self.limits = ClassicLimits(**{"initial_delay_ms": 0, **limits})
        self.group = ClassicGroup("g", lambda: self.limits, self.timers.of("g"), self._store, self._new_id)

    def _store(self, group: ClassicGroup, assignments: Mapping[str, bytes]) -> None:
        if self.fails:
            raise KafkaStorageError("full")
        self.stored.append(dict(assignments))

    def _new_id(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def take(self) -> None:
        for callback, answer in self.group.take_completed_requests():
            self.answers[callback] = answer

    def join(
        self,
        callback: str,
        member: str = "",
        instance: str | None = None,
        *,
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        kind: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 20_000,
        known: bool = False,
        may_skip: bool = True,
    ) -> JoinGroupResult | None:
        self.answers.pop(callback, None)
        join = ClassicJoinRequest(
            member, instance, "c", "/h", kind, protocols, session_ms, rebalance_ms, known, may_skip
        )
        self.group.join(join, callback, self.now)
        self.take()
        answer = self.answers.get(callback)
        assert answer is None or isinstance(answer, JoinGroupResult)
        return answer

    def sync(self, callback: str, member: str, generation: int, **assignments: bytes) -> SyncGroupResult | None:
        self.answers.pop(callback, None)
        self.group.sync(ClassicSyncRequest(member, None, generation, None, None, assignments), callback, self.now)
        self.take()
        answer = self.answers.get(callback)
        assert answer is None or isinstance(answer, SyncGroupResult)
        return answer

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while (due := self.timers.next_deadline) is not None and due <= end:
            self.now = max(self.now, due)
            for _, kind, member in self.timers.pop_due(self.now):
                self.group.on_timeout(kind, member, self.now)
                self.take()
        self.now = end

    def stable(self, *members: str) -> list[str]:
        """A stable group of as many members; their ids."""
        for member in members:
            self.join(member)
        for _ in range(2):  # the first one's generation, then that of all
            for member in members:
                answer = self.answers.get(member)
                if isinstance(answer, JoinGroupResult) and answer.generation < self.group.generation + 1:
                    self.join(member, answer.member_id)
            if self.group.state.value == "CompletingRebalance" and len(self.group.members) == len(members):
                break
        ids = list(self.group.members)
        generation = self.group.generation
        leader = self.group.leader or ""
        for one in ids:
            if one != leader:
                self.sync(f"s-{one}", one, generation)
        self.sync(f"s-{leader}", leader, generation, **{one: one.encode() for one in ids})
        assert self.group.state is ClassicState.STABLE
        return ids


def error_of(answer: JoinGroupResult | SyncGroupResult | None) -> type[BrokerResponseError] | None:
    assert answer is not None
    return answer.error


def test_a_first_member_leads_a_generation_of_its_own() -> None:
    hand = Hand()
    answer = hand.join("a")
    assert answer == JoinGroupResult(None, "c1", 1, "consumer", "range", "c1", False, (("c1", None, RANGE[0][1]),))
    assert hand.group.state.value == "CompletingRebalance"
    assert hand.sync("s", "c1", 1, c1=b"mine") == SyncGroupResult(None, "consumer", "range", b"mine")
    assert hand.stored == [{"c1": b"mine"}]
    assert hand.group.state is ClassicState.STABLE
    assert hand.group.is_subscribed_to("t")


def test_a_member_without_an_id_is_given_one_to_come_back_with() -> None:
    hand = Hand()
    answer = hand.join("a", known=True)
    assert answer == JoinGroupResult(MemberIdRequiredError, "c1")
    assert hand.group.is_empty
    assert hand.group.pending == {"c1"}
    joined = hand.join("a", "c1")
    assert joined is not None
    assert joined.generation == 1


def test_an_id_that_nobody_comes_back_with_is_forgotten_with_its_session() -> None:
    hand = Hand()
    hand.join("a", known=True, session_ms=6000)
    hand.advance(5.9)
    assert hand.group.pending
    hand.advance(0.2)
    assert not hand.group.pending
    assert error_of(hand.join("b", "c1")) is UnknownMemberIdError


def test_a_new_member_waits_until_the_others_have_joined_again() -> None:
    hand = Hand()
    (first,) = hand.stable("a")
    assert hand.join("b") is None
    assert hand.group.state is ClassicState.PREPARING_REBALANCE
    with pytest.raises(RebalanceInProgressError):
        hand.group.heartbeat(first, None, 1, hand.now)
    assert hand.join("a", first) == hand.answers["a"]
    answers = hand.answers["a"], hand.answers["b"]
    assert [one.generation for one in answers if isinstance(one, JoinGroupResult)] == [2, 2]
    assert [len(one.members) for one in answers if isinstance(one, JoinGroupResult)] == [2, 0]


def test_who_does_not_join_in_time_is_out() -> None:
    """The time is the longest that any member asks for, here the first one's 20 s."""
    hand = Hand()
    (first,) = hand.stable("a")
    hand.join("b", rebalance_ms=1000)
    for _ in range(3):
        hand.advance(6)
        if first in hand.group.members:
            with pytest.raises(RebalanceInProgressError):
                hand.group.heartbeat(first, None, 1, hand.now)
    hand.advance(2.1)
    assert first not in hand.group.members
    answer = hand.answers["b"]
    assert isinstance(answer, JoinGroupResult)
    assert (answer.generation, answer.leader) == (2, answer.member_id)


def test_who_does_not_sync_in_time_is_out() -> None:
    hand = Hand()
    hand.join("a", session_ms=100_000, rebalance_ms=1000)
    hand.advance(1.1)
    assert hand.group.is_empty
    assert hand.group.generation == 2


def test_a_session_that_ends_starts_a_rebalance() -> None:
    hand = Hand()
    first, second = hand.stable("a", "b")
    hand.advance(9.9)
    hand.group.heartbeat(first, None, hand.group.generation, hand.now)
    hand.advance(0.2)
    assert list(hand.group.members) == [first]
    assert hand.group.state is ClassicState.PREPARING_REBALANCE
    with pytest.raises(UnknownMemberIdError):
        hand.group.heartbeat(second, None, hand.group.generation, hand.now)


def test_the_first_rebalance_of_a_group_waits_for_more_members() -> None:
    hand = Hand(initial_delay_ms=3000)
    assert hand.join("a", rebalance_ms=5000) is None
    hand.advance(2)
    assert hand.join("b", rebalance_ms=5000) is None
    hand.advance(1.5)
    assert not hand.answers, "somebody came during the delay, so there is more: 2 s are left of the 5"
    hand.advance(1.6)
    assert [one.generation for one in hand.answers.values() if isinstance(one, JoinGroupResult)] == [1, 1]


def test_the_protocol_is_the_one_of_all_that_most_like_best() -> None:
    hand = Hand()
    hand.join("a", protocols=(("b", b"1"), ("a", b"2"), ("z", b"")))
    hand.join("b", protocols=(("a", b"3"), ("b", b"4")))
    hand.join("c", protocols=(("a", b"5"), ("b", b"6")))
    answer = hand.join("a", "c1", protocols=(("b", b"1"), ("a", b"2"), ("z", b"")))
    assert answer is not None
    assert answer.protocol_name == "a"
    assert {data for _, _, data in answer.members} == {b"2", b"3", b"5"}


def test_members_without_a_common_protocol_or_of_another_type_are_refused() -> None:
    hand = Hand()
    hand.stable("a")
    assert error_of(hand.join("b", protocols=(("other", b""),))) is InconsistentGroupProtocolError
    assert error_of(hand.join("b", kind="connect")) is InconsistentGroupProtocolError
    assert error_of(Hand().join("b", protocols=())) is InconsistentGroupProtocolError
    assert error_of(Hand().join("b", kind="")) is InconsistentGroupProtocolError


def test_a_full_group_takes_nobody() -> None:
    hand = Hand(max_size=1)
    hand.stable("a")
    assert error_of(hand.join("b")) is GroupMaxSizeReachedError
    assert len(hand.group.members) == 1


def test_a_follower_that_asks_again_changes_nothing_and_a_leader_that_does_starts_over() -> None:
    hand = Hand()
    ids = hand.stable("a", "b")
    leader = hand.group.leader or ""
    follower = next(one for one in ids if one != leader)
    again = hand.join("b", follower)
    assert again is not None
    assert (again.generation, hand.group.state) == (hand.group.generation, ClassicState.STABLE)
    assert hand.join("a", leader) is None
    assert hand.group.state is ClassicState.PREPARING_REBALANCE


def test_a_member_that_waits_in_a_sync_is_notified_of_a_new_rebalance() -> None:
    hand = Hand()
    hand.stable("a", "b")
    leader = hand.group.leader or ""
    follower = next(one for one in hand.group.members if one != leader)
    hand.join("a", leader)
    hand.join("b", follower)
    generation = hand.group.generation
    assert hand.sync("s", follower, generation) is None
    hand.join("c")
    assert error_of(hand.answers["s"]) is RebalanceInProgressError


def test_a_static_member_that_is_back_takes_its_place_and_fences_the_old_one() -> None:
    hand = Hand()
    first = hand.join("a", instance="i")
    assert first is not None
    hand.sync("s", first.member_id, 1, **{first.member_id: b"mine"})
    back = hand.join("b", instance="i")
    assert back is not None
    assert (back.member_id, back.generation, back.skip_assignment) == ("i2", 1, True)
    assert hand.group.state is ClassicState.STABLE
    assert hand.sync("s", "i2", 1) == SyncGroupResult(None, "consumer", "range", b"mine")
    with pytest.raises(FencedInstanceIdError):
        hand.group.heartbeat(first.member_id, "i", 1, hand.now)
    assert hand.stored[-1] == {"i2": b"mine"}


def test_a_static_leader_of_an_older_client_gets_its_old_id_so_that_it_assigns_nothing() -> None:
    hand = Hand()
    hand.join("a", instance="i")
    hand.sync("s", "i1", 1, i1=b"mine")
    back = hand.join("b", instance="i", may_skip=False)
    assert back is not None
    assert (back.leader, back.member_id, back.skip_assignment, back.members) == ("i1", "i2", False, ())


def test_a_static_member_keeps_its_place_over_a_rebalance_that_it_misses() -> None:
    hand = Hand()
    hand.join("a", instance="i", session_ms=100_000, rebalance_ms=1000)
    hand.sync("s", "i1", 1, i1=b"")
    hand.join("b", rebalance_ms=1000)
    hand.advance(1.1)
    answer = hand.answers["b"]
    assert isinstance(answer, JoinGroupResult)
    assert {member for member, _, _ in answer.members} == {"i1", "c2"}


def test_leaving_by_instance_id_needs_no_member_id() -> None:
    hand = Hand()
    hand.join("a", instance="i")
    with pytest.raises(UnknownMemberIdError):
        hand.group.leave("", "other")
    with pytest.raises(FencedInstanceIdError):
        hand.group.leave("other", "i")
    hand.group.leave("", "i")
    hand.group.members_left(hand.now)
    assert hand.group.is_empty


def test_an_assignment_that_cannot_be_stored_was_not_made() -> None:
    hand = Hand()
    hand.join("a")
    hand.fails = True
    assert error_of(hand.sync("s", "c1", 1, c1=b"mine")) is NotCoordinatorError
    assert hand.group.state is ClassicState.PREPARING_REBALANCE
    assert hand.group.members["c1"].assignment == b""
    hand.fails = False
    assert hand.join("a", "c1") is not None


def test_a_static_return_that_cannot_be_stored_did_not_happen() -> None:
    hand = Hand()
    hand.join("a", instance="i")
    hand.sync("s", "i1", 1, i1=b"mine")
    hand.fails = True
    assert error_of(hand.join("b", instance="i")) is NotCoordinatorError
    hand.group.heartbeat("i1", "i", 1, hand.now)


def test_generations_guard_commits() -> None:
    hand = Hand()
    (member,) = hand.stable("a")
    check = hand.group.check_commit
    check(member, None, 1, False, hand.now)
    for generation, who, error in (
        (0, member, IllegalGenerationError),
        (2, member, IllegalGenerationError),
        (-1, member, IllegalGenerationError),
        (1, "other", UnknownMemberIdError),
        (-1, "", UnknownMemberIdError),
    ):
        with pytest.raises(error):
            check(who, None, generation, False, hand.now)
    check("", None, -1, True, hand.now)  # a transaction of a client that knows no generations
    hand.join("a", member)
    with pytest.raises(RebalanceInProgressError):
        check(member, None, 2, False, hand.now)
    hand.group.leave(member, None)
    hand.group.members_left(hand.now)
    check("", None, -1, False, hand.now)


def test_a_commit_counts_as_a_heartbeat() -> None:
    hand = Hand()
    (member,) = hand.stable("a")
    for _ in range(5):
        hand.advance(8)
        hand.group.check_commit(member, None, 1, False, hand.now)
    assert member in hand.group.members


def test_offsets_of_a_group_that_is_not_of_consumers_cannot_be_deleted_while_it_has_members() -> None:
    hand = Hand()
    hand.join("a", kind="connect")
    with pytest.raises(NonEmptyGroupError):
        hand.group.check_offset_delete()
