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
from typing import TYPE_CHECKING, NamedTuple

from kafka._native import i64
from kafka.core.share.records import AcquiredReader, AcquiredSlice, ShareRecord, TopicIdPartition
from kafka.errors import InvalidRecordStateError, KafkaError
from kafka.protocol.constants import AcknowledgeType
from kafka.records.header import MAX_OFFSET

if TYPE_CHECKING:
    from kafka.core.share.session import ShareSession


class AcknowledgementRange(NamedTuple):
    """Offsets ``first`` to ``last``, both inclusive, with one type."""

    first: int
    last: int
    type: AcknowledgeType


class AcknowledgedRanges(NamedTuple):
    """One type of several records of one partition."""

    type: AcknowledgeType
    records: list[ShareRecord]


class SentAcknowledgements(NamedTuple):
    """What one request says of one partition: all its ranges; and where they come from, records or bare ranges."""

    ranges: list[AcknowledgementRange]
    said: list[AcknowledgedRanges]
    bare: list[AcknowledgementRange]

    @property
    def records(self) -> list[tuple[AcknowledgeType, ShareRecord]]:
        """Each record, and what is said of it."""
        return [(said.type, record) for said in self.said for record in said.records]

    @property
    def is_single(self) -> bool:
        """It cannot be said in smaller parts."""
        return sum(len(said.records) for said in self.said) + len(self.bare) <= 1


def group_by_type(said: Iterable[tuple[AcknowledgeType, ShareRecord]]) -> list[AcknowledgedRanges]:
    """The same, by type."""
    found: dict[AcknowledgeType, list[ShareRecord]] = {}
    for kind, record in said:
        found.setdefault(kind, []).append(record)
    return [AcknowledgedRanges(kind, records) for kind, records in found.items()]


def records_within(ranges: Sequence[tuple[int, int]], records: Mapping[int, ShareRecord]) -> list[ShareRecord]:
    """Those of the records, by offset, that lie in the ranges, which ascend."""
    found: list[ShareRecord] = []
    for offset, record in records.items():
        at = bisect_right(ranges, (offset, MAX_OFFSET)) - 1
        if at >= 0 and offset <= ranges[at][1]:
            found.append(record)
    return found


def subtract_ranges(
    bare: Iterable[AcknowledgementRange], taken: Sequence[tuple[int, int]]
) -> list[AcknowledgementRange]:
    """The parts of the ranges that lie in none of ``taken``, which ascend."""
    found: list[AcknowledgementRange] = []
    for first, last, kind in bare:
        at = max(0, bisect_right(taken, (first, MAX_OFFSET)) - 1)
        while at < len(taken) and taken[at][0] <= last:
            if first < taken[at][0]:
                found.append(AcknowledgementRange(first, taken[at][0] - 1, kind))
            first = max(first, taken[at][1] + 1)
            at += 1
        if first <= last:
            found.append(AcknowledgementRange(first, last, kind))
    return found


class PendingAcknowledgements:
    """What one partition still has to say, in any order in; sorted ranges out.

    The records of what was taken are handed back with the answer, for the acknowledgement callback. Ranges
    without records are gaps, and what came damaged or unwanted and is released.

    Records are kept by type, and then by offset: most often all have the same, thousands of them, and then nothing has
    to be made for each.
    """

    __slots__ = ("_ranges", "_by_type", "_suspects", "renewals")

    def __init__(self) -> None:
        self._by_type: dict[AcknowledgeType, dict[int, ShareRecord]] = {}  # none of them empty; an offset is in one
        self._ranges: list[AcknowledgementRange] = []
        self._suspects: deque[SentAcknowledgements] = deque()
        self.renewals = 0

    def __bool__(self) -> bool:
        return bool(self._by_type or self._ranges or self._suspects)

    @property
    def has_suspects(self) -> bool:
        """Something of a refused list is still to be said by itself."""
        return bool(self._suspects)

    def add(self, record: ShareRecord, kind: AcknowledgeType) -> None:
        """Say ``kind`` of ``record``. A final type replaces a renewal that has not been sent."""
        self.take_back(record)
        if kind is AcknowledgeType.RENEW:
            self.renewals += 1
        self._by_type.setdefault(kind, {})[record.offset] = record

    def add_all(self, records: Sequence[ShareRecord], kind: AcknowledgeType) -> None:
        """:meth:`add` for each of them."""
        if self._suspects or kind is AcknowledgeType.RENEW or self._by_type.keys() - {kind}:
            for record in records:
                self.add(record, kind)
        elif records:
            said = self._by_type.setdefault(kind, {})
            for record in records:
                said[record.offset] = record

    def add_ranges(self, ranges: Iterable[tuple[int, int]], kind: AcknowledgeType) -> None:
        """Say ``kind`` of offsets for which there is no record at hand."""
        self._ranges.extend(AcknowledgementRange(first, last, kind) for first, last in ranges)

    def put_back(self, unheard: SentAcknowledgements) -> None:
        """Say again what the broker did not look at. What was said of a record since then counts more."""
        for kind, record in unheard.records:
            if not any(record.offset in said for said in self._by_type.values()):
                self.add(record, kind)
        self._ranges.extend(unheard.bare)

    def add_suspects(self, refused: SentAcknowledgements) -> None:
        """Say what was refused as one list in parts that stand for themselves."""
        for kind, record in refused.records:
            said = AcknowledgementRange(record.offset, record.offset, kind)
            self._suspects.append(SentAcknowledgements([said], [AcknowledgedRanges(kind, [record])], []))
        self._suspects.extend(SentAcknowledgements([each], [], [each]) for each in refused.bare)

    def take_back(self, record: ShareRecord) -> None:
        """Do not say what is waiting to be said of ``record``."""
        for kind, said in self._by_type.items():
            if said.pop(record.offset, None) is not None:
                if kind is AcknowledgeType.RENEW:
                    self.renewals -= 1
                if not said:
                    del self._by_type[kind]
                break
        if self._suspects:
            self._suspects = deque([one for one in self._suspects if _undelivered_record(one) is not record])

    def forget(self, ranges: Sequence[tuple[int, int]]) -> list[tuple[AcknowledgeType, ShareRecord]]:
        """Do not say what waits to be said of these offsets, ranges that ascend; what that is of records is given."""
        over = [(kind, record) for kind, said in self._by_type.items() for record in records_within(ranges, said)]
        for _, record in over:
            self.take_back(record)
        self._ranges = subtract_ranges(self._ranges, ranges)
        suspects, self._suspects = self._suspects, deque()
        for one in suspects:
            suspect = _undelivered_record(one)
            if suspect is None:
                self._suspects.extend(
                    SentAcknowledgements([each], [], [each]) for each in subtract_ranges(one.bare, ranges)
                )
            elif records_within(ranges, {suspect.offset: suspect}):
                over.append((one.said[0].type, suspect))
            else:
                self._suspects.append(one)
        return over

    def take(self) -> SentAcknowledgements:
        """Everything that may go into one request; a suspect goes alone, after the others have gone."""
        if not self._by_type and not self._ranges and self._suspects:
            return self._suspects.popleft()
        said: list[AcknowledgedRanges] = []
        ranges: list[AcknowledgementRange] = []
        for kind, by_offset in self._by_type.items():
            records = [by_offset[offset] for offset in sorted(by_offset)]
            said.append(AcknowledgedRanges(kind, records))
            ranges += _ranges(records, kind)
        bare, self._ranges = self._ranges, []
        if bare or len(said) > 1:
            ranges = sorted(ranges + bare)
        self._by_type = {}
        self.renewals = 0
        return SentAcknowledgements(ranges, said, bare)

    def clear(self) -> list[AcknowledgedRanges]:
        """Forget everything; what was waiting to be said of records."""
        waiting = [AcknowledgedRanges(kind, list(said.values())) for kind, said in self._by_type.items()]
        for one in self._suspects:
            waiting += one.said
        self._by_type = {}
        self._ranges = []
        self._suspects.clear()
        self.renewals = 0
        return waiting


def _undelivered_record(one: SentAcknowledgements) -> ShareRecord | None:
    """The record of a part that is to be said by itself, if it is one."""
    return one.said[0].records[0] if one.said else None


def _ranges(records: Sequence[ShareRecord], kind: AcknowledgeType) -> list[AcknowledgementRange]:
    """The offsets of ``records``, which ascend, as ranges: neighbours become one."""
    found: list[AcknowledgementRange] = []
    first: i64 = -2
    last: i64 = -2
    for record in records:
        offset: i64 = record.offset
        if offset != last + 1:
            if last >= 0:
                found.append(AcknowledgementRange(first, last, kind))
            first = offset
        last = offset
    if last >= 0:
        found.append(AcknowledgementRange(first, last, kind))
    return found


# What a member has of one partition: records under lock, what was acquired and not read yet, and acknowledgements on
# their way.
#
# A record knows its AcquiredRecords (``owner``), and those the session that they belong to, so that an acknowledgement
# finds its connection without a look-up. The session decides when what is here is sent, taken back or lost.


class Acknowledged(NamedTuple):
    """What became of one acknowledgement; ``error`` None: it holds."""

    record: ShareRecord
    type: AcknowledgeType
    error: KafkaError | None


class AcknowledgementResult(NamedTuple):
    """What became of acknowledgements of one type in one partition; ``error`` None: they hold."""

    type: AcknowledgeType
    records: list[ShareRecord]
    error: KafkaError | None


def acknowledged_of(answered: Sequence[AcknowledgementResult]) -> list[Acknowledged]:
    """The same, record by record."""
    return [Acknowledged(record, kind, error) for kind, records, error in answered for record in records]


class AcquiredRecords:
    """What the member has of one partition: records held by offset, what is ``unread``, the first to come first, and
    acknowledgements to be sent."""

    __slots__ = ("acks", "held", "partition", "session", "unread")

    def __init__(self, session: ShareSession, partition: TopicIdPartition) -> None:
        self.session = session
        self.partition = partition
        self.held: dict[int, ShareRecord] = {}
        self.unread: deque[AcquiredReader] = deque()
        self.acks = PendingAcknowledgements()

    @property
    def in_use(self) -> bool:
        """There is something of it."""
        return bool(self.held or self.unread or self.acks)

    def settle(self, records: Sequence[ShareRecord], kind: AcknowledgeType) -> list[ShareRecord]:
        """Say ``kind`` of these; those of which nothing can be said, since they are not held (any more)."""
        held = self.held
        is_final = kind is not AcknowledgeType.RENEW
        ours: list[ShareRecord] = []
        others: list[ShareRecord] = []
        for record in records:
            if record.lost or held.get(record.offset) is not record:
                others.append(record)
                continue
            ours.append(record)
            if is_final:
                del held[record.offset]
        self.acks.add_all(ours, kind)
        return others

    def drop(self, error: KafkaError) -> tuple[list[ShareRecord], list[AcknowledgementResult]]:
        """Forget everything, since the locks are gone: the records that were held, and what became of those that had
        been acknowledged and never will be on the broker."""
        held = list(self.held.values())
        said = self.acks.clear()
        for record in held:
            record._lose()
        self.held.clear()
        self.unread.clear()
        return held, failed_results(said, error)

    def acquired(self, reader: AcquiredReader) -> tuple[list[ShareRecord], list[AcknowledgementResult]]:
        """These offsets are ours by new locks. What was held there by former ones is lost, and what was still to be
        said of that is refused: said now, it would end the new lock, and the broker give to another what is worked on
        here."""
        lost: list[ShareRecord] = []
        over: list[tuple[AcknowledgeType, ShareRecord]] = []
        if self.held or self.acks:
            ranges = reader.left
            lost = records_within(ranges, self.held)
            for record in lost:
                del self.held[record.offset]
            over = self.acks.forget(ranges)
        self.unread.append(reader)
        return lost, self._refused_as_over(over)

    def read(self, part: AcquiredSlice) -> list[ShareRecord]:
        """Some of the first of what is unread: records that are held now. Errors: those of
        :meth:`AcquiredReader.read`."""
        reader = self.unread[0]
        found, gaps = reader.read(part)
        if reader.is_over:
            self.unread.popleft()
        held = self.held
        for record in found:
            held[record.offset] = record
        self.acks.add_ranges(gaps, AcknowledgeType.GAP)
        return found

    def give_back(self) -> bool:
        """Say of all that is unread that it is released; whether there was something."""
        ranges = [each for reader in self.unread for each in reader.left]
        self.unread.clear()
        self.acks.add_ranges(ranges, AcknowledgeType.RELEASE)
        return bool(ranges)

    def expire_unread(self, now: float) -> int:
        """Forget what is unread and whose locks have ended; how many offsets that were."""
        count = 0
        for reader in [reader for reader in self.unread if reader.lock_deadline <= now]:
            count += sum([last - first + 1 for first, last in reader.left])
            self.unread.remove(reader)
        return count

    def say_one_by_one(self, taken: SentAcknowledgements) -> list[AcknowledgementResult]:
        """The broker refused these together: say each by itself, but for records that have come anew meanwhile."""
        kept, over = self._without_former(taken)
        self.acks.add_suspects(kept)
        return self._refused_as_over(over)

    def _without_former(
        self, taken: SentAcknowledgements
    ) -> tuple[SentAcknowledgements, list[tuple[AcknowledgeType, ShareRecord]]]:
        """What was said of locks that we still have; and of which records it was said by former ones."""
        kept: list[tuple[AcknowledgeType, ShareRecord]] = []
        over: list[tuple[AcknowledgeType, ShareRecord]] = []
        unread = sorted([each for reader in self.unread for each in reader.left])
        for kind, record in taken.records:
            offset = record.offset
            is_former = self.held.get(offset, record) is not record or (
                unread and records_within(unread, {offset: record})
            )
            (over if is_former else kept).append((kind, record))
        anew = unread
        if taken.bare and self.held:
            anew = sorted([*unread, *[(offset, offset) for offset in self.held]])
        return taken._replace(said=group_by_type(kept), bare=subtract_ranges(taken.bare, anew)), over

    def _refused_as_over(self, over: list[tuple[AcknowledgeType, ShareRecord]]) -> list[AcknowledgementResult]:
        if not over:
            return []
        error = InvalidRecordStateError("the lock ended before this was sent, and the record was handed out anew")
        return failed_results(group_by_type(over), error)

    def say_again(self, taken: SentAcknowledgements, error: KafkaError, now: float) -> list[AcknowledgementResult]:
        """The broker could not look at these: say them again, but for those whose locks have ended meanwhile."""
        ours, former = self._without_former(taken)
        self.acks.put_back(
            ours._replace(said=group_by_type([said for said in ours.records if said[1].lock_deadline > now]))
        )
        over = [said for said in ours.records if said[1].lock_deadline <= now]
        refused = self.refuse(taken._replace(said=group_by_type(over)), error) if over else []
        return refused + self._refused_as_over(former)

    def refuse(self, taken: SentAcknowledgements, error: KafkaError) -> list[AcknowledgementResult]:
        """The broker did not take these acknowledgements: their records are ours no more."""
        for said in taken.said:
            for record in said.records:
                if self.held.get(record.offset) is record:
                    del self.held[record.offset]
                    self.acks.take_back(record)
                record._lose()
        return [AcknowledgementResult(said.type, said.records, error) for said in taken.said]


def failed_results(said: Sequence[AcknowledgedRanges], error: KafkaError) -> list[AcknowledgementResult]:
    """None of these will be on the broker, and the locks are gone; renewals need no answer besides."""
    for each in said:
        for record in each.records:
            record._lose()
    return [
        AcknowledgementResult(each.type, each.records, error) for each in said if each.type is not AcknowledgeType.RENEW
    ]
