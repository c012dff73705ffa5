"""What users hand to the consumer, looked at where they hand it in: complaints are made at the call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import six

from kafka.core.arguments import timeout_s, topic_name, topic_names
from kafka.errors import IllegalArgumentError
from kafka.structs import OffsetAndMetadata, TopicPartition

__all__ = [
    "INT64", "offsets_to_commit", "partition", "partitions", "timeout_s", "timestamps", "topic_name", "topic_names"
]  # fmt: skip

INT64: Final = 2**63


def partition(given: Any) -> TopicPartition:
    """One partition; TypeError or IllegalArgumentError."""
    if not isinstance(given, tuple) or len(given) != 2:
        raise TypeError(f"a TopicPartition is needed, not {given!r}")
    topic, number = given
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise IllegalArgumentError(f"{number!r} is no partition's number")
    return TopicPartition(topic_name(topic), number)


def partitions(given: Any) -> list[TopicPartition]:
    """Several, each once."""
    if isinstance(given, (six.text_type, six.binary_type)) or not isinstance(given, Iterable):
        raise TypeError("partitions: a list of TopicPartition is needed")
    if isinstance(given, TopicPartition):
        raise TypeError("partitions: a list of TopicPartition is needed, not one")
    return list(dict.fromkeys(partition(each) for each in given))


def offsets_to_commit(offsets: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets to commit, given as OffsetAndMetadata (of any client with these names) or as numbers."""
    if not isinstance(offsets, Mapping):
        raise TypeError(f"offsets: a dict of TopicPartition is needed, not {type(offsets).__name__}")
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for where, what in offsets.items():
        fields = tuple(what[:3]) if isinstance(what, tuple) and what else (what,)
        given = OffsetAndMetadata(*fields)
        if isinstance(given.offset, bool) or not isinstance(given.offset, int) or not 0 <= given.offset < INT64:
            raise IllegalArgumentError(f"offsets: {given.offset!r} of {where!r} is not an offset")
        metadata = "" if given.metadata is None else given.metadata
        if not isinstance(metadata, (six.text_type, six.binary_type)):
            raise TypeError(f"offsets: the metadata of {where!r} has to be a text, not {type(metadata).__name__}")
        epoch = -1 if given.leader_epoch is None else given.leader_epoch
        if isinstance(epoch, bool) or not isinstance(epoch, int):
            raise TypeError(f"offsets: the leader epoch of {where!r} has to be a whole number, not {epoch!r}")
        found[partition(where)] = OffsetAndMetadata(given.offset, six.ensure_text(metadata), epoch)
    return found


def timestamps(given: Any) -> dict[TopicPartition, int]:
    """Times to look up, in ms since the epoch, fractions left out; TypeError or IllegalArgumentError."""
    if not isinstance(given, Mapping):
        raise TypeError(f"timestamps: a dict of TopicPartition is needed, not {type(given).__name__}")
    found: dict[TopicPartition, int] = {}
    for where, timestamp in given.items():
        topic, number = each = partition(where)
        if isinstance(timestamp, bool) or not isinstance(timestamp, (int, float)):
            raise TypeError(f"the timestamp for {topic}-{number} has to be a number of ms, not {timestamp!r}")
        if not 0 <= timestamp < INT64:
            raise IllegalArgumentError(f"the timestamp for {topic}-{number} is negative, or no time")
        found[each] = int(timestamp)
    return found
