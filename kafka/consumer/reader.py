"""Takes records out of what was fetched, in the reader's own thread: decoding is done outside the lock."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from kafka.core.consume.fetcher import Fetcher
from kafka.core.consume.positions import PartitionPosition
from kafka.core.consume.record import ConsumerRecord
from kafka.errors import AuthenticationError, OffsetOutOfRangeError
from kafka.structs import TopicPartition

Records = dict[TopicPartition, list[ConsumerRecord]]


class Reader:
    """One reader of a fetcher. ``changed`` is called when the fetcher has something to reconsider."""

    def __init__(self, fetcher: Fetcher, lock: AbstractContextManager[Any], changed: Callable[[], object]) -> None:
        self._fetcher = fetcher
        self._lock = lock
        self._changed = changed

    def is_ready(self) -> bool:
        """Whether :meth:`take` has something to return or to raise."""
        with self._lock:
            if self._fetcher.refusal is not None:
                return True
            return any(position.is_ready for position in self._fetcher.positions.values())

    def take(self, limit: int) -> Records:
        """The next records by partition, at most ``limit``. Raises what stands in the way of a partition when it is the
        first thing to be met; the position then stays before it."""
        found: Records = {}
        fetcher = self._fetcher
        lock = self._lock
        wants_more = False
        while limit > 0:
            with lock:
                position = fetcher.ready()
                if position is None:
                    if not found and fetcher.refusal is not None:
                        refusal, fetcher.refusal = fetcher.refusal, None
                        raise refusal
                    break
                generation = position.generation
                fetched = position.buffered[0] if position.buffered else None
                if fetched is None:
                    if not found:
                        self._raise_error(position)
                    break
            try:
                records = fetched.read(limit, fetcher.options)
            except Exception:
                if found:
                    break
                with lock:
                    fetcher.after_fault(position, fetched, generation)
                self._changed()
                raise
            with lock:
                fetcher.after_read(position, fetched, generation)
                wants_more = wants_more or fetched.is_exhausted
            if records:
                limit -= len(records)
                before = found.get(position.partition)
                if before is None:
                    found[position.partition] = records
                else:
                    before += records
        if wants_more:
            self._changed()
        return found

    def _raise_error(self, position: PartitionPosition) -> None:
        """Under the lock: raise what stands in the partition's way; it is tried again unless only a seek can help."""
        error = position.error
        assert error is not None
        if isinstance(error, AuthenticationError) or (
            position.fetch_offset is not None and not isinstance(error, OffsetOutOfRangeError)
        ):
            position.error = None
            self._changed()
        raise error
