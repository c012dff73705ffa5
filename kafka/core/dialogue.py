"""Dialogues: generators for sequences of requests, which own no connection, clock or thread.

A dialogue yields a *step*, gets its result back (or its error thrown in), and returns its own result::

    def create(topic: str) -> Dialogue[CreateTopicsResponse]:
        response = yield from send(Controller(), CreateTopicsRequest(...))
        yield from refresh_metadata([topic])
        return response

    client.run(create("jobs"))          # -> Future

The functions in small letters are the typed way to yield the steps of the same name. ``client/driver.py`` runs
dialogues over the select loop; tests run them by hand, and another driver (asyncio) needs nothing but the steps below.
A new step is a class here and an entry in each driver.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from math import inf
from typing import Any, NamedTuple, TypeVar

from kafka.core.connection import ByVersion
from kafka.core.routing import Coordinator, Target
from kafka.future import Future
from kafka.wire.message import Request, Response

T = TypeVar("T")
R = TypeVar("R", bound=Response)


class Send(NamedTuple):
    """Send ``request`` to ``target``; the result is the response.

    ``lane``: requests with the same (node, lane) share a connection; a lane of its own is for what must not wait behind
    others, such as a share session. ``timeout_s``: from now to the answer (None: ``request_timeout_ms``).
    ``min_version``, ``max_version``: narrow the versions that may be spoken. ``give_up_at``: the monotonic instant at
    which the dialogue's own time is over: the request has until then, if that is earlier than what ``timeout_s`` says.

    Errors: KafkaConnectionError, RequestTimedOutError, KafkaTimeoutError (not sent in time), IncompatibleBrokerVersion,
    KafkaProtocolError. Error codes inside the response are the dialogue's to look at.
    """

    target: Target
    request: Request[Any] | ByVersion[Any]
    lane: str | None = None
    timeout_s: float | None = None
    min_version: int | None = None
    max_version: int | None = None
    give_up_at: float = inf


class Sleep(NamedTuple):
    """Wait; the result is None."""

    seconds: float


class RefreshMetadata(NamedTuple):
    """Read the cluster's metadata, with ``topics`` beside those that the client wants anyway; the result is None.

    ``give_up_at``: the monotonic instant at which the dialogue waits no longer: KafkaTimeoutError then.
    """

    topics: Sequence[str] = ()
    give_up_at: float = inf


class Forget(NamedTuple):
    """The coordinator has moved: look it up anew when it is next asked for. The result is None."""

    coordinator: Coordinator


class Wait(NamedTuple):
    """Wait for a future; the result is its value, or its error thrown in."""

    future: Future[Any]


class Now(NamedTuple):
    """The result is the present monotonic instant, in seconds."""


class All(NamedTuple):
    """Take several steps at once; the result is the list of their results, in order.

    Comes back when all are done. Then the first error is thrown in, or with ``return_errors`` stands in the list.
    """

    steps: Sequence[Step]
    return_errors: bool = False


Step = Send | Sleep | RefreshMetadata | Forget | Wait | Now | All
Dialogue = Generator[Step, Any, T]
"""What a dialogue is to type checkers: yields steps, is sent their results, returns a ``T``."""


def within(give_up_at: float, dialogue: Dialogue[T]) -> Dialogue[T]:
    """``dialogue``, no request or refresh of which is waited for beyond the monotonic instant ``give_up_at``.

    A step's usual limit is ``request_timeout_ms``, and several of those are longer than what the caller allowed. Waits
    and futures are the dialogue's own affair: a dialogue that sleeps knows for how long.
    """

    def limited(step: Send | RefreshMetadata) -> Step:
        return step._replace(give_up_at=min(step.give_up_at, give_up_at))

    return _changed(dialogue, limited)


def on_lane(lane: str, dialogue: Dialogue[T]) -> Dialogue[T]:
    """``dialogue``, with its requests on this lane, but those that name another."""

    def moved(step: Send | RefreshMetadata) -> Step:
        return step._replace(lane=lane) if isinstance(step, Send) and step.lane is None else step

    return _changed(dialogue, moved)


def _changed(dialogue: Dialogue[T], change: Callable[[Send | RefreshMetadata], Step]) -> Dialogue[T]:
    """``dialogue``, with each of its requests changed."""
    value: Any = None
    error: Exception | None = None
    while True:
        try:
            step = dialogue.send(value) if error is None else dialogue.throw(error)
        except StopIteration as end:
            result: T = end.value
            return result
        value = error = None
        try:
            value = yield _changed_step(step, change)
        except GeneratorExit:
            dialogue.close()
            raise
        except Exception as fault:
            error = fault


def _changed_step(step: Step, change: Callable[[Send | RefreshMetadata], Step]) -> Step:
    if isinstance(step, (Send, RefreshMetadata)):
        return change(step)
    if isinstance(step, All):
        return step._replace(steps=[_changed_step(each, change) for each in step.steps])
    return step


def send(
    target: Target,
    request: Request[R] | ByVersion[R],
    *,
    lane: str | None = None,
    timeout_s: float | None = None,
    min_version: int | None = None,
    max_version: int | None = None,
) -> Dialogue[R]:
    """:class:`Send`, typed: ``response = yield from send(...)``."""
    response: R = yield Send(target, request, lane, timeout_s, min_version, max_version)
    return response


def sleep(seconds: float) -> Dialogue[None]:
    """:class:`Sleep`, typed."""
    yield Sleep(seconds)


def refresh_metadata(topics: Sequence[str] = (), give_up_at: float = inf) -> Dialogue[None]:
    """:class:`RefreshMetadata`, typed."""
    yield RefreshMetadata(topics, give_up_at)


def wait(future: Future[T]) -> Dialogue[T]:
    """:class:`Wait`, typed."""
    value: T = yield Wait(future)
    return value


def now() -> Dialogue[float]:
    """:class:`Now`, typed."""
    instant: float = yield Now()
    return instant
