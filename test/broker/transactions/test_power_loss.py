"""With ``fsync=always``, the order in which the end of a transaction comes to the disk: the decision, the markers, that
they are written. Whatever a lost machine keeps of it, the transaction is all committed or all aborted.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kafka.broker.responses import PendingResponse
from kafka.protocol.transactions import EndTxnRequest
from test.broker.driver import HandBroker
from test.broker.log.test_flushing import HandExecutor
from test.broker.transactions.txn import READ_COMMITTED, init, produce, read, state

TOPICS = ("t", "u")


@pytest.fixture
def hand(tmp_path: Path) -> HandBroker:
    driven = HandBroker(tmp_path / "data", fsync="always")
    for topic in TOPICS:
        driven.create_topic(topic)
    return driven


def begun(hand: HandBroker, *, timeout_ms: int = 60_000) -> tuple[int, int]:
    producer = init(hand, "x", timeout_ms=timeout_ms)[1:]
    for topic in TOPICS:
        assert produce(hand, "x", producer, 0, topic, b"v").error_code == 0
    return producer


def markers(hand: HandBroker) -> int:
    """In how many topics there are some."""
    return sum(hand.broker.logs.log(hand.broker.topic(topic), 0).end_offset - 1 for topic in TOPICS)


def ending(hand: HandBroker, producer: tuple[int, int]) -> tuple[EndTxnRequest, PendingResponse]:
    request = EndTxnRequest(
        transactional_id="x", producer_id=producer[0], producer_epoch=producer[1], committed=True
    )
    reply = hand.send(request)
    hand.tick()
    return request, reply


def test_each_step_is_on_the_disk_before_the_next_one_is_written(hand: HandBroker) -> None:
    producer = begun(hand)
    hand.broker.logs.flusher.executor = executor = HandExecutor()
    request, reply = ending(hand, producer)
    assert (markers(hand), hand.broker.transactions.all["x"].state.title) == (0, "PrepareCommit")
    executor.finish()  # the decision
    assert (markers(hand), hand.broker.transactions.all["x"].state.title) == (2, "PrepareCommit")
    executor.finish()  # the markers
    assert hand.broker.transactions.all["x"].state.title == "CompleteCommit"
    assert not reply.done
    executor.finish()
    assert hand.answer(request, reply).error_code == 0
    assert not executor.work
    for topic in TOPICS:
        assert read(hand, topic, READ_COMMITTED) == [b"v"]


def test_requests_meanwhile_get_a_retriable_error(hand: HandBroker) -> None:
    producer = begun(hand)
    hand.broker.logs.flusher.executor = executor = HandExecutor()
    request, reply = ending(hand, producer)
    second = ending(hand, producer)
    executor.drain()
    assert hand.answer(*second).error_code == 51
    assert hand.answer(request, reply).error_code == 0


def test_a_decision_that_may_be_lost_is_not_carried_out(hand: HandBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = begun(hand)

    def failing(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        _, reply = ending(hand, producer)
    assert reply.done
    assert reply.hang_up
    hand.advance(5)
    assert markers(hand) == 0


def test_a_timeout_takes_the_same_steps(hand: HandBroker) -> None:
    begun(hand, timeout_ms=1000)
    hand.broker.logs.flusher.executor = executor = HandExecutor()
    hand.advance(2)
    assert markers(hand) == 0
    executor.finish()
    assert markers(hand) == 2
    executor.drain()
    hand.tick()
    executor.drain()
    assert hand.broker.transactions.all["x"].state.title == "CompleteAbort"


def test_a_topic_of_decisions_that_is_deleted_meanwhile_hurts_nobody(hand: HandBroker) -> None:
    producer = begun(hand)
    hand.broker.logs.flusher.executor = executor = HandExecutor()
    _, reply = ending(hand, producer)
    hand.broker.logs.delete_topic("__transaction_state")
    hand.broker.state.on_topic_deleted("__transaction_state")
    executor.drain()
    hand.tick()
    executor.drain()
    assert reply.done


def test_a_start_brings_a_decision_to_the_disk_before_it_is_carried_out(
    hand: HandBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = begun(hand)
    hand.broker.logs.flusher.executor = HandExecutor()
    ending(hand, producer)
    hand.broker.logs.flusher.executor.work.clear()  # killed
    hand.broker.logs._lock.release()
    synced: list[str] = []
    sync = os.fsync

    def note(fd: int) -> None:
        synced.append(f"{os.readlink(f'/proc/self/fd/{fd}')} {markers(again) if again else 0}")
        sync(fd)

    again: HandBroker | None = None
    monkeypatch.setattr(os, "fsync", note)
    again = HandBroker(hand.data_dir, fsync="always")
    again.tick()
    assert any("__transaction_state" in one and one.endswith(".log 0") for one in synced)
    assert state(again, "x") == "CompleteCommit"


def test_a_broker_that_ends_carries_out_what_was_decided(hand: HandBroker) -> None:
    producer = begun(hand)
    hand.broker.logs.flusher.executor = HandExecutor()
    ending(hand, producer)
    hand.broker.close()
    assert hand.broker.transactions.all["x"].state.title == "CompleteCommit"
    hand.broker = hand._open()
    log = hand.broker.logs.log(hand.broker.topic("t"), 0)
    assert (log.recovered_bytes, log.last_stable_offset) == (0, 2)
    assert state(hand, "x") == "CompleteCommit"
