"""Rules of share groups that a client has to know, on both brokers: connections, gaps, refused lists, threads."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from kafka.client import KafkaClient
from kafka.core.share.acknowledgements import Acknowledged
from kafka.errors import IncompatibleBrokerVersion, InvalidRecordStateError, KafkaError
from kafka.net.loop import Loop
from kafka.producer import KafkaProducer
from kafka.share import KafkaShareConsumer, ShareRecord
from kafka.structs import TopicPartition
from test.conformance.reading import take
from test.conformance.test_share import ACCEPT, LONG_LOCK_MS, RELEASE, RENEW, MakeQueue, queue
from test.support.either_broker import RELEASES
from test.support.waiting import WITHIN_S, until

_fixture = queue  # of test_share.py


# -- connections ------------------------------------------------------------------------------------------------------


class OnLoop:
    """Share consumers on one client and its loop, turned by hand."""

    def __init__(self, bootstrap: str, **configs: Any) -> None:
        self.loop = Loop()
        self.client = KafkaClient(loop=self.loop, bootstrap_servers=bootstrap, all_topics=False, **configs)
        self._consumers: list[KafkaShareConsumer] = []

    def member(self, group: str) -> Member:
        member = Member(self.client, group)
        self._consumers.append(member.consumer)
        return member

    def wait(self, condition: object, seconds: float = 30.0) -> None:
        assert self.loop.run_until(condition, seconds), "not in time"  # type: ignore[arg-type]

    def close(self) -> None:
        for consumer in self._consumers:
            self.loop.run_until(consumer.close_async(), 10)
        self.client.close()
        self.loop.close()


class Member:
    """One of them, and what it was told."""

    def __init__(self, client: KafkaClient, group: str) -> None:
        self.records: list[ShareRecord] = []
        self.lost: list[ShareRecord] = []
        self.acknowledged: list[Acknowledged] = []
        self.consumer = KafkaShareConsumer(
            group,
            group_id=group,
            client=client,
            on_records=self.records.extend,
            on_acknowledged=self.acknowledged.extend,
            on_lost=lambda records, error: self.lost.extend(records),
        )

    def cut(self) -> None:
        """The connection ends, as it does when a network fails or a process is killed."""
        (link,) = self.consumer._driver._sessions.values()
        link.lanes._client.close_lane(link.lanes._name)


@pytest.fixture
def on_loop(bootstrap: str) -> Iterator[OnLoop]:
    made = OnLoop(bootstrap)
    yield made
    made.close()


def test_two_members_on_one_client_share_no_connection_and_one_that_ends_frees_only_its_own_records(
    queue: MakeQueue, on_loop: OnLoop
) -> None:
    jobs = queue()
    jobs.put(b"0")
    first, second = on_loop.member(jobs.name), on_loop.member(jobs.name)
    first.consumer.request_records(1)
    on_loop.wait(lambda: first.records)
    jobs.put(b"1")
    second.consumer.request_records(1)
    on_loop.wait(lambda: second.records)
    assert [record.value for record in second.records] == [b"1"]
    first.cut()
    second.consumer.request_records(1)
    on_loop.wait(lambda: len(second.records) == 2, 10)  # the lock would last 30 s
    assert (second.records[1].value, second.records[1].delivery_count) == (b"0", 2)
    for record in second.records:
        second.consumer.acknowledge(record)
    done = second.consumer.commit_async()
    on_loop.wait(lambda: done.is_done)
    assert [each.error for each in second.acknowledged] == [None, None]


def test_a_connection_that_idles_while_something_is_held_is_replaced_before_it_is_closed(
    queue: MakeQueue, bootstrap: str
) -> None:
    jobs = queue()
    jobs.put(b"kept")
    idle = OnLoop(bootstrap, connections_max_idle_ms=500)
    try:
        member = idle.member(jobs.name)
        member.consumer.request_records(1)
        idle.wait(lambda: member.records)
        (link,) = member.consumer._driver._sessions.values()
        idle.wait(lambda: link.lanes.replaced >= 3)
        other = jobs.member()
        jobs.expect_nothing_else(other)  # nothing was freed when the former connections ended
        assert member.lost == []
        member.consumer.acknowledge(member.records[0])
        done = member.consumer.commit_async()
        idle.wait(lambda: done.is_done)
        assert [each.error for each in member.acknowledged] == [None]
    finally:
        idle.close()


_HOLDER = """
import sys
from kafka import KafkaShareConsumer
consumer = KafkaShareConsumer(sys.argv[1], group_id=sys.argv[1], bootstrap_servers=sys.argv[2])
for record in consumer:
    print(record.value.decode(), flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
def test_a_process_that_is_killed_gives_its_records_to_others_at_once(queue: MakeQueue, bootstrap: str) -> None:
    jobs = queue(share_record_lock_duration_ms=LONG_LOCK_MS)
    jobs.put(b"x")
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, jobs.name, bootstrap], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"x\n"
        other = jobs.member()
        jobs.expect_nothing_else(other)
        holder.kill()
        (record,) = take(other, 1)
        assert record.delivery_count == 2
    finally:
        holder.kill()
        holder.communicate()


_LOOKER = """
import sys
from kafka.client import KafkaClient
from kafka.net.loop import Loop
from kafka.share import KafkaShareConsumer
loop = Loop()
client = KafkaClient(loop=loop, bootstrap_servers=sys.argv[2], all_topics=False)
consumer = KafkaShareConsumer(
    sys.argv[1], group_id=sys.argv[1], client=client, on_records=lambda records: None, look_every_s=0.3
)
consumer.request_records(10)
sessions = consumer._driver._sessions
loop.run_until(lambda: sessions and all(leader.answered_at for leader in sessions.values()))
print("looks", flush=True)
loop.run_until(lambda: False, 60)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
def test_a_killed_member_that_looked_leaves_no_poll_that_takes_records(queue: MakeQueue, bootstrap: str) -> None:
    """One that waits is left, and a broker that sees the end only when it has answered counts a delivery more."""
    jobs = queue()
    with KafkaProducer(bootstrap_servers=bootstrap, linger_ms=0) as producer:
        producer.partitions_for(jobs.name)
        counts = []
        for _ in range(6):
            looker = subprocess.Popen(
                [sys.executable, "-c", _LOOKER, jobs.name, bootstrap], stdout=subprocess.PIPE
            )
            assert looker.stdout is not None
            assert looker.stdout.readline() == b"looks\n"
            looker.kill()
            producer.send(jobs.name, b"x").get(10)
            looker.communicate()
            with jobs.member() as other:
                (record,) = take(other, 1)
                counts.append(record.delivery_count)
                other.acknowledge(record)
    assert counts == [1] * 6


# -- acknowledgements -------------------------------------------------------------------------------------------------


def test_the_markers_of_transactions_hold_nothing_up(queue: MakeQueue, bootstrap: str) -> None:
    jobs = queue(share_partition_max_record_locks="100", share_isolation_level="read_committed")
    with KafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"tx-{uuid.uuid4().hex[:8]}") as producer:
        producer.init_transactions()
        for number in range(60):
            producer.begin_transaction()
            producer.send(jobs.name, b"%d" % number)
            producer.commit_transaction() if number % 3 else producer.abort_transaction()
    consumer = jobs.member()
    found = []
    for _ in range(40):  # 120 offsets, of which a window has 100: gaps that nobody acknowledges would end it
        (record,) = take(consumer, 1, max_records=1)
        consumer.acknowledge(record)
        found.append(int(record.value or b""))
    consumer.commit(10_000)
    assert found == [number for number in range(60) if number % 3]


def test_a_list_with_one_refused_acknowledgement_loses_no_other(queue: MakeQueue) -> None:
    jobs = queue(share_renew_acknowledge_enable="false")
    jobs.put(*(b"%d" % number for number in range(5)))
    outcomes: list[tuple[set[int], KafkaError | None]] = []
    consumer = jobs.member()
    consumer.set_acknowledgement_commit_callback(
        lambda offsets, error: outcomes.append((offsets[TopicPartition(jobs.name, 0)], error))
    )
    records = take(consumer, 5)
    for record in records:
        consumer.acknowledge(record, RENEW if record.offset == 2 else ACCEPT)
    (error,) = consumer.commit(10_000).values()
    assert isinstance(error, InvalidRecordStateError)
    assert sorted(offset for offsets, error in outcomes if error is None for offset in offsets) == [0, 1, 3, 4]
    assert [offsets for offsets, error in outcomes if error is not None] == [{2}]
    assert records[2].lost
    jobs.expect_nothing_else(consumer)


def test_threads_acknowledge_in_any_order_while_others_hold(queue: MakeQueue) -> None:
    jobs = queue(partitions=2)
    jobs.put(*(b"%d" % number for number in range(200)))
    consumer = jobs.member(max_poll_records=40)
    done: set[bytes] = set()
    released: set[bytes] = set()
    faults: list[BaseException] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        try:
            while len(done) < 200:
                found = [record for records in consumer.poll(500).values() for record in records]
                rng.shuffle(found)
                for record in found:
                    value = record.value or b""
                    if rng.random() < 0.2 and record.delivery_count == 1:
                        released.add(value)
                        consumer.acknowledge(record, RELEASE)
                    else:
                        consumer.acknowledge(record)
                        done.add(value)
                assert all(error is None for error in consumer.commit(20_000).values())
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(seed,), daemon=True) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WITHIN_S)
        assert not thread.is_alive()
    assert faults == []
    assert len(done) == 200
    assert released
    jobs.expect_nothing_else(consumer, 0)
    jobs.expect_nothing_else(consumer, 1)


def test_a_lock_deadline_is_on_each_record_and_moves_with_a_renewal(queue: MakeQueue) -> None:
    jobs = queue(share_record_lock_duration_ms="20000")
    jobs.put(b"x")
    consumer = jobs.member()
    before = consumer._host.loop.time()
    (record,) = take(consumer, 1)
    assert before < record.lock_deadline <= consumer._host.loop.time() + 20
    assert consumer.lock_s == 20
    deadline = record.lock_deadline
    until(lambda: consumer._host.loop.time() > before + 0.1)
    consumer._host.wait(consumer.renew([record]), 10)
    assert record.lock_deadline > deadline
    consumer.acknowledge(record)


# -- brokers without --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bootstrap", [each for each in RELEASES if " " in each], indirect=True, scope="session")
def test_a_release_without_share_groups_is_one_clear_error(bootstrap: str) -> None:
    with KafkaShareConsumer("t", group_id=f"g-{uuid.uuid4().hex[:8]}", bootstrap_servers=bootstrap) as consumer:
        for _ in range(2):
            with pytest.raises(IncompatibleBrokerVersion, match="share groups need Apache Kafka 4.2"):
                consumer.poll(30_000)
