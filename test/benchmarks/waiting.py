"""How long a message is on its way, and what a consumer costs that waits; prints figures as JSON, as throughput.py:

    PYTHON waiting.py latency kafka|confluent BOOTSTRAP TOPIC MESSAGES
    PYTHON waiting.py idle kafka|confluent BOOTSTRAP TOPIC PARTITIONS

``latency``: milliseconds from the call that sends to the poll that returns, in one process, a message every 5 ms.
``idle``: percent of a core for the user and system time of a consumer that reads all partitions, where nothing comes.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
from typing import Any

EVERY_S = 0.005
IDLE_S = 10.0
SETTLE_S = 3.0


def latency_kafka(bootstrap: str, topic: str, count: int) -> dict[str, float]:
    from kafka import KafkaConsumer, KafkaProducer

    def consume(seen: list[float], stop: threading.Event) -> None:
        consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=None)
        while not stop.is_set():
            for records in consumer.poll(100).values():
                seen += [time.perf_counter() - float(record.value) for record in records]

    producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=0)
    return _latency(consume, lambda: producer.send(topic, repr(time.perf_counter()).encode()), producer.flush, count)


def latency_confluent(bootstrap: str, topic: str, count: int) -> dict[str, float]:
    from confluent_kafka import Consumer, Producer, TopicPartition

    def consume(seen: list[float], stop: threading.Event) -> None:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, 0, 0)])
        while not stop.is_set():
            message = consumer.poll(0.1)
            if message is not None and not message.error():
                seen.append(time.perf_counter() - float(message.value()))

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})

    def send() -> None:
        producer.produce(topic, repr(time.perf_counter()).encode())
        producer.poll(0)

    return _latency(consume, send, producer.flush, count)


def _latency(consume: Any, send: Any, flush: Any, count: int) -> dict[str, float]:
    seen: list[float] = []
    stop = threading.Event()
    thread = threading.Thread(target=consume, args=(seen, stop), daemon=True)
    thread.start()
    send()
    flush()
    while not seen:
        time.sleep(0.01)
    time.sleep(0.3)
    seen.clear()
    for _ in range(count):
        send()
        time.sleep(EVERY_S)
    flush()
    give_up_at = time.monotonic() + 30
    while len(seen) < count and time.monotonic() < give_up_at:
        time.sleep(0.01)
    stop.set()
    ordered = sorted(each * 1000 for each in seen)
    assert len(ordered) == count
    return {"p50_ms": ordered[count // 2], "p99_ms": ordered[count * 99 // 100]}


def idle_kafka(bootstrap: str, topic: str, count: int) -> dict[str, float]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="latest", group_id=None)
    consumer.assign([TopicPartition(topic, number) for number in range(count)])
    return _idle(lambda: consumer.poll(1000))


def idle_confluent(bootstrap: str, topic: str, count: int) -> dict[str, float]:
    from confluent_kafka import OFFSET_END, Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, OFFSET_END) for number in range(count)])
    return _idle(lambda: consumer.poll(1.0))


def _idle(poll: Any) -> dict[str, float]:
    def poll_for(seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            poll()

    poll_for(SETTLE_S)
    began, cpu_s = time.monotonic(), _cpu_s()
    poll_for(IDLE_S)
    return {"cpu_percent": (_cpu_s() - cpu_s) / (time.monotonic() - began) * 100}


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


RUNS = {
    ("latency", "kafka"): latency_kafka,
    ("latency", "confluent"): latency_confluent,
    ("idle", "kafka"): idle_kafka,
    ("idle", "confluent"): idle_confluent,
}


def main(arguments: list[str]) -> None:
    """One run."""
    what, library, bootstrap, topic, count = arguments
    print(json.dumps(RUNS[what, library](bootstrap, topic, int(count))), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
