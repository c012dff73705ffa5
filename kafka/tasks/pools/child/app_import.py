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
def reporting_progress(tell: Callable[[str], object], what: str) -> Iterator[None]:
    """A block during which ``tell("importing ... for 5 s")`` is called now and then, in a thread that ends with it."""
    over = threading.Event()
    began_at = time.monotonic()

    def run() -> None:
        while not over.wait(PROGRESS_S):
            tell(f"importing {what} for {time.monotonic() - began_at:.0f} s")

    thread = threading.Thread(target=run, name="kafka-importing", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
