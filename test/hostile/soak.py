"""Honest clients beside hostile ones: ``python -m test.hostile.soak --minutes 15``; exit code 1 when a bound is missed.

A broker in a process of its own; a producer that waits for each acknowledgement, a consumer, and a task queue with its
worker, of which each request is timed; and ``attack.py``, from another process. At the end: the latencies as the
clients have seen them, resident memory of broker and worker, tracebacks in their logs, and what was acknowledged and is
lost.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from kafka import KafkaConsumer, KafkaProducer
from kafka.testing import EmbeddedBroker
from test.hostile.honest_jobs import app
from test.support import seeds

TOPIC: Final = "honest"
PAUSE_S: Final = 0.02
MOST_P99_S: Final = 0.25
MOST_GROWTH: Final = 1.10
"""Of resident memory: its peak in the last third of the time over that in the second."""
PATIENCE_S: Final = 60.0
LAST_POLLS: Final = 600
"""Of 100 ms at most: for what was acknowledged and has not been seen."""


class Honest:
    """The well-behaved clients. ``latencies``: what was done -> s, as its caller has seen it."""

    def __init__(self, bootstrap: str) -> None:
        self.latencies: dict[str, list[float]] = {"produce": [], "consume": [], "job": []}
        self.acknowledged: set[bytes] = set()
        self.seen: set[bytes] = set()
        self.lost_jobs = 0
        self.faults: list[str] = []
        self._is_over = threading.Event()
        self._has_all = threading.Event()
        self._bootstrap = bootstrap
        self._producing = self._thread(self._produce)
        self._enqueuing = self._thread(self._enqueue)
        self._consuming = self._thread(self._consume)

    def stop(self) -> None:
        """End all of them; the consumer when it has seen what was acknowledged, or has waited for long."""
        self._is_over.set()
        self._producing.join(PATIENCE_S)
        self._enqueuing.join(PATIENCE_S)
        self._has_all.set()
        self._consuming.join(2 * PATIENCE_S)

    def _thread(self, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                self.faults.append(f"{work.__name__}: {error!r}")

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def _produce(self) -> None:
        with KafkaProducer(bootstrap_servers=self._bootstrap, acks="all") as producer:
            number = 0
            while not self._is_over.wait(PAUSE_S):
                number += 1
                began = time.monotonic()
                value = b"%d %.6f" % (number, began)
                producer.send(TOPIC, value).get(PATIENCE_S)
                self.acknowledged.add(value)
                self.latencies["produce"].append(time.monotonic() - began)

    def _consume(self) -> None:
        with KafkaConsumer(TOPIC, bootstrap_servers=self._bootstrap, auto_offset_reset="earliest") as consumer:
            polls_left = LAST_POLLS
            while not self._has_all.is_set() or (self.acknowledged - self.seen and polls_left):
                polls_left -= self._has_all.is_set()
                for records in consumer.poll(100).values():
                    now = time.monotonic()
                    for record in records:
                        self.seen.add(record.value)
                        self.latencies["consume"].append(now - float(record.value.split()[1]))

    def _enqueue(self) -> None:
        number = 0
        while not self._is_over.wait(PAUSE_S):
            number += 1
            began = time.monotonic()
            handle: Any = app.tasks["double"].delay(number)
            if handle.result(PATIENCE_S) != 2 * number:
                self.lost_jobs += 1
            self.latencies["job"].append(time.monotonic() - began)


def resident_bytes(pid: int) -> int:
    """Of a process; 0 when it is gone."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def soak(seconds: float, folder: Path) -> list[str]:
    """Run it, print what was found, and return the bounds that were missed."""
    worker_log = folder / "worker.log"
    with EmbeddedBroker(folder / "data", settings={"auto.create.topics.enable": "false"}) as broker:
        broker.create_topic(TOPIC, 2)
        app.connect_to(broker.bootstrap)
        worker_command = [sys.executable, "-m", "kafka", "worker", "test.hostile.honest_jobs:app"]
        worker_command += ["--bootstrap-server", broker.bootstrap, "--concurrency", "2"]
        with worker_log.open("wb") as log:
            worker = subprocess.Popen(worker_command, stdout=log, stderr=log)
        attacker = subprocess.Popen(
            [sys.executable, "-m", "test.hostile.attack", str(broker.port), str(seeds.seed("hostile soak"))]
        )
        try:
            honest = Honest(broker.bootstrap)
            memory = _watch({"broker": broker.pid, "worker": worker.pid}, seconds)
            honest.stop()
        finally:
            for process in (attacker, worker):
                process.terminate()
            for process in (attacker, worker):
                process.wait(PATIENCE_S)
            app.close(10)
        logs = {"broker": Path(broker.log_path).read_text("utf-8", "replace"), "worker": worker_log.read_text("utf-8")}
    return [*_judge_clients(honest), *_judge_memory(memory), *_judge_logs(logs)]


def _watch(pids: dict[str, int], seconds: float) -> dict[str, list[int]]:
    memory: dict[str, list[int]] = {name: [] for name in pids}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(min(1.0, seconds / 30))
        for name, pid in pids.items():
            memory[name].append(resident_bytes(pid))
    return memory


def _judge_clients(honest: Honest) -> list[str]:
    missed = list(honest.faults)
    for what, times in honest.latencies.items():
        ordered = sorted(times) or [float("inf")]
        p50, p99 = (ordered[int(len(ordered) * share)] for share in (0.5, 0.99))
        shown = f"p50 {p50 * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms, max {ordered[-1] * 1e3:.1f} ms"
        print(f"{what}: {len(times)} times, {shown}")
        if p99 > MOST_P99_S:
            missed.append(f"{what}: p99 is {p99 * 1e3:.0f} ms")
    lost = len(honest.acknowledged - honest.seen)
    print(f"{len(honest.acknowledged)} records acknowledged, {lost} lost; {honest.lost_jobs} jobs lost")
    if lost or honest.lost_jobs:
        missed.append(f"{lost} records and {honest.lost_jobs} jobs lost")
    return missed


def _judge_memory(memory: dict[str, list[int]]) -> list[str]:
    missed = []
    for name, sizes in memory.items():
        third = max(1, len(sizes) // 3)
        parts = [max(sizes[at : at + third]) / 1e6 for at in (0, third, 2 * third)]
        shown = ", ".join(f"{part:.0f}" for part in parts)
        print(f"{name}: resident memory peaks at {shown} MB (thirds of the time)")
        if parts[2] > MOST_GROWTH * parts[1]:
            missed.append(f"memory of the {name} grows: {parts[1]:.0f} to {parts[2]:.0f} MB")
    return missed


def _judge_logs(logs: dict[str, str]) -> list[str]:
    missed = []
    for name, text in logs.items():
        count = text.count("Traceback")
        print(f"{name}: {count} tracebacks in its log")
        if count:
            at = text.index("Traceback")
            missed.append(f"{count} tracebacks in the log of the {name}, the first: {text[at : at + 2000]}")
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m test.hostile.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=15.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        missed = soak(options.minutes * 60, Path(folder))
    for line in missed:
        print("MISSED", line)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
