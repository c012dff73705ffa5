"""State records: what ``APP.results`` and ``APP.results.late`` hold, and how readers agree on what they say.

A state record, keyed by the job id, in the partition that the id names::

    key       the job id, 32 ASCII bytes
    headers   state      SCHEDULED, QUEUED, STARTED, RETRY, REVOKED, FAILURE or SUCCESS
              attempt    of the run that wrote it, from 1
              delivery   of that run's lease, from 1
              due        SCHEDULED, RETRY, QUEUED: ms since the epoch, broker time, when the job starts or was
                         written to its queue: readers look for what follows from there on; left out: at once
              content-type   SUCCESS: media type of the value, that of the job's call; left out for JSON
    value     SUCCESS: the result's payload · FAILURE, RETRY: {"type", "text", "traceback", "host", "time"}
              REVOKED: {"reason"} · SCHEDULED, QUEUED, STARTED: {"host"} or nothing
    time      LogAppendTime: the broker's, whatever the writer's clock says

**The first terminal record in log order wins.** A later one (a zombie's) is ignored by every reader, and counted.
Others order by (attempt, delivery), then by the log. Records written more than 60 s after the id's time go to the
``late`` topic, so that a look-up scans 120 s of ``results`` and then follows ``results.late``; where both topics have
a terminal record, the one in ``results`` is the earlier and wins. A record that was appended to ``results`` after these
60 s does not count: its writer has written a copy to ``late``. All readers decide by :func:`supersedes`, so what holds
does not depend on the order in which they read the two topics.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from kafka.tasks.errors import BadRecord
from kafka.tasks.format.envelope import Header, truncated_repr
from kafka.tasks.format.job_id import is_id, time_of
from kafka.tasks.rules.outcome import ErrorInfo
from kafka.tasks.states import READY, JobState

LATE_AFTER_MS = 60_000
"""State records appended later than this after the id's time belong to the late topic."""

CLOSED_AFTER_MS = LATE_AFTER_MS + 5_000
"""A reader of the results topic has read all that counts of a job at an append time so long after the id's time.
More than ``LATE_AFTER_MS``, because a partition's append times step back when its leader moves to a broker whose clock
is behind."""

CLOCK_HEADERS: Sequence[Header] = (("clock", None),)
"""Of a record in the results that no reader takes for a state: it was written for its append time, the broker's."""

MOST_DIGITS = 18
"""Of the numbers in a state record's headers: they fit 64 bits."""

MOST_HEADERS = 16
"""Of a state record, which has four at most; whatever has more is none, and its headers are not looked at."""

MOST_SHORTENED = 200
"""Characters of a text in a state record whose topic does not take it whole."""

CANCELLED = "cancelled"
"""The reason of a job that was revoked by :meth:`kafka.tasks.JobHandle.cancel`."""

_NAMES = {state.name: state for state in JobState if state not in (JobState.UNKNOWN, JobState.PENDING)}


class StateRecord(NamedTuple):
    """One state of one job. ``value`` is undecoded. Of a record that was read from a log: ``time_ms`` is the append
    time, ``in_late`` whether it is the late topic's, ``offset`` the offset there.
    """

    id: str
    state: JobState
    attempt: int = 1
    delivery: int = 1
    value: bytes = b""
    time_ms: int = 0
    in_late: bool = False
    offset: int = 0
    content_type: str | None = None
    due_ms: int | None = None

    def detail(self) -> dict[str, Any]:
        """The fields of a FAILURE, RETRY or REVOKED record; empty for others, and for what is no JSON object."""
        if self.state is JobState.SUCCESS:
            return {}
        try:
            value = json.loads(self.value or b"{}")
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}

    @property
    def is_cancelled(self) -> bool:
        """Whether the job has ended as cancelled by a caller."""
        return self.state is JobState.REVOKED and self.detail().get("reason") == CANCELLED


def supersedes(old: StateRecord | None, new: StateRecord) -> bool:
    """Whether ``new`` holds rather than ``old``, two different records of one job, in whatever order they were read.

    Never, when ``new`` does not count: see the module.
    """
    if not new.in_late and new.time_ms > time_of(new.id) + LATE_AFTER_MS:
        return False
    return old is None or _precedence(new) > _precedence(old)


def _precedence(record: StateRecord) -> tuple[int, ...]:
    if record.state in READY:
        return 1, not record.in_late, -record.offset
    return 0, record.attempt, record.delivery, record.in_late, record.offset


def is_late(job_id: str, now_ms: int) -> bool:
    """Whether a state record written now (broker time) belongs to the late topic."""
    return now_ms - time_of(job_id) > LATE_AFTER_MS


def encode(record: StateRecord) -> tuple[bytes, bytes, list[Header]]:
    """Key, value and headers of a state record. The headers are shared between records: not to be changed."""
    headers = state_headers(record.state, record.attempt, record.delivery, record.content_type)
    if record.due_ms is not None:
        headers = with_due(headers, record.due_ms)
    return record.id.encode(), record.value, headers


@lru_cache(maxsize=1024)
def state_headers(
    state: JobState, attempt: int, delivery: int, content_type: str | None = None
) -> list[Header]:
    """The headers of a state record; one list for all records that have the same."""
    headers: list[Header] = [
        ("state", state.name.encode()), ("attempt", b"%d" % attempt), ("delivery", b"%d" % delivery)
    ]  # fmt: skip
    return headers if content_type is None else [*headers, ("content-type", content_type.encode())]


def with_due(headers: list[Header], due_ms: int) -> list[Header]:
    """The headers of a state record, and when the job starts."""
    return [*headers, ("due", b"%d" % due_ms)]


class StateHeaders(NamedTuple):
    """What the headers of a state record say."""

    state: JobState
    attempt: int
    delivery: int
    content_type: str | None
    due_ms: int | None


def decode(
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Header],
    time_ms: int = 0,
    in_late: bool = False,
    offset: int = 0,
) -> StateRecord | None:
    """The state record in a record, or None for a record of another kind (no ``state`` header, or a state of a later
    release); :class:`BadRecord` when it is damaged.
    """
    parsed = parse_headers(headers)
    return None if parsed is None else state_record(key, value, parsed, time_ms, in_late, offset)


def parse_headers(headers: Sequence[Header]) -> StateHeaders | None:
    """The headers of a state record; None and :class:`BadRecord` as of :func:`decode`."""
    by_name = dict(headers)
    raw = by_name.get("state")
    if raw is None:
        return None
    try:
        attempt, delivery = by_name.get("attempt") or b"1", by_name.get("delivery") or b"1"
        content_type = by_name.get("content-type")
        is_long = len(raw) > MOST_SHORTENED or len(content_type or b"") > MOST_SHORTENED
        due = by_name.get("due")
        if is_long or max(len(attempt), len(delivery), len(due or b"")) > MOST_DIGITS:
            raise ValueError("a header is too long")
        state: JobState | None = _NAMES.get(raw.decode("ascii", "replace"))
        if state is None:
            return None
        media_type = None if content_type is None else content_type.decode("utf-8", "replace")
        due_ms = None if due is None else int(due)
        return StateHeaders(state, int(attempt), int(delivery), media_type, due_ms)
    except ValueError as error:
        raise BadRecord("bad-state", f"malformed state record: {str(error)[:MOST_SHORTENED]}") from None


def state_record(
    key: bytes | None, value: bytes | None, headers: StateHeaders, time_ms: int, in_late: bool, offset: int
) -> StateRecord:
    """The state record with these headers; :class:`BadRecord` when its key is no job id."""
    job_id = str(key or b"", "ascii", "replace")
    if not is_id(job_id):
        raise BadRecord("bad-state", f"the key of a state record is not a job id: {truncated_repr(key)}")
    state, attempt, delivery, content_type, due_ms = headers
    value = bytes(value or b"")
    return StateRecord(job_id, state, attempt, delivery, value, time_ms, in_late, offset, content_type, due_ms)


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
