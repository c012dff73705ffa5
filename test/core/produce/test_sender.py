from __future__ import annotations

import random
import sys
import threading
from math import inf
from uuid import UUID

import pytest

from kafka.core.produce.batch import ProducerBatch, ProducerIdAndEpoch
from kafka.core.produce.sender import (
    STALLED_ATTEMPTS,
    ProducerIdPhase,
    RefreshTopicMetadata,
    RequestProducerId,
    SendBatches,
    Sender,
)
from kafka.core.retry import Backoff
from kafka.core.states import TransactionPhase
from kafka.errors import (
    BrokerResponseError,
    Cancelled,
    ClusterAuthorizationFailedError,
    InvalidRecordError,
    KafkaConnectionError,
    KafkaStorageError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    OutOfOrderSequenceNumberError,
    UnknownProducerIdError,
)
from kafka.protocol.produce import ProduceResponse
from kafka.records import iter_batches
from kafka.wire.types import ZERO_UUID
from test.core.produce.support import TOPIC_ID, Rig, in_transaction, sequences

NOT_LEADER = 6
TOO_LARGE = 10
NOT_ENOUGH_REPLICAS = 19
OUT_OF_ORDER = 45
DUPLICATE = 46
INVALID_EPOCH = 47
UNKNOWN_PRODUCER = 59
FENCED = 90
CLUSTER_AUTHORIZATION = 31
INVALID_RECORD = 87
STORAGE = 56


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
    assert isinstance(effect, RequestProducerId)
    assert rig.poll() == []
    rig.sender.identity_received(ProducerIdAndEpoch(9, 3))
    assert sequences(rig.call()) == [(3, 0)]


def test_an_id_that_could_not_be_had_is_asked_for_again_after_the_backoff() -> None:
    rig = Rig(known=False)
    rig.put(b"x")
    rig.poll()
    rig.sender.identity_failed(KafkaConnectionError("gone"), rig.clock.monotonic())
    assert rig.poll() == []
    assert rig.sender.next_deadline == 0.1
    rig.back_off()
    assert isinstance(rig.poll()[0], RequestProducerId)


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


def test_abort_fails_what_is_left_and_late_answers_are_dropped() -> None:
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
    rig.sender.identity_received(ProducerIdAndEpoch(9, 0))
    rig.leaders[0] = None
    rig.put_alone(b"a")
    rig.poll()
    rig.clock.advance(1.0)
    rig.poll()
    assert rig.sender.identity.state is ProducerIdPhase.READY


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


# -- settings --------------------------------------------------------------------------------------------------------


def test_without_settings_a_sender_has_javas_defaults() -> None:
    """ProducerConfig: acks all, five requests in flight, request.timeout.ms 30000, enable.idempotence."""
    rig = Rig(6)
    sender = Sender(
        rig.accumulator,
        leader_of=lambda _topic, _partition: 1,
        topic_id_of=lambda _topic: TOPIC_ID,
        backoff=Backoff(0.1, 1.0, random.Random(1), jitter=0.0),
    )
    assert sender.identity.is_on
    sender.identity_received(ProducerIdAndEpoch(9, 0))
    calls: list[SendBatches] = []
    for partition in range(6):
        rig.put(b"x", partition)
        calls += [effect for effect in sender.poll(0.0) if isinstance(effect, SendBatches)]
    assert len(calls) == 5
    assert [(call.request.acks, call.request.timeout_ms) for call in calls] == [(-1, 30_000)] * 5
    assert calls[0].request.transactional_id is None
    assert calls[0].max_version is None
    assert rig.topic.queues[0].leader_epoch == -1, "nobody told it"
    assert sender.counts.requests == 5


# -- where a batch has to wait ---------------------------------------------------------------------------------------


def test_a_node_that_throttles_gets_nothing_before_the_time_is_over() -> None:
    """KIP-219: the client keeps back what the broker would not read."""
    rig = Rig(idempotent=False, free_at=lambda node: 2.5 if node == 1 else 0.0)
    rig.put_alone(b"x")
    assert rig.calls() == []
    assert rig.sender.next_deadline == 2.5
    rig.clock.advance(2.5)
    assert len(rig.calls()) == 1


def test_no_id_is_asked_for_while_no_batch_could_go_out_with_it() -> None:
    rig = Rig(known=False)
    rig.leaders[0] = None
    rig.put(b"x")
    assert rig.poll() == [RefreshTopicMetadata(frozenset({"t"}))]
    assert rig.sender.next_deadline == pytest.approx(0.1)


def test_batches_fill_a_request_to_its_last_byte() -> None:
    """A record of 100 bytes takes 61 for the header, its length 2, and 107."""
    for limit, sizes in ((340, [2]), (339, [1, 1])):
        rig = Rig(2, idempotent=False, max_request_bytes=limit)
        for partition in (0, 1):
            assert rig.put_alone(b"x" * 100, partition).builder.size_bytes == 170
        assert [len(call.batches) for call in rig.calls()] == sizes


@pytest.mark.parametrize(
    ("limit", "records", "sent"),
    [
        (61 + 2 * 109, 2, [2]),
        (61 + 2 * 109 - 1, 2, [1, 1]),
        (100, 1, [1]),  # one record cannot be divided: the broker says whether it is too large
    ],
)
def test_only_a_batch_of_several_records_that_is_above_the_limit_is_halved(
    limit: int, records: int, sent: list[int]
) -> None:
    rig = Rig(idempotent=False, max_request_bytes=limit)
    for _ in range(records):
        rig.put(b"x" * 100)
    rig.accumulator.close_open_batches()
    found = []
    for _ in range(4):
        for call in rig.calls():
            found += [batch.records_count for batch in call.batches]
            rig.answer(call)
    assert found == sent
    assert rig.sender.counts.splits == (len(sent) > 1)


@pytest.mark.parametrize("answer", [OUT_OF_ORDER, UNKNOWN_PRODUCER])
def test_halves_of_a_batch_that_may_be_in_the_log_are_not_written_under_other_numbers(answer: int) -> None:
    """Brokers look at the size before they look for repetitions (seen on 4.3.0), so a topic's max.message.bytes that
    was lowered after the append hides it."""
    rig = Rig()
    futures = [rig.future(b"a"), rig.future(b"b")]
    rig.accumulator.close_open_batches()
    rig.lose(rig.call())
    rig.clock.advance(1.0)
    rig.answer(rig.call(), TOO_LARGE)
    for half in (0, 1):
        rig.clock.advance(1.0)
        call = rig.call()
        assert sequences(call) == [(0, half)]
        rig.answer(call, answer, log_start_offset=0)
    for future in futures:
        assert future.failed() and "may be in the log" in str(future.exception)
    rig.put_alone(b"c")
    assert sequences(rig.call()) == [(1, 0)]


@pytest.mark.parametrize(
    ("before", "after", "is_at_once"), [(4, 4, False), (4, 5, True), (0, 1, True), (-1, 5, False), (4, -1, False)]
)
def test_a_wait_ends_early_when_a_newer_leader_is_known_and_the_old_one_was(
    before: int, after: int, is_at_once: bool
) -> None:
    """KIP-951. An epoch of -1 says nothing."""
    rig = Rig()
    rig.leader_epochs[0] = before
    rig.put_alone(b"a")
    rig.answer(rig.call(), NOT_LEADER)
    rig.leader_epochs[0] = after
    assert len(rig.calls()) == is_at_once


def test_a_minute_is_not_long_enough_for_a_leader_to_forget_a_producer() -> None:
    for silence, in_flight in ((60.0, 2), (60.1, 1)):
        rig = Rig()
        rig.put_alone(b"a")
        rig.answer(rig.call())
        rig.clock.advance(silence)
        for _ in range(2):
            rig.put_alone(b"x")
        assert len(rig.calls()) == in_flight


# -- numbers ---------------------------------------------------------------------------------------------------------


def test_the_first_number_may_be_in_the_log_as_any_other() -> None:
    rig = Rig()
    rig.put_alone(b"a")
    rig.put_alone(b"b")
    first, second = rig.calls()
    rig.answer(second, INVALID_RECORD)
    rig.lose(first)
    rig.back_off()
    assert sequences(rig.call()) == [(0, 0)], "before another epoch it is to be known whether it is there"


def test_partitions_that_have_lost_a_number_share_the_next_epoch() -> None:
    rig = Rig(3)
    for partition in (0, 1):
        rig.put_alone(b"a", partition)
    rig.answer(rig.call(), INVALID_RECORD)
    for partition in (0, 1, 2):
        rig.put_alone(b"b", partition)
    assert sequences(rig.call()) == [(1, 0)] * 3


def test_a_batch_that_is_to_go_out_under_another_epoch_has_no_number_until_there_is_room_for_it() -> None:
    rig = Rig(2, max_request_bytes=339)
    batches = [rig.put_alone(b"x" * 100, partition) for partition in (0, 1)]
    for call in rig.calls():
        rig.answer(call, INVALID_EPOCH)
    rig.back_off()
    call = rig.call()
    assert sequences(call) == [(1, 0)]
    waiting = batches[call.batches == batches[:1]]
    assert (waiting.producer_id, waiting.epoch, waiting.sequence) == (-1, -1, -1)
    rig.answer(call)
    assert sequences(rig.call()) == [(1, 0)]


# -- time that is over -----------------------------------------------------------------------------------------------


def test_all_that_is_overdue_fails_wherever_it_waits_and_nothing_else() -> None:
    rig = Rig(idempotent=False, delivery_timeout_s=30.0, max_in_flight=2)
    queue = rig.topic.queues[0]
    old = [rig.put_alone(b"a") for _ in range(2)]
    for call in rig.calls():
        rig.lose(call)
    assert queue.retry == old
    rig.leaders[0] = None
    old += [rig.put_alone(b"b") for _ in range(2)]
    rig.clock.advance(1.0)
    young = [rig.put_alone(b"c"), rig.put(b"d")[0]]
    assert (len(queue.closed), queue.open) == (3, young[1])
    rig.clock.advance(29.0)
    rig.poll()
    assert all(isinstance(batch.done.exception, KafkaTimeoutError) for batch in old)
    assert not any(batch.done.is_done for batch in young)
    assert (queue.retry, list(queue.closed), queue.open) == ([], young[:1], young[1])
    rig.clock.advance(1.0)
    rig.poll()
    assert all(isinstance(batch.done.exception, KafkaTimeoutError) for batch in young)
    assert not rig.accumulator.incomplete and not queue.has_unsent


@pytest.mark.parametrize(
    ("leader", "is_sent", "is_refused", "why"),
    [
        (None, False, False, "; the partition has no leader, or is gone"),
        (1, False, False, ""),
        (1, True, False, "; node 1 has not answered"),
        (None, True, True, "; last: "),
    ],
)
def test_an_overdue_record_says_what_it_waited_for(
    leader: int | None, is_sent: bool, is_refused: bool, why: str
) -> None:
    rig = Rig(idempotent=False, delivery_timeout_s=30.0, linger_s=60.0)
    batch, _ = rig.put(b"x")
    if is_sent:
        rig.accumulator.close_open_batches()
        call = rig.call()
        if is_refused:
            rig.answer(call, NOT_ENOUGH_REPLICAS)
    rig.leaders[0] = leader
    rig.clock.advance(30.0)
    rig.poll()
    text = str(batch.done.exception)
    attempts = f"after {int(is_sent)} attempts"
    assert f"{attempts}{why}" in text
    assert why or text.endswith(attempts)


def test_a_record_that_waits_for_a_producer_id_says_why_there_is_none() -> None:
    rig = Rig(known=False, delivery_timeout_s=30.0)
    batch = rig.put_alone(b"x")
    rig.poll()
    rig.sender.identity_failed(KafkaStorageError("the disk is full"), rig.clock.monotonic())
    why = "; there is no producer id: [Error 56] KafkaStorageError: the disk is full"
    assert rig.sender.why_unanswered() == why
    rig.clock.advance(30.0)
    rig.poll()
    assert str(batch.done.exception).endswith(why)


def test_why_records_are_unanswered_is_what_their_broker_says_of_the_one_it_refused() -> None:
    rig = Rig(idempotent=False)
    assert rig.sender.why_unanswered() == ""
    rig.put_alone(b"a")
    call = rig.call()
    assert rig.sender.why_unanswered() == "; node 1 has not answered"
    rig.put_alone(b"b")
    rig.answer(call, STORAGE)
    assert "; last: [Error 56] KafkaStorageError: t-0 at node 1" in rig.sender.why_unanswered()
    rig.clock.advance(1.0)
    rig.answer_all()
    assert rig.sender.why_unanswered() == ""


def test_a_batch_that_its_broker_refuses_again_and_again_is_reported_once() -> None:
    stalled: list[tuple[ProducerBatch, BrokerResponseError]] = []
    rig = Rig(idempotent=False, on_stalled=lambda batch, error: stalled.append((batch, error)))
    batch = rig.put_alone(b"a")
    for attempt in range(1, 8):
        rig.answer(rig.call(), STORAGE)
        assert len(stalled) == (attempt >= STALLED_ATTEMPTS)
        rig.clock.advance(1.0)
    assert stalled[0][0] is batch
    assert isinstance(stalled[0][1], KafkaStorageError)


def test_a_batch_that_is_not_answered_is_no_stalled_one() -> None:
    """The client logs that a node cannot be reached."""
    stalled: list[object] = []
    rig = Rig(idempotent=False, on_stalled=lambda *given: stalled.append(given))
    rig.put_alone(b"a")
    for _ in range(2 * STALLED_ATTEMPTS):
        rig.lose(rig.call())
        rig.clock.advance(1.0)
    assert stalled == []


def test_a_batch_that_was_given_up_in_flight_may_be_in_the_log_when_it_has_a_number() -> None:
    for idempotent in (True, False):
        rig = Rig(idempotent=idempotent, delivery_timeout_s=30.0)
        batch = rig.put_alone(b"a")
        rig.call()
        rig.clock.advance(30.0)
        rig.poll()
        assert batch.done.failed()
        assert batch.in_doubt is idempotent
        rig.sender.abort()  # what has failed does not fail again
        assert isinstance(batch.done.exception, KafkaTimeoutError)


def test_the_batches_of_one_request_are_given_up_each_in_its_time() -> None:
    rig = Rig(3, idempotent=False, delivery_timeout_s=30.0, linger_s=5.0)
    batches = []
    for partition in range(3):
        batches.append(rig.put(b"x", partition)[0])
        rig.clock.advance(1.0)
    rig.accumulator.close_open_batches()
    assert rig.call().batches == batches
    for number in range(3):
        assert rig.sender.next_deadline == 30.0 + number
        rig.clock.advance(rig.sender.next_deadline - rig.clock.monotonic())
        rig.poll()
        assert [batch.done.is_done for batch in batches] == [place <= number for place in range(3)]
    assert rig.sender.next_deadline == inf


# -- the end ---------------------------------------------------------------------------------------------------------


def test_after_an_abort_the_epoch_is_raised_where_a_number_was_lost_and_nowhere_else() -> None:
    rig = Rig(2)
    for partition in (0, 1):
        rig.put_alone(b"a", partition)
    rig.answer(rig.call(), {0: NOT_ENOUGH_REPLICAS})
    rig.sender.abort()
    rig.put_alone(b"b", 1)
    assert sequences(rig.call()) == [(0, 1)]
    rig.put_alone(b"b", 0)
    assert sequences(rig.call()) == [(1, 0)]


def test_what_was_answered_late_was_given_back_once() -> None:
    rig = Rig()
    rig.put_alone(b"a")
    call = rig.call()
    rig.sender.abort()
    rig.answer(call)
    assert rig.accumulator.memory.used_bytes == 0


def test_dropping_keeps_what_may_be_in_the_log() -> None:
    rig = Rig(2)
    refused, lost = rig.put_alone(b"a", 0), rig.put_alone(b"b", 1)
    rig.answer(rig.call(), {0: NOT_ENOUGH_REPLICAS, 1: NOT_LEADER})
    assert (refused.in_doubt, lost.in_doubt) == (False, True)
    rig.sender.drop_unsent(KafkaTimeoutError("it is over"))
    assert refused.done.failed() and not lost.done.is_done
    assert rig.topic.queues[1].retry == [lost]


# -- transactions ----------------------------------------------------------------------------------------------------


def test_a_batch_of_a_transaction_says_so_and_one_of_none_does_not() -> None:
    """KIP-98: the attribute of the batch, and the request's transactional id."""
    for transactional_id in ("me", None):
        rig = in_transaction()[0] if transactional_id else Rig()
        rig.put_alone(b"a")
        call = rig.call()
        assert call.request.transactional_id == transactional_id
        assert call.max_version is None
        (header,) = iter_batches(call.batches[0].encoded())
        assert header.is_transactional is (transactional_id is not None)


def test_version_1_sends_nothing_before_its_partition_was_added_and_at_most_in_produce_v11() -> None:
    """KIP-890: from Produce v12 on the broker adds the partition by itself, which is version 2."""
    rig, machine = in_transaction(2, version=1)
    rig.put_alone(b"a")
    assert rig.calls() == []
    machine.take_new_partitions()
    machine.partitions_done(are_added=True)
    assert rig.call().max_version == 11
    rig.put_alone(b"b", 1)
    assert rig.calls() == []


def test_the_coordinator_gives_a_transactions_epoch_and_nobody_else_asks_for_one() -> None:
    rig, machine = in_transaction(known=False)
    rig.put_alone(b"a")
    assert rig.poll() == []
    rig.sender.identity_received(machine.identity)
    rig.answer(rig.call(), INVALID_RECORD)
    machine.begin_abort()
    machine.ended(ProducerIdAndEpoch(9, 1), 2)
    rig.sender.identity_received(machine.identity)
    machine.begin()
    rig.put_alone(b"b")
    assert sequences(rig.call()) == [(1, 0)]


def test_in_a_transaction_that_can_only_be_aborted_what_may_be_in_the_log_is_sent_again_and_nothing_else() -> None:
    rig, machine = in_transaction(3)
    failed, lost, refused = (rig.put_alone(b"a", partition) for partition in range(3))
    rig.answer(rig.call(), {0: INVALID_RECORD, 1: NOT_LEADER, 2: NOT_ENOUGH_REPLICAS})
    assert machine.state is TransactionPhase.ABORTABLE_ERROR
    assert isinstance(failed.done.exception, InvalidRecordError)
    assert isinstance(refused.done.exception, NotEnoughReplicasError), "its transaction is over"
    late = rig.put_alone(b"late", 1)
    rig.back_off()
    call = rig.call()
    assert call.batches == [lost]
    rig.answer(call)
    assert lost.done.succeeded()
    assert rig.calls() == []
    assert not late.done.is_done
    assert rig.sender.error is None, "the next transaction may go on"
