"""Every error code of every answer, and what a member of a classic group does about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from kafka.core.group.classic import (
    HEARTBEAT_ERRORS,
    JOIN_ERRORS,
    SYNC_ERRORS,
    ClassicErrorAction,
)
from kafka.core.group.machine import NO_GENERATION, ForgetCoordinator, Lose, ReportError, Revoke
from kafka.errors import (
    ERRORS_BY_CODE,
    AuthenticationError,
    GroupAuthorizationFailedError,
    IllegalStateError,
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    RequestTimedOutError,
    UnknownBrokerIdError,
    UnsupportedFieldError,
)
from kafka.protocol.groups import HeartbeatRequest, JoinGroupRequest
from kafka.wire.message import Response
from test.core.group.classic_bench import BACKOFF_S, BEAT_S, Bench, Seen, beat, join_error, joined, parts, synced
from test.core.retriable import RETRIABLE

CODES = {error.message: code for code, error in ERRORS_BY_CODE.items() if code}


class Expected(NamedTuple):
    """What a member is to do about an error of a JoinGroup, SyncGroup and Heartbeat response. Never read from the
    tables under test."""

    join: ClassicErrorAction
    sync: ClassicErrorAction
    heartbeat: ClassicErrorAction
    source: str


# By hand, from Apache Kafka 4.3.0's AbstractCoordinator ("Java" below: its JoinGroupResponseHandler,
# SyncGroupResponseHandler and HeartbeatResponseHandler, and joinGroupIfNeeded) and the KIPs. Where Java throws out of
# poll() and the next poll() tries again, a member here reports the error and tries again after a pause (REPORT), unless
# no later attempt can end otherwise (GIVE_UP). test/conformance/test_groups.py provokes on Apache Kafka 4.3.0:
# ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL, INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, INVALID_SESSION_TIMEOUT,
# REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED, FENCED_INSTANCE_ID; test_group_max_size.py GROUP_MAX_SIZE_REACHED.
R = ClassicErrorAction
EXPECTED: dict[str, Expected] = {
    "COORDINATOR_LOAD_IN_PROGRESS": Expected(
        R.RETRY, R.RETRY, R.RETRY,
        "Java join: retriable, same coordinator. Java sync and heartbeat: unexpected, since GroupCoordinatorService "
        "answers REBALANCE_IN_PROGRESS and NONE there instead; waiting is right for whoever does send it",
    ),
    "COORDINATOR_NOT_AVAILABLE": Expected(
        R.FIND_COORDINATOR, R.FIND_COORDINATOR, R.FIND_COORDINATOR, "Java: markCoordinatorUnknown, retriable"
    ),
    "NOT_COORDINATOR": Expected(
        R.FIND_COORDINATOR, R.FIND_COORDINATOR, R.FIND_COORDINATOR, "Java: markCoordinatorUnknown, retriable"
    ),
    "ILLEGAL_GENERATION": Expected(
        R.NEW_GENERATION, R.NEW_GENERATION, R.NEW_GENERATION,
        "Java sync and heartbeat: resetStateOnResponseError that keeps the member id; joinGroupIfNeeded goes on at "
        "once. Brokers do not answer a join with it",
    ),
    "INCONSISTENT_GROUP_PROTOCOL": Expected(
        R.REPORT, R.REPORT, R.REPORT,
        "Java join: thrown; sync: KIP-559; the other members may change. Brokers do not answer a heartbeat with it",
    ),
    "INVALID_GROUP_ID": Expected(
        R.GIVE_UP, R.GIVE_UP, R.GIVE_UP, "Java join: thrown; the id of a consumer cannot change, so it is final here"
    ),
    "UNKNOWN_MEMBER_ID": Expected(
        R.NEW_MEMBER, R.NEW_MEMBER, R.NEW_MEMBER,
        "Java: resetStateOnResponseError that drops the member id; joinGroupIfNeeded goes on at once",
    ),
    "INVALID_SESSION_TIMEOUT": Expected(
        R.GIVE_UP, R.REPORT, R.REPORT,
        "Java join: thrown; session_timeout_ms of a consumer cannot change, so it is final here. Only joins carry it: "
        "in another answer it is unexpected",
    ),
    "REBALANCE_IN_PROGRESS": Expected(
        R.REJOIN, R.REJOIN, R.REJOIN, "Java join and sync: joinGroupIfNeeded goes on at once; heartbeat: requestRejoin"
    ),
    "GROUP_AUTHORIZATION_FAILED": Expected(
        R.REPORT, R.REPORT, R.REPORT, "Java: GroupAuthorizationException from poll(); the right may be granted"
    ),
    "UNSUPPORTED_VERSION": Expected(
        R.GIVE_UP, R.GIVE_UP, R.GIVE_UP, "Java join: thrown (group.instance.id unknown to the broker); it stays so"
    ),
    "INVALID_REQUEST": Expected(
        R.GIVE_UP, R.GIVE_UP, R.GIVE_UP, "Java: unexpected, thrown; the same request would be refused again"
    ),
    "MEMBER_ID_REQUIRED": Expected(
        R.TAKE_ID, R.REPORT, R.REPORT, "KIP-394; Java join: the id of the answer, requestRejoin. Of a join only"
    ),
    "GROUP_MAX_SIZE_REACHED": Expected(
        R.REPORT, R.REPORT, R.REPORT, "KIP-389; Java join: GroupMaxSizeReachedException from poll(); a member may leave"
    ),
    "FENCED_INSTANCE_ID": Expected(
        R.GIVE_UP, R.GIVE_UP, R.GIVE_UP,
        "KIP-345: fatal. Java join and sync: always; heartbeat: HeartbeatThread.setFailureCause",
    ),
    "NOT_CONTROLLER": Expected(
        R.FIND_COORDINATOR, R.FIND_COORDINATOR, R.FIND_COORDINATOR,
        "Java: unexpected; it speaks of a broker that does not lead, as those of ASK_FOR_THE_COORDINATOR do",
    ),
    "REQUEST_TIMED_OUT": Expected(
        R.FIND_COORDINATOR, R.FIND_COORDINATOR, R.FIND_COORDINATOR,
        "Java: unexpected as an answer; without one, markCoordinatorUnknown. It is what a silent broker is",
    ),
}  # fmt: skip

# Java: "unexpected error", a KafkaException out of poll(). Here errors that Kafka calls retriable are not shown to the
# user: those of a broker that does not lead or cannot work now ask for the coordinator, others wait.
ASK_FOR_THE_COORDINATOR = {
    "UNKNOWN_TOPIC_OR_PARTITION", "LEADER_NOT_AVAILABLE", "NOT_LEADER_OR_FOLLOWER",
    "REPLICA_NOT_AVAILABLE", "NETWORK_EXCEPTION", "KAFKA_STORAGE_ERROR", "LISTENER_NOT_FOUND",
    "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "PREFERRED_LEADER_NOT_AVAILABLE",
    "ELIGIBLE_LEADERS_NOT_AVAILABLE", "ELECTION_NOT_NEEDED", "UNKNOWN_TOPIC_ID", "INCONSISTENT_TOPIC_ID",
}  # fmt: skip
TABLES = {"join": JOIN_ERRORS, "sync": SYNC_ERRORS, "heartbeat": HEARTBEAT_ERRORS}
ONLY_IN = {
    "INCONSISTENT_GROUP_PROTOCOL": {"join", "sync"},
    "INVALID_SESSION_TIMEOUT": {"join"},
    "MEMBER_ID_REQUIRED": {"join"},
    "GROUP_MAX_SIZE_REACHED": {"join"},
}
"""Errors that have a row in some of the tables only."""


def expected(kind: str, name: str) -> ClassicErrorAction:
    """What a member is to do about the error ``name`` of an answer to a request of ``kind``."""
    row = EXPECTED.get(name)
    if row is not None:
        return {"join": row.join, "sync": row.sync, "heartbeat": row.heartbeat}[kind]
    if name in ASK_FOR_THE_COORDINATOR:
        return R.FIND_COORDINATOR
    return R.RETRY if name in RETRIABLE else R.REPORT


def test_the_tables_have_the_expected_row_for_every_error_and_no_other() -> None:
    wrong = []
    for kind, table in TABLES.items():
        for name, code in CODES.items():
            found, wanted = table.action_for(ERRORS_BY_CODE[code]("")), expected(kind, name)
            if found is not wanted:
                wrong.append(f"{kind} {name}: {found.name}, expected {wanted.name}")
    assert not wrong, "\n".join(wrong)
    rows = {
        kind: {cls.message for cls in table.rows if getattr(cls, "errno", None)}  # type: ignore[attr-defined]
        for kind, table in TABLES.items()
    }
    assert rows == {kind: {name for name in EXPECTED if kind in ONLY_IN.get(name, TABLES)} for kind in TABLES}


def at(kind: str, assignor: str) -> Bench:
    """A member that waits for an answer to a request of ``kind``, and owns something where it can by then."""
    bench = Bench((assignor,)).join(0, protocol=assignor)
    if kind == "heartbeat":
        bench.poll(BEAT_S)
        return bench
    bench.member.rejoin("a test", bench.now)
    bench.poll()
    bench.carry_out()
    if kind == "sync":
        bench.answer(joined(2, protocol=assignor))
    return bench


ANSWERS: dict[str, Callable[[int], Response]] = {
    "join": lambda code: join_error(code, "given"),
    "sync": lambda code: synced(code=code),
    "heartbeat": beat,
}


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("kind", sorted(TABLES))
def test_a_member_does_what_is_expected_about_every_error(kind: str, assignor: str) -> None:
    for name, code in CODES.items():
        reaction = expected(kind, name)
        bench = at(kind, assignor)
        generation, owned = bench.member.generation, bench.member.owned
        effects = bench.answer(ANSWERS[kind](code))
        what = f"{kind} answered {name}: {reaction}"
        kinds = [type(each) for each in effects]
        assert (ReportError in kinds) == (reaction in (ClassicErrorAction.REPORT, ClassicErrorAction.GIVE_UP)), what
        assert (ForgetCoordinator in kinds) == (reaction is ClassicErrorAction.FIND_COORDINATOR), what
        is_gone = reaction in (
            ClassicErrorAction.NEW_MEMBER,
            ClassicErrorAction.NEW_GENERATION,
            ClassicErrorAction.GIVE_UP,
        )
        assert (bench.member.generation == NO_GENERATION) == is_gone, what
        assert (Lose(owned) in effects) == (is_gone and bool(owned)), what
        assert bench.member.member_id == MEMBER_IDS.get(reaction, "me"), what
        bench.seen = Seen(each for each in effects if isinstance(each, (Lose, Revoke)))
        bench.carry_out()
        if reaction is ClassicErrorAction.GIVE_UP:
            bench.poll(3600.0)
            assert bench.asked is None, what
            assert bench.member.state_name == "fatal", what
        elif kind == "heartbeat" and not is_gone:
            check_that_it_beats_or_rejoins(bench, reaction, generation, what)
        else:
            pause_s = PAUSES_S.get(reaction, 0.0)
            if pause_s:
                assert bench.asked is None, what
                bench.poll(pause_s - 0.001)
                assert bench.asked is None, what
                bench.poll(0.001)
            assert isinstance(bench.request, JoinGroupRequest), what
            assert bench.request.member_id == bench.member.member_id, what


REPORT_PAUSE_S = 1.0
MEMBER_IDS = {ClassicErrorAction.NEW_MEMBER: "", ClassicErrorAction.TAKE_ID: "given"}
PAUSES_S = {
    ClassicErrorAction.RETRY: BACKOFF_S,
    ClassicErrorAction.FIND_COORDINATOR: BACKOFF_S,
    ClassicErrorAction.REPORT: REPORT_PAUSE_S,
}


def check_that_it_beats_or_rejoins(bench: Bench, reaction: ClassicErrorAction, generation: int, what: str) -> None:
    if reaction is ClassicErrorAction.REJOIN:
        assert isinstance(bench.request, JoinGroupRequest), what
        return
    bench.poll(PAUSES_S[reaction] - 0.001)
    assert bench.asked is None, what
    bench.poll(0.001)
    assert isinstance(bench.request, HeartbeatRequest), what
    assert bench.request.generation_id == generation, what


def test_failures_in_a_row_wait_longer_and_a_success_forgets_them() -> None:
    bench = Bench()
    bench.subscribe("jobs")
    waits = []
    for _ in range(5):
        bench.answer(join_error(16))
        before = bench.now
        bench.until_deadline()
        waits.append(round(bench.now - before, 3))
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.0]
    bench.join(0)
    bench.poll(BEAT_S)
    bench.answer(beat(16))
    assert bench.member.next_deadline == bench.now + BACKOFF_S


def test_a_group_that_forgets_us_again_and_again_is_not_joined_in_a_tight_loop() -> None:
    bench = Bench()
    bench.subscribe("jobs")
    bench.answer(join_error(25))
    assert isinstance(bench.request, JoinGroupRequest), "the first time at once"
    bench.answer(join_error(25))
    assert bench.asked is None


@pytest.mark.parametrize(
    "error",
    [
        KafkaConnectionError("gone"),
        RequestTimedOutError("late"),
        KafkaTimeoutError("no coordinator was found"),
        UnknownBrokerIdError("node 3: not in the cluster's metadata"),
    ],
)
@pytest.mark.parametrize("kind", sorted(TABLES))
def test_no_answer_looks_for_the_coordinator_and_tries_again(kind: str, error: KafkaError) -> None:
    bench = at(kind, "cooperative-sticky")
    owned = bench.member.owned
    assert bench.fail(error) == [ForgetCoordinator(error)]
    assert bench.member.member_id == "me"
    assert bench.member.owned == owned
    bench.poll(BACKOFF_S)
    assert isinstance(bench.request, HeartbeatRequest if kind == "heartbeat" else JoinGroupRequest)


@pytest.mark.parametrize(
    "error",
    [
        AuthenticationError("nobody lets us in"),
        IncompatibleBrokerVersion("no such API"),
        UnsupportedFieldError("group_instance_id needs version 5"),
        IllegalStateError("the client is closed"),
    ],
)
@pytest.mark.parametrize("kind", sorted(TABLES))
def test_errors_that_no_retry_can_fix_are_final(kind: str, error: KafkaError) -> None:
    bench = at(kind, "range")
    owned = bench.member.owned
    effects = bench.fail(error)
    assert [each for each in effects if isinstance(each, ReportError)] == [ReportError(error, is_fatal=True)]
    assert [each for each in effects if isinstance(each, Lose)] == ([Lose(owned)] if owned else [])


def test_a_coordinator_that_may_not_be_asked_for_is_reported_and_tried_again() -> None:
    bench = Bench()
    bench.subscribe("jobs")
    error = GroupAuthorizationFailedError("g")
    assert bench.fail(error) == [ReportError(error)]
    bench.poll(REPORT_PAUSE_S)
    assert isinstance(bench.request, JoinGroupRequest)


def test_after_the_end_another_subscription_is_another_attempt() -> None:
    bench = at("join", "range")
    bench.answer(join_error(82))
    bench.subscribe("jobs")
    assert isinstance(bench.request, JoinGroupRequest)


@pytest.mark.parametrize("protocol_type", ["connect", ""])
def test_a_group_of_another_type_is_refused_also_when_the_broker_lets_us_in(protocol_type: str) -> None:
    bench = Bench()
    bench.subscribe("jobs")
    answer = joined()
    answer.protocol_type = protocol_type
    (report,) = bench.answer(answer)
    assert isinstance(report, ReportError) and "type" in str(report.error)


def test_a_sync_for_another_assignor_is_refused() -> None:
    bench = Bench()
    bench.subscribe("jobs")
    bench.answer(joined())
    (report,) = bench.answer(synced(0, protocol_name="sticky", protocol_type="consumer"))
    assert isinstance(report, ReportError) and "'sticky' instead of 'range'" in str(report.error)
    assert bench.member.owned == frozenset()


def test_an_assignor_that_was_not_offered_is_refused() -> None:
    bench = Bench()
    bench.subscribe("jobs")
    (report,) = bench.answer(joined(protocol="sticky"))
    assert isinstance(report, ReportError) and "'sticky', which was not offered" in str(report.error)


def test_an_assignment_that_cannot_be_read_is_reported_and_the_group_joined_again() -> None:
    bench = Bench()
    bench.subscribe("jobs")
    bench.answer(joined())
    answer = synced(0)
    answer.assignment = b"\x00\x01\x7f"
    (report,) = bench.answer(answer)
    assert isinstance(report, ReportError) and not report.is_fatal
    bench.poll(REPORT_PAUSE_S)
    assert isinstance(bench.request, JoinGroupRequest)


def test_what_is_owned_stays_owned_while_the_coordinator_is_looked_for() -> None:
    bench = Bench().join(0)
    bench.poll(BEAT_S)
    bench.fail(KafkaConnectionError("gone"))
    for _ in range(5):
        bench.until_deadline()
        bench.fail(KafkaConnectionError("gone"))
    assert bench.member.owned == parts(0)
    bench.until_deadline()
    bench.answer(beat())
    assert bench.member.state_name == "stable"


# What a user can do about it is not in Kafka's text: the setting or the right that it is about.
ADVICE = {
    "FENCED_INSTANCE_ID": "another process has joined with this group_instance_id",
    "GROUP_AUTHORIZATION_FAILED": "may not read the group",
    "GROUP_MAX_SIZE_REACHED": "group.max.size",
    "INCONSISTENT_GROUP_PROTOCOL": "partition_assignment_strategy",
    "INVALID_SESSION_TIMEOUT": "group.min.session.timeout.ms",
}


def test_errors_say_what_to_do() -> None:
    for name, code in CODES.items():
        if expected("join", name) not in (R.REPORT, R.GIVE_UP):
            continue
        bench = Bench(group_instance_id="i")
        bench.subscribe("jobs")
        (report,) = bench.answer(join_error(code))
        assert isinstance(report, ReportError)
        assert type(report.error) is ERRORS_BY_CODE[code]
        text = str(report.error)
        assert text.count("group g") == 1, text
        assert [advice for advice in ADVICE.values() if advice in text] == ([ADVICE[name]] if name in ADVICE else [])
