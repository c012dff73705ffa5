"""Validation and conversion of the producer's arguments: topics, keys, values, headers, offsets.

Errors about an argument of ``send`` are raised here, at the call, and name the setting that would help.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import six

from kafka.errors import IllegalArgumentError, IllegalTopicError
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from kafka.validation import invalid_topic_reason

HeaderItems = list[tuple[str, bytes | None]]
Serialize = Callable[[str, HeaderItems | None, Any], Any]
"""``(topic, headers, data) -> bytes or None``. Headers are a list, to which some may be added, where one of the
producer's serializers :func:`takes_headers`."""

_MAX_TIMESTAMP: Final = 2**63 - 2**13 - 1
"""The greatest that :mod:`kafka.records.reader` takes as a batch's first; readers refuse what is above it."""


def topic_name(topic: Any) -> str:
    """A topic as text, or TypeError; IllegalTopicError for a name that no broker takes."""
    if not isinstance(topic, (six.text_type, six.binary_type)):
        raise TypeError(f"topic: a text is needed, not {type(topic).__name__}")
    name = topic if isinstance(topic, six.text_type) else topic.decode("utf-8", "backslashreplace")
    reason = invalid_topic_reason(name)
    if reason is not None:
        raise IllegalTopicError(reason)
    return name


def serializer_for(setting: str, given: Any) -> Serialize | None:
    """How keys or values become bytes; None: they are bytes already, see :func:`plain_bytes`.

    ``given`` is a function of the value, an object with ``serialize(topic, headers, data)`` (kafka-python 3) or one
    with ``serialize(topic, data)`` (kafka-python 2). TypeError at the call when the outcome is not bytes.
    """
    if given is None:
        return None
    method = getattr(given, "serialize", None)
    if method is None:

        def run(topic: str, headers: HeaderItems | None, data: Any) -> Any:
            return given(data)
    elif not takes_headers(given):

        def run(topic: str, headers: HeaderItems | None, data: Any) -> Any:
            return method(topic, data)
    else:
        run = method

    def checked(topic: str, headers: HeaderItems | None, data: Any) -> bytes | None:
        made = run(topic, headers, data)
        if made is None or isinstance(made, bytes):
            return made
        if isinstance(made, (bytearray, memoryview)):
            return bytes(made)
        raise TypeError(f"{setting} returned {type(made).__name__} for {type(data).__name__}, and not bytes")

    return checked


def takes_headers(given: Any) -> bool:
    """Whether it is a serializer of kafka-python 3's shape."""
    method = getattr(given, "serialize", None)
    return method is not None and _positional_count(method) != 2


def plain_bytes(kind: str, data: Any) -> bytes:
    """``data`` as bytes; TypeError, with the setting that would serialise it, when it is something else."""
    if isinstance(data, six.binary_type):
        return bytes(data)
    if isinstance(data, (bytearray, memoryview)):
        return bytes(data)
    raise TypeError(
        f"{kind}: bytes are needed, not {type(data).__name__}; set {kind}_serializer to send other types"
    )


def header_items(headers: Any) -> HeaderItems:
    """Headers as a list of (text, bytes or None); TypeError or IllegalArgumentError with what is wrong with them."""
    if type(headers) is not list:
        if isinstance(headers, Mapping):
            headers = headers.items()
        if not isinstance(headers, Iterable):
            raise TypeError(f"headers: a list of (text, bytes) is needed, not {type(headers).__name__}")
    found: HeaderItems = []
    for item in headers:
        if type(item) is tuple and len(item) == 2:
            name, value = item
            if type(name) is str and name.isascii() and (value is None or type(value) is bytes):
                found.append(item)
                continue
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            raise IllegalArgumentError(f"headers: {item!r} is not a pair of a name and a value")
        name, value = item
        if not isinstance(name, (six.text_type, six.binary_type)):
            raise TypeError(f"headers: the name {name!r} is not a text")
        if value is not None and not isinstance(value, six.binary_type):
            raise TypeError(f"headers: the value of {name!r} is {type(value).__name__}, and not bytes")
        try:
            text = six.ensure_text(name)
            if not text.isascii():
                text.encode()  # a lone surrogate is found here
        except UnicodeError:
            raise IllegalArgumentError(f"headers: the name {name!r} is not UTF-8") from None
        found.append((text, value))
    return found


def partition_number(value: Any) -> int:
    """A partition as a number; TypeError for what is none. Whether the topic has it is the accumulator's to say."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"partition: a whole number is needed, not {value!r}")
    return value


def check_seconds(timeout: Any) -> None:
    """TypeError for a ``timeout`` that is neither None nor a number: before anything is begun, so nothing is lost."""
    if timeout is None:
        return
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or timeout != timeout:
        raise TypeError(f"timeout: a number of seconds or None is needed, not {timeout!r}")


def sizes_of(key: bytes | None, value: bytes | None, headers: HeaderItems | None) -> tuple[int, int, int]:
    """Of key, value and headers in bytes; -1 for None, and for no headers."""
    return (
        -1 if key is None else len(key),
        -1 if value is None else len(value),
        sum(len(name) + len(item or b"") for name, item in headers) if headers else -1,
    )


def timestamp(value: Any) -> int:
    """A record's timestamp in ms; TypeError for what is no whole number, IllegalArgumentError below 0, as in Java."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"timestamp_ms: a whole number of milliseconds is needed, not {value!r}")
    if not 0 <= value <= _MAX_TIMESTAMP:
        raise IllegalArgumentError(f"timestamp_ms: {value} is not a time in milliseconds since the epoch")
    return value


def _positional_count(method: Any) -> int:
    code = getattr(getattr(method, "__func__", method), "__code__", None)
    if code is None:
        return 3
    return int(code.co_argcount) - (1 if hasattr(method, "__self__") else 0)


# -- offsets and groups of transactions --


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
        what: Any = OffsetAndMetadata(*fields)  # compiled, a typed field that is no number is refused with TypeError
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
