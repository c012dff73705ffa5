"""Requests that take longer than one turn of the loop may: handlers as generators, of which one slice runs in a turn.

    start(steps) -> the response, when it has not yielded; else a reply that is completed in one of the next turns
    run()        -> one slice of the request whose turn it is

Most requests never yield, and are answered at once. What a handler yields says whether another request may have its
turn (``slices.py``). While a request waits for its turn, its connection hands out no other one.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator

from kafka.broker.reply import Connection, Reply
from kafka.wire.message import Response

log = logging.getLogger(__name__)

Steps = Generator[bool, None, Response | Reply]
Complete = Callable[[Reply, Response], None]


class SlicedRequests:
    """The requests of one broker that wait for their turn."""

    def __init__(self) -> None:
        self._waiting: deque[_Sliced] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def start(self, connection: Connection, steps: Steps, complete: Complete) -> Response | Reply:
        """Run a handler up to its first yield, or to its end. ``complete`` is called with the reply and the response
        when these are there later. What the handler raises at once is raised."""
        try:
            next(steps)
        except StopIteration as end:
            found: Response | Reply = end.value
            return found
        sliced = _Sliced(connection, steps, complete)
        self._waiting.append(sliced)
        sliced.cancel = connection.parked = lambda: self._cancel(sliced)
        return sliced.reply

    def run(self) -> None:
        """Do one slice."""
        if not self._waiting:
            return
        sliced = self._waiting[0]
        try:
            is_holding = next(sliced.steps)
        except StopIteration as end:
            self._end(sliced, end.value)
        except Exception:
            log.exception("%r: a request failed; closing the connection", sliced.connection)
            self._end(sliced, Reply.hanging_up())
        else:
            if not is_holding:
                self._waiting.rotate(-1)

    def _end(self, sliced: _Sliced, outcome: Response | Reply) -> None:
        self._waiting.popleft()
        if sliced.connection.parked is sliced.cancel:  # else the request waits for something now
            sliced.connection.parked = None
        sliced.cancel = None  # else it and the request would keep one another
        reply = sliced.reply
        if not isinstance(outcome, Reply):
            sliced.complete(reply, outcome)
        elif outcome.done:
            _pass_on(reply, outcome)
        else:
            outcome.on_done = lambda outcome: _pass_on(reply, outcome)

    def _cancel(self, sliced: _Sliced) -> None:
        """The connection has ended. What the request has done stays done."""
        sliced.steps.close()
        sliced.cancel = None
        self._waiting.remove(sliced)


def _pass_on(reply: Reply, outcome: Reply) -> None:
    reply.hang_up, reply.version = outcome.hang_up, outcome.version
    reply.complete(outcome.response)


class _Sliced:
    def __init__(self, connection: Connection, steps: Steps, complete: Complete) -> None:
        self.connection = connection
        self.steps = steps
        self.complete = complete
        self.reply = Reply()
        self.cancel: Callable[[], None] | None = None
