"""Handles: what ``delay`` gives back, and what can be asked of a job.

A handle is small and does nothing by itself: its id, the app's back end, and the producer's future of the job's record.
It may be asked from any thread, in any process: :meth:`kafka.tasks.App.job` makes one from a bare id. Cancelling comes
with the schedule.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Generic, TypeVar

from kafka.tasks.backends.base import Backend, RecordFuture
from kafka.tasks.errors import JobFailed, JobRevoked, JobTimeout, JobUnknown, NoResult
from kafka.tasks.format.job_id import time_of
from kafka.tasks.format.payload import PayloadCodec
from kafka.tasks.format.records import StateRecord
from kafka.tasks.settings import optional_timeout
from kafka.tasks.states import READY, JobState

R = TypeVar("R")

_LOOK_S = 1.0
"""While a job's record is still under way, a waiting handle looks this often whether it failed."""


class JobHandle(Generic[R]):
    """One enqueued call of a task that returns ``R``. ``codec``: how its result is read; ``is_stored``: its result is
    kept, as far as is known here."""

    __slots__ = ("_backend", "_codec", "_is_stored", "_sent", "_ttl_s", "id")

    def __init__(
        self,
        job_id: str,
        backend: Backend,
        ttl_s: float,
        codec: PayloadCodec,
        sent: RecordFuture | None = None,
        is_stored: bool = True,
    ) -> None:
        self.id = job_id
        """32 hex digits; enough to find the job's state from any process."""
        self._backend = backend
        self._ttl_s = ttl_s
        self._codec = codec
        self._sent = sent
        self._is_stored = is_stored

    def status(self) -> JobState:
        """Where the job is now.

        The handle that enqueued it says QUEUED until the first state record; a bare id says UNKNOWN until then, unless
        the app has ``track_queued``. Raises the producer's error when the job could not be enqueued.
        """
        self.raise_if_not_sent()
        record = self._backend.find(self.id)
        if record is not None:
            return record.state
        return JobState.UNKNOWN if self._sent is None else JobState.QUEUED

    def wait(self, timeout: float | timedelta | None = None) -> bool:
        """Wait until the job has ended, for at most ``timeout`` seconds; whether it has. Raises what :meth:`result`
        raises at once: :class:`NoResult`, and the producer's error.
        """
        record = self._ended(optional_timeout("timeout", timeout))
        return record is not None and record.state in READY

    def result(self, timeout: float | timedelta | None = None) -> R:
        """What the task returned; waits for it, for at most ``timeout`` seconds.

        Raises :class:`JobFailed`, :class:`JobRevoked`, :class:`JobTimeout` when it has not ended in time,
        :class:`JobUnknown` when a bare id has no record at all by then (or is older than results are kept), and the
        producer's error when the job could not be enqueued. A job with ``store_result=False`` leaves no record of a
        success to wait for: :class:`NoResult` at once, from the handle that enqueued it; a bare id does not know that.
        """
        timeout = optional_timeout("timeout", timeout)
        record = self._ended(timeout)
        if record is None or record.state not in READY:
            raise self._not_ended(record, timeout)
        if record.state is JobState.SUCCESS:
            value: R = self._codec.decode_value(record.value, record.content_type)
            return value
        detail = record.detail()
        if record.state is JobState.REVOKED:
            raise JobRevoked(f"job {self.id} was revoked: {detail.get('reason', 'no reason given')}")
        raise JobFailed(
            str(detail.get("type", "unknown error")),
            str(detail.get("text", "")),
            str(detail.get("traceback", "")),
            str(detail.get("host", "")),
            self.id,
        )

    def __repr__(self) -> str:
        return f"<JobHandle {self.id}>"

    def _ended(self, timeout: float | None) -> StateRecord | None:
        self.raise_if_not_sent()
        if not self._is_stored:
            raise NoResult(
                f"job {self.id} has store_result=False, by its task or the call: no record of a success is written, and"
                " there is no result to wait for. Leave the option out to wait; status() still reports a failure"
            )
        if self._sent is None and self._expired():
            return self._backend.find(self.id)
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if until is None else max(0.0, until - time.monotonic())
            under_way = self._sent is not None and not self._sent.is_done
            step = left if not under_way else _LOOK_S if left is None else min(left, _LOOK_S)
            record = self._backend.wait(self.id, step)
            self.raise_if_not_sent()
            if (record is not None and record.state in READY) or step == left:
                return record

    def _not_ended(self, record: StateRecord | None, timeout: float | None) -> Exception:
        if record is None and self._sent is None:
            if self._expired():
                return JobUnknown(f"no record of job {self.id}: its result has expired, or it never had one")
            return JobUnknown(
                f"no record of job {self.id} yet: it is queued or running (an app with track_queued=True and"
                " track_started=True records that), has store_result=False, or was never enqueued with this app"
            )
        state = record.state.name if record is not None else f"QUEUED at {self._backend.address}"
        return JobTimeout(f"job {self.id} did not end within {timeout} s; its state is {state}, and it continues")

    def _expired(self) -> bool:
        return self._backend.clock.now_ms() - time_of(self.id) > self._ttl_s * 1000

    @property
    def backend(self) -> Backend:
        """Where it was enqueued, or is looked for."""
        return self._backend

    @property
    def has_arrived(self) -> bool:
        """The broker has the job's record. (False also for a handle that was made of a bare id.)"""
        return self._sent is not None and self._sent.is_done and self._sent.exception is None

    def raise_if_not_sent(self) -> None:
        """Raise the producer's error when the job's record could not be written."""
        sent = self._sent
        if sent is not None and sent.is_done and sent.exception is not None:
            raise sent.exception
