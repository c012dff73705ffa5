from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka.broker.log import FilePool, LogConfig, PartitionLog, batch_bounds
from kafka.broker.log.files import OutOfDescriptorsError
from kafka.broker.log.segment import run_search
from kafka.errors import (
    CorruptRecordError,
    InvalidRecordError,
    KafkaStorageError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceNumberError,
    UnsupportedCodecError,
)
from kafka.records import RecordBatchBuilder, decode_records, iter_batches
from test.broker.log.batches import batch


@pytest.fixture
def pool() -> Iterator[FilePool]:
    files = FilePool(8)
    yield files
    files.close()


def open_log(path: Path, pool: FilePool, **config: int | bool) -> PartitionLog:
    return PartitionLog(str(path), "t-0", pool, LogConfig(**config), sync=False)  # type: ignore[arg-type]


def values(data: bytes | memoryview) -> list[tuple[int, bytes | None]]:
    return [
        (record.offset, record.value) for header in iter_batches(data) for record in decode_records(data, header)
    ]


def read_all(log: PartitionLog, offset: int | None = None) -> list[tuple[int, bytes | None]]:
    at = log.start_offset if offset is None else offset
    found: list[tuple[int, bytes | None]] = []
    while at < log.end_offset:
        part = [row for row in values(log.read(at, 200)) if row[0] >= at]
        if not part:
            break
        found += part
        at = part[-1][0] + 1
    return found


def segment_path(log: PartitionLog, at: int = -1) -> Path:
    return Path(log.segments[at].path)


def test_appended_batches_get_consecutive_offsets_and_come_back_unchanged(tmp_path: Path, pool: FilePool) -> None:
    log = open_log(tmp_path / "t", pool)
    first = log.append(batch([b"a", b"b"]), now_ms=1)
    log.begin_leader_epoch(4)
    second = log.append(batch([b"c"]), now_ms=1)
    assert (first.base_offset, first.last_offset, second.base_offset) == (0, 1, 2)
    data = log.read(0, 1 << 20)
    assert values(data) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert [header.leader_epoch for header in iter_batches(data)] == [0, 4]
    assert batch_bounds(data) == [(0, 1), (2, 2)]


def test_a_read_begins_with_the_batch_that_holds_the_offset(tmp_path: Path, pool: FilePool) -> None:
    log = open_log(tmp_path / "t", pool)
    for at in range(0, 3000, 3):
        log.append(batch([b"%d" % (at + n) for n in range(3)]), now_ms=1)
    for offset in (0, 1, 2, 3, 1499, 2999):
        rows = values(log.read(offset, 1000))
        assert rows[0][0] == offset - offset % 3
        assert rows[-1][0] < 3000
    assert len(log.read(3000, 1000)) == 0


def test_a_read_gives_whole_batches_within_its_limits(tmp_path: Path, pool: FilePool) -> None:
    log = open_log(tmp_path / "t", pool)
    sizes = []
    for at in range(200):
        data = batch([b"x" * (at % 50)])
        sizes.append(len(data))
        log.append(data, now_ms=1)
    for start in (0, 7, 150):
        for limit in (1, sizes[start], sizes[start] + 1, 5000, 20000):
            expected = start
            total = 0
            while expected < 200 and total + sizes[expected] <= limit:
                total += sizes[expected]
                expected += 1
            expected = max(expected, start + 1)
            assert [row[0] for row in values(log.read(start, limit))] == list(range(start, expected))
    assert len(log.read(5, 10, min_one=False)) == 0
    assert [row[0] for row in values(log.read(5, 1 << 20, below=9))] == [5, 6, 7, 8]
    assert len(log.read(9, 1 << 20, below=9)) == 0


def test_offsets_outside_of_the_log_are_out_of_range(tmp_path: Path, pool: FilePool) -> None:
    log = open_log(tmp_path / "t", pool)
    log.append(batch([b"a"]), now_ms=1)
    for offset in (-1, 2):
        with pytest.raises(OffsetOutOfRangeError, match="t-0"):
            log.read(offset, 10)


def test_a_produced_batch_is_checked_before_anything_is_written(tmp_path: Path, pool: FilePool) -> None:
    log = open_log(tmp_path / "t", pool, max_message_bytes=200)
    bad = bytearray(batch([b"abc"]))
    bad[-1] ^= 1
    with pytest.raises(CorruptRecordError):
        log.append(bad, now_ms=1)
    with pytest.raises(MessageSizeTooLargeError):
        log.append(batch([b"x" * 200]), now_ms=1)
    with pytest.raises(InvalidRecordError):
        log.append(batch([b"a"]) + batch([b"b"]), now_ms=1)
    assert log.end_offset == 0
    assert not segment_path(log).exists()


def test_who_only_asks_makes_no_files(tmp_path: Path, pool: FilePool) -> None:
    """A request may name ten thousand partitions, and the files of each take 1 ms."""
    dirty: list[PartitionLog] = []
    log = PartitionLog(str(tmp_path / "t"), "t-0", pool, LogConfig(), on_dirty=dirty.append)
    assert (log.start_offset, log.end_offset, log.leader_epoch, log.size_bytes) == (0, 0, 0, 0)
    assert log.read(0, 1000) == b""
    assert log.offset_for_timestamp(0) is None
    assert log.delete_before(0) == 0
    log.roll(1)
    log.flush()
    log.close()
    assert not (tmp_path / "t").exists()
    assert dirty == []
    log = open_log(tmp_path / "t", pool)
    assert log.append(batch([b"a"]), now_ms=1).base_offset == 0
    assert segment_path(log).stat().st_size == log.size_bytes > 0


def test_log_append_time_replaces_the_producers_times(tmp_path: Path, pool: FilePool) -> None:
    log = open_log(tmp_path / "t", pool, log_append_time=True)
    assert log.append(batch([b"a", b"b"], timestamp=5, step_ms=1), now_ms=777).append_time_ms == 777
    data = log.read(0, 1000)
    header = next(iter_batches(data))
    assert [(record.timestamp, record.timestamp_type) for record in decode_records(data, header)] == [(777, 1)] * 2


def test_segments_roll_by_size_and_reads_go_across_them(tmp_path: Path, pool: FilePool) -> None:
    log = open_log(tmp_path / "t", pool, segment_bytes=300)
    for at in range(40):
        log.append(batch([b"%d" % at]), now_ms=1)
    assert len(log.segments) > 5
    assert all(segment.size <= 300 for segment in log.segments)
    assert read_all(log) == [(at, b"%d" % at) for at in range(40)]


def test_a_closed_log_opens_without_a_scan_and_goes_on(tmp_path: Path, pool: FilePool) -> None:
    log = open_log(tmp_path / "t", pool, segment_bytes=300)
    for at in range(20):
        log.append(batch([b"%d" % at], timestamp=at, producer_id=7, producer_epoch=0, base_sequence=at), now_ms=1)
    log.close()
    again = open_log(tmp_path / "t", pool, segment_bytes=300)
    assert again.recovered_bytes == 0
    assert read_all(again) == [(at, b"%d" % at) for at in range(20)]
    with pytest.raises(OutOfOrderSequenceNumberError):
        again.append(batch([b"x"], producer_id=7, producer_epoch=0, base_sequence=25), now_ms=1)
    again.append(batch([b"x"], producer_id=7, producer_epoch=0, base_sequence=20), now_ms=1)
    third = open_log(tmp_path / "t", pool, segment_bytes=300)
    assert third.recovered_bytes > 0  # the seal went with the append
    assert third.end_offset == 21


def test_only_the_last_segment_is_scanned_after_a_crash(tmp_path: Path, pool: FilePool) -> None:
    log = open_log(tmp_path / "t", pool, segment_bytes=1000)
    for at in range(100):
        log.append(batch([b"%d" % at]), now_ms=1)
    again = open_log(tmp_path / "t", pool)
    assert again.recovered_bytes == segment_path(log).stat().st_size
    assert read_all(again) == read_all(log)


def test_producers_are_known_again_after_a_crash(tmp_path: Path, pool: FilePool) -> None:
    log = open_log(tmp_path / "t", pool, segment_bytes=400)
    for at in range(9):
        log.append(batch([b"%d" % at], producer_id=7, producer_epoch=1, base_sequence=at), now_ms=1)
    again = open_log(tmp_path / "t", pool)
    for at in range(4, 9):
        result = again.append(batch([b"%d" % at], producer_id=7, producer_epoch=1, base_sequence=at), now_ms=1)
        assert result.is_duplicate
        assert result.base_offset == at
    assert again.end_offset == 9


def test_a_torn_tail_is_cut_at_every_byte_and_the_log_says_so(
    tmp_path: Path, pool: FilePool, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(tmp_path / "t", pool)
    ends = [0]
    for at in range(4):
        log.append(batch([b"%d" % at, b"x"]), now_ms=1)
        ends.append(segment_path(log).stat().st_size)
    whole = segment_path(log).read_bytes()
    name = segment_path(log).name
    for size in range(len(whole) + 1):
        directory = tmp_path / f"cut-{size}"
        directory.mkdir()
        (directory / name).write_bytes(whole[:size])
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            again = open_log(directory, pool)
        good = max(end for end in ends if end <= size)
        count = ends.index(good)
        assert again.end_offset == 2 * count
        assert (directory / name).stat().st_size == good
        assert len(read_all(again)) == 2 * count
        assert again.append(batch([b"new"]), now_ms=1).base_offset == 2 * count
        if size == good:
            assert not caplog.records
        else:
            assert f"truncated {size - good} torn bytes" in caplog.text
            assert str(directory / name) in caplog.text
        pool.close()


@pytest.mark.parametrize("rest", [b"\0" * 5000, b"\2" * 5000, os.urandom(3000)], ids=["zeros", "twos", "random"])
def test_rubbish_behind_the_last_batch_is_cut(tmp_path: Path, pool: FilePool, rest: bytes) -> None:
    log = open_log(tmp_path / "t", pool)
    log.append(batch([b"a"]), now_ms=1)
    size = segment_path(log).stat().st_size
    with segment_path(log).open("ab") as file:
        file.write(rest)
    again = open_log(tmp_path / "t", pool)
    assert again.end_offset == 1
    assert segment_path(again).stat().st_size == size


def test_a_flipped_byte_in_the_last_batch_cuts_that_batch_only(tmp_path: Path, pool: FilePool) -> None:
    log = open_log(tmp_path / "t", pool)
    log.append(batch([b"a"]), now_ms=1)
    size = segment_path(log).stat().st_size
    log.append(batch([b"b"]), now_ms=1)
    whole = bytearray(segment_path(log).read_bytes())
    for at in range(size + 17, len(whole)):
        whole[at] ^= 0x55
        segment_path(log).write_bytes(whole)
        whole[at] ^= 0x55
        again = open_log(tmp_path / "t", pool)
        assert again.end_offset == 1
        assert segment_path(again).stat().st_size == size


@pytest.mark.parametrize("where", ["last segment", "older segment"])
def test_damage_before_good_batches_is_kept_loud_and_leaves_the_rest_readable(
    tmp_path: Path, pool: FilePool, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    log = open_log(tmp_path / "t", pool, segment_bytes=1 << 20 if where == "last segment" else 500)
    for at in range(10):
        log.append(batch([b"%d" % at, b"y"]), now_ms=1)
    victim = Path(log.segments[0].path)
    bounds = list(iter_batches(victim.read_bytes()))
    data = bytearray(victim.read_bytes())
    data[bounds[2].start + 70] ^= 1
    victim.write_bytes(data)
    victim.with_suffix(".seal").unlink(missing_ok=True)
    with caplog.at_level(logging.ERROR):
        again = open_log(tmp_path / "t", pool)
    assert "corrupt" in caplog.text
    assert str(victim) in caplog.text
    assert victim.stat().st_size == len(data)
    assert again.end_offset == 20
    assert read_all(again, 6)[0] == (6, b"3")
    assert len(read_all(again, 6)) == 14
    assert [row[0] for row in values(again.read(0, 1 << 20))] == [0, 1, 2, 3]
    with pytest.raises(CorruptRecordError, match=victim.name):
        again.read(4, 1000)
    assert again.append(batch([b"new"]), now_ms=1).base_offset == 20
    assert read_all(again, 20) == [(20, b"new")]


def test_a_failed_write_leaves_no_part_of_a_batch(
    tmp_path: Path, pool: FilePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path / "t", pool)
    log.append(batch([b"a"]), now_ms=1)
    size = segment_path(log).stat().st_size
    real = os.pwrite
    calls = []

    def full(fd: int, data: memoryview, position: int) -> int:
        calls.append(position)
        if len(calls) > 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data[:10], position)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(KafkaStorageError, match="No space left"):
        log.append(batch([b"b"]), now_ms=1)
    monkeypatch.undo()
    assert segment_path(log).stat().st_size == size
    assert log.append(batch([b"c"]), now_ms=1).base_offset == 1
    assert read_all(log) == [(0, b"a"), (1, b"c")]


def test_short_writes_are_gone_on_with(tmp_path: Path, pool: FilePool, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: real(fd, data[:7], position))
    log = open_log(tmp_path / "t", pool)
    log.append(batch([b"a" * 50]), now_ms=1)
    assert read_all(log) == [(0, b"a" * 50)]


def test_deleting_records_moves_the_start_and_survives_a_restart(tmp_path: Path, pool: FilePool) -> None:
    log = open_log(tmp_path / "t", pool, segment_bytes=300)
    for at in range(30):
        log.append(batch([b"%d" % at]), now_ms=1)
    before = len(log.segments)
    assert log.delete_before(17) == 17
    assert len(log.segments) < before
    assert log.delete_before(3) == 17
    again = open_log(tmp_path / "t", pool)
    assert again.start_offset == 17
    with pytest.raises(OffsetOutOfRangeError):
        again.read(16, 10)
    assert again.delete_before(30) == 30
    assert open_log(tmp_path / "t", pool).end_offset == 30
    with pytest.raises(OffsetOutOfRangeError):
        again.delete_before(31)


def test_offsets_are_found_by_time(tmp_path: Path, pool: FilePool) -> None:
    log = open_log(tmp_path / "t", pool, segment_bytes=2000)
    for at in range(100):
        log.append(batch([b"x", b"y"], timestamp=1000 + 10 * at, step_ms=5), now_ms=1)
    for asked in (0, 1000, 1001, 1005, 1333, 1994, 1995):
        found = log.offset_for_timestamp(asked)
        assert found is not None
        expected = min(offset for offset in range(200) if 1000 + 5 * offset >= asked)
        assert (found.offset, found.timestamp) == (expected, 1000 + 5 * expected)
    assert log.offset_for_timestamp(1996) is None
    best = run_search(log.search_max_timestamp())
    assert best is not None
    assert (best.offset, best.timestamp) == (199, 1995)


def test_the_greatest_timestamp_need_not_be_the_last(tmp_path: Path, pool: FilePool) -> None:
    log = open_log(tmp_path / "t", pool)
    assert run_search(log.search_max_timestamp()) is None
    for time in (5, 90, 20, 90, 7):
        log.append(batch([b"x"], timestamp=time), now_ms=1)
    best = run_search(open_log(tmp_path / "t", pool).search_max_timestamp())
    assert best is not None
    assert (best.offset, best.timestamp) == (1, 90)


def test_a_flush_that_could_not_open_the_files_leaves_all_to_the_next_one(tmp_path: Path, pool: FilePool) -> None:
    """The files and the seals that wait for them; what is written meanwhile comes along."""
    dirty: list[PartitionLog] = []
    log = PartitionLog(str(tmp_path / "t"), "t-0", pool, LogConfig(), on_dirty=dirty.append)
    log.append(batch([b"a"]), now_ms=1)
    log.roll(2)
    log.append(batch([b"b"]), now_ms=3)
    files = set(log.begin_flush())
    log.append(batch([b"c"]), now_ms=4)
    dirty.clear()
    log.end_flush(OutOfDescriptorsError("cannot open a file: Too many open files"))
    assert dirty, "whoever syncs hears of it"
    assert log.failure is None
    assert not log.segments[0].is_sealed
    assert set(log.begin_flush()) == files
    log.end_flush(None)
    assert log.segments[0].is_sealed
    assert log.begin_flush() == []
    log.close()


def test_many_logs_share_few_open_files(tmp_path: Path) -> None:
    pool = FilePool(4)
    logs = [open_log(tmp_path / str(at), pool) for at in range(20)]
    for turn in range(3):
        for at, log in enumerate(logs):
            log.append(batch([b"%d-%d" % (at, turn)]), now_ms=1)
    assert len(pool) <= 4
    for at, log in enumerate(logs):
        assert read_all(log) == [(turn, b"%d-%d" % (at, turn)) for turn in range(3)]
    pool.close()


def test_batches_whose_codec_is_missing_are_found_by_what_their_headers_say(
    tmp_path: Path, pool: FilePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path / "t", pool)
    for first in (1000, 2000):
        builder = RecordBatchBuilder(1 << 30, 1)
        for at in range(3):
            builder.append(first + at, None, b"v")
        log.append(builder.build(), now_ms=1)

    def missing(number: int) -> object:
        raise UnsupportedCodecError("gzip is not available")

    monkeypatch.setattr("kafka.records.reader.codec_for", missing)
    found = log.offset_for_timestamp(2001)
    assert found is not None
    assert found.offset == 3, "before what is looked for, or that itself"
    newest = run_search(log.search_max_timestamp())
    assert newest is not None
    assert (newest.offset, newest.timestamp) == (5, 2002)
