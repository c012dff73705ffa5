"""Tests of ``kafka.producer.future``: what waits for many records at once."""

from __future__ import annotations

from kafka.core.produce.batch import BatchResult, Parcel
from kafka.errors import KafkaTimeoutError
from kafka.producer import FutureRecordMetadata, when_all_done


class Done:
    """Counts calls."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def a_parcel() -> Parcel:
    return Parcel("jobs", 0.0, lambda: None)


def futures_of(parcel: Parcel, count: int) -> list[FutureRecordMetadata]:
    return [FutureRecordMetadata(parcel, index, 0, (0, 0, 0)) for index in range(count)]


def test_nothing_to_wait_for_is_done_at_once() -> None:
    done = Done()
    when_all_done([], done)
    parcel = a_parcel()
    parcel.done.success(BatchResult(0, 7))
    when_all_done(futures_of(parcel, 3), done)
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
    parked, left, right = a_parcel(), a_parcel(), a_parcel()
    futures = futures_of(parked, 2)
    when_all_done(futures, done)
    parked.move([(left, 0), (right, 4)])
    assert done.count == 0
    right.done.success(BatchResult(0, 2))
    assert done.count == 0
    left.done.success(BatchResult(0, 1))
    assert done.count == 1
    assert [future.append_time_ms for future in futures] == [1, 2]
