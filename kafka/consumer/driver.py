"""Between a consumer's thread and its loop: what is fetched on the one is read in the other.

    the thread that polls                              the loop's thread
      SingleThreadGuard: one thread at a time            ConsumerDriver: carries out what the fetcher decides, that is
      FetchBufferReader: records of what was fetched       requests, timers, metadata, offset look-ups
      WakeupEvent: waits for more           ◄──────      RecordNotifier: wakes readers, or calls them back

The machine is ``kafka.core.consume.fetcher``; both threads share it, so every touch is under ``lock``, which is never
held while something is sent, decoded or called back.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from itertools import count
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol

from kafka._native import mypyc_attr
from kafka.client import KafkaClient
from kafka.core.consume.fetcher import Fetcher, RequestEpochEnds, RequestOffsets
from kafka.core.consume.offsets import EpochEnd, ResolvedOffset, epoch_ends, list_offsets, offsets_at
from kafka.core.consume.partition import (
    MAX_HEADER_BYTES,
    PartitionPosition,
    ReaderOptions,
    RecordsByPartition,
    has_error_location,
    set_error_location,
)
from kafka.core.consume.session import SendFetch
from kafka.errors import IllegalStateError, NoOffsetForPartitionError, OffsetOutOfRangeError
from kafka.future import Future
from kafka.net.loop import DeadlineTimer, Loop
from kafka.protocol.fetch import FetchResponse
from kafka.structs import PartitionMetadata, TopicPartition
from kafka.validation import deserializer_for
from kafka.wire.types import ZERO_UUID

if TYPE_CHECKING:
    from kafka.consumer.membership import GroupMembership, PendingErrors

log = logging.getLogger(__name__)

# Who may be in a call of a consumer, and how the thread that waits in one is woken.


@mypyc_attr(allow_interpreted_subclasses=True)
class WakeupEvent:
    """An event that any thread or signal handler may set; one thread at a time waits for it.

    ``threading.Event`` guards its flag with a lock that is not re-entrant: a signal handler that sets it, in the thread
    that is just clearing it, would wait for itself. Here the flag is the lock, and each step is one call into C:

        clear   the lock is held        wait() waits for it
        set     the lock is free        wait() takes it, which clears the event again
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Wake the waiter, or else the next one."""
        if self._lock.locked():
            with contextlib.suppress(RuntimeError):  # another was quicker
                self._lock.release()

    def clear(self) -> None:
        """To be followed by a look at whatever it is set for."""
        self._lock.acquire(False)

    def wait(self, timeout_s: float) -> bool:
        """Wait until it is set, at most so long; whether it was. It is clear then."""
        return self._lock.acquire(timeout=min(max(timeout_s, 0.0), threading.TIMEOUT_MAX))


class SingleThreadGuard:
    """Held while a call of the consumer runs: by one thread, any number of times. ``with`` refuses a second thread, as
    Java's ConcurrentModificationException does, where waiting would hide the mistake.

    ``on_exit``: called once, when the call under way has ended.
    """

    __slots__ = ("_depth", "_lock", "on_exit")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self.on_exit: Callable[[], object] | None = None

    def __enter__(self) -> None:
        if not self._lock.acquire(False):
            raise IllegalStateError(
                "another thread is in a call of this consumer: it is for one thread at a time, but for wakeup() and "
                "close()"
            )
        self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._depth -= 1
        is_over = not self._depth
        self._lock.release()
        if is_over and self.on_exit is not None:
            self.run_on_exit()

    def call_on_exit(self, action: Callable[[], object]) -> None:
        """Have it called once, when the call under way has ended."""
        self.on_exit = action

    @property
    def is_held(self) -> bool:
        """A call is under way."""
        return self._depth > 0

    def run_on_exit(self) -> None:
        """Do what was put off, if it was not done yet."""
        on_exit, self.on_exit = self.on_exit, None
        if on_exit is not None:
            on_exit()

    def wait(self, timeout_s: float) -> bool:
        """Be the one to hold it, when the thread that does has left; whether it has in time. Then :meth:`leave`."""
        return self._lock.acquire(timeout=min(timeout_s, threading.TIMEOUT_MAX))

    def leave(self) -> None:
        """After :meth:`wait`."""
        self._lock.release()


# The machine of a consumer's fetches, made of its settings and what its client knows of the cluster.


def make_fetcher(client: KafkaClient, settings: Mapping[str, Any], free_at: Callable[[int], float]) -> Fetcher:
    """``free_at``: until when a node wants no fetches (KIP-219)."""
    cluster = client.cluster

    def find(partition: TopicPartition) -> PartitionMetadata | None:
        return cluster.snapshot.partitions.get(partition.topic, {}).get(partition.partition)

    def leader_of(partition: TopicPartition) -> int | None:
        found = find(partition)
        return None if found is None or found.leader < 0 else found.leader

    return Fetcher(
        leader_of=leader_of,
        topic_id_of=lambda topic: cluster.snapshot.ids.get(topic, ZERO_UUID),
        topic_of_id=cluster.topic_name_for_id,
        epoch_of=lambda partition: -1 if (found := find(partition)) is None else found.leader_epoch,
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
        self._router = client.router
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
                future = self._router.request(effect.node, effect.request, lane=lane, max_version=effect.max_version)
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
                looked_up.add_callback(self._on_offsets, effect)
                looked_up.add_errback(self._offsets_failed, effect)
            elif isinstance(effect, RequestEpochEnds):
                asked = self.client.run(epoch_ends(effect.questions, timeout_s=self._timeout_s))
                asked.add_callback(self._on_epoch_ends, effect)
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

    def _on_offsets(self, effect: RequestOffsets, told: dict[TopicPartition, ResolvedOffset | BaseException]) -> None:
        with self.lock:
            news = self.fetcher.offsets_received(effect, told, self._loop.time())
        self._after(news)

    def _offsets_failed(self, effect: RequestOffsets, error: BaseException) -> None:
        self._on_offsets(effect, dict.fromkeys(effect.timestamps, error))

    def _on_epoch_ends(self, effect: RequestEpochEnds, told: dict[TopicPartition, EpochEnd | BaseException]) -> None:
        with self.lock:
            news = self.fetcher.epoch_ends_received(effect, told, self._loop.time())
        self._after(news)

    def _epochs_failed(self, effect: RequestEpochEnds, error: BaseException) -> None:
        self._on_epoch_ends(effect, dict.fromkeys(effect.questions, error))

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
        router = self._router
        return max(router.throttled_until(node, self.lane), router.throttled_until(node, self.lane_beside))

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
                self._router.request(effect.node, effect.request, max_version=effect.max_version)
            self.client.close_lane(self.lane)
            self.client.close_lane(self.lane_beside)


# Takes records out of what was fetched, in the reader's own thread: decoding is done outside the lock.


ERRORS_MENDED_BY_SEEK: Final = (NoOffsetForPartitionError, OffsetOutOfRangeError)
"""Errors of partitions that are raised again and again; after others it is tried again what led to them."""


class FetchBufferReader:
    """One reader of a fetcher. ``changed`` is called when the fetcher has something to reconsider."""

    def __init__(self, fetcher: Fetcher, lock: AbstractContextManager[Any], changed: Callable[[], object]) -> None:
        self._fetcher = fetcher
        self._lock = lock
        self._wake_fetcher = changed
        self._wants_more = False
        """Something was read to its end, or is to be tried again: the fetcher has something to do."""
        self.on_taken: Callable[[RecordsByPartition], RecordsByPartition] | None = None
        """What is handed out goes through this, once for each :meth:`take`: metrics and interceptors."""
        self._moved: dict[PartitionPosition, tuple[int, int | None, int]] = {}
        """What :meth:`take` has read from: its generation, and where it stood before."""

    def is_ready(self) -> bool:
        """Whether :meth:`take` has something to return or to raise."""
        with self._lock:
            return self._fetcher.refusal is not None or self._fetcher.has_ready

    def begin(self) -> None:
        """What is taken from now on may come again."""
        self._moved.clear()

    def interrupted(self, error: BaseException) -> None:
        """``error`` came before what was taken since :meth:`begin` reached anybody: after an interrupt (Ctrl-C) it
        comes again. Where reading itself raises, :meth:`take` has seen to that."""
        if not isinstance(error, Exception):
            self.give_back()

    def pass_through(self, on_taken: Callable[[RecordsByPartition], RecordsByPartition] | None) -> None:
        """What is taken goes through ``on_taken``: metrics and interceptors."""
        self.on_taken = on_taken

    def give_back(self) -> None:
        """What was taken since :meth:`begin` comes again, and counts as unread."""
        moved, self._moved = self._moved, {}
        with self._lock:
            for position, (generation, offset, leader_epoch) in moved.items():
                if position.generation == generation and offset is not None:
                    position.seek(offset, leader_epoch)
        self._wake_fetcher()

    def take(self, limit: int) -> RecordsByPartition:
        """The next records by partition, at most ``limit``, fewer when they have very many headers. Raises what stands
        in the way of a partition when it is the first thing to be met; the position then stays before it."""
        found: RecordsByPartition = {}
        self._moved.clear()
        try:
            self._take(limit, found)
        finally:
            if self._wants_more:
                self._wants_more = False
                self._wake_fetcher()
        if found and self.on_taken is not None:
            found = self.on_taken(found)
        return found

    def _take(self, limit: int, found: RecordsByPartition) -> None:
        fetcher = self._fetcher
        lock = self._lock
        header_bytes_left = MAX_HEADER_BYTES
        while limit > 0 and header_bytes_left > 0:
            with lock:
                position = fetcher.ready()
                if position is None:
                    if not found and fetcher.refusal is not None:
                        raise fetcher.take_refusal()
                    return
                generation = position.generation
                fetched = position.buffered[0] if position.buffered else None
                if fetched is None:
                    if found:
                        fetcher.put_first(position)  # raised the next time, whatever else there is by then
                        return
                    self._raise_error(position)
                    return
                self._moved.setdefault(position, (generation, position.position, position.leader_epoch))
            try:
                records = fetched.read(limit, fetcher.options, header_bytes_left)
                header_bytes_left -= fetched.header_bytes
            except Exception as error:
                with lock:
                    if found:
                        fetcher.put_first(position)
                        return
                    if not has_error_location(error):
                        set_error_location(error, position.partition, fetched.position)
                    fetcher.after_fault(position, fetched, generation)
                    self._wants_more = True
                raise
            with lock:
                counts = fetcher.after_read(position, fetched, generation)
                # Waking the loop is a write to its pipe before the records are returned, and a turn of the loop. Not
                # for what is small: its partition is being fetched already. (For single records in plain Python that
                # saves half of the I/O thread's wake-ups and 10 to 17 % of its CPU.)
                if counts and fetched.is_exhausted and (position.node is None or fetcher.lacks_room):
                    self._wants_more = True
            if counts and records:
                limit -= len(records)
                before = found.get(position.partition)
                if before is None:
                    found[position.partition] = records
                else:
                    before += records

    def _raise_error(self, position: PartitionPosition) -> None:
        """Under the lock: raise what stands in the partition's way; it is tried again unless only a seek can help."""
        error = position.fault()
        if not isinstance(error, ERRORS_MENDED_BY_SEEK):
            position.set_error(None)
            self._wants_more = True
        raise error


# What stands before the records of a consumer on a loop: rebalance steps, errors, and commits by time.
#
# A thread that polls does these things in its poll; without polls, they are done when they come up.


class LoopRecordSource:
    """Takes of ``reader`` what may be taken now. All on the loop's thread."""

    def __init__(self, reader: FetchBufferReader) -> None:
        self._reader = reader
        self._membership: GroupMembership | None = None
        self._pending_errors: PendingErrors | None = None
        self._on_news: Callable[[], object] = lambda: None
        self._commit_timer: DeadlineTimer | None = None
        self._loop: Loop | None = None

    def attach(self, membership: GroupMembership, reports: PendingErrors, on_news: Callable[[], object]) -> None:
        """What is made after the one who takes from here."""
        self._membership = membership
        self._pending_errors = reports
        self._on_news = on_news

    def attend(self) -> None:
        """The group wants something carried out."""
        if self._membership is not None:
            self._membership.attend_on_loop(self._on_news)

    def commit_by_time(self, loop: Loop) -> None:
        """Commit what was handed out, as often as the settings say."""
        self._loop = loop
        self._commit_timer = DeadlineTimer(loop, self._commit)
        assert self._membership is not None
        self._membership.call_when_commit_is_due(self._commit)
        self._commit()

    def _commit(self) -> None:
        assert self._membership is not None and self._commit_timer is not None and self._loop is not None
        when = self._membership.auto_commit(self._loop.time())
        self._commit_timer.set(when)

    def is_ready(self) -> bool:
        """Whether :meth:`take` has something to return or to raise."""
        if self._pending_errors is not None and not self._pending_errors.is_empty:
            return True
        return not self._is_busy and self._reader.is_ready()

    def take(self, limit: int) -> RecordsByPartition:
        """The next records; nothing while partitions are being given up."""
        if self._pending_errors is not None:
            self._pending_errors.raise_one()
        return {} if self._is_busy else self._reader.take(limit)

    @property
    def _is_busy(self) -> bool:
        return self._membership is not None and self._membership.is_busy


class RecordSource(Protocol):
    """Where records are taken from: a FetchBufferReader, or what stands before it."""

    def is_ready(self) -> bool: ...

    def take(self, limit: int) -> RecordsByPartition: ...


class RecordNotifier:
    """Notifies readers that wait for records. ``wakeup`` is set for a thread that waits; the callbacks are for a
    consumer on a loop, and run there: ``on_records`` with at most ``limit`` records at a time, ``on_error`` with what
    ``poll`` would have raised.
    """

    def __init__(
        self,
        loop: Loop,
        reader: RecordSource,
        wakeup: WakeupEvent,
        limit: int,
        on_records: Callable[[RecordsByPartition], object] | None = None,
        on_error: Callable[[Exception], object] | None = None,
    ) -> None:
        self._loop = loop
        self._reader = reader
        self._wakeup = wakeup
        self._limit = limit
        self._on_records = on_records
        self._on_error = on_error
        self._is_due = False
        self._raised: list[Exception] = []
        """Errors since records were delivered last: an error that lasts until a seek comes again and again."""
        self._waiting: Future[None] | None = None

    def when_ready(self) -> Future[None]:
        """Done when there is something to take."""
        if self._reader.is_ready():
            return Future[None]().success(None)
        if self._waiting is None:
            self._waiting = Future()
        return self._waiting

    def on_news(self) -> None:
        """There is something new. On the loop's thread."""
        self._wakeup.set()
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.success(None)
        self._deliver_soon()

    def close(self) -> None:
        """Make no more callbacks."""
        self._on_records = None

    def _deliver_soon(self) -> None:
        if self._on_records is not None and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._is_due = False
        if self._on_records is None:
            return
        try:
            records = self._reader.take(self._limit)
        except Exception as error:
            if any(each is error for each in self._raised):
                self._raised = []  # all partitions have had their turn; there is news when there is more
                return
            self._raised.append(error)
            self._deliver_soon()  # other partitions may have records, which are not announced again
            if self._on_error is None:
                log.exception("cannot read a partition; it stays at its position until seek()")
            else:
                self._on_error(error)
            return
        if records:
            self._raised = []
            deliver = self._on_records
            self.on_news()  # there may be more: next turn, so that others have theirs
            deliver(records)
