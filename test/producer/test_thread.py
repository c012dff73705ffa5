"""A producer with a loop and an I/O thread of its own."""

from __future__ import annotations

import gc
import socket
import threading
import time

import pytest

from kafka.consumer import KafkaConsumer
from kafka.errors import IllegalStateError, KafkaTimeoutError
from kafka.producer import KafkaProducer


@pytest.fixture
def nobody() -> str:
    """An address where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


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
    thread.join(10)
    assert not thread.is_alive()


def test_close_ends_the_thread_and_may_be_called_again(nobody: str) -> None:
    before = io_threads()
    producer = KafkaProducer(bootstrap_servers=nobody)
    producer.close()
    producer.close()
    assert io_threads() == before
    for call in (lambda: producer.send("t", b"x"), producer.flush, lambda: producer.partitions_for("t")):
        with pytest.raises(IllegalStateError, match="closed"):
            call()


def test_without_a_broker_send_gives_up_after_max_block_ms_and_says_what_it_waited_for(nobody: str) -> None:
    with KafkaProducer(bootstrap_servers=nobody, max_block_ms=300, request_timeout_ms=200) as producer:
        began = time.monotonic()
        with pytest.raises(KafkaTimeoutError, match="topic t were not known within max_block_ms=300"):
            producer.send("t", b"x")
        assert time.monotonic() - began < 5


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
