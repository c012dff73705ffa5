"""What a worker reports about its jobs while they come and go: to the log of jobs, and to their metrics.

An observer is called on the loop's thread, once for all jobs of a turn where there are many, and changes nothing.
What a job's leaving means for who reads logs and metrics is one word (:func:`ending_of`), the same for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from kafka.tasks.format.envelope import Envelope
from kafka.tasks.pools.runner import Job
from kafka.tasks.rules.decide import JobDecision, JobPolicy, MoveTarget
from kafka.tasks.rules.outcome import ChildLost, JobCancelled, JobExpired, JobSnoozed, JobSucceeded, Outcome
from kafka.tasks.states import JobState

SUCCEEDED, RETRIED, SNOOZED, FAILED, REVOKED, EXPIRED, LOST = ENDINGS = (
    "succeeded", "retried", "snoozed", "failed", "revoked", "expired", "lost"
)  # fmt: skip
"""``snoozed``: to be started again later, which is no attempt. ``failed``: for good. ``lost``: with its child process,
or its acquisition lock or partition is lost, and it runs again."""

MOST_TASKS: Final = 100
"""Tasks (with their queues) that have counts of their own: records may have any number of names."""
OTHER_TASKS: Final = "other"


class JobObserver(Protocol):
    """See the module."""

    def on_received(self, jobs: Sequence[Job]) -> None:
        """These were leased, and are going to run here."""

    def on_ran(self, ended: Sequence[tuple[Job, Outcome]]) -> None:
        """The runs of these have ended, well or not, and their outcomes hold. A result that its topic refuses as too
        large is found out later: such a job succeeds here, and is then decided about as failed."""

    def on_decided(
        self,
        queue: str,
        envelope: Envelope,
        outcome: Outcome,
        decision: JobDecision,
        policy: JobPolicy,
        now_ms: int,
    ) -> None:
        """What becomes of a job that has not succeeded; it has run here, or was refused. ``now_ms``: broker time."""

    def on_cancelled(self, jobs: Sequence[tuple[str, Envelope]], is_running: bool) -> None:
        """These jobs, with their queues, were cancelled by others: they do not start, or (``is_running``) their
        outcomes are dropped."""

    def on_locks_lost(self, jobs: Sequence[Job], reason: str) -> None:
        """The locks or partitions of these, which run here, are lost; their outcomes are dropped."""


def ending_of(outcome: Outcome, decision: JobDecision) -> str | None:
    """One of :data:`ENDINGS`; None for a job that goes back as it came (given back, suspected, of an unknown task)."""
    if isinstance(outcome, JobSucceeded):
        return SUCCEEDED
    if decision.move is MoveTarget.DEAD:
        return FAILED
    if isinstance(outcome, JobExpired):
        return EXPIRED
    if isinstance(outcome, JobCancelled):
        return REVOKED
    if isinstance(outcome, JobSnoozed):
        return SNOOZED
    if decision.state is not JobState.RETRY:
        return None
    return LOST if isinstance(outcome, ChildLost) else RETRIED
