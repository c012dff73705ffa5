"""What errors in answers ask for."""

from __future__ import annotations

from typing import Any

import pytest

from kafka.core.admin.responses import RESPONSE_LOST, raise_first, raise_transient, requiring_release, result_of
from kafka.errors import (
    ERRORS_BY_CODE,
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    NoError,
    NotControllerError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
)
from test.core.test_retry import drive

ASKED_AGAIN = {
    5: "LEADER_NOT_AVAILABLE",
    6: "NOT_LEADER_OR_FOLLOWER",
    14: "COORDINATOR_LOAD_IN_PROGRESS",
    15: "COORDINATOR_NOT_AVAILABLE",
    16: "NOT_COORDINATOR",
    41: "NOT_CONTROLLER",
    89: "THROTTLING_QUOTA_EXCEEDED",
}
"""Those after which Java's admin client asks again: PartitionLeaderStrategy, CoordinatorStrategy and their handlers,
``handleNotControllerError``, ``retryOnQuotaViolation`` (KIP-599)."""


@pytest.mark.parametrize("code", sorted(ERRORS_BY_CODE))
def test_the_wrong_broker_or_too_early_is_asked_again_and_nothing_else(code: int) -> None:
    entries = [(0, None, "first"), (code, "why", "second")]
    if code in ASKED_AGAIN:
        with pytest.raises(ERRORS_BY_CODE[code], match="second: why"):
            raise_transient(entries)
    else:
        raise_transient(entries)


def test_the_first_error_is_raised_with_what_it_is_about() -> None:
    raise_first([(0, None, "a"), (0, "all is well", "b")])
    with pytest.raises(NotControllerError) as caught:
        raise_first([(0, None, "a"), (41, None, "b"), (29, "no", "c")])
    assert caught.value.args == ("b",)
    with pytest.raises(TopicAuthorizationFailedError) as denied:
        raise_first([(29, "no", "c")])
    assert denied.value.args == ("c: no",)


def test_an_error_without_a_text_has_an_empty_one() -> None:
    assert isinstance(result_of(0, None), NoError)
    assert result_of(29, None).args == ("",) and result_of(29, "no").args == ("no",)


def test_an_answer_may_be_lost_with_the_connection_or_by_time() -> None:
    assert set(RESPONSE_LOST) == {KafkaConnectionError, RequestTimedOutError}


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (IncompatibleBrokerVersion("node 1 is old", 2), "node 1 is old; brokers have it since release 2.4"),
        (IncompatibleBrokerVersion(), "the broker is too old; brokers have it since release 2.4"),
    ],
)
def test_a_broker_that_is_too_old_is_told_with_the_release_that_is_needed(error: Exception, text: str) -> None:
    def attempt() -> Any:
        raise error
        yield

    with pytest.raises(IncompatibleBrokerVersion) as caught:
        drive(requiring_release("2.4", attempt()), lambda step: None)
    assert caught.value.args == (text,)
    assert caught.value.__cause__ is error
