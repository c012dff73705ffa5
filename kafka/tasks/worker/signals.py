"""What the signals that a worker's process gets do to the worker, and what the log says of them.

A stop signal that comes twice within :data:`REPEAT_S` is one: what runs a worker (honcho, foreman, an init of a
container, a shell with Ctrl-C) often signals both the process and its process group. The second one must not raise
SoftTimeLimit in jobs that may still end by themselves. Signals of other numbers, and later ones, count.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Mapping
from typing import Final

from kafka.tasks.worker.dump import dump
from kafka.tasks.worker.shutdown import WorkerStage
from kafka.tasks.worker.worker import Worker

log = logging.getLogger(__name__)

SIGNALS: Mapping[str, Callable[[Worker, float], object]] = {
    "SIGTERM": lambda worker, now: worker.stop(),
    "SIGINT": lambda worker, now: worker.stop(),
    "SIGHUP": lambda worker, now: worker.stop_gracefully(),
    "SIGTTIN": lambda worker, now: worker.resize(1),
    "SIGTTOU": lambda worker, now: worker.resize(-1),
    "SIGUSR1": dump,
}
"""What each signal does: stop, and each further one goes a stage further; stop, and no further; a slot more; a slot
less; write state and stacks to the log. Those that the platform lacks are left out.
"""

STOP_SIGNALS: Final = frozenset({"SIGTERM", "SIGINT", "SIGHUP"})

REPEAT_S: Final = 1.0
"""A stop signal that comes again within this time does nothing."""

_STAGES: Final = {
    WorkerStage.DRAINING: ("waiting {time}for {jobs}", "to raise SoftTimeLimit in {them}"),
    WorkerStage.INTERRUPTING: ("raised SoftTimeLimit in {jobs}, waiting {time}for {them}", "to kill {them}"),
    WorkerStage.ABANDONING: ("ending the running jobs, which return to their queues", "to leave at once"),
}
"""For each stage: what the worker does now, and what the next signal does."""


class SignalHandler:
    """Applies the signals to one worker. Before there is one (:meth:`attach`) they can stop it, and show the stacks.

    A further stop signal before there is one is a SystemExit with code 0, which ends the loop that runs meanwhile.
    """

    def __init__(self) -> None:
        self._worker: Worker | None = None
        self._stopped_at: dict[str, float] = {}

    def attach(self, worker: Worker) -> None:
        """The signals are for this worker, which stops when a stop signal has come already."""
        self._worker = worker
        if self._stopped_at:
            worker.stop()

    def received(self, signum: int, now: float) -> None:
        """A signal has come, at ``now`` (monotonic seconds). SystemExit: see the class."""
        name = signal.Signals(signum).name
        worker = self._worker
        if worker is None:
            if name in STOP_SIGNALS:
                self._stop_start(name, now)
            elif name == "SIGUSR1":
                dump(None, now)
            return
        if name not in STOP_SIGNALS:
            SIGNALS[name](worker, now)
            return
        if self._is_repeated(name, now):
            return
        self._stopped_at[name] = now
        SIGNALS[name](worker, now)
        log.info("received %s: %s", name, describe_stop(worker, name, now))

    def _stop_start(self, name: str, now: float) -> None:
        """The first one waits for the start, which may take until the time-out of a broker that does not answer; a
        further one does not."""
        if self._is_repeated(name, now):
            return
        is_further = bool(self._stopped_at) and name != "SIGHUP"
        self._stopped_at[name] = now
        if is_further:
            log.info("received %s: the worker has not started yet, and leaves at once", name)
            raise SystemExit(0)
        again = "SIGTERM" if name == "SIGHUP" else "it again"
        log.info(
            "received %s: the worker is starting, and leaves when it has started; send %s to leave at once", name, again
        )

    def _is_repeated(self, name: str, now: float) -> bool:
        last = self._stopped_at.get(name)
        if last is None or now - last >= REPEAT_S:
            return False
        log.info("ignored a second %s within %g s of the first", name, REPEAT_S)
        return True


def describe_stop(worker: Worker, name: str, now: float) -> str:
    """What the worker does after the stop signal ``name``, and what the next one does."""
    count = len(worker.running())
    if worker.stage not in _STAGES:
        return "leaving, while jobs are running" if count else "no job is running, leaving"
    if not count and worker.stage is not WorkerStage.ABANDONING:
        return "no job is running, leaving"
    does, then = _STAGES[worker.stage]
    jobs, them = ("1 running job", "it") if count == 1 else (f"{count} running jobs", "them")
    time = f"up to {worker.stage_ends_at - now:.3g} s " if worker.stage_ends_at < float("inf") else ""
    again = "send SIGTERM" if name == "SIGHUP" else "send it again"
    return f"{does}; {again} {then}".format(jobs=jobs, them=them, time=time)
