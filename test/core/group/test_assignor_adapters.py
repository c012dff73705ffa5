"""Assignors in kafka-python's form: users' own of both generations, and ours at its import paths."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest

from kafka.coordinator.assignors.abstract import (
    AbstractPartitionAssignor,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from kafka.core.group.assignors.base import GroupMember, RebalanceProtocol
from kafka.core.group.assignors.range import RangeAssignor
from kafka.core.group.assignors.strategy import ASSIGNORS, LegacyAssignorAdapter, make_assignors
from kafka.core.group.machine import TopicSnapshot
from kafka.core.group.protocol import MemberAssignment, MemberSubscription
from kafka.errors import IllegalArgumentError
from kafka.structs import TopicPartition

TOPICS = {"t": TopicSnapshot(3)}
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
MEMBERS = [
    GroupMember("a", None, MemberSubscription(("t",), b"said by a")),
    GroupMember("b", "static", MemberSubscription(("t",), None, (T1,), 4, "rack")),
]


class First:
    """As users wrote them for kafka-python 2: ids and metadata in a dictionary."""

    name = "first"
    version = 0

    def __init__(self) -> None:
        self.told: list[Any] = []

    @classmethod
    def assign(cls, cluster: Any, members: Any) -> Any:
        found = {}
        for number, (member_id, metadata) in enumerate(sorted(members.items())):
            assert metadata.subscription == metadata.topics == ["t"]
            assert metadata.version >= 0
            partitions = sorted(cluster.partitions_for_topic("t"))[number::2]
            found[member_id] = ConsumerProtocolMemberAssignment(cls.version, [("t", partitions)], b"")
        assert members["a"].user_data == b"said by a"
        return found

    @classmethod
    def metadata(cls, topics: Any) -> Any:
        return ConsumerProtocolMemberMetadata(cls.version, list(topics), b"user data")

    def on_assignment(self, assignment: Any) -> None:
        self.told.append(assignment.partitions())

    def on_generation_assignment(self, generation: int) -> None:
        self.told.append(generation)


class Second(AbstractPartitionAssignor):
    """As in kafka-python 3: a list of members."""

    name = "second"

    def __init__(self) -> None:
        self.told: list[Any] = []

    def assign(self, cluster: Any, members: Any) -> Any:
        assert [(one.member_id, one.group_instance_id) for one in members] == [("a", None), ("b", "static")]
        second = members[1].metadata
        assert (second.owned_partitions, second.generation_id, second.rack_id) == ([("t", [1])], 4, "rack")
        assert cluster.topics() == {"t"}
        assert cluster.partitions_for_topic("missing") is None
        return {members[0].member_id: ConsumerProtocolAssignment(0, [("t", [0, 1, 2])], b"")}

    def metadata(self, topics: Any) -> Any:
        return ConsumerProtocolSubscription(0, list(topics), b"")

    def on_assignment(self, assignment: Any, generation: int) -> None:
        self.told.append((assignment.assignment, generation))


def test_an_assignor_of_generation_2_sees_a_dictionary() -> None:
    own = First()
    (assignor,) = make_assignors([own])
    assert assignor.name == "first"
    assert assignor.rebalance_protocols == {RebalanceProtocol.EAGER}
    assert assignor.user_data(frozenset({"t"})) == b"user data"
    assert assignor.assign(TOPICS, MEMBERS) == {"a": MemberAssignment((T0, T2)), "b": MemberAssignment((T1,))}
    assignor.on_assignment(MemberAssignment((T1,)), 5)
    assert own.told == [[T1], 5]


def test_an_assignor_of_generation_3_sees_a_list() -> None:
    own = Second()
    (assignor,) = make_assignors([own])
    assert assignor.user_data(frozenset({"t"})) is None
    assert assignor.assign(TOPICS, MEMBERS) == {"a": MemberAssignment((T0, T1, T2))}
    assignor.on_assignment(MemberAssignment((T1,)), 5)
    assert own.told == [([("t", [1])], 5)]


@pytest.mark.parametrize(
    "returned",
    [
        MemberAssignment((T0, T2)),
        ConsumerProtocolAssignment(0, [("t", (0, 2))]),
        ConsumerProtocolAssignment(0, [("t", (0, 2))], None).encode(),
        {"t": [0, 2]},
        [("t", [0, 2])],
        [T0, T2],
        SimpleNamespace(assignment=[("t", [0, 2])], user_data=b""),
    ],
    ids=lambda one: type(one).__name__,
)
def test_an_assignment_may_have_any_simple_form(returned: Any) -> None:
    own = First()
    own.assign = lambda cluster, members: {"a": returned}  # type: ignore[method-assign]
    assert LegacyAssignorAdapter(own).assign(TOPICS, MEMBERS) == {"a": MemberAssignment((T0, T2))}


@pytest.mark.parametrize("returned", [7, "t", [("t", "x")], [1, 2]])
def test_what_is_no_assignment_is_refused(returned: Any) -> None:
    own = First()
    own.assign = lambda cluster, members: {"a": returned}  # type: ignore[method-assign]
    with pytest.raises(IllegalArgumentError, match="the assignor first returned"):
        LegacyAssignorAdapter(own).assign(TOPICS, MEMBERS)


@pytest.mark.parametrize(
    ("cls", "name"),
    [
        (RangePartitionAssignor, "range"),
        (RoundRobinPartitionAssignor, "roundrobin"),
        (StickyPartitionAssignor, "sticky"),
        (CooperativeStickyAssignor, "cooperative-sticky"),
    ],
)
def test_ours_work_by_name_by_class_by_object_and_called_by_hand(cls: Any, name: str) -> None:
    for one in (name, cls, cls()):
        (assignor,) = make_assignors([one])
        assert type(assignor) is ASSIGNORS[name]
    assert cls.name == name
    members = [SimpleNamespace(member_id=each, group_instance_id=None, metadata=cls().metadata(["t"])) for each in "ab"]
    cluster = SimpleNamespace(partitions_for_topic=lambda topic: {0, 1, 2} if topic == "t" else None)
    expected = ASSIGNORS[name]().assign(TOPICS, [GroupMember(each, None, MemberSubscription(("t",))) for each in "ab"])
    for form in (members, {one.member_id: one.metadata for one in members}):
        found = cls().assign(cluster, form)
        assert {key: tuple(each.partitions()) for key, each in found.items()} == {
            key: each.partitions for key, each in expected.items()
        }


def test_a_class_made_from_one_of_ours_is_the_users_own() -> None:
    class Backwards(RangePartitionAssignor):
        name = "backwards"

        @classmethod
        def assign(cls, cluster: Any, members: Any) -> Any:
            found = super().assign(cluster, members)
            return dict(zip(found, reversed(found.values()), strict=True))

    (assignor,) = make_assignors([Backwards])
    assert isinstance(assignor, LegacyAssignorAdapter) and assignor.name == "backwards"
    expected = RangeAssignor().assign(TOPICS, MEMBERS)
    found = assignor.assign(TOPICS, MEMBERS)
    assert found["a"].partitions == expected["b"].partitions
    assert found["b"].partitions == expected["a"].partitions


def test_a_sticky_one_by_hand_remembers_what_it_was_given() -> None:
    one = StickyPartitionAssignor()
    assert one.metadata({"t"}).user_data is None
    one.on_assignment(ConsumerProtocolAssignment(0, [("t", [1])]), 3)
    assert one.metadata({"t"}).user_data == bytes.fromhex("00000001 000174 00000001 00000001 00000003")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["fair"], "no assignor 'fair'; there are range, roundrobin"),
        ([object()], "is no assignor: it takes a name"),
        (["range", RangePartitionAssignor], "range: more than once"),
    ],
)
def test_what_is_no_assignor_is_refused(given: list[Any], said: str) -> None:
    with pytest.raises(IllegalArgumentError, match=said):
        make_assignors(given)


def test_metadata_and_assignments_are_bytes_and_back() -> None:
    said = ConsumerProtocolMemberMetadata(3, ["t"], b"x")
    said.owned_partitions, said.generation_id, said.rack_id = [("t", [1])], 4, "rack"
    again = ConsumerProtocolMemberMetadata.decode(said.encode())
    assert vars(again) == vars(said)
    told = ConsumerProtocolMemberAssignment(1, [("t", [0, 1])], b"y")
    assert ConsumerProtocolMemberAssignment.decode(told.encode()).partitions() == [T0, T1]


@pytest.mark.parametrize(
    "path",
    [
        "kafka.coordinator.assignors.abstract:AbstractPartitionAssignor",
        "kafka.coordinator.assignors.abstract:RebalanceProtocol",
        "kafka.coordinator.assignors.range:RangePartitionAssignor",
        "kafka.coordinator.assignors.roundrobin:RoundRobinPartitionAssignor",
        "kafka.coordinator.assignors.cooperative_sticky:CooperativeStickyAssignor",
        "kafka.coordinator.assignors.sticky.sticky_assignor:StickyPartitionAssignor",
        "kafka.coordinator.protocol:ConsumerProtocolMemberMetadata",
        "kafka.coordinator.protocol:ConsumerProtocolMemberAssignment_v0",
        "kafka.coordinator.protocol:ConsumerProtocol",
    ],
)
def test_kafka_pythons_paths_are_there(path: str) -> None:
    module, _, name = path.partition(":")
    assert hasattr(importlib.import_module(module), name)
