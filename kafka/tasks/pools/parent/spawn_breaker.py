"""When a child may be started: back-off, and the breaker that calls a pool degraded. Pure: time comes as an argument.

There are two kinds of failures. After a failed start (an import fails) the next starts follow after 0, 1, 2, 4 ... 60
s, one at a time. Children that crash with their jobs are first replaced at once, since one bad job may kill as many as
the crash limit; only many crashes in a row without a finished job cause the same delays. The breaker is open while too
many failed in a row *and* no child is up; a child that starts closes it.
"""

from __future__ import annotations

MAX_DELAY_S = 60.0

IMMEDIATE_RESTARTS = 10
"""Crashes in a row that are answered at once: three suspects at the crash limit of three, and one more."""


def delay_s(failures: int) -> float:
    """Seconds to wait after so many failures in a row: 0, 1, 2, 4 ... 60."""
    if failures <= 1:
        return 0.0
    return min(MAX_DELAY_S, 2.0 ** min(failures - 2, 10))


class SpawnBreaker:
    """Counts the failed starts and crashes of a pool's children."""

    def __init__(self, most_failures: int) -> None:
        self.boot_failures = 0
        self.crashes = 0
        self.ever_up = False
        self.next_at = 0.0
        """No child may start before."""
        self.last_error = ""
        """The last failure."""
        self._most_failures = most_failures
        self._failed_at = float("-inf")

    @property
    def one_at_a_time(self) -> bool:
        """Whether the next child is a try: no other may be under way beside it."""
        return self.boot_failures > 0

    def on_child_up(self) -> None:
        """A child came up."""
        self.ever_up = True
        self.boot_failures = 0

    def on_job_done(self) -> None:
        """A job has ended."""
        self.crashes = 0

    def on_boot_failure(self, now: float, started_at: float, why: str) -> None:
        """A child that was started at ``started_at`` will never be up. Those that began together count once."""
        self.last_error = why
        if started_at < self._failed_at:
            return
        self._failed_at = now
        self.boot_failures += 1
        self.next_at = max(self.next_at, now + delay_s(self.boot_failures))

    def on_crash(self, now: float, why: str, lived_s: float = 0.0) -> None:
        """A child that was up died without being killed by the worker. One that had lived for long starts a new
        count."""
        self.last_error = why
        self.crashes = 1 if lived_s > MAX_DELAY_S else self.crashes + 1
        self.next_at = max(self.next_at, now + delay_s(self.crashes - IMMEDIATE_RESTARTS))

    def open_reason(self, now: float) -> str | None:
        """Why the breaker is open (for a pool with no child up); None: it is closed. Of a pool that never had one no
        next try is announced: its worker ends."""
        if self.boot_failures >= self._most_failures:
            what = f"{self.boot_failures} child starts failed in a row"
        elif self.crashes >= IMMEDIATE_RESTARTS + self._most_failures:
            what = f"{self.crashes} children died in a row without finishing a job"
        else:
            return None
        wait = f"; next attempt in {max(0.0, self.next_at - now):.0f} s" if self.ever_up else ""
        return f"{what}{wait}; last error: {self.last_error}"
