"""What goes by the broker's clock is over when that clock says so: sessions, locks, transactions, retention."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest

from kafka.protocol.fetch import FetchResponse
from kafka.protocol.groups import HeartbeatRequest, JoinGroupRequest, SyncGroupRequest
from kafka.protocol.share import ShareFetchRequest, ShareGroupHeartbeatRequest
from kafka.protocol.transactions import (
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    InitProducerIdRequest,
)
from kafka.testing import EmbeddedBroker
from test.broker.driver import batch, fetch_request, fetched, produce_request, values
from test.broker.raw_client import RawClient

UNKNOWN_MEMBER = 25
DAY_S = 86_400


@pytest.fixture(scope="module", params=["in process", "process"])
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(in_process=request.param == "in process") as broker:
        yield broker


def unique(stem: str) -> str:
    return f"{stem}-{uuid.uuid4().hex[:8]}"


def join(group: str, member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def test_a_member_of_a_classic_group_lives_as_long_as_its_session(broker: EmbeddedBroker, client: RawClient) -> None:
    group, before = unique("group"), broker.requests.count
    client.send(join(group), 3)
    broker.requests.wait("JoinGroup", client_id="raw", after=before)
    broker.clock.advance(5)  # group.initial.rebalance.delay.ms
    joined = client.receive(join(group), 3)
    assert joined.error_code == 0
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")],
    )
    assert client.ask(sync, 3).assignment == b"all"
    beat = HeartbeatRequest(group_id=group, generation_id=joined.generation_id, member_id=joined.member_id)
    for _ in range(3):
        broker.clock.advance(25)
        assert client.ask(beat, 3).error_code == 0
    broker.clock.advance(31)
    assert client.ask(beat, 3).error_code == UNKNOWN_MEMBER


def test_a_transaction_that_nobody_ends_is_aborted(broker: EmbeddedBroker, client: RawClient) -> None:
    topic, name = broker.create_topic(unique("topic")), unique("transaction")
    begin = client.ask(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), 4)
    assert begin.error_code == 0
    added = client.ask(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=begin.producer_id,
            v3_and_below_producer_epoch=begin.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[0])],
        ),
        3,
    )
    assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
    data = batch(b"never", producer=(begin.producer_id, begin.producer_epoch, 0), transactional=True)
    request = produce_request(topic, data)
    request.transactional_id = name
    assert client.ask(request, 9).responses[0].partition_responses[0].error_code == 0

    def look() -> tuple[str, int]:
        (state,) = client.ask(DescribeTransactionsRequest(transactional_ids=[name])).transaction_states
        (partition,) = fetched(client.ask(fetch_request(topic), 12))
        return state.transaction_state, partition.last_stable_offset

    broker.clock.advance(50)
    assert look() == ("Ongoing", 0)
    broker.clock.advance(30)
    assert look() == ("CompleteAbort", 2), "the record and its marker"
    assert broker.records(topic) == []


def test_a_lock_of_a_share_group_ends(broker: EmbeddedBroker, client: RawClient) -> None:
    topic, group, member = broker.create_topic(unique("topic")), unique("group"), str(uuid.uuid4())
    beat = ShareGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=0, subscribed_topic_names=[topic]
    )
    assigned = client.ask(beat).assignment
    assert assigned is not None
    (found,) = assigned.topic_partitions

    def fetch(epoch: int) -> list[tuple[int, int]]:
        request = ShareFetchRequest(
            group_id=group,
            member_id=member,
            share_session_epoch=epoch,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=100,
            batch_size=100,
            topics=[
                ShareFetchRequest.FetchTopic(
                    topic_id=found.topic_id,
                    partitions=[ShareFetchRequest.FetchPartition(partition_index=0, acknowledgement_batches=[])],
                )
            ],
            forgotten_topics_data=[],
        )
        answer = client.ask(request)
        assert answer.error_code == 0, answer
        return [
            (one.first_offset, one.delivery_count)
            for response in answer.responses
            for partition in response.partitions
            for one in partition.acquired_records
        ]

    assert fetch(0) == []
    broker.fill(topic, ["a"])
    assert fetch(1) == [(0, 1)]
    broker.clock.advance(15)  # and another 15 s, for a machine that is slow
    assert fetch(2) == []
    broker.clock.advance(16)
    assert fetch(3) == [(0, 2)]


def test_segments_of_yesterday_are_deleted(broker: EmbeddedBroker, client: RawClient) -> None:
    topic = broker.create_topic(
        unique("topic"), retention_ms=3_600_000, segment_ms=600_000, message_timestamp_type="LogAppendTime"
    )
    client.ask(produce_request(topic, batch(b"old")), 9)
    broker.clock.advance(DAY_S)
    client.ask(produce_request(topic, batch(b"new")), 9)
    broker.clock.advance(600)
    answer: FetchResponse = client.ask(fetch_request(topic, (1,)), 12)
    (partition,) = fetched(answer)
    assert (partition.log_start_offset, values(partition.records)) == (1, [b"new"])


def test_a_month_passes_in_a_moment(broker: EmbeddedBroker) -> None:
    for _ in range(3):
        broker.fill(broker.create_topic(unique("topic"), 4), ["x"] * 10)
    started, before = time.monotonic(), broker.clock.time
    broker.clock.advance(30 * DAY_S)
    assert broker.clock.time >= before + 30 * DAY_S
    assert time.monotonic() - started < 45, "usually much less"
