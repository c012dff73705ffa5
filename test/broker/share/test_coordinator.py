from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from uuid import UUID

import pytest

from kafka.broker.broker import Broker
from kafka.broker.config import BrokerConfig
from kafka.broker.group_settings import GroupConfig
from kafka.broker.share.coordinator import ShareGroupCoordinator, ShareHeartbeat
from kafka.broker.share.partition import SharePartition
from kafka.broker.share.state_store import ShareKey
from kafka.broker.share.states import ACCEPT, RELEASE, AckBatch, Acquired, AcquireMode, ShareEvent
from kafka.broker.topics import TopicInfo
from kafka.errors import GroupIdNotFoundError, NonEmptyGroupError
from test.broker.share.memory_journal import MemoryJournal

TOPIC = UUID(int=1)
OTHER = UUID(int=2)
METADATA = {"t": TopicInfo(TOPIC, 1)}


class Groups(ShareGroupCoordinator):
    """Share groups over a journal in memory."""

    def __init__(self, journal: MemoryJournal) -> None:
        super().__init__(journal.store(), BrokerConfig().value)

    def open(self, start: int = 0) -> SharePartition:
        return self.partition("g", TOPIC, 0, lambda config: start)

    def join(self, epoch: int = 0, now: float = 0.0) -> None:
        self.heartbeat("g", ShareHeartbeat("m", epoch, ["t"]), METADATA, now)


def take(partition: SharePartition, count: int) -> list[Acquired]:
    offset = partition.next_fetch_offset()
    return partition.acquire(
        "m", [(offset, offset + 99)], fetch_offset=offset, max_records=count, batch_size=500,
        mode=AcquireMode.RECORD_LIMIT, now=0.0,
    )  # fmt: skip


def test_acknowledgements_are_there_after_a_restart_and_locks_are_not() -> None:
    journal = MemoryJournal()
    partition = Groups(journal).open(50)
    take(partition, 10)
    partition.acknowledge("m", [AckBatch(50, 52, (ACCEPT,)), AckBatch(55, 56, (RELEASE,))], 0.0)
    again = Groups(journal).open(999)
    assert again.start_offset == 53
    assert take(again, 6) == [Acquired(53, 54, 1), Acquired(55, 56, 2), Acquired(57, 58, 1)]


def test_the_start_is_resolved_by_the_groups_setting_until_something_is_written() -> None:
    journal = MemoryJournal()
    groups = Groups(journal)
    groups.configure("g", {"share.auto.offset.reset": "earliest"})
    seen: list[str] = []

    def resolve(config: GroupConfig) -> int:
        seen.append(config.offset_reset().strategy)
        return 7

    assert groups.partition("g", TOPIC, 0, resolve).start_offset == 7
    assert groups.partition("g", TOPIC, 0, resolve).start_offset == 7
    assert seen == ["earliest"]
    assert not journal.entries
    assert groups.start_offset("g", TOPIC, 0) is None  # nothing is durable yet, and only that is told
    assert Groups(journal).open(9).start_offset == 9


def test_settings_take_effect_on_partitions_in_use() -> None:
    groups = Groups(MemoryJournal())
    partition = groups.open()
    groups.configure("g", {"share.delivery.count.limit": "9"})
    assert partition.settings.delivery_limit == 9


def test_the_journal_is_rewritten_without_losing_anything() -> None:
    journal = MemoryJournal(rewrite_above=5)
    groups = Groups(journal)
    groups.join()
    partition = groups.open()
    other = groups.partition("other", TOPIC, 3, lambda config: 100)
    take(partition, 90)
    take(other, 90)
    for at in range(0, 80, 2):
        partition.acknowledge("m", [AckBatch(at, at, (ACCEPT,))], 0.0)
        other.acknowledge("m", [AckBatch(100 + at, 100 + at, (RELEASE,))], 0.0)
    assert len(journal.entries) < 10
    again = Groups(journal)
    assert again.describe("g").epoch == 3
    assert again.open().state_ranges() == partition.state_ranges()
    assert [found.first for found in again.partition("other", TOPIC, 3, lambda config: 0).state_ranges()] == [
        100 + at for at in range(0, 80, 2)
    ]


def test_a_group_exists_from_its_first_member_on_also_after_a_restart() -> None:
    journal = MemoryJournal()
    groups = Groups(journal)
    with pytest.raises(GroupIdNotFoundError):
        groups.describe("g")
    with pytest.raises(GroupIdNotFoundError):
        groups.join(epoch=1)
    groups.join()
    again = Groups(journal)
    assert again.describe("g").state == "Empty"
    again.join()
    assert again.describe("g").epoch == 5


def test_only_a_new_epoch_is_written() -> None:
    journal = MemoryJournal()
    groups = Groups(journal)
    groups.join()
    assert len(journal.entries) == 1
    groups.join(epoch=3)
    assert len(journal.entries) == 1
    groups.join(epoch=-1)
    assert len(journal.entries) == 1
    groups.join()
    assert len(journal.entries) == 2


def test_topics_that_change_reach_the_groups_that_subscribe_to_them() -> None:
    groups = Groups(MemoryJournal())
    groups.join()
    asked: list[list[str]] = []

    def infos(names: Iterable[str]) -> dict[str, TopicInfo]:
        asked.append(sorted(names))
        return {"t": TopicInfo(TOPIC, 2)}

    groups.topics_changed(["u", "v"], infos, 1.0)
    assert (asked, groups.describe("g").epoch) == ([], 3)
    groups.topics_changed(["u", "t"], infos, 1.0)
    assert (asked, groups.describe("g").epoch) == ([["t"]], 4)


def test_the_partitions_of_a_group_are_those_that_it_was_given_fetches_or_has_offsets_of() -> None:
    groups = Groups(MemoryJournal())
    assert groups.initialized("g") == []
    groups.alter_offset("g", OTHER, 10, 5)
    groups.partition("g", OTHER, 2, lambda config: 0)
    groups.partition("h", OTHER, 3, lambda config: 0)
    assert groups.initialized("g") == [(OTHER, 2), (OTHER, 10)]
    groups.join()
    assert groups.initialized("g") == [(TOPIC, 0), (OTHER, 2), (OTHER, 10)]


def test_the_offsets_of_a_topic_are_deleted_in_one_group_without_members() -> None:
    groups = Groups(MemoryJournal())
    for group_id in "gh":
        groups.alter_offset(group_id, TOPIC, 0, 5)
        groups.alter_offset(group_id, OTHER, 0, 5)
    groups.join()
    with pytest.raises(NonEmptyGroupError):
        groups.delete_offsets("g", TOPIC)
    groups.join(epoch=-1)
    groups.delete_offsets("g", TOPIC)
    assert groups.initialized("g") == [(OTHER, 0)]
    assert groups.initialized("h") == [(TOPIC, 0), (OTHER, 0)]
    assert (groups.start_offset("g", TOPIC, 0), groups.start_offset("g", OTHER, 0)) == (None, 5)
    with pytest.raises(GroupIdNotFoundError):
        groups.delete_offsets("unknown", TOPIC)
    groups.topic_deleted(OTHER)
    assert (groups.initialized("g"), groups.initialized("h")) == ([], [(TOPIC, 0)])


def test_a_deleted_group_is_gone_with_its_state() -> None:
    journal = MemoryJournal()
    groups = Groups(journal)
    groups.join()
    partition = groups.open()
    take(partition, 5)
    partition.acknowledge("m", [AckBatch(0, 4, (ACCEPT,))], 0.0)
    with pytest.raises(NonEmptyGroupError):
        groups.delete("g")
    groups.join(epoch=-1)
    groups.delete("g")
    again = Groups(journal)
    assert not again.groups
    assert again.keys() == set()


def test_a_deleted_topic_is_forgotten_by_every_group() -> None:
    journal = MemoryJournal()
    groups = Groups(journal)
    partition = groups.open()
    take(partition, 1)
    partition.acknowledge("m", [AckBatch(0, 0, (ACCEPT,))], 0.0)
    groups.topic_deleted(TOPIC)
    assert groups.loaded("g", TOPIC, 0) is None
    assert Groups(journal).open(3).start_offset == 3


def test_an_empty_groups_offset_is_altered_and_stays_so() -> None:
    journal = MemoryJournal()
    groups = Groups(journal)
    partition = groups.open()
    take(partition, 5)
    partition.acknowledge("m", [AckBatch(2, 4, (ACCEPT,))], 0.0)
    groups.alter_offset("g", TOPIC, 0, 40)
    assert groups.start_offset("g", TOPIC, 0) == 40
    for found in (groups, Groups(journal)):
        partition = found.open()
        assert (partition.start_offset, partition.state_ranges()) == (40, [])


def test_time_ends_locks_and_says_where() -> None:
    groups = Groups(MemoryJournal())
    take(groups.open(), 5)
    assert groups.next_deadline == 30.0
    assert groups.tick(29.0) == {}
    assert groups.tick(30.0) == {ShareKey("g", TOPIC, 0): ShareEvent.LOCK_EXPIRED}


def test_a_closed_session_releases_on_its_partitions_only() -> None:
    groups = Groups(MemoryJournal())
    take(groups.open(), 5)
    assert groups.release("g", "m", [(TOPIC, 1)], 0.0) == {}
    assert groups.release("g", "m", [(TOPIC, 0)], 0.0) == {ShareKey("g", TOPIC, 0): ShareEvent.RELEASED}


def test_acknowledgements_are_on_the_disk_before_the_answer(tmp_path: Path) -> None:
    broker = Broker(str(tmp_path), fsync="never")
    broker.metadata.create_topic("jobs", TOPIC, 1)
    partition = broker.share.partition("g", TOPIC, 0, lambda config: 0)
    take(partition, 10)
    partition.acknowledge("m", [AckBatch(0, 6, (ACCEPT,))], 0.0)
    copy = shutil.copytree(tmp_path, tmp_path.with_name(f"{tmp_path.name}-copy"))  # what a killed process leaves behind
    again = Broker(str(copy), fsync="never")
    assert again.share.partition("g", TOPIC, 0, lambda config: 0).start_offset == 7
    again.close()
    broker.close()


def test_state_of_a_topic_whose_deletion_a_crash_cut_short_is_forgotten_at_the_start(tmp_path: Path) -> None:
    broker = Broker(str(tmp_path), fsync="never")
    broker.metadata.create_topic("jobs", TOPIC, 1)
    broker.share.alter_offset("g", TOPIC, 0, 7)
    broker.logs.delete_topic("jobs")  # and the broker dies before it comes to the share groups
    broker.close()
    again = Broker(str(tmp_path), fsync="never")
    assert again.share.keys() == set()
    assert again.share.start_offset("g", TOPIC, 0) is None
    again.metadata.create_topic("jobs", TOPIC, 1)
    again.close()
    last = Broker(str(tmp_path), fsync="never")
    assert last.share.keys() == set()
    last.close()


def test_state_is_whole_again_after_its_topic_was_deleted_under_a_group_at_work(tmp_path: Path) -> None:
    broker = Broker(str(tmp_path), fsync="never")
    broker.metadata.create_topic("jobs", TOPIC, 1)
    partition = broker.share.partition("g", TOPIC, 0, lambda config: 0)
    take(partition, 10)
    partition.acknowledge("m", [AckBatch(4, 5, (ACCEPT,))], 0.0)
    broker.logs.delete_topic("__share_group_state")
    broker.state.on_topic_deleted("__share_group_state")
    partition.acknowledge("m", [AckBatch(0, 0, (ACCEPT,))], 0.0)
    copy = shutil.copytree(tmp_path, tmp_path.with_name(f"{tmp_path.name}-copy"))
    again = Broker(str(copy), fsync="never")
    found = again.share.partition("g", TOPIC, 0, lambda config: 0)
    assert found.start_offset == 1
    assert [taken.first for taken in take(found, 10)][:2] == [1, 6]
    again.close()
    broker.close()
