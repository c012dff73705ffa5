"""What an app gets: jobs and states to a producer, questions to the results, all over one client in one I/O thread.

It connects on first use. A worker's process has one, too, for the jobs that its tasks enqueue; as long as they enqueue
none there is no thread: :meth:`KafkaBackend.worker_backend` lives on the worker's loop alone.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from kafka.client import KafkaClient
from kafka.errors import IllegalStateError, KafkaTimeoutError
from kafka.future import Future
from kafka.producer import FutureRecordMetadata, KafkaProducer, RecordMetadata, has_room, watch_batches
from kafka.tasks.backends.base import (
    DeadLog,
    DeclaredJobs,
    NewId,
    QueueMigration,
    QueuePurge,
    QueueRoute,
    ScheduleMember,
    SnapshotReader,
    WorkerBackend,
)
from kafka.tasks.backends.kafka.admin import Administration, check_enqueueing, ensure_app_topics
from kafka.tasks.backends.kafka.connection import connect_in_thread, producer_configs
from kafka.tasks.backends.kafka.control import set_paused
from kafka.tasks.backends.kafka.dead_log import KafkaDeadLog
from kafka.tasks.backends.kafka.enqueue_tally import EnqueueTally
from kafka.tasks.backends.kafka.purge import KafkaPurge
from kafka.tasks.backends.kafka.rights import needing
from kafka.tasks.backends.kafka.snapshot_reader import KafkaSnapshotReader
from kafka.tasks.deadline import Deadline, run_in_thread
from kafka.tasks.errors import JobsNotSent, UnknownQueue
from kafka.tasks.format.commands import CommandRecord
from kafka.tasks.format.envelope import Header
from kafka.tasks.format.job_id import BrokerTimeEstimate
from kafka.tasks.format.records import CLOCK_HEADERS, StateRecord, encode, is_late
from kafka.tasks.format.topics import (
    DEFAULT_REPLICATION,
    TopicDefaults,
    TopicNames,
    payload_limit,
    queue_plans,
    results_plans,
    schedule_partitions,
    schedule_plans,
)
from kafka.tasks.results.reader import ResultReader
from kafka.tasks.settings import Settings
from kafka.tasks.worker.runtime_estimate import PRODUCER_BATCH_RECORDS

log = logging.getLogger(__name__)

_NO_DEADLINE = Deadline(None)

CLOSE_CONNECTING_S = 2.0
"""Most that closing waits for a connection that is being made."""

OBSERVE_S = 0.25
"""How often the broker's clock is learnt from an answer."""


def open_kafka(app: str, settings: Settings) -> KafkaBackend:
    """For :data:`kafka.tasks.backends.base.BACKENDS`."""
    return KafkaBackend(app, settings)


class KafkaBackend:
    """See :class:`kafka.tasks.backends.base.Backend`."""

    def __init__(self, app: str, settings: Settings) -> None:
        """Connects with the first use."""
        self.clock = BrokerTimeEstimate()
        self.app = app
        self.result_ttl_s = settings.result_ttl
        self.address = settings.bootstrap_servers
        self._names = TopicNames(app)
        self._settings = settings
        self._shape = TopicDefaults(
            settings.partitions,
            DEFAULT_REPLICATION if settings.replication_factor is None else settings.replication_factor,
            settings.min_insync_replicas,
            settings.result_ttl,
            settings.dead_ttl,
            settings.max_payload_bytes,
        )
        self._lock = threading.Lock()
        self._front: _ConnectedClients | None = None
        self._connecting: Future[_ConnectedClients] | None = None
        self._worker_clients: list[KafkaClient] = []
        self.new_id: NewId = lambda at_ms=None: self._connected().new_id(at_ms)
        self._schedule_partitions = 0
        self._observe_at = 0.0
        self._tally = EnqueueTally(frozenset((self._names.results, self._names.late)))
        self._is_closed = False

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def route(self, queue: str, declared: bool) -> QueueRoute:
        """See :class:`kafka.tasks.backends.base.Backend`."""
        front = self._connected()
        topic = self._names.queue(queue)
        plans = queue_plans(self._names, queue, self._shape)
        if not declared and topic not in front.administration.existing([topic]):
            raise UnknownQueue(
                f"unknown queue {queue!r}: the broker has no topic {topic}, and the app {self._names.app!r} does "
                "not declare the queue. Declare a task with it, or name it in App(queues=[...])"
            )
        create = self._settings.create_topics
        topics = ensure_app_topics(front.administration, self.app, plans, create)
        front.producer.partitions_for(topic)  # the first record waits for nothing any more
        return QueueRoute(topic, payload_limit(topics.values(), self._settings.max_payload_bytes, log.warning))

    def has_room(self) -> bool:
        """See :class:`kafka.tasks.backends.base.Backend`."""
        return self._front is not None and has_room(self._front.producer)

    def send(
        self,
        topic: str,
        value: bytes,
        headers: list[Header],
        key: bytes | None = None,
        partition: int | None = None,
    ) -> FutureRecordMetadata:
        """See :class:`kafka.tasks.backends.base.Backend`. ``partition`` None: any."""
        send = (self._front or self._connected()).send
        now = time.monotonic()
        if now < self._observe_at:
            return send(topic, value, key, headers, partition)
        self._observe_at = now + OBSERVE_S
        sent_ms = self.clock.local_ms()  # before it is sent: the broker's answer may be here before `send` returns
        future = send(topic, value, key, headers, partition)
        future.add_callback(self._observe, sent_ms)
        return future

    @property
    def has_schedule(self) -> bool:
        """See :class:`kafka.tasks.backends.base.Backend`."""
        return self._schedule_partitions > 0

    def schedule_partitions(self) -> int:
        """See :class:`kafka.tasks.backends.base.Backend`."""
        if not self._schedule_partitions:
            front = self._connected()
            plans = schedule_plans(self._names, self._shape)
            topics = ensure_app_topics(front.administration, self.app, plans, self._settings.create_topics)
            self._schedule_partitions = schedule_partitions(self._names, topics)
            front.producer.partitions_for(self._names.commands)  # the first record waits for nothing any more
        return self._schedule_partitions

    def send_command(self, record: CommandRecord, partition: int) -> FutureRecordMetadata:
        """See :class:`kafka.tasks.backends.base.Backend`."""
        key, value, headers = record
        return self.send(self._names.commands, value, headers, key, partition)

    def send_state(self, record: StateRecord) -> FutureRecordMetadata:
        """See :class:`kafka.tasks.backends.base.Backend`."""
        key, value, headers = encode(record)
        late = is_late(record.id, self.clock.now_ms())
        topic = self._names.late if late else self._names.results
        front = self._connected()
        return front.send(topic, value, key, headers, front.partition)

    def flush(self, timeout: float | None) -> None:
        """See :class:`kafka.tasks.backends.base.Backend`."""
        if self._front is not None:
            self._front.producer.flush(timeout)

    def take_not_sent(self) -> JobsNotSent | None:
        """See :class:`kafka.tasks.backends.base.Backend`."""
        return self._tally.take()

    # -- states -------------------------------------------------------------------------------------------------------

    def known(self, job_id: str) -> StateRecord | None:
        """See :class:`kafka.tasks.backends.base.Backend`."""
        front = self._front
        return None if front is None else front.results.known(job_id)

    def find(self, job_id: str, timeout: float | None, since_ms: int | None = None) -> StateRecord | None:
        """See :class:`kafka.tasks.backends.base.Backend`."""
        results, left_s = self._results(timeout)
        return results.find(job_id, left_s, since_ms)

    def settle(self, record: StateRecord) -> None:
        """See :class:`kafka.tasks.backends.base.Backend`."""
        self._connected().results.settle(record)

    def add_waiter(
        self, job_id: str, on_end: Callable[[StateRecord | None], object], timeout: float | None
    ) -> StateRecord | None:
        """See :class:`kafka.tasks.backends.base.Backend`."""
        results, left_s = self._results(timeout)
        return results.add_waiter(job_id, on_end, left_s)

    def is_at_hand(self, job_id: str) -> bool:
        """See :class:`kafka.tasks.backends.base.Backend`."""
        front = self._front
        return front is not None and front.results.is_at_hand(job_id)

    def before_wait(self, job_id: str) -> StateRecord | None:
        """Jobs run elsewhere."""
        return None

    def remove_waiter(self, job_id: str, on_end: Callable[[StateRecord | None], object]) -> None:
        """See :class:`kafka.tasks.backends.base.Backend`."""
        front = self._front
        if front is not None:
            front.results.remove_waiter(job_id, on_end)

    # -- the rest -----------------------------------------------------------------------------------------------------

    def worker_backend(
        self,
        loop: Any,
        queues: Sequence[str],
        schedule: bool = False,
        declared: DeclaredJobs | None = None,
        ordered: Collection[str] = (),
    ) -> WorkerBackend:
        """See :class:`kafka.tasks.backends.base.Backend`."""
        # Share groups and the like: a third of what an app that only enqueues would import.
        from kafka.tasks.backends.kafka.worker_backend import open_worker_backend

        side, client = open_worker_backend(
            self._names, self._settings, self._shape, self.clock, loop, queues, schedule, declared, ordered
        )
        self._worker_clients.append(client)
        return side

    def schedule_member(self, loop: Any, declared: DeclaredJobs) -> ScheduleMember:
        """See :class:`kafka.tasks.backends.base.Backend`."""
        from kafka.tasks.backends.kafka.worker_backend import open_schedule_member

        member, client = open_schedule_member(self._names, self._settings, self._shape, self.clock, loop, declared)
        self._worker_clients.append(client)
        return member

    def snapshot_reader(self) -> SnapshotReader:
        """See :class:`kafka.tasks.backends.base.Backend`."""
        return KafkaSnapshotReader(self._names, self._settings)

    def dead_log(self, queue: str) -> DeadLog:
        """See :class:`kafka.tasks.backends.base.Backend`."""
        return KafkaDeadLog(self._names, queue, self._settings)

    def purge(self, queue: str) -> QueuePurge:
        """See :class:`kafka.tasks.backends.base.Backend`."""
        return KafkaPurge(self._names, queue, self._settings)

    def migrate(self, queue: str, to: str) -> QueueMigration:
        """See :class:`kafka.tasks.backends.base.Backend`."""
        # Consumers of both kinds: more than an app that only enqueues would import.
        from kafka.tasks.backends.kafka.migration import migrate_queue

        return migrate_queue(self._names, queue, self._settings, to)

    def set_paused(self, queue: str, is_paused: bool) -> bool:
        """See :class:`kafka.tasks.backends.base.Backend`."""
        return set_paused(self._names, self._shape, self._settings, queue, is_paused)

    def close(self, timeout: float | None = None) -> None:
        """See :class:`kafka.tasks.backends.base.Backend`."""
        with self._lock:
            self._is_closed = True
            front, self._front = self._front, None
            connecting = self._connecting
        if connecting is not None:
            # It sees that it is to close what it has made. Left alone it would outlive a broker that the caller
            # closes next, and log what it could not do there.
            connecting.wait(CLOSE_CONNECTING_S if timeout is None else min(timeout, CLOSE_CONNECTING_S))
        if front is not None:
            front.close(timeout)
        for client in self._worker_clients:
            client.close()
        self._worker_clients = []

    def _results(self, timeout: float | None) -> tuple[ResultReader, float | None]:
        """The reader, and what is left of the time."""
        front = self._front
        if front is not None:
            return front.results, timeout
        deadline = Deadline(timeout)
        return self._connected(deadline).results, deadline.left_s()

    def _connected(self, deadline: Deadline = _NO_DEADLINE) -> _ConnectedClients:
        """Connects in a thread of its own, so that a caller whose time is up leaves the connection to the next one."""
        if self._front is not None:
            return self._front
        with self._lock:
            self._check_open()
            connecting = self._connecting
            if connecting is None or connecting.failed():
                connecting = self._connecting = run_in_thread("kafka-task-queue-connect", self._connect)
        if not connecting.wait(deadline.left_s()):
            raise KafkaTimeoutError(f"no connection to {self.address} within {deadline.timeout_s:g} s")
        return connecting.result()

    def _connect(self) -> _ConnectedClients:
        front = _ConnectedClients(self._names, self._settings, self._shape, self.clock, self._tally)
        with self._lock:
            is_closed = self._is_closed
            if not is_closed:
                self._front = front
                self.new_id = front.new_id
        if is_closed:
            front.close(0)
            self._check_open()
        return front

    def _check_open(self) -> None:
        if self._is_closed:
            raise IllegalStateError(
                f"the connection of app {self._names.app!r} was closed, and handles made before that cannot be "
                "used any more; make a new one with app.job(handle.id)"
            )

    def _observe(self, sent_ms: int, metadata: RecordMetadata) -> None:
        self.clock.observe(sent_ms, self.clock.local_ms(), metadata.timestamp)


class _ConnectedClients:
    """The connected half: everything that has a thread behind it."""

    def __init__(
        self,
        names: TopicNames,
        settings: Settings,
        shape: TopicDefaults,
        clock: BrokerTimeEstimate,
        tally: EnqueueTally,
    ) -> None:
        """Connects, creates or checks the results topic, and starts the producer and the reader of results, all on one
        I/O thread. Its errors are those of connecting, of missing rights and of topics that are missing or do not fit;
        the thread is closed then."""
        self.io = io = connect_in_thread(settings, "task queue")
        try:
            client = io.client
            run: Callable[..., Any] = client.run
            io.call(check_enqueueing, client, settings.create_topics)
            self.administration = Administration(
                client, lambda dialogue: io.call(run, dialogue), settings.request_timeout, names.app
            )
            plans = results_plans(names, shape)
            topics = ensure_app_topics(self.administration, names.app, plans, settings.create_topics)
            partitions = min(topic.partitions for topic in topics.values())
            self.partition = int.from_bytes(os.urandom(8), "big") % partitions
            configs = producer_configs(
                settings,
                linger_s=settings.linger,
                batch_bytes=settings.batch_bytes,
                batch_records=PRODUCER_BATCH_RECORDS,
            )
            self.producer: KafkaProducer = io.call(lambda: KafkaProducer(client=client, **configs))
            watch_batches(self.producer, tally.batch_done)
            self.send = self.producer.send
            self.producer.partitions_for(names.late)  # the offsets below would wait for another look at the metadata
            with needing(names.app, "topic", "Write"):
                self._set_clock(names.results, clock, settings.request_timeout)
            self.results = ResultReader(
                io, names, partitions, self.partition, clock, settings.result_view, settings.request_timeout
            )
            self.new_id = self.results.new_id
        except BaseException:
            io.close()
            raise

    def _set_clock(self, topic: str, clock: BrokerTimeEstimate, timeout_s: float) -> None:
        """Learn the broker's time before the first id is made, from a record that no reader takes for a state."""
        sent_ms = clock.local_ms()
        append = self.producer.send(topic, None, None, CLOCK_HEADERS, self.partition).get(timeout_s)
        clock.observe(sent_ms, clock.local_ms(), append.timestamp)

    def close(self, timeout: float | None) -> None:
        try:
            self.producer.close(timeout)
            self.results.close()
        finally:
            self.io.close()
