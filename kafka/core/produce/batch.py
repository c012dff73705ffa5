"""What records wait in until the broker has answered: batches, and records whose partition is not known yet; and the
Produce request that carries batches (:func:`produce_request`, :class:`EncodedProduceRequest`).

A record's future is a pair (PendingRecords, index): one :class:`~kafka.future.Future` serves a whole PendingRecords,
and a record that moves to another PendingRecords (when its topic's partitions become known; when a batch is split) is
found again through ``forward``, so no list of the futures that were handed out is kept.

    PendingRecords ─┬─ ProducerBatch        records of one partition, with the sequence number they were given
                    └─ UnassignedRecords    records of a topic whose partitions are not known yet
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from kafka.errors import (
    CorruptRecordError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
    UnsupportedVersionError,
)
from kafka.future import Future
from kafka.protocol.produce import ProduceRequest, ProduceResponse
from kafka.records import ZSTD, RecordBatchBuilder, decode_raw, encode_message_set, parse_header
from kafka.records.builder import HeaderItems
from kafka.wire.types import ZERO_UUID


class BatchResult(NamedTuple):
    """What the broker said of a batch: ``base_offset`` (-1: not told), ``append_time`` in ms (-1: the records' own)."""

    base_offset: int
    append_time: int


MOVED = BatchResult(-2, -1)
"""The result of a PendingRecords whose records are in others now: see ``forward``."""

UNKNOWN_OFFSET = BatchResult(-1, -1)
"""The records are in the log, but where was not told: acks=0, or an answer to a repeated batch."""


NO_LIMIT: Final = 0x7FFFFFFF
"""For the producer's own batches, which it need not fear."""


class PendingRecords:
    """Records that share one future. ``guard`` raises where waiting for it would never end: on the loop's thread."""

    __slots__ = ("created_at", "done", "forward", "guard", "reserved_bytes", "topic")

    def __init__(self, topic: str, created_at: float, guard: Callable[[], None]) -> None:
        self.topic = topic
        self.created_at = created_at
        self.guard = guard
        self.done: Future[BatchResult] = Future()
        self.reserved_bytes = 0
        """What it counts for in the accumulator's memory."""
        self.forward: list[tuple[PendingRecords, int]] | None = None
        """Where each record is now, by index, once they have moved."""

    def reserve(self, count: int) -> None:
        """It counts for ``count`` bytes more (fewer, below 0) in the accumulator's memory."""
        self.reserved_bytes += count

    def move(self, forward: list[tuple[PendingRecords, int]]) -> None:
        """The records are in other pending records from now on."""
        self.forward = forward
        self.done.success(MOVED)

    def release(self) -> None:
        """Let the records' bytes go: the PendingRecords is done, and lives on in futures."""

    @property
    def partition(self) -> int:
        """-1 while it is not known."""
        return -1

    @property
    def records_count(self) -> int:
        return 0


class UnassignedRecord(NamedTuple):
    """A record as it was sent, for when its partition can be chosen."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: HeaderItems | None
    partition: int | None
    given: tuple[Any, Any] | None = None
    """Key and value before they were serialised, for a partitioner that looks at them."""


class UnassignedRecords(PendingRecords):
    """Records that wait for their topic's metadata."""

    __slots__ = ("records", "topic_queues")

    def __init__(self, topic_queues: TopicQueues, created_at: float, guard: Callable[[], None]) -> None:
        super().__init__(topic_queues.name, created_at, guard)
        self.topic_queues = topic_queues
        self.records: list[UnassignedRecord] = []

    @property
    def records_count(self) -> int:
        return len(self.records)

    def take_records(self) -> list[UnassignedRecord]:
        """The records, which leave for batches."""
        records, self.records = self.records, []
        return records


class ProducerBatch(PendingRecords):
    """Records of one partition.

    Users' threads append under the accumulator's lock while the batch is its queue's ``open`` one; from then on it
    belongs to the sender alone. ``sequence`` is -1 until it is first sent by an idempotent producer.
    """

    __slots__ = (
        "append", "attempts", "builder", "data", "data_bytes", "epoch", "in_doubt", "is_transactional", "last_error",
        "limit_bytes", "producer_id", "queue", "sequence", "serial", "skipped", "source_in_doubt",
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
        # Bound once: `send` calls it for each record.
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
        self.source_in_doubt = False
        """So was the batch that it was split from, which may be in the log as a whole."""
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

    def sent(self, is_transactional: bool) -> None:
        """One more attempt begins."""
        self.attempts += 1
        self.is_transactional = is_transactional

    def mark_in_doubt(self) -> None:
        """It was sent, and it is unknown whether it is in the log; does nothing without a sequence number."""
        self.in_doubt = self.sequence >= 0

    def mark_source_in_doubt(self) -> None:
        """The batch that it was split from may be in the log, and its records with it."""
        self.in_doubt = self.source_in_doubt = True

    def clear_doubt(self) -> None:
        """It is known not to be in the log."""
        self.in_doubt = False

    def to_be_retried(self, error: BaseException) -> None:
        """It is sent again because of ``error``."""
        self.last_error = error

    def drop_encoded(self) -> None:
        """Let go of the bytes that were made for the request; they are made again when asked for."""
        self.data = []

    def set_limit(self, limit_bytes: int) -> None:
        """It may grow to ``limit_bytes``, when there is memory for it."""
        self.limit_bytes = limit_bytes

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


# How far a topic's records shrink: what lets a batch hold more than ``batch_size`` before it is compressed.
#
# ``batch_size`` is about the bytes that go out. A batch is compressed when it is full, and not while it fills, so what
# will become of it is estimated from the topic's former batches: ``batch_size / ratio`` bytes are let in. A ratio that
# is too low makes a batch larger than ``batch_size``, never larger than ``most_bytes`` before compression, so the
# estimate follows bad news at once and good news step by step. Start, margin and the step for the worse are Java's. For
# the better, Java goes by 0.005 a batch; a fast producer has thousands of records in batches of the old size before the
# first of them was compressed, so here it goes by an eighth of the way.
#
# One estimate for each topic. Written on the loop's thread, when a batch was made; read in users' threads, when one is
# begun: a float in a slot needs no lock for that.
#
# Measured with records of 100 bytes of JSON and ``batch_size`` 16384 on Apache Kafka 4.3.0: the CPU time of a message
# falls from 2.80 to 2.19 us with lz4 (ratio 0.3), from 2.95 to 2.21 with zstd (0.16), and a third as many batches are
# sent.
#
# Source: the Java client's ``CompressionRatioEstimator`` and ``MemoryRecordsBuilder.estimatedBytesWritten``.

INITIAL_RATIO: Final = 1.0


IMPROVING_SHARE: Final = 0.125


DETERIORATING_STEP: Final = 0.05


RATIO_SAFETY_FACTOR: Final = 1.05


LEAST_RATIO: Final = 0.01
"""What shrinks further is not believed to: a hundred times is enough."""


class CompressionRatioEstimator:
    """The estimate for one topic: compressed bytes for each one that is put in."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = INITIAL_RATIO

    def room(self, batch_bytes: int, most_bytes: int) -> int:
        """How large a batch may become before it is compressed, to have ``batch_bytes`` then; ``most_bytes`` at the
        most, and never less than ``batch_bytes``."""
        wanted = int(batch_bytes / (self.value * RATIO_SAFETY_FACTOR))
        return max(batch_bytes, min(wanted, most_bytes))

    def observe(self, plain_bytes: int, compressed_bytes: int) -> None:
        """A batch of ``plain_bytes`` was made into ``compressed_bytes``."""
        if plain_bytes <= 0:
            return
        found = compressed_bytes / plain_bytes
        if found > self.value:
            self.value = max(self.value + DETERIORATING_STEP, found)
        else:
            self.value = max(self.value - (self.value - found) * IMPROVING_SHARE, LEAST_RATIO)

    def reset(self) -> None:
        """A batch was too large for its broker: begin anew, from what cannot be too little."""
        self.value = max(INITIAL_RATIO, self.value)


class ProducerIdAndEpoch(NamedTuple):
    """A producer id and epoch; -1 and -1 are none."""

    producer_id: int = -1
    epoch: int = -1


# A partition's place in the producer's sequence: which id and epoch its leader knows, and which number is next.
#
# Owner: the sender, on the loop's thread. The producer's id and epoch are ``sender.py``'s (``ProducerIdState``); a
# partition takes them over when it begins to send and after trouble, and keeps them meanwhile, so that one partition's
# trouble is no other's.
#
# Source: KIP-98; KIP-360 (a new epoch instead of a new id).


SEQUENCE_MASK: Final = 0x7FFFFFFF
"""Sequences go from 2**31 - 1 to 0."""


_NO_PRODUCER_ID: Final = ProducerIdAndEpoch()


class SequenceNumbers:
    """One partition's."""

    __slots__ = ("has_gap", "identity", "is_known", "next_sequence", "used_at")

    def __init__(self) -> None:
        self.identity = _NO_PRODUCER_ID
        self.next_sequence = 0
        self.has_gap = False
        """A number was given to a batch that is not, or perhaps not, in the log: the leader will refuse all later ones.
        Nothing new is numbered before the next :meth:`begin`."""
        self.is_known = False
        """The leader has acknowledged something of this producer id, and not too long ago to have forgotten it."""
        self.used_at = 0.0
        """When something was sent last."""

    def begin(self, identity: ProducerIdAndEpoch) -> None:
        """Count from 0 under this id and epoch. Nothing may be in flight."""
        if identity.producer_id != self.identity.producer_id:
            self.is_known = False
        self.identity = identity
        self.next_sequence = 0
        self.has_gap = False

    def note_acknowledged(self) -> None:
        """The leader has acknowledged a numbered batch: it knows the producer id."""
        self.is_known = True

    def note_use(self, now: float) -> None:
        """Something is sent."""
        self.used_at = now

    def forget_leader(self) -> None:
        """The leader may have forgotten the producer id: nothing was sent for long."""
        self.is_known = False

    def leave_gap(self) -> None:
        """A numbered batch is not, or perhaps not, in the log, and will not be sent again under its number."""
        self.has_gap = True

    def rewind(self, sequence: int) -> None:
        """Count on from here, under the same epoch: the numbers since then are known not to be in the log."""
        self.next_sequence = sequence
        self.has_gap = False

    def take(self, count: int) -> int:
        """The sequence of the first of ``count`` records. A batch may reach across the end of the numbers."""
        sequence = self.next_sequence
        self.next_sequence = (sequence + count) & SEQUENCE_MASK
        return sequence


# Owners of a queue's state: ``open``, ``closed`` and what is counted when a batch is closed belong to the accumulator,
# under its lock; ``retry``, ``in_flight`` and ``numbers`` to the sender, on the loop's thread. Nothing is decided here.


def place_in_queue(batch: ProducerBatch) -> tuple[int, int]:
    """Orders the batches of one partition as they were made, and the parts of a split one as they were cut."""
    return batch.serial, batch.skipped


class PartitionQueue:
    """The batches of one partition, in their order: in flight, to be sent again, closed, open."""

    __slots__ = (
        "batches_count", "closed", "in_flight", "leader_epoch", "node", "numbers", "open", "partition",
        "produced_bytes", "ratio", "retry", "retry_at", "room_bytes", "topic", "was_filled",
    )  # fmt: skip

    def __init__(self, topic: str, partition: int, ratio: CompressionRatioEstimator | None = None) -> None:
        self.topic = topic
        self.partition = partition
        self.ratio = ratio
        """How far the topic's records shrink; None where nothing is compressed."""
        self.open: ProducerBatch | None = None
        self.closed: list[ProducerBatch] = []
        self.batches_count = 0
        self.produced_bytes = 0
        """In all batches that were closed."""
        self.was_filled = False
        """Whether the last one was closed because nothing more fitted in."""
        self.room_bytes = 0
        """What the next batch may grow to before it asks for more: twice what the last one had."""
        # The sender's alone:
        self.in_flight: list[ProducerBatch] = []
        self.retry: list[ProducerBatch] = []
        self.retry_at = 0.0
        self.numbers = SequenceNumbers()
        self.node = -1
        """Where the batches in flight were sent."""
        self.leader_epoch = -1
        """The leader's epoch then."""

    # -- by the accumulator, under its lock ----------------------------------------------------------------------------

    def close_open(self, size_bytes: int, was_filled: bool) -> None:
        """The open batch, of that size, takes no more records: it waits to be sent."""
        batch = self.open
        assert batch is not None
        self.open = None
        self.closed.append(batch)
        self.produced_bytes += size_bytes
        self.was_filled = was_filled
        self.room_bytes = size_bytes * 2

    def forget_filled(self) -> None:
        """The partitioner has noticed that the last batch was filled."""
        self.was_filled = False

    # -- by the sender, on the loop's thread ---------------------------------------------------------------------------

    def take_next(self) -> ProducerBatch:
        """The next batch to be sent, out of the queue: one to be retried before those that were never sent."""
        return self.retry.pop(0) if self.retry else self.closed.pop(0)

    def send(self, batch: ProducerBatch, node: int, leader_epoch: int, now: float) -> None:
        """``batch`` goes to ``node``, the leader of that epoch."""
        self.numbers.note_use(now)
        self.node = node
        self.leader_epoch = leader_epoch
        self.in_flight.append(batch)

    def retry_batches(self, batches: list[ProducerBatch]) -> ProducerBatch:
        """Send these again, in the order of their making; the first that is to be. Not before :meth:`back_off` says."""
        self.retry += batches
        self.retry.sort(key=place_in_queue)
        return self.retry[0]

    def back_off(self, until: float) -> None:
        """Retry not before that instant."""
        self.retry_at = until

    def drop_retries(self) -> list[ProducerBatch]:
        """Take out what is to be retried and known not to be in the log."""
        dropped = [batch for batch in self.retry if not batch.in_doubt]
        self.retry = [batch for batch in self.retry if batch.in_doubt]
        return dropped

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
    """The partitions of one topic. Without any while the topic's metadata is not known: records wait in
    ``unassigned`` then."""

    __slots__ = (
        "available", "load_partitions", "load_sums", "loads_until", "name", "unassigned", "queues", "ratio", "sticky",
        "sticky_from_bytes", "turn",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.queues: list[PartitionQueue] = []
        self.available: list[int] = []
        """The partitions that have a leader; all of them when none has."""
        self.sticky: PartitionQueue | None = None
        """Where records without a key go now; None makes :meth:`Accumulator.append` choose."""
        # The partitioner's alone (``PartitionChooser``):
        self.sticky_from_bytes = 0
        self.load_sums: list[int] = []
        self.load_partitions: list[int] = []
        self.loads_until = 0.0
        self.turn = 0
        self.unassigned: UnassignedRecords | None = None
        self.ratio: CompressionRatioEstimator | None = None

    # -- by the accumulator --------------------------------------------------------------------------------------------

    def stick_to(self, queue: PartitionQueue | None) -> None:
        """Records without a key go there from now on."""
        self.sticky = queue

    def use_ratio(self, ratio: CompressionRatioEstimator) -> None:
        """Records are compressed, and this estimates how far they shrink."""
        self.ratio = ratio

    def add_queues(self, added: list[PartitionQueue], available: list[int]) -> None:
        """More partitions, and which of all have a leader. Threads look without the lock as soon as there are
        queues, so ``available`` comes first then; and all come in one step, since a key's partition follows from
        their number."""
        if not self.queues:
            self.available = available
        self.queues.extend(added)
        self.available = available

    def keep_unassigned(self, unassigned: UnassignedRecords) -> None:
        """Records wait there for the topic's metadata."""
        self.unassigned = unassigned

    def take_unassigned(self) -> UnassignedRecords | None:
        """The records that wait for the topic's metadata, which wait here no more."""
        unassigned, self.unassigned = self.unassigned, None
        return unassigned

    # -- by the partitioner --------------------------------------------------------------------------------------------

    def begin_sticky(self, produced_bytes: int) -> None:
        """A partition becomes the sticky one that had so many bytes until then."""
        self.sticky_from_bytes = produced_bytes

    def note_loads(self, sums: list[int], partitions: list[int], until: float) -> None:
        """The weights of ``partitions``, summed up, hold until then; without weights all are alike."""
        self.load_sums = sums
        self.load_partitions = partitions
        self.loads_until = until

    def next_turn(self) -> int:
        """The next partition of a round over those that have a leader. Called without the lock: the loop's thread may
        replace ``available`` meanwhile, so it is read once."""
        available = self.available
        self.turn = turn = (self.turn + 1) % len(available)
        return available[turn]


# What a Produce request carries in the version that its node speaks.
#
#     Produce v0, v1   message sets v0        brokers 0.8 and 0.9
#     Produce v2       message sets v1        brokers 0.10
#     Produce v3 on    batches v2             since 0.11; compressed with zstd since v7 (2.1)
#
# Batches are collected and kept as v2 whatever the broker is, since a partition's leader may be another broker, of
# another release, at the next attempt; so the format is chosen when the version is known, at the moment of sending
# (:meth:`EncodedProduceRequest.build`). For an old broker the batch is read and written anew, which costs as much
# again as making it did; other brokers cost nothing more.
#
# What an old format cannot hold is refused here, batch by batch, and the refusals are put into the answer as the broker
# would have put them (:meth:`EncodedProduceRequest.complete`): the others in the request have gone out, and the
# sender needs no second way to learn that a batch was refused. Timestamps are left out of v0 silently, as in
# Java.
#
# Source: KIP-32, KIP-82 (headers), KIP-98, KIP-110 (zstd); Java's ``ProduceRequest.validateRecords``.


MESSAGE_SETS: Final = {0: 0, 1: 0, 2: 1}
"""Version of Produce -> the magic of its message sets; later versions carry batches."""
FIRST_VERSION_OF_ZSTD: Final = 7

_Data = ProduceRequest.PartitionProduceData


class EncodedProduceRequest:
    """One request on its way. ``codec`` and ``level`` are those that its batches were made with."""

    __slots__ = ("_codec", "_level", "_refused", "_request")

    def __init__(self, request: ProduceRequest, codec: int, level: int | None = None) -> None:
        self._request = request
        self._codec = codec
        self._level = level
        self._refused: list[ProduceResponse.TopicProduceResponse] = []

    def build(self, version: int) -> ProduceRequest:
        """The request as ``version`` carries it, without the batches that it cannot.

        Raises when that leaves none: UnsupportedCompressionTypeError for zstd, UnsupportedForMessageFormatError for
        records with headers; UnsupportedVersionError for a transaction.
        """
        request = self._request
        if version >= FIRST_VERSION_OF_ZSTD or (version not in MESSAGE_SETS and self._codec != ZSTD):
            return request
        if self._codec == ZSTD:
            raise UnsupportedCompressionTypeError(
                f"the broker speaks Produce v{version}, and zstd needs v{FIRST_VERSION_OF_ZSTD}: Kafka 2.1 or later"
            )
        if request.transactional_id is not None:
            raise UnsupportedVersionError(f"the broker speaks Produce v{version}; transactions need Kafka 0.11")
        return self._as_message_sets(MESSAGE_SETS[version])

    def _as_message_sets(self, magic: int) -> ProduceRequest:
        """The request with its batches converted to message sets of ``magic`` 0 or 1, for brokers before 0.11. Batches
        that cannot be converted are left out, and their error is kept for :meth:`complete`; it is raised when no batch
        is left."""
        topics: list[ProduceRequest.TopicProduceData] = []
        refusal: UnsupportedForMessageFormatError | None = None
        for topic in self._request.topic_data:
            partitions: list[_Data] = []
            for data in topic.partition_data:
                try:
                    records = self._as_message_set(data, magic)
                except UnsupportedForMessageFormatError as error:
                    refusal = error
                    self._note(topic, data.index, error)
                else:
                    partitions.append(_Data(index=data.index, records=records))
            if partitions:
                topics.append(
                    ProduceRequest.TopicProduceData(
                        name=topic.name, topic_id=topic.topic_id, partition_data=partitions
                    )
                )
        if refusal is not None and not topics:
            raise refusal
        return ProduceRequest(acks=self._request.acks, timeout_ms=self._request.timeout_ms, topic_data=topics)

    def _as_message_set(self, data: _Data, magic: int) -> bytes:
        records_field = data.records
        batch = b"".join(records_field) if isinstance(records_field, list) else records_field
        assert isinstance(batch, (bytes, bytearray, memoryview))
        header = parse_header(batch)
        if header is None:
            raise CorruptRecordError("a batch of this producer's own is cut")
        records = decode_raw(batch, header, NO_LIMIT)
        if any(record[4] for record in records):
            raise UnsupportedForMessageFormatError(
                f"records with headers, and the broker keeps message sets v{magic}: headers need Kafka 0.11 or later"
            )
        return encode_message_set(records, magic, header.codec, level=self._level)

    def _note(
        self, topic: ProduceRequest.TopicProduceData, index: int, error: UnsupportedForMessageFormatError
    ) -> None:
        assert error.errno is not None
        refused = ProduceResponse.PartitionProduceResponse(
            index=index, error_code=error.errno, base_offset=-1, error_message=str(error.args[0])
        )
        self._refused.append(
            ProduceResponse.TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=[refused]
            )
        )

    def complete(self, response: ProduceResponse | None) -> ProduceResponse | None:
        """The answer with what was refused here. None (acks=0, and the request has been written) becomes an answer when
        there is something to tell."""
        if not self._refused:
            return response
        if response is not None:
            return ProduceResponse(
                responses=[*response.responses, *self._refused], throttle_time_ms=response.throttle_time_ms
            )
        refused = {(topic.name, topic.partition_responses[0].index) for topic in self._refused}
        written = [
            ProduceResponse.TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    ProduceResponse.PartitionProduceResponse(index=data.index, error_code=0, base_offset=-1)
                    for data in topic.partition_data
                    if (topic.name, data.index) not in refused
                ],
            )
            for topic in self._request.topic_data
        ]
        return ProduceResponse(responses=[*written, *self._refused])


FIRST_VERSION_WITH_IDS: Final = 13


def produce_request(
    batches: Sequence[ProducerBatch], acks: int, timeout_ms: int, topic_id_of: Callable[[str], UUID]
) -> tuple[ProduceRequest, int | None]:
    """The request, and the last version that it may be sent in (None: any): topics without an id have to be named."""
    topics: dict[str, ProduceRequest.TopicProduceData] = {}
    max_version: int | None = None
    for batch in batches:
        data = topics.get(batch.topic)
        if data is None:
            topic_id = topic_id_of(batch.topic)
            if topic_id == ZERO_UUID:
                max_version = FIRST_VERSION_WITH_IDS - 1
            data = topics[batch.topic] = ProduceRequest.TopicProduceData(
                name=batch.topic, topic_id=topic_id, partition_data=[]
            )
        pieces = batch.pieces()
        data.partition_data.append(
            ProduceRequest.PartitionProduceData(
                index=batch.partition, records=pieces[0] if len(pieces) == 1 else pieces
            )
        )
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=list(topics.values())), max_version
