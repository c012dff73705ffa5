"""How much is read ahead, and of which partitions."""

from __future__ import annotations

import random

from kafka.core.consume.session import SendFetch
from kafka.structs import TopicPartition
from test.core.consume.rig import A, B, C, Rig
from test.core.consume.test_partition import batch
from test.support.seeds import each_seed

SIZE = len(batch(0, b"x" * 100))


def test_a_paused_partition_keeps_what_it_has_and_is_fetched_no_more() -> None:
    rig = Rig(A, B)
    rig.seek_all()
    rig.answer(rig.fetch(), p0=batch(0, b"a"), p1=batch(0, b"b"))
    rig.fetcher.position_of(A).pause()
    assert rig.read() == [b"b"]
    call = rig.fetch()
    assert rig.asked(call) == {1: 1}
    rig.answer(call)
    rig.fetcher.position_of(A).pause(False)
    assert rig.read() == [b"a"], "without another fetch"


def test_what_is_on_its_way_to_a_paused_partition_is_kept() -> None:
    rig = Rig(A)
    rig.seek_all()
    call = rig.fetch()
    rig.fetcher.position_of(A).pause()
    rig.answer(call, p0=batch(0, b"a"))
    assert rig.read() == []
    rig.fetcher.position_of(A).pause(False)
    assert rig.read() == [b"a"]


def test_paused_partitions_that_hold_all_the_room_make_way() -> None:
    """They are fetched again when they go on."""
    rig = Rig(A, C, buffer_bytes=3 * SIZE)
    rig.seek_all()
    calls = {call.node: call for call in rig.fetches()}
    rig.answer(calls[1], p0=batch(0, b"x" * 100) + batch(1, b"y" * 100) + batch(2, b"z" * 100))
    rig.fetcher.position_of(A).pause()
    rig.answer(calls[2])
    assert [call.node for call in rig.fetches()] == [2]
    assert rig.fetcher.positions[A].fetch_offset == 0
    rig.fetcher.position_of(A).pause(False)
    assert rig.asked(rig.fetch()) == {0: 0}


def test_the_room_is_used_to_its_last_byte() -> None:
    rig = Rig(A, buffer_bytes=2 * SIZE)
    rig.seek_all()
    rig.answer(rig.fetch(), p0=batch(0, b"x" * 100))
    call = rig.fetch()  # what one fetch may bring is half of the room, and that is left
    assert (call.request.max_bytes, rig.fetcher.lacks_room) == (SIZE, False)
    rig.answer(call, p0=batch(1, b"x" * 100))
    assert rig.fetches() == []
    assert rig.fetcher.lacks_room
    rig.read()
    assert (rig.fetch().request.max_bytes, rig.fetcher.lacks_room) == (SIZE, False)


def test_a_room_too_small_to_be_shared_is_given_byte_by_byte() -> None:
    rig = Rig(A, buffer_bytes=1)
    rig.seek_all()
    assert rig.fetch().request.max_bytes == 1


def test_paused_partitions_keep_what_they_hold_while_others_have_room() -> None:
    rig = Rig(A, C, buffer_bytes=2 * SIZE)
    rig.seek_all()
    calls = {call.node: call for call in rig.fetches()}
    rig.answer(calls[1], p0=batch(0, b"x" * 100))
    rig.fetcher.position_of(A).pause()
    rig.answer(calls[2])
    call = rig.fetch()
    assert (call.node, call.request.max_bytes) == (2, SIZE)
    assert rig.fetcher.positions[A].fetch_offset == 1


def test_a_partition_that_holds_its_share_to_the_byte_has_enough() -> None:
    rig = Rig(A, B, max_partition_bytes=SIZE)
    rig.seek_all()
    rig.answer(rig.fetch(), p0=batch(0, b"x" * 100))
    assert rig.asked(rig.fetch()) == {1: 0}


def test_partitions_that_have_something_are_read_in_turn() -> None:
    rig = Rig(A, B, C)
    rig.seek_all()
    for call in rig.fetches():
        rig.answer(call, p0=batch(0, b"a"), p1=batch(0, b"b"), p2=batch(0, b"c"))
    turns = [rig.fetcher.ready() for _ in range(6)]
    assert [position.partition for position in turns if position] == [A, B, C] * 2


def test_a_node_that_got_no_room_is_the_first_to_get_some() -> None:
    rig = Rig(A, C, buffer_bytes=8 * SIZE)
    rig.seek_all()
    calls = {call.node: call for call in rig.fetches()}
    rig.answer(calls[1], p0=b"".join(batch(number, b"x" * 100) for number in range(6)))
    rig.answer(calls[2])
    first = rig.fetch()
    rig.read()
    second = rig.fetch()
    assert {first.node, second.node} == {1, 2}


@each_seed(20)
def test_what_is_held_and_may_come_is_never_more_than_the_bound(seed: int) -> None:
    """By chance: answers of all sizes that the broker may give, readers fast and slow, pauses and seeks."""
    rng = random.Random(seed)
    bound = rng.choice([5, 10, 40]) * SIZE
    rig = Rig(A, B, C, buffer_bytes=bound, max_partition_bytes=rng.choice([1, 4]) * SIZE, max_bytes=20 * SIZE)
    rig.seek_all()
    in_flight: list[SendFetch] = []
    read = 0
    for _ in range(400):
        rig.now += 0.02
        in_flight += rig.fetches()
        held = sum(position.buffered_bytes for position in rig.fetcher.positions.values())
        over = SIZE * 2 * 2  # a first batch comes whole, however little is asked for: one for each fetch
        assert held + sum(call.reserved_bytes for call in in_flight) <= bound + over
        what = rng.random()
        if what < 0.5 and in_flight:
            call = in_flight.pop(rng.randrange(len(in_flight)))
            left = max(call.request.max_bytes, SIZE)
            answers: dict[str, bytes | int] = {}
            for partition, offset in rig.asked(call).items():
                count = min(left, rig.fetcher._limits.max_partition_bytes) // SIZE if rng.random() < 0.7 else 0
                left -= count * SIZE
                if count:
                    answers[f"p{partition}"] = b"".join(batch(offset + n, b"x" * 100) for n in range(count))
            rig.answer(call, **answers)
        elif what < 0.8:
            read += len(rig.read())
        elif what < 0.9:
            rig.fetcher.position_of(rng.choice([A, B, C])).pause(rng.random() < 0.4)
        elif what < 0.93:
            rig.fetcher.position_of(rng.choice([A, B, C])).seek(rng.randrange(50))
    assert read > 50
    held = sum(position.buffered_bytes for position in rig.fetcher.positions.values())
    assert rig.fetcher._changes.buffered_bytes == held


def test_a_thousand_idle_partitions_are_not_looked_at() -> None:
    """One pass over them per answer would cost a thousand times what an answer costs."""
    partitions = [TopicPartition("t", number) for number in range(1000)]
    rig = Rig()
    rig.leaders.update(dict.fromkeys(partitions, 1))
    rig.fetcher.assign(partitions)
    rig.seek_all()
    rig.answer(rig.fetch())
    looked_at: list[TopicPartition] = []

    class Noted(dict[TopicPartition, int]):
        def get(self, partition: TopicPartition, default: int = -1) -> int:  # type: ignore[override]
            looked_at.append(partition)
            return super().get(partition, default)

    rig.epochs = Noted()
    for _ in range(3):
        rig.answer(rig.fetch())
    assert looked_at == []
    rig.answer(rig.fetch(), p500=batch(0, b"x"))
    rig.fetch()
    assert [partition.partition for partition in looked_at] == [500]
