"""Validation of arguments that only the consumer has, at the call; ``kafka/validation.py`` has those of all clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import six

from kafka.errors import IllegalArgumentError
from kafka.structs import OffsetAndMetadata, TopicPartition
from kafka.validation import is_integer, is_number, topic_name

INT64: Final = 2**63


def partition(given: Any) -> TopicPartition:
    """One partition; TypeError or IllegalArgumentError."""
    if not isinstance(given, tuple) or len(given) != 2:
        raise TypeError(f"a TopicPartition is needed, not {given!r}")
    topic, number = given
    if not is_integer(number) or number < 0:
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
    checked: dict[TopicPartition, OffsetAndMetadata] = {}
    for key, offset in offsets.items():
        fields = tuple(offset[:3]) if isinstance(offset, tuple) and offset else (offset,)
        value = OffsetAndMetadata(*fields)
        if not is_integer(value.offset) or not 0 <= value.offset < INT64:
            raise IllegalArgumentError(f"offsets: {value.offset!r} of {key!r} is not an offset")
        metadata = "" if value.metadata is None else value.metadata
        if not isinstance(metadata, (six.text_type, six.binary_type)):
            raise TypeError(f"offsets: the metadata of {key!r} has to be a text, not {type(metadata).__name__}")
        epoch = -1 if value.leader_epoch is None else value.leader_epoch
        if not is_integer(epoch):
            raise TypeError(f"offsets: the leader epoch of {key!r} has to be a whole number, not {epoch!r}")
        checked[partition(key)] = OffsetAndMetadata(value.offset, six.ensure_text(metadata), epoch)
    return checked


def timestamps(given: Any) -> dict[TopicPartition, int]:
    """Times to look up, in ms since the epoch, fractions left out; TypeError or IllegalArgumentError."""
    if not isinstance(given, Mapping):
        raise TypeError(f"timestamps: a dict of TopicPartition is needed, not {type(given).__name__}")
    checked: dict[TopicPartition, int] = {}
    for key, timestamp in given.items():
        topic, number = each = partition(key)
        if not is_number(timestamp):
            raise TypeError(f"the timestamp for {topic}-{number} has to be a number of ms, not {timestamp!r}")
        if not 0 <= timestamp < INT64:
            raise IllegalArgumentError(f"the timestamp for {topic}-{number} is negative, or no time")
        checked[each] = int(timestamp)
    return checked
