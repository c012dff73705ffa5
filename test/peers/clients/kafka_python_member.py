"""A member of a group by kafka-python: ``kafka_python_member.py BOOTSTRAP TOPIC GROUP ASSIGNOR``.

Prints a line of JSON whenever it owns other partitions, and for what it reads; ends when its input does."""

from __future__ import annotations

import json
import sys
import threading

from kafka import KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

ASSIGNORS = {
    one.name: one
    for one in (RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor, CooperativeStickyAssignor)
}

bootstrap, topic, group, assignor = sys.argv[1:5]
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
consumer = KafkaConsumer(
    topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", session_timeout_ms=6000,
    heartbeat_interval_ms=300, partition_assignment_strategy=[ASSIGNORS[assignor]],
)  # fmt: skip
owned = None
while not ended.is_set():
    values = [int(record.value) for records in consumer.poll(100).values() for record in records]
    now = sorted(one.partition for one in consumer.assignment())
    if now != owned:
        owned = now
        print(json.dumps({"owned": owned}), flush=True)
    if values:
        print(json.dumps({"read": values}), flush=True)
consumer.close()
print(json.dumps({"owned": []}), flush=True)
