"""Parts: what one process runs in a row when several share the work, and the unit of rotation and of reruns.

A part is a test file; of a file whose tests run over several brokers, the tests of one broker. The controller of
pytest-xdist knows tests by their ids alone, so a part is read out of the id: the parameter says the broker, in the
names of ``either_broker.py`` ("apache 3.9.1").

Parts are dealt out longest first, by the seconds in ``test/durations.json``. ``pytest --record-durations`` writes that
file anew. Nothing depends on it but the time that a run takes, and the balance of the rotation (``tiers.py``).
"""

from __future__ import annotations

import functools
import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any, Final

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

DURATIONS: Final = pathlib.Path(__file__).resolve().parent.parent / "durations.json"

_BROKER: Final = re.compile(r"[\[-]((?:embedded|apache)(?: \d[\d.]*)?)(?=[\]-])")


def part_of(nodeid: str) -> str:
    """The part's name: a file's path, with the broker behind it: ``test/peers/test_codecs.py [apache]``."""
    path, _, name = nodeid.partition("::")
    broker = _BROKER.search(name)
    return path if broker is None else f"{path} [{broker[1]}]"


@functools.cache
def durations() -> Mapping[str, float]:
    """Seconds by part; a part that is not in here takes less than :data:`SHORTEST_S`."""
    known: dict[str, float] = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
    return known


SHORTEST_S: Final = 0.5


def write_durations(seconds: Mapping[str, float], *, keep_others: bool) -> None:
    """Write ``durations.json``; ``keep_others``: keep the rows of parts that did not run now."""
    known = dict(durations()) if keep_others else {}
    known |= {part: round(taken, 1) for part, taken in seconds.items()}
    rows = {part: taken for part, taken in sorted(known.items()) if taken >= SHORTEST_S}
    DURATIONS.write_text(json.dumps(rows, indent=1) + "\n")


class PartScheduling(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """Deals out parts."""

    def _split_scope(self, nodeid: str) -> str:
        return part_of(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        """As the base class does it, which takes the first of those that wait."""
        waiting = self.workqueue
        longest = max(waiting, key=lambda part: (durations().get(part, 0.0), len(waiting[part])))
        waiting.move_to_end(longest, last=False)
        super()._assign_work_unit(node)
