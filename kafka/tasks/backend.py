"""Where an app's jobs are kept, as the app and the worker see it: two small interfaces, and how one is found.

:class:`Backend` is for those who enqueue and ask for results (any thread); :class:`WorkerBackend` is what a worker gets
(its loop's thread only). A back end is found by the scheme of ``bootstrap_servers`` in ``BACKENDS``: ``host:port`` is
``kafka``, ``embedded:DIR`` is ``embedded``. A new one is one more row there, whose function takes the app's name and
settings and returns a connected :class:`Backend`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from kafka.errors import KafkaConfigurationError
from kafka.tasks.delivery import DeliveryEvents, JobDelivery, Publisher
from kafka.tasks.envelope import Header
from kafka.tasks.ids import BrokerTimeEstimate
from kafka.tasks.results import StateRecord
from kafka.tasks.settings import Settings


class RecordFuture(Protocol):
    """The producer's future of one record, as far as a handle looks at it."""

    @property
    def is_done(self) -> bool:
        """Acknowledged, or given up."""

    @property
    def exception(self) -> BaseException | None:
        """Why it was given up."""


class QueueRoute(NamedTuple):
    """Where the jobs of a queue go: the topic, and the largest payload that it takes."""

    topic: str
    max_payload_bytes: int


class Backend(Protocol):
    """A place for jobs. All methods may be called from any thread; errors are the clients' own."""

    address: str
    """The brokers as the app's settings have them, for messages."""
    clock: BrokerTimeEstimate
    new_id: Callable[[], str]
    """Makes the next job id: broker time, this process's results partition."""

    def route(self, queue: str, declared: bool) -> QueueRoute:
        """The way to a queue; its topics exist afterwards.

        A queue that the app does not declare must have its topic already: :class:`kafka.tasks.errors.UnknownQueue`.
        """

    def send(self, topic: str, value: bytes, headers: list[Header]) -> RecordFuture:
        """Hand one job record to the producer; returns at once. Jobs are spread over all partitions."""

    def send_state(self, record: StateRecord) -> RecordFuture:
        """Hand one state record to the producer."""

    def flush(self, timeout: float | None) -> None:
        """Wait until all that was sent is acknowledged; ``KafkaTimeoutError`` after ``timeout`` seconds."""

    def find(self, job_id: str) -> StateRecord | None:
        """The best state record of a job, or None when there is none (yet)."""

    def wait(self, job_id: str, timeout: float | None) -> StateRecord | None:
        """The same once it is final, or as it is after ``timeout`` seconds."""

    def worker_backend(self, loop: Any, queues: Sequence[str], events: DeliveryEvents) -> WorkerBackend:
        """What a worker of ``queues`` needs, living on ``loop``."""

    def snapshot_reader(self) -> SnapshotReader:
        """A reader of what the app's workers say of themselves, with a connection of its own."""

    def close(self, timeout: float | None = None) -> None:
        """Flush and close the clients."""


class SnapshotPublisher(Protocol):
    """Where workers tell of themselves, so that whoever asks finds all of an app's, on whichever machine.

    On the loop's thread. Nobody waits for it, and nothing that a worker does depends on it: what cannot be written is
    told in the log, once, and otherwise forgotten.
    """

    def publish(self, worker_id: str, text: bytes | None) -> None:
        """Say ``text`` of this worker from now on; None: it has left. Dropped while the last one is under way."""

    def close(self, timeout_s: float) -> None:
        """Let what is under way arrive, driving the loop for ``timeout_s`` seconds at most; then let go."""


class PublishedSnapshot(NamedTuple):
    """What is known of one worker: what it said last, and the seconds since then."""

    worker_id: str
    text: bytes
    age_s: float


class SnapshotReader(Protocol):
    """What workers have said lately; for one thread that may block. Changes nothing at the brokers."""

    def read(self, wait_s: float = 0.0) -> list[PublishedSnapshot]:
        """The workers that have said something within the last minute and have not left; takes in news for ``wait_s``
        seconds first."""

    def close(self) -> None:
        """Disconnect."""


def _always_connected() -> None:
    """For back ends that cannot lose their broker."""


class WorkerBackend(NamedTuple):
    """A worker's half of a back end. ``snapshots`` None: its workers cannot be found by others. ``connect_error``:
    the last error when no broker is connected ("": not known), None when one is.
    """

    delivery: JobDelivery
    publisher: Publisher
    results_partitions: int
    snapshots: SnapshotPublisher | None = None
    connect_error: Callable[[], str | None] = _always_connected


BACKENDS: dict[str, str] = {
    "kafka": "kafka.tasks.kafka_backend:open_kafka",
    "embedded": "kafka.tasks.kafka_backend:open_kafka",
}
"""Scheme -> ``module:function``, imported on first use."""


def scheme_of(bootstrap_servers: str) -> str:
    """``kafka`` for ``host:port`` and for ``kafka://...``, else what stands before the first colon and a path."""
    if "://" in bootstrap_servers:
        return bootstrap_servers.split("://", 1)[0]
    return "embedded" if bootstrap_servers.startswith("embedded:") else "kafka"


def open_backend(app: str, settings: Settings) -> Backend:
    """The connected back end of an app; :class:`KafkaConfigurationError` for a scheme that nobody serves."""
    scheme = scheme_of(settings.bootstrap_servers)
    if scheme not in BACKENDS:
        raise KafkaConfigurationError(
            f"bootstrap_servers={settings.bootstrap_servers!r}: no back end for {scheme!r}; "
            "use 'host:port' or 'embedded:DIR'"
        )
    module, function = BACKENDS[scheme].split(":")
    found: Callable[[str, Settings], Backend] = getattr(importlib.import_module(module), function)
    return found(app, settings)
