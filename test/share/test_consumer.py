"""KafkaShareConsumer as users call it: from any thread, interrupted, forked, forgotten, with callables that fail."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic
from kafka.errors import IllegalArgumentError, IllegalStateError, KafkaConfigurationError
from kafka.net.loop import Loop
from kafka.producer import KafkaProducer
from kafka.share import AcknowledgeType, KafkaShareConsumer, ShareRecord
from kafka.testing import EmbeddedBroker
from test.share.support import Machine, Taker

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
    end = time.monotonic() + 20
    while len(found) < count:
        assert time.monotonic() < end, f"{len(found)} records of {count}"
        found += [record for records in consumer.poll(1000, **options).values() for record in records]
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


@pytest.mark.parametrize("group", [1000], indirect=True)
def test_records_whose_locks_ran_out_unpolled_are_not_returned_any_more(group: Group) -> None:
    group.put(b"a", b"b")
    lost: list[ShareRecord] = []
    consumer = group.member(on_lost=lambda records, error: lost.extend(records))
    take(consumer, 1, max_records=1)
    buffered = consumer._inbox._records[:]
    assert values(buffered) == [b"b"]
    end = time.monotonic() + 10
    while not buffered[0].lost:
        assert time.monotonic() < end
        consumer._host.call(lambda: None)
    (again,) = (each for each in take(consumer, 2) if each.value == b"b")
    assert again.delivery_count == 2
    assert buffered[0] not in lost, "nobody had it"


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
        thread.join(15)
        assert not thread.is_alive()
    assert faults == []
    assert len(seen) == 300
    assert group.member().poll(1500) == {}


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
    end = time.monotonic() + 10
    while descriptors() > before + 2:  # less than one for each; the broker of this process closes its ends, too
        assert time.monotonic() < end


def test_a_consumer_that_is_forgotten_ends_its_thread(group: Group) -> None:
    consumer = KafkaShareConsumer(group.name, group_id=group.name, bootstrap_servers=group.bootstrap)
    consumer.poll(200)
    thread = consumer._host._thread  # type: ignore[attr-defined]
    gone = weakref.ref(consumer)
    del consumer
    gc.collect()
    assert gone() is None
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_is_told_so_and_may_close_and_the_parent_goes_on(group: Group) -> None:
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
    first, second = group.member(share_acknowledgement_mode="explicit"), group.member()
    (record,) = take(first, 1)
    with pytest.raises(IllegalStateError, match="another consumer"):
        second.acknowledge(record)
    first.acknowledge(record, AcknowledgeType.ACCEPT)


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
    assert heard.wait(10)
    assert len(refusals) == 3
    assert consumer.poll(100) == {}, "still open"


def test_an_idle_consumer_costs_next_to_nothing(group: Group) -> None:
    consumer = group.member()
    consumer.poll(1500)
    began = time.thread_time()
    turns: list[int] = []
    loop = consumer._host.loop
    run_once = loop.run_once
    loop.run_once = lambda *args, **options: turns.append(1) or run_once(*args, **options)  # type: ignore[assignment, func-returns-value]
    consumer.poll(2000)
    del loop.run_once  # type: ignore[method-assign]
    assert len(turns) < 60, "half a second for each long poll, and a heartbeat"
    assert time.thread_time() - began < 0.2


def test_arguments_that_cannot_be_are_refused() -> None:
    with pytest.raises(KafkaConfigurationError, match="group_id"):
        KafkaShareConsumer("t")
    loop = Loop.simulated()
    with pytest.raises(KafkaConfigurationError, match="come as bytes"):
        KafkaShareConsumer("t", group_id="g", loop=loop, value_deserializer=int)


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
