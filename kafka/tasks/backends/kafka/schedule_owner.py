"""The owner of one partition of the schedule: it gives commands and the time to a
:class:`~kafka.tasks.schedule.machine.ScheduleMachine`, and writes what each round decides in one transaction.

::

    FENCING  ----> LOADING  ----> RUNNING ----> CLOSED     (see OWNER_STAGES)
       ^              |              |
       '---- error ---+--------------'

FENCING takes the transactional id ``APP.schedule.P``: from then on no earlier owner can commit anything, and what it
has left open is ended. *After that* the offset of the next command is asked for, and the state is read: both are what
the last committed round has left, and change no more by another's hand.

What is due waits until the owner has applied the commands that were there when it began: some may be about jobs whose
time has passed while the partition had no owner.

A round of RUNNING: take commands that have come, read the records that they look at, apply them, decide what is due,
and write the records and the offset of the next command in one transaction. A transaction that can only be aborted (a
rebalance came between, a record was refused) is made again with the same records: nothing has happened meanwhile, as
long as this owner is not fenced. After any other error it starts anew with another machine, since the present one is
ahead of the log.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

from kafka import admin
from kafka.admin import OffsetSpec
from kafka.client import KafkaClient
from kafka.consumer import ConsumerRecord
from kafka.errors import (
    AbortableTransactionError,
    Cancelled,
    KafkaError,
    KafkaTimeoutError,
    UnstableOffsetCommitError,
)
from kafka.future import Future
from kafka.log_limit import LimitedLog
from kafka.producer import FutureRecordMetadata, KafkaProducer, RecordMetadata
from kafka.structs import ConsumerGroupMetadata, TopicPartition
from kafka.tasks.backends.kafka.due_topics import DueTopics
from kafka.tasks.backends.kafka.loop_task import LoopTask, next_turn, within
from kafka.tasks.backends.kafka.schedule_reader import ScheduleReader
from kafka.tasks.backends.kafka.transactions import REQUEST_TIMEOUT_S, committed_offsets, explain, fence
from kafka.tasks.errors import BadRecord
from kafka.tasks.format.commands import ORDERED, QUEUE, Command, decode_command
from kafka.tasks.format.job_id import BrokerTimeEstimate
from kafka.tasks.format.topics import TopicNames
from kafka.tasks.schedule.entries import queues_of
from kafka.tasks.schedule.machine import Round, ScheduleMachine
from kafka.tasks.settings import Settings

log = logging.getLogger(__name__)

ROUND_COMMANDS: Final = 500
ROUND_BYTES: Final = 4 * 1024 * 1024
"""Commands of one round, and of their values, about."""
MOST_WAITING: Final = 1_000
MOST_WAITING_BYTES: Final = 4 * 1024 * 1024
"""Commands that have come and wait: above that no more are taken from the consumer."""
LATE_SHOWN_S: Final = 60.0
"""How late a round was is shown so long, in metrics."""
LINGER_S: Final = 0.2
"""Between rounds that move jobs: a round costs more than the jobs in it, and those that are due meanwhile share it."""
OFFSET_LAG_S: Final = 1.0
"""The offset of commands that have changed nothing is committed after so long, without a record."""
LOOK_S: Final = 30.0
"""The machine is asked so often what is due: the time at which something is due is the broker's, and may step."""
RECENT_S: Final = 20.0
"""What is known of the broker's time is good for so long; before a job starts after that it is asked for again."""
LEARN_S: Final = 2.0
"""The answer is waited for so long, and not asked for again within."""
UNSTABLE_S: Final = 20.0
"""After so long an open transaction of the group's offsets counts as one whose end is lost. Ends take milliseconds."""
ATTEMPTS: Final = 10
"""Of a round's transaction, before the owner starts anew."""
BACKOFF_S: Final = 0.1
BACKOFF_MAX_S: Final = 10.0
BACKLOG_S: Final = 10.0
"""Jobs that are due wait so long at most for commands that were there before."""
STABLE_S: Final = 60.0
"""An owner that has run for so long begins with the first back-off when it fails."""
CLOSE_S: Final = 1.0
"""The round under way is waited for so long when the partition is given up."""


class OwnerStage(Enum):
    """How far an owner has come."""

    FENCING = "fencing"
    """It takes the transactional id of the partition: earlier owners are fenced."""
    LOADING = "loading"
    """It reads the state of the partition."""
    RUNNING = "running"
    CLOSED = "closed"
    """The partition is given up, or lost."""


OWNER_STAGES: Final[Mapping[OwnerStage, frozenset[OwnerStage]]] = {
    OwnerStage.FENCING: frozenset({OwnerStage.FENCING, OwnerStage.LOADING, OwnerStage.CLOSED}),
    OwnerStage.LOADING: frozenset({OwnerStage.FENCING, OwnerStage.RUNNING, OwnerStage.CLOSED}),
    OwnerStage.RUNNING: frozenset({OwnerStage.FENCING, OwnerStage.CLOSED}),
    OwnerStage.CLOSED: frozenset(),
}


class CommandSource(Protocol):
    """The group's consumer of ``APP.commands``, as an owner uses it. Nothing for a partition that is not assigned."""

    def membership(self) -> ConsumerGroupMetadata:
        """As whom offsets are committed."""

    def seek(self, partition: int, offset: int | None) -> None:
        """Give the commands from this offset on; None: from the first."""

    def set_paused(self, partition: int, is_paused: bool) -> None:
        """Give no commands for now, or go on."""


class OwnerContext(NamedTuple):
    """What the owners of a process share. ``learn_time``: asks for the broker's time, done when that has succeeded or
    failed; ``limited_log``: one line of each kind a minute."""

    client: KafkaClient
    names: TopicNames
    settings: Settings
    clock: BrokerTimeEstimate
    learn_time: Callable[[], Future[None]]
    results_partitions: int
    host: str
    due_topics: DueTopics
    limited_log: LimitedLog

    def now_ms(self) -> int:
        """The broker's time that has certainly passed."""
        return self.clock.earliest_ms()


class PartitionOwner:
    """See the module. On the client's loop; never blocks. ``committed``: the offset of the next command, as the last
    round has committed it, -1 before it is known. ``late_ms``: how late the earliest job of the last round was that
    had some, within the last minute.
    """

    def __init__(self, context: OwnerContext, partition: int, source: CommandSource) -> None:
        """Does nothing before :meth:`start`."""
        self.partition = partition
        self.stage = OwnerStage.FENCING
        self.machine = self._make_machine(context, partition)
        self.committed = -1
        self.moved_count = 0
        self._late_ms, self._late_until = 0, 0.0
        self._context = context
        self._loop: Any = context.client.loop
        self._source = source
        self._commands = TopicPartition(context.names.commands, partition)
        self._place = TopicPartition(context.names.schedule, partition)
        self._waiting: deque[ConsumerRecord] = deque()
        self._waiting_bytes = 0
        self._applied = -1  # behind the last command that was applied
        self._backlog_end = 0  # the offset behind the commands that were there when it began
        self._backlog_until = 0.0  # they are waited for no longer
        self._unsaved_since: float | None = None  # when commands were applied that left nothing to write
        self._learn_at = 0.0  # the broker's time is not asked for before
        self._linger_until = 0.0  # what is due waits for the next round
        self._most_commands = ROUND_COMMANDS
        self._moved_before = 0  # by the machine, up to its last round
        self._is_paused = True
        self._is_closing = False
        self._wake: Future[None] | None = None
        self._producer: KafkaProducer | None = None
        self._reader: ScheduleReader | None = None
        self._task: LoopTask | None = None
        self._closed: Future[None] = Future()

    @property
    def late_ms(self) -> int:
        return self._late_ms if self._loop.time() < self._late_until else 0

    def start(self) -> None:
        """Take the partition over. Its consumer is paused there."""
        self._task = LoopTask(self._run_until_closed(), self._on_end)

    def add(self, records: Iterable[ConsumerRecord]) -> None:
        """Commands have come."""
        if self.stage is not OwnerStage.RUNNING:
            return  # the consumer goes back to where this owner begins
        for record in records:
            self._waiting.append(record)
            self._waiting_bytes += _size(record)
        self._pause_or_resume()
        self._notify()

    def close(self) -> Future[None]:
        """The partition is given up: done when the round under way has ended, or after CLOSE_S."""
        self._is_closing = True
        self._notify()
        if self.stage is not OwnerStage.RUNNING:
            self.drop()
        elif not self._closed.is_done:
            within(self._loop, self._closed, CLOSE_S).add_callback(lambda _: self.drop())
        return self._closed

    def drop(self) -> None:
        """The partition is lost: end at once."""
        self._is_closing = True
        if self._task is not None:
            self._task.cancel()
        else:
            self._on_end(None)

    # -- its life -----------------------------------------------------------------------------------------------------

    async def _run_until_closed(self) -> None:
        failures = 0
        while not self._is_closing:
            began = self._loop.time()
            try:
                await self._fence()
                await self._load()
                await self._run()
            except Cancelled:
                return
            except Exception as error:
                if self._is_closing:
                    return
                self._context.due_topics.forget()  # one may have been deleted
                self._log_failure(error)
            finally:
                self._release()
            if self._is_closing:
                return
            failures = 1 if self._loop.time() - began > STABLE_S else failures + 1
            await self._sleep(min(BACKOFF_S * 2**failures, BACKOFF_MAX_S))
            self._enter(OwnerStage.FENCING)

    async def _fence(self) -> None:
        context = self._context
        transactional_id = f"{context.names.schedule}.{self.partition}"
        self._producer = await fence(context.client, transactional_id, context.settings)
        self.committed = self._applied = await self._find_committed()
        ends = await context.client.run(
            admin.dialogues.list_partition_offsets(
                {self._commands: OffsetSpec.LATEST},
                backoff=context.client.retry_backoff,
                timeout_s=REQUEST_TIMEOUT_S,
            )
        )
        self._backlog_end = ends[self._commands].offset

    async def _find_committed(self) -> int:
        """The offset of the next command. A broker that is killed in the midst of a commit can lose the end of the
        transaction in the group's offsets alone (seen with Kafka 4.3.0), and then says for ever that one is open. This
        owner's own id has none any more: it takes the offset before that, so that some commands are applied again, and
        its next transaction ends the lost one."""
        client, group, places = self._context.client, self._context.names.commands, [self._commands]
        try:
            offsets = await committed_offsets(client, group, places, UNSTABLE_S, require_stable=True)
            return offsets[self._commands].offset
        except UnstableOffsetCommitError:
            offset = (await committed_offsets(client, group, places))[self._commands].offset
        self._context.limited_log.warning(
            "unstable offset", "%s: the brokers have lost the end of a transaction; commands from offset %d on are "
            "applied again", self, offset,
        )  # fmt: skip
        return offset

    async def _load(self) -> None:
        self._enter(OwnerStage.LOADING)
        context = self._context
        self.machine = self._make_machine(context, self.partition)
        self._moved_before = 0
        self._reader = ScheduleReader(context.client, self._place)
        await self._reader.read_all(self._restore)
        log.debug("%s: loaded %d jobs", self, len(self.machine))

    async def _run(self) -> None:
        self._enter(OwnerStage.RUNNING)
        self._source.seek(self.partition, None if self.committed < 0 else self.committed)
        self._set_paused(False)
        self._backlog_until = self._loop.time() + BACKLOG_S
        while not self._is_closing:
            if not await self._step():
                await self._sleep(self._wait_s())

    def _release(self) -> None:
        """What has been made for one attempt. An open transaction is aborted, if the next owner does not do that
        before."""
        self._set_paused(True)
        self._waiting.clear()
        self._waiting_bytes = 0
        self._unsaved_since = None
        producer, self._producer = self._producer, None
        reader, self._reader = self._reader, None
        if producer is not None:
            producer.close_async()
        if reader is not None:
            reader.close()

    def _on_end(self, error: BaseException | None) -> None:
        if error is not None:
            log.error("%s: ended by an error that is a fault of this program", self, exc_info=error)
        self._enter(OwnerStage.CLOSED)
        if not self._closed.is_done:
            self._closed.success(None)

    def _enter(self, stage: OwnerStage) -> None:
        if stage is not self.stage:
            if stage not in OWNER_STAGES[self.stage]:
                raise RuntimeError(f"{self}: no step from {self.stage.name} to {stage.name}")
            self.stage = stage

    def _log_failure(self, error: Exception) -> None:
        context = self._context
        level = logging.WARNING if isinstance(error, KafkaError) else logging.ERROR
        if level == logging.ERROR:
            log.debug("%s: failed", self, exc_info=error)
        text = explain(error, context.names) if isinstance(error, KafkaError) else repr(error)
        context.limited_log.write(
            level, type(error).__name__, "%s starts again, its jobs wait meanwhile: %s", self, text
        )

    def __str__(self) -> str:
        return f"the owner of {self._place.topic}-{self.partition}"

    # -- a round ------------------------------------------------------------------------------------------------------

    async def _step(self) -> bool:
        """One round; whether there is more to do at once."""
        machine = self.machine
        taken = self._take_waiting()
        commands = [command for _, command in taken if command is not None]
        topic_of = self._context.names.scheduled
        topics = machine.entry_topics
        topics.update(topic_of(each.job.queue, each.job.is_ordered) for each in commands if each.job is not None)
        topics.update(topic_of(*queue) for each in commands for queue in queues_of(each))
        await self._read(machine.to_read(commands, self._context.now_ms()), topics)
        due_topics = self._context.due_topics
        await due_topics.look_for(topics)
        machine.set_missing_topics(due_topics.missing)
        if self._may_learn_time and machine.next_at_ms <= self._context.clock.now_ms():
            self._learn_at = self._loop.time() + LEARN_S
            await within(self._loop, self._context.learn_time(), LEARN_S)
        if self._is_closing:
            return False
        now_ms, late_since_ms = self._context.now_ms(), machine.due_at_ms
        self._apply(taken, now_ms)
        await next_turn(self._loop)
        has_more = not self._has_backlog and machine.advance(now_ms)
        await next_turn(self._loop)
        if machine.has_round or self._is_offset_late():
            await self._commit(machine.take())
            for change in machine.take_changes():
                log.info("periodic entries of app %s, by the code's declaration: %s", self._context.names.app, change)
            moved, self._moved_before = machine.moved_count - self._moved_before, machine.moved_count
            if moved:
                self.moved_count += moved
                self._linger_until = self._loop.time() + LINGER_S
            if late_since_ms <= now_ms:
                self._late_ms = max(0, self._context.now_ms() - late_since_ms)
                self._late_until = self._loop.time() + LATE_SHOWN_S
        return has_more or bool(self._waiting)

    def _take_waiting(self) -> list[tuple[ConsumerRecord, Command | None]]:
        """The next commands, with those that this release cannot read as None."""
        taken: list[tuple[ConsumerRecord, Command | None]] = []
        bytes_left = ROUND_BYTES
        while self._waiting and len(taken) < self._most_commands and bytes_left > 0:
            record = self._waiting.popleft()
            size = _size(record)
            bytes_left -= size
            self._waiting_bytes -= size
            taken.append((record, self._decoded(record)))
        self._pause_or_resume()
        return taken

    def _decoded(self, record: ConsumerRecord) -> Command | None:
        try:
            command = decode_command(record.key, record.value, record.headers, record.timestamp)
            why = "this release does not know it"
        except BadRecord as error:
            command, why = None, str(error)
        if command is None:
            self._ignore(record, why)
        return command

    def _ignore(self, record: ConsumerRecord, why: str) -> None:
        place = f"{record.topic}-{record.partition}"
        self._context.limited_log.warning(
            "bad command", "ignoring a command for the schedule (%s, offset %d): %s", place, record.offset, why
        )

    async def _read(self, offsets: list[int], topics: set[str]) -> None:
        """Load the records at these offsets, and note the topics that their jobs are for. With too little room for all
        of them the next step has one command, so that its record has room before others."""
        machine, has_room = self.machine, True

        def take(offset: int, record: ConsumerRecord | None) -> bool:
            nonlocal has_room
            try:
                if record is not None:
                    headers = record.headers
                    by_name = dict(headers)
                    if QUEUE in by_name:
                        queue, is_ordered = _decoded(by_name[QUEUE]), by_name.get(ORDERED) == b"1"
                        topics.add(self._context.names.scheduled(queue, is_ordered))
                    has_room = machine.load(record.key, record.value, headers, offset)
                    return has_room
                why = "it is gone"
            except BadRecord as error:
                why = str(error)
            job_id = machine.unreadable(offset, self._context.now_ms())
            self._context.limited_log.warning(
                "bad state", "job %s has failed: its record in %s-%d at offset %d cannot be used: %s",
                job_id, self._place.topic, self.partition, offset, why,
            )  # fmt: skip
            return True

        if offsets:
            assert self._reader is not None
            await self._reader.read(offsets, take)
        self._most_commands = min(self._most_commands * 2, ROUND_COMMANDS) if has_room else 1

    def _apply(self, taken: list[tuple[ConsumerRecord, Command | None]], now_ms: int) -> None:
        """Apply commands in order, up to the first whose record is not loaded: that and the others wait."""
        machine = self.machine
        for index, (record, command) in enumerate(taken):
            if command is not None:
                if not machine.can_apply(command):
                    rest = [each for each, _ in taken[index:]]
                    self._waiting.extendleft(reversed(rest))
                    self._waiting_bytes += sum(map(_size, rest))
                    break
                try:
                    machine.apply(command, now_ms)
                except BadRecord as error:
                    self._ignore(record, str(error))
            self._applied = record.offset + 1
        if self._applied != self.committed and self._unsaved_since is None:
            self._unsaved_since = self._loop.time()

    async def _commit(self, written: Round) -> None:
        """Write a round, and let the machine know where its records are."""
        for attempt in range(1, ATTEMPTS + 1):
            assert self._producer is not None
            try:
                appended = await self._write(self._producer, written)
                break
            except AbortableTransactionError as error:
                log.debug("%s: aborting a transaction: %s", self, error)
                await self._producer.abort_transaction_async()
                if attempt == ATTEMPTS or self._is_closing or isinstance(error, KafkaTimeoutError):
                    raise  # after a timeout a topic may be gone
            await self._sleep(BACKOFF_S * attempt, may_wake=False)
        self.committed, self._unsaved_since = self._applied, None
        offsets = [appended[position] for position, _ in written.stored]
        if -1 in offsets:  # an answer was lost, and the one to the repetition does not say it
            raise KafkaTimeoutError("where records of the schedule were written is not known")
        self.machine.committed(offsets)

    async def _write(self, producer: KafkaProducer, written: Round) -> list[int]:
        """One transaction: the records of a round, and the offset of the next command. Their offsets."""
        context = self._context
        producer.begin_transaction()
        sent_ms = context.clock.local_ms()
        sent: list[FutureRecordMetadata] = [
            producer.send(topic, value, key, headers, partition)
            for _, topic, value, key, headers, partition in written.records
        ]
        if sent:
            sent[0].add_callback(self._observe, sent_ms)
        if self._applied != self.committed:
            # At once, as the group may be about to rebalance: what it has taken, it has taken.
            await producer.send_offsets_to_transaction_async(
                {self._commands: self._applied}, self._source.membership()
            )
        await producer.commit_transaction_async()
        return [each.appended[1] for each in sent]  # type: ignore[index]  # none has failed: it is committed

    def _observe(self, sent_ms: int, metadata: RecordMetadata) -> None:
        clock = self._context.clock
        clock.observe(sent_ms, clock.local_ms(), metadata.timestamp)

    def _restore(self, record: ConsumerRecord) -> None:
        try:
            first = record.first_header  # which says all that is needed, in a fifth of the time
            headers = () if first is None else (first,)
            self.machine.restore(record.key, record.value, headers, record.offset)
        except BadRecord as error:
            self._context.limited_log.warning(
                "bad state", "ignoring a record of the schedule (%s-%d, offset %d): %s",
                record.topic, record.partition, record.offset, error,
            )  # fmt: skip

    # -- commands that wait, and time ---------------------------------------------------------------------------------

    def _is_offset_late(self) -> bool:
        since = self._unsaved_since
        return since is not None and self._loop.time() - since >= OFFSET_LAG_S

    @property
    def _has_backlog(self) -> bool:
        """Whether commands that were there when it began are still to come."""
        return self._applied < self._backlog_end and self._loop.time() < self._backlog_until

    @property
    def _may_learn_time(self) -> bool:
        """Whether what is known of the broker's time is old, so that a job would start late to be certainly not early,
        and was not asked for just now."""
        return self._context.clock.age_s() > RECENT_S and self._loop.time() >= self._learn_at

    def _wait_s(self) -> float:
        """Until there is something to do, as far as it is known."""
        if self._has_backlog:
            return max(0.001, float(self._backlog_until - self._loop.time()))
        context = self._context
        now_ms = context.clock.now_ms() if self._may_learn_time else context.now_ms()
        due_s = (self.machine.next_at_ms - now_ms) / 1000
        linger_s: float = self._linger_until - self._loop.time()
        wait_s = min(max(due_s, linger_s, 0.001), LOOK_S)
        if self._unsaved_since is not None:
            wait_s = min(wait_s, max(self._unsaved_since + OFFSET_LAG_S - self._loop.time(), 0.001))
        return wait_s

    async def _sleep(self, seconds: float, may_wake: bool = True) -> None:
        """For so long, or until :meth:`_notify`."""
        wake: Future[None] = Future()
        if may_wake:
            if self._waiting or self._is_closing:
                return
            self._wake = wake
        await within(self._loop, wake, seconds)

    def _notify(self) -> None:
        wake, self._wake = self._wake, None
        if wake is not None and not wake.is_done:
            wake.success(None)

    def _pause_or_resume(self) -> None:
        count, size = len(self._waiting), self._waiting_bytes
        if count > MOST_WAITING or size > MOST_WAITING_BYTES:
            self._set_paused(True)
        elif self._is_paused and count <= MOST_WAITING // 2 and size <= MOST_WAITING_BYTES // 2:
            self._set_paused(False)

    def _set_paused(self, is_paused: bool) -> None:
        if is_paused is not self._is_paused:
            self._is_paused = is_paused
            self._source.set_paused(self.partition, is_paused)

    @staticmethod
    def _make_machine(context: OwnerContext, partition: int) -> ScheduleMachine:
        return ScheduleMachine(context.names, partition, context.results_partitions, context.host)


def _size(record: ConsumerRecord) -> int:
    return len(record.value or b"") + 200


def _decoded(raw: bytes | None) -> str:
    return (raw or b"").decode("utf-8", "replace")
