"""How fast librdkafka is with a broker: ``confluent_rates.py BOOTSTRAP COUNT SIZE FETCH_BACKOFF_MS``.

Messages a second, first in, then out. The back-off is librdkafka's pause after its own queue was full: its default of
1,000 ms makes the reader wait, whatever the broker does.
"""

from __future__ import annotations

import json
import os
import sys
import time
import uuid

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

DEADLINE_S = 120.0


def main(bootstrap: str, count: int, size: int, backoff_ms: int) -> dict[str, float]:
    topic = f"rates-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        future.result(DEADLINE_S)
    errors = []

    def on_delivery(error: object, _: object) -> None:
        if error:
            errors.append(error)

    value = os.urandom(size)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap, "linger.ms": 5, "acks": "all",
            "queue.buffering.max.messages": 10**7, "queue.buffering.max.kbytes": 1 << 20,
        }
    )  # fmt: skip
    producer.produce(topic, value, on_delivery=on_delivery)
    producer.flush(DEADLINE_S)
    began = time.perf_counter()
    for number in range(count - 1):
        producer.produce(topic, value, on_delivery=on_delivery)
        if number % 1024 == 0:
            producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0
    went_in = time.perf_counter() - began
    assert not errors, errors[0]

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False,
            "fetch.queue.backoff.ms": backoff_ms,
        }
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    began = time.perf_counter()
    read = 0
    while read < count:
        assert time.perf_counter() - began < DEADLINE_S
        for message in consumer.consume(5000, 1.0):
            assert message.error() is None
            read += len(message.value()) == size
    came_out = time.perf_counter() - began
    consumer.close()
    return {"in": count / went_in, "out": count / came_out}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], *map(int, sys.argv[2:5]))))
