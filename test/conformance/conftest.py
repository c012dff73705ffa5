"""One suite, two brokers: every test here runs over the embedded broker and over real Apache Kafka.

No test may look at which of the two it has: what it asserts is Kafka's behaviour.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator

import pytest

from kafka.admin import KafkaAdminClient, NewTopic
from kafka.testing import EmbeddedBroker
from test.support.apache_kafka import ApacheKafka, require_apache_kafka

SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000",  # so that a test sees a lock end
    "auto.create.topics.enable": "true",
    "num.partitions": "2",
}


@pytest.fixture(scope="session", params=["embedded", "apache"])
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    """``host:port`` of a broker that all tests of the session share."""
    if request.param == "embedded":
        with EmbeddedBroker(settings=SETTINGS) as embedded:
            yield embedded.bootstrap
    else:
        require_apache_kafka()
        with ApacheKafka(settings=SETTINGS) as apache:
            yield apache.bootstrap


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
