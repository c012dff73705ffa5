"""A worker process: app, loop, signals, pool and back end put together, until the worker has left.

The loop is the caller's, or one of its own. SIGTERM and SIGINT stop the worker, each further one goes a stage further;
SIGHUP stops it as SIGTERM does. The loop reads signals from a pipe: nothing of ours runs inside a handler.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kafka.tasks.app import App
from kafka.tasks.errors import UnknownQueue, did_you_mean
from kafka.tasks.pools import check_pool, make_loop, make_pool
from kafka.tasks.runner import run
from kafka.tasks.worker import Timers, Worker, WorkerOptions

log = logging.getLogger(__name__)

STOPPING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))
"""Signals that stop the worker, or its present stage of stopping."""


class ServeLoop(Timers, Protocol):
    """The loop that a worker runs on: :class:`kafka.net.loop.Loop` has this surface."""

    def call_soon_threadsafe(self, callback: Callable[..., Any]) -> Any:
        """Call back on the loop's thread; from any thread."""

    def watch_signals(self, callback: Callable[[int], object], *signums: int) -> Any:
        """Call back on the loop for each signal; the returned watch has ``close()``."""

    def run_forever(self) -> None:
        """Run until :meth:`stop`."""

    def stop(self) -> None:
        """End :meth:`run_forever`."""


def check_queues(app: App, queues: Sequence[str]) -> list[str]:
    """The queues to work on: those given, all of the app's when none is; :class:`UnknownQueue` for another."""
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
) -> Worker:
    """Run a worker until it is stopped and has left; returns it, with its counts.

    In the main thread signals stop it; in another, whoever got it through ``on_start`` does, on the loop's thread:
    ``loop.call_soon_threadsafe(worker.stop)``.

    Raises before anything is leased: :class:`UnknownQueue` and :class:`kafka.errors.IllegalArgumentError` for a wrong
    use, the clients' errors when the broker cannot be reached. Raises afterwards: what ended its membership in a
    queue's group, if that is why it stopped.
    """
    wanted = check_queues(app, queues)
    check_pool(pool)
    if loop is None:
        with contextlib.closing(make_loop()) as own:
            return run_worker(app, wanted, pool, concurrency, own, on_start)
    backend = app.backend()
    options = WorkerOptions(
        app.settings.crash_limit, app.settings.stop_grace, app.settings.kill_grace, app.settings.track_started
    )
    worker = Worker(app.tasks, app.names, wanted, loop, backend.clock.now_ms, socket.gethostname(), options, loop.stop)
    slots = make_pool(pool, run, concurrency, lambda: loop.call_soon_threadsafe(worker.finished))
    with contextlib.ExitStack() as ends:
        ends.callback(app.close)
        ends.callback(slots.stop, 0.0)
        if threading.current_thread() is threading.main_thread():
            ends.callback(loop.watch_signals(lambda _: worker.stop(), *STOPPING).close)
        worker.start(backend.worker_side(loop, wanted, worker), slots)
        log.info("worker of app %s: queues %s, pool %s of %d", app.name, ", ".join(wanted), pool, slots.concurrency)
        on_start(worker)
        loop.run_forever()
    if worker.error is not None:
        raise worker.error
    return worker
