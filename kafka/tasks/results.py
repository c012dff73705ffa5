"""State records: what ``APP.results`` and ``APP.results.late`` hold, and how readers agree on what they say.

A state record, keyed by the job id, in the partition that the id names::

    key       the job id, 32 ASCII bytes
    headers   state      QUEUED, STARTED, RETRY, REVOKED, FAILURE or SUCCESS
              attempt    of the run that wrote it, from 1
              delivery   of that run's lease, from 1
    value     SUCCESS: the result's payload · FAILURE, RETRY: {"type", "text", "traceback", "host", "time"}
              REVOKED: {"reason"} · QUEUED, STARTED: {"host"} or nothing
    time      LogAppendTime: the broker's, whatever the writer's clock says

**The first terminal record in log order wins.** A later one (a zombie's) is ignored by every reader, and counted.
Others order by (attempt, delivery), then by the log. Records written more than 60 s after the id's time go to the
``late`` topic, so that a look-up scans 120 s of ``results`` and then follows ``results.late``; where both topics have
a terminal record, the one in ``results`` is the earlier and wins.

:class:`ResultView` is what a client keeps of the partition that it tails; :func:`look_up` is the dialogue that finds
one job from its bare id. Neither reads Kafka: the one is fed records, the other yields what it wants to read.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Generator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from kafka.tasks.envelope import Header, truncated_repr
from kafka.tasks.errors import BadRecord
from kafka.tasks.ids import is_id, partition_of, time_of
from kafka.tasks.outcome import ErrorInfo
from kafka.tasks.states import READY, JobState

LATE_AFTER_MS = 60_000
"""State records appended later than this after the id's time belong to the late topic."""

SKEW_MS = 60_000
"""How far before the id's time a look-up starts: what is left of clock differences."""

MOST_VIEW_BYTES = 64 * 1024 * 1024
"""Of the values that a :class:`ResultView` keeps, however few jobs they are of."""

MOST_DIGITS = 18
"""Of the numbers in a state record's headers: they fit 64 bits."""

MOST_HEADERS = 16
"""Of a state record, which has three; whatever has more is none, and its headers are not looked at."""

MOST_SHORTENED = 200
"""Characters of a text in a state record whose topic does not take it whole."""

_NAMES = {state.name: state for state in JobState if state is not JobState.UNKNOWN}


class StateRecord(NamedTuple):
    """One state of one job. ``value`` is undecoded; ``time_ms`` is the append time (0: not read from a log)."""

    id: str
    state: JobState
    attempt: int = 1
    delivery: int = 1
    value: bytes = b""
    time_ms: int = 0

    def detail(self) -> dict[str, Any]:
        """The fields of a FAILURE, RETRY or REVOKED record; empty for others, and for what is no JSON object."""
        if self.state is JobState.SUCCESS:
            return {}
        try:
            value = json.loads(self.value or b"{}")
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}


def is_late(job_id: str, now_ms: int) -> bool:
    """Whether a state record written now (broker time) belongs to the late topic."""
    return now_ms - time_of(job_id) > LATE_AFTER_MS


def encode(record: StateRecord) -> tuple[bytes, bytes, list[Header]]:
    """Key, value and headers of a state record. The headers are shared between records: not to be changed."""
    return record.id.encode(), record.value, state_headers(record.state, record.attempt, record.delivery)


@lru_cache(maxsize=1024)
def state_headers(state: JobState, attempt: int, delivery: int) -> list[Header]:
    """The headers of a state record; one list for all records that have the same."""
    return [("state", state.name.encode()), ("attempt", b"%d" % attempt), ("delivery", b"%d" % delivery)]


def decode(key: bytes | None, value: bytes | None, headers: Sequence[Header], time_ms: int = 0) -> StateRecord | None:
    """The state record in a record, or None for a record of another kind (no ``state`` header, or a state of a later
    release); :class:`BadRecord` when it is damaged.
    """
    by_name = dict(headers)
    raw = by_name.get("state")
    if raw is None:
        return None
    try:
        numbers = by_name.get("attempt"), by_name.get("delivery")
        if len(raw) > MOST_SHORTENED or any(len(number or b"") > MOST_DIGITS for number in numbers):
            raise ValueError("a header is too long")  # the cache keeps what it is asked
        parsed = _parse_headers(raw, *numbers)
        if parsed is None:
            return None
        state, attempt, delivery = parsed
        job_id = str(key or b"", "ascii")
    except ValueError as error:
        raise BadRecord("bad-state", f"malformed state record: {str(error)[:MOST_SHORTENED]}") from None
    if not is_id(job_id):
        raise BadRecord("bad-state", f"the key of a state record is not a job id: {truncated_repr(key)}")
    return StateRecord(job_id, state, attempt, delivery, bytes(value or b""), time_ms)


@lru_cache(maxsize=1024)
def _parse_headers(state: bytes, attempt: bytes | None, delivery: bytes | None) -> tuple[JobState, int, int] | None:
    """What the headers of a state record say: nearly all say the same. None: a state of a later release."""
    known: JobState | None = _NAMES.get(state.decode("ascii", "replace"))
    return None if known is None else (known, int(attempt or b"1"), int(delivery or b"1"))


def error_value(error_info: ErrorInfo, host: str, time_ms: int) -> bytes:
    """The value of a FAILURE or RETRY record."""
    body = {
        "type": error_info.type,
        "text": error_info.text,
        "traceback": error_info.traceback,
        "host": host,
        "time": time_ms,
    }
    return _json(body)


def reason_value(reason: str, host: str) -> bytes:
    """The value of a REVOKED record."""
    return _json({"reason": reason, "host": host})


def shortened(value: bytes) -> bytes:
    """A value of a FAILURE, RETRY or REVOKED record without its traceback, and with the beginning of its text."""
    body = json.loads(value)
    for name in body:
        if name == "traceback":
            body[name] = ""
        elif isinstance(body[name], str) and len(body[name]) > MOST_SHORTENED:
            body[name] = body[name][:MOST_SHORTENED] + "..."
    return _json(body)


def _json(body: dict[str, Any]) -> bytes:
    """As UTF-8, so that no text takes more than its size; a lone surrogate becomes its escape, which is JSON's, too."""
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "backslashreplace")


def supersedes(old: StateRecord | None, new: StateRecord, *, same_topic: bool = True) -> bool:
    """Whether ``new``, which comes later in the log, takes the place of ``old``.

    ``same_topic=False``: ``old`` is from the late topic and ``new`` from the other one, which goes before it.
    """
    if old is None:
        return True
    if old.state in READY:
        return new.state in READY and not same_topic
    return new.state in READY or (new.attempt, new.delivery) >= (old.attempt, old.delivery)


class ResultView:
    """What is known of the jobs of one results partition: the best record of each, the latest ``capacity`` jobs, and of
    large values no more jobs than fit into ``most_bytes``.

    One thread owns it. ``evicted`` counts jobs that were pushed out, so that a reader knows when a missing id has to
    be looked up in the log; ``ignored`` counts terminal records that came second.
    """

    __slots__ = ("_best", "_bytes", "_capacity", "_most_bytes", "evicted", "ignored")

    def __init__(self, capacity: int = 100_000, most_bytes: int = MOST_VIEW_BYTES) -> None:
        self._capacity = capacity
        self._most_bytes = most_bytes
        self._bytes = 0
        self._best: OrderedDict[str, tuple[StateRecord, bool]] = OrderedDict()
        self.evicted = 0
        self.ignored = 0

    def apply(self, record: StateRecord, late: bool = False) -> bool:
        """Take in the next record of a topic's log; True when it made its job final (or final in another way)."""
        best = self._best
        held = best.get(record.id)
        if held is None:
            best[record.id] = (record, late)
            self._bytes += len(record.value)
            if len(best) > self._capacity or self._bytes > self._most_bytes:
                self._evict()
            return record.state in READY
        old, old_late = held
        if not supersedes(old, record, same_topic=late or not old_late):
            self.ignored += record.state in READY
            return False
        self.ignored += old.state in READY
        best[record.id] = (record, late)
        self._bytes += len(record.value) - len(old.value)
        if self._bytes > self._most_bytes:
            self._evict()
        return record.state in READY

    def _evict(self) -> None:
        """Push out the oldest jobs until the others fit; the latest one stays."""
        best = self._best
        while len(best) > self._capacity or (self._bytes > self._most_bytes and len(best) > 1):
            _, (record, _) = best.popitem(last=False)
            self._bytes -= len(record.value)
            self.evicted += 1

    def get(self, job_id: str) -> StateRecord | None:
        """The record that holds for a job, or None."""
        held = self._best.get(job_id)
        return held[0] if held else None


# -- one job from its bare id ------------------------------------------------------------------------------------------


class FetchEndOffset(NamedTuple):
    """Wanted: the end offset (read_committed) of a partition."""

    late: bool
    partition: int


class FetchOffsetAt(NamedTuple):
    """Wanted: the first offset whose record was appended at ``time_ms`` or later, or -1 (ListOffsets by time)."""

    late: bool
    partition: int
    time_ms: int


class ReadStates(NamedTuple):
    """Wanted: state records of ``job_id`` from ``offset`` on, as a list in log order.

    Stop at offset ``until`` (not read; None: no bound, wait for at least one more record of this job), at a record
    appended after ``until_ms`` (None: no bound), or once a terminal record of this job was read.
    """

    late: bool
    partition: int
    job_id: str
    offset: int
    until: int | None
    until_ms: int | None


LookUpRequest: TypeAlias = "FetchEndOffset | FetchOffsetAt | ReadStates"


def look_up(job_id: str) -> Generator[LookUpRequest, Any, StateRecord | None]:
    """The dialogue that finds a job's state from its id alone; returns its best record, or None when there is none.

    End offsets are taken *before* the look-up by time: when that answers -1 (no record so late, yet), reading goes on
    from there and nothing written meanwhile is missed. Wants are answered with an offset (:class:`FetchEndOffset`,
    :class:`FetchOffsetAt`) or a list of :class:`StateRecord` (:class:`ReadStates`).
    """
    partition, enqueued = partition_of(job_id), time_of(job_id)
    best: StateRecord | None = None
    for late, until_ms in ((False, enqueued + LATE_AFTER_MS), (True, None)):
        end: int = yield FetchEndOffset(late, partition)
        start: int = yield FetchOffsetAt(late, partition, max(0, enqueued - SKEW_MS))
        if 0 <= start < end:
            records: list[StateRecord] = yield ReadStates(late, partition, job_id, start, end, until_ms)
            for record in records:
                if supersedes(best, record):
                    best = record
        if best is not None and best.state in READY:
            break
    return best
