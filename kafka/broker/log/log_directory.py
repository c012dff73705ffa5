"""A broker's data directory: its lock, its metadata, and the logs of its partitions, opened when they are first used.

    DATA_DIR/.lock
             metadata.journal              metadata_store.py
             share-groups.journal          ../share/state_store.py
             topics/NAME.ID/PARTITION/     one log each; ID: the first 8 digits of the topic's id, so that a topic of
                                           the same name that comes later never meets the old one's files; NAME: its
                                           first 200 characters, so that no file's name is too long
             topics/NAME.ID.deleted/       on its way out: removed at the next start, or taken back when the deletion
                                           did not get as far as the metadata

Directories of topics that the metadata does not know are kept and named in the log: metadata may have been lost, and
nobody asked for their end.

What has to go to the disk and when is ``flush.py``'s decision; :meth:`LogDirectory.tick` and, before answers,
:meth:`LogDirectory.sync` carry it out.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Mapping
from uuid import UUID

from kafka.broker.log.directory_lock import DirectoryLock
from kafka.broker.log.files import FilePool, make_directory, storage_error
from kafka.broker.log.flush import FlushPolicy
from kafka.broker.log.journal import Journal
from kafka.broker.log.metadata_store import MetadataStore, Topic
from kafka.broker.log.partition_log import LogConfig, PartitionLog
from kafka.errors import KafkaError, UnknownTopicOrPartitionError

log = logging.getLogger(__name__)

_DELETED = ".deleted"
_NAME_CHARACTERS = 200


def log_config(values: Mapping[str, str]) -> LogConfig:
    """What a topic's configuration, as text, says to its logs."""
    default = LogConfig()
    return LogConfig(
        segment_bytes=int(values.get("segment.bytes", default.segment_bytes)),
        max_message_bytes=int(values.get("max.message.bytes", default.max_message_bytes)),
        log_append_time=values.get("message.timestamp.type", "CreateTime") == "LogAppendTime",
        segment_ms=int(values.get("segment.ms", default.segment_ms)),
    )


class LogDirectory:
    """The data directory of one broker; DirectoryLockedError when another process has it.

    ``epoch_ms`` gives the time of day in ms. ``defaults``: topic configuration that the broker's settings give.
    """

    def __init__(
        self,
        path: str,
        *,
        epoch_ms: Callable[[], int],
        flush: FlushPolicy | None = None,
        defaults: Mapping[str, str] | None = None,
        max_open_files: int = 512,
    ) -> None:
        self.path = os.path.abspath(path)
        self.flush_policy = flush if flush is not None else FlushPolicy.parse("interval")
        self.defaults = dict(defaults or {})
        self._epoch_ms = epoch_ms
        self._dirty: dict[PartitionLog | Journal | MetadataStore, None] = {}
        self._dirty_since: float | None = None
        self._logs: dict[tuple[UUID, int], PartitionLog] = {}
        self._lock = DirectoryLock(self.path)
        self.pool = FilePool(max_open_files)
        try:
            self.metadata = MetadataStore(
                os.path.join(self.path, "metadata.journal"),
                self.pool,
                on_dirty=lambda: self._note_dirty(self.metadata),
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
            found = self._logs[key] = PartitionLog(
                os.path.join(self._topic_path(topic), str(partition)),
                f"{topic.name}-{partition}",
                self.pool,
                self._config(topic.name),
                on_dirty=self._note_dirty,
                now_ms=self._epoch_ms(),
                sync=self.flush_policy.name != "never",
            )
        return found

    def opened(self, topic: Topic) -> list[PartitionLog]:
        """The topic's logs that are open: nothing waits on the others, and nothing in memory is theirs."""
        return [
            self._logs[topic.topic_id, number]
            for number in range(topic.partitions)
            if (topic.topic_id, number) in self._logs
        ]

    def configure_topic(self, topic: Topic) -> None:
        """Put a topic's configuration, as the metadata has it now, in force on its open logs."""
        config = self._config(topic.name)
        for found in self.opened(topic):
            found.config = config

    def delete_topic(self, name: str) -> Topic:
        """Forget a topic and remove its files. What a crash leaves of them is removed at the next start.

        Errors, with which it stays: UnknownTopicOrPartitionError (3), KafkaStorageError (56).
        """
        found_topic = self.metadata.topic(name)
        if found_topic is None:
            raise UnknownTopicOrPartitionError(f"no topic {name}")
        path = self._topic_path(found_topic)
        _rename(path, path + _DELETED)
        try:
            topic = self.metadata.delete_topic(name)
        except BaseException:
            _rename(path + _DELETED, path)
            raise
        for number in range(topic.partitions):
            found = self._logs.pop((topic.topic_id, number), None)
            if found is not None:
                self._dirty.pop(found, None)
                for segment in found.segments:
                    self.pool.forget(segment.path)
        shutil.rmtree(path + _DELETED, ignore_errors=True)
        return topic

    def journal(self, name: str, replay: Callable[[bytes, bytes | None], None]) -> Journal:
        """A journal of its own in this directory, under the same flush policy."""
        journal = Journal(
            os.path.join(self.path, f"{name}.journal"),
            self.pool,
            replay,
            on_dirty=lambda: self._note_dirty(journal),
            sync=self.flush_policy.name != "never",
        )
        return journal

    def _config(self, name: str) -> LogConfig:
        return log_config({**self.defaults, **self.metadata.config("topic", name)})

    def _topic_path(self, topic: Topic) -> str:
        return os.path.join(self._topics_path, f"{topic.name[:_NAME_CHARACTERS]}.{topic.topic_id.hex[:8]}")

    def _finish_deletions(self) -> None:
        known = {os.path.basename(self._topic_path(topic)) for topic in self.metadata}
        for name in os.listdir(self._topics_path):
            path = os.path.join(self._topics_path, name)
            if name.endswith(_DELETED) and name[: -len(_DELETED)] in known:
                log.warning("taking %s back: its topic was not deleted in the end", path)
                _rename(path, path[: -len(_DELETED)])
            elif name.endswith(_DELETED):
                log.info("removing %s, whose topic was deleted", path)
                shutil.rmtree(path, ignore_errors=True)
            elif name not in known:
                log.warning("%s belongs to no topic that the metadata knows; it is kept, and not served", path)

    # -- durability --------------------------------------------------------------------------------------------------

    @property
    def has_unsynced(self) -> bool:
        """Whether something was written that :meth:`sync` has not seen."""
        return bool(self._dirty)

    def tick(self, now: float) -> float | None:
        """Flush what is due at ``now`` (monotonic s); when to come again, or None."""
        if self._dirty and self._dirty_since is None:
            self._dirty_since = now
        deadline = self.flush_policy.deadline(self._dirty_since)
        if deadline is not None and now >= deadline:
            self.sync()
            return None
        return deadline

    def sync(self) -> None:
        """Everything written so far goes to the disk: with the policy ``always``, once for all answers that wait."""
        for dirty in list(self._dirty):
            dirty.flush()
            self._dirty.pop(dirty, None)
        self._dirty_since = None

    def _note_dirty(self, dirty: PartitionLog | Journal | MetadataStore) -> None:
        self._dirty[dirty] = None

    def close(self) -> None:
        """Flush, seal all logs and give the directory up. An error of one log is logged and does not keep the
        others.
        """
        for found in self._logs.values():
            try:
                found.close()
            except KafkaError as error:
                log.error("%s could not be closed well: %s", found.name, error)
        self._logs.clear()
        try:
            self.sync()
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
