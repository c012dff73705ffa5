"""What the client knows of the cluster: brokers, topics, partitions and their leaders, and how old that knowledge is.

It asks nobody: ``refresh.py`` sends :meth:`ClusterMetadata.metadata_request` when :meth:`ClusterMetadata.ttl` is 0 and
hands the answer to :meth:`ClusterMetadata.update_metadata`.

One thread writes (the loop's), any may read: each answer is put together on the side (``snapshot.py``) and takes its
place in one assignment, so a reader in another thread sees the old or the new cluster, never half of each.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from uuid import UUID

from kafka.client.snapshot import Snapshot
from kafka.config import resolve
from kafka.core.dialogue import ByVersion
from kafka.core.leader_hints import LeaderHint
from kafka.core.retry import Rng
from kafka.errors import (
    AuthenticationError,
    KafkaError,
    LeaderNotAvailableError,
    MetadataEmptyBrokerList,
    NoError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.future import Future
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.structs import BrokerMetadata, PartitionMetadata, TopicPartition

log = logging.getLogger(__name__)

Listener = Callable[["ClusterMetadata"], object]

_AUTO_CREATION_SINCE = 4
_ALL_AS_NULL_SINCE = 1
_MADE = (NoError.errno, LeaderNotAvailableError.errno)


class ClusterMetadata:
    """Brokers, topics and leaders. Settings: ``metadata_max_age_ms``, ``retry_backoff_ms``, ``retry_backoff_max_ms``,
    ``allow_auto_create_topics``; ``now`` gives monotonic seconds, ``rng`` the jitter of back-offs (None: no jitter).
    """

    def __init__(self, *, now: Callable[[], float] = time.monotonic, rng: Rng | None = None, **configs: Any) -> None:
        settings = resolve("client", configs)
        self._now = now
        self._max_age_s = settings["metadata_max_age_ms"] / 1000
        self._retry_backoff_s = settings["retry_backoff_ms"] / 1000
        self._retry_backoff_max_s = max(settings["retry_backoff_max_ms"] / 1000, self._retry_backoff_s)
        self._may_create = settings["allow_auto_create_topics"]
        self._rng = rng
        self._snapshot = Snapshot()
        self._side_notes: dict[int, BrokerMetadata] = {}  # brokers told of by others than Metadata
        self._listeners: list[Listener] = []
        self._wanted: set[str] = set()
        self._keepers: list[Callable[[str], bool]] = []
        self.former_cluster_id: str | None = None
        """The id that the cluster had before its last change of id; None when it never changed."""
        self.need_all_topics = True
        """Whether a refresh asks for every topic; :meth:`set_topics` and :meth:`add_topic` decide it."""
        self._need_update = True
        self._pending: Future[ClusterMetadata] | None = None  # completed by the next refresh to begin
        self._under_way: Future[ClusterMetadata] | None = None
        self._asked: frozenset[str] | None = None  # by the request under way; None: for all topics
        self._refreshed_at: float | None = None
        self._attempt_at: float | None = None
        self._failures = 0
        self.refusal: AuthenticationError | None = None
        """Why the cluster did not let us in when it was last asked. Listeners are called for it, too."""
        self._jitter = 1.0  # of the back-off under way: drawn once for each, or it would never be over
        self._is_urgent = False  # the next attempt waits for no back-off
        self._no_news = 0  # refreshes in a row that told what was known
        self.on_request_update: Callable[[], object] = lambda: None
        """Called when a refresh has become due before its time."""

    # -- brokers -------------------------------------------------------------------------------------------------------

    def brokers(self) -> set[BrokerMetadata]:
        """All known brokers."""
        return set(self._snapshot.brokers.values())

    def broker_metadata(self, broker_id: int | str) -> BrokerMetadata | None:
        """One broker, or None. Also one that is known from FindCoordinator or a leader hint only."""
        if not isinstance(broker_id, int):
            return None
        return self._snapshot.brokers.get(broker_id) or self._side_notes.get(broker_id)

    def note_broker(self, broker_id: int, host: str, port: int, rack: str | None = None) -> None:
        """An answer other than Metadata told where a broker is. Metadata knows better once it has it."""
        self._side_notes[broker_id] = BrokerMetadata(broker_id, host, port, rack)

    @property
    def cluster_id(self) -> str | None:
        """The cluster's id, when the brokers tell it (0.10.1)."""
        return self._snapshot.cluster_id

    @property
    def controller_id(self) -> int | None:
        """The controller's node id; None when there is none or the brokers do not tell it (before 0.10)."""
        return self._snapshot.controller_id

    @property
    def controller(self) -> BrokerMetadata | None:
        """The controller, or None."""
        found = self._snapshot.controller_id
        return None if found is None else self.broker_metadata(found)

    # -- topics and partitions -----------------------------------------------------------------------------------------

    def topics(self, exclude_internal_topics: bool = True) -> set[str]:
        """Names of the known topics."""
        snapshot = self._snapshot
        names = set(snapshot.partitions)
        return names - snapshot.internal if exclude_internal_topics else names

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Numbers of all partitions; None for an unknown topic."""
        found = self._snapshot.partitions.get(topic)
        return None if found is None else set(found)

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """Numbers of the partitions that have a leader; None for an unknown topic."""
        found = self._snapshot.partitions.get(topic)
        return None if found is None else {number for number, partition in found.items() if partition.leader >= 0}

    def partition_metadata(self, partition: TopicPartition) -> PartitionMetadata | None:
        """All that is known of a partition; None when nothing is."""
        return self.find_partition(partition[0], partition[1])

    def find_partition(self, topic: str, number: int) -> PartitionMetadata | None:
        """The same by name and number."""
        found = self._snapshot.partitions.get(topic)
        return None if found is None else found.get(number)

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
            for topic, partitions in self._snapshot.partitions.items()
            for number, partition in partitions.items()
            if partition.leader == broker_id
        }

    def is_replica_node(self, partition: TopicPartition, node_id: int) -> bool:
        """Whether the node has a replica of the partition that is not offline."""
        found = self.partition_metadata(partition)
        return found is not None and node_id in found.replicas and node_id not in found.offline_replicas

    def topic_id(self, topic_name: str) -> UUID | None:
        """The topic's id; None when the topic is unknown or the brokers have no ids (before 2.8)."""
        return self._snapshot.ids.get(topic_name)

    def topic_name_for_id(self, topic_id: UUID) -> str | None:
        """The name of the topic with that id; None when it is unknown."""
        return self._snapshot.names.get(topic_id)

    def topic_error(self, topic: str) -> KafkaError | None:
        """What the last answer had against the topic: an error code's class, or InvalidTopicMetadataError when its
        partitions cannot be. None for nothing."""
        return self._snapshot.topic_errors.get(topic)

    def update_partition_leader(self, partition: TopicPartition, leader_id: int, leader_epoch: int) -> bool:
        """A broker told of another leader in its answer. Whether that was news: an older epoch is not."""
        return bool(self.update_partition_leaders({partition: LeaderHint(leader_id, leader_epoch)}))

    def update_partition_leaders(
        self, leaders: Mapping[TopicPartition, LeaderHint], nodes: Iterable[BrokerMetadata] = ()
    ) -> set[TopicPartition]:
        """Brokers told of other leaders, and where these are, in an answer that refuses a request (KIP-951). The
        partitions that this was news of (:meth:`Snapshot.with_leaders`); listeners are told when there are any."""
        new, news = self._snapshot.with_leaders(leaders, nodes)
        if news:
            self._snapshot = new
            self._tell_listeners()
        return news

    def forget_brokers(self) -> None:
        """Believe nothing of brokers and leaders any more: the bootstrap servers are asked anew (KIP-1102)."""
        self._snapshot = self._snapshot.without_brokers()
        self._side_notes = {}

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

    def keep_from_creating(self, is_kept: Callable[[str], bool]) -> None:
        """Topics of which ``is_kept(name)`` is true are found by other means than their names, by a pattern say: when
        they are gone, asking for them does not make them again. Until :meth:`keep_no_more`."""
        self._keepers.append(is_kept)

    def keep_no_more(self, is_kept: Callable[[str], bool]) -> None:
        """Nothing for one that is not there."""
        if is_kept in self._keepers:
            self._keepers.remove(is_kept)

    @property
    def wanted_topics(self) -> frozenset[str]:
        """What :meth:`set_topics` and :meth:`add_topic` asked for."""
        return frozenset(self._wanted)

    # -- refreshing ----------------------------------------------------------------------------------------------------

    @property
    def need_update(self) -> bool:
        """Whether somebody asked for a refresh that has not succeeded yet."""
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
            self._no_news = 0  # nobody has asked for a while: this is about something new
        if self._pending is None:
            self._pending = Future()
        self.on_request_update()
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
        by each answer in a row that told nothing new (whoever waits for a topic that is gone is no busy loop), +-20 %
        (KIP-580)."""
        if self._attempt_at is None or self._is_urgent:
            return 0.0
        doublings = min(max(self._failures - 1, self._no_news - 1, 0), 30)
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
        return _request(wanted, may_create=self._may_create and not any(map(self._is_kept, self._wanted)))

    def missing_topics(self) -> list[str]:
        """After a refresh: topics that it would have had the broker make, if it had not been for others, which are not
        to be made (:meth:`keep_from_creating`). :meth:`creating_request` is for these."""
        if self.need_all_topics or not self._may_create or not self._keepers:
            return []
        kept = set(filter(self._is_kept, self._wanted))
        there = self._snapshot.partitions
        missing = (name for name in self._wanted - kept if name not in there and self._is_missing(name))
        return sorted(missing) if kept else []

    def creating_request(self, topics: list[str]) -> ByVersion[MetadataResponse]:
        """A request that lets the broker make these topics. Its answer goes to :meth:`created`."""
        return _request(topics, may_create=True)

    def created(self, metadata: MetadataResponse) -> None:
        """Another refresh is due when the broker makes one of the topics."""
        if any(topic.error_code in _MADE for topic in metadata.topics):
            self.request_update()

    def _is_missing(self, topic: str) -> bool:
        error = self.topic_error(topic)
        return error is None or isinstance(error, UnknownTopicOrPartitionError)

    def _is_kept(self, topic: str) -> bool:
        return any(is_kept(topic) for is_kept in self._keepers)

    def update_metadata(self, metadata: MetadataResponse) -> None:
        """An answer has come. One without any broker counts as a failure. What was known of topics that became wanted
        after the request was sent stays: that the answer has none of them says nothing."""
        if metadata.error_code:
            self.failed_update(for_code(metadata.error_code)("Metadata"))
            return
        if not metadata.brokers:
            self.failed_update(MetadataEmptyBrokerList("the broker knows of no brokers, not even itself"))
            return
        not_asked = frozenset() if self._asked is None else self._wanted - self._asked
        former, self._snapshot = self._snapshot, Snapshot.read(metadata, self._snapshot, not_asked)
        self._note_cluster_id(former.cluster_id)
        self._no_news = self._no_news + 1 if self._snapshot.says_the_same_as(former) else 0
        self._failures = 0
        self.refusal = None
        self._note_attempt()
        self._refreshed_at = self._attempt_at
        future, self._under_way = self._under_way, None
        self._tell_listeners()
        if future is not None:  # behind the listeners: whoever waited finds them up to date
            future.success(self)

    def _note_cluster_id(self, former: str | None) -> None:
        now = self._snapshot.cluster_id
        if None not in (former, now) and former != now:
            self.former_cluster_id = former
            log.warning(
                "the cluster's id was %s and is %s: the servers are those of another cluster now, whose topics "
                "need not be those that were known",
                former,
                now,
            )

    def _tell_listeners(self) -> None:
        for listener in list(self._listeners):
            try:
                listener(self)
            except Exception:
                log.exception("an error in %r, called for new metadata", listener)

    def seed(self, metadata: MetadataResponse) -> None:
        """What came along with the first greeting (version 0): better than nothing, and no refresh."""
        if metadata.brokers and not self._snapshot.brokers:
            self._snapshot = Snapshot.read(metadata, self._snapshot)

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

    def close(self, error: BaseException) -> None:
        """Nobody will refresh any more: fail whoever waits."""
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
        snapshot = self._snapshot
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
