"""Records one by one: iteration over a consumer, and what becomes of it when it is left or interrupted.

What has been yielded is counted in ``iteration.py``; the records come from the consumer's own poll.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Generator, Iterator
from math import inf

from kafka.consumer.base import CLOSED, ConsumerBase
from kafka.consumer.reader import Reader, Records
from kafka.core.consume.record import ConsumerRecord
from kafka.errors import IllegalStateError
from kafka.structs import OffsetAndMetadata, TopicPartition


class Iterating(ConsumerBase):
    """The part of KafkaConsumer about iteration."""

    _reader: Reader
    _iterating: Generator[ConsumerRecord] | None
    """Iteration that has begun and stands between two records."""

    def _poll(self, timeout_s: float, limit: int) -> Records:
        raise NotImplementedError  # in consumer.py

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self

    def __next__(self) -> ConsumerRecord:
        """The next record; StopIteration when none came for ``consumer_timeout_ms``, and for good when the consumer is
        closed meanwhile. What was not handed out yet counts as unread: :meth:`position` and commits are behind the last
        record that was."""
        if self._iterating is None:
            self._check_usable()
            self._iterating = self._iterate()
        elif self._refusal is CLOSED:
            raise StopIteration
        try:
            return next(self._iterating)
        except StopIteration:
            if self._refusal is not CLOSED:
                self._iterating = None
            raise
        except BaseException:
            self._give_back_interrupted()
            raise

    def _iterate(self) -> Generator[ConsumerRecord]:
        timeout_ms = self._settings["consumer_timeout_ms"]
        timeout_s = threading.TIMEOUT_MAX if timeout_ms == inf else timeout_ms / 1000
        limit = self._settings["max_poll_records"]
        while True:
            self._reader.begin()
            try:
                with self._turn:
                    self._check_usable()
                    records = self._poll(timeout_s, limit)
                    self._iteration.begin(records)
            except BaseException as error:
                self._reader.interrupted(error)
                if self._refusal is CLOSED and isinstance(error, IllegalStateError):
                    return
                raise
            if not records or self._refusal is CLOSED:
                return
            yield from self._iteration.run(records)

    def _give_back_interrupted(self) -> None:
        """An interrupt ended iteration: no record that it did not hand out is to count as read."""
        iterating = self._iterating
        state = inspect.GEN_RUNNING if iterating is None else inspect.getgeneratorstate(iterating)
        if state == inspect.GEN_RUNNING:  # by another thread
            self._iterating = None
            return
        # What has not ended stands at a yield, and the interrupt came behind that.
        iteration = self._iteration
        self._give_back_iterated(iteration.without_last() if state == inspect.GEN_SUSPENDED else iteration.consumed())

    def _give_back_iterated(self, unread: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """poll() in the midst of iteration: what that has taken and not handed out comes again."""
        self._iterating = None
        if unread:
            with self._driver.lock:
                for partition, what in unread.items():
                    self._iteration.drop(partition)
                    if partition in self._fetcher.positions:
                        self._fetcher.positions[partition].seek(what.offset, what.leader_epoch)
            self._changed()
