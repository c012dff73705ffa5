"""The ids of cancelled jobs, as a worker remembers them: a job may be leased long after it was cancelled."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from kafka.log_limit import LimitedLog
from kafka.tasks.format.cancelled import CancelledJob

log = logging.getLogger(__name__)

MAX_CANCELLED: Final = 200_000
"""Maximum number of ids that are remembered: some 40 MB."""


class CancelledJobs:
    """A set of ids, the oldest first; each until the topic of cancelled jobs has lost it. ``now_ms``: broker time."""

    __slots__ = ("_kept_until_ms", "_limited_log", "_most", "_now_ms")

    def __init__(self, now_ms: Callable[[], int], most: int = MAX_CANCELLED) -> None:
        self._now_ms = now_ms
        self._most = most
        self._kept_until_ms: dict[str, float] = {}
        self._limited_log = LimitedLog(log)

    def __len__(self) -> int:
        return len(self._kept_until_ms)

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._kept_until_ms

    def add(self, jobs: Iterable[CancelledJob]) -> None:
        """Remember these, and forget those whose time is over."""
        kept = self._kept_until_ms
        for job in jobs:
            kept.pop(job.id, None)
            kept[job.id] = job.kept_until_ms
        now_ms = self._now_ms()
        while kept and kept[next(iter(kept))] <= now_ms:
            del kept[next(iter(kept))]
        dropped = len(kept) - self._most
        for _ in range(dropped):
            del kept[next(iter(kept))]
        if dropped > 0:
            self._limited_log.warning(
                "dropped",
                "more than %d jobs are cancelled; forgetting the oldest %d, which run if they are still in a queue",
                self._most,
                dropped,
            )
