"""The heartbeats of a member of the new protocol: what the broker has not been told yet, and nothing else (KIP-848).

The first heartbeat of a membership says everything; so does the next one after any failure, since nobody knows what of
the last one arrived. In between, a heartbeat says what has changed. When heartbeats go is ``consumer.py``'s part.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kafka.core.group.holdings import IdPartition
from kafka.core.group.machine import Subscription
from kafka.core.partitions import by_topic
from kafka.protocol.consumer_group import ConsumerGroupHeartbeatRequest

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2


class Heartbeats:
    """Of one member. ``rebalance_timeout_ms``: the time that the broker allows for a revocation."""

    def __init__(
        self,
        group_id: str,
        group_instance_id: str | None,
        rack: str,
        server_assignor: str | None,
        rebalance_timeout_ms: int,
    ) -> None:
        self._group_id = group_id
        self._instance_id = group_instance_id
        self._rack = rack or None  # never "": the broker refuses it
        self._server_assignor = server_assignor
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._all = self._topics = self._owned = self._had_pattern = False  # the first one says all by its epoch

    @property
    def has_news(self) -> bool:
        """There is something that the broker was not told."""
        return self._all or self._topics or self._owned

    def say_all(self) -> None:
        """Nobody knows what the broker knows."""
        self._all = True

    def say_topics(self) -> None:
        """The subscription is another one."""
        self._topics = True

    def say_owned(self) -> None:
        """What is owned has changed: this is what acknowledges an assignment."""
        self._owned = True

    def heartbeat(
        self, member_id: str, epoch: int, wanted: Subscription, claimed: Iterable[IdPartition]
    ) -> ConsumerGroupHeartbeatRequest:
        """The next one."""
        is_full = self._all or epoch == JOIN_EPOCH
        says_topics = is_full or self._topics
        says_owned = is_full or self._owned
        self._all = self._topics = self._owned = False
        self._had_pattern = self._had_pattern or wanted.pattern is not None
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=self._instance_id,
            rack_id=self._rack if is_full else None,
            rebalance_timeout_ms=self._rebalance_timeout_ms if is_full else -1,
            subscribed_topic_names=sorted(wanted.topics) if says_topics else None,
            # "" takes back a former one; who never had one leaves the field out, which older versions lack
            subscribed_topic_regex=(wanted.pattern or "") if says_topics and self._had_pattern else None,
            server_assignor=self._server_assignor if is_full else None,
            topic_partitions=_topics(claimed) if says_owned else None,
        )

    def leave(self, member_id: str) -> ConsumerGroupHeartbeatRequest:
        """The last one. A static member's place is kept for a session."""
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=member_id,
            member_epoch=LEAVE_EPOCH if self._instance_id is None else STATIC_LEAVE_EPOCH,
            instance_id=self._instance_id,
        )


def _topics(partitions: Iterable[IdPartition]) -> list[ConsumerGroupHeartbeatRequest.TopicPartitions]:
    return [
        ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=numbers)
        for topic_id, numbers in by_topic(sorted(partitions)).items()
    ]
