"""How many jobs were written since the last flush, and how many were not and why.

``delay`` returns before the broker has answered, so an error of the producer is the handle's, which the caller may have
dropped. :class:`EnqueueTally` is called once for each batch of the producer (:func:`kafka.producer.watch_batches`), so
that a job costs nothing; it logs what fails, and gives ``flush`` and ``close`` the error to raise.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable

from kafka.log_limit import LimitedLog
from kafka.tasks.errors import JobsNotSent, one_line

log = logging.getLogger(__name__)


class EnqueueTally:
    """Counts records of the job topics: all but those ``of_states``. From any thread."""

    def __init__(self, of_states: frozenset[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._of_states = of_states
        self._lock = threading.Lock()
        self._limited_log = LimitedLog(log, clock=clock)
        self._total = 0
        self._failed: Counter[str] = Counter()
        self._cause: BaseException | None = None

    def batch_done(self, topic: str, count: int, error: BaseException | None) -> None:
        """For :func:`kafka.producer.watch_batches`."""
        if topic in self._of_states:
            return
        with self._lock:
            self._total += count
            if error is None:
                return
            self._failed[topic] += count
            self._cause = self._cause or error
            jobs = "job was" if count == 1 else "jobs were"
            text = "%d %s not written to %s: %s; the status() of their handles is FAILURE"
            self._limited_log.write(
                logging.ERROR, (topic, type(error)), text, count, jobs, topic, one_line(error)
            )

    def take(self) -> JobsNotSent | None:
        """What was not written since the last call; None when all was."""
        with self._lock:
            total, failed, cause = self._total, self._failed, self._cause
            self._total, self._failed, self._cause = 0, Counter(), None
            self._limited_log.flush()
        if cause is None:
            return None
        return JobsNotSent(failed.total(), total, cause, ", ".join(sorted(failed)))
