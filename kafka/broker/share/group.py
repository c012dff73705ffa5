"""Membership of one share group: joins, heartbeats, fencing, time-outs, assignment (KIP-932, "Group membership").

Members make their own ids. There is no rebalance to take part in: an assignment holds from the moment it is sent, and
says only where to fetch, so that locks and acknowledgements are none of this module's business. A change of members or
topics raises the group's epoch; the new assignment is made with that heartbeat when the last one is older than the
assignment interval, else with the first one after it. A member's epoch is that of the assignment that it was last
given.

Apache Kafka 4.3.0 begins at epoch 1, and makes a state for partitions that are new to the group after an assignment
without them: the next heartbeat raises the epoch again and gives them. Here both is one step, so that nobody waits for
a heartbeat; the epochs are those that Kafka has afterwards. A group without members does not wait for the interval.

The machine knows no requests: ``handlers`` translate. Errors are Kafka's: InvalidRequestError (42),
UnknownMemberIdError (25), FencedMemberEpochError (110), GroupMaxSizeReachedError (81); GroupIdNotFoundError (69) is
``groups.py``'s.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from kafka.broker.share.assignor import Partition, assign
from kafka.broker.share.group_configs import ShareGroupConfig
from kafka.broker.share.sessions import MAX_MEMBER_ID_LENGTH
from kafka.broker.topics import TopicInfo
from kafka.errors import (
    FencedMemberEpochError,
    GroupMaxSizeReachedError,
    InvalidRequestError,
    UnknownMemberIdError,
)

FIRST_EPOCH = 1
JOIN_EPOCH = 0
LEAVE_EPOCH = -1
ASSIGNOR = "simple"


class HeartbeatAnswer(NamedTuple):
    """``assignment`` is None when it is the one that the member has already."""

    member_epoch: int
    heartbeat_interval_ms: int
    assignment: frozenset[Partition] | None


class ShareMember:
    """One member, as ShareGroupDescribe shows it. ``deadline``: when its session ends, in monotonic s."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "deadline",
        "epoch",
        "member_id",
        "previous_epoch",
        "rack_id",
        "subscription",
    )

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.rack_id: str | None = None
        self.client_id = ""
        self.client_host = ""
        self.subscription: frozenset[str] = frozenset()
        self.epoch = 0
        self.previous_epoch = -1
        self.assignment: frozenset[Partition] = frozenset()
        self.deadline = 0.0


class ShareGroup:
    """One share group. ``config`` may be replaced at any time; ``epoch`` is where an earlier life had come to."""

    def __init__(self, group_id: str, config: ShareGroupConfig, epoch: int = FIRST_EPOCH) -> None:
        self.group_id = group_id
        self.config = config
        self.epoch = epoch
        self.assignment_epoch = epoch
        self.members: dict[str, ShareMember] = {}
        self._target: dict[str, frozenset[Partition]] = {}
        self._topics: dict[str, TopicInfo] = {}
        self._assigned_at: float | None = None
        self.initialized: set[Partition] = set()
        """The partitions that the group has a state of, or will have with the first acknowledgement."""

    @property
    def state(self) -> str:
        """``Empty`` or ``Stable``, as Kafka's tools show it."""
        return "Stable" if self.members else "Empty"

    @property
    def next_deadline(self) -> float | None:
        """When to call :meth:`tick` next, in monotonic s."""
        return min((member.deadline for member in self.members.values()), default=None)

    def subscribed_topics(self) -> frozenset[str]:
        """The names of all topics that a member subscribes to."""
        return frozenset(name for member in self.members.values() for name in member.subscription)

    def heartbeat(
        self,
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
        """Join (epoch 0), stay (the epoch last given) or leave (-1).

        ``metadata``: name -> topic, for topics that exist. ``topics`` None: unchanged. What was asked for has been
        through :func:`check_heartbeat`.
        """
        self.tick(now)
        if member_epoch == LEAVE_EPOCH:
            self.leave(member_id)
            return HeartbeatAnswer(LEAVE_EPOCH, 0, None)
        member = self._member(member_id, member_epoch)
        is_full = topics is not None
        changed = member_id not in self.members
        if topics is not None and frozenset(topics) != member.subscription:
            member.subscription = frozenset(topics)
            changed = True
        if rack_id is not None:
            member.rack_id = rack_id
        member.client_id, member.client_host = client_id, client_host
        member.deadline = now + self.config.number("share.session.timeout.ms") / 1000
        self.members[member_id] = member
        if self._see_topics(metadata) or changed:
            self.epoch += 1
        is_new = self._initialize()
        if self._maybe_assign(now) and is_new:
            self.epoch += 1
            self._assign(now)
        target = self._target.get(member_id, frozenset())
        is_news = is_full or member_epoch == JOIN_EPOCH or target != member.assignment
        if member.epoch != self.assignment_epoch:
            member.previous_epoch = member.epoch
            member.epoch = self.assignment_epoch
        member.assignment = target
        interval = self.config.number("share.heartbeat.interval.ms")
        return HeartbeatAnswer(member.epoch, interval, target if is_news else None)

    def leave(self, member_id: str) -> None:
        """Take a member out. What it has locked stays locked."""
        if self.members.pop(member_id, None) is None:
            raise UnknownMemberIdError(f"no member {member_id} in share group {self.group_id}")
        self._target.pop(member_id, None)
        self.epoch += 1
        if not self.members:
            self._assigned_at = None

    def tick(self, now: float) -> list[str]:
        """Take out the members whose session is over; gives their ids."""
        gone = [member.member_id for member in self.members.values() if member.deadline <= now]
        for member_id in gone:
            self.leave(member_id)
        return gone

    def topics_changed(self, metadata: Mapping[str, TopicInfo], now: float) -> None:
        """Topics were created, deleted or grown."""
        if self._see_topics(metadata):
            self.epoch += 1
            self._maybe_assign(now)

    def _member(self, member_id: str, member_epoch: int) -> ShareMember:
        member = self.members.get(member_id)
        if member_epoch == JOIN_EPOCH:
            if member is None:
                if len(self.members) >= self.config.limits.max_size:
                    raise GroupMaxSizeReachedError(
                        f"share group {self.group_id} has its {self.config.limits.max_size} members"
                    )
                member = ShareMember(member_id)
            return member
        if member is None:
            raise UnknownMemberIdError(f"no member {member_id} in share group {self.group_id}")
        if member_epoch not in (member.epoch, member.previous_epoch):
            raise FencedMemberEpochError(f"member {member_id} is at epoch {member.epoch}, not {member_epoch}")
        return member

    def _see_topics(self, metadata: Mapping[str, TopicInfo]) -> bool:
        """Take up what is now known of the subscribed topics; whether that changed anything."""
        seen = {name: metadata[name] for name in self.subscribed_topics() if name in metadata}
        if seen == self._topics:
            return False
        self._topics = seen
        return True

    def _assign_at(self) -> float:
        if self._assigned_at is None:
            return float("-inf")
        return self._assigned_at + self.config.number("share.assignment.interval.ms") / 1000

    def _initialize(self) -> bool:
        """Whether there are partitions that no member ever had."""
        partitions = {(topic.topic_id, at) for topic in self._topics.values() for at in range(topic.partition_count)}
        new = partitions - self.initialized
        self.initialized |= new
        return bool(new)

    def _maybe_assign(self, now: float) -> bool:
        if not self.members or self.assignment_epoch >= self.epoch or now < self._assign_at():
            return False
        self._assign(now)
        return True

    def _assign(self, now: float) -> None:
        subscriptions = {
            member.member_id: {self._topics[name].topic_id for name in member.subscription if name in self._topics}
            for member in self.members.values()
        }
        counts = {topic.topic_id: topic.partition_count for topic in self._topics.values()}
        self._target = assign(subscriptions, counts, self._target)
        self.assignment_epoch = self.epoch
        self._assigned_at = now


def check_heartbeat(
    group_id: str, member_id: str, member_epoch: int, topics: Collection[str] | None, rack_id: str | None
) -> None:
    """InvalidRequestError for a heartbeat that no group could take."""
    if not member_id or len(member_id) > MAX_MEMBER_ID_LENGTH:
        raise InvalidRequestError(f"a member id has 1 to {MAX_MEMBER_ID_LENGTH} characters, not {len(member_id)}")
    for what, text in (("member id", member_id), ("group's name", group_id), ("rack id", rack_id)):
        if text is not None and not text.strip():
            raise InvalidRequestError(f"a {what} cannot be empty")
    if member_epoch < LEAVE_EPOCH:
        raise InvalidRequestError(f"member epoch {member_epoch}")
    if member_epoch == JOIN_EPOCH and not topics:
        raise InvalidRequestError("a member that joins names its topics")
