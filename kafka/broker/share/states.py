"""What the modules of share groups share: record states, acknowledgement types and their checks, events, settings.

A record of a share partition is in one of four states (KIP-932, "In-flight records"):

    AVAILABLE ──acquire──> ACQUIRED ──ACCEPT──────────────────────────> ACKNOWLEDGED
        ^                   │  │ └────REJECT, GAP──────────────────────> ARCHIVED
        └──RELEASE, lock────┘  └──────RELEASE, lock timeout, close─────> ARCHIVED
           timeout, close             when it was the last delivery

States are plain ints, as they are compared for every run of offsets. A new acknowledgement type goes here and
into ``OUTCOMES``.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from kafka.errors import InvalidRequestError
from kafka.protocol.constants import AcknowledgeType

AVAILABLE: Final = 0
ACQUIRED: Final = 1
ACKNOWLEDGED: Final = 2
ARCHIVED: Final = 4

GAP, ACCEPT, RELEASE, REJECT, RENEW = (int(kind) for kind in AcknowledgeType)

OUTCOMES: Final = {GAP: ARCHIVED, ACCEPT: ACKNOWLEDGED, RELEASE: AVAILABLE, REJECT: ARCHIVED}
"""Acknowledgement type -> the state that it leads to; RENEW changes none."""


class AcquireMode(enum.IntEnum):
    """How ``max_records`` is meant (KIP-1206)."""

    BATCH_OPTIMIZED = 0
    RECORD_LIMIT = 1


class ShareEvent(enum.Flag):
    """What a call did to a share partition, as far as the ShareFetch requests that wait on it are concerned."""

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
"""For users who prefer prompt redelivery to Apache Kafka's behaviour."""


class ShareSettings(NamedTuple):
    """What a group's configuration says to its share partitions (see ``group_settings.py``)."""

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


# -- checks of acknowledgements that need no state: shapes, order, types
# ------------------------------------------------
#
# Apache Kafka answers every error here with INVALID_REQUEST (42) for the partition, before it looks at any record. What
# needs a record's state (owner, lock) is in ``partition.py``.


def check_ack_batches(batches: Sequence[AckBatch], *, is_renew_ack: bool = False) -> None:
    """Raise :class:`~kafka.errors.InvalidRequestError` unless one partition's batches are well-formed.

    Ascending, each with one type or as many as it has offsets, types 0 to 4, and RENEW only in a request whose
    ``IsRenewAck`` is set (KIP-1222).
    """
    end = -1
    for batch in batches:
        first, last, types = batch
        if first > last:
            raise InvalidRequestError(f"acknowledgement of offsets {first} to {last}: the first is above the last")
        if first < end:
            raise InvalidRequestError(f"acknowledgement of offset {first} after offset {end}: not in order")
        if not types:
            raise InvalidRequestError(f"acknowledgement of offsets {first} to {last} without a type")
        if len(types) > 1 and len(types) != last - first + 1:
            raise InvalidRequestError(f"{len(types)} acknowledgement types for {last - first + 1} offsets from {first}")
        for kind in types:
            if not 0 <= kind <= RENEW:
                raise InvalidRequestError(f"acknowledgement type {kind} at offsets {first} to {last}")
            if kind == RENEW and not is_renew_ack:
                raise InvalidRequestError(f"RENEW at offsets {first} to {last} in a request that is no renewal")
        end = last


def runs_of(batch: AckBatch) -> Iterator[tuple[int, int, int]]:
    """The batch as ``(first, last, type)``, neighbours of one type together."""
    first, last, types = batch
    if len(types) == 1:
        yield first, last, types[0]
        return
    start = first
    kind = types[0]
    for at in range(1, len(types)):
        if types[at] != kind:
            yield start, first + at - 1, kind
            start = first + at
            kind = types[at]
    yield start, last, kind
