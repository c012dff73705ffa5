"""Idempotent producers and transactions (KIP-98, KIP-360, KIP-447, KIP-890)."""

from __future__ import annotations

from kafka.wire.message import Request, Response, Struct, field
from kafka.wire.types import Boolean, Int8, Int16, Int32, Int64, String


class InitProducerIdRequest(Request["InitProducerIdResponse"], api_key=22, versions=(0, 6), flexible=2):
    """Get a producer id and epoch; with a transactional id, fence its last owner."""

    transactional_id: String | None = field(null_since=0)
    transaction_timeout_ms: Int32
    producer_id: Int64 = field(default=-1, since=3)
    producer_epoch: Int16 = field(default=-1, since=3)
    enable2_pc: Boolean = field(default=False, since=6)
    keep_prepared_txn: Boolean = field(default=False, since=6)


class InitProducerIdResponse(Response, api_key=22, versions=(0, 6), flexible=2):
    """The id and epoch."""

    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    error_code: Int16 = field(default=0)
    producer_id: Int64 = field(default=-1)
    producer_epoch: Int16
    ongoing_txn_producer_id: Int64 = field(default=-1, since=6)
    ongoing_txn_producer_epoch: Int16 = field(default=-1, since=6)


class AddPartitionsToTxnRequest(Request["AddPartitionsToTxnResponse"], api_key=24, versions=(0, 5), flexible=3):
    """Make partitions part of a transaction. Versions 4 and up are for brokers."""

    class AddPartitionsToTxnTopic(Struct):
        name: String
        partitions: list[Int32]

    class AddPartitionsToTxnTransaction(Struct):
        transactional_id: String = field(default="", since=4)
        producer_id: Int64 = field(default=0, since=4)
        producer_epoch: Int16 = field(default=0, since=4)
        verify_only: Boolean = field(default=False, since=4)
        topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = field(default_factory=list, since=4)

    transactions: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction] = field(default_factory=list, since=4)
    v3_and_below_transactional_id: String = field(default="", until=3)
    v3_and_below_producer_id: Int64 = field(default=0, until=3)
    v3_and_below_producer_epoch: Int16 = field(default=0, until=3)
    v3_and_below_topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = field(default_factory=list, until=3)


class AddPartitionsToTxnResponse(Response, api_key=24, versions=(0, 5), flexible=3):
    """The error of each partition."""

    class AddPartitionsToTxnPartitionResult(Struct):
        partition_index: Int32
        partition_error_code: Int16

    class AddPartitionsToTxnTopicResult(Struct):
        name: String
        results_by_partition: list[AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult]

    class AddPartitionsToTxnResult(Struct):
        transactional_id: String = field(default="", since=4)
        topic_results: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = field(
            default_factory=list, since=4
        )

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0, since=4, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResponse.AddPartitionsToTxnResult] = field(
        default_factory=list, since=4
    )
    results_by_topic_v3_and_below: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = field(
        default_factory=list, until=3
    )


class AddOffsetsToTxnRequest(Request["AddOffsetsToTxnResponse"], api_key=25, versions=(0, 4), flexible=3):
    """Make a group's offsets part of a transaction."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    group_id: String


class AddOffsetsToTxnResponse(Response, api_key=25, versions=(0, 4), flexible=3):
    """The error."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)


class EndTxnRequest(Request["EndTxnResponse"], api_key=26, versions=(0, 5), flexible=3):
    """Commit or abort. Version 5 gives a new epoch for each transaction (KIP-890)."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    committed: Boolean


class EndTxnResponse(Response, api_key=26, versions=(0, 5), flexible=3):
    """The error, and the epoch to go on with."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    producer_id: Int64 = field(default=-1, since=5, ignorable=True)
    producer_epoch: Int16 = field(default=-1, since=5, ignorable=True)


class WriteTxnMarkersRequest(Request["WriteTxnMarkersResponse"], api_key=27, versions=(0, 2), flexible=1):
    """Write the markers that end transactions: for coordinators, and for operators who abort by hand."""

    class WritableTxnMarkerTopic(Struct):
        name: String
        partition_indexes: list[Int32]

    class WritableTxnMarker(Struct):
        producer_id: Int64
        producer_epoch: Int16
        transaction_result: Boolean
        topics: list[WriteTxnMarkersRequest.WritableTxnMarkerTopic]
        coordinator_epoch: Int32
        transaction_version: Int8 = field(default=0, since=2, ignorable=True)

    markers: list[WriteTxnMarkersRequest.WritableTxnMarker]


class WriteTxnMarkersResponse(Response, api_key=27, versions=(0, 2), flexible=1):
    """The error of each partition of each marker."""

    class WritableTxnMarkerPartitionResult(Struct):
        partition_index: Int32
        error_code: Int16 = field(default=0)

    class WritableTxnMarkerTopicResult(Struct):
        name: String
        partitions: list[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult]

    class WritableTxnMarkerResult(Struct):
        producer_id: Int64
        topics: list[WriteTxnMarkersResponse.WritableTxnMarkerTopicResult]

    markers: list[WriteTxnMarkersResponse.WritableTxnMarkerResult]


class TxnOffsetCommitRequest(Request["TxnOffsetCommitResponse"], api_key=28, versions=(0, 5), flexible=3):
    """Commit a group's offsets within a transaction."""

    class TxnOffsetCommitRequestPartition(Struct):
        partition_index: Int32
        committed_offset: Int64
        committed_leader_epoch: Int32 = field(default=-1, since=2, ignorable=True)
        committed_metadata: String | None = field(null_since=0)

    class TxnOffsetCommitRequestTopic(Struct):
        name: String
        partitions: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition]

    transactional_id: String
    group_id: String
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Int32 = field(default=-1, since=3)
    member_id: String = field(default="", since=3)
    group_instance_id: String | None = field(default=None, since=3, null_since=3)
    topics: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic]


class TxnOffsetCommitResponse(Response, api_key=28, versions=(0, 5), flexible=3):
    """The error of each partition."""

    class TxnOffsetCommitResponsePartition(Struct):
        partition_index: Int32
        error_code: Int16 = field(default=0)

    class TxnOffsetCommitResponseTopic(Struct):
        name: String
        partitions: list[TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition]

    throttle_time_ms: Int32 = field(default=0)
    topics: list[TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic]


class DescribeProducersRequest(Request["DescribeProducersResponse"], api_key=61, versions=(0, 0), flexible=0):
    """The producers that a partition remembers (KIP-664)."""

    class TopicRequest(Struct):
        name: String
        partition_indexes: list[Int32]

    topics: list[DescribeProducersRequest.TopicRequest]


class DescribeProducersResponse(Response, api_key=61, versions=(0, 0), flexible=0):
    """Their ids, epochs, last sequences and open transactions."""

    class ProducerState(Struct):
        producer_id: Int64
        producer_epoch: Int32
        last_sequence: Int32 = field(default=-1)
        last_timestamp: Int64 = field(default=-1)
        coordinator_epoch: Int32
        current_txn_start_offset: Int64 = field(default=-1)

    class PartitionResponse(Struct):
        partition_index: Int32
        error_code: Int16 = field(default=0)
        error_message: String | None = field(default=None, null_since=0)
        active_producers: list[DescribeProducersResponse.ProducerState]

    class TopicResponse(Struct):
        name: String
        partitions: list[DescribeProducersResponse.PartitionResponse]

    throttle_time_ms: Int32 = field(default=0)
    topics: list[DescribeProducersResponse.TopicResponse]


class DescribeTransactionsRequest(Request["DescribeTransactionsResponse"], api_key=65, versions=(0, 0), flexible=0):
    """The state of transactions (KIP-664)."""

    transactional_ids: list[String]


class DescribeTransactionsResponse(Response, api_key=65, versions=(0, 0), flexible=0):
    """State, owner and partitions of each."""

    class TopicData(Struct):
        topic: String
        partitions: list[Int32]

    class TransactionState(Struct):
        error_code: Int16 = field(default=0)
        transactional_id: String
        transaction_state: String
        transaction_timeout_ms: Int32
        transaction_start_time_ms: Int64
        producer_id: Int64
        producer_epoch: Int16
        topics: list[DescribeTransactionsResponse.TopicData]

    throttle_time_ms: Int32 = field(default=0)
    transaction_states: list[DescribeTransactionsResponse.TransactionState]


class ListTransactionsRequest(Request["ListTransactionsResponse"], api_key=66, versions=(0, 2), flexible=0):
    """List transactions by state, producer and age (KIP-664, KIP-994)."""

    state_filters: list[String]
    producer_id_filters: list[Int64]
    duration_filter: Int64 = field(default=-1, since=1)
    transactional_id_pattern: String | None = field(default=None, since=2, null_since=2)


class ListTransactionsResponse(Response, api_key=66, versions=(0, 2), flexible=0):
    """The transactions that this broker coordinates."""

    class TransactionState(Struct):
        transactional_id: String
        producer_id: Int64
        transaction_state: String

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    unknown_state_filters: list[String]
    transaction_states: list[ListTransactionsResponse.TransactionState]
