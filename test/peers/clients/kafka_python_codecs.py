"""kafka-python: ``kafka_python_codecs.py produce|consume BOOTSTRAP TOPIC COUNT API_VERSION [CODEC]``; in its own
environment. ``API_VERSION`` is one such as 0.9, or "auto". Else as ``confluent_codecs.py``."""

from __future__ import annotations

import json
import sys
import time

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

T0 = 1_700_000_000_000
DEADLINE_S = 45.0


def given(api_version):
    return {} if api_version == "auto" else {"api_version": tuple(int(part) for part in api_version.split("."))}


def produce(bootstrap, topic, count, api_version, codec):
    is_old = api_version.startswith("0.")
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, linger_ms=5000, compression_type=None if codec == "none" else codec,
        enable_idempotence=not is_old, acks=1 if is_old else "all", **given(api_version),
    )  # fmt: skip
    futures = [
        producer.send(topic, b"value-%d" % n, key=b"key-%d" % n, partition=0, timestamp_ms=T0 + n) for n in range(count)
    ]
    producer.flush(DEADLINE_S)
    errors = [str(future.exception or "not written") for future in futures if not future.succeeded()]
    producer.close()
    return errors


def consume(bootstrap, topic, count, api_version):
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, **given(api_version))
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    found = []
    give_up_at = time.monotonic() + DEADLINE_S
    while len(found) < count and time.monotonic() < give_up_at:
        for records in consumer.poll(500).values():
            for record in records:
                found.append([record.offset, record.timestamp, record.key.decode(), record.value.decode()])
    consumer.close()
    return found


if __name__ == "__main__":
    what, bootstrap, topic, count = sys.argv[1:5]
    print(json.dumps({"produce": produce, "consume": consume}[what](bootstrap, topic, int(count), *sys.argv[5:])))
