"""Acknowledgements of one partition on their way to the broker, as ranges.

    first_offset  last_offset  types            on the wire: one type for the whole range, or one for each offset;
    10            499          [1]              here always one for the range

A partition's list in a request is atomic: one offset that is not ours any more fails them all with
INVALID_RECORD_STATE. So a refused list is sent again, one record each, and only those that are refused then are lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kafka.core.share.records import AcknowledgeType, ShareRecord


class AckRange(NamedTuple):
    """Offsets ``first`` to ``last``, both inclusive, with one type."""

    first: int
    last: int
    type: AcknowledgeType


class PendingAcks:
    """What one partition still has to say, in any order in; sorted ranges out.

    The records of what was taken are handed back with the answer, so that whoever acknowledged can be told. Ranges
    without records are gaps, and what came damaged and is released.
    """

    __slots__ = ("_ranges", "_records", "renewals", "suspects")

    def __init__(self) -> None:
        self._records: dict[int, tuple[AcknowledgeType, ShareRecord]] = {}
        self._ranges: list[AckRange] = []
        self.suspects: list[tuple[AcknowledgeType, ShareRecord]] = []
        self.renewals = 0

    def __bool__(self) -> bool:
        return bool(self._records or self._ranges or self.suspects)

    def add(self, record: ShareRecord, kind: AcknowledgeType) -> None:
        """Say ``kind`` of ``record``. A final type replaces a renewal that has not been sent."""
        before = self._records.get(record.offset)
        if before is not None and before[0] is AcknowledgeType.RENEW:
            self.renewals -= 1
        if kind is AcknowledgeType.RENEW:
            self.renewals += 1
        self._records[record.offset] = (kind, record)

    def add_ranges(self, ranges: Iterable[tuple[int, int]], kind: AcknowledgeType) -> None:
        """Say ``kind`` of offsets for which there is no record at hand."""
        self._ranges.extend(AckRange(first, last, kind) for first, last in ranges)

    def add_suspects(self, refused: TakenAcks) -> None:
        """Put back what was refused as one list: the records to be said one by one, bare ranges as they are."""
        self.suspects.extend(refused.records)
        self._ranges.extend(refused.bare)

    def take(self) -> TakenAcks:
        """Everything that may go into one request; a suspect goes alone, after the others have gone."""
        if not self._records and not self._ranges and self.suspects:
            kind, record = self.suspects.pop(0)
            return TakenAcks([AckRange(record.offset, record.offset, kind)], [(kind, record)], [])
        said = [self._records[offset] for offset in sorted(self._records)]
        ranges = merge([AckRange(record.offset, record.offset, kind) for kind, record in said])
        bare, self._ranges = self._ranges, []
        if bare:
            ranges = sorted(ranges + bare)
        self._records = {}
        self.renewals = 0
        return TakenAcks(ranges, said, bare)

    def clear(self) -> list[ShareRecord]:
        """Forget everything; the records that were waiting."""
        waiting = [record for _, record in (*self._records.values(), *self.suspects)]
        self._records = {}
        self._ranges = []
        self.suspects = []
        self.renewals = 0
        return waiting


class TakenAcks(NamedTuple):
    """What one request says of one partition: all its ranges; and where they come from, records or bare ranges."""

    ranges: list[AckRange]
    records: list[tuple[AcknowledgeType, ShareRecord]]
    bare: list[AckRange]


def merge(ranges: Sequence[AckRange]) -> list[AckRange]:
    """Neighbours of one type become one range. ``ranges`` ascend and do not overlap."""
    merged: list[AckRange] = []
    first = last = -2
    kind: AcknowledgeType | None = None
    for each in ranges:
        if each.type is kind and each.first == last + 1:
            last = each.last
            continue
        if kind is not None:
            merged.append(AckRange(first, last, kind))
        first, last, kind = each
    if kind is not None:
        merged.append(AckRange(first, last, kind))
    return merged
