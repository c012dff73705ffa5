"""kafka-python's DefaultPartitioner, to be called by hand in the shapes of both its generations."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from kafka.core.produce.accumulator import murmur2 as murmur2
from kafka.core.produce.accumulator import partition_for_key
from kafka.partitioner.abc import Partitioner


class DefaultPartitioner(Partitioner):
    """murmur2 of the key, as every Kafka client; any partition with a leader without a key."""

    def partition(
        self,
        topic: str,
        key: Any,
        serialized_key: bytes | None,
        value: Any,
        serialized_value: bytes | None,
        cluster: Any,
    ) -> int:
        """Raises ValueError for a topic that ``cluster`` does not know."""
        every = cluster.partitions_for_topic(topic)
        if not every:
            raise ValueError(f"topic {topic} is not known to the cluster's metadata")
        return self(serialized_key, sorted(every), sorted(cluster.available_partitions_for_topic(topic) or ()))

    def __call__(self, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]) -> int:
        """The shape of kafka-python 2."""
        if key is not None:
            return all_partitions[partition_for_key(key, len(all_partitions))]
        return random.choice(available or all_partitions)
