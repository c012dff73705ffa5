"""The demo's app and its one task: what its workers import.

Each run of the demo has an app of its own, and so topics and groups of its own, which it can delete afterwards and in
which no other run takes its jobs (another machine has not the same files). Workers learn the run's name from the
environment (:data:`NAME_VARIABLE`), and end when their stdin does, which is a pipe that the demo holds open: so none
outlives a demo that was killed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any, Final

from kafka.cli.demo_words import count_words, result_of
from kafka.tasks import App, Task

NAME_VARIABLE: Final = "KAFKA_DEMO_APP"
QUEUE: Final = "files"
TASK: Final = "count"
WINDOW: Final = 2_000
"""Jobs of a run that are under way at once; results are kept by the client for somewhat more."""

REQUEST_S: Final = 15
"""Less than usual: the user sits and waits."""


def count(path: str) -> dict[str, Any]:
    """The words of one file, as ``demo_words.py`` describes."""
    return result_of(count_words(path))


def make_app(name: str) -> App:
    """The app of one run."""
    app = App(
        name, default_queue=QUEUE, partitions=4, result_view=2 * WINDOW, result_ttl=3600, request_timeout=REQUEST_S
    )
    app.task(name=TASK)(count)
    return app


def task_of(app: App) -> Task[[str], dict[str, Any]]:
    """The app's task."""
    return app.tasks[TASK]


def _end_with_stdin() -> None:
    while os.read(sys.stdin.fileno(), 64):
        pass
    os.kill(os.getpid(), signal.SIGKILL)  # no process waits for its jobs any more, and its broker is probably gone, too


if NAME_VARIABLE in os.environ:
    threading.Thread(target=_end_with_stdin, name="demo-lifeline", daemon=True).start()

app = make_app(os.environ.get(NAME_VARIABLE, "kafka-demo"))
