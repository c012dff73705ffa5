"""KafkaShareConsumer: what users call. It checks arguments and blocks; ``driver.py`` does the work on the loop, and
``fetch_buffer.py`` passes records and acknowledgements between the threads.

Two ways to use it::

    consumer = KafkaShareConsumer("jobs", group_id="workers", bootstrap_servers="broker:9092")
    for partition, records in consumer.poll(1000).items():      # implicit: the next poll() accepts these
        ...
    for record in consumer:                                     # implicit: asking for the next one accepts this one
        ...

and on a loop of the caller's, where nothing blocks and records come by themselves::

    consumer = KafkaShareConsumer("jobs", group_id="workers", loop=loop, on_records=take, on_lost=give_up)
    consumer.request_records(500)
    consumer.acknowledge(record, AcknowledgeType.ACCEPT)        # any order, while others are still held
"""

from __future__ import annotations

import base64
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from types import TracebackType
from typing import Any, Final

from kafka import validation
from kafka.client import KafkaClient, make_host
from kafka.client.telemetry import HasTelemetry
from kafka.config import resolve
from kafka.core.share.acknowledgements import AcquiredRecords
from kafka.core.share.membership import ShareMemberState
from kafka.core.share.records import ShareRecord, consecutive_runs
from kafka.errors import IllegalArgumentError, IllegalStateError, KafkaConfigurationError, KafkaError, KafkaTimeoutError
from kafka.future import Future
from kafka.net.loop import Loop
from kafka.protocol.constants import AcknowledgeType
from kafka.share.driver import CLOSE_TIMEOUT_S, ShareConsumerDriver
from kafka.share.fetch_buffer import (
    CommitCallback,
    Deserializers,
    OnAcknowledged,
    OnError,
    OnLost,
    OnRecords,
    ShareEventDispatcher,
    ShareFetchBuffer,
    ThreadedPolling,
)
from kafka.share.metrics import ShareMetrics
from kafka.structs import TopicPartition


def _acknowledge_type(type: AcknowledgeType) -> AcknowledgeType:
    try:
        kind = AcknowledgeType(type)
    except ValueError:
        raise IllegalArgumentError(f"{type!r}: ACCEPT, RELEASE, REJECT or RENEW") from None
    if kind is AcknowledgeType.GAP:
        raise IllegalArgumentError("GAP is for offsets without a record")
    return kind


log = logging.getLogger(__name__)

FETCH_WAIT_MS: Final = (10, 500)
"""Limits of a long poll. A record that another member releases does not complete it, so that record is found so much
later; without a wait an idle consumer would fetch without pause.
"""


class KafkaShareConsumer(HasTelemetry):
    """A member of a share group (KIP-932): Apache Kafka 4.2 and later, and the embedded broker.

    Each record is handed to one member of the group at a time, under a lock, and counts as done when it is
    acknowledged: ACCEPT (processed), RELEASE (not processed: deliver it again), REJECT (never deliver it again), RENEW
    (extend the lock). Records may be acknowledged in any order. A record that is not acknowledged in time is delivered
    again, until the group's ``share.delivery.count.limit``; after that the broker archives it silently.

    A new group starts at the *end* of its topics unless its setting ``share.auto.offset.reset`` says ``earliest``
    before its first member joins (``KafkaAdminClient.alter_configs``).

    Without ``loop`` it has a loop of its own in an I/O thread, and its methods may be called from any thread. With
    ``loop`` or ``client`` it lives there beside others and is used on that loop's thread: no call blocks, and
    ``on_records``, ``on_acknowledged``, ``on_lost`` and ``on_error`` are called there; what they raise is logged.
    ``on_trouble`` gets the errors that do not end it: records that cannot be read, a group that is full.
    Deserializers belong to :meth:`poll` and are refused. ``look_every_s`` above 0: the consumer fetches so often
    (seconds), and brokers respond at once instead of waiting for records. Apache Kafka notices a closed connection only
    after it has responded to the waiting fetch, and until then delivers records to a dead process; these are delivered
    again with one more delivery counted. :meth:`look` fetches at once.

    ``acknowledgement_commit_callback``: see :meth:`set_acknowledgement_commit_callback`.

    Errors of construction: KafkaConfigurationError for an unknown or invalid setting, or without ``group_id``.
    """

    def __init__(
        self,
        *topics: str,
        loop: Loop | None = None,
        client: KafkaClient | None = None,
        on_records: OnRecords | None = None,
        on_acknowledged: OnAcknowledged | None = None,
        on_lost: OnLost | None = None,
        on_error: OnError | None = None,
        on_trouble: OnError | None = None,
        acknowledgement_commit_callback: CommitCallback | None = None,
        look_every_s: float = 0.0,
        **configs: Any,
    ) -> None:
        settings = resolve("share", configs)
        if settings["group_id"] is None:
            raise KafkaConfigurationError("group_id: a share consumer needs the name of its group")
        validation.topic_names(topics)  # before a thread is started
        self._has_thread = loop is None and client is None
        self._buffer = ShareFetchBuffer()
        deserializers = Deserializers(settings["key_deserializer"], settings["value_deserializer"], self._buffer)
        if not self._has_thread and deserializers:
            raise KafkaConfigurationError("key_deserializer, value_deserializer: on a loop, records come as bytes")
        self._max_poll_records: int = settings["max_poll_records"]
        self._topics: list[str] = []
        self._events = ShareEventDispatcher(
            self._buffer if self._has_thread else None,
            acknowledgement_commit_callback,
            on_records=on_records,
            on_acknowledged=on_acknowledged,
            on_lost=on_lost,
            on_error=on_error,
            on_trouble=on_trouble,
        )
        self._host = make_host("share consumer", settings, loop=loop, client=client)
        settings["client_rack"] = settings["client_rack"] or self._host.client.config["client_rack"]
        if self._has_thread:
            self._host.client.log_when_unreachable()
        self._driver = ShareConsumerDriver(
            self._host.client,
            self._events,
            settings["group_id"],
            base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode(),
            rack_id=settings["client_rack"],
            fetch_max_bytes=settings["fetch_max_bytes"],
            fetch_max_wait_ms=min(max(settings["fetch_max_wait_ms"], FETCH_WAIT_MS[0]), FETCH_WAIT_MS[1]),
            check_crcs=settings["check_crcs"],
            look_every_s=look_every_s,
        )
        self._metrics: ShareMetrics | None = None
        if settings["metrics_enabled"]:
            self._metrics = ShareMetrics(self._host.client, settings)
            self._events.measure(self._metrics)
        self._polling = ThreadedPolling(
            self._host,
            self._driver,
            self._buffer,
            self._events,
            deserializers,
            self._metrics,
            is_implicit=settings["share_acknowledgement_mode"] == "implicit",
            exactly=settings["share_acquire_mode"] == "record_limit",
        )
        metrics = self._metrics
        attributes = {
            "group_id": settings["group_id"],
            "group_member_id": self._driver.member_id,
            "client_rack": settings["client_rack"],
        }
        self._begin_telemetry(self._host, settings, metrics.raw if metrics is not None else dict, lambda: attributes)
        if topics:
            self.subscribe(topics)

    # -- subscription --------------------------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read these topics instead of the former subscription. TypeError for a name that is not a text,
        IllegalArgumentError for an invalid one."""
        names = validation.topic_names(topics)
        if not names:
            raise IllegalArgumentError("subscribe() needs at least one topic; call unsubscribe() to stop reading")
        self._check_open()
        self._topics = names
        self._buffer.forget_error()
        self._on_loop(self._driver.subscribe, names)

    def unsubscribe(self) -> None:
        """Read nothing until the next :meth:`subscribe`; held records can still be acknowledged."""
        self._check_open()
        self._topics = []
        self._on_loop(self._driver.subscribe, [])

    def subscription(self) -> set[str]:
        """The subscribed topics."""
        return set(self._topics)

    # -- records -------------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> dict[TopicPartition, list[ShareRecord]]:
        """Records by partition, as soon as there are some, or {} after ``timeout_ms``.

        At most ``max_records`` (default: ``max_poll_records``) are returned; further ones are returned next time. In
        implicit mode the records of the last call that were not acknowledged are accepted first.

        Raises the error that ended the membership (KafkaError), errors of some records (no rights, a missing codec,
        corrupt data) once each time, IllegalStateError when closed or on the loop's own thread. Exceptions of a
        deserializer are raised; its record is released and delivered again, to this or another member, until the
        group's limit. Records before it are returned first, records after it next time.
        """
        count = min(validation.max_records(max_records, self._max_poll_records), self._max_poll_records)
        timeout_s = validation.timeout_s(timeout_ms, 0.0)
        by_partition: dict[TopicPartition, list[ShareRecord]] = {}
        for run in consecutive_runs(self._take(count, count, timeout_s)):
            partition = TopicPartition(run[0].topic, run[0].partition)
            if partition in by_partition:
                by_partition[partition] += run
            else:
                by_partition[partition] = run
        return by_partition

    def __iter__(self) -> Iterator[ShareRecord]:
        """Record by record, for ever: until :meth:`close` or :meth:`wakeup`. Errors are those of :meth:`poll`.

        In implicit mode a record is accepted when the next one is asked for; acknowledgements go to the broker several
        at a time.
        """
        return self

    def __next__(self) -> ShareRecord:
        while not self._buffer.is_closed:
            self._check_may_take()
            one = self._polling.take_one()
            if one is not None:
                return one
            for record in self._take(1, self._max_poll_records, inf):
                return record
            break  # woken, or closed while it waited
        raise StopIteration

    def request_records(self, count: int, exactly: bool = False) -> None:
        """On a loop: request ``count`` more records, replacing the former request; 0: none. ``on_records`` gets them.
        ``exactly``: never more (record-limit mode, KIP-1206); else whole batches come, which may have more.
        """
        self._check_open()
        self._driver.request_records(count, exactly)

    def look(self) -> None:
        """On a loop, with ``look_every_s``: fetch now, if records are requested."""
        self._check_open()
        self._driver.look()

    def quiet_async(self) -> Future[None]:
        """On a loop: request no more records. The future is done when no fetch is in flight; until then ``on_records``
        gets records, which :meth:`close_async` would give back with one more delivery counted.
        """
        self._check_open()
        return self._driver.quiet()

    def wakeup(self) -> None:
        """Make a waiting :meth:`poll`, or the next one, return at once. From any thread."""
        self._buffer.wake()

    # -- the rest ------------------------------------------------------------------------------------------------------

    def metrics(self, raw: bool = False) -> dict[Any, Any]:
        """The metrics, as ``{group: {name: number}}`` with the names of Java's share consumer; ``raw``: the
        metrics themselves, as ``{MetricName: KafkaMetric}``. Empty with ``metrics_enabled=False``. See
        ``kafka/share/metrics.py``."""
        if self._metrics is None:
            return {}
        return self._metrics.raw() if raw else self._metrics.by_group()

    @property
    def lock_s(self) -> float:
        """Length of a lock in seconds, by the broker's last response."""
        return self._driver.lock_s

    @property
    def answered_at(self) -> float | None:
        """The time of the last successful heartbeat or fetch, by the loop's clock (monotonic seconds); None before the
        first. When it is older than two of :attr:`heartbeat_interval_s`, no broker responds."""
        return self._driver.answered_at

    @property
    def heartbeat_interval_s(self) -> float:
        """Seconds between heartbeats, by the coordinator's last response."""
        return self._driver.heartbeat_interval_s

    @property
    def member_id(self) -> str:
        """This member's id in its group."""
        return self._driver.member_id

    @property
    def has_joined(self) -> bool:
        """Whether a heartbeat of this member has succeeded."""
        return self._driver.state is ShareMemberState.STABLE

    def close(self, timeout_ms: float = CLOSE_TIMEOUT_S * 1000) -> None:
        """Send the last acknowledgements (in implicit mode: of all polled records), give back held records, leave the
        group. May be called again. On a loop's own thread use :meth:`close_async`.
        """
        timeout_s = validation.timeout_s(timeout_ms, CLOSE_TIMEOUT_S)
        if not self._host.loop.is_usable:  # closed, or a fork of the parent
            self._buffer.mark_closed()
            self._host.close()
            return
        try:
            self._host.check_may_block()
        except IllegalStateError:
            if self._buffer.is_closed:  # by another thread, just now
                return
            raise
        if not self._buffer.close():
            return
        try:
            self._host.wait(self._polling.submit(self._driver.close, timeout_s), timeout_s + 1)
        except KafkaTimeoutError:
            log.warning("closing the consumer took longer than %g s; continuing without waiting", timeout_s + 1)
        finally:
            self._end_telemetry(timeout_s)
            self._stop_counting()
            self._host.close(timeout_s + 1)
        self._polling.call_back()

    def close_async(self, timeout_s: float = CLOSE_TIMEOUT_S) -> Future[None]:
        """The same without waiting; the future is done when the member has left the group."""
        self._buffer.close()
        close = self._driver.close
        done = self._polling.submit(close, timeout_s) if self._has_thread else close(timeout_s)

        def left(_: object) -> None:
            self._finish_telemetry().add_both(closed)

        def closed(_: object) -> None:
            self._end_telemetry()
            self._stop_counting()
            self._host.close()

        return done.add_both(left)

    def __enter__(self) -> KafkaShareConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self._buffer.forget_polled()  # an exception left the block: unfinished records are given back
        self.close()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _take(self, count: int, demand: int, timeout_s: float) -> list[ShareRecord]:
        """At most ``count`` records; when there are none, ``demand`` records are requested."""
        self._check_may_take()
        return self._polling.take(count, demand, timeout_s)

    def _check_may_take(self) -> None:
        self._check_open()
        if not self._has_thread:
            raise IllegalStateError("on a loop records come through on_records=, after request_records()")
        self._host.check_may_block()
        if not self._topics:
            raise IllegalStateError("no topics: call subscribe() before poll()")

    def _stop_counting(self) -> None:
        metrics = self._events.metrics
        self._events.measure(None)
        if metrics is not None:
            metrics.close()

    def _on_loop(self, fn: Callable[..., Any], *args: Any) -> None:
        if self._has_thread:
            self._host.submit(fn, *args)
        else:
            fn(*args)

    # -- acknowledgements
    # ------------------------------------------------------------------------------------------------

    def acknowledge(self, record: ShareRecord, type: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """Acknowledge a record. Acknowledgements are sent together soon; :meth:`commit` waits for them.

        IllegalStateError when the record was acknowledged before or its lock is lost, and in implicit mode, where the
        next poll accepts it; IllegalArgumentError for an invalid type.
        """
        kind = _acknowledge_type(type)
        self._check_open()
        if not self._has_thread:
            self._driver.acknowledge(record, kind)
            return
        self._check_explicit()
        self._check_ours(record)
        self._polling.acknowledge_later(record, kind)

    def acknowledge_all(
        self, records: Sequence[ShareRecord], type: AcknowledgeType = AcknowledgeType.ACCEPT
    ) -> list[ShareRecord]:
        """:meth:`acknowledge` for many at once, at a fraction of its cost; returns the records that were acknowledged
        before or whose locks are lost. Other errors are as there.
        """
        kind = _acknowledge_type(type)
        self._check_open()
        if not self._has_thread:
            return [record for refused, _ in self._driver.acknowledge_all(records, kind) for record in refused]
        self._check_explicit()
        for record in records:
            self._check_ours(record)
        return self._polling.acknowledge_all_later(records, kind)

    def acknowledge_offset(
        self, topic: str, partition: int, offset: int, type: AcknowledgeType = AcknowledgeType.ACCEPT
    ) -> None:
        """:meth:`acknowledge` for a record by its offset. IllegalStateError when it is not held."""
        self._check_open()
        find = self._driver.find
        record = self._host.call(find, topic, partition, offset) if self._has_thread else find(topic, partition, offset)
        if record is None or self._buffer.has(record):
            raise IllegalStateError(f"{topic}:{partition}:{offset} cannot be acknowledged: it is not held")
        self.acknowledge(record, type)

    def set_acknowledgement_commit_callback(self, callback: CommitCallback | None) -> None:
        """Call ``callback(offsets, exception)`` when acknowledgements have got a response, instead of the former
        callback.

        ``offsets``: ``{partition: {offset, ...}}`` of one partition; ``exception``: None, or the KafkaError that
        refused them (the records are delivered again). Called in the thread that polls, commits or closes, within that
        call, which raises its exceptions; on a loop it is called there, and its exceptions are logged. Source: KIP-932,
        Java's ``setAcknowledgementCommitCallback``.
        """
        if callback is not None and not callable(callback):
            raise TypeError(f"callback: {callback!r} is not callable")
        self._events.set_commit_callback(callback)

    def renew(self, records: Sequence[ShareRecord]) -> Future[None]:
        """Renew the locks of these records (KIP-1222); the future is done when the broker has responded. Records that
        it refused are lost: ``record.lost``, and ``on_acknowledged`` has the error. Records that were lost before are
        ignored.
        """
        if self._has_thread:
            self._check_explicit()
        for record in records:
            if not record.lost:
                self.acknowledge(record, AcknowledgeType.RENEW)
        return self.commit_async()

    def commit(self, timeout_ms: float | None = None) -> dict[TopicPartition, KafkaError | None]:
        """Send acknowledgements (in implicit mode: of all polled records), and wait for the responses.

        Returns the outcome of each partition since the last call: None, or the error of a record whose acknowledgement
        was refused (it will be delivered again): InvalidRecordStateError if the lock had expired. KafkaTimeoutError
        when ``timeout_ms`` passes first.
        """
        timeout_s = None if timeout_ms is None else validation.timeout_s(timeout_ms, 0.0)
        self._check_open()
        self._host.check_may_block()
        self._host.wait(self.commit_async(), timeout_s)
        self._polling.call_back()
        return self._buffer.take_outcomes()

    commit_sync = commit

    def commit_async(self) -> Future[None]:
        """Send acknowledgements (in implicit mode: of all polled records); the future is done when all have got
        responses."""
        self._check_open()
        if not self._has_thread:
            return self._driver.flush()
        return self._polling.submit(self._driver.flush)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._buffer.is_closed:
            raise IllegalStateError("the share consumer is closed")
        if not self._host.loop.is_usable:
            why = "its loop is closed, or belongs to the parent process; after a fork, make a new one in the child"
            raise IllegalStateError(f"the share consumer cannot be used: {why}")

    def _check_ours(self, record: ShareRecord) -> None:
        if not isinstance(record.owner, AcquiredRecords) or record.owner.session.member_id != self._driver.member_id:
            raise IllegalStateError(f"{record!r} was returned by another consumer")

    def _check_explicit(self) -> None:
        if self._polling.is_implicit:
            raise IllegalStateError(
                "records are acknowledged by the next poll: share_acknowledgement_mode is implicit; set it to explicit"
            )
