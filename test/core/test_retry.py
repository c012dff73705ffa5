"""What errors ask for, how long waits are, and the one retry loop."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.core.dialogue import Dialogue, Forget, Now, RefreshMetadata, Sleep, Step
from kafka.core.retry import Backoff, ErrorTable, RetryAction, classify, interval_s, retrying
from kafka.core.routing import Coordinator
from kafka.errors import (
    ERRORS_BY_CODE,
    CoordinatorLoadInProgressError,
    IncompatibleBrokerVersion,
    InvalidTopicError,
    KafkaConnectionError,
    KafkaTimeoutError,
    NotCoordinatorError,
    NotLeaderForPartitionError,
    RequestTimedOutError,
    ThrottlingQuotaExceededError,
    UnknownBrokerIdError,
)


class Fixed:
    def random(self) -> float:
        return 0.5


BACKOFF = Backoff(0.1, 1.0, Fixed())


@pytest.mark.parametrize(("told_ms", "s"), [(0, 0.1), (-(2**31), 0.1), (1, 0.1), (5000, 5.0), (2**31 - 1, 3600.0)])
def test_an_interval_that_a_broker_asks_for_is_kept_within_bounds(told_ms: int, s: float) -> None:
    assert interval_s(told_ms) == s


@pytest.mark.parametrize(
    ("error", "recovery"),
    [
        (NotCoordinatorError(), RetryAction.FIND_COORDINATOR),
        (CoordinatorLoadInProgressError(), RetryAction.RETRY),
        (NotLeaderForPartitionError(), RetryAction.REFRESH),
        (KafkaConnectionError(), RetryAction.REFRESH),
        (RequestTimedOutError(), RetryAction.REFRESH),
        (ThrottlingQuotaExceededError(), RetryAction.RETRY),
        (KafkaTimeoutError(), RetryAction.GIVE_UP),
        (InvalidTopicError(), RetryAction.GIVE_UP),
        (UnknownBrokerIdError(), RetryAction.GIVE_UP),
        (IncompatibleBrokerVersion(), RetryAction.GIVE_UP),
        (ValueError(), RetryAction.GIVE_UP),
    ],
)
def test_errors_ask_for_what_the_table_says(error: Exception, recovery: RetryAction) -> None:
    assert classify(error) is recovery


@pytest.mark.parametrize("code", sorted(ERRORS_BY_CODE))
def test_a_code_is_tried_again_exactly_when_kafka_calls_it_retriable(code: int) -> None:
    error = ERRORS_BY_CODE[code]()
    assert (classify(error) is not RetryAction.GIVE_UP) == error.retriable


def test_waits_double_up_to_the_most() -> None:
    assert [BACKOFF.delay_s(failures) for failures in range(6)] == [0, 0.1, 0.2, 0.4, 0.8, 1.0]
    assert BACKOFF.delay_s(10_000) == 1.0


@given(failures=st.integers(1, 100), seed=st.integers())
def test_jitter_stays_within_a_fifth(failures: int, seed: int) -> None:
    wait = Backoff(0.1, 1.0, random.Random(seed)).delay_s(failures)
    plain = BACKOFF.delay_s(failures)
    assert plain * 0.8 <= wait <= plain * 1.2


def drive(dialogue: Dialogue[Any], answer: Callable[[Step], Any]) -> tuple[Any, list[Step]]:
    """Run a dialogue by hand; its result and the steps beside Now. Sleeping moves the clock."""
    clock = 0.0
    steps: list[Step] = []
    value: Any = None
    error: Exception | None = None
    while True:
        try:
            step = dialogue.throw(error) if error is not None else dialogue.send(value)
        except StopIteration as end:
            return end.value, steps
        value = error = None
        if isinstance(step, Now):
            value = clock
            continue
        steps.append(step)
        if isinstance(step, Sleep):
            clock += step.seconds
        try:
            value = answer(step)
        except Exception as failure:
            error = failure


def attempts(*outcomes: Any) -> Callable[[], Dialogue[Any]]:
    left = list(outcomes)

    def attempt() -> Dialogue[Any]:
        outcome = left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome
        yield

    return attempt


def nothing(_: Step) -> None:
    return None


def test_a_leader_that_moved_means_wait_refresh_and_again() -> None:
    dialogue = retrying(
        attempts(NotLeaderForPartitionError(), "done"), what="reading", backoff=BACKOFF, topics=["jobs"]
    )
    assert drive(dialogue, nothing) == ("done", [Sleep(0.1), RefreshMetadata(["jobs"])])


def test_a_coordinator_that_moved_is_forgotten_before_the_next_attempt() -> None:
    group = Coordinator("g")
    dialogue = retrying(attempts(NotCoordinatorError(), "done"), what="joining", backoff=BACKOFF, target=group)
    assert drive(dialogue, nothing) == ("done", [Forget(group), Sleep(0.1)])


def test_a_coordinator_that_has_left_the_cluster_is_looked_for_and_a_node_that_was_chosen_is_not() -> None:
    gone, group = UnknownBrokerIdError("node 3: not in the cluster's metadata"), Coordinator("g")
    dialogue = retrying(attempts(gone, "done"), what="joining", backoff=BACKOFF, target=group)
    assert drive(dialogue, nothing) == ("done", [Forget(group), Sleep(0.1)])
    with pytest.raises(UnknownBrokerIdError):
        drive(retrying(attempts(gone), what="x", backoff=BACKOFF, target=3), nothing)


def test_a_final_error_is_raised_at_once() -> None:
    with pytest.raises(InvalidTopicError):
        drive(retrying(attempts(InvalidTopicError()), what="x", backoff=BACKOFF), nothing)


def test_the_last_attempts_own_error_is_raised() -> None:
    failures = [KafkaConnectionError("one"), KafkaConnectionError("two")]
    with pytest.raises(KafkaConnectionError, match="two"):
        drive(retrying(attempts(*failures), what="x", backoff=BACKOFF, attempts=2), nothing)


def test_when_the_time_is_up_the_error_says_what_was_done_and_what_failed_last() -> None:
    failures = [KafkaConnectionError("node 1 is gone")] * 20
    with pytest.raises(KafkaTimeoutError, match=r"making the topic: no success within 3 s; last: .*node 1 is gone"):
        drive(retrying(attempts(*failures), what="making the topic", backoff=BACKOFF, timeout_s=3), nothing)


def test_a_refresh_that_fails_for_a_while_does_not_end_the_retries() -> None:
    def answer(step: Step) -> None:
        if isinstance(step, RefreshMetadata):
            raise KafkaConnectionError("no broker")

    dialogue = retrying(attempts(KafkaConnectionError(), "done"), what="x", backoff=BACKOFF)
    assert drive(dialogue, answer)[0] == "done"


def test_an_error_table_takes_the_nearest_base_class_then_what_the_class_says() -> None:
    table = ErrorTable(
        {KafkaConnectionError: "connect", NotCoordinatorError: "find"},
        refresh="refresh",
        retry="retry",
        otherwise="end",
    )
    longer = table.extended({InvalidTopicError: "create", NotCoordinatorError: "wait"})
    assert table.action_for(NotCoordinatorError()) == "find"
    assert table.action_for(type("Reset", (KafkaConnectionError,), {})()) == "connect"
    assert table.action_for(NotLeaderForPartitionError()) == "refresh"
    assert table.action_for(ThrottlingQuotaExceededError()) == "retry"
    assert table.action_for(ValueError()) == table.action_for(InvalidTopicError()) == "end"
    assert longer.action_for(InvalidTopicError()) == "create"
    assert longer.action_for(NotCoordinatorError()) == "wait"
    assert longer.action_for(ThrottlingQuotaExceededError()) == "retry"


def test_an_error_table_without_a_retriable_default_gives_up_on_all_other_errors() -> None:
    table = ErrorTable({NotCoordinatorError: "find"}, otherwise="end")
    assert table.action_for(ThrottlingQuotaExceededError()) == table.action_for(NotLeaderForPartitionError()) == "end"
