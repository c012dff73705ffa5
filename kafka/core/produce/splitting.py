"""A batch that is too large for its broker, in two.

The halves keep the records' order, times and sequence numbers, so what was numbered after them stays as it is; the
futures of the records find them through ``forward``. Which errors lead here is said in ``fate.py``; that a single
record cannot be split is for the caller to know.

Source: the Java client's ``RecordAccumulator.splitAndReenqueue``, which cuts to ``batch.size`` at once and forgets how
well the topic's records shrank, as here.
"""

from __future__ import annotations

from typing import Final

from kafka.core.produce.accumulator import Accumulator
from kafka.core.produce.batch import Batch, Parcel
from kafka.core.produce.numbering import SEQUENCE_MASK
from kafka.errors import CorruptRecordError
from kafka.records import HEADER_BYTES, decode_raw, parse_header

NO_LIMIT: Final = 0x7FFFFFFF


def split(batch: Batch, accumulator: Accumulator) -> list[Batch]:
    """Two batches with the records of ``batch``, which has at least two; the accumulator knows them in its place."""
    data = batch.encoded()
    header = parse_header(data)
    if header is None:
        raise CorruptRecordError("a batch of this producer's own is cut")
    records = decode_raw(data, header, NO_LIMIT)
    if batch.queue.ratio is not None:
        batch.queue.ratio.reset()
    half_bytes = HEADER_BYTES + (batch.builder.size_bytes - HEADER_BYTES) // 2
    parts: list[Batch] = []
    forward: list[tuple[Parcel, int]] = []
    sequence = batch.sequence
    left = len(records)
    for _offset, timestamp, key, value, headers in records:
        if not parts or (len(parts) == 1 and (parts[0].builder.size_bytes >= half_bytes or left == 1)):
            part = Batch(
                batch.queue, batch.serial, accumulator.new_builder(NO_LIMIT), batch.created_at, batch.guard
            )
            part.skipped = batch.skipped + len(forward)
            parts.append(part)
        part = parts[-1]
        forward.append((part, part.append(timestamp, key, value, headers)))
        left -= 1
    for part in parts:
        if sequence >= 0:
            part.number(batch.producer_id, batch.epoch, sequence)
            sequence = (sequence + part.records_count) & SEQUENCE_MASK
    accumulator.replace(batch, parts)
    batch.move(forward)
    return parts
