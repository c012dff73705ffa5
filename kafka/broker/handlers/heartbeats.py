"""Answers to heartbeats of the newer protocols: ConsumerGroupHeartbeat and ShareGroupHeartbeat tell the same things."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar
from uuid import UUID

from kafka.broker.codes import error_code, error_text
from kafka.broker.topics import by_topic
from kafka.errors import KafkaError
from kafka.protocol.consumer_group import ConsumerGroupHeartbeatResponse
from kafka.protocol.share import ShareGroupHeartbeatResponse

_Response = TypeVar("_Response", ConsumerGroupHeartbeatResponse, ShareGroupHeartbeatResponse)


def refused(kind: type[_Response], error: KafkaError) -> _Response:
    """The answer that says no."""
    return kind(
        throttle_time_ms=0,
        error_code=error_code(error),
        error_message=error_text(error),
        member_epoch=0,
        heartbeat_interval_ms=0,
    )


def answered(
    kind: type[_Response],
    member_id: str,
    epoch: int,
    interval_ms: int,
    assigned: Collection[tuple[UUID, int]] | None,
) -> _Response:
    """The answer to a member. ``assigned``: its partitions, or None when it is not told them again."""
    assignment = None
    if assigned is not None:
        assignment = kind.Assignment(
            topic_partitions=[
                kind.TopicPartitions(topic_id=topic_id, partitions=numbers)
                for topic_id, numbers in by_topic(assigned).items()
            ]
        )
    return kind(
        throttle_time_ms=0,
        error_code=0,
        member_id=member_id,
        member_epoch=epoch,
        heartbeat_interval_ms=interval_ms,
        assignment=assignment,
    )
