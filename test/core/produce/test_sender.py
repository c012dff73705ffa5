from __future__ import annotations

import sys
import threading
from math import inf
from uuid import UUID

import pytest

from kafka.core.produce.effects import AskIdentity
from kafka.core.produce.identity import IdentityState, ProducerIdentity
from kafka.errors import (
    Cancelled,
    ClusterAuthorizationFailedError,
    KafkaConnectionError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    NotLeaderForPartitionError,
    OutOfOrderSequenceNumberError,
    UnknownProducerIdError,
)
from kafka.protocol.produce import ProduceResponse
from kafka.wire.types import ZERO_UUID
from test.core.produce.support import TOPIC_ID, Rig, sequences

NOT_LEADER = 6
TOO_LARGE = 10
NOT_ENOUGH_REPLICAS = 19
OUT_OF_ORDER = 45
DUPLICATE = 46
INVALID_EPOCH = 47
UNKNOWN_PRODUCER = 59
FENCED = 90
CLUSTER_AUTHORIZATION = 31


def test_a_record_goes_out_at_once_without_linger() -> None:
    rig = Rig(idempotent=False)
    batch, _ = rig.put(b"x")
    call = rig.call()
    assert call.node == 1
    assert call.batches == [batch]
    assert call.request.topic_data[0].topic_id == TOPIC_ID
    rig.answer(call, base_offset=40)
    assert batch.done.value == (40, -1)
    assert not rig.accumulator.incomplete


def test_a_batch_lingers_until_its_time_or_until_it_is_full() -> None:
    rig = Rig(idempotent=False, linger_s=0.5, batch_records=2)
    rig.put(b"x")
    assert rig.calls() == []
    assert rig.sender.next_deadline == 0.5
    rig.clock.advance(0.5)
    assert len(rig.calls()) == 1
    rig.put(b"x")
    rig.put(b"x")
    assert len(rig.calls()) == 1


def test_flush_sends_what_lingers() -> None:
    rig = Rig(idempotent=False, linger_s=60)
    batch, _ = rig.put(b"x")
    assert rig.accumulator.close_open_batches() == [batch]
    assert len(rig.calls()) == 1


def test_nothing_is_sent_before_the_producer_has_its_id() -> None:
    rig = Rig(known=False)
    rig.put(b"x")
    (effect,) = rig.poll()
    assert isinstance(effect, AskIdentity)
    assert rig.poll() == []
    rig.sender.identity_received(ProducerIdentity(9, 3))
    assert sequences(rig.call()) == [(3, 0)]


def test_an_id_that_could_not_be_had_is_asked_for_again_after_the_backoff() -> None:
    rig = Rig(known=False)
    rig.put(b"x")
    rig.poll()
    rig.sender.identity_failed(KafkaConnectionError("gone"), rig.clock.monotonic())
    assert rig.poll() == []
    assert rig.sender.next_deadline == 0.1
    rig.back_off()
    assert isinstance(rig.poll()[0], AskIdentity)


def test_a_broker_without_ids_is_sent_batches_without_sequences() -> None:
    rig = Rig(known=False)
    rig.put(b"x")
    rig.poll()
    rig.sender.identity_failed(KafkaConnectionError(""), rig.clock.monotonic(), is_supported=False)
    assert sequences(rig.call()) == [(-1, -1)]


def test_sequences_count_records_and_not_batches() -> None:
    rig = Rig()
    for _ in range(3):
        rig.put(b"x")
    assert sequences(rig.call()) == [(0, 0)]
    rig.put(b"x")
    assert sequences(rig.call()) == [(0, 3)]


def test_sequences_wrap_after_two_to_the_thirtyone() -> None:
    rig = Rig()
    rig.topic.queues[0].numbers.next_sequence = 2**31 - 1
    rig.put(b"x")
    rig.put(b"x")
    assert sequences(rig.call()) == [(0, 2**31 - 1)]
    rig.put(b"x")
    assert sequences(rig.call()) == [(0, 1)]


def test_at_most_five_batches_of_a_partition_are_in_flight() -> None:
    rig = Rig(max_in_flight=50)
    for _ in range(8):
        rig.put_alone(b"x")
    calls = rig.calls()
    assert len(calls) == 5
    rig.answer(calls[0])
    assert len(rig.calls()) == 1


def test_a_node_has_at_most_the_requests_in_flight_that_were_set() -> None:
    rig = Rig(max_in_flight=1)
    first = rig.put_alone(b"a")
    second = rig.put_alone(b"b")
    call = rig.call()
    assert call.batches == [first]
    rig.answer(call)
    assert rig.call().batches == [second]


def test_partitions_of_one_leader_share_a_request_up_to_its_size() -> None:
    rig = Rig(3, idempotent=False, max_request_bytes=400)
    for partition in range(3):
        rig.put_alone(b"x" * 100, partition)
    assert [len(call.batches) for call in rig.calls()] == [2, 1]


def test_a_failed_batch_is_sent_again_before_later_ones_and_each_keeps_its_sequence() -> None:
    rig = Rig()
    for value in (b"a", b"b", b"c"):
        rig.put_alone(value)
    first, second, third = rig.calls()
    before = [sequences(call) for call in (first, second, third)]
    rig.lose(first)
    rig.put_alone(b"d")
    rig.back_off()
    assert rig.calls() == [], "two are in flight still"
    rig.lose(third)
    rig.lose(second)
    rig.back_off()
    again = []
    for _ in range(2):
        call = rig.call()
        again.append(sequences(call))
        rig.answer(call)
    last, new = rig.calls()
    assert [*again, sequences(last)] == before
    assert sequences(new) == [(0, 3)]


def test_a_batch_keeps_its_sequence_and_its_bytes_when_the_leader_moves() -> None:
    rig = Rig()
    batch = rig.put_alone(b"a")
    call = rig.call()
    rig.answer(call, NOT_LEADER)
    assert rig.stale_topics() == {"t"}
    rig.leaders[0] = 2
    rig.back_off()
    again = rig.call()
    assert again.node == 2
    assert again.request.topic_data[0].partition_data[0].records == call.request.topic_data[0].partition_data[0].records
    rig.answer(again, base_offset=5)
    assert batch.done.value == (5, -1)


def test_nothing_goes_to_a_new_leader_before_the_old_one_has_answered() -> None:
    rig = Rig()
    rig.put_alone(b"a")
    call = rig.call()
    rig.leaders[0] = 2
    rig.put_alone(b"b")
    assert rig.calls() == []
    rig.answer(call)
    assert rig.call().node == 2


def test_a_partition_without_a_leader_waits_and_asks_for_metadata() -> None:
    rig = Rig(idempotent=False)
    rig.leaders[0] = None
    rig.put(b"x")
    assert rig.stale_topics() == {"t"}
    assert rig.sender.next_deadline == pytest.approx(0.1)
    rig.leaders[0] = 1
    rig.back_off()
    assert len(rig.calls()) == 1


def test_a_duplicate_is_a_success() -> None:
    rig = Rig()
    batch = rig.put_alone(b"a")
    rig.answer(rig.call(), DUPLICATE)
    assert batch.done.value == (-1, -1)


def test_out_of_order_behind_a_failed_batch_is_only_sent_again() -> None:
    rig = Rig()
    rig.put_alone(b"a")
    rig.put_alone(b"b")
    first, second = rig.calls()
    rig.answer(first, NOT_LEADER)
    rig.answer(second, OUT_OF_ORDER)
    rig.back_off()
    call = rig.call()
    assert sequences(call) == [(0, 0)]
    rig.answer(call)
    assert sequences(rig.call()) == [(0, 1)]


@pytest.mark.parametrize("code", [OUT_OF_ORDER, UNKNOWN_PRODUCER, INVALID_EPOCH])
def test_a_lost_state_raises_the_epoch_for_its_partition_and_stops_no_other(code: int) -> None:
    rig = Rig(2)
    for partition in (0, 1):
        rig.put_alone(b"a", partition)
        rig.answer(rig.call())
    rig.put_alone(b"b", 0)
    lost = rig.call()
    assert sequences(lost) == [(0, 1)]
    rig.put_alone(b"c", 0)
    behind = rig.call()
    rig.put_alone(b"d", 1)
    other = rig.call()
    rig.answer(lost, code)
    rig.back_off()
    assert rig.poll() == [], "the partition waits until nothing of it is in flight"
    rig.put_alone(b"e", 1)
    assert sequences(rig.call()) == [(0, 2)], "the other goes on as it was"
    rig.answer(behind, OUT_OF_ORDER)
    rig.back_off()
    again = rig.call()
    assert sequences(again) == [(1, 0)]
    rig.answer(again)
    assert sequences(rig.call()) == [(1, 1)]
    rig.answer(other)
    assert rig.ids == 0, "the epoch is the producer's own to raise"


def test_a_batch_that_fails_for_good_leaves_no_gap() -> None:
    rig = Rig()
    first = rig.put_alone(b"a")
    second = rig.put_alone(b"b")
    calls = rig.calls()
    rig.answer(calls[0], TOO_LARGE)
    assert isinstance(first.done.exception, MessageSizeTooLargeError)
    rig.answer(calls[1], OUT_OF_ORDER)
    rig.back_off()
    call = rig.call()
    assert sequences(call) == [(1, 0)]
    rig.answer(call, base_offset=0)
    assert second.done.succeeded()


def test_out_of_order_without_idempotence_is_an_error_of_the_batch() -> None:
    rig = Rig(idempotent=False)
    batch = rig.put_alone(b"a")
    rig.answer(rig.call(), OUT_OF_ORDER)
    assert isinstance(batch.done.exception, OutOfOrderSequenceNumberError)


def test_retries_are_counted() -> None:
    rig = Rig(idempotent=False, retries=1)
    batch = rig.put_alone(b"a")
    rig.answer(rig.call(), NOT_LEADER)
    rig.back_off()
    assert not batch.done.is_done
    rig.answer(rig.call(), NOT_LEADER)
    assert isinstance(batch.done.exception, NotLeaderForPartitionError)


def test_a_record_that_is_not_delivered_in_time_fails_with_the_setting_in_the_text() -> None:
    rig = Rig(idempotent=False, delivery_timeout_s=30.0)
    rig.leaders[0] = None
    batch = rig.put_alone(b"a")
    rig.poll()
    rig.clock.advance(30.0)
    rig.poll()
    assert isinstance(batch.done.exception, KafkaTimeoutError)
    assert "delivery_timeout_ms=30000" in str(batch.done.exception)
    assert rig.sender.next_deadline == inf


def test_a_fatal_error_ends_the_producer_and_fails_all() -> None:
    rig = Rig(2)
    batches = [rig.put_alone(b"a", partition) for partition in (0, 1)]
    call = rig.call()
    waiting = rig.put_alone(b"b")
    rig.answer(call, CLUSTER_AUTHORIZATION)
    rig.poll()
    assert isinstance(rig.sender.error, ClusterAuthorizationFailedError)
    for batch in (*batches, waiting):
        assert isinstance(batch.done.exception, ClusterAuthorizationFailedError)


def test_without_acknowledgement_a_written_request_is_a_success_without_an_offset() -> None:
    rig = Rig(idempotent=False, acks=0)
    batch = rig.put_alone(b"a")
    call = rig.call()
    assert call.request.acks == 0
    rig.sender.answered(call, None, 0.0)
    assert batch.done.value == (-1, -1)


def test_an_answer_that_leaves_a_partition_out_is_no_success() -> None:
    rig = Rig(2)
    batches = [rig.put_alone(b"a", partition) for partition in (0, 1)]
    rig.answer(rig.call(), only=0)
    assert batches[0].done.succeeded()
    assert not batches[1].done.is_done
    rig.back_off()
    assert rig.call().batches == [batches[1]]


def test_abort_fails_what_is_left_and_late_answers_are_for_nobody() -> None:
    rig = Rig()
    sent = rig.put_alone(b"a")
    call = rig.call()
    unsent, _ = rig.put(b"b")
    rig.sender.abort()
    assert isinstance(sent.done.exception, Cancelled)
    assert isinstance(unsent.done.exception, Cancelled)
    rig.answer(call)
    assert not rig.accumulator.incomplete


def test_the_identity_is_not_raised_for_a_failure_before_any_number_was_given() -> None:
    rig = Rig(delivery_timeout_s=1.0)
    rig.sender.identity_received(ProducerIdentity(9, 0))
    rig.leaders[0] = None
    rig.put_alone(b"a")
    rig.poll()
    rig.clock.advance(1.0)
    rig.poll()
    assert rig.sender.identity.state is IdentityState.READY


def test_an_unknown_producer_is_an_error_that_says_so_without_idempotence() -> None:
    rig = Rig(idempotent=False)
    batch = rig.put_alone(b"a")
    rig.answer(rig.call(), UNKNOWN_PRODUCER)
    assert isinstance(batch.done.exception, UnknownProducerIdError)


def test_a_batch_that_cannot_be_encoded_fails_alone() -> None:
    rig = Rig(idempotent=False, partitions=2)
    bad, _ = rig.put(b"x", partition=0)
    bad.builder.base_timestamp = 2**64  # more than the field holds
    good, _ = rig.put(b"x", partition=1)
    call = rig.call()
    assert call.batches == [good]
    assert bad.done.failed() and bad not in rig.accumulator.incomplete
    rig.answer(call)
    rig.put(b"x", partition=0)
    assert len(rig.calls()) == 1


def test_what_is_behind_a_batch_that_cannot_be_encoded_waits_for_nobody() -> None:
    rig = Rig(batch_records=1, idempotent=False)
    rig.leaders[0] = None
    bad, _ = rig.put(b"x")
    good, _ = rig.put(b"y")
    rig.poll()
    bad.builder.base_timestamp = 2**64
    rig.leaders[0] = 1
    assert rig.calls() == []
    assert bad.done.failed()
    assert rig.sender.next_deadline == rig.clock.monotonic()
    assert rig.call().batches == [good]


def test_a_callback_of_an_overdue_record_may_close_the_producer() -> None:
    rig = Rig(2, delivery_timeout_s=5.0)
    rig.leaders = {0: None, 1: None}
    overdue = rig.future(b"a", 0)
    overdue.add_errback(lambda _: rig.sender.abort())
    rig.calls()
    rig.clock.advance(5)
    rig.leaders = {0: 1, 1: 1}
    young = rig.future(b"b", 1)
    assert rig.calls() == []
    assert isinstance(overdue.exception, KafkaTimeoutError)
    assert isinstance(young.exception, Cancelled)
    assert rig.accumulator.memory.used_bytes == 0


def test_a_callback_of_a_dropped_record_may_close_the_producer() -> None:
    rig = Rig(2)
    first, second = rig.future_alone(b"a", 0), rig.future_alone(b"b", 0)
    for call in rig.calls():
        rig.answer(call, NOT_ENOUGH_REPLICAS)
    first.add_errback(lambda _: rig.sender.abort())
    rig.sender.drop_unsent(KafkaTimeoutError("dropped"))
    assert isinstance(first.exception, KafkaTimeoutError)
    assert second.failed()
    assert not rig.accumulator.incomplete and rig.accumulator.memory.used_bytes == 0


def test_memory_is_given_back_when_threads_send_while_everything_is_failed() -> None:
    rig = Rig(50)
    is_over = threading.Event()

    def send() -> None:
        number = 0
        while not is_over.is_set():
            number = (number + 1) % 50
            rig.put(b"x" * 100, number)

    threads = [threading.Thread(target=send) for _ in range(2)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for _ in range(200):
            rig.sender.abort()
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
    rig.sender.abort()
    assert rig.accumulator.memory.used_bytes == 0


@pytest.mark.parametrize(
    ("name", "topic_id", "index", "is_its_own"),
    [
        ("t", ZERO_UUID, 0, True),
        ("", TOPIC_ID, 0, True),
        ("", TOPIC_ID, 1, False),
        ("u", TOPIC_ID, 0, False),
        ("", UUID(int=99), 0, False),
    ],
)
def test_an_answer_to_the_only_batch_is_known_by_its_topic_and_partition(
    name: str, topic_id: UUID, index: int, is_its_own: bool
) -> None:
    rig = Rig(idempotent=False)
    batch = rig.put_alone(b"x")
    partition = ProduceResponse.PartitionProduceResponse(index=index, error_code=0, base_offset=5)
    topic = ProduceResponse.TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=[partition])
    rig.sender.answered(rig.call(), ProduceResponse(responses=[topic]), rig.clock.monotonic())
    assert batch.done.is_done == is_its_own
    assert is_its_own or "did not say what became of t-0" in str(batch.last_error)
