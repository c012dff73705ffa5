"""A consumer and two brokers of real Apache Kafka: leaders that move, the nearest replica, logs that are truncated."""

from __future__ import annotations

import pytest

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import LogTruncationError
from kafka.structs import OffsetAndMetadata
from test.support.apache_kafka import ApacheKafka
from test.support.real_cluster import Cluster, FetchedNodes
from test.support.waiting import until

pytestmark = pytest.mark.timeout(180)


def test_leaders_move_under_a_reading_consumer_and_nothing_is_lost_or_twice(cluster: Cluster, rounds: int) -> None:
    partitions = [cluster.create(1, 2), cluster.create(2, 1)]
    read: dict[TopicPartition, list[int]] = {partition: [] for partition in partitions}
    sent = 0
    with (
        KafkaConsumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer,
        KafkaProducer(bootstrap_servers=cluster.bootstrap) as producer,
    ):
        consumer.assign(partitions)

        def poll() -> None:
            for partition, records in consumer.poll(1000).items():
                read[partition] += [int(record.value) for record in records]

        def take(count: int) -> None:
            until(lambda: min(map(len, read.values())) >= count, within_s=60, meanwhile=poll, shown=lambda: read)

        for number in range(1 + 2 * rounds):
            for _ in range(50):
                for partition in partitions:
                    producer.send(partition.topic, b"%d" % sent)
                sent += 1
            take(sent - 25)  # some are on their way
            leader = 1 + number % 2
            cluster.move(partitions[0], 3 - leader, leader)
            cluster.move(partitions[1], leader, 3 - leader)
        producer.flush(60)
        take(sent)
    assert read == {partition: list(range(sent)) for partition in partitions}


@pytest.mark.parametrize(("rack", "node"), [("left", 1), ("right", 2), ("elsewhere", 1)])
def test_a_consumer_reads_from_the_replica_in_its_rack(cluster: Cluster, rack: str, node: int) -> None:
    partition = cluster.create(1, 2)
    cluster.wait_for(partition.topic, lambda: cluster.in_sync(partition) == {1, 2})
    nodes = FetchedNodes()
    with (
        KafkaConsumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", client_rack=rack) as consumer,
        KafkaProducer(bootstrap_servers=cluster.bootstrap) as producer,
    ):
        consumer._host.client.add_traffic(nodes)
        consumer.assign([partition])
        for number in range(8):
            producer.send(partition.topic, b"%d" % number).get(30)
            assert int(next(consumer).value) == number
    assert nodes.seen[-5:] == [node] * 5


def test_records_that_an_unclean_election_has_taken_away_are_reported_or_gone_back_over(
    cluster: Cluster, rounds: int
) -> None:
    """Two more brokers, both of which are killed: half a minute, so not in every run. What is decided is tested in
    ``test/core/consume/test_truncation.py``. The last one here: the cluster is left with brokers that are gone."""
    if rounds < 2:
        pytest.skip("half a minute, with two more brokers: KAFKA_TEST_ROUNDS=2")
    with (
        ApacheKafka(settings={"node.id": 3}, beside=cluster.one) as follower,
        ApacheKafka(settings={"node.id": 4}, beside=cluster.one) as leader,
        KafkaProducer(bootstrap_servers=cluster.bootstrap, retries=1000) as producer,
        KafkaConsumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="none") as strict,
        KafkaConsumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="latest") as lenient,
    ):
        partition = cluster.create(4, 3, configs={"unclean.leader.election.enable": "true"})

        def write_and_read(*numbers: int) -> None:
            for number in numbers:
                producer.send(partition.topic, b"%d" % number).get(60)
            for consumer in (strict, lenient):
                assert [next(consumer).value for _ in numbers] == [b"%d" % number for number in numbers]

        for consumer in (strict, lenient):
            consumer.assign([partition])
            consumer.seek(partition, 0)
        write_and_read(0, 1, 2)
        epoch = cluster.client.cluster.leader_epoch_for_partition(partition)
        follower.kill()
        cluster.wait_for(partition.topic, lambda: cluster.in_sync(partition) == {4})
        write_and_read(3, 4, 5)
        leader.kill()
        follower.start()
        cluster.wait_for(partition.topic, lambda: cluster.client.cluster.leader_for_partition(partition) == 3)
        with pytest.raises(LogTruncationError) as told:
            strict.poll(60_000)
        assert told.value.divergent_offsets == {partition: OffsetAndMetadata(3, "", epoch)}
        assert strict.position(partition) == 6
        strict.seek(partition, 3)
        write_and_read(6, 7, 8)
