"""A producer over an in-memory network, and a broker with one log for each partition that fails as it is told to."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kafka.client import KafkaClient
from kafka.net.loop import Loop
from kafka.net.memory import MemoryNetwork
from kafka.producer import KafkaProducer
from kafka.protocol.produce import ProduceRequest, ProduceResponse
from kafka.protocol.transactions import InitProducerIdRequest, InitProducerIdResponse
from kafka.records import decode_records, iter_batches
from test.support.scripted import CLOSE, SILENT, Answer, ScriptedBroker

RANGES = {0: (3, 12), 3: (0, 12), 10: (0, 6), 18: (0, 4), 22: (0, 5)}

Fault = Callable[["Cluster", ScriptedBroker, ProduceRequest], Answer]


def close_unread(cluster: Cluster, broker: ScriptedBroker, request: ProduceRequest) -> Answer:
    """The connection ends before anything was written."""
    return CLOSE


def lose_answer(cluster: Cluster, broker: ScriptedBroker, request: ProduceRequest) -> Answer:
    """The records are written, and the connection ends before the answer."""
    cluster.write(broker, request)
    return CLOSE


def stay_silent(cluster: Cluster, broker: ScriptedBroker, request: ProduceRequest) -> Answer:
    """Written, and never answered."""
    cluster.write(broker, request)
    return SILENT


def half_answer(cluster: Cluster, broker: ScriptedBroker, request: ProduceRequest) -> Answer:
    """The answer is cut in the middle by the end of the connection."""
    cluster.write(broker, request)
    broker.open[-1].transport.write(b"\x00\x00\x00\x40\x00\x00")
    return CLOSE


def refuse(code: int) -> Fault:
    """Every partition is refused with ``code``, and nothing is written."""
    return lambda cluster, broker, request: cluster.response(request, lambda *_: (code, -1))


def move_leader(cluster: Cluster, broker: ScriptedBroker, request: ProduceRequest) -> Answer:
    """The other node leads all partitions from now on."""
    cluster.lead(2 if broker is cluster.brokers[1] else 1)
    return refuse(6)(cluster, broker, request)


class Cluster:
    """Nodes 1 and 2 with the topic ``t``. ``faults`` are used up one by one, one for each Produce; then all is well."""

    def __init__(self, network: MemoryNetwork, partitions: int = 1) -> None:
        where = {1: ("one", 9092), 2: ("two", 9092)}
        self.brokers = {
            node: ScriptedBroker(network.host(host), host, port, node_id=node, ranges=RANGES, brokers=where)
            for node, (host, port) in where.items()
        }
        self.partitions = partitions
        self.logs: dict[int, list[bytes | None]] = {number: [] for number in range(partitions)}
        self.faults: list[Fault] = []
        self.next_sequences: dict[tuple[int, int, int], int] = {}
        self.duplicates = 0
        self.leader = 1
        self.producers = 0
        for broker in self.brokers.values():
            broker.answers[ProduceRequest] = lambda request, version, broker=broker: self.produce(broker, request)
            broker.answers[InitProducerIdRequest] = self.init_producer_id
        self.lead(1)

    def lead(self, node: int) -> None:
        self.leader = node
        for broker in self.brokers.values():
            broker.topics = {"t": dict.fromkeys(range(self.partitions), node)}

    def init_producer_id(self, request: Any, version: int) -> Answer:
        if request.producer_id >= 0:
            return InitProducerIdResponse(
                throttle_time_ms=0,
                error_code=0,
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch + 1,
            )
        self.producers += 1
        return InitProducerIdResponse(
            throttle_time_ms=0, error_code=0, producer_id=self.producers, producer_epoch=0
        )

    def produce(self, broker: ScriptedBroker, request: ProduceRequest) -> Answer:
        if self.faults:
            return self.faults.pop(0)(self, broker, request)
        return self.write(broker, request)

    def write(self, broker: ScriptedBroker, request: ProduceRequest) -> Answer:
        """Append as a leader does: what is there already is not written again, and a gap is refused (KIP-98)."""
        if broker is not self.brokers[self.leader]:
            return self.response(request, lambda *_: (6, -1))
        return self.response(request, self.append)

    def append(self, partition: int, data: bytes) -> tuple[int, int]:
        log = self.logs[partition]
        (header,) = iter_batches(data)
        if header.has_producer_id:
            key = (partition, header.producer_id, header.producer_epoch)
            expected = self.next_sequences.get(key, 0)
            if header.base_sequence < expected:
                self.duplicates += 1
                return 46, -1
            if header.base_sequence > expected:
                return 45, -1
            self.next_sequences[key] = expected + header.records_count
        base_offset = len(log)
        log += [record.value for record in decode_records(data, header)]
        return 0, base_offset

    def response(self, request: ProduceRequest, act: Callable[[int, bytes], tuple[int, int]]) -> ProduceResponse:
        topics = []
        for topic in request.topic_data:
            partitions = []
            for data in topic.partition_data:
                assert data.records is not None
                code, base_offset = act(data.index, bytes(data.records))  # type: ignore[arg-type]
                partitions.append(
                    ProduceResponse.PartitionProduceResponse(
                        index=data.index, error_code=code, base_offset=base_offset
                    )
                )
            topics.append(ProduceResponse.TopicProduceResponse(name=topic.name, partition_responses=partitions))
        return ProduceResponse(responses=topics)


class Rig:
    """Loop, cluster, client, producer. Time is the loop's manual clock."""

    def __init__(self, loop: Loop, cluster: Cluster, client: KafkaClient, producer: KafkaProducer) -> None:
        self.loop = loop
        self.cluster = cluster
        self.client = client
        self.producer = producer

    def flush(self, within_s: float = 300.0) -> None:
        """Let everything be delivered or fail."""
        assert self.loop.run_until(self.producer.flush_async(), within_s)


@contextmanager
def producer_in_memory(partitions: int = 1, **configs: Any) -> Iterator[Rig]:
    loop = Loop.simulated()
    network = MemoryNetwork(loop, "client")
    cluster = Cluster(network, partitions)
    client = KafkaClient(
        network=network,
        all_topics=False,
        bootstrap_servers="one:9092",
        request_timeout_ms=5000,
        metadata_max_age_ms=300_000,
    )
    producer = KafkaProducer(client=client, **configs)
    try:
        yield Rig(loop, cluster, client, producer)
    finally:
        producer.close(timeout=0)
        client.close()
        loop.close()


def run_program(code: str) -> subprocess.CompletedProcess[str]:
    """A script in a process of its own, over the package that this one runs."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
