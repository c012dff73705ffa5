"""All share groups of a broker: membership, and each group's share partitions with their durable state.

What a broker's handlers talk to, next to ``sessions.py``:

    heartbeat ──> ShareGroups.heartbeat ──> ShareGroup
    fetch, ack ──> ShareGroups.partition ──> SharePartition ──persist──> ShareStateStore ──> state topics

Group names are shared with other kinds of groups; that a name is taken by another kind is for the caller to find.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from uuid import UUID

from kafka.broker.share.deadlines import Deadlines
from kafka.broker.share.group import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    HeartbeatAnswer,
    ShareGroup,
    check_heartbeat,
)
from kafka.broker.share.group_configs import BrokerLimits, ShareGroupConfig
from kafka.broker.share.partition import SharePartition
from kafka.broker.share.state_store import ShareKey, ShareStateStore
from kafka.broker.share.states import ShareEvent
from kafka.broker.topics import TopicInfo
from kafka.errors import GroupIdNotFoundError, InvalidGroupIdError, NonEmptyGroupError


class ShareGroups:
    """Share groups by name. ``configs``: what was set for each group, and is read again by :meth:`configure`."""

    def __init__(
        self, store: ShareStateStore, limits: BrokerLimits, configs: Mapping[str, Mapping[str, str]] | None = None
    ) -> None:
        self.limits = limits
        self._store = store
        self._configs = {name: ShareGroupConfig(limits, values) for name, values in (configs or {}).items()}
        self._partitions: dict[ShareKey, SharePartition] = {}
        self._deadlines: Deadlines[ShareKey | str] = Deadlines()
        self.groups: dict[str, ShareGroup] = {
            group_id: ShareGroup(group_id, self.config(group_id), epoch) for group_id, epoch in store.groups().items()
        }

    def config(self, group_id: str) -> ShareGroupConfig:
        """The group's settings; the group need not exist."""
        found = self._configs.get(group_id)
        return found if found is not None else ShareGroupConfig(self.limits)

    def configure(self, group_id: str, overrides: Mapping[str, str]) -> None:
        """Put a group's settings in force, on its members and its partitions. They are checked and durable already."""
        config = self._configs[group_id] = ShareGroupConfig(self.limits, overrides)
        group = self.groups.get(group_id)
        if group is not None:
            group.config = config
            self._deadlines.at_latest(group_id, group.next_deadline)
        settings = config.partition_settings()
        for key, partition in self._partitions.items():
            if key.group_id == group_id:
                partition.settings = settings

    # -- membership --------------------------------------------------------------------------------------------------

    def heartbeat(
        self,
        group_id: str,
        member_id: str,
        member_epoch: int,
        *,
        topics: Collection[str] | None,
        rack_id: str | None = None,
        client_id: str = "",
        client_host: str = "",
        metadata: Mapping[str, TopicInfo],
        now: float,
    ) -> HeartbeatAnswer:
        """A member's heartbeat (see :meth:`ShareGroup.heartbeat`); the first join makes the group."""
        check_heartbeat(group_id, member_id, member_epoch, topics, rack_id)
        group = self.groups.get(group_id)
        if group is None:
            if member_epoch != JOIN_EPOCH:
                raise GroupIdNotFoundError(f"no share group {group_id}")
            group = ShareGroup(group_id, self.config(group_id))
        before = group.epoch
        answer = group.heartbeat(
            member_id,
            member_epoch,
            topics=topics,
            rack_id=rack_id,
            client_id=client_id,
            client_host=client_host,
            metadata=metadata,
            now=now,
        )
        self.groups[group_id] = group
        self._deadlines.at_latest(group_id, group.next_deadline)
        if group.epoch != before and member_epoch != LEAVE_EPOCH:
            self._store.write_group(group_id, group.epoch)
        return answer

    def describe(self, group_id: str) -> ShareGroup:
        """The group, or GroupIdNotFoundError (69)."""
        if not group_id:
            raise InvalidGroupIdError("a share group's name cannot be empty")
        group = self.groups.get(group_id)
        if group is None:
            raise GroupIdNotFoundError(f"no share group {group_id}")
        return group

    def delete(self, group_id: str) -> None:
        """Forget a group and all its state; NonEmptyGroupError (68) while it has members."""
        if self.describe(group_id).members:
            raise NonEmptyGroupError(f"share group {group_id} has members")
        self._forget([key for key in self.keys() if key.group_id == group_id])
        self._store.delete_group(group_id)
        del self.groups[group_id]
        self._deadlines.discard(group_id)

    def topics_changed(
        self, names: Iterable[str], infos: Callable[[Iterable[str]], Mapping[str, TopicInfo]], now: float
    ) -> None:
        """Topics were made, grown or deleted. ``infos`` gives what is now known of topics, by name."""
        changed = set(names)
        for group_id, group in self.groups.items():
            subscribed = group.subscribed_topics()
            if not changed.isdisjoint(subscribed):
                group.topics_changed(infos(subscribed), now)
                self._deadlines.at_latest(group_id, group.next_deadline)

    # -- share partitions --------------------------------------------------------------------------------------------

    def partition(
        self, group_id: str, topic_id: UUID, number: int, resolve_start: Callable[[ShareGroupConfig], int]
    ) -> SharePartition:
        """The group's share partition, from its durable state or else from where ``resolve_start`` says.

        As in Kafka, a start that was resolved becomes durable with the first acknowledgement, not before.
        """
        key = ShareKey(group_id, topic_id, number)
        found = self._partitions.get(key)
        if found is None:
            config = self.config(group_id)
            state = self._store.load(key)
            start = state.start_offset if state is not None else resolve_start(config)
            found = SharePartition(
                start,
                config.partition_settings(),
                partial(self._store.write, key),
                state.ranges if state is not None else (),
                partial(self._deadlines.at_latest, key),
            )
            self._partitions[key] = found
            self._store.adopt(key, found)
        return found

    def loaded(self, group_id: str, topic_id: UUID, number: int) -> SharePartition | None:
        """The share partition if it was fetched from since the start, else None: an acknowledgement gets error 3."""
        return self._partitions.get(ShareKey(group_id, topic_id, number))

    def keys(self) -> set[ShareKey]:
        """Every share partition with state, in memory or durable."""
        return set(self._partitions) | self._store.keys()

    def start_offset(self, group_id: str, topic_id: UUID, number: int) -> int | None:
        """Where the group is on a partition as it was written with the last acknowledgement, which is what Kafka tells
        (DescribeShareGroupOffsets); None before the first one."""
        return self._store.durable_start(ShareKey(group_id, topic_id, number))

    def alter_offset(self, group_id: str, topic_id: UUID, number: int, start_offset: int) -> None:
        """Begin anew at an offset (AlterShareGroupOffsets); NonEmptyGroupError (68) while the group has members."""
        group = self.groups.get(group_id)
        if group is not None and group.members:
            raise NonEmptyGroupError(f"share group {group_id} has members")
        key = ShareKey(group_id, topic_id, number)
        self._forget([key])
        self._store.write(key, start_offset, [])
        if group is None:
            group = self.groups[group_id] = ShareGroup(group_id, self.config(group_id))
            self._store.write_group(group_id, group.epoch)
        group.initialized.add((topic_id, number))

    def delete_offsets(self, group_id: str, topic_id: UUID) -> None:
        """Forget a topic in a group (DeleteShareGroupOffsets); NonEmptyGroupError (68) while the group has members."""
        group = self.describe(group_id)
        if group.members:
            raise NonEmptyGroupError(f"share group {group_id} has members")
        self._forget([key for key in self.keys() if key.group_id == group_id and key.topic_id == topic_id])
        group.initialized = {one for one in group.initialized if one[0] != topic_id}

    def initialized(self, group_id: str) -> list[tuple[UUID, int]]:
        """The partitions of a group's offsets, sorted: what it has fetched, was assigned or was given offsets for."""
        group = self.groups.get(group_id)
        found = set(group.initialized) if group is not None else set()
        found |= {(key.topic_id, key.partition) for key in self.keys() if key.group_id == group_id}
        return sorted(found, key=lambda one: (one[0].bytes, one[1]))

    def topic_deleted(self, topic_id: UUID) -> None:
        """Forget a topic in every group."""
        for group in self.groups.values():
            group.initialized = {one for one in group.initialized if one[0] != topic_id}
        for key in [key for key in self.keys() if key.topic_id == topic_id]:
            self._partitions.pop(key, None)
            self._deadlines.discard(key)
            self._store.forget(key)

    def release(
        self, group_id: str, member_id: str, partitions: Iterable[tuple[UUID, int]], now: float
    ) -> dict[ShareKey, ShareEvent]:
        """End a member's locks on these partitions (its session has closed)."""
        events: dict[ShareKey, ShareEvent] = {}
        for topic_id, number in partitions:
            key = ShareKey(group_id, topic_id, number)
            partition = self._partitions.get(key)
            if partition is not None:
                events[key] = partition.release(member_id, now)
        return events

    # -- time --------------------------------------------------------------------------------------------------------

    @property
    def next_deadline(self) -> float | None:
        """When to call :meth:`tick` next, in monotonic s."""
        return self._deadlines.next_at

    def tick(self, now: float) -> dict[ShareKey, ShareEvent]:
        """End what is over: sessions of members, locks. Gives the share partitions where something happened."""
        events: dict[ShareKey, ShareEvent] = {}
        for name in self._deadlines.pop_due(now):
            if isinstance(name, ShareKey):
                partition = self._partitions[name]
                event = partition.tick(now)
                if event:
                    events[name] = event
                self._deadlines.at_latest(name, partition.next_deadline)
            else:
                group = self.groups[name]
                group.tick(now)
                self._deadlines.at_latest(name, group.next_deadline)
        return events

    def _forget(self, keys: Iterable[ShareKey]) -> None:
        for key in keys:
            self._partitions.pop(key, None)
            self._deadlines.discard(key)
            self._store.delete(key)
