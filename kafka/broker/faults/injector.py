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
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from kafka.broker.error_places import ErrorResponse, Target, TopicNameLookup, copy_with, entries, targets
from kafka.broker.error_responses import error_code
from kafka.broker.faults.rules import PRODUCE_KEY, FaultRuleBuilder, Rule
from kafka.broker.responses import ConnectionContext, PendingResponse
from kafka.errors import IllegalArgumentError, UnsupportedVersionError
from kafka.net.loop import TimerHeap
from kafka.protocol.fetch import FetchRequest
from kafka.protocol.framing import API_VERSIONS_KEY, ReceivedRequest, UnknownRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.registry import NAMES
from kafka.protocol.share import ShareFetchRequest
from kafka.records import HEADER_BYTES
from kafka.records.header import FRAME_BYTES
from kafka.wire.frame import pack_length
from kafka.wire.message import Response
from kafka.wire.types import BytesLike

if TYPE_CHECKING:
    from kafka.broker.fetch_sessions import FetchSessions
    from kafka.broker.log.metadata_store import MetadataStore
    from kafka.broker.share.sessions import ShareSessions
    from kafka.net.transport import Transport

log = logging.getLogger(__name__)

Received = ReceivedRequest | UnknownRequest
TargetsOf = Callable[[ReceivedRequest], Iterable[Target]]


def _api_of(received: Received) -> tuple[int, int]:
    """The key and the version of the API."""
    if isinstance(received, ReceivedRequest):
        return received.request.api_key, received.version
    return received.api_key, received.api_version


class ActiveRule:
    """A rule and its counts. ``seen``: requests that it matches; ``hits``: those that it was applied to."""

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
        """Apply it to no more requests."""
        self._remove(self.number)

    def matches(self, connection: ConnectionContext, received: Received, targets_of: TargetsOf) -> bool:
        """Whether all that the rule says of requests holds for this one."""
        rule = self.rule
        key, version = _api_of(received)
        host, port = connection.host, connection.port
        if (
            (rule.apis and key not in rule.apis)
            or (rule.versions is not None and not rule.versions[0] <= version <= rule.versions[1])
            or rule.client_id not in (None, received.client_id)
            or rule.connection not in (None, connection.number)
            or rule.peer not in (None, host, str(port), f"{host}:{port}")
        ):
            return False
        if rule.topic is None and rule.partition is None:
            return True
        return isinstance(received, ReceivedRequest) and any(
            rule.topic in (None, topic) and (number is None or rule.partition in (None, number))
            for topic, number in targets_of(received)
        )

    def applies(self, is_over: bool) -> bool:
        """Count a request that it matches; whether it is to be applied to it. ``is_over``: an older rule has left
        nothing of the request for this one."""
        self.seen += 1
        rule = self.rule
        if rule.nth is not None:
            is_chosen = self.seen == rule.nth
        elif rule.first is not None:
            is_chosen = self.seen <= rule.first
        elif rule.every is not None:
            is_chosen = self.seen % rule.every == 0
        else:
            is_chosen = rule.probability is None or self.rng.random() < rule.probability
        is_hit = is_chosen and not is_over
        self.hits += is_hit
        return is_hit

    def __enter__(self) -> ActiveRule:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


# -- the log of requests ---------------------------------------------------------------------------------------------

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
        self, connection: ConnectionContext, received: Received, epoch_s: float, topic_name: TopicNameLookup
    ) -> None:
        """Log a request."""
        self.count += 1
        key, version = _api_of(received)
        named = targets(received.request, topic_name) if isinstance(received, ReceivedRequest) else ()
        seen = SeenRequest(
            self.count,
            NAMES.get(key, str(key)),
            version,
            received.client_id,
            f"{connection.host}:{connection.port}",
            connection.number,
            epoch_s,
            tuple(islice(named, MAX_TARGETS)),
        )
        self.requests.append(seen)
        self._bytes += seen.size_bytes
        while len(self.requests) > self.most or (self._bytes > self.most_bytes and len(self.requests) > 1):
            self._bytes -= self.requests.popleft().size_bytes

    def clear(self) -> None:
        """Forget the requests; the count goes on."""
        self.requests.clear()
        self._bytes = 0


# -- bytes -----------------------------------------------------------------------------------------------------------

LENGTH_BYTES: Final = 4
CORRELATION_END: Final = 8
"""Where the length and the correlation id of a frame end: a corrupt response still belongs to its request."""

CRC_COVERS_FROM: Final = 21
HALF: Final = 0.5


def truncate_bytes(data: bytes, keep: float | None) -> bytes:
    """The beginning: ``keep`` is a number of bytes, a part below 1, or None for the half."""
    keep = HALF if keep is None else keep
    return data[: int(len(data) * keep) if isinstance(keep, float) else keep]


def truncate_frame(frame: bytes, keep: float | None) -> bytes:
    """A whole frame whose message is cut: the length in front fits what is left."""
    left = truncate_bytes(frame[LENGTH_BYTES:], keep)
    return pack_length(len(left)) + left


def corrupt_bytes(data: bytes, start: int, count: int, rng: random.Random) -> bytes:
    """``count`` bytes from ``start`` on, each another than before."""
    changed = bytearray(data)
    places = range(min(start, len(changed)), len(changed))
    for at in rng.sample(places, min(count, len(places))):
        changed[at] ^= rng.randrange(1, 256)
    return bytes(changed)


def corrupt_batches(records: Any, count: int, rng: random.Random) -> bytes:
    """Record batches each of which has ``count`` other bytes under its CRC; a last one that is cut stays as it is."""
    data = b"".join(records) if isinstance(records, (list, tuple)) else bytes(records)
    pieces: list[bytes] = []
    at = 0
    while at + HEADER_BYTES <= len(data):
        end = at + FRAME_BYTES + int.from_bytes(data[at + 8 : at + 12], "big")
        if not at + HEADER_BYTES <= end <= len(data):
            break
        pieces.append(corrupt_bytes(data[at:end], CRC_COVERS_FROM, count, rng))
        at = end
    return b"".join([*pieces, data[at:]])


# -- one request -----------------------------------------------------------------------------------------------------

_ENDING: Final = ("kill", "close", "drop", "answer")
_UNSUPPORTED_VERSION: Final = error_code(UnsupportedVersionError)

_FRAME_CHANGES: Final[Mapping[str, Callable[[ActiveRule, bytes], bytes]]] = {
    "corrupt": lambda each, frame: corrupt_bytes(frame, CORRELATION_END, each.rule.count, each.rng),
    "truncate": lambda each, frame: truncate_frame(frame, each.rule.keep),
    "close": lambda each, frame: truncate_bytes(frame, each.rule.keep),
    "kill": lambda each, frame: truncate_bytes(frame, each.rule.keep),
}
"""Action -> what it makes of a response's frame."""


class FaultInterceptor:
    """One request that rules apply to (``applied``, the oldest first). ``reply`` is the server's pending response."""

    __slots__ = ("_applied", "_connection", "_faults", "_received", "_version", "reply")

    def __init__(
        self, faults: FaultInjector, connection: ConnectionContext, received: Received, applied: list[ActiveRule]
    ) -> None:
        self.reply = PendingResponse()
        self._faults = faults
        self._connection = connection
        self._received = received
        self._applied = applied
        self._version: int | None = None

    def steps(self, muted_until: float) -> Iterator[float | PendingResponse]:
        """The request's way through the broker. Yields what it waits for: an instant (monotonic s), or the broker's
        response."""
        faults, errors = self._faults, []
        yield max(muted_until, faults.now() + self._delay_s("before"))
        for rule in self._rules("before", *_ENDING):
            if rule.action != "answer":
                self._end(rule)
                return
            if not isinstance(self._received, ReceivedRequest):
                continue
            if rule.response is not None:
                self._finish(copy.deepcopy(rule.response))
                return
            error = faults.error_response(rule, self._received)
            if error.level is None:
                log.warning(
                    "%s: version %d of the response has no field for the error", rule, self._received.version
                )
                continue
            left = error.remaining_request()
            if left is None:
                self._finish(error.response())
                return
            self._received = self._received._replace(request=left)
            errors.append(error)
        if isinstance(self._received, ReceivedRequest) and self._received.request.api_key == PRODUCE_KEY:
            self._corrupt_records(self._received.request)
        inner = faults.handle_without_faults(self._connection, self._received)
        yield inner
        yield faults.now() + self._delay_s("after")
        response = inner.response
        if inner.hang_up:
            self.reply.complete(None, hang_up=True)
            return
        self._version = inner.version
        if response is not None:
            for error in errors:
                response = error.merge_into(response)
        for rule in self._rules("after", *_ENDING):
            if rule.action != "answer":
                self._end(rule)
                return
            if rule.response is not None and response is not None:
                response = copy.deepcopy(rule.response)
            elif response is not None and isinstance(self._received, ReceivedRequest):
                error = faults.error_response(rule, self._received)
                response = response if error.level is None else error.merge_into(response)
        self._finish(response)

    def _rules(self, when: str, *actions: str) -> list[Rule]:
        """The rules of these actions at this moment, the oldest first."""
        return [each.rule for each in self._applied if each.rule.when == when and each.rule.action in actions]

    def _delay_s(self, when: str) -> float:
        return sum(rule.seconds for rule in self._rules(when, "delay"))

    @property
    def _is_unanswered(self) -> bool:
        """Whether the client expects no response."""
        return isinstance(self._received, ReceivedRequest) and getattr(self._received.request, "acks", 1) == 0

    def _end(self, rule: Rule) -> None:
        """End the process, the connection, or only the request, without a response."""
        if rule.action == "kill":
            self._faults.kill_process()
        elif rule.action == "close":
            self.reply.close_after_send(partial(self._close, rule))
            self.reply.complete(None, hang_up=True)
        elif self._is_unanswered:  # Produce with acks=0: go on with the next request
            self.reply.complete(None)

    def _close(self, rule: Rule, transport: Transport) -> None:
        if rule.action == "kill":
            self._faults.kill_process()
        elif rule.reset:
            transport.abort()
        else:
            transport.close()

    def _finish(self, response: Response | None) -> None:
        """Complete the response, throttled, corrupt, truncated or cut off as the rules say."""
        reply = self.reply
        if response is None or self._is_unanswered:
            reply.complete(None, hang_up=response is not None)
            return
        if response.api_key == API_VERSIONS_KEY and getattr(response, "error_code", 0) == _UNSUPPORTED_VERSION:
            self._version = 0  # KIP-511
        for rule in self._rules("after", "throttle"):
            if "throttle_time_ms" in response.fields:  # a rule for any API comes upon others, too
                response = copy_with(response, throttle_time_ms=int(rule.seconds * 1000))
            if rule.mute:
                self._faults.mute(self._connection, rule.seconds)
        if response.api_key != PRODUCE_KEY:
            self._corrupt_records(response)
        changes = [
            each
            for each in self._applied
            if each.rule.action == "truncate" or (each.rule.action == "corrupt" and not each.rule.records)
        ]
        last = next((each for each in self._applied if each.rule.when == "during"), None)
        if last is not None:
            changes.append(last)
            reply.close_after_send(partial(self._close, last.rule))
        if changes:
            reply.transform_bytes(lambda chunks: [_changed(chunks, changes)])
        reply.complete(response, version=self._version)

    def _corrupt_records(self, message: Any) -> None:
        """Change bytes of the record batches that the rules select."""
        for each in self._applied:
            rule = each.rule
            if rule.action != "corrupt" or not rule.records:
                continue
            for (topic, number), partition in entries(message, self._faults.topic_name):
                records = getattr(partition, "records", None)
                if records is not None and rule.topic in (None, topic) and rule.partition in (None, number):
                    partition.records = corrupt_batches(records, rule.count, each.rng)


def _changed(chunks: list[BytesLike], changes: list[ActiveRule]) -> bytes:
    frame = b"".join(chunks)
    for each in changes:
        frame = _FRAME_CHANGES[each.rule.action](each, frame)
    return frame


# -- all requests ----------------------------------------------------------------------------------------------------


class FaultInjector(FaultRuleBuilder[ActiveRule]):
    """The fault rules of one broker. ``handle`` handles a request without faults, ``disconnected`` is called with
    a connection that has ended before its delayed request was handled, ``now`` and ``epoch_s`` return the time."""

    def __init__(
        self,
        handle: Callable[[ConnectionContext, Received, float], PendingResponse],
        disconnected: Callable[[ConnectionContext, float], object],
        metadata: MetadataStore,
        fetch_sessions: FetchSessions,
        share_sessions: ShareSessions[tuple[UUID, int], ConnectionContext],
        *,
        now: Callable[[], float],
        epoch_s: Callable[[], float],
    ) -> None:
        self.log: RequestLog | None = None
        self.on_change: Callable[[], object] = lambda: None
        """Called when counts have changed or a request was logged."""
        self.active_rules: dict[int, ActiveRule] = {}
        self.now = now
        self._kill_process: Callable[[], object] | None = None
        """Ends the process at once; None: the broker has no process of its own."""
        self._handle = handle
        self._disconnected = disconnected
        self._metadata = metadata
        self._fetch_sessions = fetch_sessions
        self._share_sessions = share_sessions
        self._epoch_s = epoch_s
        self._numbers = 0
        self._timers: TimerHeap[Callable[[], None]] = TimerHeap()
        # Connection -> until when its next request is delayed.
        self._muted: dict[ConnectionContext, float] = {}

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
        return self.active_rules[number]

    def remove(self, number: int) -> None:
        """Deactivate a rule, for requests that come from now on."""
        self.active_rules.pop(number, None)

    def clear(self) -> None:
        """Remove all rules."""
        self.active_rules.clear()

    def record(self) -> RequestLog:
        """Log requests from now on."""
        if self.log is None:
            self.log = RequestLog()
        return self.log

    @property
    def is_active(self) -> bool:
        """Whether requests have to pass through the injector."""
        return bool(self.active_rules or self._muted or self.log is not None)

    # -- the machine -------------------------------------------------------------------------------------------------

    def handle(self, connection: ConnectionContext, received: Received, now: float) -> PendingResponse:
        """Handle one request in the broker's place."""
        if self.log is not None:
            self.log.add(connection, received, self._epoch_s(), self.topic_name)
            self.on_change()
        applied = self._applying_rules(connection, received)
        muted_until = self._muted.pop(connection, now)
        if not applied and muted_until <= now:
            return self._handle(connection, received, now)
        key, version = _api_of(received)
        for each in applied:
            api = NAMES.get(key, str(key))
            log.info(
                "%r: applying fault %s to %s v%d of %s", connection, each.rule, api, version, received.client_id
            )
        if applied:
            self.on_change()
        interceptor = FaultInterceptor(self, connection, received, applied)
        self._run(interceptor.steps(muted_until))
        return interceptor.reply

    def _run(self, steps: Iterator[float | PendingResponse]) -> None:
        """Go on with a request until it waits for something."""
        for wait in steps:
            if isinstance(wait, PendingResponse):
                if not wait.done:
                    wait.call_when_done(lambda _: self._run(steps))
                    return
            elif wait > self.now():
                self._timers.push(wait, lambda: self._run(steps))
                return

    def _applying_rules(self, connection: ConnectionContext, received: Received) -> list[ActiveRule]:
        """The rules that apply to a request, the oldest first, and counted."""
        matching = [each for each in self.active_rules.values() if each.matches(connection, received, self._targets)]
        applied: list[ActiveRule] = []
        is_over = False
        for each in matching:
            can_end = each.rule.when == "before" and each.rule.action in _ENDING
            if each.applies(is_over and can_end):
                applied.append(each)
                is_over = is_over or (can_end and self._ends_whole(each.rule, received))
        return applied

    def _ends_whole(self, rule: Rule, received: Received) -> bool:
        """Of a rule that can end a request: whether it ends the whole of it."""
        if rule.action != "answer":
            return True
        return isinstance(received, ReceivedRequest) and (
            rule.response is not None or self.error_response(rule, received).is_whole
        )

    def tick(self, now: float) -> None:
        """Do what is due."""
        while (timer := self._timers.pop_due(now)) is not None:
            if timer.item is not None:
                timer.item()

    @property
    def next_deadline(self) -> float | None:
        """When to call :meth:`tick` next, in monotonic s."""
        return self._timers.next_when()

    # -- what a request is about -------------------------------------------------------------------------------------

    def topic_name(self, topic_id: UUID) -> str | None:
        """The topic of this id."""
        topic = self._metadata.topic_by_id(topic_id)
        return topic.name if topic is not None else None

    def error_response(self, rule: Rule, received: ReceivedRequest) -> ErrorResponse:
        """The error code of a rule as the response to a request."""
        return ErrorResponse(
            received.request,
            received.version,
            rule.error,
            rule.topic,
            rule.partition,
            topic_name=self.topic_name,
            completed=self._completed(received),
        )

    def _targets(self, received: ReceivedRequest) -> Iterable[Target]:
        return targets(self._completed(received), self.topic_name)

    def _completed(self, received: ReceivedRequest) -> Any:
        """The request with what it does not name: all topics of Metadata, or the partitions of its fetch session. It is
        never encoded, so that partitions of either kind of session are those of a FetchRequest here."""
        request: Any = received.request
        remembered: list[tuple[UUID, str, int]] = []
        if isinstance(request, MetadataRequest) and request.topics == ([] if received.version == 0 else None):
            names = [topic.name for topic in self._metadata]
            return copy_with(request, topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names])
        if isinstance(request, FetchRequest) and request.session_epoch > 0:
            session = self._fetch_sessions.get(request.session_id)
            partitions = session.partitions.values() if session is not None else ()
            remembered = [(one.topic_id, one.topic, one.number) for one in partitions]
        elif isinstance(request, ShareFetchRequest) and request.share_session_epoch > 0:
            shared = self._share_sessions.get(request.group_id or "", request.member_id or "")
            remembered = [(topic_id, "", number) for topic_id, number in shared.partitions] if shared else []
        topics: dict[tuple[UUID, str], FetchRequest.FetchTopic] = {}
        for topic_id, name, number in remembered:
            topic = FetchRequest.FetchTopic(topic=name, topic_id=topic_id, partitions=[])
            partition = FetchRequest.FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=0)
            topics.setdefault((topic_id, name), topic).partitions.append(partition)
        return copy_with(request, topics=[*request.topics, *topics.values()]) if topics else request

    # -- for interceptors --------------------------------------------------------------------------------------------

    def handle_without_faults(self, connection: ConnectionContext, received: Received) -> PendingResponse:
        """Let the broker handle a request; if it was delayed until its connection had ended, all the same, as by a
        broker that has read it."""
        inner = self._handle(connection, received, self.now())
        if connection.is_closed:
            self._disconnected(connection, self.now())
        return inner

    def mute(self, connection: ConnectionContext, seconds: float) -> None:
        """Delay the connection's next request until so many seconds have passed."""
        until = self._muted[connection] = self.now() + seconds
        self._timers.push(until, self._unmute)

    def _unmute(self) -> None:
        now = self.now()
        self._muted = {one: until for one, until in self._muted.items() if until > now}

    def kill_process(self) -> None:
        """End the broker's process, for a rule with the action kill."""
        assert self._kill_process is not None
        log.info("killing the broker: a fault rule says so")
        self._kill_process()
