"""A worker process: app, loop, signals, pool, back end and health put together, until the worker has left.

The loop is the caller's, or one of its own, and everything of the worker's is on it. The loop reads signals from a
pipe, so no handler runs code of the worker. The pool is made before there is a connection, so that the first children
inherit none, and no thread is started before (a worker's process has none, as long as no module of tasks enqueues jobs
while it is imported).
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kafka.errors import IllegalArgumentError
from kafka.tasks.app import App
from kafka.tasks.backends.base import ScheduleMember
from kafka.tasks.errors import JobsNotSent, UnknownQueue, counted, did_you_mean
from kafka.tasks.health import JobMetrics, Monitor
from kafka.tasks.pools import PROCESS_POOLS, PoolSettings, check_pool, make_loop, make_pool
from kafka.tasks.pools.gc_tuning import reduce_collections
from kafka.tasks.pools.job_logging import show_jobs
from kafka.tasks.worker.job_log import JobLog
from kafka.tasks.worker.observer import JobObserver
from kafka.tasks.worker.signals import SIGNALS, SignalHandler
from kafka.tasks.worker.worker import Worker, WorkerOptions, WorkerTimers

log = logging.getLogger(__name__)


class ServeLoop(WorkerTimers, Protocol):
    """The loop that a worker runs on: :class:`kafka.net.loop.Loop` has this surface."""

    def call_soon_threadsafe(self, callback: Callable[..., Any]) -> Any:
        """Call back on the loop's thread; from any thread."""

    def watch_signals(self, callback: Callable[[int], object], *signums: int) -> Any:
        """Call back on the loop for each signal; the returned watch has ``close()``."""

    def run_forever(self) -> None:
        """Run until :meth:`stop`."""

    def stop(self) -> None:
        """End :meth:`run_forever`."""


class PoolWake:
    """What a pool calls, on any thread, when jobs have ended or it can take some. The pool is there before the worker,
    which asks it when it starts."""

    def __init__(self, loop: ServeLoop) -> None:
        self._loop = loop
        self._worker: Worker | None = None

    def attach(self, worker: Worker) -> None:
        """Call this worker from now on."""
        self._worker = worker

    def __call__(self) -> None:
        self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if self._worker is not None:
            self._worker.finished()


def check_queues(app: App, queues: Sequence[str]) -> list[str]:
    """The given queues, or all queues of the app; :class:`UnknownQueue` for an unknown one, IllegalArgumentError for
    one text."""
    if isinstance(queues, str):
        raise IllegalArgumentError(f"queues must be a list of queue names, such as [{queues!r}], not {queues!r}")
    for queue in queues:
        if queue not in app.queues:
            hint = did_you_mean(queue, app.queues)
            raise UnknownQueue(f"no task of the app {app.name!r} uses the queue {queue!r}{hint}")
    return list(dict.fromkeys(queues)) or list(app.queues)


def run_worker(
    app: App,
    queues: Sequence[str] = (),
    pool: str = "threads",
    concurrency: int = 1,
    loop: ServeLoop | None = None,
    on_start: Callable[[Worker], object] = lambda _: None,
    *,
    settings: PoolSettings | None = None,
    health: str | None = None,
    is_alone: bool = False,
    log_jobs: bool = True,
    schedule: bool | None = None,
) -> Worker:
    """Run a worker until it is stopped and has left; returns it, with its counts.

    ``settings``: all that can be said about the pool, ``concurrency`` included. ``health``: PORT or HOST:PORT where
    probes and scrapes are answered. ``is_alone``: the process is the worker's own. When tasks do not run in it, its
    garbage collector is set to look seldom (:mod:`kafka.tasks.pools.gc_tuning`); when they do, its log handlers show
    which job a line is of (:mod:`kafka.tasks.pools.job_logging`). ``log_jobs``: what happens to jobs is logged at INFO
    (:mod:`kafka.tasks.worker.job_log`). ``schedule``: the worker owns partitions of the schedule; None: if tasks do not
    run in its process, where they could hold up its loop.

    In the main thread signals stop it (:mod:`kafka.tasks.worker.signals`), by a SystemExit of code 0 when a second one
    comes while it connects; in another thread, the caller stops the worker that ``on_start`` got, on the loop's thread:
    ``loop.call_soon_threadsafe(worker.stop)``.

    Raises before anything is leased: :class:`UnknownQueue` and :class:`kafka.errors.IllegalArgumentError` for a wrong
    use, the clients' errors when the broker cannot be reached, OSError when the port cannot be had. Raises afterwards:
    what ended its membership in a queue's group, if that is why it stopped; :class:`kafka.tasks.errors.PoolFailed` when
    no child has ever come up.
    """
    names = check_queues(app, queues)
    check_pool(pool)
    if pool in PROCESS_POOLS and app.is_in_process:
        raise IllegalArgumentError(
            f"the jobs of app {app.name} stay in this process ({app.settings.bootstrap_servers}), and the pool "
            f"{pool!r} has processes of its own: use 'threads', 'asyncio' or 'inline'"
        )
    if loop is None:
        with contextlib.closing(make_loop()) as own:
            return run_worker(
                app, names, pool, concurrency, own, on_start,
                settings=settings, health=health, is_alone=is_alone, log_jobs=log_jobs, schedule=schedule,
            )  # fmt: skip
    settings = filled(settings or PoolSettings(concurrency, kill_grace=app.settings.kill_grace), app)
    backend = app.backend()
    options = WorkerOptions(
        app.settings.crash_limit,
        app.settings.stop_grace,
        settings.kill_grace,
        app.settings.track_started,
        settings.timeout,
        settings.soft_timeout,
        app.settings.unknown_ttl,
    )
    job_log = JobLog(loop)
    job_metrics = JobMetrics(backend.clock.now_ms)
    observers: list[JobObserver] = [job_log] if log_jobs else []
    if health is not None:
        observers.append(job_metrics)
    tasks = {**{alias: task for task in app.tasks.values() for alias in task.aliases}, **app.tasks}
    now_ms, host = backend.clock.now_ms, socket.gethostname()
    signals, wake = SignalHandler(), PoolWake(loop)
    with contextlib.ExitStack() as ends:
        ends.callback(job_log.close)
        ends.callback(_disconnect, app)
        if threading.current_thread() is threading.main_thread():
            ends.callback(_watch_signals(loop, signals).close)
        any_loop: Any = loop  # pools of processes watch descriptors on it
        slots = make_pool(pool, settings, wake, any_loop)
        ends.callback(slots.stop, 0.0)
        monitor = Monitor(app.name, names, pool, loop, job_metrics)
        ends.callback(monitor.close)
        if health is not None:
            monitor.listen(health)
        if is_alone:
            reduce_collections() if pool in PROCESS_POOLS else show_jobs()
        is_owner = pool in PROCESS_POOLS if schedule is None else schedule
        worker_backend = backend.worker_backend(loop, names, is_owner, app.declared, app.ordered_queues)
        worker = Worker(
            tasks, app.names, loop, now_ms, host, worker_backend, slots, options, loop.stop, observers=observers
        )
        signals.attach(worker)
        wake.attach(worker)
        worker.start()
        monitor.start(worker, worker_backend)
        log.info(
            "worker started: app %s, queues %s, pool %s with %s",
            app.name,
            ", ".join(names),
            pool,
            counted(slots.concurrency, "slot"),
        )
        on_start(worker)
        loop.run_forever()
    if worker.error is not None:
        raise worker.error
    return worker


def run_scheduler(
    app: App, loop: ServeLoop | None = None, on_start: Callable[[ScheduleMember], object] = lambda _: None
) -> None:
    """Own partitions of the app's schedule, and run no jobs, until a signal comes or the loop is stopped.

    Signals are watched in the main thread. Raises the clients' errors when the broker cannot be reached, or does not
    permit what an owner needs.
    """
    if loop is None:
        with contextlib.closing(make_loop()) as own:
            run_scheduler(app, own, on_start)
            return
    with contextlib.ExitStack() as ends:
        ends.callback(_disconnect, app)
        member = app.backend().schedule_member(loop, app.declared)
        stops: list[int] = []

        def stop(number: int = 0) -> None:
            stops.append(number)
            if len(stops) > 1:
                loop.stop()
            else:
                member.close().add_both(lambda _: loop.stop())

        if threading.current_thread() is threading.main_thread():
            numbers = [signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
            ends.callback(loop.watch_signals(stop, *numbers).close)
        member.start()
        log.info("scheduler started: app %s", app.name)
        on_start(member)
        loop.run_forever()
        log.info("scheduler stopped: %s written to their queues", counted(member.snapshot().moved, "job"))


def _disconnect(app: App) -> None:
    """Jobs that its tasks could not enqueue are the errors of these tasks' runs, and in the log."""
    with contextlib.suppress(JobsNotSent):
        app.close()


def filled(settings: PoolSettings, app: App) -> PoolSettings:
    """The settings completed from the app; an error for a limit that contradicts a task's."""
    for task in app.tasks.values():
        soft, hard = task.own_options.soft_timeout, task.own_options.timeout
        if soft is not None and hard is None and settings.timeout is not None and soft >= settings.timeout:
            raise IllegalArgumentError(
                f"the soft_timeout of {task.name} ({soft:g} s) must be below the worker's timeout "
                f"({settings.timeout:g} s)"
            )
        if hard is not None and soft is None and settings.soft_timeout is not None and settings.soft_timeout >= hard:
            log.warning(
                "ignoring the worker's soft timeout (%g s) for task %s: its timeout is %g s",
                settings.soft_timeout,
                task.name,
                hard,
            )
    return dataclasses.replace(settings, app=app)


def _watch_signals(loop: ServeLoop, handler: SignalHandler) -> Any:
    numbers = [getattr(signal, name) for name in SIGNALS if hasattr(signal, name)]
    return loop.watch_signals(lambda number: handler.received(number, loop.time()), *numbers)
