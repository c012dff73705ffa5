from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from kafka.broker.share.coordinator import assign_simple

TOPICS = [UUID(int=at) for at in range(1, 5)]


@given(st.integers(1, 12), st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9), min_size=1), st.integers(0, 12))
def test_equal_subscriptions_are_served_evenly_and_every_partition_has_a_member_and_nothing_moves_twice(
    members: int, counts: dict[UUID, int], left: int
) -> None:
    subscriptions = {f"m{at}": set(counts) for at in range(members)}
    first = assign_simple(subscriptions, counts, {})
    gone = {name: subscriptions[name] for name in sorted(subscriptions)[min(left, members - 1) :]}
    for names, result in ((subscriptions, first), (gone, assign_simple(gone, counts, first))):
        assert set(result) == set(names)
        sizes = [len(found) for found in result.values()]
        assert max(sizes) - min(sizes) <= 1
        assert min(sizes) >= 1 or sum(counts.values()) < 1
        shared: dict[tuple[UUID, int], int] = {}
        for found in result.values():
            for partition in found:
                shared[partition] = shared.get(partition, 0) + 1
        assert len(shared) == sum(counts.values())
        assert max(shared.values()) - min(shared.values()) <= 1
        if len(names) <= len(shared):
            assert max(shared.values()) == 1
        assert assign_simple(names, counts, result) == result


@given(
    st.dictionaries(st.sampled_from(["a", "b", "c", "d", "e"]), st.sets(st.sampled_from(TOPICS)), min_size=1),
    st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 5)),
)
def test_members_get_only_what_they_subscribe_to_and_nothing_is_left_over(
    subscriptions: dict[str, set[UUID]], counts: dict[UUID, int]
) -> None:
    result = assign_simple(subscriptions, counts, {})
    for member, found in result.items():
        assert all(topic in subscriptions[member] for topic, _ in found)
        assert bool(found) == any(counts.get(topic) for topic in subscriptions[member])
    wanted = {topic for topics in subscriptions.values() for topic in topics}
    assert {partition for found in result.values() for partition in found} == {
        (topic, at) for topic in wanted for at in range(counts.get(topic, 0))
    }


def test_members_keep_what_they_have_when_another_joins() -> None:
    counts = {TOPICS[0]: 4}
    first = assign_simple({"a": set(counts), "b": set(counts)}, counts, {})
    second = assign_simple({"a": set(counts), "b": set(counts), "c": set(counts)}, counts, first)
    assert second["a"] <= first["a"]
    assert second["b"] <= first["b"]


ONE, TWO, THREE = TOPICS[:3]


def numbers(result: dict[str, frozenset[tuple[UUID, int]]]) -> dict[str, list[int]]:
    return {member: sorted(number for _, number in found) for member, found in result.items()}


def assigned(partitions: int, current: dict[str, int], more: str = "") -> dict[str, list[int]]:
    """The partitions' numbers of each member of one topic; ``current``: what each has, ``more``: who has none yet."""
    subscriptions = {member: {ONE} for member in [*current, *more]}
    return numbers(
        assign_simple(subscriptions, {ONE: partitions}, {who: frozenset({(ONE, at)}) for who, at in current.items()})
    )


def test_members_that_share_partitions_keep_them_as_long_as_that_is_even() -> None:
    """KIP-932, SimpleAssignor: as few changes as an even assignment needs."""
    swapped = {"a": 1, "b": 0, "c": 1, "d": 0, "e": 1, "f": 0}
    assert assigned(2, swapped) == {who: [at] for who, at in swapped.items()}
    assert assigned(2, {"a": 1, "b": 0, "c": 1, "d": 1}) == {"a": [1], "b": [0], "c": [1], "d": [0]}
    assert assigned(2, {"a": 1, "b": 0, "c": 1, "d": 1, "e": 1}) == {
        "a": [1], "b": [0], "c": [1], "d": [1], "e": [0],
    }  # fmt: skip
    assert assigned(3, {"a": 0, "b": 1, "c": 2, "d": 0, "e": 1, "f": 0, "g": 1}) == {
        "a": [0], "b": [1], "c": [2], "d": [0], "e": [1], "f": [0], "g": [2],
    }  # fmt: skip


def test_who_has_nothing_yet_gets_the_partition_with_the_fewest_members() -> None:
    assert assigned(2, {"a": 0}, more="bc") == {"a": [0], "b": [1], "c": [0]}
    assert assigned(2, {"a": 1}, more="bc") == {"a": [1], "b": [0], "c": [0]}
    assert assigned(2, {"a": 0, "b": 1, "c": 0}, more="d") == {"a": [0], "b": [1], "c": [0], "d": [1]}


def test_what_a_member_does_not_subscribe_to_any_more_or_is_gone_is_not_kept() -> None:
    current = {"a": frozenset({(ONE, 0), (ONE, 1), (TWO, 5)})}
    result = assign_simple({"a": {TWO}, "b": {ONE, TWO}}, {ONE: 2, TWO: 1}, current)
    assert result == {"a": frozenset({(TWO, 0)}), "b": frozenset({(ONE, 0), (ONE, 1)})}


def test_partitions_move_to_the_emptiest_member_that_may_have_them() -> None:
    """A member that may have none of them, as its topic has no partitions, stops nobody else."""
    current = {"a": frozenset((ONE, at) for at in range(4))}
    result = assign_simple({"a": {ONE}, "b": {TWO}, "c": {ONE}}, {ONE: 4}, current)
    assert numbers(result) == {"a": [0, 1], "b": [], "c": [2, 3]}
