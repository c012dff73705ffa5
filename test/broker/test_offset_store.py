"""Committed offsets: what was committed last, also after a restart; transactions, expiry, topics that are gone."""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import UUID

import pytest

from kafka.broker.broker import Broker
from kafka.broker.offset_store import CommittedOffset, OffsetStore
from kafka.broker.state.records import StateEvent
from kafka.broker.state.state_topic import CONSUMER_OFFSETS
from kafka.errors import KafkaStorageError
from kafka.structs import TopicPartition
from test.broker.driver import HandBroker
from test.broker.share.memory_journal import MemoryJournal

ONE, TWO = TopicPartition("t", 0), TopicPartition("ü", 7)
IDS = {"t": UUID(int=1), "ü": UUID(int=2)}
PRODUCER = (9, 0)


class Topic(MemoryJournal):
    """The topic in memory, with transactions: each entry as it was appended, and markers."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[bytes, bytes | None, tuple[int, int] | None] | tuple[int, bool]] = []

    def append(self, partition, records, *, producer=None):  # type: ignore[no-untyped-def]
        super().append(partition, records)
        self.log += [(key, value, producer) for key, value in records]

    def replay(self):  # type: ignore[no-untyped-def]
        for entry in list(self.log):
            if len(entry) == 2:
                yield 0, StateEvent(None, None, (entry[0], 0), entry[1])
            else:
                yield 0, StateEvent(*entry)

    def open(self) -> OffsetStore:
        """The store after a restart."""
        return OffsetStore(self, IDS.get)

    def end(self, store: OffsetStore, committed: bool) -> None:
        """The coordinator's marker arrives."""
        self.log.append((PRODUCER[0], committed))
        store.complete(PRODUCER[0], committed, [0])


def at(offset: int, committed_ms: int = 10, expires_ms: int = -1) -> CommittedOffset:
    return CommittedOffset(offset, -1, "", committed_ms, expires_ms)


def offsets(store: OffsetStore, group_id: str = "g") -> dict[TopicPartition, int]:
    return {where: what.offset for where, what in store.of_group(group_id).items()}


def test_the_last_commit_holds_also_after_a_restart() -> None:
    topic = Topic()
    store = topic.open()
    store.commit("g", {ONE: CommittedOffset(1, 0, "a", 10), TWO: CommittedOffset(5, -1, "ümlaut", 10)})
    store.commit("g", {ONE: CommittedOffset(2, 0, "b", 11)})
    again = topic.open()
    assert again.of_group("g") == {
        ONE: CommittedOffset(2, 0, "b", 11, -1, IDS["t"]),
        TWO: CommittedOffset(5, -1, "ümlaut", 10, -1, IDS["ü"]),
    }
    assert again.get("g", TopicPartition("t", 1)) is None


def test_what_is_deleted_stays_deleted() -> None:
    topic = Topic()
    store = topic.open()
    for group in ("g", "h"):
        store.commit(group, {ONE: at(1), TWO: at(5)})
    store.delete("g")
    store.topic_deleted("t")
    again = topic.open()
    assert again.groups() == ["h"]
    assert list(again.of_group("h")) == [TWO]
    assert not again.has_group("g")


def test_a_failed_commit_changes_nothing() -> None:
    topic = Topic()
    store = topic.open()
    store.commit("g", {ONE: at(1)})
    topic.fails = True
    with pytest.raises(KafkaStorageError):
        store.commit("g", {ONE: at(2), TWO: at(2)})
    assert offsets(store) == {ONE: 1}


# -- transactions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("restart", ["never", "before the marker", "after the marker"])
def test_a_transactions_offsets_hold_when_it_commits_and_only_then(committed: bool, restart: str) -> None:
    topic = Topic()
    store = topic.open()
    store.commit("g", {ONE: at(1)})
    store.commit_pending("g", *PRODUCER, {ONE: at(5)})
    assert offsets(store) == {ONE: 1}
    if restart == "before the marker":
        store = topic.open()
    assert store.has_pending("g", ONE)
    assert store.has_pending("g")
    assert not store.has_pending("g", TWO)
    topic.end(store, committed)
    if restart == "after the marker":
        store = topic.open()
    assert offsets(store) == {ONE: 5 if committed else 1}
    assert not store.has_pending("g")


def test_an_offset_stays_pending_when_its_topic_grows_before_the_marker() -> None:
    topic = Topic()
    store = topic.open()
    store.commit_pending("g", *PRODUCER, {ONE: at(5)})
    topic.partition_of = lambda group_id: 1  # type: ignore[method-assign]  # as CreatePartitions makes it
    assert store.has_pending("g", ONE)
    assert store.has_pending("g")
    topic.end(store, True)
    assert not store.has_pending("g")
    assert offsets(store) == {ONE: 5}


def test_a_plain_commit_overtakes_a_transaction_that_began_before() -> None:
    topic = Topic()
    store = topic.open()
    store.commit_pending("g", *PRODUCER, {ONE: at(5)})
    store.commit("g", {ONE: at(7)})
    assert store.has_pending("g", ONE)
    topic.end(store, True)
    assert offsets(store) == offsets(topic.open()) == {ONE: 7}


def test_deleted_offsets_do_not_come_back_with_a_commit() -> None:
    topic = Topic()
    store = topic.open()
    store.commit_pending("g", *PRODUCER, {ONE: at(5), TWO: at(6)})
    store.topic_deleted("t")
    topic.end(store, True)
    assert offsets(store) == offsets(topic.open()) == {TWO: 6}


# -- time ------------------------------------------------------------------------------------------------------------


def test_offsets_expire_by_their_age_and_by_their_own_end() -> None:
    store = Topic().open()
    store.commit("g", {ONE: at(1, committed_ms=1000), TWO: at(2, committed_ms=1000, expires_ms=1200)})
    store.expire(1199, 500)
    assert offsets(store) == {ONE: 1, TWO: 2}
    store.expire(1200, 500)
    assert offsets(store) == {ONE: 1}
    store.expire(1500, 500)
    assert store.groups() == []


def test_the_group_coordinator_decides_whether_offsets_expire() -> None:
    store = Topic().open()
    store.commit("g", {ONE: at(1, committed_ms=0), TWO: at(2, committed_ms=0, expires_ms=5)})
    emptied: list[str] = []
    store.on_emptied = emptied.append
    store.expires_from = lambda group_id, topic, offset: None
    store.expire(10_000, 500)
    assert offsets(store) == {ONE: 1, TWO: 2}
    store.expires_from = lambda group_id, topic, offset: 9_800
    store.expire(10_000, 500)
    assert offsets(store) == {ONE: 1}
    store.expire(10_300, 500)
    assert emptied == ["g"]


def test_offsets_of_a_transaction_under_way_do_not_expire() -> None:
    store = Topic().open()
    store.commit("g", {ONE: at(1, committed_ms=0)})
    store.commit_pending("g", *PRODUCER, {ONE: at(5, committed_ms=0)})
    store.expire(10_000, 500)
    assert offsets(store) == {ONE: 1}


def test_the_broker_looks_for_expired_offsets_at_its_interval(tmp_path: Path) -> None:
    settings = {"offsets.retention.minutes": "2", "offsets.retention.check.interval.ms": "30000"}
    hand = HandBroker(tmp_path, settings)
    hand.create_topic("t")
    hand.broker.offsets.commit("g", {ONE: at(1, committed_ms=hand.epoch_ms)})
    hand.advance(119)
    assert hand.broker.offsets.has_group("g")
    hand.advance(32)
    assert not hand.broker.offsets.has_group("g")
    hand.broker.close()


# -- the real topic --------------------------------------------------------------------------------------------------


def test_offsets_are_on_the_disk_before_the_answer(tmp_path: Path) -> None:
    hand = HandBroker(tmp_path / "one")
    hand.create_topic("t")
    hand.broker.offsets.commit("g", {ONE: at(3)})
    copy = shutil.copytree(tmp_path / "one", tmp_path / "two")  # what a killed process leaves behind
    again = Broker(str(copy), fsync="never")
    assert offsets(again.offsets) == {ONE: 3}
    again.close()
    hand.broker.close()


@pytest.mark.parametrize("name", ["t", "another"])
def test_a_topics_deletion_takes_its_offsets_along_also_when_a_crash_came_between(tmp_path: Path, name: str) -> None:
    hand = HandBroker(tmp_path)
    hand.create_topic("t")
    hand.broker.offsets.commit("g", {ONE: at(3)})
    hand.broker.logs.delete_topic("t")  # and the broker dies before it comes to the offsets
    hand.create_topic(name)
    hand.restart()
    assert not hand.broker.offsets.has_group("g")
    hand.restart()
    assert not hand.broker.offsets.has_group("g")
    hand.broker.close()


def test_deleting_the_topic_of_offsets_deletes_the_offsets(tmp_path: Path) -> None:
    from kafka.protocol.topics import DeleteTopicsRequest

    hand = HandBroker(tmp_path)
    hand.create_topic("t")
    hand.broker.offsets.commit("g", {ONE: at(3)})
    hand.ask(DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=CONSUMER_OFFSETS)], timeout_ms=1000))
    assert not hand.broker.offsets.has_group("g")
    hand.broker.offsets.commit("g", {ONE: at(4)})
    hand.restart()
    assert offsets(hand.broker.offsets) == {ONE: 4}
    hand.broker.close()
