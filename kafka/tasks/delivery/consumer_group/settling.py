"""Settles jobs of owned partitions: their records, and how far the partitions have come, in one transaction.

A round takes all that has ended meanwhile. It writes the records of the endings and commits the offsets with their
metadata, all or nothing: a worker that is gone, or whose partitions are another's by now, can neither show a result nor
make a job disappear. What a round takes while nothing has a record (marks of jobs that are about to start, jobs without
a stored result) is a plain commit, which the group fences as well.

Where the transaction can only be aborted (a rebalance, a record that is refused) another one is made of the same
endings, without those whose partitions are lost meanwhile, and without those whose records are refused, which are tried
again later. Finished code does not run again for that. After an error that ends the producer (another one has its
transactional id) a new one is made; if the transaction was to be committed already, the offsets of the group say
whether it was.

Who is fenced by what: from Kafka 2.5 on the group's generation is part of a commit (KIP-447), and one transactional id
for a worker will do. Before that a transactional id belongs to a partition, so that its next owner fences the last one;
a round then settles one partition.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, Final, NamedTuple, Protocol

from kafka.client import KafkaClient
from kafka.errors import (
    AbortableTransactionError,
    Cancelled,
    CommitInRebalanceError,
    FatalTransactionError,
    InvalidProducerEpochError,
    KafkaError,
    KafkaTimeoutError,
    TransactionAbortedError,
    TransactionError,
)
from kafka.future import Future
from kafka.log_limit import LimitedLog
from kafka.producer import FutureRecordMetadata, KafkaProducer, when_all_done
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from kafka.tasks.backends.kafka.loop_task import LoopTask, sleep
from kafka.tasks.backends.kafka.transactions import committed_offsets, explain, fence
from kafka.tasks.delivery.base import Appended, DeliveryEvents, Ending, FinishCallback, JobLease, OutgoingRecord
from kafka.tasks.delivery.consumer_group.owned_partition import OwnedPartition, marked_job
from kafka.tasks.delivery.consumer_group.progress import Settlement
from kafka.tasks.delivery.finishing import RETRY_S, UnwrittenEnding, next_ending, remedy
from kafka.tasks.format.job_id import BrokerTimeEstimate
from kafka.tasks.format.offset_metadata import MarkedJob
from kafka.tasks.format.topics import TopicNames
from kafka.tasks.settings import Settings

log = logging.getLogger(__name__)

ROUND_ENDINGS: Final = 1_000
ROUND_BYTES: Final = 4 * 1024 * 1024
"""Endings of one round, and of their records, about."""
LINGER_S: Final = 0.005
"""Between transactions: each costs as much as some fifty jobs, and what ends meanwhile shares the next one."""
BACKOFF_S: Final = 0.05
BACKOFF_MAX_S: Final = 5.0
QUIET_FAILURES: Final = 3
"""Rebalances and lost partitions are no trouble: so often in a row they are not logged."""
_OF_TRANSACTION: Final = (
    Cancelled,
    InvalidProducerEpochError,
    KafkaTimeoutError,
    TransactionAbortedError,
    TransactionError,
)
"""Errors of a record that say nothing about it: its transaction cannot go on."""
CLOSE_S: Final = 5.0
"""The last rounds of a partition that is given up are waited for so long after its grace period."""


class OffsetCommitter(Protocol):
    """A member of a queue's group, as offsets are committed by it."""

    def metadata(self) -> ConsumerGroupMetadata:
        """As whom offsets are committed. KafkaError when it is none any more."""

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Future[None]:
        """Commit without a transaction."""


class SettlerContext(NamedTuple):
    """What the settlers of a worker share. ``limited_log``: one line of each kind a minute; ``on_settled``: there may
    be more to hand out; ``on_task_end``: a settler is over, with the error that it did not expect."""

    client: KafkaClient
    names: TopicNames
    settings: Settings
    clock: BrokerTimeEstimate
    events: DeliveryEvents
    limited_log: LimitedLog
    on_settled: Callable[[], object]
    on_task_end: Callable[[BaseException | None], object]


class _Unsettled:
    """An ending that is not settled. ``records``: all that are to be written with it; ``copied``: those that have a
    late copy among them, which is there also when the transaction is made again."""

    __slots__ = ("copied", "done", "ending", "is_shortened", "partition", "records")

    def __init__(self, ending: Ending, partition: OwnedPartition, done: FinishCallback) -> None:
        self.ending = ending
        self.partition = partition
        self.done = done
        self.records: list[OutgoingRecord] = [*ending.records, *ending.after]
        self.copied: list[OutgoingRecord] = []
        self.is_shortened = ending.is_shortened


class Settler:
    """See the module. On the client's loop; never blocks."""

    def __init__(self, context: SettlerContext, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self._context = context
        self._loop: Any = context.client.loop
        self._endings: deque[_Unsettled] = deque()
        self._to_retry: list[_Unsettled] = []
        self._retry_failures = 0
        self._retry_timer: Any = None
        self._changed: set[OwnedPartition] = set()  # with marks, or other things, to commit
        self._given_up: dict[OwnedPartition, Future[None]] = {}
        self._producer: KafkaProducer | None = None
        self._linger_until = 0.0
        self._in_doubt: Mapping[OwnedPartition, Settlement] | None = None  # committed, or not: the end was not answered
        self._is_closed = False
        self._members: dict[OwnedPartition, OffsetCommitter] = {}
        self._wake: Future[None] | None = None
        self._task = LoopTask(self._run(), context.on_task_end)

    # -- what there is to settle --------------------------------------------------------------------------------------

    def own(self, partition: OwnedPartition, member: OffsetCommitter) -> None:
        """The partition is this worker's."""
        self._members[partition] = member

    def add(self, partition: OwnedPartition, ending: Ending, done: FinishCallback) -> None:
        """Settle an ending; ``done`` is called with its lease then, or when the partition is lost."""
        self._endings.append(_Unsettled(ending, partition, done))
        self._notify()

    def mark(self, partition: OwnedPartition) -> None:
        """Its marks are to be committed."""
        if partition in self._members:
            self._changed.add(partition)
            self._notify()

    def give_up(self, partition: OwnedPartition, timeout_s: float) -> Future[None]:
        """Settle the last of the partition, and that no job of it is running; done when it is committed or the
        partition is lost, and after ``timeout_s``."""
        future: Future[None] = self._given_up.setdefault(partition, Future())
        if partition.progress is None or partition not in self._members:
            self._let_go(partition)
        else:
            self._loop.call_later(timeout_s, self._let_go, partition)
            self._changed.add(partition)
            self._notify()
        return future

    def lose(self, partition: OwnedPartition) -> None:
        """The partition is another worker's: nothing of it can be committed."""
        self._let_go(partition)
        self._notify()

    def close(self) -> None:
        """All partitions are given up or lost."""
        self._is_closed = True
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        self._task.cancel()
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close_async()

    async def fence(self) -> None:
        """Have the transactional id: from then on no earlier owner of it commits anything. KafkaError if not."""
        self._drop_producer()
        self._producer = await fence(self._context.client, self.transactional_id, self._context.settings)

    def _let_go(self, partition: OwnedPartition) -> None:
        self._changed.discard(partition)
        self._members.pop(partition, None)
        future = self._given_up.pop(partition, None)
        if future is not None and not future.is_done:
            future.success(None)

    def _notify(self) -> None:
        wake, self._wake = self._wake, None
        if wake is not None and not wake.is_done:
            wake.success(None)

    # -- rounds -------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self._is_closed:
            if not self._endings and not self._changed:
                self._wake = Future()
                await self._wake
            linger_s: float = self._linger_until - self._loop.time()
            if linger_s > 0 and self._endings and len(self._endings) < ROUND_ENDINGS:
                await sleep(self._loop, linger_s)
            await self._round()

    async def _round(self) -> None:
        batch, failures = self._take_batch(), 0
        self._in_doubt = None
        while not self._is_closed:
            batch = self._without_lost(batch)
            changed, self._changed = self._changed, set()
            if not batch and not changed:
                return
            try:
                if any(each.records for each in batch):
                    await self._settle_in_transaction(batch, changed)
                    self._linger_until = self._loop.time() + LINGER_S
                else:
                    await self._settle_plainly(batch, changed)
                return
            except Cancelled:
                raise
            except KafkaError as error:
                failures += 1
                self._changed |= changed & self._members.keys()
                if isinstance(error, FatalTransactionError):
                    self._drop_producer()
                self._log_failure(error, failures)
            await sleep(self._loop, min(BACKOFF_S * 2**failures, BACKOFF_MAX_S))

    def _take_batch(self) -> list[_Unsettled]:
        batch: list[_Unsettled] = []
        bytes_left = ROUND_BYTES
        while self._endings and len(batch) < ROUND_ENDINGS and bytes_left > 0:
            each = self._endings.popleft()
            bytes_left -= sum(len(record.value or b"") for record in each.records)
            batch.append(each)
        return batch

    def _without_lost(self, batch: list[_Unsettled]) -> list[_Unsettled]:
        lost = [each for each in batch if self._is_lost(each)]
        if not lost:
            return batch
        _call_done(lost)
        return [each for each in batch if not self._is_lost(each)]

    def _check_owned(self, batch: Sequence[_Unsettled], partitions: Iterable[OwnedPartition]) -> None:
        """AbortableTransactionError when something of a transaction is another worker's by now. A member that was lost
        and has joined again may commit, but nothing of what it had before."""
        if any(self._is_lost(each) for each in batch) or any(each not in self._members for each in partitions):
            raise AbortableTransactionError("partitions were lost")

    def _is_lost(self, each: _Unsettled) -> bool:
        return each.ending.lease.lost or each.partition not in self._members

    def _settlements(
        self, batch: Sequence[_Unsettled], changed: Set[OwnedPartition]
    ) -> dict[OwnedPartition, Settlement]:
        completed: dict[OwnedPartition, list[int]] = {partition: [] for partition in changed}
        held: dict[OwnedPartition, dict[int, MarkedJob]] = {}
        for each in batch:
            ending = each.ending
            offsets = completed.setdefault(each.partition, [])
            if ending.stays is None:
                offsets.append(ending.lease.offset)
            else:
                held.setdefault(each.partition, {})[ending.lease.offset] = marked_job(ending.stays)
        settlements: dict[OwnedPartition, Settlement] = {}
        for partition, offsets in completed.items():
            if partition in self._members:
                assert partition.progress is not None
                # Given up with this round, unless more of it has ended than the round takes.
                is_last = partition in self._given_up and not any(each.partition is partition for each in self._endings)
                writer = "" if is_last else self.transactional_id
                settlements[partition] = partition.progress.settle(offsets, held.get(partition, {}), writer)
        return settlements

    def _by_member(
        self, settlements: Mapping[OwnedPartition, Settlement]
    ) -> dict[OffsetCommitter, dict[TopicPartition, OffsetAndMetadata]]:
        found: dict[OffsetCommitter, dict[TopicPartition, OffsetAndMetadata]] = {}
        for partition, settlement in settlements.items():
            offsets = found.setdefault(self._members[partition], {})
            offsets[partition.place] = OffsetAndMetadata(settlement.offset, settlement.metadata, -1)
        return found

    async def _settle_plainly(
        self, batch: Sequence[_Unsettled], changed: Set[OwnedPartition]
    ) -> None:
        settlements = self._settlements(batch, changed)
        for member, offsets in self._by_member(settlements).items():
            await member.commit(offsets)
        self._settled(batch, settlements)

    async def _settle_in_transaction(
        self, batch: list[_Unsettled], changed: Set[OwnedPartition]
    ) -> None:
        """One transaction, or an error. When only some of the batch could be written it is left for the next round, and
        the others are taken out of the batch."""
        producer = await self._open_producer()
        if self._in_doubt is not None:
            in_doubt = self._in_doubt
            if await self._is_committed(in_doubt):
                self._changed |= changed & self._members.keys()
                self._settled(batch, in_doubt)
                return
            self._in_doubt = None
        failed: set[_Unsettled] = set()
        trouble: KafkaError | None = None  # no handler awaits (architecture.rst)
        try:
            producer.begin_transaction()
            failed = await self._write(producer, batch)
            if not failed:
                self._check_owned(batch, ())
                settlements = self._settlements(batch, changed)
                for member, offsets in self._by_member(settlements).items():
                    self._check_owned(batch, settlements)
                    await producer.send_offsets_to_transaction_async(offsets, member.metadata())
                self._in_doubt = settlements
                await producer.commit_transaction_async()
                self._retry_failures = 0
                self._settled(batch, settlements)
                return
        except FatalTransactionError:
            raise
        except KafkaError as error:
            trouble = error
        if trouble is not None:
            await producer.abort_transaction_async()
            raise trouble
        batch[:] = [each for each in batch if each not in failed]  # for the next round, if the transaction cannot end
        await producer.abort_transaction_async()
        self._endings.extendleft(reversed(batch))
        self._changed |= changed & self._members.keys()

    async def _is_committed(self, settlements: Mapping[OwnedPartition, Settlement]) -> bool:
        """Whether the transaction with these was committed, of which the producer is none any more: its end may have
        been answered with an error when it was asked for again."""
        owned = {partition: each for partition, each in settlements.items() if partition in self._members}
        for member, offsets in self._by_member(owned).items():
            group, places = member.metadata().group_id, list(offsets)
            assert group is not None
            found = await committed_offsets(self._context.client, group, places, require_stable=True)
            return all((found[at].offset, found[at].metadata or "") == offsets[at][:2] for at in places)
        return False

    async def _open_producer(self) -> KafkaProducer:
        if self._producer is None:
            await self.fence()
        assert self._producer is not None
        return self._producer

    def _drop_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close(timeout=0)

    # -- records ------------------------------------------------------------------------------------------------------

    async def _write(self, producer: KafkaProducer, batch: Sequence[_Unsettled]) -> set[_Unsettled]:
        """Write all records of the batch. What its answers ask for besides is written, too; returns the endings whose
        records are refused for good, which is logged. An error when the transaction cannot go on for another reason."""
        clock, failed = self._context.clock, set[_Unsettled]()
        to_write = [(each, list(each.records)) for each in batch if each.records]
        is_replaced = False
        while to_write:
            sent_ms = clock.local_ms()
            sent = [(each, record, _send(producer, record)) for each, records in to_write for record in records]
            futures = [future for _, _, future in sent if isinstance(future, FutureRecordMetadata)]
            if futures:
                all_done: Future[None] = Future()
                when_all_done(futures, lambda all_done=all_done: all_done.success(None))  # type: ignore[misc]
                await all_done
            more: dict[_Unsettled, list[OutgoingRecord]] = {}
            trouble: BaseException | None = None
            appended_ms = -1
            for each, record, future in sent:
                answer = future.appended if isinstance(future, FutureRecordMetadata) else future
                if isinstance(answer, BaseException):
                    error = _cause(answer)
                    if isinstance(error, _OF_TRANSACTION):
                        trouble = trouble or error
                        continue
                    answer = error
                else:
                    appended_ms, answer = answer[0], Appended(*answer)
                step = self._next(each, record, answer)
                if isinstance(answer, BaseException):
                    is_replaced = True
                    if isinstance(step, UnwrittenEnding):
                        if each not in failed:  # it may have several records that are refused
                            failed.add(each)
                            self._retry_later(each, step)
                    elif step is not None:
                        _replace(each, record, step)
                elif isinstance(step, Ending) and record not in each.copied:
                    each.copied.append(record)
                    each.is_shortened = step.is_shortened
                    each.records += step.records
                    more.setdefault(each, []).extend(step.records)
            if appended_ms >= 0:
                clock.observe(sent_ms, clock.local_ms(), appended_ms)
            if is_replaced:
                if not failed:
                    raise AbortableTransactionError("a record is replaced")
                return failed
            if trouble is not None:
                raise trouble
            to_write = list(more.items())
        return failed

    def _next(
        self, each: _Unsettled, record: OutgoingRecord, answer: Appended | BaseException
    ) -> Ending | UnwrittenEnding | None:
        ending = each.ending
        one = Ending(ending.lease, ending.envelope, [record], each.is_shortened)
        return next_ending(one, [answer], self._context.names, self._context.events.replace_result)

    def _retry_later(self, each: _Unsettled, step: UnwrittenEnding) -> None:
        error, lease = step.error, each.ending.lease
        self._context.limited_log.write(
            logging.ERROR,
            (type(error), step.record.topic),
            "could not write the records of job %s, its partition is kept until they are written: %s; %s",
            lease.origin,
            error,
            remedy(step.record, error),
        )
        self._to_retry.append(each)
        if self._retry_timer is None:
            self._retry_failures += 1
            delay = RETRY_S[min(self._retry_failures, len(RETRY_S)) - 1]
            self._retry_timer = self._loop.call_later(delay, self.retry)

    def retry(self) -> None:
        """Write again what was refused before."""
        if self._retry_timer is not None:
            self._retry_timer.cancel()
            self._retry_timer = None
        self._endings.extend(self._to_retry)
        self._to_retry.clear()
        self._notify()

    # -- what is settled ----------------------------------------------------------------------------------------------

    def _settled(
        self, batch: Sequence[_Unsettled], settlements: Mapping[OwnedPartition, Settlement]
    ) -> None:
        now_ms = self._context.clock.now_ms()
        endings: dict[OwnedPartition, list[Ending]] = {partition: [] for partition in settlements}
        for each in batch:
            if each.partition in endings:
                endings[each.partition].append(each.ending)
        for partition, settlement in settlements.items():
            partition.settled(settlement, endings[partition], now_ms)
            if settlement.is_last:
                self._let_go(partition)
            elif partition in self._given_up:
                self._changed.add(partition)
        _call_done(batch)
        self._context.on_settled()

    def _log_failure(self, error: KafkaError, failures: int) -> None:
        if failures > QUIET_FAILURES or not isinstance(error, (AbortableTransactionError, CommitInRebalanceError)):
            text = explain(error, self._context.names)
            self._context.limited_log.warning(
                type(error).__name__, "jobs that have ended are not settled yet, trying again: %s", text
            )


def _send(producer: KafkaProducer, record: OutgoingRecord) -> FutureRecordMetadata | KafkaError:
    try:
        return producer.send(record.topic, record.value, record.key, record.headers, record.partition)
    except KafkaError as error:
        return error


def _cause(error: BaseException) -> BaseException:
    """The error behind one that says that a transaction must end for it."""
    cause = error.__cause__
    return cause if isinstance(error, TransactionError) and isinstance(cause, KafkaError) else error


def _replace(each: _Unsettled, record: OutgoingRecord, step: Ending) -> None:
    """Write other records instead of one that its topic does not take: all others when it was a result."""
    if step.stays is not None or step.is_last or step.is_dead:
        each.ending, each.records = step, list(step.records)
    else:
        at = each.records.index(record)
        each.records[at : at + 1] = step.records
    each.is_shortened = step.is_shortened


def _call_done(batch: Sequence[_Unsettled]) -> None:
    by_callback: dict[FinishCallback, list[JobLease]] = {}
    for each in batch:
        by_callback.setdefault(each.done, []).append(each.ending.lease)
    for done, leases in by_callback.items():
        done(leases)
