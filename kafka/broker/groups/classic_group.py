"""One classic group: who may join, stay, leave and commit (KIP-62, 345, 394, 814).

A request is looked at here; what it sets going is ``classic_rebalance.py``'s. A member's session is renewed by whatever
is heard from it, and while it waits for an answer it is alive whatever its session says. What may be committed by whom
is decided here too; the offsets are ``offset_store.py``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kafka.broker.groups.classic_member import ClassicMember, Join, JoinAnswer, Protocols, SyncAnswer
from kafka.broker.groups.classic_rebalance import (
    COMPLETING,
    DEAD,
    EMPTY,
    PREPARING,
    STABLE,
    ClassicLimits,
    ClassicRebalance,
)
from kafka.broker.groups.states import ClassicState
from kafka.broker.groups.timers import GroupTimers, Timeout
from kafka.errors import (
    BrokerResponseError,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    KafkaStorageError,
    MemberIdRequiredError,
    NonEmptyGroupError,
    NotCoordinatorError,
    RebalanceInProgressError,
    UnknownError,
    UnknownMemberIdError,
)

NEW_MEMBER_JOIN_S: Final = 300.0
"""How long a new member may wait in its first join without being heard from: clients without a known id may be gone."""

Store = Callable[["ClassicGroup", Mapping[str, bytes]], None]


class ClassicGroup(ClassicRebalance):
    """One group. ``store`` writes the group down with the assignments given, or raises KafkaStorageError (56);
    ``new_member_id`` makes an id from a client id or an instance id."""

    kind: Final = "classic"

    def __init__(
        self,
        group_id: str,
        limits: Callable[[], ClassicLimits],
        timers: GroupTimers,
        store: Store,
        new_member_id: Callable[[str], str],
        state: ClassicState = EMPTY,
    ) -> None:
        super().__init__(group_id, limits, timers, lambda _, assignments: store(self, assignments), state)
        self._new_member_id = new_member_id

    # -- join --------------------------------------------------------------------------------------------------------

    def join(self, wanted: Join, ticket: Any, now: float) -> None:
        """A JoinGroup request, whose session time-out and group id have been checked."""
        if not self._has_room_for(wanted.member_id):
            self.pending.discard(wanted.member_id)
            if wanted.member_id in self.members:
                self._remove(wanted.member_id)
            self._answers.append((ticket, JoinAnswer(GroupMaxSizeReachedError)))
        elif self.state is DEAD:
            self._answers.append((ticket, JoinAnswer(CoordinatorNotAvailableError, wanted.member_id)))
        elif not self._supports(wanted.protocol_type, wanted.protocols):
            self._answers.append((ticket, JoinAnswer(InconsistentGroupProtocolError, wanted.member_id)))
        elif not wanted.member_id:
            self._join_unknown(wanted, ticket, now)
        elif wanted.member_id in self.pending:
            if wanted.instance_id is not None:  # ids are given out to dynamic members only
                self._answers.append((ticket, JoinAnswer(UnknownError, wanted.member_id)))
            else:
                self._add(wanted, wanted.member_id, ticket, now)
        else:
            self._join_known(wanted, ticket, now)

    def _join_unknown(self, wanted: Join, ticket: Any, now: float) -> None:
        member_id = self._new_member_id(wanted.client_id if wanted.instance_id is None else wanted.instance_id)
        if wanted.instance_id is not None:
            old = self.static.get(wanted.instance_id)
            if old is None:
                self._add(wanted, member_id, ticket, now)
            else:
                self._replace_static(wanted, old, member_id, ticket, now)
        elif wanted.needs_known_id:
            self.pending.add(member_id)
            self._timers.set(Timeout.SESSION, member_id, now + wanted.session_timeout_ms / 1000)
            self._answers.append((ticket, JoinAnswer(MemberIdRequiredError, member_id)))
        else:
            self._add(wanted, member_id, ticket, now)

    def _join_known(self, wanted: Join, ticket: Any, now: float) -> None:
        error = self.member_error(wanted.member_id, wanted.instance_id)
        if error is not None:
            self._answers.append((ticket, JoinAnswer(error, wanted.member_id)))
            return
        member = self.members[wanted.member_id]
        is_same = member.protocols == wanted.protocols
        is_leader = member.member_id == self.leader
        if is_same and (self.state is COMPLETING or (self.state is STABLE and not is_leader)):
            # It asks again, because the answer was lost or it does not know better: nothing changes.
            members = self.members_for_leader() if is_leader else ()
            self._answers.append((ticket, self._generation_answer(member, members)))
        else:
            self._update(member, wanted, ticket)
            self._rebalance_or_complete(now)

    def _add(self, wanted: Join, member_id: str, ticket: Any, now: float) -> None:
        member = ClassicMember(
            member_id,
            wanted.instance_id,
            wanted.client_id,
            wanted.client_host,
            wanted.protocol_type,
            wanted.protocols,
            wanted.session_timeout_ms,
            wanted.rebalance_timeout_ms,
        )
        member.is_new = True
        member.join_ticket = ticket
        if self.state is PREPARING and self._previous is EMPTY:
            self._new_member_added = True
        self.put(member)
        self._timers.set(Timeout.SESSION, member_id, now + NEW_MEMBER_JOIN_S)
        self._rebalance_or_complete(now)

    def _update(self, member: ClassicMember, wanted: Join, ticket: Any) -> None:
        if member.join_ticket is not None and member.join_ticket is not ticket:
            # The client gave the other request up. It is answered all the same, or its connection would stay stuck.
            self._answers.append((member.join_ticket, JoinAnswer(RebalanceInProgressError, member.member_id)))
        member.protocols = wanted.protocols
        member.rebalance_timeout_ms = wanted.rebalance_timeout_ms
        member.session_timeout_ms = wanted.session_timeout_ms
        member.join_ticket = ticket

    def _replace_static(self, wanted: Join, old_id: str, new_id: str, ticket: Any, now: float) -> None:
        """A static member is back under a new id. While the group is stable and stays with its protocol, that is all:
        it takes over its assignment, and nobody else notices."""
        leader_before = self.leader
        old = self.members.pop(old_id)
        self._answer_join(old, JoinAnswer(FencedInstanceIdError, old_id))
        self._answer_sync(old, SyncAnswer(FencedInstanceIdError))
        member = self.members[new_id] = old.successor(new_id)
        self.static[wanted.instance_id or ""] = new_id
        if self.leader == old_id:
            self.leader = new_id
        self._to_sync.discard(old_id)
        self._timers.cancel(Timeout.SESSION, old_id)
        self._timers.set(Timeout.SESSION, new_id, now + member.session_timeout_ms / 1000)
        self._update(member, wanted, ticket)
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
                self.static[wanted.instance_id or ""] = old_id
                self.leader = leader_before
                self._timers.cancel(Timeout.SESSION, new_id)
                self._timers.set(Timeout.SESSION, old_id, now + old.session_timeout_ms / 1000)
                member.join_ticket = None
                self._answers.append((ticket, JoinAnswer(NotCoordinatorError, new_id)))
                return
            if wanted.may_skip_assignment:
                is_leader = self.leader == new_id
                answer = self._generation_answer(member, self.members_for_leader() if is_leader else ())
                self._answer_join(member, answer._replace(skip_assignment=is_leader))
            else:
                # The leader is told the id that it had, so that it does not think that it has to assign.
                self._answer_join(member, self._generation_answer(member)._replace(leader=leader_before or ""))

    def _has_room_for(self, member_id: str) -> bool:
        max_size = self._limits().max_size
        if self.state is PREPARING:
            member = self.members.get(member_id)
            joined = sum(one.join_ticket is not None for one in self.members.values())
            return (member is not None and member.join_ticket is not None) or joined < max_size
        return self.state in (EMPTY, DEAD) or member_id in self.members or len(self.members) < max_size

    def _supports(self, protocol_type: str, protocols: Protocols) -> bool:
        if self.state is EMPTY:
            return bool(protocol_type and protocols)
        return self.shares_protocol(protocol_type, protocols)

    # -- heartbeat, leave, time --------------------------------------------------------------------------------------

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: float) -> None:
        """Keep a member's session; RebalanceInProgressError (27) while everybody has to join again, or why it is no
        member of this generation."""
        if self.state is DEAD:
            raise CoordinatorNotAvailableError("")
        self._check_generation(member_id, instance_id, generation)
        self._renew_session(self.members[member_id], now)
        if self.state is PREPARING:
            raise RebalanceInProgressError("")

    def leave(self, member_id: str, instance_id: str | None) -> None:
        """Take one member out; the caller ends a request that takes several out with :meth:`left`. A static one may be
        named by its instance id alone."""
        if not member_id:
            if instance_id is None or instance_id not in self.static:
                raise UnknownMemberIdError("")
            member_id = self.static[instance_id]
        elif member_id in self.pending:
            self.pending.discard(member_id)
            self._timers.cancel(Timeout.SESSION, member_id)
            return
        else:
            error = self.member_error(member_id, instance_id)
            if error is not None:
                raise error("")
        self._answer_join(self.members[member_id], JoinAnswer(UnknownMemberIdError))
        self._remove(member_id)

    def left(self, now: float) -> None:
        """Members have left: the others share what they had."""
        if self.state in (STABLE, COMPLETING):
            self.prepare_rebalance(now)
        elif self.state is PREPARING:
            self._maybe_complete(now)

    def expired(self, kind: Timeout, member_id: str, now: float) -> None:
        """A time-out is due."""
        if kind is Timeout.JOIN:
            self._join_over(now)
        elif kind is Timeout.SYNC:
            self._sync_over(now)
        elif kind is Timeout.SESSION:
            self._session_over(member_id, now)

    def _session_over(self, member_id: str, now: float) -> None:
        member = self.members.get(member_id)
        if member_id in self.pending:
            self.pending.discard(member_id)
        elif member is None or member.waits:
            return
        else:
            self._answer_join(member, JoinAnswer(UnknownMemberIdError))
            self._remove(member_id)
            if self.state in (STABLE, COMPLETING):
                self.prepare_rebalance(now)
                return
        if self.state is PREPARING and self._all_joined:
            self._complete_join(now)

    def die(self, error: type[BrokerResponseError] = CoordinatorNotAvailableError) -> None:
        """The group ends here: it was deleted or becomes one of the other kind. Who waits is told ``error``."""
        for member in self.members.values():
            self._answer_join(member, JoinAnswer(error, member.member_id))
            self._answer_sync(member, SyncAnswer(error))
        self._timers.cancel_all()
        self._enter(DEAD)

    def resume(self, now: float) -> None:
        """It was read from the disk: every member has its session time-out to be heard from."""
        for member in self.members.values():
            self._renew_session(member, now)
        if len(self.members) > self._limits().max_size:
            self.prepare_rebalance(now)

    # -- offsets -----------------------------------------------------------------------------------------------------

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, transactional: bool, now: float
    ) -> None:
        """Raise what stands against a commit. Who commits is heard from."""
        if self.state is DEAD:
            raise CoordinatorNotAvailableError("")
        if generation < 0 and self.state is EMPTY:
            return
        if generation >= 0 or member_id or instance_id is not None:
            self._check_generation(member_id, instance_id, generation)
        elif not transactional:
            raise UnknownMemberIdError("")
        if not transactional:
            if self.state is COMPLETING:
                raise RebalanceInProgressError("")
            member = self.members.get(member_id)
            if member is not None:
                self._renew_session(member, now)

    def check_offset_delete(self) -> None:
        """Raise what stands against deleting any of its offsets."""
        if self.state is DEAD:
            raise GroupIdNotFoundError("")
        if not self.is_empty and not self.is_of_consumers:
            raise NonEmptyGroupError("")

    def _check_generation(self, member_id: str, instance_id: str | None, generation: int) -> None:
        error = self.member_error(member_id, instance_id)
        if error is not None:
            raise error("")
        if generation != self.generation:
            raise IllegalGenerationError("")
