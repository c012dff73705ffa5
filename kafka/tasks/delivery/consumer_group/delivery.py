"""Leases from consumer groups: one member for each queue, which owns partitions of the queue's topics.

What a member is assigned it *takes over*: it reads how far the jobs have come, and what the last owner had started,
from the group's committed offsets. An owner that is gone may have left a transaction open that would decide about them;
its transactional id is in the metadata, and taking that over ends the transaction at once. Then records are fetched,
and handed out as they are asked for, after their marks are committed (:mod:`.progress`).

What is to go to another worker is *given up*: jobs that have not started are released, those that run have the grace
period, and the last commit says that nothing of the partition is running. Heartbeats and commits come from the loop, so
a partition is kept however long its jobs take.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from kafka import admin
from kafka.admin import OffsetSpec
from kafka.client import KafkaClient
from kafka.consumer import ConsumerRecord, KafkaConsumer
from kafka.errors import (
    Cancelled,
    CommitFailedError,
    GroupAuthorizationFailedError,
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    KafkaConfigurationError,
    KafkaError,
    TopicAuthorizationFailedError,
    UnstableOffsetCommitError,
)
from kafka.future import Future
from kafka.log_limit import LimitedLog
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from kafka.tasks.backends.kafka.connection import BACKGROUND
from kafka.tasks.backends.kafka.in_use import DeliveryKind, check_not_migrated
from kafka.tasks.backends.kafka.loop_task import LoopTask, sleep, within
from kafka.tasks.backends.kafka.transactions import REQUEST_TIMEOUT_S, committed_offsets, explain, fence
from kafka.tasks.delivery.base import (
    BrokerContact,
    DeliveryEvents,
    Ending,
    FinishCallback,
    JobLease,
    JobSource,
    MetadataUse,
    OutgoingRecord,
    PublishCallback,
    Publisher,
    SourceKind,
)
from kafka.tasks.delivery.consumer_group.assignor import QueueAssignor
from kafka.tasks.delivery.consumer_group.owned_partition import OwnedPartition
from kafka.tasks.delivery.consumer_group.settling import CLOSE_S, Settler, SettlerContext
from kafka.tasks.errors import counted
from kafka.tasks.format.job_id import BrokerTimeEstimate
from kafka.tasks.format.offset_metadata import PartitionMarks, decode
from kafka.tasks.format.topics import READ_COMMITTED, TopicNames
from kafka.tasks.settings import Settings

log = logging.getLogger(__name__)

SESSION_S: Final = 10.0
"""A worker that is not heard of for so long has lost its partitions."""
HEARTBEAT_S: Final = 0.5
CONTACT_S: Final = SESSION_S / 3
"""A rebalance keeps the coordinator's answer back for a while."""
REBALANCE_S: Final = 60.0
"""A member that is to give partitions up has so long, its grace period included."""
LEAVE_S: Final = 10.0
"""Leaving a group, with the last commit, takes so long at most."""
STABLE_S: Final = 1.0
"""An open transaction that would decide about an offset is waited for so long, before its producer is fenced."""
UNSTABLE_S: Final = 20.0
"""So long after that its end counts as lost."""
BACKOFF_S: Final = 0.2
BACKOFF_MAX_S: Final = 5.0
AHEAD_FROM: Final = 16
"""Who asks for so many jobs or more has as many others marked as started meanwhile: short jobs wait for no commit."""
SWEEP_S: Final = 5.0
"""What was read and is no record is committed within so long, and jobs that were deleted are seen to be."""
LOG_S: Final = 60.0
"""One warning of each kind is logged in so long."""

PROTOCOL_CONFIGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "classic": {
        "partition_assignment_strategy": [QueueAssignor],
        "session_timeout_ms": int(SESSION_S * 1000),
        "heartbeat_interval_ms": int(HEARTBEAT_S * 1000),
    },
    "consumer": {"group_protocol": "consumer", "group_remote_assignor": "range"},
}
"""Of members, by the group's protocol. Both leave the partitions of other members alone when one joins."""
GROUP_SETTINGS: Final = (
    ("consumer.session.timeout.ms", str(int(SESSION_S * 1000))),
    ("consumer.heartbeat.interval.ms", str(int(HEARTBEAT_S * 1000))),
)
"""Of the group at the brokers, for the protocol "consumer" (KIP-848)."""
GROUP_CONFIGS: Final[dict[str, Any]] = {
    "max_poll_interval_ms": int(REBALANCE_S * 1000),
    "enable_auto_commit": False,
    "auto_offset_reset": "earliest",
    "isolation_level": READ_COMMITTED,
    "metrics_enabled": False,
    "max_poll_records": 1_000,
}

_FATAL: Final = (
    GroupAuthorizationFailedError,
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    TopicAuthorizationFailedError,
)
"""With these a worker cannot be a member until an operator changes something at the brokers."""


class GroupDelivery:
    """See the module and :class:`kafka.tasks.delivery.base.JobDelivery`. On the loop's thread.

    ``by_generation``: the brokers fence commits of former members (Kafka 2.5 and later). ``protocol``: of the groups, a
    key of :data:`PROTOCOL_CONFIGS`."""

    lock_s = SESSION_S
    """Partitions are lost when the group has heard nothing for so long."""

    def __init__(
        self,
        client: KafkaClient,
        sources: Sequence[JobSource],
        events: DeliveryEvents,
        publisher: Publisher,
        names: TopicNames,
        settings: Settings,
        clock: BrokerTimeEstimate,
        by_generation: bool,
        protocol: str = "classic",
    ) -> None:
        self.protocol = protocol
        self.sources = tuple(sources)
        self.client = client
        self.names = names
        self.settings = settings
        self.clock = clock
        self.events = events
        self.limited_log = LimitedLog(log, most=1, every_s=LOG_S, clock=client.loop.time)
        self._loop: Any = client.loop
        self._publisher = publisher
        self._context = SettlerContext(
            client, names, settings, clock, events, self.limited_log, self.serve_soon, self.on_task_end
        )
        self._by_generation = by_generation
        self._settlers: dict[TopicPartition | str, Settler] = {}
        self._queues = {source.topic: source.queue for source in sources}
        self._requested: dict[JobSource, int] = {}
        self._turn = 0
        self._is_due = False
        self._is_asking = False
        self._is_closing = False
        self._due_timer: Any = None
        self._sweep_timer = self._loop.call_later(SWEEP_S, self._sweep)
        queues = dict.fromkeys(source.queue for source in sources)
        self._members = {
            queue: Member(self, queue, [source for source in sources if source.queue == queue]) for queue in queues
        }

    # -- what the worker asks for -------------------------------------------------------------------------------------

    def request(self, source: JobSource, count: int) -> None:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        self._requested[source] = count
        if count:
            self.serve_soon()

    def drain(self, drained: Callable[[], object]) -> None:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`. Nothing is handed out that was not asked for."""
        self._requested.clear()
        self._loop.call_soon(drained)

    def renew(self, leases: Sequence[JobLease]) -> None:
        """Heartbeats keep the partitions."""

    def accept(self, leases: Sequence[JobLease]) -> None:
        """No job goes on by another claim."""

    def publish(self, records: Sequence[OutgoingRecord], done: PublishCallback) -> None:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        self._publisher.publish(records, done)

    def finish(self, endings: Sequence[Ending], done: FinishCallback) -> None:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        now_ms = self.clock.now_ms()
        over: list[JobLease] = []
        for ending in endings:
            lease = ending.lease
            owned = _partition(lease)
            if lease.lost or owned.is_lost:
                over.append(lease)
            elif ending.stays is not None and ending.stays is ending.envelope:
                owned.release(lease, now_ms)
                over.append(lease)
            else:
                if ending.stays is None:
                    assert owned.progress is not None
                    owned.progress.end(lease.offset, now_ms)
                self.settler_of(owned.place).add(owned, ending, done)
                owned.begin_ending(lease)
        if over:
            done(over)
        self.serve_soon()

    def cancelled(self, ids: Collection[str]) -> None:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        now_ms = self.clock.now_ms()
        for member in self._members.values():
            for owned in member.owned():
                owned.end_waits(ids, now_ms)
        self.serve_soon()

    def contacts(self) -> list[BrokerContact]:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        return [
            BrokerContact(source, self._members[source.queue].consumer.answered_at, CONTACT_S)
            for source in self.sources
        ]

    def metadata_use(self) -> list[MetadataUse]:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        uses: list[MetadataUse] = []
        for queue, member in self._members.items():
            progresses = member.progresses()
            most = max((each.size for each in progresses), default=0)
            uses.append(MetadataUse(queue, sum(each.is_full for each in progresses), most))
        return uses

    def close(self) -> None:
        """See :class:`kafka.tasks.delivery.base.JobDelivery`."""
        self._is_closing = True
        self._sweep_timer.cancel()
        if self._due_timer is not None:
            self._due_timer.cancel()
        left = len(self._members)

        def on_left(_: object) -> None:
            nonlocal left
            left -= 1
            if not left:
                for settler in self._settlers.values():
                    settler.close()
                self._publisher.close()
                self.events.left()

        for member in self._members.values():
            member.close().add_both(on_left)

    # -- handing out --------------------------------------------------------------------------------------------------

    def serve_soon(self) -> None:
        """There may be something to hand out: look in the loop's next turn."""
        if not self._is_due and not self._is_closing:
            self._is_due = True
            self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        """Hand out what was asked for and can start; have more marked as started."""
        self._is_due = False
        if self._is_closing:
            return
        now_ms = self.clock.now_ms()
        leases: list[JobLease] = []
        self._turn += 1
        for source, count in self._requested.items():
            owned = self._members[source.queue].partitions_of(source)
            if count <= 0 or not owned:
                continue
            first = self._turn % len(owned)
            owned = owned[first:] + owned[:first]
            left = count
            for share in (-(-count // len(owned)), count):  # the same of each, and then from those that have more
                for each in owned:
                    if left:
                        taken = each.take(source, min(share, left), now_ms)
                        left -= len(taken)
                        leases += taken
            self._requested[source] = left
            ahead = count if count >= AHEAD_FROM and not source.is_suspect else 0
            share = -(-(left + ahead) // len(owned))
            for each in owned:
                if share and each.mark_started(source, share):
                    self.settler_of(each.place).mark(each)
        self._look_when_due(now_ms)
        if leases:
            self.events.leased(leases)

    def _look_when_due(self, now_ms: int) -> None:
        if self._due_timer is not None:
            self._due_timer.cancel()
            self._due_timer = None
        progresses = [each for member in self._members.values() for each in member.progresses()]
        for each in progresses:
            each.tick(now_ms)  # what is due already waits for a request
        due = [each.next_due_ms for each in progresses]
        earliest = min((at for at in due if at is not None), default=None)
        if earliest is not None:
            self._due_timer = self._loop.call_later(max(0.001, (earliest - now_ms) / 1000), self.serve_soon)

    def _sweep(self) -> None:
        """Commit how far the log has been read; log where nothing can be handed out before others end."""
        self._sweep_timer = self._loop.call_later(SWEEP_S, self._sweep)
        for member in self._members.values():
            for owned in member.owned():
                progress = owned.progress
                if member.skip_markers(owned):
                    self.settler_of(owned.place).mark(owned)
                if progress is not None and progress.is_full:
                    self.limited_log.warning(
                        ("full", owned.place),
                        "%s: no more jobs are taken until others end: its offset metadata, of which %d characters are "
                        "used, has no room beside jobs that run, wait for another attempt, or have ended behind "
                        "offset %d",
                        owned,
                        progress.size,
                        progress.position,
                    )
        self._find_deleted()
        self.serve_soon()

    def _find_deleted(self) -> None:
        """Ask where the logs begin of which jobs are here that have not started: those below were deleted, by
        ``queue purge`` for example."""
        owned = {
            each.place: each
            for member in self._members.values()
            for each in member.owned()
            if each.progress is not None and each.progress.waiting_count
        }
        if owned and not self._is_asking:
            self._is_asking = True
            starts = log_starts(self.client, list(owned))
            self.client.run(starts, BACKGROUND).add_both(partial(self._drop_deleted, owned))

    def _drop_deleted(self, owned: Mapping[TopicPartition, OwnedPartition], starts: Any) -> None:
        self._is_asking = False
        if isinstance(starts, BaseException):  # asked again soon
            return
        now_ms = self.clock.now_ms()
        for place, each in owned.items():
            count = each.cut(starts[place].offset, now_ms)
            if count:
                log.info("%s: dropped %s, deleted before the start", each, counted(count, "job"))
                self.settler_of(place).mark(each)
        self.serve_soon()

    def committed(self) -> dict[TopicPartition, int]:
        """Where the jobs that have not ended begin, in the partitions that are owned."""
        return {
            each.place: each.committed
            for member in self._members.values()
            for each in member.owned()
            if each.progress is not None
        }

    # -- for its members ----------------------------------------------------------------------------------------------

    def settler_of(self, place: TopicPartition) -> Settler:
        """Who settles the jobs of this partition: one for each group, where commits of former members are refused (what
        keeps one group from committing keeps no other); else one for each partition."""
        key = self._queues[place.topic] if self._by_generation else place
        settler = self._settlers.get(key)
        if settler is None:
            name = uuid.uuid4().hex if self._by_generation else f"{place.topic}.{place.partition}"
            settler = self._settlers[key] = Settler(self._context, f"{self.names.app}.worker.{name}")
        return settler

    @property
    def transactional_ids(self) -> set[str]:
        """Those that this worker writes with."""
        return {settler.transactional_id for settler in self._settlers.values()}

    async def fence_earlier_owners(self, places: Iterable[TopicPartition]) -> None:
        """Where a transactional id belongs to a partition: have those of these. KafkaError if not."""
        if not self._by_generation:
            for place in places:
                await self.settler_of(place).fence()

    def on_owned(self, owned: OwnedPartition, member: Member) -> None:
        """The partition can be handed out from."""
        self.settler_of(owned.place).own(owned, member)
        self.serve_soon()

    def on_task_end(self, error: BaseException | None) -> None:
        """A coroutine of a member or a settler is over. What none of them expects ends the worker."""
        if error is not None:
            if not isinstance(error, KafkaError):
                log.error("a fault of this program", exc_info=error)
                error = KafkaError(f"a fault of this program: {error!r}")
            self.events.failed(error)

    def on_lost(self, lost: Sequence[OwnedPartition], reason: str) -> None:
        """These are other workers'."""
        leases: list[JobLease] = []
        for owned in lost:
            leases += owned.lose()
            self.settler_of(owned.place).lose(owned)
        if leases:
            self.events.lost(leases, reason)


class Member:
    """A member of the group of one queue. See :class:`kafka.tasks.delivery.consumer_group.settling.OffsetCommitter`."""

    def __init__(self, delivery: GroupDelivery, queue: str, sources: Sequence[JobSource]) -> None:
        self._delivery = delivery
        self._queue = queue
        self._group = delivery.names.group(queue)
        self._loop: Any = delivery.client.loop
        # Suspects of an ordered queue stay in its topic, which has another source as well.
        self._sources = {source.topic: source for source in sources if not source.is_suspect or not source.is_ordered}
        self._suspects = {source.topic: source for source in sources if source.is_suspect}
        self._owned: dict[TopicPartition, OwnedPartition] = {}
        self._is_leaving = False
        make: Callable[..., Any] = KafkaConsumer
        self.consumer = make(
            client=delivery.client,
            group_id=self._group,
            on_records=self._on_records,
            on_error=self._on_error,
            **PROTOCOL_CONFIGS[delivery.protocol],
            **GROUP_CONFIGS,
        )
        self.consumer.subscribe(sorted({source.topic for source in sources}), listener=self)

    def owned(self) -> list[OwnedPartition]:
        """Its partitions."""
        return list(self._owned.values())

    def progresses(self) -> list[Any]:
        """How far those have come that jobs are handed out from."""
        return [each.progress for each in self._owned.values() if each.progress is not None]

    def partitions_of(self, source: JobSource) -> list[OwnedPartition]:
        """Those with jobs of the source."""
        return [each for each in self._owned.values() if source in (each.source, each.suspects)]

    def skip_markers(self, owned: OwnedPartition) -> bool:
        """Note that the consumer has read on over what are no records; whether the committed offset may move for it."""
        if owned.progress is None or owned.is_returning or owned.place not in self.consumer.assignment():
            return False
        try:
            position = self.consumer.position(owned.place)
        except KafkaError:  # not known now
            return False
        return owned.progress.skip_to(position)

    def metadata(self) -> ConsumerGroupMetadata:
        """See :class:`kafka.tasks.delivery.consumer_group.settling.OffsetCommitter`."""
        metadata: ConsumerGroupMetadata = self.consumer.group_metadata()
        if metadata.generation_id < 0:  # a coordinator accepts offsets without a generation from any client
            raise CommitFailedError(f"no member of group {self._group} now")
        return metadata

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Future[None]:
        """See :class:`kafka.tasks.delivery.consumer_group.settling.OffsetCommitter`."""
        future: Future[None] = self.consumer.commit_async(dict(offsets))
        return future

    def close(self) -> Future[None]:
        """Give the partitions up, and leave the group."""
        left: Future[None] = Future()

        def leave(_: object) -> None:
            self._is_leaving = True
            self.consumer.close_async(autocommit=False, timeout_s=LEAVE_S).chain(left)

        self._start_giving_up(self.owned(), 0.0).add_both(leave)
        return left

    # -- what the consumer says ---------------------------------------------------------------------------------------

    def _on_records(self, records: Mapping[TopicPartition, list[ConsumerRecord]]) -> None:
        delivery, now_ms = self._delivery, self._delivery.clock.now_ms()
        for place, found in records.items():
            owned = self._owned.get(place)
            if owned is not None and not owned.add(found, now_ms):
                self._begin_anew(owned, found, now_ms)
        delivery.serve_soon()

    def _begin_anew(self, owned: OwnedPartition, records: list[ConsumerRecord], now_ms: int) -> None:
        """The log has lost what was at the offsets that were done."""
        log.warning(
            "%s was cut off or made anew: its jobs from offset %d on are delivered again", owned, records[0].offset
        )
        self._delivery.on_lost([owned], "the partition was cut off or made anew")
        fresh = self._owned[owned.place] = self._make(owned.place)
        self._begin(fresh, records[0].offset, PartitionMarks())
        fresh.add(records, now_ms)

    def _on_error(self, error: Exception) -> None:
        """What keeps it from being a member, or from reading."""
        delivery = self._delivery
        text = explain(error, delivery.names)
        if isinstance(error, _FATAL):
            fatal = KafkaError(f"cannot take jobs of queue {self._queue} as a member of group {self._group}: {text}")
            fatal.__cause__ = error
            delivery.events.failed(fatal)
            return
        delivery.limited_log.warning(
            (type(error).__name__, self._queue), "cannot take jobs of queue %s now: %s", self._queue, text
        )

    # -- a rebalance listener -----------------------------------------------------------------------------------------

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """See ``ConsumerRebalanceListener``."""
        fresh: list[OwnedPartition] = []
        for place in sorted(assigned):
            self.consumer.pause(place)
            owned = self._owned[place] = self._make(place)
            fresh.append(owned)
        if fresh:
            self._run(self._take_over(fresh))
            log.info("owning %s of queue %s", counted(len(self._owned), "partition"), self._queue)
        elif not self._owned:
            log.info("owning no partition of queue %s: other workers own all of them now", self._queue)

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> Future[None]:
        """See ``ConsumerRebalanceListener``. Done when what was held has ended, or the grace period is over, and the
        last commit is made."""
        owned = [each for place in revoked if (each := self._owned.get(place)) is not None]
        return self._start_giving_up(owned, min(self._delivery.settings.stop_grace, REBALANCE_S / 2))

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        """See ``ConsumerRebalanceListener``."""
        owned = [each for place in lost if (each := self._owned.pop(place, None)) is not None]
        self._delivery.on_lost(owned, f"no member of group {self._group} any more: fenced, or its session expired")

    # -- taking over and giving up ------------------------------------------------------------------------------------

    def _make(self, place: TopicPartition) -> OwnedPartition:
        source, suspects = self._sources.get(place.topic), self._suspects.get(place.topic)
        if source is not None and source.kind is SourceKind.SUSPECT:
            source = None
        return OwnedPartition(place, source, suspects, self._set_paused)

    def _set_paused(self, place: TopicPartition, is_paused: bool) -> None:
        if not self._is_leaving and place in self.consumer.assignment():
            (self.consumer.pause if is_paused else self.consumer.resume)(place)

    def _run(self, coroutine: Any) -> None:
        LoopTask(coroutine, self._delivery.on_task_end)

    async def _take_over(self, fresh: list[OwnedPartition]) -> None:
        delivery, failures = self._delivery, 0
        while True:
            fresh = [each for each in fresh if self._owned.get(each.place) is each and not each.is_returning]
            if not fresh:
                return
            try:
                places = [each.place for each in fresh]
                await delivery.fence_earlier_owners(places)
                committed = await self._find_committed(places)
                missing = [place for place in places if committed[place].offset < 0]
                if missing:
                    await self._check_not_migrated()
                starts = await self._find_starts(missing) if missing else {}
                break
            except Cancelled:
                return
            except KafkaConfigurationError as error:
                delivery.events.failed(error)
                return
            except KafkaError as error:
                failures += 1
                delivery.limited_log.warning(
                    (type(error).__name__, self._queue),
                    "cannot take over partitions of queue %s yet, trying again: %s",
                    self._queue,
                    explain(error, delivery.names),
                )
            await sleep(self._loop, min(BACKOFF_S * 2**failures, BACKOFF_MAX_S))
        if any(offset > 0 for offset in starts.values()):
            delivery.limited_log.warning(
                ("anew", self._queue),
                "group %s has no committed offsets for %s, reading from the log start: jobs that have ended run again",
                self._group,
                counted(len(missing), "partition"),
            )
        for owned in fresh:
            place = owned.place
            if self._owned.get(place) is not owned or owned.is_returning or self._is_leaving:
                continue
            what = committed[place]
            if what.offset < 0:
                offset, marks = starts[place], PartitionMarks()
            else:
                offset, found = what.offset, decode(what.offset, what.metadata)
                marks = PartitionMarks() if found is None else found
                if found is None:
                    log.warning(
                        "%s: the metadata of its committed offset %d is not understood; jobs behind it run again",
                        owned,
                        offset,
                    )
            self.consumer.seek(place, offset)
            self._begin(owned, offset, marks)
            if what.offset < 0:
                delivery.settler_of(place).mark(owned)  # so that others see that the group reads the queue

    def _begin(self, owned: OwnedPartition, offset: int, marks: PartitionMarks) -> None:
        owned.begin(offset, marks)
        self._delivery.on_owned(owned, self)

    async def _find_committed(self, places: Sequence[TopicPartition]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """What is committed for these. An open transaction of an owner that is gone is ended by taking its id."""
        delivery, group = self._delivery, self._group
        client = delivery.client
        stable = await self._find_stable(places, STABLE_S)
        if stable is not None:
            return stable
        before = await committed_offsets(client, group, places)
        found = [decode(each.offset, each.metadata) for each in before.values()]
        writers = {marks.writer for marks in found if marks is not None and marks.writer}
        for writer in writers - delivery.transactional_ids:  # its own one goes on to its end
            (await fence(client, writer, delivery.settings)).close(timeout=0)
        stable = await self._find_stable(places, UNSTABLE_S)
        if stable is not None:
            return stable
        delivery.limited_log.warning(
            ("unstable", self._queue),
            "group %s: the brokers have lost the end of a transaction; jobs that ended in it may run again",
            group,
        )
        return await committed_offsets(client, group, places)

    async def _find_stable(
        self, places: Sequence[TopicPartition], timeout_s: float
    ) -> Mapping[TopicPartition, OffsetAndMetadata] | None:
        """What is committed for these; None: so long, a transaction with other offsets of theirs stays open."""
        client = self._delivery.client
        try:
            return await committed_offsets(client, self._group, places, timeout_s, require_stable=True)
        except UnstableOffsetCommitError:
            return None

    async def _check_not_migrated(self) -> None:
        """KafkaConfigurationError when share groups read the queue, though this is a member."""
        client, names = self._delivery.client, self._delivery.names
        limits: dict[str, Any] = {"backoff": client.retry_backoff, "timeout_s": REQUEST_TIMEOUT_S}
        await client.run(
            check_not_migrated(client, names, [self._queue], DeliveryKind.GROUP, **limits), BACKGROUND
        )

    async def _find_starts(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        client = self._delivery.client
        starts = await client.run(log_starts(client, places))
        return {place: starts[place].offset for place in places}

    def _start_giving_up(self, owned: list[OwnedPartition], grace_s: float) -> Future[None]:
        given_up: Future[None] = Future()
        self._run(self._give_up(owned, given_up, grace_s))
        return given_up

    async def _give_up(self, owned: list[OwnedPartition], given_up: Future[None], grace_s: float) -> None:
        delivery = self._delivery
        try:
            held = [lease for each in owned for lease in each.begin_returning()]
            if held:
                delivery.events.returning(held)
            for settler in dict.fromkeys(delivery.settler_of(each.place) for each in owned):  # in order
                settler.retry()
            idle = [Future[None]() for _ in owned]
            for each, future in zip(owned, idle, strict=True):
                each.call_when_idle(partial(future.success, None))
            give_up_at = self._loop.time() + grace_s
            for future in idle:
                await within(self._loop, future, max(0.0, give_up_at - self._loop.time()))
            for each in owned:
                late = each.running()
                if late:
                    delivery.events.lost(late, f"{each} was revoked, and they did not end in time")
            left_s = max(0.0, give_up_at - self._loop.time()) + CLOSE_S
            for future in [delivery.settler_of(each.place).give_up(each, left_s) for each in owned]:
                await future
            for each in owned:
                if self._owned.get(each.place) is each:
                    del self._owned[each.place]
                unsettled = [lease for lease in each.lose() if not lease.lost]
                if unsettled:
                    delivery.events.lost(unsettled, f"{each} was revoked, and their ends could not be written in time")
        finally:
            if not given_up.is_done:
                given_up.success(None)


def log_starts(client: KafkaClient, places: Sequence[TopicPartition]) -> Any:
    """A dialogue: where these logs begin."""
    return admin.dialogues.list_partition_offsets(
        dict.fromkeys(places, OffsetSpec.EARLIEST), backoff=client.retry_backoff, timeout_s=REQUEST_TIMEOUT_S
    )


def _partition(lease: JobLease) -> OwnedPartition:
    assert lease.claim is not None
    owned: OwnedPartition = lease.claim.token
    return owned
