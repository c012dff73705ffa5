"""Tests of ``kafka.producer.sending``: what waits for many records at once."""

from __future__ import annotations

import pytest

from kafka._compiled import IS_COMPILED
from kafka.core.produce.batch import BatchResult, PendingRecords
from kafka.errors import KafkaTimeoutError
from kafka.future import Future
from kafka.producer import FutureRecordMetadata, when_all_done


class Done:
    """Counts calls."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def a_parcel() -> PendingRecords:
    return PendingRecords("jobs", 0.0, lambda: None)


def futures_of(pending_records: PendingRecords, count: int) -> list[FutureRecordMetadata]:
    return [FutureRecordMetadata(pending_records, index, 0, 0, 0, 0) for index in range(count)]


def test_nothing_to_wait_for_is_done_at_once() -> None:
    done = Done()
    when_all_done([], done)
    pending_records = a_parcel()
    pending_records.done.success(BatchResult(0, 7))
    when_all_done(futures_of(pending_records, 3), done)
    assert done.count == 2


def test_it_is_called_once_when_the_last_batch_is_answered_well_or_not() -> None:
    done = Done()
    first, second = a_parcel(), a_parcel()
    futures = futures_of(first, 100) + futures_of(second, 2)
    when_all_done(futures, done)
    first.done.success(BatchResult(5, 1234))
    assert done.count == 0
    second.done.failure(KafkaTimeoutError("too late"))
    assert done.count == 1
    assert {future.append_time_ms for future in futures[:100]} == {1234}
    assert futures[-1].append_time_ms == -1
    assert isinstance(futures[-1].exception, KafkaTimeoutError)


def test_records_that_move_are_followed_to_where_they_are() -> None:
    done = Done()
    unassigned, left, right = a_parcel(), a_parcel(), a_parcel()
    futures = futures_of(unassigned, 2)
    when_all_done(futures, done)
    unassigned.move([(left, 0), (right, 4)])
    assert done.count == 0
    right.done.success(BatchResult(0, 2))
    assert done.count == 0
    left.done.success(BatchResult(0, 1))
    assert done.count == 1
    assert [future.append_time_ms for future in futures] == [1, 2]


class MovesWhenLookedAt(PendingRecords):
    """Another thread moves the record on just when its end is looked at."""

    target: PendingRecords | None = None

    @property  # type: ignore[override]
    def done(self) -> Future[BatchResult]:
        target, self.target = self.target, None
        if target is not None:
            self.move([(target, 4)])
        return self._done

    @done.setter
    def done(self, done: Future[BatchResult]) -> None:
        self._done = done


@pytest.mark.skipif(IS_COMPILED, reason="a compiled Parcel takes no property in the place of an attribute")
def test_a_record_that_moves_while_it_is_looked_at_is_not_done() -> None:
    target = a_parcel()
    for look in (lambda future: future.is_done, lambda future: future.succeeded(), lambda future: future.value):
        pending_records = MovesWhenLookedAt("jobs", 0.0, lambda: None)
        (future,) = futures_of(pending_records, 1)
        pending_records.target = target
        assert not look(future)
    target.done.success(BatchResult(10, -1))
    assert future.value is not None and future.value.offset == 14


def test_threads_that_look_do_not_disturb_one_another() -> None:
    pending_records, target = a_parcel(), a_parcel()
    future = futures_of(pending_records, 8)[7]
    pending_records.move([(a_parcel(), 0)] * 7 + [(target, 2)])
    assert future.partition == -1
    target.done.success(BatchResult(10, -1))
    assert future._pending is pending_records and future._index == 7, (
        "what one thread has written another would read half"
    )
    assert future.value is not None and future.value.offset == 12
