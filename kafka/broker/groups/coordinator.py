"""The group coordinator of classic and consumer groups: what handlers call.

It finds the group that a request names, lets the group decide, writes the records of what changed, one batch for one
change, and only then completes requests. Where writing fails (KafkaStorageError), nothing has changed and members get
NOT_COORDINATOR (16), as from Apache Kafka, and look for a coordinator again. It also decides whose offsets may be
written, read and deleted, and when they expire; the offsets are ``offset_store.py``'s.

Which errors unknown groups and groups of another type get differs by request (measured); each method says its own.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kafka.broker.group_settings import ConsumerSettings, consumer_settings
from kafka.broker.groups.classic_group import (
    ClassicGroup,
    ClassicJoinRequest,
    ClassicLimits,
    ClassicState,
    ClassicSyncRequest,
    JoinGroupResult,
    SyncGroupResult,
)
from kafka.broker.groups.consumer_group import (
    ConsumerGroup,
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    DurableGroupState,
)
from kafka.broker.groups.migration import (
    can_downgrade,
    check_upgrade,
    classic_heartbeat,
    classic_join,
    classic_sync,
    downgrade,
    find_leaving_member,
    upgraded,
)
from kafka.broker.groups.records import (
    changes,
    classic_entry,
    classic_key,
    load_classic,
    load_groups,
    tombstones,
)
from kafka.broker.groups.regex import check_regex
from kafka.broker.groups.timers import GroupTimeout, GroupTimers
from kafka.broker.offset_store import CommittedOffset
from kafka.broker.state.records import RecordEntry
from kafka.broker.topics import TopicIdPartition
from kafka.errors import (
    BrokerResponseError,
    GroupIdNotFoundError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    KafkaStorageError,
    NonEmptyGroupError,
    NotCoordinatorError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from kafka.protocol.constants import JOIN_EPOCH, STATIC_LEAVE_EPOCH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafka.broker.config import BrokerConfig
    from kafka.broker.offset_store import OffsetStore
    from kafka.broker.state.state_topic import StateTopic
    from kafka.broker.topics import TopicsImage

Group = ClassicGroup | ConsumerGroup

log = logging.getLogger(__name__)

FIRST_COMMIT_WITH_GROUP_ERRORS: Final = 9
"""OffsetCommit before this version has no error for a group that does not exist."""

JoinCallback = Callable[[JoinGroupResult], None]
SyncCallback = Callable[[SyncGroupResult], None]

STORAGE_RETRY_S: Final = 1.0
"""After this, what a timeout could not write is tried again."""


class GroupCoordinator:
    """Every classic and consumer group of a broker, by name; share groups are elsewhere, and share the name space.

    ``state_topic``: ``__consumer_offsets``; ``group_config``: what was set for a group; ``new_uuid``: for
    member ids; ``is_share_group``: whether a name is a share group's. Times: monotonic s, and ``epoch_ms`` the time
    of day."""

    def __init__(
        self,
        state_topic: StateTopic,
        offsets: OffsetStore,
        topics: TopicsImage,
        config: BrokerConfig,
        group_config: Callable[[str], Mapping[str, str]],
        *,
        now: Callable[[], float],
        epoch_ms: Callable[[], int],
        new_uuid: Callable[[], UUID],
        is_share_group: Callable[[str], bool],
    ) -> None:
        self._state_topic = state_topic
        self._offsets = offsets
        self._topics = topics
        self._config = config
        self._group_config = group_config
        self._now = now
        self._epoch_ms = epoch_ms
        self._new_uuid = new_uuid
        self._is_share_group = is_share_group
        self._timers = GroupTimers()
        self.groups: dict[str, Group] = {}
        self._load()
        state_topic.add_deletion_listener(self._on_state_topic_deleted)
        # Whether an offset expires depends on the members of its group, which are loaded by now.
        offsets.use_group_rules(self._expires_from, self._offsets_expired)
        self._check_at = now() + self._check_interval_s

    # -- names -------------------------------------------------------------------------------------------------------

    def group_type(self, group_id: str) -> str | None:
        """``classic``, ``consumer`` or ``share``; None for a name that is free."""
        found = self.groups.get(group_id)
        if found is not None:
            return found.kind
        return "share" if self._is_share_group(group_id) else None

    def classic(self, group_id: str) -> ClassicGroup:
        """The classic group; GroupIdNotFoundError (69)."""
        found = self._find(group_id)
        if not isinstance(found, ClassicGroup):
            raise GroupIdNotFoundError(f"Group {group_id} is not a classic group.")
        return found

    def consumer(self, group_id: str) -> ConsumerGroup:
        """The consumer group; GroupIdNotFoundError (69)."""
        found = self._find(group_id)
        if not isinstance(found, ConsumerGroup):
            raise GroupIdNotFoundError(f"Group {group_id} is not a consumer group.")
        return found

    def _find(self, group_id: str) -> Group | None:
        """The group, or None for a share group; GroupIdNotFoundError (69)."""
        if self.group_type(group_id) is None:
            raise GroupIdNotFoundError(f"Group {group_id} not found.")
        return self.groups.get(group_id)

    # -- on the disk -------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        classic_records, states = load_groups(self._state_topic.replay())
        now = self._now()
        for group_id, value in classic_records.items():
            state = ClassicState.STABLE if value.members else ClassicState.EMPTY
            classic = self.groups[group_id] = self._new_classic(group_id, state)
            load_classic(classic, value)
            classic.resume(now)
        for group_id, durable in states.items():
            if group_id not in self.groups:
                group = self.groups[group_id] = self._new_consumer(group_id, durable)
                group.resume(now)
        for group_id in self._offsets.groups():
            if self.group_type(group_id) is None:
                self.groups[group_id] = self._new_classic(group_id)

    @contextmanager
    def _persist_changes(self, group: ConsumerGroup) -> Iterator[None]:
        """Write the records of what the block changes in the group, and register a new group; undo the change if the
        block or the writing fails."""
        group_id = group.group_id
        before = group.durable
        is_new = self.groups.get(group_id) is not group
        try:
            yield
            entries = changes(group_id, before, group.durable)
            if is_new and group_id in self.groups:
                entries.insert(0, (classic_key(group_id), None))
            self._write(group_id, entries)
        except BaseException:
            if is_new:
                self._timers.cancel_group(group_id)
            elif group.durable is not before:
                group.undo(before, self._now())
            raise
        self.groups[group_id] = group

    def _write(self, group_id: str, entries: list[RecordEntry]) -> None:
        if entries:
            self._state_topic.append(self._state_topic.partition_of(group_id), entries)

    def _store_classic(self, group: ClassicGroup, assignments: Mapping[str, bytes]) -> None:
        group.mark_stored(self._epoch_ms())
        self._write(group.group_id, [classic_entry(group, assignments)])

    def _delete_group(self, group_id: str) -> None:
        group = self.groups[group_id]
        if isinstance(group, ConsumerGroup):
            self._write(group_id, tombstones(group_id, group.durable))
        else:
            self._write(group_id, [(classic_key(group_id), None)])
            group.close()
            self._complete_requests(group)
        self._timers.cancel_group(group_id)
        del self.groups[group_id]

    def _on_state_topic_deleted(self) -> None:
        """``__consumer_offsets`` was deleted, and all groups with it."""
        for group in list(self.groups.values()):
            self._timers.cancel_group(group.group_id)
            if isinstance(group, ClassicGroup):
                group.close()
                self._complete_requests(group)
        self.groups.clear()

    def _complete_requests(self, group: ClassicGroup) -> None:
        for done, answer in group.take_completed_requests():
            done(answer)

    # -- new ones ----------------------------------------------------------------------------------------------------

    def _new_classic(self, group_id: str, state: ClassicState = ClassicState.EMPTY) -> ClassicGroup:
        return ClassicGroup(
            group_id, self._limits, self._timers.of(group_id), self._store_classic, self._member_id, state
        )

    def _new_consumer(self, group_id: str, durable: DurableGroupState | None = None) -> ConsumerGroup:
        return ConsumerGroup(
            group_id,
            lambda: self._settings(group_id),
            self._timers.of(group_id),
            self._topics,
            self._epoch_ms,
            DurableGroupState() if durable is None else durable,
        )

    def _member_id(self, stem: str) -> str:
        return f"{stem}-{self._new_uuid()}"

    def new_consumer_member_id(self) -> str:
        """For a member of a consumer group that sent none, as Kafka writes ids of its own: 22 characters of
        base64url."""
        return base64.urlsafe_b64encode(self._new_uuid().bytes).rstrip(b"=").decode()

    @property
    def _check_interval_s(self) -> float:
        return self._config.number("offsets.retention.check.interval.ms") / 1000

    def _limits(self) -> ClassicLimits:
        number = self._config.number
        return ClassicLimits(number("group.max.size"), number("group.initial.rebalance.delay.ms"))

    def _settings(self, group_id: str) -> ConsumerSettings:
        return consumer_settings(self._config.value, self._group_config(group_id))

    # -- the classic protocol ----------------------------------------------------------------------------------------

    def join(self, group_id: str, request: ClassicJoinRequest, callback: JoinCallback, now: float) -> None:
        """A JoinGroup request; ``callback`` is called with the answer, now or later. Groups of another kind:
        InconsistentGroupProtocolError (23); unknown ones with a member id: UnknownMemberIdError (25)."""
        group = self.groups.get(group_id)
        if self.group_type(group_id) == "share":
            callback(JoinGroupResult(InconsistentGroupProtocolError))
        elif isinstance(group, ConsumerGroup) and not group.is_empty:
            callback(self._join_consumer(group, request, now))
        else:
            try:
                classic = self._classic_to_join(group_id, group, bool(request.member_id))
            except BrokerResponseError as error:
                callback(JoinGroupResult(type(error), request.member_id))
                return
            classic.join(request, callback, now)
            self._complete_requests(classic)

    def _classic_to_join(self, group_id: str, group: Group | None, has_id: bool) -> ClassicGroup:
        if isinstance(group, ClassicGroup):
            return group
        if has_id:
            raise UnknownMemberIdError("")
        new = self._new_classic(group_id)
        entries = tombstones(group_id, group.durable) if group is not None else []
        try:
            self._write(group_id, [*entries, classic_entry(new, {})])
        except KafkaStorageError:
            raise NotCoordinatorError("") from None
        self.groups[group_id] = new
        return new

    def _join_consumer(self, group: ConsumerGroup, request: ClassicJoinRequest, now: float) -> JoinGroupResult:
        try:
            with self._persist_changes(group):
                replaced = None
                if request.instance_id is not None and not request.member_id:
                    replaced = group.static_member(request.instance_id)
                becomes_classic = replaced is not None and self._can_downgrade(
                    group, [replaced.member_id], replaced=True
                )
                answer = classic_join(group, request, self.new_consumer_member_id(), now)
            if becomes_classic:
                self._downgrade(group, (), now)
            return answer
        except KafkaStorageError:
            return JoinGroupResult(NotCoordinatorError, "")
        except BrokerResponseError as error:
            return JoinGroupResult(type(error), "")

    def sync(self, group_id: str, request: ClassicSyncRequest, callback: SyncCallback, now: float) -> None:
        """A SyncGroup request. Unknown groups and share groups: UnknownMemberIdError (25)."""
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            group.sync(request, callback, now)
            self._complete_requests(group)
            return
        try:
            if group is None or group.is_empty:
                raise UnknownMemberIdError("")
            callback(classic_sync(group, request, now))
        except BrokerResponseError as error:
            callback(SyncGroupResult(type(error)))

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
            classic_heartbeat(group, member_id, instance_id, generation, now)

    def leave(
        self, group_id: str, members: Iterable[tuple[str, str | None]], now: float
    ) -> list[type[BrokerResponseError] | None]:
        """A LeaveGroup request for members and their instance ids; the error of each. NotCoordinatorError (16): what
        would have to be written cannot be."""
        group = self.groups.get(group_id)
        errors: list[type[BrokerResponseError] | None] = []
        leaving: list[str] = []
        for member_id, instance_id in members:
            try:
                if isinstance(group, ClassicGroup):
                    group.leave(member_id, instance_id)
                else:
                    found = "" if group is None else find_leaving_member(group, member_id, instance_id)
                    if group is None or found in leaving:
                        raise UnknownMemberIdError("")
                    leaving.append(found)
                errors.append(None)
            except BrokerResponseError as error:
                errors.append(type(error))
        if isinstance(group, ClassicGroup):
            if None in errors:
                group.members_left(now)
            self._complete_requests(group)
        elif group is not None and leaving:
            try:
                self._remove_consumer_members(group, leaving, now)
            except KafkaStorageError:
                raise NotCoordinatorError("") from None
        return errors

    # -- the consumer group protocol
    # --------------------------------------------------------------------------------------------

    def heartbeat(self, group_id: str, request: ConsumerHeartbeat, now: float) -> ConsumerHeartbeatResult:
        """A ConsumerGroupHeartbeat that is no leave. The first join makes the group, or changes the protocol of a
        classic one. Groups of another kind: GroupIdNotFoundError (69)."""
        is_join = request.epoch == JOIN_EPOCH
        group = self._consumer_to_join(group_id, request, now) if is_join else self._consumer(group_id)
        with self._persist_changes(group):
            return group.heartbeat(request, now)

    def consumer_leave(
        self, group_id: str, member_id: str, instance_id: str | None, epoch: int, now: float
    ) -> ConsumerHeartbeatResult:
        """A ConsumerGroupHeartbeat with epoch -1, or -2 of a static member that will be back."""
        group = self.consumer(group_id)
        member = group.find_leaving_member(member_id, instance_id)
        if instance_id is not None and epoch == STATIC_LEAVE_EPOCH:
            with self._persist_changes(group):
                group.static_leave(member)
        else:
            self._remove_consumer_members(group, [member.member_id], now)
        return ConsumerHeartbeatResult(member_id, epoch)

    def _consumer(self, group_id: str) -> ConsumerGroup:
        if self.group_type(group_id) is None:
            raise GroupIdNotFoundError(f"Consumer group {group_id} not found.")
        return self.consumer(group_id)

    def _consumer_to_join(self, group_id: str, request: ConsumerHeartbeat, now: float) -> ConsumerGroup:
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
        new.check_group_size(request.member_id)
        if request.regex:
            check_regex(request.regex)
        self._write(group_id, [(classic_key(group_id), None), *changes(group_id, DurableGroupState(), new.durable)])
        group.close(RebalanceInProgressError)
        self.groups[group_id] = new
        new.resume(now)
        self._complete_requests(group)
        return new

    def _remove_consumer_members(self, group: ConsumerGroup, member_ids: Collection[str], now: float) -> None:
        if self._can_downgrade(group, member_ids):
            self._downgrade(group, member_ids, now)
            return
        with self._persist_changes(group):
            group.remove(member_ids)

    # -- migration -----------------------------------------------------------------------------------

    def _can_downgrade(self, group: ConsumerGroup, leaving: Collection[str], *, replaced: bool = False) -> bool:
        return can_downgrade(group, leaving, self._policy, self._limits().max_size, replaced=replaced)

    def _downgrade(self, group: ConsumerGroup, leaving: Collection[str], now: float) -> None:
        group_id = group.group_id
        classic = downgrade(group, leaving, lambda: self._new_classic(group_id, ClassicState.STABLE))
        classic.mark_stored(self._epoch_ms())
        assignments = {member_id: member.assignment for member_id, member in classic.members.items()}
        self._write(group_id, [*tombstones(group_id, group.durable), classic_entry(classic, assignments)])
        self._timers.cancel_group(group_id)
        self.groups[group_id] = classic
        classic.resume(now)
        if leaving:
            classic.prepare_rebalance(now)
        self._complete_requests(classic)

    @property
    def _policy(self) -> str:
        return self._config.value("group.consumer.migration.policy")

    # -- deletion ------------------------------------------------------------------------------------------------

    def delete(self, group_id: str) -> None:
        """Forget an empty group and its offsets. GroupIdNotFoundError (69), NonEmptyGroupError (68)."""
        group = self._find(group_id)
        if group is not None and not group.is_empty:
            raise NonEmptyGroupError("")
        self._offsets.delete(group_id)
        self._delete_group(group_id)

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
        """Act on timeouts of sessions, joins, syncs and revocations; delete groups without members and offsets."""
        leaving: dict[str, dict[str, GroupTimeout]] = {}
        for group_id, kind, member_id in self._timers.pop_due(now):
            group = self.groups.get(group_id)
            if isinstance(group, ClassicGroup):
                group.on_timeout(kind, member_id, now)
                self._complete_requests(group)
            elif group is not None and member_id in group.members:
                log.info("group %s: removed member %s: %s timeout", group_id, member_id, kind.value)
                leaving.setdefault(group_id, {})[member_id] = kind
        for group_id, members in leaving.items():
            self._expire_members(group_id, members, now)
        if now >= self._check_at:
            self._check_at = now + self._check_interval_s
            self._delete_unused_groups()

    def _expire_members(self, group_id: str, members: Mapping[str, GroupTimeout], now: float) -> None:
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return
        try:
            self._remove_consumer_members(group, members.keys(), now)
        except KafkaStorageError as error:
            log.error("group %s: cannot write the removal of %d members (%s); trying again in %s s",
                group_id, len(members), error, STORAGE_RETRY_S,
            )  # fmt: skip
            for member_id, kind in members.items():
                self._timers.set((group_id, kind, member_id), now + STORAGE_RETRY_S)

    # -- offsets
    # -----------------------------------------------------------------------------------------------------------

    def check_commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        now: float,
        *,
        version: int = FIRST_COMMIT_WITH_GROUP_ERRORS,
        transactional: bool = False,
        partitions: Collection[TopicIdPartition] = (),
    ) -> None:
        """Raise what stands against a commit. Without a generation anybody may commit to a group that has no members,
        under any member id, and the group is there from then on. ``version``: of OffsetCommit; ``partitions``: those
        committed, for members that are an epoch behind."""
        group = self.groups.get(group_id)
        if group is None:
            if self.group_type(group_id) is not None:
                raise GroupIdNotFoundError(f"Group {group_id} is a share group.")
            if epoch >= 0:
                known = transactional or version < FIRST_COMMIT_WITH_GROUP_ERRORS
                raise IllegalGenerationError("") if known else GroupIdNotFoundError("")
            self.groups[group_id] = self._new_classic(group_id)
        elif isinstance(group, ClassicGroup):
            group.check_commit(member_id, instance_id, epoch, transactional, now)
        else:
            group.check_commit(member_id, epoch, version, transactional, partitions)

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> bool:
        """Raise what stands against reading offsets; whether the group is one that has any."""
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            group.check_fetch(member_id, epoch)
        return group is not None

    def check_offset_delete(self, group_id: str) -> Group:
        """The group; GroupIdNotFoundError (69), NonEmptyGroupError (68)."""
        group = self._find(group_id)
        if group is None:
            raise GroupIdNotFoundError(f"Group {group_id} is a share group.")
        if isinstance(group, ClassicGroup):
            group.check_offset_delete()
        return group

    def _expires_from(self, group_id: str, topic: str, offset: CommittedOffset) -> int | None:
        """From when an offset's retention counts, in epoch ms: never while a member is subscribed to the topic; else
        from when the group became empty, or, where no member ever joined, from the commit."""
        group = self.groups.get(group_id)
        if group is None:
            return offset.committed_ms
        if isinstance(group, ConsumerGroup):
            return None if group.is_subscribed_to(topic) else offset.committed_ms
        if group.protocol_type is None:
            return offset.committed_ms
        if group.is_empty:
            return offset.committed_ms if group.changed_at_ms < 0 else group.changed_at_ms
        is_known = group.is_of_consumers and group.subscribed is not None and group.state is ClassicState.STABLE
        return offset.committed_ms if is_known and not group.is_subscribed_to(topic) else None

    def _offsets_expired(self, group_id: str) -> None:
        group = self.groups.get(group_id)
        if group is not None and group.is_empty and not self._offsets.has_pending(group_id):
            try:
                self._delete_group(group_id)
            except KafkaStorageError as error:
                log.error("group %s: cannot write its deletion, keeping it until the next check: %s", group_id, error)

    def _delete_unused_groups(self) -> None:
        """A group without members and without offsets goes at the next check, as with Apache Kafka 4.3.0 (measured):
        also under a member that was given an id and has yet to come with it."""
        for group_id, group in list(self.groups.items()):
            if group.is_empty and not self._offsets.has_group(group_id):
                self._offsets_expired(group_id)
