from __future__ import annotations

import random
from typing import Any

import pytest

from kafka.core.dialogue import RefreshMetadata
from kafka.core.produce.topics import learn_topic
from kafka.core.retry import Backoff
from kafka.errors import KafkaError, KafkaTimeoutError, LeaderNotAvailableError, TopicAuthorizationFailedError
from test.core.test_retry import drive

BACKOFF = Backoff(0.1, 0.1, random.Random(0), jitter=0)


def learn(known_after: int, error: KafkaError | None = None, timeout_s: float = 1.0) -> list[Any]:
    """The steps taken when the topic is known after so many refreshes."""
    refreshes = 0

    def count(step: Any) -> None:
        nonlocal refreshes
        refreshes += isinstance(step, RefreshMetadata)

    dialogue = learn_topic(
        "t", lambda: refreshes >= known_after, lambda: error, timeout_s=timeout_s, backoff=BACKOFF
    )
    return drive(dialogue, count)[1]


def test_a_known_topic_costs_nothing() -> None:
    assert learn(0) == []


def test_a_topic_that_is_just_being_made_is_asked_for_until_it_is_there() -> None:
    steps = learn(3, LeaderNotAvailableError("t"))
    assert sum(isinstance(step, RefreshMetadata) for step in steps) == 3


def test_the_time_limit_tells_the_last_error() -> None:
    with pytest.raises(KafkaTimeoutError, match=r"topic t were not known within max_block_ms=1000; last: .*Leader"):
        learn(1000, LeaderNotAvailableError("t"))


def test_an_error_that_will_stay_is_raised_at_once() -> None:
    with pytest.raises(TopicAuthorizationFailedError):
        learn(1000, TopicAuthorizationFailedError("t"))
