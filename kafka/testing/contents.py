"""What is on a broker: topics made, records written and read, with clients of our own. Each function takes the address.

:class:`~kafka.testing.EmbeddedBroker` has these as methods.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping

from kafka.admin import KafkaAdminClient, NewTopic
from kafka.consumer import ConsumerRecord, KafkaConsumer
from kafka.errors import KafkaTimeoutError, TopicAlreadyExistsError, UnknownTopicOrPartitionError, for_code
from kafka.producer import KafkaProducer
from kafka.structs import TopicPartition


def ensure_topics(bootstrap: str, wanted: Mapping[str, int]) -> None:
    """Make topics with so many partitions, but for those that are there already."""
    topics = [NewTopic(name, partitions, 1) for name, partitions in wanted.items()]
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        for topic in admin.create_topics(topics, raise_errors=False)["topics"]:
            if topic["error_code"] not in (0, TopicAlreadyExistsError.errno):
                raise for_code(topic["error_code"])(f"topic {topic['name']}: {topic['error_message']}")


def create_topic(bootstrap: str, name: str, partitions: int, configs: Mapping[str, object]) -> None:
    """Make a topic, with ``_`` for ``.`` in its settings' names."""
    settings = {key.replace("_", "."): str(value) for key, value in configs.items()}
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions, 1, topic_configs=settings)], wait_for_metadata=True)


def fill(bootstrap: str, topic: str, values: Iterable[bytes | str], partition: int | None) -> int:
    """Write records with these values; how many there were."""
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        futures = [
            producer.send(topic, value.encode() if isinstance(value, str) else value, partition=partition)
            for value in values
        ]
        producer.flush()
        for future in futures:
            future.get(0)
    return len(futures)


def records(bootstrap: str, topic: str, at_least: int, timeout_s: float) -> list[ConsumerRecord]:
    """All committed records up to the end of now, and at least so many, partition by partition."""
    found: list[ConsumerRecord] = []
    give_up_at = time.monotonic() + timeout_s
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed")
    with contextlib.closing(consumer):
        wanted = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())]
        if not wanted:
            raise UnknownTopicOrPartitionError(f"no topic {topic}")
        consumer.assign(wanted)
        consumer.seek_to_beginning(*wanted)
        ends = consumer.end_offsets(wanted)
        while len(found) < at_least or any(consumer.position(each) < end for each, end in ends.items()):
            left_s = give_up_at - time.monotonic()
            if left_s <= 0:
                wish = f"there are {len(found)} records, not {at_least}," if at_least else "not all could be read"
                raise KafkaTimeoutError(f"{topic}: {wish} after {timeout_s:g} s")
            for batch in consumer.poll(timeout_ms=min(left_s, 1.0) * 1000).values():
                found += batch
    return sorted(found, key=lambda record: (record.partition, record.offset))
