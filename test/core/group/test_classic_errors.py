"""Every error code of every answer, and what a member of a classic group does about it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka.core.group.attempts import REPORT_PAUSE_S
from kafka.core.group.classic_reactions import HEARTBEAT, JOIN, SYNC, Reaction, Table, reaction_to
from kafka.core.group.machine import NO_GENERATION, ForgetCoordinator, Lose, Report, Revoke
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
    UnsupportedFieldError,
)
from kafka.protocol.groups import HeartbeatRequest, JoinGroupRequest
from kafka.wire.message import Response
from test.core.group.classic_bench import BACKOFF_S, BEAT_S, Bench, Seen, beat, join_error, joined, parts, synced

OTHER = (0,)  # no error
CODES = sorted(code for code in ERRORS_BY_CODE if code not in OTHER)


def table_says(table: Table, code: int) -> Reaction:
    return reaction_to(ERRORS_BY_CODE[code](""), table)


# What Apache Kafka's Java client does, by hand: AbstractCoordinator's handlers of the answers.
JAVA: dict[str, dict[int, Reaction]] = {
    "join": {
        14: Reaction.RETRY, 15: Reaction.FIND_COORDINATOR, 16: Reaction.FIND_COORDINATOR, 25: Reaction.NEW_MEMBER,
        27: Reaction.REJOIN, 79: Reaction.TAKE_ID, 82: Reaction.GIVE_UP, 23: Reaction.REPORT, 81: Reaction.REPORT,
        30: Reaction.REPORT, 24: Reaction.GIVE_UP, 26: Reaction.GIVE_UP, 35: Reaction.GIVE_UP,
    },
    "sync": {
        15: Reaction.FIND_COORDINATOR, 16: Reaction.FIND_COORDINATOR, 22: Reaction.NEW_GENERATION,
        23: Reaction.REPORT, 25: Reaction.NEW_MEMBER, 27: Reaction.REJOIN, 30: Reaction.REPORT, 82: Reaction.GIVE_UP,
    },
    "heartbeat": {
        15: Reaction.FIND_COORDINATOR, 16: Reaction.FIND_COORDINATOR, 22: Reaction.NEW_GENERATION,
        25: Reaction.NEW_MEMBER, 27: Reaction.REJOIN, 30: Reaction.REPORT, 82: Reaction.GIVE_UP,
    },
}  # fmt: skip
TABLES: dict[str, Table] = {"join": JOIN, "sync": SYNC, "heartbeat": HEARTBEAT}


@pytest.mark.parametrize(
    ("kind", "code", "reaction"),
    [(kind, code, reaction) for kind, rows in JAVA.items() for code, reaction in rows.items()],
)
def test_the_tables_say_what_javas_client_does(kind: str, code: int, reaction: Reaction) -> None:
    assert table_says(TABLES[kind], code) is reaction


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
def test_a_member_reacts_to_every_code_as_its_table_says(kind: str, assignor: str) -> None:
    for code in CODES:
        reaction = table_says(TABLES[kind], code)
        bench = at(kind, assignor)
        generation, owned = bench.member.generation, bench.member.owned
        effects = bench.answer(ANSWERS[kind](code))
        what = f"{kind} answered {code}: {reaction}"
        kinds = [type(each) for each in effects]
        assert (Report in kinds) == (reaction in (Reaction.REPORT, Reaction.GIVE_UP)), what
        assert (ForgetCoordinator in kinds) == (reaction is Reaction.FIND_COORDINATOR), what
        is_gone = reaction in (Reaction.NEW_MEMBER, Reaction.NEW_GENERATION, Reaction.GIVE_UP)
        assert (bench.member.generation == NO_GENERATION) == is_gone, what
        assert (Lose(owned) in effects) == (is_gone and bool(owned)), what
        assert bench.member.member_id == MEMBER_IDS.get(reaction, "me"), what
        bench.seen = Seen(each for each in effects if isinstance(each, (Lose, Revoke)))
        bench.carry_out()
        if reaction is Reaction.GIVE_UP:
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


MEMBER_IDS = {Reaction.NEW_MEMBER: "", Reaction.TAKE_ID: "given"}
PAUSES_S = {
    Reaction.RETRY: BACKOFF_S,
    Reaction.FIND_COORDINATOR: BACKOFF_S,
    Reaction.REPORT: REPORT_PAUSE_S,
}


def check_that_it_beats_or_rejoins(bench: Bench, reaction: Reaction, generation: int, what: str) -> None:
    if reaction is Reaction.REJOIN:
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
    [KafkaConnectionError("gone"), RequestTimedOutError("late"), KafkaTimeoutError("no coordinator was found")],
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
def test_what_no_other_attempt_can_mend_is_the_end(kind: str, error: KafkaError) -> None:
    bench = at(kind, "range")
    owned = bench.member.owned
    effects = bench.fail(error)
    assert [each for each in effects if isinstance(each, Report)] == [Report(error, is_fatal=True)]
    assert [each for each in effects if isinstance(each, Lose)] == ([Lose(owned)] if owned else [])


def test_a_coordinator_that_may_not_be_asked_for_is_reported_and_tried_again() -> None:
    bench = Bench()
    bench.subscribe("jobs")
    error = GroupAuthorizationFailedError("g")
    assert bench.fail(error) == [Report(error)]
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
    assert isinstance(report, Report) and "type" in str(report.error)


def test_a_sync_for_another_assignor_is_refused() -> None:
    bench = Bench()
    bench.subscribe("jobs")
    bench.answer(joined())
    (report,) = bench.answer(synced(0, protocol_name="sticky", protocol_type="consumer"))
    assert isinstance(report, Report) and "'sticky' instead of 'range'" in str(report.error)
    assert bench.member.owned == frozenset()


def test_an_assignor_that_was_not_offered_is_refused() -> None:
    bench = Bench()
    bench.subscribe("jobs")
    (report,) = bench.answer(joined(protocol="sticky"))
    assert isinstance(report, Report) and "'sticky', which was not offered" in str(report.error)


def test_an_assignment_that_cannot_be_read_is_told_of_and_the_group_joined_again() -> None:
    bench = Bench()
    bench.subscribe("jobs")
    bench.answer(joined())
    answer = synced(0)
    answer.assignment = b"\x00\x01\x7f"
    (report,) = bench.answer(answer)
    assert isinstance(report, Report) and not report.is_fatal
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


def test_users_are_told_what_to_do() -> None:
    bench = Bench(group_instance_id="i")
    bench.subscribe("jobs")
    (report,) = bench.answer(join_error(82))
    assert isinstance(report, Report) and "another process has joined with this group_instance_id" in str(report.error)
    bench = Bench()
    bench.subscribe("jobs")
    (report,) = bench.answer(join_error(26))
    assert isinstance(report, Report) and "group.min.session.timeout.ms" in str(report.error)
