"""An app whose tasks enqueue others; its name and its topics are the test's own."""

from __future__ import annotations

import os
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.tasks import App, Task

jobs: dict[str, Task[..., Any]] = {}


def make_app() -> App:
    """The app by the name that the environment says, with its tasks."""
    app = App(os.environ.get("KAFKA_TEST_APP", "children"), partitions=1, max_payload_bytes=100_000, linger=0.05)

    @app.task(name="other")
    def other(number: int) -> int:
        return number

    @app.task(name="enqueue")
    def enqueue(count: int) -> list[str]:
        with app.batch() as batch:
            for number in range(count):
                other.delay(number)
        return [job.id for job in batch.jobs]

    @app.task(name="enqueue_without_waiting")
    def enqueue_without_waiting() -> None:
        other.delay(0)

    jobs.update(other=other, enqueue=enqueue, enqueue_without_waiting=enqueue_without_waiting)
    return app


app = make_app()


def count_records(bootstrap: str, topic: str) -> int:
    """How many records are in the one partition of a topic."""
    partition = TopicPartition(topic, 0)
    with KafkaConsumer(bootstrap_servers=bootstrap) as consumer:
        return int(consumer.end_offsets([partition])[partition])
