"""Reading a segment from where no seal says what is in it: after a crash.

    good batch | good batch | bad bytes | good batch | torn batch
    ───────────────────────   ─────────   ──────────   ──────────
    kept                      damage:     kept         tail: cut, if this
                              kept, but               segment is the last
                              not served

Bad bytes with a good batch behind them were not torn by a crash in the middle of a write: disks and other programs do
that. They are never cut, because what follows was acknowledged. A good batch is found again by its CRC, at any byte.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from typing import NamedTuple

from kafka.broker.private_files import open_private
from kafka.errors import CorruptRecordError
from kafka.records import HEADER_BYTES, BatchHeader, check_crc, parse_header
from kafka.records.header import MAGIC_AT


class Damage(NamedTuple):
    """Bytes ``start`` to ``end`` (exclusive) of a segment that are no batches; offsets ``first_offset`` to
    ``next_offset`` (exclusive) lay there."""

    start: int
    end: int
    first_offset: int
    next_offset: int
    cause: str


class ScanResult(NamedTuple):
    """``end``: where the last good batch ends; ``size``: where the file does; ``cause``: why what is between is bad."""

    end: int
    size: int
    damages: tuple[Damage, ...]
    cause: str


def scan_segment(
    path: str, expected: int, on_batch: Callable[[BatchHeader, bool], None], start: int = 0
) -> ScanResult:
    """Walk through a segment from byte ``start`` on, with all CRCs checked. ``expected``: no batch there has an offset
    below.

    ``on_batch(header, after_damage)`` is called for each good batch; ``header.start`` and ``end`` are positions in the
    file.
    """
    size = os.path.getsize(path)
    if size == start:
        return ScanResult(size, size, (), "")
    with (
        open(path, "rb", opener=open_private) as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as data,
    ):
        return _scan(mapped, data, start, size, expected, on_batch)


def _scan(
    mapped: mmap.mmap,
    data: memoryview,
    position: int,
    size: int,
    expected: int,
    on_batch: Callable[[BatchHeader, bool], None],
) -> ScanResult:
    damages: list[Damage] = []
    while position < size:
        found = _good_batch(data, position, size, expected)
        after_damage = False
        if isinstance(found, str):
            cause = found
            again = _find_batch(mapped, data, position + 1, size, expected)
            if again is None:
                return ScanResult(position, size, tuple(damages), cause)
            damages.append(Damage(position, again.start, expected, again.base_offset, cause))
            found, after_damage = again, True
        on_batch(found, after_damage)
        position = found.end
        expected = found.next_offset
    return ScanResult(position, size, tuple(damages), "")


def _good_batch(data: memoryview, position: int, size: int, expected: int) -> BatchHeader | str:
    """The batch at a position, or why there is none."""
    try:
        header = parse_header(data, position)
        if header is None:
            return f"a batch is torn: {size - position} bytes are left of it"
        if header.magic != 2:
            return f"a batch has the magic {header.magic}"
        if header.base_offset < expected:
            return f"a batch has the offset {header.base_offset}, below {expected}"
        check_crc(data, header)
    except CorruptRecordError as error:
        return str(error.args[0]) if error.args else "a batch is corrupt"
    return header


def _find_batch(mapped: mmap.mmap, data: memoryview, start: int, size: int, expected: int) -> BatchHeader | None:
    """The first good batch that begins at ``start`` or behind, if there is one."""
    position = start - 1
    while True:
        position = mapped.find(b"\x02", position + 1 + MAGIC_AT) - MAGIC_AT
        if position < start or position > size - HEADER_BYTES:
            return None
        if expected <= int.from_bytes(data[position : position + 8], "big") < expected + 2**31:
            found = _good_batch(data, position, size, expected)
            if not isinstance(found, str):
                return found
