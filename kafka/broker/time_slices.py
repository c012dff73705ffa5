"""Long requests in slices, so that they do not hold up the loop: how much is done in one, and reading a batch so.

A batch of a few kB may hold millions of records. What takes longer than one turn of the loop may is a generator, which
yields after each slice (``responses.SlicedRequests`` runs it).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final, Protocol, TypeVar

from kafka.records import BatchHeader
from kafka.records.compression import InflationLimitError, inflation_bound

SLICE_RECORDS: Final = 10_240
"""The records that are read in one slice: 12 ms in plain Python, and 35 where each record has sixty headers.
librdkafka's batches have at most 10,000 records by default (``batch.num.messages``)."""

MAX_INFLATED_BYTES: Final = 16 << 20
"""The decompressed size that a broker accepts of any batch; also 14 times the batch's own size."""

PARTITION_COST_BYTES: Final = 4096
"""The time that a partition of a request takes besides its batch, as bytes of a batch."""

_SMALL_INFLATED_BYTES: Final = 1 << 20
_SLICE_BYTES: Final = 2 << 20
_RECORD_COST_BYTES: Final = 128


class SlicedBatchReader(Protocol):
    """Reads a batch: ``read(limit)`` reads at most ``limit`` records and returns whether there are more."""

    def read(self, limit: int, /) -> bool: ...


B = TypeVar("B", bound=SlicedBatchReader)


class TimeSliceBudget:
    """The work that a request may do in one slice."""

    def __init__(self) -> None:
        self._bytes = 0

    def spend(self, batch_bytes: int, records: int = 0) -> bool:
        """Count these bytes of a batch and this number of its records; True when that ends the slice. Records count, as
        many small batches in one request are as much work as a large one."""
        self._bytes += batch_bytes + _RECORD_COST_BYTES * records
        if self._bytes < _SLICE_BYTES:
            return False
        self._bytes = 0
        return True


def read_at_once(header: BatchHeader, open_batch: Callable[[int], B]) -> B | None:
    """Read one batch to its end with what ``open_batch(max_inflated_bytes)`` makes, and return that; None when it is
    not small, inflated too: :func:`read_in_slices` is for it.

    Errors: those of ``open_batch`` and ``read``.
    """
    if header.records_count > SLICE_RECORDS:
        return None
    try:
        batch = open_batch(inflation_bound(header.length, _SMALL_INFLATED_BYTES))
        return None if batch.read(SLICE_RECORDS) else batch
    except InflationLimitError:
        return None


def read_in_slices(header: BatchHeader, open_batch: Callable[[int], B]) -> Generator[bool, None, B]:
    """The same for a batch of any size: in slices, when it is this request's turn.

    :class:`~kafka.records.compression.InflationLimitError`: the batch inflates above what a broker takes.
    """
    yield False
    batch = open_batch(inflation_bound(header.length, MAX_INFLATED_BYTES))
    while batch.read(SLICE_RECORDS):
        yield True
    return batch


def read_batch(header: BatchHeader, open_batch: Callable[[int], B]) -> Generator[bool, None, B]:
    """Read a batch at once if it is small, else in turns."""
    batch = read_at_once(header, open_batch)
    if batch is None:
        batch = yield from read_in_slices(header, open_batch)
    return batch
