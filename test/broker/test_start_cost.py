"""A broker starts quickly because it imports little: what it imports is held here, and what processor time it takes.

Under 300 ms from the command to ``listening``, on a machine that is not busy. Nine tenths of a start are imports, so
what is new and not needed by everybody is imported where it is first used (``kafka/broker/registry.py``,
``Broker.groups``). Where nothing may be compiled beforehand (PYTHONDONTWRITEBYTECODE) it takes twice as long.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from functools import cache

import pytest

import kafka

BUDGET_S = 0.3
MOST_MODULES = 125
"""Ours: 111 of 241 with Python 3.11; with all handlers it would be 220 of 350. Others are not counted: how the package
is installed adds some."""

START = """
import os, sys
from kafka.cli import main
from kafka.broker import process

def run(self):
    used = os.times()
    print(used.user + used.system, *sorted(sys.modules))
    self._shut()

process.RunningBroker.run = run
main(["broker", "--data-dir", sys.argv[1], "--port", "0"])
"""


@cache
def start(data_dir: str) -> tuple[float, frozenset[str]]:
    """The processor time of a process until it listens, in s, and the modules that it has then imported."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["PYTHONPATH"] = str(pathlib.Path(kafka.__path__[0]).parent)
    command = [sys.executable, "-c", START, data_dir]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    listening, told = done.stdout.splitlines()
    assert listening.startswith("listening on ")
    seconds, *modules = told.split()
    return float(seconds), frozenset(modules)


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> frozenset[str]:
    return start(str(tmp_path_factory.mktemp("first")))[1]


@pytest.mark.parametrize(
    "package",
    [
        "asyncio", "dataclasses", "inspect", "ssl", "kafka.broker.control", "kafka.broker.faults",
        "kafka.broker.groups", "kafka.broker.handlers.fetch", "kafka.broker.handlers.metadata",
        "kafka.broker.listener_security", "kafka.broker.share.partition", "kafka.client", "kafka.core.sasl",
        "kafka.net.tls", "kafka.protocol.groups", "kafka.protocol.share",
    ],
)  # fmt: skip
def test_what_a_broker_may_never_need_is_not_imported_at_its_start(package: str, modules: frozenset[str]) -> None:
    assert package not in modules


def test_a_start_imports_few_modules(modules: frozenset[str]) -> None:
    assert len([name for name in modules if name.partition(".")[0] == "kafka"]) <= MOST_MODULES


def test_a_start_takes_less_than_its_budget_of_processor_time(tmp_path: pathlib.Path) -> None:
    """The best of several, as a machine with other work to do has colder caches."""
    assert min(start(str(tmp_path / str(number)))[0] for number in range(5)) <= BUDGET_S
