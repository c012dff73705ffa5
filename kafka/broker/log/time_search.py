"""Records found by their timestamps, which producers make and which need not ascend.

Each segment knows its greatest timestamp, and its index the greatest one before each entry: what lies below a position
has nothing as late as what is asked for. From there on batches are read. Of one whose codec is not installed only the
header can be: its first record is taken for the one that is looked for by time, and its last one for the newest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kafka.broker.log.segment import Segment
from kafka.errors import UnsupportedCodecError
from kafka.records import BatchHeader, decode_raw, parse_header


class FoundOffset(NamedTuple):
    """A record found by time: ``timestamp`` in ms."""

    offset: int
    timestamp: int
    leader_epoch: int


def first_since(segments: Sequence[Segment], start_offset: int, timestamp: int) -> FoundOffset | None:
    """The first record from ``start_offset`` on, by offset, whose timestamp is ``timestamp`` (ms) or later."""
    for segment in segments:
        if segment.max_timestamp < timestamp or segment.next_offset <= start_offset:
            continue
        for header, data in _batches(segment, segment.index.position_before_time(timestamp)):
            if header.max_timestamp >= timestamp and header.last_offset >= start_offset:
                try:
                    records = decode_raw(data, header)
                except UnsupportedCodecError:
                    first = max(header.base_offset, start_offset)
                    return FoundOffset(first, header.max_timestamp, header.leader_epoch)
                for record in records:
                    if record[1] >= timestamp and record[0] >= start_offset:
                        return FoundOffset(record[0], record[1], header.leader_epoch)
    return None


def first_newest(segments: Sequence[Segment]) -> FoundOffset | None:
    """The first record that has the greatest timestamp of all; None when no record has one."""
    best = max(segments, key=lambda segment: (segment.max_timestamp, -segment.base_offset))
    if best.max_timestamp < 0:
        return None
    for header, data in _batches(best, best.index.position_of(best.max_timestamp_offset)):
        if header.base_offset == best.max_timestamp_offset:
            try:
                records = decode_raw(data, header)
            except UnsupportedCodecError:
                return FoundOffset(header.last_offset, header.max_timestamp, header.leader_epoch)
            for record in records:
                if record[1] == header.max_timestamp:
                    return FoundOffset(record[0], record[1], header.leader_epoch)
    return None


def _batches(segment: Segment, position: int) -> Iterator[tuple[BatchHeader, bytes]]:
    """Each batch from a batch's position on, read whole; damaged ones are passed over."""
    for at, _, _, length in segment.batches_from(position):
        data = segment.pool.read(segment.path, at, length)
        header = parse_header(data)
        if header is not None:
            yield header, data
