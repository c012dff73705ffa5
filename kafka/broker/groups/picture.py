"""All that is durable of a group of the new protocol, as one value: what it was and what it is are two of these.

A change of the group replaces the whole; what has to be written is their difference (``consumer_records.py``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final, NamedTuple

from kafka.broker.groups.consumer_member import ConsumerMember, Partition
from kafka.broker.share.group import TopicInfo

FIRST_EPOCH: Final = 1
"""A new group's epoch and assignment epoch (measured); no record says so."""


class ResolvedRegex(NamedTuple):
    """The topics that an expression stands for, since ``at_ms`` (epoch)."""

    topics: frozenset[str]
    at_ms: int


class Picture(NamedTuple):
    """All that is to be durable of a group of the new protocol. ``assigned_at_ms``: epoch, 0 for never."""

    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    assignment_epoch: int = FIRST_EPOCH
    assigned_at_ms: int = 0
    members: Mapping[str, ConsumerMember] = {}
    target: Mapping[str, frozenset[Partition]] = {}
    regexes: Mapping[str, ResolvedRegex] = {}


def metadata_hash(topics: Mapping[str, TopicInfo]) -> int:
    """Says whether the topics of a group have changed, also over a restart; 0 for none. Kafka's is another one: a group
    that the other has written gets a new epoch at its next heartbeat, and no more."""
    if not topics:
        return 0
    digest = hashlib.blake2b(digest_size=8)
    for name in sorted(topics):
        digest.update(f"{name}\0{topics[name].topic_id}\0{topics[name].partition_count}\0".encode())
    return int.from_bytes(digest.digest(), "big", signed=True)
