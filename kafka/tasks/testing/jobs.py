"""``app.testing()``: the jobs that a test has enqueued, what became of them, and when they run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, NamedTuple, NoReturn

from kafka.tasks.backends.memory import WRITTEN
from kafka.tasks.errors import JobFailed, JobTimeout
from kafka.tasks.format.envelope import Envelope, Header, dead_letter_of, decode
from kafka.tasks.format.payload import PayloadCodec
from kafka.tasks.job import JobHandle
from kafka.tasks.pools.runner import Job
from kafka.tasks.rules.outcome import AttemptFailed, JobSucceeded, Outcome
from kafka.tasks.states import JobState
from kafka.tasks.testing.clocks import FakeClock
from kafka.tasks.testing.in_process import InProcessApp, InProcessJobs

MOST_RUNS: Final = 10_000
"""Default limit of the runs of one :meth:`TestingJobs.run_all` or :meth:`TestingJobs.advance`."""


class EnqueuedJob:
    """A job that was enqueued during the test.

    ``task`` is the task's name. ``options`` are those that came with the call or the task: ``timeout``,
    ``soft_timeout``, ``delay`` and ``expires`` (seconds from the enqueue) and ``store_result``. ``key``: as its record
    has it: bytes, a str in UTF-8; None: it has none.
    """

    def __init__(
        self, envelope: Envelope, queue: str, codec: PayloadCodec, handle: JobHandle[Any], now_ms: int
    ) -> None:
        self.id = envelope.id
        self.task = envelope.name
        self.queue = queue
        self.key = envelope.key
        given = {
            "timeout": envelope.timeout,
            "soft_timeout": envelope.soft_timeout,
            "delay": None if envelope.due_ms is None else (envelope.due_ms - now_ms) / 1000,
            "expires": None if envelope.expires_ms is None else (envelope.expires_ms - now_ms) / 1000,
            "store_result": envelope.store_result,
        }
        self.options = {name: value for name, value in given.items() if value is not None}
        self.handle = handle
        self.attempts = 0
        """How often it has run."""
        self.exception: BaseException | None = None
        """What its last run raised; None when that returned."""
        self._envelope = envelope
        self._codec = codec
        self._has_returned = False

    @property
    def args(self) -> Sequence[Any]:
        """The arguments that the task gets: encoded and decoded again."""
        return self._codec.decode_call(self._envelope.value, self._envelope.content_type)[0]

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """The keyword arguments."""
        return self._codec.decode_call(self._envelope.value, self._envelope.content_type)[1]

    @property
    def state(self) -> JobState:
        """Where it is now."""
        state = self.handle.status()
        return JobState.SUCCESS if state is JobState.QUEUED and self._has_returned else state

    @property
    def result(self) -> Any:
        """What it returned. Raises what :meth:`JobHandle.result` raises."""
        return self.handle.result(0)

    def on_ran(self, outcome: Outcome, error: BaseException | None) -> None:
        """It has run once more."""
        self.attempts += 1
        self.exception = error if isinstance(outcome, AttemptFailed) else None
        self._has_returned = isinstance(outcome, JobSucceeded)

    def __repr__(self) -> str:
        values = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
        return f"<EnqueuedJob {self.task}({', '.join(values)}) {self.state}>"


class DeadLetteredJob(NamedTuple):
    """A job in a dead topic: why (a cause such as ``"attempts"``), the class of the error and its text."""

    job: EnqueuedJob
    cause: str
    type: str
    text: str

    def raise_error(self) -> NoReturn:
        """Raise what its last run raised; :class:`JobFailed` when it has not run."""
        raise self.job.exception or JobFailed(self.type, self.text, "", "", self.job.id)


class TestingJobs:
    """The jobs of an app during a test: see :meth:`kafka.tasks.App.testing`."""

    __test__ = False  # pytest takes classes of this name for tests

    def __init__(self, app: InProcessApp, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self.jobs: list[EnqueuedJob] = []
        """The jobs that were enqueued, in order, also by jobs."""
        self._app = app
        self._by_id: dict[str, EnqueuedJob] = {}
        self._in_process = InProcessJobs(app, self.clock, self._note_sent, self._note_ran, _refuse_to_wait)

    def run_all(self, *, limit: int = MOST_RUNS, raise_errors: bool = False) -> int:
        """Run what is due, also what that enqueues; returns the number of runs.

        ``raise_errors``: raise, in the end, what the first job raised that went to a dead topic meanwhile. More than
        ``limit`` runs are an IllegalStateError.
        """
        return self._run_until(self.clock.monotonic(), limit, raise_errors)

    def advance(
        self,
        seconds: float | timedelta = 0.0,
        *,
        minutes: float = 0.0,
        hours: float = 0.0,
        days: float = 0.0,
        limit: int = MOST_RUNS,
        raise_errors: bool = False,
    ) -> int:
        """Let time pass, and run what is due now and what becomes due, each at its time. Else as :meth:`run_all`."""
        given_s = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
        instant = self.clock.instant_in(given_s + 60.0 * minutes + 3600.0 * hours + 86_400.0 * days)
        return self._run_until(instant, limit, raise_errors)

    @property
    def dead(self) -> list[DeadLetteredJob]:
        """The jobs in dead topics, in the order in which they got there."""
        records = [
            record
            for queue in self._app.queues
            for record in self._in_process.topics.topics.get(self._app.names.dead(queue), ())
        ]
        found = []
        for record in sorted(records, key=lambda record: record.time_ms):
            letter, job_id = dead_letter_of(record.headers), record.header("id")
            assert letter is not None and job_id is not None
            found.append(DeadLetteredJob(self._by_id[job_id], letter.cause, letter.type, letter.text))
        return found

    def close(self) -> None:
        """The app has its connection again, and what has not run is dropped."""
        self._in_process.close()

    def __enter__(self) -> TestingJobs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run_until(self, instant: float, limit: int, raise_errors: bool) -> int:
        already_dead = len(self.dead)
        runs = self._in_process.run_until(instant, limit)
        if raise_errors:
            for job in self.dead[already_dead:]:
                job.raise_error()
        return runs

    def _note_sent(self, topic: str, value: bytes, headers: list[Header], key: bytes | None) -> None:
        self._add(decode(value, headers, key), topic.removeprefix(f"{self._app.name}."))

    def _add(self, envelope: Envelope, queue: str) -> EnqueuedJob:
        codec = self._app.codec_of(envelope.name)
        handle: JobHandle[Any] = JobHandle(envelope.id, self._in_process.backend, codec, WRITTEN)
        job = EnqueuedJob(envelope, queue, codec, handle, self._in_process.topics.now_ms())
        self.jobs.append(job)
        self._by_id[job.id] = job
        return job

    def _note_ran(self, job: Job, outcome: Outcome, error: BaseException | None) -> None:
        known = self._by_id.get(job.envelope.id)
        if known is None:  # the schedule has made it
            known = self._add(job.envelope, job.lease.source.queue)
        known.on_ran(outcome, error)


def _refuse_to_wait(job_id: str) -> NoReturn:
    raise JobTimeout(
        f"job {job_id} has not ended, and no job runs while the test waits: call run_all() or advance() first"
    )
