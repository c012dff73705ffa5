"""One group of the new protocol: membership, sessions, each member's way to its part of the target (KIP-848).

    a heartbeat finds its member elsewhere than at the target ──> one step of ``reconcile.py``

Nothing happens but with a request or a time-out: changes of topics and of the target are found by the next heartbeat of
any member. What the target is, and what of a group is durable, is in ``consumer_target.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from kafka.broker.groups.consumer_member import JOIN_EPOCH, STATIC_LEAVE_EPOCH, ConsumerMember, Partition
from kafka.broker.groups.consumer_target import ConsumerTarget, Topics
from kafka.broker.groups.group_settings import ConsumerSettings
from kafka.broker.groups.picture import Picture
from kafka.broker.groups.reconcile import reconcile
from kafka.broker.groups.regex import check_regex
from kafka.broker.groups.states import MemberState
from kafka.broker.groups.timers import GroupTimers, Timeout
from kafka.errors import (
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    NonEmptyGroupError,
    StaleMemberEpochError,
    UnknownError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedVersionError,
)

FIRST_VERSION_WITH_EPOCHS: Final = 9
"""Of OffsetCommit."""


class Heartbeat(NamedTuple):
    """A ConsumerGroupHeartbeat that is no leave. None, and -1 for the time-out: unchanged."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: frozenset[Partition] | None = None

    @property
    def is_full(self) -> bool:
        """It says everything, so it is answered everything."""
        return self.epoch == JOIN_EPOCH or (
            self.rebalance_timeout_ms != -1
            and (self.topics is not None or self.regex is not None)
            and self.owned is not None
        )


class HeartbeatAnswer(NamedTuple):
    """``assignment``: None when it is the one that the member was told."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int = 0
    assignment: frozenset[Partition] | None = None


class ConsumerGroup(ConsumerTarget):
    """One group. ``epoch_ms``: the time of day."""

    kind: Final = "consumer"

    def __init__(
        self,
        group_id: str,
        settings: Callable[[], ConsumerSettings],
        timers: GroupTimers,
        topics: Topics,
        epoch_ms: Callable[[], int],
        picture: Picture = Picture(),  # noqa: B008  # it is immutable
    ) -> None:
        super().__init__(group_id, settings, topics, epoch_ms, picture)
        self.timers = timers

    # -- members -----------------------------------------------------------------------------------------------------

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        """The member with an instance id."""
        return next((one for one in self.members.values() if one.instance_id == instance_id), None)

    def member(self, member_id: str) -> ConsumerMember:
        """UnknownMemberIdError (25) for one that is not here."""
        found = self.members.get(member_id)
        if found is None:
            raise UnknownMemberIdError(f"Member {member_id} is not a member of group {self.group_id}.")
        return found

    def find_static(self, instance_id: str, member_id: str) -> ConsumerMember:
        """A static member that is here under this id."""
        found = self.static_member(instance_id)
        if found is None:
            raise UnknownMemberIdError(f"Instance id {instance_id} is unknown.")
        if found.member_id != member_id:
            raise FencedInstanceIdError(
                f"Static member {member_id} with instance id {instance_id} was fenced by member {found.member_id}."
            )
        return found

    def check_room(self, member_id: str) -> None:
        """GroupMaxSizeReachedError (81) for one too many."""
        max_size = self._settings().max_size
        if len(self.members) >= max_size and member_id not in self.members:
            raise GroupMaxSizeReachedError(
                f"The consumer group has reached its maximum capacity of {max_size} members."
            )

    # -- heartbeats --------------------------------------------------------------------------------------------------

    def heartbeat(self, wanted: Heartbeat, now: float) -> HeartbeatAnswer:
        """Join (epoch 0) or stay; the request has been checked for what it says alone."""
        if wanted.regex and wanted.regex not in self.picture.regexes:
            check_regex(wanted.regex)
        self.check_room(wanted.member_id)
        member = self._find(wanted)
        updated = self._updated(member, wanted)
        after = self.step(member, updated, wanted.owned, now)
        self._watch_revocation(member, after, now)
        settings = self._settings()
        self.timers.cancel(Timeout.MEMBER_JOIN, after.member_id)
        self.timers.cancel(Timeout.MEMBER_SYNC, after.member_id)
        self.timers.set(Timeout.SESSION, after.member_id, now + settings.session_timeout_ms / 1000)
        is_news = wanted.is_full or set(after.assigned) != set(member.assigned)
        answer = HeartbeatAnswer(
            after.member_id,
            after.epoch,
            settings.heartbeat_interval_ms,
            frozenset(after.assigned) if is_news else None,
        )
        self._maybe_resolve(now)
        return answer

    def step(
        self, member: ConsumerMember, updated: ConsumerMember, owned: Collection[Partition] | None, now: float
    ) -> ConsumerMember:
        """Take up what a member says of itself, find what has changed, assign if it is time, and move the member on."""
        regex_changed = updated.regex != member.regex
        self._put(updated)
        if regex_changed:
            self._drop_unused_regexes()
        bump = updated.topics != member.topics or (
            regex_changed and (not updated.regex or updated.regex in self.picture.regexes)
        )
        if bump or self._topics_changed:
            self._topics_changed = False
            self._see_topics(bump)
        self._maybe_assign()
        picture = self.picture
        subscribed = self.topics_of(updated)
        after = reconcile(
            updated,
            picture.assignment_epoch,
            picture.target.get(updated.member_id, frozenset()),
            owned,
            lambda one: not self.is_held(one),
            lambda one: self.topics.name_of(one[0]) in subscribed,
            updated.topics != member.topics or regex_changed,
        )
        self._put(after)
        return after

    def replace_static(self, old: ConsumerMember, member_id: str) -> ConsumerMember:
        """A static member is back under an id, and takes over what it had."""
        new = old._replace(member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
        picture = self.picture
        target = {key: value for key, value in picture.target.items() if key != old.member_id}
        target[member_id] = picture.target.get(old.member_id, frozenset())
        members = {key: value for key, value in picture.members.items() if key != old.member_id}
        self.picture = picture._replace(members={**members, member_id: new}, target=target)
        self.timers.cancel_member(old.member_id)
        return new

    def _find(self, wanted: Heartbeat) -> ConsumerMember:
        is_join = wanted.epoch == JOIN_EPOCH
        if wanted.instance_id is None:
            if is_join and wanted.member_id not in self.members:
                return ConsumerMember(wanted.member_id)
            member = self.member(wanted.member_id)
        elif is_join:
            there = self.static_member(wanted.instance_id)
            if there is None:
                return self.members.get(wanted.member_id) or ConsumerMember(wanted.member_id)
            if not there.is_away and there.classic is None:
                raise UnreleasedInstanceIdError(
                    f"Static member {wanted.member_id} with instance id {wanted.instance_id} cannot join the group "
                    f"because the instance id is owned by {there.member_id} member."
                )
            return self.replace_static(there, wanted.member_id)
        else:
            member = self.find_static(wanted.instance_id, wanted.member_id)
        if not is_join:
            self._check_epoch(member, wanted)
        return member

    @staticmethod
    def _check_epoch(member: ConsumerMember, wanted: Heartbeat) -> None:
        """The epoch before the last is good as long as the member does not know of more than it has: its answer was
        lost."""
        if wanted.epoch == member.epoch:
            return
        is_repeat = (
            wanted.epoch == member.previous_epoch
            and wanted.owned is not None
            and all(one in member.assigned for one in wanted.owned)
        )
        if wanted.epoch > member.epoch or not is_repeat:
            word = "greater" if wanted.epoch > member.epoch else "smaller"
            raise FencedMemberEpochError(
                f"The consumer group member has a {word} member epoch ({wanted.epoch}) than the one known by the group "
                f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin."
            )

    @staticmethod
    def _updated(member: ConsumerMember, wanted: Heartbeat) -> ConsumerMember:
        return member._replace(
            instance_id=member.instance_id if wanted.instance_id is None else wanted.instance_id,
            rack_id=member.rack_id if wanted.rack_id is None else wanted.rack_id,
            client_id=wanted.client_id,
            client_host=wanted.client_host,
            topics=member.topics if wanted.topics is None else wanted.topics,
            regex=member.regex if wanted.regex is None else wanted.regex,
            assignor=member.assignor if wanted.assignor is None else wanted.assignor,
            rebalance_timeout_ms=(
                member.rebalance_timeout_ms if wanted.rebalance_timeout_ms == -1 else wanted.rebalance_timeout_ms
            ),
            classic=None,
        )

    def _watch_revocation(self, before: ConsumerMember, after: ConsumerMember, now: float) -> None:
        if after.state is not MemberState.UNREVOKED_PARTITIONS:
            self.timers.cancel(Timeout.REVOKE, after.member_id)
        elif (before.state, before.epoch, before.revoking) != (after.state, after.epoch, after.revoking):
            self.timers.set(Timeout.REVOKE, after.member_id, now + after.rebalance_timeout_ms / 1000)

    # -- leaving -----------------------------------------------------------------------------------------------------

    def leaver(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """The member that says that it leaves."""
        return self.member(member_id) if instance_id is None else self.find_static(instance_id, member_id)

    def go_away(self, member: ConsumerMember) -> None:
        """A static member leaves and will be back: it keeps its place until its session is over."""
        self._put(member._replace(epoch=STATIC_LEAVE_EPOCH, revoking={}))

    def remove(self, member_ids: Collection[str]) -> None:
        """Members are gone for good. The others get a new target with the next heartbeat of any of them."""
        picture = self.picture
        self.picture = picture._replace(
            members={key: value for key, value in picture.members.items() if key not in member_ids},
            target={key: value for key, value in picture.target.items() if key not in member_ids},
        )
        for member_id in member_ids:
            self.timers.cancel_member(member_id)
        self._drop_unused_regexes()
        self._see_topics(True)

    # -- beginning, and beginning again ------------------------------------------------------------------------------

    def resume(self, now: float) -> None:
        """It was read from the disk, or has just become a group of this kind: every member has its session time-out to
        be heard from."""
        self._watch_all(now)

    def undo(self, before: Picture, now: float) -> None:
        """What has happened since ``before`` could not be written: all is as it was, and is to be found out again."""
        self.picture = before
        self._topics_changed = self._regex_outdated = True
        self._watch_all(now)

    def _watch_all(self, now: float) -> None:
        """Have a time-out for everybody who has none."""
        for member in self.members.values():
            timeout_ms = (
                member.classic.session_timeout_ms if member.classic is not None else self._settings().session_timeout_ms
            )
            self.timers.set_if_none(Timeout.SESSION, member.member_id, now + timeout_ms / 1000)
            if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
                when = now + member.rebalance_timeout_ms / 1000
                self.timers.set_if_none(Timeout.REVOKE, member.member_id, when)

    # -- offsets -----------------------------------------------------------------------------------------------------

    def check_commit(
        self, member_id: str, epoch: int, version: int, transactional: bool, partitions: Collection[Partition]
    ) -> None:
        """Raise what stands against a commit for these partitions. An epoch that is behind is good for what the member
        has had since then (KIP-1251)."""
        if epoch < 0 and self.is_empty:
            return
        member = self.member(member_id)
        if member.classic is not None:
            if epoch != member.epoch:
                raise IllegalGenerationError(f"member {member_id} is at epoch {member.epoch}, not {epoch}")
            return
        if not transactional and version < FIRST_VERSION_WITH_EPOCHS:
            raise UnsupportedVersionError(
                "OffsetCommit version 9 or above must be used by members using the modern group protocol"
            )
        is_current = epoch == member.epoch
        since = member.assigned
        if not is_current and (
            epoch > member.epoch or not partitions or any(one not in since or since[one] > epoch for one in partitions)
        ):
            raise StaleMemberEpochError(f"member {member_id} is at epoch {member.epoch}, not {epoch}")

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raise what stands against reading offsets."""
        if member_id is None:
            if epoch < 0:
                return
            raise UnknownError("a member epoch without a member id")
        member = self.member(member_id)
        if epoch != member.epoch:
            error = StaleMemberEpochError if member.classic is None else IllegalGenerationError
            raise error(f"member {member_id} is at epoch {member.epoch}, not {epoch}")

    def check_delete(self) -> None:
        """NonEmptyGroupError (68) while there are members."""
        if not self.is_empty:
            raise NonEmptyGroupError("")
