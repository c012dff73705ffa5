"""Committed offsets of groups: in memory, and as records of ``__consumer_offsets``; a partition's last one is valid.

    commit          takes effect at once
    commit_pending  part of a producer's transaction: takes effect when :meth:`OffsetStore.complete` commits it

Each group's offsets are in one partition of the topic, and a commit is one append, written before anything changes
here. An offset carries its topic's id, so that a topic of the same name created later has none of them, also when the
broker was killed between the deletion of the topic and that of its offsets.

Offsets expire (``offsets.retention.minutes``) unless the group coordinator says from when their time counts, or that
it does not: :attr:`OffsetStore.expires_from`. Who may commit is the groups' and the handlers' business.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from kafka.broker.state.records import (
    OffsetCommitKey,
    OffsetCommitValue,
    Producer,
    encode_key,
    encode_value,
    read_records,
)
from kafka.broker.state.state_topic import StateTopic
from kafka.errors import KafkaStorageError
from kafka.structs import TopicPartition
from kafka.wire.types import ZERO_UUID

log = logging.getLogger(__name__)

_VALUE_VERSION: Final = 4
_EXPIRING_VALUE_VERSION: Final = 1


class CommittedOffset(NamedTuple):
    """One committed offset. ``metadata`` is the committer's own text; times in ms. ``expires_ms``: the committer gave
    it an end (OffsetCommit 2 to 4), -1: it has the broker's. ``topic_id`` is the store's to fill."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expires_ms: int = -1
    topic_id: UUID = ZERO_UUID


ExpiresFrom = Callable[[str, str, CommittedOffset], "int | None"]
"""``(group, topic, offset)`` -> from when the offset's time counts, in ms, or None: it does not expire."""

Offsets = dict[TopicPartition, CommittedOffset]
_Pending = dict[tuple[str, TopicPartition], "CommittedOffset | None"]
"""What a transaction has committed; None: a later plain commit has overtaken it, and it still counts as unstable."""


class OffsetStore:
    """All groups' offsets. ``topic_id`` gives the id of a topic that exists."""

    def __init__(self, topic: StateTopic, topic_id: Callable[[str], UUID | None]) -> None:
        self.expires_from: ExpiresFrom = lambda group_id, topic, offset: offset.committed_ms
        """Replaced by the group coordinator: a topic that a member is subscribed to does not lose its offsets."""
        self.on_emptied: Callable[[str], None] = lambda group_id: None
        """Called for a group that has lost its last offset by expiry, to be replaced likewise."""
        self._topic = topic
        self._topic_id = topic_id
        self._groups: dict[str, Offsets] = {}
        self._pending: dict[int, dict[int, _Pending]] = {}
        self._check_at: float | None = None
        read_records(topic.replay(), {OffsetCommitKey: (OffsetCommitValue, self._on_record)}, self._on_marker)
        topic.add_deletion_listener(self._groups.clear)
        topic.add_deletion_listener(self._pending.clear)
        self._forget_deleted_topics()

    # -- reading -----------------------------------------------------------------------------------------------------

    def use_group_rules(self, expires_from: ExpiresFrom, on_emptied: Callable[[str], None]) -> None:
        """Ask the group coordinator from when an offset's retention counts, and inform it of groups whose last
        offset has expired."""
        self.expires_from = expires_from
        self.on_emptied = on_emptied

    def groups(self) -> list[str]:
        """The names of all groups with offsets."""
        return list(self._groups)

    def has_group(self, group_id: str) -> bool:
        """Whether a group has offsets."""
        return group_id in self._groups

    def of_group(self, group_id: str) -> Offsets:
        """All offsets of a group."""
        return dict(self._groups.get(group_id, {}))

    def get(self, group_id: str, partition: TopicPartition) -> CommittedOffset | None:
        """One offset, or None."""
        return self._groups.get(group_id, {}).get(partition)

    def has_pending(self, group_id: str, partition: TopicPartition | None = None) -> bool:
        """Whether a transaction that has not ended has an offset of the group (of this partition): it is not stable
        then, and a request for stable ones gets UNSTABLE_OFFSET_COMMIT (88)."""
        # In any partition of the topic: a group has another one when that has grown since.
        transactions = (pending for producers in self._pending.values() for pending in producers.values())
        if partition is not None:
            return any((group_id, partition) in pending for pending in transactions)
        return any(name == group_id for pending in transactions for name, _ in pending)

    # -- committing --------------------------------------------------------------------------------------------------

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Store offsets, all or none; durable when it returns. KafkaStorageError (56) when that fails."""
        if not offsets:
            return
        named = self._named(offsets)
        home = self._topic.partition_of(group_id)
        self._topic.append(home, _records(group_id, named))
        self._put(home, group_id, named)

    def commit_pending(
        self, group_id: str, producer_id: int, producer_epoch: int, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        """As :meth:`commit`, within a producer's transaction: they are not visible before :meth:`complete`."""
        if not offsets:
            return
        named = self._named(offsets)
        home = self._topic.partition_of(group_id)
        self._topic.append(home, _records(group_id, named), producer=(producer_id, producer_epoch))
        pending = self._pending.setdefault(home, {}).setdefault(producer_id, {})
        pending.update({(group_id, where): what for where, what in named.items()})

    def complete(self, producer_id: int, committed: bool, partitions: Iterable[int]) -> None:
        """A producer's transaction has ended in these partitions of ``__consumer_offsets``: its marker is there."""
        for home in partitions:
            producers = self._pending.get(home)
            if producers is None:
                continue
            pending = producers.pop(producer_id, {})
            if not producers:
                del self._pending[home]
            if committed:
                for (group_id, where), what in pending.items():
                    if what is not None:
                        self._groups.setdefault(group_id, {})[where] = what

    # -- forgetting --------------------------------------------------------------------------------------------------

    def delete(self, group_id: str, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Forget some offsets of a group, or all of them and with them the group; pending ones too."""
        held = self._groups.get(group_id, {})
        home = self._topic.partition_of(group_id)
        known = dict.fromkeys(held)
        for pending in self._pending.get(home, {}).values():
            known.update(dict.fromkeys(where for name, where in pending if name == group_id))
        gone = [where for where in (known if partitions is None else partitions) if where in known]
        if gone:
            self._topic.append(home, [(_key(group_id, where), None) for where in gone])
            self._drop(home, group_id, gone)

    def topic_deleted(self, topic: str) -> None:
        """Forget a topic in every group, pending offsets included. What the disk does not take now is forgotten once
        more at the next start."""
        self._forget(lambda where, what: where.topic == topic)

    # -- time --------------------------------------------------------------------------------------------------------

    def expire(self, now_ms: int, retention_ms: int) -> None:
        """Forget what is older than ``retention_ms``, or past its own end; not while a transaction is about it."""
        for group_id, held in list(self._groups.items()):
            gone = [
                where
                for where, what in held.items()
                if self._is_over(group_id, where, what, now_ms, retention_ms) and not self.has_pending(group_id, where)
            ]
            if gone:
                log.info("group %s: expired %d offsets", group_id, len(gone))
                self.delete(group_id, gone)
                if group_id not in self._groups:
                    self.on_emptied(group_id)

    def _is_over(
        self, group_id: str, where: TopicPartition, what: CommittedOffset, now_ms: int, retention_ms: int
    ) -> bool:
        since = self.expires_from(group_id, where.topic, what)
        if since is None:
            return False
        return now_ms >= (what.expires_ms if what.expires_ms >= 0 else since + retention_ms)

    @property
    def next_deadline(self) -> float | None:
        """When to call :meth:`tick` next, in monotonic s; None while nothing can expire."""
        if not self._groups:
            return None
        return 0.0 if self._check_at is None else self._check_at

    def tick(self, now: float, now_ms: int, interval_ms: int, retention_ms: int) -> None:
        """Look for what has expired, each ``interval_ms`` (offsets.retention.check.interval.ms)."""
        is_first = self._check_at is None
        self._check_at = now + interval_ms / 1000
        if not is_first:
            try:
                self.expire(now_ms, retention_ms)
            except KafkaStorageError as error:
                log.error("cannot expire offsets, trying again later: %s", error)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _named(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> Offsets:
        ids = {topic: self._topic_id(topic) or ZERO_UUID for topic in {where.topic for where in offsets}}
        return {where: what._replace(topic_id=ids[where.topic]) for where, what in offsets.items()}

    def _put(self, home: int, group_id: str, offsets: Offsets) -> None:
        self._groups.setdefault(group_id, {}).update(offsets)
        for pending in self._pending.get(home, {}).values():
            for where in offsets:
                if (group_id, where) in pending:
                    pending[group_id, where] = None

    def _drop(self, home: int, group_id: str, places: Iterable[TopicPartition]) -> None:
        held = self._groups.get(group_id, {})
        producers = self._pending.get(home, {})
        for where in places:
            held.pop(where, None)
            for pending in producers.values():
                pending.pop((group_id, where), None)
        if not held:
            self._groups.pop(group_id, None)

    def _all(self) -> Iterator[tuple[str, TopicPartition, CommittedOffset | None]]:
        for group_id, held in self._groups.items():
            for where, what in held.items():
                yield group_id, where, what
        for producers in self._pending.values():
            for pending in producers.values():
                for (group_id, where), one in pending.items():
                    yield group_id, where, one

    def _forget_deleted_topics(self) -> None:
        """What a crash has left: offsets of topics whose deletion was done."""

        def is_gone(where: TopicPartition, what: CommittedOffset | None) -> bool:
            now = self._topic_id(where.topic)
            return now is None or (what is not None and what.topic_id not in (ZERO_UUID, now))

        self._forget(is_gone)

    def _forget(self, is_gone: Callable[[TopicPartition, CommittedOffset | None], bool]) -> None:
        """Forget offsets of topics that are gone, whether or not the disk takes note of it."""
        gone: dict[str, dict[TopicPartition, None]] = {}
        for group_id, where, what in self._all():
            if is_gone(where, what):
                gone.setdefault(group_id, {})[where] = None
        for group_id, places in gone.items():
            log.info("group %s: deleting %d offsets of deleted topics", group_id, len(places))
            try:
                self.delete(group_id, places)
            except KafkaStorageError as error:
                log.error(
                    "group %s: cannot write the deletion of these offsets, the next start repeats it: %s",
                    group_id,
                    error,
                )
                self._drop(self._topic.partition_of(group_id), group_id, places)

    def _on_record(
        self, home: int, name: OffsetCommitKey, found: OffsetCommitValue | None, producer: Producer | None
    ) -> None:
        """Apply a replayed record: an offset, pending if it is part of a transaction, or its deletion."""
        where = TopicPartition(name.topic, name.partition)
        if found is None:
            self._drop(home, name.group, [where])
            return
        what = CommittedOffset(
            found.offset,
            found.leader_epoch,
            found.metadata,
            found.commit_timestamp,
            found.expire_timestamp,
            found.topic_id,
        )
        if producer is not None:
            self._pending.setdefault(home, {}).setdefault(producer[0], {})[name.group, where] = what
        else:
            self._put(home, name.group, {where: what})

    def _on_marker(self, home: int, producer_id: int, epoch: int, committed: bool) -> None:
        self.complete(producer_id, committed, [home])


def _key(group_id: str, where: TopicPartition) -> bytes:
    return encode_key(OffsetCommitKey(group=group_id, topic=where.topic, partition=where.partition))


def _records(group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> list[tuple[bytes, bytes]]:
    """Keys and values, version 4, as Apache Kafka 4.3.0 writes it; 1 for an offset with an end of its own. A key ends
    with the partition, an int32, and is made once for each topic."""
    prefixes: dict[str, bytes] = {}
    found = []
    for (topic, partition), what in offsets.items():
        prefix = prefixes.get(topic)
        if prefix is None:
            prefix = prefixes[topic] = _key(group_id, TopicPartition(topic, 0))[:-4]
        value = OffsetCommitValue(
            offset=what.offset,
            leader_epoch=what.leader_epoch,
            metadata=what.metadata,
            commit_timestamp=what.committed_ms,
            expire_timestamp=what.expires_ms,
            topic_id=what.topic_id,
        )
        version = _VALUE_VERSION if what.expires_ms < 0 else _EXPIRING_VALUE_VERSION
        found.append((prefix + partition.to_bytes(4, "big", signed=True), encode_value(value, version)))
    return found
