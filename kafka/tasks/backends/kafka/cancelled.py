"""The topic ``APP.cancelled`` as a worker reads it: from its beginning before the worker leases anything, then what
comes.

A consumer on the worker's client. Its fetches wait at the broker (:data:`FETCH_WAIT_S`) until there is something, on a
connection of their own: a broker answers the requests of a connection in order, and others would wait behind them.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from typing import Any, Final

from kafka import OffsetSpec, admin
from kafka.client import KafkaClient
from kafka.consumer import ConsumerRecord, KafkaConsumer
from kafka.errors import CorruptRecordError, KafkaError
from kafka.log_limit import LimitedLog
from kafka.structs import TopicPartition
from kafka.tasks.backends.base import CancelledCallback
from kafka.tasks.backends.kafka.partition_reader import READ_CONFIGS, position_of, read_timeout
from kafka.tasks.format.cancelled import CancelledJob, decode_cancelled
from kafka.tasks.worker.cancelled_jobs import MAX_CANCELLED

log = logging.getLogger(__name__)

FETCH_WAIT_S: Final = 10.0
"""So long a fetch waits for a record, if the request timeout is twice that at least."""

READ_S: Final = 30.0
"""Time limit of the reading at the start: a million records take some seconds."""

MOST_HEADERS: Final = 16
"""The headers of a record with more are not looked at."""

_CONSUMER_CONFIGS: Final[dict[str, Any]] = {
    **READ_CONFIGS,
    "isolation_level": "read_committed",
    "max_poll_records": 2000,
}


class CancelledReader:
    """Knows which jobs of an app are cancelled, and calls back on the loop of ``client``. ``kept_s``: how long a job
    stays cancelled.

    It never raises: a worker that cannot read the topic runs all jobs, which is logged.
    """

    def __init__(self, client: KafkaClient, topic: str, kept_s: float, timeout_s: float) -> None:
        """Asks nothing before :meth:`start`."""
        self._client = client
        self._loop: Any = client.loop
        self._place = TopicPartition(topic, 0)
        self._kept_ms = kept_s * 1000
        self._timeout_s = timeout_s
        self._consumer: KafkaConsumer | None = None
        self._on_cancelled: CancelledCallback | None = None
        # One more than a worker remembers, so that it finds out that there are too many.
        self._waiting: deque[CancelledJob] = deque(maxlen=MAX_CANCELLED + 1)
        self._error: Exception | None = None
        self._limited_log = LimitedLog(log)

    def start(self) -> None:
        """Read what there is, driving the loop until that is done; the client closes what reads on."""
        wait_s = min(FETCH_WAIT_S, self._timeout_s / 2)
        consumer = self._consumer = KafkaConsumer(
            client=self._client,
            on_records=self._on_records,
            on_error=self._on_error,
            fetch_max_wait_ms=math.ceil(wait_s * 1000),
            **_CONSUMER_CONFIGS,
        )
        consumer.assign([self._place])
        try:
            ends = self._client.run(
                admin.dialogues.list_partition_offsets(
                    {self._place: OffsetSpec.LATEST},
                    "read_committed",
                    backoff=self._client.retry_backoff,
                    timeout_s=self._timeout_s,
                )
            )
            self._loop.run_until(ends)
            end = ends.result()[self._place].offset
            self._loop.run_until(
                lambda: self._error is not None or position_of(consumer, self._place) >= end, READ_S
            )
            if self._error is None and position_of(consumer, self._place) < end:
                raise read_timeout(self._place.topic, READ_S)
        except KafkaError as error:
            self._on_error(error)

    def watch(self, on_cancelled: CancelledCallback) -> None:
        """Call ``on_cancelled`` with the jobs that are cancelled so far, if there are some, and with what comes."""
        self._on_cancelled = on_cancelled
        waiting = list(self._waiting)
        self._waiting.clear()
        if waiting:
            on_cancelled(waiting)

    def _on_records(self, records_by_partition: dict[TopicPartition, list[ConsumerRecord]]) -> None:
        cancelled: list[CancelledJob] = []
        for record in records_by_partition.get(self._place, ()):
            try:
                headers = record.headers if record.headers_count <= MOST_HEADERS else []
            except CorruptRecordError:
                continue
            job = decode_cancelled(record.key, headers, record.timestamp + self._kept_ms)
            if job is not None:
                cancelled.append(job)
        if not cancelled:
            return
        if self._on_cancelled is None:
            self._waiting += cancelled
        else:
            self._on_cancelled(cancelled)

    def _on_error(self, error: Exception) -> None:
        self._error = error
        text = error.args[0] if error.args else type(error).__name__
        message = "cannot read which jobs are cancelled; running also those that are: %s"
        self._limited_log.warning(type(error).__name__, message, text)
