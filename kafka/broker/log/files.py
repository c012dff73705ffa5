"""Files under the logs: open ones kept in a bounded pool, writes that are whole or not at all, atomic replacement.

Nothing here knows batches. Every ``OSError`` of a write (a full disk, a read-only directory) becomes KafkaStorageError
(56), which names the file; a partial write is cut off again first, so that the file ends where it ended before. A file
that cannot be opened because descriptors or memory have run out is an OutOfDescriptorsError: nothing is lost, and the
same may work later.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections import OrderedDict

from kafka.broker.private_files import make_private_directory, open_private
from kafka.errors import KafkaStorageError

log = logging.getLogger(__name__)

_OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})

MAX_OPEN_FILES = 512
"""Of logs, where the system allows that many."""

Buffer = bytes | bytearray | memoryview


class OutOfDescriptorsError(KafkaStorageError):
    """A file could not be opened: the process or the system has no descriptor or no memory for it now."""


class FilePool:
    """At most ``max_open`` file descriptors, the least recently used closed first; files are opened on demand.

    A descriptor from :meth:`fd` is good until the next call of the pool. With 10,000 topics, one open file each would
    exceed the usual limit of a process.
    """

    def __init__(self, max_open: int = MAX_OPEN_FILES) -> None:
        self.max_open = max_open
        self._open: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def fd(self, path: str, *, create: bool = True) -> int:
        """A descriptor of an existing or new file, for reading and, where that is allowed, writing. Without ``create``
        of an existing one."""
        found = self._open.get(path)
        if found is not None:
            self._open.move_to_end(path)
            return found
        while len(self._open) >= self.max_open:
            self._close_oldest()
        flags = getattr(os, "O_BINARY", 0)
        while True:
            try:
                found = open_private(path, os.O_RDWR | (os.O_CREAT if create else 0) | flags)
                break
            except OSError as error:
                if error.errno in _OUT_OF_DESCRIPTORS:
                    if self._close_oldest():  # others have the rest: we live with fewer files
                        continue
                    raise storage_error("open", path, error) from error
                opener = os.open if os.path.isdir(path) else open_private  # a directory is opened to be synced
                try:
                    found = opener(path, os.O_RDONLY | flags)
                    break
                except OSError:
                    raise storage_error("open", path, error) from error
        self._open[path] = found
        return found

    def read(self, path: str, position: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``position``; less only at the end of the file."""
        try:
            fd = self.fd(path, create=False)
            data = os.pread(fd, size, position)
            while len(data) < size:
                more = os.pread(fd, size - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise storage_error("read", path, error) from error
        return data

    def write(self, path: str, position: int, data: Buffer) -> None:
        """Write all of ``data`` at ``position``, which is the end of the file; or nothing, and KafkaStorageError."""
        fd = self.fd(path)
        done = 0
        try:
            done = os.pwrite(fd, data, position)
            while done < len(data):
                written = os.pwrite(fd, memoryview(data)[done:], position + done)
                if written == 0:
                    raise OSError("the file takes no more bytes")
                done += written
        except OSError as error:
            if error.errno == errno.EBADF and not done:
                self._refuse_read_only(path, error)
            try:
                os.ftruncate(fd, position)
            except OSError as second:
                log.error("%s: %d bytes of a failed write are left behind byte %d: %s", path, done, position, second)
            raise storage_error("write to", path, error) from error

    def _refuse_read_only(self, path: str, error: OSError) -> None:
        """Say why a file that could be opened for reading only takes no bytes; the next write opens it again."""
        self.forget(path)
        try:
            os.close(open_private(path, os.O_RDWR))
        except OSError as why:
            error = why
        raise storage_error("write to", path, error) from error

    def truncate(self, path: str, size: int) -> None:
        """Cut the file to ``size`` bytes."""
        try:
            os.ftruncate(self.fd(path), size)
        except OSError as error:
            raise storage_error("truncate", path, error) from error

    def sync(self, path: str) -> None:
        """Wait until the file's bytes are on the disk."""
        try:
            os.fsync(self.fd(path, create=False))
        except OSError as error:
            raise storage_error("sync", path, error) from error

    def borrow(self, path: str) -> int | None:
        """A duplicate of the descriptor of an open file, which the caller closes. None when the pool does not have the
        file open, or when no descriptor is left even after the pool has closed all other files. A sync should use this
        one: the kernel reports an error of the disk to those who had the file open."""
        found = self._open.get(path)
        if found is None:
            return None
        self._open.move_to_end(path)
        while True:
            try:
                return os.dup(found)
            except OSError as error:
                if error.errno not in _OUT_OF_DESCRIPTORS or len(self._open) == 1:
                    return None
                self._close_oldest()

    def forget(self, path: str) -> None:
        """Close the file if it is open (it is about to be deleted or renamed)."""
        found = self._open.pop(path, None)
        if found is not None:
            os.close(found)

    def close(self) -> None:
        """Close all."""
        while self._close_oldest():
            pass

    def _close_oldest(self) -> bool:
        """Close the file that was not used for longest; False when none is open."""
        if not self._open:
            return False
        os.close(self._open.popitem(last=False)[1])
        return True


def is_out_of_descriptors(error: BaseException | None) -> bool:
    """Whether this is why."""
    if isinstance(error, OSError):
        return error.errno in _OUT_OF_DESCRIPTORS
    return isinstance(error, OutOfDescriptorsError)


def storage_error(action: str, path: str, error: OSError) -> KafkaStorageError:
    """The error for a failed action on a file: what, where, why.

    A failed ``sync`` is never an OutOfDescriptorsError: whatever the system says, it may have dropped the pages."""
    kind = OutOfDescriptorsError if action != "sync" and is_out_of_descriptors(error) else KafkaStorageError
    return kind(f"cannot {action} {path}: {error.strerror or error}")


def replace_file(path: str, data: bytes, *, sync: bool = True) -> None:
    """Put a file with this content in the place of another, or of none: a reader finds the old one or the new one."""
    temporary = path + ".tmp"
    directory: int | None = None
    try:
        with open(temporary, "wb", opener=open_private) as file:
            file.write(data)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        if sync:  # opened before anything is replaced: afterwards an error would leave neither old nor new
            directory = _open_directory(os.path.dirname(path))
        os.replace(temporary, path)
        if directory is not None:
            with contextlib.suppress(OSError):
                os.fsync(directory)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise storage_error("replace", path, error) from error
    finally:
        if directory is not None:
            os.close(directory)


def remove_file(path: str) -> bool:
    """Delete a file; whether it was there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise storage_error("delete", path, error) from error
    return True


def make_directory(path: str) -> None:
    """Make a directory and those above it, where they are missing, for the user alone."""
    try:
        make_private_directory(path)
    except OSError as error:
        raise storage_error("make the directory", path, error) from error


def _open_directory(path: str) -> int | None:
    """A descriptor to make the names in a directory durable with; None on systems that cannot."""
    flags = getattr(os, "O_DIRECTORY", None)
    if flags is None:
        return None
    try:
        return os.open(path, os.O_RDONLY | flags)
    except OSError as error:
        if is_out_of_descriptors(error):
            raise
        return None
