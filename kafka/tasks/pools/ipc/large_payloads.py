"""Payloads that are too large for a packet or a frame: in an anonymous file whose descriptor is passed along.

The file is complete before its descriptor is passed, so neither side ever waits for the other in the middle of 10 MB,
and a sender that is killed meanwhile leaves nothing behind.
"""

from __future__ import annotations

import array
import contextlib
import errno
import os
import socket
from collections.abc import Iterable, Sequence

from kafka.tasks.pools.ipc.shared_page import anonymous_file

FILE_FROM_BYTES = 48 * 1024
"""Longer payloads go through a file. Measured: in a packet 64 KiB cost 15 us, a file costs 25 us and 0.3 us per KiB."""

OVERHEAD_BYTES = 512 * 1024
"""Of a file with an outcome, beside the largest result: an error's text and traceback, which are cut, as JSON."""

FD_BYTES = array.array("i").itemsize
ANCILLARY_BYTES = socket.CMSG_SPACE(FD_BYTES) if hasattr(socket, "CMSG_SPACE") else 0
"""Ancillary bytes that one passed descriptor takes."""


def write_file(*pieces: bytes) -> int:
    """A descriptor of a file with the pieces in it, to be closed by the caller once it is passed on."""
    fd = anonymous_file("kafka-payload", 0)
    try:
        for piece in pieces:
            view = memoryview(piece)
            while view:
                view = view[os.write(fd, view) :]
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_file(fd: int, most: int | None = None) -> bytes:
    """What is in a passed file; closes it. OSError when it has more than ``most`` bytes: a file without blocks may say
    that it has any number.
    """
    try:
        size = os.fstat(fd).st_size
        if most is not None and size > most:
            raise OSError(errno.EFBIG, f"{size} bytes, more than the limit of {most}")
        pieces: list[bytes] = []
        at = 0
        while at < size:
            piece = os.pread(fd, size - at, at)
            if not piece:
                break
            pieces.append(piece)
            at += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
    finally:
        os.close(fd)


class SpareDescriptor:
    """A descriptor that is held for a file that will be passed to this process. Without a free one the kernel would
    drop that, the result in it would be lost, and with it the child: a crash of a job that has ended well.

    ``most_bytes``: how much such a file may have.
    """

    def __init__(self, most_bytes: int | None = None) -> None:
        self.most_bytes = most_bytes
        self._fd = -1
        self.reopen()

    def reopen(self) -> None:
        """Hold it again, as soon as there is one."""
        if self._fd < 0:
            with contextlib.suppress(OSError):
                self._fd = os.open(os.devnull, os.O_RDONLY)

    def release(self) -> None:
        """Make room for a file; any number of times."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def pass_fd(fd: int) -> list[tuple[int, int, array.array[int]]]:
    """The ancillary data that passes ``fd``."""
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]


def received_fds(ancillary: Iterable[tuple[int, int, bytes]]) -> list[int]:
    """The descriptors that came with a message. They are the receiver's now, and not inherited."""
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % FD_BYTES])
    for fd in fds:
        os.set_inheritable(fd, False)
    return list(fds)


def close_all(fds: Sequence[int]) -> None:
    """Close received descriptors that are not used."""
    for fd in fds:
        os.close(fd)
