"""The topic ``APP.workers`` as it is read: the last minute of it, and then what comes.

Where the last minute begins is asked of the broker by time, counted back from the newest record: that is the broker's
clock (LogAppendTime), and ours may differ. The age of a snapshot needs a clock, too: ours, put right by what is learnt
on the way. A snapshot that comes while we wait is new, whatever our clock says; one from the future shows how far
behind ours is; and when everything looks old, a live worker publishes one within :data:`FIRST_SNAPSHOT_WAIT_S`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from kafka.consumer import ConsumerRecord, KafkaConsumer
from kafka.structs import TopicPartition
from kafka.tasks.backends.base import PublishedSnapshot, QueueBacklog, QueueDelivery
from kafka.tasks.backends.kafka.backlogs import measure_backlogs
from kafka.tasks.backends.kafka.connection import connect_in_thread
from kafka.tasks.backends.kafka.control import PausedQueues
from kafka.tasks.backends.kafka.in_use import describe_deliveries
from kafka.tasks.backends.kafka.partition_reader import read_to
from kafka.tasks.backends.kafka.rights import needing
from kafka.tasks.format.topics import TopicNames
from kafka.tasks.settings import Settings

KEPT_S: Final = 60.0
"""A worker whose last snapshot is older is not listed."""
FIRST_SNAPSHOT_WAIT_S: Final = 6.0
"""A live worker publishes a snapshot within that time."""
FRESH_S: Final = 15.0
POLL_S: Final = 0.1

MAX_WORKERS: Final = 1000
MAX_ID_BYTES: Final = 200
MAX_SNAPSHOT_BYTES: Final = 65_536
"""Limits of what is kept: workers, bytes of an id and of a snapshot; a worker keeps its own below half of that."""


class KafkaSnapshotReader:
    """See :class:`kafka.tasks.backends.base.SnapshotReader`. Errors are the clients' own."""

    def __init__(self, names: TopicNames, settings: Settings) -> None:
        self._names = names
        self._place = TopicPartition(names.workers, 0)
        self._timeout_s = settings.request_timeout
        self._snapshots: dict[str, tuple[int, bytes]] = {}
        self._clock_offset_ms = 0
        """By how much the broker's clock is ahead of ours, as far as is known."""
        self._is_positioned = self._has_read = False
        self._first_offset = 0
        self._io = connect_in_thread(settings, "inspect")
        try:
            client = self._io.client
            self._consumer: KafkaConsumer = self._io.call(
                lambda: KafkaConsumer(client=client, auto_offset_reset="earliest", enable_auto_commit=False)
            )
            self._paused_queues = PausedQueues(self._io, names, self._timeout_s)
        except BaseException:
            self._io.close()
            raise

    def read(self, wait_s: float = 0.0) -> list[PublishedSnapshot]:
        """See :class:`kafka.tasks.backends.base.SnapshotReader`."""
        with needing(self._names.app, "topic", "Read"):
            return self._read(time.monotonic() + wait_s)

    def _read(self, until: float) -> list[PublishedSnapshot]:
        if not self._is_positioned and not self._seek_to_last_minute():
            while time.monotonic() < until and not self._seek_to_last_minute():
                time.sleep(min(POLL_S, max(0.0, until - time.monotonic())))
        if self._is_positioned:
            self._poll_until(until)
            if not self._has_read:
                self._has_read = True
                first_snapshot_by = time.monotonic() + FIRST_SNAPSHOT_WAIT_S
                while self._are_all_old() and time.monotonic() < first_snapshot_by:
                    self._poll(POLL_S, is_new=True)
        return self._recent()

    def backlogs(self, queues: Sequence[str]) -> list[QueueBacklog]:
        """See :class:`kafka.tasks.backends.base.SnapshotReader`."""
        measured: list[QueueBacklog] = self._ask(
            measure_backlogs(self._io.client, self._names, queues, self._timeout_s)
        )
        return measured

    def deliveries(self, queues: Sequence[str]) -> list[QueueDelivery]:
        """See :class:`kafka.tasks.backends.base.SnapshotReader`."""
        client = self._io.client
        limits: dict[str, Any] = {"backoff": client.retry_backoff, "timeout_s": self._timeout_s}
        found: list[QueueDelivery] = self._ask(describe_deliveries(client, self._names, queues, **limits))
        return found

    def _ask(self, dialogue: Any) -> Any:
        run: Callable[..., Any] = self._io.client.run
        with needing(self._names.app, "topic", "Read"), needing(self._names.app, "group", "Describe"):
            return self._io.call(run, dialogue)

    def paused(self) -> frozenset[str]:
        """See :class:`kafka.tasks.backends.base.SnapshotReader`."""
        return self._paused_queues.read()

    def close(self) -> None:
        """See :class:`kafka.tasks.backends.base.SnapshotReader`."""
        try:
            self._consumer.close()
            self._paused_queues.close()
        finally:
            self._io.close()

    # -- reading ------------------------------------------------------------------------------------------------------

    def _seek_to_last_minute(self) -> bool:
        """Go to the beginning of the last minute and read what is there; False while there is no topic."""
        consumer, place = self._consumer, self._place
        if place.partition not in (consumer.partitions_for_topic(place.topic) or ()):
            return False
        consumer.assign([place])
        log_start, end = consumer.beginning_offsets([place])[place], consumer.end_offsets([place])[place]
        start = log_start
        if end > log_start:
            consumer.seek(place, end - 1)
            newest = deque(read_to(consumer, place, end, self._timeout_s), maxlen=1)
            if newest:
                minute_ago = max(0, newest[-1].timestamp - int(KEPT_S * 1000))
                first = consumer.offsets_for_times({place: minute_ago})[place]
                start = log_start if first is None else first.offset
        self._first_offset = start
        consumer.seek(place, start)
        for record in read_to(consumer, place, end, self._timeout_s):
            self._add_record(record)
        newest_ms = max((at for at, _ in self._snapshots.values()), default=0)
        self._clock_offset_ms = max(0, newest_ms - _now_ms())
        self._is_positioned = True
        return True

    def _poll_until(self, until: float) -> None:
        """What comes until then; what is there, at least."""
        while True:
            self._poll(min(POLL_S, max(0.0, until - time.monotonic())), is_new=True)
            if time.monotonic() >= until:
                return

    def _poll(self, wait_s: float, is_new: bool) -> None:
        for record in self._consumer.poll(wait_s * 1000).get(self._place, ()):
            self._add_record(record)
            if is_new and wait_s > 0:
                self._clock_offset_ms = record.timestamp - _now_ms()

    def _add_record(self, record: ConsumerRecord) -> None:
        key, value = record.key or b"", record.value
        if len(key) > MAX_ID_BYTES or len(value or b"") > MAX_SNAPSHOT_BYTES:
            return
        worker_id = key.decode("utf-8", "replace")
        self._snapshots.pop(worker_id, None)
        if value is not None:
            self._snapshots[worker_id] = record.timestamp, value  # the last: it is the latest
            if len(self._snapshots) > MAX_WORKERS:
                del self._snapshots[next(iter(self._snapshots))]

    # -- ages ---------------------------------------------------------------------------------------------------------

    def _age_s(self, at_ms: int) -> float:
        return max(0.0, (_now_ms() + self._clock_offset_ms - at_ms) / 1000)

    def _are_all_old(self) -> bool:
        return bool(self._snapshots) and all(self._age_s(at) > FRESH_S for at, _ in self._snapshots.values())

    def _recent(self) -> list[PublishedSnapshot]:
        self._snapshots = {id: each for id, each in self._snapshots.items() if self._age_s(each[0]) <= KEPT_S}
        return [PublishedSnapshot(name, text, self._age_s(at)) for name, (at, text) in self._snapshots.items()]


def _now_ms() -> int:
    return int(time.time() * 1000)
