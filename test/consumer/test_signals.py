"""Calls of a consumer that come in the midst of another one: from signal handlers, listeners and other threads."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import pytest

from kafka.consumer import KafkaConsumer
from kafka.consumer.driver import WakeupEvent
from kafka.errors import IllegalStateError, KafkaError, KafkaTimeoutError, WakeupError
from kafka.producer import KafkaProducer
from kafka.structs import TopicPartition
from kafka.testing import EmbeddedBroker
from test.support.waiting import polled, until

WHERE, NOWHERE = TopicPartition("signals", 0), TopicPartition("signals", 99)


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    with EmbeddedBroker(in_process=True, settings={"group.initial.rebalance.delay.ms": "0"}) as broker:
        with KafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            for n in range(20):
                producer.send(WHERE.topic, b"%d" % n, partition=0)
        yield broker.bootstrap


@pytest.fixture
def deaf() -> Iterator[str]:
    """A server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@contextmanager
def broken_into(after: int, handler: Callable[[], object]) -> Iterator[list[int]]:
    """``handler`` is called as a signal's is, at the ``after``-th of the points where Python looks for signals: where a
    function begins or goes on, and behind a call of a built-in one. Counts them."""
    points = [0]

    def look(_frame: FrameType, event: str, _: Any) -> None:
        if event in ("call", "c_return"):
            points[0] += 1
            if points[0] == after:
                sys.setprofile(None)
                try:
                    handler()
                finally:
                    sys.setprofile(look)

    sys.setprofile(look)
    try:
        yield points
    finally:
        sys.setprofile(None)


class Aside:
    """``action`` in a thread of its own, which may hang."""

    def __init__(self, action: Callable[[], object]) -> None:
        self.error: BaseException | None = None
        self._action = action
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._action()
        except BaseException as error:
            self.error = error

    def join(self, timeout_s: float = 60) -> BaseException | None:
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), "it hangs"
        return self.error


class Listener:
    def on_partitions_revoked(self, revoked: Any) -> None: ...

    def on_partitions_assigned(self, assigned: Any) -> None: ...


def reading(served: str, **configs: Any) -> KafkaConsumer:
    """One that has read its first record."""
    consumer = KafkaConsumer(bootstrap_servers=served, auto_offset_reset="earliest", max_poll_records=1, **configs)
    consumer.assign([WHERE])
    while not consumer.poll(1000):
        pass
    return consumer


@pytest.mark.parametrize("what", ["wakeup", "assignment", "paused", "pause"])
def test_a_signal_handler_may_use_the_consumer_wherever_it_breaks_in(served: str, what: str) -> None:
    def poll_on() -> None:
        with reading(served) as consumer:
            after, is_over = 0, False
            while not is_over:
                after += 1
                woken = 0
                consumer.seek(WHERE, 0)
                act = (lambda: consumer.pause(WHERE)) if what == "pause" else getattr(consumer, what)
                with broken_into(after, act) as points:
                    for _ in range(2):
                        try:
                            consumer.poll(0)
                        except WakeupError:
                            woken += 1
                is_over = points[0] < after
                if what == "wakeup" and points[0] > after + 100:
                    assert woken == 1, f"point {after} of {points}"

    assert Aside(poll_on).join() is None


def test_close_in_a_signal_handler_is_done_wherever_it_breaks_in(served: str) -> None:
    def close_all() -> None:
        after, is_over = 0, False
        while not is_over:
            after += 7  # each takes a consumer
            consumer = reading(served)
            with broken_into(after, consumer.close) as points, suppress(IllegalStateError):
                for _ in range(3):
                    consumer.poll(0)
                is_over = points[0] < after
            consumer.close()
            assert not consumer._host._thread.is_alive(), f"point {after}"  # type: ignore[attr-defined]

    assert Aside(close_all).join() is None


def test_close_in_a_signal_handler_ends_the_poll_and_is_done_at_its_end(served: str) -> None:
    consumer = reading(served)
    consumer.seek_to_end()
    inside: list[bool] = []

    def handler() -> None:
        consumer.close()
        inside.append(consumer._host._is_closed)

    def interpose(*_: Any) -> bool:
        handler()
        return wait(0)

    wait = consumer._wakeup.wait

    class Interposed(WakeupEvent):
        wait = interpose

    consumer._wakeup = Interposed()
    with pytest.raises(IllegalStateError, match="the consumer is closed"):
        consumer.poll(60_000)
    assert inside == [False]
    assert consumer._host._is_closed


def test_what_a_poll_takes_while_it_is_closed_is_not_committed(served: str) -> None:
    consumer = reading(served, group_id="taken", interceptors=[])
    take = consumer._reader.take

    def take_and_close(limit: int) -> Any:
        records = take(limit)
        if records:
            consumer.close()
        return records

    class Closing:
        begin, interrupted, give_back = (
            consumer._reader.begin, consumer._reader.interrupted, consumer._reader.give_back,
        )  # fmt: skip
        take = staticmethod(take_and_close)

    consumer._reader = Closing()  # type: ignore[assignment]
    with pytest.raises(IllegalStateError):
        consumer.poll(10_000)
    with KafkaConsumer(bootstrap_servers=served, group_id="taken") as after:
        assert after.committed(WHERE) == 1


def test_close_in_a_listener_is_done_when_the_poll_has_ended(served: str) -> None:
    class Closes(Listener):
        def on_partitions_assigned(self, assigned: Any) -> None:
            consumer.close()
            assert consumer.position(WHERE) == 0, "it may go on with its work"

    consumer = KafkaConsumer(bootstrap_servers=served, group_id="closes", auto_offset_reset="earliest")
    consumer.subscribe([WHERE.topic], listener=Closes())
    with pytest.raises(IllegalStateError, match="the consumer is closed"):
        consumer.poll(60_000)
    assert consumer._host._is_closed


# -- iteration --------------------------------------------------------------------------------------------------------


def test_close_within_iteration_ends_it_and_the_rest_of_the_batch_is_unread(served: str) -> None:
    consumer = KafkaConsumer(bootstrap_servers=served, group_id="loop", auto_offset_reset="earliest")
    consumer.assign([WHERE])
    got = []
    for record in consumer:
        got.append(record.offset)
        if len(got) == 3:
            consumer.close()
    assert got == [0, 1, 2]
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(consumer)
    with KafkaConsumer(bootstrap_servers=served, group_id="loop") as after:
        assert after.committed(WHERE) == 3


def test_close_in_another_thread_ends_iteration_that_waits(served: str) -> None:
    consumer = KafkaConsumer(bootstrap_servers=served, auto_offset_reset="latest")
    consumer.assign([WHERE])
    waits = threading.Event()

    def iterate() -> None:
        for _ in consumer:
            raise AssertionError("nothing came")

    class Telling(WakeupEvent):
        def wait(self, timeout_s: float) -> bool:
            waits.set()
            return super().wait(timeout_s)

    bell = consumer._wakeup = Telling()
    aside = Aside(iterate)
    assert waits.wait(30)
    assert consumer._wakeup is bell
    consumer.close()
    assert aside.join() is None


# -- calls that wait --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("end", "error"), [("close", IllegalStateError), ("wakeup", WakeupError)])
def test_a_wait_for_a_position_raises_the_final_error(served: str, end: str, error: type[Exception]) -> None:
    with KafkaConsumer(bootstrap_servers=served) as consumer:
        consumer.assign([NOWHERE])
        aside = Aside(lambda: consumer.position(NOWHERE, timeout_ms=600_000))
        while not consumer._thread_guard.is_held:
            threading.Event().wait(0.001)
        getattr(consumer, end)()
        assert isinstance(aside.join(), error)


@pytest.mark.parametrize("call", ["commit", "committed"])
def test_close_ends_a_call_that_waits_for_the_coordinator(deaf: str, call: str) -> None:
    consumer = KafkaConsumer(bootstrap_servers=deaf, group_id="g", enable_auto_commit=False)
    given = {"commit": {WHERE: 1}, "committed": WHERE}[call]
    aside = Aside(lambda: getattr(consumer, call)(given, timeout_ms=600_000))
    until(lambda: consumer._thread_guard.is_held)
    consumer.close(timeout_ms=100)
    assert isinstance(aside.join(), IllegalStateError)


def test_a_commit_keeps_to_its_time_behind_another_one_too(deaf: str) -> None:
    consumer = KafkaConsumer(bootstrap_servers=deaf, group_id="g", enable_auto_commit=False)
    consumer.commit_async({WHERE: 1})
    began = time.monotonic()
    with pytest.raises(KafkaTimeoutError, match="within 3 s"):
        consumer.commit({WHERE: 2}, timeout_ms=3000)
    assert time.monotonic() - began < 5.9, "it has waited twice"
    consumer.close(timeout_ms=0)


# -- leaving ----------------------------------------------------------------------------------------------------------


def test_a_listener_that_raises_in_unsubscribe_does_so_once_nothing_is_read_any_more(served: str) -> None:
    class Fails(Listener):
        def on_partitions_revoked(self, revoked: Any) -> None:
            raise ValueError("oops")

    with KafkaConsumer(bootstrap_servers=served, group_id="fails", auto_offset_reset="earliest") as consumer:
        consumer.subscribe([WHERE.topic], listener=Fails())
        polled(consumer, 1)
        with pytest.raises(KafkaError, match="oops"):
            consumer.unsubscribe()
        assert (consumer.subscription(), consumer.assignment()) == (None, set())
        consumer.assign([WHERE])
        consumer.seek(WHERE, 0)
        assert polled(consumer, 1)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_close_that_may_not_wait_leaves_the_group_all_the_same(served: str, protocol: str) -> None:
    configs: dict[str, Any] = {"bootstrap_servers": served, "group_id": f"hasty-{protocol}", "group_protocol": protocol}
    first = KafkaConsumer(WHERE.topic, **configs)
    until(first.assignment, meanwhile=lambda: first.poll(100))
    first.close(timeout_ms=0)
    with KafkaConsumer(WHERE.topic, **configs) as second:
        until(second.assignment, "the first has left", within_s=20, meanwhile=lambda: second.poll(100))
