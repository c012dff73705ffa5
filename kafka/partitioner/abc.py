"""The shape of a user's partitioner, as kafka-python 3 has it."""

from __future__ import annotations

import abc
from typing import Any


class Partitioner(abc.ABC):
    """Derive from this, and hand an instance in as the setting ``partitioner``."""

    @abc.abstractmethod
    def partition(
        self,
        topic: str,
        key: Any,
        serialized_key: bytes | None,
        value: Any,
        serialized_value: bytes | None,
        cluster: Any,
    ) -> int:
        """The partition of a record that was sent without one. ``key`` and ``value`` as they were given to ``send``;
        ``cluster`` has ``partitions_for_topic(topic)`` and ``available_partitions_for_topic(topic)``. Called in the
        thread that sends, which gets its errors."""
