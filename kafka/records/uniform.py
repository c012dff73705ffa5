"""Runs of records that are laid out alike, looked at by columns and not one by one.

Messages of one size, which counters, fixed formats and load generators send, make records of which each field lies a
fixed number of bytes after that of the record before. A slice of the batch with that step is one byte of all of them::

    length  attributes  timestamp  offset  key      value          headers       length  attributes ...
    d6 01   00          06         84 01   01 (-)   c8 01 x x x    00            d6 01   00
    |<------------------------------- step ------------------------------->|    |

so a few slices, compared as a whole, say of thousands of records that they are well-formed and one after another. That
takes 0.04 us for each in plain Python, for 0.9 of the walk in :mod:`kafka.records.validator`. Headers have a column for
their number and two for each of them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

LEAST_RUN: Final = 8
"""Fewer records are not worth the slices."""

_ALL: Final = bytes(range(0x100))
_ONE_BYTE: Final = bytes(range(0, 0x80, 2))
"""Varints of one byte that are not negative."""
_GOES_ON: Final = bytes(range(0x80, 0x100, 2))
"""First bytes of longer ones."""
_ENDS: Final = bytes(range(0x80))
"""Last bytes of longer ones."""

_PERIOD: Final = 8192
_FIRST: Final = _GOES_ON * (_PERIOD // 64 + 1)
_SECOND: Final = b"".join([bytes([number]) * 64 for number in range(128)])
_SECOND_OF_THREE: Final = b"".join([bytes([number | 0x80]) * 64 for number in range(128)])
"""Bytes of the varints of 0, 1, ... 8191; of greater numbers the first two are these again and again."""


class Run(NamedTuple):
    """So many ``records`` of ``step`` bytes each, and the greatest of their timestamp deltas in ms, of which none is
    negative. ``columns``: how many were compared, each of which takes at most as long as a record that is walked
    through."""

    records: int
    step: int
    max_delta: int
    has_keys: bool
    columns: int


def find_run(data: bytes, pos: int, end: int, number: int, most: int) -> Run | None:
    """The records between ``pos``, where record ``number`` of a batch begins, and ``end``, at most ``most``, as far as
    they are alike, well-formed and one after another. None when these are too few, or the first one is of an unusual
    kind: it says nothing of what is wrong with it."""
    if number >= _PERIOD << 7 or data[pos] & 1:
        return None
    at = pos + 1
    size = data[pos] >> 1
    if data[pos] >= 0x80:
        if data[at] >= 0x80:
            return None
        size = (data[pos] & 0x7F) >> 1 | data[at] << 6
        at += 1
    size += at - pos
    offset_bytes = 1 if number < 64 else 2 if number < _PERIOD else 3
    most = min(most, (end - pos) // size, 64 - number if number < 64 else _PERIOD - number % _PERIOD)
    lengths = data[pos:at]
    if most < LEAST_RUN or not (data.startswith(lengths, pos + size) and data.startswith(lengths, pos + 2 * size)):
        return None
    alike = [*range(pos, at)]
    time_at = at + 1  # behind the attributes
    time_bytes = 1 if data[time_at] < 0x80 else 2
    offset_at = time_at + time_bytes
    at = offset_at + offset_bytes
    has_keys = data[at] != 1
    alike.append(at)
    if has_keys:
        if data[at] & 1 or data[at] >= 0x80:
            return None
        at += data[at] >> 1
    at += 1
    if at - pos + 2 > size:
        return None
    alike.append(at)
    value_bytes = data[at] >> 1
    if data[at] & 1:
        return None
    if data[at] >= 0x80:
        at += 1
        alike.append(at)
        if data[at] >= 0x80:
            return None
        value_bytes = (data[at - 1] & 0x7F) >> 1 | data[at] << 6
    of_headers = _lengths_of_headers(data, at + 1 + value_bytes, pos + size)
    if of_headers is None:
        return None
    alike += of_headers

    stop = pos + most * size
    for at in alike:
        column = data[at:stop:size]
        first = column[:1]
        if column != first * len(column):
            stop -= len(column.lstrip(first)) * size
            if stop - pos < LEAST_RUN * size:
                return None
    times = []
    for at, allowed in ((time_at, _ONE_BYTE),) if time_bytes == 1 else ((time_at, _GOES_ON), (time_at + 1, _ENDS)):
        column = data[at:stop:size]
        times.append(column)
        if column.translate(None, allowed):
            stop -= len(column.lstrip(allowed)) * size
            if stop - pos < LEAST_RUN * size:
                return None
    count = (stop - pos) // size
    offsets = [data[at:stop:size] for at in range(offset_at, offset_at + offset_bytes)]
    if offsets != _offset_columns(number, count):
        return None
    if time_bytes == 1:
        max_delta = _greatest(times[0][:count]) >> 1
    else:
        max_delta = _greatest_of_two(times[0][:count], times[1][:count])
    return Run(count, size, max_delta, has_keys, len(alike) + time_bytes + offset_bytes)


def _lengths_of_headers(data: bytes, at: int, end: int) -> list[int] | None:
    """Where the number of the headers is, at ``at``, and the lengths of their names and values, which end at ``end``.
    None when they do not, or one of these numbers takes more than a byte."""
    if at >= end or data[at] >= 0x80 or data[at] & 1:
        return None
    found = [at]
    at += 1
    for _ in range(data[found[0]] >> 1):
        for is_value in (False, True):  # a value may be null, whose length is one byte of 1
            if at >= end or data[at] >= 0x80 or (data[at] & 1 and not (is_value and data[at] == 1)):
                return None
            found.append(at)
            at += 1 + (data[at] >> 1)
    return found if at == end else None


def _offset_columns(number: int, count: int) -> list[bytes]:
    """The bytes of the offset deltas ``number``, ``number`` + 1 and so on, which all have as many bytes."""
    if number < 64:
        return [_ONE_BYTE[number : number + count]]
    first = number % 64
    second = number % _PERIOD
    if number < _PERIOD:
        return [_FIRST[first : first + count], _SECOND[second : second + count]]
    third = bytes([number // _PERIOD])
    return [_FIRST[first : first + count], _SECOND_OF_THREE[second : second + count], third * count]


def _greatest(column: bytes) -> int:
    """The greatest byte: mostly the last one, as timestamps seldom go back."""
    above = column.translate(None, _ALL[: column[-1] + 1])
    return max(above) if above else column[-1]


def _greatest_of_two(first: bytes, second: bytes) -> int:
    """The greatest number among varints of two bytes that are not negative."""
    high = _greatest(second)
    begin, end = second.find(high), second.rfind(high) + 1
    if second[begin:end] == bytes([high]) * (end - begin):
        low = _greatest(first[begin:end])
    else:
        low = max([each for each, above in zip(first, second, strict=True) if above == high])
    return (low & 0x7F) >> 1 | high << 6
