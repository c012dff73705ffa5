"""KafkaConsumer: what users call. Arguments, waiting, iteration.

The work is elsewhere: ``core/consume`` decides, ``driver.py`` carries it out on the loop, ``reader.py`` takes records
out of what was fetched, ``delivery.py`` tells whoever waits for them.

Groups (``subscribe`` with a group, commits) are to come as a second owner of the assignment, beside
:meth:`KafkaConsumer.assign`; nothing below the assignment will notice.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from math import inf
from types import TracebackType
from typing import Any, TypeVar

import six

from kafka.client import Host, KafkaClient, make_host
from kafka.config import resolve
from kafka.consumer.delivery import Delivery
from kafka.consumer.driver import ConsumerDriver
from kafka.consumer.reader import Reader, Records
from kafka.core.consume.fetched import ReaderOptions
from kafka.core.consume.fetcher import Fetcher
from kafka.core.consume.offsets import FoundOffset
from kafka.core.consume.positions import EARLIEST, LATEST
from kafka.core.consume.record import ConsumerRecord
from kafka.core.deserialize import deserializer_for
from kafka.core.dialogue import ByVersion
from kafka.core.routing import AnyNode
from kafka.errors import (
    IllegalArgumentError,
    IllegalStateError,
    KafkaConfigurationError,
    KafkaTimeoutError,
)
from kafka.future import Future
from kafka.net.loop import Loop
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.structs import OffsetAndTimestamp, TopicPartition
from kafka.wire.types import ZERO_UUID

T = TypeVar("T")
_consumers: weakref.WeakSet[KafkaConsumer] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for consumer in _consumers:
        consumer._driver.lock = threading.Lock()  # the I/O thread, which is not here, may have held it
        consumer._refusal = "the consumer belongs to the parent process: after a fork, make a new one in the child"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class KafkaConsumer:
    """Reads records of partitions. To be used by one thread at a time; fetching goes on in the I/O thread meanwhile.

    ``topics``: all partitions of these are read, as with :meth:`subscribe`. ``configs``: see the reference of settings.

    With ``loop``, or ``client`` to share a KafkaClient, the consumer lives on that loop, has no thread, and is to be
    used there. ``on_records({partition: [record]})`` is called on the loop with what came, at most
    ``max_poll_records`` at a time; ``on_error(error)`` with what ``poll`` would have raised (default: it is logged).
    Without ``on_records``, ``poll(0)`` takes what is there, and :meth:`when_ready` says when to. Calls that would wait
    are refused with IllegalStateError.

    Errors of construction: KafkaConfigurationError for a setting that is unknown or cannot be.
    """

    def __init__(
        self,
        *topics: str,
        loop: Loop | None = None,
        client: KafkaClient | None = None,
        on_records: Callable[[Records], object] | None = None,
        on_error: Callable[[Exception], object] | None = None,
        **configs: Any,
    ) -> None:
        settings = resolve("consumer", configs)
        if settings["group_id"] is not None:
            raise KafkaConfigurationError(
                "group_id: consumer groups follow in a later version; leave it out, and assign() partitions or "
                "subscribe() to read all of a topic"
            )
        if on_records is not None and loop is None and client is None:
            raise KafkaConfigurationError("on_records needs a loop to be called on: give loop= or client=")
        self._settings = settings
        self._refusal: str | None = None
        self._news = threading.Event()
        self._iterating: Iterator[ConsumerRecord] | None = None
        self._default_timeout_s: float = settings["request_timeout_ms"] / 1000
        self._host: Host = make_host("consumer", settings, loop, client)
        own_client = self._host.client
        cluster = own_client.cluster

        def leader_of(partition: TopicPartition) -> int | None:
            leader = cluster.leader_for_partition(partition)
            return None if leader is None or leader < 0 else leader

        self._fetcher = Fetcher(
            leader_of=leader_of,
            topic_id_of=lambda topic: cluster.topic_id(topic) or ZERO_UUID,
            topic_of_id=cluster.topic_name_for_id,
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
            retry_backoff_s=settings["retry_backoff_ms"] / 1000,
            rack=settings["client_rack"],
            free_at=lambda node: own_client.throttled_until(node, driver.lane),
        )
        # Nothing that the I/O thread holds may hold this object: forgetting it ends the thread.
        own_loop = self._host.loop
        lock = threading.Lock()
        self._reader = Reader(self._fetcher, lock, lambda: own_loop.call_soon_threadsafe(driver.pump))
        self._delivery = Delivery(
            own_loop, self._reader, self._news, settings["max_poll_records"], on_records, on_error
        )
        self._driver = driver = ConsumerDriver(
            self._host.client, self._fetcher, settings, lock, self._delivery.on_news
        )
        _consumers.add(self)
        if topics:
            self.subscribe(topics)

    # -- what is read --------------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions and no others. Ones that stay keep their positions; others begin where
        ``auto_offset_reset`` says, or where :meth:`seek` does."""
        self._check_usable()
        if isinstance(partitions, (six.text_type, six.binary_type)):
            raise TypeError("partitions: a list of TopicPartition is needed, not a text")
        wanted = [TopicPartition(*partition) for partition in partitions]
        self._driver.subscribed = frozenset()
        self._on_loop(self._driver.assign, wanted)

    def subscribe(self, topics: Iterable[str] = (), pattern: str | None = None, listener: Any = None) -> None:
        """Read all partitions of the topics, including ones that are added later, without a group.

        Groups, and with them patterns and listeners, follow: IllegalStateError for those.
        """
        self._check_usable()
        if pattern is not None or listener is not None:
            raise IllegalStateError("patterns and rebalance listeners need consumer groups, which follow: use assign()")
        if isinstance(topics, (six.text_type, six.binary_type)):
            raise TypeError("topics: a list of texts is needed, not one text")
        names = [six.ensure_text(topic) for topic in topics]
        self._on_loop(self._driver.assign, [])
        self._on_loop(self._driver.subscribe, names)

    def unsubscribe(self) -> None:
        """Read nothing."""
        self.assign([])

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read."""
        with self._driver.lock:
            return set(self._fetcher.positions)

    def subscription(self) -> set[str] | None:
        """The topics of :meth:`subscribe`; None without one."""
        return set(self._driver.subscribed) or None

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these for now. What is on its way is kept."""
        self._set_paused(partitions, True)

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with these."""
        self._set_paused(partitions, False)

    def paused(self) -> set[TopicPartition]:
        """What :meth:`pause` named."""
        with self._driver.lock:
            return {partition for partition, position in self._fetcher.positions.items() if position.is_paused}

    def _set_paused(self, partitions: Iterable[TopicPartition], is_paused: bool) -> None:
        self._check_usable()
        with self._driver.lock:
            for position in [self._fetcher.position_of(partition) for partition in partitions]:
                position.is_paused = is_paused
        self._changed()

    # -- positions -----------------------------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read the partition from ``offset`` on. IllegalArgumentError when that is negative or no whole number,
        IllegalStateError when the partition is not assigned."""
        self._check_usable()
        if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
            raise IllegalArgumentError(f"seek: an offset of at least 0 is needed, not {offset!r}")
        with self._driver.lock:
            self._fetcher.position_of(partition).seek(offset)
        self._changed()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Read these, or all assigned ones, from their starts. The look-up runs in the background."""
        self._reset(partitions, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Read these, or all assigned ones, from their ends. The look-up runs in the background: "the end" is that of
        when it runs; :meth:`position` waits for it."""
        self._reset(partitions, LATEST)

    def _reset(self, partitions: tuple[TopicPartition, ...], timestamp: int) -> None:
        self._check_usable()
        with self._driver.lock:
            for partition in partitions or tuple(self._fetcher.positions):
                self._fetcher.position_of(partition).reset(timestamp)
        self._changed()

    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        """The offset of the next record that is handed out. Waits while it is being looked up: KafkaTimeoutError after
        ``timeout_ms`` (default: ``request_timeout_ms``); NoOffsetForPartitionError and the like when there is none."""
        self._check_usable()
        give_up_at = time.monotonic() + (self._default_timeout_s if timeout_ms is None else timeout_ms / 1000)
        while True:
            self._news.clear()
            with self._driver.lock:
                found = self._fetcher.position_of(partition)
                if found.position is not None:
                    return found.position
                if found.error is not None:
                    raise found.error
            self._host.check_may_block()
            left_s = give_up_at - time.monotonic()
            if left_s <= 0:
                name = f"{partition.topic}-{partition.partition}"
                raise KafkaTimeoutError(f"the position of {name} was not found in time")
            self._news.wait(left_s)

    def highwater(self, partition: TopicPartition) -> int | None:
        """Where the partition ended at the last fetch; None before the first."""
        with self._driver.lock:
            return self._fetcher.position_of(partition).highwater

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition. Waits; KafkaTimeoutError after ``timeout_ms``."""
        return {p: found.offset for p, found in self._find(dict.fromkeys(partitions, EARLIEST), timeout_ms).items()}

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition (read_committed: after the last that is decided)."""
        return {p: found.offset for p, found in self._find(dict.fromkeys(partitions, LATEST), timeout_ms).items()}

    def offsets_for_times(
        self, timestamps: dict[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition at or after a time in ms since the epoch; None when there is none."""
        for partition, timestamp in timestamps.items():
            if timestamp < 0:
                raise IllegalArgumentError(f"the timestamp for {partition.topic}-{partition.partition} is negative")
        return {
            partition: OffsetAndTimestamp(*found) if found.offset >= 0 else None
            for partition, found in self._find(dict(timestamps), timeout_ms).items()
        }

    def _find(
        self, timestamps: dict[TopicPartition, int], timeout_ms: float | None
    ) -> dict[TopicPartition, FoundOffset]:
        self._check_usable()
        timeout_s = self._default_timeout_s if timeout_ms is None else timeout_ms / 1000
        if not timestamps:
            return {}
        return self._wait_for(self._driver.find_offsets, timestamps, timeout_s)

    # -- topics --------------------------------------------------------------------------------------------------------

    def topics(self) -> set[str]:
        """The names of all topics that this client may see, internal ones left out. Asks the cluster."""
        self._check_usable()

        answer = self._wait_for(self._ask_for_topics, None)
        return {topic.name for topic in answer.topics if topic.name and not topic.error_code and not topic.is_internal}

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The numbers of the topic's partitions; None when there is no such topic: asking does not create it. Asks the
        cluster if need be."""
        self._check_usable()
        found = self._host.client.cluster.partitions_for_topic(topic)
        if found is not None:
            return found
        answer = self._wait_for(self._ask_for_topics, topic)
        for entry in answer.topics:
            if entry.name == topic and entry.partitions:
                return {partition.partition_index for partition in entry.partitions}
        return None

    def _ask_for_topics(self, name: str | None) -> Future[MetadataResponse]:
        """The metadata of one topic, or of all; creates none: where a version cannot say that, all are asked for."""

        def build(version: int) -> MetadataRequest:
            if version == 0:
                return MetadataRequest(topics=[])
            if version < 4:
                return MetadataRequest(topics=None)
            wanted = None if name is None else [MetadataRequest.MetadataRequestTopic(name=name)]
            return MetadataRequest(topics=wanted, allow_auto_topic_creation=False)

        return self._host.client.request(AnyNode(), ByVersion(MetadataRequest, build))

    def bootstrap_connected(self) -> bool:
        """Whether the cluster's metadata has been read."""
        return bool(self._host.client.cluster.brokers())

    # -- records -------------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> Records:
        """The next records by partition, in order; {} when none came within ``timeout_ms``.

        At most ``max_records`` (default: ``max_poll_records``). Positions move behind what is returned. Raises what
        stands in the way of a partition: OffsetOutOfRangeError and NoOffsetForPartitionError (``auto_offset_reset``
        "none"), CorruptRecordError, what a deserialiser raised, TopicAuthorizationFailedError; the position stays, and
        seek() leads past it.
        """
        self._check_usable()
        limit = self._settings["max_poll_records"] if max_records is None else max_records
        if limit < 1:
            raise IllegalArgumentError(f"max_records: at least 1, not {max_records}")
        give_up_at = time.monotonic() + timeout_ms / 1000
        while True:
            self._news.clear()
            records = self._reader.take(limit)
            if records:
                return records
            left_s = give_up_at - time.monotonic()
            if left_s <= 0:
                return records
            self._host.check_may_block()
            self._news.wait(min(left_s, threading.TIMEOUT_MAX))
            self._check_usable()

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self

    def __next__(self) -> ConsumerRecord:
        """The next record; StopIteration when none came for ``consumer_timeout_ms``. Positions move batch by batch:
        what :meth:`position` says is at most ``max_poll_records`` ahead of it."""
        if self._iterating is None:
            self._iterating = self._iterate()
        try:
            return next(self._iterating)
        except StopIteration:
            self._iterating = None
            raise

    def _iterate(self) -> Iterator[ConsumerRecord]:
        timeout_ms = self._settings["consumer_timeout_ms"]
        while True:
            records = self.poll(timeout_ms if timeout_ms != inf else threading.TIMEOUT_MAX * 1000)
            if not records:
                return
            for batch in records.values():
                yield from batch

    # -- on a loop -----------------------------------------------------------------------------------------------------

    def when_ready(self) -> Future[None]:
        """On the loop: done when ``poll(0)`` has something to return or to raise."""
        self._check_usable()
        return self._delivery.when_ready()

    # -- the end, and inside -------------------------------------------------------------------------------------------

    def metrics(self, raw: bool = False) -> dict[str, dict[str, float]]:
        """How far behind the partitions' ends this consumer is: ``{"consumer-fetch-manager-metrics": {...}}``."""
        with self._driver.lock:
            positions = list(self._fetcher.positions.values())
            lags = [p.highwater - p.position for p in positions if p.highwater is not None and p.position is not None]
            buffered = sum(position.buffered_bytes for position in positions)
        return {
            "consumer-fetch-manager-metrics": {
                "records-lag-max": max(lags, default=0),
                "assigned-partitions": len(positions),
                "buffered-bytes": buffered,
            }
        }

    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        """Stop reading and let go of the connections. Any number of times."""
        if self._refusal is not None:
            return
        self._refusal = "the consumer is closed"
        self._delivery.close()
        self._news.set()
        if self._may_block:
            self._host.call(self._driver.close)
        else:
            self._driver.close()
        self._host.close()

    def __enter__(self) -> KafkaConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _may_block(self) -> bool:
        return not self._host.loop.in_loop_thread()

    def _check_usable(self) -> None:
        if self._refusal is not None:
            raise IllegalStateError(self._refusal)

    def _changed(self) -> None:
        """The fetcher has something to reconsider. Any thread."""
        self._host.loop.call_soon_threadsafe(self._driver.pump)

    def _on_loop(self, action: Callable[..., object], *args: Any) -> None:
        """Run it on the loop's thread, and wait for it unless this is that thread."""
        if self._may_block:
            self._host.call(action, *args)
        else:
            action(*args)

    def _wait_for(self, ask: Callable[..., Future[T]], *args: Any) -> T:
        """Run ``ask`` on the loop's thread and wait for its future. Refused on that thread."""
        self._host.check_may_block()
        run: Callable[..., Any] = ask
        value: T = self._host.call(run, *args)
        return value
