"""The garbage collector in a worker's process, which runs no task, and in its children, which do.

A worker makes dozens of objects for each job and keeps them for as long as the job is under way, thousands of jobs at
once; none of them is in a cycle, so there is nothing for the collector to find. With Python's own threshold of 700
objects it looked all the same, several times for each batch of jobs: a tenth of the worker's CPU time, measured with
``perf``; with 50,000 still once for each batch. The children have the thresholds that the app's modules have left: what
tasks make is not known here.
"""

from __future__ import annotations

import gc

REDUCED_THRESHOLD = 250_000
"""Objects more than at the last look."""

_before: tuple[int, int, int] | None = None


def reduce_collections() -> None:
    """In the process of a worker whose jobs run elsewhere: look seldom, and never at what is there now. A collector
    that the app has switched off, or set to look even more seldom, is left alone.
    """
    global _before
    youngest, older, oldest = gc.get_threshold()
    if 0 < youngest < REDUCED_THRESHOLD:
        _before = (youngest, older, oldest)
        gc.collect()
        gc.freeze()
        gc.set_threshold(REDUCED_THRESHOLD, older, oldest)


def restore_thresholds() -> None:
    """In a child that was forked from a process that is calm: what the app has set holds again."""
    global _before
    if _before is not None:
        gc.set_threshold(*_before)
        _before = None
