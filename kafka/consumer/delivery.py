"""What happens when something was fetched: waiting threads wake, futures end, a loop's callback gets the records."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from kafka.consumer.bell import Bell
from kafka.consumer.reader import Records
from kafka.future import Future
from kafka.net.loop import Loop

log = logging.getLogger(__name__)


class Source(Protocol):
    """Where records are taken from: a Reader, or what stands before it."""

    def is_ready(self) -> bool: ...

    def take(self, limit: int) -> Records: ...


class Delivery:
    """Tells of news. ``bell`` is rung for a thread that waits; the callbacks are for a consumer on a loop, and run
    there: ``on_records`` with at most ``limit`` records at a time, ``on_error`` with what ``poll`` would have raised.
    """

    def __init__(
        self,
        loop: Loop,
        reader: Source,
        bell: Bell,
        limit: int,
        on_records: Callable[[Records], object] | None = None,
        on_error: Callable[[Exception], object] | None = None,
    ) -> None:
        self._loop = loop
        self._reader = reader
        self._bell = bell
        self._limit = limit
        self._on_records = on_records
        self._on_error = on_error
        self._is_due = False
        self._told: list[Exception] = []
        """Errors since records were delivered last: one that stands until somebody seeks comes again and again."""
        self._waiting: Future[None] | None = None

    def when_ready(self) -> Future[None]:
        """Done when there is something to take."""
        if self._reader.is_ready():
            return Future[None]().success(None)
        if self._waiting is None:
            self._waiting = Future()
        return self._waiting

    def on_news(self) -> None:
        """There is something new. On the loop's thread."""
        self._bell.ring()
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.success(None)
        self._deliver_soon()

    def close(self) -> None:
        """Call nobody any more."""
        self._on_records = None

    def _deliver_soon(self) -> None:
        if self._on_records is not None and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._is_due = False
        if self._on_records is None:
            return
        try:
            records = self._reader.take(self._limit)
        except Exception as error:
            if any(each is error for each in self._told):
                self._told = []  # all partitions have had their turn; there is news when there is more
                return
            self._told.append(error)
            self._deliver_soon()  # others may have something that nobody would tell of again
            if self._on_error is None:
                log.exception("a partition cannot be read")
            else:
                self._on_error(error)
            return
        if records:
            self._told = []
            deliver = self._on_records
            self.on_news()  # there may be more: next turn, so that others have theirs
            deliver(records)
