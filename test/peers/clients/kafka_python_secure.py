"""Listeners with TLS and passwords: ``kafka_python_secure.py SCENARIO BOOTSTRAP NAME SETTINGS``, the last in JSON."""

from __future__ import annotations

import json
import sys

from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition


def roundtrip(settings, name):
    """Write a hundred records and read them."""
    producer = KafkaProducer(**settings)
    futures = [producer.send(name, b"value-%d" % number, partition=0) for number in range(100)]
    producer.flush(30)
    producer.close()
    consumer = KafkaConsumer(auto_offset_reset="earliest", consumer_timeout_ms=20_000, **settings)
    consumer.assign([TopicPartition(name, 0)])
    values = set()
    for record in consumer:
        values.add(record.value)
        if len(values) == 100:
            break
    consumer.close()
    return {"delivered": sum(future.succeeded() for future in futures), "read": len(values)}


def group(settings, name):
    """A hundred records for a group: one member reads and commits, then a second one reads on where it was."""
    producer = KafkaProducer(**settings)
    for number in range(100):
        producer.send(name, b"value-%d" % number, partition=0)
    producer.flush(30)
    producer.close()
    found = []
    for wanted in (60, 40):
        consumer = KafkaConsumer(
            name, group_id=name, auto_offset_reset="earliest", enable_auto_commit=False, max_poll_records=wanted,
            consumer_timeout_ms=20_000, **settings,
        )  # fmt: skip
        values = set()
        for record in consumer:
            values.add(record.value)
            if len(values) == wanted:
                where = TopicPartition(record.topic, record.partition)
                consumer.commit({where: OffsetAndMetadata(record.offset + 1, "", -1)})
                break
        consumer.close()
        found.append(values)
    return {"read": [len(values) for values in found], "twice": len(found[0] & found[1])}


SCENARIOS = {"roundtrip": roundtrip, "group": group}


if __name__ == "__main__":
    scenario, bootstrap, name, more = sys.argv[1:]
    print(json.dumps(SCENARIOS[scenario]({"bootstrap_servers": bootstrap, **json.loads(more)}, name)))
