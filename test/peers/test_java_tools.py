"""Apache Kafka's own command line tools, unchanged: those for performance, the verifiable ones, administration."""

from __future__ import annotations

import json
import pathlib
import shutil
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from kafka.protocol.configs import IncrementalAlterConfigsRequest
from test.broker.raw_client import RawClient
from test.support import jars
from test.support.apache_kafka import refuse
from test.support.peers import run_to_end

pytestmark = pytest.mark.timeout(180)

TIMEOUT_S = 120.0
COUNT = 5_000
Run = Callable[..., str]


@pytest.fixture(scope="session")
def classpath() -> str:
    try:
        if shutil.which("java") is None:
            raise jars.Unavailable("Java is not installed (no `java` on PATH)")
        return jars.tools_classpath()
    except jars.Unavailable as reason:
        refuse(f"needs Apache Kafka's tools: {reason}")


@pytest.fixture
def tool(classpath: str, bootstrap: str) -> Run:
    """``tool(name, *arguments)``: what a tool of ``org.apache.kafka.tools`` prints."""

    def run(name: str, *arguments: str) -> str:
        jvm = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", classpath]
        command = [*jvm, f"org.apache.kafka.tools.{name}", "--bootstrap-server", bootstrap, *arguments]
        return run_to_end(command, timeout_s=TIMEOUT_S)

    return run


def events(text: str, name: str) -> list[dict[str, Any]]:
    """The events of a verifiable tool, of one kind."""
    found = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [event for event in found if event["name"] == name]


def test_producer_and_consumer_performance(tool: Run, new_topic: Callable[[int], str]) -> None:
    topic = new_topic(3)
    sent = tool(
        "ProducerPerformance", "--topic", topic, "--num-records", str(COUNT), "--record-size", "100",
        "--throughput", "-1", "--command-property", "compression.type=lz4",
    )  # fmt: skip
    assert f"{COUNT} records sent" in sent
    read = tool(
        "ConsumerPerformance", "--topic", topic, "--num-records", str(COUNT), "--hide-header", "--group", topic
    )
    assert int(read.strip().splitlines()[-1].split(", ")[4]) == COUNT


def test_transactional_producer_performance(tool: Run, new_topic: Callable[[int], str]) -> None:
    topic = new_topic(2)
    sent = tool(
        "ProducerPerformance", "--topic", topic, "--num-records", str(COUNT), "--record-size", "100",
        "--throughput", "-1", "--transactional-id", topic, "--transaction-duration-ms", "50",
    )  # fmt: skip
    assert f"{COUNT} records sent" in sent
    read = tool(
        "ConsumerPerformance", "--topic", topic, "--num-records", str(COUNT), "--hide-header", "--group", topic,
        "--command-property", "isolation.level=read_committed",
    )  # fmt: skip
    assert int(read.strip().splitlines()[-1].split(", ")[4]) == COUNT


def test_share_consumer_performance(tool: Run, bootstrap: str, new_topic: Callable[[int], str]) -> None:
    topic = new_topic(2)
    group = f"group-{uuid.uuid4().hex[:8]}"
    with RawClient(int(bootstrap.rpartition(":")[2])) as raw:
        A = IncrementalAlterConfigsRequest
        earliest = A.AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
        resource = A.AlterConfigsResource(resource_type=32, resource_name=group, configs=[earliest])
        assert raw.ask(A(resources=[resource], validate_only=False)).responses[0].error_code == 0
    tool("ProducerPerformance", "--topic", topic, "--num-records", str(COUNT), "--record-size", "100",
         "--throughput", "-1")  # fmt: skip
    read = tool(
        "ShareConsumerPerformance", "--topic", topic, "--num-records", str(COUNT), "--hide-header", "--group", group
    )
    assert int(read.strip().splitlines()[-1].split(", ")[5]) >= COUNT


def test_verifiable_share_consumer(tool: Run, new_topic: Callable[[int], str]) -> None:
    topic = new_topic(2)
    group = f"group-{uuid.uuid4().hex[:8]}"
    tool(
        "ProducerPerformance", "--topic", topic, "--num-records", str(COUNT),
        "--record-size", "100", "--throughput", "-1",
    )  # fmt: skip
    read = tool("VerifiableShareConsumer", "--topic", topic, "--group-id", group, "--max-messages", str(COUNT),
                "--offset-reset-strategy", "earliest")  # fmt: skip
    assert sum(event["count"] for event in events(read, "records_consumed")) >= COUNT


@pytest.mark.parametrize("protocol", ["CLASSIC", "CONSUMER"])
def test_verifiable_producer_and_consumer(tool: Run, new_topic: Callable[[int], str], protocol: str) -> None:
    topic = new_topic(3)
    sent = tool("VerifiableProducer", "--topic", topic, "--max-messages", str(COUNT), "--repeating-keys", "10")
    confirmed = events(sent, "producer_send_success")
    assert sorted(int(event["value"]) for event in confirmed) == list(range(COUNT))
    assert not events(sent, "producer_send_error")
    read = tool(
        "VerifiableConsumer", "--topic", topic, "--group-id", topic, "--group-protocol", protocol,
        "--max-messages", str(COUNT), "--verbose",
    )  # fmt: skip
    values = [int(event["value"]) for event in events(read, "record_data")]
    assert sorted(values) == list(range(COUNT))
    assert all(event["success"] for event in events(read, "offsets_committed"))
    described = tool("consumer.group.ConsumerGroupCommand", "--describe", "--group", topic)
    lags = [line.split() for line in described.splitlines() if topic in line and "GROUP" not in line]
    assert sum(int(fields[3]) for fields in lags) == COUNT


def test_administration(tool: Run, bootstrap: str, tmp_path: pathlib.Path) -> None:
    topic = f"made-{uuid.uuid4().hex[:8]}"
    tool("TopicCommand", "--create", "--topic", topic, "--partitions", "3", "--config", "retention.ms=60000")
    described = tool("TopicCommand", "--describe", "--topic", topic)
    assert "PartitionCount: 3" in described
    assert "retention.ms=60000" in described
    tool("ProducerPerformance", "--topic", topic, "--num-records", "100", "--record-size", "10", "--throughput", "-1")
    ends = tool("GetOffsetShell", "--topic", topic).split()
    assert sum(int(line.rpartition(":")[2]) for line in ends) == 100
    wanted = tmp_path / "delete.json"
    wanted.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": -1}]}))
    assert "low_watermark" in tool("DeleteRecordsCommand", "--offset-json-file", str(wanted))
    assert topic in tool("LogDirsCommand", "--describe", "--topic-list", topic)
    assert "TransactionalId" in tool("TransactionsCommand", "list")
    assert "group.version" in tool("FeatureCommand", "describe")
    tool("TopicCommand", "--delete", "--topic", topic)
    assert topic not in tool("TopicCommand", "--list").split()
