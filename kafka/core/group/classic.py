"""A member of a classic group (JoinGroup, SyncGroup, Heartbeat, LeaveGroup; the assignor runs in the leader).

    UNJOINED --JoinGroup--> JOINING --answer--> [ASSIGNING] --SyncGroup--> SYNCING --answer--> STABLE
       ^                       |                (a leader that knows too little of the topics)    |
       +---- an error, or the group rebalances: once more (``classic_reactions.py``) ---------------------+
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

Static members (KIP-345) never ask to leave; their session runs out, or they come back. Which error leads where is
``classic_reactions.py``, what a leader does ``leader.py``, the form of requests ``classic_requests.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from enum import Enum
from math import inf

from kafka.core.group.assignors.base import Assignor, RebalanceProtocol
from kafka.core.group.belongings import Step
from kafka.core.group.classic_rebalance import OVER, REBALANCING, SETTLED, ClassicRebalance, Phase
from kafka.core.group.classic_requests import Requests
from kafka.core.group.machine import (
    NO_GENERATION,
    Ask,
    Effect,
    ForgetCoordinator,
    Left,
    Lose,
    Revoke,
    Subscription,
    TopicPicture,
)
from kafka.core.group.session import STALLED_LOOK_S, Session
from kafka.core.retry import Backoff
from kafka.errors import IllegalArgumentError, KafkaError, KafkaTimeoutError
from kafka.wire.message import Response

log = logging.getLogger(__name__)


class _Exit(Enum):
    """Why it leaves."""

    PAUSE = "there is nothing to read"
    END = "for good"


class ClassicMember(ClassicRebalance):
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
        super().__init__(
            group_id,
            assignors,
            Requests(group_id, group_instance_id, session_timeout_s, max_poll_interval_s),
            Session(session_timeout_s, heartbeat_interval_s),
            retry_backoff,
            request_timeout_s,
            max_poll_interval_s,
            rack,
        )
        self.group_instance_id = group_instance_id
        self.polled_at = inf
        self._max_poll_interval_s = max_poll_interval_s
        self._exit: _Exit | None = None
        self._leave_reason = ""
        self._is_stalled = False

    @property
    def state_name(self) -> str:
        return "rebalancing" if self._phase in REBALANCING else self._phase.value

    # -- what the user wants -----------------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription, now: float) -> None:
        if subscription.pattern is not None:
            raise IllegalArgumentError(
                "a broker evaluates patterns in groups of the new protocol only (group_protocol='consumer'); "
                "give this one a compiled regular expression"
            )
        if self._phase is Phase.LEFT or self._exit is _Exit.END:
            return
        if self._phase is Phase.FATAL:
            self._phase = Phase.UNJOINED
            self._attempts.succeeded()
        self._wanted = subscription.topics
        self.next_deadline = now
        if not self._wanted:
            self._attempts.reason = None
            if self._is_somebody:
                self._exit = _Exit.PAUSE
                self._leave_reason = "the consumer unsubscribed from all topics"
        elif self._phase is Phase.UNJOINED and self._attempts.reason is None:
            self._attempts.want("")
        else:
            self._compare_subscription()

    def metadata_changed(self, topics: Mapping[str, TopicPicture], now: float) -> None:
        self._topics = topics
        self.next_deadline = now
        if self._phase is Phase.ASSIGNING:
            self._sync_as_leader(now)
        else:
            self._compare_metadata()

    def rejoin(self, reason: str, now: float) -> None:
        if self._phase is Phase.STABLE:
            self._attempts.want(reason)
            self.next_deadline = now

    def leave(self, now: float, reason: str = "") -> None:
        self._exit = _Exit.END
        self._leave_reason = reason or "the consumer is being closed"
        self.next_deadline = now

    def hurry(self, now: float) -> None:
        """The request that leaves waits for nothing here."""

    # -- what the user has carried out -------------------------------------------------------------------------------

    def revoked(self, now: float) -> None:
        self._carried_out(now)

    def lost(self, now: float) -> None:
        self._carried_out(now)

    def assigned(self, now: float) -> None:
        self._carried_out(now)

    def _carried_out(self, now: float) -> None:
        self._belongings.carried_out()
        self.next_deadline = now

    # -- what there is to do -----------------------------------------------------------------------------------------

    def poll(self, now: float) -> list[Effect]:
        if self._phase not in OVER:
            self._watch_clocks(now)
        if self._belongings.under_way is None:
            step = self._next_step()
            if step is not None:
                self._effects.append(step)
            elif self._exit is not None:
                self._leave_group(now)
            elif self._flight is None and not self._is_stalled:
                self._maybe_join(now)
        if self._flight is None and self._beats and self._session.is_beat_due(now):
            self._session.sent(now)
            timeout_s = min(self._request_timeout_s, self._session.timeout_s)
            self._ask("heartbeat", self._requests.heartbeat(self.member_id, self.generation), timeout_s, now)
        effects, self._effects = self._effects, []
        self.next_deadline = self._deadline(now)
        return effects

    def _watch_clocks(self, now: float) -> None:
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
                "group %s: this consumer leaves it, since poll() was not called for max_poll_interval_ms (%g s); raise "
                "that, or lower max_poll_records", self.group_id, self._max_poll_interval_s,
            )  # fmt: skip
            self._is_stalled = True
            if self._may_leave:
                self._ask_to_leave("consumer poll timeout has expired.", now)
            self._no_member(keeps_id=False)

    @property
    def _beats(self) -> bool:
        """It is a member of a generation and has no request at the coordinator that keeps it alive by waiting."""
        return self.generation != NO_GENERATION and self._phase in (Phase.UNJOINED, Phase.ASSIGNING, Phase.STABLE)

    @property
    def _may_stall(self) -> bool:
        """It leaves if its user does not poll. In the middle of a rebalance the coordinator has a limit of its own."""
        return self._beats and self._phase in SETTLED and self._exit is None

    @property
    def _is_somebody(self) -> bool:
        return bool(self.member_id or self.owned or self._flight or self._belongings.under_way)

    @property
    def _may_leave(self) -> bool:
        return bool(self.member_id) and self.group_instance_id is None

    def _next_step(self) -> Step | None:
        """What the user is to carry out now."""
        mine, owned = self._belongings, self._belongings.owned
        if owned and self.generation == NO_GENERATION:
            return mine.begin(Lose(owned))
        if self._exit is not None:
            # What a new generation gives to whom is open already: nothing can be committed for the old one.
            is_between = self._phase in (Phase.ASSIGNING, Phase.SYNCING)
            return mine.begin(Lose(owned) if is_between else Revoke(owned)) if owned else None
        if mine.told is not None:
            if owned - mine.told:
                self._attempts.want("need to revoke partitions and re-join")
            return mine.next_step()
        if self._attempts.reason is not None and self._phase in SETTLED:
            unfit = owned
            if self.rebalance_protocol is RebalanceProtocol.COOPERATIVE:
                unfit = frozenset(each for each in owned if each.topic not in self._wanted)
            return mine.begin(Revoke(unfit)) if unfit else None
        return None

    def _leave_group(self, now: float) -> None:
        if self._flight is not None and self._flight.kind == "leave":
            return
        if self._phase not in OVER and self._may_leave:
            self._phase = Phase.LEAVING
            self._ask_to_leave(self._leave_reason, now)
        elif self._phase is not Phase.LEFT:
            self._has_left(now)

    def _ask_to_leave(self, reason: str, now: float) -> None:
        self._ask("leave", self._requests.leave(self.member_id, reason), self._request_timeout_s, now)

    def _has_left(self, now: float) -> None:
        """The group has us no more, or will notice by itself."""
        self._no_member(keeps_id=False)
        if self._exit is _Exit.END:
            self._phase = Phase.LEFT
            self._effects.append(Left())
        elif self._wanted:
            self._attempts.want("")
        self._exit = None
        self.next_deadline = now

    def _deadline(self, now: float) -> float:
        if self._phase in OVER:
            return inf
        found = inf
        if self._beats:
            found = self._session.deadline(self._flight is None)
        if self._may_stall:
            # A user who is in poll now may leave it without a word and not come back.
            found = min(found, min(self.polled_at, now) + self._max_poll_interval_s)
        if self._flight is None and self._belongings.under_way is None:
            if self._is_stalled:
                found = min(found, now + STALLED_LOOK_S)
            elif self._phase is Phase.ASSIGNING:
                found = min(found, self._assign_by)
            elif self._attempts.reason is not None and self._wanted:
                found = min(found, self._attempts.at)
        return found

    # -- what comes back ---------------------------------------------------------------------------------------------

    def answered(self, ask: Ask, response: Response, now: float) -> None:
        flight = self._take_flight(ask, now)
        if flight is None:
            return
        if flight.kind == "leave":
            self._left_or_stalled(now)
        else:
            self._on_answer(flight.kind, flight.sent_at, response, now)

    def failed(self, ask: Ask, error: BaseException, now: float) -> None:
        flight = self._take_flight(ask, now)
        if flight is None:
            return
        if flight.kind == "leave":
            self._left_or_stalled(now)  # the coordinator will notice by itself
        else:
            self._react(error, flight.kind, now)

    def fenced(self, error: KafkaError, now: float) -> None:
        # The commit may have been of an earlier generation, whose end is nothing new. The next heartbeat will tell.
        self._session.pause(now)
        self.next_deadline = now

    def _left_or_stalled(self, now: float) -> None:
        if self._phase is Phase.LEAVING:
            self._has_left(now)
