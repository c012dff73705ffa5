"""Retries: what an error asks for before the next attempt, how long to wait, and the one loop that does it.

:class:`ErrorTable` says what to do about an error; each protocol area has tables of its own, and :data:`RETRY_ACTIONS`
is that of requests in general. :class:`Backoff` counts nothing and keeps no time: it turns a number of failures into a
wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from math import inf
from typing import Final, Generic, Protocol, TypeVar

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

A = TypeVar("A")
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


class RetryAction(Enum):
    """What to do before the next attempt."""

    GIVE_UP = "the error is final"
    RETRY = "wait"
    REFRESH = "wait, and read the cluster's metadata"
    FIND_COORDINATOR = "wait, and look the coordinator up"


class ErrorTable(Generic[A]):
    """What to do about an error: Kafka error class -> action (a member of the table's enum, or a record).

    The row of the error's nearest base class counts; with ``exact`` only a row of its own class, so that a code that
    this package does not know is not taken for its base. An error in no row goes by what its class says of itself: one
    with ``invalid_metadata`` gets ``refresh``, one that is ``retriable`` gets ``retry``, any other (also one that is
    not Kafka's) gets ``otherwise``. A table without ``refresh`` takes ``retry`` there, one without ``retry`` takes
    ``otherwise``. A new error code is one more row.
    """

    __slots__ = ("exact", "otherwise", "refresh", "retry", "rows")

    def __init__(
        self,
        rows: Mapping[type[BaseException], A],
        *,
        otherwise: A,
        retry: A | None = None,
        refresh: A | None = None,
        exact: bool = False,
    ) -> None:
        self.exact = exact
        self.rows: Mapping[type[BaseException], A] = dict(rows)
        self.otherwise = otherwise
        self.retry = otherwise if retry is None else retry
        self.refresh = self.retry if refresh is None else refresh

    def action_for(self, error: BaseException) -> A:
        """What to do about ``error``."""
        for cls in type(error).__mro__[:1] if self.exact else type(error).__mro__:
            action = self.rows.get(cls)
            if action is not None:
                return action
        if getattr(error, "invalid_metadata", False):
            return self.refresh
        return self.retry if getattr(error, "retriable", False) else self.otherwise

    def extended(self, rows: Mapping[type[BaseException], A]) -> ErrorTable[A]:
        """A table with these rows added, or in place of its own; the same defaults."""
        return ErrorTable(
            {**self.rows, **rows}, otherwise=self.otherwise, retry=self.retry, refresh=self.refresh, exact=self.exact
        )


RETRY_ACTIONS: Final = ErrorTable(
    {
        NotCoordinatorError: RetryAction.FIND_COORDINATOR,
        CoordinatorNotAvailableError: RetryAction.FIND_COORDINATOR,
        CoordinatorLoadInProgressError: RetryAction.RETRY,  # it is the right one, and not ready yet
        NotControllerError: RetryAction.REFRESH,
        KafkaConnectionError: RetryAction.REFRESH,
        NetworkExceptionError: RetryAction.REFRESH,
        RequestTimedOutError: RetryAction.REFRESH,
        UnknownTopicOrPartitionError: RetryAction.REFRESH,
        KafkaTimeoutError: RetryAction.GIVE_UP,  # the caller's own limit
        UnknownBrokerIdError: RetryAction.GIVE_UP,  # the caller chose it; ``request_brokers`` has refreshed already
        CorrelationIdError: RetryAction.GIVE_UP,  # the peer cannot be trusted with what we sent
    },
    refresh=RetryAction.REFRESH,
    retry=RetryAction.RETRY,
    otherwise=RetryAction.GIVE_UP,
)
COORDINATOR_RETRY_ACTIONS: Final = RETRY_ACTIONS.extended(
    {UnknownBrokerIdError: RetryAction.FIND_COORDINATOR}  # the coordinator has left the cluster
)
"""The same for requests to a coordinator, whose node the caller does not choose."""


def classify(error: BaseException) -> RetryAction:
    """What ``error`` asks for before the next attempt."""
    return RETRY_ACTIONS.action_for(error)


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
    KafkaTimeoutError from it. ``what`` says in its text what was being done ("create the topic jobs").
    """
    began = yield from now()
    actions = COORDINATOR_RETRY_ACTIONS if isinstance(target, Coordinator) else RETRY_ACTIONS
    failures = 0
    while True:
        try:
            return (yield from (attempt() if timeout_s == inf else within(began + timeout_s, attempt())))
        except KafkaError as error:
            failures += 1
            action = actions.action_for(error)
            moved = isinstance(target, Coordinator) and action in (RetryAction.FIND_COORDINATOR, RetryAction.REFRESH)
            if action is RetryAction.GIVE_UP or failures >= attempts:
                raise
            wait_s = backoff.delay_s(failures)
            passed_s = (yield from now()) - began
            if passed_s + wait_s > timeout_s:
                raise KafkaTimeoutError(f"{what}: no success within {timeout_s:g} s; last: {error}") from error
        if moved and isinstance(target, Coordinator):
            yield Forget(target)
        yield Sleep(wait_s)
        if action is RetryAction.REFRESH and not moved:
            try:
                yield RefreshMetadata(topics, began + timeout_s)
            except KafkaError as error:
                if classify(error) is RetryAction.GIVE_UP and not isinstance(error, KafkaTimeoutError):
                    raise
