"""A thread for what would keep the loop waiting: syncing files, removing them.

    loop's thread      run(work, done) ──queue──> the thread: work()
                       done(result)   <──call_soon_threadsafe──┘      then the server's turn ends: Broker.tick

Work comes one piece after the other, in its order; what it may touch is its own arguments. Everything else of a broker
is in one thread, and stays there: ``done`` runs on the loop.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable
from typing import Any

from kafka.net.loop import Loop

log = logging.getLogger(__name__)

Work = tuple[Callable[[], Any], Callable[[Any], None]]
Result = tuple[Callable[[Any], None], Any, Exception | None]


class BackgroundThread:
    """An :class:`~kafka.broker.log.flushing.FileExecutor`. ``on_done`` is called on the loop after each ``done``.
    The thread starts with the first piece of work; while the system gives none, the loop does the work at once."""

    def __init__(self, loop: Loop, on_done: Callable[[], object] = lambda: None) -> None:
        self.on_done = on_done
        self._loop = loop
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[Result] = queue.SimpleQueue()
        self._under_way = 0
        self._thread: threading.Thread | None = None

    def run(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Have ``work`` done by the thread, and ``done`` called with its result on the loop."""
        if self._thread is None:
            thread = threading.Thread(target=self._serve, name="embedded-broker-files", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                log.warning("files are synced and removed without a thread, so requests wait for the disk: %s", error)
                done(work())
                return
            self._thread = thread
        self._under_way += 1
        self._work.put((work, done))

    def drain(self) -> None:
        """On the loop's thread: wait for all that is under way, and call what is to be called."""
        while self._under_way:
            self._finish(*self._results.get())

    def close(self) -> None:
        """Drain, and end the thread."""
        self.drain()
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
            self._thread = None

    def _serve(self) -> None:
        while (found := self._work.get()) is not None:
            work, done = found
            try:
                self._results.put((done, work(), None))
            except Exception as error:
                self._results.put((done, None, error))
            with contextlib.suppress(RuntimeError):  # the loop has ended: whoever ends it drains
                self._loop.call_soon_threadsafe(self._take_results)

    def _take_results(self) -> None:
        """What ``drain`` has not taken already."""
        while not self._results.empty():
            self._finish(*self._results.get())
        self.on_done()

    def _finish(self, done: Callable[[Any], None], result: Any, error: Exception | None) -> None:
        self._under_way -= 1
        if error is not None:
            raise error
        done(result)
