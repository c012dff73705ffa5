"""A consumer reads a batch of a few kB with a few hundred thousand records, and goes on being a member of its group."""

from __future__ import annotations

import threading

from kafka import KafkaConsumer, TopicPartition
from kafka.protocol.produce import ProduceRequest
from kafka.records import ZSTD, RecordBatchBuilder
from kafka.testing import EmbeddedBroker
from test.broker.raw_client import RawClient

RECORDS = 300_000


def produce(port: int, batch: bytes) -> None:
    partition = ProduceRequest.PartitionProduceData(index=0, records=batch)
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[partition])
    with RawClient(port) as raw:
        (answer,) = raw.ask(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]), 9).responses
    assert answer.partition_responses[0].error_code == 0


def test_heartbeats_go_on_while_a_batch_of_many_records_is_read_ten_at_a_time() -> None:
    builder = RecordBatchBuilder(1 << 30, ZSTD)
    for _ in range(RECORDS):
        builder.append(1, None, None)
    with EmbeddedBroker(in_process=True) as broker:
        broker.create_topic("t")
        produce(broker.port, builder.build())
        with KafkaConsumer(
            bootstrap_servers=broker.bootstrap,
            group_id="g",
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
            session_timeout_ms=6_000,
        ) as consumer:
            consumer.subscribe(["t"])
            offsets: list[int] = []

            def poll() -> None:
                found = consumer.poll(timeout_ms=1000, max_records=10)
                offsets.extend(record.offset for records in found.values() for record in records)

            while not offsets:
                poll()
            after = broker.requests.count
            heard = threading.Event()

            def wait() -> None:
                broker.requests.wait("Heartbeat", 3, timeout=60, after=after)
                heard.set()

            waiting = threading.Thread(target=wait)
            waiting.start()
            while not heard.is_set() and len(offsets) < RECORDS // 2:  # a quick machine is there before the heartbeats
                poll()
            waiting.join()
            poll()
            assert offsets == list(range(len(offsets)))
            assert len(offsets) < RECORDS, "the heartbeats came while the batch was being read"
            assert consumer.assignment() == {TopicPartition("t", 0)}
            assert consumer.position(TopicPartition("t", 0)) == len(offsets)
