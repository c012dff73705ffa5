"""Changes the way in which the jobs of a queue are delivered, between share groups and a consumer group: what the one
way knows of a queue is made known to the other, and then forgotten. For a queue without workers.

From a consumer group: what it has committed for a partition says which jobs behind the committed offset have ended. The
others of these are written to the queue's topics anew, in a transaction that commits the offset behind them all. Then
the share groups are set to these offsets, and the consumer group is deleted::

    killed         then the queue is delivered by
    before         the consumer group: a transaction is either whole or not there
    behind         the share groups

From share groups: a share group does not say which records behind its start offset are done, only how many (KIP-1226).
As long as some are, the first ones that are not are taken, written anew and accepted, until none behind the start
offset is done: then that offset says all there is to say, and is committed for the consumer group. The start offset
that a broker tells is the one before the last acknowledgement, so that a record is taken and released to learn of the
present one. Of suspects the deliveries count as crashes, so that all of them are written anew. A record that is written
and not accepted when this is killed is there twice, as with a worker. Then the share groups are deleted; the consumer
group counts from its first commit on (:func:`kafka.tasks.backends.kafka.in_use.find_in_use`).

A worker that comes meanwhile is noticed: before each commit the groups are looked at again, and one that has members is
not deleted. One that has chosen the former way and joins behind the end notices that itself: a member of a consumer
group without offsets looks for share groups; a worker that is to read share groups looks for a consumer group with
offsets when it has joined them, before it takes jobs. It joins the group of the jobs before that is deleted, which then
stays, or it sees the offsets, which were committed before.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

from kafka import admin
from kafka.admin import OffsetSpec
from kafka.client import IoThread
from kafka.consumer import ConsumerRecord, KafkaConsumer
from kafka.errors import (
    GroupIdNotFoundError,
    IllegalStateError,
    IncompatibleBrokerVersion,
    KafkaError,
    KafkaTimeoutError,
    NoError,
    NonEmptyGroupError,
)
from kafka.future import Future
from kafka.producer import KafkaProducer
from kafka.share import AcknowledgeType, KafkaShareConsumer, ShareRecord
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from kafka.tasks.backends.base import QueueMigration
from kafka.tasks.backends.kafka.admin import Administration, check_queue_topic, why_no_share_groups
from kafka.tasks.backends.kafka.backlogs import measure_backlogs
from kafka.tasks.backends.kafka.connection import connect_in_thread, producer_configs, servers_of
from kafka.tasks.backends.kafka.in_use import DeliveryKind, find_in_use
from kafka.tasks.backends.kafka.loop_task import LoopTask
from kafka.tasks.backends.kafka.partition_reader import READ_CONFIGS, read_to
from kafka.tasks.backends.kafka.rights import needing
from kafka.tasks.backends.kafka.transactions import MISSING, explain, fence
from kafka.tasks.delivery.moved_jobs import (
    MovedRecord,
    end_of_marks,
    from_consumer_group,
    from_share_group,
    marks_behind,
)
from kafka.tasks.errors import counted
from kafka.tasks.format.offset_metadata import PartitionMarks, decode, encode
from kafka.tasks.format.topics import READ_COMMITTED, TopicNames
from kafka.tasks.settings import Settings

log = logging.getLogger(__name__)

BATCH_RECORDS: Final = 500
BATCH_BYTES: Final = 4 * 1024 * 1024
"""Written at a time, about: in a transaction, or before they are accepted."""
FETCH_BYTES: Final = 8 * 1024 * 1024
"""Of one answer to the share consumer."""
STABLE_S: Final = 30.0
"""Transactions that would decide about offsets are waited for so long; those of workers end within 10 s."""
LOCKS_S: Final = 90.0
"""Locks of a worker that was killed are waited for so long: they last 30 s, or a minute at most unless the brokers'
``group.share.max.record.lock.duration.ms`` is raised."""
POLL_MS: Final = 500
MEASURES: Final = 10
"""So often a partition is measured to which jobs are enqueued meanwhile; then its first jobs are moved all the same."""
SESSION_S: Final = 45
"""A worker that was killed is a member of a share group for so long."""


def migrate_queue(names: TopicNames, queue: str, settings: Settings, to: str) -> QueueMigration:
    """See :class:`kafka.tasks.backends.base.Backend`."""
    with closing(_Migration(names, queue, settings)) as migration:
        try:
            return migration.run(DeliveryKind(to))
        except KafkaError as error:
            if isinstance(error, tuple(MISSING)):
                raise KafkaError(f"cannot migrate {names.queue(queue)}: {explain(error, names)}") from error
            raise


class _Migration:
    """One connection, and what is asked and done over it."""

    def __init__(self, names: TopicNames, queue: str, settings: Settings) -> None:
        self._names = names
        self._queue = queue
        self._topic = names.queue(queue)
        self._group = names.group(queue)
        self._settings = settings
        self._io: IoThread = connect_in_thread(settings, "migration")
        client = self._io.client
        self._limits: dict[str, Any] = {"backoff": client.retry_backoff, "timeout_s": settings.request_timeout}
        self._administration = Administration(client, self._ask, settings.request_timeout, names.app)
        self._places: dict[str, list[TopicPartition]] = {}
        """The partitions of each topic of the queue's jobs; the names are those of the share groups, too."""
        self._markers = 0
        """Of its own transactions in these, which have offsets and are no jobs."""

    def close(self) -> None:
        """Disconnect."""
        self._io.close()

    def run(self, to: DeliveryKind) -> QueueMigration:
        """Do what is left to do."""
        self._look_for_topics()
        why_not = why_no_share_groups(self._io.client.api_ranges())
        if why_not is not None:
            if to is DeliveryKind.SHARE:
                raise IncompatibleBrokerVersion(f"{self._topic} cannot be delivered by share groups: {why_not}")
            return QueueMigration(to.value)  # there is no other way
        in_use = self._ask(find_in_use(self._io.client, self._names, [self._queue], **self._limits))
        found = in_use.get(self._queue)
        if found is None or found is to:
            if found is DeliveryKind.GROUP:
                self._delete_share_groups()  # of a migration that was killed; with members they stay
            return QueueMigration(None if found is None else found.value)
        self._check_no_workers()
        moved = self._to_share() if to is DeliveryKind.SHARE else self._to_group()
        (backlog,) = self._ask(
            measure_backlogs(self._io.client, self._names, [self._queue], self._settings.request_timeout)
        )
        return QueueMigration(found.value, moved, backlog.unfinished - self._markers)

    # -- from a consumer group to share groups ------------------------------------------------------------------------

    def _to_share(self) -> int:
        """How many jobs were moved."""
        for writer in self._writers():
            self._fenced(writer).close(timeout=0)
        moved, starts = 0, dict[TopicPartition, int]()
        with closing(self._fenced(f"{self._names.app}.migrate.{self._queue}")) as producer:
            committed = self._committed(require_stable=True)
            firsts, ends = self._bounds(list(committed))
            for place, at in committed.items():
                if at.offset > ends[place]:
                    log.warning(
                        "%s-%d was cut off or made anew: its jobs from offset %d on are delivered again",
                        *place,
                        firsts[place],
                    )
                    starts[place] = firsts[place]
                    continue
                end, count = self._move_marked(producer, place, at, firsts[place], ends[place])
                starts[place] = end
                moved += count
                committed[place] = OffsetAndMetadata(end, "", -1) if count else at
        # Also until the transactions are seen to have ended: one that ends later would make the group anew.
        after = self._committed(require_stable=True)
        if {place: at[:2] for place, at in after.items()} != {place: at[:2] for place, at in committed.items()}:
            raise self._disturbed()
        for group, places in self._places.items():
            errors = self._ask(
                admin.dialogues.alter_share_group_offsets(
                    group, {place: starts.get(place, 0) for place in places}, **self._limits
                )
            )
            for place, error in errors.items():
                if error is not NoError:
                    raise error(f"group {group}, partition {place.topic}-{place.partition}")
        self._check_no_workers()
        self._delete(self._group)
        return moved

    def _move_marked(
        self, producer: KafkaProducer, place: TopicPartition, at: OffsetAndMetadata, first: int, log_end: int
    ) -> tuple[int, int]:
        """Write the jobs anew that have not ended though others behind them have begun: where the rest begins, and how
        many these were."""
        marks = decode(at.offset, at.metadata)
        if marks is None:
            log.warning(
                "%s-%d: the metadata of its committed offset %d is not understood; jobs behind it run again",
                *place,
                at.offset,
            )
            marks = PartitionMarks()
        end, moved = min(end_of_marks(at.offset, marks), log_end), 0
        for records, next_offset in self._not_ended(place, max(at.offset, first), end, marks):
            written = [from_consumer_group(record, marks, self._names, self._queue) for record in records]
            offset, rest = marks_behind(next_offset, marks)
            text = encode(offset, rest) if next_offset < end else ""
            self._write_and_commit(producer, written, place, OffsetAndMetadata(offset, text, -1))
            moved += len(records)
        return end, moved

    def _not_ended(
        self, place: TopicPartition, offset: int, end: int, marks: PartitionMarks
    ) -> Iterator[tuple[list[ConsumerRecord], int]]:
        """The records from ``offset`` to ``end`` that have not ended, some at a time, and the offset behind these; with
        the last ones it is the end."""
        if offset >= end:
            return
        runs = list(marks.completed)
        found: list[ConsumerRecord] = []
        size = 0
        client = self._io.client
        configs = {**READ_CONFIGS, "isolation_level": READ_COMMITTED}
        with closing(self._io.call(lambda: KafkaConsumer(client=client, **configs))) as consumer:
            consumer.assign([place])
            consumer.seek(place, offset)
            for record in read_to(consumer, place, end, self._settings.request_timeout):
                while runs and runs[0][1] < record.offset:
                    del runs[0]
                if record.offset >= end or (runs and runs[0][0] <= record.offset):
                    continue
                if len(found) >= BATCH_RECORDS or size >= BATCH_BYTES:
                    yield found, record.offset
                    found, size = [], 0
                found.append(record)
                size += len(record.value or b"")
        if found:
            yield found, end

    def _write_and_commit(
        self, producer: KafkaProducer, records: Sequence[MovedRecord], place: TopicPartition, at: OffsetAndMetadata
    ) -> None:
        """In one transaction. A worker that joins behind the second look waits for its end."""
        with producer.transaction():
            futures = [producer.send(each.topic, each.value, each.key, each.headers) for each in records]
            producer.send_offsets_to_transaction({place: at}, ConsumerGroupMetadata(self._group))
            written = [future.get(self._settings.request_timeout) for future in futures]
            self._check_no_workers()
        self._markers += len({(each.topic, each.partition) for each in written})

    def _writers(self) -> set[str]:
        """The transactional ids of the last workers, which may have left transactions open."""
        found = [decode(at.offset, at.metadata) for at in self._committed(require_stable=False).values()]
        return {marks.writer for marks in found if marks is not None and marks.writer}

    def _fenced(self, transactional_id: str) -> KafkaProducer:
        """A producer that has this transactional id."""
        client, settings = self._io.client, self._settings

        def start() -> Future[KafkaProducer]:
            opened: Future[KafkaProducer] = Future()

            async def run() -> None:
                opened.success(await fence(client, transactional_id, settings))

            LoopTask(run(), lambda error: None if error is None else opened.failure(error))
            return opened

        return self._io.call(start)

    def _committed(self, require_stable: bool) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the consumer group has committed, of partitions that exist."""
        limits = {**self._limits, "timeout_s": STABLE_S} if require_stable else self._limits
        found = self._ask(
            admin.dialogues.list_group_offsets({self._group: None}, require_stable=require_stable, **limits)
        )
        existing = {place for places in self._places.values() for place in places}
        return {place: at for place, at in found[self._group].items() if place in existing and at.offset >= 0}

    # -- from share groups to a consumer group ------------------------------------------------------------------------

    def _to_group(self) -> int:
        """How many jobs were moved."""
        suspects = self._names.suspect(self._queue)
        _, to_pass = self._bounds(self._places.get(suspects, []))
        moved = 0
        for topic in self._places:
            moved += self._take_until_measurable(topic, to_pass)
        self._check_no_workers()
        offsets: dict[TopicPartition, int] = {}
        for topic in self._places:
            of_topic, pending = self._measure(topic, to_pass)
            if pending:
                raise self._disturbed()
            offsets |= of_topic
        errors = self._ask(
            admin.dialogues.alter_group_offsets(
                self._group, {place: OffsetAndMetadata(at, "", -1) for place, at in offsets.items()}, **self._limits
            )
        )
        for place, error in errors.items():
            if error is not NoError:
                raise error(f"group {self._group}, partition {place.topic}-{place.partition}")
        if not self._delete_share_groups():
            self._delete(self._group)  # a worker has joined in the same moment: its group holds
            self._check_no_workers()
            raise self._disturbed()
        return moved

    def _measure(
        self, topic: str, to_pass: Mapping[TopicPartition, int]
    ) -> tuple[dict[TopicPartition, int], set[TopicPartition]]:
        """Of each partition in which the share group has begun, the offset from which on nothing is done; and the
        partitions that have none, because some of what is behind the start offset is done, or because the start offset
        is below the one in ``to_pass``."""
        offsets: dict[TopicPartition, int] = {}
        left = list(self._places[topic])
        for _ in range(MEASURES):
            before = self._share_offsets(topic, left)
            firsts, ends = self._bounds(left)
            after = self._share_offsets(topic, left)
            pending, changed = set[TopicPartition](), set[TopicPartition]()
            for place, at in before.items():
                first, end = firsts[place], ends[place]
                if at.start_offset < 0:
                    continue  # from the log's start on
                if first >= end or (at.lag == 0 and at == after.get(place)):
                    offsets[place] = end
                elif at != after.get(place):
                    changed.add(place)
                elif at.start_offset < to_pass.get(place, 0) or at.lag != end - at.start_offset:
                    pending.add(place)
                else:
                    offsets[place] = max(at.start_offset, first)
            left = list(changed)
            if not changed or pending:
                break
        return offsets, pending | changed

    def _take_until_measurable(self, topic: str, to_pass: Mapping[TopicPartition, int]) -> int:
        """Move the first jobs of the topic until :meth:`_measure` has an offset for each partition: how many."""
        _, pending = self._measure(topic, to_pass)
        moved = 0
        if not pending:
            return moved
        client, settings = self._io.client, self._settings
        configs = producer_configs(settings, linger_s=0, batch_bytes=settings.batch_bytes, batch_records=0)
        with (
            closing(self._io.call(lambda: KafkaProducer(client=client, **configs))) as producer,
            KafkaShareConsumer(
                topic,
                group_id=topic,
                bootstrap_servers=servers_of(settings.bootstrap_servers),
                share_acknowledgement_mode="explicit",
                share_acquire_mode="record_limit",
                fetch_max_bytes=FETCH_BYTES,
                metrics_enabled=False,
                **settings.client,
            ) as consumer,
        ):
            give_up_at = time.monotonic() + LOCKS_S
            released: Counter[tuple[int, int]] = Counter()
            while pending:
                polled = consumer.poll(POLL_MS, max_records=BATCH_RECORDS)
                # Those of other partitions are held until the end: each release would count as a delivery.
                records = {place: polled[place] for place in polled.keys() & pending}
                to_move = [record for each in records.values() for record in _to_move(each, released)]
                self._write([self._moved(record, released) for record in to_move], producer)
                consumer.acknowledge_all(to_move, AcknowledgeType.ACCEPT)
                consumer.commit(settings.request_timeout * 1000)
                moving = set(to_move)
                to_release = [record for each in records.values() for record in each if record not in moving]
                consumer.acknowledge_all(to_release, AcknowledgeType.RELEASE)
                consumer.commit(settings.request_timeout * 1000)
                released.update((record.partition, record.offset) for record in to_release)
                moved += len(to_move)
                if records:
                    give_up_at = time.monotonic() + LOCKS_S
                elif time.monotonic() > give_up_at:
                    raise KafkaTimeoutError(
                        f"jobs in {counted(len(pending), 'partition')} of {topic} are still locked for a worker that "
                        "is gone: run this again in a minute"
                    )
                _, pending = self._measure(topic, to_pass)
        return moved

    def _moved(self, record: ShareRecord, released: Mapping[tuple[int, int], int]) -> MovedRecord:
        deliveries = record.delivery_count - released.get((record.partition, record.offset), 0)
        return from_share_group(record, deliveries, self._names, self._queue)

    def _write(self, records: Sequence[MovedRecord], producer: KafkaProducer) -> None:
        futures = [producer.send(each.topic, each.value, each.key, each.headers) for each in records]
        for future in futures:
            future.get(self._settings.request_timeout)

    def _share_offsets(self, topic: str, places: Sequence[TopicPartition]) -> dict[TopicPartition, Any]:
        found = self._ask(admin.dialogues.list_share_group_offsets({topic: places}, **self._limits))
        return dict(found[topic])

    def _delete_share_groups(self) -> bool:
        """Delete those that have no members; False, and all stay, when that of the jobs has some. A worker that joins
        behind that looks for the consumer group before it takes jobs: it is a member of the others, too, by then."""
        for group in self._places:
            try:
                self._delete(group)
            except NonEmptyGroupError:
                if group == self._topic:
                    return False
        return True

    # -- of both ------------------------------------------------------------------------------------------------------

    def _ask(self, dialogue: Any) -> Any:
        run: Callable[..., Any] = self._io.client.run
        return self._io.call(run, dialogue)

    def _look_for_topics(self) -> None:
        topics = list(self._names.job_topics(self._queue))
        sizes = self._administration.existing(topics)
        if self._topic not in sizes:
            check_queue_topic(self._topic, self._ask(admin.dialogues.list_topics(**self._limits)))
        self._places = {
            topic: [TopicPartition(topic, number) for number in range(sizes[topic].partitions)]
            for topic in topics
            if topic in sizes
        }

    def _bounds(
        self, places: Sequence[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """The log start offset of each partition, and the offset behind its last record."""
        if not places:
            return {}, {}
        found = [
            self._ask(admin.dialogues.list_partition_offsets(dict.fromkeys(places, spec), **self._limits))
            for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
        ]
        firsts, ends = ({place: at.offset for place, at in each.items()} for each in found)
        return firsts, ends

    def _disturbed(self) -> IllegalStateError:
        return IllegalStateError(
            f"a worker of {self._topic} has been there meanwhile: stop it, and run this again"
        )

    def _check_no_workers(self) -> None:
        """IllegalStateError with what to do when a group has members."""
        kinds = {self._group: "the consumer group", **dict.fromkeys(self._places, "the share group")}
        groups = self._ask(admin.dialogues.describe_groups(list(kinds), **self._limits))
        counts = {group: len(groups[group]["members"]) for group in kinds}
        running = [f"{count} in {kinds[group]} {group}" for group, count in counts.items() if count]
        if running:
            members = counted(sum(counts.values()), "member")
            raise IllegalStateError(
                f"{self._topic} has workers ({members}: {', '.join(running)}): stop them and run this again; one that "
                f"was killed counts for up to {SESSION_S} s"
            )

    def _delete(self, group: str) -> None:
        error = self._ask(admin.dialogues.delete_groups([group], **self._limits))[group]
        if error not in (NoError, GroupIdNotFoundError):
            with needing(self._names.app, "group", "Delete"):
                raise error(f"cannot delete group {group}: {error.__name__}; run this again")


def _to_move(records: Sequence[ShareRecord], released: Container[tuple[int, int]]) -> Sequence[ShareRecord]:
    """Those of a partition's records that are to be written anew now: none at first, since a release may show that none
    is to be, and then all but the last one, which is released; that one when it is alone."""
    is_known = (records[0].partition, records[0].offset) in released
    return (records[:-1] or records) if is_known else []
