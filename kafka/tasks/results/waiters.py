"""Callbacks for the ends of jobs, by job id, added and removed by any thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import TypeAlias

from kafka.tasks.format.job_id import partition_of
from kafka.tasks.format.records import StateRecord

log = logging.getLogger(__name__)

EndCallback: TypeAlias = Callable[[StateRecord | None], object]
"""Called with the job's terminal record; with None when it has to be looked up, or nothing is read any more."""


class JobWaiters:
    """Each callback is called once at most, and by the thread that calls :meth:`end` or :meth:`end_all`."""

    __slots__ = ("_callbacks", "_lock")

    def __init__(self) -> None:
        self._callbacks: dict[str, list[EndCallback]] = {}
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._callbacks)

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._callbacks

    def add(self, job_id: str, callback: EndCallback) -> None:
        """Call ``callback`` at the end of this job."""
        with self._lock:
            self._callbacks.setdefault(job_id, []).append(callback)

    def remove(self, job_id: str, callback: EndCallback) -> None:
        """Do not call it any more; nothing when it was called, or is being called."""
        with self._lock:
            callbacks = self._callbacks.get(job_id, [])
            if callback in callbacks:
                callbacks.remove(callback)
                if not callbacks:
                    del self._callbacks[job_id]

    def end(self, job_ids: Iterable[str], answer: Callable[[str], StateRecord | None]) -> None:
        """Call the callbacks of these jobs, with what ``answer`` gives for the job."""
        with self._lock:
            ended = [(job_id, self._callbacks.pop(job_id)) for job_id in set(job_ids) & self._callbacks.keys()]
        for job_id, callbacks in ended:
            record = answer(job_id)
            for callback in callbacks:
                try:
                    callback(record)
                except Exception:
                    log.exception("the callback of a waiter for job %s failed", job_id)

    def end_all(self) -> None:
        """Call all callbacks with None."""
        self.end(list(self._callbacks), lambda _: None)

    def run_if_none(self, partition: int, action: Callable[[], object]) -> bool:
        """Whether there is no waiter for a job of this results partition; runs ``action`` then, before any is added."""
        with self._lock:
            if any(partition_of(job_id) == partition for job_id in self._callbacks):
                return False
            action()
            return True
