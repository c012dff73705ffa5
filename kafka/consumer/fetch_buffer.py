"""What happens when something was fetched: waiting threads wake, futures end, a loop's callback gets the records."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from kafka.consumer.guard import WakeupEvent
from kafka.consumer.membership import GroupMembership, PendingErrors
from kafka.core.consume.fetched import MAX_HEADER_BYTES, has_error_location, set_error_location
from kafka.core.consume.fetcher import Fetcher
from kafka.core.consume.positions import PartitionPosition
from kafka.core.consume.record import RecordsByPartition
from kafka.errors import NoOffsetForPartitionError, OffsetOutOfRangeError
from kafka.future import Future
from kafka.net.loop import DeadlineTimer, Loop

# Takes records out of what was fetched, in the reader's own thread: decoding is done outside the lock.


ERRORS_MENDED_BY_SEEK: Final = (NoOffsetForPartitionError, OffsetOutOfRangeError)
"""Errors of partitions that are raised again and again; after others it is tried again what led to them."""


class FetchBufferReader:
    """One reader of a fetcher. ``changed`` is called when the fetcher has something to reconsider."""

    def __init__(self, fetcher: Fetcher, lock: AbstractContextManager[Any], changed: Callable[[], object]) -> None:
        self._fetcher = fetcher
        self._lock = lock
        self._wake_fetcher = changed
        self._wants_more = False
        """Something was read to its end, or is to be tried again: the fetcher has something to do."""
        self.on_taken: Callable[[RecordsByPartition], RecordsByPartition] | None = None
        """What is handed out goes through this, once for each :meth:`take`: metrics and interceptors."""
        self._moved: dict[PartitionPosition, tuple[int, int | None, int]] = {}
        """What :meth:`take` has read from: its generation, and where it stood before."""

    def is_ready(self) -> bool:
        """Whether :meth:`take` has something to return or to raise."""
        with self._lock:
            return self._fetcher.refusal is not None or self._fetcher.has_ready

    def begin(self) -> None:
        """What is taken from now on may come again."""
        self._moved.clear()

    def interrupted(self, error: BaseException) -> None:
        """``error`` came before what was taken since :meth:`begin` reached anybody: after an interrupt (Ctrl-C) it
        comes again. Where reading itself raises, :meth:`take` has seen to that."""
        if not isinstance(error, Exception):
            self.give_back()

    def pass_through(self, on_taken: Callable[[RecordsByPartition], RecordsByPartition] | None) -> None:
        """What is taken goes through ``on_taken``: metrics and interceptors."""
        self.on_taken = on_taken

    def give_back(self) -> None:
        """What was taken since :meth:`begin` comes again, and counts as unread."""
        moved, self._moved = self._moved, {}
        with self._lock:
            for position, (generation, offset, leader_epoch) in moved.items():
                if position.generation == generation and offset is not None:
                    position.seek(offset, leader_epoch)
        self._wake_fetcher()

    def take(self, limit: int) -> RecordsByPartition:
        """The next records by partition, at most ``limit``, fewer when they have very many headers. Raises what stands
        in the way of a partition when it is the first thing to be met; the position then stays before it."""
        found: RecordsByPartition = {}
        self._moved.clear()
        try:
            self._take(limit, found)
        finally:
            if self._wants_more:
                self._wants_more = False
                self._wake_fetcher()
        if found and self.on_taken is not None:
            found = self.on_taken(found)
        return found

    def _take(self, limit: int, found: RecordsByPartition) -> None:
        fetcher = self._fetcher
        lock = self._lock
        header_bytes_left = MAX_HEADER_BYTES
        while limit > 0 and header_bytes_left > 0:
            with lock:
                position = fetcher.ready()
                if position is None:
                    if not found and fetcher.refusal is not None:
                        raise fetcher.take_refusal()
                    return
                generation = position.generation
                fetched = position.buffered[0] if position.buffered else None
                if fetched is None:
                    if found:
                        fetcher.put_first(position)  # raised the next time, whatever else there is by then
                        return
                    self._raise_error(position)
                    return
                self._moved.setdefault(position, (generation, position.position, position.leader_epoch))
            try:
                records = fetched.read(limit, fetcher.options, header_bytes_left)
                header_bytes_left -= fetched.header_bytes
            except Exception as error:
                with lock:
                    if found:
                        fetcher.put_first(position)
                        return
                    if not has_error_location(error):
                        set_error_location(error, position.partition, fetched.position)
                    fetcher.after_fault(position, fetched, generation)
                    self._wants_more = True
                raise
            with lock:
                counts = fetcher.after_read(position, fetched, generation)
                # Waking the loop is a write to its pipe before the records are returned, and a turn of the loop. Not
                # for what is small: its partition is being fetched already. (For single records in plain Python that
                # saves half of the I/O thread's wake-ups and 10 to 17 % of its CPU.)
                if counts and fetched.is_exhausted and (position.node is None or fetcher.lacks_room):
                    self._wants_more = True
            if counts and records:
                limit -= len(records)
                before = found.get(position.partition)
                if before is None:
                    found[position.partition] = records
                else:
                    before += records

    def _raise_error(self, position: PartitionPosition) -> None:
        """Under the lock: raise what stands in the partition's way; it is tried again unless only a seek can help."""
        error = position.fault()
        if not isinstance(error, ERRORS_MENDED_BY_SEEK):
            position.set_error(None)
            self._wants_more = True
        raise error


# What stands before the records of a consumer on a loop: rebalance steps, errors, and commits by time.
#
# A thread that polls does these things in its poll; without polls, they are done when they come up.


class LoopRecordSource:
    """Takes of ``reader`` what may be taken now. All on the loop's thread."""

    def __init__(self, reader: FetchBufferReader) -> None:
        self._reader = reader
        self._membership: GroupMembership | None = None
        self._pending_errors: PendingErrors | None = None
        self._on_news: Callable[[], object] = lambda: None
        self._commit_timer: DeadlineTimer | None = None
        self._loop: Loop | None = None

    def attach(self, membership: GroupMembership, reports: PendingErrors, on_news: Callable[[], object]) -> None:
        """What is made after the one who takes from here."""
        self._membership = membership
        self._pending_errors = reports
        self._on_news = on_news

    def attend(self) -> None:
        """The group wants something carried out."""
        if self._membership is not None:
            self._membership.attend_on_loop(self._on_news)

    def commit_by_time(self, loop: Loop) -> None:
        """Commit what was handed out, as often as the settings say."""
        self._loop = loop
        self._commit_timer = DeadlineTimer(loop, self._commit)
        assert self._membership is not None
        self._membership.call_when_commit_is_due(self._commit)
        self._commit()

    def _commit(self) -> None:
        assert self._membership is not None and self._commit_timer is not None and self._loop is not None
        when = self._membership.auto_commit(self._loop.time())
        self._commit_timer.set(when)

    def is_ready(self) -> bool:
        """Whether :meth:`take` has something to return or to raise."""
        if self._pending_errors is not None and not self._pending_errors.is_empty:
            return True
        return not self._is_busy and self._reader.is_ready()

    def take(self, limit: int) -> RecordsByPartition:
        """The next records; nothing while partitions are being given up."""
        if self._pending_errors is not None:
            self._pending_errors.raise_one()
        return {} if self._is_busy else self._reader.take(limit)

    @property
    def _is_busy(self) -> bool:
        return self._membership is not None and self._membership.is_busy


log = logging.getLogger(__name__)


class RecordSource(Protocol):
    """Where records are taken from: a Reader, or what stands before it."""

    def is_ready(self) -> bool: ...

    def take(self, limit: int) -> RecordsByPartition: ...


class RecordNotifier:
    """Notifies readers that wait for records. ``wakeup`` is set for a thread that waits; the callbacks are for a
    consumer on a loop, and run there: ``on_records`` with at most ``limit`` records at a time, ``on_error`` with what
    ``poll`` would have raised.
    """

    def __init__(
        self,
        loop: Loop,
        reader: RecordSource,
        wakeup: WakeupEvent,
        limit: int,
        on_records: Callable[[RecordsByPartition], object] | None = None,
        on_error: Callable[[Exception], object] | None = None,
    ) -> None:
        self._loop = loop
        self._reader = reader
        self._wakeup = wakeup
        self._limit = limit
        self._on_records = on_records
        self._on_error = on_error
        self._is_due = False
        self._told: list[Exception] = []
        """Errors since records were delivered last: an error that lasts until a seek comes again and again."""
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
        self._wakeup.set()
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.success(None)
        self._deliver_soon()

    def close(self) -> None:
        """Make no more callbacks."""
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
            self._deliver_soon()  # other partitions may have records, which are not announced again
            if self._on_error is None:
                log.exception("cannot read a partition; it stays at its position until seek()")
            else:
                self._on_error(error)
            return
        if records:
            self._told = []
            deliver = self._on_records
            self.on_news()  # there may be more: next turn, so that others have theirs
            deliver(records)
