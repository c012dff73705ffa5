"""The table of recoveries, row by row: what a batch suffers, and that what follows it goes on."""

from __future__ import annotations

import pytest

from kafka import errors
from kafka.core.produce.batch import ProducerIdAndEpoch
from kafka.core.produce.errors import (
    PRODUCE_ERROR_HANDLING,
    PRODUCER_ID_ERROR_ACTIONS,
    ProduceErrorAction,
    ProducerIdErrorAction,
)
from kafka.core.produce.sender import LAST_EPOCH, QUIET_S, RequestProducerId
from kafka.errors import (
    BrokerResponseError,
    ClusterAuthorizationFailedError,
    InvalidRecordError,
    KafkaConnectionError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    for_code,
)
from test.core.produce.model_broker import Partition
from test.core.produce.support import Rig, sequences

NOT_LEADER, TOO_LARGE, NOT_ENOUGH_REPLICAS, OUT_OF_ORDER, DUPLICATE, UNKNOWN_PRODUCER = 6, 10, 19, 45, 46, 59
INVALID_RECORD = 87

CODES = sorted(
    {
        found.errno
        for found in vars(errors).values()
        if isinstance(found, type) and issubclass(found, BrokerResponseError) and found.errno not in (None, 0)
    }
)
"""Every code that there is."""
RETRIED = [
    code for code in CODES if PRODUCE_ERROR_HANDLING.action_for(for_code(code)()).action is ProduceErrorAction.RETRY
]
RENUMBERED = [
    code for code in CODES if PRODUCE_ERROR_HANDLING.action_for(for_code(code)()).action is ProduceErrorAction.RENUMBER
]
FAILED = [
    code for code in CODES if PRODUCE_ERROR_HANDLING.action_for(for_code(code)()).action is ProduceErrorAction.FAIL
]
FATAL = [
    code for code in CODES if PRODUCE_ERROR_HANDLING.action_for(for_code(code)()).action is ProduceErrorAction.FATAL
]
SPLIT = [
    code for code in CODES if PRODUCE_ERROR_HANDLING.action_for(for_code(code)()).action is ProduceErrorAction.SPLIT
]


def test_what_brokers_answer_to_produce_and_to_init_producer_id_is_in_the_tables() -> None:
    by_produce = {-1, 2, 3, 6, 7, 10, 17, 18, 19, 20, 21, 29, 31, 32, 43, 44, 45, 46, 47, 48, 49, 53, 56, 59, 76, 87}
    by_init_producer_id = {7, 14, 15, 16, 31, 42, 47, 50, 51, 53, 90}
    assert by_produce | {42, 100, 120} <= {row.errno for row in PRODUCE_ERROR_HANDLING.rows}  # type: ignore[attr-defined]
    assert by_init_producer_id <= {row.errno for row in PRODUCER_ID_ERROR_ACTIONS.rows}  # type: ignore[attr-defined]


def test_each_code_has_one_fate_and_retriable_ones_are_never_final() -> None:
    assert sorted(RETRIED + RENUMBERED + FAILED + FATAL + SPLIT + [DUPLICATE]) == CODES
    assert all(
        PRODUCE_ERROR_HANDLING.action_for(for_code(code)()).action is ProduceErrorAction.RETRY
        for code in CODES
        if for_code(code).retriable
    )


@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
@pytest.mark.parametrize("code", RETRIED)
def test_retried_once_or_for_long_the_batch_is_sent_as_it_was_and_then_what_follows(
    code: int, idempotent: bool
) -> None:
    rig = Rig(idempotent=idempotent)
    batch = rig.put_alone(b"a")
    call = rig.call()
    sent = call.request.topic_data[0].partition_data[0].records
    for _ in range(5):
        rig.answer(call, code)
        rig.back_off(2)
        call = rig.call()
        assert call.request.topic_data[0].partition_data[0].records == sent
    later = rig.put_alone(b"b")
    rig.answer(call)
    rig.answer_all()
    assert batch.done.succeeded() and later.done.succeeded()


@pytest.mark.parametrize("code", RETRIED)
def test_retried_for_ever_it_fails_with_the_error_when_retries_are_used_up_or_with_the_time_that_is_over(
    code: int,
) -> None:
    for retries, expected in ((2, for_code(code)), (None, KafkaTimeoutError)):
        rig = Rig(retries=retries)
        batch = rig.put_alone(b"a")
        attempts = 0
        while not batch.done.is_done:
            for call in rig.calls():
                rig.answer(call, code)
                attempts += 1
            rig.back_off(1)
        assert type(batch.done.exception) is expected
        if retries is None:
            assert type(batch.done.exception.__cause__) is for_code(code), "what was refused last is told"
            assert for_code(code).__name__ in str(batch.done.exception)
        else:
            assert attempts == 1 + retries
        later = rig.put_alone(b"b")
        call = rig.call()
        assert sequences(call) == [(1, 0)], "under the next epoch: whether the number was used is not known"
        rig.answer(call)
        assert later.done.succeeded()


@pytest.mark.parametrize("code", RENUMBERED)
def test_renumbered_the_batch_goes_out_under_the_next_epoch(code: int) -> None:
    rig = Rig()
    rig.put_alone(b"a")
    rig.answer(rig.call())
    batch = rig.put_alone(b"b")
    for epoch in range(1, 4):
        rig.answer(rig.call(), code)
        rig.back_off(2)
        assert rig.sender.identity.value == ProducerIdAndEpoch(9, epoch - 1), "not before it is needed"
    call = rig.call()
    assert sequences(call) == [(3, 0)]
    rig.answer(call)
    assert batch.done.succeeded()


@pytest.mark.parametrize("code", [*FAILED, *RENUMBERED])
def test_failed_it_fails_alone_and_with_the_error(code: int) -> None:
    rig = Rig(idempotent=code in FAILED)
    first = rig.put_alone(b"a")
    later = rig.put_alone(b"b")
    calls = rig.calls()
    rig.answer(calls[0], code)
    assert type(first.done.exception) is for_code(code)
    rig.answer(calls[1], OUT_OF_ORDER if code in FAILED else 0)
    rig.back_off()
    rig.answer_all()
    assert later.done.succeeded()


@pytest.mark.parametrize("code", FATAL)
def test_fatal_it_ends_the_producer(code: int) -> None:
    rig = Rig(2)
    batches = [rig.put_alone(b"a", partition) for partition in (0, 1)]
    call = rig.call()
    waiting = rig.put_alone(b"b")
    rig.answer(call, code)
    assert rig.calls() == []
    assert all(type(batch.done.exception) is for_code(code) for batch in (*batches, waiting))


def test_a_repetition_that_the_leader_knows_is_a_success_without_an_offset() -> None:
    rig = Rig()
    batch = rig.put_alone(b"a")
    rig.lose(rig.call())
    rig.back_off()
    rig.answer(rig.call(), DUPLICATE)
    assert batch.done.value == (-1, -1)
    rig.put_alone(b"b")
    assert sequences(rig.call()) == [(0, 1)]


def test_an_unknown_producer_without_a_log_start_offset_is_asked_again_as_it_is() -> None:
    rig = Rig()
    rig.put_alone(b"a")
    rig.answer(rig.call(), UNKNOWN_PRODUCER, log_start_offset=-1)
    rig.back_off()
    call = rig.call()
    assert sequences(call) == [(0, 0)]
    rig.answer(call, UNKNOWN_PRODUCER, log_start_offset=5)
    rig.back_off(2)
    assert sequences(rig.call()) == [(1, 0)]


# -- numbers ---------------------------------------------------------------------------------------------------------


def test_what_may_be_in_the_log_is_asked_for_under_its_old_number_before_the_epoch_is_raised() -> None:
    rig = Rig()
    for value in (b"a", b"b", b"c"):
        rig.put_alone(value)
    first, second, third = rig.calls()
    rig.answer(first, INVALID_RECORD)
    rig.lose(second)
    rig.lose(third)
    rig.back_off(2)
    call = rig.call()
    assert sequences(call) == [(0, 1)], "it may be there"
    rig.answer(call, OUT_OF_ORDER)
    rig.back_off(2)
    call = rig.call()
    assert sequences(call) == [(1, 0)], "it is not"
    rig.answer(call)
    call = rig.call()
    assert sequences(call) == [(1, 1)], "so the one behind it is not there either"
    rig.answer(call)
    assert not rig.accumulator.incomplete


def test_the_first_batch_for_a_leader_that_may_know_nothing_goes_out_alone() -> None:
    rig = Rig(known=False, max_in_flight=5)
    for _ in range(3):
        rig.put_alone(b"x")
    (call,) = rig.calls()
    rig.answer(call, NOT_LEADER)
    rig.back_off()
    (call,) = rig.calls()
    rig.answer(call)
    assert [sequences(call) for call in rig.calls()] == [[(0, 1)], [(0, 2)]]


def test_after_a_silence_the_first_batch_goes_out_alone_again() -> None:
    rig = Rig()
    rig.put_alone(b"a")
    rig.answer(rig.call())
    rig.clock.advance(QUIET_S + 1)
    for _ in range(3):
        rig.put_alone(b"x")
    (call,) = rig.calls()
    rig.answer(call)
    assert len(rig.calls()) == 2


def test_after_the_last_epoch_a_new_id_is_asked_for_and_other_partitions_go_on_meanwhile() -> None:
    rig = Rig(2)
    rig.sender.identity_received(ProducerIdAndEpoch(9, LAST_EPOCH))
    for partition in (0, 1):
        rig.put_alone(b"a", partition)
    call = rig.call()
    assert sequences(call) == [(LAST_EPOCH, 0), (LAST_EPOCH, 0)]
    rig.answer(call)
    failed = rig.put_alone(b"b", 0)
    rig.answer(rig.call(), INVALID_RECORD)
    assert isinstance(failed.done.exception, InvalidRecordError)
    rig.put_alone(b"c", 1)
    busy = rig.call()
    rig.put_alone(b"c", 0)
    (effect,) = rig.poll()
    assert isinstance(effect, RequestProducerId)
    rig.put_alone(b"d", 1)
    assert sequences(rig.call()) == [(LAST_EPOCH, 2)], "it keeps what it has while it is busy"
    rig.sender.identity_received(ProducerIdAndEpoch(10, 0))
    assert sequences(rig.call()) == [(0, 0)]
    rig.answer(busy)


def test_a_batch_may_reach_across_the_last_sequence() -> None:
    rig = Rig()
    numbers = rig.topic.queues[0].numbers
    numbers.next_sequence = 2**31 - 3
    for _ in range(5):
        rig.put(b"x")
    assert sequences(rig.call()) == [(0, 2**31 - 3)]
    rig.put_alone(b"x")
    assert sequences(rig.call()) == [(0, 2)]


# -- the id ----------------------------------------------------------------------------------------------------------

ASKED_AGAIN = [
    code for code in CODES if PRODUCER_ID_ERROR_ACTIONS.action_for(for_code(code)()) is ProducerIdErrorAction.ASK_AGAIN
]
FAILS_WAITING = [
    code
    for code in CODES
    if PRODUCER_ID_ERROR_ACTIONS.action_for(for_code(code)()) is ProducerIdErrorAction.FAIL_WAITING
]
ENDS = [code for code in CODES if PRODUCER_ID_ERROR_ACTIONS.action_for(for_code(code)()) is ProducerIdErrorAction.END]


@pytest.mark.parametrize("code", ASKED_AGAIN)
def test_the_id_is_asked_for_again_and_nothing_is_lost(code: int) -> None:
    rig = Rig(known=False)
    batch = rig.put_alone(b"a")
    for _ in range(4):
        (effect,) = rig.poll()
        assert isinstance(effect, RequestProducerId)
        rig.sender.identity_failed(for_code(code)(), rig.clock.monotonic())
        assert rig.poll() == []
        rig.clock.advance(rig.sender.next_deadline - rig.clock.monotonic())
    assert rig.clock.monotonic() == pytest.approx(0.1 + 0.2 + 0.4 + 0.8), "each wait is twice the one before"
    rig.answer(rig.call())
    assert batch.done.succeeded()


@pytest.mark.parametrize("code", FAILS_WAITING)
def test_an_id_that_is_not_allowed_fails_what_waits_and_is_asked_for_again_with_the_next_record(code: int) -> None:
    rig = Rig(known=False)
    batch = rig.put_alone(b"a")
    rig.poll()
    rig.sender.identity_failed(for_code(code)(), rig.clock.monotonic())
    assert type(batch.done.exception) is for_code(code)
    rig.back_off()
    later = rig.put_alone(b"b")
    rig.answer(rig.call())
    assert later.done.succeeded()


@pytest.mark.parametrize("code", ENDS)
def test_an_id_that_will_never_be_given_ends_the_producer(code: int) -> None:
    rig = Rig(known=False)
    batch = rig.put_alone(b"a")
    rig.poll()
    rig.sender.identity_failed(for_code(code)(), rig.clock.monotonic())
    assert rig.poll() == []
    assert type(batch.done.exception) is for_code(code)
    assert type(rig.sender.error) is for_code(code)


# -- batches that are too large --------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", SPLIT)
@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
def test_a_batch_that_is_too_large_is_halved_until_it_fits_and_each_record_finds_its_place(
    code: int, idempotent: bool
) -> None:
    rig = Rig(idempotent=idempotent, known=False, max_in_flight=5 if idempotent else 1)
    partition = Partition(is_old=False)
    futures = [rig.future_alone(b"0")]
    futures += [rig.future(b"%d" % number) for number in range(1, 9)]
    futures.append(rig.future_alone(b"9"))
    partition.most_records = 2
    for _ in range(50):
        for call in rig.calls():
            found, offset, _ = partition.append(call.batches[0].encoded())
            rig.answer(call, code if found == TOO_LARGE else found, offset)
        rig.back_off()
    assert partition.values == list(range(10))
    assert [future.value.offset for future in futures if future.value] == list(range(10))
    assert rig.sender.counts.splits == 3
    assert rig.sender.identity.value.epoch <= 0, "numbered as if nothing had happened"
    assert rig.accumulator.memory.used_bytes == 0 and not rig.accumulator.incomplete


def test_a_single_record_that_is_too_large_fails_with_its_size_and_what_follows_goes_on() -> None:
    rig = Rig()
    large = rig.put_alone(b"x" * 5000)
    rig.answer(rig.call(), TOO_LARGE)
    assert isinstance(large.done.exception, MessageSizeTooLargeError)
    assert "one record of 50" in str(large.done.exception)
    later = rig.put_alone(b"y")
    call = rig.call()
    assert sequences(call) == [(1, 0)]
    rig.answer(call)
    assert later.done.succeeded()


def test_the_halves_of_a_batch_that_was_numbered_across_the_last_sequence_are_numbered_so_too() -> None:
    rig = Rig()
    rig.topic.queues[0].numbers.next_sequence = 2**31 - 2
    for _ in range(8):
        rig.put(b"x")
    rig.answer(rig.call(), TOO_LARGE)
    first = rig.call()
    assert sequences(first) == [(0, 2**31 - 2)]
    rig.answer(first)
    assert sequences(rig.call()) == [(0, 2)]


def test_the_same_records_are_in_the_halves_with_their_keys_times_and_headers() -> None:
    rig = Rig(idempotent=False)
    queue = rig.topic.queues[0]
    given = [(1000 + number, b"k%d" % number, b"v" * 50, [("h", b"%d" % number)]) for number in range(6)]
    for timestamp, key, value, headers in given:
        rig.accumulator.append(rig.topic, queue, timestamp, key, value, headers)
    rig.accumulator.close_open_batches()
    rig.answer(rig.call(), TOO_LARGE)
    found = []
    for _ in range(2):
        call = rig.call()
        found += rig.records(call.batches[0])
        rig.answer(call)
    assert [(each.timestamp, each.key, each.value, list(each.headers)) for each in found] == given


def test_a_batch_that_did_not_shrink_enough_is_halved_before_it_is_sent() -> None:
    rig = Rig(idempotent=False, max_request_bytes=500)
    futures = [rig.future(b"x" * 100) for _ in range(8)]
    rig.accumulator.close_open_batches()
    for _ in range(20):
        for call in rig.calls():
            (batch,) = call.batches
            assert len(batch.encoded()) <= 500
            rig.answer(call)
    assert all(future.succeeded() for future in futures)


# -- waits -----------------------------------------------------------------------------------------------------------


def test_the_wait_before_each_repetition_is_twice_the_one_before_up_to_the_most() -> None:
    rig = Rig()
    rig.put_alone(b"a")
    waits = []
    for _ in range(6):
        rig.answer(rig.call(), NOT_ENOUGH_REPLICAS)
        rig.poll()
        waits.append(rig.sender.next_deadline - rig.clock.monotonic())
        rig.clock.advance(waits[-1])
    assert waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_nothing_is_waited_for_when_the_metadata_has_a_newer_leader() -> None:
    rig = Rig()
    rig.leader_epochs[0] = 4
    rig.put_alone(b"a")
    rig.answer(rig.call(), NOT_LEADER)
    assert rig.calls() == []
    rig.leaders[0], rig.leader_epochs[0] = 2, 5
    assert rig.call().node == 2


def test_a_partition_that_waits_stops_no_other() -> None:
    rig = Rig(2)
    rig.put_alone(b"a", 0)
    rig.answer(rig.call(), NOT_LEADER)
    rig.put_alone(b"b", 1)
    assert rig.call().batches[0].partition == 1


# -- time that is over (KIP-91) --------------------------------------------------------------------------------------


def test_a_batch_in_flight_fails_when_its_time_is_over_and_nothing_overtakes_it() -> None:
    rig = Rig(delivery_timeout_s=30.0)
    batch = rig.put_alone(b"a")
    call = rig.call()
    rig.clock.advance(1.0)
    later = rig.put_alone(b"b")
    second = rig.call()
    assert rig.sender.next_deadline == 30.0
    rig.clock.advance(29.0)
    rig.poll()
    assert isinstance(batch.done.exception, KafkaTimeoutError)
    assert "node 1 has not answered" in str(batch.done.exception)
    assert not later.done.is_done
    rig.answer(call)
    rig.answer(second)
    assert later.done.succeeded()
    rig.put_alone(b"c")
    assert sequences(rig.call()) == [(0, 2)], "it was in the log after all: nothing is missing"


def test_after_a_batch_that_was_given_up_in_flight_and_is_not_in_the_log_the_epoch_is_raised() -> None:
    rig = Rig(delivery_timeout_s=30.0)
    batch = rig.put_alone(b"a")
    call = rig.call()
    rig.clock.advance(1.0)
    later = rig.put_alone(b"b")
    second = rig.call()
    rig.clock.advance(29.0)
    rig.poll()
    rig.lose(call)
    rig.answer(second, OUT_OF_ORDER)
    rig.back_off()
    call = rig.call()
    assert sequences(call) == [(1, 0)]
    rig.answer(call)
    assert batch.done.failed() and later.done.succeeded()
    assert rig.accumulator.memory.used_bytes == 0


def test_a_connection_that_is_lost_leaves_the_error_as_the_cause_of_the_timeout() -> None:
    rig = Rig(delivery_timeout_s=1.0)
    batch = rig.put_alone(b"a")
    rig.lose(rig.call())
    rig.leaders[0] = None
    rig.clock.advance(1.0)
    rig.poll()
    assert isinstance(batch.done.exception, KafkaTimeoutError)
    assert isinstance(batch.done.exception.__cause__, KafkaConnectionError)


def test_a_cluster_that_does_not_allow_it_is_reported_as_such() -> None:
    rig = Rig()
    batch = rig.put_alone(b"a")
    rig.answer(rig.call(), 31)
    rig.poll()
    assert isinstance(batch.done.exception, ClusterAuthorizationFailedError)


@pytest.mark.parametrize("in_flight", range(1, 6))
def test_as_many_batches_are_in_flight_as_were_allowed_and_they_keep_their_order(in_flight: int) -> None:
    rig = Rig(max_in_flight=in_flight)
    for number in range(8):
        rig.put_alone(b"%d" % number)
    calls = rig.calls()
    assert len(calls) == in_flight
    for call in calls:
        rig.lose(call)
    rig.back_off()
    log: list[bytes] = []
    while rig.accumulator.incomplete:
        for call in rig.calls():
            log += rig.values(call.batches[0])
            rig.answer(call)
    assert log == [b"%d" % number for number in range(8)]
