"""KafkaProducer: what users call. Which batch goes where and when is decided in ``core/produce``.

    arguments.py    checks and converts what users pass      settings.py      checks settings together
    sending.py      ``send`` itself, a record's future       driver.py        carries out the sender's effects
    interceptors.py calls users' interceptors                transactions.py  the requests of a transaction
    metrics.py      what is measured

Two things make ``send`` fail without a check of their own for each record: when the producer is closed (or belongs to
the parent of a fork), and when a transactional producer has no open transaction, ``_topics`` is empty, and a topic that
is missing there leads to :meth:`KafkaProducer._admit`, which knows the reason.

A transaction's call that takes longer than ``max_block_ms`` raises KafkaTimeoutError and goes on in the background: the
same call again waits for the same result. Any other call is refused meanwhile, as in Java's client: whether the
transaction was committed is not decided by asking for something else.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafka.client import KafkaClient, make_host
from kafka.client.telemetry import HasTelemetry
from kafka.config import as_given, defaults, resolve
from kafka.core.produce.accumulator import PRODUCER_CLOSED, BufferFull, RecordAccumulator
from kafka.core.produce.batch import PendingRecords, ProducerBatch, TopicQueues, UnassignedRecords
from kafka.core.produce.transactions import TransactionManager
from kafka.errors import (
    FatalTransactionError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    TransactionError,
)
from kafka.future import Future
from kafka.net.loop import Loop
from kafka.producer.arguments import (
    check_seconds,
    committed_offsets,
    group_of,
    serializer_for,
    sizes_of,
    takes_headers,
    topic_name,
)
from kafka.producer.driver import FORKED_ERROR, ProducerDriver
from kafka.producer.interceptors import Interceptors, ProducerRecord
from kafka.producer.sending import FutureRecordMetadata, RecordSender
from kafka.producer.settings import check_together
from kafka.producer.transactions import Transactions
from kafka.records import max_record_bytes
from kafka.structs import TopicPartition

log = logging.getLogger(__name__)

NAMED_PARTITIONS: Final = 3
"""So many of the partitions that hold most are named in an error."""


class ThreadWaiter:
    """One thread in the row for memory. It sleeps on a lock that the waking thread releases: an ``Event`` is that and
    five objects more, and costs as much as all else of waiting."""

    __slots__ = ("_asleep", "needed_bytes")

    def __init__(self, needed_bytes: int) -> None:
        self._asleep = threading.Lock()
        self._asleep.acquire()
        self.needed_bytes = needed_bytes

    def wake(self) -> None:
        """End the sleep, or the next one. Any thread."""
        if self._asleep.locked():
            with contextlib.suppress(RuntimeError):  # another thread was quicker
                self._asleep.release()

    def sleep(self, until: float) -> bool:
        """Until woken, or until ``until`` of ``time.monotonic``; whether woken."""
        return self._asleep.acquire(timeout=min(max(until - time.monotonic(), 0.0), threading.TIMEOUT_MAX))


def append_when_memory_is_free(
    accumulator: RecordAccumulator,
    full: BufferFull,
    max_block_ms: int,
    check_usable: Callable[[], None],
    record: tuple[Any, ...],
) -> tuple[ProducerBatch, int]:
    """``accumulator.append(*record)`` once there is memory, in the order in which threads came. ``full`` is what it
    said first. Raises KafkaTimeoutError after ``max_block_ms``, and what ``check_usable`` raises after each wait."""
    append: Callable[..., tuple[ProducerBatch, int]] = accumulator.append
    waiter = ThreadWaiter(full.needed_bytes)
    give_up_at = time.monotonic() + max_block_ms / 1000
    try:
        is_last = False
        if not accumulator.add_waiter(waiter):
            is_last = not waiter.sleep(give_up_at)
            check_usable()
        while True:
            try:
                return append(*record, waiter)
            except BufferFull as error:
                full = error
            if is_last:
                raise no_memory(accumulator, full, record[0].name, max_block_ms) from None
            is_last = not waiter.sleep(give_up_at)
            check_usable()
    finally:  # a waiter that stays queued without waiting would block all others for ever
        try:
            accumulator.remove_waiter(waiter)
        except BaseException:  # Ctrl-C before it was done
            accumulator.remove_waiter(waiter)
            raise


def no_memory(
    accumulator: RecordAccumulator, full: BufferFull, topic: str, max_block_ms: int | None
) -> KafkaTimeoutError:
    """The error of a record of ``topic`` for which there is no room; ``max_block_ms`` None: it did not wait."""
    memory = accumulator.memory
    waited = "" if max_block_ms is None else f" after max_block_ms={max_block_ms}"
    return KafkaTimeoutError(
        f"no memory for a record of topic {topic}{waited}: it needs {full.needed_bytes} bytes, and {memory.used_bytes} "
        f"of buffer_memory={memory.limit_bytes} are in use by {_holders(accumulator)}"
    )


def _holders(accumulator: RecordAccumulator) -> str:
    with accumulator.lock:
        pending = list(accumulator.incomplete)
        now = accumulator.now()
    held: dict[tuple[str, int], list[PendingRecords]] = {}
    for pending_records in pending:
        held.setdefault((pending_records.topic, pending_records.partition), []).append(pending_records)
    if not held:
        return "no partition any more"
    most = sorted(
        held.values(), key=lambda pending: -sum(pending_records.reserved_bytes for pending_records in pending)
    )
    named = "; ".join(_holder(pending, now) for pending in most[:NAMED_PARTITIONS])
    others = len(most) - NAMED_PARTITIONS
    return named + (f"; and {others} other partitions" if others > 0 else "")


def _holder(pending: list[PendingRecords], now: float) -> str:
    """One partition's share of the buffer, in words for an error's text: how many bytes, since when, what is in flight
    and the last error, or that the topic has no metadata yet."""
    first = pending[0]
    held = sum(pending_records.reserved_bytes for pending_records in pending)
    age = f"the oldest for {max(now - min(pending_records.created_at for pending_records in pending), 0):.1f} s"
    if isinstance(first, UnassignedRecords):
        return f"topic {first.topic}, whose partitions are not known yet ({held} bytes, {age})"
    assert isinstance(first, ProducerBatch)
    queue = first.queue
    where = f"{len(queue.in_flight)} of them unanswered by node {queue.node}" if queue.in_flight else "none in flight"
    last = next(
        (
            pending_records.last_error
            for pending_records in pending
            if isinstance(pending_records, ProducerBatch) and pending_records.last_error
        ),
        None,
    )
    return (
        f"{first.topic}-{first.partition} ({held} bytes in {len(pending)} batches, {where}, {age}"
        + (f", last error: {last!r}" if last is not None else "")
        + ")"
    )


def watch_batches(producer: KafkaProducer, on_done: Callable[[str, int, BaseException | None], object]) -> None:
    """Call ``on_done(topic, count, error)`` when the ``count`` records of a batch are acknowledged (``error`` None), or
    have failed: for each record that is sent from now on once, at the price of one callback for each batch.

    It runs on the thread of the producer's loop and must not block. One watcher for each producer.
    """

    def on_begun(pending_records: PendingRecords) -> None:
        pending_records.done.add_both(on_outcome, pending_records)

    def on_outcome(pending_records: PendingRecords, outcome: object) -> None:
        if pending_records.forward is None:  # else its records are in other batches, which were begun, too
            error = outcome if isinstance(outcome, BaseException) else None
            on_done(pending_records.topic, pending_records.records_count, error)

    producer._accumulator.watch(on_begun)


def has_room(producer: KafkaProducer) -> bool:
    """Whether at least half of ``buffer_memory`` is free, so that ``send`` of a record of no more than that does not
    wait for memory."""
    memory = producer._accumulator.memory
    return memory.used_bytes * 2 <= memory.limit_bytes


def transaction_trouble(producer: KafkaProducer) -> KafkaError | None:
    """Why the request of a transaction that is under way is tried again, if it is. From any thread."""
    transactions = producer._transactions
    return None if transactions is None else transactions.last_error


Self = TypeVar("Self", bound="KafkaProducer")

_living: weakref.WeakSet[KafkaProducer] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for producer in list(_living):
        producer._renew_lock()  # the thread that held it, if one did, is not there to let it go
        producer._refuse(FORKED_ERROR)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


_SIZE_MARGIN = 128
"""More than a batch's header and a record's lengths take."""


class KafkaProducer(RecordSender, HasTelemetry):
    """Sends records to topics. :meth:`send` may be called from any thread.

    ``configs``: see the reference of settings; ``bootstrap_servers`` is the one that is always needed. Without ``loop``
    the producer has a loop of its own in an I/O thread. With ``loop``, a :class:`kafka.net.loop.Loop`, it lives there
    beside others, has no thread, and is to be used on that loop's thread: results come through callbacks, and calls
    that would wait (``flush``, ``partitions_for``, a future's ``get``) are refused with IllegalStateError; use
    :meth:`flush_async`. With ``client``, a KafkaClient, it shares that client, its loop and its connections.

    Errors of construction: KafkaConfigurationError for a setting that is unknown or cannot be.
    """

    DEFAULT_CONFIG: Final = defaults("producer")
    """All settings with their defaults."""
    DEPRECATED_CONFIGS: Final = ()

    _transactions: Transactions | None = None

    def __init__(self, *, loop: Loop | None = None, client: KafkaClient | None = None, **configs: Any) -> None:
        settings = resolve("producer", configs)
        check_together(settings, configs)
        self._settings = settings
        self._config = as_given(settings, configs)
        self._key_serializer = serializer_for("key_serializer", settings["key_serializer"])
        self._value_serializer = serializer_for("value_serializer", settings["value_serializer"])
        self._shares_headers = any(takes_headers(settings[name]) for name in ("key_serializer", "value_serializer"))
        self._max_request_size: int = settings["max_request_size"]
        self._buffer_memory: int = settings["buffer_memory"]
        self._large_bytes = min(self._max_request_size, self._buffer_memory) - _SIZE_MARGIN
        self._interceptors = Interceptors(settings["interceptors"]) if settings["interceptors"] else None
        lock = self._make_lock()
        self._host = make_host("producer", settings, loop, client)
        self._refusal: str | None = None
        """Why nothing may be sent any more: closed, or the parent's after a fork."""
        self._topics = {}
        self._known_topics: dict[str, TopicQueues] = {}
        """What ``_topics`` is while records may be sent."""
        _living.add(self)
        transactional_id = settings["transactional_id"]
        machine = None if transactional_id is None else TransactionManager(transactional_id)
        self._driver = driver = ProducerDriver(settings, self._host, lock, machine)
        self._accumulator, self._sender = driver.accumulator, driver.sender
        transactions = None
        if machine is not None:
            transactions = Transactions(
                self._host.client, machine, driver.sender, driver.when_answered, driver.pump_soon, settings
            )
            driver.on_pumped = transactions.pump
        self._last_index = self._accumulator.last_index
        self._places = self._accumulator.partitioning.asks_always
        """Whether the partitioner is asked even for records without a key."""
        self._wants_objects = self._accumulator.partitioning.wants_objects
        # With interceptors it stays empty: each `send` then takes the slow path, which calls them.
        if self._interceptors is None:
            self._known_topics = self._accumulator.topics
        self._attach(transactions)
        metrics = driver.metrics
        resource = {"transactional_id": settings["transactional_id"] or ""}
        self._begin_telemetry(self._host, settings, metrics.raw if metrics is not None else dict, lambda: resource)

    # -- sending -------------------------------------------------------------------------------------------------------

    if TYPE_CHECKING:  # what may be handed in; see Sending.send, which looks at it

        def send(
            self,
            topic: str,
            value: Any = None,
            key: Any = None,
            headers: Any = None,
            partition: int | None = None,
            timestamp_ms: int | None = None,
        ) -> FutureRecordMetadata: ...

    def _admit_or_send(
        self,
        topic: Any,
        value: Any = None,
        key: Any = None,
        headers: Any = None,
        partition: Any = None,
        timestamp_ms: Any = None,
    ) -> TopicQueues | FutureRecordMetadata:
        self._check_may_send()
        if self._interceptors is not None and not isinstance(topic, TopicQueues):
            return self._send_through(
                self._interceptors, ProducerRecord(topic, value, key, headers, partition, timestamp_ms)
            )
        return self._admit(topic)

    def _admit(self, topic: Any) -> TopicQueues:
        """The queues of a topic that is new, or has no partitions yet, or the reason why nothing may be sent."""
        self._check_usable()
        name = topic.name if isinstance(topic, TopicQueues) else topic_name(topic)
        if self._sender.error is not None:
            raise self._sender.error
        found = self._accumulator.topics.get(name)
        if found is None:
            found = self._accumulator.topics.setdefault(name, TopicQueues(name))
        if not found.queues:
            if self._may_block:
                run: Callable[..., Any] = self._driver.learn
                self._host.call(run, found)
            else:
                self._driver.learn(found)
        return found

    def _append_unassigned(
        self, queues: TopicQueues, timestamp: int, key: bytes | None, value: bytes | None, headers: Any,
        partition: Any, given: Any,
    ) -> FutureRecordMetadata:  # fmt: skip
        try:
            unassigned, index = self._accumulator.append_unassigned(
                queues, timestamp, key, value, headers, partition, given
            )
        except BufferFull as full:
            raise no_memory(self._accumulator, full, queues.name, None) from None
        return FutureRecordMetadata(unassigned, index, timestamp, *sizes_of(key, value, headers))

    def _append_when_there_is_room(self, full: BufferFull, record: Any) -> tuple[ProducerBatch, int]:
        if not self._may_block:
            raise no_memory(self._accumulator, full, record[0].name, None) from None
        return append_when_memory_is_free(
            self._accumulator, full, self._settings["max_block_ms"], self._check_usable, record
        )

    def _send_through(self, interceptors: Interceptors, given: ProducerRecord) -> FutureRecordMetadata:
        """:meth:`send` of a producer with interceptors. It comes here since ``_topics`` is empty then, always; and goes
        back with the queues in the topic's place."""
        record = interceptors.on_send(given)
        try:
            queues: Any = self._admit(record.topic)
            future = RecordSender.send(self, queues, *record[1:])
        except Exception as error:
            interceptors.refused(record, error)
            raise
        interceptors.watch(record, future)
        return future

    def _check_size(self, key: bytes | None, value: bytes | None, headers: Any) -> None:
        size = max_record_bytes(key, value, headers)
        for name, limit in (("max_request_size", self._max_request_size), ("buffer_memory", self._buffer_memory)):
            if size > limit:
                raise MessageSizeTooLargeError(f"a record of {size} bytes is larger than {name}={limit}")

    @property
    def config(self) -> dict[str, Any]:
        """All settings as they are in force, by name: a copy. ``bootstrap_servers`` as they were given."""
        return dict(self._config)

    def _closed(self) -> None:
        if not self._may_block:
            self._end_telemetry()
        if self._interceptors is not None:
            self._interceptors.close()
        for name in ("key_serializer", "value_serializer"):
            close = getattr(self._settings[name], "close", None)
            if callable(close) and not isinstance(self._settings[name], type):
                try:
                    close()
                except Exception:
                    log.exception("close of %s raised; ignoring it", name)

    # -- looking ------------------------------------------------------------------------------------------------------

    def partitions_for(self, topic: str) -> set[int]:
        """The numbers of the topic's partitions. Waits for metadata, like ``send``; errors as there."""
        queues = self._topics.get(topic)
        if queues is None or not queues.queues:
            self._check_usable()
            self._guard()
            queues = self._admit(topic)
        return set(range(len(queues.queues)))

    def bootstrap_connected(self) -> bool:
        """Whether the cluster's metadata has been read."""
        return bool(self._host.client.cluster.brokers())

    def metrics(self, raw: bool = False) -> dict[Any, Any]:
        """What was measured, as ``{group: {name: number}}`` with kafka-python's names; ``raw``: the metrics themselves,
        as ``{MetricName: KafkaMetric}``. Empty with ``metrics_enabled=False``. See ``kafka/producer/metrics.py``."""
        metrics = self._driver.metrics
        if metrics is None:
            return {}
        return metrics.raw() if raw else metrics.by_group()

    # -- waiting -------------------------------------------------------------------------------------------------------

    def flush(self, timeout: float | None = None) -> None:
        """Send everything that is here, and wait until each record was delivered or has failed.

        ``timeout`` in seconds: KafkaTimeoutError when it passes, and the rest goes on. Errors of records are their
        futures', not this call's. After :meth:`close` there is nothing to wait for. IllegalStateError on the thread of
        the loop: see :meth:`flush_async`.
        """
        check_seconds(timeout)
        if self._is_over():
            return
        self._check_usable()
        self._guard()
        run: Callable[..., Any] = self._driver.when_answered
        try:
            self._host.call(run, timeout_s=timeout)
        except KafkaTimeoutError:
            count = len(self._accumulator.incomplete)
            why = self._driver.sender.why_unanswered()
            raise KafkaTimeoutError(f"flush: {count} batches were not answered within {timeout} s{why}") from None

    def flush_async(self) -> Future[None]:
        """On the loop: send everything that is here; done when each record was delivered or has failed."""
        if self._is_over():
            return Future[None]().success(None)
        self._check_usable()
        return self._driver.when_answered()

    # -- the end -------------------------------------------------------------------------------------------------------

    def _close_sending(self, timeout: float | None) -> None:
        """:meth:`close` once no transaction is open."""
        if self._refusal is not None:
            return
        if not self._may_block:
            if timeout != 0:
                self._guard()
            self._finish()
            return
        self._refuse(PRODUCER_CLOSED)
        run: Callable[..., Any] = self._driver.when_answered
        try:
            if timeout != 0:
                self._host.call(run, timeout_s=timeout)
        except KafkaTimeoutError:
            pass
        finally:
            self._end_telemetry(timeout)
            self._host.call(self._driver.close)
            self._host.close()
            self._closed()

    def _close_sending_async(self) -> Future[None]:
        """:meth:`close_async` once no transaction is open."""
        done: Future[None] = Future()
        if self._refusal is not None:
            return done.success(None)
        answered = self._driver.when_answered()
        self._refuse(PRODUCER_CLOSED)
        last: Future[None] = Future()
        answered.add_both(lambda _: self._finish_telemetry().chain(last))

        def finish(_: object) -> None:
            self._driver.close()
            self._host.close()
            self._closed()
            done.success(None)

        last.add_both(finish)
        return done

    def _finish(self) -> None:
        self._refuse(PRODUCER_CLOSED)
        self._driver.close()
        self._host.close()
        self._closed()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- inside --------------------------------------------------------------------------------------------------------

    @property
    def _may_block(self) -> bool:
        return not self._host.loop.in_loop_thread()

    def _guard(self) -> None:
        """Raise where waiting would wait for ever."""
        self._host.check_may_block()

    def _is_over(self) -> bool:
        """Closed, and every record has its end. (In the child of a fork, none of them has.)"""
        return self._refusal == PRODUCER_CLOSED and not self._accumulator.incomplete

    def _check_usable(self) -> None:
        if self._refusal is not None:
            raise IllegalStateError(self._refusal)

    def _renew_lock(self) -> None:
        self._accumulator.use_lock(self._make_lock())

    def _refuse(self, why: str) -> None:
        if self._refusal is None:
            self._refusal = why
            self._topics = {}

    # -- transactions --------------------------------------------------------------------------------------------------

    def init_transactions(self) -> None:
        """Take the transactional id over: the previous producer is fenced, and its open transaction is ended. To be
        called once, before the first transaction.

        Errors: KafkaTimeoutError after ``max_block_ms`` (call it again); AuthorizationError (call it again when the
        permission was given); FatalTransactionError, such as for a ``transaction_timeout_ms`` above the broker's
        ``transaction.max.timeout.ms``.
        """
        self._run_operation("init_transactions")

    def begin_transaction(self) -> None:
        """From here on records belong to a transaction. IllegalStateError when that cannot be now."""
        transactions = self._its_transactions()
        if self._may_block:
            self._host.call(transactions.begin)
        else:
            transactions.begin()
        self._accept_records()
        if not transactions.is_sending:  # an error has closed it meanwhile
            self._refuse_records()

    def commit_transaction(self) -> None:
        """Deliver all records of the transaction and commit it; returns when it is committed.

        Errors: AbortableTransactionError (a record, or the commit, has failed: abort the transaction);
        FatalTransactionError (close the producer); KafkaTimeoutError after ``max_block_ms``: call it again, the
        transaction may have been committed by then.
        """
        self._run_operation("commit_transaction")

    def abort_transaction(self) -> None:
        """Drop what was not sent, wait for what was, and abort the transaction. Records that were not sent fail with
        TransactionAbortedError. Errors: FatalTransactionError; KafkaTimeoutError after ``max_block_ms``: call it again.
        """
        self._run_operation("abort_transaction")

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, Any], group_metadata: Any = None, *, consumer_group_id: Any = None
    ) -> None:
        """Make a group's offsets part of the transaction: they count as committed if it is.

        ``offsets``: partition -> the offset to read next, as OffsetAndMetadata, as a tuple that begins like one, or as
        a number. ``group_metadata``: a :class:`~kafka.structs.ConsumerGroupMetadata` (the member is then checked, and
        one that has left its group is refused: KIP-447), or the group's id (``consumer_group_id`` in kafka-python 2).

        Errors: IllegalArgumentError; AbortableTransactionError, also when the group has moved on;
        FatalTransactionError; KafkaTimeoutError after ``max_block_ms``, when the offsets may or may not be part of it.
        """
        transactions = self._its_transactions()
        checked, group = committed_offsets(offsets), group_of(group_metadata, consumer_group_id)
        send: Callable[..., Future[None]] = transactions.send_offsets
        self._wait("send_offsets_to_transaction", send, checked, group)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction around a block: committed at its end, aborted when the block, or the commit, raises. What was
        raised goes on, but for an abortable error whose abort shows that it is worse: then that is raised.

        A block may end its transaction by itself. A commit that timed out is not aborted: :meth:`commit_transaction`.
        """
        self.begin_transaction()
        try:
            yield
            if not self._its_transactions().is_ended:
                self.commit_transaction()
        except BaseException as error:
            fatal = self._abort_if_open()
            if fatal is not None and isinstance(error, TransactionError):
                raise fatal from error
            raise

    # -- on the loop's thread ------------------------------------------------------------------------------------------

    def init_transactions_async(self) -> Future[None]:
        """On the loop: :meth:`init_transactions`."""
        return self._start_operation("init_transactions")

    def commit_transaction_async(self) -> Future[None]:
        """On the loop: :meth:`commit_transaction`."""
        return self._start_operation("commit_transaction")

    def abort_transaction_async(self) -> Future[None]:
        """On the loop: :meth:`abort_transaction`."""
        return self._start_operation("abort_transaction")

    def send_offsets_to_transaction_async(
        self, offsets: Mapping[TopicPartition, Any], group_metadata: Any = None, *, consumer_group_id: Any = None
    ) -> Future[None]:
        """On the loop: :meth:`send_offsets_to_transaction`."""
        checked, group = committed_offsets(offsets), group_of(group_metadata, consumer_group_id)
        return self._its_transactions().send_offsets(checked, group)

    # -- the end -------------------------------------------------------------------------------------------------------

    def close(self, timeout: float | None = None) -> None:
        """Deliver what is here, for at most ``timeout`` seconds (None: as long as it takes), and stop. What is left
        then fails with Cancelled. Any number of times. A transaction that is open is aborted first, for at most
        ``timeout`` and ``max_block_ms``; if that is not enough, the broker does it after ``transaction_timeout_ms``.

        On the thread of a loop that was given it does not wait: only ``timeout=0`` is taken there, and
        :meth:`close_async` closes in good order.
        """
        check_seconds(timeout)
        transactions = self._transactions
        if transactions is not None and self._refusal is None and timeout != 0 and self._may_block:
            self._refuse_records()
            began = time.monotonic()
            limit_s: float = self._settings["max_block_ms"] / 1000
            finish: Callable[..., Future[None]] = transactions.finish
            with contextlib.suppress(KafkaError):
                self._host.call(finish, timeout_s=limit_s if timeout is None else min(timeout, limit_s))
            if timeout is not None:
                timeout = max(timeout - (time.monotonic() - began), 0.0)
        self._close_sending(timeout)

    def close_async(self) -> Future[None]:
        """On the loop: take no more records, deliver what is here, and stop. The future is done then. A transaction
        that is open is aborted first."""
        transactions = self._transactions
        if transactions is None or self._refusal is not None:
            return self._close_sending_async()
        self._refuse_records()
        done: Future[None] = Future()
        transactions.finish().add_both(lambda _: self._close_sending_async().chain(done))
        return done

    # -- inside --------------------------------------------------------------------------------------------------------

    def _attach(self, transactions: Transactions | None) -> None:
        """Begin without a transaction, when the producer is to have some; else with all topics."""
        self._transactions = transactions
        if transactions is None:
            self._accept_records()
            return
        itself = weakref.ref(self)  # the loop's thread may not hold the producer

        def refuse_records() -> None:
            producer = itself()
            if producer is not None:
                producer._refuse_records()

        transactions.call_when_closed(refuse_records)

    def _accept_records(self) -> None:
        if self._refusal is None:
            self._topics = self._known_topics

    def _refuse_records(self) -> None:
        self._topics = {}

    def _check_may_send(self) -> None:
        """Raise when records are to be part of a transaction, and cannot."""
        if self._transactions is not None and self._refusal is None:
            self._transactions.machine.check_sending()

    def _its_transactions(self) -> Transactions:
        self._check_usable()
        if self._transactions is None:
            raise IllegalStateError("this producer has no transactions: it was made without transactional_id")
        return self._transactions

    def _run_operation(self, name: str) -> None:
        transactions = self._its_transactions()
        run: Callable[..., Future[None]] = transactions.run
        try:
            self._wait(name, run, name)
        except KafkaTimeoutError as error:
            if isinstance(error, TransactionError):  # a record's, and not this call's
                transactions.mark_signalled(name)
            raise
        except KafkaError:
            transactions.mark_signalled(name)
            raise
        transactions.mark_signalled(name)

    def _start_operation(self, name: str) -> Future[None]:
        transactions = self._its_transactions()
        future = transactions.run(name)
        transactions.mark_signalled(name, by_future=True)
        return future

    def _wait(self, name: str, run: Callable[..., Future[None]], *args: Any) -> None:
        limit_ms = self._settings["max_block_ms"]
        self._guard()
        future = self._host.submit(run, *args)
        if not future.wait(limit_ms / 1000):
            last = self._its_transactions().last_error
            why = "" if last is None else f"; last: {last}"
            raise KafkaTimeoutError(f"{name}: not done within max_block_ms={limit_ms}; it goes on, call it again{why}")
        future.result()

    def _abort_if_open(self) -> FatalTransactionError | None:
        transactions = self._transactions
        if transactions is not None and self._refusal is None and transactions.machine.is_open:
            try:
                self.abort_transaction()
            except FatalTransactionError as error:
                return error
            except KafkaError as error:  # its text alone: a cause may be a user's error, with a secret of theirs
                log.warning("cannot abort the transaction, the broker will when it times out: %s", error)
        return None
