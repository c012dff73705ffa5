"""Loading the app in a process that is not forked from the worker: the user's code, which may take long. Progress is
reported every few seconds.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from kafka.tasks.app import App
from kafka.tasks.worker.loader import load

PROGRESS_S = 5.0
"""An import that takes longer is reported, and again after each such interval."""


def load_app(spec: dict[str, Any]) -> App:
    """The app of a spec, connected as the worker's is."""
    app = load(spec["app"], spec["directory"])
    if spec["servers"] is not None:
        app.connect_to(spec["servers"], **spec["client"])
    return app


@contextlib.contextmanager
def reporting_progress(report: Callable[[str], object], what: str) -> Iterator[None]:
    """A block during which ``report("importing ... for 5 s")`` is called every few seconds, in a thread of its own."""
    has_ended = threading.Event()
    started_at = time.monotonic()

    def run() -> None:
        while not has_ended.wait(PROGRESS_S):
            report(f"importing {what} for {time.monotonic() - started_at:.0f} s")

    thread = threading.Thread(target=run, name="kafka-importing", daemon=True)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()
