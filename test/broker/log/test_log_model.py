"""A log against a list of records: appended to, rolled, read, cut, killed, closed, compacted, expired, searched."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafka.broker.log import FilePool, LogConfig, PartitionLog
from kafka.broker.log.cleaner import ENTRY_BYTES, CleaningPass, load_cleaner_offset, plan_cleaning
from kafka.broker.log.partition_log import find_expired_segments
from kafka.records import RecordBatchBuilder, decode_records, iter_batches

KEYS = (b"a", b"b", b"c", b"d", b"e")
DELETE_RETENTION_MS = 50


class Row(NamedTuple):
    offset: int
    time: int
    key: bytes
    value: bytes | None
    batch: int


class LogAgainstList(RuleBasedStateMachine):
    """``rows``: what the log should hold. ``ends``: epoch -> where it began."""

    @initialize(
        segment_bytes=st.integers(150, 1500),
        sync=st.booleans(),
        index_every=st.sampled_from((1, 100, 4096)),
        checkpoint_bytes=st.sampled_from((100, 1000, 1 << 20)),
        map_keys=st.sampled_from((1, 2, 100)),
    )
    def begin(self, segment_bytes: int, sync: bool, index_every: int, checkpoint_bytes: int, map_keys: int) -> None:
        from kafka.broker.log import partition_log, segment

        self.saved = (segment.INTERVAL_BYTES, partition_log.CHECKPOINT_BYTES)
        segment.INTERVAL_BYTES = index_every
        partition_log.CHECKPOINT_BYTES = checkpoint_bytes
        self.temporary = tempfile.TemporaryDirectory()
        self.pool = FilePool(3)
        self.sync = sync
        self.config = LogConfig(
            segment_bytes=segment_bytes, compacts=True, retention_ms=-1, delete_retention_ms=DELETE_RETENTION_MS
        )
        self.map_bytes = map_keys * ENTRY_BYTES
        self.rows: list[Row] = []
        self.end = 0
        self.start = 0
        self.now_ms = 1000
        self.generation = 0
        self.horizons: dict[int, int] = {}
        self.epochs: list[tuple[int, int]] = []
        self.epoch = 0
        self.path = Path(self.temporary.name) / "0"
        self.open()

    def open(self) -> None:
        self.log = PartitionLog(str(self.path), "t-0", self.pool, self.config, now_ms=self.now_ms, sync=self.sync)
        self.lead(self.epoch + 1)

    def lead(self, epoch: int) -> None:
        self.epoch = epoch
        self.log.begin_leader_epoch(epoch)
        while self.epochs and self.epochs[-1][1] >= self.end:
            self.epochs.pop()
        self.epochs.append((epoch, self.end))

    # -- what is done to it ------------------------------------------------------------------------------------------

    @rule(
        records=st.lists(
            st.tuples(st.sampled_from(KEYS), st.booleans(), st.integers(0, 100)), min_size=1, max_size=4
        ),
        codec=st.sampled_from((0, 0, 1)),
    )
    def append(self, records: list[tuple[bytes, bool, int]], codec: int) -> None:
        builder = RecordBatchBuilder(1 << 30, codec)
        for at, (key, has_value, time) in enumerate(records):
            value = b"%d" % (self.end + at) if has_value else None
            builder.append(time, key, value)
            self.rows.append(Row(self.end + at, time, key, value, self.end))
        assert self.log.append(builder.build(), now_ms=self.now_ms).base_offset == self.end
        self.end += len(records)

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @rule()
    def flush(self) -> None:
        self.log.flush()

    @rule(milliseconds=st.integers(1, 100))
    def pass_time(self, milliseconds: int) -> None:
        self.now_ms += milliseconds

    @rule()
    def kill(self) -> None:
        """What a killed process leaves is what it has written: a copy of its directory."""
        self.pool.close()
        self.generation += 1
        path = Path(self.temporary.name) / str(self.generation)
        if self.path.is_dir():
            shutil.copytree(self.path, path, copy_function=shutil.copy2)
        self.path = path
        self.open()

    @rule()
    def close(self) -> None:
        self.log.close()
        self.open()
        assert self.log.recovered_bytes == 0

    @rule(epochs=st.integers(1, 3))
    def change_leader(self, epochs: int) -> None:
        self.lead(self.epoch + epochs)

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        self.began_at(data.draw(st.integers(0, self.end)))
        assert self.log.delete_before(self.start) == self.start

    def began_at(self, offset: int) -> None:
        self.start = max(self.start, offset)
        self.rows = [row for row in self.rows if row.offset >= self.start]

    @rule(by_size=st.booleans(), limit=st.integers(0, 100))
    def expire(self, by_size: bool, limit: int) -> None:
        """Ages are asked as if the time were 100: that is what records have."""
        if by_size:
            self.log.config = self.config._replace(retention_bytes=limit * 10)
        else:
            self.log.config = self.config._replace(retention_ms=limit)
        while (old := find_expired_segments(self.log, 100)) is not None:
            if old.is_all:
                self.log.roll(self.now_ms)
            gone = [row for row in self.rows if row.offset < old.start_offset]
            if not by_size:
                assert all(100 - row.time > limit for row in gone if row.offset >= self.start)
            else:
                sizes = [segment.size for segment in self.log.segments]
                assert sum(sizes) - sizes[0] >= limit * 10
            self.log.delete_before(old.start_offset)
            self.began_at(old.start_offset)
        self.log.config = self.config

    @rule()
    def compact(self) -> None:
        what = plan_cleaning(self.log, self.now_ms)
        if what is None:
            return
        work = CleaningPass(self.log, what, self.now_ms, map_bytes=self.map_bytes, sync=self.sync)
        for _ in work.run():
            continue
        last = work.map.latest_offset
        assert what.first_dirty <= last + 1 <= what.end
        assert load_cleaner_offset(self.log) >= min(what.first_dirty + 1, what.end)
        newest = {row.key: row.offset for row in self.rows if row.offset <= last}
        cleaned = {row.batch for row in self.rows} if self.rows else set()
        touched = self.log.segments
        kept: list[Row] = []
        for row in self.rows:
            if row.offset <= last:
                if row.offset < newest[row.key]:
                    continue
                horizon = self.horizons.get(row.batch)
                if row.value is None and horizon is not None and horizon <= self.now_ms:
                    continue
            kept.append(row)
        rewritten = max((row.batch for row in self.rows if row.offset <= last), default=-1)
        border = next((one.base_offset for one in touched if one.base_offset > rewritten), self.end)
        for batch in cleaned:
            tombstones = [row for row in kept if row.batch == batch and row.value is None]
            if tombstones and batch < border and batch not in self.horizons:
                self.horizons[batch] = self.now_ms + DELETE_RETENTION_MS
        self.rows = kept

    # -- what it should be -------------------------------------------------------------------------------------------

    @precondition(lambda self: self.end)
    @rule(data=st.data(), limit=st.integers(1, 3000))
    def read(self, data: st.DataObject, limit: int) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        expected = [row for row in self.rows if row.offset >= offset]
        found: list[Row] = []
        at = offset
        while not found and at < self.end:  # a batch may hold nothing any more from this offset on: as a client, go on
            bytes_read = self.log.read(at, limit)
            headers = list(iter_batches(bytes_read))
            found = [
                Row(record.offset, record.timestamp, record.key or b"", record.value, header.base_offset)
                for header in headers
                for record in decode_records(bytes_read, header)
                if record.offset >= offset
            ]
            if not headers:
                break
            assert headers[0].last_offset >= at
            at = headers[-1].next_offset
        assert found == expected[: len(found)]
        assert bool(found) == bool(expected)

    @rule(time=st.integers(0, 101))
    def find(self, time: int) -> None:
        expected = next(((row.offset, row.time) for row in self.rows if row.time >= time), None)
        found = self.log.offset_for_timestamp(time)
        assert (None if found is None else (found.offset, found.timestamp)) == expected

    @rule(epoch=st.integers(-1, 30))
    def ask_for_an_epoch(self, epoch: int) -> None:
        known = [(number, max(start, self.start)) for number, start in self.epochs]
        if epoch < 0 or epoch > known[-1][0]:
            expected = (-1, -1)
        else:
            below = [number for number, start in known if number <= epoch and self._ends_above_start(number)]
            above = [start for number, start in known if number > epoch]
            expected = (below[-1] if below else epoch, above[0] if above else self.end)
        assert self.log.end_offset_for_epoch(epoch) == expected

    def _ends_above_start(self, epoch: int) -> bool:
        later = [start for number, start in self.epochs if number > epoch]
        return not later or later[0] > self.start

    @invariant()
    def ends_agree(self) -> None:
        if hasattr(self, "log"):
            assert (self.log.start_offset, self.log.end_offset) == (self.start, self.end)
            assert len(self.pool) <= 3
            assert self.read_all() == self.rows

    def read_all(self) -> list[Row]:
        found: list[Row] = []
        at = self.start
        while at < self.end:
            bytes_read = self.log.read(at, 200)
            headers = list(iter_batches(bytes_read))
            if not headers:
                break
            found += [
                Row(record.offset, record.timestamp, record.key or b"", record.value, header.base_offset)
                for header in headers
                for record in decode_records(bytes_read, header)
                if record.offset >= self.start
            ]
            at = headers[-1].next_offset
        return found

    def teardown(self) -> None:
        from kafka.broker.log import partition_log, segment

        if hasattr(self, "pool"):
            self.pool.close()
            self.temporary.cleanup()
            segment.INTERVAL_BYTES, partition_log.CHECKPOINT_BYTES = self.saved


LogAgainstList.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_a_log_is_a_list_of_records_whatever_happens_to_it = LogAgainstList.TestCase
