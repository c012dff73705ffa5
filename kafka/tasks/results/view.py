"""What a client keeps of the state records that it has read: the best record of each job.

:class:`ResultView` is fed the records of one results partition in log order and reads no Kafka itself.
"""

from __future__ import annotations

from collections import OrderedDict

from kafka.tasks.format.records import StateRecord
from kafka.tasks.states import READY

MOST_VIEW_BYTES = 64 * 1024 * 1024
"""Of the values that a :class:`ResultView` keeps, however few jobs they are of."""


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
