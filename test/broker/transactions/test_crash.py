"""A broker that is killed between any two of its writes while a transaction ends: what the next start makes of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from kafka.broker.log import FilePool
from kafka.broker.transactions import coordinator
from kafka.errors import KafkaStorageError
from kafka.records import decode_control, decode_raw, iter_batches
from test.broker.driver import HandBroker
from test.broker.transactions.txn import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Answer,
    add,
    add_group,
    commit_offset,
    end,
    init,
    produce,
    read,
    state,
)

PLACES = (("t", 0), ("t", 2), ("u", 0))


def begun(hand: HandBroker, version: int) -> tuple[int, int]:
    """A transaction with a record in three partitions and an offset of the group ``g``; one of another producer, open,
    in the first of them."""
    other = init(hand, "other")[1:]
    assert produce(hand, "other", other, 0, "t", b"other").error_code == 0
    producer = init(hand, "x")[1:]
    produce_version = 12 if version == 5 else 11
    for topic, partition in PLACES:
        if version < 5:
            add(hand, "x", producer, topic, (partition,))
        answer = produce(hand, "x", producer, 0, topic, b"x", partition=partition, version=produce_version)
        assert answer.error_code == 0
    if version < 5:
        add_group(hand, "x", producer, "g")
    assert commit_offset(hand, "x", producer, "g", "u", 1, version=version) == 0
    end(hand, "other", other, True)
    return producer


def markers(hand: HandBroker, topic: str, partition: int, producer_id: int) -> list[int]:
    """The kinds of all markers of a producer in a partition, the broker's own topics included."""
    found = hand.broker.logs.log(hand.broker.topic(topic), partition)
    kinds = []
    offset = found.start_offset
    while offset < found.end_offset:
        data = bytes(found.read(offset, 1 << 20))
        for header in iter_batches(data):
            if header.is_control and header.producer_id == producer_id:
                kinds += [decode_control(record[2], record[3]).kind for record in decode_raw(data, header)]
            offset = header.next_offset
    return kinds


def copies_at_each_write(hand: HandBroker, where: Path, act: Callable[[], object]) -> list[Path]:
    """The data directory as it was before each write that ``act`` makes, and after the last one."""
    copies: list[Path] = []

    def copy() -> None:
        copies.append(where / f"copy-{len(copies)}")
        shutil.copytree(hand.data_dir, copies[-1])

    write = FilePool.write

    def copying(pool: FilePool, *args: Any) -> None:
        copy()
        write(pool, *args)

    with mock.patch.object(FilePool, "write", copying):
        act()
    copy()
    return copies


def offset_of_group(hand: HandBroker) -> int:
    found = [what.offset for where, what in hand.broker.offsets.of_group("g").items() if where.topic == "u"]
    return found[0] if found else -1


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("is_committed", [True, False])
def test_killed_between_two_writes_a_transaction_ends_everywhere_or_nowhere(
    hand: HandBroker, tmp_path: Path, version: int, is_committed: bool
) -> None:
    producer = begun(hand, version)
    copies = copies_at_each_write(hand, tmp_path, lambda: end(hand, "x", producer, is_committed, version))
    assert len(copies) == 1 + 1 + len(PLACES) + 1 + 1, "before it, decided, each marker, one for offsets, completed"
    outcomes = []
    for copy in copies:
        again = HandBroker(copy)
        outcome = state(again, "x")
        outcomes.append(outcome)
        kinds = [markers(again, topic, partition, producer[0]) for topic, partition in PLACES]
        if outcome == "Ongoing":
            assert kinds == [[], [], []]
            assert offset_of_group(again) == -1
            assert end(again, "x", producer, is_committed, version).code == 0
            kinds = [markers(again, topic, partition, producer[0]) for topic, partition in PLACES]
        else:
            answer = end(again, "x", producer, is_committed, version)
            assert answer == (Answer(0, producer[0], 1) if version == 5 else Answer(0)), "the client tries again"
        assert kinds == [[int(is_committed)]] * 3
        home = again.broker.transactions.offsets_partition("g")
        assert markers(again, *home, producer[0]) == [int(is_committed)]
        assert offset_of_group(again) == (1 if is_committed else -1)
        for topic, partition in PLACES:
            shown = [b"x"] if is_committed else []
            before = [b"other"] if (topic, partition) == PLACES[0] else []
            assert read(again, topic, READ_COMMITTED, partition) == before + shown
            assert read(again, topic, READ_UNCOMMITTED, partition) == before + [b"x"]
        again.broker.close()
    done = "CompleteCommit" if is_committed else "CompleteAbort"
    assert outcomes == ["Ongoing"] + [done] * (len(copies) - 1)


def test_killed_while_it_fences_the_ongoing_transaction_is_aborted_once(hand: HandBroker, tmp_path: Path) -> None:
    producer = begun(hand, 5)
    for copy in copies_at_each_write(hand, tmp_path, lambda: init(hand, "x")):
        again = HandBroker(copy)
        while (answer := init(again, "x")).code == 51:
            pass
        assert answer == Answer(0, producer[0], 2)
        assert [markers(again, topic, partition, producer[0]) for topic, partition in PLACES] == [[0]] * 3
        assert produce(again, "x", producer, 1, "t").error_code == 47
        again.broker.close()


def test_killed_while_a_transaction_begins_nothing_is_shown(hand: HandBroker, tmp_path: Path) -> None:
    producer = init(hand, "x")[1:]
    for copy in copies_at_each_write(hand, tmp_path, lambda: produce(hand, "x", producer, 0, "t", b"lost?")):
        again = HandBroker(copy)
        assert read(again, "t", READ_COMMITTED) == []
        assert produce(again, "x", producer, 0, "t", b"lost?").error_code == 0, "the client tries again"
        assert end(again, "x", producer, True).code == 0
        assert read(again, "t", READ_COMMITTED) == [b"lost?"]
        again.broker.close()


def failing(after: int) -> Any:
    """Writes that fail, but for the first ones."""
    write = FilePool.write
    count = 0

    def fail(pool: FilePool, *args: Any) -> None:
        nonlocal count
        count += 1
        if count > after:
            raise KafkaStorageError("no space left")
        write(pool, *args)

    return mock.patch.object(FilePool, "write", fail)


def test_what_the_disk_does_not_take_is_not_decided(hand: HandBroker) -> None:
    producer = begun(hand, 5)
    with failing(0):
        assert end(hand, "x", producer, True).code == 16
    assert state(hand, "x") == "Ongoing"
    assert end(hand, "x", producer, True).code == 0


@pytest.mark.parametrize("written", range(1, 6))
def test_what_is_decided_is_completed_when_the_disk_takes_it_again(hand: HandBroker, written: int) -> None:
    producer = begun(hand, 5)
    with failing(written):
        assert end(hand, "x", producer, True) == Answer(0, producer[0], 1), "decided"
        assert state(hand, "x") == "PrepareCommit"
        following = (producer[0], 1)
        assert end(hand, "x", producer, True).code == 51
        assert init(hand, "x").code == 51
        assert add(hand, "x", following, "t") == [51]
        assert produce(hand, "x", following, 0, "t", partition=1).error_code == 51
        late = produce(hand, "x", following, 0, "t", partition=1, version=11)
        assert (late.error_code, late.error_message) == (
            19,
            "Unable to verify the partition has been added to the transaction. Underlying error: "
            "CONCURRENT_TRANSACTIONS",
        )
        hand.advance(coordinator.RETRY_S * 3)
        assert state(hand, "x") == "PrepareCommit"
    hand.advance(coordinator.RETRY_S)
    assert state(hand, "x") == "CompleteCommit"
    assert [markers(hand, topic, partition, producer[0]) for topic, partition in PLACES] == [[1]] * 3
    assert offset_of_group(hand) == 1
