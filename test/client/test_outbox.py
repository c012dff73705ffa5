"""The queues of a connection: order, deadlines, and who owns what was taken."""

from __future__ import annotations

from math import inf

from kafka.client.link import Exchange
from kafka.client.outbox import Outbox
from test.client.support import NONE


def exchange(deadline: float) -> Exchange:
    return Exchange(NONE, deadline, 1.0)


def test_an_empty_outbox_has_no_deadline() -> None:
    assert Outbox().next_deadline() == inf


def test_the_earliest_deadline_counts_wherever_it_is() -> None:
    outbox = Outbox()
    outbox.waiting.extend([exchange(5), exchange(3)])
    assert outbox.next_deadline() == 3
    outbox.unwritten.append(exchange(2))
    assert outbox.next_deadline() == 2


def test_overdue_requests_are_taken_out_and_the_others_keep_their_order() -> None:
    outbox = Outbox()
    first, second, third = exchange(9), exchange(3), exchange(8)
    waiting = outbox.waiting
    waiting.extend([first, second, third])
    assert outbox.take_overdue_waiting(2.9) == []
    assert outbox.take_overdue_waiting(3) == [second]
    assert list(waiting) == [first, third]


def test_taking_all_leaves_nothing() -> None:
    outbox = Outbox()
    first, second = exchange(1), exchange(2)
    outbox.unwritten.append(first)
    outbox.waiting.append(second)
    assert outbox.overdue_unwritten(1) == [first]
    assert outbox.take_all() == [first, second]
    assert outbox.take_all() == []
