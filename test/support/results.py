"""What a run of pytest leaves for those who come after it: failures at once, their record, and durations of parts.

Registered by ``conftest.py`` in the process that reports. ``.ci/run`` reads the record to decide about reruns
(``flaky.py``).
"""

from __future__ import annotations

import json
import os
import pathlib
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Final, NamedTuple

import pytest

from test.support import seeds
from test.support.parts import part_of, write_durations

VARIABLE: Final = "KAFKA_TEST_RESULTS"
"""The file that the record is written to; none is written where it is not set."""


class Results(NamedTuple):
    """``failed``: test id -> its first traceback. ``crashed``: tests during which an interpreter ended.

    ``complete``: pytest came to its end, and nothing but tests failed (no error of collection, no interrupt).
    """

    environment: str
    seed: int
    passed: int
    failed: Mapping[str, str]
    crashed: tuple[str, ...]
    complete: bool


def read(path: pathlib.Path) -> Results | None:
    """The record of a run; None where it has left none."""
    if not path.exists():
        return None
    row = json.loads(path.read_text())
    return Results(**row | {"crashed": tuple(row["crashed"])})


class Recorder:
    """A plug-in of pytest for the controller, or for the one process of a run."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._passed = 0
        self._failed: dict[str, str] = {}
        self._crashed: list[str] = []
        self._collected = True
        self._seconds: dict[str, float] = defaultdict(float)
        self._began = time.monotonic()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """An error of collection is no failure of a test."""
        self._collected = self._collected and not report.failed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print a failure when it happens: a long run is not waited for."""
        self._seconds[part_of(report.nodeid)] += getattr(report, "duration", 0.0)
        self._passed += report.when == "call" and report.passed
        if not report.failed:
            return
        # So pytest-xdist reports the test that a process ran when it ended.
        if getattr(report, "when", "") == "???":
            self._crashed.append(report.nodeid)
        self._failed.setdefault(report.nodeid, report.longreprtext)
        terminal = self._config.pluginmanager.getplugin("terminalreporter")
        if terminal is not None:
            minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
            terminal.write_line("")
            terminal.write_line(f"FAILED after {minutes}:{seconds:02d}: {report.nodeid}", red=True)
            terminal.write_line(report.longreprtext)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write the record, and the durations where they are asked for."""
        if self._config.getoption("--record-durations"):
            every_test = self._config.args_source is pytest.Config.ArgsSource.TESTPATHS
            is_deep = self._config.getoption("--tier") == "deep"
            write_durations(self._seconds, keep_others=not (every_test and is_deep))
        path = os.environ.get(VARIABLE)
        if path is None:
            return
        complete = self._collected and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        environment = os.environ.get("TOX_ENV_NAME", "")
        found = Results(environment, seeds.run_seed(), self._passed, self._failed, tuple(self._crashed), complete)
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
        pathlib.Path(path).write_text(json.dumps(found._asdict()))

