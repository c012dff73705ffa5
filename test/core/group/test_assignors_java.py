"""Our assignors give what Java's gave, group by group; the cases and how they were made are in ``test/golden``."""

from __future__ import annotations

import json
import pathlib
from collections import Counter
from typing import Any

import pytest

from kafka.core.group.assignors.strategy import ASSIGNORS
from kafka.core.group.protocol import read_subscription, write_subscription
from test.golden.assignors.make import pictures, to_member

CASES: list[dict[str, Any]] = json.loads(
    (pathlib.Path(__file__).parents[2] / "golden/assignors/cases.json").read_text(encoding="ascii")
)


@pytest.mark.parametrize("name", ASSIGNORS)
def test_every_group_is_assigned_to_as_java_does(name: str) -> None:
    for number, case in enumerate(CASES):
        if case["assignor"] == name:
            found = ASSIGNORS[name]().assign(pictures(case), [to_member(member) for member in case["members"]])
            shown = {
                member_id: sorted(f"{topic}-{partition}" for topic, partition in assignment.partitions)
                for member_id, assignment in found.items()
            }
            expected = {member_id: sorted(partitions) for member_id, partitions in case["assignment"].items()}
            assert shown == expected, f"case {number}"


def test_the_cases_are_many_of_every_kind() -> None:
    counts = Counter((case["assignor"], case["has_racks"]) for case in CASES)
    assert len(counts) == 2 * len(ASSIGNORS)
    assert min(counts.values()) >= 10


def test_what_java_says_of_a_member_is_read_as_it_was_meant_and_written_alike() -> None:
    read = 0
    for case in CASES:
        for member in case["members"]:
            if "subscription" in member:
                data = bytes.fromhex(member["subscription"])
                meant = to_member(member).subscription
                subscription = read_subscription(data)
                in_order = meant._replace(topics=tuple(sorted(meant.topics)), owned=tuple(sorted(meant.owned)))
                assert subscription == in_order
                assert write_subscription(meant) == data
                read += 1
    assert read > 50
