from __future__ import annotations

from uuid import UUID

from kafka.broker.groups.timers import DeadlineHeap
from kafka.broker.share.states import ACCEPT, AckBatch, AcquireMode
from test.broker.share.memory_journal import MemoryJournal
from test.broker.share.test_coordinator import Groups


def test_the_earliest_one_is_next_and_later_ones_change_nothing() -> None:
    deadlines: DeadlineHeap[str] = DeadlineHeap()
    assert deadlines.next_at is None
    deadlines.at_latest("a", 5.0)
    deadlines.at_latest("b", 3.0)
    deadlines.at_latest("a", 9.0)
    deadlines.at_latest("a", None)
    assert deadlines.next_at == 3.0
    deadlines.at_latest("a", 1.0)
    assert deadlines.next_at == 1.0
    assert deadlines.pop_due(4.0) == ["a", "b"]
    assert deadlines.next_at is None


def test_a_name_that_was_taken_out_or_discarded_is_not_asked() -> None:
    deadlines: DeadlineHeap[str] = DeadlineHeap()
    deadlines.at_latest("a", 1.0)
    deadlines.discard("a")
    deadlines.discard("a")
    assert deadlines.pop_due(9.0) == []
    assert len(deadlines) == 0


def test_one_name_has_one_entry_however_often_its_deadline_moves() -> None:
    deadlines: DeadlineHeap[str] = DeadlineHeap()
    for turn in range(10_000):
        deadlines.at_latest("a", 10_000.0 - turn)
    assert len(deadlines) == 1
    assert deadlines._heap.stored_count < 200


def test_locks_that_come_and_go_on_many_partitions_leave_one_deadline_each() -> None:
    groups = Groups(MemoryJournal())
    topic = UUID(int=7)
    partitions = [groups.partition("g", topic, number, lambda config: 0) for number in range(50)]
    for turn in range(20):
        for partition in partitions:
            taken = partition.acquire(
                "m", [(turn, turn)], fetch_offset=turn, max_records=1, batch_size=1,
                mode=AcquireMode.RECORD_LIMIT, now=float(turn),
            )  # fmt: skip
            partition.acknowledge("m", [AckBatch(taken[0].first, taken[0].last, (ACCEPT,))], float(turn))
    assert len(groups._deadlines) == 50
    assert groups.next_deadline == 30.0
    assert groups.tick(30.0) == {}
    assert groups.next_deadline is None, "nothing is locked any more"


def test_a_lock_that_ends_is_reported_once_and_only_by_its_partition() -> None:
    groups = Groups(MemoryJournal())
    topic = UUID(int=7)
    for number, now in ((0, 0.0), (1, 10.0)):
        partition = groups.partition("g", topic, number, lambda config: 0)
        partition.acquire("m", [(0, 0)], fetch_offset=0, max_records=1, batch_size=1, now=now)
    assert groups.next_deadline == 30.0
    assert [key.partition for key in groups.tick(30.0)] == [0]
    assert groups.next_deadline == 40.0
    assert [key.partition for key in groups.tick(40.0)] == [1]
    assert groups.next_deadline is None
