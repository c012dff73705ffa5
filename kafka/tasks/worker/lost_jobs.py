"""Runs of the hidden error-handler task: error handlers of jobs that were killed, or given up at their hard limit.

Such a job has no place any more where its handlers could be called. The worker has the pool run them, as a job of the
task :data:`kafka.tasks.hooks.ERROR_TASK`, which no topic knows and whose outcome is only logged.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from kafka.tasks.delivery.base import JobLease, JobSource
from kafka.tasks.errors import counted
from kafka.tasks.format.envelope import Envelope
from kafka.tasks.format.payload import encode_call
from kafka.tasks.hooks import ERROR_TASK
from kafka.tasks.pools.runner import Job
from kafka.tasks.rules.outcome import AttemptFailed, ChildLost, JobSucceeded, Outcome
from kafka.tasks.task import Task

log = logging.getLogger(__name__)

HANDLER_S = 60.0
"""Hard limit of the error handlers when they run as a job of their own."""

MOST_ARGUMENTS = 262_144
"""Bytes of a killed job's payload above which its handlers do not get the arguments."""

_FACTS = ("cause", "signal", "exit_code", "rss_bytes", "peak_rss_bytes", "cpu_s")
"""Of a :class:`ChildLost`, for its :class:`WorkerLost`."""


class LostJobHandlers:
    """Runs of the hidden task that wait for a slot or run. ``task`` None: the app has no error handler."""

    __slots__ = ("_running", "_task", "_waiting")

    def __init__(self, task: Task[..., Any] | None) -> None:
        self._task = task
        self._waiting: deque[Job] = deque()
        self._running: set[Job] = set()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._running)

    def add_if_lost(self, job: Job, outcome: Outcome) -> None:
        """A job has ended: if it was killed or given up, its handlers are due."""
        if self._task is None:
            return
        if isinstance(outcome, ChildLost) and outcome.counts:
            lost = {name: getattr(outcome, name) for name in _FACTS}
            lost["text"] = outcome.error_info().text
        elif isinstance(outcome, AttemptFailed) and not outcome.handlers_called:
            lost = {"cause": "time", "text": outcome.error_info.text, "signal": outcome.kill_signal}
        else:
            return
        ended = job.envelope
        payload = ended.value if len(ended.value) <= MOST_ARGUMENTS else b""  # read where the handlers run
        seen = (ended.id, ended.name, ended.attempt, job.lease.deliveries, payload, ended.content_type)
        value = encode_call(ERROR_TASK, (*seen, lost), {})
        envelope = Envelope(ended.id, ERROR_TASK, value, store_result=False)
        lease = JobLease(JobSource("", ""), value, [], 1)
        self._waiting.append(Job(lease, envelope, self._task, None, HANDLER_S))

    def start(self, most: int, submit: Callable[[Job], None]) -> None:
        """Start up to ``most`` of them."""
        while self._waiting and most > 0:
            job = self._waiting.popleft()
            self._running.add(job)
            submit(job)
            most -= 1

    def finish(self, job: Job, outcome: Outcome) -> bool:
        """Whether it is one of these; then it is over."""
        if job not in self._running:
            return False
        self._running.remove(job)
        if not isinstance(outcome, JobSucceeded):
            log.error("the error handlers of job %s failed: %r", job.envelope.id, outcome)
        return True

    def requeue(self, job: Job) -> bool:
        """Whether it is one of these; then it waits again: the pool has not started it."""
        if job not in self._running:
            return False
        self._running.remove(job)
        self._waiting.appendleft(job)
        return True

    def drop(self) -> None:
        """The worker leaves without them."""
        if len(self):
            log.warning("not running the error handlers of %s: the worker is stopping", counted(len(self), "job"))
        self._waiting.clear()
        self._running.clear()
