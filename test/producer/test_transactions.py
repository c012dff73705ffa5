"""Transactions of KafkaProducer over the embedded broker, with both protocols: the calls, their ends, their limits."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka import KafkaProducer, TopicPartition
from kafka.core.states import TransactionPhase
from kafka.errors import (
    AbortableTransactionError,
    FatalTransactionError,
    IllegalArgumentError,
    IllegalStateError,
    InvalidProducerEpochError,
    InvalidTransactionTimeoutError,
    KafkaConfigurationError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    ProducerFencedError,
    TransactionAbortedError,
    UnsupportedVersionError,
)
from kafka.future import Future
from kafka.net.loop import Loop
from kafka.protocol.offsets import OffsetFetchRequest
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata
from kafka.testing import EmbeddedBroker
from test.broker.raw_client import RawClient

VERSIONS = {"4.3": 2, "3.9": 1, "1.1": 1}
"""Emulated release -> version of the protocol; 1.1 gives no new epochs (KIP-360)."""
SOURCE = TopicPartition("source", 0)


@pytest.fixture(scope="module", params=VERSIONS)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def broker(release: str) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(in_process=True, emulate=release, topics={"source": 1}) as running:
        yield running


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    return broker.create_topic(f"t-{uuid.uuid4().hex[:8]}", partitions=3)


Make = Callable[..., KafkaProducer]


@pytest.fixture
def make(broker: EmbeddedBroker) -> Iterator[Make]:
    """``make()``: a transactional producer, closed at the end."""
    made: list[KafkaProducer] = []

    def new(name: str | None = None, **settings: Any) -> KafkaProducer:
        name = name or f"id-{uuid.uuid4().hex[:8]}"
        settings = {"retry_backoff_ms": 5, "max_block_ms": 20_000, "client_id": name, **settings}
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=name, **settings)
        made.append(producer)
        return producer

    yield new
    for producer in made:
        producer.close(timeout=5)


def values(broker: EmbeddedBroker, topic: str) -> list[bytes]:
    """What a read_committed consumer sees, in no order."""
    return sorted(record.value for record in broker.records(topic) if record.value is not None)


def state_of(producer: KafkaProducer) -> TransactionPhase:
    assert producer._transactions is not None
    return producer._transactions.machine.state


# -- what it is for ---------------------------------------------------------------------------------------------------


def test_what_is_committed_is_read_and_what_is_aborted_is_not(broker: EmbeddedBroker, topic: str, make: Make) -> None:
    producer = make()
    producer.init_transactions()
    for number in range(6):
        producer.begin_transaction()
        futures = [producer.send(topic, b"%d-%d" % (number, n), partition=n % 3) for n in range(5)]
        if number % 2:
            producer.flush()
            producer.abort_transaction()
            assert all(future.succeeded() for future in futures)
        else:
            producer.commit_transaction()
            assert all(future.succeeded() for future in futures), "a commit flushes"
    assert values(broker, topic) == sorted(b"%d-%d" % (number, n) for number in (0, 2, 4) for n in range(5))


def test_the_version_of_the_protocol_is_that_of_the_cluster_and_decides_which_requests_are_made(
    broker: EmbeddedBroker, release: str, topic: str, make: Make
) -> None:
    producer = make()
    producer.init_transactions()
    for _ in range(2):
        with producer.transaction():
            for partition in range(3):
                producer.send(topic, b"x", partition=partition)
            producer.send_offsets_to_transaction({SOURCE: OffsetAndMetadata(3)}, "g")
    assert producer._transactions is not None
    machine = producer._transactions.machine
    assert machine.version == VERSIONS[release]
    mine = [seen for seen in broker.requests if seen.client_id == machine.transactional_id]
    spoken: dict[str, set[int]] = {}
    for seen in mine:
        spoken.setdefault(seen.api, set()).add(seen.version)
    if VERSIONS[release] == 2:
        assert not {"AddPartitionsToTxn", "AddOffsetsToTxn"} & set(spoken)
        assert min(spoken["Produce"]) >= 12
        assert spoken["EndTxn"] == spoken["TxnOffsetCommit"] == {5}
        assert machine.identity.epoch == 2, "each end has raised it"
    else:
        assert max(spoken["AddPartitionsToTxn"]) <= 3
        assert max(spoken["Produce"]) <= 11
        assert max(spoken["EndTxn"]) <= 4
        assert max(spoken["TxnOffsetCommit"]) <= 4
        assert machine.identity.epoch == 0
        added = sum(1 for seen in mine if seen.api == "AddPartitionsToTxn")
        assert 2 <= added <= 4, "partitions are added together"


def test_a_transaction_without_records_sends_nothing(broker: EmbeddedBroker, make: Make) -> None:
    producer = make()
    producer.init_transactions()
    assert producer._transactions is not None
    name = producer._transactions.machine.transactional_id
    before = len([seen for seen in broker.requests if seen.client_id == name])
    with producer.transaction():
        pass
    producer.begin_transaction()
    producer.abort_transaction()
    assert len([seen for seen in broker.requests if seen.client_id == name]) == before


@pytest.mark.parametrize(
    ("offset", "group"),
    [
        (OffsetAndMetadata(41, "m", 2), "G"),
        (OffsetAndMetadata(41, "m"), b"G"),
        ((41, "m"), ConsumerGroupMetadata("G")),
        (41, ConsumerGroupMetadata("G", -1, "", None)),
    ],
)
def test_offsets_go_with_the_transaction_in_every_shape(
    broker: EmbeddedBroker, make: Make, offset: Any, group: Any, release: str
) -> None:
    name = f"g-{uuid.uuid4().hex[:8]}"
    if isinstance(group, ConsumerGroupMetadata):
        group = group._replace(group_id=name)
    else:
        group = name if isinstance(group, str) else name.encode()
    producer = make()
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({SOURCE: 40}, group)
    producer.abort_transaction()
    assert committed(broker, name) == -1
    producer.begin_transaction()
    producer.send_offsets_to_transaction({SOURCE: offset}, group)
    producer.commit_transaction()
    assert committed(broker, name) == 41
    producer.begin_transaction()
    producer.send_offsets_to_transaction({SOURCE: 42}, consumer_group_id=name)  # as in kafka-python 2
    producer.commit_transaction()
    assert committed(broker, name) == 42


def committed(broker: EmbeddedBroker, group: str) -> int:
    with RawClient(broker.port) as raw:
        topics = [OffsetFetchRequest.OffsetFetchRequestTopic(name=SOURCE.topic, partition_indexes=[SOURCE.partition])]
        answer = raw.ask(OffsetFetchRequest(group_id=group, topics=topics), 3)
        return int(answer.topics[0].partitions[0].committed_offset)


def test_a_member_that_has_left_its_group_is_refused(broker: EmbeddedBroker, release: str, make: Make) -> None:
    producer = make()
    producer.init_transactions()
    producer.begin_transaction()
    zombie = ConsumerGroupMetadata(f"g-{uuid.uuid4().hex[:8]}", 7, "nobody")
    if release == "1.1":
        producer.send_offsets_to_transaction({SOURCE: 1}, zombie)  # brokers before 2.5 take anybody's (KIP-447)
        return
    with pytest.raises(AbortableTransactionError) as raised:
        producer.send_offsets_to_transaction({SOURCE: 1}, zombie)
    assert raised.value.errno in (22, 25)  # type: ignore[attr-defined]
    producer.abort_transaction()
    with producer.transaction():
        producer.send_offsets_to_transaction({SOURCE: 1}, zombie.group_id)


# -- who may call what ------------------------------------------------------------------------------------------------


def test_sending_outside_a_transaction_is_refused_at_the_call(topic: str, make: Make) -> None:
    producer = make()
    with pytest.raises(IllegalStateError, match="init_transactions"):
        producer.send(topic, b"x")
    producer.init_transactions()
    with pytest.raises(IllegalStateError, match="begin_transaction"):
        producer.send(topic, b"x")
    with pytest.raises(IllegalStateError, match="begin_transaction"):
        producer.send_offsets_to_transaction({SOURCE: 1}, "g")
    with pytest.raises(IllegalStateError):
        producer.commit_transaction()
    with pytest.raises(IllegalStateError):
        producer.abort_transaction()
    with pytest.raises(IllegalStateError, match="already"):
        producer.init_transactions()
    with producer.transaction():
        producer.send(topic, b"x")
        with pytest.raises(IllegalStateError, match="under way"):
            producer.begin_transaction()
    with pytest.raises(IllegalStateError):
        producer.send(topic, b"x")
    assert producer.partitions_for(topic) == {0, 1, 2}, "looking is not sending"


def test_a_producer_without_transactional_id_has_no_transactions(broker: EmbeddedBroker) -> None:
    with KafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
        for call in (producer.init_transactions, producer.begin_transaction, producer.commit_transaction):
            with pytest.raises(IllegalStateError, match="transactional_id"):
                call()


@pytest.mark.parametrize(
    "other", [{"acks": 1}, {"acks": 0}, {"enable_idempotence": False}, {"retries": 0},
              {"max_in_flight_requests_per_connection": 6}],
)  # fmt: skip
def test_settings_that_take_away_idempotence_are_refused(other: dict[str, Any]) -> None:
    with pytest.raises(KafkaConfigurationError, match="transactional_id excludes"):
        KafkaProducer(bootstrap_servers="127.0.0.1:1", transactional_id="id", **other)


@pytest.mark.parametrize(
    ("offsets", "group", "error"),
    [
        ({SOURCE: -1}, "g", IllegalArgumentError),
        ({SOURCE: 1}, "", IllegalArgumentError),
        ({SOURCE: 1}, None, IllegalArgumentError),
        ({SOURCE: 1}, ConsumerGroupMetadata("g", 3, ""), IllegalArgumentError),
        ([SOURCE], "g", TypeError),
        ({"source": 1}, "g", TypeError),
    ],
)
def test_wrong_arguments_are_reported_at_the_call_and_harm_nothing(
    make: Make, offsets: Any, group: Any, error: type[Exception]
) -> None:
    producer = make()
    producer.init_transactions()
    with producer.transaction():
        with pytest.raises(error):
            producer.send_offsets_to_transaction(offsets, group)
        producer.send_offsets_to_transaction({}, "g")


def test_a_timeout_that_the_broker_does_not_take_is_fatal(make: Make) -> None:
    producer = make(transaction_timeout_ms=901_000)
    with pytest.raises(FatalTransactionError) as raised:
        producer.init_transactions()
    assert isinstance(raised.value, InvalidTransactionTimeoutError)
    assert "transaction_timeout_ms is above the broker's transaction.max.timeout.ms" in str(raised.value)


def test_a_broker_without_transactions_is_fatal() -> None:
    with (
        EmbeddedBroker(in_process=True, emulate="0.10") as old,
        KafkaProducer(bootstrap_servers=old.bootstrap, transactional_id="id", max_block_ms=20_000) as producer,
    ):
        with pytest.raises(FatalTransactionError) as raised:
            producer.init_transactions()
        assert isinstance(raised.value, UnsupportedVersionError)


# -- errors -----------------------------------------------------------------------------------------------------------


def test_a_record_that_fails_makes_commit_fail_and_abort_makes_it_good(
    broker: EmbeddedBroker, topic: str, make: Make
) -> None:
    producer = make()
    producer.init_transactions()
    name = producer._transactions.machine.transactional_id  # type: ignore[union-attr]
    producer.begin_transaction()
    producer.send(topic, b"lost", partition=0).get(30)
    with broker.faults.answer("Produce", MessageSizeTooLargeError, client_id=name, first=1):
        failed = producer.send(topic, b"refused", partition=0)
        with pytest.raises(AbortableTransactionError) as raised:
            producer.commit_transaction()
    assert isinstance(raised.value, MessageSizeTooLargeError)
    assert isinstance(failed.exception, MessageSizeTooLargeError)
    with pytest.raises(AbortableTransactionError, match="abort_transaction"):
        producer.send(topic, b"refused too", partition=0)
    producer.abort_transaction()
    for number in range(3):  # the numbers of the partition go on without a gap, or from 0 under another epoch
        with producer.transaction():
            producer.send(topic, b"good %d" % number, partition=0)
    assert values(broker, topic) == [b"good 0", b"good 1", b"good 2"]


def test_an_error_in_the_block_aborts_and_is_raised(broker: EmbeddedBroker, topic: str, make: Make) -> None:
    producer = make()
    producer.init_transactions()
    with pytest.raises(ZeroDivisionError), producer.transaction():
        producer.send(topic, b"never").get(30)
        1 / 0  # noqa: B018
    with producer.transaction():
        producer.send(topic, b"good")
    assert values(broker, topic) == [b"good"]


def test_an_abort_drops_what_lingers(broker: EmbeddedBroker, topic: str, make: Make) -> None:
    producer = make(linger_ms=3_600_000)
    producer.init_transactions()
    producer.begin_transaction()
    futures = [producer.send(topic, b"x", partition=number) for number in range(3)]
    producer.abort_transaction()
    assert all(isinstance(future.exception, TransactionAbortedError) for future in futures)
    with producer.transaction():
        producer.send(topic, b"good")
    assert values(broker, topic) == [b"good"]


def test_an_abort_does_not_wait_for_what_is_refused_meanwhile(broker: EmbeddedBroker, topic: str, make: Make) -> None:
    """The answer "come again" may come before the abort, or while it waits for the batch in flight."""
    producer = make()
    producer.init_transactions()
    name = producer._transactions.machine.transactional_id  # type: ignore[union-attr]
    for number in range(5):
        producer.begin_transaction()
        with broker.faults.answer("Produce", 51, client_id=name) as fault:
            sent = [producer.send(topic, b"%d" % n, partition=n % 3) for n in range(30)]
            fault.wait(1 + number)
            producer.abort_transaction()
        assert all(future.failed() for future in sent)
    with producer.transaction():
        producer.send(topic, b"good", partition=0)
    assert values(broker, topic) == [b"good"]


def test_a_second_producer_fences_the_first_which_says_so(broker: EmbeddedBroker, topic: str, make: Make) -> None:
    first = make("the-id" + topic)
    first.init_transactions()
    first.begin_transaction()
    first.send(topic, b"of a zombie").get(30)
    second = make("the-id" + topic)
    second.init_transactions()
    with pytest.raises(ProducerFencedError, match="the-id"):
        first.commit_transaction()
    for call in (first.begin_transaction, first.abort_transaction, lambda: first.send(topic, b"x")):
        with pytest.raises(ProducerFencedError, match="close it"):
            call()
    with second.transaction():
        second.send(topic, b"good")
    assert values(broker, topic) == [b"good"]
    first.close()


def test_who_was_fenced_and_writes_finds_it_out_by_its_abort(topic: str, make: Make) -> None:
    first = make("another-id" + topic)
    first.init_transactions()
    first.begin_transaction()
    first.send(topic, b"1", partition=0).get(30)
    make("another-id" + topic).init_transactions()
    with pytest.raises(InvalidProducerEpochError):
        first.send(topic, b"2", partition=0).get(30)
    with pytest.raises(AbortableTransactionError):
        first.commit_transaction()
    with pytest.raises(ProducerFencedError):
        first.abort_transaction()
    second = make("another-id" + topic)
    second.init_transactions()
    with pytest.raises(ProducerFencedError), second.transaction():
        second.send(topic, b"1", partition=0).get(30)
        make("another-id" + topic).init_transactions()
        second.send(topic, b"2", partition=0)


def test_a_transaction_that_takes_too_long_is_aborted_by_the_broker(
    broker: EmbeddedBroker, topic: str, make: Make
) -> None:
    producer = make(transaction_timeout_ms=10_000)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"late").get(30)
    broker.clock.advance(11)
    with pytest.raises(FatalTransactionError, match="transaction_timeout_ms"):
        producer.commit_transaction()
    assert values(broker, topic) == []


# -- time limits ------------------------------------------------------------------------------------------------------


def test_a_call_that_timed_out_is_called_again_and_goes_on(broker: EmbeddedBroker, topic: str, make: Make) -> None:
    producer = make()
    name = producer._transactions.machine.transactional_id  # type: ignore[union-attr]

    def twice(api: str, call: Callable[[], None], other: Callable[[], object]) -> None:
        """It times out while the broker says nothing but "come again"; others are refused; then it is done."""
        with broker.faults.answer(api, 14, client_id=name) as fault:
            producer._settings["max_block_ms"] = 300
            with pytest.raises(KafkaTimeoutError, match="max_block_ms=300; it goes on"):
                call()
            producer._settings["max_block_ms"] = 20_000
            with pytest.raises(IllegalStateError, match="timed out, and is to be called again|not done yet|being"):
                other()
            fault.wait(3)
        call()

    twice("InitProducerId", producer.init_transactions, producer.begin_transaction)
    producer.begin_transaction()
    producer.send(topic, b"good").get(30)
    twice("EndTxn", producer.commit_transaction, producer.abort_transaction)
    producer.begin_transaction()
    producer.send(topic, b"bad").get(30)
    twice("EndTxn", producer.abort_transaction, producer.begin_transaction)
    assert values(broker, topic) == [b"good"]


def test_the_last_transaction_is_waited_for_in_short_steps(broker: EmbeddedBroker, topic: str, make: Make) -> None:
    """CONCURRENT_TRANSACTIONS is no reason for the back-off of a broker in trouble."""
    producer = make(retry_backoff_ms=60_000, retry_backoff_max_ms=60_000)
    name = producer._transactions.machine.transactional_id  # type: ignore[union-attr]
    producer.init_transactions()
    for api in ("Produce", "AddPartitionsToTxn", "EndTxn", "TxnOffsetCommit"):
        with broker.faults.answer(api, 51, client_id=name, first=1), producer.transaction():
            producer.send(topic, b"x")
            producer.send_offsets_to_transaction({SOURCE: 1}, "g")


# -- the end of the producer -------------------------------------------------------------------------------------------


def test_close_aborts_what_is_open(broker: EmbeddedBroker, topic: str, make: Make) -> None:
    producer = make()
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"never").get(30)
    producer.close()
    assert state_of(producer) is TransactionPhase.READY
    assert values(broker, topic) == []
    with pytest.raises(IllegalStateError, match="closed"):
        producer.begin_transaction()


def test_close_aborts_what_a_commit_that_timed_out_has_left(broker: EmbeddedBroker, topic: str, make: Make) -> None:
    """The commit fails in the background, and nobody asks."""
    producer = make()
    name = producer._transactions.machine.transactional_id  # type: ignore[union-attr]
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"never").get(30)
    producer._settings["max_block_ms"] = 300
    with broker.faults.answer("EndTxn", 14, client_id=name):
        with pytest.raises(KafkaTimeoutError):
            producer.commit_transaction()
        refused = broker.faults.answer("EndTxn", 120, client_id=name)
    with refused:
        refused.wait()
    producer._settings["max_block_ms"] = 20_000
    producer.close()
    assert state_of(producer) is TransactionPhase.READY
    assert values(broker, topic) == []


def test_close_keeps_its_time_when_the_coordinator_says_nothing(broker: EmbeddedBroker, topic: str, make: Make) -> None:
    producer = make()
    name = producer._transactions.machine.transactional_id  # type: ignore[union-attr]
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"never").get(30)
    with broker.faults.drop("EndTxn", client_id=name):
        producer.close(timeout=0.3)
    make(name).init_transactions()


def test_close_after_a_fatal_error_is_quiet(topic: str, make: Make) -> None:
    producer = make(transaction_timeout_ms=901_000)
    with pytest.raises(FatalTransactionError):
        producer.init_transactions()
    producer.close()


# -- on a loop, and from many threads ---------------------------------------------------------------------------------


def test_on_a_loop_that_was_given_everything_comes_as_a_future(broker: EmbeddedBroker, topic: str) -> None:
    loop = Loop()
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap, transactional_id="loop" + topic, loop=loop, retry_backoff_ms=5
    )

    def script() -> Iterator[Any]:
        yield producer.init_transactions_async()
        with pytest.raises(IllegalStateError):
            producer.init_transactions()  # it would wait for itself
        for value in (b"1", b"2"):
            producer.begin_transaction()
            producer.send(topic, value)
            yield producer.send_offsets_to_transaction_async({SOURCE: 5}, "on a loop")
            yield producer.commit_transaction_async()
        producer.begin_transaction()
        producer.send(topic, b"aborted")
        yield producer.abort_transaction_async()
        producer.begin_transaction()
        producer.send(topic, b"open")
        yield producer.close_async()

    drive_on_loop(loop, script)
    loop.close()
    assert values(broker, topic) == [b"1", b"2"]


def test_on_a_loop_nothing_has_to_be_waited_for_before_the_commit(broker: EmbeddedBroker, topic: str) -> None:
    """Records whose topic is not known yet, that would linger for an hour; offsets that wait for their turn."""
    loop = Loop()
    name = "hasty" + topic
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap, transactional_id=name, loop=loop, linger_ms=3_600_000, retry_backoff_ms=5,
        delivery_timeout_ms=7_200_000,
    )  # fmt: skip

    def script() -> Iterator[Any]:
        yield producer.init_transactions_async()
        producer.begin_transaction()
        sent = producer.send(topic, b"1")
        offsets = producer.send_offsets_to_transaction_async({SOURCE: 17}, name)
        yield producer.commit_transaction_async()
        assert sent.succeeded()
        assert offsets.succeeded()
        yield producer.close_async()

    drive_on_loop(loop, script)
    loop.close()
    assert values(broker, topic) == [b"1"]
    assert committed(broker, name) == 17


def drive_on_loop(loop: Loop, script: Callable[[], Iterator[Any]]) -> None:
    """Run the script's steps on the loop's thread, each when the last one's future is done."""
    ended: Future[None] = Future()
    steps = script()

    def go_on(outcome: object = None) -> None:
        if isinstance(outcome, BaseException):
            ended.failure(outcome)
            return
        try:
            future = next(steps)
        except StopIteration:
            ended.success(None)
        except BaseException as error:
            ended.failure(error)
        else:
            future.add_both(lambda value: loop.call_soon(go_on, value))

    loop.call_soon(go_on)
    assert loop.run_until(ended, 60.0)
    ended.result()


def test_many_threads_send_into_one_transaction(broker: EmbeddedBroker, topic: str, make: Make) -> None:
    producer = make()
    producer.init_transactions()
    for number in range(3):
        producer.begin_transaction()
        threads = [
            threading.Thread(
                target=lambda t=thread, n=number: [producer.send(topic, b"%d.%d.%d" % (n, t, i)) for i in range(50)]
            )
            for thread in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if number == 1:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    assert values(broker, topic) == sorted(b"%d.%d.%d" % (n, t, i) for n in (0, 2) for t in range(4) for i in range(50))


def test_a_record_that_another_thread_sends_too_late_is_in_no_transaction(
    broker: EmbeddedBroker, topic: str, make: Make
) -> None:
    """It passed the gate before the commit and came into the accumulator after it."""
    producer = make()
    producer.init_transactions()
    with producer.transaction():
        producer.send(topic, b"x", partition=0)
    producer._topics = producer._accumulator.topics
    late = producer.send(topic, b"late", partition=0)
    with producer.transaction():
        assert isinstance(late.exception, IllegalStateError)
        producer.send(topic, b"y", partition=0)
    assert values(broker, topic) == [b"x", b"y"]


def test_a_record_that_comes_after_the_end_is_refused_at_once(topic: str, make: Make) -> None:
    is_inside, may_go_on = threading.Event(), threading.Event()

    def serialize(value: bytes) -> bytes:
        if value == b"late":
            is_inside.set()
            may_go_on.wait(30)
        return value

    producer = make(value_serializer=serialize)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"in time")
    futures: list[Any] = []
    thread = threading.Thread(target=lambda: futures.append(producer.send(topic, b"late")))
    thread.start()
    is_inside.wait(30)
    producer.commit_transaction()
    may_go_on.set()
    thread.join(30)
    with pytest.raises(IllegalStateError, match="while no transaction was under way"):
        futures[0].get(30)
    assert producer._accumulator.memory.used_bytes == 0
