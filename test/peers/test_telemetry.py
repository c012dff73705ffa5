"""Metrics that confluent-kafka (librdkafka) pushes to the embedded broker: those that KIP-714 asks for, as ours push
them (``test/client/test_telemetry.py``). Java's client: ``test/conformance/test_telemetry.py``."""

from __future__ import annotations

import pathlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from kafka.testing import EmbeddedBroker
from test.client.test_telemetry import OF_CONSUMERS, OF_PRODUCERS, Told
from test.support.peers import run_peer

WAIT_S = 30.0


def test_librdkafka_pushes_the_metrics_of_the_kip_to_the_embedded_broker(tmp_path: pathlib.Path) -> None:
    """It pushes nothing when it is closed, so it is not before it has."""
    pytest.importorskip("opentelemetry.proto.metrics.v1.metrics_pb2", reason="the extra telemetry")
    may_close = tmp_path / "may-close"
    with EmbeddedBroker(telemetry=True, topics=["t"]) as broker, ThreadPoolExecutor(1) as threads:
        broker.pushed.subscribe(interval_ms=100)
        peer = threads.submit(run_peer, "confluent-kafka", "confluent_telemetry", broker.bootstrap, str(may_close))
        for client_id, names in (("rdkafka-producer", OF_PRODUCERS), ("rdkafka-consumer", OF_CONSUMERS)):
            pushes = broker.pushed.find(client_id=client_id, n=1, timeout=WAIT_S)
            assert set(Told(pushes[-1].metrics).metrics) >= names
        may_close.touch()
        assert peer.result() == 10
