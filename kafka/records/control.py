"""Control records: the markers that end a transaction, in batches of one record with the control bit set.

    key    version  i16     0
           type     i16     0 abort, 1 commit; higher ones belong to the controllers' own log
    value  version  i16     0
           coordinator_epoch  i32

Clients do not return them to users: a read_committed consumer compares them with the list of aborted transactions. A
version above 0 may have more fields at the end, never fewer. A new type is one more row in :data:`CONTROL_NAMES`.

Source: KIP-98, "Control messages"; Kafka's ``EndTxnMarker`` and ``ControlRecordTypeSchema``.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from kafka.errors import CorruptRecordError
from kafka.records.builder import RecordBatchBuilder

ABORT: Final = 0
COMMIT: Final = 1

CONTROL_NAMES: Final[dict[int, str]] = {ABORT: "abort", COMMIT: "commit"}

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")


class ControlMarker(NamedTuple):
    """A control record: ``kind`` (:data:`ABORT`, :data:`COMMIT` or a number that is not for clients) and the epoch
    of the transaction's coordinator, -1 when the kind is not known."""

    kind: int
    coordinator_epoch: int

    @property
    def name(self) -> str:
        return CONTROL_NAMES.get(self.kind, "unknown")


def decode_control(key: bytes | None, value: bytes | None) -> ControlMarker:
    """The marker in a control record's key and value. Raises :class:`~kafka.errors.CorruptRecordError` for ones that
    are missing, too short or of a negative version."""
    if key is None or len(key) < _KEY.size:
        raise CorruptRecordError(f"a control record's key of {key!r}")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptRecordError(f"a control record's key of version {version}")
    if kind not in CONTROL_NAMES:
        return ControlMarker(kind, -1)
    if value is None or len(value) < _VALUE.size:
        raise CorruptRecordError(f"a control record's value of {value!r}")
    version, coordinator_epoch = _VALUE.unpack_from(value)
    if version < 0:
        raise CorruptRecordError(f"a control record's value of version {version}")
    return ControlMarker(kind, coordinator_epoch)


def encode_control(marker: ControlMarker) -> tuple[bytes, bytes]:
    """The key and the value of the marker's record, both of version 0."""
    return _KEY.pack(0, marker.kind), _VALUE.pack(0, marker.coordinator_epoch)


def control_batch(
    marker: ControlMarker, timestamp: int, producer_id: int, producer_epoch: int, base_offset: int, leader_epoch: int
) -> bytes:
    """The batch that ends a transaction in a partition's log; ``timestamp`` in ms. Source: KIP-98."""
    builder = RecordBatchBuilder(0)
    key, value = encode_control(marker)
    builder.append(timestamp, key, value)
    return builder.build(
        producer_id,
        producer_epoch,
        transactional=True,
        control=True,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )
