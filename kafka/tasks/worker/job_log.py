"""The log of a worker's jobs at INFO: received, succeeded, retried, snoozed, cancelled, expired, lost; one line each.

Above :data:`MOST_LINES` lines a second there is one line a second for each task instead, with counts. Which of both is
decided for all jobs of a turn at once, so that a worker that runs 20,000 jobs a second pays for no line of any of them.
Jobs that fail for good or lose their process are WARNINGs of :mod:`kafka.tasks.worker.admission`, limited in their own
way; here they are only counted.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from kafka.tasks.format.envelope import Envelope
from kafka.tasks.pools.runner import Job
from kafka.tasks.rules.decide import JobDecision, JobPolicy
from kafka.tasks.rules.outcome import JobCancelled, JobSucceeded, Outcome
from kafka.tasks.worker.admission import error_summary
from kafka.tasks.worker.observer import (
    EXPIRED,
    FAILED,
    LOST,
    MOST_TASKS,
    OTHER_TASKS,
    RETRIED,
    REVOKED,
    SNOOZED,
    SUCCEEDED,
    ending_of,
)
from kafka.tasks.worker.worker import WorkerTimers

log = logging.getLogger(__name__)

MOST_LINES: Final = 100
WINDOW_S: Final = 1.0
"""So many lines at most within so many seconds; then counts."""

_RECEIVED: Final = "received"
_SHOWN: Final = (_RECEIVED, SUCCEEDED, RETRIED, SNOOZED, FAILED, REVOKED, EXPIRED, LOST)
"""The words of a summary, in this order."""


class _TaskSummary:
    """What the jobs of one task did in the present window; ``ran_s``: of those that succeeded, together."""

    __slots__ = ("counts", "ran_s")

    def __init__(self) -> None:
        self.counts = dict.fromkeys(_SHOWN, 0)
        self.ran_s = 0.0

    def __str__(self) -> str:
        return ", ".join(self._text(word, count) for word, count in self.counts.items() if count)

    def _text(self, word: str, count: int) -> str:
        mean = f" (mean {self.ran_s / count * 1000:.3g} ms)" if word == SUCCEEDED else ""
        return f"{count:,} {word}{mean}"


class JobLog:
    """A :class:`kafka.tasks.worker.observer.JobObserver`. ``timers``: the worker's loop."""

    def __init__(self, timers: WorkerTimers) -> None:
        self._timers = timers
        self._window_ends_at = 0.0
        self._line_count = 0  # in this window, written or not
        self._timer: Any = None  # while lines are summarised
        self._summaries: dict[str, _TaskSummary] = {}

    def on_received(self, jobs: Sequence[Job]) -> None:
        """See :class:`kafka.tasks.worker.observer.JobObserver`."""
        if self._is_off():
            return
        if self._may_write(len(jobs)):
            for job in jobs:
                log.info("%s %s received", job.envelope.name, job.envelope.id)
        else:
            for name, count in Counter([job.envelope.name for job in jobs]).items():
                self._summary(name).counts[_RECEIVED] += count

    def on_ran(self, ended: Sequence[tuple[Job, Outcome]]) -> None:
        """See :class:`kafka.tasks.worker.observer.JobObserver`. Here for those that succeeded."""
        if self._is_off():
            return
        succeeded = [job for job, outcome in ended if type(outcome) is JobSucceeded]
        if self._may_write(len(succeeded)):
            for job in succeeded:
                log.info("%s %s succeeded in %.3f s", job.envelope.name, job.envelope.id, job.ran_s)
        else:
            for name, count in Counter([job.envelope.name for job in succeeded]).items():
                self._summary(name).counts[SUCCEEDED] += count
            for job in succeeded:
                self._summary(job.envelope.name).ran_s += job.ran_s

    def on_decided(
        self,
        queue: str,
        envelope: Envelope,
        outcome: Outcome,
        decision: JobDecision,
        policy: JobPolicy,
        now_ms: int,
    ) -> None:
        """See :class:`kafka.tasks.worker.observer.JobObserver`."""
        ending = ending_of(outcome, decision)
        if ending is None or self._is_off():
            return
        if not self._may_write(1):
            self._summary(envelope.name).counts[ending] += 1
        elif ending == RETRIED:
            most = "" if policy.max_attempts is None else f" of {policy.max_attempts}"
            later, why = _later(decision, now_ms), error_summary(outcome)
            message = "%s %s will be retried%s after attempt %d%s (%s)"
            log.info(message, envelope.name, envelope.id, later, envelope.attempt, most, why)
        elif ending == SNOOZED:
            log.info("%s %s will be started again%s (snoozed)", envelope.name, envelope.id, _later(decision, now_ms))
        elif isinstance(outcome, JobCancelled):
            log.info("%s %s was cancelled (%s)", envelope.name, envelope.id, outcome.reason)
        elif ending == EXPIRED:
            log.info("%s %s expired before it started", envelope.name, envelope.id)

    def on_cancelled(self, jobs: Sequence[tuple[str, Envelope]], is_running: bool) -> None:
        """See :class:`kafka.tasks.worker.observer.JobObserver`."""
        if self._is_off():
            return
        if self._may_write(len(jobs)):
            when = "while it runs; its outcome is dropped" if is_running else "before it started"
            for _, envelope in jobs:
                log.info("%s %s was cancelled %s", envelope.name, envelope.id, when)
        else:
            for _, envelope in jobs:
                self._summary(envelope.name).counts[REVOKED] += 1

    def on_locks_lost(self, jobs: Sequence[Job], reason: str) -> None:
        """See :class:`kafka.tasks.worker.observer.JobObserver`."""
        if self._is_off():
            return
        if self._may_write(len(jobs)):
            for job in jobs:
                log.info("%s %s lost: %s; another worker runs it", job.envelope.name, job.envelope.id, reason)
        else:
            for job in jobs:
                self._summary(job.envelope.name).counts[LOST] += 1

    def close(self) -> None:
        """Write what was summarised since the last summary."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._write_summaries()

    def _is_off(self) -> bool:
        return not log.isEnabledFor(logging.INFO)

    def _may_write(self, count: int) -> bool:
        """Whether so many more lines are written one by one; False: they are counted."""
        if self._timer is not None:
            self._line_count += count
            return False
        now = self._timers.time()
        if now >= self._window_ends_at:
            self._begin_window(now)
        self._line_count += count
        if self._line_count <= MOST_LINES:
            return True
        self._timer = self._timers.call_at(self._window_ends_at, self._end_window)
        return False

    def _begin_window(self, now: float) -> None:
        self._window_ends_at = now + WINDOW_S
        self._line_count = 0

    def _end_window(self) -> None:
        """Write the summaries of this window. After one with few lines the next has them one by one again."""
        self._write_summaries()
        is_many, self._timer = self._line_count > MOST_LINES, None
        self._begin_window(self._timers.time())
        if is_many:
            self._timer = self._timers.call_at(self._window_ends_at, self._end_window)

    def _write_summaries(self) -> None:
        summaries, self._summaries = self._summaries, {}
        for name, summary in summaries.items():
            log.info("%s: %s within %g s", name, summary, WINDOW_S)

    def _summary(self, name: str) -> _TaskSummary:
        found = self._summaries.get(name)
        if found is None:
            if len(self._summaries) >= MOST_TASKS:
                name = OTHER_TASKS
            found = self._summaries.setdefault(name, _TaskSummary())
        return found


def _later(decision: JobDecision, now_ms: int) -> str:
    """`` in 4 s``; empty when it starts as soon as it can."""
    return "" if decision.due_ms is None else f" in {max(0, decision.due_ms - now_ms) / 1000:.3g} s"
