"""The client and two brokers of real Apache Kafka: leaders that move, brokers that go, quotas."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, KafkaShareConsumer, TopicPartition
from kafka.admin import ConfigResource
from kafka.client.cluster import ClusterMetadata
from kafka.client.connection import BrokerConnection, PendingRequest
from kafka.errors import IllegalStateError, UnsupportedVersionError, raise_for_code
from kafka.protocol.quorum import UpdateFeaturesRequest
from kafka.protocol.topics import DeleteTopicsRequest
from kafka.share import ShareRecord
from kafka.wire.message import Response
from test.support.real_cluster import Cluster
from test.support.waiting import polled, until

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def hints(monkeypatch: pytest.MonkeyPatch) -> list[set[TopicPartition]]:
    """What each answer with hints was news of."""
    seen: list[set[TopicPartition]] = []
    update = ClusterMetadata.update_partition_leaders

    def noted(self: ClusterMetadata, leaders: object, nodes: object = ()) -> set[TopicPartition]:
        news = update(self, leaders, nodes)  # type: ignore[arg-type]
        seen.append(news)
        return news

    monkeypatch.setattr(ClusterMetadata, "update_partition_leaders", noted)
    return seen


class Sent:
    """Which requests a client has sent, to whom and in which order, and how many of them wait for their answers."""

    def __init__(self, *apis: str) -> None:
        self._apis = apis
        self.requests: list[tuple[str, object]] = []
        self.in_flight = 0

    def watch(self, client: KafkaConsumer | KafkaProducer) -> None:
        client._host.call(client._host.client.add_traffic, self)

    def sent(self, connection: BrokerConnection, pending: PendingRequest, size_bytes: int) -> None:
        if pending.api in self._apis:
            self.requests.append((pending.api, connection.node_id))
            self.in_flight += 1

    def answered(self, connection: BrokerConnection, pending: PendingRequest, response: Response) -> None:
        if pending.api in self._apis:
            self.in_flight -= 1


# A client that waits for its back-off is seen: that lasts longer than anybody here waits for it.
PATIENCE_S = 30
LONG_BACKOFF: dict[str, Any] = {"retry_backoff_ms": 90_000, "retry_backoff_max_ms": 90_000}


def test_a_producer_follows_the_hint_of_the_former_leader(cluster: Cluster, hints: list[set[TopicPartition]]) -> None:
    partition = cluster.create(1, 2)
    for number, leader in enumerate((2, 1, 2)):
        former = 3 - leader
        # Another producer each time: a refresh of the metadata follows the hint.
        with KafkaProducer(bootstrap_servers=cluster.bootstrap, **LONG_BACKOFF) as producer:
            sent = Sent("Produce")
            sent.watch(producer)
            producer.send(partition.topic, b"%d" % (2 * number)).get(PATIENCE_S)
            cluster.move(partition, leader, former)
            producer.send(partition.topic, b"%d" % (2 * number + 1)).get(PATIENCE_S)
            assert [node_id for _, node_id in sent.requests] == [former, former, leader]
            assert hints.count({partition}) == number + 1
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        assert [next(consumer).value for _ in range(6)] == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_a_consumer_follows_the_hint_of_the_former_leader(cluster: Cluster, hints: list[set[TopicPartition]]) -> None:
    """It is paused while the leader moves. A fetch that the former leader holds meanwhile is answered with the hint as
    well, but before the new leader knows that it is one: who then asks that where its epochs end is refused, and rests
    for the back-off, as Java's consumer does."""
    partition = cluster.create(1, 2)
    with (
        KafkaConsumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="none", **LONG_BACKOFF) as consumer,
        KafkaProducer(bootstrap_servers=cluster.bootstrap) as producer,
    ):
        sent = Sent("Fetch", "OffsetForLeaderEpoch")
        sent.watch(consumer)
        consumer.assign([partition])
        consumer.seek(partition, 0)  # else it looks that up before it knows a leader, and rests
        producer.send(partition.topic, b"0").get(PATIENCE_S)
        assert [record.value for record in consumer.poll(1000 * PATIENCE_S)[partition]] == [b"0"]
        consumer.pause(partition)
        paused: list[object] = []
        until(lambda: not sent.in_flight, meanwhile=lambda: paused.extend(consumer.poll(50)))
        assert paused == []
        cluster.move(partition, 2, 1)
        producer.send(partition.topic, b"1").get(PATIENCE_S)
        hints.clear()
        sent.requests.clear()
        consumer.resume(partition)
        assert [record.value for record in consumer.poll(1000 * PATIENCE_S)[partition]] == [b"1"]
        assert sent.requests[:3] == [("Fetch", 1), ("OffsetForLeaderEpoch", 2), ("Fetch", 2)]
        assert hints == [{partition}]
    assert cluster.client.cluster.leader_for_partition(partition) == 2


def test_a_producer_obeys_its_quota_and_keeps_its_connection(cluster: Cluster) -> None:
    partition = cluster.create(1)
    client_id = f"client-{uuid.uuid4().hex[:8]}"
    cluster.quota(client_id, "producer_byte_rate", 20_000)
    with KafkaProducer(
        bootstrap_servers=cluster.bootstrap,
        client_id=client_id,
        request_timeout_ms=3_000,
        linger_ms=5,
        max_request_size=100_000,
    ) as producer:
        producer.send(partition.topic, b"first").get(30)
        client = producer._host.client
        lost = client.connections_lost
        began = time.monotonic()
        futures = [producer.send(partition.topic, b"x" * 5_000) for _ in range(60)]
        for future in futures:
            future.get(120)
        took_s = time.monotonic() - began
        throttled = client.throttle.of("Produce")
        assert producer._sender.counts.retries == 0
        assert client.connections_lost == lost, "the connection stays"
    cluster.quota(client_id, "producer_byte_rate", None)
    # 300 kB at 20 kB/s are 15 s; the last throttle time is not waited for, and the broker counts in windows of 11 s.
    print(f"300 kB in {took_s:.1f} s, {throttled}")
    assert took_s > 4 and throttled.answers and throttled.most_ms > 3_000, "more than a request may last"


def test_both_go_on_with_a_topic_that_was_made_anew(cluster: Cluster) -> None:
    partition = cluster.create(1)
    with (
        KafkaProducer(bootstrap_servers=cluster.bootstrap, allow_auto_create_topics=False) as producer,
        KafkaConsumer(
            bootstrap_servers=cluster.bootstrap, allow_auto_create_topics=False, auto_offset_reset="earliest"
        ) as consumer,
    ):
        consumer.assign([partition])
        for number in range(3):
            producer.send(partition.topic, b"old %d" % number).get(30)
        assert [next(consumer).value for _ in range(3)] == [b"old 0", b"old 1", b"old 2"]
        former = producer._host.client.cluster.topic_id(partition.topic)
        state = DeleteTopicsRequest.DeleteTopicState(name=partition.topic)
        cluster.ask(DeleteTopicsRequest(topics=[state], timeout_ms=10_000))  # type: ignore[arg-type]
        cluster.wait_for(partition.topic, lambda: cluster.client.cluster.topic_id(partition.topic) is None)
        cluster.create(2, name=partition.topic)
        assert producer.send(partition.topic, b"new").get(30).offset == 0
        assert next(consumer).value == b"new"
        assert producer._host.client.cluster.topic_id(partition.topic) not in (None, former)


# -- share groups -----------------------------------------------------------------------------------------------------


def share_group(cluster: Cluster, topic: str) -> None:
    settings = {"share.auto.offset.reset": "earliest", "share.assignment.interval.ms": "0"}
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap) as admin:
        admin.alter_configs([ConfigResource("group", topic, settings)])
        resource = ConfigResource("group", topic)
        until(lambda: "share.auto.offset.reset" in admin.describe_configs([resource])["group"][topic])


def test_records_held_when_their_leader_moves_are_lost_come_again_and_are_not_acknowledged_at_the_new_leader(
    cluster: Cluster, hints: list[set[TopicPartition]]
) -> None:
    partition = cluster.create(1, 2)
    share_group(cluster, partition.topic)
    lost: list[ShareRecord] = []
    with (
        KafkaProducer(bootstrap_servers=cluster.bootstrap) as producer,
        KafkaShareConsumer(
            partition.topic,
            group_id=partition.topic,
            bootstrap_servers=cluster.bootstrap,
            share_acknowledgement_mode="explicit",
            retry_backoff_ms=8_000,
            retry_backoff_max_ms=8_000,
            on_lost=lambda records, error: lost.extend(records),
        ) as consumer,
    ):
        for number in range(3):
            producer.send(partition.topic, b"%d" % number).get(30)
        first, *held = polled(consumer, 3)
        consumer.acknowledge(first)
        assert consumer.commit(20_000) == {partition: None}
        cluster.move(partition, 2, 1)
        began = time.monotonic()
        again = polled(consumer, 2)
        print(f"from the new leader after {time.monotonic() - began:.1f} s")
        assert {partition} in hints, "the former leader's answer tells it (KIP-951)"
        assert sorted(record.offset for record in lost) == [1, 2]
        assert all(record.lost for record in held)
        with pytest.raises(IllegalStateError, match="lock is gone"):
            consumer.acknowledge(held[0])
        assert [record.value for record in again] == [b"1", b"2"], "what was acknowledged stays so"
        for record in again:
            consumer.acknowledge(record)
        assert consumer.commit(20_000) == {partition: None}
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap) as admin:
        assert admin.list_share_group_offsets(partition.topic)[partition.topic][partition].lag == 0


def test_records_held_when_their_broker_is_restarted_are_lost_and_come_again(cluster: Cluster) -> None:
    partition = cluster.create(2)
    share_group(cluster, partition.topic)
    lost: list[ShareRecord] = []
    with (
        KafkaProducer(bootstrap_servers=cluster.bootstrap) as producer,
        KafkaShareConsumer(
            partition.topic,
            group_id=partition.topic,
            bootstrap_servers=cluster.bootstrap,
            share_acknowledgement_mode="explicit",
            on_lost=lambda records, error: lost.extend(records),
        ) as consumer,
    ):
        producer.send(partition.topic, b"x").get(30)
        (held,) = polled(consumer, 1)
        cluster.two.restart(gracefully=False)
        cluster.client.close(2)  # the administrator's own connection is the former broker's
        until(lambda: lost, meanwhile=lambda: consumer.poll(100))
        assert lost == [held]
        with pytest.raises(IllegalStateError, match="lock is gone"):
            consumer.acknowledge(held)
        (again,) = polled(consumer, 1)
        assert again.value == b"x"
        consumer.acknowledge(again)
        assert consumer.commit(20_000) == {partition: None}


def test_share_groups_that_are_switched_off_are_one_clear_error(cluster: Cluster) -> None:
    partition = cluster.create(1)

    def switch(level: int) -> None:
        key = UpdateFeaturesRequest.FeatureUpdateKey(
            feature="share.version", max_version_level=level, upgrade_type=1 if level else 2
        )
        request = UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[key], validate_only=False)
        answer = cluster.ask(request)  # type: ignore[arg-type]
        raise_for_code(answer.error_code, "share.version")  # type: ignore[attr-defined]

    def is_switched_off() -> bool:
        settings: dict[str, Any] = {"group_id": partition.topic, "bootstrap_servers": cluster.bootstrap}
        with KafkaShareConsumer(partition.topic, **settings) as consumer:
            try:
                consumer.poll(2_000)
            except UnsupportedVersionError as error:
                assert "share.version is 0" in str(error)  # noqa: PT017
                with pytest.raises(UnsupportedVersionError, match="switched off"):
                    consumer.poll(0)
                return True
        return False

    switch(0)
    try:
        until(is_switched_off, "the brokers know of it")
    finally:
        switch(1)
