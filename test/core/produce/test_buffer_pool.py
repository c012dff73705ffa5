"""What is counted, who may have more, and who is woken: the account alone, with figures by hand."""

from __future__ import annotations

import pytest

from kafka.core.produce.accumulator import BufferPool, open_batch_bytes


class Waiting:
    """Somebody who waits for memory."""

    def __init__(self, needed_bytes: int = 0) -> None:
        self.needed_bytes = needed_bytes

    def wake(self) -> None:
        """Who is woken is the accumulator's to say."""


def memory_with(used: int, *waiters: Waiting, limit: int = 3200) -> BufferPool:
    memory = BufferPool(limit)
    memory.used_bytes = used
    memory.waiters.extend(waiters)
    return memory


@pytest.mark.parametrize(
    ("room", "record", "expected"),
    [
        # 1024 for the objects, the room, and 96 for each record that fits behind the header of 61 bytes, and one more
        (161, 10, 1024 + 161 + 11 * 96),
        (61, 10, 1024 + 61 + 1 * 96),
        # no record has less than 7 bytes: length, attributes, two deltas, two lengths, the count of headers
        (61 + 70, 1, 1024 + 131 + 11 * 96),
        (61 + 70, 7, 1024 + 131 + 11 * 96),
        (61 + 70, 8, 1024 + 131 + 9 * 96),
        # pieces are joined after 64 records
        (61 + 620, 10, 1024 + 681 + 63 * 96),
        (61 + 630, 10, 1024 + 691 + 64 * 96),
        (61 + 9000, 10, 1024 + 9061 + 64 * 96),
    ],
)
def test_an_open_batch_counts_its_objects_its_room_and_the_pieces_of_its_last_records(
    room: int, record: int, expected: int
) -> None:
    assert open_batch_bytes(room, record) == expected


def test_memory_is_given_up_to_the_very_last_byte() -> None:
    memory = memory_with(3000)
    assert not memory.take(201, None)
    assert memory.is_short
    assert memory.take(200, None)
    assert memory.used_bytes == 3200


def test_one_that_is_larger_than_everything_is_let_in_when_it_is_alone() -> None:
    memory = memory_with(0)
    assert not memory.is_short
    assert memory.take(5000, None)
    assert not memory.take(1, None)
    memory.give(5000)
    assert (memory.used_bytes, memory.is_short) == (0, False)


def test_a_waiter_takes_before_those_that_came_later_and_knows_what_it_lacks() -> None:
    first, second = Waiting(), Waiting()
    memory = memory_with(3000, first, second)
    assert not memory.take(1, None), "Java's BufferPool: nobody gets any while one waits"
    assert not memory.take(1, second)
    assert second.needed_bytes == 1
    assert not memory.take(300, first)
    assert first.needed_bytes == 300
    memory.give(100)
    assert memory.is_short, "somebody waits"
    assert memory.take(300, first)
    memory.leave(second)
    assert memory.is_short, "the other one waits"
    memory.leave(second)
    assert list(memory.waiters) == [first]
    memory.leave(first)
    assert not memory.is_short


@pytest.mark.parametrize(
    ("used", "needed", "may_be_enough", "has_plenty"),
    [
        (3001, 200, False, False),
        (3000, 200, True, True),
        (3101, 50, True, False),  # a 32nd of 3200 bytes is 100
        (3100, 50, True, True),
        (1, 5000, False, False),
        (0, 5000, True, True),  # it is alone
    ],
)
def test_the_first_waiter_may_try_when_its_bytes_are_free_and_at_once_when_a_32nd_is(
    used: int, needed: int, may_be_enough: bool, has_plenty: bool
) -> None:
    first = Waiting(needed)
    memory = memory_with(used, first, Waiting(10_000))
    assert memory.next_waiter() is (first if may_be_enough else None)
    assert memory.has_plenty() is has_plenty


def test_without_waiters_there_is_nobody_to_wake() -> None:
    memory = memory_with(0)
    assert memory.next_waiter() is None
    assert memory.has_plenty() is False
