"""The loop of a child: takes jobs from its channel, runs them one by one and writes their outcomes, until there are no
more.

A job's way: the page says that it has begun, and so does a message if the worker asks for it; it runs, the guard's
window open while user code does; the page says that its outcome is being written; the outcome is written; the page says
that it is done. Whenever the child dies, the parent knows from page and messages whether the job had begun and whether
its outcome is complete.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import signal
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from kafka.tasks.delivery.base import JobLease, JobSource
from kafka.tasks.errors import SoftTimeLimit
from kafka.tasks.pools.child.soft_limit import SoftLimitWindow
from kafka.tasks.pools.ipc.channel import ChildChannel
from kafka.tasks.pools.ipc.messages import Packet
from kafka.tasks.pools.ipc.processes import JobDone
from kafka.tasks.pools.ipc.shared_page import SharedPage
from kafka.tasks.pools.job_logging import JobLogContext
from kafka.tasks.pools.runner import Job, error_info_of, run
from kafka.tasks.pools.task_forks import FLUSH_S, exit_forked_copy
from kafka.tasks.rules.outcome import AttemptFailed, ErrorInfo, Outcome

if TYPE_CHECKING:
    from kafka.tasks.app import App
    from kafka.tasks.task import Task

log = logging.getLogger(__name__)

EXIT_BROKEN_CHANNEL = 70
"""Exit code of a child whose channel is closed or damaged, after ``sysexits.h``: EX_SOFTWARE."""


class ChildParameters(NamedTuple):
    """What a child has to know beside its app. ``parent_pid``: who must be its parent, None: anyone. ``stacks_fd``: its
    stacks go there. ``descriptors``: how many it may have. ``is_fork``: the worker itself was forked, and there is
    nothing to compare with it. ``process_per_job``: each job runs in a fork of the child.
    """

    worker_pid: int
    parent_pid: int | None
    stacks_fd: int
    descriptors: int
    is_fork: bool = False
    process_per_job: bool = False


_NOWHERE = ""


@lru_cache(maxsize=64)
def _source_of(queue: str) -> JobSource:
    """Of the jobs of a queue, whose topic a child does not know."""
    return JobSource(queue, _NOWHERE)


class ChildJob(Job):
    """A job in a child: ``cancelled`` is what the page says."""

    __slots__ = ("_page", "_seq")

    def __init__(self, packet: Packet, task: Task[..., Any], page: SharedPage) -> None:
        self._page = page
        self._seq = packet.seq
        lease = JobLease(_source_of(packet.queue), packet.envelope.value, (), packet.deliveries)
        super().__init__(lease, packet.envelope, task)

    @property
    def cancelled(self) -> bool:
        """The parent has said so, or the soft limit has passed."""
        page = self._page
        return page.cancelled_seq == self._seq or page.soft_seq == self._seq


class JobLoop:
    """The loop of a child. ``app`` has the tasks."""

    def __init__(
        self,
        channel: ChildChannel,
        app: App,
        window: SoftLimitWindow,
        job_log: JobLogContext,
        parameters: ChildParameters,
    ) -> None:
        self._channel = channel
        self._parameters = parameters
        self._page = channel.page
        self._app = app
        self._window = window
        self._job_log = job_log
        self.is_forked_copy = False
        """Whether this is a copy that a task has forked: it has no channel, and its job is the original's."""

    def serve(self) -> int:
        """Run jobs until there are no more; the exit code."""
        channel, page = self._channel, self._page
        page.idle(0, time.monotonic())
        try:
            while True:
                seq = channel.take()
                if not seq:
                    return 0
                self._run_next(seq)
        except OSError as error:
            if not self.is_forked_copy:
                log.error("the channel to the worker is closed or damaged (%s); this child ends", error)
            return EXIT_BROKEN_CHANNEL

    def _run_next(self, seq: int) -> None:
        """Run the job that was taken from the channel."""
        self._run_one(self._channel.packet())

    def _run_one(self, packet: Packet) -> None:
        """Runs a job, with its progress on the shared page (where the parent looks for time limits and, after the
        child's death, for the job to blame), and reports its outcome. A copy that the task forked exits here: its
        outcome is the original's."""
        page, window = self._page, self._window
        seq = packet.seq
        window.set_job(seq)
        started_at = time.monotonic()
        page.begin(seq, started_at)
        if packet.track_started:
            self._channel.send_started(seq, started_at)
        self._job_log.begin(packet.envelope.id, packet.envelope.name)
        ran_s = 0.0
        try:
            outcome: Outcome
            task = self._app.find_task(packet.envelope.name)
            if task is None:
                outcome = AttemptFailed(
                    ErrorInfo("UnknownTask", f"this child has no task {packet.envelope.name!r}"), listed=False
                )
            else:
                outcome, ran_s = self._outcome(packet, task)
        finally:
            window.close()
        if self.is_forked_copy:
            os._exit(0)
        page.write()
        self._job_log.end()
        self._channel.send_done(JobDone(seq, outcome, ran_s, started_at))
        page.idle(seq, time.monotonic())

    def _outcome(self, packet: Packet, task: Task[..., Any]) -> tuple[Outcome, float]:
        job = ChildJob(packet, task, self._page)
        try:
            try:
                outcome = run(job, self._window)
            finally:
                try:  # noqa: SIM105  # Python 3.10 looks for signals as an except block begins, and not as a `try` does
                    signal.alarm(0)  # also one that a handler of the app has left armed; 0.4 us
                except BaseException:
                    pass
        except SoftTimeLimit as late:  # raised as the function ended
            error_info = ErrorInfo(type(late).__name__, "the soft time limit was reached as the task ended")
            return AttemptFailed(error_info, task.retries(late)), time.monotonic() - self._page.started_at
        except BaseException as late:  # of a handler of the task's own
            return AttemptFailed(error_info_of(late), task.retries(late)), time.monotonic() - self._page.started_at
        return outcome, job.ran_s

    def on_task_fork(self) -> None:
        """In a process that a task has forked: close the channel. The copy must not take jobs, and would hold the
        channel open after the child has died. It ends where the task's function does: later, handlers would be called
        twice.
        """
        self.is_forked_copy = True
        self._window.on_task_fork(self._exit_copy)
        self._channel.close()

    def _exit_copy(self, error: BaseException | None) -> NoReturn:
        """End as a process does whose main function is over: the run's handlers and its outcome are not the copy's."""
        exit_forked_copy(error, self._app)


def run_exit_functions(app: App) -> None:
    """Flush what tasks have enqueued, and call what they have registered for the end of the process."""
    with contextlib.suppress(Exception):
        app.close(FLUSH_S)
    atexit._run_exitfuncs()
