"""Lists of groups', share groups' and transactions' answers without an order: Apache Kafka keeps them in hash maps, or
answers as parts come back. As paths without their indexes; more of them are in ``broker_pair.py``."""

from __future__ import annotations

from typing import Final

OF_COORDINATORS: Final = frozenset(
    {
        "AddPartitionsToTxn.results_by_topic_v3_and_below",
        "AddPartitionsToTxn.results_by_topic_v3_and_below.results_by_partition",
        "AddPartitionsToTxn.results_by_transaction",
        "AddPartitionsToTxn.results_by_transaction.topic_results",
        "AddPartitionsToTxn.results_by_transaction.topic_results.results_by_partition",
        "ConsumerGroupDescribe.groups",
        "ConsumerGroupDescribe.groups.members",
        "ConsumerGroupDescribe.groups.members.assignment.topic_partitions",
        "ConsumerGroupDescribe.groups.members.subscribed_topic_names",
        "ConsumerGroupDescribe.groups.members.target_assignment.topic_partitions",
        "ConsumerGroupHeartbeat.assignment.topic_partitions",
        "DeleteGroups.results",
        "DescribeGroups.groups",
        "DescribeGroups.groups.members",
        "DescribeShareGroupOffsets.groups",
        "DescribeShareGroupOffsets.groups.topics",
        "DescribeShareGroupOffsets.groups.topics.partitions",
        "DescribeTransactions.transaction_states.topics",
        "DescribeTransactions.transaction_states.topics.partitions",
        "ListGroups.groups",
        "ListTransactions.transaction_states",
        "ListTransactions.unknown_state_filters",
        "JoinGroup.members",
        "OffsetFetch.groups",
        "OffsetFetch.groups.topics",
        "OffsetFetch.groups.topics.partitions",
        "OffsetFetch.topics",
        "OffsetFetch.topics.partitions",
        "ShareAcknowledge.responses",
        "ShareAcknowledge.responses.partitions",
        "ShareFetch.responses",
        "ShareFetch.responses.partitions",
        "ShareGroupDescribe.groups",
        "ShareGroupDescribe.groups.members",
        "ShareGroupDescribe.groups.members.assignment.topic_partitions",
        "ShareGroupDescribe.groups.members.subscribed_topic_names",
        "ShareGroupHeartbeat.assignment.topic_partitions",
        "WriteTxnMarkers.markers",
        "WriteTxnMarkers.markers.topics",
        "WriteTxnMarkers.markers.topics.partitions",
    }
)
