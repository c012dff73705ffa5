"""``sticky``: see ``kafka/core/group/assignors/sticky.py``."""

from __future__ import annotations

from kafka.coordinator.assignors.built_in import BuiltInAssignor


class StickyPartitionAssignor(BuiltInAssignor):
    """``partition_assignment_strategy=[StickyPartitionAssignor]``, or ``["sticky"]``."""

    DEFAULT_GENERATION_ID = -1

    name = built_in = "sticky"
