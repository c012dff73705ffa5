"""Fixtures for pytest: a broker, topics, clients and a task queue. Switched on in a ``conftest.py``::

    pytest_plugins = ["kafka.testing.pytest_plugin"]

=========================  =========  =================================================================================
fixture                    scope      what it is
=========================  =========  =================================================================================
``kafka_broker_options``   session    arguments of the session's :class:`~kafka.testing.EmbeddedBroker`; override it
``kafka_broker``           session    a broker in the test's process, shared by all tests; faults go with each test
``kafka_broker_factory``   test       ``make(**arguments)``: brokers of the test's own, which end with it
``kafka_topic_options``    test       ``partitions`` and settings of ``kafka_topic``; override it
``kafka_topic``            test       the name of a topic that no other test has
``kafka_client_options``   test       settings of the three clients; override it
``kafka_producer``         test       a :class:`~kafka.KafkaProducer`
``kafka_consumer``         test       a :class:`~kafka.KafkaConsumer` of ``kafka_topic``, from its beginning
``kafka_admin``            test       a :class:`~kafka.KafkaAdminClient`
``kafka_tasks_options``    test       settings of ``kafka_tasks_app``; override it
``kafka_tasks_app``        test       a :class:`~kafka.tasks.App` with a name of its own on the broker
``kafka_tasks_worker``     test       ``make(app=None, **arguments)``: workers in threads, which stop with the test
``kafka_tasks_testing``    test       ``kafka_tasks_app.testing()``: its jobs run in the test's thread, without a broker
=========================  =========  =================================================================================

A test that fails shows, of each of its brokers, which faults are in force, what it was asked last, and the end of its
log. The plugin is no entry point, so that installing this package changes no test run. Names are unique, so that
tests may share the broker; one that kills, pauses or sets the clock of a broker takes one from
``kafka_broker_factory``.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from kafka.admin import KafkaAdminClient
from kafka.broker import SeenRequest
from kafka.consumer import KafkaConsumer
from kafka.errors import KafkaError
from kafka.producer import KafkaProducer
from kafka.tasks import App
from kafka.tasks.testing import TestingJobs
from kafka.testing.contexts import RunningWorker
from kafka.testing.embedded import EmbeddedBroker

REQUESTS = 10
LOG_LINES = 20
ANSWER_S = 2.0
"""Time limit for a blocked broker: the test has failed already."""


def broker_address(broker: EmbeddedBroker) -> str:
    """Its address, and whether it is running."""
    return broker.bootstrap if broker.is_running else f"{broker.bootstrap}, which has ended"


def broker_report(broker: EmbeddedBroker) -> str:
    """Faults in force, the last requests, the end of the log."""
    try:
        lines = [f"fault: {fault.rule}, {fault.hits} hits" for fault in broker.faults]
        count = broker.faults.ask("request_count", ANSWER_S)
        last = broker.faults.ask("requests", ANSWER_S, after=max(0, count - REQUESTS))
        lines += [_line(SeenRequest.from_json(each)) for each in last] or ["requests: none"]
    except KafkaError as error:  # it is gone, or stopped
        lines = [f"requests: unknown, since {error.args[0] if error.args else error}"]
    return "\n".join(lines + [f"log: {line}" for line in broker.log_tail(LOG_LINES)])


def _line(request: SeenRequest) -> str:
    topics = f" about {', '.join(request.topics)}" if request.topics else ""
    who = f"{request.client_id} on connection {request.connection}"
    return f"request {request.number}: {request.api} v{request.version}{topics}, from {who}"


_BROKER = pytest.StashKey[EmbeddedBroker]()
_OWN = pytest.StashKey[list[EmbeddedBroker]]()
"""A test's brokers from ``kafka_broker_factory``."""


@pytest.fixture(scope="session")
def kafka_broker_options() -> dict[str, Any]:
    """Arguments of the session's broker."""
    return {"in_process": True}


@pytest.fixture(scope="session")
def kafka_broker(request: pytest.FixtureRequest, kafka_broker_options: dict[str, Any]) -> Iterator[EmbeddedBroker]:
    """The session's broker."""
    with EmbeddedBroker(**kafka_broker_options) as broker:
        request.session.stash[_BROKER] = broker
        yield broker


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Remove the faults of each test."""
    broker = item.session.stash.get(_BROKER, None)
    if broker is not None and broker.faults.rules:
        broker.faults.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the state of the brokers to the report of a failed test."""
    report = yield
    if report.failed:
        brokers = list(item.stash.get(_OWN, ()))
        shared = item.session.stash.get(_BROKER, None)
        if shared is not None and "kafka_broker" in getattr(item, "fixturenames", ()):
            brokers.append(shared)
        report.sections += [(f"embedded broker {broker_address(broker)}", broker_report(broker)) for broker in brokers]
    return report


@pytest.fixture
def kafka_broker_factory(request: pytest.FixtureRequest) -> Iterator[Callable[..., EmbeddedBroker]]:
    """``make(**arguments)``: a broker of the test's own."""
    own = request.node.stash.setdefault(_OWN, [])
    with contextlib.ExitStack() as brokers:

        def make(*arguments: Any, **options: Any) -> EmbeddedBroker:
            broker = brokers.enter_context(EmbeddedBroker(*arguments, **options))
            own.append(broker)
            return broker

        yield make


@pytest.fixture
def kafka_topic_options() -> dict[str, Any]:
    """``partitions``, and settings with ``_`` for ``.``."""
    return {"partitions": 1}


@pytest.fixture
def kafka_topic(kafka_broker: EmbeddedBroker, kafka_topic_options: dict[str, Any]) -> str:
    """A topic of the test's own."""
    return kafka_broker.create_topic(f"topic-{uuid.uuid4().hex[:12]}", **kafka_topic_options)


@pytest.fixture
def kafka_client_options(kafka_broker: EmbeddedBroker) -> dict[str, Any]:
    """Settings of all three clients."""
    return {"bootstrap_servers": kafka_broker.bootstrap}


@pytest.fixture
def kafka_producer(kafka_client_options: dict[str, Any]) -> Iterator[KafkaProducer]:
    """A producer. What the test has not flushed is dropped at its end."""
    producer = KafkaProducer(**kafka_client_options)
    yield producer
    producer.close(timeout=0)


@pytest.fixture
def kafka_consumer(kafka_client_options: dict[str, Any], kafka_topic: str) -> Iterator[KafkaConsumer]:
    """A consumer of all of the topic."""
    consumer = KafkaConsumer(kafka_topic, auto_offset_reset="earliest", **kafka_client_options)
    with contextlib.closing(consumer):
        yield consumer


@pytest.fixture
def kafka_admin(kafka_client_options: dict[str, Any]) -> Iterator[KafkaAdminClient]:
    """An admin client."""
    with KafkaAdminClient(**kafka_client_options) as admin:
        yield admin


@pytest.fixture
def kafka_tasks_options() -> dict[str, Any]:
    """Settings of the app."""
    return {"partitions": 1}


@pytest.fixture
def kafka_tasks_app(kafka_broker: EmbeddedBroker, kafka_tasks_options: dict[str, Any]) -> Iterator[App]:
    """An app of the test's own, for tasks that the test declares. A module's app is tested with ``connect_to``."""
    app = App(f"app-{uuid.uuid4().hex[:12]}", bootstrap_servers=kafka_broker.bootstrap, **kafka_tasks_options)
    yield app
    app.close(timeout=0)


@pytest.fixture
def kafka_tasks_worker(kafka_broker: EmbeddedBroker, kafka_tasks_app: App) -> Iterator[Callable[..., RunningWorker]]:
    """``make(app=None, queues=(), pool="threads", concurrency=1)``: a worker that runs from then on. Tasks that are
    declared later are not known to it."""
    with contextlib.ExitStack() as workers:

        def make(
            app: App | None = None, queues: tuple[str, ...] = (), pool: str = "threads", concurrency: int = 1
        ) -> RunningWorker:
            worker = RunningWorker(app or kafka_tasks_app, queues, pool, concurrency, kafka_broker)
            workers.callback(worker.stop)
            return worker

        yield make


@pytest.fixture
def kafka_tasks_testing(kafka_tasks_app: App) -> Iterator[TestingJobs]:
    """The jobs of ``kafka_tasks_app``, which run in the test's thread when the test says so. Override that fixture to
    return your own app, and no broker is started."""
    with kafka_tasks_app.testing() as jobs:
        yield jobs
