"""One group of ours, confluent-kafka's and kafka-python's members, with the same assignor, whoever leads it."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from kafka import KafkaConsumer, KafkaProducer
from test.support.peers import CLIENTS, foreign_environment, require_peer
from test.support.waiting import pause, until

PARTITIONS = 6
DEADLINE_S = 60.0
PEERS = {"confluent": "confluent-kafka", "kafka_python": "kafka-python"}
GROUPS = [
    ("range", ("confluent", "kafka_python")),
    ("roundrobin", ("confluent", "kafka_python")),
    ("sticky", ("kafka_python",)),
    ("cooperative-sticky", ("confluent", "kafka_python")),
]


class Member:
    """What both kinds have: what it owns now, and all that it has read."""

    def __init__(self) -> None:
        self.owned: frozenset[int] = frozenset()
        self.read: list[int] = []
        self.fault: str | None = None


class Own(Member):
    """A consumer of ours, in a thread."""

    def __init__(self, bootstrap: str, topic: str, assignor: str) -> None:
        super().__init__()
        self._ended = threading.Event()
        self._consumer = KafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest", session_timeout_ms=6000,
            heartbeat_interval_ms=300, partition_assignment_strategy=[assignor],
        )  # fmt: skip
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                for records in self._consumer.poll(timeout_ms=100).values():
                    self.read += [int(record.value) for record in records]
                self.owned = frozenset(one.partition for one in self._consumer.assignment())
        except Exception as error:
            self.fault = repr(error)
        finally:
            self._consumer.close()
            self.owned = frozenset()

    def end(self) -> None:
        self._ended.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()


class Peer(Member):
    """A script of a peer's, in a process."""

    def __init__(self, name: str, bootstrap: str, topic: str, assignor: str) -> None:
        super().__init__()
        python = require_peer(PEERS[name])
        self._process = subprocess.Popen(
            [str(python), str(CLIENTS / f"{name}_member.py"), bootstrap, topic, topic, assignor],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=foreign_environment(),
        )  # fmt: skip
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._listen, self._complain)]
        for thread in self._threads:
            thread.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                event = json.loads(line)
                self.read += event.get("read", [])
                if "owned" in event:
                    self.owned = frozenset(event["owned"])

    def _complain(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            output = lines.read()
        if self._process.wait():
            self.fault = output[-4000:]

    def end(self) -> None:
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            self._process.wait(DEADLINE_S)
        finally:
            self._process.kill()
        for thread in self._threads:
            thread.join(DEADLINE_S)


@pytest.fixture
def members() -> Iterator[list[Own | Peer]]:
    """All that a test starts, ended with it."""
    found: list[Own | Peer] = []
    yield found
    for member in found:
        member.end()


def wait_until(promise: str, members: Sequence[Member], is_so: Callable[[], bool]) -> None:
    def watch() -> None:
        faults = [member.fault for member in members if member.fault]
        assert not faults, faults
        pause()

    def shown() -> object:
        return [(type(member).__name__, sorted(member.owned), len(member.read)) for member in members]

    until(is_so, promise, within_s=DEADLINE_S, meanwhile=watch, shown=shown)


def share(members: Sequence[Member]) -> bool:
    """Each partition has one owner, and nobody has more than one partition more than another."""
    counts = [len(member.owned) for member in members]
    everything = sorted(number for member in members for number in member.owned)
    return everything == list(range(PARTITIONS)) and max(counts) - min(counts) <= 1


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("assignor", "peers"), GROUPS, ids=[row[0] for row in GROUPS])
def test_members_of_several_clients_share_a_group_whichever_leads(
    bootstrap: str, new_topic: Callable[[int], str], members: list[Own | Peer], assignor: str, peers: tuple[str, ...]
) -> None:
    topic = new_topic(PARTITIONS)
    sent = 0
    producer = KafkaProducer(bootstrap_servers=bootstrap)

    def send_and_wait(present: Sequence[Member]) -> None:
        nonlocal sent
        for number in range(sent, sent + 120):
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
        producer.flush()
        sent += 120
        expected = set(range(sent))
        wait_until("all is read", present, lambda: {one for each in members for one in each.read} == expected)

    try:
        leader = Own(bootstrap, topic, assignor)
        members.append(leader)
        wait_until("ours is alone", members, lambda: share(members))
        members += [Peer(name, bootstrap, topic, assignor) for name in peers]
        wait_until("ours leads", members, lambda: share(members))
        send_and_wait(members)

        leader.end()
        left = members[1:]
        wait_until("a peer leads", left, lambda: share(left))
        send_and_wait(left)

        members.append(Own(bootstrap, topic, assignor))
        left = members[1:]
        wait_until("ours follows", left, lambda: share(left))
        send_and_wait(left)
    finally:
        producer.close()
    assert not [member.fault for member in members if member.fault]
    read = [number for member in members for number in member.read]
    assert len(read) == len(set(read)), "who gives a partition up has committed what it read"
