"""The interfaces of an app and of a worker to the store of jobs, and how it is chosen. :class:`Backend` is for callers
that enqueue and read results (any thread); :class:`WorkerBackend` is for a worker (its loop's thread only). A back end
is found by the scheme of ``bootstrap_servers`` in ``BACKENDS``: ``host:port`` is ``kafka``, ``embedded:DIR`` is
``embedded``. A new one is one more row there, whose function takes the app's name and settings and returns a connected
:class:`Backend`. Other packages have their own as entry points of the group ``kafka.tasks.backends``, named by the
scheme.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from kafka.errors import KafkaConfigurationError
from kafka.future import Future
from kafka.tasks.delivery.base import DeliveryEvents, JobDelivery
from kafka.tasks.errors import JobsNotSent
from kafka.tasks.format.cancelled import CancelledJob
from kafka.tasks.format.commands import CommandRecord
from kafka.tasks.format.envelope import Header
from kafka.tasks.format.job_id import BrokerTimeEstimate
from kafka.tasks.format.records import StateRecord
from kafka.tasks.settings import Settings


class RecordFuture(Protocol):
    """The producer's future of one record, as far as a handle looks at it."""

    @property
    def is_done(self) -> bool:
        """Whether the record was acknowledged or has failed."""

    @property
    def exception(self) -> BaseException | None:
        """The error, or None."""

    def add_errback(self, f: Callable[..., Any], *args: Any) -> object:
        """Call ``f(*args, exception)`` when it fails, on the thread that finds that out."""


class NewId(Protocol):
    """Makes ids, as :class:`kafka.tasks.format.job_id.IdMaker`."""

    def __call__(self, at_ms: int | None = None) -> str:
        """The next id, of a job that starts at ``at_ms``; None: now."""


class QueueRoute(NamedTuple):
    """Where the jobs of a queue go: the topic, and the largest payload that it takes."""

    topic: str
    max_payload_bytes: int


PauseCallback = Callable[[frozenset[str]], object]
"""Called with those of a worker's queues that are paused now."""

CancelledCallback = Callable[[Sequence[CancelledJob]], object]
"""Called with jobs that were cancelled, of whatever queues."""


class Backend(Protocol):
    """A place for jobs. All methods may be called from any thread; errors are the clients' own."""

    app: str
    """The app's name."""
    result_ttl_s: float
    """How long results are kept."""
    address: str
    """The brokers as the app's settings have them, for messages."""
    clock: BrokerTimeEstimate
    new_id: NewId
    """Makes the next job id: broker time, this process's results partition."""

    def route(self, queue: str, declared: bool) -> QueueRoute:
        """The route to a queue; creates its topics.

        A queue that the app does not declare must have its topic already: :class:`kafka.tasks.errors.UnknownQueue`.
        """

    def has_room(self) -> bool:
        """Whether :meth:`send` to a topic that has a route would wait for nothing."""

    def send(self, topic: str, value: bytes, headers: list[Header], key: bytes | None = None) -> RecordFuture:
        """Pass one job record to the producer; returns at once. Jobs without a key are spread over all partitions."""

    @property
    def has_schedule(self) -> bool:
        """Whether :meth:`schedule_partitions` waits for nothing."""

    def schedule_partitions(self) -> int:
        """The number of partitions of the topics of the schedule; creates them, or checks them, on first use. Blocks
        then. KafkaConfigurationError when the two have different numbers."""

    def send_command(self, record: CommandRecord, partition: int) -> RecordFuture:
        """Pass one command to the producer; returns at once. After :meth:`schedule_partitions`."""

    def send_state(self, record: StateRecord) -> RecordFuture:
        """Pass one state record to the producer."""

    def flush(self, timeout: float | None) -> None:
        """Wait until all that was sent is acknowledged or has failed; ``KafkaTimeoutError`` after ``timeout``
        seconds."""

    def take_not_sent(self) -> JobsNotSent | None:
        """The jobs that could not be written since the last call; None when there are none. Also when closed."""

    def known(self, job_id: str) -> StateRecord | None:
        """The best state record of a job in this process's memory; asks no broker."""

    def find(self, job_id: str, timeout: float | None, since_ms: int | None = None) -> StateRecord | None:
        """The best state record of a job, or None when there is none (yet). KafkaTimeoutError when the brokers have not
        answered within ``timeout`` seconds. ``since_ms``: look for records from that time on; None: from the one in
        the id on."""

    def settle(self, record: StateRecord) -> None:
        """Take in the final record of a job, which the owner of the schedule has told before it is in the log."""

    def add_waiter(
        self, job_id: str, on_end: Callable[[StateRecord | None], object], timeout: float | None
    ) -> StateRecord | None:
        """The best state record of a job now. Unless it is final, ``on_end`` is called once with that one, on another
        thread: None when it is to be asked for, or the back end is closed. Errors as of :meth:`find`."""

    def is_at_hand(self, job_id: str) -> bool:
        """Whether :meth:`add_waiter` for this job waits for no broker."""

    def before_wait(self, job_id: str) -> StateRecord | None:
        """Called before a caller waits for a job: its final record, where jobs run in the caller's thread. Raises where
        the job would never end."""

    def remove_waiter(self, job_id: str, on_end: Callable[[StateRecord | None], object]) -> None:
        """Do not call ``on_end`` any more; nothing when it was not added."""

    def worker_backend(
        self,
        loop: Any,
        queues: Sequence[str],
        schedule: bool = False,
        declared: DeclaredJobs | None = None,
        ordered: Collection[str] = (),
    ) -> WorkerBackend:
        """What a worker of ``queues`` needs, living on ``loop``; with ``schedule`` it is a member of the group that
        owns the schedule, and says to it which periodic jobs are ``declared``. Jobs of the queues that are ``ordered``
        run in the order of their keys. Blocks, driving the loop, until it is
        connected."""

    def schedule_member(self, loop: Any, declared: DeclaredJobs) -> ScheduleMember:
        """The same for a process that owns partitions of the schedule and runs no jobs."""

    def snapshot_reader(self) -> SnapshotReader:
        """A reader of the snapshots of the app's workers, with a connection of its own."""

    def dead_log(self, queue: str) -> DeadLog:
        """The log of the queue's dead jobs, with a connection of its own; :class:`kafka.tasks.errors.UnknownQueue`
        when there is none."""

    def purge(self, queue: str) -> QueuePurge:
        """What a purge of the queue deletes, with a connection of its own; :class:`kafka.tasks.errors.UnknownQueue`
        when there is no such queue."""

    def migrate(self, queue: str, to: str) -> QueueMigration:
        """Have the jobs of a queue delivered by a ``"share"`` group or by a consumer ``"group"`` from now on; blocks,
        with a connection of its own. :class:`kafka.tasks.errors.UnknownQueue` when there is no such queue,
        IllegalStateError while it has workers. After an error, or a kill, it can be called again."""

    def set_paused(self, queue: str, is_paused: bool) -> bool:
        """Pause a queue, or resume it; False when it was so already. Blocks until that is durable, with a connection of
        its own; :class:`kafka.tasks.errors.UnknownQueue` when there is no such queue."""

    def close(self, timeout: float | None = None) -> None:
        """Flush and close the clients."""


class SnapshotPublisher(Protocol):
    """Publishes workers' snapshots, so that all workers of an app can be listed from any machine.

    On the loop's thread. It never blocks, and nothing that a worker does depends on it: a snapshot that cannot be
    written is logged once and dropped.
    """

    def publish(self, worker_id: str, text: bytes | None) -> None:
        """Publish ``text`` as the snapshot of this worker; None: it has stopped. It replaces one that is still
        waiting."""

    def close(self, timeout_s: float) -> None:
        """Wait for the snapshot under way, driving the loop for at most ``timeout_s`` seconds; then disconnect."""


class PublishedSnapshot(NamedTuple):
    """The last snapshot of one worker, and its age in seconds."""

    worker_id: str
    text: bytes
    age_s: float


class QueueBacklog(NamedTuple):
    """What the store knows of a queue. ``unfinished``: jobs that have not ended, whether they wait or run, without
    those in the schedule; ``dead``: records in its dead topic."""

    queue: str
    unfinished: int
    dead: int


class QueueDelivery(NamedTuple):
    """How the jobs of a queue are delivered. ``delivery``: ``"share"`` or ``"group"``, None: no worker has read it yet;
    ``protocol``: of a consumer group, ``"classic"`` or ``"consumer"`` (KIP-848); ``group_state``: of the group, as the
    broker names it, such as ``Stable`` and ``Empty``."""

    queue: str
    delivery: str | None = None
    protocol: str | None = None
    group_state: str | None = None


class QueueMigration(NamedTuple):
    """What a migration has found, and done. ``found``: how the queue's jobs were delivered before, ``"share"`` or
    ``"group"``, None: no worker has read it yet; ``moved``: jobs that were written anew; ``waiting``: jobs that have
    not ended, these included."""

    found: str | None
    moved: int = 0
    waiting: int = 0


class SnapshotReader(Protocol):
    """Reads the snapshots that workers have published lately, and how long queues are; for one thread, may block.
    Changes nothing at the brokers."""

    def read(self, wait_s: float = 0.0) -> list[PublishedSnapshot]:
        """The workers that have published a snapshot within the last minute and have not stopped; reads new snapshots
        for ``wait_s`` seconds first."""

    def backlogs(self, queues: Sequence[str]) -> list[QueueBacklog]:
        """Each queue's backlog now."""

    def deliveries(self, queues: Sequence[str]) -> list[QueueDelivery]:
        """How the jobs of each queue are delivered now."""

    def paused(self) -> frozenset[str]:
        """The queues that are paused now."""

    def close(self) -> None:
        """Disconnect."""


BacklogCallback = Callable[["list[QueueBacklog] | BaseException"], object]


class DeadRecord(NamedTuple):
    """A record of a dead topic, with its append time."""

    partition: int
    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]


class DeadLog(Protocol):
    """The log that holds a queue's dead jobs: partitions of records in the order of their append times. For one thread;
    every method may block. Errors are the clients' own."""

    topic: str

    def bounds(self) -> dict[int, tuple[int, int]]:
        """Partition -> its first offset, and the offset behind its last record."""

    def offsets_at(self, time_ms: int) -> dict[int, int]:
        """Partition -> the offset of its first record of that time or later, or the offset behind its last record."""

    def read(self, spans: Mapping[int, tuple[int, int]]) -> Iterator[DeadRecord]:
        """The records of these partitions from the first offset on and before the second, by time over all
        partitions. Only the records under way are in memory."""

    def append(self, partition: int, value: bytes, headers: list[Header]) -> None:
        """Write one record, and wait until it is durable."""

    def delete_before(self, offsets: Mapping[int, int]) -> None:
        """Delete the records of these partitions before an offset."""

    def close(self) -> None:
        """Disconnect."""


class QueuePurge(Protocol):
    """The jobs of a queue that had not ended when this was made. Blocks; errors are the clients' own."""

    jobs: int
    """How many there were: waiting ones, and those that workers hold."""

    def delete(self) -> None:
        """Delete the records of these jobs."""

    def close(self) -> None:
        """Disconnect."""


class ScheduleSnapshot(NamedTuple):
    """What a member of the schedule's group has. ``partitions``: those that it owns, of which ``running`` work
    already; ``jobs``: those that their owners know, in them; ``moved``: jobs written to their queues by this member
    since its start; ``late_s``: how late the latest job is, or was in its partition's last round."""

    partitions: tuple[int, ...]
    running: int
    jobs: int
    moved: int
    late_s: float


class DeclaredJobs(Protocol):
    """The periodic jobs that an app's code declares: :class:`kafka.tasks.periodic.DeclaredEntries`."""

    def __len__(self) -> int:
        """How many there are."""

    @property
    def queues(self) -> set[str]:
        """Their queues."""

    def commands(self, partitions: int) -> list[tuple[int, CommandRecord]]:
        """The commands that say to each partition of the schedule what is declared."""


class ScheduleMember(Protocol):
    """A process's membership in the group that owns the schedule. On the loop's thread; never blocks."""

    def start(self) -> None:
        """Join; nothing after :meth:`close`."""

    def close(self) -> Future[None]:
        """Leave at once, so that others take over; done when that is over. Any number of times."""

    def snapshot(self) -> ScheduleSnapshot:
        """What it has now."""


def _always_connected() -> None:
    """Default for back ends that cannot lose their broker."""


def _never_paused(on_paused: PauseCallback) -> None:
    """Default for back ends whose queues cannot be paused."""


def _none_cancelled(on_cancelled: CancelledCallback) -> None:
    """Default for back ends whose jobs cannot be cancelled."""


class WorkerBackend(NamedTuple):
    """A worker's half of a back end, on the worker's loop.

    ``open_delivery``: called once, with the worker that gets the events; none comes before the loop's next turn.
    ``results_partitions``, ``schedule_partitions``: of the topics of the results, and of those of the schedule.
    ``watch_pauses`` calls back on the loop when other queues are paused, and at once when some are paused now;
    ``watch_cancelled`` when jobs are cancelled, and at once with those that are.
    ``snapshots`` None: its workers cannot be found by others. ``connect_error``: the last error when no broker is
    connected ("": not known), None when one is. ``measure_backlogs`` calls back on the loop with the backlogs of its
    queues, or with an error; None: not known. ``schedule`` None: this worker owns no partitions of the schedule.
    """

    open_delivery: Callable[[DeliveryEvents], JobDelivery]
    results_partitions: int
    schedule_partitions: int
    watch_pauses: Callable[[PauseCallback], object] = _never_paused
    snapshots: SnapshotPublisher | None = None
    connect_error: Callable[[], str | None] = _always_connected
    measure_backlogs: Callable[[BacklogCallback], object] | None = None
    schedule: ScheduleMember | None = None
    watch_cancelled: Callable[[CancelledCallback], object] = _none_cancelled


BACKENDS: dict[str, str] = {
    "kafka": "kafka.tasks.backends.kafka:open_kafka",
    "embedded": "kafka.tasks.backends.kafka:open_kafka",
    "memory": "kafka.tasks.backends.memory:open_memory",
}
"""Scheme -> ``module:function``, imported on first use."""

IN_PROCESS = frozenset({"memory"})
"""Schemes of back ends whose jobs never leave the process."""

ENTRY_POINTS = "kafka.tasks.backends"
"""The group of entry points of back ends in other packages; each is such a function, named by its scheme."""

Connect = Callable[[str, Settings], Backend]


def scheme_of(bootstrap_servers: str) -> str:
    """``kafka`` for ``host:port`` and for ``kafka://...``, else what stands before the first colon and a path."""
    if "://" in bootstrap_servers:
        return bootstrap_servers.split("://", 1)[0]
    return "embedded" if bootstrap_servers.startswith("embedded:") else "kafka"


def open_backend(app: str, settings: Settings) -> Backend:
    """The connected back end of an app; :class:`KafkaConfigurationError` for an unknown scheme."""
    scheme = scheme_of(settings.bootstrap_servers)
    if scheme not in BACKENDS:
        return _from_entry_point(scheme, settings.bootstrap_servers)(app, settings)
    module, function = BACKENDS[scheme].split(":")
    connect: Connect = getattr(importlib.import_module(module), function)
    return connect(app, settings)


def _from_entry_point(scheme: str, servers: str) -> Connect:
    """The function of an installed package's entry point; the first one, when several have the same name."""
    from importlib import metadata  # 20 ms that no built-in back end needs

    for entry in metadata.entry_points(group=ENTRY_POINTS, name=scheme):
        try:
            connect: Connect = entry.load()
        except (ImportError, AttributeError) as error:
            raise KafkaConfigurationError(
                f"bootstrap_servers={servers!r}: could not load the back end {entry.value!r} of an installed package: "
                f"{error}"
            ) from error
        return connect
    raise KafkaConfigurationError(
        f"bootstrap_servers={servers!r}: no back end for {scheme!r}; use 'host:port', 'embedded:DIR' or 'memory://', "
        f"or install a package that has one (an entry point {scheme!r} of the group {ENTRY_POINTS})"
    )
