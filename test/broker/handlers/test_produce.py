"""Produce and InitProducerId: what gets in, and with which error the rest is refused."""

from __future__ import annotations

from uuid import UUID

import pytest

from kafka.broker import log_validator
from kafka.broker.responses import ConnectionContext
from kafka.errors import UnsupportedCodecError
from kafka.protocol.configs import IncrementalAlterConfigsRequest
from kafka.protocol.produce import ProduceRequest
from kafka.protocol.transactions import InitProducerIdRequest
from kafka.records import RecordBatchBuilder
from test.broker.driver import EPOCH_S, HandBroker, batch, fetch_request, fetched, produce_request, values

GOOD = batch(b"a", b"b", b"c")
HOUR_MS = 3_600_000


def changed(data: bytes, at: int, value: int) -> bytes:
    copy = bytearray(data)
    copy[at] = value
    return bytes(copy)


@pytest.mark.parametrize("version", range(3, 14))
def test_a_batch_gets_the_next_offsets_in_every_version(hand: HandBroker, version: int) -> None:
    topic_id = hand.create_topic("t")
    request = produce_request("t", GOOD)
    request.topic_data[0].topic_id = topic_id
    for base in (0, 3):
        answer = hand.ask(request, version).responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, base, -1)


def test_a_topic_of_append_time_says_when(hand: HandBroker) -> None:
    hand.create_topic("t", message_timestamp_type="LogAppendTime")
    hand.now = 5.0
    late = batch(timestamp=int(EPOCH_S * 1000) + 9 * HOUR_MS)
    assert hand.produce("t", late).log_append_time_ms == int(EPOCH_S * 1000) + 5000


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (None, 87),
        (b"", 87),
        (GOOD[:30], 87),
        (GOOD[:-3], 87),
        (changed(GOOD, -2, 0xAA), 2),
        (GOOD + GOOD, 87),
        (changed(GOOD, 16, 1), 87),
        (changed(GOOD, 16, 9), 2),
        (batch(b"x" * 1_100_000), 10),
        (batch(timestamp=int(EPOCH_S * 1000) + 2 * HOUR_MS), 32),
        (batch(timestamp=1000), 0),
        (batch(transactional=True, producer=(1, 0, 0)), 53),
        (batch(control=True), 87),
    ],
    ids=[
        "null",
        "empty",
        "short",
        "cut",
        "crc",
        "two",
        "magic-1",
        "magic-9",
        "big",
        "future",
        "past",
        "txn",
        "control",
    ],
)
def test_a_bad_batch_is_refused_with_kafkas_error_and_nothing_is_written(
    hand: HandBroker, data: bytes | None, code: int
) -> None:
    hand.create_topic("t")
    answer = hand.produce("t", data)
    assert answer.error_code == code
    assert answer.base_offset == (-1 if code else 0)
    assert hand.broker.logs.log(hand.broker.topic("t"), 0).end_offset == (0 if code else 1)


@pytest.mark.parametrize("size", [13, 0, -1, -1_577_058_217])
def test_behind_a_transactional_batch_a_size_that_no_batch_has_is_corrupt(hand: HandBroker, size: int) -> None:
    # Java: ByteBufferLogInputStream.nextBatchSize; ProduceRequest.validateRecords is called for each partition, while
    # RequestUtils.hasTransactionalRecords looks no further than the first transactional batch.
    hand.create_topic("t", partitions=2)
    request = produce_request("t", batch(transactional=True, producer=(1, 0, 0)))
    request.transactional_id = "x"
    bad = GOOD[:8] + size.to_bytes(4, "big", signed=True) + GOOD[12:]
    request.topic_data[0].partition_data.append(ProduceRequest.PartitionProduceData(index=1, records=bad))
    assert hand.ask(request, 9).responses[0].partition_responses[1].error_code == 2


def test_records_of_the_future_are_named_one_by_one(hand: HandBroker) -> None:
    hand.create_topic("t")
    answer = hand.produce("t", batch(b"a", b"b", timestamp=int(EPOCH_S * 1000) + 2 * HOUR_MS))
    assert [row.batch_index for row in answer.record_errors] == [0, 1]
    assert "out of range" in (answer.record_errors[0].batch_index_error_message or "")


def test_records_of_the_past_and_without_keys_are_named_too(hand: HandBroker) -> None:
    hand.create_topic("t", cleanup_policy="compact", message_timestamp_before_max_ms=str(HOUR_MS))
    builder = RecordBatchBuilder(1 << 20)
    now_ms = int(EPOCH_S * 1000)
    for key, time_ms in ((b"k", now_ms), (None, now_ms), (b"k", now_ms - 2 * HOUR_MS), (b"k", -1)):
        builder.append(time_ms, key, b"v")
    answer = hand.produce("t", builder.build(-1, -1, -1))
    assert (answer.error_code, answer.log_start_offset) == (32, 0)
    assert [row.batch_index for row in answer.record_errors] == [1, 2]
    assert f"[{now_ms - HOUR_MS}, {now_ms + HOUR_MS}]" in (answer.record_errors[1].batch_index_error_message or "")


def test_only_the_first_three_records_without_a_key_are_in_the_text_and_all_in_the_list(hand: HandBroker) -> None:
    hand.create_topic("t", cleanup_policy="compact")
    answer = hand.produce("t", batch(*[b"v"] * 5))
    assert (answer.error_code, len(answer.record_errors)) == (87, 5)
    assert (answer.error_message or "").count("batchIndex=") == 3


@pytest.mark.parametrize(("time_ms", "code"), [(0, 0), (2 * HOUR_MS, 32), (-2 * HOUR_MS, 32)])
def test_of_records_that_cannot_be_read_here_the_header_has_to_do(
    hand: HandBroker, monkeypatch: pytest.MonkeyPatch, time_ms: int, code: int
) -> None:
    hand.create_topic("t", message_timestamp_before_max_ms=str(HOUR_MS))

    def unreadable(*_: object, **__: object) -> None:
        raise UnsupportedCodecError("no library for this compression")

    monkeypatch.setattr(log_validator, "BatchValidator", unreadable)
    answer = hand.produce("t", batch(timestamp=int(EPOCH_S * 1000) + time_ms))
    assert (answer.error_code, answer.record_errors) == (code, [])


def test_a_request_that_names_too_many_partitions_ends_its_connection(hand: HandBroker) -> None:
    def request(partitions: int) -> ProduceRequest:
        given = [ProduceRequest.PartitionProduceData(index=at, records=None) for at in range(partitions)]
        topic = ProduceRequest.TopicProduceData(name="t", partition_data=given)
        return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])

    hand.create_topic("t")
    assert hand.send(request(15_999), 9).hang_up is False
    assert hand.send(request(16_000), 9, ConnectionContext()).hang_up


def test_nobody_writes_to_the_brokers_own_topics(hand: HandBroker) -> None:
    hand.broker.metadata.create_topic("__consumer_offsets", hand.broker.ids.new_topic_id(), 1)
    assert hand.produce("__consumer_offsets", GOOD).error_code == 17


@pytest.mark.parametrize(("partition", "code"), [(7, 3), (-1, 3), (0, 0)])
def test_a_partition_that_is_not_there_is_unknown(hand: HandBroker, partition: int, code: int) -> None:
    hand.create_topic("t")
    assert hand.produce("t", GOOD, partition=partition).error_code == code


def test_an_unknown_topic_is_3_by_name_and_100_by_id(hand: HandBroker) -> None:
    assert hand.produce("nope", GOOD).error_code == 3
    request = produce_request("", GOOD)
    request.topic_data[0].topic_id = UUID(int=7)
    assert hand.ask(request, 13).responses[0].partition_responses[0].error_code == 100


def test_one_bad_partition_does_not_harm_the_others(hand: HandBroker) -> None:
    hand.create_topic("t", 2)
    request = produce_request("t", GOOD, partition=1)
    request.topic_data[0].partition_data.insert(0, ProduceRequest.PartitionProduceData(index=0, records=b"junk"))
    answer = hand.ask(request, 9).responses[0].partition_responses
    assert [row.error_code for row in answer] == [87, 0]


def test_acks_of_another_kind_are_refused(hand: HandBroker) -> None:
    hand.create_topic("t")
    assert hand.produce("t", GOOD, acks=2).error_code == 21


def test_acks_0_gets_silence_and_a_fault_a_closed_connection(hand: HandBroker) -> None:
    hand.create_topic("t")
    good = hand.send(produce_request("t", GOOD, acks=0), 9)
    assert good.done
    assert good.response is None
    assert not good.hang_up
    assert hand.send(produce_request("nope", GOOD, acks=0), 9).hang_up


def test_an_idempotent_producer_is_held_to_its_sequence(hand: HandBroker) -> None:
    hand.create_topic("t")
    producer_id = hand.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 5).producer_id

    def send(sequence: int, epoch: int = 0) -> tuple[int, int]:
        answer = hand.produce("t", batch(b"1", b"2", producer=(producer_id, epoch, sequence)))
        return answer.error_code, answer.base_offset

    assert send(0) == (0, 0)
    assert send(0) == (0, 0), "a duplicate is answered as it was"
    assert send(2) == (0, 2)
    assert send(9) == (45, -1)
    assert send(0, epoch=1) == (0, 4)
    assert send(4) == (47, -1)
    assert hand.broker.logs.log(hand.broker.topic("t"), 0).end_offset == 6


def test_producer_ids_are_never_given_twice(hand: HandBroker) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    first = [hand.ask(request, 4).producer_id for _ in range(1005)]
    hand.restart()
    later = [hand.ask(request, 4).producer_id for _ in range(3)]
    assert len({*first, *later}) == 1008



def test_a_changed_limit_holds_at_once(hand: HandBroker) -> None:
    hand.create_topic("t")
    assert hand.produce("t", batch(b"x" * 2000)).error_code == 0
    change = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=2,
        resource_name="t",
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(name="max.message.bytes", config_operation=0, value="1000")
        ],
    )
    hand.ask(IncrementalAlterConfigsRequest(resources=[change], validate_only=False))
    assert hand.produce("t", batch(b"x" * 2000)).error_code == 10
    answer = hand.ask(fetch_request("t"), 12)
    assert len(values(fetched(answer)[0].records)) == 1
