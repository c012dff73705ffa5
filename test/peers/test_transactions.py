"""What our producer commits and aborts, read by librdkafka: a reader that shares no line with the writer."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from kafka import KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata
from test.support.peers import run_peer


@pytest.mark.timeout(180)
def test_librdkafka_reads_what_was_committed_and_nothing_else(bootstrap: str, new_topic: Callable[[int], str]) -> None:
    topic = new_topic(3)
    expected = []
    with KafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"id-{uuid.uuid4().hex}") as producer:
        producer.init_transactions()
        for number in range(10):
            producer.begin_transaction()
            values = [f"{number}-{n}" for n in range(30)]
            for n, value in enumerate(values):
                producer.send(topic, value.encode(), partition=n % 3)
            producer.send_offsets_to_transaction({TopicPartition(topic, 0): OffsetAndMetadata(number)}, topic)
            if number % 3 == 1:
                producer.flush()
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                expected += values
    found = run_peer("confluent-kafka", "confluent_committed", bootstrap, topic, "3", str(len(expected)))
    assert found == sorted(expected)
