"""What the share tests share: the real broker machine on a memory network, and scripted leaders of one topic each.

:class:`Machine` is the embedded broker on a simulated loop: exact time, connections that are cut, a restart.
:class:`Leaders` are several brokers that only pretend: what each has, says and is asked is the test's affair.
"""

from __future__ import annotations

import random
import uuid
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kafka.broker.broker import Broker
from kafka.broker.server import BrokerServer
from kafka.client.kafka_client import KafkaClient
from kafka.core.routing import Controller
from kafka.core.share.acknowledgements import Acknowledged
from kafka.core.share.records import ShareRecord
from kafka.errors import KafkaError
from kafka.net.loop import Loop
from kafka.net.memory import MemoryNetwork
from kafka.producer import KafkaProducer
from kafka.protocol.configs import IncrementalAlterConfigsRequest
from kafka.protocol.metadata import MetadataResponse
from kafka.protocol.share import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from kafka.protocol.topics import CreateTopicsRequest, DeleteTopicsRequest
from kafka.share import KafkaShareConsumer
from test.client.support import Fixed
from test.core.share.test_records import batch
from test.support.scripted import MODERN, Answer, ScriptedBroker

TOPIC = uuid.UUID(int=7)
SHARE_RANGES = {**MODERN, 32: (1, 4), 44: (0, 1), 76: (1, 1), 78: (1, 2), 79: (1, 2)}
LATENCY_S = 0.02


class Taker:
    """The user of a share consumer on a loop: keeps what comes, and asks for more when told to."""

    def __init__(self) -> None:
        self.records: list[ShareRecord] = []
        self.acknowledged: list[Acknowledged] = []
        self.lost: list[ShareRecord] = []
        self.errors: list[KafkaError] = []

    def consumer(self, client: KafkaClient, *topics: str, **configs: Any) -> KafkaShareConsumer:
        configs.setdefault("group_id", "g")
        return KafkaShareConsumer(
            *topics,
            client=client,
            on_records=self.records.extend,
            on_acknowledged=self.acknowledged.extend,
            on_lost=lambda records, error: self.lost.extend(records),
            on_error=self.errors.append,
            **configs,
        )

    @property
    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records]


class Machine:
    """The embedded broker's machine at kafka:9092, on simulated time."""

    def __init__(self, data_dir: Path) -> None:
        self.loop = Loop.simulated()
        self.network = MemoryNetwork(self.loop, "kafka")
        self.mine = self.network.host("me")
        for one, other in (("me", "kafka"), ("kafka", "me")):
            self.network.link(one, other).delay_s = 0.0005
        self._data_dir = data_dir
        self._closables: list[Callable[[], object]] = []
        self.start()

    def start(self) -> None:
        self.broker = Broker(
            str(self._data_dir), {"group.share.min.record.lock.duration.ms": "1000"}, fsync="never",
            now=self.loop.time(), epoch_offset=1_700_000_000.0, rng=random.Random(7),
        )  # fmt: skip
        self.server = BrokerServer(self.broker, self.network, "kafka", 9092)

    def stop(self) -> None:
        """As a kill looks from outside: every connection is reset, nobody listens."""
        self.server.close()
        self.network.cut("me", "kafka")
        self.broker.close()

    def client(self, **configs: Any) -> KafkaClient:
        configs.setdefault("all_topics", False)
        client = KafkaClient(network=self.mine, bootstrap_servers="kafka:9092", rng=Fixed(0.0), **configs)
        self._closables.append(client.close)
        return client

    def wait(self, condition: Callable[[], object], seconds: float = 30.0) -> None:
        assert self.loop.run_until(condition, seconds), "not in time"

    def run(self, seconds: float) -> None:
        self.loop.run_until(lambda: False, seconds)

    def ask(self, request: Any) -> Any:
        client = self.client()
        future = client.request(Controller(), request)
        assert self.loop.run_until(future, 10)
        client.close()
        return future.result()

    def create_topic(self, name: str, partitions: int = 1) -> None:
        topic = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
        )
        assert self.ask(CreateTopicsRequest(topics=[topic])).topics[0].error_code == 0

    def delete_topic(self, name: str) -> None:
        state = DeleteTopicsRequest.DeleteTopicState(name=name)
        assert self.ask(DeleteTopicsRequest(topics=[state], timeout_ms=1000)).responses[0].error_code == 0

    def configure_group(self, group: str = "g", **settings: str) -> None:
        settings = {"share_auto_offset_reset": "earliest", "share_assignment_interval_ms": "0", **settings}
        configs = [
            IncrementalAlterConfigsRequest.AlterableConfig(
                name=name.replace("_", "."), config_operation=0, value=value
            )
            for name, value in settings.items()
        ]
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=32, resource_name=group, configs=configs
        )
        answer = self.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
        assert answer.responses[0].error_code == 0, answer

    def produce(self, topic: str, *values: bytes, partition: int = 0) -> None:
        client = self.client()
        producer = KafkaProducer(client=client)
        now_ms = int(self.loop.clock.time() * 1000)
        sent = [producer.send(topic, value, partition=partition, timestamp_ms=now_ms) for value in values]
        assert self.loop.run_until(producer.flush_async(), 10)
        assert all(future.succeeded() for future in sent)
        producer.close(timeout=0)
        client.close()

    def members(self, group: str = "g") -> int:
        """Members that the coordinator has."""
        found = self.broker.share.groups.get(group)
        return 0 if found is None else len(found.members)

    def close(self) -> None:
        for close in self._closables:
            close()
        self.server.close()
        self.broker.close()
        self.loop.close()


class Leader(ScriptedBroker):
    """One of :class:`Leaders`: leads the partition of its number less one, and hands out what stands in ``log``.

    Never waits: an empty answer comes at once, and :data:`LATENCY_S` on the way is the long poll.
    """

    def __init__(self, network: MemoryNetwork, node_id: int, brokers: dict[int, tuple[str, int]]) -> None:
        host = f"node{node_id}"
        super().__init__(network.host(host), host, node_id=node_id, ranges=SHARE_RANGES, brokers=brokers)
        self.partition = node_id - 1
        self.log: deque[int] = deque()
        """Offsets to be handed out."""
        self.asked: list[int] = []
        """``max_records`` of every fetch."""
        self.waits: list[int] = []
        """``max_wait_ms`` of the same."""
        self.acknowledged: list[tuple[int, int, int]] = []
        """(first, last, type) of acknowledgements."""
        self.throttle_ms = 0
        self.answers[ShareFetchRequest] = self.fetch
        self.answers[ShareAcknowledgeRequest] = self.acknowledge
        self.answers[ShareGroupHeartbeatRequest] = self.heartbeat

    def metadata(self, request: Any, version: int) -> Answer:
        answer = super().metadata(request, version)
        assert isinstance(answer, MetadataResponse)
        for topic in answer.topics:
            if version >= 10 and topic.name in self.topics:
                topic.topic_id = TOPIC
        return answer

    def heartbeat(self, request: Any, version: int) -> Answer:
        each = ShareGroupHeartbeatResponse.TopicPartitions(topic_id=TOPIC, partitions=[self.partition])
        return ShareGroupHeartbeatResponse(
            throttle_time_ms=0, error_code=0, member_epoch=max(1, request.member_epoch), heartbeat_interval_ms=5000,
            assignment=ShareGroupHeartbeatResponse.Assignment(topic_partitions=[each]),
        )  # fmt: skip

    def fetch(self, request: Any, version: int) -> Answer:
        self._take_acks(request)
        if request.max_records:
            self.asked.append(request.max_records)
            self.waits.append(request.max_wait_ms)
        parts = []
        for _ in range(min(request.max_records, len(self.log))):
            offset = self.log.popleft()
            parts.append((offset, batch(offset, 1)))
        return self.fetched(parts)

    def fetched(self, parts: list[tuple[int, bytes]], code: int = 0, top: int = 0) -> ShareFetchResponse:
        data = ShareFetchResponse.PartitionData(
            partition_index=self.partition, error_code=code, acknowledge_error_code=0,
            current_leader=ShareFetchResponse.LeaderIdAndEpoch(leader_id=0, leader_epoch=0),
            records=b"".join(data for _, data in parts),
            acquired_records=[
                ShareFetchResponse.AcquiredRecords(first_offset=offset, last_offset=offset, delivery_count=1)
                for offset, _ in parts
            ],
        )  # fmt: skip
        topic = ShareFetchResponse.ShareFetchableTopicResponse(topic_id=TOPIC, partitions=[data])
        return ShareFetchResponse(
            throttle_time_ms=self.throttle_ms, error_code=top, acquisition_lock_timeout_ms=30_000,
            responses=[] if top else [topic], node_endpoints=[],
        )  # fmt: skip

    def acknowledge(self, request: Any, version: int) -> Answer:
        self._take_acks(request)
        return ShareAcknowledgeResponse(
            throttle_time_ms=self.throttle_ms, error_code=0, acquisition_lock_timeout_ms=30_000,
            responses=[], node_endpoints=[],
        )  # fmt: skip

    def _take_acks(self, request: Any) -> None:
        for topic in request.topics:
            for part in topic.partitions:
                for each in part.acknowledgement_batches:
                    self.acknowledged.append((each.first_offset, each.last_offset, int(each.acknowledge_types[0])))


class Leaders:
    """``count`` nodes, of which node n leads partition n - 1 of the topic ``t``."""

    def __init__(self, count: int, **configs: Any) -> None:
        self.loop = Loop.simulated()
        network = MemoryNetwork(self.loop, "me")
        where = {node: (f"node{node}", 9092) for node in range(1, count + 1)}
        self.nodes = [Leader(network, node, where) for node in where]
        for node in self.nodes:
            node.topics = {"t": {other.partition: other.partition + 1 for other in self.nodes}}
        for host, _ in where.values():
            network.link("me", host).delay_s = LATENCY_S
        self.network = network
        self.client = KafkaClient(
            network=network, bootstrap_servers="node1:9092", rng=Fixed(0.0), all_topics=False
        )
        self.user = Taker()
        self.consumer = self.user.consumer(self.client, "t", **configs)

    def wait(self, condition: Callable[[], object], seconds: float = 30.0) -> None:
        assert self.loop.run_until(condition, seconds), "not in time"

    def run(self, seconds: float) -> None:
        self.loop.run_until(lambda: False, seconds)

    def close(self) -> None:
        self.consumer.close_async(1.0)
        self.run(2)
        self.client.close()
        self.loop.close()
