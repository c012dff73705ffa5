"""The rows of batches: one for each partition, and the partitions of each topic.

Who may touch what: ``open``, ``closed`` and what is counted when a batch is closed belong to the accumulator, under its
lock; ``retry``, ``in_flight`` and numbers to the sender, on the loop's thread. Nothing is decided here.
"""

from __future__ import annotations

from kafka.core.produce.batch import Batch, Parked
from kafka.core.produce.numbering import Numbering
from kafka.core.produce.ratio import CompressionRatio


class PartitionQueue:
    """The batches of one partition, in their order: in flight, to be sent again, closed, open."""

    __slots__ = (
        "batches_count", "closed", "in_flight", "leader_epoch", "node", "numbers", "open", "partition",
        "produced_bytes", "ratio", "retry", "retry_at", "room_bytes", "topic", "was_filled",
    )  # fmt: skip

    def __init__(self, topic: str, partition: int, ratio: CompressionRatio | None = None) -> None:
        self.topic = topic
        self.partition = partition
        self.ratio = ratio
        """How far the topic's records shrink; None where nothing is compressed."""
        self.open: Batch | None = None
        self.closed: list[Batch] = []
        self.batches_count = 0
        self.produced_bytes = 0
        """In all batches that were closed."""
        self.was_filled = False
        """Whether the last one was closed because nothing more fitted in."""
        self.room_bytes = 0
        """What the next batch may grow to before it asks for more: twice what the last one had."""
        # The sender's alone:
        self.in_flight: list[Batch] = []
        self.retry: list[Batch] = []
        self.retry_at = 0.0
        self.numbers = Numbering()
        self.node = -1
        """Where the batches in flight were sent."""
        self.leader_epoch = -1
        """The leader's epoch then."""

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

    __slots__ = (
        "available", "load_partitions", "load_sums", "loads_until", "name", "parked", "queues", "ratio", "sticky",
        "sticky_from_bytes", "turn",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.queues: list[PartitionQueue] = []
        self.available: list[int] = []
        """The partitions that have a leader; all of them when none has."""
        self.sticky: PartitionQueue | None = None
        """Where records without a key go now; None makes :meth:`Accumulator.append` choose."""
        # The partitioner's alone (``partitioning.py``):
        self.sticky_from_bytes = 0
        self.load_sums: list[int] = []
        self.load_partitions: list[int] = []
        self.loads_until = 0.0
        self.turn = 0
        self.parked: Parked | None = None
        self.ratio: CompressionRatio | None = None
