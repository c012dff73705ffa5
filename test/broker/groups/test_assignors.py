from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from kafka.broker.groups.assignors import (
    ASSIGNORS,
    Assignment,
    SubscribedMember,
    assign_range,
    assign_uniform,
    java_order,
)

A, B = UUID("0379609c-4cdb-466b-820a-c6c63fcb4f2d"), UUID("04a98796-28f7-49da-908f-80f95958f936")
"""Topics that a real broker has assigned: in Java's order B comes first."""


def numbers(found: Assignment, topic: UUID = A) -> dict[str, list[int]]:
    return {member: sorted(number for one, number in parts if one == topic) for member, parts in found.items()}


def members(*names: str, topics: tuple[UUID, ...] = (A,)) -> dict[str, SubscribedMember]:
    return {name: SubscribedMember(frozenset(topics)) for name in names}


def test_range_gives_runs_in_the_order_of_ids() -> None:
    found = assign_range(members("c", "a", "b", topics=(A, B)), {A: 5, B: 3}, {})
    assert numbers(found) == {"a": [0, 1], "b": [2, 3], "c": [4]}
    assert numbers(found, B) == {"a": [0], "b": [1], "c": [2]}


def test_range_puts_static_members_first_by_their_instance_ids() -> None:
    found = assign_range(
        {"a": SubscribedMember(frozenset({A})), "z": SubscribedMember(frozenset({A}), "i")}, {A: 3}, {}
    )
    assert numbers(found) == {"z": [0, 1], "a": [2]}


def test_range_counts_only_those_who_want_the_topic() -> None:
    found = assign_range({**members("a", "b"), **members("c", topics=(B,))}, {A: 4, B: 2}, {})
    assert numbers(found) == {"a": [0, 1], "b": [2, 3], "c": []}
    assert numbers(found, B)["c"] == [0, 1]


def joined(counts: Mapping[UUID, int], first: str, *others: str) -> Assignment:
    """``first`` had everything when the others came."""
    topics = tuple(counts)
    alone = assign_uniform(members(first, topics=topics), counts, {})
    return assign_uniform(members(first, *others, topics=topics), counts, alone)


def test_uniform_gives_what_apache_kafka_4_3_0_gave() -> None:
    assert numbers(joined({A: 4}, "a", "b")) == {"a": [0, 1], "b": [2, 3]}
    assert numbers(joined({A: 5}, "b", "a")) == {"b": [0, 1, 2], "a": [3, 4]}
    assert numbers(joined({A: 7}, "c", "b", "a")) == {"c": [0, 1, 2], "b": [5, 6], "a": [3, 4]}
    found = joined({A: 8}, "m0", "m1", "m2", "m3", "m4")
    assert numbers(found) == {"m0": [0, 1], "m1": [2], "m2": [3], "m3": [4, 5], "m4": [6, 7]}
    found = joined({A: 3, B: 3}, "m1", "m2", "m3")
    assert numbers(found) == {"m1": [], "m2": [0], "m3": [1, 2]}
    assert numbers(found, B) == {"m1": [0, 1], "m2": [2], "m3": []}


def test_javas_order_of_four_ids_is_the_one_seen() -> None:
    ids = [
        UUID("40284449-241f-44d1-b755-430ac5ad9ce9"),
        UUID("4ff860cf-eed5-4db3-90ae-1c498dd380df"),
        UUID("caa46aba-f7b3-44b5-9bfe-5f798c046639"),
        UUID("d70c0a68-4822-4565-968e-c538ae1819aa"),
    ]
    assert java_order(ids) == [ids[2], ids[0], ids[3], ids[1]]


TOPICS = [UUID(int=number) for number in range(1, 4)]
SUBSCRIBERS = st.dictionaries(
    st.sampled_from("abcdef"),
    st.sets(st.sampled_from(TOPICS)).map(lambda topics: SubscribedMember(frozenset(topics))),
    min_size=1,
)
COUNTS = st.fixed_dictionaries({topic: st.integers(0, 7) for topic in TOPICS})


@given(SUBSCRIBERS, SUBSCRIBERS, COUNTS, st.sampled_from(sorted(ASSIGNORS)))
def test_every_subscribed_partition_has_one_subscribed_owner(
    before: dict[str, SubscribedMember], now: dict[str, SubscribedMember], counts: dict[UUID, int], name: str
) -> None:
    assign = ASSIGNORS[name]
    old = assign(before, counts, {})
    found = assign(now, counts, {one: parts for one, parts in old.items() if one in now})
    given_out = [partition for parts in found.values() for partition in parts]
    wanted = {topic for member in now.values() for topic in member.topics}
    assert sorted(given_out) == sorted((topic, number) for topic in wanted for number in range(counts[topic]))
    assert all(topic in now[member].topics for member, parts in found.items() for topic, _ in parts)
    if name == "uniform" and len({member.topics for member in now.values()}) == 1:
        sizes = [len(parts) for parts in found.values()]
        assert max(sizes) - min(sizes) <= 1


@given(SUBSCRIBERS, COUNTS)
def test_uniform_moves_nothing_when_nothing_has_changed(
    now: dict[str, SubscribedMember], counts: dict[UUID, int]
) -> None:
    first = assign_uniform(now, counts, {})
    assert assign_uniform(now, counts, first) == first


def test_javas_order_is_that_of_a_table_that_grows_with_the_13th_key() -> None:
    """HashMap: 16 buckets, doubled when more than three quarters are in use; "p" is 112, which is 0 modulo 16."""
    assert java_order("abcdefghijkp") == list("pabcdefghijk")
    assert java_order("abcdefghijklp") == list("abcdefghijklp")


def test_javas_hash_of_a_uuid_is_all_of_its_bits() -> None:
    """UUID.hashCode: the two longs and their halves, exclusive or."""

    def order(*numbers: int) -> list[int]:
        return [key.int for key in java_order([UUID(int=number) for number in numbers])]

    assert order(1, 16) == [16, 1]
    assert order(2, 16 << 64) == [16 << 64, 2]
    assert order(2, 16 << 32) == [16 << 32, 2]
    assert order(2, 16 << 96) == [16 << 96, 2]
    assert order(2, 1 << 16) == [1 << 16, 2], "the upper half of a hash is laid over the lower one: 1"


def test_topics_without_partitions_are_given_to_nobody() -> None:
    for assign in (assign_range, assign_uniform):
        assert assign(members("a", "b", topics=(A, B)), {}, {}) == {"a": frozenset(), "b": frozenset()}
        mixed = {**members("a", topics=(A,)), **members("b", topics=(A, B))}
        had = {"a": frozenset({(A, 0)})}
        assert assign(mixed, {}, had) == assign(mixed, {}, {}) == {"a": frozenset(), "b": frozenset()}
    assert numbers(assign_uniform(members("a", topics=(A, B)), {A: 1}, {})) == {"a": [0]}


def test_members_of_several_subscriptions_keep_what_they_may_and_are_levelled() -> None:
    mixed = {**members("a", topics=(A, B)), **members("b", topics=(A,))}
    whole: dict[str, frozenset[tuple[UUID, int]]] = {"a": frozenset((A, number) for number in range(6))}
    assert numbers(assign_uniform(mixed, {A: 6}, whole)) == {"a": [0, 1, 2], "b": [3, 4, 5]}
    halves = {"a": frozenset({(A, 0), (A, 2), (A, 3)}), "b": frozenset({(A, 1)})}
    assert numbers(assign_uniform(mixed, {A: 4}, halves)) == {"a": [0, 2], "b": [1, 3]}
    kept = {"a": frozenset({(A, 3), (A, 4)}), "b": frozenset({(A, 0), (A, 3), (B, 0)})}
    found = assign_uniform(mixed, {A: 4, B: 1}, kept)
    assert numbers(found) == {"a": [2, 3], "b": [0, 1]}
    assert numbers(found, B) == {"a": [0], "b": []}
