"""KafkaShareConsumer as users call it: from any thread, interrupted, forked, forgotten, with callables that fail."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic
from kafka.core.share.session import ShareExchange, ShareResponseOutcome
from kafka.errors import (
    IllegalArgumentError,
    IllegalStateError,
    InvalidRecordStateError,
    KafkaConfigurationError,
)
from kafka.net.loop import Loop
from kafka.producer import KafkaProducer
from kafka.protocol.share import ShareFetchRequest
from kafka.share import AcknowledgeType, KafkaShareConsumer, ShareRecord
from kafka.share.leader_sessions import LeaderSession
from kafka.structs import TopicPartition
from kafka.testing import EmbeddedBroker
from test.share.support import Machine, Taker
from test.support.waiting import until

SETTINGS = {"group.share.min.record.lock.duration.ms": "1000"}


class Group:
    """A topic and its share group on a broker of this process."""

    def __init__(self, bootstrap: str, name: str, lock_ms: int) -> None:
        self.bootstrap = bootstrap
        self.name = name
        self._made: list[Any] = []
        with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
            admin.create_topics([NewTopic(name, 1, 1)])
            configs = {
                "share.auto.offset.reset": "earliest", "share.assignment.interval.ms": "0",
                "share.record.lock.duration.ms": str(lock_ms),
            }  # fmt: skip
            admin.alter_configs([ConfigResource(ConfigResourceType.GROUP, name, configs=configs)])

    def put(self, *values: bytes) -> None:
        with contextlib.closing(KafkaProducer(bootstrap_servers=self.bootstrap)) as producer:
            for value in values:
                producer.send(self.name, value)
            producer.flush()

    def member(self, **configs: Any) -> KafkaShareConsumer:
        consumer = KafkaShareConsumer(self.name, group_id=self.name, bootstrap_servers=self.bootstrap, **configs)
        self._made.append(consumer)
        return consumer

    def close(self) -> None:
        for each in self._made:
            each.close()


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with EmbeddedBroker(in_process=True, settings=SETTINGS) as broker:
        yield broker.bootstrap


@pytest.fixture
def group(bootstrap: str, request: pytest.FixtureRequest) -> Iterator[Group]:
    group = Group(bootstrap, request.node.name[:60], lock_ms=getattr(request, "param", 30_000))
    yield group
    group.close()


def take(consumer: KafkaShareConsumer, count: int, **options: Any) -> list[ShareRecord]:
    found: list[ShareRecord] = []

    def poll() -> None:
        found.extend(record for records in consumer.poll(1000, **options).values() for record in records)

    until(lambda: len(found) >= count, f"{count} records", meanwhile=poll, shown=lambda: found)
    return found


def values(records: list[ShareRecord]) -> list[Any]:
    return [record.value for record in records]


def only_even(data: bytes) -> int:
    number = int(data)
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number


def test_a_deserializer_that_fails_loses_no_other_record_and_nothing_is_accepted_unseen(group: Group) -> None:
    group.put(b"0", b"2", b"3", b"40")
    consumer = group.member(value_deserializer=only_even)
    first = take(consumer, 2)
    assert values(first) == [0, 2]
    with pytest.raises(ValueError, match="3 is odd"):
        take(consumer, 1)
    (last,) = take(consumer, 1)
    assert (last.value, last.serialized_value_size) == (40, 2)
    consumer.close()
    (again,) = take(group.member(), 1)
    assert (again.value, again.delivery_count) == (b"3", 2), "released, not accepted, and nothing else comes again"


def test_what_a_poll_returned_is_accepted_by_the_request_that_fetches_more(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No fetch goes out while they are worked on: it would find nothing where the window is full, and stand in the way
    of what has to be said of them."""
    for number in range(3):
        group.put(*(b"%d" % each for each in range(10 * number, 10 * number + 10)))
    requests: list[tuple[bool, bool]] = []
    send, settle = LeaderSession._send, LeaderSession._settle
    brought: list[int] = []

    def sent(self: LeaderSession, exchange: ShareExchange, now: float) -> None:
        requests.append((isinstance(exchange.request, ShareFetchRequest), bool(exchange.acks)))
        send(self, exchange, now)

    def settled(self: LeaderSession, outcome: ShareResponseOutcome) -> None:
        if outcome.records and not any(brought):
            requests.clear()
        brought.append(len(outcome.records))
        settle(self, outcome)

    monkeypatch.setattr(LeaderSession, "_send", sent)
    monkeypatch.setattr(LeaderSession, "_settle", settled)
    consumer = group.member(max_poll_records=10)
    records = take(consumer, 30)
    assert sorted(map(int, values(records))) == list(range(30))
    assert requests == [(True, True)] * (len(brought) - brought.index(10) - 1), (requests, brought)


def test_an_interrupt_in_a_deserializer_loses_no_record(group: Group) -> None:
    group.put(b"0", b"1", b"2")
    interrupts = [KeyboardInterrupt()]

    def read(data: bytes) -> int:
        if data == b"1" and interrupts:
            raise interrupts.pop()
        return int(data)

    consumer = group.member(value_deserializer=read)
    with pytest.raises(KeyboardInterrupt):
        take(consumer, 1)
    assert values(take(consumer, 3)) == [0, 1, 2]


def test_an_error_that_leaves_the_with_block_accepts_nothing_that_was_not_finished(group: Group) -> None:
    group.put(b"x")
    with contextlib.suppress(ZeroDivisionError), group.member() as consumer:
        take(consumer, 1)
        raise ZeroDivisionError
    (again,) = take(group.member(), 1)
    assert again.delivery_count == 2


def test_max_records_leaves_the_rest_for_the_next_poll_and_close_gives_back_what_was_never_polled(
    group: Group,
) -> None:
    group.put(*(b"%d" % n for n in range(10)))
    consumer = group.member()
    assert values(take(consumer, 1, max_records=1)) == [b"0"]
    assert values(take(consumer, 2, max_records=2)) == [b"1", b"2"]
    consumer.close()  # implicit: accepts what was polled
    assert sorted(values(take(group.member(), 7))) == [b"%d" % n for n in range(3, 10)]


@pytest.mark.parametrize("group", [3000], indirect=True)
def test_records_whose_locks_ran_out_unpolled_are_not_returned_any_more(group: Group) -> None:
    group.put(b"a", b"b")
    lost: list[ShareRecord] = []
    consumer = group.member(on_lost=lambda records, error: lost.extend(records))
    take(consumer, 1, max_records=1)
    buffered = list(consumer._buffer._records)
    assert values(buffered) == [b"b"]
    until(lambda: buffered[0].lost, meanwhile=lambda: consumer._host.call(lambda: None))
    (again,) = (each for each in take(consumer, 2) if each.value == b"b")
    assert again.delivery_count == 2
    assert buffered[0] not in lost, "nobody had it"


def test_what_is_accepted_after_its_lock_has_ended_is_reported_by_commit_and_the_callback(bootstrap: str) -> None:
    group = Group(bootstrap, "accepted-too-late", lock_ms=4000)
    group.put(b"a", b"b")
    outcomes: list[tuple[dict[TopicPartition, set[int]], Exception | None]] = []
    consumer = group.member(acknowledgement_commit_callback=lambda offsets, error: outcomes.append((offsets, error)))
    records = take(consumer, 2)
    until(lambda: all(record.lost for record in records), meanwhile=lambda: consumer._host.call(lambda: None))
    partition = TopicPartition(group.name, 0)
    outcome = consumer.commit(10_000)
    assert list(outcome) == [partition] and isinstance(outcome[partition], InvalidRecordStateError)
    assert outcomes == [({partition: {0, 1}}, outcome[partition])]
    assert [record.delivery_count for record in take(consumer, 2)] == [2, 2]
    assert consumer.commit(10_000) == {partition: None}, "and of what came again, what became of that"
    group.close()


def test_wakeup_ends_a_poll_that_waits_for_ever(group: Group) -> None:
    consumer = group.member()
    timer = threading.Timer(0.2, consumer.wakeup)
    timer.start()
    assert consumer.poll(float("inf")) == {}


def test_polls_acknowledgements_commits_and_the_close_of_many_threads_do_not_hang(group: Group) -> None:
    group.put(*(b"%d" % n for n in range(300)))
    consumer = group.member(share_acknowledgement_mode="explicit")
    seen: set[int] = set()
    enough = threading.Event()
    faults: list[BaseException] = []

    def work() -> None:
        try:
            while not enough.is_set():
                for records in consumer.poll(100, max_records=7).values():
                    for record in records:
                        consumer.acknowledge(record)
                        seen.add(record.offset)
                consumer.commit(10_000)
                if len(seen) >= 300:
                    enough.set()
        except IllegalStateError:
            enough.set()  # closed by another
        except BaseException as error:
            faults.append(error)
            enough.set()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert enough.wait(30)
    closers = [threading.Thread(target=consumer.close, daemon=True) for _ in range(3)]
    for thread in closers:
        thread.start()
    for thread in (*threads, *closers):
        thread.join(30)
        assert not thread.is_alive()
    assert faults == []
    assert len(seen) == 300
    group.put(b"new")
    assert [record.value for record in take(group.member(), 1)] == [b"new"], "all others were acknowledged"


def test_closing_leaves_no_thread_and_no_descriptor(group: Group) -> None:
    with group.member() as first:
        first.poll(200)

    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0

    before = descriptors()
    for _ in range(5):
        with group.member() as consumer:
            consumer.poll(200)
    assert not [thread for thread in threading.enumerate() if thread.name == "kafka-share consumer"]
    # less than one for each; the broker of this process closes its ends, too
    until(lambda: descriptors() <= before + 2)


def test_a_consumer_that_is_forgotten_ends_its_thread(group: Group) -> None:
    consumer = KafkaShareConsumer(group.name, group_id=group.name, bootstrap_servers=group.bootstrap)
    consumer.poll(200)
    thread = consumer._host._thread  # type: ignore[attr-defined]
    gone = weakref.ref(consumer)
    del consumer
    gc.collect()
    assert gone() is None
    thread.join(30)
    assert not thread.is_alive()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_gets_an_error_and_may_close_and_the_parent_goes_on(group: Group) -> None:
    consumer = group.member()
    consumer.poll(100)
    child = os.fork()
    if not child:
        code = 1
        with contextlib.suppress(BaseException):
            try:
                consumer.poll(100)
            except IllegalStateError as error:
                code = 0 if "fork" in str(error) else 2
            consumer.close()
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    group.put(b"x")
    assert values(take(consumer, 1)) == [b"x"]


def test_a_record_of_another_consumer_is_refused(group: Group) -> None:
    group.put(b"x")
    first, second = (group.member(share_acknowledgement_mode="explicit") for _ in range(2))
    (record,) = take(first, 1)
    with pytest.raises(IllegalStateError, match="another consumer"):
        second.acknowledge(record)
    first.acknowledge(record, AcknowledgeType.ACCEPT)


def test_in_implicit_mode_explicit_calls_are_refused_with_the_way_out(group: Group) -> None:
    group.put(b"x")
    consumer = group.member()
    (record,) = take(consumer, 1)
    for call in (
        lambda: consumer.acknowledge(record),
        lambda: consumer.acknowledge(record, AcknowledgeType.RELEASE),
        lambda: consumer.acknowledge_offset(record.topic, record.partition, record.offset),
        lambda: consumer.renew([record]),
    ):
        with pytest.raises(IllegalStateError, match="share_acknowledgement_mode is implicit"):
            call()
    consumer._host.wait(consumer.commit_async(), 10)
    assert consumer._buffer.take_outcomes() == {TopicPartition(group.name, 0): None}, "it still accepts it"


def test_iteration_accepts_a_record_when_the_next_is_asked_for_and_ends_with_a_wakeup(group: Group) -> None:
    group.put(b"0", b"1", b"2", b"3")
    consumer = group.member()
    seen = []
    for record in consumer:
        seen.append(record.value)
        if len(seen) == 3:
            consumer.wakeup()
    assert seen == [b"0", b"1", b"2"]
    with contextlib.suppress(ZeroDivisionError), consumer:
        assert next(consumer).value == b"3"
        raise ZeroDivisionError
    assert list(consumer) == [], "it is closed"
    (again,) = take(group.member(), 1)
    assert (again.value, again.delivery_count) == (b"3", 2), "of the others, each was accepted"


def test_what_iteration_accepts_is_reported_without_another_call(group: Group) -> None:
    group.put(*(b"%d" % n for n in range(200)))
    consumer = group.member()
    answered: list[int] = []
    consumer.set_acknowledgement_commit_callback(
        lambda offsets, error: answered.extend(each for of_partition in offsets.values() for each in of_partition)
    )
    iteration = iter(consumer)
    for _ in range(150):
        next(iteration)

    def answered_by_now() -> bool:
        consumer._polling.call_back()
        return len(answered) >= 149

    until(answered_by_now)
    assert len(set(answered)) == len(answered) == 149, "the last one is under way"
    assert values(take(consumer, 50, max_records=50)) == [b"%d" % n for n in range(150, 200)]


def test_what_iteration_has_accepted_stays_accepted_when_the_consumer_is_closed_without_waiting(group: Group) -> None:
    group.put(*(b"%d" % n for n in range(20)))
    consumer = group.member()
    iteration = iter(consumer)
    for _ in range(15):
        next(iteration)
    assert consumer.close_async().wait(30)
    assert values(take(group.member(), 5)) == [b"%d" % n for n in range(15, 20)]


def test_a_record_of_another_consumer_is_an_error_and_nothing_is_acknowledged(group: Group) -> None:
    group.put(b"0", b"1")
    one = group.member(share_acknowledgement_mode="explicit")
    (first,) = take(one, 1, max_records=1)
    other = group.member(share_acknowledgement_mode="explicit")
    with pytest.raises(IllegalStateError, match="another consumer"):
        other.acknowledge_all([first])
    assert one.acknowledge_all([first]) == []


def test_the_commit_callback_is_called_in_the_polling_thread_with_the_offsets_of_each_partition(group: Group) -> None:
    group.put(b"0", b"1", b"2")
    outcomes: list[tuple[dict[TopicPartition, set[int]], Exception | None, int]] = []
    consumer = group.member(
        share_acknowledgement_mode="explicit",
        acknowledgement_commit_callback=lambda offsets, error: outcomes.append((offsets, error, threading.get_ident())),
    )
    partition = TopicPartition(group.name, 0)
    for record in take(consumer, 3):
        consumer.acknowledge_offset(record.topic, record.partition, record.offset)
    consumer.commit(10_000)
    assert {offset for offsets, _, _ in outcomes for offset in offsets[partition]} == {0, 1, 2}
    assert {(error, thread) for _, error, thread in outcomes} == {(None, threading.get_ident())}
    later: list[object] = []
    consumer.set_acknowledgement_commit_callback(lambda *what: later.append(what))
    group.put(b"3")
    consumer.acknowledge(take(consumer, 1)[0], AcknowledgeType.REJECT)
    consumer.commit_async()
    until(lambda: later, meanwhile=lambda: consumer.poll(1000))
    assert later == [({partition: {3}}, None)]
    with pytest.raises(TypeError, match="is not callable"):
        consumer.set_acknowledgement_commit_callback("me")  # type: ignore[arg-type]


def test_what_the_commit_callback_raises_comes_out_of_the_poll_and_no_record_is_lost(group: Group) -> None:
    group.put(b"0", b"1")
    errors = [ValueError("the user's own fault")]

    def fail(offsets: object, error: object) -> None:
        if errors:
            raise errors.pop()

    consumer = group.member(share_acknowledgement_mode="explicit", acknowledgement_commit_callback=fail)
    (record,) = take(consumer, 1, max_records=1)
    consumer.acknowledge(record)
    with pytest.raises(ValueError, match="own fault"):
        consumer.commit(10_000)
    assert values(take(consumer, 1)) == [b"1"]


def test_a_record_whose_place_alone_is_known_is_acknowledged_once_and_only_when_it_was_handed_out(group: Group) -> None:
    group.put(b"0", b"1")
    consumer = group.member(share_acknowledgement_mode="explicit")
    (record,) = take(consumer, 1, max_records=1)
    for topic, partition, offset in ((group.name, 0, 1), (group.name, 0, 9), (group.name, 7, 0), ("none-such", 0, 0)):
        with pytest.raises(IllegalStateError, match="is not held"):
            consumer.acknowledge_offset(topic, partition, offset)
    consumer.acknowledge_offset(record.topic, record.partition, record.offset, AcknowledgeType.ACCEPT)
    with pytest.raises(IllegalStateError):
        consumer.acknowledge_offset(record.topic, record.partition, record.offset)


def test_many_are_acknowledged_at_once_and_those_that_were_before_are_given_back(group: Group) -> None:
    group.put(b"0", b"1", b"2")
    consumer = group.member(share_acknowledgement_mode="explicit")
    records = take(consumer, 3)
    consumer.acknowledge(records[1])
    assert consumer.acknowledge_all(records) == [records[1]]
    assert consumer.acknowledge_all(records) == records
    with pytest.raises(IllegalArgumentError, match="GAP"):
        consumer.acknowledge_all(records, AcknowledgeType.GAP)
    assert set(consumer.commit(30_000).values()) == {None}


def test_a_poll_without_topics_is_an_error_at_the_call(group: Group) -> None:
    consumer = group.member()
    consumer.unsubscribe()
    with pytest.raises(IllegalStateError, match="subscribe"):
        consumer.poll(0)


def test_metrics_count_records_acknowledgements_and_heartbeats_under_javas_names(group: Group) -> None:
    group.put(b"0", b"1", b"2")
    consumer = group.member(share_acknowledgement_mode="explicit")
    for record in take(consumer, 3):
        consumer.acknowledge(record)
    consumer.commit(10_000)
    consumer.poll(0)
    found = consumer.metrics()
    fetches = found["consumer-share-fetch-manager-metrics"]
    assert fetches["records-fetched-total"] == 3
    assert (fetches["acknowledgements-send-total"], fetches["acknowledgements-error-total"]) == (3, 0)
    assert fetches["fetch-total"] >= 1
    assert fetches["bytes-consumed-total"] > 0
    heartbeats = found["consumer-share-coordinator-metrics"]
    assert heartbeats["heartbeat-total"] >= 1
    assert 0 <= heartbeats["last-heartbeat-seconds-ago"] < 60
    assert 0 <= found["consumer-share-metrics"]["last-poll-seconds-ago"] < 60
    assert {name.group for name in consumer.metrics(raw=True)} >= {"consumer-share-metrics"}
    assert group.member(metrics_enabled=False).metrics() == {}


def test_blocking_calls_in_a_callback_are_refused_with_the_way_out(group: Group) -> None:
    group.put(b"x")
    refusals: list[str] = []
    heard = threading.Event()

    def on_acknowledged(_: object) -> None:
        for call in (consumer.poll, consumer.commit, consumer.close):
            try:
                call()
            except IllegalStateError as error:
                refusals.append(str(error))
        heard.set()

    consumer = group.member(on_acknowledged=on_acknowledged, share_acknowledgement_mode="explicit")
    consumer.acknowledge(take(consumer, 1)[0])
    consumer.commit(10_000)
    assert heard.wait(30)
    assert len(refusals) == 3
    group.put(b"y")
    assert take(consumer, 1)[0].value == b"y", "still open"


def test_an_idle_consumer_costs_next_to_nothing(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = group.member()
    consumer.poll(1500)
    began = time.thread_time()
    turns: list[int] = []
    selector: Any = consumer._host.loop._selector  # the loop itself may be compiled, and is not to be patched then
    select = selector.select
    monkeypatch.setattr(selector, "select", lambda *args: turns.append(1) or select(*args))
    consumer.poll(2000)
    monkeypatch.undo()
    assert 0 < len(turns) < 60, "half a second for each long poll, and a heartbeat"
    assert time.thread_time() - began < 0.2


def test_arguments_that_cannot_be_are_refused() -> None:
    with pytest.raises(KafkaConfigurationError, match="group_id"):
        KafkaShareConsumer("t")
    loop = Loop.simulated()
    with pytest.raises(KafkaConfigurationError, match="come as bytes"):
        KafkaShareConsumer("t", group_id="g", loop=loop, value_deserializer=int)


IMPOSSIBLE: list[tuple[Callable[[KafkaShareConsumer], object], type[Exception], str]] = [
    (lambda it: it.subscribe(["bad name!"]), IllegalArgumentError, "'bad name!': a topic's name has 1 to 249"),
    (lambda it: it.subscribe([""]), IllegalArgumentError, "'': a topic's name has 1 to 249"),
    (lambda it: it.subscribe(["t", 5]), TypeError, "topics: each has to be a text, not int"),  # type: ignore[list-item]
    (lambda it: it.subscribe("t"), TypeError, "topics: a list of texts is needed, not one text"),
    (lambda it: it.poll(-5), IllegalArgumentError, "timeout_ms: a number of at least 0 is needed, not -5"),
    (lambda it: it.poll("a"), IllegalArgumentError, "timeout_ms: .* not 'a'"),  # type: ignore[arg-type]
    (lambda it: it.poll(0, 1.5), TypeError, "max_records: a whole number is needed, not 1.5"),  # type: ignore[arg-type]
    (lambda it: it.poll(0, 0), IllegalArgumentError, "max_records: at least 1, not 0"),
    (lambda it: it.commit(-1), IllegalArgumentError, "timeout_ms: .* not -1"),
    (lambda it: it.commit_sync("a"), IllegalArgumentError, "timeout_ms: .* not 'a'"),  # type: ignore[arg-type]
    (lambda it: it.close("x"), IllegalArgumentError, "timeout_ms: .* not 'x'"),  # type: ignore[arg-type]
]


def test_arguments_of_calls_are_refused_at_the_call_and_the_consumer_goes_on(group: Group) -> None:
    group.put(b"x")
    consumer = group.member()
    for call, error, text in IMPOSSIBLE:
        with pytest.raises(error, match=text):
            call(consumer)
    assert consumer.poll(None) is not None  # type: ignore[arg-type]
    assert values(take(consumer, 1)) == [b"x"] and consumer.subscription() == {group.name}


def test_a_consumer_that_is_refused_its_topics_leaves_no_thread(bootstrap: str) -> None:
    before = set(threading.enumerate())
    with pytest.raises(IllegalArgumentError, match="a topic's name"):
        KafkaShareConsumer("no topic", group_id="g", bootstrap_servers=bootstrap)
    assert not set(threading.enumerate()) - before


def test_renewing_passes_over_what_was_lost(machine: Machine) -> None:
    user = Taker()
    consumer = user.consumer(machine.client(), "t")
    machine.produce("t", b"a", b"b")
    consumer.request_records(2)
    machine.wait(lambda: len(user.records) == 2)
    user.records[0].lost = True
    done = consumer.renew(user.records)
    machine.wait(lambda: done.is_done)
    assert [each.record for each in user.acknowledged] == [user.records[1]]
    with pytest.raises(IllegalArgumentError, match="GAP"):
        consumer.acknowledge(user.records[1], AcknowledgeType.GAP)
