"""What the log says when the data directory takes no more writes, and when it takes them again.

    a write fails   -> one ERROR line for each cause (errno) a minute: the directory, its free bytes, what to do
    writing works   -> one INFO line behind each of these: for how long writes failed, and how many

Requests get the error of their own file besides (``files.storage_error``). After a full disk small writes may succeed
while larger ones fail: so writing works again when there is room for the largest write that failed.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

REPEAT_MS: Final = 60_000
"""A cause that goes on is logged again after so long."""

NO_ROOM: Final = frozenset({errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)})
"""Causes that free space removes."""

_REMEDIES: Final = {
    getattr(errno, "EDQUOT", errno.ENOSPC): "delete files of this user on its file system, or raise the quota",
    errno.ENOSPC: "free space (or inodes) on its file system, or enlarge it",  # behind EDQUOT, which Windows lacks
    errno.EFBIG: "raise the limit of the size of files (ulimit -f)",
    errno.EROFS: "mount its file system for writing",
    errno.EACCES: "give the broker's user the right to write there",
    errno.EPERM: "give the broker's user the right to write there",
}
_REMEDY: Final = "check the disk and the system's log, and restart the broker when the disk works"


class WriteErrors:
    """The failed writes of one broker to ``directory``. ``epoch_ms``: the time of day in ms. On the broker's thread."""

    __slots__ = ("_count", "_directory", "_epoch_ms", "_is_logged", "_largest", "_logged_at", "_since", "has_failed")

    def __init__(self, directory: str, epoch_ms: Callable[[], int]) -> None:
        self.has_failed = False
        """Whether the last write that tells has failed: call :meth:`succeeded` after the next one that does not."""
        self._directory = directory
        self._epoch_ms = epoch_ms
        self._logged_at: dict[int | None, int] = {}
        self._since = 0
        self._count = 0
        self._largest = 0
        self._is_logged = False
        """Whether the last line said that writing fails."""

    def failed(self, error: OSError, size: int = 0) -> None:
        """A write of ``size`` bytes failed, or a file or directory could not be made (0)."""
        now_ms = self._epoch_ms()
        if not self.has_failed:
            self.has_failed, self._since, self._count, self._largest = True, now_ms, 0, 0
        self._count += 1
        if error.errno in NO_ROOM:
            self._largest = max(self._largest, size)
        if self._is_due(error.errno, now_ms):
            self._is_logged = True
            log.error(
                "cannot write to the data directory %s: %s; %s: %s. Until then what cannot be stored is refused with "
                "KAFKA_STORAGE_ERROR, and reads go on",
                self._directory, error.strerror or error, describe_free_space(self._directory),
                _REMEDIES.get(error.errno or 0, _REMEDY),
            )  # fmt: skip

    def succeeded(self) -> None:
        """A write succeeded."""
        if self._largest and (free_bytes(self._directory) or 0) < self._largest:
            return
        self.has_failed = False
        if not self._is_logged:  # one file fails again and again, between writes to others
            return
        self._is_logged = False
        log.info(
            "writing to the data directory %s works again, after %d failed writes in %.1f s",
            self._directory, self._count, max(0, self._epoch_ms() - self._since) / 1000,
        )  # fmt: skip

    def _is_due(self, code: int | None, now_ms: int) -> bool:
        last = self._logged_at.get(code)
        if last is not None and 0 <= now_ms - last < REPEAT_MS:
            return False
        self._logged_at[code] = now_ms
        return True


def free_bytes(directory: str) -> int | None:
    """How many bytes its file system has left for this user; None when the system does not say."""
    import shutil  # takes 5 ms, and is needed where a disk is full only

    try:
        return shutil.disk_usage(directory).free
    except OSError:
        return None


def describe_free_space(directory: str) -> str:
    """:func:`free_bytes` as part of a sentence."""
    found = free_bytes(directory)
    return "the free space is unknown" if found is None else f"{found} bytes are free"
