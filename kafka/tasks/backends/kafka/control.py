"""The topic ``APP.control``: which queues are paused. :func:`set_paused` writes it, :class:`PausedQueues` reads it; a
worker's :class:`ControlReader` looks every few seconds whether it has grown, and then reads it again.

There is no topic until a queue is paused for the first time, and a worker that cannot read it leases from all queues:
a pause is a wish of an operator, and no lock.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Collection, Generator
from contextlib import closing
from typing import Any, Final

from kafka import KafkaAdminClient, OffsetSpec, admin
from kafka.admin import NewTopic
from kafka.client import IoThread, KafkaClient
from kafka.consumer import KafkaConsumer
from kafka.errors import KafkaError, KafkaTimeoutError, TopicAlreadyExistsError
from kafka.producer import KafkaProducer
from kafka.structs import TopicPartition
from kafka.tasks.backends.base import PauseCallback
from kafka.tasks.backends.kafka.admin import check_queue_topic, find_topics, new_topics
from kafka.tasks.backends.kafka.connection import connect_in_thread, producer_configs
from kafka.tasks.backends.kafka.partition_reader import READ_CONFIGS, position_of, read_timeout, read_to
from kafka.tasks.backends.kafka.rights import needing
from kafka.tasks.backends.kafka.timed_resident import TimedResident
from kafka.tasks.format.control import QueueControl, decode_control, encode_control
from kafka.tasks.format.topics import TopicDefaults, TopicNames, control_plan
from kafka.tasks.settings import Settings

log = logging.getLogger(__name__)

CHECK_S: Final = 3.0
"""Interval of a worker's checks: one small request each."""
POLL_S: Final = 0.05
"""Interval of polls while the topic is read."""
READ_S: Final = 10.0
"""Time limit of a check and of a reading; also the most that a worker's start waits for the first ones."""


class ControlReader(TimedResident):
    """Knows which of ``queues`` are paused, and calls back on the loop of ``client`` when these are others.

    From :meth:`start` until :meth:`close`, or the end of the client. It never raises; what goes wrong is logged, and
    tried again unless the broker forbids it.
    """

    def __init__(
        self,
        client: KafkaClient,
        topic: str,
        queues: Collection[str],
        timeout_s: float,
    ) -> None:
        """Asks nothing before :meth:`start`."""
        super().__init__(client)
        self._place = TopicPartition(topic, 0)
        self._queues = queues
        self._timeout_s = min(timeout_s, READ_S)
        self._on_paused: PauseCallback | None = None
        self._exists = False
        self._read_to = 0
        self._paused: frozenset[str] = frozenset()
        self._consumer: KafkaConsumer | None = None
        self._paused_by_queue: dict[str, bool] = {}
        self._give_up_at = 0.0
        self._check_count = 0

    def start(self) -> None:
        """Check for the first time, driving the loop until that is done; later checks follow by themselves."""
        self._client.add_resident(self)
        self._check()
        self._loop.run_until(lambda: self._check_count > 0, self._timeout_s)

    def watch(self, on_paused: PauseCallback) -> None:
        """Call ``on_paused`` with those that are paused whenever they are others, and at once when there are some."""
        self._on_paused = on_paused
        if self._paused:
            on_paused(self._paused)

    def _check(self) -> None:
        self._client.run(self._find_end()).add_callback(self._on_end_offset).add_errback(self._failed)

    def _find_end(self) -> Generator[Any, Any, int]:
        """A dialogue: the offset behind the topic's last record; 0 when there is no topic."""
        limits: dict[str, Any] = {"backoff": self._client.retry_backoff, "timeout_s": self._timeout_s}
        if not self._exists:
            if not (yield from find_topics([self._place.topic], **limits)):
                return 0
            self._exists = True
        offsets = yield from admin.dialogues.list_partition_offsets({self._place: OffsetSpec.LATEST}, **limits)
        return offsets[self._place].offset

    def _on_end_offset(self, end: int) -> None:
        if end == self._read_to or self._is_closed:
            self._check_later()
            return
        self._read_to = end
        self._paused_by_queue = {}
        if end == 0:
            self._apply()
            return
        self._give_up_at = self._loop.time() + self._timeout_s
        self._consumer = KafkaConsumer(client=self._client, **READ_CONFIGS)
        self._consumer.assign([self._place])
        self._read_records()

    def _read_records(self) -> None:
        """Take what there is; to the end it is a few records, as the topic is compacted."""
        consumer = self._consumer
        if consumer is None or self._is_closed:
            return
        try:
            for record in consumer.poll(0).get(self._place, ()):
                control = decode_control(record.key, record.value)
                if control is not None:
                    self._paused_by_queue[control.queue] = control.is_paused
            if position_of(consumer, self._place) < self._read_to:
                if self._loop.time() > self._give_up_at:
                    raise read_timeout(self._place.topic, self._timeout_s)
                self._call_later(POLL_S, self._read_records)
                return
        except KafkaError as error:
            self._read_to = 0
            self._failed(error)
            return
        self._apply()

    def _apply(self) -> None:
        paused = frozenset(queue for queue in self._queues if self._paused_by_queue.get(queue))
        for queue in sorted(paused - self._paused):
            log.warning("queue %s is paused; leasing none of its jobs until it is resumed", queue)
        for queue in sorted(self._paused - paused):
            log.info("queue %s is not paused any more; leasing its jobs again", queue)
        if paused != self._paused:
            self._paused = paused
            if self._on_paused is not None:
                self._on_paused(paused)
        self._check_later()

    def _failed(self, error: BaseException) -> None:
        """Check again later, but not where the broker says no; an outage is logged elsewhere."""
        self._exists = False  # the topic may have been deleted
        if self._is_closed:
            return
        is_final = not getattr(error, "retriable", False) and not isinstance(error, KafkaTimeoutError)
        log.log(
            logging.WARNING if is_final else logging.DEBUG,
            "cannot read which queues are paused%s: %s",
            "; leasing from those that are not known to be" if is_final else "",
            error.args[0] if error.args else type(error).__name__,
        )
        self._check_later(again=not is_final)

    def _check_later(self, again: bool = True) -> None:
        if self._consumer is not None:
            self._consumer.close_async()
            self._consumer = None
        self._check_count += 1
        if again:
            self._call_later(CHECK_S, self._check)


def set_paused(names: TopicNames, shape: TopicDefaults, settings: Settings, queue: str, is_paused: bool) -> bool:
    """See :class:`kafka.tasks.backends.base.Backend`. Creates the topic when the first queue is paused."""
    io = connect_in_thread(settings, "control")
    client = io.client
    place = TopicPartition(names.control, 0)
    try:
        administration: KafkaAdminClient = io.call(lambda: KafkaAdminClient(client=client))
        with closing(administration):
            existing = administration.list_topics()
            check_queue_topic(names.queue(queue), existing)
            if names.control in existing:
                administration.wait_for_topics([names.control])  # another broker may not know it yet
                with closing(PausedQueues(io, names, settings.request_timeout)) as paused:
                    if (queue in paused.read()) == is_paused:
                        return False
            elif not is_paused:
                return False
            else:
                plan = control_plan(names, shape)
                limits = {"backoff": client.retry_backoff, "timeout_s": settings.request_timeout}
                with needing(names.app, "topic", "Create"):
                    _create_topic(administration, io.call(client.run, new_topics(client, [plan], **limits)))
        configs = producer_configs(settings, linger_s=0, batch_bytes=16_384, batch_records=0)
        producer: KafkaProducer = io.call(lambda: KafkaProducer(client=client, **configs))
        with closing(producer):
            key, value = encode_control(QueueControl(queue, is_paused, int(time.time() * 1000), socket.gethostname()))
            with needing(names.app, "topic", "Write"):
                producer.send(place.topic, value, key, partition=place.partition).get()
        return True
    finally:
        io.close()


def _create_topic(administration: KafkaAdminClient, topics: list[NewTopic]) -> None:
    try:
        administration.create_topics(topics, wait_for_metadata=True)
    except TopicAlreadyExistsError:  # by another operator, just now
        administration.wait_for_topics([topic.name for topic in topics])


class PausedQueues:
    """All queues of an app that are paused, read when that is asked; for one thread, blocks."""

    def __init__(self, io: IoThread, names: TopicNames, timeout_s: float) -> None:
        client = io.client
        make: Callable[..., KafkaConsumer] = KafkaConsumer
        self._consumer = io.call(lambda: make(client=client, **READ_CONFIGS))
        self._app = names.app
        self._place = TopicPartition(names.control, 0)
        self._timeout_s = timeout_s
        self._paused: set[str] = set()

    def read(self) -> frozenset[str]:
        """Those that are paused now; what is new since the last call is read. Errors are the client's own."""
        with needing(self._app, "topic", "Read"):
            return self._read()

    def _read(self) -> frozenset[str]:
        consumer, place = self._consumer, self._place
        end = self._find_end()
        if end is None:
            consumer.assign([])
            self._paused.clear()
            return frozenset()
        if not consumer.assignment() or end < consumer.position(place):  # a new topic
            consumer.assign([place])
            consumer.seek(place, 0)
            self._paused.clear()
        for record in read_to(consumer, place, end, self._timeout_s):
            control = decode_control(record.key, record.value)
            if control is not None:
                (self._paused.add if control.is_paused else self._paused.discard)(control.queue)
        return frozenset(self._paused)

    def _find_end(self) -> int | None:
        """The topic's end offset; None while there is no topic. One that has just been deleted takes READ_S."""
        consumer, place = self._consumer, self._place
        if self._exists():
            try:
                return consumer.end_offsets([place], min(self._timeout_s, READ_S) * 1000)[place]
            except KafkaTimeoutError:
                if self._exists():
                    raise
        return None

    def _exists(self) -> bool:
        return self._place.partition in self._consumer.partitions_for_topic(self._place.topic)

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()
