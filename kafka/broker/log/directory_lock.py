"""One writer for each data directory: an advisory lock on a file, which ends with the process whatever ends it.

The file ``.lock`` holds the process id of whoever has it, for the error that the second one gets. It stays when the
lock is given up: deleting it would let two processes lock two files of one name.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

from kafka.broker.log.files import storage_error
from kafka.broker.private_files import open_private, prepare_directory
from kafka.errors import KafkaError

fcntl: Any = None
with contextlib.suppress(ImportError):  # Windows has none: there, two brokers in one directory are not kept apart
    import fcntl

LOCK_NAME = ".lock"

_GLANCE_S = 0.05
"""Who looks whether there is a broker (``state_file.has_broker``) holds the lock for a moment; that is waited out."""


class DirectoryLockedError(KafkaError):
    """Another process writes in this data directory. ``pid``: which, or None when it is not known."""

    def __init__(self, directory: str, pid: int | None) -> None:
        holder = f"process {pid}" if pid else "another process"
        super().__init__(
            f"the data directory {directory} is in use by {holder}: stop that broker, connect to it, or choose another "
            "directory"
        )
        self.directory = directory
        self.pid = pid


class DirectoryLock:
    """The lock on ``directory``, which is made when it is missing; taken at once or :class:`DirectoryLockedError`.

    KafkaStorageError when the directory cannot be made or trusted (``private_files.py``), or not be written to.
    """

    def __init__(self, directory: str) -> None:
        self.directory = os.path.abspath(directory)
        try:
            prepare_directory(self.directory)
        except OSError as error:
            raise storage_error("use the data directory", self.directory, error) from error
        path = os.path.join(self.directory, LOCK_NAME)
        try:
            self._fd = open_private(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise storage_error("open", path, error) from error
        try:
            self._take()
        except OSError as error:
            os.close(self._fd)
            raise storage_error("write to", path, error) from error
        except BaseException:
            os.close(self._fd)
            raise

    def _take(self) -> None:
        give_up_at = time.monotonic() + _GLANCE_S
        while fcntl is not None:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() >= give_up_at:
                    raise DirectoryLockedError(self.directory, self._holder()) from None
            time.sleep(_GLANCE_S / 10)
        os.ftruncate(self._fd, 0)
        os.write(self._fd, b"%d\n" % os.getpid())

    def _holder(self) -> int | None:
        os.lseek(self._fd, 0, os.SEEK_SET)
        text = os.read(self._fd, 32).strip()
        return int(text) if text.isdigit() else None

    def release(self) -> None:
        """Give the lock up; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
