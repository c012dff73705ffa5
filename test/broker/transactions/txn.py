"""Transactional producers by hand: each request once, its answer as plain numbers. And what readers may see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from kafka.protocol.offsets import OffsetFetchRequest
from kafka.protocol.produce import ProduceRequest, ProduceResponse
from kafka.protocol.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from kafka.records import decode_records
from kafka.wire.message import Request, Response
from test.broker.driver import batch, fetch_request, fetched, plain, shown_batches

OLD, NEW = 11, 12
"""The version of Produce with which partitions have to be added before, and the one that adds them."""

READ_UNCOMMITTED, READ_COMMITTED = 0, 1


R = TypeVar("R", bound=Response)


class Asks(Protocol):
    """A broker by hand, or a connection to one."""

    @property
    def epoch_ms(self) -> int: ...

    def ask(self, request: Request[R], version: int | None = None) -> R: ...


class Answer(NamedTuple):
    """Code, producer id and epoch."""

    code: int
    producer_id: int = -1
    epoch: int = -1


def init(
    hand: Asks,
    name: str | None,
    expected: tuple[int, int] = (-1, -1),
    *,
    timeout_ms: int = 60_000,
    version: int = 5,
) -> Answer:
    answer = hand.ask(
        InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=timeout_ms,
            producer_id=expected[0],
            producer_epoch=expected[1],
        ),
        version,
    )
    return Answer(answer.error_code, answer.producer_id, answer.producer_epoch)


def add(
    hand: Asks,
    name: str,
    producer: tuple[int, int],
    topic: str,
    partitions: Sequence[int] = (0,),
    version: int = 3,
) -> list[int]:
    """The partitions' codes."""
    answer = hand.ask(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))
            ],
        ),
        version,
    )
    codes = {
        one.partition_index: one.partition_error_code
        for topic_result in answer.results_by_topic_v3_and_below
        for one in topic_result.results_by_partition
    }
    return [codes[partition] for partition in partitions]


def produce(
    hand: Asks,
    name: str | None,
    producer: tuple[int, int],
    sequence: int,
    topic: str,
    *values: bytes,
    partition: int = 0,
    version: int = NEW,
    transactional: bool = True,
) -> ProduceResponse.PartitionProduceResponse:
    data = batch(*values, timestamp=hand.epoch_ms, producer=(*producer, sequence), transactional=transactional)
    request = ProduceRequest(
        transactional_id=name,
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=topic, partition_data=[ProduceRequest.PartitionProduceData(index=partition, records=data)]
            )
        ],
    )
    return hand.ask(request, version).responses[0].partition_responses[0]


def end(hand: Asks, name: str, producer: tuple[int, int], committed: bool, version: int = 5) -> Answer:
    answer = hand.ask(
        EndTxnRequest(
            transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], committed=committed
        ),
        version,
    )
    return Answer(answer.error_code, answer.producer_id, answer.producer_epoch)


def add_group(hand: Asks, name: str, producer: tuple[int, int], group: str, version: int = 4) -> int:
    return hand.ask(
        AddOffsetsToTxnRequest(
            transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], group_id=group
        ),
        version,
    ).error_code


def commit_offset(
    hand: Asks,
    name: str,
    producer: tuple[int, int],
    group: str,
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    version: int = 5,
    metadata: str = "",
    generation: int = -1,
    member: str = "",
) -> int:
    request = TxnOffsetCommitRequest(
        transactional_id=name,
        group_id=group,
        producer_id=producer[0],
        producer_epoch=producer[1],
        generation_id=generation if version >= 3 else -1,
        member_id=member,
        topics=[
            TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset, committed_metadata=metadata
                    )
                ],
            )
        ],
    )
    return hand.ask(request, version).topics[0].partitions[0].error_code


def committed(hand: Asks, group: str, topic: str, *, stable: bool = False) -> tuple[int, int]:
    """Code and offset of partition 0, as OffsetFetch gives them."""
    answer = hand.ask(
        OffsetFetchRequest(
            group_id=group,
            topics=[OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])],
            require_stable=stable,
        ),
        7,
    )
    one = answer.topics[0].partitions[0]
    return one.error_code, one.committed_offset


def verify(
    hand: Asks, name: str, producer: tuple[int, int], topic: str, partitions: Sequence[int] = (0,), version: int = 5
) -> list[int]:
    """As another broker asks; the partitions' codes."""
    one = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        transactional_id=name,
        producer_id=producer[0],
        producer_epoch=producer[1],
        verify_only=True,
        topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
    )
    answer = hand.ask(AddPartitionsToTxnRequest(transactions=[one]), version)
    results = answer.results_by_transaction[0].topic_results[0].results_by_partition
    codes = {row.partition_index: row.partition_error_code for row in results}
    return [codes[partition] for partition in partitions]


def describe(hand: Asks, name: str) -> DescribeTransactionsResponse.TransactionState:
    return hand.ask(DescribeTransactionsRequest(transactional_ids=[name]), 0).transaction_states[0]


def state(hand: Asks, name: str) -> str:
    return describe(hand, name).transaction_state


def producers(hand: Asks, topic: str, partition: int = 0) -> dict[int, DescribeProducersResponse.ProducerState]:
    request = DescribeProducersRequest(
        topics=[DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[partition])]
    )
    answer = hand.ask(request, 0).topics[0].partitions[0]
    assert answer.error_code == 0
    return {row.producer_id: row for row in answer.active_producers}


def listed(hand: Asks, **filters: object) -> tuple[int, list[str], list[str]]:
    """Code, unknown states, transactional ids."""
    wanted: dict[str, Any] = {"state_filters": [], "producer_id_filters": [], **filters}
    answer = hand.ask(ListTransactionsRequest(**wanted))
    names = sorted(row.transactional_id for row in answer.transaction_states)
    return answer.error_code, answer.unknown_state_filters, names


def mark(
    hand: Asks,
    topic: str,
    producer: tuple[int, int],
    is_committed: bool,
    *,
    partition: int = 0,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
) -> int:
    """Write a marker by hand; its code."""
    marker = WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=producer[0],
        producer_epoch=producer[1],
        transaction_result=is_committed,
        topics=[WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
    )
    answer = hand.ask(WriteTxnMarkersRequest(markers=[marker]), 2)
    return answer.markers[0].topics[0].partitions[0].error_code


def read(hand: Asks, topic: str, isolation: int, partition: int = 0) -> list[bytes | None]:
    """The values that a consumer shows: without markers, and with READ_COMMITTED without what was aborted. It fetches
    until there is no more, and knows of aborted transactions what each answer says of them."""
    shown: list[bytes | None] = []
    offset = 0
    while True:
        request = fetch_request(topic, [0] * partition + [offset])
        request.isolation_level = isolation
        answer = fetched(hand.ask(request, 11))[partition]
        assert answer.error_code == 0
        data = plain(answer.records)
        if not data:
            return shown
        for header, is_shown in shown_batches(answer):
            if is_shown:
                shown += [record.value for record in decode_records(data, header)]
            offset = header.next_offset
