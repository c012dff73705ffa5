"""What a read_committed consumer of librdkafka sees: BOOTSTRAP TOPIC PARTITIONS COUNT -> the sorted values.

Reads until each partition's last stable offset, and fails when that has not brought COUNT records in time.
"""

from __future__ import annotations

import json
import sys
import time
import uuid

from confluent_kafka import Consumer, KafkaError, TopicPartition

bootstrap, topic, partitions, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
consumer = Consumer(
    {
        "bootstrap.servers": bootstrap,
        "group.id": uuid.uuid4().hex,
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
    }
)
consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
values, ended = [], set()
until = time.monotonic() + 60
while len(values) < count or len(ended) < partitions:
    message = consumer.poll(0.5)
    if message is None:
        assert time.monotonic() < until, f"{len(values)} of {count}"
    elif message.error():
        assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
        ended.add(message.partition())
    else:
        values.append(message.value().decode())
consumer.close()
print(json.dumps(sorted(values)))
