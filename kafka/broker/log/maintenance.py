"""The schedule of retention and compaction: a little work in each tick, so that no request waits for it.

    retention   every ``check_s``: each partition is checked, a few in a tick: expired segments and idle producers go
    cleaner     every ``backoff_s``: each open compacted log is looked at, the one with most to gain is cleaned, a slice
                in each tick

A log that is not open is opened for the check and closed again, so that ten thousand idle topics cost no memory.
``partition_log.find_expired_segments`` and ``cleaner.plan_cleaning`` decide; this module only orders the work. It has
no clock: work is bounded by counts and bytes.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kafka.broker.log.cleaner import (
    CleaningFailedError,
    CleaningPass,
    CleaningPlan,
    plan_cleaning,
    should_clean,
)
from kafka.broker.log.flushing import SyncErrors, sync_files
from kafka.broker.log.log_directory import LogDirectory
from kafka.broker.log.metadata_store import Topic
from kafka.broker.log.partition_log import PartitionLog, find_expired_segments
from kafka.broker.log.producer_state import EXPIRATION_MS
from kafka.errors import CorruptRecordError, KafkaError, KafkaStorageError

log = logging.getLogger(__name__)

PAUSE_S = 0.01
"""Between two ticks of unfinished work."""

PARTITIONS_PER_TICK = 20

RECOVERED_BYTES_PER_TICK = 1 << 20
"""Opening a log that scans more than this is all that a tick does."""


class MaintenanceSettings(NamedTuple):
    """Kafka's broker settings ``log.retention.check.interval.ms``, ``log.initial.task.delay.ms``,
    ``log.cleaner.backoff.ms`` (in s), ``log.cleaner.dedupe.buffer.size``, ``log.cleaner.enable``,
    ``producer.id.expiration.ms``."""

    check_s: float = 300.0
    initial_delay_s: float = 30.0
    backoff_s: float = 15.0
    map_bytes: int = 128 << 20
    is_cleaning: bool = True
    producer_expiration_ms: int = EXPIRATION_MS


class _PeriodicWork:
    """Work that ``start`` begins when it is due, first at ``begin_at`` (monotonic s) and then ``pause_s`` after its
    end."""

    def __init__(self, start: Callable[[], Iterator[None]], pause_s: Callable[[], float], begin_at: float) -> None:
        self._start = start
        self._pause_s = pause_s
        self._begin_at = begin_at
        self._steps: Iterator[None] | None = None

    def tick(self, now: float) -> float:
        """Do a step, if one is due; the time of the next one."""
        if self._steps is None:
            if now < self._begin_at:
                return self._begin_at
            self._steps = self._start()
        try:
            next(self._steps)
            return now + PAUSE_S
        except StopIteration:
            pass
        except Exception:
            log.exception("log maintenance failed; it restarts when it is next due")
        self._steps = None
        self._begin_at = now + self._pause_s()
        return self._begin_at


class LogMaintenance:
    """The maintenance of one broker's logs. ``on_visit`` is called with each log that the retention check looks at;
    ``on_start_moved`` when a log start offset has risen; ``settings`` returns the current settings."""

    def __init__(
        self,
        logs: LogDirectory,
        now: float,
        *,
        epoch_ms: Callable[[], int],
        on_visit: Callable[[Topic, int, PartitionLog], None] = lambda topic, partition, log: None,
        on_start_moved: Callable[[Topic, int, PartitionLog], None] = lambda topic, partition, log: None,
        settings: Callable[[], MaintenanceSettings] = MaintenanceSettings,
    ) -> None:
        self._settings = settings
        self.settings = settings()
        self._logs = logs
        self._epoch_ms = epoch_ms
        self._on_visit = on_visit
        self._on_start_moved = on_start_moved
        begin_at = now + self.settings.initial_delay_s
        self._retention = _PeriodicWork(self._check_all_partitions, lambda: self.settings.check_s, begin_at)
        self._cleaning = _PeriodicWork(
            self._clean_one, lambda: PAUSE_S if self._has_cleaned else self.settings.backoff_s, begin_at
        )
        self._has_cleaned = False
        self._is_waiting = False
        self._sync_error: KafkaStorageError | None = None
        # Logs whose compaction failed, and would fail again, until the broker restarts.
        self._uncleanable: set[PartitionLog] = set()
        # Logs whose last compaction failed for want of space, say: the next one may succeed.
        self._failed: set[PartitionLog] = set()

    # -- time --------------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> float | None:
        """Do a little of what is due at ``now`` (monotonic s); the time of the next call, infinity while a sync
        runs."""
        next_at = self._retention.tick(now)
        if self.settings.is_cleaning and not self._is_waiting:
            cleaning_at = self._cleaning.tick(now)
            if not self._is_waiting:
                next_at = min(next_at, cleaning_at)
        return next_at

    # -- retention ---------------------------------------------------------------------------------------------------

    def _check_all_partitions(self) -> Iterator[None]:
        self.settings = self._settings()
        count = 0
        for topic in self._logs.metadata:
            if self._logs.metadata.topic_by_id(topic.topic_id) is None:
                continue
            try:
                partitions = self._logs.partitions_with_files(topic)
            except KafkaStorageError as error:
                log.error("%s: cannot apply retention: %s", topic.name, error)
                partitions = []
            for partition in partitions:
                try:
                    yield from self._check_partition(topic, partition)
                except KafkaError as error:
                    log.error("%s-%d: cannot apply retention: %s", topic.name, partition, error)
                except Exception:  # of one log: go on with the others
                    log.exception("%s-%d: cannot apply retention", topic.name, partition)
                count += 1
                if count % PARTITIONS_PER_TICK == 0:
                    yield None
                if self._logs.metadata.topic_by_id(topic.topic_id) is None:
                    break
            count += 1
            if count % PARTITIONS_PER_TICK == 0:
                yield None

    def _check_partition(self, topic: Topic, partition: int) -> Iterator[None]:
        found = self._logs.log_if_open(topic.topic_id, partition)
        is_visit = found is None
        if found is None:
            found = self._logs.log(topic, partition)
            if found.recovered_bytes > RECOVERED_BYTES_PER_TICK:
                yield None
                if found.is_closed:
                    return
        if found.failure is None:
            self._on_visit(topic, partition, found)
        found.producers.expire(self._epoch_ms(), self.settings.producer_expiration_ms)
        while found.failure is None and (expired := find_expired_segments(found, self._epoch_ms())) is not None:
            size = found.size_bytes
            if expired.is_all:
                found.roll(self._epoch_ms())
            found.delete_before(expired.start_offset)
            log.info(
                "%s: log start offset is now %d: deleted %d bytes by %s", found.name, expired.start_offset,
                size - found.size_bytes, expired.setting,
            )  # fmt: skip
            self._on_start_moved(topic, partition, found)
            is_visit = False
            yield None
            if found.is_closed:
                return
        if is_visit and not found.recovered_bytes and _due_cleaning(found, self._epoch_ms()) is None:
            self._logs.close_log(topic, partition)

    # -- compaction --------------------------------------------------------------------------------------------------

    def _clean_one(self) -> Iterator[None]:
        """Clean the open compacted log with the greatest dirty ratio."""
        self.settings = self._settings()
        self._has_cleaned = False
        best: tuple[PartitionLog, CleaningPlan] | None = None
        count = 0
        self._uncleanable = {given for given in self._uncleanable if not given.is_closed}
        self._failed = {given for given in self._failed if not given.is_closed}
        for found in self._logs.all_open_logs():
            if not found.config.compacts or found.failure is not None or found in self._uncleanable:
                continue
            count += 1
            if count % PARTITIONS_PER_TICK == 0:
                yield None
            plan = _due_cleaning(found, self._epoch_ms())
            if plan is not None and (best is None or _rank(plan) > _rank(best[1])):
                best = found, plan
        if best is not None and not best[0].is_closed:
            yield from self._clean(*best)

    def _clean(self, partition: PartitionLog, plan: CleaningPlan) -> Iterator[None]:
        """Run one cleaning pass; a log that cannot be compacted is not tried again until the broker restarts."""
        work = CleaningPass(
            partition,
            plan,
            self._epoch_ms(),
            map_bytes=self.settings.map_bytes,
            sync=self._logs.flush_policy.name != "never",
        )
        try:
            with contextlib.closing(work.run()) as steps:
                for unsynced in steps:
                    if unsynced is not None:
                        yield from self._sync(unsynced)
                    else:
                        yield None
                    if partition.is_closed:
                        return
        except KafkaStorageError as error:
            if partition not in self._failed:  # once, however long the disk is full
                log.error("%s: compaction failed, it will be tried again: %s", partition.name, error)
            self._failed.add(partition)
        except (CleaningFailedError, CorruptRecordError) as error:
            self._uncleanable.add(partition)
            log.error(
                "%s: compaction failed, it is off for this log until the broker restarts: %s", partition.name, error
            )
        except Exception:
            self._uncleanable.add(partition)
            log.exception("%s: compaction failed, it is off for this log until the broker restarts", partition.name)
        else:
            self._has_cleaned = True
            self._failed.discard(partition)
            log.info(
                "%s: compacted up to offset %d, freed %d bytes", partition.name, plan.end, work.removed_bytes
            )

    def _sync(self, path: str) -> Iterator[None]:
        """Sync a file on the executor, and yield until that is done."""

        def done(errors: SyncErrors) -> None:
            self._is_waiting = False
            self._sync_error = errors.get(path)

        self._is_waiting = True
        self._logs.flusher.executor.run(lambda: sync_files([(path, None)]), done)
        while self._is_waiting:
            yield None
        if self._sync_error is not None:
            raise self._sync_error


def _due_cleaning(found: PartitionLog, now_ms: int) -> CleaningPlan | None:
    """What the cleaner would clean of this log now."""
    plan = plan_cleaning(found, now_ms) if found.config.compacts else None
    return plan if plan is not None and should_clean(plan, found) else None


def _rank(plan: CleaningPlan) -> tuple[bool, float]:
    return plan.is_due, plan.ratio


def maintenance_settings(value: Callable[[str], str]) -> MaintenanceSettings:
    """The settings from the broker's configuration; ``value`` returns one by its name."""
    return MaintenanceSettings(
        check_s=int(value("log.retention.check.interval.ms")) / 1000,
        initial_delay_s=int(value("log.initial.task.delay.ms")) / 1000,
        backoff_s=int(value("log.cleaner.backoff.ms")) / 1000,
        map_bytes=int(value("log.cleaner.dedupe.buffer.size")),
        is_cleaning=value("log.cleaner.enable").lower() == "true",
        producer_expiration_ms=int(value("producer.id.expiration.ms")),
    )
