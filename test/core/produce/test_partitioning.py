from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from kafka.core.produce.accumulator import (
    BuiltInChooser,
    StickyChooser,
    mixed_in_halves,
    murmur2,
    partition_for_key,
    partitioning_for,
    product_in_halves,
)
from kafka.core.produce.batch import PartitionQueue, ProducerBatch, TopicQueues
from kafka.errors import IllegalArgumentError
from kafka.records import RecordBatchBuilder
from test.core.produce.support import Rig


class Chance:
    """The numbers that are drawn, one after the other."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = list(numbers)
        self.stops: list[int] = []

    def randrange(self, stop: int, /) -> int:
        self.stops.append(stop)
        return self.numbers.pop(0)


def topic_of(*waiting: int) -> TopicQueues:
    """A topic whose partitions have so many batches waiting."""
    topic = TopicQueues("t")
    for partition, count in enumerate(waiting):
        queue = PartitionQueue("t", partition)
        queue.closed.extend([None] * count)  # type: ignore[list-item]
        topic.queues.append(queue)
    topic.available = list(range(len(waiting)))
    return topic


def test_the_built_in_one_stays_on_a_partition_until_batch_size_bytes_went_there() -> None:
    rig = Rig(4, partitioner=None, batch_bytes=1000, idempotent=False)
    seen: list[int] = []
    for _ in range(200):
        batch, _ = rig.put(b"x" * 100, None)
        rig.accumulator.close_open(batch.queue)  # as it is with linger_ms=0: each record goes out by itself
        seen.append(batch.partition)
    runs: list[list[int]] = [[seen[0]]]
    for partition in seen[1:]:
        if partition == runs[-1][-1]:
            runs[-1].append(partition)
        else:
            runs.append([partition])
    assert all(len(run) % 6 == 0 for run in runs[:-1]), "six records of 100 bytes in batches of their own are 1,000"
    assert len(runs) > 10


def test_the_built_in_one_goes_on_when_a_batch_is_full_of_records() -> None:
    rig = Rig(16, partitioner=None, batch_records=2)
    partitions = [rig.put(b"x", None)[0].partition for _ in range(40)]
    assert partitions[::2] == partitions[1::2]
    assert len(set(partitions)) > 5


@pytest.mark.parametrize(
    ("waiting", "expected"),
    [
        ((0, 3, 1), {0: 4, 1: 1, 2: 3}),  # the example of KIP-794
        ((5, 0), {0: 1, 1: 6}),
        ((2, 2, 2), {0: 1, 1: 1, 2: 1}),
    ],
)
def test_a_partition_is_the_likelier_the_fewer_batches_wait_in_it(
    waiting: tuple[int, ...], expected: dict[int, int]
) -> None:
    total = sum(expected.values())
    found: Counter[int] = Counter()
    for number in range(total):
        chance = Chance(number)
        found[BuiltInChooser(chance, 1000).next_sticky(topic_of(*waiting), 0.0).partition] += 1
        assert chance.stops == [total]
    assert found == expected


def test_without_adaption_all_partitions_are_alike() -> None:
    chance = Chance(1)
    assert BuiltInChooser(chance, 1000, adaptive=False).next_sticky(topic_of(0, 9, 0), 0.0).partition == 1
    assert chance.stops == [3]


def test_loads_are_looked_at_again_after_a_while_that_grows_with_the_partitions() -> None:
    topic = topic_of(0, 9)
    built_in = BuiltInChooser(Chance(0, 0, 0), 0)
    built_in.next_sticky(topic, 0.0)
    assert topic.load_sums == [10, 11]
    topic.queues[1].closed.clear()
    built_in.next_sticky(topic, 0.000_01)
    assert topic.load_sums == [10, 11]
    built_in.next_sticky(topic, 0.000_02)  # ten microseconds for each of two partitions
    assert topic.load_sums == []


def test_partitions_of_a_node_that_takes_nothing_are_avoided() -> None:
    rig = Rig(4, partitioner="sticky")
    topic = rig.topic
    rig.put_alone(b"x", 1)
    topic.queues[1].node = topic.queues[2].node = 7
    topic.queues[0].node = 8
    late = BuiltInChooser(random.Random(5), 0, late_s=1.0)
    assert {late.next_sticky(topic, 1.5).partition for _ in range(200)} == {0, 3}
    topic.loads_until = 0.0
    patient = BuiltInChooser(random.Random(5), 0, late_s=2.0)
    assert {patient.next_sticky(topic, 1.5).partition for _ in range(200)} == {0, 1, 2, 3}


def test_keys_can_be_ignored_and_are_not_unless_that_is_asked_for() -> None:
    topic = topic_of(0, 0, 0)
    home = topic.queues[partition_for_key(b"foobar", 3)]
    assert BuiltInChooser(random.Random(3), 100).queue_for(topic, b"foobar", None, None, None) is home
    rig = Rig(10, partitioner=BuiltInChooser(random.Random(3), 100, ignore_keys=True), batch_bytes=100)
    assert len({rig.put(b"x" * 60, None, b"key")[0].partition for _ in range(40)}) > 3


def test_a_key_decides_as_in_java_with_every_partitioner_that_is_built_in() -> None:
    for name in (None, "sticky", "round_robin"):
        rig = Rig(10, partitioner=name)
        assert rig.put(b"x", None, b"foobar")[0].partition == partition_for_key(b"foobar", 10)


class Third:
    """kafka-python 3's shape."""

    seen: list[tuple[Any, ...]] = []

    def partition(self, *arguments: Any) -> int:
        self.seen.append(arguments)
        return 2


class Second:
    """kafka-python 2's shape as an object."""

    def __call__(self, key: bytes | None, every: list[int], available: list[int]) -> int:
        every.clear()  # it is his own
        return available[-1]


@pytest.mark.parametrize("given", [Third, Third(), Second, Second(), lambda key, every, available: 2])
def test_a_users_own_partitioner_may_be_a_function_an_object_or_a_class_of_either_generation(given: Any) -> None:
    Third.seen.clear()
    topic = topic_of(0, 0, 0)
    kind = partitioning_for(given, random.Random(), cluster="the cluster")
    assert kind.asks_always
    chosen = kind.queue_for(topic, b"5", 5, [1], b"[1]")
    assert chosen is topic.queues[2]
    if Third.seen:
        assert Third.seen == [("t", 5, b"5", [1], b"[1]", "the cluster")]


@pytest.mark.parametrize(
    ("returned", "error", "text"),
    [
        (3, IllegalArgumentError, "chose 3; topic t has 3 partitions"),
        (-1, IllegalArgumentError, "chose -1; topic t has 3 partitions"),
        (None, TypeError, "returned None for topic t, and not the number of a partition"),
        ("0", TypeError, "returned '0' for topic t"),
        (1.0, TypeError, "returned 1.0 for topic t"),
    ],
)
def test_what_a_users_partitioner_may_not_return(returned: Any, error: type[Exception], text: str) -> None:
    kind = partitioning_for(lambda key, every, available: returned, random.Random())
    with pytest.raises(error, match=text):
        kind.queue_for(topic_of(0, 0, 0), None, None, None, None)


def test_only_what_decides_by_itself_is_asked_for_each_record_and_only_objects_see_what_was_given() -> None:
    kinds = {name: partitioning_for(name, random.Random()) for name in (None, "sticky", "round_robin")}
    assert {name: kind.asks_always for name, kind in kinds.items()} == {
        None: False, "sticky": False, "round_robin": True,
    }  # fmt: skip
    assert not any(kind.wants_objects for kind in kinds.values())
    assert partitioning_for(Third(), random.Random()).wants_objects
    assert not partitioning_for(Second(), random.Random()).wants_objects


def test_an_object_of_ours_is_taken_as_it_is() -> None:
    mine = BuiltInChooser(random.Random(), 5)
    assert partitioning_for(mine, random.Random()) is mine


def test_the_first_partition_may_be_chosen_by_a_users_partitioner_too() -> None:
    topic = topic_of(0, 0)
    assert partitioning_for(lambda *_: 0, random.Random()).queue_for(topic, None, None, None, None) is topic.queues[0]


@pytest.mark.parametrize(
    ("partitions", "former", "drawn", "chosen", "stops"),
    [
        (3, None, [1], 1, [3]),
        (3, 0, [1], 1, [3]),
        # the one before was drawn again: one of the other two, by chance
        (3, 1, [1, 0], 2, [3, 2]),
        (3, 1, [1, 1], 0, [3, 2]),
        (2, 1, [1, 0], 0, [2, 1]),
        (1, 0, [0], 0, [1]),  # there is no other one
    ],
)
def test_sticky_takes_another_partition_for_each_batch(
    partitions: int, former: int | None, drawn: list[int], chosen: int, stops: list[int]
) -> None:
    """KIP-480: StickyPartitionCache.nextPartition."""
    chance, topic = Chance(*drawn), topic_of(*[0] * partitions)
    topic.sticky = None if former is None else topic.queues[former]
    assert StickyChooser(chance).next_sticky(topic, 0.0) is topic.queues[chosen]
    assert chance.stops == stops


def test_round_robin_takes_the_partitions_that_have_a_leader_in_their_order() -> None:
    topic = topic_of(0, 0, 0, 0)
    topic.available = [0, 1, 3]
    kind = partitioning_for("round_robin", random.Random())
    found = [kind.queue_for(topic, None, None, None, None) for _ in range(6)]
    assert [queue.partition for queue in found if queue] == [1, 3, 0, 1, 3, 0]
    assert kind.queue_for(topic, b"foobar", None, None, None) is topic.queues[partition_for_key(b"foobar", 4)]


# -- KIP-794 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "is_kept"), [(16383, True), (16384, False)])
def test_by_default_a_partition_is_left_after_as_many_bytes_as_javas_batch_size(size: int, is_kept: bool) -> None:
    topic = topic_of(0, 0)
    topic.sticky, topic.sticky_from_bytes = topic.queues[0], 1000
    topic.queues[0].produced_bytes = 1000 + size
    kind = partitioning_for(None, Chance(1))
    chosen = kind.next_sticky(topic, 0.0)
    assert chosen is topic.queues[0 if is_kept else 1]
    assert is_kept or topic.sticky_from_bytes == 0, "the bytes of the new one are counted from now on"


def test_by_default_loads_are_looked_at_and_a_key_decides() -> None:
    chance = Chance(3)
    kind = partitioning_for(None, chance)
    assert kind.next_sticky(topic_of(0, 3), 0.0).partition == 0
    assert chance.stops == [5]
    topic = topic_of(0, 0, 0)
    assert kind.queue_for(topic, b"foobar", None, None, None) is topic.queues[partition_for_key(b"foobar", 3)]
    assert kind.queue_for(topic, None, None, None, None) is None


def test_a_batch_that_is_full_of_bytes_is_followed_by_one_of_another_partition() -> None:
    """Although a record more would have made it larger than it may be, so that fewer bytes went there."""
    rig = Rig(16, partitioner=None, batch_bytes=1000)
    partitions = [rig.put(b"x" * 600, None)[0].partition for _ in range(40)]
    changes = sum(a != b for a, b in zip(partitions, partitions[1:], strict=False))
    assert changes > 25, "it takes two such records to have 1,000 bytes"


def test_a_batch_that_was_full_makes_room_for_another_partition_once() -> None:
    topic = topic_of(0, 0)
    topic.sticky = former = topic.queues[0]
    former.was_filled = True
    built_in = BuiltInChooser(Chance(1, 0), 1000)
    topic.sticky = built_in.next_sticky(topic, 0.0)
    assert topic.sticky is topic.queues[1]
    assert not former.was_filled
    topic.sticky = former
    assert built_in.next_sticky(topic, 0.0) is former


@pytest.mark.parametrize(
    ("now", "nodes", "late", "expected"),
    [
        (3.0, [0, 0, 1, 1], [0], {0, 1, 2, 3}),  # as late as may be
        (3.1, [0, 0, 1, 1], [0], {2, 3}),  # node 0 takes nothing
        (3.1, [1, 0, 1, 0], [1, 2], {0, 1, 2, 3}),  # no node takes anything
        (3.1, [-1, -1, 1, 1], [0], {1, 2, 3}),  # where it is to go is not known: that partition alone
    ],
)
def test_what_waits_too_long_keeps_its_node_from_being_chosen_as_long_as_there_are_others(
    now: float, nodes: list[int], late: list[int], expected: set[int]
) -> None:
    """KIP-794, partitioner.availability.timeout.ms."""
    topic = topic_of(0, 0, 0, 0)
    for queue, node in zip(topic.queues, nodes, strict=True):
        queue.node = node
    for partition in late:
        queue = topic.queues[partition]
        queue.closed.append(ProducerBatch(queue, 1, RecordBatchBuilder(1000), 1.0, lambda: None))
    built_in = BuiltInChooser(random.Random(5), 0, late_s=2.0)
    assert {built_in.next_sticky(topic, now).partition for _ in range(200)} == expected


def test_what_waits_to_be_sent_again_and_what_is_open_counts_as_waiting_too() -> None:
    rig = Rig(3, partitioner="sticky", idempotent=False)
    rig.put_alone(b"x", 0)
    rig.answer(rig.call(), 19)  # NOT_ENOUGH_REPLICAS
    rig.put(b"x", 0)
    rig.put(b"x", 1)
    chance = Chance(0)
    BuiltInChooser(chance, 0).next_sticky(rig.topic, 1.0)
    assert rig.topic.load_sums == [1, 1 + 2, 1 + 2 + 3]


# -- murmur2 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "as_java_prints_it"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_javas(key: bytes, as_java_prints_it: int) -> None:
    assert murmur2(key) == as_java_prints_it & 0xFFFFFFFF


def test_a_key_gets_the_partition_that_java_gives_it() -> None:
    assert partition_for_key(b"foobar", 10) == (-790332482 & 0x7FFFFFFF) % 10


@pytest.mark.parametrize("length", range(12))
def test_any_length_of_key_has_a_partition_in_range(length: int) -> None:
    assert 0 <= partition_for_key(bytes(range(length)), 7) < 7


@pytest.mark.parametrize("number", [0, 1, 0xFFFF, 0x10000, 0x12345678, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_products_in_halves_are_those_of_the_reference(number: int) -> None:
    """Austin Appleby's MurmurHash2: ``m = 0x5bd1e995``, ``r = 24``; ``k *= m; k ^= k >> r; k *= m``."""
    product = number * 0x5BD1E995 % 2**32
    assert product_in_halves(number) == product
    assert mixed_in_halves(number) == (product ^ product // 2**24) * 0x5BD1E995 % 2**32
