from __future__ import annotations

import pytest

from kafka.broker.share.sessions import ShareSessions
from kafka.errors import (
    InvalidRequestError,
    InvalidShareSessionEpochError,
    ShareSessionLimitReachedError,
    ShareSessionNotFoundError,
)
from kafka.protocol.constants import FINAL_EPOCH, INITIAL_EPOCH, MAX_EPOCH

Sessions = ShareSessions[str, str]


def opened(*members: str, limit: int = 10) -> Sessions:
    sessions: Sessions = ShareSessions(limit)
    for member in members:
        sessions.fetch("g", member, 0, f"connection of {member}", partitions=["p0", "p1"])
    return sessions


def test_each_accepted_request_counts_the_epoch_up() -> None:
    sessions = opened("m")
    session = sessions.fetch("g", "m", 1, "c")
    assert sessions.acknowledge("g", "m", 2) is session
    assert session.epoch == 3
    for epoch in (1, 2, 4):
        with pytest.raises(InvalidShareSessionEpochError):
            sessions.fetch("g", "m", epoch, "c")
    assert session.epoch == 3


def test_after_the_last_epoch_comes_one() -> None:
    sessions = opened("m")
    session = sessions.get("g", "m")
    assert session is not None
    session.epoch = MAX_EPOCH
    sessions.fetch("g", "m", MAX_EPOCH, "c")
    assert session.epoch == 1


def test_the_epochs_are_those_of_the_protocol() -> None:
    """ShareRequestMetadata: INITIAL_EPOCH 0, FINAL_EPOCH -1, and nextEpoch() goes from Integer.MAX_VALUE to 1."""
    assert (INITIAL_EPOCH, FINAL_EPOCH, MAX_EPOCH) == (0, -1, 2147483647)


def test_a_session_is_new_until_its_second_request() -> None:
    sessions = opened("m")
    session = sessions.get("g", "m")
    assert session is not None
    assert session.is_new
    sessions.fetch("g", "m", 1, "c")
    assert not session.is_new


def test_a_session_that_is_not_there_is_not_found() -> None:
    sessions = opened()
    for epoch in (1, FINAL_EPOCH):
        with pytest.raises(ShareSessionNotFoundError):
            sessions.fetch("g", "m", epoch, "c")
        with pytest.raises(ShareSessionNotFoundError):
            sessions.acknowledge("g", "m", epoch)
    with pytest.raises(ShareSessionNotFoundError):
        sessions.close("g", "m")


def test_a_session_is_opened_by_a_fetch_without_acknowledgements_only() -> None:
    sessions = opened("m")
    with pytest.raises(InvalidRequestError):
        sessions.fetch("g", "m", 0, "c", has_acknowledgements=True)
    with pytest.raises(InvalidShareSessionEpochError):
        sessions.acknowledge("g", "m", 0)
    assert sessions.get("g", "m") is not None


@pytest.mark.parametrize("member", ["", "x" * 37])
def test_a_member_id_has_1_to_36_characters(member: str) -> None:
    with pytest.raises(InvalidRequestError):
        opened().fetch("g", member, 0, "c")


def test_a_member_id_of_36_characters_is_accepted_and_so_is_an_empty_group() -> None:
    assert opened().fetch("", "x" * 36, 0, "c").epoch == 1


def test_a_request_without_a_group_is_invalid() -> None:
    with pytest.raises(InvalidRequestError):
        opened().fetch(None, "m", 0, "c")


def test_partitions_are_added_and_forgotten_and_take_turns() -> None:
    sessions = opened("m")
    session = sessions.fetch("g", "m", 1, "c", partitions=["p2", "p1"], forgotten=["p0"])
    assert list(session.partitions) == ["p1", "p2"]
    first = session.rotated()
    sessions.fetch("g", "m", 2, "c")
    assert session.rotated() == first[::-1]


def test_a_closing_request_changes_no_partitions_and_no_epoch() -> None:
    sessions = opened("m")
    session = sessions.fetch("g", "m", FINAL_EPOCH, "c", partitions=["p2"], forgotten=["p0"])
    assert (list(session.partitions), session.epoch) == (["p0", "p1"], 1)


def test_the_turn_of_partitions_begins_at_the_epoch() -> None:
    sessions = opened("m")
    session = sessions.fetch("g", "m", 1, "c", partitions=["p2"])
    assert (session.epoch, session.rotated()) == (2, ["p2", "p0", "p1"])
    assert sessions.fetch("g", "m", 2, "c", forgotten=["p0", "p1", "p2"]).rotated() == []


def test_the_default_limit_is_kafkas() -> None:
    """ShareGroupConfig.SHARE_GROUP_MAX_SHARE_SESSIONS_DEFAULT (4.3.0)."""
    assert ShareSessions[str, str]().max_sessions == 2000


def test_deleted_groups_and_partitions_are_forgotten() -> None:
    sessions = opened("a", "b")
    sessions.fetch("other", "a", 0, "one", partitions=["p0"])
    sessions.drop_partitions(["p0", "p7"])
    assert [list(sessions.fetch("g", member, 1, "c").partitions) for member in "ab"] == [["p1"], ["p1"]]
    sessions.drop_group("g")
    assert sessions.get("g", "a") is sessions.get("g", "b") is None
    assert sessions.get("other", "a") is not None


def test_closing_an_earlier_session_of_a_connection_leaves_the_last_one_with_it() -> None:
    sessions: Sessions = ShareSessions()
    sessions.fetch("g", "a", 0, "one")
    sessions.fetch("g", "b", 0, "one")
    sessions.close("g", "a")
    session = sessions.disconnected("one")
    assert session is not None
    assert session.key.member_id == "b"


def test_the_limit_of_sessions_does_not_count_the_one_that_is_replaced() -> None:
    sessions = opened("a", "b", limit=2)
    with pytest.raises(ShareSessionLimitReachedError):
        sessions.fetch("g", "c", 0, "c")
    assert sessions.fetch("g", "b", 0, "c").epoch == 1


def test_a_closed_connection_ends_its_session() -> None:
    sessions = opened("a", "b")
    session = sessions.disconnected("connection of a")
    assert session is not None
    assert session.key.member_id == "a"
    assert list(session.partitions) == ["p0", "p1"]
    assert sessions.get("g", "a") is None
    assert sessions.disconnected("connection of a") is None


def test_a_connection_remembers_the_last_session_only() -> None:
    sessions: Sessions = ShareSessions()
    sessions.fetch("g", "a", 0, "one")
    sessions.fetch("g", "b", 0, "one")
    session = sessions.disconnected("one")
    assert session is not None
    assert session.key.member_id == "b"
    assert sessions.get("g", "a") is not None


def test_a_session_taken_over_by_a_new_connection_survives_the_old_one() -> None:
    sessions = opened("m")
    sessions.fetch("g", "m", 0, "new")
    assert sessions.disconnected("connection of m") is None
    assert sessions.get("g", "m") is not None
    assert sessions.disconnected("new") is not None


def test_closing_does_not_ask_for_the_epoch() -> None:
    sessions = opened("m")
    assert sessions.acknowledge("g", "m", FINAL_EPOCH) is sessions.close("g", "m")
    assert len(sessions) == 0
