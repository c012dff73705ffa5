"""Batches for the tests of the broker's logs."""

from __future__ import annotations

from kafka.records import RecordBatchBuilder


def batch(
    values: list[bytes],
    *,
    timestamp: int = 1000,
    step_ms: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """One produced batch; the timestamps ascend by ``step_ms``."""
    builder = RecordBatchBuilder(1 << 30)
    for at, value in enumerate(values):
        builder.append(timestamp + at * step_ms, None, value)
    return builder.build(producer_id, producer_epoch, base_sequence)
