"""Compaction at its edges: what nobody can read, what goes while it is read, what fails in the middle."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from kafka.broker.log import FilePool, PartitionLog, TransactionMarker
from kafka.broker.log.cleaner import ENTRY_BYTES, CleaningPass, plan_cleaning
from kafka.errors import UnsupportedCodecError
from kafka.records import BatchHeader, RecordBatchBuilder, iter_batches
from test.broker.driver import HandBroker
from test.broker.log.test_cleaner import HOUR_MS, append, batch, compact, open_log, pool, rows

__all__ = ["pool"]


def full_disk(*arguments: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def without_codecs(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(number: int) -> object:
        raise UnsupportedCodecError("gzip is not available")

    monkeypatch.setattr("kafka.broker.log.cleaner.codec_for", missing)


def test_a_transaction_whose_codec_is_missing_keeps_its_marker(
    tmp_path: Path, pool: FilePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its batch stays, and would be of an open transaction for who reads the files anew."""
    log = open_log(tmp_path / "t", pool)
    builder = RecordBatchBuilder(1 << 30, 1)
    builder.append(1000, b"a", b"1")
    append(log, builder.build(7, 0, 0, transactional=True), roll=False)
    log.append_marker(TransactionMarker(7, 0, True, 0), 1000)
    log.roll(1000)
    without_codecs(monkeypatch)
    for now_ms in (1000, 1001, 1001 + HOUR_MS):
        append(log, batch((b"z", b"1")))
        compact(log, now_ms=now_ms)
    for path in (tmp_path / "t").glob("*.seal"):
        path.unlink()
    again = open_log(tmp_path / "t", pool)
    assert again.last_stable_offset == again.end_offset == log.end_offset


@pytest.mark.parametrize("why", ["codec", "damage"])
def test_a_tombstone_stays_while_what_it_deletes_may_be_where_nobody_can_read_it(
    tmp_path: Path, pool: FilePool, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    log = open_log(tmp_path / "t", pool, segment_bytes=300)
    append(log, batch((b"a", b"1"), codec=1), batch((b"b", b"1" * 100)))
    if why == "damage":
        path = Path(log.segments[0].path)
        data = bytearray(path.read_bytes())
        data[70] ^= 1
        path.write_bytes(data)
        path.with_suffix(".seal").unlink()
        log = open_log(tmp_path / "t", pool, segment_bytes=300)
        assert log.segments[0].corrupt_ranges
    else:
        without_codecs(monkeypatch)
    append(log, batch((b"a", None)))
    for now_ms in (1000, 1001, 1002 + HOUR_MS, 1003 + HOUR_MS):
        append(log, batch((b"z", b"1")))
        compact(log, now_ms=now_ms)
    assert 2 in [one.base_offset for one in headers_from(log, 2)]


def headers_from(log: PartitionLog, offset: int) -> list[BatchHeader]:
    return list(iter_batches(log.read(offset, 1 << 20)))


def test_what_is_deleted_while_the_map_is_filled_leaves_the_rest_dirty(tmp_path: Path, pool: FilePool) -> None:
    log = open_log(tmp_path / "t", pool, segment_bytes=300)
    for value in (b"1", b"2", b"3"):
        append(log, batch((b"a", value), (b"pad", b"x" * (256 << 10))))
    append(log, batch((b"z", b"1")), roll=False)
    found = plan_cleaning(log, 1000)
    assert found is not None
    steps = CleaningPass(log, found, 1000, map_bytes=1000 * ENTRY_BYTES, sync=False).run()
    next(steps)
    log.delete_before(2)
    for _ in steps:
        continue
    compact(log)
    assert [row[0] for row in rows(log)] == [4, 5, 6]


def test_a_pass_that_fails_leaves_no_file_behind(tmp_path: Path, pool: FilePool) -> None:
    log = open_log(tmp_path / "t", pool)
    append(log, batch((b"a", b"1")), batch((b"a", b"2")))
    append(log, batch((b"a", b"3")))
    found = plan_cleaning(log, 1000)
    assert found is not None
    work = CleaningPass(log, found, 1000, map_bytes=1000 * ENTRY_BYTES, sync=True)
    steps = work.run()
    next(one for one in steps if one is not None)
    assert list((tmp_path / "t").glob("*.cleaned"))
    steps.close()
    assert not list((tmp_path / "t").glob("*.cleaned"))


def test_a_segment_that_got_no_seal_is_compacted_all_the_same(
    tmp_path: Path, pool: FilePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path / "t", pool, sync=True)
    append(log, batch((b"a", b"1")), roll=False)
    log.roll(1000)
    assert plan_cleaning(log, 1000) is None, "it is not on the disk yet"
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full_disk)
        log.flush()
    append(log, batch((b"a", b"2")))
    append(log, batch((b"z", b"3")), roll=False)
    compact(log)
    assert [row[0] for row in rows(log)] == [1, 2]
    again = open_log(tmp_path / "t", pool, sync=True)
    assert [row[0] for row in rows(again)] == [1, 2]


def test_a_compaction_that_fails_on_a_full_disk_is_logged_once_until_it_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    hand = HandBroker(tmp_path / "data")
    hand.create_topic("t", cleanup_policy="compact", segment_bytes="1048576", min_cleanable_dirty_ratio="0.0")
    log = hand.broker.logs.log(hand.broker.topic("t"), 0)

    def fill() -> None:
        for value in (b"1", b"2"):
            log.append(batch((b"a", value)), now_ms=1000)
        log.roll(1000)
        log.append(batch((b"a", b"3"), (b"b", b"4")), now_ms=1000)

    for times in (1, 2):
        fill()
        with monkeypatch.context() as patch:
            patch.setattr(os, "rename", full_disk)
            hand.advance(200)
        assert caplog.text.count("t-0: compaction failed, it will be tried again: ") == times
        hand.advance(20)
        assert caplog.text.count("t-0: compacted up to offset") == times
    hand.broker.close()


def test_a_log_whose_compaction_fails_as_nobody_thought_of_hurts_no_other_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hand = HandBroker(tmp_path / "data")
    hand.create_topic("t", cleanup_policy="compact", segment_bytes="1048576", min_cleanable_dirty_ratio="0.0")
    log = hand.broker.logs.log(hand.broker.topic("t"), 0)
    for value in (b"1", b"2"):
        log.append(batch((b"a", value)), now_ms=1000)
    log.roll(1000)
    log.append(batch((b"a", b"3"), (b"b", b"4")), now_ms=1000)
    monkeypatch.setattr("kafka.broker.log.cleaner.CleaningPass._retained", lambda *_: 1 / 0)
    hand.advance(200)
    assert caplog.text.count("t-0: compaction failed, it is off for this log") == 1
    assert not list((tmp_path / "data").rglob("*.cleaned"))
    assert hand.tick() is not None
