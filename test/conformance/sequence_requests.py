"""Requests of sequences, as short as a test wants to say them. ``side``: where ids of topics are looked up."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from kafka.protocol.groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from kafka.protocol.produce import ProduceRequest
from kafka.protocol.share import (
    DescribeShareGroupOffsetsRequest,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)
from kafka.protocol.topics import CreateTopicsRequest
from test.conformance.broker_pair import BrokerPair, Side
from test.conformance.random_requests import Batch, Named
from test.conformance.readiness import produce_to_leader
from test.support.waiting import until

Acks = Sequence[tuple[int, int, list[int]]]
"""First and last offset, and types."""

_numbers = itertools.count(1)


def letters() -> str:
    """The end of a new name. It has no digits: those of the test stay as they are in answers."""
    return str(next(_numbers)).translate(str.maketrans("0123456789", "abcdefghij"))


def new_topic(pair: BrokerPair, name: str, partitions: int = 2) -> str:
    """Make a topic of one record in each partition on both."""
    topic_request = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    for side in pair.sides:
        side.ask(CreateTopicsRequest(topics=[topic_request], timeout_ms=10_000), 7)
        until(lambda side=side: side.topic_id(name).int, name)
        for partition in range(partitions):
            produce_to_leader(side, produce(name, partition, [b"first"]))
    return name


def produce(topic: str, partition: int, values: list[bytes | None]) -> ProduceRequest:
    data = ProduceRequest.PartitionProduceData(index=partition, records=Batch(tuple(values)).bytes(NO_SIDE))
    wanted = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    return ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[wanted])


NO_SIDE: Any = None
"""For batches without a producer."""


def consumer_heartbeat(
    side: Side,
    group: str,
    member: str,
    epoch: int,
    owned: dict[str, list[int]] | None = None,
    *,
    names: list[str] | None = None,
    regex: str | None = None,
    timeout_ms: int = -1,
    instance: str | None = None,
) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        instance_id=instance,
        rebalance_timeout_ms=timeout_ms,
        subscribed_topic_names=names,
        subscribed_topic_regex=regex,
        topic_partitions=None
        if owned is None
        else [
            ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=side.value(f"$topic-id:{name}"), partitions=numbers)
            for name, numbers in owned.items()
        ],
    )


def describe_consumers(group: str) -> ConsumerGroupDescribeRequest:
    return ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)


def share_heartbeat(group: str, member: str, epoch: int, names: list[str] | None) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=names
    )


def describe_share(group: str) -> ShareGroupDescribeRequest:
    return ShareGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)


def share_offsets(group: str, topic: str) -> DescribeShareGroupOffsetsRequest:
    cls = DescribeShareGroupOffsetsRequest
    topic_request = cls.DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[0])
    return cls(groups=[cls.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=[topic_request])])


def share_fetch(
    side: Side,
    group: str,
    member: str,
    epoch: int,
    topic: str,
    *,
    acks: Acks = (),
    wait_ms: int = 0,
    max_records: int = 100,
    exact: bool = False,
) -> ShareFetchRequest:
    partition = ShareFetchRequest.FetchPartition(
        partition_index=0,
        acknowledgement_batches=[
            ShareFetchRequest.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
            for first, last, types in acks
        ],
    )
    topic_request = ShareFetchRequest.FetchTopic(topic_id=side.value(f"$topic-id:{topic}"), partitions=[partition])
    return ShareFetchRequest(
        group_id=group,
        member_id=member,
        share_session_epoch=epoch,
        max_wait_ms=wait_ms,
        min_bytes=1 if wait_ms else 0,
        max_bytes=1 << 20,
        max_records=max_records,
        batch_size=max_records,
        share_acquire_mode=int(exact),
        topics=[topic_request] if epoch == 0 or acks else [],
        forgotten_topics_data=[],
    )


def acknowledge(
    side: Side, group: str, member: str, epoch: int, topic: str, acks: Acks, renew: bool = False
) -> ShareAcknowledgeRequest:
    partition = ShareAcknowledgeRequest.AcknowledgePartition(
        partition_index=0,
        acknowledgement_batches=[
            ShareAcknowledgeRequest.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
            for first, last, types in acks
        ],
    )
    wanted = ShareAcknowledgeRequest.AcknowledgeTopic(topic_id=side.value(f"$topic-id:{topic}"), partitions=[partition])
    return ShareAcknowledgeRequest(
        group_id=group,
        member_id=member,
        share_session_epoch=epoch,
        is_renew_ack=renew,
        topics=[wanted] if acks else [],
    )


def settle_share_group(sides: Sequence[Side], group: str, topic: str) -> None:
    """Have a topic known to a group, and its partition 0 loaded: Apache Kafka does the one between two heartbeats, the
    other between two fetches; the embedded broker both at once."""
    for side in sides:
        epoch = 0

        def assigned(side: Side = side) -> Any:
            nonlocal epoch
            answer = side.ask(share_heartbeat(group, "first", epoch, [topic] if epoch == 0 else None), 1)
            assert not answer.error_code, answer
            epoch = answer.member_epoch
            return answer.assignment is not None and answer.assignment.topic_partitions

        def fetched(side: Side = side) -> Any:
            return side.ask(share_fetch(side, group, "first", 0, topic, wait_ms=100), 2).responses

        until(assigned)
        until(fetched)
        side.ask(share_fetch(side, group, "first", -1, topic), 2)
        side.ask(share_heartbeat(group, "first", -1, None), 1)


def transactional(side: Side, topic: str, name: str, producer: str, epoch: int, sequence: int) -> ProduceRequest:
    """One record of a transaction for partition 0."""
    batch = Batch((b"x",), producer=Named(producer), epoch=epoch, sequence=sequence, transactional=True)
    data = ProduceRequest.PartitionProduceData(index=0, records=batch.bytes(side))
    topic_id = side.value(f"$topic-id:{topic}")
    wanted = ProduceRequest.TopicProduceData(name=topic, topic_id=topic_id, partition_data=[data])
    return ProduceRequest(transactional_id=name, acks=-1, timeout_ms=5_000, topic_data=[wanted])
