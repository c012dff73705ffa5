"""Tests of ``kafka.tasks.schedule.pending``."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kafka.tasks.format.commands import partition_of_job
from kafka.tasks.schedule.pending import FIRST_KIND, MOST_GENERATION, NEVER_MS, PendingRow, PendingTable
from test.support import seeds

MOST = (1 << 62) - 1

# Ids that are the same in most of the bits that choose a segment and a slot, or in all: then the table must compare.
ids = st.one_of(
    st.integers(0, 40).map(lambda n: f"{n:016x}{7:016x}"),
    st.integers(0, 40).map(lambda n: f"018c0a1b2c3d0005{n << 56:016x}"),
    st.integers(0, 40).map(lambda n: f"018c0a1b2c3d0005{n << 16:016x}"),
    st.integers(0, 40).map(lambda n: f"018c0a1b2c3d0005{n:016x}"),
    st.sampled_from(["0" * 32, "f" * 32, "f" * 16 + "0" * 16, "0" * 16 + "f" * 16, "0" * 31 + "1"]),
)
times = st.one_of(st.integers(0, 50), st.integers(0, MOST - 1))
kinds = st.integers(FIRST_KIND, 7)


class TableAgainstDict(RuleBasedStateMachine):
    """Whatever is written, changed and removed: the table says what a dict would."""

    def __init__(self) -> None:
        super().__init__()
        self.table = PendingTable()
        self.rows: dict[str, PendingRow] = {}

    @rule(job_id=ids, wake_ms=times, offset=st.integers(-1, MOST), kind=kinds, generation=st.integers(0, 9))
    def put(self, job_id: str, wake_ms: int, offset: int, kind: int, generation: int) -> None:
        self.table.put(job_id, wake_ms, offset, kind, generation)
        self.rows[job_id] = PendingRow(wake_ms, offset, kind, generation)

    @rule(first=st.integers(0, 1 << 64), count=st.integers(1, 60))
    def put_many(self, first: int, count: int) -> None:
        for number in range(count):
            job_id = f"{first % (1 << 64):016x}{number << 16:016x}"
            self.put(job_id, number, number, 2, 1)

    @rule(job_id=ids)
    def remove(self, job_id: str) -> None:
        self.table.remove(job_id)
        self.rows.pop(job_id, None)

    @rule(which=st.integers(0, 1 << 20), count=st.integers(1, 60))
    def remove_many(self, which: int, count: int) -> None:
        for _ in range(min(count, len(self.rows))):
            self.remove(sorted(self.rows)[which % len(self.rows)])

    @rule(before_ms=times)
    def due(self, before_ms: int) -> None:
        expected = sorted((row.wake_ms, job_id) for job_id, row in self.rows.items() if row.wake_ms < before_ms)
        assert sorted(self.table.due(before_ms)) == expected

    @rule(job_id=ids)
    def get(self, job_id: str) -> None:
        assert self.table.get(job_id) == self.rows.get(job_id)

    @invariant()
    def agree(self) -> None:
        assert len(self.table) == len(self.rows)
        # A lower bound: rows that were removed or put off may still count, until due() looks.
        assert self.table.earliest_ms <= min((row.wake_ms for row in self.rows.values()), default=NEVER_MS)

    def teardown(self) -> None:
        assert {job_id: self.table.get(job_id) for job_id in self.rows} == self.rows
        assert dict.fromkeys(self.rows) == dict.fromkeys(job_id for _, job_id in self.table.due(NEVER_MS))
        assert self.table.earliest_ms == min((row.wake_ms for row in self.rows.values()), default=NEVER_MS)


TestTableAgainstDict = TableAgainstDict.TestCase


def some_ids(count: int, name: str = "ids") -> list[str]:
    rng = seeds.rng(name)
    return [f"018c0a1b2c3d0005{rng.getrandbits(64):016x}" for _ in range(count)]


def byte_count(table: PendingTable) -> int:
    """Bytes of the arrays' items."""
    columns = [
        getattr(segment, name) for segment in table._segments for name in ("high", "low", "wake", "offset", "tag")
    ]
    return sum(column.itemsize * len(column) for column in columns)


@given(st.integers(0, MOST - 1), st.integers(0, MOST), kinds, st.integers(0, MOST_GENERATION))
def test_rows_hold_numbers_of_their_size(wake_ms: int, offset: int, kind: int, generation: int) -> None:
    table = PendingTable()
    table.put("f" * 32, wake_ms, offset, kind, generation)
    assert table.get("f" * 32) == (wake_ms, offset, kind, generation)


def test_a_generation_beyond_the_largest_is_the_largest() -> None:
    table = PendingTable()
    table.put("a" * 32, 1, 2, 7, 10**18)
    assert table.get("a" * 32) == (1, 2, 7, MOST_GENERATION)


def test_a_row_that_is_put_off_is_due_once() -> None:
    table = PendingTable()
    table.put("a" * 32, 5, 0, 2, 0)
    table.put("a" * 32, 50, 0, 2, 0)
    assert table.due(6) == []
    assert table.earliest_ms == 50
    assert table.due(51) == [(50, "a" * 32)]


def test_what_is_removed_is_not_due_and_not_the_earliest_once_it_was_looked_for() -> None:
    table = PendingTable()
    for number in range(100):
        table.put(f"{number:032x}", number, 0, 2, 0)
    for number in range(60):
        table.remove(f"{number:032x}")
    assert table.due(10) == []
    assert sorted(table.due(62)) == [(60, f"{60:032x}"), (61, f"{61:032x}")]
    assert table.earliest_ms == 60
    for number in range(60, 100):
        table.remove(f"{number:032x}")
    assert (table.due(1000), table.earliest_ms, len(table)) == ([], NEVER_MS, 0)


def test_ids_of_one_slot_are_told_apart_when_others_of_them_go() -> None:
    """All in one segment and slot. A chain goes on over the slots of removed rows, which are used again."""
    chain = [f"{number:016x}{0:016x}" for number in range(200)]
    table = PendingTable()
    for number, job_id in enumerate(chain):
        table.put(job_id, number, number, 2, 0)
    for job_id in chain[::2]:
        table.remove(job_id)
    assert [table.get(job_id) for job_id in chain[1::2]] == [(n, n, 2, 0) for n in range(1, 200, 2)]
    for job_id in chain[::2]:
        assert table.get(job_id) is None
        table.put(job_id, 7, 7, 3, 1)
    assert len(table) == 200
    assert [table.get(job_id) for job_id in chain[::2]] == [(7, 7, 3, 1)] * 100


def test_jobs_that_come_and_go_take_no_more_room() -> None:
    """Slots of removed rows are used again, or dropped when a segment is copied."""
    table = PendingTable()
    waiting: list[str] = []
    sizes = []
    for round_number in range(20):
        for job_id in some_ids(5_000, f"round {round_number}"):
            table.put(job_id, 1, 1, 2, 0)
            waiting.append(job_id)
        for job_id in waiting[:-5_000]:
            table.remove(job_id)
        del waiting[:-5_000]
        sizes.append(byte_count(table))
    assert len(table) == 5_000
    assert max(sizes) < 10_000 * 36 * 2.5


def test_a_job_takes_36_bytes_and_some_room_for_others() -> None:
    """Rows of 36 bytes; a segment is between half and four fifths full (specification: a million in about 60 MB)."""
    table = PendingTable()
    for job_id in some_ids(200_000):
        table.put(job_id, 1, 1, 2, 0)
    assert 200_000 * 36 / 0.8 <= byte_count(table) <= 200_000 * 36 * 1.8


@pytest.mark.parametrize("count", [8, 256, 1024, 50])
def test_the_jobs_of_one_partition_of_many_are_in_all_segments(count: int) -> None:
    """An owner has the jobs of its partitions only, whose ids are the same in their last bits."""
    table = PendingTable()
    own = [f"{n // 997:016x}{(n * 0x9E3779B97F4A7C15 % (1 << 64)) // count * count:016x}" for n in range(20_000)]
    own = [job_id for job_id in own if partition_of_job(job_id, count) == partition_of_job(own[0], count)]
    assert len(own) > 200
    for job_id in own:
        table.put(job_id, 1, 1, 2, 0)
    sizes = [segment.count for segment in table._segments]
    assert max(sizes) < 5 * (len(own) / len(sizes)) + 10
    assert byte_count(table) < len(own) * 36 * 2.5 + len(sizes) * 36 * 8
