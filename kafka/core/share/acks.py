"""Acknowledgements of one partition on their way to the broker, as ranges.

    first_offset  last_offset  types            on the wire: one type for the whole range, or one for each offset;
    10            499          [1]              here always one for the range

A partition's list in a request is atomic: one offset that is not ours any more fails them all with
INVALID_RECORD_STATE. So a refused list is sent again, one record (or range without records) each, and only those that
are refused then are lost.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kafka._native import i64
from kafka.core.share.records import AcknowledgeType, ShareRecord
from kafka.records.header import MAX_OFFSET


class AckRange(NamedTuple):
    """Offsets ``first`` to ``last``, both inclusive, with one type."""

    first: int
    last: int
    type: AcknowledgeType


class Said(NamedTuple):
    """One type of several records of one partition."""

    type: AcknowledgeType
    records: list[ShareRecord]


class TakenAcks(NamedTuple):
    """What one request says of one partition: all its ranges; and where they come from, records or bare ranges."""

    ranges: list[AckRange]
    said: list[Said]
    bare: list[AckRange]

    @property
    def records(self) -> list[tuple[AcknowledgeType, ShareRecord]]:
        """Each record, and what is said of it."""
        return [(said.type, record) for said in self.said for record in said.records]

    @property
    def is_single(self) -> bool:
        """It cannot be said in smaller parts."""
        return sum(len(said.records) for said in self.said) + len(self.bare) <= 1


def grouped(said: Iterable[tuple[AcknowledgeType, ShareRecord]]) -> list[Said]:
    """The same, by type."""
    found: dict[AcknowledgeType, list[ShareRecord]] = {}
    for kind, record in said:
        found.setdefault(kind, []).append(record)
    return [Said(kind, records) for kind, records in found.items()]


def within(ranges: Sequence[tuple[int, int]], records: Mapping[int, ShareRecord]) -> list[ShareRecord]:
    """Those of the records, by offset, that lie in the ranges, which ascend."""
    found: list[ShareRecord] = []
    for offset, record in records.items():
        at = bisect_right(ranges, (offset, MAX_OFFSET)) - 1
        if at >= 0 and offset <= ranges[at][1]:
            found.append(record)
    return found


def without(bare: Iterable[AckRange], taken: Sequence[tuple[int, int]]) -> list[AckRange]:
    """The parts of the ranges that lie in none of ``taken``, which ascend."""
    found: list[AckRange] = []
    for first, last, kind in bare:
        at = max(0, bisect_right(taken, (first, MAX_OFFSET)) - 1)
        while at < len(taken) and taken[at][0] <= last:
            if first < taken[at][0]:
                found.append(AckRange(first, taken[at][0] - 1, kind))
            first = max(first, taken[at][1] + 1)
            at += 1
        if first <= last:
            found.append(AckRange(first, last, kind))
    return found


class PendingAcks:
    """What one partition still has to say, in any order in; sorted ranges out.

    The records of what was taken are handed back with the answer, so that whoever acknowledged can be told. Ranges
    without records are gaps, and what came damaged or unwanted and is released.

    Records are kept by type, and then by offset: most often all have the same, thousands of them, and then nothing has
    to be made for each.
    """

    __slots__ = ("_ranges", "_said", "_suspects", "renewals")

    def __init__(self) -> None:
        self._said: dict[AcknowledgeType, dict[int, ShareRecord]] = {}  # none of them empty; an offset is in one
        self._ranges: list[AckRange] = []
        self._suspects: deque[TakenAcks] = deque()
        self.renewals = 0

    def __bool__(self) -> bool:
        return bool(self._said or self._ranges or self._suspects)

    @property
    def has_suspects(self) -> bool:
        """Something of a refused list is still to be said by itself."""
        return bool(self._suspects)

    def add(self, record: ShareRecord, kind: AcknowledgeType) -> None:
        """Say ``kind`` of ``record``. A final type replaces a renewal that has not been sent."""
        self.take_back(record)
        if kind is AcknowledgeType.RENEW:
            self.renewals += 1
        self._said.setdefault(kind, {})[record.offset] = record

    def add_all(self, records: Sequence[ShareRecord], kind: AcknowledgeType) -> None:
        """:meth:`add` for each of them."""
        if self._suspects or kind is AcknowledgeType.RENEW or self._said.keys() - {kind}:
            for record in records:
                self.add(record, kind)
        elif records:
            said = self._said.setdefault(kind, {})
            for record in records:
                said[record.offset] = record

    def add_ranges(self, ranges: Iterable[tuple[int, int]], kind: AcknowledgeType) -> None:
        """Say ``kind`` of offsets for which there is no record at hand."""
        self._ranges.extend(AckRange(first, last, kind) for first, last in ranges)

    def put_back(self, unheard: TakenAcks) -> None:
        """Say again what the broker did not look at. What was said of a record since then counts more."""
        for kind, record in unheard.records:
            if not any(record.offset in said for said in self._said.values()):
                self.add(record, kind)
        self._ranges.extend(unheard.bare)

    def add_suspects(self, refused: TakenAcks) -> None:
        """Say what was refused as one list in parts that stand for themselves."""
        for kind, record in refused.records:
            said = AckRange(record.offset, record.offset, kind)
            self._suspects.append(TakenAcks([said], [Said(kind, [record])], []))
        self._suspects.extend(TakenAcks([each], [], [each]) for each in refused.bare)

    def take_back(self, record: ShareRecord) -> None:
        """Do not say what is waiting to be said of ``record``."""
        for kind, said in self._said.items():
            if said.pop(record.offset, None) is not None:
                if kind is AcknowledgeType.RENEW:
                    self.renewals -= 1
                if not said:
                    del self._said[kind]
                break
        if self._suspects:
            self._suspects = deque([one for one in self._suspects if _suspect(one) is not record])

    def forget(self, ranges: Sequence[tuple[int, int]]) -> list[tuple[AcknowledgeType, ShareRecord]]:
        """Do not say what waits to be said of these offsets, ranges that ascend; what that is of records is given."""
        over = [(kind, record) for kind, said in self._said.items() for record in within(ranges, said)]
        for _, record in over:
            self.take_back(record)
        self._ranges = without(self._ranges, ranges)
        suspects, self._suspects = self._suspects, deque()
        for one in suspects:
            suspect = _suspect(one)
            if suspect is None:
                self._suspects.extend(TakenAcks([each], [], [each]) for each in without(one.bare, ranges))
            elif within(ranges, {suspect.offset: suspect}):
                over.append((one.said[0].type, suspect))
            else:
                self._suspects.append(one)
        return over

    def take(self) -> TakenAcks:
        """Everything that may go into one request; a suspect goes alone, after the others have gone."""
        if not self._said and not self._ranges and self._suspects:
            return self._suspects.popleft()
        said: list[Said] = []
        ranges: list[AckRange] = []
        for kind, by_offset in self._said.items():
            records = [by_offset[offset] for offset in sorted(by_offset)]
            said.append(Said(kind, records))
            ranges += _ranges(records, kind)
        bare, self._ranges = self._ranges, []
        if bare or len(said) > 1:
            ranges = sorted(ranges + bare)
        self._said = {}
        self.renewals = 0
        return TakenAcks(ranges, said, bare)

    def clear(self) -> list[Said]:
        """Forget everything; what was waiting to be said of records."""
        waiting = [Said(kind, list(said.values())) for kind, said in self._said.items()]
        for one in self._suspects:
            waiting += one.said
        self._said = {}
        self._ranges = []
        self._suspects.clear()
        self.renewals = 0
        return waiting


def _suspect(one: TakenAcks) -> ShareRecord | None:
    """The record of a part that is to be said by itself, if it is one."""
    return one.said[0].records[0] if one.said else None


def _ranges(records: Sequence[ShareRecord], kind: AcknowledgeType) -> list[AckRange]:
    """The offsets of ``records``, which ascend, as ranges: neighbours become one."""
    found: list[AckRange] = []
    first: i64 = -2
    last: i64 = -2
    for record in records:
        offset: i64 = record.offset
        if offset != last + 1:
            if last >= 0:
                found.append(AckRange(first, last, kind))
            first = offset
        last = offset
    if last >= 0:
        found.append(AckRange(first, last, kind))
    return found
