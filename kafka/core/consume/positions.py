"""Where each assigned partition is read, and what of it is buffered.

    NEEDS RESET ──asked──► RESETTING ──offset──► READING ──out of range──► NEEDS RESET (or an error, by policy)
         ▲                     │ error: again after a pause    │
         └─────────────────────┘                       seek: READING at once

``position`` is the next offset to hand out, ``fetch_offset`` the next to ask for: what lies between is buffered.
``generation`` goes up with every seek, so that answers to earlier questions are known as such.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from kafka.core.consume.fetched import Fetched
from kafka.structs import TopicPartition

LATEST: Final = -1
EARLIEST: Final = -2


class PartitionPosition:
    """One assigned partition."""

    __slots__ = (
        "buffered", "buffered_bytes", "error", "fetch_offset", "generation", "highwater", "is_fetching", "is_paused",
        "is_resetting", "last_stable_offset", "log_start_offset", "partition", "position", "reset_to", "retry_at",
    )  # fmt: skip

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.position: int | None = None
        self.fetch_offset: int | None = None
        self.generation = 0
        self.reset_to: int | None = None
        """The timestamp to reset to (LATEST, EARLIEST); None: no reset is needed."""
        self.is_resetting = False
        self.is_fetching = False
        self.is_paused = False
        self.retry_at = 0.0
        self.buffered: deque[Fetched] = deque()
        self.buffered_bytes = 0
        self.error: BaseException | None = None
        """To be raised to the reader once what is buffered has been read."""
        self.highwater: int | None = None
        self.last_stable_offset = -1
        self.log_start_offset = -1

    def seek(self, offset: int) -> None:
        """Read from ``offset`` on."""
        self._forget()
        self.reset_to = None
        self.position = self.fetch_offset = offset

    def reset(self, timestamp: int) -> None:
        """Find the position by ``timestamp``, :data:`LATEST` or :data:`EARLIEST`."""
        self._forget()
        self.reset_to = timestamp
        self.position = self.fetch_offset = None

    def _forget(self) -> None:
        self.generation += 1
        self.is_resetting = False
        self.retry_at = 0.0
        self.buffered.clear()
        self.buffered_bytes = 0
        self.error = None

    def buffer(self, fetched: Fetched) -> None:
        """An answer has come for the present generation."""
        self.buffered.append(fetched)
        self.buffered_bytes += fetched.size_bytes
        self.fetch_offset = fetched.next_offset

    @property
    def is_ready(self) -> bool:
        """There is something for the reader, be it an error."""
        return not self.is_paused and (bool(self.buffered) or self.error is not None)
