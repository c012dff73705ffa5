"""Whether the records of a produced batch are what its header says, found without making anything of them.

What a broker stores every consumer has to read: a batch whose records are malformed, or have one offset twice, would
stop all of them there. So each record's fields are walked through, as in :meth:`kafka.records.reader.RecordReader`, but
nothing is cut out of the batch, and it is done a few records at a time: a batch of a few kB may hold millions.

The layout is drawn in :mod:`kafka.records.reader`. A record takes about half of the time that reading it takes, and in
plain Python a twentieth of that where records are laid out alike (:mod:`kafka.records.uniform`).
"""

from __future__ import annotations

from typing import Final

from kafka._compiled import is_compiled
from kafka._native import i64
from kafka.errors import CorruptRecordError
from kafka.records.header import BatchHeader, Buffer
from kafka.records.reader import far_timestamp, open_body, walk_headers
from kafka.records.uniform import LEAST_RUN, Run, find_run
from kafka.records.varint import MAX_VARINT_BYTES, decode_varint

NO_TIMESTAMP: Final = -1
MAX_FAULTS: Final = 100
"""How many records that break a rule are told of; the rest of the batch is not read then."""

_LOOKS_FOR_RUNS: Final = not is_compiled()
"""Compiled, the walk takes 0.02 us for a record, which is less than slices take."""
_BETWEEN_RUNS: Final = 256
"""So many records are looked at one by one before the next run is looked for, and so long it may be at first: one that
comes to nothing has cost little then. A run is followed by one that may be four times as long."""

_HEADER_BYTES_PER_RECORD: Final = 16
"""So many bytes of headers take as long as a record, or less."""

_ANY_TIME: Final = (-(2**63), 2**63 - 1)


class RecordFault:
    """A record that breaks a rule: its ``index`` in the batch, its ``timestamp`` in ms, and whether it has no key where
    it needs one (else its timestamp is at fault)."""

    __slots__ = ("index", "is_without_key", "timestamp")

    def __init__(self, index: int, timestamp: int, is_without_key: bool) -> None:
        self.index = index
        self.timestamp = timestamp
        self.is_without_key = is_without_key


class BatchValidator:
    """Walks through the batch that ``header`` found in ``data``, which has a record at each of its offsets.

    ``needs_keys``: a record without a key is a fault. ``times``: the least and the greatest timestamp in ms, both
    inclusive; one of -1 is none. ``max_timestamp`` is, in the end, the greatest of all records.

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
        self.faults: list[RecordFault] = []
        """In the order of the records; no more than :data:`MAX_FAULTS`."""

    @property
    def size_bytes(self) -> int:
        """What the records take when they are inflated."""
        return self._end

    def read(self, limit: int) -> bool:
        """Look at the next records, at most ``limit``, less where they have many headers; whether there is more to
        look at."""
        try:
            self._look_at(limit)
        except IndexError:
            raise CorruptRecordError(f"a record runs over the end of {self._header!r}") from None
        except CorruptRecordError as error:
            raise CorruptRecordError(f"{error.args[0]} in {self._header!r}") from None
        return self._number < self._count and len(self.faults) < MAX_FAULTS

    def _look_at(self, limit: int) -> None:
        """Runs of records that are alike at once, and what is between them one by one."""
        longest = _BETWEEN_RUNS
        while limit > 0 and self._number < self._count and len(self.faults) < MAX_FAULTS:
            most = min(limit, self._count - self._number)
            run = self._pass_over_run(min(most, longest)) if _LOOKS_FOR_RUNS and most >= LEAST_RUN else None
            if run is None:
                longest = _BETWEEN_RUNS
                limit -= self._walk(min(limit, _BETWEEN_RUNS))
            else:
                longest = max(4 * run.records, _BETWEEN_RUNS)
                limit -= max(run.records, run.columns)
        if self._number == self._count and self._pos != self._end:
            raise CorruptRecordError(f"{self._end - self._pos} bytes after the last of {self._count} records")

    def _pass_over_run(self, most: int) -> Run | None:
        """Pass over records that are alike, when none of them can be at fault."""
        run = find_run(self._body, self._pos, self._end, self._number, most)
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
        """Look at records one by one; what that has cost, in records. In the loop a record may only cost what it must;
        what is seldom is looked at behind it."""
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
                self.faults.append(RecordFault(number, timestamp, True))
                if len(self.faults) >= MAX_FAULTS:
                    return 0
            elif not earliest <= timestamp <= latest and timestamp != NO_TIMESTAMP:
                self.faults.append(RecordFault(number, timestamp, False))
                if len(self.faults) >= MAX_FAULTS:
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
