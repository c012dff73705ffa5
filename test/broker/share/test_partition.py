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

    def held_by(self, member: str) -> list[tuple[int, int]]:
        return [(run.first, run.last) for run in self.partition.acquired_by(member)]

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
def test_locks_that_another_call_finds_expired_are_returned_by_the_next_tick(late: str) -> None:
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
    assert desk.held_by("m") == [(2, 3)]
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
    assert desk.held_by("m") == [(0, 4), (6, 9)]
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
    assert desk.held_by("b") == [(4, 7)]
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
    assert desk.held_by("m") == [(0, 9)]
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
    assert desk.held_by("m") == [(10, 19)]


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


def test_batches_are_taken_whole_unless_the_request_says_otherwise() -> None:
    """ShareAcquireMode.BATCH_OPTIMIZED is what a ShareFetch without a mode gets (KIP-1206)."""
    desk = Desk()
    taken = desk.partition.acquire("m", [(0, 9), (10, 19)], fetch_offset=0, max_records=4, batch_size=1000, now=0.0)
    assert taken == [Acquired(0, 9, 1)]


def test_an_acquisition_at_the_end_of_a_lock_gets_the_records() -> None:
    desk = Desk(records=10, lock_s=5.0)
    desk.acquire(10, "m", now=0.0)
    assert desk.partition.acquire("n", [(0, 9)], fetch_offset=0, max_records=10, batch_size=10, now=4.9) == []
    assert desk.partition.acquire("n", [(0, 9)], fetch_offset=0, max_records=10, batch_size=10, now=5.0) == [
        Acquired(0, 9, 2)
    ]
    assert desk.partition.next_deadline == 10.0


@pytest.mark.parametrize(("fetched", "most"), [([], 5), ([(10, 19)], 0), ([(10, 19)], -1)])
def test_an_acquisition_of_nothing_changes_nothing(fetched: list[tuple[int, int]], most: int) -> None:
    desk = Desk()
    desk.acquire(10)
    desk.partition.release("m", 0.0)
    taken = desk.partition.acquire("m", fetched, fetch_offset=0, max_records=most, batch_size=5, now=0.0)
    assert taken == []
    assert (desk.partition.start_offset, desk.partition.next_fetch_offset()) == (0, 0)


def test_the_last_record_of_a_full_window_is_delivered_again() -> None:
    desk = Desk(batch=1, max_locks=100)
    desk.acquire(1000)
    desk.ack(98, 99, RELEASE)
    assert desk.acquire(1000) == [Acquired(98, 99, 2)]
    desk.ack(98, 99, RELEASE)
    assert desk.acquire(1) == [Acquired(98, 98, 3)]
    assert desk.acquire(1) == [Acquired(99, 99, 3)]


def test_all_that_the_log_does_not_have_any_more_is_passed_over() -> None:
    desk = Desk()
    desk.acquire(20)
    desk.ack(10, 19, ACCEPT)
    desk.partition.release("m", 0.0)
    desk.partition.acquire("m", [(10, 19)], fetch_offset=0, max_records=5, batch_size=5, now=0.0)
    assert (desk.partition.start_offset, desk.partition.next_fetch_offset()) == (20, 20)


def test_a_log_that_begins_behind_the_start_is_taken_from_where_it_begins() -> None:
    desk = Desk()
    taken = desk.partition.acquire("m", [(20, 29)], fetch_offset=0, max_records=5, batch_size=5, now=0.0)
    assert taken == [Acquired(20, 29, 1)]
    assert desk.partition.start_offset == 20


@pytest.mark.parametrize("size", [0, 1])
def test_the_least_size_of_a_range_is_one_record(size: int) -> None:
    assert Desk(batch=1).acquire(3, exact=False, size=size) == [Acquired(at, at, 1) for at in range(3)]


def test_parts_of_a_lock_that_were_renewed_at_the_same_time_are_one_range() -> None:
    desk = Desk()
    desk.acquire(10)
    desk.ack(2, 3, RENEW)
    assert desk.held_by("m") == [(0, 9)]


def test_one_request_acknowledges_in_several_batches_of_the_window_and_of_the_list() -> None:
    desk = Desk()
    desk.acquire(5)
    desk.acquire(5)
    desk.acquire(10)
    event = desk.partition.acknowledge("m", [AckBatch(0, 3, (ACCEPT,)), AckBatch(6, 11, (REJECT,))], 0.0)
    assert event == ShareEvent.START_MOVED
    ranges = [StateRange(0, 3, ACKNOWLEDGED, 1), StateRange(6, 9, ARCHIVED, 1), StateRange(10, 11, ARCHIVED, 1)]
    assert desk.written == [(0, ranges)]
    assert desk.held_by("m") == [(4, 5), (12, 19)]


def test_only_what_the_member_holds_is_archived_as_aborted() -> None:
    desk = Desk()
    desk.acquire(4, "a")
    desk.acquire(4, "b")
    assert desk.partition.archive("c", 0, 9) == ShareEvent.NOTHING
    assert not desk.written
    assert desk.partition.archive("a", 0, 9) == ShareEvent.START_MOVED
    assert desk.written == [(0, [StateRange(0, 3, ARCHIVED, 1)])]
    assert desk.held_by("b") == [(4, 7)]


def test_a_log_start_that_is_not_above_the_start_changes_nothing() -> None:
    desk = Desk(start=10)
    desk.acquire(10)
    for log_start in (9, 10):
        assert desk.partition.log_start_moved(log_start) == ShareEvent.NOTHING
    assert desk.held_by("m") == [(10, 19)]


def test_deleting_records_ends_the_locks_on_them_and_no_others() -> None:
    desk = Desk()
    desk.acquire(10)
    desk.partition.log_start_moved(5)
    assert desk.held_by("m") == [(5, 9)]
    desk = Desk(batch=1)
    desk.acquire(1)
    desk.acquire(1)
    desk.partition.log_start_moved(1)
    assert desk.held_by("m") == [(1, 1)]


@pytest.mark.parametrize("end", ["close", "time"])
def test_a_lock_that_ends_at_the_limit_of_deliveries_ends_the_record(end: str) -> None:
    desk = Desk(batch=1, records=1, delivery_limit=2, lock_s=5.0)
    for delivery, more, state in ((1, ShareEvent.NOTHING, AVAILABLE), (2, ShareEvent.START_MOVED, ARCHIVED)):
        now = 10.0 * delivery
        assert desk.acquire(1, now=now) == [Acquired(0, 0, delivery)]
        if end == "close":
            assert desk.partition.release("m", now) == ShareEvent.RELEASED | more
        else:
            assert desk.partition.tick(now + 5.0) == ShareEvent.LOCK_EXPIRED | more
        assert desk.written.pop() == (0, [StateRange(0, 0, state, delivery)])
    assert desk.partition.start_offset == 1


def test_there_is_no_deadline_when_all_is_done() -> None:
    desk = Desk(lock_s=5.0)
    desk.acquire(10)
    desk.acquire(10)
    desk.ack(0, 9, ACCEPT)
    assert desk.partition.next_deadline == 5.0
    desk.ack(10, 19, ACCEPT)
    assert desk.partition.next_deadline is None


def test_the_next_deadline_is_that_of_the_lock_that_ends_first() -> None:
    asked: list[float] = []
    desk = Desk()
    desk.partition = SharePartition(0, ShareSettings(lock_s=5.0), desk.persist, on_deadline=asked.append)
    for now in (1.0, 3.0, 2.0, 1.0):
        desk.acquire(10, now=now)
    assert (desk.partition.next_deadline, asked) == (6.0, [6.0])
    assert desk.partition.tick(6.0) == ShareEvent.LOCK_EXPIRED
    assert desk.partition.next_deadline == 7.0
    assert desk.held_by("m") == [(10, 19), (20, 29)]
    assert desk.partition.tick(7.0) == ShareEvent.LOCK_EXPIRED
    assert desk.held_by("m") == [(10, 19)]
    assert desk.partition.next_deadline == 8.0
    assert desk.partition.tick(8.0) == ShareEvent.LOCK_EXPIRED
    assert desk.partition.next_deadline is None


def test_batches_of_the_window_come_again_one_by_one_and_parts_with_their_neighbour() -> None:
    """SharePartition.acquire: one AcquiredRecords for each batch in flight that is taken whole."""
    for count, exact, taken in (
        (10, False, [Acquired(0, 9, 2)]),
        (15, False, [Acquired(0, 9, 2), Acquired(10, 19, 2)]),
        (20, False, [Acquired(0, 9, 2), Acquired(10, 19, 2)]),
        (10, True, [Acquired(0, 9, 2)]),
        (15, True, [Acquired(0, 14, 2)]),
        (20, True, [Acquired(0, 9, 2), Acquired(10, 19, 2)]),
    ):
        desk = Desk(records=20)
        desk.acquire(10)
        desk.acquire(10)
        desk.partition.release("m", 0.0)
        assert desk.acquire(count, exact=exact) == taken


def test_neighbours_of_one_delivery_count_are_one_range_and_others_are_not() -> None:
    desk = Desk(records=10)
    desk.acquire(4)
    desk.partition.release("m", 0.0)
    assert desk.acquire(10) == [Acquired(0, 3, 2), Acquired(4, 9, 1)]
    desk = Desk(records=10)
    desk.acquire(10)
    desk.ack(2, 3, REJECT)
    desk.partition.release("m", 0.0)
    assert desk.acquire(10) == [Acquired(0, 1, 2), Acquired(4, 9, 2)]


def test_what_is_locked_next_to_a_lock_of_the_same_time_is_one_lock() -> None:
    desk = Desk()
    desk.acquire(4)
    desk.acquire(6)
    assert desk.held_by("m") == [(0, 9)]
    assert desk.partition.next_fetch_offset() == 10
    desk.acquire(10)
    assert desk.partition.next_fetch_offset() == 20


def test_an_exact_number_is_one_range_whatever_the_size_of_ranges() -> None:
    assert Desk().acquire(25, size=5) == [Acquired(0, 24, 1)]


def test_two_deliveries_are_not_throttled_and_three_are_with_the_last_one_alone() -> None:
    """SharePartition: no last attempt for a maxDeliveryCount of 2; throttleRecordsDeliveryLimit is at least 2."""
    desk = Desk(records=10, delivery_limit=2)
    desk.acquire(10)
    desk.partition.release("m", 0.0)
    assert desk.acquire(5) == [Acquired(0, 4, 2)]
    desk = Desk(records=10, delivery_limit=3)
    for delivery in (1, 2):
        assert desk.acquire(10) == [Acquired(0, 9, delivery)]
        desk.partition.release("m", 0.0)
    assert desk.acquire(10) == [Acquired(0, 0, 3)]


def test_a_throttled_part_has_at_least_one_record() -> None:
    desk = Desk(batch=4, records=4, delivery_limit=9)
    for delivery in (1, 2, 3, 4, 5):
        assert desk.acquire(10, exact=False) == [Acquired(0, 3, delivery)]
        desk.partition.release("m", 0.0)
    for delivery, last in ((6, 1), (7, 0), (8, 0), (9, 0)):
        assert desk.acquire(10, exact=False) == [Acquired(0, last, delivery)]
        desk.partition.release("m", 0.0)


def test_a_batch_is_throttled_by_what_is_available_in_it() -> None:
    desk = Desk(delivery_limit=6)
    desk.acquire(10)
    desk.ack(1, 4, ACCEPT)
    for delivery in (1, 2, 3):
        desk.ack(5, 9, RELEASE)
        assert desk.acquire(5, exact=False, at_once=10) == [Acquired(5, 9, delivery + 1)]
    desk.ack(0, 0, RELEASE)
    assert desk.acquire(5, exact=False) == [Acquired(0, 0, 2), Acquired(10, 19, 1)]
    desk.ack(5, 9, RELEASE)
    assert desk.acquire(100, exact=False) == [Acquired(5, 6, 5)]


def test_a_throttled_batch_waits_for_a_request_that_begins_with_it() -> None:
    desk = Desk(delivery_limit=6)
    desk.acquire(10)
    for _ in range(2):
        desk.ack(5, 9, RELEASE)
        desk.acquire(5, at_once=10)
    desk.ack(0, 1, RELEASE)
    desk.ack(5, 9, RELEASE)
    assert desk.acquire(100, exact=False) == [Acquired(0, 1, 2), Acquired(5, 7, 4)]


def test_a_part_that_is_as_large_as_the_throttled_one_may_be_does_not_end_it() -> None:
    """SharePartition.acquireSubsetBatchRecords: the size is compared for equality after each record that is taken."""
    desk = Desk(delivery_limit=6)
    desk.acquire(10)
    for _ in range(2):
        desk.ack(5, 9, RELEASE)
        assert desk.acquire(5, at_once=10)[0].first == 5
    desk.ack(0, 4, RELEASE)
    desk.ack(5, 9, RELEASE)
    assert desk.acquire(100, exact=False) == [Acquired(0, 4, 2), Acquired(5, 9, 4)]


def test_what_an_exact_number_leaves_of_a_batch_is_fetched_though_others_were_taken_behind_it() -> None:
    desk = Desk()
    assert desk.acquire(9) == [Acquired(0, 8, 1)]
    behind = desk.partition.acquire("n", [(10, 19)], fetch_offset=10, max_records=10, batch_size=10, now=0.0)
    assert behind == [Acquired(10, 19, 1)]
    assert desk.partition.next_fetch_offset() == 9
