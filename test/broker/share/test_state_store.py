from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

import pytest

from kafka.broker.share.state_store import ShareKey, SharePartitionState, ShareStateStore
from kafka.broker.share.states import ACKNOWLEDGED, ARCHIVED, AVAILABLE, StateRange
from kafka.broker.state.records import (
    ShareGroupMetadataValue,
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateValue,
    decode_value,
)
from test.broker.share.memory_journal import Entries, Entry, MemoryJournal
from test.broker.state.keys import SHARE_KEYS

TOPIC = UUID(int=1)
KEY = ShareKey("g", TOPIC, 0)
OTHER = ShareKey("g", TOPIC, 1)


@dataclass
class Live:
    """A share partition in use, as the store sees it."""

    start_offset: int = 0
    ranges: list[StateRange] = field(default_factory=list)

    def state_ranges(self) -> Sequence[StateRange]:
        return self.ranges


def shown(entries: Entries) -> list[tuple[str, int, int, list[StateRange]]]:
    """Kind of record, snapshot epoch, start offset, ranges; what is always the same is asserted."""
    found: list[tuple[str, int, int, list[StateRange]]] = []
    for key, data in entries:
        assert data is not None
        value: ShareSnapshotValue | ShareUpdateValue
        if isinstance(SHARE_KEYS.decode(key), ShareSnapshotKey):
            kind, value = "snapshot", decode_value(ShareSnapshotValue, data)
            assert (value.state_epoch, value.create_timestamp, value.write_timestamp) == (0, 0, 0)
        else:
            kind, value = "update", decode_value(ShareUpdateValue, data)
        assert value.leader_epoch == 0
        ranges = [
            StateRange(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
            for one in value.state_batches
        ]
        found.append((kind, value.snapshot_epoch, value.start_offset, ranges))
    return found


def test_a_snapshot_comes_first_and_then_what_changes() -> None:
    """ShareCoordinatorShard: a ShareSnapshot of epoch 0, then ShareUpdates of its epoch."""
    journal = MemoryJournal()
    store = journal.store()
    live = Live(5, [StateRange(7, 8, AVAILABLE, 1)])
    store.attach(KEY, live)
    assert store.durable_start(KEY) is None
    first = [StateRange(9, 9, ARCHIVED, 1)]
    one = [StateRange(5, 5, ACKNOWLEDGED, 1)]
    two = [StateRange(6, 6, ACKNOWLEDGED, 2), StateRange(7, 7, AVAILABLE, 2)]
    store.write(KEY, 5, first)
    store.write(KEY, 5, one)
    store.write(KEY, 6, two)
    store.write(KEY, 8, [])
    assert shown(journal.entries) == [
        ("snapshot", 0, 5, [StateRange(7, 8, AVAILABLE, 1), StateRange(9, 9, ARCHIVED, 1)]),
        ("update", 0, 5, one),
        ("update", 0, 6, two),
        ("update", 0, 8, []),
    ]
    assert store.durable_start(KEY) == 8
    assert journal.store().durable_start(KEY) == 8


def test_an_offset_that_is_set_is_a_snapshot_each_time() -> None:
    journal = MemoryJournal()
    store = journal.store()
    assert store.keys() == set()
    for start in (40, 30, 50):
        store.write(KEY, start, [])
        assert store.durable_start(KEY) == start
    assert shown(journal.entries) == [("snapshot", 0, 40, []), ("snapshot", 1, 30, []), ("snapshot", 2, 50, [])]
    for found in (store, journal.store()):
        assert found.keys() == {KEY}
        assert found.load(KEY) == SharePartitionState(50, ())
        assert found.load(OTHER) is None
        assert found.durable_start(OTHER) is None


def test_what_is_in_use_has_a_key_and_nothing_to_load() -> None:
    store = MemoryJournal().store()
    store.write(KEY, 40, [])
    store.attach(KEY, Live(40))
    store.attach(OTHER, Live())
    assert store.keys() == {KEY, OTHER}
    assert store.load(KEY) is None
    assert (store.durable_start(KEY), store.durable_start(OTHER)) == (40, None)
    store.delete(KEY)
    assert store.keys() == {OTHER}


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        ([(10, 19)], (12, 14), [(10, 11), (12, 14), (15, 19)]),
        ([(10, 19)], (10, 14), [(10, 14), (15, 19)]),
        ([(10, 19)], (12, 19), [(10, 11), (12, 19)]),
        ([(10, 19)], (10, 19), [(10, 19)]),
        ([(10, 19)], (5, 10), [(5, 10), (11, 19)]),
        ([(10, 19)], (19, 25), [(10, 18), (19, 25)]),
        ([(10, 19)], (5, 25), [(5, 25)]),
        ([(10, 19)], (5, 9), [(5, 9), (10, 19)]),
        ([(10, 19)], (20, 25), [(10, 19), (20, 25)]),
        ([(10, 14), (15, 19)], (12, 16), [(10, 11), (12, 16), (17, 19)]),
        ([(10, 14), (15, 19), (25, 29)], (14, 25), [(10, 13), (14, 25), (26, 29)]),
        ([(5, 9), (10, 14), (20, 24), (30, 34)], (12, 22), [(5, 9), (10, 11), (12, 22), (23, 24), (30, 34)]),
    ],
)
def test_a_change_is_laid_over_what_was_there(
    before: list[tuple[int, int]], change: tuple[int, int], after: list[tuple[int, int]]
) -> None:
    journal = MemoryJournal()
    store = journal.store()
    store.attach(KEY, Live())
    store.write(KEY, 0, [StateRange(*one, AVAILABLE, 1) for one in before])
    store.write(KEY, 0, [StateRange(*change, AVAILABLE, 2)])
    state = journal.store().load(KEY)
    assert state is not None
    assert [(one.first, one.last) for one in state.ranges] == after
    assert [(one.first, one.last) for one in state.ranges if one.delivery_count == 2] == [change]


@pytest.mark.parametrize(
    ("start", "ranges", "state"),
    [
        (12, [(10, 14, AVAILABLE)], (12, [(12, 14, AVAILABLE)])),
        (14, [(10, 14, AVAILABLE)], (14, [(14, 14, AVAILABLE)])),
        (15, [(10, 14, AVAILABLE)], (15, [])),
        (10, [(10, 14, ACKNOWLEDGED), (15, 19, AVAILABLE)], (15, [(15, 19, AVAILABLE)])),
        (12, [(10, 14, ARCHIVED), (15, 16, ACKNOWLEDGED), (18, 19, ARCHIVED)], (17, [(18, 19, ARCHIVED)])),
        (9, [(10, 14, ACKNOWLEDGED)], (9, [(10, 14, ACKNOWLEDGED)])),
        (18, [(10, 14, AVAILABLE), (15, 16, ACKNOWLEDGED), (17, 19, AVAILABLE)], (18, [(18, 19, AVAILABLE)])),
        (10, [(10, 14, AVAILABLE), (15, 16, ACKNOWLEDGED)], (10, [(10, 14, AVAILABLE), (15, 16, ACKNOWLEDGED)])),
    ],
)
def test_the_start_passes_what_is_done_and_cuts_what_is_not(
    start: int, ranges: list[tuple[int, int, int]], state: tuple[int, list[tuple[int, int, int]]]
) -> None:
    journal = MemoryJournal()
    store = journal.store()
    store.attach(KEY, Live())
    store.write(KEY, 0, [])
    store.write(KEY, start, [StateRange(*one, 1) for one in ranges])
    assert journal.store().load(KEY) == SharePartitionState(state[0], tuple(StateRange(*one, 1) for one in state[1]))


class TwoPartitions(MemoryJournal):
    """A state topic of two partitions: of share partitions' names, the last digit decides."""

    def __init__(self) -> None:
        super().__init__()
        self.homes: list[int] = []
        self.anew: list[tuple[int, Entries]] = []

    def partition_of(self, key: str) -> int:
        return int(key[-1])

    def append(self, partition: int, records: Sequence[Entry], *, producer: tuple[int, int] | None = None) -> None:
        self.homes.append(partition)
        super().append(partition, records, producer=producer)

    def should_rewrite(self, partition: int) -> bool:
        return len(self.entries) >= 4

    def rewrite(self, partition: int, holding: Sequence[Entry]) -> None:
        self.anew.append((partition, list(holding)))


def test_a_partition_of_the_topic_begins_anew_with_what_belongs_into_it() -> None:
    journal = TwoPartitions()
    store = ShareStateStore(journal, MemoryJournal())
    live = Live(3, [StateRange(4, 4, ARCHIVED, 1)])
    idle, unwritten = ShareKey("h", TOPIC, 0), ShareKey("i", TOPIC, 0)
    store.attach(KEY, live)
    store.attach(OTHER, Live())
    store.attach(unwritten, Live())
    store.write(KEY, 3, [])
    store.write(OTHER, 0, [])
    store.write(idle, 9, [])
    assert journal.anew == []
    store.write(KEY, 3, [])
    assert journal.anew == []
    store.write(KEY, 3, [])
    assert [(state_partition, shown(entries)) for state_partition, entries in journal.anew] == [
        (0, [("snapshot", 1, 3, [StateRange(4, 4, ARCHIVED, 1)]), ("snapshot", 1, 9, [])])
    ]
    assert shown(journal.entries)[-1] == ("update", 1, 3, [])
    assert journal.homes == [0, 1, 0, 0, 0]


def test_an_update_without_its_snapshot_is_history() -> None:
    journal = MemoryJournal()
    store = journal.store()
    store.attach(KEY, Live(5))
    store.write(KEY, 5, [])
    store.write(KEY, 6, [StateRange(6, 6, AVAILABLE, 1)])
    snapshot, update = journal.entries
    assert MemoryJournal([update]).store().load(KEY) is None
    assert MemoryJournal([snapshot, update]).store().load(KEY) == SharePartitionState(
        6, (StateRange(6, 6, AVAILABLE, 1),)
    )
    journal.rewrite_above = 1
    store.write(KEY, 7, [])
    later = journal.entries[0]
    assert shown([later]) == [("snapshot", 1, 5, [])]
    assert MemoryJournal([later, update]).store().load(KEY) == SharePartitionState(5, ())
    assert MemoryJournal([snapshot, update, (snapshot[0], None)]).store().keys() == set()


def test_a_group_and_its_epoch_are_written_and_forgotten() -> None:
    """ShareGroupMetadataValue of version 0; the hash is of topics, which are not stored there."""
    journal = MemoryJournal()
    store = journal.store()
    store.write_group("g", 3)
    store.write_group("h", 1)
    store.write_group("g", 4)
    assert store.groups() == journal.store().groups() == {"g": 4, "h": 1}
    value = journal.entries[-1][1]
    assert value is not None
    assert value[:2] == b"\0\0"
    found = decode_value(ShareGroupMetadataValue, value)
    assert (found.epoch, found.metadata_hash) == (4, 0)
    store.delete_group("g")
    store.delete_group("unknown")
    assert len(journal.entries) == 4
    assert store.groups() == journal.store().groups() == {"h": 1}
