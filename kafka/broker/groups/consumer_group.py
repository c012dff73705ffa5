"""One consumer group (KIP-848): members, sessions, epochs, the target assignment, and each member's way to it.

    a member joins, leaves, or changes its subscription; a topic changes   ──> the group's epoch goes up
    a heartbeat finds the group epoch above the assignment epoch           ──> a new target assignment (not more often
                                                                               than the assignment interval)
    a heartbeat finds its member elsewhere than at the target              ──> one step of :func:`reconcile`

Nothing happens but with a request or a timeout: changes of topics and of the target are noticed by the next heartbeat
of any member. All that is durable is one immutable :class:`DurableGroupState`, replaced as a whole: the records to
write are the difference of two (``records.py``), and what could not be written is undone by restoring the old one. A
consumer group has no stored state name: the name that Kafka's tools show follows from its epochs and members.

Measured on 4.3.0 and surprising: a new group has epoch 1, which its first subscription makes 2; a regular expression is
resolved after the response to the heartbeat that brought it, and for a group not more than once in 10 s.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Set
from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

from kafka.broker.group_settings import ConsumerSettings
from kafka.broker.groups.assignors import ASSIGNORS, SubscribedMember, java_order
from kafka.broker.groups.classic_group import Protocols
from kafka.broker.groups.regex import check_regex, resolve
from kafka.broker.groups.timers import GroupTimeout, MemberTimers
from kafka.broker.topics import TopicIdPartition, TopicInfo, TopicsImage
from kafka.errors import (
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    StaleMemberEpochError,
    UnknownError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedVersionError,
)
from kafka.protocol.constants import JOIN_EPOCH, STATIC_LEAVE_EPOCH


class ConsumerMemberState(IntEnum):
    """Where a member is on the way to its target assignment; the value is the one on the disk."""

    STABLE = 0
    """It has what its epoch's target says."""
    UNREVOKED_PARTITIONS = 1
    """It has to revoke partitions, and has not confirmed that yet."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that other members have not released."""
    UNKNOWN = 127
    """Written by a later release."""


PartitionEpochs = Mapping[TopicIdPartition, int]
"""Partition -> the epoch with which the member was given it; who commits with an older one is stale (KIP-1251)."""


class ClassicMemberMetadata(NamedTuple):
    """Of a member that speaks the classic protocol: its session timeout and its protocols."""

    session_timeout_ms: int
    protocols: Protocols


class ConsumerMember(NamedTuple):
    """One member at one time; changes make another. ``assigned``: may be used; ``revoking``: to be released.
    ``classic``: None for members that speak the consumer group protocol."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str = ""
    assignor: str | None = None
    rebalance_timeout_ms: int = -1
    classic: ClassicMemberMetadata | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: ConsumerMemberState = ConsumerMemberState.STABLE
    assigned: PartitionEpochs = {}
    revoking: PartitionEpochs = {}

    @property
    def is_static_left(self) -> bool:
        return self.epoch == STATIC_LEAVE_EPOCH

    def at_epoch(self, epoch: int) -> ConsumerMember:
        """The member after a step that led to an epoch. The one before stays good until it has heard of it."""
        return self._replace(epoch=epoch, previous_epoch=self.epoch)

    def holds(self) -> set[TopicIdPartition]:
        """The partitions that no other member may be given."""
        return {*self.assigned, *self.revoking}

    def is_at(self, target_epoch: int) -> bool:
        """Whether it has what the target assignment of this epoch says."""
        return self.state is ConsumerMemberState.STABLE and self.epoch == target_epoch


FIRST_EPOCH: Final = 1
"""A new group's epoch and assignment epoch (measured); no record says so."""


class ResolvedRegex(NamedTuple):
    """The topics that an expression stands for, since ``at_ms`` (epoch)."""

    topics: frozenset[str]
    at_ms: int


class DurableGroupState(NamedTuple):
    """All that is to be durable of a consumer group. ``assigned_at_ms``: epoch, 0 for never."""

    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    assignment_epoch: int = FIRST_EPOCH
    assigned_at_ms: int = 0
    members: Mapping[str, ConsumerMember] = {}
    target: Mapping[str, frozenset[TopicIdPartition]] = {}
    regexes: Mapping[str, ResolvedRegex] = {}


def metadata_hash(topics: Mapping[str, TopicInfo]) -> int:
    """Says whether the topics of a group have changed, also over a restart; 0 for none. Kafka's is another one: a group
    that the other has written gets a new epoch at its next heartbeat, and no more."""
    if not topics:
        return 0
    digest = hashlib.blake2b(digest_size=8)
    for name in sorted(topics):
        digest.update(f"{name}\0{topics[name].topic_id}\0{topics[name].partition_count}\0".encode())
    return int.from_bytes(digest.digest(), "big", signed=True)


log = logging.getLogger(__name__)

V = TypeVar("V")

REGEX_REFRESH_S: Final = 10.0
"""A group's regular expressions are not resolved more often."""

REGEX_LIFETIME_S: Final = 600.0
"""They are resolved anew after this, whatever has happened to topics (group.consumer.regex.refresh.interval.ms)."""


# -- reconciliation: the next step of a member from what it has to what its group's target assignment gives it ---------
#
#     STABLE ──target changed──> UNREVOKED_PARTITIONS    has to revoke; it keeps its epoch until it says that it has
#                                    │
#                                    v
#                                UNRELEASED_PARTITIONS   at the target's epoch, waits for what other members hold
#                                    │
#                                    v
#                                STABLE                  at the target's epoch, with all of it
#
# No partition is assigned while another member holds it, also while that member has only been asked to revoke it. What
# the member is no longer subscribed to is revoked at once, before there is a new target.


def reconcile(
    member: ConsumerMember,
    target_epoch: int,
    target: Set[TopicIdPartition],
    owned: Collection[TopicIdPartition] | None,
    is_free: Callable[[TopicIdPartition], bool],
    is_subscribed: Callable[[TopicIdPartition], bool],
    subscription_changed: bool,
) -> ConsumerMember:
    """The member after one step. ``owned``: the partitions that it reports, None when it did not; ``is_free``: no
    member holds the partition, itself included: what it has just released it gets back one step later."""
    epoch = member.epoch
    if member.state is ConsumerMemberState.UNKNOWN:
        if owned is None or owned:
            raise FencedMemberEpochError(
                "The consumer group member is in a unknown state. The member must abandon all its partitions and "
                "rejoin."
            )
        epoch = target_epoch
    elif member.is_at(target_epoch) or (
        member.state is ConsumerMemberState.UNREVOKED_PARTITIONS and _still_has(owned, member.revoking)
    ):
        return _drop_unsubscribed(member, owned, is_subscribed) if subscription_changed else member
    elif member.state is ConsumerMemberState.UNREVOKED_PARTITIONS:
        epoch += 1
    kept = {one: since for one, since in member.assigned.items() if one in target and is_subscribed(one)}
    lost = {one: since for one, since in member.assigned.items() if one not in kept}
    if lost and _still_has(owned, lost):
        moved = member.at_epoch(min(epoch, target_epoch))
        return moved._replace(state=ConsumerMemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=lost)
    wanted = {one for one in target if one not in kept and is_subscribed(one)}
    free = {one for one in wanted if is_free(one)}
    state = ConsumerMemberState.STABLE if free == wanted else ConsumerMemberState.UNRELEASED_PARTITIONS
    assigned = {**kept, **dict.fromkeys(sorted(free, key=lambda one: (one[0].bytes, one[1])), target_epoch)}
    return member.at_epoch(target_epoch)._replace(state=state, assigned=assigned, revoking={})


def _drop_unsubscribed(
    member: ConsumerMember,
    owned: Collection[TopicIdPartition] | None,
    is_subscribed: Callable[[TopicIdPartition], bool],
) -> ConsumerMember:
    lost = {one: since for one, since in member.assigned.items() if not is_subscribed(one)}
    if not lost:
        return member
    kept = {one: since for one, since in member.assigned.items() if one not in lost}
    revoking = {**member.revoking, **lost}
    if _still_has(owned, revoking):
        return member._replace(state=ConsumerMemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=revoking)
    return member._replace(assigned=kept)


def _still_has(owned: Collection[TopicIdPartition] | None, lost: Collection[TopicIdPartition]) -> bool:
    return owned is None or any(one in lost for one in owned)


# -- the group ---------------------------------------------------------------------------------------------------------

FIRST_VERSION_WITH_EPOCHS: Final = 9
"""Of OffsetCommit."""


class ConsumerHeartbeat(NamedTuple):
    """A ConsumerGroupHeartbeat that is no leave. None, and -1 for the timeout: unchanged."""

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
    owned: frozenset[TopicIdPartition] | None = None

    @property
    def is_full(self) -> bool:
        """It has all fields, so its response has the assignment."""
        return self.epoch == JOIN_EPOCH or (
            self.rebalance_timeout_ms != -1
            and (self.topics is not None or self.regex is not None)
            and self.owned is not None
        )


class ConsumerHeartbeatResult(NamedTuple):
    """``assignment``: None when the member has it already."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int = 0
    assignment: frozenset[TopicIdPartition] | None = None


class ConsumerGroup:
    """One group. ``epoch_ms``: the time of day; ``durable``: what is on the disk."""

    kind: Final = "consumer"

    def __init__(
        self,
        group_id: str,
        settings: Callable[[], ConsumerSettings],
        timers: MemberTimers,
        topics: TopicsImage,
        epoch_ms: Callable[[], int],
        durable: DurableGroupState = DurableGroupState(),  # noqa: B008  # it is immutable
    ) -> None:
        self.timers = timers
        self.group_id = group_id
        self.durable = durable
        self.topics = topics
        self._settings = settings
        self._epoch_ms = epoch_ms
        self._topics_changed = True
        self._regex_outdated = True
        self._resolved_at: float | None = None
        self._members_and_holders: tuple[Mapping[str, ConsumerMember], dict[TopicIdPartition, str]] = ({}, {})

    @property
    def members(self) -> Mapping[str, ConsumerMember]:
        return self.durable.members

    @property
    def epoch(self) -> int:
        return self.durable.epoch

    @property
    def is_empty(self) -> bool:
        return not self.durable.members

    @property
    def state(self) -> str:
        """As Kafka's tools show it."""
        durable = self.durable
        if not durable.members:
            return "Empty"
        if durable.epoch > durable.assignment_epoch:
            return "Assigning"
        is_stable = all(member.is_at(durable.assignment_epoch) for member in durable.members.values())
        return "Stable" if is_stable else "Reconciling"

    @property
    def assignor(self) -> str:
        """The one that most members ask for."""
        votes = Counter(member.assignor for member in self.members.values() if member.assignor is not None)
        if not votes:
            return self._settings().assignors[0]
        most = max(votes.values())
        return next(name for name in java_order([one for one in votes if one is not None]) if votes[name] == most)

    def is_held(self, partition: TopicIdPartition) -> bool:
        """Whether any member has not released it."""
        members, holders = self._members_and_holders
        if members is not self.members:
            holders = {one: member.member_id for member in self.members.values() for one in member.holds()}
            self._members_and_holders = self.members, holders
        return partition in holders

    def _put(self, member: ConsumerMember) -> None:
        members = self.durable.members
        was = members.get(member.member_id)
        if was == member:
            return
        self.durable = self.durable._replace(members={**members, member.member_id: member})
        if self._members_and_holders[0] is members:  # known, and soon asked again
            holders = self._members_and_holders[1]
            for one in was.holds() if was is not None else ():
                if holders.get(one) == member.member_id:
                    del holders[one]
            holders.update(dict.fromkeys(member.holds(), member.member_id))
            self._members_and_holders = self.durable.members, holders

    # -- topics ------------------------------------------------------------------------------------------------------

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """The names that it is subscribed to, as far as its regular expression has been resolved."""
        resolved = self.durable.regexes.get(member.regex) if member.regex else None
        return member.topics if resolved is None else member.topics | resolved.topics

    def subscribed_topics(self) -> frozenset[str]:
        return frozenset(name for member in self.members.values() for name in self.topics_of(member))

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in self.topics_of(member) for member in self.members.values())

    def topics_changed(self, names: Collection[str]) -> None:
        """Topics were made, grown or deleted; seen at the next heartbeat."""
        self._topics_changed = self._topics_changed or not self.subscribed_topics().isdisjoint(names)
        self._regex_outdated = True

    def _update_metadata_hash(self, bump: bool) -> None:
        digest = metadata_hash(self.topics.infos(self.subscribed_topics()))
        if bump or digest != self.durable.metadata_hash:
            self.durable = self.durable._replace(epoch=self.durable.epoch + 1, metadata_hash=digest)

    def _maybe_resolve_regexes(self, now: float) -> None:
        """Resolve all regular expressions when there is a new one, or topics have come or gone, or it was long ago."""
        wanted = {member.regex for member in self.members.values() if member.regex}
        if not wanted or (self._resolved_at is not None and now <= self._resolved_at + REGEX_REFRESH_S):
            return
        is_old = self._resolved_at is not None and now > self._resolved_at + REGEX_LIFETIME_S
        known = self.durable.regexes
        if not (self._regex_outdated or is_old or any(text not in known for text in wanted)):
            return
        self._resolved_at = now
        self._regex_outdated = False
        at_ms = self._epoch_ms()
        found = {}
        for text, topics in resolve(sorted(wanted), self.topics.names()).items():
            was = known.get(text)
            if topics is None:
                log.warning(
                    "group %s: cannot resolve the regular expression %s: it exceeds the limit, or google-re2 is not "
                    "installed; keeping its topics",
                    self.group_id,
                    text,
                )
                topics = frozenset() if was is None else was.topics
            found[text] = was if was is not None and was.topics == topics else ResolvedRegex(topics, at_ms)
        has_changed = any(
            found[text].topics != (known[text].topics if text in known else frozenset()) for text in found
        )
        self.durable = self.durable._replace(regexes=found)
        if has_changed:
            self._update_metadata_hash(True)

    def _drop_unused_regexes(self) -> None:
        used = {member.regex for member in self.members.values()}
        regexes = self.durable.regexes
        if not regexes.keys() <= used:
            self.durable = self.durable._replace(regexes=_only(regexes, used))

    # -- assignment --------------------------------------------------------------------------------------------------

    def _maybe_update_target_assignment(self) -> None:
        durable = self.durable
        now_ms = self._epoch_ms()
        since_ms = now_ms - durable.assigned_at_ms
        if durable.epoch <= durable.assignment_epoch or 0 <= since_ms < self._settings().assignment_interval_ms:
            return
        infos = self.topics.infos(self.subscribed_topics())
        members = {
            member.member_id: SubscribedMember(
                frozenset(infos[name].topic_id for name in self.topics_of(member) if name in infos), member.instance_id
            )
            for member in durable.members.values()
        }
        counts = {info.topic_id: info.partition_count for info in infos.values()}
        target = ASSIGNORS[self.assignor](members, counts, durable.target)
        self.durable = durable._replace(target=target, assignment_epoch=durable.epoch, assigned_at_ms=now_ms)

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

    def check_group_size(self, member_id: str) -> None:
        """GroupMaxSizeReachedError (81) for one too many."""
        max_size = self._settings().max_size
        if len(self.members) >= max_size and member_id not in self.members:
            raise GroupMaxSizeReachedError(
                f"The consumer group has reached its maximum capacity of {max_size} members."
            )

    # -- heartbeats --------------------------------------------------------------------------------------------------

    def heartbeat(self, request: ConsumerHeartbeat, now: float) -> ConsumerHeartbeatResult:
        """Join (epoch 0) or stay; the request has been checked for what it says alone."""
        if request.regex and request.regex not in self.durable.regexes:
            check_regex(request.regex)
        self.check_group_size(request.member_id)
        member = self._find(request)
        updated = self._updated(member, request)
        after = self.update_member(member, updated, request.owned, now)
        self._schedule_revocation_timeout(member, after, now)
        settings = self._settings()
        self.timers.cancel(GroupTimeout.MEMBER_JOIN, after.member_id)
        self.timers.cancel(GroupTimeout.MEMBER_SYNC, after.member_id)
        self.timers.set(GroupTimeout.SESSION, after.member_id, now + settings.session_timeout_ms / 1000)
        is_news = request.is_full or set(after.assigned) != set(member.assigned)
        answer = ConsumerHeartbeatResult(
            after.member_id,
            after.epoch,
            settings.heartbeat_interval_ms,
            frozenset(after.assigned) if is_news else None,
        )
        self._maybe_resolve_regexes(now)
        return answer

    def update_member(
        self, member: ConsumerMember, updated: ConsumerMember, owned: Collection[TopicIdPartition] | None, now: float
    ) -> ConsumerMember:
        """Store a member's new subscription, raise the group epoch if something has changed, compute a new target if
        it is time, and reconcile the member."""
        regex_changed = updated.regex != member.regex
        self._put(updated)
        if regex_changed:
            self._drop_unused_regexes()
        bump = updated.topics != member.topics or (
            regex_changed and (not updated.regex or updated.regex in self.durable.regexes)
        )
        if bump or self._topics_changed:
            self._topics_changed = False
            self._update_metadata_hash(bump)
        self._maybe_update_target_assignment()
        durable = self.durable
        subscribed = self.topics_of(updated)
        after = reconcile(
            updated,
            durable.assignment_epoch,
            durable.target.get(updated.member_id, frozenset()),
            owned,
            lambda one: not self.is_held(one),
            lambda one: self.topics.name_of(one[0]) in subscribed,
            updated.topics != member.topics or regex_changed,
        )
        self._put(after)
        return after

    def replace_static(self, old: ConsumerMember, member_id: str) -> ConsumerMember:
        """A static member rejoins under another id, and takes over its assignment."""
        new = old._replace(member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
        durable = self.durable
        rest = durable.members.keys() - {old.member_id}
        self.durable = durable._replace(
            members={**_only(durable.members, rest), member_id: new},
            target={**_only(durable.target, rest), member_id: durable.target.get(old.member_id, frozenset())},
        )
        self.timers.cancel_member(old.member_id)
        return new

    def _find(self, request: ConsumerHeartbeat) -> ConsumerMember:
        """The member of a heartbeat, a new one for a join (not added yet), or the static member that this one
        replaces. Errors: UnknownMemberIdError, UnreleasedInstanceIdError while the instance id is in use,
        FencedInstanceIdError, and those of a wrong epoch."""
        is_join = request.epoch == JOIN_EPOCH
        if request.instance_id is None:
            if is_join and request.member_id not in self.members:
                return ConsumerMember(request.member_id)
            member = self.member(request.member_id)
        elif is_join:
            there = self.static_member(request.instance_id)
            if there is None:
                return self.members.get(request.member_id) or ConsumerMember(request.member_id)
            if not there.is_static_left and there.classic is None:
                raise UnreleasedInstanceIdError(
                    f"Static member {request.member_id} with instance id {request.instance_id} cannot join the group "
                    f"because the instance id is owned by {there.member_id} member."
                )
            return self.replace_static(there, request.member_id)
        else:
            member = self.find_static(request.instance_id, request.member_id)
        if not is_join:
            self._check_epoch(member, request)
        return member

    @staticmethod
    def _check_epoch(member: ConsumerMember, request: ConsumerHeartbeat) -> None:
        """The previous epoch is accepted when the member reports no partition that it does not have: the response
        with the current one was lost."""
        if request.epoch == member.epoch:
            return
        is_repeat = (
            request.epoch == member.previous_epoch
            and request.owned is not None
            and all(one in member.assigned for one in request.owned)
        )
        if request.epoch > member.epoch or not is_repeat:
            word = "greater" if request.epoch > member.epoch else "smaller"
            raise FencedMemberEpochError(
                f"The consumer group member has a {word} member epoch ({request.epoch}) than the one known by the "
                f"group coordinator ({member.epoch}). The member must abandon all its partitions and rejoin."
            )

    @staticmethod
    def _updated(member: ConsumerMember, request: ConsumerHeartbeat) -> ConsumerMember:
        return member._replace(
            instance_id=member.instance_id if request.instance_id is None else request.instance_id,
            rack_id=member.rack_id if request.rack_id is None else request.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            topics=member.topics if request.topics is None else request.topics,
            regex=member.regex if request.regex is None else request.regex,
            assignor=member.assignor if request.assignor is None else request.assignor,
            rebalance_timeout_ms=(
                member.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
            ),
            classic=None,
        )

    def _schedule_revocation_timeout(self, before: ConsumerMember, after: ConsumerMember, now: float) -> None:
        if after.state is not ConsumerMemberState.UNREVOKED_PARTITIONS:
            self.timers.cancel(GroupTimeout.REVOKE, after.member_id)
        elif (before.state, before.epoch, before.revoking) != (after.state, after.epoch, after.revoking):
            self.timers.set(GroupTimeout.REVOKE, after.member_id, now + after.rebalance_timeout_ms / 1000)

    # -- leaving -----------------------------------------------------------------------------------------------------

    def find_leaving_member(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """The member that a request to leave names."""
        return self.member(member_id) if instance_id is None else self.find_static(instance_id, member_id)

    def static_leave(self, member: ConsumerMember) -> None:
        """A static member leaves temporarily: it keeps its assignment until its session times out."""
        self._put(member._replace(epoch=STATIC_LEAVE_EPOCH, revoking={}))

    def remove(self, member_ids: Collection[str]) -> None:
        """Remove members for good. The others get a new target with the next heartbeat of any of them."""
        durable = self.durable
        rest = durable.members.keys() - set(member_ids)
        self.durable = durable._replace(members=_only(durable.members, rest), target=_only(durable.target, rest))
        for member_id in member_ids:
            self.timers.cancel_member(member_id)
        self._drop_unused_regexes()
        self._update_metadata_hash(True)

    # -- loading and undoing ------------------------------------------------------------------------------

    def undo(self, before: DurableGroupState, now: float) -> None:
        """What has changed since ``before`` could not be written: restore it, and check topics and timeouts again."""
        self.durable = before
        self._topics_changed = self._regex_outdated = True
        self.resume(now)

    def resume(self, now: float) -> None:
        """The group was loaded, converted or restored: start the timeouts of members that have none."""
        for member in self.members.values():
            timeout_ms = (
                member.classic.session_timeout_ms if member.classic is not None else self._settings().session_timeout_ms
            )
            self.timers.set_if_none(GroupTimeout.SESSION, member.member_id, now + timeout_ms / 1000)
            if member.state is ConsumerMemberState.UNREVOKED_PARTITIONS and member.classic is None:
                when = now + member.rebalance_timeout_ms / 1000
                self.timers.set_if_none(GroupTimeout.REVOKE, member.member_id, when)

    # -- offsets -----------------------------------------------------------------------------------------------------

    def check_commit(
        self, member_id: str, epoch: int, version: int, transactional: bool, partitions: Collection[TopicIdPartition]
    ) -> None:
        """Raise the error of a commit that is not allowed for these partitions. An older epoch is valid for
        partitions that the member has had since then (KIP-1251)."""
        # An empty group takes commits from anyone, under any member id (seen on 4.3.0).
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
        """Raise the error of an OffsetFetch that is not allowed."""
        if member_id is None:
            if epoch < 0:
                return
            raise UnknownError("a member epoch without a member id")
        member = self.member(member_id)
        if epoch != member.epoch:
            error = StaleMemberEpochError if member.classic is None else IllegalGenerationError
            raise error(f"member {member_id} is at epoch {member.epoch}, not {epoch}")


def _only(values: Mapping[str, V], names: Set[str]) -> dict[str, V]:
    """The values of these names, in their order."""
    return {name: value for name, value in values.items() if name in names}
