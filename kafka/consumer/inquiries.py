"""What a consumer can be told of the cluster's topics."""

from __future__ import annotations

from math import inf

from kafka.client.snapshot import fault_of_partitions
from kafka.consumer import checks
from kafka.consumer.base import ConsumerBase
from kafka.consumer.topics import metadata_of
from kafka.core.routing import AnyNode
from kafka.future import Future
from kafka.protocol.metadata import MetadataResponse


class Inquiries(ConsumerBase):
    """The part of KafkaConsumer about topics."""

    def topics(self) -> set[str]:
        """The names of all topics that this client may see, internal ones left out. Asks the cluster."""
        self._check_usable()
        answer = self._wait_for(self._ask_for_topics, None)
        return {topic.name for topic in answer.topics if topic.name and not topic.error_code and not topic.is_internal}

    def partitions_for_topic(self, topic: str) -> set[int]:
        """The numbers of the topic's partitions; the empty set when there is no such topic: asking does not create it.
        Asks the cluster if need be."""
        self._check_usable()
        topic = checks.topic_name(topic)
        found = self._host.client.cluster.partitions_for_topic(topic)
        if found is not None:
            return found
        answer = self._wait_for(self._ask_for_topics, topic)
        for entry in answer.topics:
            if entry.name == topic and entry.partitions:
                fault = fault_of_partitions(entry)
                if fault is not None:
                    raise fault
                return {partition.partition_index for partition in entry.partitions}
        return set()

    def _ask_for_topics(self, name: str | None) -> Future[MetadataResponse]:
        """The metadata of one topic, or of all; creates none: where a version cannot say that, all are asked for."""
        return self._host.client.request(AnyNode(), metadata_of(name))

    def bootstrap(self, timeout_ms: float | None = None, refresh: bool = False) -> None:
        """Wait until the cluster's metadata has been read; with ``refresh``, until it has been read anew.
        KafkaTimeoutError after ``timeout_ms`` (None: never), or the error that trying again does not mend."""
        self._check_usable()
        checks.timeout_s(timeout_ms, 0.0)
        limit_ms = inf if timeout_ms is None else timeout_ms
        self._wait_for(lambda: self._host.client.bootstrapped(limit_ms, anew=refresh))

    def bootstrap_connected(self) -> bool:
        """Whether the cluster's metadata has been read."""
        return bool(self._host.client.cluster.brokers())
