"""When a member of a classic group sends a heartbeat, and when its session is over by its own clock."""

from __future__ import annotations

from kafka.core.group.classic import MemberSession


def test_heartbeats_are_due_an_interval_after_the_last_one_and_never_before_the_session_begins() -> None:
    session = MemberSession(45.0, 3.0)
    assert not session.is_beat_due(1e9) and not session.is_over(1e9)
    session.begin(100.0)
    assert [session.is_beat_due(at) for at in (102.9, 103.0, 103.1)] == [False, True, True]
    session.sent(103.5)
    assert [session.is_beat_due(at) for at in (106.4, 106.5)] == [False, True]
    session.pause(110.0)
    assert [session.is_beat_due(at) for at in (109.9, 110.0)] == [False, True]


def test_a_session_is_over_a_time_out_after_what_was_heard() -> None:
    session = MemberSession(45.0, 3.0)
    session.begin(100.0)
    assert [session.is_over(at) for at in (144.9, 145.0)] == [False, True]
    session.sent(110.0)
    assert session.is_over(145.0), "it may not have been heard"
    session.heard(110.0)
    assert [session.is_over(at) for at in (154.9, 155.0)] == [False, True]


def test_who_can_send_no_heartbeat_looks_again_at_the_end_of_the_session() -> None:
    session = MemberSession(45.0, 3.0)
    session.begin(100.0)
    assert (session.deadline(True), session.deadline(False)) == (103.0, 145.0)
    session.pause(200.0)
    assert session.deadline(True) == 145.0
