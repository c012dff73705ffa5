"""What benchmarks run against, and the report that they share.

``broker`` is each broker in turn: the embedded one, in a process of its own, and Apache Kafka 4.3.0 with the JVM as it
comes (the tests' flags for a fast start halve its speed later). Everything started here is ended here.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

import pytest

from kafka.tasks import App
from kafka.testing import EmbeddedBroker
from test.benchmarks.jobs import NAME_VARIABLE, make_app, worker_command
from test.benchmarks.report import Report
from test.support.apache_kafka import LATEST, ApacheKafka, require_apache_kafka

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
STOP_S = 40.0
CONCURRENCY = 4


class Broker(NamedTuple):
    """A broker under measurement: its name in the report, and where it is."""

    name: str
    bootstrap: str


@pytest.fixture(scope="session")
def report() -> Iterator[Report]:
    """Prints its table when all is done."""
    found = Report()
    yield found
    print("\n".join(found.lines()), flush=True)


def apache_kafka() -> ApacheKafka:
    """The latest release, with the JVM as it comes; not started yet."""
    require_apache_kafka(LATEST)
    return ApacheKafka(LATEST, jvm=("-Xms1g", "-Xmx1g"))


@pytest.fixture(scope="session", params=["embedded", "apache"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """Each broker in turn, one at a time."""
    if request.param == "embedded":
        with EmbeddedBroker() as embedded:
            yield Broker("embedded", embedded.bootstrap)
    else:
        with apache_kafka() as apache:
            yield Broker(f"Apache Kafka {LATEST}", apache.bootstrap)


@pytest.fixture
def app(broker: Broker) -> Iterator[App]:
    """An app that nobody has used."""
    found = make_app(f"bench-{uuid.uuid4().hex[:8]}", broker.bootstrap)
    yield found
    found.close(10)


@contextmanager
def running(
    command: Sequence[str], folder: pathlib.Path, log: pathlib.Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process from its start to its sure end; what it says goes to the end of ``log``."""
    with open(log, "ab") as said:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT
        )
    try:
        yield process
        assert process.poll() is None, f"{command[0]} has ended by itself\n{log.read_text()[-2000:]}"
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


StartWorker = Callable[[], AbstractContextManager[subprocess.Popen[bytes]]]


@pytest.fixture
def start_worker(app: App, broker: Broker, tmp_path: pathlib.Path) -> StartWorker:
    """``with start_worker():`` one worker process with the threads pool, from its start to its end."""
    flags = ["--pool", "threads", "--concurrency", str(CONCURRENCY)]
    command = worker_command(sys.executable, "test.benchmarks.jobs:app", broker.bootstrap, flags)
    return lambda: running(command, ROOT, tmp_path / "log", {**os.environ, NAME_VARIABLE: app.name})
