"""Records of ``__transaction_state``: a transactional id, and where its transaction stands (KIP-98, KIP-890)."""

from __future__ import annotations

from typing import Final

from kafka.broker.state.record_codec import Keys
from kafka.wire.message import Message, Struct, field
from kafka.wire.types import Int8, Int16, Int32, Int64, String


class TransactionLogKey(Message, api_key=0, versions=(0, 0)):
    """A transactional id."""

    transactional_id: String


class TransactionLogValue(Message, api_key=0, versions=(0, 1), flexible=1):
    """Its producer, its state, and the partitions of the transaction under way; times in ms."""

    class PartitionsSchema(Struct):
        topic: String
        partition_ids: list[Int32]

    producer_id: Int64
    previous_producer_id: Int64 = field(default=-1, since=1, tag=0, tag_since=1)
    next_producer_id: Int64 = field(default=-1, since=1, tag=1, tag_since=1)
    producer_epoch: Int16
    next_producer_epoch: Int16 = field(default=-1, since=1, tag=3, tag_since=1)
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: list[TransactionLogValue.PartitionsSchema] | None = field(null_since=0)
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Int16 = field(default=0, since=1, tag=2, tag_since=1)


TRANSACTION_KEYS: Final = Keys[Message]((TransactionLogKey,))
"""Decodes keys of ``__transaction_state``."""
