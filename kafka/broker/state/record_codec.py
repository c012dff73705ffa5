"""A record of the broker's state: key and value, each a version or kind and a structure.

    key    kind     i16    which record it is: the ``api_key`` of its class
           fields          the key's class, version 0
    value  version  i16    of the value's class
           fields          ...

The classes are in ``group_records.py``, ``transaction_records.py`` and ``share_records.py``; their facts are those of
the schemas in Apache Kafka's coordinators, with which a test compares them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, Generic, TypeVar

from kafka.errors import KafkaError, KafkaStorageError
from kafka.wire.codec import decode, encode
from kafka.wire.message import Message

M = TypeVar("M", bound=Message)

_PREFIX: Final = struct.Struct(">h")


def encode_key(key: Message) -> bytes:
    """A key's bytes."""
    return _PREFIX.pack(key.api_key) + encode(key, 0)


def encode_value(value: Message, version: int) -> bytes:
    """A value's bytes, in a version that readers know."""
    return _PREFIX.pack(version) + encode(value, version)


def decode_value(cls: type[M], data: bytes) -> M:
    """The value; KafkaStorageError for bytes that are none of this class."""
    try:
        (version,) = _PREFIX.unpack_from(data)
        return decode(cls, memoryview(data)[_PREFIX.size :], version)
    except (KafkaError, struct.error) as error:
        raise KafkaStorageError(f"a record's value is no {cls.__name__}: {data[:64]!r}: {error}") from error


class Keys(Generic[M]):
    """The kinds of keys of one topic."""

    def __init__(self, classes: Iterable[type[M]]) -> None:
        self._classes = {cls.api_key: cls for cls in classes}

    def decode(self, data: bytes) -> M | None:
        """The key; None for a kind that is not known (a later release's). KafkaStorageError for bytes that are no
        key."""
        try:
            (kind,) = _PREFIX.unpack_from(data)
            cls = self._classes.get(kind)
            return None if cls is None else decode(cls, memoryview(data)[_PREFIX.size :], 0)
        except (KafkaError, struct.error) as error:
            raise KafkaStorageError(f"a record's key cannot be read: {data[:64]!r}: {error}") from error
