"""A broker's data directory: its lock, its metadata, and the logs of its partitions, opened at their first use.

    DATA_DIR/.lock
             metadata.journal              metadata_store.py
             topics/NAME.ID/PARTITION/     one log each; ID: the first 8 digits of the topic's id, so that a topic of
                                           the same name created later never finds the old one's files; NAME: its
                                           first 200 characters, so that no file's name is too long
             topics/NAME.ID.deleted/       being deleted, a few files at a time (files.py), the rest at the next start;
                                           restored when the deletion did not reach the metadata

Directories of topics that are not in the metadata are kept and logged: the metadata may have been lost. ``flushing.py``
decides when bytes go to the disk.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import UUID

from kafka.broker.log.files import (
    DELETED,
    MAX_OPEN_FILES,
    FileDeleter,
    FilePool,
    is_out_of_descriptors,
    rename,
    storage_errors,
)
from kafka.broker.log.flushing import FileExecutor, FlushPolicy, LogFlusher
from kafka.broker.log.metadata_store import MetadataStore, Topic
from kafka.broker.log.partition_log import LogConfig, PartitionLog, log_config
from kafka.broker.private_files import METADATA_JOURNAL, open_private, prepare_directory
from kafka.broker.write_errors import WriteErrors
from kafka.errors import KafkaError, KafkaStorageError, UnknownTopicOrPartitionError

fcntl: Any = None
with contextlib.suppress(ImportError):  # Windows has none: there, two brokers in one directory are not kept apart
    import fcntl

LOCK_NAME = ".lock"

_PROBE_S = 0.05
"""``state_file.has_broker`` holds the lock for a moment to see whether a broker runs; that long it is waited for."""


class DirectoryLockedError(KafkaError):
    """Another process uses this data directory. ``pid``: its process id, or None when it is not known."""

    def __init__(self, directory: str, pid: int | None) -> None:
        holder = f"process {pid}" if pid else "another process"
        super().__init__(
            f"the data directory {directory} is in use by {holder}: stop that broker, connect to it, or choose another "
            "directory"
        )
        self.directory = directory
        self.pid = pid


class DirectoryLock:
    """One writer per data directory: an advisory lock on the file ``.lock``, which ends with the process.

    Taken at once or :class:`DirectoryLockedError`; ``directory`` is made when it is missing. The file holds the owner's
    process id, for that error. It stays when the lock is released: deleting it would let two processes lock two files
    of one name.

    KafkaStorageError when the directory cannot be made or trusted (``private_files.py``), or not be written to.
    """

    def __init__(self, directory: str) -> None:
        self.directory = os.path.abspath(directory)
        with storage_errors("use the data directory", self.directory):
            prepare_directory(self.directory)
        path = os.path.join(self.directory, LOCK_NAME)
        with storage_errors("open", path):
            self._fd = open_private(path, os.O_RDWR | os.O_CREAT)
        try:
            with storage_errors("write to", path):
                self._acquire()
        except BaseException:
            os.close(self._fd)
            raise

    def _acquire(self) -> None:
        deadline = time.monotonic() + _PROBE_S
        while fcntl is not None:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() >= deadline:
                    raise DirectoryLockedError(self.directory, self._holder()) from None
            time.sleep(_PROBE_S / 10)
        os.ftruncate(self._fd, 0)
        os.write(self._fd, b"%d\n" % os.getpid())

    def _holder(self) -> int | None:
        os.lseek(self._fd, 0, os.SEEK_SET)
        text = os.read(self._fd, 32).strip()
        return int(text) if text.isdigit() else None

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


log = logging.getLogger(__name__)

_NAME_CHARACTERS = 200


class LogDirectory:
    """The data directory of one broker; DirectoryLockedError when another process has it.

    ``epoch_ms`` gives the time of day in ms. ``defaults``: topic configuration that the broker's settings give.
    ``leader_epoch`` returns that of a partition whose log is opened; None: the log's own. ``executor`` runs blocking
    file work (``flushing.py``).
    """

    def __init__(
        self,
        path: str,
        *,
        epoch_ms: Callable[[], int],
        flush: FlushPolicy | None = None,
        defaults: Mapping[str, str] | None = None,
        max_open_files: int = MAX_OPEN_FILES,
        executor: FileExecutor | None = None,
        leader_epoch: Callable[[Topic, int], int | None] = lambda topic, partition: None,
    ) -> None:
        self.path = os.path.abspath(path)
        self.flush_policy = flush if flush is not None else FlushPolicy.parse("interval")
        self.defaults = dict(defaults or {})
        self._epoch_ms = epoch_ms
        self._leader_epoch = leader_epoch
        self._logs: dict[tuple[UUID, int], PartitionLog] = {}
        self._last_values: dict[str, str] = {}
        self._last_config = LogConfig()
        # Before anything is read: another process may be writing there.
        self._lock = DirectoryLock(self.path)
        self.pool = FilePool(max_open_files, WriteErrors(self.path, epoch_ms))
        self.flusher = LogFlusher(self.flush_policy, self.pool, executor)
        self.deleter = FileDeleter(lambda: self.flusher.executor)
        try:
            self.metadata = MetadataStore(
                os.path.join(self.path, METADATA_JOURNAL),
                self.pool,
                on_dirty=self.flusher.mark_dirty,
                sync=self.flush_policy.name != "never",
            )
            self._topics_path = os.path.join(self.path, "topics")
            self.pool.make_directory(self._topics_path)
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
            epoch = self._leader_epoch(topic, partition)
            if epoch is not None:
                found.begin_leader_epoch(epoch)
        return found

    def _open(self, topic: Topic, partition: int) -> PartitionLog:
        return PartitionLog(
            self.partition_path(topic, partition),
            f"{topic.name}-{partition}",
            self.pool,
            self._config(topic.name),
            on_dirty=self.flusher.mark_dirty,
            delete=self.deleter.add,
            now_ms=self._epoch_ms(),
            sync=self.flush_policy.name != "never",
        )

    def partition_path(self, topic: Topic, partition: int) -> str:
        """Where the log of a partition lies, or would."""
        return os.path.join(self._topic_path(topic), str(partition))

    def log_if_open(self, topic_id: UUID, partition: int) -> PartitionLog | None:
        """A log, if it is open."""
        return self._logs.get((topic_id, partition))

    def all_open_logs(self) -> list[PartitionLog]:
        """All logs that are open."""
        return list(self._logs.values())

    def close_log(self, topic: Topic, partition: int) -> None:
        """Close a log that has no other user, to free its memory."""
        found = self._logs.pop((topic.topic_id, partition), None)
        if found is not None:
            found.close()
            found.mark_closed()
            self.flusher.forget(found)

    def open_logs(self, topic: Topic) -> list[PartitionLog]:
        """The topic's logs that are open: no request waits on the others, and they have no state in memory."""
        return [
            self._logs[topic.topic_id, number]
            for number in range(topic.partitions)
            if (topic.topic_id, number) in self._logs
        ]

    def partitions_with_files(self, topic: Topic) -> list[int]:
        """The topic's partitions that were ever written to: the others need not be opened. KafkaStorageError."""
        path = self._topic_path(topic)
        with storage_errors("read the directory", path):
            try:
                names = os.listdir(path)
            except FileNotFoundError:
                return []
        return sorted(int(name) for name in names if name.isdigit() and int(name) < topic.partitions)

    def size_of(self, topic: Topic, partition: int) -> int:
        """The bytes of a partition's segments, without opening its log."""
        found = self._logs.get((topic.topic_id, partition))
        if found is not None:
            return found.size_bytes
        try:
            with os.scandir(self.partition_path(topic, partition)) as entries:
                return sum(entry.stat().st_size for entry in entries if entry.name.endswith(".log"))
        except OSError:
            return 0

    def configure_topic(self, topic: Topic) -> None:
        """Apply a topic's configuration, as the metadata has it now, to its open logs."""
        logs = self.open_logs(topic)
        if logs:
            config = self._config(topic.name)
            for found in logs:
                found.configure(config)

    def set_defaults(self, defaults: Mapping[str, str]) -> None:
        """Replace the topic configuration that the broker's settings give, and apply it to all open logs."""
        self.defaults = dict(defaults)
        for topic in self.metadata:
            self.configure_topic(topic)

    def delete_topic(self, name: str) -> Topic:
        """Delete a topic and its files. What a crash leaves of them is deleted at the next start.

        Errors, after which the topic still exists: UnknownTopicOrPartitionError (3), KafkaStorageError (56).
        """
        path = self._topic_path(self.metadata.known_topic(name))
        rename(path, path + DELETED)  # it may have no files yet
        try:
            topic = self.metadata.delete_topic(name)
        except BaseException:
            rename(path + DELETED, path)
            raise
        for number in range(topic.partitions):
            found = self._logs.pop((topic.topic_id, number), None)
            if found is not None:
                found.mark_closed()
                self.flusher.forget(found)
                for segment in found.segments:
                    self.pool.forget(segment.path)
        self._delete_after_flush(path + DELETED)
        return topic

    def _delete_after_flush(self, path: str) -> None:
        """Delete a topic's files once the metadata without it is on the disk: otherwise a crash of the machine could
        leave the topic with only some of its records. After a failed flush the next start deletes them or not."""
        if self.flush_policy.name == "never":
            self.deleter.add([path])
            return
        self.flusher.request_flush(self.metadata.journal)
        self.flusher.add_waiter(lambda error: self.deleter.add([path]) if error is None else None)

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
                log.warning("restoring %s: its topic is still in the metadata", path)
                rename(path, path[: -len(DELETED)])
            elif name.endswith(DELETED):
                log.info("deleting %s: its topic was deleted", path)
                self.deleter.add_later([path])  # the start does not wait for it
            elif name not in known:
                log.warning("%s belongs to no topic in the metadata; it is kept and not served", path)

    # -- durability --------------------------------------------------------------------------------------------------

    def call_when_flushed(self, step: Callable[[], None]) -> None:
        """With fsync=always call ``step`` when all that was written before is on the disk, or has failed to get there;
        else at once. ``step`` finds out itself which log has failed."""
        if self.flush_policy.sync_before_answer and self.flusher.has_unflushed:
            self.flusher.add_waiter(lambda error: step())
        else:
            step()

    def tick(self, now: float) -> float | None:
        """Begin to flush what is due at ``now`` (monotonic s); when to come again, or None."""
        if len(self.deleter):
            self.deleter.run()
        return self.flusher.tick(now)

    def close(self) -> None:
        """Flush and seal all logs, and release the directory's lock. An error of one log is logged and does not stop
        the others.
        """
        self.flusher.close_executor()
        with _logged_errors(self.path):
            self.flusher.sync()  # its waiters may write more
        for found in self._logs.values():
            with _logged_errors(found.name):
                found.close()
            self.flusher.forget(found)
        self._logs.clear()
        with _logged_errors(self.path):
            self.metadata.journal.close()
        self.pool.close()
        self._lock.release()


@contextlib.contextmanager
def _logged_errors(name: str) -> Iterator[None]:
    try:
        yield
    except KafkaError as error:
        log.error("cannot close %s cleanly: %s", name, error)
