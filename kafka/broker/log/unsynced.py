"""What of one log is not known to be on the disk: files and directories that were written to, those that a flush is
about just now, and the seals that wait for it.

    mark ──> paths ──begin()──> somebody syncs them ──end()──> the seals that may be written now
                 <── mark: written to meanwhile, so it is the next flush's, too
                 <── put_back(): they could not be opened now, so they are the next flush's

Decides nothing: when to flush is ``flush.py``'s, what a failure means the log's.
"""

from __future__ import annotations

from collections.abc import Callable

from kafka.broker.log.segment import Seal, Segment


class Unsynced:
    """``on_mark`` is called when there is more."""

    def __init__(self, on_mark: Callable[[], None]) -> None:
        self.paths: dict[str, Segment | None] = {}
        """Written to since the last flush began; a segment's file with its segment."""
        self._on_mark = on_mark
        self._in_flush: list[tuple[str, Segment | None, Seal | None]] = []

    def mark(self, path: str, segment: Segment | None = None) -> None:
        """Something was written there."""
        self.paths[path] = segment
        self._on_mark()

    def forget(self, path: str) -> None:
        """The file is about to go."""
        self.paths.pop(path, None)

    def holds(self, path: str) -> bool:
        """Whether it waits for a flush, or one is under way."""
        return path in self.paths or any(path == one for one, _, _ in self._in_flush)

    def begin(self) -> list[str]:
        """A flush begins: what has to be synced."""
        for path, segment in self.paths.items():
            seal = None
            if segment is not None:
                seal, segment.waiting_seal = segment.waiting_seal, None
            self._in_flush.append((path, segment, seal))
        self.paths.clear()
        return [path for path, segment, _ in self._in_flush if segment is None or not segment.is_gone]

    def put_back(self) -> None:
        """It has ended, and its files are still to be synced."""
        done, self._in_flush = self._in_flush, []
        for path, segment, seal in done:
            if segment is not None and segment.is_gone:
                continue
            self.mark(path, segment)
            if segment is not None and segment.waiting_seal is None:
                segment.waiting_seal = seal

    def end(self) -> list[tuple[Segment, Seal]]:
        """It has ended, well or not: the seals that have waited for it."""
        done, self._in_flush = self._in_flush, []
        return [
            (segment, seal)
            for _, segment, seal in done
            if segment is not None and seal is not None and not segment.is_gone
        ]
