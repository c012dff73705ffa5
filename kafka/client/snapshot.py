"""One answer's worth of knowledge of the cluster, and the ways from one to the next.

    Snapshot.read(answer, former, ...)  what Metadata told; a leader of a newer epoch that was known before stays, and
                                        so do topics that the request did not ask for
    snapshot.with_leaders(...)          leaders and nodes told on the side, in another answer (KIP-951)
    snapshot.without_brokers()          the brokers are not believed any more; what topics there are is (KIP-1102)

A snapshot does not change once it is made: ``cluster.py``, its owner, puts the next one in its place, so that readers
in other threads see one or the other. A fact that Metadata tells and this does not keep is one more slot, and one more
line in :meth:`Snapshot.read` and in :meth:`Snapshot._copy`; a fact of a topic is a line of :meth:`Snapshot._keep`, too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from uuid import UUID

from kafka.core.leader_hints import LeaderHint
from kafka.errors import InvalidTopicMetadataError, KafkaError, for_code
from kafka.protocol.metadata import MetadataResponse
from kafka.structs import BrokerMetadata, PartitionMetadata, TopicPartition
from kafka.wire.types import ZERO_UUID

log = logging.getLogger(__name__)


class Snapshot:
    """``partitions``: topic -> number -> partition."""

    __slots__ = ("brokers", "cluster_id", "controller_id", "ids", "internal", "names", "partitions", "topic_errors")

    def __init__(self) -> None:
        self.brokers: dict[int, BrokerMetadata] = {}
        self.cluster_id: str | None = None
        self.controller_id: int | None = None
        self.partitions: dict[str, dict[int, PartitionMetadata]] = {}
        self.topic_errors: dict[str, KafkaError] = {}
        self.internal: set[str] = set()
        self.ids: dict[str, UUID] = {}
        self.names: dict[UUID, str] = {}

    @classmethod
    def read(
        cls, metadata: MetadataResponse, former: Snapshot, not_asked: AbstractSet[str] = frozenset()
    ) -> Snapshot:
        """What the answer says, and of the topics in ``not_asked`` what the former snapshot says. A topic with another
        id than before is another topic: nothing of the former counts. A topic whose partitions cannot be has an
        InvalidTopicMetadataError and no partitions; the answer's other topics count."""
        new = cls()
        new.cluster_id = metadata.cluster_id
        new.controller_id = metadata.controller_id if metadata.controller_id >= 0 else None
        for broker in metadata.brokers:
            new.brokers[broker.node_id] = BrokerMetadata(broker.node_id, broker.host, broker.port, broker.rack)
        for topic in metadata.topics:
            name = topic.name
            if name is None:
                continue
            fault = fault_of_partitions(topic)
            if fault is not None:
                new.topic_errors[name] = fault
                if former.topic_errors.get(name) != fault:
                    log.warning("%s; the topic is not used until an answer has partitions that can be", fault)
                continue
            if topic.error_code:
                new.topic_errors[name] = for_code(topic.error_code)(name)
                log.debug("metadata of topic %s: error %d", name, topic.error_code)
                if not topic.partitions:
                    continue
            if topic.is_internal:
                new.internal.add(name)
            same_topic = True
            if topic.topic_id != ZERO_UUID:
                new.ids[name] = topic.topic_id
                new.names[topic.topic_id] = name
                former_id = former.ids.get(name, topic.topic_id)
                same_topic = former_id == topic.topic_id
                if not same_topic:
                    log.info("topic %s was made anew: its id was %s and is %s", name, former_id, topic.topic_id)
            known = former.partitions.get(name, {}) if same_topic else {}
            new.partitions[name] = {
                entry.partition_index: _newer(known.get(entry.partition_index), _partition(name, entry))
                for entry in topic.partitions
            }
        for name in not_asked & former.partitions.keys() - new.partitions.keys():
            new._keep(name, former)
        return new

    def _keep(self, name: str, former: Snapshot) -> None:
        """Take over what the former snapshot says of a topic."""
        self.partitions[name] = former.partitions[name]
        if name in former.internal:
            self.internal.add(name)
        if name in former.ids:
            self.ids[name] = former.ids[name]
            self.names[former.ids[name]] = name

    def says_the_same_as(self, other: Snapshot) -> bool:
        """Brokers, leaders and errors are those of the other."""
        return (
            self.partitions == other.partitions
            and self.topic_errors == other.topic_errors
            and self.brokers == other.brokers
            and self.controller_id == other.controller_id
        )

    def with_leaders(
        self, leaders: Mapping[TopicPartition, LeaderHint], nodes: Iterable[BrokerMetadata]
    ) -> tuple[Snapshot, set[TopicPartition]]:
        """The snapshot with what is news in the hints, and the partitions that it is about; itself when nothing is.

        As in Java, a hint counts when it is whole (leader and epoch), the partition is known, the epoch is newer than
        the known one, and the leader's address is in ``nodes`` or known. If none counts, ``nodes`` do not either.
        """
        told = {node.nodeId: node for node in nodes}
        news: dict[TopicPartition, PartitionMetadata] = {}
        for partition, hint in leaders.items():
            known = self.partitions.get(partition.topic, {}).get(partition.partition)
            if known is None or hint.leader < 0 or hint.epoch < 0 or hint.epoch <= known.leader_epoch:
                continue
            if hint.leader not in told and hint.leader not in self.brokers:
                continue
            news[partition] = known._replace(leader=hint.leader, leader_epoch=hint.epoch)
        if not news:
            return self, set()
        new = self._copy()
        for node_id, node in told.items():
            assert isinstance(node_id, int)
            new.brokers[node_id] = node
        for topic in {partition.topic for partition in news}:
            new.partitions[topic] = dict(new.partitions[topic])
        for partition, changed in news.items():
            new.partitions[partition.topic][partition.partition] = changed
        return new, set(news)

    def without_brokers(self) -> Snapshot:
        """The topics and the numbers of their partitions, and nobody who leads them; epochs and ids begin anew, since
        the cluster may be another one."""
        new = self._copy()
        new.brokers = {}
        new.controller_id = None
        new.ids, new.names = {}, {}
        new.partitions = {
            topic: {number: partition._replace(leader=-1, leader_epoch=-1) for number, partition in partitions.items()}
            for topic, partitions in self.partitions.items()
        }
        return new

    def _copy(self) -> Snapshot:
        new = Snapshot()
        new.brokers = dict(self.brokers)
        new.cluster_id = self.cluster_id
        new.controller_id = self.controller_id
        new.partitions = dict(self.partitions)
        new.topic_errors = self.topic_errors
        new.internal = self.internal
        new.ids, new.names = self.ids, self.names
        return new


def fault_of_partitions(topic: MetadataResponse.MetadataResponseTopic) -> InvalidTopicMetadataError | None:
    """What is wrong with the numbers of a topic's partitions; None when they are 0 to n-1, in any order. What is made
    for each partition is made by these numbers."""
    count = len(topic.partitions)
    numbers = {entry.partition_index for entry in topic.partitions}
    if len(numbers) == count and (not count or min(numbers) == 0 and max(numbers) == count - 1):
        return None
    wrong = next((n for n in numbers if not 0 <= n < count), None)
    what = "a partition twice" if wrong is None else f"partition {wrong}"
    return InvalidTopicMetadataError(
        f"the answer to Metadata has {count} partitions of topic {topic.name}, among them {what}: they have to be 0 to "
        f"{count - 1}"
    )


def _partition(topic: str, entry: MetadataResponse.MetadataResponsePartition) -> PartitionMetadata:
    return PartitionMetadata(
        topic,
        entry.partition_index,
        entry.leader_id,
        entry.leader_epoch,
        tuple(entry.replica_nodes),
        tuple(entry.isr_nodes),
        tuple(entry.offline_replicas),
        entry.error_code,
    )


def _newer(known: PartitionMetadata | None, told: PartitionMetadata) -> PartitionMetadata:
    """A broker that lags behind may tell of a former leader: its epoch is lower, and what we know stays (KIP-320)."""
    if known is not None and 0 <= told.leader_epoch < known.leader_epoch:
        return known
    return told
