"""A member of a consumer group as a machine: its requests and events, the same for both protocols.

    subscribe() · metadata_changed() · leave()          what the user wants, what the cluster has
    poll(now) ──► effects, and ``next_deadline``        to be called then, and after everything below
    answered(ask, response, now) · failed(ask, error, now)      once for each SendToCoordinator
    carried_out(step, now)                                      once for each Revoke, Lose, Assign

There is one :class:`Revoke`, :class:`Lose` or :class:`Assign` at a time: the next comes after the answer to the last.
They are carried out where the user polls, so that a listener runs in the user's thread and a commit before a revocation
covers all that was handed out; until then the machine waits, and heartbeats go on. All else happens on the loop.

The classic protocol (JoinGroup, SyncGroup, Heartbeat; assignors in the clients) is ``classic.py``, the new one
(KIP-848: ConsumerGroupHeartbeat; assignors in the broker) ``consumer.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import count
from math import inf
from typing import Any, Final, NamedTuple
from uuid import UUID

from kafka.core.connection import ByVersion
from kafka.errors import KafkaError
from kafka.structs import TopicPartition
from kafka.wire.message import Request, Response

NO_GENERATION = -1
"""Of a consumer that is no member."""


class GroupSubscription(NamedTuple):
    """What a member wants to read. ``topics``: names; for a pattern of the client's own, those that match it now.
    ``pattern``: a regular expression that the broker evaluates (RE2; KIP-848 with heartbeats since version 1)."""

    topics: frozenset[str] = frozenset()
    pattern: str | None = None

    @property
    def is_empty(self) -> bool:
        """Nothing is to be read."""
        return not self.topics and self.pattern is None


class TopicSnapshot(NamedTuple):
    """What an assignor needs to know of a topic: how many partitions, and the racks of each one's replicas (KIP-881),
    in the order of their numbers; empty where brokers have no racks."""

    partitions_count: int
    racks: Sequence[frozenset[str]] = ()


class SendToCoordinator(NamedTuple):
    """Send ``request`` to the group's coordinator; it has ``timeout_s`` to be answered. ``number`` tells one from
    another. ``on_own_connection``: not over the connection of the others, where a join that the broker holds holds
    it up."""

    number: int
    request: Request[Any] | ByVersion[Any]
    timeout_s: float
    on_own_connection: bool = False


class ForgetCoordinator(NamedTuple):
    """The coordinator is another broker, or not available: look for it again before the next
    :class:`SendToCoordinator`."""

    error: BaseException


class Revoke(NamedTuple):
    """Commit (with auto-commit), call the listener, read these no more; then :meth:`GroupMachine.carried_out`."""

    partitions: frozenset[TopicPartition]


class Lose(NamedTuple):
    """These may be another member's already: commit nothing, call the listener (``on_partitions_lost``), read them no
    more; then :meth:`GroupMachine.carried_out`."""

    partitions: frozenset[TopicPartition]


class Assign(NamedTuple):
    """From now on exactly ``owned`` is read; ``added`` is new of it and starts at its committed offsets. Tell the
    listener (``on_partitions_assigned``, also when ``added`` is empty); then :meth:`GroupMachine.carried_out`."""

    owned: frozenset[TopicPartition]
    added: frozenset[TopicPartition]


class ReportError(NamedTuple):
    """To be raised by the user's next ``poll``. After a fatal one the machine does nothing any more."""

    error: KafkaError
    is_fatal: bool = False


class NeedMetadata(NamedTuple):
    """The group has a topic that the cluster's metadata does not have: read it anew. ``topics`` empty: all known.
    ``topic_ids``: topics that the broker names by their ids alone (KIP-848); ask for these (Metadata since version 12)
    and know them from then on. Keep telling of ``topics``: a leader watches those of the whole group. The answer is
    :meth:`GroupMachine.metadata_changed`, also when nothing is new."""

    topics: frozenset[str] = frozenset()
    topic_ids: frozenset[UUID] = frozenset()


class Left(NamedTuple):
    """The member is out of the group, as :meth:`GroupMachine.leave` wanted."""


AssignmentStep = Revoke | Lose | Assign
GroupEffect = SendToCoordinator | ForgetCoordinator | AssignmentStep | ReportError | NeedMetadata | Left


class InFlightGroupRequest(NamedTuple):
    """The request that waits for an answer. ``kind``: "join", "sync", "heartbeat" or "leave"."""

    number: int
    kind: str
    sent_at: float


POLL_CHECK_S: Final = 0.5
"""How often to check whether a user who did not poll for too long polls again: poll() does not wake the loop."""


class GroupMachine(ABC):
    """See the module. Instants are ``now`` of one monotonic clock, in seconds."""

    def __init__(
        self,
        group_id: str,
        group_instance_id: str | None,
        member_id: str,
        max_poll_interval_s: float,
        request_timeout_s: float,
    ) -> None:
        """``max_poll_interval_s``: see ``polled_at``. ``request_timeout_s``: of a request that nothing holds up."""
        self.group_id = group_id
        self.group_instance_id = group_instance_id
        self.member_id = member_id
        """Empty while it has none."""
        self.next_deadline = inf
        """When :meth:`poll` is wanted next; ``inf``: not before something happens."""
        self.polled_at = inf
        """When the user last left ``poll``, ``inf`` while in it. ``max_poll_interval_s`` later the member leaves the
        group, and comes back with the next poll."""
        self._max_poll_interval_s = max_poll_interval_s
        self._request_timeout_s = request_timeout_s
        self._effects: list[GroupEffect] = []
        self._in_flight: InFlightGroupRequest | None = None
        self._numbers = count()

    def _send(
        self,
        kind: str,
        request: Request[Any] | ByVersion[Any],
        timeout_s: float,
        now: float,
        on_own_connection: bool = False,
    ) -> None:
        number = next(self._numbers)
        self._in_flight = InFlightGroupRequest(number, kind, now)
        self._effects.append(SendToCoordinator(number, request, timeout_s, on_own_connection))

    def _take_flight(self, ask: SendToCoordinator) -> InFlightGroupRequest | None:
        """The request that was answered, or will not be; None when it was given up since."""
        flight = self._in_flight
        if flight is None or flight.number != ask.number:
            return None
        self._in_flight = None
        return flight

    def on_poll_begin(self) -> None:
        """The user is in ``poll``. Any thread."""
        self.polled_at = inf

    def on_poll_end(self, now: float) -> None:
        """The user has left ``poll``. Any thread."""
        self.polled_at = now

    @property
    @abstractmethod
    def generation(self) -> int:
        """The generation (classic) or the member's epoch (KIP-848): what commits carry. NO_GENERATION: no member."""

    @property
    @abstractmethod
    def state_name(self) -> str:
        """For people and for ``ConsumerGroupMetadata``: ``unjoined``, ``rebalancing``, ``stable`` and the like."""

    @property
    @abstractmethod
    def owned(self) -> frozenset[TopicPartition]:
        """What is this member's by the last :class:`Assign`, less what was revoked or lost since."""

    @abstractmethod
    def subscribe(self, subscription: GroupSubscription, now: float) -> None:
        """Want this from now on. An empty one: leave the group, until the next call."""

    @abstractmethod
    def metadata_changed(self, topics: Mapping[str, TopicSnapshot], now: float) -> None:
        """The topics that the cluster is known to have; those of the subscription at least."""

    @abstractmethod
    def poll(self, now: float) -> list[GroupEffect]:
        """What there is to do."""

    @abstractmethod
    def answered(self, ask: SendToCoordinator, response: Response, now: float) -> None:
        """The coordinator answered."""

    @abstractmethod
    def failed(self, ask: SendToCoordinator, error: BaseException, now: float) -> None:
        """There is no answer."""

    @abstractmethod
    def carried_out(self, step: AssignmentStep, now: float) -> None:
        """The last step was carried out."""

    @abstractmethod
    def fenced(self, error: KafkaError, now: float) -> None:
        """A commit was answered with UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, FENCED_INSTANCE_ID, STALE_MEMBER_EPOCH or
        REBALANCE_IN_PROGRESS: the machine reacts as if a heartbeat had been."""

    @abstractmethod
    def rejoin(self, reason: str, now: float) -> None:
        """Begin a rebalance (Java's ``enforceRebalance``); nothing where the broker decides (KIP-848)."""

    @abstractmethod
    def leave(self, now: float, reason: str = "") -> None:
        """Leave the group for good: :class:`Revoke` first, then the request, then :class:`Left`. Static members of the
        classic protocol do not ask to leave (KIP-345)."""

    @abstractmethod
    def leave_now(self, now: float) -> None:
        """Who leaves waits for no answer any more: the request that leaves follows the one in flight."""
