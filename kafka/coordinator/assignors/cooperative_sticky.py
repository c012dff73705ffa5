"""``cooperative-sticky``: see ``kafka/core/group/assignors/sticky.py``."""

from __future__ import annotations

from kafka.coordinator.assignors.built_in import BuiltInAssignor


class CooperativeStickyAssignor(BuiltInAssignor):
    """``partition_assignment_strategy=[CooperativeStickyAssignor]``, or ``["cooperative-sticky"]``."""

    DEFAULT_GENERATION_ID = -1

    name = built_in = "cooperative-sticky"
    version = 1
