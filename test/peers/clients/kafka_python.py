"""Scenarios of kafka-python: ``kafka_python.py SCENARIO BOOTSTRAP NAME``. Runs in the peer's own environment."""

from __future__ import annotations

import json
import sys
import threading
import time
import uuid

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.structs import OffsetAndMetadata

DEADLINE_S = 45.0


def create(bootstrap, topic, partitions=1):
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    client.create_topics([NewTopic(topic, partitions, 1)])
    client.close()


def produced(bootstrap, topic, count, **settings):
    producer = KafkaProducer(bootstrap_servers=bootstrap, **settings)
    futures = [producer.send(topic, b"value-%d" % n, key=b"%d" % (n % 50), headers=[("n", b"x")]) for n in range(count)]
    producer.flush(DEADLINE_S)
    assert len({(found.partition, found.offset) for found in (future.get(30) for future in futures)}) == count
    producer.close()


def read(consumer, count):
    values = []
    give_up_at = time.monotonic() + DEADLINE_S
    while len(values) < count and time.monotonic() < give_up_at:
        for records in consumer.poll(200).values():
            values.extend(record.value.decode() for record in records)
    return values


def produce_and_consume(bootstrap, name):
    found = {}
    for codec in (None, "gzip"):
        topic = f"{name}-{codec}"
        create(bootstrap, topic, 3)
        produced(bootstrap, topic, 500, compression_type=codec)
        consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=None)
        consumer.assign([TopicPartition(topic, at) for at in range(3)])
        values = read(consumer, 500)
        ends = consumer.end_offsets([TopicPartition(topic, at) for at in range(3)])
        starts = consumer.offsets_for_times({TopicPartition(topic, 0): 1})
        consumer.close()
        found[str(codec)] = [len(values), len(set(values)), sum(ends.values()), starts[TopicPartition(topic, 0)].offset]
    return found


def wait(condition):
    give_up_at = time.monotonic() + DEADLINE_S
    while not condition() and time.monotonic() < give_up_at:
        time.sleep(0.05)


def group(bootstrap, name):
    """Two members, each in a thread of its own as it must be, then one; every record is committed once."""
    create(bootstrap, name, 4)
    produced(bootstrap, name, 1000)
    seen = []
    shares = [0, 0]
    is_over = [threading.Event(), threading.Event()]

    def member(index):
        consumer = KafkaConsumer(name, bootstrap_servers=bootstrap, group_id=name, auto_offset_reset="earliest")
        while not is_over[index].is_set():
            for records in consumer.poll(500).values():
                seen.extend(record.value.decode() for record in records)
            shares[index] = len(consumer.assignment())
        consumer.close()

    threads = [threading.Thread(target=member, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    wait(lambda: len(set(seen)) == 1000 and shares == [2, 2])
    both = list(shares)
    is_over[0].set()
    threads[0].join()
    wait(lambda: shares[1] == 4)
    alone = shares[1]
    is_over[1].set()
    threads[1].join()
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    offsets = client.list_group_offsets(name) if hasattr(client, "list_group_offsets") else {}
    client.close()
    later = KafkaConsumer(bootstrap_servers=bootstrap, group_id=name)
    committed = sum(later.committed(TopicPartition(name, at)) or 0 for at in range(4))
    later.close()
    return {"shares": both, "alone": alone, "seen": len(set(seen)), "committed": committed, "listed": bool(offsets)}


def transactions(bootstrap, name):
    create(bootstrap, name, 2)
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
    producer.init_transactions()
    for stem, is_committed in (("a", True), ("gone", False), ("b", True)):
        producer.begin_transaction()
        for number in range(40):
            producer.send(name, f"{stem}{number}".encode())
        producer.flush(DEADLINE_S)
        if is_committed:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=f"{name}-in")
    producer.begin_transaction()
    producer.send_offsets_to_transaction(
        {TopicPartition(name, 0): OffsetAndMetadata(7, "", -1)}, consumer.group_metadata()
    )
    producer.commit_transaction()
    consumer.close()
    later = KafkaConsumer(bootstrap_servers=bootstrap, group_id=f"{name}-in")
    committed = later.committed(TopicPartition(name, 0))
    later.close()
    producer.close()
    reader = KafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
    )
    reader.assign([TopicPartition(name, 0), TopicPartition(name, 1)])
    values = read(reader, 80)
    reader.close()
    return {"committed": committed, "stems": sorted({value.rstrip("0123456789") for value in values}), "n": len(values)}


SCENARIOS = {"produce_and_consume": produce_and_consume, "group": group, "transactions": transactions}

if __name__ == "__main__":
    scenario, bootstrap = sys.argv[1:3]
    print(json.dumps(SCENARIOS[scenario](bootstrap, f"kp-{scenario}-{uuid.uuid4().hex[:8]}")))
