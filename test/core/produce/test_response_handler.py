"""What follows from an answer, in and out of a transaction, and what is counted."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kafka.core.produce.batch import ProducerBatch
from kafka.core.states import TransactionPhase
from kafka.errors import (
    ClusterAuthorizationFailedError,
    InvalidProducerEpochError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumberError,
    ProducerFencedError,
)
from kafka.protocol.produce import ProduceResponse
from kafka.wire.types import ZERO_UUID
from test.core.produce.support import TOPIC_ID, Rig, in_transaction, sequences

NOT_LEADER = 6
TOO_LARGE = 10
NOT_ENOUGH_REPLICAS = 19
CLUSTER_AUTHORIZATION = 31
OUT_OF_ORDER = 45
INVALID_EPOCH = 47
CONCURRENT_TRANSACTIONS = 51
INVALID_RECORD = 87
FENCED = 90


# -- which answer is a batch's ---------------------------------------------------------------------------------------


def respond(rig: Rig, call: Any, *topics: tuple[str, UUID, list[tuple[int, int]]]) -> None:
    """Topics by name and id, with (partition, base offset) of each."""
    responses = [
        ProduceResponse.TopicProduceResponse(
            name=name,
            topic_id=topic_id,
            partition_responses=[
                ProduceResponse.PartitionProduceResponse(index=index, error_code=0, base_offset=offset)
                for index, offset in partitions
            ],
        )
        for name, topic_id, partitions in topics
    ]
    rig.sender.answered(call, ProduceResponse(responses=responses), rig.clock.monotonic())


@pytest.mark.parametrize(("name", "topic_id"), [("t", ZERO_UUID), ("", TOPIC_ID)])
def test_each_batch_of_a_request_finds_its_own_answer_by_name_before_produce_v13_and_by_id_since(
    name: str, topic_id: UUID
) -> None:
    """KIP-516."""
    rig = Rig(3, idempotent=False)
    batches = [rig.put_alone(b"x", partition) for partition in range(3)]
    respond(rig, rig.call(), (name, topic_id, [(2, 20), (0, 0), (1, 10)]))
    assert [batch.done.value for batch in batches] == [(0, -1), (10, -1), (20, -1)]


@pytest.mark.parametrize("partitions", [[(1, 5), (0, 7)], [(0, 7), (1, 5)]])
def test_the_only_batch_of_a_request_finds_its_answer_among_others(partitions: list[tuple[int, int]]) -> None:
    rig = Rig(idempotent=False)
    batch = rig.put_alone(b"x")
    respond(rig, rig.call(), ("u", ZERO_UUID, [(0, 3)]), ("t", ZERO_UUID, partitions))
    assert batch.done.value == (7, -1)


@pytest.mark.parametrize("topics", [[], [("t", TOPIC_ID, [])]])
def test_an_answer_without_the_batch_is_no_success(topics: list[Any]) -> None:
    rig = Rig(idempotent=False)
    batch = rig.put_alone(b"x")
    respond(rig, rig.call(), *topics)
    assert not batch.done.is_done
    assert "node 1 did not say what became of t-0" in str(batch.last_error)


def test_an_error_says_where_it_came_from_and_what_the_broker_wrote() -> None:
    for message, text in ((None, "t-0 at node 1"), ("too old", "t-0 at node 1: too old")):
        rig = Rig(idempotent=False)
        batch = rig.put_alone(b"x")
        partition = ProduceResponse.PartitionProduceResponse(
            index=0, error_code=INVALID_RECORD, base_offset=-1, error_message=message
        )
        topic = ProduceResponse.TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=[partition])
        rig.sender.answered(rig.call(), ProduceResponse(responses=[topic]), 0.0)
        assert batch.done.exception is not None
        assert batch.done.exception.args == (text,)


# -- what is counted -------------------------------------------------------------------------------------------------


class Listener:
    def __init__(self) -> None:
        self.heard: list[tuple[str, ProducerBatch]] = []

    def retried(self, batch: ProducerBatch) -> None:
        self.heard.append(("retried", batch))

    def failed(self, batch: ProducerBatch) -> None:
        self.heard.append(("failed", batch))


@pytest.mark.parametrize("is_heard", [True, False])
def test_each_batch_is_counted_once_by_its_records_and_its_bytes(is_heard: bool) -> None:
    rig, listener = Rig(2, idempotent=False), Listener()
    counts = rig.sender.counts
    assert (counts.batches, counts.records, counts.bytes, counts.requests, counts.retries, counts.errors) == (0,) * 6
    assert counts.splits == 0
    counts.listener = listener if is_heard else None
    for partition in (0, 1, 1):
        batch, _ = rig.put(b"x", partition)
    good = rig.topic.queues[0].open
    assert good is not None
    rig.answer(rig.call(), {0: NOT_ENOUGH_REPLICAS, 1: INVALID_RECORD})
    rig.back_off()
    rig.answer(rig.call())
    assert (counts.batches, counts.records, counts.bytes) == (1, 1, 61 + 8)
    assert (counts.requests, counts.retries, counts.errors, counts.splits) == (2, 1, 2, 0)
    assert listener.heard == ([("retried", good), ("failed", batch)] if is_heard else [])


def test_what_was_given_up_before_it_was_answered_counts_as_failed_and_not_as_sent() -> None:
    rig = Rig(delivery_timeout_s=30.0)
    rig.put_alone(b"x")
    call = rig.call()
    rig.clock.advance(30.0)
    rig.poll()
    rig.answer(call)
    counts = rig.sender.counts
    assert (counts.batches, counts.records, counts.bytes, counts.errors) == (0, 0, 0, 1)


# -- what becomes of a batch -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("records", [1, 2, 3])
def test_a_batch_of_two_records_can_be_halved_and_a_single_record_fails_with_its_size(records: int) -> None:
    rig = Rig(idempotent=False)
    for _ in range(records):
        batch, _ = rig.put(b"x")
    rig.answer(rig.call(), TOO_LARGE)
    assert rig.sender.counts.splits == (records > 1)
    if records == 1:
        assert isinstance(batch.done.exception, MessageSizeTooLargeError)
        assert batch.done.exception.args == ("t-0 at node 1: one record of 69 bytes is more than its topic takes",)


@pytest.mark.parametrize(
    ("code", "is_in_doubt"), [(NOT_LEADER, True), (NOT_ENOUGH_REPLICAS, False), (TOO_LARGE, False)]
)
def test_only_an_answer_that_may_come_after_the_append_leaves_a_number_in_doubt(code: int, is_in_doubt: bool) -> None:
    for idempotent in (True, False):
        rig = Rig(idempotent=idempotent)
        rig.put(b"x")
        rig.put(b"x")
        rig.answer(rig.call(), code)
        assert {batch.in_doubt for batch in rig.topic.queues[0].retry} == {is_in_doubt and idempotent}


def test_a_batch_that_its_leader_calls_out_of_order_is_the_first_when_only_later_ones_wait() -> None:
    """TransactionManager.canRetry: the epoch is raised when the batch is the next one that the leader expects."""
    rig = Rig()
    rig.put_alone(b"a")
    rig.put_alone(b"b")
    first, second = rig.calls()
    rig.answer(second, NOT_ENOUGH_REPLICAS)
    rig.answer(first, OUT_OF_ORDER)
    rig.back_off()
    assert sequences(rig.call()) == [(1, 0)]


def test_after_the_markers_of_the_last_transaction_a_batch_goes_out_sooner_than_after_other_errors() -> None:
    """Java waits for 20 ms instead of retry.backoff.ms while the last transaction is completed."""
    for code, wait_s in ((CONCURRENT_TRANSACTIONS, 0.02), (NOT_ENOUGH_REPLICAS, 0.1)):
        rig, _ = in_transaction()
        rig.put_alone(b"a")
        rig.answer(rig.call(), code)
        assert rig.calls() == []
        assert rig.sender.next_deadline == pytest.approx(wait_s)


# -- in a transaction ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "error", "state"),
    [
        # maybeTransitionToErrorState: sequences of a transaction are never begun anew, and the transaction is aborted
        (OUT_OF_ORDER, OutOfOrderSequenceNumberError, TransactionPhase.ABORTABLE_ERROR),
        (INVALID_EPOCH, InvalidProducerEpochError, TransactionPhase.ABORTABLE_ERROR),
        # maybeTransitionToErrorState: these end the producer
        (CLUSTER_AUTHORIZATION, ClusterAuthorizationFailedError, TransactionPhase.FATAL_ERROR),
        (FENCED, ProducerFencedError, TransactionPhase.FATAL_ERROR),
    ],
)
def test_in_a_transaction_a_batch_fails_where_it_would_be_renumbered_or_end_the_producer(
    code: int, error: type[KafkaError], state: TransactionPhase
) -> None:
    rig, machine = in_transaction()
    batch = rig.put_alone(b"a")
    rig.answer(rig.call(), code)
    assert isinstance(batch.done.exception, error)
    assert machine.state is state
    assert rig.sender.error is None, "what else is to end, the transaction's machine says"
    assert rig.topic.queues[0].retry == []


def test_in_a_transaction_a_batch_that_is_too_large_is_halved_as_elsewhere() -> None:
    rig, machine = in_transaction()
    rig.put(b"x")
    rig.put(b"x")
    rig.answer(rig.call(), TOO_LARGE)
    assert sequences(rig.call()) == [(0, 0)]
    assert machine.state is TransactionPhase.IN_TRANSACTION


def test_a_number_that_may_be_used_ends_a_transactional_producer_to_which_nobody_gives_an_epoch() -> None:
    rig, machine = in_transaction(version=1, can_bump=False, delivery_timeout_s=30.0)
    batch = rig.put_alone(b"a")
    rig.poll()
    machine.take_new_partitions()
    machine.partitions_done(are_added=True)
    rig.call()
    rig.clock.advance(30.0)
    rig.poll()
    assert isinstance(batch.done.exception, KafkaTimeoutError)
    assert machine.state is TransactionPhase.FATAL_ERROR
