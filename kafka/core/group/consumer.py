"""A member of a consumer group of the new protocol, whose broker assigns (KIP-848), as a :class:`GroupMachine`.

    UNJOINED ──subscribe()──► JOINING ──answer──► MEMBER        heartbeats, at the interval that the broker wants
                                 ▲                 │  │
                                 └──── FENCED ◄────┘  │         told to join anew: first the partitions are given up
                                 └──── STALE  ◄───────┤         the user has not polled for too long: out, until they do
    UNJOINED or JOINING ◄── PAUSING ◄──subscribe(∅)───┤         partitions are revoked, then the request that leaves
    LEFT ◄── LEAVING ◄──────leave()───────────────────┘         the same, for good           FATAL: nothing, until asked

What a heartbeat says is in ``consumer_requests.py``. What the answer assigns is carried out step by step
(``holdings.py``), and each step is acknowledged at once by a heartbeat that says what is owned. What answers make of
the member is in ``consumer_answers.py``, what errors mean in ``consumer_reactions.py``. One request is in flight at a
time; what is wanted meanwhile waits for its answer, but for who leaves in a hurry.

Static members (KIP-345, as KIP-848 has it) leave with the epoch -2, which keeps their place for a session. A place is
given to nobody else before, not even to its owner: the join whose answer was lost, and who was fenced, are answered
with UNRELEASED_INSTANCE_ID (seen on Apache Kafka 4.3.0). Such a member says -2 first, and joins then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from math import inf
from typing import Final

from kafka.core.group.consumer_answers import ConsumerAnswers, Phase, Said
from kafka.core.group.consumer_requests import JOIN_EPOCH
from kafka.core.group.machine import (
    NO_GENERATION,
    Ask,
    Assign,
    Effect,
    Left,
    Lose,
    NeedMetadata,
    Revoke,
    Subscription,
    TopicPicture,
)
from kafka.errors import KafkaError
from kafka.protocol.consumer_group import ConsumerGroupHeartbeatRequest
from kafka.structs import TopicPartition

log = logging.getLogger(__name__)

STALE_CHECK_S: Final = 0.5
"""Between looks whether a user, who has nothing to be told of, polls again."""


class ConsumerMember(ConsumerAnswers):
    """One member. ``member_id``: the text of a UUID, kept for life, also across fencing (KIP-1082). ``server_assignor``
    None: the group's first. ``max_poll_interval_s`` is what the broker allows for a revocation, too.
    ``topic_of_id``: the name of a topic, None while it is unknown."""

    # -- what it is --------------------------------------------------------------------------------------------------

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self._holdings.owned

    @property
    def generation(self) -> int:
        is_out = self._epoch <= JOIN_EPOCH or self._phase in (Phase.STALE, Phase.FATAL)
        return NO_GENERATION if is_out else self._epoch

    @property
    def state_name(self) -> str:
        if self._phase is Phase.MEMBER and not self._holdings.is_reconciled:
            return "reconciling"
        return self._phase.value

    # -- what the user wants -----------------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription, now: float) -> None:
        if self._phase in (Phase.LEAVING, Phase.LEFT) or (
            subscription == self._wanted and self._phase is not Phase.FATAL
        ):
            return
        self._wanted = subscription
        self._heartbeats.say_topics()
        self._eager = 0
        if not self._is_wanted:
            self._go_out(Phase.PAUSING, now)
        elif self._phase is Phase.UNJOINED:
            self._join(now)
        elif self._phase is Phase.MEMBER:
            self._due_at = now
        elif self._phase is Phase.FATAL:
            self._fatal = None
            self._failures = 0
            self._phase = Phase.PAUSING
            self._due_at = now

    @property
    def _is_wanted(self) -> bool:
        return bool(self._wanted.topics) or self._wanted.pattern is not None

    def leave(self, now: float, reason: str = "") -> None:
        if self._phase not in (Phase.LEAVING, Phase.LEFT):
            self._go_out(Phase.LEAVING, now)

    def hurry(self, now: float) -> None:
        if self._phase is Phase.LEAVING and self._said is not None and not self._said.is_leave:
            self._said = None  # its answer is for nobody
            self._is_known = True  # if it is a join
            self._due_at = now

    def _go_out(self, phase: Phase, now: float) -> None:
        """Give up what is held, then leave. What was lost stays lost."""
        self._fatal = None
        if self._phase is Phase.MEMBER:
            self._holdings.give_up(is_lost=False)
        self._phase = phase
        self._due_at = min(self._due_at, now) if self._holdings.is_free else self._due_at

    def rejoin(self, reason: str, now: float) -> None:
        log.info("group %s: a rebalance was asked for (%s); the broker decides about them", self.group_id, reason)

    def metadata_changed(self, topics: Mapping[str, TopicPicture], now: float) -> None:
        """The names of topics are looked up by the next :meth:`poll`."""

    # -- what there is to do -----------------------------------------------------------------------------------------

    def poll(self, now: float) -> list[Effect]:
        self._watch_user(now)
        step = self._holdings.next_step(self._is_target_current)
        if step is not None:
            self._effects.append(step)
        if self._holdings.is_free:
            self._on_free(now)
        self._resolve(now)
        if self._said is None and now >= self._due_at:
            self._speak(now)
        self.next_deadline = self._deadline(now)
        effects, self._effects = self._effects, []
        return effects

    def _watch_user(self, now: float) -> None:
        polled_at = self.polled_at  # another thread may set it meanwhile
        if self._phase in (Phase.JOINING, Phase.MEMBER) and now >= polled_at + self._max_poll_interval_s:
            log.warning(
                "group %s: %.1f s have passed since the last poll(), more than max_poll_interval_ms: leaving the group "
                "until the next one. Raise that setting, or lower max_poll_records",
                self.group_id,
                now - polled_at,
            )
            self._phase = Phase.STALE
            self._stale_at = polled_at
            self._holdings.give_up(is_lost=True)
            self._due_at = now

    def _on_free(self, now: float) -> None:
        """Go on with what has waited until nothing was held."""
        if self._phase is Phase.FENCED:
            self._phase = Phase.JOINING
        elif self._phase is Phase.FATAL:
            if self._fatal is not None:
                self._effects.append(self._fatal)
                self._fatal = None
        elif self._is_known or self._said is not None:
            return
        elif self._phase is Phase.STALE and self.polled_at != self._stale_at:
            self._join(now)
        elif self._phase is Phase.PAUSING:
            self._phase = Phase.UNJOINED
            self._due_at = inf
            if self._is_wanted:
                self._join(now)
        elif self._phase is Phase.LEAVING:
            self._phase = Phase.LEFT
            self._due_at = inf
            self._effects.append(Left())

    def _join(self, now: float) -> None:
        self._phase = Phase.JOINING
        self._epoch = JOIN_EPOCH
        self._heartbeats.say_all()
        self._eager = 0
        self._due_at = now

    def _resolve(self, now: float) -> None:
        if not self._holdings.unresolved:
            self._metadata_at, self._metadata_asks = -inf, 0
        elif now >= self._metadata_at:
            self._metadata_asks += 1
            self._metadata_at = now + self._backoff.delay_s(self._metadata_asks)
            self._effects.append(NeedMetadata(self._wanted.topics, self._holdings.unresolved))

    def _deadline(self, now: float) -> float:
        due_at = self._due_at if self._said is None and self._speech() is not None else inf
        if self._phase in (Phase.JOINING, Phase.MEMBER):
            polled_at = self.polled_at
            due_at = min(due_at, (polled_at if polled_at < inf else now) + self._max_poll_interval_s)
        elif self._phase is Phase.STALE and self._holdings.is_free:
            due_at = min(due_at, now + STALE_CHECK_S)
        return min(due_at, self._metadata_at) if self._holdings.unresolved else due_at

    # -- requests ----------------------------------------------------------------------------------------------------

    def _speech(self) -> Callable[[], ConsumerGroupHeartbeatRequest] | None:
        """What the next request is, whenever it is due; None when there is to be none."""
        if self._phase is Phase.JOINING and self._is_known and self.group_instance_id is not None:
            return self._leave_request
        if self._phase in (Phase.JOINING, Phase.MEMBER):
            return self._heartbeat
        if self._phase is Phase.STALE:
            return self._leave_request if self._is_known else None
        if self._phase in (Phase.PAUSING, Phase.LEAVING) and self._is_known:
            if self._holdings.is_free:
                return self._leave_request
            return self._heartbeat if self._epoch > JOIN_EPOCH else None
        return None

    def _speak(self, now: float) -> None:
        speech = self._speech()
        if speech is None:
            return
        request = speech()
        if request.topic_partitions is not None:
            self._is_target_current = False
        self._said = Said(Ask(next(self._numbers), request, self._request_timeout_s), request.member_epoch < JOIN_EPOCH)
        self._effects.append(self._said.ask)

    def _leave_request(self) -> ConsumerGroupHeartbeatRequest:
        self._leave_attempts += 1
        return self._heartbeats.leave(self.member_id)

    def _heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        return self._heartbeats.heartbeat(self.member_id, self._epoch, self._wanted, self._holdings.claimed)

    # -- what was carried out ----------------------------------------------------------------------------------------

    def revoked(self, now: float) -> None:
        self._carried_out(Revoke, now)

    def lost(self, now: float) -> None:
        self._carried_out(Lose, now)

    def assigned(self, now: float) -> None:
        self._carried_out(Assign, now)

    def _carried_out(self, kind: type[Revoke] | type[Lose] | type[Assign], now: float) -> None:
        if not self._holdings.carried_out(kind):
            return
        if self._phase is Phase.MEMBER:
            self._heartbeats.say_owned()
            self._due_at = now  # the acknowledgement: others may wait for what was revoked
        elif self._phase in (Phase.PAUSING, Phase.LEAVING):
            self._due_at = now

    def fenced(self, error: KafkaError, now: float) -> None:
        """The coordinator is asked at once, and its word counts: the commit may have been of a former membership."""
        if self._phase is Phase.MEMBER:
            self._due_at = min(self._due_at, now)
