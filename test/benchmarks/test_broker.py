"""The embedded broker: how soon it is there, what it costs when nobody wants anything, how fast others' clients are.

Methods. *Start*: from the start of the interpreter to the line that says where it listens, on an empty directory, the
best of five. *Idle*: CPU of the broker's process over three seconds with 1,000 connections that have said who they are
and go on to say nothing. *In* and *out*: confluent-kafka, 100 bytes a message, one partition, acknowledged by all; the
reader with librdkafka's defaults, and without its pause after a full queue (``confluent_rates.py``).
*10,000 topics*: made by 100 requests; then the start of a broker that has them.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from kafka.admin import KafkaAdminClient, NewTopic
from kafka.protocol.api_versions import ApiVersionsRequest
from kafka.testing import EmbeddedBroker
from test.benchmarks.conftest import Broker
from test.benchmarks.installs import ROOT
from test.benchmarks.report import Measure, Report
from test.broker.raw_client import RawClient
from test.support.peers import run_peer

pytestmark = pytest.mark.timeout(600)

MESSAGES = int(os.environ.get("KAFKA_BENCH_MESSAGES", "1000000"))
CONNECTIONS = 1_000
TOPICS = 10_000
IDLE_S = 3.0
SETTLE_S = 2.0
"""A second after its start a broker imports the handlers that nobody has asked for: some 80 ms, once."""
STARTS = 5

START = Measure("start of the broker, best of 5", "ms", "300")
START_WITH_TOPICS = Measure("  with 10,000 topics", "ms")
MAKE_TOPICS = Measure("  making one of them", "ms")
IDLE = Measure("idle with 1,000 connections", "% of a core", "1")
IN = Measure("confluent-kafka, 100 bytes, in", "messages/s", "200,000")
OUT = Measure("  out", "messages/s", "400,000")
OUT_AS_IT_COMES = Measure("  out, librdkafka's defaults", "messages/s")


@contextlib.contextmanager
def started(directory: pathlib.Path) -> Iterator[tuple[float, int]]:
    """A broker in a process of its own: how long it took to listen, in ms, and its port."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "kafka", "broker", "--data-dir", str(directory), "--port", "0"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        yield (time.perf_counter() - began) * 1000, int(line.rpartition(":")[2])
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)


def test_start(tmp_path: pathlib.Path, figures: Report) -> None:
    times = []
    for number in range(STARTS):
        with started(tmp_path / str(number)) as (took_ms, _):
            times.append(took_ms)
    figures.add(START, "embedded", min(times))


def test_ten_thousand_topics(tmp_path: pathlib.Path, figures: Report) -> None:
    with started(tmp_path) as (_, port), KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{port}") as admin:
        began = time.perf_counter()
        for first in range(0, TOPICS, 100):
            admin.create_topics([NewTopic(f"topic-{first + at}", 1, 1) for at in range(100)])
        figures.add(MAKE_TOPICS, "embedded", (time.perf_counter() - began) / TOPICS * 1000)
    with started(tmp_path) as (took_ms, port):
        figures.add(START_WITH_TOPICS, "embedded", took_ms)
        with KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{port}") as admin:
            assert len(admin.list_topics()) >= TOPICS


def test_a_thousand_idle_connections(figures: Report) -> None:
    with EmbeddedBroker() as broker, contextlib.ExitStack() as stack:
        for _ in range(CONNECTIONS):
            client = stack.enter_context(RawClient(broker.port))
            client.ask(ApiVersionsRequest(client_software_name="idle", client_software_version="1"), 3)
        time.sleep(SETTLE_S)
        before = cpu_s(broker.pid)
        time.sleep(IDLE_S)  # what is measured is a time in which nothing happens
        figures.add(IDLE, "embedded", (cpu_s(broker.pid) - before) / IDLE_S * 100)


def cpu_s(pid: int) -> float:
    """CPU time of a process, in s."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_confluent_kafka_in_and_out(broker: Broker, figures: Report) -> None:
    for backoff_ms, out in ((1, OUT), (1000, OUT_AS_IT_COMES)):
        rates = run_peer(
            "confluent-kafka", "confluent_rates", broker.bootstrap, str(MESSAGES), "100", str(backoff_ms),
            timeout_s=300,
        )  # fmt: skip
        figures.add(IN, broker.name, rates["in"])
        figures.add(out, broker.name, rates["out"])
