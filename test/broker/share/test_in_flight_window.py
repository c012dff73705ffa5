from __future__ import annotations

import pytest

from kafka.broker.share.partition import DeliveryRun, InFlightBatch, InFlightWindow
from kafka.broker.share.states import ACKNOWLEDGED, ACQUIRED, ARCHIVED, AVAILABLE, StateRange


def window_of(*batches: list[DeliveryRun], start: int = 10) -> InFlightWindow:
    window = InFlightWindow(start)
    for runs in batches:
        window.append(InFlightBatch(runs[0].first, runs[-1].last, runs))
        for run in runs:
            if run.state == AVAILABLE:
                window.note_available(run.first)
    return window


def shown(window: InFlightWindow) -> list[tuple[int, int, int]]:
    return [(run.first, run.last, run.state) for run in window.runs()]


@pytest.mark.parametrize(
    ("first", "last", "found"),
    [
        (0, 9, []),
        (0, 10, [10]),
        (0, 25, [10, 20]),
        (19, 19, [10]),
        (19, 20, [10, 20]),
        (20, 20, [20]),
        (30, 39, []),
        (30, 40, [40]),
        (29, 99, [20, 40]),
        (49, 99, [40]),
        (50, 99, []),
    ],
)
def test_the_batches_of_a_range_are_those_that_have_an_offset_in_it(first: int, last: int, found: list[int]) -> None:
    window = window_of(*([DeliveryRun(base, base + 9, ACQUIRED, 1, "m")] for base in (10, 20, 40)))
    assert [batch.first for batch in window.overlapping(first, last)] == found


def test_an_empty_window_has_no_span() -> None:
    window = InFlightWindow(10)
    assert (window.start_offset, window.end_offset, window.span, window.next_fetch_offset()) == (10, 10, 0, 10)
    window.append(InFlightBatch(10, 14, [DeliveryRun(10, 14, ACQUIRED, 1, "m")]))
    assert (window.end_offset, window.span, window.next_fetch_offset()) == (15, 5, 15)


def test_the_start_passes_all_that_is_done_and_only_that() -> None:
    window = window_of(
        [DeliveryRun(10, 19, ACKNOWLEDGED, 1)],
        [DeliveryRun(20, 24, ARCHIVED, 1), DeliveryRun(25, 29, ACQUIRED, 1, "m")],
        [DeliveryRun(30, 39, AVAILABLE, 1)],
    )
    assert window.advance()
    assert (window.start_offset, window.firsts) == (25, [20, 30])
    assert [batch.first for batch in window.batches] == [20, 30]
    assert not window.advance()
    for run in window.runs():
        run.state = ARCHIVED
    assert window.advance()
    assert (window.start_offset, window.end_offset, window.firsts, window.batches) == (40, 40, [], [])
    assert window.next_fetch_offset() == 40


def test_the_first_available_offset_is_fetched_next() -> None:
    window = window_of(
        [DeliveryRun(10, 19, AVAILABLE, 1)], [DeliveryRun(20, 24, ACQUIRED, 1, "m"), DeliveryRun(25, 29, AVAILABLE, 1)]
    )
    assert window.next_fetch_offset() == 10
    window.batches[0].runs[0].state = ACQUIRED
    assert window.next_fetch_offset() == 25
    window.batches[1].runs[1].state = ACQUIRED
    assert window.next_fetch_offset() == 30
    window.batches[1].runs[0].state = AVAILABLE
    window.note_available(20)
    assert window.next_fetch_offset() == 20


def test_what_lies_below_the_start_is_not_fetched() -> None:
    window = window_of([DeliveryRun(10, 19, AVAILABLE, 1)])
    window.start_offset = 19
    assert window.next_fetch_offset() == 19
    window.start_offset = 20
    assert window.next_fetch_offset() == 20


def test_what_is_available_in_a_range_is_archived_and_nothing_else() -> None:
    window = window_of(
        [DeliveryRun(10, 19, AVAILABLE, 1)],
        [DeliveryRun(20, 24, ACQUIRED, 1, "m"), DeliveryRun(25, 29, AVAILABLE, 1)],
        [DeliveryRun(30, 39, ACQUIRED, 1, "m")],
    )
    window.archive_available(12, 26)
    assert shown(window) == [
        (10, 11, AVAILABLE), (12, 19, ARCHIVED),
        (20, 24, ACQUIRED), (25, 26, ARCHIVED), (27, 29, AVAILABLE),
        (30, 39, ACQUIRED),
    ]  # fmt: skip


def test_the_durable_form_has_no_locks_and_not_the_delivery_that_is_under_way() -> None:
    window = window_of(
        [DeliveryRun(10, 14, ACKNOWLEDGED, 1), DeliveryRun(15, 19, ACQUIRED, 3, "m")],
        [
            DeliveryRun(20, 24, ACQUIRED, 1, "m"),
            DeliveryRun(25, 27, AVAILABLE, 2),
            DeliveryRun(28, 28, AVAILABLE, 0),
            DeliveryRun(29, 29, ARCHIVED, 4),
        ],
    )
    later = [StateRange(25, 27, AVAILABLE, 2), StateRange(29, 29, ARCHIVED, 4)]
    assert window.state_ranges() == [StateRange(10, 14, ACKNOWLEDGED, 1), StateRange(15, 19, AVAILABLE, 2), *later]
    window.start_offset = 19
    assert window.state_ranges() == [StateRange(19, 19, AVAILABLE, 2), *later]
    window.start_offset = 20
    assert window.state_ranges() == later


def test_holes_of_the_durable_form_are_records_never_delivered() -> None:
    ranges = [
        StateRange(25, 29, ACKNOWLEDGED, 1), StateRange(5, 9, ARCHIVED, 1), StateRange(8, 11, AVAILABLE, 2),
        StateRange(12, 14, ARCHIVED, 3),
    ]  # fmt: skip
    window = InFlightWindow(10, ranges)
    assert (window.start_offset, window.end_offset, window.firsts) == (10, 30, [10, 12, 15, 25])
    assert shown(window) == [(10, 11, AVAILABLE), (12, 14, ARCHIVED), (15, 24, AVAILABLE), (25, 29, ACKNOWLEDGED)]
    assert [run.count for run in window.runs()] == [2, 3, 0, 1]
    assert window.next_fetch_offset() == 10


def test_a_range_of_the_durable_form_that_ends_at_the_start_still_counts() -> None:
    window = InFlightWindow(10, [StateRange(5, 10, AVAILABLE, 2)])
    assert [(run.first, run.last, run.state, run.count) for run in window.runs()] == [(10, 10, AVAILABLE, 2)]
    assert (window.start_offset, window.end_offset) == (10, 11)


def test_what_is_done_at_the_front_of_the_durable_form_is_left_out() -> None:
    window = InFlightWindow(10, [StateRange(10, 14, ACKNOWLEDGED, 1), StateRange(18, 19, ARCHIVED, 1)])
    assert (window.start_offset, window.end_offset, window.firsts) == (15, 20, [15, 18])
    assert window.next_fetch_offset() == 15


def test_a_member_holds_what_it_has_locked() -> None:
    window = window_of(
        [DeliveryRun(10, 14, ACQUIRED, 1, "a"), DeliveryRun(15, 19, ACQUIRED, 1, "b")],
        [DeliveryRun(20, 29, AVAILABLE, 1)],
    )
    assert [(run.first, run.last) for run in window.acquired_by("a")] == [(10, 14)]
    assert window.acquired_by("") == []
