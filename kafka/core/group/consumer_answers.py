"""What the answers to a member of the new protocol make of it: a member, one that joins anew, one that has left.

When it says something, and what it does for its user, is ``consumer.py``'s; what an error code asks for is
``consumer_reactions.py``'s.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from itertools import count
from math import inf
from typing import Final, NamedTuple
from uuid import UUID

from kafka.core.group.consumer_reactions import UNSUPPORTED_VERSION, Then, reaction_to
from kafka.core.group.consumer_requests import JOIN_EPOCH, Heartbeats
from kafka.core.group.holdings import Holdings
from kafka.core.group.machine import Ask, Effect, ForgetCoordinator, Report, Subscription
from kafka.core.partitions import check_assigned
from kafka.core.retry import Backoff, interval_s
from kafka.errors import (
    AuthenticationError,
    BrokerResponseError,
    IllegalArgumentError,
    IllegalStateError,
    KafkaError,
    KafkaProtocolError,
    UnsupportedFieldError,
    UnsupportedVersionError,
    for_code,
)
from kafka.protocol.consumer_group import ConsumerGroupHeartbeatResponse
from kafka.wire.message import Response

log = logging.getLogger(__name__)

EAGER_S: Final = 0.1
"""To the next heartbeat of who has nothing, doubled with each up to the broker's interval: the broker resolves regular
expressions after its answer, and assigns once a second at most (4.3), so the next one often has what this one lacks."""
LEAVE_ATTEMPTS: Final = 2
"""A request that leaves is tried so often. The group finds out by itself, later."""

_HOPELESS: Final = (AuthenticationError, BrokerResponseError, IllegalArgumentError, IllegalStateError)
"""What ends the membership when it comes instead of an answer, and is not retriable."""
_NO_PROTOCOL: Final = (
    "group_protocol='consumer': the broker does not offer the consumer group protocol of KIP-848, which needs Apache "
    "Kafka 4.0 or later with the feature group.version at 1 or above. Set group_protocol='classic', or upgrade it"
)
_NO_PATTERNS: Final = (
    "regular expressions that the broker evaluates need ConsumerGroupHeartbeat 1 (Apache Kafka 4.0): subscribe with "
    "pattern=, which this client evaluates, or by name"
)


class Phase(Enum):
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


class Said(NamedTuple):
    """What the request in flight is."""

    ask: Ask
    is_leave: bool


class ConsumerAnswers:
    """See the module, and :class:`kafka.core.group.consumer.ConsumerMember`, which this is the lower half of. Of its
    attributes that class writes the phase, the request in flight, whether the target is current, and when the next
    request is due, too."""

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
        self.group_id = group_id
        self.group_instance_id = group_instance_id
        self.member_id = member_id
        self.next_deadline = inf
        self.polled_at = inf
        rebalance_timeout_ms = min(round(max_poll_interval_s * 1000), 2**31 - 1)
        self._heartbeats = Heartbeats(group_id, group_instance_id, rack, server_assignor, rebalance_timeout_ms)
        self._max_poll_interval_s = max_poll_interval_s
        self._request_timeout_s = request_timeout_s
        self._backoff = retry_backoff
        self._holdings = Holdings(topic_of_id)
        self._wanted = Subscription()
        self._phase = Phase.UNJOINED
        self._epoch = JOIN_EPOCH
        # The group has this member, or may have it: a leave is owed, by a static member before it joins again, too.
        self._is_known = False
        self._said: Said | None = None
        # False while a heartbeat that lists the owned partitions has no answer. The broker goes by that list: it may
        # have assigned to others what is in the target and not owned yet, in an answer that was lost.
        self._is_target_current = True
        self._numbers = count()
        self._due_at = inf
        self._metadata_at = -inf
        self._failures = self._leave_attempts = self._eager = self._metadata_asks = 0
        self._stale_at = inf
        self._fatal: Report | None = None
        self._effects: list[Effect] = []

    # -- answers -----------------------------------------------------------------------------------------------------

    def answered(self, ask: Ask, response: Response, now: float) -> None:
        said = self._take(ask)
        if said is None:
            return
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        if response.error_code:
            self._refused(for_code(response.error_code)(response.error_message or ""), said, now)
        elif said.is_leave:
            self._has_left(now)
        else:
            self._accepted(response, now)

    def failed(self, ask: Ask, error: BaseException, now: float) -> None:
        said = self._take(ask)
        if said is None:
            return
        self._heartbeats.say_all()
        if isinstance(error, (UnsupportedVersionError, UnsupportedFieldError)):
            has_pattern = isinstance(error, UnsupportedFieldError) and self._wanted.pattern is not None
            error = UnsupportedVersionError(_NO_PATTERNS if has_pattern else _NO_PROTOCOL)
            is_hopeless = True
        else:
            is_hopeless = isinstance(error, _HOPELESS) and not error.retriable
        if said.is_leave:
            self._leave_again(is_hopeless, now)
        elif is_hopeless and isinstance(error, KafkaError):
            self._give_up(error, self._epoch > JOIN_EPOCH)
        else:
            self._is_known = True
            self._effects.append(ForgetCoordinator(error))
            self._put_off(now)

    def _take(self, ask: Ask) -> Said | None:
        said = self._said
        if said is None or said.ask.number != ask.number:
            return None
        self._said = None
        return said

    def _accepted(self, response: ConsumerGroupHeartbeatResponse, now: float) -> None:
        self._failures = 0
        self._is_known = self._is_target_current = True
        self._epoch = response.member_epoch
        self.member_id = response.member_id or self.member_id
        next_s = interval_s(response.heartbeat_interval_ms)
        if self._phase is Phase.JOINING:
            self._phase = Phase.MEMBER
        if self._phase is not Phase.MEMBER:
            self._due_at = now if self._phase is Phase.STALE or self._holdings.is_free else now + next_s
            return
        if response.assignment is not None:
            try:
                check_assigned(each.partitions for each in response.assignment.topic_partitions)
            except KafkaProtocolError as error:
                self._give_up(error, is_member=True)
                return
            self._holdings.told(
                frozenset(
                    (each.topic_id, number)
                    for each in response.assignment.topic_partitions
                    for number in each.partitions
                )
            )
        if self._holdings.is_empty_handed:
            next_s = min(next_s, EAGER_S * 2.0 ** min(self._eager, 30))
            self._eager += 1
        else:
            self._eager = 0
        self._due_at = now if self._heartbeats.has_news else now + next_s

    def _refused(self, error: BrokerResponseError, said: Said, now: float) -> None:
        reaction = reaction_to(error, self._epoch > JOIN_EPOCH)
        self._heartbeats.say_all()
        if reaction.coordinator:
            self._effects.append(ForgetCoordinator(error))
        if said.is_leave:
            self._leave_again(reaction.then is not Then.RETRY, now)
            return
        if reaction.then is Then.RETRY:
            if reaction.tell:
                self._effects.append(Report(error))
            self._put_off(now, reaction.at_once, reaction.after_s)
        elif reaction.then is Then.REJOIN:
            log.info("group %s: member %s joins anew: %s", self.group_id, self.member_id, error)
            self._fence(reaction.is_member, now, reaction.at_once)
        else:
            if error.errno == UNSUPPORTED_VERSION:
                error = UnsupportedVersionError(_NO_PROTOCOL)
            self._give_up(error, reaction.is_member and self._epoch > JOIN_EPOCH)

    def _fence(self, is_known: bool, now: float, at_once: bool) -> None:
        """The group does not count on this member any more. ``is_known``: but still has it."""
        self._is_known = is_known
        self._epoch = JOIN_EPOCH
        self._eager = 0
        self._holdings.give_up(is_lost=True)
        if self._phase in (Phase.JOINING, Phase.MEMBER):
            self._phase = Phase.FENCED
            self._put_off(now, at_once)

    def _give_up(self, error: KafkaError, is_member: bool) -> None:
        self._is_known = is_member
        self._holdings.give_up(is_lost=True)
        if self._phase in (Phase.JOINING, Phase.MEMBER):
            self._phase = Phase.FATAL
            self._fatal = Report(error, is_fatal=True)
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
