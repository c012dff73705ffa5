"""Records found by their timestamps, which producers make and which need not ascend.

Each segment knows its greatest timestamp, and its index the greatest one before each entry: what lies below a position
has nothing as late as what is asked for. From there on headers are read, and the one batch that has it. Of a batch
whose codec is not installed, or that inflates above the bound, only the header can be: its first record is taken for
the one that is looked for by time, and its last one for the newest.

Both searches are generators, which yield as in ``slices.py``.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple

from kafka.broker.log.segment import Segment
from kafka.broker.slices import SliceBudget, read_batch
from kafka.errors import CorruptRecordError, UnsupportedCodecError
from kafka.records import BatchHeader, parse_header
from kafka.records.compression import InflationLimitError
from kafka.records.reader import FirstSince

_HEADER_COST_BYTES = 512
"""Reading a header takes as long as so many bytes of a batch, or less."""


class FoundOffset(NamedTuple):
    """A record found by time: ``timestamp`` in ms."""

    offset: int
    timestamp: int
    leader_epoch: int


Search = Generator[bool, None, FoundOffset | None]


def first_since(segments: Sequence[Segment], start_offset: int, timestamp: int) -> Search:
    """The first record from ``start_offset`` on, by offset, whose timestamp is ``timestamp`` (ms) or later."""
    budget = SliceBudget()
    for segment in segments:
        if segment.max_timestamp < timestamp or segment.next_offset <= start_offset:
            continue
        index = segment.index
        position = max(index.position_before_time(timestamp), index.position_of(start_offset))
        for at, _, last, length in segment.batches_from(position):
            if last >= start_offset and segment.max_timestamp_at(at) >= timestamp:
                header, found = yield from _first_in(segment, at, length, start_offset, timestamp)
                if found is None:
                    return FoundOffset(max(header.base_offset, start_offset), header.max_timestamp, header.leader_epoch)
                if found[0] >= 0:
                    return FoundOffset(*found, header.leader_epoch)
            if budget.spend(_HEADER_COST_BYTES):
                yield False
                if segment.is_gone:
                    break
    return None


def first_newest(segments: Sequence[Segment]) -> Search:
    """The first record that has the greatest timestamp of all; None when no record has one."""
    best = max(segments, key=lambda segment: (segment.max_timestamp, -segment.base_offset))
    if best.max_timestamp < 0:
        return None
    for at, base, _, length in best.batches_from(best.index.position_of(best.max_timestamp_offset)):
        if base == best.max_timestamp_offset:
            header, found = yield from _first_in(best, at, length, 0, best.max_timestamp)
            if found is None:
                return FoundOffset(header.last_offset, header.max_timestamp, header.leader_epoch)
            return FoundOffset(*found, header.leader_epoch) if found[0] >= 0 else None
    return None


def run_to_end(search: Search) -> FoundOffset | None:
    """What a search finds, whatever time that takes."""
    while True:
        try:
            next(search)
        except StopIteration as end:
            found: FoundOffset | None = end.value
            return found


def _first_in(
    segment: Segment, position: int, length: int, first_offset: int, since: int
) -> Generator[bool, None, tuple[BatchHeader, tuple[int, int] | None]]:
    """The header of the batch there, with the offset and timestamp of its first record that fits: an offset of -1 when
    none does, None when the records cannot be read."""
    data = segment.pool.read(segment.path, position, length)
    header = parse_header(data)
    if header is None:
        raise CorruptRecordError(f"a batch in {segment.path} at byte {position} is cut")
    try:
        found = yield from read_batch(header, lambda most: FirstSince(since, data, header, most, first_offset))
    except (UnsupportedCodecError, InflationLimitError):
        return header, None
    return header, (found.offset, found.timestamp)
