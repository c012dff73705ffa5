"""How a member of a classic group gets into a generation: joins, leads if it has to, syncs; and what errors make of it.

``classic.py`` decides when; what an error asks for is ``classic_reactions.py``'s, what a leader does ``leader.py``'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import count
from math import inf
from typing import Any, Final, NamedTuple

from kafka.core.dialogue import ByVersion
from kafka.core.group.assignors.base import Assignor, RebalanceProtocol
from kafka.core.group.attempts import Attempts
from kafka.core.group.belongings import Belongings
from kafka.core.group.classic_reactions import HEARTBEAT, JOIN, SYNC, Reaction, Table, described, reaction_to
from kafka.core.group.classic_requests import Requests
from kafka.core.group.leader import Leadership
from kafka.core.group.machine import (
    NO_GENERATION,
    Ask,
    Effect,
    ForgetCoordinator,
    NeedMetadata,
    Report,
    TopicPicture,
)
from kafka.core.group.protocol import PROTOCOL_TYPE, MemberSubscription, read_assignment, write_subscription
from kafka.core.group.session import Session
from kafka.core.retry import Backoff
from kafka.errors import IllegalArgumentError, IllegalStateError, InconsistentGroupProtocolError, KafkaError
from kafka.protocol.groups import HeartbeatResponse, JoinGroupResponse, SyncGroupRequest, SyncGroupResponse
from kafka.structs import TopicPartition
from kafka.wire.message import Request, Response

JOIN_GRACE_S: Final = 5.0
"""A JoinGroup request is answered when the rebalance time-out is over at the latest; it is waited so much longer."""


class Phase(Enum):
    """Where a member stands; the values are its ``state_name``, but for those of REBALANCING."""

    UNJOINED = "unjoined"
    JOINING = "joining"
    ASSIGNING = "assigning"
    SYNCING = "syncing"
    STABLE = "stable"
    LEAVING = "leaving"
    LEFT = "left"
    FATAL = "fatal"


class Flight(NamedTuple):
    """The request that waits for an answer."""

    number: int
    kind: str
    sent_at: float


OVER: Final = (Phase.LEFT, Phase.FATAL)
REBALANCING: Final = (Phase.JOINING, Phase.ASSIGNING, Phase.SYNCING)
SETTLED: Final = (Phase.UNJOINED, Phase.STABLE)
_TABLES: Final[Mapping[str, Table]] = {"join": JOIN, "sync": SYNC, "heartbeat": HEARTBEAT}


class ClassicRebalance:
    """See the module. Of its attributes ``classic.py`` writes the phase, the topics and when to look again."""

    def __init__(
        self,
        group_id: str,
        assignors: Sequence[Assignor],
        requests: Requests,
        session: Session,
        retry_backoff: Backoff,
        request_timeout_s: float,
        rebalance_timeout_s: float,
        rack: str,
    ) -> None:
        self.group_id = group_id
        self.member_id = ""
        self.generation = NO_GENERATION
        self.next_deadline = inf
        self.protocol_name: str | None = None
        """The assignor that the group has chosen."""
        self.rebalance_protocol = common_protocol(assignors)
        self._assignors = {each.name: each for each in assignors}
        self._requests = requests
        self._session = session
        self._attempts = Attempts(retry_backoff)
        self._belongings = Belongings()
        self._request_timeout_s = request_timeout_s
        self._join_timeout_s = max(request_timeout_s, max(rebalance_timeout_s, session.timeout_s) + JOIN_GRACE_S)
        self._rack = rack
        self._phase = Phase.UNJOINED
        self._wanted: frozenset[str] = frozenset()
        self._joined_with: frozenset[str] = frozenset()
        self._topics: Mapping[str, TopicPicture] = {}
        self._leadership: Leadership | None = None
        self._assign_by = inf
        self._effects: list[Effect] = []
        self._flight: Flight | None = None
        self._numbers = count()

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """What is this member's; see :class:`Belongings`."""
        return self._belongings.owned

    @property
    def is_leader(self) -> bool:
        """It assigns, and watches the topics of the whole group."""
        return self._leadership is not None

    # -- requests ----------------------------------------------------------------------------------------------------

    def _ask(self, kind: str, request: Request[Any] | ByVersion[Any], timeout_s: float, now: float) -> None:
        number, flight = next(self._numbers), self._flight
        is_held_up = kind == "leave" and flight is not None and flight.kind != "heartbeat"  # by what is given up
        self._flight = Flight(number, kind, now)
        self._effects.append(Ask(number, request, timeout_s, is_held_up))

    def _take_flight(self, ask: Ask, now: float) -> Flight | None:
        flight = self._flight
        if flight is None or flight.number != ask.number:
            return None  # given up since
        self._flight = None
        self.next_deadline = now
        return flight

    def _maybe_join(self, now: float) -> None:
        """Join, or assign, if it is time."""
        if self._phase is Phase.ASSIGNING and now >= self._assign_by:
            self._sync_as_leader(now)
        elif self._phase in SETTLED and self._attempts.reason is not None and self._wanted and now >= self._attempts.at:
            self._joined_with = self._wanted
            self._leadership = None
            self._phase = Phase.JOINING
            request = self._requests.join(self.member_id, self._said(), self._attempts.take())
            self._ask("join", request, self._join_timeout_s, now)

    def _said(self) -> list[tuple[str, bytes]]:
        topics, owned = tuple(sorted(self._wanted)), tuple(sorted(self.owned))
        return [
            (
                name,
                write_subscription(
                    MemberSubscription(topics, each.user_data(self._wanted), owned, self.generation, self._rack)
                ),
            )
            for name, each in self._assignors.items()
        ]

    # -- answers -----------------------------------------------------------------------------------------------------

    def _on_answer(self, kind: str, sent_at: float, response: Response, now: float) -> None:
        assert isinstance(response, (JoinGroupResponse, SyncGroupResponse, HeartbeatResponse))
        if response.error_code:
            # The id that MEMBER_ID_REQUIRED brings.
            member_id = response.member_id if isinstance(response, JoinGroupResponse) else ""
            self._react(described(response.error_code, f"group {self.group_id}"), kind, now, member_id)
        elif isinstance(response, JoinGroupResponse):
            self._joined(response, now)
        elif isinstance(response, SyncGroupResponse):
            self._synced(response, now)
        else:
            self._heard(sent_at)

    def _heard(self, at: float) -> None:
        self._session.heard(at)
        if self._phase is Phase.STABLE:
            self._attempts.succeeded()

    def _joined(self, response: JoinGroupResponse, now: float) -> None:
        self.generation = response.generation_id
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
            self._leadership = Leadership(response, assignor, bool(self._rack))
        except KafkaError as error:
            self._report_and_retry(error, now)
            return
        if self._leadership.missing(self._topics):
            self._phase = Phase.ASSIGNING
            self._assign_by = now + self._request_timeout_s
        else:
            self._sync_as_leader(now)
        if self._leadership is not None and self._leadership.topics - self._wanted:
            self._effects.append(NeedMetadata(self._leadership.topics))
        elif self._phase is Phase.ASSIGNING:
            self._effects.append(NeedMetadata(self._joined_with))

    def _sync_as_leader(self, now: float) -> None:
        if self._leadership is None:
            return
        try:
            assignments = self._leadership.assign(self._topics, self.rebalance_protocol)
        except KafkaError as error:
            self._report_and_retry(error, now)
        except Exception as error:  # a user's own assignor
            failed = IllegalStateError(f"group {self.group_id}: the assignor {self.protocol_name} raised {error!r}")
            failed.__cause__ = error
            self._report_and_retry(failed, now)
        else:
            self._sync(assignments, now)

    def _sync(self, assignments: list[SyncGroupRequest.SyncGroupRequestAssignment], now: float) -> None:
        self._phase = Phase.SYNCING
        request = self._requests.sync(self.member_id, self.generation, self.protocol_name, assignments)
        self._ask("sync", request, self._join_timeout_s, now)

    def _synced(self, response: SyncGroupResponse, now: float) -> None:
        try:
            for said, own in ((response.protocol_type, PROTOCOL_TYPE), (response.protocol_name, self.protocol_name)):
                if said not in (None, own):
                    raise InconsistentGroupProtocolError(f"group {self.group_id} has {said!r} instead of {own!r}")
            assignment = read_assignment(response.assignment)
        except KafkaError as error:
            self._report_and_retry(error, now)
            return
        self._phase = Phase.STABLE
        self._heard(now)
        topics = frozenset(each.topic for each in assignment.partitions)
        if topics <= self._wanted or self._wanted == self._joined_with:
            self._assignors[self.protocol_name or ""].on_assignment(assignment, self.generation)
            self._belongings.told = frozenset(assignment.partitions)
        else:
            self._attempts.want("received assignment does not match the current subscription")
        self._compare_subscription()
        self._compare_metadata()

    def _compare_subscription(self) -> None:
        if self._phase is Phase.STABLE and self._wanted != self._joined_with:
            self._attempts.want("subscription has changed")

    def _compare_metadata(self) -> None:
        if (
            self._phase is Phase.STABLE
            and self._leadership is not None
            and self._leadership.has_changed(self._topics, self._wanted)
        ):
            self._attempts.want("cached metadata has changed")

    # -- errors ------------------------------------------------------------------------------------------------------

    def _react(self, error: BaseException, kind: str, now: float, member_id: str = "") -> None:
        reaction = reaction_to(error, _TABLES[kind])
        if kind == "heartbeat" and reaction is Reaction.REJOIN:
            self._heard(now)
            if self._phase is Phase.STABLE:
                self._attempts.want("group is already rebalancing")
            return
        known = error if isinstance(error, KafkaError) else IllegalStateError(f"group {self.group_id}: {error!r}")
        if reaction is Reaction.GIVE_UP:
            self._no_member(keeps_id=True)
            self._phase = Phase.FATAL
            self._effects.append(Report(known, is_fatal=True))
            return
        if kind != "heartbeat":
            self._phase = Phase.UNJOINED
        if reaction is Reaction.TAKE_ID:
            self.member_id = member_id
            self._attempts.at = now
            self._attempts.want(f"need to re-join with the given member-id: {member_id}")
            return
        if reaction is Reaction.REPORT:
            self._effects.append(Report(known))
        elif reaction is Reaction.FIND_COORDINATOR:
            self._effects.append(ForgetCoordinator(error))
        elif reaction in (Reaction.NEW_MEMBER, Reaction.NEW_GENERATION):
            self._no_member(keeps_id=reaction is Reaction.NEW_GENERATION)
        self._attempts.failed(reaction, now)
        if self._phase is Phase.STABLE:
            self._session.pause(self._attempts.at)
        else:
            self._attempts.want(f"rebalance failed due to {type(error).__name__}")

    def _report_and_retry(self, error: KafkaError, now: float) -> None:
        self._phase = Phase.UNJOINED
        self._effects.append(Report(error))
        self._attempts.failed(Reaction.REPORT, now)
        self._attempts.want(f"rebalance failed due to {type(error).__name__}")

    def _no_member(self, keeps_id: bool) -> None:
        """The generation is over for this member. A request on its way is for nobody any more, but one that leaves."""
        self.generation = NO_GENERATION
        if not keeps_id:
            self.member_id = ""
        self.protocol_name = None
        self._leadership = None
        self._belongings.told = None
        self._phase = Phase.UNJOINED
        if self._flight is not None and self._flight.kind != "leave":
            self._flight = None


def common_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """The most advanced that all of them can do; IllegalArgumentError: there is none, or no assignor."""
    if not assignors:
        raise IllegalArgumentError("a group needs at least one assignor")
    shared = frozenset.intersection(*(each.rebalance_protocols for each in assignors))
    if not shared:
        names = ", ".join(each.name for each in assignors)
        raise IllegalArgumentError(f"{names} share no rebalance protocol (KIP-429)")
    return max(shared)
