"""What users hand in as offsets and groups, turned into what a transaction sends: complaints are made at the call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import six

from kafka.errors import IllegalArgumentError
from kafka.producer.edge import topic_name
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition


def committed_offsets(offsets: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """What users give as offsets, as OffsetAndMetadata by partition; TypeError or IllegalArgumentError."""
    if not isinstance(offsets, Mapping):
        raise TypeError(f"offsets: a dict of partitions is needed, not {type(offsets).__name__}")
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for where, given in offsets.items():
        if not isinstance(where, tuple) or len(where) != 2:
            raise TypeError(f"offsets: {where!r} is not a TopicPartition")
        topic_name(where[0])
        if not isinstance(where[1], int) or where[1] < 0:
            raise IllegalArgumentError(f"offsets: {where[1]!r} is not a partition of {where[0]}")
        fields = given[:3] if isinstance(given, tuple) and given else (given,)
        what = OffsetAndMetadata(*fields)
        if not isinstance(what.offset, int) or what.offset < 0:
            raise IllegalArgumentError(f"offsets: {what.offset!r} of {where[0]}-{where[1]} is not an offset")
        epoch = -1 if what.leader_epoch is None else what.leader_epoch
        found[TopicPartition(*where)] = OffsetAndMetadata(what.offset, what.metadata or "", epoch)
    return found


def group_of(group_metadata: Any, consumer_group_id: Any = None) -> ConsumerGroupMetadata:
    """Whose offsets they are: a group's id, or its metadata, of ours or of another client with the same names."""
    given = consumer_group_id if group_metadata is None else group_metadata
    if isinstance(given, (six.text_type, six.binary_type)):
        given = ConsumerGroupMetadata(six.ensure_text(given))
    group_id = getattr(given, "group_id", None)
    if not group_id:
        raise IllegalArgumentError(f"group_metadata: a group's id or ConsumerGroupMetadata is needed, not {given!r}")
    found = ConsumerGroupMetadata(
        group_id,
        getattr(given, "generation_id", -1),
        getattr(given, "member_id", ""),
        getattr(given, "group_instance_id", None),
    )
    if found.generation_id > 0 and not found.member_id:
        raise IllegalArgumentError(f"group_metadata: generation {found.generation_id} of no member")
    return found
