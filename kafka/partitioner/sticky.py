"""kafka-python's name for the partitioner of KIP-480."""

from __future__ import annotations

from kafka.partitioner.default import DefaultPartitioner


class StickyPartitioner(DefaultPartitioner):
    """As the setting ``partitioner``: another partition for each batch of records without a key. A producer does that
    by itself; called by hand this one chooses as its base does, since it sees no batches."""
