"""Clients that others wrote against the embedded broker and against Apache Kafka: what is expected is the same."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from kafka.admin import KafkaAdminClient, NewTopic
from test.support.apache_kafka import LONG_RETENTION
from test.support.either_broker import EITHER, SharedBrokers

SETTINGS = {
    "group.initial.rebalance.delay.ms": "500",
    "num.partitions": "1",
    **LONG_RETENTION,
}


@pytest.fixture(scope="session", params=EITHER)
def bootstrap(request: pytest.FixtureRequest, shared_brokers: SharedBrokers) -> str:
    """``host:port`` of a broker that all tests of the session share."""
    return shared_brokers.bootstrap(request.param, SETTINGS)


@pytest.fixture
def new_topic(bootstrap: str) -> Callable[[int], str]:
    """``new_topic(partitions)``: its name."""

    def make(partitions: int) -> str:
        name = f"topic-{uuid.uuid4().hex[:8]}"
        with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
            admin.create_topics([NewTopic(name, partitions, 1)], wait_for_metadata=True)
        return name

    return make
