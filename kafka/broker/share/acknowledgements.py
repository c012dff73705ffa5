"""Checks on the acknowledgements of a request that need no state: shapes, order, types.

Apache Kafka answers every fault here with INVALID_REQUEST (42) for the partition, before it looks at any record. What
needs a record's state (owner, lock) is in ``partition.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kafka.broker.share.states import RENEW, AckBatch
from kafka.errors import InvalidRequestError


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
