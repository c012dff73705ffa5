"""The check of the chaos tests sees what it is there for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from test.faults.group_processes import check


def note(directory: Path, member: str, *events: dict[str, Any]) -> None:
    (directory / f"g.{member}").write_text("".join(json.dumps(event) + "\n" for event in events))


def given(at: float) -> dict[str, Any]:
    return {"what": "assigned", "at": at, "partitions": [0]}


def read(*values: int) -> dict[str, Any]:
    return {"what": "read", "at": 0.0, "values": {"0": values}}


def committed(at: float, offset: int, generation: int = 1) -> dict[str, Any]:
    offsets = {"0": offset}
    return {"what": "committed", "at": at, "began": at - 0.1, "generation": generation, "offsets": offsets}


def test_owners_one_after_the_other_are_as_they_should_be(tmp_path: Path) -> None:
    note(tmp_path, "1", given(1.0), read(0, 1), committed(2.0, 2))
    note(tmp_path, "2", given(3.0), read(2), committed(4.0, 3, 2))
    assert check(tmp_path, "g", 3) == "g: 2 commits by 2 owners of partitions; errors: none"


def test_a_record_that_nobody_read_is_seen(tmp_path: Path) -> None:
    note(tmp_path, "1", given(1.0), read(0, 2))
    with pytest.raises(AssertionError, match=r"1 of 3 records were never read: \[1\]"):
        check(tmp_path, "g", 3)


def test_a_committed_offset_that_goes_back_is_seen(tmp_path: Path) -> None:
    note(tmp_path, "1", given(1.0), committed(2.0, 5))
    note(tmp_path, "2", given(3.0), committed(4.0, 3, 2))
    with pytest.raises(AssertionError, match="went back"):
        check(tmp_path, "g", 0)


def test_a_commit_of_an_older_generation_is_seen(tmp_path: Path) -> None:
    note(tmp_path, "1", given(1.0), committed(2.0, 5, 3))
    note(tmp_path, "2", given(3.0), committed(4.0, 6, 2))
    with pytest.raises(AssertionError, match="an older generation"):
        check(tmp_path, "g", 0)


def test_a_former_owner_who_commits_after_the_next_one_is_seen(tmp_path: Path) -> None:
    note(tmp_path, "1", given(1.0), committed(2.0, 5), committed(6.0, 7))
    note(tmp_path, "2", given(3.0), committed(4.0, 6))
    with pytest.raises(AssertionError, match="two owners"):
        check(tmp_path, "g", 0)
