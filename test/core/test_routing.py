"""From targets to nodes, and the cache of coordinators."""

from __future__ import annotations

import pytest

from kafka.client.router import Coordinators, NoKnownNode, route
from kafka.core.routing import AnyNode, Controller, Coordinator, CoordinatorType, Leader, NodeId, Target
from kafka.structs import TopicPartition

GROUP = Coordinator("g")


class Cluster:
    def __init__(self, leaders: dict[TopicPartition, int] | None = None, controller: int | None = None) -> None:
        self.leaders = leaders or {}
        self.controller_id = controller

    def leader_for_partition(self, partition: TopicPartition) -> int | None:
        return self.leaders.get(partition)


class Nodes:
    def __init__(self, node: NodeId | None = None) -> None:
        self.node = node

    def least_loaded_node(self) -> NodeId | None:
        return self.node


KNOWN = Coordinators()
KNOWN.put(GROUP, 4)
LED, ORPHAN, STRANGE = (TopicPartition("t", number) for number in range(3))
CLUSTER = Cluster({LED: 7, ORPHAN: -1}, controller=3)


@pytest.mark.parametrize(
    ("target", "node"),
    [
        (5, 5),
        ("bootstrap", "bootstrap"),
        (AnyNode(), 9),
        (Controller(), 3),
        (Leader(LED), 7),
        (Leader(ORPHAN), NoKnownNode.LEADER),
        (Leader(STRANGE), NoKnownNode.LEADER),
        (GROUP, 4),
        (Coordinator("g", CoordinatorType.TRANSACTION), NoKnownNode.COORDINATOR),
    ],
)
def test_each_kind_of_target_has_its_way(target: Target, node: object) -> None:
    assert route(target, CLUSTER, Nodes(9), KNOWN) == node


def test_targets_of_different_kinds_are_not_the_same() -> None:
    targets: list[Target] = [AnyNode(), Controller(), Leader(LED), GROUP, 5, "bootstrap"]
    assert len(set(targets)) == len(targets)
    assert Controller() == Controller() and AnyNode() == AnyNode()


def test_nothing_known_is_reported_as_unknown() -> None:
    assert route(AnyNode(), Cluster(), Nodes(), Coordinators()) is NoKnownNode.BROKERS
    assert route(Controller(), Cluster(), Nodes(), Coordinators()) is NoKnownNode.CONTROLLER


def test_forgetting_a_coordinator_for_a_late_error_leaves_a_newer_one() -> None:
    known = Coordinators()
    known.put(GROUP, 2)
    known.forget(GROUP, node=1)
    assert known.get(GROUP) == 2
    known.forget(GROUP, node=2)
    assert known.get(GROUP) is None


def test_a_lost_node_takes_its_coordinators_along() -> None:
    known = Coordinators()
    known.put(GROUP, 1)
    known.put(Coordinator("h"), 2)
    known.forget_node(1)
    assert known.get(GROUP) is None
    assert known.get(Coordinator("h")) == 2
