"""What a member has of one partition: records under lock, and acknowledgements on their way.

A record knows its holding (``owner``), and the holding the session that it belongs to, so that an acknowledgement finds
its connection without a look-up. The session decides when what is here is sent, taken back or lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafka.core.share.acks import PendingAcks, TakenAcks
from kafka.core.share.records import AcknowledgeType, SharePartition, ShareRecord
from kafka.errors import InvalidRecordStateError, KafkaError

if TYPE_CHECKING:
    from kafka.core.share.session import ShareSession


class Acknowledged(NamedTuple):
    """What became of one acknowledgement; ``error`` None: it holds."""

    record: ShareRecord
    type: AcknowledgeType
    error: KafkaError | None


class Holding:
    """What the member has of one partition: records held by offset, and acknowledgements to be sent."""

    __slots__ = ("acks", "held", "partition", "session")

    def __init__(self, session: ShareSession, partition: SharePartition) -> None:
        self.session = session
        self.partition = partition
        self.held: dict[int, ShareRecord] = {}
        self.acks = PendingAcks()

    def drop(self, error: KafkaError) -> tuple[list[ShareRecord], list[Acknowledged]]:
        """Forget everything, since the locks are gone: the records that were held, and what became of those that had
        been acknowledged and never will be on the broker."""
        held = list(self.held.values())
        said = [Acknowledged(record, kind, error) for kind, record in self.acks.clear()]
        for record in held:
            record.lost = True
        for each in said:
            each.record.lost = True
        self.held.clear()
        return held, [each for each in said if each.type is not AcknowledgeType.RENEW]

    def acquired(self, found: list[ShareRecord]) -> tuple[list[ShareRecord], list[Acknowledged]]:
        """These are ours by new locks. What was held by former ones is lost, and what was still to be said of those
        is refused: said now, it would end the new lock, and the broker give to another what is worked on here."""
        held = self.held
        lost = [held[record.offset] for record in found if record.offset in held] if held else []
        held.update({record.offset: record for record in found})
        over = self.acks.forget(held) if self.acks else []
        return lost, self._refused_as_over(over)

    def say_one_by_one(self, taken: TakenAcks) -> list[Acknowledged]:
        """The broker refused these together: say each by itself, but for records that have come anew meanwhile."""
        kept, over = self._without_former(taken)
        self.acks.add_suspects(taken._replace(records=kept))
        return self._refused_as_over(over)

    def _without_former(
        self, taken: TakenAcks
    ) -> tuple[list[tuple[AcknowledgeType, ShareRecord]], list[tuple[AcknowledgeType, ShareRecord]]]:
        held = self.held
        kept = [said for said in taken.records if held.get(said[1].offset, said[1]) is said[1]]
        return kept, [said for said in taken.records if held.get(said[1].offset, said[1]) is not said[1]]

    def _refused_as_over(self, over: list[tuple[AcknowledgeType, ShareRecord]]) -> list[Acknowledged]:
        if not over:
            return []
        error = InvalidRecordStateError("the lock ended before this was sent, and the record was handed out anew")
        for _, record in over:
            record.lost = True
        return [Acknowledged(record, kind, error) for kind, record in over if kind is not AcknowledgeType.RENEW]

    def say_again(self, taken: TakenAcks, error: KafkaError, now: float) -> list[Acknowledged]:
        """The broker could not look at these: say them again, but for those whose locks have ended meanwhile."""
        ours, former = self._without_former(taken)
        self.acks.put_back(taken._replace(records=[said for said in ours if said[1].lock_deadline > now]))
        over = [said for said in ours if said[1].lock_deadline <= now]
        refused = self.refuse(taken._replace(records=over), error) if over else []
        return refused + self._refused_as_over(former)

    def refuse(self, taken: TakenAcks, error: KafkaError) -> list[Acknowledged]:
        """The broker did not take these acknowledgements: their records are ours no more."""
        for _, record in taken.records:
            if self.held.get(record.offset) is record:
                del self.held[record.offset]
                self.acks.take_back(record)
            record.lost = True
        return [Acknowledged(record, kind, error) for kind, record in taken.records]
