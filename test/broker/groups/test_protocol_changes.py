"""Groups that change their protocol or end, in a broker: requests, and what is written of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka.broker.groups.classic_group import ClassicGroup, ClassicState
from kafka.broker.groups.records import classic_key
from kafka.protocol.groups import DeleteGroupsRequest
from test.broker.driver import HandBroker
from test.broker.groups.requests import beat, codes, commit, consumer, join, leave, sync, write_subscription
from test.broker.groups.test_coordinator import stable

PROTOCOLS = (("range", write_subscription(["t"])),)


@pytest.fixture
def hand(tmp_path: Path) -> Iterator[HandBroker]:
    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.retention.check.interval.ms": "60000"}
    broker = HandBroker(tmp_path, settings)
    broker.create_topic("t", 1)
    yield broker
    broker.broker.close()


def test_a_static_member_that_comes_back_with_the_classic_protocol_makes_its_group_classic(hand: HandBroker) -> None:
    hand.ask(consumer("g", "a", 0, ["t"], instance="i"))
    answer = hand.ask(join("g", instance="i", protocols=PROTOCOLS), 9)
    assert (answer.error_code, answer.generation_id) == (0, 2)
    group = hand.broker.groups.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert group.state is ClassicState.STABLE, "nobody left, so there is nothing to share out"
    assert set(group.members) == {answer.member_id}


def test_a_dynamic_member_of_the_classic_protocol_does_not(hand: HandBroker) -> None:
    hand.ask(consumer("g", "a", 0, ["t"]))
    assert hand.ask(join("g", protocols=PROTOCOLS), 3).error_code == 0
    assert hand.broker.groups.group_type("g") == "consumer"
    assert len(hand.broker.groups.consumer("g").members) == 2
    hand.ask(consumer("g", "a", -1))
    group = hand.broker.groups.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert group.state is ClassicState.PREPARING_REBALANCE


@pytest.mark.parametrize("kind", ["none", "empty"])
def test_nobody_syncs_with_a_group_that_has_no_members(hand: HandBroker, kind: str) -> None:
    if kind == "empty":
        hand.ask(consumer("g", "a", 0, ["t"]))
        hand.ask(consumer("g", "a", -1))
    assert hand.ask(sync("g", 1, "a"), 5).error_code == 25
    assert hand.ask(beat("g", 1, "a"), 4).error_code == 25


def test_a_leave_of_nobody_changes_nothing(hand: HandBroker) -> None:
    hand.ask(consumer("g", "a", 0, ["t"]))
    answer = hand.ask(leave("g", ("nobody", None)), 5)
    assert [one.error_code for one in answer.members] == [25]
    assert hand.broker.groups.consumer("g").epoch == 2
    answer = hand.ask(leave("g", ("a", None), ("a", None)), 5)
    assert [one.error_code for one in answer.members] == [0, 25]
    assert hand.broker.groups.consumer("g").is_empty
    assert [one.error_code for one in hand.ask(leave("unknown", ("a", None)), 5).members] == [25]


@pytest.mark.parametrize(
    ("instance", "epoch", "is_there"), [(None, -1, False), ("i", -1, False), ("i", -2, True), (None, -2, False)]
)
def test_only_a_static_member_that_says_so_keeps_its_place(
    hand: HandBroker, instance: str | None, epoch: int, is_there: bool
) -> None:
    hand.ask(consumer("g", "a", 0, ["t"], instance=instance))
    groups = hand.broker.groups
    assert groups.consumer_leave("g", "a", instance, epoch, hand.now)[:2] == ("a", epoch)
    assert ("a" in groups.consumer("g").members) is is_there


def test_an_empty_classic_group_ends_before_one_of_consumers_takes_its_name(
    hand: HandBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = stable(hand, "g")
    hand.ask(leave("g", (member, None)), 5)
    written: list[tuple[bytes, bytes | None]] = []
    topic = hand.broker.state.topic("__consumer_offsets")
    append = topic.append

    def noted(partition: int, records: Any, **more: Any) -> None:
        written.extend(records)
        append(partition, records, **more)

    monkeypatch.setattr(topic, "append", noted)
    hand.ask(consumer("g", "a", 0, ["t"]))
    assert written[0] == (classic_key("g"), None)
    assert [value for _, value in written].count(None) == 1
    written.clear()
    hand.advance(1.1)
    hand.ask(consumer("g", "b", 0, ["t"]))
    hand.ask(consumer("fresh", "a", 0, ["t"]))
    assert written
    assert all(value is not None for _, value in written)
    hand.restart()
    assert hand.broker.groups.group_type("g") == "consumer"


def test_unused_groups_are_looked_for_at_the_interval_while_there_are_groups(hand: HandBroker) -> None:
    groups = hand.broker.groups
    assert groups.next_deadline is None
    assert codes(hand.ask(commit("kept", "t", {0: 1}), 9)) == [0]
    assert groups.next_deadline == 60.0
    hand.ask(consumer("unused", "a", 0, ["t"]))
    assert groups.next_deadline == 45.0
    hand.ask(consumer("unused", "a", -1))
    groups.tick(59.9)
    assert set(groups.groups) == {"kept", "unused"}
    groups.tick(60.0)
    assert set(groups.groups) == {"kept"}
    assert groups.next_deadline == 120.0


def test_the_groups_end_with_their_topic(hand: HandBroker) -> None:
    stable(hand, "g")
    reply = hand.send(join("g", protocols=PROTOCOLS), 3)
    assert not reply.done
    hand.ask(consumer("n", "a", 0, ["t"]))
    hand.broker.logs.delete_topic("__consumer_offsets")
    hand.broker.state.on_topic_deleted("__consumer_offsets")
    assert hand.broker.groups.groups == {}
    assert reply.done
    assert [one.error_code for one in hand.ask(DeleteGroupsRequest(groups_names=["g", "n"])).results] == [69, 69]
