"""Whose offsets may be written, read and deleted, and when they are over: the groups' part of it.

The offsets themselves are ``offset_store.py``'s. Which errors unknown groups and groups of another kind have differs by
request (measured).
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from kafka.broker.groups.classic_group import ClassicGroup
from kafka.broker.groups.consumer_group import ConsumerGroup
from kafka.broker.groups.consumer_member import Partition
from kafka.broker.groups.register import Group, GroupRegister
from kafka.broker.groups.states import ClassicState
from kafka.broker.offset_store import CommittedOffset
from kafka.errors import GroupIdNotFoundError, IllegalGenerationError, KafkaStorageError

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

log = logging.getLogger(__name__)

FIRST_COMMIT_WITH_GROUP_ERRORS: Final = 9
"""OffsetCommit before this version has no word for a group that is not there."""


class OffsetRules(GroupRegister):
    """The rules of all groups; tells the offset store the part of them that it asks for."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        broker.offsets.expires_from = self._expires_from
        broker.offsets.on_emptied = self._offsets_expired

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
        partitions: Collection[Partition] = (),
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
        """Offsets of topics that somebody is subscribed to stay; else their time counts from when the group was left,
        or, where nobody ever joined, from the commit."""
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
        if group is not None and group.is_empty and not self._broker.offsets.has_pending(group_id):
            try:
                self._end(group_id)
            except KafkaStorageError as error:
                log.error("group %s: it is kept for now: %s", group_id, error)

    def _end_unused(self) -> None:
        """A group without members and without offsets goes at the next check, as with Apache Kafka 4.3.0 (measured):
        also under a member that was given an id and has yet to come with it."""
        for group_id, group in list(self.groups.items()):
            if group.is_empty and not self._broker.offsets.has_group(group_id):
                self._offsets_expired(group_id)
