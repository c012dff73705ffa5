"""Rows as aligned plain text, for the commands that print tables."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, Final

NARROWEST: Final = 30
"""Columns that a wrapped last cell has at least."""


def aligned(rows: Sequence[Sequence[Any]], width: int | None = None) -> Iterator[str]:
    """Lines of text, columns under their heads, which are the first row; "-" for None and for empty texts.

    ``width``: wrap the last column so that lines have at most so many characters; None: each row is one line.
    """
    shown = [["-" if cell in (None, "") else str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    before = sum(widths[:-1]) + 2 * (len(widths) - 1)
    for row in shown:
        start = "  ".join(cell.ljust(each) for cell, each in zip(row[:-1], widths[:-1], strict=True))
        last = [row[-1]] if width is None else textwrap.wrap(row[-1], max(width - before, NARROWEST))
        for number, part in enumerate(last):
            indented = start.ljust(before) if number == 0 else " " * before
            yield f"{indented}{part}".rstrip()
