"""What a consumer hands out."""

from __future__ import annotations

from typing import Any, NamedTuple


class ConsumerRecord(NamedTuple):
    """One record as read. ``timestamp`` in ms since the epoch (-1: none), ``timestamp_type`` 0 by the producer, 1 by
    the broker, -1 where records had no timestamps yet (message sets v0; as in Java, where kafka-python says None).
    ``key`` and ``value`` are what the deserialisers made of the bytes, sizes are those of the bytes (-1 for None).
    ``checksum`` is always None (records v2 have none of their own)."""

    topic: str
    partition: int
    leader_epoch: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: Any
    value: Any
    headers: list[tuple[str, bytes | None]]
    checksum: int | None
    serialized_key_size: int
    serialized_value_size: int
    serialized_header_size: int
