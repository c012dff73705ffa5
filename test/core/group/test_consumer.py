"""A member of a group of the new protocol, step by step: what it says, what it does with answers and errors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import inf
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from kafka.core.group.consumer import ConsumerMember
from kafka.core.group.consumer_reactions import REACTIONS
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
    CoordinatorNotAvailableError,
    GroupAuthorizationFailedError,
    IllegalArgumentError,
    IllegalStateError,
    IncompatibleBrokerVersion,
    InvalidRegularExpressionError,
    KafkaConnectionError,
    KafkaError,
    KafkaProtocolError,
    SaslAuthenticationFailedError,
    StaleMemberEpochError,
    UnsupportedFieldError,
    UnsupportedVersionError,
    for_code,
)
from kafka.protocol.consumer_group import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from kafka.structs import TopicPartition
from test.core.group.classic_bench import Seen
from test.core.retriable import RETRIABLE

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

    def __init__(
        self, names: Mapping[UUID, str] | None = None, max_poll_interval_s: float = MAX_POLL_S, **options: Any
    ) -> None:
        self.now = 100.0
        self.names = dict(NAMES if names is None else names)
        self.member = ConsumerMember(
            "g",
            member_id="m",
            max_poll_interval_s=max_poll_interval_s,
            request_timeout_s=30.0,
            retry_backoff=Backoff(BACKOFF_S, 1.0, NoChance()),
            topic_of_id=self.names.get,
            **options,
        )
        self.asked: Ask | None = None

    def poll(self, after_s: float = 0.0) -> Seen:
        """All effects but requests, which are kept in ``asked``."""
        self.now += after_s
        effects = self.member.poll(self.now)
        asks = [each for each in effects if isinstance(each, Ask)]
        assert len(asks) <= 1 and not (asks and self.asked), "one request in flight at a time"
        assert self.member.next_deadline > self.now, "or the loop would spin"
        if asks:
            self.asked = asks[0]
        return Seen(each for each in effects if not isinstance(each, Ask))

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
    ) -> Seen:
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

    def fail(self, error: BaseException) -> Seen:
        ask, self.asked = self.asked, None
        assert ask is not None
        self.member.failed(ask, error, self.now)
        return self.poll()

    def done(self, effects: Collection[Effect]) -> Seen:
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
    assert waits == [0.2, 0.4, 0.8, 1.6, 3.0, 3.0, 3.0, 3.0]
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


RETRY, REJOIN, GIVE_UP = "say everything again", "give up the partitions and join anew", "tell the user, and stop"


class Expected(NamedTuple):
    """What a member is to do about an error of a ConsumerGroupHeartbeat response. Never read from the table under test.

    ``wait_s``: before the first attempt; ``coordinator``: it is looked for; ``told``: the user hears of it though the
    member goes on; ``is_member``: the group still has this member, so that a place is left before it is taken anew.
    """

    then: str
    wait_s: float | None
    coordinator: bool
    told: bool
    is_member: bool
    source: str


# By hand, from Apache Kafka 4.3.0's AbstractHeartbeatRequestManager.onErrorResponse and
# ConsumerHeartbeatRequestManager.handleSpecificExceptionInResponse ("Java" below), GroupMetadataManager ("broker") and
# KIP-848. "Fatal" is handleFatalFailure. test/conformance/test_groups.py provokes on Apache Kafka 4.3.0:
# UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, GROUP_ID_NOT_FOUND, INVALID_REQUEST, FENCED_INSTANCE_ID,
# UNRELEASED_INSTANCE_ID, UNSUPPORTED_ASSIGNOR, INVALID_REGULAR_EXPRESSION; test_full_groups.py GROUP_MAX_SIZE_REACHED.
EXPECTED: dict[str, Expected] = {
    # error                                  then    wait_s     coord. told  member  source
    "COORDINATOR_LOAD_IN_PROGRESS": Expected(RETRY, BACKOFF_S, False, False, True, "Java: back-off, same coordinator"),
    "COORDINATOR_NOT_AVAILABLE": Expected(
        RETRY, BACKOFF_S, True, False, True,
        "Java: markCoordinatorUnknown, no back-off for the heartbeat but one for FindCoordinator; here both are one",
    ),
    "NOT_COORDINATOR": Expected(RETRY, 0.0, True, False, True, "Java: markCoordinatorUnknown, no back-off"),
    "TOPIC_AUTHORIZATION_FAILED": Expected(
        RETRY, 1.0, False, True, True, "Java: ErrorEvent, not fatal; rights may be granted. The user is not told faster"
    ),
    "STALE_MEMBER_EPOCH": Expected(
        RETRY, 0.0, False, False, True,
        "KIP-848: of commits and look-ups; unexpected, so fatal, in Java's heartbeats. The next answer has the epoch",
    ),
    "UNKNOWN_MEMBER_ID": Expected(
        REJOIN, 0.0, False, False, False, "Java: transitionToFenced, no back-off; broker: it does not have the member"
    ),
    "FENCED_MEMBER_EPOCH": Expected(
        REJOIN, 0.0, False, False, True, "Java: transitionToFenced, no back-off; broker: it has the member, elsewhere"
    ),
    "GROUP_ID_NOT_FOUND": Expected(
        REJOIN, 0.0, False, False, False,
        "Java: fatal but while unsubscribed. Here a group that has vanished (DeleteGroups) is joined anew",
    ),
    "INVALID_GROUP_ID": Expected(GIVE_UP, None, False, False, False, "Java: unexpected, so fatal; it stays so"),
    "GROUP_AUTHORIZATION_FAILED": Expected(GIVE_UP, None, False, False, True, "Java: fatal; the member is not removed"),
    "UNSUPPORTED_VERSION": Expected(
        GIVE_UP, None, False, False, False, "Java: fatal, names group.protocol; broker: group.version is 0, no member"
    ),
    "INVALID_REQUEST": Expected(GIVE_UP, None, False, False, True, "Java: fatal; the member is not removed"),
    "GROUP_MAX_SIZE_REACHED": Expected(GIVE_UP, None, False, False, False, "Java: fatal; broker: no such member"),
    "FENCED_INSTANCE_ID": Expected(
        GIVE_UP, None, False, False, False, "Java: fatal; broker: the instance id belongs to another member id"
    ),
    "UNRELEASED_INSTANCE_ID": Expected(
        GIVE_UP, None, False, False, False, "Java: fatal; broker: the instance id still belongs to another member id"
    ),
    "UNSUPPORTED_ASSIGNOR": Expected(GIVE_UP, None, False, False, True, "Java: fatal; the member is not removed"),
    "INVALID_REGULAR_EXPRESSION": Expected(GIVE_UP, None, False, False, True, "Java: fatal; the member is not removed"),
}  # fmt: skip
JOINING_AGAINST = {"GROUP_ID_NOT_FOUND": "broker: the group is of another type, and stays so"}
"""Errors that are final when they answer a join."""
CODES = {error.message: code for code, error in ERRORS_BY_CODE.items() if code}


def expected(name: str) -> Expected:
    """Without a row, what Kafka calls retriable is tried again (Java: unexpected, so fatal), and all else is final."""
    if name in EXPECTED:
        return EXPECTED[name]
    if name in RETRIABLE:
        return Expected(RETRY, BACKOFF_S, False, False, True, "")
    return Expected(GIVE_UP, None, False, False, True, "")


def test_the_table_has_a_row_for_every_expectation_and_no_other() -> None:
    rows = {for_code(code).message for code in REACTIONS} | {"GROUP_ID_NOT_FOUND"}  # which depends on the epoch
    assert rows == EXPECTED.keys()


@pytest.mark.parametrize("instance", [None, "i"])
def test_a_member_does_what_is_expected_about_every_error_of_a_heartbeat(instance: str | None) -> None:
    wrong = []
    for name, code in CODES.items():
        found, wanted = observe(Bench(group_instance_id=instance), code), expected(name)
        if instance is None and wanted.then is REJOIN:
            wanted = wanted._replace(is_member=False)  # the id tells its places apart: it joins at once
        if found != wanted._replace(source=""):
            wrong.append(f"{name}: {found}, expected {wanted}")
    assert not wrong, "\n".join(wrong)


def observe(bench: Bench, code: int) -> Expected:
    """What a member that owns partitions does about ``code``; what is the same for all errors is asserted."""
    leave_epoch = -1 if bench.member.group_instance_id is None else -2
    bench.join()
    bench.beat()
    began = bench.now
    effects = bench.answer(code=code, text="because")
    is_looked_for = [type(each.error).errno for each in effects if isinstance(each, ForgetCoordinator)] == [code]  # type: ignore[attr-defined]
    reports = [each for each in effects if isinstance(each, Report)]
    if Lose(parts(0, 1)) not in effects:
        assert bench.member.owned == parts(0, 1)
        assert [(type(each.error).errno, each.is_fatal) for each in reports] in ([], [(code, False)])  # type: ignore[attr-defined]
        if bench.asked is None:
            bench.beat()
        assert (bench.request.member_epoch, bench.owned_said()) == (2, {JOBS: [0, 1]}), "as before, and in full"
        return Expected(RETRY, round(bench.now - began, 6), is_looked_for, bool(reports), True, "")
    assert effects == [Lose(parts(0, 1))]
    assert bench.asked is None and bench.member.generation == NO_GENERATION
    effects = bench.done(effects)
    assert bench.member.owned == frozenset()
    if not effects:
        if bench.asked is None:
            bench.beat()
        is_member = bench.request.member_epoch == leave_epoch
        if is_member:
            bench.answer(leave_epoch)
        assert (bench.request.member_epoch, bench.request.member_id, bench.owned_said()) == (0, "m", {})
        assert bench.request.subscribed_topic_names == ["jobs"]
        return Expected(REJOIN, round(bench.now - began, 6), is_looked_for, False, is_member, "")
    (report,) = effects
    wanted = UnsupportedVersionError if code == 35 else ERRORS_BY_CODE[code]
    assert isinstance(report, Report) and isinstance(report.error, wanted) and report.is_fatal
    assert ("group_protocol" if code == 35 else "because") in str(report.error)
    assert bench.poll(1000.0) == [] and bench.asked is None and bench.member.next_deadline == inf
    bench.member.subscribe(Subscription(frozenset({"logs"})), bench.now)
    assert bench.poll() == []
    assert bench.request.member_epoch in (leave_epoch, 0)
    return Expected(GIVE_UP, None, is_looked_for, False, bench.request.member_epoch == leave_epoch, "")


@pytest.mark.parametrize("code", [25, 30])
def test_no_heartbeat_goes_out_before_the_partitions_are_given_up(code: int) -> None:
    bench = Bench()
    bench.join()
    bench.beat()
    assert bench.answer(code=code) == [Lose(parts(0, 1))]
    assert bench.poll(60.0) == [] and bench.asked is None


@pytest.mark.parametrize("name", sorted(JOINING_AGAINST))
def test_an_error_that_is_final_when_it_answers_a_join(name: str) -> None:
    bench = Bench()
    bench.member.subscribe(Subscription(frozenset({"jobs"})), bench.now)
    bench.poll()
    (report,) = bench.answer(code=CODES[name])
    assert isinstance(report, Report) and report.is_fatal and isinstance(report.error, ERRORS_BY_CODE[CODES[name]])


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
    assert bench.beat().member_epoch == -1
    assert bench.fail(KafkaConnectionError("gone")) == [Left()], "two attempts"


def test_each_leave_has_its_own_two_attempts() -> None:
    bench = Bench()
    for _ in range(2):
        bench.join()
        bench.member.subscribe(Subscription(), bench.now)
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


# -- limits ----------------------------------------------------------------------------------------------------------


def test_the_first_of_the_quick_heartbeats_is_the_quickest_whenever_a_member_has_nothing() -> None:
    bench = Bench()

    def wait_s() -> float:
        return round(bench.member.next_deadline - bench.now, 3)

    bench.member.subscribe(Subscription(frozenset({"jobs"})), bench.now)
    bench.poll()
    bench.done(bench.answer(2, {}))
    bench.answer(2)
    assert wait_s() == 0.2, "the second"
    bench.beat()
    bench.done(bench.answer(3, {JOBS: [0]}))
    bench.answer(3)
    bench.beat()
    bench.done(bench.done(bench.answer(4, {})))
    bench.answer(4)
    bench.answer(4)
    assert wait_s() == 0.2, "the second after it had partitions"
    bench.member.subscribe(Subscription(frozenset({"logs"})), bench.now)
    bench.poll()
    bench.answer(4)
    assert wait_s() == 0.1, "after another subscription"
    bench.beat()
    bench.answer(code=25)
    bench.answer(5)
    assert wait_s() == 0.1, "after it was fenced"


def test_a_member_that_waits_for_a_topics_name_or_for_its_user_is_not_in_a_hurry() -> None:
    bench = Bench(names={JOBS: "jobs"})
    bench.member.subscribe(Subscription(frozenset({"jobs", "logs"})), bench.now)
    bench.poll()
    bench.answer(2, {LOGS: [0]})
    assert bench.member._due_at == bench.now + INTERVAL_S
    bench.member.subscribe(Subscription(frozenset({"jobs"})), bench.now)
    bench.poll()
    bench.done(bench.answer(3, {JOBS: [0]}))
    bench.answer(3)
    bench.beat()
    assert bench.answer(4, {}) == [Revoke(parts(0))]
    assert bench.member.next_deadline == bench.now + INTERVAL_S


def test_what_was_not_under_way_is_not_carried_out() -> None:
    bench = Bench()
    bench.member.subscribe(Subscription(frozenset({"jobs"})), bench.now)
    bench.poll()
    effects = bench.answer(2, {JOBS: [0]})
    bench.member.revoked(bench.now)
    bench.member.lost(bench.now)
    assert bench.poll() == [] and bench.asked is None
    assert bench.member.owned == frozenset()
    bench.done(effects)
    assert bench.member.owned == parts(0)


def test_a_poll_interval_that_no_message_can_carry_is_the_longest_that_one_can() -> None:
    bench = Bench(max_poll_interval_s=3e9)
    bench.member.subscribe(Subscription(frozenset({"jobs"})), bench.now)
    bench.poll()
    assert bench.request.rebalance_timeout_ms == 2_147_483_647


def test_the_member_id_is_the_brokers_if_it_gives_one() -> None:
    bench = Bench()
    bench.member.subscribe(Subscription(frozenset({"jobs"})), bench.now)
    bench.poll()
    ids = []
    for member_id in (None, "given", ""):
        ask, bench.asked = bench.asked, None
        assert ask is not None
        response = ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0, error_code=0, member_id=member_id, member_epoch=2, heartbeat_interval_ms=5000
        )
        bench.member.answered(ask, response, bench.now)
        bench.poll()
        ids.append(bench.beat().member_id)
    assert ids == ["m", "given", "given"]


NO_PROTOCOL, NO_PATTERNS = "group.version", "evaluates need ConsumerGroupHeartbeat 1"


@pytest.mark.parametrize(
    ("error", "pattern", "text"),
    [
        (UnsupportedFieldError("subscribed_topic_regex"), "a.*", NO_PATTERNS),
        (UnsupportedFieldError("another field"), None, NO_PROTOCOL),
        (UnsupportedVersionError("no"), "a.*", NO_PROTOCOL),
    ],
)
def test_what_a_broker_lacks_is_named(error: Exception, pattern: str | None, text: str) -> None:
    bench = Bench()
    bench.member.subscribe(Subscription(frozenset({"jobs"}), pattern), bench.now)
    bench.poll()
    (report,) = bench.fail(error)
    assert isinstance(report, Report) and report.is_fatal and text in str(report.error)


@pytest.mark.parametrize(
    ("error", "is_final"),
    [
        (KafkaConnectionError("gone"), False),
        (KafkaProtocolError("not a response"), False),
        (CoordinatorNotAvailableError("none"), False),
        (GroupAuthorizationFailedError("g"), True),
        (IllegalArgumentError("a name that cannot be written"), True),
        (IllegalStateError("the client is closed"), True),
    ],
)
@pytest.mark.parametrize("is_member", [False, True])
def test_what_comes_instead_of_an_answer_is_final_only_when_no_other_attempt_can_mend_it(
    error: KafkaError, is_final: bool, is_member: bool
) -> None:
    bench = Bench()
    if is_member:
        bench.join()
        bench.beat()
    else:
        bench.member.subscribe(Subscription(frozenset({"jobs"})), bench.now)
        bench.poll()
    effects = bench.fail(error)
    if not is_final:
        assert effects == [ForgetCoordinator(error)]
        assert bench.beat().member_epoch == (2 if is_member else 0)
        return
    if is_member:
        assert effects == [Lose(parts(0, 1))]
        effects = bench.done(effects)
    assert effects == [Report(error, is_fatal=True)]
    bench.member.subscribe(Subscription(frozenset({"jobs"})), bench.now)
    assert bench.poll() == []
    assert bench.request.member_epoch == (-1 if is_member else 0), "a place that the group has is left first"


def test_a_join_that_is_refused_for_good_leaves_nothing_to_leave() -> None:
    bench = Bench()
    bench.member.subscribe(Subscription(frozenset({"jobs"})), bench.now)
    bench.poll()
    (report,) = bench.answer(code=30)
    assert isinstance(report, Report)
    bench.member.subscribe(Subscription(frozenset({"jobs"})), bench.now)
    assert bench.poll() == []
    assert bench.request.member_epoch == 0, "the same subscription is another attempt"


def test_the_same_subscription_says_nothing() -> None:
    bench = Bench()
    bench.join()
    bench.member.subscribe(Subscription(frozenset({"jobs"})), bench.now)
    assert bench.poll() == [] and bench.asked is None
    assert bench.beat().subscribed_topic_names is None


def test_another_attempt_after_the_end_begins_with_the_first_back_off() -> None:
    bench = Bench()
    bench.join()
    for _ in range(3):
        bench.beat()
        bench.answer(code=14)
    bench.beat()
    bench.done(bench.answer(code=128))
    bench.member.subscribe(Subscription(frozenset({"logs"})), bench.now)
    bench.poll()
    bench.fail(KafkaConnectionError("gone"))
    assert bench.member.next_deadline == bench.now + BACKOFF_S


def test_a_user_who_is_late_while_a_heartbeat_is_out_is_left_for_as_soon_as_it_is_answered() -> None:
    bench = Bench(max_poll_interval_s=INTERVAL_S + 1.0)
    bench.join()
    bench.member.polled_at = bench.now
    bench.beat()
    assert bench.poll(1.0) == [Lose(parts(0, 1))]
    assert bench.answer(2) == []
    assert bench.request.member_epoch == -1, "before the user has carried anything out"
