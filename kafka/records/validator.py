"""Checks that the records of a produced batch match its header, without making objects of them.

Every consumer has to read what a broker stores: a batch whose records are malformed, or have one offset twice, would
stop all of them there. So the fields of each record are parsed, as in :meth:`kafka.records.reader.RecordReader`, but
nothing is copied out of the batch, and a few records at a time: a batch of a few kB may hold millions.

The layout is drawn in :mod:`kafka.records.reader`. A record takes about half of the time that reading it takes, and in
plain Python a twentieth of that where records have the same layout (:func:`find_uniform_run`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kafka._compiled import is_compiled
from kafka._native import i64
from kafka.errors import CorruptRecordError
from kafka.records.header import MAX_VARINT_BYTES, BatchHeader, Buffer, decode_varint
from kafka.records.reader import far_timestamp, open_body, walk_headers

# -- runs of records with the same layout, compared by columns
# -----------------------------------------------------------
#
# Messages of one size, from counters, fixed formats and load generators, make records of which each field lies a fixed
# number of bytes after that of the record before. A slice of the batch with that step is one byte of all of them:
#
#     length  attributes  timestamp  offset  key      value          headers       length  attributes ...
#     d6 01   00          06         84 01   01 (-)   c8 01 x x x    00            d6 01   00
#     |<------------------------------- step ------------------------------->|    |
#
# A few slices, compared as a whole, show that thousands of records are well-formed and consecutive. That takes 0.04 us
# for each in plain Python, against 0.9 of the walk below. Headers have a column for their number and two for each.

MIN_RUN_RECORDS: Final = 8
"""For fewer records the slices cost more than they save."""

_ALL: Final = bytes(range(0x100))
_ONE_BYTE: Final = bytes(range(0, 0x80, 2))
"""Varints of one byte that are not negative."""
_CONTINUED: Final = bytes(range(0x80, 0x100, 2))
"""First bytes of longer varints."""
_LAST: Final = bytes(range(0x80))
"""Last bytes of longer varints."""

_PERIOD: Final = 8192
_FIRST: Final = _CONTINUED * (_PERIOD // 64 + 1)
_SECOND: Final = b"".join([bytes([number]) * 64 for number in range(128)])
_SECOND_OF_THREE: Final = b"".join([bytes([number | 0x80]) * 64 for number in range(128)])
"""Bytes of the varints of 0, 1, ... 8191; the first two bytes of greater numbers repeat these."""


class UniformRun(NamedTuple):
    """``records`` of ``step`` bytes each, and the greatest of their timestamp deltas in ms, none of which is negative.
    ``columns``: how many were compared, each of which takes at most as long as one record in the walk."""

    records: int
    step: int
    max_delta: int
    has_keys: bool
    columns: int


def find_uniform_run(data: bytes, pos: int, end: int, number: int, most: int) -> UniformRun | None:
    """The records between ``pos``, where record ``number`` of a batch begins, and ``end``, at most ``most``, as far as
    they have the same layout and are well-formed and consecutive. None when these are too few, or the first one is of
    an unusual kind, which may be valid."""
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
    if most < MIN_RUN_RECORDS or not (
        data.startswith(lengths, pos + size) and data.startswith(lengths, pos + 2 * size)
    ):
        return None
    constant = [*range(pos, at)]
    time_at = at + 1  # behind the attributes
    time_bytes = 1 if data[time_at] < 0x80 else 2
    offset_at = time_at + time_bytes
    at = offset_at + offset_bytes
    has_keys = data[at] != 1
    constant.append(at)
    if has_keys:
        if data[at] & 1 or data[at] >= 0x80:
            return None
        at += data[at] >> 1
    at += 1
    if at - pos + 2 > size:
        return None
    constant.append(at)
    value_bytes = data[at] >> 1
    if data[at] & 1:
        return None
    if data[at] >= 0x80:
        at += 1
        constant.append(at)
        if data[at] >= 0x80:
            return None
        value_bytes = (data[at - 1] & 0x7F) >> 1 | data[at] << 6
    header_columns = _header_columns(data, at + 1 + value_bytes, pos + size)
    if header_columns is None:
        return None
    constant += header_columns

    stop = pos + most * size
    for at in constant:
        column = data[at:stop:size]
        first = column[:1]
        if column != first * len(column):
            stop -= len(column.lstrip(first)) * size
            if stop - pos < MIN_RUN_RECORDS * size:
                return None
    times = []
    for at, allowed in ((time_at, _ONE_BYTE),) if time_bytes == 1 else ((time_at, _CONTINUED), (time_at + 1, _LAST)):
        column = data[at:stop:size]
        times.append(column)
        if column.translate(None, allowed):
            stop -= len(column.lstrip(allowed)) * size
            if stop - pos < MIN_RUN_RECORDS * size:
                return None
    count = (stop - pos) // size
    offsets = [data[at:stop:size] for at in range(offset_at, offset_at + offset_bytes)]
    if offsets != _offset_columns(number, count):
        return None
    if time_bytes == 1:
        max_delta = _greatest(times[0][:count]) >> 1
    else:
        max_delta = _greatest_of_two(times[0][:count], times[1][:count])
    return UniformRun(count, size, max_delta, has_keys, len(constant) + time_bytes + offset_bytes)


def _header_columns(data: bytes, at: int, end: int) -> list[int] | None:
    """Positions of the number of headers, at ``at``, and of the lengths of their names and values, which end at
    ``end``. None when they do not, or one of these numbers takes more than a byte."""
    if at >= end or data[at] >= 0x80 or data[at] & 1:
        return None
    columns = [at]
    at += 1
    for _ in range(data[columns[0]] >> 1):
        for is_value in (False, True):  # a value may be null, whose length is one byte of 1
            if at >= end or data[at] >= 0x80 or (data[at] & 1 and not (is_value and data[at] == 1)):
                return None
            columns.append(at)
            at += 1 + (data[at] >> 1)
    return columns if at == end else None


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
    """The greatest byte: mostly the last one, as timestamps seldom decrease."""
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


NO_TIMESTAMP: Final = -1
MAX_RECORD_ERRORS: Final = 100
"""The most errors that are reported; the rest of the batch is not read then."""

_USES_RUNS: Final = not is_compiled()
"""Compiled, the walk takes 0.02 us for a record, which is less than the slices take."""
_BETWEEN_RUNS: Final = 256
"""This many records are checked one by one between two attempts to find a run, and the first run has at most as many: a
failed attempt costs little then. After each run the next may be four times as long."""

_HEADER_BYTES_PER_RECORD: Final = 16
"""Checking this many bytes of headers takes at most as long as a record."""

_ANY_TIME: Final = (-(2**63), 2**63 - 1)


class RecordError:
    """A record that was rejected: its ``index`` in the batch, its ``timestamp`` in ms, and whether it lacks the key
    that it needs (otherwise its timestamp is out of range)."""

    __slots__ = ("index", "is_without_key", "timestamp")

    def __init__(self, index: int, timestamp: int, is_without_key: bool) -> None:
        self.index = index
        self.timestamp = timestamp
        self.is_without_key = is_without_key


class BatchValidator:
    """Walks through the batch of ``header`` in ``data``, which has a record at each of its offsets.

    ``needs_keys``: a record without a key is an error. ``times``: the least and the greatest timestamp in ms, both
    inclusive; a timestamp of -1 means none. ``max_timestamp`` is, in the end, the greatest of all records.

    The constructor and :meth:`read` raise :class:`~kafka.errors.CorruptRecordError` for records that are malformed,
    fewer or more than the header says, at other offsets than one after another from the header's on, or that would
    inflate above ``max_decompressed_bytes``; the constructor :class:`~kafka.errors.UnsupportedCodecError` for a codec
    that is not available.
    """

    def __init__(
        self,
        data: Buffer,
        header: BatchHeader,
        max_decompressed_bytes: int,
        *,
        needs_keys: bool = False,
        times: tuple[int, int] = _ANY_TIME,
    ) -> None:
        self._header = header
        self._body, pos, end = open_body(data, header, max_decompressed_bytes)
        self._pos: i64 = pos
        self._end: i64 = end
        self._number: i64 = 0
        self._count: i64 = header.records_count
        self._needs_keys = needs_keys
        self._earliest: i64 = times[0]
        self._latest: i64 = times[1]
        # NO_TIMESTAMP (-1) is below all others, so that it stays where no record has one.
        self.max_timestamp: int = NO_TIMESTAMP
        self.errors: list[RecordError] = []
        """In the order of the records; no more than :data:`MAX_RECORD_ERRORS`."""

    @property
    def size_bytes(self) -> int:
        """Size of the decompressed records."""
        return self._end

    def read(self, limit: int) -> bool:
        """Check the next records, at most ``limit``, fewer where they have many headers; returns whether any are
        left."""
        try:
            self._check(limit)
        except IndexError:
            raise CorruptRecordError(f"a record runs over the end of {self._header!r}") from None
        except CorruptRecordError as error:
            raise CorruptRecordError(f"{error.args[0]} in {self._header!r}") from None
        return self._number < self._count and len(self.errors) < MAX_RECORD_ERRORS

    def _check(self, limit: int) -> None:
        """Check runs of records with the same layout as a whole, and the records between them one by one."""
        longest = _BETWEEN_RUNS
        while limit > 0 and self._number < self._count and len(self.errors) < MAX_RECORD_ERRORS:
            most = min(limit, self._count - self._number)
            run = self._skip_run(min(most, longest)) if _USES_RUNS and most >= MIN_RUN_RECORDS else None
            if run is None:
                longest = _BETWEEN_RUNS
                limit -= self._walk(min(limit, _BETWEEN_RUNS))
            else:
                longest = max(4 * run.records, _BETWEEN_RUNS)
                limit -= max(run.records, run.columns)
        if self._number == self._count and self._pos != self._end:
            raise CorruptRecordError(f"{self._end - self._pos} bytes after the last of {self._count} records")

    def _skip_run(self, most: int) -> UniformRun | None:
        """Skip a run of records with the same layout, when none of them can be an error."""
        run = find_uniform_run(self._body, self._pos, self._end, self._number, most)
        if run is None or (self._needs_keys and not run.has_keys):
            return None
        least = self._header.base_timestamp
        greatest = least + run.max_delta
        if not self._earliest <= least <= greatest <= self._latest:
            return None
        self._pos += run.records * run.step
        self._number += run.records
        self.max_timestamp = max(self.max_timestamp, greatest)
        return run

    def _walk(self, limit: i64) -> int:
        """Check records one by one; returns the cost, in records. The common case of each record comes first and
        ends with ``continue``; headers are checked after it."""
        data = self._body
        pos = self._pos
        end = self._end
        count = self._count
        first = self._number
        needs_keys = self._needs_keys
        base_timestamp: i64 = self._header.base_timestamp
        earliest = self._earliest
        latest = self._latest
        greatest: i64 = self.max_timestamp
        byte: i64
        second: i64
        length: i64
        timestamp: i64
        record_end: i64
        header_cost: i64 = 0
        stop = count if limit >= count - first else first + limit
        number: i64 = first
        for number in range(first, stop):
            byte = data[pos]
            if byte < 0x80 and not byte & 1:
                record_end = pos + 1 + (byte >> 1)
                pos += 2  # attributes, too
            else:
                second = data[pos + 1]
                if second < 0x80 and not byte & 1:
                    record_end = pos + 2 + ((byte & 0x7F) >> 1 | second << 6)
                    pos += 3
                else:
                    length, pos = decode_varint(data, pos, MAX_VARINT_BYTES)
                    record_end = pos + length
                    pos += 1
            if record_end < pos or record_end > end:
                raise CorruptRecordError(f"record {number} ends at byte {record_end}, and all of them at byte {end}")

            byte = data[pos]
            if byte < 0x80 and not byte & 1:
                timestamp = base_timestamp + (byte >> 1)
                pos += 1
            else:
                second = data[pos + 1]
                if second < 0x80 and not byte & 1:
                    timestamp = base_timestamp + ((byte & 0x7F) >> 1 | second << 6)
                    pos += 2
                else:
                    length, pos = decode_varint(data, pos)
                    timestamp = far_timestamp(base_timestamp, length, pos)
            if timestamp > greatest:
                greatest = timestamp

            byte = data[pos]
            if byte < 0x80:
                length = (byte >> 1) ^ -(byte & 1)
                pos += 1
            else:
                second = data[pos + 1]
                if second < 0x80 and not byte & 1:
                    length = (byte & 0x7F) >> 1 | second << 6
                    pos += 2
                else:
                    length, pos = decode_varint(data, pos, MAX_VARINT_BYTES)
            if length != number:
                raise CorruptRecordError(f"record {number} has the offset delta {length}, at byte {pos}")

            byte = data[pos]
            if byte == 1:
                pos += 1
                length = -1
            else:
                if byte < 0x80:
                    length = (byte >> 1) ^ -(byte & 1)
                    pos += 1
                else:
                    length, pos = decode_varint(data, pos, MAX_VARINT_BYTES)
                if length < -1 or length > record_end - pos:
                    raise CorruptRecordError(f"a key of {length} bytes at byte {pos}")
                if length > 0:
                    pos += length
            if needs_keys and length < 0:
                self.errors.append(RecordError(number, timestamp, True))
                if len(self.errors) >= MAX_RECORD_ERRORS:
                    return 0
            elif not earliest <= timestamp <= latest and timestamp != NO_TIMESTAMP:
                self.errors.append(RecordError(number, timestamp, False))
                if len(self.errors) >= MAX_RECORD_ERRORS:
                    return 0

            byte = data[pos]
            if byte < 0x80 and not byte & 1:
                pos += 1 + (byte >> 1)
            elif byte == 1:
                pos += 1
            else:
                second = data[pos + 1]
                if second < 0x80 and not byte & 1:
                    pos += 2 + ((byte & 0x7F) >> 1 | second << 6)
                else:
                    length, pos = decode_varint(data, pos, MAX_VARINT_BYTES)
                    if length < -1 or length > record_end - pos:
                        raise CorruptRecordError(f"a value of {length} bytes at byte {pos}")
                    if length > 0:
                        pos += length

            if pos + 1 == record_end and not data[pos]:
                pos = record_end
                continue
            if pos >= record_end:
                raise CorruptRecordError(f"record {number} ends at byte {record_end}, before its headers")
            header_cost += (record_end - pos) // _HEADER_BYTES_PER_RECORD
            pos += walk_headers(data[pos:record_end], None)
            if pos != record_end:
                raise CorruptRecordError(f"record {number} should end at byte {record_end}, and ends at byte {pos}")
            if number - first + header_cost >= limit:
                break
        self._number = number + 1
        self._pos = pos
        self.max_timestamp = greatest
        return number + 1 - first + header_cost
