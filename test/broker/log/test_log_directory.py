from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from kafka.broker.log import DirectoryLock, DirectoryLockedError, FilePool, FlushPolicy, LogDirectory
from kafka.errors import (
    KafkaConfigurationError,
    KafkaStorageError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from test.broker.log.batches import batch

HOLD = """
import sys
from kafka.broker.log import DirectoryLock
lock = DirectoryLock(sys.argv[1])
print("locked", flush=True)
sys.stdin.read()
"""


def open_directory(path: Path, policy: str = "never") -> LogDirectory:
    return LogDirectory(str(path), epoch_ms=lambda: 1000, flush=FlushPolicy.parse(policy))


def full_disk(*arguments: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_the_error_of_a_second_process_has_the_directory_and_the_holders_pid(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdin is not None
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"locked\n"
    with pytest.raises(DirectoryLockedError) as caught:
        DirectoryLock(str(tmp_path))
    assert str(tmp_path) in str(caught.value)
    assert caught.value.pid == holder.pid
    holder.kill()
    holder.communicate()
    DirectoryLock(str(tmp_path)).release()


def test_topics_and_configurations_outlive_the_process(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    topic = directory.metadata.create_topic("t", UUID(int=5), 2, {"segment.bytes": "100"})
    directory.log(topic, 1).append(batch([b"a"]), now_ms=1)
    directory.metadata.set_config("group", "g", {"share.auto.offset.reset": "earliest"})
    directory.metadata.set_meta("cluster_id", "abc")
    directory.metadata.grow_topic("t", 3)
    directory.close()
    again = open_directory(tmp_path)
    found = again.metadata.topic_by_id(UUID(int=5))
    assert found is not None
    assert (found.name, found.partitions) == ("t", 3)
    assert again.metadata.config("topic", "t") == {"segment.bytes": "100"}
    assert again.metadata.configs("group") == {"g": {"share.auto.offset.reset": "earliest"}}
    assert again.metadata.meta("cluster_id") == "abc"
    log = again.log(found, 1)
    assert log.end_offset == 1
    assert log.config.segment_bytes == 100
    with pytest.raises(TopicAlreadyExistsError):
        again.metadata.create_topic("t", uuid4(), 1)
    with pytest.raises(UnknownTopicOrPartitionError):
        again.log(found, 3)
    again.close()


def test_a_topic_made_again_begins_empty(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    first = directory.metadata.create_topic("t", uuid4(), 1)
    directory.log(first, 0).append(batch([b"a"]), now_ms=1)
    directory.delete_topic("t")
    second = directory.metadata.create_topic("t", uuid4(), 1)
    assert directory.log(second, 0).end_offset == 0
    directory.log(second, 0).append(batch([b"b"]), now_ms=1)
    assert len(os.listdir(tmp_path / "topics")) == 1
    directory.close()


def test_a_deletion_that_a_crash_interrupted_is_finished_at_the_next_start(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    topic = directory.metadata.create_topic("t", uuid4(), 1)
    directory.log(topic, 0).append(batch([b"a"]), now_ms=1)
    directory.metadata.delete_topic("t")
    directory.close()
    (name,) = os.listdir(tmp_path / "topics")
    os.rename(tmp_path / "topics" / name, tmp_path / "topics" / f"{name}.deleted")
    again = open_directory(tmp_path)
    assert os.listdir(tmp_path / "topics") == [f"{name}.deleted"], "the start does not wait for it"
    again.tick(0.0)
    assert os.listdir(tmp_path / "topics") == []
    again.close()


def test_a_deletion_that_did_not_reach_the_metadata_is_taken_back(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    topic = directory.metadata.create_topic("t", uuid4(), 1)
    directory.log(topic, 0).append(batch([b"a"]), now_ms=1)
    directory.close()
    (name,) = os.listdir(tmp_path / "topics")
    os.rename(tmp_path / "topics" / name, tmp_path / "topics" / f"{name}.deleted")
    again = open_directory(tmp_path)
    assert again.log(topic, 0).end_offset == 1
    again.close()


def test_a_topic_whose_deletion_cannot_be_written_stays_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = open_directory(tmp_path)
    topic = directory.metadata.create_topic("t", uuid4(), 1)
    directory.log(topic, 0).append(batch([b"a"]), now_ms=1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full_disk)
        with pytest.raises(KafkaStorageError, match="No space left"):
            directory.delete_topic("t")
    assert directory.log(topic, 0).append(batch([b"b"]), now_ms=1).base_offset == 1
    directory.close()
    again = open_directory(tmp_path)
    assert again.log(topic, 0).end_offset == 2
    again.close()


def test_records_of_a_topic_that_the_metadata_does_not_know_are_kept_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = open_directory(tmp_path)
    topic = directory.metadata.create_topic("t", uuid4(), 1)
    directory.log(topic, 0).append(batch([b"a"]), now_ms=1)
    directory.close()
    (tmp_path / "metadata.journal").unlink()
    again = open_directory(tmp_path)
    (name,) = os.listdir(tmp_path / "topics")
    assert name in caplog.text
    assert os.listdir(tmp_path / "topics" / name / "0")
    again.close()


def test_the_longest_name_that_a_topic_can_have_has_a_directory(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    topic = directory.metadata.create_topic("t" * 249, uuid4(), 1)
    assert directory.log(topic, 0).append(batch([b"a"]), now_ms=1).base_offset == 0
    directory.close()


def test_a_change_is_no_failure_because_the_journal_cannot_be_tidied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    directory = open_directory(tmp_path)
    monkeypatch.setattr(os, "replace", full_disk)
    for turn in range(12_000):
        directory.metadata.set_config("topic", "t", {"retention.ms": str(turn), "comment": "x" * 80})
    assert caplog.text.count("cannot rewrite") == 1, "and it is not tried again each time"
    directory.close()
    again = open_directory(tmp_path)
    assert again.metadata.config("topic", "t")["retention.ms"] == "11999"
    again.close()


def test_the_flush_policy_says_when_the_disk_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = open_directory(tmp_path / "i", "interval")
    topic = directory.metadata.create_topic("t", uuid4(), 2)
    assert directory.tick(0.0) == 1.0  # the topic's metadata
    assert directory.tick(1.0) is None
    directory.log(topic, 0).append(batch([b"a"]), now_ms=1)
    directory.log(topic, 1).append(batch([b"a"]), now_ms=1)
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    assert directory.tick(10.0) == 11.0
    assert directory.tick(10.9) == 11.0
    assert not synced
    assert directory.tick(11.0) is None
    assert len(synced) == 6, "two segments, their directories, the topic's and that of all topics"
    directory.log(topic, 0).append(batch([b"a"]), now_ms=1)
    assert directory.tick(12.0) == 13.0
    directory.close()


def test_group_commit_waits_once_for_many_appends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = open_directory(tmp_path, "always")
    topic = directory.metadata.create_topic("t", uuid4(), 1)
    log = directory.log(topic, 0)
    log.append(batch([b"a"]), now_ms=1)  # makes its files, whose names go to the disk
    directory.flusher.sync()
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    for _ in range(10):
        log.append(batch([b"a"]), now_ms=1)
    assert directory.flush_policy.sync_before_answer
    assert directory.flusher.has_unflushed
    directory.flusher.sync()
    assert len(synced) == 1
    assert not directory.flusher.has_unflushed
    directory.close()


def test_an_unknown_flush_policy_is_refused() -> None:
    with pytest.raises(KafkaConfigurationError, match="sometimes"):
        FlushPolicy.parse("sometimes")


def test_metadata_is_compacted_as_it_grows(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    for turn in range(12_000):
        directory.metadata.set_config("topic", f"t{turn % 5}", {"retention.ms": str(turn), "comment": "x" * 80})
    assert (tmp_path / "metadata.journal").stat().st_size < (1 << 20) + 1000
    directory.close()
    again = open_directory(tmp_path)
    assert again.metadata.config("topic", "t0")["retention.ms"] == "11995"
    again.close()


def test_what_a_killed_process_acknowledged_is_there(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITE, str(tmp_path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline()) for _ in range(200)]
        writer.kill()
        acknowledged += [int(line) for line in writer.stdout.read().splitlines(keepends=True) if line.endswith(b"\n")]
    directory = open_directory(tmp_path)
    topic = directory.metadata.topic("t")
    assert topic is not None
    assert directory.log(topic, 0).end_offset > acknowledged[-1]
    directory.close()


WRITE = """
import sys
from uuid import uuid4
from kafka.broker.log import LogDirectory
from test.broker.log.batches import batch
directory = LogDirectory(sys.argv[1], epoch_ms=lambda: 1)
log = directory.log(directory.metadata.create_topic("t", uuid4(), 1), 0)
while True:
    print(log.append(batch([b"x" * 100]), now_ms=1).last_offset, flush=True)
"""


def test_files_make_room_for_each_other_when_descriptors_run_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = FilePool(100)
    limit = 3
    open_file = os.open

    def scarce(path: str, flags: int, mode: int = 0o777) -> int:
        if len(pool) >= limit:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return open_file(path, flags, mode)

    monkeypatch.setattr(os, "open", scarce)
    for turn in range(20):
        pool.write(str(tmp_path / str(turn % 7)), turn // 7, b"x")
    assert [pool.read(str(tmp_path / str(number)), 0, 10) for number in range(7)] == [b"xxx"] * 6 + [b"xx"]
    limit = 0
    pool.close()
    with pytest.raises(KafkaStorageError, match="Too many open files"):
        pool.write(str(tmp_path / "0"), 0, b"x")


def test_a_log_is_opened_as_well_as_ever_when_descriptors_run_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its seal is not taken for a bad one, and files that are open make room."""
    directory = open_directory(tmp_path)
    first, second = (directory.metadata.create_topic(name, UUID(int=at << 100), 1) for at, name in enumerate("ab", 1))
    directory.log(second, 0).append(batch([b"x"]), now_ms=1)
    directory.close_log(second, 0)
    directory.log(first, 0).append(batch([b"x"]), now_ms=1)
    open_file = open
    pool = directory.pool

    def scarce(path: str | int, *arguments: Any, **keywords: Any) -> Any:
        if len(pool):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return open_file(path, *arguments, **keywords)

    monkeypatch.setattr("builtins.open", scarce)
    found = directory.log(second, 0)
    assert (found.recovered_bytes, found.end_offset) == (0, 1)
    directory.close()
