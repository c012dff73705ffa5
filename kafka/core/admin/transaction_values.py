"""What calls about transactions take and tell. Names and texts are Kafka's, the classes kafka-python's (KIP-664)."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from kafka.structs import EnumHelper, TopicPartition


class TransactionState(EnumHelper, str, Enum):
    """Where a transaction stands at its coordinator."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    UNKNOWN = "Unknown"

    @classmethod
    def of(cls, text: str) -> TransactionState:
        """The state of that name; UNKNOWN for one that is not known."""
        return cls(text) if text in cls._value2member_map_ else cls.UNKNOWN


class TransactionListing(NamedTuple):
    """A transactional id, as the broker lists it that coordinates it."""

    transactional_id: str
    producer_id: int
    state: TransactionState


class TransactionDescription(NamedTuple):
    """What a coordinator knows of a transactional id. ``transaction_start_time_ms`` is -1 when none was begun;
    ``topic_partitions`` are those of the transaction that is open, or being ended."""

    coordinator_id: int
    state: TransactionState
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    topic_partitions: set[TopicPartition]


class ProducerState(NamedTuple):
    """What a partition remembers of a producer. ``last_timestamp`` in ms; ``current_transaction_start_offset`` is -1
    without an open transaction, ``coordinator_epoch`` before the first marker, ``last_sequence`` behind one."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_transaction_start_offset: int


class PartitionProducerState(NamedTuple):
    """The producers that a partition remembers."""

    active_producers: list[ProducerState]


class AbortTransactionSpec(NamedTuple):
    """Which transaction to abort: that of this producer in this partition. ``coordinator_epoch`` -1: whatever the
    partition has seen."""

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int = -1
