"""KafkaConsumer: what users call. What it does is decided in ``core/consume`` and ``core/group``.

    driver.py        carries out the fetcher's effects on the loop;    group_driver.py  drives the member of a group
                     takes records out of what was fetched, and        membership.py    rebalances, auto-commit and
                     notifies the waiting reader                                        listeners: between two polls
    topics.py        topics of patterns, ids, and missing ones         commits.py       commits in order, and callbacks
    iteration.py     records that iteration holds
    metrics.py  interceptors.py  listener.py  arguments.py
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
import re
import sys
import threading
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from math import inf
from types import FrameType, TracebackType
from typing import Any, Final, TypeVar, overload

import six

from kafka import validation
from kafka.client import ClientHost, KafkaClient, make_host
from kafka.client.cluster import invalid_partitions_error
from kafka.client.telemetry import HasTelemetry
from kafka.config import as_given, defaults, resolve
from kafka.consumer import arguments
from kafka.consumer.commits import CommitCallback, CommitQueue
from kafka.consumer.driver import (
    ConsumerDriver,
    FetchBufferReader,
    LoopRecordSource,
    RecordNotifier,
    SingleThreadGuard,
    WakeupEvent,
    make_fetcher,
)
from kafka.consumer.group_driver import GroupDriver, check_group_settings, make_member
from kafka.consumer.interceptors import ConsumerInterceptors
from kafka.consumer.iteration import YieldedRecords
from kafka.consumer.listener import SubscriptionPattern, check_listener
from kafka.consumer.membership import GroupMembership, InitialOffsets, PendingErrors
from kafka.consumer.metrics import ConsumerMetrics
from kafka.consumer.topics import SubscribedTopics, metadata_of
from kafka.core.consume.offsets import ResolvedOffset
from kafka.core.consume.partition import EARLIEST, LATEST, ConsumerRecord, RecordsByPartition
from kafka.core.group.machine import NO_GENERATION, GroupSubscription
from kafka.core.group.offsets import CommittedOffsets, OffsetDialogues
from kafka.core.routing import AnyNode
from kafka.errors import (
    Cancelled,
    IllegalArgumentError,
    IllegalStateError,
    KafkaConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    UnassignedPartitionError,
    WakeupError,
)
from kafka.future import Future
from kafka.net.loop import Loop
from kafka.protocol.metadata import MetadataResponse
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition


def record_filter(
    metrics: ConsumerMetrics | None, interceptors: ConsumerInterceptors | None
) -> Callable[[RecordsByPartition], RecordsByPartition] | None:
    """What records go through on their way out; None for nothing. Counted is what was read, whatever interceptors make
    of it."""
    if interceptors is None:
        return None if metrics is None else metrics.taken
    if metrics is None:
        return interceptors.on_consume

    def both(records: RecordsByPartition) -> RecordsByPartition:
        metrics.taken(records)
        return interceptors.on_consume(records)

    return both


def telemetry_resource(settings: Mapping[str, Any], group: GroupDriver | None) -> Callable[[], dict[str, str]]:
    """The attributes that telemetry sends for this consumer, as Java's does; empty ones are left out. A consumer
    that has left the group keeps its last member id."""

    def resource() -> dict[str, str]:
        return {
            "group_id": settings["group_id"] or "",
            "group_instance_id": settings["group_instance_id"] or "",
            "group_member_id": "" if group is None else group.last_member_id,
            "client_rack": settings["client_rack"] or "",
        }

    return resource


T = TypeVar("T")

CONSUMER_CLOSED: Final = "the consumer is closed"

TIMEOUT_GRACE_S: Final = 0.05
"""How much longer to wait than the dialogue's own time limit, whose error says better what was in the way."""


_CLOSING_METHODS: Final = frozenset({"__exit__", "close"})
"""Methods that close the consumer themselves."""


class SubscriptionType(Enum):
    """How it was said what is read: one way until ``unsubscribe``."""

    NOTHING = "nothing"
    PARTITIONS = "partitions, by assign()"
    TOPICS = "topics, by subscribe()"
    PATTERN = "a pattern, by subscribe()"


log = logging.getLogger(__name__)

LEAVE_REASON: Final = "the consumer was closed"
LOOP_GRACE_S: Final = 1.0
"""What the loop has for ending its part when no time is left: it needs a turn, and may be in the midst of one."""


OffsetsToCommit = Mapping[TopicPartition, "OffsetAndMetadata | int"]


def _log_failed_commit(error: BaseException) -> None:
    log.warning("auto-commit on close failed, other members will read again what is not committed: %s", error)


def _read_all(driver: ConsumerDriver, names: frozenset[str]) -> None:
    """On the loop: without a group, read all partitions of these topics."""
    with driver.lock:
        kept = [partition for partition in driver.fetcher.positions if partition.topic in names]
    driver.assign(kept)
    driver.subscribe(names)


def _be_member(group: GroupDriver, names: frozenset[str]) -> None:
    """On the loop: these match the pattern now."""
    group.subscribe(GroupSubscription(names))


def _matcher(pattern: Any) -> Callable[[str], object]:
    if isinstance(pattern, re.Pattern):
        return pattern.match
    if not isinstance(pattern, (six.text_type, six.binary_type)):
        raise TypeError(f"pattern: a text is needed, not {type(pattern).__name__}")
    try:
        return re.compile(six.ensure_text(pattern)).match
    except re.error as error:
        raise IllegalArgumentError(f"pattern: {pattern!r} is no regular expression: {error}") from None


LEAST_WAIT_S: Final = 0.01
"""For auto_commit_interval_ms=0."""

_consumers: weakref.WeakSet[KafkaConsumer] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for consumer in _consumers:
        consumer._driver.renew_lock()  # the I/O thread, which is not here, may have held it
        consumer._thread_guard = SingleThreadGuard()
        consumer._refusal = "the consumer belongs to the parent process: after a fork, make a new one in the child"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class KafkaConsumer(HasTelemetry):
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
        on_records: Callable[[RecordsByPartition], object] | None = None,
        on_error: Callable[[Exception], object] | None = None,
        **configs: Any,
    ) -> None:
        settings = resolve("consumer", configs)
        check_group_settings(settings, configs)
        if on_records is not None and loop is None and client is None:
            raise KafkaConfigurationError("on_records needs a loop to be called on: give loop= or client=")
        validation.topic_names(topics)
        self._settings = settings
        self._config = as_given(settings, configs)
        self._refusal: str | None = None
        """Why no call is accepted any more; :data:`CONSUMER_CLOSED` or another reason."""
        self._closing_thread: int | None = None
        """The thread that closes it, whose listener may still use it."""
        self._is_woken = False
        """:meth:`wakeup` was called, and no call has raised WakeupError for it yet."""
        self._subscription_type = SubscriptionType.NOTHING
        self._subscribed: frozenset[str] = frozenset()
        self._thread_guard = SingleThreadGuard()
        self._wakeup = WakeupEvent()
        self._yielded = YieldedRecords()
        self._iterating: Generator[ConsumerRecord] | None = None
        """Iteration that has begun and stands between two records."""
        self._has_thread = loop is None and client is None
        self._closing: Future[None] | None = None
        self._default_timeout_s = settings["default_api_timeout_ms"] / 1000
        self._host: ClientHost = make_host("consumer", settings, loop, client)
        settings["client_rack"] = settings["client_rack"] or self._host.client.config["client_rack"]
        try:
            self._assemble(on_records, on_error)
        except BaseException:
            self._host.close()
            raise
        # For the fork handler: in the child process it refuses all calls.
        _consumers.add(self)
        if topics:
            self.subscribe(topics)

    def _assemble(
        self, on_records: Callable[[RecordsByPartition], object] | None, on_error: Callable[[Exception], object] | None
    ) -> None:
        """Nothing that the I/O thread holds may hold this object or the host: forgetting them ends the thread."""
        settings = self._settings
        own_client = self._host.client
        own_loop = self._host.loop
        if self._has_thread:
            own_client.log_when_unreachable()
        self._fetcher = make_fetcher(own_client, settings, lambda node: driver.free_at(node))
        lock = threading.RLock()  # a signal handler may break into what holds it, and seek
        self._reader = FetchBufferReader(self._fetcher, lock, lambda: own_loop.call_soon_threadsafe(driver.pump))
        source = self._reader if self._has_thread else LoopRecordSource(self._reader)
        self._notifier = delivery = RecordNotifier(
            own_loop, source, self._wakeup, settings["max_poll_records"], on_records, on_error
        )
        self._driver = driver = ConsumerDriver(own_client, self._fetcher, settings, lock, delivery.on_news)
        self._pending_errors = reports = PendingErrors(delivery.on_news)
        self._topics = SubscribedTopics(
            own_client, settings["metadata_max_age_ms"] / 1000, not settings["exclude_internal_topics"], reports.put
        )
        self._group: GroupDriver | None = None
        """None without ``group_id``."""
        self._commits: CommitQueue | None = None
        self._initial_offsets: InitialOffsets | None = None
        known: dict[TopicPartition, int] = {}
        if settings["group_id"] is not None:
            self._assemble_group(known)
        self._membership = GroupMembership(
            self._host,
            driver,
            self._commits,
            self._initial_offsets,
            self._group,
            self._yielded,
            known,
            reports,
            auto_commit_s=settings["auto_commit_interval_ms"] / 1000 if settings["enable_auto_commit"] else None,
            timeout_s=self._default_timeout_s,
            default_callback=settings["default_offset_commit_callback"],
            wake=self._wakeup.set,
        )
        self._watch()
        if isinstance(source, LoopRecordSource):
            source.attach(self._membership, reports, delivery.on_news)
            if self._group is not None:
                self._group.call_when_pending(source.attend)
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
        self._reader.pass_through(record_filter(metrics, interceptors))
        membership, group, commits = self._membership, self._group, self._commits
        membership.measure(metrics)
        if group is not None:
            group.measure(metrics)
        if interceptors is not None and commits is not None:
            if self._has_thread:
                callbacks = membership.callbacks
                commits.also_tell(lambda offsets: callbacks.put(lambda done, _: interceptors.on_commit(done), offsets))
            else:
                commits.also_tell(interceptors.on_commit)
        resource = telemetry_resource(settings, group)
        self._begin_telemetry(self._host, settings, metrics.raw if metrics is not None else dict, resource)

    def _assemble_group(self, known: dict[TopicPartition, int]) -> None:
        client, settings, driver, reports = self._host.client, self._settings, self._driver, self._pending_errors
        group_id = settings["group_id"]
        machine = make_member(settings, client.retry_backoff, self._topics.topic_of_id)
        group = GroupDriver(client, machine, self._topics, self._notifier.on_news, reports.put)
        # Generation -1 and no member id. The coordinator refuses such commits with UNKNOWN_MEMBER_ID while the group
        # has members (seen on 2.8.2, 3.9.1 and 4.3.0).
        by_hand = ConsumerGroupMetadata(group_id)

        def speaker() -> ConsumerGroupMetadata:
            return group.speaker() if group.is_member else by_hand

        def reader() -> ConsumerGroupMetadata:
            return group.reader() if group.is_member else by_hand

        def note(offsets: Any) -> None:
            known.update((partition, what.offset) for partition, what in offsets.items())

        commits = CommitQueue(client, speaker, group.fenced, note)
        group.on_lost = commits.withdraw
        self._group = group
        self._commits = commits
        self._initial_offsets = InitialOffsets(
            driver,
            reader,
            is_member=lambda: group.is_member and settings["group_protocol"] == "consumer",
            timeout_s=self._default_timeout_s,
            known=known,
            on_fenced=group.fenced,
            on_trouble=reports.put,
        )
        if self._has_thread:
            client.add_resident(group)
        else:
            group.has_begun = True  # there may be no poll, and what comes is taken at once

    # -- records -------------------------------------------------------------------------------------------------------

    def poll(
        self, timeout_ms: float = 0, max_records: int | None = None, update_offsets: bool = True
    ) -> RecordsByPartition:
        """The next records by partition, in order; {} when none came within ``timeout_ms``.

        At most ``max_records`` (default: ``max_poll_records``). Positions move behind what is returned, unless
        ``update_offsets`` is False: then the next poll returns it again.

        A member of a group joins it, takes part in rebalances (its listener is called here), and commits by itself
        here, what *earlier* polls returned. To be called at least every ``max_poll_interval_ms``, or other members
        take over.

        Raises what stands in the way of a partition: OffsetOutOfRangeError and NoOffsetForPartitionError
        (``auto_offset_reset`` "none"), CorruptRecordError, what a deserialiser raised; each says where in
        ``topic_partition`` and ``offset``; the position stays, and seek() leads past it. Further
        TopicAuthorizationFailedError, GroupAuthorizationFailedError, what ends a membership (FencedInstanceIdError and
        the like), KafkaError from a listener, WakeupError after :meth:`wakeup`.
        """
        self._check_usable()
        limit = validation.max_records(max_records, self._settings["max_poll_records"])
        timeout_s = validation.timeout_s(timeout_ms, 0.0)
        self._reader.begin()
        try:
            with self._thread_guard:
                self._check_usable()  # again: from here on, close() waits for this call to end
                if self._iterating is not None:
                    self._give_back_iterated(self._yielded.consumed())
                records = self._poll(timeout_s, limit)
                # close() came meanwhile: it is not to commit records that are not returned
                if self._refusal is not None:
                    self._reader.give_back()
                    self._check_usable()
                if records and not update_offsets:
                    with self._driver.lock:
                        for partition, batch in records.items():
                            self._fetcher.position_of(partition).seek(batch[0].offset)
                    self._wake_fetcher()
            return records  # where no interrupt comes: behind it, who reads is the user
        except BaseException as error:
            self._reader.interrupted(error)
            raise

    def _poll(self, timeout_s: float, limit: int) -> RecordsByPartition:
        clock = self._host.loop.time
        membership = self._membership
        group = self._group if self._subscription_type in (SubscriptionType.TOPICS, SubscriptionType.PATTERN) else None
        may_block = self._may_block
        give_up_at = clock() + timeout_s
        metrics = self._metrics
        began = 0.0 if metrics is None else metrics.poll_began()
        try:
            if group is not None:
                self._wake_member(group, may_block)
            while True:
                self._wakeup.clear()
                if self._is_woken:
                    self._raise_if_woken()
                # What a step waits for is waited for below, where wakeup() and close() end that.
                is_done = membership.is_idle or (membership.attend(clock()) if may_block else not membership.is_busy)
                if not self._pending_errors.is_empty:
                    self._pending_errors.raise_one()
                commit_at = membership.auto_commit(clock())
                if is_done:
                    records = self._reader.take(limit)
                    if records:
                        return records
                now = clock()
                if now >= give_up_at:
                    return {}
                self._host.check_may_block()
                self._wakeup.wait(min(give_up_at - now, max(commit_at - now, LEAST_WAIT_S)))
                self._check_usable()
        finally:
            if group is not None:
                group.machine.on_poll_end(clock())
            if metrics is not None:
                metrics.poll_ended(began)

    def _wake_member(self, group: GroupDriver, may_block: bool) -> None:
        """The user polls: the member has to know, and is only woken when it is none."""
        group.machine.on_poll_begin()
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
        self._wakeup.set()

    # -- on a loop -----------------------------------------------------------------------------------------------------

    def when_ready(self) -> Future[None]:
        """On the loop: done when ``poll(0)`` has something to return or to raise. Who waits for it counts as polling
        (``max_poll_interval_ms``)."""
        self._check_usable()
        ready = self._notifier.when_ready()
        group = self._group
        if group is not None and not ready.is_done:
            group.machine.on_poll_begin()
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

    # -- what is read
    # ----------------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions and no others, without being a member of a group. Ones that stay keep their positions;
        others begin at the committed offsets of ``group_id``, else (or without one) where ``auto_offset_reset`` says,
        unless :meth:`seek` says otherwise.

        IllegalStateError after :meth:`subscribe`: first :meth:`unsubscribe`.
        """
        wanted = arguments.partitions(partitions)
        self._check_usable()
        with self._thread_guard:
            if not wanted:
                self._stop_reading()
                return
            self._choose(SubscriptionType.PARTITIONS)
            awaiting = frozenset(wanted) if self._group is not None else frozenset()
            removed = self.assignment() - set(wanted)
            if removed:
                self._commit_before_leaving(0.0)  # no rebalance follows that would do so
            self._forget_iteration(removed)
            self._on_loop(self._assign_on_loop, wanted, awaiting)

    def _assign_on_loop(self, wanted: list[TopicPartition], awaiting: frozenset[TopicPartition]) -> None:
        self._topics.watch_partitions(wanted)
        self._driver.assign(wanted, awaiting)
        if self._initial_offsets is not None:
            self._initial_offsets.look_up(wanted)

    def subscribe(
        self, topics: Iterable[str] = (), pattern: str | re.Pattern[str] | SubscriptionPattern | None = None,
        listener: Any = None,
    ) -> None:  # fmt: skip
        """Read these topics, instead of what was subscribed to before.

        With ``group_id``, as a member of the group, which the next :meth:`poll` joins: partitions are divided among its
        members. Without one: all partitions, also ones that are added later.

        ``pattern``: topics whose names match this regular expression at their start (``re.match``), now and as they
        come and go, internal ones left out unless ``exclude_internal_topics`` is False; a :class:`SubscriptionPattern`
        is evaluated by the broker (``group_protocol="consumer"``). ``listener``: a :class:`ConsumerRebalanceListener`.

        IllegalArgumentError for names that cannot be, for neither topics nor pattern; IllegalStateError for both, for
        another way of reading than before (first :meth:`unsubscribe`), and for a listener without a group.
        """
        self._check_usable()
        names = validation.topic_names(topics)
        check_listener(listener)
        if names and pattern is not None:
            raise IllegalStateError("subscribe: topics or a pattern, not both")
        if not names and not pattern:
            raise IllegalArgumentError("subscribe: topics or a pattern are needed; to read nothing, unsubscribe()")
        if listener is not None and self._group is None:
            raise IllegalStateError("listener: without group_id nothing is rebalanced, so no listener would be called")
        with self._thread_guard:
            if isinstance(pattern, SubscriptionPattern):
                self._check_server_pattern()
            matches = None if pattern is None or isinstance(pattern, SubscriptionPattern) else _matcher(pattern)
            self._choose(SubscriptionType.TOPICS if pattern is None else SubscriptionType.PATTERN)
            self._membership.set_listener(listener)
            self._pending_errors.clear_fatal()
            self._subscribed = frozenset(names)
            # Nothing below holds this object: forgetting it ends the thread.
            group, driver = self._group, self._driver
            if matches is not None:
                matching = partial(_read_all, driver) if group is None else partial(_be_member, group)
                self._on_loop(self._topics.watch_pattern, matches, matching)
                return
            self._on_loop(self._topics.watch, names)
            if group is None:
                self._on_loop(_read_all, driver, self._subscribed)
            else:
                server_side = pattern.pattern if isinstance(pattern, SubscriptionPattern) else None
                self._on_loop(group.subscribe, GroupSubscription(self._subscribed, server_side))

    def _check_server_pattern(self) -> None:
        if self._group is None or self._settings["group_protocol"] != "consumer":
            raise IllegalStateError(
                "SubscriptionPattern: the broker evaluates patterns in groups of the consumer group protocol only: "
                "set group_id "
                "and group_protocol='consumer', or give the pattern as a text"
            )

    def unsubscribe(self) -> None:
        """Read nothing. A member leaves its group: what was read is committed (with auto-commit), and the listener is
        told of the revocation."""
        self._check_usable()
        with self._thread_guard:
            self._stop_reading()

    def _stop_reading(self) -> None:
        was_member = (
            self._subscription_type in (SubscriptionType.TOPICS, SubscriptionType.PATTERN) and self._group is not None
        )
        if was_member:
            self._membership.refuse_within_attend()  # before anything is given up
        self._on_loop(self._topics.watch, ())
        if was_member:
            assert self._group is not None
            self._on_loop(self._group.subscribe, GroupSubscription())
            try:
                self._finish_steps(self._default_timeout_s, "unsubscribe")
            finally:  # whatever the listener raises, the group is left
                self._read_nothing(was_member)
            return
        if self._subscription_type is SubscriptionType.PARTITIONS:
            self._commit_before_leaving(self._default_timeout_s)
        self._read_nothing(was_member)

    def _read_nothing(self, was_member: bool) -> None:
        self._driver.unsubscribe()
        self._forget_iteration(set(self._driver.fetcher.positions))
        if not was_member or self._may_block:
            self._on_loop(self._driver.assign, [])
        self._subscription_type = SubscriptionType.NOTHING
        self._subscribed = frozenset()
        self._pending_errors.clear_fatal()

    def _choose(self, way: SubscriptionType) -> None:
        if self._subscription_type not in (SubscriptionType.NOTHING, way):
            raise IllegalStateError(
                f"this consumer reads {self._subscription_type.value}, and cannot read {way.value} beside it: "
                    "unsubscribe() first"
            )
        self._subscription_type = way

    # -- what is read now ----------------------------------------------------------------------------------------------

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read. From any thread or signal handler: without the lock, since the fetcher makes a
        new dictionary for each assignment."""
        return set(self._fetcher.positions)

    def subscription(self) -> set[str] | None:
        """The topics of :meth:`subscribe`, or those that match its pattern now; None without one."""
        return set(self._subscribed or self._topics.matching) or None

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these for now; a member's membership goes on as long as it polls. What is on its way is
        kept. UnassignedPartitionError, before any is paused, when one is not assigned."""
        self._set_paused(partitions, True)

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with these. UnassignedPartitionError as with :meth:`pause`."""
        self._set_paused(partitions, False)
        # What was fetched meanwhile is there already, and no fetch will announce it.
        self._call_on_loop(self._driver.started)

    def paused(self) -> set[TopicPartition]:
        """What :meth:`pause` named."""
        return {partition for partition, position in self._fetcher.positions.items() if position.is_paused}

    def _set_paused(self, partitions: Iterable[TopicPartition], is_paused: bool) -> None:
        self._check_usable()
        partitions = [arguments.partition(each) for each in partitions]
        with self._thread_guard:
            with self._driver.lock:
                positions = [self._fetcher.position_of(partition) for partition in partitions]
                unread = self._yielded.consumed() if is_paused else {}
                for position in positions:
                    position.pause(is_paused)
                    rest = unread.get(position.partition)
                    if rest is not None:  # iteration had taken it: it comes again after resume()
                        self._yielded.drop(position.partition)
                        position.seek(rest.offset, rest.leader_epoch)
            # What goes on may have something buffered: no fetch would announce that.
            self._call_on_loop(self._driver.pump if is_paused else self._driver.started)

    def _forget_iteration(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._yielded.drop(partition)

    # -- positions
    # -------------------------------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Read the partition from ``offset`` on, a number or what was committed. IllegalArgumentError when that is
        negative or no whole number, UnassignedPartitionError when the partition is not assigned."""
        self._check_usable()
        partition = arguments.partition(partition)
        epoch = -1
        if isinstance(offset, tuple) and offset:  # OffsetAndMetadata, as in Java
            what = OffsetAndMetadata(*offset[:3])
            offset, epoch = what.offset, -1 if what.leader_epoch is None else what.leader_epoch
        _check_offset("seek", offset)
        with self._thread_guard:
            with self._driver.lock:
                self._fetcher.position_of(partition).seek(offset, epoch)
            self._yielded.drop(partition)
            self._wake_fetcher()

    def skip_to(self, partition: TopicPartition, offset: int) -> int:
        """Leave out records that have been fetched, up to ``offset``; the position then. Unlike :meth:`seek` it keeps
        what has been fetched behind that, and goes no farther than what has been fetched: call it again when
        :meth:`poll` would have more. Costs a tenth of what reading these records does.

        IllegalStateError while the position is being looked up; CorruptRecordError; otherwise as :meth:`seek`."""
        self._check_usable()
        partition = arguments.partition(partition)
        _check_offset("skip_to", offset)
        with self._thread_guard:
            if self._iterating is not None:
                self._give_back_iterated(self._yielded.consumed())
            with self._driver.lock:
                position = self._fetcher.position_of(partition).skip_to(offset)
            self._yielded.drop(partition)
            self._wake_fetcher()
        if position is None:
            raise IllegalStateError(f"skip_to: the position in {partition} is not known yet")
        return position

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Read these, or all assigned ones, from their starts. The look-up runs in the background.
        UnassignedPartitionError when one of them is not assigned, or (but in a listener) none at all."""
        self._reset(partitions, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Read these, or all assigned ones, from their ends. The look-up runs in the background: "the end" is that of
        when it runs; :meth:`position` waits for it. UnassignedPartitionError as with :meth:`seek_to_beginning`."""
        self._reset(partitions, LATEST)

    def _reset(self, partitions: tuple[TopicPartition, ...], timestamp: int) -> None:
        self._check_usable()
        partitions = tuple(arguments.partition(each) for each in partitions)
        with self._thread_guard:
            with self._driver.lock:
                meant = partitions or tuple(self._fetcher.positions)
                if not meant and not self._membership.is_busy:  # a listener may be called with no partitions
                    raise UnassignedPartitionError("no partitions are assigned to this consumer yet")
                positions = [self._fetcher.position_of(each) for each in meant]
                for position in positions:
                    position.reset(timestamp)
            for position in positions:
                self._yielded.drop(position.partition)
            self._wake_fetcher()

    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        """The offset of the next record that is handed out. Waits while it is being looked up: KafkaTimeoutError after
        ``timeout_ms`` (default: ``default_api_timeout_ms``); NoOffsetForPartitionError and the like without one;
        UnassignedPartitionError; WakeupError and IllegalStateError when :meth:`wakeup` or :meth:`close` end the wait.
        """
        self._check_usable()
        partition = arguments.partition(partition)
        give_up_at = self._host.loop.time() + validation.timeout_s(timeout_ms, self._default_timeout_s)
        with self._thread_guard:
            while True:
                self._wakeup.clear()
                with self._driver.lock:
                    found = self._fetcher.position_of(partition)
                    unread = self._yielded.consumed().get(partition)
                    if unread is not None:
                        return unread.offset
                    if found.position is not None:
                        return found.position
                    if found.error is not None:
                        raise found.fault()
                self._host.check_may_block()
                if found.is_awaiting and self._initial_offsets is not None:  # within a listener: not requested yet
                    self._host.submit(self._initial_offsets.look_up, [partition])
                self._pending_errors.raise_one()
                left_s = give_up_at - self._host.loop.time()
                if left_s <= 0:
                    name = f"{partition[0]}-{partition[1]}"
                    raise KafkaTimeoutError(
                        f"the position of {name} was not found in time: no answer, or no such partition"
                    )
                self._check_usable()
                self._raise_if_woken()
                self._wakeup.wait(left_s)

    def highwater(self, partition: TopicPartition) -> int | None:
        """Where the partition ended at the last fetch; None before the first. UnassignedPartitionError."""
        self._check_usable()
        return self._fetcher.position_of(arguments.partition(partition)).highwater

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition. Waits; KafkaTimeoutError after ``timeout_ms``."""
        return {
            p: found.offset
            for p, found in self._find(dict.fromkeys(arguments.partitions(partitions), EARLIEST), timeout_ms).items()
        }

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition (read_committed: after the last that is decided)."""
        return {
            p: found.offset
            for p, found in self._find(dict.fromkeys(arguments.partitions(partitions), LATEST), timeout_ms).items()
        }

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, float], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition at or after a time in ms since the epoch; None when there is none."""
        wanted = arguments.timestamps(timestamps)
        return {
            partition: OffsetAndTimestamp(*found) if found.offset >= 0 else None
            for partition, found in self._find(wanted, timeout_ms).items()
        }

    def _find(
        self, timestamps: dict[TopicPartition, int], timeout_ms: float | None
    ) -> dict[TopicPartition, ResolvedOffset]:
        self._check_usable()
        timeout_s = validation.timeout_s(timeout_ms, self._default_timeout_s)
        if not timestamps:
            return {}
        return self._wait_for(self._driver.find_offsets, timestamps, timeout_s)

    # -- iteration
    # -------------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self

    def __next__(self) -> ConsumerRecord:
        """The next record; StopIteration when none came for ``consumer_timeout_ms``, and for good when the consumer is
        closed meanwhile. What was not handed out yet counts as unread: :meth:`position` and commits are behind the last
        record that was."""
        if self._iterating is None:
            self._check_usable()
            self._iterating = self._iterate()
        elif self._refusal is CONSUMER_CLOSED:
            raise StopIteration
        try:
            return next(self._iterating)
        except StopIteration:
            if self._refusal is not CONSUMER_CLOSED:
                self._iterating = None
            raise
        except BaseException:
            self._give_back_interrupted()
            raise

    def _iterate(self) -> Generator[ConsumerRecord]:
        timeout_ms = self._settings["consumer_timeout_ms"]
        timeout_s = threading.TIMEOUT_MAX if timeout_ms == inf else timeout_ms / 1000
        limit = self._settings["max_poll_records"]
        while True:
            self._reader.begin()
            try:
                with self._thread_guard:
                    self._check_usable()
                    records = self._poll(timeout_s, limit)
                    self._yielded.begin(records)
            except BaseException as error:
                self._reader.interrupted(error)
                if self._refusal is CONSUMER_CLOSED and isinstance(error, IllegalStateError):
                    return
                raise
            if not records or self._refusal is CONSUMER_CLOSED:
                return
            yield from self._yielded.run(records)

    def _give_back_interrupted(self) -> None:
        """An interrupt ended iteration: no record that it did not hand out is to count as read."""
        iterating = self._iterating
        state = inspect.GEN_RUNNING if iterating is None else inspect.getgeneratorstate(iterating)
        if state == inspect.GEN_RUNNING:  # by another thread
            self._iterating = None
            return
        # What has not ended stands at a yield, and the interrupt came behind that.
        iteration = self._yielded
        self._give_back_iterated(iteration.without_last() if state == inspect.GEN_SUSPENDED else iteration.consumed())

    def _give_back_iterated(self, unread: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """poll() in the midst of iteration: what that has taken and not handed out comes again."""
        self._iterating = None
        if unread:
            with self._driver.lock:
                for partition, what in unread.items():
                    self._yielded.drop(partition)
                    if partition in self._fetcher.positions:
                        self._fetcher.positions[partition].seek(what.offset, what.leader_epoch)
            self._wake_fetcher()

    # -- commits
    # ---------------------------------------------------------------------------------------------------------

    def commit(self, offsets: OffsetsToCommit | None = None, timeout_ms: float | None = None) -> None:
        """Commit, and wait for it: the positions of all that is assigned (behind what poll or iteration has handed
        out), or these ``offsets``, each the *next* one to read: OffsetAndMetadata, or a number.

        Tries again what may mend itself, for ``timeout_ms`` (default: ``default_api_timeout_ms``). Errors:
        CommitFailedError (the group has gone on without this member), RebalanceInProgressError (call poll(), and commit
        again what is still assigned), KafkaTimeoutError, GroupAuthorizationFailedError, TopicAuthorizationFailedError,
        OffsetMetadataTooLargeError. Callbacks of commits before it are called first.
        """
        commits = self._needs_group("commit")
        wanted = None if offsets is None else arguments.offsets_to_commit(offsets)
        timeout_s = validation.timeout_s(timeout_ms, self._default_timeout_s)
        self._host.check_may_block()
        with self._thread_guard:
            found = self._membership.consumed() if wanted is None else wanted
            try:
                self._wait_in_turn(self._host.submit(commits.commit, found, timeout_s), timeout_s, "commit")
            finally:
                self._membership.callbacks.run()

    def commit_async(
        self, offsets: OffsetsToCommit | None = None, callback: CommitCallback | None = None
    ) -> Future[None]:
        """Commit without waiting. The future ends on the loop's thread; ``callback(offsets, response)`` is called by a
        later poll, commit or close in the user's thread (on a loop: there), in the order of the calls. ``response`` is
        the error, or an OffsetCommitResponse.

        Commits go out one after the other, so none overtakes another, and those that wait for their turn go together.
        """
        self._needs_group("commit_async")
        if callback is not None and not callable(callback):
            raise TypeError(f"callback: a function (offsets, response), not {type(callback).__name__}")
        wanted = None if offsets is None else arguments.offsets_to_commit(offsets)
        with self._thread_guard:
            self._membership.callbacks.run()
            found = self._membership.consumed() if wanted is None else wanted
            done = self._membership.commit_async(found, callback)
            if not self._may_block:
                callbacks = self._membership.callbacks
                done.add_both(lambda _: callbacks.run())
            return done

    @overload
    def committed(self, partition: TopicPartition, metadata: bool = False, timeout_ms: float | None = None) -> Any: ...

    @overload
    def committed(
        self, partition: Iterable[TopicPartition], metadata: bool = False, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]: ...

    def committed(self, partition: Any, metadata: bool = False, timeout_ms: float | None = None) -> Any:
        """What the group has committed for a partition, or None: the offset, with ``metadata`` OffsetAndMetadata.

        Of several partitions, in a set or list, a dict of OffsetAndMetadata or None, as in Java. Asks the coordinator;
        waits for offsets that an open transaction is about to commit. KafkaTimeoutError after ``timeout_ms``.
        """
        self._needs_group("committed")
        is_one = isinstance(partition, tuple) and len(partition) == 2 and not isinstance(partition[0], tuple)
        wanted = [arguments.partition(partition)] if is_one else arguments.partitions(partition)
        timeout_s = validation.timeout_s(timeout_ms, self._default_timeout_s)
        self._host.check_may_block()
        with self._thread_guard:
            found = self._fetch_committed(wanted, timeout_s)
        if not is_one:
            return {each: found.get(each) for each in wanted}
        one = found.get(wanted[0])
        return one if one is None or metadata else one.offset

    def _fetch_committed(
        self, partitions: list[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """OffsetFetch as a reader that is no member (generation -1), so that it works without having joined. Raises
        the first error of a partition; KafkaTimeoutError after ``timeout_s``."""
        if not partitions:
            return {}
        client = self._host.client
        group_id = self._settings["group_id"]

        def fetch() -> Future[CommittedOffsets]:
            client.cluster.add_topics({each.topic for each in partitions})
            reader = OffsetDialogues(
                lambda: ConsumerGroupMetadata(group_id), client.cluster.topic_id, client.retry_backoff
            )
            return client.run(reader.fetch(partitions, timeout_s, as_member=False))

        found = self._wait_in_turn(self._host.submit(fetch), timeout_s, "committed")
        for error in found.errors.values():
            raise error
        return found.offsets

    def group_metadata(self) -> ConsumerGroupMetadata:
        """This consumer's membership now, for ``KafkaProducer.send_offsets_to_transaction`` (KIP-447); of no member
        without ``group_id``."""
        self._check_usable()
        group_id = self._settings["group_id"]
        if self._group is None or not self._group.is_member:
            return ConsumerGroupMetadata(group_id)
        return self._group.metadata()

    @property
    def answered_at(self) -> float | None:
        """The time of the coordinator's last answer to a heartbeat or another request of this member, by the loop's
        clock (monotonic seconds); None before the first, and without ``group_id``."""
        return None if self._group is None else self._group.answered_at

    def enforce_rebalance(self, reason: str | None = None) -> None:
        """Let the group be rebalanced by the next polls (KIP-568, KIP-800). With ``group_protocol="consumer"`` the
        broker alone decides about that, and nothing happens."""
        self._check_usable()
        if self._group is None:
            raise IllegalStateError("enforce_rebalance: without group_id there is nothing to rebalance")
        self._on_loop(self._group.rejoin, reason or "the user has called enforce_rebalance()")

    def _needs_group(self, what: str) -> CommitQueue:
        self._check_usable()
        if self._commits is None:
            raise IllegalStateError(f"{what}: offsets are committed for a group: give the consumer a group_id")
        return self._commits

    def _commit_before_leaving(self, timeout_s: float) -> None:
        """What was assigned by hand, and read: with auto-commit it counts as done. 0: without waiting for it."""
        commits = self._commits
        if commits is None or not self._settings["enable_auto_commit"]:
            return
        changed = self._membership.changed()
        if not changed:
            return
        done = self._host.submit(commits.commit, changed, timeout_s or self._default_timeout_s)
        if timeout_s and self._may_block:
            try:
                self._host.wait(done, timeout_s)
            except KafkaError as error:
                _log_failed_commit(error)
        else:
            done.add_errback(_log_failed_commit)

    # -- topics
    # ----------------------------------------------------------------------------------------------------------

    def topics(self) -> set[str]:
        """The names of all topics that this client may see, internal ones left out. Asks the cluster."""
        self._check_usable()
        answer = self._wait_for(self._ask_for_topics, None)
        return {topic.name for topic in answer.topics if topic.name and not topic.error_code and not topic.is_internal}

    def partitions_for_topic(self, topic: str) -> set[int]:
        """The numbers of the topic's partitions; the empty set when there is no such topic: asking does not create it.
        Asks the cluster if need be."""
        self._check_usable()
        topic = validation.topic_name(topic)
        found = self._host.client.cluster.partitions_for_topic(topic)
        if found is not None:
            return found
        answer = self._wait_for(self._ask_for_topics, topic)
        for entry in answer.topics:
            if entry.name == topic and entry.partitions:
                fault = invalid_partitions_error(entry)
                if fault is not None:
                    raise fault
                return {partition.partition_index for partition in entry.partitions}
        return set()

    def _ask_for_topics(self, name: str | None) -> Future[MetadataResponse]:
        """The metadata of one topic, or of all; creates none: where a version cannot say that, all are asked for."""
        return self._host.client.request(AnyNode(), metadata_of(name))

    def bootstrap(self, timeout_ms: float | None = None, refresh: bool = False) -> None:
        """Wait until the cluster's metadata has been read; with ``refresh``, until it has been read anew.
        KafkaTimeoutError after ``timeout_ms`` (None: never), or the error that trying again does not mend."""
        self._check_usable()
        validation.timeout_s(timeout_ms, 0.0)
        limit_ms = inf if timeout_ms is None else timeout_ms
        self._wait_for(lambda: self._host.client.bootstrapped(limit_ms, anew=refresh))

    def bootstrap_connected(self) -> bool:
        """Whether the cluster's metadata has been read."""
        return bool(self._host.client.cluster.brokers())

    # -- the end
    # ---------------------------------------------------------------------------------------------------------

    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        """Stop reading, and let go of the connections; any number of times. A member of a group first commits (with
        auto-commit, unless ``autocommit`` is False), calls the listener with its partitions, and leaves, so that
        others take over at once; a static member (``group_instance_id``) does not leave.

        At most ``timeout_ms`` (default: ``request_timeout_ms``) are spent on that; with 0 it leaves without waiting for
        anything, commits not among what it does. From another thread than the one that polls it ends that poll with
        IllegalStateError, and waits for it. In a signal handler that has broken into a call of this consumer, in a
        listener and in a callback, nothing is waited for: that call is ended, and the rest is done at its end. On a
        loop: as :meth:`close_async`.
        """
        if self._refusal is not None:
            if not self._is_within_call():
                self._thread_guard.run_on_exit()
            return
        timeout_s = validation.timeout_s(timeout_ms, self._settings["request_timeout_ms"] / 1000)
        if not self._may_block or not self._host.loop.is_usable:
            self.close_async(autocommit, timeout_s)
            return
        give_up_at = self._host.loop.time() + timeout_s
        if self._is_within_call():
            self._thread_guard.call_on_exit(partial(self._end_after_call, autocommit, give_up_at))
            self._refusal = CONSUMER_CLOSED
            self._wakeup.set()
            return
        self._refusal = CONSUMER_CLOSED
        self._wakeup.set()
        fault = self._end(autocommit, give_up_at)
        if fault is not None:
            raise fault

    def _end_after_call(self, autocommit: bool, give_up_at: float) -> None:
        fault = self._end(autocommit, give_up_at)
        if fault is not None:
            log.error("error while closing the consumer: %s", fault)

    def _end(self, autocommit: bool, give_up_at: float) -> KafkaError | None:
        """All that is left to do when calls are refused. What the listener raised."""
        clock = self._host.loop.time
        fault: KafkaError | None = None
        if self._thread_guard.wait(max(give_up_at - clock(), 0.0)):
            self._closing_thread = threading.get_ident()
            try:
                fault = self._leave(autocommit, give_up_at)
            finally:
                self._thread_guard.leave()
                self._closing_thread = None
                self._release(max(give_up_at - clock(), 0.0))
        else:
            self._release(0.0)
        return fault

    def _leave(self, autocommit: bool, give_up_at: float) -> KafkaError | None:
        """Commit, call the listener, leave the group, as far as the time allows. Returns what the listener raised."""
        group, commits, membership = self._group, self._commits, self._membership
        if group is None or commits is None:
            return None
        clock = self._host.loop.time
        fault: KafkaError | None = None
        if not autocommit:
            membership.commit_no_more()
        try:
            if group.has_begun and self._subscription_type in (SubscriptionType.TOPICS, SubscriptionType.PATTERN):
                group.machine.on_poll_begin()
                left = self._host.submit(group.leave, LEAVE_REASON)
                left.add_both(lambda _: self._wakeup.set())
                while not left.is_done and clock() < give_up_at:
                    self._wakeup.clear()
                    try:
                        membership.attend(give_up_at)
                    except KafkaError as error:
                        fault = fault or error
                    if left.is_done:
                        break
                    if group.pending is None:
                        self._wakeup.wait(max(give_up_at - clock(), 0.0))
            elif autocommit:
                self._commit_before_leaving(max(give_up_at - clock(), 0.0))
            settled = self._host.submit(commits.settled)
            settled.wait(max(give_up_at - clock(), 0.0))
        except IllegalStateError as error:  # the client that it lives on is closed
            log.info("closing the consumer without leaving its group: %s", error)
        membership.callbacks.run()
        return fault

    def _release(self, timeout_s: float) -> None:
        self._notifier.close()
        self._end_telemetry(timeout_s)
        # The loop may have ended; or it is held up, by what a signal handler that closes has broken into.
        with contextlib.suppress(IllegalStateError, KafkaTimeoutError):
            self._host.call(self._end_on_loop, timeout_s=timeout_s + LOOP_GRACE_S)
        self._host.close(timeout_s + LOOP_GRACE_S)

    def _end_on_loop(self) -> None:
        self._membership.commit_no_more()
        self._topics.close()
        if self._group is not None:
            if self._subscription_type in (SubscriptionType.TOPICS, SubscriptionType.PATTERN):
                self._group.depart(LEAVE_REASON)
            self._group.close()
        if self._commits is not None:
            self._commits.close()
        self._driver.close()
        if self._metrics is not None:
            self._metrics.close()
        if self._interceptors is not None:
            self._interceptors.close()

    def close_async(self, autocommit: bool = True, timeout_s: float | None = None) -> Future[None]:
        """On the loop: the same without waiting; done when the group is left and everything let go."""
        if self._closing is not None:
            return self._closing
        self._closing = done = Future[None]()
        if self._refusal is not None:
            return done.success(None)
        self._refusal = CONSUMER_CLOSED
        self._wakeup.set()
        if not self._host.loop.is_usable:
            self._host.close()
            return done.success(None)
        group, commits = self._group, self._commits

        def end(_: object = None) -> None:
            self._finish_telemetry().add_both(finish)

        has_ended = False

        def finish(_: object = None) -> None:
            nonlocal has_ended
            if not has_ended:
                has_ended = True  # what is ended here says that the group was left, which leads here again
                self._notifier.close()
                self._end_telemetry()
                self._end_on_loop()
                self._host.close()
                done.success(None)

        if group is None or commits is None:
            end()
            return done
        if not autocommit:
            self._membership.commit_no_more()
        limit_s = self._settings["request_timeout_ms"] / 1000 if timeout_s is None else timeout_s
        timer = self._host.loop.call_later(limit_s, end)
        done.add_both(lambda _: timer.cancel())
        if group.has_begun and self._subscription_type in (SubscriptionType.TOPICS, SubscriptionType.PATTERN):
            group.machine.on_poll_begin()
            group.leave(LEAVE_REASON).add_both(lambda _: commits.settled().add_both(end))
        else:
            changed = self._membership.changed() if autocommit and self._settings["enable_auto_commit"] else {}
            commits.commit(changed, limit_s).add_both(end)
        return done

    # -- inside
    # ----------------------------------------------------------------------------------------------------------

    @property
    def _may_block(self) -> bool:
        return not self._host.loop.in_loop_thread()

    def _check_usable(self) -> None:
        # A listener that is being called finishes its work with the consumer, even if another thread closes that
        # meanwhile.
        if self._refusal is not None and not (
            threading.get_ident() == self._closing_thread or self._membership.is_attending_here
        ):
            raise IllegalStateError(self._refusal)

    def _raise_if_woken(self) -> None:
        if self._is_woken:
            self._is_woken = False
            raise WakeupError("wakeup() was called")

    def _is_within_call(self) -> bool:
        """Whether this thread is in the midst of a call of this consumer, into which a signal handler has broken (or
        which has called a listener or a deserialiser). The stack says that, and no counter: an interrupt may leave one
        of those wrong, and then nothing would ever be closed."""
        frame: FrameType | None = sys._getframe(2)  # the caller of the method that asks
        while frame is not None:
            is_ours = frame.f_globals.get("__package__") == __package__ and frame.f_code.co_name not in _CLOSING_METHODS
            whose: object = frame.f_locals.get("self") if is_ours else None
            if whose is self:
                return self._thread_guard.is_held
            frame = frame.f_back
        return False

    def _wake_fetcher(self) -> None:
        """The fetcher has something to reconsider. Any thread."""
        self._call_on_loop(self._driver.pump)

    def _call_on_loop(self, action: Callable[[], object]) -> None:
        """Have it done on the loop's thread, and do not wait for it."""
        try:
            self._host.loop.call_soon_threadsafe(action)
        except RuntimeError:  # the loop has ended: a signal handler has closed the consumer in the midst of the call
            self._check_usable()
            raise

    def _on_loop(self, action: Callable[..., object], *args: Any) -> None:
        """Run it on the loop's thread, and wait for it unless this is that thread."""
        if self._may_block:
            self._host.call(action, *args)
        else:
            action(*args)

    def _wait_for(self, ask: Callable[..., Future[T]], *args: Any, timeout_s: float | None = None) -> T:
        """Run ``ask`` on the loop's thread and wait for its future. Refused on that thread."""
        self._host.check_may_block()
        run: Callable[..., Any] = ask
        try:
            value: T = self._host.call(run, *args, timeout_s=timeout_s)
        except Cancelled:
            self._check_usable()  # another thread has closed it
            raise
        return value

    def _wait_in_turn(self, future: Future[T], timeout_s: float, what: str) -> T:
        """The future's result, for a call that has its turn: close() ends the wait with IllegalStateError, and need
        not wait for it. KafkaTimeoutError after ``timeout_s``."""
        self._host.check_may_block()
        news, clock = self._wakeup, self._host.loop.time
        give_up_at = clock() + timeout_s
        future.add_both(lambda _: news.set())
        while True:
            news.clear()
            if future.is_done:
                return future.result()
            self._check_usable()
            left_s = give_up_at + TIMEOUT_GRACE_S - clock()
            if left_s <= 0:
                raise KafkaTimeoutError(f"{what}: no answer within {timeout_s:g} s")
            news.wait(left_s)

    def _finish_steps(self, timeout_s: float, what: str) -> None:
        """Carry out all that the group wants. KafkaTimeoutError when it takes too long."""
        if not self._may_block:
            return  # there it is carried out by itself
        if not self._membership.attend(self._host.loop.time() + timeout_s):
            raise KafkaTimeoutError(f"{what}: the group's rebalance was not carried out within {timeout_s:g} s")


def _check_offset(method: str, offset: object) -> None:
    if not validation.is_integer(offset) or not 0 <= offset < arguments.INT64:
        raise IllegalArgumentError(f"{method}: an offset of at least 0 and below 2**63 is needed, not {offset!r}")
