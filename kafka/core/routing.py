"""Where a request is to go: the kinds of target. ``client/router.py`` finds the node; a new kind needs a branch there.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

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
