"""What a member has of one partition: records under lock, what was acquired and not read yet, and acknowledgements on
their way.

A record knows its holding (``owner``), and the holding the session that it belongs to, so that an acknowledgement finds
its connection without a look-up. The session decides when what is here is sent, taken back or lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafka.core.share.acks import PendingAcks, Said, TakenAcks, grouped, within, without
from kafka.core.share.records import AcknowledgeType, AcquiredReader, SharePartition, ShareRecord, Slice
from kafka.errors import InvalidRecordStateError, KafkaError

if TYPE_CHECKING:
    from kafka.core.share.session import ShareSession


class Acknowledged(NamedTuple):
    """What became of one acknowledgement; ``error`` None: it holds."""

    record: ShareRecord
    type: AcknowledgeType
    error: KafkaError | None


class Answered(NamedTuple):
    """What became of acknowledgements of one type in one partition; ``error`` None: they hold."""

    type: AcknowledgeType
    records: list[ShareRecord]
    error: KafkaError | None


def each_of(answered: Sequence[Answered]) -> list[Acknowledged]:
    """The same, record by record."""
    return [Acknowledged(record, kind, error) for kind, records, error in answered for record in records]


class Holding:
    """What the member has of one partition: records held by offset, what is ``unread``, the first to come first, and
    acknowledgements to be sent."""

    __slots__ = ("acks", "held", "partition", "session", "unread")

    def __init__(self, session: ShareSession, partition: SharePartition) -> None:
        self.session = session
        self.partition = partition
        self.held: dict[int, ShareRecord] = {}
        self.unread: deque[AcquiredReader] = deque()
        self.acks = PendingAcks()

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

    def drop(self, error: KafkaError) -> tuple[list[ShareRecord], list[Answered]]:
        """Forget everything, since the locks are gone: the records that were held, and what became of those that had
        been acknowledged and never will be on the broker."""
        held = list(self.held.values())
        said = self.acks.clear()
        for record in held:
            record.lost = True
        self.held.clear()
        self.unread.clear()
        return held, _refused(said, error)

    def acquired(self, reader: AcquiredReader) -> tuple[list[ShareRecord], list[Answered]]:
        """These offsets are ours by new locks. What was held there by former ones is lost, and what was still to be
        said of that is refused: said now, it would end the new lock, and the broker give to another what is worked on
        here."""
        lost: list[ShareRecord] = []
        over: list[tuple[AcknowledgeType, ShareRecord]] = []
        if self.held or self.acks:
            ranges = reader.left
            lost = within(ranges, self.held)
            for record in lost:
                del self.held[record.offset]
            over = self.acks.forget(ranges)
        self.unread.append(reader)
        return lost, self._refused_as_over(over)

    def read(self, part: Slice) -> list[ShareRecord]:
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

    def say_one_by_one(self, taken: TakenAcks) -> list[Answered]:
        """The broker refused these together: say each by itself, but for records that have come anew meanwhile."""
        kept, over = self._without_former(taken)
        self.acks.add_suspects(kept)
        return self._refused_as_over(over)

    def _without_former(self, taken: TakenAcks) -> tuple[TakenAcks, list[tuple[AcknowledgeType, ShareRecord]]]:
        """What was said of locks that we still have; and of which records it was said by former ones."""
        kept: list[tuple[AcknowledgeType, ShareRecord]] = []
        over: list[tuple[AcknowledgeType, ShareRecord]] = []
        unread = sorted([each for reader in self.unread for each in reader.left])
        for kind, record in taken.records:
            offset = record.offset
            is_former = self.held.get(offset, record) is not record or (unread and within(unread, {offset: record}))
            (over if is_former else kept).append((kind, record))
        anew = unread
        if taken.bare and self.held:
            anew = sorted([*unread, *[(offset, offset) for offset in self.held]])
        return taken._replace(said=grouped(kept), bare=without(taken.bare, anew)), over

    def _refused_as_over(self, over: list[tuple[AcknowledgeType, ShareRecord]]) -> list[Answered]:
        if not over:
            return []
        error = InvalidRecordStateError("the lock ended before this was sent, and the record was handed out anew")
        return _refused(grouped(over), error)

    def say_again(self, taken: TakenAcks, error: KafkaError, now: float) -> list[Answered]:
        """The broker could not look at these: say them again, but for those whose locks have ended meanwhile."""
        ours, former = self._without_former(taken)
        self.acks.put_back(ours._replace(said=grouped([said for said in ours.records if said[1].lock_deadline > now])))
        over = [said for said in ours.records if said[1].lock_deadline <= now]
        refused = self.refuse(taken._replace(said=grouped(over)), error) if over else []
        return refused + self._refused_as_over(former)

    def refuse(self, taken: TakenAcks, error: KafkaError) -> list[Answered]:
        """The broker did not take these acknowledgements: their records are ours no more."""
        for said in taken.said:
            for record in said.records:
                if self.held.get(record.offset) is record:
                    del self.held[record.offset]
                    self.acks.take_back(record)
                record.lost = True
        return [Answered(said.type, said.records, error) for said in taken.said]


def _refused(said: Sequence[Said], error: KafkaError) -> list[Answered]:
    """None of these will be on the broker, and the locks are gone; renewals need no answer besides."""
    for each in said:
        for record in each.records:
            record.lost = True
    return [Answered(each.type, each.records, error) for each in said if each.type is not AcknowledgeType.RENEW]
