"""The embedded broker as one deterministic machine: requests and time in, replies out.

    handle(connection, request, now) -> Reply     one request; its reply is done at once or later
    tick(now) -> next deadline                    after the requests of a turn, and at the deadline
    disconnected(connection, now)                 its share session ends, its parked request is forgotten

The broker owns what handlers share: the data directory, the share groups, the committed offsets, the purgatory. It
knows no sockets (``server.py``), no wall clock (``epoch_offset`` turns ``now`` into one) and no chance but ``rng``.
What single requests mean is in ``handlers/``; which there are, in ``registry.py``.

:meth:`Broker.tick` is also where group commit begins: one sync covers all that the turn has written. Which answers wait
for it is in ``held_answers.py``.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import random
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kafka.broker import authentication, registry
from kafka.broker.config import BrokerConfig
from kafka.broker.features import Features
from kafka.broker.fetch_sessions import FetchSessions
from kafka.broker.held_answers import HeldAnswers
from kafka.broker.ids import Ids
from kafka.broker.log import FlushPolicy, LogDirectory, PartitionLog, Topic
from kafka.broker.log.files import MAX_OPEN_FILES
from kafka.broker.log.maintenance import LogMaintenance, maintenance_settings
from kafka.broker.offset_store import OffsetStore
from kafka.broker.purgatory import Purgatory
from kafka.broker.quotas import Quotas
from kafka.broker.release import PlayedRelease
from kafka.broker.releases import LATEST, find_release
from kafka.broker.reply import Connection, Reply
from kafka.broker.settings import TOPIC_SETTINGS
from kafka.broker.share.sessions import ShareSessions
from kafka.broker.share.states import WAKE_AS_KAFKA_4_3, ShareEvent
from kafka.broker.sliced_requests import SlicedRequests, Steps
from kafka.broker.state.state_topic import CONSUMER_OFFSETS, SHARE_GROUP_STATE, StateTopics
from kafka.broker.topics import TopicsImage
from kafka.broker.transactions import TransactionCoordinator
from kafka.broker.transactions.orphans import end_orphans
from kafka.errors import BrokerResponseError, UnknownTopicIdError, UnknownTopicOrPartitionError
from kafka.protocol.framing import ReceivedRequest, UnknownRequest
from kafka.wire.message import Response

if TYPE_CHECKING:
    from kafka.broker.credentials import Credentials
    from kafka.broker.faults import Faults
    from kafka.broker.groups.coordinator import GroupCoordinator
    from kafka.broker.share.coordinator import ShareGroupCoordinator
    from kafka.broker.share.state_store import ShareKey
    from kafka.broker.telemetry import ClientTelemetry

log = logging.getLogger(__name__)

NO_LIMIT = 2**63 - 1
OPENED_AT_ONCE = 1000
"""Logs that are opened in one turn of the loop for a request."""


class Broker:
    """One broker on one data directory.

    ``settings``: static broker settings by Kafka's names. ``fsync``: ``always``, ``interval`` or ``never``.
    ``release``: the release of Apache Kafka to play, one of :data:`~kafka.broker.releases.RELEASES`; else ValueError.
    ``users``: name -> password, let in on listeners with SASL (``credentials.py``). ``telemetry``: offer
    GetTelemetrySubscriptions and PushTelemetry, which an Apache Kafka does only with a plug-in (``telemetry.py``).
    ``max_open_files``: how many files of logs are kept open.
    Errors of the start: KafkaConfigurationError, DirectoryLockedError, KafkaStorageError.
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
        """Wall clock less monotonic clock, in s; the server keeps it right."""
        self.advertised: tuple[str | None, int] = ("127.0.0.1", 0)
        """Host and port that clients are told; None: the address that the client came to."""
        self.advertised_on: dict[str, tuple[str | None, int]] = {}
        """The same by the listener that they came to, where there are several."""
        self.wake_policy = WAKE_AS_KAFKA_4_3
        self._faults: Faults | None = None
        self._now = now
        self.rng = rng or random.Random()
        self._secret_rng = rng or random.SystemRandom()
        self._users = dict(users or {})
        self.release = PlayedRelease(find_release(release), registry.HANDLERS, telemetry=telemetry)
        self._wants_telemetry = telemetry
        self._flush_policy = FlushPolicy.parse(fsync)
        self.logs = LogDirectory(
            data_dir, epoch_ms=self.epoch_ms, flush=self._flush_policy, max_open_files=max_open_files
        )
        self._held = HeldAnswers(self.logs, self._flush_policy)
        try:
            self._load()
        except BaseException:
            self.logs.close()
            raise

    def _load(self) -> None:
        self.metadata = self.logs.metadata
        self.ids = Ids(self.metadata, self.rng, self.sync_metadata)
        self.logs.leader_epoch = self.ids.leader_epoch
        self.topics_image = TopicsImage(self.metadata)
        self.config.dynamic = self.metadata.configs("broker")
        if self._users:
            self.credentials  # noqa: B018  # puts them into the metadata
        self.features = Features(self)
        self.features.keep_min_isr()
        self.quotas = Quotas(self.metadata)
        self.purgatory = Purgatory()
        self._sliced = SlicedRequests()
        self.answer_room: Callable[[], int] = lambda: NO_LIMIT
        """How many bytes of records an answer may have, besides one batch: the server knows what waits to be sent."""
        slots = self.config.number("max.incremental.fetch.session.cache.slots")
        self.fetch_sessions = FetchSessions(slots, self.rng)
        self.state = StateTopics(self)
        self.offsets = OffsetStore(self.state.topic(CONSUMER_OFFSETS), self._topic_id)
        max_sessions = self.config.limits.max_share_sessions
        self.sessions: ShareSessions[tuple[UUID, int], Connection] = ShareSessions(max_sessions)
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
        self.transactions = TransactionCoordinator(self)
        self.apply_topic_defaults()
        self.transactions.recover()
        self.state.loaded()
        self.maintenance = LogMaintenance(
            self.logs,
            self._now,
            epoch_ms=self.epoch_ms,
            on_visit=functools.partial(end_orphans, self),
            on_start_moved=self._records_gone,
            settings=lambda: maintenance_settings(self.config.value),
        )

    # -- the machine -------------------------------------------------------------------------------------------------

    def handle(self, connection: Connection, received: ReceivedRequest | UnknownRequest, now: float) -> Reply:
        """Answer one request. ``now``: monotonic s. The caller sends at most one per connection at a time."""
        if self._faults is not None and self._faults.is_armed:
            self._now = now
            return self._faults.handle(connection, received, now)
        return self.handle_now(connection, received, now)

    def handle_now(self, connection: Connection, received: ReceivedRequest | UnknownRequest, now: float) -> Reply:
        """The same, and no fault strikes it."""
        self._now = now
        sasl = connection.sasl
        if sasl is not None:
            kept_out = authentication.admit(self, connection, sasl, received, now)
            if kept_out is not None:
                return kept_out
        if isinstance(received, UnknownRequest):
            return self.release.unknown(received.api_key)
        request, version, _, client_id = received
        handler = self.release.handler(request.api_key, version)
        if handler is None:
            return self.release.unknown(request.api_key)
        call = registry.Call(request, version, client_id, connection, now)
        if handler.has_too_many_elements(request):
            return registry.too_many(call, handler.most_elements or 0)
        try:
            outcome = self.release.refusal(call) or self.features.refusal(call) or handler.function(self, call)
            self.release.dress(self, call, outcome)
        except Exception:
            log.exception("%r: %s v%d failed; the connection ends", connection, type(request).__name__, version)
            return Reply.hanging_up()
        reply = outcome if isinstance(outcome, Reply) else Reply.of(outcome)
        if sasl is not None:
            sasl.answered(reply.response)
        return self._held.show(reply, request.api_key)

    def handle_token(self, connection: Connection, data: bytes, now: float) -> Reply:
        """Answer a frame that is a SASL token without a header: the connection's ``sasl`` says when they come."""
        self._now = now
        return authentication.take_token(self, connection, data, now)

    def tick(self, now: float) -> float | None:
        """Do what is due: sync, wake parked requests, end locks and sessions. When to come again at the latest
        (monotonic s), or None."""
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

    def disconnected(self, connection: Connection, now: float) -> None:
        """A connection has ended."""
        self._now = now
        if self._faults is not None:
            self._faults.disconnected(connection)
        parked, connection.parked = connection.parked, None
        if parked is not None:
            parked()
        if self.telemetry is not None:
            self.telemetry.disconnected(connection)
        session = self.sessions.disconnected(connection)
        if session is not None:
            self.share_events(self.share.release(*session.key, session.partitions, now))

    def close(self) -> None:
        """Flush everything and give the directory up."""
        self.logs.close()

    # -- parts that not every broker needs: made when first asked for, since imports are most of a start ---------------

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
            self._share = ShareGroupCoordinator(store, self.config.limits, self.metadata.configs("group"))
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
                self.metadata.configs("group"),
                now=lambda: self._now,
                epoch_ms=self.epoch_ms,
                new_uuid=self.ids.new_topic_id,
                is_share_group=lambda group_id: self._share is not None and group_id in self._share.groups,
            )
        return self._groups

    @property
    def faults(self) -> Faults:
        """What is to go wrong. A broker that nobody asks for it does without the whole instrument."""
        if self._faults is None:
            from kafka.broker.faults import Faults

            self._faults = Faults(self)
        return self._faults

    @cached_property
    def credentials(self) -> Credentials:
        """The users of listeners with SASL; most brokers have neither."""
        from kafka.broker.credentials import Credentials

        return Credentials(self.metadata, self._users, self._secret_rng)

    # -- for handlers ------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """The request or tick under way, in monotonic s."""
        return self._now

    def epoch_ms(self) -> int:
        """The time of day at the request or tick under way, in ms."""
        return int((self._now + self.epoch_offset) * 1000)

    def endpoint(self, connection: Connection) -> tuple[str, int]:
        """The host and port under which this client reaches the broker."""
        host, port = self.advertised_on.get(connection.listener or "", self.advertised)
        return host or connection.local_host or "127.0.0.1", port

    def topic(self, name: str) -> Topic:
        """The topic of this name; UnknownTopicOrPartitionError (3)."""
        found = self.metadata.topic(name)
        if found is None:
            raise UnknownTopicOrPartitionError(f"no topic {name}")
        return found

    def topic_by_id(self, topic_id: UUID) -> Topic:
        """The topic of this id; UnknownTopicIdError (100)."""
        found = self.metadata.topic_by_id(topic_id)
        if found is None:
            raise UnknownTopicIdError(f"no topic with the id {topic_id}")
        return found

    def park(
        self,
        connection: Connection,
        keys: Iterable[Hashable],
        deadline: float,
        attempt: Callable[[bool], Response | None],
    ) -> Reply:
        """Let a request wait until ``attempt`` gives its answer: it is made when something under ``keys`` was touched,
        and a last time, with True, at ``deadline`` (monotonic s). A connection that ends takes its request along."""
        reply = Reply()

        def again(now: float, is_last: bool) -> bool:
            self._now = now
            try:
                found = attempt(is_last)
            except Exception:
                log.exception("%r: a request that waited has failed; the connection ends", connection)
                reply.hang_up = True
            else:
                if found is None and not is_last:
                    return False
                reply.response = found
            connection.parked = None
            reply.complete(reply.response)
            return True

        parked = self.purgatory.park(keys, deadline, again)
        connection.parked = lambda: self.purgatory.cancel(parked)
        return reply

    def in_slices(self, call: registry.Call[Any], steps: Steps) -> Response | Reply:
        """Answer a request with a handler that may take longer than one turn of the loop (``sliced_requests.py``)."""
        return self._sliced.start(
            call.connection, steps, lambda reply, response: self.complete(reply, call, response)
        )

    def when_open(
        self,
        call: registry.Call[Any],
        named: list[registry.Named],
        handler: Callable[[Broker, registry.Call[Any]], Response | Reply],
    ) -> Response | Reply:
        """Answer a request that names partitions when their logs are open. The first use of a log takes 25 us, and a
        request may name ten thousand."""
        if len(named) <= OPENED_AT_ONCE:
            return handler(self, call)
        return self.in_slices(call, self._open_first(call, named, handler))

    def _open_first(
        self,
        call: registry.Call[Any],
        named: list[registry.Named],
        handler: Callable[[Broker, registry.Call[Any]], Response | Reply],
    ) -> Steps:
        opened = 0
        for key, number in named:
            topic = self.metadata.topic(key) if isinstance(key, str) else self.metadata.topic_by_id(key)
            if topic is None or self.logs.log_if_open(topic.topic_id, number) is not None:
                continue
            with contextlib.suppress(BrokerResponseError):  # the handler meets it again, and says so
                self.logs.log(topic, number)
            opened += 1
            if not opened % OPENED_AT_ONCE:
                yield False
        call.now = self._now
        return handler(self, call)

    def complete(self, reply: Reply, call: registry.Call[Any], response: Response) -> None:
        """Answer a request that has waited, or is just being handled; after a sync, where the answer is a promise."""
        self._held.complete(reply, call.request.api_key, response)

    def appended(self, partition: PartitionLog) -> None:
        """Records were appended: fetches that wait for them are due."""
        self.purgatory.touch(partition)

    def share_events(self, events: Mapping[ShareKey, ShareEvent]) -> None:
        """Things happened to share partitions: fetches that wait on them may be due."""
        for key, event in events.items():
            if event.wakes(self.wake_policy):
                self.purgatory.touch(key)

    def _records_gone(self, topic: Topic, partition: int, log: PartitionLog) -> None:
        """Retention has moved a log's beginning: fetches that wait behind it and share groups are told."""
        self.log_start_moved(topic, partition, log.start_offset)
        self.purgatory.touch(log)

    def log_start_moved(self, topic: Topic, partition: int, start_offset: int) -> None:
        """A log's beginning was deleted: so it is for the share groups on it."""
        for key in self._share.keys() if self._share is not None else ():
            if key.topic_id == topic.topic_id and key.partition == partition:
                loaded = self.share.loaded(*key)
                if loaded is not None:
                    self.share_events({key: loaded.log_start_moved(start_offset)})

    def topics_changed(self, names: Iterable[str]) -> None:
        """Topics were made, grown or deleted: put it on the disk, and tell the share groups."""
        self.sync_metadata()
        names = list(names)
        if self._share is not None:
            self._share.topics_changed(names, self.topics_image.infos, self._now)
        if self._groups is not None:
            self._groups.topics_changed(names)

    def _topic_id(self, name: str) -> UUID | None:
        found = self.metadata.topic(name)
        return None if found is None else found.topic_id

    def sync_metadata(self) -> None:
        """Metadata changes seldom and is dear: it goes to the disk before the answer, unless nothing ever does."""
        if self._flush_policy.name != "never":
            self.logs.flusher.request_flush(self.metadata)

    def apply_topic_defaults(self) -> None:
        """Put the broker's settings in force as the defaults of all topics."""
        self.logs.defaults = {
            setting.name: self.config.topic_default(setting)
            for setting in TOPIC_SETTINGS.values()
            if setting.broker_name is not None
        }
        for topic in self.metadata:
            self.logs.configure_topic(topic)

    def topic_setting(self, topic: Topic, name: str) -> str:
        """The value in force of a topic's setting."""
        own = self.metadata.config("topic", topic.name).get(name)
        return own if own is not None else self.logs.defaults.get(name, TOPIC_SETTINGS[name].default)
