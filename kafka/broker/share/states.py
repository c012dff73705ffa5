"""The words of share groups that several machines use: record states, acknowledgement types, events, settings.

A record of a share partition is in one of four states (KIP-932, "In-flight records"):

    AVAILABLE ──acquire──> ACQUIRED ──ACCEPT──────────────────────────> ACKNOWLEDGED
        ^                   │  │ └────REJECT, GAP──────────────────────> ARCHIVED
        └──RELEASE, lock────┘  └──────RELEASE, lock timeout, close─────> ARCHIVED
           timeout, close             when it was the last delivery

States are plain ints, as they are compared for every run of offsets. A new acknowledgement type goes here, into
``OUTCOMES`` and into ``acknowledgements.py``.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

AVAILABLE: Final = 0
ACQUIRED: Final = 1
ACKNOWLEDGED: Final = 2
ARCHIVED: Final = 4

GAP: Final = 0
ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
RENEW: Final = 4

OUTCOMES: Final = {GAP: ARCHIVED, ACCEPT: ACKNOWLEDGED, RELEASE: AVAILABLE, REJECT: ARCHIVED}
"""Acknowledgement type -> the state that it leads to; RENEW changes none."""


class AcquireMode(enum.IntEnum):
    """How ``max_records`` is meant (KIP-1206)."""

    BATCH_OPTIMIZED = 0
    RECORD_LIMIT = 1


class ShareEvent(enum.Flag):
    """What a call did to a share partition, as far as fetches that are parked on it care."""

    NOTHING = 0
    NEW_RECORDS = enum.auto()
    START_MOVED = enum.auto()
    LOCK_EXPIRED = enum.auto()
    RELEASED = enum.auto()

    def wakes(self, policy: ShareEvent) -> bool:
        """Whether a parked ShareFetch is tried again under this policy."""
        return bool(self & policy)


WAKE_AS_KAFKA_4_3: Final = ShareEvent.NEW_RECORDS | ShareEvent.START_MOVED | ShareEvent.LOCK_EXPIRED
"""Measured on Apache Kafka 4.3.0: neither RELEASE nor the close of a session or connection wakes a parked fetch."""

WAKE_PROMPTLY: Final = WAKE_AS_KAFKA_4_3 | ShareEvent.RELEASED
"""For users who prefer prompt redelivery to the same behaviour."""


class ShareSettings(NamedTuple):
    """What a group's configuration says to its share partitions (see ``group_configs.py``)."""

    lock_s: float = 30.0
    delivery_limit: int = 5
    max_locks: int = 2000
    renew_enabled: bool = True
    read_committed: bool = False


class Acquired(NamedTuple):
    """Offsets ``first`` to ``last`` (inclusive), handed out; ``delivery_count`` includes this delivery."""

    first: int
    last: int
    delivery_count: int


class StateRange(NamedTuple):
    """Offsets ``first`` to ``last`` (inclusive) in one durable state: any but ACQUIRED."""

    first: int
    last: int
    state: int
    delivery_count: int


class AckBatch(NamedTuple):
    """Offsets ``first`` to ``last`` (inclusive) and one type for all, or one for each of them."""

    first: int
    last: int
    types: tuple[int, ...]
