"""Which tests one process runs in a row when several share the work (``pytest -n auto``, which needs pytest-xdist).

A part is a file; in :data:`SUITES`, whose files share a broker of each kind, it is all tests of a folder on one kind,
so that each broker is started by one process, once. The controller knows the tests by their ids alone, so what a part
is has to be read out of the id: a suite's parameter says its broker as ``either_broker.py`` does ("apache 3.9.1").

Parts are dealt out longest first, by the number of their tests, since nobody knows how long they take. Where that is
far from the truth, :data:`LONG` says so: one process would be left with such a part when all others have ended. Nothing
depends on these two tables but the time that a run takes.
"""

from __future__ import annotations

import re
from typing import Any, Final

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

SUITES: Final = ("test/conformance/", "test/peers/", "test/security/")

LONG: Final = (
    "test/test_packaging.py",
    "test/conformance/test_twins.py",
    "test/simulation/",
    "test/conformance/ apache",
    "test/peers/ apache",
    "test/client/test_real_cluster.py",
    "test/faults/",
    "test/peers/ embedded",
    "test/producer/test_transactions_killed.py",
    "test/security/ apache",
)
"""Beginnings of parts' names, those first that take the longest."""

_KIND: Final = re.compile(r"[\[-]((?:embedded|apache)(?: \d[\d.]*)?)(?=[\]-])")


def part_of(nodeid: str) -> str:
    """The part's name: a file's path, or a suite's with the kind of its broker behind it."""
    path, _, name = nodeid.partition("::")
    for suite in SUITES:
        if path.startswith(suite) and (kind := _KIND.search(name)) is not None:
            return f"{suite} {kind[1]}"
    return path


def place_of(part: str, tests: int) -> tuple[int, int]:
    """What parts are sorted by: those of :data:`LONG` in its order, then the others, large ones first."""
    for place, beginning in enumerate(LONG):
        if part.startswith(beginning):
            return place, -tests
    return len(LONG), -tests


class PartScheduling(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """Deals out parts."""

    def _split_scope(self, nodeid: str) -> str:
        return part_of(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        """As the base class does it, which takes the first of those that wait."""
        waiting = self.workqueue
        waiting.move_to_end(min(waiting, key=lambda part: place_of(part, len(waiting[part]))), last=False)
        super()._assign_work_unit(node)
