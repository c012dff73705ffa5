"""What the client knows of the cluster: brokers, topics, partitions and their leaders, and how old that is.

It sends nothing: :class:`MetadataRefresher` sends :meth:`ClusterMetadata.metadata_request` when
:meth:`ClusterMetadata.ttl` is 0 and hands the response to :meth:`ClusterMetadata.update_metadata`.

One thread writes (the loop's), any may read: each response becomes a :class:`ClusterSnapshot`, which takes the place of
the former one in one assignment, so a reader in another thread sees the old or the new cluster, never half of each.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple
from uuid import UUID

from kafka.config import resolve
from kafka.core.connection import ByVersion
from kafka.core.retry import Rng
from kafka.errors import (
    AuthenticationError,
    Cancelled,
    IllegalStateError,
    InvalidTopicMetadataError,
    KafkaError,
    LeaderNotAvailableError,
    MetadataEmptyBrokerList,
    NoError,
    RebootstrapRequiredError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.future import Future
from kafka.net.loop import Loop, LoopTimer
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.structs import BrokerMetadata, PartitionMetadata, TopicPartition
from kafka.wire.types import ZERO_UUID

log = logging.getLogger(__name__)

Listener = Callable[["ClusterMetadata"], object]

_AUTO_CREATION_SINCE = 4
_ALL_AS_NULL_SINCE = 1
_CREATED_CODES = (NoError.errno, LeaderNotAvailableError.errno)


class LeaderHint(NamedTuple):
    """Who leads a partition, as a response says it (KIP-951); -1 for what was not told."""

    leader: int
    epoch: int


class ClusterMetadata:
    """Brokers, topics and leaders. Settings: ``metadata_max_age_ms``, ``retry_backoff_ms``, ``retry_backoff_max_ms``,
    ``allow_auto_create_topics``; ``now`` gives monotonic seconds, ``rng`` the jitter of back-offs (None: no jitter).
    """

    def __init__(
        self,
        *,
        now: Callable[[], float] = time.monotonic,
        rng: Rng | None = None,
        all_topics: bool = True,
        **configs: Any,
    ) -> None:
        settings = resolve("client", configs)
        self._now = now
        self._max_age_s = settings["metadata_max_age_ms"] / 1000
        self._retry_backoff_s = settings["retry_backoff_ms"] / 1000
        self._retry_backoff_max_s = max(settings["retry_backoff_max_ms"] / 1000, self._retry_backoff_s)
        self._may_create = settings["allow_auto_create_topics"]
        self._rng = rng
        self.snapshot = ClusterSnapshot()
        """What is known, for any thread to read: it is replaced as a whole."""
        self._extra_brokers: dict[int, BrokerMetadata] = {}  # brokers known from other responses than Metadata
        self._listeners: list[Listener] = []
        self._wanted: set[str] = set()
        self._no_creation: list[Callable[[str], bool]] = []
        self.former_cluster_id: str | None = None
        """The id that the cluster had before its last change of id; None when it never changed."""
        self.need_all_topics = all_topics
        """Whether a refresh asks for every topic; :meth:`set_topics` and :meth:`add_topic` decide it."""
        self._need_update = True
        self._pending: Future[ClusterMetadata] | None = None  # completed by the next refresh to begin
        self._under_way: Future[ClusterMetadata] | None = None
        self._asked: frozenset[str] | None = None  # by the request under way; None: for all topics
        self._refreshed_at: float | None = None
        self._attempt_at: float | None = None
        self._failures = 0
        self.refusal: AuthenticationError | None = None
        """The authentication error of the last refresh. Listeners are called for it, too."""
        self._jitter = 1.0  # of the back-off under way: drawn once for each, or it would never be over
        self._is_urgent = False  # the next attempt waits for no back-off
        self._unchanged_refreshes = 0  # refreshes in a row that told what was known
        self._on_request: Callable[[], object] = lambda: None

    # -- brokers -------------------------------------------------------------------------------------------------------

    def brokers(self) -> set[BrokerMetadata]:
        """All known brokers."""
        return set(self.snapshot.brokers.values())

    def broker_metadata(self, broker_id: int | str) -> BrokerMetadata | None:
        """One broker, or None. Also one that is known from FindCoordinator or a leader hint only."""
        if not isinstance(broker_id, int):
            return None
        return self.snapshot.brokers.get(broker_id) or self._extra_brokers.get(broker_id)

    def note_broker(self, broker_id: int, host: str, port: int, rack: str | None = None) -> None:
        """A response other than Metadata has the address of a broker. Metadata takes precedence."""
        self._extra_brokers[broker_id] = BrokerMetadata(broker_id, host, port, rack)

    @property
    def cluster_id(self) -> str | None:
        """The cluster's id, when the brokers tell it (0.10.1)."""
        return self.snapshot.cluster_id

    @property
    def controller_id(self) -> int | None:
        """The controller's node id; None when there is none or the brokers do not tell it (before 0.10)."""
        return self.snapshot.controller_id

    @property
    def controller(self) -> BrokerMetadata | None:
        """The controller, or None."""
        found = self.snapshot.controller_id
        return None if found is None else self.broker_metadata(found)

    # -- topics and partitions -----------------------------------------------------------------------------------------

    def topics(self, exclude_internal_topics: bool = True) -> set[str]:
        """Names of the known topics."""
        snapshot = self.snapshot
        names = set(snapshot.partitions)
        return names - snapshot.internal if exclude_internal_topics else names

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Numbers of all partitions; None for an unknown topic."""
        found = self.snapshot.partitions.get(topic)
        return None if found is None else set(found)

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """Numbers of the partitions that have a leader; None for an unknown topic."""
        found = self.snapshot.partitions.get(topic)
        return None if found is None else {number for number, partition in found.items() if partition.leader >= 0}

    def partition_metadata(self, partition: TopicPartition) -> PartitionMetadata | None:
        """All that is known of a partition; None when nothing is."""
        return self.find_partition(partition[0], partition[1])

    def find_partition(self, topic: str, number: int) -> PartitionMetadata | None:
        """The same by name and number."""
        return self.snapshot.partitions.get(topic, {}).get(number)

    def leader_for_partition(self, partition: TopicPartition) -> int | None:
        """The leader's node id, -1 when there is none now, None when the partition is unknown."""
        found = self.partition_metadata(partition)
        return None if found is None else found.leader

    def leader_epoch_for_partition(self, partition: TopicPartition) -> int | None:
        """The leader's epoch; -1 when the brokers do not tell it, None when the partition is unknown."""
        found = self.partition_metadata(partition)
        return None if found is None else found.leader_epoch

    def partitions_for_broker(self, broker_id: int) -> set[TopicPartition]:
        """The partitions that a broker leads."""
        return {
            TopicPartition(topic, number)
            for topic, partitions in self.snapshot.partitions.items()
            for number, partition in partitions.items()
            if partition.leader == broker_id
        }

    def is_replica_node(self, partition: TopicPartition, node_id: int) -> bool:
        """Whether the node has a replica of the partition that is not offline."""
        found = self.partition_metadata(partition)
        return found is not None and node_id in found.replicas and node_id not in found.offline_replicas

    def topic_id(self, topic_name: str) -> UUID | None:
        """The topic's id; None when the topic is unknown or the brokers have no ids (before 2.8)."""
        return self.snapshot.ids.get(topic_name)

    def topic_name_for_id(self, topic_id: UUID) -> str | None:
        """The name of the topic with that id; None when it is unknown."""
        return self.snapshot.names.get(topic_id)

    def topic_error(self, topic: str) -> KafkaError | None:
        """What the last answer had against the topic: an error code's class, or InvalidTopicMetadataError when its
        partitions cannot be. None for nothing."""
        return self.snapshot.topic_errors.get(topic)

    def update_partition_leader(self, partition: TopicPartition, leader_id: int, leader_epoch: int) -> bool:
        """A leader hint of a response. Whether that was news: an older epoch is not."""
        return bool(self.update_partition_leaders({partition: LeaderHint(leader_id, leader_epoch)}))

    def update_partition_leaders(
        self, leaders: Mapping[TopicPartition, LeaderHint], nodes: Iterable[BrokerMetadata] = ()
    ) -> set[TopicPartition]:
        """Leader hints of a response (KIP-951): other leaders, and where these are. The
        partitions that this was news of (:meth:`ClusterSnapshot.with_leaders`); listeners are called when there are
        any."""
        new, news = self.snapshot.with_leaders(leaders, nodes)
        if news:
            self.snapshot = new
            self._tell_listeners()
        return news

    def forget_brokers(self) -> None:
        """Forget brokers and leaders before a rebootstrap (KIP-1102)."""
        self.snapshot = self.snapshot.without_brokers()
        self._extra_brokers = {}

    # -- what is wanted ------------------------------------------------------------------------------------------------

    def set_topics(self, topics: Iterable[str]) -> Future[ClusterMetadata]:
        """Ask for these topics from now on; the empty set means all. The future is that of the refresh."""
        wanted = set(topics)
        news = bool(wanted - self._wanted) if wanted else not self.need_all_topics
        self._wanted = wanted
        self.need_all_topics = not wanted
        return self._update_for_news() if news else Future[ClusterMetadata]().success(self)

    def add_topic(self, topic: str) -> Future[ClusterMetadata]:
        """Ask for this topic, too. The future is that of the refresh; done already when the topic is no news."""
        return self.add_topics((topic,))

    def add_topics(self, topics: Iterable[str]) -> Future[ClusterMetadata]:
        """:meth:`add_topic` for several."""
        news = set(topics) - self._wanted
        if not news:
            return Future[ClusterMetadata]().success(self)
        self._wanted |= news
        self.need_all_topics = False
        return self._update_for_news()

    def forget_topics(self, topics: Iterable[str]) -> None:
        """Ask for these no more: they are gone, and asking might create them again."""
        self._wanted -= set(topics)

    def exclude_from_creation(self, excludes: Callable[[str], bool]) -> None:
        """Topics of which ``excludes(name)`` is true are found by other means than their names, by a pattern say: when
        they are gone, asking for them does not make them again. Until :meth:`allow_creation`."""
        self._no_creation.append(excludes)

    def allow_creation(self, excludes: Callable[[str], bool]) -> None:
        """Nothing for one that is not there."""
        if excludes in self._no_creation:
            self._no_creation.remove(excludes)

    @property
    def wanted_topics(self) -> frozenset[str]:
        """What :meth:`set_topics` and :meth:`add_topic` asked for."""
        return frozenset(self._wanted)

    # -- refreshing ----------------------------------------------------------------------------------------------------

    @property
    def need_update(self) -> bool:
        """Whether a refresh was requested that has not succeeded yet."""
        return self._need_update

    @property
    def is_failing(self) -> bool:
        """Whether the last refresh failed."""
        return self._failures > 0

    @property
    def metadata_refresh_in_progress(self) -> bool:
        """Whether a request is on its way."""
        return self._under_way is not None

    def request_update(self) -> Future[ClusterMetadata]:
        """Let a refresh be due, ``retry_backoff_ms`` after the last attempt at the earliest. One under way is joined,
        unless another is due after it already: that one asks for topics that this one does not.

        The future gets this object, or the error of the attempt (the client goes on trying).
        """
        if self._under_way is not None and self._pending is None:
            return self._under_way
        return self._request_update()

    def _request_update(self) -> Future[ClusterMetadata]:
        self._need_update = True
        if self._attempt_at is None or self._now() - self._attempt_at > 2 * self._retry_backoff_max_s:
            self._unchanged_refreshes = 0  # the last attempt was long ago: no back-off for its outcome
        if self._pending is None:
            self._pending = Future()
        self._on_request()
        return self._pending

    def _update_for_news(self) -> Future[ClusterMetadata]:
        """The request under way does not ask for the new topics, so another one is needed, and without waiting."""
        self._is_urgent = True
        return self._request_update()

    def ttl(self) -> float:
        """Milliseconds until a refresh is due; 0 when it is."""
        now = self._now()
        left_s = 0.0
        if not self._need_update and self._refreshed_at is not None:
            left_s = self._refreshed_at + self._max_age_s - now
        return max(left_s * 1000, self.refresh_backoff(), 0.0)

    def refresh_backoff(self) -> float:
        """Milliseconds that the next refresh has to wait after the last attempt; doubled by each failure in a row, and
        by each response in a row without news (waiting for a deleted topic is no busy loop), +-20 %
        (KIP-580)."""
        if self._attempt_at is None or self._is_urgent:
            return 0.0
        doublings = min(max(self._failures - 1, self._unchanged_refreshes - 1, 0), 30)
        backoff_s: float = min(self._retry_backoff_s * 2.0**doublings, self._retry_backoff_max_s) * self._jitter
        return max((self._attempt_at + backoff_s - self._now()) * 1000, 0.0)

    def metadata_request(self) -> ByVersion[MetadataResponse]:
        """The request for what is wanted now; from here on a refresh counts as under way."""
        self._under_way = self._pending or Future()
        self._pending = None
        self._need_update = self._is_urgent = False
        self._note_attempt()
        wanted = None if self.need_all_topics else sorted(self._wanted)
        self._asked = None if wanted is None else frozenset(wanted)
        return _request(wanted, may_create=self._may_create and not any(map(self._must_not_create, self._wanted)))

    def missing_topics(self) -> list[str]:
        """After a refresh: topics that it would have had the broker make, if it had not been for others, which are not
        to be made (:meth:`exclude_from_creation`). :meth:`creating_request` is for these."""
        if self.need_all_topics or not self._may_create or not self._no_creation:
            return []
        kept = set(filter(self._must_not_create, self._wanted))
        there = self.snapshot.partitions
        missing = (name for name in self._wanted - kept if name not in there and self._is_missing(name))
        return sorted(missing) if kept else []

    def creating_request(self, topics: list[str]) -> ByVersion[MetadataResponse]:
        """A request that lets the broker make these topics. Its answer goes to :meth:`created`."""
        return _request(topics, may_create=True)

    def created(self, metadata: MetadataResponse) -> None:
        """Refresh again when the broker creates one of the topics."""
        if any(topic.error_code in _CREATED_CODES for topic in metadata.topics):
            self.request_update()

    def _is_missing(self, topic: str) -> bool:
        error = self.topic_error(topic)
        return error is None or isinstance(error, UnknownTopicOrPartitionError)

    def _must_not_create(self, topic: str) -> bool:
        return any(excludes(topic) for excludes in self._no_creation)

    def update_metadata(self, metadata: MetadataResponse) -> None:
        """An answer has come. One without any broker counts as a failure. What was known of topics that became wanted
        after the request was sent stays: that the answer has none of them says nothing."""
        if metadata.error_code:
            self.failed_update(for_code(metadata.error_code)("Metadata"))
            return
        if not metadata.brokers:
            # A broker of 0.8 answers with no brokers, not even itself, until a topic exists.
            self.failed_update(MetadataEmptyBrokerList("the response to Metadata has no brokers"))
            return
        not_asked = frozenset() if self._asked is None else self._wanted - self._asked
        former, self.snapshot = self.snapshot, ClusterSnapshot.read(metadata, self.snapshot, not_asked)
        self._note_cluster_id(former.cluster_id)
        self._unchanged_refreshes = self._unchanged_refreshes + 1 if self.snapshot.is_same_as(former) else 0
        self._failures = 0
        self.refusal = None
        self._note_attempt()
        self._refreshed_at = self._attempt_at
        future, self._under_way = self._under_way, None
        self._tell_listeners()
        if future is not None:  # after the listeners, so that they are up to date for the waiters
            future.success(self)

    def _note_cluster_id(self, former: str | None) -> None:
        now = self.snapshot.cluster_id
        if None not in (former, now) and former != now:
            self.former_cluster_id = former
            log.warning(
                "cluster id changed from %s to %s: bootstrap_servers lead to another cluster now, which may lack the "
                "cached topics",
                former,
                now,
            )

    def _tell_listeners(self) -> None:
        for listener in list(self._listeners):
            try:
                listener(self)
            except Exception:
                log.exception("error in the metadata listener %r", listener)

    def seed(self, metadata: MetadataResponse) -> None:
        """The response to Metadata v0 from the first handshake: better than nothing, and no refresh."""
        if metadata.brokers and not self.snapshot.brokers:
            self.snapshot = ClusterSnapshot.read(metadata, self.snapshot)

    def failed_update(self, exception: BaseException) -> None:
        """An attempt failed: its future fails, and another attempt is due after the back-off."""
        self._failures += 1
        self._note_attempt()
        self._need_update = True
        future, self._under_way = self._under_way, None
        if isinstance(exception, AuthenticationError):
            self.refusal = exception
            self._tell_listeners()
        if future is not None:
            future.failure(exception)

    def _note_attempt(self) -> None:
        self._attempt_at = self._now()
        if self._rng is not None:
            self._jitter = 0.8 + 0.4 * self._rng.random()

    def call_on_request(self, callback: Callable[[], object]) -> None:
        """Call this whenever a refresh has become due before its time."""
        self._on_request = callback

    def close(self, error: BaseException) -> None:
        """There will be no refresh: fail the futures."""
        for future in (self._under_way, self._pending):
            if future is not None:
                future.failure(error)
        self._under_way = self._pending = None

    def add_listener(self, listener: Listener) -> None:
        """Call ``listener(cluster)`` after each update, on the loop."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Listener) -> None:
        """No more; KeyError when it is not there."""
        try:
            self._listeners.remove(listener)
        except ValueError:
            raise KeyError(listener) from None

    def __str__(self) -> str:
        snapshot = self.snapshot
        return f"ClusterMetadata(brokers: {len(snapshot.brokers)}, topics: {len(snapshot.partitions)})"


def _request(wanted: list[str] | None, *, may_create: bool) -> ByVersion[MetadataResponse]:
    """None asks for all topics, which creates none; so that is asked where a version cannot say that none is to be
    created. Version 0 says all with an empty list, and cannot ask for none."""

    def build(version: int) -> MetadataRequest:
        names = wanted
        if names and not may_create and version < _AUTO_CREATION_SINCE:
            names = None
        topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names or ()]
        request = MetadataRequest(topics=None if names is None and version >= _ALL_AS_NULL_SINCE else topics)
        if version >= _AUTO_CREATION_SINCE:
            request.allow_auto_topic_creation = may_create
        return request

    return ByVersion(MetadataRequest, build)


class ClusterSnapshot:
    """The cluster as of one response. It does not change: ``ClusterMetadata``, its owner, replaces it.

        ClusterSnapshot.read(response, former, ...)   what Metadata says; a known leader of a newer epoch
                                                      stays, as do topics that the request did not ask for
        snapshot.with_leaders(...)                    leaders and nodes from the hints of another response (KIP-951)
        snapshot.without_brokers()                    before a rebootstrap: topics, without brokers (KIP-1102)

    ``partitions``: topic -> number -> partition. One more fact of Metadata is one more slot, and one more line in
    :meth:`read` and in :meth:`_copy`; a fact of a topic is a line of :meth:`_keep`, too.
    """

    __slots__ = ("brokers", "cluster_id", "controller_id", "ids", "internal", "names", "partitions", "topic_errors")

    def __init__(self) -> None:
        self.brokers: dict[int, BrokerMetadata] = {}
        self.cluster_id: str | None = None
        self.controller_id: int | None = None
        self.partitions: dict[str, dict[int, PartitionMetadata]] = {}
        self.topic_errors: dict[str, KafkaError] = {}
        self.internal: set[str] = set()
        self.ids: dict[str, UUID] = {}
        self.names: dict[UUID, str] = {}

    @classmethod
    def read(
        cls, metadata: MetadataResponse, former: ClusterSnapshot, not_asked: AbstractSet[str] = frozenset()
    ) -> ClusterSnapshot:
        """What the answer says, and of the topics in ``not_asked`` what the former snapshot says. A topic with another
        id than before is another topic: nothing of the former counts. A topic whose partitions cannot be has an
        InvalidTopicMetadataError and no partitions; the answer's other topics count."""
        new = cls()
        new.cluster_id = metadata.cluster_id
        new.controller_id = metadata.controller_id if metadata.controller_id >= 0 else None
        for broker in metadata.brokers:
            new.brokers[broker.node_id] = BrokerMetadata(broker.node_id, broker.host, broker.port, broker.rack)
        for topic in metadata.topics:
            name = topic.name
            if name is None:
                continue
            fault = invalid_partitions_error(topic)
            if fault is not None:
                new.topic_errors[name] = fault
                if former.topic_errors.get(name) != fault:
                    log.warning("%s; ignoring the topic until a response has valid partitions", fault)
                continue
            if topic.error_code:
                new.topic_errors[name] = for_code(topic.error_code)(name)
                log.debug("metadata of topic %s: error %d", name, topic.error_code)
                if not topic.partitions:
                    continue
            if topic.is_internal:
                new.internal.add(name)
            same_topic = True
            if topic.topic_id != ZERO_UUID:
                new.ids[name] = topic.topic_id
                new.names[topic.topic_id] = name
                former_id = former.ids.get(name, topic.topic_id)
                same_topic = former_id == topic.topic_id
                if not same_topic:
                    log.info(
                        "topic %s was deleted and created again: its id changed from %s to %s",
                        name,
                        former_id,
                        topic.topic_id,
                    )
            known = former.partitions.get(name, {}) if same_topic else {}
            new.partitions[name] = {
                entry.partition_index: _with_newer_epoch(known.get(entry.partition_index), _partition(name, entry))
                for entry in topic.partitions
            }
        for name in not_asked & former.partitions.keys() - new.partitions.keys():
            new._keep(name, former)
        return new

    def _keep(self, name: str, former: ClusterSnapshot) -> None:
        """Take over what the former snapshot says of a topic."""
        self.partitions[name] = former.partitions[name]
        if name in former.internal:
            self.internal.add(name)
        if name in former.ids:
            self.ids[name] = former.ids[name]
            self.names[former.ids[name]] = name

    def is_same_as(self, other: ClusterSnapshot) -> bool:
        """Brokers, leaders and errors are those of the other."""
        return (
            self.partitions == other.partitions
            and self.topic_errors == other.topic_errors
            and self.brokers == other.brokers
            and self.controller_id == other.controller_id
        )

    def with_leaders(
        self, leaders: Mapping[TopicPartition, LeaderHint], nodes: Iterable[BrokerMetadata]
    ) -> tuple[ClusterSnapshot, set[TopicPartition]]:
        """The snapshot with what is news in the hints, and the partitions that it is about; itself when nothing is.

        As in Java, a hint counts when it is whole (leader and epoch), the partition is known, the epoch is newer than
        the known one, and the leader's address is in ``nodes`` or known. If none counts, ``nodes`` do not either.
        """
        told = {node.nodeId: node for node in nodes}
        news: dict[TopicPartition, PartitionMetadata] = {}
        for partition, hint in leaders.items():
            known = self.partitions.get(partition.topic, {}).get(partition.partition)
            if known is None or hint.leader < 0 or hint.epoch < 0 or hint.epoch <= known.leader_epoch:
                continue
            if hint.leader not in told and hint.leader not in self.brokers:
                continue
            news[partition] = known._replace(leader=hint.leader, leader_epoch=hint.epoch)
        if not news:
            return self, set()
        new = self._copy()
        for node_id, node in told.items():
            assert isinstance(node_id, int)
            new.brokers[node_id] = node
        for topic in {partition.topic for partition in news}:
            new.partitions[topic] = dict(new.partitions[topic])
        for partition, changed in news.items():
            new.partitions[partition.topic][partition.partition] = changed
        return new, set(news)

    def without_brokers(self) -> ClusterSnapshot:
        """The topics and the numbers of their partitions, without leaders, epochs and ids: the cluster may be
        another one."""
        new = self._copy()
        new.brokers = {}
        new.controller_id = None
        new.ids, new.names = {}, {}
        new.partitions = {
            topic: {number: partition._replace(leader=-1, leader_epoch=-1) for number, partition in partitions.items()}
            for topic, partitions in self.partitions.items()
        }
        return new

    def _copy(self) -> ClusterSnapshot:
        new = ClusterSnapshot()
        new.brokers = dict(self.brokers)
        new.cluster_id = self.cluster_id
        new.controller_id = self.controller_id
        new.partitions = dict(self.partitions)
        new.topic_errors = self.topic_errors
        new.internal = self.internal
        new.ids, new.names = self.ids, self.names
        return new


def invalid_partitions_error(topic: MetadataResponse.MetadataResponseTopic) -> InvalidTopicMetadataError | None:
    """What is wrong with the numbers of a topic's partitions; None when they are 0 to n-1, in any order. What is made
    for each partition is made by these numbers."""
    count = len(topic.partitions)
    numbers = {entry.partition_index for entry in topic.partitions}
    # A broker with ZooKeeper may leave out a partition that never had a leader: the topic is refused until the
    # partition has one.
    if len(numbers) == count and (not count or min(numbers) == 0 and max(numbers) == count - 1):
        return None
    wrong = next((n for n in numbers if not 0 <= n < count), None)
    what = "a partition twice" if wrong is None else f"partition {wrong}"
    return InvalidTopicMetadataError(
        f"the response to Metadata has {count} partitions of topic {topic.name}, among them {what}: they have to be 0 "
        f"to {count - 1}"
    )


def _partition(topic: str, entry: MetadataResponse.MetadataResponsePartition) -> PartitionMetadata:
    return PartitionMetadata(
        topic,
        entry.partition_index,
        entry.leader_id,
        entry.leader_epoch,
        tuple(entry.replica_nodes),
        tuple(entry.isr_nodes),
        tuple(entry.offline_replicas),
        entry.error_code,
    )


def _with_newer_epoch(known: PartitionMetadata | None, told: PartitionMetadata) -> PartitionMetadata:
    """A broker that learns of the election later than the former leader answers with a lower epoch: the known leader
    stays (KIP-320, KIP-951)."""
    if known is not None and 0 <= told.leader_epoch < known.leader_epoch:
        return known
    return told


SendRequest = Callable[[ByVersion[MetadataResponse]], "Future[MetadataResponse]"]
"""Sends the request to the least loaded node."""

REBOOTSTRAP_REQUIRED: Final = RebootstrapRequiredError.errno


ASK_AGAIN_S: Final = 1.0
"""How old the last request for metadata is at least when another one is sent beside it."""


class MetadataRefresher:
    """Keeps the cluster's metadata fresh: one request at a time, whenever ``ClusterMetadata.ttl()`` says so. While
    nodes are silent, one may be sent again (:meth:`ask_again`); the first response counts, or the last failure.

        due --a node is free--> request --response--> update_metadata --ttl passes, or request_update()--> due
                                        --failure---> failed_update   --back-off--> due

    ``rebootstrap(why)`` is called (KIP-1102; None: never) when the metadata could not be read for ``trigger_s``
    (``metadata_recovery_rebootstrap_trigger_ms``), counted from the first attempt after the last success, and when a
    broker answers REBOOTSTRAP_REQUIRED.
    """

    def __init__(
        self,
        loop: Loop,
        cluster: ClusterMetadata,
        send: SendRequest,
        on_updated: Callable[[], object],
        rebootstrap: Callable[[str], object] | None = None,
        trigger_s: float = 300.0,
    ) -> None:
        """``on_updated`` is called after each response."""
        self._loop = loop
        self._cluster = cluster
        self._send = send
        self._on_updated = on_updated
        self._rebootstrap = rebootstrap
        self._trigger_s = trigger_s
        self._timer: LoopTimer | None = None
        self._asked: list[Future[MetadataResponse]] = []
        """The requests of the refresh under way."""
        self._asked_at = 0.0
        self.took_s = 0.0
        """From the last request that was answered to its response."""
        self._request: ByVersion[MetadataResponse] | None = None
        self._rebootstrap_timer: LoopTimer | None = None
        """Runs from the first attempt until one succeeds."""
        self._is_closed = False
        # request_update() may be called at any time, and must not wait for the timer.
        cluster.call_on_request(self.check)

    def check(self) -> None:
        """Set the timer for the next refresh."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_closed or self._cluster.metadata_refresh_in_progress:
            return
        wait_s = self._cluster.ttl() / 1000
        # By a timer even when it is due: request_update() never calls back inside the call.
        self._timer = self._loop.call_later(wait_s, self._begin)

    def close(self) -> None:
        """Stop."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._cancel_rebootstrap()

    def _begin(self) -> None:
        self._timer = None
        if self._cluster.metadata_refresh_in_progress or self._cluster.ttl() > 0:
            self.check()
            return
        if self._rebootstrap_timer is None and self._rebootstrap is not None:
            self._rebootstrap_timer = self._loop.call_later(self._trigger_s, self._on_rebootstrap_timeout)
        self._request = self._cluster.metadata_request()
        self._ask()

    def ask_again(self) -> None:
        """Send the request under way once more, if the last one has had no response for :data:`ASK_AGAIN_S`: it may be
        with a node that does not answer."""
        if self._asked and not self._is_closed and self._loop.time() >= self._asked_at + ASK_AGAIN_S:
            self._ask()

    def _ask(self) -> None:
        assert self._request is not None
        asked_at = self._asked_at = self._loop.time()
        future = self._send(self._request)
        self._asked.append(future)
        future.add_both(lambda outcome: self._on_outcome(future, asked_at, outcome))

    def _on_outcome(
        self, future: Future[MetadataResponse], asked_at: float, outcome: MetadataResponse | BaseException
    ) -> None:
        if future not in self._asked:
            return  # another one was faster
        if not isinstance(outcome, BaseException):
            self._asked = []
            self.took_s = self._loop.time() - asked_at
            self._answered(outcome)
            return
        self._asked.remove(future)
        if not self._asked:
            self._failed(outcome)

    def _answered(self, response: MetadataResponse) -> None:
        self._cluster.update_metadata(response)
        if response.error_code == REBOOTSTRAP_REQUIRED:
            self._recover("a broker answered REBOOTSTRAP_REQUIRED")
        elif not self._cluster.is_failing:
            self._cancel_rebootstrap()
            self._create(self._cluster.missing_topics())
        self._on_updated()
        self.check()

    def _create(self, topics: list[str]) -> None:
        """Create topics by a request of their own, since the common one names topics that must not be created. A
        failure is repeated after the next refresh, which the users of the topics request."""
        if topics and not self._is_closed:
            self._send(self._cluster.creating_request(topics)).add_callback(self._cluster.created)

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, (Cancelled, IllegalStateError)) and self._is_closed:
            return
        self._cluster.failed_update(error)
        self.check()

    def _cancel_rebootstrap(self) -> None:
        if self._rebootstrap_timer is not None:
            self._rebootstrap_timer.cancel()
            self._rebootstrap_timer = None

    def _on_rebootstrap_timeout(self) -> None:
        self._rebootstrap_timer = None
        self._recover(f"no metadata could be read for {self._trigger_s:g} s")

    def _recover(self, why: str) -> None:
        """Rebootstrap; the time counts again from the next attempt, as in Java."""
        self._cancel_rebootstrap()
        if self._rebootstrap is not None and not self._is_closed:
            self._rebootstrap(why)
