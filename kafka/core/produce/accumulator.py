"""Where users' threads put records and the sender takes batches.

    send() in any thread                         the loop's thread
      lock ┌ open batch of the partition ┐          sender.poll()
           │  append, or close and open  │ closed     takes closed batches, and the open one when it is due
           └─────────────────────────────┘ ──────►
           dirty, signalled: "look at these queues", once per batch and not per record

One short lock guards ``open``, ``closed``, ``dirty`` and ``signalled``; it is handed in, since this module knows no
threads. All else of a queue (``retry``, ``in_flight``, times, sequences) belongs to the sender on the loop's thread.

What is decided here: which batch a record goes into, and for records without key or partition which partition
(KIP-480: the same one until a batch is full, then another; or one after the other). What is due, where it is sent
and what becomes of failures is the sender's (``sender.py``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from kafka.core.produce.batch import Batch, Parcel, Parked, ParkedRecord
from kafka.core.produce.murmur2 import partition_for_key
from kafka.errors import IllegalArgumentError, KafkaTimeoutError
from kafka.records import NONE, RecordBatchBuilder, max_record_bytes
from kafka.records.builder import HeaderItems

NO_LIMIT: Final = 2**31 - 1

Partitioner = Callable[[bytes | None, Sequence[int], Sequence[int]], int]
"""``(key, all partitions, those with a leader) -> partition``, as kafka-python 2 has it."""

STICKY: Final = "sticky"
ROUND_ROBIN: Final = "round_robin"


class Random(Protocol):
    """What is used of ``random.Random``."""

    def randrange(self, stop: int, /) -> int: ...


class BufferFull(Exception):
    """There is no room for another batch within ``buffer_bytes``."""


class PartitionQueue:
    """The batches of one partition, in their order: in flight, to be sent again, closed, open."""

    __slots__ = (
        "batches_count", "closed", "in_flight", "next_sequence", "node", "open", "partition", "retry", "retry_at",
        "topic",
    )  # fmt: skip

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.open: Batch | None = None
        self.closed: deque[Batch] = deque()
        self.batches_count = 0
        # The sender's alone:
        self.in_flight: list[Batch] = []
        self.retry: list[Batch] = []
        self.retry_at = 0.0
        self.next_sequence = 0
        self.node = -1
        """Where the batches in flight were sent."""

    @property
    def has_unsent(self) -> bool:
        """Something is here that is not in flight."""
        return self.open is not None or bool(self.closed) or bool(self.retry)

    def __repr__(self) -> str:
        return (
            f"<PartitionQueue {self.topic}-{self.partition} in flight {len(self.in_flight)} retry {len(self.retry)} "
            f"closed {len(self.closed)} open {self.open is not None}>"
        )


class TopicQueues:
    """The partitions of one topic. Without any while the topic's metadata is not known: records are parked then."""

    __slots__ = ("available", "name", "parked", "queues", "sticky", "turn")

    def __init__(self, name: str) -> None:
        self.name = name
        self.queues: list[PartitionQueue] = []
        self.available: list[int] = []
        """The partitions that have a leader; all of them when none has."""
        self.sticky: PartitionQueue | None = None
        """Where records without a key go now; None makes :meth:`Accumulator.append` choose."""
        self.turn = 0
        self.parked: Parked | None = None


class Accumulator:
    """Records on their way to batches.

    ``batch_bytes`` and ``batch_records`` (0: no limit) bound a batch, ``buffer_bytes`` all that was not answered: each
    batch counts with the size that it may grow to. ``signal`` is called, outside the lock, when the sender has
    something new to look at and was not told yet; ``freed`` when there is room again after a :class:`BufferFull`.
    """

    def __init__(
        self,
        *,
        lock: AbstractContextManager[Any],
        clock: Callable[[], float],
        rng: Random,
        signal: Callable[[], object],
        freed: Callable[[], object] = lambda: None,
        guard: Callable[[], None] = lambda: None,
        buffer_bytes: int = 33554432,
        batch_bytes: int = 16384,
        batch_records: int = 0,
        compression: int = NONE,
        compression_level: int | None = None,
        partitioner: Partitioner | str = STICKY,
    ) -> None:
        self.lock = lock
        self.topics: dict[str, TopicQueues] = {}
        self.last_index = (batch_records or NO_LIMIT) - 1
        """The index of a record that fills its batch."""
        self.incomplete: dict[Parcel, None] = {}
        """What was not answered yet, in the order of making."""
        self._clock = clock
        self._rng = rng
        self._signal = signal
        self._freed = freed
        self._buffer_bytes = buffer_bytes
        self._used_bytes = 0
        self._was_full = False
        self._guard = guard
        self._batch_bytes = batch_bytes
        self._compression = compression
        self._compression_level = compression_level
        self._custom = partitioner if callable(partitioner) else None
        self._round_robin = partitioner == ROUND_ROBIN
        self._dirty: dict[PartitionQueue, None] = {}
        self._signalled = False

    # -- in users' threads ---------------------------------------------------------------------------------------------

    def queue_for(self, topic: TopicQueues, key: bytes | None, partition: int | None) -> PartitionQueue | None:
        """Where a record goes; None for "wherever the open batch is" (no key, no partition, sticky).

        IllegalArgumentError for a partition that the topic does not have.
        """
        queues = topic.queues
        if partition is not None:
            if not isinstance(partition, int):
                raise TypeError(f"partition: a whole number is needed, not {partition!r}")
            if not 0 <= partition < len(queues):
                raise IllegalArgumentError(f"topic {topic.name} has {len(queues)} partitions, there is no {partition}")
            return queues[partition]
        if self._custom is not None:
            chosen = self._custom(key, range(len(queues)), topic.available)
            if not 0 <= chosen < len(queues):
                raise IllegalArgumentError(f"the partitioner chose {chosen}; {topic.name} has {len(queues)} partitions")
            return queues[chosen]
        if key is not None:
            return queues[partition_for_key(key, len(queues))]
        if self._round_robin:
            topic.turn = (topic.turn + 1) % len(topic.available)
            return queues[topic.available[topic.turn]]
        return None

    def append(
        self,
        topic: TopicQueues,
        queue: PartitionQueue | None,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: HeaderItems | None,
    ) -> tuple[Batch, int]:
        """Put a record into the open batch of ``queue`` (None: of the sticky partition), or into a new one.

        Returns the batch and the record's index in it. The producer's ``send`` does the first step of this by itself,
        inline, and comes here when the open batch is missing or full. Raises :class:`BufferFull`.
        """
        now = self._clock()
        wake = False
        try:
            with self.lock:
                batch, index, wake = self._append(topic, queue, now, timestamp, key, value, headers)
                wake = wake and self._mark_signalled()
        except BufferFull:
            self._tell()  # a full batch may have been closed
            raise
        if wake:
            self._signal()
        return batch, index

    def _append(
        self,
        topic: TopicQueues,
        queue: PartitionQueue | None,
        now: float,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: HeaderItems | None,
    ) -> tuple[Batch, int, bool]:
        """:meth:`append` under the lock; the third value says whether the sender has to know."""
        target = queue if queue is not None else topic.sticky
        batch = target.open if target is not None else None
        if batch is not None:
            index = batch.append(timestamp, key, value, headers)
            if index >= 0:
                return batch, index, self._close_if_filled(batch.queue, index)
            self._close(batch.queue)
        if queue is None:
            target = topic.sticky = self._choose_sticky(topic)
        assert target is not None
        batch = target.open
        if batch is not None:  # another partition's now, or records with keys opened it
            index = batch.append(timestamp, key, value, headers)
            if index >= 0:
                self._close_if_filled(target, index)
                return batch, index, True
            self._close(target)
        batch = self._open(target, now, max_record_bytes(key, value, headers))
        index = batch.append(timestamp, key, value, headers)
        self._close_if_filled(target, index)
        return batch, index, True

    def batch_filled(self, queue: PartitionQueue, batch: Batch) -> None:
        """``batch`` took as many records as it may: close it. For who appends without :meth:`append`."""
        with self.lock:
            if queue.open is batch:
                self._close(queue)
        self._tell()

    def park(
        self,
        topic: TopicQueues,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: HeaderItems | None,
        partition: int | None,
    ) -> tuple[Parked, int]:
        """Keep a record until its topic's partitions are known."""
        parked = topic.parked
        if parked is None:
            parked = topic.parked = Parked(topic, self._clock(), self._guard)
            self.incomplete[parked] = None
        parked.records.append(ParkedRecord(timestamp, key, value, headers, partition))
        return parked, len(parked.records) - 1

    def close_open_batches(self) -> list[Parcel]:
        """Let everything go out that is here now, lingering or not; what is still unanswered."""
        with self.lock:
            for topic in self.topics.values():
                for queue in topic.queues:
                    if queue.open is not None:
                        self._close(queue)
            parcels = list(self.incomplete)
        self._tell()
        return parcels

    # -- on the loop's thread ------------------------------------------------------------------------------------------

    def set_partitions(self, topic: TopicQueues, count: int, available: Sequence[int]) -> None:
        """The topic has partitions 0 to ``count - 1``, and those in ``available`` have a leader. Partitions are never
        taken away: batches of ones that vanish run into their time limit. Places what was parked."""
        with self.lock:
            while len(topic.queues) < count:
                topic.queues.append(PartitionQueue(topic.name, len(topic.queues)))
            topic.available = list(available) or list(range(len(topic.queues)))
        parked = topic.parked
        if parked is not None and topic.queues:
            topic.parked = None
            self._place(topic, parked)

    def give_up_parked(self, topic: TopicQueues, error: Exception) -> None:
        """Fail what is parked for the topic."""
        parked, topic.parked = topic.parked, None
        if parked is not None and not parked.done.is_done:
            self.finish(parked)
            parked.done.failure(error)

    def take_dirty(self) -> list[PartitionQueue]:
        """The queues with something new since the last call."""
        with self.lock:
            self._signalled = False
            dirty = list(self._dirty)
            self._dirty.clear()
        return dirty

    def finish(self, parcel: Parcel) -> None:
        """The parcel was answered, or given up: nobody waits for it any more, and its memory is free."""
        with self.lock:
            self.incomplete.pop(parcel, None)
            self._used_bytes -= parcel.reserved_bytes
            parcel.reserved_bytes = 0
            tell = self._was_full
            self._was_full = False
        if tell:
            self._freed()

    def close_open(self, queue: PartitionQueue) -> None:
        """Take the queue's open batch out of users' reach, to be sent."""
        with self.lock:
            if queue.open is not None:
                self._close(queue)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _place(self, topic: TopicQueues, parked: Parked) -> None:
        forward: list[tuple[Parcel, int]] = []
        for record in parked.records:
            try:
                queue = self.queue_for(topic, record.key, record.partition)
                placed = self.append(topic, queue, record.timestamp, record.key, record.value, record.headers)
            except BufferFull:
                error: Exception = KafkaTimeoutError("buffer_memory is full")
            except Exception as fault:  # a wrong partition, or an error of a user's partitioner: that record's alone
                error = fault
            else:
                forward.append(placed)
                continue
            refused = Parcel(topic.name, parked.created_at, self._guard)
            refused.done.failure(error)
            forward.append((refused, 0))
        parked.records = []
        self.finish(parked)
        parked.move(forward)

    def _choose_sticky(self, topic: TopicQueues) -> PartitionQueue:
        available = topic.available
        count = len(available)
        chosen = available[self._rng.randrange(count)]
        former = topic.sticky
        if count > 1 and former is not None and chosen == former.partition:
            chosen = available[(available.index(chosen) + 1 + self._rng.randrange(count - 1)) % count]
        return topic.queues[chosen]

    def _open(self, queue: PartitionQueue, now: float, first_bytes: int) -> Batch:
        reserved = max(self._batch_bytes, first_bytes)
        if self._used_bytes + reserved > self._buffer_bytes and self._used_bytes:
            self._was_full = True
            raise BufferFull
        self._used_bytes += reserved
        builder = RecordBatchBuilder(self._batch_bytes, self._compression, self._compression_level)
        queue.batches_count += 1
        batch = queue.open = Batch(queue, queue.batches_count, builder, now, self._guard)
        batch.reserved_bytes = reserved
        self.incomplete[batch] = None
        self._dirty[queue] = None
        return batch

    def _close(self, queue: PartitionQueue) -> None:
        batch = queue.open
        assert batch is not None
        queue.open = None
        queue.closed.append(batch)
        self._dirty[queue] = None

    def _tell(self) -> None:
        with self.lock:
            wake = self._mark_signalled()
        if wake:
            self._signal()

    def _close_if_filled(self, queue: PartitionQueue, index: int) -> bool:
        if index >= self.last_index:
            self._close(queue)
            return True
        return False

    def _mark_signalled(self) -> bool:
        if self._signalled:
            return False
        self._signalled = True
        return True
