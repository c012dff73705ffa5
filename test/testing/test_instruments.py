"""Faults, clock and requests of a broker that runs: shown on a bare socket, in a thread and in a process alike."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kafka.errors import IllegalArgumentError, KafkaProtocolError, KafkaTimeoutError, NotLeaderForPartitionError
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.testing import BrokerGoneError, EmbeddedBroker
from kafka.testing.instruments import ControlConnection
from test.broker.driver import batch, fetch_request, fetched, produce_request, values
from test.broker.raw_client import RawClient

NOTHING = MetadataRequest(topics=[])


@pytest.fixture(scope="module", params=["in process", "process"])
def shared(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(in_process=request.param == "in process") as broker:
        yield broker


@pytest.fixture
def broker(shared: EmbeddedBroker) -> Iterator[EmbeddedBroker]:
    yield shared
    shared.faults.clear()
    shared.clock.resume()
    shared.accept_connections()


@pytest.fixture
def topic(broker: EmbeddedBroker, request: pytest.FixtureRequest) -> str:
    return broker.create_topic("".join(letter if letter.isalnum() else "-" for letter in request.node.name))


def read(broker: EmbeddedBroker, topic: str) -> list[bytes | None]:
    with RawClient(broker.port) as client:
        return values(fetched(client.ask(fetch_request(topic), 12))[0].records)


def is_silent(client: RawClient, seconds: float = 0.1) -> bool:
    """Whether nothing comes, neither bytes nor the end."""
    client.socket.settimeout(seconds)
    try:
        return client.socket.recv(1, socket.MSG_PEEK) is None
    except TimeoutError:
        return True
    finally:
        client.socket.settimeout(20)


# -- what happens to answers -----------------------------------------------------------------------------------------


def test_an_error_is_answered_in_the_brokers_place(broker: EmbeddedBroker, client: RawClient, topic: str) -> None:
    with broker.faults.answer("Produce", NotLeaderForPartitionError, topic=topic, nth=1) as fault:
        first, second = (client.ask(produce_request(topic, batch(b"a")), 9) for _ in range(2))
        assert [one.responses[0].partition_responses[0].error_code for one in (first, second)] == [6, 0]
        assert (fault.seen, fault.hits) == (2, 1)
    assert broker.faults.rules == []
    assert (fault.seen, fault.hits) == (2, 1), "a rule that was removed is still told about"


def test_a_lost_acknowledgement_is_of_something_that_was_done(
    broker: EmbeddedBroker, client: RawClient, topic: str
) -> None:
    with broker.faults.close("Produce", when="after", topic=topic), pytest.raises(EOFError):
        client.ask(produce_request(topic, batch(b"a")), 9)
    assert read(broker, topic) == [b"a"]


def test_a_lost_request_is_of_something_that_was_not_done(
    broker: EmbeddedBroker, client: RawClient, topic: str
) -> None:
    with broker.faults.close("Produce", topic=topic), pytest.raises(EOFError):
        client.ask(produce_request(topic, batch(b"a")), 9)
    assert read(broker, topic) == []


def test_a_reset_is_no_orderly_end(broker: EmbeddedBroker, client: RawClient) -> None:
    with broker.faults.close("Metadata", reset=True), pytest.raises(ConnectionResetError):
        client.ask(NOTHING)


def test_an_answer_ends_in_its_middle(broker: EmbeddedBroker, client: RawClient) -> None:
    broker.faults.close("Metadata", when="during", keep=6)
    client.send(NOTHING)
    received = b""
    while more := client.socket.recv(100):
        received += more
    assert len(received) == 6
    assert int.from_bytes(received[:4], "big") > 6


def test_a_truncated_answer_is_a_whole_frame(broker: EmbeddedBroker, client: RawClient) -> None:
    with broker.faults.truncate("Metadata", keep=9, nth=1):
        with pytest.raises(KafkaProtocolError):
            client.ask(NOTHING)
        assert client.ask(NOTHING).controller_id == 1, "the connection goes on"


def test_a_corrupt_answer_keeps_its_length_and_correlation_id(broker: EmbeddedBroker, client: RawClient) -> None:
    right = b""
    broker.faults.corrupt("Metadata", what="answer", count=3, seed=1, nth=2)
    frames = []
    for _ in range(2):
        client.send(NOTHING)
        size = int.from_bytes(client._exactly(4), "big")
        frames.append(client._exactly(size))
    right, wrong = frames
    assert len(right) == len(wrong)
    assert wrong[:4] == (2).to_bytes(4, "big")
    assert sum(one != other for one, other in zip(right[4:], wrong[4:], strict=True)) == 3


def test_records_are_corrupt_once(broker: EmbeddedBroker, client: RawClient, topic: str) -> None:
    client.ask(produce_request(topic, batch(b"a")), 9)
    broker.faults.corrupt("Fetch", topic=topic, first=1)
    damaged, whole = (fetched(client.ask(fetch_request(topic), 12))[0].records for _ in range(2))
    assert bytes(damaged or b"") != bytes(whole or b"")  # type: ignore[arg-type]
    assert values(whole) == [b"a"]


def test_a_dropped_request_leaves_the_connection_and_others_alone(broker: EmbeddedBroker, client: RawClient) -> None:
    fault = broker.faults.drop("Metadata", nth=1)
    client.send(NOTHING)
    fault.wait()
    with RawClient(broker.port) as other:
        assert other.ask(NOTHING).controller_id == 1
    client.send(NOTHING)
    assert is_silent(client), "what comes later waits behind it"


# -- time ------------------------------------------------------------------------------------------------------------


def test_a_late_answer_comes_when_the_brokers_clock_says_so(broker: EmbeddedBroker, client: RawClient) -> None:
    broker.clock.freeze()
    fault = broker.faults.delay("Metadata", 60)
    client.send(NOTHING)
    fault.wait()
    broker.clock.advance(59)
    assert is_silent(client)
    broker.clock.advance(1)
    assert client.receive(NOTHING).controller_id == 1


def test_a_throttled_connection_gets_its_response_and_is_muted(broker: EmbeddedBroker, client: RawClient) -> None:
    broker.clock.freeze()
    broker.faults.throttle("Metadata", 30, nth=1)
    assert client.ask(NOTHING).throttle_time_ms == 30_000
    client.send(NOTHING)
    assert is_silent(client)
    broker.clock.advance(30)
    assert client.receive(NOTHING).throttle_time_ms == 0


def test_a_clock_leaps_stands_and_goes_on(broker: EmbeddedBroker) -> None:
    clock = broker.clock
    before = clock.time, clock.monotonic
    clock.advance(1000)
    after = clock.time, clock.monotonic
    assert all(1000 <= new - old < 1020 for old, new in zip(before, after, strict=True))
    clock.freeze()
    stands = clock.time
    assert clock.time == stands
    clock.advance(5)
    assert clock.time == pytest.approx(stands + 5)
    clock.resume()
    threading.Event().wait(0.01)
    assert stands + 5 < clock.time < stands + 25
    for seconds in (-1, "3"):
        with pytest.raises(IllegalArgumentError, match="from 0 on"):
            clock.advance(seconds)  # type: ignore[arg-type]


def test_a_fetch_that_waits_ends_by_the_brokers_clock(broker: EmbeddedBroker, client: RawClient, topic: str) -> None:
    seen = broker.requests.count
    client.send(fetch_request(topic, max_wait_ms=3_600_000), 12)
    broker.requests.wait("Fetch", topic=topic, after=seen)
    broker.clock.advance(3600)
    assert fetched(client.receive(fetch_request(topic), 12))[0].error_code == 0


def test_records_carry_the_brokers_time(broker: EmbeddedBroker, client: RawClient) -> None:
    topic = broker.create_topic("by-the-brokers-clock", message_timestamp_type="LogAppendTime")
    broker.clock.freeze()
    broker.clock.advance(10 * 86_400)
    answer = client.ask(produce_request(topic, batch(b"a")), 9)
    stamp = answer.responses[0].partition_responses[0].log_append_time_ms
    assert stamp == pytest.approx(broker.clock.time * 1000, abs=1)
    assert stamp > (time.time() + 9 * 86_400) * 1000


# -- what was asked --------------------------------------------------------------------------------------------------


def test_requests_are_found_and_waited_for(broker: EmbeddedBroker, client: RawClient, topic: str) -> None:
    seen = broker.requests.count
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(broker.requests.wait, "Produce", 2, topic=topic)
        for value in (b"a", b"b"):
            client.ask(produce_request(topic, batch(value)), 9)
        found = waiting.result(30)
    assert [(one.api, one.version, one.client_id, one.topics) for one in found] == [("Produce", 9, "raw", (topic,))] * 2
    assert found == broker.requests.find(api=0, client_id="raw", topic=topic, after=seen)
    assert found[0].peer == f"127.0.0.1:{client.socket.getsockname()[1]}"
    assert broker.requests.find("Produce", client_id="nobody") == []
    with pytest.raises(KafkaTimeoutError, match="no 3 requests with api='Produce'"):
        broker.requests.wait("Produce", 3, 0.05, topic=topic)
    with pytest.raises(IllegalArgumentError, match="did you mean Produce"):
        broker.requests.find("Prodoce")
    broker.requests.clear()
    assert len(broker.requests) == 0


def test_a_rule_for_one_client_is_for_no_other(broker: EmbeddedBroker, client: RawClient) -> None:
    port = client.socket.getsockname()[1]
    broker.faults.close("Metadata", peer=port)
    with RawClient(broker.port) as other:
        assert other.ask(NOTHING).controller_id == 1
    with pytest.raises(EOFError):
        client.ask(NOTHING)


def test_a_wait_that_is_in_vain_says_what_was_waited_for(broker: EmbeddedBroker) -> None:
    fault = broker.faults.drop("Heartbeat", nth=2)
    with pytest.raises(KafkaTimeoutError, match=r"drop\(Heartbeat, when='before', nth=2\) was applied 0 times"):
        fault.wait(timeout=0.05)


# -- connections -----------------------------------------------------------------------------------------------------


def test_all_connections_end_at_once_and_new_ones_are_welcome(broker: EmbeddedBroker) -> None:
    clients = [RawClient(broker.port) for _ in range(5)]
    for client in clients:
        client.ask(NOTHING)
    assert broker.disconnect_all() == 5
    for client in clients:
        with client, pytest.raises((EOFError, ConnectionError)):
            client.ask(NOTHING)
    with RawClient(broker.port) as client:
        assert client.ask(NOTHING).controller_id == 1


def test_new_connections_are_refused_and_old_ones_go_on(broker: EmbeddedBroker, client: RawClient) -> None:
    client.ask(NOTHING)
    broker.refuse_connections()
    with pytest.raises((EOFError, ConnectionError)), RawClient(broker.port) as other:
        other.ask(NOTHING)
    assert client.ask(NOTHING).controller_id == 1
    broker.accept_connections()
    with RawClient(broker.port) as other:
        assert other.ask(NOTHING).controller_id == 1


def test_a_paused_broker_serves_nobody_and_keeps_all_connections(broker: EmbeddedBroker, client: RawClient) -> None:
    client.ask(NOTHING)
    broker.pause()
    client.send(NOTHING)
    assert is_silent(client)
    broker.resume()
    assert client.receive(NOTHING).controller_id == 1


# -- starts and ends -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_process", [True, False])
def test_rules_are_in_force_before_the_first_request_and_outlive_a_restart(tmp_path: Path, in_process: bool) -> None:
    broker = EmbeddedBroker(tmp_path, in_process=in_process)
    fault = broker.faults.close("Metadata", first=2)
    with broker:
        for hits in (1, 2):
            with RawClient(broker.port) as client, pytest.raises(EOFError):
                client.ask(NOTHING)
            assert fault.hits == hits
            broker.restart()
        with RawClient(broker.port) as client:
            assert client.ask(NOTHING).controller_id == 1
        assert (fault.seen, fault.hits) == (3, 2)
        assert len(broker.requests) == 1, "they are counted from the start"


@pytest.mark.parametrize("in_process", [True, False])
def test_a_large_answer_of_ones_own_outlives_a_restart(in_process: bool) -> None:
    answer = MetadataResponse(brokers=[], controller_id=7, topics=[], cluster_id="x" * 30_000)
    with EmbeddedBroker(in_process=in_process) as broker:
        for _ in range(30):
            broker.faults.answer("Metadata", answer)
        broker.restart()
        with RawClient(broker.port) as client:
            assert client.ask(NOTHING).controller_id == 7


@pytest.mark.parametrize("when", ["before", "after", "during"])
def test_a_broker_is_killed_at_a_chosen_moment(tmp_path: Path, when: str) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        topic = broker.create_topic("t")
        fault = broker.faults.kill("Produce", nth=2, when=when)
        with RawClient(broker.port) as client:
            client.ask(produce_request(topic, batch(b"first")), 9)
            with pytest.raises((EOFError, ConnectionError)):
                client.ask(produce_request(topic, batch(b"second")), 9)
        fault.wait()
        broker.wait_ended()
        assert not broker.is_running
        with pytest.raises(BrokerGoneError):
            _ = broker.requests.count
        broker.start()
        assert read(broker, topic) == [b"first", b"second"][: 1 if when == "before" else 2]
        assert (fault.seen, fault.hits) == (2, 1)
        with RawClient(broker.port) as client:
            client.ask(produce_request(topic, batch(b"third")), 9)
        assert fault.hits == 1, "the second one was before the restart"


def test_a_broker_in_the_tests_own_process_cannot_be_killed() -> None:
    broker = EmbeddedBroker(in_process=True)
    with pytest.raises(IllegalArgumentError, match="use in_process=False"):
        broker.faults.kill("Produce")
    with pytest.raises(IllegalArgumentError, match="use in_process=False"):
        EmbeddedBroker(in_process=True, arguments=["--log-level", "debug"])
    broker.close()


def test_a_wait_for_a_broker_that_ends_is_an_error(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker, ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(broker.requests.wait, "Produce")
        broker.requests.find()
        broker.kill()
        with pytest.raises(BrokerGoneError):
            waiting.result(30)


def test_what_a_killed_broker_has_not_finished_writing_is_no_answer() -> None:
    connection = ControlConnection(lambda counts: None)
    _, answer = connection.post("now")
    connection.theirs.recv(1000)
    connection.theirs.sendall(b'{"id": 1, "is": [1.0, 2')
    connection.drain()
    with pytest.raises(BrokerGoneError):
        answer.result(0)


def test_a_broker_that_does_not_start_leaves_no_thread_behind(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    for in_process in (True, False):
        broker = EmbeddedBroker(tmp_path, in_process=in_process, settings={"nope": "1"})
        with pytest.raises(Exception, match="unknown broker setting nope"):
            broker.start()
        assert not broker.is_running
    for thread in set(threading.enumerate()) - before:
        thread.join(30)
        assert not thread.is_alive(), thread


def test_a_question_to_a_running_broker_takes_little_time(broker: EmbeddedBroker) -> None:
    fault = broker.faults.drop("Heartbeat")
    took_s = []
    for _ in range(200):
        started = time.perf_counter()
        assert fault.hits == 0
        took_s.append(time.perf_counter() - started)
    assert min(took_s) < 0.02, "usually 0.2 ms; others may have the processor in between, but not each time"


def test_many_threads_may_use_it_at_once(broker: EmbeddedBroker) -> None:
    def use(number: int) -> int:
        with broker.faults.delay("Metadata", 0, client_id="raw", peer=number) as fault:
            return fault.hits + len(broker.requests.find(client_id=str(number)))

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(use, range(1, 41))) == [0] * 40


