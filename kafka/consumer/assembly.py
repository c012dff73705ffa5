"""The machine of a consumer's fetches, made of its settings and what its client knows of the cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from kafka.client import KafkaClient
from kafka.core.consume.fetched import ReaderOptions
from kafka.core.consume.fetcher import Fetcher
from kafka.core.deserialize import deserializer_for
from kafka.structs import TopicPartition
from kafka.wire.types import ZERO_UUID


def make_fetcher(client: KafkaClient, settings: Mapping[str, Any], free_at: Callable[[int], float]) -> Fetcher:
    """``free_at``: until when a node wants no fetches (KIP-219)."""
    cluster = client.cluster

    def leader_of(partition: TopicPartition) -> int | None:
        leader = cluster.leader_for_partition(partition)
        return None if leader is None or leader < 0 else leader

    return Fetcher(
        leader_of=leader_of,
        topic_id_of=lambda topic: cluster.topic_id(topic) or ZERO_UUID,
        topic_of_id=cluster.topic_name_for_id,
        epoch_of=lambda partition: -1 if (epoch := cluster.leader_epoch_for_partition(partition)) is None else epoch,
        is_replica=lambda partition, node: (
            cluster.is_replica_node(partition, node) and cluster.broker_metadata(node) is not None
        ),
        reset_policy=settings["auto_offset_reset"],
        options=ReaderOptions(
            check_crcs=settings["check_crcs"],
            read_committed=settings["isolation_level"] == "read_committed",
            key=deserializer_for(settings["key_deserializer"]),
            value=deserializer_for(settings["value_deserializer"]),
            max_batch_bytes=settings["receive_message_max_bytes"],
        ),
        max_wait_ms=settings["fetch_max_wait_ms"],
        min_bytes=settings["fetch_min_bytes"],
        max_bytes=settings["fetch_max_bytes"],
        max_partition_bytes=settings["max_partition_fetch_bytes"],
        buffer_bytes=settings["fetch_buffer_bytes"],
        backoff=client.retry_backoff.delay_s,
        rack=settings["client_rack"],
        read_replica_age_s=settings["metadata_max_age_ms"] / 1000,
        has_sessions=settings["enable_incremental_fetch_sessions"],
        wall_ms=lambda: int(time.time() * 1000),
        free_at=free_at,
    )
