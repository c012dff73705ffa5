"""A producer with a loop and an I/O thread of its own."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from math import inf

import pytest

from kafka.consumer import KafkaConsumer
from kafka.errors import Cancelled, IllegalStateError, KafkaTimeoutError
from kafka.producer import KafkaProducer
from kafka.structs import TopicPartition
from kafka.testing import EmbeddedBroker
from test.producer.support import run_program
from test.support.ports import free_ports


@pytest.fixture
def nobody() -> str:
    """An address where nobody listens."""
    return f"127.0.0.1:{free_ports(1)[0]}"


def io_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("kafka-")}


@pytest.mark.parametrize("kind", [KafkaProducer, KafkaConsumer])
def test_a_client_that_is_forgotten_ends_its_thread(
    nobody: str, kind: type[KafkaProducer] | type[KafkaConsumer]
) -> None:
    before = io_threads()
    client = kind(bootstrap_servers=nobody)
    (thread,) = io_threads() - before
    del client
    gc.collect()
    thread.join(30)
    assert not thread.is_alive()


def test_close_ends_the_thread_and_may_be_called_again(nobody: str) -> None:
    before = io_threads()
    producer = KafkaProducer(bootstrap_servers=nobody)
    producer.close()
    producer.close()
    assert not io_threads() - before
    for call in (lambda: producer.send("t", b"x"), lambda: producer.partitions_for("t")):
        with pytest.raises(IllegalStateError, match="closed"):
            call()


def test_there_is_nothing_to_flush_after_close_also_when_records_were_given_up(served: str) -> None:
    producer = KafkaProducer(bootstrap_servers=served, linger_ms=60_000)
    future = producer.send("t", b"x")
    producer.close(timeout=0)
    assert isinstance(future.exception, Cancelled)
    producer.flush()
    producer.flush(timeout=5)


def test_a_producer_with_half_a_millisecond_to_linger_and_no_limit_to_wait_sends(served: str) -> None:
    with KafkaProducer(
        bootstrap_servers=f"PLAINTEXT://{served}", linger_ms=0.5, max_block_ms=inf, retry_backoff_ms=0.5,
        retry_backoff_max_ms=1.5, reconnect_backoff_ms=0.5, reconnect_backoff_max_ms=1.5, transactional_id="endless",
    ) as producer:  # fmt: skip
        producer.init_transactions()
        producer.begin_transaction()
        assert producer.send("t", b"x").get(30).topic == "t"
        producer.commit_transaction()


def test_without_a_broker_send_gives_up_after_max_block_ms_and_says_what_it_waited_for(nobody: str) -> None:
    with KafkaProducer(bootstrap_servers=nobody, max_block_ms=300, request_timeout_ms=200) as producer:
        began = time.monotonic()
        with pytest.raises(KafkaTimeoutError, match="topic t were not known within max_block_ms=300"):
            producer.send("t", b"x")
        assert time.monotonic() - began < 30, "half of max_block_ms as it is without settings"


def test_waiting_in_a_callback_of_the_io_thread_is_refused_and_not_a_hang(nobody: str) -> None:
    with KafkaProducer(bootstrap_servers=nobody) as producer:
        refused: list[BaseException] = []

        def wait() -> None:
            try:
                producer.flush()
            except IllegalStateError as error:
                refused.append(error)

        producer._host.call(wait)
        assert "own thread" in str(refused[0])


@pytest.fixture
def served() -> Iterator[str]:
    with EmbeddedBroker(in_process=True) as broker:
        yield broker.bootstrap


def test_a_record_of_a_producer_that_is_forgotten_is_delivered(served: str) -> None:
    before = io_threads()
    future = KafkaProducer(bootstrap_servers=served, linger_ms=100).send("t", b"x")
    gc.collect()
    assert future.get(30).offset == 0
    for thread in io_threads() - before:
        thread.join(30)
    assert not io_threads() - before


@pytest.mark.parametrize("end", ["", "raise SystemExit(3)", "1 / 0"])
def test_the_end_of_the_interpreter_delivers_what_was_sent_without_close(served: str, end: str) -> None:
    code = f"""
        from kafka import KafkaProducer
        producer = KafkaProducer(bootstrap_servers={served!r}, linger_ms=60_000)
        for _ in range(100):
            producer.send("t", b"x")
        {end}
    """
    run_program(code)
    with KafkaConsumer("t", bootstrap_servers=served, auto_offset_reset="earliest") as consumer:
        assert consumer.end_offsets([TopicPartition("t", 0)]) == {TopicPartition("t", 0): 100}


def test_the_end_of_the_interpreter_waits_only_so_long_and_says_what_was_lost() -> None:
    with EmbeddedBroker() as broker:
        code = f"""
            import os, signal
            from kafka import KafkaProducer
            from kafka.client import io_thread
            io_thread.EXIT_TIMEOUT_S = 0.2
            producer = KafkaProducer(bootstrap_servers={broker.bootstrap!r})
            producer.send("t", b"x").get(30)
            os.kill({broker.pid}, signal.SIGSTOP)
            producer.send("t", b"x")
        """
        try:
            done = run_program(code)
        finally:
            os.kill(broker.pid, signal.SIGCONT)
    assert done.stderr == "producer closed with 1 unacknowledged record; failing it\n"


@pytest.mark.parametrize("stop", [SystemExit(3), KeyboardInterrupt()], ids=["sys.exit", "KeyboardInterrupt"])
def test_a_callback_that_wants_to_end_its_thread_does_not_end_the_producer(
    stop: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def end(_: object) -> None:
        raise stop

    with EmbeddedBroker(topics=["t"]) as broker, KafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
        called = threading.Event()
        first = producer.send("t", b"1").add_callback(end).add_callback(lambda _: called.set())
        first.get(timeout=10)
        assert called.wait(30), "the other callbacks were called"
        assert producer.send("t", b"2").get(timeout=10).offset == 1
    assert "future callback raised SystemExit or KeyboardInterrupt" in caplog.text


def test_a_transactional_call_that_timed_out_says_what_the_broker_answered_last() -> None:
    with (
        EmbeddedBroker(topics=["t"]) as broker,
        KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="x") as producer,
    ):
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({TopicPartition("t", 0): 0}, "group")
        producer._settings["max_block_ms"] = 1000
        with pytest.raises(KafkaTimeoutError, match=r"last: .*UnknownTopicOrPartitionError"):
            producer.send_offsets_to_transaction({TopicPartition("nowhere", 0): 1}, "group")
        producer._settings["max_block_ms"] = 60_000
        producer.abort_transaction()


def test_a_record_that_is_late_for_close_is_refused_and_not_forgotten(served: str) -> None:
    are_inside, may_go_on = threading.Barrier(4), threading.Event()
    outcomes: list[object] = []

    def serialize(value: bytes) -> bytes:
        if value == b"late":
            are_inside.wait(30)
            may_go_on.wait(30)
        return value

    producer = KafkaProducer(bootstrap_servers=served, value_serializer=serialize)
    producer.send("t", b"x").get(30)

    def send() -> None:
        try:
            outcomes.append(producer.send("t", b"late", partition=0))
        except IllegalStateError as error:
            outcomes.append(error.args[0])

    threads = [threading.Thread(target=send) for _ in range(3)]
    for thread in threads:
        thread.start()
    are_inside.wait(30)
    producer.close()
    may_go_on.set()
    for thread in threads:
        thread.join(30)
    assert outcomes == ["the producer is closed"] * 3
    assert producer._accumulator.memory.used_bytes == 0


def test_close_takes_no_more_records_while_it_delivers_those_that_are_there(served: str) -> None:
    producer = KafkaProducer(bootstrap_servers=served, linger_ms=50)
    producer.send("t", b"x").get(30)
    refusals: list[str] = []

    def send_again(_: object) -> None:
        try:
            producer.send("t", b"late")
        except IllegalStateError as error:
            refusals.append(error.args[0])

    producer.send("t", b"last").add_both(send_again)
    producer.close()
    assert refusals == ["the producer is closed"]


MANY = 20_000
"""Records that take far longer than any of the timers below."""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timers here")
def test_signal_handlers_that_raise_in_the_middle_of_send_stop_neither_the_producer_nor_the_process() -> None:
    class Interrupt(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupt

    sent = interrupts = 0
    dropped: list[type[BaseException]] = []
    with EmbeddedBroker(topics=["t"]) as broker, KafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send("t", b"first").get(timeout=10)
        hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: dropped.append(unraisable.exc_type)
        before = signal.signal(signal.SIGALRM, interrupt)
        give_up_at = time.monotonic() + 30
        try:
            while time.monotonic() < give_up_at:
                if interrupts == 1500:
                    break
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.0001 + interrupts % 7 * 0.00004)
                    for _ in range(MANY):  # not for ever: Python drops what is raised where it collects or destroys
                        producer.send("t", b"x" * 100, key=b"a key" if sent % 2 else None)
                        sent += 1
                except Interrupt:
                    interrupts += 1
        finally:
            signal.signal(signal.SIGALRM, signal.SIG_IGN)
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            sys.unraisablehook = hook
        assert set(dropped) <= {Interrupt}
        producer.flush(timeout=20)
        assert producer.send("t", b"last").get(timeout=10)
        assert len(broker.records("t")) >= sent + 2
