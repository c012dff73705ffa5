"""The part of a job's traceback that the worker's log shows: the error, where it was raised, and the user's own code.

A traceback is a list of entries. A frame is the line ``File "...", line N, in f`` with the code below it; every other
line is an entry by itself. Entries are kept whole, by rank, while :data:`MAX_LINES` last:

1. the message at the end, its first :data:`MAX_MESSAGE_LINES` lines
2. the last frame, where the error was raised
3. the first frame behind the last header, which is the task's function: what is in front of it was removed already
4. other frames of the user, the last one first, those of the errors that led to it too: files of neither the standard
   library nor an installed package
5. all else, from the end
"""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

MAX_LINES: Final = 20
MAX_MESSAGE_LINES: Final = 3
"""Of the lines behind the last frame, where there are more lines than :data:`MAX_LINES`."""

MAX_LINE_CHARACTERS: Final = 500
"""A longer line is cut, behind a word if it has any."""

_FRAME: Final = re.compile(r'([ |+-]*)File "(.*)", line \d+, in ')
_HEADER: Final = "Traceback (most recent call last):"
_LIBRARIES: Final = tuple({sysconfig.get_path(each) for each in ("stdlib", "platstdlib", "purelib", "platlib")})
_PACKAGES: Final = ("/site-packages/", "/dist-packages/")


class _Entry(NamedTuple):
    """Lines that are shown together. ``path``: of a frame, else None."""

    lines: list[str]
    path: str | None

    @property
    def is_own(self) -> bool:
        """Whether it is a frame in a file of the user's."""
        path = self.path
        if path is None or path.startswith("<"):
            return False
        return not path.startswith(_LIBRARIES) and not any(part in path for part in _PACKAGES)


class TracebackExcerpt:
    """The excerpt of a traceback below a line of the log, made when the line is written: that takes 0.1 ms, and most
    lines of many failures are left out. Empty without a traceback."""

    __slots__ = ("_traceback",)

    def __init__(self, traceback: str) -> None:
        self._traceback = traceback

    def __str__(self) -> str:
        lines = excerpt(self._traceback)
        return "\n" + "\n".join(lines) if lines else ""


def excerpt(traceback: str) -> list[str]:
    """At most about :data:`MAX_LINES` lines of a formatted traceback, with marks for those left out."""
    lines = [truncate_line(line, MAX_LINE_CHARACTERS) for line in traceback.splitlines()]
    if len(lines) <= MAX_LINES:
        return lines
    entries = _entries_of(lines)
    kept: set[int] = set()
    left = MAX_LINES
    for index in _ranked(entries):
        if index in kept:
            continue
        if len(entries[index].lines) > left:
            break
        kept.add(index)
        left -= len(entries[index].lines)
    return list(_with_marks(entries, kept))


def truncate_line(text: str, most: int, is_cut: bool = False) -> str:
    """The first ``most`` characters or fewer, up to a space where there is one in the second half, and a mark; the text
    itself where it is not longer. ``is_cut``: more follows in any case."""
    if len(text) <= most:
        return f"{text}..." if is_cut else text
    end = text.rfind(" ", most // 2, most + 1)
    return f"{text[: most if end < 0 else end]}..."


def _entries_of(lines: Iterable[str]) -> list[_Entry]:
    entries: list[_Entry] = []
    code_indent: str | None = None
    for line in lines:
        found = _FRAME.match(line)
        if found is not None:
            code_indent = found[1] + "  "
            entries.append(_Entry([line], found[2]))
        elif code_indent is not None and line.startswith(code_indent):
            entries[-1].lines.append(line)
        else:
            code_indent = None
            entries.append(_Entry([line], None))
    return entries


def _ranked(entries: list[_Entry]) -> Iterator[int]:
    """The indexes of the entries by rank; some more than once."""
    frames = [index for index, entry in enumerate(entries) if entry.path is not None]
    if frames:
        last = frames[-1]
        yield from range(last + 1, min(len(entries), last + 1 + MAX_MESSAGE_LINES))
        yield last
        headers = [index for index, entry in enumerate(entries[:last]) if entry.lines[0].endswith(_HEADER)]
        yield next(index for index in frames if not headers or index > headers[-1])
        yield from (index for index in reversed(frames) if entries[index].is_own)
    yield from reversed(range(len(entries)))


def _with_marks(entries: list[_Entry], kept: set[int]) -> Iterator[str]:
    omitted, where = 0, ", the dead topic has all of them"
    for index, entry in enumerate(entries):
        if index not in kept:
            omitted += len(entry.lines)
            continue
        if omitted:
            yield _mark(omitted, where)
            omitted, where = 0, ""
        yield from entry.lines
    if omitted:
        yield _mark(omitted, where)


def _mark(omitted: int, where: str) -> str:
    return f"... {omitted} {'line' if omitted == 1 else 'lines'} omitted{where} ..."
