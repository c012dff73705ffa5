"""Looks at a job that was just leased and says why it should *not* run. Pure."""

from __future__ import annotations

from kafka.tasks.format.envelope import UNDERSTOOD, Envelope
from kafka.tasks.format.serializers import unreadable
from kafka.tasks.rules.decide import JobHistory, JobPolicy
from kafka.tasks.rules.outcome import (
    ErrorInfo,
    JobExpired,
    NotDue,
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


def unmet_needs(envelope: Envelope, accepted: frozenset[str]) -> str | None:
    """Why a job cannot run in a worker of this release that reads the formats ``accepted``, though another may run it;
    None: nothing is missing."""
    if envelope.needs:
        missing = [need for need in envelope.needs if need not in UNDERSTOOD]
        if missing:
            return f"this release does not understand {', '.join(missing)}, which the job needs"
    return unreadable(envelope.content_type, accepted)


def admit(
    name: str, history: JobHistory, policy: JobPolicy, *, lacks: str | None, suspect: bool, now_ms: int
) -> Outcome | None:
    """Why a job that was just leased must not run, or not yet; None when it may. ``history.crashes``:
    :func:`crashes_of`. ``lacks``: why this worker cannot run it, None when it can.

    A job that waits since other workers could not run it starts at once where one can. One that is not due was started
    by no worker, so it is no suspect however often it was delivered. A suspect with excused deliveries is written anew:
    other workers could not distinguish them from crashes.
    """
    if history.expires_ms is not None and now_ms >= history.expires_ms:
        return JobExpired()
    due_ms = None if history.unknown_since_ms is not None and lacks is None else history.due_ms
    if due_ms is not None and now_ms < due_ms:
        return NotDue(due_ms)
    is_suspected = history.deliveries > 1 and not suspect
    if lacks is not None:  # a suspicion is not lost with the record that is written for others
        return SuspectedCrash() if is_suspected else UnknownTask(name, lacks)
    if history.crashes >= policy.crash_limit:
        return WorkerCrashed(ErrorInfo("WorkerLost", f"{history.crashes} workers died while they ran this job"))
    if is_suspected:
        return SuspectedCrash()
    return NotStarted() if history.excused else None
