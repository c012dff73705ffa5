"""Whether a worker is ready for jobs: a pure decision over what was read off it, with the reasons when it is not.

Readiness depends on the pool and on the brokers' responses, not on the parent process: a worker whose children cannot
import the tasks responds to every probe and runs nothing. Another reason is another row of :data:`CHECKS`.

Liveness needs no decision: a response shows that the loop runs. A stopping worker is alive until it exits; otherwise it
would be killed during its last jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kafka.tasks.delivery.base import BrokerContact

STARTING: Final = "STARTING"
"""The stage of a worker that has no pool or no connection yet; the others are
:class:`kafka.tasks.worker.shutdown.WorkerStage`'s."""
WORKING: Final = "WORKING"

MISSED_INTERVALS: Final = 2.0
"""Number of heartbeat intervals without a response after which a worker is not ready. Responses come a little more than
an interval apart, so one would be too few.
"""


@dataclass(frozen=True)
class Condition:
    """What readiness depends on. ``contacts``: when the brokers last answered; ``now`` on the same clock."""

    stage: str
    pool_ready: bool
    degraded: str | None
    contacts: Sequence[BrokerContact]
    now: float


def _stage(condition: Condition) -> Iterator[str]:
    if condition.stage == STARTING:
        yield "starting: the worker has not connected yet"
    elif condition.stage != WORKING:
        yield f"stopping: {condition.stage}"


def _pool(condition: Condition) -> Iterator[str]:
    if condition.degraded is not None:
        yield f"pool: {condition.degraded}"
    elif not condition.pool_ready and condition.stage != STARTING:
        yield "pool: no child is up yet"


def _brokers(condition: Condition) -> Iterator[str]:
    for source, at, interval_s in condition.contacts:
        topic = source.topic
        if at is None:
            yield f"brokers: the group {topic} has not answered yet"
        elif condition.now - at > MISSED_INTERVALS * interval_s:
            age_s = condition.now - at
            yield f"brokers: no answer for the group {topic} for {age_s:.1f} s (one is due every {interval_s:g} s)"


CHECKS: Final[tuple[Callable[[Condition], Iterator[str]], ...]] = (_stage, _pool, _brokers)


def reasons_not_ready(condition: Condition) -> list[str]:
    """Why the worker is not ready, a line each; empty when it is."""
    return [reason for check in CHECKS for reason in check(condition)]


def contact_age_s(contacts: Sequence[BrokerContact], now: float) -> float | None:
    """Seconds since the brokers' last answer, of the source where that is longest ago; None: one never had any."""
    ages = [None if contact.at is None else max(0.0, now - contact.at) for contact in contacts]
    known = [age for age in ages if age is not None]
    return max(known) if known and len(known) == len(ages) else None
