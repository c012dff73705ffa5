"""kafka-python's names for partitioners, for those who import them.

What a producer does is in ``kafka/core/produce/accumulator.py``. Given as the setting ``partitioner``, these classes
(or instances of just them) stand for what is built in: DefaultPartitioner for the default, StickyPartitioner for
``"sticky"``. A class derived from one is a user's own, and is asked for every record.
"""

from __future__ import annotations

from kafka.core.produce.accumulator import murmur2
from kafka.partitioner.abc import Partitioner
from kafka.partitioner.default import DefaultPartitioner
from kafka.partitioner.sticky import StickyPartitioner

__all__ = ["DefaultPartitioner", "Partitioner", "StickyPartitioner", "murmur2"]
