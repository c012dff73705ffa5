"""A data directory that belongs to one user alone: made, checked, closed to others, and its files opened.

    DIR                  owner: the effective user; others may not write to it      else OSError, which says what to do
                         others may read it                                         it becomes 0700
    OWN_NAMES in DIR     others may read them (an earlier release made them so)     they become 0600, directories 0700
    a file               a symbolic link, a pipe or a device                        OSError when it is opened
                         missing                                                    it is made with 0600

The files hold records, job arguments and keys of passwords. A user who can write to a data directory decides what the
broker overwrites and which address clients get, so it has to be ours. A directory of ours may still hold what
another user chose (a repository that was cloned, an archive that was unpacked): that is why files that are links are
not followed. Hard links need no check: an archive cannot make one to a file outside, and other users cannot make one
in a directory that only we can write to.

What lies above the directory is not checked; with the sticky bit (``/tmp``) others cannot rename what is ours there.
DIR itself may be a symbolic link, of ours or of root's; directories below may be links, as ``topics`` may be on another
disk. Windows has no owners of this kind: nothing is checked there.
A new file of the broker in DIR is a row in :data:`OWN_NAMES`.

Light on purpose: clients' processes load this module.
"""

from __future__ import annotations

import errno
import logging
import os
import shlex
import stat
from typing import Final

log = logging.getLogger(__name__)

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
METADATA_JOURNAL: Final = "metadata.journal"
TOPICS: Final = "topics"
OWN_NAMES: Final = frozenset(
    {
        ".lock", "broker.json", "broker.json.tmp", "broker.log", "broker.properties", "embedded.lock",
        METADATA_JOURNAL, "metadata.journal.tmp", TOPICS, "users",
    }
)  # fmt: skip
"""What the broker and those who start it make in a data directory."""

_OTHERS: Final = 0o077
_OTHERS_WRITE: Final = 0o022
_SAFE: Final = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY"))
"""O_NONBLOCK: to open a pipe must not wait for its other end; for a regular file it means nothing."""

_NO_FILE: Final = "it is not a regular file but a symbolic link, a pipe or a device: remove it and try again"
_NO_FILE_ERRORS: Final = frozenset({errno.ELOOP, errno.EMLINK, errno.ENXIO})
"""How ``open`` refuses a link (Linux, macOS; FreeBSD), and a pipe without a reader or a socket."""


def open_private(path: str, flags: int) -> int:
    """``os.open`` for a file of the data directory, which is made with 0600 if ``flags`` say so; also an ``opener``.

    OSError, at once, for what is no regular file.
    """
    try:
        fd = os.open(path, flags | _SAFE, FILE_MODE)
    except OSError as error:
        if error.errno in _NO_FILE_ERRORS:
            raise OSError(error.errno, _NO_FILE, path) from None
        raise
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, _NO_FILE, path)
    except OSError:
        os.close(fd)
        raise
    return fd


def make_private_directory(path: str) -> None:
    """Make a directory below the data directory and those above it, where they are missing, with 0700. OSError."""
    try:
        _make_directory(path)
    except FileNotFoundError:
        above = os.path.dirname(path)
        if above in ("", path):
            raise
        make_private_directory(above)
        _make_directory(path)  # once: in /proc no directory can be made, and that is the same error


def _make_directory(path: str) -> None:
    try:
        os.mkdir(path, DIRECTORY_MODE)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def has_data(path: str) -> bool:
    """Whether a broker has ever stored anything in this data directory. Makes and opens nothing."""
    return os.path.exists(os.path.join(path, METADATA_JOURNAL))


def prepare_directory(path: str) -> None:
    """Make the data directory if it is missing, or check it and close it to others. ``path`` is absolute.

    OSError: what the system says, or PermissionError for a directory that another user owns or may write to; its
    ``strerror`` says what to do.
    """
    os.makedirs(os.path.dirname(path), exist_ok=True)
    make_private_directory(path)
    if not hasattr(os, "geteuid"):
        return
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        mode = _checked_mode(path, os.fstat(fd))
        names = set(os.listdir(fd))
        failure = _close_files(fd, names & OWN_NAMES)
        if mode & _OTHERS and names <= OWN_NAMES:
            failure = _close_off(fd) or failure
            if failure is None:
                log.info("changed the mode of the data directory %s from %04o: its owner alone has access", path, mode)
        elif mode & _OTHERS:
            log.debug("%s keeps the mode %04o: other files than the broker's are in it", path, mode)
    finally:
        os.close(fd)
    if failure is not None:
        log.warning("other users may be able to read files in %s: cannot change their mode: %s", path, failure)


def _checked_mode(path: str, directory: os.stat_result) -> int:
    """The directory's mode, if it can be trusted. PermissionError."""
    user = os.geteuid()
    link = os.lstat(path)
    mode = stat.S_IMODE(directory.st_mode)
    if directory.st_uid != user:
        refusal = (
            f"it belongs to user {directory.st_uid} and this process runs as user {user}: run it as user "
            f"{directory.st_uid}, or use a directory of your own (a missing one is created)"
        )
    elif stat.S_ISLNK(link.st_mode) and link.st_uid not in (0, user):
        refusal = f"it is a symbolic link of user {link.st_uid}: use the path {os.path.realpath(path)} if that is meant"
    elif mode & _OTHERS_WRITE:
        refusal = (
            f"its group or others may write to it (mode {mode:04o}), so they may have put files there: look at what is "
            f"in it, then run chmod go-w {shlex.quote(path)}"
        )
    else:
        return mode
    raise PermissionError(errno.EPERM, refusal, path)


def _close_files(directory: int, names: set[str]) -> OSError | None:
    """Take from others what they may do with these files and with the topics'; the last failure. The directory of the
    topics comes behind all that is in it, so its mode shows whether that was done."""
    failure: OSError | None = None
    for name in sorted(names):
        if name == TOPICS and _is_open(name, directory):
            for _, directories, files, below in os.fwalk(name, topdown=False, dir_fd=directory):
                for each in (*directories, *files):
                    failure = _close_name(each, below) or failure
        failure = _close_name(name, directory) or failure
    return failure


def _is_open(name: str, directory: int) -> bool:
    """Whether others may do anything with it; never with a link, whose target is not ours to change."""
    mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    return bool(mode & _OTHERS) and (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _close_name(name: str, directory: int) -> OSError | None:
    try:
        if not _is_open(name, directory):
            return None
        fd = os.open(name, os.O_RDONLY | _SAFE, dir_fd=directory)
        try:
            return _close_off(fd)
        finally:
            os.close(fd)
    except FileNotFoundError:  # a broker that is running removes files
        return None
    except OSError as error:
        return error


def _close_off(fd: int) -> OSError | None:
    try:
        os.fchmod(fd, stat.S_IMODE(os.fstat(fd).st_mode) & ~_OTHERS)
    except OSError as error:
        return error
    return None
