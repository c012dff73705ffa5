"""Message sets inside the newest Fetch: topics of a later Apache Kafka that keep the format of an older one.

Only Apache Kafka before 4.0 has such topics (``message.format.version``): no test here runs on the embedded broker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import UnsupportedForMessageFormatError
from test.conformance.reading import batches_of, records_of
from test.support.apache_kafka import LONG_RETENTION, ApacheKafka, require_apache_kafka
from test.support.waiting import WITHIN_S

pytestmark = pytest.mark.timeout(120)

VERSION = "2.8.2"
FORMATS = {"0.9.0": 0, "0.10.2": 1}
T0 = 1_700_000_000_000
COUNT = 60


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    require_apache_kafka(VERSION)
    with ApacheKafka(VERSION, LONG_RETENTION) as apache:
        yield apache.bootstrap


@pytest.fixture(params=FORMATS)
def old_topic(request: pytest.FixtureRequest, bootstrap: str) -> tuple[str, int]:
    """A topic's name, and the magic of its messages."""
    name = f"topic-{uuid.uuid4().hex[:8]}"
    configs = {"message.format.version": request.param}
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(name, 1, 1, topic_configs=configs)], wait_for_metadata=True)
    return name, FORMATS[request.param]


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4"], ids=str)
def test_messages_of_an_old_format_are_read_from_a_later_broker(
    bootstrap: str, old_topic: tuple[str, int], codec: str | None
) -> None:
    topic, magic = old_topic
    with KafkaProducer(
        bootstrap_servers=bootstrap, compression_type=codec, linger_ms=20, enable_idempotence=False
    ) as producer:
        for n in range(COUNT):
            producer.send(topic, b"value-%d" % n, key=b"k", timestamp_ms=T0 + n)
    assert {header.magic for header in batches_of(bootstrap, topic)} == {magic}
    found = records_of(bootstrap, topic)
    assert [(record.offset, record.value) for record in found] == [(n, b"value-%d" % n) for n in range(COUNT)]
    times = [(T0 + n, 0) for n in range(COUNT)] if magic else [(-1, -1)] * COUNT
    assert [(record.timestamp, record.timestamp_type) for record in found] == times


def test_an_idempotent_producer_gets_an_error_for_a_topic_without_sequences(
    bootstrap: str, old_topic: tuple[str, int]
) -> None:
    """Java's producer gets the same error, 43."""
    with (
        KafkaProducer(bootstrap_servers=bootstrap) as producer,
        pytest.raises(UnsupportedForMessageFormatError, match=old_topic[0]),
    ):
        producer.send(old_topic[0], b"one").get(WITHIN_S)
