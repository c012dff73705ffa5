"""A classic group's way from one generation to the next: everybody joins, the leader assigns, everybody is told.

    Empty, Stable ──> PreparingRebalance      until all have joined, or time is up: a new generation
                      CompletingRebalance     until the leader has said who gets what
                      Stable

What was agreed on is stored before anybody hears of it. Requests that wait are known by tickets, which mean nothing
here; what is to be answered is taken with :meth:`ClassicRebalance.take_answers` after each call. Who may join, leave
and commit is in ``classic_group.py``, the steps between states are those of ``states.CLASSIC``.

The time-outs are Kafka's: the longest rebalance time-out of all members for a join and again for the syncs; for the
first join of an empty group a short delay, longer while members come in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from kafka.broker.groups.classic_member import ClassicMember, JoinAnswer, Sync, SyncAnswer
from kafka.broker.groups.classic_roster import ClassicRoster
from kafka.broker.groups.states import CLASSIC, REBALANCES_FROM, ClassicState
from kafka.broker.groups.timers import GroupTimers, Timeout
from kafka.core.states import States
from kafka.errors import (
    BrokerResponseError,
    CoordinatorNotAvailableError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    KafkaStorageError,
    NotCoordinatorError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = ClassicState

Answer = tuple[Any, "JoinAnswer | SyncAnswer"]
"""A ticket, and what its request is answered."""


class ClassicLimits(NamedTuple):
    """``group.max.size`` and ``group.initial.rebalance.delay.ms``."""

    max_size: int = 2**31 - 1
    initial_delay_ms: int = 3000


class ClassicRebalance(ClassicRoster):
    """The generations of one group. ``store`` writes the group down with the assignments given, or raises
    KafkaStorageError (56)."""

    def __init__(
        self,
        group_id: str,
        limits: Callable[[], ClassicLimits],
        timers: GroupTimers,
        store: Callable[[ClassicRebalance, Mapping[str, bytes]], None],
        state: ClassicState = EMPTY,
    ) -> None:
        super().__init__()
        self.group_id = group_id
        self.generation = 0
        self.changed_at_ms = -1
        """When the state was entered, in epoch ms; the owner sets it when it stores the group."""
        self._state = States(CLASSIC, state, f"classic group {group_id}")
        self._previous = state
        self._limits = limits
        self._timers = timers
        self._store = store
        self._to_sync: set[str] = set()
        self._new_member_added = False
        self._delay_left_ms: int | None = None
        """By how much an empty group's first join may still become longer; None: it is no such join."""
        self._answers: list[Answer] = []

    @property
    def state(self) -> ClassicState:
        return self._state.now

    @property
    def is_empty(self) -> bool:
        """No members; pending ones do not count."""
        return self.state is EMPTY

    def take_answers(self) -> list[Answer]:
        """What has been decided since the last call."""
        taken, self._answers = self._answers, []
        return taken

    # -- everybody joins ---------------------------------------------------------------------------------------------

    def prepare_rebalance(self, now: float) -> None:
        """Have everybody join again."""
        if self.state is COMPLETING:
            self._reset_assignments(RebalanceInProgressError, now)
        self._to_sync.clear()
        self._timers.cancel(Timeout.SYNC)
        is_initial = self.state is EMPTY
        self._enter(PREPARING)
        if is_initial:
            delay_ms = self._limits().initial_delay_ms
            self._delay_left_ms = max(round(self.rebalance_timeout_s * 1000) - delay_ms, 0)
            self._timers.set(Timeout.JOIN, "", now + delay_ms / 1000)
            if delay_ms == 0:
                self._join_over(now)
        elif self._all_joined:
            self._complete_join(now)
        else:
            self._timers.set(Timeout.JOIN, "", now + self.rebalance_timeout_s)

    def _rebalance_or_complete(self, now: float) -> None:
        if self.state in REBALANCES_FROM:
            self.prepare_rebalance(now)
        else:
            self._maybe_complete(now)

    @property
    def _all_joined(self) -> bool:
        return not self.pending and all(member.join_ticket is not None for member in self.members.values())

    def _maybe_complete(self, now: float) -> None:
        if self.state is PREPARING and self._previous is not EMPTY and self._all_joined:
            self._complete_join(now)

    def _join_over(self, now: float) -> None:
        """The time to join is over. In an empty group's first rebalance there is more while members come in."""
        if self.state is not PREPARING:
            return
        if self._new_member_added and self._delay_left_ms:
            self._new_member_added = False
            delay_ms = min(self._limits().initial_delay_ms, self._delay_left_ms)
            self._delay_left_ms -= delay_ms
            self._timers.set(Timeout.JOIN, "", now + delay_ms / 1000)
        else:
            self._complete_join(now)

    def _complete_join(self, now: float) -> None:
        self._timers.cancel(Timeout.JOIN)
        self._delay_left_ms, self._new_member_added = None, False
        for member in list(self.members.values()):
            if member.join_ticket is None and member.instance_id is None:  # static ones keep their place
                self._remove(member.member_id)
        if self.members and not self._elect_leader():
            self._timers.set(Timeout.JOIN, "", now + self.rebalance_timeout_s)
            return
        self.generation += 1
        self._to_sync.clear()
        if not self.members:
            self.protocol_name, self.leader = None, None
            self.subscribed = self.subscription()
            self._enter(EMPTY)
            with suppress(KafkaStorageError):  # after a restart it is found out again, as the members' sessions end
                self._store(self, {})
            return
        self.protocol_name = self.vote()
        self.subscribed = self.subscription()
        self._enter(COMPLETING)
        for member in self.members.values():
            members = self.members_for_leader() if member.member_id == self.leader else ()
            self._answer_join(member, self._generation_answer(member, members))
            self._renew_session(member, now)
            member.is_new = False
            self._to_sync.add(member.member_id)
        self._timers.set(Timeout.SYNC, "", now + self.rebalance_timeout_s)

    def _elect_leader(self) -> bool:
        """Have a leader that has joined; False when nobody has."""
        leader = self.members.get(self.leader or "")
        if leader is None or leader.join_ticket is None:
            leader = next((one for one in self.in_order() if one.join_ticket is not None), None)
            if leader is None:
                return False
        self.leader = leader.member_id
        return True

    # -- everybody is told -------------------------------------------------------------------------------------------

    def sync(self, wanted: Sync, ticket: Any, now: float) -> None:
        """A SyncGroup request; the leader's has everybody's assignment."""
        error = self._sync_error(wanted)
        if error is not None:
            self._answers.append((ticket, SyncAnswer(error)))
            return
        member = self.members[wanted.member_id]
        self._to_sync.discard(member.member_id)
        if not self._to_sync:
            self._timers.cancel(Timeout.SYNC)
        if self.state is STABLE:
            self._answers.append((ticket, self._assignment_answer(member)))
            return
        if member.sync_ticket is not None:
            self._answers.append((member.sync_ticket, SyncAnswer(RebalanceInProgressError)))
        member.sync_ticket = ticket
        if member.member_id == self.leader:
            self._assign({one: wanted.assignments.get(one, b"") for one in self.members}, now)

    def _sync_error(self, wanted: Sync) -> type[BrokerResponseError] | None:
        if self.state is EMPTY:
            return UnknownMemberIdError
        if self.state is DEAD:
            return CoordinatorNotAvailableError
        error = self.member_error(wanted.member_id, wanted.instance_id)
        if error is not None:
            return error
        if wanted.generation != self.generation:
            return IllegalGenerationError
        for asked, own in ((wanted.protocol_type, self.protocol_type), (wanted.protocol_name, self.protocol_name)):
            if asked is not None and own is not None and asked != own:
                return InconsistentGroupProtocolError
        return RebalanceInProgressError if self.state is PREPARING else None

    def _assign(self, assignments: Mapping[str, bytes], now: float) -> None:
        try:
            self._store(self, assignments)
        except KafkaStorageError:
            self._reset_assignments(NotCoordinatorError, now)
            self.prepare_rebalance(now)
            return
        for member in self.members.values():
            member.assignment = assignments[member.member_id]
        self._enter(STABLE)
        for member in self.members.values():
            if member.sync_ticket is not None:
                self._answer_sync(member, self._assignment_answer(member))
                self._renew_session(member, now)

    def _reset_assignments(self, error: type[BrokerResponseError], now: float) -> None:
        for member in self.members.values():
            member.assignment = b""
            if member.sync_ticket is not None:
                self._answer_sync(member, SyncAnswer(error))
                self._renew_session(member, now)

    def _sync_over(self, now: float) -> None:
        if self.state in (COMPLETING, STABLE) and self._to_sync:
            for member_id in sorted(self._to_sync):
                self._remove(member_id)
            self.prepare_rebalance(now)

    # -- small things ------------------------------------------------------------------------------------------------

    def _enter(self, state: ClassicState) -> None:
        self._previous = self.state
        self._state.enter(state)

    def _remove(self, member_id: str) -> None:
        member = self.drop(member_id)
        self._answer_sync(member, SyncAnswer(UnknownMemberIdError))
        self._to_sync.discard(member_id)
        self._timers.cancel(Timeout.SESSION, member_id)

    def _renew_session(self, member: ClassicMember, now: float) -> None:
        self._timers.set(Timeout.SESSION, member.member_id, now + member.session_timeout_ms / 1000)

    def _generation_answer(
        self, member: ClassicMember, members: tuple[tuple[str, str | None, bytes], ...] = ()
    ) -> JoinAnswer:
        return JoinAnswer(
            None, member.member_id, self.generation, self.protocol_type, self.protocol_name, self.leader or "",
            False, members,
        )  # fmt: skip

    def _assignment_answer(self, member: ClassicMember) -> SyncAnswer:
        return SyncAnswer(None, self.protocol_type, self.protocol_name, member.assignment)

    def _answer_join(self, member: ClassicMember, answer: JoinAnswer) -> None:
        if member.join_ticket is not None:
            self._answers.append((member.join_ticket, answer))
            member.join_ticket = None

    def _answer_sync(self, member: ClassicMember, answer: SyncAnswer) -> None:
        if member.sync_ticket is not None:
            self._answers.append((member.sync_ticket, answer))
            member.sync_ticket = None
