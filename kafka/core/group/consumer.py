"""A member of a consumer group of the consumer group protocol (KIP-848), whose broker assigns, as a
:class:`GroupMachine`.

    UNJOINED ──subscribe()──► JOINING ──answer──► MEMBER        heartbeats, at the interval that the broker wants
                                 ▲                 │  │
                                 └──── FENCED ◄────┘  │         told to join anew: first the partitions are given up
                                 └──── STALE  ◄───────┤         the user has not polled for too long: out, until they do
    UNJOINED or JOINING ◄── PAUSING ◄──subscribe(∅)───┤         partitions are revoked, then the request that leaves
    LEFT ◄── LEAVING ◄──────leave()───────────────────┘         the same, for good           FATAL: nothing, until asked

What a heartbeat says is in :class:`ConsumerHeartbeats`. What the answer assigns is carried out step by step
(:class:`AssignmentReconciler`), and each step is acknowledged at once by a heartbeat that says what is owned. What
answers make of the member is at the end of this file, what errors mean in ``heartbeat.py``. One request is in flight at
a time; what is wanted meanwhile waits for its answer, but for who leaves in a hurry.

Static members (KIP-345, as KIP-848 has it) leave with the epoch -2, which keeps their place for a session. A place is
given to no member before, not even to its owner: a join whose response was lost, and a fenced member, are answered
with UNRELEASED_INSTANCE_ID (seen on Apache Kafka 4.3.0). Such a member says -2 first, and joins then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from math import inf
from typing import Final
from uuid import UUID

from kafka.core.group.heartbeat import (
    CONSUMER_HEARTBEAT_ERRORS,
    CONSUMER_JOIN_ERRORS,
    NO_RESPONSE_ACTIONS,
    UNASSIGNED_HEARTBEAT_S,
    HeartbeatErrorAction,
)
from kafka.core.group.machine import (
    NO_GENERATION,
    POLL_CHECK_S,
    Assign,
    AssignmentStep,
    ForgetCoordinator,
    GroupEffect,
    GroupMachine,
    GroupSubscription,
    Left,
    Lose,
    NeedMetadata,
    ReportError,
    Revoke,
    SendToCoordinator,
    TopicSnapshot,
)
from kafka.core.partitions import by_topic, check_assigned
from kafka.core.retry import Backoff, RetryAction, interval_s
from kafka.errors import (
    BrokerResponseError,
    KafkaError,
    KafkaProtocolError,
    UnsupportedFieldError,
    UnsupportedVersionError,
    for_code,
)
from kafka.protocol.constants import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from kafka.protocol.groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from kafka.structs import TopicPartition
from kafka.wire.message import Response

# What a member of a group of the consumer group protocol holds, and the next step to its target assignment (KIP-848).
#
#     set_target() ──► Revoke what is not in it ──► Assign all of it whose topics have names ──► nothing left to do
#     give_up()    ──► Revoke or Lose all that is held ──► free
#
# One step at a time: the next comes after the last was carried out, and goes by what is wanted then. Topics come by
# their ids; those that the cluster's metadata does not name wait in ``unresolved``. When to say anything to the broker
# is :class:`ConsumerMember`'s part.


IdPartition = tuple[UUID, int]
"""Topic id and number. A topic that was deleted and made again has another id, and is another one here."""


class AssignmentReconciler:
    """Of one member. ``topic_of_id``: the name of a topic, None while it is unknown."""

    def __init__(self, topic_of_id: Callable[[UUID], str | None]) -> None:
        self.held: Mapping[IdPartition, TopicPartition] = {}
        self.unresolved: frozenset[UUID] = frozenset()
        """Topics of the target without a name, as of the last :meth:`next_step`."""
        self.under_way: AssignmentStep | None = None
        self._topic_of_id = topic_of_id
        self._target: frozenset[IdPartition] | None = None
        self._announced: frozenset[IdPartition] | None = None  # the target that the last Assign was for
        self._announcing: frozenset[IdPartition] | None = None
        self._giving_up: type[Revoke] | type[Lose] | None = None
        self._next_held: Mapping[IdPartition, TopicPartition] = {}

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """By their names."""
        return frozenset(self.held.values())

    @property
    def claimed(self) -> Mapping[IdPartition, TopicPartition]:
        """What a heartbeat has to list: what is held, and what the user is being given. A list without the latter would
        allow the broker to assign it to another at once (found by the simulation: two members read one partition)."""
        return self._next_held if isinstance(self.under_way, Assign) else self.held

    @property
    def is_free(self) -> bool:
        """Nothing is held, and nothing is being done."""
        return not self.held and self.under_way is None

    @property
    def is_reconciled(self) -> bool:
        """All of the target is held, and nothing else."""
        return self.under_way is None and self._target == self._announced == frozenset(self.held)

    @property
    def is_empty_handed(self) -> bool:
        """Nothing is held, and nothing is assigned."""
        return self.is_free and not self._target

    def set_target(self, target: frozenset[IdPartition]) -> None:
        """Hold exactly these partitions from now on: the broker's target assignment."""
        self._target = target
        self._giving_up = None

    def give_up(self, is_lost: bool) -> None:
        """Hold nothing any more. ``is_lost``: others may hold it already; that counts more than a former word."""
        self._target = self._announced = self._announcing = None
        self.unresolved = frozenset()
        if self._giving_up is None or is_lost:
            self._giving_up = Lose if is_lost else Revoke

    def next_step(self, may_add: bool = True) -> AssignmentStep | None:
        """What to do now; None while something is being done, and when there is nothing. ``may_add``: the broker has
        confirmed the target, so what is missing may be assigned."""
        if self.under_way is None:
            self.under_way = self._release() if self._target is None else self._reconcile(self._target, may_add)
            return self.under_way
        return None

    def _release(self) -> AssignmentStep | None:
        giving_up, self._giving_up = self._giving_up, None
        self._next_held = {}
        return None if giving_up is None or not self.held else giving_up(self.owned)

    def _reconcile(self, target: frozenset[IdPartition], may_add: bool) -> AssignmentStep | None:
        if target is self._announced and len(self.held) == len(target):
            return None
        kept = {each: partition for each, partition in self.held.items() if each in target}
        missing = [each for each in target if each not in kept]
        names = {topic_id: self._topic_of_id(topic_id) for topic_id in {each[0] for each in missing}}
        self.unresolved = frozenset(topic_id for topic_id, name in names.items() if name is None)
        if len(kept) < len(self.held):
            self._next_held = kept
            return Revoke(self.owned - frozenset(kept.values()))
        added = {each: TopicPartition(name, each[1]) for each in missing if (name := names[each[0]]) is not None}
        nothing_new = not added and (target == self._announced or bool(self.unresolved))
        if nothing_new or (added and not may_add):
            return None
        self._announcing = target
        self._next_held = {**kept, **added}
        return Assign(frozenset(self._next_held.values()), frozenset(added.values()))

    def carried_out(self, step: AssignmentStep) -> bool:
        """The step was carried out; False when it is not the one under way."""
        if step is not self.under_way:
            return False
        self.under_way = None
        self._announced = self._announcing
        self.held = self._next_held
        return True


# The heartbeats of a member of the consumer group protocol: what the broker does not know yet, and nothing else
# (KIP-848).
#
# The first heartbeat of a membership says everything; the next one after any failure does, too, since it is unknown
# what of the last one arrived. In between, a heartbeat says what has changed. When heartbeats go is
# :class:`ConsumerMember`'s part.


class ConsumerHeartbeats:
    """Of one member. ``rebalance_timeout_ms``: the time that the broker allows for a revocation."""

    def __init__(
        self,
        group_id: str,
        group_instance_id: str | None,
        rack: str,
        server_assignor: str | None,
        rebalance_timeout_ms: int,
    ) -> None:
        self._group_id = group_id
        self._instance_id = group_instance_id
        self._rack = rack or None  # never "": the broker refuses it
        self._server_assignor = server_assignor
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._all = self._topics = self._owned = self._had_pattern = False  # the first one says all by its epoch

    @property
    def has_news(self) -> bool:
        """There is something that the broker was not told."""
        return self._all or self._topics or self._owned

    def resend_all(self) -> None:
        """It is unknown what the broker has received: say everything again."""
        self._all = True

    def resend_topics(self) -> None:
        """The subscription is another one."""
        self._topics = True

    def resend_owned(self) -> None:
        """What is owned has changed: this is what acknowledges an assignment."""
        self._owned = True

    def heartbeat(
        self, member_id: str, epoch: int, wanted: GroupSubscription, claimed: Iterable[IdPartition]
    ) -> ConsumerGroupHeartbeatRequest:
        """The next one."""
        is_full = self._all or epoch == JOIN_EPOCH
        says_topics = is_full or self._topics
        says_owned = is_full or self._owned
        self._all = self._topics = self._owned = False
        self._had_pattern = self._had_pattern or wanted.pattern is not None
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=self._instance_id,
            rack_id=self._rack if is_full else None,
            rebalance_timeout_ms=self._rebalance_timeout_ms if is_full else -1,
            subscribed_topic_names=sorted(wanted.topics) if says_topics else None,
            # "" takes back a former one; who never had one leaves the field out, which older versions lack
            subscribed_topic_regex=(wanted.pattern or "") if says_topics and self._had_pattern else None,
            server_assignor=self._server_assignor if is_full else None,
            topic_partitions=[
                ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=numbers)
                for topic_id, numbers in by_topic(sorted(claimed)).items()
            ]
            if says_owned
            else None,
        )

    def leave(self, member_id: str) -> ConsumerGroupHeartbeatRequest:
        """The last one. A static member's place is kept for a session."""
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=member_id,
            member_epoch=LEAVE_EPOCH if self._instance_id is None else STATIC_LEAVE_EPOCH,
            instance_id=self._instance_id,
        )


log = logging.getLogger(__name__)

LEAVE_ATTEMPTS: Final = 2
"""A request that leaves is tried so often. The group finds out by itself, later."""

_NO_PROTOCOL: Final = (
    "group_protocol='consumer': the broker does not offer the consumer group protocol of KIP-848, which needs Apache "
    "Kafka 4.0 or later with the feature group.version at 1 or above. Set group_protocol='classic', or upgrade it"
)
_NO_PATTERNS: Final = (
    "regular expressions that the broker evaluates need ConsumerGroupHeartbeat 1 (Apache Kafka 4.0): subscribe with "
    "pattern=, which this client evaluates, or by name"
)


class ConsumerPhase(Enum):
    """Where a member stands; the values are its ``state_name``, but for MEMBER's."""

    UNJOINED = "unjoined"
    JOINING = "joining"
    MEMBER = "stable"
    FENCED = "fenced"
    STALE = "stale"
    PAUSING = "pausing"
    LEAVING = "leaving"
    LEFT = "left"
    FATAL = "fatal"


_JOINED_PHASES: Final = (ConsumerPhase.JOINING, ConsumerPhase.MEMBER)
_LEAVING_PHASES: Final = (ConsumerPhase.PAUSING, ConsumerPhase.LEAVING)


class ConsumerMember(GroupMachine):
    """One member. ``member_id``: the text of a UUID, kept for life, also across fencing (KIP-1082). ``server_assignor``
    None: the group's first. ``max_poll_interval_s`` is what the broker allows for a revocation, too.
    ``topic_of_id``: the name of a topic, None while it is unknown."""

    def __init__(
        self,
        group_id: str,
        *,
        group_instance_id: str | None = None,
        member_id: str,
        server_assignor: str | None = None,
        rack: str = "",
        max_poll_interval_s: float,
        request_timeout_s: float,
        retry_backoff: Backoff,
        topic_of_id: Callable[[UUID], str | None],
    ) -> None:
        super().__init__(group_id, group_instance_id, member_id, max_poll_interval_s, request_timeout_s)
        rebalance_timeout_ms = min(round(max_poll_interval_s * 1000), 2**31 - 1)
        self._heartbeats = ConsumerHeartbeats(group_id, group_instance_id, rack, server_assignor, rebalance_timeout_ms)
        self._backoff = retry_backoff
        self._reconciler = AssignmentReconciler(topic_of_id)
        self._wanted = GroupSubscription()
        self._phase = ConsumerPhase.UNJOINED
        self._epoch = JOIN_EPOCH
        # The group has this member, or may have it: a leave is owed, by a static member before it joins again, too.
        self._is_known = False
        # False while a heartbeat that lists the owned partitions has no answer. The broker goes by that list: it may
        # have assigned to others what is in the target and not owned yet, in an answer that was lost.
        self._is_target_current = True
        self._due_at = inf
        self._metadata_at = -inf
        self._failures = self._leave_attempts = self._quick_heartbeats = self._metadata_asks = 0
        self._stale_at = inf
        self._fatal: ReportError | None = None

    # -- what it is --------------------------------------------------------------------------------------------------

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self._reconciler.owned

    @property
    def generation(self) -> int:
        is_out = self._epoch <= JOIN_EPOCH or self._phase in (ConsumerPhase.STALE, ConsumerPhase.FATAL)
        return NO_GENERATION if is_out else self._epoch

    @property
    def state_name(self) -> str:
        if self._phase is ConsumerPhase.MEMBER and not self._reconciler.is_reconciled:
            return "reconciling"
        return self._phase.value

    # -- what the user wants -----------------------------------------------------------------------------------------

    def subscribe(self, subscription: GroupSubscription, now: float) -> None:
        if self._phase in (ConsumerPhase.LEAVING, ConsumerPhase.LEFT) or (
            subscription == self._wanted and self._phase is not ConsumerPhase.FATAL
        ):
            return
        self._wanted = subscription
        self._heartbeats.resend_topics()
        self._quick_heartbeats = 0
        if subscription.is_empty:
            self._begin_leaving(ConsumerPhase.PAUSING, now)
        elif self._phase is ConsumerPhase.UNJOINED:
            self._join(now)
        elif self._phase is ConsumerPhase.MEMBER:
            self._due_at = now
        elif self._phase is ConsumerPhase.FATAL:
            self._fatal = None
            self._failures = 0
            self._phase = ConsumerPhase.PAUSING
            self._due_at = now

    def leave(self, now: float, reason: str = "") -> None:
        if self._phase not in (ConsumerPhase.LEAVING, ConsumerPhase.LEFT):
            self._begin_leaving(ConsumerPhase.LEAVING, now)

    def leave_now(self, now: float) -> None:
        flight = self._in_flight
        if self._phase is ConsumerPhase.LEAVING and flight is not None and flight.kind != "leave":
            self._in_flight = None  # its response is ignored
            self._is_known = True  # if it is a join
            self._due_at = now

    def _begin_leaving(self, phase: ConsumerPhase, now: float) -> None:
        """Give up what is held, then leave. What was lost stays lost."""
        self._fatal = None
        if self._phase is ConsumerPhase.MEMBER:
            self._reconciler.give_up(is_lost=False)
        self._phase = phase
        self._due_at = min(self._due_at, now) if self._reconciler.is_free else self._due_at

    def rejoin(self, reason: str, now: float) -> None:
        log.info(
            "group %s: ignoring a request to rebalance (%s): in the consumer group protocol the broker decides",
            self.group_id,
            reason,
        )

    def metadata_changed(self, topics: Mapping[str, TopicSnapshot], now: float) -> None:
        """The names of topics are looked up by the next :meth:`poll`."""

    # -- what there is to do -----------------------------------------------------------------------------------------

    def poll(self, now: float) -> list[GroupEffect]:
        self._check_poll_interval(now)
        step = self._reconciler.next_step(self._is_target_current)
        if step is not None:
            self._effects.append(step)
        if self._reconciler.is_free:
            self._on_free(now)
        self._resolve(now)
        if self._in_flight is None and now >= self._due_at:
            self._send_next(now)
        self.next_deadline = self._deadline(now)
        effects, self._effects = self._effects, []
        return effects

    def _check_poll_interval(self, now: float) -> None:
        polled_at = self.polled_at  # another thread may set it meanwhile
        if self._phase in _JOINED_PHASES and now >= polled_at + self._max_poll_interval_s:
            log.warning(
                "group %s: %.1f s have passed since the last poll(), more than max_poll_interval_ms: leaving the group "
                "until the next one. Raise that setting, or lower max_poll_records",
                self.group_id,
                now - polled_at,
            )
            self._phase = ConsumerPhase.STALE
            self._stale_at = polled_at
            self._reconciler.give_up(is_lost=True)
            self._due_at = now

    def _on_free(self, now: float) -> None:
        """Go on with what has waited until nothing was held."""
        if self._phase is ConsumerPhase.FENCED:
            self._phase = ConsumerPhase.JOINING
        elif self._phase is ConsumerPhase.FATAL:
            if self._fatal is not None:
                self._effects.append(self._fatal)
                self._fatal = None
        elif self._is_known or self._in_flight is not None:
            return
        elif self._phase is ConsumerPhase.STALE and self.polled_at != self._stale_at:
            self._join(now)
        elif self._phase is ConsumerPhase.PAUSING:
            self._phase = ConsumerPhase.UNJOINED
            self._due_at = inf
            if not self._wanted.is_empty:
                self._join(now)
        elif self._phase is ConsumerPhase.LEAVING:
            self._phase = ConsumerPhase.LEFT
            self._due_at = inf
            self._effects.append(Left())

    def _join(self, now: float) -> None:
        self._phase = ConsumerPhase.JOINING
        self._epoch = JOIN_EPOCH
        self._heartbeats.resend_all()
        self._quick_heartbeats = 0
        self._due_at = now

    def _resolve(self, now: float) -> None:
        if not self._reconciler.unresolved:
            self._metadata_at, self._metadata_asks = -inf, 0
        elif now >= self._metadata_at:
            self._metadata_asks += 1
            self._metadata_at = now + self._backoff.delay_s(self._metadata_asks)
            self._effects.append(NeedMetadata(self._wanted.topics, self._reconciler.unresolved))

    def _deadline(self, now: float) -> float:
        due_at = self._due_at if self._in_flight is None and self._next_request() is not None else inf
        if self._phase in _JOINED_PHASES:
            polled_at = self.polled_at
            due_at = min(due_at, (polled_at if polled_at < inf else now) + self._max_poll_interval_s)
        elif self._phase is ConsumerPhase.STALE and self._reconciler.is_free:
            due_at = min(due_at, now + POLL_CHECK_S)
        return min(due_at, self._metadata_at) if self._reconciler.unresolved else due_at

    # -- requests ----------------------------------------------------------------------------------------------------

    def _next_request(self) -> Callable[[], ConsumerGroupHeartbeatRequest] | None:
        """What the next request is, whenever it is due; None when there is to be none."""
        if self._phase is ConsumerPhase.JOINING and self._is_known and self.group_instance_id is not None:
            return self._leave_request
        if self._phase in _JOINED_PHASES:
            return self._heartbeat
        if self._phase is ConsumerPhase.STALE:
            return self._leave_request if self._is_known else None
        if self._phase in _LEAVING_PHASES and self._is_known:
            if self._reconciler.is_free:
                return self._leave_request
            return self._heartbeat if self._epoch > JOIN_EPOCH else None
        return None

    def _send_next(self, now: float) -> None:
        speech = self._next_request()
        if speech is None:
            return
        request = speech()
        if request.topic_partitions is not None:
            self._is_target_current = False
        self._send("leave" if request.member_epoch < JOIN_EPOCH else "heartbeat", request, self._request_timeout_s, now)

    def _leave_request(self) -> ConsumerGroupHeartbeatRequest:
        self._leave_attempts += 1
        return self._heartbeats.leave(self.member_id)

    def _heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        return self._heartbeats.heartbeat(self.member_id, self._epoch, self._wanted, self._reconciler.claimed)

    # -- what was carried out ----------------------------------------------------------------------------------------

    def carried_out(self, step: AssignmentStep, now: float) -> None:
        if not self._reconciler.carried_out(step):
            return
        if self._phase is ConsumerPhase.MEMBER:
            self._heartbeats.resend_owned()
            self._due_at = now  # the acknowledgement: others may wait for what was revoked
        elif self._phase in _LEAVING_PHASES:
            self._due_at = now

    def fenced(self, error: KafkaError, now: float) -> None:
        """The coordinator is asked at once, and its word counts: the commit may have been of a former membership."""
        if self._phase is ConsumerPhase.MEMBER:
            self._due_at = min(self._due_at, now)

    # -- answers -----------------------------------------------------------------------------------------------------

    def answered(self, ask: SendToCoordinator, response: Response, now: float) -> None:
        flight = self._take_flight(ask)
        if flight is None:
            return
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        if response.error_code:
            self._refused(for_code(response.error_code)(response.error_message or ""), flight.kind, now)
        elif flight.kind == "leave":
            self._has_left(now)
        else:
            self._accepted(response, now)

    def failed(self, ask: SendToCoordinator, error: BaseException, now: float) -> None:
        flight = self._take_flight(ask)
        if flight is None:
            return
        self._heartbeats.resend_all()
        if isinstance(error, (UnsupportedVersionError, UnsupportedFieldError)):
            has_pattern = isinstance(error, UnsupportedFieldError) and self._wanted.pattern is not None
            error = UnsupportedVersionError(_NO_PATTERNS if has_pattern else _NO_PROTOCOL)
        is_hopeless = NO_RESPONSE_ACTIONS.action_for(error) is RetryAction.GIVE_UP
        if flight.kind == "leave":
            self._leave_again(is_hopeless, now)
        elif is_hopeless and isinstance(error, KafkaError):
            self._give_up(error, self._epoch > JOIN_EPOCH)
        else:
            self._is_known = True
            self._effects.append(ForgetCoordinator(error))
            self._put_off(now)

    def _accepted(self, response: ConsumerGroupHeartbeatResponse, now: float) -> None:
        """A heartbeat succeeded: take over the epoch, the interval and, if there is one, the target assignment (None:
        unchanged; KIP-848). A member that has nothing yet heartbeats sooner, at growing intervals, and at once when
        there is something to acknowledge. A malformed assignment is fatal."""
        self._failures = 0
        self._is_known = self._is_target_current = True
        self._epoch = response.member_epoch
        self.member_id = response.member_id or self.member_id
        next_s = interval_s(response.heartbeat_interval_ms)
        if self._phase is ConsumerPhase.JOINING:
            self._phase = ConsumerPhase.MEMBER
        if self._phase is not ConsumerPhase.MEMBER:
            self._due_at = now if self._phase is ConsumerPhase.STALE or self._reconciler.is_free else now + next_s
            return
        if response.assignment is not None:
            try:
                check_assigned(each.partitions for each in response.assignment.topic_partitions)
            except KafkaProtocolError as error:
                self._give_up(error, is_member=True)
                return
            self._reconciler.set_target(
                frozenset(
                    (each.topic_id, number)
                    for each in response.assignment.topic_partitions
                    for number in each.partitions
                )
            )
        if self._reconciler.is_empty_handed:
            next_s = min(next_s, UNASSIGNED_HEARTBEAT_S * 2.0 ** min(self._quick_heartbeats, 30))
            self._quick_heartbeats += 1
        else:
            self._quick_heartbeats = 0
        self._due_at = now if self._heartbeats.has_news else now + next_s

    def _refused(self, error: BrokerResponseError, kind: str, now: float) -> None:
        """Does what the error's row says. A request that leaves is made again or, if the group does not have this
        member, was needless."""
        is_member = self._epoch > JOIN_EPOCH
        reaction = (CONSUMER_HEARTBEAT_ERRORS if is_member else CONSUMER_JOIN_ERRORS).action_for(error)
        self._heartbeats.resend_all()
        if reaction.coordinator:
            self._effects.append(ForgetCoordinator(error))
        if kind == "leave":
            self._leave_again(reaction.action is not HeartbeatErrorAction.RETRY, now)
            return
        if reaction.action is HeartbeatErrorAction.RETRY:
            if reaction.is_reported:
                self._effects.append(ReportError(error))
            self._put_off(now, reaction.at_once, reaction.after_s)
        elif reaction.action is HeartbeatErrorAction.REJOIN:
            log.info("group %s: member %s rejoins: %s", self.group_id, self.member_id, error)
            self._fence(reaction.is_member, now, reaction.at_once)
        else:
            if isinstance(error, UnsupportedVersionError):
                error = UnsupportedVersionError(_NO_PROTOCOL)
            self._give_up(error, reaction.is_member and is_member)

    def _fence(self, is_known: bool, now: float, at_once: bool) -> None:
        """The group does not count on this member any more. ``is_known``: but still has it."""
        self._is_known = is_known
        self._epoch = JOIN_EPOCH
        self._quick_heartbeats = 0
        self._reconciler.give_up(is_lost=True)
        if self._phase in _JOINED_PHASES:
            self._phase = ConsumerPhase.FENCED
            self._put_off(now, at_once)

    def _give_up(self, error: KafkaError, is_member: bool) -> None:
        self._is_known = is_member
        self._reconciler.give_up(is_lost=True)
        if self._phase in _JOINED_PHASES:
            self._phase = ConsumerPhase.FATAL
            self._fatal = ReportError(error, is_fatal=True)
            self._due_at = inf

    def _put_off(self, now: float, at_once: bool = False, after_s: float = 0.0) -> None:
        """The next request waits for a back-off, which grows with each failure in a row."""
        self._failures += 1
        self._due_at = now + max(after_s, self._backoff.delay_s(self._failures - at_once))

    # -- leaving -----------------------------------------------------------------------------------------------------

    def _has_left(self, now: float) -> None:
        self._is_known = False
        self._leave_attempts = 0
        self._epoch = JOIN_EPOCH
        self._due_at = now

    def _leave_again(self, is_hopeless: bool, now: float) -> None:
        if is_hopeless or self._leave_attempts >= LEAVE_ATTEMPTS:
            self._has_left(now)
        else:
            self._put_off(now)
