"""The two ends of a request inside the broker, its connection and its response.

A response is complete at once or later (long polls, group commit). A request ends in one of three ways: a response,
silence (Produce with acks=0), or a closed connection, which is what Apache Kafka does with requests that it does not
know.

A response that comes later waits for one of three things. :class:`Purgatory` has the requests that are tried again when
a key that they watch has changed, :class:`DelayedResponses` the responses that confirm what is not on the disk yet, and
:class:`SlicedRequests` the requests that are handled in slices, so that they do not hold up the loop.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from kafka.net.loop import Timer, TimerHeap
from kafka.wire.message import Response
from kafka.wire.types import BytesLike

if TYPE_CHECKING:
    from kafka.broker.log import FlushPolicy, LogDirectory
    from kafka.core.sasl.server import SaslServer
    from kafka.net.transport import Transport

log = logging.getLogger(__name__)

_numbers = itertools.count(1)


class ConnectionContext:
    """A client's connection as handlers see it; sessions and delayed requests end with it. Hashed by identity.

    ``listener``: the name of the listener that accepted it. ``sasl``: authenticates it, on a listener with SASL.
    ``software``: the client's name and version, from ApiVersions.
    """

    __slots__ = ("_cancel", "host", "is_closed", "listener", "local_host", "number", "port", "sasl", "software")

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        local_host: str | None = None,
        listener: str | None = None,
        sasl: SaslServer | None = None,
    ) -> None:
        self.number = next(_numbers)
        self.host = host
        self.port = port
        self.local_host = local_host
        self.listener = listener
        self.sasl = sasl
        self.software: tuple[str, str] = ("unknown", "unknown")
        self.is_closed = False
        self._cancel: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return f"<ConnectionContext {self.number} from {self.host}:{self.port}>"

    def set_addresses(self, peer: tuple[str, int] | None, local_host: str | None) -> None:
        """The two ends of the connection, as far as they are known."""
        if peer is not None:
            self.host, self.port = peer
        if local_host is not None:
            self.local_host = local_host

    def set_software(self, name: str, version: str) -> None:
        """The client's name and version."""
        self.software = name, version

    @property
    def has_pending(self) -> bool:
        """Whether a request of this connection is delayed."""
        return self._cancel is not None

    def set_pending(self, cancel: Callable[[], None]) -> None:
        """A request is delayed; ``cancel`` is called if the connection ends before its response."""
        self._cancel = cancel

    def clear_pending(self, cancel: Callable[[], None] | None = None) -> None:
        """The delayed request has its response; with ``cancel``: only if that is still the one that was set."""
        if cancel is None or self._cancel is cancel:
            self._cancel = None

    def cancel_pending(self) -> None:
        """The connection has ended: cancel its delayed request, if there is one."""
        self.is_closed = True
        cancel, self._cancel = self._cancel, None
        if cancel is not None:
            cancel()


class PendingResponse:
    """The outcome of a request. Look at ``done`` first; if it is not set, :meth:`call_when_done`."""

    __slots__ = ("_on_done", "after_send", "done", "hang_up", "response", "token", "transform", "version")

    def __init__(self) -> None:
        self.done = False
        self.response: Response | None = None
        self.hang_up = False
        """Whether the connection is closed instead of a response."""
        self.version: int | None = None
        """The response's version where that is not the request's."""
        self.token: bytes | None = None
        """Instead of a response: bytes for a frame without a header (SASL)."""
        self.transform: Callable[[list[BytesLike]], list[BytesLike]] | None = None
        """A fault: changes the response's bytes."""
        self.after_send: Callable[[Transport], object] | None = None
        """Called with the transport after the response is written, or before the connection is closed instead."""
        self._on_done: Callable[[PendingResponse], None] | None = None

    @classmethod
    def of(cls, response: Response | None, version: int | None = None, token: bytes | None = None) -> PendingResponse:
        """A complete response; None: silence."""
        reply = cls()
        reply.response = response
        reply.version = version
        reply.token = token
        reply.done = True
        return reply

    @classmethod
    def hanging_up(cls) -> PendingResponse:
        """A complete response that closes the connection."""
        reply = cls()
        reply.hang_up = reply.done = True
        return reply

    def call_when_done(self, callback: Callable[[PendingResponse], None]) -> None:
        """Call ``callback`` once, when it is complete, which it is not yet."""
        self._on_done = callback

    def complete(self, response: Response | None, *, version: int | None = None, hang_up: bool = False) -> None:
        """End it with a response, with silence, or by closing the connection."""
        self.response = response
        self.version = self.version if version is None else version
        self.hang_up = self.hang_up or hang_up
        self.done = True
        if self._on_done is not None:
            self._on_done(self)

    def complete_like(self, other: PendingResponse, *, hang_up: bool = False) -> None:
        """End it as ``other`` has ended; ``hang_up``: close the connection in any case."""
        self.complete(other.response, version=other.version, hang_up=other.hang_up or hang_up)

    def close_after_send(self, close: Callable[[Transport], object], *, hang_up: bool = False) -> None:
        """Call ``close`` after the response is written, or, with ``hang_up``, instead of a response."""
        self.after_send = close
        self.hang_up = hang_up

    def transform_bytes(self, transform: Callable[[list[BytesLike]], list[BytesLike]]) -> None:
        """Send what ``transform`` makes of the response's bytes."""
        self.transform = transform


# -- delayed operations ------------------------------------------------------------------------------------------------
#
#     add(keys, deadline, attempt)       -> the request waits under each of its keys
#     notify(key)                        -> the requests under the key are due for another attempt
#     run(now)                           -> makes the attempts; the last one of those whose deadline has passed
#
# Keys are hashable: a partition's log, a share partition. :meth:`Purgatory.notify` is cheap and makes no attempt:
# :meth:`Purgatory.run` does that, once for all notifications since the last one, so that ten produces wake a fetch once
# and it finds the records of all ten. The name is Apache Kafka's.


Attempt = Callable[[float, bool], bool]
"""``(now, is_last)``: try to complete the request, True when it is. With ``is_last`` it has to be completed."""


class DelayedOperation:
    """One delayed request."""

    __slots__ = ("attempt", "keys", "timer")

    def __init__(self, keys: tuple[Hashable, ...], attempt: Attempt) -> None:
        self.keys = keys
        self.attempt: Attempt | None = attempt
        self.timer: Timer[DelayedOperation] | None = None


class Purgatory:
    """The delayed requests of one broker."""

    def __init__(self) -> None:
        self._by_key: dict[Hashable, dict[DelayedOperation, None]] = {}
        self._deadlines: TimerHeap[DelayedOperation] = TimerHeap()
        self._notified: dict[DelayedOperation, None] = {}

    def __len__(self) -> int:
        return len(self._deadlines)

    @property
    def next_deadline(self) -> float | None:
        """When to call :meth:`run` next, in monotonic s; minus infinity: now."""
        return float("-inf") if self._notified else self._deadlines.next_when()

    def add(self, keys: Iterable[Hashable], deadline: float, attempt: Attempt) -> DelayedOperation:
        """Delay a request until ``deadline`` (monotonic s) at the latest."""
        operation = DelayedOperation(tuple(keys), attempt)
        operation.timer = self._deadlines.push(deadline, operation)
        for key in operation.keys:
            self._by_key.setdefault(key, {})[operation] = None
        return operation

    def notify(self, key: Hashable) -> None:
        """What is under ``key`` has changed."""
        waiting = self._by_key.get(key)
        if waiting:
            self._notified.update(waiting)

    def cancel(self, operation: DelayedOperation) -> None:
        """Forget a request, as its connection has ended."""
        operation.attempt = None
        self._notified.pop(operation, None)
        if operation.timer is not None:
            operation.timer.cancel()
            operation.timer = None
        for key in operation.keys:
            waiting = self._by_key.get(key)
            if waiting is not None:
                waiting.pop(operation, None)
                if not waiting:
                    del self._by_key[key]

    def run(self, now: float) -> bool:
        """Attempt the notified requests and those whose deadline has passed; whether there was any. What an attempt
        notifies is due in the next run."""
        has_attempted = bool(self._notified)
        if self._notified:
            notified, self._notified = self._notified, {}
            for operation in notified:
                if operation.attempt is not None and operation.attempt(now, False):
                    self.cancel(operation)
        while (timer := self._deadlines.pop_due(now)) is not None:
            has_attempted = True
            due = timer.item
            if due is not None and due.attempt is not None:
                due.attempt(now, True)
                self.cancel(due)
        return has_attempted


# -- group commit ------------------------------------------------------------------------------------------------------


READ_ONLY_APIS: Final = frozenset(
    {1, 2, 3, 9, 10, 12, 15, 16, 17, 18, 23, 29, 32, 35, 36, 50, 60, 61, 65, 66, 69, 75, 77, 90}
)
"""API keys of requests that change nothing on the disk."""

METADATA_APIS: Final = frozenset({19, 20, 22, 33, 37, 44, 49, 51, 57})
"""API keys whose responses confirm metadata, which another request may just have written."""


class DelayedResponses:
    """Delays responses until what they confirm is on the disk (group commit), by flush policy:

    always    a response that confirms a change waits while anything written is not on the disk, also what another
              request has written: a response to a duplicate confirms the original
    others    only for what is flushed with every policy (metadata, blocks of producer ids)

    Responses to read-only requests are never delayed. After a failed flush it is unknown what is on the disk, so the
    connection is closed instead.
    """

    def __init__(self, logs: LogDirectory, policy: FlushPolicy) -> None:
        self._logs = logs
        self._is_always = policy.sync_before_answer

    def delay(self, reply: PendingResponse, api_key: int) -> PendingResponse:
        """The response to give the connection for a handler's: itself, or one that is complete after a flush."""
        delayed = PendingResponse()
        if reply.done:
            if not self._must_wait(api_key):
                return reply
            self._complete_when_flushed(delayed, reply)
        elif self._is_always and api_key not in READ_ONLY_APIS:
            reply.call_when_done(lambda reply: self._on_done(delayed, reply))
        else:
            return reply
        return delayed

    def complete(self, reply: PendingResponse, api_key: int, response: Response) -> None:
        """Complete a pending response, after a flush where it has to wait for one."""
        if self._must_wait(api_key):
            self._complete_when_flushed(reply, PendingResponse.of(response))
        else:
            reply.complete(response)

    def _must_wait(self, api_key: int) -> bool:
        if self._is_always:
            return self._logs.flusher.has_unflushed and api_key not in READ_ONLY_APIS
        flusher = self._logs.flusher
        return (flusher.has_requested and api_key not in READ_ONLY_APIS) or (
            flusher.is_requested_unfinished and api_key in METADATA_APIS
        )

    def _on_done(self, delayed: PendingResponse, reply: PendingResponse) -> None:
        if self._logs.flusher.has_unflushed:
            self._complete_when_flushed(delayed, reply)
        else:
            delayed.complete_like(reply)

    def _complete_when_flushed(self, delayed: PendingResponse, reply: PendingResponse) -> None:
        self._logs.flusher.add_waiter(lambda error: delayed.complete_like(reply, hang_up=error is not None))


# -- requests in slices ------------------------------------------------------------------------------------------------
#
# A batch of a few kB may hold millions of records. A handler that may take longer than one turn of the loop is a
# generator, which yields after each slice of it (``time_slices.py``)::
#
#     yield False    nothing is held: another request may have the next turn
#     yield True     a decompressed batch is held: this request goes on in the next turn, so that only one batch is held
#
# Most requests never yield, and are answered at once. While a request waits for its turn, the next request of its
# connection is not read.


SlicedHandler = Generator[bool, None, Response | PendingResponse]
Complete = Callable[[PendingResponse, Response], None]


class SlicedRequests:
    """The long requests of one broker."""

    def __init__(self) -> None:
        self._waiting: deque[_SlicedRequest] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def start(
        self, connection: ConnectionContext, steps: SlicedHandler, complete: Complete
    ) -> Response | PendingResponse:
        """Run a handler to its first yield, or to its end. ``complete`` is called with the pending response and the
        response when it ends later. An exception before the first yield is raised."""
        try:
            next(steps)
        except StopIteration as end:
            found: Response | PendingResponse = end.value
            return found
        sliced = _SlicedRequest(connection, steps, complete)
        self._waiting.append(sliced)
        sliced.cancel = partial(self._cancel, sliced)
        connection.set_pending(sliced.cancel)
        return sliced.reply

    def run(self) -> None:
        """Run one slice."""
        if not self._waiting:
            return
        sliced = self._waiting[0]
        try:
            holds_batch = next(sliced.steps)
        except StopIteration as end:
            self._end(sliced, end.value)
        except Exception:
            log.exception("%r: a request failed; closing the connection", sliced.connection)
            self._end(sliced, PendingResponse.hanging_up())
        else:
            if not holds_batch:
                self._waiting.rotate(-1)

    def _end(self, sliced: _SlicedRequest, outcome: Response | PendingResponse) -> None:
        self._waiting.popleft()
        if sliced.cancel is not None:
            sliced.connection.clear_pending(sliced.cancel)  # not if the request is a delayed operation now
        sliced.cancel = None  # a reference cycle otherwise
        reply = sliced.reply
        if not isinstance(outcome, PendingResponse):
            sliced.complete(reply, outcome)
        elif outcome.done:
            reply.complete_like(outcome)
        else:
            outcome.call_when_done(reply.complete_like)

    def _cancel(self, sliced: _SlicedRequest) -> None:
        """The connection has ended: the request goes no further, and what it has done stays done."""
        sliced.steps.close()
        sliced.cancel = None
        self._waiting.remove(sliced)


class _SlicedRequest:
    def __init__(self, connection: ConnectionContext, steps: SlicedHandler, complete: Complete) -> None:
        self.connection = connection
        self.steps = steps
        self.complete = complete
        self.reply = PendingResponse()
        self.cancel: Callable[[], None] | None = None
