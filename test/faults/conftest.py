"""Fixtures of the fault tests: brokers, and crews of workers that are ended with the test."""

from __future__ import annotations

import pathlib
import uuid
from collections.abc import Callable, Iterator

import pytest

from kafka.testing import EmbeddedBroker
from test.faults.counted_jobs import Crew
from test.support.apache_kafka import ApacheKafka


@pytest.fixture(scope="session")
def embedded_broker_of_session() -> Iterator[EmbeddedBroker]:
    """A broker that no test kills."""
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture(params=["embedded", "apache"])
def servers(request: pytest.FixtureRequest) -> str:
    """``host:port`` of either broker; shared, so names must be one's own."""
    if request.param == "embedded":
        embedded: EmbeddedBroker = request.getfixturevalue("embedded_broker_of_session")
        return embedded.bootstrap
    apache: ApacheKafka = request.getfixturevalue("apache_kafka")
    return apache.bootstrap


@pytest.fixture
def crew(tmp_path: pathlib.Path) -> Iterator[Callable[..., Crew]]:
    """``crew(servers, partitions, delivery)``: an app of its own, without workers yet."""
    made: list[Crew] = []

    def make(servers: str, partitions: int, delivery: str = "auto") -> Crew:
        made.append(Crew(tmp_path, f"crew-{uuid.uuid4().hex[:8]}", servers, partitions, {"delivery": delivery}))
        return made[-1]

    yield make
    for each in made:
        each.close()
