"""Learning the partitions of a topic that a producer is to write to, as a dialogue."""

from __future__ import annotations

from collections.abc import Callable

from kafka.core.dialogue import Dialogue, RefreshMetadata, Sleep, now
from kafka.core.retry import Backoff
from kafka.errors import Cancelled, InvalidTopicError, KafkaError, KafkaTimeoutError, TopicAuthorizationFailedError

FINAL_ERRORS = (InvalidTopicError, TopicAuthorizationFailedError)
"""What metadata may say of a topic and will not say otherwise a moment later."""


def learn_topic(
    topic: str,
    is_known: Callable[[], bool],
    topic_error: Callable[[], KafkaError | None],
    *,
    timeout_s: float,
    backoff: Backoff,
) -> Dialogue[None]:
    """Read the metadata until ``is_known()``. A broker that creates topics by itself first says "unknown", or "no
    leader yet": so this goes on until ``timeout_s`` has passed, and raises KafkaTimeoutError then. An error among
    :data:`FINAL_ERRORS` is raised at once.
    """
    began = yield from now()
    failures = 0
    error: KafkaError | None = None
    while not is_known():
        if failures:
            wait_s = backoff.delay_s(failures)
            passed_s = (yield from now()) - began
            if passed_s >= timeout_s:
                raise KafkaTimeoutError(
                    f"the partitions of topic {topic} were not known within max_block_ms={timeout_s * 1000:.0f}"
                    + (f"; last: {error}" if error else "")
                )
            yield Sleep(min(wait_s, timeout_s - passed_s))
        try:
            yield RefreshMetadata([topic])
            error = topic_error()
        except Cancelled:
            raise
        except KafkaError as fault:
            error = fault
        if isinstance(error, FINAL_ERRORS):
            raise error
        failures += 1
