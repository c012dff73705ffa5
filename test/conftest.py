"""Fixtures of all tests: real brokers, certificates, how many rounds the long tests run.

What a run selects, its seed and its record are in ``support/running.py``. ``KAFKA_TEST_ROUNDS`` (default 1) multiplies
the rounds of tests that are marked ``slow``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from test.support import apache_kafka as apache
from test.support import jars, seeds
from test.support.apache_kafka import ApacheKafka
from test.support.certificates import Certificates
from test.support.rounds import ROUNDS

if TYPE_CHECKING:
    from test.support.either_broker import SharedBrokers

pytest_plugins = ["test.support.running"]


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """A certificate authority, a server, clients: made for the session."""
    return Certificates(tmp_path_factory.mktemp("certificates")).make()


@pytest.fixture(scope="session")
def shared_brokers() -> Iterator[SharedBrokers]:
    """Brokers that suites share. Imported here: each test process would load all clients and the broker."""
    from test.support.either_broker import SharedBrokers

    brokers = SharedBrokers()
    yield brokers
    brokers.close()


@pytest.fixture(scope="session")
def _apache_kafka_of_session() -> Iterator[ApacheKafka]:
    with ApacheKafka() as broker:
        yield broker


@pytest.fixture
def apache_kafka(request: pytest.FixtureRequest) -> ApacheKafka:
    """The session's Apache Kafka 4.3.0, started when the first test asks for it. It is shared: leave it running.

    A test that kills, pauses or configures its broker takes ``start_apache_kafka``.
    """
    apache.require_apache_kafka()
    broker: ApacheKafka = request.getfixturevalue("_apache_kafka_of_session")
    return broker


@pytest.fixture
def start_apache_kafka() -> Iterator[Callable[..., ApacheKafka]]:
    """``start_apache_kafka(version, settings)``: a broker of the test's own, which ends with the test."""
    started: list[ApacheKafka] = []

    def start(version: str = apache.LATEST, *arguments: Any, **options: Any) -> ApacheKafka:
        apache.require_apache_kafka(version)
        started.append(ApacheKafka(version, *arguments, **options).start())
        return started[-1]

    yield start
    for broker in started:
        broker.stop(gracefully=False)


@pytest.fixture(params=jars.RELEASES)
def apache_kafka_release(request: pytest.FixtureRequest) -> str:
    """Each release of Apache Kafka that is known to start, one after the other."""
    release: str = request.param
    return release


@pytest.fixture(scope="session")
def rounds() -> int:
    """How many rounds a ``slow`` test runs."""
    return ROUNDS


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Show beside a failed test how to repeat it, and what the real brokers logged."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.failed:
        report.sections.append(("random choices", f"{seeds.VARIABLE}={seeds.run_seed()}"))
        for broker in apache.running_brokers():
            report.sections.append((f"Apache Kafka {broker.version} at {broker.bootstrap}", broker.log_tail(15)))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """What a process of several has seen counts for the run."""
    answers = getattr(node, "workeroutput", {}).get("answers")
    if answers:
        from test.conformance import coverage

        coverage.add(answers)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell it to the process that reports."""
    worker_output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    coverage = sys.modules.get("test.conformance.coverage")
    if worker_output is not None and coverage is not None:
        worker_output["answers"] = coverage.seen()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Which (API, version, error code) the conformance tests have seen."""
    coverage = sys.modules.get("test.conformance.coverage")
    lines = coverage.report() if coverage is not None else []
    if len(lines) > 1:
        terminalreporter.section("conformance: answers seen")
        for line in lines:
            terminalreporter.write_line(line)
