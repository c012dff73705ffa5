"""Where a request goes: the kinds of target, the cache of coordinators, and the look-up from target to node.

:func:`route` only decides. When it does not know, it says what has to be learnt first (:class:`NoKnownNode`); the
client learns that and asks again. A new kind of target is a class here and a branch in :func:`route`.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import NamedTuple, Protocol

from kafka.structs import TopicPartition

NodeId = int | str
"""A broker's id, or ``"bootstrap"`` for the connection to a server whose id is not known."""


class AnyNode(NamedTuple):
    """The least loaded node."""

    kind: str = "any node"
    """Tuples without fields would all be equal."""


class Controller(NamedTuple):
    """The cluster's controller, for changes of topics and configurations."""

    kind: str = "the controller"


class Leader(NamedTuple):
    """The leader of a partition."""

    partition: TopicPartition


class CoordinatorType(IntEnum):
    """The kinds of coordinators (FindCoordinator's ``key_type``)."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class Coordinator(NamedTuple):
    """The coordinator of a group (consumer and share groups alike), or of a transactional id."""

    key: str
    type: CoordinatorType = CoordinatorType.GROUP


Target = int | str | AnyNode | Controller | Leader | Coordinator


class NoKnownNode(Enum):
    """Why a target has no node: what has to be found out first."""

    BROKERS = "no broker is known or free"
    CONTROLLER = "the controller is not known"
    LEADER = "the partition's leader is not known"
    COORDINATOR = "the coordinator is not known"


class ClusterView(Protocol):
    """The part of ``ClusterMetadata`` that routing needs."""

    @property
    def controller_id(self) -> int | None: ...

    def leader_for_partition(self, partition: TopicPartition) -> int | None: ...


class NodeChooser(Protocol):
    """Chooses the least loaded node."""

    def least_loaded_node(self) -> NodeId | None: ...


class Coordinators:
    """The known coordinators: from FindCoordinator, until an error contradicts it."""

    def __init__(self) -> None:
        self._nodes: dict[Coordinator, int] = {}

    def get(self, coordinator: Coordinator) -> int | None:
        """The node, or None."""
        return self._nodes.get(coordinator)

    def put(self, coordinator: Coordinator, node: int) -> None:
        """FindCoordinator has answered."""
        self._nodes[coordinator] = node

    def forget(self, coordinator: Coordinator, node: int | None = None) -> None:
        """It has moved. With ``node``: only when that is the known one, so that late errors do not undo a new
        look-up."""
        if node is None or self._nodes.get(coordinator) == node:
            self._nodes.pop(coordinator, None)

    def forget_all(self) -> None:
        """Before a rebootstrap: the cluster may be another one."""
        self._nodes.clear()

    def forget_node(self, node: NodeId) -> None:
        """The connection to ``node`` failed: its coordinators may have moved."""
        for coordinator in [c for c, n in self._nodes.items() if n == node]:
            del self._nodes[coordinator]


def route(target: Target, cluster: ClusterView, nodes: NodeChooser, coordinators: Coordinators) -> NodeId | NoKnownNode:
    """The node for ``target``, or what has to be found out first."""
    if isinstance(target, (int, str)):
        return target
    if isinstance(target, AnyNode):
        node = nodes.least_loaded_node()
        return NoKnownNode.BROKERS if node is None else node
    if isinstance(target, Leader):
        leader = cluster.leader_for_partition(target.partition)
        return NoKnownNode.LEADER if leader is None or leader < 0 else leader
    if isinstance(target, Coordinator):
        found = coordinators.get(target)
        return NoKnownNode.COORDINATOR if found is None else found
    controller = cluster.controller_id
    return NoKnownNode.CONTROLLER if controller is None else controller
