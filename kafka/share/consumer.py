"""KafkaShareConsumer: what users call. Arguments and blocking; the work is in ``engine.py``, and what threads hand one
another in ``inbox.py``.

Two ways to use it::

    consumer = KafkaShareConsumer("jobs", group_id="workers", bootstrap_servers="broker:9092")
    for partition, records in consumer.poll(1000).items():      # implicit: the next poll() accepts these
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
from types import TracebackType
from typing import Any, Final

import six

from kafka.client import Host, KafkaClient, make_host
from kafka.config import resolve
from kafka.core.deserialize import deserializer_for
from kafka.core.share.holding import Acknowledged, Holding
from kafka.core.share.membership import MemberState
from kafka.core.share.records import AcknowledgeType, ShareRecord
from kafka.errors import (
    IllegalArgumentError,
    IllegalStateError,
    KafkaConfigurationError,
    KafkaError,
    KafkaTimeoutError,
)
from kafka.future import Future
from kafka.net.loop import Loop
from kafka.share.engine import CLOSE_TIMEOUT_S, ShareEngine
from kafka.share.inbox import Inbox
from kafka.structs import TopicPartition

log = logging.getLogger(__name__)

FETCH_WAIT_MS: Final = (10, 500)
"""Bounds of a long poll. A record that another member releases wakes none, so it is found that much later; and without
any wait an idle consumer would ask without a pause.
"""

OnRecords = Callable[[list[ShareRecord]], object]
OnAcknowledged = Callable[[list[Acknowledged]], object]
OnLost = Callable[[list[ShareRecord], "KafkaError | None"], object]
OnError = Callable[[KafkaError], object]


class KafkaShareConsumer:
    """A member of a share group (KIP-932): Apache Kafka 4.2 and later, and the embedded broker.

    Each record is handed to one member of the group at a time, under a lock, and counts as done when it is
    acknowledged: ACCEPT (done), RELEASE (not begun: hand it to another), REJECT (never hand it out again), RENEW (still
    at it: a new lock). Records may be acknowledged in any order. What is not acknowledged in time is handed out again,
    until the group's ``share.delivery.count.limit``; after that the broker drops it in silence.

    A new group starts at the *end* of its topics unless its setting ``share.auto.offset.reset`` says ``earliest``
    before its first member joins (``KafkaAdminClient.alter_configs``).

    Without ``loop`` it has a loop of its own in an I/O thread, and its methods may be called from any thread. With
    ``loop`` or ``client`` it lives there beside others and is used on that loop's thread: no call blocks, and
    ``on_records``, ``on_acknowledged``, ``on_lost`` and ``on_error`` are called there; what they raise is logged.
    Deserializers belong to :meth:`poll` and are refused.

    Errors of construction: KafkaConfigurationError for a setting that is unknown or cannot be, or without ``group_id``.
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
        **configs: Any,
    ) -> None:
        settings = resolve("share", configs)
        if settings["group_id"] is None:
            raise KafkaConfigurationError("group_id: a share consumer needs the name of its group")
        self._has_thread = loop is None and client is None
        self._deserializers = (
            deserializer_for(settings["key_deserializer"]),
            deserializer_for(settings["value_deserializer"]),
        )
        if not self._has_thread and self._deserializers != (None, None):
            raise KafkaConfigurationError("key_deserializer, value_deserializer: on a loop, records come as bytes")
        self._is_implicit = settings["share_acknowledgement_mode"] == "implicit"
        self._exactly = settings["share_acquire_mode"] == "record_limit"
        self._max_poll_records: int = settings["max_poll_records"]
        self._topics: list[str] = []
        self._inbox = Inbox()
        self._host: Host = make_host("share consumer", settings, loop=loop, client=client)
        self._engine = ShareEngine(
            self._host.client,
            _Events(self._inbox if self._has_thread else None, on_records, on_acknowledged, on_lost, on_error),
            settings["group_id"],
            base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode(),
            rack_id=settings["client_rack"],
            fetch_max_bytes=settings["fetch_max_bytes"],
            fetch_max_wait_ms=min(max(settings["fetch_max_wait_ms"], FETCH_WAIT_MS[0]), FETCH_WAIT_MS[1]),
            check_crcs=settings["check_crcs"],
        )
        if topics:
            self.subscribe(topics)

    # -- subscription --------------------------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read these topics from now on, instead of what was subscribed before. TypeError for what is no text."""
        if isinstance(topics, (six.text_type, six.binary_type)):
            raise TypeError("topics: a list of names, not one text")
        names = [six.ensure_text(topic) for topic in topics]
        if not names:
            raise IllegalArgumentError("subscribe() wants at least one topic; to stop reading, call unsubscribe()")
        self._check_open()
        self._topics = names
        self._inbox.forget_error()
        self._on_loop(self._engine.subscribe, names)

    def unsubscribe(self) -> None:
        """Read nothing until the next :meth:`subscribe`; what is held can still be acknowledged."""
        self._check_open()
        self._topics = []
        self._on_loop(self._engine.subscribe, [])

    def subscription(self) -> set[str]:
        """The topics that are read."""
        return set(self._topics)

    # -- records -------------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> dict[TopicPartition, list[ShareRecord]]:
        """Records by partition, as soon as there are some, or {} after ``timeout_ms``.

        At most ``max_records`` (default: ``max_poll_records``) are returned; of what came, the rest is returned next
        time. In implicit mode the records of the last call that were not acknowledged are accepted first.

        Raises the error that ended the membership (KafkaError), what stands in the way of some records (no rights, a
        codec that is not installed, damage) once each time it happens, IllegalStateError when closed or on the loop's
        own thread. What a deserializer raises comes through; its record is released and comes again, here or elsewhere,
        until the group's limit. Records before it are returned first, records behind it next time.
        """
        self._check_open()
        if not self._has_thread:
            raise IllegalStateError("on a loop records come through on_records=, after request_records()")
        self._host.check_may_block()
        if max_records is not None and max_records < 1:
            raise IllegalArgumentError(f"max_records={max_records}: at least 1")
        count = min(max_records or self._max_poll_records, self._max_poll_records)
        if self._is_implicit and self._inbox.accept_polled():
            self._host.submit(self._say_on_loop)
        taken = self._inbox.take(
            count, timeout_ms / 1000, lambda: self._host.submit(self._engine.request_records, count, self._exactly)
        )
        found = taken if self._deserializers == (None, None) else self._deserialized(taken)
        if self._is_implicit:
            self._inbox.returned(found)
        by_partition: dict[TopicPartition, list[ShareRecord]] = {}
        for record in found:
            by_partition.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
        return by_partition

    def request_records(self, count: int, exactly: bool = False) -> None:
        """On a loop: want ``count`` more records, instead of what was wanted before; 0: none.

        They come through ``on_records``. ``exactly``: never more (record-limit mode, KIP-1206); else producers' batches
        come whole, and may bring some more.
        """
        self._check_open()
        self._engine.request_records(count, exactly)

    def wakeup(self) -> None:
        """Let a :meth:`poll` that waits, or the next one, return at once. From any thread."""
        self._inbox.wake()

    # -- acknowledgement -----------------------------------------------------------------------------------------------

    def acknowledge(self, record: ShareRecord, type: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """Say what became of a record. Sent soon, together with others; :meth:`commit` waits for it.

        IllegalStateError when the record was acknowledged before or its lock is gone; IllegalArgumentError for a type
        that is none.
        """
        try:
            kind = AcknowledgeType(type)
        except ValueError:
            raise IllegalArgumentError(f"{type!r}: ACCEPT, RELEASE, REJECT or RENEW") from None
        if kind is AcknowledgeType.GAP:
            raise IllegalArgumentError("GAP is for offsets without a record")
        self._check_open()
        if not self._has_thread:
            self._engine.acknowledge(record, kind)
            return
        if not isinstance(record.owner, Holding) or record.owner.session.member_id != self.member_id:
            raise IllegalStateError(f"{record!r} was handed out by another consumer")
        if self._inbox.say(record, kind):
            self._host.submit(self._say_on_loop)

    def renew(self, records: Sequence[ShareRecord]) -> Future[None]:
        """Start the locks of these anew (KIP-1222); the future is done when the broker has answered.

        Those that it refused are lost: ``record.lost``, and ``on_acknowledged`` has the error. What was lost before is
        passed over.
        """
        for record in records:
            if not record.lost:
                self.acknowledge(record, AcknowledgeType.RENEW)
        return self.commit_async()

    def commit(self, timeout_ms: float | None = None) -> dict[TopicPartition, KafkaError | None]:
        """Send what was acknowledged (in implicit mode: all that was polled), and wait for the answers.

        Returns the outcome of each partition since the last call: None, or the error of a record whose acknowledgement
        was refused (it will be handed out again). KafkaTimeoutError when ``timeout_ms`` passes first.
        """
        self._check_open()
        self._host.check_may_block()
        if self._is_implicit and self._inbox.accept_polled():
            self._host.submit(self._say_on_loop)
        self._host.wait(self.commit_async(), None if timeout_ms is None else timeout_ms / 1000)
        return self._inbox.take_outcomes()

    commit_sync = commit

    def commit_async(self) -> Future[None]:
        """Send what was acknowledged; the future is done when all of it has been answered."""
        self._check_open()
        return self._host.submit(self._engine.flush) if self._has_thread else self._engine.flush()

    # -- the rest ------------------------------------------------------------------------------------------------------

    @property
    def lock_s(self) -> float:
        """Length of a lock in seconds, as the broker's last answer told it."""
        return self._engine.lock_s

    @property
    def member_id(self) -> str:
        """This member's id in its group."""
        return self._engine.member_id

    @property
    def has_joined(self) -> bool:
        """Whether the group has answered a heartbeat of this member."""
        return self._engine.state is MemberState.STABLE

    def close(self, timeout_ms: float = CLOSE_TIMEOUT_S * 1000) -> None:
        """Send the last acknowledgements (in implicit mode: of all that was polled), give back what is held, leave.

        Any number of times. On a loop's own thread: :meth:`close_async`.
        """
        if not self._host.loop.is_usable:  # closed, or the parent's
            self._inbox.is_closed = True
            self._host.close()
            return
        self._host.check_may_block()
        if not self._inbox.close():
            return
        if self._is_implicit and self._inbox.accept_polled():
            self._host.submit(self._say_on_loop)
        timeout_s = timeout_ms / 1000
        try:
            self._host.wait(self._host.submit(self._engine.close, timeout_s), timeout_s + 1)
        except KafkaTimeoutError:
            log.warning("the loop did not close the consumer within %g s", timeout_s + 1)
        finally:
            self._host.close(timeout_s + 1)

    def close_async(self, timeout_s: float = CLOSE_TIMEOUT_S) -> Future[None]:
        """The same without waiting; the future is done when the group is left."""
        self._inbox.close()
        close = self._engine.close
        done = self._host.submit(close, timeout_s) if self._has_thread else close(timeout_s)
        return done.add_both(lambda _: self._host.close())

    def __enter__(self) -> KafkaShareConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self._inbox.forget_polled()  # an error left the block: what it did not finish is given back
        self.close()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._inbox.is_closed:
            raise IllegalStateError("the share consumer is closed")
        if not self._host.loop.is_usable:
            why = "its loop is closed, or belongs to the parent process; after a fork, make a new one in the child"
            raise IllegalStateError(f"the share consumer cannot be used: {why}")

    def _on_loop(self, fn: Callable[..., Any], *args: Any) -> None:
        if self._has_thread:
            self._host.submit(fn, *args)
        else:
            fn(*args)

    def _say_on_loop(self) -> None:
        for record, kind in self._inbox.take_said():
            try:
                self._engine.acknowledge(record, kind)
            except IllegalStateError as error:  # the lock went while it was on its way here
                self._inbox.heard([(record, error)])

    def _deserialized(self, taken: list[ShareRecord]) -> list[ShareRecord]:
        """As many of these as the deserializers read; the rest is put back."""
        for count, record in enumerate(taken):
            try:
                if record.sizes is None:  # else it was read before, and put back
                    record.replace(*self._read(record))
            except Exception:
                if count:
                    self._inbox.put_back(taken[count:])
                    return taken[:count]
                self._inbox.put_back(taken[1:])
                log.error("%r cannot be deserialized and is released", record)
                self.acknowledge(record, AcknowledgeType.RELEASE)
                raise
            except BaseException:
                self._inbox.put_back(taken)
                raise
        return taken

    def _read(self, record: ShareRecord) -> Iterator[Any]:
        """The record's key and value, as their deserializers read them."""
        for how, data in zip(self._deserializers, (record.key, record.value), strict=True):
            yield data if how is None else how(record.topic, record.headers, data)


class _Events:
    """The engine's events, on the loop's thread: to the inbox, if there is one, and to the user's callbacks.

    It does not know the consumer: the loop's thread lives as long as the consumer's host is known to somebody.
    """

    def __init__(
        self,
        inbox: Inbox | None,
        on_records: OnRecords | None,
        on_acknowledged: OnAcknowledged | None,
        on_lost: OnLost | None,
        on_error: OnError | None,
    ) -> None:
        self._inbox = inbox
        self._callbacks: dict[str, Callable[..., object] | None] = {
            "on_records": on_records,
            "on_acknowledged": on_acknowledged,
            "on_lost": on_lost,
            "on_error": on_error,
        }

    def on_records(self, records: list[ShareRecord]) -> None:
        if self._inbox is not None:
            self._inbox.put(records)
        else:
            self._call("on_records", records)

    def on_acknowledged(self, acknowledged: list[Acknowledged]) -> None:
        if self._inbox is not None:
            self._inbox.heard((record, error) for record, _, error in acknowledged)
        self._call("on_acknowledged", acknowledged)

    def on_lost(self, records: list[ShareRecord], error: KafkaError | None) -> None:
        if self._inbox is not None:
            records = self._inbox.lose(records)
        if records:
            self._call("on_lost", records, error)

    def on_trouble(self, error: KafkaError) -> None:
        if self._inbox is not None:
            self._inbox.fail(error, is_final=False)

    def on_error(self, error: KafkaError) -> None:
        if self._inbox is not None:
            self._inbox.fail(error, is_final=True)
        self._call("on_error", error)

    def _call(self, name: str, *args: object) -> None:
        callback = self._callbacks[name]
        if callback is None:
            return
        try:
            callback(*args)
        except Exception:
            log.exception("an error in the share consumer's %s", name)
