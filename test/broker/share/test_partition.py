from __future__ import annotations

from collections.abc import Sequence

import pytest

from kafka.broker.share.partition import SharePartition
from kafka.broker.share.states import (
    ACCEPT,
    ACKNOWLEDGED,
    ARCHIVED,
    AVAILABLE,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    WAKE_AS_KAFKA_4_3,
    WAKE_PROMPTLY,
    AckBatch,
    Acquired,
    AcquireMode,
    ShareEvent,
    ShareSettings,
    StateRange,
)
from kafka.errors import InvalidRecordStateError, InvalidRequestError, KafkaStorageError


class Desk:
    """A share partition over a log of batches of equal size, with a record of what was made durable."""

    def __init__(self, batch: int = 10, records: int = 1000, start: int = 0, **settings: float | bool) -> None:
        self.batch = batch
        self.records = records
        self.written: list[tuple[int, list[StateRange]]] = []
        self.fails = False
        self.partition = SharePartition(start, ShareSettings(**settings), self.persist)  # type: ignore[arg-type]

    def persist(self, start: int, changes: Sequence[StateRange]) -> None:
        if self.fails:
            raise KafkaStorageError("the disk is full")
        self.written.append((start, list(changes)))

    def acquire(
        self, count: int, member: str = "m", now: float = 0.0, exact: bool = True, size: int = 1000, at_once: int = 1000
    ) -> list[Acquired]:
        offset = self.partition.next_fetch_offset()
        if not self.partition.can_acquire():
            return []
        first = offset - offset % self.batch
        end = min(first + at_once, self.records)
        bounds = [(base, base + self.batch - 1) for base in range(first, end, self.batch)]
        return self.partition.acquire(
            member,
            bounds,
            fetch_offset=offset,
            max_records=count,
            batch_size=size,
            mode=AcquireMode.RECORD_LIMIT if exact else AcquireMode.BATCH_OPTIMIZED,
            now=now,
        )

    def ack(self, first: int, last: int, *types: int, member: str = "m", now: float = 0.0) -> ShareEvent:
        return self.partition.acknowledge(member, [AckBatch(first, last, types)], now)


def test_record_limit_gives_exactly_as_many_and_then_the_rest_of_the_batch() -> None:
    desk = Desk()
    assert desk.acquire(4) == [Acquired(0, 3, 1)]
    assert desk.partition.next_fetch_offset() == 4
    assert desk.partition.end_offset == 10
    assert desk.acquire(4) == [Acquired(4, 7, 1)]
    assert desk.acquire(4) == [Acquired(8, 9, 1), Acquired(10, 11, 1)]


def test_batch_optimised_takes_whole_batches() -> None:
    desk = Desk()
    assert desk.acquire(12, exact=False) == [Acquired(0, 19, 1)]
    assert desk.acquire(1, exact=False) == [Acquired(20, 29, 1)]


def test_acquired_ranges_are_split_at_batches_borders_by_batch_size() -> None:
    desk = Desk()
    assert desk.acquire(50, exact=False, size=15) == [Acquired(0, 19, 1), Acquired(20, 39, 1), Acquired(40, 49, 1)]
    assert Desk().acquire(30, exact=False, size=0) == [Acquired(0, 9, 1), Acquired(10, 19, 1), Acquired(20, 29, 1)]


def test_the_window_is_a_span_and_not_a_count() -> None:
    desk = Desk(batch=1, max_locks=100)
    assert desk.acquire(1000) == [Acquired(0, 99, 1)]
    assert desk.ack(1, 99, ACCEPT) == ShareEvent.NOTHING
    assert not desk.partition.can_acquire()
    assert desk.acquire(1000) == []
    assert desk.ack(0, 0, ACCEPT) == ShareEvent.START_MOVED
    assert desk.acquire(1000) == [Acquired(100, 199, 1)]


def test_the_window_overshoots_by_one_batch_at_most() -> None:
    desk = Desk(batch=30, max_locks=100)
    assert desk.acquire(1000, exact=False) == [Acquired(0, 119, 1)]
    assert not desk.partition.can_acquire()


def test_released_records_are_delivered_again_while_the_window_is_full() -> None:
    desk = Desk(batch=1, max_locks=100)
    desk.acquire(1000)
    assert desk.ack(20, 20, RELEASE) == ShareEvent.RELEASED
    assert desk.partition.can_acquire()
    assert desk.acquire(1000) == [Acquired(20, 20, 2)]
    assert desk.acquire(1000) == []


def test_redelivery_comes_before_new_records() -> None:
    desk = Desk()
    desk.acquire(10)
    desk.ack(3, 4, RELEASE)
    assert desk.partition.next_fetch_offset() == 3
    assert desk.acquire(5) == [Acquired(3, 4, 2), Acquired(10, 12, 1)]


def test_accept_reject_and_gap_end_a_record_and_release_gives_it_back() -> None:
    desk = Desk()
    desk.acquire(10)
    event = desk.ack(0, 9, ACCEPT, REJECT, GAP, RELEASE, *[ACCEPT] * 6)
    assert event == ShareEvent.START_MOVED | ShareEvent.RELEASED
    assert desk.partition.start_offset == 3
    assert desk.written == [
        (
            0,
            [
                StateRange(0, 0, ACKNOWLEDGED, 1),
                StateRange(1, 1, ARCHIVED, 1),
                StateRange(2, 2, ARCHIVED, 1),
                StateRange(3, 3, AVAILABLE, 1),
                StateRange(4, 9, ACKNOWLEDGED, 1),
            ],
        )
    ]
    assert desk.partition.delivery_complete_count == 6


def test_release_at_the_limit_of_deliveries_ends_the_record() -> None:
    desk = Desk(batch=1, records=1, delivery_limit=2)
    for delivery in (1, 2):
        assert desk.acquire(5) == [Acquired(0, 0, delivery)]
        desk.ack(0, 0, RELEASE)
    assert desk.partition.start_offset == 1
    assert desk.partition.next_fetch_offset() == 1


def test_release_and_close_do_not_wake_a_parked_fetch_on_kafka_but_may_here() -> None:
    desk = Desk()
    desk.acquire(10)
    for event in (desk.ack(3, 3, RELEASE), desk.partition.release("m", 0.0)):
        assert not event.wakes(WAKE_AS_KAFKA_4_3)
        assert event.wakes(WAKE_PROMPTLY)


def test_a_lock_ends_at_its_time_and_that_wakes() -> None:
    desk = Desk(lock_s=30.0)
    desk.acquire(10, now=5.0)
    assert desk.partition.next_deadline == 35.0
    assert desk.partition.tick(34.9) == ShareEvent.NOTHING
    event = desk.partition.tick(35.0)
    assert event == ShareEvent.LOCK_EXPIRED
    assert event.wakes(WAKE_AS_KAFKA_4_3)
    assert desk.written == [(0, [StateRange(0, 9, AVAILABLE, 1)])]
    assert desk.partition.next_deadline is None
    with pytest.raises(InvalidRecordStateError):
        desk.ack(0, 0, ACCEPT, now=35.0)


@pytest.mark.parametrize("late", ["acknowledgement", "acquisition"])
def test_locks_that_another_call_finds_over_are_told_by_the_next_tick(late: str) -> None:
    """Else a fetch that is parked on the partition would not be woken for what it could have."""
    asked: list[float] = []
    desk = Desk(records=10, lock_s=5.0)
    desk.partition = SharePartition(0, ShareSettings(lock_s=5.0), desk.persist, on_deadline=asked.append)
    desk.acquire(10, "m", now=0.0)
    asked.clear()
    if late == "acknowledgement":
        with pytest.raises(InvalidRecordStateError):
            desk.partition.acknowledge("m", [AckBatch(0, 9, (ACCEPT,))], 6.0)
    else:
        assert desk.partition.acquire(
            "n", [(10, 19)], fetch_offset=10, max_records=0, batch_size=1, mode=AcquireMode.RECORD_LIMIT, now=6.0
        ) == []
    assert asked == [6.0]
    assert desk.partition.tick(6.0) == ShareEvent.LOCK_EXPIRED
    assert desk.partition.tick(6.0) == ShareEvent.NOTHING


def test_renew_restarts_the_lock_any_number_of_times_and_counts_nothing() -> None:
    desk = Desk(lock_s=15.0)
    desk.acquire(10, now=0.0)
    for now in (7.0, 14.0, 21.0):
        assert desk.ack(2, 3, RENEW, now=now) & ~ShareEvent.LOCK_EXPIRED == ShareEvent.NOTHING
    assert desk.partition.held_by("m") == [(2, 3)]
    assert desk.ack(2, 3, ACCEPT, now=24.0) == ShareEvent.NOTHING
    assert desk.acquire(2, now=24.0)[0] == Acquired(0, 1, 2)


def test_renew_that_the_group_forbids_is_an_invalid_state() -> None:
    desk = Desk(renew_enabled=False)
    desk.acquire(10)
    with pytest.raises(InvalidRecordStateError):
        desk.ack(0, 9, RENEW)


def test_one_bad_offset_fails_the_whole_list_and_changes_nothing() -> None:
    desk = Desk()
    desk.acquire(10)
    desk.ack(5, 5, ACCEPT)
    del desk.written[:]
    bad = [AckBatch(0, 2, (ACCEPT,)), AckBatch(4, 6, (ACCEPT,))]
    with pytest.raises(InvalidRecordStateError):
        desk.partition.acknowledge("m", bad, 0.0)
    assert not desk.written
    assert desk.partition.held_by("m") == [(0, 4), (6, 9)]
    with pytest.raises(InvalidRecordStateError):
        desk.partition.acknowledge("m", [AckBatch(0, 1, (ACCEPT,)), AckBatch(1, 2, (ACCEPT,))], 0.0)


def test_acknowledgements_by_others_twice_or_of_nothing_are_refused_with_kafkas_codes() -> None:
    desk = Desk()
    with pytest.raises(InvalidRecordStateError):
        desk.ack(0, 0, ACCEPT)
    desk.acquire(10)
    with pytest.raises(InvalidRecordStateError):
        desk.ack(0, 0, ACCEPT, member="other")
    with pytest.raises(InvalidRequestError):
        desk.ack(5, 10, ACCEPT)
    with pytest.raises(InvalidRequestError):
        desk.ack(10, 10, ACCEPT)
    desk.ack(4, 4, ACCEPT)
    with pytest.raises(InvalidRecordStateError):
        desk.ack(4, 4, ACCEPT)
    desk.ack(0, 3, ACCEPT)
    assert desk.ack(0, 4, ACCEPT) == ShareEvent.NOTHING  # below the start: done already


def test_closing_a_session_releases_its_members_locks_only_and_keeps_the_counts() -> None:
    desk = Desk()
    desk.acquire(4, member="a")
    desk.acquire(4, member="b")
    assert desk.partition.release("a", 0.0) == ShareEvent.RELEASED
    assert desk.partition.held_by("b") == [(4, 7)]
    assert desk.acquire(10, member="c") == [Acquired(0, 3, 2), Acquired(8, 9, 1), Acquired(10, 13, 1)]


def test_redelivery_goes_in_halves_and_the_last_attempt_alone() -> None:
    desk = Desk(batch=16, records=16, delivery_limit=6)
    for _ in range(3):
        assert desk.acquire(100, exact=False)[0].last == 15
        desk.partition.release("m", 0.0)
    assert desk.acquire(100, exact=False) == [Acquired(0, 7, 4)]
    desk.partition.release("m", 0.0)
    assert desk.acquire(100, exact=False) == [Acquired(0, 3, 5)]
    desk.partition.release("m", 0.0)
    assert desk.acquire(100, exact=False) == [Acquired(0, 0, 6)]
    assert desk.acquire(100, exact=False) == [Acquired(1, 1, 6)]
    desk.ack(1, 1, RELEASE)
    assert desk.partition.state_ranges()[1] == StateRange(1, 1, ARCHIVED, 6)


def test_a_throttled_batch_comes_with_nothing_else() -> None:
    desk = Desk(batch=4, delivery_limit=5)
    desk.acquire(8, exact=False, size=4)
    for _ in range(2):
        desk.ack(4, 7, RELEASE)
        desk.acquire(4, exact=False, at_once=4)
    desk.ack(4, 7, RELEASE)
    desk.ack(0, 3, RELEASE)
    assert desk.acquire(100, exact=False) == [Acquired(0, 3, 2)]
    assert desk.acquire(100, exact=False) == [Acquired(4, 5, 4)]


def test_nothing_changes_when_the_write_fails() -> None:
    desk = Desk()
    desk.acquire(10)
    desk.fails = True
    with pytest.raises(KafkaStorageError):
        desk.ack(0, 9, ACCEPT)
    assert desk.partition.held_by("m") == [(0, 9)]
    desk.fails = False
    assert desk.ack(0, 9, ACCEPT) == ShareEvent.START_MOVED


def test_locks_end_even_when_the_write_of_it_fails() -> None:
    desk = Desk()
    desk.acquire(10)
    desk.fails = True
    assert desk.partition.release("m", 0.0) == ShareEvent.RELEASED
    assert desk.acquire(2) == [Acquired(0, 1, 2)]


def test_records_that_compaction_removed_do_not_hold_the_start() -> None:
    desk = Desk(batch=10)
    desk.acquire(20)
    desk.ack(10, 19, ACCEPT)
    desk.partition.release("m", 0.0)
    taken = desk.partition.acquire(
        "m", [(20, 29)], fetch_offset=0, max_records=5, batch_size=5, mode=AcquireMode.RECORD_LIMIT, now=0.0
    )
    assert taken == [Acquired(20, 24, 1)]
    assert desk.partition.start_offset == 20


def test_deleting_records_moves_the_start_and_acks_below_it_are_done() -> None:
    desk = Desk()
    desk.acquire(20)
    assert desk.partition.log_start_moved(15) == ShareEvent.START_MOVED
    assert desk.partition.start_offset == 15
    assert desk.ack(0, 9, ACCEPT) == ShareEvent.NOTHING
    assert desk.ack(10, 19, ACCEPT) == ShareEvent.START_MOVED
    assert desk.partition.log_start_moved(500) == ShareEvent.START_MOVED
    assert (desk.partition.start_offset, desk.partition.end_offset, desk.partition.next_fetch_offset()) == (500,) * 3


def test_records_of_aborted_transactions_are_archived_at_once() -> None:
    desk = Desk()
    desk.acquire(20, exact=False)
    assert desk.partition.archive("m", 0, 9) == ShareEvent.START_MOVED
    assert desk.partition.start_offset == 10
    assert desk.partition.held_by("m") == [(10, 19)]


def test_a_restored_partition_fills_holes_with_records_never_delivered() -> None:
    restored = [StateRange(12, 14, ACKNOWLEDGED, 1), StateRange(17, 18, AVAILABLE, 3)]
    partition = SharePartition(10, ShareSettings(delivery_limit=10), lambda start, changes: None, restored)
    assert (partition.start_offset, partition.end_offset) == (10, 19)
    taken = partition.acquire(
        "m", [(10, 29)], fetch_offset=10, max_records=20, batch_size=500, mode=AcquireMode.RECORD_LIMIT, now=0.0
    )
    assert taken == [Acquired(10, 11, 1), Acquired(15, 16, 1), Acquired(17, 18, 4), Acquired(19, 29, 1)]


def test_a_record_on_its_last_attempt_waits_until_it_can_come_alone() -> None:
    restored = [StateRange(1, 1, AVAILABLE, 4)]
    partition = SharePartition(0, ShareSettings(delivery_limit=5), lambda start, changes: None)
    partition.acquire("m", [(0, 3)], fetch_offset=0, max_records=9, batch_size=9, now=0.0)
    for _ in range(3):
        partition.acknowledge("m", [AckBatch(1, 1, (RELEASE,))], 0.0)
        partition.acquire("m", [(0, 3)], fetch_offset=1, max_records=9, batch_size=9, now=0.0)
    partition.acknowledge("m", [AckBatch(0, 3, (RELEASE,))], 0.0)
    assert partition.state_ranges()[1] == restored[0]
    again = [
        partition.acquire(
            "m", [(0, 3)], fetch_offset=partition.next_fetch_offset(), max_records=9, batch_size=9, now=0.0
        )
        for _ in range(3)
    ]
    assert again == [[Acquired(0, 0, 2)], [Acquired(1, 1, 5)], [Acquired(2, 3, 2)]]
