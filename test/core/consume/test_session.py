from __future__ import annotations

from uuid import UUID

import pytest

from kafka.core.consume.session import MAX_EPOCH, SendFetch
from kafka.errors import KafkaConnectionError
from kafka.wire.types import ZERO_UUID
from test.core.consume.rig import TOPIC_ID, A, B, C, Rig, forgotten, listed, session
from test.core.consume.test_partition import batch

GONE, WRONG_EPOCH, MIXED, UNKNOWN = 70, 71, 106, -1


def opened(rig: Rig) -> int:
    """The id of node 1's session after its first answer."""
    call = rig.fetch()
    assert session(call) == (0, 0)
    rig.answer(call)
    return 1001


def test_what_was_sent_once_is_not_sent_again() -> None:
    rig = Rig(A, B)
    rig.seek_all(5)
    number = opened(rig)
    for epoch in (1, 2, 3):
        call = rig.fetch()
        assert (session(call), listed(call), forgotten(call)) == ((number, epoch), {}, [])
        assert rig.asked(call) == {0: 5, 1: 5}
        rig.answer(call)


def test_only_changes_are_sent() -> None:
    rig = Rig(A, B)
    rig.seek_all(0)
    opened(rig)
    rig.answer(rig.fetch(), p1=batch(0, b"x", b"y"))
    call = rig.fetch()
    assert (listed(call), forgotten(call)) == ({1: 2}, [])
    rig.answer(call)
    rig.leaders[C] = 1
    rig.fetcher.assign([B, C])
    rig.fetcher.position_of(C).seek(9)
    call = rig.fetch()
    assert (listed(call), forgotten(call)) == ({2: 9}, [0])
    assert rig.asked(call) == {1: 2, 2: 9}


def test_another_epoch_of_the_same_leader_is_sent_and_a_seek_to_the_same_offset_is_not() -> None:
    """FetchSessionHandler.Builder.build compares what it sends, and so the epoch."""
    rig = Rig(A, B)
    rig.seek_all(5)
    opened(rig)
    rig.fetcher.position_of(B).seek(5)
    rig.lead(A, 1, epoch=3)
    call = rig.fetch()
    assert listed(call) == {0: 5}
    assert call.request.topics[0].partitions[0].current_leader_epoch == 3
    assert rig.answer(call, p1=batch(5, b"x")), "what comes of the other is what it waits for"


def test_a_partition_that_comes_back_between_two_fetches_was_never_away() -> None:
    rig = Rig(A, B)
    rig.seek_all(0)
    opened(rig)
    call = rig.fetch()
    rig.fetcher.position_of(A).pause()
    rig.poll()
    rig.fetcher.position_of(A).pause(False)
    rig.answer(call)
    call = rig.fetch()
    assert (listed(call), forgotten(call)) == ({}, [])


def test_paused_partitions_leave_the_session() -> None:
    rig = Rig(A, B)
    rig.seek_all(0)
    opened(rig)
    rig.fetcher.position_of(A).pause()
    call = rig.fetch()
    assert forgotten(call) == [0]
    rig.answer(call)
    rig.fetcher.position_of(A).pause(False)
    assert listed(rig.fetch()) == {0: 0}


def test_a_broker_without_sessions_gets_full_fetches() -> None:
    rig = Rig(A, B)
    rig.seek_all(0)
    for _ in range(3):
        call = rig.fetch()
        assert (session(call), listed(call)) == ((0, 0), {0: 0, 1: 0})
        rig.answer(call, session_id=0)


def test_without_sessions_every_fetch_is_whole_and_opens_none() -> None:
    rig = Rig(A, B, has_sessions=False)
    rig.seek_all(0)
    for _ in range(3):
        call = rig.fetch()
        assert (session(call), listed(call)) == ((0, -1), {0: 0, 1: 0})
        rig.answer(call, session_id=0)


@pytest.mark.parametrize(("error", "next_id"), [(GONE, 0), (WRONG_EPOCH, 1001), (MIXED, 1001)])
def test_a_session_that_the_broker_refuses_is_opened_anew_at_once(error: int, next_id: int) -> None:
    """With its former id, unless it is gone, so that the broker need not keep both."""
    rig = Rig(A)
    rig.seek_all(0)
    opened(rig)
    assert not rig.answer(rig.fetch(), error=error)
    call = rig.fetch()
    assert (session(call), listed(call)) == ((next_id, 0), {0: 0})
    rig.answer(call)
    call = rig.fetch()
    assert (session(call)[1], listed(call)) == (1, {}), "once, and then it goes on as any other"


@pytest.mark.parametrize("error", [GONE, WRONG_EPOCH, MIXED, UNKNOWN])
def test_a_broker_that_refuses_every_session_is_not_asked_without_pause(error: int) -> None:
    rig = Rig(A, backoff=lambda failures: 0.1 * 2**failures)
    rig.seek_all(0)
    for wait_s in (0.2 if error == UNKNOWN else 0.0, 0.4, 0.8):
        rig.answer(rig.fetch(), error=error)
        if wait_s:
            assert rig.fetches() == []
            assert rig.fetcher.next_deadline == pytest.approx(rig.now + wait_s)
        rig.now += wait_s


def test_after_a_lost_answer_the_session_is_opened_anew_in_the_place_of_the_old_one() -> None:
    rig = Rig(A)
    rig.seek_all(0)
    number = opened(rig)
    rig.fetcher.failed(rig.fetch(), KafkaConnectionError("gone"), rig.now)
    rig.now += 0.1
    assert session(rig.fetch()) == (number, 0)


@pytest.mark.parametrize(("told", "following"), [(0, (0, 0)), (7, (1001, 0))])
def test_an_answer_with_another_session_ends_the_session(told: int, following: tuple[int, int]) -> None:
    """None: the broker has ended it, and what the answer brings is good. A foreign one: nothing of it is believed."""
    rig = Rig(A)
    rig.seek_all(0)
    opened(rig)
    news = rig.answer(rig.fetch(), session_id=told, p0=batch(0, b"x"))
    assert news is (told == 0)
    assert session(rig.fetch()) == following


def test_the_epoch_after_the_last_is_one() -> None:
    """FetchMetadata.nextEpoch: 1 after Integer.MAX_VALUE."""
    assert MAX_EPOCH == 2_147_483_647
    rig = Rig(A)
    rig.seek_all(0)
    number = opened(rig)
    rig.fetcher._nodes[1].session.epoch = MAX_EPOCH
    rig.answer(rig.fetch())
    assert session(rig.fetch()) == (number, 1)


def test_a_topic_that_was_made_anew_opens_a_session_anew() -> None:
    rig = Rig(A)
    rig.seek_all(0)
    number = opened(rig)
    rig.ids["t"] = UUID(int=99)
    rig.fetcher.metadata_changed()
    call = rig.fetch()
    assert (session(call), listed(call)) == ((number, 0), {0: 0})
    assert call.request.topics[0].topic_id == UUID(int=99)


def test_names_and_ids_are_not_mixed_in_a_session() -> None:
    rig = Rig(A, topic_id=ZERO_UUID)
    rig.seek_all(0)
    call = rig.fetch()
    assert call.max_version == 12
    rig.answer(call)
    rig.ids["t"] = TOPIC_ID
    rig.fetcher.metadata_changed()
    call = rig.fetch()
    assert (session(call), call.max_version) == ((1001, 0), None)


def test_each_broker_has_a_session_of_its_own() -> None:
    rig = Rig(A, C)
    rig.seek_all(0)
    for call in rig.fetches():
        rig.answer(call)
    assert {call.node: session(call) for call in rig.fetches()} == {1: (1001, 1), 2: (1002, 1)}


def test_a_partition_that_moves_leaves_one_session_and_enters_another() -> None:
    rig = Rig(A, B, C)
    rig.seek_all(0)
    for call in rig.fetches():
        rig.answer(call)
    rig.lead(A, 2)
    calls = {call.node: call for call in rig.fetches()}
    assert (listed(calls[1]), forgotten(calls[1])) == ({}, [0])
    assert (listed(calls[2]), forgotten(calls[2])) == ({0: 0}, [])


def test_closing_ends_the_sessions_that_there_are() -> None:
    rig = Rig(A, C)
    rig.seek_all(0)
    calls = rig.fetches()
    rig.answer(calls[0])
    (farewell,) = rig.fetcher.close()
    assert (farewell.node, session(farewell), listed(farewell)) == (1, (1001, -1), {})


def test_partitions_that_had_records_come_last_in_a_whole_fetch() -> None:
    rig = Rig(A, B)
    rig.seek_all(0)
    rig.answer(rig.fetch(), session_id=0, p0=batch(0, b"x"))
    assert list(listed(rig.fetch())) == [1, 0]


# -- what does not wait for a fetch that the broker holds --------------------------------------------------------------


def held(rig: Rig) -> SendFetch:
    """Node 1's fetch is on its way, and has been for a while."""
    opened(rig)
    call = rig.fetch()
    rig.now += 0.2
    return call


def test_a_seek_is_fetched_beside_a_fetch_that_is_held() -> None:
    rig = Rig(A, B)
    rig.seek_all(0)
    call = held(rig)
    rig.fetcher.position_of(A).seek(50)
    beside = rig.fetch()
    assert (beside.is_sessionless, session(beside), listed(beside)) == (True, (0, -1), {0: 50})
    assert beside.request.max_wait_ms == 50
    assert rig.answer(beside, p0=batch(50, b"x"))
    assert rig.read() == [b"x"]
    again = rig.fetch()
    assert (again.is_sessionless, listed(again)) == (True, {0: 51})
    rig.answer(again)
    rig.answer(call)
    call = rig.fetch()
    assert (session(call), listed(call)) == ((1001, 2), {0: 51}), "the session goes on, and learns of it"


def test_a_fetch_beside_another_waits_until_that_is_held() -> None:
    rig = Rig(A)
    rig.seek_all(0)
    opened(rig)
    call = rig.fetch()
    rig.fetcher.position_of(A).seek(50)
    assert rig.fetches() == []
    assert rig.fetcher.next_deadline == pytest.approx(0.01)
    rig.answer(call)
    assert listed(rig.fetch()) == {0: 50}


def test_a_partition_whose_buffer_was_read_is_fetched_beside_a_fetch_that_is_held() -> None:
    rig = Rig(A, B, max_partition_bytes=50)
    rig.seek_all(0)
    rig.answer(rig.fetch(), p0=batch(0, b"x" * 100))
    call = rig.fetch()
    assert rig.asked(call) == {1: 0}
    rig.now += 0.2
    assert rig.fetches() == []
    rig.read()
    assert listed(rig.fetch()) == {0: 1}


def test_an_answer_that_both_fetches_bring_counts_once() -> None:
    rig = Rig(A)
    rig.seek_all(0)
    call = held(rig)
    rig.fetcher.position_of(A).seek(0)
    beside = rig.fetch()
    rig.answer(call)
    of_session = rig.fetch()
    assert rig.answer(of_session, p0=batch(0, b"x"))
    assert not rig.answer(beside, p0=batch(0, b"x"))
    assert rig.read() == [b"x"]


def test_a_fetch_beside_another_that_fails_disturbs_no_session() -> None:
    rig = Rig(A)
    rig.seek_all(0)
    call = held(rig)
    rig.fetcher.position_of(A).seek(7)
    rig.fetcher.failed(rig.fetch(), KafkaConnectionError("gone"), rig.now)
    assert rig.fetches() == [], "not without pause"
    rig.answer(call)
    call = rig.fetch()
    assert (session(call), listed(call)) == ((1001, 2), {0: 7})
