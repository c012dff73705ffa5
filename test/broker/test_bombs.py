"""Batches that inflate a thousandfold, at the embedded broker's edge: refused, and the broker goes on."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from kafka import KafkaProducer
from kafka.protocol.produce import ProduceRequest
from kafka.records import DEFAULT_MAX_DECOMPRESSED_BYTES, RecordBatchBuilder
from kafka.testing import EmbeddedBroker
from test.broker.raw_client import RawClient
from test.records import fuzz

CORRUPT_MESSAGE = 2


def produce(raw: RawClient, topic: str, records: bytes, version: int) -> int:
    """The error code."""
    data = ProduceRequest.PartitionProduceData(index=0, records=records)
    request = ProduceRequest(
        acks=-1, timeout_ms=5000, topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    )
    (answer,) = raw.ask(request, version).responses
    return answer.partition_responses[0].error_code


@pytest.fixture(scope="module")
def huge() -> bytes:
    return bytes(DEFAULT_MAX_DECOMPRESSED_BYTES + 1_000_000)


@pytest.fixture(scope="module")
def compacted() -> Iterator[EmbeddedBroker]:
    """Compacted topics are where a broker looks into records."""
    with EmbeddedBroker(in_process=True) as broker:
        broker.create_topic("compacted", cleanup_policy="compact")
        yield broker


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_bomb_for_a_compacted_topic_is_corrupt(compacted: EmbeddedBroker, huge: bytes, codec: int) -> None:
    with RawClient(compacted.port) as raw:
        assert produce(raw, "compacted", fuzz.v2_around(codec, huge, 1), 12) == CORRUPT_MESSAGE
        builder = RecordBatchBuilder(1000, codec)
        builder.append(fuzz.T0, b"key", b"value")
        assert produce(raw, "compacted", builder.build(), 12) == 0


@pytest.fixture(scope="module", params=["0.9", "0.10"])
def old(request: pytest.FixtureRequest) -> Iterator[tuple[EmbeddedBroker, int]]:
    """A broker of message sets, and their magic."""
    with EmbeddedBroker(in_process=True, emulate=request.param) as broker:
        with KafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            producer.partitions_for("t")  # makes it: there is no CreateTopics yet
        yield broker, {"0.9": 0, "0.10": 1}[request.param]


@pytest.mark.parametrize("codec", [1, 2, 3])
def test_a_bomb_in_a_wrapper_is_corrupt(old: tuple[EmbeddedBroker, int], huge: bytes, codec: int) -> None:
    broker, magic = old
    with RawClient(broker.port) as raw:
        assert produce(raw, "t", fuzz.wrapper(magic, codec, huge), magic + 1) == CORRUPT_MESSAGE
        assert produce(raw, "t", fuzz.message_set(random.Random(1), magic, codec), magic + 1) == 0
