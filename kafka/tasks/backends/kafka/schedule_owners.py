"""A process as a member of the group that owns the schedule: an owner for each partition that it is assigned.

The group ``APP.commands`` is a classic one of consumers: who is assigned a partition of ``APP.commands`` owns that of
``APP.schedule``, too. Its sessions are short, since nothing else happens to the jobs of a partition without an owner;
that a process which was taken for dead is still there does no harm, its owners are fenced. A rebalance takes nothing
from members that stay (``cooperative-sticky``), and a member that stops leaves, so that others have its partitions
within a second.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kafka.client import KafkaClient
from kafka.consumer import ConsumerRecord, KafkaConsumer
from kafka.errors import IllegalStateError, KafkaError
from kafka.future import Future
from kafka.log_limit import LimitedLog
from kafka.producer import KafkaProducer
from kafka.structs import ConsumerGroupMetadata, TopicPartition
from kafka.tasks.backends.base import ScheduleSnapshot
from kafka.tasks.backends.kafka.connection import producer_configs
from kafka.tasks.backends.kafka.due_topics import DueTopics
from kafka.tasks.backends.kafka.loop_task import within
from kafka.tasks.backends.kafka.schedule_owner import CLOSE_S, OwnerContext, OwnerStage, PartitionOwner
from kafka.tasks.backends.kafka.transactions import REQUEST_TIMEOUT_S, explain
from kafka.tasks.delivery.share_group.trimmer import CommittedTrimmer
from kafka.tasks.format.commands import CommandRecord
from kafka.tasks.format.job_id import BrokerTimeEstimate
from kafka.tasks.format.topics import TopicNames
from kafka.tasks.settings import Settings

log = logging.getLogger(__name__)

SESSION_S: Final = 6.0
"""The least that Kafka's default of ``group.min.session.timeout.ms`` allows."""
LEAVE_S: Final = 2.0
"""Leaving the group takes so long at most."""
REJOIN_S: Final = 30.0
"""After an error that ended its membership a process tries again so much later."""
DECLARE_S: Final = 300.0
"""A process says so often which periodic jobs its code declares: three times before it counts as gone."""
LOG_S: Final = 60.0
"""One warning of each kind is logged in so long."""

_CONFIGS: Final[dict[str, Any]] = {
    "partition_assignment_strategy": ["cooperative-sticky"],
    "session_timeout_ms": int(SESSION_S * 1000),
    "heartbeat_interval_ms": 500,
    "max_poll_interval_ms": 10_000,  # no member waits longer for others to take part in a rebalance
    "enable_auto_commit": False,
    "auto_offset_reset": "earliest",
    "isolation_level": "read_uncommitted",
    "metrics_enabled": False,
    # Commands are answered at once, however long the broker may wait for one: an idle owner asks seldom.
    "fetch_max_wait_ms": 5_000,
    "fetch_buffer_bytes": 4 * 1024 * 1024,
}


class ScheduleOwners:
    """See the module and :class:`kafka.tasks.backends.base.ScheduleMember`. On the client's loop."""

    def __init__(
        self,
        client: KafkaClient,
        names: TopicNames,
        settings: Settings,
        clock: BrokerTimeEstimate,
        results_partitions: int,
        learn_time: Callable[[], Future[None]],
        declared: Sequence[tuple[int, CommandRecord]] = (),
    ) -> None:
        """Joins with :meth:`start`. ``learn_time``: as in :class:`OwnerContext`; ``declared``: by partition, what the
        code declares of periodic jobs."""
        self._client = client
        self._loop: Any = client.loop
        self._names = names
        self._limited_log = LimitedLog(log, most=1, every_s=LOG_S, clock=client.loop.time)
        self._context = OwnerContext(
            client,
            names,
            settings,
            clock,
            learn_time,
            results_partitions,
            socket.gethostname(),
            DueTopics(client, names, REQUEST_TIMEOUT_S),
            self._limited_log,
        )
        self._owners: dict[int, PartitionOwner] = {}
        self._leaving: set[PartitionOwner] = set()  # in their last round
        self._moved_count = 0  # of owners that have ended
        self._consumer: Any = None
        self._closed: Future[None] | None = None
        self._declared = declared
        self._declare_timer: Any = None
        self._producer: KafkaProducer | None = None
        self._trimmer = CommittedTrimmer(client, [names.commands], "old commands", self._committed)
        self._residence = _Residence(self._drop)

    def start(self) -> None:
        """See :class:`kafka.tasks.backends.base.ScheduleMember`."""
        if self._closed is None and self._consumer is None:
            self._client.add_resident(self._residence)
            self._trimmer.start()
            self._join()
            if self._declared:
                configs = producer_configs(self._context.settings, linger_s=0, batch_bytes=65_536, batch_records=0)
                self._producer = KafkaProducer(client=self._client, **configs)
                self._declare()

    def close(self) -> Future[None]:
        """See :class:`kafka.tasks.backends.base.ScheduleMember`. Rounds under way end before the group is left, and so
        are not made again by the next owners."""
        if self._closed is None:
            self._closed = Future()
            self._client.remove_resident(self._residence)
            self._trimmer.close()
            producer = self._stop_declaring()
            if producer is not None:
                producer.close_async()
            self._give_up(set(self._owners)).add_both(lambda _: self._leave())
        return self._closed

    def snapshot(self) -> ScheduleSnapshot:
        """See :class:`kafka.tasks.backends.base.ScheduleMember`."""
        owners = self._owners.values()
        now_ms = self._context.now_ms()
        running = [owner for owner in owners if owner.stage is OwnerStage.RUNNING]
        late_ms = [max(owner.late_ms, now_ms - owner.machine.due_at_ms) for owner in running]
        return ScheduleSnapshot(
            tuple(sorted(self._owners)),
            len(running),
            sum(len(owner.machine) for owner in running),
            self._moved_count + sum(owner.moved_count for owner in (*owners, *self._leaving)),
            max(late_ms, default=0) / 1000,
        )

    # -- periodic jobs that the code declares -------------------------------------------------------------------------

    def _declare(self) -> None:
        """Say to the owners of all partitions which periodic jobs this version of the code has. One that could not be
        written is said again with the next ones."""
        producer, topic = self._producer, self._names.commands
        assert producer is not None
        for partition, (key, value, headers) in self._declared:
            try:
                producer.send(topic, value, key, headers, partition).add_errback(self._on_not_declared)
            except KafkaError as error:
                self._on_not_declared(error)
        self._declare_timer = self._loop.call_later(DECLARE_S, self._declare)

    def _on_not_declared(self, error: Exception) -> None:
        if self._closed is None:
            self._limited_log.warning(
                f"declare {type(error).__name__}",
                "could not tell the schedule which periodic jobs the code declares, trying again in %d s: %s",
                DECLARE_S,
                explain(error, self._names),
            )

    def _stop_declaring(self) -> KafkaProducer | None:
        """Returns the producer, which is to be closed."""
        if self._declare_timer is not None:
            self._declare_timer.cancel()
        producer, self._producer = self._producer, None
        return producer

    # -- the group's consumer -----------------------------------------------------------------------------------------

    def _join(self) -> None:
        if self._closed is not None:
            return
        make: Callable[..., Any] = KafkaConsumer
        self._consumer = make(
            client=self._client,
            group_id=self._names.commands,
            on_records=self._on_records,
            on_error=self._on_error,
            **_CONFIGS,
        )
        self._consumer.subscribe([self._names.commands], listener=self)

    def _leave(self) -> None:
        assert self._closed is not None
        if self._consumer is None:
            self._closed.success(None)
        else:
            left: Future[None] = self._consumer.close_async(autocommit=False, timeout_s=LEAVE_S)
            left.chain(self._closed)

    def _drop(self) -> None:
        """The client is about to close."""
        if self._closed is None:
            self._closed = Future()
        producer = self._stop_declaring()
        if producer is not None:
            producer.close(timeout=0)
        for partition in list(self._owners):
            self._end_owner(partition)
        if self._consumer is not None:
            self._consumer.close_async(autocommit=False, timeout_s=0.0)
        if not self._closed.is_done:
            self._closed.success(None)

    def _on_records(self, records: Mapping[TopicPartition, list[ConsumerRecord]]) -> None:
        for place, found in records.items():
            owner = self._owners.get(place.partition)
            if owner is not None:
                owner.add(found)

    def _on_error(self, error: Exception) -> None:
        """What keeps it from being a member, or from reading commands."""
        text = explain(error, self._names)
        self._limited_log.warning(type(error).__name__, "cannot own partitions of the schedule now: %s", text)
        if isinstance(error, KafkaError) and not error.retriable and self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            self.on_partitions_lost({TopicPartition(self._names.commands, each) for each in self._owners})
            consumer.close_async(autocommit=False, timeout_s=0.0)
            self._loop.call_later(REJOIN_S, self._join)

    # -- a rebalance listener -----------------------------------------------------------------------------------------

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """See ``ConsumerRebalanceListener``."""
        for place in sorted(assigned):
            if self._closed is None:
                self._consumer.pause(place)
                self._end_owner(place.partition)
                owner = self._owners[place.partition] = PartitionOwner(self._context, place.partition, self)
                owner.start()
        if assigned:
            log.info("owning the partitions %s of the schedule of app %s", sorted(self._owners), self._names.app)

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """See ``ConsumerRebalanceListener``. A round that is under way may end meanwhile, unless the next owner is
        quicker."""
        self._give_up({place.partition for place in revoked})

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        """See ``ConsumerRebalanceListener``."""
        for place in lost:
            self._end_owner(place.partition)

    def _give_up(self, partitions: set[int]) -> Future[bool]:
        """Close these owners; done when all have ended."""
        owners = [owner for partition in partitions if (owner := self._owners.pop(partition, None)) is not None]
        all_closed: Future[None] = Future()
        left = len(owners)
        self._leaving.update(owners)

        def on_closed(owner: PartitionOwner) -> None:
            nonlocal left
            left -= 1
            self._leaving.discard(owner)
            self._moved_count += owner.moved_count
            if not left:
                all_closed.success(None)

        if not owners:
            all_closed.success(None)
        for owner in owners:
            owner.close().add_both(lambda _, owner=owner: on_closed(owner))
        return within(self._loop, all_closed, CLOSE_S)

    def _end_owner(self, partition: int) -> None:
        owner = self._owners.pop(partition, None)
        if owner is not None:
            owner.drop()
            self._moved_count += owner.moved_count

    # -- what an owner asks of the consumer ---------------------------------------------------------------------------

    def membership(self) -> ConsumerGroupMetadata:
        """See :class:`kafka.tasks.backends.kafka.schedule_owner.CommandSource`."""
        if self._consumer is None:
            raise IllegalStateError(f"no member of group {self._names.commands} any more")
        metadata: ConsumerGroupMetadata = self._consumer.group_metadata()
        return metadata

    def seek(self, partition: int, offset: int | None) -> None:
        """See :class:`kafka.tasks.backends.kafka.schedule_owner.CommandSource`."""
        place = TopicPartition(self._names.commands, partition)
        if not self._is_assigned(place):
            return
        if offset is None:
            self._consumer.seek_to_beginning(place)
        else:
            self._consumer.seek(place, offset)

    def set_paused(self, partition: int, is_paused: bool) -> None:
        """See :class:`kafka.tasks.backends.kafka.schedule_owner.CommandSource`."""
        place = TopicPartition(self._names.commands, partition)
        if self._is_assigned(place):
            (self._consumer.pause if is_paused else self._consumer.resume)(place)

    def _is_assigned(self, place: TopicPartition) -> bool:
        return self._closed is None and self._consumer is not None and place in self._consumer.assignment()

    def _committed(self) -> dict[TopicPartition, int]:
        """Where each partition's commands that are not done begin, as far as it is known."""
        return {
            TopicPartition(self._names.commands, partition): owner.committed
            for partition, owner in self._owners.items()
            if owner.stage is OwnerStage.RUNNING
        }


class _Residence:
    """The ``LoopResident`` of a member: what the client ends when it is closed."""

    def __init__(self, drop: Callable[[], object]) -> None:
        self._drop = drop

    def finish(self) -> Future[None]:
        """See ``LoopResident``."""
        return Future[None]().success(None)

    def close(self) -> None:
        """See ``LoopResident``."""
        self._drop()
