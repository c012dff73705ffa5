"""Groups in a broker: what is on the disk, what happens when it is full, who waits for whom."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka.broker.groups.consumer_group import ConsumerHeartbeat
from kafka.broker.responses import ConnectionContext
from kafka.errors import KafkaStorageError
from kafka.protocol.groups import (
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    JoinGroupResponse,
    ListGroupsRequest,
)
from kafka.protocol.topics import CreatePartitionsRequest, DeleteTopicsRequest
from test.broker.driver import HandBroker
from test.broker.groups.requests import (
    beat,
    codes,
    commit,
    consumer,
    fetch,
    given,
    join,
    leave,
    offsets,
    read_assignment,
    sync,
    write_assignment,
    write_subscription,
)
from test.support.cpu import CpuTime

SETTINGS = {"group.initial.rebalance.delay.ms": "0"}


@pytest.fixture
def hand(tmp_path: Path) -> Iterator[HandBroker]:
    broker = HandBroker(tmp_path, SETTINGS)
    yield broker
    broker.broker.close()


def stable(hand: HandBroker, group: str, instance: str | None = None, assignment: bytes = b"mine") -> str:
    """A group of one classic member; its id."""
    protocols = (("range", write_subscription(["t"])),)
    member = hand.ask(join(group, instance=instance, protocols=protocols), 9).member_id
    if instance is None:
        member = hand.ask(join(group, member, protocols=protocols), 9).member_id
    assert hand.ask(sync(group, 1, member, {member: assignment}, instance), 5).error_code == 0
    return member


def state(hand: HandBroker, group: str) -> str:
    return hand.ask(DescribeGroupsRequest(groups=[group]), 6).groups[0].group_state


def test_classic_members_go_on_after_a_restart_without_a_rebalance(hand: HandBroker) -> None:
    dynamic, static = stable(hand, "g"), stable(hand, "s", "i")
    hand.restart()
    assert [hand.ask(beat("g", 1, dynamic), 4).error_code, hand.ask(beat("s", 1, static, "i"), 4).error_code] == [0, 0]
    assert hand.ask(sync("g", 1, dynamic), 5).assignment == b"mine"
    assert hand.ask(join("s", instance="i", protocols=(("range", b""),)), 9).skip_assignment
    assert state(hand, "g") == "Stable"


def test_members_that_are_not_heard_from_after_a_restart_are_out(hand: HandBroker) -> None:
    member = stable(hand, "g")
    hand.restart()
    hand.advance(9.9)
    assert state(hand, "g") == "Stable"
    hand.advance(0.2)
    assert state(hand, "g") == "Empty"
    assert hand.ask(beat("g", 1, member), 4).error_code == 25
    hand.restart()
    assert state(hand, "g") == "Empty"


def test_members_of_the_new_protocol_go_on_after_a_restart(hand: HandBroker) -> None:
    topic_id = hand.create_topic("t", 4)
    hand.ask(consumer("g", "a", 0, ["t"]))
    hand.advance(1.1)
    hand.ask(consumer("g", "b", 0, ["t"]))
    hand.ask(consumer("g", "a", 2))
    hand.restart()
    assert hand.ask(consumer("g", "b", 3)).error_code == 0
    assert given(hand.ask(consumer("g", "b", 3, ["t"], rebalance_ms=1000, owned={}))) == {}
    assert hand.ask(consumer("g", "a", 2, owned={topic_id: [0, 1]})).member_epoch == 3
    assert given(hand.ask(consumer("g", "b", 3))) == {topic_id: [2, 3]}
    request = ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False)
    shown = hand.ask(request).groups[0]
    assert (shown.group_state, shown.group_epoch, len(shown.members)) == ("Stable", 3, 2)


def test_a_deleted_group_is_gone_for_good(hand: HandBroker) -> None:
    hand.create_topic("t", 1)
    member = stable(hand, "g")
    hand.ask(consumer("n", "a", 0, ["t"]))
    assert [one.error_code for one in hand.ask(DeleteGroupsRequest(groups_names=["g", "n"])).results] == [68, 68]
    hand.ask(leave("g", (member, None)), 5)
    hand.ask(consumer("n", "a", -1))
    assert [one.error_code for one in hand.ask(DeleteGroupsRequest(groups_names=["g", "n"])).results] == [0, 0]
    hand.restart()
    assert hand.ask(ListGroupsRequest()).groups == []


def test_changes_of_protocol_hold_over_a_restart(hand: HandBroker) -> None:
    hand.create_topic("t", 2)
    old = stable(hand, "g", assignment=write_assignment({"t": [0, 1]}, 1))
    hand.ask(consumer("g", "new", 0, ["t"]))
    hand.restart()
    assert hand.broker.groups.group_type("g") == "consumer"
    assert hand.ask(beat("g", 1, old), 4).error_code == 27
    hand.ask(consumer("g", "new", -1))
    hand.restart()
    assert hand.broker.groups.group_type("g") == "classic"
    assert state(hand, "g") == "Stable", "what is written is the group before its members join again"
    assignment = hand.ask(sync("g", 2, old), 5).assignment
    assert len(read_assignment(assignment)["t"]) == 1


def test_a_member_that_waits_keeps_its_place_when_its_connection_ends(hand: HandBroker) -> None:
    first = stable(hand, "g")
    protocols = (("range", write_subscription(["t"])),)
    second = hand.ask(join("g", protocols=protocols), 9).member_id
    connection = ConnectionContext()
    reply = hand.send(join("g", second, protocols=protocols), 9, connection)
    assert not reply.done
    hand.broker.disconnected(connection, hand.now)
    answer = hand.ask(join("g", first, protocols=protocols), 9)
    assert {one.member_id for one in answer.members} == {first, second}
    assert reply.done


def test_a_full_disk_leaves_groups_as_they_were(hand: HandBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    hand.create_topic("t", 4)
    member = stable(hand, "g")
    hand.ask(consumer("n", "a", 0, ["t"]))
    hand.advance(1.1)

    def full(*args: object, **kwargs: object) -> None:
        raise KafkaStorageError("no space left")

    topic = hand.broker.state.topic("__consumer_offsets")
    monkeypatch.setattr(topic, "append", full)
    assert hand.ask(consumer("n", "b", 0, ["t"])).error_code == 16
    assert hand.ask(consumer("fresh", "b", 0, ["t"])).error_code == 16
    assert hand.ask(join("other"), 3).error_code == 16
    assert codes(hand.ask(commit("g", "t", {0: 1}, 1, member), 9)) == [16]
    assert [one.error_code for one in hand.ask(DeleteGroupsRequest(groups_names=["x"])).results] == [69]
    monkeypatch.undo()
    assert {one.group_id for one in hand.ask(ListGroupsRequest()).groups} == {"g", "n"}
    assert hand.ask(consumer("n", "a", 2)).member_epoch == 2
    assert given(hand.ask(consumer("n", "b", 0, ["t"]))) == {}


def test_offsets_stay_while_somebody_is_subscribed_and_go_some_time_after(tmp_path: Path) -> None:
    settings = {**SETTINGS, "offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}
    hand = HandBroker(tmp_path, settings)
    hand.create_topic("t", 1)
    hand.create_topic("u", 1)
    member = stable(hand, "g")
    for topic in ("t", "u"):
        assert codes(hand.ask(commit("g", topic, {0: 5}, 1, member), 9)) == [0]
    for _ in range(13):
        hand.advance(9)
        hand.ask(beat("g", 1, member), 4)
    assert offsets(hand.ask(fetch("g", "t"), 9)) == [5]
    assert offsets(hand.ask(fetch("g", "u"), 9)) == [-1], "nobody is subscribed to it"
    hand.ask(leave("g", (member, None)), 5)
    hand.advance(55)
    assert offsets(hand.ask(fetch("g", "t"), 9)) == [5]
    hand.advance(10)
    assert offsets(hand.ask(fetch("g", "t"), 9)) == [-1]
    assert hand.ask(ListGroupsRequest()).groups == [], "with its last offset the group goes, too"
    hand.broker.close()


def test_stable_offsets_are_not_given_out_while_a_transaction_changes_them(hand: HandBroker) -> None:
    hand.create_topic("t", 1)
    assert codes(hand.ask(commit("g", "t", {0: 5}), 9)) == [0]
    where = next(iter(hand.broker.offsets.of_group("g")))
    pending = hand.broker.offsets.of_group("g")[where]._replace(offset=9)
    hand.broker.offsets.commit_pending("g", 1000, 0, {where: pending})
    stable_answer = hand.ask(fetch("g", "t", stable=True), 9).groups[0].topics[0].partitions[0]
    assert (stable_answer.error_code, stable_answer.committed_offset) == (88, -1)
    assert offsets(hand.ask(fetch("g", "t"), 9)) == [5]


def test_a_deleted_topic_takes_its_partitions_from_the_members(hand: HandBroker) -> None:
    hand.create_topic("t", 2)
    hand.ask(consumer("g", "a", 0, ["t"]))
    hand.ask(DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="t")], timeout_ms=1000))
    hand.advance(1.1)
    assert given(hand.ask(consumer("g", "a", 2))) == {}


def test_requests_sent_ahead_are_answered_with_what_was_decided_for_all(hand: HandBroker) -> None:
    """Two members join at once: one generation, one leader."""
    hand.broker.close()
    hand.settings = {"group.initial.rebalance.delay.ms": "3000"}
    hand.broker = hand._open()
    replies = [hand.send(join("g"), 3, ConnectionContext()) for _ in range(2)]
    assert not any(reply.done for reply in replies)
    hand.advance(6.1)
    answers = [reply.response for reply in replies]
    assert all(isinstance(answer, JoinGroupResponse) and answer.generation_id == 1 for answer in answers)
    assert len({answer.leader for answer in answers if isinstance(answer, JoinGroupResponse)}) == 1


def test_a_group_without_members_and_offsets_is_gone_at_the_next_check(tmp_path: Path) -> None:
    settings = {**SETTINGS, "offsets.retention.check.interval.ms": "60000"}
    hand = HandBroker(tmp_path, settings)
    hand.create_topic("t", 1)
    for number in range(3):
        member = stable(hand, f"classic-{number}")
        hand.ask(leave(f"classic-{number}", (member, None)), 5)
    hand.ask(consumer("new", "a", 0, ["t"]))
    hand.ask(consumer("new", "a", -1))
    lively = stable(hand, "lively")
    assert codes(hand.ask(commit("kept", "t", {0: 5}), 9)) == [0]
    assert len(hand.ask(ListGroupsRequest()).groups) == 6
    for _ in range(13):
        hand.advance(9)
        assert hand.ask(beat("lively", 1, lively), 4).error_code == 0
    assert {one.group_id for one in hand.ask(ListGroupsRequest()).groups} == {"kept", "lively"}
    hand.restart()
    assert {one.group_id for one in hand.ask(ListGroupsRequest()).groups} == {"kept", "lively"}
    hand.broker.close()


class FullDisk:
    """``__consumer_offsets`` of a broker can or cannot be written."""

    def __init__(self, hand: HandBroker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full = False
        topic = hand.broker.state.topic("__consumer_offsets")
        append = topic.append

        def perhaps(*args: Any, **kwargs: Any) -> None:
            if self.is_full:
                raise KafkaStorageError("no space left")
            append(*args, **kwargs)

        monkeypatch.setattr(topic, "append", perhaps)


def test_a_leave_that_could_not_be_written_leaves_the_session_running(
    hand: HandBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand.create_topic("t", 4)
    for member, instance in (("a", None), ("b", None), ("s", "i")):
        hand.ask(consumer("g", member, 0, ["t"], instance=instance))
    assert hand.ask(consumer("g", "s", -2, instance="i")).error_code == 0
    disk = FullDisk(hand, monkeypatch)
    disk.is_full = True
    assert hand.ask(consumer("g", "a", -1)).error_code == 16
    assert hand.ask(consumer("g", "s2", 0, ["t"], instance="i")).error_code == 16
    assert len(hand.broker.groups.consumer("g").members) == 3
    disk.is_full = False
    hand.advance(46)
    assert len(hand.broker.groups.consumer("g").members) == 0


def test_a_join_that_could_not_be_written_leaves_no_session_that_changes_the_group(
    hand: HandBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand.create_topic("t", 2)
    assert hand.ask(consumer("g", "a", 0, ["t"])).member_epoch == 2
    disk = FullDisk(hand, monkeypatch)
    disk.is_full = True
    assert hand.ask(consumer("g", "b", 0, ["t"])).error_code == 16
    disk.is_full = False
    for _ in range(2):
        hand.advance(30)
        assert hand.ask(consumer("g", "a", 2)).error_code == 0
    assert hand.broker.groups.consumer("g").epoch == 2


def test_new_partitions_are_not_forgotten_when_the_disk_was_full(
    hand: HandBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic_id = hand.create_topic("t", 1)
    assert given(hand.ask(consumer("g", "a", 0, ["t"]))) == {topic_id: [0]}
    hand.advance(1.1)
    grown = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=2, assignments=None)
    hand.ask(CreatePartitionsRequest(topics=[grown], timeout_ms=1000, validate_only=False))
    disk = FullDisk(hand, monkeypatch)
    disk.is_full = True
    assert hand.ask(consumer("g", "a", 2)).error_code == 16
    disk.is_full = False
    assert given(hand.ask(consumer("g", "a", 2))) == {topic_id: [0, 1]}


def test_classic_members_of_a_group_of_consumers_look_for_another_coordinator_when_the_disk_is_full(
    hand: HandBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand.create_topic("t", 2)
    old = stable(hand, "g", assignment=write_assignment({"t": [0, 1]}, 1))
    hand.ask(consumer("g", "new", 0, ["t"]))
    disk = FullDisk(hand, monkeypatch)
    disk.is_full = True
    protocols = (("range", write_subscription(["t"])),)
    assert hand.ask(join("g", old, protocols=protocols), 9).error_code == 16
    assert hand.ask(leave("g", (old, None)), 5).error_code == 16
    disk.is_full = False
    assert hand.ask(join("g", old, protocols=protocols), 9).error_code == 0


def test_a_disk_that_is_full_in_the_middle_of_a_rebalance_begins_it_again(
    hand: HandBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    protocols = (("range", write_subscription(["t"])),)
    member = hand.ask(join("g", protocols=protocols), 9).member_id
    assert hand.ask(join("g", member, protocols=protocols), 9).generation_id == 1
    disk = FullDisk(hand, monkeypatch)
    disk.is_full = True
    assert hand.ask(sync("g", 1, member, {member: b"mine"}), 5).error_code == 16
    assert state(hand, "g") == "PreparingRebalance"
    assert hand.ask(beat("g", 1, member), 4).error_code == 27
    disk.is_full = False
    assert hand.ask(join("g", member, protocols=protocols), 9).generation_id == 2
    assert hand.ask(sync("g", 2, member, {member: b"mine"}), 5).assignment == b"mine"


@pytest.mark.parametrize("stage", ["preparing", "completing"])
def test_a_restart_in_the_middle_of_a_rebalance_is_the_generation_before(hand: HandBroker, stage: str) -> None:
    protocols = (("range", write_subscription(["t"])),)
    first = stable(hand, "g")
    second = hand.ask(join("g", protocols=protocols), 9).member_id
    hand.send(join("g", second, protocols=protocols), 9, ConnectionContext())
    assert state(hand, "g") == "PreparingRebalance"
    if stage == "completing":
        assert hand.ask(join("g", first, protocols=protocols), 9).generation_id == 2
        assert state(hand, "g") == "CompletingRebalance"
    hand.restart()
    assert state(hand, "g") == "Stable"
    assert hand.ask(beat("g", 1, first), 4).error_code == 0
    assert hand.ask(beat("g", 2, first), 4).error_code == 22
    assert hand.ask(beat("g", 1, second), 4).error_code == 25
    assert hand.ask(join("g", first, protocols=protocols), 9).generation_id == 2


def test_a_group_is_deleted_under_a_member_that_has_yet_to_come_again(hand: HandBroker) -> None:
    member = hand.ask(join("g"), 9).member_id
    assert [one.error_code for one in hand.ask(DeleteGroupsRequest(groups_names=["g"])).results] == [0]
    assert hand.ask(join("g", member), 9).error_code == 25
    hand.advance(30)
    assert hand.ask(ListGroupsRequest()).groups == []


def test_members_in_the_thousands_cost_each_other_little(tmp_path: Path) -> None:
    count = 1500
    hand = HandBroker(tmp_path, {"group.initial.rebalance.delay.ms": "3000"})
    members = [hand.ask(join("g"), 9).member_id for _ in range(count)]
    replies = [hand.send(join("g", member), 9) for member in members]
    hand.advance(10.1)
    answers = [reply.response for reply in replies]
    assert all(isinstance(answer, JoinGroupResponse) and answer.generation_id == 1 for answer in answers)
    leader = next(answer.leader for answer in answers if isinstance(answer, JoinGroupResponse))
    hand.ask(sync("g", 1, leader, dict.fromkeys(members, b"x")), 5)
    for member in members:
        assert hand.ask(sync("g", 1, member), 5).assignment == b"x"
    with CpuTime() as cpu:
        hand.send(join("g"), 3)
        hand.advance(25)  # nobody comes again: each of them has been the leader for a moment
    assert not set(hand.broker.groups.classic("g").members).intersection(members)
    assert cpu.seconds < 2.0
    hand.broker.close()


def test_members_of_the_new_protocol_in_the_thousands_cost_each_other_little(tmp_path: Path) -> None:
    count = 1000
    hand = HandBroker(tmp_path)
    hand.create_topic("t", count)
    for number in range(count):
        assert hand.ask(consumer("g", f"m{number}", 0, ["t"])).error_code == 0
    hand.advance(1.1)
    epochs = {f"m{number}": hand.ask(consumer("g", f"m{number}", 0, ["t"])).member_epoch for number in range(count)}
    groups = hand.broker.groups
    with CpuTime() as cpu:
        for member, epoch in epochs.items():
            groups.heartbeat("g", ConsumerHeartbeat(member, epoch), hand.now)
    assert cpu.seconds < 1.0, "nothing has changed"
    with CpuTime() as cpu:
        hand.advance(60)
    assert groups.consumer("g").is_empty
    assert cpu.seconds < 1.0
    hand.broker.close()
