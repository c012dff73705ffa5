"""Bringing what was written to the disk: what is dirty, jobs that sync it, who waits for them.

    written to   -> dirty -> (flush.py: due) -> one job at a time, in slices of a few files -> end_flush of each owner
    who must not answer before -> waits for the next job that begins

A job runs where the :class:`Executor` runs it: the server's in a thread, so that a slow disk stops nobody but those who
wait for it; :class:`Inline` at once. Everything here but a slice's ``fsync`` calls runs on the broker's thread.

An ``fsync`` that failed is not tried again, because the system may have dropped the pages that it could not write and
then says that all is well: the owner is told, and takes no more writes (``partition_log.py``, ``journal.py``). A file
that could not be opened, for want of a descriptor or of memory, was not synced, and nothing is lost: its owner stays
dirty, whoever waits goes on waiting, and the next job begins :data:`RETRY_S` later.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from math import inf
from typing import Any, Protocol

from kafka.broker.log.files import FilePool, OutOfDescriptorsError, storage_error
from kafka.broker.log.flush import FlushPolicy
from kafka.errors import KafkaStorageError

log = logging.getLogger(__name__)

SLICE_FILES = 32
"""Of one slice: so many descriptors more than the pool's are open at most."""

RETRY_S = 0.2
"""How long nothing is synced after descriptors have run out."""

_NO_SYNC_OF_DIRECTORIES = frozenset({errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.EACCES, errno.EISDIR})

Done = Callable[[KafkaStorageError | None], None]
Errors = dict[str, KafkaStorageError]


class Executor(Protocol):
    """Runs work that takes long, one piece after the other, in their order."""

    def run(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Call ``work`` somewhere, and ``done`` with its result on the broker's thread. Work raises nothing."""

    def drain(self) -> None:
        """Come back when all work, also what its ``done`` calls have added, is done."""


class Inline:
    """At once, here."""

    def run(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        done(work())

    def drain(self) -> None:
        return None


_INLINE = Inline()


class Flushable(Protocol):
    """Something that writes to files: a log, a journal."""

    def begin_flush(self) -> list[str]:
        """The files and directories to be synced."""

    def end_flush(self, error: KafkaStorageError | None) -> None:
        """They have been, or not all of them. OutOfDescriptorsError: nothing is lost; the next :meth:`begin_flush`
        tells them again."""


class Syncer:
    """One broker's syncing. ``executor`` may be replaced while no job runs."""

    def __init__(self, policy: FlushPolicy, pool: FilePool, executor: Executor | None = None) -> None:
        self.policy = policy
        self.executor: Executor = executor or Inline()
        self.may_block: Callable[[], bool] = lambda: False
        """Whether all that there is to do waits for the sync anyway: then a thread would only be a detour."""
        self.slice_files = SLICE_FILES
        """Descriptors that a job may open at once."""
        self._pool = pool
        self._dirty: dict[Flushable, None] = {}
        self._dirty_since: float | None = None
        self._urgent: dict[Flushable, None] = {}
        self._waiting: list[Done] = []
        self._job: _Job | None = None
        self._is_going_on = False
        self._shortage: OutOfDescriptorsError | None = None
        """Why the last job has left files to the next one."""
        self._retry_at: float | None = None
        """When that one may begin (monotonic s); None: at the next tick; infinity: the next tick says when."""

    # -- what is to be done ------------------------------------------------------------------------------------------

    def note(self, owner: Flushable) -> None:
        """It has written something."""
        self._dirty[owner] = None

    def forget(self, owner: Flushable) -> None:
        """Its files are about to go."""
        self._dirty.pop(owner, None)
        self._urgent.pop(owner, None)
        if self._job is not None:
            self._job.forget(owner)

    def hurry(self, owner: Flushable) -> None:
        """What it has written goes to the disk at the next tick, whatever the policy says."""
        if owner in self._dirty:
            self._urgent[owner] = None

    def wait(self, done: Done) -> None:
        """Call ``done`` when the next job has ended, with None or an error of it."""
        self._waiting.append(done)

    @property
    def has_unsynced(self) -> bool:
        """Whether something was written that is not known to be on the disk."""
        return bool(self._dirty) or self._job is not None

    @property
    def has_to_begin(self) -> bool:
        """Whether somebody waits for a job, and none runs: the next tick begins it."""
        return self._job is None and bool(self._waiting) and self._retry_at is None

    @property
    def is_urgent(self) -> bool:
        """Whether :meth:`hurry` asked for something that no job has taken up."""
        return bool(self._urgent)

    @property
    def is_hurrying(self) -> bool:
        """Whether it asked for something that is not known to be on the disk."""
        return bool(self._urgent) or (self._job is not None and bool(self._job.urgent))

    def tick(self, now: float) -> float | None:
        """Begin what is due at ``now`` (monotonic s); when to come again, or None."""
        if self._dirty and self._dirty_since is None:
            self._dirty_since = now
        if self._job is not None:
            return None
        if self._is_resting(now):
            return self._retry_at
        deadline = self.policy.deadline(self._dirty_since)
        if deadline is not None and now >= deadline:
            self._begin(list(self._dirty))
            deadline = None
        elif self._urgent or self._waiting:
            self._begin(list(self._dirty if self.policy.sync_before_answer else self._urgent))
        return self._retry_at if self._is_resting(now) else deadline

    def _is_resting(self, now: float) -> bool:
        if self._retry_at == inf:
            self._retry_at = now + RETRY_S
        if self._retry_at is not None and now >= self._retry_at:
            self._retry_at = None
        return self._retry_at is not None

    def sync(self) -> None:
        """Everything to the disk, now and here; the first error is raised when all has been tried."""
        self.executor.drain()
        self._retry_at = None
        first: list[KafkaStorageError] = []

        def note(error: KafkaStorageError | None) -> None:
            if error is not None:
                first.append(error)

        while (self._dirty or self._waiting) and self._retry_at is None:
            executor, self.executor = self.executor, Inline()
            self.wait(note)
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
        job = self._job = _Job(owners, waiting)
        job.urgent = self._urgent.keys() & job.owners.keys()
        for owner in job.owners:
            self._dirty.pop(owner, None)
            self._urgent.pop(owner, None)
        if not self._dirty:
            self._dirty_since = None
        self._go_on()

    def _go_on(self) -> None:
        """Run the job's slices, in a loop, so that an executor that is done at once makes no tower of calls."""
        if self._is_going_on:
            return
        self._is_going_on = True
        try:
            while (job := self._job) is not None and not job.is_running:
                paths = job.next_slice(self.slice_files)
                if not paths:
                    self._end(job)
                    continue
                job.is_running = True
                work = partial(sync_files, [(path, self._pool.borrow(path)) for path in paths])
                executor = _INLINE if job.waiting and self.may_block() else self.executor
                executor.run(work, self._slice_done)
        finally:
            self._is_going_on = False

    def _slice_done(self, errors: Errors) -> None:
        if self._job is not None:
            self._job.is_running = False
            self._job.errors.update(errors)
            self._go_on()

    def _end(self, job: _Job) -> None:
        self._job = None
        worst: KafkaStorageError | None = None
        shortage: OutOfDescriptorsError | None = None
        for owner, paths in job.owners.items():
            error = job.outcome(paths)
            if isinstance(error, OutOfDescriptorsError):
                shortage = error
                self._dirty[owner] = None
                if owner in job.urgent:
                    self._urgent[owner] = None
            elif error is not None:
                log.error("what was written is not safe from a loss of the machine: %s", error.args[0])
                worst = error
            owner.end_flush(error)
        self._tell_shortage(shortage)
        if shortage is not None and worst is None:
            self._waiting[:0] = job.waiting
            return
        for done in job.waiting:
            done(worst)
        if self._job is None and self._waiting and shortage is None:
            self._begin(list(self._dirty if self.policy.sync_before_answer else self._urgent))

    def _tell_shortage(self, shortage: OutOfDescriptorsError | None) -> None:
        """Rest after a job that has left files to the next one; the log hears of the first such job and of the end."""
        if shortage is not None:
            self._retry_at = inf
            if self._shortage is None:
                log.error("a sync of logs is postponed and tried again every %g s: %s", RETRY_S, shortage.args[0])
        elif self._shortage is not None:
            log.info("the postponed sync of logs is done")
        self._shortage = shortage


class _Job:
    """What one job syncs, and who waits for it."""

    def __init__(self, owners: Iterable[Flushable], waiting: list[Done]) -> None:
        self.owners = {owner: owner.begin_flush() for owner in owners}
        self.waiting = waiting
        self.errors: Errors = {}
        self.is_running = False
        self.urgent: set[Flushable] = set()
        """Those of them that :meth:`Syncer.hurry` was called for."""
        self._paths = deque(dict.fromkeys(path for paths in self.owners.values() for path in paths))

    def next_slice(self, files: int) -> list[str]:
        return [self._paths.popleft() for _ in range(min(files, len(self._paths)))]

    def outcome(self, paths: list[str]) -> KafkaStorageError | None:
        """The worst error of these files: one that is final, or else one after which they can be synced."""
        found = [self.errors[path] for path in paths if path in self.errors]
        return min(found, key=lambda error: isinstance(error, OutOfDescriptorsError), default=None)

    def forget(self, owner: Flushable) -> None:
        gone = set(self.owners.pop(owner, ()))
        gone.difference_update(*self.owners.values())  # new topics have a directory in common
        self._paths = deque(path for path in self._paths if path not in gone)


def sync_files(files: list[tuple[str, int | None]]) -> Errors:
    """Sync files and directories, each with a descriptor that is ours to close, or None to open one. What is no longer
    there needs nothing."""
    errors: Errors = {}
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
