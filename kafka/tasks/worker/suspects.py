"""The queue of suspects: jobs leased from ``APP.QUEUE.suspect``, and when each may start.

They are fetched by record limit, as many as start at once, and before other jobs: as long as they come, nothing waits
in the pool, so that the next free slot is theirs. (With the pool filled ahead they waited until the queue itself was
empty: measured, the last of a killed worker's 250 jobs came up after 2.4 s behind 1,500 others, and would have come
after an hour behind an hour's backlog.) One that has a crash behind it runs *alone*: nothing else starts until it has
ended, so the next crash is surely its own; and nothing else is *held*: a lease that waits beside it would be charged
with that crash, too, without having started. So what came along is given back, and from then on suspects are asked for
one by one, until one comes that has no crash behind it. One that has none shares the pool: it is there because its
worker died, usually with hundreds of innocent ones in its buffer, and running them strictly one by one would make the
last wait for all the others (the promise is two seconds). A false crash can happen to it once, below the limit of
three; after that it is alone. No suspect starts while the worker moves jobs to the suspects and the broker has not
answered that they are settled: what dies of it then would be there twice. (Within limits: ``source_buffers.py``.)

One that has to be alone waits until the pool is empty, and slots idle meanwhile. So after a second it is given back,
and the others have their turn for as long; then it may wait for twice as long, and so on. It runs in the end, however
long the others take, and slots idle for about half of the time.

This decides; the worker leases and starts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import Final

from kafka.tasks.pools.base import Pool
from kafka.tasks.pools.runner import Job

EXPECT_SUSPECTS_S: Final = 0.25
"""After a suspect was leased the pool is not filled ahead for this long: more of them are to be expected."""

SHORT_JOB_S: Final = 0.01
"""Of jobs that take less on average, suspects are leased while all slots are taken, and twice as many as there are
slots: they start at once all the same, and each costs a part of a fetch instead of a whole one.
"""

BRIEF_JOB_S: Final = 1.0
"""Of jobs that take less on average one suspect is leased though all slots are taken, and waits for the next that is
free: behind a backlog there is no other moment, for what is here already takes each slot at once.
"""

ISOLATION_WAIT_S: Final = 1.0
"""So long a suspect that has to run alone waits for others to end, the first time."""


class Suspects:
    """Suspects that wait, and the one that runs alone."""

    __slots__ = (
        "_isolated", "_expected_until", "_last_had_crash", "_others_until", "_patience_s", "_waiting", "_waits_since",
    )  # fmt: skip

    def __init__(self) -> None:
        self._waiting: deque[Job] = deque()
        self._isolated: Job | None = None
        self._expected_until = 0.0
        self._last_had_crash = False  # the last that came had a crash behind it
        self._waits_since = 0.0  # the last of those
        self._patience_s = ISOLATION_WAIT_S
        self._others_until = 0.0  # until then none waits for the pool to be empty

    def add(self, job: Job, now: float) -> bool:
        """A suspect was leased. Returns True when it is the first for a while: the pool then gives back jobs that it
        has not started."""
        self._waiting.append(job)
        self._last_had_crash = job.crashes > 0
        if self._last_had_crash:
            self._waits_since = now
        is_first = now >= self._expected_until
        self._expected_until = now + EXPECT_SUSPECTS_S
        return is_first

    @property
    def has_isolated(self) -> bool:
        """One has a crash behind it, and runs alone or will: nothing else may be held."""
        return self._isolated is not None or self._next_isolated() is not None

    def take_surplus(self) -> list[Job]:
        """Suspects to give back, because one runs alone or will."""
        isolated: Job | None = None
        if self._isolated is None:
            isolated = self._next_isolated()
            if isolated is None:
                return []
        surplus = [job for job in self._waiting if job is not isolated]
        self._waiting = deque() if isolated is None else deque([isolated])
        return surplus

    def due_at(self, pool: Pool, held: int) -> float:
        """When the one that waits to run alone is to be given back; infinity: none waits for others to be gone.

        ``held``: leases of suspects, ended ones included.
        """
        if self._next_isolated() is None or (not pool.busy and held <= 1):
            return inf
        is_turn_of_others = self._waits_since < self._others_until
        return self._waits_since if is_turn_of_others else self._waits_since + self._patience_s

    def take_due(self, pool: Pool, held: int, now: float) -> Job | None:
        """The suspect that has waited for long enough."""
        job = self._next_isolated() if now >= self.due_at(pool, held) else None
        if job is None:
            return None
        self._waiting.remove(job)
        if self._waits_since >= self._others_until:
            self._others_until = now + self._patience_s
            self._patience_s *= 2
        return job

    def _next_isolated(self) -> Job | None:
        if self._isolated is not None:
            return None
        return next((job for job in self._waiting if job.crashes), None)

    def requeue(self, job: Job) -> None:
        """The pool had it and did not start it."""
        self.on_job_ended(job)
        self._waiting.appendleft(job)

    def on_job_ended(self, job: Job) -> None:
        """A job has ended in the pool."""
        if job is self._isolated:
            self._isolated = None

    def start(self, pool: Pool, held: int, is_moving: bool, submit: Callable[[Job], None]) -> bool:
        """Start those that may; whether other jobs may start too. ``held``: as of :meth:`due_at`."""
        if not pool.busy and not self._waiting:  # the next wait starts anew
            self._patience_s, self._others_until = ISOLATION_WAIT_S, 0.0
        while self._waiting and self._isolated is None and not is_moving:
            job = self._waiting[0]
            if job.lease.lost:
                self._waiting.popleft()
                continue
            if pool.busy >= (1 if job.crashes else pool.concurrency) or not pool.free_slots:
                return False
            if job.crashes and held > 1:
                return False
            self._waiting.popleft()
            if job.crashes:
                self._isolated = job
                self._patience_s, self._others_until = ISOLATION_WAIT_S, 0.0
            submit(job)
        return self._isolated is None

    def are_expected(self, now: float) -> bool:
        """The pool's next free slot is to be theirs."""
        return now < self._expected_until

    @property
    def have_priority(self) -> bool:
        """Whether nothing else is leased meanwhile."""
        return self._isolated is not None or bool(self._waiting)

    def room(self, pool: Pool, mean_s: float | None, unfinished: int) -> int:
        """How many to lease: as many as start at once; of short ones the next ones, too, since a fetch takes longer
        than they run. ``unfinished``: suspects that are here.
        """
        if self.has_isolated:
            return 0
        free = pool.concurrency - pool.busy
        least = 1 if mean_s is not None and mean_s <= BRIEF_JOB_S else 0
        if self._last_had_crash:
            return 0 if self._waiting else min(1, max(least, free))
        if mean_s is not None and mean_s <= SHORT_JOB_S:
            return max(0, 2 * pool.concurrency - unfinished)
        return 0 if self._waiting else max(least, free)

    def take_waiting(self) -> list[Job]:
        """Those that have not started, to be given back."""
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting
