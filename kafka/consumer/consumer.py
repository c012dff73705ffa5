"""KafkaConsumer: what users call. Construction, records, and the end.

The other parts of the class stand beside this file (``base.py`` lists them). The work is elsewhere: ``core/consume``
and ``core/group`` decide, ``driver.py`` and ``group.py`` carry it out on the loop, ``membership.py`` does what belongs
between two polls, ``reader.py`` takes records out of what was fetched, ``delivery.py`` tells whoever waits for them.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from math import inf
from types import TracebackType
from typing import Any, Final

from kafka.client import Host, KafkaClient, make_host
from kafka.config import as_given, defaults, resolve
from kafka.consumer import checks
from kafka.consumer.assembly import make_fetcher
from kafka.consumer.base import Reads, Turn
from kafka.consumer.bell import Bell
from kafka.consumer.closing import Closing
from kafka.consumer.commits import Commits
from kafka.consumer.committing import Committing
from kafka.consumer.delivery import Delivery
from kafka.consumer.driver import ConsumerDriver
from kafka.consumer.group import GroupDriver
from kafka.consumer.group_settings import check_group_settings, make_member
from kafka.consumer.inquiries import Inquiries
from kafka.consumer.intake import Intake
from kafka.consumer.interceptors import ConsumerInterceptors
from kafka.consumer.iterating import Iterating
from kafka.consumer.iteration import Iteration
from kafka.consumer.membership import Membership
from kafka.consumer.metrics import ConsumerMetrics
from kafka.consumer.positions import Positions
from kafka.consumer.reader import Reader, Records
from kafka.consumer.reports import Reports
from kafka.consumer.starts import Starts
from kafka.consumer.subscribing import Subscribing
from kafka.consumer.topics import TopicWatch
from kafka.consumer.watching import resource_of, watcher
from kafka.core import arguments
from kafka.core.group.machine import NO_GENERATION
from kafka.errors import (
    KafkaConfigurationError,
)
from kafka.future import Future
from kafka.net.loop import Loop
from kafka.structs import ConsumerGroupMetadata, TopicPartition

LEAST_WAIT_S: Final = 0.01
"""For auto_commit_interval_ms=0."""

_consumers: weakref.WeakSet[KafkaConsumer] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for consumer in _consumers:
        consumer._driver.lock = threading.RLock()  # the I/O thread, which is not here, may have held it
        consumer._turn = Turn()
        consumer._refusal = "the consumer belongs to the parent process: after a fork, make a new one in the child"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class KafkaConsumer(Iterating, Committing, Subscribing, Positions, Inquiries, Closing):
    """Reads records of partitions, alone or as a member of a group (``group_id``). To be used by one thread at a time;
    fetches, heartbeats and rebalances go on in the I/O thread meanwhile.

    ``topics``: what :meth:`subscribe` is called with. ``configs``: see the reference of settings.

    With ``loop``, or ``client`` to share a KafkaClient, the consumer lives on that loop, has no thread, and is to be
    used there. ``on_records({partition: [record]})`` is called on the loop with what came, at most
    ``max_poll_records`` at a time; ``on_error(error)`` with what ``poll`` would have raised (default: it is logged).
    Without ``on_records``, ``poll(0)`` takes what is there, and :meth:`when_ready` says when to. Listeners and
    callbacks are called on the loop. Calls that would wait are refused with IllegalStateError: use :meth:`commit_async`
    and :meth:`close_async`.

    Errors of construction: KafkaConfigurationError for a setting that is unknown or cannot be.
    """

    DEFAULT_CONFIG: Final = defaults("consumer")
    """All settings with their defaults."""

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
        check_group_settings(settings, configs)
        if on_records is not None and loop is None and client is None:
            raise KafkaConfigurationError("on_records needs a loop to be called on: give loop= or client=")
        checks.topic_names(topics)
        self._settings = settings
        self._config = as_given(settings, configs)
        self._refusal = None
        self._closer = None
        self._is_woken = False
        self._reads = Reads.NOTHING
        self._subscribed = frozenset()
        self._turn = Turn()
        self._news = Bell()
        self._iteration = Iteration()
        self._iterating = None
        self._has_thread = loop is None and client is None
        self._closing = None
        self._default_timeout_s = settings["default_api_timeout_ms"] / 1000
        self._host: Host = make_host("consumer", settings, loop, client)
        try:
            self._assemble(on_records, on_error)
        except BaseException:
            self._host.close()
            raise
        _consumers.add(self)
        if topics:
            self.subscribe(topics)

    def _assemble(
        self, on_records: Callable[[Records], object] | None, on_error: Callable[[Exception], object] | None
    ) -> None:
        """Nothing that the I/O thread holds may hold this object or the host: forgetting them ends the thread."""
        settings = self._settings
        own_client = self._host.client
        own_loop = self._host.loop
        if self._has_thread:
            own_client.tell_when_unreached()
        self._fetcher = make_fetcher(own_client, settings, lambda node: driver.free_at(node))
        lock = threading.RLock()  # a signal handler may break into what holds it, and seek
        self._reader = Reader(self._fetcher, lock, lambda: own_loop.call_soon_threadsafe(driver.pump))
        source = self._reader if self._has_thread else Intake(self._reader)
        self._delivery = delivery = Delivery(
            own_loop, source, self._news, settings["max_poll_records"], on_records, on_error
        )
        self._driver = driver = ConsumerDriver(own_client, self._fetcher, settings, lock, delivery.on_news)
        self._reports = reports = Reports(delivery.on_news)
        self._topics = TopicWatch(
            own_client, settings["metadata_max_age_ms"] / 1000, not settings["exclude_internal_topics"], reports.put
        )
        self._group = self._commits = self._starts = None
        known: dict[TopicPartition, int] = {}
        if settings["group_id"] is not None:
            self._assemble_group(known)
        self._membership = Membership(
            self._host,
            driver,
            self._commits,
            self._starts,
            self._group,
            self._iteration,
            known,
            reports,
            auto_commit_s=settings["auto_commit_interval_ms"] / 1000 if settings["enable_auto_commit"] else None,
            timeout_s=self._default_timeout_s,
            default_callback=settings["default_offset_commit_callback"],
            wake=self._news.ring,
        )
        self._watch()
        if isinstance(source, Intake):
            source.attach(self._membership, reports, delivery.on_news)
            if self._group is not None:
                self._group.on_pending = source.attend
                if on_records is not None:
                    source.commit_by_time(own_loop)

    def _watch(self) -> None:
        """Have it measured, and its interceptors called."""
        settings, client = self._settings, self._host.client
        given = settings["interceptors"]
        self._metrics = metrics = (
            ConsumerMetrics(client, settings, self._driver) if settings["metrics_enabled"] else None
        )
        self._interceptors = interceptors = ConsumerInterceptors(given) if given else None
        self._reader.on_taken = watcher(metrics, interceptors)
        membership, group, commits = self._membership, self._group, self._commits
        membership.metrics = metrics
        if group is not None:
            group.metrics = metrics
        if interceptors is not None and commits is not None:
            if self._has_thread:
                callbacks = membership.callbacks
                commits.also_tell(lambda offsets: callbacks.put(lambda done, _: interceptors.on_commit(done), offsets))
            else:
                commits.also_tell(interceptors.on_commit)
        resource = resource_of(settings, group)
        self._begin_telemetry(self._host, settings, metrics.raw if metrics is not None else dict, resource)

    def _assemble_group(self, known: dict[TopicPartition, int]) -> None:
        client, settings, driver, reports = self._host.client, self._settings, self._driver, self._reports
        group_id = settings["group_id"]
        machine = make_member(settings, client.retry_backoff, self._topics.topic_of_id)
        group = GroupDriver(client, machine, self._topics, self._delivery.on_news, reports.put)
        by_hand = ConsumerGroupMetadata(group_id)

        def speaker() -> ConsumerGroupMetadata:
            return group.speaker() if group.is_member else by_hand

        def reader() -> ConsumerGroupMetadata:
            return group.reader() if group.is_member else by_hand

        def note(offsets: Any) -> None:
            known.update((partition, what.offset) for partition, what in offsets.items())

        commits = Commits(client, speaker, group.fenced, note)
        group.on_lost = commits.withdraw
        self._group = group
        self._commits = commits
        self._starts = Starts(
            driver,
            reader,
            is_member=lambda: group.is_member and settings["group_protocol"] == "consumer",
            timeout_s=self._default_timeout_s,
            known=known,
            on_fenced=group.fenced,
            on_trouble=reports.put,
        )
        if self._has_thread:
            client.dependants.append(group)
        else:
            group.has_begun = True  # there may be no poll, and what comes is taken at once

    # -- records -------------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: float = 0, max_records: int | None = None, update_offsets: bool = True) -> Records:
        """The next records by partition, in order; {} when none came within ``timeout_ms``.

        At most ``max_records`` (default: ``max_poll_records``). Positions move behind what is returned, unless
        ``update_offsets`` is False: then the next poll returns it again.

        A member of a group joins it, is told of rebalances (its listener is called here), and commits by itself here,
        what *earlier* polls returned. To be called at least every ``max_poll_interval_ms``, or other members take over.

        Raises what stands in the way of a partition: OffsetOutOfRangeError and NoOffsetForPartitionError
        (``auto_offset_reset`` "none"), CorruptRecordError, what a deserialiser raised; each says where in
        ``topic_partition`` and ``offset``; the position stays, and seek() leads past it. Further
        TopicAuthorizationFailedError, GroupAuthorizationFailedError, what ends a membership (FencedInstanceIdError and
        the like), KafkaError from a listener, WakeupError after :meth:`wakeup`.
        """
        self._check_usable()
        limit = arguments.max_records(max_records, self._settings["max_poll_records"])
        timeout_s = checks.timeout_s(timeout_ms, 0.0)
        self._reader.begin()
        try:
            with self._turn:
                self._check_usable()  # again: from here on, whoever closes waits for this call to end
                if self._iterating is not None:
                    self._give_back_iterated(self._iteration.consumed())
                records = self._poll(timeout_s, limit)
                if self._refusal is not None:  # close() came meanwhile: it is not to commit what nobody gets
                    self._reader.give_back()
                    self._check_usable()
                if records and not update_offsets:
                    with self._driver.lock:
                        for partition, batch in records.items():
                            self._fetcher.position_of(partition).seek(batch[0].offset)
                    self._changed()
            return records  # where no interrupt comes: behind it, who reads is the user
        except BaseException as error:
            self._reader.interrupted(error)
            raise

    def _poll(self, timeout_s: float, limit: int) -> Records:
        clock = self._host.loop.time
        membership = self._membership
        group = self._group if self._reads in (Reads.TOPICS, Reads.PATTERN) else None
        may_block = self._may_block
        give_up_at = clock() + timeout_s
        metrics = self._metrics
        began = 0.0 if metrics is None else metrics.poll_began()
        try:
            if group is not None:
                self._wake_member(group, may_block)
            while True:
                self._news.silence()
                if self._is_woken:
                    self._raise_if_woken()
                # What a step waits for is waited for below, where wakeup() and close() end that.
                is_done = membership.is_idle or (membership.attend(clock()) if may_block else not membership.is_busy)
                if not self._reports.is_empty:
                    self._reports.raise_one()
                commit_at = membership.auto_commit(clock())
                if is_done:
                    records = self._reader.take(limit)
                    if records:
                        return records
                now = clock()
                if now >= give_up_at:
                    return {}
                self._host.check_may_block()
                self._news.wait(min(give_up_at - now, max(commit_at - now, LEAST_WAIT_S)))
                self._check_usable()
        finally:
            if group is not None:
                group.machine.polled_at = clock()
            if metrics is not None:
                metrics.poll_ended(began)

    def _wake_member(self, group: GroupDriver, may_block: bool) -> None:
        """The user polls: the member has to know, and is only woken when it is none."""
        group.machine.polled_at = inf
        if not group.has_begun:
            self._on_loop(group.begin)
        elif group.machine.generation == NO_GENERATION:
            if may_block:
                self._host.loop.call_soon_threadsafe(group.pump)
            else:
                group.pump()

    def wakeup(self) -> None:
        """Let the call that waits for records or a position (``poll``, iteration, ``position``), or else the next one
        that would, raise WakeupError. From any thread, and from a signal handler."""
        self._is_woken = True
        self._news.ring()

    # -- on a loop -----------------------------------------------------------------------------------------------------

    def when_ready(self) -> Future[None]:
        """On the loop: done when ``poll(0)`` has something to return or to raise. Who waits for it counts as polling
        (``max_poll_interval_ms``)."""
        self._check_usable()
        ready = self._delivery.when_ready()
        group = self._group
        if group is not None and not ready.is_done:
            group.machine.polled_at = inf
            ready.add_callback(group.has_been_polled)
        return ready

    # -- the end -------------------------------------------------------------------------------------------------------

    @property
    def config(self) -> dict[str, Any]:
        """All settings as they are in force, by name: a copy. ``bootstrap_servers`` as they were given."""
        return dict(self._config)

    def metrics(self, raw: bool = False) -> dict[Any, Any]:
        """What was measured, as ``{group: {name: number}}`` with kafka-python's names; ``raw``: the metrics themselves,
        as ``{MetricName: KafkaMetric}``. Empty with ``metrics_enabled=False``. See ``kafka/consumer/metrics.py``."""
        if self._metrics is None:
            return {}
        return self._metrics.raw() if raw else self._metrics.by_group()

    def __enter__(self) -> KafkaConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(autocommit=kind is None)  # what an error has left undone is not to count as done
