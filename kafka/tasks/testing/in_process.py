"""Jobs that run in the caller's thread, when it says so: what ``app.testing()`` and ``app.eager()`` are made of.

While it holds, the app's back end is one in memory, and the worker is production's, with an inline pool, on a simulated
loop: so jobs are encoded, checked, retried, delayed and moved to dead topics as ever, and time is what the clock says.
There is no thread and no sleep. Not enforced are the limits of running (``timeout``, ``soft_timeout``), which take
another thread or process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

from kafka.errors import IllegalStateError
from kafka.net.clock import ManualClock
from kafka.net.loop import Loop
from kafka.tasks.backends.base import Connect, RecordFuture
from kafka.tasks.backends.memory import MemoryBackend
from kafka.tasks.delivery.base import JobSource, sources_of
from kafka.tasks.delivery.memory import MemoryTopics
from kafka.tasks.errors import wall_clock
from kafka.tasks.format.commands import DUE, CommandRecord, decode_command
from kafka.tasks.format.envelope import Header
from kafka.tasks.format.job_id import BrokerTimeEstimate
from kafka.tasks.format.payload import PayloadCodec
from kafka.tasks.format.records import StateRecord
from kafka.tasks.format.topics import TopicNames
from kafka.tasks.options import WorkerOptions
from kafka.tasks.periodic import DeclaredEntries
from kafka.tasks.pools.inline import InlinePool
from kafka.tasks.pools.runner import Job
from kafka.tasks.pools.runner import run as run_job
from kafka.tasks.rules.outcome import AttemptFailed, Outcome
from kafka.tasks.settings import Settings
from kafka.tasks.task import Task
from kafka.tasks.worker.worker import Worker

HOST: Final = "localhost"

LOCK_S: Final = 1e9
"""Longer than any test lets pass: one that sets the clock forward by itself is not to lose locks by that."""

GRAIN_S: Final = 1e-6
"""Sums of seconds are not exact, so what is nearer than this is due."""

_HIGHER_LIMIT: Final = "; if they do not, pass a higher limit: t.run_all(limit=...)"

RanCallback = Callable[[Job, Outcome, "BaseException | None"], object]
SentCallback = Callable[[str, bytes, "list[Header]", "bytes | None"], object]
"""Topic, value, headers and key of a job."""
Wait = Callable[[str], StateRecord]


class InProcessApp(Protocol):
    """The interface of an app to what runs its jobs."""

    names: TopicNames
    settings: Settings

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def tasks(self) -> Mapping[str, Task[..., Any]]:
        """Its tasks by name."""

    def find_task(self, name: str) -> Task[..., Any] | None:
        """The task of that name, or former name."""

    @property
    def queues(self) -> Sequence[str]:
        """Its queues."""

    @property
    def declared(self) -> DeclaredEntries:
        """Its periodic entries."""

    def codec_of(self, name: str) -> PayloadCodec:
        """How calls and results of a task are written and read."""

    def replace_backend(self, connect: Connect) -> Callable[[], None]:
        """Use another back end until the returned function is called."""


class _Backend(MemoryBackend):
    """The app's back end meanwhile: ``check`` is called before each enqueue and may raise, ``on_sent`` after it,
    ``wait`` when a handle would wait for a job: it returns the job's final record, or raises."""

    def __init__(
        self,
        app: InProcessApp,
        topics: MemoryTopics,
        clock: BrokerTimeEstimate,
        on_sent: SentCallback,
        wait: Wait,
        check: SentCallback,
    ) -> None:
        super().__init__(app.name, app.settings, topics, clock, LOCK_S)
        self.address = "this process"
        self._check = check
        self._on_sent = on_sent
        self._wait = wait

    def send(self, topic: str, value: bytes, headers: list[Header], key: bytes | None = None) -> RecordFuture:
        self._check(topic, value, headers, key)
        written = super().send(topic, value, headers, key)
        self._on_sent(topic, value, headers, key)
        return written

    def send_command(self, record: CommandRecord, partition: int) -> RecordFuture:
        command = decode_command(record.key, record.value, record.headers)
        if command is None or command.job is None:
            return super().send_command(record, partition)
        job, topic = command.job, self._names.queue(command.job.queue)
        headers: list[Header] = [*job.headers, (DUE, b"%d" % command.due_ms)]
        self._check(topic, job.value, headers, job.key)
        written = super().send_command(record, partition)
        self._on_sent(topic, job.value, headers, job.key)
        return written

    def before_wait(self, job_id: str) -> StateRecord | None:
        return self._wait(job_id)


class _Tasks(Mapping[str, Task[..., Any]]):
    """The app's tasks as they are now, also by their former names."""

    def __init__(self, app: InProcessApp) -> None:
        self._app = app

    def __getitem__(self, name: str) -> Task[..., Any]:
        task = self._app.find_task(name)
        if task is None:
            raise KeyError(name)
        return task

    def __iter__(self) -> Iterator[str]:
        return iter(self._app.tasks)

    def __len__(self) -> int:
        return len(self._app.tasks)


class InProcessJobs:
    """The jobs of an app, from now on until :meth:`close`. ``on_ran`` is called after each run of a job, ``check``
    before each enqueue, which it may refuse."""

    def __init__(
        self,
        app: InProcessApp,
        clock: ManualClock,
        on_sent: SentCallback,
        on_ran: RanCallback,
        wait: Wait,
        check: SentCallback = lambda *sent: None,
    ) -> None:
        self.clock = clock
        time = BrokerTimeEstimate(clock.time)
        self.topics = MemoryTopics(time.now_ms)
        self._app = app
        self._on_ran = on_ran
        self._loop = Loop.simulated(clock)
        self.backend: MemoryBackend = _Backend(app, self.topics, time, on_sent, wait, check)
        self._sources: list[JobSource] = []
        self._served: set[str] = set()
        self._declared_version = ""
        self._run_count = 0
        self._last_name = ""
        self._interrupt: KeyboardInterrupt | None = None
        self._lock = threading.Lock()
        self._running_thread: int | None = None
        self._restore: Callable[[], None] | None = app.replace_backend(lambda name, settings: self.backend)

    @property
    def is_running(self) -> bool:
        """Whether a thread runs jobs now."""
        return self._running_thread is not None

    @property
    def is_running_here(self) -> bool:
        """Whether the calling thread runs a job now."""
        return self._running_thread == threading.get_ident()

    def close(self) -> None:
        """The app has its former back end again. What has not run is dropped."""
        restore, self._restore = self._restore, None
        if restore is not None:
            restore()
            self._loop.close()

    def run_until(self, instant: float, most_runs: int) -> int:
        """Run what is due, and let the clock go on to the monotonic ``instant``, from deadline to deadline; returns the
        number of runs. IllegalStateError after ``most_runs`` when there are more."""
        with self._running(most_runs, _HIGHER_LIMIT) as run_due:
            before = self._run_count
            run_due()
            while (next_at := self._loop.next_timer_at()) is not None and next_at <= instant + GRAIN_S:
                self._set_clock(next_at)
                run_due()
            self._set_clock(instant)
            return self._run_count - before

    def run_to_end(self, most_runs: int) -> None:
        """Run jobs until none is left, letting the clock go on as far as it takes. Errors as of :meth:`run_until`."""
        with self._running(most_runs) as run_due:
            run_due()
            schedule = self.topics.open_schedule(self._app.names)
            while schedule.has_waiting or any(self.topics.has_unfinished(each.topic) for each in self._sources):
                next_at = self._loop.next_timer_at()
                assert next_at is not None, "a job is held by the worker without a timer"
                self._set_clock(next_at)
                run_due()

    @contextmanager
    def _running(self, most_runs: int, remedy: str = "") -> Iterator[Callable[[], None]]:
        if self._restore is None:
            raise IllegalStateError(f"the jobs of app {self._app.name} do not run here any more: the block has ended")
        if self.is_running_here:
            raise IllegalStateError("a job cannot run the others: they run when it has ended")
        with self._lock:
            self._running_thread = threading.get_ident()
            try:
                self._serve_queues()
                self._declare_entries()
                first = self._run_count
                yield lambda: self._run_due(first, most_runs, remedy)
            finally:
                self._running_thread = None

    def _run_due(self, first: int, most_runs: int, remedy: str) -> None:
        while self._loop.run_once(0, advance=False):
            interrupt, self._interrupt = self._interrupt, None
            if interrupt is not None:
                raise interrupt
            if self._run_count - first > most_runs:
                raise IllegalStateError(
                    f"more than {most_runs} jobs have run, the last one of task {self._last_name}: it seems that jobs "
                    f"enqueue others, snooze or retry without end{remedy}"
                )

    def _set_clock(self, instant: float) -> None:
        if instant > self.clock.monotonic():
            self.clock.set(instant)

    def _serve_queues(self) -> None:
        """Have a worker for the queues that were declared since the last call."""
        app, settings = self._app, self._app.settings
        queues = [queue for queue in app.queues if queue not in self._served]
        if not queues:
            return
        self._served.update(queues)
        options = WorkerOptions(track_started=settings.track_started, unknown_ttl_s=settings.unknown_ttl)
        pool = InlinePool(self._run, 1, lambda: self._loop.call_soon_threadsafe(worker.finished))
        now_ms, worker_backend = self.backend.clock.now_ms, self.backend.worker_backend(self._loop, queues)
        worker = Worker(_Tasks(app), app.names, self._loop, now_ms, HOST, worker_backend, pool, options)
        self._sources += sources_of(app.names, queues)
        worker.start()

    def _declare_entries(self) -> None:
        """Say to the schedule which periodic entries the code declares, if they have changed."""
        declared = self._app.declared
        if not len(declared) and not self._declared_version:
            return
        version = declared.version()
        if version != self._declared_version:
            self._declared_version = version
            for partition, record in declared.commands(1):
                self.backend.send_command(record, partition)

    def _run(self, job: Job) -> Outcome:
        errors: list[BaseException] = []
        self._run_count += 1
        self._last_name = job.envelope.name
        token = wall_clock.set(self.clock.time)
        try:
            outcome = run_job(job, on_error=errors.append)
        finally:
            wall_clock.reset(token)
        if errors and isinstance(errors[0], KeyboardInterrupt) and isinstance(outcome, AttemptFailed):
            self._interrupt = errors[0]  # the caller's; the job has failed, and is not retried
            outcome = AttemptFailed(outcome.error_info, listed=False)
        self._on_ran(job, outcome, errors[0] if errors else None)
        return outcome
