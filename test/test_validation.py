"""What users hand over, and what of it is refused."""

from __future__ import annotations

from typing import Any

import pytest

from kafka.errors import IllegalArgumentError
from kafka.structs import TopicPartition
from kafka.validation import list_of, mapping_of, milliseconds, node_ids, numbers_of, partition_of

A_LONG_TIME_MS = 4_611_686_018_427_387_904
"""2 to the power of 62; more is refused (a rule of ours)."""


@pytest.mark.parametrize("given", [0, -1, 1.5, A_LONG_TIME_MS, -A_LONG_TIME_MS])
def test_a_time_is_taken_as_it_is(given: float) -> None:
    assert milliseconds("age_ms", given) is given


@pytest.mark.parametrize(
    "given",
    [A_LONG_TIME_MS + 1, -A_LONG_TIME_MS - 1, float("inf"), float("-inf"), float("nan"), True, False, "1", None, 1j],
)
def test_what_is_no_time_is_refused(given: Any) -> None:
    with pytest.raises(IllegalArgumentError, match="age_ms=.*: a number of milliseconds is needed"):
        milliseconds("age_ms", given)


@pytest.mark.parametrize("given", [TopicPartition("t", 0), ("t", 0), ["t", 0]])
def test_a_pair_is_a_partition(given: Any) -> None:
    assert partition_of(given, "call") == TopicPartition("t", 0)
    assert isinstance(partition_of(given, "call"), TopicPartition)


@pytest.mark.parametrize(
    "given",
    ["t0", {"t": 0, "u": 1}, ("t",), ("t", 0, 1), ("t", "0"), (0, 0), (b"t", 0), ("t", True), ("t", None), None, 7],
)
def test_what_is_no_partition_is_refused(given: Any) -> None:
    with pytest.raises(IllegalArgumentError, match="call: .*: a TopicPartition is needed"):
        partition_of(given, "call")


def test_lists_and_mappings_are_copied() -> None:
    names, counts = ["a", "b"], {"a": 1}
    assert list_of(names, "names", "names") == names and list_of(names, "names", "names") is not names
    assert list_of(iter(names), "names", "names") == names and list_of((), "names", "names") == []
    assert mapping_of(counts, "counts", "counts") == counts and mapping_of(counts, "counts", "counts") is not counts
    assert numbers_of((3, 1), "numbers", "numbers") == [3, 1]
    assert node_ids(None) is None and node_ids([]) == [] and node_ids((2, 1)) == [2, 1]


@pytest.mark.parametrize("given", ["ab", b"ab", 5, None])
def test_what_is_no_list_is_refused(given: Any) -> None:
    for call in (list_of, numbers_of):
        with pytest.raises(IllegalArgumentError, match="what=.*: a form"):
            call(given, "what", "a form")


@pytest.mark.parametrize("given", [["1"], [1, True], [1.0], [None], {"a": 1}])
def test_what_holds_more_than_whole_numbers_is_refused(given: Any) -> None:
    with pytest.raises(IllegalArgumentError, match="what=.*: a form"):
        numbers_of(given, "what", "a form")
    with pytest.raises(IllegalArgumentError, match="broker_ids=.*: a list of node ids is needed"):
        node_ids(given)


@pytest.mark.parametrize("given", [[("a", 1)], "ab", None, 5])
def test_what_is_no_mapping_is_refused(given: Any) -> None:
    with pytest.raises(IllegalArgumentError, match="what=.*: a form"):
        mapping_of(given, "what", "a form")
