"""The embedded broker as one deterministic machine: requests and time in, replies out.

    handle(connection, request, now) -> Reply     one request; its reply is done at once or later
    tick(now) -> next deadline                    after the requests of a turn, and at the deadline
    disconnected(connection, now)                 its share session ends, its parked request is forgotten

The broker owns what handlers share: the data directory, the share groups, the committed offsets, the purgatory. It
knows no sockets (``server.py``), no wall clock (``epoch_offset`` turns ``now`` into one) and no chance but ``rng``.
What single requests mean is in ``handlers/``; which there are, in ``registry.py``.

:meth:`Broker.tick` is also where group commit happens: with the flush policy ``always``, replies are held until one
sync has covered all that the turn has written.
"""

from __future__ import annotations

import base64
import logging
import random
from collections.abc import Callable, Hashable, Iterable, Mapping
from uuid import UUID

from kafka.broker import registry
from kafka.broker.config import BrokerConfig
from kafka.broker.log import FlushPolicy, LogDirectory, PartitionLog, Topic
from kafka.broker.offset_store import OffsetStore
from kafka.broker.purgatory import Purgatory
from kafka.broker.reply import Connection, Reply
from kafka.broker.settings import TOPIC_SETTINGS
from kafka.broker.share.group import TopicInfo
from kafka.broker.share.groups import ShareGroups
from kafka.broker.share.sessions import ShareSessions
from kafka.broker.share.state_store import ShareKey, ShareStateStore
from kafka.broker.share.states import WAKE_AS_KAFKA_4_3, ShareEvent
from kafka.errors import KafkaError, KafkaStorageError, UnknownTopicIdError, UnknownTopicOrPartitionError
from kafka.protocol.framing import API_VERSIONS_KEY, ReceivedRequest, UnknownRequest
from kafka.wire.message import Response

log = logging.getLogger(__name__)

SYNC_RETRY_S = 1.0
"""After a flush that failed, with the flush policy ``interval``."""

PRODUCER_ID_BLOCK = 1000
"""Producer ids are made durable by the block, as in Kafka; what is left of one at a restart is never given out."""


class Broker:
    """One broker on one data directory.

    ``settings``: static broker settings by Kafka's names. ``fsync``: ``always``, ``interval`` or ``never``.
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
    ) -> None:
        self.config = BrokerConfig(settings)
        self.epoch_offset = epoch_offset
        """Wall clock less monotonic clock, in s; the server keeps it right."""
        self.advertised: tuple[str | None, int] = ("127.0.0.1", 0)
        """Host and port that clients are told; None: the address that the client came to."""
        self.wake_policy = WAKE_AS_KAFKA_4_3
        self._now = now
        self._rng = rng or random.Random()
        self._handlers = registry.load()
        self._flush_policy = FlushPolicy.parse(fsync)
        self.logs = LogDirectory(data_dir, epoch_ms=self.epoch_ms, flush=self._flush_policy)
        try:
            self._load()
        except BaseException:
            self.logs.close()
            raise

    def _load(self) -> None:
        self.metadata = self.logs.metadata
        self.cluster_id: str = self.metadata.meta("cluster_id") or self._new_cluster_id()
        self.config.dynamic = self.metadata.configs("broker")
        self.purgatory = Purgatory()
        self.offsets = OffsetStore(self.logs.journal)
        max_sessions = self.config.limits.max_share_sessions
        self.sessions: ShareSessions[tuple[UUID, int], Connection] = ShareSessions(max_sessions)
        store = ShareStateStore(lambda replay: self.logs.journal("share-groups", replay))
        self.share = ShareGroups(store, self.config.limits, self.metadata.configs("group"))
        self._producer_ids = range(0)
        self._held: list[tuple[Reply, Reply]] = []
        self.apply_topic_defaults()

    # -- the machine -------------------------------------------------------------------------------------------------

    def handle(self, connection: Connection, received: ReceivedRequest | UnknownRequest, now: float) -> Reply:
        """Answer one request. ``now``: monotonic s. The caller sends at most one per connection at a time."""
        self._now = now
        if isinstance(received, UnknownRequest):
            return self._unknown(received.api_key)
        request, version, _, client_id = received
        handler = self._handlers.get(request.api_key)
        if handler is None or not handler.min_version <= version <= handler.max_version:
            return self._unknown(request.api_key)
        try:
            outcome = handler.function(self, registry.Call(request, version, client_id, connection, now))
        except Exception:
            log.exception("%r: %s v%d failed; the connection ends", connection, type(request).__name__, version)
            return Reply.hanging_up()
        reply = outcome if isinstance(outcome, Reply) else Reply.of(outcome)
        if self._flush_policy.sync_before_answer and reply.done and self.logs.has_unsynced:
            held = Reply()
            self._held.append((held, reply))
            return held
        return reply

    def tick(self, now: float) -> float | None:
        """Do what is due: sync, wake parked requests, end locks and sessions. When to come again at the latest
        (monotonic s), or None."""
        self._now = now
        flush_at = self._sync(now)
        share_at = self.share.next_deadline
        if share_at is not None and share_at <= now:
            self.share_events(self.share.tick(now))
        self.purgatory.run(now)
        deadlines = (flush_at, self.purgatory.next_deadline, self.share.next_deadline)
        return min((at for at in deadlines if at is not None), default=None)

    def disconnected(self, connection: Connection, now: float) -> None:
        """A connection has ended."""
        self._now = now
        parked, connection.parked = connection.parked, None
        if parked is not None:
            parked()
        session = self.sessions.disconnected(connection)
        if session is not None:
            self.share_events(self.share.release(*session.key, session.partitions, now))

    def close(self) -> None:
        """Flush everything and give the directory up."""
        self.logs.close()

    def _unknown(self, api_key: int) -> Reply:
        """As Apache Kafka 4.3.0 (measured): an ApiVersions of a version that we lack is told the versions of
        ApiVersions only, in version 0 (KIP-511); any other unknown request ends the connection."""
        if api_key == API_VERSIONS_KEY:
            from kafka.broker.handlers.api_versions import unsupported_version

            return Reply.of(unsupported_version(), version=0)
        return Reply.hanging_up()

    def _sync(self, now: float) -> float | None:
        """Flush what is due, and let out the answers that waited for it; when to come again.

        What cannot be flushed may be lost with the machine: that is logged, and the broker goes on. Answers that
        promise otherwise (``always``) are not given: their connections end, as the outcome is not known.
        """
        is_safe = True
        try:
            flush_at = self.logs.tick(now)
        except KafkaStorageError as error:
            log.error("what was written is not safe from a loss of the machine: %s", error_text(error))
            is_safe, flush_at = False, now + SYNC_RETRY_S
        held, self._held = self._held, []
        for shown, reply in held:
            shown.version, shown.hang_up = reply.version, reply.hang_up or not is_safe
            shown.complete(reply.response)
        return flush_at

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
        host, port = self.advertised
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

    def appended(self, partition: PartitionLog) -> None:
        """Records were appended: fetches that wait for them are due."""
        self.purgatory.touch(partition)

    def share_events(self, events: Mapping[ShareKey, ShareEvent]) -> None:
        """Things happened to share partitions: fetches that wait on them may be due."""
        for key, event in events.items():
            if event.wakes(self.wake_policy):
                self.purgatory.touch(key)

    def log_start_moved(self, topic: Topic, partition: int, start_offset: int) -> None:
        """A log's beginning was deleted: so it is for the share groups on it."""
        keys = self.share.keys()
        for key in keys:
            if key.topic_id == topic.topic_id and key.partition == partition:
                loaded = self.share.loaded(*key)
                if loaded is not None:
                    self.share_events({key: loaded.log_start_moved(start_offset)})

    def topics_changed(self, names: Iterable[str]) -> None:
        """Topics were made, grown or deleted: put it on the disk, and tell the share groups."""
        self.sync_metadata()
        self.share.topics_changed(names, self.topic_infos, self._now)

    def topic_infos(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """What share groups need to know of the topics among these names that exist."""
        found = {name: self.metadata.topic(name) for name in names}
        return {name: TopicInfo(topic.topic_id, topic.partitions) for name, topic in found.items() if topic}

    def sync_metadata(self) -> None:
        """Metadata changes seldom and is dear: it goes to the disk at once, unless nothing ever does."""
        if self._flush_policy.name != "never":
            self.metadata.flush()

    def apply_topic_defaults(self) -> None:
        """Put the broker's settings in force as the defaults of all topics."""
        self.logs.defaults = {
            setting.name: self.config.value(setting.broker_name)
            for setting in TOPIC_SETTINGS.values()
            if setting.broker_name is not None
        }
        for topic in self.metadata:
            self.logs.configure_topic(topic)

    def topic_setting(self, topic: Topic, name: str) -> str:
        """The value in force of a topic's setting."""
        own = self.metadata.config("topic", topic.name).get(name)
        return own if own is not None else self.logs.defaults.get(name, TOPIC_SETTINGS[name].default)

    def new_topic_id(self) -> UUID:
        """A random id (version 4)."""
        return UUID(int=self._rng.getrandbits(128), version=4)

    def new_producer_id(self) -> int:
        """A producer id that was never given out."""
        if not self._producer_ids:
            first = int(self.metadata.meta("next_producer_id", 0))
            self.metadata.set_meta("next_producer_id", first + PRODUCER_ID_BLOCK)
            self._producer_ids = range(first, first + PRODUCER_ID_BLOCK)
        first = self._producer_ids[0]
        self._producer_ids = self._producer_ids[1:]
        return first

    def _new_cluster_id(self) -> str:
        text = base64.urlsafe_b64encode(self._rng.randbytes(16)).rstrip(b"=").decode()
        self.metadata.set_meta("cluster_id", text)
        return text


def error_code(error: KafkaError) -> int:
    """Kafka's code of an error: -1 (UNKNOWN_SERVER_ERROR) for one that has none."""
    code = getattr(error, "errno", None)
    return -1 if code is None else int(code)


def error_text(error: KafkaError) -> str:
    """What is told about an error beside its code."""
    return str(error.args[0]) if error.args else getattr(error, "message", "")
