"""What consumers put into the opaque bytes of the classic protocol (``ConsumerProtocol``).

    subscription  version i16 | topics [string] | user data bytes?
                  1: owned [topic string, partitions [i32]]   2: generation i32   3: rack string?
    assignment    version i16 | [topic string, partitions [i32]] | user data bytes?

Old form of lengths throughout. Later versions than these are read as version 3: that is what the format promises. The
broker reads them to know what a group is subscribed to (OffsetDelete, expiry) and to change a group's protocol.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kafka.errors import KafkaProtocolError

PROTOCOL_TYPE: Final = "consumer"

_MAX_ENTRIES: Final = 1_000_000


class ConsumerSubscription(NamedTuple):
    """``owned``: topic -> partitions."""

    version: int
    topics: tuple[str, ...]
    owned: Mapping[str, Sequence[int]]
    rack_id: str | None


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, layout: str) -> int:
        try:
            (value,) = struct.unpack_from(layout, self._data, self._at)
        except struct.error:
            raise KafkaProtocolError("the embedded consumer protocol ends early", offset=self._at) from None
        self._at += struct.calcsize(layout)
        return int(value)

    def count(self) -> int:
        found = self.take(">i")
        if not -1 <= found <= min(_MAX_ENTRIES, len(self._data)):
            raise KafkaProtocolError(f"the embedded consumer protocol has a list of {found}", offset=self._at)
        return max(found, 0)

    def bytes(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise KafkaProtocolError("the embedded consumer protocol ends early", offset=self._at)
        found, self._at = self._data[self._at : end], end
        return found

    def string(self) -> str | None:
        size = self.take(">h")
        if size < -1:
            raise KafkaProtocolError(f"the embedded consumer protocol has a text of {size} bytes", offset=self._at)
        try:
            return None if size == -1 else self.bytes(size).decode()
        except UnicodeDecodeError:
            raise KafkaProtocolError("the embedded consumer protocol has a malformed text", offset=self._at) from None

    def partitions(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for _ in range(self.count()):
            topic = self.string() or ""
            found.setdefault(topic, []).extend(self.take(">i") for _ in range(self.count()))
        return found


def read_version(data: bytes) -> int:
    """The version that the bytes begin with; KafkaProtocolError for none."""
    version = _Reader(bytes(data)).take(">h")
    if version < 0:
        raise KafkaProtocolError(f"the embedded consumer protocol has version {version}", offset=0)
    return version


def read_subscription(data: bytes) -> ConsumerSubscription:
    """KafkaProtocolError for bytes that are none."""
    version = read_version(data)
    reader = _Reader(bytes(data))
    reader.take(">h")
    topics = tuple(reader.string() or "" for _ in range(reader.count()))
    reader.bytes(max(reader.take(">i"), 0))
    owned = reader.partitions() if version >= 1 else {}
    if version >= 2:
        reader.take(">i")
    rack_id = reader.string() if version >= 3 else None
    return ConsumerSubscription(version, topics, owned, rack_id or None)


def read_assignment(data: bytes) -> dict[str, list[int]]:
    """Topic -> partitions; nothing for no bytes. KafkaProtocolError for bytes that are none."""
    if not data:
        return {}
    read_version(data)
    reader = _Reader(bytes(data))
    reader.take(">h")
    return reader.partitions()


def write_assignment(partitions: Mapping[str, Sequence[int]], version: int) -> bytes:
    """An assignment without user data."""
    return struct.pack(">h", version) + _partitions(partitions) + struct.pack(">i", -1)


def write_subscription(topics: Sequence[str], owned: Mapping[str, Sequence[int]] | None = None) -> bytes:
    """A subscription of version 1 without user data: what a member of a test says."""
    names = b"".join(_string(topic) for topic in topics)
    return struct.pack(">hi", 1, len(topics)) + names + struct.pack(">i", -1) + _partitions(owned or {})


def _partitions(partitions: Mapping[str, Sequence[int]]) -> bytes:
    parts = [struct.pack(">i", len(partitions))]
    for topic, numbers in partitions.items():
        parts += (_string(topic), struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
    return b"".join(parts)


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data
