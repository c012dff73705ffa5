"""How the demo shows how far it is: a bar on a terminal, plain lines elsewhere, nothing beside ``--json``.

The bar is rich's when that is installed (extra ``cli``), else a line of our own that is written over.
:func:`choose_progress` picks one; all have ``show``, ``note`` and ``close``. Notes go to stderr, everything else to
stdout.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any, Final, Protocol, TextIO

BAR_WIDTH: Final = 30


class DemoProgress(Protocol):
    """What the demo tells while it works."""

    def show(self, ended: int) -> None:
        """So many jobs have ended."""

    def note(self, text: str) -> None:
        """Something that ought to be known, at once."""

    def close(self) -> None:
        """The end; what comes next is printed as usual."""


def choose_progress(total: int, stream: TextIO | None = None, quiet: bool = False) -> DemoProgress:
    """The way to show ``total`` jobs on ``stream`` (default: stdout); ``quiet``: not at all, but for notes."""
    stream = sys.stdout if stream is None else stream
    if quiet:
        return SilentProgress()
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        return LineProgress(total, stream)
    try:
        return RichProgress(total, stream)
    except ImportError:
        return BarProgress(total, stream)


class SilentProgress:
    """Notes alone."""

    def show(self, ended: int) -> None: ...

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def close(self) -> None: ...


class LineProgress(SilentProgress):
    """A line for each tenth of the jobs."""

    def __init__(self, total: int, stream: TextIO) -> None:
        self._total = total
        self._stream = stream
        self._tenths = 0

    def show(self, ended: int) -> None:
        tenths = ended * 10 // self._total
        if tenths > self._tenths:
            self._tenths = tenths
            print(f"{ended} of {self._total} jobs have ended", file=self._stream, flush=True)


class BarProgress(SilentProgress):
    """One line that is written over, as wide as the terminal has room for."""

    def __init__(self, total: int, stream: TextIO) -> None:
        self._total = total
        self._stream = stream
        self._ended = 0
        self._shown = ""

    def show(self, ended: int) -> None:
        self._ended = ended
        room = max(10, min(BAR_WIDTH, shutil.get_terminal_size().columns - 30))
        full = room * ended // self._total
        line = f"[{'#' * full}{'.' * (room - full)}] {ended} of {self._total} jobs"
        if line != self._shown:
            self._write(line)

    def note(self, text: str) -> None:
        self._write("")
        super().note(text)
        self.show(self._ended)

    def close(self) -> None:
        self._write("")

    def _write(self, line: str) -> None:
        """Put ``line`` in the place of what is there. Spaces, not an escape: any terminal knows those."""
        blank = " " * len(self._shown)
        self._stream.write(f"\r{blank}\r{line}" if self._shown else line)
        self._stream.flush()
        self._shown = line


class RichProgress(SilentProgress):
    """The bar of rich. ImportError where that is not installed."""

    def __init__(self, total: int, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Display

        columns = (TextColumn("jobs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        # transient: the bar goes when all is done. What is printed meanwhile, to either stream, appears above it.
        self._display: Any = Display(*columns, console=Console(file=stream), transient=True)
        self._task = self._display.add_task("jobs", total=total)
        self._display.start()

    def show(self, ended: int) -> None:
        self._display.update(self._task, completed=ended)

    def close(self) -> None:
        self._display.stop()
