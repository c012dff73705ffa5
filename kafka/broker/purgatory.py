"""Delayed operations: requests that are tried again when a key that they watch has changed, and end at their deadline.

    add(keys, deadline, attempt)       -> the request waits under each of its keys
    notify(key)                        -> the requests under the key are due for another attempt
    run(now)                           -> makes the attempts; the last one of those whose deadline has passed

:meth:`Purgatory.notify` is cheap and makes no attempt: :meth:`Purgatory.run` does that, once for all notifications
since the last one, so that ten produces wake a fetch once and it finds the records of all ten.

Apache Kafka's name for it. Keys are hashable: a partition's log, a share partition. :class:`DelayedResponses` delays
responses until what they confirm is on the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Final

from kafka.broker.log import FlushPolicy, LogDirectory
from kafka.broker.responses import PendingResponse
from kafka.net.delayed import Timer, TimerHeap
from kafka.wire.message import Response

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
            return self._logs.has_unflushed and api_key not in READ_ONLY_APIS
        flusher = self._logs.flusher
        return (flusher.has_requested and api_key not in READ_ONLY_APIS) or (
            flusher.is_requested_unfinished and api_key in METADATA_APIS
        )

    def _on_done(self, delayed: PendingResponse, reply: PendingResponse) -> None:
        if self._logs.has_unflushed:
            self._complete_when_flushed(delayed, reply)
        else:
            delayed.complete_like(reply)

    def _complete_when_flushed(self, delayed: PendingResponse, reply: PendingResponse) -> None:
        self._logs.flusher.add_waiter(lambda error: delayed.complete_like(reply, hang_up=error is not None))
