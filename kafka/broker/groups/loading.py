"""What ``__consumer_offsets`` says of groups, read at the start: the last record of each key holds.

A group that has records of both kinds has changed its protocol, and its last record says which it is now.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kafka.broker.groups.consumer_records import PictureBuilder
from kafka.broker.groups.picture import Picture
from kafka.broker.state.group_records import (
    GROUP_KEYS,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    GroupMetadataKey,
)
from kafka.wire.message import Message

_KEYS: Final[tuple[type[Message], ...]] = (
    GroupMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupRegularExpressionKey,
)
_KINDS: Final = frozenset(key.api_key.to_bytes(2, "big") for key in _KEYS)

Replay = Callable[[Callable[[int, bytes, "bytes | None", Any], None], Callable[[int, int, int, bool], None]], None]


class Loaded:
    """Classic groups' last records, and pictures of groups of the new protocol, by group id."""

    def __init__(self, replay: Replay) -> None:
        self.classic: dict[str, bytes] = {}
        self._builders: dict[str, PictureBuilder] = {}
        replay(self._on_record, lambda *_marker: None)

    @property
    def consumer(self) -> dict[str, Picture]:
        return {group_id: builder.picture() for group_id, builder in self._builders.items() if builder.is_there}

    def _on_record(self, _partition: int, key: bytes, value: bytes | None, _producer: Any) -> None:
        if key[:2] not in _KINDS:
            return
        decoded: Any = GROUP_KEYS.decode(key)
        if isinstance(decoded, GroupMetadataKey):
            if value is None:
                self.classic.pop(decoded.group, None)
            else:
                self.classic[decoded.group] = value
        else:
            self._builders.setdefault(decoded.group_id, PictureBuilder()).feed(decoded, value)
