from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from kafka.broker.log import DirectoryLock, DirectoryLockedError, FlushPolicy, LogDirectory
from kafka.errors import (
    KafkaConfigurationError,
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


def test_the_second_process_is_told_the_directory_and_the_holders_pid(tmp_path: Path) -> None:
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
    assert len(os.listdir(tmp_path / "topics")) == 1
    directory.close()


def test_a_deletion_that_a_crash_interrupted_is_finished_at_the_next_start(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    topic = directory.metadata.create_topic("t", uuid4(), 1)
    directory.log(topic, 0).append(batch([b"a"]), now_ms=1)
    directory.metadata.delete_topic("t")
    directory.close()
    again = open_directory(tmp_path)
    assert os.listdir(tmp_path / "topics") == []
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
    assert len(synced) == 2
    directory.log(topic, 0).append(batch([b"a"]), now_ms=1)
    assert directory.tick(12.0) == 13.0
    directory.close()


def test_group_commit_waits_once_for_many_appends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = open_directory(tmp_path, "always")
    topic = directory.metadata.create_topic("t", uuid4(), 1)
    log = directory.log(topic, 0)
    directory.sync()
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    for _ in range(10):
        log.append(batch([b"a"]), now_ms=1)
    assert directory.flush_policy.sync_before_answer
    assert directory.has_unsynced
    directory.sync()
    assert len(synced) == 1
    assert not directory.has_unsynced
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
