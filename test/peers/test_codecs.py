"""Every codec across clients: written here and read by others, written by others and read here.

Others are confluent-kafka (librdkafka), kafka-python, and Java's console tools; over the embedded broker and over
Apache Kafka. That what was written is compressed with the codec asked for is read off the batches' headers in the log.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from kafka.protocol.fetch import FetchRequest
from kafka.records import iter_batches
from test.broker.raw_client import RawClient
from test.peers import numbered
from test.peers.java_console import Console
from test.peers.numbered import T0
from test.support import jars
from test.support.apache_kafka import refuse
from test.support.peers import run_peer

pytestmark = pytest.mark.timeout(180)

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
COUNT = 400


@pytest.fixture
def console(bootstrap: str) -> Console:
    try:
        if shutil.which("java") is None:
            raise jars.Unavailable("Java is not installed (no `java` on PATH)")
        return Console(jars.tools_classpath(), jars.RELEASES[-1], bootstrap)
    except jars.Unavailable as reason:
        refuse(f"needs Apache Kafka's tools: {reason}")


def codecs_in_the_log(bootstrap: str, topic: str) -> set[str]:
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=100, min_bytes=1, topics=[FetchRequest.FetchTopic(topic=topic, partitions=[partition])]
    )
    with RawClient(int(bootstrap.rpartition(":")[2])) as raw:
        (answer,) = raw.ask(request, 12).responses
    (found,) = answer.partitions
    assert (found.error_code, found.high_watermark) == (0, COUNT)
    return {header.compression for header in iter_batches(bytes(found.records or b""))}


EXPECTED = [(n, T0 + n, f"key-{n}", f"value-{n}") for n in range(COUNT)]


@pytest.mark.parametrize("codec", CODECS)
def test_written_here_and_read_by_confluent_kafka_and_kafka_python_and_java(
    bootstrap: str, console: Console, new_topic: Callable[[int], str], codec: str
) -> None:
    topic = new_topic(1)
    numbered.write(bootstrap, topic, codec, COUNT)
    assert codecs_in_the_log(bootstrap, topic) == {codec}
    read = run_peer("confluent-kafka", "confluent_codecs", "consume", bootstrap, topic, str(COUNT))
    assert [tuple(record) for record in read] == EXPECTED
    read = run_peer("kafka-python", "kafka_python_codecs", "consume", bootstrap, topic, str(COUNT), "auto")
    assert [tuple(record) for record in read] == EXPECTED
    assert console.consume(topic, COUNT) == [f"key-{n}:value-{n}" for n in range(COUNT)]


@pytest.mark.parametrize("codec", CODECS)
def test_written_by_confluent_kafka_and_read_here(
    bootstrap: str, new_topic: Callable[[int], str], codec: str
) -> None:
    topic = new_topic(1)
    errors = run_peer("confluent-kafka", "confluent_codecs", "produce", bootstrap, topic, str(COUNT), codec)
    assert errors == []
    assert codecs_in_the_log(bootstrap, topic) == {codec}
    assert numbered.read(bootstrap, topic, COUNT) == EXPECTED


@pytest.mark.parametrize("codec", CODECS)
def test_written_by_kafka_python_and_read_here(bootstrap: str, new_topic: Callable[[int], str], codec: str) -> None:
    topic = new_topic(1)
    errors = run_peer("kafka-python", "kafka_python_codecs", "produce", bootstrap, topic, str(COUNT), "auto", codec)
    assert errors == []
    assert codecs_in_the_log(bootstrap, topic) == {codec}
    assert numbered.read(bootstrap, topic, COUNT) == EXPECTED


@pytest.mark.parametrize("codec", CODECS)
def test_written_by_java_and_read_here(
    bootstrap: str, console: Console, new_topic: Callable[[int], str], codec: str
) -> None:
    topic = new_topic(1)
    console.produce(topic, COUNT, codec)
    assert codecs_in_the_log(bootstrap, topic) == {codec}
    assert [(offset, key, value) for offset, _, key, value in numbered.read(bootstrap, topic, COUNT)] == [
        (n, f"key-{n}", f"value-{n}") for n in range(COUNT)
    ]
