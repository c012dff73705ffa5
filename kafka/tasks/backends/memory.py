"""``memory://``: jobs and results in the memory of one process, which enqueues jobs and runs them in its threads.

All of production's code but the brokers is in use: jobs are encoded and decoded, and a worker in a thread
(:func:`kafka.tasks.run_worker`) runs them. It is for tests and for trying things out: what is in memory ends with the
process, a child process has none of it, and nothing is deleted before that. All apps of a process with the same URL
have the same topics, so a worker may have an app of its own; ``memory://NAME`` are others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from kafka.errors import KafkaConfigurationError
from kafka.tasks.backends.base import (
    CancelledCallback,
    DeadLog,
    DeclaredJobs,
    NewId,
    QueueMigration,
    QueuePurge,
    QueueRoute,
    RecordFuture,
    ScheduleMember,
    SnapshotReader,
    WorkerBackend,
)
from kafka.tasks.delivery.base import DeliveryEvents, JobDelivery, OutgoingRecord, RecordKind
from kafka.tasks.delivery.memory import LOCK_S, MemoryDelivery, MemoryPublisher, MemoryTopics
from kafka.tasks.errors import JobsNotSent, UnknownQueue
from kafka.tasks.format.commands import CommandRecord
from kafka.tasks.format.envelope import Header
from kafka.tasks.format.job_id import BrokerTimeEstimate, IdMaker
from kafka.tasks.format.records import StateRecord, encode
from kafka.tasks.format.topics import TopicNames
from kafka.tasks.settings import Settings

_topics_by_url: dict[str, MemoryTopics] = {}


def open_memory(app: str, settings: Settings) -> MemoryBackend:
    """For :data:`kafka.tasks.backends.base.BACKENDS`. IllegalStateError in a fork of the process that has the jobs."""
    topics = _topics_by_url.setdefault(settings.bootstrap_servers, MemoryTopics(BrokerTimeEstimate().now_ms))
    return MemoryBackend(app, settings, topics)


class Written:
    """The future of a record that is written."""

    is_done = True
    exception = None

    def add_errback(self, f: Callable[..., Any], *args: Any) -> None:
        """It never fails."""


WRITTEN: RecordFuture = Written()


class MemoryBackend:
    """See :class:`kafka.tasks.backends.base.Backend`. ``clock``: the time of ids and of ``expires``; ``lock_s``: how
    long a job's lock lasts, by the clock of the worker's loop."""

    def __init__(
        self,
        app: str,
        settings: Settings,
        topics: MemoryTopics,
        clock: BrokerTimeEstimate | None = None,
        lock_s: float = LOCK_S,
    ) -> None:
        topics.check_process()
        self.app = app
        self.result_ttl_s = settings.result_ttl
        self.address = settings.bootstrap_servers
        self.clock = clock or BrokerTimeEstimate()
        self.new_id: NewId = IdMaker(0, self.clock)
        self.has_schedule = True
        self.topics = topics
        self._names = TopicNames(app)
        topics.open_schedule(self._names)
        self._max_payload_bytes = settings.max_payload_bytes
        self._lock_s = lock_s

    def route(self, queue: str, declared: bool) -> QueueRoute:
        """See :class:`kafka.tasks.backends.base.Backend`."""
        self.topics.check_process()
        topic = self._names.queue(queue)
        if not declared and not self.topics.has(topic):
            raise UnknownQueue(
                f"unknown queue {queue!r}: nothing has been sent to it at {self.address}, and the app "
                f"{self._names.app!r} does not declare it. Declare a task with it, or name it in App(queues=[...])"
            )
        return QueueRoute(topic, self._max_payload_bytes)

    def send(self, topic: str, value: bytes, headers: list[Header], key: bytes | None = None) -> RecordFuture:
        """See :class:`kafka.tasks.backends.base.Backend`."""
        self.topics.append(OutgoingRecord(RecordKind.JOB, topic, value, key, headers))
        return WRITTEN

    def send_state(self, record: StateRecord) -> RecordFuture:
        """See :class:`kafka.tasks.backends.base.Backend`."""
        key, value, headers = encode(record)
        self.topics.append(OutgoingRecord(RecordKind.STATE, self._names.results, value, key, headers, 0))
        return WRITTEN

    def schedule_partitions(self) -> int:
        """One."""
        return 1

    def send_command(self, record: CommandRecord, partition: int) -> RecordFuture:
        """See :class:`kafka.tasks.backends.base.Backend`."""
        key, value, headers = record
        self.topics.append(OutgoingRecord(RecordKind.COMMAND, self._names.commands, value, key, headers, partition))
        return WRITTEN

    def has_room(self) -> bool:
        """Nothing is waited for."""
        return True

    def flush(self, timeout: float | None) -> None:
        """Everything is written at once."""

    def take_not_sent(self) -> JobsNotSent | None:
        """None: everything is written."""
        return None

    def known(self, job_id: str) -> StateRecord | None:
        """See :class:`kafka.tasks.backends.base.Backend`."""
        return self.topics.state_of(job_id)

    def find(self, job_id: str, timeout: float | None, since_ms: int | None = None) -> StateRecord | None:
        """See :class:`kafka.tasks.backends.base.Backend`."""
        return self.known(job_id)

    def settle(self, record: StateRecord) -> None:
        """See :class:`kafka.tasks.backends.base.Backend`."""
        self.topics.settle(record)

    def is_at_hand(self, job_id: str) -> bool:
        """Nothing is waited for."""
        return True

    def add_waiter(
        self, job_id: str, on_end: Callable[[StateRecord | None], object], timeout: float | None
    ) -> StateRecord | None:
        """See :class:`kafka.tasks.backends.base.Backend`."""
        return self.topics.add_waiter(job_id, on_end)

    def before_wait(self, job_id: str) -> StateRecord | None:
        """Jobs run elsewhere."""
        return None

    def remove_waiter(self, job_id: str, on_end: Callable[[StateRecord | None], object]) -> None:
        """See :class:`kafka.tasks.backends.base.Backend`."""
        self.topics.remove_waiter(job_id, on_end)

    def worker_backend(
        self,
        loop: Any,
        queues: Sequence[str],
        schedule: bool = False,
        declared: DeclaredJobs | None = None,
        ordered: Collection[str] = (),
    ) -> WorkerBackend:
        """See :class:`kafka.tasks.backends.base.Backend`."""
        if declared is not None and len(declared):
            for partition, record in declared.commands(1):
                self.send_command(record, partition)
        publisher = MemoryPublisher(self.topics, loop)
        deliveries: list[MemoryDelivery] = []

        def open_delivery(events: DeliveryEvents) -> JobDelivery:
            delivery = MemoryDelivery(self.topics, loop, events, publisher, self._names, queues, self._lock_s)
            deliveries.append(delivery)
            return delivery

        def watch_cancelled(on_cancelled: CancelledCallback) -> None:
            for delivery in deliveries:
                delivery.watch_cancelled(on_cancelled)

        return WorkerBackend(open_delivery, 1, 1, watch_cancelled=watch_cancelled)

    def schedule_member(self, loop: Any, declared: DeclaredJobs) -> ScheduleMember:
        """The same as of :meth:`snapshot_reader`."""
        raise self._refusal()

    def snapshot_reader(self) -> SnapshotReader:
        """KafkaConfigurationError: no command can look into the memory of another process."""
        raise self._refusal()

    def dead_log(self, queue: str) -> DeadLog:
        """The same."""
        raise self._refusal()

    def purge(self, queue: str) -> QueuePurge:
        """The same."""
        raise self._refusal()

    def migrate(self, queue: str, to: str) -> QueueMigration:
        """The same."""
        raise self._refusal()

    def set_paused(self, queue: str, is_paused: bool) -> bool:
        """The same."""
        raise self._refusal()

    def _refusal(self) -> KafkaConfigurationError:
        return KafkaConfigurationError(
            f"the jobs and workers of the app {self._names.app!r} are in the memory of one process ({self.address}): "
            "commands can neither list nor change them"
        )

    def close(self, timeout: float | None = None) -> None:
        """Jobs and results stay as long as the process lives."""
