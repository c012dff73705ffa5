from __future__ import annotations

import random
from typing import Any

import pytest

from kafka.core.dialogue import RefreshMetadata, Sleep
from kafka.core.produce.topics import learn_topic
from kafka.core.retry import Backoff
from kafka.errors import (
    InvalidTopicError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    SaslAuthenticationFailedError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from test.core.test_retry import drive

BACKOFF = Backoff(0.1, 0.1, random.Random(0), jitter=0)


def learn(known_after: int, error: KafkaError | None = None, timeout_s: float = 1.0, **options: Any) -> list[Any]:
    """The steps taken when the topic is known after so many refreshes."""
    refreshes = 0

    def count(step: Any) -> None:
        nonlocal refreshes
        refreshes += isinstance(step, RefreshMetadata)

    dialogue = learn_topic(
        "t", lambda: refreshes >= known_after, lambda: error, timeout_s=timeout_s, backoff=BACKOFF, **options
    )
    return drive(dialogue, count)[1]


def test_a_known_topic_costs_nothing() -> None:
    assert learn(0) == []


def test_a_topic_that_is_just_being_made_is_asked_for_until_it_is_there() -> None:
    steps = learn(3, LeaderNotAvailableError("t"))
    assert sum(isinstance(step, RefreshMetadata) for step in steps) == 3


def test_the_time_out_has_the_last_error() -> None:
    with pytest.raises(KafkaTimeoutError, match=r"topic t were not known within max_block_ms=1000; last: .*Leader"):
        learn(1000, LeaderNotAvailableError("t"))


@pytest.mark.parametrize("error", [TopicAuthorizationFailedError, InvalidTopicError, SaslAuthenticationFailedError])
def test_an_error_that_will_stay_is_raised_at_once(error: type[KafkaError]) -> None:
    """KafkaProducer.waitOnMetadata: Metadata.maybeThrowExceptionForTopic; an AuthenticationException is fatal."""
    refreshes: list[Any] = []
    dialogue = learn_topic("t", lambda: False, lambda: error("t"), timeout_s=9.0, backoff=BACKOFF)
    with pytest.raises(error):
        drive(dialogue, refreshes.append)
    assert sum(isinstance(step, RefreshMetadata) for step in refreshes) == 1


def test_a_topic_that_asking_does_not_make_is_unknown_for_a_moment_only() -> None:
    assert learn(15, UnknownTopicOrPartitionError("t"), 60, may_create=False), "somebody made it meanwhile"
    with pytest.raises(UnknownTopicOrPartitionError, match="topic t is not there, and with allow_auto_create_topics"):
        learn(30, UnknownTopicOrPartitionError("t"), 60, may_create=False)
    with pytest.raises(KafkaTimeoutError, match="max_block_ms=60000; last: .*UnknownTopic"):
        learn(1000, UnknownTopicOrPartitionError("t"), 60)


def test_a_time_out_during_a_refresh_does_not_hide_the_earlier_error() -> None:
    refreshes = 0

    def refresh(step: Any) -> None:
        nonlocal refreshes
        if isinstance(step, RefreshMetadata):
            assert step.give_up_at == 1.0
            refreshes += 1
            if refreshes > 1:
                raise KafkaTimeoutError("the cluster's metadata could not be read in time")

    dialogue = learn_topic(
        "t", lambda: False, lambda: UnknownTopicOrPartitionError("t"), timeout_s=1.0, backoff=BACKOFF
    )
    with pytest.raises(KafkaTimeoutError, match="last: .*UnknownTopicOrPartitionError"):
        drive(dialogue, refresh)


def test_each_wait_is_the_back_offs_and_the_last_one_ends_with_the_time() -> None:
    steps: list[Any] = []
    backoff = Backoff(0.1, 1.0, random.Random(0), jitter=0)
    with pytest.raises(KafkaTimeoutError):
        drive(learn_topic("t", lambda: False, lambda: None, timeout_s=1.0, backoff=backoff), steps.append)
    assert isinstance(steps[0], RefreshMetadata), "nothing is waited for before it was asked"
    assert [step.seconds for step in steps if isinstance(step, Sleep)] == pytest.approx([0.1, 0.2, 0.4, 0.3])


@pytest.mark.parametrize(("may_create", "error"), [(False, UnknownTopicOrPartitionError), (True, KafkaTimeoutError)])
def test_a_topic_is_unknown_for_two_seconds_where_asking_does_not_make_it(
    may_create: bool, error: type[KafkaError]
) -> None:
    steps: list[Any] = []
    dialogue = learn_topic(
        "t", lambda: False, lambda: UnknownTopicOrPartitionError("t"), timeout_s=5.0,
        backoff=Backoff(1.0, 1.0, random.Random(0), jitter=0), may_create=may_create,
    )  # fmt: skip
    with pytest.raises(error):
        drive(dialogue, steps.append)
    assert sum(step.seconds for step in steps if isinstance(step, Sleep)) == (5.0 if may_create else 2.0)


@pytest.mark.parametrize(
    ("told", "raised", "last"),
    [
        (None, KafkaTimeoutError("too late"), "too late"),
        (LeaderNotAvailableError("t"), KafkaTimeoutError("too late"), "LeaderNotAvailableError"),
        (LeaderNotAvailableError("t"), KafkaConnectionError("gone"), "gone"),
    ],
)
def test_the_last_reason_is_reported_and_a_mere_end_of_time_is_none(
    told: KafkaError | None, raised: KafkaError, last: str
) -> None:
    refreshes = 0

    def refresh(step: Any) -> None:
        nonlocal refreshes
        if isinstance(step, RefreshMetadata):
            refreshes += 1
            if refreshes > 1 or told is None:
                raise raised

    dialogue = learn_topic("t", lambda: False, lambda: told, timeout_s=1.0, backoff=BACKOFF)
    with pytest.raises(KafkaTimeoutError, match=f"max_block_ms=1000; last: .*{last}"):
        drive(dialogue, refresh)
