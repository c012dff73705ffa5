from __future__ import annotations

from collections.abc import Sequence

import pytest

from kafka.core.produce.accumulator import BufferFull, TopicQueues
from kafka.core.produce.batch import MOVED
from kafka.errors import IllegalArgumentError, KafkaTimeoutError
from test.core.produce.support import Rig


def test_records_of_a_partition_share_a_batch_until_it_is_full() -> None:
    rig = Rig(batch_bytes=400)
    batches = [rig.put(b"x" * 100)[0] for _ in range(6)]
    assert batches[0] is batches[1] is batches[2]
    assert batches[3] is batches[4] is not batches[0]
    assert list(rig.topic.queues[0].closed) == [batches[0]]


def test_a_batch_holds_at_most_batch_max_records() -> None:
    rig = Rig(batch_records=3)
    placed = [rig.put(b"x") for _ in range(7)]
    assert [index for _, index in placed] == [0, 1, 2, 0, 1, 2, 0]
    assert [batch.records_count for batch in rig.topic.queues[0].closed] == [3, 3]


def test_the_sender_is_signalled_once_and_not_per_record() -> None:
    rig = Rig()
    for _ in range(50):
        rig.put(b"x")
    assert rig.signals == 1
    rig.poll()
    for _ in range(50):
        rig.put(b"x")
    assert rig.signals == 1, "the open batch is known already"


def test_records_without_a_key_stick_to_a_partition_until_its_batch_is_full() -> None:
    rig = Rig(4, batch_records=5)
    partitions = [rig.put(b"x", None)[0].partition for _ in range(40)]
    runs = [set(partitions[i : i + 5]) for i in range(0, 40, 5)]
    assert all(len(run) == 1 for run in runs)
    assert all(a != b for a, b in zip(runs, runs[1:], strict=False)), "each batch goes to another partition (KIP-480)"


def test_records_without_a_key_avoid_partitions_without_a_leader() -> None:
    rig = Rig(4, batch_records=1)
    rig.accumulator.set_partitions(rig.topic, 4, [1, 3])
    assert {rig.put(b"x", None)[0].partition for _ in range(30)} == {1, 3}


def test_a_key_goes_to_its_partition_even_when_that_has_no_leader() -> None:
    rig = Rig(4)
    home = rig.put(b"x", None, b"abc")[0].partition
    rig.accumulator.set_partitions(rig.topic, 4, [p for p in range(4) if p != home])
    assert rig.put(b"x", None, b"abc")[0].partition == home


def test_round_robin_takes_one_partition_after_the_other() -> None:
    rig = Rig(3, partitioner="round_robin")
    partitions = [rig.put(b"x", None)[0].partition for _ in range(6)]
    assert sorted(partitions[:3]) == [0, 1, 2]
    assert partitions[:3] == partitions[3:]


def test_a_users_partitioner_sees_key_and_partitions() -> None:
    seen: list[tuple[bytes | None, list[int], list[int]]] = []

    def last(key: bytes | None, every: Sequence[int], available: Sequence[int]) -> int:
        seen.append((key, list(every), list(available)))
        return every[-1]

    rig = Rig(3, partitioner=last)
    assert rig.put(b"x", None, b"k")[0].partition == 2
    assert seen == [(b"k", [0, 1, 2], [0, 1, 2])]


@pytest.mark.parametrize("partition", [-1, 2])
def test_a_partition_that_is_not_there_is_refused(partition: int) -> None:
    with pytest.raises(IllegalArgumentError, match="has 2 partitions"):
        Rig(2).put(b"x", partition)


def test_parked_records_find_their_batches_when_the_partitions_are_known() -> None:
    rig = Rig(0)
    parked, first = rig.accumulator.park(rig.topic, 1, b"abc", b"a", None, None)
    _, second = rig.accumulator.park(rig.topic, 1, None, b"b", None, 1)
    _, third = rig.accumulator.park(rig.topic, 1, None, b"c", None, 9)
    rig.leaders = {0: 1, 1: 1}
    rig.accumulator.set_partitions(rig.topic, 2, [0, 1])
    assert parked.done.value is MOVED
    assert parked.forward is not None
    assert parked.forward[second][0].partition == 1
    assert isinstance(parked.forward[third][0].done.exception, IllegalArgumentError)
    assert parked not in rig.accumulator.incomplete
    assert parked.forward[first][0] in rig.accumulator.incomplete


def test_parked_records_fail_together_when_given_up() -> None:
    rig = Rig(0)
    parked, _ = rig.accumulator.park(rig.topic, 1, None, b"a", None, None)
    rig.accumulator.give_up_parked(rig.topic, KafkaTimeoutError("no metadata"))
    assert isinstance(parked.done.exception, KafkaTimeoutError)
    assert not rig.accumulator.incomplete


def test_partitions_are_added_and_never_taken_away() -> None:
    rig = Rig(2)
    queues = list(rig.topic.queues)
    rig.accumulator.set_partitions(rig.topic, 3, [0, 1, 2])
    rig.accumulator.set_partitions(rig.topic, 1, [0])
    assert rig.topic.queues[:2] == queues
    assert len(rig.topic.queues) == 3


def test_topics_do_not_share_batches() -> None:
    rig = Rig()
    other = rig.accumulator.topics["u"] = TopicQueues("u")
    rig.accumulator.set_partitions(other, 1, [0])
    batch, _ = rig.accumulator.append(other, None, 1, None, b"x", None)
    assert batch.topic == "u"
    assert rig.put(b"x")[0] is not batch


def test_memory_is_bounded_and_freed_by_answers() -> None:
    rig = Rig(3, batch_bytes=1000, buffer_bytes=2500, idempotent=False)
    batches = [rig.put(b"x", 0)[0], rig.put(b"x", 1)[0]]
    with pytest.raises(BufferFull):
        rig.put(b"x", 2)
    assert rig.put(b"x", 0)[0] is batches[0], "there is room in the batches that are open"
    rig.answer(rig.call())
    assert rig.freed == 1
    rig.put(b"x", 2)


def test_a_record_larger_than_the_whole_memory_is_taken_when_it_is_alone() -> None:
    rig = Rig(1, batch_bytes=10, buffer_bytes=100)
    rig.put(b"x" * 1000)
    with pytest.raises(BufferFull):
        rig.put(b"x")
