"""The assignors that there are, and assignors out of what users say in ``partition_assignment_strategy``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kafka.core.group.assignors.adapter import Adapter, is_adaptable
from kafka.core.group.assignors.base import Assignor
from kafka.core.group.assignors.range import RangeAssignor
from kafka.core.group.assignors.roundrobin import RoundRobinAssignor
from kafka.core.group.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from kafka.errors import IllegalArgumentError

ASSIGNORS: Final[Mapping[str, Callable[[], Assignor]]] = {
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "sticky": StickyAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
"""By the names that the members of a group agree on."""


def make_assignors(strategy: Sequence[Any]) -> list[Assignor]:
    """Of each of ``strategy`` one for one member: a name of :data:`ASSIGNORS`; one of the classes in
    ``kafka.coordinator.assignors``; a class or an object of the user's, in the form of kafka-python's.

    IllegalArgumentError: what is none, or two of one name.
    """
    found = [_make(one) for one in strategy]
    names = [each.name for each in found]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise IllegalArgumentError(f"{', '.join(sorted(twice))}: more than once")
    return found


def _make(one: Any) -> Assignor:
    if isinstance(one, str):
        if one not in ASSIGNORS:
            known = ", ".join(ASSIGNORS)
            raise IllegalArgumentError(f"no assignor {one!r}; there are {known}")
        return ASSIGNORS[one]()
    # A class of ours that nobody has changed needs no translation of what goes in and comes out.
    own_name = getattr(one if isinstance(one, type) else type(one), "__dict__", {}).get("built_in")
    if own_name is not None:
        return ASSIGNORS[own_name]()
    instance = one() if isinstance(one, type) else one
    if is_adaptable(instance):
        return Adapter(instance)
    raise IllegalArgumentError(
        f"{one!r} is no assignor: it takes a name and the methods metadata(topics), "
        "assign(cluster, members) and on_assignment(assignment, generation), as in kafka.coordinator.assignors.abstract"
    )
