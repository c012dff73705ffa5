"""The product's topics in memory, with a delivery, a publisher, a pool and a back end that a test can disturb and look
into: all on a simulated loop.

Nothing happens by itself: :func:`settle` runs the loop until it is idle, :func:`pass_time` lets the clock go on.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kafka.net.clock import ManualClock
from kafka.net.loop import Loop
from kafka.tasks.backends.base import DeadRecord, QueueMigration, QueueRoute, RecordFuture, WorkerBackend
from kafka.tasks.backends.memory import MemoryBackend
from kafka.tasks.delivery.base import (
    Appended,
    DeliveryEvents,
    JobLease,
    JobSource,
    OutgoingRecord,
    PublishCallback,
)
from kafka.tasks.delivery.finishing import PublishThenAccept
from kafka.tasks.delivery.memory import MemoryDelivery, MemoryPublisher, MemoryRecord, MemoryTopics
from kafka.tasks.errors import JobsNotSent, UnknownQueue
from kafka.tasks.format.commands import PUT, Command, CommandRecord, decode_command
from kafka.tasks.format.envelope import Envelope, Header
from kafka.tasks.format.job_id import BrokerTimeEstimate, IdMaker, make_id
from kafka.tasks.format.payload import encode_call
from kafka.tasks.format.records import StateRecord, decode
from kafka.tasks.format.topics import TopicNames
from kafka.tasks.pools.base import SimplePool
from kafka.tasks.pools.runner import Job
from kafka.tasks.rules.outcome import Outcome
from kafka.tasks.settings import Settings
from kafka.tasks.states import READY, JobState


class Queues(MemoryTopics):
    """The topics of a test. ``clock``: what it lets pass."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(lambda: int(clock.time() * 1000))
        self.clock = clock

    def copy(self, record: MemoryRecord) -> None:
        """Append a record of other topics."""
        self.append(
            OutgoingRecord(record.kind, record.topic, record.value, record.key, record.headers, record.partition)
        )

    def waiting(self, topic: str) -> list[MemoryRecord]:
        """Records of a queue that are not settled."""
        return [record for record in self.topics[topic] if not record.is_done]

    def puts(self, names: TopicNames) -> list[Command]:
        """What was put into the schedule."""
        records = self.topics[names.commands]
        commands = [decode_command(each.key, each.value, each.headers, each.time_ms) for each in records]
        return [command for command in commands if command is not None and command.kind == PUT]

    def states(self, names: TopicNames) -> list[StateRecord]:
        """All state records, the results topic first."""
        found = []
        for topic in (names.results, names.late):
            for record in self.topics[topic]:
                in_late = topic == names.late
                state = decode(record.key, record.value, record.headers, record.time_ms, in_late, record.offset)
                assert state is not None
                found.append(state)
        return found


class FakeDelivery(MemoryDelivery):
    """A member that notes what it is asked for. ``accepted``: leases whose ACCEPT the broker took; ``is_silent``: it
    never drains; ``is_mute``: what waits for the broker's answer waits for :meth:`answer`."""

    def __init__(
        self,
        queues: Queues,
        loop: Loop,
        events: DeliveryEvents,
        publisher: FakePublisher,
        names: TopicNames | None = None,
        lock_s: float = 30.0,
        of: Sequence[str] = ("default",),
    ) -> None:
        super().__init__(queues, loop, events, publisher, names or TopicNames("shop"), of, lock_s)
        self.renewed: list[list[JobLease]] = []
        self.accepted: list[JobLease] = []
        self.is_silent = False
        self.is_mute = False
        self.drained: Callable[[], object] | None = None
        self._unanswered: list[Callable[[], object]] = []

    @property
    def wants(self) -> dict[JobSource, int]:
        """How many more jobs it was asked for."""
        return self._requested

    @property
    def finishing(self) -> PublishThenAccept:
        return self._finishing

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def drain(self, drained: Callable[[], object]) -> None:
        self.drained = drained
        super().drain((lambda: None) if self.is_silent else drained)

    def renew(self, leases: Sequence[JobLease]) -> None:
        self.renewed.append(list(leases))
        super().renew(leases)

    def _accept(self, leases: Sequence[JobLease], answered: Callable[[], object] | None) -> None:
        self.accepted += [lease for lease in leases if self._is_held(lease)]
        if answered is not None and self.is_mute:
            self._unanswered.append(answered)
            answered = None
        super()._accept(leases, answered)

    def answer(self) -> None:
        """The broker answers what it has left unanswered while ``is_mute``."""
        self.is_mute = False
        unanswered, self._unanswered = self._unanswered, []
        for answered in unanswered:
            answered()


class FakePublisher(MemoryPublisher):
    """Writes at once; ``errors`` by topic, ``is_stuck``: nothing is answered until :meth:`advance`."""

    def __init__(self, queues: Queues, loop: Loop) -> None:
        super().__init__(queues, loop)
        self.errors: dict[str, list[BaseException]] = {}
        self.is_stuck = False
        self.is_closed = False
        self.sizes: list[int] = []
        self._queues = queues
        self._stuck: list[Callable[[], None]] = []

    def publish(self, records: Sequence[OutgoingRecord], done: PublishCallback) -> None:
        self.sizes.append(len(records))
        if self.is_stuck:
            self._stuck.append(lambda: self.publish(records, done))
            return
        answers: list[Appended | BaseException] = []
        for record in records:
            errors = self.errors.get(record.topic)
            answers.append(errors.pop(0) if errors else self._queues.append(record))
        self._loop.call_soon(done, answers)

    def advance(self) -> None:
        self.is_stuck = False
        stuck, self._stuck = self._stuck, []
        for publish in stuck:
            publish()

    def close(self) -> None:
        self.is_closed = True


class ManualPool(SimplePool):
    """A pool whose jobs end when the test says so. ``has_processes``: what is abandoned is killed, and comes back."""

    def __init__(self, concurrency: int, wake: Callable[[], None]) -> None:
        self.concurrency = concurrency
        self.depth = concurrency
        self.backlog = 0
        self.jobs: list[Job] = []
        self.interrupted: list[Job] = []
        self.cancelled: list[Job] = []
        self.terminated: list[Job] = []
        self.abandoned: list[Job] = []
        self.has_processes = False
        self.started_count: int | None = None
        self.limit_at: float | None = None
        self.most_at_once = 0
        self._ended: list[tuple[Job, Outcome]] = []
        self._begun: list[Job] = []
        self._wake = wake

    @property
    def free_slots(self) -> int:
        return max(0, self.depth - self.busy) if self.ready and self.degraded is None else 0

    @property
    def busy(self) -> int:
        return len(self.jobs) + len(self._ended)

    def set_backlog(self, count: int) -> None:
        self.backlog = count

    def submit(self, job: Job) -> None:
        self.jobs.append(job)
        self.most_at_once = max(self.most_at_once, len(self.jobs))

    def begin(self, job: Job) -> None:
        if job.track_started:
            self._begun.append(job)
            self._wake()

    def end(self, job: Job, outcome: Outcome, ran_s: float = 0.001) -> None:
        job.on_ended(ran_s)
        self.jobs.remove(job)
        self._ended.append((job, outcome))
        self._wake()

    def finished(self, timeout: float = 0.0) -> list[tuple[Job, Outcome]]:
        ended, self._ended = self._ended, []
        return ended

    def started(self) -> list[Job]:
        begun, self._begun = self._begun, []
        return begun

    def recall(self) -> list[Job]:
        kept = self.concurrency if self.started_count is None else self.started_count
        back, self.jobs = self.jobs[kept:], self.jobs[:kept]
        return back

    def tick(self, now: float) -> float | None:
        return self.limit_at

    def interrupt(self) -> None:
        for job in self.jobs:
            job.cancel()
        self.interrupted += self.jobs

    def cancel(self, job: Job) -> None:
        self.cancelled.append(job)

    def terminate(self, job: Job) -> None:
        self.terminated.append(job)

    def abandon(self) -> list[Job]:
        self.abandoned += self.jobs
        return [] if self.has_processes else list(self.jobs)

    def grow(self, count: int = 1) -> None:
        self.concurrency += count
        self.depth = max(self.depth, self.concurrency)

    def shrink(self, count: int = 1) -> None:
        self.concurrency = max(1, self.concurrency - count)

    def become(self, ready: bool, degraded: str | None = None) -> None:
        """As children come up, die, or the breaker opens."""
        self.ready, self.degraded = ready, degraded
        self.ever_ready = self.ever_ready or ready
        self._wake()

    def stop(self, grace: float) -> list[Job]:
        return self.jobs

    def statistics(self) -> dict[str, int]:
        return {"busy": self.busy}


def settle(loop: Loop) -> None:
    """Run the loop until nothing is left to do now."""
    for _ in range(10_000):
        if not loop.run_once(0, advance=False):
            return
    raise AssertionError("the loop does not come to rest")


def pass_time(loop: Loop, clock: ManualClock, seconds: float, step: float = 0.5) -> None:
    """Let ``seconds`` pass in steps, running what becomes due."""
    end = clock.monotonic() + seconds
    while clock.monotonic() < end:
        clock.advance(min(step, end - clock.monotonic()))
        settle(loop)


def a_job(
    name: str, *args: Any, clock: ManualClock | None = None, partition: int = 0, **fields: Any
) -> Envelope:
    """An envelope that calls ``name``, enqueued now."""
    ms = int((clock or ManualClock()).time() * 1000)
    return Envelope(make_id(ms, partition, os.urandom(8)), name, encode_call(name, args, {}), **fields)


class FakeSent:
    """A producer's future that is done, unless a test says otherwise."""

    def __init__(self, exception: BaseException | None = None, is_done: bool = True) -> None:
        self.is_done = is_done
        self.exception = exception
        self._errbacks: list[Callable[[], object]] = []

    def add_errback(self, f: Callable[..., Any], *args: Any) -> None:
        self._errbacks.append(lambda: f(*args, self.exception))
        if self.exception is not None:
            self.fail(self.exception)

    def fail(self, error: BaseException) -> None:
        self.is_done, self.exception = True, error
        errbacks, self._errbacks = self._errbacks, []
        for errback in errbacks:
            errback()


class FakeDeadLog:
    """A dead topic as lists. ``reads``: the spans that were read; ``on_append`` is called before a record is written.
    """

    def __init__(self, topic: str, partitions: int) -> None:
        self.topic = topic
        self.records: dict[int, list[DeadRecord]] = {number: [] for number in range(partitions)}
        self.starts = dict.fromkeys(range(partitions), 0)
        self.now_ms = 1_000
        self.reads: list[dict[int, tuple[int, int]]] = []
        self.on_append: Callable[[], None] = lambda: None
        self.is_closed = False

    def write(self, partition: int, value: bytes | None, headers: list[Header], key: bytes | None = None) -> DeadRecord:
        self.now_ms += 1_000
        log = self.records[partition]
        log.append(DeadRecord(partition, len(log), self.now_ms, key, value, headers))
        return log[-1]

    def bounds(self) -> dict[int, tuple[int, int]]:
        return {number: (self.starts[number], len(log)) for number, log in self.records.items()}

    def offsets_at(self, time_ms: int) -> dict[int, int]:
        return {
            number: next((each.offset for each in log if each.time_ms >= time_ms), len(log))
            for number, log in self.records.items()
        }

    def read(self, spans: Mapping[int, tuple[int, int]]) -> Iterator[DeadRecord]:
        self.reads.append(dict(spans))
        found = [each for number, (begin, end) in spans.items() for each in self.records[number][begin:end]]
        yield from sorted(found, key=lambda each: each.time_ms)

    def append(self, partition: int, value: bytes, headers: list[Header]) -> None:
        self.on_append()
        self.write(partition, value, headers)

    def delete_before(self, offsets: Mapping[int, int]) -> None:
        self.starts.update(offsets)

    def close(self) -> None:
        self.is_closed = True


class FakePurge:
    """The unsettled records of a topic."""

    def __init__(self, records: list[MemoryRecord]) -> None:
        self._records = records
        self._ends = len(records)
        self.jobs = sum(not record.is_done for record in records)

    def delete(self) -> None:
        for record in self._records[: self._ends]:
            record.is_done = True

    def close(self) -> None:
        pass


class FakeBackend(MemoryBackend):
    """A back end over :class:`Queues`; state records are seen when somebody looks. ``existing``: topics of others.
    ``owner``: answers commands; None: not at all."""

    def __init__(self, app: str, settings: Settings) -> None:
        self.clock_of_test = ManualClock()
        self.queues = Queues(self.clock_of_test)
        super().__init__(app, settings, self.queues, BrokerTimeEstimate(self.clock_of_test.time))
        self.names = TopicNames(app)
        self.settings = settings
        self.new_id = IdMaker(3, self.clock)
        self.existing: set[str] = set()
        self.routed: list[str] = []
        self.waiters: dict[str, list[Callable[[StateRecord | None], object]]] = defaultdict(list)
        self.on_wait: Callable[[], None] = lambda: None
        self.on_route: Callable[[], object] = lambda: None
        self.on_flush: Callable[[], object] = lambda: None
        self.is_full = False
        self.error: Exception | None = None
        self.not_sent: JobsNotSent | None = None
        self.is_connected = False
        self.next_sent: FakeSent | None = None
        self.flushes = 0
        self.is_closed = False
        self.owner: Callable[[Command], object | None] = lambda command: None
        self.dead: dict[str, FakeDeadLog] = {}
        self.paused: set[str] = set()
        self.migration = QueueMigration(None)
        self.migrated_to = ""

    def dead_log(self, queue: str) -> FakeDeadLog:
        if queue not in self.dead:
            raise UnknownQueue(f"unknown queue {queue!r}")
        return self.dead[queue]

    def purge(self, queue: str) -> FakePurge:
        if queue not in self.existing:
            raise UnknownQueue(f"unknown queue {queue!r}")
        return FakePurge(self.queues.topics[self.names.queue(queue)])

    def migrate(self, queue: str, to: str) -> QueueMigration:
        if queue not in self.existing:
            raise UnknownQueue(f"unknown queue {queue!r}")
        self.migrated_to = to
        return self.migration

    def set_paused(self, queue: str, is_paused: bool) -> bool:
        if queue not in self.existing:
            raise UnknownQueue(f"unknown queue {queue!r}")
        is_new = (queue in self.paused) != is_paused
        (self.paused.add if is_paused else self.paused.discard)(queue)
        return is_new

    def route(self, queue: str, declared: bool) -> QueueRoute:
        self.routed.append(queue)
        self.on_route()
        return super().route(queue, declared or queue in self.existing)

    def has_room(self) -> bool:
        return not self.is_full

    def send(self, topic: str, value: bytes, headers: list[Header], key: bytes | None = None) -> RecordFuture:
        written = super().send(topic, value, headers, key)
        sent, self.next_sent = self.next_sent, None
        return sent or written

    def send_command(self, record: CommandRecord, partition: int) -> RecordFuture:
        written = super().send_command(record, partition)
        sent, self.next_sent = self.next_sent, None
        command = decode_command(*record)
        answer = self.owner(command) if command is not None and command.request is not None else None
        if command is not None and command.request is not None and answer is not None:
            self.send_state(StateRecord(command.request, JobState.SUCCESS, value=json.dumps(answer).encode()))
        return sent or written

    def flush(self, timeout: float | None) -> None:
        self.flushes += 1
        self.on_flush()

    def take_not_sent(self) -> JobsNotSent | None:
        error, self.not_sent = self.not_sent, None
        return error

    def find(self, job_id: str, timeout: float | None, since_ms: int | None = None) -> StateRecord | None:
        if self.error is not None:
            raise self.error
        return self.known(job_id)

    def add_waiter(
        self, job_id: str, on_end: Callable[[StateRecord | None], object], timeout: float | None
    ) -> StateRecord | None:
        record = self.find(job_id, timeout)
        if record is None or record.state not in READY:
            self.waiters[job_id].append(on_end)
        self.on_wait()
        return record

    def is_at_hand(self, job_id: str) -> bool:
        return self.is_connected

    def before_wait(self, job_id: str) -> StateRecord | None:
        return None

    def remove_waiter(self, job_id: str, on_end: Callable[[StateRecord | None], object]) -> None:
        if on_end in self.waiters[job_id]:
            self.waiters[job_id].remove(on_end)

    def wake(self, job_id: str, record: StateRecord | None) -> None:
        """The job has ended with ``record``; None: that is to be asked for."""
        for on_end in self.waiters.pop(job_id, []):
            on_end(record)

    def worker_backend(
        self, loop: Any, queues: Sequence[str], schedule: bool = False, declared: object = None, ordered: object = ()
    ) -> WorkerBackend:
        return super().worker_backend(loop, queues, schedule)._replace(results_partitions=8)

    def close(self, timeout: float | None = None) -> None:
        self.is_closed = True


def open_fake(app: str, settings: Settings) -> FakeBackend:
    """For ``kafka.tasks.backends.base.BACKENDS``."""
    return FakeBackend(app, settings)
