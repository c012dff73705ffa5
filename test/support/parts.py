"""Parts: what one process runs in a row when several share the work, and the unit of rotation and of reruns.

A part is a test file; of a file whose tests run over several brokers, the tests of one broker. The controller of
pytest-xdist knows tests by their ids alone, so a part is read out of the id: the parameter says the broker, in the
names of ``either_broker.py`` ("apache 3.9.1").

Parts are dealt out longest first, by the seconds in ``test/durations.json``. ``pytest --record-durations`` writes that
file anew. Nothing depends on it but the time that a run takes, and the balance of the rotation (``tiers.py``). Suites
share a running Apache Kafka within a process (``either_broker.py``): a folder's parts on one release go to the process
that had the first of them, while that leaves something for the others.
"""

from __future__ import annotations

import functools
import json
import pathlib
import re
from collections.abc import Mapping, Sized
from typing import Final

import pytest
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


def started_broker(part: str) -> str | None:
    """What parts with the same value share when one process runs them: a folder's Apache Kafka of one release."""
    path, _, broker = part.partition(" [")
    return f"{path.rpartition('/')[0]} [{broker}" if broker.startswith("apache") else None


def next_part(waiting: Mapping[str, Sized], homes: Mapping[str, object], process: object) -> str:
    """The part that ``process`` runs next: the longest, but one that shares a broker with parts of another process only
    when there is no other. ``homes``: by :func:`started_broker`, the process that had the first of its parts.
    """

    def rank(part: str) -> tuple[bool, float, int]:
        is_its_own = homes.get(started_broker(part) or "", process) is process
        return is_its_own, durations().get(part, 0.0), len(waiting[part])

    return max(waiting, key=rank)


class PartScheduling(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """Deals out parts."""

    def __init__(self, config: pytest.Config, log: object) -> None:
        super().__init__(config, log)
        self._homes: dict[str, object] = {}

    def _split_scope(self, nodeid: str) -> str:
        return part_of(nodeid)

    def _assign_work_unit(self, node: object) -> None:
        """As the base class does it, which takes the first of those that wait."""
        chosen = next_part(self.workqueue, self._homes, node)
        shared = started_broker(chosen)
        if shared is not None:
            self._homes.setdefault(shared, node)
        self.workqueue.move_to_end(chosen, last=False)
        super()._assign_work_unit(node)
