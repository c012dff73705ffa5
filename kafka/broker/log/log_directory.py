"""A broker's data directory: its lock, its metadata, and the logs of its partitions, opened when they are first used.

    DATA_DIR/.lock
             metadata.journal              metadata_store.py
             topics/NAME.ID/PARTITION/     one log each; ID: the first 8 digits of the topic's id, so that a topic of
                                           the same name that comes later never meets the old one's files; NAME: its
                                           first 200 characters, so that no file's name is too long
             topics/NAME.ID.deleted/       on its way out: removed bit by bit (trash.py), the rest at the next start;
                                           taken back when the deletion did not get as far as the metadata

Directories of topics that the metadata does not know are kept and named in the log: metadata may have been lost, and
nobody asked for their end.

What has to go to the disk and when is ``flush.py``'s decision; ``syncing.py`` carries it out.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from uuid import UUID

from kafka.broker.log.directory_lock import DirectoryLock
from kafka.broker.log.files import MAX_OPEN_FILES, FilePool, is_out_of_descriptors, make_directory, storage_error
from kafka.broker.log.flush import FlushPolicy
from kafka.broker.log.log_config import LogConfig, log_config
from kafka.broker.log.metadata_store import MetadataStore, Topic
from kafka.broker.log.partition_log import PartitionLog
from kafka.broker.log.swap import DELETED
from kafka.broker.log.syncing import Executor, Inline, Syncer
from kafka.broker.log.trash import Trash
from kafka.errors import KafkaError, KafkaStorageError, UnknownTopicOrPartitionError

log = logging.getLogger(__name__)

_NAME_CHARACTERS = 200


class LogDirectory:
    """The data directory of one broker; DirectoryLockedError when another process has it.

    ``epoch_ms`` gives the time of day in ms. ``defaults``: topic configuration that the broker's settings give.
    ``executor``: where what takes long is run (``syncing.py``).
    """

    def __init__(
        self,
        path: str,
        *,
        epoch_ms: Callable[[], int],
        flush: FlushPolicy | None = None,
        defaults: Mapping[str, str] | None = None,
        max_open_files: int = MAX_OPEN_FILES,
        executor: Executor | None = None,
    ) -> None:
        self.path = os.path.abspath(path)
        self.flush_policy = flush if flush is not None else FlushPolicy.parse("interval")
        self.defaults = dict(defaults or {})
        self._epoch_ms = epoch_ms
        self.leader_epoch: Callable[[Topic, int], int | None] = lambda topic, partition: None
        """Of a partition whose log is opened; None: as the log has it."""
        self._logs: dict[tuple[UUID, int], PartitionLog] = {}
        self._last_values: dict[str, str] = {}
        self._last_config = LogConfig()
        self._lock = DirectoryLock(self.path)
        self.pool = FilePool(max_open_files)
        self.syncer = Syncer(self.flush_policy, self.pool, executor)
        self.trash = Trash(lambda: self.syncer.executor)
        try:
            self.metadata = MetadataStore(
                os.path.join(self.path, "metadata.journal"),
                self.pool,
                on_dirty=lambda: self.syncer.note(self.metadata),
                sync=self.flush_policy.name != "never",
            )
            self._topics_path = os.path.join(self.path, "topics")
            make_directory(self._topics_path)
            self._finish_deletions()
        except BaseException:
            self.pool.close()
            self._lock.release()
            raise

    # -- topics ------------------------------------------------------------------------------------------------------

    def log(self, topic: Topic, partition: int) -> PartitionLog:
        """The log of a partition, opened at its first use. UnknownTopicOrPartitionError (3) for one that is not
        there.
        """
        key = (topic.topic_id, partition)
        found = self._logs.get(key)
        if found is None:
            if not 0 <= partition < topic.partitions:
                raise UnknownTopicOrPartitionError(f"{topic.name} has no partition {partition}")
            try:
                found = self._open(topic, partition)
            except KafkaStorageError as error:
                if not len(self.pool) or not is_out_of_descriptors(error):
                    raise
                self.pool.close()  # connections have the rest: files are opened again as they are needed
                found = self._open(topic, partition)
            self._logs[key] = found
            epoch = self.leader_epoch(topic, partition)
            if epoch is not None:
                found.leader_epoch = epoch
        return found

    def _open(self, topic: Topic, partition: int) -> PartitionLog:
        return PartitionLog(
            self.partition_path(topic, partition),
            f"{topic.name}-{partition}",
            self.pool,
            self._config(topic.name),
            on_dirty=self.syncer.note,
            remove=self.trash.add,
            now_ms=self._epoch_ms(),
            sync=self.flush_policy.name != "never",
        )

    def partition_path(self, topic: Topic, partition: int) -> str:
        """Where the log of a partition lies, or would."""
        return os.path.join(self._topic_path(topic), str(partition))

    def opened_log(self, topic_id: UUID, partition: int) -> PartitionLog | None:
        """A log, if it is open."""
        return self._logs.get((topic_id, partition))

    def all_opened(self) -> list[PartitionLog]:
        """All logs that are open."""
        return list(self._logs.values())

    def let_go(self, topic: Topic, partition: int) -> None:
        """Close a log that nobody else has seen, so that it needs no memory."""
        found = self._logs.pop((topic.topic_id, partition), None)
        if found is not None:
            found.close()
            found.is_gone = True
            self.syncer.forget(found)

    def opened(self, topic: Topic) -> list[PartitionLog]:
        """The topic's logs that are open: nothing waits on the others, and nothing in memory is theirs."""
        return [
            self._logs[topic.topic_id, number]
            for number in range(topic.partitions)
            if (topic.topic_id, number) in self._logs
        ]

    def partitions_with_files(self, topic: Topic) -> list[int]:
        """The topic's partitions that were ever used: a start need not open the others. KafkaStorageError."""
        path = self._topic_path(topic)
        try:
            names = os.listdir(path)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise storage_error("read the directory", path, error) from error
        return sorted(int(name) for name in names if name.isdigit() and int(name) < topic.partitions)

    def size_of(self, topic: Topic, partition: int) -> int:
        """The bytes of a partition's records, which need not be opened for that."""
        found = self._logs.get((topic.topic_id, partition))
        if found is not None:
            return found.size_bytes
        try:
            with os.scandir(self.partition_path(topic, partition)) as entries:
                return sum(entry.stat().st_size for entry in entries if entry.name.endswith(".log"))
        except OSError:
            return 0

    def configure_topic(self, topic: Topic) -> None:
        """Put a topic's configuration, as the metadata has it now, in force on its open logs."""
        opened = self.opened(topic)
        if opened:
            config = self._config(topic.name)
            for found in opened:
                found.config = config

    def delete_topic(self, name: str) -> Topic:
        """Forget a topic and remove its files. What a crash leaves of them is removed at the next start.

        Errors, with which it stays: UnknownTopicOrPartitionError (3), KafkaStorageError (56).
        """
        found_topic = self.metadata.topic(name)
        if found_topic is None:
            raise UnknownTopicOrPartitionError(f"no topic {name}")
        path = self._topic_path(found_topic)
        _rename(path, path + DELETED)
        try:
            topic = self.metadata.delete_topic(name)
        except BaseException:
            _rename(path + DELETED, path)
            raise
        for number in range(topic.partitions):
            found = self._logs.pop((topic.topic_id, number), None)
            if found is not None:
                found.is_gone = True
                self.syncer.forget(found)
                for segment in found.segments:
                    self.pool.forget(segment.path)
        self._remove_when_forgotten(path + DELETED)
        return topic

    def _remove_when_forgotten(self, path: str) -> None:
        """Remove a topic's files when the metadata on the disk does not know it any more: a lost machine could leave
        the topic, and some of its records, otherwise. After a failure the next start knows what to do with them."""
        if self.flush_policy.name == "never":
            self.trash.add([path])
            return
        self.syncer.hurry(self.metadata)
        self.syncer.wait(lambda error: self.trash.add([path]) if error is None else None)

    def _config(self, name: str) -> LogConfig:
        values = {**self.defaults, **self.metadata.config("topic", name)}
        if values != self._last_values:  # the next partition of the same topic has the same
            self._last_values, self._last_config = values, log_config(values)
        return self._last_config

    def _topic_path(self, topic: Topic) -> str:
        return os.path.join(self._topics_path, f"{topic.name[:_NAME_CHARACTERS]}.{topic.topic_id.hex[:8]}")

    def _finish_deletions(self) -> None:
        known = {os.path.basename(self._topic_path(topic)) for topic in self.metadata}
        for name in os.listdir(self._topics_path):
            path = os.path.join(self._topics_path, name)
            if name.endswith(DELETED) and name[: -len(DELETED)] in known:
                log.warning("taking %s back: its topic was not deleted in the end", path)
                _rename(path, path[: -len(DELETED)])
            elif name.endswith(DELETED):
                log.info("removing %s, whose topic was deleted", path)
                self.trash.add_for_later([path])  # the start does not wait for it
            elif name not in known:
                log.warning("%s belongs to no topic that the metadata knows; it is kept, and not served", path)

    # -- durability --------------------------------------------------------------------------------------------------

    @property
    def has_unsynced(self) -> bool:
        """Whether something was written that is not known to be on the disk."""
        return self.syncer.has_unsynced

    def tick(self, now: float) -> float | None:
        """Begin to flush what is due at ``now`` (monotonic s); when to come again, or None."""
        if len(self.trash):
            self.trash.go_on()
        return self.syncer.tick(now)

    def sync(self) -> None:
        """Everything written so far goes to the disk, now and here."""
        self.syncer.sync()

    def close(self) -> None:
        """Flush, seal all logs and give the directory up. An error of one log is logged and does not keep the
        others.
        """
        self.syncer.executor.drain()
        self.syncer.executor = Inline()
        try:
            self.sync()  # who waits for that may have more to write
        except KafkaError as error:
            log.error("%s could not be closed well: %s", self.path, error)
        for found in self._logs.values():
            try:
                found.close()
            except KafkaError as error:
                log.error("%s could not be closed well: %s", found.name, error)
            self.syncer.forget(found)
        self._logs.clear()
        try:
            self.metadata.close()
        except KafkaError as error:
            log.error("%s could not be closed well: %s", self.path, error)
        self.pool.close()
        self._lock.release()


def _rename(path: str, new: str) -> None:
    """Rename a topic's directory, if it has one yet."""
    try:
        os.rename(path, new)
    except FileNotFoundError:
        return
    except OSError as error:
        raise storage_error("rename", path, error) from error
