from __future__ import annotations

import pytest

from kafka.broker.groups.classic_group import Protocols
from kafka.broker.groups.consumer_group import (
    ClassicMemberMetadata,
    ConsumerGroup,
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    ConsumerMemberState,
)
from kafka.broker.groups.timers import GroupTimeout
from kafka.broker.topics import TopicInfo
from kafka.errors import (
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InvalidRegularExpressionError,
    StaleMemberEpochError,
    UnknownError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedVersionError,
)
from test.broker.groups.hand import HandGroup
from test.support.optional import needs_re2


def test_the_first_heartbeat_of_a_group_assigns_everything_at_epoch_2() -> None:
    hand = HandGroup()
    answer = hand.join("a")
    assert (answer.epoch, answer.heartbeat_interval_ms) == (2, 5000)
    assert hand.numbers("a") == [0, 1, 2, 3]
    assert hand.group.state == "Stable"


def test_a_group_that_wants_nothing_stays_at_epoch_1() -> None:
    hand = HandGroup()
    assert hand.join("a", topics=frozenset()).epoch == 1
    assert hand.group.state == "Stable"


def test_a_second_member_gets_nothing_before_the_first_has_let_go() -> None:
    hand = HandGroup()
    hand.join("a")
    hand.advance(1.1)
    assert hand.join("b").assignment == frozenset()
    assert hand.group.state == "Reconciling"
    response = hand.beat("a")
    assert (response.epoch, hand.numbers("a")) == (2, [0, 1])
    for _ in range(3):
        assert hand.beat("b").assignment is None
    assert hand.obey("a").epoch == 3
    assert hand.obey("b").assignment is not None
    assert hand.numbers("b") == [2, 3]
    assert hand.group.state == "Stable"


def test_a_new_target_waits_for_the_assignment_interval() -> None:
    hand = HandGroup(assignment_interval_ms=5000)
    hand.join("a")
    assert hand.join("b").epoch == 2
    assert hand.group.state == "Assigning"
    hand.advance(4.9)
    assert hand.beat("b").epoch == 2
    hand.advance(0.2)
    assert hand.group.state == "Assigning", "time alone does nothing"
    assert hand.beat("b").epoch == 3


def test_who_does_not_let_go_in_time_is_out() -> None:
    hand = HandGroup()
    hand.join("a", rebalance_timeout_ms=3000)
    hand.advance(1.1)
    hand.join("b")
    hand.beat("a")
    assert hand.advance(2.9) == []
    assert hand.advance(0.2) == ["a"]
    assert hand.beat("b").epoch == 4
    assert hand.numbers("b") == [0, 1, 2, 3]


def test_a_session_that_ends_takes_the_member_out() -> None:
    hand = HandGroup(session_timeout_ms=45_000)
    hand.join("a")
    hand.advance(44)
    hand.beat("a")
    assert hand.advance(44.9) == []
    assert hand.advance(0.2) == ["a"]
    assert hand.group.state == "Empty"


def test_wrong_epochs_are_fenced_and_a_lost_answer_is_forgiven() -> None:
    hand = HandGroup()
    hand.join("a")
    hand.advance(1.1)
    hand.join("b")
    hand.beat("a")
    hand.obey("a")
    kept = hand.all_of["a"]
    assert hand.beat("a", 2, owned=kept).epoch == 3
    for epoch, owned in ((2, None), (2, kept | {(hand.topic_id, 3)}), (1, kept), (4, kept)):
        with pytest.raises(FencedMemberEpochError):
            hand.beat("a", epoch, owned=owned)
    with pytest.raises(UnknownMemberIdError):
        hand.beat("nobody", 3)


def test_a_member_that_joins_again_keeps_what_it_has() -> None:
    hand = HandGroup()
    hand.join("a")
    epoch = hand.group.epoch
    answer = hand.join("a")
    assert (answer.epoch, hand.group.epoch) == (2, epoch)
    assert len(answer.assignment or ()) == 4


def test_only_news_and_full_requests_are_answered_with_an_assignment() -> None:
    hand = HandGroup()
    hand.join("a")
    assert hand.beat("a").assignment is None
    assert hand.beat("a", topics=frozenset({"t"})).assignment is None
    full = hand.beat("a", topics=frozenset({"t"}), rebalance_timeout_ms=1000, owned=hand.all_of["a"])
    assert full.assignment == hand.all_of["a"]


def test_leaving_makes_a_new_epoch_and_the_next_heartbeat_shares_out_what_was_left() -> None:
    hand = HandGroup()
    hand.join("a")
    hand.join("b")
    hand.settle("a", "b")
    hand.group.remove([hand.group.find_leaving_member("b", None).member_id])
    assert hand.group.state == "Assigning"
    hand.advance(1.1)
    assert hand.beat("a").epoch == hand.group.epoch
    assert hand.numbers("a") == [0, 1, 2, 3]


def test_a_topic_that_grows_is_seen_by_the_next_heartbeat() -> None:
    hand = HandGroup(2)
    hand.join("a")
    hand.topics.all["t"] = TopicInfo(hand.topic_id, 3)
    hand.group.topics_changed({"t"})
    assert hand.group.epoch == 2
    hand.advance(1.1)
    assert hand.beat("a").epoch == 3
    assert hand.numbers("a") == [0, 1, 2]


def test_topics_that_nobody_wants_change_nothing() -> None:
    hand = HandGroup()
    hand.join("a")
    hand.topics.make("other")
    hand.group.topics_changed({"other"})
    hand.advance(1.1)
    assert hand.beat("a").epoch == 2


def test_a_static_member_that_is_away_keeps_its_partitions_for_its_return() -> None:
    hand = HandGroup()
    hand.join("a", instance_id="i")
    with pytest.raises(UnreleasedInstanceIdError):
        hand.join("b", instance_id="i")
    hand.group.static_leave(hand.group.find_leaving_member("a", "i"))
    assert hand.group.members["a"].epoch == -2
    with pytest.raises(FencedMemberEpochError):
        hand.beat("a", 2)
    back = hand.join("b", instance_id="i")
    assert (back.epoch, hand.numbers("b"), hand.group.epoch) == (2, [0, 1, 2, 3], 2)
    with pytest.raises(FencedInstanceIdError):
        hand.beat("a", 2, instance_id="i")
    with pytest.raises(UnknownMemberIdError):
        hand.beat("a", 2)
    with pytest.raises(UnknownMemberIdError):
        hand.beat("b", 2, instance_id="other")


def test_a_static_member_that_stays_away_loses_its_place_with_its_session() -> None:
    hand = HandGroup(session_timeout_ms=10_000)
    hand.join("a", instance_id="i")
    hand.group.static_leave(hand.group.find_leaving_member("a", "i"))
    assert hand.advance(10.1) == ["a"]


@needs_re2
def test_a_regular_expression_is_resolved_for_the_second_heartbeat() -> None:
    hand = HandGroup()
    hand.topics.make("tt", 2)
    hand.topics.make("other")
    assert hand.join("a", regex="t+").epoch == 1
    assert hand.group.state == "Assigning"
    assert hand.beat("a").epoch == 2
    assert hand.group.subscribed_topics() == {"t", "tt"}


@needs_re2
def test_regular_expressions_are_resolved_every_10_s_at_most() -> None:
    hand = HandGroup()
    hand.join("a", regex="t+")
    hand.beat("a")
    hand.topics.make("tt")
    hand.group.topics_changed({"tt"})
    hand.advance(9.9)
    hand.beat("a")
    assert hand.group.subscribed_topics() == {"t"}
    hand.advance(0.2)
    hand.beat("a")
    assert hand.group.subscribed_topics() == {"t", "tt"}


@needs_re2
def test_what_one_is_no_longer_subscribed_to_is_taken_before_there_is_a_new_target() -> None:
    hand = HandGroup()
    hand.join("a", regex="t+")
    hand.beat("a")
    answer = hand.beat("a", regex="u+")
    assert answer.assignment == frozenset()
    assert hand.group.members["a"].state is ConsumerMemberState.UNREVOKED_PARTITIONS
    assert hand.group.is_held((hand.topic_id, 0))


def test_a_malformed_expression_leaves_the_group_alone() -> None:
    hand = HandGroup()
    with pytest.raises(InvalidRegularExpressionError):
        hand.join("a", regex="(")
    assert hand.group.is_empty


def test_most_votes_choose_the_assignor() -> None:
    hand = HandGroup()
    assert hand.group.assignor == "uniform"
    hand.join("a", assignor="range")
    assert hand.group.assignor == "range"
    hand.join("b", assignor="uniform")
    assert hand.group.assignor == "uniform"
    hand.join("c", assignor="range")
    assert hand.group.assignor == "range"


def test_a_full_group_takes_nobody_but_its_own() -> None:
    hand = HandGroup(max_size=1)
    hand.join("a")
    with pytest.raises(GroupMaxSizeReachedError):
        hand.join("b")
    hand.join("a")


def test_a_commit_is_good_for_what_the_member_has_had_since_its_epoch() -> None:
    hand = HandGroup()
    hand.join("a")
    hand.advance(1.1)
    hand.join("b")
    hand.beat("a")
    hand.obey("a")
    hand.obey("b")
    t = hand.topic_id
    check = hand.group.check_commit
    check("a", 3, 9, False, [(t, 0), (t, 3)])
    check("a", 2, 9, False, [(t, 0), (t, 1)])
    for member, epoch, partitions in (
        ("a", 2, [(t, 0), (t, 3)]),
        ("a", 1, [(t, 0)]),
        ("a", 4, [(t, 0)]),
        ("b", 2, [(t, 2)]),
        ("a", 2, []),
    ):
        with pytest.raises(StaleMemberEpochError):
            check(member, epoch, 9, False, partitions)
    with pytest.raises(UnknownMemberIdError):
        check("", -1, 9, False, [(t, 0)])
    with pytest.raises(UnsupportedVersionError):
        check("a", 3, 8, False, [(t, 0)])
    check("a", 3, 3, True, [])


def test_reading_offsets_needs_the_members_epoch_or_nothing() -> None:
    hand = HandGroup()
    hand.join("a")
    hand.group.check_fetch(None, -1)
    hand.group.check_fetch("a", 2)
    with pytest.raises(StaleMemberEpochError):
        hand.group.check_fetch("a", 1)
    with pytest.raises(UnknownMemberIdError):
        hand.group.check_fetch("", -1)
    with pytest.raises(UnknownError):
        hand.group.check_fetch(None, 2)


def test_a_group_read_back_goes_on_where_it_was() -> None:
    hand = HandGroup()
    hand.join("a")
    again = ConsumerGroup("g", lambda: hand.settings, hand.timers.of("g"), hand.topics, lambda: 0, hand.group.durable)
    hand.timers.of("g").cancel_all()
    again.resume(hand.now)
    hand.group = again
    assert hand.beat("a").epoch == 2
    assert hand.advance(46) == ["a"]


@pytest.mark.parametrize(
    ("heartbeat", "is_full"),
    [
        (ConsumerHeartbeat("m", 0), True),
        (ConsumerHeartbeat("m", 1), False),
        (ConsumerHeartbeat("m", 1, rebalance_timeout_ms=1, topics=frozenset(), owned=frozenset()), True),
        (ConsumerHeartbeat("m", 1, rebalance_timeout_ms=1, regex="", owned=frozenset()), True),
        (ConsumerHeartbeat("m", 1, topics=frozenset(), owned=frozenset()), False),
        (ConsumerHeartbeat("m", 1, rebalance_timeout_ms=1, owned=frozenset()), False),
        (ConsumerHeartbeat("m", 1, rebalance_timeout_ms=1, topics=frozenset()), False),
    ],
)
def test_a_full_heartbeat_says_everything(heartbeat: ConsumerHeartbeat, is_full: bool) -> None:
    """GroupMetadataManager.consumerGroupHeartbeat: isFullRequest."""
    assert heartbeat.is_full is is_full


def test_an_answer_without_an_interval_says_0() -> None:
    """ConsumerGroupHeartbeatResponse: that to a leave has the default."""
    assert ConsumerHeartbeatResult("m", -1) == ("m", -1, 0, None)


def test_a_heartbeat_sets_the_session_and_ends_what_a_classic_member_had_to_do() -> None:
    hand = HandGroup(session_timeout_ms=45_000)
    hand.join("a")
    timers = hand.timers.of("g")
    timers.set(GroupTimeout.MEMBER_JOIN, "a", 103.0)
    timers.set(GroupTimeout.MEMBER_SYNC, "a", 104.0)
    hand.now = 102.0
    hand.beat("a")
    assert {kind: timers.when(kind, "a") for kind in GroupTimeout if timers.when(kind, "a")} == {
        GroupTimeout.SESSION: 147.0
    }


def test_a_revocation_has_its_time_and_no_longer() -> None:
    hand = HandGroup()
    hand.join("a", rebalance_timeout_ms=3000)
    hand.advance(2)
    hand.join("b")
    hand.beat("a")
    timers = hand.timers.of("g")
    assert timers.when(GroupTimeout.REVOKE, "a") == 105.0
    hand.advance(1)
    hand.beat("a")
    assert timers.when(GroupTimeout.REVOKE, "a") == 105.0
    hand.obey("a")
    assert timers.when(GroupTimeout.REVOKE, "a") is None


def test_what_a_heartbeat_does_not_say_stays() -> None:
    hand = HandGroup()
    hand.join("a", rack_id="r", assignor="range", rebalance_timeout_ms=1234)
    hand.beat("a", client_id="c", client_host="/h")
    member = hand.group.members["a"]
    assert (member.rack_id, member.assignor, member.rebalance_timeout_ms) == ("r", "range", 1234)
    assert (member.client_id, member.client_host, member.topics) == ("c", "/h", frozenset({"t"}))
    hand.beat("a", rack_id="s", assignor="uniform", rebalance_timeout_ms=1)
    member = hand.group.members["a"]
    assert (member.rack_id, member.assignor, member.rebalance_timeout_ms) == ("s", "uniform", 1)


def test_the_target_is_that_of_the_members_there_are() -> None:
    hand = HandGroup()
    hand.join("a", instance_id="i")
    hand.join("b")
    hand.settle("a", "b")
    hand.group.static_leave(hand.group.find_leaving_member("a", "i"))
    hand.join("c", instance_id="i")
    assert set(hand.group.durable.target) == set(hand.group.members) == {"b", "c"}
    hand.group.remove(["b"])
    assert set(hand.group.durable.target) == set(hand.group.members) == {"c"}


@pytest.mark.parametrize("is_classic", [False, True])
def test_after_a_restart_everybody_has_a_time_out(is_classic: bool) -> None:
    """A member of the classic protocol lets go by joining again, which has its own time-out."""
    hand = HandGroup()
    hand.join("a", rebalance_timeout_ms=3000)
    hand.advance(1.1)
    hand.join("b", rebalance_timeout_ms=7000)
    hand.beat("a")
    protocols: Protocols = (("range", b""),)
    durable = hand.group.durable
    if is_classic:
        one = durable.members["a"]._replace(classic=ClassicMemberMetadata(6000, protocols))
        durable = durable._replace(members={**durable.members, "a": one})
    timers = hand.timers.of("h")
    ConsumerGroup("h", lambda: hand.settings, timers, hand.topics, lambda: 0, durable).resume(200.0)
    found = {who: {kind: timers.when(kind, who) for kind in GroupTimeout if timers.when(kind, who)} for who in "ab"}
    waiting = {GroupTimeout.SESSION: 206.0} if is_classic else {GroupTimeout.SESSION: 245.0, GroupTimeout.REVOKE: 203.0}
    assert found == {"a": waiting, "b": {GroupTimeout.SESSION: 245.0}}


def test_anybody_commits_to_an_empty_group_without_an_epoch() -> None:
    group = HandGroup().group
    group.check_commit("anybody", -1, 9, False, [])
    with pytest.raises(UnknownMemberIdError):
        group.check_commit("anybody", 0, 9, False, [])


def test_a_member_of_the_classic_protocol_commits_and_reads_in_its_generation() -> None:
    hand = HandGroup()
    hand.join("a")
    protocols: Protocols = (("range", b""),)
    member = hand.group.members["a"]._replace(classic=ClassicMemberMetadata(6000, protocols))
    hand.group.durable = hand.group.durable._replace(members={"a": member})
    hand.group.check_commit("a", 2, 3, False, [])
    hand.group.check_fetch("a", 2)
    for epoch in (1, 3):
        with pytest.raises(IllegalGenerationError):
            hand.group.check_commit("a", epoch, 3, False, [])
        with pytest.raises(IllegalGenerationError):
            hand.group.check_fetch("a", epoch)


def test_an_epoch_without_a_member_is_an_error_from_0_on() -> None:
    with pytest.raises(UnknownError):
        HandGroup().group.check_fetch(None, 0)
