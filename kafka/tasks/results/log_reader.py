"""Reads the results topics from users' threads: look-ups by bare id, and end offsets.

All share one consumer, one at a time. Every call takes ``until``, a monotonic instant: it raises
:class:`kafka.errors.KafkaTimeoutError` when it has no answer by then.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from kafka.client import IoThread
from kafka.consumer import ConsumerRecord, KafkaConsumer
from kafka.errors import KafkaTimeoutError, TopicAuthorizationFailedError
from kafka.log_limit import LimitedLog
from kafka.structs import TopicPartition
from kafka.tasks.backends.kafka.rights import named
from kafka.tasks.errors import BadRecord
from kafka.tasks.format.job_id import partition_of, time_of
from kafka.tasks.format.records import (
    MOST_HEADERS,
    StateHeaders,
    StateRecord,
    parse_headers,
    state_record,
    supersedes,
)
from kafka.tasks.format.topics import TopicNames
from kafka.tasks.results.lookup import (
    FetchEndOffset,
    FetchOffsetAt,
    LookUpRequest,
    ReadStates,
    is_pointer,
    look_up,
)
from kafka.tasks.results.scan import ResultsScan
from kafka.tasks.states import READY

log = logging.getLogger(__name__)

READ_WAIT_MS = 5
"""Look-ups read what is there; a fetch that waits for more would only hold up the next one."""

SCAN_S: Final = 60.0
"""A scan that was not used for so long is dropped: the topic may have been deleted and created again meanwhile."""

MOST_PARSED: Final = 1000
MOST_PARSED_BYTES: Final = 200
"""Different headers of state records whose meaning is kept, and bytes of each; there are a handful, of 40 bytes."""

CONSUMER_CONFIGS: Final = {
    "isolation_level": "read_committed",
    "auto_offset_reset": "earliest",
    "max_poll_records": 2000,
}


class LogReader:
    """See the module."""

    def __init__(self, io: IoThread, names: TopicNames, timeout_s: float) -> None:
        self._names = names
        self._decoder = StateDecoder()
        self._scan: ResultsScan | None = None
        self._scan_used_at = 0.0
        self._lock = threading.Lock()
        make: Callable[..., KafkaConsumer] = KafkaConsumer
        configs = {**CONSUMER_CONFIGS, "fetch_max_wait_ms": READ_WAIT_MS, "request_timeout_ms": int(timeout_s * 1000)}
        self._consumer = io.call(lambda: make(client=io.client, **configs))

    def end_offsets(self, partition: int, until: float) -> dict[TopicPartition, int]:
        """The end offsets (read_committed) of this partition of both topics."""
        places = [TopicPartition(self._names.results, partition), TopicPartition(self._names.late, partition)]
        with self._turn(until):
            return self._consumer.end_offsets(places, left_ms(until))

    def look_up(self, job_id: str, until: float, since_ms: int | None = None) -> StateRecord | None:
        """The record of the job that holds in the log. ``since_ms``: see :func:`kafka.tasks.results.lookup.look_up`."""
        with self._turn(until):
            used_at, self._scan_used_at = self._scan_used_at, time.monotonic()
            if self._scan_used_at - used_at > SCAN_S:
                self._scan = None
            passed = self._scan and self._scan.result_of(self._place(False, partition_of(job_id)), job_id)
            if passed:
                return passed
            dialogue = look_up(job_id, since_ms)
            try:
                want = next(dialogue)
                while True:
                    want = dialogue.send(self._answer(want, until))
            except StopIteration as end:
                record: StateRecord | None = end.value
                return record

    def close(self) -> None:
        """Close the consumer; a call that waits ends with an error."""
        self._consumer.close()

    @contextlib.contextmanager
    def _turn(self, until: float) -> Iterator[None]:
        if not self._lock.acquire(timeout=left_ms(until) / 1000):
            raise KafkaTimeoutError("could not read the results topics in time: other look-ups are under way")
        try:
            yield
        except TopicAuthorizationFailedError as error:
            raise named(error, self._names.app, "topic", "Read", ".results") from error
        finally:
            self._lock.release()

    def _answer(self, want: LookUpRequest, until: float) -> Any:
        place = self._place(want.late, want.partition)
        if isinstance(want, FetchEndOffset):
            return self._consumer.end_offsets([place], left_ms(until))[place]
        if isinstance(want, FetchOffsetAt):
            at = self._consumer.offsets_for_times({place: want.time_ms}, left_ms(until))[place]
            return -1 if at is None else at.offset
        return self._read(place, want, until)

    def _place(self, late: bool, partition: int) -> TopicPartition:
        return TopicPartition(self._names.late if late else self._names.results, partition)

    def _read(self, place: TopicPartition, want: ReadStates, until: float) -> StateRecord | None:
        """See :class:`kafka.tasks.results.lookup.ReadStates`."""
        _, _, job_id, offset, end, end_ms, to_pointer = want
        consumer, decode = self._consumer, self._decoder.decode
        best: StateRecord | None = None
        scan: ResultsScan | None = None
        in_late = place.topic == self._names.late
        if not in_late and not to_pointer:  # the others begin at times of their own
            start = None if self._scan is None else self._scan.start_of(place, job_id, offset, end)
            if start is None:
                self._scan = ResultsScan(place, time_of(job_id), offset)
            else:
                offset = start
            scan = self._scan
        consumer.assign([place])
        consumer.seek(place, offset)
        try:
            while consumer.position(place, left_ms(until)) < end:
                if time.monotonic() > until:
                    raise KafkaTimeoutError(f"could not read the state of job {job_id} in time")
                records = consumer.poll(min(100, left_ms(until))).get(place, ())
                states = [decode(record, in_late) for record in records]
                if scan is not None:  # all of them: the next look-up may want one behind this job's
                    for record, state in zip(records, states, strict=True):
                        scan.take(record.offset, state)
                for record, state in zip(records, states, strict=True):
                    if record.offset >= end or (end_ms is not None and record.timestamp > end_ms):
                        return best
                    if state is None or state.id != job_id:
                        continue
                    if supersedes(best, state):
                        best = state
                        if state.state in READY:
                            return best
                    if to_pointer and is_pointer(state):
                        return state
            return best
        finally:
            consumer.assign([])


class StateDecoder:
    """Makes state records of what is in the results topics. Nearly all have the same headers, so what these say is kept
    by their bytes; in plain Python that saves half of the time for a record."""

    __slots__ = ("_limited_log", "_parsed")

    def __init__(self) -> None:
        self._limited_log = LimitedLog(log)
        self._parsed: dict[bytes, StateHeaders | None] = {}

    def decode(self, record: ConsumerRecord, in_late: bool) -> StateRecord | None:
        """The state record in a record; None for another kind, and for a damaged one, which is logged."""
        encoded = record.encoded_headers or b""
        try:
            try:
                headers = self._parsed[encoded]
            except KeyError:
                headers = self._parse(record, encoded)
            if headers is None:
                return None
            return state_record(record.key, record.value, headers, record.timestamp, in_late, record.offset)
        except BadRecord as error:
            where = record.topic, record.partition, record.offset
            self._limited_log.warning(record.topic, "ignoring record %s:%d:%d: %s", *where, error.text)
            return None

    def _parse(self, record: ConsumerRecord, encoded: bytes) -> StateHeaders | None:
        count = record.headers_count
        if count > MOST_HEADERS:
            raise BadRecord("bad-state", f"a record with {count} headers; a state record has at most {MOST_HEADERS}")
        headers = parse_headers(record.headers)
        if encoded and len(encoded) <= MOST_PARSED_BYTES:
            if len(self._parsed) >= MOST_PARSED:
                self._parsed.clear()
            self._parsed[encoded] = headers
        return headers


def left_ms(until: float) -> int:
    """Milliseconds until this monotonic instant, at least one."""
    return max(1, int((until - time.monotonic()) * 1000))
