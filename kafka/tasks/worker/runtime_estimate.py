"""How many jobs to hold, from how long they take: pure arithmetic over a measured mean.

Short jobs are leased by the hundreds into a local buffer; long ones one for each free slot. Three bounds on
what is held and has not ended, the smallest holds, and the slots themselves are always filled:

* what starts within a third of the lock, so that waiting jobs need no renewal;
* what one worker starts again within a second after this one was killed: the suspects of a queue are fetched one by one
  (about 3 ms each beside their own time);
* ``MAX_HELD_JOBS``, since the broker's window is a span of offsets that others share.

A slot whose job runs for far longer than the mean counts for nothing: what is held waits for the others. With all slots
taken by such jobs nothing is held beside them, or short jobs would wait here while other workers idle.
"""

from __future__ import annotations

PRODUCER_BATCH_RECORDS = 64
"""Records that a producer of jobs puts into a batch at most, about. The broker sends a batch again for each part of it
that is asked for, so a worker that leases by the hundreds asks for multiples of this: with other numbers, a third more
records than are leased come and are passed over."""
MAX_HELD_JOBS = 1024
RECOVERY_S = 1.0
SUSPECT_FETCH_S = 0.003
POOL_AHEAD_S = 0.025
"""Work that a pool has beyond its running jobs: enough until the loop's next turn, with five GIL turns between."""
STUCK_S = 0.1
STUCK_FACTOR = 10
"""A job that runs for more than ``STUCK_FACTOR`` means, and for ``STUCK_S`` at least, is a long one among short
ones."""
_WEIGHT = 0.2


class RuntimeEstimate:
    """The measured time of a queue's jobs and what follows from it."""

    __slots__ = ("mean_s", "slots")

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.mean_s: float | None = None

    def set_slots(self, count: int) -> None:
        """So many jobs run at once now."""
        self.slots = count

    def observe(self, total_s: float, count: int) -> None:
        """Learn from ``count`` jobs that have just ended and took ``total_s`` together."""
        mean = total_s / count
        if self.mean_s is None:
            self.mean_s = mean
        else:
            weight = 1 - (1 - _WEIGHT) ** min(count, 50)
            self.mean_s += weight * (mean - self.mean_s)

    @property
    def stuck_after_s(self) -> float:
        """A job that is with the pool for longer takes its slot for the time being."""
        return STUCK_S if self.mean_s is None else max(STUCK_S, STUCK_FACTOR * self.mean_s)

    def most_held(self, lock_s: float, stuck: int = 0) -> int:
        """Jobs, buffered and running, that may be held at once; ``stuck`` slots are taken by long ones."""
        slots = self.slots - stuck
        if slots <= 0 or self.mean_s is None:
            return self.slots
        by_lock = slots * lock_s / 3 / max(self.mean_s, 1e-6)
        by_recovery = RECOVERY_S / (self.mean_s + SUSPECT_FETCH_S)
        return max(self.slots, int(min(by_lock, by_recovery, MAX_HELD_JOBS)))

    def depth(self) -> int:
        """Jobs to have with the pool at once."""
        if self.mean_s is None:
            return self.slots
        return self.slots + min(int(POOL_AHEAD_S * self.slots / max(self.mean_s, 1e-6)), 256)
