"""The demo's worker processes: started, watched, ended.

They are ``python -m kafka worker`` as anybody would start it, each in a session of its own, so that Ctrl-C in the
terminal reaches the demo alone, which then ends them in order; their stdin is a pipe whose end tells them that the demo
was killed (``demo_tasks.py``). A worker that is killed is replaced, a few times; one
that ends by itself is not, because the next one would end for the same reason, and it has said why in its log.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Final, NamedTuple

REPLACEMENTS: Final = 3
"""Workers that are started in the place of killed ones, in a run."""

STOP_S: Final = 5.0
"""After SIGTERM, before SIGKILL."""


class _Process(NamedTuple):
    number: int
    process: subprocess.Popen[bytes]
    log_path: str


class Workers:
    """``count`` processes of ``python -m kafka worker ARGUMENTS``. Their logs go into ``directory``.

    ``undisturbed``: a block in which no signal strikes, so that no process is started and then forgotten.
    """

    def __init__(
        self,
        count: int,
        arguments: list[str],
        environment: Mapping[str, str],
        directory: str,
        undisturbed: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._count = count
        self._arguments = arguments
        self._environment = {**os.environ, "PYTHONPATH": _python_path(), **environment}
        self._directory = directory
        self._undisturbed = undisturbed
        self._running: list[_Process] = []
        self._started = 0

    @property
    def pids(self) -> list[int]:
        """The processes that were running when last looked at."""
        return [worker.process.pid for worker in self._running]

    def start(self) -> None:
        """Start all of them. OSError when a process cannot be had."""
        for _ in range(self._count):
            self._start_one()

    def check(self) -> Iterator[str]:
        """Look for workers that have ended, and replace killed ones. One line for each."""
        for worker in list(self._running):
            code = worker.process.poll()
            if code is None:
                continue
            self._running.remove(worker)
            _close(worker.process)
            text = f"worker {worker.number} (process {worker.process.pid}) {_ending(code)}"
            if code < 0 and self._started < self._count + REPLACEMENTS:
                self._start_one()
                yield f"{text}; another one takes its place"
            else:
                yield f"{text}: {_last_line(worker.log_path)}"

    def stop(self, patience_s: float = STOP_S) -> None:
        """End them all: SIGTERM, and SIGKILL for those that are there after ``patience_s``."""
        for worker in self._running:
            worker.process.terminate()
        give_up_at = time.monotonic() + patience_s
        for worker in self._running:
            try:
                worker.process.wait(max(0.0, give_up_at - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
            _close(worker.process)
        self._running.clear()

    def _start_one(self) -> None:
        self._started += 1
        log_path = os.path.join(self._directory, f"worker-{self._started}.log")
        command = [sys.executable, "-m", "kafka", "worker", *self._arguments]
        with self._undisturbed(), open(log_path, "wb") as log_file:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log_file,
                stderr=log_file,
                start_new_session=True,
                cwd=os.sep,
                env=self._environment,
            )
            self._running.append(_Process(self._started, process, log_path))


def _close(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()


def _python_path() -> str:
    """A path on which this very package is found first, wherever it was run from."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    given = os.environ.get("PYTHONPATH")
    return os.pathsep.join([root, *([given] if given else [])])


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _last_line(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read().strip().splitlines()
    except OSError:
        return "its log is gone"
    return lines[-1] if lines else "it said nothing"
