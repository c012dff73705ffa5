"""The states of a job. Numbers order them: the smaller, the further. A new state is one more number, and its place in
the sets below; :mod:`kafka.tasks.format.records` writes states by name, so numbers may be looked at but are never
stored.
"""

from __future__ import annotations

from enum import IntEnum


class JobState(IntEnum):
    """Where a job is; as a text its name. Two are those of a handle alone, and never written: ``UNKNOWN``, no record
    of the job was found; ``PENDING``, the broker has not acknowledged the job's own record yet.
    ``SCHEDULED``: it does not start before a later time.
    """

    SUCCESS = 1
    FAILURE = 2
    REVOKED = 3
    RETRY = 4
    STARTED = 5
    QUEUED = 6
    SCHEDULED = 7
    UNKNOWN = 8
    PENDING = 9

    def __str__(self) -> str:
        return self.name

    def __format__(self, spec: str) -> str:
        return format(self.name, spec)

    @property
    def is_final(self) -> bool:
        """Nothing follows: SUCCESS, FAILURE or REVOKED."""
        return self in READY


FULL_RUN = frozenset({JobState.FAILURE, JobState.SUCCESS})
"""The task's function ran to its end."""
READY = frozenset({JobState.REVOKED, JobState.FAILURE, JobState.SUCCESS})
"""Final: :meth:`JobHandle.result` does not wait any more."""
EXCEPTION = frozenset({JobState.FAILURE, JobState.REVOKED})
"""Final without a value."""
UNREADY = frozenset({JobState.PENDING, JobState.SCHEDULED, JobState.QUEUED, JobState.STARTED, JobState.RETRY})
"""Still to come."""
