"""When retention and compaction have their turn: a little in each tick, so that nobody waits for them.

    sweep     every ``check_s``: each partition is looked at, some in a tick: what is expired goes, old producers are
              forgotten
    cleaner   every ``backoff_s``: each open compacted log is looked at, the one with most to gain gets a pass; a slice
              of it in each tick

A log that nobody has opened since the start is opened for the sweep and let go again, so that ten thousand topics that
sleep cost no memory. ``retention.py`` and ``cleaner.py`` decide; here is only the order of things. No clock: ``now`` is
told, and work is bounded by counts and bytes.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kafka.broker.log.cleaner import CleaningFailedError, CleaningPass, Plan, Sync, is_worth_it, plan
from kafka.broker.log.log_directory import LogDirectory
from kafka.broker.log.metadata_store import Topic
from kafka.broker.log.partition_log import PartitionLog
from kafka.broker.log.producer_state import EXPIRATION_MS
from kafka.broker.log.retention import expired
from kafka.broker.log.syncing import Errors, sync_files
from kafka.errors import CorruptRecordError, KafkaError, KafkaStorageError

log = logging.getLogger(__name__)

REST_S = 0.01
"""Between two ticks of work that goes on."""

PARTITIONS_PER_TICK = 20

RECOVERED_BYTES_PER_TICK = 1 << 20
"""With more, the opening of a log that was not closed well was work enough."""


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


class Maintenance:
    """One broker's. ``on_visit`` is called with each log that a sweep looks at; ``on_start_moved`` is told when a log
    begins later than before; ``settings`` gives those in force."""

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
        self._sweep: Iterator[None] | None = None
        self._sweep_at = now + self.settings.initial_delay_s
        self._cleaning: Iterator[None] | None = None
        self._clean_at = now + self.settings.initial_delay_s
        self._has_cleaned = False
        self._is_waiting = False
        self._sync_error: KafkaStorageError | None = None
        self._given_up: set[PartitionLog] = set()

    # -- time --------------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> float | None:
        """Do a little of what is due at ``now`` (monotonic s); when to come again, or None while a sync runs."""
        return min(self._tick_sweep(now), self._tick_cleaner(now))

    def _tick_sweep(self, now: float) -> float:
        if self._sweep is None:
            if now < self._sweep_at:
                return self._sweep_at
            self.settings = self._settings()
            self._sweep = self._sweep_all()
        if self._go_on(self._sweep):
            return now + REST_S
        self._sweep = None
        self._sweep_at = now + self.settings.check_s
        return self._sweep_at

    def _tick_cleaner(self, now: float) -> float:
        if not self.settings.is_cleaning or self._is_waiting:
            return float("inf")
        if self._cleaning is None:
            if now < self._clean_at:
                return self._clean_at
            self.settings = self._settings()
            self._has_cleaned = False
            self._cleaning = self._clean_one()
        if self._go_on(self._cleaning):
            return float("inf") if self._is_waiting else now + REST_S
        self._cleaning = None
        self._clean_at = now + (REST_S if self._has_cleaned else self.settings.backoff_s)
        return self._clean_at

    @staticmethod
    def _go_on(work: Iterator[None]) -> bool:
        """One step; whether there is another."""
        try:
            next(work)
        except StopIteration:
            return False
        except Exception:
            log.exception("maintenance has failed; it begins anew when it is due")
            return False
        return True

    # -- retention ---------------------------------------------------------------------------------------------------

    def _sweep_all(self) -> Iterator[None]:
        count = 0
        for topic in self._logs.metadata:
            if self._logs.metadata.topic_by_id(topic.topic_id) is None:
                continue
            try:
                partitions = self._logs.partitions_with_files(topic)
            except KafkaStorageError as error:
                log.error("%s: what is expired stays: %s", topic.name, error)
                partitions = []
            for partition in partitions:
                try:
                    yield from self._sweep_partition(topic, partition)
                except KafkaError as error:
                    log.error("%s-%d: what is expired stays: %s", topic.name, partition, error)
                except Exception:  # of one log; the others have their turn
                    log.exception("%s-%d: what is expired stays", topic.name, partition)
                count += 1
                if count % PARTITIONS_PER_TICK == 0:
                    yield None
                if self._logs.metadata.topic_by_id(topic.topic_id) is None:
                    break
            count += 1
            if count % PARTITIONS_PER_TICK == 0:
                yield None

    def _sweep_partition(self, topic: Topic, partition: int) -> Iterator[None]:
        found = self._logs.opened_log(topic.topic_id, partition)
        is_visit = found is None
        if found is None:
            found = self._logs.log(topic, partition)
            if found.recovered_bytes > RECOVERED_BYTES_PER_TICK:
                yield None
                if found.is_gone:
                    return
        if found.failure is None:
            self._on_visit(topic, partition, found)
        found.producers.expire(self._epoch_ms(), self.settings.producer_expiration_ms)
        while found.failure is None and (old := expired(found, self._epoch_ms())) is not None:
            size = found.size_bytes
            if old.is_all:
                found.roll(self._epoch_ms())
            found.delete_before(old.start_offset)
            log.info(
                "%s begins at offset %d: %d bytes are gone for %s", found.name, old.start_offset,
                size - found.size_bytes, old.why,
            )  # fmt: skip
            self._on_start_moved(topic, partition, found)
            is_visit = False
            yield None
            if found.is_gone:
                return
        if is_visit and not found.recovered_bytes and not _is_dirty(found, self._epoch_ms()):
            self._logs.let_go(topic, partition)

    # -- compaction --------------------------------------------------------------------------------------------------

    def _clean_one(self) -> Iterator[None]:
        """Look at all logs that may be compacted, and clean the one with the greatest dirty share."""
        best: tuple[PartitionLog, Plan] | None = None
        count = 0
        self._given_up = {given for given in self._given_up if not given.is_gone}
        for found in self._logs.all_opened():
            if not found.config.compacts or found.failure is not None or found in self._given_up:
                continue
            count += 1
            if count % PARTITIONS_PER_TICK == 0:
                yield None
            what = plan(found, self._epoch_ms())
            if what is not None and is_worth_it(what, found) and (best is None or _rank(what) > _rank(best[1])):
                best = found, what
        if best is not None and not best[0].is_gone:
            yield from self._clean(*best)

    def _clean(self, partition: PartitionLog, what: Plan) -> Iterator[None]:
        work = CleaningPass(
            partition,
            what,
            self._epoch_ms(),
            map_bytes=self.settings.map_bytes,
            sync=self._logs.flush_policy.name != "never",
        )
        try:
            with contextlib.closing(work.run()) as steps:
                for wish in steps:
                    if isinstance(wish, Sync):
                        yield from self._sync(wish.path)
                    else:
                        yield None
                    if partition.is_gone:
                        return
        except KafkaStorageError as error:
            log.error("%s is not compacted now: %s", partition.name, error)
        except (CleaningFailedError, CorruptRecordError) as error:
            self._given_up.add(partition)
            log.error("%s is not compacted any more until the broker is started again: %s", partition.name, error)
        except Exception:
            self._given_up.add(partition)
            log.exception("%s is not compacted any more until the broker is started again", partition.name)
        else:
            self._has_cleaned = True
            log.info(
                "%s: compacted up to offset %d, which gave back %d bytes", partition.name, what.end, work.removed_bytes
            )

    def _sync(self, path: str) -> Iterator[None]:
        """Have a file synced where that keeps nobody waiting."""

        def done(errors: Errors) -> None:
            self._is_waiting = False
            self._sync_error = errors.get(path)

        self._is_waiting = True
        self._logs.syncer.executor.run(lambda: sync_files([(path, None)]), done)
        while self._is_waiting:
            yield None
        if self._sync_error is not None:
            raise self._sync_error


def _is_dirty(found: PartitionLog, now_ms: int) -> bool:
    """Whether the cleaner will want it."""
    if not found.config.compacts:
        return False
    what = plan(found, now_ms)
    return what is not None and is_worth_it(what, found)


def _rank(what: Plan) -> tuple[bool, float]:
    return what.is_due, what.ratio


def maintenance_settings(value: Callable[[str], str]) -> MaintenanceSettings:
    """From the broker's settings; ``value`` gives one by its name."""
    return MaintenanceSettings(
        check_s=int(value("log.retention.check.interval.ms")) / 1000,
        initial_delay_s=int(value("log.initial.task.delay.ms")) / 1000,
        backoff_s=int(value("log.cleaner.backoff.ms")) / 1000,
        map_bytes=int(value("log.cleaner.dedupe.buffer.size")),
        is_cleaning=value("log.cleaner.enable").lower() == "true",
        producer_expiration_ms=int(value("producer.id.expiration.ms")),
    )
