"""What partitions remember of their producers (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterable

from kafka.core.admin.answers import since
from kafka.core.admin.leaders import all_or_raise, at_leaders
from kafka.core.admin.transaction_values import PartitionProducerState, ProducerState
from kafka.core.dialogue import Dialogue
from kafka.core.partitions import by_topic
from kafka.core.retry import Backoff
from kafka.errors import BrokerResponseError, for_code
from kafka.protocol.transactions import DescribeProducersRequest, DescribeProducersResponse
from kafka.structs import TopicPartition

_Producers = dict[TopicPartition, "PartitionProducerState | BrokerResponseError"]


def describe_producers(
    partitions: Iterable[TopicPartition],
    broker_id: int | None = None,
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
) -> Dialogue[dict[TopicPartition, PartitionProducerState]]:
    """What partitions remember of their producers: ``{partition: PartitionProducerState}``. Their leaders are asked;
    ``broker_id``: this replica of all of them instead (NotLeaderForPartitionError when it is none). Raises the first
    error. IncompatibleBrokerVersion before 2.8."""
    asking = at_leaders(
        partitions,
        producers_request,
        read_producers,
        what="describing producers",
        backoff=backoff,
        timeout_s=timeout_s,
        node_id=broker_id,
    )
    return all_or_raise((yield from since("2.8", asking)))


def producers_request(partitions: Iterable[TopicPartition]) -> DescribeProducersRequest:
    """Asks for the producers of these."""
    return DescribeProducersRequest(
        topics=[
            DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=numbers)
            for topic, numbers in by_topic(partitions).items()
        ]
    )


def read_producers(answer: DescribeProducersResponse) -> _Producers:
    """What each partition has told, or its error."""
    found: _Producers = {}
    for topic in answer.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if each.error_code:
                found[partition] = for_code(each.error_code)(each.error_message or "")
            else:
                found[partition] = PartitionProducerState([_producer(row) for row in each.active_producers])
    return found


def _producer(row: DescribeProducersResponse.ProducerState) -> ProducerState:
    return ProducerState(
        row.producer_id,
        row.producer_epoch,
        row.last_sequence,
        row.last_timestamp,
        row.coordinator_epoch,
        row.current_txn_start_offset,
    )
