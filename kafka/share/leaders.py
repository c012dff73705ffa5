"""Who leads the partitions of a subscription, as far as the cluster's metadata tells, and the search for what it lacks.

A group's assignment names topics by id, and brokers do not repeat it: what the metadata does not know yet (a topic that
is new, or not there), and a partition that has no leader now, is looked for until it does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from kafka.client import KafkaClient
from kafka.core.share.records import SharePartition
from kafka.errors import IllegalStateError, UnknownTopicOrPartitionError
from kafka.net.loop import LoopTimer
from kafka.structs import TopicPartition

log = logging.getLogger(__name__)

LOOK_S: Final = 1.0
"""Between looks at the metadata while something is missing in it: a topic of the subscription, a partition that is
assigned, a leader."""


class Leaders:
    """On the loop's thread. ``on_change``: somebody may lead something else now."""

    def __init__(self, client: KafkaClient, on_change: Callable[[], object]) -> None:
        self.topics: list[str] = []
        self.assignment: Sequence[SharePartition] = ()
        self._client = client
        self._on_change = on_change
        self._timer: LoopTimer | None = None
        self._is_closed = False
        self._told: set[str] = set()  # topics that the log has as missing
        client.cluster.add_listener(self._changed)

    def look(self) -> None:
        """Read the metadata again and again until everything that is subscribed to, and assigned, is in it."""
        self.stop_looking()
        if self._is_anything_missing():
            self.refresh()
            self._look_later()

    def refresh(self) -> None:
        """Somebody leads something else, or does not let us in: read the metadata soon."""
        try:
            self._client.refresh_metadata(self.topics).add_errback(self._failed)
        except IllegalStateError as error:  # the client is closed, as the next request will say
            self._failed(error)

    def stop_looking(self) -> None:
        """What is missing is wanted no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Tell nobody any more."""
        self._is_closed = True
        self.stop_looking()
        self._client.cluster.remove_listener(self._changed)

    def by_node(self) -> tuple[dict[int, list[SharePartition]], dict[UUID, str]]:
        """The partitions that each node leads, the assigned ones first, and the names of their topics."""
        cluster = self._client.cluster
        assigned = set(self.assignment)
        topics: dict[UUID, str] = {}
        found: dict[int, list[SharePartition]] = {}
        for topic in self.topics:
            topic_id = cluster.topic_id(topic)
            if topic_id is None:
                continue
            topics[topic_id] = topic
            for number in sorted(cluster.partitions_for_topic(topic) or ()):
                leader = cluster.leader_for_partition(TopicPartition(topic, number))
                if leader is not None and leader >= 0:
                    found.setdefault(leader, []).append(SharePartition(topic_id, number))
        for partitions in found.values():
            partitions.sort(key=lambda each: each not in assigned)
        return found, topics

    def has_moved(self, partition: SharePartition, node_id: int) -> bool:
        """The cluster says that the node leads this partition no more. What it does not know it does not say."""
        cluster = self._client.cluster
        topic = cluster.topic_name_for_id(partition.topic_id)
        if topic is None:
            return False
        leader = cluster.leader_for_partition(TopicPartition(topic, partition.partition))
        return leader is not None and leader >= 0 and leader != node_id

    def _is_anything_missing(self) -> bool:
        """A topic, a partition that is assigned, or the leader of one: its broker may be on its way back."""
        cluster = self._client.cluster
        for topic in self.topics:
            numbers = cluster.partitions_for_topic(topic)
            if not numbers or numbers != cluster.available_partitions_for_topic(topic):
                return True
        for topic_id, number in self.assignment if self.topics else ():
            name = cluster.topic_name_for_id(topic_id)
            if name is None or number not in (cluster.partitions_for_topic(name) or ()):
                return True
        return False

    def _tell_of_missing_topics(self) -> None:
        missing = {topic for topic in self.topics if self._is_missing(topic)}
        for topic in sorted(missing - self._told):
            log.warning("topic %s is not there (yet); it is read as soon as it is", topic)
        self._told = missing

    def _is_missing(self, topic: str) -> bool:
        cluster = self._client.cluster
        if cluster.need_all_topics and not cluster.topic_error(topic):
            return cluster.partitions_for_topic(topic) is None
        return isinstance(cluster.topic_error(topic), UnknownTopicOrPartitionError)

    def _look_later(self) -> None:
        self._timer = self._client.loop.call_later(LOOK_S, self.look)

    def _failed(self, error: BaseException) -> None:
        log.debug("no metadata of %s: %s", self.topics, error)

    def _changed(self, *_: object) -> None:
        self._tell_of_missing_topics()
        self._on_change()
        if self._timer is None and not self._is_closed and self._is_anything_missing():
            self._look_later()
