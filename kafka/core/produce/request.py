"""Batches of one node, as the Produce request that carries them. (As what they go over the wire: ``formats.py``.)"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from kafka.core.produce.batch import Batch
from kafka.protocol.produce import ProduceRequest
from kafka.wire.types import ZERO_UUID

FIRST_VERSION_WITH_IDS: Final = 13


def produce_request(
    batches: Sequence[Batch], acks: int, timeout_ms: int, topic_id_of: Callable[[str], UUID]
) -> tuple[ProduceRequest, int | None]:
    """The request, and the last version that it may be sent in (None: any): topics without an id have to be named."""
    topics: dict[str, ProduceRequest.TopicProduceData] = {}
    max_version: int | None = None
    for batch in batches:
        data = topics.get(batch.topic)
        if data is None:
            topic_id = topic_id_of(batch.topic)
            if topic_id == ZERO_UUID:
                max_version = FIRST_VERSION_WITH_IDS - 1
            data = topics[batch.topic] = ProduceRequest.TopicProduceData(
                name=batch.topic, topic_id=topic_id, partition_data=[]
            )
        pieces = batch.pieces()
        data.partition_data.append(
            ProduceRequest.PartitionProduceData(
                index=batch.partition, records=pieces[0] if len(pieces) == 1 else pieces
            )
        )
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=list(topics.values())), max_version
