"""Delayed operations: requests that are tried again when a key that they watch has changed, and end at their deadline.

    add(keys, deadline, attempt)       -> the request waits under each of its keys
    notify(key)                        -> the requests under the key are due for another attempt
    run(now)                           -> makes the attempts; the last one of those whose deadline has passed

:meth:`Purgatory.notify` is cheap and makes no attempt: :meth:`Purgatory.run` does that, once for all notifications
since the last one, so that ten produces wake a fetch once and it finds the records of all ten.

Apache Kafka's name for it. Keys are hashable: a partition's log, a share partition.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from kafka.net.delayed import Timer, TimerHeap

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
