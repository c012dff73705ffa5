"""Hundreds of thousands of jobs in stages: a queue that is drained again and again grows nowhere.

After each stage the topics of jobs have at most two segments in each partition, and over all stages the memory of
client and worker (with its child) is flat: its slope is printed. 200,000 jobs by default, and as many more for each of
``KAFKA_TEST_ROUNDS``: a million in the deep tier. ``KAFKA_TEST_QUEUE_JOBS=10000000`` is another number.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pytest

from kafka.structs import TopicPartition
from kafka.tasks.backends.kafka.connection import connect
from kafka.tasks.delivery.share_group.trimmer import QueueTrimmer
from kafka.tasks.format.topics import TopicNames
from kafka.tasks.pools import make_loop
from kafka.tasks.settings import read_settings
from kafka.testing import EmbeddedBroker
from test.faults import staged_jobs
from test.support.process_table import children_of, memory_of, needs_proc
from test.support.waiting import WITHIN_S

ROOT: Final = pathlib.Path(__file__).resolve().parents[2]
NAMES: Final = TopicNames(staged_jobs.APP)
TOPICS: Final = (NAMES.queue("default"), NAMES.suspect("default"))

STAGES: Final = 20
SETTLED: Final = 5
"""Stages until caches and buffers have their size."""
MOST_SEGMENTS: Final = 2
GROWTH_BYTES: Final = 8 << 20
"""Of the line through the memory after the settled stages; in the deep tier 11 bytes a job."""


@needs_proc
@pytest.mark.deep("minutes; kept by test/tasks/delivery/share_group/test_trimmer.py and test_pools_soak.py")
@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_queue_that_is_drained_in_stages_has_two_segments_and_flat_memory(
    tmp_path: pathlib.Path, rounds: int, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = int(os.environ.get("KAFKA_TEST_QUEUE_JOBS") or 200_000 * rounds)
    stage = jobs // STAGES
    memory: dict[str, list[int]] = {"client": [], "worker": []}
    most = 0
    with EmbeddedBroker(tmp_path) as broker, _trimming(broker.bootstrap) as trim:
        environment = {**os.environ, "STAGED_SERVERS": broker.bootstrap}
        command = [sys.executable, "-m", "kafka", "worker", "test.faults.staged_jobs:app", "--pool", "prefork"]
        with (
            open(tmp_path / "worker.log", "wb") as log,
            _ended(subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)) as worker,
            _ended(
                subprocess.Popen(
                    staged_jobs.CLIENT, cwd=ROOT, env=environment, text=True, stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            ) as client,
        ):  # fmt: skip
            for _ in range(STAGES):
                staged_jobs.enqueue(client, stage)
                broker.wait_drained([(topic, topic) for topic in TOPICS], staged_jobs.WITHIN_S)
                trim()
                segments = _segments(tmp_path)
                most = max(most, *segments.values())
                assert most <= MOST_SEGMENTS, f"{segments}\n{(tmp_path / 'worker.log').read_text()[-4000:]}"
                memory["client"].append(memory_of(client.pid))
                pids = [worker.pid, *(child.pid for child in children_of(worker.pid))]
                memory["worker"].append(sum(map(memory_of, pids)))
            assert worker.poll() is None
    slopes = {name: _slope(sizes[SETTLED:]) / stage for name, sizes in memory.items()}
    with capsys.disabled():
        print(f"\n{jobs:,} jobs in {STAGES} stages; most segments of a partition: {most}")
        for name, slope in slopes.items():
            settled, end = memory[name][SETTLED], memory[name][-1]
            print(f"{name}: {slope * 100_000:+,.0f} bytes per 100,000 jobs, from {settled:,} to {end:,}")
    for name, slope in slopes.items():
        grown = slope * stage * (STAGES - SETTLED)
        assert grown < GROWTH_BYTES, f"the {name} has grown by {grown:,.0f} bytes: {memory[name]}"


@contextmanager
def _trimming(servers: str) -> Iterator[Callable[[], None]]:
    """A function that deletes settled jobs now, as a worker does about once a minute."""
    loop = make_loop()
    client = connect(read_settings({"bootstrap_servers": servers}), loop)
    places = {topic: [TopicPartition(topic, number) for number in range(staged_jobs.PARTITIONS)] for topic in TOPICS}
    trimmer = QueueTrimmer(client, places)

    def trim() -> None:
        trimmed = trimmer.trim()
        assert loop.run_until(trimmed, WITHIN_S)
        trimmed.result()

    try:
        yield trim
    finally:
        client.close()
        loop.close()


@contextmanager
def _ended(process: subprocess.Popen[Any]) -> Iterator[subprocess.Popen[Any]]:
    """Terminate it in the end."""
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=WITHIN_S)


def _segments(directory: pathlib.Path) -> dict[str, int]:
    """How many segments each partition of the topics of jobs has."""
    folders = [folder for folder in directory.glob("topics/*") if folder.name.rpartition(".")[0] in TOPICS]
    return {
        f"{folder.name}/{partition.name}": len(list(partition.glob("*.log")))
        for folder in folders
        for partition in folder.glob("[0-9]*")
    }


def _slope(sizes: Sequence[int]) -> float:
    """The line of least squares through them, per step."""
    middle = (len(sizes) - 1) / 2
    return sum((step - middle) * size for step, size in enumerate(sizes)) / sum(
        (step - middle) ** 2 for step in range(len(sizes))
    )
