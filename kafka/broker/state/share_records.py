"""Records of ``__share_group_state``: share partitions, by snapshot and by what changed since (KIP-932).

A snapshot's key and an update's differ in their number, so that a snapshot does not take the place of the updates
before it; its ``snapshot_epoch`` does: updates of a lower one are history.
"""

from __future__ import annotations

from typing import Final

from kafka.broker.state.record_codec import Keys
from kafka.wire.message import Message, Struct, field
from kafka.wire.types import Int8, Int16, Int32, Int64, String, Uuid


class ShareSnapshotKey(Message, api_key=0, versions=(0, 0)):
    """A share partition, as a whole."""

    group_id: String
    topic_id: Uuid
    partition: Int32


class ShareSnapshotValue(Message, api_key=0, versions=(0, 0), flexible=0):
    """All that holds of it: what came before is of no use any more. Times in ms."""

    class StateBatch(Struct):
        first_offset: Int64
        last_offset: Int64
        delivery_state: Int8
        delivery_count: Int16

    snapshot_epoch: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = field(default=-1, tag=0)
    create_timestamp: Int64
    write_timestamp: Int64
    state_batches: list[ShareSnapshotValue.StateBatch]


class ShareUpdateKey(Message, api_key=1, versions=(0, 0)):
    """A change of a share partition."""

    group_id: String
    topic_id: Uuid
    partition: Int32


class ShareUpdateValue(Message, api_key=1, versions=(0, 0), flexible=0):
    """What has changed; laid over the snapshot of the same epoch and the updates since."""

    class StateBatch(Struct):
        first_offset: Int64
        last_offset: Int64
        delivery_state: Int8
        delivery_count: Int16

    snapshot_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = field(default=-1, tag=0)
    state_batches: list[ShareUpdateValue.StateBatch]


SHARE_KEYS: Final = Keys[Message]((ShareSnapshotKey, ShareUpdateKey))
"""Decodes keys of ``__share_group_state``."""
