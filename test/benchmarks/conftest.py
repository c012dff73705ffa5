"""What benchmarks run against, and the reports that they share.

``broker`` is each broker in turn: the embedded one, in a process of its own, and Apache Kafka 4.3.0 with the JVM as it
comes (the tests' flags for a fast start halve its speed later). ``place`` is each of them beside each kind of install,
for the task queue: workers, callers and the embedded broker are then of that install. Everything started here is ended
here.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from kafka.testing import EmbeddedBroker
from test.benchmarks.installs import KINDS, Installed, NotInstalled, install
from test.benchmarks.places import JOBS, PATIENCE_S, PREFORK, Place
from test.benchmarks.processes import listens, running
from test.benchmarks.report import Report
from test.support.apache_kafka import LATEST, ApacheKafka, require_apache_kafka
from test.support.peers import foreign_environment
from test.support.ports import free_ports
from test.support.waiting import until

OLDER = "3.9.1"
"""The newest release without share groups."""

WARM_UP = 6
"""Apache Kafka has a drain of so many times :data:`JOBS` before: its just-in-time compiler."""


class Broker(NamedTuple):
    """A broker under measurement: its name in the report, and where it is."""

    name: str
    bootstrap: str


@pytest.fixture(scope="module")
def figures() -> Iterator[Report]:
    """A module's table, printed at its end."""
    yield from _printed()


@pytest.fixture(scope="session")
def queue_figures() -> Iterator[Report]:
    """The table of the task queue, of ``test_pools.py`` and ``test_queue.py``, printed when all is done."""
    yield from _printed()


def _printed() -> Iterator[Report]:
    found = Report()
    yield found
    print("\n".join(found.lines()), flush=True)


def apache_kafka(release: str = LATEST) -> ApacheKafka:
    """A release, with the JVM as it comes; not started yet."""
    require_apache_kafka(release)
    return ApacheKafka(release, jvm=("-Xms1g", "-Xmx1g"))


@pytest.fixture(scope="module", params=["embedded", "apache"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """Each broker in turn, one at a time."""
    if request.param == "embedded":
        with EmbeddedBroker() as embedded:
            yield Broker("embedded", embedded.bootstrap)
    else:
        with apache_kafka() as apache:
            yield Broker(f"Apache Kafka {LATEST}", apache.bootstrap)


@pytest.fixture(scope="session")
def installs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], pathlib.Path]:
    """The Python of a kind of install, made on first use, or :class:`NotInstalled`."""
    return functools.cache(lambda kind: install(kind, tmp_path_factory.mktemp(kind)))


@pytest.fixture(scope="module", params=list(KINDS))
def installed(
    request: pytest.FixtureRequest,
    installs: Callable[[str], pathlib.Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Installed:
    """Each kind of install, with a folder for what callers and workers run."""
    try:
        python = installs(request.param)
    except NotInstalled as reason:
        pytest.skip(f"{request.param}: not measured: {reason}")
    return Installed.with_scripts(request.param, python, tmp_path_factory.mktemp("jobs"))


@pytest.fixture(scope="module", params=["embedded", "apache"])
def place(request: pytest.FixtureRequest, installed: Installed) -> Iterator[Place]:
    """Each broker in turn, for each kind of install: the embedded one is of that install, too."""
    yield from _places("embedded" if request.param == "embedded" else LATEST, installed, "auto")


@pytest.fixture(scope="module", params=["embedded", "apache"])
def group_place(request: pytest.FixtureRequest, installed: Installed) -> Iterator[Place]:
    """The same for workers in consumer groups, with an older release."""
    yield from _places("embedded" if request.param == "embedded" else OLDER, installed, "group")


def _places(broker: str, installed: Installed, delivery: str) -> Iterator[Place]:
    if broker != "embedded":
        with apache_kafka(broker) as apache:
            title = f"Apache Kafka {broker}, {installed.kind}"
            place = Place(title, apache.bootstrap, apache.pid, installed, delivery)
            place.drain(WARM_UP * JOBS, "stored", PREFORK.flags)
            yield place
        return
    (port,) = free_ports(1)
    command = [str(installed.python), "-m", "kafka", "broker", "--port", str(port)]
    command += ["--data-dir", str(installed.folder / "data")]
    with running(command, installed.folder, installed.folder / "broker.log", foreign_environment()) as process:
        until(lambda: listens(port), "the broker answers", within_s=PATIENCE_S)
        yield Place(f"embedded, {installed.kind}", f"127.0.0.1:{port}", process.pid, installed, delivery)
