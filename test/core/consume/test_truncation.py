from __future__ import annotations

import pytest

from kafka.core.consume.fetcher import RequestEpochEnds
from kafka.core.consume.offsets import EpochEnd, EpochQuery
from kafka.core.consume.partition import EARLIEST
from kafka.errors import (
    FencedLeaderEpochError,
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    LogTruncationError,
    TopicAuthorizationFailedError,
)
from kafka.structs import OffsetAndMetadata
from test.core.consume.rig import A, B, C, Rig, listed
from test.core.consume.test_partition import batch

FENCED, UNKNOWN_EPOCH = 74, 75
BATCH_EPOCH = 4
"""Of the batches that ``batch`` makes."""


def read_then_moved(read: bool = True, **options: object) -> Rig:
    """Records 0 to 2 were fetched from node 1, and perhaps handed out, and now node 2 leads with a later epoch."""
    rig = Rig(A, **options)
    rig.lead(A, 1, BATCH_EPOCH)
    rig.seek_all(0)
    call = rig.fetch()
    assert call.request.topics[0].partitions[0].current_leader_epoch == BATCH_EPOCH
    rig.answer(call, p0=batch(0, b"a", b"b", b"c"))
    if read:
        rig.read()
    rig.answer(rig.fetch())
    rig.lead(A, 2, BATCH_EPOCH + 1)
    return rig


def test_another_leader_is_asked_whether_it_has_what_was_read_before_it_is_fetched_from() -> None:
    rig = read_then_moved()
    effect = rig.ask_epochs()
    assert effect.questions == {A: EpochQuery(2, BATCH_EPOCH + 1, BATCH_EPOCH)}
    assert rig.poll() == [], "nothing is fetched meanwhile"
    assert not rig.fetcher.epoch_ends_received(effect, {A: EpochEnd(BATCH_EPOCH, 3)}, rig.now)
    call = rig.fetch()
    assert (call.node, listed(call)) == (2, {0: 3})
    assert call.request.topics[0].partitions[0].current_leader_epoch == BATCH_EPOCH + 1


def test_the_same_leader_in_a_later_epoch_is_asked_too() -> None:
    rig = read_then_moved()
    rig.lead(A, 1, BATCH_EPOCH + 2)
    assert rig.ask_epochs().questions[A].node == 1


def test_nothing_is_asked_when_nothing_was_read() -> None:
    rig = Rig(A)
    rig.lead(A, 1, 4)
    rig.seek_all(7)
    rig.answer(rig.fetch())
    rig.lead(A, 2, 5)
    assert rig.fetch().node == 2


def test_a_committed_offset_with_an_epoch_is_asked_for_before_it_is_read() -> None:
    rig = Rig()
    rig.lead(A, 1, 6)
    rig.fetcher.assign([A], awaiting={A})
    rig.fetcher.start(A, 10, leader_epoch=3)
    effect = rig.ask_epochs()
    assert effect.questions == {A: EpochQuery(1, 6, 3)}
    rig.fetcher.epoch_ends_received(effect, {A: EpochEnd(3, 10)}, rig.now)
    assert listed(rig.fetch()) == {0: 10}


def test_after_a_truncation_reading_goes_on_where_the_logs_part() -> None:
    rig = read_then_moved(reset_policy="latest")
    assert not rig.fetcher.epoch_ends_received(rig.ask_epochs(), {A: EpochEnd(BATCH_EPOCH - 1, 2)}, rig.now)
    position = rig.fetcher.positions[A]
    assert (position.position, position.leader_epoch) == (2, BATCH_EPOCH - 1)
    assert listed(rig.fetch()) == {0: 2}


def test_without_a_policy_a_truncation_is_an_error_that_names_the_offsets() -> None:
    rig = read_then_moved(reset_policy="none")
    assert rig.fetcher.epoch_ends_received(rig.ask_epochs(), {A: EpochEnd(BATCH_EPOCH - 1, 2)}, rig.now)
    position = rig.fetcher.positions[A]
    error = position.error
    assert isinstance(error, LogTruncationError)
    assert error.divergent_offsets == {A: OffsetAndMetadata(2, "", BATCH_EPOCH - 1)}
    assert str(error) == "t-0, read up to offset 3, was truncated to offset 2"
    assert position.position == 3
    position.set_error(None)  # as the reader does when it has raised it
    assert rig.ask_epochs().questions[A].epoch == BATCH_EPOCH, "nobody has said where to go on"
    position.seek(2)
    assert listed(rig.fetch()) == {0: 2}


def test_a_log_may_have_been_truncated_to_nothing_in_its_first_epoch() -> None:
    rig = read_then_moved(reset_policy="none")
    assert rig.fetcher.epoch_ends_received(rig.ask_epochs(), {A: EpochEnd(0, 0)}, rig.now)
    error = rig.fetcher.positions[A].error
    assert isinstance(error, LogTruncationError)
    assert error.divergent_offsets == {A: OffsetAndMetadata(0, "", 0)}


def test_the_epoch_0_is_asked_for_as_others_are() -> None:
    rig = Rig(A)
    rig.lead(A, 1, 0)
    rig.seek_all(0)
    rig.answer(rig.fetch(), p0=batch(0, b"a", leader_epoch=0))
    rig.lead(A, 2, 0)
    assert rig.ask_epochs().questions == {A: EpochQuery(2, 0, 0)}


@pytest.mark.parametrize("end", [EpochEnd(-1, -1), EpochEnd(-1, 5), EpochEnd(3, -1)])
@pytest.mark.parametrize("policy", ["none", "earliest"])
def test_a_leader_that_knows_nothing_of_the_epoch_has_nothing_of_what_was_read(policy: str, end: EpochEnd) -> None:
    """SubscriptionState.maybeCompleteValidation: it knows nothing when either is undefined."""
    rig = read_then_moved(reset_policy=policy)
    news = rig.fetcher.epoch_ends_received(rig.ask_epochs(), {A: end}, rig.now)
    if policy == "none":
        error = rig.fetcher.positions[A].error
        assert news
        assert isinstance(error, LogTruncationError)
        assert error.divergent_offsets == {A: None}
    else:
        assert rig.find().timestamps == {A: EARLIEST}


@pytest.mark.parametrize("end", [0, 2])
def test_what_was_fetched_and_not_handed_out_is_fetched_again_after_a_truncation(end: int) -> None:
    """Nobody has seen what is gone."""
    rig = read_then_moved(read=False, reset_policy="none")
    assert not rig.fetcher.epoch_ends_received(rig.ask_epochs(), {A: EpochEnd(BATCH_EPOCH - 1, end)}, rig.now)
    assert rig.read() == []
    call = rig.fetch()
    assert (call.node, listed(call)) == (2, {0: 0})


def test_a_seek_makes_the_question_pointless() -> None:
    rig = read_then_moved(reset_policy="none")
    effect = rig.ask_epochs()
    rig.fetcher.position_of(A).seek(1)
    assert not rig.fetcher.epoch_ends_received(effect, {A: EpochEnd(0, 0)}, rig.now)
    assert listed(rig.fetch()) == {0: 1}


def test_a_broker_that_does_not_serve_ends_of_epochs_to_consumers_is_trusted() -> None:
    rig = read_then_moved(reset_policy="none")
    rig.fetcher.epoch_ends_received(rig.ask_epochs(), {A: IncompatibleBrokerVersion("too old")}, rig.now)
    assert listed(rig.fetch()) == {0: 3}


@pytest.mark.parametrize("error", [KafkaConnectionError("gone"), FencedLeaderEpochError("later")])
def test_a_question_without_an_answer_is_asked_again(error: BaseException) -> None:
    rig = read_then_moved()
    rig.fetcher.epoch_ends_received(rig.ask_epochs(), {A: error}, rig.now)
    assert [type(effect).__name__ for effect in rig.poll()] == ["RefreshFetchMetadata"]
    rig.now += 0.1
    assert rig.ask_epochs().questions[A].node == 2


def test_a_question_that_is_forbidden_is_the_readers() -> None:
    rig = read_then_moved()
    assert rig.fetcher.epoch_ends_received(rig.ask_epochs(), {A: TopicAuthorizationFailedError("t")}, rig.now)
    assert isinstance(rig.fetcher.positions[A].error, TopicAuthorizationFailedError)


def test_an_answer_of_the_former_leader_that_comes_late_does_not_count() -> None:
    rig = Rig(A)
    rig.lead(A, 1, BATCH_EPOCH)
    rig.seek_all(0)
    rig.answer(rig.fetch(), p0=batch(0, b"a"))
    late = rig.fetch()
    rig.lead(A, 2, BATCH_EPOCH + 1)
    effect = rig.ask_epochs()
    assert not rig.answer(late, p0=batch(1, b"gone"))
    rig.fetcher.epoch_ends_received(effect, {A: EpochEnd(BATCH_EPOCH, 1)}, rig.now)
    assert listed(rig.fetch()) == {0: 1}
    assert rig.read() == [b"a"]


@pytest.mark.parametrize(("code", "refreshes"), [(FENCED, True), (UNKNOWN_EPOCH, False)])
def test_who_is_behind_with_the_epoch_learns_it_or_is_waited_for(code: int, refreshes: bool) -> None:
    """Fenced: we are behind. Unknown: the broker is."""
    rig = Rig(A, B)
    rig.seek_all(0)
    rig.answer(rig.fetch(), p0=code)
    effects = rig.poll()
    assert any(type(effect).__name__ == "RefreshFetchMetadata" for effect in effects) is refreshes
    assert rig.fetcher.positions[A].retry_at == pytest.approx(0.1)


@pytest.mark.parametrize("code", [FENCED, UNKNOWN_EPOCH])
def test_an_epoch_that_leads_nowhere_is_left_out_until_there_is_another(code: int) -> None:
    """Brokers before 2.4 may tell a wrong one in their metadata (KAFKA-9212)."""
    rig = Rig(A)
    rig.lead(A, 1, 7)
    rig.seek_all(0)
    asked = []
    for _ in range(6):
        rig.now += 1
        call = rig.fetch()
        asked.append(rig.fetcher._nodes[1].session.wanted[A].leader_epoch)
        rig.answer(call, p0=code if asked[-1] == 7 else batch(0, b"x"))
    assert asked == [7, 7, 7, 7, 7, -1]
    assert listed(rig.fetch()) == {0: 1}, "and stays left out"
    rig.lead(A, 1, 8)
    rig.ask_epochs()


def test_each_leader_is_asked_for_epochs_by_itself() -> None:
    rig = Rig(A, C)
    for partition in (A, C):
        rig.lead(partition, rig.leaders[partition], epoch=2)
        rig.fetcher.positions[partition].seek(5, 1)
    asked = [effect for effect in rig.poll() if isinstance(effect, RequestEpochEnds)]
    assert [list(effect.questions) for effect in asked] == [[A], [C]]
