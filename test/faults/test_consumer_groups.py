"""Groups of five members through joins, leaves, kills with -9, stops longer than a session, and a broker that stops or
is restarted, for each assignor and both protocols.

Every record is read; the committed offset of a partition never goes back; commits of a partition are of one owner at a
time, in the order of their generations, and those of zombies are refused.

A round is one fault of each kind, in an order that the run's seed decides; then everything that was produced
has to be committed by every group. ``KAFKA_TEST_ROUNDS=20`` is the long form.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kafka.admin import KafkaAdminClient, NewTopic
from kafka.consumer import KafkaConsumer
from kafka.errors import KafkaError
from kafka.producer import KafkaProducer
from kafka.structs import TopicPartition
from kafka.testing import EmbeddedBroker
from test.faults.group_member import SLOT
from test.faults.group_processes import MEMBERS, Crew, Faults, check
from test.support import seeds
from test.support.apache_kafka import ApacheKafka
from test.support.waiting import until

PARTITIONS = 6
SESSION_MS = 5000
STOPPED_S = 6.0
"""Of a member that is stopped for longer than its session."""
PAUSE_S = 2.2
SETTLE_S = 90.0
RECORD_S = 0.005
"""Between two records while faults happen."""

BROKER_SETTINGS = {
    "group.min.session.timeout.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    "offsets.topic.num.partitions": "4",
}

CLASSIC = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 300, "group_protocol": "classic"}
GROUPS: Mapping[str, Mapping[str, Any]] = {
    **{
        name: {**CLASSIC, "partition_assignment_strategy": [name]}
        for name in ("range", "roundrobin", "sticky", "cooperative-sticky")
    },
    "consumer-uniform": {"group_protocol": "consumer"},
    "consumer-range": {"group_protocol": "consumer", "group_remote_assignor": "range"},
    "sticky-static": {**CLASSIC, "partition_assignment_strategy": ["sticky"], "group_instance_id": SLOT},
    "consumer-static": {"group_protocol": "consumer", "group_instance_id": SLOT},
}


class Producing:
    """Records with the numbers 0, 1, ... in order of their partitions, in a thread, while not paused."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.count = 0
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, retry_backoff_ms=20, reconnect_backoff_ms=20)
        self._topic = topic
        self._goes_on = threading.Event()
        self._ended = False
        self._idle = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended:
            if not self._goes_on.wait(0.1):
                self._idle.set()
                continue
            self._producer.send(self._topic, b"%d" % self.count, partition=self.count % PARTITIONS)
            self.count += 1
            time.sleep(RECORD_S)

    def begin(self) -> None:
        self._goes_on.set()

    def pause(self) -> int:
        """How many there are, all of them delivered."""
        self._goes_on.clear()
        self._idle.clear()
        assert self._idle.wait(SETTLE_S)
        self._producer.flush(SETTLE_S)
        return self.count

    def close(self) -> None:
        self._ended = True
        self._goes_on.clear()
        self._thread.join(10.0)
        self._producer.close()


class Watcher:
    """Reads the groups' committed offsets in a thread: none goes back."""

    def __init__(self, bootstrap: str, topic: str, groups: Mapping[str, object]) -> None:
        self.places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        self.seen: dict[str, dict[TopicPartition, int]] = {group: {} for group in groups}
        self.faults: list[str] = []
        self._consumers = {
            group: KafkaConsumer(
                bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False, reconnect_backoff_ms=20
            )
            for group in groups
        }
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(0.2):
            for group, consumer in self._consumers.items():
                for place in self.places:
                    try:
                        offset = consumer.committed(place)
                    except KafkaError:
                        continue  # the broker is being restarted
                    before = self.seen[group].get(place, 0)
                    if (offset or 0) < before:
                        self.faults.append(f"{group}: {place} went back from {before} to {offset}")
                    self.seen[group][place] = offset or 0

    def wait_for(self, produced: int) -> None:
        """Until every group has committed all records."""
        wanted = {place: len(range(place.partition, produced, PARTITIONS)) for place in self.places}
        self.wait_until(lambda seen: seen == wanted, f"all is committed: {wanted}")

    def wait_until(self, condition: Callable[[dict[TopicPartition, int]], bool], what: str) -> None:
        """Until that holds of every group's offsets."""
        until(
            lambda: self.faults or all(condition(seen) for seen in self.seen.values()),
            what,
            within_s=SETTLE_S,
            shown=lambda: {group: seen for group, seen in self.seen.items() if not condition(seen)},
        )
        assert not self.faults, self.faults

    def close(self) -> None:
        self._ended.set()
        self._thread.join(10.0)
        for consumer in self._consumers.values():
            consumer.close()


def through_faults(broker: Any, restart: Callable[[], object], directory: Path, rounds: int) -> None:
    """``rounds`` of them, and the check of what the members have noted."""
    bootstrap, groups = broker.bootstrap, GROUPS
    rng = seeds.rng("faults of groups")
    topic = f"numbers-{random.randrange(1 << 30)}"
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    crew = Crew(directory, bootstrap, topic, groups)
    producing = Producing(bootstrap, topic)
    watcher = Watcher(bootstrap, topic, groups)
    try:
        for _ in range(MEMBERS):
            crew.join()
        producing.begin()
        watcher.wait_until(lambda seen: len(seen) == PARTITIONS and all(seen.values()), "each partition has an owner")
        faults = Faults(crew, rng, PAUSE_S, STOPPED_S, broker, restart)
        for number in range(rounds):
            began = time.monotonic()
            producing.begin()
            happened = list(faults.round())
            produced = producing.pause()
            watcher.wait_for(produced)
            crew.see_ended()
            print(f"round {number}: {happened}, {produced} records, {time.monotonic() - began:.1f} s")
        for member in list(crew.running):
            crew.leave(member)
        crew.see_ended()
        for group in groups:
            print(check(directory, group, producing.count))
    finally:
        crew.close()
        watcher.close()
        producing.close()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_groups_on_the_embedded_broker_lose_nothing_and_have_one_owner_for_each_partition(
    tmp_path: Path, rounds: int
) -> None:
    with EmbeddedBroker(settings=BROKER_SETTINGS) as broker:

        def restart() -> None:
            broker.kill()
            broker.start()

        through_faults(broker, restart, tmp_path / "notes", rounds)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_groups_on_apache_kafka_lose_nothing_and_have_one_owner_for_each_partition(
    start_apache_kafka: Callable[..., ApacheKafka], tmp_path: Path, rounds: int
) -> None:
    broker = start_apache_kafka(settings=BROKER_SETTINGS)
    through_faults(broker, lambda: broker.restart(gracefully=False), tmp_path / "notes", max(1, rounds // 4))
