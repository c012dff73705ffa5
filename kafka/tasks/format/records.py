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
from kafka.tasks.states import JobState

LATE_AFTER_MS = 60_000
"""State records appended later than this after the id's time belong to the late topic."""

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
