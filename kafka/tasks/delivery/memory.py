"""Jobs and states in lists of this process, and a delivery over them.

:class:`MemoryTopics` does what a share group does as far as a worker can tell: hand-outs are counted and locked, a
released or expired record is handed out again, and what is not held any more can be neither renewed nor accepted.
Unlike a broker it drops no record that was delivered too often, and keeps all records as long as it lives.
:class:`MemoryDelivery` and :class:`MemoryPublisher` are the two ends that a worker drives, on its loop; how a job is
finished is production's (:class:`kafka.tasks.delivery.finishing.PublishThenAccept`).

Topics may be used by any thread, and have one lock; what is called back is called without it.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Protocol

from kafka.errors import IllegalStateError
from kafka.tasks.delivery.base import (
    Appended,
    BrokerContact,
    Claim,
    ClaimKind,
    DeliveryEvents,
    Ending,
    FinishCallback,
    JobLease,
    JobSource,
    MetadataUse,
    OutgoingRecord,
    PublishCallback,
    Publisher,
    RecordKind,
    sources_of,
)
from kafka.tasks.delivery.finishing import PublishThenAccept, RetryTimers
from kafka.tasks.delivery.memory_schedule import MemorySchedule
from kafka.tasks.format.cancelled import CancelledJob, decode_cancelled
from kafka.tasks.format.envelope import Header
from kafka.tasks.format.records import StateRecord, decode, supersedes
from kafka.tasks.format.topics import TopicNames
from kafka.tasks.schedule.pending import NEVER_MS
from kafka.tasks.states import READY

LOCK_S: Final = 30.0
"""Duration of a lock: Kafka's default."""

CONTACT_INTERVAL_S: Final = 5.0

StateCallback = Callable[[StateRecord], object]


class MemoryLoop(RetryTimers, Protocol):
    """A worker's loop, as far as it is needed here."""

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> Any:
        """Call back in this turn or the next."""

    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any) -> Any:
        """The same, from any thread."""


class MemoryRecord:
    """A record in a list, with what a share partition knows of it: how often it was handed out, to which delivery and
    until when (monotonic seconds), and whether it was accepted."""

    __slots__ = (
        "deliveries", "headers", "holder", "is_done", "key", "kind", "locked_until", "offset", "partition", "time_ms",
        "topic", "value",
    )  # fmt: skip

    def __init__(self, offset: int, record: OutgoingRecord, time_ms: int) -> None:
        self.kind = record.kind
        self.topic = record.topic
        self.partition = record.partition
        self.offset = offset
        self.time_ms = time_ms
        self.key = record.key
        self.value = record.value
        self.headers: list[Header] = list(record.headers or [])
        self.deliveries = 0
        self.holder: object = None
        self.locked_until = 0.0
        self.is_done = False

    def header(self, name: str) -> str | None:
        """The text of a header; None when it has no such header, or an empty one."""
        value = dict(self.headers).get(name)
        return None if value is None else value.decode()


class MemoryTopics:
    """All topics, each a list of records in order. ``now_ms``: the time that records are appended with."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.topics: dict[str, list[MemoryRecord]] = defaultdict(list)
        self._now_ms = now_ms
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._unfinished: dict[str, dict[int, MemoryRecord]] = defaultdict(dict)
        self._states: dict[str, StateRecord] = {}
        self._state_count = 0
        self._waiters: dict[str, list[StateCallback]] = {}
        self._members: tuple[MemoryDelivery, ...] = ()
        self._schedules: dict[str, MemorySchedule] = {}

    def check_process(self) -> None:
        """IllegalStateError in a fork of the process: what it has is a copy, and no worker sees its jobs."""
        if self._pid != os.getpid():
            raise IllegalStateError(
                f"the jobs of this app are in the memory of process {self._pid}, and this is its child {os.getpid()}: "
                "run workers with pool='threads', 'asyncio' or 'inline', or set bootstrap_servers to a broker"
            )

    # -- records ------------------------------------------------------------------------------------------------------

    def append(self, outgoing: OutgoingRecord) -> Appended:
        """Append one record; notifies the workers of a job and the waiters of a final state."""
        ended: tuple[StateRecord, list[StateCallback]] | None = None
        with self._lock:
            log = self.topics[outgoing.topic]
            record = MemoryRecord(len(log), outgoing, self._now_ms())
            log.append(record)
            if record.kind is RecordKind.JOB:
                self._unfinished[record.topic][record.offset] = record
            elif record.kind is RecordKind.STATE:
                ended = self._apply(record)
        if record.kind is RecordKind.COMMAND:
            self._schedules[record.topic].run(record.offset + 1)
            self.notify()  # it may have to do something earlier than before
        elif ended is not None:
            for on_end in ended[1]:
                on_end(ended[0])
        elif record.kind is RecordKind.JOB:
            self.notify()
        return Appended(record.time_ms, record.offset)

    def open_schedule(self, names: TopicNames) -> MemorySchedule:
        """The schedule of an app."""
        with self._lock:
            schedule = self._schedules.get(names.commands)
            if schedule is None:
                schedule = MemorySchedule(names, self._read, self.append, self._now_ms)
                self._schedules[names.commands] = schedule
            return schedule

    def _read(self, topic: str, offset: int) -> MemoryRecord:
        return self.topics[topic][offset]

    def read_from(self, topic: str, offset: int) -> list[MemoryRecord]:
        """The records of a topic from this offset on."""
        with self._lock:
            return self.topics[topic][offset:] if topic in self.topics else []

    def now_ms(self) -> int:
        """The time that records are appended with."""
        return self._now_ms()

    def has(self, topic: str) -> bool:
        """Whether anything was ever appended to a topic."""
        return topic in self.topics

    def has_unfinished(self, topic: str) -> bool:
        """Whether a queue's topic has records that are not accepted."""
        return bool(self._unfinished.get(topic))

    def _apply(self, record: MemoryRecord) -> tuple[StateRecord, list[StateCallback]] | None:
        """Take in a state record; the state that holds and the job's waiters, when it is final.

        There is one order over both topics of states, so none of them comes too late: each is taken for one of the
        late topic, with its place in that order.
        """
        self._state_count += 1
        state = decode(record.key, record.value, record.headers, record.time_ms, True, self._state_count)
        if state is None:
            return None
        if supersedes(self._states.get(state.id), state):
            self._states[state.id] = state
        best = self._states[state.id]
        return (best, self._waiters.pop(state.id, [])) if best.state in READY else None

    # -- states -------------------------------------------------------------------------------------------------------

    def state_of(self, job_id: str) -> StateRecord | None:
        """The state record that holds for a job; None when there is none."""
        return self._states.get(job_id)

    def add_waiter(self, job_id: str, on_end: StateCallback) -> StateRecord | None:
        """The state record that holds for a job; unless it is final, ``on_end`` is called with the final one, on the
        thread that appends it."""
        with self._lock:
            state = self._states.get(job_id)
            if state is None or state.state not in READY:
                self._waiters.setdefault(job_id, []).append(on_end)
            return state

    def settle(self, record: StateRecord) -> None:
        """This is a job's final state, unless it has one; its waiters are notified."""
        with self._lock:
            state = self._states.get(record.id)
            if state is not None and state.state in READY:
                return
            self._states[record.id] = record
            waiters = self._waiters.pop(record.id, [])
        for on_end in waiters:
            on_end(record)

    def remove_waiter(self, job_id: str, on_end: StateCallback) -> None:
        """Do not call ``on_end`` any more; no effect when it was called, or not added."""
        with self._lock:
            waiters = self._waiters.get(job_id, [])
            if on_end in waiters:
                waiters.remove(on_end)
                if not waiters:
                    del self._waiters[job_id]

    # -- hand-outs ----------------------------------------------------------------------------------------------------

    def join(self, member: MemoryDelivery) -> None:
        """Notify ``member`` of jobs from now on."""
        with self._lock:
            self._members = (*self._members, member)

    def leave(self, member: MemoryDelivery) -> None:
        """Release what ``member`` holds, as a broker does when a connection ends."""
        with self._lock:
            self._members = tuple(each for each in self._members if each is not member)
            for unfinished in self._unfinished.values():
                for record in unfinished.values():
                    if record.holder is member:
                        record.holder = None
        self.notify()

    def notify(self) -> None:
        """There are jobs, or may be: the members look for them soon."""
        for member in self._members:
            member.look_soon()

    def acquire(self, topic: str, member: object, count: int, now: float, lock_s: float) -> list[MemoryRecord]:
        """Hand out up to ``count`` records that are neither accepted nor locked at ``now``, in order."""
        acquired: list[MemoryRecord] = []
        with self._lock:
            for record in self._unfinished[topic].values():
                if len(acquired) == count:
                    break
                if record.holder is None or record.locked_until <= now:
                    record.deliveries += 1
                    record.holder = member
                    record.locked_until = now + lock_s
                    acquired.append(record)
        return acquired

    def renew(self, record: MemoryRecord, until: float) -> None:
        """Extend a record's lock."""
        with self._lock:
            record.locked_until = until

    def accept(self, record: MemoryRecord) -> None:
        """A record is done with, and not handed out any more."""
        with self._lock:
            record.holder = None
            record.is_done = True
            self._unfinished[record.topic].pop(record.offset, None)


class MemoryPublisher:
    """See :class:`kafka.tasks.delivery.base.Publisher`."""

    def __init__(self, topics: MemoryTopics, loop: MemoryLoop) -> None:
        self._topics = topics
        self._loop = loop

    def publish(self, records: Sequence[OutgoingRecord], done: PublishCallback) -> None:
        """See :class:`kafka.tasks.delivery.base.Publisher`."""
        self._loop.call_soon(done, [self._topics.append(record) for record in records])

    def close(self) -> None:
        """Holds nothing."""


class MemoryDelivery:
    """See :class:`kafka.tasks.delivery.base.JobDelivery`. Methods are for the loop's thread, :meth:`look_soon` for any.

    ``lock_s``: seconds by the loop's clock.
    """

    def __init__(
        self,
        topics: MemoryTopics,
        loop: MemoryLoop,
        events: DeliveryEvents,
        publisher: Publisher,
        names: TopicNames,
        queues: Sequence[str],
        lock_s: float = LOCK_S,
    ) -> None:
        """Joins the members that share these topics."""
        self.lock_s = lock_s
        self.sources = tuple(sources_of(names, queues))
        self._topics = topics
        self._loop = loop
        self._events = events
        self._publisher = publisher
        self._finishing = PublishThenAccept(publisher, self._accept, names, events, loop, lambda _: self.look_soon())
        self._requested: dict[JobSource, int] = {}
        self._lost: list[JobLease] = []
        self._is_looking = False
        self._is_closed = False
        self._schedule = topics.open_schedule(names)
        self._schedule_timer: Any = None
        self._cancelled_topic = names.cancelled
        self._cancelled_count = 0  # that were read
        self._on_cancelled: Callable[[list[CancelledJob]], object] | None = None
        topics.join(self)

    def request(self, source: JobSource, count: int) -> None:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`. Suspects are not asked for while jobs move there."""
        self._requested[source] = count
        self.look_soon()

    def drain(self, drained: Callable[[], object]) -> None:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        self._finishing.retry()
        self._loop.call_soon(drained)

    def renew(self, leases: Sequence[JobLease]) -> None:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        until = self._loop.time() + self.lock_s
        for record in self._held(leases):
            self._topics.renew(record, until)

    def accept(self, leases: Sequence[JobLease]) -> None:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        self._accept(leases, None)

    def publish(self, records: Sequence[OutgoingRecord], done: PublishCallback) -> None:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        self._publisher.publish(records, done)

    def finish(self, endings: Sequence[Ending], done: FinishCallback) -> None:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        self._finishing.finish(endings, done)

    def cancelled(self, ids: Collection[str]) -> None:
        """No job waits here for another attempt."""

    def contacts(self) -> list[BrokerContact]:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        now = self._loop.time()
        return [BrokerContact(source, now, CONTACT_INTERVAL_S) for source in self._requested]

    def metadata_use(self) -> list[MetadataUse]:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        return []

    def close(self) -> None:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        self._finishing.close()
        self.release_all()
        self._publisher.close()
        self._loop.call_soon(self._events.left)

    def release_all(self) -> None:
        """Leave the topics with what it holds, as when its process dies."""
        self._is_closed = True
        self._run_schedule()
        self._topics.leave(self)

    def look_soon(self) -> None:
        """Look for jobs in the next turn of the loop."""
        if not self._is_looking and not self._is_closed:
            self._is_looking = True
            self._loop.call_soon_threadsafe(self._look)

    def watch_cancelled(self, on_cancelled: Callable[[list[CancelledJob]], object]) -> None:
        """Call back with the jobs that are cancelled now, if there are some, and with those that are later."""
        self._on_cancelled = on_cancelled
        self._report_cancelled()

    def _report_cancelled(self) -> None:
        if self._on_cancelled is None or self._is_closed:
            return
        records = self._topics.read_from(self._cancelled_topic, self._cancelled_count)
        self._cancelled_count += len(records)
        cancelled = [job for each in records if (job := decode_cancelled(each.key, each.headers)) is not None]
        if cancelled:
            self._on_cancelled(cancelled)

    def _report_lost(self) -> None:
        lost, self._lost = self._lost, []
        if lost:
            self._events.lost(lost, "acquisition lock timed out")

    def _look(self) -> None:
        self._is_looking = False  # before it looks: what is appended from now on makes it look again
        self._run_schedule()
        self._report_cancelled()
        self._report_lost()  # before they are handed out again
        for source, count in list(self._requested.items()):
            if self._is_closed or not count or (source.is_suspect and self._finishing.is_moving):
                continue
            records = self._topics.acquire(source.topic, self, count, self._loop.time(), self.lock_s)
            if records:
                self._requested[source] = count - len(records)
                self._events.leased([_lease(source, record) for record in records])

    def _run_schedule(self) -> None:
        """Have done what is due, and look again when something is."""
        if self._schedule_timer is not None:
            self._schedule_timer.cancel()
            self._schedule_timer = None
        if self._is_closed:
            return
        self._schedule.run()
        next_ms = self._schedule.next_at_ms
        if next_ms < NEVER_MS:
            delay_s = max(0.0, (next_ms - self._topics.now_ms()) / 1000)
            self._schedule_timer = self._loop.call_later(delay_s, self.look_soon)

    def _accept(self, leases: Sequence[JobLease], answered: Callable[[], object] | None) -> None:
        for record in self._held(leases):
            self._topics.accept(record)
        if answered is not None:
            self._loop.call_soon(answered)
        self._topics.notify()

    def _held(self, leases: Sequence[JobLease]) -> list[MemoryRecord]:
        """The records of the leases whose locks are held; the others are reported as lost."""
        lost = [lease for lease in leases if not self._is_held(lease)]
        if lost:
            self._lost += lost
            self._loop.call_soon(self._report_lost)
        return [_record(lease) for lease in leases if self._is_held(lease)]

    def _is_held(self, lease: JobLease) -> bool:
        record = _record(lease)
        is_same = record.holder is self and record.deliveries == lease.deliveries
        return is_same and record.locked_until > self._loop.time()


def _lease(source: JobSource, record: MemoryRecord) -> JobLease:
    claim = Claim(ClaimKind.SHARE_LOCK, record)
    return JobLease(
        source, record.value, record.headers, record.deliveries, 0, record.offset, claim, key=record.key
    )


def _record(lease: JobLease) -> MemoryRecord:
    assert lease.claim is not None
    record: MemoryRecord = lease.claim.token
    return record
