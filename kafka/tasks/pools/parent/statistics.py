"""Texts about a pool of processes: ``human_write_stats``, and results shortened for the log. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

LOG_CHARACTERS = 128


class WriteCounts(NamedTuple):
    """Jobs written to one child so far, and how many it has now."""

    sent_count: int
    pending: int


def human_write_stats(written: Mapping[int, WriteCounts]) -> dict[str, Any]:
    """How evenly jobs were written to the children, in the words of celery's non-blocking pool.

    ``total`` jobs, ``avg`` percent a child, ``all`` percents by child, ``raw`` counts by child, and ``inqueues``: how
    many channels there are, and in how many of them something is under way.
    """
    counts = [each.sent_count for each in written.values()]
    total = sum(counts)
    return {
        "total": total,
        "avg": _percent(total / len(counts) if counts else 0, total),
        "all": ", ".join(_percent(count, total) for count in counts),
        "raw": ", ".join(map(str, counts)),
        "inqueues": {"total": len(counts), "active": sum(each.pending > 0 for each in written.values())},
    }


def _percent(part: float, whole: int) -> str:
    return f"{100 * part / whole if whole else 0:.2f}%"


def brief(value: object, most: int = LOG_CHARACTERS) -> str:
    """A result for a line of the log: cut, with a sign that it is."""
    if isinstance(value, bytes):
        value = value[: 4 * most].decode("utf-8", "backslashreplace")
    text = str(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."
