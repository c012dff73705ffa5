"""Consumers: ours, in plain Python and compiled, and the others for Python, against one Apache Kafka, one at a time.

As for producers (``test_producer.py``): each figure is the best of some runs, each in a process of its own, the clients
in turn; CPU per message and its ratio to a peer's are what counts. All read the same topic, which our producer has
filled with batches of 256 KiB; a client's own start, which happens once, is within its time.

``KAFKA_BENCH_MESSAGES`` is how many messages of 100 bytes there are (default 400,000; slower clients read fewer), of
1,000 bytes half of that. ``share`` is a share group's one member, ours and confluent-kafka's; the time begins with the
first records, since joining takes as long as the broker's intervals.
"""

from __future__ import annotations

import json
import pathlib
import uuid

import pytest

from kafka import KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic
from test.benchmarks.report import Measure, Report
from test.benchmarks.test_producer import MESSAGES, ROUNDS, RUN_TIMEOUT_S, Goal, Subject
from test.benchmarks.test_producer import bootstrap as bootstrap  # a fixture
from test.benchmarks.test_producer import subjects as subjects  # a fixture
from test.benchmarks.throughput import BATCH_BYTES, value_of
from test.support.peers import foreign_environment, run_to_end

pytestmark = pytest.mark.timeout(1800)

FOLDER = pathlib.Path(__file__).parent
CONSUME_GOALS = (Goal("plain", "kafka-python", 1 / 2), Goal("compiled", "confluent-kafka", 1 / 2))
LATENCY_MESSAGES = 400
LATENCY_GOALS = (Goal("plain", "kafka-python", 1.0), Goal("compiled", "confluent-kafka", 1.0))
IDLE_PARTITIONS = 1000
IDLE_GOAL_PERCENT = 2.0
SHARE_GOAL = 0.5


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
@pytest.mark.parametrize("size", [100, 1000])
def test_consume(size: int, codec: str, bootstrap: str, subjects: list[Subject], figures: Report) -> None:
    count = MESSAGES if size <= 100 else MESSAGES // 2
    topic = _filled(bootstrap, size, codec, count)
    best: dict[str, dict[str, float]] = {}
    for _ in range(ROUNDS):
        for subject in subjects:
            arguments = ["consume", subject.library, bootstrap, topic, int(count * subject.share), size, codec]
            run = _run(subject, "throughput.py", *arguments)
            seen = best.setdefault(subject.name, run)
            seen["rate"] = max(seen["rate"], run["rate"])
            seen["cpu_us"] = min(seen["cpu_us"], run["cpu_us"])
    _delete(bootstrap, topic)
    title = f"consume {size} B, {codec}"
    for name, run in best.items():
        figures.add(Measure(title, "msg/s"), name, run["rate"])
        figures.add(Measure(f"{title}: CPU", "µs/msg"), name, run["cpu_us"])
    _ratios(figures, f"{title}: CPU", {name: run["cpu_us"] for name, run in best.items()}, CONSUME_GOALS)


def test_latency(bootstrap: str, subjects: list[Subject], figures: Report) -> None:
    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        for subject in subjects:
            if subject.library != "aiokafka":
                topic = _topic(bootstrap)
                run = _run(subject, "waiting.py", "latency", subject.library, bootstrap, topic, LATENCY_MESSAGES)
                best[subject.name] = min(best.get(subject.name, run["p50_ms"]), run["p50_ms"])
                _delete(bootstrap, topic)
    for name, p50_ms in best.items():
        figures.add(Measure("end to end, p50", "ms"), name, p50_ms)
    _ratios(figures, "end to end, p50", best, LATENCY_GOALS)


def test_idle(bootstrap: str, subjects: list[Subject], figures: Report) -> None:
    topic = _topic(bootstrap, IDLE_PARTITIONS)
    for subject in subjects:
        if subject.name in ("plain", "compiled", "confluent-kafka"):
            run = _run(subject, "waiting.py", "idle", subject.library, bootstrap, topic, IDLE_PARTITIONS)
            measure = Measure(f"idle, {IDLE_PARTITIONS} partitions", "% of a core", f"{IDLE_GOAL_PERCENT:.2f}")
            figures.add(measure, subject.name, run["cpu_percent"])
    _delete(bootstrap, topic)


def test_share(bootstrap: str, subjects: list[Subject], figures: Report) -> None:
    count = MESSAGES // 2
    best: dict[str, dict[str, float]] = {}
    for _ in range(ROUNDS):
        for subject in subjects:
            if subject.name not in ("plain", "compiled", "confluent-kafka"):
                continue
            topic = _filled(bootstrap, 100, "none", count)  # one for each run: a group reads it once
            _begin_at_the_start(bootstrap, topic)
            run = _run(subject, "throughput.py", "share", subject.library, bootstrap, topic, count, 100, "none")
            seen = best.setdefault(subject.name, run)
            seen["rate"] = max(seen["rate"], run["rate"])
            seen["cpu_us"] = min(seen["cpu_us"], run["cpu_us"])
            _delete(bootstrap, topic)
    for name, run in best.items():
        figures.add(Measure("share group, 100 B", "msg/s"), name, run["rate"])
        figures.add(Measure("share group, 100 B: CPU", "µs/msg"), name, run["cpu_us"])
    if {"compiled", "confluent-kafka"} <= best.keys():
        measure = Measure("share group, 100 B: rate, compiled to confluent-kafka", "ratio", f">= {SHARE_GOAL:.2f}")
        figures.add(measure, "compiled", best["compiled"]["rate"] / best["confluent-kafka"]["rate"])


def _ratios(figures: Report, title: str, found: dict[str, float], goals: tuple[Goal, ...]) -> None:
    for goal in goals:
        if goal.ours in found and goal.peer in found:
            measure = Measure(f"{title}, {goal.ours} to {goal.peer}", "ratio", f"{goal.ratio:.2f}")
            figures.add(measure, goal.ours, found[goal.ours] / found[goal.peer])


def _run(subject: Subject, script: str, *arguments: object) -> dict[str, float]:
    command = [str(subject.python), str(FOLDER / script), *map(str, arguments)]
    found: dict[str, float] = json.loads(run_to_end(command, foreign_environment(), RUN_TIMEOUT_S).splitlines()[-1])
    return found


def _topic(bootstrap: str, partitions: int = 1) -> str:
    name = f"bench-{uuid.uuid4().hex[:12]}"
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(name=name, num_partitions=partitions, replication_factor=1)])
    return name


def _filled(bootstrap: str, size: int, codec: str, count: int) -> str:
    name = _topic(bootstrap)
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        linger_ms=5,
        batch_size=BATCH_BYTES,
    )
    value = value_of(size)
    for _ in range(count):
        future = producer.send(name, value)
    producer.flush()
    assert future.succeeded()
    producer.close()
    return name


def _begin_at_the_start(bootstrap: str, group: str) -> None:
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        configs = {"share.auto.offset.reset": "earliest"}
        admin.alter_configs([ConfigResource(ConfigResourceType.GROUP, group, configs=configs)])


def _delete(bootstrap: str, topic: str) -> None:
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        admin.delete_topics([topic])
