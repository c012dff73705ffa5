"""Committed offsets: what was committed last, also after a restart."""

from __future__ import annotations

from pathlib import Path

from kafka.broker.log import FilePool, Journal
from kafka.broker.offset_store import CommittedOffset, OffsetStore, Replay
from kafka.structs import TopicPartition

ONE, TWO = TopicPartition("t", 0), TopicPartition("ü", 7)


def open_store(path: Path, min_rewrite_bytes: int = 1 << 20) -> OffsetStore:
    def open_journal(name: str, replay: Replay) -> Journal:
        return Journal(str(path / name), FilePool(), replay, min_rewrite_bytes=min_rewrite_bytes)

    return OffsetStore(open_journal)


def test_the_last_commit_holds_also_after_a_restart(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.commit("g", {ONE: CommittedOffset(1, 0, "a", 10), TWO: CommittedOffset(5, -1, "ümlaut", 10)})
    store.commit("g", {ONE: CommittedOffset(2, 0, "b", 11)})
    again = open_store(tmp_path)
    assert again.of_group("g") == {ONE: CommittedOffset(2, 0, "b", 11), TWO: CommittedOffset(5, -1, "ümlaut", 10)}
    assert again.get("g", TopicPartition("t", 1)) is None


def test_what_is_deleted_stays_deleted(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for group in ("g", "h"):
        store.commit(group, {ONE: CommittedOffset(1, 0, "", 10), TWO: CommittedOffset(5, 0, "", 10)})
    store.delete("g")
    store.topic_deleted("t")
    again = open_store(tmp_path)
    assert again.groups() == ["h"]
    assert list(again.of_group("h")) == [TWO]
    assert not again.has_group("g")


def test_a_long_journal_is_written_anew_with_what_holds(tmp_path: Path) -> None:
    store = open_store(tmp_path, min_rewrite_bytes=2000)
    for offset in range(500):
        store.commit("g", {ONE: CommittedOffset(offset, 0, "", 10)})
    assert (tmp_path / "offsets").stat().st_size < 5000
    found = open_store(tmp_path).get("g", ONE)
    assert found is not None
    assert found.offset == 499
