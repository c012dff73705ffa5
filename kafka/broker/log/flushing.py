"""When appended bytes go to the disk, and which callers wait: the flush policy, flush jobs, their waiters.

    written to   -> dirty -> (FlushPolicy: due) -> one job at a time, in slices of a few files -> end_flush of each
    owner a response that must wait for the disk -> waits for the next job that begins

A job runs on the :class:`FileExecutor`: the server's is a thread, so that a slow disk delays only the requests that
wait for it; :class:`InlineExecutor` runs it at once. Everything here but a slice's ``fsync`` calls runs on the
broker's thread.

A failed ``fsync`` is not tried again, because the kernel may have dropped the pages that it could not write and then
reports success: the owner gets the error and takes no more writes (``partition_log.py``, ``metadata_store.py``). A file
that could not be opened, for want of a descriptor or of memory, was not synced, and nothing is lost: its owner stays
dirty, the waiters go on waiting, and the next job begins :data:`RETRY_BACKOFF_S` later.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from functools import partial
from math import inf
from typing import Any, NamedTuple, Protocol

from kafka.broker.log.files import FilePool, OutOfDescriptorsError, storage_error
from kafka.errors import KafkaConfigurationError, KafkaStorageError


class FlushPolicy(NamedTuple):
    """When appended bytes are flushed. With any policy a killed process loses nothing that was acknowledged, because
    each append is a ``write()``; the policy decides what a crash of the machine may lose:

    always     nothing: responses wait for the flush; many appends share one fsync (``sync_before_answer``)
    interval   what was appended in the last ``interval_s``
    never      what the operating system has not written yet

    ``interval_s`` None: no flush by time.
    """

    name: str
    interval_s: float | None
    sync_before_answer: bool

    @classmethod
    def parse(cls, text: str, interval_s: float = 1.0) -> FlushPolicy:
        """The policy of this name; KafkaConfigurationError for others."""
        interval = {"always": None, "interval": interval_s, "never": None}
        if text not in interval:
            raise KafkaConfigurationError(f"fsync is one of {', '.join(interval)}; not {text!r}")
        return cls(text, interval[text], text == "always")

    def deadline(self, dirty_since: float | None) -> float | None:
        """When bytes first written at ``dirty_since`` (monotonic s; None: there are none) have to be flushed."""
        if dirty_since is None:
            return None
        if self.sync_before_answer:
            return dirty_since
        return None if self.interval_s is None else dirty_since + self.interval_s


log = logging.getLogger(__name__)

SLICE_FILES = 32
"""Synced in one slice: at most so many descriptors are open besides the pool's."""

RETRY_BACKOFF_S = 0.2
"""How long no job begins after descriptors have run out."""

_NO_SYNC_OF_DIRECTORIES = frozenset({errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.EACCES, errno.EISDIR})

FlushCallback = Callable[[KafkaStorageError | None], None]
SyncErrors = dict[str, KafkaStorageError]


class FileExecutor(Protocol):
    """Runs blocking file work, one piece after the other, in their order."""

    def run(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Call ``work`` on any thread, and ``done`` with its result on the broker's thread. ``work`` must not raise."""

    def drain(self) -> None:
        """Wait until all work is done, including what its ``done`` calls add."""


class InlineExecutor:
    """Runs the work at once, on the caller's thread."""

    def run(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        done(work())

    def drain(self) -> None:
        return None


_INLINE = InlineExecutor()


class Flushable(Protocol):
    """An owner of files: a log, a journal."""

    def begin_flush(self) -> list[str]:
        """The files and directories to be synced."""

    def end_flush(self, error: KafkaStorageError | None) -> None:
        """They are synced, or ``error``. After an OutOfDescriptorsError nothing is lost; the next :meth:`begin_flush`
        returns them again."""


class LogFlusher:
    """Flushes the logs and the metadata of one broker."""

    def __init__(self, policy: FlushPolicy, pool: FilePool, executor: FileExecutor | None = None) -> None:
        self.policy = policy
        self.executor: FileExecutor = executor or InlineExecutor()
        self.may_block: Callable[[], bool] = lambda: False
        """Whether the only connection waits for the flush anyway: then a job runs at once, without the executor."""
        self.slice_files = SLICE_FILES
        """The number of descriptors that a job may open at once."""
        self._pool = pool
        self._dirty: dict[Flushable, None] = {}
        self._dirty_since: float | None = None
        self._urgent: dict[Flushable, None] = {}
        self._waiting: list[FlushCallback] = []
        self._job: _FlushJob | None = None
        self._is_running_slices = False
        self._shortage: OutOfDescriptorsError | None = None
        """Why the last job left files to the next one."""
        self._retry_at: float | None = None
        """When that one may begin (monotonic s); None: at the next tick; infinity: the next tick sets it."""

    def configure(self, executor: FileExecutor, slice_files: int, may_block: Callable[[], bool]) -> None:
        """Run jobs on ``executor`` from now on; call this while no job runs."""
        self.executor = executor
        self.slice_files = slice_files
        self.may_block = may_block

    def close_executor(self) -> None:
        """Wait for the executor's work, and run all further jobs at once."""
        self.executor.drain()
        self.executor = InlineExecutor()

    # -- dirty owners and waiters ------------------------------------------------------------------------------------

    def mark_dirty(self, owner: Flushable) -> None:
        """``owner`` has written to its files."""
        self._dirty[owner] = None

    def forget(self, owner: Flushable) -> None:
        """The owner's files are about to be deleted or are closed."""
        self._dirty.pop(owner, None)
        self._urgent.pop(owner, None)
        if self._job is not None:
            self._job.forget(owner)

    def request_flush(self, owner: Flushable) -> None:
        """Flush the owner at the next tick, whatever the policy says."""
        if owner in self._dirty:
            self._urgent[owner] = None

    def add_waiter(self, done: FlushCallback) -> None:
        """Call ``done`` when the next job has ended, with None or its error."""
        self._waiting.append(done)

    @property
    def has_unflushed(self) -> bool:
        """Whether anything was written that is not known to be on the disk."""
        return bool(self._dirty) or self._job is not None

    @property
    def must_start(self) -> bool:
        """Whether there are waiters and no job runs: the next tick begins one."""
        return self._job is None and bool(self._waiting) and self._retry_at is None

    @property
    def has_requested(self) -> bool:
        """Whether :meth:`request_flush` was called for an owner that no job has taken up yet."""
        return bool(self._urgent)

    @property
    def is_requested_unfinished(self) -> bool:
        """Whether it was called for an owner whose files are not known to be on the disk."""
        return bool(self._urgent) or (self._job is not None and bool(self._job.urgent))

    def tick(self, now: float) -> float | None:
        """Begin what is due at ``now`` (monotonic s); when to come again, or None."""
        if self._dirty and self._dirty_since is None:
            self._dirty_since = now
        if self._job is not None:
            return None
        if self._is_backing_off(now):
            return self._retry_at
        deadline = self.policy.deadline(self._dirty_since)
        if deadline is not None and now >= deadline:
            self._begin(list(self._dirty))
            deadline = None
        elif self._urgent or self._waiting:
            self._begin_urgent()
        return self._retry_at if self._is_backing_off(now) else deadline

    def _is_backing_off(self, now: float) -> bool:
        if self._retry_at == inf:
            self._retry_at = now + RETRY_BACKOFF_S
        if self._retry_at is not None and now >= self._retry_at:
            self._retry_at = None
        return self._retry_at is not None

    def sync(self) -> None:
        """Flush everything on this thread; the first error is raised when all has been tried."""
        self.executor.drain()
        self._retry_at = None
        first: list[KafkaStorageError] = []

        def note(error: KafkaStorageError | None) -> None:
            if error is not None:
                first.append(error)

        while (self._dirty or self._waiting) and self._retry_at is None:
            executor, self.executor = self.executor, InlineExecutor()
            self.add_waiter(note)
            try:
                self._begin(list(self._dirty))
            finally:
                self.executor = executor
        if self._shortage is not None:
            self._waiting = [done for done in self._waiting if done is not note]
            first.append(self._shortage)
        if first:
            raise first[0]

    # -- jobs --------------------------------------------------------------------------------------------------------

    def _begin(self, owners: Iterable[Flushable]) -> None:
        waiting, self._waiting = self._waiting, []
        job = self._job = _FlushJob(owners, waiting, self._urgent.keys())
        for owner in job.owners:
            self._dirty.pop(owner, None)
            self._urgent.pop(owner, None)
        if not self._dirty:
            self._dirty_since = None
        self._run_slices()

    def _begin_urgent(self) -> None:
        self._begin(list(self._dirty if self.policy.sync_before_answer else self._urgent))

    def _run_slices(self) -> None:
        """Run the job's slices, in a loop, so that an inline executor does not recurse."""
        if self._is_running_slices:
            return
        self._is_running_slices = True
        try:
            while (job := self._job) is not None and not job.is_running:
                paths = job.begin_slice(self.slice_files)
                if not paths:
                    self._end(job)
                    continue
                work = partial(sync_files, [(path, self._pool.duplicate(path)) for path in paths])
                executor = _INLINE if job.waiting and self.may_block() else self.executor
                executor.run(work, self._slice_done)
        finally:
            self._is_running_slices = False

    def _slice_done(self, errors: SyncErrors) -> None:
        if self._job is not None:
            self._job.end_slice(errors)
            self._run_slices()

    def _end(self, job: _FlushJob) -> None:
        """Tell the owners and waiters how the job has ended; after a shortage of descriptors the waiters go on
        waiting."""
        self._job = None
        worst: KafkaStorageError | None = None
        shortage: OutOfDescriptorsError | None = None
        failed = 0
        for owner, paths in job.owners.items():
            error = job.outcome(paths)
            if isinstance(error, OutOfDescriptorsError):
                shortage = error
                self._dirty[owner] = None
                if owner in job.urgent:
                    self._urgent[owner] = None
            elif error is not None:
                worst = worst or error
                failed += 1
            owner.end_flush(error)
        if worst is not None:
            log.error(
                "fsync failed, durability is not guaranteed: %s; %d logs take no more writes: check the disk and the "
                "system's log, and restart the broker when the disk works",
                worst.args[0], failed,
            )  # fmt: skip
        self._log_shortage(shortage)
        if shortage is not None and worst is None:
            self._waiting[:0] = job.waiting
            return
        for done in job.waiting:
            done(worst)
        if self._job is None and self._waiting and shortage is None:
            self._begin_urgent()

    def _log_shortage(self, shortage: OutOfDescriptorsError | None) -> None:
        """Back off after a job that left files to the next one; log the first such job and the end of the shortage."""
        if shortage is not None:
            self._retry_at = inf
            if self._shortage is None:
                log.error("flush postponed, retrying every %g s: %s", RETRY_BACKOFF_S, shortage.args[0])
        elif self._shortage is not None:
            log.info("the postponed flush is done")
        self._shortage = shortage


class _FlushJob:
    """One flush: its owners, their files, the waiters and the errors."""

    def __init__(
        self, owners: Iterable[Flushable], waiting: list[FlushCallback], urgent: AbstractSet[Flushable]
    ) -> None:
        self.owners = {owner: owner.begin_flush() for owner in owners}
        self.waiting = waiting
        self.errors: SyncErrors = {}
        self.is_running = False
        self.urgent = urgent & self.owners.keys()
        """The owners that :meth:`LogFlusher.request_flush` was called for."""
        self._paths = deque(dict.fromkeys(path for paths in self.owners.values() for path in paths))

    def begin_slice(self, files: int) -> list[str]:
        """The next paths to sync, at most ``files``; empty at the end."""
        paths = [self._paths.popleft() for _ in range(min(files, len(self._paths)))]
        self.is_running = bool(paths)
        return paths

    def end_slice(self, errors: SyncErrors) -> None:
        self.is_running = False
        self.errors.update(errors)

    def outcome(self, paths: list[str]) -> KafkaStorageError | None:
        """The worst error of these files: a final one, or else one after which they can still be synced."""
        found = [self.errors[path] for path in paths if path in self.errors]
        return min(found, key=lambda error: isinstance(error, OutOfDescriptorsError), default=None)

    def forget(self, owner: Flushable) -> None:
        gone = set(self.owners.pop(owner, ()))
        gone.difference_update(*self.owners.values())  # new topics share a parent directory
        self._paths = deque(path for path in self._paths if path not in gone)


def sync_files(files: list[tuple[str, int | None]]) -> SyncErrors:
    """Sync files and directories, each with a descriptor that is closed here, or None to open one. Missing files are
    skipped."""
    errors: SyncErrors = {}
    for path, borrowed in files:
        fd = borrowed
        action = "open"
        try:
            if fd is None:
                fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
            action = "sync"
            os.fsync(fd)
        except FileNotFoundError:
            continue
        except OSError as error:
            if not (error.errno in _NO_SYNC_OF_DIRECTORIES and os.path.isdir(path)):
                errors[path] = storage_error(action, path, error)
        finally:
            if fd is not None:
                with contextlib.suppress(OSError):
                    os.close(fd)
    return errors
