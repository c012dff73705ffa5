"""The future of one record, and what it holds at the end.

A producer makes one for every record, so it is a few slots and nothing more: all the waiting and calling back is that
of its batch's one :class:`~kafka.future.Future`, and :class:`RecordMetadata` is made when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any, NamedTuple

from kafka._native import mypyc_attr
from kafka.core.produce.batch import PendingRecords
from kafka.errors import KafkaTimeoutError
from kafka.future import Future
from kafka.structs import TopicPartition


class RecordMetadata(NamedTuple):
    """Where a record is: ``offset`` is -1 when the broker was not asked (acks=0) or answered a repetition;
    ``timestamp`` in ms. ``checksum`` is always None (records v2 have none). Sizes in bytes, -1 for None."""

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int
    checksum: int | None
    serialized_key_size: int
    serialized_value_size: int
    serialized_header_size: int


@mypyc_attr(acyclic=True)
class FutureRecordMetadata:
    """The result of ``KafkaProducer.send``: a :class:`RecordMetadata` or an error, later.

    Callbacks run on the thread of the producer's loop. The methods are those of :class:`kafka.future.Future`; this end
    cannot complete it.
    """

    __slots__ = ("_header_size", "_index", "_key_size", "_pending", "_timestamp", "_value_size", "__weakref__")

    def __init__(
        self,
        pending_records: PendingRecords,
        index: int,
        timestamp: int,
        key_size: int,
        value_size: int,
        header_size: int,
    ) -> None:
        self._pending = pending_records
        self._index = index
        self._timestamp = timestamp
        self._key_size = key_size
        self._value_size = value_size
        self._header_size = header_size

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for at most ``timeout`` seconds, and return the result or raise the record's error.

        Raises KafkaTimeoutError when the time is up (the record may still be delivered), IllegalStateError on the
        thread of the producer's loop, which would wait for itself.
        """
        if not self.is_done:
            self._pending.guard()
            waiter: Future[Any] = Future()
            self.add_both(waiter.success)
            if not waiter.wait(timeout):
                raise KafkaTimeoutError(f"no answer for a record of topic {self._pending.topic} within {timeout} s")
        error = self.exception
        if error is not None:
            raise error
        value = self.value
        assert value is not None
        return value

    @property
    def is_done(self) -> bool:
        return self._settled()[2]

    @property
    def exception(self) -> BaseException | None:
        """Why it failed; None while it is not done."""
        return self._settled()[0].done.exception

    @property
    def value(self) -> RecordMetadata | None:
        """None unless it succeeded."""
        pending_records, index, _ = self._settled()
        result = pending_records.done.value
        if result is None or pending_records.forward is not None:
            return None
        base_offset, append_time = result
        partition = pending_records.partition
        return RecordMetadata(
            pending_records.topic,
            partition,
            TopicPartition(pending_records.topic, partition),
            base_offset + index if base_offset >= 0 else -1,
            append_time if append_time >= 0 else self._timestamp,
            None,
            self._key_size,
            self._value_size,
            self._header_size,
        )

    @property
    def partition(self) -> int:
        """The record's partition; -1 while it is not chosen."""
        return self._settled()[0].partition

    @property
    def append_time_ms(self) -> int:
        """When the broker appended it, on the broker's clock; -1 unless it succeeded on a topic with LogAppendTime."""
        result = self._settled()[0].done.value
        return -1 if result is None else result[1]

    @property
    def appended(self) -> int | BaseException:
        """Of one that is done: :attr:`append_time_ms`, or why it failed."""
        done = self._settled()[0].done
        if done.exception is not None:
            return done.exception
        return -1 if done.value is None else done.value[1]

    def succeeded(self) -> bool:
        """Done, with a value."""
        pending_records, _, is_done = self._settled()
        return is_done and pending_records.done.exception is None

    def failed(self) -> bool:
        """Done, with an exception."""
        return self._settled()[0].done.exception is not None

    def retriable(self) -> bool:
        """Failed with an error that says the same call may succeed later."""
        return bool(getattr(self.exception, "retriable", False))

    def add_callback(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> FutureRecordMetadata:
        """Call ``f(*args, metadata, **kwargs)`` on success."""
        self._add(True, f, args, kwargs)
        return self

    def add_errback(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> FutureRecordMetadata:
        """Call ``f(*args, exception, **kwargs)`` on failure."""
        self._add(False, f, args, kwargs)
        return self

    def add_both(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> FutureRecordMetadata:
        """Call ``f`` with the metadata or with the exception, whichever comes."""
        self._add(None, f, args, kwargs)
        return self

    def chain(self, future: Future[RecordMetadata]) -> FutureRecordMetadata:
        """Complete ``future`` with whatever completes this one."""
        return self.add_callback(future.success).add_errback(future.failure)

    def __await__(self) -> Generator[FutureRecordMetadata, None, RecordMetadata]:
        if not self.is_done:
            yield self
        return self.get(0)

    def __repr__(self) -> str:
        state = "pending" if not self.is_done else f"failed {self.exception!r}" if self.failed() else f"{self.value}"
        return f"<FutureRecordMetadata {state}>"

    def _settled(self) -> tuple[PendingRecords, int, bool]:
        """The PendingRecords that the record is in now, its index there, and whether that is done. Any thread may
        ask while the record moves: nothing is written here, and what was done before it had moved on is not its end."""
        pending_records, index = self._pending, self._index
        while True:
            is_done = pending_records.done.is_done
            forward = pending_records.forward
            if forward is None:
                return pending_records, index, is_done
            pending_records, index = forward[index]

    def _add(self, wanted: bool | None, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not callable(f):
            raise TypeError(f"a callback is a function, and not {f!r}")
        self._settled()[0].done.add_both(self._deliver, wanted, f, args, kwargs)

    def _deliver(
        self,
        wanted: bool | None,
        f: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        _: object,
    ) -> None:
        pending_records, _, is_done = self._settled()
        # Asked of the place where the record is now: another callback of the same record may have followed it already.
        if not is_done:  # it has moved: this was the end of its former PendingRecords only
            self._add(wanted, f, args, kwargs)
            return
        error = pending_records.done.exception
        if wanted is None or wanted is (error is None):
            f(*args, self.value if error is None else error, **kwargs)


def when_all_done(futures: Iterable[FutureRecordMetadata], callback: Callable[[], object]) -> None:
    """Call back once when the last of these is done, well or not; at once when all are.

    The futures of one batch cost one callback. It runs on the thread of the producer's loop.
    """
    _WhenAll(list(futures), callback).look()


class _WhenAll:
    """Waits for one future after the other. No function that calls itself: that would be a cycle, with all of these in
    it, for the garbage collector to find.
    """

    __slots__ = ("_callback", "_left")

    def __init__(self, left: list[FutureRecordMetadata], callback: Callable[[], object]) -> None:
        self._left = left
        self._callback = callback

    def look(self, _: object = None) -> None:
        """The one that was waited for may be done, or may only have moved to another batch."""
        left = self._left
        while left:
            pending_records, _index, is_done = left[-1]._settled()
            if not is_done:
                pending_records.done.add_both(self.look)
                return
            left.pop()
        self._callback()
