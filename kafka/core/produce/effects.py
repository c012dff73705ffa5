"""What the producer's machine asks its driver to do, as values.

A new kind of effect is a class here, a member of :data:`Effect`, and a branch in ``kafka/producer/driver.py``.
"""

from __future__ import annotations

from typing import NamedTuple

from kafka.core.produce.batch import Batch
from kafka.protocol.produce import ProduceRequest


class SendBatches(NamedTuple):
    """Send ``request`` to ``node``, in a version up to ``max_version`` (None: any)."""

    node: int
    request: ProduceRequest
    batches: list[Batch]
    max_version: int | None


class AskIdentity(NamedTuple):
    """Send InitProducerId for a new idempotent producer."""


class RefreshMetadata(NamedTuple):
    """What is known of these topics' leaders is out of date or missing."""

    topics: frozenset[str]


Effect = SendBatches | AskIdentity | RefreshMetadata
