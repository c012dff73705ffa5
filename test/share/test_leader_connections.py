"""Connections of share sessions: one for each member and leader, watched, and exchanged before they would be closed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafka.errors import IllegalStateError, KafkaConnectionError
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.share import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareGroupHeartbeatRequest,
)
from kafka.share import AcknowledgeType
from kafka.share.leader_sessions import LeaderSession
from test.share.support import TOPIC, Leaders, Machine, Taker

MakeLeaders = Callable[[int], Leaders]


def link_of(consumer: Any) -> LeaderSession:
    (link,) = consumer._driver._sessions.values()
    assert isinstance(link, LeaderSession)
    return link


def test_members_on_one_client_have_a_connection_each(machine: Machine) -> None:
    client = machine.client()
    users = [Taker(), Taker()]
    consumers = [user.consumer(client, "t") for user in users]
    for consumer in consumers:
        consumer.request_records(1)
    machine.wait(lambda: all(consumer._driver._sessions for consumer in consumers))
    machine.run(2)
    lanes = {link_of(consumer).lanes._name for consumer in consumers}
    assert len(lanes) == 2
    assert lanes <= {connection.lane for connection in client.connections() if connection.connected()}


def test_locks_that_went_with_a_connection_are_reported_though_nothing_was_on_it(machine: Machine) -> None:
    user = Taker()
    consumer = user.consumer(machine.client(), "t")
    machine.produce("t", b"a", b"b")
    consumer.request_records(2)
    machine.wait(lambda: len(user.records) == 2)
    consumer.request_records(0)
    machine.run(2)
    assert not link_of(consumer).session.in_flight
    machine.network.cut("me", "kafka")
    machine.run(0.1)
    assert user.lost == user.records
    with pytest.raises(IllegalStateError, match="lock is gone"):
        consumer.acknowledge(user.records[0])
    consumer.request_records(2)
    machine.wait(lambda: len(user.records) == 4)
    assert {record.delivery_count for record in user.records[2:]} == {2}


@pytest.mark.parametrize("end", ["asks the bootstrap servers again", "finds the connection idle"])
def test_locks_that_went_with_a_connection_that_the_client_ended_are_reported_too(machine: Machine, end: str) -> None:
    user = Taker()
    client = machine.client(connections_max_idle_ms=5_000)
    consumer = user.consumer(client, "t")
    machine.produce("t", b"a")
    consumer.request_records(1)
    machine.wait(lambda: user.records)
    consumer.request_records(0)
    machine.run(2)
    if end == "asks the bootstrap servers again":
        client.router.rebootstrap("a test says so")
    else:
        machine.network.names["kafka"] = []  # so no other one can be made in time
        machine.run(4)
        assert link_of(consumer).lanes.replaced == 0
    machine.run(0.01)
    assert user.lost == user.records
    machine.network.names.pop("kafka", None)
    consumer.request_records(1)
    machine.wait(lambda: len(user.records) == 2, 10)
    assert user.records[1].delivery_count == 2


def test_an_idle_connection_is_exchanged_while_something_is_held_and_nothing_is_freed(machine: Machine) -> None:
    user, other = Taker(), Taker()
    consumer = user.consumer(machine.client(connections_max_idle_ms=5_000), "t")
    machine.produce("t", b"kept", b"back")
    consumer.request_records(2)
    machine.wait(lambda: len(user.records) == 2)
    consumer.request_records(0)
    second = other.consumer(machine.client(), "t")
    second.request_records(5)
    machine.run(25)
    assert link_of(consumer).lanes.replaced >= 4
    assert (user.lost, other.records) == ([], [])
    kept, back = user.records
    consumer.acknowledge(kept)
    consumer.acknowledge(back, AcknowledgeType.RELEASE)
    done = consumer.commit_async()
    machine.wait(lambda: done.is_done)
    assert [each.error for each in user.acknowledged] == [None, None]
    machine.wait(lambda: other.records, 5)
    assert other.values == [b"back"]


def test_a_connection_with_nothing_held_on_it_is_let_go(machine: Machine) -> None:
    user = Taker()
    consumer = user.consumer(machine.client(connections_max_idle_ms=5_000), "t")
    machine.produce("t", b"a")
    consumer.request_records(1)
    machine.wait(lambda: user.records)
    consumer.acknowledge(user.records[0])
    machine.run(30)
    assert link_of(consumer).lanes.replaced == 0
    machine.produce("t", b"b")
    consumer.request_records(1)
    machine.wait(lambda: len(user.records) == 2, 3)


def test_a_next_connection_that_cannot_be_made_is_tried_again_and_costs_nothing_that_is_held(machine: Machine) -> None:
    user = Taker()
    consumer = user.consumer(machine.client(connections_max_idle_ms=10_000), "t")
    machine.produce("t", b"a")
    consumer.request_records(1)
    machine.wait(lambda: user.records)
    consumer.request_records(0)
    lanes = link_of(consumer).lanes
    machine.network.names["kafka"] = []  # the name service knows it no more
    lanes.prepare()
    assert lanes._next is not None
    machine.wait(lambda: lanes._next is None, 5)
    assert lanes.replaced == 0
    del machine.network.names["kafka"]
    machine.wait(lambda: lanes.replaced, 15)
    assert user.lost == []
    consumer.acknowledge(user.records[0])
    done = consumer.commit_async()
    machine.wait(lambda: done.is_done)
    assert [each.error for each in user.acknowledged] == [None]


def test_a_next_connection_that_is_lost_before_it_is_used_is_made_again(machine: Machine) -> None:
    user = Taker()
    consumer = user.consumer(machine.client(connections_max_idle_ms=10_000), "t")
    machine.produce("t", b"a")
    consumer.request_records(1)
    machine.wait(lambda: user.records)
    consumer.request_records(0)
    machine.run(2)
    lanes = link_of(consumer).lanes
    lanes.prepare()
    assert lanes._next is not None
    lanes._next_is_ready = True  # and a request is out, so that it is not used at once
    lanes._lost(lanes._next, KafkaConnectionError("idle"))
    assert lanes._next is None
    machine.wait(lambda: lanes.replaced, 15)
    assert user.lost == []


def test_a_session_is_closed_before_its_member_leaves(leaders: MakeLeaders) -> None:
    one = leaders(1)
    node = one.nodes[0]
    node.log.extend(range(3))
    one.consumer.request_records(3)
    one.wait(lambda: len(one.user.records) == 3)
    before = len(node.received)
    done = one.consumer.close_async()
    one.wait(lambda: done.is_done, 5)
    last = [request for request, _ in node.received[before:]]
    closing = [isinstance(each, ShareAcknowledgeRequest) and each.share_session_epoch == -1 for each in last]
    leaving = [isinstance(each, ShareGroupHeartbeatRequest) and each.member_epoch == -1 for each in last]
    assert closing.index(True) < leaving.index(True)


def test_no_long_poll_is_longer_than_half_a_second_whatever_was_asked_for(leaders: MakeLeaders) -> None:
    one = leaders(1)
    user = Taker()
    patient = user.consumer(one.client, "t", fetch_max_wait_ms=60_000)
    patient.request_records(5)
    one.run(3)
    waits = {request.max_wait_ms for request in one.nodes[0].requests(ShareFetchRequest)}
    assert max(waits) == 500
    done = patient.close_async()
    one.wait(lambda: done.is_done)


@pytest.mark.parametrize("code", [3, 6, 74, 100])
def test_an_acknowledgement_at_the_former_leader_ends_what_is_held_there_and_has_the_leader_looked_for(
    leaders: MakeLeaders, code: int
) -> None:
    one = leaders(1)
    node = one.nodes[0]
    node.log.extend(range(3))
    one.consumer.request_records(3)
    one.wait(lambda: len(one.user.records) == 3)
    one.consumer.request_records(0)
    one.run(1)

    def refuse(request: Any, version: int) -> ShareAcknowledgeResponse:
        part = ShareAcknowledgeResponse.PartitionData(
            partition_index=0, error_code=code,
            current_leader=ShareAcknowledgeResponse.LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1),
        )  # fmt: skip
        topic = ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse(topic_id=TOPIC, partitions=[part])
        return ShareAcknowledgeResponse(
            throttle_time_ms=0, error_code=0, acquisition_lock_timeout_ms=30_000, responses=[topic], node_endpoints=[]
        )

    node.answers[ShareAcknowledgeRequest] = refuse
    asked = len(node.requests(MetadataRequest))
    said, *held = one.user.records
    one.consumer.acknowledge(said)
    one.wait(lambda: len(one.user.lost) == 2)
    assert one.user.lost == held
    ((record, _, error),) = one.user.acknowledged
    assert (record, error.errno if error is not None else 0) == (said, code)  # type: ignore[attr-defined]
    one.wait(lambda: len(node.requests(MetadataRequest)) > asked, 3)
    for record in held:
        with pytest.raises(IllegalStateError, match="lock is gone"):
            one.consumer.acknowledge(record)
    assert len(node.requests(ShareAcknowledgeRequest)) == 1, "nothing of it is said to anybody else"
