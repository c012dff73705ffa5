"""Handles: what ``delay`` gives back, and what can be asked of a job.

A handle is small and does nothing by itself: its id, the app's back end, and the producer's future of the job's record.
It may be asked from any thread, in any process: :meth:`kafka.tasks.App.job` makes one from a bare id, and a pickled one
finds the app of its name where it is loaded. How a call waits is in :mod:`kafka.tasks.waiting`.

Where a job is, the log says: its state records. Of a job that is to start later it says nothing before the time that
it was announced for, which is the one in its id or in its last record: until then the owner of the schedule is asked
(:mod:`kafka.tasks.requests`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final, Generic, TypeVar

from kafka.errors import IllegalArgumentError, KafkaError
from kafka.tasks.apps import find_app
from kafka.tasks.backends.base import Backend, RecordFuture
from kafka.tasks.deadline import Deadline
from kafka.tasks.errors import JobFailed, JobRevoked, JobTimeout, JobUnknown, NoResult
from kafka.tasks.format.commands import CANCEL, LOOK, RESCHEDULE
from kafka.tasks.format.job_id import time_of
from kafka.tasks.format.payload import PayloadCodec
from kafka.tasks.format.records import CANCELLED, StateRecord, reason_value
from kafka.tasks.requests import asking, connecting
from kafka.tasks.settings import Seconds, flag, optional_timeout, seconds
from kafka.tasks.start_time import as_datetime, instant_ms, start_time
from kafka.tasks.states import READY, JobState
from kafka.tasks.waiting import (
    UNANSWERED,
    Blocking,
    Dialogue,
    WaitForEnd,
    is_final,
    not_answered,
    run,
    run_async,
    time_to_answer,
)

R = TypeVar("R")

STATUS_TIMEOUT_S = 10.0
"""How long ``status()`` waits for the brokers, unless the caller says otherwise."""

ASK_TIMEOUT_S = 10.0
"""How long ``cancel()`` and ``reschedule()`` wait, unless the caller says otherwise."""

LOOK_S: Final = 2.0
"""How long at most a call that has another purpose waits for the owner of the schedule."""

SOON_MS: Final = 1_000
"""The owner is not asked by a call that waits for a job which is announced for so soon."""

LOOK_AGAIN_S: Final = 5.0
MOST_LOOK_AGAIN_S: Final = 320.0
"""A call that waits for a job asks the owner again after so many seconds, and each time after twice as many."""


class CancelResult(Enum):
    """What :meth:`JobHandle.cancel` has achieved; true when the job is cancelled."""

    CANCELLED = "cancelled"
    """The job has ended as REVOKED, for every reader. It will not start any more; if it runs, it is asked to end, and
    whatever comes of that does not count."""
    TOO_LATE = "too late"
    """It had ended before."""

    def __bool__(self) -> bool:
        return self is CancelResult.CANCELLED


class JobHandle(Generic[R]):
    """One enqueued call of a task that returns ``R``: ``job.result()``, or ``await job``.

    ``codec``: how its result is read; None: as the app reads results of tasks that it does not know. ``is_stored``: its
    result is kept, as far as is known here. ``backend``: or the name of the app, which is then looked for when the
    handle is used. Handles of one job are equal, also across processes: they can be pickled.
    """

    __slots__ = ("_backend", "_codec", "_is_stored", "_sent", "id")

    def __init__(
        self,
        job_id: str,
        backend: Backend | str,
        codec: PayloadCodec | None = None,
        sent: RecordFuture | None = None,
        is_stored: bool = True,
    ) -> None:
        self.id = job_id
        """32 hex digits; enough to find the job's state from any process."""
        self._backend = backend
        self._codec = codec
        self._sent = sent
        self._is_stored = is_stored

    def status(self, timeout: float | timedelta | None = STATUS_TIMEOUT_S) -> JobState:
        """Where the job is now.

        The handle that enqueued it says PENDING until the broker has acknowledged the job, then SCHEDULED until its
        time has come, then QUEUED until the first state record, and FAILURE when the job could not be enqueued; a bare
        id says UNKNOWN until the first record, unless the app has ``track_queued``. For a bare id of a job that is to
        start later the owner of the schedule is asked, for two seconds at most; without an answer it is SCHEDULED, or
        what its last record says. Raises :class:`JobTimeout` when the brokers have not answered within ``timeout``
        seconds.
        """
        timeout = optional_timeout("timeout", timeout)
        sent = self._sent
        if sent is None or (sent.is_done and sent.exception is None):
            record = self._find(timeout)
            if sent is None and self._is_for_owner(record):
                record = run(self._looking(record, timeout))
            assumed = self._assumed
        else:  # it may have been written all the same, when it is the answer that was lost
            record = self.backend.known(self.id)
            assumed = JobState.FAILURE if sent.is_done else JobState.PENDING
        return assumed if record is None else record.state

    def wait(self, timeout: float | timedelta | None = None) -> bool:
        """Wait until the job has ended, for at most ``timeout`` seconds; whether it has.

        Raises what :meth:`result` raises at once (:class:`NoResult`, and the producer's error), and
        :class:`JobTimeout` when the brokers have not answered in time.
        """
        record = self._ended(optional_timeout("timeout", timeout))
        return record is not None and record.state in READY

    def result(self, timeout: float | timedelta | None = None) -> R:
        """What the task returned; waits for it, for at most ``timeout`` seconds.

        Raises :class:`JobFailed`, :class:`JobRevoked`, :class:`JobTimeout` when it has not ended in time, or the
        brokers have not answered, :class:`JobUnknown` when a bare id has no record at all by then (or is older than
        results are kept), and the producer's error when the job could not be enqueued. A job with
        ``store_result=False`` leaves no record of a success to wait for: :class:`NoResult` at once, from the handle
        that enqueued it; a bare id does not know that.
        """
        timeout = optional_timeout("timeout", timeout)
        return self._value(self._ended(timeout), timeout)

    def due_at(self, timeout: float | timedelta | None = STATUS_TIMEOUT_S) -> datetime | None:
        """When the job is to start, as an aware ``datetime`` in UTC, if it is SCHEDULED or in RETRY; else None.

        The owner of the schedule is asked, for two seconds at most; without an answer it is the time that the job was
        last announced for. Raises what :meth:`status` raises, and the producer's error when the job could not be
        enqueued.
        """
        timeout = optional_timeout("timeout", timeout)
        self.raise_if_not_sent()
        due_ms = time_of(self.id)
        if self._sent is not None and not self._sent.is_done and due_ms > self.backend.clock.now_ms():
            return as_datetime(due_ms)
        record = self._find(timeout)
        if self._is_for_owner(record):
            record = run(self._looking(record, timeout))
        is_later = record is not None and record.state in (JobState.SCHEDULED, JobState.RETRY)
        return as_datetime(record.due_ms) if is_later and record is not None and record.due_ms is not None else None

    def cancel(self, terminate: bool = False, timeout: float | timedelta | None = ASK_TIMEOUT_S) -> CancelResult:
        """End the job as REVOKED, wherever it is: ``CANCELLED``, or ``TOO_LATE`` when it had ended before.

        A job that waits in the schedule or in its queue does not start any more. One that runs has ``ctx.cancelled``
        set soon, and its outcome is dropped; ``terminate``: the child process that runs it is ended. Raises
        :class:`JobTimeout` when no owner of the schedule has answered within ``timeout`` seconds: the job may be
        cancelled all the same, later; and the producer's error when the job or the command could not be written.
        """
        return run(self._cancelling(flag("terminate", terminate), optional_timeout("timeout", timeout)))

    async def cancel_async(
        self, terminate: bool = False, timeout: float | timedelta | None = ASK_TIMEOUT_S
    ) -> CancelResult:
        """:meth:`cancel` for a coroutine."""
        return await run_async(self._cancelling(flag("terminate", terminate), optional_timeout("timeout", timeout)))

    def reschedule(
        self,
        at: datetime | None = None,
        *,
        delay: Seconds | None = None,
        timeout: float | timedelta | None = ASK_TIMEOUT_S,
    ) -> bool:
        """Have the job start at another time: at an aware ``datetime`` (one in the past: at once), or after ``delay``
        seconds. False when it does not wait any more.

        Raises :class:`kafka.errors.IllegalArgumentError` for what is no time, and what :meth:`cancel` raises.
        """
        return run(self._rescheduling(at, delay, timeout))

    async def reschedule_async(
        self,
        at: datetime | None = None,
        *,
        delay: Seconds | None = None,
        timeout: float | timedelta | None = ASK_TIMEOUT_S,
    ) -> bool:
        """:meth:`reschedule` for a coroutine."""
        return await run_async(self._rescheduling(at, delay, timeout))

    async def wait_async(self, timeout: float | timedelta | None = None) -> bool:
        """:meth:`wait` for a coroutine: the event loop goes on meanwhile."""
        record = await self._ended_async(optional_timeout("timeout", timeout))
        return record is not None and record.state in READY

    async def result_async(self, timeout: float | timedelta | None = None) -> R:
        """:meth:`result` for a coroutine: the event loop goes on meanwhile. ``await job`` is the same without a
        timeout."""
        timeout = optional_timeout("timeout", timeout)
        return self._value(await self._ended_async(timeout), timeout)

    def __await__(self) -> Generator[Any, Any, R]:
        return self.result_async().__await__()

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, JobHandle) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)

    def __reduce__(self) -> tuple[type[JobHandle[R]], tuple[str, str, None, None, bool]]:
        app = self._backend if isinstance(self._backend, str) else self._backend.app
        return type(self), (self.id, app, None, None, self._is_stored)

    def __repr__(self) -> str:
        return f"<JobHandle {self.id}>"

    @property
    def backend(self) -> Backend:
        """Where it was enqueued, or is looked for. :class:`UnknownApp` for a handle of another process whose app is not
        loaded here."""
        if isinstance(self._backend, str):
            self._backend = find_app(self._backend).backend()
        return self._backend

    @property
    def has_arrived(self) -> bool:
        """The broker has the job's record. (False also for a handle that was made of a bare id.)"""
        return self._sent is not None and self._sent.is_done and self._sent.exception is None

    @property
    def enqueue_error(self) -> BaseException | None:
        """The producer's error when the job's record could not be written; None when it was, or is under way."""
        sent = self._sent
        return sent.exception if sent is not None and sent.is_done else None

    def raise_if_not_sent(self) -> None:
        """Raise the producer's error when the job's record could not be written."""
        error = self.enqueue_error
        if error is not None:
            raise error

    # -- waiting ------------------------------------------------------------------------------------------------------

    def _ended(self, timeout: float | None) -> StateRecord | None:
        """The job's final record, or what is known of it when the time is up."""
        deadline = Deadline(timeout)
        record = self._wait(timeout, self._is_worth_a_question).run()
        return record if is_final(record) else run(self._ending(record, deadline))

    async def _ended_async(self, timeout: float | None) -> StateRecord | None:
        """The same for a coroutine."""
        deadline = Deadline(timeout)
        record = await self._wait(timeout, self._is_worth_a_question).run_async()
        return record if is_final(record) else await run_async(self._ending(record, deadline))

    def _ending(self, record: StateRecord | None, deadline: Deadline) -> Dialogue[StateRecord | None]:
        """The dialogue of :meth:`_ended` from its first record on. Where the log cannot say yet what has become of the
        job, the owner is asked, and again while that is so: another process may cancel the job."""
        pause_s = LOOK_AGAIN_S
        while self._is_worth_a_question(record) and (deadline.left_s() != 0 or deadline.timeout_s == 0):
            looked = yield from self._looking(record, deadline.left_s())
            if is_final(looked) or (looked is None and self._is_old):
                return looked
            left_s = deadline.left_s()
            record = yield self._wait(pause_s if left_s is None else min(left_s, pause_s))
            if is_final(record) or deadline.left_s() == 0:
                return looked if record is None else record
            pause_s = min(2 * pause_s, MOST_LOOK_AGAIN_S)
            record = yield self._wait(deadline.left_s(), self._is_worth_a_question)
        return record

    def _wait(
        self, timeout: float | None, is_enough: Callable[[StateRecord | None], bool] = lambda record: False
    ) -> WaitForEnd:
        return WaitForEnd(self.backend, self.id, timeout, self._sent, is_enough, self._check_has_result)

    def _looking(self, record: StateRecord | None, timeout: float | None) -> Dialogue[StateRecord | None]:
        """The dialogue that asks the owner where the job is; returns what is known then. ``record``: what the log says.
        Without an answer within :data:`LOOK_S`, or ``timeout`` if that is less, this is that; also where the owner
        cannot be asked, since the topics of the schedule do not exist, or are not for this client."""
        seconds = min(LOOK_S, time_to_answer(timeout) or LOOK_S)
        try:
            answer = yield from asking(self.backend, LOOK, self.id, seconds)
        except KafkaError:
            if record is None and self._announced_ms(None) > self.backend.clock.now_ms():
                return StateRecord(self.id, JobState.SCHEDULED, due_ms=time_of(self.id))
            return record
        state, due_ms = _STATES.get(str(answer.get("state"))), answer.get("due")
        if state is None:
            return record
        value = json.dumps(answer.get("detail") or {}).encode()
        looked = StateRecord(self.id, state, value=value, due_ms=due_ms if isinstance(due_ms, int) else None)
        if state in READY:
            yield Blocking(lambda: self.backend.settle(looked))
        elif state is JobState.QUEUED and looked.due_ms is not None:  # sent before it was announced for
            found: StateRecord | None = yield Blocking(lambda: self._find(seconds, looked.due_ms))
            return found or looked
        elif record is not None and state is JobState.SCHEDULED:  # between two attempts
            return record._replace(due_ms=looked.due_ms)
        return looked

    def _cancelling(self, terminate: bool, timeout: float | None) -> Dialogue[CancelResult]:
        """The dialogue of :meth:`cancel`."""
        self.raise_if_not_sent()
        deadline = Deadline(timeout)
        # The reader follows the job from here on, so that it sees the record that the owner may write.
        record = yield WaitForEnd(self.backend, self.id, timeout, is_enough=lambda record: True)
        if terminate and record is not None and record.is_cancelled:  # it may still run: its process is to end, too
            yield from asking(self.backend, CANCEL, self.id, deadline.left_s(), is_terminating=True)
            return CancelResult.CANCELLED
        if not is_final(record):
            answer = yield from asking(self.backend, CANCEL, self.id, deadline.left_s(), is_terminating=terminate)
            if answer.get("waiting"):
                revoked = StateRecord(self.id, JobState.REVOKED, value=reason_value(CANCELLED, ""))
                yield Blocking(lambda: self.backend.settle(revoked))
                return CancelResult.CANCELLED
            if self._is_for_owner(record):  # it may have been sent before the time where the log is read
                record = yield from self._looking(record, deadline.left_s())
        if not is_final(record):
            record = yield WaitForEnd(self.backend, self.id, deadline.left_s())
        if record is None or record.state not in READY:
            raise JobTimeout(f"job {self.id} is being cancelled, but has no final record after {timeout} s")
        return CancelResult.CANCELLED if record.is_cancelled else CancelResult.TOO_LATE

    def _rescheduling(
        self, at: datetime | None, delay: Seconds | None, timeout: float | timedelta | None
    ) -> Dialogue[bool]:
        """The dialogue of :meth:`reschedule`."""
        timeout_s = optional_timeout("timeout", timeout)
        start = start_time(
            None if delay is None else seconds("delay", delay), None if at is None else instant_ms("at", at)
        )
        if start is None or (at is not None and delay is not None):
            raise IllegalArgumentError("reschedule needs a time: either at=... or delay=...")
        self.raise_if_not_sent()
        deadline = Deadline(timeout_s)
        yield from connecting(self.backend, timeout_s)
        clock = self.backend.clock
        due_ms = start.due_ms(clock)
        due_ms = clock.now_ms() if due_ms is None else due_ms
        answer = yield from asking(self.backend, RESCHEDULE, self.id, deadline.left_s(), due_ms=due_ms)
        return answer.get("rescheduled") is True

    def _find(self, timeout: float | None, since_ms: int | None = None) -> StateRecord | None:
        seconds = time_to_answer(timeout)
        try:
            return self.backend.find(self.id, seconds, since_ms)
        except UNANSWERED as error:
            raise not_answered(self.backend, self.id, error, seconds) from error

    def _check_has_result(self) -> None:
        self.raise_if_not_sent()
        if not self._is_stored:
            raise NoResult(
                f"job {self.id} has store_result=False, by its task or the call: no record of a success is written, and"
                " there is no result to wait for. Leave the option out to wait; status() still reports a failure"
            )

    def _value(self, record: StateRecord | None, timeout: float | None) -> R:
        if record is None or record.state not in READY:
            raise self._not_ended(record, timeout)
        if record.state is JobState.SUCCESS:
            codec = self._codec or find_app(self.backend.app).codec
            value: R = codec.decode_value(record.value, record.content_type)
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

    def _not_ended(self, record: StateRecord | None, timeout: float | None) -> Exception:
        state = self._assumed if record is None else record.state
        if state is JobState.UNKNOWN:
            if self._is_old:
                return JobUnknown(f"no record of job {self.id}: its result has expired, or it never had one")
            return JobUnknown(
                f"no record of job {self.id} yet: it is queued or running (an app with track_queued=True and"
                " track_started=True records that), has store_result=False, or was never enqueued with this app"
            )
        if self._sent is not None and not self.has_arrived and record is None:
            state = JobState.PENDING
        place = f" at {self.backend.address}" if record is None else ""
        future = _FUTURES.get(state, "it continues")
        return JobTimeout(f"job {self.id} did not end within {timeout} s; its state is {state}{place}, and {future}")

    @property
    def _assumed(self) -> JobState:
        """The state of a job without a record."""
        if self._sent is None:
            return JobState.UNKNOWN
        return JobState.SCHEDULED if self._announced_ms(None) > self.backend.clock.now_ms() else JobState.QUEUED

    @property
    def _is_old(self) -> bool:
        """It is of a bare id, from so long ago that no result is left of a job that ended then."""
        backend = self.backend
        age_ms = backend.clock.now_ms() - time_of(self.id)
        return self._sent is None and age_ms > backend.result_ttl_s * 1000

    def _announced_ms(self, record: StateRecord | None) -> int:
        """The time from which on the log says what follows on ``record``; 0: at once."""
        return time_of(self.id) if record is None else record.due_ms or 0

    def _is_for_owner(self, record: StateRecord | None, ahead_ms: int = 0) -> bool:
        """Whether the owner of the schedule knows more than the log, in which ``record`` is: its time has not come, for
        more than ``ahead_ms``; or so much time has passed that a record has expired which said when it comes."""
        if is_final(record):
            return False
        is_ahead = self._announced_ms(record) > self.backend.clock.now_ms() + ahead_ms
        return is_ahead or (record is None and self._is_old)

    def _is_worth_a_question(self, record: StateRecord | None) -> bool:
        return self._is_for_owner(record, SOON_MS)


_STATES: Final = {state.name: state for state in JobState}

_FUTURES: Final = {
    JobState.QUEUED: "the job stays enqueued",
    JobState.SCHEDULED: "the job starts at its time",
}
"""State -> what a timeout says about the job's future."""
