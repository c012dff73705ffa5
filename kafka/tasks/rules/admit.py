"""Looks at a job that was just leased and says why it should *not* run. Pure."""

from __future__ import annotations

from kafka.tasks.rules.decide import JobHistory, JobPolicy
from kafka.tasks.rules.outcome import (
    ErrorInfo,
    JobExpired,
    NotStarted,
    Outcome,
    SuspectedCrash,
    UnknownTask,
    WorkerCrashed,
)


def crashes_of(recorded: int, deliveries: int, suspect: bool, excused: int = 0) -> int:
    """Crashes behind a job that was just leased: on the suspect topic each earlier delivery of its record is one, but
    for those that are ``excused``.
    """
    return recorded + deliveries - 1 - excused if suspect else recorded


def admit(
    name: str, history: JobHistory, policy: JobPolicy, *, known: bool, suspect: bool, now_ms: int
) -> Outcome | None:
    """Why a job that was just leased must not run; None when it may. ``history.crashes``: :func:`crashes_of`.

    A suspect with spared deliveries is written anew first: other workers could not distinguish them from crashes, and
    the broker's limit counts them.
    """
    if history.expires_ms is not None and now_ms >= history.expires_ms:
        return JobExpired()
    if not known:
        return UnknownTask(name, suspect)
    if history.crashes >= policy.crash_limit:
        return WorkerCrashed(ErrorInfo("WorkerLost", f"{history.crashes} workers died while they ran this job"))
    if suspect:
        return NotStarted() if history.excused else None
    return SuspectedCrash() if history.deliveries > 1 else None
