from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf

import pytest

from kafka._compiled import IS_COMPILED
from kafka.core.produce.accumulator import OBJECT_BYTES, WAITER_PATIENCE_S, BufferFull, RecordAccumulator
from kafka.core.produce.batch import MOVED, BatchResult, PartitionQueue, ProducerBatch, TopicQueues
from kafka.core.produce.sender import split_batch
from kafka.errors import IllegalArgumentError, IllegalStateError, KafkaTimeoutError
from kafka.records import GZIP
from test.core.produce.support import Rig
from test.support.seeds import each_seed


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
    rig = Rig(known=False)
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
    unassigned, first = rig.accumulator.append_unassigned(rig.topic, 1, b"abc", b"a", None, None)
    _, second = rig.accumulator.append_unassigned(rig.topic, 1, None, b"b", None, 1)
    _, third = rig.accumulator.append_unassigned(rig.topic, 1, None, b"c", None, 9)
    rig.leaders = {0: 1, 1: 1}
    rig.accumulator.set_partitions(rig.topic, 2, [0, 1])
    assert unassigned.done.value is MOVED
    assert unassigned.forward is not None
    assert unassigned.forward[second][0].partition == 1
    refused, index = unassigned.forward[third]
    assert isinstance(refused.done.exception, IllegalArgumentError)
    assert index == 0, "it is alone"
    assert unassigned not in rig.accumulator.incomplete
    assert unassigned.forward[first][0] in rig.accumulator.incomplete


def test_parked_records_fail_together_when_given_up() -> None:
    rig = Rig(0)
    unassigned, _ = rig.accumulator.append_unassigned(rig.topic, 1, None, b"a", None, None)
    rig.accumulator.fail_unassigned(rig.topic, KafkaTimeoutError("no metadata"))
    assert isinstance(unassigned.done.exception, KafkaTimeoutError)
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


class Waits:
    """Somebody in the row for memory."""

    def __init__(self, rig: Rig, value: bytes, partition: int = 0) -> None:
        self.needed_bytes = 0
        self.wakes = 0
        self._record = (rig.topic, rig.topic.queues[partition], 1000, None, value, None)
        self._rig = rig
        with pytest.raises(BufferFull) as full:
            rig.accumulator.append(*self._record)
        self.needed_bytes = full.value.needed_bytes
        rig.accumulator.add_waiter(self)

    def wake(self) -> None:
        self.wakes += 1

    def append(self) -> ProducerBatch:
        batch, _ = self._rig.accumulator.append(*self._record, self)
        self._rig.accumulator.remove_waiter(self)
        return batch


def test_memory_is_bounded_and_freed_by_answers() -> None:
    rig = Rig(3, batch_bytes=1000, buffer_bytes=4500, idempotent=False)
    batches = [rig.put(b"x" * 900, 0)[0], rig.put(b"x" * 900, 1)[0]]
    with pytest.raises(BufferFull):
        rig.put(b"x" * 900, 2)
    assert rig.put(b"", 0)[0] is batches[0], "there is room in the batches that are open"
    rig.answer(rig.call())
    assert rig.accumulator.memory.used_bytes == 0
    rig.put(b"x" * 900, 2)


def test_a_batch_counts_with_its_objects_and_once_it_is_closed_with_its_very_bytes() -> None:
    rig = Rig(idempotent=False)
    batch = rig.put_alone(b"x" * 100)
    assert rig.accumulator.memory.used_bytes == OBJECT_BYTES + batch.builder.size_bytes
    for call in rig.calls():
        rig.answer(call)
    assert rig.accumulator.memory.used_bytes == 0


def test_a_partition_with_one_record_does_not_take_the_memory_of_a_full_batch() -> None:
    rig = Rig(1000, batch_bytes=16384, buffer_bytes=4_000_000)
    for partition in range(1000):
        rig.put(b"x" * 100, partition)
    assert rig.accumulator.memory.used_bytes < 2_000_000


def test_waiters_get_memory_in_the_order_in_which_they_came() -> None:
    rig = Rig(4, batch_bytes=1000, buffer_bytes=4500, idempotent=False)
    for partition in range(2):
        rig.put(b"x" * 900, partition)
    first, second = Waits(rig, b"x" * 900, 2), Waits(rig, b"x" * 300, 3)
    with pytest.raises(BufferFull):
        rig.put(b"", 3)  # as small as it is: others came before
    with pytest.raises(BufferFull):
        second.append()
    rig.answer(rig.call())
    assert first.wakes
    assert not second.wakes
    first.append()
    assert second.wakes
    second.append()
    assert not rig.accumulator.memory.waiters
    rig.put(b"x" * 10, 3)


def test_a_waiter_that_gives_up_lets_the_next_one_try() -> None:
    rig = Rig(4, batch_bytes=1000, buffer_bytes=6000, idempotent=False)
    for partition in range(2):
        rig.put(b"x" * 700, partition)
    patient, quick = Waits(rig, b"x" * 2000, 2), Waits(rig, b"", 3)
    rig.accumulator.remove_waiter(patient)
    assert quick.wakes == 1
    quick.append()


def test_nothing_lingers_while_memory_is_short() -> None:
    rig = Rig(2, batch_bytes=1000, buffer_bytes=3000, idempotent=False, linger_s=60)
    rig.put(b"x" * 900, 0)
    assert rig.calls() == []
    signals = rig.signals
    with pytest.raises(BufferFull):
        rig.put(b"x" * 900, 1)
    assert rig.signals == signals + 1
    rig.answer(rig.call())
    rig.put(b"x" * 900, 1)
    assert rig.calls() == [], "there is memory again"


def test_what_a_future_keeps_does_not_keep_the_records() -> None:
    rig = Rig(idempotent=False)
    batch = rig.put_alone(b"x")
    rig.answer(rig.call())
    assert batch.records_count == 1
    with pytest.raises(IllegalStateError, match="released"):
        batch.builder.build()


def test_a_record_larger_than_the_whole_memory_is_taken_when_it_is_alone() -> None:
    rig = Rig(1, batch_bytes=10, buffer_bytes=100)
    rig.put(b"x" * 1000)
    with pytest.raises(BufferFull):
        rig.put(b"x")


def test_parked_records_count_and_find_their_batches_without_more_memory() -> None:
    rig = Rig(0, buffer_bytes=2000)
    with pytest.raises(BufferFull):
        for _ in range(10):
            rig.accumulator.append_unassigned(rig.topic, 1, None, b"x" * 100, [("name", b"value")], None)
    unassigned = rig.topic.unassigned
    assert unassigned is not None
    count = unassigned.records_count
    assert 2 <= count <= 4
    rig.leaders = dict.fromkeys(range(count), 1)
    rig.accumulator.set_partitions(rig.topic, count, range(count))
    assert unassigned.forward is not None
    assert all(pending_records.done.exception is None for pending_records, _ in unassigned.forward)
    rig.accumulator.close_open_batches()
    for call in rig.calls():
        rig.answer(call)
    assert rig.accumulator.memory.used_bytes == 0


def test_closing_batches_goes_through_while_threads_add_topics() -> None:
    rig = Rig()

    class Adding(list[PartitionQueue]):
        """Another thread adds a topic just when these are looked at."""

        def __iter__(self) -> Iterator[PartitionQueue]:
            rig.accumulator.topics.setdefault(f"new {len(rig.accumulator.topics)}", TopicQueues("new"))
            return super().__iter__()

    rig.topic.queues = Adding(rig.topic.queues)
    batch, _ = rig.put(b"x")
    assert rig.accumulator.close_open_batches() == [batch]
    assert rig.accumulator.take_all() == [batch]


@pytest.mark.skipif(IS_COMPILED, reason="compiled code asks no subclass of list")
def test_partitions_become_known_all_at_once() -> None:
    rig = Rig(0)
    seen: set[tuple[int, int]] = set()

    class Watched(list[PartitionQueue]):
        def extend(self, added: Iterable[PartitionQueue]) -> None:
            seen.add((len(self), len(rig.topic.available)))
            super().extend(added)

        def append(self, added: PartitionQueue) -> None:
            raise AssertionError("a thread that sends now takes another partition for its key")

    rig.topic.queues = Watched()
    rig.accumulator.set_partitions(rig.topic, 3, [0, 2])
    rig.accumulator.set_partitions(rig.topic, 5, [0, 4])
    assert seen == {(0, 2), (3, 2)}, "who looks at the first partitions finds some to choose from"
    assert [queue.partition for queue in rig.topic.queues] == list(range(5))
    assert rig.topic.available == [0, 4]


def test_nothing_gets_in_behind_the_last_abort() -> None:
    rig, unknown = Rig(), TopicQueues("unknown")
    future = rig.future(b"x")
    rig.accumulator.is_closed = True
    rig.sender.abort()
    with pytest.raises(IllegalStateError, match="closed"):
        rig.put(b"late")
    with pytest.raises(IllegalStateError, match="closed"):
        rig.accumulator.append_unassigned(unknown, 1000, None, b"late", None, None)
    assert future.failed() and not rig.accumulator.incomplete and not rig.accumulator.memory.used_bytes


@each_seed(30)
def test_what_an_open_batch_may_grow_to_is_counted_also_after_memory_was_short(seed: int) -> None:
    chance = random.Random(seed)
    rig = Rig(4, buffer_bytes=chance.choice([20_000, 40_000, 80_000]), batch_bytes=16384)
    for _ in range(200):
        try:
            rig.put(bytes(chance.randrange(10, 2000)), chance.randrange(4))
        except BufferFull:
            rig.answer_all()
        for queue in rig.topic.queues:
            if queue.open is not None:
                assert queue.open.reserved_bytes >= OBJECT_BYTES + queue.open.builder.limit_bytes
    rig.answer_all()
    rig.accumulator.close_open_batches()
    rig.answer_all()
    assert rig.accumulator.memory.used_bytes == 0


def test_a_record_that_cannot_be_parked_hurries_what_lingers() -> None:
    rig, unknown = Rig(buffer_bytes=3000, linger_s=100.0), TopicQueues("unknown")
    rig.put(b"x")
    assert not rig.calls()
    with pytest.raises(BufferFull):
        rig.accumulator.append_unassigned(unknown, 1000, None, bytes(2000), None, None)
    assert rig.signals == 2
    assert len(rig.calls()) == 1


def test_a_batch_behind_others_that_wait_is_no_news_for_the_sender() -> None:
    rig = Rig(batch_records=1, known=False)  # without an id nothing is taken
    rig.put(b"x")
    rig.poll()
    signals = rig.signals
    for _ in range(5):
        rig.put(b"x")
    assert rig.signals == signals
    rig.know()
    rig.answer_all()
    assert not rig.accumulator.incomplete


@pytest.mark.parametrize("others", [1, 2])
def test_what_was_begun_behind_others_lingers_no_longer_than_it_may(others: int) -> None:
    rig = Rig(batch_bytes=400, linger_s=1.0, idempotent=False)
    rig.leaders[0] = None
    for _ in range(others):
        rig.put(b"x" * 300)
    rig.poll()
    behind, _ = rig.put(b"x" * 300)
    rig.leaders[0] = 1
    assert [batch for call in rig.calls() for batch in call.batches] == list(rig.topic.queues[0].in_flight)
    assert rig.topic.queues[0].open is behind
    assert rig.sender.next_deadline == behind.created_at + 1.0
    rig.clock.advance(1.0)
    assert rig.call().batches == [behind]


class Patient:
    """Somebody in the row who needs little."""

    def __init__(self) -> None:
        self.needed_bytes = 500
        self.wakes = 0

    def wake(self) -> None:
        self.wakes += 1


@pytest.mark.parametrize(("free", "is_plenty"), [(499, False), (999, False), (1000, True)])
def test_a_waiter_is_woken_at_once_when_a_32nd_of_the_memory_is_free(free: int, is_plenty: bool) -> None:
    rig, waiter = Rig(buffer_bytes=32_000, idempotent=False), Patient()
    batch = rig.put_alone(b"x")
    rig.accumulator.memory.used_bytes = 32_000 - free + batch.reserved_bytes
    assert not rig.accumulator.add_waiter(waiter)
    rig.answer(rig.call())
    assert waiter.wakes == is_plenty


def test_a_waiter_for_whom_there_is_enough_is_woken_after_a_moment() -> None:
    rig, waiter = Rig(buffer_bytes=32_000), Patient()
    memory = rig.accumulator.memory
    memory.used_bytes = 31_800
    assert not rig.accumulator.add_waiter(waiter)
    rig.poll()
    assert rig.sender.next_deadline == inf
    memory.used_bytes = 31_400
    rig.poll()
    assert rig.sender.next_deadline == rig.clock.monotonic() + WAITER_PATIENCE_S
    assert not waiter.wakes
    rig.clock.advance(WAITER_PATIENCE_S)
    rig.poll()
    assert waiter.wakes == 1
    rig.accumulator.remove_waiter(waiter)
    rig.poll()
    assert rig.sender.next_deadline == inf


def test_a_waiter_is_woken_when_a_topic_is_given_up_or_a_transaction_is_over() -> None:
    rig, waiter = Rig(buffer_bytes=32_000, idempotent=False), Patient()
    unknown, memory = TopicQueues("unknown"), rig.accumulator.memory
    rig.accumulator.append_unassigned(unknown, 1000, None, bytes(200), None, None)
    rig.put(b"x")
    rig.accumulator.close_open_batches()
    memory.used_bytes = 32_000
    assert not rig.accumulator.add_waiter(waiter)
    rig.accumulator.fail_unassigned(unknown, KafkaTimeoutError("no metadata"))
    assert waiter.wakes == 1
    memory.used_bytes = 32_300
    rig.sender.drop_unsent(KafkaTimeoutError("it is over"))
    assert waiter.wakes == 2


def test_who_comes_into_the_row_when_there_is_enough_need_not_wait() -> None:
    rig, first, second = Rig(buffer_bytes=32_000), Patient(), Patient()
    assert rig.accumulator.add_waiter(first)
    assert rig.signals == 0, "nothing is refused, so nothing has to hurry"
    assert not rig.accumulator.add_waiter(second), "it is not the first"
    assert rig.signals == 1


def test_who_was_refused_before_an_answer_and_comes_into_the_row_after_it_has_nothing_linger() -> None:
    rig, waiter = Rig(buffer_bytes=32_000, linger_s=30.0, idempotent=False), Patient()
    batch, _ = rig.put(b"x")
    assert rig.calls() == []
    rig.accumulator.memory.used_bytes = 32_000
    signals = rig.signals
    assert not rig.accumulator.add_waiter(waiter)
    assert rig.signals == signals + 1
    assert rig.call().batches == [batch]


class Nosy:
    """A lock that does something when it is let go for the first time."""

    def __init__(self, then: Callable[[], object] | None = None) -> None:
        self._then = then

    def __enter__(self) -> None:
        """Nobody else is there."""

    def __exit__(self, *_: object) -> None:
        then, self._then = self._then, None
        if then is not None:
            then()


class Interrupted(Nosy):
    """A lock where Ctrl-C comes instead of the lock, once."""

    def __init__(self) -> None:
        super().__init__()
        self._is_free = False

    def __enter__(self) -> None:
        if not self._is_free:
            self._is_free = True
            raise KeyboardInterrupt


def test_what_is_begun_while_the_unsent_are_dropped_is_news() -> None:
    rig = Rig(linger_s=0.0, idempotent=False)
    rig.leaders[0] = None
    rig.put(b"old")
    rig.poll()
    late: list[ProducerBatch] = []
    signals = rig.signals
    rig.accumulator.lock = Nosy(lambda: late.append(rig.put(b"late")[0]))
    rig.sender.drop_unsent(KafkaTimeoutError("it is over"))
    assert rig.signals == signals + 1
    assert list(rig.accumulator.incomplete) == late


# -- how large a batch becomes ---------------------------------------------------------------------------------------


def test_by_default_a_batch_has_as_many_bytes_as_javas_batch_size() -> None:
    """ProducerConfig: batch.size 16384. A record of n > 8191 bytes takes n + 11: lengths of 3 bytes each, attributes,
    two deltas, no key, no headers; an empty one takes 7, and the header of a batch 61."""
    fits = 16384 - 61 - 7 - 11
    for size, batches in ((fits, 1), (fits + 1, 2)):
        accumulator, topic = (
            RecordAccumulator(lock=Nosy(), clock=lambda: 0.0, rng=random.Random(1), signal=int),
            TopicQueues("t"),
        )
        accumulator.set_partitions(topic, 1, [0])
        placed = [accumulator.append(topic, topic.queues[0], 1, None, value, None)[0] for value in (b"", bytes(size))]
        assert len(set(map(id, placed))) == batches


def test_a_batch_grows_to_four_times_its_room_and_the_next_one_begins_with_twice_what_the_last_one_had() -> None:
    rig = Rig(idempotent=False)
    queue = rig.topic.queues[0]
    first, _ = rig.put(bytes(100))
    # 61, and a record of 100 bytes at the most: its length 2, attributes 1, deltas 15, no key 1, 2 + 100, no headers 1
    assert first.builder.limit_bytes == 183
    rig.put(bytes(100))
    assert first.builder.limit_bytes == 4 * 183
    for _ in range(2):
        rig.put(bytes(100))
    rig.accumulator.close_open_batches()
    size = 61 + 4 * 109  # deltas of one byte each
    assert (first.builder.size_bytes, queue.room_bytes, queue.produced_bytes) == (size, 2 * size, size)
    second, _ = rig.put(b"x")
    assert second.builder.limit_bytes == 2 * size
    assert (first.serial, second.serial, queue.batches_count) == (1, 2, 2)


def test_a_batch_does_not_begin_with_more_than_an_eighth_of_the_memory() -> None:
    rig = Rig(buffer_bytes=16_000, batch_bytes=10_000, idempotent=False)
    rig.put_alone(bytes(3000))
    rig.answer(rig.call())
    batch, _ = rig.put(b"x")
    assert (batch.builder.limit_bytes, batch.limit_bytes) == (2000, 10_000)


@pytest.mark.parametrize("partition", [0, None])
def test_a_batch_that_was_begun_and_left_without_a_record_takes_the_next_one(partition: int | None) -> None:
    """Ctrl-C may come in between."""
    rig = Rig()
    queue = rig.topic.queues[0]
    queue.open = empty = ProducerBatch(queue, 1, rig.accumulator.new_builder(1000), 0.0, lambda: None)
    assert rig.put(b"x", partition) == (empty, 0)
    assert queue.open is empty
    assert empty.records_count == 1


# -- what the sender is told -----------------------------------------------------------------------------------------


def test_a_batch_that_is_full_or_flushed_is_news_although_it_was_known_while_it_lingered() -> None:
    for close in ("fill", "flush", "filled elsewhere"):
        rig = Rig(batch_records=2, linger_s=60.0, idempotent=False)
        batch, _ = rig.put(b"x")
        assert rig.calls() == []
        signals = rig.signals
        if close == "fill":
            rig.put(b"x")
        elif close == "flush":
            rig.accumulator.close_open_batches()
        else:  # as the producer's send does it
            batch.append(1000, None, b"x")
            rig.accumulator.batch_filled(batch.queue, batch)
        assert rig.signals == signals + 1, close
        assert rig.call().batches == [batch]


def test_a_batch_that_another_thread_has_closed_is_not_closed_again() -> None:
    rig = Rig(batch_records=2)
    queue = rig.topic.queues[0]
    full = rig.put_alone(b"x")
    behind, _ = rig.put(b"x")
    rig.accumulator.batch_filled(queue, full)
    assert queue.open is behind
    assert list(queue.closed) == [full]
    rig.accumulator.batch_filled(queue, behind)
    assert list(queue.closed) == [full, behind]
    assert queue.was_filled


def test_a_signal_that_ctrl_c_kept_back_is_given_with_the_next_record() -> None:
    rig = Rig(3)
    for act in (lambda: rig.put(b"x", 0), lambda: rig.accumulator.close_open_batches()):
        rig.interrupted_signals = 1
        signals = rig.signals
        with pytest.raises(KeyboardInterrupt):
            act()
        assert rig.signals == signals
        rig.put(b"x", 1)
        assert rig.signals == signals + 1
        rig.poll()


def test_the_sender_is_signalled_once_until_it_looks_also_when_a_record_was_interrupted_before() -> None:
    rig = Rig(3)
    rig.put(b"x", 0)
    rig.accumulator.close_open_batches()
    rig.put(b"x", 0)
    rig.accumulator.close_open_batches()
    assert rig.signals == 1
    rig.accumulator.lock = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        rig.put(b"x", 1)
    rig.put(b"x", 2)
    assert rig.signals == 1


def test_a_waiter_is_woken_by_a_record_that_fills_a_batch_which_counts_less_then() -> None:
    rig, waiter = Rig(batch_records=2, buffer_bytes=32_000, idempotent=False), Patient()
    rig.put_alone(bytes(2000))
    rig.answer(rig.call())
    rig.put(b"x")  # has room for 4,000 bytes
    rig.accumulator.memory.used_bytes = 32_000 - 400
    assert not rig.accumulator.add_waiter(waiter)
    rig.put(b"x")
    assert waiter.wakes == 1


@pytest.mark.parametrize(("free", "is_short"), [(1999, True), (2000, False)])
def test_nothing_has_to_hurry_when_a_sixteenth_of_the_memory_was_free_after_all(free: int, is_short: bool) -> None:
    rig = Rig(2, buffer_bytes=32_000, linger_s=60.0, idempotent=False)
    rig.put_alone(bytes(2000), 0)
    rig.answer(rig.call())
    lingers, _ = rig.put(b"x", 0)  # has room for 4,000 bytes, and needs 1024 + 61 + 8
    rig.accumulator.memory.used_bytes = 32_000 - free + lingers.reserved_bytes - (1024 + 69)
    rig.put(b"x", 1)
    assert rig.accumulator.memory.is_short is is_short
    assert lingers.reserved_bytes == 1024 + 69
    assert len(rig.calls()) == is_short


# -- what is parked --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "headers", "expected"),
    [
        (None, None, None, 320),
        (b"", b"", [], 320),
        (b"k" * 10, None, None, 330),
        (None, b"v" * 100, None, 420),
        (None, None, [("name", b"value"), ("n", None)], 320 + 192 + 9 + 192 + 1),
    ],
)
def test_a_parked_record_counts_its_bytes_and_its_objects(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]] | None, expected: int
) -> None:
    rig = Rig(0)
    unassigned, index = rig.accumulator.append_unassigned(rig.topic, 1, key, value, headers, None)
    assert rig.accumulator.memory.used_bytes == unassigned.reserved_bytes == expected
    assert index == 0
    assert rig.accumulator.append_unassigned(rig.topic, 1, key, value, headers, None) == (unassigned, 1)
    assert rig.accumulator.memory.used_bytes == 2 * expected


def test_records_stay_parked_while_a_topic_has_no_partitions() -> None:
    rig = Rig(0)
    unassigned, _ = rig.accumulator.append_unassigned(rig.topic, 1, None, b"a", None, None)
    rig.accumulator.set_partitions(rig.topic, 0, [])
    assert rig.topic.unassigned is unassigned
    rig.accumulator.set_partitions(rig.topic, 2, [])
    assert rig.topic.available == [0, 1], "all of them when none has a leader"
    assert unassigned.done.value is MOVED


def test_a_users_partitioner_sees_what_was_parked_as_it_was_given() -> None:
    seen: list[tuple[object, ...]] = []

    class Second:
        def partition(self, *arguments: object) -> int:
            seen.append(arguments[:5])
            return 1

    rig = Rig(0, partitioner=Second())
    rig.accumulator.append_unassigned(rig.topic, 1, b"5", b"[1]", None, None, (5, [1]))
    rig.accumulator.set_partitions(rig.topic, 2, [0, 1])
    assert seen == [("t", 5, b"5", [1], b"[1]")]


def test_what_was_parked_finds_its_batches_though_they_take_more_than_the_memory_and_nothing_else_does() -> None:
    rig = Rig(0, buffer_bytes=2000)
    for partition in range(3):
        rig.accumulator.append_unassigned(rig.topic, 1, None, b"x", None, partition)
    unassigned = rig.topic.unassigned
    rig.accumulator.set_partitions(rig.topic, 4, range(4))
    assert unassigned is not None and unassigned.forward is not None
    assert [pending_records.partition for pending_records, _ in unassigned.forward] == [0, 1, 2]
    assert not any(pending_records.done.is_done for pending_records, _ in unassigned.forward)
    assert rig.accumulator.memory.used_bytes > 3 * 1024, "a batch for each of them"
    with pytest.raises(BufferFull):
        rig.put(b"x", 3)


# -- splitting a batch -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "first"),
    [
        ([10, 10], 1),
        ([10, 10, 10, 10], 2),
        ([10, 10, 10], 2),  # the first part goes on until it has half of the bytes
        ([50, 10, 10, 10], 1),
        ([20, 10, 11], 2),
        ([1, 1, 1, 500], 3),  # the second one has a record in any case
        ([1, 1, 500, 1], 3),
        ([0, 0], 1),
    ],
)
def test_a_batch_is_cut_where_the_first_part_has_half_of_its_bytes(sizes: list[int], first: int) -> None:
    rig = Rig()
    futures = [rig.future(b"x" * size) for size in sizes]
    (batch,) = rig.call().batches
    held = rig.accumulator.memory.used_bytes
    parts = split_batch(batch, rig.accumulator)
    assert [part.records_count for part in parts] == [first, len(sizes) - first]
    assert [len(value) for part in parts for value in rig.values(part)] == sizes
    assert [(part.serial, part.skipped, part.sequence) for part in parts] == [(1, 0, 0), (1, first, first)]
    assert [(part.producer_id, part.epoch) for part in parts] == [(9, 0)] * 2
    assert [part.created_at for part in parts] == [batch.created_at] * 2
    assert not any(future.is_done for future in futures)
    assert list(rig.accumulator.incomplete) == parts
    assert [part.reserved_bytes for part in parts] == [held - held // 2, held // 2]
    assert rig.accumulator.memory.used_bytes == held
    assert batch.reserved_bytes == 0
    parts[0].done.success(BatchResult(5, -1))
    assert [future.succeeded() for future in futures] == [place < first for place in range(len(sizes))]


def test_a_part_that_is_cut_again_keeps_its_place_among_the_others() -> None:
    rig = Rig(idempotent=False)
    for _ in range(8):
        rig.put(b"x" * 10)
    (batch,) = rig.call().batches
    left, right = split_batch(batch, rig.accumulator)
    assert [part.skipped for whole in (left, right) for part in split_batch(whole, rig.accumulator)] == [0, 2, 4, 6]
    assert {part.sequence for part in (left, right)} == {-1}


def test_a_topic_whose_batch_was_too_large_is_not_expected_to_shrink_any_more() -> None:
    """RecordAccumulator.splitAndReenqueue: CompressionRatioEstimator.resetEstimation."""
    rig = Rig(compression=GZIP, idempotent=False)
    ratio = rig.topic.ratio
    assert ratio is not None
    for _ in range(2):
        rig.put(b"x" * 500)
    (batch,) = rig.call().batches
    assert ratio.value < 1.0
    split_batch(batch, rig.accumulator)
    assert ratio.value == 1.0
