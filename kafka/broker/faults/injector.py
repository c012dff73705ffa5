"""Fault injection at work: the active rules, which of them apply to a request, delays, muted connections, the
request log.

:class:`FaultInjector` stands in front of the broker's handling while ``is_active``. Like the broker it is a machine:
time comes with the calls, and it has a next deadline. A :class:`FaultInterceptor` carries one affected request through
the broker:

    [delayed, muted] -> before: kill, close, drop, answer -> the broker handles it
    [delayed]        -> after:  kill, close, drop, answer -> throttle -> corrupt, truncate -> during: close, kill
"""

from __future__ import annotations

import copy
import logging
import random
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from kafka.broker.error_responses import error_code
from kafka.broker.faults import faulty_responses
from kafka.broker.faults.faulty_responses import (
    READ_ONLY,
    Selection,
    Target,
    TopicNameLookup,
    copy_with,
    error_level_for,
    error_response,
    merge_errors,
    targets,
    topic_of,
    without_partitions,
)
from kafka.broker.faults.rules import PRODUCE_KEY, FaultRuleBuilder, Rule
from kafka.broker.responses import ConnectionContext, PendingResponse
from kafka.errors import IllegalArgumentError, UnsupportedVersionError
from kafka.net.delayed import TimerHeap
from kafka.protocol.fetch import FetchRequest
from kafka.protocol.framing import API_VERSIONS_KEY, ReceivedRequest, UnknownRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.registry import NAMES
from kafka.protocol.share import ShareFetchRequest
from kafka.wire.message import Request, Response
from kafka.wire.types import BytesLike

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

Received = ReceivedRequest | UnknownRequest
TargetsOf = Callable[[ReceivedRequest], Iterable[Target]]


class ActiveRule:
    """A rule and its counts. ``seen``: requests that it is for; ``hits``: those that it struck."""

    def __init__(
        self, number: int, rule: Rule, remove: Callable[[int], object], seen: int = 0, hits: int = 0
    ) -> None:
        self.number = number
        self.rule = rule
        self.seen = seen
        self.hits = hits
        self.rng = random.Random(rule.seed)
        self._remove = remove

    def remove(self) -> None:
        """Let it strike no more."""
        self._remove(self.number)

    def applies(self, is_over: bool = False) -> bool:
        """Count a request that it is for; whether that is one of those that it strikes. ``is_over``: an older rule has
        left nothing of the request for this one: it is seen, and not struck."""
        self.seen += 1
        rule = self.rule
        if rule.nth is not None:
            strikes = self.seen == rule.nth
        elif rule.first is not None:
            strikes = self.seen <= rule.first
        elif rule.every is not None:
            strikes = self.seen % rule.every == 0
        else:
            strikes = rule.probability is None or self.rng.random() < rule.probability
        strikes = strikes and not is_over
        self.hits += strikes
        return strikes

    def __enter__(self) -> ActiveRule:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def matches(rule: Rule, connection: ConnectionContext, received: Received, targets_of: TargetsOf) -> bool:
    """Whether all that the rule says of requests holds for this one."""
    if isinstance(received, ReceivedRequest):
        key, version = received.request.api_key, received.version
    else:
        key, version = received.api_key, received.api_version
    if rule.apis and key not in rule.apis:
        return False
    if rule.versions is not None and not rule.versions[0] <= version <= rule.versions[1]:
        return False
    if rule.client_id is not None and rule.client_id != received.client_id:
        return False
    if rule.connection is not None and rule.connection != connection.number:
        return False
    host, port = connection.host, connection.port
    if rule.peer is not None and rule.peer not in (host, str(port), f"{host}:{port}"):
        return False
    if rule.topic is None and rule.partition is None:
        return True
    if not isinstance(received, ReceivedRequest):
        return False
    selection = Selection(rule.topic, rule.partition)
    return any(
        selection.has_topic(topic) and (number is None or selection.has_partition(number))
        for topic, number in targets_of(received)
    )


MAX_REQUESTS: Final = 10_000
MAX_TARGETS: Final = 1000
MAX_LOG_BYTES: Final = 8 << 20
"""Of all logged requests: their texts, and an estimate of the objects around them."""

_REQUEST_BYTES: Final = 256
_TARGET_BYTES: Final = 128


class SeenRequest(NamedTuple):
    """One request. ``number`` counts from 1; ``at`` is the broker's time of day in s; ``peer``: ``"host:port"``."""

    number: int
    api: str
    version: int
    client_id: str | None
    peer: str
    connection: int
    at: float
    partitions: tuple[Target, ...]
    """The topics and partitions that it names, the first thousand of them."""

    @property
    def size_bytes(self) -> int:
        """An estimate of its memory."""
        texts = len(self.client_id or "") + sum(map(len, self.topics))
        return _REQUEST_BYTES + _TARGET_BYTES * len(self.partitions) + texts

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that it names."""
        return tuple(dict.fromkeys(target.topic for target in self.partitions))

    def to_json(self) -> list[Any]:
        """As what ``json`` takes."""
        return list(self)

    @classmethod
    def from_json(cls, plain: list[Any]) -> SeenRequest:
        """The inverse of :meth:`to_json`."""
        return cls._make([*plain[:-1], tuple(Target(*each) for each in plain[-1])])


class RequestLog:
    """The last ``most`` requests, and fewer when they take more than ``most_bytes``: a client may send long names.

    Only the topics and partitions of a request are kept, not its records."""

    def __init__(self, most: int = MAX_REQUESTS, most_bytes: int = MAX_LOG_BYTES) -> None:
        self.requests: deque[SeenRequest] = deque()
        self.most = most
        self.most_bytes = most_bytes
        self._bytes = 0
        self.count = 0
        """The number of requests since the start of recording."""

    def add(
        self,
        connection: ConnectionContext,
        received: ReceivedRequest | UnknownRequest,
        epoch_s: float,
        topic_name: TopicNameLookup,
    ) -> None:
        """Log a request."""
        self.count += 1
        found: tuple[Target, ...] = ()
        if isinstance(received, ReceivedRequest):
            key, version = received.request.api_key, received.version
            found = tuple(islice(targets(received.request, topic_name), MAX_TARGETS))
        else:
            key, version = received.api_key, received.api_version
        name = NAMES.get(key, str(key))
        peer = f"{connection.host}:{connection.port}"
        seen = SeenRequest(self.count, name, version, received.client_id, peer, connection.number, epoch_s, found)
        self.requests.append(seen)
        self._bytes += seen.size_bytes
        while len(self.requests) > self.most or (self._bytes > self.most_bytes and len(self.requests) > 1):
            self._bytes -= self.requests.popleft().size_bytes

    def clear(self) -> None:
        """Forget the requests; the count goes on."""
        self.requests.clear()
        self._bytes = 0


log = logging.getLogger(__name__)

_ENDING: Final = ("kill", "close", "drop", "answer")
_UNSUPPORTED_VERSION: Final = error_code(UnsupportedVersionError)


def can_end_request(rule: Rule) -> bool:
    """Whether the rule can end a request before the broker handles it."""
    return rule.when == "before" and rule.action in _ENDING


def ends_whole_request(rule: Rule, received: Received) -> bool:
    """Of a rule with :func:`can_end_request`: whether it ends the whole request."""
    if rule.action != "answer":
        return True
    if not isinstance(received, ReceivedRequest):
        return False
    if rule.response is not None:
        return True
    level = error_level_for(received.request.response_type(), received.version, rule.error, Selection(None, None))
    if level is None or rule.topic is not None or rule.partition is not None:
        return False
    return not level.path or received.request.api_key not in READ_ONLY


class FaultInterceptor:
    """One request that rules apply to (``applied``, the oldest first). ``reply`` is the server's pending response."""

    __slots__ = ("_faults", "_response_edits", "_version", "connection", "applied", "received", "reply")

    def __init__(
        self, faults: FaultInjector, connection: ConnectionContext, received: Received, applied: list[ActiveRule]
    ) -> None:
        self.connection = connection
        self.received = received
        self.applied = applied
        self.reply = PendingResponse()
        self._version: int | None = None
        self._faults = faults
        self._response_edits: list[Callable[[Response], None]] = []
        """Functions that replace parts of the broker's response."""

    def having(self, when: str, *actions: str) -> list[Rule]:
        """The rules of these actions at this moment, the oldest first."""
        return [each.rule for each in self.applied if each.rule.when == when and each.rule.action in actions]

    # -- on the way in -----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Handle the request, after its delay."""
        received = self.received
        for rule in self.having("before", *_ENDING):
            if rule.action != "answer":
                self._end(rule)
                return
            if isinstance(received, ReceivedRequest):
                if self._answer_before(rule):
                    return
                received = self.received
        self._corrupt_request()
        broker = self._faults.broker
        inner = broker.handle_now(self.connection, self.received, broker.now)
        if inner.done:
            self._handled(inner)
        else:
            inner.call_when_done(self._handled)

    def _answer_before(self, rule: Rule) -> bool:
        """Respond instead of handling; False when a part of the request is left to be handled."""
        received: Any = self.received
        request, version = received.request, received.version
        if rule.response is not None:
            self._finish(copy.deepcopy(rule.response))
            return True
        selection = Selection(rule.topic, rule.partition)
        level = error_level_for(request.response_type(), version, rule.error, selection)
        if level is None:
            log.warning("%s: version %d of the response has no field for the error", rule, version)
            return False
        topic_name = self._faults.topic_name
        refused = error_response(self._faults.with_session(request), version, level, rule.error, selection, topic_name)
        if not level.path:
            self._finish(refused)
            return True
        left = request
        if request.api_key not in READ_ONLY:
            left = without_partitions(request, version, level, selection, topic_name)
        elif "max_wait_ms" in request.fields:
            left = copy_with(request, max_wait_ms=0)  # an error response does not wait for records
        if left is None:
            self._finish(refused)
            return True
        self.received = received._replace(request=left)
        self._response_edits.append(
            lambda response: merge_errors(response, refused, version, level, rule.error, selection, topic_name)
        )
        return False

    def _corrupt_request(self) -> None:
        for each in self.applied:
            rule = each.rule
            received = self.received
            if rule.action != "corrupt" or not rule.records or not isinstance(received, ReceivedRequest):
                continue
            if received.request.api_key == PRODUCE_KEY:
                self._corrupt_records(received.request, each)

    def _corrupt_records(self, message: Any, each: ActiveRule) -> None:
        rule = each.rule
        selection = Selection(rule.topic, rule.partition)
        for topic, partition in faulty_responses.partitions_with_records(message):
            number = getattr(partition, "partition_index", getattr(partition, "index", None))
            if selection.has_topic(topic_of(topic, self._faults.topic_name)) and selection.has_partition(number):
                records = faulty_responses.as_bytes(partition.records)  # type: ignore[attr-defined]
                partition.records = faulty_responses.corrupt_batches(records, rule.count, each.rng)  # type: ignore[attr-defined]

    # -- on the way out ----------------------------------------------------------------------------------------------

    def _handled(self, inner: PendingResponse) -> None:
        """The broker has a response."""
        late_s = sum(rule.seconds for rule in self.having("after", "delay"))
        if late_s:
            self._faults.call_later(late_s, lambda: self._respond(inner))
        else:
            self._respond(inner)

    def _respond(self, inner: PendingResponse) -> None:
        response = inner.response
        if inner.hang_up:
            self.reply.complete(None, hang_up=True)
            return
        self._version = inner.version
        if response is not None:
            for finish in self._response_edits:
                finish(response)
        for rule in self.having("after", *_ENDING):
            if rule.action != "answer":
                self._end(rule)
                return
            if response is not None:
                response = self._replaced(rule, response)
        self._finish(response)

    def _replaced(self, rule: Rule, response: Response) -> Response:
        received: Any = self.received
        if rule.response is not None:
            return copy.deepcopy(rule.response)
        selection = Selection(rule.topic, rule.partition)
        level = error_level_for(type(response), received.version, rule.error, selection)
        if level is None:
            return response
        refused = error_response(
            received.request, received.version, level, rule.error, selection, self._faults.topic_name
        )
        if not level.path:
            return refused
        merge_errors(response, refused, received.version, level, rule.error, selection, self._faults.topic_name)
        return response

    def _end(self, rule: Rule) -> None:
        """End the process, the connection, or only the request, without a response."""
        reply = self.reply
        if rule.action == "kill":
            self._faults.kill_process()
        elif rule.action == "close":
            if rule.reset:
                reply.close_after_send(lambda transport: transport.abort())
            reply.complete(None, hang_up=True)
        elif _is_unanswered(self.received):  # Produce with acks=0: go on with the next request
            reply.complete(None)

    def _finish(self, response: Response | None) -> None:
        """Complete the response, throttled, corrupt, truncated or cut off as the rules say."""
        reply = self.reply
        received = self.received
        if response is None or _is_unanswered(received):
            reply.complete(None, hang_up=response is not None)
            return
        if response.api_key == API_VERSIONS_KEY and getattr(response, "error_code", 0) == _UNSUPPORTED_VERSION:
            self._version = 0  # KIP-511
        for rule in self.having("after", "throttle"):
            response = copy_with(response, throttle_time_ms=int(rule.seconds * 1000))
            if rule.mute:
                self._faults.mute(self.connection, rule.seconds)
        changes: list[Callable[[bytes], bytes]] = []
        for each in self.applied:
            change = self._corruption(each, response)
            if change is not None:
                changes.append(change)
        ends = self.having("during", "close", "kill")
        if ends:
            keep = ends[0].keep
            changes.append(lambda frame: faulty_responses.truncate_bytes(frame, keep))
            is_killed = ends[0].action == "kill"
            is_reset = ends[0].reset

            def close(transport: Any) -> None:
                if is_killed:
                    self._faults.kill_process()
                elif is_reset:
                    transport.abort()
                else:
                    transport.close()

            reply.close_after_send(close)
        if changes:
            reply.transform_bytes(lambda chunks: [_transformed(chunks, changes)])
        reply.complete(response, version=self._version)

    def _corruption(self, each: ActiveRule, response: Response) -> Callable[[bytes], bytes] | None:
        rule = each.rule
        if rule.action == "truncate":
            return lambda frame: faulty_responses.truncate_frame(frame, rule.keep)
        if rule.action == "corrupt" and not rule.records:
            return lambda frame: faulty_responses.corrupt_frame(frame, rule.count, each.rng)
        if rule.action == "corrupt" and response.api_key != PRODUCE_KEY:
            self._corrupt_records(response, each)
        return None


def _transformed(chunks: list[BytesLike], changes: list[Callable[[bytes], bytes]]) -> bytes:
    frame = b"".join(chunks)
    for change in changes:
        frame = change(frame)
    return frame


def _is_unanswered(received: Received) -> bool:
    """Whether the client expects no response."""
    return isinstance(received, ReceivedRequest) and getattr(received.request, "acks", 1) == 0


class _SessionPartition(NamedTuple):
    """A partition of a fetch session; ``topic`` may be empty."""

    topic_id: UUID
    topic: str
    number: int


class FaultInjector(FaultRuleBuilder[ActiveRule]):
    """The fault rules of one broker."""

    def __init__(self, broker: Broker) -> None:
        self.is_active = False
        """Whether requests have to pass through the injector."""
        self.log: RequestLog | None = None
        self._kill_process: Callable[[], object] | None = None
        """Ends the process at once; None: the broker has no process of its own."""
        self.on_change: Callable[[], object] = lambda: None
        """Called when counts have changed or a request was logged."""
        self.active_rules: dict[int, ActiveRule] = {}
        self.broker = broker
        self._numbers = 0
        self._timers: TimerHeap[Callable[[], None]] = TimerHeap()
        self._muted: dict[ConnectionContext, float] = {}
        self._delayed_counts: dict[ConnectionContext, int] = {}
        self._disconnected: set[ConnectionContext] = set()

    def attach(self, on_change: Callable[[], object], kill_process: Callable[[], object] | None) -> None:
        """Report changes to ``on_change``; ``kill_process`` ends the process at once, None: there is none to end."""
        self.on_change = on_change
        self._kill_process = kill_process

    # -- rules -------------------------------------------------------------------------------------------------------

    @property
    def rules(self) -> list[Rule]:
        """The active rules, the oldest first."""
        return [each.rule for each in self.active_rules.values()]

    def add(self, rule: Rule, number: int | None = None, seen: int = 0, hits: int = 0) -> ActiveRule:
        """Activate a rule. ``number``, ``seen``, ``hits``: of one that was active before a restart."""
        if rule.action == "kill" and self._kill_process is None:
            raise IllegalArgumentError("kill: the broker has no process of its own to be killed")
        self._numbers = max(self._numbers + 1, number or 0)
        number = self._numbers if number is None else number
        self.active_rules[number] = ActiveRule(number, rule, self.remove, seen, hits)
        self._update_active()
        return self.active_rules[number]

    def remove(self, number: int) -> None:
        """Deactivate a rule, for requests that come from now on."""
        self.active_rules.pop(number, None)
        self._update_active()

    def clear(self) -> None:
        """Remove all rules."""
        self.active_rules.clear()
        self._update_active()

    def record(self) -> RequestLog:
        """Log requests from now on."""
        if self.log is None:
            self.log = RequestLog()
        self._update_active()
        return self.log

    def _update_active(self) -> None:
        self.is_active = bool(self.active_rules or self._muted or self.log is not None)

    # -- the machine -------------------------------------------------------------------------------------------------

    def handle(self, connection: ConnectionContext, received: Received, now: float) -> PendingResponse:
        """Handle one request in the broker's place."""
        if self.log is not None:
            self.log.add(connection, received, now + self.broker.epoch_offset, self.topic_name)
            self.on_change()
        applied = self._applying_rules(connection, received)
        muted_until = self._muted.pop(connection, None) if self._muted else None
        if not applied and muted_until is None:
            return self.broker.handle_now(connection, received, now)
        for each in applied:
            log.info("%r: applying fault %s to %s", connection, each.rule, _describe(received))
        if applied:
            self.on_change()
        interceptor = FaultInterceptor(self, connection, received, applied)
        begin_at = now + sum(rule.seconds for rule in interceptor.having("before", "delay"))
        if muted_until is not None:
            begin_at = max(begin_at, muted_until)
            self._update_active()
        if begin_at > now:
            self._delayed_counts[connection] = self._delayed_counts.get(connection, 0) + 1
            self._timers.push(begin_at, lambda: self._begin_delayed(interceptor))
        else:
            interceptor.begin()
        return interceptor.reply

    def _applying_rules(self, connection: ConnectionContext, received: Received) -> list[ActiveRule]:
        """The rules that apply to a request, the oldest first, and counted."""
        applied: list[ActiveRule] = []
        is_over = False
        for each in [
            each for each in self.active_rules.values() if matches(each.rule, connection, received, self._targets)
        ]:
            would_end = can_end_request(each.rule)
            if each.applies(is_over and would_end):
                applied.append(each)
                is_over = is_over or (would_end and ends_whole_request(each.rule, received))
        return applied

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
        """A connection has ended. Its delayed requests are handled all the same, as by a broker that has read them."""
        self._muted.pop(connection, None)
        if connection in self._delayed_counts:
            self._disconnected.add(connection)

    def _begin_delayed(self, interceptor: FaultInterceptor) -> None:
        connection = interceptor.connection
        interceptor.begin()
        self._delayed_counts[connection] -= 1
        if not self._delayed_counts[connection]:
            del self._delayed_counts[connection]
            if connection in self._disconnected:
                self._disconnected.discard(connection)
                self.broker.disconnected(connection, self.broker.now)

    # -- matching ---------------------------------------------------------------------------------------------------

    def _targets(self, received: ReceivedRequest) -> list[Target]:
        """The topics and partitions of a request: named ones, those of its fetch session, or all topics of Metadata."""
        request = received.request
        found = list(targets(request, self.topic_name))
        if isinstance(request, MetadataRequest):
            all_of_them: object = [] if received.version == 0 else None
            if request.topics == all_of_them:
                found += [Target(topic.name, None) for topic in self.broker.metadata]
        for each in self._session_partitions(request):
            name = each.topic or self.topic_name(each.topic_id)
            if name is not None:
                found.append(Target(name, each.number))
        return found

    def _session_partitions(self, request: Request[Any]) -> list[_SessionPartition]:
        """The partitions that a fetch has in its session."""
        broker = self.broker
        if isinstance(request, FetchRequest) and request.session_epoch > 0:
            session = broker.fetch_sessions.get(request.session_id)
            wanted = session.partitions.values() if session is not None else ()
            return [_SessionPartition(one.topic_id, one.topic, one.number) for one in wanted]
        if isinstance(request, ShareFetchRequest) and request.share_session_epoch > 0:
            shared = broker.sessions.get(request.group_id or "", request.member_id or "")
            return [_SessionPartition(topic_id, "", number) for topic_id, number in shared.partitions] if shared else []
        return []

    def topic_name(self, topic_id: UUID) -> str | None:
        """The topic of this id."""
        topic = self.broker.metadata.topic_by_id(topic_id)
        return topic.name if topic is not None else None

    # -- for interceptors
    # ------------------------------------------------------------------------------------------------

    def call_later(self, seconds: float, do: Callable[[], None]) -> None:
        """Call ``do`` after so many seconds."""
        self._timers.push(self.broker.now + seconds, do)

    def mute(self, connection: ConnectionContext, seconds: float) -> None:
        """Delay the connection's next request until so many seconds have passed. Expired entries are removed here too,
        as a connection may have ended meanwhile."""
        now = self.broker.now
        self._muted = {one: until for one, until in self._muted.items() if until > now}
        self._muted[connection] = now + seconds
        self._timers.push(now + seconds, self._unmute)
        self._update_active()

    def _unmute(self) -> None:
        now = self.broker.now
        self._muted = {one: until for one, until in self._muted.items() if until > now}
        self._update_active()

    def kill_process(self) -> None:
        """End the broker's process, for a rule with the action kill."""
        assert self._kill_process is not None
        log.info("killing the broker: a fault rule says so")
        self._kill_process()

    def with_session(self, request: Request[Any]) -> Request[Any]:
        """A fetch with all partitions of its session in it, for an error response about them."""
        topics: dict[Any, Any] = {}
        for topic_id, name, number in self._session_partitions(request):
            if isinstance(request, FetchRequest):
                topic: Any = FetchRequest.FetchTopic(topic=name, topic_id=topic_id, partitions=[])
                one: Any = FetchRequest.FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=0)
            else:
                topic = ShareFetchRequest.FetchTopic(topic_id=topic_id, partitions=[])
                one = ShareFetchRequest.FetchPartition(partition_index=number, acknowledgement_batches=[])
            topics.setdefault((topic_id, name), topic).partitions.append(one)
        return copy_with(request, topics=list(topics.values())) if topics else request


def _describe(received: Received) -> str:
    if isinstance(received, ReceivedRequest):
        return f"{type(received.request).__name__} v{received.version} of {received.client_id}"
    return f"API {received.api_key} v{received.api_version} of {received.client_id}"
