"""Key -> the last offset that has it, in bounded memory: what compaction keeps of a log's dirty part.

Short keys are held as they are, others as 32 bytes of BLAKE2b (Kafka holds all as MD5): two different keys with one
hash would make one of them disappear, which nobody has seen happen to so many bits. An entry costs about 180 bytes of
a dictionary, so the limit counts entries.
"""

from __future__ import annotations

from hashlib import blake2b

ENTRY_BYTES = 180
_HASH_BYTES = 32
"""Keys of that length and above are hashed, so that none of the others can look like a hash."""


class OffsetMap:
    """At most ``limit`` keys. ``latest_offset``: up to where the log was read, -1 before the first record."""

    def __init__(self, limit: int) -> None:
        self.limit = max(1, limit)
        self.latest_offset = -1
        self._offsets: dict[bytes, int] = {}

    @classmethod
    def of_bytes(cls, size: int) -> OffsetMap:
        """One that fits into so much memory (``log.cleaner.dedupe.buffer.size``)."""
        return cls(size // ENTRY_BYTES)

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: bytes, offset: int) -> bool:
        """Take note of a key; False when there is no room for a new one."""
        name = key if len(key) < _HASH_BYTES else blake2b(key, digest_size=_HASH_BYTES).digest()
        if len(self._offsets) >= self.limit and name not in self._offsets:
            return False
        self._offsets[name] = offset
        return True

    def is_superseded(self, key: bytes, offset: int) -> bool:
        """Whether a later record has this key."""
        name = key if len(key) < _HASH_BYTES else blake2b(key, digest_size=_HASH_BYTES).digest()
        return self._offsets.get(name, -1) > offset
