"""Scenarios of aiokafka: ``aio.py SCENARIO BOOTSTRAP NAME``. Runs in the peer's own environment."""

from __future__ import annotations

import asyncio
import json
import sys
import time
import uuid

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

DEADLINE_S = 45.0


async def create(bootstrap, topic, partitions=1):
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    await client.create_topics([NewTopic(topic, partitions, 1)])
    await client.close()


async def produced(bootstrap, topic, count, **settings):
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, **settings)
    await producer.start()
    futures = [await producer.send(topic, b"value-%d" % n, key=b"%d" % (n % 50)) for n in range(count)]
    offsets = await asyncio.gather(*futures)
    await producer.stop()
    assert len({(found.partition, found.offset) for found in offsets}) == count


async def read(consumer, count):
    values = []
    give_up_at = time.monotonic() + DEADLINE_S
    while len(values) < count and time.monotonic() < give_up_at:
        for records in (await consumer.getmany(timeout_ms=200)).values():
            values.extend(record.value.decode() for record in records)
    return values


async def produce_and_consume(bootstrap, name):
    found = {}
    for codec, idempotent in ((None, False), ("gzip", True)):
        topic = f"{name}-{codec}"
        await create(bootstrap, topic, 3)
        await produced(bootstrap, topic, 500, compression_type=codec, enable_idempotence=idempotent)
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=None)
        await consumer.start()
        consumer.assign([TopicPartition(topic, at) for at in range(3)])
        values = await read(consumer, 500)
        await consumer.stop()
        found[str(codec)] = [len(values), len(set(values))]
    return found


async def group(bootstrap, name):
    await create(bootstrap, name, 4)
    await produced(bootstrap, name, 1000)
    settings = {"bootstrap_servers": bootstrap, "group_id": name, "auto_offset_reset": "earliest"}
    members = [AIOKafkaConsumer(name, **settings), AIOKafkaConsumer(name, **settings)]
    await asyncio.gather(*(member.start() for member in members))
    seen = []
    give_up_at = time.monotonic() + DEADLINE_S
    while time.monotonic() < give_up_at:
        for member in members:
            for records in (await member.getmany(timeout_ms=100)).values():
                seen.extend(record.value.decode() for record in records)
        if len(set(seen)) == 1000 and [len(member.assignment()) for member in members] == [2, 2]:
            break
    shares = sorted(len(member.assignment()) for member in members)
    await members[0].stop()
    give_up_at = time.monotonic() + DEADLINE_S
    while time.monotonic() < give_up_at and len(members[1].assignment()) < 4:
        await members[1].getmany(timeout_ms=100)
    alone = len(members[1].assignment())
    committed = 0
    for at in range(4):
        committed += await members[1].committed(TopicPartition(name, at)) or 0
    await members[1].stop()
    return {"shares": shares, "alone": alone, "seen": len(set(seen)), "committed": committed}


async def transactions(bootstrap, name):
    await create(bootstrap, name, 2)
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
    await producer.start()
    for stem, is_committed in (("a", True), ("gone", False), ("b", True)):
        await producer.begin_transaction()
        futures = [await producer.send(name, f"{stem}{number}".encode()) for number in range(40)]
        await asyncio.gather(*futures)
        if is_committed:
            await producer.commit_transaction()
        else:
            await producer.abort_transaction()
    async with producer.transaction():
        await producer.send_offsets_to_transaction({TopicPartition(name, 0): 7}, f"{name}-in")
    await producer.stop()
    later = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=f"{name}-in")
    await later.start()
    committed = await later.committed(TopicPartition(name, 0))
    await later.stop()
    reader = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
    )
    await reader.start()
    reader.assign([TopicPartition(name, 0), TopicPartition(name, 1)])
    values = await read(reader, 80)
    await reader.stop()
    return {"committed": committed, "stems": sorted({value.rstrip("0123456789") for value in values}), "n": len(values)}


SCENARIOS = {"produce_and_consume": produce_and_consume, "group": group, "transactions": transactions}

if __name__ == "__main__":
    scenario, bootstrap = sys.argv[1:3]
    print(json.dumps(asyncio.run(SCENARIOS[scenario](bootstrap, f"aio-{scenario}-{uuid.uuid4().hex[:8]}"))))
