"""How much of a log a start has to read, and what it may believe: after a kill, and after a loss of the machine."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka.broker.log import FilePool, LogConfig, PartitionLog, partition_log, segment
from kafka.errors import CorruptRecordError
from test.broker.log.batches import batch
from test.support.cpu import CpuTime


@pytest.fixture
def pool() -> Iterator[FilePool]:
    files = FilePool(8)
    yield files
    files.close()


@pytest.fixture(autouse=True)
def checkpoints_every_4000_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_log, "CHECKPOINT_BYTES", 4000)


def open_log(path: Path, pool: FilePool, *, sync: bool, segment_bytes: int = 1 << 30) -> PartitionLog:
    return PartitionLog(str(path), "t-0", pool, LogConfig(segment_bytes=segment_bytes), sync=sync)


def fill(log: PartitionLog, batches: int, flush_every: int = 10) -> None:
    for at in range(batches):
        log.append(batch([b"x" * 40], producer_id=7, producer_epoch=1, base_sequence=log.end_offset), now_ms=1000)
        if at % flush_every == flush_every - 1:
            log.flush()


def killed(log: PartitionLog, path: Path) -> Path:
    """A copy of what has been written by now."""
    shutil.copytree(log.directory, path)
    return path


def lose_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "boot_id", lambda: b"another boot    ")


@pytest.mark.parametrize("sync", [True, False])
def test_a_killed_process_costs_the_next_start_little_of_a_big_last_segment(
    tmp_path: Path, pool: FilePool, sync: bool
) -> None:
    log = open_log(tmp_path / "t", pool, sync=sync)
    log.begin_leader_epoch(3)
    fill(log, 1000)
    assert len(log.segments) == 1
    again = open_log(killed(log, tmp_path / "killed"), pool, sync=sync)
    assert again.recovered_bytes < 2 * 4000 < log.size_bytes / 10
    assert again.end_offset == 1000
    assert again.end_offset_for_epoch(3) == (3, 1000)
    assert again.producers.snapshot() == log.producers.snapshot()
    for offset in (0, 1, 500, 999):
        assert bytes(again.read(offset, 1)) == bytes(log.read(offset, 1))
    again.append(batch([b"x"], producer_id=7, producer_epoch=1, base_sequence=1000), now_ms=1)


def test_after_a_loss_of_the_machine_only_what_was_synced_is_believed_unread(
    tmp_path: Path, pool: FilePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = open_log(tmp_path / "never", pool, sync=False)
    always = open_log(tmp_path / "always", pool, sync=True)
    for log in (never, always):
        fill(log, 1000)
    lose_machine(monkeypatch)
    again = open_log(killed(never, tmp_path / "a"), pool, sync=False)
    assert again.recovered_bytes == never.size_bytes
    again = open_log(killed(always, tmp_path / "b"), pool, sync=True)
    assert again.recovered_bytes < 2 * 4000


def test_a_file_that_lost_bytes_which_its_seal_describes_is_scanned(
    tmp_path: Path, pool: FilePool, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(tmp_path / "t", pool, sync=True)
    fill(log, 1000)
    path = killed(log, tmp_path / "killed")
    data = Path(log.segments[0].path).read_bytes()
    (path / Path(log.segments[0].path).name).write_bytes(data[:5000])
    again = open_log(path, pool, sync=True)
    assert again.recovered_bytes == 5000
    assert again.end_offset == 5000 // len(log.read(0, 1))
    assert "torn bytes from" in caplog.text


def test_bad_bytes_behind_a_checkpoint_stay_loud_and_are_never_cut(
    tmp_path: Path, pool: FilePool, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(tmp_path / "t", pool, sync=True)
    fill(log, 1000, flush_every=500)
    fill(log, 30, flush_every=1000)
    path = killed(log, tmp_path / "killed")
    length = len(log.read(0, 1))
    file = path / Path(log.segments[0].path).name
    data = bytearray(file.read_bytes())
    data[1010 * length + 70] ^= 1
    file.write_bytes(data)
    for _ in range(2):
        caplog.clear()
        again = open_log(path, pool, sync=True)
        assert "corrupt, offsets 1010 to 1010" in caplog.text
        with pytest.raises(CorruptRecordError, match="1010"):
            again.read(1010, 1)
        assert len(again.read(1009, 1))
        assert len(again.read(1011, 1))
        assert again.end_offset == 1030
        assert file.read_bytes() == data
        again.close()


def test_a_segment_that_was_closed_unsealed_is_scanned_once(tmp_path: Path, pool: FilePool) -> None:
    log = open_log(tmp_path / "t", pool, sync=True, segment_bytes=1000)
    fill(log, 40, flush_every=1000)
    path = killed(log, tmp_path / "killed")
    assert not list(path.glob("*.seal"))
    assert open_log(path, pool, sync=True, segment_bytes=1000).recovered_bytes == log.size_bytes
    again = open_log(path, pool, sync=True, segment_bytes=1000)
    assert again.recovered_bytes == again.segments[-1].size


@pytest.mark.parametrize("spoiled", [0, 1, -1])
def test_an_index_that_is_spoiled_is_made_anew(
    tmp_path: Path, pool: FilePool, caplog: pytest.LogCaptureFixture, spoiled: int
) -> None:
    log = open_log(tmp_path / "t", pool, sync=True)
    fill(log, 1000)
    log.close()
    seal = Path(log.segments[0].seal_path)
    data = bytearray(seal.read_bytes())
    data[len(data) - 3 * 8 * len(log.segments[0].index) + spoiled * 8 if spoiled >= 0 else -1] ^= 1
    seal.write_bytes(data)
    again = open_log(tmp_path / "t", pool, sync=True)
    assert again.recovered_bytes == 0
    assert bytes(again.read(700, 1)) == bytes(log.read(700, 1))
    assert "rebuilding it from the segment" in caplog.text
    assert again.segments[0].index.to_bytes() == log.segments[0].index.to_bytes()


def test_a_start_with_a_large_log_is_quick_after_a_kill(
    tmp_path: Path, pool: FilePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The short form of what was measured by hand: 1 GiB of 10 KiB batches in one segment, 0.06 s instead of 2.7."""
    monkeypatch.setattr(partition_log, "CHECKPOINT_BYTES", 1 << 20)
    log = open_log(tmp_path / "t", pool, sync=False)
    data = batch([b"x" * 100] * 100)
    while log.size_bytes < 64 << 20:
        log.append(data, now_ms=1)
    with CpuTime() as cpu:
        again = open_log(tmp_path / "t", pool, sync=False)
    assert again.end_offset == log.end_offset
    assert again.recovered_bytes < 2 << 20
    assert cpu.seconds < 2.0 * (64 / 1024) + 0.1, f"{cpu.seconds:.2f} s for 64 MiB, where 1 GiB has 2 s"


def test_a_failed_flush_leaves_no_checkpoint_behind(
    tmp_path: Path, pool: FilePool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(tmp_path / "t", pool, sync=True)
    fill(log, 100, flush_every=1000)
    paths = log.begin_flush()
    assert log.segments[0].path in paths
    from kafka.errors import KafkaStorageError

    log.end_flush(KafkaStorageError("no disk"))
    assert not Path(log.segments[0].seal_path).exists()
    with pytest.raises(KafkaStorageError, match=r"t-0 takes no more writes until .* no disk"):
        log.append(batch([b"x"]), now_ms=1)
    assert len(log.read(0, 1))
    with caplog.at_level(logging.WARNING):
        log.close()
    assert not Path(log.segments[0].seal_path).exists()
