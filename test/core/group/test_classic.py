"""A member of a classic group, step by step: what it asks, what it makes of answers, what it tells its user."""

from __future__ import annotations

from math import inf

import pytest

from kafka.core.group.assignors.base import RebalanceProtocol
from kafka.core.group.assignors.strategy import make_assignors
from kafka.core.group.classic import ClassicErrorAction, JoinAttempts, MemberSession, common_protocol
from kafka.core.group.machine import (
    NO_GENERATION,
    Assign,
    ForgetCoordinator,
    GroupSubscription,
    Left,
    Lose,
    NeedMetadata,
    ReportError,
    Revoke,
    SendToCoordinator,
    TopicSnapshot,
)
from kafka.core.group.protocol import MemberSubscription, read_assignment, read_subscription
from kafka.core.retry import Backoff
from kafka.errors import (
    IllegalArgumentError,
    IllegalGenerationError,
    IllegalStateError,
    KafkaConnectionError,
)
from kafka.protocol.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from test.core.group.classic_bench import (
    BEAT_S,
    MAX_POLL_S,
    REQUEST_S,
    SESSION_S,
    Bench,
    Seen,
    beat,
    gone,
    join_error,
    joined,
    parts,
    synced,
)

EAGER = ("range",)
COOPERATIVE = ("cooperative-sticky",)


def cooperative(*numbers: int) -> Bench:
    return Bench(COOPERATIVE).join(*numbers, protocol="cooperative-sticky")


# -- joining ----------------------------------------------------------------------------------------------------------


def test_nothing_is_asked_before_there_is_something_to_read() -> None:
    bench = Bench()
    assert not bench.poll()
    assert bench.asked is None
    assert bench.member.next_deadline == inf
    # OffsetCommitRequest.DEFAULT_GENERATION_ID: with it, and without a member id, a commit is of no member.
    assert (bench.member.member_id, bench.member.generation, bench.member.state_name) == ("", -1, "unjoined")
    bench.subscribe("jobs")
    assert (bench.request.reason, bench.member.state_name) == (None, "rebalancing")


def test_a_first_join_takes_the_id_that_it_is_given_and_joins_again_at_once() -> None:
    bench = Bench()
    bench.subscribe("jobs")
    bench.answer(join_error(79, "me-1"))
    assert isinstance(bench.request, JoinGroupRequest)
    assert bench.request.member_id == "me-1"
    assert bench.request.reason == "need to re-join with the given member-id: me-1"
    assert bench.member.generation == NO_GENERATION


def test_a_follower_syncs_with_nothing_and_owns_its_assignment() -> None:
    bench = Bench()
    bench.subscribe("jobs")
    bench.answer(joined(7))
    request = bench.request
    assert isinstance(request, SyncGroupRequest)
    assert (request.generation_id, request.member_id, request.assignments) == (7, "me", [])
    assert (request.protocol_type, request.protocol_name) == ("consumer", "range")
    assert bench.member.state_name == "rebalancing"
    assert bench.answer(synced(0, 2)) == [Assign(parts(0, 2), parts(0, 2))]
    assert bench.member.owned == parts(0, 2)
    assert (bench.member.generation, bench.member.member_id) == (7, "me")
    assert not bench.carry_out()


def test_an_assignment_of_nothing_is_reported_too() -> None:
    bench = Bench()
    bench.subscribe("jobs")
    bench.answer(joined())
    assert bench.answer(SyncGroupResponse(error_code=0, assignment=b"")) == [Assign(frozenset(), frozenset())]


def test_metadata_of_the_current_topics_is_taken() -> None:
    bench = Bench()
    bench.subscribe("jobs", "logs")
    bench.answer(joined())
    bench.subscribe("jobs")
    assert bench.answer(synced(0)) == [Assign(parts(0), parts(0))]
    assert bench.carry_out() == [Revoke(parts(0))]
    bench.carry_out()
    assert bench.request.reason == "subscription has changed"


def test_metadata_of_former_topics_is_not_taken() -> None:
    bench = Bench()
    bench.subscribe("jobs")
    bench.answer(joined())
    bench.subscribe("logs")
    assert bench.answer(synced(0)) == []
    assert isinstance(bench.request, JoinGroupRequest)
    assert bench.request.reason == "received assignment does not match the current subscription"


def test_patterns_for_the_broker_are_refused() -> None:
    with pytest.raises(IllegalArgumentError, match="group_protocol='consumer'"):
        Bench().member.subscribe(GroupSubscription(pattern="jobs.*"), 0.0)


# -- leading ----------------------------------------------------------------------------------------------------------


def test_a_leader_assigns_to_everybody() -> None:
    bench = Bench().lead(3, other=MemberSubscription(("jobs",)))
    request = bench.request
    assert isinstance(request, SyncGroupRequest)
    given = {each.member_id: set(read_assignment(each.assignment).partitions) for each in request.assignments}
    assert given == {"me": parts(0, 1), "other": parts(2)}
    assert bench.member.is_leader


def test_a_leader_asks_for_topics_that_it_does_not_know_and_assigns_when_it_has_heard() -> None:
    bench = Bench()
    bench.metadata(jobs=2)
    bench.subscribe("jobs")
    members = {"me": MemberSubscription(("jobs",)), "other": MemberSubscription(("logs",))}
    assert bench.answer(joined(1, "me", "me", members)) == [NeedMetadata(frozenset({"jobs", "logs"}))]
    assert bench.asked is None
    assert bench.member.state_name == "rebalancing"
    bench.metadata(jobs=2, logs=1)
    given = {each.member_id: set(read_assignment(each.assignment).partitions) for each in bench.request.assignments}
    assert given == {"me": parts(0, 1), "other": parts(0, topic="logs")}


def test_a_leader_that_knows_nothing_asks_for_its_own_topics() -> None:
    bench = Bench()
    bench.subscribe("jobs")
    members = {"me": MemberSubscription(("jobs",))}
    assert bench.answer(joined(1, "me", "me", members)) == [NeedMetadata(frozenset({"jobs"}))]
    bench.metadata(jobs=1)
    bench.answer(synced(0))
    bench.carry_out()
    bench.member.rejoin("a test", bench.now)
    bench.poll()
    bench.carry_out()
    assert bench.answer(joined(2, "me", "me", members)) == [], "nothing is missing"


def test_a_leader_beats_while_it_waits_for_metadata_and_waits_for_that_no_longer_than_a_request() -> None:
    bench = Bench()
    bench.subscribe("jobs")
    bench.answer(joined(1, "me", "me", {"me": MemberSubscription(("jobs",))}))
    began = bench.now
    beats = 0
    bench.until_deadline()
    while isinstance(bench.request, HeartbeatRequest):
        beats += 1
        bench.answer(beat())
        if bench.asked is None:
            bench.until_deadline()
    assert (beats, bench.now) == (9, began + REQUEST_S), "the tenth would go out with the sync"
    assert isinstance(bench.request, SyncGroupRequest)
    assert read_assignment(bench.request.assignments[0].assignment).partitions == ()


def test_a_leader_that_waits_for_metadata_looks_up_when_the_time_is_over_heartbeat_or_not() -> None:
    bench = Bench()
    bench.subscribe("jobs")
    bench.answer(joined(1, "me", "me", {"me": MemberSubscription(("jobs",))}))
    began = bench.now
    bench.poll(REQUEST_S - 1.0)
    bench.answer(beat())
    assert bench.member.next_deadline == began + REQUEST_S, "the next heartbeat is due later"


def test_a_leader_rejoins_when_a_topic_of_the_group_changes() -> None:
    bench = Bench().lead(3)
    bench.answer(synced(0, 1, 2))
    bench.carry_out()
    assert bench.metadata(jobs=3, other=1) == [], "no topic of the group"
    assert bench.metadata(jobs=4) == [Revoke(parts(0, 1, 2))]
    bench.carry_out()
    assert bench.request.reason == "cached metadata has changed"


def test_a_leader_notices_what_changes_while_it_syncs() -> None:
    bench = Bench().lead(3)
    bench.metadata(jobs=5)
    assert bench.answer(synced(0, 1, 2)) == [Assign(parts(0, 1, 2), parts(0, 1, 2))]
    assert bench.carry_out() == [Revoke(parts(0, 1, 2))]


def test_a_follower_does_not_mind_how_many_partitions_there_are() -> None:
    bench = Bench().join(0)
    assert not bench.metadata(jobs=4)
    assert bench.asked is None


def test_racks_count_as_a_change_for_members_in_racks_only() -> None:
    def change(rack: str) -> bool:
        bench = Bench(rack=rack)
        bench.member.metadata_changed({"jobs": TopicSnapshot(1, [frozenset({"a"})])}, bench.now)
        bench.subscribe("jobs")
        bench.answer(joined(1, "me", "me", {"me": MemberSubscription(("jobs",))}))
        bench.answer(synced(0))
        bench.carry_out()
        bench.member.metadata_changed({"jobs": TopicSnapshot(1, [frozenset({"b"})])}, bench.now)
        return bench.poll() == [Revoke(parts(0))]

    assert change("a")
    assert not change("")


def test_a_static_leader_with_skip_assignment_assigns_nothing_and_watches_the_topics() -> None:
    bench = Bench(group_instance_id="i")
    bench.metadata(jobs=2)
    bench.subscribe("jobs")
    bench.answer(joined(4, "me", "me", {"me": MemberSubscription(("jobs",))}, skip_assignment=True))
    assert isinstance(bench.request, SyncGroupRequest)
    assert bench.request.assignments == []
    bench.answer(synced(0, 1))
    bench.carry_out()
    assert bench.metadata(jobs=3) == [Revoke(parts(0, 1))]


class Broken:
    name = "broken"
    version = 0

    def metadata(self, topics: object) -> object:
        return None

    def assign(self, cluster: object, members: object) -> object:
        raise ZeroDivisionError("no partitions to divide")

    def on_assignment(self, assignment: object) -> None:
        pass


def test_what_a_users_assignor_raises_is_reported_and_the_group_tried_again() -> None:
    bench = Bench((Broken(),))
    bench.metadata(jobs=1)
    bench.subscribe("jobs")
    (report,) = bench.answer(joined(1, "me", "me", {"me": MemberSubscription(("jobs",))}, "broken"))
    assert isinstance(report, ReportError) and not report.is_fatal
    assert isinstance(report.error, IllegalStateError) and "ZeroDivisionError" in str(report.error)
    assert bench.asked is None
    bench.poll(1.0)
    assert isinstance(bench.request, JoinGroupRequest)


def test_a_member_that_speaks_no_consumers_language_is_reported() -> None:
    bench = Bench()
    bench.metadata(jobs=1)
    bench.subscribe("jobs")
    answer = joined(1, "me", "me", {"me": MemberSubscription(("jobs",)), "odd": MemberSubscription(())})
    answer.members[1].metadata = b"\x00"
    (report,) = bench.answer(answer)
    assert isinstance(report, ReportError) and "member odd" in str(report.error)


# -- rebalances -------------------------------------------------------------------------------------------------------


def test_an_eager_member_gives_up_everything_before_it_joins_again() -> None:
    bench = Bench().join(0, 1)
    bench.poll(BEAT_S)
    assert bench.answer(beat(27)) == [Revoke(parts(0, 1))]
    assert bench.asked is None, "it joins when the user has given up what it owns"
    assert bench.member.owned == parts(0, 1)
    bench.carry_out()
    assert isinstance(bench.request, JoinGroupRequest)
    assert bench.request.reason == "group is already rebalancing"
    assert bench.request.member_id == "me"
    assert bench.member.owned == frozenset()
    assert read_subscription(bench.protocol_metadata()[0][1]).owned == ()


def test_heartbeats_go_on_while_a_join_waits_for_the_user() -> None:
    bench = Bench().join(0)
    bench.poll(BEAT_S)
    revoke = bench.answer(beat(27))
    for _ in range(60):  # longer than the session
        assert bench.until_deadline() == []
        assert isinstance(bench.request, HeartbeatRequest)
        assert bench.answer(beat(27)) == [], "it knows"
    bench.seen = revoke
    bench.carry_out()
    assert isinstance(bench.request, JoinGroupRequest)


def test_a_cooperative_member_keeps_what_it_owns_and_says_so() -> None:
    bench = cooperative(0, 1)
    bench.poll(BEAT_S)
    assert bench.answer(beat(27)) == []
    subscription = read_subscription(bench.protocol_metadata()[0][1])
    assert (subscription.owned, subscription.generation) == (tuple(sorted(parts(0, 1))), 1)
    bench.answer(joined(2, protocol="cooperative-sticky"))
    assert bench.answer(synced(0, 1)) == [Assign(parts(0, 1), frozenset())]
    assert not bench.carry_out()
    assert bench.asked is None, "nothing was taken, so nobody waits for anything"


def test_a_cooperative_member_gives_up_what_the_answer_lacks_and_joins_once_more() -> None:
    bench = cooperative(0, 1)
    bench.member.rejoin("a test", bench.now)
    bench.poll()
    bench.answer(joined(2, protocol="cooperative-sticky"))
    assert bench.answer(synced(1, 2)) == [Revoke(parts(0))]
    assert bench.member.owned == parts(0, 1)
    assert bench.carry_out() == [Assign(parts(1, 2), parts(2))]
    assert bench.asked is None
    bench.carry_out()
    assert isinstance(bench.request, JoinGroupRequest)
    assert bench.request.reason == "need to revoke partitions and re-join"
    assert set(read_subscription(bench.protocol_metadata()[0][1]).owned) == parts(1, 2)


def test_a_cooperative_member_gives_up_topics_that_it_no_longer_wants_before_it_joins() -> None:
    bench = cooperative(0)
    assert bench.subscribe("logs") == [Revoke(parts(0))]
    bench.carry_out()
    assert read_subscription(bench.protocol_metadata()[0][1]).owned == ()
    assert bench.request.reason == "subscription has changed"


def test_another_subscription_rejoins_and_the_same_one_does_not() -> None:
    bench = Bench().join(0)
    assert bench.subscribe("jobs") == []
    assert bench.subscribe("jobs", "logs") == [Revoke(parts(0))]
    bench.carry_out()
    assert read_subscription(bench.protocol_metadata()[0][1]).topics == ("jobs", "logs")


def test_a_subscription_that_changes_while_joining_joins_once_more() -> None:
    bench = Bench()
    bench.subscribe("jobs")
    bench.answer(joined())
    bench.subscribe("jobs", "logs")
    assert bench.answer(synced(0)) == [Assign(parts(0), parts(0))]
    assert bench.carry_out() == [Revoke(parts(0))]


def test_one_thing_at_a_time_is_carried_out() -> None:
    bench = Bench()
    bench.subscribe("jobs")
    bench.answer(joined())
    assigned = bench.answer(synced(0))
    bench.poll(BEAT_S)
    assert bench.answer(beat(27)) == [], "the user has the Assign still"
    bench.seen = assigned
    assert bench.carry_out() == [Revoke(parts(0))]


def test_a_generation_that_ends_while_syncing_is_joined_anew_with_the_id() -> None:
    bench = Bench()
    bench.subscribe("jobs")
    bench.answer(joined(3))
    bench.answer(synced(code=27))
    assert isinstance(bench.request, JoinGroupRequest)
    assert bench.request.member_id == "me"


# -- losing -----------------------------------------------------------------------------------------------------------


def test_who_is_forgotten_loses_what_it_owned_and_joins_without_an_id() -> None:
    bench = Bench().join(0)
    bench.poll(BEAT_S)
    assert bench.answer(beat(25)) == [Lose(parts(0))]
    assert (bench.member.generation, bench.member.member_id) == (NO_GENERATION, "")
    assert bench.asked is None
    bench.carry_out()
    assert bench.request.member_id == ""


def test_an_illegal_generation_keeps_the_id() -> None:
    bench = Bench().join(0)
    bench.poll(BEAT_S)
    assert bench.answer(beat(22)) == [Lose(parts(0))]
    bench.carry_out()
    assert bench.request.member_id == "me"


def test_a_cooperative_member_that_is_forgotten_while_joining_loses_everything() -> None:
    bench = cooperative(0, 1)
    bench.member.rejoin("a test", bench.now)
    bench.poll()
    assert bench.answer(join_error(25)) == [Lose(parts(0, 1))]
    bench.carry_out()
    assert read_subscription(bench.protocol_metadata()[0][1]).owned == ()


def test_a_session_without_answers_is_over_by_the_clients_own_clock() -> None:
    bench = Bench().join(0)
    bench.poll(BEAT_S)
    sent_at = bench.now
    bench.answer(beat())
    bench.poll(BEAT_S)
    lost_ask = bench.asked
    effects = bench.until_deadline()
    bench.asked = None  # given up with the session
    assert bench.now == sent_at + SESSION_S, "of the last heartbeat that was answered"
    forget, lose = effects
    assert isinstance(forget, ForgetCoordinator) and "45 s" in str(forget.error)
    assert Seen([lose]) == [Lose(parts(0))]
    bench.seen = Seen([lose])
    bench.carry_out()
    assert isinstance(bench.request, JoinGroupRequest)
    assert bench.request.member_id == "me", "the group may have it still"
    assert bench.request.reason == "the session has timed out"
    assert lost_ask is not None
    bench.member.answered(lost_ask, beat(25), bench.now)
    assert bench.member.member_id == "me", "an answer to what was given up is nothing"


def test_a_stopped_process_notices_at_once_that_its_session_is_over() -> None:
    bench = Bench().join(0)
    effects = bench.poll(1000.0)
    assert isinstance(effects[0], ForgetCoordinator)
    assert Seen(effects[1:]) == [Lose(parts(0))]


def test_a_fenced_commit_is_looked_into_by_a_heartbeat_at_once() -> None:
    bench = Bench().join(0)
    bench.member.fenced(IllegalGenerationError(""), bench.now)
    assert bench.poll() == []
    assert isinstance(bench.request, HeartbeatRequest)
    assert bench.answer(beat()) == [], "the commit was of an earlier generation"
    bench.member.fenced(IllegalGenerationError(""), bench.now)
    bench.poll()
    assert bench.answer(beat(22)) == [Lose(parts(0))]


# -- the user does not poll -------------------------------------------------------------------------------------------


def stalled(bench: Bench) -> None:
    bench.member.polled_at = bench.now
    while bench.now < bench.member.polled_at + MAX_POLL_S:
        bench.until_deadline()
        if isinstance(bench.request, HeartbeatRequest):
            bench.answer(beat())


def test_who_does_not_poll_for_too_long_leaves_and_comes_back_when_it_does() -> None:
    bench = Bench().join(0)
    stalled(bench)
    assert bench.now == bench.member.polled_at + MAX_POLL_S
    assert bench.seen == [Lose(parts(0))]
    lose = bench.seen
    request = bench.request
    assert isinstance(request, LeaveGroupRequest)
    assert (request.members[0].member_id, request.members[0].reason) == ("me", "consumer poll timeout has expired.")
    bench.answer(gone())
    for _ in range(5):
        assert bench.poll(BEAT_S) == []
    assert bench.asked is None, "neither heartbeats nor joins"
    bench.member.polled_at = inf  # the user is in poll
    bench.seen = lose
    bench.carry_out()
    request = bench.request
    assert isinstance(request, JoinGroupRequest)
    assert (request.member_id, request.reason) == ("", "the consumer polls again")


def test_a_stalled_member_without_partitions_looks_whether_its_user_polls_again() -> None:
    bench = Bench().join()
    stalled(bench)
    bench.answer(gone())
    assert bench.asked is None
    bench.member.polled_at = bench.now + 1.0  # nobody is told
    bench.poll(1.0)
    while bench.asked is None:
        assert bench.member.next_deadline == bench.now + 0.5
        bench.until_deadline()
    assert isinstance(bench.request, JoinGroupRequest)


def test_who_leaves_while_a_stalled_member_leaves_waits_for_that() -> None:
    bench = Bench().join(0)
    stalled(bench)
    leave = bench.asked
    bench.member.leave(bench.now)
    assert bench.carry_out() == []
    assert bench.asked is leave
    assert bench.answer(gone()) == [Left()]


def test_a_static_member_that_stalls_is_silent() -> None:
    bench = Bench(group_instance_id="i").join(0)
    stalled(bench)
    assert bench.seen == [Lose(parts(0))]
    assert bench.asked is None
    bench.member.polled_at = inf
    bench.carry_out()
    assert (bench.request.member_id, bench.request.group_instance_id) == ("", "i")


def test_a_user_in_poll_is_never_too_late() -> None:
    bench = Bench().join(0)
    bench.member.polled_at = inf
    for _ in range(200):
        bench.until_deadline()
        bench.answer(beat())
    assert bench.now > 1000.0 + MAX_POLL_S
    assert bench.member.owned == parts(0)


def test_a_user_who_does_not_carry_out_a_revocation_is_too_late_too() -> None:
    bench = Bench().join(0)
    bench.poll(BEAT_S)
    revoke = bench.answer(beat(27))
    stalled(bench)
    assert isinstance(bench.request, LeaveGroupRequest)
    assert bench.member.generation == NO_GENERATION
    bench.answer(gone())
    bench.seen = revoke
    bench.member.polled_at = inf
    bench.carry_out()
    assert isinstance(bench.request, JoinGroupRequest)


def test_a_member_that_leaves_waits_for_its_user_without_asking_to_be_called_again_and_again() -> None:
    bench = Bench().join(0)
    bench.member.polled_at = bench.now
    bench.member.leave(bench.now)
    bench.poll()
    for _ in range(200):
        bench.until_deadline()
        bench.answer(beat())
    assert bench.now > bench.member.polled_at + MAX_POLL_S, "each call is for a heartbeat"
    bench.seen = Seen([Revoke(parts(0))])
    bench.carry_out()
    assert isinstance(bench.request, LeaveGroupRequest)


# -- leaving ----------------------------------------------------------------------------------------------------------


def test_a_leaving_member_revokes_first_and_then_leaves() -> None:
    bench = Bench().join(0)
    bench.member.leave(bench.now, "enough")
    assert bench.poll() == [Revoke(parts(0))]
    assert bench.asked is None
    bench.carry_out()
    assert bench.request.members[0].reason == "enough"
    assert bench.answer(gone()) == [Left()]
    assert bench.member.state_name == "left"
    bench.subscribe("jobs")
    assert bench.asked is None
    assert bench.member.next_deadline == inf


def test_a_leave_that_is_not_answered_is_one_all_the_same() -> None:
    bench = Bench().join()
    bench.member.leave(bench.now)
    bench.poll()
    assert bench.fail(KafkaConnectionError("gone")) == [Left()]


def test_a_static_member_does_not_ask_to_leave() -> None:
    bench = Bench(group_instance_id="i").join(0)
    bench.member.leave(bench.now)
    assert bench.poll() == [Revoke(parts(0))]
    assert bench.carry_out() == [Left()]
    assert bench.asked is None


def test_who_was_never_a_member_has_left_at_once() -> None:
    bench = Bench()
    bench.member.leave(bench.now)
    assert bench.poll() == [Left()]
    bench.member.leave(bench.now)
    assert bench.poll() == [], "it is told once"


def test_a_member_at_its_end_asks_for_nothing_and_can_leave() -> None:
    bench = Bench().join(0)
    bench.poll(BEAT_S)
    bench.member.rejoin("a test", bench.now)
    bench.seen = Seen(each for each in bench.answer(beat(82)) if isinstance(each, Lose))
    assert bench.carry_out() == []
    assert bench.member.next_deadline == inf
    bench.member.leave(bench.now)
    assert bench.poll() == [Left()]
    assert bench.asked is None, "it is no member that could leave"


def test_who_leaves_while_joining_does_so_beside_the_join() -> None:
    bench = Bench()
    bench.subscribe("jobs")
    bench.answer(join_error(79, "me"))
    join = bench.asked
    assert join is not None and not join.on_own_connection
    bench.member.leave(bench.now)
    bench.poll()
    assert bench.asked is not None and bench.asked.on_own_connection, (
        "the broker reads nothing behind a join that waits"
    )
    assert isinstance(bench.request, LeaveGroupRequest)
    assert join is not None
    bench.member.answered(join, joined(5), bench.now)
    assert bench.member.generation == NO_GENERATION
    assert bench.answer(gone()) == [Left()]


def test_who_leaves_while_a_heartbeat_is_out_does_so_behind_it() -> None:
    bench = Bench().join(0)
    bench.until_deadline()
    heartbeat = bench.asked
    assert heartbeat is not None and isinstance(bench.request, HeartbeatRequest)
    bench.member.leave(bench.now)
    bench.poll()
    bench.carry_out()
    assert isinstance(bench.request, LeaveGroupRequest)
    assert not bench.asked.on_own_connection, "no broker waits before it answers a heartbeat"
    bench.member.answered(heartbeat, beat(), bench.now)
    assert bench.answer(gone()) == [Left()]


@pytest.mark.parametrize("leader", ["other", "me"])
def test_who_leaves_between_two_generations_can_commit_nothing(leader: str) -> None:
    """Java: ConsumerCoordinator.onLeavePrepare, onPartitionsLost while rebalanceInProgress()."""
    bench = cooperative(0)
    bench.member.rejoin("a test", bench.now)
    bench.poll()
    unknown = {"me": MemberSubscription(("jobs",)), "other": MemberSubscription(("logs",))}
    bench.answer(joined(2, "me", leader, unknown, "cooperative-sticky"))
    assert isinstance(bench.request, SyncGroupRequest) or leader == "me", "a leader waits for the topics first"
    bench.member.leave(bench.now)
    assert bench.poll() == [Lose(parts(0))]


def test_a_subscription_to_nothing_leaves_until_there_is_something() -> None:
    bench = Bench().join(0)
    assert bench.subscribe() == [Revoke(parts(0))]
    bench.carry_out()
    assert isinstance(bench.request, LeaveGroupRequest)
    assert bench.answer(gone()) == []
    assert bench.member.state_name == "unjoined"
    assert bench.member.next_deadline == inf
    bench.subscribe("jobs")
    assert isinstance(bench.request, JoinGroupRequest)
    assert bench.request.member_id == ""


def test_a_subscription_that_comes_while_leaving_joins_when_that_is_done() -> None:
    bench = Bench().join(0)
    bench.subscribe()
    bench.subscribe("logs")
    bench.seen = Seen([Revoke(parts(0))])
    bench.carry_out()
    assert isinstance(bench.request, LeaveGroupRequest)
    bench.answer(gone())
    assert isinstance(bench.request, JoinGroupRequest)
    assert read_subscription(bench.protocol_metadata()[0][1]).topics == ("logs",)


def test_the_same_subscription_that_comes_while_leaving_joins_when_that_is_done() -> None:
    bench = Bench().join(0)
    bench.subscribe()
    bench.subscribe("jobs")
    bench.seen = Seen([Revoke(parts(0))])
    bench.carry_out()
    bench.answer(gone())
    assert isinstance(bench.request, JoinGroupRequest)


@pytest.mark.parametrize("topics", [("logs",), ()])
def test_a_subscription_that_comes_while_leaving_for_good_changes_nothing(topics: tuple[str, ...]) -> None:
    bench = Bench().join(0)
    bench.subscribe("jobs", "logs")
    bench.member.leave(bench.now)
    bench.poll()
    bench.subscribe(*topics)
    bench.seen = Seen([Revoke(parts(0))])
    bench.carry_out()
    assert bench.answer(gone()) == [Left()]
    assert bench.subscribe("logs") == [] and bench.asked is None
    assert (bench.member.state_name, bench.member.next_deadline) == ("left", inf)


# -- heartbeats -------------------------------------------------------------------------------------------------------


def test_heartbeats_keep_the_interval_of_the_settings() -> None:
    bench = Bench().join(0)
    began = bench.now
    times = []
    for _ in range(3):
        assert bench.until_deadline() == []
        assert bench.request == HeartbeatRequest(group_id="g", generation_id=1, member_id="me", group_instance_id=None)
        times.append(bench.now - began)
        bench.answer(beat(), after_s=0.5)
    assert times == [BEAT_S, 2 * BEAT_S, 3 * BEAT_S], "from one that was sent to the next"


def test_a_join_waits_for_the_answer_to_a_heartbeat() -> None:
    bench = Bench().join(0)
    bench.poll(BEAT_S)
    bench.member.rejoin("a test", bench.now)
    bench.poll()
    bench.carry_out()
    assert isinstance(bench.request, HeartbeatRequest)
    bench.answer(beat())
    assert isinstance(bench.request, JoinGroupRequest)


def test_a_join_that_waits_keeps_the_session_alive() -> None:
    bench = cooperative(0)
    bench.member.rejoin("a test", bench.now)
    bench.poll()
    assert isinstance(bench.request, JoinGroupRequest)
    assert bench.poll(2 * SESSION_S) == []
    assert bench.member.owned == parts(0)
    assert bench.member.next_deadline == inf


def test_there_is_one_request_at_a_time() -> None:
    bench = Bench()
    bench.subscribe("jobs")
    asked: list[SendToCoordinator] = []
    for _ in range(50):
        bench.now += 1.0
        asked += [each for each in bench.member.poll(bench.now) if isinstance(each, SendToCoordinator)]
    assert not asked, "the join waits, and keeps the session alive by that"


# -- several assignors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "protocol"),
    [
        (("range",), RebalanceProtocol.EAGER),
        (("cooperative-sticky",), RebalanceProtocol.COOPERATIVE),
        (("cooperative-sticky", "range"), RebalanceProtocol.EAGER),  # KIP-429: the way from one to the other
    ],
)
def test_the_most_advanced_protocol_that_all_assignors_can_do_is_chosen(
    strategy: tuple[str, ...], protocol: RebalanceProtocol
) -> None:
    assert common_protocol(make_assignors(strategy)) is protocol


class Cooperative(Broken):
    name = "only-cooperative"

    def supported_protocols(self) -> list[int]:
        return [1]


def test_assignors_without_a_common_protocol_and_none_at_all_are_refused() -> None:
    with pytest.raises(IllegalArgumentError, match="only-cooperative, range share no rebalance protocol"):
        Bench((Cooperative(), "range"))
    with pytest.raises(IllegalArgumentError, match="at least one assignor"):
        Bench(())


class Taking(Cooperative):
    """Gives to one member what another owns, without letting it be given up first."""

    def assign(self, cluster: object, members: object) -> object:
        return {"me": {"jobs": [0, 1]}, "other": {}}


def test_a_cooperative_assignor_that_gives_away_what_others_own_is_reported() -> None:
    bench = Bench((Taking(),))
    bench.metadata(jobs=2)
    bench.subscribe("jobs")
    other = MemberSubscription(("jobs",), None, tuple(sorted(parts(1))), 1)
    members = {"me": MemberSubscription(("jobs",)), "other": other}
    (report,) = bench.answer(joined(2, "me", "me", members, "only-cooperative"))
    assert isinstance(report, ReportError) and "still own" in str(report.error)


class TakingEagerly(Taking):
    def supported_protocols(self) -> list[int]:
        return [0]


def test_an_eager_assignor_may_give_away_what_others_owned() -> None:
    bench = Bench((TakingEagerly(),))
    bench.metadata(jobs=2)
    bench.subscribe("jobs")
    other = MemberSubscription(("jobs",), None, tuple(sorted(parts(1))), 1)
    members = {"me": MemberSubscription(("jobs",)), "other": other}
    assert bench.answer(joined(2, "me", "me", members, "only-cooperative")) == []
    assert isinstance(bench.request, SyncGroupRequest)


def test_an_old_broker_gives_the_id_with_the_generation() -> None:
    bench = Bench()
    bench.subscribe("jobs")
    bench.answer(joined(1, "given", protocol_type=None))
    assert bench.request.member_id == "given"


# -- how long a member waits between attempts to join ------------------------------------------------------------------


class NoChance:
    def random(self) -> float:
        return 0.5


ANSWERED = [0.0, 0.5, 1.0, 2.0, 4.0]
"""The group answered that it goes on without the member: the first attempt comes at once."""
FAILED = [0.5, 1.0, 2.0, 4.0, 4.0]
WAITS_S = {
    ClassicErrorAction.RETRY: FAILED,
    ClassicErrorAction.FIND_COORDINATOR: FAILED,
    ClassicErrorAction.REPORT: [1.0, 1.0, 2.0, 4.0, 4.0],  # the user was told: a second at least
    ClassicErrorAction.TAKE_ID: ANSWERED,
    ClassicErrorAction.REJOIN: ANSWERED,
    ClassicErrorAction.NEW_GENERATION: ANSWERED,
    ClassicErrorAction.NEW_MEMBER: ANSWERED,
    ClassicErrorAction.GIVE_UP: ANSWERED,
}


@pytest.mark.parametrize("reaction", ClassicErrorAction)
def test_failures_in_a_row_wait_ever_longer(reaction: ClassicErrorAction) -> None:
    attempts = JoinAttempts(Backoff(0.5, 4.0, NoChance()))
    for _ in range(2):
        waits = []
        for _ in range(5):
            attempts.failed(reaction, 100.0)
            waits.append(attempts.at - 100.0)
        assert waits == WAITS_S[reaction]
        attempts.succeeded()


# -- heartbeats and the session time-out -------------------------------------------------------------------------------


def test_heartbeats_are_due_an_interval_after_the_last_one_and_never_before_the_session_begins() -> None:
    session = MemberSession(45.0, 3.0)
    assert not session.is_beat_due(1e9) and not session.is_over(1e9)
    session.begin(100.0)
    assert [session.is_beat_due(at) for at in (102.9, 103.0, 103.1)] == [False, True, True]
    session.sent(103.5)
    assert [session.is_beat_due(at) for at in (106.4, 106.5)] == [False, True]
    session.pause(110.0)
    assert [session.is_beat_due(at) for at in (109.9, 110.0)] == [False, True]


def test_a_session_is_over_a_time_out_after_what_was_heard() -> None:
    session = MemberSession(45.0, 3.0)
    session.begin(100.0)
    assert [session.is_over(at) for at in (144.9, 145.0)] == [False, True]
    session.sent(110.0)
    assert session.is_over(145.0), "it may not have been heard"
    session.heard(110.0)
    assert [session.is_over(at) for at in (154.9, 155.0)] == [False, True]


def test_who_can_send_no_heartbeat_looks_again_at_the_end_of_the_session() -> None:
    session = MemberSession(45.0, 3.0)
    session.begin(100.0)
    assert (session.deadline(True), session.deadline(False)) == (103.0, 145.0)
    session.pause(200.0)
    assert session.deadline(True) == 145.0
