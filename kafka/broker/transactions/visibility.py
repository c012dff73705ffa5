"""Which batches of what was read are of aborted transactions: a consumer finds that out by itself, a share group is
told only of records that hold.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka.broker.transactions.transaction import Producer
from kafka.records import iter_batches


def aborted_batches(data: bytes | memoryview, aborted: Sequence[Producer]) -> list[tuple[int, int]]:
    """First and last offset of each aborted batch in ``data``, markers not among them. ``aborted``: what
    :meth:`PartitionLog.aborted_transactions` gave for its offsets: producer and first offset."""
    waiting = sorted(((first, producer_id) for producer_id, first in aborted), reverse=True)
    dropping: set[int] = set()
    found: list[tuple[int, int]] = []
    for header in iter_batches(data, check_crcs=False):
        while waiting and waiting[-1][0] <= header.last_offset:
            dropping.add(waiting.pop()[1])
        if header.producer_id not in dropping or not header.is_transactional:
            continue
        if header.is_control:
            dropping.discard(header.producer_id)  # of the two markers only an abort can end what was aborted
        else:
            found.append((header.base_offset, header.last_offset))
    return found
