"""The embedded broker as one deterministic machine: requests and time in, responses out.

    handle(connection, request, now) -> PendingResponse     one request; its response is complete at once or later
    tick(now) -> next deadline                              after the requests of a turn, and at the deadline
    disconnected(connection, now)                           its share session ends, its delayed request is cancelled

The broker owns what handlers share: the data directory, the share groups, the committed offsets, the purgatory. It
knows no sockets (``server.py``), no wall clock (``epoch_offset`` turns ``now`` into one) and no random source but
``rng``. ``handlers/`` handle the requests; ``registry.py`` lists them.

:meth:`Broker.tick` is also where group commit begins: one flush covers all that the turn has written.
:class:`~kafka.broker.responses.DelayedResponses` decides which responses wait for it.
"""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kafka.broker import registry
from kafka.broker.config import TOPIC_SETTINGS, BrokerConfig
from kafka.broker.emulation import LATEST, EmulatedRelease, Features, find_release
from kafka.broker.error_responses import error_response
from kafka.broker.fetch_sessions import FetchSessions
from kafka.broker.log import FlushPolicy, LogDirectory, PartitionLog, Topic
from kafka.broker.log.files import MAX_OPEN_FILES
from kafka.broker.log.maintenance import LogMaintenance, maintenance_settings
from kafka.broker.log.metadata_store import IdAllocator
from kafka.broker.offset_store import OffsetStore
from kafka.broker.quotas import Quotas
from kafka.broker.responses import (
    ConnectionContext,
    DelayedResponses,
    PendingResponse,
    Purgatory,
    SlicedHandler,
    SlicedRequests,
)
from kafka.broker.share.sessions import ShareSessions
from kafka.broker.share.states import WAKE_AS_KAFKA_4_3, ShareEvent
from kafka.broker.state.state_topic import CONSUMER_OFFSETS, SHARE_GROUP_STATE, StateTopics
from kafka.broker.topics import TopicsImage
from kafka.broker.transactions import TransactionCoordinator
from kafka.broker.transactions.markers import MarkerWriter
from kafka.errors import BrokerResponseError, UnknownTopicIdError
from kafka.protocol.framing import API_VERSIONS_KEY, ReceivedRequest, UnknownRequest
from kafka.wire.message import Response

if TYPE_CHECKING:
    from kafka.broker.faults import FaultInjector
    from kafka.broker.groups.coordinator import GroupCoordinator
    from kafka.broker.listener_security import Credentials
    from kafka.broker.share.coordinator import ShareGroupCoordinator
    from kafka.broker.share.state_store import ShareKey
    from kafka.broker.telemetry import ClientTelemetry
    from kafka.core.sasl.server import SaslResult, SaslServer

log = logging.getLogger(__name__)


NO_LIMIT = 2**63 - 1
OPENED_AT_ONCE = 1000
"""The number of logs that are opened for a request in one turn of the loop."""


class Broker:
    """One broker on one data directory.

    ``settings``: static broker settings by Kafka's names. ``fsync``: ``always``, ``interval`` or ``never``.
    ``release``: the release of Apache Kafka to emulate, one of :data:`~kafka.broker.emulation.RELEASES`; else
    ValueError. ``users``: name -> password, for listeners with SASL (``listener_security.py``). ``telemetry``: offer
    GetTelemetrySubscriptions and PushTelemetry, which an Apache Kafka does only with a plug-in (``telemetry.py``).
    ``max_open_files``: how many files of logs are kept open.
    Errors: KafkaConfigurationError, DirectoryLockedError, KafkaStorageError.
    """

    def __init__(
        self,
        data_dir: str,
        settings: Mapping[str, str] | None = None,
        *,
        fsync: str = "interval",
        now: float = 0.0,
        epoch_offset: float = 0.0,
        rng: random.Random | None = None,
        release: str = LATEST,
        users: Mapping[str, str] | None = None,
        telemetry: bool = False,
        max_open_files: int = MAX_OPEN_FILES,
    ) -> None:
        self.config = BrokerConfig(settings)
        self.epoch_offset = epoch_offset
        """Wall clock minus monotonic clock, in s; the server updates it."""
        self.advertised: tuple[str | None, int] = ("127.0.0.1", 0)
        """Host and port in metadata responses; None: the address that the client connected to."""
        self.advertised_on: dict[str, tuple[str | None, int]] = {}
        """The same by listener name, where there are several."""
        self.wake_policy = WAKE_AS_KAFKA_4_3
        self._faults: FaultInjector | None = None
        self._now = now
        self.rng = rng or random.Random()
        # A seeded `rng` makes a test's salts and nonces repeatable; without one they come from the system.
        self._secret_rng = rng or random.SystemRandom()
        self._users = dict(users or {})
        self.release = EmulatedRelease(find_release(release), registry.HANDLERS, telemetry=telemetry)
        self._wants_telemetry = telemetry
        self._flush_policy = FlushPolicy.parse(fsync)
        self.logs = LogDirectory(
            data_dir,
            epoch_ms=self.epoch_ms,
            flush=self._flush_policy,
            max_open_files=max_open_files,
            leader_epoch=lambda topic, partition: self.ids.leader_epoch(topic, partition),
        )
        self._delayed = DelayedResponses(self.logs, self._flush_policy)
        try:
            self._load()
        except BaseException:
            self.logs.close()
            raise

    def _load(self) -> None:
        self.metadata = self.logs.metadata
        self.ids = IdAllocator(self.metadata, self.rng, self.flush_metadata)
        self.topics_image = TopicsImage(self.metadata)
        self.config.load_dynamic(self.metadata.configs("broker"))
        if self._users:
            self.credentials  # noqa: B018  # stores them in the metadata
        self.features = Features(self.release, self.metadata, self.config, self.flush_metadata)
        self.features.keep_min_isr()
        self.quotas = Quotas(self.metadata)
        self.purgatory = Purgatory()
        self._sliced = SlicedRequests()
        self.response_room: Callable[[], int] = lambda: NO_LIMIT
        """How many bytes of records a response may have, besides one batch; the server replaces it, as it knows how
        much waits to be sent."""
        slots = self.config.number("max.incremental.fetch.session.cache.slots")
        self.fetch_sessions = FetchSessions(slots, self.rng)
        self.state = StateTopics(
            self.logs,
            self.config,
            new_topic_id=self.ids.new_topic_id,
            flush_metadata=self.flush_metadata,
            epoch_ms=self.epoch_ms,
            on_append=self.appended,
        )
        self.offsets = OffsetStore(self.state.topic(CONSUMER_OFFSETS), self._topic_id)
        max_sessions = self.config.number("group.share.max.share.sessions")
        self.sessions: ShareSessions[tuple[UUID, int], ConnectionContext] = ShareSessions(max_sessions)
        self.telemetry: ClientTelemetry | None = None
        if self._wants_telemetry:
            from kafka.broker.telemetry import ClientTelemetry

            self.telemetry = ClientTelemetry(
                lambda: self.metadata.configs("client-metrics").values(),
                lambda: UUID(int=self.rng.getrandbits(128), version=4),
                self.config.number("telemetry.max.bytes"),
            )
        self._share: ShareGroupCoordinator | None = None
        self._groups: GroupCoordinator | None = None
        if any(self.metadata.topic(name) is not None for name in (CONSUMER_OFFSETS, SHARE_GROUP_STATE)):
            self._share, self._groups = self.share, self.groups
        self.markers = MarkerWriter(self.logs, self.offsets, epoch_ms=self.epoch_ms, on_append=self.appended)
        self.transactions = TransactionCoordinator(
            self.release.facts,
            self.config,
            self.state,
            self.logs,
            self.markers,
            new_producer_id=self.ids.new_producer_id,
            now=lambda: self._now,
            epoch_ms=self.epoch_ms,
        )
        self.apply_topic_defaults()
        self.transactions.recover()
        self.state.end_loading()
        self.maintenance = LogMaintenance(
            self.logs,
            self._now,
            epoch_ms=self.epoch_ms,
            on_visit=self.transactions.end_hanging,
            on_start_moved=self._on_start_moved,
            settings=lambda: maintenance_settings(self.config.value),
        )

    def attach_server(self, advertised: tuple[str | None, int], response_room: Callable[[], int]) -> None:
        """The server has bound its listeners: the main one's address, and how many bytes of responses may be made."""
        self.advertised = advertised
        self.response_room = response_room

    def set_epoch_offset(self, epoch_offset: float) -> None:
        """Wall clock minus monotonic clock, in s, from now on."""
        self.epoch_offset = epoch_offset

    # -- the machine -------------------------------------------------------------------------------------------------

    def handle(
        self, connection: ConnectionContext, received: ReceivedRequest | UnknownRequest, now: float
    ) -> PendingResponse:
        """Handle one request. ``now``: monotonic s. The caller sends at most one per connection at a time."""
        if self._faults is not None and self._faults.is_active:
            self._now = now
            return self._faults.handle(connection, received, now)
        return self.handle_without_faults(connection, received, now)

    def handle_without_faults(
        self, connection: ConnectionContext, received: ReceivedRequest | UnknownRequest, now: float
    ) -> PendingResponse:
        """Handle one request without injected faults."""
        self._now = now
        sasl = connection.sasl
        if sasl is not None:
            refused = self._authenticate(connection, sasl, received, now)
            if refused is not None:
                return refused
        if isinstance(received, UnknownRequest):
            return self.release.unknown(received.api_key)
        request, version, _, client_id = received
        handler = self.release.handler(request.api_key, version)
        if handler is None:
            return self.release.unknown(request.api_key)
        call = registry.RequestContext(request, version, client_id, connection, now)
        if handler.has_too_many_elements(request):
            return registry.reject_too_many_elements(call, handler.most_elements or 0)
        try:
            try:
                outcome = self.release.refusal(call) or self.features.refusal(call) or handler.function(self, call)
            except BrokerResponseError as error:
                outcome = error_response(call, error)
            self.release.adapt_response(self.metadata, call, outcome)
        except Exception:
            log.exception("%r: %s v%d failed; closing the connection", connection, type(request).__name__, version)
            return PendingResponse.hanging_up()
        reply = outcome if isinstance(outcome, PendingResponse) else PendingResponse.of(outcome)
        if sasl is not None:
            sasl.answered(reply.response)
        return self._delayed.delay(reply, request.api_key)

    def handle_token(self, connection: ConnectionContext, data: bytes, now: float) -> PendingResponse:
        """Handle a frame that is a SASL token without a header (SaslHandshake v0)."""
        self._now = now
        sasl = connection.sasl
        assert sasl is not None
        return self._carry_out(connection, sasl, sasl.token(data, now), now)

    def _authenticate(
        self, connection: ConnectionContext, sasl: SaslServer, received: ReceivedRequest | UnknownRequest, now: float
    ) -> PendingResponse | None:
        """The response to a request on a listener with SASL that is not for a handler; None: it is for one."""
        if isinstance(received, UnknownRequest):
            verdict = sasl.admit_unknown(received.api_key == API_VERSIONS_KEY, now)
        else:
            verdict = sasl.admit(received.request, received.version, now)
        return None if verdict is None else self._carry_out(connection, sasl, verdict, now)

    def _carry_out(
        self, connection: ConnectionContext, sasl: SaslServer, verdict: SaslResult, now: float
    ) -> PendingResponse:
        """Carry out the decision of a connection's SaslServer: respond, delay the failure, or close the connection."""
        if verdict.is_last:
            log.warning(
                "%r: authentication failed: %s", connection, sasl.failure or "a request that is not part of it"
            )
        if not verdict.is_delayed:
            return PendingResponse.hanging_up() if verdict.is_last else PendingResponse.of(
                verdict.response, token=verdict.token
            )
        due_at = now + self.config.number("connection.failed.authentication.delay.ms") / 1000
        reply = self.park(connection, (), due_at, lambda is_last: verdict.response if is_last else None)
        reply.close_after_send(lambda transport: transport.close(), hang_up=verdict.response is None)
        return reply

    def tick(self, now: float) -> float | None:
        """Do what is due: flush, attempt delayed requests, expire locks and sessions. When to call it again at the
        latest (monotonic s), or None."""
        self._now = now
        self._sliced.run()
        if self._faults is not None:
            self._faults.tick(now)
        flush_at = self.logs.tick(now)
        maintained_at = self.maintenance.tick(now)
        share, groups = self._share, self._groups
        if share is not None and share.next_deadline is not None and share.next_deadline <= now:
            self.share_events(share.tick(now))
        if groups is not None:
            groups.tick(now)
        self._expire_offsets(now)
        self.transactions.tick(now)
        self.purgatory.run(now)
        deadlines = [
            flush_at, maintained_at, self.purgatory.next_deadline, self.transactions.next_deadline,
            self.offsets.next_deadline, now if self.logs.flusher.must_start or self._sliced else None,
        ]  # fmt: skip
        deadlines += [part.next_deadline for part in (self._faults, share, groups) if part is not None]
        return min((at for at in deadlines if at is not None), default=None)

    def _expire_offsets(self, now: float) -> None:
        due_at = self.offsets.next_deadline
        if due_at is not None and due_at <= now:
            interval_ms = self.config.number("offsets.retention.check.interval.ms")
            retention_ms = self.config.number("offsets.retention.minutes") * 60_000
            self.offsets.tick(now, self.epoch_ms(), interval_ms, retention_ms)

    def disconnected(self, connection: ConnectionContext, now: float) -> None:
        """A connection has ended."""
        self._now = now
        connection.cancel_pending()
        if self.telemetry is not None:
            self.telemetry.disconnected(connection)
        session = self.sessions.disconnected(connection)
        if session is not None:
            self.share_events(self.share.release(*session.key, session.partitions, now))

    def close(self) -> None:
        """Flush everything and release the data directory."""
        self.logs.close()

    # -- parts that not every broker needs: made at their first use, since imports are most of a start
    # ------------------

    @property
    def share(self) -> ShareGroupCoordinator:
        """The share groups."""
        if self._share is None:
            from kafka.broker.share.coordinator import ShareGroupCoordinator
            from kafka.broker.share.state_store import ShareStateStore

            store = ShareStateStore(
                self.state.topic(SHARE_GROUP_STATE),
                self.state.topic(CONSUMER_OFFSETS),
                lambda topic_id: self.metadata.topic_by_id(topic_id) is not None,
            )
            self._share = ShareGroupCoordinator(store, self.config.value, self.metadata.configs("group"))
        return self._share

    @property
    def groups(self) -> GroupCoordinator:
        """The groups of consumers, of either protocol."""
        if self._groups is None:
            from kafka.broker.groups.coordinator import GroupCoordinator

            self._groups = GroupCoordinator(
                self.state.topic(CONSUMER_OFFSETS),
                self.offsets,
                self.topics_image,
                self.config,
                lambda group_id: self.metadata.config("group", group_id),
                now=lambda: self._now,
                epoch_ms=self.epoch_ms,
                new_uuid=self.ids.new_topic_id,
                is_share_group=lambda group_id: group_id in self.share.groups,
            )
        return self._groups

    @property
    def faults(self) -> FaultInjector:
        """The fault injector; its modules are imported at its first use."""
        if self._faults is None:
            from kafka.broker.faults import FaultInjector

            self._faults = FaultInjector(
                self.handle_without_faults,
                self.disconnected,
                self.metadata,
                self.fetch_sessions,
                self.sessions,
                now=lambda: self._now,
                epoch_s=lambda: self._now + self.epoch_offset,
            )
        return self._faults

    @cached_property
    def credentials(self) -> Credentials:
        """The users of listeners with SASL."""
        from kafka.broker.listener_security import Credentials

        return Credentials(self.metadata, self._users, self._secret_rng)

    # -- for handlers ------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """The time of the current request or tick, in monotonic s."""
        return self._now

    def epoch_ms(self) -> int:
        """The time of day at the current request or tick, in ms."""
        return int((self._now + self.epoch_offset) * 1000)

    def endpoint(self, connection: ConnectionContext) -> tuple[str, int]:
        """The host and port that this client connects to for this broker."""
        host, port = self.advertised_on.get(connection.listener or "", self.advertised)
        return host or connection.local_host or "127.0.0.1", port

    def topic(self, name: str) -> Topic:
        """The topic of this name; UnknownTopicOrPartitionError (3)."""
        return self.metadata.known_topic(name)

    def topic_by_id(self, topic_id: UUID) -> Topic:
        """The topic of this id; UnknownTopicIdError (100)."""
        found = self.metadata.topic_by_id(topic_id)
        if found is None:
            raise UnknownTopicIdError(f"no topic with the id {topic_id}")
        return found

    def park(
        self,
        connection: ConnectionContext,
        keys: Iterable[Hashable],
        deadline: float,
        attempt: Callable[[bool], Response | None],
    ) -> PendingResponse:
        """Delay a response in the purgatory until ``attempt`` returns it: that is called when one of the keys was
        notified, and a last time, with True, at ``deadline`` (monotonic s). The connection's end cancels it."""
        reply = PendingResponse()

        def attempt_again(now: float, is_last: bool) -> bool:
            self._now = now
            has_failed = False
            response = None
            try:
                response = attempt(is_last)
            except Exception:
                log.exception("%r: a delayed request failed; closing the connection", connection)
                has_failed = True
            if response is None and not is_last and not has_failed:
                return False
            connection.clear_pending()
            reply.complete(response, hang_up=has_failed)
            return True

        operation = self.purgatory.add(keys, deadline, attempt_again)
        connection.set_pending(lambda: self.purgatory.cancel(operation))
        return reply

    def in_slices(self, call: registry.RequestContext[Any], steps: SlicedHandler) -> Response | PendingResponse:
        """Run a handler that may take longer than one turn of the loop (``time_slices.py``)."""
        return self._sliced.start(
            call.connection, steps, lambda reply, response: self.complete(reply, call, response)
        )

    def when_open(
        self,
        call: registry.RequestContext[Any],
        named: Sequence[registry.PartitionRef],
        handler: Callable[[Broker, registry.RequestContext[Any]], Response | PendingResponse],
    ) -> Response | PendingResponse:
        """Call a handler when the logs of the named partitions are open. Opening one takes 25 us, and a request may
        name ten thousand."""
        if len(named) <= OPENED_AT_ONCE:
            return handler(self, call)

        def open_first() -> SlicedHandler:
            opened = 0
            for key, number in named:
                topic = self.metadata.topic(key) if isinstance(key, str) else self.metadata.topic_by_id(key)
                if topic is None or self.logs.log_if_open(topic.topic_id, number) is not None:
                    continue
                with contextlib.suppress(BrokerResponseError):  # the handler gets the same error, and returns it
                    self.logs.log(topic, number)
                opened += 1
                if not opened % OPENED_AT_ONCE:
                    yield False
            try:
                return handler(self, call.at(self._now))
            except BrokerResponseError as error:
                return error_response(call, error)

        return self.in_slices(call, open_first())

    def complete(self, reply: PendingResponse, call: registry.RequestContext[Any], response: Response) -> None:
        """Complete a pending response, after a flush where it confirms what is not on the disk yet."""
        self._delayed.complete(reply, call.request.api_key, response)

    def appended(self, partition: PartitionLog) -> None:
        """Records were appended: fetches that wait for them are due."""
        self.purgatory.notify(partition)

    def share_events(self, events: Mapping[ShareKey, ShareEvent]) -> None:
        """Share partitions have changed: fetches that wait for them may be due."""
        for key, event in events.items():
            if event.wakes(self.wake_policy):
                self.purgatory.notify(key)

    def _on_start_moved(self, topic: Topic, partition: int, log: PartitionLog) -> None:
        """Retention has raised a log start offset: notify delayed fetches and share groups."""
        self.log_start_moved(topic, partition, log.start_offset)
        self.purgatory.notify(log)

    def log_start_moved(self, topic: Topic, partition: int, start_offset: int) -> None:
        """A log start offset has risen: update the share partitions of the log."""
        for key in self._share.keys() if self._share is not None else ():
            if key.topic_id == topic.topic_id and key.partition == partition:
                loaded = self.share.loaded(*key)
                if loaded is not None:
                    self.share_events({key: loaded.log_start_moved(start_offset)})

    def topics_changed(self, names: Iterable[str]) -> None:
        """Topics were created, grown or deleted: flush the metadata, and notify the groups."""
        self.flush_metadata()
        names = list(names)
        if self._share is not None:
            self._share.topics_changed(names, self.topics_image.infos, self._now)
        if self._groups is not None:
            self._groups.topics_changed(names)

    def _topic_id(self, name: str) -> UUID | None:
        found = self.metadata.topic(name)
        return None if found is None else found.topic_id

    def flush_metadata(self) -> None:
        """Flush the metadata before the response, unless fsync=never."""
        if self._flush_policy.name != "never":
            self.logs.flusher.request_flush(self.metadata.journal)

    def apply_topic_defaults(self) -> None:
        """Apply the broker's settings as the defaults of all topics."""
        self.logs.set_defaults(
            {
                setting.name: self.config.topic_default(setting)
                for setting in TOPIC_SETTINGS.values()
                if setting.broker_name is not None
            }
        )

    def topic_setting(self, topic: Topic, name: str) -> str:
        """The current value of a topic's setting."""
        own = self.metadata.config("topic", topic.name).get(name)
        return own if own is not None else self.logs.defaults.get(name, TOPIC_SETTINGS[name].default)
