"""Acknowledgements of one partition on their way to the broker, as ranges.

    first_offset  last_offset  types            on the wire: one type for the whole range, or one for each offset;
    10            499          [1]              here always one for the range

A partition's list in a request is atomic: one offset that is not ours any more fails them all with
INVALID_RECORD_STATE. So a refused list is sent again, one record (or range without records) each, and only those that
are refused then are lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kafka.core.share.records import AcknowledgeType, ShareRecord


class AckRange(NamedTuple):
    """Offsets ``first`` to ``last``, both inclusive, with one type."""

    first: int
    last: int
    type: AcknowledgeType


class TakenAcks(NamedTuple):
    """What one request says of one partition: all its ranges; and where they come from, records or bare ranges."""

    ranges: list[AckRange]
    records: list[tuple[AcknowledgeType, ShareRecord]]
    bare: list[AckRange]

    @property
    def is_single(self) -> bool:
        """It cannot be said in smaller parts."""
        return len(self.records) + len(self.bare) <= 1


class PendingAcks:
    """What one partition still has to say, in any order in; sorted ranges out.

    The records of what was taken are handed back with the answer, so that whoever acknowledged can be told. Ranges
    without records are gaps, and what came damaged or unwanted and is released.
    """

    __slots__ = ("_ranges", "_records", "_suspects", "renewals")

    def __init__(self) -> None:
        self._records: dict[int, tuple[AcknowledgeType, ShareRecord]] = {}
        self._ranges: list[AckRange] = []
        self._suspects: deque[TakenAcks] = deque()
        self.renewals = 0

    def __bool__(self) -> bool:
        return bool(self._records or self._ranges or self._suspects)

    @property
    def has_suspects(self) -> bool:
        """Something of a refused list is still to be said by itself."""
        return bool(self._suspects)

    def add(self, record: ShareRecord, kind: AcknowledgeType) -> None:
        """Say ``kind`` of ``record``. A final type replaces a renewal that has not been sent."""
        self.take_back(record)
        if kind is AcknowledgeType.RENEW:
            self.renewals += 1
        self._records[record.offset] = (kind, record)

    def add_ranges(self, ranges: Iterable[tuple[int, int]], kind: AcknowledgeType) -> None:
        """Say ``kind`` of offsets for which there is no record at hand."""
        self._ranges.extend(AckRange(first, last, kind) for first, last in ranges)

    def put_back(self, unheard: TakenAcks) -> None:
        """Say again what the broker did not look at. What was said of a record since then counts more."""
        for kind, record in unheard.records:
            if record.offset not in self._records:
                self.add(record, kind)
        self._ranges.extend(unheard.bare)

    def add_suspects(self, refused: TakenAcks) -> None:
        """Say what was refused as one list in parts that stand for themselves."""
        for kind, record in refused.records:
            said = AckRange(record.offset, record.offset, kind)
            self._suspects.append(TakenAcks([said], [(kind, record)], []))
        self._suspects.extend(TakenAcks([each], [], [each]) for each in refused.bare)

    def take_back(self, record: ShareRecord) -> None:
        """Do not say what is waiting to be said of ``record``."""
        said = self._records.pop(record.offset, None)
        if said is not None and said[0] is AcknowledgeType.RENEW:
            self.renewals -= 1
        if self._suspects:
            self._suspects = deque(one for one in self._suspects if not (one.records and one.records[0][1] is record))

    def forget(self, held: Mapping[int, ShareRecord]) -> list[tuple[AcknowledgeType, ShareRecord]]:
        """Do not say what waits to be said of other records than those that are held at their offsets; it is given."""
        over = [said for said in self._records.values() if held.get(said[1].offset, said[1]) is not said[1]]
        for _, record in over:
            self.take_back(record)
        suspects = [one for one in self._suspects if one.records]
        gone = [one for one in suspects if held.get(one.records[0][1].offset) not in (None, one.records[0][1])]
        if gone:
            self._suspects = deque(one for one in self._suspects if one not in gone)
            over += [one.records[0] for one in gone]
        return over

    def take(self) -> TakenAcks:
        """Everything that may go into one request; a suspect goes alone, after the others have gone."""
        if not self._records and not self._ranges and self._suspects:
            return self._suspects.popleft()
        said = [self._records[offset] for offset in sorted(self._records)]
        ranges = merge([AckRange(record.offset, record.offset, kind) for kind, record in said])
        bare, self._ranges = self._ranges, []
        if bare:
            ranges = sorted(ranges + bare)
        self._records = {}
        self.renewals = 0
        return TakenAcks(ranges, said, bare)

    def clear(self) -> list[tuple[AcknowledgeType, ShareRecord]]:
        """Forget everything; what was waiting to be said of records."""
        waiting = list(self._records.values())
        waiting += [said for one in self._suspects for said in one.records]
        self._records = {}
        self._ranges = []
        self._suspects.clear()
        self.renewals = 0
        return waiting


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
