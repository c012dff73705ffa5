"""How long queues are: the brokers' backlog, shared out by what workers say that they hold. Pure.

    unfinished (brokers)  =  available  +  running

Both are seen at slightly different times, a snapshot of a worker being some seconds old: so ``available`` is what is
left, and never below 0. It includes jobs that a worker has leased and not begun. Jobs that wait in the schedule are in
neither.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from kafka.tasks.backends.base import QueueBacklog
from kafka.tasks.health.snapshot import WorkerSnapshot


class QueueLength(NamedTuple):
    """Jobs of a queue by where they are; ``dead``: records in its dead topic. ``paused``: workers lease none of its
    jobs; None: that is not known."""

    queue: str
    available: int
    running: int
    dead: int
    paused: bool | None = False


def queue_lengths(
    backlogs: Sequence[QueueBacklog], workers: Iterable[WorkerSnapshot], paused: Collection[str] | None = ()
) -> list[QueueLength]:
    """The lengths of these queues; ``workers``: all of the app's that live; ``paused``: queues that are, None: not
    known."""
    running = dict.fromkeys((each.queue for each in backlogs), 0)
    for worker in workers:
        for held in worker.queue_jobs:
            if held.queue in running:
                running[held.queue] += held.running
    return [
        QueueLength(
            queue,
            max(0, unfinished - running[queue]),
            running[queue],
            dead,
            None if paused is None else queue in paused,
        )
        for queue, unfinished, dead in backlogs
    ]
