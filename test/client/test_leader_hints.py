"""Leaders told in the answers that refuse a request (KIP-951): believed when newer, and followed at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafka.client import KafkaClient
from kafka.client.cluster import ClusterMetadata, LeaderHint
from kafka.client.router import PARTITIONS_OF, leader_hints
from kafka.consumer import KafkaConsumer
from kafka.net.loop import Loop
from kafka.net.memory import MemoryNetwork
from kafka.protocol.fetch import FetchRequest, FetchResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.produce import ProduceRequest, ProduceResponse
from kafka.protocol.share import ShareAcknowledgeResponse, ShareFetchResponse
from kafka.structs import BrokerMetadata, TopicPartition
from test.client.test_cluster import ID, partition, refresh, response, topic
from test.core.consume.test_partition import batch
from test.producer.support import Cluster, Rig, producer_in_memory, refuse
from test.support.scripted import SILENT, Answer, ScriptedBroker

NOT_LEADER, FENCED_EPOCH, UNKNOWN_TOPIC = 6, 74, 3
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TWO = BrokerMetadata(2, "two", 9092)


# -- what an answer tells ----------------------------------------------------------------------------------------------


def produce_answer(code: int, leader: int = 2, epoch: int = 1, **named: Any) -> ProduceResponse:
    entry = ProduceResponse.PartitionProduceResponse(
        index=0,
        error_code=code,
        base_offset=-1,
        current_leader=ProduceResponse.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch),
    )
    return ProduceResponse(
        responses=[ProduceResponse.TopicProduceResponse(partition_responses=[entry], **(named or {"name": "t"}))],
        node_endpoints=[ProduceResponse.NodeEndpoint(node_id=2, host="two", port=9092)],
    )


def fetch_answer(code: int) -> FetchResponse:
    entry = FetchResponse.PartitionData(
        partition_index=0,
        error_code=code,
        high_watermark=-1,
        records=None,
        current_leader=FetchResponse.LeaderIdAndEpoch(leader_id=2, leader_epoch=1),
    )
    return FetchResponse(
        responses=[FetchResponse.FetchableTopicResponse(topic="t", partitions=[entry])],
        node_endpoints=[FetchResponse.NodeEndpoint(node_id=2, host="two", port=9092)],
    )


def share_answer(cls: Any, topic_name: str, code: int) -> Any:
    more = {"records": b"", "acquired_records": [], "acknowledge_error_code": 0} if cls is ShareFetchResponse else {}
    entry = cls.PartitionData(
        partition_index=0, error_code=code, current_leader=cls.LeaderIdAndEpoch(leader_id=2, leader_epoch=1), **more
    )
    topics = [getattr(cls, topic_name)(topic_id=ID, partitions=[entry])]
    return cls(
        throttle_time_ms=0,
        error_code=0,
        acquisition_lock_timeout_ms=0,
        responses=topics,
        node_endpoints=[cls.NodeEndpoint(node_id=2, host="two", port=9092)],
    )


ANSWERS = {
    ProduceResponse: produce_answer,
    FetchResponse: fetch_answer,
    ShareFetchResponse: lambda code: share_answer(ShareFetchResponse, "ShareFetchableTopicResponse", code),
    ShareAcknowledgeResponse: lambda code: share_answer(
        ShareAcknowledgeResponse, "ShareAcknowledgeTopicResponse", code
    ),
}


def test_every_kind_of_answer_with_hints_is_tested_here() -> None:
    assert set(ANSWERS) == set(PARTITIONS_OF)


@pytest.mark.parametrize("cls", ANSWERS, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("code", [NOT_LEADER, FENCED_EPOCH])
def test_hints_are_read_from_each_answer_that_has_them(cls: type, code: int) -> None:
    hints = leader_hints(ANSWERS[cls](code), {ID: "t"}.get)
    assert hints is not None
    assert hints.leaders == {T0: LeaderHint(2, 1)} and hints.nodes == [TWO]


@pytest.mark.parametrize("cls", ANSWERS, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("code", [0, UNKNOWN_TOPIC])
def test_other_codes_have_no_leader_hints(cls: type, code: int) -> None:
    assert leader_hints(ANSWERS[cls](code), {ID: "t"}.get) is None


@pytest.mark.parametrize("half", [{"leader": -1}, {"epoch": -1}, {"topic_id": ID}])
def test_what_is_not_whole_is_no_hint(half: dict[str, Any]) -> None:
    """No leader, no epoch, or a topic whose name nobody knows."""
    assert leader_hints(produce_answer(NOT_LEADER, **half), {}.get) is None


# -- what of it is believed --------------------------------------------------------------------------------------------


@pytest.fixture
def cluster() -> ClusterMetadata:
    known = ClusterMetadata(now=lambda: 0.0)
    refresh(known, response(topic("t", partition(0, 1, 5), partition(1, 1, 5)), brokers=(1,)))
    return known


def test_a_newer_leader_is_believed_and_its_address_learnt_and_listeners_are_notified(cluster: ClusterMetadata) -> None:
    leaders: list[int | None] = []
    cluster.add_listener(lambda changed: leaders.append(changed.leader_for_partition(T0)))
    assert cluster.update_partition_leaders({T0: LeaderHint(2, 6)}, [TWO]) == {T0}
    assert cluster.leader_for_partition(T0) == 2 and cluster.leader_epoch_for_partition(T0) == 6
    assert cluster.leader_for_partition(T1) == 1, "only what was told"
    assert cluster.broker_metadata(2) == TWO and TWO in cluster.brokers()
    assert leaders == [2]


@pytest.mark.parametrize(
    "hints",
    [
        {T0: LeaderHint(2, 5)},
        {T0: LeaderHint(2, 4)},
        {TopicPartition("t", 9): LeaderHint(2, 6)},
        {TopicPartition("other", 0): LeaderHint(2, 6)},
        {T0: LeaderHint(3, 6)},
        {T0: LeaderHint(-1, 6)},
    ],
    ids=["same epoch", "older", "no such partition", "no such topic", "nobody knows where it is", "no leader"],
)
def test_other_hints_change_nothing_and_notify_nobody(
    cluster: ClusterMetadata, hints: dict[TopicPartition, LeaderHint]
) -> None:
    cluster.add_listener(lambda _: pytest.fail("nothing has changed"))
    assert cluster.update_partition_leaders(hints, [TWO]) == set()
    assert cluster.leader_for_partition(T0) == 1 and cluster.broker_metadata(2) is None


def test_a_known_broker_may_be_named_without_its_address(cluster: ClusterMetadata) -> None:
    """As Fetch 12 to 15 do."""
    refresh(cluster, response(topic("t", partition(0, 1, 5)), brokers=(1, 2)))
    assert cluster.update_partition_leaders({T0: LeaderHint(2, 6)}) == {T0}


def test_a_reader_in_another_thread_sees_the_old_or_the_new_cluster(cluster: ClusterMetadata) -> None:
    seen = cluster.snapshot
    cluster.update_partition_leaders({T0: LeaderHint(2, 6)}, [TWO])
    assert seen.partitions["t"][0].leader == 1 and 2 not in seen.brokers


def test_metadata_that_lags_behind_does_not_undo_a_hint(cluster: ClusterMetadata) -> None:
    cluster.update_partition_leaders({T0: LeaderHint(2, 6)}, [TWO])
    refresh(cluster, response(topic("t", partition(0, 1, 5)), brokers=(1,)))
    assert cluster.leader_for_partition(T0) == 2


# -- what the producer and the consumer make of it ---------------------------------------------------------------------


def move_and_tell(cluster: Cluster, broker: ScriptedBroker, request: ProduceRequest) -> Answer:
    """Node 2 leads and node 1 says so; what Metadata tells is still the former leader."""
    cluster.leader = 2
    answer = refuse(NOT_LEADER)(cluster, broker, request)
    assert isinstance(answer, ProduceResponse)
    for entry in answer.responses[0].partition_responses:
        entry.current_leader = ProduceResponse.LeaderIdAndEpoch(leader_id=2, leader_epoch=1)
    answer.node_endpoints = [ProduceResponse.NodeEndpoint(node_id=2, host="two", port=9092)]
    return answer


@pytest.fixture
def rig() -> Iterator[Rig]:
    with producer_in_memory() as made:
        yield made


def test_a_batch_follows_a_hint_at_once_although_metadata_lags(rig: Rig) -> None:
    produced: list[tuple[float, int]] = []
    for node, broker in rig.cluster.brokers.items():
        script: Any = broker.answers[ProduceRequest]
        broker.answers[ProduceRequest] = lambda request, version, node=node, script=script: (
            produced.append((rig.loop.time(), node)) or script(request, version)
        )
    rig.cluster.faults = [move_and_tell]
    future = rig.producer.send("t", b"x", partition=0)
    rig.flush()
    assert future.succeeded() and rig.cluster.logs[0] == [b"x"]
    assert [node for _, node in produced] == [1, 2]
    assert produced[1][0] - produced[0][0] < 0.01, "less than any back-off"


def test_without_a_hint_the_batch_waits_for_its_back_off(rig: Rig) -> None:
    """What the test above would see if hints did nothing."""
    times: list[float] = []
    script: Any = rig.cluster.brokers[1].answers[ProduceRequest]
    rig.cluster.brokers[1].answers[ProduceRequest] = lambda request, version: (
        times.append(rig.loop.time()) or script(request, version)
    )
    rig.cluster.faults = [refuse(NOT_LEADER)]
    rig.producer.send("t", b"x", partition=0)
    rig.flush()
    assert times[1] - times[0] >= 0.08


def test_a_broker_that_nobody_knew_is_learnt_from_the_hint(rig: Rig) -> None:
    for broker in rig.cluster.brokers.values():
        broker.brokers = {1: ("one", 9092)}
    rig.cluster.faults = [move_and_tell]
    future = rig.producer.send("t", b"x", partition=0)
    rig.flush()
    assert future.succeeded() and rig.cluster.brokers[2].requests(ProduceRequest)


def test_a_consumer_follows_a_hint_at_once() -> None:
    loop = Loop.simulated()
    network = MemoryNetwork(loop, "client")
    ranges = {1: (4, 16), 2: (1, 8), 3: (0, 12), 10: (0, 6), 18: (0, 4)}
    where = {1: ("one", 9092), 2: ("two", 9092)}
    one, two = (
        ScriptedBroker(network.host(host), host, port, node_id=node, ranges=ranges, brokers=where)
        for node, (host, port) in where.items()
    )
    fetched: list[tuple[float, int]] = []

    def metadata(request: Any, version: int) -> Answer:
        metadata = one.metadata(request, version)
        assert isinstance(metadata, MetadataResponse)
        for each in metadata.topics:
            each.topic_id = ID
        return metadata

    def refuse_fetch(request: Any, version: int) -> Answer:
        fetched.append((loop.time(), 1))
        entry = FetchResponse.PartitionData(
            partition_index=0,
            error_code=NOT_LEADER,
            high_watermark=-1,
            records=None,
            current_leader=FetchResponse.LeaderIdAndEpoch(leader_id=2, leader_epoch=1),
        )
        assert version == 16
        return FetchResponse(
            responses=[FetchResponse.FetchableTopicResponse(topic_id=ID, partitions=[entry])],
            node_endpoints=[FetchResponse.NodeEndpoint(node_id=2, host="two", port=9092)],
        )

    def give(request: Any, version: int) -> Answer:
        fetched.append((loop.time(), 2))
        if request.topics[0].partitions[0].fetch_offset:
            return SILENT
        entry = FetchResponse.PartitionData(partition_index=0, error_code=0, high_watermark=1, records=batch(0, b"x"))
        return FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic_id=ID, partitions=[entry])])

    for broker in (one, two):
        broker.topics = {"t": {0: 1}}
        broker.answers[MetadataRequest] = metadata
    one.answers[FetchRequest] = refuse_fetch
    two.answers[FetchRequest] = give
    got: list[bytes] = []
    with KafkaClient(network=network, all_topics=False, bootstrap_servers="one:9092") as client:
        consumer = KafkaConsumer(
            client=client, on_records=lambda found: got.extend(record.value for record in found[T0])
        )
        consumer.assign([T0])
        consumer.seek(T0, 0)
        assert loop.run_until(lambda: bool(got), 10)
        consumer.close()
    assert got == [b"x"] and [node for _, node in fetched[:2]] == [1, 2]
    assert fetched[1][0] - fetched[0][0] < 0.01
    loop.close()
