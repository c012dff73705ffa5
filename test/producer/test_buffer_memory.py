"""That ``buffer_memory`` bounds what a process holds, measured in processes; and threads that wait for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from types import FrameType
from typing import Any

import pytest

from kafka.core.produce.accumulator import BufferFull
from kafka.errors import IllegalStateError, KafkaTimeoutError
from kafka.producer import FutureRecordMetadata, KafkaProducer
from kafka.producer.producer import ThreadWaiter, append_when_memory_is_free
from kafka.testing import EmbeddedBroker
from test.producer.support import producer_in_memory
from test.support.waiting import until

SMALL_BYTES = 8 * 1024 * 1024
DEFAULT_BYTES = 32 * 1024 * 1024
"""Used where much is being written when the broker stops. How much is a matter of moments, and the requests are counted
once, as batches; what that leaves to the heap is up to 4 MB, however large the buffer is."""
MOST = 1.2
"""What a process may grow by, in buffers."""

ROWS = ("producer/producer.py", "produce/accumulator.py", "produce/memory.py")
"""Where a row of waiters is kept."""

PROGRAM = """
    import gc, json, os, signal, sys
    from kafka import KafkaAdminClient, KafkaProducer
    from kafka.errors import KafkaTimeoutError
    from kafka.testing import EmbeddedBroker

    size, with_keys, with_headers, partitions, configs = json.loads(sys.argv[1])

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def record(number):
        return {
            "value": (b"%d" % number * (size // 4 + 1))[:size],
            "key": b"key-%d" % number if with_keys else None,
            "headers": [("first", b"value"), ("second", b"another")] if with_headers else None,
            "partition": number % partitions if partitions > 1 else None,
        }

    with EmbeddedBroker() as broker:
        with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin:
            admin.create_topics({"t": {"num_partitions": partitions}})
        producer = KafkaProducer(
            bootstrap_servers=broker.bootstrap,
            buffer_memory=BUFFER,
            max_block_ms=300,
            request_timeout_ms=120_000,
            **configs,
        )
        for number in range(max(partitions, 30)):  # no more: what these leave to the heap would be taken up again
            producer.send("t", **record(number))
        producer.flush()
        gc.collect()
        before = resident()
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            number = 0
            try:
                while True:
                    producer.send("t", **record(number))
                    number += 1
            except KafkaTimeoutError as error:
                text = str(error)
            gc.collect()
            print(json.dumps([resident() - before, number, text]))
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        producer.close(timeout=0)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc/self/statm to measure memory")
@pytest.mark.parametrize(
    ("size", "keys", "headers", "partitions", "buffer_bytes", "configs"),
    [
        pytest.param(100, False, False, 1, SMALL_BYTES, {}, id="100 bytes"),
        pytest.param(1000, False, False, 1, SMALL_BYTES, {}, id="1,000 bytes"),
        pytest.param(0, False, False, 1, SMALL_BYTES, {}, id="empty"),
        pytest.param(0, True, True, 1, SMALL_BYTES, {}, id="empty with keys and headers"),
        pytest.param(100, True, True, 1, SMALL_BYTES, {}, id="100 bytes with keys and headers"),
        pytest.param(100, False, False, 1000, DEFAULT_BYTES, {}, id="100 bytes in 1,000 partitions"),
        pytest.param(1000, True, False, 1000, DEFAULT_BYTES, {}, id="1,000 bytes with keys in 1,000 partitions"),
        pytest.param(100, False, False, 1, SMALL_BYTES, {"compression_type": "gzip"}, id="compressed"),
        pytest.param(100, False, False, 1, SMALL_BYTES, {"batch_size": 262_144}, id="large batches"),
        pytest.param(100, False, False, 1, SMALL_BYTES, {"batch_size": 0}, id="a batch for each record"),
        pytest.param(1000, False, False, 64, DEFAULT_BYTES, {"batch_size": 1_048_576}, id="batches larger than it"),
    ],
)
def test_a_process_grows_by_a_fifth_more_than_buffer_memory_at_most_when_its_broker_stops(
    size: int, keys: bool, headers: bool, partitions: int, buffer_bytes: int, configs: dict[str, Any]
) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            textwrap.dedent(PROGRAM).replace("BUFFER", str(buffer_bytes)),
            json.dumps([size, keys, headers, partitions, configs]),
        ],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    grown, count, text = json.loads(done.stdout)
    assert grown <= MOST * buffer_bytes, f"{grown / buffer_bytes:.2f} buffers, {count} records"
    assert grown >= 0.5 * buffer_bytes, f"{grown / buffer_bytes:.2f} buffers, {count} records"
    assert f"of buffer_memory={buffer_bytes} are in use by t-" in text
    assert "after max_block_ms=300" in text


def test_the_error_says_what_was_waited_for_for_how_long_and_which_partitions_hold_the_memory() -> None:
    with _broker() as broker, _producer(broker, max_block_ms=200, buffer_memory=40_000) as producer:
        producer.send("t", b"x").get(30)
        broker.pause()
        try:
            with pytest.raises(KafkaTimeoutError) as raised:
                for _ in range(100):
                    producer.send("t", b"x" * 1000)
        finally:
            broker.resume()
        assert raised.match(
            r"no memory for a record of topic t after max_block_ms=200: it needs \d+ bytes, and \d+ of "
            r"buffer_memory=40000 are in use by t-0 \(\d+ bytes in \d+ batches, [1-5] of them unanswered by node \d, "
            r"the oldest for \d+\.\d s"
        )


def test_threads_get_memory_in_the_order_in_which_they_came_and_nobody_is_left() -> None:
    with _broker() as broker, _producer(broker, max_block_ms=60_000, buffer_memory=60_000) as producer:
        producer.send("t", b"x").get(30)
        broker.pause()
        order: dict[int, FutureRecordMetadata] = {}
        threads: list[threading.Thread] = []
        try:
            with pytest.raises(KafkaTimeoutError):
                _fill(producer)
            waiters = producer._accumulator.memory.waiters

            def run(number: int) -> None:
                order[number] = producer.send("t", b"y" * 12_000)

            for number in range(8):
                thread = threading.Thread(target=run, args=(number,))
                thread.start()
                threads.append(thread)
                until(lambda number=number: len(waiters) == number + 1)
        finally:
            broker.resume()
        for thread in threads:
            thread.join(30)
        offsets = [order[number].get(30).offset for number in range(8)]
        assert offsets == sorted(offsets)
        producer.flush(30)
        assert producer._accumulator.memory.used_bytes == 0
        assert not producer._accumulator.memory.is_short


def test_a_thread_that_waits_for_memory_gets_an_error_when_the_producer_is_closed() -> None:
    with _broker() as broker, _producer(broker, max_block_ms=60_000, buffer_memory=60_000) as producer:
        producer.send("t", b"x").get(30)
        broker.pause()
        errors: list[BaseException] = []
        try:
            with pytest.raises(KafkaTimeoutError):
                _fill(producer)

            def run() -> None:
                try:
                    producer.send("t", b"y" * 12_000)
                except IllegalStateError as error:
                    errors.append(error)

            thread = threading.Thread(target=run)
            thread.start()
            until(lambda: bool(producer._accumulator.memory.waiters))
            producer.close(timeout=0)
            thread.join(30)
        finally:
            broker.resume()
        assert "closed" in str(errors[0])


def test_many_threads_through_a_small_memory_lose_nothing() -> None:
    with _broker() as broker, _producer(broker, buffer_memory=50_000, batch_size=4_000) as producer:

        def run(number: int) -> None:
            for index in range(500):
                futures[number].append(producer.send("t", b"%d-%d" % (number, index) + b"x" * 200))

        futures: list[list[Any]] = [[] for _ in range(8)]
        threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        producer.flush(30)
        for own in futures:
            offsets = [future.get(0).offset for future in own]
            assert len(offsets) == 500
            assert offsets == sorted(offsets)
        assert producer._accumulator.memory.used_bytes == 0


def test_records_that_wait_for_their_topic_on_a_loop_are_within_the_memory_too() -> None:
    with producer_in_memory(buffer_memory=10_000) as rig:
        with pytest.raises(KafkaTimeoutError, match="topic t, whose partitions are not known yet"):
            for _ in range(1000):
                rig.producer.send("t", b"x" * 100)
        assert 15 < rig.producer._accumulator.topics["t"].unassigned.records_count < 30  # type: ignore[union-attr]
        rig.flush()
        rig.producer.send("t", b"x" * 100)


def test_a_lingering_batch_goes_out_when_memory_is_short() -> None:
    with producer_in_memory(buffer_memory=20_000, linger_ms=60_000) as rig:
        rig.producer.send("t", b"x" * 15_000)
        rig.loop.run_until(lambda: False, 1.0)
        assert rig.cluster.logs[0] == []
        with pytest.raises(KafkaTimeoutError):
            rig.producer.send("t", b"y" * 15_000)
        assert rig.loop.run_until(lambda: rig.producer._accumulator.memory.used_bytes == 0, 1.0)
        assert len(rig.cluster.logs[0]) == 1
        rig.producer.send("t", b"y" * 15_000)


def _broker() -> EmbeddedBroker:
    return EmbeddedBroker(topics={"t": 1})


def _producer(broker: EmbeddedBroker, **configs: Any) -> KafkaProducer:
    return KafkaProducer(bootstrap_servers=broker.bootstrap, request_timeout_ms=60_000, **configs)


def _fill(producer: KafkaProducer) -> None:
    """Send until there is no memory; the producer is patient, so it is told to be less so."""
    patience = producer._settings["max_block_ms"]
    producer._settings["max_block_ms"] = 50
    try:
        while True:
            producer.send("t", b"x" * 12_000)
    finally:
        producer._settings["max_block_ms"] = patience


@pytest.mark.parametrize("is_full", [False, True], ids=["there is room", "there is none"])
def test_an_interrupt_while_waiting_for_memory_leaves_nobody_in_the_row(is_full: bool) -> None:
    """At each point where Python looks for signals: a waiter that stays stands in everybody's way."""
    after, is_over = 0, False
    while not is_over:
        after += 1
        with producer_in_memory(buffer_memory=20_000, linger_ms=60_000) as rig:
            rig.producer.send("t", b"x" * 100)
            rig.loop.run_until(lambda: False, 1.0)  # its topic is known
            accumulator = rig.producer._accumulator
            topic = accumulator.topics["t"]
            record = (topic, topic.queues[0], 0, None, b"y" * (30_000 if is_full else 5_000), None)
            points = [0]

            def look(frame: FrameType, event: str, _: object, points: list[int] = points, after: int = after) -> None:
                if event in ("call", "c_return") and frame.f_code.co_filename.endswith(ROWS):
                    points[0] += 1
                    if points[0] == after:
                        raise KeyboardInterrupt

            sys.setprofile(look)
            try:
                append_when_memory_is_free(accumulator, BufferFull(1), 0, lambda: None, record)
                is_over = True
            except KeyboardInterrupt:
                pass
            except KafkaTimeoutError:
                is_over = True
            finally:
                sys.setprofile(None)
            assert not accumulator.memory.waiters, f"point {after}"
            is_over = is_over and points[0] < after
    assert after > 3


def test_who_was_woken_before_it_slept_does_not_sleep() -> None:
    waiter = ThreadWaiter(1)
    waiter.wake()
    waiter.wake()
    assert waiter.sleep(time.monotonic() + 60)
    assert not waiter.sleep(time.monotonic() - 1), "it was woken once, however often"
