"""confluent-kafka with telemetry: produces ten records to topic ``t``, reads them, and is closed when a file is there.
Arguments: bootstrap, and the file's path."""

from __future__ import annotations

import json
import os
import sys
import time

from confluent_kafka import Consumer, Producer

BOOTSTRAP, CLOSE_WHEN_THERE = sys.argv[1:]
TIME_S = 30

producer = Producer({"bootstrap.servers": BOOTSTRAP, "client.id": "rdkafka-producer"})
for _ in range(10):
    producer.produce("t", b"x")
    producer.poll(0.05)
producer.flush()
consumer = Consumer(
    {"bootstrap.servers": BOOTSTRAP, "client.id": "rdkafka-consumer", "group.id": "g", "auto.offset.reset": "earliest"}
)
consumer.subscribe(["t"])
found = 0
give_up_at = time.monotonic() + TIME_S
while (found < 10 or not os.path.exists(CLOSE_WHEN_THERE)) and time.monotonic() < give_up_at:
    message = consumer.poll(0.1)
    found += message is not None and message.error() is None
consumer.close()
print(json.dumps(found))
