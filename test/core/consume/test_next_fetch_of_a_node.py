"""When a node is fetched from next: after errors, and beside a fetch that it holds."""

from __future__ import annotations

import pytest

from kafka.core.consume.session import SendFetch
from kafka.errors import KafkaConnectionError
from test.core.consume.rig import A, B, Rig, listed, session

UNKNOWN, WRONG_EPOCH = -1, 71


def waited(rig: Rig) -> float:
    """For so long nothing is fetched; and then it is time."""
    assert rig.fetches() == []
    wait_s = rig.fetcher.next_deadline - rig.now
    rig.now = rig.fetcher.next_deadline
    return wait_s


def test_errors_in_a_row_make_a_node_wait_longer_until_it_answers() -> None:
    rig = Rig(A, backoff=float)
    rig.seek_all()
    for _ in range(2):
        waits = []
        for _ in range(3):
            rig.fetcher.failed(rig.fetch(), KafkaConnectionError("gone"), rig.now)
            waits.append(waited(rig))
        assert waits == [1.0, 2.0, 3.0]
        rig.answer(rig.fetch())
    rig.answer(rig.fetch(), error=WRONG_EPOCH)
    call = rig.fetch()  # at once: it is the first after an answer
    rig.answer(call, error=WRONG_EPOCH)
    assert waited(rig) == 2.0


def held(rig: Rig) -> SendFetch:
    """Of two partitions of a node, one was sought elsewhere while the node holds its fetch: what is sent beside."""
    rig.seek_all()
    rig.answer(rig.fetch())
    rig.fetch()
    rig.now += 0.2
    rig.fetcher.position_of(A).seek(50)
    return rig.fetch()


def test_one_fetch_is_beside_another_and_no_more() -> None:
    rig = Rig(A, B)
    beside = held(rig)
    assert (beside.is_sessionless, listed(beside)) == (True, {0: 50})
    rig.fetcher.position_of(B).seek(60)
    assert rig.fetches() == []
    rig.answer(beside)
    again = rig.fetch()
    assert again.is_sessionless and listed(again)[1] == 60


def test_a_fetch_is_taken_for_held_10_ms_after_it_was_sent() -> None:
    rig = Rig(A)
    rig.seek_all()
    rig.fetch()
    rig.fetcher.position_of(A).seek(50)
    rig.now = 0.009
    assert rig.fetches() == []
    rig.now = 0.01
    assert rig.fetch().is_sessionless


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_fetch_beside_another_that_fails_waits_the_shortest_time(is_answered: bool) -> None:
    """However often: what waits for it comes with the session's next fetch, too."""
    rig = Rig(A, backoff=float)
    beside = held(rig)
    for _ in range(3):
        if is_answered:
            assert not rig.answer(beside, error=UNKNOWN)
        else:
            rig.fetcher.failed(beside, KafkaConnectionError("gone"), rig.now)
        assert waited(rig) == pytest.approx(1.0)
        beside = rig.fetch()
        assert beside.is_sessionless


def test_the_last_fetch_brings_nothing_and_waits_for_nothing_else() -> None:
    rig = Rig(A)
    rig.seek_all()
    rig.answer(rig.fetch())
    rig.fetch()
    (farewell,) = rig.fetcher.close()
    assert (farewell.is_sessionless, farewell.reserved_bytes, farewell.request.max_bytes) == (True, 0, 0)
    assert session(farewell) == (1001, -1)
