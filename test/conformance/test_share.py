"""Share groups through KafkaShareConsumer: what is handed out, to whom, how often, and when again."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic
from kafka.errors import IllegalStateError
from kafka.producer import KafkaProducer
from kafka.share import AcknowledgeType, KafkaShareConsumer, ShareRecord
from test.conformance.reading import poll_until, take
from test.support.waiting import until

ACCEPT, RELEASE, REJECT, RENEW = (
    AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.RENEW,
)  # fmt: skip
Setting = dict[str, str]
LONG_LOCK_MS = "60000"
"""No test waits for the end of such a lock: ``take`` gives up before."""


class Queue:
    """A topic, a share group of the same name, and its members."""

    def __init__(self, bootstrap: str, name: str, partitions: int, settings: Setting) -> None:
        self.bootstrap = bootstrap
        self.name = name
        self._closables: list[Any] = []
        self._admin = self._keep(KafkaAdminClient(bootstrap_servers=bootstrap))
        self._admin.create_topics([NewTopic(name=name, num_partitions=partitions, replication_factor=1)])
        self.configure({"share.auto.offset.reset": "earliest", "share.assignment.interval.ms": "0", **settings})
        self.producer = self._keep(KafkaProducer(bootstrap_servers=bootstrap))

    def configure(self, settings: Setting) -> None:
        """Set them for the group, and wait until the broker has them."""
        self._admin.alter_configs([ConfigResource(ConfigResourceType.GROUP, self.name, configs=settings)])
        until(lambda: self._settings_show(settings))

    def _settings_show(self, settings: Setting) -> bool:
        resource = ConfigResource(ConfigResourceType.GROUP, self.name)
        shown = self._admin.describe_configs([resource], config_filter="all")
        found = next(iter(shown[ConfigResourceType.GROUP.name.lower()].values()))
        return all(found[name]["value"] == value for name, value in settings.items())

    def _keep(self, closable: Any) -> Any:
        self._closables.append(closable)
        return closable

    def put(self, *values: bytes, partition: int | None = None) -> None:
        for value in values:
            self.producer.send(self.name, value, partition=partition)
        self.producer.flush()

    def member(self, **configs: Any) -> KafkaShareConsumer:
        configs.setdefault("share_acknowledgement_mode", "explicit")
        configs.setdefault("bootstrap_servers", self.bootstrap)
        consumer: KafkaShareConsumer = self._keep(KafkaShareConsumer(self.name, group_id=self.name, **configs))
        return consumer

    def expect_nothing_else(
        self, consumer: KafkaShareConsumer, partition: int = 0, *, is_explicit: bool = True
    ) -> None:
        """The next record that the consumer gets is one that is written now: no earlier one is available to it."""
        marker = b"marker %d" % next(_markers)
        self.put(marker, partition=partition)
        (record,) = take(consumer, 1)
        assert (record.partition, record.value) == (partition, marker)
        if is_explicit:
            consumer.acknowledge(record)
        consumer.commit(10_000)

    def close(self) -> None:
        for each in reversed(self._closables):
            each.close()


_markers = itertools.count()


@pytest.fixture
def queue(bootstrap: str, unique: Callable[[str], str]) -> Iterator[Callable[..., Queue]]:
    made: list[Queue] = []

    def make(partitions: int = 1, **settings: str) -> Queue:
        dotted = {name.replace("_", "."): value for name, value in settings.items()}
        made.append(Queue(bootstrap, unique("share"), partitions, dotted))
        return made[-1]

    yield make
    for each in made:
        each.close()


MakeQueue = Callable[..., Queue]


def test_records_from_before_the_first_member_are_handed_out(queue: MakeQueue) -> None:
    jobs = queue(partitions=2)
    jobs.put(*(b"%d" % i for i in range(50)))
    consumer = jobs.member()
    records = take(consumer, 50)
    assert sorted(int(record.value or b"") for record in records) == list(range(50))
    assert {record.delivery_count for record in records} == {1}
    for record in records:
        consumer.acknowledge(record)
    assert all(error is None for error in consumer.commit(10_000).values())
    jobs.expect_nothing_else(consumer, 0)
    jobs.expect_nothing_else(consumer, 1)


def test_implicit_acknowledgement_accepts_what_the_last_poll_returned(queue: MakeQueue) -> None:
    jobs = queue()
    jobs.put(b"a", b"b")
    consumer = jobs.member(share_acknowledgement_mode="implicit")
    take(consumer, 2)
    jobs.expect_nothing_else(consumer, is_explicit=False)
    consumer.close()
    jobs.expect_nothing_else(jobs.member())


def test_a_released_record_comes_again_with_a_higher_count_and_a_rejected_one_never(queue: MakeQueue) -> None:
    jobs = queue()
    jobs.put(b"again", b"never")
    consumer = jobs.member()
    again, never = take(consumer, 2)
    consumer.acknowledge(again, RELEASE)
    consumer.acknowledge(never, REJECT)
    (record,) = take(consumer, 1)
    assert (record.value, record.delivery_count) == (b"again", 2)
    consumer.acknowledge(record)
    consumer.commit(10_000)
    jobs.expect_nothing_else(consumer)


def test_records_may_be_acknowledged_in_any_order_while_others_are_held(queue: MakeQueue) -> None:
    jobs = queue()
    jobs.put(*(b"%d" % i for i in range(10)))
    consumer = jobs.member()
    records = take(consumer, 10)
    for record in records[::-2]:
        consumer.acknowledge(record)
    consumer.commit(10_000)
    for record in records[::2]:
        consumer.acknowledge(record)
    assert all(error is None for error in consumer.commit(10_000).values())


def test_two_members_get_different_records(queue: MakeQueue) -> None:
    jobs = queue(partitions=2)
    first, second = jobs.member(share_acquire_mode="record_limit"), jobs.member(share_acquire_mode="record_limit")
    jobs.put(*(b"%d" % i for i in range(40)))
    found: list[bytes | None] = []

    def poll() -> None:
        for consumer in (first, second):
            for records in consumer.poll(200, max_records=3).values():
                found.extend(record.value for record in records)
                for record in records:
                    consumer.acknowledge(record)

    until(lambda: len(found) >= 40, meanwhile=poll)
    assert sorted(int(value or b"") for value in found) == list(range(40))


def test_record_limit_hands_out_no_more_than_asked_for_from_a_large_batch(queue: MakeQueue) -> None:
    jobs = queue()
    jobs.put(*(b"%d" % i for i in range(100)))
    consumer = jobs.member(share_acquire_mode="record_limit")
    assert len(take(consumer, 1, max_records=3)) <= 3


def test_a_batch_that_is_larger_than_what_is_read_at_once_comes_whole_and_in_order(queue: MakeQueue) -> None:
    """Whole batches are acquired, whatever ``max_poll_records`` is; the consumer makes records as they are polled."""
    count = 20_000
    topic = queue()
    with KafkaProducer(
        bootstrap_servers=topic.bootstrap, batch_size=1 << 20, linger_ms=60_000, compression_type="gzip"
    ) as producer:
        for number in range(count):
            producer.send(topic.name, b"%d" % number)
        producer.flush()
    consumer = topic.member(share_acknowledgement_mode="implicit", max_poll_records=3000)
    found: list[bytes | None] = []

    def poll() -> bool:
        records = [record for part in consumer.poll(100).values() for record in part]
        assert len(records) <= 3000
        found.extend(record.value for record in records)
        return len(found) >= count

    until(poll)
    assert found == [b"%d" % number for number in range(count)]
    consumer.commit(10_000)
    topic.expect_nothing_else(consumer, is_explicit=False)


def test_closing_gives_back_what_is_held_at_once(queue: MakeQueue) -> None:
    jobs = queue(share_record_lock_duration_ms=LONG_LOCK_MS)
    jobs.put(b"x")
    first, second = jobs.member(), jobs.member()
    take(first, 1)
    first.close()
    (record,) = take(second, 1)
    assert record.delivery_count == 2


def test_a_lost_connection_frees_what_was_held_at_once(queue: MakeQueue) -> None:
    jobs = queue(share_record_lock_duration_ms=LONG_LOCK_MS)
    jobs.put(b"x")
    first, second = jobs.member(), jobs.member()
    take(first, 1)
    # Nothing is said to the broker: the socket just goes, as it does when a process is killed.
    first._host.call(lambda: first._host.client.close())
    (record,) = take(second, 1)
    assert record.delivery_count == 2


def test_a_record_whose_lock_ends_is_handed_out_again_and_cannot_be_acknowledged_by_the_former_holder(
    queue: MakeQueue,
) -> None:
    jobs = queue(share_record_lock_duration_ms="3000")
    jobs.put(b"x")
    first, second = jobs.member(), jobs.member()
    (held,) = take(first, 1)
    jobs.configure({"share.record.lock.duration.ms": LONG_LOCK_MS})  # for the second, which may be slow
    (again,) = take(second, 1)
    assert again.delivery_count == 2
    until(lambda: held.lost)
    with pytest.raises(IllegalStateError, match="its lock is gone"):
        first.acknowledge(held)
    second.acknowledge(again)
    assert all(error is None for error in second.commit(10_000).values())


def test_a_renewed_lock_outlives_one_that_is_not_renewed(queue: MakeQueue) -> None:
    jobs = queue(share_record_lock_duration_ms="5000")
    jobs.put(b"renewed", b"not renewed")
    first, second = jobs.member(), jobs.member()
    renewed, _ = take(first, 2)
    found: list[ShareRecord] = []

    def has_come() -> bool:
        first._host.wait(first.renew([renewed]), 30)
        return bool(found)

    poll_until(has_come, second, into=found)
    assert [(record.value, record.delivery_count) for record in found] == [(b"not renewed", 2)]
    first.acknowledge(renewed)
    assert all(error is None for error in first.commit(10_000).values())


def test_a_record_is_dropped_after_as_many_deliveries_as_the_group_allows(queue: MakeQueue) -> None:
    jobs = queue(share_delivery_count_limit="2")
    jobs.put(b"poison")
    consumer = jobs.member()
    for count in (1, 2):
        (record,) = take(consumer, 1)
        assert record.delivery_count == count
        consumer.acknowledge(record, RELEASE)
    consumer.commit(10_000)
    jobs.expect_nothing_else(consumer)


def test_one_slow_record_stalls_its_partition_only_until_it_is_acknowledged(queue: MakeQueue) -> None:
    jobs = queue(partitions=2, share_partition_max_record_locks="100")
    for i in range(150):
        jobs.put(b"%d" % i, partition=0)  # a batch each: a window takes whole batches
    consumer = jobs.member()
    slow, *others = take(consumer, 100)
    assert slow.offset == 0
    for record in others:
        consumer.acknowledge(record)
    consumer.commit(10_000)
    jobs.expect_nothing_else(consumer, 1)  # of the other partition: the window is a span of offsets
    consumer.acknowledge(slow)
    assert len(take(consumer, 50)) == 50


def test_acknowledging_twice_is_an_error_at_the_call(queue: MakeQueue) -> None:
    jobs = queue()
    jobs.put(b"x")
    consumer = jobs.member()
    (record,) = take(consumer, 1)
    consumer.acknowledge(record)
    with pytest.raises(IllegalStateError, match="acknowledged before"):
        consumer.acknowledge(record)
