"""What the last look-ups have read on their way, for those that follow. Pure.

A look-up reads a partition of the results topic from a minute before its job's time on
(:mod:`kafka.tasks.results.lookup`). Callers that wait for more jobs than the view keeps ask for one after the other,
and each look-up would read the whole minute again: 10 ms for each of 200,000 jobs. So a scan remembers where the first
record of each job is that it has passed, and goes on from its position for a job that it has not passed::

    a minute before since_ms        position
    |-------- passed ---------------|------ not read yet ------
         a job of since_ms or later has no record before the beginning
         it was passed      ->  its first record is where the scan has seen it
         it was not passed  ->  its first record is behind the position

A job whose minute begins behind the position gets a scan of its own: hours may lie in between.

Jobs end about in the order in which they are asked for, so the results that were read with one are kept for a while.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from kafka.structs import TopicPartition
from kafka.tasks.format.records import StateRecord, supersedes
from kafka.tasks.results.view import ENTRY_BYTES
from kafka.tasks.states import READY

MOST_PASSED: Final = 250_000
"""Jobs that a scan remembers, of ``since_ms`` or later: 40 MB. A new one begins after so many."""
MOST_KEPT_BYTES: Final = 8 * 1024 * 1024
"""Of the results that were read last."""


class ResultsScan:
    """A scan of one partition of the results topic, from the ``offset`` on that belongs to the time ``since_ms``."""

    __slots__ = (
        "_begin", "_first_offsets", "_kept", "_kept_bytes", "_last_end", "_place", "_position", "_since_hex",
    )  # fmt: skip

    def __init__(self, place: TopicPartition, since_ms: int, offset: int) -> None:
        self._place = place
        self._since_hex = f"{since_ms:012x}"  # ids begin with their time
        self._begin = self._last_end = self._position = offset
        self._first_offsets: dict[str, int] = {}
        self._kept: OrderedDict[str, StateRecord] = OrderedDict()
        self._kept_bytes = 0

    def result_of(self, place: TopicPartition, job_id: str) -> StateRecord | None:
        """The terminal record of a job, if that was its first one, and is kept."""
        return self._kept.get(job_id) if self._has_all_of(place, job_id) else None

    def start_of(self, place: TopicPartition, job_id: str, offset: int, end: int) -> int | None:
        """Where the first record of the job is, or an offset before it; None: this scan does not know, or there is much
        to read in between. ``offset``: where a look-up of the job begins, by its time; ``end``: where the log ends."""
        if not self._has_all_of(place, job_id):
            return None
        if offset < self._begin or end < max(self._last_end, self._position):
            return None  # another log: the topic was deleted and created again, or has lost its end
        self._last_end = end
        start = self._first_offsets.get(job_id)
        if start is None and len(self._first_offsets) < MOST_PASSED:
            start = self._position
        return start if start is not None and start >= offset else None

    def take(self, offset: int, state: StateRecord | None) -> None:
        """The next record from the position on, or from where :meth:`start_of` has led to. ``state`` None: it is no
        state record."""
        is_new = offset >= self._position and len(self._first_offsets) < MOST_PASSED
        if is_new:
            self._position = offset + 1
        if state is None or state.id < self._since_hex:
            return
        first = self._first_offsets.setdefault(state.id, offset) if is_new else self._first_offsets.get(state.id)
        if first == offset and state.state in READY and state.id not in self._kept and supersedes(None, state):
            self._keep(state)

    def _keep(self, state: StateRecord) -> None:
        self._kept[state.id] = state
        self._kept_bytes += ENTRY_BYTES + len(state.value)
        while self._kept_bytes > MOST_KEPT_BYTES:
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= ENTRY_BYTES + len(oldest.value)

    def _has_all_of(self, place: TopicPartition, job_id: str) -> bool:
        """Whether the job has no record before the beginning."""
        return place == self._place and job_id >= self._since_hex
