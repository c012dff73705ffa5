"""One suite, two brokers: every test here runs over the embedded broker and over real Apache Kafka, and those of the
producer over older releases of both.

No test may look at which of the two it has: what it asserts is Kafka's behaviour.
"""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Callable, Iterator

import pytest

from kafka.admin import KafkaAdminClient, NewTopic
from kafka.testing import EmbeddedBroker
from test.conformance import coverage, scenes
from test.conformance.broker_pair import BrokerPair
from test.support.apache_kafka import LONG_RETENTION, ApacheKafka, require_apache_kafka
from test.support.either_broker import EITHER, SharedBrokers

SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000",  # so that a test sees a lock end
    "group.consumer.min.session.timeout.ms": "1000",  # and sessions
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.min.session.timeout.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "true",
    "num.partitions": "2",
    **LONG_RETENTION,
}


@pytest.fixture(scope="session", params=EITHER)
def bootstrap(request: pytest.FixtureRequest, shared_brokers: SharedBrokers) -> str:
    """``host:port`` of a broker that all tests of the session share; of older ones too, with ``every_release``."""
    return shared_brokers.bootstrap(request.param, SETTINGS)


@pytest.fixture
def delivery() -> str:
    """The app setting ``delivery``, of tests that are not marked with :data:`every_way`."""
    return "auto"


@pytest.fixture(scope="session")
def compare_rounds() -> int:
    """How many rounds of random requests both brokers are asked."""
    return max(1, int(os.environ.get("KAFKA_TEST_COMPARE_ROUNDS", "1")))


SEQUENCE_SETTINGS = {
    **SETTINGS,
    **scenes.SETTINGS,
    "group.share.record.lock.duration.ms": "3000",
    "group.share.assignment.interval.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
}


@pytest.fixture(scope="session")
def sequence_pair() -> Iterator[BrokerPair]:
    """Both brokers, with short locks, and assignments with every change."""
    require_apache_kafka()
    with EmbeddedBroker(settings=SEQUENCE_SETTINGS) as embedded, ApacheKafka(settings=SEQUENCE_SETTINGS) as apache:
        both = BrokerPair(embedded.bootstrap, apache.bootstrap)
        try:
            scenes.make_internal_topics(both)
            yield both
        finally:
            both.close()


@pytest.fixture
def admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(bootstrap_servers=bootstrap) as client:
        yield client


_numbers = itertools.count()


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """``unique("jobs")``: a name for a topic or group that no other test has."""
    return lambda stem: f"{stem}-{next(_numbers)}-{uuid.uuid4().hex[:6]}"


@pytest.fixture
def new_topic(bootstrap: str, unique: Callable[[str], str]) -> Iterator[Callable[..., str]]:
    """``new_topic(partitions=1, **settings)``: a topic of the test's own (``retention_ms`` for ``retention.ms``)."""
    made: list[str] = []

    def make(partitions: int = 1, **settings: object) -> str:
        name = unique("topic")
        configs = {key.replace("_", "."): str(value) for key, value in settings.items()}
        admin.create_topics([NewTopic(name, partitions, 1, topic_configs=configs)], wait_for_metadata=True)
        made.append(name)
        return name

    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        yield make
        if made:
            admin.delete_topics(made, raise_errors=False)


@pytest.fixture(scope="session", autouse=True)
def _answers_can_be_counted() -> None:
    coverage.watch()


@pytest.fixture(autouse=True)
def _answers_count(_answers_can_be_counted: None) -> Iterator[None]:
    with coverage.counted():
        yield
