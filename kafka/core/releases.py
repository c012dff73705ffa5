"""Releases of Apache Kafka by what they speak (table).

From 0.10.0 on a broker tells its API versions, and the release is read off them: :data:`RELEASES` has, newest first, a
fact for each release that no earlier one has. Before, nothing was told, and :data:`OLD_RANGES` has what a client needs.
A new release is a line on top of :data:`RELEASES`; its fact is best one that every broker tells, whatever its role.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

RELEASES: Final[tuple[tuple[str, int | str, int], ...]] = (
    ("4.3", 35, 5),  # DescribeLogDirs
    ("4.2", 78, 2),  # ShareFetch
    ("4.2", 9, 10),  # OffsetFetch
    ("4.1", 1, 18),  # Fetch
    ("4.1", 0, 13),  # Produce
    ("4.0", 0, 12),  # Produce
    ("3.9", 1, 17),  # Fetch
    ("3.8", 0, 11),  # Produce
    ("3.7", 1, 16),  # Fetch
    ("3.6", 24, 4),  # AddPartitionsToTxn
    ("3.5", 1, 15),  # Fetch
    ("3.4", 4, 7),  # LeaderAndIsr, which only brokers with ZooKeeper tell; the others raised no API at all:
    ("3.4", "metadata.version", 8),
    ("3.3", 35, 4),  # DescribeLogDirs
    ("3.2", 11, 9),  # JoinGroup
    ("3.1", 1, 13),  # Fetch
    ("3.0", 2, 7),  # ListOffsets
    ("2.8", 0, 9),  # Produce
    ("2.7", 1, 12),  # Fetch
    ("2.6", 48, 0),  # DescribeClientQuotas
    ("2.5", 11, 7),  # JoinGroup
    ("2.4", 0, 8),  # Produce
    ("2.3", 1, 11),  # Fetch
    ("2.2", 43, 0),  # ElectLeaders
    ("2.1", 1, 10),  # Fetch
    ("2.0", 1, 8),  # Fetch
    ("1.1", 1, 7),  # Fetch
    ("1.0", 1, 6),  # Fetch
    ("0.11", 1, 5),  # Fetch
    ("0.10.2", 19, 1),  # CreateTopics
    ("0.10.1", 19, 0),  # CreateTopics
)
"""(release, API key or feature, version): the release raised that to that version, or brought it.

From the schemas in the ``kafka-clients`` jars of 2.2 to 4.3, the ``ApiKeys`` classes of earlier ones, and real brokers.
"""

OLD_RANGES: Final[Mapping[str, Mapping[int, tuple[int, int]]]] = {
    "0.8.0": {0: (0, 0), 1: (0, 0), 2: (0, 0), 3: (0, 0)},
    "0.8.1": {0: (0, 0), 1: (0, 0), 2: (0, 0), 3: (0, 0), 8: (0, 0), 9: (0, 0)},
    "0.8.2": {0: (0, 0), 1: (0, 0), 2: (0, 0), 3: (0, 0), 8: (0, 1), 9: (0, 1), 10: (0, 0)},
    "0.9": {
        0: (0, 1), 1: (0, 1), 2: (0, 0), 3: (0, 0), 8: (0, 2), 9: (0, 1), 10: (0, 0),
        11: (0, 0), 12: (0, 0), 13: (0, 0), 14: (0, 0), 15: (0, 0), 16: (0, 0),
    },
}  # fmt: skip
"""What brokers before ApiVersions (KIP-35) speak, of what clients use."""


def infer_release(ranges: Mapping[int, tuple[int, int]], features: Mapping[str, tuple[int, int]] | None = None) -> str:
    """The newest release with a fact that ``ranges`` or the supported ``features`` have; "0.10.0" when none has."""
    for release, what, version in RELEASES:
        found = ranges.get(what) if isinstance(what, int) else (features or {}).get(what)
        if found is not None and found[1] >= version:
            return release
    return "0.10.0"


def ranges_before_api_versions(release: tuple[int, ...]) -> tuple[str, Mapping[int, tuple[int, int]]] | None:
    """For a release given by the user, such as (0, 8, 2): its name and ranges when it is older than 0.10, else None."""
    if release >= (0, 10):
        return None
    names = sorted(OLD_RANGES, key=_parts, reverse=True)
    name = next((name for name in names if _parts(name) <= release), names[-1])
    return name, OLD_RANGES[name]


def _parts(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in name.split("."))
