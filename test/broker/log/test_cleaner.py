"""Compaction: what goes and what stays, in which batches; the crash at each step; bounded work and memory."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kafka.broker.log import FilePool, LogConfig, PartitionLog, TransactionMarker, cleaner, files
from kafka.broker.log.cleaner import (
    ENTRY_BYTES,
    CleaningFailedError,
    CleaningPass,
    delete_horizon,
    load_cleaner_offset,
    plan_cleaning,
    should_clean,
)
from kafka.errors import CorruptRecordError, KafkaStorageError, UnsupportedCodecError
from kafka.records import BatchHeader, RecordBatchBuilder, decode_records, iter_batches

Pair = tuple[bytes | None, bytes | None]
HOUR_MS = 3_600_000


@pytest.fixture
def pool() -> Iterator[FilePool]:
    files = FilePool(8)
    yield files
    files.close()


def open_log(path: Path, pool: FilePool, *, sync: bool = False, **config: int | float) -> PartitionLog:
    values = LogConfig(compacts=True, deletes=False, delete_retention_ms=HOUR_MS)._replace(**config)  # type: ignore[arg-type]
    return PartitionLog(str(path), "t-0", pool, values, sync=sync)


def batch(*pairs: Pair, codec: int = 0, time: int = 1000, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
    builder = RecordBatchBuilder(1 << 30, codec)
    for key, value in pairs:
        builder.append(time, key, value, [("h", b"1")])
    return builder.build(*producer)


def transaction(*pairs: Pair, producer: tuple[int, int, int]) -> bytes:
    builder = RecordBatchBuilder(1 << 30)
    for key, value in pairs:
        builder.append(1000, key, value)
    return builder.build(*producer, transactional=True)


def append(log: PartitionLog, *batches: bytes, roll: bool = True) -> None:
    for data in batches:
        log.append(data, now_ms=1000)
    if roll:
        log.roll(1000)
        log.flush()


def compact(log: PartitionLog, now_ms: int = 1000, keys: int = 1000) -> CleaningPass | None:
    found = plan_cleaning(log, now_ms)
    if found is None:
        return None
    work = CleaningPass(log, found, now_ms, map_bytes=keys * ENTRY_BYTES, sync=False)
    for _ in work.run():
        continue
    return work


def headers(log: PartitionLog) -> list[BatchHeader]:
    found: list[BatchHeader] = []
    at = log.start_offset
    while at < log.end_offset:
        part = list(iter_batches(log.read(at, 1 << 20)))
        if not part:
            break
        found += part
        at = part[-1].next_offset
    return found


def rows(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    found: list[tuple[int, bytes | None, bytes | None]] = []
    at = log.start_offset
    while at < log.end_offset:
        data = log.read(at, 1 << 20)
        part = list(iter_batches(data))
        if not part:
            break
        for header in part:
            if not header.is_control:
                found += [(one.offset, one.key, one.value) for one in decode_records(data, header)]
        at = part[-1].next_offset
    return found


@pytest.mark.parametrize("codec", [0, 1])
def test_the_last_record_of_each_key_stays_at_its_offset(tmp_path: Path, pool: FilePool, codec: int) -> None:
    log = open_log(tmp_path / "t", pool)
    append(log, batch((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), codec=codec), batch((b"c", b"4"), codec=codec))
    append(log, batch((b"b", b"5"), (b"d", b"6"), codec=codec))
    append(log, batch((b"a", b"7")), roll=False)
    compact(log)
    assert rows(log) == [(2, b"a", b"3"), (3, b"c", b"4"), (4, b"b", b"5"), (5, b"d", b"6"), (6, b"a", b"7")]
    first, *_ = headers(log)
    assert (first.base_offset, first.last_offset, first.records_count, first.codec) == (0, 2, 1, codec)
    assert load_cleaner_offset(log) == 6
    assert compact(log) is None, "nothing is dirty but the last segment, which is left alone"
    again = open_log(tmp_path / "t", pool)
    assert rows(again) == rows(log)
    assert again.recovered_bytes <= again.segments[-1].size
    data = log.read(2, 1)
    (record,) = decode_records(data, next(iter_batches(data)))
    assert (record.timestamp, record.headers) == (1000, [("h", b"1")])


def test_segments_that_shrank_are_put_together(tmp_path: Path, pool: FilePool) -> None:
    log = open_log(tmp_path / "t", pool, segment_bytes=3000)
    for turn in range(20):
        append(log, *(batch((b"%d" % key, b"%d" % turn * 40)) for key in range(5)))
    assert len(log.segments) == 21
    compact(log)
    assert len(log.segments) < 10
    append(log, batch((b"0", b"last")), batch((b"x", b"1")))
    compact(log)
    assert len(log.segments) == 2
    assert [row[0] for row in rows(log)] == [96, 97, 98, 99, 100, 101]
    files = os.listdir(tmp_path / "t")
    assert sorted(name for name in files if name.endswith(".log")) == [
        os.path.basename(one.path) for one in log.segments
    ]
    assert not [name for name in files if name.endswith((".deleted", ".swap", ".cleaned"))]
    assert log.start_offset == 0, "offsets without records are still in the log"


def test_a_tombstone_goes_an_interval_after_the_pass_that_met_it_first(tmp_path: Path, pool: FilePool) -> None:
    log = open_log(tmp_path / "t", pool, segment_bytes=500)
    append(log, batch((b"a", b"1"), (b"b", b"2")))
    append(log, batch((b"a", None), (b"c", b"3")))
    compact(log, now_ms=5000)
    assert rows(log) == [(1, b"b", b"2"), (2, b"a", None), (3, b"c", b"3")]
    (horizon,) = [delete_horizon(header) for header in headers(log) if delete_horizon(header) is not None]
    assert horizon == 5000 + HOUR_MS
    data = log.read(2, 1)
    assert {record.timestamp for record in decode_records(data, next(iter_batches(data)))} == {1000}
    found = log.offset_for_timestamp(1000)
    assert found is not None
    assert found.offset == 1
    append(log, batch((b"x", b"4")))
    compact(log, now_ms=5000 + HOUR_MS - 1)
    assert (2, b"a", None) in rows(log)
    append(log, batch((b"x", b"5")))
    compact(log, now_ms=5000 + HOUR_MS)
    assert [row[0] for row in rows(log)] == [1, 3, 5]


def test_the_last_batch_of_a_known_producer_stays_as_a_header(tmp_path: Path, pool: FilePool) -> None:
    log = open_log(tmp_path / "t", pool)
    append(log, batch((b"a", b"1"), producer=(7, 2, 0)), batch((b"a", b"2"), producer=(7, 2, 1)))
    append(log, batch((b"a", b"3")))
    compact(log)
    assert [(one.base_offset, one.records_count, one.base_sequence) for one in headers(log)] == [(1, 0, 1), (2, 1, -1)]
    assert headers(log)[0].base_timestamp == -1, "as Apache Kafka 4.3.0 writes it"
    for path in (tmp_path / "t").glob("*.seal"):
        path.unlink()
    again = open_log(tmp_path / "t", pool)
    duplicate = again.append(batch((b"a", b"2"), producer=(7, 2, 1)), now_ms=1)
    assert duplicate.is_duplicate
    assert duplicate.base_offset == 1
    again.producers.entries.clear()
    append(again, batch((b"b", b"4")))
    compact(again)
    assert [one.base_offset for one in headers(again)] == [2, 3], "nobody knows it any more"


def test_what_was_aborted_goes_and_its_marker_later(tmp_path: Path, pool: FilePool) -> None:
    log = open_log(tmp_path / "t", pool, min_cleanable_dirty_ratio=0.0)
    append(log, batch((b"a", b"1")), roll=False)
    append(log, transaction((b"a", b"aborted"), producer=(1, 0, 0)), roll=False)
    append(log, transaction((b"b", b"kept"), producer=(2, 0, 0)), roll=False)
    log.append_marker(TransactionMarker(1, 0, False, 0), 1000)
    log.append_marker(TransactionMarker(2, 0, True, 0), 1000)
    log.roll(1000)
    append(log, batch((b"z", b"1")))
    compact(log, now_ms=1000)
    assert rows(log) == [(0, b"a", b"1"), (2, b"b", b"kept"), (5, b"z", b"1")], "what was aborted supersedes nothing"
    assert [one.base_offset for one in headers(log) if one.is_control] == [3, 4]
    assert log.aborted_transactions(0, 10) == [(1, 1)]
    assert rows(open_log(tmp_path / "t", pool)) == rows(log)


def test_markers_go_in_two_steps_when_their_transactions_have_no_batch_left(tmp_path: Path, pool: FilePool) -> None:
    """As seen on Apache Kafka 4.3.0, batch for batch."""
    log = open_log(tmp_path / "t", pool, segment_bytes=600)
    for sequence, (value, is_committed) in enumerate([(b"1", True), (b"2", True), (b"x", False), (b"3", True)]):
        append(log, transaction((b"a", value), producer=(7, 0, sequence)))
        log.append_marker(TransactionMarker(7, 0, is_committed, 0), 1000)
        log.roll(1000)
    seen = []
    for now_ms in (1000, 1001, 1001 + HOUR_MS - 1, 1001 + HOUR_MS):
        append(log, batch((b"z", b"1")))
        compact(log, now_ms=now_ms)
        seen.append([(one.base_offset, delete_horizon(one) is not None) for one in headers(log)[:-1]])
    assert seen == [
        [(1, False), (3, False), (5, False), (6, False), (7, False)],
        [(1, True), (3, True), (5, True), (6, False), (7, False)],
        [(1, True), (3, True), (5, True), (6, False), (7, False)],
        [(6, False), (7, False)],
    ]


def test_nothing_of_an_open_transaction_is_touched(tmp_path: Path, pool: FilePool) -> None:
    log = open_log(tmp_path / "t", pool)
    append(log, batch((b"a", b"1")))
    append(log, transaction((b"a", b"open"), producer=(1, 0, 0)))
    append(log, batch((b"a", b"2")))
    found = plan_cleaning(log, 1000)
    assert found is not None
    assert (found.first_dirty, found.end) == (0, 1)
    compact(log)
    assert len(rows(log)) == 3


def test_a_batch_whose_codec_is_missing_stays_as_it_is(
    tmp_path: Path, pool: FilePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path / "t", pool)
    append(log, batch((b"a", b"1"), (b"a", b"2"), codec=1), batch((b"b", b"1")))
    append(log, batch((b"a", b"3"), (b"b", b"2")))
    before = bytes(log.read(0, 1))

    def missing(number: int) -> object:
        raise UnsupportedCodecError("gzip is not available")

    with monkeypatch.context() as patch:
        patch.setattr("kafka.broker.log.cleaner.codec_for", missing)
        compact(log)
    assert bytes(log.read(0, 1)) == before
    assert [row[0] for row in rows(log)] == [0, 1, 3, 4]


def test_a_map_that_is_full_makes_several_passes_of_it(tmp_path: Path, pool: FilePool) -> None:
    log = open_log(tmp_path / "t", pool, segment_bytes=400)
    for turn in range(3):
        append(log, *(batch(*((b"%d" % (key + n), b"%d" % turn) for n in range(5))) for key in range(0, 50, 5)))
    passes = 0
    while (work := compact(log, keys=7)) is not None:
        passes += 1
        assert len(work.map) <= 7
        assert passes < 100
    assert passes > 150 // 7
    assert [row[0] for row in rows(log)] == list(range(100, 150))


@pytest.mark.parametrize(("where", "bits"), [(70, 1), (16, 2), (16, 3)], ids=["record", "magic 0", "magic 1"])
def test_a_wrong_byte_ends_the_compaction_and_changes_nothing(
    tmp_path: Path, pool: FilePool, where: int, bits: int
) -> None:
    log = open_log(tmp_path / "t", pool)
    append(log, batch((b"a", b"1"), (b"b", b"2")), batch((b"a", b"3")))
    path = Path(log.segments[0].path)
    data = bytearray(path.read_bytes())
    data[where] ^= bits
    path.write_bytes(data)
    with pytest.raises(CleaningFailedError, match="at byte 0"):
        compact(log)
    assert path.read_bytes() == data


def test_a_segment_with_bad_bytes_stays_and_is_loud(tmp_path: Path, pool: FilePool) -> None:
    log = open_log(tmp_path / "t", pool, segment_bytes=250)
    for turn in range(5):
        append(log, batch((b"a", b"%d" % turn)), batch((b"b", b"%d" % turn)))
    length = len(log.read(4, 1))
    path = Path(log.segments[2].path)
    data = bytearray(path.read_bytes())
    data[length - 3] ^= 1
    path.write_bytes(data)
    Path(log.segments[2].seal_path).unlink()
    log = open_log(tmp_path / "t", pool, segment_bytes=250)
    while compact(log) is not None:
        continue
    assert path.read_bytes() == data
    assert load_cleaner_offset(log) == 10, "what lies behind is compacted all the same"
    assert [len(log.read(at, 1)) > 0 for at in (8, 9)] == [True, True]
    assert [segment.size for segment in log.segments if segment.base_offset not in (4, 8)] == [0] * 4
    with pytest.raises(CorruptRecordError):
        log.read(4, 1)
    assert [one.offset for one in decode_records(log.read(5, 1), next(iter_batches(log.read(5, 1))))] == [5]


def test_when_there_is_something_to_do_depends_on_share_and_age(tmp_path: Path, pool: FilePool) -> None:
    log = open_log(tmp_path / "t", pool, min_cleanable_dirty_ratio=0.5)
    append(log, *(batch((b"%d" % at, b"x" * 50)) for at in range(10)))
    compact(log)
    append(log, *(batch((b"%d" % at, b"x" * 50)) for at in range(9)))
    found = plan_cleaning(log, 1000)
    assert found is not None
    assert found.ratio == pytest.approx(9 / 19)
    assert not should_clean(found, log)
    log.config = log.config._replace(max_compaction_lag_ms=500)
    assert should_clean(plan_cleaning(log, 1501) or found, log)
    log.config = log.config._replace(max_compaction_lag_ms=2**62, min_compaction_lag_ms=500)
    assert plan_cleaning(log, 1499) is None
    assert plan_cleaning(log, 1500) is not None


def test_a_pass_is_cut_into_short_slices(tmp_path: Path, pool: FilePool) -> None:
    log = open_log(tmp_path / "t", pool)
    append(log, *(batch((b"%d" % at, b"x" * 1000)) for at in range(1000)))
    found = plan_cleaning(log, 1000)
    assert found is not None
    slices = sum(1 for _ in CleaningPass(log, found, 1000, map_bytes=1 << 20, sync=False).run())
    assert slices >= 2 * log.size_bytes // cleaner.SLICE_BYTES - 2


def test_a_log_is_written_read_and_cut_while_it_is_compacted(
    tmp_path: Path, pool: FilePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaner, "SLICE_BYTES", 1000)
    log = open_log(tmp_path / "t", pool, segment_bytes=20_000)
    for turn in range(3):
        append(log, *(batch((b"%d" % at, b"%d" % turn * 300)) for at in range(200)))
    found = plan_cleaning(log, 1000)
    assert found is not None
    steps = CleaningPass(log, found, 1000, map_bytes=1 << 20, sync=False).run()
    for at, _ in enumerate(steps):
        append(log, batch((b"new", b"%d" % at)), roll=False)
        assert len(log.read(450, 1 << 20))
        if at == 3:
            log.delete_before(150)
    assert log.start_offset == 150
    assert not list((tmp_path / "t").glob("*.cleaned"))
    kept = [row[0] for row in rows(log)]
    assert kept[-1] == log.end_offset - 1
    assert set(range(400, 600)) <= set(kept)
    again = open_log(tmp_path / "t", pool, segment_bytes=20_000)
    assert rows(again) == rows(log)


class CrashError(Exception):
    pass


STEPS = ("utime", "rename", "unlink", "replace", "listdir")


@pytest.mark.parametrize("crash_at", range(40))
def test_a_crash_at_any_step_of_the_swap_loses_nothing(
    tmp_path: Path, pool: FilePool, monkeypatch: pytest.MonkeyPatch, crash_at: int
) -> None:
    log = open_log(tmp_path / "t", pool, segment_bytes=2000)
    for turn in range(6):
        append(log, *(batch((b"%d" % key, b"%d" % turn * 40), producer=(5, 0, turn * 5 + key)) for key in range(5)))
    append(log, batch((b"last", b"x")), roll=False)
    newest = {key: (offset, value) for offset, key, value in rows(log)}
    count = 0

    def crashing(function: object) -> object:
        def step(*arguments: object, **options: object) -> object:
            nonlocal count
            count += 1
            if count > crash_at:
                raise CrashError
            return function(*arguments, **options)  # type: ignore[operator]

        return step

    with monkeypatch.context() as patch:
        for name in STEPS:
            patch.setattr(os, name, crashing(getattr(os, name)))
        try:
            compact(log)
        except CrashError:
            pass
        else:
            assert count <= crash_at
    directory = tmp_path / "after"
    shutil.copytree(tmp_path / "t", directory)
    for _ in range(2):
        again = open_log(directory, pool, segment_bytes=2000)
        found = rows(again)
        assert [row[0] for row in found] == sorted({row[0] for row in found}), "in order, nothing twice"
        assert {key: (offset, value) for offset, key, value in found} == newest
        assert again.end_offset == log.end_offset
        assert again.producers.entries[5].last_sequence == 29
        assert not [name for name in os.listdir(directory) if name.endswith((".swap", ".cleaned", ".deleted"))]
    while compact(again) is not None:
        continue
    assert {key: (offset, value) for offset, key, value in rows(again)} == newest
    assert len(rows(again)) == len(newest)


def test_a_cleaned_file_cut_at_any_byte_is_no_segment(tmp_path: Path, pool: FilePool) -> None:
    """What a crash leaves of a file that had not been synced and renamed."""
    log = open_log(tmp_path / "t", pool)
    append(log, batch((b"a", b"1")), batch((b"a", b"2")))
    before = rows(log)
    data = Path(log.segments[0].path).read_bytes()
    for size in range(0, len(data), 7):
        Path(files.cleaned_path(log.directory, 0)).write_bytes(data[:size])
        again = open_log(tmp_path / "t", pool)
        assert rows(again) == before
        assert not list((tmp_path / "t").glob("*.cleaned"))


@pytest.mark.parametrize("text", [b"", b"1", b"x\n", b"-1\n", b"99\n"])
def test_a_cleaner_offset_that_cannot_be_means_from_the_start(
    tmp_path: Path, pool: FilePool, text: bytes
) -> None:
    log = open_log(tmp_path / "t", pool)
    append(log, batch((b"a", b"1")), batch((b"a", b"2")))
    (tmp_path / "t" / "cleaner-offset").write_bytes(text)
    assert load_cleaner_offset(log) == 0


def test_a_full_disk_leaves_the_log_as_it_is(tmp_path: Path, pool: FilePool, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path / "t", pool)
    append(log, batch((b"a", b"1")), batch((b"a", b"2")))
    before = rows(log)

    def full(*arguments: Sequence[object]) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", full)
        with pytest.raises(KafkaStorageError, match="No space left"):
            compact(log)
    assert rows(log) == before
    assert rows(open_log(tmp_path / "t", pool)) == before
    compact(log)
    assert [row[0] for row in rows(log)] == [1]
