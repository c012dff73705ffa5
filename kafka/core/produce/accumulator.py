"""Where users' threads put records and the sender takes batches.

    send() in any thread                         the loop's thread
      lock ┌ open batch of the partition ┐          sender.poll()
           │  append, or close and open  │ closed     takes closed batches, and the open one when it is due
           └─────────────────────────────┘ ──────►
           dirty, signalled: "look at these queues", once per batch and not per record

One short lock guards ``open``, ``closed``, ``dirty`` and ``signalled``; it is handed in, since this module knows no
threads. All else of a queue (``retry``, ``in_flight``, times, sequences) belongs to the sender on the loop's thread.

What is decided here: which partition a record goes to (:class:`PartitionChooser`), which batch it goes into, and
whether there is memory for it (:class:`BufferPool`). What is due, where it is sent and what becomes of failures is the
sender's (``sender.py``).
"""

from __future__ import annotations

import operator
import struct
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from math import inf
from typing import Any, Final, Protocol

from kafka._compiled import IS_COMPILED
from kafka.core.produce.batch import (
    NO_LIMIT,
    CompressionRatioEstimator,
    PartitionQueue,
    PendingRecords,
    ProducerBatch,
    TopicQueues,
    UnassignedRecord,
    UnassignedRecords,
)
from kafka.errors import IllegalArgumentError, IllegalStateError
from kafka.records import NONE, RecordBatchBuilder, max_record_bytes
from kafka.records.builder import CHUNK_RECORDS, HeaderItems
from kafka.records.header import HEADER_BYTES

# Which partition a record goes to, when its sender did not say.
#
#     kind                       records with a key           records without                            source
#     ------------------------   --------------------------   ----------------------------------------   --------------
#     BuiltInChooser             murmur2 of the key, unless   one partition until ``batch_bytes`` went   KIP-794, Java's
#                                ``ignore_keys``              to it, then another by chance: rather      default
#                                                             one with few batches waiting (``adaptive``)
#     StickyChooser              murmur2 of the key           one partition until its batch goes out,    KIP-480
#                                                             then another by chance
#     RoundRobinChooser          murmur2 of the key           one after the other                        KIP-369
#     FunctionChooser            ``f(key, all, available)``   the same                                   kafka-python 2
#     PartitionerObjectChooser   the object's ``partition(topic, key, serialized_key, value,             kafka-python 3
#                                serialized_value, cluster)``, for all records
#
# A partitioner is asked for a queue for each record that has a key (for every record when ``asks_always``); None means
# "where the records without a key go now", and where that is, is asked for once per batch. So what has to be weighed is
# weighed once per batch, under the accumulator's lock. Partitions without a leader are not chosen for records without a
# key, as in Java.
#
# A new kind is a class here and a row in :func:`partitioning_for`; its name is checked in ``kafka/config.py``.
#
# Left out of KIP-794: Java counts the bytes of records without a key alone, here all that went to the partition count;
# a switch happens between two batches and never within one, which is what Java does while batches fill.


# MurmurHash 2, 32 bits, as Kafka's Java clients compute it: a record's key decides its partition in every client.
#
# The seed and the mixing are Austin Appleby's reference algorithm in its little-endian form; Kafka's seed is
# 0x9747b28c. The result is unsigned here; Java's is the same 32 bits as a signed integer, and clears the sign bit
# before the modulo.
#
# Source: the Java client's ``Utils.murmur2`` and ``Utils.toPositive``.


_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995
_FACTOR_LOW: Final = 0xE995
_FACTOR_HIGH: Final = 0x5BD1
_MASK: Final = 0xFFFFFFFF


def product_in_halves(number: int) -> int:
    """A number of 32 bits times the factor, modulo 2**32: each product in it is of two numbers of 16 bits."""
    low = number & 0xFFFF
    high = (low * _FACTOR_HIGH + (number >> 16) * _FACTOR_LOW) & 0xFFFF
    return (low * _FACTOR_LOW + (high << 16)) & _MASK


def mixed_in_halves(word: int) -> int:
    """What four bytes of the key, little-endian, contribute."""
    word = product_in_halves(word)
    return product_in_halves(word ^ word >> 24)


def _times_factor(number: int) -> int:
    """The product, modulo 2**32.

    In halves when compiled: from 30 bits on mypyc leaves a product to Python, which looks for signals in it, and mypyc
    ends the process ("fatal: out of memory") when Ctrl-C is found there."""
    return product_in_halves(number) if IS_COMPILED else number * _FACTOR & _MASK


def murmur2(data: bytes) -> int:
    """The hash of ``data`` as an unsigned integer of 32 bits."""
    length = len(data)
    words = length >> 2
    state = (_SEED ^ length) & _MASK
    for word in struct.unpack_from(f"<{words}I", data):
        if IS_COMPILED:
            state = product_in_halves(state) ^ mixed_in_halves(word)
        else:  # the same, without calls
            word = word * _FACTOR & _MASK
            word = (word ^ word >> 24) * _FACTOR & _MASK
            state = (state * _FACTOR & _MASK) ^ word
    rest = data[words << 2 :]
    if rest:
        state = _times_factor(state ^ int.from_bytes(rest, "little"))
    state = _times_factor(state ^ state >> 13)
    return state ^ state >> 15


def partition_for_key(key: bytes, partitions_count: int) -> int:
    """The partition, of 0 to ``partitions_count - 1``, that every Kafka client gives a record with this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions_count


LOADS_AGE_S: Final = 10e-6
"""What is known of the load of a topic with n partitions is good for n times as long: looking costs 0.2 us each."""


class RandomSource(Protocol):
    """What is used of ``random.RandomSource``."""

    def randrange(self, stop: int, /) -> int: ...


class PartitionChooser:
    """The base: keys as in Java, and for records without a key any partition by chance."""

    asks_always = False
    """Whether records without a key are asked about one by one."""
    wants_objects = False
    """Whether it looks at keys and values as they were before they were serialised."""

    def __init__(self, rng: RandomSource) -> None:
        self.rng = rng

    def queue_for(
        self, topic: TopicQueues, key_bytes: bytes | None, key: Any, value: Any, value_bytes: bytes | None
    ) -> PartitionQueue | None:
        """Where this record goes; None: where the topic's records without a key go now."""
        if key_bytes is None:
            return None
        return topic.queues[partition_for_key(key_bytes, len(topic.queues))]

    def next_sticky(self, topic: TopicQueues, now: float) -> PartitionQueue:
        """Where records without a key go from now on, since a batch has to be begun."""
        available = topic.available
        return topic.queues[available[self.rng.randrange(len(available))]]


class StickyChooser(PartitionChooser):
    """KIP-480: another partition for each batch."""

    def next_sticky(self, topic: TopicQueues, now: float) -> PartitionQueue:
        available = topic.available
        count = len(available)
        chosen = available[self.rng.randrange(count)]
        former = topic.sticky
        if count > 1 and former is not None and chosen == former.partition:
            chosen = available[(available.index(chosen) + 1 + self.rng.randrange(count - 1)) % count]
        return topic.queues[chosen]


class BuiltInChooser(PartitionChooser):
    """KIP-794. ``late_s``: a batch that has waited so long since it was begun says that the partition's leader takes
    nothing, and none of the leader's partitions is chosen as long as there are others (0: that is not looked at)."""

    def __init__(
        self,
        rng: RandomSource,
        sticky_bytes: int,
        *,
        adaptive: bool = True,
        ignore_keys: bool = False,
        late_s: float = 0.0,
    ) -> None:
        super().__init__(rng)
        self._sticky_bytes = sticky_bytes
        self._adaptive = adaptive
        self._ignore_keys = ignore_keys
        self._late_s = late_s

    def queue_for(
        self, topic: TopicQueues, key_bytes: bytes | None, key: Any, value: Any, value_bytes: bytes | None
    ) -> PartitionQueue | None:
        if key_bytes is None or self._ignore_keys:
            return None
        return topic.queues[partition_for_key(key_bytes, len(topic.queues))]

    def next_sticky(self, topic: TopicQueues, now: float) -> PartitionQueue:
        current = topic.sticky
        if current is not None:
            if not current.was_filled and current.produced_bytes - topic.sticky_from_bytes < self._sticky_bytes:
                return current
            current.forget_filled()
        chosen = self._weighed(topic, now) if self._adaptive else super().next_sticky(topic, now)
        topic.begin_sticky(chosen.produced_bytes)
        return chosen

    def _weighed(self, topic: TopicQueues, now: float) -> PartitionQueue:
        """By chance, each partition the likelier the fewer batches wait in it: one with none, where the longest
        queue has five, is six times as likely as that."""
        if now >= topic.loads_until:
            self._weigh(topic, now)
        sums = topic.load_sums
        if not sums:
            return super().next_sticky(topic, now)
        return topic.queues[topic.load_partitions[bisect_right(sums, self.rng.randrange(sums[-1]))]]

    def _weigh(self, topic: TopicQueues, now: float) -> None:
        """Weigh the partitions by how many batches wait in each, for as long as that is worth anything. Partitions
        whose batches wait for too long, and others of their nodes, are left out while there are any others."""
        queues = topic.queues
        partitions: Sequence[int] = topic.available
        if self._late_s:
            late = [queue for queue in queues if queue.closed and now - queue.closed[0].created_at > self._late_s]
            if late:
                nodes = {queue.node for queue in late if queue.node >= 0}
                names = {queue.partition for queue in late}
                partitions = [n for n in partitions if n not in names and queues[n].node not in nodes] or partitions
        sizes = [len(queues[n].closed) + len(queues[n].retry) + (queues[n].open is not None) for n in partitions]
        most = max(sizes)
        until = now + len(topic.available) * LOADS_AGE_S
        sums: list[int] = []
        if most != min(sizes) or len(partitions) != len(topic.available):  # else all are alike: plain chance
            total = 0
            for size in sizes:
                total += most + 1 - size
                sums.append(total)
        topic.note_loads(sums, list(partitions), until)


class RoundRobinChooser(PartitionChooser):
    """KIP-369 for records without a key."""

    asks_always = True

    def queue_for(
        self, topic: TopicQueues, key_bytes: bytes | None, key: Any, value: Any, value_bytes: bytes | None
    ) -> PartitionQueue | None:
        if key_bytes is not None:
            return super().queue_for(topic, key_bytes, key, value, value_bytes)
        return topic.queues[topic.next_turn()]


class FunctionChooser(PartitionChooser):
    """A user's ``f(key, all partitions, available partitions) -> partition``; key in bytes, or None."""

    asks_always = True

    def __init__(self, rng: RandomSource, function: Callable[..., Any]) -> None:
        super().__init__(rng)
        self._function = function

    def queue_for(
        self, topic: TopicQueues, key_bytes: bytes | None, key: Any, value: Any, value_bytes: bytes | None
    ) -> PartitionQueue | None:
        every = list(range(len(topic.queues)))
        return chosen_queue(topic, self._function(key_bytes, every, list(topic.available)))


class PartitionerObjectChooser(PartitionChooser):
    """A user's object with kafka-python 3's ``partition``; ``cluster`` is handed to it."""

    asks_always = True
    wants_objects = True

    def __init__(self, rng: RandomSource, method: Callable[..., Any], cluster: Any) -> None:
        super().__init__(rng)
        self._method = method
        self._cluster = cluster

    def queue_for(
        self, topic: TopicQueues, key_bytes: bytes | None, key: Any, value: Any, value_bytes: bytes | None
    ) -> PartitionQueue | None:
        return chosen_queue(topic, self._method(topic.name, key, key_bytes, value, value_bytes, self._cluster))


def chosen_queue(topic: TopicQueues, partition: Any) -> PartitionQueue:
    """The queue of a partition that a user's partitioner chose. TypeError for what is no number, IllegalArgumentError
    for a partition that is not there."""
    try:
        number = operator.index(partition)
    except TypeError:
        raise TypeError(
            f"the partitioner returned {partition!r} for topic {topic.name}, and not the number of a partition"
        ) from None
    count = len(topic.queues)
    if not 0 <= number < count:
        raise IllegalArgumentError(f"the partitioner chose {number}; topic {topic.name} has {count} partitions")
    return topic.queues[number]


STICKY: Final = "sticky"
ROUND_ROBIN: Final = "round_robin"
BY_NAME: Final[dict[str, type[PartitionChooser]]] = {STICKY: StickyChooser, ROUND_ROBIN: RoundRobinChooser}


def partitioning_for(
    given: Any,
    rng: RandomSource,
    *,
    batch_bytes: int = 16384,
    adaptive: bool = True,
    ignore_keys: bool = False,
    late_s: float = 0.0,
    cluster: Any = None,
) -> PartitionChooser:
    """The kind for what a user gave: None, a name of :data:`BY_NAME`, an object of kafka-python 3's shape, a function
    of kafka-python 2's, or a class of either, which is instantiated here."""
    if given is None:
        return BuiltInChooser(rng, batch_bytes, adaptive=adaptive, ignore_keys=ignore_keys, late_s=late_s)
    if isinstance(given, str):
        return BY_NAME[given](rng)
    if isinstance(given, PartitionChooser):
        return given
    if isinstance(given, type):
        given = given()
    method = getattr(given, "partition", None)
    return PartitionerObjectChooser(rng, method, cluster) if callable(method) else FunctionChooser(rng, given)


# The account of ``buffer_memory``: what is held, which callers wait for more, in which order.
#
# What counts is what Python holds, not what will go over the wire. A record of seven bytes is six pointers until its
# neighbours are joined with it, and a batch is a dozen objects however little is in it; so a batch counts with
#
#     open      OBJECT_BYTES + what it may grow to before it has to ask again + the pieces of its last records
#     closed    OBJECT_BYTES + its bytes
#     unassigned   UNASSIGNED_RECORD_BYTES for each record + its bytes: of a topic whose partitions are not known
#
# What is not counted: the futures that users keep (a batch's own is in OBJECT_BYTES), values that users keep, the
# requests that are being written, and what the memory allocator rounds up to. ``test/producer/test_buffer_memory.py``
# measures processes, and keeps the sum of these within a fifth. (With a stopped broker and empty records a process grew
# to six times ``buffer_memory`` when only the records' bytes counted.)
#
# Waiters get memory in the order in which they came, as from Java's ``BufferPool``: a later one gets none while
# one waits, small as it may be. A record for which an open batch has room needs none, and does not wait.
#
# Everything here is done under the accumulator's lock; threads and their events are the producer's
# (``MemoryWaiter.wake``).


OBJECT_BYTES: Final = 1024
"""A batch with its future, its builder and its places in tables, about: measured with one record in each."""
RECORD_CHUNKS_BYTES: Final = 96
"""A record that was not joined with others yet costs so much more than its bytes, about."""
LEAST_RECORD_BYTES: Final = 7
UNASSIGNED_RECORD_BYTES: Final = 320
"""A record without a partition costs so much more than its key, its value and its headers, about."""
UNASSIGNED_HEADER_BYTES: Final = 192
AMPLE_MEMORY_SHIFT: Final = 5
"""A waiter is woken at once when a 32nd of the memory is free: 1 MiB by default."""


class MemoryWaiter(Protocol):
    """A caller that waits for memory."""

    needed_bytes: int
    """Set here."""

    def wake(self) -> object:
        """There may be enough: try again. Called by any thread."""


class BufferFull(Exception):
    """There is no room for ``needed_bytes`` more, or others wait for it already."""

    def __init__(self, needed_bytes: int) -> None:
        super().__init__(needed_bytes)
        self.needed_bytes = needed_bytes


class BufferPool:
    """Owner of the sum and of the queue of waiters."""

    __slots__ = ("is_short", "limit_bytes", "used_bytes", "waiters")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.waiters: deque[MemoryWaiter] = deque()
        self.is_short = False
        """A record was refused and nothing was freed since, or a caller waits: batches should not linger now."""

    def take(self, count: int, waiter: MemoryWaiter | None) -> bool:
        """Count so many bytes more, if there is room; ``waiter`` is the caller when it stands in the queue of waiters.

        One that is larger than everything is let in when it is alone: it could never be sent otherwise.
        """
        is_first = not self.waiters or self.waiters[0] is waiter
        if is_first and (not self.used_bytes or self.used_bytes + count <= self.limit_bytes):
            self.used_bytes += count
            return True
        self.is_short = True
        if waiter is not None:
            waiter.needed_bytes = count
        return False

    def give(self, count: int) -> None:
        """So many bytes are free again."""
        self.used_bytes -= count
        if not self.waiters:
            self.is_short = False

    def has_plenty(self) -> bool:
        """Whether there is a waiter, and so much for it that several batches will find room."""
        if not self.waiters:
            return False
        wanted = max(self.waiters[0].needed_bytes, self.limit_bytes >> AMPLE_MEMORY_SHIFT)
        return not self.used_bytes or self.used_bytes + wanted <= self.limit_bytes

    def next_waiter(self) -> MemoryWaiter | None:
        """The first waiter, when there may be enough for it."""
        if not self.waiters:
            return None
        first = self.waiters[0]
        if not self.used_bytes or self.used_bytes + first.needed_bytes <= self.limit_bytes:
            return first
        return None

    def leave(self, waiter: MemoryWaiter) -> None:
        """``waiter`` got what it needs, or gives up; nothing when it does not stand there."""
        if waiter in self.waiters:
            self.waiters.remove(waiter)
        if not self.waiters:
            self.is_short = False


def open_batch_bytes(room_bytes: int, record_bytes: int) -> int:
    """What an open batch counts that may grow to ``room_bytes``, when its records have ``record_bytes`` on average."""
    pieces = (room_bytes - HEADER_BYTES) // max(record_bytes, LEAST_RECORD_BYTES) + 1
    return OBJECT_BYTES + room_bytes + RECORD_CHUNKS_BYTES * (pieces if pieces < CHUNK_RECORDS else CHUNK_RECORDS)


PRODUCER_CLOSED: Final = "the producer is closed"
WAITER_PATIENCE_S: Final = 0.01
"""So long the first waiter may wait for more memory than it needs. Each time it is woken two threads change places,
and each starts with what the other left in the caches: to be woken for each batch that was answered cost a producer
that is faster than its broker a tenth of its CPU."""


class RecordAccumulator:
    """Records on their way to batches.

    ``batch_bytes`` and ``batch_records`` (0: no limit) bound a batch, ``buffer_bytes`` all that was not answered. One
    that is compressed may have more than ``batch_bytes`` before, by the topic's
    :class:`~kafka.core.produce.accumulator.CompressionRatioEstimator`: up to ``max_batch_bytes``, and no more than
    leaves half of the memory free when every partition has one. A batch is given memory in steps, since most of many
    partitions' batches go out long before they are full.

    ``signal`` is called, outside the lock, when the sender has something new to look at and was not notified yet. A
    batch behind others of its partition that wait is nothing new: when it can take one of those it looks at the next,
    too.
    """

    def __init__(
        self,
        *,
        lock: AbstractContextManager[Any],
        clock: Callable[[], float],
        rng: RandomSource,
        signal: Callable[[], object],
        guard: Callable[[], None] = lambda: None,
        buffer_bytes: int = 33554432,
        batch_bytes: int = 16384,
        batch_records: int = 0,
        max_batch_bytes: int = 1048576,
        compression: int = NONE,
        compression_level: int | None = None,
        partitioner: PartitionChooser | str | Callable[..., Any] | None = None,
    ) -> None:
        self.lock = lock
        self.topics: dict[str, TopicQueues] = {}
        self.last_index = (batch_records or NO_LIMIT) - 1
        """The index of a record that fills its batch."""
        self.incomplete: dict[PendingRecords, None] = {}
        """What was not answered yet, in the order of making."""
        self.memory = BufferPool(buffer_bytes)
        self.partitioning = partitioning_for(partitioner, rng, batch_bytes=batch_bytes)
        self._clock = clock
        self._signal = signal
        self._buffer_bytes = buffer_bytes
        self._guard = guard
        self._on_begun: Callable[[PendingRecords], object] | None = None
        # A batch larger than all memory could never be begun.
        self._batch_bytes = min(batch_bytes, buffer_bytes)
        self._max_batch_bytes = max_batch_bytes
        self._queues_count = 0
        self._compression = compression
        self._compression_level = compression_level
        self._dirty: dict[PartitionQueue, None] = {}
        self._signalled = False
        self._enough_at = inf
        """Since when there is memory for the first waiter; infinite while there is not."""
        self._has_news = False
        """There is something to signal, under the lock."""
        self._is_forced = False
        """Whether memory is counted without asking, under the lock."""
        self.is_closed = False
        """No batch is begun any more: set before the last :meth:`take_all`, so that no record comes in after it."""

    def use_lock(self, lock: AbstractContextManager[Any]) -> None:
        """In the child of a fork: the former one may be held by a thread that is not there."""
        self.lock = lock

    # -- in users' threads ---------------------------------------------------------------------------------------------

    def queue_for(
        self,
        topic: TopicQueues,
        key_bytes: bytes | None,
        partition: int | None,
        key: Any = None,
        value: Any = None,
        value_bytes: bytes | None = None,
    ) -> PartitionQueue | None:
        """Where a record goes; None for "where the topic's records without a key go now". ``key`` and ``value`` as they
        were before they were serialised.

        IllegalArgumentError for a partition that the topic does not have, and the errors of a user's partitioner.
        """
        if partition is None:
            return self.partitioning.queue_for(topic, key_bytes, key, value, value_bytes)
        queues = topic.queues
        if not isinstance(partition, int):
            raise TypeError(f"partition: a whole number is needed, not {partition!r}")
        if not 0 <= partition < len(queues):
            raise IllegalArgumentError(f"topic {topic.name} has {len(queues)} partitions, there is no {partition}")
        return queues[partition]

    def append(
        self,
        topic: TopicQueues,
        queue: PartitionQueue | None,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: HeaderItems | None,
        waiter: MemoryWaiter | None = None,
    ) -> tuple[ProducerBatch, int]:
        """Put a record into the open batch of ``queue`` (None: of the sticky partition), or into a new one.

        Returns the batch and the record's index in it. The producer's ``send`` does the first step of this by itself,
        inline, and comes here when the open batch is missing or full. Raises :class:`BufferFull`. ``waiter``: the
        caller, when it stands in the queue of waiters for memory.
        """
        now = self._clock()
        wake = False
        try:
            with self.lock:
                found = self._append(topic, queue, now, timestamp, key, value, headers, waiter)
                wake = self._has_news and self._mark_signalled()
            if wake:
                self._signal()
            if self.memory.waiters:
                self.notify_waiters()
        except BufferFull:
            self._signal_sender()  # a full batch may have been closed, and nothing is to linger now
            raise
        except BaseException:
            if wake:  # Ctrl-C between the mark and the signal: who believes the mark would wait for ever
                self._signalled = False
            raise
        return found

    def _append(
        self,
        topic: TopicQueues,
        queue: PartitionQueue | None,
        now: float,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: HeaderItems | None,
        waiter: MemoryWaiter | None,
    ) -> tuple[ProducerBatch, int]:
        """:meth:`append` under the lock."""
        target = queue if queue is not None else topic.sticky
        if target is not None and target.open is not None:
            batch = target.open
            index = self._append_to(batch, waiter, timestamp, key, value, headers)
            if index >= 0:
                self._close_if_filled(target, index)
                return batch, index
        if queue is None:
            target = self.partitioning.next_sticky(topic, now)
            topic.stick_to(target)
            if target.open is not None:  # another partition's now, or records with keys opened it
                batch = target.open
                index = self._append_to(batch, waiter, timestamp, key, value, headers)
                if index >= 0:
                    self._close_if_filled(target, index)
                    return batch, index
        assert target is not None
        batch = self._open(target, now, max_record_bytes(key, value, headers), waiter)
        index = batch.append(timestamp, key, value, headers)
        self._close_if_filled(target, index)
        return batch, index

    def _append_to(
        self,
        batch: ProducerBatch,
        waiter: MemoryWaiter | None,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: HeaderItems | None,
    ) -> int:
        """Append to an open batch, which may be given more memory for it; below 0: it was full, and is closed."""
        index = batch.append(timestamp, key, value, headers)
        if index < 0:
            needed = batch.builder.size_bytes + batch.builder.size_of(timestamp, key, value, headers)
            if needed <= batch.limit_bytes:
                self._grow(batch, needed, waiter)
                index = batch.append(timestamp, key, value, headers)
        if index < 0:
            self._close(batch.queue, True)
        return index

    def batch_filled(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """``batch`` took as many records as it may: close it. For who appends without :meth:`append`."""
        with self.lock:
            if queue.open is batch:
                self._close(queue, True)
        self._signal_sender()

    def append_unassigned(
        self,
        topic: TopicQueues,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: HeaderItems | None,
        partition: int | None,
        given: tuple[Any, Any] | None = None,
    ) -> tuple[UnassignedRecords, int]:
        """Keep a record until its topic's partitions are known. Raises :class:`BufferFull`."""
        held = UNASSIGNED_RECORD_BYTES + (len(key) if key else 0) + (len(value) if value else 0)
        if headers:
            held += sum(UNASSIGNED_HEADER_BYTES + len(name) + (len(item) if item else 0) for name, item in headers)
        with self.lock:
            if self.is_closed:
                raise IllegalStateError(PRODUCER_CLOSED)
            if self._take(held, None):
                unassigned = topic.unassigned
                if unassigned is None:
                    unassigned = UnassignedRecords(topic, self._clock(), self._guard)
                    if self._on_begun is not None:
                        self._on_begun(unassigned)
                    topic.keep_unassigned(unassigned)
                    self.incomplete[unassigned] = None
                unassigned.reserved_bytes += held  # no call: Ctrl-C may come with one, and what was taken would leak
                unassigned.records.append(UnassignedRecord(timestamp, key, value, headers, partition, given))
                return unassigned, len(unassigned.records) - 1
        self._signal_sender()
        raise BufferFull(held)

    def now(self) -> float:
        """The clock that batches' ages are counted on."""
        return self._clock()

    def add_waiter(self, waiter: MemoryWaiter) -> bool:
        """``waiter`` wants memory after all who stand there already; it is woken when there may be enough, is handed to
        :meth:`append` then, and has to leave in the end. Whether there may be enough already."""
        with self.lock:
            self.memory.waiters.append(waiter)
            is_ready = self.memory.next_waiter() is waiter
            if not is_ready and not self.memory.is_short:  # answered since it was refused: again nothing should linger
                self.memory.is_short = self._has_news = True
        self._signal_sender()
        return is_ready

    def notify_waiters(self) -> None:
        """The first waiter for memory has its turn, when there may be enough for it."""
        if self.memory.waiters:
            with self.lock:
                waiter = self.memory.next_waiter()
            if waiter is not None:
                waiter.wake()

    def remove_waiter(self, waiter: MemoryWaiter) -> None:
        """``waiter`` got its memory, or gives up: the next in the queue of waiters has its turn."""
        with self.lock:
            self.memory.leave(waiter)
        self.notify_waiters()

    def close_open_batches(self) -> list[PendingRecords]:
        """Let everything go out that is here now, lingering or not; what is still unanswered."""
        with self.lock:
            for topic in list(self.topics.values()):  # threads add topics without the lock
                for queue in topic.queues:
                    if queue.open is not None:
                        self._close(queue)
            pending = list(self.incomplete)
            self._has_news = True
        self._signal_sender()
        return pending

    # -- on the loop's thread ------------------------------------------------------------------------------------------

    def set_partitions(self, topic: TopicQueues, count: int, available: Sequence[int]) -> None:
        """The topic has partitions 0 to ``count - 1``, and those in ``available`` have a leader. Partitions are never
        taken away: batches of ones that vanish run into their time limit. Places the records that waited for them."""
        with self.lock:
            if topic.ratio is None and self._compression != NONE:
                topic.use_ratio(CompressionRatioEstimator())
            added = [PartitionQueue(topic.name, number, topic.ratio) for number in range(len(topic.queues), count)]
            self._queues_count += len(added)
            topic.add_queues(added, list(available) or list(range(len(topic.queues) + len(added))))
        unassigned = topic.take_unassigned() if topic.queues else None
        if unassigned is not None:
            self._place(topic, unassigned)

    def fail_unassigned(self, topic: TopicQueues, error: BaseException) -> None:
        """Fail the records that wait for the metadata of the topic."""
        unassigned = topic.take_unassigned()
        if unassigned is not None and not unassigned.done.is_done:
            self.finish(unassigned)
            self.notify_waiters()  # no poll need follow
            unassigned.done.failure(error)

    def take_dirty(self) -> list[PartitionQueue]:
        """The queues with something new since the last call."""
        with self.lock:
            self._signalled = self._has_news = False
            dirty = list(self._dirty)
            self._dirty.clear()
        return dirty

    def finish(self, pending_records: PendingRecords) -> None:
        """The PendingRecords was answered, or given up: no caller waits for it any more, and its records' bytes are let
        go, which a future that a user keeps would hold otherwise. Who waits for memory is woken when there is plenty
        of it, else by :meth:`notify_overdue_waiter`."""
        with self.lock:
            self.incomplete.pop(pending_records, None)
            self.memory.give(pending_records.reserved_bytes)
            pending_records.reserved_bytes = 0
            has_plenty = self.memory.has_plenty()
        pending_records.release()
        if has_plenty:
            self.notify_waiters()

    def notify_overdue_waiter(self, now: float) -> float:
        """Wake the first waiter for memory when there has been enough for :data:`WAITER_PATIENCE_S`. When to ask
        again; infinite for not before something else happens."""
        if not self.memory.waiters:
            self._enough_at = inf
            return inf
        with self.lock:
            waiter = self.memory.next_waiter()
        if waiter is None:
            self._enough_at = inf
            return inf
        if self._enough_at == inf:
            self._enough_at = now
        due_at = self._enough_at + WAITER_PATIENCE_S
        if due_at > now:
            return due_at
        self._enough_at = inf
        waiter.wake()
        return inf

    def take_all(self) -> list[PendingRecords]:
        """What is unanswered, none of which waits here any more: to be failed."""
        with self.lock:
            for topic in list(self.topics.values()):
                topic.take_unassigned()
                for queue in topic.queues:
                    if queue.open is not None:
                        self._close(queue)
                    queue.closed.clear()
            return list(self.incomplete)

    def replace(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """``parts`` have the batch's records from now on, and its memory."""
        with self.lock:
            self.incomplete.pop(batch, None)
            for part in parts:
                part.reserve(batch.reserved_bytes // len(parts))
                self.incomplete[part] = None
                if self._on_begun is not None:
                    self._on_begun(part)
            parts[0].reserve(batch.reserved_bytes % len(parts))
            batch.reserve(-batch.reserved_bytes)
        batch.release()

    def watch(self, on_begun: Callable[[PendingRecords], object]) -> None:
        """Call back with all that is begun from now on, under the lock, before any of its records can have an end."""
        self._on_begun = on_begun

    def new_builder(self, limit_bytes: int) -> RecordBatchBuilder:
        """A builder with the producer's compression."""
        return RecordBatchBuilder(limit_bytes, self._compression, self._compression_level)

    def close_open(self, queue: PartitionQueue) -> None:
        """Take the queue's open batch out of users' reach, to be sent: by the sender, for whom that is no news."""
        with self.lock:
            if queue.open is not None:
                had_news = self._has_news
                self._close(queue)
                self._has_news = had_news
        self.notify_waiters()

    def take_unsent(self, queue: PartitionQueue) -> list[ProducerBatch]:
        """What was never sent of the queue, to be failed. In one step: what is begun afterwards is behind nothing, and
        so it is news.
        """
        with self.lock:
            if queue.open is not None:
                had_news = self._has_news
                self._close(queue)
                self._has_news = had_news
            taken = list(queue.closed)
            queue.closed.clear()
        self.notify_waiters()
        return taken

    # -- inside --------------------------------------------------------------------------------------------------------

    def _place(self, topic: TopicQueues, unassigned: UnassignedRecords) -> None:
        """Put records without a partition into batches. Its memory is counted anew, batch by batch, and without
        asking: it is held already."""
        forward: list[tuple[PendingRecords, int]] = []
        now = self._clock()
        place = self.partitioning.queue_for
        records = unassigned.take_records()
        self.finish(unassigned)
        for record in records:
            key, value = record.given or (None, None)
            try:
                if record.partition is None:
                    queue = place(topic, record.key, key, value, record.value)
                else:
                    queue = self.queue_for(topic, record.key, record.partition)
            except Exception as error:  # a wrong partition, or an error of a user's partitioner: that record's alone
                refused = PendingRecords(topic.name, unassigned.created_at, self._guard)
                refused.done.failure(error)
                forward.append((refused, 0))
                continue
            with self.lock:
                self._is_forced = True
                try:
                    batch, index = self._append(
                        topic, queue, now, record.timestamp, record.key, record.value, record.headers, None
                    )
                finally:
                    self._is_forced = False
            forward.append((batch, index))
        self._signal_sender()
        unassigned.move(forward)

    def _take(self, count: int, waiter: MemoryWaiter | None) -> bool:
        memory = self.memory
        if self._is_forced:
            memory.used_bytes += count
            return True
        was_short = memory.is_short
        if memory.take(count, waiter):
            return True
        if was_short:
            return False
        free = self._take_back()
        found = memory.take(count, waiter)
        memory.is_short = not found or free < memory.limit_bytes // 16  # else it is worth another look the next time
        return found

    def _take_back(self) -> int:
        """Memory has become short: open batches keep what they hold, and no longer what they might, and are not to
        linger. How much is free then."""
        for topic in list(self.topics.values()):
            for queue in topic.queues:
                batch = queue.open
                if batch is not None:
                    batch.builder.shrink()
                    spare = batch.reserved_bytes - OBJECT_BYTES - batch.builder.size_bytes
                    self.memory.used_bytes -= spare
                    batch.reserved_bytes -= spare  # no call between the two: with Ctrl-C there they would differ
                    self._has_news = True
        return self.memory.limit_bytes - self.memory.used_bytes

    def _open(self, queue: PartitionQueue, now: float, first_bytes: int, waiter: MemoryWaiter | None) -> ProducerBatch:
        if self.is_closed:
            raise IllegalStateError(PRODUCER_CLOSED)
        limit = self._batch_bytes
        if queue.ratio is not None:
            limit = queue.ratio.room(limit, min(self._max_batch_bytes, self._buffer_bytes // (2 * self._queues_count)))
        # A thread waits for all of this: with less, batches would be the smaller the busier the threads are.
        # In steps: with full batches, 1,000 partitions would take half of the memory with nothing in them.
        room = max(min(queue.room_bytes, limit, self._buffer_bytes // 8), first_bytes)
        reserved = open_batch_bytes(room, first_bytes - HEADER_BYTES)
        if not self._take(reserved, waiter):
            raise BufferFull(reserved)
        try:
            batch = ProducerBatch(queue, queue.batches_count + 1, self.new_builder(min(room, limit)), now, self._guard)
            batch.set_limit(limit)
            batch.reserve(reserved)
            if self._on_begun is not None:
                self._on_begun(batch)
        except BaseException:  # Ctrl-C would leak the memory
            self.memory.give(reserved)
            raise
        # No calls from here on: Ctrl-C may come with one, and a batch that is open and in no table would never be sent.
        queue.batches_count += 1
        had_news = self._has_news
        self._has_news = True
        queue.open = batch
        self.incomplete[batch] = None
        self._dirty[queue] = None
        # No news for the sender: what it waits for wakes it. Otherwise a producer that is faster than its broker would
        # wake its loop for each batch, to find that there is nothing to do.
        if queue.closed:  # asked now: should the sender take the last of them before, it would not look at `open`
            self._has_news = had_news
        return batch

    def _grow(self, batch: ProducerBatch, needed_bytes: int, waiter: MemoryWaiter | None) -> None:
        """Let an open batch grow to ``needed_bytes`` at least, and rather to four times what it may have now. Raises
        :class:`BufferFull`."""
        builder = batch.builder
        record = (builder.size_bytes - HEADER_BYTES) // builder.records_count
        for room in (max(min(builder.limit_bytes * 4, batch.limit_bytes), needed_bytes), needed_bytes):
            wanted = open_batch_bytes(room, record)
            more = max(wanted - batch.reserved_bytes, 0)
            if not more or self._take(more, waiter):
                builder.limit_bytes = room
                self.memory.used_bytes += max(wanted - batch.reserved_bytes - more, 0)  # if it was taken back meanwhile
                batch.reserve(max(wanted - batch.reserved_bytes, 0))
                return
        raise BufferFull(more)

    def _close(self, queue: PartitionQueue, was_filled: bool = False) -> None:
        """Take the open batch out of users' reach. It counts with its size from now on."""
        batch = queue.open
        assert batch is not None
        builder = batch.builder
        builder.compact()
        size = builder.size_bytes
        had_news = self._has_news
        self._has_news = True
        queue.close_open(size, was_filled)
        if len(queue.closed) > 1:  # asked now, as in _open
            self._has_news = had_news
        self._dirty[queue] = None
        spare = batch.reserved_bytes - OBJECT_BYTES - size
        batch.reserve(-spare)
        self.memory.give(spare)

    def _signal_sender(self) -> None:
        self.notify_waiters()
        is_signalled = False
        try:
            with self.lock:
                wake = self._has_news and self._mark_signalled()
            if wake:
                self._signal()
            is_signalled = True
        finally:
            if not is_signalled:  # as in append
                self._signalled = False

    def _close_if_filled(self, queue: PartitionQueue, index: int) -> None:
        if index >= self.last_index:
            self._close(queue, True)

    def _mark_signalled(self) -> bool:
        if self._signalled:
            return False
        self._signalled = True
        return True
