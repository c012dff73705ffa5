from __future__ import annotations

import pytest

from kafka.core.consume.fetcher import RefreshFetchMetadata, RequestOffsets
from kafka.errors import KafkaConnectionError
from test.core.consume.rig import A, B, Rig, listed
from test.core.consume.test_partition import batch

OUT_OF_RANGE, NOT_LEADER, STORAGE = 1, 6, 56


def sent_to_a_replica(rig: Rig) -> None:
    """The leader of A, node 1, has said that node 2 is nearer."""
    rig.seek_all(0)
    rig.answer(rig.fetch(), r0=2)


def test_the_leader_sends_a_consumer_to_the_nearest_replica() -> None:
    rig = Rig(A, rack="here")
    rig.seek_all(0)
    call = rig.fetch()
    assert (call.node, call.request.rack_id) == (1, "here")
    rig.answer(call, r0=2)
    call = rig.fetch()
    assert (call.node, rig.asked(call)) == (2, {0: 0})
    rig.answer(call, p0=batch(0, b"x"))
    assert rig.read() == [b"x"]
    assert rig.fetch().node == 2


def test_others_of_that_leader_stay_there() -> None:
    rig = Rig(A, B)
    sent_to_a_replica(rig)
    assert {call.node: rig.asked(call) for call in rig.fetches()} == {1: {1: 0}, 2: {0: 0}}


def test_the_leader_is_asked_again_when_its_word_is_as_old_as_metadata_may_be() -> None:
    rig = Rig(A, read_replica_age_s=300.0)
    sent_to_a_replica(rig)
    call = rig.fetch()
    rig.now = 300.0
    rig.answer(call)
    assert rig.fetch().node == 1


def test_the_age_counts_though_nothing_happens() -> None:
    rig = Rig(A, read_replica_age_s=300.0)
    sent_to_a_replica(rig)
    rig.fetcher.failed(rig.fetch(), KafkaConnectionError("gone"), rig.now)
    assert rig.fetcher.next_deadline <= 300.0


@pytest.mark.parametrize("code", [NOT_LEADER, STORAGE])
def test_a_replica_that_refuses_is_left_for_the_leader_at_once(code: int) -> None:
    rig = Rig(A)
    sent_to_a_replica(rig)
    rig.answer(rig.fetch(), p0=code)
    effects = rig.poll()
    assert [effect.node for effect in effects if not isinstance(effect, RefreshFetchMetadata)] == [1]
    assert RefreshFetchMetadata(frozenset({"t"})) in effects


def test_a_replica_that_lags_behind_resets_nothing() -> None:
    """An offset that is out of its range may be in the leader's."""
    rig = Rig(A, reset_policy="earliest")
    sent_to_a_replica(rig)
    rig.answer(rig.fetch(), p0=OUT_OF_RANGE)
    call = rig.fetch()
    assert (call.node, rig.asked(call)) == (1, {0: 0})
    rig.answer(call, p0=OUT_OF_RANGE)
    assert isinstance(rig.poll()[0], RequestOffsets), "the leader's word counts"


def test_a_replica_that_cannot_be_reached_is_left_for_the_leader() -> None:
    rig = Rig(A)
    sent_to_a_replica(rig)
    rig.fetcher.failed(rig.fetch(), KafkaConnectionError("gone"), rig.now)
    assert rig.fetch().node == 1


def test_a_replica_that_is_down_is_left_for_the_leader() -> None:
    online = {1, 2}
    rig = Rig(A, is_replica=lambda _partition, node: node in online)
    sent_to_a_replica(rig)
    call = rig.fetch()
    online.remove(2)
    rig.fetcher.metadata_changed()
    assert rig.fetch().node == 1
    rig.answer(call)


def test_another_leader_says_anew_which_replica_is_near() -> None:
    rig = Rig(A)
    sent_to_a_replica(rig)
    rig.answer(rig.fetch())
    rig.lead(A, 3, epoch=1)
    assert {call.node: listed(call) for call in rig.fetches()} == {3: {0: 0}}
