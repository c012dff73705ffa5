"""The table of recoveries over the embedded broker: each error that Produce and InitProducerId answer, answered once,
several times, and always. Each record arrives once and in order, or fails with exactly that error, and what follows
goes on."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kafka.core.produce.errors import (
    PRODUCE_ERROR_HANDLING,
    PRODUCER_ID_ERROR_ACTIONS,
    ProduceErrorAction,
    ProducerIdErrorAction,
)
from kafka.errors import (
    BrokerResponseError,
    DuplicateSequenceNumberError,
    KafkaStorageError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
)
from kafka.net.clock import AdjustableClock
from kafka.net.loop import Loop
from kafka.producer import FutureRecordMetadata, KafkaProducer
from kafka.protocol.produce import ProduceRequest
from kafka.testing import EmbeddedBroker
from test.producer.support import producer_in_memory
from test.support.waiting import until

DEADLINE_S = 30
DELIVERY_S = 60
RETRIES = 4
FAST: dict[str, Any] = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 4, "batch_max_records": 1}
Code = type[BrokerResponseError]

_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(in_process=True) as broker:
        yield broker


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    name = f"recoveries-{next(_numbers)}"
    broker.create_topic(name)
    return name


def with_action(*actions: ProduceErrorAction) -> list[Any]:
    # type: ignore[attr-defined]
    return [
        pytest.param(row, id=f"{row.errno}")
        for row, found in PRODUCE_ERROR_HANDLING.rows.items()
        if found.action in actions
    ]


def with_producer_id_action(action: ProducerIdErrorAction) -> list[Any]:
    # type: ignore[attr-defined]
    return [
        pytest.param(row, id=f"{row.errno}") for row, found in PRODUCER_ID_ERROR_ACTIONS.rows.items() if found is action
    ]


def send(producer: KafkaProducer, topic: str, *values: int) -> list[FutureRecordMetadata]:
    return [producer.send(topic, b"%d" % value, partition=0) for value in values]


def outcomes(futures: list[FutureRecordMetadata]) -> list[type[BaseException] | None]:
    """Of each record: None when it was delivered, or the class of its error."""
    found: list[type[BaseException] | None] = []
    for future in futures:
        try:
            future.get(DEADLINE_S)
        except Exception as error:
            assert not isinstance(error, KafkaTimeoutError) or "delivery_timeout_ms" in str(error), error
            found.append(type(error))
        else:
            found.append(None)
    return found


class Timed:
    """A producer on a loop whose time is set forward."""

    def __init__(self, producer: KafkaProducer, loop: Loop, clock: AdjustableClock) -> None:
        self.producer = producer
        self._loop = loop
        self._clock = clock

    def until(self, is_so: Callable[[], bool]) -> None:
        assert self._loop.run_until(is_so, DEADLINE_S)

    def overdue(self) -> None:
        """The time for what was sent until now is over."""
        self._clock.advance(DELIVERY_S)

    def outcomes(self, futures: list[FutureRecordMetadata]) -> list[type[BaseException] | None]:
        self.until(lambda: all(future.is_done for future in futures))
        return outcomes(futures)


@contextmanager
def timed(broker: EmbeddedBroker) -> Iterator[Timed]:
    clock = AdjustableClock()
    loop = Loop(clock)
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap, loop=loop, delivery_timeout_ms=1000 * DELIVERY_S,
        request_timeout_ms=1000 * DELIVERY_S, **FAST,
    )  # fmt: skip
    try:
        yield Timed(producer, loop, clock)
    finally:
        loop.run_until(producer.close_async(), DEADLINE_S)
        loop.close()


def log_of(broker: EmbeddedBroker, topic: str) -> list[int]:
    return [int(record.value or b"") for record in broker.records(topic)]


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("error", with_action(ProduceErrorAction.RETRY, ProduceErrorAction.RENUMBER))
def test_answered_once_or_several_times_nothing_is_lost_doubled_or_moved(
    broker: EmbeddedBroker, topic: str, error: Code, times: int
) -> None:
    with KafkaProducer(bootstrap_servers=broker.bootstrap, **FAST) as producer:
        futures = send(producer, topic, 0)
        producer.flush(DEADLINE_S)
        with broker.faults.answer("Produce", error, topic=topic, first=times) as fault:
            futures += send(producer, topic, *range(1, 20))
            assert outcomes(futures) == [None] * 20
            assert fault.hits == times
    assert log_of(broker, topic) == list(range(20))


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize(
    "error",
    [row for row in with_action(ProduceErrorAction.RETRY) if PRODUCE_ERROR_HANDLING.rows[row.values[0]].leaves_doubt],
)
def test_answered_although_it_is_in_the_log_it_is_there_once(
    broker: EmbeddedBroker, topic: str, error: Code, times: int
) -> None:
    with KafkaProducer(bootstrap_servers=broker.bootstrap, **FAST) as producer:
        futures = send(producer, topic, 0)
        with broker.faults.answer("Produce", error, topic=topic, first=times, when="after"):
            futures += send(producer, topic, *range(1, 20))
            assert outcomes(futures) == [None] * 20
    assert log_of(broker, topic) == list(range(20))


@pytest.mark.parametrize("error", with_action(ProduceErrorAction.RETRY, ProduceErrorAction.RENUMBER))
def test_answered_always_it_fails_with_that_error_when_retries_are_used_up_and_the_rest_goes_on(
    broker: EmbeddedBroker, topic: str, error: Code
) -> None:
    with KafkaProducer(bootstrap_servers=broker.bootstrap, retries=RETRIES, **FAST) as producer:
        with broker.faults.answer("Produce", error, topic=topic) as fault:
            assert outcomes(send(producer, topic, 0)) == [error]
            assert fault.hits == 1 + RETRIES
        assert outcomes(send(producer, topic, *range(1, 10))) == [None] * 9
    assert log_of(broker, topic) == list(range(1, 10))


@pytest.mark.parametrize("error", with_action(ProduceErrorAction.RETRY))
def test_answered_always_it_fails_with_the_time_that_is_over_and_names_the_error(
    broker: EmbeddedBroker, topic: str, error: Code
) -> None:
    with timed(broker) as it:
        with broker.faults.answer("Produce", error, topic=topic) as fault:
            (future,) = send(it.producer, topic, 0)
            it.until(lambda: fault.hits > 1)
            it.overdue()
            assert it.outcomes([future]) == [KafkaTimeoutError]
            assert error.__name__ in str(future.exception)
        assert it.outcomes(send(it.producer, topic, 1)) == [None]
    assert log_of(broker, topic) == [1]


@pytest.mark.parametrize("error", with_action(ProduceErrorAction.FAIL))
def test_what_is_final_fails_its_records_and_no_others(broker: EmbeddedBroker, topic: str, error: Code) -> None:
    with KafkaProducer(bootstrap_servers=broker.bootstrap, **FAST) as producer:
        futures = send(producer, topic, 0)
        producer.flush(DEADLINE_S)
        with broker.faults.answer("Produce", error, topic=topic, first=1):
            futures += send(producer, topic, *range(1, 10))
            assert outcomes(futures) == [None, error, *[None] * 8]
        with broker.faults.answer("Produce", error, topic=topic):
            assert outcomes(send(producer, topic, 10, 11)) == [error, error]
        assert outcomes(send(producer, topic, 12)) == [None]
    assert log_of(broker, topic) == [0, *range(2, 10), 12]


@pytest.mark.parametrize("error", with_action(ProduceErrorAction.SPLIT))
def test_what_is_too_large_is_split_and_a_single_record_fails(
    broker: EmbeddedBroker, topic: str, error: Code
) -> None:
    with KafkaProducer(
        bootstrap_servers=broker.bootstrap, linger_ms=60_000, **{**FAST, "batch_max_records": 8}
    ) as producer:
        with broker.faults.answer("Produce", error, topic=topic, first=3):
            futures = send(producer, topic, *range(20))
            producer.flush(DEADLINE_S)
            assert outcomes(futures) == [None] * 20
            assert [future.get(0).offset for future in futures] == list(range(20))
        with broker.faults.answer("Produce", error, topic=topic):
            futures = send(producer, topic, 20, 21, 22)
            producer.flush(DEADLINE_S)
            assert outcomes(futures) == [error] * 3
        futures = send(producer, topic, 23)
        producer.flush(DEADLINE_S)
        assert outcomes(futures) == [None]
    assert log_of(broker, topic) == [*range(20), 23]


@pytest.mark.parametrize("error", with_action(ProduceErrorAction.FATAL))
def test_what_is_fatal_fails_all_and_every_later_call(broker: EmbeddedBroker, topic: str, error: Code) -> None:
    with KafkaProducer(bootstrap_servers=broker.bootstrap, **FAST) as producer:
        assert outcomes(send(producer, topic, 0)) == [None]
        with broker.faults.answer("Produce", error, topic=topic, first=1):
            assert outcomes(send(producer, topic, 1, 2, 3)) == [error] * 3
        assert outcomes(send(producer, topic, 4)) == [error]
    assert log_of(broker, topic) == [0]


def test_a_repetition_that_is_called_one_is_a_success_without_an_offset(broker: EmbeddedBroker, topic: str) -> None:
    with KafkaProducer(bootstrap_servers=broker.bootstrap, **FAST) as producer:
        assert outcomes(send(producer, topic, 0)) == [None]
        with broker.faults.answer("Produce", DuplicateSequenceNumberError, topic=topic, first=1, when="after"):
            (future,) = send(producer, topic, 1)
            assert future.get(DEADLINE_S).offset == -1
        assert outcomes(send(producer, topic, 2)) == [None]
    assert log_of(broker, topic) == [0, 1, 2]


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("error", with_producer_id_action(ProducerIdErrorAction.ASK_AGAIN))
def test_the_id_is_asked_for_again(broker: EmbeddedBroker, topic: str, error: Code, times: int) -> None:
    with (
        broker.faults.answer("InitProducerId", error, first=times) as fault,
        KafkaProducer(bootstrap_servers=broker.bootstrap, **FAST) as producer,
    ):
        assert outcomes(send(producer, topic, *range(5))) == [None] * 5
        assert fault.hits == times
    assert log_of(broker, topic) == list(range(5))


@pytest.mark.parametrize("error", with_producer_id_action(ProducerIdErrorAction.ASK_AGAIN))
def test_an_id_that_is_never_given_fails_the_records_when_their_time_is_over(
    broker: EmbeddedBroker, topic: str, error: Code
) -> None:
    with timed(broker) as it:
        with broker.faults.answer("InitProducerId", error) as fault:
            futures = send(it.producer, topic, 0)
            it.until(lambda: fault.hits > 1)
            it.overdue()
            assert it.outcomes(futures) == [KafkaTimeoutError]
        assert it.outcomes(send(it.producer, topic, 1)) == [None]
    assert log_of(broker, topic) == [1]


@pytest.mark.parametrize("error", with_producer_id_action(ProducerIdErrorAction.FAIL_WAITING))
def test_an_id_that_is_not_allowed_fails_what_waits_and_may_be_allowed_later(
    broker: EmbeddedBroker, topic: str, error: Code
) -> None:
    with KafkaProducer(bootstrap_servers=broker.bootstrap, **FAST) as producer:
        with broker.faults.answer("InitProducerId", error):
            assert outcomes(send(producer, topic, 0)) == [error]
        assert outcomes(send(producer, topic, 1)) == [None]
    assert log_of(broker, topic) == [1]


@pytest.mark.parametrize("error", with_producer_id_action(ProducerIdErrorAction.END))
def test_an_id_that_is_refused_for_good_fails_all(broker: EmbeddedBroker, topic: str, error: Code) -> None:
    with KafkaProducer(bootstrap_servers=broker.bootstrap, **FAST) as producer:
        with broker.faults.answer("InitProducerId", error):
            assert outcomes(send(producer, topic, 0, 1)) == [error] * 2
        assert outcomes(send(producer, topic, 2)) == [error]


def test_batches_larger_than_the_topic_takes_arrive_in_parts_and_too_large_a_record_fails_alone(
    broker: EmbeddedBroker,
) -> None:
    topic = f"limited-{next(_numbers)}"
    broker.create_topic(topic, **{"max.message.bytes": 1000})
    with KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=60_000, batch_size=65536) as producer:
        values = [b"%03d" % number * 30 for number in range(200)]
        values[77] = b"x" * 2000
        futures = [producer.send(topic, value, partition=0) for value in values]
        producer.flush(DEADLINE_S)
        assert outcomes(futures) == [MessageSizeTooLargeError if value[:1] == b"x" else None for value in values]
        assert "one record of 20" in str(futures[77].exception)
    expected = values[:77] + values[78:]
    assert [record.value for record in broker.records(topic)] == expected
    offsets = [future.get(0).offset for future in futures[:77] + futures[78:]]
    assert offsets == list(range(199))


def test_a_flush_whose_time_is_over_says_why_and_the_log_does_before(
    broker: EmbeddedBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with KafkaProducer(bootstrap_servers=broker.bootstrap, **FAST) as producer:
        fault = broker.faults.answer("Produce", KafkaStorageError, topic=topic)
        with fault:
            future = producer.send(topic, b"0", partition=0)
            until(lambda: bool(stalled(caplog)))
            with pytest.raises(KafkaTimeoutError) as refused:
                producer.flush(0.001)
            assert re.search(rf"; last: \[Error 56\] KafkaStorageError: {topic}-0 at node \d+", str(refused.value))
        future.get(DEADLINE_S)
        producer.flush(DEADLINE_S)
    (line,) = stalled(caplog)
    assert re.search(rf"records of {topic}-0 are not written after 4 attempts, .*KafkaStorageError", line)


def test_producers_of_one_client_warn_once_a_minute_of_records_that_are_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As those of a schedule's owner do, one for each partition, when a broker is lost."""
    storage_error = 56
    with producer_in_memory(partitions=2, **FAST) as rig:
        other = KafkaProducer(client=rig.client, **FAST)
        one = rig.cluster.brokers[1]
        well = one.answers[ProduceRequest]
        one.answers[ProduceRequest] = lambda request, version: rig.cluster.response(
            request, lambda index, data: (storage_error, -1)
        )
        for number, producer in enumerate((rig.producer, other)):
            producer.send("t", b"0", partition=number)
        rig.loop.run_until(lambda: False, 50)
        assert len(stalled(caplog)) == 1
        one.answers[ProduceRequest] = well
        rig.flush()
        assert rig.loop.run_until(other.flush_async(), 100)
        other.close(timeout=0)


def stalled(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "kafka.producer.driver"]
