"""Which tests a run selects: the short tier, the deep tier, and the share of the deep tier in a short run.

A test is deep when it, its class or its module is marked ``@pytest.mark.deep("why; kept by ...")``, when its part is in
:data:`DEEP`, or, where the hot modules are compiled, when it is outside :data:`COMPILED_SHORT`. ``test/README.rst``
says what belongs to which tier, and why.

    --tier short   the short tier; the deep parts whose turn it is with this commit; the deep parts that changed
    --tier deep    every test
    neither        as short, and a test file that is named on the command line runs whole

A test that is named, as ``FILE::TEST``, runs in each.

The environment variable ``KAFKA_TEST_TIER`` is the default of ``--tier``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

import pytest

from kafka import is_compiled
from test.support.checkout import checkout
from test.support.parts import SHORTEST_S, durations, part_of

VARIABLE: Final = "KAFKA_TEST_TIER"
TIERS: Final = ("short", "deep")

ROTATION: Final = 40
"""A short run includes one of so many shares of the deep tier."""

NEVER_ROTATED: Final = ("test/faults/clusters/",)
"""Beginnings of paths: no short run has these parts, which take minutes and measure how long jobs wait."""

LIMIT_S: Final = 300
"""No test of the short tier may have a longer time limit."""


class Deep(NamedTuple):
    """A row of :data:`DEEP`: the beginning of a part's path, the broker (all, where it is empty), why, and instead of
    what: the tests of the short tier that keep the promise, or its larger part.
    """

    path: str
    broker: str
    why: str
    kept_by: str


_SAME: Final = "the same tests on the embedded broker"
_EXPECTED: Final = "checks what the tests expect, not our code"
_POOLS: Final = "test/tasks/pools (decisions, real children), test/faults/test_pools.py [embedded]"

DEEP: Final = (
    Deep("test/conformance/", "embedded 3.9", "an emulated release", "test/broker/test_emulation.py"),
    Deep("test/conformance/", "embedded 2.8", "an emulated release", "test/broker/test_emulation.py"),
    Deep("test/conformance/", "embedded 0.11", "an emulated release", "test/broker/test_emulation.py"),
    Deep("test/conformance/", "apache 3.9.1", "an older release", "the same tests on 4.3.0 or the embedded broker"),
    Deep("test/conformance/", "apache 2.8.2", "an older release", "the same tests on 4.3.0 or the embedded broker"),
    Deep("test/conformance/", "apache 0.11.0.3", "an older release", "the same tests on 4.3.0 or the embedded broker"),
    Deep("test/conformance/test_admin", "apache", "our administrator on another broker", _SAME),
    Deep("test/conformance/test_consumer_group_protocol.py", "apache", "mostly waits", _SAME),
    Deep("test/conformance/test_cluster_apis.py", "apache", _EXPECTED, _SAME),
    Deep("test/conformance/test_fetch_sessions.py", "apache", _EXPECTED, _SAME),
    Deep("test/conformance/test_groups.py", "apache", _EXPECTED, _SAME),
    Deep("test/conformance/test_raw_responses.py", "apache", _EXPECTED, _SAME),
    Deep("test/conformance/test_share_rules.py", "apache", "our share consumer on another broker", _SAME),
    Deep("test/conformance/test_transactions.py", "apache", _EXPECTED, _SAME),
    Deep("test/conformance/test_telemetry.py", "apache", "a broker with a plug-in of its own", _SAME),
    Deep("test/conformance/test_security.py", "apache", "a broker with listeners of its own", _SAME),
    Deep("test/conformance/test_old_brokers.py", "apache", "brokers of four old releases", _SAME),
    Deep("test/conformance/test_old_logs.py", "", "old releases", "test/broker/test_log_validator.py"),
    Deep("test/conformance/test_task_children.py", "apache", "child processes", _SAME),
    Deep("test/conformance/test_task_groups.py", "apache", "mostly waits", f"{_SAME}; test_tasks.py [apache]"),
    Deep("test/conformance/test_consumer_drop_in.py", "apache", "kafka-python on Apache Kafka", _SAME),
    Deep("test/conformance/test_compare_", "", "random requests to both brokers", "test/conformance [embedded]"),
    Deep("test/peers/", "apache", "others' clients, and ours beside them, on another broker", _SAME),
    Deep("test/peers/test_java_tools.py", "", "starts Java for each tool", "test/peers/test_codecs.py [embedded]"),
    Deep("test/peers/test_python_clients.py", "", "mostly waits", "test/peers/test_codecs.py, test_mixed_groups.py"),
    Deep("test/peers/test_old_codecs.py", "", "old message sets", "test/broker/test_log_validator.py, test/golden"),
    Deep("test/peers/test_security.py", "", "others' clients and TLS", "test/security/test_mechanisms.py [embedded]"),
    Deep("test/security/test_old_releases.py", "", "old releases", "test/core/sasl"),
    Deep("test/security/", "apache", "our clients on another broker", _SAME),
    Deep("test/client/test_real_admin.py", "", "starts brokers", "test/conformance/test_admin.py [embedded]"),
    Deep("test/client/test_real_cluster.py", "", "two brokers", "test/testing/test_changing_clusters.py"),
    Deep("test/client/test_real_fetching.py", "", "two brokers", "test/testing/test_changing_clusters.py"),
    Deep("test/faults/", "apache", "the same faults on another broker", _SAME),
    Deep("test/faults/test_consumer_groups.py", "", "forty members, killed", "test/simulation (classic, consumer)"),
    Deep("test/faults/test_pools_", "", "minutes of kills, stops and limits", _POOLS),
    Deep("test/simulation/test_broken_clients.py", "", "tests the simulation", "test/simulation/test_simulation.py"),
    Deep("test/broker/test_killed_under_load.py", "", "kill -9 under load", "test/broker/test_torn_files.py"),
)
"""Parts of the deep tier. A single test has the mark ``deep`` instead."""

COMPILED_SHORT: Final = (
    "test/records",
    "test/protocol",
    "test/wire/test_frame.py",
    "test/wire/test_large_frames.py",
    "test/net",
    "test/core/consume",
    "test/core/produce",
    "test/core/share",
    "test/core/test_",
    "test/client",
    "test/producer/test_settings.py",
    "test/producer/test_faults.py",
    "test/producer/test_fork.py",
    "test/producer/test_future.py",
    "test/producer/test_metrics.py",
    "test/producer/test_producer.py",
    "test/producer/test_produce_errors.py",
    "test/producer/test_thread.py",
    "test/producer/test_transactions.py",
    "test/consumer",
    "test/share",
    "test/tasks/test_",
    "test/tasks/delivery/consumer_group",
    "test/tasks/pools/test_channel.py",
    "test/tasks/pools/test_frames.py",
    "test/tasks/pools/test_messages.py",
    "test/tasks/pools/test_pools.py",
    "test/tasks/pools/test_supervision.py",
    "test/test_compiled.py",
)
"""What of the short tier runs a second time with the hot modules compiled."""

SUBJECTS: Final[Mapping[str, tuple[str, ...]]] = {
    "test/conformance/": ("kafka/core/versions.py", "kafka/broker/emulation.py"),
    "test/peers/": ("kafka/records/", "kafka/broker/handlers/"),
    "test/faults/test_pools": ("kafka/tasks/pools/",),
    "test/faults/clusters/": ("test/support/real_cluster.py",),  # twenty minutes, which no short run should have
    "test/faults/": ("kafka/tasks/worker/worker.py", "kafka/core/group/", "kafka/core/produce/sender.py"),
    "test/simulation/": ("kafka/core/", "kafka/net/"),
    "test/security/": ("kafka/core/sasl/", "kafka/net/tls.py"),
}
"""Beginnings of test paths -> what those tests are about, where that is not the folder at the mirrored path."""


def is_deep(item: pytest.Item) -> bool:
    """Whether a test belongs to the deep tier."""
    if item.get_closest_marker("deep") is not None or deep_row(part_of(item.nodeid)) is not None:
        return True
    return is_compiled() and not item.nodeid.startswith(COMPILED_SHORT)


def deep_row(part: str) -> Deep | None:
    """The first row of :data:`DEEP` that a part belongs to."""
    path, _, broker = part.partition(" [")
    broker = broker.rstrip("]")
    return next((row for row in DEEP if path.startswith(row.path) and row.broker in ("", broker)), None)


def select(
    items: Iterable[pytest.Item], tier: str | None, named: Collection[str]
) -> tuple[list[pytest.Item], list[pytest.Item], list[str]]:
    """The tests to run, those to leave out, and the deep parts that are among the first though the run is short.

    ``named``: paths of test files, and ids of tests, relative to the root, that the user named.
    """
    if tier == "deep":
        return list(items), [], []
    found = [(item, part_of(item.nodeid), is_deep(item)) for item in items]
    deep_parts = {part for _, part, deep in found if deep}
    rotated = {part for part in deep_parts if not part.startswith(NEVER_ROTATED)}
    included = share_of(rotated, checkout().commit) | {part for part in deep_parts if has_changed(part)}
    if tier is None:
        included |= {part for part in deep_parts if _path(part) in named}
    selected, left_out = list[pytest.Item](), list[pytest.Item]()
    for item, part, deep in found:
        runs = not deep or part in included or item.nodeid in named
        (selected if runs else left_out).append(item)
    return selected, left_out, sorted(included)


def share_of(parts: Collection[str], commit: str, shares: int = ROTATION) -> set[str]:
    """The parts whose turn it is: each commit has one of ``shares`` shares, which take about the same time."""
    if not commit:
        return set()
    taken_s = [0.0] * shares
    turn = int(commit[:8], 16) % shares
    chosen = set()
    for part in sorted(parts, key=lambda part: (-durations().get(part, 0.0), part)):
        share = taken_s.index(min(taken_s))
        taken_s[share] += durations().get(part, SHORTEST_S)
        if share == turn:
            chosen.add(part)
    return chosen


def has_changed(part: str, changed: Collection[str] | None = None) -> bool:
    """Whether the part's file, a helper beside it, or the code that it is about is among the changed files."""
    if changed is None:
        changed = checkout().changed
    path = _path(part)
    folder = path.rpartition("/")[0]
    mirrored = f"kafka/{folder.partition('/')[2]}/"
    subjects = next((row for start, row in SUBJECTS.items() if path.startswith(start)), (mirrored,))
    return any(
        name == path
        or (name.rpartition("/")[0] == folder and not name.rpartition("/")[2].startswith("test_"))
        or (name.startswith(subjects) and name.endswith(".py"))
        for name in changed
    )


def limits_that_are_too_long(items: Iterable[pytest.Item]) -> list[str]:
    """The tests of the short tier whose time limit is none, or above :data:`LIMIT_S`."""
    found = []
    for item in items:
        marker = item.get_closest_marker("timeout")
        if marker is None or is_deep(item):
            continue
        limit_s = marker.args[0] if marker.args else marker.kwargs.get("timeout", 0)
        if not 0 < limit_s <= LIMIT_S:
            found.append(f"{item.nodeid}: {limit_s:g} s")
    return found


def _path(part: str) -> str:
    return part.partition(" [")[0]
