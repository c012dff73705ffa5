"""Share groups: KafkaShareConsumer members that take, keep, renew, give back, leave and die.

What has to hold:

* Every record is acknowledged in the end by somebody, or archived at the delivery limit.
* Never two holders whose locks are both valid; a holder that the broker has dropped (its connection ended there) knows
  it by the end of its lock at the latest.
* What was accepted or rejected, and answered, is never handed out again.
* Delivery counts rise with each acquisition (a broker that restarts may have forgotten that of the last one).
* Each record handed out has exactly one end: acknowledged (or refused), or lost.
* In record-limit mode never more comes than was asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar
from uuid import UUID

from kafka.broker.responses import ConnectionContext
from kafka.core.share.records import ShareRecord
from kafka.protocol.constants import AcknowledgeType
from test.simulation.share_members import GROUP, TOPIC, Delivery, Key, Member
from test.simulation.world import Story, World

SHARE_FETCH = 78
HEARD_S = 2.5
"""More than anything takes on the way while nothing is held back."""


class Acquisition:
    """The broker has locked a record for a member."""

    __slots__ = ("at", "count", "member_id", "starts")

    def __init__(self, at: float, member_id: str, count: int, starts: int) -> None:
        self.at = at
        self.member_id = member_id
        self.count = count
        self.starts = starts


class ShareStory(Story):
    """See the module."""

    kind = "share"
    watched: ClassVar[frozenset[int]] = frozenset({SHARE_FETCH})
    consumer_settings: ClassVar[dict[str, Any]] = {}

    def __init__(self, world: World) -> None:
        super().__init__(world)
        rng = self.rng
        self.lock_s = rng.choice((1.0, 2.0, 4.0, 8.0))
        self.limit = rng.choice((2, 5, 5, 10))
        self.partitions = rng.randint(1, 3)
        self.members: list[Member] = []
        self.ends: dict[int, int] = {}
        self.to_produce = rng.randint(10, 40)
        self.acquisitions: dict[Key, list[Acquisition]] = {}
        self.deliveries: dict[Key, list[Delivery]] = {}
        self.answered: dict[Key, str] = {}
        self.decided: set[Key] = set()
        self.gone_at: dict[str, float] = {}
        self.member_of: dict[int, str] = {}
        self.starts = 0
        self.topic_id: UUID | None = None
        self.names = 0

    # -- the course ----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        world, rng = self.world, self.rng
        self.topic_id = world.create_topic(TOPIC, self.partitions)
        world.configure_group(
            GROUP,
            share_auto_offset_reset="earliest",
            share_assignment_interval_ms=0,
            share_record_lock_duration_ms=int(self.lock_s * 1000),
            share_delivery_count_limit=self.limit,
        )
        world.note("group", "lock", self.lock_s, "limit", self.limit, "partitions", self.partitions)
        self.produce()
        for _ in range(rng.randint(1, 3)):
            world.later(rng.choice((0.0, rng.uniform(0.0, 3.0))), self.join)
        for _ in range(rng.choice((0, 1, 2))):
            world.later(rng.uniform(0.5, world.faults.lasts_s), self.change)

    def produce(self) -> None:
        world, rng = self.world, self.rng
        if self.to_produce <= 0:
            return
        if world.broker is not None and not world.broker_host.loop.is_paused:
            partition = rng.randrange(self.partitions)
            count = min(self.to_produce, rng.choice((1, 2, 5, 9)))
            end = self.ends.get(partition, 0)
            first = world.produce(TOPIC, partition, [b"%d:%d" % (partition, end + n) for n in range(count)])
            assert first == end
            self.ends[partition] = end + count
            self.to_produce -= count
            world.note("produced", partition, end, count)
        world.later(rng.choice((0.0, 0.0, 0.3, 2.0)), self.produce)

    def join(self) -> None:
        self.names += 1
        self.members.append(Member(self, self.world.host(f"c{self.names}")))

    def living(self) -> list[Member]:
        return [each for each in self.members if not each.is_gone]

    def change(self) -> None:
        """A member comes, leaves, or dies."""
        living = [each for each in self.living() if not each.host.loop.is_paused]
        how = self.rng.choice(("join", "leave", "die", "vanish"))
        if how == "join" or not living:
            if len(self.living()) < 3:
                self.join()
        elif how == "leave":
            self.rng.choice(living).leave()
        else:
            self.rng.choice(living).die(how == "die")

    def calm(self) -> None:
        if not self.living():
            self.join()
        for member in self.members:
            member.slowness_s = min(member.slowness_s, 0.3 * self.lock_s)
        while self.to_produce > 0:
            self.produce()

    def is_done(self) -> bool:
        broker = self.world.broker
        if broker is None or self.topic_id is None:
            return False
        for partition, end in self.ends.items():
            found = broker.share.loaded(GROUP, self.topic_id, partition)
            if found is None or found.start_offset < end:
                return False
        return not any(each.open for each in self.members if not each.is_gone)

    def missing(self) -> str:
        broker = self.world.broker
        found = []
        for partition, end in self.ends.items():
            each = broker and self.topic_id and broker.share.loaded(GROUP, self.topic_id, partition)
            found.append(f"{TOPIC}-{partition} is at {each.start_offset if each else None} of {end}")
        for member in self.living():
            found.append(f"{member.host.name} holds {[d.key for d in member.deliveries.values() if not d.end]}")
        return "; ".join(found)

    def close(self) -> Callable[[], bool]:
        living = self.living()
        for member in living:
            member.leave()
        return lambda: all(member.has_left for member in living)

    def check(self) -> None:
        for partition, end in self.ends.items():
            for offset in range(end):
                key = (partition, offset)
                last = self.acquisitions.get(key)
                if key not in self.decided and not (last and last[-1].count >= self.limit):
                    self.world.violate(f"{key} is done, and nobody has acknowledged it: {last and last[-1].count}")

    # -- what the broker does ------------------------------------------------------------------------------------------

    def on_answer(self, connection: ConnectionContext, request: Any, response: Any) -> None:
        member_id = request.member_id
        self.member_of[connection.number] = member_id
        now = self.world.now
        for topic in response.responses:
            for part in topic.partitions:
                for acquired in part.acquired_records:
                    self.world.note(
                        "acquired", member_id[:4], part.partition_index,
                        acquired.first_offset, acquired.last_offset, acquired.delivery_count,
                    )  # fmt: skip
                    for offset in range(acquired.first_offset, acquired.last_offset + 1):
                        key = (part.partition_index, offset)
                        self.acquired(key, Acquisition(now, member_id, acquired.delivery_count, self.starts))

    def acquired(self, key: Key, new: Acquisition) -> None:
        former = self.acquisitions.setdefault(key, [])
        if key in self.answered:
            self.world.violate(f"{key} was handed out again after {self.answered[key]} was answered")
        if new.count > self.limit:
            self.world.violate(f"{key} is delivered for the {new.count}. time, and {self.limit} is the limit")
        if former:
            last = former[-1]
            rises = new.count > last.count or (new.count == last.count and new.starts > last.starts)
            if not rises:
                self.world.violate(f"{key}: delivery count {new.count} after {last.count}")
        former.append(new)

    def on_disconnected(self, connection: ConnectionContext) -> None:
        member_id = self.member_of.pop(connection.number, None)
        if member_id is not None:
            self.gone_at[member_id] = self.world.now
            member = next(each for each in self.members if each.id == member_id)
            self.world.later(HEARD_S, self.has_heard, member, self.world.now)

    def has_heard(self, member: Member, gone_at: float) -> None:
        """By now the member has heard that its connection has ended, unless it could not hear anything."""
        if member.is_gone or member.host.disturbed_until >= gone_at:
            return
        for delivery in member.deliveries.values():
            if delivery.acquired_at < gone_at and delivery.is_believed:
                self.world.violate(f"{delivery.key} was lost {HEARD_S:g} s ago, and {member.host.name} was not told")

    def on_broker_gone(self) -> None:
        self.starts += 1
        for member in self.members:
            self.gone_at[member.id] = self.world.now

    # -- what members do -----------------------------------------------------------------------------------------------

    def handed(self, member: Member, record: ShareRecord) -> Delivery:
        key = (record.partition, record.offset)
        world = self.world
        world.note("handed", member.host.name, key, record.delivery_count)
        if record.value != b"%d:%d" % key:
            world.violate(f"{key} has the value {record.value!r}")
        at = next(
            (
                each.at
                for each in reversed(self.acquisitions.get(key, ()))
                if each.member_id == member.id and each.count == record.delivery_count
            ),
            None,
        )
        if at is None:
            world.violate(f"{key} was handed out, and the broker has not acquired it for {member.host.name}")
            at = world.now
        delivery = Delivery(member, record, key, at)
        others = self.deliveries.setdefault(key, [])
        if delivery.is_believed and self.gone_at.get(member.id, -1.0) < at:
            for other in others:
                if other.is_believed and self.gone_at.get(other.member.id, -1.0) < other.acquired_at:
                    world.violate(f"{key} is held by {other.member.host.name} and by {member.host.name}")
        if any(other.member is member and not other.end for other in others):
            world.violate(f"{key} comes anew to {member.host.name}, which was not told that it had lost it")
        others.append(delivery)
        return delivery

    def said(self, delivery: Delivery, kind: AcknowledgeType) -> None:
        if kind is not AcknowledgeType.RELEASE:
            self.decided.add(delivery.key)

    def acknowledged(self, delivery: Delivery, kind: AcknowledgeType) -> None:
        if kind is not AcknowledgeType.RELEASE:
            self.answered[delivery.key] = kind.name
