"""Producers: ours, in plain Python and compiled, and the others for Python, against one Apache Kafka, one at a time.

Each figure is the best of :data:`ROUNDS` runs, each in a process of its own (``throughput.py``), the clients in turn,
so that a noisy neighbour hits all of them and counts for none. A rate says little on a shared machine; CPU per message
and its ratio to a peer's in the same run are what counts, and what the goals are about.

``KAFKA_BENCH_MESSAGES`` is how many messages the fastest client sends in a run (default 400,000; slower ones send
fewer). Runs of a quarter of a second, as 100,000 of 1,000 bytes take, were too short: one client gave 1.5 and 2.8 us.

The consumers' benchmark needs no more than another ``what`` for :func:`compare`.
"""

from __future__ import annotations

import json
import os
import pathlib
import uuid
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from kafka.admin import KafkaAdminClient, NewTopic
from test.benchmarks.conftest import apache_kafka
from test.benchmarks.installs import KINDS, NotInstalled
from test.benchmarks.report import Measure, Report
from test.support.peers import foreign_environment, require_peer, run_to_end

pytestmark = pytest.mark.timeout(1800)

MESSAGES = int(os.environ.get("KAFKA_BENCH_MESSAGES", "400000"))
ROUNDS = 3
RUN_TIMEOUT_S = 120.0
SCRIPT = pathlib.Path(__file__).with_name("throughput.py")


class Subject(NamedTuple):
    """One client: its name in the table, its Python, its part of ``throughput.py``, its share of the messages."""

    name: str
    python: pathlib.Path
    library: str
    share: float


class Goal(NamedTuple):
    """Ours is to take no more than ``ratio`` of a peer's CPU per message."""

    ours: str
    peer: str
    ratio: float


PRODUCE_GOALS = (Goal("plain", "kafka-python", 1 / 3), Goal("compiled", "confluent-kafka", 3 / 4))
_LIBRARIES = {"kafka-python": ("kafka", 0.125), "aiokafka": ("aiokafka", 0.25), "confluent-kafka": ("confluent", 1.0)}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """Apache Kafka with the JVM as it comes."""
    with apache_kafka() as apache:
        yield apache.bootstrap


@pytest.fixture(scope="module")
def subjects(installs: Callable[[str], pathlib.Path]) -> list[Subject]:
    """All clients. Ours is left out, with a word, in a kind that cannot be built here."""
    found = []
    for kind in KINDS:
        try:
            python = installs(kind)
        except NotInstalled as reason:
            print(f"\n{kind}: not measured: {reason}")
        else:
            found.append(Subject(kind, python, "kafka", 0.5 if kind == "plain" else 1.0))
    for name, (library, share) in _LIBRARIES.items():
        found.append(Subject(name, require_peer(name), library, share))
    return found


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
@pytest.mark.parametrize("size", [100, 1000])
def test_produce(size: int, codec: str, bootstrap: str, subjects: list[Subject], figures: Report) -> None:
    compare("produce", size, codec, bootstrap, subjects, figures, PRODUCE_GOALS)


def compare(
    what: str, size: int, codec: str, bootstrap: str, subjects: list[Subject], figures: Report, goals: tuple[Goal, ...]
) -> None:
    """Run all subjects in turn, :data:`ROUNDS` times, and note the best of each, and the ratios that are goals."""
    best: dict[str, dict[str, float]] = {}
    for _ in range(ROUNDS):
        for subject in subjects:
            run = _run(what, subject, bootstrap, size, codec)
            seen = best.setdefault(subject.name, run)
            seen["rate"] = max(seen["rate"], run["rate"])
            seen["cpu_us"] = min(seen["cpu_us"], run["cpu_us"])
    title = f"{what} {size} B, {codec}"
    for name, run in best.items():
        figures.add(Measure(title, "msg/s"), name, run["rate"])
        figures.add(Measure(f"{title}: CPU", "µs/msg"), name, run["cpu_us"])
    for goal in goals:
        if goal.ours in best and goal.peer in best:
            ratio = best[goal.ours]["cpu_us"] / best[goal.peer]["cpu_us"]
            measure = Measure(f"{title}: CPU, {goal.ours} to {goal.peer}", "ratio", f"{goal.ratio:.2f}")
            figures.add(measure, goal.ours, ratio)


def _run(what: str, subject: Subject, bootstrap: str, size: int, codec: str) -> dict[str, float]:
    topic = f"bench-{uuid.uuid4().hex[:12]}"
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.create_topics([NewTopic(name=topic, num_partitions=1, replication_factor=1)])
        count = int(MESSAGES * subject.share)
        command = [str(subject.python), str(SCRIPT), what, subject.library, bootstrap, topic, str(count), str(size)]
        printed = run_to_end([*command, codec], foreign_environment(), RUN_TIMEOUT_S)
        admin.delete_topics([topic])  # the disk is not what is measured
    finally:
        admin.close()
    found: dict[str, float] = json.loads(printed.splitlines()[-1])
    return found
