"""The leaders in the response to a request that was sent to the wrong broker (KIP-951).

With NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH, brokers of 3.7 and later say who leads instead, and where that is:
``current_leader`` of the partition, ``node_endpoints`` of the answer (Produce 10, Fetch 16; Fetch 12 to 15 have the
leader without its address). Whether to believe it is the cluster metadata's to decide (``client/cluster.py``).

Another API with such hints: one more line in :data:`PARTITIONS_OF`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from kafka.errors import FencedLeaderEpochError, NotLeaderForPartitionError
from kafka.protocol.fetch import FetchResponse
from kafka.protocol.produce import ProduceResponse
from kafka.protocol.share import ShareAcknowledgeResponse, ShareFetchResponse
from kafka.structs import BrokerMetadata, TopicPartition
from kafka.wire.message import Response

CODES: Final = frozenset({NotLeaderForPartitionError.errno, FencedLeaderEpochError.errno})


class LeaderHint(NamedTuple):
    """Who leads a partition; -1 for what was not told."""

    leader: int
    epoch: int


class LeaderHints(NamedTuple):
    """All hints of one response."""

    leaders: dict[TopicPartition, LeaderHint]
    nodes: list[BrokerMetadata]


PARTITIONS_OF: Final[Mapping[type[Response], str]] = {
    ProduceResponse: "partition_responses",
    FetchResponse: "partitions",
    ShareFetchResponse: "partitions",
    ShareAcknowledgeResponse: "partitions",
}
"""Answers with hints, and what they call the partitions of a topic."""


def leader_hints(response: Any, name_of: Callable[[UUID], str | None]) -> LeaderHints | None:
    """The hints of an answer of one of :data:`PARTITIONS_OF`'s types; None when there are none, as there are mostly.

    ``name_of`` gives the name of the topic with an id.
    """
    attribute = PARTITIONS_OF[type(response)]
    leaders: dict[TopicPartition, LeaderHint] = {}
    for topic in response.responses:
        for entry in getattr(topic, attribute):
            if entry.error_code not in CODES:
                continue
            hint = entry.current_leader
            name = getattr(topic, "name", "") or getattr(topic, "topic", "") or name_of(topic.topic_id)
            if name is not None and hint.leader_id >= 0 and hint.leader_epoch >= 0:
                number = entry.index if attribute == "partition_responses" else entry.partition_index
                leaders[TopicPartition(name, number)] = LeaderHint(hint.leader_id, hint.leader_epoch)
    if not leaders:
        return None
    nodes = [BrokerMetadata(node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints]
    return LeaderHints(leaders, nodes)
