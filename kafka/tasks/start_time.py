"""When a job is to start: the options ``delay`` and ``eta`` of a call, and of :meth:`kafka.tasks.JobHandle.reschedule`.

Times are ms since the epoch by the broker's clock. The latest that it may be now counts for a ``delay``, and the
earliest for an ``eta``, so that no job starts before its time.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone
from typing import Any, Final, NamedTuple

from kafka.errors import IllegalArgumentError
from kafka.tasks.format.job_id import BrokerTimeEstimate
from kafka.tasks.settings import LONGEST_S

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MS: Final = timedelta(milliseconds=1)
LAST_MS: Final = (datetime.max.replace(tzinfo=timezone.utc) - _EPOCH) // _MS
"""The end of the year 9999."""


class StartTime(NamedTuple):
    """So many seconds from now, or (``delay_s`` None) at ``eta_ms``."""

    delay_s: float | None
    eta_ms: int = 0

    def due_ms(self, clock: BrokerTimeEstimate, expires_s: float | None = None) -> int | None:
        """When that is, as of now; None: the time has come already.

        :class:`IllegalArgumentError` when it is more than a century ahead, or when a job that expires ``expires_s``
        from now would not live so long.
        """
        if self.delay_s is None:
            due_ms = self.eta_ms
            if due_ms <= clock.earliest_ms():
                return None
        else:
            # What 1.1 * 1000 is too much is no millisecond.
            due_ms = clock.latest_ms() + math.ceil(round(self.delay_s * 1000, 6))
        in_ms = due_ms - clock.now_ms()
        if self.delay_s is None and in_ms > LONGEST_S * 1000:
            raise IllegalArgumentError(f"{as_datetime(due_ms).isoformat()} is more than a century ahead")
        if expires_s is not None and in_ms >= expires_s * 1000:
            raise IllegalArgumentError(
                f"the job would expire before it starts: it expires {expires_s:g} s after the enqueue, and starts "
                f"{in_ms / 1000:g} s after it"
            )
        return due_ms


def start_time(delay_s: float | None, eta_ms: int | None) -> StartTime | None:
    """The start time of one of both; None of none."""
    if delay_s is not None:
        return StartTime(delay_s)
    return None if eta_ms is None else StartTime(None, eta_ms)


def instant_ms(name: str, value: Any) -> int:
    """An aware ``datetime`` as ms since the epoch, rounded up."""
    if not isinstance(value, datetime):
        raise IllegalArgumentError(
            f"{name} must be a datetime with a timezone, for example datetime.now(timezone.utc) + timedelta(hours=1), "
            f"not {value!r}"
        )
    if value.utcoffset() is None:
        raise IllegalArgumentError(
            f"{name} needs a timezone, for example datetime.now(timezone.utc) + timedelta(hours=1), or "
            f"{name}=when.astimezone() for local time; it is {value!r}"
        )
    return -((_EPOCH - value) // _MS)


def as_datetime(ms: int) -> datetime:
    """Milliseconds since the epoch as an aware ``datetime`` in UTC; the last one there is for what is too much."""
    return _EPOCH + min(ms, LAST_MS) * _MS
