"""What a member of a consumer group (KIP-848) makes of answers, of their errors, and of none."""

from __future__ import annotations

import pytest

from kafka.core.group.machine import Assign, ForgetCoordinator, GroupSubscription, Lose, ReportError, Revoke
from kafka.errors import (
    AuthenticationError,
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
)
from kafka.protocol.groups import ConsumerGroupHeartbeatResponse
from test.core.group.consumer_bench import BACKOFF_S, INTERVAL_S, JOBS, LOGS, Bench, parts


@pytest.mark.parametrize("code", [25, 30])
def test_no_heartbeat_goes_out_before_the_partitions_are_given_up(code: int) -> None:
    bench = Bench()
    bench.join()
    bench.beat()
    assert bench.answer(code=code) == [Lose(parts(0, 1))]
    assert bench.poll(60.0) == [] and bench.asked is None


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
    bench.member.subscribe(GroupSubscription(frozenset({"jobs"})), bench.now)
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
    bench.member.subscribe(GroupSubscription(frozenset({"jobs"})), bench.now)
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
    bench.member.subscribe(GroupSubscription(frozenset({"jobs"})), bench.now)
    bench.poll()
    (report,) = bench.fail(error)
    assert isinstance(report, ReportError) and report.is_fatal
    assert isinstance(report.error, UnsupportedVersionError)
    assert "group_protocol='classic'" in str(report.error) and "group.version" in str(report.error)
    assert bench.poll(60.0) == [] and bench.asked is None


def test_a_broker_that_evaluates_no_patterns_is_an_error_that_says_so() -> None:
    bench = Bench()
    bench.member.subscribe(GroupSubscription(pattern="a.*"), bench.now)
    bench.poll()
    (report,) = bench.fail(UnsupportedFieldError("subscribed_topic_regex"))
    assert isinstance(report, ReportError) and "pattern=" in str(report.error)


def test_who_may_not_log_in_gives_up() -> None:
    bench = Bench()
    bench.join()
    bench.beat()
    effects = bench.fail(SaslAuthenticationFailedError("wrong password"))
    assert effects == [Lose(parts(0, 1))]
    (report,) = bench.done(effects)
    assert isinstance(report, ReportError) and isinstance(report.error, SaslAuthenticationFailedError)


def test_after_a_wrong_pattern_another_subscription_leaves_and_begins_again() -> None:
    bench = Bench()
    bench.join()
    bench.member.subscribe(GroupSubscription(pattern="("), bench.now)
    bench.poll()
    effects = bench.done(bench.answer(code=128, text="missing closing )"))
    assert isinstance(effects[0], ReportError) and isinstance(effects[0].error, InvalidRegularExpressionError)
    bench.member.subscribe(GroupSubscription(pattern="jo.*"), bench.now)
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


def test_the_first_of_the_quick_heartbeats_is_the_quickest_whenever_a_member_has_nothing() -> None:
    bench = Bench()

    def wait_s() -> float:
        return round(bench.member.next_deadline - bench.now, 3)

    bench.member.subscribe(GroupSubscription(frozenset({"jobs"})), bench.now)
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
    bench.member.subscribe(GroupSubscription(frozenset({"logs"})), bench.now)
    bench.poll()
    bench.answer(4)
    assert wait_s() == 0.1, "after another subscription"
    bench.beat()
    bench.answer(code=25)
    bench.answer(5)
    assert wait_s() == 0.1, "after it was fenced"


def test_a_member_that_waits_for_a_topics_name_or_for_its_user_is_not_in_a_hurry() -> None:
    bench = Bench(names={JOBS: "jobs"})
    bench.member.subscribe(GroupSubscription(frozenset({"jobs", "logs"})), bench.now)
    bench.poll()
    bench.answer(2, {LOGS: [0]})
    assert bench.member._due_at == bench.now + INTERVAL_S
    bench.member.subscribe(GroupSubscription(frozenset({"jobs"})), bench.now)
    bench.poll()
    bench.done(bench.answer(3, {JOBS: [0]}))
    bench.answer(3)
    bench.beat()
    assert bench.answer(4, {}) == [Revoke(parts(0))]
    assert bench.member.next_deadline == bench.now + INTERVAL_S


def test_a_poll_interval_that_no_message_can_carry_is_the_longest_that_one_can() -> None:
    bench = Bench(max_poll_interval_s=3e9)
    bench.member.subscribe(GroupSubscription(frozenset({"jobs"})), bench.now)
    bench.poll()
    assert bench.request.rebalance_timeout_ms == 2_147_483_647


def test_the_member_id_is_the_brokers_if_it_gives_one() -> None:
    bench = Bench()
    bench.member.subscribe(GroupSubscription(frozenset({"jobs"})), bench.now)
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
    bench.member.subscribe(GroupSubscription(frozenset({"jobs"}), pattern), bench.now)
    bench.poll()
    (report,) = bench.fail(error)
    assert isinstance(report, ReportError) and report.is_fatal and text in str(report.error)


@pytest.mark.parametrize(
    ("error", "is_final"),
    [
        (KafkaConnectionError("gone"), False),
        (KafkaProtocolError("not a response"), False),
        (CoordinatorNotAvailableError("none"), False),
        (GroupAuthorizationFailedError("g"), True),
        (AuthenticationError("nobody lets us in"), True),
        (IllegalArgumentError("a name that cannot be written"), True),
        (IllegalStateError("the client is closed"), True),
    ],
)
@pytest.mark.parametrize("is_member", [False, True])
def test_an_error_instead_of_an_answer_is_final_only_when_no_retry_can_succeed(
    error: KafkaError, is_final: bool, is_member: bool
) -> None:
    bench = Bench()
    if is_member:
        bench.join()
        bench.beat()
    else:
        bench.member.subscribe(GroupSubscription(frozenset({"jobs"})), bench.now)
        bench.poll()
    effects = bench.fail(error)
    if not is_final:
        assert effects == [ForgetCoordinator(error)]
        assert bench.beat().member_epoch == (2 if is_member else 0)
        return
    if is_member:
        assert effects == [Lose(parts(0, 1))]
        effects = bench.done(effects)
    assert effects == [ReportError(error, is_fatal=True)]
    bench.member.subscribe(GroupSubscription(frozenset({"jobs"})), bench.now)
    assert bench.poll() == []
    assert bench.request.member_epoch == (-1 if is_member else 0), "a place that the group has is left first"


def test_a_join_that_is_refused_for_good_leaves_nothing_to_leave() -> None:
    bench = Bench()
    bench.member.subscribe(GroupSubscription(frozenset({"jobs"})), bench.now)
    bench.poll()
    (report,) = bench.answer(code=30)
    assert isinstance(report, ReportError)
    bench.member.subscribe(GroupSubscription(frozenset({"jobs"})), bench.now)
    assert bench.poll() == []
    assert bench.request.member_epoch == 0, "the same subscription is another attempt"


def test_the_same_subscription_says_nothing() -> None:
    bench = Bench()
    bench.join()
    bench.member.subscribe(GroupSubscription(frozenset({"jobs"})), bench.now)
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
    bench.member.subscribe(GroupSubscription(frozenset({"logs"})), bench.now)
    bench.poll()
    bench.fail(KafkaConnectionError("gone"))
    assert bench.member.next_deadline == bench.now + BACKOFF_S
