"""From the end of a job to the acceptance of its lease: what must be durable first, and what can go wrong on the way.

Pure steps (:func:`next_ending`) that every delivery takes, and :class:`PublishThenAccept`, which takes them for a
delivery without transactions: the records of finished jobs go out together, and their leases end when all are durable.
A group has the jobs of one turn of the worker's loop, so results are batched when jobs are short. On the way:

* a result that its topic does not take (too large): the job has failed permanently instead, which is recorded as for
  any other, and the lease is accepted after that; another state record that is too large is written without its texts;
* a state record appended after the time that a look-up scans: a copy goes to the late topic first;
* a job that moves to the suspects is over when the broker has *answered* its ACCEPT: a worker that starts it before
  that and dies of it leaves two records of it;
* the record of what is no job is too large for the dead topic: it is written without what it held;
* any other error (the producer has tried for its delivery timeout): the ending is kept, and what could not be written
  is written again after a while. The worker renews the lease meanwhile, so finished code does not run again, and the
  broker drops no record that was delivered too often. What no retry mends (a right, a topic's limit) is logged with
  the remedy.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

from kafka.errors import (
    KafkaError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
)
from kafka.log_limit import LimitedLog
from kafka.tasks.delivery.base import (
    Appended,
    DeliveryEvents,
    Ending,
    FinishCallback,
    JobLease,
    OutgoingRecord,
    Publisher,
    RecordKind,
)
from kafka.tasks.delivery.records import is_result, late_copy, without_payload, without_traceback
from kafka.tasks.format.job_id import time_of
from kafka.tasks.format.records import LATE_AFTER_MS
from kafka.tasks.format.topics import TopicNames

log = logging.getLogger(__name__)

RETRY_S: tuple[float, ...] = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds before what could not be written is written again, by how often in a row that has failed."""

_TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError)

MOVING_S: Final = 5.0
"""So long jobs that move to the suspects are waited for: moves take milliseconds, unless a broker does not answer."""

Replace = Callable[[Ending, OutgoingRecord], Ending]


class UnwrittenEnding:
    """Some records of an ending could not be written, this one first: ``rest`` is what is still to be written."""

    __slots__ = ("error", "record", "rest")

    def __init__(self, rest: Ending, record: OutgoingRecord, error: BaseException) -> None:
        self.rest = rest
        self.record = record
        self.error = error


def next_ending(
    ending: Ending, answers: Sequence[Appended | BaseException], names: TopicNames, replace: Replace
) -> Ending | UnwrittenEnding | None:
    """What follows the answers to the records of an ending: None when all are durable, another ending when more must be
    written, or what could not be written. ``replace``: how a job ends whose result is too large.
    """
    more: list[OutgoingRecord] = []
    unwritten: list[OutgoingRecord] = []
    error: BaseException | None = None
    is_shortened = ending.is_shortened
    for record, answer in zip(ending.records, answers, strict=True):
        if isinstance(answer, BaseException):
            if not isinstance(answer, _TOO_LARGE) or not _may_be_replaced(ending, record):
                error = error or answer
                unwritten.append(record)
            elif ending.envelope is None and record.kind is RecordKind.DEAD:
                more.append(without_payload(record))
                is_shortened = True
            elif is_result(record):
                other = replace(ending, record)
                other.is_shortened = True
                return other
            else:
                more.append(without_traceback(record))
                is_shortened = True
        elif _is_late(record, answer, names):
            more.append(late_copy(record, names))
            is_shortened = is_shortened or is_result(record)  # it is there, so a copy that is too large is no failure
    if error is None and not more:
        if not ending.after:
            return None
        return Ending(ending.lease, ending.envelope, [*ending.after], True, is_move=ending.is_move)
    rest = Ending(
        ending.lease,
        ending.envelope,
        [*unwritten, *more],
        is_shortened,
        is_move=ending.is_move,
        after=ending.after,
    )
    return rest if error is None else UnwrittenEnding(rest, unwritten[0], error)


def _is_late(record: OutgoingRecord, appended: Appended, names: TopicNames) -> bool:
    """Whether it was appended to the results topic after the time that a look-up scans there."""
    if record.topic != names.results:
        return False
    job_id = str(record.key or b"", "ascii")
    return appended.time_ms - time_of(job_id) > LATE_AFTER_MS


def _may_be_replaced(ending: Ending, record: OutgoingRecord) -> bool:
    """Whether it is a state record or a dead one, and not the second one."""
    return not ending.is_shortened and record.kind in (RecordKind.STATE, RecordKind.DEAD)


def remedy(record: OutgoingRecord, error: BaseException) -> str:
    """What an operator can do about a record that could not be written."""
    if isinstance(error, _TOO_LARGE):
        return f"raise max.message.bytes of topic {record.topic}"
    if isinstance(error, TopicAuthorizationFailedError):
        return f"grant this worker WRITE on topic {record.topic}"
    return f"check that topic {record.topic} can be written to"


class RetryTimers(Protocol):
    """The loop, as far as it is needed here."""

    def time(self) -> float:
        """Monotonic seconds."""

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Any:
        """Call back after so many seconds; the returned timer has ``cancel()``."""


class PublishThenAccept:
    """Publishes the records of endings and accepts their leases afterwards.

    ``accept(leases, answered)`` acknowledges leases; with ``answered`` it is sent at once, and that is called when the
    broker has answered or never will. ``on_moved`` is called with the queues whose suspects have become more, when no
    move is under way any more.
    """

    def __init__(
        self,
        publisher: Publisher,
        accept: Callable[[list[JobLease], Callable[[], object] | None], None],
        names: TopicNames,
        events: DeliveryEvents,
        timers: RetryTimers,
        on_moved: Callable[[set[str]], object] = lambda _: None,
    ) -> None:
        self._publisher = publisher
        self._accept = accept
        self._names = names
        self._events = events
        self._timers = timers
        self._on_moved = on_moved
        self._to_retry: list[tuple[Ending, FinishCallback]] = []
        self._failures = 0
        self._moving: dict[JobLease, float] = {}  # leases that move to the suspects, and since when
        self._moved_queues: set[str] = set()
        self._timer: Any = None
        self._is_closed = False
        self._limited_log = LimitedLog(log)

    @property
    def is_moving(self) -> bool:
        """Whether jobs move to the suspects and the broker has not answered that they are settled where they were: a
        suspect that starts before that and ends its worker would be there twice."""
        since = self._timers.time() - MOVING_S
        return any(at > since for at in self._moving.values())

    def finish(self, endings: Sequence[Ending], done: FinishCallback) -> None:
        """See :meth:`kafka.tasks.delivery.base.JobDelivery.finish`; those without records are accepted at once."""
        now = self._timers.time()
        for ending in endings:
            if ending.is_move:
                self._moving.setdefault(ending.lease, now)
        without_records = [ending.lease for ending in endings if not ending.records and not ending.after]
        if without_records:
            self._end(without_records, done)
        rest = [ending for ending in endings if ending.records or ending.after]
        if rest:
            records = [record for ending in rest for record in ending.records]
            self._publisher.publish(records, lambda answers: self._published(rest, answers, done))

    def retry(self) -> None:
        """Write what could not be written before."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._limited_log.flush()
        to_retry, self._to_retry = self._to_retry, []
        by_callback: dict[FinishCallback, list[Ending]] = {}
        for ending, done in to_retry:
            if ending.lease.lost:
                (self._end_moved if ending.is_move else self._end)([ending.lease], done)
            else:
                by_callback.setdefault(done, []).append(ending)
        for done, endings in by_callback.items():
            self.finish(endings, done)

    def close(self) -> None:
        """Write nothing again; what was not written is delivered once more, which is logged."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for ending, _ in self._to_retry:
            lease = ending.lease
            log.error(
                "stopping before the records of job %s could be written: it is delivered again, unless it was "
                "delivered too often already (%d times)",
                lease.origin,
                lease.deliveries,
            )
        self._to_retry.clear()

    def _published(
        self, endings: Sequence[Ending], answers: Sequence[Appended | BaseException], done: FinishCallback
    ) -> None:
        durable: list[JobLease] = []
        moved: list[JobLease] = []
        again: list[Ending] = []
        unwritten: list[Ending] = []
        position = 0
        for ending in endings:
            records, begin = ending.records, position
            position += len(records)
            if len(records) == 1 and not ending.after:  # most jobs have a result and nothing else
                answer = answers[begin]
                if isinstance(answer, Appended) and not _is_late(records[0], answer, self._names):
                    (moved if ending.is_move else durable).append(ending.lease)
                    continue
            step = None  # a lost lease ends here: nothing more is written of it, since another worker runs its job
            if not ending.lease.lost:
                step = next_ending(ending, answers[begin:position], self._names, self._events.replace_result)
            if step is None:
                (moved if ending.is_move else durable).append(ending.lease)
            elif isinstance(step, Ending):
                again.append(step)
            else:
                self._log(step)
                unwritten.append(step.rest)
        if unwritten:
            self._failures += 1
        elif not self._to_retry:
            self._failures = 0
        if durable:
            self._end(durable, done)
        if moved:
            self._end_moved(moved, done)
        if again:
            self.finish(again, done)
        if unwritten:
            self._retry_later(unwritten, done)

    def _retry_later(self, endings: list[Ending], done: FinishCallback) -> None:
        if self._is_closed:
            done([ending.lease for ending in endings])
            return
        self._to_retry += [(ending, done) for ending in endings]
        if self._timer is None:
            delay = RETRY_S[min(self._failures, len(RETRY_S)) - 1]
            self._timer = self._timers.call_later(delay, self.retry)

    def _log(self, step: UnwrittenEnding) -> None:
        lease, error = step.rest.lease, step.error
        key = (type(error), step.record.topic)
        if isinstance(error, KafkaError) and error.retriable:
            message = "could not write the records of job %s, its lock is renewed until they are written: %s"
            self._limited_log.write(logging.ERROR, key, message, lease.origin, error)
        else:
            message = "could not write the records of job %s, its lock is renewed until they are written: %s; %s"
            self._limited_log.write(logging.ERROR, key, message, lease.origin, error, remedy(step.record, error))

    def _end(self, leases: list[JobLease], done: FinishCallback) -> None:
        unaccepted = _unaccepted(leases)
        if unaccepted:
            self._accept(unaccepted, None)
        done(leases)

    def _end_moved(self, leases: list[JobLease], done: FinishCallback) -> None:
        def answered() -> None:
            for lease in leases:
                self._moving.pop(lease, None)
                self._moved_queues.add(lease.source.queue)
            done(leases)
            if not self.is_moving:
                queues, self._moved_queues = self._moved_queues, set()
                self._on_moved(queues)

        unaccepted = _unaccepted(leases)
        if unaccepted:
            self._accept(unaccepted, answered)
        else:
            answered()


def _unaccepted(leases: Iterable[JobLease]) -> list[JobLease]:
    """Those whose records are still to be accepted: not lost, nor accepted when their jobs were handed over."""
    return [lease for lease in leases if not lease.lost and not lease.is_handed_off]
