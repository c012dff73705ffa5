"""Waiting requests: woken by what they watch, ended by time, forgotten when nobody is left."""

from __future__ import annotations

from kafka.broker.responses import Purgatory


class Waiter:
    """Notes its attempts, and is satisfied by the one with this number."""

    def __init__(self, enough: int = 1) -> None:
        self.calls: list[tuple[float, bool]] = []
        self.enough = enough

    def __call__(self, now: float, is_last: bool) -> bool:
        self.calls.append((now, is_last))
        return len(self.calls) >= self.enough


def test_a_touched_key_tries_who_waits_on_it_once_for_all_touches() -> None:
    purgatory = Purgatory()
    one, other = Waiter(), Waiter()
    purgatory.add(["a", "b"], 10.0, one)
    purgatory.add(["c"], 10.0, other)
    purgatory.notify("a")
    purgatory.notify("b")
    assert purgatory.next_deadline == float("-inf")
    purgatory.run(1.0)
    assert one.calls == [(1.0, False)]
    assert other.calls == []
    assert len(purgatory) == 1


def test_who_is_not_satisfied_waits_on() -> None:
    purgatory = Purgatory()
    waiter = Waiter(enough=2)
    purgatory.add(["a"], 10.0, waiter)
    purgatory.notify("a")
    purgatory.run(1.0)
    assert purgatory.next_deadline == 10.0
    purgatory.notify("a")
    purgatory.run(2.0)
    assert [now for now, _ in waiter.calls] == [1.0, 2.0]
    assert purgatory.next_deadline is None


def test_time_gives_a_last_attempt_and_ends_the_wait() -> None:
    purgatory = Purgatory()
    waiter = Waiter(enough=99)
    purgatory.add(["a"], 10.0, waiter)
    purgatory.run(9.9)
    assert waiter.calls == []
    purgatory.run(10.0)
    assert waiter.calls == [(10.0, True)]
    purgatory.notify("a")
    purgatory.run(11.0)
    assert len(waiter.calls) == 1


def test_a_cancelled_request_is_never_tried_again() -> None:
    purgatory = Purgatory()
    waiter = Waiter()
    parked = purgatory.add(["a"], 10.0, waiter)
    purgatory.notify("a")
    purgatory.cancel(parked)
    purgatory.run(10.0)
    assert waiter.calls == []
    assert len(purgatory) == 0
    assert purgatory.next_deadline is None


def test_what_an_attempt_touches_is_tried_in_the_next_run() -> None:
    purgatory = Purgatory()
    waiter = Waiter()

    def chain(now: float, is_last: bool) -> bool:
        purgatory.notify("b")
        return True

    purgatory.add(["a"], 10.0, chain)
    purgatory.add(["b"], 10.0, waiter)
    purgatory.notify("a")
    purgatory.run(1.0)
    assert waiter.calls == []
    purgatory.run(1.0)
    assert waiter.calls == [(1.0, False)]
