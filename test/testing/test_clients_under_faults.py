"""What our own clients make of each fault: records arrive once and in order, or the error is told."""

from __future__ import annotations

import contextlib
import random
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka import KafkaConsumer, KafkaProducer, KafkaShareConsumer
from kafka.errors import (
    CorruptRecordError,
    KafkaProtocolError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    UnsupportedVersionError,
)
from kafka.testing import EmbeddedBroker, Fault
from test.support.seeds import each_seed
from test.support.waiting import until

COUNT = 30


@pytest.fixture(scope="module")
def shared() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(in_process=True) as broker:
        yield broker


@pytest.fixture
def broker(shared: EmbeddedBroker) -> Iterator[EmbeddedBroker]:
    yield shared
    shared.faults.clear()
    shared.accept_connections()


@pytest.fixture
def topic(shared: EmbeddedBroker) -> str:
    return shared.create_topic(f"topic-{uuid.uuid4().hex[:8]}")


def values_of(broker: EmbeddedBroker, topic: str) -> list[bytes | None]:
    return [record.value for record in broker.records(topic)]


def produce(broker: EmbeddedBroker, topic: str, count: int = COUNT, **settings: Any) -> list[bytes]:
    """Records one by one, each in a request of its own; their values."""
    values = [b"%d" % number for number in range(count)]
    with KafkaProducer(bootstrap_servers=broker.bootstrap, retry_backoff_ms=10, **settings) as producer:
        for value in values:
            producer.send(topic, value).get(30)
    return values


Break = Callable[[EmbeddedBroker, str], Fault]
PRODUCE_FAULTS: dict[str, Break] = {
    "the acknowledgement is lost": lambda b, t: b.faults.close("Produce", when="after", topic=t, every=7),
    "the request is lost": lambda b, t: b.faults.close("Produce", topic=t, every=7),
    "the acknowledgement is cut off": lambda b, t: b.faults.close("Produce", when="during", topic=t, every=7),
    "the connection is reset": lambda b, t: b.faults.close("Produce", topic=t, reset=True, every=7),
    "the leader is elsewhere for a moment": lambda b, t: b.faults.answer("Produce", 6, topic=t, every=7),
    "it was written, and the answer is a timeout": lambda b, t: b.faults.answer(
        "Produce", "REQUEST_TIMED_OUT", when="after", topic=t, every=7
    ),
    "the batch is damaged on its way": lambda b, t: b.faults.corrupt("Produce", topic=t, every=7),
    "the answer is late": lambda b, t: b.faults.delay("Produce", 0.05, topic=t, every=7),
    "by chance": lambda b, t: b.faults.close("Produce", when="after", topic=t, probability=0.3, seed=5),
}


@pytest.mark.parametrize("make", PRODUCE_FAULTS.values(), ids=PRODUCE_FAULTS.keys())
def test_an_idempotent_producer_gives_each_record_once_and_in_order(
    broker: EmbeddedBroker, topic: str, make: Break
) -> None:
    fault = make(broker, topic)
    values = produce(broker, topic)
    assert fault.hits >= 3
    assert values_of(broker, topic) == values


def test_a_silent_broker_is_given_up_and_the_record_arrives_all_the_same(broker: EmbeddedBroker, topic: str) -> None:
    fault = broker.faults.drop("Produce", when="after", topic=topic, nth=2)
    values = produce(broker, topic, 4, request_timeout_ms=1000)
    assert fault.hits == 1
    assert values_of(broker, topic) == values


def test_a_refusal_for_good_is_reported_and_nothing_is_written(broker: EmbeddedBroker, topic: str) -> None:
    broker.faults.answer("Produce", MessageSizeTooLargeError, topic=topic)
    with KafkaProducer(bootstrap_servers=broker.bootstrap) as producer, pytest.raises(MessageSizeTooLargeError):
        producer.send(topic, b"x").get(30)
    assert values_of(broker, topic) == []


def test_a_late_request_of_a_producer_without_idempotence_is_a_second_record(
    broker: EmbeddedBroker, topic: str
) -> None:
    """The hazard that idempotence is for: given up by its client, and handled after all."""
    fault = broker.faults.delay("Produce", 3600, when="before", topic=topic, nth=1)
    produce(broker, topic, 1, enable_idempotence=False, request_timeout_ms=1000)
    assert fault.hits == 1
    written = values_of(broker, topic)
    assert written == [b"0"] * len(written), "once; or more, where an answer takes more than a second"
    broker.clock.advance(3600)
    assert values_of(broker, topic) == [*written, b"0"]


def consume(broker: EmbeddedBroker, topic: str, count: int, **settings: Any) -> list[bytes | None]:
    with contextlib.closing(
        KafkaConsumer(topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", **settings)
    ) as consumer:
        found: list[bytes | None] = []
        while len(found) < count:
            batches = consumer.poll(timeout_ms=10_000)
            assert batches, f"no more than {found}"
            found += [record.value for batch in batches.values() for record in batch]
        return found


FETCH_FAULTS: dict[str, Break] = {
    "the answer is cut off": lambda b, t: b.faults.close("Fetch", when="during", topic=t, nth=1),
    "the connection is reset": lambda b, t: b.faults.close("Fetch", topic=t, reset=True, nth=1),
    "the leader is elsewhere for a moment": lambda b, t: b.faults.answer("Fetch", 6, topic=t, first=2),
    "the session is unknown": lambda b, t: b.faults.answer("Fetch", "FETCH_SESSION_ID_NOT_FOUND", topic=t, nth=1),
    "the answer is late": lambda b, t: b.faults.delay("Fetch", 0.1, topic=t, first=2),
    "the topic is unknown for a moment": lambda b, t: b.faults.answer("Metadata", 3, topic=t, nth=1),
    "offsets are not to be had for a moment": lambda b, t: b.faults.answer("ListOffsets", 78, topic=t, nth=1),
}


@pytest.mark.parametrize("make", FETCH_FAULTS.values(), ids=FETCH_FAULTS.keys())
def test_a_consumer_reads_each_record_once_and_in_order(broker: EmbeddedBroker, topic: str, make: Break) -> None:
    values = produce(broker, topic, 5)
    fault = make(broker, topic)
    assert consume(broker, topic, 5) == values
    assert fault.hits >= 1


@each_seed(4)
def test_records_arrive_once_and_are_all_read_through_any_sequence_of_faults(seed: int) -> None:
    rng = random.Random(seed)
    sent = [b"%d" % number for number in range(200)]
    with EmbeddedBroker(in_process=True) as broker:
        topic = broker.create_topic("t")
        settings: dict[str, Any] = {"bootstrap_servers": broker.bootstrap, "retry_backoff_ms": 10}
        with (
            KafkaShareConsumer(topic, group_id="g", **settings) as consumer,
            KafkaProducer(**settings) as producer,
        ):
            while not broker.requests.find("ShareFetch"):
                consumer.poll(timeout_ms=100)
            for api in ("Produce", "ShareFetch", "ShareAcknowledge", "ShareGroupHeartbeat", "Metadata"):
                when = rng.choice(("before", "after", "during"))
                broker.faults.close(api, when=when, probability=0.03, seed=seed)
                broker.faults.delay(api, 0.05, probability=0.05, seed=seed + 1)
            broker.faults.answer(["Produce", "ShareFetch"], "NOT_LEADER_OR_FOLLOWER", probability=0.03, seed=seed)
            broker.faults.answer("ShareGroupHeartbeat", "NOT_COORDINATOR", probability=0.1, seed=seed)
            for number, value in enumerate(sent):
                producer.send(topic, value)
                if number % 20 == 0:
                    producer.flush()
            producer.flush()
            got: set[bytes | None] = set()

            def poll() -> None:
                got.update(record.value for records in consumer.poll(timeout_ms=500).values() for record in records)

            until(lambda: len(got) >= len(sent), meanwhile=poll)
            broker.faults.clear()
        assert got == set(sent)
        assert values_of(broker, topic) == sent


def test_an_answer_that_makes_no_sense_is_reported_and_clients_go_on(broker: EmbeddedBroker, topic: str) -> None:
    broker.faults.truncate("Produce", topic=topic, nth=2)
    with KafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
        futures = []
        for number in range(4):
            futures.append(producer.send(topic, b"%d" % number))
            with contextlib.suppress(KafkaProtocolError):
                futures[-1].get(30)
    assert [isinstance(future.exception, KafkaProtocolError) for future in futures] == [False, True, False, False]
    broker.faults.truncate("Fetch", topic=topic, nth=1)
    broker.faults.corrupt("Fetch", topic=topic, nth=2)
    found: list[bytes | None] = []
    with contextlib.closing(
        KafkaConsumer(topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
    ) as consumer:
        errors: list[type[BaseException]] = []
        while len(found) < 4:
            try:
                batches = consumer.poll(timeout_ms=10_000)
            except (CorruptRecordError, KafkaProtocolError) as error:
                errors.append(type(error))
                continue
            assert batches, "what was told once does not end it"
            found += [record.value for batch in batches.values() for record in batch]
    assert found == [b"0", b"1", b"2", b"3"], "whether the second one was written was not known; it was"
    assert set(errors) == {CorruptRecordError, KafkaProtocolError}


def test_a_share_consumer_finds_its_coordinator_again(broker: EmbeddedBroker, topic: str) -> None:
    produce(broker, topic, 5)
    group = f"group-{uuid.uuid4().hex[:8]}"
    broker.faults.answer("FindCoordinator", "COORDINATOR_LOAD_IN_PROGRESS", first=2)
    moved = broker.faults.answer("ShareGroupHeartbeat", "NOT_COORDINATOR", first=1)
    with KafkaShareConsumer(topic, bootstrap_servers=broker.bootstrap, group_id=group) as consumer:
        consumer.poll(timeout_ms=100)
        moved.wait()
        broker.requests.wait("ShareFetch", client_id=None)
        broker.fill(topic, ["later"])
        found: list[bytes | None] = []
        while b"later" not in found:
            batches = consumer.poll(timeout_ms=10_000)
            assert batches
            found += [record.value for batch in batches.values() for record in batch]
    assert len(broker.requests.find("FindCoordinator")) >= 3


def test_a_producer_in_front_of_a_closed_door_says_so_and_goes_in_when_it_opens(
    broker: EmbeddedBroker, topic: str
) -> None:
    with KafkaProducer(
        bootstrap_servers=broker.bootstrap, delivery_timeout_ms=30_000, reconnect_backoff_max_ms=100
    ) as producer:
        producer.send(topic, b"first").get(30)
        broker.refuse_connections()
        broker.disconnect_all()
        future = producer.send(topic, b"second")
        with pytest.raises(KafkaTimeoutError):
            future.get(0.3)
        broker.accept_connections()
        future.get(30)
    assert values_of(broker, topic) == [b"first", b"second"]


def test_a_producer_raises_at_once_that_the_broker_is_too_old_for_its_settings() -> None:
    with (
        EmbeddedBroker(in_process=True, emulate="0.10") as broker,
        KafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=True) as producer,
        pytest.raises(UnsupportedVersionError, match=r"enable_idempotence=True needs Kafka 0\.11 .* release 0\.10"),
    ):
        producer.send("t", b"x").get(30)


def test_records_of_an_hour_ago_are_not_kept_longer_than_the_topic_says(broker: EmbeddedBroker) -> None:
    name = broker.create_topic(f"short-{uuid.uuid4().hex[:8]}", retention_ms=600_000, segment_ms=60_000)
    broker.fill(name, ["old"])
    broker.clock.advance(3600)
    broker.fill(name, ["new"])
    broker.clock.advance(400)
    assert b"old" not in values_of(broker, name)


def test_nothing_acknowledged_is_lost_when_the_broker_is_killed_between_two_moments(tmp_path: Any) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        topic = broker.create_topic("t")
        with KafkaProducer(bootstrap_servers=broker.bootstrap, retry_backoff_ms=10) as producer:
            acknowledged = []
            for number in range(12):
                value = b"%d" % number
                if number % 4 == 3:
                    when = ("before", "after", "during")[number // 4]
                    kill = broker.faults.kill("Produce", when=when, nth=1)
                    future = producer.send(topic, value)
                    kill.wait()
                    broker.wait_ended()
                    broker.start()
                else:
                    future = producer.send(topic, value)
                future.get(30)
                acknowledged.append(value)
        assert values_of(broker, topic) == acknowledged
