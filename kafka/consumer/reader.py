"""Takes records out of what was fetched, in the reader's own thread: decoding is done outside the lock."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

from kafka.core.consume.faults import is_located, locate
from kafka.core.consume.fetched import MAX_HEADER_BYTES
from kafka.core.consume.fetcher import Fetcher
from kafka.core.consume.positions import PartitionPosition
from kafka.core.consume.record import ConsumerRecord
from kafka.errors import NoOffsetForPartitionError, OffsetOutOfRangeError
from kafka.structs import TopicPartition

Records = dict[TopicPartition, list[ConsumerRecord]]

ONLY_A_SEEK_HELPS: Final = (NoOffsetForPartitionError, OffsetOutOfRangeError)
"""Errors of partitions that are raised again and again; after others it is tried again what led to them."""


class Reader:
    """One reader of a fetcher. ``changed`` is called when the fetcher has something to reconsider."""

    def __init__(self, fetcher: Fetcher, lock: AbstractContextManager[Any], changed: Callable[[], object]) -> None:
        self._fetcher = fetcher
        self._lock = lock
        self._changed = changed
        self._wants_more = False
        """Something was read to its end, or is to be tried again: the fetcher has something to do."""
        self.on_taken: Callable[[Records], Records] | None = None
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

    def give_back(self) -> None:
        """What was taken since :meth:`begin` comes again, and counts as unread."""
        moved, self._moved = self._moved, {}
        with self._lock:
            for position, (generation, offset, leader_epoch) in moved.items():
                if position.generation == generation and offset is not None:
                    position.seek(offset, leader_epoch)
        self._changed()

    def take(self, limit: int) -> Records:
        """The next records by partition, at most ``limit``, fewer when they have very many headers. Raises what stands
        in the way of a partition when it is the first thing to be met; the position then stays before it."""
        found: Records = {}
        self._moved.clear()
        try:
            self._take(limit, found)
        finally:
            if self._wants_more:
                self._wants_more = False
                self._changed()
        if found and self.on_taken is not None:
            found = self.on_taken(found)
        return found

    def _take(self, limit: int, found: Records) -> None:
        fetcher = self._fetcher
        lock = self._lock
        header_bytes_left = MAX_HEADER_BYTES
        while limit > 0 and header_bytes_left > 0:
            with lock:
                position = fetcher.ready()
                if position is None:
                    if not found and fetcher.refusal is not None:
                        refusal, fetcher.refusal = fetcher.refusal, None
                        raise refusal
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
                    if not is_located(error):
                        locate(error, position.partition, fetched.position)
                    fetcher.after_fault(position, fetched, generation)
                    self._wants_more = True
                raise
            with lock:
                counts = fetcher.after_read(position, fetched, generation)
                # Waking the loop is a write to its pipe before the records are returned, and a turn of the loop. Not
                # for what is small: its partition is being fetched already.
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
        if not isinstance(error, ONLY_A_SEEK_HELPS):
            position.error = None
            self._wants_more = True
        raise error
