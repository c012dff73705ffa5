from __future__ import annotations

import pytest

from kafka.broker.share.partition import NO_MEMBER, DeliveryRun, InFlightBatch
from kafka.broker.share.states import ACKNOWLEDGED, ACQUIRED, ARCHIVED, AVAILABLE

Row = tuple[int, int, int, int, str, float]


def shown(runs: list[DeliveryRun]) -> list[Row]:
    return [(run.first, run.last, run.state, run.count, run.member, run.deadline) for run in runs]


def batch_of(*runs: DeliveryRun) -> InFlightBatch:
    return InFlightBatch(runs[0].first, runs[-1].last, list(runs))


A = DeliveryRun(0, 4, ACQUIRED, 2, "m", 7.5)
B = DeliveryRun(5, 9, AVAILABLE, 1)


@pytest.mark.parametrize(
    ("first", "last", "inside", "cuts"),
    [
        (0, 9, [(0, 4), (5, 9)], [(0, 4), (5, 9)]),
        (0, 4, [(0, 4)], [(0, 4), (5, 9)]),
        (5, 9, [(5, 9)], [(0, 4), (5, 9)]),
        (4, 5, [(4, 4), (5, 5)], [(0, 3), (4, 4), (5, 5), (6, 9)]),
        (2, 3, [(2, 3)], [(0, 1), (2, 3), (4, 4), (5, 9)]),
        (7, 20, [(7, 9)], [(0, 4), (5, 6), (7, 9)]),
        (10, 20, [], [(0, 4), (5, 9)]),
    ],
)
def test_runs_are_cut_at_the_borders(
    first: int, last: int, inside: list[tuple[int, int]], cuts: list[tuple[int, int]]
) -> None:
    batch = batch_of(A, B)
    assert [(run.first, run.last) for run in batch.split(first, last)] == inside
    assert shown(batch.runs) == [
        (begin, end, ACQUIRED, 2, "m", 7.5) if begin < 5 else (begin, end, AVAILABLE, 1, NO_MEMBER, 0.0)
        for begin, end in cuts
    ]
    batch.merge_runs()
    assert [(run.first, run.last) for run in batch.runs] == [(0, 4), (5, 9)]


def test_a_batch_in_one_piece_is_cut_like_any_other() -> None:
    for first, last, cuts in ((0, 9, [(0, 9)]), (0, 3, [(0, 3), (4, 9)]), (4, 20, [(0, 3), (4, 9)])):
        batch = batch_of(DeliveryRun(0, 9, ACQUIRED, 2, "m", 7.5))
        assert [(run.first, run.last) for run in batch.split(first, last)] == [cuts[-1 if first else 0]]
        assert shown(batch.runs) == [(begin, end, ACQUIRED, 2, "m", 7.5) for begin, end in cuts]
        assert batch.size == 10


@pytest.mark.parametrize(("first", "last", "found"), [(0, 4, [0]), (4, 5, [0, 5]), (5, 5, [5]), (10, 11, [])])
def test_the_runs_of_a_range_are_those_that_have_an_offset_in_it(first: int, last: int, found: list[int]) -> None:
    assert [run.first for run in batch_of(A, B).overlapping(first, last)] == found


@pytest.mark.parametrize(
    ("one", "two", "is_joined"),
    [
        (DeliveryRun(0, 4, ACKNOWLEDGED, 1), DeliveryRun(5, 9, ACKNOWLEDGED, 3), True),
        (DeliveryRun(0, 4, ARCHIVED, 1), DeliveryRun(5, 9, ARCHIVED, 3), True),
        (DeliveryRun(0, 4, ARCHIVED, 1), DeliveryRun(5, 9, ACKNOWLEDGED, 1), False),
        (DeliveryRun(0, 4, AVAILABLE, 1), DeliveryRun(5, 9, AVAILABLE, 1), True),
        (DeliveryRun(0, 4, AVAILABLE, 1, deadline=3.0), DeliveryRun(5, 9, AVAILABLE, 1, deadline=4.0), True),
        (DeliveryRun(0, 4, AVAILABLE, 1), DeliveryRun(5, 9, AVAILABLE, 2), False),
        (DeliveryRun(0, 4, ACQUIRED, 1, "m", 3.0), DeliveryRun(5, 9, ACQUIRED, 1, "m", 3.0), True),
        (DeliveryRun(0, 4, ACQUIRED, 1, "m", 3.0), DeliveryRun(5, 9, ACQUIRED, 2, "m", 3.0), False),
        (DeliveryRun(0, 4, ACQUIRED, 1, "m", 3.0), DeliveryRun(5, 9, ACQUIRED, 1, "n", 3.0), False),
        (DeliveryRun(0, 4, ACQUIRED, 1, "m", 3.0), DeliveryRun(5, 9, ACQUIRED, 1, "m", 4.0), False),
        (DeliveryRun(0, 4, ACQUIRED, 1, "m", 3.0), DeliveryRun(5, 9, AVAILABLE, 1), False),
    ],
)
def test_neighbours_of_one_kind_are_joined(one: DeliveryRun, two: DeliveryRun, is_joined: bool) -> None:
    batch = batch_of(one, two)
    batch.merge_runs()
    assert [(run.first, run.last) for run in batch.runs] == ([(0, 9)] if is_joined else [(0, 4), (5, 9)])


@pytest.mark.parametrize(
    ("state", "is_terminal"), [(AVAILABLE, False), (ACQUIRED, False), (ACKNOWLEDGED, True), (ARCHIVED, True)]
)
def test_acknowledged_and_archived_records_are_done(state: int, is_terminal: bool) -> None:
    """RecordState.isTerminalState."""
    assert DeliveryRun(0, 4, state, 1).is_terminal is is_terminal
    assert batch_of(DeliveryRun(0, 4, ARCHIVED, 1), DeliveryRun(5, 9, state, 1)).is_terminal is is_terminal
