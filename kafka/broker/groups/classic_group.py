"""One classic group (KIP-62, 345, 394, 814): its members, and its way from one generation to the next.

    Empty ──> PreparingRebalance ──> CompletingRebalance ──> Stable        Dead from every state
      ^             │      ^                  │                 │
      └─────────────┘      └──────────────────┴─────────────────┘

    PreparingRebalance     until all members have joined, or the timeout: a new generation
    CompletingRebalance    until the leader has sent the assignment
    Stable                 the assignment was stored before any member gets it

A waiting JoinGroup or SyncGroup request is known by its callback, which is opaque here: the coordinator takes what is
completed with :meth:`ClassicGroup.take_completed_requests` after each call. Every request of a member renews its
session, and while its request waits its session does not time out. The timeouts are Kafka's: the longest rebalance
timeout of all members for the joins and again for the syncs; for the first join of an empty group a short delay, longer
while members join. What may be committed by which member is decided here too; the offsets are ``offset_store.py``'s.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from enum import Enum
from typing import Any, Final, NamedTuple

from kafka.broker.groups.assignors import java_order
from kafka.broker.groups.timers import GroupTimeout, MemberTimers
from kafka.core.states import States
from kafka.errors import (
    BrokerResponseError,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    KafkaProtocolError,
    KafkaStorageError,
    MemberIdRequiredError,
    NonEmptyGroupError,
    NotCoordinatorError,
    RebalanceInProgressError,
    UnknownError,
    UnknownMemberIdError,
)
from kafka.protocol.consumer_protocol import PROTOCOL_TYPE, ConsumerProtocolSubscription, deserialize


class ClassicState(Enum):
    """A classic group's state; the value is the name that Kafka's tools show."""

    EMPTY = "Empty"
    """No members; offsets may be there."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Waiting for the members to join again."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """Waiting for the leader's assignment."""
    STABLE = "Stable"
    """Every member has its assignment, or can fetch it."""
    DEAD = "Dead"
    """Deleted, or turned into a group of the other kind."""


CLASSIC_TRANSITIONS: Final[Mapping[ClassicState, frozenset[ClassicState]]] = {
    ClassicState.EMPTY: frozenset({ClassicState.PREPARING_REBALANCE, ClassicState.DEAD}),
    ClassicState.PREPARING_REBALANCE: frozenset(
        {ClassicState.COMPLETING_REBALANCE, ClassicState.EMPTY, ClassicState.DEAD}
    ),
    ClassicState.COMPLETING_REBALANCE: frozenset(
        {ClassicState.STABLE, ClassicState.PREPARING_REBALANCE, ClassicState.DEAD}
    ),
    ClassicState.STABLE: frozenset({ClassicState.PREPARING_REBALANCE, ClassicState.DEAD}),
    ClassicState.DEAD: frozenset(),
}


STATES_THAT_REBALANCE: Final = frozenset(
    state for state, following in CLASSIC_TRANSITIONS.items() if ClassicState.PREPARING_REBALANCE in following
)


NO_MEMBER: Final = ""

Protocols = tuple[tuple[str, bytes], ...]
"""Names and metadata, in the order of the member's preference."""


class ClassicJoinRequest(NamedTuple):
    """A JoinGroup request. ``needs_known_id``: a member without an id gets one, with which it has to join again
    (version 4); ``may_skip_assignment``: its leader understands that there is nothing to assign (version 9,
    KIP-814)."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: Protocols
    session_timeout_ms: int
    rebalance_timeout_ms: int
    needs_known_id: bool = True
    may_skip_assignment: bool = True


class JoinGroupResult(NamedTuple):
    """``members``: id, instance id and metadata of each, for the leader."""

    error: type[BrokerResponseError] | None = None
    member_id: str = NO_MEMBER
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_MEMBER
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()


class ClassicSyncRequest(NamedTuple):
    """A SyncGroup request."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: dict[str, bytes]


class SyncGroupResult(NamedTuple):
    """A member's assignment."""

    error: type[BrokerResponseError] | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class ClassicMember:
    """One member. ``awaiting_join_callback``, ``awaiting_sync_callback``: of its waiting request, or None;
    ``is_new``: it has not been part of a generation yet. Times in ms."""

    __slots__ = (
        "assignment",
        "awaiting_join_callback",
        "awaiting_sync_callback",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        protocol_type: str,
        protocols: Protocols,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.assignment = assignment
        self.is_new = False
        # Callbacks get the response; while one is set, the session does not time out (see has_waiting_request).
        self.awaiting_join_callback: Any = None
        self.awaiting_sync_callback: Any = None

    @property
    def has_waiting_request(self) -> bool:
        """Its session does not time out meanwhile; but a new member that waits for too long is removed."""
        return not self.is_new and (self.awaiting_join_callback is not None or self.awaiting_sync_callback is not None)

    def metadata(self, protocol: str | None) -> bytes:
        """Its metadata for a protocol."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    def supports(self, protocol: str) -> bool:
        return any(name == protocol for name, _ in self.protocols)

    def vote(self, candidates: set[str]) -> str:
        """Its preferred protocol among those that all members support."""
        return next(name for name, _ in self.protocols if name in candidates)

    def with_id(self, member_id: str) -> ClassicMember:
        """The same static member under a new id, without the old one's requests."""
        member = copy.copy(self)
        member.member_id = member_id
        member.is_new = False
        member.awaiting_join_callback = member.awaiting_sync_callback = None
        return member


class ClassicRoster:
    """The members of one classic group: who they are, who leads, which protocol they share."""

    def __init__(self) -> None:
        self.members: dict[str, ClassicMember] = {}
        self.static: dict[str, str] = {}
        """Instance id -> member id."""
        self.pending: set[str] = set()
        """Ids that were sent to members that have to join again with them (MEMBER_ID_REQUIRED)."""
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.subscribed: frozenset[str] | None = None
        """The topics that the members are subscribed to; None: not known."""

    @property
    def is_of_consumers(self) -> bool:
        return self.protocol_type == PROTOCOL_TYPE

    @property
    def rebalance_timeout_s(self) -> float:
        """The longest of all members'."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0) / 1000

    def in_kafka_order(self) -> list[ClassicMember]:
        """The members as Kafka lists them."""
        return [self.members[member_id] for member_id in java_order(self.members)]

    def is_subscribed_to(self, topic: str) -> bool:
        return self.is_of_consumers if self.subscribed is None else topic in self.subscribed

    def add_member(self, member: ClassicMember) -> None:
        """Add a member; the first one is the leader and decides the group's protocol type."""
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        self.pending.discard(member.member_id)

    def remove_member(self, member_id: str) -> ClassicMember:
        """Remove a member; another one becomes the leader if it was the leader."""
        member = self.members.pop(member_id)
        if member.instance_id is not None:
            self.static.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(java_order(self.members)), None)
        return member

    def shares_protocol(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols has one that all members support."""
        return protocol_type == self.protocol_type and any(
            all(member.supports(name) for member in self.members.values()) for name, _ in protocols
        )

    def member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """The member; UnknownMemberIdError (25), FencedInstanceIdError (82)."""
        if instance_id is not None:
            known = self.static.get(instance_id)
            if known is None:
                raise UnknownMemberIdError("")
            if known != member_id:
                raise FencedInstanceIdError("")
        if member_id not in self.members:
            raise UnknownMemberIdError("")
        return self.members[member_id]

    def vote(self) -> str:
        """The protocol, among those that all members support, that most members prefer; of equals, any."""
        candidates = set.intersection(*({name for name, _ in one.protocols} for one in self.members.values()))
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return max(votes, key=votes.__getitem__)

    def select_protocol(self) -> None:
        """Take the protocol that the members vote for."""
        self.protocol_name = self.vote()
        self.subscribed = self.subscription()

    def subscription(self) -> frozenset[str] | None:
        """The topics of all members, as far as they can be read."""
        if not self.is_of_consumers:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            try:
                data = member.metadata(self.protocol_name)
                topics.update(deserialize(ConsumerProtocolSubscription, data, null_is_empty=True).topics)
            except KafkaProtocolError:
                return None
        return frozenset(topics)

    def members_for_leader(self) -> tuple[tuple[str, str | None, bytes], ...]:
        """Id, instance id and metadata of each."""
        return tuple(
            (member.member_id, member.instance_id, member.metadata(self.protocol_name))
            for member in self.in_kafka_order()
        )


EMPTY, PREPARING, COMPLETING, STABLE, DEAD = ClassicState

CompletedRequest = tuple[Any, "JoinGroupResult | SyncGroupResult"]
"""A request's callback and its result."""


class ClassicLimits(NamedTuple):
    """``group.max.size`` and ``group.initial.rebalance.delay.ms``."""

    max_size: int = 2**31 - 1
    initial_delay_ms: int = 3000


NEW_MEMBER_JOIN_S: Final = 300.0
"""How long a new member may wait in its first join without another request: clients without a known id may be gone."""

Store = Callable[["ClassicGroup", Mapping[str, bytes]], None]


class ClassicGroup(ClassicRoster):
    """One group. ``store`` writes the group down with the assignments given, or raises KafkaStorageError (56);
    ``new_member_id`` makes an id from a client id or an instance id."""

    kind: Final = "classic"

    def __init__(
        self,
        group_id: str,
        limits: Callable[[], ClassicLimits],
        timers: MemberTimers,
        store: Store,
        new_member_id: Callable[[str], str],
        state: ClassicState = EMPTY,
    ) -> None:
        super().__init__()
        self.group_id = group_id
        self.generation = 0
        self.changed_at_ms = -1
        """When the group was last stored, in epoch ms."""
        self._state = States(CLASSIC_TRANSITIONS, state, f"classic group {group_id}")
        self._previous = state
        self._limits = limits
        self._timers = timers
        self._store = store
        self._new_member_id = new_member_id
        # Members of the generation that have not sent SyncGroup yet.
        self._members_to_sync: set[str] = set()
        self._new_member_added = False
        self._delay_left_ms: int | None = None
        """By how much an empty group's first join phase may still be extended; None: it is no such phase."""
        self._completed_requests: list[CompletedRequest] = []

    @property
    def state(self) -> ClassicState:
        return self._state.now

    @property
    def is_empty(self) -> bool:
        """No members; pending ones do not count."""
        return self.state is EMPTY

    def restore(
        self, generation: int, leader: str | None, protocol_type: str | None, protocol_name: str | None, stored_ms: int
    ) -> None:
        """Set what the group's record says, after its members were added."""
        self.generation = generation
        self.leader = leader
        self.protocol_type = protocol_type
        if self.members:
            self.select_protocol()
        self.protocol_name = protocol_name
        self.changed_at_ms = stored_ms

    def adopt_members(self, members: Iterable[ClassicMember], generation: int) -> None:
        """Become the successor of a consumer group with these members and this epoch."""
        for member in members:
            self.add_member(member)
        self.generation = generation
        self.select_protocol()

    def set_assignments(self, assignments: Mapping[str, bytes]) -> None:
        """Give each member its assignment, by member id."""
        for member in self.members.values():
            member.assignment = assignments[member.member_id]

    def mark_stored(self, now_ms: int) -> None:
        """The group is being written, at this time of day."""
        self.changed_at_ms = now_ms

    def take_completed_requests(self) -> list[CompletedRequest]:
        """The requests that were completed since the last call."""
        taken, self._completed_requests = self._completed_requests, []
        return taken

    # -- the join phase ---------------------------------------------------------------------------------------------

    def prepare_rebalance(self, now: float) -> None:
        """Have all members join again."""
        if self.state is COMPLETING:
            self._reset_assignments(RebalanceInProgressError, now)
        self._members_to_sync.clear()
        self._timers.cancel(GroupTimeout.SYNC)
        is_initial = self.state is EMPTY
        self._enter(PREPARING)
        if is_initial:
            delay_ms = self._limits().initial_delay_ms
            self._delay_left_ms = max(round(self.rebalance_timeout_s * 1000) - delay_ms, 0)
            self._timers.set(GroupTimeout.JOIN, "", now + delay_ms / 1000)
            if delay_ms == 0:
                self._on_join_timeout(now)
        elif self._all_joined:
            self._complete_join(now)
        else:
            self._timers.set(GroupTimeout.JOIN, "", now + self.rebalance_timeout_s)

    def _rebalance_or_complete(self, now: float) -> None:
        if self.state in STATES_THAT_REBALANCE:
            self.prepare_rebalance(now)
        else:
            self._maybe_complete(now)

    @property
    def _all_joined(self) -> bool:
        return not self.pending and all(member.awaiting_join_callback is not None for member in self.members.values())

    def _maybe_complete(self, now: float) -> None:
        if self.state is PREPARING and self._previous is not EMPTY and self._all_joined:
            self._complete_join(now)

    def _on_join_timeout(self, now: float) -> None:
        """Complete the join phase; but extend an empty group's first one while new members join."""
        if self.state is not PREPARING:
            return
        if self._new_member_added and self._delay_left_ms:
            self._new_member_added = False
            delay_ms = min(self._limits().initial_delay_ms, self._delay_left_ms)
            self._delay_left_ms -= delay_ms
            self._timers.set(GroupTimeout.JOIN, "", now + delay_ms / 1000)
        else:
            self._complete_join(now)

    def _complete_join(self, now: float) -> None:
        self._timers.cancel(GroupTimeout.JOIN)
        self._delay_left_ms, self._new_member_added = None, False
        for member in list(self.members.values()):
            if member.awaiting_join_callback is None and member.instance_id is None:  # static ones keep their place
                self._remove(member.member_id)
        if self.members and not self._elect_leader():
            self._timers.set(GroupTimeout.JOIN, "", now + self.rebalance_timeout_s)
            return
        self.generation += 1
        self._members_to_sync.clear()
        if not self.members:
            self.protocol_name, self.leader = None, None
            self.subscribed = self.subscription()
            self._enter(EMPTY)
            with suppress(KafkaStorageError):  # after a restart the members' sessions time out, with the same result
                self._store(self, {})
            return
        self.select_protocol()
        self._enter(COMPLETING)
        for member in self.members.values():
            self._complete_join_request(member, self._join_result(member))
            self._renew_session(member, now)
            member.is_new = False
            self._members_to_sync.add(member.member_id)
        self._timers.set(GroupTimeout.SYNC, "", now + self.rebalance_timeout_s)

    def _elect_leader(self) -> bool:
        """Elect a leader that has joined; False when no member has."""
        leader = self.members.get(self.leader or "")
        if leader is None or leader.awaiting_join_callback is None:
            leader = next((one for one in self.in_kafka_order() if one.awaiting_join_callback is not None), None)
            if leader is None:
                return False
        self.leader = leader.member_id
        return True

    # -- the sync phase -------------------------------------------------------------------------------------------

    def sync(self, request: ClassicSyncRequest, callback: Any, now: float) -> None:
        """A SyncGroup request; the leader's has the assignments of all members."""
        try:
            member = self._syncing_member(request)
        except BrokerResponseError as error:
            self._complete(callback, SyncGroupResult(type(error)))
            return
        self._members_to_sync.discard(member.member_id)
        if not self._members_to_sync:
            self._timers.cancel(GroupTimeout.SYNC)
        if self.state is STABLE:
            self._complete(callback, self._sync_result(member))
            return
        self._complete_sync_request(member, SyncGroupResult(RebalanceInProgressError))
        member.awaiting_sync_callback = callback
        if member.member_id == self.leader:
            self._assign({one: request.assignments.get(one, b"") for one in self.members}, now)

    def _syncing_member(self, request: ClassicSyncRequest) -> ClassicMember:
        if self.state is EMPTY:
            raise UnknownMemberIdError("")
        if self.state is DEAD:
            raise CoordinatorNotAvailableError("")
        member = self._member_of_generation(request.member_id, request.instance_id, request.generation)
        for asked, own in ((request.protocol_type, self.protocol_type), (request.protocol_name, self.protocol_name)):
            if asked is not None and own is not None and asked != own:
                raise InconsistentGroupProtocolError("")
        if self.state is PREPARING:
            raise RebalanceInProgressError("")
        return member

    def _assign(self, assignments: Mapping[str, bytes], now: float) -> None:
        try:
            self._store(self, assignments)
        except KafkaStorageError:
            self._reset_assignments(NotCoordinatorError, now)
            self.prepare_rebalance(now)
            return
        self.set_assignments(assignments)
        self._enter(STABLE)
        for member in self.members.values():
            if member.awaiting_sync_callback is not None:
                self._complete_sync_request(member, self._sync_result(member))
                self._renew_session(member, now)

    def _reset_assignments(self, error: type[BrokerResponseError], now: float) -> None:
        for member in self.members.values():
            member.assignment = b""
            if member.awaiting_sync_callback is not None:
                self._complete_sync_request(member, SyncGroupResult(error))
                self._renew_session(member, now)

    def _on_sync_timeout(self, now: float) -> None:
        if self.state in (COMPLETING, STABLE) and self._members_to_sync:
            for member_id in sorted(self._members_to_sync):
                self._remove(member_id)
            self.prepare_rebalance(now)

    # -- helpers ------------------------------------------------------------------------------------------------

    def _enter(self, state: ClassicState) -> None:
        self._previous = self.state
        self._state.enter(state)

    def _remove(self, member_id: str) -> None:
        member = self.remove_member(member_id)
        self._complete_join_request(member, JoinGroupResult(UnknownMemberIdError))
        self._complete_sync_request(member, SyncGroupResult(UnknownMemberIdError))
        self._members_to_sync.discard(member_id)
        self._timers.cancel(GroupTimeout.SESSION, member_id)

    def _renew_session(self, member: ClassicMember, now: float) -> None:
        self._timers.set(GroupTimeout.SESSION, member.member_id, now + member.session_timeout_ms / 1000)

    def _join_result(self, member: ClassicMember) -> JoinGroupResult:
        """The leader gets all members."""
        members = self.members_for_leader() if member.member_id == self.leader else ()
        return JoinGroupResult(
            None, member.member_id, self.generation, self.protocol_type, self.protocol_name, self.leader or "",
            False, members,
        )  # fmt: skip

    def _sync_result(self, member: ClassicMember) -> SyncGroupResult:
        return SyncGroupResult(None, self.protocol_type, self.protocol_name, member.assignment)

    def _complete(self, callback: Any, answer: JoinGroupResult | SyncGroupResult) -> None:
        """``callback``: None for no request."""
        if callback is not None:
            self._completed_requests.append((callback, answer))

    def _complete_join_request(self, member: ClassicMember, answer: JoinGroupResult) -> None:
        self._complete(member.awaiting_join_callback, answer)
        member.awaiting_join_callback = None

    def _complete_sync_request(self, member: ClassicMember, answer: SyncGroupResult) -> None:
        self._complete(member.awaiting_sync_callback, answer)
        member.awaiting_sync_callback = None

    # -- join --------------------------------------------------------------------------------------------------------

    def join(self, request: ClassicJoinRequest, callback: Any, now: float) -> None:
        """A JoinGroup request, whose session timeout and group id have been checked."""
        if not self._has_room_for(request.member_id):
            self.pending.discard(request.member_id)
            if request.member_id in self.members:
                self._remove(request.member_id)
            self._complete(callback, JoinGroupResult(GroupMaxSizeReachedError))
            return
        try:
            self._join(request, callback, now)
        except BrokerResponseError as error:
            self._complete(callback, JoinGroupResult(type(error), request.member_id))

    def _join(self, request: ClassicJoinRequest, callback: Any, now: float) -> None:
        if self.state is DEAD:
            raise CoordinatorNotAvailableError("")
        if not self._supports(request.protocol_type, request.protocols):
            raise InconsistentGroupProtocolError("")
        if not request.member_id:
            self._join_new_member(request, callback, now)
        elif request.member_id in self.pending:
            if request.instance_id is not None:  # ids are given out to dynamic members only
                raise UnknownError("")
            self._add(request, request.member_id, callback, now)
        else:
            self._join_known_member(request, callback, now)

    def _join_new_member(self, request: ClassicJoinRequest, callback: Any, now: float) -> None:
        member_id = self._new_member_id(request.client_id if request.instance_id is None else request.instance_id)
        if request.instance_id is not None:
            old = self.static.get(request.instance_id)
            if old is None:
                self._add(request, member_id, callback, now)
            else:
                self._replace_static(request, old, member_id, callback, now)
        # The id alone creates the group: it is listed as Empty, can be deleted, and its name is taken. An id that
        # no client joins with holds up every rebalance for its session timeout (seen on 4.3.0).
        elif request.needs_known_id:
            self.pending.add(member_id)
            self._timers.set(GroupTimeout.SESSION, member_id, now + request.session_timeout_ms / 1000)
            self._complete(callback, JoinGroupResult(MemberIdRequiredError, member_id))
        else:
            self._add(request, member_id, callback, now)

    def _join_known_member(self, request: ClassicJoinRequest, callback: Any, now: float) -> None:
        member = self.member(request.member_id, request.instance_id)
        is_same = member.protocols == request.protocols
        is_leader = member.member_id == self.leader
        if is_same and (self.state is COMPLETING or (self.state is STABLE and not is_leader)):
            # It repeats its request, probably because the response was lost: nothing changes.
            self._complete(callback, self._join_result(member))
        else:
            self._update(member, request, callback)
            self._rebalance_or_complete(now)

    def _add(self, request: ClassicJoinRequest, member_id: str, callback: Any, now: float) -> None:
        member = ClassicMember(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.protocol_type,
            request.protocols,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
        )
        member.is_new = True
        member.awaiting_join_callback = callback
        if self.state is PREPARING and self._previous is EMPTY:
            self._new_member_added = True
        self.add_member(member)
        self._timers.set(GroupTimeout.SESSION, member_id, now + NEW_MEMBER_JOIN_S)
        self._rebalance_or_complete(now)

    def _update(self, member: ClassicMember, request: ClassicJoinRequest, callback: Any) -> None:
        if member.awaiting_join_callback is not callback:
            # The client abandoned the earlier request. Complete it all the same: its connection waits for it.
            self._complete_join_request(member, JoinGroupResult(RebalanceInProgressError, member.member_id))
        member.protocols = request.protocols
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.awaiting_join_callback = callback

    def _replace_static(self, request: ClassicJoinRequest, old_id: str, new_id: str, callback: Any, now: float) -> None:
        """A static member is back under a new id. While the group is stable and stays with its protocol, that is all:
        it takes over its assignment, and no other member notices."""
        leader_before = self.leader
        old = self.members.pop(old_id)
        self._complete_join_request(old, JoinGroupResult(FencedInstanceIdError, old_id))
        self._complete_sync_request(old, SyncGroupResult(FencedInstanceIdError))
        member = self.members[new_id] = old.with_id(new_id)
        self.static[request.instance_id or ""] = new_id
        if self.leader == old_id:
            self.leader = new_id
        self._members_to_sync.discard(old_id)
        self._timers.cancel(GroupTimeout.SESSION, old_id)
        self._timers.set(GroupTimeout.SESSION, new_id, now + member.session_timeout_ms / 1000)
        self._update(member, request, callback)
        if self.state is COMPLETING:
            self.prepare_rebalance(now)
        elif self.state is not STABLE:
            self._maybe_complete(now)
        elif self.vote() != self.protocol_name:
            self._rebalance_or_complete(now)
        else:
            try:
                self._store(self, {one.member_id: one.assignment for one in self.members.values()})
            except KafkaStorageError:
                del self.members[new_id]
                self.members[old_id] = old
                self.static[request.instance_id or ""] = old_id
                self.leader = leader_before
                self._timers.cancel(GroupTimeout.SESSION, new_id)
                self._timers.set(GroupTimeout.SESSION, old_id, now + old.session_timeout_ms / 1000)
                member.awaiting_join_callback = None
                self._complete(callback, JoinGroupResult(NotCoordinatorError, new_id))
                return
            answer = self._join_result(member)
            if request.may_skip_assignment:
                answer = answer._replace(skip_assignment=self.leader == new_id)
            else:
                # The response names the leader by its earlier id, so that this client does not compute an assignment.
                answer = answer._replace(leader=leader_before or "", members=())
            self._complete_join_request(member, answer)

    def _has_room_for(self, member_id: str) -> bool:
        max_size = self._limits().max_size
        if self.state is PREPARING:
            member = self.members.get(member_id)
            joined = sum(one.awaiting_join_callback is not None for one in self.members.values())
            return (member is not None and member.awaiting_join_callback is not None) or joined < max_size
        return self.state in (EMPTY, DEAD) or member_id in self.members or len(self.members) < max_size

    def _supports(self, protocol_type: str, protocols: Protocols) -> bool:
        if self.state is EMPTY:
            return bool(protocol_type and protocols)
        return self.shares_protocol(protocol_type, protocols)

    # -- heartbeat, leave, time --------------------------------------------------------------------------------------

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: float) -> None:
        """Keep a member's session; RebalanceInProgressError (27) while all members have to join again, or why it is no
        member of this generation."""
        if self.state is DEAD:
            raise CoordinatorNotAvailableError("")
        self._renew_session(self._member_of_generation(member_id, instance_id, generation), now)
        if self.state is PREPARING:
            raise RebalanceInProgressError("")

    def leave(self, member_id: str, instance_id: str | None) -> None:
        """Take one member out; the caller ends a request that takes several out with :meth:`members_left`. A static
        one may be named by its instance id alone."""
        if not member_id:
            if instance_id is None or instance_id not in self.static:
                raise UnknownMemberIdError("")
            member_id = self.static[instance_id]
        elif member_id in self.pending:
            self.pending.discard(member_id)
            self._timers.cancel(GroupTimeout.SESSION, member_id)
            return
        else:
            self.member(member_id, instance_id)
        self._remove(member_id)

    def members_left(self, now: float) -> None:
        """Rebalance after members have left."""
        if self.state in (STABLE, COMPLETING):
            self.prepare_rebalance(now)
        elif self.state is PREPARING:
            self._maybe_complete(now)

    def on_timeout(self, kind: GroupTimeout, member_id: str, now: float) -> None:
        """A timeout has passed."""
        if kind is GroupTimeout.JOIN:
            self._on_join_timeout(now)
        elif kind is GroupTimeout.SYNC:
            self._on_sync_timeout(now)
        elif kind is GroupTimeout.SESSION:
            self._on_session_timeout(member_id, now)

    def _on_session_timeout(self, member_id: str, now: float) -> None:
        member = self.members.get(member_id)
        if member_id in self.pending:
            self.pending.discard(member_id)
        elif member is None or member.has_waiting_request:
            return
        else:
            self._remove(member_id)
            if self.state in (STABLE, COMPLETING):
                self.prepare_rebalance(now)
                return
        if self.state is PREPARING and self._all_joined:
            self._complete_join(now)

    def close(self, error: type[BrokerResponseError] = CoordinatorNotAvailableError) -> None:
        """The group is deleted or becomes a consumer group. Waiting requests get ``error``."""
        for member in self.members.values():
            self._complete_join_request(member, JoinGroupResult(error, member.member_id))
            self._complete_sync_request(member, SyncGroupResult(error))
        self._timers.cancel_all()
        self._enter(DEAD)

    def resume(self, now: float) -> None:
        """The group was loaded or converted: start the session timeout of every member."""
        for member in self.members.values():
            self._renew_session(member, now)
        if len(self.members) > self._limits().max_size:
            self.prepare_rebalance(now)

    # -- offsets -----------------------------------------------------------------------------------------------------

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, transactional: bool, now: float
    ) -> None:
        """Raise the error of an offset commit that is not allowed. A commit renews the member's session."""
        if self.state is DEAD:
            raise CoordinatorNotAvailableError("")
        if generation < 0 and self.state is EMPTY:
            return
        if generation >= 0 or member_id or instance_id is not None:
            self._member_of_generation(member_id, instance_id, generation)
        elif not transactional:
            raise UnknownMemberIdError("")
        if not transactional:
            if self.state is COMPLETING:
                raise RebalanceInProgressError("")
            member = self.members.get(member_id)
            if member is not None:
                self._renew_session(member, now)

    def check_offset_delete(self) -> None:
        """Raise the error if none of its offsets may be deleted."""
        if self.state is DEAD:
            raise GroupIdNotFoundError("")
        if not self.is_empty and not self.is_of_consumers:
            raise NonEmptyGroupError("")

    def _member_of_generation(self, member_id: str, instance_id: str | None, generation: int) -> ClassicMember:
        member = self.member(member_id, instance_id)
        if generation != self.generation:
            raise IllegalGenerationError("")
        return member

