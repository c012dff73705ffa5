"""``KafkaProducer`` on every release: what they refuse, split and remember is what the table of recoveries believes.

Leaders that move, and the hints of those that have moved, take two brokers: ``test/client/test_real_cluster.py``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from kafka.client.connection import BrokerConnection
from kafka.core.states import ConnectionState
from kafka.errors import Cancelled, IllegalStateError, InvalidRecordError, KafkaTimeoutError, MessageSizeTooLargeError
from kafka.net.tcp import TcpTransport
from kafka.producer import KafkaProducer
from kafka.producer.sending import FutureRecordMetadata, RecordMetadata
from test.conformance.reading import DEADLINE_S, batches_of, outcomes, records_of_all, values_of
from test.support.either_broker import every_release

pytestmark = every_release

NewTopicFixture = Callable[..., str]


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
def test_batches_larger_than_the_topic_takes_arrive_in_parts_and_too_large_a_record_fails_alone(
    bootstrap: str, new_topic: NewTopicFixture, idempotent: bool, compression: str | None
) -> None:
    topic = new_topic(max_message_bytes=1000)
    options: dict[str, Any] = {} if idempotent else {
        "enable_idempotence": False, "max_in_flight_requests_per_connection": 1,
    }  # fmt: skip
    values = [b"%04d" % (number * 7919 % 10_000) * 25 for number in range(300)]
    if compression is None:
        values[77] = b"x" * 2000
    with KafkaProducer(
        bootstrap_servers=bootstrap,
        linger_ms=60_000,
        batch_size=65_536,
        compression_type=compression,
        retry_backoff_ms=1,
        **options,
    ) as producer:
        futures = [producer.send(topic, value, partition=0) for value in values]
        producer.flush(DEADLINE_S)
        assert outcomes(futures) == [MessageSizeTooLargeError if value[:1] == b"x" else None for value in values]
    expected = [value for value in values if value[:1] != b"x"]
    assert values_of(bootstrap, topic) == expected
    assert [future.get(0).offset for future in futures if future.succeeded()] == list(range(len(expected)))


@pytest.mark.parametrize("in_flight", range(1, 6))
def test_a_record_that_is_refused_fails_alone_and_those_in_flight_behind_it_arrive_once_and_in_order(
    bootstrap: str, new_topic: NewTopicFixture, in_flight: int
) -> None:
    topic = new_topic(cleanup_policy="compact")
    keys = [None if number in (0, 1, 50, 51, 99) else b"k%d" % number for number in range(100)]
    with KafkaProducer(
        bootstrap_servers=bootstrap,
        batch_max_records=1,
        max_in_flight_requests_per_connection=in_flight,
        retry_backoff_ms=1,
    ) as producer:
        futures = [producer.send(topic, b"%d" % n, key=key, partition=0) for n, key in enumerate(keys)]
        assert outcomes(futures) == [InvalidRecordError if key is None else None for key in keys]
    assert values_of(bootstrap, topic) == [b"%d" % number for number, key in enumerate(keys) if key is not None]


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_record_arrives_with_each_kind_of_acknowledgement(
    bootstrap: str, new_topic: NewTopicFixture, acks: int | str
) -> None:
    topic = new_topic()
    with KafkaProducer(bootstrap_servers=bootstrap, acks=acks) as producer:
        futures = [producer.send(topic, b"%d" % number, partition=0) for number in range(500)]
        producer.flush(DEADLINE_S)
        offsets = [future.get(0).offset for future in futures]
        assert offsets == ([-1] * 500 if acks == 0 else list(range(500)))
    assert values_of(bootstrap, topic) == [b"%d" % number for number in range(500)]


def test_a_record_above_max_request_size_is_refused_at_the_call_and_the_brokers_limit_afterwards(
    bootstrap: str, new_topic: NewTopicFixture
) -> None:
    topic = new_topic()
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        with pytest.raises(MessageSizeTooLargeError, match="max_request_size"):
            producer.send(topic, bytes(1_100_000))
        assert producer.send(topic, bytes(1_000_000)).get(DEADLINE_S).offset == 0
    with KafkaProducer(bootstrap_servers=bootstrap, max_request_size=4_000_000) as producer:
        with pytest.raises(MessageSizeTooLargeError):
            producer.send(topic, bytes(1_100_000)).get(DEADLINE_S)
        assert producer.send(topic, b"x").get(DEADLINE_S).offset == 1


# -- idempotence -------------------------------------------------------------------------------------------------------


def test_batches_of_an_idempotent_producer_are_numbered_without_a_gap_and_those_of_another_are_not(
    bootstrap: str, new_topic: NewTopicFixture
) -> None:
    topic = new_topic()
    with KafkaProducer(bootstrap_servers=bootstrap, batch_max_records=10) as producer:
        outcomes([producer.send(topic, b"x") for _ in range(95)])
    with KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=False) as producer:
        producer.send(topic, b"plain").get(DEADLINE_S)
    *numbered, plain = batches_of(bootstrap, topic)
    assert {batch.producer_id for batch in numbered} == {numbered[0].producer_id}
    assert numbered[0].producer_id >= 0
    assert {batch.producer_epoch for batch in numbered} == {0}
    assert [batch.base_sequence for batch in numbered] == [batch.base_offset for batch in numbered]
    assert (plain.producer_id, plain.producer_epoch, plain.base_sequence) == (-1, -1, -1)
    assert plain.base_offset == 95


def test_answers_that_are_lost_leave_each_record_there_once_and_in_order(
    bootstrap: str, new_topic: NewTopicFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, is_losing, answers, lost = TcpTransport._read, False, 0, 0

    def read_or_lose(self: TcpTransport) -> None:
        nonlocal answers, lost
        connection = getattr(self._handler, "_connection", None)
        is_ready = is_losing and isinstance(connection, BrokerConnection) and connection.state is ConnectionState.READY
        answers += is_ready
        if is_ready and answers % 7 == 0:
            lost += 1
            self.abort(ConnectionResetError("lost on purpose"))
        else:
            read(self)

    topic = new_topic(2)
    monkeypatch.setattr(TcpTransport, "_read", read_or_lose)  # before there are transports, which remember it
    with KafkaProducer(
        bootstrap_servers=bootstrap,
        batch_max_records=10,  # five answers may come with one read
        retry_backoff_ms=1,
        reconnect_backoff_ms=1,
        reconnect_backoff_max_ms=5,
    ) as producer:
        producer.partitions_for(topic)
        is_losing = True
        futures = [producer.send(topic, b"%d" % number, partition=number % 2) for number in range(2000)]
        assert outcomes(futures) == [None] * 2000
        is_losing = False
    assert lost >= 3
    found = [[record.value for record in records] for records in records_of_all(bootstrap, topic, 2)]
    assert found == [[b"%d" % number for number in range(partition, 2000, 2)] for partition in range(2)]


# -- callbacks, flush and close ----------------------------------------------------------------------------------------


def test_callbacks_hear_of_each_record_in_the_order_of_its_partition_and_of_the_one_that_failed(
    bootstrap: str, new_topic: NewTopicFixture
) -> None:
    topic = new_topic(cleanup_policy="compact")
    outcomes: list[tuple[int, RecordMetadata | BaseException]] = []
    every = threading.Event()

    def hear(number: int, outcome: RecordMetadata | BaseException) -> None:
        outcomes.append((number, outcome))
        if len(outcomes) == 100:
            every.set()

    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        for number in range(100):
            future = producer.send(topic, b"v", key=None if number == 99 else b"%d" % number, partition=0)
            future.add_callback(hear, number).add_errback(hear, number)
            if number in (49, 98):
                producer.flush(DEADLINE_S)
        assert every.wait(DEADLINE_S)
    assert [number for number, _ in outcomes] == list(range(100))
    assert isinstance(outcomes[-1][1], InvalidRecordError)
    where = [metadata for _, metadata in outcomes[:99] if isinstance(metadata, RecordMetadata)]
    assert [(found.topic, found.partition, found.offset) for found in where] == [(topic, 0, n) for n in range(99)]


def test_flush_sends_what_lingers_and_returns_when_all_of_it_has_been_answered(
    bootstrap: str, new_topic: NewTopicFixture
) -> None:
    topic = new_topic(3)
    with KafkaProducer(bootstrap_servers=bootstrap, linger_ms=600_000, delivery_timeout_ms=900_000) as producer:
        for turn in range(1, 4):
            futures = [producer.send(topic, b"%d" % number, partition=number % 3) for number in range(30)]
            with pytest.raises(KafkaTimeoutError, match=topic):
                futures[0].get(0.01)
            producer.flush(DEADLINE_S)
            assert [future.is_done for future in futures] == [True] * 30
            assert [len(records) for records in records_of_all(bootstrap, topic, 3)] == [10 * turn] * 3


def test_close_delivers_what_is_there_and_at_once_it_fails_what_is_there(
    bootstrap: str, new_topic: NewTopicFixture
) -> None:
    topic = new_topic()

    def begun() -> tuple[KafkaProducer, list[FutureRecordMetadata]]:
        producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=600_000, delivery_timeout_ms=900_000)
        return producer, [producer.send(topic, b"%d" % number) for number in range(100)]

    producer, futures = begun()
    producer.close()
    assert outcomes(futures) == [None] * 100
    with pytest.raises(IllegalStateError, match="closed"):
        producer.send(topic, b"late")
    producer, futures = begun()
    producer.close(timeout=0)
    assert outcomes(futures) == [Cancelled] * 100
    assert values_of(bootstrap, topic) == [b"%d" % number for number in range(100)]
