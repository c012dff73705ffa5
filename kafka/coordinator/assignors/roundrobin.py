"""``roundrobin``: see ``kafka/core/group/assignors/roundrobin.py``."""

from __future__ import annotations

from typing import Any

from kafka.coordinator.assignors.abstract import ConsumerProtocolAssignment
from kafka.coordinator.assignors.built_in import BuiltInAssignor, run
from kafka.core.group.assignors.strategy import ASSIGNORS


class RoundRobinPartitionAssignor(BuiltInAssignor):
    """``partition_assignment_strategy=[RoundRobinPartitionAssignor]``, or ``["roundrobin"]``."""

    name = built_in = "roundrobin"

    @classmethod
    def assign(cls, cluster: Any, members: Any) -> dict[str, ConsumerProtocolAssignment]:
        return run(ASSIGNORS["roundrobin"](), cluster, members)
