"""Which groups of consumers there are, and what of them is on the disk.

What has changed is written before anybody hears of it, one batch for one change; what could not be written
(KafkaStorageError) did not happen. Share groups are elsewhere, and share the name space.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import UUID

from kafka.broker.groups.classic_group import ClassicGroup
from kafka.broker.groups.classic_rebalance import ClassicLimits
from kafka.broker.groups.classic_records import Entry, classic_entry, classic_key, has_members, load_classic
from kafka.broker.groups.consumer_group import ConsumerGroup
from kafka.broker.groups.consumer_records import changes, tombstones
from kafka.broker.groups.group_settings import ConsumerSettings, consumer_settings
from kafka.broker.groups.loading import Loaded
from kafka.broker.groups.picture import Picture
from kafka.broker.groups.states import ClassicState
from kafka.broker.groups.timers import Timers
from kafka.broker.share.group import TopicInfo
from kafka.broker.state.state_topic import CONSUMER_OFFSETS
from kafka.errors import GroupIdNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafka.broker.broker import Broker

Group = ClassicGroup | ConsumerGroup


class GroupRegister:
    """Every group but the share groups, by name."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._topic = broker.state.topic(CONSUMER_OFFSETS)
        self._topics = BrokerTopics(broker)
        self._timers = Timers()
        self.groups: dict[str, Group] = {}
        self._load()
        self._topic.when_deleted(self._forget_all)

    # -- names -------------------------------------------------------------------------------------------------------

    def group_type(self, group_id: str) -> str | None:
        """``classic``, ``consumer`` or ``share``; None for a name that is free."""
        found = self.groups.get(group_id)
        if found is not None:
            return found.kind
        return "share" if group_id in self._broker.share.groups else None

    def classic(self, group_id: str) -> ClassicGroup:
        """The classic group; GroupIdNotFoundError (69)."""
        found = self._find(group_id)
        if not isinstance(found, ClassicGroup):
            raise GroupIdNotFoundError(f"Group {group_id} is not a classic group.")
        return found

    def consumer(self, group_id: str) -> ConsumerGroup:
        """The group of the new protocol; GroupIdNotFoundError (69)."""
        found = self._find(group_id)
        if not isinstance(found, ConsumerGroup):
            raise GroupIdNotFoundError(f"Group {group_id} is not a consumer group.")
        return found

    def _find(self, group_id: str) -> Group | None:
        """None for a share group."""
        if self.group_type(group_id) is None:
            raise GroupIdNotFoundError(f"Group {group_id} not found.")
        return self.groups.get(group_id)

    # -- on the disk -------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        loaded = Loaded(self._topic.replay)
        now = self._broker.now
        for group_id, data in loaded.classic.items():
            state = ClassicState.STABLE if has_members(data) else ClassicState.EMPTY
            classic = self.groups[group_id] = self._new_classic(group_id, state)
            load_classic(classic, data)
            classic.resume(now)
        for group_id, picture in loaded.consumer.items():
            if group_id not in self.groups:
                group = self.groups[group_id] = self._new_consumer(group_id, picture)
                group.resume(now)
        for group_id in self._broker.offsets.groups():
            if self.group_type(group_id) is None:
                self.groups[group_id] = self._new_classic(group_id)

    @contextmanager
    def _change(self, group: ConsumerGroup) -> Iterator[None]:
        """Write down what happens to the group in the block; nothing has happened when that fails."""
        group_id = group.group_id
        before = group.picture
        is_new = self.groups.get(group_id) is not group
        try:
            yield
            entries = changes(group_id, before, group.picture)
            if is_new and group_id in self.groups:
                entries.insert(0, (classic_key(group_id), None))
            self._write(group_id, entries)
        except BaseException:
            if is_new:
                self._timers.cancel_group(group_id)
            elif group.picture is not before:
                group.undo(before, self._broker.now)
            raise
        self.groups[group_id] = group

    def _write(self, group_id: str, entries: list[Entry]) -> None:
        if entries:
            self._topic.append(self._topic.partition_of(group_id), entries)

    def _store_classic(self, group: ClassicGroup, assignments: Mapping[str, bytes]) -> None:
        group.changed_at_ms = self._broker.epoch_ms()
        self._write(group.group_id, [classic_entry(group, assignments)])

    def _end(self, group_id: str) -> None:
        group = self.groups[group_id]
        if isinstance(group, ConsumerGroup):
            self._write(group_id, tombstones(group_id, group.picture))
        else:
            self._write(group_id, [(classic_key(group_id), None)])
            group.die()
            self._deliver(group)
        self._timers.cancel_group(group_id)
        del self.groups[group_id]

    def _forget_all(self) -> None:
        """``__consumer_offsets`` was deleted, and all groups with it."""
        for group in list(self.groups.values()):
            self._timers.cancel_group(group.group_id)
            if isinstance(group, ClassicGroup):
                group.die()
                self._deliver(group)
        self.groups.clear()

    def _deliver(self, group: ClassicGroup) -> None:
        for done, answer in group.take_answers():
            done(answer)

    # -- new ones ----------------------------------------------------------------------------------------------------

    def _new_classic(self, group_id: str, state: ClassicState = ClassicState.EMPTY) -> ClassicGroup:
        return ClassicGroup(
            group_id, self._limits, self._timers.of(group_id), self._store_classic, self._member_id, state
        )

    def _new_consumer(self, group_id: str, picture: Picture | None = None) -> ConsumerGroup:
        return ConsumerGroup(
            group_id,
            lambda: self._settings(group_id),
            self._timers.of(group_id),
            self._topics,
            self._broker.epoch_ms,
            Picture() if picture is None else picture,
        )

    def _member_id(self, stem: str) -> str:
        return f"{stem}-{self._broker.ids.new_topic_id()}"

    def _short_id(self) -> str:
        """As Kafka writes ids of its own: 22 characters of base64url."""
        return base64.urlsafe_b64encode(self._broker.ids.new_topic_id().bytes).rstrip(b"=").decode()

    def _limits(self) -> ClassicLimits:
        number = self._broker.config.number
        return ClassicLimits(number("group.max.size"), number("group.initial.rebalance.delay.ms"))

    def _settings(self, group_id: str) -> ConsumerSettings:
        return consumer_settings(self._broker.config.value, self._broker.metadata.config("group", group_id))


class BrokerTopics:
    """The broker's topics, as groups ask for them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def infos(self, names: Iterable[str]) -> Mapping[str, TopicInfo]:
        return self._broker.topic_infos(names)

    def name_of(self, topic_id: UUID) -> str | None:
        topic = self._broker.metadata.topic_by_id(topic_id)
        return None if topic is None else topic.name

    def names(self) -> Iterable[str]:
        return [topic.name for topic in self._broker.metadata]
