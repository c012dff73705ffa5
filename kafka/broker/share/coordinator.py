"""All share groups of a broker: membership (KIP-932), and each group's share partitions with their durable state.

What a broker's handlers call, next to ``sessions.py``:

    heartbeat ──> ShareGroupCoordinator.heartbeat ──> ShareGroup
    fetch, ack ──> ShareGroupCoordinator.partition ──> SharePartition ──persist──> ShareStateStore ──> state topics

Group names are shared with other types of groups; the caller checks that a name is not taken by another type.

Members make their own ids. There is no rebalance to take part in: an assignment holds from the moment it is sent, and
says only where to fetch; locks and acknowledgements do not depend on it. A change of members or topics raises the
group's epoch; the new assignment is computed with that heartbeat when the last one is older than the assignment
interval, else with the first heartbeat after it. A member's epoch is that of the assignment that it was last given.

Apache Kafka 4.3.0 begins at epoch 1, and initializes the state of partitions that are new to the group after an
assignment without them: the next heartbeat raises the epoch again and assigns them. Here both is one step, so that no
member waits for a heartbeat; the epochs are those that Kafka has afterwards. A group without members does not wait for
the interval.

Errors are Kafka's: InvalidRequestError (42), UnknownMemberIdError (25), FencedMemberEpochError (110),
GroupMaxSizeReachedError (81), GroupIdNotFoundError (69), NonEmptyGroupError (68).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from functools import partial
from typing import NamedTuple
from uuid import UUID

from kafka.broker.group_settings import BrokerValue, GroupConfig
from kafka.broker.groups.assignors import balance
from kafka.broker.groups.timers import DeadlineHeap
from kafka.broker.share.partition import SharePartition
from kafka.broker.share.sessions import check_member_id
from kafka.broker.share.state_store import ShareKey, ShareStateStore
from kafka.broker.share.states import ACKNOWLEDGED, ARCHIVED, ShareEvent
from kafka.broker.topics import TopicIdPartition, TopicInfo
from kafka.errors import (
    FencedMemberEpochError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    InvalidGroupIdError,
    InvalidRequestError,
    NonEmptyGroupError,
    UnknownMemberIdError,
)
from kafka.protocol.constants import JOIN_EPOCH, LEAVE_EPOCH

# -- the assignor ``simple`` (KIP-932, "Partition assignors") --------------------------------------------------------
#
# Every partition of a subscribed topic goes to at least one member, every member has a partition if there is one that
# it may have, and numbers differ by at most one where all members subscribe to the same topics. With more members than
# partitions several members share one; with fewer, each partition has one member. A member keeps its partitions where
# that is as even.


Assignment = dict[str, frozenset[TopicIdPartition]]


def assign_simple(
    subscriptions: Mapping[str, Set[UUID]],
    partition_counts: Mapping[UUID, int],
    current: Mapping[str, frozenset[TopicIdPartition]],
) -> Assignment:
    """Member id -> its partitions.

    ``subscriptions``: member id -> topic ids; ``partition_counts``: of the topics that exist; ``current``: the
    assignment so far. The same arguments give the same answer.
    """
    members = sorted(subscriptions)
    held: dict[str, set[TopicIdPartition]] = {member: set() for member in members}
    partitions = [
        (topic, number)
        for topic in sorted({topic for topics in subscriptions.values() for topic in topics}, key=lambda t: t.bytes)
        for number in range(partition_counts.get(topic, 0))
    ]
    if not members or not partitions:
        return {member: frozenset() for member in members}
    owners: dict[TopicIdPartition, list[str]] = {partition: [] for partition in partitions}
    for member in members:
        for partition in current.get(member, frozenset()):
            if partition in owners and partition[0] in subscriptions[member]:
                owners[partition].append(member)
    may_have = {
        topic: [member for member in members if topic in subscriptions[member]]
        for topic in {topic for topic, _ in partitions}
    }
    for partition in sorted(partitions, key=lambda one: not owners[one]):  # what no member has comes last
        owner = min(owners[partition] or may_have[partition[0]], key=lambda member: len(held[member]))
        held[owner].add(partition)
    balance(members, held, subscriptions)
    _partition_for_each(members, held, owners, subscriptions, partitions)
    return {member: frozenset(held[member]) for member in members}


def _partition_for_each(
    members: Sequence[str],
    held: dict[str, set[TopicIdPartition]],
    owners: Mapping[TopicIdPartition, Sequence[str]],
    subscriptions: Mapping[str, Set[UUID]],
    partitions: Sequence[TopicIdPartition],
) -> None:
    """Members without a partition share the one that they had, as long as that is as even; else the one with the
    fewest members."""
    given = dict.fromkeys(partitions, 1)  # members of each; so far one
    floor, extra = divmod(len(members), len(partitions))
    idle = [member for member in members if not held[member]]
    for may_keep in (True, False):
        for member in idle:
            fitting = [partition for partition in partitions if partition[0] in subscriptions[member]]
            if may_keep:
                fitting = [
                    partition
                    for partition in fitting
                    if member in owners[partition] and given[partition] < floor + (extra > 0)
                ]
            if fitting and not held[member]:
                chosen = min(fitting, key=lambda partition: given[partition])
                extra -= given[chosen] >= floor
                held[member].add(chosen)
                given[chosen] += 1


# -- one group -------------------------------------------------------------------------------------------------------


FIRST_EPOCH = 1
ASSIGNOR = "simple"


class ShareHeartbeat(NamedTuple):
    """A ShareGroupHeartbeat. ``epoch``: 0 joins, -1 leaves, any other is the one last given. ``topics`` None:
    unchanged."""

    member_id: str
    epoch: int
    topics: Collection[str] | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""

    def check(self, group_id: str) -> None:
        """InvalidRequestError for a heartbeat that no group could take."""
        check_member_id(self.member_id)
        for what, text in (("member id", self.member_id), ("group's name", group_id), ("rack id", self.rack_id)):
            if text is not None and not text.strip():
                raise InvalidRequestError(f"a {what} cannot be empty")
        if self.epoch < LEAVE_EPOCH:
            raise InvalidRequestError(f"member epoch {self.epoch}")
        if self.epoch == JOIN_EPOCH and not self.topics:
            raise InvalidRequestError("a member that joins names its topics")


class ShareHeartbeatResult(NamedTuple):
    """``assignment``: None when the member has it already."""

    member_epoch: int
    heartbeat_interval_ms: int
    assignment: frozenset[TopicIdPartition] | None


class ShareMember(NamedTuple):
    """One member at one time, as ShareGroupDescribe shows it. ``deadline``: when its session ends, in monotonic s."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscription: frozenset[str] = frozenset()
    epoch: int = 0
    previous_epoch: int = -1
    assignment: frozenset[TopicIdPartition] = frozenset()
    deadline: float = 0.0


class ShareGroup:
    """One share group. ``config`` may be replaced at any time; ``epoch``: the one that was stored last."""

    def __init__(self, group_id: str, config: GroupConfig, epoch: int = FIRST_EPOCH) -> None:
        self.group_id = group_id
        self.config = config
        self.epoch = epoch
        self.assignment_epoch = epoch
        self.members: dict[str, ShareMember] = {}
        self._target: dict[str, frozenset[TopicIdPartition]] = {}
        self._topics: dict[str, TopicInfo] = {}
        self._assigned_at: float | None = None
        self.initialized: set[TopicIdPartition] = set()
        """The partitions that the group has a state of, or will have with the first acknowledgement."""

    @property
    def state(self) -> str:
        """``Empty`` or ``Stable``, as Kafka's tools show it."""
        return "Stable" if self.members else "Empty"

    @property
    def next_deadline(self) -> float | None:
        """When to call :meth:`tick` next, in monotonic s."""
        return min((member.deadline for member in self.members.values()), default=None)

    def check_empty(self) -> None:
        """NonEmptyGroupError (68) while there are members."""
        if self.members:
            raise NonEmptyGroupError(f"share group {self.group_id} has members")

    def forget_topic(self, topic_id: UUID) -> None:
        """The group has no state of a topic any more."""
        self.initialized = {one for one in self.initialized if one[0] != topic_id}

    def subscribed_topics(self) -> frozenset[str]:
        """The names of all topics that a member subscribes to."""
        return frozenset(name for member in self.members.values() for name in member.subscription)

    def heartbeat(
        self, request: ShareHeartbeat, metadata: Mapping[str, TopicInfo], now: float
    ) -> ShareHeartbeatResult:
        """Join, stay or leave. ``metadata``: name -> topic, for topics that exist."""
        self.tick(now)
        member_id = request.member_id
        if request.epoch == LEAVE_EPOCH:
            self.leave(member_id)
            return ShareHeartbeatResult(LEAVE_EPOCH, 0, None)
        member = self._member(member_id, request.epoch)
        is_full = request.topics is not None
        subscription = member.subscription if request.topics is None else frozenset(request.topics)
        changed = member_id not in self.members or subscription != member.subscription
        self.members[member_id] = member = member._replace(
            subscription=subscription,
            rack_id=member.rack_id if request.rack_id is None else request.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            deadline=now + self.config.number("share.session.timeout.ms") / 1000,
        )
        if self._update_topics(metadata) or changed:
            self.epoch += 1
        is_new = self._initialize()
        if self._maybe_update_assignment(now) and is_new:
            self.epoch += 1
            self._assign(now)
        target = self._target.get(member_id, frozenset())
        is_news = is_full or request.epoch == JOIN_EPOCH or target != member.assignment
        if member.epoch != self.assignment_epoch:
            member = member._replace(previous_epoch=member.epoch, epoch=self.assignment_epoch)
        self.members[member_id] = member._replace(assignment=target)
        interval = self.config.number("share.heartbeat.interval.ms")
        return ShareHeartbeatResult(member.epoch, interval, target if is_news else None)

    def leave(self, member_id: str) -> None:
        """Remove a member. Its acquisition locks stay."""
        if self.members.pop(member_id, None) is None:
            raise UnknownMemberIdError(f"no member {member_id} in share group {self.group_id}")
        self._target.pop(member_id, None)
        self.epoch += 1
        if not self.members:
            self._assigned_at = None

    def tick(self, now: float) -> list[str]:
        """Remove the members whose session has timed out; returns their ids."""
        gone = [member.member_id for member in self.members.values() if member.deadline <= now]
        for member_id in gone:
            self.leave(member_id)
        return gone

    def topics_changed(self, metadata: Mapping[str, TopicInfo], now: float) -> None:
        """Topics were created, deleted or grown."""
        if self._update_topics(metadata):
            self.epoch += 1
            self._maybe_update_assignment(now)

    def _member(self, member_id: str, member_epoch: int) -> ShareMember:
        member = self.members.get(member_id)
        if member_epoch == JOIN_EPOCH:
            if member is None:
                max_size = int(self.config.broker("group.share.max.size"))
                if len(self.members) >= max_size:
                    raise GroupMaxSizeReachedError(f"share group {self.group_id} has its {max_size} members")
                member = ShareMember(member_id)
            return member
        if member is None:
            raise UnknownMemberIdError(f"no member {member_id} in share group {self.group_id}")
        if member_epoch not in (member.epoch, member.previous_epoch):
            raise FencedMemberEpochError(f"member {member_id} is at epoch {member.epoch}, not {member_epoch}")
        return member

    def _update_topics(self, metadata: Mapping[str, TopicInfo]) -> bool:
        """Store what is now known of the subscribed topics; whether that changed anything."""
        seen = {name: metadata[name] for name in self.subscribed_topics() if name in metadata}
        if seen == self._topics:
            return False
        self._topics = seen
        return True

    def _initialize(self) -> bool:
        """Whether there are partitions that no member ever had."""
        before = len(self.initialized)
        for topic in self._topics.values():
            self.initialized.update((topic.topic_id, at) for at in range(topic.partition_count))
        return len(self.initialized) > before

    def _maybe_update_assignment(self, now: float) -> bool:
        if not self.members or self.assignment_epoch >= self.epoch:
            return False
        interval_s = self.config.number("share.assignment.interval.ms") / 1000
        if self._assigned_at is not None and now < self._assigned_at + interval_s:
            return False
        self._assign(now)
        return True

    def _assign(self, now: float) -> None:
        subscriptions = {
            member.member_id: {self._topics[name].topic_id for name in member.subscription if name in self._topics}
            for member in self.members.values()
        }
        counts = {topic.topic_id: topic.partition_count for topic in self._topics.values()}
        self._target = assign_simple(subscriptions, counts, self._target)
        self.assignment_epoch = self.epoch
        self._assigned_at = now


class ShareGroupCoordinator:
    """Share groups by name. ``configs``: what was set for each group, and is read again by :meth:`configure`."""

    def __init__(
        self, store: ShareStateStore, broker: BrokerValue, configs: Mapping[str, Mapping[str, str]] | None = None
    ) -> None:
        self._broker = broker
        self._store = store
        self._configs = {name: GroupConfig(broker, values) for name, values in (configs or {}).items()}
        self._partitions: dict[ShareKey, SharePartition] = {}
        self._deadlines: DeadlineHeap[ShareKey | str] = DeadlineHeap()
        self.groups: dict[str, ShareGroup] = {
            group_id: ShareGroup(group_id, self.config(group_id), epoch) for group_id, epoch in store.groups().items()
        }

    def config(self, group_id: str) -> GroupConfig:
        """The group's settings; the group need not exist."""
        found = self._configs.get(group_id)
        return found if found is not None else GroupConfig(self._broker)

    def configure(self, group_id: str, overrides: Mapping[str, str]) -> None:
        """Put a group's settings in force, for its members and its partitions. They are checked and durable already."""
        config = self._configs[group_id] = GroupConfig(self._broker, overrides)
        group = self.groups.get(group_id)
        if group is not None:
            group.config = config
            self._deadlines.at_latest(group_id, group.next_deadline)
        settings = config.partition_settings()
        for key, partition in self._partitions.items():
            if key.group_id == group_id:
                partition.configure(settings)

    # -- membership --------------------------------------------------------------------------------------------------

    def heartbeat(
        self, group_id: str, request: ShareHeartbeat, metadata: Mapping[str, TopicInfo], now: float
    ) -> ShareHeartbeatResult:
        """A member's heartbeat, which has been checked (see :meth:`ShareGroup.heartbeat`); the first join makes the
        group."""
        group = self.groups.get(group_id)
        if group is None:
            if request.epoch != JOIN_EPOCH:
                raise GroupIdNotFoundError(f"no share group {group_id}")
            group = ShareGroup(group_id, self.config(group_id))
        before = group.epoch
        answer = group.heartbeat(request, metadata, now)
        self.groups[group_id] = group
        self._deadlines.at_latest(group_id, group.next_deadline)
        if group.epoch != before and request.epoch != LEAVE_EPOCH:
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
        self.describe(group_id).check_empty()
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
        self, group_id: str, topic_id: UUID, number: int, resolve_start: Callable[[GroupConfig], int]
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
            self._store.attach(key, found)
        return found

    def loaded(self, group_id: str, topic_id: UUID, number: int) -> SharePartition | None:
        """The share partition if it was fetched from since the start, else None: an acknowledgement gets error 3."""
        return self._partitions.get(ShareKey(group_id, topic_id, number))

    def place_and_done(self, group_id: str, topic_id: UUID, number: int) -> tuple[int, int] | None:
        """Where the group is on a partition, and how many offsets behind that are done (KIP-1226); of one that was not
        fetched from since the start, as its durable state says. None without any."""
        key = ShareKey(group_id, topic_id, number)
        found = self._partitions.get(key)
        if found is not None:
            return found.start_offset, found.delivery_complete_count
        state = self._store.load(key)
        if state is None:
            return None
        done = sum(each.last - each.first + 1 for each in state.ranges if each.state in (ACKNOWLEDGED, ARCHIVED))
        return state.start_offset, done

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
        if group is not None:
            group.check_empty()
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
        group.check_empty()
        self._forget([key for key in self.keys() if key.group_id == group_id and key.topic_id == topic_id])
        group.forget_topic(topic_id)

    def initialized(self, group_id: str) -> list[tuple[UUID, int]]:
        """The partitions of a group's offsets, sorted: what it has fetched, was assigned or was given offsets for."""
        group = self.groups.get(group_id)
        found = set(group.initialized) if group is not None else set()
        found |= {(key.topic_id, key.partition) for key in self.keys() if key.group_id == group_id}
        return sorted(found, key=lambda one: (one[0].bytes, one[1]))

    def topic_deleted(self, topic_id: UUID) -> None:
        """Forget a topic in every group."""
        for group in self.groups.values():
            group.forget_topic(topic_id)
        self._forget([key for key in self.keys() if key.topic_id == topic_id], self._store.forget)

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
        """Act on timeouts of members' sessions and of locks. Returns the share partitions where something happened."""
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

    def _forget(self, keys: Iterable[ShareKey], delete: Callable[[ShareKey], None] | None = None) -> None:
        for key in keys:
            self._partitions.pop(key, None)
            self._deadlines.discard(key)
            (delete or self._store.delete)(key)
