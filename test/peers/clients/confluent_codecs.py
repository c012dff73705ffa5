"""confluent-kafka: ``confluent_codecs.py produce|consume BOOTSTRAP TOPIC COUNT [CODEC]``; in its own environment.

What is produced is ``key-N``, ``value-N`` with the time 1700000000000 + N; what was consumed is printed as a list of
[offset, time, key, value]."""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition

T0 = 1_700_000_000_000
DEADLINE_S = 45.0


def produce(bootstrap, topic, count, codec):
    errors = []
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 1000, "compression.type": codec, "message.timeout.ms": 30000}
    )
    for n in range(count):
        producer.produce(topic, b"value-%d" % n, key=b"key-%d" % n, partition=0, timestamp=T0 + n,
                         on_delivery=lambda error, _: errors.append(str(error)) if error else None)  # fmt: skip
    # ``flush`` would not linger: what is sent by itself is not compressed, since that would make it larger.
    give_up_at = time.monotonic() + DEADLINE_S
    while len(producer) and time.monotonic() < give_up_at:
        producer.poll(0.1)
    left = len(producer)
    return errors or ([] if left == 0 else [f"{left} were not delivered"])


def consume(bootstrap, topic, count):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    give_up_at = time.monotonic() + DEADLINE_S
    while len(found) < count and time.monotonic() < give_up_at:
        for message in consumer.consume(count, 0.5):
            assert message.error() is None, message.error()
            found.append([message.offset(), message.timestamp()[1], message.key().decode(), message.value().decode()])
    consumer.close()
    return found


if __name__ == "__main__":
    what, bootstrap, topic, count = sys.argv[1:5]
    print(json.dumps({"produce": produce, "consume": consume}[what](bootstrap, topic, int(count), *sys.argv[5:])))
