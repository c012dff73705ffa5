"""Members of share groups: one consumer each, what its user does, and what became of each record that it was handed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka.client.kafka_client import KafkaClient
from kafka.core.share.acknowledgements import Acknowledged
from kafka.core.share.records import ShareRecord
from kafka.errors import IllegalStateError, KafkaError
from kafka.protocol.constants import AcknowledgeType
from kafka.share import KafkaShareConsumer
from test.simulation.world import Host

if TYPE_CHECKING:
    from test.simulation.share import ShareStory

TOPIC = "t"
GROUP = "g"
GRAIN_S = 0.002

Key = tuple[int, int]
"""Partition and offset."""


class Delivery:
    """A record that a member was handed."""

    __slots__ = ("acquired_at", "end", "key", "member", "record", "said")

    def __init__(self, member: Member, record: ShareRecord, key: Key, acquired_at: float) -> None:
        self.member = member
        self.record = record
        self.key = key
        self.acquired_at = acquired_at
        self.said: AcknowledgeType | None = None
        self.end: str | None = None

    @property
    def is_believed(self) -> bool:
        """The member may think that the record is its own."""
        return not (self.end or self.said or self.record.lost or self.member.is_gone) and (
            self.record.lock_deadline > self.member.host.loop.time()
        )


class Member:
    """One consumer on a host of its own, and what its user does."""

    def __init__(self, story: ShareStory, host: Host) -> None:
        self.story = story
        self.host = host
        rng = story.rng
        self.is_exact = rng.random() < 0.4
        self.count = rng.choice((1, 3, 8))
        self.asked = 0
        self.slowness_s = rng.choice((0.0, 0.05, 0.5, 1.2 * story.lock_s))
        self.deliveries: dict[ShareRecord, Delivery] = {}
        self.open = 0
        self.is_closing = False
        self.has_left = False
        self.client: KafkaClient = host.client()
        self.consumer = KafkaShareConsumer(
            TOPIC,
            client=self.client,
            on_records=self.on_records,
            on_acknowledged=self.on_acknowledged,
            on_lost=self.on_lost,
            on_error=self.on_error,
            group_id=GROUP,
            fetch_max_wait_ms=rng.choice((200, 500)),
            **story.consumer_settings,
        )
        self.id = self.consumer.member_id
        story.world.note("joins", host.name, self.id, "exactly" if self.is_exact else "batches", self.count)
        self.ask()

    @property
    def is_gone(self) -> bool:
        """It is dead, or has been told to close."""
        return self.is_closing or self.host.is_dead

    # -- what the consumer says ----------------------------------------------------------------------------------------

    def on_records(self, records: list[ShareRecord]) -> None:
        if self.is_exact and len(records) > self.asked:
            self.story.world.violate(f"{self.host.name} asked for {self.asked} exactly, and got {len(records)}")
        self.asked = max(0, self.asked - len(records))
        for record in records:
            delivery = self.deliveries[record] = self.story.handed(self, record)
            self.open += 1
            self.host.loop.call_at(record.lock_deadline + GRAIN_S, self.is_over, delivery)
            self.host.loop.call_later(self.slowness_s * 2 * self.story.rng.random(), self.work, delivery)
        self.ask()

    def on_acknowledged(self, acknowledged: list[Acknowledged]) -> None:
        for record, kind, error in acknowledged:
            delivery = self.deliveries[record]
            self.story.world.note("answered", self.host.name, delivery.key, kind.name, error)
            if kind is AcknowledgeType.RENEW and error is None:
                continue
            if error is None:
                if delivery.said is not kind:
                    self.story.world.violate(f"{delivery.key}: {kind.name} is answered, {delivery.said} was said")
                self.ended(delivery, kind.name)
                self.story.acknowledged(delivery, kind)
            elif kind is delivery.said or not (delivery.said or delivery.end):
                self.ended(delivery, f"refused: {error!r}")

    def on_lost(self, records: list[ShareRecord], error: KafkaError | None) -> None:
        for record in records:
            delivery = self.deliveries[record]
            self.story.world.note("lost", self.host.name, delivery.key, error)
            if not record.lost:
                self.story.world.violate(f"{delivery.key} is told as lost, and does not say so")
            self.ended(delivery, "lost")

    def on_error(self, error: KafkaError) -> None:
        self.story.world.violate(f"{self.host.name}: {error!r}")

    # -- what the user does --------------------------------------------------------------------------------------------

    def ask(self) -> None:
        """Want more, when there is room."""
        if not self.is_closing and self.open < 10 and self.asked < self.count:
            self.asked = self.count
            self.consumer.request_records(self.count, self.is_exact)

    def work(self, delivery: Delivery) -> None:
        """The record has been worked on, or wants more time."""
        record, rng = delivery.record, self.story.rng
        if self.is_closing:
            return
        if record.lost:
            if not delivery.end:
                self.story.world.violate(f"{delivery.key} is lost to {self.host.name}, and nobody told it")
            if rng.random() < 0.2:
                try:
                    self.consumer.acknowledge(record)
                except IllegalStateError:
                    pass
                else:
                    self.story.world.violate(f"{delivery.key} is lost, and acknowledging it is no error")
            return
        if delivery.end:
            self.story.world.violate(f"{delivery.key} has ended as {delivery.end} before anything was said")
            return
        drawn = rng.random()
        kind = AcknowledgeType.ACCEPT
        if drawn < 0.2:
            kind = (AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.RENEW)[int(drawn * 15) % 3]
        self.story.world.note("says", self.host.name, delivery.key, kind.name)
        self.consumer.acknowledge(record, kind)
        if kind is AcknowledgeType.RENEW:
            self.host.loop.call_later(self.slowness_s * rng.random() + 0.1, self.work, delivery)
        else:
            delivery.said = kind
            self.story.said(delivery, kind)

    def is_over(self, delivery: Delivery) -> None:
        """By now the lock has ended, or was renewed."""
        record = delivery.record
        if delivery.end or delivery.said or self.is_closing:
            return
        now = self.host.loop.time()
        if record.lock_deadline + GRAIN_S > now:
            self.host.loop.call_at(record.lock_deadline + GRAIN_S, self.is_over, delivery)
        else:
            self.story.world.violate(f"the lock of {delivery.key} has ended, and {self.host.name} was not told")

    def ended(self, delivery: Delivery, how: str) -> None:
        if delivery.end:
            self.story.world.violate(f"{delivery.key} has ended twice: {delivery.end}, then {how}")
            return
        delivery.end = how
        self.open -= 1
        self.ask()

    def leave(self) -> None:
        """In good order."""
        if self.is_closing or self.host.is_dead:
            return
        self.is_closing = True
        self.story.world.note("leaves", self.host.name)

        def left(_: object) -> None:
            self.has_left = True
            self.client.close()

        self.consumer.close_async(3.0).add_both(left)

    def die(self, is_heard: bool) -> None:
        self.story.world.note("dies", self.host.name, "heard" if is_heard else "unheard")
        self.host.die(is_heard)
