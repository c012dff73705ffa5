"""Trying again: what an error asks for before the next attempt, how long to wait, and the one loop that does it.

:func:`classify` reads :data:`RECOVERIES`; an error that it does not list goes by its ``retriable`` and
``invalid_metadata``. :class:`Backoff` counts nothing and keeps no time: it turns a number of failures into a wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from math import inf
from typing import Final, Protocol, TypeVar

from kafka.core.dialogue import Dialogue, Forget, RefreshMetadata, Sleep, now, within
from kafka.core.routing import Coordinator, Target
from kafka.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    CorrelationIdError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NetworkExceptionError,
    NotControllerError,
    NotCoordinatorError,
    RequestTimedOutError,
    UnknownBrokerIdError,
    UnknownTopicOrPartitionError,
)

T = TypeVar("T")

LEAST_INTERVAL_S: Final = 0.1
MOST_INTERVAL_S: Final = 3600.0
"""Both are the bounds that brokers have for the interval of metrics (``ClientMetricsConfigs``)."""


def interval_s(told_ms: int) -> float:
    """The seconds between two requests for what a broker asks for in an answer: within bounds, or its 0 would have the
    client send requests as fast as they are answered."""
    return min(max(told_ms / 1000, LEAST_INTERVAL_S), MOST_INTERVAL_S)


class Rng(Protocol):
    """A source of chance, as ``random.Random`` is one."""

    def random(self) -> float: ...


class Recovery(Enum):
    """What to do before the next attempt."""

    GIVE_UP = "the error is final"
    RETRY = "wait"
    REFRESH = "wait, and read the cluster's metadata"
    FIND_COORDINATOR = "wait, and look the coordinator up"


RECOVERIES: Final[Mapping[type[BaseException], Recovery]] = {
    NotCoordinatorError: Recovery.FIND_COORDINATOR,
    CoordinatorNotAvailableError: Recovery.FIND_COORDINATOR,
    CoordinatorLoadInProgressError: Recovery.RETRY,  # it is the right one, and not ready yet
    NotControllerError: Recovery.REFRESH,
    KafkaConnectionError: Recovery.REFRESH,
    NetworkExceptionError: Recovery.REFRESH,
    RequestTimedOutError: Recovery.REFRESH,
    UnknownTopicOrPartitionError: Recovery.REFRESH,
    KafkaTimeoutError: Recovery.GIVE_UP,  # the caller's own limit
    UnknownBrokerIdError: Recovery.GIVE_UP,  # the caller's own choice; ``ask_brokers`` has looked again, too
    CorrelationIdError: Recovery.GIVE_UP,  # the peer cannot be trusted with what we sent
}
"""Where the error's own ``retriable`` and ``invalid_metadata`` do not say it all. The nearest base class counts."""


def classify(error: BaseException) -> Recovery:
    """What ``error`` asks for."""
    for cls in type(error).__mro__:
        found = RECOVERIES.get(cls)
        if found is not None:
            return found
    if getattr(error, "invalid_metadata", False):
        return Recovery.REFRESH
    return Recovery.RETRY if getattr(error, "retriable", False) else Recovery.GIVE_UP


class Backoff:
    """Exponential waits with jitter (KIP-580): ``first_s * 2**n``, at most ``most_s``, times 1 +- ``jitter``."""

    __slots__ = ("_first_s", "_jitter", "_most_s", "_rng")

    def __init__(self, first_s: float, most_s: float, rng: Rng, jitter: float = 0.2) -> None:
        self._first_s = first_s
        self._most_s = max(first_s, most_s)
        self._rng = rng
        self._jitter = jitter

    def delay_s(self, failures: int) -> float:
        """The wait after so many failures in a row (1: the first); 0 for none."""
        if failures <= 0:
            return 0.0
        wait_s = min(self._most_s, self._first_s * 2.0 ** min(failures - 1, 63))
        return wait_s * (1 + self._jitter * (2 * self._rng.random() - 1))


def retrying(
    attempt: Callable[[], Dialogue[T]],
    *,
    what: str,
    backoff: Backoff,
    timeout_s: float = inf,
    attempts: float = inf,
    target: Target | None = None,
    topics: Sequence[str] = (),
) -> Dialogue[T]:
    """Run ``attempt()`` until it returns, its error is final, ``attempts`` are used up, or ``timeout_s`` has passed.

    Between attempts it does what :func:`classify` says: for ``topics`` or, when ``target`` is a coordinator, for that.
    No request of an attempt is waited for beyond that. After the last attempt its error is raised; when the time is up,
    KafkaTimeoutError from it. ``what`` says in the
    text what was being done ("create the topic jobs").
    """
    began = yield from now()
    failures = 0
    while True:
        try:
            return (yield from (attempt() if timeout_s == inf else within(began + timeout_s, attempt())))
        except KafkaError as error:
            failures += 1
            recovery = classify(error)
            moved = isinstance(target, Coordinator) and recovery in (Recovery.FIND_COORDINATOR, Recovery.REFRESH)
            if recovery is Recovery.GIVE_UP or failures >= attempts:
                raise
            wait_s = backoff.delay_s(failures)
            passed_s = (yield from now()) - began
            if passed_s + wait_s > timeout_s:
                raise KafkaTimeoutError(f"{what}: no success within {timeout_s:g} s; last: {error}") from error
        if moved and isinstance(target, Coordinator):
            yield Forget(target)
        yield Sleep(wait_s)
        if recovery is Recovery.REFRESH and not moved:
            try:
                yield RefreshMetadata(topics, began + timeout_s)
            except KafkaError as error:
                if classify(error) is Recovery.GIVE_UP and not isinstance(error, KafkaTimeoutError):
                    raise
