"""What a member has of one partition: records under lock, and acknowledgements on their way.

A record knows its holding (``owner``), and the holding the session that it belongs to, so that an acknowledgement finds
its connection without a look-up. The session decides when what is here is sent, taken back or lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafka.core.share.acks import PendingAcks, TakenAcks
from kafka.core.share.records import AcknowledgeType, SharePartition, ShareRecord
from kafka.errors import KafkaError

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

    def drop(self) -> list[ShareRecord]:
        """Forget everything: the records that were held, or were to be acknowledged."""
        dropped = {record.offset: record for record in (*self.held.values(), *self.acks.clear())}
        self.held.clear()
        return list(dropped.values())

    def refuse(self, taken: TakenAcks, error: KafkaError) -> list[Acknowledged]:
        """The broker did not take these acknowledgements: their records are ours no more."""
        for _, record in taken.records:
            if self.held.get(record.offset) is record:
                del self.held[record.offset]
                self.acks.take_back(record)
            record.lost = True
        return [Acknowledged(record, kind, error) for kind, record in taken.records]
