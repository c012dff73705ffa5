"""``kafka.testing.EmbeddedBroker``: start, kill, restart, pause; and a kill loses nothing that was acknowledged."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kafka.admin import KafkaAdminClient
from kafka.broker.state_file import has_broker
from kafka.errors import IllegalArgumentError, IllegalStateError, KafkaConfigurationError, KafkaTimeoutError
from kafka.protocol.fetch import FetchRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.transactions import InitProducerIdRequest
from kafka.records import iter_batches
from kafka.testing import BrokerGoneError, EmbeddedBroker
from test.broker.driver import batch, fetch_request, fetched, plain, produce_request, values
from test.broker.raw_client import RawClient
from test.broker.test_server import make_topic
from test.support.waiting import until

NOTHING = MetadataRequest(topics=[])


@pytest.mark.parametrize("in_process", [False, True])
def test_a_broker_runs_while_the_block_does_and_its_directory_goes_with_it(in_process: bool) -> None:
    with EmbeddedBroker(in_process=in_process) as broker:
        assert broker.is_running
        with RawClient(broker.port) as client:
            assert client.ask(NOTHING).brokers[0].port == broker.port
        directory = broker.data_dir
        assert os.path.isdir(directory)
    assert not broker.is_running
    assert not os.path.exists(directory)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", broker.port))


@pytest.mark.parametrize("in_process", [False, True])
def test_a_restart_keeps_port_and_records(tmp_path: Path, in_process: bool) -> None:
    with EmbeddedBroker(tmp_path / "data", in_process=in_process) as broker:
        port = broker.port
        with RawClient(port) as client:
            make_topic(client, "t")
            client.ask(produce_request("t", batch(b"a")), 9)
        broker.restart()
        assert broker.port == port
        with RawClient(port) as client:
            assert values(fetched(client.ask(fetch_request("t"), 12))[0].records) == [b"a"]
    assert (tmp_path / "data").is_dir(), "a directory that was given stays"


def test_a_paused_broker_answers_when_it_goes_on() -> None:
    with EmbeddedBroker() as broker, RawClient(broker.port) as client:
        broker.pause()
        client.send(NOTHING)
        client.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.receive(NOTHING)
        broker.resume()
        client.socket.settimeout(20)
        assert client.receive(NOTHING).controller_id == 1


@pytest.mark.parametrize("in_process", [False, True])
def test_a_paused_broker_can_be_ended(in_process: bool) -> None:
    with EmbeddedBroker(in_process=in_process) as broker:
        broker.pause()


def test_a_command_to_a_paused_process_is_an_error_that_says_so() -> None:
    with EmbeddedBroker() as broker:
        broker.pause()
        with pytest.raises(IllegalStateError, match="resume"):
            broker.faults.drop("Fetch")
        broker.resume()
        broker.faults.drop("Fetch")


def test_what_needs_a_process_is_refused_without_one() -> None:
    broker = EmbeddedBroker()
    with pytest.raises(IllegalStateError, match="not been started"):
        _ = broker.bootstrap
    with pytest.raises(IllegalStateError, match="not running"):
        broker.kill()
    broker.close()
    with EmbeddedBroker(in_process=True) as inside, pytest.raises(IllegalStateError, match="in this process"):
        inside.kill()


def test_a_broker_that_does_not_start_says_why(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path, settings={"nope": "1"})
    with pytest.raises(KafkaConfigurationError, match="unknown broker setting nope"):
        broker.start()


@pytest.mark.parametrize("in_process", [True, False])
def test_topics_are_made_at_the_first_start_and_kept(tmp_path: Path, in_process: bool) -> None:
    wanted = {"one": 1, "three": 3}
    for _ in range(2):  # the second finds them there
        with EmbeddedBroker(tmp_path, in_process=in_process, topics=wanted) as broker:
            for topic, partitions in wanted.items():
                broker.fill(topic, ["x"], partition=partitions - 1)
    with EmbeddedBroker(tmp_path, in_process=in_process) as broker:
        assert [len(broker.records(topic)) for topic in wanted] == [2, 2]


def test_one_text_is_one_topic_and_no_list_of_options_or_values() -> None:
    with EmbeddedBroker(in_process=True, topics="orders") as broker:
        with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin:
            assert admin.list_topics() == ["orders"]
        with pytest.raises(IllegalArgumentError, match="values='abc': a list of values, not one"):
            broker.fill("orders", "abc")
        assert broker.records("orders") == []
    with pytest.raises(IllegalArgumentError, match="arguments='--telemetry': a list of options"):
        EmbeddedBroker(arguments="--telemetry")


def test_what_needs_a_broker_that_answers_says_so_at_once() -> None:
    with EmbeddedBroker() as broker:
        broker.pause()
        with pytest.raises(IllegalStateError, match="resume"):
            broker.create_topic("t")
        broker.resume()
        broker.kill()
        for use in (lambda: broker.create_topic("t"), lambda: broker.fill("t", ["x"]), lambda: broker.records("t")):
            with pytest.raises(BrokerGoneError, match="is not running"):
                use()


def test_records_that_are_still_to_come_are_waited_for() -> None:
    with EmbeddedBroker(in_process=True, topics=["t"]) as broker:
        late = broker.faults.delay("Produce", seconds=0.2)
        writer = threading.Thread(target=broker.fill, args=("t", ["a", "b"]))
        writer.start()
        assert [record.value for record in broker.records("t", at_least=2)] == [b"a", b"b"]
        writer.join()
        assert late.hits
        with pytest.raises(KafkaTimeoutError, match="there are 2 records, not 3"):
            broker.records("t", at_least=3, timeout=2.0)


class Writer(threading.Thread):
    """Produces numbered records one by one, as an idempotent producer that tries again; knows what was acknowledged."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.port = port
        self.acknowledged: list[bytes] = []
        self.enough = threading.Event()
        self.target = 50
        self._stop_requested = False

    def run(self) -> None:
        sequence, producer_id = 0, -1
        while not self._stop_requested:
            with contextlib.suppress(OSError, EOFError), RawClient(self.port) as client:
                if producer_id < 0:
                    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
                    producer_id = client.ask(request).producer_id
                while not self._stop_requested:
                    value = b"%d" % sequence
                    answer = client.ask(produce_request("t", batch(value, producer=(producer_id, 0, sequence))), 9)
                    assert answer.responses[0].partition_responses[0].error_code == 0, answer
                    self.acknowledged.append(value)
                    sequence += 1
                    if len(self.acknowledged) >= self.target:
                        self.enough.set()

    def wait_for_more(self) -> None:
        self.enough.clear()
        self.target = len(self.acknowledged) + 50
        assert self.enough.wait(30), "the writer does not get on"

    def stop(self) -> None:
        self._stop_requested = True
        self.join(30)


def read_all(port: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    with RawClient(port) as client:
        offset = 0
        while True:
            request: FetchRequest = fetch_request("t", (offset,))
            (partition,) = fetched(client.ask(request, 12))
            more = values(partition.records)
            if not more:
                return found
            found += more
            offset = list(iter_batches(plain(partition.records)))[-1].next_offset


def test_a_broker_that_is_killed_again_and_again_loses_and_doubles_nothing(tmp_path: Path, rounds: int) -> None:
    with EmbeddedBroker(tmp_path / "data") as broker:
        with RawClient(broker.port) as client:
            make_topic(client, "t")
        writer = Writer(broker.port)
        writer.start()
        try:
            for _ in range(5 * rounds):
                writer.wait_for_more()
                broker.kill()
                broker.start()
        finally:
            writer.stop()
        found = read_all(broker.port)
    assert found[: len(writer.acknowledged)] == writer.acknowledged
    assert len(found) - len(writer.acknowledged) <= 1, "at most the one that was under way"


def test_a_torn_tail_is_cut_with_a_log_line_that_says_how_much(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data") as broker:
        with RawClient(broker.port) as client:
            make_topic(client, "t")
            for value in (b"a", b"b"):
                client.ask(produce_request("t", batch(value)), 9)
        broker.kill()
        (segment,) = (tmp_path / "data").glob("topics/t.*/0/*.log")
        os.truncate(segment, segment.stat().st_size - 5)
        broker.start()
        with RawClient(broker.port) as client:
            assert values(fetched(client.ask(fetch_request("t"), 12))[0].records) == [b"a"]
            assert client.ask(produce_request("t", batch(b"c")), 9).responses[0].partition_responses[0].base_offset == 1
        log = Path(broker.log_path).read_text()
        assert f"truncated {len(batch(b'b')) - 5} torn bytes" in log


def test_the_broker_ends_with_a_test_process_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys; from kafka.testing import EmbeddedBroker; broker = EmbeddedBroker(sys.argv[1]).start();"
        "print(broker.pid, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "data")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        assert int(tests.stdout.readline()) > 0
        assert has_broker(str(tmp_path / "data"))
        tests.kill()
    until(lambda: not has_broker(str(tmp_path / "data")), "the broker ends with its test")


def test_a_second_process_kills_only_its_own(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "one") as one, EmbeddedBroker(tmp_path / "two") as two:
        os.kill(one.pid, signal.SIGKILL)
        with RawClient(two.port) as client:
            assert client.ask(NOTHING).controller_id == 1
