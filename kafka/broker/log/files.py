"""Files under the logs: a bounded pool of open ones, writes that are whole or not at all, atomic replacement, the swap
of compacted segments, and deletion in the background.

Nothing here knows batches. Every ``OSError`` of a write (a full disk, a read-only directory) becomes KafkaStorageError
(56), which names the file; a partial write is truncated first, so that the file ends where it ended before. A file
that cannot be opened because descriptors or memory have run out is an OutOfDescriptorsError: nothing is lost, and the
same may work later.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kafka.broker.private_files import make_private_directory, open_private
from kafka.errors import KafkaStorageError

if TYPE_CHECKING:
    from kafka.broker.log.flushing import FileExecutor
    from kafka.broker.write_errors import WriteErrors

log = logging.getLogger(__name__)

_OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})

MAX_OPEN_FILES = 512
"""Of log files, where the system allows that many."""

Buffer = bytes | bytearray | memoryview


class OutOfDescriptorsError(KafkaStorageError):
    """A file could not be opened: the process or the system has no descriptor or no memory for it now."""


class FilePool:
    """At most ``max_open`` file descriptors, the least recently used closed first; files are opened on demand.

    A descriptor from :meth:`fd` is good until the next call of the pool. With 10,000 topics, one open file each would
    exceed the usual limit of a process. ``write_errors`` logs the writes that fail.
    """

    def __init__(self, max_open: int = MAX_OPEN_FILES, write_errors: WriteErrors | None = None) -> None:
        self.max_open = max_open
        self._write_errors = write_errors
        self._open: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def fd(self, path: str, *, create: bool = True) -> int:
        """A descriptor of a file, for reading and, where that is allowed, writing; a missing file is made with
        ``create``."""
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
                    if self._close_oldest():  # other parts of the process have the rest: live with fewer open files
                        continue
                    raise storage_error("open", path, error) from error
                opener = os.open if os.path.isdir(path) else open_private  # a directory is opened to be synced
                try:
                    found = opener(path, os.O_RDONLY | flags)
                    break
                except OSError:
                    if create:
                        self._note_failure(error)
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
                    raise OSError("the write returned 0 bytes")
                done += written
        except OSError as error:
            if error.errno == errno.EBADF and not done:
                self._refuse_read_only(path, error)
            try:
                os.ftruncate(fd, position)
            except OSError as second:
                log.error(
                    "%s: cannot truncate %d bytes of a failed write at position %d: %s", path, done, position, second
                )
            self._note_failure(error, len(data))
            raise storage_error("write to", path, error) from error
        if self._write_errors is not None and self._write_errors.has_failed:
            self._write_errors.succeeded()

    def make_directory(self, path: str) -> None:
        """Make a directory below the data directory, and those above it; KafkaStorageError."""
        try:
            make_private_directory(path)
        except OSError as error:
            self._note_failure(error)
            raise storage_error("make the directory", path, error) from error

    def _note_failure(self, error: OSError, size: int = 0) -> None:
        if self._write_errors is not None:
            self._write_errors.failed(error, size)

    def _refuse_read_only(self, path: str, error: OSError) -> None:
        """Raise the reason why a file could be opened for reading only; the next write opens it again."""
        self.forget(path)
        try:
            os.close(open_private(path, os.O_RDWR))
        except OSError as cause:
            error = cause
        self._note_failure(error)
        raise storage_error("write to", path, error) from error

    def truncate(self, path: str, size: int) -> None:
        """Cut the file to ``size`` bytes."""
        with storage_errors("truncate", path):
            os.ftruncate(self.fd(path), size)

    def sync(self, path: str) -> None:
        """Wait until the file's bytes are on the disk."""
        with storage_errors("sync", path):
            os.fsync(self.fd(path, create=False))

    def duplicate(self, path: str) -> int | None:
        """A duplicate of the descriptor of an open file, which the caller closes. None when the pool does not have the
        file open, or when no descriptor is left even after the pool has closed all other files. A sync should use this
        one: the kernel reports a disk error to descriptors that were open at the write."""
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
        """Close the file if it is open: it is about to be deleted or renamed."""
        found = self._open.pop(path, None)
        if found is not None:
            os.close(found)

    def close(self) -> None:
        """Close all."""
        while self._close_oldest():
            pass

    def _close_oldest(self) -> bool:
        """Close the least recently used file; False when none is open."""
        if not self._open:
            return False
        os.close(self._open.popitem(last=False)[1])
        return True


def is_out_of_descriptors(error: BaseException | None) -> bool:
    """Whether the error says that descriptors or memory have run out."""
    if isinstance(error, OSError):
        return error.errno in _OUT_OF_DESCRIPTORS
    return isinstance(error, OutOfDescriptorsError)


def storage_error(action: str, path: str, error: OSError) -> KafkaStorageError:
    """The error for a failed action on a file.

    A failed ``sync`` is never an OutOfDescriptorsError: whatever its errno, the kernel may have dropped the pages."""
    kind = OutOfDescriptorsError if action != "sync" and is_out_of_descriptors(error) else KafkaStorageError
    return kind(f"cannot {action} {path}: {error.strerror or error}")


@contextlib.contextmanager
def storage_errors(action: str, path: str) -> Iterator[None]:
    """An OSError of the block becomes the error for this action on this file."""
    try:
        yield
    except OSError as error:
        raise storage_error(action, path, error) from error


def replace_file(path: str, data: bytes, *, sync: bool = True) -> None:
    """Write a file, or replace one, atomically: a reader finds the old content or the new one."""
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


def read_number(path: str) -> int | None:
    """The offset in a small file that has a line of digits; None when it is missing. OSError; ValueError for other
    content."""
    try:
        with open(path, "rb", opener=open_private) as file:
            text = file.read()
    except FileNotFoundError:
        return None
    if not text.endswith(b"\n") or not text.strip().isdigit():
        raise ValueError(f"{text!r}")
    return int(text)


def rename(path: str, new: str) -> bool:
    """Rename a file or directory; False when it is missing."""
    with storage_errors("rename", path):
        try:
            os.rename(path, new)
        except FileNotFoundError:
            return False
    return True


def _open_directory(path: str) -> int | None:
    """A descriptor for an fsync of a directory's entries; None on systems that cannot do that."""
    flags = getattr(os, "O_DIRECTORY", None)
    if flags is None:
        return None
    try:
        return os.open(path, os.O_RDONLY | flags)
    except OSError as error:
        if is_out_of_descriptors(error):
            raise
        return None


# The swap of a compacted segment for those that it was made of; a crash at any point does no harm:
#
#     1  write            BASE.cleaned                    a crash here: deleted at the next start
#     2  sync it
#     3  rename           BASE.cleaned -> BASE-NEXT.swap  from here on the new segment is the valid one
#     4  rename           the old segments with bases from BASE to NEXT (exclusive) -> .deleted
#     5  rename           BASE-NEXT.swap -> BASE.log      a crash before: steps 4 and 5 are done at the next start
#     6  write its seal                                   a crash before: the segment is scanned
#
# Step 4 begins with the seals, because an old seal beside a new segment would describe other bytes.

CLEANED = ".cleaned"
DELETED = ".deleted"
_SWAP = re.compile(r"(\d{20})-(\d{20})\.swap")
_OLD = re.compile(r"(\d{20})\.(?:seal|log)")


def cleaned_path(directory: str, base_offset: int) -> str:
    """The path of step 1."""
    return os.path.join(directory, f"{base_offset:020d}{CLEANED}")


def commit_swap(directory: str, base_offset: int, next_base: int) -> str:
    """Step 3; the file's new path. OSError."""
    path = os.path.join(directory, f"{base_offset:020d}-{next_base:020d}.swap")
    os.rename(cleaned_path(directory, base_offset), path)
    return path


def finish_swap(directory: str, swap_name: str, names: Iterable[str]) -> list[str]:
    """Steps 4 and 5, among the files with these names; the paths renamed to ``.deleted``. OSError."""
    found = _SWAP.fullmatch(swap_name)
    if found is None:
        raise ValueError(f"{swap_name} is not named like a swap file")
    base, end = int(found[1]), int(found[2])
    old = [name for name in names if (match := _OLD.fullmatch(name)) and base <= int(match[1]) < end]
    renamed: list[str] = []
    for name in sorted(old, key=lambda name: (not name.endswith(".seal"), name)):
        renamed.append(os.path.join(directory, name + DELETED))
        os.rename(os.path.join(directory, name), renamed[-1])
    os.rename(os.path.join(directory, swap_name), os.path.join(directory, f"{base:020d}.log"))
    return renamed


def finish_swaps(directory: str, names: list[str]) -> None:
    """At the opening of a log: finish the swaps from step 3 on, and delete the others' files. ``names``: the
    directory's; OSError."""
    for name in names:
        path = os.path.join(directory, name)
        if name.endswith(CLEANED):
            log.info("deleting %s: its compaction was interrupted", path)
            os.unlink(path)
        elif _SWAP.fullmatch(name):
            log.info("finishing the interrupted swap of %s", path)
            finish_swap(directory, name, names)


SLICE_FILES = 64


class FileDeleter:
    """Deletes files and directories in the background, a few at a time.

    Their names end with ``.deleted``, so the next start adds again what a crash leaves. Deleting a segment of 1 GiB
    takes a file system tens of milliseconds, and a topic may have thousands. ``executor`` returns the current one.
    """

    def __init__(self, executor: Callable[[], FileExecutor]) -> None:
        self._executor = executor
        self._paths: deque[str] = deque()
        self._is_running = False
        self._is_starting = False

    def __len__(self) -> int:
        return len(self._paths) + self._is_running

    def add(self, paths: Iterable[str]) -> None:
        """Delete these files, or directories with all that is in them."""
        self._paths.extend(paths)
        self.run()

    def add_later(self, paths: Iterable[str]) -> None:
        """Delete them at the next :meth:`run`: the broker's start does not wait for it."""
        self._paths.extend(paths)

    def run(self) -> None:
        """Begin to delete what was added, if no deletion runs."""
        if self._is_starting:
            return
        self._is_starting = True
        try:
            while self._paths and not self._is_running:
                paths = [self._paths.popleft() for _ in range(min(SLICE_FILES, len(self._paths)))]
                self._is_running = True
                self._executor().run(partial(delete_some, paths, SLICE_FILES), self._on_deleted)
        finally:
            self._is_starting = False

    def _on_deleted(self, left: list[str]) -> None:
        self._is_running = False
        self._paths.extend(left)
        self.run()


def delete_some(paths: list[str], limit: int) -> list[str]:
    """Delete files and directories, about ``limit`` of them; the paths that are left. Failures are logged."""
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
            log.warning("cannot delete %s, the next start tries again: %s", path, error)
    return left


def delete_files(paths: Sequence[str]) -> None:
    """Delete files at once; those that cannot be deleted now stay until the next start."""
    delete_some(list(paths), len(paths))
