"""What became of dead jobs: records of a dead topic that name those of its jobs that were replayed or dropped.

::

    headers   dead-mark   replayed or dropped
    value     JSON {"offsets": [...], "ids": [...]}: offsets of dead jobs; ids of the new jobs, for replayed ones only

A mark is in the partition of its dead jobs and behind them: neither retention nor DeleteRecords, which remove the
beginning of a partition, can remove a mark before its jobs. It has no header ``dead-cause``, so readers that do not
know marks take it for no dead job.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from kafka.tasks.format.envelope import Header

MARK = "dead-mark"
"""The header."""

MOST_MARKED = 500
"""Dead jobs that one mark names: it stays below 25 KB."""


class MarkKind(Enum):
    """What became of a dead job."""

    REPLAYED = "replayed"
    DROPPED = "dropped"


class DeadMark(NamedTuple):
    """``offsets`` of dead jobs in the mark's partition; ``ids`` of the jobs that replay them, in the same order."""

    kind: MarkKind
    offsets: tuple[int, ...]
    ids: tuple[str, ...] = ()


def encode_mark(mark: DeadMark) -> tuple[bytes, list[Header]]:
    """Value and headers of a mark."""
    body = {"offsets": mark.offsets, **({"ids": mark.ids} if mark.ids else {})}
    return json.dumps(body, separators=(",", ":")).encode(), [(MARK, mark.kind.value.encode())]


def decode_mark(value: bytes | None, headers: Sequence[Header]) -> DeadMark | None:
    """The mark in a record; None when it is none, also when it is damaged or of a later release."""
    kind = next((raw for name, raw in headers if name == MARK), None)
    if kind is None:
        return None
    try:
        body = json.loads(value or b"")
        offsets, ids = body["offsets"], body.get("ids", [])
        known = MarkKind(kind.decode("ascii"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if not (isinstance(offsets, list) and all(type(each) is int and each >= 0 for each in offsets)):
        return None
    if not (isinstance(ids, list) and len(ids) in (0, len(offsets)) and all(isinstance(each, str) for each in ids)):
        return None
    return DeadMark(known, tuple(offsets), tuple(ids))
