"""Produces to a topic, or reads it, with one client library; prints figures as JSON. Run by a benchmark, for itself:

    PYTHON throughput.py produce|consume|share kafka|aiokafka|confluent BOOTSTRAP TOPIC MESSAGES SIZE none|gzip|lz4|zstd

``kafka`` is whatever package has that name where PYTHON looks: this project's, plain or compiled, or kafka-python,
whose calls are the same. So nothing of the project is imported here. The topic is there already, with one partition.

Each library has its own defaults but for what is measured: acks=all, 5 ms of linger, room for batches of 256 KiB or
more. CPU is the user and system time of this process, all threads, from the first message to the last answer: what
comes before (imports, connections, metadata) happens once and not for each message.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import sys
import time
from typing import Any

BATCH_BYTES = 262_144
LINGER_MS = 5
READ_AT_ONCE = 5_000


class Stopwatch:
    """From its making on."""

    def __init__(self) -> None:
        self.cpu_s = _cpu_s()
        self.began = time.perf_counter()

    def figures(self, count: int) -> dict[str, float]:
        """Messages per second, CPU microseconds per message, of ``count`` messages until now."""
        seconds = time.perf_counter() - self.began
        return {"rate": count / seconds, "cpu_us": (_cpu_s() - self.cpu_s) / count * 1e6}


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def produce_kafka(bootstrap: str, topic: str, value: bytes, count: int, codec: str | None) -> dict[str, float]:
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=codec,
        acks="all",
        linger_ms=LINGER_MS,
        batch_size=BATCH_BYTES,
    )
    producer.send(topic, value).get(30)
    watch = Stopwatch()
    for _ in range(count):
        future = producer.send(topic, value)
    producer.flush()
    figures = watch.figures(count)
    assert future.succeeded()
    producer.close()
    return figures


def consume_kafka(bootstrap: str, topic: str, value: bytes, count: int, codec: str | None) -> dict[str, float]:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        group_id=None,
        max_poll_records=READ_AT_ONCE,
    )
    seen, last = 0, b""
    watch = Stopwatch()
    while seen < count:
        for records in consumer.poll(1000).values():
            for record in records:
                seen, last = seen + 1, record.value
    figures = watch.figures(seen)
    assert last == value
    consumer.close()
    return figures


def share_kafka(bootstrap: str, topic: str, value: bytes, count: int, codec: str | None) -> dict[str, float]:
    """Through a share group of the topic's name, which begins at the start."""
    from kafka import KafkaShareConsumer

    consumer = KafkaShareConsumer(topic, bootstrap_servers=bootstrap, group_id=topic, max_poll_records=READ_AT_ONCE)
    seen, last = 0, b""
    while not seen:  # joining takes the broker some seconds, whoever asks
        seen += sum(map(len, consumer.poll(1000).values()))
    before, watch = seen, Stopwatch()
    while seen < count:
        for records in consumer.poll(1000).values():
            for record in records:
                seen, last = seen + 1, record.value
    figures = watch.figures(seen - before)
    assert last == value
    return figures


def share_confluent(bootstrap: str, topic: str, value: bytes, count: int, codec: str | None) -> dict[str, float]:
    from confluent_kafka import ShareConsumer

    consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": topic, "max.poll.records": READ_AT_ONCE})
    consumer.subscribe([topic])
    seen, last = 0, b""
    while not seen:
        seen += len(consumer.poll(1.0))
    before, watch = seen, Stopwatch()
    while seen < count:
        for message in consumer.poll(1.0):
            message.offset()
            message.key()
            seen, last = seen + 1, message.value()
    figures = watch.figures(seen - before)
    assert last == value
    return figures


def produce_confluent(bootstrap: str, topic: str, value: bytes, count: int, codec: str | None) -> dict[str, float]:
    from confluent_kafka import Producer

    failures: list[Any] = []

    def answered(error: Any, _message: Any) -> None:
        if error:
            failures.append(error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": LINGER_MS,
            "acks": "all",
            "compression.type": codec or "none",
            "queue.buffering.max.messages": 10**7,
            "queue.buffering.max.kbytes": 1 << 20,
        }
    )
    producer.produce(topic, value, callback=answered)
    producer.flush()
    watch = Stopwatch()
    for number in range(count):
        producer.produce(topic, value, callback=answered)
        if not number & 1023:
            producer.poll(0)
    producer.flush()
    figures = watch.figures(count)
    assert not failures
    return figures


def consume_confluent(bootstrap: str, topic: str, value: bytes, count: int, codec: str | None) -> dict[str, float]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen, last = 0, b""
    watch = Stopwatch()
    while seen < count:
        for message in consumer.consume(READ_AT_ONCE, 1.0):
            message.offset()
            message.key()
            seen, last = seen + 1, message.value()
    figures = watch.figures(seen)
    assert last == value
    consumer.close()
    return figures


def produce_aiokafka(bootstrap: str, topic: str, value: bytes, count: int, codec: str | None) -> dict[str, float]:
    from aiokafka import AIOKafkaProducer

    async def run() -> dict[str, float]:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            linger_ms=LINGER_MS,
            acks="all",
            compression_type=codec,
            max_batch_size=BATCH_BYTES,
        )
        await producer.start()
        await producer.send_and_wait(topic, value)
        watch = Stopwatch()
        for _ in range(count):
            await producer.send(topic, value)
        await producer.flush()
        figures = watch.figures(count)
        await producer.stop()
        return figures

    return asyncio.run(run())


def consume_aiokafka(bootstrap: str, topic: str, value: bytes, count: int, codec: str | None) -> dict[str, float]:
    from aiokafka import AIOKafkaConsumer

    async def run() -> dict[str, float]:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            group_id=None,
            max_poll_records=READ_AT_ONCE,
        )
        await consumer.start()
        seen, last = 0, b""
        watch = Stopwatch()
        while seen < count:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                for record in records:
                    seen, last = seen + 1, record.value
        figures = watch.figures(seen)
        assert last == value
        await consumer.stop()
        return figures

    return asyncio.run(run())


RUNS = {
    ("produce", "kafka"): produce_kafka,
    ("produce", "confluent"): produce_confluent,
    ("produce", "aiokafka"): produce_aiokafka,
    ("consume", "kafka"): consume_kafka,
    ("consume", "confluent"): consume_confluent,
    ("share", "kafka"): share_kafka,
    ("share", "confluent"): share_confluent,
    ("consume", "aiokafka"): consume_aiokafka,
}


def value_of(size: int) -> bytes:
    """``size`` hexadecimal digits of chance, which a codec can halve; the same in each process."""
    return random.Random(size).randbytes((size + 1) // 2).hex().encode()[:size]


def main(arguments: list[str]) -> None:
    """One run."""
    what, library, bootstrap, topic, messages, size, codec = arguments
    value = value_of(int(size))
    figures = RUNS[what, library](bootstrap, topic, value, int(messages), None if codec == "none" else codec)
    figures["rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(figures), flush=True)
    os._exit(0)  # nothing that a library does at its end is measured, or may hang here


if __name__ == "__main__":
    main(sys.argv[1:])
