"""A member of a group of the consumer group protocol, step by step: what it says, what it does with answers and
errors."""

from __future__ import annotations

from math import inf

import pytest

from kafka.core.group.machine import (
    NO_GENERATION,
    Assign,
    ForgetCoordinator,
    GroupMachine,
    GroupSubscription,
    Left,
    Lose,
    NeedMetadata,
    ReportError,
    Revoke,
)
from kafka.core.partitions import MAX_ASSIGNED
from kafka.errors import KafkaConnectionError
from kafka.protocol.groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from test.core.group.consumer_bench import BACKOFF_S, INTERVAL_S, JOBS, LOGS, MAX_POLL_S, Bench, parts


def test_it_is_a_group_machine() -> None:
    machine: GroupMachine = Bench().member
    assert (machine.generation, machine.state_name, machine.owned) == (-1, "unjoined", frozenset())
    assert machine.poll(0.0) == []
    assert machine.next_deadline == inf


# -- joining, and the life of a member -------------------------------------------------------------------------------


def test_the_first_heartbeat_joins_and_says_everything() -> None:
    bench = Bench(rack="r1", server_assignor="range", group_instance_id="i")
    bench.member.subscribe(GroupSubscription(frozenset({"logs", "jobs"})), bench.now)
    assert bench.poll() == []
    assert bench.request == ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        instance_id="i",
        rack_id="r1",
        rebalance_timeout_ms=300_000,
        subscribed_topic_names=["jobs", "logs"],
        subscribed_topic_regex=None,
        server_assignor="range",
        topic_partitions=[],
    )
    assert bench.asked is not None and bench.asked.timeout_s == 30.0
    assert not bench.asked.on_own_connection, "no broker waits before it answers a heartbeat"
    assert bench.member.state_name == "joining"
    assert bench.poll(10.0) == [] and bench.member.generation == NO_GENERATION


def test_an_assignment_is_handed_over_and_acknowledged_at_once_and_then_heartbeats_are_short() -> None:
    bench = Bench()
    bench.member.subscribe(GroupSubscription(frozenset({"jobs"})), bench.now)
    bench.poll()
    effects = bench.answer(2, {JOBS: [1, 0]})
    assert effects == [Assign(parts(0, 1), parts(0, 1))]
    assert (bench.member.generation, bench.member.state_name, bench.member.owned) == (2, "reconciling", frozenset())
    assert bench.done(effects) == []
    assert bench.member.owned == parts(0, 1)
    assert bench.request == ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=2,
        topic_partitions=[ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=JOBS, partitions=[0, 1])],
    )
    assert bench.answer(2) == []
    assert bench.member.state_name == "stable"
    assert bench.member.next_deadline == bench.now + INTERVAL_S
    assert bench.poll(INTERVAL_S - 0.1) == [] and bench.asked is None
    assert bench.poll(0.1) == []
    assert bench.request == ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=2)


def test_heartbeats_go_on_while_the_user_takes_time_to_carry_out_a_step() -> None:
    bench = Bench()
    bench.member.subscribe(GroupSubscription(frozenset({"jobs"})), bench.now)
    bench.poll()
    effects = bench.answer(2, {JOBS: [0]})
    assert bench.beat().topic_partitions is None, "not acknowledged yet"
    assert bench.answer(2) == []
    bench.done(effects)
    assert bench.owned_partitions() == {JOBS: [0]}


def test_what_is_to_be_let_go_is_revoked_first_and_acknowledged_before_anything_is_added() -> None:
    bench = Bench()
    bench.join([0, 1, 2, 3])
    bench.beat()
    effects = bench.answer(2, {JOBS: [0, 1], LOGS: [5]})
    assert effects == [Revoke(parts(2, 3))]
    assert bench.member.owned == parts(0, 1, 2, 3)
    effects = bench.done(effects)
    assert effects == [Assign(parts(0, 1) | parts(5, topic="logs"), parts(5, topic="logs"))]
    assert bench.owned_partitions() == {JOBS: [0, 1], LOGS: [5]}, "what is being added is claimed already"
    bench.answer(3)
    assert bench.member.generation == 3
    bench.done(effects)
    assert bench.owned_partitions() == {JOBS: [0, 1], LOGS: [5]}


def test_a_rebalance_that_only_takes_away_ends_with_an_assignment_of_nothing_new() -> None:
    bench = Bench()
    bench.join([0, 1])
    bench.beat()
    effects = bench.done(bench.answer(2, {JOBS: [0]}))
    assert effects == [Assign(parts(0), frozenset())]
    bench.answer(3, {JOBS: [0]})
    bench.done(effects)
    bench.answer(3)
    assert bench.member.state_name == "stable"


def test_a_heartbeat_claims_what_the_user_is_being_given() -> None:
    """One that is due for another reason meanwhile. If it said that nothing is owned, the broker would give the
    partition to another at once, while this member reads and commits it."""
    bench = Bench()
    bench.join([0])
    bench.beat()
    effects = bench.done(bench.answer(2, {}))
    assert effects == [Assign(frozenset(), frozenset())]
    bench.done(effects)
    assert bench.owned_partitions() == {}
    assert bench.answer(3, {JOBS: [1]}) == [Assign(parts(1), parts(1))]
    assert bench.owned_partitions() == {JOBS: [1]}


def test_a_target_that_changes_during_a_step_is_what_the_next_step_goes_by() -> None:
    bench = Bench()
    bench.join([0, 1])
    bench.beat()
    effects = bench.answer(3, {JOBS: [0, 1, 2]})
    assert effects == [Assign(parts(0, 1, 2), parts(2))]
    bench.beat()
    assert bench.answer(3, {JOBS: [1]}) == [], "one step at a time"
    effects = bench.done(effects)
    assert effects == [Revoke(parts(0, 2))]
    assert bench.done(effects) == [Assign(parts(1), frozenset())]


def test_the_interval_is_the_brokers_and_a_member_without_partitions_asks_sooner() -> None:
    bench = Bench()
    bench.member.subscribe(GroupSubscription(frozenset({"jobs"})), bench.now)
    bench.poll()
    effects = bench.answer(2, {})
    assert effects == [Assign(frozenset(), frozenset())], "the user hears that there is nothing for them"
    bench.done(effects)
    waits = []
    for _ in range(8):
        bench.answer(2, interval_s=3.0)
        waits.append(round(bench.member.next_deadline - bench.now, 3))
        bench.beat()
    assert waits == [0.2, 0.4, 0.8, 1.6, 3.0, 3.0, 3.0, 3.0]
    bench.done(bench.answer(3, {JOBS: [0]}))
    bench.answer(3, interval_s=7.0)
    assert bench.member.next_deadline == bench.now + 7.0


def test_an_interval_of_nothing_is_a_tenth_of_a_second() -> None:
    """Or heartbeats would follow one another as fast as they are answered."""
    bench = Bench()
    bench.join([0])
    bench.beat()
    bench.answer(2, interval_s=0.0)
    assert bench.member.next_deadline == bench.now + 0.1


def test_an_assignment_of_more_partitions_than_a_member_takes_ends_the_membership_with_an_error() -> None:
    bench = Bench()
    bench.join([0])
    bench.beat()
    effects = bench.answer(3, {JOBS: list(range(MAX_ASSIGNED + 1))})
    assert effects == [Lose(parts(0))]
    effects = bench.done(effects)
    assert isinstance(effects[0], ReportError) and effects[0].is_fatal
    assert "an assignment of 100001 partitions" in str(effects[0].error)


def test_another_subscription_is_sent_at_once_or_as_soon_as_the_answer_is_there() -> None:
    bench = Bench()
    bench.join()
    bench.member.subscribe(GroupSubscription(frozenset({"logs"})), bench.now)
    bench.poll()
    assert bench.request == ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=2, subscribed_topic_names=["logs"]
    )
    bench.member.subscribe(GroupSubscription(frozenset({"jobs", "logs"})), bench.now)
    assert bench.poll() == []
    bench.answer(2)
    assert bench.request.subscribed_topic_names == ["jobs", "logs"]


def test_a_pattern_is_the_brokers_to_evaluate_and_is_taken_back_with_an_empty_one() -> None:
    bench = Bench()
    bench.join(pattern="jo.*")
    bench.member.subscribe(GroupSubscription(frozenset({"jobs"})), bench.now)
    bench.poll()
    assert (bench.request.subscribed_topic_names, bench.request.subscribed_topic_regex) == (["jobs"], "")
    bench.answer(2)
    bench.member.subscribe(GroupSubscription(pattern="lo.*"), bench.now)
    bench.poll()
    assert (bench.request.subscribed_topic_names, bench.request.subscribed_topic_regex) == ([], "lo.*")


def test_a_heartbeat_that_may_be_lost_is_followed_by_one_that_says_everything() -> None:
    bench = Bench()
    bench.join()
    bench.member.subscribe(GroupSubscription(frozenset({"logs"})), bench.now)
    bench.poll()
    assert [type(each) for each in bench.fail(KafkaConnectionError("gone"))] == [ForgetCoordinator]
    assert bench.member.next_deadline == bench.now + BACKOFF_S
    request = bench.beat()
    assert (request.member_epoch, request.rebalance_timeout_ms, request.subscribed_topic_names) == (
        2,
        300_000,
        ["logs"],
    )
    assert bench.owned_partitions() == {JOBS: [0, 1]}
    assert bench.member.owned == parts(0, 1), "nothing was lost"
    waits = []
    for _ in range(4):
        bench.fail(KafkaConnectionError("gone"))
        waits.append(round(bench.member.next_deadline - bench.now, 3))
        bench.beat()
    assert waits == [0.4, 0.8, 1.0, 1.0]


def test_a_late_answer_to_a_request_that_failed_is_nobodys() -> None:
    bench = Bench()
    bench.join()
    bench.beat()
    late = bench.asked
    assert late is not None
    bench.fail(KafkaConnectionError("slow"))
    bench.member.answered(
        late,
        ConsumerGroupHeartbeatResponse(throttle_time_ms=0, error_code=25, member_epoch=0, heartbeat_interval_ms=0),
        bench.now,
    )
    assert bench.poll() == [] and bench.member.state_name == "stable"


def test_what_was_not_under_way_is_not_carried_out() -> None:
    bench = Bench()
    bench.member.subscribe(GroupSubscription(frozenset({"jobs"})), bench.now)
    bench.poll()
    effects = bench.answer(2, {JOBS: [0]})
    bench.member.carried_out(Revoke(parts(0)), bench.now)
    bench.member.carried_out(Lose(parts(0)), bench.now)
    assert bench.poll() == [] and bench.asked is None
    assert bench.member.owned == frozenset()
    bench.done(effects)
    assert bench.member.owned == parts(0)


# -- topics that come by ids -----------------------------------------------------------------------------------------


def test_a_topic_that_metadata_does_not_name_is_asked_for_and_waited_for() -> None:
    bench = Bench(names={JOBS: "jobs"})
    bench.member.subscribe(GroupSubscription(pattern=".*"), bench.now)
    bench.poll()
    effects = bench.answer(2, {JOBS: [0], LOGS: [0, 1]})
    assert effects == [Assign(parts(0), parts(0)), NeedMetadata(frozenset(), frozenset({LOGS}))]
    bench.done(effects)
    bench.answer(2)
    assert bench.member.state_name == "reconciling"
    assert bench.member.next_deadline == bench.now + BACKOFF_S
    assert bench.poll(BACKOFF_S) == [NeedMetadata(frozenset(), frozenset({LOGS}))], "asked again"
    bench.names[LOGS] = "logs"
    bench.member.metadata_changed({}, bench.now)
    effects = bench.poll()
    assert effects == [Assign(parts(0) | parts(0, 1, topic="logs"), parts(0, 1, topic="logs"))]
    bench.done(effects)
    assert bench.owned_partitions() == {JOBS: [0], LOGS: [0, 1]}


def test_what_waited_for_a_name_is_not_assigned_while_the_broker_may_have_given_it_to_another() -> None:
    """The heartbeat says that nothing is owned, so the broker has nothing to wait for before it moves a partition. The
    answer that says so is lost, and only then the topic gets its name."""
    bench = Bench(names={})
    bench.member.subscribe(GroupSubscription(frozenset({"jobs"})), bench.now)
    bench.poll()
    bench.answer(2, {JOBS: [0, 1]})
    bench.poll(INTERVAL_S)
    bench.fail(KafkaConnectionError("lost"))
    bench.poll(INTERVAL_S)
    assert bench.owned_partitions() == {}
    bench.names[JOBS] = "jobs"
    bench.member.metadata_changed({}, bench.now)
    assert bench.poll() == []
    assert [type(each) for each in bench.fail(KafkaConnectionError("lost"))] == [ForgetCoordinator]
    bench.beat()
    assert bench.answer(3, {JOBS: [1]}) == [Assign(parts(1), parts(1))]


def test_while_no_topic_of_the_target_has_a_name_the_listener_is_not_called() -> None:
    bench = Bench(names={})
    bench.member.subscribe(GroupSubscription(frozenset({"jobs"})), bench.now)
    bench.poll()
    assert bench.answer(2, {JOBS: [0]}) == [NeedMetadata(frozenset({"jobs"}), frozenset({JOBS}))]
    assert bench.poll(BACKOFF_S / 2) == [], "not asked in haste"


def test_a_topic_that_was_made_anew_is_revoked_and_assigned_again() -> None:
    bench = Bench(names={JOBS: "jobs", LOGS: "jobs"})
    bench.join([0])
    bench.beat()
    effects = bench.answer(3, {LOGS: [0]})
    assert effects == [Revoke(parts(0))]
    assert bench.done(effects) == [Assign(parts(0), parts(0))]


# -- a user who does not poll ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("i", -2)])
def test_a_user_who_polls_too_late_is_out_until_the_next_poll(instance: str | None, epoch: int) -> None:
    bench = Bench(group_instance_id=instance)
    bench.join()
    bench.member.polled_at = bench.now
    while bench.now < 100.0 + MAX_POLL_S - INTERVAL_S:
        bench.beat()
        assert bench.answer(2) == []
    effects = bench.poll(bench.member.polled_at + MAX_POLL_S - bench.now)
    assert effects == [Lose(parts(0, 1))]
    assert (bench.request.member_epoch, bench.request.instance_id) == (epoch, instance)
    assert bench.member.generation == NO_GENERATION, "what is lost is not committed"
    assert bench.answer(epoch) == []
    assert bench.member.generation == NO_GENERATION
    assert bench.poll(1000.0) == [] and bench.asked is None, "silence"
    bench.member.polled_at = inf
    assert bench.done(effects) == []
    assert (bench.request.member_epoch, bench.owned_partitions()) == (0, {})


def test_a_user_who_comes_back_and_has_nothing_to_lose_is_noticed() -> None:
    bench = Bench()
    bench.join([])
    bench.member.polled_at = bench.now
    bench.beat()
    bench.answer(2)
    bench.poll(MAX_POLL_S)
    if bench.asked is None or bench.request.member_epoch >= 0:
        bench.answer(2)
    assert bench.request.member_epoch == -1
    bench.answer(-1)
    assert bench.poll(1.0) == [] and bench.asked is None
    bench.member.polled_at = bench.now
    assert bench.member.next_deadline - bench.now <= 1.0
    assert bench.beat().member_epoch == 0


def test_a_user_who_polls_too_late_for_a_join_leaves_as_soon_as_that_is_answered() -> None:
    bench = Bench()
    bench.member.subscribe(GroupSubscription(frozenset({"jobs"})), bench.now)
    bench.member.polled_at = bench.now
    bench.poll()
    assert bench.member.next_deadline == bench.now + MAX_POLL_S
    assert bench.poll(MAX_POLL_S) == []
    assert bench.member.state_name == "stale"
    assert bench.answer(2, {JOBS: [0]}) == [], "nothing is handed to a user who is away"
    assert bench.request.member_epoch == -1
    bench.answer(-1)
    bench.member.polled_at = inf
    assert bench.beat().member_epoch == 0


def test_a_poll_interval_shorter_than_the_heartbeats_is_kept() -> None:
    bench = Bench()
    bench.join()
    bench.member._max_poll_interval_s = 2.0
    bench.poll()
    assert bench.member.next_deadline == bench.now + 2.0, "a look, since nobody tells of the end of a poll"
    bench.member.polled_at = bench.now + 1.0
    bench.poll(2.0)
    assert bench.member.next_deadline == bench.now + 1.0
    assert bench.poll(1.0) == [Lose(parts(0, 1))]


def test_a_user_who_is_late_while_a_heartbeat_is_out_is_left_for_as_soon_as_it_is_answered() -> None:
    bench = Bench(max_poll_interval_s=INTERVAL_S + 1.0)
    bench.join()
    bench.member.polled_at = bench.now
    bench.beat()
    assert bench.poll(1.0) == [Lose(parts(0, 1))]
    assert bench.answer(2) == []
    assert bench.request.member_epoch == -1, "before the user has carried anything out"


# -- leaving ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("i", -2)])
def test_leaving_revokes_first_then_leaves_then_it_is_over(instance: str | None, epoch: int) -> None:
    bench = Bench(group_instance_id=instance)
    bench.join()
    bench.member.leave(bench.now, "bye")
    effects = bench.poll()
    assert effects == [Revoke(parts(0, 1))]
    assert bench.beat().member_epoch == 2, "commits still count meanwhile"
    bench.answer(2)
    assert bench.done(effects) == []
    assert bench.request == ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=epoch, instance_id=instance
    )
    assert bench.answer(epoch) == [Left()]
    assert bench.member.state_name == "left"
    bench.member.subscribe(GroupSubscription(frozenset({"jobs"})), bench.now)
    assert bench.poll(100.0) == [] and bench.asked is None and bench.member.next_deadline == inf


def test_who_never_joined_has_nothing_to_leave() -> None:
    bench = Bench()
    bench.member.leave(bench.now)
    assert bench.poll() == [Left()]
    bench.member.leave(bench.now)
    assert bench.poll() == [], "it is told once"


def test_to_leave_again_hastens_nothing() -> None:
    bench = Bench()
    bench.join()
    bench.member.leave(bench.now)
    bench.done(bench.poll())
    bench.answer(code=14)
    bench.member.leave(bench.now)
    assert bench.poll() == [] and bench.asked is None
    assert bench.member.next_deadline == bench.now + BACKOFF_S


@pytest.mark.parametrize("topics", [("logs",), ()])
def test_a_subscription_that_comes_while_leaving_for_good_changes_nothing(topics: tuple[str, ...]) -> None:
    bench = Bench()
    bench.join()
    bench.member.leave(bench.now)
    effects = bench.poll()
    bench.member.subscribe(GroupSubscription(frozenset(topics)), bench.now)
    assert bench.poll() == [] and bench.asked is None
    assert bench.beat().subscribed_topic_names is None
    bench.answer(2)
    bench.done(effects)
    assert bench.answer(-1) == [Left()]
    assert bench.member.state_name == "left"


def test_a_join_that_is_out_is_left_again() -> None:
    bench = Bench()
    bench.member.subscribe(GroupSubscription(frozenset({"jobs"})), bench.now)
    bench.poll()
    bench.member.leave(bench.now)
    assert bench.poll() == []
    bench.answer(2, {JOBS: [0]})
    assert bench.request.member_epoch == -1
    assert bench.answer(-1) == [Left()]


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("i", -2)])
def test_who_leaves_in_a_hurry_does_so_behind_the_heartbeat_that_is_out(instance: str | None, epoch: int) -> None:
    bench = Bench(group_instance_id=instance)
    bench.join()
    bench.beat()
    heartbeat, bench.asked = bench.asked, None
    bench.member.leave(bench.now)
    bench.done(bench.poll())
    bench.member.leave_now(bench.now)
    assert bench.poll() == []
    assert bench.request.member_epoch == epoch
    leave = bench.asked
    bench.member.leave_now(bench.now)
    assert bench.poll() == [] and bench.asked is leave, "it goes out once"
    assert heartbeat is not None
    bench.member.failed(heartbeat, KafkaConnectionError("gone"), bench.now)
    assert bench.answer(epoch) == [Left()]


def test_who_leaves_in_a_hurry_does_so_behind_the_join_that_is_out() -> None:
    bench = Bench()
    bench.member.subscribe(GroupSubscription(frozenset({"jobs"})), bench.now)
    bench.poll()
    bench.asked = None
    bench.member.leave(bench.now)
    bench.member.leave_now(bench.now)
    assert bench.poll() == []
    assert bench.request.member_epoch == -1
    assert bench.answer(-1) == [Left()]


@pytest.mark.parametrize("code", [25, 69, 30, 110])
def test_a_group_that_does_not_know_the_leaver_has_lost_it_already(code: int) -> None:
    bench = Bench()
    bench.join()
    bench.member.leave(bench.now)
    bench.done(bench.poll())
    assert bench.answer(code=code) == [Left()]


def test_a_leave_that_fails_is_tried_again_but_not_for_ever() -> None:
    bench = Bench()
    bench.join()
    bench.member.leave(bench.now)
    bench.done(bench.poll())
    assert [type(each) for each in bench.answer(code=16)] == [ForgetCoordinator]
    assert bench.beat().member_epoch == -1
    assert bench.fail(KafkaConnectionError("gone")) == [Left()], "two attempts"


def test_each_leave_has_its_own_two_attempts() -> None:
    bench = Bench()
    for _ in range(2):
        bench.join()
        bench.member.subscribe(GroupSubscription(), bench.now)
        bench.done(bench.poll())
        for _ in range(2):
            assert bench.request.member_epoch == -1
            bench.fail(KafkaConnectionError("gone"))
            if bench.member.next_deadline < inf:
                bench.beat()
        assert (bench.asked, bench.member.state_name) == (None, "unjoined")


def test_who_is_fenced_in_the_middle_of_leaving_says_nothing_before_the_partitions_are_given_up() -> None:
    bench = Bench()
    bench.join()
    bench.beat()
    bench.member.leave(bench.now)
    effects = bench.poll()
    assert bench.answer(code=110) == []
    assert bench.poll(60.0) == [] and bench.asked is None, "a heartbeat would join"
    assert bench.done(effects) == []
    assert bench.request.member_epoch == -1, "the group still has it"


def test_who_is_fenced_while_leaving_loses_the_rest_and_is_out() -> None:
    bench = Bench()
    bench.join()
    bench.beat()
    bench.member.leave(bench.now)
    effects = bench.poll()
    assert effects == [Revoke(parts(0, 1))]
    bench.answer(code=25)
    assert bench.done(effects) == [Left()]
    assert bench.asked is None


def test_a_subscription_to_nothing_leaves_and_the_next_one_joins_again() -> None:
    bench = Bench()
    bench.join()
    bench.member.subscribe(GroupSubscription(), bench.now)
    effects = bench.poll()
    assert effects == [Revoke(parts(0, 1))]
    assert bench.member.generation == 2, "what is revoked may be committed still"
    bench.done(effects)
    assert bench.request.member_epoch == -1
    assert bench.answer(-1) == []
    assert (bench.member.state_name, bench.member.next_deadline) == ("unjoined", inf)
    bench.member.subscribe(GroupSubscription(frozenset({"logs"})), bench.now)
    bench.poll()
    assert (bench.request.member_epoch, bench.request.subscribed_topic_names) == (0, ["logs"])


def test_a_subscription_that_comes_back_before_the_member_is_out_joins_after_it_is() -> None:
    bench = Bench()
    bench.join()
    bench.member.subscribe(GroupSubscription(), bench.now)
    effects = bench.poll()
    bench.member.subscribe(GroupSubscription(frozenset({"logs"})), bench.now)
    bench.done(effects)
    assert bench.request.member_epoch == -1
    assert bench.answer(-1) == []
    assert (bench.request.member_epoch, bench.request.subscribed_topic_names) == (0, ["logs"])


# -- static members that find their own place taken by themselves ----------------------------------------------------


def test_a_static_member_whose_join_was_not_answered_leaves_its_place_before_it_joins_again() -> None:
    bench = Bench(group_instance_id="i")
    bench.member.subscribe(GroupSubscription(frozenset({"jobs"})), bench.now)
    bench.poll()
    bench.fail(KafkaConnectionError("gone"))
    assert bench.beat().member_epoch == -2
    bench.answer(-2)
    assert bench.request.member_epoch == 0
    assert bench.answer(3, {JOBS: [0]}) == [Assign(parts(0), parts(0))]


def test_a_static_member_that_was_fenced_leaves_its_place_before_it_joins_again() -> None:
    bench = Bench(group_instance_id="i")
    bench.join()
    bench.beat()
    bench.done(bench.answer(code=110))
    assert bench.request.member_epoch == -2
    assert bench.answer(code=25) == []
    assert bench.request.member_epoch == 0


def test_a_static_member_whose_place_is_anothers_gives_up() -> None:
    bench = Bench(group_instance_id="i")
    bench.member.subscribe(GroupSubscription(frozenset({"jobs"})), bench.now)
    bench.poll()
    bench.fail(KafkaConnectionError("gone"))
    bench.beat()
    bench.answer(code=82)
    (report,) = bench.answer(code=111, text="owned by somebody else")
    assert isinstance(report, ReportError) and report.is_fatal and "owned by somebody else" in str(report.error)
