"""Long requests in slices, so that they do not hold up the loop: a batch of a few kB may hold millions of records.

A handler that takes longer than one turn of the loop may is a generator, which yields after each slice of it::

    yield False    nothing is held: another request may have the next turn
    yield True     a decompressed batch is held: this request goes on in the next turn, so that only one batch is held

    start(handler) -> the response, when it has not yielded; else a pending one that is completed in a later turn
    run()          -> one slice of the request whose turn it is

Most requests never yield, and are answered at once. While a request waits for its turn, the next request of its
connection is not read.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Final, Protocol, TypeVar

from kafka.broker.responses import ConnectionContext, PendingResponse
from kafka.records import BatchHeader
from kafka.records.compression import InflationLimitError, inflation_bound
from kafka.wire.message import Response

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


log = logging.getLogger(__name__)

SlicedHandler = Generator[bool, None, Response | PendingResponse]
Complete = Callable[[PendingResponse, Response], None]


class SlicedRequests:
    """The long requests of one broker."""

    def __init__(self) -> None:
        self._waiting: deque[_SlicedRequest] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def start(
        self, connection: ConnectionContext, steps: SlicedHandler, complete: Complete
    ) -> Response | PendingResponse:
        """Run a handler to its first yield, or to its end. ``complete`` is called with the pending response and the
        response when it ends later. An exception before the first yield is raised."""
        try:
            next(steps)
        except StopIteration as end:
            found: Response | PendingResponse = end.value
            return found
        sliced = _SlicedRequest(connection, steps, complete)
        self._waiting.append(sliced)
        sliced.cancel = partial(self._cancel, sliced)
        connection.set_pending(sliced.cancel)
        return sliced.reply

    def run(self) -> None:
        """Run one slice."""
        if not self._waiting:
            return
        sliced = self._waiting[0]
        try:
            holds_batch = next(sliced.steps)
        except StopIteration as end:
            self._end(sliced, end.value)
        except Exception:
            log.exception("%r: a request failed; closing the connection", sliced.connection)
            self._end(sliced, PendingResponse.hanging_up())
        else:
            if not holds_batch:
                self._waiting.rotate(-1)

    def _end(self, sliced: _SlicedRequest, outcome: Response | PendingResponse) -> None:
        self._waiting.popleft()
        if sliced.cancel is not None:
            sliced.connection.clear_pending(sliced.cancel)  # not if the request is a delayed operation now
        sliced.cancel = None  # a reference cycle otherwise
        reply = sliced.reply
        if not isinstance(outcome, PendingResponse):
            sliced.complete(reply, outcome)
        elif outcome.done:
            reply.complete_like(outcome)
        else:
            outcome.call_when_done(reply.complete_like)

    def _cancel(self, sliced: _SlicedRequest) -> None:
        """The connection has ended: the request goes no further, and what it has done stays done."""
        sliced.steps.close()
        sliced.cancel = None
        self._waiting.remove(sliced)


class _SlicedRequest:
    def __init__(self, connection: ConnectionContext, steps: SlicedHandler, complete: Complete) -> None:
        self.connection = connection
        self.steps = steps
        self.complete = complete
        self.reply = PendingResponse()
        self.cancel: Callable[[], None] | None = None
