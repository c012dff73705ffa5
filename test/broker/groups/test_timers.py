from __future__ import annotations

from kafka.broker.groups.timers import GroupTimeout, GroupTimers


def test_a_timeout_that_is_set_later_comes_up_once_at_its_new_time() -> None:
    timers = GroupTimers()
    group = timers.of("g")
    group.set(GroupTimeout.SESSION, "a", 10.0)
    group.set(GroupTimeout.SESSION, "a", 20.0)
    assert timers.pop_due(10.0) == []
    assert timers.next_deadline == 20.0
    assert timers.pop_due(20.0) == [("g", GroupTimeout.SESSION, "a")]
    assert timers.next_deadline is None


def test_kinds_members_and_groups_do_not_disturb_one_another() -> None:
    timers = GroupTimers()
    one, other = timers.of("one"), timers.of("other")
    one.set(GroupTimeout.JOIN, "", 1.0)
    one.set(GroupTimeout.SESSION, "a", 2.0)
    one.set(GroupTimeout.REVOKE, "a", 3.0)
    one.set_if_none(GroupTimeout.REVOKE, "a", 9.0)
    other.set(GroupTimeout.SESSION, "a", 4.0)
    one.cancel_member("a")
    assert timers.pop_due(9.0) == [("one", GroupTimeout.JOIN, ""), ("other", GroupTimeout.SESSION, "a")]


def test_a_cancelled_timeout_does_not_come_up() -> None:
    timers = GroupTimers()
    group = timers.of("g")
    group.set(GroupTimeout.SESSION, "a", 1.0)
    group.cancel(GroupTimeout.SESSION, "a")
    assert timers.pop_due(5.0) == []
    assert group.when(GroupTimeout.SESSION, "a") is None


def test_a_timeout_says_when_it_is_and_is_set_once_if_there_is_none() -> None:
    timers = GroupTimers()
    group = timers.of("g")
    group.set_if_none(GroupTimeout.SESSION, "a", 5.0)
    group.set_if_none(GroupTimeout.SESSION, "a", 3.0)
    assert (group.when(GroupTimeout.SESSION, "a"), group.when(GroupTimeout.REVOKE, "a"),
    group.when(GroupTimeout.SESSION, "b")) == (
        5.0, None, None,
    )  # fmt: skip
    assert timers.next_deadline == 5.0
    timers.of("h").set(GroupTimeout.JOIN, "", 9.0)
    group.cancel_all()
    assert timers.pop_due(9.0) == [("h", GroupTimeout.JOIN, "")]
