"""The heartbeats that make and keep a member of a share group (KIP-932; section "ShareGroupHeartbeat").

    JOINING --answer--> STABLE --leave()--> LEAVING --answer--> LEFT
       ^  ^               |
       |  +-- error: full request again, same member id        FATAL: the group cannot be joined
       +-- subscribe([]): one request that leaves, then silence until the next subscribe()

A member's id is made by the client and kept for its life, also across fencing. After any error the request says
everything again (epoch as it is, or 0 where the group has forgotten us). One request is in flight at a time, and what
is said meanwhile (another subscription, the end) waits for its answer: that answer is of the request that went out,
not of what is wanted by then. A fresh group answers with an empty assignment first, because it makes its state at
leisure: until partitions come, heartbeats follow one another quickly (measured on Apache Kafka 4.3.0: 2.4 s to the
first assignment of a fresh group instead of 5).
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from kafka.core.group.heartbeat import (
    NO_RESPONSE_ACTIONS,
    SHARE_HEARTBEAT_ERRORS,
    SHARE_JOIN_ERRORS,
    UNASSIGNED_HEARTBEAT_S,
    HeartbeatErrorAction,
)
from kafka.core.partitions import check_assigned
from kafka.core.retry import RetryAction, interval_s
from kafka.core.share.records import TopicIdPartition
from kafka.errors import BrokerResponseError, KafkaError, KafkaProtocolError, for_code
from kafka.protocol.constants import JOIN_EPOCH, LEAVE_EPOCH
from kafka.protocol.share import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

UNASSIGNED_HEARTBEATS: Final = 100
"""After so many of them in a row the broker's interval will do: there may be fewer partitions than members."""
BACKOFF_S: Final = 0.1
"""Between attempts after an error, doubled for each in a row."""
BACKOFF_MAX_S: Final = 1.0
INTERVAL_S: Final = 5.0
"""Between heartbeats until a response has it (``group.share.heartbeat.interval.ms``)."""


class ShareMemberState(Enum):
    """Where a member stands."""

    JOINING = "joining"
    STABLE = "stable"
    LEAVING = "leaving"
    LEFT = "left"
    FATAL = "fatal"


class HeartbeatOutcome(NamedTuple):
    """What an answer brought. ``assignment`` None: unchanged. ``lost_coordinator``: look for it before the next one.
    ``is_reported``: the error is raised to the user, though the member goes on."""

    assignment: list[TopicIdPartition] | None = None
    error: KafkaError | None = None
    lost_coordinator: bool = False
    is_reported: bool = False


class _SentHeartbeat(NamedTuple):
    """The request in flight: the subscription in it, and whether it leaves the group."""

    topics: list[str]
    leaving: bool


class ShareMembership:
    """One member of one group. Instants are ``now`` of one monotonic clock, in seconds."""

    def __init__(self, group_id: str, member_id: str, rack_id: str | None = None) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.state = ShareMemberState.JOINING
        self.epoch = JOIN_EPOCH
        self.assignment: list[TopicIdPartition] = []
        self.interval_s = INTERVAL_S
        """Between heartbeats, by the last response."""
        self.answered_at: float | None = None
        """When the group last answered a heartbeat without an error; None: never."""
        self._rack_id = rack_id or None  # never "": the broker refuses it
        self._topics: list[str] = []
        self._full = True
        self._due_at: float | None = None
        self._in_flight: _SentHeartbeat | None = None
        self._eager = 0
        """Quick heartbeats in a row."""
        self.failures = 0
        """Errors in a row."""

    def subscribe(self, topics: list[str], now: float) -> None:
        """Change what is subscribed to; the group learns it at once. An empty list: leave it until the next call."""
        if self.state in (ShareMemberState.LEAVING, ShareMemberState.LEFT):
            return
        if self.state is ShareMemberState.FATAL:
            self._forgotten()
        self._topics = sorted(topics)
        self._full = True
        self._eager = 0
        self._due_at = now if topics or self._is_known else None

    def leave(self, now: float) -> None:
        """Leave the group with the next request. Sessions must have been closed before: a leave frees no locks."""
        if self.state in (ShareMemberState.JOINING, ShareMemberState.STABLE):
            self.state = ShareMemberState.LEAVING
            if self._is_known:
                self._due_at = now
            else:
                self._left()

    def give_up(self, error: KafkaError) -> HeartbeatOutcome:
        """No more heartbeats until another subscription."""
        self.state = ShareMemberState.FATAL
        self._due_at = None
        return HeartbeatOutcome(None, error)

    @property
    def _is_known(self) -> bool:
        """The group has this member, or has it by the time that the request in flight is answered."""
        return self.epoch > JOIN_EPOCH or (self._in_flight is not None and not self._in_flight.leaving)

    def due_at(self) -> float | None:
        """When :meth:`next_request` has something to say; None: not before something else happens."""
        return None if self._in_flight is not None else self._due_at

    def next_request(self, now: float) -> ShareGroupHeartbeatRequest | None:
        """The heartbeat to send now, or None."""
        due_at = self.due_at()
        if due_at is None or now < due_at:
            return None
        self._in_flight = _SentHeartbeat(self._topics, self.state is ShareMemberState.LEAVING or not self._topics)
        if self._in_flight.leaving:
            return ShareGroupHeartbeatRequest(
                group_id=self.group_id, member_id=self.member_id, member_epoch=LEAVE_EPOCH
            )
        return ShareGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rack_id=self._rack_id if self._full else None,
            subscribed_topic_names=self._topics if self._full else None,
        )

    def on_response(self, response: ShareGroupHeartbeatResponse, now: float) -> HeartbeatOutcome:
        """Take in the answer to the last request."""
        sent = self._take_in_flight()
        if response.error_code:
            return self._refused(for_code(response.error_code)(response.error_message or ""), sent, now)
        self.failures = 0
        self.answered_at = now
        if sent.leaving:
            return self._has_left(now)
        self.epoch = response.member_epoch
        assigned = None
        if response.assignment is not None:
            try:
                check_assigned(each.partitions for each in response.assignment.topic_partitions)
            except KafkaProtocolError as error:
                return self.give_up(error)
            assigned = self.assignment = [
                TopicIdPartition(each.topic_id, partition)
                for each in response.assignment.topic_partitions
                for partition in each.partitions
            ]
        if self.state is ShareMemberState.LEAVING:
            self._due_at = now
            return HeartbeatOutcome()
        self.state = ShareMemberState.STABLE
        if sent.topics != self._topics:
            self._due_at = now
            return HeartbeatOutcome(assigned)
        self._full = False
        next_s = self.interval_s = interval_s(response.heartbeat_interval_ms)
        if self.assignment:
            self._eager = 0
        elif self._eager < UNASSIGNED_HEARTBEATS:
            self._eager += 1
            next_s = min(next_s, UNASSIGNED_HEARTBEAT_S)
        self._due_at = now + next_s
        return HeartbeatOutcome(assigned)

    def on_failure(self, error: KafkaError, now: float) -> HeartbeatOutcome:
        """No answer came: the network failed, or the error is one that no other attempt can mend."""
        sent = self._take_in_flight()
        self._full = True
        if sent.leaving:
            return self._has_left(now)
        is_final = NO_RESPONSE_ACTIONS.action_for(error) is RetryAction.GIVE_UP
        if is_final and self.state is not ShareMemberState.LEAVING:
            return self.give_up(error)
        self._due_at = now + self._delay_s()
        return HeartbeatOutcome(None, error, lost_coordinator=True)

    def _refused(self, error: BrokerResponseError, sent: _SentHeartbeat, now: float) -> HeartbeatOutcome:
        table = SHARE_HEARTBEAT_ERRORS if self.epoch > JOIN_EPOCH else SHARE_JOIN_ERRORS
        action, at_once, after_s, coordinator, tell, _ = table.action_for(error)
        self._full = True
        if action is not HeartbeatErrorAction.RETRY and (sent.leaving or self.state is ShareMemberState.LEAVING):
            return self._has_left(now)  # the group does not have us, or does not want us
        if action is HeartbeatErrorAction.GIVE_UP:
            return self.give_up(error)
        if action is HeartbeatErrorAction.REJOIN:
            self._forgotten()
            self._eager = 0
        self._due_at = now + self._delay_s(at_once, after_s)
        return HeartbeatOutcome(None, error, coordinator, tell)

    def _take_in_flight(self) -> _SentHeartbeat:
        sent, self._in_flight = self._in_flight, None
        assert sent is not None, "no request is out"
        return sent

    def _delay_s(self, at_once: bool = False, after_s: float = 0.0) -> float:
        """A first error is retried as its row says; errors in a row wait longer, whatever they are."""
        self.failures += 1
        repeated_s = BACKOFF_S * 2.0 ** min(self.failures - 2, 10) if self.failures > 1 else 0.0
        return max(0.0 if at_once else BACKOFF_S, after_s, min(repeated_s, BACKOFF_MAX_S))

    def _forgotten(self) -> None:
        self.epoch = JOIN_EPOCH
        self.state = ShareMemberState.JOINING

    def _has_left(self, now: float) -> HeartbeatOutcome:
        """The group has us no more: the end, or the pause that a subscription to nothing is."""
        if self.state is ShareMemberState.LEAVING:
            self._left()
        else:
            self._forgotten()
            self._due_at = now if self._topics else None
        self.assignment = []
        return HeartbeatOutcome([])

    def _left(self) -> None:
        self.state = ShareMemberState.LEFT
        self._due_at = None
