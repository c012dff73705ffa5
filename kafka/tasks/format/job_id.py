"""Job ids, and the broker's time that they carry.

A job id is 128 bits as 32 lower-case hex digits, not a UUID::

    0            12       16               32
    | ms, 48 bit | p, 16  | random, 64 bit |      the first 12 random bits are the same in all ids of one IdMaker

``ms`` is the *broker's* time of the enqueue, or of the start of a job that was enqueued for later (milliseconds since
the epoch); ``p`` the partition of ``APP.results`` and ``APP.results.late`` that holds the job's state records. So a
result is found from the bare id: see :func:`kafka.tasks.results.lookup.look_up`.

Why the broker's time: the look-up starts at ``ListOffsets(ms - 60 s)`` on a topic with LogAppendTime, so a client whose
clock is three minutes ahead would look behind its own result. :class:`BrokerTimeEstimate` learns the difference from
the append times in produce answers. The random part comes from the operating system: a generator of our own would
repeat itself in forked children.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable
from functools import partial
from typing import Final

_ID = re.compile(r"[0-9a-f]{32}")

MAX_PARTITIONS = 1 << 16
"""Partitions of the results topics that an id can name."""


def make_id(ms: int, partition: int, random: bytes) -> str:
    """The id of a job enqueued at, or for, ``ms`` (broker time), with its results in ``partition``; ``random`` is 8
    bytes."""
    return f"{ms:012x}{partition:04x}{random.hex()}"


def is_id(text: str) -> bool:
    """Whether ``text`` has the shape of a job id."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def time_of(job_id: str) -> int:
    """Milliseconds since the epoch, on the broker's clock, at which the job was first enqueued, or was to start."""
    return int(job_id[:12], 16)


def partition_of(job_id: str) -> int:
    """The partition of the results topics that holds the job's state records."""
    return int(job_id[12:16], 16)


def steady_wall() -> float:
    """The wall clock as it was when this module was imported, and no step of it since: seconds since the epoch."""
    return _EPOCH + _elapsed()


def _elapsed_clock() -> Callable[[], float]:
    """A monotonic clock; on Linux one that goes on while the machine sleeps (CLOCK_BOOTTIME)."""
    boot_time = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic if boot_time is None else partial(time.clock_gettime, boot_time)


_elapsed = _elapsed_clock()
_EPOCH = time.time() - _elapsed()


DRIFT: Final = 0.001
"""By so much of the time that passes two clocks may go apart: NTP makes either faster or slower by half of it."""
MOST_DRIFT_MS: Final = 200.0


class BrokerTimeEstimate:
    """This process's wall clock, corrected to the broker's.

    A step of the wall clock must not come in: until the next answer had corrected it, each job with an ``expires`` of
    less would have expired, and ids would point beside their results.

    A record appended at ``append_ms`` was sent and acknowledged in between two readings of our own clock, so the
    difference lies between ``append - acknowledged`` and ``append - sent``. An offset inside these bounds is left as it
    is (it cannot be distinguished from a slow answer), one outside is moved to the nearer bound.

    The bounds of all answers together say which times are certain (:meth:`earliest_ms`, :meth:`latest_ms`). They grow
    with the time since the last answer, since two clocks drift apart (:data:`DRIFT`). Bounds that contradict the former
    ones replace them: the broker's clock has been set. A step that is smaller than the answers are slow cannot be seen,
    and comes on top.
    """

    __slots__ = ("_bounds_ms", "_observed_ms", "_wall", "offset_ms")

    def __init__(self, wall: Callable[[], float] = steady_wall) -> None:
        self._wall = wall
        self._bounds_ms: tuple[float, float] | None = None  # as they were at _observed_ms
        self._observed_ms = 0
        self.offset_ms = 0

    def local_ms(self) -> int:
        """This machine's own time, uncorrected."""
        return int(self._wall() * 1000)

    def now_ms(self) -> int:
        """The broker's time as far as is known, in ms since the epoch."""
        return int(self._wall() * 1000) + self.offset_ms

    def earliest_ms(self) -> int:
        """A time that has certainly come by the broker's clock; :meth:`now_ms` before the first answer."""
        local_ms = self.local_ms()
        bounds = self._bounds_at(local_ms)
        return local_ms + (self.offset_ms if bounds is None else math.floor(bounds[0]))

    def latest_ms(self) -> int:
        """A time that is certainly not over by the broker's clock; :meth:`now_ms` before the first answer. A drift of
        more than :data:`MOST_DRIFT_MS` is left out: a job of a process that was idle for long is not to start late."""
        local_ms = self.local_ms()
        bounds = self._bounds_at(local_ms, MOST_DRIFT_MS)
        return local_ms + (self.offset_ms if bounds is None else math.ceil(bounds[1]))

    def age_s(self) -> float:
        """Seconds since the last answer; inf before the first."""
        return math.inf if self._bounds_ms is None else (self.local_ms() - self._observed_ms) / 1000

    def _bounds_at(self, local_ms: int, most_drift_ms: float = math.inf) -> tuple[float, float] | None:
        if self._bounds_ms is None:
            return None
        drift_ms = min((local_ms - self._observed_ms) * DRIFT, most_drift_ms)
        return self._bounds_ms[0] - drift_ms, self._bounds_ms[1] + drift_ms

    def observe(self, sent_ms: int, acknowledged_ms: int, append_ms: int) -> None:
        """Learn from one acknowledged record; both own times are :meth:`local_ms`."""
        least, most = append_ms - acknowledged_ms, append_ms - sent_ms
        self.offset_ms = min(max(self.offset_ms, least), most)
        bounds = (least - 1.0, most + 1.0)  # all three times are cut to whole ms
        known = self._bounds_at(acknowledged_ms)
        if known is not None and known[0] <= bounds[1] and bounds[0] <= known[1]:
            bounds = (max(bounds[0], known[0]), min(bounds[1], known[1]))
        self._bounds_ms, self._observed_ms = bounds, acknowledged_ms


class IdMaker:
    """Makes ids for one client process: one results partition, the broker's time or a later one, but none as early as
    ``after_ms``.

    The first 12 of the random bits are drawn once for all ids of a maker, so that a client recognises its own ids
    (:meth:`has_made`) without a memory of them. 52 bits remain for the ids of one client and millisecond.
    """

    __slots__ = ("_after_hex", "_after_ms", "_clock", "_fixed", "partition")

    def __init__(self, partition: int, clock: BrokerTimeEstimate, after_ms: int = 0) -> None:
        if not 0 <= partition < MAX_PARTITIONS:
            raise ValueError(f"a results partition is 0 to {MAX_PARTITIONS - 1}, not {partition}")
        self.partition = partition
        self._clock = clock
        self._after_ms = after_ms
        self._after_hex = f"{after_ms:012x}"
        self._fixed = f"{partition:04x}{os.urandom(2).hex()[:3]}"

    def __call__(self, at_ms: int | None = None) -> str:
        """The next id, of a job that starts at ``at_ms``; None: now."""
        ms = max(self._clock.now_ms() if at_ms is None else at_ms, self._after_ms + 1)
        return f"{ms:012x}{self._fixed}{os.urandom(7).hex()[1:]}"

    def has_made(self, job_id: str) -> bool:
        """Whether it has made this id. One in 4,096 ids of other makers with the same partition is taken for its own,
        but only one later than ``after_ms``.
        """
        return job_id[12:19] == self._fixed and job_id[:12] > self._after_hex
