"""Scenarios of confluent-kafka: ``confluent.py SCENARIO BOOTSTRAP NAME``. Runs in the peer's own environment."""

from __future__ import annotations

import json
import sys
import time
import uuid

from confluent_kafka import (
    AcknowledgeType,
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    Producer,
    ShareConsumer,
    TopicCollection,
)
from confluent_kafka import TopicPartition as At
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

COUNT = 2_000
DEADLINE_S = 45.0


def produced(bootstrap, topic, count=COUNT, **settings):
    """Produce ``count`` keyed records; how many were confirmed."""
    confirmed = []

    def on_delivery(error, message):
        assert error is None, error
        confirmed.append((message.partition(), message.offset()))

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 2, **settings})
    for number in range(count):
        producer.produce(topic, b"value-%d" % number, key=b"%d" % (number % 50), headers={"n": b"%d" % number},
                         on_delivery=on_delivery)  # fmt: skip
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0
    assert len(set(confirmed)) == count
    return count


def consumed(bootstrap, topics, count, group, **settings):
    """Consume until ``count`` values are there and the topics have ended: the values, sorted."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
         "enable.auto.commit": False, **settings}
    )  # fmt: skip
    consumer.subscribe(topics)
    values = read(consumer, count)
    consumer.commit(asynchronous=False)
    consumer.close()
    return values


def read(consumer, count, wait_s=1.0):
    """``count`` values and whatever comes in ``wait_s`` after them."""
    values = []
    give_up_at = time.monotonic() + DEADLINE_S
    while time.monotonic() < give_up_at:
        messages = consumer.consume(1000, 0.2)
        for message in messages:
            assert message.error() is None, message.error()
            values.append(message.value().decode())
        if len(values) >= count:
            give_up_at = min(give_up_at, time.monotonic() + wait_s)
    return sorted(values)


def produce_and_consume(bootstrap, name):
    found = {}
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        topic = f"{name}-{codec}"
        create(bootstrap, topic, 3)
        produced(bootstrap, topic, 500, **{"compression.type": codec, "enable.idempotence": codec != "gzip"})
        values = consumed(bootstrap, [topic], 500, topic)
        found[codec] = [len(values), len(set(values))]
    return found


def create(bootstrap, topic, partitions=1, **config):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {key.replace("_", "."): str(value) for key, value in config.items()}
    for future in admin.create_topics([NewTopic(topic, partitions, 1, config=settings)]).values():
        future.result(DEADLINE_S)
    give_up_at = time.monotonic() + DEADLINE_S
    while topic not in admin.list_topics(timeout=10).topics:
        assert time.monotonic() < give_up_at
        time.sleep(0.05)


def group(bootstrap, name, protocol):
    """Two members share four partitions, one leaves, the other takes all; every record is committed once."""
    create(bootstrap, name, 4)
    produced(bootstrap, name, 1000)
    settings = {"bootstrap.servers": bootstrap, "group.id": name, "auto.offset.reset": "earliest",
                "group.protocol": protocol}  # fmt: skip
    if protocol == "classic":
        settings["partition.assignment.strategy"] = "cooperative-sticky"
    members = [Consumer(settings), Consumer(settings)]
    for member in members:
        member.subscribe([name])
    seen = []
    give_up_at = time.monotonic() + DEADLINE_S
    while time.monotonic() < give_up_at:
        for member in members:
            for message in member.consume(500, 0.1):
                assert message.error() is None
                seen.append(message.value().decode())
        owned = [len(member.assignment()) for member in members]
        if len(set(seen)) == 1000 and owned == [2, 2]:
            break
    shares = sorted(len(member.assignment()) for member in members)
    members[0].close()
    give_up_at = time.monotonic() + DEADLINE_S
    while time.monotonic() < give_up_at and len(members[1].assignment()) < 4:
        members[1].consume(100, 0.1)
    alone = len(members[1].assignment())
    members[1].close()
    with_group = Consumer({**settings, "group.protocol": "classic"})
    committed = sum(found.offset for found in with_group.committed([At(name, at) for at in range(4)], 10))
    with_group.close()
    return {"shares": shares, "alone": alone, "committed": committed, "seen": len(set(seen)), "total": len(seen)}


def transactions(bootstrap, name):
    """Commits, an abort, offsets in a transaction, a fenced producer."""
    create(bootstrap, name, 2)
    create(bootstrap, f"{name}-in", 1)
    produced(bootstrap, f"{name}-in", 100)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(DEADLINE_S)

    def transact(values, end):
        producer.begin_transaction()
        for value in values:
            producer.produce(name, value.encode())
        end(DEADLINE_S)

    transact([f"a{n}" for n in range(50)], producer.commit_transaction)
    transact([f"gone{n}" for n in range(50)], producer.abort_transaction)
    transact([f"b{n}" for n in range(50)], producer.commit_transaction)

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name, "auto.offset.reset": "earliest",
                         "enable.auto.commit": False})  # fmt: skip
    consumer.subscribe([f"{name}-in"])
    values = read(consumer, 100, 0)
    producer.begin_transaction()
    for value in values:
        producer.produce(name, f"moved-{value}".encode())
    producer.send_offsets_to_transaction(consumer.position(consumer.assignment()), consumer.consumer_group_metadata())
    producer.commit_transaction(DEADLINE_S)
    committed = consumer.committed([At(f"{name}-in", 0)], 10)[0].offset
    consumer.close()

    second = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    second.init_transactions(DEADLINE_S)
    fenced = ""
    try:
        transact(["late"], producer.commit_transaction)
    except KafkaException as error:
        fenced = error.args[0].name()
        is_fatal = error.args[0].fatal()
    second.begin_transaction()
    second.produce(name, b"open")
    second.flush(DEADLINE_S)
    readers = {
        level: consumed(bootstrap, [name], 200, f"{name}-{level}", **{"isolation.level": level})
        for level in ("read_committed", "read_uncommitted")
    }
    second.abort_transaction(DEADLINE_S)
    return {
        "committed": committed,
        "fenced": fenced,
        "fatal": is_fatal,
        "read_committed": sorted({value.rstrip("0123456789") for value in readers["read_committed"]}),
        "read_committed_count": len(readers["read_committed"]),
        "read_uncommitted_count": len(readers["read_uncommitted"]),
    }


def admin(bootstrap, name):
    """The administrator's calls, with what they gave."""
    client = AdminClient({"bootstrap.servers": bootstrap})
    create(bootstrap, name, 2, retention_ms=3_600_000)
    produced(bootstrap, name, 200)
    found = {}
    for future in client.create_partitions([NewPartitions(name, 3)]).values():
        future.result(DEADLINE_S)
    resource = ConfigResource(ResourceType.TOPIC, name)
    found["retention"] = client.describe_configs([resource])[resource].result(DEADLINE_S)["retention.ms"].value
    change = ConfigResource(
        ResourceType.TOPIC, name,
        incremental_configs=[ConfigEntry("retention.ms", "60000", incremental_operation=AlterConfigOpType.SET)],
    )  # fmt: skip
    client.incremental_alter_configs([change])[change].result(DEADLINE_S)
    give_up_at = time.monotonic() + DEADLINE_S
    while True:  # the broker that answers learns of it behind the controller
        settings = client.describe_configs([resource])[resource].result(DEADLINE_S)
        found["retention_after"] = settings["retention.ms"].value
        if found["retention_after"] != found["retention"] or time.monotonic() > give_up_at:
            break
    ends = client.list_offsets({At(name, at): OffsetSpec.latest() for at in range(2)},
                               isolation_level=IsolationLevel.READ_COMMITTED)  # fmt: skip
    found["ends"] = sum(future.result(DEADLINE_S).offset for future in ends.values())
    newest = client.list_offsets({At(name, 0): OffsetSpec.max_timestamp()})
    found["max_timestamp"] = all(future.result(DEADLINE_S).timestamp > 0 for future in newest.values())
    deleted = client.delete_records([At(name, 0, 5)])
    found["low_watermark"] = [future.result(DEADLINE_S).low_watermark for future in deleted.values()]
    consumed(bootstrap, [name], 190, name)
    listed = client.list_consumer_groups().result(DEADLINE_S)
    found["listed"] = [str(group.state) for group in listed.valid if group.group_id == name]
    described = client.describe_consumer_groups([name])[name].result(DEADLINE_S)
    found["state"] = str(described.state)
    offsets = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)])[name].result(DEADLINE_S)
    found["offsets"] = sum(at.offset for at in offsets.topic_partitions)
    altered = ConsumerGroupTopicPartitions(name, [At(name, 0, 7)])
    changed = client.alter_consumer_group_offsets([altered])[name].result(DEADLINE_S)
    found["altered"] = changed.topic_partitions[0].offset
    client.delete_consumer_groups([name])[name].result(DEADLINE_S)
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    try:
        found["acls"] = len(client.describe_acls(everything).result(DEADLINE_S))
    except KafkaException as error:
        found["acls"] = error.args[0].name()
    cluster = client.describe_cluster().result(DEADLINE_S)
    found["nodes"] = len(cluster.nodes)
    topics = client.describe_topics(TopicCollection([name]))
    found["partitions"] = len(topics[name].result(DEADLINE_S).partitions)
    client.delete_topics([name])[name].result(DEADLINE_S)
    return found


def share(bootstrap, name):
    """A share consumer: all records once with acknowledgement, a released one again, a rejected one no more."""
    create(bootstrap, name, 2)
    client = AdminClient({"bootstrap.servers": bootstrap})
    produced(bootstrap, name, 200)
    earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource(ResourceType.GROUP, name, incremental_configs=[earliest])
    client.incremental_alter_configs([change])[change].result(DEADLINE_S)
    consumer = ShareConsumer(
        {"bootstrap.servers": bootstrap, "group.id": name, "share.acknowledgement.mode": "explicit"}
    )
    consumer.subscribe([name])
    deliveries = {}
    give_up_at = time.monotonic() + DEADLINE_S
    while time.monotonic() < give_up_at:
        for message in consumer.poll(0.5):
            assert message.error() is None, message.error()
            key = message.value().decode()
            deliveries[key] = deliveries.get(key, 0) + 1
            first = deliveries[key] == 1
            kind = AcknowledgeType.ACCEPT
            if key == "value-7" and first:
                kind = AcknowledgeType.RELEASE
            elif key == "value-8":
                kind = AcknowledgeType.REJECT
            consumer.acknowledge(message, kind)
        if len(deliveries) == 200 and deliveries["value-7"] == 2:
            break
    consumer.commit_sync(10)
    consumer.close()
    return {"values": len(deliveries), "released": deliveries.get("value-7"), "rejected": deliveries.get("value-8")}


SCENARIOS = {
    "produce_and_consume": produce_and_consume,
    "group_classic": lambda bootstrap, name: group(bootstrap, name, "classic"),
    "group_consumer": lambda bootstrap, name: group(bootstrap, name, "consumer"),
    "transactions": transactions,
    "admin": admin,
    "share": share,
}

if __name__ == "__main__":
    scenario, bootstrap = sys.argv[1:3]
    print(json.dumps(SCENARIOS[scenario](bootstrap, f"{scenario}-{uuid.uuid4().hex[:8]}")))
