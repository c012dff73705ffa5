"""A member of a group of the new protocol, step by step: what it says, what it does with answers and errors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import inf
from typing import Any
from uuid import UUID

import pytest

from kafka.core.group.consumer import ConsumerMember
from kafka.core.group.consumer_answers import EAGER_S, LEAVE_ATTEMPTS
from kafka.core.group.consumer_reactions import REACTIONS, Then
from kafka.core.group.machine import (
    NO_GENERATION,
    Ask,
    Assign,
    Effect,
    ForgetCoordinator,
    GroupMachine,
    Left,
    Lose,
    NeedMetadata,
    Report,
    Revoke,
    Subscription,
)
from kafka.core.retry import Backoff
from kafka.errors import (
    ERRORS_BY_CODE,
    IncompatibleBrokerVersion,
    InvalidRegularExpressionError,
    KafkaConnectionError,
    SaslAuthenticationFailedError,
    StaleMemberEpochError,
    TopicAuthorizationFailedError,
    UnsupportedFieldError,
    UnsupportedVersionError,
)
from kafka.protocol.consumer_group import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from kafka.structs import TopicPartition

JOBS, LOGS = UUID(int=1), UUID(int=2)
NAMES: Mapping[UUID, str] = {JOBS: "jobs", LOGS: "logs"}
BACKOFF_S = 0.2
INTERVAL_S = 5.0
MAX_POLL_S = 300.0


class NoChance:
    def random(self) -> float:
        return 0.5


def parts(*numbers: int, topic: str = "jobs") -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in numbers)


class Bench:
    """A member on a bench: its clock, its last request, and whoever carries out its steps."""

    def __init__(self, names: Mapping[UUID, str] | None = None, **options: Any) -> None:
        self.now = 100.0
        self.names = dict(NAMES if names is None else names)
        self.member = ConsumerMember(
            "g",
            member_id="m",
            max_poll_interval_s=MAX_POLL_S,
            request_timeout_s=30.0,
            retry_backoff=Backoff(BACKOFF_S, 1.0, NoChance()),
            topic_of_id=self.names.get,
            **options,
        )
        self.asked: Ask | None = None

    def poll(self, after_s: float = 0.0) -> list[Effect]:
        """All effects but requests, which are kept in ``asked``."""
        self.now += after_s
        effects = self.member.poll(self.now)
        asks = [each for each in effects if isinstance(each, Ask)]
        assert len(asks) <= 1 and not (asks and self.asked), "one request in flight at a time"
        if asks:
            self.asked = asks[0]
        return [each for each in effects if not isinstance(each, Ask)]

    @property
    def request(self) -> ConsumerGroupHeartbeatRequest:
        assert self.asked is not None, "nothing was asked"
        request = self.asked.request
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
        return request

    def answer(
        self,
        epoch: int = 0,
        assigned: Mapping[UUID, Iterable[int]] | None = None,
        code: int = 0,
        text: str | None = None,
        interval_s: float = INTERVAL_S,
    ) -> list[Effect]:
        ask, self.asked = self.asked, None
        assert ask is not None
        assignment = None
        if assigned is not None:
            each = [
                ConsumerGroupHeartbeatResponse.TopicPartitions(topic_id=topic_id, partitions=list(numbers))
                for topic_id, numbers in assigned.items()
            ]
            assignment = ConsumerGroupHeartbeatResponse.Assignment(topic_partitions=each)
        response = ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=code,
            error_message=text,
            member_id=None if code else self.member.member_id,
            member_epoch=epoch,
            heartbeat_interval_ms=int(interval_s * 1000),
            assignment=assignment,
        )
        self.member.answered(ask, response, self.now)
        return self.poll()

    def fail(self, error: BaseException) -> list[Effect]:
        ask, self.asked = self.asked, None
        assert ask is not None
        self.member.failed(ask, error, self.now)
        return self.poll()

    def done(self, effects: Collection[Effect]) -> list[Effect]:
        """Carry out what there is to carry out; what comes next."""
        (step,) = (each for each in effects if isinstance(each, (Revoke, Lose, Assign)))
        if isinstance(step, Revoke):
            self.member.revoked(self.now)
        elif isinstance(step, Lose):
            self.member.lost(self.now)
        else:
            self.member.assigned(self.now)
        return self.poll()

    def join(self, numbers: Iterable[int] = (0, 1), epoch: int = 2, **subscription: Any) -> None:
        """Subscribe, join, take over partitions of ``jobs`` and acknowledge them."""
        self.member.subscribe(Subscription(**(subscription or {"topics": frozenset({"jobs"})})), self.now)
        self.poll()
        self.done(self.answer(epoch, {JOBS: numbers}))
        self.answer(epoch)
        assert self.member.state_name == "stable"

    def beat(self) -> ConsumerGroupHeartbeatRequest:
        """The next heartbeat, when it is due."""
        assert not self.poll(self.member.next_deadline - self.now)
        return self.request

    def owned_said(self) -> dict[UUID, list[int]] | None:
        said = self.request.topic_partitions
        return None if said is None else {each.topic_id: each.partitions for each in said}


def test_it_is_a_group_machine() -> None:
    machine: GroupMachine = Bench().member
    assert (machine.generation, machine.state_name, machine.owned) == (NO_GENERATION, "unjoined", frozenset())
    assert machine.poll(0.0) == []
    assert machine.next_deadline == inf


# -- joining, and the life of a member -------------------------------------------------------------------------------


def test_the_first_heartbeat_joins_and_says_everything() -> None:
    bench = Bench(rack="r1", server_assignor="range", group_instance_id="i")
    bench.member.subscribe(Subscription(frozenset({"logs", "jobs"})), bench.now)
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
    assert bench.member.state_name == "joining"
    assert bench.poll(10.0) == [] and bench.member.generation == NO_GENERATION


def test_an_assignment_is_handed_over_and_acknowledged_at_once_and_then_heartbeats_are_short() -> None:
    bench = Bench()
    bench.member.subscribe(Subscription(frozenset({"jobs"})), bench.now)
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
    bench.member.subscribe(Subscription(frozenset({"jobs"})), bench.now)
    bench.poll()
    effects = bench.answer(2, {JOBS: [0]})
    assert bench.beat().topic_partitions is None, "not acknowledged yet"
    assert bench.answer(2) == []
    bench.done(effects)
    assert bench.owned_said() == {JOBS: [0]}


def test_what_is_to_be_let_go_is_revoked_first_and_acknowledged_before_anything_is_added() -> None:
    bench = Bench()
    bench.join([0, 1, 2, 3])
    bench.beat()
    effects = bench.answer(2, {JOBS: [0, 1], LOGS: [5]})
    assert effects == [Revoke(parts(2, 3))]
    assert bench.member.owned == parts(0, 1, 2, 3)
    effects = bench.done(effects)
    assert bench.owned_said() == {JOBS: [0, 1]}
    assert effects == [Assign(parts(0, 1) | parts(5, topic="logs"), parts(5, topic="logs"))]
    bench.answer(3)
    assert bench.member.generation == 3
    bench.done(effects)
    assert bench.owned_said() == {JOBS: [0, 1], LOGS: [5]}


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
    bench.member.subscribe(Subscription(frozenset({"jobs"})), bench.now)
    bench.poll()
    effects = bench.answer(2, {})
    assert effects == [Assign(frozenset(), frozenset())], "the user hears that there is nothing for them"
    bench.done(effects)
    waits = []
    for _ in range(8):
        bench.answer(2, interval_s=3.0)
        waits.append(round(bench.member.next_deadline - bench.now, 3))
        bench.beat()
    assert waits == [2 * EAGER_S, 0.4, 0.8, 1.6, 3.0, 3.0, 3.0, 3.0]
    bench.done(bench.answer(3, {JOBS: [0]}))
    bench.answer(3, interval_s=7.0)
    assert bench.member.next_deadline == bench.now + 7.0


def test_another_subscription_is_said_at_once_or_as_soon_as_the_answer_is_there() -> None:
    bench = Bench()
    bench.join()
    bench.member.subscribe(Subscription(frozenset({"logs"})), bench.now)
    bench.poll()
    assert bench.request == ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=2, subscribed_topic_names=["logs"]
    )
    bench.member.subscribe(Subscription(frozenset({"jobs", "logs"})), bench.now)
    assert bench.poll() == []
    bench.answer(2)
    assert bench.request.subscribed_topic_names == ["jobs", "logs"]


def test_a_pattern_is_the_brokers_to_evaluate_and_is_taken_back_with_an_empty_one() -> None:
    bench = Bench()
    bench.join(pattern="jo.*")
    bench.member.subscribe(Subscription(frozenset({"jobs"})), bench.now)
    bench.poll()
    assert (bench.request.subscribed_topic_names, bench.request.subscribed_topic_regex) == (["jobs"], "")
    bench.answer(2)
    bench.member.subscribe(Subscription(pattern="lo.*"), bench.now)
    bench.poll()
    assert (bench.request.subscribed_topic_names, bench.request.subscribed_topic_regex) == ([], "lo.*")


def test_a_heartbeat_that_may_be_lost_is_followed_by_one_that_says_everything() -> None:
    bench = Bench()
    bench.join()
    bench.member.subscribe(Subscription(frozenset({"logs"})), bench.now)
    bench.poll()
    assert [type(each) for each in bench.fail(KafkaConnectionError("gone"))] == [ForgetCoordinator]
    assert bench.member.next_deadline == bench.now + BACKOFF_S
    request = bench.beat()
    assert (request.member_epoch, request.rebalance_timeout_ms, request.subscribed_topic_names) == (
        2,
        300_000,
        ["logs"],
    )
    assert bench.owned_said() == {JOBS: [0, 1]}
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


# -- topics that come by ids -----------------------------------------------------------------------------------------


def test_a_topic_that_metadata_does_not_name_is_asked_for_and_waited_for() -> None:
    bench = Bench(names={JOBS: "jobs"})
    bench.member.subscribe(Subscription(pattern=".*"), bench.now)
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
    assert bench.owned_said() == {JOBS: [0], LOGS: [0, 1]}


def test_while_no_topic_of_the_target_has_a_name_the_user_is_told_nothing() -> None:
    bench = Bench(names={})
    bench.member.subscribe(Subscription(frozenset({"jobs"})), bench.now)
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


# -- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [*REACTIONS, 69, 7, 22])
def test_each_error_of_a_heartbeat_has_the_reaction_that_the_table_says(code: int) -> None:
    bench = Bench()
    bench.join()
    bench.beat()
    effects = bench.answer(code=code, text="because")
    reaction = REACTIONS.get(code)
    then = reaction.then if reaction else {69: Then.REJOIN, 7: Then.RETRY, 22: Then.GIVE_UP}[code]
    forgotten = [each for each in effects if isinstance(each, ForgetCoordinator)]
    assert bool(forgotten) == (code in (15, 16))
    told = [each.error for each in effects if isinstance(each, Report)]
    assert [type(error) for error in told] == ([TopicAuthorizationFailedError] if code == 29 else [])
    if then is Then.RETRY:
        assert Lose not in map(type, effects) and bench.member.owned == parts(0, 1)
        if bench.asked is None:
            bench.beat()
        assert (bench.request.member_epoch, bench.owned_said()) == (2, {JOBS: [0, 1]}), "as before, and in full"
        assert bench.now - 105.0 == pytest.approx({16: 0.0, 113: 0.0, 29: 1.0}.get(code, BACKOFF_S))
        return
    assert effects == [Lose(parts(0, 1))]
    assert bench.asked is None and bench.member.generation == NO_GENERATION
    assert bench.poll(60.0) == [] and bench.asked is None, "no heartbeat before the partitions are given up"
    effects = bench.done(effects)
    assert bench.member.owned == frozenset()
    if then is Then.REJOIN:
        assert effects == []
        assert (bench.request.member_epoch, bench.request.member_id, bench.owned_said()) == (0, "m", {})
        assert bench.request.subscribed_topic_names == ["jobs"]
    else:
        (report,) = effects
        expected = UnsupportedVersionError if code == 35 else ERRORS_BY_CODE[code]
        assert isinstance(report, Report) and isinstance(report.error, expected) and report.is_fatal
        assert ("group_protocol" if code == 35 else "because") in str(report.error)
        assert bench.poll(1000.0) == [] and bench.asked is None and bench.member.next_deadline == inf


def test_a_member_that_was_fenced_gets_all_as_new() -> None:
    bench = Bench()
    bench.join()
    bench.beat()
    bench.done(bench.answer(code=25))
    assert bench.answer(7, {JOBS: [0, 1]}) == [Assign(parts(0, 1), parts(0, 1))]
    assert bench.member.generation == 7


@pytest.mark.parametrize("code", [25, 110])
def test_a_member_that_is_fenced_again_and_again_waits_ever_longer(code: int) -> None:
    bench = Bench()
    bench.member.subscribe(Subscription(frozenset({"jobs"})), bench.now)
    bench.poll()
    waits = []
    for _ in range(6):
        bench.answer(code=code)
        waits.append(0.0 if bench.asked else round(bench.member.next_deadline - bench.now, 3))
        if not bench.asked:
            bench.beat()
    assert waits == [0.0, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_what_is_being_revoked_when_the_member_is_fenced_is_finished_and_the_rest_is_lost() -> None:
    bench = Bench()
    bench.join([0, 1, 2])
    bench.beat()
    effects = bench.answer(2, {JOBS: [0]})
    assert effects == [Revoke(parts(1, 2))]
    bench.beat()
    assert bench.answer(code=25) == [], "one step at a time"
    effects = bench.done(effects)
    assert effects == [Lose(parts(0))]
    assert bench.done(effects) == []
    assert bench.request.member_epoch == 0


def test_what_is_being_assigned_when_the_member_is_fenced_is_lost_afterwards() -> None:
    bench = Bench()
    bench.member.subscribe(Subscription(frozenset({"jobs"})), bench.now)
    bench.poll()
    effects = bench.answer(2, {JOBS: [0]})
    bench.beat()
    assert bench.answer(code=110) == []
    effects = bench.done(effects)
    assert effects == [Lose(parts(0))]
    assert bench.asked is None


@pytest.mark.parametrize(
    "error",
    [IncompatibleBrokerVersion("no ConsumerGroupHeartbeat"), UnsupportedVersionError("group.version")],
)
def test_a_broker_without_the_protocol_is_one_error_that_names_the_setting(error: Exception) -> None:
    bench = Bench()
    bench.member.subscribe(Subscription(frozenset({"jobs"})), bench.now)
    bench.poll()
    (report,) = bench.fail(error)
    assert isinstance(report, Report) and report.is_fatal
    assert isinstance(report.error, UnsupportedVersionError)
    assert "group_protocol='classic'" in str(report.error) and "group.version" in str(report.error)
    assert bench.poll(60.0) == [] and bench.asked is None


def test_a_broker_that_evaluates_no_patterns_is_an_error_that_says_so() -> None:
    bench = Bench()
    bench.member.subscribe(Subscription(pattern="a.*"), bench.now)
    bench.poll()
    (report,) = bench.fail(UnsupportedFieldError("subscribed_topic_regex"))
    assert isinstance(report, Report) and "pattern=" in str(report.error)


def test_who_may_not_log_in_gives_up() -> None:
    bench = Bench()
    bench.join()
    bench.beat()
    effects = bench.fail(SaslAuthenticationFailedError("wrong password"))
    assert effects == [Lose(parts(0, 1))]
    (report,) = bench.done(effects)
    assert isinstance(report, Report) and isinstance(report.error, SaslAuthenticationFailedError)


def test_after_a_wrong_pattern_another_subscription_leaves_and_begins_again() -> None:
    bench = Bench()
    bench.join()
    bench.member.subscribe(Subscription(pattern="("), bench.now)
    bench.poll()
    effects = bench.done(bench.answer(code=128, text="missing closing )"))
    assert isinstance(effects[0], Report) and isinstance(effects[0].error, InvalidRegularExpressionError)
    bench.member.subscribe(Subscription(pattern="jo.*"), bench.now)
    assert bench.poll() == []
    assert bench.request.member_epoch == -1, "the group still has it, under its last epoch"
    bench.answer(-1)
    assert (bench.request.member_epoch, bench.request.subscribed_topic_regex) == (0, "jo.*")


def test_a_refused_commit_makes_the_member_ask_the_coordinator_at_once() -> None:
    bench = Bench()
    bench.join()
    bench.member.fenced(StaleMemberEpochError("old"), bench.now)
    assert bench.poll() == []
    assert bench.request.member_epoch == 2
    assert bench.answer(4) == []
    assert (bench.member.generation, bench.member.owned) == (4, parts(0, 1))


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
    assert bench.answer(epoch) == []
    assert bench.member.generation == NO_GENERATION
    assert bench.poll(1000.0) == [] and bench.asked is None, "silence"
    bench.member.polled_at = inf
    assert bench.done(effects) == []
    assert (bench.request.member_epoch, bench.owned_said()) == (0, {})


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
    bench.member.subscribe(Subscription(frozenset({"jobs"})), bench.now)
    assert bench.poll(100.0) == [] and bench.asked is None and bench.member.next_deadline == inf


def test_who_never_joined_has_nothing_to_leave() -> None:
    bench = Bench()
    bench.member.leave(bench.now)
    assert bench.poll() == [Left()]


def test_a_join_that_is_out_is_left_again() -> None:
    bench = Bench()
    bench.member.subscribe(Subscription(frozenset({"jobs"})), bench.now)
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
    bench.member.hurry(bench.now)
    assert bench.poll() == []
    assert bench.request.member_epoch == epoch
    leave = bench.asked
    bench.member.hurry(bench.now)
    assert bench.poll() == [] and bench.asked is leave, "it goes out once"
    assert heartbeat is not None
    bench.member.failed(heartbeat, KafkaConnectionError("gone"), bench.now)
    assert bench.answer(epoch) == [Left()]


def test_who_leaves_in_a_hurry_does_so_behind_the_join_that_is_out() -> None:
    bench = Bench()
    bench.member.subscribe(Subscription(frozenset({"jobs"})), bench.now)
    bench.poll()
    bench.asked = None
    bench.member.leave(bench.now)
    bench.member.hurry(bench.now)
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
    for _ in range(LEAVE_ATTEMPTS - 1):
        assert bench.beat().member_epoch == -1
        effects = bench.fail(KafkaConnectionError("gone"))
    assert effects == [Left()]


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
    bench.member.subscribe(Subscription(), bench.now)
    effects = bench.poll()
    assert effects == [Revoke(parts(0, 1))]
    bench.done(effects)
    assert bench.request.member_epoch == -1
    assert bench.answer(-1) == []
    assert (bench.member.state_name, bench.member.next_deadline) == ("unjoined", inf)
    bench.member.subscribe(Subscription(frozenset({"logs"})), bench.now)
    bench.poll()
    assert (bench.request.member_epoch, bench.request.subscribed_topic_names) == (0, ["logs"])


def test_a_subscription_that_comes_back_before_the_member_is_out_joins_after_it_is() -> None:
    bench = Bench()
    bench.join()
    bench.member.subscribe(Subscription(), bench.now)
    effects = bench.poll()
    bench.member.subscribe(Subscription(frozenset({"logs"})), bench.now)
    bench.done(effects)
    assert bench.request.member_epoch == -1
    assert bench.answer(-1) == []
    assert (bench.request.member_epoch, bench.request.subscribed_topic_names) == (0, ["logs"])


# -- static members that find their own place taken by themselves ----------------------------------------------------


def test_a_static_member_whose_join_was_not_answered_leaves_its_place_before_it_joins_again() -> None:
    bench = Bench(group_instance_id="i")
    bench.member.subscribe(Subscription(frozenset({"jobs"})), bench.now)
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
    bench.member.subscribe(Subscription(frozenset({"jobs"})), bench.now)
    bench.poll()
    bench.fail(KafkaConnectionError("gone"))
    bench.beat()
    bench.answer(code=82)
    (report,) = bench.answer(code=111, text="owned by somebody else")
    assert isinstance(report, Report) and report.is_fatal and "owned by somebody else" in str(report.error)
