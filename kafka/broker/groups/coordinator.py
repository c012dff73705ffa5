"""All groups of consumers on a broker: what handlers talk to.

It finds the group that a request means, which is of one kind or the other or a share group, lets the machine decide,
has written down what has changed, and only then lets answers out. Where that fails (KafkaStorageError), members are
told NOT_COORDINATOR (16), as by Apache Kafka, and look for one again.

    register.py ──> offset_rules.py ──> coordinator.py      which there are, on the disk, too; their offsets; requests

Which errors unknown groups and groups of another kind have differs by request (measured); each method says its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from kafka.broker.groups import classic_in_consumer
from kafka.broker.groups.classic_group import ClassicGroup
from kafka.broker.groups.classic_member import Join, JoinAnswer, Sync, SyncAnswer
from kafka.broker.groups.classic_records import classic_entry, classic_key
from kafka.broker.groups.consumer_group import ConsumerGroup, Heartbeat, HeartbeatAnswer
from kafka.broker.groups.consumer_member import JOIN_EPOCH, STATIC_LEAVE_EPOCH
from kafka.broker.groups.consumer_records import changes, tombstones
from kafka.broker.groups.migration import check_upgrade, downgrade, may_downgrade, upgraded
from kafka.broker.groups.offset_rules import OffsetRules
from kafka.broker.groups.picture import Picture
from kafka.broker.groups.regex import check_regex
from kafka.broker.groups.register import Group
from kafka.broker.groups.states import ClassicState
from kafka.broker.groups.timers import Timeout
from kafka.errors import (
    BrokerResponseError,
    GroupIdNotFoundError,
    InconsistentGroupProtocolError,
    KafkaStorageError,
    NonEmptyGroupError,
    NotCoordinatorError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

log = logging.getLogger(__name__)

JoinDone = Callable[[JoinAnswer], None]
SyncDone = Callable[[SyncAnswer], None]

STORAGE_RETRY_S: Final = 1.0
"""What time-outs have to write and cannot is tried again after this."""


class Groups(OffsetRules):
    """Every group but the share groups, by name; those share the name space."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._check_at = broker.now + broker.config.number("offsets.retention.check.interval.ms") / 1000

    # -- the classic protocol ----------------------------------------------------------------------------------------

    def join(self, group_id: str, wanted: Join, done: JoinDone, now: float) -> None:
        """A JoinGroup request; ``done`` is called with the answer, now or later. Groups of another kind:
        InconsistentGroupProtocolError (23); unknown ones with a member id: UnknownMemberIdError (25)."""
        group = self.groups.get(group_id)
        if self.group_type(group_id) == "share":
            done(JoinAnswer(InconsistentGroupProtocolError))
        elif isinstance(group, ConsumerGroup) and not group.is_empty:
            done(self._join_consumer(group, wanted, now))
        else:
            try:
                classic = self._classic_to_join(group_id, group, bool(wanted.member_id))
            except BrokerResponseError as error:
                done(JoinAnswer(type(error), wanted.member_id))
                return
            classic.join(wanted, done, now)
            self._deliver(classic)

    def _classic_to_join(self, group_id: str, group: Group | None, has_id: bool) -> ClassicGroup:
        if isinstance(group, ClassicGroup):
            return group
        if has_id:
            raise UnknownMemberIdError("")
        new = self._new_classic(group_id)
        entries = tombstones(group_id, group.picture) if group is not None else []
        try:
            self._write(group_id, [*entries, classic_entry(new, {})])
        except KafkaStorageError:
            raise NotCoordinatorError("") from None
        self.groups[group_id] = new
        return new

    def _join_consumer(self, group: ConsumerGroup, wanted: Join, now: float) -> JoinAnswer:
        try:
            with self._change(group):
                replaced = None
                if wanted.instance_id is not None and not wanted.member_id:
                    replaced = group.static_member(wanted.instance_id)
                becomes_classic = replaced is not None and self._may_downgrade(
                    group, [replaced.member_id], replaced=True
                )
                answer = classic_in_consumer.join(group, wanted, self._short_id(), now)
            if becomes_classic:
                self._downgrade(group, (), now)
            return answer
        except KafkaStorageError:
            return JoinAnswer(NotCoordinatorError, "")
        except BrokerResponseError as error:
            return JoinAnswer(type(error), "")

    def sync(self, group_id: str, wanted: Sync, done: SyncDone, now: float) -> None:
        """A SyncGroup request. Unknown groups and share groups: UnknownMemberIdError (25)."""
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            group.sync(wanted, done, now)
            self._deliver(group)
            return
        try:
            if group is None or group.is_empty:
                raise UnknownMemberIdError("")
            done(classic_in_consumer.sync(group, wanted, now))
        except BrokerResponseError as error:
            done(SyncAnswer(type(error)))

    def classic_heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, now: float
    ) -> None:
        """A Heartbeat request. Unknown groups and share groups: UnknownMemberIdError (25)."""
        group = self.groups.get(group_id)
        if group is None:
            raise UnknownMemberIdError(f"Group {group_id} not found.")
        if isinstance(group, ClassicGroup):
            group.heartbeat(member_id, instance_id, generation, now)
        else:
            classic_in_consumer.heartbeat(group, member_id, instance_id, generation, now)

    def leave(
        self, group_id: str, members: Iterable[tuple[str, str | None]], now: float
    ) -> list[type[BrokerResponseError] | None]:
        """A LeaveGroup request for members and their instance ids; the error of each. NotCoordinatorError (16): what
        would have to be written cannot be."""
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return self._leave_classic(group, members, now)
        errors: list[type[BrokerResponseError] | None] = []
        leaving: list[str] = []
        for member_id, instance_id in members:
            try:
                if group is None:
                    raise UnknownMemberIdError("")
                found = classic_in_consumer.leaver(group, member_id, instance_id)
                if found in leaving:
                    raise UnknownMemberIdError("")
                leaving.append(found)
                errors.append(None)
            except BrokerResponseError as error:
                errors.append(type(error))
        if group is not None and leaving:
            try:
                self._remove_members(group, leaving, now)
            except KafkaStorageError:
                raise NotCoordinatorError("") from None
        return errors

    def _leave_classic(
        self, group: ClassicGroup, members: Iterable[tuple[str, str | None]], now: float
    ) -> list[type[BrokerResponseError] | None]:
        errors: list[type[BrokerResponseError] | None] = []
        for member_id, instance_id in members:
            try:
                group.leave(member_id, instance_id)
                errors.append(None)
            except BrokerResponseError as error:
                errors.append(type(error))
        if None in errors:
            group.left(now)
        self._deliver(group)
        return errors

    # -- the new protocol --------------------------------------------------------------------------------------------

    def heartbeat(self, group_id: str, wanted: Heartbeat, now: float) -> HeartbeatAnswer:
        """A ConsumerGroupHeartbeat that is no leave. The first join makes the group, or changes the protocol of a
        classic one. Groups of another kind: GroupIdNotFoundError (69)."""
        is_join = wanted.epoch == JOIN_EPOCH
        group = self._consumer_to_join(group_id, wanted, now) if is_join else self._consumer(group_id)
        with self._change(group):
            return group.heartbeat(wanted, now)

    def consumer_leave(
        self, group_id: str, member_id: str, instance_id: str | None, epoch: int, now: float
    ) -> HeartbeatAnswer:
        """A ConsumerGroupHeartbeat with epoch -1, or -2 of a static member that will be back."""
        group = self.consumer(group_id)
        member = group.leaver(member_id, instance_id)
        if instance_id is not None and epoch == STATIC_LEAVE_EPOCH:
            with self._change(group):
                group.go_away(member)
        else:
            self._remove_members(group, [member.member_id], now)
        return HeartbeatAnswer(member_id, epoch)

    def new_consumer_member_id(self) -> str:
        """For a member of the new protocol that has made none (ConsumerGroupHeartbeat 0)."""
        return self._short_id()

    def _consumer(self, group_id: str) -> ConsumerGroup:
        if self.group_type(group_id) is None:
            raise GroupIdNotFoundError(f"Consumer group {group_id} not found.")
        return self.consumer(group_id)

    def _consumer_to_join(self, group_id: str, wanted: Heartbeat, now: float) -> ConsumerGroup:
        """Made anew in place of nothing or of an empty classic group, or out of a classic one with members. It is
        durable with its first member."""
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if group is None:
            if self.group_type(group_id) is not None:
                raise GroupIdNotFoundError(f"Group {group_id} is not a consumer group.")
            return self._new_consumer(group_id)
        if group.is_empty:
            return self._new_consumer(group_id)
        settings = self._settings(group_id)
        check_upgrade(group, self._policy, settings.max_size)
        new = self._new_consumer(group_id, upgraded(group, self._topics))
        new.check_room(wanted.member_id)
        if wanted.regex:
            check_regex(wanted.regex)
        self._write(group_id, [(classic_key(group_id), None), *changes(group_id, Picture(), new.picture)])
        group.die(RebalanceInProgressError)
        self.groups[group_id] = new
        new.resume(now)
        self._deliver(group)
        return new

    def _remove_members(self, group: ConsumerGroup, member_ids: Collection[str], now: float) -> None:
        if self._may_downgrade(group, member_ids):
            self._downgrade(group, member_ids, now)
            return
        with self._change(group):
            group.remove(member_ids)

    # -- from the one to the other -----------------------------------------------------------------------------------

    def _may_downgrade(self, group: ConsumerGroup, leaving: Collection[str], *, replaced: bool = False) -> bool:
        return may_downgrade(group, leaving, self._policy, self._limits().max_size, replaced=replaced)

    def _downgrade(self, group: ConsumerGroup, leaving: Collection[str], now: float) -> None:
        group_id = group.group_id
        classic = downgrade(group, leaving, lambda: self._new_classic(group_id, ClassicState.STABLE))
        classic.changed_at_ms = self._broker.epoch_ms()
        assignments = {member_id: member.assignment for member_id, member in classic.members.items()}
        self._write(group_id, [*tombstones(group_id, group.picture), classic_entry(classic, assignments)])
        self._timers.cancel_group(group_id)
        self.groups[group_id] = classic
        classic.resume(now)
        if leaving:
            classic.prepare_rebalance(now)
        self._deliver(classic)

    @property
    def _policy(self) -> str:
        return self._broker.config.value("group.consumer.migration.policy")

    # -- groups whole ------------------------------------------------------------------------------------------------

    def delete(self, group_id: str) -> None:
        """Forget an empty group and its offsets. GroupIdNotFoundError (69), NonEmptyGroupError (68)."""
        group = self._find(group_id)
        if isinstance(group, ConsumerGroup):
            group.check_delete()
        elif group is not None and not group.is_empty:
            raise NonEmptyGroupError("")
        self._broker.offsets.delete(group_id)
        self._end(group_id)

    def topics_changed(self, names: Iterable[str]) -> None:
        """Topics were made, grown or deleted."""
        changed = set(names)
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup):
                group.topics_changed(changed)

    # -- time --------------------------------------------------------------------------------------------------------

    @property
    def next_deadline(self) -> float | None:
        """When to call :meth:`tick` next, in monotonic s."""
        timeout_at = self._timers.next_deadline
        if not self.groups:
            return timeout_at
        return self._check_at if timeout_at is None else min(timeout_at, self._check_at)

    def tick(self, now: float) -> None:
        """End what is over: sessions, joins, syncs, revocations, groups that nobody has a use for."""
        leaving: dict[str, dict[str, Timeout]] = {}
        for group_id, kind, member_id in self._timers.pop_due(now):
            group = self.groups.get(group_id)
            if isinstance(group, ClassicGroup):
                group.expired(kind, member_id, now)
                self._deliver(group)
            elif group is not None and member_id in group.members:
                log.info("group %s: member %s has lost its place: %s", group_id, member_id, kind.value)
                leaving.setdefault(group_id, {})[member_id] = kind
        for group_id, members in leaving.items():
            self._expire_members(group_id, members, now)
        if now >= self._check_at:
            self._check_at = now + self._broker.config.number("offsets.retention.check.interval.ms") / 1000
            self._end_unused()

    def _expire_members(self, group_id: str, members: Mapping[str, Timeout], now: float) -> None:
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return
        try:
            self._remove_members(group, members.keys(), now)
        except KafkaStorageError as error:
            log.error("group %s: %d members cannot be removed: %s", group_id, len(members), error)
            for member_id, kind in members.items():
                self._timers.set((group_id, kind, member_id), now + STORAGE_RETRY_S)
