"""``KafkaProducer.send``, the hot path of the package: from what a user hands in to a record in an open batch, and the
future that it returns.

One short lock, no call to the loop unless a batch begins or is full. The first step of ``RecordAccumulator.append`` is
repeated here, since a call less is 0.2 us.

A class of its own because this part is compiled where that can be done (``build_kafka.py``) while the rest of the
producer is plain Python always, which users may derive from and replace parts of. What does not happen for every record
is left to the methods at the end, which :class:`~kafka.producer.producer.KafkaProducer` has.

Arguments are ``Any`` here whatever they should be: compiled code checks annotated types at the call, with an error that
names no argument. ``arguments.py`` does it better; type checkers see the signature that KafkaProducer declares.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, NamedTuple

from kafka._compiled import IS_COMPILED
from kafka._native import mypyc_attr
from kafka.core.produce.accumulator import BufferFull, RecordAccumulator
from kafka.core.produce.batch import PartitionQueue, PendingRecords, ProducerBatch, TopicQueues
from kafka.errors import KafkaTimeoutError
from kafka.future import Future
from kafka.producer.arguments import header_items, partition_number, plain_bytes, topic_name
from kafka.producer.arguments import timestamp as checked_timestamp
from kafka.structs import TopicPartition

# The future of one record, and what it holds at the end.
#
# A producer makes one for every record, so it is a few slots and nothing more: all the waiting and calling back is that
# of its batch's one :class:`~kafka.future.Future`, and :class:`RecordMetadata` is made when it is asked for.


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
    def appended(self) -> tuple[int, int] | BaseException:
        """Of one that is done: :attr:`append_time_ms` and its offset (-1: unknown), or why it failed."""
        pending_records, index, _ = self._settled()
        done = pending_records.done
        if done.exception is not None:
            return done.exception
        if done.value is None:
            return -1, -1
        base_offset, append_time = done.value
        return append_time, base_offset + index if base_offset >= 0 else -1

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


# The lock that a producer's ``send`` takes for each record.
#
# In plain Python that is a ``threading.Lock``, and what there is to it is done in C. Compiled, its ``acquire`` is one
# of the dearest things in ``send``: it takes its arguments apart and reads the clock, 0.12 us of 1 us. But compiled
# code is not interrupted between two of its own lines, as long as there is a global interpreter lock: to look at a
# flag and to set it is one step, and only a thread that finds it set needs a real lock to sleep on.
#
#     held   waiting        acquire: not held -> held; else wait at the gate, and look again
#            └─ gate        release: not held; one waiter is let through the gate, to look again


_HAS_GIL = "free-threading" not in sys.version
"""By the build, and not by whether it is on now: it may be for a moment only, while a module is imported."""


class SpinLock:
    """A lock for one thread at a time, not reentrant. To be used by compiled code under the GIL alone; elsewhere it is
    no more than the lock that it holds."""

    __slots__ = ("_gate", "_is_held", "_is_plain", "_waiting")

    def __init__(self) -> None:
        self._is_plain = not (IS_COMPILED and _HAS_GIL)
        self._gate = threading.Lock()
        self._is_held = False
        self._waiting = 0
        if not self._is_plain:
            self._gate.acquire()

    def acquire(self) -> None:
        """Wait until no thread holds it, and hold it."""
        if self._is_plain:
            self._gate.acquire()
            return
        while self._is_held:
            self._waiting += 1
            try:
                self._gate.acquire()
            finally:  # also when Ctrl-C ended the wait: one that is let through in vain looks again
                self._waiting -= 1
        self._is_held = True

    def release(self) -> None:
        """Have it no more."""
        if self._is_plain:
            self._gate.release()
            return
        self._is_held = False
        if self._waiting and self._gate.locked():  # else one is on its way through
            self._gate.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


_now: Final[Callable[[], float]] = time.time


@mypyc_attr(allow_interpreted_subclasses=True)
class RecordSender:
    """A producer's ``send``, and what it looks at. Everything here is set once, by KafkaProducer, but ``_topics``."""

    _topics: dict[str, TopicQueues]
    """Those that may be sent to without another look: empty when closed, outside a transaction, with interceptors."""
    _accumulator: RecordAccumulator
    _lock: Any
    """The accumulator's; :attr:`_latch` is the same one, where that is what is used."""
    _latch: SpinLock
    _key_serializer: Callable[..., Any] | None
    _value_serializer: Callable[..., Any] | None
    _large_bytes: int
    """From this size of key, value and headers on the exact size of the record is looked at."""
    _last_index: int
    _places: bool
    """Whether the partitioner is asked even for records without a key."""
    _wants_objects: bool
    """Whether it wants keys and values as they were given."""
    _shares_headers: bool
    """Whether a serializer is given the record's headers, and may add some."""

    def send(
        self,
        topic: Any,
        value: Any = None,
        key: Any = None,
        headers: Any = None,
        partition: Any = None,
        timestamp_ms: Any = None,
    ) -> FutureRecordMetadata:
        """Take a record over for sending, and return its future.

        ``key`` and ``value`` are bytes or None, or whatever their serializer takes. ``headers``: a list of (text,
        bytes). ``partition``: that one; else the key decides, as in Java, and without a key the partitioner.
        ``timestamp_ms``: ms since the epoch, default now.

        The first record for a topic waits for its metadata, and one that finds ``buffer_memory`` full for room, both
        for at most ``max_block_ms``: KafkaTimeoutError says which. (On a loop that was given, records wait for metadata
        in the background, and a full memory is that error at once.) TypeError for what is not bytes, with the setting
        that helps; IllegalTopicError; MessageSizeTooLargeError above ``max_request_size``; IllegalArgumentError for a
        partition that is not there; IllegalStateError when closed. Nothing is sent then.
        """
        queues: TopicQueues | None = None
        try:
            queues = self._topics.get(topic)
        except TypeError:
            topic_name(topic)  # a list, or the like: says what is needed
            raise
        if queues is None or not queues.queues:
            through = self._admit_or_send(topic, value, key, headers, partition, timestamp_ms)
            if isinstance(through, FutureRecordMetadata):
                return through
            queues = through
        header_size = -1
        headers = header_items(headers) if headers else [] if self._shares_headers else None
        given = (key, value) if self._wants_objects else None
        if self._key_serializer is not None:
            key = self._key_serializer(queues.name, headers, key)
        elif key is not None and type(key) is not bytes:
            key = plain_bytes("key", key)
        if self._value_serializer is not None:
            value = self._value_serializer(queues.name, headers, value)
        elif value is not None and type(value) is not bytes:
            value = plain_bytes("value", value)
        if self._shares_headers:
            headers = header_items(headers) or None
        if headers is not None:
            header_size = 0
            for name, item in headers:
                header_size += len(name) + len(item or b"")
        key_bytes: bytes | None = key
        value_bytes: bytes | None = value
        key_size = -1 if key_bytes is None else len(key_bytes)
        value_size = -1 if value_bytes is None else len(value_bytes)
        # A header is at most 4 bytes for each character of its name, and two lengths.
        header_most = 0 if headers is None else 4 * header_size + 10 * len(headers)
        if key_size + value_size + header_most > self._large_bytes:
            self._check_size(key_bytes, value_bytes, headers)
        timestamp: int = int(_now() * 1000) if timestamp_ms is None else checked_timestamp(timestamp_ms)
        if partition is not None:
            partition = partition_number(partition)

        if not queues.queues:
            return self._append_unassigned(queues, timestamp, key_bytes, value_bytes, headers, partition, given)
        queue: PartitionQueue | None = None
        target = queues.sticky
        if partition is not None or key_bytes is not None or self._places:
            if given is None:
                queue = self._accumulator.queue_for(queues, key_bytes, partition)
            else:
                queue = self._accumulator.queue_for(queues, key_bytes, partition, given[0], given[1], value_bytes)
            target = queue
        index = -1
        batch: ProducerBatch | None = None
        if target is not None:
            if IS_COMPILED:  # no KeyboardInterrupt can come in between here
                latch = self._latch
                # In plain Python, Ctrl-C there would leave the lock locked. `with` takes three times as long, compiled.
                latch.acquire()
                try:
                    batch = target.open
                    if batch is not None:
                        index = batch.builder.append(timestamp, key_bytes, value_bytes, headers)
                finally:
                    latch.release()
            else:
                with self._lock:
                    batch = target.open
                    if batch is not None:
                        index = batch.builder.append(timestamp, key_bytes, value_bytes, headers)
            if index >= self._last_index:
                assert batch is not None
                self._accumulator.batch_filled(target, batch)
        if index < 0 or batch is None:
            try:
                batch, index = self._accumulator.append(queues, queue, timestamp, key_bytes, value_bytes, headers)
            except BufferFull as full:
                batch, index = self._append_when_there_is_room(
                    full, (queues, queue, timestamp, key_bytes, value_bytes, headers)
                )
        return FutureRecordMetadata(batch, index, timestamp, key_size, value_size, header_size)

    def _make_lock(self) -> Any:
        """The lock for the accumulator, too."""
        self._latch = SpinLock()
        self._lock = self._latch if IS_COMPILED else threading.Lock()
        return self._lock

    # -- what does not happen for every record -------------------------------------------------------------------------

    def _admit_or_send(self, topic: Any, *record: Any) -> Any:
        """For a topic that is not among ``_topics``, or has no partitions yet: its queues, or the future of the record
        when that went another way. Or the reason why nothing may be sent, raised."""
        raise NotImplementedError

    def _append_unassigned(
        self, queues: TopicQueues, timestamp: int, key: bytes | None, value: bytes | None, headers: Any,
        partition: Any, given: Any,
    ) -> FutureRecordMetadata:  # fmt: skip
        """Keep the record until its topic's partitions are known."""
        raise NotImplementedError

    def _check_size(self, key: bytes | None, value: bytes | None, headers: Any) -> None:
        """Raise for a record that is too large."""
        raise NotImplementedError

    def _append_when_there_is_room(self, full: BufferFull, record: Any) -> tuple[ProducerBatch, int]:
        """Wait for memory, where that can be, and append."""
        raise NotImplementedError
