"""``app.eager()``: ``delay`` runs the job at once. For a console, a script or a debugger.

The job is encoded and decoded as in production and runs in the caller's thread, with all its attempts; back-offs,
``Snooze`` and ``RetryAt`` take no time. Where an event loop runs, an ``async def`` task is refused. Jobs that a job
enqueues run when it has ended, before the caller's ``delay`` returns. Errors are in the log and in the handle;
``delay`` does not raise them. A ``delay`` of a second thread, while the first one runs a job, leaves its job to the
first one, and its handle waits for that.
"""

from __future__ import annotations

from types import TracebackType
from typing import Final

from kafka.errors import IllegalStateError
from kafka.tasks.errors import JobTimeout
from kafka.tasks.format.envelope import Header, decode
from kafka.tasks.format.records import StateRecord
from kafka.tasks.pools.runner import in_running_loop
from kafka.tasks.states import READY
from kafka.tasks.testing.clocks import SkippingClock
from kafka.tasks.testing.in_process import InProcessApp, InProcessJobs

MOST_RUNS: Final = 100_000
"""Of one ``delay``, with the jobs that its job enqueues."""


class EagerJobs:
    """See :meth:`kafka.tasks.App.eager`."""

    def __init__(self, app: InProcessApp) -> None:
        self._jobs = InProcessJobs(app, SkippingClock(), self._run_sent, lambda *ran: None, self._wait, self._check)
        self._app = app

    def close(self) -> None:
        """Jobs are sent to the brokers again."""
        self._jobs.close()

    def __enter__(self) -> EagerJobs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check(self, topic: str, value: bytes, headers: list[Header], key: bytes | None) -> None:
        """Refuse a coroutine where an event loop runs in this thread, since it needs one of its own."""
        name = decode(value, headers).name
        task = self._app.find_task(name)
        if task is not None and task.is_coroutine and in_running_loop():
            raise IllegalStateError(
                f"{name} is an async def task, which app.eager() cannot run where an event loop runs already: call "
                "delay() in a thread, as in `await asyncio.to_thread(send.delay, 7)`"
            )

    def _run_sent(self, topic: str, value: bytes, headers: list[Header], key: bytes | None) -> None:
        if not self._jobs.is_running:
            self._jobs.run_to_end(MOST_RUNS)

    def _wait(self, job_id: str) -> StateRecord:
        """A job that has not ended when its handle waits: another thread runs it, and is waited for."""
        if self._jobs.is_running_here:
            raise JobTimeout(f"job {job_id} has not ended: it runs when the job that enqueued it has ended")
        self._jobs.run_to_end(MOST_RUNS)
        record = self._jobs.topics.state_of(job_id)
        if record is None or record.state not in READY:
            raise JobTimeout(f"job {job_id} has no result: it has store_result=False, or was not enqueued here")
        return record
