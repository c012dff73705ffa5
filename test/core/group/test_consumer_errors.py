"""Every error code of an answer to a heartbeat (KIP-848), and what a member does about it."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import pytest

from kafka.core.group.heartbeat import CONSUMER_HEARTBEAT_ERRORS
from kafka.core.group.machine import (
    NO_GENERATION,
    ForgetCoordinator,
    GroupSubscription,
    Lose,
    ReportError,
)
from kafka.errors import ERRORS_BY_CODE, UnsupportedVersionError
from test.core.group.consumer_bench import BACKOFF_S, JOBS, Bench, parts
from test.core.retriable import RETRIABLE

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
# UNRELEASED_INSTANCE_ID, UNSUPPORTED_ASSIGNOR, INVALID_REGULAR_EXPRESSION; and in
# test_group_max_size.py GROUP_MAX_SIZE_REACHED.
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
    assert {error.message for error in CONSUMER_HEARTBEAT_ERRORS.rows} == EXPECTED.keys()  # type: ignore[attr-defined]


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
    reports = [each for each in effects if isinstance(each, ReportError)]
    if Lose(parts(0, 1)) not in effects:
        assert bench.member.owned == parts(0, 1)
        assert [(type(each.error).errno, each.is_fatal) for each in reports] in ([], [(code, False)])  # type: ignore[attr-defined]
        if bench.asked is None:
            bench.beat()
        assert (bench.request.member_epoch, bench.owned_partitions()) == (2, {JOBS: [0, 1]}), "as before, and in full"
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
        assert (bench.request.member_epoch, bench.request.member_id, bench.owned_partitions()) == (0, "m", {})
        assert bench.request.subscribed_topic_names == ["jobs"]
        return Expected(REJOIN, round(bench.now - began, 6), is_looked_for, False, is_member, "")
    (report,) = effects
    wanted = UnsupportedVersionError if code == 35 else ERRORS_BY_CODE[code]
    assert isinstance(report, ReportError) and isinstance(report.error, wanted) and report.is_fatal
    assert ("group_protocol" if code == 35 else "because") in str(report.error)
    assert bench.poll(1000.0) == [] and bench.asked is None and bench.member.next_deadline == inf
    bench.member.subscribe(GroupSubscription(frozenset({"logs"})), bench.now)
    assert bench.poll() == []
    assert bench.request.member_epoch in (leave_epoch, 0)
    return Expected(GIVE_UP, None, is_looked_for, False, bench.request.member_epoch == leave_epoch, "")


@pytest.mark.parametrize("name", sorted(JOINING_AGAINST))
def test_an_error_that_is_final_when_it_answers_a_join(name: str) -> None:
    bench = Bench()
    bench.member.subscribe(GroupSubscription(frozenset({"jobs"})), bench.now)
    bench.poll()
    (report,) = bench.answer(code=CODES[name])
    assert isinstance(report, ReportError) and report.is_fatal and isinstance(report.error, ERRORS_BY_CODE[CODES[name]])
