from __future__ import annotations

from kafka.broker.groups.timers import Timeout, Timers


def test_a_timeout_that_is_set_later_comes_up_once_at_its_new_time() -> None:
    timers = Timers()
    group = timers.of("g")
    group.set(Timeout.SESSION, "a", 10.0)
    group.set(Timeout.SESSION, "a", 20.0)
    assert timers.pop_due(10.0) == []
    assert timers.next_deadline == 20.0
    assert timers.pop_due(20.0) == [("g", Timeout.SESSION, "a")]
    assert timers.next_deadline is None


def test_kinds_members_and_groups_do_not_disturb_one_another() -> None:
    timers = Timers()
    one, other = timers.of("one"), timers.of("other")
    one.set(Timeout.JOIN, "", 1.0)
    one.set(Timeout.SESSION, "a", 2.0)
    one.set(Timeout.REVOKE, "a", 3.0)
    one.set_if_none(Timeout.REVOKE, "a", 9.0)
    other.set(Timeout.SESSION, "a", 4.0)
    one.cancel_member("a")
    assert timers.pop_due(9.0) == [("one", Timeout.JOIN, ""), ("other", Timeout.SESSION, "a")]


def test_a_cancelled_timeout_does_not_come_up() -> None:
    timers = Timers()
    group = timers.of("g")
    group.set(Timeout.SESSION, "a", 1.0)
    group.cancel(Timeout.SESSION, "a")
    assert timers.pop_due(5.0) == []
    assert group.when(Timeout.SESSION, "a") is None


def test_a_timeout_says_when_it_is_and_is_set_once_if_there_is_none() -> None:
    timers = Timers()
    group = timers.of("g")
    group.set_if_none(Timeout.SESSION, "a", 5.0)
    group.set_if_none(Timeout.SESSION, "a", 3.0)
    assert (group.when(Timeout.SESSION, "a"), group.when(Timeout.REVOKE, "a"), group.when(Timeout.SESSION, "b")) == (
        5.0, None, None,
    )  # fmt: skip
    assert timers.next_deadline == 5.0
    timers.of("h").set(Timeout.JOIN, "", 9.0)
    group.cancel_all()
    assert timers.pop_due(9.0) == [("h", Timeout.JOIN, "")]
