"""What records wait in until the broker has answered: batches, and the parking place of records without a partition.

A record's future is a pair (parcel, index): one :class:`~kafka.future.Future` serves a whole parcel, and a record that
moves to another parcel (when its topic's partitions become known; when a batch is split) is found again through
``forward``, so nobody keeps a list of the futures that were handed out.

    parcel ─┬─ Batch     records of one partition, with the sequence number they were given
            └─ Parked    records of a topic whose partitions are not known yet
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka.future import Future
from kafka.records import RecordBatchBuilder
from kafka.records.builder import HeaderItems

if TYPE_CHECKING:
    from kafka.core.produce.queues import PartitionQueue, TopicQueues


class BatchResult(NamedTuple):
    """What the broker said of a batch: ``base_offset`` (-1: not told), ``append_time`` in ms (-1: the records' own)."""

    base_offset: int
    append_time: int


MOVED = BatchResult(-2, -1)
"""The result of a parcel whose records are in others now: see ``forward``."""

UNKNOWN_PLACE = BatchResult(-1, -1)
"""The records are in the log, but where was not told: acks=0, or an answer to a repeated batch."""


class Parcel:
    """Records that share one future. ``guard`` raises where waiting for it would never end: on the loop's thread."""

    __slots__ = ("created_at", "done", "forward", "guard", "reserved_bytes", "topic")

    def __init__(self, topic: str, created_at: float, guard: Callable[[], None]) -> None:
        self.topic = topic
        self.created_at = created_at
        self.guard = guard
        self.done: Future[BatchResult] = Future()
        self.reserved_bytes = 0
        """What it counts for in the accumulator's memory."""
        self.forward: list[tuple[Parcel, int]] | None = None
        """Where each record is now, by index, once they have moved."""

    def move(self, forward: list[tuple[Parcel, int]]) -> None:
        """The records are in other parcels from now on."""
        self.forward = forward
        self.done.success(MOVED)

    def release(self) -> None:
        """Let the records' bytes go: the parcel is done, and lives on in futures."""

    @property
    def partition(self) -> int:
        """-1 while it is not known."""
        return -1

    @property
    def records_count(self) -> int:
        return 0


class ParkedRecord(NamedTuple):
    """A record as it was sent, for when its partition can be chosen."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: HeaderItems | None
    partition: int | None
    given: tuple[Any, Any] | None = None
    """Key and value before they were serialised, for a partitioner that looks at them."""


class Parked(Parcel):
    """Records that wait for their topic's metadata."""

    __slots__ = ("records", "topic_queues")

    def __init__(self, topic_queues: TopicQueues, created_at: float, guard: Callable[[], None]) -> None:
        super().__init__(topic_queues.name, created_at, guard)
        self.topic_queues = topic_queues
        self.records: list[ParkedRecord] = []

    @property
    def records_count(self) -> int:
        return len(self.records)


class Batch(Parcel):
    """Records of one partition.

    Users' threads append under the accumulator's lock while the batch is its queue's ``open`` one; from then on it
    belongs to the sender alone. ``sequence`` is -1 until it is first sent by an idempotent producer.
    """

    __slots__ = (
        "append", "attempts", "builder", "data", "data_bytes", "epoch", "in_doubt", "is_transactional", "last_error",
        "limit_bytes", "producer_id", "queue", "sequence", "serial", "skipped",
    )  # fmt: skip

    def __init__(
        self,
        queue: PartitionQueue,
        serial: int,
        builder: RecordBatchBuilder,
        created_at: float,
        guard: Callable[[], None],
    ) -> None:
        super().__init__(queue.topic, created_at, guard)
        self.queue = queue
        self.serial = serial
        """Its place among the batches of its queue."""
        self.skipped = 0
        """How many records of the batch that it was split from come before its own: its place among the parts."""
        self.builder = builder
        self.append = builder.append
        self.limit_bytes = builder.limit_bytes
        """What it may grow to; what the builder may now is what there is memory for."""
        self.data: list[bytes] = []
        """What :meth:`pieces` gave; empty when it has to be made."""
        self.data_bytes = 0
        """How many bytes that is."""
        self.producer_id = -1
        self.epoch = -1
        self.sequence = -1
        self.attempts = 0
        self.is_transactional = False
        self.in_doubt = False
        """It was sent under its present number, and whether it is in the log was not told."""
        self.last_error: BaseException | None = None
        """Why it has to be sent again."""

    @property
    def partition(self) -> int:
        return self.queue.partition

    @property
    def records_count(self) -> int:
        return self.builder.records_count

    def number(self, producer_id: int, epoch: int, sequence: int) -> None:
        """Give it (anew) its place in the producer's sequence; its bytes are made again when next asked for."""
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequence = sequence
        self.in_doubt = False
        self.data = []

    def release(self) -> None:
        self.builder.release()
        self.data = []

    def pieces(self) -> list[bytes]:
        """What is to be sent, one behind another; the same for every attempt."""
        if not self.data:
            builder = self.builder
            is_first = not builder.is_built
            pieces = builder.build_pieces(self.producer_id, self.epoch, self.sequence, self.is_transactional)
            size = 0
            for piece in pieces:
                size += len(piece)
            self.data = pieces
            self.data_bytes = size
            ratio = self.queue.ratio
            if is_first and ratio is not None:
                ratio.observe(builder.size_bytes, size)
        return self.data

    @property
    def encoded_bytes(self) -> int:
        """How many bytes that is."""
        if not self.data:
            self.pieces()
        return self.data_bytes

    def encoded(self) -> bytes:
        """The same in one piece."""
        return b"".join(self.pieces())

    def __repr__(self) -> str:
        return f"<Batch {self.topic}-{self.queue.partition} records={self.records_count} sequence={self.sequence}>"
