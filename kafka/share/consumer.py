"""KafkaShareConsumer: what users call. Arguments, threads and blocking; the work is in ``engine.py``.

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
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import six

from kafka.client import Host, KafkaClient, make_host
from kafka.config import resolve
from kafka.core.share.membership import MemberState
from kafka.core.share.records import AcknowledgeType, ShareRecord
from kafka.core.share.session import Acknowledged
from kafka.errors import IllegalArgumentError, IllegalStateError, KafkaConfigurationError, KafkaError
from kafka.future import Future
from kafka.net.loop import Loop
from kafka.share.engine import CLOSE_TIMEOUT_S, ShareEngine
from kafka.structs import TopicPartition

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
    ``on_records``, ``on_acknowledged``, ``on_lost`` and ``on_error`` are called there.

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
        self._settings = settings
        self._is_implicit = settings["share_acknowledgement_mode"] == "implicit"
        self._exactly = settings["share_acquire_mode"] == "record_limit"
        self._max_poll_records: int = settings["max_poll_records"]
        self._on_records = on_records
        self._on_acknowledged = on_acknowledged
        self._on_lost = on_lost
        self._on_error = on_error
        self._topics: list[str] = []
        self._arrived = threading.Condition()
        self._buffer: list[ShareRecord] = []
        self._polled: list[ShareRecord] = []  # implicit mode: what the last poll returned
        self._said: list[tuple[ShareRecord, AcknowledgeType]] = []  # on its way to the loop
        self._outcomes: dict[TopicPartition, KafkaError | None] = {}
        self._error: KafkaError | None = None
        self._is_woken = False
        self._is_closed = False
        self._host: Host = make_host("share consumer", settings, loop=loop, client=client)
        self._engine = ShareEngine(
            self._host.client,
            _Events(self),
            settings["group_id"],
            base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode(),
            rack_id=settings["client_rack"],
            fetch_max_bytes=settings["fetch_max_bytes"],
            fetch_max_wait_ms=min(settings["fetch_max_wait_ms"], 500),
            check_crcs=settings["check_crcs"],
        )
        self._has_thread = loop is None and client is None
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
        time. In implicit mode the records of the last call that were not acknowledged are accepted first. Raises the
        error that ended the membership (KafkaError), IllegalStateError when closed or on the loop's own thread.
        """
        self._check_open()
        if not self._has_thread:
            raise IllegalStateError("on a loop records come through on_records=, after request_records()")
        self._host.check_may_block()
        if max_records is not None and max_records < 1:
            raise IllegalArgumentError(f"max_records={max_records}: at least 1")
        wanted = min(max_records or self._max_poll_records, self._max_poll_records)
        if self._is_implicit:
            self._accept_polled()
        give_up_at = time.monotonic() + timeout_ms / 1000
        with self._arrived:
            if not self._buffer:
                self._host.submit(self._engine.request_records, wanted, self._exactly)
            while not (self._buffer or self._error or self._is_woken or self._is_closed):
                left_s = give_up_at - time.monotonic()
                if left_s <= 0 or not self._arrived.wait(left_s):
                    break
            woken, self._is_woken = self._is_woken, False
            found = [] if woken else [record for record in self._buffer[:wanted] if not record.lost]
            if not woken:
                del self._buffer[:wanted]
            if not found and self._error is not None:
                raise self._error
        self._polled = found if self._is_implicit else []
        by_partition: dict[TopicPartition, list[ShareRecord]] = {}
        for record in found:
            partition = TopicPartition(record.topic, record.partition)
            by_partition.setdefault(partition, []).append(self._deserialized(record))
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
        with self._arrived:
            self._is_woken = True
            self._arrived.notify_all()

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
        self._check_held(record)
        if kind is not AcknowledgeType.RENEW:
            record.is_settled = True
        self._say([(record, kind)])

    def renew(self, records: Sequence[ShareRecord]) -> Future[None]:
        """Start the locks of these anew (KIP-1222); the future is done when the broker has answered.

        Those that it refused are lost: ``record.lost``, and ``on_lost``.
        """
        for record in records:
            self.acknowledge(record, AcknowledgeType.RENEW)
        return self.commit_async()

    def commit(self, timeout_ms: float | None = None) -> dict[TopicPartition, KafkaError | None]:
        """Send what was acknowledged (in implicit mode: all that was polled), and wait for the answers.

        Returns the outcome of each partition since the last call: None, or the error of a record whose acknowledgement
        was refused (it will be handed out again). KafkaTimeoutError when ``timeout_ms`` passes first.
        """
        if self._is_implicit:
            self._accept_polled()
        self._host.wait(self.commit_async(), None if timeout_ms is None else timeout_ms / 1000)
        with self._arrived:
            outcomes, self._outcomes = self._outcomes, {}
        return outcomes

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
        if self._is_closed:
            return
        if self._is_implicit and self._has_thread:
            self._accept_polled()
        self._host.check_may_block()
        timeout_s = timeout_ms / 1000
        try:
            self._host.wait(self._host.submit(self._close_on_loop, timeout_s))
        finally:
            self._host.close(timeout_s + 1)

    def close_async(self, timeout_s: float = CLOSE_TIMEOUT_S) -> Future[None]:
        """On the loop: the same, without waiting; the future is done when the group is left."""
        done = self._close_on_loop(timeout_s)
        done.add_both(lambda _: self._host.close())
        return done

    def __enter__(self) -> KafkaShareConsumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._is_closed:
            raise IllegalStateError("the share consumer is closed")

    def _close_on_loop(self, timeout_s: float) -> Future[None]:
        self._is_closed = True
        with self._arrived:
            self._arrived.notify_all()
        return self._engine.close(timeout_s)

    def _on_loop(self, fn: Callable[..., Any], *args: Any) -> None:
        if self._has_thread:
            self._host.submit(fn, *args)
        else:
            fn(*args)

    def _accept_polled(self) -> None:
        polled, self._polled = self._polled, []
        ready = [record for record in polled if not record.is_settled and not record.lost]
        for record in ready:
            record.is_settled = True
        self._say([(record, AcknowledgeType.ACCEPT) for record in ready])

    def _check_held(self, record: ShareRecord) -> None:
        if record.lost or record.is_settled:
            where = f"{record.topic}:{record.partition}:{record.offset}"
            why = "its lock is gone" if record.lost else "it was acknowledged before"
            raise IllegalStateError(f"{where} cannot be acknowledged: {why}")

    def _say(self, said: list[tuple[ShareRecord, AcknowledgeType]]) -> None:
        """Hand acknowledgements to the loop: one call for many."""
        if not said:
            return
        with self._arrived:
            first = not self._said
            self._said += said
        if first:
            self._host.submit(self._say_on_loop)

    def _say_on_loop(self) -> None:
        with self._arrived:
            said, self._said = self._said, []
        for record, kind in said:
            try:
                self._engine.acknowledge(record, kind)
            except IllegalStateError as error:  # the lock went while it was on its way here
                self._outcomes[TopicPartition(record.topic, record.partition)] = error

    def _deserialized(self, record: ShareRecord) -> ShareRecord:
        for name, setting in (("key", "key_deserializer"), ("value", "value_deserializer")):
            how = self._settings[setting]
            if how is not None:
                data = getattr(record, name)
                read = getattr(how, "deserialize", None)
                setattr(record, name, how(data) if read is None else read(record.topic, record.headers, data))
        return record


class _Events:
    """The engine's events, on the loop's thread."""

    def __init__(self, consumer: KafkaShareConsumer) -> None:
        self._consumer = consumer

    def on_records(self, records: list[ShareRecord]) -> None:
        consumer = self._consumer
        if not consumer._has_thread:
            if consumer._on_records is not None:
                consumer._on_records(records)
            return
        with consumer._arrived:
            consumer._buffer += records
            consumer._arrived.notify_all()

    def on_acknowledged(self, acknowledged: list[Acknowledged]) -> None:
        consumer = self._consumer
        if consumer._has_thread:
            with consumer._arrived:
                for record, _, error in acknowledged:
                    partition = TopicPartition(record.topic, record.partition)
                    if error is not None or partition not in consumer._outcomes:
                        consumer._outcomes[partition] = error
        if consumer._on_acknowledged is not None:
            consumer._on_acknowledged(acknowledged)

    def on_lost(self, records: list[ShareRecord], error: KafkaError | None) -> None:
        if self._consumer._on_lost is not None:
            self._consumer._on_lost(records, error)

    def on_error(self, error: KafkaError) -> None:
        consumer = self._consumer
        with consumer._arrived:
            consumer._error = error
            consumer._arrived.notify_all()
        if consumer._on_error is not None:
            consumer._on_error(error)
