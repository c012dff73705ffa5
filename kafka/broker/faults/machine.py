"""Faults at work: the rules in force, which of them strike a request, what is late, which connections are muted.

:class:`Faults` stands in front of the broker's handling while ``is_armed``, and is not asked at all otherwise. Like the
broker it is a machine: time comes with the calls, and it has a next deadline. What becomes of a struck request is
``passage.py``'s; what kills the process is somebody else's (``die``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from kafka.broker.faults.answers import copied
from kafka.broker.faults.in_force import Received, RuleInForce, is_for
from kafka.broker.faults.passage import Passage, leaves_nothing, may_end
from kafka.broker.faults.rule import Rule
from kafka.broker.faults.seen import RequestLog
from kafka.broker.faults.targets import Target, targets
from kafka.broker.faults.vocabulary import Vocabulary
from kafka.broker.responses import ConnectionContext, PendingResponse
from kafka.errors import IllegalArgumentError
from kafka.net.delayed import TimerHeap
from kafka.protocol.fetch import FetchRequest
from kafka.protocol.framing import ReceivedRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.share import ShareFetchRequest
from kafka.wire.message import Request

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

log = logging.getLogger(__name__)


class _InSession(NamedTuple):
    """A partition of a fetch session; ``topic`` may be empty."""

    topic_id: UUID
    topic: str
    number: int


class Faults(Vocabulary[RuleInForce]):
    """The rules in force on one broker."""

    def __init__(self, broker: Broker) -> None:
        self.is_armed = False
        """Whether requests have to pass here."""
        self.log: RequestLog | None = None
        self.die: Callable[[], object] | None = None
        """Ends the process at once; None: there is none to be killed."""
        self.on_news: Callable[[], object] = lambda: None
        """Called when counts have changed or a request was seen."""
        self.in_force: dict[int, RuleInForce] = {}
        self.broker = broker
        self._numbers = 0
        self._timers: TimerHeap[Callable[[], None]] = TimerHeap()
        self._muted: dict[ConnectionContext, float] = {}
        self._late: dict[ConnectionContext, int] = {}
        self._gone: set[ConnectionContext] = set()

    # -- rules -------------------------------------------------------------------------------------------------------

    @property
    def rules(self) -> list[Rule]:
        """Those in force, the oldest first."""
        return [each.rule for each in self.in_force.values()]

    def add(self, rule: Rule, number: int | None = None, seen: int = 0, hits: int = 0) -> RuleInForce:
        """Put a rule in force. ``number``, ``seen``, ``hits``: of one that was in force before a restart."""
        if rule.action == "kill" and self.die is None:
            raise IllegalArgumentError("kill: the broker has no process of its own to be killed")
        self._numbers = max(self._numbers + 1, number or 0)
        number = self._numbers if number is None else number
        self.in_force[number] = RuleInForce(number, rule, self.remove, seen, hits)
        self._arm()
        return self.in_force[number]

    def remove(self, number: int) -> None:
        """Let a rule strike no more. What it has struck stays so."""
        self.in_force.pop(number, None)
        self._arm()

    def clear(self) -> None:
        """Remove all rules."""
        self.in_force.clear()
        self._arm()

    def record(self) -> RequestLog:
        """Keep a log of requests from now on."""
        if self.log is None:
            self.log = RequestLog()
        self._arm()
        return self.log

    def _arm(self) -> None:
        self.is_armed = bool(self.in_force or self._muted or self.log is not None)

    # -- the machine -------------------------------------------------------------------------------------------------

    def handle(self, connection: ConnectionContext, received: Received, now: float) -> PendingResponse:
        """One request, in the broker's place."""
        if self.log is not None:
            self.log.add(connection, received, now + self.broker.epoch_offset, self.name_of)
            self.on_news()
        fired = self._fired(connection, received)
        muted_until = self._muted.pop(connection, None) if self._muted else None
        if not fired and muted_until is None:
            return self.broker.handle_now(connection, received, now)
        for each in fired:
            log.info("%r: %s strikes %s", connection, each.rule, _shown(received))
        if fired:
            self.on_news()
        passage = Passage(self, connection, received, fired)
        begin_at = now + sum(rule.seconds for rule in passage.having("before", "delay"))
        if muted_until is not None:
            begin_at = max(begin_at, muted_until)
            self._arm()
        if begin_at > now:
            self._late[connection] = self._late.get(connection, 0) + 1
            self._timers.push(begin_at, lambda: self._begin_late(passage))
        else:
            passage.begin()
        return passage.reply

    def _fired(self, connection: ConnectionContext, received: Received) -> list[RuleInForce]:
        """The rules that strike a request, the oldest first, counted."""
        fired: list[RuleInForce] = []
        is_over = False
        for each in [each for each in self.in_force.values() if is_for(each.rule, connection, received, self._targets)]:
            would_end = may_end(each.rule)
            if each.strikes(is_over and would_end):
                fired.append(each)
                is_over = is_over or (would_end and leaves_nothing(each.rule, received))
        return fired

    def tick(self, now: float) -> None:
        """Do what is due."""
        while (timer := self._timers.pop_due(now)) is not None:
            if timer.item is not None:
                timer.item()

    @property
    def next_deadline(self) -> float | None:
        """When to call :meth:`tick` next, in monotonic s."""
        return self._timers.next_when()

    def disconnected(self, connection: ConnectionContext) -> None:
        """A connection has ended. What is late on it is handled all the same: a broker that has read a request does."""
        self._muted.pop(connection, None)
        if connection in self._late:
            self._gone.add(connection)

    def _begin_late(self, passage: Passage) -> None:
        connection = passage.connection
        passage.begin()
        self._late[connection] -= 1
        if not self._late[connection]:
            del self._late[connection]
            if connection in self._gone:
                self._gone.discard(connection)
                self.broker.disconnected(connection, self.broker.now)

    # -- which ------------------------------------------------------------------------------------------------------

    def _targets(self, received: ReceivedRequest) -> list[Target]:
        """What a request is about: what it names, what its session has already, and all topics if it asks for all."""
        request = received.request
        found = list(targets(request, self.name_of))
        if isinstance(request, MetadataRequest):
            all_of_them: object = [] if received.version == 0 else None
            if request.topics == all_of_them:
                found += [Target(topic.name, None) for topic in self.broker.metadata]
        for each in self._session_partitions(request):
            name = each.topic or self.name_of(each.topic_id)
            if name is not None:
                found.append(Target(name, each.number))
        return found

    def _session_partitions(self, request: Request[Any]) -> list[_InSession]:
        """What a fetch is about without saying so."""
        broker = self.broker
        if isinstance(request, FetchRequest) and request.session_epoch > 0:
            session = broker.fetch_sessions.get(request.session_id)
            wanted = session.partitions.values() if session is not None else ()
            return [_InSession(one.topic_id, one.topic, one.number) for one in wanted]
        if isinstance(request, ShareFetchRequest) and request.share_session_epoch > 0:
            shared = broker.sessions.get(request.group_id or "", request.member_id or "")
            return [_InSession(topic_id, "", number) for topic_id, number in shared.partitions] if shared else []
        return []

    def name_of(self, topic_id: UUID) -> str | None:
        """The topic of this id."""
        topic = self.broker.metadata.topic_by_id(topic_id)
        return topic.name if topic is not None else None

    # -- for passages ------------------------------------------------------------------------------------------------

    def later(self, seconds: float, do: Callable[[], None]) -> None:
        """Call ``do`` when so much time has passed."""
        self._timers.push(self.broker.now + seconds, do)

    def mute(self, connection: ConnectionContext, seconds: float) -> None:
        """Begin no other request of the connection for so long. It may have gone meanwhile, so what is over is let go
        here, not only when its next request comes."""
        now = self.broker.now
        self._muted = {one: until for one, until in self._muted.items() if until > now}
        self._muted[connection] = now + seconds
        self._timers.push(now + seconds, self._unmute)
        self._arm()

    def _unmute(self) -> None:
        now = self.broker.now
        self._muted = {one: until for one, until in self._muted.items() if until > now}
        self._arm()

    def end_process(self) -> None:
        """End it, as a rule says."""
        assert self.die is not None
        log.info("a fault kills the broker")
        self.die()

    def with_session(self, request: Request[Any]) -> Request[Any]:
        """A fetch with all partitions of its session in it, for an answer that refuses them."""
        topics: dict[Any, Any] = {}
        for topic_id, name, number in self._session_partitions(request):
            if isinstance(request, FetchRequest):
                topic: Any = FetchRequest.FetchTopic(topic=name, topic_id=topic_id, partitions=[])
                one: Any = FetchRequest.FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=0)
            else:
                topic = ShareFetchRequest.FetchTopic(topic_id=topic_id, partitions=[])
                one = ShareFetchRequest.FetchPartition(partition_index=number, acknowledgement_batches=[])
            topics.setdefault((topic_id, name), topic).partitions.append(one)
        return copied(request, topics=list(topics.values())) if topics else request


def _shown(received: Received) -> str:
    if isinstance(received, ReceivedRequest):
        return f"{type(received.request).__name__} v{received.version} of {received.client_id}"
    return f"API {received.api_key} v{received.api_version} of {received.client_id}"
