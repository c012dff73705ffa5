"""``range``: see ``kafka/core/group/assignors/range.py``."""

from __future__ import annotations

from typing import Any

from kafka.coordinator.assignors.abstract import ConsumerProtocolAssignment
from kafka.coordinator.assignors.built_in import BuiltInAssignor, run
from kafka.core.group.assignors.strategy import ASSIGNORS


class RangePartitionAssignor(BuiltInAssignor):
    """``partition_assignment_strategy=[RangePartitionAssignor]``, or ``["range"]``."""

    name = built_in = "range"

    @classmethod
    def assign(cls, cluster: Any, members: Any) -> dict[str, ConsumerProtocolAssignment]:
        return run(ASSIGNORS["range"](), cluster, members)
