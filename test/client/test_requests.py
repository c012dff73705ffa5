"""The queues of a connection: order, deadlines, and who owns what was taken."""

from __future__ import annotations

from math import inf

from kafka.client.connection import PendingRequest, WriteQueue
from test.client.support import NONE


def pending(deadline: float) -> PendingRequest:
    return PendingRequest(NONE, deadline, 1.0)


def test_an_empty_outbox_has_no_deadline() -> None:
    assert WriteQueue().next_deadline() == inf


def test_the_earliest_deadline_counts_wherever_it_is() -> None:
    outbox = WriteQueue()
    outbox.waiting.extend([pending(5), pending(3)])
    assert outbox.next_deadline() == 3
    outbox.unwritten.append(pending(2))
    assert outbox.next_deadline() == 2


def test_overdue_requests_are_taken_out_and_the_others_keep_their_order() -> None:
    outbox = WriteQueue()
    first, second, third = pending(9), pending(3), pending(8)
    waiting = outbox.waiting
    waiting.extend([first, second, third])
    assert outbox.take_overdue_waiting(2.9) == []
    assert outbox.take_overdue_waiting(3) == [second]
    assert list(waiting) == [first, third]


def test_taking_all_leaves_nothing() -> None:
    outbox = WriteQueue()
    first, second = pending(1), pending(2)
    outbox.unwritten.append(first)
    outbox.waiting.append(second)
    assert outbox.overdue_unwritten(1) == [first]
    assert outbox.take_all() == [first, second]
    assert outbox.take_all() == []
