"""confluent-kafka (librdkafka), kafka-python and aiokafka, unchanged: each scenario is a script of theirs alone."""

from __future__ import annotations

from typing import Any

import pytest

from test.support.peers import run_peer

SHARED_OUT = {"shares": [2, 2], "alone": 4, "seen": 1000, "committed": 1000}
SCENARIOS: list[tuple[str, str, str, dict[str, Any]]] = [
    (
        "confluent-kafka", "confluent", "produce_and_consume",
        {codec: [500, 500] for codec in ("none", "gzip", "snappy", "lz4", "zstd")},
    ),
    ("confluent-kafka", "confluent", "group_classic", {**SHARED_OUT, "total": 1000}),
    ("confluent-kafka", "confluent", "group_consumer", {**SHARED_OUT, "total": 1000}),
    (
        "confluent-kafka", "confluent", "transactions",
        {
            "committed": 100, "fenced": "_FENCED", "fatal": True, "read_committed": ["a", "b", "moved-value-"],
            "read_committed_count": 200, "read_uncommitted_count": 201,
        },
    ),
    (
        "confluent-kafka", "confluent", "admin",
        {
            "retention": "3600000", "retention_after": "60000", "ends": 200, "max_timestamp": True,
            "low_watermark": [5], "listed": ["ConsumerGroupState.EMPTY"], "state": "ConsumerGroupState.EMPTY",
            "offsets": 200, "altered": 7, "acls": 0, "nodes": 1, "partitions": 3,
        },
    ),
    ("confluent-kafka", "confluent", "share", {"values": 200, "released": 2, "rejected": 1}),
    (
        "kafka-python", "kafka_python", "produce_and_consume",
        {"None": [500, 500, 500, 0], "gzip": [500, 500, 500, 0]},
    ),
    ("kafka-python", "kafka_python", "group", {**SHARED_OUT, "listed": True}),
    ("kafka-python", "kafka_python", "transactions", {"committed": 7, "stems": ["a", "b"], "n": 80}),
    ("aiokafka", "aio", "produce_and_consume", {"None": [500, 500], "gzip": [500, 500]}),
    ("aiokafka", "aio", "group", SHARED_OUT),
    ("aiokafka", "aio", "transactions", {"committed": 7, "stems": ["a", "b"], "n": 80}),
]  # fmt: skip


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("peer", "script", "scenario", "expected"), SCENARIOS, ids=[f"{row[1]}-{row[2]}" for row in SCENARIOS]
)
def test_client_gets_what_it_expects(
    bootstrap: str, peer: str, script: str, scenario: str, expected: dict[str, Any]
) -> None:
    assert run_peer(peer, script, scenario, bootstrap, timeout_s=120) == expected
