from __future__ import annotations

import json

import pytest

from kafka.broker.log import ProducerStates
from kafka.errors import InvalidProducerEpochError, OutOfOrderSequenceNumberError
from kafka.records import BatchHeader, parse_header
from test.broker.log.batches import batch

LAST = 2**31 - 1


def header(sequence: int, *, count: int = 2, producer_id: int = 9, epoch: int = 0) -> BatchHeader:
    found = parse_header(batch([b"x"] * count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))
    assert found is not None
    return found


def states(*sequences: int, epoch: int = 0) -> ProducerStates:
    producers = ProducerStates()
    for at, sequence in enumerate(sequences):
        found = header(sequence, epoch=epoch)
        assert producers.check(found) is None
        producers.update(found, 100 + 2 * at, 50 + at)
    return producers


def test_batches_in_sequence_are_new() -> None:
    assert states(0, 2, 4).check(header(6)) is None


def test_the_last_five_batches_are_known_as_duplicates() -> None:
    producers = states(0, 2, 4, 6, 8, 10)
    for at, sequence in enumerate((2, 4, 6, 8, 10), start=1):
        duplicate = producers.check(header(sequence))
        assert duplicate is not None
        assert (duplicate.base_offset, duplicate.timestamp) == (100 + 2 * at, 50 + at)
    with pytest.raises(OutOfOrderSequenceNumberError):
        producers.check(header(0))


def test_a_gap_and_a_batch_of_another_size_are_out_of_order() -> None:
    for found in (header(8), header(4, count=3), header(3)):
        with pytest.raises(OutOfOrderSequenceNumberError):
            states(0, 2, 4).check(found)


def test_sequences_wrap_to_zero() -> None:
    producers = ProducerStates()
    producers.update(header(LAST - 1), 0, 1)
    assert producers.check(header(0)) is None
    with pytest.raises(OutOfOrderSequenceNumberError):
        producers.check(header(1))


def test_a_new_epoch_must_begin_at_zero_and_fences_the_old_one() -> None:
    producers = states(0, 2)
    with pytest.raises(OutOfOrderSequenceNumberError):
        producers.check(header(4, epoch=1))
    assert producers.check(header(0, epoch=1)) is None
    producers.update(header(0, epoch=1), 104, 1)
    with pytest.raises(InvalidProducerEpochError):
        producers.check(header(2, epoch=0))


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert states(0).check(header(70, producer_id=10)) is None


def test_silent_producers_are_forgotten() -> None:
    producers = states(0)
    producers.expire(60, after_ms=20)
    assert producers.entries
    producers.expire(70, after_ms=20)
    assert not producers.entries


def test_a_snapshot_brings_everything_back() -> None:
    again = ProducerStates()
    again.restore(json.loads(json.dumps(states(0, 2, 4).snapshot())))
    duplicate = again.check(header(2))
    assert duplicate is not None
    assert duplicate.base_offset == 102
    assert again.check(header(6)) is None
