"""A member of a group by confluent-kafka: ``confluent_member.py BOOTSTRAP TOPIC GROUP ASSIGNOR``.

Prints a line of JSON whenever it owns other partitions, and for what it reads; ends when its input does."""

from __future__ import annotations

import json
import sys
import threading

from confluent_kafka import Consumer

bootstrap, topic, group, assignor = sys.argv[1:5]
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
consumer = Consumer(
    {
        "bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
        "partition.assignment.strategy": assignor, "session.timeout.ms": 6000, "heartbeat.interval.ms": 300,
        "topic.metadata.refresh.interval.ms": 1000,
    }
)  # fmt: skip
consumer.subscribe([topic])
owned = None
while not ended.is_set():
    values = []
    for message in consumer.consume(100, 0.1):
        assert message.error() is None, message.error()
        values.append(int(message.value()))
    now = sorted(one.partition for one in consumer.assignment())
    if now != owned:
        owned = now
        print(json.dumps({"owned": owned}), flush=True)
    if values:
        print(json.dumps({"read": values}), flush=True)
consumer.close()
print(json.dumps({"owned": []}), flush=True)
