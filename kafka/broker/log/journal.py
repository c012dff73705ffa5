"""A journal of small keyed entries, the last one of a key holding: the broker's metadata.

    MAGIC "KJL1", then entries:

        0  crc      u32   CRC-32 of everything behind, to the end of the entry
        4  key      u32   bytes of the key
        8  value    u32   bytes of the value; 2**32 - 1: the key is deleted
       12  key bytes, value bytes

An append is one ``write()`` at the end and durable against a killed process when it returns. Opening reads all
entries; a torn tail is cut with a log line, and a bad entry before good ones is an error that names the byte, with
nothing cut. When the file has grown to several times of what holds, it is written anew beside and put in its place at
one stroke.

Owners decide what "holds" means: :class:`Journal` only replays, appends and rewrites.
"""

from __future__ import annotations

import logging
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator

from kafka.broker.log.files import FilePool, OutOfDescriptorsError, replace_file
from kafka.broker.private_files import open_private
from kafka.errors import KafkaStorageError

log = logging.getLogger(__name__)

MAGIC = b"KJL1"
DELETED = 2**32 - 1
_HEAD = struct.Struct(">III")
_LENGTHS = struct.Struct(">II")
Entry = tuple[bytes, bytes | None]
"""Key and value; None: deleted."""


class Journal:
    """One file. ``replay`` gets every entry in order at once, from the oldest on.

    ``min_rewrite_bytes``: below this size the file is never rewritten. ``on_dirty`` is called after writes.
    """

    def __init__(
        self,
        path: str,
        pool: FilePool,
        replay: Callable[[bytes, bytes | None], None],
        *,
        min_rewrite_bytes: int = 1 << 20,
        on_dirty: Callable[[], None] = lambda: None,
        sync: bool = True,
    ) -> None:
        self.path = path
        self.min_rewrite_bytes = min_rewrite_bytes
        self._pool = pool
        self._sync = sync
        self._on_dirty = on_dirty
        self._size = 0
        self._base_size = 0
        self.failure: KafkaStorageError | None = None
        """Why nothing more can be written."""
        self._load(replay)

    @property
    def size_bytes(self) -> int:
        return self._size

    @property
    def should_rewrite(self) -> bool:
        """Whether the file is worth being written anew: four times as long as after the last time."""
        return self._size > max(self.min_rewrite_bytes, 4 * self._base_size)

    def append(self, entries: Iterable[Entry]) -> None:
        """Write entries, all or none; KafkaStorageError when that fails."""
        if self.failure is not None:
            raise self.failure
        data = b"".join(encode(key, value) for key, value in entries)
        self._pool.write(self.path, self._size, data)
        self._size += len(data)
        self._on_dirty()

    def tidy(self, entries: Callable[[], Iterable[Entry]]) -> None:
        """Put what holds in the place of all, if that is worth it. What was appended is durable already, so a failure
        is no error of anybody's request: the old file goes on, until it has grown again.
        """
        if self.should_rewrite:
            try:
                self.rewrite(entries())
            except KafkaStorageError as error:
                log.warning("%s grows on, as it could not be written anew: %s", self.path, error)

    def rewrite(self, entries: Iterable[Entry]) -> None:
        """Put just these entries in the place of all. When that fails the old file stays as it is."""
        data = MAGIC + b"".join(encode(key, value) for key, value in entries)
        self._base_size = self._size
        self._pool.forget(self.path)
        replace_file(self.path, data, sync=self._sync)
        self._size = self._base_size = len(data)

    def begin_flush(self) -> list[str]:
        """What somebody has to sync, who then calls :meth:`end_flush`."""
        return [self.path]

    def end_flush(self, error: KafkaStorageError | None) -> None:
        """All that was appended before is on the disk, or may be lost: then the journal takes no more. After an
        OutOfDescriptorsError it is still to be synced."""
        if isinstance(error, OutOfDescriptorsError):
            self._on_dirty()
        elif error is not None:
            self.failure = KafkaStorageError(
                f"{self.path} takes no more writes until the broker is started again, as some may be lost: "
                f"{error.args[0]}"
            )

    def flush(self) -> None:
        """Wait until all is on the disk."""
        try:
            self._pool.sync(self.path)
        except KafkaStorageError as error:
            self.end_flush(error)
            raise

    def close(self) -> None:
        if self.failure is None:
            self.flush()
        self._pool.forget(self.path)

    def _load(self, replay: Callable[[bytes, bytes | None], None]) -> None:
        try:
            with open(self.path, "rb", opener=open_private) as file:
                data = file.read()
        except FileNotFoundError:
            data = b""
        except OSError as error:
            raise KafkaStorageError(f"cannot read {self.path}: {error.strerror or error}") from error
        if len(data) < len(MAGIC) and MAGIC.startswith(data):
            self.rewrite(())
            return
        if not data.startswith(MAGIC):
            raise KafkaStorageError(f"{self.path} is no journal: it begins with {data[:4]!r}")
        end = len(MAGIC)
        for entry_end, key, value in decode(data, end):
            replay(key, value)
            end = entry_end
        if end < len(data):
            if _has_entry_behind(data, end):
                raise KafkaStorageError(
                    f"{self.path} is corrupt at byte {end}, with good entries behind; put a copy in its place, or "
                    f"cut it there, which loses the last {len(data) - end} bytes"
                )
            torn = len(data) - end
            log.warning("cut a torn tail of %d bytes off %s, which now ends at byte %d", torn, self.path, end)
            self._pool.truncate(self.path, end)
        self._size = self._base_size = end


def encode(key: bytes, value: bytes | None) -> bytes:
    """One entry."""
    body = _LENGTHS.pack(len(key), DELETED if value is None else len(value)) + key + (value or b"")
    return zlib.crc32(body).to_bytes(4, "big") + body


def decode(data: bytes, position: int) -> Iterator[tuple[int, bytes, bytes | None]]:
    """Each good entry from ``position`` to the first bad one: where it ends, its key, its value."""
    view = memoryview(data)
    while position + _HEAD.size <= len(data):
        crc, key_size, value_size = _HEAD.unpack_from(data, position)
        key_end = position + _HEAD.size + key_size
        end = key_end + (0 if value_size == DELETED else value_size)
        if end > len(data) or zlib.crc32(view[position + 4 : end]) != crc:
            return
        yield end, data[position + _HEAD.size : key_end], None if value_size == DELETED else data[key_end:end]
        position = end


def _has_entry_behind(data: bytes, position: int) -> bool:
    """Whether a good entry follows the bad one, at any byte: the bad one's own lengths may be what is wrong with it.

    Most bytes give lengths that do not fit, so that few CRCs are made. A tail of zeros, as a lost machine leaves one,
    has none that fits.
    """
    return any(next(decode(data, at), None) is not None for at in range(position + 1, len(data) - _HEAD.size + 1))
