from __future__ import annotations

import pytest

from kafka.broker.log.leader_epochs import LeaderEpochs


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    found = LeaderEpochs()
    for epoch, start in entries:
        found.assign(epoch, start)
    return found


@pytest.mark.parametrize(
    ("entries", "answers"),
    [
        ([(0, 0)], [(-1, -1), (0, 0), (-1, -1), (-1, -1), (-1, -1), (-1, -1), (-1, -1)]),
        ([(2, 0)], [(-1, -1), (0, 0), (1, 0), (2, 5), (-1, -1), (-1, -1), (-1, -1)]),
        ([(2, 0), (4, 5)], [(-1, -1), (0, 0), (1, 0), (2, 5), (2, 5), (4, 5), (-1, -1)]),
    ],
)
def test_answers_are_those_of_apache_kafka(entries: list[tuple[int, int]], answers: list[tuple[int, int]]) -> None:
    """Seen on 4.3.0: a new topic; five records after a restart, which raises the epoch by two; one more restart."""
    found = epochs(*entries)
    end = 0 if entries == [(0, 0)] else 5
    assert [found.end_offset_for(epoch, end) for epoch in range(-1, 6)] == answers


def test_an_epoch_without_records_gives_way_to_the_next_one() -> None:
    found = epochs((0, 0), (2, 5), (4, 5), (6, 5))
    assert found.entries == [(0, 0), (6, 5)]
    found.assign(6, 9)
    assert found.entries == [(0, 0), (6, 5)], "it has begun already"


def test_the_first_epoch_begins_with_the_log() -> None:
    found = epochs((2, 0), (6, 5))
    found.truncate_from_start(3)
    assert found.entries == [(2, 3), (6, 5)]
    found.truncate_from_start(7)
    assert found.entries == [(6, 7)]
    assert [found.end_offset_for(epoch, 10) for epoch in (0, 2, 5, 6, 7)] == [(0, 7), (2, 7), (5, 7), (6, 10), (-1, -1)]


@pytest.mark.parametrize("rows", [[[1]], [[1, 2, 3]], [["a", 1]], [1], None])
def test_what_is_no_list_of_epochs_is_not_taken_up(rows: object) -> None:
    found = epochs((3, 7))
    with pytest.raises((TypeError, ValueError)):
        found.restore(rows)  # type: ignore[arg-type]
    assert found.entries == [(3, 7)]
    found.restore(epochs((0, 0), (5, 9)).snapshot())
    assert (found.entries, found.latest) == ([(0, 0), (5, 9)], 5)
