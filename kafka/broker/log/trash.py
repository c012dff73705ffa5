"""Files and directories that nobody needs any more, removed at leisure: a few at a time, where the executor runs.

What is put in here lies under a name that no start takes for anything else (``.deleted``), so what a crash leaves is
put in again. Removing a segment of 1 GiB takes a file system tens of milliseconds, and a topic may have thousands.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from kafka.broker.log.files import remove_file, storage_error
from kafka.broker.log.swap import DELETED
from kafka.broker.log.syncing import Executor
from kafka.errors import KafkaStorageError

log = logging.getLogger(__name__)

SLICE_FILES = 64


class Trash:
    """``executor`` gives the executor that is in force."""

    def __init__(self, executor: Callable[[], Executor]) -> None:
        self._executor = executor
        self._paths: deque[str] = deque()
        self._is_running = False
        self._is_going_on = False

    def __len__(self) -> int:
        return len(self._paths) + self._is_running

    def add(self, paths: Iterable[str]) -> None:
        """Remove these files, or directories with all that is in them."""
        self._paths.extend(paths)
        self.go_on()

    def add_for_later(self, paths: Iterable[str]) -> None:
        """The same at the next :meth:`go_on`."""
        self._paths.extend(paths)

    def go_on(self) -> None:
        """Remove what was put in."""
        if self._is_going_on:
            return
        self._is_going_on = True
        try:
            while self._paths and not self._is_running:
                paths = [self._paths.popleft() for _ in range(min(SLICE_FILES, len(self._paths)))]
                self._is_running = True
                self._executor().run(partial(remove_some, paths, SLICE_FILES), self._removed)
        finally:
            self._is_going_on = False

    def _removed(self, left: list[str]) -> None:
        self._is_running = False
        self._paths.extend(left)
        self.go_on()


def remove_some(paths: list[str], limit: int) -> list[str]:
    """Remove files and directories, about ``limit`` of them; what is left to do. What cannot be removed is logged."""
    left: list[str] = []
    done = 0
    for path in paths:
        if done >= limit:
            left.append(path)
            continue
        try:
            done += 1
            if not os.path.isdir(path) or os.path.islink(path):
                os.unlink(path)
                continue
            is_empty = True
            for below, directories, files in os.walk(path, topdown=False):
                for name in files:
                    os.unlink(os.path.join(below, name))
                    done += 1
                for name in directories:
                    os.rmdir(os.path.join(below, name))
                if done >= limit:
                    is_empty = below == path
                    break
            if is_empty:
                os.rmdir(path)
            else:
                left.append(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            log.warning("cannot remove %s, which is left to the next start: %s", path, error)
    return left


def remove_files(paths: Sequence[str]) -> None:
    """Remove files at once; those that are in the way of nobody and cannot be removed now stay until the next start."""
    for path in paths:
        try:
            remove_file(path)
        except KafkaStorageError as error:
            log.warning("%s", error)


def set_aside(path: str) -> bool:
    """Give a file the name of one that is done with; whether there was one."""
    try:
        os.rename(path, path + DELETED)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise storage_error("rename", path, error) from error
    return True
