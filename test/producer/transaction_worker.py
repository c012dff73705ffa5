"""A producer with transactions in a process of its own, to be killed: ``python -m test.producer.transaction_worker``.

    write BOOTSTRAP ID TOPIC                      two transactions: a record for each of two partitions, and an offset
    move BOOTSTRAP ID SOURCE TARGET COUNT         consume, transform, produce, until COUNT records were moved

Each record of ``write`` waits for its answer, so the order of requests is always the same.
"""

from __future__ import annotations

import contextlib
import sys

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.protocol.coordinator import FindCoordinatorRequest
from kafka.protocol.offsets import OffsetFetchRequest
from kafka.structs import OffsetAndMetadata
from test.broker.raw_client import RawClient

TRANSACTIONS = 2
GROUP = "moved"


def committed(bootstrap: str, group: str, where: TopicPartition) -> int:
    """The group's offset once no transaction has one pending; -1: none."""
    topics = [OffsetFetchRequest.OffsetFetchRequestTopic(name=where.topic, partition_indexes=[where.partition])]
    with RawClient(int(bootstrap.rpartition(":")[2])) as raw:
        while True:
            if raw.ask(FindCoordinatorRequest(key=group, key_type=0), 3).error_code:
                continue
            answer = raw.ask(OffsetFetchRequest(group_id=group, topics=topics, require_stable=True), 7)
            one = answer.topics[0].partitions[0]
            if not one.error_code and not answer.error_code:
                return int(one.committed_offset)


def make(bootstrap: str, name: str) -> KafkaProducer:
    producer = KafkaProducer(bootstrap_servers=bootstrap, client_id=name, transactional_id=name, retry_backoff_ms=5)
    producer.init_transactions()
    return producer


def write(bootstrap: str, name: str, topic: str) -> None:
    producer = make(bootstrap, name)
    for number in range(TRANSACTIONS):
        with producer.transaction():
            for partition in range(2):
                producer.send(topic, b"%d" % number, partition=partition).get(60)
            producer.send_offsets_to_transaction({TopicPartition(topic, 0): OffsetAndMetadata(number + 1)}, name)
    producer.close()


def move(bootstrap: str, name: str, source: str, target: str, count: int) -> None:
    producer = make(bootstrap, name)
    where = TopicPartition(source, 0)
    position = max(committed(bootstrap, GROUP, where), 0)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed", max_poll_records=20)
    with contextlib.closing(consumer):
        consumer.assign([where])
        consumer.seek(where, position)
        while position < count:
            records = consumer.poll(timeout_ms=1000).get(where, [])
            if not records:
                continue
            with producer.transaction():
                for record in records:
                    producer.send(target, b"moved " + (record.value or b""), partition=record.offset % 2)
                position = records[-1].offset + 1
                producer.send_offsets_to_transaction({where: OffsetAndMetadata(position)}, GROUP)
    producer.close()


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "write":
        write(*rest)
    else:
        move(*rest[:4], int(rest[4]))
