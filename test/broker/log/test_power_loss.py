"""What a lost machine may cost: what is not known to be on the disk is never taken for safe, and nothing is destroyed
before that which makes it superfluous is there.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafka.broker.log import FilePool, FlushPolicy, LogConfig, LogDirectory, PartitionLog, flushing
from kafka.broker.log.flushing import SLICE_FILES, LogFlusher
from kafka.errors import KafkaStorageError
from kafka.protocol.transactions import InitProducerIdRequest
from test.broker.driver import HandBroker, produce_request
from test.broker.driver import batch as produced
from test.broker.log.batches import batch
from test.broker.log.test_flushing import HandExecutor, Owner


@pytest.fixture
def executor() -> HandExecutor:
    return HandExecutor()


@pytest.fixture
def pool() -> Iterator[FilePool]:
    files = FilePool(8)
    yield files
    files.close()


def killed(hand: HandBroker, path: Path) -> HandBroker:
    """A broker on a copy of what has been written by now."""
    shutil.copytree(hand.data_dir, path, ignore=shutil.ignore_patterns(".lock"))
    return HandBroker(path, fsync=hand.fsync)


def test_what_a_killed_process_had_not_synced_is_synced_before_it_is_promised(
    tmp_path: Path, executor: HandExecutor
) -> None:
    """A producer that comes again is told of its first batch: that may still be in the system's memory only."""
    first = HandBroker(tmp_path / "data", fsync="always")
    first.create_topic("t")
    first.broker.logs.flusher.executor = executor
    request = produce_request("t", produced(b"a", producer=(9, 0, 0)))
    assert not first.send(request, 9).done
    hand = killed(first, tmp_path / "killed")
    hand.tick()
    hand.broker.logs.flusher.executor = again = HandExecutor()
    reply = hand.send(request, 9)
    hand.tick()
    assert not reply.done
    again.drain()
    assert hand.answer(request, reply, 9).responses[0].partition_responses[0].base_offset == 0


def test_what_was_scanned_and_where_it_lies_is_synced_once(tmp_path: Path, pool: FilePool) -> None:
    path = tmp_path / "topics" / "t" / "0"
    log = PartitionLog(str(path), "t-0", pool, LogConfig())
    log.append(batch([b"a"]), now_ms=1)
    again = PartitionLog(str(path), "t-0", pool, LogConfig())
    assert set(again.begin_flush()) == {again.segments[0].path, str(path), str(path.parent), str(path.parent.parent)}
    again.end_flush(None)
    again.close()
    assert PartitionLog(str(path), "t-0", pool, LogConfig()).begin_flush() == [], "its seal says that it is there"


def test_a_log_that_could_not_be_opened_is_in_nobodys_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hand = HandBroker(tmp_path / "data", fsync="always")
    hand.create_topic("t")
    open_file = os.open

    def out_of_descriptors(path: Any, *arguments: Any) -> int:
        if str(path).endswith(".log"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return open_file(path, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", out_of_descriptors)
        assert hand.produce("t", produced(b"a")).error_code == 56
    assert hand.produce("t", produced(b"a")).error_code == 0


def test_what_one_owner_no_longer_needs_another_one_may(
    tmp_path: Path, executor: HandExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two new topics have their directory in common; one of them is deleted while both are on their way."""
    synced: list[str] = []

    def note(files: list[tuple[str, int | None]]) -> flushing.SyncErrors:
        synced.extend(path for path, _ in files)
        return {}

    monkeypatch.setattr(flushing, "sync_files", note)
    flusher = LogFlusher(FlushPolicy.parse("always"), FilePool(8), executor)
    shared = tmp_path / "topics"
    gone = Owner(*(tmp_path / f"gone{at}" for at in range(SLICE_FILES)), tmp_path / "gone", shared)
    stays = Owner(tmp_path / "stays", shared)
    flusher.mark_dirty(gone)
    flusher.mark_dirty(stays)
    flusher.tick(0.0)
    flusher.forget(gone)
    executor.drain()
    assert str(shared) in synced
    assert str(tmp_path / "gone") not in synced
    assert (gone.ends, stays.ends) == ([], [None])


@pytest.mark.parametrize("policy", ["always", "interval"])
def test_a_topics_files_are_removed_when_its_deletion_is_on_the_disk(
    tmp_path: Path, executor: HandExecutor, policy: str
) -> None:
    """Else a lost machine could leave the topic, and only some of its records."""
    logs = LogDirectory(str(tmp_path), epoch_ms=lambda: 1000, flush=FlushPolicy.parse(policy))
    topic = logs.metadata.create_topic("t", UUID(int=5), 1)
    logs.log(topic, 0).append(batch([b"a"]), now_ms=1)
    logs.flusher.sync()
    logs.flusher.executor = executor
    logs.delete_topic("t")
    logs.tick(0.0)
    files = [path for path in (tmp_path / "topics").rglob("*") if path.is_file()]
    assert len(executor.work) == 1
    assert files
    executor.finish()
    assert all(path.exists() for path in files), "that was the metadata"
    executor.drain()
    assert not any(path.exists() for path in files)
    logs.close()


def test_a_start_offset_is_on_the_disk_before_it_replaces_another(
    tmp_path: Path, pool: FilePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = PartitionLog(str(tmp_path / "t"), "t-0", pool, LogConfig())
    log.append(batch([b"a", b"b", b"c"]), now_ms=1)
    log.delete_before(1)
    sync, replace = os.fsync, os.replace
    steps: list[str] = []

    def noted_sync(fd: int) -> None:
        steps.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))
        sync(fd)

    def noted_replace(old: str, new: str) -> None:
        steps.append("replace")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "replace", noted_replace)
    log.delete_before(2)
    assert steps[:2] == ["start-offset.tmp", "replace"]


def test_producer_ids_are_on_the_disk_before_they_are_given(tmp_path: Path, executor: HandExecutor) -> None:
    """One that was given twice would make a new producer's batches duplicates of the old one's."""
    hand = HandBroker(tmp_path / "data", fsync="interval")
    hand.tick()
    hand.broker.logs.flusher.sync()
    hand.broker.logs.flusher.executor = executor
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    first = hand.send(request)
    hand.tick()
    second = hand.send(request)
    hand.tick()
    assert not first.done
    assert not second.done, "it is of the same block"
    executor.drain()
    assert first.done
    assert second.done
    third = hand.send(request)
    assert third.done


def test_a_directory_that_cannot_be_read_is_no_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hand = HandBroker(tmp_path / "data")
    hand.broker.state.topic("__consumer_offsets").append(0, [(b"\0\x63", b"v")])
    hand.broker.close()
    names = os.listdir

    def broken(path: Any = ".") -> list[str]:
        if "__consumer_offsets" in str(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return names(path)

    monkeypatch.setattr(os, "listdir", broken)
    with pytest.raises(KafkaStorageError, match="__consumer_offsets"):
        HandBroker(tmp_path / "data")


def test_a_flush_makes_no_file_of_a_segment_that_has_gone_meanwhile(tmp_path: Path, pool: FilePool) -> None:
    log = PartitionLog(str(tmp_path / "t"), "t-0", pool, LogConfig())
    log.append(batch([b"a"]), now_ms=1)
    log.roll(1)
    log.begin_flush()
    log.delete_before(1)
    log.flush()
    assert [path.name for path in (tmp_path / "t").glob("*.log")] == ["00000000000000000001.log"]
