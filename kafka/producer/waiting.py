"""A thread that waits for memory, and the words for what it waited for.

The account and the row of waiters are the accumulator's (``kafka/core/produce/memory.py``); here are the event that a
thread sleeps on and the end of its patience.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from kafka.core.produce.accumulator import Accumulator, BufferFull
from kafka.core.produce.batch import Batch, Parcel, Parked
from kafka.errors import KafkaTimeoutError

NAMED_PARTITIONS: Final = 3
"""So many of the partitions that hold most are named in an error."""


class ThreadWaiter:
    """One thread in the row for memory. It sleeps on a lock that whoever wakes it lets go: an ``Event`` is that and
    five objects more, and costs as much as all else of waiting."""

    __slots__ = ("_asleep", "needed_bytes")

    def __init__(self, needed_bytes: int) -> None:
        self._asleep = threading.Lock()
        self._asleep.acquire()
        self.needed_bytes = needed_bytes

    def wake(self) -> None:
        """End the sleep, or the next one. Any thread."""
        if self._asleep.locked():
            with contextlib.suppress(RuntimeError):  # another thread was quicker
                self._asleep.release()

    def sleep(self, until: float) -> bool:
        """Until woken, or until ``until`` of ``time.monotonic``; whether woken."""
        return self._asleep.acquire(timeout=min(max(until - time.monotonic(), 0.0), threading.TIMEOUT_MAX))


def append_when_there_is_room(
    accumulator: Accumulator,
    full: BufferFull,
    max_block_ms: int,
    check_usable: Callable[[], None],
    record: tuple[Any, ...],
) -> tuple[Batch, int]:
    """``accumulator.append(*record)`` once there is memory, in the order in which threads came. ``full`` is what it
    said first. Raises KafkaTimeoutError after ``max_block_ms``, and what ``check_usable`` raises after each wait."""
    append: Callable[..., tuple[Batch, int]] = accumulator.append
    waiter = ThreadWaiter(full.needed_bytes)
    give_up_at = time.monotonic() + max_block_ms / 1000
    try:
        is_last = False
        if not accumulator.stand_in_row(waiter):
            is_last = not waiter.sleep(give_up_at)
            check_usable()
        while True:
            try:
                return append(*record, waiter)
            except BufferFull as error:
                full = error
            if is_last:
                raise no_memory(accumulator, full, record[0].name, max_block_ms) from None
            is_last = not waiter.sleep(give_up_at)
            check_usable()
    finally:  # whoever stays in the row without waiting stands in the way of all others, for ever
        try:
            accumulator.leave_row(waiter)
        except BaseException:  # Ctrl-C before it was done
            accumulator.leave_row(waiter)
            raise


def no_memory(accumulator: Accumulator, full: BufferFull, topic: str, max_block_ms: int | None) -> KafkaTimeoutError:
    """The error of a record of ``topic`` for which there is no room; ``max_block_ms`` None: nobody waited."""
    memory = accumulator.memory
    waited = "" if max_block_ms is None else f" after max_block_ms={max_block_ms}"
    return KafkaTimeoutError(
        f"no memory for a record of topic {topic}{waited}: it needs {full.needed_bytes} bytes, and {memory.used_bytes} "
        f"of buffer_memory={memory.limit_bytes} are in use by {_holders(accumulator)}"
    )


def _holders(accumulator: Accumulator) -> str:
    with accumulator.lock:
        parcels = list(accumulator.incomplete)
        now = accumulator.now()
    held: dict[tuple[str, int], list[Parcel]] = {}
    for parcel in parcels:
        held.setdefault((parcel.topic, parcel.partition), []).append(parcel)
    if not held:
        return "nobody any more"
    most = sorted(held.values(), key=lambda parcels: -sum(parcel.reserved_bytes for parcel in parcels))
    named = "; ".join(_holder(parcels, now) for parcels in most[:NAMED_PARTITIONS])
    others = len(most) - NAMED_PARTITIONS
    return named + (f"; and {others} other partitions" if others > 0 else "")


def _holder(parcels: list[Parcel], now: float) -> str:
    first = parcels[0]
    held = sum(parcel.reserved_bytes for parcel in parcels)
    age = f"the oldest for {max(now - min(parcel.created_at for parcel in parcels), 0):.1f} s"
    if isinstance(first, Parked):
        return f"topic {first.topic}, whose partitions are not known yet ({held} bytes, {age})"
    assert isinstance(first, Batch)
    queue = first.queue
    where = f"{len(queue.in_flight)} of them unanswered by node {queue.node}" if queue.in_flight else "none in flight"
    last = next((parcel.last_error for parcel in parcels if isinstance(parcel, Batch) and parcel.last_error), None)
    return (
        f"{first.topic}-{first.partition} ({held} bytes in {len(parcels)} batches, {where}, {age}"
        + (f", last error: {last!r}" if last is not None else "")
        + ")"
    )
