"""A process that forks while it has clients: in the child each call is an error that says so, and never a hang; the
parent goes on as if nothing had happened."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka.admin import KafkaAdminClient
from kafka.consumer import KafkaConsumer
from kafka.producer import KafkaProducer
from kafka.share import KafkaShareConsumer
from kafka.testing import EmbeddedBroker
from test.producer.support import run_program

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

REFUSED = "IllegalStateError: IllegalStateError: the producer belongs to the parent process"
DEADLINE_S = 30


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture(scope="module")
def served(broker: EmbeddedBroker) -> str:
    return broker.bootstrap


def in_child(act: Callable[[], Any]) -> str:
    """What ``act`` returned or raised in a forked child, as text."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            try:
                text = str(act())
            except BaseException as error:
                text = f"{type(error).__name__}: {error}"
            os.write(writer, text.encode())
        finally:
            os._exit(0)
    os.close(writer)
    try:
        if not select.select([reader], [], [], DEADLINE_S)[0]:
            os.kill(child, signal.SIGKILL)
            return "it hangs"
        return os.read(reader, 65536).decode()
    finally:
        os.close(reader)
        os.waitpid(child, 0)


@contextlib.contextmanager
def held(lock: Any) -> Iterator[None]:
    """Another thread holds it."""
    is_held, is_over = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            is_held.set()
            is_over.wait(2 * DEADLINE_S)

    thread = threading.Thread(target=hold)
    thread.start()
    assert is_held.wait(DEADLINE_S)
    try:
        yield
    finally:
        is_over.set()
        thread.join()


USES: dict[str, Callable[[KafkaProducer], Any]] = {
    "send": lambda producer: producer.send("t", b"x"),
    "send to a new topic": lambda producer: producer.send("other", b"x"),
    "flush": lambda producer: producer.flush(),
    "flush with a timeout": lambda producer: producer.flush(5),
    "partitions_for": lambda producer: producer.partitions_for("t"),
}


@pytest.mark.parametrize("is_locked", [False, True], ids=["", "while another thread holds the lock"])
@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_in_the_child_every_call_is_refused_and_the_parent_goes_on(
    served: str, use: Callable[[KafkaProducer], Any], is_locked: bool
) -> None:
    with KafkaProducer(bootstrap_servers=served) as producer:
        producer.send("t", b"before").get(DEADLINE_S)
        with held(producer._accumulator.lock) if is_locked else contextlib.nullcontext():
            outcome = in_child(lambda: use(producer))
        assert outcome.startswith(REFUSED) and "make a new one in the child" in outcome
        assert producer.send("t", b"after").get(DEADLINE_S).offset >= 1


def test_closing_in_the_child_does_nothing_and_not_to_the_parent(served: str) -> None:
    with KafkaProducer(bootstrap_servers=served) as producer:
        producer.send("t", b"before").get(DEADLINE_S)
        assert in_child(producer.close) == "None"
        assert in_child(lambda: producer.__exit__(None, None, None)) == "None"
        assert producer.send("t", b"after").get(DEADLINE_S).offset >= 1


def test_a_future_from_before_the_fork_is_refused_in_the_child_unless_it_was_done(served: str) -> None:
    with KafkaProducer(bootstrap_servers=served, linger_ms=60_000) as producer:
        done = producer.send("t", b"done", partition=0)
        producer.flush()
        pending = producer.send("t", b"pending", partition=0)
        outcome = in_child(lambda: (done.get(30).topic, pending.is_done))
        assert outcome == "('t', False)"
        for wait in (lambda: pending.get(), lambda: pending.get(30)):
            assert "belongs to the parent process" in in_child(wait)
        producer.flush()
        assert pending.get(DEADLINE_S).topic == "t"


def test_a_future_whose_producer_is_forgotten_is_refused_in_the_child_too(broker: EmbeddedBroker) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    producer.send("t", b"x", partition=0).get(DEADLINE_S)
    with broker.faults.delay("Produce", seconds=3, first=1):
        future = producer.send("t", b"x", partition=0)
        del producer
        gc.collect()
        assert "belongs to the parent process" in in_child(lambda: future.get())
        assert future.get(DEADLINE_S).topic == "t"


def test_a_new_producer_works_in_the_child(served: str) -> None:
    with KafkaProducer(bootstrap_servers=served) as producer:
        producer.send("t", b"before").get(DEADLINE_S)

        def send_anew() -> str:
            with KafkaProducer(bootstrap_servers=served) as fresh:
                return fresh.send("t", b"child").get(DEADLINE_S).topic

        assert in_child(send_anew) == "t"
        assert producer.send("t", b"after").get(DEADLINE_S).offset >= 2


def test_records_that_waited_at_the_fork_are_sent_once_and_by_the_parent(served: str) -> None:
    with KafkaProducer(bootstrap_servers=served, linger_ms=60_000) as producer:
        futures = [producer.send("once", b"%d" % number, partition=0) for number in range(50)]
        assert in_child(lambda: gc.collect() and None) == "None"
        producer.flush()
        assert [future.get(0).offset for future in futures] == list(range(50))
    with KafkaConsumer(bootstrap_servers=served) as consumer:
        (end,) = consumer.end_offsets(consumer_partitions("once")).values()
        assert end == 50


def consumer_partitions(topic: str) -> list[Any]:
    from kafka.structs import TopicPartition

    return [TopicPartition(topic, 0)]


def test_a_fork_in_the_middle_of_send_does_not_hang_although_another_thread_holds_the_lock(served: str) -> None:
    outcomes: list[str] = []

    def serialize(value: str) -> bytes:
        if value == "fork":
            with held(producer._accumulator.lock):
                child = os.fork()
            if not child:
                in_serializer.append(True)
            else:
                children.append(child)
        return value.encode()

    in_serializer: list[bool] = []
    children: list[int] = []
    with KafkaProducer(bootstrap_servers=served, value_serializer=serialize) as producer:
        producer.send("t", "before").get(DEADLINE_S)
        reader, writer = os.pipe()
        try:
            future = producer.send("t", "fork")
            outcome = "sent"
            if in_serializer:
                future.get()
        except Exception as error:
            outcome = str(error)
        if in_serializer:
            os.write(writer, outcome.encode())
            os._exit(0)
        os.close(writer)
        (child,) = children
        if select.select([reader], [], [], DEADLINE_S)[0]:
            outcomes.append(os.read(reader, 65536).decode())
        else:
            os.kill(child, signal.SIGKILL)
        os.close(reader)
        os.waitpid(child, 0)
        assert "belongs to the parent process" in outcomes[0]
        assert future.get(DEADLINE_S).topic == "t"


PROGRAM = """
    import gc, os, sys
    from kafka import KafkaProducer
    producer = KafkaProducer(bootstrap_servers={served!r}, linger_ms=60_000)
    future = producer.send("exits", b"x", partition=0)
    child = os.fork()
    if not child:
        {end}
    _, status = os.waitpid(child, 0)
    producer.flush()
    print(os.waitstatus_to_exitcode(status), future.get(30).offset >= 0)
"""


@pytest.mark.parametrize(
    ("end", "code"),
    [("sys.exit(7)", 7), ("raise SystemExit(3)", 3), ("del producer; gc.collect(); sys.exit(4)", 4), ("1 / 0", 1)],
)
def test_a_child_with_an_unclosed_producer_ends_at_once(served: str, end: str, code: int) -> None:
    done = run_program(PROGRAM.format(served=served, end=end))
    assert done.stdout.split() == [str(code), "True"], done.stderr


def test_processes_of_multiprocessing_make_producers_of_their_own_beside_the_parents(served: str) -> None:
    with KafkaProducer(bootstrap_servers=served) as producer:
        producer.send("t", b"before").get(DEADLINE_S)
        context = multiprocessing.get_context("fork")
        results = context.Queue()
        workers = [context.Process(target=work, args=(producer, served, results)) for _ in range(2)]
        for worker in workers:
            worker.start()
        outcomes = [results.get(timeout=DEADLINE_S) for _ in workers]
        for worker in workers:
            worker.join(DEADLINE_S)
        assert [worker.exitcode for worker in workers] == [0, 0]
        assert outcomes == [("refused", "t")] * 2
        assert producer.send("t", b"after").get(DEADLINE_S).topic == "t"


def work(inherited: KafkaProducer, served: str, results: Any) -> None:
    try:
        inherited.send("t", b"x")
        outcome = "sent"
    except Exception as error:
        outcome = "refused" if "parent process" in str(error) else str(error)
    own = KafkaProducer(bootstrap_servers=served)  # and never closed
    results.put((outcome, own.send("t", b"x").get(DEADLINE_S).topic))


OTHERS: dict[str, tuple[Callable[[str], Any], list[Callable[[Any], Any]]]] = {
    "consumer": (
        lambda served: KafkaConsumer("t", bootstrap_servers=served),
        [lambda it: it.poll(1000), next, lambda it: it.seek_to_end(), lambda it: it.topics()],
    ),
    "admin client": (
        lambda served: KafkaAdminClient(bootstrap_servers=served),
        [lambda it: it.list_topics(), lambda it: it.describe_cluster()],
    ),
    "share consumer": (
        lambda served: KafkaShareConsumer("t", bootstrap_servers=served, group_id="s"),
        [lambda it: it.poll(1000)],
    ),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_clients_refuse_to_be_used_in_the_child_and_go_on_in_the_parent(served: str, kind: str) -> None:
    make, uses = OTHERS[kind]
    client = make(served)
    try:
        uses[0](client)
        for use in uses:
            outcome = in_child(lambda use=use: use(client))  # type: ignore[misc]
            assert "parent process" in outcome and "make a new one in the child" in outcome, outcome
        assert in_child(client.close) == "None"
        uses[0](client)
    finally:
        client.close()
