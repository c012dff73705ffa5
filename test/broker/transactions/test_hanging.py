"""What a lost machine leaves of transactions: batches whose coordinator has lost its records, or their markers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from test.broker.driver import HandBroker
from test.broker.transactions.txn import READ_COMMITTED, READ_UNCOMMITTED, end, init, mark, produce, producers, read

MINUTE_S = 60.0
LONGEST_S = 15 * MINUTE_S


@pytest.fixture
def hand(tmp_path: Path) -> HandBroker:
    driven = HandBroker(tmp_path / "data")
    driven.create_topic("t")
    return driven


def begun(hand: HandBroker, name: str, value: bytes) -> tuple[int, int]:
    producer = init(hand, name, timeout_ms=900_000)[1:]
    assert produce(hand, name, producer, 0, "t", value).error_code == 0
    return producer


def lose_coordinator(hand: HandBroker) -> None:
    """The records of ``__transaction_state`` were not on the disk yet."""
    hand.broker.close()
    for path in (hand.data_dir / "topics").glob("__transaction_state*/*"):
        shutil.rmtree(path)
    hand.broker = hand._open()


def test_a_transaction_that_nobody_knows_is_aborted_when_none_can_be_so_old(hand: HandBroker) -> None:
    begun(hand, "x", b"lost")
    lose_coordinator(hand)
    hand.advance(LONGEST_S - MINUTE_S)
    assert hand.broker.logs.log(hand.broker.topic("t"), 0).last_stable_offset == 0, "it may still be told of"
    hand.advance(7 * MINUTE_S)
    log = hand.broker.logs.log(hand.broker.topic("t"), 0)
    assert log.last_stable_offset == log.end_offset == 2
    assert read(hand, "t", READ_COMMITTED) == []
    assert read(hand, "t", READ_UNCOMMITTED) == [b"lost"]
    assert produce(hand, "x", init(hand, "x")[1:], 0, "t", b"new").error_code == 0


def test_a_transaction_whose_coordinator_watches_it_is_left_alone(hand: HandBroker) -> None:
    """It may have records of any age."""
    hand.advance(2 * LONGEST_S)
    producer = begun(hand, "x", b"v")
    entry = hand.broker.logs.log(hand.broker.topic("t"), 0).producers.entries[producer[0]]
    entry.updated_ms = 0
    hand.advance(LONGEST_S - MINUTE_S)
    assert producers(hand, "t")[producer[0]].current_txn_start_offset == 0
    assert end(hand, "x", producer, True).code == 0
    assert read(hand, "t", READ_COMMITTED) == [b"v"]


def test_a_commit_that_lost_its_marker_gets_it_again(hand: HandBroker, tmp_path: Path) -> None:
    producer = begun(hand, "x", b"v")
    shutil.copytree(next((hand.data_dir / "topics").glob("t.*")), tmp_path / "before")
    assert end(hand, "x", producer, True).code == 0
    hand.broker.close()
    path = next((hand.data_dir / "topics").glob("t.*"))
    shutil.rmtree(path)
    shutil.copytree(tmp_path / "before", path)
    hand.broker = hand._open()
    assert read(hand, "t", READ_COMMITTED) == []
    hand.advance(LONGEST_S + 6 * MINUTE_S)
    assert read(hand, "t", READ_COMMITTED) == [b"v"]
    assert mark(hand, "t", producer, True) in (0, 47), "an operator's marker is no surprise"
