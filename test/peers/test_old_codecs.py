"""Message sets across clients: Apache Kafka before 0.11 with its own Java console tools and with kafka-python, for
every codec that it has; and the embedded broker as one of them, with kafka-python."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from kafka import KafkaProducer
from kafka.testing import EmbeddedBroker
from test.peers import numbered
from test.peers.java_console import Console
from test.peers.numbered import T0
from test.support import jars
from test.support.apache_kafka import LONG_RETENTION, ApacheKafka, require_apache_kafka
from test.support.peers import run_peer

pytestmark = pytest.mark.timeout(180)

CODECS = ["none", "gzip", "snappy", "lz4"]
RELEASES = {"0.8.2.2": ("0.8.2", 0), "0.9.0.1": ("0.9", 0), "0.10.2.2": ("0.10", 1)}
SETTINGS = {"num.partitions": "1", **LONG_RETENTION}
COUNT = 200


class Old(NamedTuple):
    bootstrap: str
    version: str
    magic: int
    console: Console | None
    """None where the broker is not Java's: its tools would need a ZooKeeper."""


@pytest.fixture(
    scope="module", params=[(kind, name) for name in RELEASES for kind in ("embedded", "apache")], ids="-".join
)
def old(request: pytest.FixtureRequest) -> Iterator[Old]:
    kind, version = request.param
    emulated, magic = RELEASES[version]
    if kind == "embedded":
        with EmbeddedBroker(emulate=emulated, settings=SETTINGS) as embedded:
            yield Old(embedded.bootstrap, version, magic, None)
        return
    require_apache_kafka(version)
    with ApacheKafka(version, SETTINGS) as apache:
        assert apache.directory is not None
        lines = (apache.directory / "server.properties").read_text().splitlines()
        settings = dict(line.split("=", 1) for line in lines)
        console = Console(jars.broker_classpath(version), version, apache.bootstrap, settings["zookeeper.connect"])
        yield Old(apache.bootstrap, version, magic, console)


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid.uuid4().hex[:8]}"


def api_version(old: Old) -> str:
    return ".".join(old.version.split(".")[:3])


def expected(old: Old) -> list[tuple[int, int | None, str, str]]:
    """Offset, time, key, value; times as this client has them."""
    return [(n, T0 + n if old.magic else -1, f"key-{n}", f"value-{n}") for n in range(COUNT)]


@pytest.mark.parametrize("codec", CODECS)
def test_written_here_and_read_by_kafka_python(old: Old, topic: str, codec: str) -> None:
    numbered.write(old.bootstrap, topic, codec, COUNT)
    read = run_peer(
        "kafka-python", "kafka_python_codecs", "consume", old.bootstrap, topic, str(COUNT), api_version(old)
    )
    assert [(offset, -1 if at is None else at, key, value) for offset, at, key, value in read] == expected(old)


@pytest.mark.parametrize("codec", CODECS)
def test_written_by_kafka_python_and_read_here(old: Old, topic: str, codec: str) -> None:
    errors = run_peer(
        "kafka-python", "kafka_python_codecs", "produce", old.bootstrap, topic, str(COUNT), api_version(old), codec
    )
    assert errors == []
    assert numbered.read(old.bootstrap, topic, COUNT) == expected(old)


@pytest.mark.parametrize("codec", CODECS)
def test_written_here_and_read_by_javas_console_consumer_of_that_release(old: Old, topic: str, codec: str) -> None:
    if old.console is None:
        pytest.skip("the console tools of those releases want the ZooKeeper of their broker")
    numbered.write(old.bootstrap, topic, codec, COUNT)
    assert old.console.consume(topic, COUNT) == [f"key-{n}:value-{n}" for n in range(COUNT)]


@pytest.mark.parametrize("codec", CODECS)
def test_written_by_javas_console_producer_of_that_release_and_read_here(old: Old, topic: str, codec: str) -> None:
    if old.console is None:
        pytest.skip("the console tools of those releases want the ZooKeeper of their broker")
    with KafkaProducer(bootstrap_servers=old.bootstrap) as producer:
        producer.partitions_for(topic)  # makes it: the console producer gives up after three attempts
    old.console.produce(topic, COUNT, codec)
    found = numbered.read(old.bootstrap, topic, COUNT)
    assert [(offset, key, value) for offset, _, key, value in found] == [
        (n, f"key-{n}", f"value-{n}") for n in range(COUNT)
    ]
