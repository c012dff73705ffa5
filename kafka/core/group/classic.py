"""A member of a classic group (JoinGroup, SyncGroup, Heartbeat, LeaveGroup; the assignor runs in the leader).

    UNJOINED --JoinGroup--> JOINING --answer--> [ASSIGNING] --SyncGroup--> SYNCING --answer--> STABLE
       ^                       |                (a leader that knows too little of the topics)    |
       +---- an error, or the group rebalances: once more ------------------------------------------------+
    leave(), subscribe(nothing): LEAVING --answer--> LEFT, or UNJOINED until there is something to read
    FATAL: another process has this ``group_instance_id``, the group's name cannot be, ...

What holds at every step:

* What is owned without a generation is lost: before anything else, :class:`Lose` says so. A generation is gone when the
  coordinator says so, when nothing was heard from it for the session's time-out (it thinks that we are dead, and gives
  our partitions away), or when the user did not poll for ``max_poll_interval``: then the member leaves by itself.
* Before it joins again an eager member gives up everything; a cooperative one only topics that it no longer wants, and
  after the answer what that lacks, and then it joins once more so that others get it (KIP-429).
* There is one request at a time: the broker reads no other from a connection before it has answered. A join or sync
  that waits keeps the session alive by itself; while the user carries something out, heartbeats do.

Static members (KIP-345) never ask to leave; their session runs out, or they come back. Which error leads where is in
the tables of :class:`ClassicErrorAction`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from enum import Enum
from math import inf
from typing import Final

from kafka.core.connection import ByVersion
from kafka.core.group.assignors.base import Assignor, GroupMember, RebalanceProtocol
from kafka.core.group.machine import (
    NO_GENERATION,
    POLL_CHECK_S,
    Assign,
    AssignmentStep,
    ForgetCoordinator,
    GroupEffect,
    GroupMachine,
    GroupSubscription,
    InFlightGroupRequest,
    Left,
    Lose,
    NeedMetadata,
    ReportError,
    Revoke,
    SendToCoordinator,
    TopicSnapshot,
)
from kafka.core.group.protocol import (
    MemberAssignment,
    MemberSubscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from kafka.core.retry import Backoff, ErrorTable
from kafka.errors import (
    BrokerResponseError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    CorrelationIdError,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    GroupMaxSizeReachedError,
    IllegalArgumentError,
    IllegalGenerationError,
    IllegalStateError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidMetadataError,
    InvalidRequestError,
    InvalidSessionTimeoutError,
    KafkaError,
    KafkaProtocolError,
    KafkaTimeoutError,
    MemberIdRequiredError,
    NotControllerError,
    NotCoordinatorError,
    RebalanceInProgressError,
    RequestTimedOutError,
    RetriableError,
    UnknownMemberIdError,
    UnsupportedVersionError,
    for_code,
)
from kafka.protocol.consumer_protocol import PROTOCOL_TYPE
from kafka.protocol.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kafka.structs import TopicPartition
from kafka.wire.message import Response

# The clocks of a member of a classic group: its session with the coordinator, and whether its user still polls.


class MemberSession:
    """Heartbeats every ``interval_s``; who heard nothing for ``timeout_s`` is dead to the coordinator. What counts is
    when an answered heartbeat was sent: later than that it may not have been heard."""

    def __init__(self, timeout_s: float, interval_s: float) -> None:
        self.timeout_s = timeout_s
        self._interval_s = interval_s
        self._over_at = inf
        self._beat_at = inf

    def begin(self, now: float) -> None:
        """The coordinator has made this a member of a generation."""
        self.heard(now)
        self._beat_at = now + self._interval_s

    def heard(self, at: float) -> None:
        """The coordinator knows that this was alive then."""
        self._over_at = at + self.timeout_s

    def sent(self, now: float) -> None:
        """A heartbeat is on its way."""
        self._beat_at = now + self._interval_s

    def pause(self, until: float) -> None:
        """The last one failed."""
        self._beat_at = until

    def is_over(self, now: float) -> bool:
        return now >= self._over_at

    def is_beat_due(self, now: float) -> bool:
        return now >= self._beat_at

    def deadline(self, may_beat: bool) -> float:
        """When to look again."""
        return min(self._over_at, self._beat_at) if may_beat else self._over_at


# What a member of a classic group does about each error, and when there is no answer: a table for each request.
#
# Apache Kafka's Java client is the reference. Where that throws out of every ``poll`` and tries again in the next, the
# error is reported and tried again after a pause (``REPORT``); only what cannot become better by itself is final. A
# broker's error without a row is reported if Kafka does not call it retriable. A test walks the tables
# (``test_classic_errors.py``).


class ClassicErrorAction(Enum):
    """What to do. The first of several failures in a row is reacted to as its line says, the next ones wait."""

    RETRY = "wait, and say it again"
    FIND_COORDINATOR = "look for the coordinator, and say it again"
    TAKE_ID = "join again with the id that came with the answer"
    REJOIN = "the group rebalances: join again"
    NEW_GENERATION = "no member of this generation any more: what was owned is lost; join again with the same id"
    NEW_MEMBER = "no member any more: what was owned is lost; join again without an id"
    REPORT = "tell the user, and try again after a pause"
    GIVE_UP = "tell the user; this member is at its end"


HEARTBEAT_ERRORS: Final = ErrorTable(
    {
        CoordinatorLoadInProgressError: ClassicErrorAction.RETRY,
        CoordinatorNotAvailableError: ClassicErrorAction.FIND_COORDINATOR,
        NotCoordinatorError: ClassicErrorAction.FIND_COORDINATOR,
        GroupAuthorizationFailedError: ClassicErrorAction.REPORT,  # the right may be granted
        InvalidGroupIdError: ClassicErrorAction.GIVE_UP,
        UnsupportedVersionError: ClassicErrorAction.GIVE_UP,
        InvalidRequestError: ClassicErrorAction.GIVE_UP,
        # another process has this group_instance_id: never fight for it (KIP-345)
        FencedInstanceIdError: ClassicErrorAction.GIVE_UP,
        UnknownMemberIdError: ClassicErrorAction.NEW_MEMBER,
        # the id may still be good: the group need not wait for its expiry
        IllegalGenerationError: ClassicErrorAction.NEW_GENERATION,
        RebalanceInProgressError: ClassicErrorAction.REJOIN,
        # no answer, or that of a broker which does not lead, or has left: the coordinator may be another one by now
        NotControllerError: ClassicErrorAction.FIND_COORDINATOR,
        RequestTimedOutError: ClassicErrorAction.FIND_COORDINATOR,
        KafkaTimeoutError: ClassicErrorAction.FIND_COORDINATOR,
        InvalidMetadataError: ClassicErrorAction.FIND_COORDINATOR,
        RetriableError: ClassicErrorAction.RETRY,
        CorrelationIdError: ClassicErrorAction.GIVE_UP,
        BrokerResponseError: ClassicErrorAction.REPORT,
    },
    # what is no answer of a broker: the request cannot be written, the client is closed, no broker lets us in
    otherwise=ClassicErrorAction.GIVE_UP,
)
# KIP-559; the others may change or leave
SYNC_ERRORS: Final = HEARTBEAT_ERRORS.extended({InconsistentGroupProtocolError: ClassicErrorAction.REPORT})
JOIN_ERRORS: Final = SYNC_ERRORS.extended(
    {
        MemberIdRequiredError: ClassicErrorAction.TAKE_ID,  # KIP-394
        GroupMaxSizeReachedError: ClassicErrorAction.REPORT,
        InvalidSessionTimeoutError: ClassicErrorAction.GIVE_UP,
    }
)


ERROR_HINTS: Final[Mapping[type[KafkaError], str]] = {
    FencedInstanceIdError: "another process has joined with this group_instance_id; give each process one of its own",
    GroupAuthorizationFailedError: "this user may not read the group",
    GroupMaxSizeReachedError: "the broker's group.max.size members are there; this one joins when one leaves",
    InconsistentGroupProtocolError: "the members of the group, or the group itself, have another protocol than this "
    "one: all need an assignor of partition_assignment_strategy in common, and one group_protocol",
    InvalidSessionTimeoutError: "session_timeout_ms is not between the broker's group.min.session.timeout.ms and "
    "group.max.session.timeout.ms",
}
"""Whose fault it is, and what to do; for errors that are raised to users."""


# Whether a member of a classic group has to join, why, and when it may: the waits between attempts.


REPORT_PAUSE_S: Final = 1.0
"""After an error that was reported to the user, before the next attempt."""


class JoinAttempts:
    """``reason``: why it has to join, None when it has not to; the first one given counts. ``at``: not before."""

    def __init__(self, backoff: Backoff) -> None:
        self.reason: str | None = None
        self.at = -inf
        self._backoff = backoff
        self._failures = 0

    def want(self, reason: str) -> None:
        """It has to join."""
        if self.reason is None:
            self.reason = reason

    def take(self) -> str:
        """It does; why."""
        reason, self.reason = self.reason or "", None
        return reason

    def succeeded(self) -> None:
        """The next failure is the first in a row."""
        self._failures = 0

    def failed(self, reaction: ClassicErrorAction, now: float) -> None:
        """The next attempt comes after a pause; where the group has answered that it goes on without us, the first
        comes at once."""
        self._failures += 1
        is_answer = reaction not in (
            ClassicErrorAction.RETRY,
            ClassicErrorAction.FIND_COORDINATOR,
            ClassicErrorAction.REPORT,
        )
        pause_s = self._backoff.delay_s(self._failures - is_answer)
        self.at = now + (max(REPORT_PAUSE_S, pause_s) if reaction is ClassicErrorAction.REPORT else pause_s)


# What the leader of a classic group does: read what the members say, run the assignor, watch the topics.
#
# Nothing here sends anything; :class:`ClassicMember` does, when :attr:`GroupLeader.missing` is known or will not be.


_COOPERATIVE_STICKY: Final = "cooperative-sticky"
"""The built-in one looks at the generations in which partitions were owned, too: an old claim is none."""


class GroupLeader:
    """The leader of one generation. ``topics``: all that the group reads."""

    def __init__(self, response: JoinGroupResponse, assignor: Assignor, looks_at_racks: bool) -> None:
        self._assignor = assignor
        self._looks_at_racks = looks_at_racks
        self._members = [_group_member(one) for one in response.members]
        self._skips = response.skip_assignment
        self.topics = frozenset(topic for member in self._members for topic in member.subscription.topics)
        self._picture: dict[str, TopicSnapshot] = {}

    def missing(self, known: Mapping[str, TopicSnapshot]) -> frozenset[str]:
        """Topics of the group of which nothing is known yet; empty when there is nothing to assign."""
        return frozenset() if self._skips else self.topics - known.keys()

    def assign(
        self, known: Mapping[str, TopicSnapshot], protocol: RebalanceProtocol
    ) -> list[SyncGroupRequest.SyncGroupRequestAssignment]:
        """Run the assignor. What a user's own one raises comes out as it is; IllegalStateError: it broke its promise.

        Nothing for a static leader that came back to its group: all members keep what they have (KIP-814). The leader
        does not know for which topics that was made, so new partitions and newly subscribed topics wait for the next
        rebalance, as in Java."""
        self._picture = self._view(known)
        if self._skips:
            return []
        found = self._assignor.assign(known, self._members)
        strangers = found.keys() - {member.member_id for member in self._members}
        if strangers:
            raise IllegalStateError(f"the assignor {self._assignor.name} assigned to {sorted(strangers)}: no members")
        if protocol is RebalanceProtocol.COOPERATIVE and self._assignor.name != _COOPERATIVE_STICKY:
            self._check_nothing_is_taken(found)
        return [
            SyncGroupRequest.SyncGroupRequestAssignment(
                member_id=member.member_id,
                assignment=write_assignment(found.get(member.member_id, MemberAssignment())),
            )
            for member in self._members
        ]

    def has_changed(self, known: Mapping[str, TopicSnapshot], own: frozenset[str]) -> bool:
        """Whether the topics are others than when it was assigned: more partitions, made, deleted, on other racks.
        Only of ``own`` it counts that they are gone: the metadata of the others' topics may be old."""
        now = self._view(known)
        return any(now.get(topic) != self._picture.get(topic) for topic in (self.topics & own) | now.keys())

    def _view(self, known: Mapping[str, TopicSnapshot]) -> dict[str, TopicSnapshot]:
        racks = self._looks_at_racks
        return {
            topic: TopicSnapshot(known[topic].partitions_count, tuple(known[topic].racks) if racks else ())
            for topic in self.topics
            if topic in known
        }

    def _check_nothing_is_taken(self, found: Mapping[str, MemberAssignment]) -> None:
        """KIP-429: who loses a partition has to give it up in one generation, before another gets it in the next."""
        revoked: set[TopicPartition] = set()
        added: set[TopicPartition] = set()
        for member in self._members:
            owned = set(member.subscription.owned)
            given = set(found.get(member.member_id, MemberAssignment()).partitions)
            revoked |= owned - given
            added |= given - owned
        if revoked & added:
            raise IllegalStateError(
                f"the assignor {self._assignor.name} is cooperative and gave away what others still own: "
                f"{sorted(revoked & added)[:5]}; leave such partitions out for one generation"
            )


def _group_member(one: JoinGroupResponse.JoinGroupResponseMember) -> GroupMember:
    try:
        subscription = read_subscription(one.metadata)
    except KafkaProtocolError as error:
        raise KafkaProtocolError(f"member {one.member_id} of the group says what is no subscription: {error}") from None
    return GroupMember(one.member_id, one.group_instance_id, subscription)


# What the versions of the requests have: JoinGroup 0 (0.9) has no rebalance time-out: there the session's time-out is
# both. 4: the first answer gives an id only (KIP-394). 5: static members (KIP-345). 8: the reason (KIP-800). LeaveGroup
# 3: several members; 5: the reason. What a version lacks and may be left out, the codec leaves out; a
# ``group_instance_id`` may not.

_SEVERAL_MEMBERS_SINCE: Final = 3
_REASON_CHARACTERS: Final = 255
"""Brokers keep reasons for people; Java's clients cut them here, too."""
JOIN_GRACE_S: Final = 5.0
"""A JoinGroup request is answered when the rebalance time-out is over at the latest; it is waited so much longer."""


class ClassicPhase(Enum):
    """Where a member stands; the values are its ``state_name``, but for those of REBALANCING."""

    UNJOINED = "unjoined"
    JOINING = "joining"
    ASSIGNING = "assigning"
    SYNCING = "syncing"
    STABLE = "stable"
    LEAVING = "leaving"
    LEFT = "left"
    FATAL = "fatal"


ENDED_PHASES: Final = (ClassicPhase.LEFT, ClassicPhase.FATAL)
REBALANCING_PHASES: Final = (ClassicPhase.JOINING, ClassicPhase.ASSIGNING, ClassicPhase.SYNCING)
SETTLED_PHASES: Final = (ClassicPhase.UNJOINED, ClassicPhase.STABLE)
_ERROR_TABLES: Final = {
    "join": JOIN_ERRORS,
    "sync": SYNC_ERRORS,
    "heartbeat": HEARTBEAT_ERRORS,
}


def common_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """The most advanced that all of them can do; IllegalArgumentError: there is none, or no assignor."""
    if not assignors:
        raise IllegalArgumentError("a group needs at least one assignor")
    shared = frozenset.intersection(*(each.rebalance_protocols for each in assignors))
    if not shared:
        names = ", ".join(each.name for each in assignors)
        raise IllegalArgumentError(f"{names} share no rebalance protocol (KIP-429)")
    return max(shared)


log = logging.getLogger(__name__)


class _LeaveState(Enum):
    """Why it leaves."""

    PAUSE = "there is nothing to read"
    END = "for good"


class ClassicMember(GroupMachine):
    """See the module, and :class:`kafka.core.group.machine.GroupMachine`.

    ``assignors``: the most wanted first; IllegalArgumentError when they share no rebalance protocol. ``rack``: of the
    client, for assignors that look at it (KIP-881).
    """

    def __init__(
        self,
        group_id: str,
        *,
        group_instance_id: str | None = None,
        assignors: Sequence[Assignor],
        session_timeout_s: float,
        heartbeat_interval_s: float,
        max_poll_interval_s: float,
        request_timeout_s: float,
        retry_backoff: Backoff,
        rack: str = "",
    ) -> None:
        super().__init__(group_id, group_instance_id, "", max_poll_interval_s, request_timeout_s)
        self._generation = NO_GENERATION
        self.protocol_name: str | None = None
        """The assignor that the group has chosen."""
        self.rebalance_protocol = common_protocol(assignors)
        self._assignors = {each.name: each for each in assignors}
        self._session = MemberSession(session_timeout_s, heartbeat_interval_s)
        self._attempts = JoinAttempts(retry_backoff)
        self._owned: frozenset[TopicPartition] = frozenset()
        # The assignment of the last SyncGroup response until it is carried out, then None.
        self._target: frozenset[TopicPartition] | None = None
        self._step_under_way: AssignmentStep | None = None
        # The coordinator holds JoinGroup until all members have joined, up to the longest rebalance timeout.
        self._join_timeout_s = max(request_timeout_s, max(max_poll_interval_s, session_timeout_s) + JOIN_GRACE_S)
        self._rack = rack
        self._phase = ClassicPhase.UNJOINED
        self._wanted: frozenset[str] = frozenset()
        self._joined_with: frozenset[str] = frozenset()
        self._topics: Mapping[str, TopicSnapshot] = {}
        self._leader: GroupLeader | None = None
        self._assign_by = inf
        self._leave_state: _LeaveState | None = None
        self._leave_reason = ""
        self._is_stalled = False

    @property
    def generation(self) -> int:
        return self._generation

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self._owned

    @property
    def is_leader(self) -> bool:
        """It assigns, and watches the topics of the whole group."""
        return self._leader is not None

    @property
    def state_name(self) -> str:
        return "rebalancing" if self._phase in REBALANCING_PHASES else self._phase.value

    # -- what the user wants -----------------------------------------------------------------------------------------

    def subscribe(self, subscription: GroupSubscription, now: float) -> None:
        """No topics: the member leaves the group, and joins again with the next subscription. Other topics: it joins,
        or rejoins if what it joined with differs. A fatal error ends with a new subscription; after :meth:`leave`
        nothing is done. IllegalArgumentError for a pattern that a broker should evaluate (KIP-848)."""
        if subscription.pattern is not None:
            raise IllegalArgumentError(
                "a broker evaluates patterns in the consumer group protocol only (KIP-848, group_protocol='consumer'); "
                "give this one a compiled regular expression"
            )
        if self._phase is ClassicPhase.LEFT or self._leave_state is _LeaveState.END:
            return
        if self._phase is ClassicPhase.FATAL:
            self._phase = ClassicPhase.UNJOINED
            self._attempts.succeeded()
        self._wanted = subscription.topics
        self.next_deadline = now
        if not self._wanted:
            self._attempts.reason = None
            if self._is_known_to_group:
                self._leave_state = _LeaveState.PAUSE
                self._leave_reason = "the consumer unsubscribed from all topics"
        elif self._phase is ClassicPhase.UNJOINED and self._attempts.reason is None:
            self._attempts.want("")
        else:
            self._compare_subscription()

    def metadata_changed(self, topics: Mapping[str, TopicSnapshot], now: float) -> None:
        self._topics = topics
        self.next_deadline = now
        if self._phase is ClassicPhase.ASSIGNING:
            self._sync_as_leader(now)
        else:
            self._compare_metadata()

    def rejoin(self, reason: str, now: float) -> None:
        if self._phase is ClassicPhase.STABLE:
            self._attempts.want(reason)
            self.next_deadline = now

    def leave(self, now: float, reason: str = "") -> None:
        self._leave_state = _LeaveState.END
        self._leave_reason = reason or "the consumer is being closed"
        self.next_deadline = now

    def leave_now(self, now: float) -> None:
        """The request that leaves waits for nothing here."""

    def carried_out(self, step: AssignmentStep, now: float) -> None:
        if isinstance(step, (Revoke, Lose)):
            self._owned -= step.partitions
        self._step_under_way = None
        self.next_deadline = now

    # -- what there is to do -----------------------------------------------------------------------------------------

    def poll(self, now: float) -> list[GroupEffect]:
        """First what the user is to carry out; when nothing is, leaving or joining. Heartbeats go on meanwhile."""
        if self._phase not in ENDED_PHASES:
            self._check_timeouts(now)
        if self._step_under_way is None:
            step = self._step_under_way = self._next_step()
            if step is not None:
                self._effects.append(step)
            elif self._leave_state is not None:
                self._leave_group(now)
            elif self._in_flight is None and not self._is_stalled:
                self._maybe_join(now)
        if self._in_flight is None and self._beats and self._session.is_beat_due(now):
            self._session.sent(now)
            timeout_s = min(self._request_timeout_s, self._session.timeout_s)
            request = HeartbeatRequest(
                group_id=self.group_id,
                generation_id=self._generation,
                member_id=self.member_id,
                group_instance_id=self.group_instance_id,
            )
            self._send("heartbeat", request, timeout_s, now)
        effects, self._effects = self._effects, []
        self.next_deadline = self._deadline(now)
        return effects

    def _check_timeouts(self, now: float) -> None:
        if self._beats and self._session.is_over(now):
            silence_s = self._session.timeout_s
            error = KafkaTimeoutError(f"group {self.group_id}: no heartbeat was answered for {silence_s:g} s")
            self._effects.append(ForgetCoordinator(error))
            self._no_member(keeps_id=True)
            self._attempts.want("the session has timed out")
        is_late = now >= self.polled_at + self._max_poll_interval_s
        if self._is_stalled and not is_late:
            self._is_stalled = False
            self._attempts.want("the consumer polls again")
        elif is_late and self._may_stall:
            log.warning(
                "group %s: leaving the group, poll() was not called for max_poll_interval_ms (%g s); raise "
                "that, or lower max_poll_records", self.group_id, self._max_poll_interval_s,
            )  # fmt: skip
            self._is_stalled = True
            if self._may_leave:
                self._ask_to_leave("consumer poll timeout has expired.", now)
            self._no_member(keeps_id=False)

    @property
    def _beats(self) -> bool:
        """It is a member of a generation and has no request at the coordinator that keeps it alive by waiting."""
        return self._generation != NO_GENERATION and self._phase in (
            ClassicPhase.UNJOINED,
            ClassicPhase.ASSIGNING,
            ClassicPhase.STABLE,
        )

    @property
    def _may_stall(self) -> bool:
        """It leaves if its user does not poll. In the middle of a rebalance the coordinator has a limit of its own."""
        return self._beats and self._phase in SETTLED_PHASES and self._leave_state is None

    @property
    def _is_known_to_group(self) -> bool:
        return bool(self.member_id or self._owned or self._in_flight or self._step_under_way)

    @property
    def _may_leave(self) -> bool:
        return bool(self.member_id) and self.group_instance_id is None

    def _next_step(self) -> AssignmentStep | None:
        """What the user is to carry out now: first what is not this member's any more is given up."""
        owned, target = self._owned, self._target
        if owned and self._generation == NO_GENERATION:
            return Lose(owned)
        if self._leave_state is not None:
            # What a new generation gives to whom is open already: nothing can be committed for the old one.
            is_between = self._phase in (ClassicPhase.ASSIGNING, ClassicPhase.SYNCING)
            return (Lose(owned) if is_between else Revoke(owned)) if owned else None
        if target is not None:
            if owned - target:
                self._attempts.want("need to revoke partitions and re-join")
                return Revoke(owned - target)
            self._owned, self._target = target, None
            return Assign(target, target - owned)
        if self._attempts.reason is not None and self._phase in SETTLED_PHASES:
            unfit = owned
            if self.rebalance_protocol is RebalanceProtocol.COOPERATIVE:
                unfit = frozenset(each for each in owned if each.topic not in self._wanted)
            return Revoke(unfit) if unfit else None
        return None

    def _leave_group(self, now: float) -> None:
        if self._in_flight is not None and self._in_flight.kind == "leave":
            return
        if self._phase not in ENDED_PHASES and self._may_leave:
            self._phase = ClassicPhase.LEAVING
            self._ask_to_leave(self._leave_reason, now)
        elif self._phase is not ClassicPhase.LEFT:
            self._has_left(now)

    def _ask_to_leave(self, reason: str, now: float) -> None:
        member_id = self.member_id

        def build(version: int) -> LeaveGroupRequest:
            if version < _SEVERAL_MEMBERS_SINCE:
                return LeaveGroupRequest(group_id=self.group_id, member_id=member_id)
            member = LeaveGroupRequest.MemberIdentity(member_id=member_id, reason=reason[:_REASON_CHARACTERS] or None)
            return LeaveGroupRequest(group_id=self.group_id, members=[member])

        flight = self._in_flight
        is_held_up = flight is not None and flight.kind != "heartbeat"  # by what is given up
        self._send("leave", ByVersion(LeaveGroupRequest, build), self._request_timeout_s, now, is_held_up)

    def _has_left(self, now: float) -> None:
        """The group has us no more, or will notice by itself."""
        self._no_member(keeps_id=False)
        if self._leave_state is _LeaveState.END:
            self._phase = ClassicPhase.LEFT
            self._effects.append(Left())
        elif self._wanted:
            self._attempts.want("")
        self._leave_state = None
        self.next_deadline = now

    def _deadline(self, now: float) -> float:
        if self._phase in ENDED_PHASES:
            return inf
        found = inf
        if self._beats:
            found = self._session.deadline(self._in_flight is None)
        if self._may_stall:
            # A user who is in poll now may leave it and not come back.
            found = min(found, min(self.polled_at, now) + self._max_poll_interval_s)
        if self._in_flight is None and self._step_under_way is None:
            if self._is_stalled:
                found = min(found, now + POLL_CHECK_S)
            elif self._phase is ClassicPhase.ASSIGNING:
                found = min(found, self._assign_by)
            elif self._attempts.reason is not None and self._wanted:
                found = min(found, self._attempts.at)
        return found

    # -- what comes back ---------------------------------------------------------------------------------------------

    def answered(self, ask: SendToCoordinator, response: Response, now: float) -> None:
        flight = self._take_answered(ask, now)
        if flight is None:
            return
        assert isinstance(response, (JoinGroupResponse, SyncGroupResponse, HeartbeatResponse))
        if response.error_code:
            # The id that MEMBER_ID_REQUIRED brings.
            member_id = response.member_id if isinstance(response, JoinGroupResponse) else ""
            kind, text = for_code(response.error_code), f"group {self.group_id}"
            error = kind(f"{text}: {ERROR_HINTS[kind]}" if kind in ERROR_HINTS else text)
            self._react(error, flight.kind, now, member_id)
        elif isinstance(response, JoinGroupResponse):
            self._joined(response, now)
        elif isinstance(response, SyncGroupResponse):
            self._synced(response, now)
        else:
            self._heard(flight.sent_at)

    def failed(self, ask: SendToCoordinator, error: BaseException, now: float) -> None:
        flight = self._take_answered(ask, now)
        if flight is not None:
            self._react(error, flight.kind, now)

    def _take_answered(self, ask: SendToCoordinator, now: float) -> InFlightGroupRequest | None:
        """The request, unless nothing is to be done about it any more."""
        flight = self._take_flight(ask)
        if flight is None:
            return None
        self.next_deadline = now
        if flight.kind != "leave":
            return flight
        if self._phase is ClassicPhase.LEAVING:  # whatever the answer is: the coordinator will notice by itself
            self._has_left(now)
        return None

    def fenced(self, error: KafkaError, now: float) -> None:
        # The commit may have been of an earlier generation, whose end is nothing new. The next heartbeat will show.
        self._session.pause(now)
        self.next_deadline = now

    # -- requests ----------------------------------------------------------------------------------------------------

    def _maybe_join(self, now: float) -> None:
        """Join, or assign, if it is time."""
        if self._phase is ClassicPhase.ASSIGNING and now >= self._assign_by:
            self._sync_as_leader(now)
        elif (
            self._phase in SETTLED_PHASES
            and self._attempts.reason is not None
            and self._wanted
            and now >= self._attempts.at
        ):
            self._joined_with = self._wanted
            self._leader = None
            self._phase = ClassicPhase.JOINING
            self._send("join", self._join_request(self._attempts.take()), self._join_timeout_s, now)

    def _join_request(self, reason: str) -> JoinGroupRequest:
        """Offers all assignors, the most wanted first, and says to each what is wanted and owned (KIP-429)."""
        subscription = MemberSubscription(
            tuple(sorted(self._wanted)), None, tuple(sorted(self._owned)), self._generation, self._rack
        )
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=round(self._session.timeout_s * 1000),
            rebalance_timeout_ms=min(round(self._max_poll_interval_s * 1000), 2**31 - 1),
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(
                    name=name,
                    metadata=write_subscription(subscription._replace(user_data=each.user_data(self._wanted))),
                )
                for name, each in self._assignors.items()
            ],
            reason=reason[:_REASON_CHARACTERS] or None,
        )

    # -- answers -----------------------------------------------------------------------------------------------------

    def _heard(self, at: float) -> None:
        self._session.heard(at)
        if self._phase is ClassicPhase.STABLE:
            self._attempts.succeeded()

    def _joined(self, response: JoinGroupResponse, now: float) -> None:
        """JoinGroup succeeded. A follower sends an empty SyncGroup at once. The leader first needs metadata of all
        members' topics (phase ASSIGNING, until ``request_timeout_s`` is over), then sends the assignment. A protocol
        that was not offered is reported, and the join is tried again."""
        self._generation = response.generation_id
        self.member_id = response.member_id
        self._session.begin(now)
        self.protocol_name = response.protocol_name
        assignor = self._assignors.get(response.protocol_name or "")
        try:
            if response.protocol_type not in (None, PROTOCOL_TYPE):
                raise InconsistentGroupProtocolError(f"group {self.group_id} is of type {response.protocol_type!r}")
            if assignor is None:
                raise IllegalStateError(
                    f"group {self.group_id} has chosen the assignor {response.protocol_name!r}, which was not offered"
                )
            if response.leader != response.member_id:
                self._sync([], now)
                return
            self._leader = GroupLeader(response, assignor, bool(self._rack))
        except KafkaError as error:
            self._react(error, "sync", now, action=ClassicErrorAction.REPORT)
            return
        if self._leader.missing(self._topics):
            self._phase = ClassicPhase.ASSIGNING
            self._assign_by = now + self._request_timeout_s
        else:
            self._sync_as_leader(now)
        if self._leader is not None and self._leader.topics - self._wanted:
            self._effects.append(NeedMetadata(self._leader.topics))
        elif self._phase is ClassicPhase.ASSIGNING:
            self._effects.append(NeedMetadata(self._joined_with))

    def _sync_as_leader(self, now: float) -> None:
        if self._leader is None:
            return
        try:
            assignments = self._leader.assign(self._topics, self.rebalance_protocol)
        except KafkaError as error:
            self._react(error, "sync", now, action=ClassicErrorAction.REPORT)
        except Exception as error:  # a user's own assignor
            failed = IllegalStateError(f"group {self.group_id}: the assignor {self.protocol_name} raised {error!r}")
            failed.__cause__ = error
            self._react(failed, "sync", now, action=ClassicErrorAction.REPORT)
        else:
            self._sync(assignments, now)

    def _sync(self, assignments: list[SyncGroupRequest.SyncGroupRequestAssignment], now: float) -> None:
        self._phase = ClassicPhase.SYNCING
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self._generation,
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self.protocol_name,
            assignments=assignments,
        )
        self._send("sync", request, self._join_timeout_s, now)

    def _synced(self, response: SyncGroupResponse, now: float) -> None:
        try:
            for said, own in ((response.protocol_type, PROTOCOL_TYPE), (response.protocol_name, self.protocol_name)):
                if said not in (None, own):
                    raise InconsistentGroupProtocolError(f"group {self.group_id} has {said!r} instead of {own!r}")
            assignment = read_assignment(response.assignment)
        except KafkaError as error:
            self._react(error, "sync", now, action=ClassicErrorAction.REPORT)
            return
        self._phase = ClassicPhase.STABLE
        self._heard(now)
        topics = frozenset(each.topic for each in assignment.partitions)
        if topics <= self._wanted or self._wanted == self._joined_with:
            self._assignors[self.protocol_name or ""].on_assignment(assignment, self._generation)
            self._target = frozenset(assignment.partitions)
        else:
            self._attempts.want("received assignment does not match the current subscription")
        self._compare_subscription()
        self._compare_metadata()

    def _compare_subscription(self) -> None:
        if self._phase is ClassicPhase.STABLE and self._wanted != self._joined_with:
            self._attempts.want("subscription has changed")

    def _compare_metadata(self) -> None:
        if (
            self._phase is ClassicPhase.STABLE
            and self._leader is not None
            and self._leader.has_changed(self._topics, self._wanted)
        ):
            self._attempts.want("cached metadata has changed")

    # -- errors ------------------------------------------------------------------------------------------------------

    def _react(
        self,
        error: BaseException,
        kind: str,
        now: float,
        member_id: str = "",
        action: ClassicErrorAction | None = None,
    ) -> None:
        """Does ``action`` about a failed request, by default what the error table of its ``kind`` says (see
        :class:`ClassicErrorAction`). Any failure but a heartbeat's ends the join that is under way. ``member_id``: the
        one that came with MEMBER_ID_REQUIRED (KIP-394)."""
        reaction = action or _ERROR_TABLES[kind].action_for(error)
        if kind == "heartbeat" and reaction is ClassicErrorAction.REJOIN:
            self._heard(now)
            if self._phase is ClassicPhase.STABLE:
                self._attempts.want("group is already rebalancing")
            return
        known = error if isinstance(error, KafkaError) else IllegalStateError(f"group {self.group_id}: {error!r}")
        if reaction is ClassicErrorAction.GIVE_UP:
            self._no_member(keeps_id=True)
            self._phase = ClassicPhase.FATAL
            self._effects.append(ReportError(known, is_fatal=True))
            return
        if kind != "heartbeat":
            self._phase = ClassicPhase.UNJOINED
        if reaction is ClassicErrorAction.TAKE_ID:
            self.member_id = member_id
            self._attempts.at = now
            self._attempts.want(f"need to re-join with the given member-id: {member_id}")
            return
        if reaction is ClassicErrorAction.REPORT:
            self._effects.append(ReportError(known))
        elif reaction is ClassicErrorAction.FIND_COORDINATOR:
            self._effects.append(ForgetCoordinator(error))
        elif reaction in (ClassicErrorAction.NEW_MEMBER, ClassicErrorAction.NEW_GENERATION):
            self._no_member(keeps_id=reaction is ClassicErrorAction.NEW_GENERATION)
        self._attempts.failed(reaction, now)
        if self._phase is ClassicPhase.STABLE:
            self._session.pause(self._attempts.at)
        else:
            self._attempts.want(f"rebalance failed due to {type(error).__name__}")

    def _no_member(self, keeps_id: bool) -> None:
        """The generation is over for this member. The response to a request in flight is ignored, unless it is
        LeaveGroup."""
        self._generation = NO_GENERATION
        if not keeps_id:
            self.member_id = ""
        self.protocol_name = None
        self._leader = None
        self._target = None
        self._phase = ClassicPhase.UNJOINED
        if self._in_flight is not None and self._in_flight.kind != "leave":
            self._in_flight = None
