"""Learning the partitions of a topic that a producer is to write to, as a dialogue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kafka.core.dialogue import Dialogue, RefreshMetadata, Sleep, now
from kafka.core.retry import Backoff
from kafka.errors import (
    AuthenticationError,
    Cancelled,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

FINAL_ERRORS = (InvalidTopicError, TopicAuthorizationFailedError, AuthenticationError)
"""What metadata may say of a topic and will not say otherwise a moment later."""

UNKNOWN_FOR_S: Final = 2.0
"""How long a topic may be unknown that Metadata does not create: it may have been created just now, and brokers
learn of it one after the other."""


def learn_topic(
    topic: str,
    is_known: Callable[[], bool],
    topic_error: Callable[[], KafkaError | None],
    *,
    timeout_s: float,
    backoff: Backoff,
    may_create: bool = True,
) -> Dialogue[None]:
    """Read the metadata until ``is_known()``. A broker that creates topics by itself first says "unknown", or "no
    leader yet": so this goes on until ``timeout_s`` has passed, and raises KafkaTimeoutError then. An error among
    :data:`FINAL_ERRORS` is raised at once; UnknownTopicOrPartitionError after :data:`UNKNOWN_FOR_S`, when asking does
    not make topics (``may_create``, which is the client's ``allow_auto_create_topics``).
    """
    began = yield from now()
    failures = 0
    error: KafkaError | None = None
    while not is_known():
        if failures:
            wait_s = backoff.delay_s(failures)
            passed_s = (yield from now()) - began
            if not may_create and isinstance(error, UnknownTopicOrPartitionError) and passed_s >= UNKNOWN_FOR_S:
                raise UnknownTopicOrPartitionError(
                    f"topic {topic} is not there, and with allow_auto_create_topics=False the client does not create it"
                )
            if passed_s >= timeout_s:
                raise KafkaTimeoutError(
                    f"the partitions of topic {topic} were not known within max_block_ms={timeout_s * 1000:.0f}"
                    + (f"; last: {error}" if error else "")
                )
            yield Sleep(min(wait_s, timeout_s - passed_s))
        try:
            yield RefreshMetadata([topic], began + timeout_s)
            error = topic_error()
        except Cancelled:
            raise
        except KafkaError as fault:
            if error is None or not isinstance(fault, KafkaTimeoutError):  # a mere end of time hides no reason
                error = fault
        if isinstance(error, FINAL_ERRORS):
            raise error
        failures += 1
