"""Carries out what the fetcher decides: requests, timers, metadata, offset look-ups. All of it on the loop's thread.

The machine is ``kafka.core.consume.fetcher``; it is shared with the reader's thread, so every touch is under ``lock``,
which is never held while something is sent, decoded or called back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from itertools import count
from math import inf
from typing import Any

from kafka.client import KafkaClient
from kafka.core.consume.fetched import ReaderOptions
from kafka.core.consume.fetcher import Fetcher, RequestEpochEnds, RequestOffsets
from kafka.core.consume.offsets import EpochEnd, ResolvedOffset, epoch_ends, list_offsets, offsets_at
from kafka.core.consume.session import SendFetch
from kafka.future import Future
from kafka.net.loop import DeadlineTimer
from kafka.protocol.fetch import FetchResponse
from kafka.structs import TopicPartition
from kafka.validation import deserializer_for
from kafka.wire.types import ZERO_UUID

# The machine of a consumer's fetches, made of its settings and what its client knows of the cluster.


def make_fetcher(client: KafkaClient, settings: Mapping[str, Any], free_at: Callable[[int], float]) -> Fetcher:
    """``free_at``: until when a node wants no fetches (KIP-219)."""
    cluster = client.cluster

    def leader_of(partition: TopicPartition) -> int | None:
        leader = cluster.leader_for_partition(partition)
        return None if leader is None or leader < 0 else leader

    return Fetcher(
        leader_of=leader_of,
        topic_id_of=lambda topic: cluster.topic_id(topic) or ZERO_UUID,
        topic_of_id=cluster.topic_name_for_id,
        epoch_of=lambda partition: -1 if (epoch := cluster.leader_epoch_for_partition(partition)) is None else epoch,
        is_replica=lambda partition, node: (
            cluster.is_replica_node(partition, node) and cluster.broker_metadata(node) is not None
        ),
        reset_policy=settings["auto_offset_reset"],
        options=ReaderOptions(
            check_crcs=settings["check_crcs"],
            read_committed=settings["isolation_level"] == "read_committed",
            key=deserializer_for(settings["key_deserializer"]),
            value=deserializer_for(settings["value_deserializer"]),
            max_batch_bytes=settings["receive_message_max_bytes"],
        ),
        max_wait_ms=settings["fetch_max_wait_ms"],
        min_bytes=settings["fetch_min_bytes"],
        max_bytes=settings["fetch_max_bytes"],
        max_partition_bytes=settings["max_partition_fetch_bytes"],
        buffer_bytes=settings["fetch_buffer_bytes"],
        backoff=client.retry_backoff.delay_s,
        rack=settings["client_rack"],
        read_replica_age_s=settings["metadata_max_age_ms"] / 1000,
        has_sessions=settings["enable_incremental_fetch_sessions"],
        wall_ms=lambda: int(time.time() * 1000),
        free_at=free_at,
    )


_numbers = count(1)


class ConsumerDriver:
    """One consumer's work on its loop. ``on_news``: something new is there for the reader; called on the loop."""

    def __init__(
        self,
        client: KafkaClient,
        fetcher: Fetcher,
        settings: dict[str, Any],
        lock: AbstractContextManager[Any],
        on_news: Callable[[], object],
    ) -> None:
        self.client = client
        self.fetcher = fetcher
        self.lock = lock
        self.is_closed = False
        self.lane = f"fetch-{next(_numbers)}"
        """Fetches have a connection of their own: a broker answers in turn, and may hold a fetch."""
        self.lane_beside = f"{self.lane}-beside"
        """And fetches that are not to wait for those have another."""
        self.subscribed: frozenset[str] = frozenset()
        """Topics whose partitions are all read, also ones that are added later."""
        self._loop = client.loop
        self._timeout_s: float = settings["request_timeout_ms"] / 1000
        self._on_news = on_news
        self._alarm = DeadlineTimer(self._loop, self.pump)
        self._is_pump_due = False
        self._is_refreshing = False
        # Leaders and partitions may have changed.
        client.cluster.add_listener(self._metadata_changed)

    # -- the fetcher ---------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Ask the fetcher what there is to do, and do it."""
        self._is_pump_due = False
        if self.is_closed:
            return
        with self.lock:
            effects = self.fetcher.poll(self._loop.time())
            deadline = self.fetcher.next_deadline
        self._alarm.set(deadline)
        for effect in effects:
            if isinstance(effect, SendFetch):
                lane = self.lane_beside if effect.is_sessionless else self.lane
                future = self.client.request(effect.node, effect.request, lane=lane, max_version=effect.max_version)
                future.add_callback(self._fetched, effect)
                future.add_errback(self._fetch_failed, effect)
            elif isinstance(effect, RequestOffsets):
                looked_up = self.client.run(
                    offsets_at(
                        effect.leader,
                        effect.timestamps,
                        timeout_s=self._timeout_s,
                        read_committed=self.fetcher.options.read_committed,
                    )
                )
                looked_up.add_callback(self._offsets_told, effect)
                looked_up.add_errback(self._offsets_failed, effect)
            elif isinstance(effect, RequestEpochEnds):
                asked = self.client.run(epoch_ends(effect.questions, timeout_s=self._timeout_s))
                asked.add_callback(self._epochs_told, effect)
                asked.add_errback(self._epochs_failed, effect)
            elif not self._is_refreshing:
                self._is_refreshing = True
                self.client.refresh_metadata(sorted(effect.topics)).add_both(self._refreshed)

    def pump_soon(self) -> None:
        """Pump in this turn of the loop or the next."""
        if not self._is_pump_due:
            self._is_pump_due = True
            self._loop.call_soon(self.pump)

    def find_offsets(
        self, timestamps: dict[TopicPartition, int], timeout_s: float
    ) -> Future[dict[TopicPartition, ResolvedOffset]]:
        """See :func:`kafka.core.consume.offsets.list_offsets`."""
        self.client.cluster.add_topics({partition.topic for partition in timestamps})
        return self.client.run(
            list_offsets(
                timestamps,
                self.client.cluster.leader_for_partition,
                timeout_s=timeout_s,
                backoff=self.client.retry_backoff,
                read_committed=self.fetcher.options.read_committed,
            )
        )

    def _fetched(self, effect: SendFetch, response: FetchResponse) -> None:
        with self.lock:
            news = self.fetcher.fetched(effect, response, self._loop.time())
        self._after(news)

    def _fetch_failed(self, effect: SendFetch, error: BaseException) -> None:
        with self.lock:
            news = self.fetcher.failed(effect, error, self._loop.time())
        self._after(news)

    def _offsets_told(self, effect: RequestOffsets, told: dict[TopicPartition, ResolvedOffset | BaseException]) -> None:
        with self.lock:
            news = self.fetcher.offsets_received(effect, told, self._loop.time())
        self._after(news)

    def _offsets_failed(self, effect: RequestOffsets, error: BaseException) -> None:
        self._offsets_told(effect, dict.fromkeys(effect.timestamps, error))

    def _epochs_told(self, effect: RequestEpochEnds, told: dict[TopicPartition, EpochEnd | BaseException]) -> None:
        with self.lock:
            news = self.fetcher.epoch_ends_received(effect, told, self._loop.time())
        self._after(news)

    def _epochs_failed(self, effect: RequestEpochEnds, error: BaseException) -> None:
        self._epochs_told(effect, dict.fromkeys(effect.questions, error))

    def _after(self, news: bool) -> None:
        if self.is_closed:
            return
        # The reader is notified when the next fetch is made, and before it is sent (a connection sends behind the
        # callbacks of its answers): the thread that is woken needs the interpreter, which is free while this thread
        # sends, and that takes longest (0.05 to 0.4 ms for 100 bytes, where it wakes a broker on the same machine).
        # Notified before all of that, readers would come too early and wait for it (end to end 2.4 ms instead of 2.1,
        # in plain Python); notified afterwards, too late.
        self.pump()
        if news:
            self._on_news()

    def _refreshed(self, _: object) -> None:
        self._is_refreshing = False
        self.pump_soon()

    def free_at(self, node: int) -> float:
        """Until when the node wants no fetches (KIP-219), on either connection; 0: now is fine."""
        client = self.client
        return max(client.throttled_until(node, self.lane), client.throttled_until(node, self.lane_beside))

    # -- what is read --------------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition], awaiting: frozenset[TopicPartition] = frozenset()) -> None:
        """Read these partitions and no others; see :meth:`Fetcher.assign` for ``awaiting``."""
        wanted = list(partitions)
        with self.lock:
            self.fetcher.assign(wanted, awaiting=awaiting)
        topics = {partition.topic for partition in wanted}
        if topics:
            self.client.cluster.add_topics(topics)
        self.pump_soon()
        self._on_news()  # a partition without a position, and auto_offset_reset "none": that is an error to read

    def started(self) -> None:
        """The fetcher knows new positions, or partitions were resumed."""
        self.pump_soon()
        self._on_news()

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read all partitions of these topics, now and when there are more."""
        self.subscribed = frozenset(topics)
        if self.subscribed:
            self.client.cluster.add_topics(self.subscribed)
            self._metadata_changed()

    def unsubscribe(self) -> None:
        """Read no topics as such any more; what is assigned stays until :meth:`assign`."""
        self.subscribed = frozenset()

    def renew_lock(self) -> None:
        """In the child of a fork: the thread that held the lock, if one did, is not there to release it."""
        self.lock = threading.RLock()

    def _metadata_changed(self, *_: object) -> None:
        if self.client.cluster.refusal is not None:
            with self.lock:
                self.fetcher.refuse(self.client.cluster.refusal)
            self._on_news()
            return
        with self.lock:
            self.fetcher.metadata_changed()
        if self.subscribed:
            cluster = self.client.cluster
            found = {
                TopicPartition(topic, number)
                for topic in self.subscribed
                for number in cluster.partitions_for_topic(topic) or ()
            }
            with self.lock:
                known = set(self.fetcher.positions)
                news = found - known
                if news:
                    self.fetcher.assign([*self.fetcher.positions, *sorted(news)])
            if any(self._is_awaited(topic) for topic in self.subscribed):
                cluster.request_update()  # after the back-off, which grows while nothing changes
        self.pump_soon()

    def _is_awaited(self, topic: str) -> bool:
        """Whether the topic does not exist yet: not created, being created, or with malformed metadata."""
        error = self.client.cluster.topic_error(topic)
        return error is not None and error.retriable

    def close(self) -> None:
        """Do nothing from now on."""
        if not self.is_closed:
            self.is_closed = True
            self._alarm.set(inf)
            self.client.cluster.remove_listener(self._metadata_changed)
            with self.lock:
                farewells = self.fetcher.close()
            for effect in farewells:
                self.client.request(effect.node, effect.request, max_version=effect.max_version)
            self.client.close_lane(self.lane)
            self.client.close_lane(self.lane_beside)
